-- A table that skips repeated inserts: what is inserted, what is skipped, and
-- which keys are spent.  The role that inserts has no rights in idem.

CREATE ROLE regress_idem_owner;
CREATE ROLE regress_idem_writer;
SELECT idem_grant('regress_idem_owner', 'operator');
GRANT CREATE ON SCHEMA public TO regress_idem_owner;

CREATE VIEW regress_once_keys AS
	SELECT key FROM idem.key WHERE scope = 'once.public.regress_once'
	ORDER BY key COLLATE "C";
GRANT SELECT ON regress_once_keys TO PUBLIC;

SET ROLE regress_idem_owner;
CREATE TABLE regress_once (id int PRIMARY KEY, key text, note text);
SELECT idem_attach_once('regress_once', '{key}');
GRANT ALL ON regress_once TO regress_idem_writer;
SELECT tgname, pg_get_triggerdef(oid) FROM pg_trigger
WHERE tgrelid = 'regress_once'::regclass ORDER BY tgname;
SET ROLE regress_idem_writer;

-- one row, many rows, RETURNING, the same key inside one statement
INSERT INTO regress_once VALUES (1, 'a') RETURNING id, key;
INSERT INTO regress_once VALUES (2, 'a') RETURNING id, key;
INSERT INTO regress_once VALUES (3, 'b'), (4, 'a'), (5, 'c'), (6, 'b') RETURNING id, key;
\echo rows :ROW_COUNT
INSERT INTO regress_once VALUES (3, 'b'), (7, 'b0'), (8, 'b0'), (9, 'b1');
\echo rows :ROW_COUNT
INSERT INTO regress_once SELECT 10 + i, 'd' || i % 3 FROM generate_series(1, 9) i RETURNING id, key;
WITH new AS (INSERT INTO regress_once VALUES (20, 'e'), (21, 'a') RETURNING id)
SELECT count(*) FROM new;
-- NULL is not a key
INSERT INTO regress_once VALUES (22, NULL), (23, NULL), (24, 'e');
-- the empty string is one
INSERT INTO regress_once VALUES (25, ''), (26, '');
COPY regress_once (id, key) FROM stdin;
30	a
31	f
32	f
33	\N
\.
\echo rows :ROW_COUNT
SELECT id, key FROM regress_once ORDER BY id;
SELECT * FROM regress_once_keys;
RESET ROLE;
SELECT state, hold, attempt, expires_at, ttl FROM idem.key
WHERE scope = 'once.public.regress_once' AND key = '1:a';
SET ROLE regress_idem_writer;

-- a deleted row's key stays spent; an update is not an insert
DELETE FROM regress_once WHERE key = 'f';
INSERT INTO regress_once VALUES (40, 'f');
UPDATE regress_once SET key = 'g' WHERE id = 25;
UPDATE regress_once SET key = 'a' WHERE id = 22;
INSERT INTO regress_once VALUES (41, 'g');
SELECT id, key FROM regress_once WHERE id >= 20 ORDER BY id;

-- a key is spent only by a row that was inserted
TRUNCATE regress_once;
INSERT INTO regress_once VALUES (1, 'h');
INSERT INTO regress_once VALUES (1, 'i') ON CONFLICT DO NOTHING;
INSERT INTO regress_once VALUES (1, 'i'), (2, 'i'), (3, 'i'), (1, 'j'), (1, 'j') ON CONFLICT DO NOTHING RETURNING *;
\echo rows :ROW_COUNT
SELECT * FROM regress_once_keys WHERE key IN ('1:h', '1:i', '1:j');
INSERT INTO regress_once VALUES (1, 'j') ON CONFLICT (id) DO UPDATE SET note = 'updated';
SELECT * FROM regress_once_keys WHERE key IN ('1:h', '1:i', '1:j');
-- a spent key is skipped before ON CONFLICT is looked at
INSERT INTO regress_once VALUES (1, 'h') ON CONFLICT (id) DO UPDATE SET note = 'not reached';
SELECT * FROM regress_once ORDER BY id;
-- many that are dropped, and one that is not
INSERT INTO regress_once SELECT 1, 'many' || i % 7 FROM generate_series(1, 5000) i ON CONFLICT DO NOTHING;
INSERT INTO regress_once SELECT 1, 'other' || i FROM generate_series(1, 3000) i ON CONFLICT DO NOTHING;
SELECT count(*) FROM regress_once_keys WHERE key LIKE '%many%' OR key LIKE '%other%';
INSERT INTO regress_once SELECT 100 + i / 2, 'pair' || i / 4 FROM generate_series(0, 19) i ON CONFLICT DO NOTHING RETURNING id, key;
SELECT count(*) FROM regress_once_keys WHERE key LIKE '%pair%';

-- MERGE
MERGE INTO regress_once t
USING (VALUES (1, 'm'), (200, 'm'), (201, 'm'), (202, 'h')) AS s (id, key) ON t.id = s.id
WHEN MATCHED THEN UPDATE SET note = 'merged'
WHEN NOT MATCHED THEN INSERT VALUES (s.id, s.key);
SELECT * FROM regress_once WHERE id = 1 OR id >= 200 ORDER BY id;

-- a failed statement, a rolled back savepoint and transaction give keys back
INSERT INTO regress_once VALUES (300, 'n'), (300, 'o');
BEGIN;
INSERT INTO regress_once VALUES (300, 'n');
ROLLBACK;
BEGIN;
INSERT INTO regress_once VALUES (1, 'p') ON CONFLICT DO NOTHING;
SAVEPOINT s;
INSERT INTO regress_once VALUES (301, 'p'), (302, 'q');
ROLLBACK TO s;
SAVEPOINT t;
INSERT INTO regress_once VALUES (303, 'p');
RELEASE t;
INSERT INTO regress_once VALUES (304, 'p'), (305, 'n');
COMMIT;
SELECT id, key FROM regress_once WHERE id >= 300 ORDER BY id;
SELECT * FROM regress_once_keys WHERE key IN ('1:n', '1:o', '1:p', '1:q');
-- only one of two dropped rows' transactions is undone
DO $$
BEGIN
	INSERT INTO regress_once VALUES (1, 'r') ON CONFLICT DO NOTHING;
	BEGIN
		INSERT INTO regress_once VALUES (1, 'r'), (1, 's') ON CONFLICT DO NOTHING;
		INSERT INTO regress_once VALUES (400, 'r'), (401, 't');
		RAISE division_by_zero;
	EXCEPTION WHEN division_by_zero THEN
		INSERT INTO regress_once VALUES (1, 't') ON CONFLICT DO NOTHING;
	END;
END $$;
SELECT * FROM regress_once_keys WHERE key IN ('1:r', '1:s', '1:t');

-- isolation levels; and the message where a transaction may not write
BEGIN ISOLATION LEVEL SERIALIZABLE;
INSERT INTO regress_once VALUES (500, 'u'), (501, 'a'), (502, 'u');
COMMIT;
BEGIN READ ONLY;
INSERT INTO regress_once VALUES (503, 'v');
ROLLBACK;
-- PREPARE
BEGIN;
INSERT INTO regress_once VALUES (1, 'w') ON CONFLICT DO NOTHING;
INSERT INTO regress_once VALUES (504, 'x');
COMMIT;
SELECT id, key FROM regress_once WHERE id >= 500 ORDER BY id;
SELECT * FROM regress_once_keys WHERE key IN ('1:u', '1:v', '1:w', '1:x');
-- within the transaction, too
BEGIN;
INSERT INTO regress_once VALUES (1, 'y') ON CONFLICT DO NOTHING;
SELECT * FROM regress_once_keys WHERE key = '1:y';
COMMIT;

RESET ROLE;
-- detached: inserts again, and the keys stay for the next time
SET ROLE regress_idem_owner;
SELECT idem_detach_once('regress_once');
INSERT INTO regress_once VALUES (600, 'zz');
DELETE FROM regress_once WHERE id < 600;
SELECT idem_attach_once('regress_once', '{key}');
INSERT INTO regress_once VALUES (601, 'a'), (602, 'zz'), (603, 'zzz');
SELECT id, key FROM regress_once ORDER BY id;

-- retention: an expired key is new again
SELECT idem_detach_once('regress_once');
SELECT idem_attach_once('regress_once', '{key}', scope => 'regress_once_ttl', ttl => '1 day 2 h');
INSERT INTO regress_once VALUES (700, 'a');
RESET ROLE;
SELECT key, expires_at - finished_at AS kept, ttl FROM idem.key WHERE scope = 'regress_once_ttl' ORDER BY key;
UPDATE idem.key SET expires_at = clock_timestamp() WHERE scope = 'regress_once_ttl';
SET ROLE regress_idem_writer;
INSERT INTO regress_once VALUES (701, 'a'), (702, 'a');
BEGIN;
INSERT INTO regress_once VALUES (700, 'zz') ON CONFLICT DO NOTHING;
INSERT INTO regress_once VALUES (703, 'zz');
COMMIT;
SELECT id, key FROM regress_once WHERE id >= 700 ORDER BY id;
RESET ROLE;

DROP TABLE regress_once;
DROP VIEW regress_once_keys;
DELETE FROM idem.key WHERE scope LIKE '%regress_once%';
REVOKE CREATE ON SCHEMA public FROM regress_idem_owner;
SELECT idem_revoke('regress_idem_owner');
DROP OWNED BY regress_idem_owner, regress_idem_writer;
DROP ROLE regress_idem_owner, regress_idem_writer;
