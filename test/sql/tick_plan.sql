-- Timed transitions: plans that were made while idem.timer was empty find rows
-- by index when it is not.
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE ROLE regress_idem_tick_plan;
GRANT ALL ON SCHEMA public TO regress_idem_tick_plan;
SELECT idem_grant('regress_idem_tick_plan', 'operator');
CREATE VIEW tp_reads AS SELECT seq_scan AS scans, idx_tup_fetch AS rows
FROM pg_stat_xact_all_tables WHERE relid = 'idem.timer'::regclass;
SET ROLE regress_idem_tick_plan;
SELECT idem_define('tp', 'stateDiagram-v2
	[*] --> a
	a --> b : go after 1 h
	b --> a : back');
CREATE TABLE tp (id int PRIMARY KEY, state text NOT NULL DEFAULT 'a');
SELECT idem_attach('tp', 'tp', 'state', history => true);
RESET ROLE;

-- the plans of every statement
ALTER TABLE idem.timer SET (autovacuum_enabled = false);
VACUUM idem.timer;
SET idem.tick_row_timeout = '10 s';
INSERT INTO tp VALUES (1), (2);
SELECT outcome FROM idem_fire('tp', 1, 'go');
UPDATE tp SET id = 3 WHERE id = 2;
ALTER TABLE tp ADD CONSTRAINT never CHECK (id <> 3 OR state = 'a');
UPDATE idem.timer SET due = '2020-01-01', since = '2020-01-01' WHERE machine = 'tp';
SET session_replication_role = replica;
UPDATE idem.history SET at = '2020-01-01' WHERE machine = 'tp';
RESET session_replication_role;
SET client_min_messages = error;
SELECT row_key, event, outcome FROM idem_tick();
SET client_min_messages = warning;
INSERT INTO tp VALUES (4);
UPDATE idem.timer SET due = '2020-01-01', since = '2020-01-01' WHERE row_key = '{"id": 4}';
SET session_replication_role = replica;
UPDATE idem.history SET at = '2020-01-01' WHERE row_key = '{"id": 4}';
RESET session_replication_role;
SELECT row_key, event, outcome FROM idem_tick();
SELECT idem_define('tp', 'stateDiagram-v2
	[*] --> a
	a --> b : go after 59 min
	b --> a : back');
SELECT row_key, event, outcome FROM idem_tick();

-- the same with 3000 rows, of which none is analyzed
INSERT INTO tp SELECT generate_series(11, 3010);
UPDATE idem.timer SET due = '2020-01-01', since = '2020-01-01' WHERE machine = 'tp' AND (row_key ->> 'id')::int BETWEEN 101 AND 120;
SET session_replication_role = replica;
UPDATE idem.history SET at = '2020-01-01' WHERE machine = 'tp' AND (row_key ->> 'id')::int BETWEEN 101 AND 120;
RESET session_replication_role;
UPDATE idem.timer SET due = '2020-01-01', since = '2020-01-01', tries = 0 WHERE row_key = '{"id": 3}';
SET session_replication_role = replica;
UPDATE idem.history SET at = '2020-01-01' WHERE row_key = '{"id": 3}';
RESET session_replication_role;
BEGIN;
SELECT scans, rows FROM tp_reads \gset
SELECT outcome, count(*) FROM generate_series(11, 60) AS i, idem_fire('tp', i, 'go') GROUP BY 1;
SELECT outcome, count(*) FROM generate_series(11, 60) AS i, idem_fire('tp', i, 'back') GROUP BY 1;
UPDATE tp SET id = - id WHERE id BETWEEN 61 AND 70;
SET LOCAL client_min_messages = error;
SELECT outcome, count(*) FROM idem_tick() GROUP BY 1 ORDER BY 1;
SELECT idem_define('tp', 'stateDiagram-v2
	[*] --> a
	a --> b : go after 58 min
	b --> a : back');
SELECT scans - :scans AS scans, rows - :rows < 1000 AS few FROM tp_reads;
COMMIT;
-- the rows of the whole table, each by its own
BEGIN;
SELECT scans, rows FROM tp_reads \gset
SELECT outcome, count(*) FROM idem_tick() GROUP BY 1 ORDER BY 1;
SELECT scans - :scans AS scans, rows - :rows < 30000 AS few FROM tp_reads;
COMMIT;
SELECT count(*), count(DISTINCT row_key), min(due - since), max(due - since) FROM idem.timer WHERE machine = 'tp' AND tries = 0;

-- ... also where the session wants other plans
UPDATE idem.timer SET due = '2020-01-01', since = '2020-01-01', tries = 0
WHERE machine = 'tp' AND (row_key ->> 'id')::int BETWEEN 201 AND 220;
SET session_replication_role = replica;
UPDATE idem.history SET at = '2020-01-01' WHERE machine = 'tp' AND (row_key ->> 'id')::int BETWEEN 201 AND 220;
RESET session_replication_role;
BEGIN;
SET LOCAL client_min_messages = error;
SET LOCAL plan_cache_mode = force_custom_plan;
SET LOCAL enable_nestloop = off;
SET LOCAL enable_indexscan = off;
SELECT scans, rows FROM tp_reads \gset
SELECT outcome, count(*) FROM generate_series(301, 310) AS i, idem_fire('tp', i, 'go') GROUP BY 1;
UPDATE tp SET id = - id WHERE id BETWEEN 361 AND 370;
SELECT idem_define('tp', 'stateDiagram-v2
	[*] --> a
	a --> b : go after 57 min
	b --> a : back');
SELECT outcome, count(*) FROM idem_tick() GROUP BY 1 ORDER BY 1;
SELECT scans - :scans AS scans, rows - :rows < 40000 AS few FROM tp_reads;
SHOW plan_cache_mode;
SHOW enable_nestloop;
COMMIT;

-- what no index serves is not compiled as if it were expensive
SET client_min_messages = debug1;
SELECT idem_detach('tp', 'state');
SET client_min_messages = warning;

ALTER TABLE idem.timer RESET (autovacuum_enabled);
DROP TABLE tp;
DROP VIEW tp_reads;
DELETE FROM idem.timer WHERE machine = 'tp';
ALTER TABLE idem.history DISABLE TRIGGER protected_row;
DELETE FROM idem.history WHERE machine = 'tp';
ALTER TABLE idem.history ENABLE TRIGGER protected_row;
DELETE FROM idem.machine WHERE name = 'tp';
SELECT idem_revoke('regress_idem_tick_plan');
REVOKE ALL ON SCHEMA public FROM regress_idem_tick_plan;
DROP ROLE regress_idem_tick_plan;
