-- The trigger of idem_attach_version: what counts as current in each mode, what
-- a write gets that does not say, and what is ignored.

\set VERBOSITY terse
CREATE TABLE regress_doc (
	id int PRIMARY KEY, body text, views int DEFAULT 0,
	version int NOT NULL DEFAULT 1);
INSERT INTO regress_doc VALUES (1, 'a', 0, 1), (2, 'b', 0, 40);
SELECT idem_attach_version('regress_doc', 'version');

-- mode read: the version that was read, or the one after it; each adds one
UPDATE regress_doc SET body = 'x' WHERE id = 1 RETURNING version;
UPDATE regress_doc SET body = 'x', version = 2 WHERE id = 1 RETURNING version;
UPDATE regress_doc SET body = 'x', version = 4 WHERE id = 1 RETURNING version;
UPDATE regress_doc SET body = 'x', version = version + 1 WHERE id = 1 RETURNING version;
UPDATE regress_doc SET body = 'x', version = version WHERE id = 1 RETURNING version;
-- anything else is stale, also a version from the future
\set VERBOSITY default
UPDATE regress_doc SET body = 'y', version = 5 WHERE id = 1;
\set VERBOSITY terse
\echo :LAST_ERROR_SQLSTATE
UPDATE regress_doc SET body = 'y', version = 8 WHERE id = 1;
UPDATE regress_doc SET body = 'y', version = -6 WHERE id = 1;
UPDATE regress_doc SET body = 'y', version = DEFAULT WHERE id = 1;
UPDATE regress_doc SET version = version + 2;
-- NULL is a version that is never current, and comes before NOT NULL
\set VERBOSITY default
UPDATE regress_doc SET version = NULL WHERE id = 1;
\set VERBOSITY terse
\echo :LAST_ERROR_SQLSTATE
-- nothing is asked of an INSERT, and a version is a row's own
INSERT INTO regress_doc VALUES (3, 'c', 0, 7), (4, 'd', 0, DEFAULT) RETURNING id, version;
INSERT INTO regress_doc VALUES (5, 'e', 0, NULL);
UPDATE regress_doc SET body = body || '!' RETURNING id, version;
DELETE FROM regress_doc WHERE id > 2;
SELECT * FROM regress_doc ORDER BY id;

-- mode next: only the one after it
SELECT idem_detach_version('regress_doc'), idem_attach_version('regress_doc', 'version', mode => 'next');
UPDATE regress_doc SET version = 8 WHERE id = 1 RETURNING version;
UPDATE regress_doc SET version = 9 WHERE id = 1 RETURNING version;
\set VERBOSITY default
UPDATE regress_doc SET version = 9 WHERE id = 1;
\set VERBOSITY terse
UPDATE regress_doc SET version = 11 WHERE id = 1;
UPDATE regress_doc SET version = NULL WHERE id = 1;
UPDATE regress_doc SET body = 'n' WHERE id = 1 RETURNING version;

-- strict: an UPDATE says what it is based on
SELECT idem_detach_version('regress_doc'), idem_attach_version('regress_doc', 'version', strict => true);
\set VERBOSITY default
UPDATE regress_doc SET body = 's' WHERE id = 1;
\echo :LAST_ERROR_SQLSTATE
\set VERBOSITY terse
UPDATE regress_doc SET body = 's', version = version WHERE id = 1 RETURNING version;
UPDATE regress_doc SET body = 's', version = 9 WHERE id = 1;
-- ... an upsert and a MERGE too, which say it in their own lists
BEGIN;
SAVEPOINT s;
INSERT INTO regress_doc (id, body) VALUES (1, 'u') ON CONFLICT (id) DO UPDATE SET body = excluded.body;
ROLLBACK TO s;
INSERT INTO regress_doc (id, body) VALUES (1, 'u') ON CONFLICT (id) DO UPDATE SET body = excluded.body, version = regress_doc.version RETURNING body;
MERGE INTO regress_doc AS d USING (VALUES (1, 'm')) AS n (id, body) ON d.id = n.id WHEN MATCHED THEN UPDATE SET body = n.body;
ROLLBACK TO s;
MERGE INTO regress_doc AS d USING (VALUES (1, 'm')) AS n (id, body) ON d.id = n.id WHEN MATCHED THEN UPDATE SET body = n.body, version = d.version;
SELECT body FROM regress_doc WHERE id = 1;
ROLLBACK;
-- also where a trigger would do it for him
CREATE FUNCTION regress_bump() RETURNS trigger LANGUAGE plpgsql AS
	'BEGIN NEW.version := NEW.version + 1; RETURN NEW; END';
CREATE TRIGGER bump BEFORE UPDATE ON regress_doc FOR EACH ROW EXECUTE FUNCTION regress_bump();
UPDATE regress_doc SET body = 's' WHERE id = 1;
DROP TRIGGER bump ON regress_doc;
SELECT idem_detach_version('regress_doc'), idem_attach_version('regress_doc', 'version', 'next', true);
\set VERBOSITY default
UPDATE regress_doc SET body = 's' WHERE id = 1;
\set VERBOSITY terse

-- retryable: 40001, for clients that begin again from the read
SELECT idem_detach_version('regress_doc'), idem_attach_version('regress_doc', 'version', retryable => true);
UPDATE regress_doc SET version = 1 WHERE id = 1;
\echo :LAST_ERROR_SQLSTATE

-- ignore: counters and touches alone neither check nor count
SELECT idem_detach_version('regress_doc'), idem_attach_version('regress_doc', 'version', ignore => '{views}');
UPDATE regress_doc SET views = views + 1 WHERE id = 1 RETURNING version;
UPDATE regress_doc SET views = NULL WHERE id = 1 RETURNING version;
UPDATE regress_doc SET views = 3, body = body WHERE id = 1 RETURNING version;
UPDATE regress_doc SET views = 4, body = 'v' WHERE id = 1 RETURNING version;
UPDATE regress_doc SET body = 'w' WHERE id = 1 RETURNING version;
-- with a version they are like any other
UPDATE regress_doc SET views = 5, version = 14 WHERE id = 1 RETURNING version;
UPDATE regress_doc SET views = 5, version = 13 WHERE id = 1;
-- what another trigger changes counts
CREATE FUNCTION regress_body() RETURNS trigger LANGUAGE plpgsql AS
	'BEGIN NEW.body := ''from trigger''; RETURN NEW; END';
CREATE TRIGGER body BEFORE UPDATE OF views ON regress_doc FOR EACH ROW EXECUTE FUNCTION regress_body();
UPDATE regress_doc SET views = 6 WHERE id = 1 RETURNING version;
UPDATE regress_doc SET views = 7 WHERE id = 1 RETURNING version;
DROP TRIGGER body ON regress_doc;
-- generated and toasted columns do not disturb the comparison, nor do columns
-- that were dropped or added with a default
ALTER TABLE regress_doc DROP COLUMN body, ADD COLUMN big text, ADD COLUMN added int DEFAULT 5,
	ADD COLUMN twice int GENERATED ALWAYS AS (views * 2) STORED;
UPDATE regress_doc SET big = (SELECT string_agg(md5(i::text), '') FROM generate_series(1, 500) AS i) WHERE id = 1 RETURNING version;
UPDATE regress_doc SET views = 8 WHERE id = 1 RETURNING version, twice;
UPDATE regress_doc SET views = 9, big = big, added = added WHERE id = 1 RETURNING version;
UPDATE regress_doc SET views = 9, big = big || '!' WHERE id = 1 RETURNING version;
UPDATE regress_doc SET views = 9, added = 6 WHERE id = 1 RETURNING version;
-- strict does not ask for a version of what is ignored
SELECT idem_detach_version('regress_doc'), idem_attach_version('regress_doc', 'version', strict => true, ignore => '{views,added}');
UPDATE regress_doc SET views = 10, added = 7 WHERE id = 1 RETURNING version;
UPDATE regress_doc SET views = 10, big = '' WHERE id = 1;

-- the columns are followed by name, and cannot go while they are used
ALTER TABLE regress_doc RENAME version TO "lock ""v""";
ALTER TABLE regress_doc RENAME views TO "views ""v""";
UPDATE regress_doc SET "views ""v""" = 11 WHERE id = 1 RETURNING "lock ""v""";
UPDATE regress_doc SET "lock ""v""" = 1 WHERE id = 1;
ALTER TABLE regress_doc DROP COLUMN "lock ""v""";
ALTER TABLE regress_doc DROP COLUMN "views ""v""";
ALTER TABLE regress_doc ALTER COLUMN "lock ""v""" TYPE bigint;
SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE tgrelid = 'regress_doc'::regclass;
SELECT idem_detach_version('regress_doc');
ALTER TABLE regress_doc ALTER COLUMN "lock ""v""" TYPE bigint;
ALTER TABLE regress_doc RENAME "lock ""v""" TO version;
SELECT idem_attach_version('regress_doc', 'version');

-- a type's last version is its last
UPDATE regress_doc SET version = 9223372036854775806 WHERE id = 1;
BEGIN;
ALTER TABLE regress_doc DISABLE TRIGGER "~idem_version";
UPDATE regress_doc SET version = 9223372036854775806 WHERE id = 1;
UPDATE regress_doc SET version = -5 WHERE id = 2;
COMMIT;
ALTER TABLE regress_doc ENABLE TRIGGER "~idem_version";
UPDATE regress_doc SET version = 9223372036854775807 WHERE id = 1 RETURNING version;
UPDATE regress_doc SET version = 9223372036854775807 WHERE id = 1;
\echo :LAST_ERROR_SQLSTATE
UPDATE regress_doc SET added = 1 WHERE id = 1;
UPDATE regress_doc SET version = (-9223372036854775808)::bigint WHERE id = 1;
\echo :LAST_ERROR_SQLSTATE
UPDATE regress_doc SET version = -5 WHERE id = 2 RETURNING version;
-- where NOT NULL was dropped again, no version counts as 0
ALTER TABLE regress_doc ALTER COLUMN version DROP NOT NULL;
INSERT INTO regress_doc (id, version) VALUES (6, NULL);
UPDATE regress_doc SET added = 1 WHERE id = 6 RETURNING version;
DROP TABLE regress_doc;

-- smallint, and a domain with a rule of its own
CREATE DOMAIN regress_small AS smallint CHECK (VALUE < 3);
CREATE TABLE regress_doc (id int PRIMARY KEY, a smallint NOT NULL DEFAULT 32766, b regress_small NOT NULL DEFAULT 1);
SELECT idem_attach_version('regress_doc', 'a');
INSERT INTO regress_doc VALUES (1);
UPDATE regress_doc SET id = 1 RETURNING a;
UPDATE regress_doc SET id = 1 RETURNING a;
SELECT idem_detach_version('regress_doc'), idem_attach_version('regress_doc', 'b');
UPDATE regress_doc SET b = 1 RETURNING b;
UPDATE regress_doc SET b = 2 RETURNING b;

-- clean up
DROP TABLE regress_doc;
DROP DOMAIN regress_small;
DROP FUNCTION regress_bump(), regress_body();
