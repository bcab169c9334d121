-- Fenced tables: a write under an older fence than the row has is refused.

\set VERBOSITY sqlstate
\set SHOW_CONTEXT never
\pset null '(null)'
SET client_min_messages = warning;
CREATE ROLE regress_idem_fence;
CREATE ROLE regress_idem_other;
SELECT idem_grant('regress_idem_fence', 'operator'), idem_grant('regress_idem_other', 'operator');
CREATE SCHEMA regress_idem AUTHORIZATION regress_idem_fence;
GRANT USAGE ON SCHEMA regress_idem TO regress_idem_other;
SET ROLE regress_idem_fence;
SET search_path = regress_idem, public;

CREATE TABLE job (id int PRIMARY KEY, fence bigint, state text);
SELECT idem_attach_fence('job', 'fence');
INSERT INTO job VALUES (1, 10, 'a'), (2, NULL, 'a');
UPDATE job SET state = 'b', fence = 10 WHERE id = 1;
UPDATE job SET state = 'c', fence = 11 WHERE id = 1;
UPDATE job SET state = 'd', fence = 10 WHERE id = 1;
UPDATE job SET state = 'd', fence = NULL WHERE id = 1;
-- a write that carries none keeps the row's, and is not held up
UPDATE job SET state = 'e' WHERE id = 1;
UPDATE job SET state = 'b', fence = 1 WHERE id = 2;
UPDATE job SET state = 'c', fence = 0 WHERE id = 2;
UPDATE job SET fence = fence - 1;
-- upsert
INSERT INTO job VALUES (1, 10, 'f') ON CONFLICT (id) DO UPDATE SET fence = excluded.fence, state = excluded.state;
INSERT INTO job VALUES (1, 12, 'f') ON CONFLICT (id) DO UPDATE SET fence = excluded.fence, state = excluded.state;
INSERT INTO job VALUES (1, 1, 'x') ON CONFLICT DO NOTHING;
-- MERGE
MERGE INTO job USING (VALUES (1, 11), (3, 5)) AS v (id, fence) ON job.id = v.id
	WHEN MATCHED THEN UPDATE SET fence = v.fence, state = 'm' WHEN NOT MATCHED THEN INSERT VALUES (v.id, v.fence, 'm');
MERGE INTO job USING (VALUES (1, 13), (3, 5)) AS v (id, fence) ON job.id = v.id
	WHEN MATCHED THEN UPDATE SET fence = v.fence, state = 'm' WHEN NOT MATCHED THEN INSERT VALUES (v.id, v.fence, 'm');
TABLE job ORDER BY id;
-- only a row that is there is compared with
BEGIN;
INSERT INTO job VALUES (1, 3, 'late') ON CONFLICT DO NOTHING;
DELETE FROM job WHERE id = 1;
INSERT INTO job VALUES (1, 3, 'late');
COPY job FROM STDIN;
4	1	copied
\.
CREATE TABLE heir () INHERITS (job);
INSERT INTO heir VALUES (5, 9, 'h');
UPDATE job SET fence = 8 WHERE id = 5;
TABLE job ORDER BY id;
TRUNCATE job;
ROLLBACK;

-- a trigger that is made by hand is refused, where there is no former row too
BEGIN;
CREATE TRIGGER by_hand BEFORE INSERT ON job FOR EACH ROW WHEN (NEW.fence < 100) EXECUTE FUNCTION idem_fence_check();
INSERT INTO job VALUES (6, 1, 'i');
ROLLBACK;
BEGIN;
CREATE TRIGGER by_hand BEFORE UPDATE ON job FOR EACH ROW EXECUTE FUNCTION idem_fence_check();
UPDATE job SET state = 'i', fence = 1000;
ROLLBACK;
BEGIN;
CREATE TRIGGER by_hand BEFORE UPDATE ON job FOR EACH STATEMENT EXECUTE FUNCTION idem_fence_check();
UPDATE job SET state = 'i', fence = 1000;
ROLLBACK;

-- the way out of a refused write, and what it says
\set VERBOSITY default
UPDATE job SET fence = 2 WHERE id = 1;
\set VERBOSITY sqlstate
DO $$
DECLARE
	t text;
	c text;
BEGIN
	UPDATE job SET fence = 2 WHERE id = 1;
EXCEPTION WHEN SQLSTATE 'ID412' THEN
	GET STACKED DIAGNOSTICS t = TABLE_NAME, c = COLUMN_NAME;
	RAISE EXCEPTION USING ERRCODE = 'ID412', MESSAGE = t || '.' || c;
END $$;

-- a trigger that comes later lowers the fence: the written row is looked at
CREATE FUNCTION lower_it() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.fence := NEW.fence - 5; RETURN NEW; END';
CREATE TRIGGER "~z" BEFORE UPDATE ON job FOR EACH ROW EXECUTE FUNCTION lower_it();
UPDATE job SET fence = 14 WHERE id = 1;
UPDATE job SET fence = 18 WHERE id = 1;
DROP TRIGGER "~z" ON job;
-- one that comes before is seen
CREATE TRIGGER a BEFORE UPDATE ON job FOR EACH ROW EXECUTE FUNCTION lower_it();
UPDATE job SET fence = 14 WHERE id = 1;
DROP TRIGGER a ON job;
SELECT * FROM job WHERE id = 1;

-- rename, drop, change of type
ALTER TABLE job RENAME COLUMN fence TO token;
UPDATE job SET token = 1 WHERE id = 1;
ALTER TABLE job DROP COLUMN token;
ALTER TABLE job ALTER COLUMN token TYPE numeric;
ALTER TABLE job RENAME TO work;
UPDATE work SET token = 1 WHERE id = 1;
SELECT idem_attach_fence('work', 'token');
SELECT idem_detach_fence('work', 'token');
UPDATE work SET token = 1 WHERE id = 1;
SELECT idem_detach_fence('work', 'token');
SELECT idem_attach_fence('work', 'token');
-- two columns, of which the second takes the name that the first had
ALTER TABLE work ADD COLUMN fence int;
SELECT idem_attach_fence('work', 'fence');
UPDATE work SET fence = 5 WHERE id = 1;
UPDATE work SET fence = 4 WHERE id = 1;
UPDATE work SET token = 0 WHERE id = 1;
SELECT idem_detach_fence('work', 'token');
UPDATE work SET token = 0 WHERE id = 1;
UPDATE work SET fence = 4 WHERE id = 1;
SELECT tgname FROM pg_trigger WHERE tgrelid = 'work'::regclass ORDER BY 1;

-- no column that idem looks after in another way, whichever comes first
CREATE TABLE other (id int PRIMARY KEY, "V 1" int NOT NULL DEFAULT 1, state text DEFAULT 'a', seen int, fence bigint);
SELECT idem_attach_version('other', 'V 1', ignore => '{seen}');
SELECT idem_define('fenced', E'stateDiagram-v2\n[*] --> a');
SELECT idem_attach('fenced', 'other', 'state');
SELECT idem_attach_fence('other', 'V 1');
SELECT idem_attach_fence('other', 'seen');
SET quote_all_identifiers = on;
SELECT idem_attach_fence('other', 'V 1');
RESET quote_all_identifiers;
SELECT idem_detach_version('other');
SELECT idem_attach_fence('other', 'V 1');
SELECT idem_attach_version('other', 'V 1');
CREATE TABLE other_part (id int, v int NOT NULL DEFAULT 1) PARTITION BY RANGE (id);
CREATE TABLE other_part1 PARTITION OF other_part FOR VALUES FROM (0) TO (9);
SELECT idem_attach_version('other_part1', 'v');
SELECT idem_attach_fence('other_part', 'v');
DROP TABLE other, other_part;

-- dropped and fast-default columns
CREATE TABLE altered (gone int, id int PRIMARY KEY, fence bigint);
ALTER TABLE altered DROP COLUMN gone;
INSERT INTO altered VALUES (1, 7);
ALTER TABLE altered ADD COLUMN later int NOT NULL DEFAULT 3;
SELECT idem_attach_fence('altered', 'fence');
SELECT idem_attach_fence('altered', 'later');
UPDATE altered SET fence = 6;
UPDATE altered SET later = 2;
UPDATE altered SET fence = 8, later = 4;

-- partitions: every one, also later ones, and moves between them
CREATE TABLE part (id int, fence bigint, place int) PARTITION BY LIST (place);
CREATE TABLE part1 PARTITION OF part FOR VALUES IN (1);
SELECT idem_attach_fence('part', 'fence');
CREATE TABLE part2 (place int, fence bigint, id int);
ALTER TABLE part ATTACH PARTITION part2 FOR VALUES IN (2);
INSERT INTO part VALUES (1, 10, 1);
UPDATE part SET fence = 9;
UPDATE part SET fence = 9, place = 2;
UPDATE part SET fence = NULL, place = 2;
UPDATE part SET fence = 11, place = 2;
UPDATE part SET fence = 10;
UPDATE part2 SET fence = 10;
SELECT tableoid::regclass, id, fence, place FROM part;
SELECT idem_attach_fence('part1', 'fence');
\set VERBOSITY default
SELECT idem_detach_fence('part1', 'fence');
\set VERBOSITY sqlstate
SELECT idem_detach_fence('part1', 'place');
-- ... but one that has a fence by itself, of another column
CREATE TABLE alone (id int, fence bigint, late int);
SELECT idem_attach_fence('alone', 'fence');
CREATE TABLE family (id int, late int, fence bigint) PARTITION BY LIST (id);
ALTER TABLE family ATTACH PARTITION alone FOR VALUES IN (1);
\set VERBOSITY default
SELECT idem_attach_fence('family', 'fence');
\set VERBOSITY sqlstate
SELECT idem_attach_fence('family', 'late');
INSERT INTO family VALUES (1, 5, 5);
UPDATE family SET late = 4;
UPDATE family SET fence = 4;
SELECT idem_detach_fence('alone', 'fence'), idem_attach_fence('family', 'fence');
UPDATE family SET late = 4;
UPDATE family SET fence = 4;
DROP TABLE family;
-- the gap: a trigger that comes later lowers the fence of a row that moves
BEGIN;
CREATE TRIGGER "~z" BEFORE UPDATE ON part FOR EACH ROW EXECUTE FUNCTION lower_it();
UPDATE part SET fence = 12;
ROLLBACK;
BEGIN;
CREATE TRIGGER "~z" BEFORE UPDATE ON part FOR EACH ROW EXECUTE FUNCTION lower_it();
UPDATE part SET fence = 12, place = 1;
SELECT tableoid::regclass, id, fence, place FROM part;
ROLLBACK;
BEGIN;
SELECT idem_detach_fence('part', 'fence');
CREATE TRIGGER "~z" BEFORE UPDATE ON part FOR EACH ROW EXECUTE FUNCTION lower_it();
SELECT idem_attach_fence('part', 'fence');
UPDATE part SET fence = 17, place = 1;
UPDATE part SET fence = 16, place = 2;
ROLLBACK;
SELECT idem_detach_fence('part', 'fence');
UPDATE part SET fence = 10;
-- one before inserts does not, where it was there first
CREATE FUNCTION begin_anew() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
	IF NEW.id < 0 THEN RETURN NULL; END IF;
	NEW.fence := CASE TG_ARGV[0] WHEN 'none' THEN NULL ELSE TG_ARGV[0]::int END;
	RETURN NEW;
END$$;
CREATE TABLE anew (id int, fence bigint, late int, place int, PRIMARY KEY (id, place)) PARTITION BY LIST (place);
CREATE TABLE anew1 PARTITION OF anew FOR VALUES IN (1);
CREATE TABLE anew2 (place int NOT NULL, late int, fence bigint, id int NOT NULL);
ALTER TABLE anew ATTACH PARTITION anew2 FOR VALUES IN (2);
CREATE TRIGGER begin_anew BEFORE INSERT ON anew FOR EACH ROW EXECUTE FUNCTION begin_anew(0);
CREATE TRIGGER "~~none" BEFORE INSERT ON anew2 FOR EACH ROW EXECUTE FUNCTION begin_anew(none);
SELECT idem_attach_fence('anew', 'fence'), idem_attach_fence('anew', 'late');
SELECT tgname, pg_get_triggerdef(oid) FROM pg_trigger WHERE tgrelid = 'anew'::regclass AND tgname LIKE '%moved' ORDER BY 1;
INSERT INTO anew VALUES (1, 5, 5, 1);
INSERT INTO anew VALUES (2, 5, 5, 1);
SELECT * FROM anew ORDER BY id;
UPDATE anew SET fence = 10, late = 4;
UPDATE anew SET fence = 10, late = 6;
UPDATE anew SET fence = 11, place = 2 WHERE id = 1;
UPDATE anew SET late = late + 1, place = 2 WHERE id = 2;
SELECT * FROM anew ORDER BY id;
UPDATE anew SET fence = 10 WHERE id = 1;
UPDATE anew SET fence = 10, place = 1 WHERE id = 1;
UPDATE anew SET fence = 12, place = 1 WHERE id = 1;
-- a row that has none; one that does not arrive, and another one of its statement
UPDATE anew1 SET fence = NULL;
INSERT INTO anew VALUES (3, NULL, 7, 2);
UPDATE anew SET place = 1 WHERE id = 3;
INSERT INTO anew VALUES (-4, 20, 20, 1);
ALTER TABLE anew DISABLE TRIGGER begin_anew;
INSERT INTO anew VALUES (-4, 20, 20, 1);
ALTER TABLE anew ENABLE TRIGGER begin_anew;
MERGE INTO anew USING (VALUES (-4), (5)) AS v (id) ON anew.id = v.id
	WHEN MATCHED THEN UPDATE SET place = 2 WHEN NOT MATCHED THEN INSERT VALUES (v.id, 1, 1, 2);
SELECT * FROM anew ORDER BY id;
-- ... also where that is of another table, or of a partition with a fence of its own
CREATE TABLE strange (id int, fence bigint, late int, place int, PRIMARY KEY (id, place)) PARTITION BY LIST (place);
CREATE TABLE strange1 (LIKE strange INCLUDING ALL) PARTITION BY LIST (place);
CREATE TABLE strange2 (LIKE strange INCLUDING ALL) PARTITION BY LIST (place);
CREATE TABLE strange11 PARTITION OF strange1 DEFAULT;
CREATE TABLE strange22 PARTITION OF strange2 DEFAULT;
CREATE TABLE elsewhere (id int, f int, v int) PARTITION BY LIST (v);
CREATE TABLE elsewhere1 PARTITION OF elsewhere FOR VALUES IN (1);
CREATE TRIGGER begin_anew BEFORE INSERT ON strange1 FOR EACH ROW WHEN (NEW.id < 0) EXECUTE FUNCTION begin_anew(0);
CREATE TRIGGER begin_anew BEFORE INSERT ON strange2 FOR EACH ROW WHEN (NEW.id < 0) EXECUTE FUNCTION begin_anew(0);
CREATE TRIGGER begin_anew BEFORE INSERT ON elsewhere FOR EACH ROW WHEN (NEW.v < 0) EXECUTE FUNCTION begin_anew(0);
SELECT idem_attach_fence('strange1', 'fence'), idem_attach_fence('strange2', 'late'), idem_attach_fence('elsewhere', 'f');
ALTER TABLE strange ATTACH PARTITION strange1 FOR VALUES IN (1);
ALTER TABLE strange ATTACH PARTITION strange2 FOR VALUES IN (2);
INSERT INTO strange VALUES (7, 5000000000, 70, 1), (8, 5000000000, 80, 1);
UPDATE strange SET place = 2 WHERE id = 7;
CREATE FUNCTION keep_it() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE TRIGGER keep_it BEFORE DELETE ON strange11 FOR EACH ROW EXECUTE FUNCTION keep_it();
WITH moved AS (UPDATE strange SET place = 2 WHERE id = 8 RETURNING id) INSERT INTO elsewhere SELECT 8, count(*), 1 FROM moved;
WITH moved AS (UPDATE strange SET place = 2 WHERE id = 8 RETURNING id) INSERT INTO strange SELECT 8, 1, count(*), 2 FROM moved;
SELECT * FROM strange ORDER BY id, place;
SELECT * FROM elsewhere;
DROP TABLE strange, elsewhere;
-- ... and where the fence is of the key
CREATE TABLE keyed (id int, fence bigint, place int, PRIMARY KEY (id, fence, place)) PARTITION BY LIST (place);
CREATE TABLE keyed1 PARTITION OF keyed FOR VALUES IN (1);
CREATE TABLE keyed2 PARTITION OF keyed FOR VALUES IN (2);
CREATE TRIGGER begin_anew BEFORE INSERT ON keyed2 FOR EACH ROW EXECUTE FUNCTION begin_anew(0);
SELECT idem_attach_fence('keyed', 'fence');
INSERT INTO keyed VALUES (1, 5, 1), (2, 6, 1);
UPDATE keyed SET place = 2;
SELECT * FROM keyed ORDER BY id;
DROP TABLE keyed;
-- one before updates that comes later could make any row move
CREATE FUNCTION move_it() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.place := 2; RETURN NEW; END';
CREATE TRIGGER "~~up" BEFORE UPDATE ON anew1 FOR EACH ROW EXECUTE FUNCTION move_it();
UPDATE anew SET fence = 11 WHERE id = 1;
\set VERBOSITY default
UPDATE anew SET fence = 12 WHERE id = 1;
\set VERBOSITY sqlstate
UPDATE anew2 SET late = late;
BEGIN;
ALTER TABLE anew1 DISABLE TRIGGER "~~up";
UPDATE anew SET fence = 12 WHERE id = 1;
ROLLBACK;
BEGIN;
SELECT idem_detach_fence('anew', 'fence'), idem_attach_fence('anew', 'fence'), idem_detach_fence('anew', 'late'), idem_attach_fence('anew', 'late');
UPDATE anew SET fence = 13 WHERE id = 1;
SELECT * FROM anew WHERE id = 1;
ROLLBACK;
DROP TRIGGER "~~up" ON anew1;
-- one that comes later, and by its name too
CREATE TRIGGER "~~zz" BEFORE INSERT ON anew2 FOR EACH ROW EXECUTE FUNCTION begin_anew(3);
INSERT INTO anew VALUES (6, 1, 1, 2);
\set VERBOSITY default
UPDATE anew SET place = 2 WHERE id = 1;
\set VERBOSITY sqlstate
ALTER TRIGGER "~~zz" ON anew2 RENAME TO "~~zz.......................................................";
SELECT idem_detach_fence('anew', 'fence'), idem_detach_fence('anew', 'late');
\set VERBOSITY default
SELECT idem_attach_fence('anew', 'fence');
\set VERBOSITY sqlstate
SELECT count(*) FROM pg_trigger WHERE tgrelid = 'anew2'::regclass AND tgname LIKE '%idem%';

-- refused tables and columns
CREATE VIEW v AS SELECT * FROM work;
CREATE TABLE parent (id int, fence bigint);
CREATE TABLE child () INHERITS (parent);
CREATE TABLE odd (id int, n numeric, s smallint, f bigint GENERATED ALWAYS AS (id * 2) STORED, ok bigint);
SELECT idem_attach_fence('v', 'fence');
SELECT idem_attach_fence('parent', 'fence');
SELECT idem_attach_fence('child', 'fence');
SELECT idem_attach_fence('odd', 'n');
SELECT idem_attach_fence('odd', 's');
SELECT idem_attach_fence('odd', 'f');
SELECT idem_attach_fence('odd', 'ctid');
SELECT idem_attach_fence('odd', 'none');
SELECT idem_attach_fence('pg_class', 'relpages');
SELECT idem_attach_fence(NULL, 'ok');
SELECT idem_attach_fence('odd', NULL);
SELECT idem_detach_fence(NULL, 'ok');
SELECT idem_detach_fence('odd', NULL);
SELECT idem_detach_fence('odd', 'ok');
CREATE TEMP TABLE temporary (fence bigint);
SELECT idem_attach_fence('temporary', 'fence');
CREATE UNLOGGED TABLE "Un""logged" (" f'" bigint);
SELECT idem_attach_fence('"Un""logged"', ' f''');
INSERT INTO "Un""logged" VALUES (2);
UPDATE "Un""logged" SET " f'" = 1;
-- only the owner
GRANT ALL ON odd TO regress_idem_other;
RESET ROLE;
SET ROLE regress_idem_other;
SELECT idem_attach_fence('odd', 'ok');
RESET ROLE;
SET ROLE regress_idem_fence;
SELECT idem_attach_fence('odd', 'ok');
RESET ROLE;
SET ROLE regress_idem_other;
SELECT idem_detach_fence('odd', 'ok');

INSERT INTO odd (id, ok) VALUES (1, 5);
UPDATE odd SET ok = 4;
RESET ROLE;
SET ROLE regress_idem_fence;
-- the trigger function by itself
CREATE TRIGGER t BEFORE INSERT ON odd FOR EACH ROW EXECUTE FUNCTION idem_fence_check();
INSERT INTO odd (id) VALUES (2);
DROP TRIGGER t ON odd;
CREATE TRIGGER t BEFORE UPDATE ON odd FOR EACH ROW EXECUTE FUNCTION idem_fence_check();
UPDATE odd SET ok = 6;
DROP TRIGGER t ON odd;
CREATE TRIGGER t AFTER UPDATE ON odd FOR EACH ROW WHEN (OLD.* IS DISTINCT FROM NEW.*) EXECUTE FUNCTION idem_fence_check();
UPDATE odd SET ok = 6;
DROP TRIGGER t ON odd;

-- COPY and the whole in one: two workers, of which one slept
CREATE TABLE report (day date PRIMARY KEY, fence bigint, body text);
SELECT idem_attach_fence('report', 'fence');
SELECT fence FROM idem_lease_acquire('report', '1 us') \gset old_
SELECT fence FROM idem_lease_acquire('report', '1 h') \gset new_
INSERT INTO report VALUES ('2030-01-01', :new_fence, 'new') ON CONFLICT (day) DO UPDATE SET fence = excluded.fence, body = excluded.body;
INSERT INTO report VALUES ('2030-01-01', :old_fence, 'old') ON CONFLICT (day) DO UPDATE SET fence = excluded.fence, body = excluded.body;
SELECT body FROM report;

RESET ROLE;
RESET search_path;
DELETE FROM idem.lease;
DROP TABLE temporary;
DROP SCHEMA regress_idem CASCADE;
SELECT idem_revoke('regress_idem_fence'), idem_revoke('regress_idem_other');
DELETE FROM idem.machine WHERE name = 'fenced';
DROP ROLE regress_idem_fence, regress_idem_other;
