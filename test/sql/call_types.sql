-- Values of every kind as arguments and as results, at the edges of their
-- types: idem_call's JSON, and twins, whose replay is the value itself in a
-- session with any settings.

\pset null '(null)'
\set VERBOSITY terse
SET client_min_messages = warning;
CREATE ROLE regress_idem_typist;
SELECT idem_grant('regress_idem_typist');
CREATE SCHEMA regress_types AUTHORIZATION regress_idem_typist;
SET search_path = regress_types, public;
SET ROLE regress_idem_typist;
SET timezone = 'Europe/Berlin';

CREATE TYPE mood AS ENUM ('sad', 'so "so"', 'o,k)');
CREATE DOMAIN positive AS numeric CHECK (VALUE > 0);
CREATE TYPE pair AS (x float8, j jsonb, m mood);
CREATE TYPE nest AS (p pair, ps pair[], t text);
CREATE DOMAIN good_pair AS pair CHECK ((VALUE).x > 0);
CREATE TYPE floatrange AS RANGE (subtype = float8);

-- values by their type
CREATE TABLE kind (id int GENERATED ALWAYS AS IDENTITY, t text, v text);
INSERT INTO kind (t, v) VALUES
('int2', '-32768'), ('int4', '2147483647'), ('int8', '9223372036854775807'), ('int8', '-9223372036854775808'),
('numeric', 'NaN'), ('numeric', 'Infinity'), ('numeric', '-Infinity'), ('numeric', '1.500'), ('numeric', '9223372036854775808'),
('numeric', '0.10000000000000001'), ('numeric', '1e1000'), ('numeric', '-0.000'), ('numeric', '9007199254740993'),
('float8', 'NaN'), ('float8', 'Infinity'), ('float8', '-Infinity'), ('float8', '-0'), ('float8', '0.30000000000000004'), ('float8', '9223372036854775808'),
('float8', '1.7976931348623157e308'), ('float8', '5e-324'), ('float8', '9007199254740993'), ('float4', '0.1'), ('float4', '16777217'), ('float4', '1e-45'),
('bool', 'true'), ('text', ''), ('text', E' \t\n\r"\\/{}[],NULL ''$$ \u00fc\u2028\U0001F600 \u0001'), ('text', 'NULL'), ('varchar', '  x  '), ('char(5)', 'ab'), ('"char"', 'x'), ('name', 'Name'),
('bytea', '\x00ff5c27'), ('bytea', ''), ('date', 'infinity'), ('date', '0044-03-15 BC'), ('date', '2026-02-01'), ('time', '23:59:59.999999'), ('timetz', '24:00:00+15:59'),
('timestamp', '-infinity'), ('timestamp', '2026-02-01 03:04:05.000001'), ('timestamptz', '2026-07-01 12:00:00.123456+05:45'), ('timestamptz', '0001-01-01 00:00:00 BC'), ('timestamptz', 'infinity'),
('interval', '1 year -2 mons +3 days -04:05:06.789'), ('interval', '-178000000 years'), ('uuid', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'),
('json', E' {"b" : 1.50,\n "a": null, "a": [1,  2]} '), ('json', '"\u0000"'), ('json', '1e400'), ('jsonb', 'null'), ('jsonb', '{"b": 1.50, "a": [null, "\\u2028"]}'), ('jsonb', '9007199254740993'),
('int4[]', '[0:1]={1,2}'), ('int4[]', '{{1,NULL},{3,4}}'), ('int4[]', '{}'), ('text[]', '{NULL,"NULL","","a\\b","c\"d","{}"}'), ('float8[]', '{NaN,-0,0.30000000000000004}'),
('mood', 'so "so"'), ('mood[]', '{"o,k)",NULL}'), ('positive', '0.10'), ('pair', '(0.30000000000000004,"[null, {}]","o,k)")'), ('pair', '(,null,)'), ('pair', '(,,)'), ('pair[]', '{"(NaN,,)",NULL}'),
('nest', ROW(ROW(1, NULL, 'sad')::pair, ARRAY[ROW(2, '{"k\"": null}', 'so "so"')::pair, NULL], E'a"b\\c,()\n')::nest::text), ('good_pair', '(1,,)'),
('int4range', '[1,5)'), ('int4multirange', '{[1,2),[5,9)}'), ('tstzrange', '["2026-02-01 00:00:00+00",)'), ('floatrange', '[0.30000000000000004,Infinity)'),
('point', '(0.30000000000000004,-0)'), ('box', '(2,2),(1,1)'), ('path', '[(0,0),(1,1)]'), ('inet', '::1/64'), ('cidr', '10.0.0.0/8'), ('macaddr', '08:00:2b:01:02:03'), ('bit(3)', '101'), ('varbit', '10'),
('tsvector', '''a b'':1A ''c'''), ('tsquery', '''a'' & !''b'''), ('jsonpath', '$."a"[*]'), ('money', '$1,234.56'), ('money', '-$0.01'), ('regclass', 'pg_class'), ('regclass', 'kind'), ('regprocedure', 'lower(text)'), ('regtype', 'mood'),
('regrole', 'regress_idem_typist'), ('oid', '4294967295'), ('xid8', '18446744073709551615'), ('pg_lsn', 'FFFFFFFF/FFFFFFFF'), ('tid', '(1,2)'), ('_bpchar', '{"ab "}');

-- For each type a function that returns its argument, one that returns a set of
-- it, one that returns it among other columns; their twins; and a table of
-- values: the argument v, first results 1, replays 2.
CREATE FUNCTION each_type(command text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	k record;
BEGIN
	FOR k IN SELECT t, min(id) AS n FROM kind GROUP BY t ORDER BY 2 LOOP
		EXECUTE replace(replace(command, '@', k.t), '#', k.n::text);
	END LOOP;
END $$;
SELECT each_type($$
	CREATE FUNCTION same(v @) RETURNS @ LANGUAGE sql AS 'SELECT v';
	CREATE FUNCTION twice(v @) RETURNS SETOF @ LANGUAGE sql AS 'VALUES (v), (NULL), (v)';
	CREATE FUNCTION wide(v @, OUT a @, OUT b int) LANGUAGE sql AS 'SELECT v, NULL::int';
	SELECT idem_wrap('same(@)'), idem_wrap('twice(@)'), idem_wrap('wide(@)');
	CREATE TABLE of_# (id int, v @, same1 @, twice1 @, wide1 @, json1 text, same2 @, twice2 @, wide2 @, json2 text);
	INSERT INTO of_# (id, v) SELECT id, v::@ FROM kind WHERE t = '@' ORDER BY id;
	UPDATE of_# SET same1 = same_once('same' || id, v), twice1 = (SELECT third FROM twice_once('twice' || of_#.id, of_#.v) AS third OFFSET 2),
		wide1 = (SELECT a FROM wide_once('wide' || id, v)),
		json1 = idem_call('json' || id, 'same(@)', (SELECT jsonb_build_array(k.v) FROM kind AS k WHERE k.id = of_#.id));
$$);
-- in a session that is set otherwise
SET datestyle = 'SQL, DMY';
SET intervalstyle = 'iso_8601';
SET timezone = 'Asia/Kathmandu';
SET extra_float_digits = -15;
SET bytea_output = 'escape';
SET array_nulls = off;
SET quote_all_identifiers = on;
SET default_text_search_config = 'pg_catalog.simple';
SELECT each_type($$
	UPDATE of_# SET same2 = same_once('same' || id, v), twice2 = (SELECT third FROM twice_once('twice' || of_#.id, of_#.v) AS third OFFSET 2),
		wide2 = (SELECT a FROM wide_once('wide' || id, v)),
		json2 = idem_call('json' || id, 'same(@)', (SELECT jsonb_build_array(k.v) FROM kind AS k WHERE k.id = of_#.id));
$$);
-- and back: every replay is its first result, and that is the argument
RESET ALL;
SET search_path = regress_types, public;
SET client_min_messages = warning;
SET timezone = 'Europe/Berlin';
CREATE TABLE verdict (id int, argument text, json text, same boolean);
SELECT each_type($$
	INSERT INTO verdict SELECT id, v::text, json1,
		(v::text, v::text, v::text, v::text, json1)
			IS NOT DISTINCT FROM (same1::text, same2::text, wide2::text, twice2::text, json2)
		AND (wide1::text, twice1::text) IS NOT DISTINCT FROM (wide2::text, twice2::text)
	FROM of_#
$$);
SELECT k.t AS type, left(v.argument, 45) AS argument, left(v.json, 60) AS json, v.same FROM verdict AS v JOIN kind AS k USING (id) ORDER BY id;

-- arguments that differ are other calls; those that are equal as JSON are not
SELECT same_once('distinct', 0.1::float8);
SELECT same_once('distinct', 0.10000000000000002::float8);
SELECT same_once('distinct 2', 9007199254740993::numeric), same_once('distinct 2', 9007199254740993.0::numeric);
SELECT same_once('distinct 2', 9007199254740992::numeric);
SELECT same_once('distinct 3', '2026-01-01 00:00+00'::timestamptz) = same_once('distinct 3', '2026-01-01 01:00+01'::timestamptz) AS same;
SELECT same_once('distinct 5', '{"a": 1, "b": 2}'::json), same_once('distinct 5', '{"b":2.0,"a":1}'::json);
SELECT same_once('distinct 5', '{"a": 1}'::json);

RESET ROLE;
DROP SCHEMA regress_types CASCADE;
SELECT idem_revoke('regress_idem_typist');
REVOKE ALL ON SCHEMA public FROM regress_idem_typist;
DROP ROLE regress_idem_typist;
DELETE FROM idem.key;
