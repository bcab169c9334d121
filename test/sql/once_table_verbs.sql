-- A scope that a table shares with verbs, and rows that are dropped after their
-- key was marked: the verbs of the same transaction do not believe such a mark.

CREATE TABLE regress_shared (k int, p int) PARTITION BY LIST (p);
CREATE TABLE regress_shared_1 PARTITION OF regress_shared FOR VALUES IN (1);
CREATE UNIQUE INDEX ON regress_shared_1 (k);
INSERT INTO regress_shared VALUES (2, 1);
SELECT idem_attach_once('regress_shared', '{k}', 'regress_shared');
SELECT idem_forget('1:2', 'regress_shared', force => true);
CREATE TABLE regress_ran (n int);
CREATE FUNCTION regress_run() RETURNS int LANGUAGE sql AS 'INSERT INTO regress_ran VALUES (1) RETURNING n';

-- through the partition's name, and so until the end of the transaction
BEGIN;
INSERT INTO regress_shared_1 VALUES (2, 1) ON CONFLICT DO NOTHING;
SELECT count(*) FROM idem_lookup('1:2', 'regress_shared');
SELECT idem_once('1:2', 'regress_shared');
COMMIT;
SELECT key, state FROM idem.key WHERE scope = 'regress_shared';
SELECT idem_forget('1:2', 'regress_shared', force => true);
BEGIN;
INSERT INTO regress_shared_1 VALUES (2, 1) ON CONFLICT DO NOTHING;
SELECT idem_call('1:2', 'regress_run()', scope => 'regress_shared');
INSERT INTO regress_shared_1 VALUES (2, 1) ON CONFLICT DO NOTHING;
COMMIT;
SELECT idem_call('1:2', 'regress_run()', scope => 'regress_shared');
SELECT count(*) FROM regress_ran;
SELECT idem_forget('1:2', 'regress_shared', force => true);
BEGIN;
INSERT INTO regress_shared_1 VALUES (2, 1) ON CONFLICT DO NOTHING;
SELECT run, outcome FROM idem_claim('1:2', 'regress_shared');
SELECT idem_complete('1:2', 'done', scope => 'regress_shared');
COMMIT;
SELECT key, state, response FROM idem.key WHERE scope = 'regress_shared';
SELECT idem_forget('1:2', 'regress_shared', force => true);
-- what was put in its place by hand stays
BEGIN;
INSERT INTO regress_shared_1 VALUES (2, 1) ON CONFLICT DO NOTHING;
DELETE FROM idem.key WHERE scope = 'regress_shared';
INSERT INTO idem.key (scope, key, state, hold, attempt, response, created_at, finished_at)
	VALUES ('regress_shared', '1:2', 'completed', 'transaction', 1, 'by hand', now(), now());
COMMIT;
SELECT key, state, response FROM idem.key WHERE scope = 'regress_shared';
SELECT idem_forget('1:2', 'regress_shared', force => true);

-- after many statements that name the root, too
BEGIN;
DO $$
BEGIN
	FOR i IN 1 .. 101 LOOP
		INSERT INTO regress_shared VALUES (2, 1) ON CONFLICT DO NOTHING;
	END LOOP;
END $$;
SELECT idem_once('1:2', 'regress_shared');
COMMIT;
SELECT key, state FROM idem.key WHERE scope = 'regress_shared';
SELECT idem_forget('1:2', 'regress_shared', force => true);

-- another table that is attached to the scope meanwhile
BEGIN;
INSERT INTO regress_shared_1 VALUES (2, 1) ON CONFLICT DO NOTHING;
CREATE TABLE regress_shared_too (k int);
INSERT INTO regress_shared_too VALUES (2);
SELECT idem_attach_once('regress_shared_too', '{k}', 'regress_shared');
COMMIT;
INSERT INTO regress_shared_too VALUES (2);
SELECT count(*) FROM regress_shared_too;
DROP TABLE regress_shared_too;
SELECT idem_forget('1:2', 'regress_shared', force => true);

-- within the statement that dropped the row, which was its last
CREATE TABLE regress_dropped (k int, v int UNIQUE);
SELECT idem_attach_once('regress_dropped', '{k}', 'regress_dropped');
INSERT INTO regress_dropped VALUES (1, 1);
CREATE FUNCTION regress_looked(k int) RETURNS text LANGUAGE sql VOLATILE AS $$
	SELECT coalesce((SELECT outcome FROM idem_lookup('1:' || k, 'regress_dropped')), 'absent')
$$;
WITH i AS (INSERT INTO regress_dropped VALUES (2, 1) ON CONFLICT DO NOTHING RETURNING k)
SELECT (SELECT count(*) FROM i) AS inserted, regress_looked(2);
WITH i AS (INSERT INTO regress_dropped VALUES (3, 1) ON CONFLICT DO NOTHING RETURNING k)
SELECT (SELECT count(*) FROM i) AS inserted, idem_once('1:3', 'regress_dropped'), regress_looked(3);
INSERT INTO regress_dropped VALUES (3, 3);
WITH i AS (INSERT INTO regress_dropped VALUES (4, 1) ON CONFLICT DO NOTHING RETURNING k)
SELECT inserted, run, outcome, idem_complete('1:4', 'by hand', scope => 'regress_dropped')
	FROM (SELECT count(*) AS inserted FROM i) n, LATERAL idem_claim('1:' || 4 + inserted, scope => 'regress_dropped');
INSERT INTO regress_dropped VALUES (5, 5), (6, 1), (7, 7) ON CONFLICT (v) DO UPDATE SET v = 1
	RETURNING k, regress_looked(5), regress_looked(6), regress_looked(7);
-- dropped by a later trigger
CREATE FUNCTION regress_drop() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	RETURN CASE WHEN NEW.v > 0 THEN NEW END;
END $$;
CREATE TRIGGER "~z" BEFORE INSERT ON regress_dropped FOR EACH ROW EXECUTE FUNCTION regress_drop();
WITH i AS (INSERT INTO regress_dropped VALUES (8, 8), (9, 0) RETURNING k)
SELECT (SELECT count(*) FROM i) AS inserted, regress_looked(8), regress_looked(9);
DROP TRIGGER "~z" ON regress_dropped;
-- one that is looked at on its way in gets in all the same, and has spent its key
ALTER TABLE regress_dropped ADD CHECK (regress_looked(k) = 'absent') NOT VALID;
INSERT INTO regress_dropped VALUES (8, 10), (9, 9), (9, 11) RETURNING k, regress_looked(k);
INSERT INTO regress_dropped VALUES (9, 12);
-- undone with a savepoint, it has not
BEGIN;
SAVEPOINT s;
INSERT INTO regress_dropped VALUES (0, 20) RETURNING k, regress_looked(k);
ROLLBACK TO s;
INSERT INTO regress_dropped VALUES (0, 20) RETURNING k, regress_looked(k);
COMMIT;
SELECT k, key, response FROM regress_dropped FULL JOIN (SELECT * FROM idem.key WHERE scope = 'regress_dropped') r ON key = '1:' || k ORDER BY k, key;
-- a claim of the key of the row that is on its way in
ALTER TABLE regress_dropped DROP CONSTRAINT regress_dropped_k_check;
ALTER TABLE regress_dropped ADD CHECK (k < 100 OR idem_once('3:' || k, 'regress_dropped'));
INSERT INTO regress_dropped VALUES (100, 100);
-- what others would sleep behind until the end of the statement is gone then
BEGIN;
INSERT INTO regress_dropped SELECT 30 + g, 30 + g FROM generate_series(1, 20) g;
SAVEPOINT s;
INSERT INTO regress_dropped SELECT 60 + g, 200 + 200 / (15 - g) FROM generate_series(1, 20) g;
ROLLBACK TO s;
SELECT count(*) FROM pg_locks WHERE locktype = 'spectoken' AND pid = pg_backend_pid();
COMMIT;
DROP TABLE regress_dropped;
DROP FUNCTION regress_looked(int), regress_drop();

-- undone with the savepoint in which the verb looked
BEGIN;
INSERT INTO regress_shared_1 VALUES (2, 1) ON CONFLICT DO NOTHING;
SAVEPOINT s;
SELECT idem_once('1:2', 'regress_shared');
ROLLBACK TO s;
SELECT idem_once('1:2', 'regress_shared');
ROLLBACK TO s;
COMMIT;
SELECT key, state FROM idem.key WHERE scope = 'regress_shared';

-- a transaction that becomes read-only commits
BEGIN;
INSERT INTO regress_shared_1 VALUES (2, 1) ON CONFLICT DO NOTHING;
SET TRANSACTION READ ONLY;
SELECT count(*) FROM idem_lookup('1:2', 'regress_shared');
COMMIT;
BEGIN;
INSERT INTO regress_shared_1 VALUES (2, 1) ON CONFLICT DO NOTHING;
SET TRANSACTION READ ONLY;
COMMIT;
SHOW transaction_read_only;
SELECT key, state FROM idem.key WHERE scope = 'regress_shared';

-- many failures in one transaction take no memory
CREATE TABLE regress_refuses (k int, v int CHECK (v > 0));
SELECT idem_attach_once('regress_refuses', '{k}', 'regress_shared');
BEGIN;
DO $$
BEGIN
	FOR i IN 1 .. 100 LOOP
		BEGIN
			INSERT INTO regress_refuses VALUES (i, 0);
		EXCEPTION WHEN check_violation THEN
			NULL;
		END;
	END LOOP;
END $$;
SELECT count(*) < 5 AS few FROM pg_backend_memory_contexts WHERE name = 'idem once registry';
COMMIT;

-- unlogged: its keys would outlive its rows
CREATE UNLOGGED TABLE regress_shared_2 PARTITION OF regress_shared FOR VALUES IN (2);
INSERT INTO regress_shared VALUES (3, 2);
INSERT INTO regress_shared_2 VALUES (3, 2);
INSERT INTO regress_shared VALUES (3, 1);
ALTER TABLE regress_refuses SET UNLOGGED;
INSERT INTO regress_refuses VALUES (3, 1);
ALTER TABLE regress_refuses SET LOGGED;
INSERT INTO regress_refuses VALUES (4, 1);
SELECT idem_detach_once('regress_shared');
SELECT idem_attach_once('regress_shared', '{k}', 'regress_shared');
ALTER TABLE regress_shared_2 SET LOGGED;
-- detaching tells the scope, if it is not the table's
SELECT idem_attach_once('regress_shared', '{k}');
SELECT idem_detach_once('regress_shared');
SELECT idem_attach_once('regress_shared', '{k}');
ALTER TABLE regress_shared RENAME TO regress_renamed;
SELECT idem_detach_once('regress_renamed');
SELECT idem_attach_once('regress_renamed', '{k}', 'once.public.regress_shared');

DROP TABLE regress_renamed, regress_refuses, regress_ran;
DROP FUNCTION regress_run();
DELETE FROM idem.key WHERE scope IN ('regress_shared', 'regress_dropped', 'once.public.regress_shared');
