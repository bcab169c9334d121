-- A twin's record holds the columns of its result: what was recorded is never
-- read under other names. And a twin's arguments are told apart whatever casts
-- to json there are.

\pset null '(null)'
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE ROLE regress_idem_wrapper;
SELECT idem_grant('regress_idem_wrapper');
CREATE SCHEMA regress_shape AUTHORIZATION regress_idem_wrapper;
SET search_path = regress_shape, public;
SET ROLE regress_idem_wrapper;

-- a composite: an attribute dropped and another added
CREATE TYPE invoice AS (amount numeric, fee numeric);
CREATE TYPE nest AS (n invoice[]);
CREATE DOMAIN good_invoice AS invoice CHECK ((VALUE).amount > 0);
CREATE DOMAIN good_nests AS nest[];
CREATE TABLE tab (amount numeric, fee numeric);
CREATE TYPE tabs AS (t tab, i int);
CREATE FUNCTION one() RETURNS invoice LANGUAGE sql AS 'SELECT 100.0, 3.5';
CREATE FUNCTION lots() RETURNS SETOF invoice LANGUAGE sql AS 'VALUES (100.0, 3.5), (NULL, NULL)';
CREATE FUNCTION arr() RETURNS invoice[] LANGUAGE sql AS 'SELECT ARRAY[ROW(100.0, 3.5)::invoice]';
CREATE FUNCTION nested() RETURNS nest LANGUAGE sql AS 'SELECT ROW(ARRAY[ROW(100.0, 3.5)::invoice])::nest';
CREATE FUNCTION dom() RETURNS good_invoice LANGUAGE sql AS 'SELECT ROW(100.0, 3.5)::invoice::good_invoice';
CREATE FUNCTION doms() RETURNS SETOF good_nests LANGUAGE sql AS 'SELECT ARRAY[ROW(ARRAY[ROW(100.0, 3.5)::invoice])::nest]';
CREATE FUNCTION outs(OUT a int, OUT b invoice) LANGUAGE sql AS 'SELECT 1, ROW(100.0, 3.5)::invoice';
CREATE FUNCTION outs_tab() RETURNS TABLE (b invoice, a int) LANGUAGE sql AS 'SELECT ROW(100.0, 3.5)::invoice, 1';
CREATE FUNCTION out_one(OUT b invoice) LANGUAGE sql AS 'SELECT ROW(100.0, 3.5)::invoice';
CREATE FUNCTION of_tab() RETURNS tab LANGUAGE sql AS 'SELECT 100.0, 3.5';
CREATE FUNCTION of_tabs() RETURNS SETOF tabs LANGUAGE sql AS 'SELECT ROW(100.0, 3.5)::tab, 1';
CREATE FUNCTION of_range() RETURNS numrange LANGUAGE sql AS $$SELECT '[1,2)'::numrange$$;
SELECT count(idem_wrap(oid)) FROM pg_proc WHERE pronamespace = 'regress_shape'::regnamespace;
-- each function's twin, called with its own name as key: one line of text
CREATE FUNCTION call_all(prefix text) RETURNS TABLE (twin text, answer text) LANGUAGE plpgsql AS $$
BEGIN
	FOR twin IN
		SELECT proname FROM pg_proc
		WHERE pronamespace = 'regress_shape'::regnamespace AND proname LIKE '%\_once' ORDER BY 1
	LOOP
		BEGIN
			EXECUTE format('SELECT string_agg(to_json(t)::text, '' '') FROM %I(%L) AS t', twin, prefix || twin) INTO answer;
		EXCEPTION WHEN OTHERS THEN
			answer := SQLSTATE || ' ' || SQLERRM;
		END;
		RETURN NEXT;
	END LOOP;
END $$;
SELECT * FROM call_all('k ');
SELECT count(*) AS all, count(*) FILTER (WHERE a.answer = b.answer) AS same FROM call_all('k ') AS a JOIN call_all('k ') AS b USING (twin);
RESET ROLE;
SELECT key, split_part(result, E'\n', 1) AS type, length(split_part(result, E'\n', 2)) AS shape, split_part(result, E'\n', 3) AS value FROM idem.key ORDER BY key;
SET ROLE regress_idem_wrapper;
ALTER TYPE invoice DROP ATTRIBUTE amount CASCADE, ADD ATTRIBUTE total numeric CASCADE;
ALTER TABLE tab DROP amount, ADD total numeric;
SELECT * FROM call_all('k ');
-- new keys in the same session (from 18 on, SQL functions keep plans with rows that were constant)
DISCARD PLANS;
SELECT * FROM call_all('new ');
-- as they were before: the same columns again
ALTER TYPE invoice DROP ATTRIBUTE total, DROP ATTRIBUTE fee, ADD ATTRIBUTE amount numeric, ADD ATTRIBUTE fee numeric;
ALTER TABLE tab DROP total, DROP fee, ADD amount numeric, ADD fee numeric;
SELECT twin, answer FROM call_all('k ') WHERE answer LIKE 'ID%';
-- an attribute that has another name, or another type that reads the same text
ALTER TYPE invoice RENAME ATTRIBUTE fee TO tax;
SELECT one_once('k one_once');
SELECT idem_call('k one_once', 'one()');
ALTER TYPE invoice RENAME ATTRIBUTE tax TO fee;
SELECT one_once('k one_once');
ALTER TYPE invoice ALTER ATTRIBUTE amount TYPE text;
SELECT one_once('k one_once');
\echo :LAST_ERROR_SQLSTATE
-- a precision or length: if the value would be another one
ALTER TYPE invoice ALTER ATTRIBUTE amount TYPE numeric(10, 1);
SELECT one_once('k one_once');
ALTER TYPE invoice ALTER ATTRIBUTE amount TYPE numeric(10, 0);
SELECT one_once('k one_once');
ALTER TYPE invoice ALTER ATTRIBUTE amount TYPE numeric;

-- OUT parameters in another order, or under another name
CREATE FUNCTION outp(OUT amount numeric, OUT fee numeric) LANGUAGE sql AS 'SELECT 100.0, 3.5';
CREATE FUNCTION outt() RETURNS TABLE (amount numeric, fee numeric) LANGUAGE sql AS 'SELECT 100.0, 3.5';
CREATE FUNCTION outo(OUT amount numeric) LANGUAGE sql AS 'SELECT 100.0';
CREATE FUNCTION outs1() RETURNS TABLE (amount numeric) LANGUAGE sql AS 'SELECT 100.0';
CREATE FUNCTION outio(INOUT amount numeric) LANGUAGE sql AS 'SELECT amount';
SELECT idem_wrap('outp()'), idem_wrap('outt()'), idem_wrap('outo()'), idem_wrap('outs1()'), idem_wrap('outio(numeric)');
SELECT a.*, b.*, c.*, d.*, e.* FROM outp_once('o1') AS a, outt_once('o2') AS b, outo_once('o3') AS c, outs1_once('o4') AS d, outio_once('o5', 100.0) AS e;
SELECT a.*, b.*, c.*, d.*, e.* FROM outp_once('o1') AS a, outt_once('o2') AS b, outo_once('o3') AS c, outs1_once('o4') AS d, outio_once('o5', 100.0) AS e;
DROP FUNCTION outp(), outt(), outo(), outs1(), outio(numeric);
CREATE FUNCTION outp(OUT fee numeric, OUT amount numeric) LANGUAGE sql AS 'SELECT 3.5, 100.0';
CREATE FUNCTION outt() RETURNS TABLE (fee numeric, amount numeric) LANGUAGE sql AS 'SELECT 3.5, 100.0';
CREATE FUNCTION outo(OUT fee numeric) LANGUAGE sql AS 'SELECT 3.5';
CREATE FUNCTION outs1() RETURNS TABLE (fee numeric) LANGUAGE sql AS 'SELECT 3.5';
CREATE FUNCTION outio(INOUT fee numeric) LANGUAGE sql AS 'SELECT fee';
-- the old twins: neither for a new key
SELECT * FROM outp_once('o1 new');
SELECT * FROM outt_once('o2 new');
SELECT * FROM outo_once('o3 new');
SELECT * FROM outs1_once('o4 new');
SELECT * FROM outio_once('o5 new', 100.0);
SELECT count(*) FROM unnest('{1,2,3,4,5}'::int[]) AS i, idem_lookup('o' || i || ' new');
-- nor the new twins for an old one
DROP FUNCTION outp_once, outt_once, outo_once, outs1_once, outio_once;
SELECT idem_wrap('outp()'), idem_wrap('outt()'), idem_wrap('outo()'), idem_wrap('outs1()'), idem_wrap('outio(numeric)');
SELECT * FROM outp_once('o1');
SELECT * FROM outt_once('o2');
SELECT * FROM outo_once('o3');
SELECT * FROM outs1_once('o4');
SELECT * FROM outio_once('o5', 100.0);
SELECT a.*, b.*, c.*, d.*, e.* FROM outp_once('n1') AS a, outt_once('n2') AS b, outo_once('n3') AS c, outs1_once('n4') AS d, outio_once('n5', 100.0) AS e;
-- by hand as well
SELECT * FROM idem_twin('outp()', 'h1') AS t (fee numeric, fees numeric);
SELECT * FROM idem_twin('outo()', 'h1') AS t (r numeric);
SELECT idem_twin_value('outo()', 'h1', NULL::numeric);
-- two columns of one name cannot be read by name
CREATE FUNCTION twofold(OUT column2 int, OUT int) LANGUAGE sql AS 'SELECT 1, 2';
SELECT idem_wrap('twofold()');
-- odd names
CREATE FUNCTION odd(OUT "A b" int, OUT "select" int, OUT ctid int, OUT "q""q" int, OUT result int, OUT t int) LANGUAGE sql AS 'SELECT 1, 2, 3, 4, 5, 6';
CREATE FUNCTION odd1(OUT "A ""b" int) LANGUAGE sql AS 'SELECT 1';
CREATE FUNCTION odd2() RETURNS TABLE ("A ""b" invoice) LANGUAGE sql AS 'SELECT 1.0, 2.0';
SELECT idem_wrap('odd()'), idem_wrap('odd1()'), idem_wrap('odd2()');
SELECT * FROM odd_once('q1'), odd1_once('q2'), odd2_once('q3');
SELECT * FROM odd_once('q1'), odd1_once('q2'), odd2_once('q3');

-- Arguments: a cast to json that is not one to one, in any place
RESET ROLE;
CREATE TYPE regress_shape.em AS ENUM ('a', 'b');
CREATE TYPE regress_shape.with_em AS (e regress_shape.em, i int);
CREATE FUNCTION regress_shape.em_json(regress_shape.em) RETURNS json LANGUAGE plpgsql AS $$BEGIN RAISE 'secret %', $1; END$$;
SET ROLE regress_idem_wrapper;
CREATE FUNCTION e1(x em) RETURNS int LANGUAGE sql AS 'SELECT 1';
CREATE FUNCTION e2(x em[]) RETURNS int LANGUAGE sql AS 'SELECT 1';
CREATE FUNCTION e3(x with_em) RETURNS int LANGUAGE sql AS 'SELECT 1';
SELECT idem_wrap('e1(em)'), idem_wrap('e2(em[])'), idem_wrap('e3(with_em)');
SELECT e1_once('e1', 'a'), e2_once('e2', '{a,b}'), e3_once('e3', '(a,1)');
RESET ROLE;
CREATE CAST (regress_shape.em AS json) WITH FUNCTION regress_shape.em_json(regress_shape.em);
SET ROLE regress_idem_wrapper;
SELECT e1_once('e1', 'a'), e2_once('e2', '{a,b}'), e3_once('e3', '(a,1)');
SELECT idem_call('e1', 'e1(em)', '["a"]'), idem_call('e2', 'e2(em[])', '[["a", "b"]]'), idem_call('e3', 'e3(with_em)', '[{"e": "a", "i": 1}]');
SELECT e1_once('e1', 'b');
SELECT e2_once('e2', '{b,a}');
SELECT e3_once('e3', '(b,1)');
RESET ROLE;
DROP CAST (regress_shape.em AS json);
SET ROLE regress_idem_wrapper;
SELECT e1_once('e1', 'a'), e2_once('e2', '{a,b}'), e3_once('e3', '(a,1)');

-- values that JSON would take for each other are told apart, under any settings
CREATE TYPE item AS (j jsonb, k json, f float8, t text);
CREATE TABLE apart (n int, t text, v text, json jsonb);
INSERT INTO apart VALUES
(1, 'float8', '0', '0'), (1, 'float8', '-0', '"-0"'), (1, 'float8', 'NaN', '"NaN"'), (1, 'float8', '0.1', '0.1'), (1, 'float8', '0.10000000000000002', '0.10000000000000002'), (1, 'float8', '9223372036854775808', '9223372036854776000'),
(2, 'int[]', '{1,2}', '[1, 2]'), (2, 'int[]', '[0:1]={1,2}', '"[0:1]={1,2}"'), (2, 'int[]', '{{1,2}}', '[[1, 2]]'), (2, 'int[]', '{1,NULL}', '[1, null]'), (2, 'int[]', '{}', '[]'), (2, 'int[]', NULL, 'null'),
(3, 'jsonb', 'null', NULL), (3, 'jsonb', NULL, 'null'), (3, 'jsonb', '"null"', '"null"'), (3, 'jsonb', '[null]', '[null]'), (3, 'jsonb', '{"3 json": null}', '{"3 json": null}'),
(4, 'jsonb[]', '{NULL}', '[null]'), (4, 'jsonb[]', '{"null"}', '"{\"null\"}"'), (4, 'jsonb[]', '{"\"null\""}', '["null"]'), (4, 'jsonb[]', '{}', '[]'),
(5, 'item', '(null,,,)', '"(null,,,)"'), (5, 'item', '(,null,,)', '"(,null,,)"'), (5, 'item', '(,,,)', '{"j": null, "k": null, "f": null, "t": null}'), (5, 'item', '(,,,null)', '{"j": null, "k": null, "f": null, "t": "null"}'), (5, 'item', '(,,-0,)', '{"j": null, "k": null, "f": "-0", "t": null}'), (5, 'item', '(,,0,)', '{"j": null, "k": null, "f": 0, "t": null}'), (5, 'item', '(,"""\\u0000""",,)', '"(,\"\"\"\\\\u0000\"\"\",,)"'),
(6, 'item[]', '{"(,,,)",NULL}', '[{"j": null, "k": null, "f": null, "t": null}, null]'), (6, 'item[]', '{"(null,,,)",NULL}', '["(null,,,)", null]'),
(7, 'json', '"\u0000"', NULL), (7, 'json', '"\\u0000"', '"\\u0000"'), (7, 'json', 'null', NULL), (7, 'json', NULL, 'null'), (7, 'json', '1e400000', NULL),
(8, 'text', 'null', '"null"'), (8, 'text', '', '""'), (8, 'text', '1', '"1"'), (8, 'text', NULL, 'null'),
(9, 'timestamptz', '2026-02-01 12:00:00+00', '"2026-02-01T12:00:00+00:00"'), (9, 'timestamptz', 'infinity', '"infinity"'),
(10, 'numeric', 'NaN', '"NaN"'), (10, 'numeric', 'Infinity', '"Infinity"'), (10, 'numeric', '9007199254740993', '9007199254740993'), (10, 'numeric', '9007199254740992', '9007199254740992'),
(11, 'bool', 'true', 'true'), (11, 'bool', 'false', 'false'), (12, 'int8', '9223372036854775807', '9223372036854775807'), (12, 'int8', '-9223372036854775808', '-9223372036854775808'), (13, 'int2', '-1', '-1'),
(14, 'int2vector', '1 2', '"1 2"'), (15, 'bytea', '\x00', '"\\x00"'), (16, 'good_invoice', '(1,2)', '{"amount": 1, "fee": 2}'), (17, 'float4', '0.1', '0.1'), (18, 'interval', '1 mon', '"1 mon"'), (19, 'date', '0044-03-15 BC', '"0044-03-15 BC"');
DO $$
DECLARE
	a record;
BEGIN
	FOR a IN SELECT DISTINCT n, t FROM apart LOOP
		EXECUTE format('CREATE FUNCTION told%s(v %s) RETURNS text LANGUAGE sql AS ''SELECT v::text''', a.n, a.t);
		PERFORM idem_wrap(format('told%s(%s)', a.n, a.t)::regprocedure);
	END LOOP;
END $$;
-- what a twin answers for a key: true for its own value's, or an error
CREATE FUNCTION tell(a apart, key text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	answer text;
BEGIN
	EXECUTE format('SELECT told%s_once(%L, $1::text::%s)', a.n, key, a.t) INTO answer USING a.v;
	RETURN 'ok';
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE;
END $$;
SELECT count(*) AS calls, count(*) FILTER (WHERE tell(a, a.n || ' ' || coalesce(':' || a.v, '')) = 'ok') AS done FROM apart AS a;
SET extra_float_digits = -10; SET datestyle = german; SET timezone = 'Asia/Tokyo'; SET bytea_output = escape; SET intervalstyle = iso_8601;
-- each replays its own key, no other one of its type, and as JSON the same
SELECT count(*) FILTER (WHERE tell(a, a.n || ' ' || coalesce(':' || a.v, '')) = 'ok') AS replays FROM apart AS a;
SELECT a.t, a.v, b.v FROM apart AS a JOIN apart AS b ON a.n = b.n AND a.v IS DISTINCT FROM b.v WHERE tell(a, a.n || ' ' || coalesce(':' || b.v, '')) <> 'ID422';
SELECT count(idem_call(n || ' ' || coalesce(':' || v, ''), format('told%s(%s)', n, t)::regprocedure, jsonb_build_array(json))) AS calls FROM apart WHERE json IS NOT NULL;
RESET extra_float_digits; RESET datestyle; RESET timezone; RESET bytea_output; RESET intervalstyle;

-- more than nine arguments: by position, by name and by twin one fingerprint, made
-- of the function and the canonical form of all by position
CREATE FUNCTION dozen(a1 int, a2 int, a3 text, a4 numeric, a5 bool, a6 jsonb, a7 int[], a8 invoice, a9 float8, a10 int, a11 text, a12 int8) RETURNS int LANGUAGE sql AS 'SELECT 1';
SELECT idem_wrap(oid) FROM pg_proc WHERE proname = 'dozen';
SELECT dozen_once('d', -1, NULL, E'\n"\u00e9', 1.50, true, '{"b": 1, "a": [null]}', '{1,2}', '(1,2)', 1e21, 10, '', 9007199254740993);
SELECT idem_call('d', (SELECT oid FROM pg_proc WHERE proname = 'dozen'), '[-1, null, "\n\"\u00e9", 1.5, true, {"a": [null], "b": 1}, [1, 2], {"fee": 2, "amount": 1}, 1e21, 10, "", 9007199254740993]');
SELECT idem_call('d', (SELECT oid FROM pg_proc WHERE proname = 'dozen'), '{"a12": 9007199254740993, "a11": "", "a10": 1e1, "a9": 1e21, "a8": {"amount": 1, "fee": 2}, "a7": [1, 2], "a6": {"b": 1, "a": [null]}, "a5": true, "a4": 1.5, "a3": "\n\"\u00e9", "a2": null, "a1": -1}');
SELECT idem_call('d', (SELECT oid FROM pg_proc WHERE proname = 'dozen'), '[-1, null, "\n\"\u00e9", 1.5, true, {"a": [null], "b": 1}, [1, 2], {"fee": 2, "amount": 1}, 1e21, 10, "", 9007199254740992]');
RESET ROLE;
SELECT fingerprint = '\x01' || sha256(int4send(octet_length(function)) || convert_to(function, 'UTF8') || convert_to(idem_canonical(
	'{"1": -1, "2": null, "3": "\n\"\u00e9", "4": 1.5, "5": true, "6": {"a": [null], "b": 1}, "7": [1, 2], "8": {"fee": 2, "amount": 1}, "9": 1e21, "10": 10, "11": "", "12": 9007199254740993}'), 'UTF8')) AS same
FROM idem.key WHERE key = 'd';

RESET ROLE;
DROP SCHEMA regress_shape CASCADE;
SELECT idem_revoke('regress_idem_wrapper');
REVOKE ALL ON SCHEMA public FROM regress_idem_wrapper;
DROP ROLE regress_idem_wrapper;
DELETE FROM idem.key;
