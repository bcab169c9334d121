-- State machines: what has happened.

CREATE SEQUENCE idem.history_seq INCREMENT 32;
COMMENT ON SEQUENCE idem.history_seq IS 'numbers of the rows of idem.history; rows that are written together share a draw, as many as the increment says';

-- Tables are named by text, so that a dump without one of them restores.  The
-- one index serves reads of a row's history in order, and each further one
-- would cost every transition a third more.
CREATE TABLE idem.history (
	seq pg_catalog.int8 NOT NULL
		DEFAULT pg_catalog.nextval('idem.history_seq'::pg_catalog.regclass),
	table_schema pg_catalog.text COLLATE pg_catalog."C" NOT NULL,
	table_name pg_catalog.text COLLATE pg_catalog."C" NOT NULL,
	column_name pg_catalog.text COLLATE pg_catalog."C" NOT NULL,
	row_key pg_catalog.jsonb NOT NULL,
	machine pg_catalog.text COLLATE pg_catalog."C" NOT NULL,
	event pg_catalog.text COLLATE pg_catalog."C",
	from_state pg_catalog.text COLLATE pg_catalog."C",
	to_state pg_catalog.text COLLATE pg_catalog."C",
	version pg_catalog.int8,
	role_name pg_catalog.text COLLATE pg_catalog."C" NOT NULL,
	actor pg_catalog.text,
	key pg_catalog.text COLLATE pg_catalog."C",
	context pg_catalog.jsonb,
	at pg_catalog.timestamptz NOT NULL,
	expires_at pg_catalog.timestamptz,
	row_hash pg_catalog.int8 NOT NULL,
	PRIMARY KEY (row_hash, seq)
);
COMMENT ON TABLE idem.history IS 'every transition of rows whose machine was attached with history, ordered by seq; append-only';
COMMENT ON COLUMN idem.history.table_schema IS 'schema of the table that the machine was attached to, as it was called then';
COMMENT ON COLUMN idem.history.column_name IS 'the column that moved, as it was called then';
COMMENT ON COLUMN idem.history.row_key IS 'the row''s primary key as an object by column name; columns that machines move are left out where others remain';
COMMENT ON COLUMN idem.history.event IS 'which transition it was; NULL: an insert, or a write that no rule was needed for (exempt role, mode observe)';
COMMENT ON COLUMN idem.history.from_state IS 'NULL: the row was inserted';
COMMENT ON COLUMN idem.history.version IS 'the row''s version afterwards, if the table has a version column';
COMMENT ON COLUMN idem.history.role_name IS 'the current role that wrote';
COMMENT ON COLUMN idem.history.actor IS 'the setting idem.actor';
COMMENT ON COLUMN idem.history.key IS 'the idempotency key that the event was fired with';
COMMENT ON COLUMN idem.history.context IS 'the argument context of idem_fire(), else the setting idem.context';
COMMENT ON COLUMN idem.history.at IS 'wall clock, not that of the transaction''s begin';
COMMENT ON COLUMN idem.history.expires_at IS 'may be swept from then on, by the option keep as it was then; NULL: kept for ever';
COMMENT ON COLUMN idem.history.row_hash IS 'the index''s form of row_key: the key itself if it is one integer, else a hash of it';

CREATE FUNCTION idem_history_protect() RETURNS pg_catalog.trigger
	AS 'MODULE_PATHNAME', 'idem_history_protect_1_1' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_history_protect() IS
'Trigger on idem.history: refuses UPDATE and TRUNCATE, and DELETE of rows whose time is not over.';

CREATE TRIGGER protected BEFORE UPDATE OR TRUNCATE ON idem.history
	FOR EACH STATEMENT EXECUTE FUNCTION idem_history_protect();
CREATE TRIGGER protected_row BEFORE DELETE ON idem.history
	FOR EACH ROW EXECUTE FUNCTION idem_history_protect();

CREATE FUNCTION idem_history_changed() RETURNS pg_catalog.trigger
	AS 'MODULE_PATHNAME', 'idem_history_changed_1_1' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_history_changed() IS
'Trigger made by idem_attach() with history: records what a statement did. Arguments: machine, options as JSON, tag of the binding.';

CREATE FUNCTION idem_history(table_name pg_catalog.regclass, id pg_catalog."any")
	RETURNS SETOF idem.history
	AS 'MODULE_PATHNAME', 'idem_history_1_1' LANGUAGE C STABLE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_history(pg_catalog.regclass, "any") IS
'What has happened to a row, in order. id: its primary key, of several columns as a JSON object. Needs SELECT on the table; under row security the row must be visible. Errors: ID400 id missing or not fitting, ID500 no primary key, 42501 no SELECT.';

CREATE FUNCTION idem_history(table_name pg_catalog.regclass, id pg_catalog.text)
	RETURNS SETOF idem.history
	AS 'MODULE_PATHNAME', 'idem_history_1_1' LANGUAGE C STABLE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_history(pg_catalog.regclass, pg_catalog.text) IS
'The same for an id given as text.';

-- Times are seconds, since few drivers read intervals.  A stay ends with the
-- row's next step of the same column.  Names of columns change; so they tell
-- steps apart only where the table has not one column alone that the machine moves.
CREATE VIEW idem.dwell AS
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
COMMENT ON VIEW idem.dwell IS 'how long rows stay in states, from idem.history';
COMMENT ON COLUMN idem.dwell.count IS 'rows whose latest entry is this state';
COMMENT ON COLUMN idem.dwell.median IS 'seconds spent in it by half of those that have left';
COMMENT ON COLUMN idem.dwell.p95 IS 'seconds spent in it at most by 95 of 100 that have left';
COMMENT ON COLUMN idem.dwell.oldest IS 'since when the one that has been in it longest is there';
