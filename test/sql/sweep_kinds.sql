-- idem_sweep over several kinds of record: bounds are shared, a row that raises
-- an error stays alone, a sweep goes on where the last one stopped.

\set VERBOSITY terse

DELETE FROM idem.key;
DELETE FROM idem.token;
UPDATE idem.sweep_state SET position = 0;
CREATE VIEW pg_temp.left_over AS
	SELECT (SELECT count(*) FROM idem.key) AS keys, (SELECT count(*) FROM idem.token) AS tokens;
CREATE PROCEDURE pg_temp.fill(nkeys int, ntokens int) LANGUAGE plpgsql AS $$
BEGIN
	PERFORM idem_import_many(ARRAY(SELECT 'k' || n FROM generate_series(1, nkeys) AS n));
	UPDATE idem.key SET expires_at = '2020-01-01';
	INSERT INTO idem.token (hash, created_at, expires_at, purpose)
	SELECT sha256(n::text::bytea), '2020-01-01', '2020-01-01', 'regress' FROM generate_series(1, ntokens) AS n;
END $$;

-- one row for each kind, always the same ones
SELECT count(*) = count(DISTINCT kind) AS one_each, bool_and(removed = 0) AS none,
	array_agg(kind) @> '{key,token}' AS these FROM idem_sweep();
SELECT count(*) AS without_position FROM idem_sweep() WHERE kind NOT IN (SELECT kind FROM idem.sweep_state);

-- a token stays for 24 hours past its expiry
INSERT INTO idem.token (hash, created_at, expires_at, purpose)
SELECT sha256(age::text::bytea), '2020-01-01', clock_timestamp() - age::interval, 'regress'
FROM unnest('{-1 h,0 s,23 h 59 min,24 h,48 h}'::text[]) AS age;
SELECT * FROM idem_sweep() WHERE removed > 0;
DELETE FROM idem.token;

-- of a subject's marks the last one is asked for the others: the rows read are
-- about as many as there are, not their square
CREATE PROCEDURE pg_temp.replace(n int, live timestamptz) LANGUAGE sql AS $$
	INSERT INTO idem.token (hash, created_at, expires_at, purpose, subject)
	SELECT sha256('live'), live, 'infinity', 'regress', 'bot' WHERE live IS NOT NULL;
	INSERT INTO idem.token (hash, created_at, expires_at, purpose, subject, ends_older)
	SELECT sha256(i::text::bytea), at, at, 'regress', 'bot', at
	FROM generate_series(1, n) AS i, LATERAL (SELECT '2020-01-02'::timestamptz + i * interval '1 ms') AS t (at);
$$;
CREATE FUNCTION pg_temp.rows_read() RETURNS bigint LANGUAGE sql AS $$
	SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_all_tables WHERE relid = 'idem.token'::regclass $$;
CALL pg_temp.replace(3000, NULL);
BEGIN;
SELECT pg_temp.rows_read() AS before \gset
SELECT removed FROM idem_sweep() WHERE kind = 'token';
SELECT pg_temp.rows_read() - :before < 30000 AS few;
COMMIT;
SELECT removed FROM idem_sweep() WHERE kind = 'token';
-- it stays while there is one that it ends and that was not used, also where that
-- has expired: the clock may be ahead
CALL pg_temp.replace(3000, '2020-01-01');
SELECT removed FROM idem_sweep() WHERE kind = 'token';
SELECT hash = sha256('3000') AS last, ends_older IS NOT NULL AS mark FROM idem.token ORDER BY created_at;
SELECT removed FROM idem_sweep() WHERE kind = 'token';
UPDATE idem.token SET expires_at = clock_timestamp() - interval '1 h' WHERE ends_older IS NULL;
SELECT removed FROM idem_sweep() WHERE kind = 'token';
UPDATE idem.token SET used_at = '2020-01-03' WHERE ends_older IS NULL;
SELECT removed FROM idem_sweep() WHERE kind = 'token';
DELETE FROM idem.token;
-- of two marks of one time the one with the lesser hash is ended by the other
CALL pg_temp.replace(2, NULL);
UPDATE idem.token SET created_at = '2020-01-01', ends_older = '2020-01-01';
SELECT removed FROM idem_sweep() WHERE kind = 'token';
SELECT removed FROM idem_sweep() WHERE kind = 'token';
-- one that is live and younger than every mark is no reason
CALL pg_temp.replace(10, '2020-01-03');
SELECT removed FROM idem_sweep() WHERE kind = 'token';
SELECT removed FROM idem_sweep() WHERE kind = 'token';
DELETE FROM idem.token;
-- one of the mark's own time is ended by it if its hash is the smaller one, so that of
-- two marks of one time one ends the other, and in the end both go
CALL pg_temp.replace(1, '2020-01-02 00:00:00.001');
SELECT removed FROM idem_sweep() WHERE kind = 'token';
UPDATE idem.token SET hash = decode(repeat('ff', 32), 'hex') WHERE ends_older IS NULL;
SELECT removed FROM idem_sweep() WHERE kind = 'token';
DELETE FROM idem.token;
CALL pg_temp.replace(2, NULL);
UPDATE idem.token SET created_at = '2020-01-02', ends_older = '2020-01-02';
SELECT removed FROM idem_sweep() WHERE kind = 'token';
SELECT removed FROM idem_sweep() WHERE kind = 'token';
SELECT count(*) FROM idem.token;
-- nor is one of another purpose, or of another subject
CALL pg_temp.replace(1, '2020-01-01');
UPDATE idem.token SET purpose = 'other' WHERE hash = sha256('live');
INSERT INTO idem.token (hash, created_at, expires_at, purpose, subject)
VALUES (sha256('another'), '2020-01-01', 'infinity', 'regress', 'another');
SELECT removed FROM idem_sweep() WHERE kind = 'token';
DELETE FROM idem.token;
-- a later mark of another purpose, or subject, does not stand for this one
CALL pg_temp.replace(1, '2020-01-01');
INSERT INTO idem.token (hash, created_at, expires_at, purpose, subject, ends_older)
VALUES (sha256('a'), now(), 'infinity', 'other', 'bot', now()), (sha256('b'), now(), 'infinity', 'regress', 'other', now());
SELECT removed FROM idem_sweep() WHERE kind = 'token';
DELETE FROM idem.token;

-- who has many does not starve who has few, and gets what they do not need
CALL pg_temp.fill(1000, 5);
SELECT kind, removed FROM idem_sweep(100) WHERE kind IN ('key', 'token') ORDER BY kind;
CALL pg_temp.fill(0, 1000);
SELECT sum(removed) = 600 AS all_used, bool_and(removed >= 50) AS nobody_starves
FROM idem_sweep(600) WHERE kind IN ('key', 'token');
SELECT sum(removed) FROM idem_sweep(NULL);
TABLE pg_temp.left_over;

-- also where there are fewer rows to be removed than kinds: turns are taken
CALL pg_temp.fill(50, 50);
DO $$ BEGIN FOR i IN 1 .. 40 LOOP PERFORM idem_sweep(1); END LOOP; END $$;
SELECT keys < 50 AS keys, tokens < 50 AS tokens, keys + tokens AS sum FROM pg_temp.left_over;
SELECT sum(removed) FROM idem_sweep();

-- no row is removed that the statement would have to wait for or that is alive;
-- a row that raises an error stays, and only that one
CALL pg_temp.fill(0, 500);
CREATE FUNCTION pg_temp.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF OLD.hash = sha256('77') OR OLD.hash = sha256('400') THEN
		RAISE EXCEPTION 'no';
	END IF;
	RETURN OLD;
END $$;
CREATE TRIGGER refuse BEFORE DELETE ON idem.token FOR EACH ROW EXECUTE FUNCTION pg_temp.refuse();
UPDATE idem.token SET expires_at = 'infinity' WHERE hash = sha256('78');
SELECT removed FROM idem_sweep(100) WHERE kind = 'token';
SELECT removed FROM idem_sweep() WHERE kind = 'token';
SELECT removed FROM idem_sweep() WHERE kind = 'token';
DROP TRIGGER refuse ON idem.token;
SELECT removed FROM idem_sweep() WHERE kind = 'token';
SELECT expires_at FROM idem.token;

-- rows that a trigger keeps, or that raise an error, hide none that are behind them
DELETE FROM idem.token;
CALL pg_temp.fill(0, 500);
CREATE FUNCTION pg_temp.hold() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF OLD.hash IN (SELECT sha256(n::text::bytea) FROM generate_series(1, 60) AS n) THEN
		RETURN NULL;
	END IF;
	RETURN OLD;
END $$;
CREATE TRIGGER hold BEFORE DELETE ON idem.token FOR EACH ROW EXECUTE FUNCTION pg_temp.hold();
SELECT removed FROM idem_sweep(30) WHERE kind = 'token';
SELECT removed FROM idem_sweep() WHERE kind = 'token';
TABLE pg_temp.left_over;
SELECT removed FROM idem_sweep() WHERE kind = 'token';
DROP TRIGGER hold ON idem.token;
DELETE FROM idem.token;
CALL pg_temp.fill(0, 30);
CREATE FUNCTION pg_temp.refuse_all() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF OLD.hash IN (SELECT sha256(n::text::bytea) FROM generate_series(1, 20) AS n) THEN
		RAISE EXCEPTION 'no';
	END IF;
	RETURN OLD;
END $$;
CREATE TRIGGER refuse BEFORE DELETE ON idem.token FOR EACH ROW EXECUTE FUNCTION pg_temp.refuse_all();
SELECT removed FROM idem_sweep(1) WHERE kind = 'token';
SELECT removed FROM idem_sweep() WHERE kind = 'token';
DROP TRIGGER refuse ON idem.token;
SELECT removed FROM idem_sweep() WHERE kind = 'token';

-- the position goes round, is saved, and a sweep without one still sweeps
DELETE FROM idem.token;
VACUUM idem.token;
UPDATE idem.sweep_state SET position = 0;
CALL pg_temp.fill(0, 20000);
SELECT removed FROM idem_sweep(15000) WHERE kind = 'token';
SELECT position > 0 AS remembered FROM idem.sweep_state WHERE kind = 'token';
BEGIN;
DELETE FROM idem.sweep_state;
SELECT removed FROM idem_sweep(10) WHERE kind = 'token';
ROLLBACK;
UPDATE idem.sweep_state SET position = CASE kind WHEN 'first' THEN -7 ELSE 4294967295 END;
SELECT removed FROM idem_sweep() WHERE kind = 'token';
TABLE pg_temp.left_over;

-- at REPEATABLE READ what was committed, and deleted, since the snapshot
BEGIN ISOLATION LEVEL REPEATABLE READ;
TABLE pg_temp.left_over;
CALL pg_temp.fill(3, 3);
SELECT sum(removed) FROM idem_sweep();
SELECT sum(removed) FROM idem_sweep();
COMMIT;

-- a child table's rows are none of the parent's
BEGIN;
TRUNCATE idem.lease;
CREATE TABLE regress_child () INHERITS (idem.lease);
INSERT INTO idem.lease (name, fence, until, since, released) VALUES ('parent', 1, '2020-01-01', '2020-01-01', false);
INSERT INTO regress_child (name, fence, until, since, released) VALUES ('child', 1, 'infinity', '2020-01-01', false);
SELECT removed FROM idem_sweep() WHERE kind = 'lease';
SELECT name FROM idem.lease;
ROLLBACK;

-- read-only is refused before anything else
BEGIN READ ONLY;
\set VERBOSITY sqlstate
SELECT * FROM idem_sweep();
ROLLBACK;

-- settings of the session's: rows are found by their places, also with a plan that
-- was made while there were few, and what a trigger sets for itself does not stay
DISCARD PLANS;
SET enable_tidscan = off;
VACUUM idem.token;
CALL pg_temp.fill(0, 1);
ANALYZE idem.token;
SELECT removed FROM idem_sweep() WHERE kind = 'token';
CALL pg_temp.fill(0, 20000);
BEGIN;
SELECT pg_temp.rows_read() AS before \gset
SELECT removed FROM idem_sweep(10000) WHERE kind = 'token';
SELECT pg_temp.rows_read() - :before < 60000 AS few;
COMMIT;
RESET enable_tidscan;
DELETE FROM idem.token;
CALL pg_temp.fill(0, 2);
SET plan_cache_mode = force_custom_plan;
CREATE FUNCTION pg_temp.refuse_one() RETURNS trigger LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan AS $$
BEGIN
	IF OLD.hash = sha256('1') THEN
		RAISE EXCEPTION 'no';
	END IF;
	RETURN OLD;
END $$;
CREATE TRIGGER refuse BEFORE DELETE ON idem.token FOR EACH ROW EXECUTE FUNCTION pg_temp.refuse_one();
SELECT removed FROM idem_sweep() WHERE kind = 'token';
SHOW plan_cache_mode;
DROP TRIGGER refuse ON idem.token;
RESET plan_cache_mode;
DELETE FROM idem.token;
