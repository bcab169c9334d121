-- idem_child: keys derived from scope, key and name; and idem.key around a call.

\pset null '(null)'
\set VERBOSITY terse
-- the same on every server and in every release
SELECT idem_child('order-42', 'charge'), idem_child('order-42', 'charge', 'default'), idem_child('order-42', 'charge', 'shop/alice');
SELECT idem_child('schlüssel', 'größe'), idem_child(repeat('k', 1024), repeat('n', 100000));
-- a UUID of version 8, of the variant of RFC 9562
SELECT count(*), count(DISTINCT child), bool_and(child::uuid::text = child), bool_and(child ~ '^.{8}-.{4}-8.{3}-[89ab].{3}-.{12}$') AS version_8
FROM generate_series(1, 1000) AS i, idem_child('k' || i, 'n') AS child;
-- no two triples are one
SELECT count(DISTINCT child) FROM (VALUES ('a', 'bc', 'd'), ('ab', 'c', 'd'), ('a', 'b', 'cd'), ('abc', 'd', 'd'), ('d', 'bc', 'a'), ('bc', 'a', 'd'),
	('a', E'bc\n', 'd'), ('a', 'BC', 'd'), ('a', ' bc', 'd'), (E'a\u0001', 'bc', 'd'), ('a', 'bc', 'd/e'), ('1:a', 'bc', 'd')) AS x (k, n, s), idem_child(k, n, s) AS child;
-- a child of a child
SELECT idem_child(idem_child('k', 'a'), 'b') <> idem_child(idem_child('k', 'b'), 'a') AS distinct;
-- scope by setting
SET idem.scope = 'shop/alice';
SELECT idem_child('order-42', 'charge');
RESET idem.scope;
SELECT idem_child(NULL, 'n');
SELECT idem_child('', 'n');
SELECT idem_child('k', NULL);
SELECT idem_child('k', '');
SELECT idem_child(repeat('k', 1025), 'n');
SELECT idem_child('k', 'n', '');
SELECT idem_child('k', 'n', 'a/');
BEGIN;
SET LOCAL idem.declared_scopes = on;
SELECT idem_child('k', 'n', 'undeclared');
ROLLBACK;
-- it writes nothing
BEGIN READ ONLY;
SELECT idem_child('k', 'n') IS NOT NULL AS child, pg_current_xact_id_if_assigned();
COMMIT;
SELECT count(*) FROM idem.key;

-- While a function runs, idem.key is its child key, whatever it was before.
SET search_path = pg_temp, public;
CREATE FUNCTION pg_temp.seen() RETURNS text LANGUAGE sql AS 'SELECT idem_key()';
CREATE FUNCTION pg_temp.seen_set() RETURNS SETOF text LANGUAGE plpgsql AS $$ BEGIN RETURN NEXT idem_key(); RETURN NEXT current_setting('idem.key'); END $$;
CREATE FUNCTION pg_temp.outer() RETURNS text[] LANGUAGE plpgsql AS $$
BEGIN
	RETURN ARRAY[idem_key(), idem_call('inner', 'pg_temp.seen()') #>> '{}', idem_key()];
END $$;
SELECT idem_call('k', 'pg_temp.seen()') #>> '{}' = idem_child('k', 'seen') AS child, idem_key();
BEGIN;
SELECT set_config('idem.key', 'request', true);
SELECT idem_call(idem_key(), 'pg_temp.seen()', scope => 's') #>> '{}' = idem_child('request', 'seen', 's') AS child, idem_key();
SELECT idem_call('set', 'pg_temp.seen_set()')::jsonb = jsonb_build_array(idem_child('set', 'seen_set'), idem_child('set', 'seen_set')) AS child, idem_key();
SELECT idem_call('k2', 'pg_temp.outer()')::jsonb = to_jsonb(ARRAY[idem_child('k2', 'outer'), idem_child('inner', 'seen'), idem_child('k2', 'outer')]) AS child, idem_key();
-- a replay sets nothing
SELECT idem_call('set', 'pg_temp.seen_set()') IS NOT NULL AS replayed, idem_key();
COMMIT;
SELECT idem_key();
-- a session's own setting comes back as well, and a default
SET idem.key = 'session';
SELECT idem_call('k3', 'pg_temp.seen()') #>> '{}' = idem_child('k3', 'seen') AS child, idem_key();
RESET idem.key;
SELECT idem_key();
-- after an error too
CREATE FUNCTION pg_temp.fails() RETURNS text LANGUAGE plpgsql AS $$ BEGIN PERFORM set_config('idem.key', 'from inside', false); RAISE EXCEPTION 'key %', idem_key() <> ''; END $$;
BEGIN;
SELECT set_config('idem.key', 'request', true);
SAVEPOINT s;
SELECT idem_call('k4', 'pg_temp.fails()');
ROLLBACK TO s;
SELECT idem_key();
COMMIT;
DO $$
BEGIN
	PERFORM set_config('idem.key', 'request', true);
	BEGIN
		PERFORM idem_call('k4', 'pg_temp.fails()');
	EXCEPTION WHEN raise_exception THEN
		RAISE NOTICE '%', idem_key();
	END;
END $$;
SELECT idem_key();
-- and when the function sets it: that lasts as long as the function
CREATE FUNCTION pg_temp.sets(local boolean) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	PERFORM set_config('idem.key', 'from inside', local), set_config('regress.other', 'kept', local);
	RETURN idem_key();
END $$;
BEGIN;
SELECT set_config('idem.key', 'request', true);
SELECT idem_call('k5', 'pg_temp.sets(boolean)', '[true]'), idem_key(), current_setting('regress.other');
SELECT idem_key(), current_setting('regress.other');
SELECT idem_call('k6', 'pg_temp.sets(boolean)', '[false]');
SELECT idem_key(), current_setting('regress.other');
COMMIT;
SELECT idem_key(), current_setting('regress.other');
SELECT idem_call('k7', 'pg_temp.sets(boolean)', '[false]');
SELECT idem_key(), current_setting('regress.other');
-- what the session had is back too, also under a transaction's own, one that
-- the transaction set for the session, calls in calls, and the same value
SET idem.key = 'session';
SELECT idem_call('s1', 'pg_temp.sets(boolean)', '[false]');
SELECT idem_key();
BEGIN;
SELECT set_config('idem.key', 'request', true);
SELECT idem_call('s2', 'pg_temp.sets(boolean)', '[false]');
SELECT idem_key();
COMMIT;
SELECT idem_key();
BEGIN;
SET idem.key = 'session 2';
SELECT set_config('idem.key', 'request', true);
SELECT idem_call('s3', 'pg_temp.sets(boolean)', '[false]');
SELECT idem_key();
SAVEPOINT s;
SELECT set_config('idem.key', 'part', true);
SELECT idem_call('s4', 'pg_temp.sets(boolean)', '[false]');
SELECT idem_key();
ROLLBACK TO s;
SELECT idem_key();
COMMIT;
SELECT idem_key();
CREATE FUNCTION pg_temp.calls_it() RETURNS text LANGUAGE sql AS $$
	SELECT idem_call(idem_key() || 'x', 'pg_temp.sets(boolean)', '[false]');
	SELECT (idem_key() <> 'from inside')::text
$$;
SELECT idem_call('s5', 'pg_temp.calls_it()');
SELECT idem_key();
BEGIN;
SELECT set_config('idem.key', 'request', true);
SELECT idem_call('s6', 'pg_temp.calls_it()');
CREATE FUNCTION pg_temp.sets_same() RETURNS text LANGUAGE sql AS $$SELECT set_config('idem.key', 'request', false)$$;
SELECT idem_call('s7', 'pg_temp.sets_same()');
SELECT idem_key();
COMMIT;
SELECT idem_key();
BEGIN;
SELECT idem_call('s8', 'pg_temp.sets(boolean)', '[false]');
ROLLBACK;
SELECT idem_key();
RESET idem.key;

-- set and taken back inside: by a block that fails, by a function's own SET, by
-- RESET; and what calls in calls leave each other
CREATE FUNCTION pg_temp.with_set() RETURNS text LANGUAGE sql SET idem.key = 'by SET' AS 'SELECT idem_key()';
CREATE FUNCTION pg_temp.told(VARIADIC keys text[]) RETURNS text LANGUAGE sql AS
	$$SELECT string_agg(CASE k WHEN idem_child('m', 'mixed') THEN 'child' ELSE k END, ', ' ORDER BY i) FROM unnest(keys) WITH ORDINALITY AS x (k, i)$$;
CREATE FUNCTION pg_temp.mixed() RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	seen text[];
BEGIN
	seen := seen || idem_key() || current_setting('idem.key');
	BEGIN
		PERFORM set_config('idem.key', 'in a block', false);
		seen := seen || idem_key();
		RAISE division_by_zero;
	EXCEPTION WHEN division_by_zero THEN
		seen := seen || idem_key();
	END;
	seen := seen || pg_temp.with_set() || idem_key();
	PERFORM idem_call('inner 1', 'pg_temp.sets(boolean)', '[false]'), idem_call('inner 2', 'pg_temp.sets(boolean)', '[true]');
	seen := seen || idem_key();
	PERFORM set_config('idem.key', 'own', true);
	seen := seen || idem_key();
	PERFORM idem_call('inner 3', 'pg_temp.sets(boolean)', '[false]'), idem_call('inner 4', 'pg_temp.sets(boolean)', '[true]');
	seen := seen || idem_key() || (idem_call('inner 5', 'pg_temp.seen()') #>> '{}' = idem_child('inner 5', 'seen'))::text;
	RESET idem.key;
	RETURN pg_temp.told(VARIADIC seen);
END $$;
SET idem.key = 'session';
SELECT idem_call('m', 'pg_temp.mixed()');
SELECT idem_key();
BEGIN;
SELECT set_config('idem.key', 'request', true);
SELECT idem_forget('m', force => true), idem_call('m', 'pg_temp.mixed()');
SELECT idem_key();
SAVEPOINT s;
SELECT idem_forget('m', force => true), idem_call('m', 'pg_temp.mixed()');
ROLLBACK TO s;
SELECT idem_key();
COMMIT;
SELECT idem_key();
SHOW idem.key;
RESET idem.key;
SELECT idem_key();
-- parallel workers see it too
CREATE TABLE public.regress_idem_keys AS SELECT 'p' || i AS k, idem_child('p' || i, 'counts') AS child FROM generate_series(1, 1000) AS i;
CREATE FUNCTION pg_temp.plan_of(statement text) RETURNS SETOF text LANGUAGE plpgsql AS $$ BEGIN RETURN QUERY EXECUTE 'EXPLAIN (COSTS OFF) ' || statement; END $$;
CREATE FUNCTION pg_temp.counts() RETURNS text LANGUAGE plpgsql
	SET parallel_setup_cost = 0 SET parallel_tuple_cost = 0 SET min_parallel_table_scan_size = 0 SET parallel_leader_participation = off SET max_parallel_workers_per_gather = 2 AS $$
DECLARE
	n text;
BEGIN
	SELECT concat(count(*), ' ', min(k)) INTO n FROM public.regress_idem_keys WHERE child = current_setting('idem.key');
	SELECT concat_ws(' ', n, min(btrim(line)), idem_key() = current_setting('idem.key')) INTO n
	FROM pg_temp.plan_of('SELECT count(*) FROM public.regress_idem_keys WHERE child = current_setting(''idem.key'')') AS line WHERE line LIKE '%Parallel%';
	RETURN n;
END $$;
BEGIN;
SELECT set_config('idem.key', 'request', true);
SELECT idem_call('p7', 'pg_temp.counts()');
SELECT idem_key();
COMMIT;
SELECT idem_key();
DROP TABLE public.regress_idem_keys;

-- so what it does without naming a key has a key that is the same each time
CREATE FUNCTION pg_temp.verbs() RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	c idem_claimed := idem_claim();
BEGIN
	IF c.run THEN
		PERFORM idem_step(step => 'half');
		PERFORM idem_complete(response => 'done by ' || coalesce(current_setting('regress.who'), ''), key => idem_key());
	END IF;
	SELECT * INTO c FROM idem_claim();
	RETURN c.outcome || ' ' || c.response || ' ' || idem_once(idem_key(), 'messages');
END $$;
SET regress.who = 'one';
SELECT idem_call('k8', 'pg_temp.verbs()');
SET regress.who = 'two';
SELECT idem_call('k8', 'pg_temp.verbs()');
SELECT outcome, step, response FROM idem_lookup(idem_child('k8', 'verbs'));
-- forgotten and run again, it finds what it did the first time
SELECT idem_forget('k8', force => true);
SELECT idem_call('k8', 'pg_temp.verbs()');
-- a claim of its own that it does not end is refused at COMMIT
CREATE FUNCTION pg_temp.unfinished() RETURNS boolean LANGUAGE sql AS 'SELECT run FROM idem_claim()';
SELECT idem_call('k9', 'pg_temp.unfinished()');
SELECT count(*) FROM idem_lookup('k9');

DELETE FROM idem.key;
