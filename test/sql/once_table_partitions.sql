-- A table that skips repeated inserts, partitioned by range of time: the key
-- counts in all partitions, and a row that moves is not an insert.

CREATE TABLE regress_event (id bigint, at timestamptz NOT NULL, note text)
	PARTITION BY RANGE (at);
CREATE TABLE regress_event_1 PARTITION OF regress_event
	FOR VALUES FROM ('2026-01-01 00:00+00') TO ('2026-02-01 00:00+00');
CREATE TABLE regress_event_2 (dropped int, note text, at timestamptz NOT NULL, id bigint);
ALTER TABLE regress_event_2 DROP COLUMN dropped;
ALTER TABLE regress_event ATTACH PARTITION regress_event_2
	FOR VALUES FROM ('2026-02-01 00:00+00') TO ('2026-03-01 00:00+00');
CREATE TABLE regress_event_3 PARTITION OF regress_event
	FOR VALUES FROM ('2026-03-01 00:00+00') TO ('2026-04-01 00:00+00')
	PARTITION BY RANGE (at);
CREATE TABLE regress_event_3a PARTITION OF regress_event_3
	FOR VALUES FROM ('2026-03-01 00:00+00') TO ('2026-03-16 00:00+00');
INSERT INTO regress_event VALUES (1, '2026-01-10 00:00+00'), (2, '2026-03-10 00:00+00'), (NULL, '2026-01-10 00:00+00'), (NULL, '2026-01-10 00:00+00');
SELECT idem_attach_once('regress_event', '{id}');
CREATE TABLE regress_event_3b PARTITION OF regress_event_3
	FOR VALUES FROM ('2026-03-16 00:00+00') TO ('2026-04-01 00:00+00');

CREATE VIEW regress_event_all AS
	SELECT tableoid::regclass AS part, id, to_char(at AT TIME ZONE 'UTC', 'MM-DD') AS at, note
	FROM regress_event ORDER BY id, at;
CREATE VIEW regress_event_keys AS
	SELECT key FROM idem.key WHERE scope = 'once.public.regress_event' ORDER BY key COLLATE "C";

INSERT INTO regress_event VALUES (1, '2026-02-10 00:00+00'), (2, '2026-02-10 00:00+00'), (3, '2026-02-10 00:00+00'), (3, '2026-01-10 00:00+00');
COPY regress_event (id, at) FROM stdin;
3	2026-03-20 00:00+00
4	2026-03-20 00:00+00
4	2026-01-20 00:00+00
4	2026-02-20 00:00+00
5	2026-02-20 00:00+00
\.
\echo rows :ROW_COUNT
-- directly into partitions
INSERT INTO regress_event_2 (id, at) VALUES (5, '2026-02-11 00:00+00'), (6, '2026-02-11 00:00+00'), (6, '2026-02-11 00:00+00');
INSERT INTO regress_event_3 VALUES (6, '2026-03-11 00:00+00'), (7, '2026-03-11 00:00+00');
INSERT INTO regress_event_3a VALUES (7, '2026-03-11 00:00+00'), (8, '2026-03-11 00:00+00');
SELECT * FROM regress_event_all;
SELECT * FROM regress_event_keys;

-- moves: there, back, several at once, along with the key, of rows without one
UPDATE regress_event SET at = '2026-02-12 00:00+00' WHERE id = 1;
UPDATE regress_event SET at = '2026-01-12 00:00+00' WHERE id = 1;
UPDATE regress_event SET at = at + '1 month' WHERE id IN (1, 3, 5, 6) OR id IS NULL;
UPDATE regress_event_3 SET at = '2026-03-20 00:00+00' WHERE id = 8;
UPDATE regress_event SET at = '2026-01-01 00:00+00', id = 100 WHERE id = 8;
UPDATE regress_event SET at = '2026-01-02 00:00+00', id = 2 WHERE id = 7;
UPDATE regress_event SET note = 'stays', at = at + '1 min' WHERE id = 4;
MERGE INTO regress_event t
USING (VALUES (4, '2026-01-25 00:00+00'::timestamptz), (9, '2026-01-25 00:00+00'), (3, '2026-01-25 00:00+00')) AS s (id, at) ON t.id = s.id
WHEN MATCHED THEN UPDATE SET at = s.at
WHEN NOT MATCHED THEN INSERT VALUES (s.id, s.at);
SELECT * FROM regress_event_all;
SELECT * FROM regress_event_keys;
-- delete and insert is an insert, though the row is the same
WITH gone AS (DELETE FROM regress_event WHERE id = 9 RETURNING *)
INSERT INTO regress_event SELECT id, at + '1 month', note FROM gone;
-- and so is what follows an update and a delete
BEGIN;
SAVEPOINT s;
UPDATE regress_event SET at = 'infinity' WHERE id = 4;
ROLLBACK TO s;
DELETE FROM regress_event WHERE id = 4;
INSERT INTO regress_event VALUES (4, '2026-01-25 00:00+00');
COMMIT;
SELECT * FROM regress_event_all WHERE id IN (4, 9);

-- a move after dropped rows, with other triggers at work on both sides
CREATE UNIQUE INDEX ON regress_event_1 (note);
CREATE FUNCTION regress_event_log() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	BEGIN
		INSERT INTO regress_event_2 (id, at) VALUES (1000, '2026-02-01 00:00+00');
		INSERT INTO regress_event VALUES (1001, '2026-02-01 00:00+00');
		RAISE division_by_zero;
	EXCEPTION WHEN division_by_zero THEN NULL;
	END;
	INSERT INTO regress_event_2 (id, at) VALUES (5, '2026-02-01 00:00+00');
	IF TG_OP = 'DELETE' THEN RETURN OLD; END IF;
	RETURN NEW;
END $$;
CREATE TRIGGER "~later" BEFORE UPDATE OR DELETE OR INSERT ON regress_event
	FOR EACH ROW WHEN (pg_trigger_depth() = 0) EXECUTE FUNCTION regress_event_log();
CREATE TRIGGER earlier BEFORE UPDATE OR DELETE OR INSERT ON regress_event
	FOR EACH ROW WHEN (pg_trigger_depth() = 0) EXECUTE FUNCTION regress_event_log();
BEGIN;
INSERT INTO regress_event_1 VALUES (20, '2026-01-01 00:00+00', 'n');
INSERT INTO regress_event_1 VALUES (21, '2026-01-01 00:00+00', 'n') ON CONFLICT DO NOTHING;
UPDATE regress_event SET at = '2026-02-13 00:00+00' WHERE id IN (1, 2, 20);
INSERT INTO regress_event VALUES (21, '2026-01-01 00:00+00'), (20, '2026-01-01 00:00+00');
COMMIT;
SELECT * FROM regress_event_all WHERE id IN (1, 2, 20, 21) OR id >= 1000;
SELECT * FROM regress_event_keys WHERE key IN ('2:20', '2:21') OR key LIKE '4:%';
DROP TRIGGER "~later" ON regress_event;
DROP TRIGGER earlier ON regress_event;

-- columns are followed; what they were attached by cannot go
ALTER TABLE regress_event RENAME id TO event;
INSERT INTO regress_event VALUES (1, '2026-01-01 00:00+00'), (30, '2026-02-01 00:00+00'), (30, '2026-01-01 00:00+00');
ALTER TABLE regress_event DROP COLUMN event;
ALTER TABLE regress_event DROP COLUMN note CASCADE;
ALTER TABLE regress_event ALTER COLUMN event TYPE text;
ALTER TABLE regress_event ADD COLUMN added int DEFAULT 7;
INSERT INTO regress_event VALUES (30, '2026-01-01 00:00+00'), (31, '2026-02-01 00:00+00');
ALTER TABLE regress_event RENAME TO regress_event_renamed;
INSERT INTO regress_event_renamed VALUES (31, '2026-01-01 00:00+00'), (32, '2026-02-01 00:00+00');
SELECT key FROM idem.key WHERE scope = 'once.public.regress_event' AND key > '2:3' ORDER BY key COLLATE "C";

-- a partition that leaves is a plain table
ALTER TABLE regress_event_renamed DETACH PARTITION regress_event_2;
SELECT count(*) FROM pg_trigger WHERE tgrelid = 'regress_event_2'::regclass;
SELECT idem_detach_once('regress_event_1');
SELECT idem_detach_once('regress_event_renamed');
SELECT count(*) FROM pg_trigger WHERE tgrelid = 'regress_event_1'::regclass;

-- a table that becomes a partition of another must not be half of it
SELECT idem_attach_once('regress_event_2', '{event}');
DELETE FROM regress_event_2 WHERE event = 2;
SELECT idem_attach_once('regress_event_2', '{event}');
\set VERBOSITY terse
ALTER TABLE regress_event_renamed ATTACH PARTITION regress_event_2
	FOR VALUES FROM ('2026-02-01 00:00+00') TO ('2026-03-01 00:00+00');
\set VERBOSITY default
INSERT INTO regress_event_renamed VALUES (40, '2026-02-01 00:00+00');
SELECT idem_detach_once('regress_event_2');
INSERT INTO regress_event_renamed VALUES (40, '2026-02-01 00:00+00');

DROP TABLE regress_event_renamed CASCADE;
DROP FUNCTION regress_event_log;
DELETE FROM idem.key WHERE scope LIKE '%regress_event%';
