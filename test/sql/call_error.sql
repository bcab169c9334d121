-- What idem_call refuses and raises, what an error in the function leaves, and
-- what it does about keys that were used in another way.

\pset null '(null)'
\set SHOW_CONTEXT never
CREATE ROLE regress_idem_caller;
SELECT idem_grant('regress_idem_caller');
CREATE SCHEMA regress_call AUTHORIZATION regress_idem_caller;
SET search_path = regress_call, public;
SET ROLE regress_idem_caller;
CREATE TABLE work (what text);
CREATE FUNCTION f(a int, b text DEFAULT 'x') RETURNS text LANGUAGE sql AS 'INSERT INTO work VALUES (b) RETURNING what';
CREATE FUNCTION g(a int) RETURNS text LANGUAGE sql AS 'INSERT INTO work VALUES (''g'') RETURNING what';

-- what is no plain function of plain types
CREATE PROCEDURE a_procedure() LANGUAGE sql AS '';
CREATE AGGREGATE an_aggregate(int) (sfunc = int4pl, stype = int);
CREATE FUNCTION a_trigger() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN new; END';
CREATE FUNCTION an_event_trigger() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN END';
CREATE FUNCTION polymorphic(anyelement) RETURNS int LANGUAGE sql AS 'SELECT 1';
CREATE FUNCTION any_variadic(VARIADIC anyarray) RETURNS int LANGUAGE sql AS 'SELECT 1';
CREATE FUNCTION a_record() RETURNS record LANGUAGE sql AS 'SELECT 1, 2';
CREATE FUNCTION some_records() RETURNS SETOF record LANGUAGE sql AS 'SELECT 1, 2';
CREATE FUNCTION of_record(record) RETURNS int LANGUAGE plpgsql AS 'BEGIN RETURN 1; END';
SELECT idem_call('r', 'a_procedure()');
SELECT idem_call('r', 'an_aggregate(int)', '[1]');
SELECT idem_call('r', 'row_number()');
SELECT idem_call('r', 'a_trigger()');
SELECT idem_call('r', 'an_event_trigger()');
SELECT idem_call('r', 'polymorphic(anyelement)', '[1]');
SELECT idem_call('r', 'any_variadic(anyarray)', '[1]');
SELECT idem_call('r', 'a_record()');
SELECT idem_call('r', 'some_records()');
SELECT idem_call('r', 'of_record(record)', '[1]');
SELECT idem_call('r', 'int4in(cstring)', '["1"]');
SELECT idem_call('r', 'format(text,"any")', '["%s", 1]');
SELECT idem_call('r', 0);
SELECT idem_call('r', NULL);

-- arguments that do not fit
SELECT idem_call('a', 'f(int,text)', '3');
SELECT idem_call('a', 'f(int,text)', 'null');
SELECT idem_call('a', 'f(int,text)', '[1, "x", 3]');
SELECT idem_call('a', 'f(int,text)', '{"a": 1, "other": 2}');
SELECT idem_call('a', 'f(int,text)', '[]');
SELECT idem_call('a', 'f(int,text)');
SELECT idem_call('a', 'now()', '[1]');

-- a value that its type does not take is not quoted, whatever the type says
CREATE DOMAIN positive AS int CHECK (VALUE > 0);
CREATE DOMAIN present AS text NOT NULL;
CREATE TYPE mood AS ENUM ('sad', 'ok');
CREATE TYPE pair AS (x int, m mood);
CREATE FUNCTION of_types(a int DEFAULT 1, d date DEFAULT NULL, m mood DEFAULT NULL, p pair DEFAULT NULL, l int[] DEFAULT NULL, u uuid DEFAULT NULL,
	b bytea DEFAULT NULL, q tsquery DEFAULT NULL, c regclass DEFAULT NULL, j jsonpath DEFAULT NULL, r int4range DEFAULT NULL)
RETURNS int LANGUAGE sql AS 'SELECT 1';
CREATE FUNCTION of_domains(a positive DEFAULT 1, b present DEFAULT '') RETURNS int LANGUAGE sql AS 'SELECT 1';
\set of '''of_types(int,date,mood,pair,int[],uuid,bytea,tsquery,regclass,jsonpath,int4range)'''
SELECT idem_call('secret key', :of, '{"a": "secret"}');
\set VERBOSITY terse
SELECT idem_call('a', :of, '{"a": 1.5}');
SELECT idem_call('a', :of, '{"a": 2147483648}');
SELECT idem_call('a', :of, '{"a": {"secret": 1}}');
SELECT idem_call('a', :of, '{"d": "2026-02-30"}');
SELECT idem_call('a', :of, '{"m": "secret"}');
SELECT idem_call('a', :of, '{"p": {"x": 1, "m": "secret"}}');
SELECT idem_call('a', :of, '{"p": "(secret"}');
SELECT idem_call('a', :of, '{"l": "{secret}"}');
SELECT idem_call('a', :of, '{"l": {"secret": 1}}');
SELECT idem_call('a', :of, '{"l": [1, "secret"]}');
SELECT idem_call('a', :of, '{"u": "secret"}');
SELECT idem_call('a', :of, '{"b": "\\xsecret"}');
SELECT idem_call('a', :of, '{"q": "secret & ("}');
SELECT idem_call('a', :of, '{"c": "secret"}');
SELECT idem_call('a', :of, '{"j": "secret (("}');
SELECT idem_call('a', :of, '{"r": "[secret"}');
-- a constraint is the domain's own to tell, by its name
\set VERBOSITY default
SELECT idem_call('a', 'of_domains(positive,present)', '{"a": -1}');
SELECT idem_call('a', 'of_domains(positive,present)', '{"b": null}');
\set VERBOSITY terse

-- key, scope, intervals
SELECT idem_call('', 'f(int,text)', '[1]');
SELECT idem_call(NULL, 'f(int,text)', '[1]');
SELECT idem_call(repeat('x', 1025), 'f(int,text)', '[1]');
SELECT idem_call('i', 'f(int,text)', '[1]', scope => '');
SELECT idem_call('i', 'f(int,text)', '[1]', scope => 'idem.fire');
SELECT idem_call('i', 'f(int,text)', '[1]', ttl => '0 s');
SELECT idem_call('i', 'f(int,text)', '[1]', ttl => '2000 years');
SELECT idem_call('i', 'f(int,text)', '[1]', wait => '-1 s');
BEGIN;
SET LOCAL idem.declared_scopes = on;
SELECT idem_call('i', 'f(int,text)', '[1]', scope => 'undeclared');
ROLLBACK;
-- nothing of all that was recorded or done
RESET ROLE;
SELECT count(*) FROM idem.key;
SELECT count(*) FROM work;
SET ROLE regress_idem_caller;

-- another function, other arguments
SELECT idem_call('m', 'f(int,text)', '[1, "secret"]');
\set VERBOSITY default
SELECT idem_call('m', 'f(int,text)', '[1, "other secret"]');
SELECT idem_call('m', 'f(int,text)', '[1]');
SELECT idem_call('m', 'g(int)', '[1]');
SELECT idem_call('m', 'f(int,text)', '[1, "secret"]');
\set VERBOSITY terse
-- ... and one that was claimed for a request
BEGIN;
SELECT run FROM idem_claim('m2', '{"secret": 1}');
SELECT idem_complete('m2', '{"done": 1}');
COMMIT;
\set VERBOSITY default
SELECT idem_call('m2', 'f(int,text)', '[1]');
\set VERBOSITY terse
SELECT outcome, response FROM idem_claim('m', '{"secret": 1}');
SELECT outcome, response FROM idem_claim('m');

-- an error passes unchanged, and the key is as if never claimed
CREATE FUNCTION fails(n int) RETURNS int LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO work VALUES ('failed');
	RAISE EXCEPTION 'number %', n USING ERRCODE = 'XY123', DETAIL = 'in detail', HINT = 'a hint',
		SCHEMA = 's', TABLE = 't', COLUMN = 'c', CONSTRAINT = 'k', DATATYPE = 'd';
END $$;
CREATE TABLE told (code text, message text, detail text, hint text, s text, t text, c text, k text, d text, context text, lookups bigint, left_over bigint);
DO $$
DECLARE
	x told;
BEGIN
	FOR n IN 1 .. 2 LOOP
		BEGIN
			PERFORM idem_call('e', 'fails(int)', jsonb_build_array(n));
		EXCEPTION WHEN OTHERS THEN
			GET STACKED DIAGNOSTICS x.code = RETURNED_SQLSTATE, x.message = MESSAGE_TEXT, x.detail = PG_EXCEPTION_DETAIL, x.hint = PG_EXCEPTION_HINT,
				x.s = SCHEMA_NAME, x.t = TABLE_NAME, x.c = COLUMN_NAME, x.k = CONSTRAINT_NAME, x.d = PG_DATATYPE_NAME, x.context = PG_EXCEPTION_CONTEXT;
			x.lookups := (SELECT count(*) FROM idem_lookup('e'));
			x.left_over := (SELECT count(*) FROM work WHERE what = 'failed');
			INSERT INTO told SELECT x.*;
		END;
	END LOOP;
	-- the same key runs in the same transaction, for anything
	RAISE NOTICE '%', idem_call('e', 'f(int,text)', '[1, "after"]');
END $$;
\x
SELECT code, message, detail, hint, s, t, c, k, d, split_part(context, E'\n', 1) AS context, lookups, left_over FROM told;
\x
SELECT idem_call('e', 'f(int,text)', '[1, "after"]'), outcome, attempt FROM idem_lookup('e');
SELECT idem_call('e2', 'fails(int)', '[3]');
SELECT count(*) FROM idem_lookup('e2');
BEGIN;
SAVEPOINT s;
SELECT idem_call('e2', 'fails(int)', '[3]');
ROLLBACK TO s;
SELECT idem_call('e2', 'f(int,text)', '[1]');
COMMIT;
-- an error after the function: its result cannot be stored
RESET ROLE;
INSERT INTO idem.scope (name, max_response) VALUES ('regress_small', 20);
SET ROLE regress_idem_caller;
SELECT idem_call('l', 'f(int,text)', '[1, "123456789012345678"]', scope => 'regress_small');
\set VERBOSITY default
SELECT idem_call('l2', 'f(int,text)', '[1, "1234567890123456789"]', scope => 'regress_small');
\set VERBOSITY terse
SELECT count(*) FROM idem_lookup('l2', 'regress_small');
SELECT count(*) FROM work WHERE what LIKE '1234567890123456789%';
SELECT idem_call('l3', 'repeat(text,int)', '["x", 2000000]');
SELECT count(*) FROM idem_lookup('l3');

-- transactions are not the function's to end
CREATE FUNCTION commits() RETURNS int LANGUAGE plpgsql AS $$ BEGIN COMMIT; RETURN 1; END $$;
CREATE PROCEDURE commit_it() LANGUAGE plpgsql AS $$ BEGIN COMMIT; END $$;
CREATE FUNCTION calls_commit() RETURNS int LANGUAGE plpgsql AS $$ BEGIN CALL commit_it(); RETURN 1; END $$;
SELECT idem_call('t', 'commits()');
SELECT idem_call('t', 'calls_commit()');
SELECT count(*) FROM idem_lookup('t');

-- keys that failed, that wait, that someone holds
BEGIN;
SELECT run FROM idem_claim('k1');
SELECT idem_fail('k1', 'secret', code => 402);
SELECT run FROM idem_claim('k2');
SELECT idem_fail('k2', 'secret');
SELECT run FROM idem_claim('k3');
SELECT idem_retry('k3', 'secret', after => '1 h');
SELECT run FROM idem_claim('k4');
SELECT idem_retry('k4', 'secret');
COMMIT;
SELECT run FROM idem_claim('k5', lease => '1 h');
SELECT run FROM idem_claim('k6', lease => '1 microsecond');
\set VERBOSITY default
SELECT idem_call('k1', 'f(int,text)', '[1]');
SELECT idem_call('k2', 'f(int,text)', '[1]');
\set VERBOSITY terse
SELECT idem_call('k3', 'f(int,text)', '[1]');
SELECT idem_call('k5', 'f(int,text)', '[1]');
SELECT idem_call('k5', 'f(int,text)', '[1]', wait => '0 s');
-- retried, and a holder that died: these run
SELECT idem_call('k4', 'f(int,text)', '[1]'), idem_call('k6', 'f(int,text)', '[1]');
SELECT outcome, attempt FROM unnest('{k4,k6}'::text[]) AS key, idem_lookup(key);
BEGIN;
SELECT run FROM idem_claim('k7');
SELECT idem_call('k7', 'f(int,text)', '[1]');
ROLLBACK;

-- keys that something else completed replay what it stored, as JSON
BEGIN;
SELECT count(*) FROM unnest('{c1,c2,c3,c4,c5,c6}'::text[]) AS key, idem_claim(key) WHERE run;
SELECT idem_complete('c1', 'not JSON'), idem_complete('c2', ' {"a" : 1, "a" : 2} '), idem_complete('c3'), idem_complete('c4', ''),
	idem_complete('c5', E'"\\\n\u0001\u00fc'), idem_complete('c6', '{"a": 1');
COMMIT;
SELECT idem_once('c8');
SELECT key, idem_call(key, 'f(int,text)', '[1]') FROM unnest('{c1,c2,c3,c4,c5,c6,c8}'::text[]) AS key ORDER BY key;
-- ... however deep it goes
BEGIN;
SELECT run FROM idem_claim('c7');
SELECT idem_complete('c7', repeat('[', 100000));
COMMIT;
SELECT length(idem_call('c7', 'f(int,text)', '[1]')::text);

-- nested calls: other keys are fine, the same one is told so
CREATE FUNCTION countdown(k text, n int) RETURNS json LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO work VALUES ('countdown');
	RETURN CASE WHEN n = 0 THEN '"lift-off"' ELSE idem_call(k || n, 'countdown(text,int)', jsonb_build_array(k, n - 1)) END;
END $$;
SELECT idem_call('nest', 'countdown(text,int)', '["nest", 5]'), idem_call('nest', 'countdown(text,int)', '["nest", 5]'), idem_call('nest3', 'countdown(text,int)', '["nest", 2]');
SELECT count(*) FROM work WHERE what = 'countdown';
CREATE FUNCTION same() RETURNS json LANGUAGE plpgsql AS $$ BEGIN RETURN idem_call('same', 'same()'); END $$;
CREATE FUNCTION same_caught() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	RETURN idem_call('same2', 'same_caught()');
EXCEPTION WHEN SQLSTATE 'ID500' THEN
	RETURN 'caught';
END $$;
CREATE FUNCTION same_claimed() RETURNS text LANGUAGE plpgsql AS $$ BEGIN RETURN idem_claim('same3'); END $$;
\set VERBOSITY default
SELECT idem_call('same', 'same()');
\set VERBOSITY terse
SELECT idem_call('same2', 'same_caught()'), idem_call('same3', 'same_claimed()');
-- a function that ends the claim around it: refused, also where it says what is
-- recorded anyway
CREATE FUNCTION ends(how text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	CASE how
		WHEN 'complete' THEN PERFORM idem_complete('own', 'x');
		WHEN 'fail' THEN PERFORM idem_fail('own', 'x');
		WHEN 'retry' THEN PERFORM idem_retry('own', 'x');
		WHEN 'release' THEN PERFORM idem_release('own');
		WHEN 'release, call' THEN
			PERFORM idem_release('own');
			PERFORM idem_call('own', 'plain()');
		WHEN 'call' THEN PERFORM idem_call('own', 'plain()');
		WHEN 'release, claim' THEN
			PERFORM idem_release('own');
			PERFORM idem_claim('own');
		WHEN 'release, claim, same' THEN
			PERFORM idem_release('own');
			PERFORM idem_claim('own');
			PERFORM idem_complete('own', '"release, claim, same"');
		WHEN 'same' THEN PERFORM idem_complete('own', '"same"');
	END CASE;
	RETURN how;
END $$;
CREATE FUNCTION plain() RETURNS int LANGUAGE sql AS 'SELECT 1';
\set VERBOSITY sqlstate
SELECT idem_call('own', 'ends(text)', '["complete"]');
SELECT idem_call('own', 'ends(text)', '["fail"]');
SELECT idem_call('own', 'ends(text)', '["retry"]');
SELECT idem_call('own', 'ends(text)', '["release"]');
SELECT idem_call('own', 'ends(text)', '["release, call"]');
SELECT idem_call('own', 'ends(text)', '["call"]');
SELECT idem_call('own', 'ends(text)', '["release, claim"]');
SELECT idem_call('own', 'ends(text)', '["release, claim, same"]');
SELECT count(*) FROM idem_lookup('own');
SELECT idem_call('own', 'ends(text)', '["same"]'), idem_call('own', 'ends(text)', '["same"]');
\set VERBOSITY terse

-- the same by SQL, as only idem.key's owner can: the call completes what is still
-- its own claim, and nothing else
RESET ROLE;
CREATE FUNCTION alters(statement text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO regress_call.work VALUES ('alters');
	EXECUTE statement;
	RETURN statement;
END $$;
DELETE FROM idem.key WHERE key = 'own';
\set VERBOSITY default
SELECT idem_call('own', 'alters(text)', '["DELETE FROM idem.key WHERE key = ''own''"]');
\set VERBOSITY sqlstate
SELECT idem_call('own', 'alters(text)', '["UPDATE idem.key SET key = ''other'' WHERE key = ''own''"]');
SELECT idem_call('own', 'alters(text)', '["UPDATE idem.key SET state = ''completed'' WHERE key = ''own''"]');
SELECT idem_call('own', 'alters(text)', '["UPDATE idem.key SET fingerprint = NULL WHERE key = ''own''"]');
SELECT idem_call('own', 'alters(text)', '["TRUNCATE idem.key"]');
-- also with the very response that the call has then
CREATE FUNCTION foresees() RETURNS int LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO regress_call.work VALUES ('alters');
	UPDATE idem.key SET state = 'completed', response = '1', finished_at = now() WHERE key = 'own';
	RETURN 1;
END $$;
SELECT idem_call('own', 'foresees()');
SELECT count(*) FROM idem.key WHERE key IN ('own', 'other');
SELECT count(*) FROM work WHERE what = 'alters';
SELECT idem_call('own1', 'alters(text)', '["UPDATE idem.key SET step = ''x'' WHERE key = ''own1''"]');
SELECT idem_call('own2', 'alters(text)', '["UPDATE idem.key SET key = key WHERE key = ''own2''"]');
SELECT idem_call('own3', 'alters(text)', '["SELECT FROM idem.key WHERE key = ''own3'' FOR UPDATE"]');
SELECT idem_call('own4', 'alters(text)', '["DO $x$ BEGIN DELETE FROM idem.key WHERE key = ''own4''; RAISE division_by_zero; EXCEPTION WHEN division_by_zero THEN END $x$"]');
SELECT key, state, step, finished_at IS NOT NULL AS finished FROM idem.key WHERE key ~ '^own\d' ORDER BY key;
SELECT count(*) FROM work WHERE what = 'alters';
SET ROLE regress_idem_caller;
\set VERBOSITY terse

-- thousands of calls that fail in one transaction: no memory of them is left
CREATE FUNCTION fails_late() RETURNS int LANGUAGE plpgsql AS 'BEGIN RAISE ''late''; END';
BEGIN;
DO $$
BEGIN
	FOR i IN 1..2000 LOOP
		BEGIN
			PERFORM idem_call('late ' || i, 'fails_late()');
		EXCEPTION WHEN raise_exception THEN NULL;
		END;
	END LOOP;
END $$;
RESET ROLE;
SELECT used_bytes < 100000 AS little FROM pg_backend_memory_contexts WHERE name = 'TopTransactionContext';
ROLLBACK;

-- to the bottom of the stack, and nothing is left
CREATE FUNCTION deep(n int) RETURNS int LANGUAGE plpgsql AS $$
BEGIN
	IF n > 0 THEN PERFORM idem_call(idem_key(), 'deep(int)', jsonb_build_array(n - 1)); END IF;
	RETURN n;
END $$;
SELECT idem_call('deep', 'deep(int)', '[100]');
RESET ROLE;
SELECT count(*) FROM idem.key WHERE function LIKE '%deep%';
SET ROLE regress_idem_caller;
SELECT idem_call('deeper', 'deep(int)', '[1000000]');
SELECT count(*) FROM idem_lookup('deeper');

-- a function that was replaced: what was recorded is replayed, of whatever type
SELECT idem_call('p', 'g(int)', '[1]');
DROP FUNCTION g(int);
CREATE FUNCTION g(b int) RETURNS SETOF mood LANGUAGE sql AS $$VALUES ('sad'::mood), ('ok')$$;
SELECT idem_call('p', 'g(int)', '[1]'), idem_call('p2', 'g(int)', '[1]');
DROP FUNCTION g(int);
SELECT idem_call('p', 'g(int)', '[1]');

-- a prepared statement keeps the function that it named; a parameter does not
CREATE FUNCTION comes_again() RETURNS int LANGUAGE sql AS 'SELECT 1';
PREPARE fixed(text) AS SELECT idem_call($1, 'comes_again()');
PREPARE named(text, text) AS SELECT idem_call($1, $2::regprocedure);
EXECUTE fixed('again1');
EXECUTE named('again1', 'comes_again()');
DROP FUNCTION comes_again();
CREATE FUNCTION comes_again() RETURNS int LANGUAGE sql AS 'SELECT 2';
DO $$
DECLARE
	hint text;
BEGIN
	EXECUTE $x$EXECUTE fixed('again2')$x$;
EXCEPTION WHEN undefined_function THEN
	GET STACKED DIAGNOSTICS hint = PG_EXCEPTION_HINT;
	RAISE NOTICE '%', hint;
END $$;
EXECUTE named('again1', 'comes_again()');
EXECUTE named('again2', 'comes_again()');
DEALLOCATE ALL;

-- functions that are gone are forgotten
RESET ROLE;
DO $$
BEGIN
	FOR i IN 1 .. 100 LOOP
		CREATE FUNCTION regress_gone(a int DEFAULT 1) RETURNS int LANGUAGE sql AS 'SELECT a';
		EXECUTE format('SELECT idem_call(%L, %L)', 'gone' || i, 'regress_gone(int)');
		DROP FUNCTION regress_gone(int);
	END LOOP;
END $$;
SELECT count(*) < 20 AS few FROM pg_backend_memory_contexts WHERE name = 'idem function';
SELECT key, state FROM idem.key WHERE state NOT IN ('completed') ORDER BY key;
SET client_min_messages = warning;
DROP SCHEMA regress_call CASCADE;
SELECT idem_revoke('regress_idem_caller');
REVOKE ALL ON SCHEMA public FROM regress_idem_caller;
DROP ROLE regress_idem_caller;
DELETE FROM idem.key;
DELETE FROM idem.scope WHERE name LIKE 'regress%';
