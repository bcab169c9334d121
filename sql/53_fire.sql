-- State machines: events.

CREATE TYPE idem_fired AS (
	outcome pg_catalog.text,
	from_state pg_catalog.text,
	to_state pg_catalog.text,
	version pg_catalog.int8
);
COMMENT ON TYPE idem_fired IS 'verdict of idem_fire() and idem_try_fire()';

CREATE TYPE idem_fired_row AS (
	id pg_catalog.text,
	outcome pg_catalog.text,
	from_state pg_catalog.text,
	to_state pg_catalog.text,
	version pg_catalog.int8
);
COMMENT ON TYPE idem_fired_row IS 'verdict of idem_fire_many() on one row';

CREATE FUNCTION idem_fire(
	table_name pg_catalog.regclass,
	id pg_catalog."any",
	event pg_catalog.text,
	version pg_catalog.int8 DEFAULT NULL,
	key pg_catalog.text DEFAULT NULL,
	context pg_catalog.jsonb DEFAULT NULL,
	machine pg_catalog.text DEFAULT NULL
) RETURNS idem_fired
	AS 'MODULE_PATHNAME', 'idem_fire_1_1' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_fire(pg_catalog.regclass, "any", pg_catalog.text, pg_catalog.int8, pg_catalog.text, pg_catalog.jsonb, pg_catalog.text) IS
'Takes a row along a transition. id: the primary key, of several columns as a JSON object. version: the one that the caller has read, NULL not checked. key: an idempotency key for this event of this row, never taken from the setting idem.key. context: into the history. machine: which one, where the table has several. Returns outcome applied, or already (the key has had its effect, or the row is where the event leads); states before and after; the row''s version. Errors: ID404 no such row, ID412 stale version, ID409 not possible from here or by the guard, or frozen, 42501 the role may not, ID422 key used for something else, ID400 bad argument, ID500 no such machine or event.';

CREATE FUNCTION idem_fire(
	table_name pg_catalog.regclass,
	id pg_catalog.text,
	event pg_catalog.text,
	version pg_catalog.int8 DEFAULT NULL,
	key pg_catalog.text DEFAULT NULL,
	context pg_catalog.jsonb DEFAULT NULL,
	machine pg_catalog.text DEFAULT NULL
) RETURNS idem_fired
	AS 'MODULE_PATHNAME', 'idem_fire_1_1' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_fire(pg_catalog.regclass, pg_catalog.text, pg_catalog.text, pg_catalog.int8, pg_catalog.text, pg_catalog.jsonb, pg_catalog.text) IS
'The same for an id given as text.';

CREATE FUNCTION idem_try_fire(
	table_name pg_catalog.regclass,
	id pg_catalog."any",
	event pg_catalog.text,
	version pg_catalog.int8 DEFAULT NULL,
	key pg_catalog.text DEFAULT NULL,
	context pg_catalog.jsonb DEFAULT NULL,
	machine pg_catalog.text DEFAULT NULL
) RETURNS idem_fired
	AS 'MODULE_PATHNAME', 'idem_try_fire_1_1' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_try_fire(pg_catalog.regclass, "any", pg_catalog.text, pg_catalog.int8, pg_catalog.text, pg_catalog.jsonb, pg_catalog.text) IS
'As idem_fire(), with a verdict in place of an error. Outcomes: applied, already, missing, stale, frozen, illegal, forbidden, guarded, mismatch (key). id: the primary key, of several columns as a JSON object. version: the one that the caller has read, NULL not checked. key: an idempotency key for this event of this row, never taken from the setting idem.key. context: into the history. machine: which one, where the table has several. Errors: ID400 bad argument, ID500 no such machine or event.';

CREATE FUNCTION idem_try_fire(
	table_name pg_catalog.regclass,
	id pg_catalog.text,
	event pg_catalog.text,
	version pg_catalog.int8 DEFAULT NULL,
	key pg_catalog.text DEFAULT NULL,
	context pg_catalog.jsonb DEFAULT NULL,
	machine pg_catalog.text DEFAULT NULL
) RETURNS idem_fired
	AS 'MODULE_PATHNAME', 'idem_try_fire_1_1' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_try_fire(pg_catalog.regclass, pg_catalog.text, pg_catalog.text, pg_catalog.int8, pg_catalog.text, pg_catalog.jsonb, pg_catalog.text) IS
'The same for an id given as text.';

CREATE FUNCTION idem_fire_many(
	table_name pg_catalog.regclass,
	ids pg_catalog.anyarray,
	event pg_catalog.text,
	version pg_catalog.int8 DEFAULT NULL,
	key pg_catalog.text DEFAULT NULL,
	context pg_catalog.jsonb DEFAULT NULL,
	machine pg_catalog.text DEFAULT NULL
) RETURNS SETOF idem_fired_row
	AS 'MODULE_PATHNAME', 'idem_fire_many_1_1' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_fire_many(pg_catalog.regclass, anyarray, pg_catalog.text, pg_catalog.int8, pg_catalog.text, pg_catalog.jsonb, pg_catalog.text) IS
'As idem_try_fire() for many rows, locked in the order of their keys. ids: each once. version: the one that the caller has read, NULL not checked. key: an idempotency key for this event of this row, never taken from the setting idem.key. context: into the history. machine: which one, where the table has several. Returns one verdict per id, in the order given. Errors: ID400 bad argument or an id given twice, ID500 no such machine or event.';

CREATE FUNCTION idem_fire_many(
	table_name pg_catalog.regclass,
	ids pg_catalog.text,
	event pg_catalog.text,
	version pg_catalog.int8 DEFAULT NULL,
	key pg_catalog.text DEFAULT NULL,
	context pg_catalog.jsonb DEFAULT NULL,
	machine pg_catalog.text DEFAULT NULL
) RETURNS SETOF idem_fired_row
	AS 'MODULE_PATHNAME', 'idem_fire_many_1_1' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_fire_many(pg_catalog.regclass, pg_catalog.text, pg_catalog.text, pg_catalog.int8, pg_catalog.text, pg_catalog.jsonb, pg_catalog.text) IS
'The same for ids given as the text of an array.';

CREATE FUNCTION idem_allowed(
	table_name pg_catalog.regclass,
	id pg_catalog."any",
	OUT event pg_catalog.text,
	OUT to_state pg_catalog.text
) RETURNS SETOF pg_catalog.record
	AS 'MODULE_PATHNAME', 'idem_allowed_1_1' LANGUAGE C STABLE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_allowed(pg_catalog.regclass, "any") IS
'What the current role could fire on a row now: events and where they lead, guards included; not those that only time fires. Takes no lock. Empty if the row is missing. Errors: ID400 bad argument, ID500 no machine.';

CREATE FUNCTION idem_allowed(
	table_name pg_catalog.regclass,
	id pg_catalog.text,
	OUT event pg_catalog.text,
	OUT to_state pg_catalog.text
) RETURNS SETOF pg_catalog.record
	AS 'MODULE_PATHNAME', 'idem_allowed_1_1' LANGUAGE C STABLE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_allowed(pg_catalog.regclass, pg_catalog.text) IS
'The same for an id given as text.';

CREATE FUNCTION idem_why_not(
	table_name pg_catalog.regclass,
	id pg_catalog."any",
	event pg_catalog.text
) RETURNS pg_catalog.text
	AS 'MODULE_PATHNAME', 'idem_why_not_1_1' LANGUAGE C STABLE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_why_not(pg_catalog.regclass, "any", pg_catalog.text) IS
'Why the current role could not fire an event on a row now, in words that begin with the outcome that idem_try_fire() would give; NULL if it could. Takes no lock. Errors: ID400 bad argument, ID500 no such machine or event.';

CREATE FUNCTION idem_why_not(
	table_name pg_catalog.regclass,
	id pg_catalog.text,
	event pg_catalog.text
) RETURNS pg_catalog.text
	AS 'MODULE_PATHNAME', 'idem_why_not_1_1' LANGUAGE C STABLE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_why_not(pg_catalog.regclass, pg_catalog.text, pg_catalog.text) IS
'The same for an id given as text.';

