-- Versions: a write that is based on a stale version is refused.

CREATE FUNCTION idem_rowversion() RETURNS pg_catalog.trigger
	AS 'MODULE_PATHNAME', 'idem_rowversion_1_1' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_rowversion() IS
'Trigger that idem_attach_version() makes: checks the version in the SET list and sets the next one; before an INSERT it gives a row that moves from another partition its version. Errors: ID412 stale version (40001 if retryable), ID428 version missing, ID500 another trigger fires later, 22003 no further version.';

CREATE FUNCTION idem_attach_version(
	table_name pg_catalog.regclass,
	column_name pg_catalog.name,
	mode pg_catalog.text DEFAULT 'read',
	strict pg_catalog.bool DEFAULT false,
	retryable pg_catalog.bool DEFAULT false,
	ignore pg_catalog.name[] DEFAULT NULL
) RETURNS pg_catalog.bool
	AS 'MODULE_PATHNAME', 'idem_attach_version_1_1' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_attach_version(pg_catalog.regclass, pg_catalog.name, pg_catalog.text, pg_catalog.bool, pg_catalog.bool, pg_catalog.name[]) IS
'Makes a column the version of its row: every UPDATE adds one, and one that gives another version than the current is refused. mode: read (the version that was read, or the next one, is current) or next (only the next one is). strict: an UPDATE must give a version. retryable: stale is 40001 in place of ID412. ignore: columns that alone neither check nor count. NULL options: the defaults. Only for the table''s owner. Returns true. Errors: ID400 bad argument, ID500 column not fit to be a version, 42703 no such column, 42710 table has a version already, 42804 not an integer, 42809 not a table.';

CREATE FUNCTION idem_detach_version(table_name pg_catalog.regclass) RETURNS pg_catalog.bool
	AS 'MODULE_PATHNAME', 'idem_detach_version_1_1' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_detach_version(pg_catalog.regclass) IS
'Takes back idem_attach_version(); the column and its values stay. Only for the table''s owner. Returns true. Errors: ID400 no table given, ID500 table has no version, 42501 not the owner, 42809 its version was attached to a table above it.';

CREATE TYPE idem_versioned AS (
	outcome pg_catalog.text,
	version pg_catalog.int8,
	current pg_catalog.jsonb
);
COMMENT ON TYPE idem_versioned IS 'verdict of idem_update() and idem_delete()';

CREATE FUNCTION idem_update(
	table_name pg_catalog.regclass,
	id pg_catalog."any",
	version pg_catalog.int8,
	changes pg_catalog.jsonb
) RETURNS idem_versioned
	AS 'MODULE_PATHNAME', 'idem_update_1_1' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_update(pg_catalog.regclass, "any", pg_catalog.int8, pg_catalog.jsonb) IS
'Changes a row if it still has the version that was read. id: its primary key, of any type; a key of several columns as jsonb by column name. version: as it was read. changes: new values by column name; {} only counts the version up. Outcomes: updated (version: the new one), stale (version and current: the row as it is now), missing. Runs as the caller. Errors: ID400 bad argument, id or value, ID428 version missing, ID500 table without version or primary key, 42501 not allowed, 40001 above READ COMMITTED if the row was changed meanwhile.';

CREATE FUNCTION idem_update(
	table_name pg_catalog.regclass,
	id pg_catalog.text,
	version pg_catalog.int8,
	changes pg_catalog.jsonb
) RETURNS idem_versioned
	AS 'MODULE_PATHNAME', 'idem_update_1_1' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_update(pg_catalog.regclass, pg_catalog.text, pg_catalog.int8, pg_catalog.jsonb) IS
'The same for an id that is text, as drivers send it: it is read as the key''s type.';

CREATE FUNCTION idem_delete(
	table_name pg_catalog.regclass,
	id pg_catalog."any",
	version pg_catalog.int8
) RETURNS idem_versioned
	AS 'MODULE_PATHNAME', 'idem_delete_1_1' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_delete(pg_catalog.regclass, "any", pg_catalog.int8) IS
'Deletes a row if it still has the version that was read. Outcomes: deleted (version: the one it had), stale (version and current: the row as it is now), missing. Otherwise as idem_update().';

CREATE FUNCTION idem_delete(
	table_name pg_catalog.regclass,
	id pg_catalog.text,
	version pg_catalog.int8
) RETURNS idem_versioned
	AS 'MODULE_PATHNAME', 'idem_delete_1_1' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_delete(pg_catalog.regclass, pg_catalog.text, pg_catalog.int8) IS
'The same for an id that is text, as drivers send it: it is read as the key''s type.';
