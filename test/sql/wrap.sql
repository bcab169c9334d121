-- idem_wrap: typed twins. What a twin is, and that its replay is the value
-- that the first call returned.

\pset null '(null)'
\set VERBOSITY terse
CREATE ROLE regress_idem_wrapper;
SELECT idem_grant('regress_idem_wrapper');
CREATE SCHEMA regress_wrap AUTHORIZATION regress_idem_wrapper;
SET search_path = regress_wrap, public;
SET ROLE regress_idem_wrapper;

CREATE TABLE account (id bigint PRIMARY KEY, balance numeric, runs int DEFAULT 0);
INSERT INTO account VALUES (7, 100);
CREATE TYPE receipt AS (account bigint, amount numeric(10,2), note text);
CREATE FUNCTION charge(account bigint, amount numeric DEFAULT 5, note text DEFAULT upper('fee')) RETURNS receipt
LANGUAGE plpgsql AS $$
BEGIN
	UPDATE account AS a SET balance = balance - amount, runs = runs + 1 WHERE id = charge.account;
	RETURN ROW(account, amount, note)::receipt;
END $$;

SELECT idem_wrap('charge(bigint,numeric,text)') AS twin;
SELECT pg_get_function_arguments(oid) AS arguments, pg_get_function_result(oid) AS result, proowner::regrole AS owner,
	provolatile AS volatile, proparallel AS parallel, proisstrict AS strict, prosecdef AS definer, prosrc AS body
FROM pg_proc WHERE proname = 'charge_once';
SELECT * FROM charge_once('c', 7, 19.9);
SELECT * FROM charge_once('c', 7, 19.90);
SELECT charge_once('c', account => 7, amount => 19.9), charge_once(idem_key => 'c', amount => 19.9, account => 7, note => 'FEE');
SELECT (charge_once('c', 7, 19.9)).amount;
SELECT balance, runs FROM account;
SELECT charge_once('c', 7, 20);
SELECT charge_once(NULL, 7, 20);
SELECT charge_once('', 7, 20);
-- the record, and idem_call on it: the same function with the same arguments
SELECT idem_call('c', 'charge(bigint,numeric,text)', '[7, 19.9, "FEE"]');
SELECT idem_call('c', 'charge(bigint,numeric,text)', '[7, 19.9]');
RESET ROLE;
SELECT key, state, response, function, result FROM idem.key;
SET ROLE regress_idem_wrapper;
-- the other way round there is no typed result
SELECT idem_call('c2', 'charge(bigint,numeric,text)', '[7, 1, "x"]');
SELECT charge_once('c2', 7, 1, 'x');
SELECT idem_once('c3');
SELECT charge_once('c3', 7, 1, 'x');
-- scope by setting
SET idem.scope = 'other';
SELECT charge_once('c', 7, 1);
RESET idem.scope;
-- in a transaction
BEGIN;
SELECT charge_once('c4', 7, 1);
SAVEPOINT s;
SELECT charge_once('c5', 7, 1);
ROLLBACK TO s;
SELECT charge_once('c4', 7, 1);
SELECT key, outcome FROM unnest('{c4,c5}'::text[]) AS key, idem_lookup(key);
ROLLBACK;
BEGIN READ ONLY;
SELECT charge_once('c', 7, 19.9);
ROLLBACK;
-- used as any function is: prepared, over a table, joined, in PL/pgSQL
PREPARE charge_it(text) AS SELECT charge_once($1, 7, 1);
EXECUTE charge_it('c6');
EXECUTE charge_it('c6');
SELECT k, charge_once('over ' || k, 7, k) FROM generate_series(1, 2) AS k;
DO $$
DECLARE
	r receipt;
BEGIN
	r := charge_once('c6', 7, 1);
	RAISE NOTICE '%', r;
	SELECT * INTO r FROM charge_once('c6', 7, 1);
	RAISE NOTICE '%', r.note;
	PERFORM charge_once('c7', 7, 'NaN');
	RAISE division_by_zero;
EXCEPTION WHEN division_by_zero THEN
	RAISE NOTICE '% lookups', (SELECT count(*) FROM idem_lookup('c7'));
END $$;
SELECT runs FROM account;

-- every shape of result and of arguments
CREATE FUNCTION plain() RETURNS int LANGUAGE sql AS 'SELECT 1';
CREATE FUNCTION null_plain(a int) RETURNS int LANGUAGE sql AS 'SELECT a';
CREATE FUNCTION nothing() RETURNS void LANGUAGE sql AS 'UPDATE account SET runs = runs + 100';
CREATE FUNCTION null_receipt() RETURNS receipt LANGUAGE sql AS 'SELECT NULL::receipt';
CREATE FUNCTION nulls_receipt() RETURNS receipt LANGUAGE sql AS 'SELECT ROW(NULL, NULL, NULL)::receipt';
CREATE FUNCTION many(n int) RETURNS SETOF int LANGUAGE sql AS 'SELECT nullif(i, 2) FROM generate_series(n, 1, -1) AS i';
CREATE FUNCTION receipts(n int) RETURNS SETOF receipt LANGUAGE sql AS $$SELECT i, 1.5, NULL FROM generate_series(n, 1, -1) AS i$$;
CREATE FUNCTION tab(n int) RETURNS TABLE (a int, "b b" jsonb) LANGUAGE sql AS $$SELECT i, 'null'::jsonb FROM generate_series(n, 1, -1) AS i$$;
CREATE FUNCTION tab1(n int) RETURNS TABLE (a int) LANGUAGE sql AS 'SELECT generate_series(n, 1, -1)';
CREATE FUNCTION out1(OUT a int) LANGUAGE sql AS 'SELECT 1';
CREATE FUNCTION out2(a int, OUT b int, INOUT c text DEFAULT 'c', OUT "D d" jsonb) LANGUAGE sql AS $$SELECT a + 1, c || '!', '{"k": [1, null]}'::jsonb$$;
CREATE FUNCTION out_composite(OUT r receipt) LANGUAGE sql AS $$SELECT ROW(1, 2, 'n')::receipt$$;
CREATE FUNCTION vari(a int, VARIADIC b int[] DEFAULT '{9}') RETURNS int[] LANGUAGE sql AS 'SELECT a || b';
CREATE FUNCTION unnamed(int, text) RETURNS text LANGUAGE sql AS 'SELECT $1 || $2';
CREATE FUNCTION "Odd, 'name'""$1"("A b" int, "1" int) RETURNS int LANGUAGE sql AS 'SELECT $1 * 10 + $2';
CREATE FUNCTION strict_one(a int) RETURNS int LANGUAGE plpgsql STRICT AS $$ BEGIN RAISE 'was called'; END $$;
CREATE FUNCTION strict_set(a int) RETURNS SETOF int LANGUAGE plpgsql STRICT AS $$ BEGIN RAISE 'was called'; END $$;
SELECT count(idem_wrap(oid)) FROM pg_proc WHERE pronamespace = 'regress_wrap'::regnamespace AND proname NOT LIKE 'charge%';
SELECT plain_once('1'), plain_once('1'), null_plain_once('2', NULL), null_plain_once('2', NULL), nothing_once('3'), nothing_once('3');
SELECT runs FROM account;
SELECT null_receipt_once('4') AS a, null_receipt_once('4') AS b, nulls_receipt_once('5') AS c, nulls_receipt_once('5') AS d,
	null_receipt_once('4') IS NOT DISTINCT FROM NULL AS e, nulls_receipt_once('5') IS NOT DISTINCT FROM NULL AS f;
SELECT array_agg(m) FROM many_once('6', 3) AS m;
SELECT array_agg(m) FROM many_once('6', 3) AS m;
SELECT count(*) FROM many_once('7', 0);
SELECT count(*) FROM many_once('7', 0);
SELECT * FROM receipts_once('8', 2);
SELECT * FROM receipts_once('8', 2);
SELECT * FROM tab_once('9', 2);
SELECT * FROM tab_once('9', 2);
SELECT * FROM tab1_once('10', 2);
SELECT * FROM tab1_once('10', 2);
SELECT out1_once('11'), out1_once('11');
SELECT * FROM out2_once('12', 1);
SELECT *, "D d" IS NULL AS is_null FROM out2_once('12', 1, 'c');
SELECT * FROM out_composite_once('13');
SELECT * FROM out_composite_once('13');
SELECT vari_once('14', 1), vari_once('14', 1), vari_once('14', 1, 9), vari_once('15', 1, 2, 3), vari_once('15', 1, VARIADIC '{2,3}'), vari_once('16', 1, VARIADIC '{}'), vari_once('16', 1, VARIADIC '{}');
SELECT unnamed_once('17', 1, 'x'), unnamed_once('17', 1, 'x');
SELECT "Odd, 'name'""$1_once"('18', "1" => 2, "A b" => 1), "Odd, 'name'""$1_once"('18', 1, 2);
SELECT strict_one_once('19', NULL), strict_one_once('19', NULL);
SELECT count(*) FROM strict_set_once('20', NULL);
SELECT strict_one_once('19', 1);
SELECT strict_one_once('21', 1);
-- a set that is not read to its end has been run to its end
CREATE FUNCTION two_steps() RETURNS SETOF int LANGUAGE plpgsql AS $$ BEGIN RETURN NEXT 1; UPDATE account SET runs = -1; RETURN NEXT 2; END $$;
SELECT idem_wrap('two_steps()');
SELECT two_steps_once('22') LIMIT 1;
SELECT runs FROM account;
SELECT * FROM two_steps_once('22');

-- json counts by what it says, as jsonb does; a JSON null is not NULL
CREATE FUNCTION js(a json, b jsonb DEFAULT NULL) RETURNS text LANGUAGE sql AS $$SELECT concat(a, '/', b)$$;
SELECT idem_wrap('js(json,jsonb)');
SELECT js_once('j1', '{"a": 1, "b": 2}'), js_once('j1', '{ "b":2.0,"a":1e0 }');
SELECT js_once('j1', '{"a": 1, "b": 3}');
SELECT idem_call('j1', 'js(json,jsonb)', '[{"a": 1, "b": 2}, null]');
SELECT js_once('j2', 'null'), js_once('j2', ' null ');
SELECT js_once('j2', NULL);
SELECT js_once('j3', NULL, 'null');
SELECT js_once('j3', NULL, NULL);
SELECT js_once('j3', 'null', 'null');
SELECT js_once('j4', '{"a": "\u0000"}'), js_once('j4', '{"a": "\u0000"}');
SELECT js_once('j4', '{"a":"\u0000"}');
SELECT js_once('j5', '"{\"a\": \"\\u0000\"}"'), js_once('j4', '"{\"a\": \"\\u0000\"}"');

-- a cast to json that a user made looks up what it uses as he does
RESET ROLE;
CREATE TYPE regress_wrap.shown AS ENUM ('one', 'two');
CREATE FUNCTION regress_wrap.show_helper(v text) RETURNS json LANGUAGE sql AS 'SELECT json_build_object(''shown'', v)';
CREATE FUNCTION regress_wrap.show(s regress_wrap.shown) RETURNS json LANGUAGE plpgsql AS 'BEGIN RETURN show_helper(s::text); END';
CREATE CAST (regress_wrap.shown AS json) WITH FUNCTION regress_wrap.show(regress_wrap.shown);
SET ROLE regress_idem_wrapper;
CREATE FUNCTION take_shown(s shown, l shown[]) RETURNS shown LANGUAGE sql AS 'SELECT s';
SELECT idem_wrap('take_shown(shown,shown[])');
SELECT take_shown_once('s1', 'one', '{one,two}'), take_shown_once('s1', 'one', '{one,two}');
SELECT response FROM idem_lookup('s1');

-- names of parameters that a body could stumble over
CREATE FUNCTION stumble(t int, r int, done bool, result text, OUT c1 int, OUT c2 regress_wrap.receipt) LANGUAGE sql AS $$SELECT t + r, ROW(1, 2, result)::receipt$$;
CREATE FUNCTION stumble_set(t int, r int, OUT result text, OUT c1 int) RETURNS SETOF record LANGUAGE sql AS $$SELECT 'x', t + r$$;
CREATE FUNCTION out_first(OUT r int, t int) LANGUAGE sql AS 'SELECT t + 1';
SELECT idem_wrap('stumble(int,int,bool,text)'), idem_wrap('stumble_set(int,int)'), idem_wrap('out_first(int)');
SELECT * FROM stumble_once('st1', 1, 2, true, 'n');
SELECT * FROM stumble_once('st1', 1, 2, true, 'n');
SELECT * FROM stumble_set_once('st2', 1, 2);
SELECT out_first_once('st3', 1), out_first_once('st3', 1);

-- not in a temporary schema
SELECT idem_wrap('plain()', 'pg_temp.plain_once');
CREATE TEMP TABLE makes_the_schema ();
SELECT idem_wrap('plain()', 'pg_temp.plain_once');
DROP TABLE makes_the_schema;

-- a twin of a twin, of a verb, of a function of PostgreSQL's
SELECT idem_wrap('plain_once(text)');
SELECT idem_wrap('idem_child(text,text,text)', 'regress_wrap.child_once');
SELECT child_once('25', 'k', 'n') = idem_child('k', 'n') AS same;
SELECT idem_wrap('pg_catalog.repeat(text,int)', 'regress_wrap.repeat_once');
SET search_path = '';
SELECT public.idem_wrap('pg_catalog.lower(text)');
SET search_path = regress_wrap, public;
SELECT idem_wrap('lower(text)');
SELECT repeat_once('26', 'ab', 2), repeat_once('26', 'ab', 2);
SELECT length(repeat_once('27', 'ab', 500000)), md5(repeat_once('27', 'ab', 500000)) = md5(repeat('ab', 500000)) AS same;
SELECT repeat_once('28', 'ab', 1000000);
-- where the typed text is larger than the JSON
RESET ROLE;
INSERT INTO idem.scope (name, max_response) VALUES ('regress_wrap_small', 8);
SET ROLE regress_idem_wrapper;
CREATE FUNCTION bounds() RETURNS int[] LANGUAGE sql AS $$SELECT '[5:6]={1,2}'::int[]$$;
SELECT idem_wrap('bounds()');
SET idem.scope = 'regress_wrap_small';
SELECT idem_call('28', 'bounds()');
\set VERBOSITY default
SELECT bounds_once('28b');
\set VERBOSITY terse
RESET idem.scope;

-- called by hand, the function behind twins checks everything again
SELECT * FROM idem_twin('null_plain(int)', '29', 1) AS t (r int);
SELECT * FROM idem_twin('null_plain(int)', '29', 1) AS t (r text);
SELECT * FROM idem_twin('null_plain(int)', '29', 1) AS t (r int, s int);
SELECT * FROM idem_twin('null_plain(int)', '29', 1::bigint) AS t (r int);
SELECT * FROM idem_twin('null_plain(int)', '29', '1') AS t (r int);
SELECT * FROM idem_twin('null_plain(int)', '29') AS t (r int);
SELECT * FROM idem_twin('null_plain(int)', '29', 1, 2) AS t (r int);
SELECT * FROM idem_twin('null_plain(int)', '29', VARIADIC '{1}'::int[]) AS t (r int);
SELECT * FROM idem_twin(NULL, '29', 1) AS t (r int);
SELECT * FROM idem_twin('null_plain(int)', NULL, 1) AS t (r int);
SELECT * FROM idem_twin('many(int)', '29', 1) AS t (r int[]);
SELECT * FROM idem_twin('out2(int,text)', '29', 1, 'c'::text) AS t (b int, c text, d json);
SELECT idem_twin('null_plain(int)', '29', 1);

RESET ROLE;
SET client_min_messages = warning;
DROP SCHEMA regress_wrap CASCADE;
SELECT idem_revoke('regress_idem_wrapper');
REVOKE ALL ON SCHEMA public FROM regress_idem_wrapper;
DROP ROLE regress_idem_wrapper;
DELETE FROM idem.scope WHERE name = 'regress_wrap_small';
DELETE FROM idem.key;
