-- Idempotent functions: a function runs once per key, its result is replayed.

CREATE FUNCTION idem_child(
	key pg_catalog.text,
	name pg_catalog.text,
	scope pg_catalog.text DEFAULT NULL
) RETURNS pg_catalog.text
	AS 'MODULE_PATHNAME', 'idem_child_1_1' LANGUAGE C STABLE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_child(pg_catalog.text, pg_catalog.text, pg_catalog.text) IS
'A key derived from scope, key and name, always the same for the same three: an UUID of version 8, to be handed to the next service as its Idempotency-Key. Errors: ID400 bad argument, ID500 undeclared scope, 42501 scope not allowed.';

CREATE FUNCTION idem_call(
	key pg_catalog.text,
	function pg_catalog.regprocedure,
	args pg_catalog.jsonb DEFAULT '{}',
	scope pg_catalog.text DEFAULT NULL,
	ttl pg_catalog.interval DEFAULT NULL,
	wait pg_catalog.interval DEFAULT NULL
) RETURNS pg_catalog.json
	AS 'MODULE_PATHNAME', 'idem_call_1_1' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_call(pg_catalog.text, pg_catalog.regprocedure, pg_catalog.jsonb, pg_catalog.text, pg_catalog.interval, pg_catalog.interval) IS
'Runs a function once per key, in the caller''s transaction, and returns its result as JSON; called again with the same key it returns the stored result. args: a JSON object by parameter name, or an array by position. ttl, wait: as idem_claim(). Needs EXECUTE on the function. Errors: ID400 bad argument, ID409 key failed before or held by someone else after wait, ID422 key used before for another function or other arguments, ID500 same key around the call, undeclared scope or result too large, and whatever the function raises.';

CREATE FUNCTION idem_twin(
	function pg_catalog.text,
	key pg_catalog.text
) RETURNS SETOF pg_catalog.record
	AS 'MODULE_PATHNAME', 'idem_twin_1_1' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_twin(pg_catalog.text, pg_catalog.text) IS
'What the body of a twin made by idem_wrap() calls; for a function without parameters.';

CREATE FUNCTION idem_twin(
	function pg_catalog.text,
	key pg_catalog.text,
	VARIADIC args pg_catalog."any"
) RETURNS SETOF pg_catalog.record
	AS 'MODULE_PATHNAME', 'idem_twin_1_1' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_twin(pg_catalog.text, pg_catalog.text, "any") IS
'What the body of a twin made by idem_wrap() calls: as idem_call(), for typed arguments and a typed result, which is a set or has several columns.';

CREATE FUNCTION idem_twin_value(
	function pg_catalog.text,
	key pg_catalog.text,
	result pg_catalog.anyelement
) RETURNS pg_catalog.anyelement
	AS 'MODULE_PATHNAME', 'idem_twin_value_1_1' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_twin_value(pg_catalog.text, pg_catalog.text, anyelement) IS
'What the body of a twin made by idem_wrap() calls; for a function without parameters whose result is one value.';

CREATE FUNCTION idem_twin_value(
	function pg_catalog.text,
	key pg_catalog.text,
	result pg_catalog.anyelement,
	VARIADIC args pg_catalog."any"
) RETURNS pg_catalog.anyelement
	AS 'MODULE_PATHNAME', 'idem_twin_value_1_1' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_twin_value(pg_catalog.text, pg_catalog.text, anyelement, "any") IS
'What the body of a twin made by idem_wrap() calls: as idem_call(), for typed arguments and one typed value as result. result: a NULL of its type.';

CREATE FUNCTION idem_wrap(
	function pg_catalog.regprocedure,
	name pg_catalog.text DEFAULT NULL
) RETURNS pg_catalog.regprocedure
	AS 'MODULE_PATHNAME', 'idem_wrap_1_1' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_wrap(pg_catalog.regprocedure, pg_catalog.text) IS
'Makes a typed twin of a function, owned by the caller: the key is its first parameter, the others and the result are the original''s, and a repeated key returns the first result. name: of the twin, in the function''s schema unless qualified, of a built-in function in the current schema; NULL: the function''s name and "_once". Returns the twin. Errors: ID400 function cannot be wrapped, 42501 no CREATE on the schema, 42723 name taken, 3F000 no current schema. Warns of defaults that are not constant: a retry has to pass them.';
