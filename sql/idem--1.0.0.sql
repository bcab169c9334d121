-- The fixed schema, and a refusal to be installed among look-alikes.
--
-- The target schema is whatever CREATE EXTENSION puts first in search_path; its
-- name is never spliced into text, so that it may be called anything.  Every
-- name and operator below is qualified, since that schema may hold others'
-- objects.

\echo Use "CREATE EXTENSION idem" to load this file. \quit

DO $$
DECLARE
	target pg_catalog.oid := (SELECT oid FROM pg_catalog.pg_namespace
		WHERE nspname OPERATOR(pg_catalog.=) pg_catalog.current_schema());
	clash pg_catalog.name;
BEGIN
	IF target OPERATOR(pg_catalog.=) pg_catalog.pg_my_temp_schema() THEN
		RAISE EXCEPTION 'extension "idem" cannot be installed into a temporary schema'
			USING ERRCODE = 'invalid_schema_name';
	END IF;
	SELECT name INTO clash FROM (
		SELECT proname FROM pg_catalog.pg_proc
		WHERE pronamespace OPERATOR(pg_catalog.=) target
		UNION ALL
		SELECT typname FROM pg_catalog.pg_type
		WHERE typnamespace OPERATOR(pg_catalog.=) target
	) AS objects (name)
	WHERE name OPERATOR(pg_catalog.~~) 'idem\_%' LIMIT 1;
	IF clash IS NOT NULL THEN
		RAISE EXCEPTION 'schema "%" already holds a function or type named "%"',
			pg_catalog.current_schema(), clash
			USING ERRCODE = 'duplicate_object',
			DETAIL = 'Names that begin with "idem_" belong to the extension.',
			HINT = 'Remove it, or choose another schema with CREATE EXTENSION idem SCHEMA name.';
	END IF;
END
$$;

CREATE SCHEMA idem;
COMMENT ON SCHEMA idem IS 'tables and views of extension idem';
-- The canonical form of a JSON document, and its fingerprint.

CREATE FUNCTION idem_canonical(document pg_catalog.jsonb)
	RETURNS pg_catalog.text
	LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE
	AS 'MODULE_PATHNAME', 'idem_canonical';
COMMENT ON FUNCTION idem_canonical(pg_catalog.jsonb) IS
	'the document in the canonical form of RFC 8785, except that a number which a double does not hold keeps its exact digits';

CREATE FUNCTION idem_fingerprint(document pg_catalog.jsonb)
	RETURNS pg_catalog.text
	LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE
	AS 'MODULE_PATHNAME', 'idem_fingerprint';
COMMENT ON FUNCTION idem_fingerprint(pg_catalog.jsonb) IS
	'"1." (the version of the rules), then the SHA-256 of the canonical form in UTF-8 as base64url without padding: 45 characters';
-- The registry: one row per (scope, key), and the verbs on it.

CREATE SEQUENCE idem.fence CACHE 1;
COMMENT ON SEQUENCE idem.fence IS
	'fences of lease and session claims; later holders have greater ones';

-- No index covers what completing changes, and the fillfactor leaves room for
-- the completed version beside the claimed one: updates stay HOT.
CREATE TABLE idem.key (
	scope pg_catalog.text COLLATE pg_catalog."C" NOT NULL,
	key pg_catalog.text COLLATE pg_catalog."C" NOT NULL,
	state pg_catalog.text COLLATE pg_catalog."C" NOT NULL,
	hold pg_catalog.text COLLATE pg_catalog."C",
	attempt pg_catalog.int4 NOT NULL,
	fence pg_catalog.int8,
	lease_until pg_catalog.timestamptz,
	expires_at pg_catalog.timestamptz,
	fingerprint pg_catalog.bytea,
	step pg_catalog.text,
	progress pg_catalog.jsonb,
	response pg_catalog.text,
	code pg_catalog.int4,
	created_at pg_catalog.timestamptz NOT NULL,
	finished_at pg_catalog.timestamptz,
	function pg_catalog.text,
	result pg_catalog.text,
	ttl pg_catalog.interval,
	claimed_at pg_catalog.timestamptz,
	PRIMARY KEY (key, scope)
) WITH (fillfactor = 45);
COMMENT ON TABLE idem.key IS 'one row per idempotency key; written by the idem verbs only';
COMMENT ON COLUMN idem.key.state IS 'open, in_progress, completed or failed';
COMMENT ON COLUMN idem.key.hold IS 'how it was claimed last: transaction, lease or session; NULL if released, marked or imported';
COMMENT ON COLUMN idem.key.attempt IS 'number of the latest attempt';
COMMENT ON COLUMN idem.key.fence IS 'number of the latest lease or session claim, greater for each later one';
COMMENT ON COLUMN idem.key.lease_until IS 'in progress: end of the lease; open: not to be claimed before';
COMMENT ON COLUMN idem.key.expires_at IS 'from then on the row counts as absent and may be swept; NULL: never, or not known yet';
COMMENT ON COLUMN idem.key.fingerprint IS 'digest of the canonical request, a version byte in front';
COMMENT ON COLUMN idem.key.step IS 'how far the holder has come';
COMMENT ON COLUMN idem.key.response IS 'what was stored on completion, or the last error';
COMMENT ON COLUMN idem.key.ttl IS 'retention asked for by the claim; NULL: the scope''s';
COMMENT ON COLUMN idem.key.claimed_at IS 'when the lease or session claim was made';

CREATE TABLE idem.scope (
	name pg_catalog.text COLLATE pg_catalog."C" PRIMARY KEY
		CHECK (pg_catalog.octet_length(name) OPERATOR(pg_catalog.>=) 1
			AND pg_catalog.octet_length(name) OPERATOR(pg_catalog.<=) 128
			AND pg_catalog.strpos(name, '/') OPERATOR(pg_catalog.=) 0),
	hold pg_catalog.text
		CHECK (hold OPERATOR(pg_catalog.=) ANY ('{transaction,lease,session}'::pg_catalog.text[])),
	lease pg_catalog.interval
		CHECK (lease OPERATOR(pg_catalog.>) '0 s'::pg_catalog.interval
			AND lease OPERATOR(pg_catalog.<=) '1000 years'::pg_catalog.interval),
	ttl pg_catalog.interval
		CHECK (ttl OPERATOR(pg_catalog.>) '0 s'::pg_catalog.interval
			AND ttl OPERATOR(pg_catalog.<=) '1000 years'::pg_catalog.interval),
	no_expiry pg_catalog.bool NOT NULL DEFAULT false,
	max_response pg_catalog.int4 CHECK (max_response OPERATOR(pg_catalog.>=) 0),
	max_attempts pg_catalog.int4 CHECK (max_attempts OPERATOR(pg_catalog.>=) 1),
	roles pg_catalog.name[],
	keep_failures pg_catalog.interval
		CHECK (keep_failures OPERATOR(pg_catalog.>) '0 s'::pg_catalog.interval
			AND keep_failures OPERATOR(pg_catalog.<=) '1000 years'::pg_catalog.interval)
);
COMMENT ON TABLE idem.scope IS 'settings of scopes; NULL inherits from row "default" (roles never), then from what is built in';
COMMENT ON COLUMN idem.scope.name IS 'the scope''s name; "name/tenant" uses the settings of "name"';
COMMENT ON COLUMN idem.scope.hold IS 'hold of claims that name none; built in: transaction';
COMMENT ON COLUMN idem.scope.lease IS 'hold time of leases that name none; built in: 60 s';
COMMENT ON COLUMN idem.scope.ttl IS 'retention of finished keys; built in: 24 h';
COMMENT ON COLUMN idem.scope.no_expiry IS 'finished keys are kept for ever';
COMMENT ON COLUMN idem.scope.max_response IS 'bytes that a response, error or progress may have; built in: 1 MiB';
COMMENT ON COLUMN idem.scope.max_attempts IS 'attempts after which a claim is answered "failed"; built in: no limit';
COMMENT ON COLUMN idem.scope.roles IS 'roles whose members may use the scope; NULL: all that may call the verbs';
COMMENT ON COLUMN idem.scope.keep_failures IS 'retention of failed keys; NULL: as ttl';

CREATE FUNCTION idem_catalog_changed() RETURNS pg_catalog.trigger
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_catalog_changed() IS
'Trigger on tables of settings and definitions: tells every session that one changed. Argument: which, if not the trigger''s own.';

CREATE TRIGGER changed AFTER INSERT OR UPDATE OR DELETE ON idem.scope
	FOR EACH ROW EXECUTE FUNCTION idem_catalog_changed();
CREATE TRIGGER emptied AFTER TRUNCATE ON idem.scope
	FOR EACH STATEMENT EXECUTE FUNCTION idem_catalog_changed();
ALTER TABLE idem.scope ENABLE ALWAYS TRIGGER changed;
ALTER TABLE idem.scope ENABLE ALWAYS TRIGGER emptied;

CREATE VIEW idem.held AS
	SELECT scope, key, hold, claimed_at AS since, lease_until, attempt, step
	FROM idem.key
	WHERE state OPERATOR(pg_catalog.=) 'in_progress';
COMMENT ON VIEW idem.held IS 'committed claims in progress: who holds what, since when and until when';

CREATE TYPE idem_claimed AS (
	run pg_catalog.bool,
	outcome pg_catalog.text,
	attempt pg_catalog.int4,
	fence pg_catalog.int8,
	step pg_catalog.text,
	progress pg_catalog.jsonb,
	response pg_catalog.text,
	code pg_catalog.int4,
	retry_after pg_catalog.int4,
	expires_at pg_catalog.timestamptz
);
COMMENT ON TYPE idem_claimed IS 'verdict of idem_claim()';

CREATE FUNCTION idem_key() RETURNS pg_catalog.text
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE PARALLEL SAFE;
COMMENT ON FUNCTION idem_key() IS
'The idempotency key of the current request: setting "idem.key", which a middleware sets once with set_config(''idem.key'', $1, true). NULL if it is not set or empty.';

CREATE FUNCTION idem_claim_key(key pg_catalog.text) RETURNS idem_claimed
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_claim_key(pg_catalog.text) IS
'What idem_claim(key) without further arguments is planned as; call idem_claim().';

CREATE FUNCTION idem_claim_support(pg_catalog.internal) RETURNS pg_catalog.internal
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION idem_claim_support(pg_catalog.internal) IS
'Planner support of idem_claim().';

CREATE FUNCTION idem_claim(
	key pg_catalog.text DEFAULT idem_key(),
	request pg_catalog.jsonb DEFAULT NULL,
	scope pg_catalog.text DEFAULT NULL,
	hold pg_catalog.text DEFAULT NULL,
	lease pg_catalog.interval DEFAULT NULL,
	ttl pg_catalog.interval DEFAULT NULL,
	wait pg_catalog.interval DEFAULT NULL
) RETURNS idem_claimed
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE
	SUPPORT idem_claim_support;
COMMENT ON FUNCTION idem_claim(pg_catalog.text, pg_catalog.jsonb, pg_catalog.text, pg_catalog.text, pg_catalog.interval, pg_catalog.interval, pg_catalog.interval) IS
'Claims a key: do the work only if "run". Outcomes: claimed, takeover (run); completed, failed, in_progress, mismatch (do not run). key: 1 to 1024 bytes. request: compared with that of the record. scope: "name" or "name/tenant", NULL the setting idem.scope, else "default". hold: transaction, lease or session, NULL the scope''s. lease: hold time, implies hold lease. ttl: retention after completion. wait: how long to sleep behind another''s uncommitted claim, NULL until it ends, ''0 s'' not at all. Errors: ID400 bad argument, ID500 undeclared scope, or at COMMIT a transaction claim left unfinished, 42501 scope not allowed, 40001 snapshot too old to run on, 25006 read-only.';

CREATE FUNCTION idem_complete(
	key pg_catalog.text DEFAULT idem_key(),
	response pg_catalog.text DEFAULT NULL,
	scope pg_catalog.text DEFAULT NULL,
	fence pg_catalog.int8 DEFAULT NULL,
	code pg_catalog.int4 DEFAULT NULL
) RETURNS pg_catalog.bool
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_complete(pg_catalog.text, pg_catalog.text, pg_catalog.text, pg_catalog.int8, pg_catalog.int4) IS
'Ends a claim with success; later claims get response and code, byte for byte. fence: that of a committed lease claim. Returns true. Errors: ID400 bad argument or missing fence, ID409 claim not held by the caller or already ended, ID500 response larger than the scope allows.';

CREATE FUNCTION idem_complete(
	key pg_catalog.text,
	response pg_catalog.json,
	scope pg_catalog.text DEFAULT NULL,
	fence pg_catalog.int8 DEFAULT NULL,
	code pg_catalog.int4 DEFAULT NULL
) RETURNS pg_catalog.bool
	AS 'MODULE_PATHNAME', 'idem_complete' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_complete(pg_catalog.text, pg_catalog.json, pg_catalog.text, pg_catalog.int8, pg_catalog.int4) IS
'Ends a claim with success; the response is the json''s text as given. Otherwise as with a text response.';

CREATE FUNCTION idem_complete(
	key pg_catalog.text,
	response pg_catalog.jsonb,
	scope pg_catalog.text DEFAULT NULL,
	fence pg_catalog.int8 DEFAULT NULL,
	code pg_catalog.int4 DEFAULT NULL
) RETURNS pg_catalog.bool
	AS 'MODULE_PATHNAME', 'idem_complete_jsonb' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_complete(pg_catalog.text, pg_catalog.jsonb, pg_catalog.text, pg_catalog.int8, pg_catalog.int4) IS
'Ends a claim with success; the response is the jsonb''s text. Otherwise as with a text response.';

CREATE FUNCTION idem_fail(
	key pg_catalog.text DEFAULT idem_key(),
	error pg_catalog.text DEFAULT NULL,
	scope pg_catalog.text DEFAULT NULL,
	fence pg_catalog.int8 DEFAULT NULL,
	code pg_catalog.int4 DEFAULT NULL
) RETURNS pg_catalog.bool
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_fail(pg_catalog.text, pg_catalog.text, pg_catalog.text, pg_catalog.int8, pg_catalog.int4) IS
'Ends a claim for good with an error; later claims get "failed" with error and code. Returns true. Errors: as idem_complete().';

CREATE FUNCTION idem_retry(
	key pg_catalog.text DEFAULT idem_key(),
	error pg_catalog.text DEFAULT NULL,
	scope pg_catalog.text DEFAULT NULL,
	fence pg_catalog.int8 DEFAULT NULL,
	after pg_catalog.interval DEFAULT NULL
) RETURNS pg_catalog.bool
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_retry(pg_catalog.text, pg_catalog.text, pg_catalog.text, pg_catalog.int8, pg_catalog.interval) IS
'Ends a claim whose work failed for now: the key can be claimed again, the attempt counts. after: until then claims get in_progress. Returns true. Errors: as idem_complete().';

CREATE FUNCTION idem_release(
	key pg_catalog.text DEFAULT idem_key(),
	scope pg_catalog.text DEFAULT NULL,
	fence pg_catalog.int8 DEFAULT NULL
) RETURNS pg_catalog.bool
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_release(pg_catalog.text, pg_catalog.text, pg_catalog.int8) IS
'Gives a claim back as if it had not been made. Returns true. Errors: as idem_complete().';

CREATE FUNCTION idem_renew(
	key pg_catalog.text DEFAULT idem_key(),
	lease pg_catalog.interval DEFAULT NULL,
	scope pg_catalog.text DEFAULT NULL,
	fence pg_catalog.int8 DEFAULT NULL
) RETURNS pg_catalog.timestamptz
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_renew(pg_catalog.text, pg_catalog.interval, pg_catalog.text, pg_catalog.int8) IS
'Lets a lease claim last for "lease" from now on (NULL: the scope''s). Returns the new deadline. Errors: ID400 bad argument, missing fence or no lease claim, ID409 claim not held by the caller or already ended.';

CREATE FUNCTION idem_step(
	key pg_catalog.text DEFAULT idem_key(),
	step pg_catalog.text DEFAULT NULL,
	progress pg_catalog.jsonb DEFAULT NULL,
	scope pg_catalog.text DEFAULT NULL,
	fence pg_catalog.int8 DEFAULT NULL
) RETURNS pg_catalog.bool
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_step(pg_catalog.text, pg_catalog.text, pg_catalog.jsonb, pg_catalog.text, pg_catalog.int8) IS
'Records a recovery point, which a takeover gets to see. step: required. Returns true. Errors: ID400 bad argument or missing fence, ID409 claim not held by the caller or already ended, ID500 progress larger than the scope allows.';

CREATE FUNCTION idem_unfinished(OUT scope pg_catalog.text, OUT key pg_catalog.text)
	RETURNS SETOF pg_catalog.record
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_unfinished() IS
'The transaction claims of this transaction that COMMIT would refuse.';

CREATE FUNCTION idem_lookup(
	key pg_catalog.text DEFAULT idem_key(),
	scope pg_catalog.text DEFAULT NULL,
	OUT outcome pg_catalog.text,
	OUT attempt pg_catalog.int4,
	OUT step pg_catalog.text,
	OUT progress pg_catalog.jsonb,
	OUT response pg_catalog.text,
	OUT code pg_catalog.int4,
	OUT created_at pg_catalog.timestamptz,
	OUT finished_at pg_catalog.timestamptz,
	OUT expires_at pg_catalog.timestamptz
) RETURNS SETOF pg_catalog.record
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 1;
COMMENT ON FUNCTION idem_lookup(pg_catalog.text, pg_catalog.text) IS
'The record of a key without claiming it: 0 or 1 row. outcome: open, in_progress, completed or failed. Works on a standby. Errors: ID400 bad argument, ID500 undeclared scope, 42501 scope not allowed.';

CREATE FUNCTION idem_once(
	key pg_catalog.text,
	scope pg_catalog.text DEFAULT NULL,
	ttl pg_catalog.interval DEFAULT NULL
) RETURNS pg_catalog.bool
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_once(pg_catalog.text, pg_catalog.text, pg_catalog.interval) IS
'Marks a key as done: true for exactly one caller, unless its transaction rolls back. ttl: retention. Errors: ID400 bad argument, ID500 undeclared scope, 42501 scope not allowed, 40001 snapshot too old to run on, 25006 read-only.';

CREATE FUNCTION idem_once_many(
	keys pg_catalog.text[],
	scope pg_catalog.text DEFAULT NULL,
	ttl pg_catalog.interval DEFAULT NULL
) RETURNS SETOF pg_catalog.text
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_once_many(pg_catalog.text[], pg_catalog.text, pg_catalog.interval) IS
'Marks many keys as done and returns those that were new, in the order given; of equal ones the first counts. Errors: as idem_once(); a missing or oversized key refuses the whole batch.';

CREATE FUNCTION idem_forget(
	key pg_catalog.text,
	scope pg_catalog.text DEFAULT NULL,
	force pg_catalog.bool DEFAULT false
) RETURNS pg_catalog.bool
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_forget(pg_catalog.text, pg_catalog.text, pg_catalog.bool) IS
'For operators: deletes the record of a key. force: also of a completed or a held one. Returns true. Errors: ID400 bad argument, ID404 no such key, ID409 completed or held and not forced.';

CREATE FUNCTION idem_reopen(
	key pg_catalog.text,
	scope pg_catalog.text DEFAULT NULL
) RETURNS pg_catalog.bool
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_reopen(pg_catalog.text, pg_catalog.text) IS
'For operators: lets a failed key be claimed once more, keeping its attempt and fingerprint. Returns true. Errors: ID400 bad argument, ID404 no such key, ID409 not failed.';

CREATE FUNCTION idem_import(
	key pg_catalog.text,
	response pg_catalog.text DEFAULT NULL,
	scope pg_catalog.text DEFAULT NULL,
	created_at pg_catalog.timestamptz DEFAULT NULL,
	ttl pg_catalog.interval DEFAULT NULL
) RETURNS pg_catalog.bool
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_import(pg_catalog.text, pg_catalog.text, pg_catalog.text, pg_catalog.timestamptz, pg_catalog.interval) IS
'For operators: records a key as completed before, at created_at (NULL: now). True if it was stored, false if the key is known or its retention would be over. Errors: ID400 bad argument, ID500 response larger than the scope allows.';

CREATE FUNCTION idem_import_many(
	keys pg_catalog.text[],
	responses pg_catalog.text[] DEFAULT NULL,
	scope pg_catalog.text DEFAULT NULL,
	created_at pg_catalog.timestamptz DEFAULT NULL,
	ttl pg_catalog.interval DEFAULT NULL
) RETURNS pg_catalog.int8
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_import_many(pg_catalog.text[], pg_catalog.text[], pg_catalog.text, pg_catalog.timestamptz, pg_catalog.interval) IS
'For operators: idem_import() for arrays of equal length; returns how many were stored.';

CREATE FUNCTION idem_fence_advance(n pg_catalog.int8) RETURNS pg_catalog.int8
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_fence_advance(pg_catalog.int8) IS
'For operators, after a restore from the past: every later fence is greater than n. Never goes back; returns the number that is passed now. Errors: ID400 n out of range.';
-- Idempotent functions: a function runs once per key, its result is replayed.

CREATE FUNCTION idem_child(
	key pg_catalog.text,
	name pg_catalog.text,
	scope pg_catalog.text DEFAULT NULL
) RETURNS pg_catalog.text
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE PARALLEL UNSAFE;
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
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_call(pg_catalog.text, pg_catalog.regprocedure, pg_catalog.jsonb, pg_catalog.text, pg_catalog.interval, pg_catalog.interval) IS
'Runs a function once per key, in the caller''s transaction, and returns its result as JSON; called again with the same key it returns the stored result. args: a JSON object by parameter name, or an array by position. ttl, wait: as idem_claim(). Needs EXECUTE on the function. Errors: ID400 bad argument, ID409 key failed before or held by someone else after wait, ID422 key used before for another function or other arguments, ID500 same key around the call, undeclared scope or result too large, and whatever the function raises.';

CREATE FUNCTION idem_twin(
	function pg_catalog.text,
	key pg_catalog.text
) RETURNS SETOF pg_catalog.record
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_twin(pg_catalog.text, pg_catalog.text) IS
'What the body of a twin made by idem_wrap() calls; for a function without parameters.';

CREATE FUNCTION idem_twin(
	function pg_catalog.text,
	key pg_catalog.text,
	VARIADIC args pg_catalog."any"
) RETURNS SETOF pg_catalog.record
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_twin(pg_catalog.text, pg_catalog.text, "any") IS
'What the body of a twin made by idem_wrap() calls: as idem_call(), for typed arguments and a typed result, which is a set or has several columns.';

CREATE FUNCTION idem_twin_value(
	function pg_catalog.text,
	key pg_catalog.text,
	result pg_catalog.anyelement
) RETURNS pg_catalog.anyelement
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_twin_value(pg_catalog.text, pg_catalog.text, anyelement) IS
'What the body of a twin made by idem_wrap() calls; for a function without parameters whose result is one value.';

CREATE FUNCTION idem_twin_value(
	function pg_catalog.text,
	key pg_catalog.text,
	result pg_catalog.anyelement,
	VARIADIC args pg_catalog."any"
) RETURNS pg_catalog.anyelement
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_twin_value(pg_catalog.text, pg_catalog.text, anyelement, "any") IS
'What the body of a twin made by idem_wrap() calls: as idem_call(), for typed arguments and one typed value as result. result: a NULL of its type.';

CREATE FUNCTION idem_wrap(
	function pg_catalog.regprocedure,
	name pg_catalog.text DEFAULT NULL
) RETURNS pg_catalog.regprocedure
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_wrap(pg_catalog.regprocedure, pg_catalog.text) IS
'Makes a typed twin of a function, owned by the caller: the key is its first parameter, the others and the result are the original''s, and a repeated key returns the first result. name: of the twin, in the function''s schema unless qualified; NULL: the function''s name and "_once". Returns the twin. Errors: ID400 function cannot be wrapped, 42501 no CREATE on the schema, 42723 name taken. Warns of defaults that are not constant: a retry has to pass them.';
-- Tables that skip repeated inserts.

-- The place of a row that is just being inserted.  Values are compared in the
-- WHEN clause of one of the triggers only, for the effect of that.
CREATE TYPE idem_inserted;
CREATE FUNCTION idem_inserted_in(pg_catalog.cstring) RETURNS idem_inserted
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL UNSAFE;
CREATE FUNCTION idem_inserted_out(idem_inserted) RETURNS pg_catalog.cstring
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL UNSAFE;
CREATE TYPE idem_inserted (
	INPUT = idem_inserted_in,
	OUTPUT = idem_inserted_out,
	LIKE = pg_catalog.tid
);
CREATE CAST (pg_catalog.tid AS idem_inserted) WITHOUT FUNCTION;
CREATE FUNCTION idem_inserted_cmp(idem_inserted, idem_inserted) RETURNS pg_catalog.int4
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
CREATE OPERATOR CLASS idem_inserted_ops DEFAULT FOR TYPE idem_inserted USING btree AS
	FUNCTION 1 idem_inserted_cmp(idem_inserted, idem_inserted);
COMMENT ON TYPE idem_inserted IS 'used by the triggers of idem_attach_once() only';
COMMENT ON CAST (pg_catalog.tid AS idem_inserted) IS 'used by the triggers of idem_attach_once() only';
COMMENT ON OPERATOR CLASS idem_inserted_ops USING btree IS 'used by the triggers of idem_attach_once() only';
COMMENT ON FUNCTION idem_inserted_in(pg_catalog.cstring) IS 'input function of type idem_inserted';
COMMENT ON FUNCTION idem_inserted_out(idem_inserted) IS 'output function of type idem_inserted';
COMMENT ON FUNCTION idem_inserted_cmp(idem_inserted, idem_inserted) IS 'comparison function of type idem_inserted';

CREATE FUNCTION idem_once_row() RETURNS pg_catalog.trigger
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_once_row() IS 'trigger function of idem_attach_once()';

CREATE FUNCTION idem_attach_once(
	table_name pg_catalog.regclass,
	columns pg_catalog.name[],
	scope pg_catalog.text DEFAULT NULL,
	ttl pg_catalog.interval DEFAULT NULL
) RETURNS pg_catalog.bool
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_attach_once(pg_catalog.regclass, pg_catalog.name[], pg_catalog.text, pg_catalog.interval) IS
'Makes a table, or a partitioned one with all its partitions, skip repeated inserts: of rows with the same values in "columns" the first is inserted, the others are not. Records the keys of the rows that are there. scope: where the keys are kept, NULL "once." and the table''s name. ttl: for how long, NULL for ever. Returns true. Errors: ID400 bad argument, ID500 the table already holds repeated rows, 42501 not the owner, 42703 no such column, 42710 already attached, 42809 not a table to which this applies.';

CREATE FUNCTION idem_detach_once(table_name pg_catalog.regclass)
	RETURNS pg_catalog.bool
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_detach_once(pg_catalog.regclass) IS
'Ends what idem_attach_once() began; the keys stay. Returns true. Errors: ID400 bad argument, ID500 not attached, 42501 not the owner.';
-- State machines: their definitions.
--
-- Three tables that say which states there are and which events lead from one
-- to another.  They may be written by idem_define() or by plain INSERT, UPDATE
-- and DELETE: what cannot be right is refused where it is written, either way.
-- A change to any of them is announced as one of idem.machine.

CREATE TABLE idem.machine (
	name pg_catalog.text COLLATE pg_catalog."C" PRIMARY KEY
		CHECK (pg_catalog.octet_length(name) OPERATOR(pg_catalog.>=) 1
			AND pg_catalog.octet_length(name) OPERATOR(pg_catalog.<=) 128),
	owner pg_catalog.name NOT NULL DEFAULT CURRENT_USER
);
COMMENT ON TABLE idem.machine IS 'state machines; only a machine''s owner (and who owns this table) changes it';
COMMENT ON COLUMN idem.machine.name IS 'what bindings and functions call it';
COMMENT ON COLUMN idem.machine.owner IS 'role whose members may change the machine';

CREATE TABLE idem.state (
	machine pg_catalog.text COLLATE pg_catalog."C" NOT NULL
		REFERENCES idem.machine ON UPDATE CASCADE ON DELETE CASCADE,
	name pg_catalog.text COLLATE pg_catalog."C" NOT NULL
		CHECK (pg_catalog.octet_length(name) OPERATOR(pg_catalog.>=) 1
			AND pg_catalog.octet_length(name) OPERATOR(pg_catalog.<=) 128
			AND name OPERATOR(pg_catalog.<>) '*'),
	initial pg_catalog.bool NOT NULL DEFAULT false,
	final pg_catalog.bool NOT NULL DEFAULT false,
	frozen pg_catalog.bool NOT NULL DEFAULT false,
	self pg_catalog.text COLLATE pg_catalog."C" NOT NULL DEFAULT 'noop'
		CHECK (self OPERATOR(pg_catalog.=) ANY ('{deny,noop,reenter}'::pg_catalog.text[])),
	PRIMARY KEY (machine, name)
);
COMMENT ON TABLE idem.state IS 'the states of a machine; deleting one takes its transitions along and is refused while rows are in it';
COMMENT ON COLUMN idem.state.name IS 'the value in the state column, as text';
COMMENT ON COLUMN idem.state.initial IS 'a row may be inserted in it';
COMMENT ON COLUMN idem.state.final IS 'no transition leaves it; other columns may change';
COMMENT ON COLUMN idem.state.frozen IS 'every UPDATE of a row in it is refused';
COMMENT ON COLUMN idem.state.self IS 'what a transition from the state to itself is: deny, noop (passes, leaves no trace) or reenter (a transition like any other)';

CREATE TABLE idem.transition (
	machine pg_catalog.text COLLATE pg_catalog."C" NOT NULL,
	event pg_catalog.text COLLATE pg_catalog."C" NOT NULL
		CHECK (pg_catalog.octet_length(event) OPERATOR(pg_catalog.>=) 1
			AND pg_catalog.octet_length(event) OPERATOR(pg_catalog.<=) 128),
	from_state pg_catalog.text COLLATE pg_catalog."C" NOT NULL,
	to_state pg_catalog.text COLLATE pg_catalog."C" NOT NULL,
	priority pg_catalog.int4 NOT NULL DEFAULT 0,
	guard pg_catalog.text COLLATE pg_catalog."C"
		CHECK (pg_catalog.octet_length(guard) OPERATOR(pg_catalog.<=) 8192),
	roles pg_catalog.name[],
	after pg_catalog.interval
		CHECK (after OPERATOR(pg_catalog.>=) '0 s'::pg_catalog.interval
			AND after OPERATOR(pg_catalog.<=) '1000 years'::pg_catalog.interval),
	PRIMARY KEY (machine, event, from_state, priority),
	FOREIGN KEY (machine, to_state) REFERENCES idem.state
		ON UPDATE CASCADE ON DELETE CASCADE
);
CREATE INDEX transition_to_state ON idem.transition (machine, to_state);
COMMENT ON TABLE idem.transition IS 'the transitions of a machine, tried in the order of priority, then event';
COMMENT ON COLUMN idem.transition.event IS 'what idem_fire() calls it';
COMMENT ON COLUMN idem.transition.from_state IS 'a state that is not final, or "*": every such state but to_state itself';
COMMENT ON COLUMN idem.transition.to_state IS 'where it leads';
COMMENT ON COLUMN idem.transition.priority IS 'lower numbers are tried first';
COMMENT ON COLUMN idem.transition.guard IS 'boolean SQL expression over old and new; NULL: always; where it gives NULL, the transition is not taken';
COMMENT ON COLUMN idem.transition.roles IS 'roles whose members may take it; NULL: everybody';
COMMENT ON COLUMN idem.transition.after IS 'taken by idem_tick() when a row has been in from_state so long; NULL: not by itself';

CREATE FUNCTION idem_machine_check() RETURNS pg_catalog.trigger
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_machine_check() IS
'Trigger on idem.machine, idem.state and idem.transition: who may write there, and what may stand there.';

CREATE TRIGGER checked AFTER INSERT OR UPDATE OR DELETE ON idem.machine
	FOR EACH ROW EXECUTE FUNCTION idem_machine_check();
CREATE TRIGGER checked AFTER INSERT OR UPDATE OR DELETE ON idem.state
	FOR EACH ROW EXECUTE FUNCTION idem_machine_check();
CREATE TRIGGER checked AFTER INSERT OR UPDATE OR DELETE ON idem.transition
	FOR EACH ROW EXECUTE FUNCTION idem_machine_check();
CREATE TRIGGER changed AFTER INSERT OR UPDATE OR DELETE ON idem.machine
	FOR EACH ROW EXECUTE FUNCTION idem_catalog_changed('machine');
CREATE TRIGGER emptied AFTER TRUNCATE ON idem.machine
	FOR EACH STATEMENT EXECUTE FUNCTION idem_catalog_changed('machine');
CREATE TRIGGER changed AFTER INSERT OR UPDATE OR DELETE ON idem.state
	FOR EACH ROW EXECUTE FUNCTION idem_catalog_changed('machine');
CREATE TRIGGER emptied AFTER TRUNCATE ON idem.state
	FOR EACH STATEMENT EXECUTE FUNCTION idem_catalog_changed('machine');
CREATE TRIGGER changed AFTER INSERT OR UPDATE OR DELETE ON idem.transition
	FOR EACH ROW EXECUTE FUNCTION idem_catalog_changed('machine');
CREATE TRIGGER emptied AFTER TRUNCATE ON idem.transition
	FOR EACH STATEMENT EXECUTE FUNCTION idem_catalog_changed('machine');
ALTER TABLE idem.machine ENABLE ALWAYS TRIGGER changed;
ALTER TABLE idem.machine ENABLE ALWAYS TRIGGER emptied;
ALTER TABLE idem.state ENABLE ALWAYS TRIGGER changed;
ALTER TABLE idem.state ENABLE ALWAYS TRIGGER emptied;
ALTER TABLE idem.transition ENABLE ALWAYS TRIGGER changed;
ALTER TABLE idem.transition ENABLE ALWAYS TRIGGER emptied;

CREATE FUNCTION idem_define(
	machine pg_catalog.text,
	definition pg_catalog.text,
	moved pg_catalog.jsonb DEFAULT NULL
) RETURNS pg_catalog.bool
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_define(pg_catalog.text, pg_catalog.text, pg_catalog.jsonb) IS
'For operators: makes a machine what the text of a Mermaid state diagram says, or changes it to that; nothing is written if it is that already. moved: an object of states that go and the states that their rows move to, as the caller; history calls this event "migrate". Returns true. Errors: ID400 bad argument, ID500 malformed definition (with its line), or rows are in a state that goes, 42501 not the machine''s owner, 42704 no such role.';

CREATE FUNCTION idem_diagram(
	machine pg_catalog.text,
	format pg_catalog.text DEFAULT 'mermaid',
	counts pg_catalog.bool DEFAULT false
) RETURNS pg_catalog.text
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_diagram(pg_catalog.text, pg_catalog.text, pg_catalog.bool) IS
'A machine as text: "mermaid", which idem_define() accepts, or "dot" for graphviz. counts: with the rows that are in each state, counted as the caller, and how often each transition was taken, from idem.history. Errors: ID400 bad argument, ID500 no such machine, 42501 no SELECT on a bound table.';

CREATE FUNCTION idem_lint(
	machine pg_catalog.text,
	OUT code pg_catalog.text,
	OUT severity pg_catalog.text,
	OUT what pg_catalog.text,
	OUT rows pg_catalog.int8
) RETURNS SETOF pg_catalog.record
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_lint(pg_catalog.text) IS
'What is probably not meant in a machine: code, severity (error, warning, note), what, and how many rows are concerned, counted as the caller where he may read the bound tables (else NULL). Errors: ID400 bad argument, ID500 no such machine.';

CREATE FUNCTION idem_export() RETURNS SETOF pg_catalog.text
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_export() IS
'For operators: the statements that make the machines and the rows of idem.scope of this database in another; bindings are part of its schema.';
-- State machines: tables whose rows move only as a machine says.

CREATE FUNCTION idem_guard() RETURNS pg_catalog.trigger
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_guard() IS
'Trigger made by idem_attach(). Arguments: machine, options as JSON, tag of the binding, the table as it was called when it was attached.';

CREATE FUNCTION idem_not_initial_support(pg_catalog.internal)
	RETURNS pg_catalog.internal
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION idem_not_initial_support(pg_catalog.internal) IS
'Planner support of idem_not_initial().';

CREATE FUNCTION idem_not_initial(value pg_catalog."any", machine pg_catalog.text)
	RETURNS pg_catalog.bool
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE PARALLEL UNSAFE
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
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE PARALLEL UNSAFE
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
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_attach(pg_catalog.text, pg_catalog.regclass, pg_catalog.name, pg_catalog.bool, pg_catalog.bool, pg_catalog.text, pg_catalog.name[], pg_catalog.bool, pg_catalog.bool, pg_catalog.text, pg_catalog.interval) IS
'Lets a column of a table move only as a machine says. history: every move is recorded; needs a primary key. events_only: the column is written by idem_fire() alone. on_delete: any, final (rows in a final state) or never. exempt: roles that are not checked. accept_existing: rows in no state of the machine may stay. validate: false does not look at rows. mode: enforce, or observe (what would be refused is a warning). keep: how long history is kept, NULL for ever. NULL options are their defaults. Returns true. Errors: ID400 bad argument, ID500 no such machine, rows in no state, 42501 not the owner, 42710 column attached already, 42809 not such a table, 42703 or 42804 not such a column, 55000 no primary key.';

CREATE FUNCTION idem_detach(
	table_name pg_catalog.regclass,
	column_name pg_catalog.name
) RETURNS pg_catalog.bool
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_detach(pg_catalog.regclass, pg_catalog.name) IS
'Takes a machine off a column; rows, history and the machine stay. Returns true. Errors: ID400 missing argument, ID500 nothing attached, 42501 not the owner.';

CREATE FUNCTION idem_verify(
	table_name pg_catalog.regclass,
	OUT row_key pg_catalog.jsonb,
	OUT machine pg_catalog.text,
	OUT state pg_catalog.text
) RETURNS SETOF pg_catalog.record
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE PARALLEL UNSAFE;
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
		pg_catalog.getdatabaseencoding())::pg_catalog.jsonb) AS options (options)
WHERE t.tgfoid OPERATOR(pg_catalog.=) 'idem_guard'::pg_catalog.regproc
	AND t.tgtype OPERATOR(pg_catalog.=) 19	-- before update of a row
	AND t.tgparentid OPERATOR(pg_catalog.=) 0::pg_catalog.oid
	AND t.tgnargs OPERATOR(pg_catalog.=) 4
	AND NOT pg_catalog.jsonb_exists(options.options, 'child');
COMMENT ON VIEW idem.binding IS
'One row per machine and column of a table that was attached; options are those that are not default.';
-- State machines: what has happened.

CREATE SEQUENCE idem.history_seq;
COMMENT ON SEQUENCE idem.history_seq IS 'numbers of the rows of idem.history';

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
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_history_protect() IS
'Trigger on idem.history: refuses UPDATE and TRUNCATE, and DELETE of rows whose time is not over.';

CREATE TRIGGER protected BEFORE UPDATE OR TRUNCATE ON idem.history
	FOR EACH STATEMENT EXECUTE FUNCTION idem_history_protect();
CREATE TRIGGER protected_row BEFORE DELETE ON idem.history
	FOR EACH ROW EXECUTE FUNCTION idem_history_protect();

CREATE FUNCTION idem_history_changed() RETURNS pg_catalog.trigger
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_history_changed() IS
'Trigger made by idem_attach() with history: records what a statement did. Arguments: machine, options as JSON, tag of the binding.';

CREATE FUNCTION idem_history(table_name pg_catalog.regclass, id pg_catalog."any")
	RETURNS SETOF idem.history
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_history(pg_catalog.regclass, "any") IS
'What has happened to a row, in order. id: its primary key, of several columns as a JSON object. Needs SELECT on the table; under row security the row must be visible. Errors: ID400 id missing or not fitting, ID500 no primary key, 42501 no SELECT.';

CREATE FUNCTION idem_history(table_name pg_catalog.regclass, id pg_catalog.text)
	RETURNS SETOF idem.history
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_history(pg_catalog.regclass, pg_catalog.text) IS
'The same for an id given as text.';

-- Times are seconds, since few drivers read intervals.
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
		pg_catalog.lead(at) OVER (PARTITION BY table_schema, table_name, column_name, row_key, machine
			ORDER BY seq) AS until
	FROM idem.history
) AS stay
GROUP BY machine, state;
COMMENT ON VIEW idem.dwell IS 'how long rows stay in states, from idem.history';
COMMENT ON COLUMN idem.dwell.count IS 'rows whose latest entry is this state';
COMMENT ON COLUMN idem.dwell.median IS 'seconds spent in it by half of those that have left';
COMMENT ON COLUMN idem.dwell.p95 IS 'seconds spent in it at most by 95 of 100 that have left';
COMMENT ON COLUMN idem.dwell.oldest IS 'since when the one that has been in it longest is there';
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
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
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
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
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
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
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
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
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
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
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
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_fire_many(pg_catalog.regclass, pg_catalog.text, pg_catalog.text, pg_catalog.int8, pg_catalog.text, pg_catalog.jsonb, pg_catalog.text) IS
'The same for ids given as the text of an array.';

CREATE FUNCTION idem_allowed(
	table_name pg_catalog.regclass,
	id pg_catalog."any",
	OUT event pg_catalog.text,
	OUT to_state pg_catalog.text
) RETURNS SETOF pg_catalog.record
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_allowed(pg_catalog.regclass, "any") IS
'What the current role could fire on a row now: events and where they lead, guards included. Takes no lock. Empty if the row is missing. Errors: ID400 bad argument, ID500 no machine.';

CREATE FUNCTION idem_allowed(
	table_name pg_catalog.regclass,
	id pg_catalog.text,
	OUT event pg_catalog.text,
	OUT to_state pg_catalog.text
) RETURNS SETOF pg_catalog.record
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_allowed(pg_catalog.regclass, pg_catalog.text) IS
'The same for an id given as text.';

CREATE FUNCTION idem_why_not(
	table_name pg_catalog.regclass,
	id pg_catalog."any",
	event pg_catalog.text
) RETURNS pg_catalog.text
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_why_not(pg_catalog.regclass, "any", pg_catalog.text) IS
'Why the current role could not fire an event on a row now, in words that begin with the outcome that idem_try_fire() would give; NULL if it could. Takes no lock. Errors: ID400 bad argument, ID500 no such machine or event.';

CREATE FUNCTION idem_why_not(
	table_name pg_catalog.regclass,
	id pg_catalog.text,
	event pg_catalog.text
) RETURNS pg_catalog.text
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_why_not(pg_catalog.regclass, pg_catalog.text, pg_catalog.text) IS
'The same for an id given as text.';

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
	tries pg_catalog.int4 NOT NULL DEFAULT 0
);
CREATE INDEX timer_due ON idem.timer (due);
CREATE INDEX timer_row_hash ON idem.timer (row_hash);
-- so that it may be published
ALTER TABLE idem.timer REPLICA IDENTITY FULL;
COMMENT ON TABLE idem.timer IS 'rows that are in a state which a timed transition leaves, one per row and event; written with idem.history, read by idem_tick()';
COMMENT ON COLUMN idem.timer.table_schema IS 'schema of the table that the machine was attached to, as it was called then';
COMMENT ON COLUMN idem.timer.binding IS 'tag of the binding';
COMMENT ON COLUMN idem.timer.row_key IS 'the row''s whole primary key as an object by column name';
COMMENT ON COLUMN idem.timer.row_hash IS 'as in idem.history';
COMMENT ON COLUMN idem.timer.state IS 'the state that the row entered';
COMMENT ON COLUMN idem.timer.since IS 'when it did';
COMMENT ON COLUMN idem.timer.due IS 'when idem_tick() looks at it';
COMMENT ON COLUMN idem.timer.tries IS 'how often it could not be fired when it was due';

CREATE FUNCTION idem_tick(
	max_rows pg_catalog.int4 DEFAULT 1000,
	OUT table_name pg_catalog.text,
	OUT row_key pg_catalog.jsonb,
	OUT event pg_catalog.text,
	OUT outcome pg_catalog.text
) RETURNS SETOF pg_catalog.record
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_tick(pg_catalog.int4) IS
'For operators: fires timed transitions that are due, as the owners of their tables. max_rows: at most so many (NULL: no limit). Waits for no row. Returns what it did: applied; moved, missing, obsolete (nothing to do any more); guarded, error (tried again later, at growing intervals); refused (the table belongs to a superuser). Errors: ID400 bad argument.';
-- Versions: a write that is based on a stale version is refused.

CREATE FUNCTION idem_rowversion() RETURNS pg_catalog.trigger
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_rowversion() IS
'Trigger that idem_attach_version() makes: checks the version in the SET list and sets the next one. Errors: ID412 stale version (40001 if retryable), ID428 version missing, ID500 another trigger fires later, 22003 no further version.';

CREATE FUNCTION idem_attach_version(
	table_name pg_catalog.regclass,
	column_name pg_catalog.name,
	mode pg_catalog.text DEFAULT 'read',
	strict pg_catalog.bool DEFAULT false,
	retryable pg_catalog.bool DEFAULT false,
	ignore pg_catalog.name[] DEFAULT NULL
) RETURNS pg_catalog.bool
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_attach_version(pg_catalog.regclass, pg_catalog.name, pg_catalog.text, pg_catalog.bool, pg_catalog.bool, pg_catalog.name[]) IS
'Makes a column the version of its row: every UPDATE adds one, and one that gives another version than the current is refused. mode: read (the version that was read, or the next one, is current) or next (only the next one is). strict: an UPDATE must give a version. retryable: stale is 40001 in place of ID412. ignore: columns that alone neither check nor count. NULL options: the defaults. Only for the table''s owner. Returns true. Errors: ID400 bad argument, ID500 column not fit to be a version, 42703 no such column, 42710 table has a version already, 42804 not an integer, 42809 not a table.';

CREATE FUNCTION idem_detach_version(table_name pg_catalog.regclass) RETURNS pg_catalog.bool
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_detach_version(pg_catalog.regclass) IS
'Takes back idem_attach_version(); the column and its values stay. Only for the table''s owner. Returns true. Errors: ID400 no table given, ID500 table has no version.';

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
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_update(pg_catalog.regclass, "any", pg_catalog.int8, pg_catalog.jsonb) IS
'Changes a row if it still has the version that was read. id: its primary key, of any type; a key of several columns as jsonb by column name. version: as it was read. changes: new values by column name; {} only counts the version up. Outcomes: updated (version: the new one), stale (version and current: the row as it is now), missing. Runs as the caller. Errors: ID400 bad argument, id or value, ID428 version missing, ID500 table without version or primary key, 42501 not allowed, 40001 above READ COMMITTED if the row was changed meanwhile.';

CREATE FUNCTION idem_update(
	table_name pg_catalog.regclass,
	id pg_catalog.text,
	version pg_catalog.int8,
	changes pg_catalog.jsonb
) RETURNS idem_versioned
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_update(pg_catalog.regclass, pg_catalog.text, pg_catalog.int8, pg_catalog.jsonb) IS
'The same for an id that is text, as drivers send it: it is read as the key''s type.';

CREATE FUNCTION idem_delete(
	table_name pg_catalog.regclass,
	id pg_catalog."any",
	version pg_catalog.int8
) RETURNS idem_versioned
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_delete(pg_catalog.regclass, "any", pg_catalog.int8) IS
'Deletes a row if it still has the version that was read. Outcomes: deleted (version: the one it had), stale (version and current: the row as it is now), missing. Otherwise as idem_update().';

CREATE FUNCTION idem_delete(
	table_name pg_catalog.regclass,
	id pg_catalog.text,
	version pg_catalog.int8
) RETURNS idem_versioned
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_delete(pg_catalog.regclass, pg_catalog.text, pg_catalog.int8) IS
'The same for an id that is text, as drivers send it: it is read as the key''s type.';
-- One-time tokens.

-- A row is written twice at most, when the token is issued and when it is
-- used; the fillfactor leaves room for the second, which no index covers.
CREATE TABLE idem.token (
	hash pg_catalog.bytea PRIMARY KEY,
	created_at pg_catalog.timestamptz NOT NULL,
	expires_at pg_catalog.timestamptz NOT NULL,
	used_at pg_catalog.timestamptz,
	purpose pg_catalog.text COLLATE pg_catalog."C" NOT NULL,
	subject pg_catalog.text COLLATE pg_catalog."C",
	fingerprint pg_catalog.bytea,
	ends_older pg_catalog.timestamptz
) WITH (fillfactor = 45);
CREATE INDEX token_subject ON idem.token (subject, purpose, ends_older);
COMMENT ON TABLE idem.token IS 'one row per one-time token; written by the idem_token verbs only';
COMMENT ON COLUMN idem.token.hash IS 'SHA-256 of the token; the token itself is stored nowhere';
COMMENT ON COLUMN idem.token.expires_at IS 'from then on the token is not consumed any more; its row stays for 24 hours more';
COMMENT ON COLUMN idem.token.used_at IS 'when it was consumed; NULL: not yet';
COMMENT ON COLUMN idem.token.subject IS 'whose token it is; NULL: nobody''s';
COMMENT ON COLUMN idem.token.fingerprint IS 'digest of the request that it was issued for or, without one, was consumed for';
COMMENT ON COLUMN idem.token.ends_older IS 'tokens of this purpose and subject that were created before then count as expired; NULL: this one replaced none';

CREATE FUNCTION idem_token_issue(
	purpose pg_catalog.text,
	subject pg_catalog.text DEFAULT NULL,
	request pg_catalog.jsonb DEFAULT NULL,
	ttl pg_catalog.interval DEFAULT '15 min',
	replace pg_catalog.bool DEFAULT false
) RETURNS pg_catalog.text
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_token_issue(pg_catalog.text, pg_catalog.text, pg_catalog.jsonb, pg_catalog.interval, pg_catalog.bool) IS
'Makes a token that can be used once: 256 random bits as 43 characters of base64url, stored only hashed. purpose: what it is for, 1 to 128 bytes. subject: whose it is, 1 to 1024 bytes, NULL nobody''s. request: the only request it is good for, NULL any. ttl: how long. replace: the unused older tokens of this purpose and subject expire. Errors: ID400 bad argument, or replace without subject, 25006 read-only.';

CREATE FUNCTION idem_token_use(
	token pg_catalog.text,
	purpose pg_catalog.text,
	subject pg_catalog.text DEFAULT NULL,
	request pg_catalog.jsonb DEFAULT NULL
) RETURNS pg_catalog.text
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_token_use(pg_catalog.text, pg_catalog.text, pg_catalog.text, pg_catalog.jsonb) IS
'Uses a token, which rolls back with the caller''s transaction. Returns consumed (it was good, and is not any more), reused (consumed before), expired, unknown, or mismatch (issued for another purpose, subject or request, or consumed for another request). Waits for a use that is not committed yet. Errors: ID400 missing token or bad argument, 25006 read-only.';

CREATE FUNCTION idem_token_peek(
	token pg_catalog.text,
	purpose pg_catalog.text,
	subject pg_catalog.text DEFAULT NULL,
	request pg_catalog.jsonb DEFAULT NULL
) RETURNS pg_catalog.text
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_token_peek(pg_catalog.text, pg_catalog.text, pg_catalog.text, pg_catalog.jsonb) IS
'What idem_token_use() would answer, with valid in place of consumed. Writes nothing, locks nothing, waits for nobody, and works on a standby. Errors: ID400 missing token or bad argument.';
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
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_lease_acquire(pg_catalog.text, pg_catalog.interval, pg_catalog.interval, pg_catalog.text) IS
'Acquires a lease: work only if "run". Outcomes: acquired (fence, until), held (retry_after: seconds). name: 1 to 1024 bytes. lease: how long it lasts from the grant on. wait: how long to sleep until it is free, ''0 s'' not at all, NULL for ever. owner: who asks; the owner of a lease that has not run out gets it again, with the same fence and at least "lease" to go; NULL is nobody''s name. Errors: ID400 bad argument, 40001 snapshot too old to run on, 25006 read-only.';

CREATE FUNCTION idem_lease_renew(
	name pg_catalog.text,
	lease pg_catalog.interval,
	fence pg_catalog.int8
) RETURNS idem_lease_renewed
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_lease_renew(pg_catalog.text, pg_catalog.interval, pg_catalog.int8) IS
'Lets a lease last for "lease" from now on. Outcomes: renewed (until), lost (released, broken, taken over, or gone). One that ran out and was taken by nobody is renewed. Errors: ID400 bad argument, 25006 read-only.';

CREATE FUNCTION idem_lease_release(
	name pg_catalog.text,
	fence pg_catalog.int8
) RETURNS pg_catalog.text
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_lease_release(pg_catalog.text, pg_catalog.int8) IS
'Gives a lease back. Returns released (also when repeated), or lost (broken, taken over, or gone): then nothing is changed. Errors: ID400 bad argument, 25006 read-only.';

CREATE FUNCTION idem_lease_guard(
	name pg_catalog.text,
	fence pg_catalog.int8
) RETURNS pg_catalog.bool
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_lease_guard(pg_catalog.text, pg_catalog.int8) IS
'Returns true if the fence holds the lease, and keeps everybody else from it until the caller''s transaction ends. Renewing and releasing it does not wait for that. Errors: ID412 not held by this fence, ID400 bad argument, 40001 snapshot older than the grant, 25006 read-only.';

CREATE FUNCTION idem_lease_break(name pg_catalog.text) RETURNS pg_catalog.bool
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_lease_break(pg_catalog.text) IS
'For operators: takes a lease from whoever holds it, as soon as the transactions that guard it have ended. Returns true. Errors: ID400 bad argument, ID404 no such lease is held, 25006 read-only.';

-- A column that keeps the greatest fence a row was written under.

CREATE FUNCTION idem_fence_check() RETURNS pg_catalog.trigger
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_fence_check() IS
'Trigger that idem_attach_fence() makes, with the comparison in its condition. Errors: ID412 stale fence.';

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
	col pg_attribute;
	number int := 1;
	name text;
	stale text;
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

	-- the names of other columns' triggers are left alone
	LOOP
		name := '~idem_fence' || CASE WHEN number > 1 THEN '_' || number ELSE '' END;
		EXIT WHEN NOT EXISTS (SELECT FROM pg_trigger AS t WHERE t.tgrelid = rel.oid
			AND t.tgname IN (name, name || '_final'));
		number := number + 1;
	END LOOP;
	stale := format('NEW.%1$I OPERATOR(pg_catalog.<) OLD.%1$I OR NEW.%1$I IS NULL AND OLD.%1$I IS NOT NULL',
		column_name);
	EXECUTE format('CREATE TRIGGER %I BEFORE UPDATE ON %s FOR EACH ROW WHEN (%s) EXECUTE FUNCTION %s.idem_fence_check()',
		name, table_name, stale, schema);
	EXECUTE format('CREATE TRIGGER %I AFTER UPDATE ON %s FOR EACH ROW WHEN (%s) EXECUTE FUNCTION %s.idem_fence_check()',
		name || '_final', table_name, stale, schema);
	RETURN true;
END
$$;
COMMENT ON FUNCTION idem_attach_fence(pg_catalog.regclass, pg_catalog.name) IS
'Makes a column the fence of its row: an UPDATE that gives it a smaller fence than it has, or none, is refused (ID412). Only for the table''s owner. Returns true. Errors: ID400 bad argument, 42501 not the owner, 42703 no such column, 42710 column is a fence already, 42804 neither bigint nor integer, 42809 not a table of its own.';

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
		RAISE EXCEPTION 'column "%" of table "%" is not a fence',
			column_name, table_name USING ERRCODE = 'ID500',
			HINT = 'idem_attach_fence() makes it one.';
	END IF;
	RETURN true;
END
$$;
COMMENT ON FUNCTION idem_detach_fence(pg_catalog.regclass, pg_catalog.name) IS
'Takes back idem_attach_fence(); the column and its values stay. Only for the table''s owner. Returns true. Errors: ID400 bad argument, ID500 column is not a fence, 42501 not the owner.';
-- Sliding windows: at most so many hits in any span of time.

-- Unlogged: a crash empties it, which allows at most one window's hits again.
-- The fillfactor leaves room for the version with one hit more: updates stay
-- HOT.  Times do not compress.
CREATE UNLOGGED TABLE idem.window_hit (
	scope pg_catalog.text COLLATE pg_catalog."C" NOT NULL,
	key pg_catalog.text COLLATE pg_catalog."C" NOT NULL,
	hits pg_catalog.timestamptz[] NOT NULL,
	expires_at pg_catalog.timestamptz NOT NULL,
	PRIMARY KEY (key, scope)
) WITH (fillfactor = 50);
ALTER TABLE idem.window_hit ALTER COLUMN hits SET STORAGE EXTERNAL;
ALTER TABLE idem.window_hit ALTER COLUMN key SET STORAGE PLAIN;
ALTER TABLE idem.window_hit ALTER COLUMN scope SET STORAGE PLAIN;
COMMENT ON TABLE idem.window_hit IS 'one row per key of idem_window(); a crash empties it; written by idem_window() only';
COMMENT ON COLUMN idem.window_hit.hits IS 'times of the hits that may still count, oldest first';
COMMENT ON COLUMN idem.window_hit.expires_at IS 'when the latest hit leaves the window that it was made in; then the row may be swept';

CREATE TYPE idem_windowed AS (
	allowed pg_catalog.bool,
	count pg_catalog.int4,
	retry_after pg_catalog.int4
);
COMMENT ON TYPE idem_windowed IS 'verdict of idem_window()';

CREATE FUNCTION idem_window(
	key pg_catalog.text,
	span pg_catalog.interval,
	scope pg_catalog.text DEFAULT NULL,
	max pg_catalog.int4 DEFAULT 1,
	wait pg_catalog.interval DEFAULT NULL
) RETURNS idem_windowed
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_window(pg_catalog.text, pg_catalog.interval, pg_catalog.text, pg_catalog.int4, pg_catalog.interval) IS
'Makes a hit on a key, if in the span of time up to now there were fewer than max. Returns allowed; count: hits in the span, this one included, NULL if not known; retry_after: not allowed, whole seconds until there is room. key: 1 to 1024 bytes. span: greater than zero. scope: as idem_claim(). max: 1 to 10000. wait: how long to sleep behind a hit of the key that is not committed, NULL until it is, ''0 s'' not at all; when it runs out: not allowed, count NULL, retry_after 1. Never waits for room. A hit that is rolled back does not count; a crash of the server empties all windows. Errors: ID400 bad argument, ID500 undeclared scope, 42501 scope not allowed, 25006 read-only.';
-- Branches of sagas.

-- A row is written twice at most; the fillfactor leaves room for the second,
-- which no index covers.
CREATE TABLE idem.branch (
	saga pg_catalog.text COLLATE pg_catalog."C" NOT NULL,
	branch pg_catalog.text COLLATE pg_catalog."C" NOT NULL,
	seq pg_catalog.int4 NOT NULL,
	tried_at pg_catalog.timestamptz,
	confirmed_at pg_catalog.timestamptz,
	cancelled_at pg_catalog.timestamptz,
	expires_at pg_catalog.timestamptz,
	PRIMARY KEY (saga, branch, seq)
) WITH (fillfactor = 50);
COMMENT ON TABLE idem.branch IS 'one row per branch of a saga and sequence number: which calls it has had; written by idem_branch() only';
COMMENT ON COLUMN idem.branch.tried_at IS 'when its try ran; NULL: never';
COMMENT ON COLUMN idem.branch.confirmed_at IS 'when its confirm ran; NULL: not yet, or it was cancelled';
COMMENT ON COLUMN idem.branch.cancelled_at IS 'when its cancel ran or, without a try, forbade it; NULL: not yet, or it was confirmed';
COMMENT ON COLUMN idem.branch.expires_at IS 'from then on the row counts as absent and may be swept; NULL: never, as long as the branch is neither confirmed nor cancelled';

CREATE FUNCTION idem_branch(
	saga pg_catalog.text,
	branch pg_catalog.text,
	op pg_catalog.text,
	seq pg_catalog.int4 DEFAULT 1
) RETURNS pg_catalog.text
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_branch(pg_catalog.text, pg_catalog.text, pg_catalog.text, pg_catalog.int4) IS
'Whether a saga''s call on one of its branches may run, decided and recorded in the caller''s transaction. op: try, confirm or cancel. seq: tells several effects of one branch apart. Returns run (do the work), duplicate (done before: nothing to do), null_cancel (cancel before any try: nothing to do, a late try is suspended), suspended (not possible: try or confirm after cancel, cancel after confirm, confirm before try). Waits for a call on the same branch that is not committed yet. The branch is remembered for setting "idem.branch_ttl" after its end. Errors: ID400 bad argument, 40001 snapshot too old to run on, 25006 read-only.';
-- Sweeping: removal of what has expired.

CREATE TABLE idem.sweep_state (
	kind pg_catalog.text COLLATE pg_catalog."C" PRIMARY KEY,
	position pg_catalog.int8 NOT NULL
);
COMMENT ON TABLE idem.sweep_state IS 'where the next sweep goes on, per kind of record: a block of its table; "first" is the number of the kind that it begins with';
INSERT INTO idem.sweep_state VALUES ('first', 0), ('key', 0), ('history', 0), ('token', 0), ('branch', 0), ('lease', 0), ('window_hit', 0);

CREATE FUNCTION idem_sweep(
	max_rows pg_catalog.int4 DEFAULT 10000,
	budget pg_catalog.interval DEFAULT NULL,
	OUT kind pg_catalog.text,
	OUT removed pg_catalog.int8
) RETURNS SETOF pg_catalog.record
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_sweep(pg_catalog.int4, pg_catalog.interval) IS
'For operators: removes records whose time is over, of every kind, going on where the last sweep stopped, once round at most. max_rows: at most so many (NULL: no limit). budget: for so long (NULL: no limit). Both are shared over the kinds. Never waits for a lock, never touches a live claim, and keeps to vacuum_cost_delay as VACUUM does. Returns one row per kind: how many were removed. Errors: ID400 bad argument.';
-- What was counted since the server started, where idem is preloaded.

CREATE FUNCTION idem_stats(
	OUT kind pg_catalog.text,
	OUT name pg_catalog.text,
	OUT claims pg_catalog.int8,
	OUT replays pg_catalog.int8,
	OUT failures pg_catalog.int8,
	OUT in_progress pg_catalog.int8,
	OUT mismatches pg_catalog.int8,
	OUT takeovers pg_catalog.int8,
	OUT waits pg_catalog.int8,
	OUT wait_time pg_catalog.float8,
	OUT moves pg_catalog.int8,
	OUT illegal pg_catalog.int8,
	OUT forbidden pg_catalog.int8,
	OUT guarded pg_catalog.int8,
	OUT stale pg_catalog.int8,
	OUT frozen pg_catalog.int8,
	OUT refused pg_catalog.int8,
	OUT observed pg_catalog.int8,
	OUT runs pg_catalog.int8,
	OUT removed pg_catalog.int8,
	OUT lag pg_catalog.float8,
	OUT since pg_catalog.timestamptz
) RETURNS SETOF pg_catalog.record
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL SAFE;
COMMENT ON FUNCTION idem_stats() IS
'For operators: what was counted in this database since the server started or idem_stats_reset() was called, also in transactions that rolled back. One row per kind and name: scope (without tenants), machine, version, token, lease, window, branch, sweep (one per kind of record), tick, and others (what found no room, see idem.stats_max). A counter that a kind does not have is NULL. wait_time and lag: seconds. lag of a sweep: no expired record of that kind is older; of a tick: how late its oldest timer was. Where idem is not in shared_preload_libraries: one row of kind "not preloaded".';

CREATE FUNCTION idem_stats_reset() RETURNS pg_catalog.bool
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_stats_reset() IS
'For operators: forgets what idem_stats() and idem_refusals() show of this database. Returns true, or false where idem is not preloaded.';

CREATE FUNCTION idem_refusals(
	OUT at pg_catalog.timestamptz,
	OUT role_name pg_catalog.text,
	OUT verdict pg_catalog.text,
	OUT observed pg_catalog.bool,
	OUT table_name pg_catalog.text,
	OUT machine pg_catalog.text,
	OUT scope pg_catalog.text,
	OUT from_state pg_catalog.text,
	OUT to_state pg_catalog.text,
	OUT event pg_catalog.text,
	OUT code pg_catalog.text
) RETURNS SETOF pg_catalog.record
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL SAFE;
COMMENT ON FUNCTION idem_refusals() IS
'For operators: the latest refusals in this database, newest first, at most idem.refusals_max over all databases. verdict: illegal, forbidden, guarded, stale, frozen or refused; observed: only watched, the write passed. code: the SQLSTATE that it was, or with a verdict in its place would have been. Where idem is not in shared_preload_libraries: one row with verdict "not preloaded".';

CREATE FUNCTION idem_sweep_progress(
	OUT kind pg_catalog.text,
	OUT pid pg_catalog.int4,
	OUT started_at pg_catalog.timestamptz,
	OUT blocks pg_catalog.int8,
	OUT blocks_done pg_catalog.int8,
	OUT removed pg_catalog.int8
) RETURNS SETOF pg_catalog.record
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL SAFE;
COMMENT ON FUNCTION idem_sweep_progress() IS
'For operators: the sweeps that run in this database now, one row per kind of record that is at its turn: by whom, since when, of how many blocks how many are done, and how many records were removed. Empty where idem is not in shared_preload_libraries.';
-- Who may do what.
--
-- Everything belongs to the installing role, who after a trusted installation
-- is not the superuser that runs this script: schema, tables and sequences are
-- his, and he may grant every function.  idem_grant() and idem_revoke() are
-- his too and run as him, so that what one grants the other revokes, whoever
-- calls them.

CREATE FUNCTION idem_grant(role pg_catalog.name, level pg_catalog.text DEFAULT 'app')
	RETURNS pg_catalog.bool
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
	SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	app CONSTANT text[] := ARRAY[
		'idem_key', 'idem_claim', 'idem_claim_key', 'idem_complete',
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
		'held', 'scope', 'binding', 'history', 'dwell', 'timer', 'lease_held', 'branch'];
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
COMMENT ON FUNCTION idem_grant(pg_catalog.name, pg_catalog.text) IS
'Lets a role use idem. level: app (the verbs of daily work) or operator (those, and forget, reopen, import, fence_advance, sweep, attach and the views). Only adds. Returns true. Errors: ID400 bad level, 42704 no such role.';

CREATE FUNCTION idem_revoke(role pg_catalog.name)
	RETURNS pg_catalog.bool
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
	SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	statement text;
BEGIN
	IF role IS NULL THEN
		RAISE EXCEPTION 'argument "role" is missing' USING ERRCODE = 'ID400';
	END IF;
	IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = role) THEN
		RAISE EXCEPTION 'role "%" does not exist', role
			USING ERRCODE = 'undefined_object';
	END IF;

	FOR statement IN
		SELECT CASE d.classid
			WHEN 'pg_proc'::regclass THEN
				format('REVOKE ALL ON FUNCTION %s FROM %I',
					d.objid::regprocedure, role)
			WHEN 'pg_type'::regclass THEN
				format('REVOKE ALL ON TYPE %s FROM %I',
					d.objid::regtype, role)
			WHEN 'pg_namespace'::regclass THEN
				format('REVOKE ALL ON SCHEMA %s FROM %I',
					d.objid::regnamespace, role)
			WHEN 'pg_class'::regclass THEN
				format('REVOKE ALL ON %s %s FROM %I',
					CASE (SELECT relkind FROM pg_class WHERE oid = d.objid)
						WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END,
					d.objid::regclass, role)
			END
		FROM pg_depend d
		WHERE d.refclassid = 'pg_extension'::regclass
			AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'idem')
			AND d.deptype = 'e'
			AND d.classid IN ('pg_proc'::regclass, 'pg_type'::regclass,
				'pg_namespace'::regclass, 'pg_class'::regclass)
			AND (d.classid <> 'pg_class'::regclass
				OR (SELECT relkind FROM pg_class WHERE oid = d.objid)
					IN ('r', 'v', 'S'))
			AND (d.classid <> 'pg_type'::regclass
				OR (SELECT typname FROM pg_type WHERE oid = d.objid) LIKE 'idem\_%')
	LOOP
		EXECUTE statement;
	END LOOP;
	RETURN true;
END
$$;
COMMENT ON FUNCTION idem_revoke(pg_catalog.name) IS
'Takes back all that idem_grant() gave a role, but the use of the schema that the functions are in. Returns true. Errors: 42704 no such role.';

SELECT pg_catalog.pg_extension_config_dump('idem.key', '');
SELECT pg_catalog.pg_extension_config_dump('idem.scope', '');
SELECT pg_catalog.pg_extension_config_dump('idem.window_hit', '');
SELECT pg_catalog.pg_extension_config_dump('idem.fence', '');
SELECT pg_catalog.pg_extension_config_dump('idem.machine', '');
SELECT pg_catalog.pg_extension_config_dump('idem.state', '');
SELECT pg_catalog.pg_extension_config_dump('idem.transition', '');
SELECT pg_catalog.pg_extension_config_dump('idem.history', '');
SELECT pg_catalog.pg_extension_config_dump('idem.history_seq', '');
SELECT pg_catalog.pg_extension_config_dump('idem.timer', '');
SELECT pg_catalog.pg_extension_config_dump('idem.token', '');
SELECT pg_catalog.pg_extension_config_dump('idem.branch', '');
SELECT pg_catalog.pg_extension_config_dump('idem.lease', '');

DO $$
DECLARE
	extension pg_catalog.oid;
	installer pg_catalog.name;
	former pg_catalog.text := pg_catalog.current_setting('search_path');
	object pg_catalog.record;
BEGIN
	PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);

	SELECT e.oid, r.rolname INTO extension, installer
	FROM pg_extension e JOIN pg_roles r ON r.oid = e.extowner
	WHERE e.extname = 'idem';

	FOR object IN
		SELECT objid::regprocedure AS name FROM pg_depend
		WHERE classid = 'pg_proc'::regclass
			AND refclassid = 'pg_extension'::regclass
			AND refobjid = extension AND deptype = 'e'
	LOOP
		EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', object.name);
		EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %I WITH GRANT OPTION',
			object.name, installer);
	END LOOP;

	FOR object IN
		SELECT t.oid::regtype AS name
		FROM pg_depend d JOIN pg_type t ON t.oid = d.objid
		WHERE d.classid = 'pg_type'::regclass
			AND d.refclassid = 'pg_extension'::regclass
			AND d.refobjid = extension AND d.deptype = 'e'
			AND t.typname LIKE 'idem\_%'
	LOOP
		EXECUTE format('REVOKE ALL ON TYPE %s FROM PUBLIC', object.name);
		EXECUTE format('GRANT USAGE ON TYPE %s TO %I WITH GRANT OPTION',
			object.name, installer);
	END LOOP;

	FOR object IN
		SELECT objid::regprocedure AS name FROM pg_depend
		WHERE classid = 'pg_proc'::regclass
			AND refclassid = 'pg_extension'::regclass
			AND refobjid = extension AND deptype = 'e'
			AND objid IN (SELECT oid FROM pg_proc
				WHERE proname IN ('idem_grant', 'idem_revoke'))
	LOOP
		EXECUTE format('ALTER FUNCTION %s OWNER TO %I', object.name, installer);
	END LOOP;

	EXECUTE format('ALTER SCHEMA idem OWNER TO %I', installer);
	FOR object IN
		SELECT c.oid::regclass AS name,
			CASE c.relkind WHEN 'S' THEN 'SEQUENCE' WHEN 'v' THEN 'VIEW'
				ELSE 'TABLE' END AS kind
		FROM pg_class c
		WHERE c.relnamespace = 'idem'::regnamespace AND c.relkind IN ('r', 'v', 'S')
	LOOP
		EXECUTE format('ALTER %s %s OWNER TO %I',
			object.kind, object.name, installer);
	END LOOP;

	PERFORM set_config('search_path', former, true);
END
$$;
