-- What stands in front of everything in search_path changes nothing: operators,
-- functions, types and temporary objects of the caller's.

\set VERBOSITY sqlstate
CREATE ROLE regress_idem_attacker;
CREATE ROLE regress_idem_victim;
SELECT idem_grant('regress_idem_victim', 'operator');
CREATE SCHEMA regress_trap AUTHORIZATION regress_idem_attacker;
GRANT USAGE ON SCHEMA regress_trap TO PUBLIC;
SET ROLE regress_idem_attacker;
CREATE FUNCTION regress_trap.sprung() RETURNS boolean LANGUAGE plpgsql AS
	$$ BEGIN RAISE EXCEPTION 'trapped as %', current_user; END $$;
DO $$
DECLARE
	op text;
	t text;
BEGIN
	FOREACH t IN ARRAY ARRAY['text', 'int8', 'int4', 'timestamptz', 'interval', 'name', '"char"', 'bool', 'oid', 'jsonb', 'bytea', 'regclass', '_name', '_text'] LOOP
		EXECUTE format('CREATE FUNCTION regress_trap.compare(pg_catalog.%s, pg_catalog.%1$s) RETURNS boolean LANGUAGE sql AS ''SELECT regress_trap.sprung()''', t);
		FOREACH op IN ARRAY ARRAY['=', '<>', '<', '<=', '>', '>=', '||', '~', '~~'] LOOP
			EXECUTE format('CREATE OPERATOR regress_trap.%s (FUNCTION = regress_trap.compare, LEFTARG = pg_catalog.%s, RIGHTARG = pg_catalog.%2$s)', op, t);
		END LOOP;
	END LOOP;
	FOREACH t IN ARRAY ARRAY['now()', 'clock_timestamp()', 'transaction_timestamp()', 'current_setting(text)', 'current_setting(text, boolean)', 'octet_length(text)', 'strpos(text, text)',
			'nextval(regclass)', 'setval(regclass, bigint)', 'format(text, text, text)', 'format(text, text)', 'unnest(text[])', 'has_schema_privilege(name, oid, text)',
			'idem_key()', 'idem_claim(text)', 'idem_complete(text)', 'lower(text)', 'length(text)', 'jsonb_eq(jsonb, jsonb)', 'texteq(text, text)'] LOOP
		EXECUTE format('CREATE FUNCTION regress_trap.%s RETURNS text LANGUAGE sql AS ''SELECT regress_trap.sprung()::text''', t);
	END LOOP;
END $$;
CREATE TYPE regress_trap.idem_claimed AS (trap int);
CREATE TYPE regress_trap.text AS (trap int);
CREATE TYPE regress_trap.jsonb AS (trap int);
CREATE TYPE regress_trap."interval" AS (trap int);
CREATE TYPE regress_trap.timestamptz AS (trap int);
CREATE TYPE regress_trap.int8 AS (trap int);
CREATE TABLE regress_trap.key (scope name);
CREATE TABLE regress_trap.scope (name name);
CREATE SEQUENCE regress_trap.fence;
RESET ROLE;

SET ROLE regress_idem_victim;
CREATE TEMP TABLE key (scope name);
CREATE TEMP TABLE scope (name name);
CREATE TEMP TABLE sweep_state (kind name);
CREATE TEMP SEQUENCE fence;
CREATE TEMP TABLE pg_class (relname name);
CREATE TEMP TABLE pg_proc (proname name);
CREATE TEMP TABLE pg_roles (rolname name);
CREATE TEMP TABLE pg_extension (extname name);
CREATE TEMP TABLE pg_depend (objid oid);
CREATE TYPE pg_temp.text AS (trap int);
SET search_path = pg_temp, regress_trap, pg_catalog;

-- once over fresh plans, once over kept ones
BEGIN;
SELECT outcome FROM public.idem_claim('h', '{"a": 1}', hold => 'transaction', ttl => '1 h', wait => '0 s');
SELECT outcome FROM public.idem_claim('h', '{"a": 1.0}');
SELECT outcome FROM public.idem_claim('h', '{"a": 2}');
SELECT public.idem_step('h', 's', '{"p": 1}');
SELECT * FROM public.idem_unfinished();
SELECT public.idem_retry('h', 'e');
SELECT attempt FROM public.idem_claim('h');
SELECT public.idem_complete('h', 'r'::pg_catalog.text, code => 200);
COMMIT;
SELECT outcome, response, code FROM public.idem_claim('h', '{"a": 1}');
SELECT outcome, step, response FROM public.idem_lookup('h');
BEGIN;
SELECT outcome FROM public.idem_claim('j');
SELECT public.idem_complete('j', '[1]'::pg_catalog.jsonb);
SELECT outcome FROM public.idem_claim('f');
SELECT public.idem_fail('f', 'e');
COMMIT;
SELECT fence AS f FROM public.idem_claim('l', lease => '1 h') \gset
SELECT outcome FROM public.idem_claim('l', lease => '1 h');
SELECT pg_catalog.pg_typeof(public.idem_renew('l', '2 h', fence => :f));
SELECT public.idem_release('l', fence => :f);
SELECT attempt FROM public.idem_claim('l', lease => '1 h');
SELECT outcome FROM public.idem_claim('s', hold => 'session');
SELECT public.idem_release('s');
SELECT pg_catalog.set_config('idem.key', 'by setting', false);
SELECT public.idem_key();
BEGIN;
SELECT outcome FROM public.idem_claim();
SELECT public.idem_complete();
COMMIT;
SELECT public.idem_once('o'), public.idem_once('o', 'regress_t/x', '1 day');
SELECT * FROM public.idem_once_many('{o,a,b,a}');
SELECT public.idem_reopen('f');
SELECT public.idem_import('i', 'x', created_at => '2024-01-01 00:00:00+00', ttl => '900 years');
SELECT public.idem_import_many('{i,k}', '{1,2}');
SELECT public.idem_forget('i', force => true);
SELECT kind FROM public.idem_sweep() WHERE kind OPERATOR(pg_catalog.=) 'key';
SELECT public.idem_token_use(public.idem_token_issue('trap', 'alice', replace => true), 'trap', 'alice');
SELECT public.idem_branch('trap', 'b', 'try');
SELECT pg_catalog.count(*) FROM idem.held;
-- a verb inside of a function with that path, planned anew and again
SET plan_cache_mode = force_generic_plan;
PREPARE again AS SELECT outcome FROM public.idem_claim($1);
EXECUTE again ('h');
EXECUTE again ('h');
DEALLOCATE again;
RESET plan_cache_mode;
RESET idem.key;
RESET ROLE;

-- as the owner, under the same path: settings and grants
INSERT INTO idem.scope (name, ttl, lease, roles) VALUES ('regress_s', '2 h', '1 min', '{regress_idem_victim}');
UPDATE idem.scope SET hold = 'lease';
SELECT outcome FROM public.idem_claim('k', scope => 'regress_s');
SELECT public.idem_grant('regress_idem_attacker'), public.idem_revoke('regress_idem_attacker');
SELECT public.idem_fence_advance(1) IS NOT NULL AS advanced;
RESET search_path;
SELECT scope, key, state, attempt, hold, response FROM idem.key ORDER BY scope, key;

-- the objects of that name stayed as they were
SELECT count(*) FROM pg_temp.key;
SELECT count(*) FROM regress_trap.key;
SELECT is_called FROM pg_temp.fence;
SELECT is_called FROM regress_trap.fence;

DELETE FROM idem.key;
DELETE FROM idem.scope;
\set VERBOSITY terse
SET client_min_messages = warning;
DROP SCHEMA regress_trap CASCADE;
DISCARD TEMP;
SELECT idem_revoke('regress_idem_victim');
DROP ROLE regress_idem_attacker, regress_idem_victim;
