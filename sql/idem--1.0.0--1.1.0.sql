-- From 1.0.0 to 1.1.0.
--
-- What this makes of a database must equal what the parts sql/NN_name.sql make
-- of an empty one: each change of a part stands here a second time, in the
-- section of its family.  The test of updates compares the two catalogs.
--
-- CREATE OR REPLACE FUNCTION keeps owner and grants, but takes volatility,
-- cost, SET and SECURITY from the statement: they are stated in full.  Nothing
-- that a user's trigger, view or index may depend on is dropped.  A function
-- whose arguments or results change gets a new C symbol, so that sessions which
-- still have the old library get an error rather than an argument it does not
-- know; the old symbol stays in the library.  C functions that 1.0.0 had are
-- called NAME_1_1 in the library from here on (src/since.c).  The last section
-- gives new functions and relations their owners and grants.
-- Changes of comments follow as COMMENT ON.  View idem.version is made anew by every
-- update: that tells sessions to look at the version again.

\echo Use "ALTER EXTENSION idem UPDATE" to load this file. \quit


-- The library's version beside that of the objects.  A server that preloaded
-- the library of a former version has no such function in it.
DO $$
BEGIN
	CREATE FUNCTION idem_version()
		RETURNS pg_catalog.text
		LANGUAGE C STABLE STRICT PARALLEL SAFE
		AS 'MODULE_PATHNAME', 'idem_version';
EXCEPTION WHEN undefined_function THEN
	RAISE EXCEPTION 'the library of extension "idem" that is loaded is older than version 1.1.0'
		USING ERRCODE = 'ID500',
		DETAIL = 'The objects of version 1.1.0 need a library of the same version.',
		HINT = 'Connect again to load the library that is installed; restart the server if "idem" is preloaded; install version 1.1.0 if it is not on this server.';
END
$$;
COMMENT ON FUNCTION idem_version() IS
'The version of the library that this session has loaded.';

CREATE VIEW idem.version AS
	SELECT idem_version() AS library, e.extversion AS objects
	FROM pg_catalog.pg_extension AS e
	WHERE e.extname OPERATOR(pg_catalog.=) 'idem';
COMMENT ON VIEW idem.version IS
'The versions of the library and of the objects in this database. Where they differ, every verb and trigger is refused.';



-- The library of 1.0.0 asks for no version.  All that works with rows gets names
-- which it does not have, so that sessions which have it loaded are refused.
DO $$
DECLARE
	object pg_catalog.record;
BEGIN
	FOR object IN
		SELECT p.prosrc, pg_catalog.pg_get_functiondef(p.oid) AS definition
		FROM pg_catalog.pg_depend AS d
			JOIN pg_catalog.pg_proc AS p ON p.oid OPERATOR(pg_catalog.=) d.objid
			JOIN pg_catalog.pg_language AS l ON l.oid OPERATOR(pg_catalog.=) p.prolang
		WHERE d.classid OPERATOR(pg_catalog.=) 'pg_catalog.pg_proc'::pg_catalog.regclass
			AND d.refclassid OPERATOR(pg_catalog.=) 'pg_catalog.pg_extension'::pg_catalog.regclass
			AND d.refobjid OPERATOR(pg_catalog.=) (SELECT oid FROM pg_catalog.pg_extension
				WHERE extname OPERATOR(pg_catalog.=) 'idem')
			AND d.deptype OPERATOR(pg_catalog.=) 'e'
			AND l.lanname OPERATOR(pg_catalog.=) 'c'
			AND p.proname OPERATOR(pg_catalog.<>) ALL ('{idem_version,idem_canonical,idem_fingerprint,idem_stats,idem_stats_reset,idem_refusals,idem_sweep_progress,idem_claim_support,idem_not_initial_support,idem_each_row_support}')
	LOOP
		EXECUTE pg_catalog.replace(object.definition,
			'$function$' OPERATOR(pg_catalog.||) object.prosrc OPERATOR(pg_catalog.||) '$function$',
			pg_catalog.quote_literal(object.prosrc OPERATOR(pg_catalog.||) '_1_1'));
	END LOOP;
END
$$;


-- Registry: 20_fingerprint, 30_registry, 40_call, 45_once_table

COMMENT ON FUNCTION idem_wrap(pg_catalog.regprocedure, pg_catalog.text) IS
'Makes a typed twin of a function, owned by the caller: the key is its first parameter, the others and the result are the original''s, and a repeated key returns the first result. name: of the twin, in the function''s schema unless qualified, of a built-in function in the current schema; NULL: the function''s name and "_once". Returns the twin. Errors: ID400 function cannot be wrapped, 42501 no CREATE on the schema, 42723 name taken, 3F000 no current schema. Warns of defaults that are not constant: a retry has to pass them.';


-- Machines: 50_machine, 51_guard, 52_history, 53_fire, 54_timer

-- by idem_machine_check() from now on
ALTER TABLE idem.transition DROP CONSTRAINT transition_machine_to_state_fkey;
ALTER TABLE idem.state DROP CONSTRAINT state_machine_fkey;

COMMENT ON FUNCTION idem_allowed(pg_catalog.regclass, "any") IS
'What the current role could fire on a row now: events and where they lead, guards included; not those that only time fires. Takes no lock. Empty if the row is missing. Errors: ID400 bad argument, ID500 no machine.';

CREATE OR REPLACE VIEW idem.binding AS
SELECT pg_catalog.convert_from(args.machine, pg_catalog.getdatabaseencoding()) AS machine,
	t.tgrelid::pg_catalog.regclass AS table_name,
	a.attname AS column_name,
	options.options
FROM pg_catalog.pg_trigger AS t
	JOIN pg_catalog.pg_depend AS d
		ON d.classid OPERATOR(pg_catalog.=) 'pg_catalog.pg_trigger'::pg_catalog.regclass
		AND d.objid OPERATOR(pg_catalog.=) t.oid
		AND d.refclassid OPERATOR(pg_catalog.=) 'pg_catalog.pg_class'::pg_catalog.regclass
		AND d.refobjid OPERATOR(pg_catalog.=) t.tgrelid
		AND d.refobjsubid OPERATOR(pg_catalog.>) 0
	JOIN pg_catalog.pg_attribute AS a
		ON a.attrelid OPERATOR(pg_catalog.=) t.tgrelid
		AND a.attnum OPERATOR(pg_catalog.=) d.refobjsubid
	CROSS JOIN LATERAL (SELECT pg_catalog.position(t.tgargs, '\x00'::pg_catalog.bytea)) AS first (zero)
	CROSS JOIN LATERAL (SELECT
		pg_catalog.substring(t.tgargs, 1, first.zero OPERATOR(pg_catalog.-) 1),
		pg_catalog.substring(t.tgargs, first.zero OPERATOR(pg_catalog.+) 1)) AS args (machine, rest)
	CROSS JOIN LATERAL (SELECT pg_catalog.convert_from(
		pg_catalog.substring(args.rest, 1, pg_catalog.position(args.rest, '\x00'::pg_catalog.bytea) OPERATOR(pg_catalog.-) 1),
		pg_catalog.getdatabaseencoding())) AS given (options)
	-- in a trigger that was made by hand it may be anything
	CROSS JOIN LATERAL (SELECT CASE WHEN pg_catalog.regexp_replace(given.options,
			'"([^"\\\u0001-\u001f]|\\["\\bfnrt]|\\u00(0[1-9a-f]|1[0-9a-f]))*"', '""', 'g')
			OPERATOR(pg_catalog.~) '^\{("": (true|""|\[(""(, "")*)?\])(, "": (true|""|\[(""(, "")*)?\]))*)?\}$'
		THEN given.options::pg_catalog.jsonb END) AS options (options)
WHERE t.tgfoid OPERATOR(pg_catalog.=) 'idem_guard'::pg_catalog.regproc
	AND t.tgtype OPERATOR(pg_catalog.=) 19	-- before update of a row
	AND t.tgparentid OPERATOR(pg_catalog.=) 0::pg_catalog.oid
	AND t.tgnargs OPERATOR(pg_catalog.=) 4
	AND NOT pg_catalog.jsonb_exists(options.options, 'child');

ALTER TABLE idem.timer ADD COLUMN key_since pg_catalog.timestamptz;
COMMENT ON COLUMN idem.timer.key_since IS 'since when the row has its primary key, if it got that by an UPDATE while it was in the state: what idem.history tells of that key before is another row''s';
CREATE INDEX timer_row ON idem.timer (row_hash, table_schema, table_name);
DROP INDEX idem.timer_row_hash;
COMMENT ON TABLE idem.timer IS 'rows that are in a state which a timed transition leaves, one per row and event; written with idem.history, read by idem_tick(). A row without event stands for all rows of a table that were in such a state before';
COMMENT ON COLUMN idem.timer.table_schema IS 'schema of the table that the machine was attached to, or of its child that holds the row, as it was called then';
COMMENT ON COLUMN idem.timer.since IS 'when it did, or did in an earlier stay';
COMMENT ON FUNCTION idem_define(pg_catalog.text, pg_catalog.text, pg_catalog.jsonb) IS
'For operators: makes a machine what the text of a Mermaid state diagram says, or changes it to that; nothing is written if it is that already. moved: an object of states that go, or values that are no states, and the states that their rows move to, as the caller; history calls this event "migrate". Returns true. Errors: ID400 bad argument, ID500 malformed definition (with its line), a guard that does not fit an attached table, or rows are in a state that goes, 42501 not the machine''s owner, 42704 no such role.';
COMMENT ON FUNCTION idem_tick(pg_catalog.int4) IS
'For operators: fires timed transitions that are due, as the owners of their tables. max_rows: at most so many (NULL: no limit). Waits for no row. Gives timers to rows that were in the state before. Returns what it did: applied; moved, missing, obsolete (nothing to do any more, or made anew for the key that the table has now); guarded, error (tried again later, at growing intervals); refused (the table belongs to a superuser or to a role that is under its row security, or a partition to a stranger, or this session has temporary objects of a role that may not act as the owner). Errors: ID400 bad argument, ID500 called within itself.';

ALTER SEQUENCE idem.history_seq INCREMENT 32;
COMMENT ON SEQUENCE idem.history_seq IS 'numbers of the rows of idem.history; rows that are written together share a draw, as many as the increment says';

CREATE OR REPLACE VIEW idem.dwell AS
SELECT machine, state,
	pg_catalog.count(*) FILTER (WHERE until IS NULL) AS count,
	pg_catalog.percentile_cont(0.5) WITHIN GROUP (ORDER BY
		EXTRACT(epoch FROM until OPERATOR(pg_catalog.-) since)::pg_catalog.float8)
		FILTER (WHERE until IS NOT NULL) AS median,
	pg_catalog.percentile_cont(0.95) WITHIN GROUP (ORDER BY
		EXTRACT(epoch FROM until OPERATOR(pg_catalog.-) since)::pg_catalog.float8)
		FILTER (WHERE until IS NOT NULL) AS p95,
	pg_catalog.min(since) FILTER (WHERE until IS NULL) AS oldest
FROM (
	SELECT machine, to_state AS state, at AS since,
		pg_catalog.lead(at) OVER (PARTITION BY table_schema, table_name, row_key, machine,
			CASE WHEN single.name IS NULL THEN column_name END ORDER BY seq) AS until
	FROM idem.history
		LEFT JOIN (
			SELECT n.nspname, c.relname, b.machine
			FROM idem.binding AS b
				JOIN pg_catalog.pg_class AS c ON c.oid OPERATOR(pg_catalog.=) b.table_name
				JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
			GROUP BY n.nspname, c.relname, b.machine
			HAVING pg_catalog.count(*) OPERATOR(pg_catalog.=) 1
		) AS single (schema, name, of)
			ON single.schema::pg_catalog.text OPERATOR(pg_catalog.=) table_schema
			AND single.name::pg_catalog.text OPERATOR(pg_catalog.=) table_name
			AND single.of OPERATOR(pg_catalog.=) machine
) AS stay
GROUP BY machine, state;


-- Versions, tokens, leases, windows, branches: 58, 60, 62, 64, 66

COMMENT ON FUNCTION idem_rowversion() IS
'Trigger that idem_attach_version() makes: checks the version in the SET list and sets the next one; before an INSERT it gives a row that moves from another partition its version. Errors: ID412 stale version (40001 if retryable), ID428 version missing, ID500 another trigger fires later, 22003 no further version.';

COMMENT ON FUNCTION idem_detach_version(pg_catalog.regclass) IS
'Takes back idem_attach_version(); the column and its values stay. Only for the table''s owner. Returns true. Errors: ID400 no table given, ID500 table has no version, 42501 not the owner, 42809 its version was attached to a table above it.';

COMMENT ON FUNCTION idem_fence_check() IS
'Trigger that idem_attach_fence() makes, with the comparison in its condition; one before inserts gives a row that moves from another partition its fence. Errors: ID412 stale fence, ID500 another trigger fires later.';

COMMENT ON COLUMN idem.window_hit.expires_at IS 'when every hit has left the window that it was made in; then the row may be swept';


-- Sweeping and statistics: 80_sweep, 82_stats

COMMENT ON TABLE idem.sweep_state IS 'where the next sweep goes on, for each kind of record and in a form of its own; "first" is the number of the kind that it begins with';


-- Roles: idem_grant and idem_revoke of 90_grants

-- an error if one was dropped: made anew it would be the superuser's
ALTER FUNCTION idem_attach_fence(pg_catalog.regclass, pg_catalog.name) VOLATILE;
CREATE OR REPLACE FUNCTION idem_attach_fence(
	table_name pg_catalog.regclass,
	column_name pg_catalog.name
) RETURNS pg_catalog.bool
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
	SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	schema CONSTANT text := (SELECT extnamespace::regnamespace::text
		FROM pg_extension WHERE extname = 'idem');
	rel pg_class;
	tree regclass[];
	other name;
	col pg_attribute;
	number int := 1;
	name text;
	stale text;
	last text;
BEGIN
	IF table_name IS NULL OR column_name IS NULL THEN
		RAISE EXCEPTION 'argument "%" is missing', CASE WHEN table_name IS NULL
			THEN 'table_name' ELSE 'column_name' END USING ERRCODE = 'ID400';
	END IF;
	SELECT * INTO rel FROM pg_class WHERE oid = table_name;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'table does not exist' USING ERRCODE = 'undefined_table';
	END IF;
	IF NOT pg_has_role(rel.relowner, 'USAGE') THEN
		RAISE EXCEPTION 'must be owner of table %', rel.relname
			USING ERRCODE = 'insufficient_privilege';
	END IF;
	EXECUTE format('LOCK TABLE ONLY %s IN SHARE ROW EXCLUSIVE MODE', table_name);
	IF rel.relkind NOT IN ('r', 'p') OR rel.relispartition
		OR rel.relkind = 'r' AND rel.relhassubclass
		OR EXISTS (SELECT FROM pg_inherits WHERE inhrelid = rel.oid)
		OR rel.relnamespace IN ('idem'::regnamespace, 'pg_catalog'::regnamespace)
	THEN
		RAISE EXCEPTION 'a fence cannot be attached to "%"', rel.relname
			USING ERRCODE = 'wrong_object_type', TABLE = rel.relname,
			DETAIL = 'It must be a table of its own: no view, foreign table, partition, inheritance parent or child, and no table of idem or the system.',
			HINT = 'Attach it to the partitioned table for all of its partitions.';
	END IF;
	SELECT * INTO col FROM pg_attribute AS a
	WHERE a.attrelid = rel.oid AND a.attname = column_name AND NOT a.attisdropped;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'column "%" of table "%" does not exist',
			column_name, rel.relname USING ERRCODE = 'undefined_column';
	END IF;
	IF col.attnum < 0 OR col.attgenerated <> ''
		OR col.atttypid NOT IN ('int8'::regtype, 'int4'::regtype)
	THEN
		RAISE EXCEPTION 'column "%" cannot hold a fence', column_name
			USING ERRCODE = 'datatype_mismatch', TABLE = rel.relname,
			COLUMN = column_name,
			DETAIL = 'It must be of type bigint or integer, and not generated.';
	END IF;
	IF EXISTS (SELECT FROM pg_trigger AS t JOIN pg_depend AS d ON d.objid = t.oid
		WHERE t.tgrelid = rel.oid AND d.classid = 'pg_trigger'::regclass
		AND d.refclassid = 'pg_class'::regclass AND d.refobjid = rel.oid
		AND d.refobjsubid = col.attnum
		AND t.tgfoid = (schema || '.idem_fence_check()')::regprocedure)
	THEN
		RAISE EXCEPTION 'column "%" of table "%" is a fence already',
			column_name, rel.relname
			USING ERRCODE = 'duplicate_object', TABLE = rel.relname,
			COLUMN = column_name;
	END IF;
	tree := ARRAY(SELECT rel.oid UNION SELECT relid FROM pg_partition_tree(rel.oid));
	SELECT c.relname INTO other FROM pg_trigger AS t JOIN pg_depend AS d ON d.objid = t.oid
		JOIN pg_attribute AS a ON a.attrelid = t.tgrelid AND a.attnum = d.refobjsubid
		JOIN pg_class AS c ON c.oid = t.tgrelid
	WHERE t.tgrelid = ANY (tree) AND t.tgparentid = 0 AND a.attname = column_name
		AND d.classid = 'pg_trigger'::regclass
		AND d.refclassid = 'pg_class'::regclass AND d.refobjid = t.tgrelid
		AND t.tgfoid = (schema || '.idem_fence_check()')::regprocedure
	LIMIT 1;
	IF FOUND THEN
		RAISE EXCEPTION 'column "%" of partition "%" is a fence by itself',
			column_name, other USING ERRCODE = 'duplicate_object',
			TABLE = other, COLUMN = column_name,
			DETAIL = 'Triggers that idem_attach_fence() made are on it.',
			HINT = 'Call idem_detach_fence() for the partition first.';
	END IF;
	IF EXISTS (SELECT FROM pg_trigger AS t
		WHERE t.tgrelid = ANY (tree)
		AND t.tgfoid IN ((schema || '.idem_guard()')::regprocedure,
			(schema || '.idem_rowversion()')::regprocedure)
		AND strpos(pg_get_triggerdef(t.oid), format('%I.%I IS NOT NULL', 'new', column_name)) > 0)
	THEN
		RAISE EXCEPTION 'column "%" of table "%" cannot be a fence',
			column_name, rel.relname
			USING ERRCODE = 'duplicate_object', TABLE = rel.relname,
			COLUMN = column_name,
			DETAIL = 'It is the version of its row, or moved by a machine.',
			HINT = 'Give the fence a column of its own.';
	END IF;

	-- the names of other columns' triggers are left alone
	LOOP
		name := '~idem_fence' || CASE WHEN number > 1 THEN '_' || number ELSE '' END;
		EXIT WHEN NOT EXISTS (SELECT FROM pg_trigger AS t WHERE t.tgrelid = ANY (tree)
			AND t.tgname IN (name, name || '_final', name || '_moved'));
		number := number + 1;
	END LOOP;
	stale := format('NEW.%1$I OPERATOR(pg_catalog.<) OLD.%1$I OR NEW.%1$I IS NULL AND OLD.%1$I IS NOT NULL',
		column_name);
	EXECUTE format('CREATE TRIGGER %I BEFORE UPDATE ON %s FOR EACH ROW WHEN (%s) EXECUTE FUNCTION %s.idem_fence_check()',
		name, table_name, stale, schema);
	EXECUTE format('CREATE TRIGGER %I AFTER UPDATE ON %s FOR EACH ROW WHEN (%s) EXECUTE FUNCTION %s.idem_fence_check()',
		name || '_final', table_name, stale, schema);
	-- others of the partitions, which are locked by now, could lower the fence of a row that moves
	SELECT max(t.tgname::text COLLATE "C") INTO last
	FROM pg_partition_tree(rel.oid) AS p JOIN pg_trigger AS t ON t.tgrelid = p.relid
	WHERE (t.tgtype & 7 = 7 OR t.tgtype & 19 = 19 AND t.tgname > name) AND NOT EXISTS (SELECT FROM pg_depend AS d JOIN pg_extension AS e ON e.oid = d.refobjid
		WHERE d.classid = 'pg_proc'::regclass AND d.objid = t.tgfoid
		AND d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e' AND e.extname = 'idem');
	-- or one that this transaction's snapshot is too old to show
	IF last IS NOT NULL
		OR rel.relkind = 'p' AND current_setting('transaction_isolation') IN ('repeatable read', 'serializable')
	THEN
		name := name || '_moved';
		IF last > name COLLATE "C" THEN
			name := last || name;
			IF name::name::text <> name THEN
				RAISE EXCEPTION 'no trigger of table "%" could be the last one', rel.relname
					USING ERRCODE = 'ID500', TABLE = rel.relname,
					DETAIL = format('Trigger "%s" would fire after the fence was checked.', last),
					HINT = 'Give that trigger another name.';
			END IF;
		END IF;
		EXECUTE format('CREATE TRIGGER %I BEFORE INSERT OR UPDATE ON %s FOR EACH ROW WHEN (NEW.%I IS NOT NULL OR true) EXECUTE FUNCTION %s.idem_fence_check(''moved'')',
			name, table_name, column_name, schema);
	END IF;
	RETURN true;
END
$$;
COMMENT ON FUNCTION idem_attach_fence(pg_catalog.regclass, pg_catalog.name) IS
'Makes a column the fence of its row: an UPDATE that gives it a smaller fence than it has, or none, is refused (ID412). Only for the table''s owner. Returns true. Errors: ID400 bad argument, ID500 no trigger could be the last one, 42501 not the owner, 42703 no such column, 42710 column is a fence already, or the version or the state of its row, 42804 neither bigint nor integer, 42809 not a table of its own.';

ALTER FUNCTION idem_detach_fence(pg_catalog.regclass, pg_catalog.name) VOLATILE;
CREATE OR REPLACE FUNCTION idem_detach_fence(
	table_name pg_catalog.regclass,
	column_name pg_catalog.name
) RETURNS pg_catalog.bool
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
	SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	schema CONSTANT text := (SELECT extnamespace::regnamespace::text
		FROM pg_extension WHERE extname = 'idem');
	statement text;
	above name;
	found bool := false;
BEGIN
	IF table_name IS NULL OR column_name IS NULL THEN
		RAISE EXCEPTION 'argument "%" is missing', CASE WHEN table_name IS NULL
			THEN 'table_name' ELSE 'column_name' END USING ERRCODE = 'ID400';
	END IF;
	FOR statement IN
		SELECT DISTINCT format('DROP TRIGGER %I ON %s', t.tgname, table_name)
		FROM pg_trigger AS t JOIN pg_depend AS d ON d.objid = t.oid
		JOIN pg_attribute AS a ON a.attrelid = t.tgrelid AND a.attnum = d.refobjsubid
		WHERE t.tgrelid = table_name AND t.tgparentid = 0
		AND a.attname = column_name
		AND d.classid = 'pg_trigger'::regclass
		AND d.refclassid = 'pg_class'::regclass AND d.refobjid = t.tgrelid
		AND t.tgfoid = (schema || '.idem_fence_check()')::regprocedure
	LOOP
		EXECUTE statement;
		found := true;
	END LOOP;
	IF NOT found THEN
		SELECT c.relname INTO above FROM pg_partition_ancestors(table_name) AS p
			JOIN pg_class AS c ON c.oid = p.relid
			JOIN pg_trigger AS t ON t.tgrelid = c.oid JOIN pg_depend AS d ON d.objid = t.oid
			JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum = d.refobjsubid
		WHERE t.tgparentid = 0 AND a.attname = column_name
			AND d.classid = 'pg_trigger'::regclass
			AND d.refclassid = 'pg_class'::regclass AND d.refobjid = c.oid
			AND t.tgfoid = (schema || '.idem_fence_check()')::regprocedure
		LIMIT 1;
		IF above IS NOT NULL THEN
			RAISE EXCEPTION 'fence of table "%" was attached to a table above it',
				table_name USING ERRCODE = 'wrong_object_type',
				HINT = format('Detach it from table "%s".', above);
		END IF;
		RAISE EXCEPTION 'column "%" of table "%" is not a fence',
			column_name, table_name USING ERRCODE = 'ID500',
			HINT = 'idem_attach_fence() makes it one.';
	END IF;
	RETURN true;
END
$$;
COMMENT ON FUNCTION idem_detach_fence(pg_catalog.regclass, pg_catalog.name) IS
'Takes back idem_attach_fence(); the column and its values stay. Only for the table''s owner. Returns true. Errors: ID400 bad argument, ID500 column is not a fence, 42501 not the owner, 42809 it was attached to a table above it.';

ALTER FUNCTION idem_grant(pg_catalog.name, pg_catalog.text) VOLATILE;
CREATE OR REPLACE FUNCTION idem_grant(role pg_catalog.name, level pg_catalog.text DEFAULT 'app')
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


-- What is new belongs to whom it would after an installation.  Each thing is
-- named: an installer who is no superuser may have put functions of his own
-- into the extension, under any name.

DO $$
DECLARE
	new CONSTANT pg_catalog.regprocedure := 'idem_version()';
	-- not the extension's owner, who is the superuser after pg_upgrade
	installer CONSTANT pg_catalog.name := (SELECT pg_catalog.pg_get_userbyid(nspowner)
		FROM pg_catalog.pg_namespace WHERE nspname OPERATOR(pg_catalog.=) 'idem');
	maker CONSTANT pg_catalog.name := (SELECT pg_catalog.pg_get_userbyid(proowner)
		FROM pg_catalog.pg_proc
		WHERE oid OPERATOR(pg_catalog.=) 'idem_catalog_changed()'::pg_catalog.regprocedure);
BEGIN
	-- a call could take another's for ours
	IF EXISTS (SELECT FROM pg_catalog.pg_proc AS p
			JOIN pg_catalog.pg_proc AS ours USING (pronamespace, proname)
		WHERE ours.oid OPERATOR(pg_catalog.=) new AND p.oid OPERATOR(pg_catalog.<>) new)
	THEN
		RAISE EXCEPTION 'schema "%" already holds a function named "idem_version"', pg_catalog.current_schema()
			USING ERRCODE = 'duplicate_object',
			DETAIL = 'Names that begin with "idem_" belong to the extension.',
			HINT = 'Remove or rename it, then update again.';
	END IF;

	-- owners come first: who granted is remembered for pg_dump
	EXECUTE pg_catalog.format('ALTER FUNCTION %s OWNER TO %I', new, maker);
	EXECUTE pg_catalog.format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', new);
	EXECUTE pg_catalog.format('GRANT EXECUTE ON FUNCTION %s TO %I WITH GRANT OPTION', new, installer);
	EXECUTE pg_catalog.format('ALTER VIEW idem.version OWNER TO %I', installer);
	-- where it was dropped before
	EXECUTE pg_catalog.format('ALTER VIEW idem.dwell OWNER TO %I', installer);
	EXECUTE pg_catalog.format('ALTER VIEW idem.binding OWNER TO %I', installer);
END
$$;
