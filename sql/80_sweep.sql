-- Sweeping: removal of what has expired.

CREATE TABLE idem.sweep_state (
	kind pg_catalog.text COLLATE pg_catalog."C" PRIMARY KEY,
	position pg_catalog.int8 NOT NULL
);
COMMENT ON TABLE idem.sweep_state IS 'where the next sweep goes on, for each kind of record and in a form of its own; "first" is the number of the kind that it begins with';
INSERT INTO idem.sweep_state VALUES ('first', 0), ('key', 0), ('history', 0), ('token', 0), ('branch', 0), ('lease', 0), ('window_hit', 0);

CREATE FUNCTION idem_sweep(
	max_rows pg_catalog.int4 DEFAULT 10000,
	budget pg_catalog.interval DEFAULT NULL,
	OUT kind pg_catalog.text,
	OUT removed pg_catalog.int8
) RETURNS SETOF pg_catalog.record
	AS 'MODULE_PATHNAME', 'idem_sweep_1_1' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_sweep(pg_catalog.int4, pg_catalog.interval) IS
'For operators: removes records whose time is over, of every kind, going on where the last sweep stopped, once round at most. max_rows: at most so many (NULL: no limit). budget: for so long (NULL: no limit). Both are shared over the kinds. Never waits for a lock, never touches a live claim, and keeps to vacuum_cost_delay as VACUUM does. Returns one row per kind: how many were removed. Errors: ID400 bad argument.';
