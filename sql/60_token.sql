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
	fingerprint pg_catalog.bytea
) WITH (fillfactor = 50);
CREATE INDEX token_subject ON idem.token (subject, purpose);
COMMENT ON TABLE idem.token IS 'one row per one-time token; written by the idem_token verbs only';
COMMENT ON COLUMN idem.token.hash IS 'SHA-256 of the token; the token itself is stored nowhere';
COMMENT ON COLUMN idem.token.expires_at IS 'from then on the token is not consumed any more; its row stays for 24 hours more';
COMMENT ON COLUMN idem.token.used_at IS 'when it was consumed; NULL: not yet';
COMMENT ON COLUMN idem.token.subject IS 'whose token it is; NULL: nobody''s';
COMMENT ON COLUMN idem.token.fingerprint IS 'digest of the request that it was issued for or, without one, was consumed for';
