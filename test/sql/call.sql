-- idem_call: a function runs once per key, whatever its arguments and its
-- result look like, and its result is replayed.

\pset null '(null)'
\set VERBOSITY terse
CREATE ROLE regress_idem_caller;
SELECT idem_grant('regress_idem_caller');
CREATE SCHEMA regress_call AUTHORIZATION regress_idem_caller;
SET search_path = regress_call, public;
SET ROLE regress_idem_caller;

CREATE TABLE account (id bigint PRIMARY KEY, balance numeric, runs int DEFAULT 0);
INSERT INTO account VALUES (7, 100);
CREATE TYPE receipt AS (account bigint, amount numeric, left_over numeric, note text);
CREATE FUNCTION charge(account bigint, amount numeric DEFAULT 5, note text DEFAULT 'fee') RETURNS receipt
LANGUAGE plpgsql AS $$
DECLARE
	r receipt;
BEGIN
	UPDATE account AS a SET balance = balance - charge.amount, runs = runs + 1
	WHERE id = charge.account
	RETURNING id, charge.amount, balance, charge.note INTO r;
	RETURN r;
END $$;

-- once; by name and by position, and in any notation of the numbers
SELECT idem_call('c', 'charge(bigint,numeric,text)', '{"account": 7, "amount": 19.90}');
SELECT idem_call('c', 'charge(bigint,numeric,text)', '{"amount": 1.99e1, "account": 7.0}');
SELECT idem_call('c', 'charge(bigint,numeric,text)', '[7, 19.9]');
SELECT balance, runs FROM account;
-- in one statement too, and with any way to name the function
SELECT idem_call('c1', 'charge(bigint, numeric, text)', '[7]')::text = idem_call('c1', 'regress_call.charge(int8, decimal, text)', '{"account":7}')::text AS same;
SELECT balance, runs FROM account;
-- what is not given is filled with the default at the call, and is not the same
-- request as the default given
SELECT idem_call('c1', 'charge(bigint,numeric,text)', '[7, 5]');
SELECT idem_call('c2', 'charge(bigint,numeric,text)', '{"account": 7, "note": "by name"}');
SELECT idem_call('c3', 'charge(bigint,numeric,text)', '[7, null, null]');
SELECT idem_call('c4', 'charge(bigint,numeric,text)', '{"account": 8}');
-- the same key in another scope is another key
SELECT idem_call('c', 'charge(bigint,numeric,text)', '[7, 1]', scope => 'other/tenant');
SET idem.scope = 'other/tenant';
SELECT idem_call('c', 'charge(bigint,numeric,text)', '[7, 1]');
RESET idem.scope;
SELECT idem_call('c', 'charge(bigint,numeric,text)', '[7, 19.9]', 'default', '1 h', '0 s');
RESET ROLE;
SELECT scope, key, state, attempt, hold, response, function, result, code, fingerprint IS NOT NULL AS fingerprint
FROM idem.key ORDER BY scope, key;
SELECT balance, runs FROM account;
SET ROLE regress_idem_caller;

-- no arguments, NULL, defaults that are expressions
CREATE FUNCTION plain() RETURNS int LANGUAGE sql AS 'SELECT 1';
SELECT idem_call('n1', 'plain()'), idem_call('n2', 'plain()', '{}'), idem_call('n3', 'plain()', '[]'), idem_call('n4', 'plain()', NULL), idem_call('n1', 'plain()', '[]');
CREATE FUNCTION defaults(a int, b int DEFAULT length(current_setting('idem.key')), c text[] DEFAULT ARRAY['x', upper('y')], d jsonb DEFAULT NULL)
RETURNS text LANGUAGE sql AS 'SELECT concat_ws('' '', a, b, c, d)';
BEGIN;
SELECT set_config('idem.key', 'four', true);
SELECT idem_call('d1', 'defaults(int,int,text[],jsonb)', '[1]');
SELECT idem_call('d2', 'defaults(int,int,text[],jsonb)', '{"a": 1, "d": {"k": [1, null]}}');
COMMIT;

-- unnamed and oddly named parameters
CREATE FUNCTION unnamed(int, text, c int) RETURNS text LANGUAGE sql AS 'SELECT $1 || $2 || $3';
SELECT idem_call('u1', 'unnamed(int,text,int)', '[1, "x", 3]');
SELECT idem_call('u2', 'unnamed(int,text,int)', '{"c": 3}');
SELECT idem_call('u2', 'unnamed(int,text,int)', '{"1": 1, "2": "x", "c": 3}');
CREATE FUNCTION "Odd, ""name"""("A b" int, "1" int) RETURNS int LANGUAGE sql AS 'SELECT $1 * 10 + $2';
SELECT idem_call('u3', '"Odd, ""name"""(int,int)', '{"1": 2, "A b": 1}');
SELECT idem_call('u3', '"Odd, ""name"""(int,int)', '[1, 2]');
CREATE FUNCTION over(a int) RETURNS text LANGUAGE sql AS $$SELECT 'int'$$;
CREATE FUNCTION over(a text) RETURNS text LANGUAGE sql AS $$SELECT 'text'$$;
SELECT idem_call('o1', 'over(int)', '[1]'), idem_call('o2', 'over(text)', '[1]');
SELECT idem_call('o1', 'over(text)', '[1]');

-- VARIADIC
CREATE FUNCTION vari(a int, VARIADIC b int[] DEFAULT '{9}') RETURNS text LANGUAGE sql AS 'SELECT a || '':'' || coalesce(b::text, ''null'')';
SELECT idem_call('v1', 'vari(int,int[])', '[1]'), idem_call('v2', 'vari(int,int[])', '[1, 2]'), idem_call('v3', 'vari(int,int[])', '[1, 2, null, 3]'),
	idem_call('v4', 'vari(int,int[])', '[1, [2, 3]]'), idem_call('v5', 'vari(int,int[])', '[1, []]'), idem_call('v6', 'vari(int,int[])', '[1, null]'),
	idem_call('v7', 'vari(int,int[])', '{"a": 1, "b": [4]}'), idem_call('v8', 'vari(int,int[])', '{"a": 1, "b": null}');
SELECT idem_call('v3', 'vari(int,int[])', '{"a": 1, "b": [2, null, 3]}'), idem_call('v4', 'vari(int,int[])', '[1, 2, 3]');
SELECT idem_call('v9', 'vari(int,int[])', '[1, [2], 3]');
SELECT idem_call('v9', 'vari(int,int[])', '{"a": 1, "b": 4}');

-- OUT, INOUT, TABLE
CREATE FUNCTION out1(OUT a int) LANGUAGE sql AS 'SELECT 1';
CREATE FUNCTION out2(a int, OUT b int, INOUT c text DEFAULT 'c', OUT "D d" jsonb) LANGUAGE sql AS $$SELECT a + 1, c || '!', '{"k": [1, " a ", null]}'::jsonb$$;
CREATE FUNCTION out_composite(OUT r receipt) LANGUAGE sql AS $$SELECT ROW(1, 2, 3, 'n')::receipt$$;
CREATE FUNCTION tab(n int) RETURNS TABLE (a int, b text) LANGUAGE sql AS $$SELECT i, 'row ' || i FROM generate_series(n, 1, -1) AS i$$;
CREATE FUNCTION tab1(n int) RETURNS TABLE (a int) LANGUAGE sql AS 'SELECT generate_series(n, 1, -1)';
SELECT idem_call('t1', 'out1()'), idem_call('t2', 'out2(int,text)', '{"a": 1}'), idem_call('t3', 'out_composite()');
SELECT idem_call('t4', 'tab(int)', '[3]'), idem_call('t5', 'tab(int)', '[0]'), idem_call('t6', 'tab1(int)', '[3]');
SELECT idem_call('t2', 'out2(int,text)', '[1]'), idem_call('t4', 'tab(int)', '{"n": 3}'), idem_call('t5', 'tab(int)', '[0]'), idem_call('t6', 'tab1(int)', '[3]');
-- an OUT parameter takes no argument
SELECT idem_call('t7', 'out2(int,text)', '{"a": 1, "b": 2}');

-- sets: order, no rows, one NULL, composites
CREATE FUNCTION many(n int) RETURNS SETOF int LANGUAGE plpgsql AS $$ BEGIN FOR i IN REVERSE n .. 1 LOOP RETURN NEXT i; END LOOP; END $$;
CREATE FUNCTION one_null() RETURNS SETOF int LANGUAGE sql AS 'SELECT NULL::int';
CREATE FUNCTION null_int() RETURNS int LANGUAGE sql AS 'SELECT NULL::int';
CREATE FUNCTION null_receipt() RETURNS receipt LANGUAGE sql AS 'SELECT NULL::receipt';
CREATE FUNCTION nulls_receipt() RETURNS receipt LANGUAGE sql AS 'SELECT ROW(NULL, NULL, NULL, NULL)::receipt';
CREATE FUNCTION receipts() RETURNS SETOF receipt LANGUAGE sql AS $$VALUES (2::bigint, 1.0, NULL::numeric, 'b"[ ]'), (1, 1.10, 'NaN', E'\n')$$;
CREATE FUNCTION nothing() RETURNS void LANGUAGE sql AS 'UPDATE account SET runs = 1000';
CREATE FUNCTION nothings() RETURNS SETOF void LANGUAGE sql AS 'SELECT FROM generate_series(1, 2)';
CREATE FUNCTION json_null() RETURNS jsonb LANGUAGE sql AS $$SELECT 'null'::jsonb$$;
CREATE FUNCTION json_text() RETURNS json LANGUAGE sql AS $$SELECT E' {\n "b" :\t[1.50, "a \\" b"] , "a": {"x" : null}, "a" : 1 }'::json$$;
SELECT count(*) FROM nothings();
SELECT k, idem_call(k, f::regprocedure, a) AS first, idem_call(k, f::regprocedure, a) AS again
FROM (VALUES
	('s1', 'many(int)', '[3]'::jsonb), ('s2', 'many(int)', '[0]'), ('s3', 'one_null()', '[]'), ('s4', 'null_int()', '[]'),
	('s5', 'null_receipt()', '[]'), ('s6', 'nulls_receipt()', '[]'), ('s7', 'receipts()', '[]'), ('s8', 'nothing()', '[]'),
	('s9', 'nothings()', '[]'), ('sa', 'json_null()', '[]'), ('sb', 'json_text()', '[]')) AS x (k, f, a) ORDER BY k;
-- built-in functions in C are functions as any other
SELECT idem_call('p1', 'generate_series(int,int,int)', '[1, 9, 4]'), idem_call('p2', 'lower(text)', '["ABC"]'), idem_call('p3', 'json_each_text(json)', '[{"a": 1, "b": null}]'),
	idem_call('p4', 'regexp_split_to_table(text,text)', '["a b", " "]'), idem_call('p5', 'pg_catalog.now()') IS NOT NULL;
SELECT idem_call('p5', 'now()')::text = idem_call('p5', 'now()')::text AS kept;

-- a strict function is not called with a NULL
CREATE FUNCTION strict_one(a int, b int DEFAULT NULL) RETURNS int LANGUAGE plpgsql STRICT AS $$ BEGIN RAISE 'was called'; END $$;
CREATE FUNCTION strict_set(a int) RETURNS SETOF int LANGUAGE plpgsql STRICT AS $$ BEGIN RAISE 'was called'; END $$;
SELECT idem_call('x1', 'strict_one(int,int)', '[1]'), idem_call('x2', 'strict_one(int,int)', '[null, 1]'), idem_call('x3', 'strict_set(int)', '[null]');
SELECT idem_call('x1', 'strict_one(int,int)', '[1]');
SELECT idem_call('x4', 'strict_one(int,int)', '[1, 1]');

-- SET clauses, SECURITY DEFINER, volatile or not
CREATE FUNCTION pinned() RETURNS text LANGUAGE sql SET datestyle = 'SQL, DMY' AS $$SELECT date '2026-02-01'::text$$;
SELECT idem_call('y1', 'pinned()'), current_setting('datestyle') = 'SQL, DMY' AS still;
CREATE FUNCTION fixed() RETURNS int IMMUTABLE PARALLEL SAFE LANGUAGE sql AS 'SELECT 1';
SELECT idem_call('y2', 'fixed()');

-- what the function does in the transaction is kept with the key, or not at all
BEGIN;
SELECT idem_call('w1', 'charge(bigint,numeric,text)', '[7, 1]') IS NOT NULL AS called;
SAVEPOINT s;
SELECT idem_call('w2', 'charge(bigint,numeric,text)', '[7, 1]') IS NOT NULL AS called;
SELECT idem_call('w1', 'charge(bigint,numeric,text)', '[7, 1]') IS NOT NULL AS called;
ROLLBACK TO s;
SELECT balance, runs FROM account;
SELECT key, outcome FROM unnest('{w1,w2}'::text[]) AS key, idem_lookup(key) ORDER BY 1;
ROLLBACK;
SELECT key, outcome FROM unnest('{w1,w2}'::text[]) AS key, idem_lookup(key) ORDER BY 1;

-- replay needs no right to write
BEGIN READ ONLY;
SELECT idem_call('c', 'charge(bigint,numeric,text)', '[7, 19.9]');
SAVEPOINT s;
SELECT idem_call('c5', 'charge(bigint,numeric,text)', '[7, 19.9]');
ROLLBACK TO s;
SELECT idem_call('c', 'charge(bigint,numeric,text)', '[7, 19.8]');
ROLLBACK;
-- and no transaction id
BEGIN;
SELECT idem_call('c', 'charge(bigint,numeric,text)', '[7, 19.9]') IS NOT NULL AS replayed, pg_current_xact_id_if_assigned();
COMMIT;
-- above READ COMMITTED
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT idem_call('z1', 'charge(bigint,numeric,text)', '[7, 1]') IS NOT NULL AS called;
SELECT idem_call('z1', 'charge(bigint,numeric,text)', '[7, 1]') IS NOT NULL AS called;
COMMIT;

-- what is recorded is, also where the function makes the transaction read-only
CREATE FUNCTION read_only() RETURNS text LANGUAGE sql AS $$SELECT set_config('transaction_read_only', 'on', true)$$;
SELECT idem_call('read', 'read_only()');
SELECT idem_call('read', 'read_only()');
BEGIN;
SELECT idem_call('read 2', 'read_only()'), current_setting('transaction_read_only');
COMMIT;

-- schema and argument types are part of what was called
CREATE FUNCTION one_name(a int) RETURNS text LANGUAGE sql AS $$SELECT 'int'$$;
CREATE FUNCTION one_name(a bigint) RETURNS text LANGUAGE sql AS $$SELECT 'bigint'$$;
RESET ROLE;
CREATE SCHEMA regress_call_other AUTHORIZATION regress_idem_caller;
SET ROLE regress_idem_caller;
CREATE FUNCTION regress_call_other.one_name(a int) RETURNS text LANGUAGE sql AS $$SELECT 'other'$$;
SELECT idem_call('name', 'one_name(int)', '[1]');
DO $$
DECLARE
	signature text;
	code text;
	detail text;
BEGIN
	FOREACH signature IN ARRAY '{one_name(bigint),regress_call_other.one_name(int)}'::text[] LOOP
		BEGIN
			PERFORM idem_call('name', signature::regprocedure, '[1]');
		EXCEPTION WHEN OTHERS THEN
			GET STACKED DIAGNOSTICS code = RETURNED_SQLSTATE, detail = PG_EXCEPTION_DETAIL;
			RAISE INFO '% %', code, detail;
		END;
	END LOOP;
END $$;
SELECT idem_call('name', 'one_name(int)', '[1]'), idem_call('name 2', 'one_name(bigint)', '[1]'), idem_call('name 3', 'regress_call_other.one_name(int)', '[1]');
-- ... and so the name alone does not do
SELECT idem_call('name', 'regress_call_other.one_name', '[1]');

-- a sequence does not roll back: a call that failed draws again, a replay does not
CREATE SEQUENCE number;
CREATE FUNCTION draws(fail boolean) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	drawn bigint = nextval('number');
BEGIN
	IF fail THEN RAISE 'no'; END IF;
	RETURN drawn;
END $$;
SELECT idem_call('draw', 'draws(boolean)', '[true]');
SELECT idem_call('draw', 'draws(boolean)', '[false]');
SELECT idem_call('draw', 'draws(boolean)', '[false]'), last_value FROM number;

-- ttl
SELECT idem_call('ttl', 'plain()', ttl => '2 days');
RESET ROLE;
SELECT key, expires_at - finished_at AS kept FROM idem.key WHERE key IN ('ttl', 'n1') ORDER BY key;

SET client_min_messages = warning;
DROP SCHEMA regress_call, regress_call_other CASCADE;
SELECT idem_revoke('regress_idem_caller');
REVOKE ALL ON SCHEMA public FROM regress_idem_caller;
DROP ROLE regress_idem_caller;
DELETE FROM idem.key;
