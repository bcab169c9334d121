-- Who gets what: nothing for PUBLIC, exactly their verbs for the two levels,
-- scope roles, definer functions with a fixed search_path.
BEGIN;
SET client_min_messages = warning;
SET search_path = public;
CREATE EXTENSION pgtap;
CREATE EXTENSION idem;

SELECT no_plan();

CREATE ROLE regress_idem_app;
CREATE ROLE regress_idem_ops;
CREATE ROLE regress_idem_none;
SELECT ok(idem_grant('regress_idem_app'), 'grant app');
SELECT ok(idem_grant('regress_idem_ops', 'operator'), 'grant operator');

-- What a statement run as a role gives: its first column, or the SQLSTATE.
CREATE FUNCTION pg_temp.act(role name, statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	answer text;
BEGIN
	BEGIN
		PERFORM set_config('role', role, true);
		EXECUTE statement INTO answer;
		PERFORM set_config('role', 'none', true);
	EXCEPTION WHEN OTHERS THEN
		answer := SQLSTATE;
	END;
	RETURN answer;
END $$;

-- The verbs of each level.
CREATE TEMP TABLE verbs (level text, name text);
INSERT INTO verbs
SELECT 'app', unnest(ARRAY['idem_version', 'idem_key', 'idem_claim', 'idem_claim_key', 'idem_complete', 'idem_fail',
	'idem_retry', 'idem_release', 'idem_renew', 'idem_step', 'idem_lookup',
	'idem_once', 'idem_once_many', 'idem_unfinished', 'idem_canonical',
	'idem_fingerprint', 'idem_child', 'idem_call', 'idem_twin', 'idem_twin_value', 'idem_wrap', 'idem_window',
	'idem_diagram', 'idem_lint',
	'idem_history', 'idem_fire', 'idem_try_fire', 'idem_fire_many', 'idem_allowed', 'idem_why_not',
	'idem_update', 'idem_delete',
	'idem_token_issue', 'idem_token_use', 'idem_token_peek', 'idem_branch',
	'idem_lease_acquire', 'idem_lease_renew', 'idem_lease_release', 'idem_lease_guard'])
UNION ALL
SELECT 'operator', unnest(ARRAY['idem_forget', 'idem_reopen', 'idem_import',
	'idem_import_many', 'idem_sweep', 'idem_fence_advance', 'idem_define', 'idem_export',
	'idem_attach_once', 'idem_detach_once', 'idem_once_row',
	'idem_attach_version', 'idem_detach_version', 'idem_rowversion',
	'idem_attach', 'idem_detach', 'idem_verify', 'idem_guard', 'idem_not_initial', 'idem_each_row',
	'idem_history_changed', 'idem_tick',
	'idem_lease_break', 'idem_attach_fence', 'idem_detach_fence', 'idem_fence_check',
	'idem_stats', 'idem_stats_reset', 'idem_refusals', 'idem_sweep_progress'])
UNION ALL
SELECT 'owner', unnest(ARRAY['idem_grant', 'idem_revoke']);

CREATE TEMP VIEW function AS
SELECT f.oid, f.proname::text AS name, f.oid::regprocedure::text AS signature
FROM pg_proc AS f WHERE pronamespace = 'public'::regnamespace AND proname LIKE 'idem\_%';

SELECT is(
	ARRAY(SELECT f.signature FROM function AS f
		WHERE has_function_privilege('regress_idem_none', f.oid, 'EXECUTE') ORDER BY 1),
	'{}', 'PUBLIC may execute nothing');
SELECT is(
	ARRAY(SELECT f.signature FROM function AS f JOIN verbs AS v USING (name)
		WHERE has_function_privilege('regress_idem_app', f.oid, 'EXECUTE') <> (v.level = 'app') ORDER BY 1),
	'{}', 'app gets exactly the verbs of daily work');
SELECT is(
	ARRAY(SELECT f.signature FROM function AS f JOIN verbs AS v USING (name)
		WHERE has_function_privilege('regress_idem_ops', f.oid, 'EXECUTE') <> (v.level <> 'owner') ORDER BY 1),
	'{}', 'operator gets these and the operators'' verbs');
SELECT is(
	ARRAY(SELECT v.name FROM verbs AS v WHERE v.name NOT IN (SELECT name FROM function) ORDER BY 1),
	'{}', 'all verbs exist');

-- Tables.
SELECT is(
	ARRAY(SELECT format('%s %s %s', r, c.relname, p)
		FROM pg_class AS c, unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'REFERENCES', 'TRIGGER']) AS p,
			unnest(ARRAY['regress_idem_none', 'regress_idem_app']) AS r
		WHERE c.relnamespace = 'idem'::regnamespace AND c.relkind IN ('r', 'p')
		AND (r = 'regress_idem_none' OR c.relname = 'key')
		AND has_table_privilege(r, c.oid, p)),
	'{}', 'no table for PUBLIC, no idem.key for app');
SELECT is(
	ARRAY(SELECT format('%s %s', r, c.relname)
		FROM pg_class AS c, unnest(ARRAY['regress_idem_none', 'regress_idem_app']) AS r
		WHERE c.relnamespace = 'idem'::regnamespace AND c.relkind = 'S'
		AND has_sequence_privilege(r, c.oid, 'USAGE, SELECT, UPDATE')),
	'{}', 'no sequence for PUBLIC or app');
SELECT is(
	ARRAY(SELECT format('%s %s', c.relname, p)
		FROM pg_class AS c, unnest(ARRAY['INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'TRIGGER']) AS p
		WHERE c.relnamespace = 'idem'::regnamespace AND c.relname = 'key'
		AND has_table_privilege('regress_idem_ops', c.oid, p)),
	'{}', 'operators do not write idem.key directly either');
SELECT ok(NOT has_schema_privilege('regress_idem_none', 'idem', 'USAGE, CREATE'),
	'schema idem is closed to PUBLIC');
SELECT ok(NOT has_schema_privilege('regress_idem_app', 'idem', 'CREATE')
	AND NOT has_schema_privilege('regress_idem_ops', 'idem', 'CREATE'),
	'nobody creates in schema idem');
SELECT ok(NOT EXISTS (
	SELECT FROM pg_type WHERE typname = 'idem_claimed' AND typacl IS NOT NULL
	AND NOT has_type_privilege('regress_idem_app', oid, 'USAGE')),
	'app may use the result type');
SELECT ok(has_table_privilege('regress_idem_ops', 'idem.held', 'SELECT'), 'operators see idem.held');
SELECT ok(has_table_privilege('regress_idem_ops', 'idem.lease_held', 'SELECT'), 'operators see idem.lease_held');
SELECT ok(has_table_privilege('regress_idem_ops', 'idem.branch', 'SELECT'), 'operators see idem.branch');
SELECT ok(NOT has_table_privilege('regress_idem_ops', 'idem.lease', 'SELECT, INSERT, UPDATE, DELETE, TRUNCATE'), 'but not idem.lease');
SELECT ok(NOT has_table_privilege('regress_idem_app', 'idem.lease', 'SELECT, INSERT, UPDATE, DELETE, TRUNCATE'), 'nor does app');
SELECT ok(NOT has_table_privilege('regress_idem_app', 'idem.held', 'SELECT'), 'app does not');

SELECT is(
	ARRAY(SELECT format('%s %s %s', r, t, p)
		FROM unnest(ARRAY['machine', 'state', 'transition']) AS t,
			unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'TRIGGER']) AS p,
			unnest(ARRAY['regress_idem_none', 'regress_idem_app', 'regress_idem_ops']) AS r
		WHERE has_table_privilege(r, 'idem.' || t, p) <> (r = 'regress_idem_ops' AND p NOT IN ('TRUNCATE', 'TRIGGER'))),
	'{}', 'operators, and nobody else, write definitions');

SELECT is(
	ARRAY(SELECT format('%s %s %s', r, t, p)
		FROM unnest(ARRAY['history', 'timer', 'dwell']) AS t,
			unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'TRIGGER']) AS p,
			unnest(ARRAY['regress_idem_none', 'regress_idem_app', 'regress_idem_ops']) AS r
		WHERE has_table_privilege(r, 'idem.' || t, p) <> (r = 'regress_idem_ops' AND p = 'SELECT')),
	'{}', 'operators read history and timers, nobody writes them');

-- In action.
SELECT is(pg_temp.act('regress_idem_none', $$SELECT idem_once('k')$$), '42501', 'none: verb');
SELECT is(pg_temp.act('regress_idem_none', 'SELECT count(*) FROM idem.key'), '42501', 'none: table');
SELECT is(pg_temp.act('regress_idem_app', $$SELECT outcome FROM idem_claim('k', lease => '1 h')$$), 'claimed', 'app: claim');
SELECT is(pg_temp.act('regress_idem_app', $$SELECT idem_complete('k', 'r'::text)$$), 'true', 'app: complete');
SELECT is(pg_temp.act('regress_idem_app', $$SELECT response FROM idem_claim('k')$$), 'r', 'app: replay');
SELECT is(pg_temp.act('regress_idem_app', $$SELECT response FROM idem_lookup('k')$$), 'r', 'app: lookup');
SELECT is(pg_temp.act('regress_idem_app', $$SELECT idem_call('f', 'lower(text)', '["X"]')$$), '"x"', 'app: call');
SELECT is(pg_temp.act('regress_idem_app', $$SELECT idem_child('k', 'n') IS NOT NULL$$), 'true', 'app: child');
SELECT is(pg_temp.act('regress_idem_none', $$SELECT idem_call('f', 'lower(text)', '["X"]')$$), '42501', 'none: call');
SELECT is(pg_temp.act('regress_idem_app', 'SELECT count(*) FROM idem.key'), '42501', 'app: table');
SELECT is(pg_temp.act('regress_idem_app', $$SELECT nextval('idem.fence')$$), '42501', 'app: sequence');
SELECT is(pg_temp.act('regress_idem_app', $$SELECT idem_forget('k', force => true)$$), '42501', 'app: forget');
SELECT is(pg_temp.act('regress_idem_app', $$SELECT idem_import('i', 'x')$$), '42501', 'app: import');
SELECT is(pg_temp.act('regress_idem_app', 'SELECT count(*) FROM idem_sweep()'), '42501', 'app: sweep');
SELECT is(pg_temp.act('regress_idem_app', 'SELECT count(*) FROM idem.held'), '42501', 'app: held');
SELECT is(pg_temp.act('regress_idem_app', $$SELECT outcome FROM idem_lease_acquire('k', '1 h')$$), 'acquired', 'app: lease');
SELECT is(pg_temp.act('regress_idem_app', $$SELECT idem_lease_break('k')$$), '42501', 'app: break');
SELECT is(pg_temp.act('regress_idem_none', $$SELECT idem_lease_acquire('k', '1 h')$$), '42501', 'none: lease');
SELECT is(pg_temp.act('regress_idem_ops', $$SELECT idem_lease_break('k')$$), 'true', 'operator: break');
SELECT is(pg_temp.act('regress_idem_app', $$SELECT idem_grant('regress_idem_none')$$), '42501', 'app: grant');
SELECT is(pg_temp.act('regress_idem_ops', $$SELECT idem_import('i', 'x')$$), 'true', 'operator: import');
SELECT is(pg_temp.act('regress_idem_ops', 'SELECT count(*) >= 0 FROM idem_sweep()'), 'true', 'operator: sweep');
SELECT is(pg_temp.act('regress_idem_ops', 'SELECT count(*) >= 0 FROM idem.held'), 'true', 'operator: held');
SELECT is(pg_temp.act('regress_idem_ops', $$SELECT idem_forget('k', force => true)$$), 'true', 'operator: forget');
SELECT is(pg_temp.act('regress_idem_ops', $$SELECT idem_grant('regress_idem_none')$$), '42501', 'operator: grant');

-- Scope roles.
INSERT INTO idem.scope (name, roles) VALUES ('closed', '{regress_idem_none}'), ('open', '{regress_idem_app}');
SELECT idem_once('there', 'closed/tenant');
SELECT is(pg_temp.act('regress_idem_app', format('SELECT outcome FROM idem_claim(%L, scope => %L, lease => %L)', k, s, '1 h')),
	CASE WHEN s LIKE 'open%' THEN 'claimed' ELSE '42501' END,
	format('key %s in scope %s', k, s))
FROM unnest(ARRAY['there', 'absent']) AS k, unnest(ARRAY['closed', 'closed/tenant', 'open', 'open/tenant']) AS s;
SELECT is(pg_temp.act('regress_idem_app', statement), '42501', statement)
FROM unnest(ARRAY[
	$$SELECT outcome FROM idem_lookup('there', 'closed/tenant')$$,
	$$SELECT outcome FROM idem_lookup('absent', 'closed/tenant')$$,
	$$SELECT idem_once('there', 'closed/tenant')$$,
	$$SELECT idem_once_many('{there}', 'closed/tenant')$$,
	$$SELECT idem_once_many('{}', 'closed/tenant')$$,
	$$SELECT idem_complete('there', 'x'::text, 'closed/tenant')$$,
	$$SELECT idem_complete('absent', 'x'::text, 'closed/tenant')$$,
	$$SELECT idem_fail('there', 'x', 'closed/tenant')$$,
	$$SELECT idem_retry('there', 'x', 'closed/tenant')$$,
	$$SELECT idem_release('there', 'closed/tenant')$$,
	$$SELECT idem_renew('there', '1 h', 'closed/tenant', 1)$$,
	$$SELECT idem_step('there', 'x', NULL, 'closed/tenant', 1)$$]) AS statement;
GRANT regress_idem_none TO regress_idem_app;
SELECT is(pg_temp.act('regress_idem_app', $$SELECT idem_once('there', 'closed/tenant')$$), 'false', 'a member of the role has the scope');
REVOKE regress_idem_none FROM regress_idem_app;
SELECT is(pg_temp.act('regress_idem_app', $$SELECT idem_once('there', 'closed/tenant')$$), '42501', 'and loses it with the membership');
SELECT is(pg_temp.act('regress_idem_ops', $$SELECT idem_forget('there', 'closed/tenant', true)$$), 'true', 'operators'' verbs are not bound by scope roles');

-- A role that has left.
INSERT INTO idem.scope (name, roles) VALUES ('stale', '{regress_idem_gone}');
SELECT is(pg_temp.act('regress_idem_app', $$SELECT idem_once('k', 'stale')$$), '42501', 'a scope whose role does not exist is closed');

-- Revoke, twice, and what a level change does.
SELECT ok(idem_revoke('regress_idem_app'), 'revoke');
SELECT ok(idem_revoke('regress_idem_app'), 'revoke again');
SELECT is(pg_temp.act('regress_idem_app', $$SELECT idem_once('k2')$$), '42501', 'app: nothing after revoke');
SELECT ok(idem_revoke('regress_idem_ops'), 'revoke operator');
SELECT is(
	ARRAY(SELECT f.signature FROM function AS f
		WHERE has_function_privilege('regress_idem_ops', f.oid, 'EXECUTE') ORDER BY 1),
	'{}', 'operator: no function after revoke');
SELECT is(
	ARRAY(SELECT c.relname::text FROM pg_class AS c
		WHERE relnamespace = 'idem'::regnamespace AND relkind IN ('r', 'p', 'v')
		AND has_table_privilege('regress_idem_ops', oid, 'SELECT, INSERT, UPDATE, DELETE')),
	'{}', 'operator: no table after revoke');
SELECT lives_ok('DROP ROLE regress_idem_app', 'nothing depends on a revoked role');
SELECT lives_ok('DROP ROLE regress_idem_ops', 'nor on a revoked operator');
SELECT throws_ok($$SELECT idem_grant('regress_idem_gone')$$, '42704', NULL, 'grant to no role');
SELECT throws_ok($$SELECT idem_grant('regress_idem_none', 'nonsense')$$, 'ID400', NULL, 'grant of no level');
SELECT throws_ok($$SELECT idem_grant(NULL)$$, 'ID400', NULL, 'grant to NULL');
SELECT throws_ok($$SELECT idem_revoke(NULL)$$, 'ID400', NULL, 'revoke from NULL');

-- Names that need quoting.
CREATE ROLE "regress_idem we""ird; DROP";
SELECT ok(idem_grant('regress_idem we"ird; DROP', 'operator'), 'grant to a role with a strange name');
SELECT is(pg_temp.act('regress_idem we"ird; DROP', $$SELECT idem_once('k3')$$), 'true', 'it works');
SELECT ok(idem_revoke('regress_idem we"ird; DROP'), 'and is revoked');

-- Functions that run as another role.
SELECT is(
	ARRAY(SELECT f.oid::regprocedure::text FROM pg_proc AS f
		JOIN pg_depend AS d ON d.classid = 'pg_proc'::regclass AND d.objid = f.oid AND d.deptype = 'e'
		JOIN pg_extension AS e ON e.oid = d.refobjid AND e.extname = 'idem'
		WHERE f.prosecdef
		AND NOT coalesce('search_path=pg_catalog, pg_temp' = ANY (f.proconfig), false) ORDER BY 1),
	'{}', 'definer functions have a fixed search_path');
SELECT is(
	ARRAY(SELECT f.oid::regprocedure::text FROM pg_proc AS f
		JOIN pg_depend AS d ON d.classid = 'pg_proc'::regclass AND d.objid = f.oid AND d.deptype = 'e'
		JOIN pg_extension AS e ON e.oid = d.refobjid AND e.extname = 'idem',
		aclexplode(coalesce(f.proacl, acldefault('f', f.proowner))) AS a
		WHERE a.grantee = 0 ORDER BY 1),
	'{}', 'no function at all, trigger functions neither, is PUBLIC''s');

SELECT finish();
ROLLBACK;
