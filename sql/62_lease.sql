-- Leases: who may work on something, until when, and with which fence.

-- Room on the page for the versions of a minute of renewals.
CREATE TABLE idem.lease (
	name pg_catalog.text COLLATE pg_catalog."C" PRIMARY KEY,
	owner pg_catalog.text COLLATE pg_catalog."C",
	fence pg_catalog.int8 NOT NULL,
	since pg_catalog.timestamptz NOT NULL,
	until pg_catalog.timestamptz NOT NULL,
	released pg_catalog.bool NOT NULL
) WITH (fillfactor = 30);
-- A name that were compressed or moved out would look changed to an update,
-- which then would lock the row as if it was taken over.
ALTER TABLE idem.lease ALTER COLUMN name SET STORAGE PLAIN;
COMMENT ON TABLE idem.lease IS 'one row per lease that is or was held; written by the idem_lease verbs only';
COMMENT ON COLUMN idem.lease.owner IS 'who asked for it, as told; NULL: not told, or released';
COMMENT ON COLUMN idem.lease.fence IS 'number of the latest grant, greater for each later one';
COMMENT ON COLUMN idem.lease.since IS 'when it was granted';
COMMENT ON COLUMN idem.lease.until IS 'when it runs out; released: when that was';
COMMENT ON COLUMN idem.lease.released IS 'given back by its holder, or broken by an operator';

CREATE VIEW idem.lease_held AS
	SELECT name, owner, fence, since, until
	FROM idem.lease
	WHERE NOT released
		AND until OPERATOR(pg_catalog.>) pg_catalog.clock_timestamp();
COMMENT ON VIEW idem.lease_held IS 'committed leases that have not run out: who holds what, since when and until when';

CREATE TYPE idem_lease_acquired AS (
	run pg_catalog.bool,
	outcome pg_catalog.text,
	fence pg_catalog.int8,
	until pg_catalog.timestamptz,
	retry_after pg_catalog.int4
);
COMMENT ON TYPE idem_lease_acquired IS 'verdict of idem_lease_acquire()';

CREATE TYPE idem_lease_renewed AS (
	outcome pg_catalog.text,
	until pg_catalog.timestamptz
);
COMMENT ON TYPE idem_lease_renewed IS 'verdict of idem_lease_renew()';

CREATE FUNCTION idem_lease_acquire(
	name pg_catalog.text,
	lease pg_catalog.interval,
	wait pg_catalog.interval DEFAULT '0 s',
	owner pg_catalog.text DEFAULT NULL
) RETURNS idem_lease_acquired
	AS 'MODULE_PATHNAME', 'idem_lease_acquire_1_1' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_lease_acquire(pg_catalog.text, pg_catalog.interval, pg_catalog.interval, pg_catalog.text) IS
'Acquires a lease: work only if "run". Outcomes: acquired (fence, until), held (retry_after: seconds). name: 1 to 1024 bytes. lease: how long it lasts from the grant on. wait: how long to sleep until it is free, ''0 s'' not at all, NULL for ever. owner: who asks; the owner of a lease that has not run out gets it again, with the same fence and at least "lease" to go; NULL is nobody''s name. Errors: ID400 bad argument, 40001 snapshot too old to run on, 25006 read-only.';

CREATE FUNCTION idem_lease_renew(
	name pg_catalog.text,
	lease pg_catalog.interval,
	fence pg_catalog.int8
) RETURNS idem_lease_renewed
	AS 'MODULE_PATHNAME', 'idem_lease_renew_1_1' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_lease_renew(pg_catalog.text, pg_catalog.interval, pg_catalog.int8) IS
'Lets a lease last for "lease" from now on. Outcomes: renewed (until), lost (released, broken, taken over, or gone). One that ran out and was taken by nobody is renewed. Errors: ID400 bad argument, 25006 read-only.';

CREATE FUNCTION idem_lease_release(
	name pg_catalog.text,
	fence pg_catalog.int8
) RETURNS pg_catalog.text
	AS 'MODULE_PATHNAME', 'idem_lease_release_1_1' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_lease_release(pg_catalog.text, pg_catalog.int8) IS
'Gives a lease back. Returns released (also when repeated), or lost (broken, taken over, or gone): then nothing is changed. Errors: ID400 bad argument, 25006 read-only.';

CREATE FUNCTION idem_lease_guard(
	name pg_catalog.text,
	fence pg_catalog.int8
) RETURNS pg_catalog.bool
	AS 'MODULE_PATHNAME', 'idem_lease_guard_1_1' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_lease_guard(pg_catalog.text, pg_catalog.int8) IS
'Returns true if the fence holds the lease, and keeps everybody else from it until the caller''s transaction ends. Renewing and releasing it does not wait for that. Errors: ID412 not held by this fence, ID400 bad argument, 40001 snapshot older than the grant, 25006 read-only.';

CREATE FUNCTION idem_lease_break(name pg_catalog.text) RETURNS pg_catalog.bool
	AS 'MODULE_PATHNAME', 'idem_lease_break_1_1' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_lease_break(pg_catalog.text) IS
'For operators: takes a lease from whoever holds it, as soon as the transactions that guard it have ended. Returns true. Errors: ID400 bad argument, ID404 no such lease is held, 25006 read-only.';

-- A column that keeps the greatest fence a row was written under.

CREATE FUNCTION idem_fence_check() RETURNS pg_catalog.trigger
	AS 'MODULE_PATHNAME', 'idem_fence_check_1_1' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_fence_check() IS
'Trigger that idem_attach_fence() makes, with the comparison in its condition; one before inserts gives a row that moves from another partition its fence. Errors: ID412 stale fence, ID500 another trigger fires later.';

CREATE FUNCTION idem_attach_fence(
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

CREATE FUNCTION idem_detach_fence(
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
