-- A twin tells apart what only its type does, and returns whatever its
-- original may return.

\pset null '(null)'
\set SHOW_CONTEXT never
\set VERBOSITY terse
SET client_min_messages = warning;
CREATE ROLE regress_idem_exact;
CREATE ROLE regress_idem_forger;
SELECT idem_grant('regress_idem_exact'), idem_grant('regress_idem_forger');
CREATE SCHEMA regress_exact AUTHORIZATION regress_idem_exact;
GRANT USAGE, CREATE ON SCHEMA regress_exact TO regress_idem_forger;
SET search_path = regress_exact, public;
SET ROLE regress_idem_exact;

-- elements that are JSON arrays themselves, and dimensions
CREATE DOMAIN ints AS int[];
CREATE DOMAIN doc AS jsonb;
CREATE TYPE docs AS (d jsonb[]);
CREATE FUNCTION of_jsonb(a jsonb[]) RETURNS text LANGUAGE sql AS 'SELECT a::text';
CREATE FUNCTION of_json(a json[]) RETURNS text LANGUAGE sql AS 'SELECT a::text';
CREATE FUNCTION of_ints(a ints[]) RETURNS text LANGUAGE sql AS 'SELECT a::text';
CREATE FUNCTION of_doc(a doc[]) RETURNS text LANGUAGE sql AS 'SELECT a::text';
CREATE FUNCTION of_docs(a docs) RETURNS text LANGUAGE sql AS 'SELECT a::text';
SELECT count(idem_wrap(oid)) FROM pg_proc WHERE pronamespace = 'regress_exact'::regnamespace;
CREATE FUNCTION tell_apart(name text, type text, VARIADIC texts text[]) RETURNS TABLE (key text, answers text) LANGUAGE plpgsql AS $$
DECLARE
	answer text;
BEGIN
	FOR i IN 1..array_length(texts, 1) LOOP
		key := name || ' ' || i;
		answers := '';
		FOR j IN 1..2 * array_length(texts, 1) LOOP
			BEGIN
				/* the value that takes the key, then all */
				EXECUTE format('SELECT %I(%L, %L::%s)', name || '_once', key,
							   texts[CASE WHEN j = 1 THEN i ELSE (j - 1) % array_length(texts, 1) + 1 END], type) INTO answer;
				answers := answers || answer || ' ';
			EXCEPTION WHEN SQLSTATE 'ID422' THEN
				answers := answers || '- ';
			END;
		END LOOP;
		RETURN NEXT;
	END LOOP;
END $$;
SELECT * FROM tell_apart('of_jsonb', 'jsonb[]', '{"[1, 2]"}', '{{1,2}}', '{1,2}', '{{"[1]","[2]"}}', '{{{1},{2}}}', '{"[]"}', '{}', '{"\"[1, 2]\""}');
SELECT * FROM tell_apart('of_json', 'json[]', '{"[1, 2]"}', '{{1,2}}', '{1,2}');
SELECT * FROM tell_apart('of_ints', 'ints[]', '{"{1,2}"}', '{"{1}","{2}"}', '{{"{1}","{2}"}}', '{{"{1,2}"}}', '{"{{1,2}}"}', '{"[0:1]={1,2}"}', '{"{}"}', '{}');
SELECT * FROM tell_apart('of_doc', 'doc[]', '{"[1, 2]"}', '{{1,2}}', '{"{\"a\": [1]}"}');
SELECT * FROM tell_apart('of_docs', 'docs', '("{""[1, 2]""}")', '("{{1,2}}")');
-- it is the notation that idem_call takes
SELECT idem_call('of_jsonb 1', 'of_jsonb(jsonb[])', jsonb_build_array('{"[1, 2]"}'::text));
SELECT idem_call('of_jsonb 1', 'of_jsonb(jsonb[])', '[[[1, 2]]]');
SELECT idem_call('of_jsonb 2', 'of_jsonb(jsonb[])', '[[[1, 2]]]');

-- domains that refuse NULL
CREATE DOMAIN sure AS int NOT NULL;
CREATE DOMAIN more AS numeric CHECK (VALUE IS NOT NULL AND VALUE > 0);
CREATE TYPE pair AS (x int, y text);
CREATE DOMAIN full_pair AS pair CHECK ((VALUE).x IS NOT NULL);
CREATE DOMAIN maybe AS int CHECK (VALUE <> 0);
CREATE FUNCTION a_sure(a sure) RETURNS sure LANGUAGE sql AS 'SELECT a';
CREATE FUNCTION a_more() RETURNS more LANGUAGE sql AS 'SELECT 1.50';
CREATE FUNCTION a_pair() RETURNS full_pair LANGUAGE sql AS $$SELECT ROW(1, 'x y')::pair::full_pair$$;
CREATE FUNCTION a_maybe(a int) RETURNS maybe LANGUAGE sql AS 'SELECT a';
CREATE FUNCTION sure_out(OUT a sure) LANGUAGE sql AS 'SELECT 5::sure';
CREATE FUNCTION pair_out(OUT a full_pair, OUT b sure) LANGUAGE sql AS $$SELECT ROW(2, 'z')::pair::full_pair, 6::sure$$;
CREATE FUNCTION sure_set() RETURNS SETOF sure LANGUAGE sql AS 'SELECT generate_series(1, 2)::sure';
CREATE FUNCTION pair_set() RETURNS SETOF full_pair LANGUAGE sql AS $$SELECT ROW(1, 'x y')::pair::full_pair$$;
CREATE FUNCTION sure_inout(INOUT r sure, b int) LANGUAGE sql AS 'SELECT (r + b)::sure';
SELECT idem_wrap(oid) FROM pg_proc WHERE pronamespace = 'regress_exact'::regnamespace AND proname ~ '^(a_|(sure|pair)_(out|set|inout))' ORDER BY proname;
SELECT a_sure_once('s', 3), pg_typeof(a_sure_once('s', 3)), a_more_once('m'), a_more_once('m'), a_pair_once('p'), (a_pair_once('p')).y;
SELECT a_maybe_once('y', 1), a_maybe_once('y', 1), a_maybe_once('n', NULL), a_maybe_once('n', NULL);
SELECT a_maybe_once('z', 0);
SELECT sure_out_once('so'), sure_out_once('so'), sure_inout_once('si', 1, 2), sure_inout_once('si', 1, 2), pair_out_once('po'), pair_out_once('po');
SELECT * FROM sure_set_once('ss') UNION ALL SELECT * FROM sure_set_once('ss');
SELECT * FROM pair_set_once('ps') UNION ALL SELECT * FROM pair_set_once('ps');
SELECT idem_call('p', 'a_pair()'), idem_call('s', 'a_sure(sure)', '[3]');
-- and one that refuses what was recorded
ALTER DOMAIN maybe SET NOT NULL;
SELECT a_maybe_once('n', NULL);
SELECT a_maybe_once('y', 1);
-- another result type is told
DROP FUNCTION a_more();
CREATE FUNCTION a_more() RETURNS numeric LANGUAGE sql AS 'SELECT 1.50';
SELECT a_more_once('new');

-- a line end in a name ends no comment of the twin's body
CREATE FUNCTION "line
RETURN 'other'; --"() RETURNS text LANGUAGE sql AS $$SELECT 'own'$$;
CREATE FUNCTION "line\nRETURN 'other'; --"() RETURNS text LANGUAGE sql AS $$SELECT 'backslash'$$;
SELECT count(idem_wrap(oid, 'line_once')) FROM pg_proc WHERE pronamespace = 'regress_exact'::regnamespace AND proname LIKE E'line\n%';
SELECT line_once('l'), line_once('l');
SELECT count(idem_wrap(oid, 'line_once')) FROM pg_proc WHERE pronamespace = 'regress_exact'::regnamespace AND proname LIKE E'line\n%';
SELECT idem_wrap(oid, 'line_once') FROM pg_proc WHERE pronamespace = 'regress_exact'::regnamespace AND proname LIKE 'line\\%';
SELECT prosrc FROM pg_proc WHERE proname = 'line_once';

-- nor in that of a type
CREATE TYPE "two
lines" AS (a int);
CREATE FUNCTION two_lines() RETURNS SETOF "two
lines" LANGUAGE sql AS 'SELECT 1';
SELECT idem_wrap('two_lines()');
SELECT two_lines_once('tl'), two_lines_once('tl');

-- parameters named like a variable of the twin's
SET plpgsql.extra_errors = 'all';
CREATE FUNCTION shadows(OUT result int, OUT idem_result int, INOUT idem_result_ int, INOUT done int) LANGUAGE sql AS 'SELECT 1, 2, $1, $2';
CREATE FUNCTION shadows_void(idem_result int, done int) RETURNS void LANGUAGE sql AS '';
CREATE FUNCTION shadows_set(idem_result int) RETURNS SETOF pair LANGUAGE sql AS $$SELECT 1, 'a'$$;
CREATE FUNCTION shadows_sure(idem_result int) RETURNS sure LANGUAGE sql AS 'SELECT $1';
SELECT idem_wrap(oid) FROM pg_proc WHERE pronamespace = 'regress_exact'::regnamespace AND proname LIKE 'shadows%' ORDER BY proname;
CREATE FUNCTION shadows_late(idem_result_ int, idem_result int) RETURNS sure LANGUAGE sql AS 'SELECT $1 * 10 + $2';
SELECT idem_wrap('shadows_late(int,int)');
SELECT shadows_late_once('sl', 1, 2), shadows_late_once('sl', 1, 2);
SELECT shadows_once('sh', 3, 4), shadows_void_once('sv', 1, 2), shadows_set_once('sw', 1), shadows_sure_once('sx', 7);
RESET plpgsql.extra_errors;

-- a default that is another value at each call
\set VERBOSITY default
CREATE FUNCTION moment(what text, n int DEFAULT 1, at timestamptz DEFAULT clock_timestamp()) RETURNS text LANGUAGE sql AS 'SELECT what';
SELECT idem_wrap('moment(text,int,timestamptz)');
SELECT moment_once('mo', 'x', at => '2026-02-01'), moment_once('mo', 'x', at => '2026-02-01');
SELECT moment_once('mo', 'x');
-- what looks like a twin, but belongs to somebody else
SET ROLE regress_idem_forger;
CREATE FUNCTION a_maybe_twin(idem_key text, a int) RETURNS maybe LANGUAGE plpgsql AS $$-- the twin of 'regress_exact.a_maybe(integer)'
#variable_conflict use_column
BEGIN RETURN -1; END$$;
SET ROLE regress_idem_exact;
SELECT idem_wrap('a_maybe(int)', 'a_maybe_twin');
RESET ROLE;
SELECT idem_wrap('a_maybe(int)', 'a_maybe_twin');
SET ROLE regress_idem_forger;
SELECT idem_wrap('a_maybe(int)', 'a_maybe_twin');
\set VERBOSITY terse

RESET ROLE;
DROP SCHEMA regress_exact CASCADE;
SELECT idem_revoke('regress_idem_exact'), idem_revoke('regress_idem_forger');
DROP ROLE regress_idem_exact, regress_idem_forger;
DELETE FROM idem.key;
