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
	AS 'MODULE_PATHNAME', 'idem_catalog_changed_1_1' LANGUAGE C VOLATILE PARALLEL UNSAFE;
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
	AS 'MODULE_PATHNAME', 'idem_key_1_1' LANGUAGE C STABLE PARALLEL SAFE;
COMMENT ON FUNCTION idem_key() IS
'The idempotency key of the current request: setting "idem.key", which a middleware sets once with set_config(''idem.key'', $1, true). NULL if it is not set or empty.';

CREATE FUNCTION idem_claim_key(key pg_catalog.text) RETURNS idem_claimed
	AS 'MODULE_PATHNAME', 'idem_claim_key_1_1' LANGUAGE C VOLATILE PARALLEL UNSAFE;
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
	AS 'MODULE_PATHNAME', 'idem_claim_1_1' LANGUAGE C VOLATILE PARALLEL UNSAFE
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
	AS 'MODULE_PATHNAME', 'idem_complete_1_1' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_complete(pg_catalog.text, pg_catalog.text, pg_catalog.text, pg_catalog.int8, pg_catalog.int4) IS
'Ends a claim with success; later claims get response and code, byte for byte. fence: that of a committed lease claim. Returns true. Errors: ID400 bad argument or missing fence, ID409 claim not held by the caller or already ended, ID500 response larger than the scope allows.';

CREATE FUNCTION idem_complete(
	key pg_catalog.text,
	response pg_catalog.json,
	scope pg_catalog.text DEFAULT NULL,
	fence pg_catalog.int8 DEFAULT NULL,
	code pg_catalog.int4 DEFAULT NULL
) RETURNS pg_catalog.bool
	AS 'MODULE_PATHNAME', 'idem_complete_1_1' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_complete(pg_catalog.text, pg_catalog.json, pg_catalog.text, pg_catalog.int8, pg_catalog.int4) IS
'Ends a claim with success; the response is the json''s text as given. Otherwise as with a text response.';

CREATE FUNCTION idem_complete(
	key pg_catalog.text,
	response pg_catalog.jsonb,
	scope pg_catalog.text DEFAULT NULL,
	fence pg_catalog.int8 DEFAULT NULL,
	code pg_catalog.int4 DEFAULT NULL
) RETURNS pg_catalog.bool
	AS 'MODULE_PATHNAME', 'idem_complete_jsonb_1_1' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_complete(pg_catalog.text, pg_catalog.jsonb, pg_catalog.text, pg_catalog.int8, pg_catalog.int4) IS
'Ends a claim with success; the response is the jsonb''s text. Otherwise as with a text response.';

CREATE FUNCTION idem_fail(
	key pg_catalog.text DEFAULT idem_key(),
	error pg_catalog.text DEFAULT NULL,
	scope pg_catalog.text DEFAULT NULL,
	fence pg_catalog.int8 DEFAULT NULL,
	code pg_catalog.int4 DEFAULT NULL
) RETURNS pg_catalog.bool
	AS 'MODULE_PATHNAME', 'idem_fail_1_1' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_fail(pg_catalog.text, pg_catalog.text, pg_catalog.text, pg_catalog.int8, pg_catalog.int4) IS
'Ends a claim for good with an error; later claims get "failed" with error and code. Returns true. Errors: as idem_complete().';

CREATE FUNCTION idem_retry(
	key pg_catalog.text DEFAULT idem_key(),
	error pg_catalog.text DEFAULT NULL,
	scope pg_catalog.text DEFAULT NULL,
	fence pg_catalog.int8 DEFAULT NULL,
	after pg_catalog.interval DEFAULT NULL
) RETURNS pg_catalog.bool
	AS 'MODULE_PATHNAME', 'idem_retry_1_1' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_retry(pg_catalog.text, pg_catalog.text, pg_catalog.text, pg_catalog.int8, pg_catalog.interval) IS
'Ends a claim whose work failed for now: the key can be claimed again, the attempt counts. after: until then claims get in_progress. Returns true. Errors: as idem_complete().';

CREATE FUNCTION idem_release(
	key pg_catalog.text DEFAULT idem_key(),
	scope pg_catalog.text DEFAULT NULL,
	fence pg_catalog.int8 DEFAULT NULL
) RETURNS pg_catalog.bool
	AS 'MODULE_PATHNAME', 'idem_release_1_1' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_release(pg_catalog.text, pg_catalog.text, pg_catalog.int8) IS
'Gives a claim back as if it had not been made. Returns true. Errors: as idem_complete().';

CREATE FUNCTION idem_renew(
	key pg_catalog.text DEFAULT idem_key(),
	lease pg_catalog.interval DEFAULT NULL,
	scope pg_catalog.text DEFAULT NULL,
	fence pg_catalog.int8 DEFAULT NULL
) RETURNS pg_catalog.timestamptz
	AS 'MODULE_PATHNAME', 'idem_renew_1_1' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_renew(pg_catalog.text, pg_catalog.interval, pg_catalog.text, pg_catalog.int8) IS
'Lets a lease claim last for "lease" from now on (NULL: the scope''s). Returns the new deadline. Errors: ID400 bad argument, missing fence or no lease claim, ID409 claim not held by the caller or already ended.';

CREATE FUNCTION idem_step(
	key pg_catalog.text DEFAULT idem_key(),
	step pg_catalog.text DEFAULT NULL,
	progress pg_catalog.jsonb DEFAULT NULL,
	scope pg_catalog.text DEFAULT NULL,
	fence pg_catalog.int8 DEFAULT NULL
) RETURNS pg_catalog.bool
	AS 'MODULE_PATHNAME', 'idem_step_1_1' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_step(pg_catalog.text, pg_catalog.text, pg_catalog.jsonb, pg_catalog.text, pg_catalog.int8) IS
'Records a recovery point, which a takeover gets to see. step: required. Returns true. Errors: ID400 bad argument or missing fence, ID409 claim not held by the caller or already ended, ID500 progress larger than the scope allows.';

CREATE FUNCTION idem_unfinished(OUT scope pg_catalog.text, OUT key pg_catalog.text)
	RETURNS SETOF pg_catalog.record
	AS 'MODULE_PATHNAME', 'idem_unfinished_1_1' LANGUAGE C VOLATILE PARALLEL UNSAFE;
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
	AS 'MODULE_PATHNAME', 'idem_lookup_1_1' LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 1;
COMMENT ON FUNCTION idem_lookup(pg_catalog.text, pg_catalog.text) IS
'The record of a key without claiming it: 0 or 1 row. outcome: open, in_progress, completed or failed. Works on a standby. Errors: ID400 bad argument, ID500 undeclared scope, 42501 scope not allowed.';

CREATE FUNCTION idem_once(
	key pg_catalog.text,
	scope pg_catalog.text DEFAULT NULL,
	ttl pg_catalog.interval DEFAULT NULL
) RETURNS pg_catalog.bool
	AS 'MODULE_PATHNAME', 'idem_once_1_1' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_once(pg_catalog.text, pg_catalog.text, pg_catalog.interval) IS
'Marks a key as done: true for exactly one caller, unless its transaction rolls back. ttl: retention. Errors: ID400 bad argument, ID500 undeclared scope, 42501 scope not allowed, 40001 snapshot too old to run on, 25006 read-only.';

CREATE FUNCTION idem_once_many(
	keys pg_catalog.text[],
	scope pg_catalog.text DEFAULT NULL,
	ttl pg_catalog.interval DEFAULT NULL
) RETURNS SETOF pg_catalog.text
	AS 'MODULE_PATHNAME', 'idem_once_many_1_1' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_once_many(pg_catalog.text[], pg_catalog.text, pg_catalog.interval) IS
'Marks many keys as done and returns those that were new, in the order given; of equal ones the first counts. Errors: as idem_once(); a missing or oversized key refuses the whole batch.';

CREATE FUNCTION idem_forget(
	key pg_catalog.text,
	scope pg_catalog.text DEFAULT NULL,
	force pg_catalog.bool DEFAULT false
) RETURNS pg_catalog.bool
	AS 'MODULE_PATHNAME', 'idem_forget_1_1' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_forget(pg_catalog.text, pg_catalog.text, pg_catalog.bool) IS
'For operators: deletes the record of a key. force: also of a completed or a held one. Returns true. Errors: ID400 bad argument, ID404 no such key, ID409 completed or held and not forced.';

CREATE FUNCTION idem_reopen(
	key pg_catalog.text,
	scope pg_catalog.text DEFAULT NULL
) RETURNS pg_catalog.bool
	AS 'MODULE_PATHNAME', 'idem_reopen_1_1' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_reopen(pg_catalog.text, pg_catalog.text) IS
'For operators: lets a failed key be claimed once more, keeping its attempt and fingerprint. Returns true. Errors: ID400 bad argument, ID404 no such key, ID409 not failed.';

CREATE FUNCTION idem_import(
	key pg_catalog.text,
	response pg_catalog.text DEFAULT NULL,
	scope pg_catalog.text DEFAULT NULL,
	created_at pg_catalog.timestamptz DEFAULT NULL,
	ttl pg_catalog.interval DEFAULT NULL
) RETURNS pg_catalog.bool
	AS 'MODULE_PATHNAME', 'idem_import_1_1' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_import(pg_catalog.text, pg_catalog.text, pg_catalog.text, pg_catalog.timestamptz, pg_catalog.interval) IS
'For operators: records a key as completed before, at created_at (NULL: now). True if it was stored, false if the key is known or its retention would be over. Errors: ID400 bad argument, ID500 response larger than the scope allows.';

CREATE FUNCTION idem_import_many(
	keys pg_catalog.text[],
	responses pg_catalog.text[] DEFAULT NULL,
	scope pg_catalog.text DEFAULT NULL,
	created_at pg_catalog.timestamptz DEFAULT NULL,
	ttl pg_catalog.interval DEFAULT NULL
) RETURNS pg_catalog.int8
	AS 'MODULE_PATHNAME', 'idem_import_many_1_1' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_import_many(pg_catalog.text[], pg_catalog.text[], pg_catalog.text, pg_catalog.timestamptz, pg_catalog.interval) IS
'For operators: idem_import() for arrays of equal length; returns how many were stored.';

CREATE FUNCTION idem_fence_advance(n pg_catalog.int8) RETURNS pg_catalog.int8
	AS 'MODULE_PATHNAME', 'idem_fence_advance_1_1' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_fence_advance(pg_catalog.int8) IS
'For operators, after a restore from the past: every later fence is greater than n. Never goes back; returns the number that is passed now. Errors: ID400 n out of range.';
