-- Puts a table partitioned by hash of the key in the place of idem.key, in a
-- database where idem was just installed: what a distributing engine makes of
-- it, as far as one server can show that.
\set ON_ERROR_STOP on
BEGIN;
SELECT pg_get_viewdef('idem.held'::regclass) AS held \gset
ALTER EXTENSION idem DROP TABLE idem.key;
ALTER TABLE idem.key RENAME TO key_plain;
ALTER TABLE idem.key_plain RENAME CONSTRAINT key_pkey TO key_plain_pkey;
CREATE TABLE idem.key (LIKE idem.key_plain INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING COMMENTS,
	PRIMARY KEY (key, scope)) PARTITION BY HASH (key);
SELECT format('CREATE TABLE idem.key_%s PARTITION OF idem.key FOR VALUES WITH (MODULUS 4, REMAINDER %1$s) WITH (fillfactor = 45)', i)
FROM generate_series(0, 3) AS i \gexec
CREATE OR REPLACE VIEW idem.held AS :held
DROP TABLE idem.key_plain;
ALTER EXTENSION idem ADD TABLE idem.key;
COMMIT;
