-- State machines: tables whose rows move only as a machine says.

CREATE FUNCTION idem_guard() RETURNS pg_catalog.trigger
	AS 'MODULE_PATHNAME', 'idem_guard_1_1' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_guard() IS
'Trigger made by idem_attach(). Arguments: machine, options as JSON, tag of the binding, the table as it was called when it was attached.';

CREATE FUNCTION idem_not_initial_support(pg_catalog.internal)
	RETURNS pg_catalog.internal
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION idem_not_initial_support(pg_catalog.internal) IS
'Planner support of idem_not_initial().';

CREATE FUNCTION idem_not_initial(value pg_catalog."any", machine pg_catalog.text)
	RETURNS pg_catalog.bool
	AS 'MODULE_PATHNAME', 'idem_not_initial_1_1' LANGUAGE C STABLE PARALLEL UNSAFE
	SUPPORT idem_not_initial_support;
COMMENT ON FUNCTION idem_not_initial("any", pg_catalog.text) IS
'In the WHEN clause of triggers made by idem_attach(): whether value is not an initial state of the machine. The planner replaces it by a comparison.';

CREATE FUNCTION idem_each_row_support(pg_catalog.internal)
	RETURNS pg_catalog.internal
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION idem_each_row_support(pg_catalog.internal) IS
'Planner support of idem_each_row().';

CREATE FUNCTION idem_each_row(value pg_catalog."any", table_name pg_catalog.regclass)
	RETURNS pg_catalog.bool
	AS 'MODULE_PATHNAME', 'idem_each_row_1_1' LANGUAGE C STABLE PARALLEL UNSAFE
	SUPPORT idem_each_row_support;
COMMENT ON FUNCTION idem_each_row("any", pg_catalog.regclass) IS
'In the WHEN clause of triggers made by idem_attach() with history: whether the history of the table is written row by row. The planner replaces it by true or false.';

CREATE FUNCTION idem_attach(
	machine pg_catalog.text,
	table_name pg_catalog.regclass,
	column_name pg_catalog.name,
	history pg_catalog.bool DEFAULT false,
	events_only pg_catalog.bool DEFAULT false,
	on_delete pg_catalog.text DEFAULT 'any',
	exempt pg_catalog.name[] DEFAULT NULL,
	accept_existing pg_catalog.bool DEFAULT false,
	validate pg_catalog.bool DEFAULT true,
	mode pg_catalog.text DEFAULT 'enforce',
	keep pg_catalog.interval DEFAULT NULL
) RETURNS pg_catalog.bool
	AS 'MODULE_PATHNAME', 'idem_attach_1_1' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_attach(pg_catalog.text, pg_catalog.regclass, pg_catalog.name, pg_catalog.bool, pg_catalog.bool, pg_catalog.text, pg_catalog.name[], pg_catalog.bool, pg_catalog.bool, pg_catalog.text, pg_catalog.interval) IS
'Lets a column of a table move only as a machine says. history: every move is recorded; needs a primary key. events_only: the column is written by idem_fire() alone. on_delete: any, final (rows in a final state) or never. exempt: roles that are not checked. accept_existing: rows in no state of the machine may stay. validate: false does not look at rows. mode: enforce, or observe (what would be refused is a warning). keep: how long history is kept, NULL for ever. NULL options are their defaults. Returns true. Errors: ID400 bad argument, ID500 no such machine, rows in no state, 42501 not the owner, 42710 column attached already, 42809 not such a table, 42703 or 42804 not such a column, 55000 no primary key.';

CREATE FUNCTION idem_detach(
	table_name pg_catalog.regclass,
	column_name pg_catalog.name
) RETURNS pg_catalog.bool
	AS 'MODULE_PATHNAME', 'idem_detach_1_1' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_detach(pg_catalog.regclass, pg_catalog.name) IS
'Takes a machine off a column; rows, history and the machine stay. Returns true. Errors: ID400 missing argument, ID500 nothing attached, 42501 not the owner.';

CREATE FUNCTION idem_verify(
	table_name pg_catalog.regclass,
	OUT row_key pg_catalog.jsonb,
	OUT machine pg_catalog.text,
	OUT state pg_catalog.text
) RETURNS SETOF pg_catalog.record
	AS 'MODULE_PATHNAME', 'idem_verify_1_1' LANGUAGE C STABLE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_verify(pg_catalog.regclass) IS
'The rows of a table that are in no state of the machine that moves them, NULL too: what was accepted at attach, or written past the triggers. row_key: the primary key, without one the position as ctid. Blocks no writer; needs SELECT on the table. Errors: ID400 missing argument, ID500 nothing attached.';

CREATE VIEW idem.binding AS
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
COMMENT ON VIEW idem.binding IS
'One row per machine and column of a table that was attached; options are those that are not default.';
