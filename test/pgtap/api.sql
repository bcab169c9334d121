-- The shape of the public functions: names, arguments, defaults, results,
-- volatility, parallel safety, strictness, comments.
BEGIN;
SET client_min_messages = warning;
SET search_path = public;
CREATE EXTENSION pgtap;
CREATE EXTENSION idem;

SELECT no_plan();

CREATE TEMP TABLE expected (
	name text, args text, result text, volatile "char", parallel "char", strict boolean
);
INSERT INTO expected VALUES
('idem_lease_acquire', 'name text, lease interval, wait interval DEFAULT ''00:00:00''::interval, owner text DEFAULT NULL::text', 'idem_lease_acquired', 'v', 'u', false),
('idem_lease_renew', 'name text, lease interval, fence bigint', 'idem_lease_renewed', 'v', 'u', false),
('idem_lease_release', 'name text, fence bigint', 'text', 'v', 'u', false),
('idem_lease_guard', 'name text, fence bigint', 'boolean', 'v', 'u', false),
('idem_lease_break', 'name text', 'boolean', 'v', 'u', false),
('idem_attach_fence', 'table_name regclass, column_name name', 'boolean', 'v', 'u', false),
('idem_detach_fence', 'table_name regclass, column_name name', 'boolean', 'v', 'u', false),
('idem_fence_check', '', 'trigger', 'v', 'u', false),
('idem_version', '', 'text', 's', 's', true),
('idem_key', '', 'text', 's', 's', false),
('idem_claim', 'key text DEFAULT idem_key(), request jsonb DEFAULT NULL::jsonb, scope text DEFAULT NULL::text, hold text DEFAULT NULL::text, lease interval DEFAULT NULL::interval, ttl interval DEFAULT NULL::interval, wait interval DEFAULT NULL::interval', 'idem_claimed', 'v', 'u', false),
('idem_complete', 'key text DEFAULT idem_key(), response text DEFAULT NULL::text, scope text DEFAULT NULL::text, fence bigint DEFAULT NULL::bigint, code integer DEFAULT NULL::integer', 'boolean', 'v', 'u', false),
('idem_complete', 'key text, response json, scope text DEFAULT NULL::text, fence bigint DEFAULT NULL::bigint, code integer DEFAULT NULL::integer', 'boolean', 'v', 'u', false),
('idem_complete', 'key text, response jsonb, scope text DEFAULT NULL::text, fence bigint DEFAULT NULL::bigint, code integer DEFAULT NULL::integer', 'boolean', 'v', 'u', false),
('idem_fail', 'key text DEFAULT idem_key(), error text DEFAULT NULL::text, scope text DEFAULT NULL::text, fence bigint DEFAULT NULL::bigint, code integer DEFAULT NULL::integer', 'boolean', 'v', 'u', false),
('idem_retry', 'key text DEFAULT idem_key(), error text DEFAULT NULL::text, scope text DEFAULT NULL::text, fence bigint DEFAULT NULL::bigint, after interval DEFAULT NULL::interval', 'boolean', 'v', 'u', false),
('idem_release', 'key text DEFAULT idem_key(), scope text DEFAULT NULL::text, fence bigint DEFAULT NULL::bigint', 'boolean', 'v', 'u', false),
('idem_renew', 'key text DEFAULT idem_key(), lease interval DEFAULT NULL::interval, scope text DEFAULT NULL::text, fence bigint DEFAULT NULL::bigint', 'timestamp with time zone', 'v', 'u', false),
('idem_step', 'key text DEFAULT idem_key(), step text DEFAULT NULL::text, progress jsonb DEFAULT NULL::jsonb, scope text DEFAULT NULL::text, fence bigint DEFAULT NULL::bigint', 'boolean', 'v', 'u', false),
('idem_lookup', 'key text DEFAULT idem_key(), scope text DEFAULT NULL::text', NULL, 'v', 'u', false),
('idem_once', 'key text, scope text DEFAULT NULL::text, ttl interval DEFAULT NULL::interval', 'boolean', 'v', 'u', false),
('idem_once_many', 'keys text[], scope text DEFAULT NULL::text, ttl interval DEFAULT NULL::interval', 'SETOF text', 'v', 'u', false),
('idem_unfinished', '', NULL, 'v', 'u', false),
('idem_forget', 'key text, scope text DEFAULT NULL::text, force boolean DEFAULT false', 'boolean', 'v', 'u', false),
('idem_reopen', 'key text, scope text DEFAULT NULL::text', 'boolean', 'v', 'u', false),
('idem_import', 'key text, response text DEFAULT NULL::text, scope text DEFAULT NULL::text, created_at timestamp with time zone DEFAULT NULL::timestamp with time zone, ttl interval DEFAULT NULL::interval', 'boolean', 'v', 'u', false),
('idem_import_many', 'keys text[], responses text[] DEFAULT NULL::text[], scope text DEFAULT NULL::text, created_at timestamp with time zone DEFAULT NULL::timestamp with time zone, ttl interval DEFAULT NULL::interval', 'bigint', 'v', 'u', false),
('idem_fence_advance', 'n bigint', 'bigint', 'v', 'u', false),
('idem_attach_once', 'table_name regclass, columns name[], scope text DEFAULT NULL::text, ttl interval DEFAULT NULL::interval', 'boolean', 'v', 'u', false),
('idem_detach_once', 'table_name regclass', 'boolean', 'v', 'u', false),
('idem_claim_key', 'key text', 'idem_claimed', 'v', 'u', false),
('idem_token_issue', 'purpose text, subject text DEFAULT NULL::text, request jsonb DEFAULT NULL::jsonb, ttl interval DEFAULT ''00:15:00''::interval, replace boolean DEFAULT false', 'text', 'v', 'u', false),
('idem_token_use', 'token text, purpose text, subject text DEFAULT NULL::text, request jsonb DEFAULT NULL::jsonb', 'text', 'v', 'u', false),
('idem_token_peek', 'token text, purpose text, subject text DEFAULT NULL::text, request jsonb DEFAULT NULL::jsonb', 'text', 'v', 'u', false),
('idem_branch', 'saga text, branch text, op text, seq integer DEFAULT 1', 'text', 'v', 'u', false),
('idem_sweep', 'max_rows integer DEFAULT 10000, budget interval DEFAULT NULL::interval', NULL, 'v', 'u', false),
('idem_stats', '', NULL, 'v', 's', false),
('idem_stats_reset', '', 'boolean', 'v', 'u', false),
('idem_refusals', '', NULL, 'v', 's', false),
('idem_sweep_progress', '', NULL, 'v', 's', false),
('idem_grant', 'role name, level text DEFAULT ''app''::text', 'boolean', 'v', 'u', false),
('idem_revoke', 'role name', 'boolean', 'v', 'u', false),
('idem_canonical', 'document jsonb', 'text', 'i', 's', true),
('idem_fingerprint', 'document jsonb', 'text', 'i', 's', true),
('idem_child', 'key text, name text, scope text DEFAULT NULL::text', 'text', 's', 'u', false),
('idem_call', 'key text, function regprocedure, args jsonb DEFAULT ''{}''::jsonb, scope text DEFAULT NULL::text, ttl interval DEFAULT NULL::interval, wait interval DEFAULT NULL::interval', 'json', 'v', 'u', false),
('idem_twin_value', 'function text, key text, result anyelement', 'anyelement', 'v', 'u', false),
('idem_twin_value', 'function text, key text, result anyelement, VARIADIC args "any"', 'anyelement', 'v', 'u', false),
('idem_wrap', 'function regprocedure, name text DEFAULT NULL::text', 'regprocedure', 'v', 'u', false),
('idem_twin', 'function text, key text', NULL, 'v', 'u', false),
('idem_twin', 'function text, key text, VARIADIC args "any"', NULL, 'v', 'u', false),
('idem_define', 'machine text, definition text, moved jsonb DEFAULT NULL::jsonb', 'boolean', 'v', 'u', false),
('idem_diagram', 'machine text, format text DEFAULT ''mermaid''::text, counts boolean DEFAULT false', 'text', 'v', 'u', false),
('idem_lint', 'machine text', NULL, 'v', 'u', false),
('idem_export', '', 'SETOF text', 'v', 'u', false),
('idem_machine_check', '', 'trigger', 'v', 'u', false),
('idem_catalog_changed', '', 'trigger', 'v', 'u', false),
('idem_attach', 'machine text, table_name regclass, column_name name, history boolean DEFAULT false, events_only boolean DEFAULT false, on_delete text DEFAULT ''any''::text, exempt name[] DEFAULT NULL::name[], accept_existing boolean DEFAULT false, validate boolean DEFAULT true, mode text DEFAULT ''enforce''::text, keep interval DEFAULT NULL::interval', 'boolean', 'v', 'u', false),
('idem_detach', 'table_name regclass, column_name name', 'boolean', 'v', 'u', false),
('idem_not_initial', 'value "any", machine text', 'boolean', 's', 'u', false),
('idem_each_row', 'value "any", table_name regclass', 'boolean', 's', 'u', false),
('idem_attach_version', 'table_name regclass, column_name name, mode text DEFAULT ''read''::text, strict boolean DEFAULT false, retryable boolean DEFAULT false, ignore name[] DEFAULT NULL::name[]', 'boolean', 'v', 'u', false),
('idem_detach_version', 'table_name regclass', 'boolean', 'v', 'u', false),
('idem_fire', 'table_name regclass, id "any", event text, version bigint DEFAULT NULL::bigint, key text DEFAULT NULL::text, context jsonb DEFAULT NULL::jsonb, machine text DEFAULT NULL::text', 'idem_fired', 'v', 'u', false),
('idem_fire', 'table_name regclass, id text, event text, version bigint DEFAULT NULL::bigint, key text DEFAULT NULL::text, context jsonb DEFAULT NULL::jsonb, machine text DEFAULT NULL::text', 'idem_fired', 'v', 'u', false),
('idem_try_fire', 'table_name regclass, id "any", event text, version bigint DEFAULT NULL::bigint, key text DEFAULT NULL::text, context jsonb DEFAULT NULL::jsonb, machine text DEFAULT NULL::text', 'idem_fired', 'v', 'u', false),
('idem_try_fire', 'table_name regclass, id text, event text, version bigint DEFAULT NULL::bigint, key text DEFAULT NULL::text, context jsonb DEFAULT NULL::jsonb, machine text DEFAULT NULL::text', 'idem_fired', 'v', 'u', false),
('idem_fire_many', 'table_name regclass, ids anyarray, event text, version bigint DEFAULT NULL::bigint, key text DEFAULT NULL::text, context jsonb DEFAULT NULL::jsonb, machine text DEFAULT NULL::text', NULL, 'v', 'u', false),
('idem_fire_many', 'table_name regclass, ids text, event text, version bigint DEFAULT NULL::bigint, key text DEFAULT NULL::text, context jsonb DEFAULT NULL::jsonb, machine text DEFAULT NULL::text', NULL, 'v', 'u', false),
('idem_allowed', 'table_name regclass, id "any"', NULL, 's', 'u', false),
('idem_why_not', 'table_name regclass, id "any", event text', 'text', 's', 'u', false),
('idem_history', 'table_name regclass, id "any"', NULL, 's', 'u', false),
('idem_allowed', 'table_name regclass, id text', NULL, 's', 'u', false),
('idem_why_not', 'table_name regclass, id text, event text', 'text', 's', 'u', false),
('idem_history', 'table_name regclass, id text', NULL, 's', 'u', false),
('idem_tick', 'max_rows integer DEFAULT 1000', NULL, 'v', 'u', false),
('idem_window', 'key text, span interval, scope text DEFAULT NULL::text, max integer DEFAULT 1, wait interval DEFAULT NULL::interval', 'idem_windowed', 'v', 'u', false),
('idem_update', 'table_name regclass, id "any", version bigint, changes jsonb', 'idem_versioned', 'v', 'u', false),
('idem_update', 'table_name regclass, id text, version bigint, changes jsonb', 'idem_versioned', 'v', 'u', false),
('idem_delete', 'table_name regclass, id "any", version bigint', 'idem_versioned', 'v', 'u', false),
('idem_delete', 'table_name regclass, id text, version bigint', 'idem_versioned', 'v', 'u', false);

-- What pg_proc says, in the same words.  A result that is a row is looked at below.
CREATE TEMP VIEW actual AS
SELECT f.proname::text AS name,
	regexp_replace(pg_get_function_arguments(f.oid), '(, )?OUT .*', '') AS args,
	CASE WHEN f.proretset AND f.prorettype <> 'text'::regtype THEN NULL
		ELSE pg_get_function_result(f.oid) END AS result,
	f.provolatile AS volatile, f.proparallel AS parallel, f.proisstrict AS strict, f.oid
FROM pg_proc AS f
WHERE f.pronamespace = 'public'::regnamespace AND f.proname LIKE 'idem\_%';

SELECT set_eq(
	format($$SELECT args, result, volatile, parallel, strict FROM actual WHERE name = %L$$, name),
	format($$SELECT args, result, volatile, parallel, strict FROM expected WHERE name = %L$$, name),
	name || ' has the declared shape')
FROM (SELECT DISTINCT name FROM expected) AS e ORDER BY name;

-- Result rows.
CREATE TEMP VIEW claim AS SELECT * FROM idem_claim('k');
CREATE TEMP VIEW lookup AS SELECT * FROM idem_lookup('k');
CREATE TEMP VIEW unfinished AS SELECT * FROM idem_unfinished();
CREATE TEMP VIEW lease_acquired AS SELECT * FROM idem_lease_acquire('k', '1 h');
CREATE TEMP VIEW lease_renewed AS SELECT * FROM idem_lease_renew('k', '1 h', 1);
CREATE TEMP VIEW windowed AS SELECT * FROM idem_window('k', '1 s');
CREATE TEMP VIEW versioned AS SELECT * FROM idem_update('pg_class', 'a', 1, '{}');
CREATE TEMP VIEW fired AS SELECT * FROM idem_fire('pg_class', 'a', 'e');
CREATE TEMP VIEW fired_many AS SELECT * FROM idem_fire_many('pg_class', '{a}', 'e');
CREATE TEMP VIEW allowed AS SELECT * FROM idem_allowed('pg_class', 'a');
CREATE TEMP VIEW tick AS SELECT * FROM idem_tick();
CREATE TEMP VIEW sweep AS SELECT * FROM idem_sweep();
CREATE FUNCTION pg_temp.columns(relation text) RETURNS text LANGUAGE sql AS $$
	SELECT string_agg(attname || ' ' || format_type(atttypid, atttypmod), ', ' ORDER BY attnum)
	FROM pg_attribute WHERE attrelid = relation::regclass AND attnum > 0 AND NOT attisdropped
$$;
SELECT is(pg_temp.columns('claim'),
	'run boolean, outcome text, attempt integer, fence bigint, step text, progress jsonb, response text, code integer, retry_after integer, expires_at timestamp with time zone',
	'columns of idem_claim');
SELECT is(pg_temp.columns('lookup'),
	'outcome text, attempt integer, step text, progress jsonb, response text, code integer, created_at timestamp with time zone, finished_at timestamp with time zone, expires_at timestamp with time zone',
	'columns of idem_lookup');
SELECT is(pg_temp.columns('unfinished'), 'scope text, key text', 'columns of idem_unfinished');
SELECT is(pg_temp.columns('lease_acquired'),
	'run boolean, outcome text, fence bigint, until timestamp with time zone, retry_after integer',
	'columns of idem_lease_acquire');
SELECT is(pg_temp.columns('lease_renewed'), 'outcome text, until timestamp with time zone', 'columns of idem_lease_renew');
SELECT is(pg_temp.columns('windowed'), 'allowed boolean, count integer, retry_after integer', 'columns of idem_window');
SELECT is(pg_temp.columns('versioned'), 'outcome text, version bigint, current jsonb', 'columns of idem_update');
SELECT is(pg_temp.columns('fired'), 'outcome text, from_state text, to_state text, version bigint', 'columns of idem_fire');
SELECT is(pg_temp.columns('fired_many'), 'id text, outcome text, from_state text, to_state text, version bigint', 'columns of idem_fire_many');
SELECT is(pg_temp.columns('allowed'), 'event text, to_state text', 'columns of idem_allowed');
SELECT is(pg_temp.columns('tick'), 'table_name text, row_key jsonb, event text, outcome text', 'columns of idem_tick');
SELECT is(pg_temp.columns('idem.history'), 'seq bigint, table_schema text, table_name text, column_name text, row_key jsonb, machine text, event text, from_state text, to_state text, version bigint, role_name text, actor text, key text, context jsonb, at timestamp with time zone, expires_at timestamp with time zone, row_hash bigint', 'columns of idem.history');
SELECT is(pg_temp.columns('sweep'), 'kind text, removed bigint', 'columns of idem_sweep');

-- Everything public is commented.
SELECT is(
	ARRAY(SELECT oid::regprocedure::text FROM actual
		WHERE obj_description(oid, 'pg_proc') IS NULL ORDER BY 1),
	'{}', 'every function has a comment');
SELECT is(
	ARRAY(SELECT relname::text FROM pg_class
		WHERE relnamespace = 'idem'::regnamespace AND relkind IN ('r', 'p', 'v', 'S')
		AND obj_description(oid, 'pg_class') IS NULL ORDER BY 1),
	'{}', 'every table, view and sequence has a comment');
SELECT is(
	ARRAY(SELECT typname::text FROM pg_type
		WHERE typnamespace = 'public'::regnamespace AND typname LIKE 'idem\_%'
		AND obj_description(oid, 'pg_type') IS NULL ORDER BY 1),
	'{}', 'every type has a comment');
SELECT isnt(obj_description('idem'::regnamespace, 'pg_namespace'), NULL, 'the schema has a comment');

-- No function returns void or an interval, and no two differ only in scalar
-- against array.
SELECT is(
	ARRAY(SELECT DISTINCT a.name FROM actual AS a JOIN pg_proc AS f USING (oid)
		WHERE f.prorettype = 'void'::regtype
		OR 'interval'::regtype = f.prorettype
		OR 'interval'::regtype = ANY (
			SELECT t FROM unnest(f.proallargtypes, f.proargmodes) AS x (t, m)
			WHERE m IN ('o', 't', 'b'))
		ORDER BY 1),
	'{}', 'no result is void or an interval');
SELECT is(
	ARRAY(SELECT a.oid::regprocedure::text
		FROM actual AS a JOIN pg_proc AS f USING (oid), actual AS b JOIN pg_proc AS g USING (oid)
		WHERE a.name = b.name AND f.pronargs > 0 AND g.pronargs > 0
		AND (SELECT typarray FROM pg_type WHERE oid = f.proargtypes[0]) = g.proargtypes[0]),
	'{}', 'no overload takes an array for a scalar');

-- C symbols are named as the functions.
SELECT is(
	ARRAY(SELECT DISTINCT f.proname || ' ' || f.prosrc FROM actual AS a JOIN pg_proc AS f USING (oid)
		JOIN pg_language AS l ON l.oid = f.prolang
		WHERE l.lanname = 'c' AND f.prosrc NOT LIKE f.proname || '%' ORDER BY 1),
	'{}', 'C symbols carry the functions'' names');

SELECT is((SELECT boot_val FROM pg_settings WHERE name = 'idem.access'), 'auto', 'idem.access is auto by default');
SELECT is(coalesce(current_setting('idem.key', true), ''), '', 'idem.key is empty by default');
SELECT is(coalesce(current_setting('idem.scope', true), ''), '', 'idem.scope is empty by default');
SELECT is(current_setting('idem.declared_scopes'), 'off', 'idem.declared_scopes is off by default');
SELECT is(
	(SELECT string_agg(name || ' ' || context, ', ' ORDER BY name) FROM pg_settings
	 WHERE name IN ('idem.access', 'idem.key', 'idem.scope')),
	'idem.access superuser, idem.key user, idem.scope user', 'who may set what');

SELECT finish();
ROLLBACK;
