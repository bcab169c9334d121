-- Who may do what.
--
-- Everything belongs to the installing role, who after a trusted installation
-- is not the superuser that runs this script: schema, tables and sequences are
-- his, and he may grant every function.  idem_grant() and idem_revoke() are
-- his too and run as him, so that what one grants the other revokes, whoever
-- calls them.

CREATE FUNCTION idem_grant(role pg_catalog.name, level pg_catalog.text DEFAULT 'app')
	RETURNS pg_catalog.bool
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
	SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	app CONSTANT text[] := ARRAY[
		'idem_version', 'idem_key', 'idem_claim', 'idem_claim_key', 'idem_complete',
		'idem_fail', 'idem_retry', 'idem_release', 'idem_renew', 'idem_step',
		'idem_unfinished', 'idem_lookup', 'idem_once', 'idem_once_many',
		'idem_canonical', 'idem_fingerprint', 'idem_child',
		'idem_call', 'idem_twin', 'idem_twin_value', 'idem_wrap', 'idem_window',
		'idem_token_issue', 'idem_token_use', 'idem_token_peek',
		'idem_branch',
		'idem_update', 'idem_delete',
		'idem_diagram', 'idem_lint',
		'idem_history', 'idem_fire', 'idem_try_fire', 'idem_fire_many',
		'idem_allowed', 'idem_why_not',
		'idem_lease_acquire', 'idem_lease_renew', 'idem_lease_release',
		'idem_lease_guard'];
	operator CONSTANT text[] := ARRAY[
		'idem_forget', 'idem_reopen', 'idem_import', 'idem_import_many',
		'idem_fence_advance', 'idem_sweep',
		'idem_define', 'idem_export',
		'idem_attach', 'idem_detach', 'idem_verify', 'idem_guard', 'idem_not_initial', 'idem_each_row',
		'idem_history_changed', 'idem_tick',
		'idem_attach_once', 'idem_detach_once', 'idem_once_row',
		'idem_attach_version', 'idem_detach_version', 'idem_rowversion',
		'idem_lease_break', 'idem_attach_fence', 'idem_detach_fence',
		'idem_fence_check',
		'idem_stats', 'idem_stats_reset', 'idem_refusals', 'idem_sweep_progress'];
	types CONSTANT text[] := ARRAY[
		'idem_claimed', 'idem_windowed', 'idem_inserted', 'idem_versioned',
		'idem_lease_acquired', 'idem_lease_renewed',
		'idem_fired', 'idem_fired_row'];
	readable CONSTANT text[] := ARRAY[
		'held', 'scope', 'binding', 'history', 'dwell', 'timer', 'lease_held', 'branch', 'version'];
	writable CONSTANT text[] := ARRAY[
		'machine', 'state', 'transition'];
	name text;
	target regnamespace;
	statement text;
BEGIN
	IF level IS NULL OR level NOT IN ('app', 'operator') THEN
		RAISE EXCEPTION 'invalid value for argument "level"'
			USING ERRCODE = 'ID400',
			HINT = 'Available levels are "app" and "operator".';
	END IF;
	IF role IS NULL THEN
		RAISE EXCEPTION 'argument "role" is missing' USING ERRCODE = 'ID400';
	END IF;
	-- GRANT would take "public" for everybody
	IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = role) THEN
		RAISE EXCEPTION 'role "%" does not exist', role
			USING ERRCODE = 'undefined_object',
			HINT = CASE WHEN lower(role) = 'public'
				THEN 'idem is not granted to everybody: name a role.'
				ELSE 'Its name is taken literally, without quotes; upper case counts.' END;
	END IF;

	SELECT extnamespace INTO target FROM pg_extension WHERE extname = 'idem';
	IF NOT has_schema_privilege(role, target, 'USAGE') THEN
		EXECUTE format('GRANT USAGE ON SCHEMA %s TO %I', target, role);
	END IF;

	FOR statement IN
		SELECT format('GRANT EXECUTE ON FUNCTION %s TO %I',
				p.oid::regprocedure, role)
		FROM pg_depend d JOIN pg_proc p ON p.oid = d.objid
		WHERE d.classid = 'pg_proc'::regclass
			AND d.refclassid = 'pg_extension'::regclass
			AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'idem')
			AND d.deptype = 'e'
			AND (p.proname = ANY (app)
				OR level = 'operator' AND p.proname = ANY (operator))
	LOOP
		EXECUTE statement;
	END LOOP;
	FOREACH name IN ARRAY types LOOP
		EXECUTE format('GRANT USAGE ON TYPE %s.%I TO %I', target, name, role);
	END LOOP;

	IF level = 'operator' THEN
		EXECUTE format('GRANT USAGE ON SCHEMA idem TO %I', role);
		FOREACH name IN ARRAY readable LOOP
			EXECUTE format('GRANT SELECT ON idem.%I TO %I', name, role);
		END LOOP;
		FOREACH name IN ARRAY writable LOOP
			EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON idem.%I TO %I',
				name, role);
		END LOOP;
	END IF;
	RETURN true;
END
$$;
COMMENT ON FUNCTION idem_grant(pg_catalog.name, pg_catalog.text) IS
'Lets a role use idem. level: app (the verbs of daily work) or operator (those, and forget, reopen, import, fence_advance, sweep, attach and the views). Only adds. Returns true. Errors: ID400 bad level, 42704 no such role.';

CREATE FUNCTION idem_revoke(role pg_catalog.name)
	RETURNS pg_catalog.bool
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
	SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	statement text;
BEGIN
	IF role IS NULL THEN
		RAISE EXCEPTION 'argument "role" is missing' USING ERRCODE = 'ID400';
	END IF;
	IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = role) THEN
		RAISE EXCEPTION 'role "%" does not exist', role
			USING ERRCODE = 'undefined_object';
	END IF;

	FOR statement IN
		SELECT CASE d.classid
			WHEN 'pg_proc'::regclass THEN
				format('REVOKE ALL ON FUNCTION %s FROM %I',
					d.objid::regprocedure, role)
			WHEN 'pg_type'::regclass THEN
				format('REVOKE ALL ON TYPE %s FROM %I',
					d.objid::regtype, role)
			WHEN 'pg_namespace'::regclass THEN
				format('REVOKE ALL ON SCHEMA %s FROM %I',
					d.objid::regnamespace, role)
			WHEN 'pg_class'::regclass THEN
				format('REVOKE ALL ON %s %s FROM %I',
					CASE (SELECT relkind FROM pg_class WHERE oid = d.objid)
						WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END,
					d.objid::regclass, role)
			END
		FROM pg_depend d
		WHERE d.refclassid = 'pg_extension'::regclass
			AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'idem')
			AND d.deptype = 'e'
			AND d.classid IN ('pg_proc'::regclass, 'pg_type'::regclass,
				'pg_namespace'::regclass, 'pg_class'::regclass)
			AND (d.classid <> 'pg_class'::regclass
				OR (SELECT relkind FROM pg_class WHERE oid = d.objid)
					IN ('r', 'v', 'S'))
			AND (d.classid <> 'pg_type'::regclass
				OR (SELECT typname FROM pg_type WHERE oid = d.objid) LIKE 'idem\_%')
	LOOP
		EXECUTE statement;
	END LOOP;
	RETURN true;
END
$$;
COMMENT ON FUNCTION idem_revoke(pg_catalog.name) IS
'Takes back all that idem_grant() gave a role, but the use of the schema that the functions are in. Returns true. Errors: 42704 no such role.';

SELECT pg_catalog.pg_extension_config_dump('idem.key', '');
SELECT pg_catalog.pg_extension_config_dump('idem.scope', '');
SELECT pg_catalog.pg_extension_config_dump('idem.window_hit', '');
SELECT pg_catalog.pg_extension_config_dump('idem.fence', '');
SELECT pg_catalog.pg_extension_config_dump('idem.machine', '');
SELECT pg_catalog.pg_extension_config_dump('idem.state', '');
SELECT pg_catalog.pg_extension_config_dump('idem.transition', '');
SELECT pg_catalog.pg_extension_config_dump('idem.history', '');
SELECT pg_catalog.pg_extension_config_dump('idem.history_seq', '');
SELECT pg_catalog.pg_extension_config_dump('idem.timer', '');
SELECT pg_catalog.pg_extension_config_dump('idem.token', '');
SELECT pg_catalog.pg_extension_config_dump('idem.branch', '');
SELECT pg_catalog.pg_extension_config_dump('idem.lease', '');

DO $$
DECLARE
	extension pg_catalog.oid;
	installer pg_catalog.name;
	former pg_catalog.text := pg_catalog.current_setting('search_path');
	object pg_catalog.record;
BEGIN
	PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);

	SELECT e.oid, r.rolname INTO extension, installer
	FROM pg_extension e JOIN pg_roles r ON r.oid = e.extowner
	WHERE e.extname = 'idem';

	FOR object IN
		SELECT objid::regprocedure AS name FROM pg_depend
		WHERE classid = 'pg_proc'::regclass
			AND refclassid = 'pg_extension'::regclass
			AND refobjid = extension AND deptype = 'e'
	LOOP
		EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', object.name);
		EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %I WITH GRANT OPTION',
			object.name, installer);
	END LOOP;

	FOR object IN
		SELECT t.oid::regtype AS name
		FROM pg_depend d JOIN pg_type t ON t.oid = d.objid
		WHERE d.classid = 'pg_type'::regclass
			AND d.refclassid = 'pg_extension'::regclass
			AND d.refobjid = extension AND d.deptype = 'e'
			AND t.typname LIKE 'idem\_%'
	LOOP
		EXECUTE format('REVOKE ALL ON TYPE %s FROM PUBLIC', object.name);
		EXECUTE format('GRANT USAGE ON TYPE %s TO %I WITH GRANT OPTION',
			object.name, installer);
	END LOOP;

	FOR object IN
		SELECT objid::regprocedure AS name FROM pg_depend
		WHERE classid = 'pg_proc'::regclass
			AND refclassid = 'pg_extension'::regclass
			AND refobjid = extension AND deptype = 'e'
			AND objid IN (SELECT oid FROM pg_proc
				WHERE proname IN ('idem_grant', 'idem_revoke'))
	LOOP
		EXECUTE format('ALTER FUNCTION %s OWNER TO %I', object.name, installer);
	END LOOP;

	EXECUTE format('ALTER SCHEMA idem OWNER TO %I', installer);
	FOR object IN
		SELECT c.oid::regclass AS name,
			CASE c.relkind WHEN 'S' THEN 'SEQUENCE' WHEN 'v' THEN 'VIEW'
				ELSE 'TABLE' END AS kind
		FROM pg_class c
		WHERE c.relnamespace = 'idem'::regnamespace AND c.relkind IN ('r', 'v', 'S')
	LOOP
		EXECUTE format('ALTER %s %s OWNER TO %I',
			object.kind, object.name, installer);
	END LOOP;

	PERFORM set_config('search_path', former, true);
END
$$;
