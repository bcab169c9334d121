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
	AS 'MODULE_PATHNAME', 'idem_token_issue_1_1' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_token_issue(pg_catalog.text, pg_catalog.text, pg_catalog.jsonb, pg_catalog.interval, pg_catalog.bool) IS
'Makes a token that can be used once: 256 random bits as 43 characters of base64url, stored only hashed. purpose: what it is for, 1 to 128 bytes. subject: whose it is, 1 to 1024 bytes, NULL nobody''s. request: the only request it is good for, NULL any. ttl: how long. replace: the unused older tokens of this purpose and subject expire. Errors: ID400 bad argument, or replace without subject, 25006 read-only.';

CREATE FUNCTION idem_token_use(
	token pg_catalog.text,
	purpose pg_catalog.text,
	subject pg_catalog.text DEFAULT NULL,
	request pg_catalog.jsonb DEFAULT NULL
) RETURNS pg_catalog.text
	AS 'MODULE_PATHNAME', 'idem_token_use_1_1' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_token_use(pg_catalog.text, pg_catalog.text, pg_catalog.text, pg_catalog.jsonb) IS
'Uses a token, which rolls back with the caller''s transaction. Returns consumed (it was good, and is not any more), reused (consumed before), expired, unknown, or mismatch (issued for another purpose, subject or request, or consumed for another request). Waits for a use that is not committed yet. Errors: ID400 missing token or bad argument, 25006 read-only.';

CREATE FUNCTION idem_token_peek(
	token pg_catalog.text,
	purpose pg_catalog.text,
	subject pg_catalog.text DEFAULT NULL,
	request pg_catalog.jsonb DEFAULT NULL
) RETURNS pg_catalog.text
	AS 'MODULE_PATHNAME', 'idem_token_peek_1_1' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_token_peek(pg_catalog.text, pg_catalog.text, pg_catalog.text, pg_catalog.jsonb) IS
'What idem_token_use() would answer, with valid in place of consumed. Writes nothing, locks nothing, waits for nobody, and works on a standby. Errors: ID400 missing token or bad argument.';
