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
	AS 'MODULE_PATHNAME', 'idem_branch_1_1' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_branch(pg_catalog.text, pg_catalog.text, pg_catalog.text, pg_catalog.int4) IS
'Whether a saga''s call on one of its branches may run, decided and recorded in the caller''s transaction. op: try, confirm or cancel. seq: tells several effects of one branch apart. Returns run (do the work), duplicate (done before: nothing to do), null_cancel (cancel before any try: nothing to do, a late try is suspended), suspended (not possible: try or confirm after cancel, cancel after confirm, confirm before try). Waits for a call on the same branch that is not committed yet. The branch is remembered for setting "idem.branch_ttl" after its end. Errors: ID400 bad argument, 40001 snapshot too old to run on, 25006 read-only.';
