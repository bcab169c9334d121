-- Tables that skip repeated inserts.

-- The place of a row that is just being inserted.  Values are compared in the
-- WHEN clause of one of the triggers only, for the effect of that.
CREATE TYPE idem_inserted;
CREATE FUNCTION idem_inserted_in(pg_catalog.cstring) RETURNS idem_inserted
	AS 'MODULE_PATHNAME', 'idem_inserted_in_1_1' LANGUAGE C STABLE STRICT PARALLEL UNSAFE;
CREATE FUNCTION idem_inserted_out(idem_inserted) RETURNS pg_catalog.cstring
	AS 'MODULE_PATHNAME', 'idem_inserted_out_1_1' LANGUAGE C STABLE STRICT PARALLEL UNSAFE;
CREATE TYPE idem_inserted (
	INPUT = idem_inserted_in,
	OUTPUT = idem_inserted_out,
	LIKE = pg_catalog.tid
);
CREATE CAST (pg_catalog.tid AS idem_inserted) WITHOUT FUNCTION;
CREATE FUNCTION idem_inserted_cmp(idem_inserted, idem_inserted) RETURNS pg_catalog.int4
	AS 'MODULE_PATHNAME', 'idem_inserted_cmp_1_1' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
CREATE OPERATOR CLASS idem_inserted_ops DEFAULT FOR TYPE idem_inserted USING btree AS
	FUNCTION 1 idem_inserted_cmp(idem_inserted, idem_inserted);
COMMENT ON TYPE idem_inserted IS 'used by the triggers of idem_attach_once() only';
COMMENT ON CAST (pg_catalog.tid AS idem_inserted) IS 'used by the triggers of idem_attach_once() only';
COMMENT ON OPERATOR CLASS idem_inserted_ops USING btree IS 'used by the triggers of idem_attach_once() only';
COMMENT ON FUNCTION idem_inserted_in(pg_catalog.cstring) IS 'input function of type idem_inserted';
COMMENT ON FUNCTION idem_inserted_out(idem_inserted) IS 'output function of type idem_inserted';
COMMENT ON FUNCTION idem_inserted_cmp(idem_inserted, idem_inserted) IS 'comparison function of type idem_inserted';

CREATE FUNCTION idem_once_row() RETURNS pg_catalog.trigger
	AS 'MODULE_PATHNAME', 'idem_once_row_1_1' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_once_row() IS 'trigger function of idem_attach_once()';

CREATE FUNCTION idem_attach_once(
	table_name pg_catalog.regclass,
	columns pg_catalog.name[],
	scope pg_catalog.text DEFAULT NULL,
	ttl pg_catalog.interval DEFAULT NULL
) RETURNS pg_catalog.bool
	AS 'MODULE_PATHNAME', 'idem_attach_once_1_1' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_attach_once(pg_catalog.regclass, pg_catalog.name[], pg_catalog.text, pg_catalog.interval) IS
'Makes a table, or a partitioned one with all its partitions, skip repeated inserts: of rows with the same values in "columns" the first is inserted, the others are not. Records the keys of the rows that are there. scope: where the keys are kept, NULL "once." and the table''s name. ttl: for how long, NULL for ever. Returns true. Errors: ID400 bad argument, ID500 the table already holds repeated rows, 42501 not the owner, 42703 no such column, 42710 already attached, 42809 not a table to which this applies.';

CREATE FUNCTION idem_detach_once(table_name pg_catalog.regclass)
	RETURNS pg_catalog.bool
	AS 'MODULE_PATHNAME', 'idem_detach_once_1_1' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_detach_once(pg_catalog.regclass) IS
'Ends what idem_attach_once() began; the keys stay. Returns true. Errors: ID400 bad argument, ID500 not attached, 42501 not the owner.';
