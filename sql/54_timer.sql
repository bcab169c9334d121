-- State machines: transitions whose time comes.

CREATE TABLE idem.timer (
	machine pg_catalog.text COLLATE pg_catalog."C" NOT NULL,
	table_schema pg_catalog.text COLLATE pg_catalog."C" NOT NULL,
	table_name pg_catalog.text COLLATE pg_catalog."C" NOT NULL,
	binding pg_catalog.text COLLATE pg_catalog."C" NOT NULL,
	row_key pg_catalog.jsonb NOT NULL,
	row_hash pg_catalog.int8 NOT NULL,
	state pg_catalog.text COLLATE pg_catalog."C" NOT NULL,
	event pg_catalog.text COLLATE pg_catalog."C" NOT NULL,
	since pg_catalog.timestamptz NOT NULL,
	due pg_catalog.timestamptz NOT NULL,
	tries pg_catalog.int4 NOT NULL DEFAULT 0,
	key_since pg_catalog.timestamptz
);
CREATE INDEX timer_due ON idem.timer (due);
-- rows of many tables may have the same hash: a whole number is its own
CREATE INDEX timer_row ON idem.timer (row_hash, table_schema, table_name);
-- so that it may be published
ALTER TABLE idem.timer REPLICA IDENTITY FULL;
COMMENT ON TABLE idem.timer IS 'rows that are in a state which a timed transition leaves, one per row and event; written with idem.history, read by idem_tick(). A row without event stands for all rows of a table that were in such a state before';
COMMENT ON COLUMN idem.timer.table_schema IS 'schema of the table that the machine was attached to, or of its child that holds the row, as it was called then';
COMMENT ON COLUMN idem.timer.binding IS 'tag of the binding';
COMMENT ON COLUMN idem.timer.row_key IS 'the row''s whole primary key as an object by column name';
COMMENT ON COLUMN idem.timer.row_hash IS 'as in idem.history';
COMMENT ON COLUMN idem.timer.state IS 'the state that the row entered';
COMMENT ON COLUMN idem.timer.since IS 'when it did, or did in an earlier stay';
COMMENT ON COLUMN idem.timer.due IS 'when idem_tick() looks at it';
COMMENT ON COLUMN idem.timer.tries IS 'how often it could not be fired when it was due';
COMMENT ON COLUMN idem.timer.key_since IS 'since when the row has its primary key, if it got that by an UPDATE while it was in the state: what idem.history tells of that key before is another row''s';

CREATE FUNCTION idem_tick(
	max_rows pg_catalog.int4 DEFAULT 1000,
	OUT table_name pg_catalog.text,
	OUT row_key pg_catalog.jsonb,
	OUT event pg_catalog.text,
	OUT outcome pg_catalog.text
) RETURNS SETOF pg_catalog.record
	AS 'MODULE_PATHNAME', 'idem_tick_1_1' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_tick(pg_catalog.int4) IS
'For operators: fires timed transitions that are due, as the owners of their tables. max_rows: at most so many (NULL: no limit). Waits for no row. Gives timers to rows that were in the state before. Returns what it did: applied; moved, missing, obsolete (nothing to do any more, or made anew for the key that the table has now); guarded, error (tried again later, at growing intervals); refused (the table belongs to a superuser or to a role that is under its row security, or a partition to a stranger, or this session has temporary objects of a role that may not act as the owner). Errors: ID400 bad argument, ID500 called within itself.';
