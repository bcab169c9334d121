-- The guard on partitioned and inheritance tables: rows that move between
-- partitions, partitions that come and go.

\set SHOW_CONTEXT never

INSERT INTO idem.machine (name) VALUES ('gp');
INSERT INTO idem.state (machine, name, initial, final) VALUES
	('gp', 'draft', true, false), ('gp', 'pending', false, false),
	('gp', 'approved', false, false), ('gp', 'done', false, true);
INSERT INTO idem.transition (machine, event, from_state, to_state, priority, guard) VALUES
	('gp', 'submit', 'draft', 'pending', 1, 'new.v > 0'),
	('gp', 'approve', 'pending', 'approved', 2, NULL),
	('gp', 'reject', 'pending', 'draft', 3, NULL),
	('gp', 'finish', 'approved', 'done', 4, NULL);

-- partitioned by the state itself; one partition has another layout
CREATE TABLE gp_t (id int, state text NOT NULL, v int, PRIMARY KEY (id, state)) PARTITION BY LIST (state);
CREATE TABLE gp_open PARTITION OF gp_t FOR VALUES IN ('draft');
CREATE TABLE gp_pending (gone int, v int, state text NOT NULL, id int NOT NULL);
ALTER TABLE gp_pending DROP gone;
ALTER TABLE gp_t ATTACH PARTITION gp_pending FOR VALUES IN ('pending');
CREATE TABLE gp_rest PARTITION OF gp_t DEFAULT;
SELECT idem_attach('gp', 'gp_t', 'state', on_delete => 'final');
SELECT machine, table_name, column_name, options FROM idem.binding;
SELECT tgrelid::regclass, tgname FROM pg_trigger WHERE tgrelid::regclass::text ~ '^gp_' ORDER BY 1, 2;

INSERT INTO gp_t SELECT i, 'draft', i FROM generate_series(0, 9) AS i;
INSERT INTO gp_t VALUES (20, 'pending', 1);
INSERT INTO gp_pending (id, state, v) VALUES (20, 'pending', 1);
INSERT INTO gp_t VALUES (20, 'nowhere', 1);
-- legal moves, one by one and in bulk
UPDATE gp_t SET state = 'pending' WHERE id = 1;
UPDATE gp_t SET state = 'pending' WHERE id BETWEEN 2 AND 8;
UPDATE gp_t SET state = 'approved' WHERE id IN (1, 2, 3);
UPDATE gp_t SET state = 'draft' WHERE id = 4;
SELECT tableoid::regclass, id, state FROM gp_t ORDER BY id;
-- illegal ones
UPDATE gp_t SET state = 'approved' WHERE id = 9;
UPDATE gp_t SET state = 'pending' WHERE id = 0;
UPDATE gp_t SET state = 'draft' WHERE id = 1;
UPDATE gp_t SET state = 'done' WHERE id IN (1, 9);
UPDATE gp_t SET state = 'nowhere' WHERE id = 5;
-- within a partition
UPDATE gp_t SET state = 'done' WHERE id = 1;
UPDATE gp_rest SET state = 'done' WHERE id = 2;
UPDATE gp_rest SET state = 'approved' WHERE id = 2;
-- an upsert that meets its row, and MERGE
INSERT INTO gp_t VALUES (9, 'draft', 90) ON CONFLICT (id, state) DO UPDATE SET v = EXCLUDED.v;
MERGE INTO gp_t AS t USING (VALUES (9, 'pending'), (30, 'draft')) AS s (id, state) ON t.id = s.id
	WHEN MATCHED THEN UPDATE SET state = s.state
	WHEN NOT MATCHED THEN INSERT VALUES (s.id, s.state, 1);
MERGE INTO gp_t AS t USING (VALUES (9, 'approved'), (31, 'approved')) AS s (id, state) ON t.id = s.id
	WHEN MATCHED THEN UPDATE SET state = s.state
	WHEN NOT MATCHED THEN INSERT VALUES (s.id, s.state, 1);
-- a move and a forged arrival in one statement
WITH m AS (UPDATE gp_t SET state = 'approved' WHERE id = 5 RETURNING id)
INSERT INTO gp_t SELECT id + 100, 'approved', 1 FROM m;
-- deletes, but not those of moves
DELETE FROM gp_t WHERE id = 3;
DELETE FROM gp_t WHERE id = 1;

-- triggers that change a row on its way
CREATE FUNCTION gp_change() RETURNS trigger LANGUAGE plpgsql AS
$$BEGIN IF tg_op = 'INSERT' AND new.v = 77 THEN new.state := 'draft'; END IF;
	IF tg_op = 'UPDATE' AND new.v = 78 THEN new.state := 'done'; END IF;
	IF tg_op = 'UPDATE' AND new.v = 79 THEN new.state := 'pending'; new.v := 0; END IF;
	IF tg_op = 'UPDATE' AND new.v = 80 THEN RETURN NULL; END IF;
	IF tg_op = 'INSERT' AND new.v = 81 THEN new.v := 82; END IF;
	RETURN new; END$$;
CREATE TRIGGER "~zzz" BEFORE INSERT OR UPDATE ON gp_t FOR EACH ROW EXECUTE FUNCTION gp_change();
UPDATE gp_t SET v = 78 WHERE id = 4;
UPDATE gp_t SET v = 78, state = 'pending' WHERE id = 4;
UPDATE gp_t SET v = 79, state = 'pending' WHERE id = 4;
UPDATE gp_t SET v = 80, state = 'pending' WHERE id = 4;
UPDATE gp_t SET v = 77, state = 'approved' WHERE id = 5;
UPDATE gp_t SET v = 81, state = 'approved' WHERE id = 5;
UPDATE gp_t SET v = 12, state = 'pending' WHERE id = 4;
SELECT tableoid::regclass, * FROM gp_t WHERE id IN (4, 5) ORDER BY id;
DROP TRIGGER "~zzz" ON gp_t;
-- one that loses it: nothing arrives, and nothing can arrive in its place
CREATE FUNCTION gp_lose() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RETURN NULL; END$$;
CREATE TRIGGER lose BEFORE INSERT ON gp_t FOR EACH ROW WHEN (new.v = 99) EXECUTE FUNCTION gp_lose();
BEGIN;
UPDATE gp_t SET v = 99, state = 'approved' WHERE id = 6;
INSERT INTO gp_t VALUES (6, 'approved', 1);
ROLLBACK;
DROP TRIGGER lose ON gp_t;
-- statements in triggers, between a move's two halves
CREATE FUNCTION gp_nested() RETURNS trigger LANGUAGE plpgsql AS
$$BEGIN UPDATE gp_t SET state = 'approved' WHERE id = old.id + 1 AND state = 'pending'; RETURN NULL; END$$;
CREATE TRIGGER "~nested" AFTER DELETE ON gp_t FOR EACH ROW WHEN (old.id = 6) EXECUTE FUNCTION gp_nested();
UPDATE gp_t SET state = 'approved' WHERE id = 6;
SELECT tableoid::regclass, id, state FROM gp_t WHERE id IN (6, 7) ORDER BY id;
DROP TRIGGER "~nested" ON gp_t;

-- partitions come and go
CREATE TABLE gp_new PARTITION OF gp_t FOR VALUES IN ('shelved');
SELECT count(*) FROM pg_trigger WHERE tgrelid = 'gp_new'::regclass;
ALTER TABLE gp_t DETACH PARTITION gp_new;
SELECT count(*) FROM pg_trigger WHERE tgrelid = 'gp_new'::regclass;
INSERT INTO gp_new VALUES (1, 'anything', 1);
ALTER TABLE gp_t DETACH PARTITION gp_rest;
UPDATE gp_rest SET state = 'approved' WHERE id = 1;
SELECT idem_attach('gp', 'gp_open', 'state');
SELECT idem_detach('gp_open', 'state');
-- a foreign partition is none that triggers could guard
SELECT idem_detach('gp_t', 'state');
SELECT count(*) FROM pg_trigger WHERE tgrelid::regclass::text ~ '^gp_' AND tgname ~ '^~';
DROP TABLE gp_t, gp_new, gp_rest;
DROP FUNCTION gp_change, gp_lose, gp_nested;

-- two columns of one table: each has its own arrival
CREATE TABLE gp_two (id int, s1 text NOT NULL, s2 text NOT NULL, v int, k int, PRIMARY KEY (id, k)) PARTITION BY LIST (k);
CREATE TABLE gp_two1 PARTITION OF gp_two FOR VALUES IN (1);
CREATE TABLE gp_two2 PARTITION OF gp_two FOR VALUES IN (2);
SELECT idem_attach('gp', 'gp_two', 's1', history => true), idem_attach('gp', 'gp_two', 's2', history => true);
INSERT INTO gp_two VALUES (1, 'draft', 'draft', 1, 1), (2, 'draft', 'draft', 1, 1);
UPDATE gp_two SET s1 = 'pending' WHERE id = 1;
UPDATE gp_two SET k = 2;
UPDATE gp_two SET k = 1, s2 = 'pending' WHERE id = 1;
UPDATE gp_two SET k = 1, s1 = 'approved' WHERE id = 2;
SELECT * FROM gp_two ORDER BY id;
SELECT row_key, event, from_state, to_state FROM idem.history WHERE table_name = 'gp_two' ORDER BY seq;

-- rows of partitions of different layouts go round, all at once, past a trigger on inserts
CREATE TABLE gp_ring (id int, state text, k int, x text, v int DEFAULT 1, PRIMARY KEY (id, k)) PARTITION BY LIST (k);
CREATE TABLE gp_ring1 PARTITION OF gp_ring FOR VALUES IN (1);
CREATE TABLE gp_ring2 (k int NOT NULL, v int, x text, gone int, state text, id int NOT NULL);
ALTER TABLE gp_ring2 DROP gone;
ALTER TABLE gp_ring ATTACH PARTITION gp_ring2 FOR VALUES IN (2);
CREATE TABLE gp_ring3 (x text, state text, id int NOT NULL, v int, k int NOT NULL);
ALTER TABLE gp_ring ATTACH PARTITION gp_ring3 FOR VALUES IN (3);
SELECT idem_attach('gp', 'gp_ring', 'state', history => true);
CREATE FUNCTION gp_same() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN new.x := new.x || '.'; RETURN new; END$$;
CREATE TRIGGER same BEFORE INSERT ON gp_ring FOR EACH ROW EXECUTE FUNCTION gp_same();
INSERT INTO gp_ring VALUES (1, 'draft', 1, 'p'), (2, 'draft', 1, 'q'), (3, 'draft', 2, 'r'), (4, 'draft', 3, 't');
UPDATE gp_ring SET k = k % 3 + 1;
UPDATE gp_ring SET k = k % 3 + 1, state = CASE WHEN id > 2 THEN 'pending' ELSE state END;
BEGIN;
UPDATE gp_ring SET k = k % 3 + 1, id = id + 10 WHERE id IN (1, 3);
UPDATE gp_ring SET k = k % 3 + 1, id = id + 10, state = 'approved', x = x || '!' WHERE id IN (4, 13);
COMMIT;
SELECT tableoid::regclass, * FROM gp_ring ORDER BY id;
SELECT row_key, event, from_state, to_state FROM idem.history WHERE table_name = 'gp_ring' ORDER BY (row_key ->> 'id')::int, seq;
DROP TABLE gp_ring;
DROP FUNCTION gp_same;

-- while a partition is being detached concurrently it has no ancestors
UPDATE pg_inherits SET inhdetachpending = true WHERE inhrelid = 'gp_two2'::regclass;
\c -
\set SHOW_CONTEXT never
UPDATE gp_two2 SET s1 = 'pending' WHERE id = 2;
UPDATE gp_two2 SET s1 = 'done' WHERE id = 2;
ALTER TABLE gp_two DETACH PARTITION gp_two2 FINALIZE;
SELECT row_key, event, from_state, to_state FROM idem.history WHERE table_name = 'gp_two2' ORDER BY seq;
DROP TABLE gp_two, gp_two2;
ALTER TABLE idem.history DISABLE TRIGGER protected_row;
DELETE FROM idem.history WHERE machine = 'gp';
ALTER TABLE idem.history ENABLE TRIGGER protected_row;

-- old-style inheritance: children are attached along, and rows are guarded
-- whichever table a statement names
CREATE TABLE gp_parent (id int PRIMARY KEY, state text, v int);
CREATE TABLE gp_child (extra int, PRIMARY KEY (id)) INHERITS (gp_parent);
CREATE TABLE gp_grandchild () INHERITS (gp_child);
SELECT idem_attach('gp', 'gp_parent', 'state', on_delete => 'never');
SELECT machine, table_name, column_name, options FROM idem.binding;
INSERT INTO gp_parent VALUES (1, 'draft', 1);
INSERT INTO gp_child VALUES (2, 'draft', 1);
INSERT INTO gp_grandchild VALUES (3, 'draft', 1);
INSERT INTO gp_grandchild VALUES (3, 'done', 1);
UPDATE gp_parent SET state = 'pending';
UPDATE gp_parent SET state = 'done' WHERE id = 3;
UPDATE gp_child SET state = 'approved' WHERE id = 3;
UPDATE ONLY gp_parent SET state = 'approved';
DELETE FROM gp_parent WHERE id = 2;
CREATE TRIGGER "~zzz" BEFORE UPDATE ON gp_child FOR EACH ROW WHEN (new.v = 9) EXECUTE FUNCTION suppress_redundant_updates_trigger();
UPDATE gp_parent SET state = 'approved' WHERE id = 2;
SELECT tableoid::regclass, id, state FROM gp_parent ORDER BY id;
SELECT idem_attach('gp', 'gp_child', 'state');
SELECT idem_detach('gp_child', 'state');
SELECT idem_detach('gp_parent', 'state');
SELECT count(*) FROM pg_trigger WHERE tgrelid::regclass::text ~ '^gp_' AND tgname ~ '^~idem';
-- a child of its own
SELECT idem_attach('gp', 'gp_child', 'state', accept_existing => true);
UPDATE gp_parent SET state = 'draft' WHERE id = 3;
SELECT idem_detach('gp_child', 'state');
DROP TABLE gp_parent, gp_child, gp_grandchild;

-- a row that leaves and does not arrive: what the same command inserts is no arrival.
-- It leaves the one partition that is bound ...
CREATE TABLE gp_bound (id int, state text, k int, v int, PRIMARY KEY (id, k));
SELECT idem_attach('gp', 'gp_bound', 'state');
CREATE TABLE gp_above (id int, state text, k int, v int, PRIMARY KEY (id, k)) PARTITION BY LIST (k);
ALTER TABLE gp_above ATTACH PARTITION gp_bound FOR VALUES IN (1);
CREATE TABLE gp_unbound PARTITION OF gp_above FOR VALUES IN (2);
INSERT INTO gp_above VALUES (1, 'draft', 1);
WITH u AS (UPDATE gp_above SET k = 2 WHERE id = 1 RETURNING id)
	INSERT INTO gp_above SELECT 9, 'approved', 1 FROM u;
-- ... which it may not where no row may be deleted
ALTER TABLE gp_above DETACH PARTITION gp_bound;
SELECT idem_detach('gp_bound', 'state'), idem_attach('gp', 'gp_bound', 'state', on_delete => 'never');
ALTER TABLE gp_above ATTACH PARTITION gp_bound FOR VALUES IN (1);
UPDATE gp_above SET k = 2 WHERE id = 1;
SELECT tableoid::regclass, * FROM gp_above;
DROP TABLE gp_above;
-- ... a trigger suppresses the arrival
CREATE TABLE gp_w (id int, state text, k int, v int DEFAULT 1, PRIMARY KEY (id, k)) PARTITION BY LIST (k);
CREATE TABLE gp_w1 PARTITION OF gp_w FOR VALUES IN (1);
CREATE TABLE gp_w2 PARTITION OF gp_w FOR VALUES IN (2);
SELECT idem_attach('gp', 'gp_w', 'state', history => true);
CREATE FUNCTION gp_none() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE TRIGGER none BEFORE INSERT ON gp_w2 FOR EACH ROW EXECUTE FUNCTION gp_none();
INSERT INTO gp_w VALUES (1, 'draft', 1);
MERGE INTO gp_w USING (VALUES (1, 'pending', 2), (7, 'approved', 1)) AS n (id, state, k) ON gp_w.id = n.id
	WHEN MATCHED THEN UPDATE SET state = n.state, k = n.k
	WHEN NOT MATCHED THEN INSERT VALUES (n.id, n.state, n.k);
DROP TRIGGER none ON gp_w2;
-- ... it arrives in an initial state
SELECT idem_detach('gp_w', 'state'), idem_attach('gp', 'gp_w', 'state');
UPDATE gp_w SET state = 'pending' WHERE id = 1;
MERGE INTO gp_w USING (VALUES (1, 'draft', 2), (7, 'approved', 1)) AS n (id, state, k) ON gp_w.id = n.id
	WHEN MATCHED THEN UPDATE SET state = n.state, k = n.k
	WHEN NOT MATCHED THEN INSERT VALUES (n.id, n.state, n.k);
-- and one that does arrive, beside an insert of another row
MERGE INTO gp_w USING (VALUES (1, 'pending', 2), (7, 'draft', 1)) AS n (id, state, k) ON gp_w.id = n.id
	WHEN MATCHED THEN UPDATE SET state = n.state, k = n.k
	WHEN NOT MATCHED THEN INSERT VALUES (n.id, n.state, n.k);
UPDATE gp_w SET k = 1, state = 'approved' WHERE id = 1;
SELECT tableoid::regclass, * FROM gp_w ORDER BY id;
-- ... with another key, beside one that takes over the key that it had
MERGE INTO gp_w USING (VALUES (1, 'approved', 2, 1), (8, 'approved', 1, 1)) AS n (id, state, k, v) ON gp_w.id = n.id
	WHEN MATCHED THEN UPDATE SET id = 11, k = n.k
	WHEN NOT MATCHED THEN INSERT VALUES (1, n.state, n.k);
UPDATE gp_w SET id = 11, k = 2 WHERE id = 1;
UPDATE gp_w SET id = 12, k = 1, state = 'done' WHERE id = 11;
UPDATE gp_w SET id = 13, k = 2, state = 'draft' WHERE id = 12;
SELECT tableoid::regclass, * FROM gp_w ORDER BY id;
-- what was decided for a row in a subtransaction that failed is not taken for it later
UPDATE idem.state SET self = 'reenter' WHERE machine = 'gp' AND name = 'draft';
INSERT INTO idem.transition (machine, event, from_state, to_state, priority) VALUES ('gp', 'again', 'draft', 'draft', 5);
SELECT idem_detach('gp_w', 'state'), idem_attach('gp', 'gp_w', 'state', history => true);
ALTER TABLE gp_w ADD CHECK (v <> 99);
BEGIN;
SAVEPOINT s;
UPDATE gp_w SET state = 'draft', v = 99 WHERE id = 7;
ROLLBACK TO s;
UPDATE gp_w SET v = 2 WHERE id = 7;
COMMIT;
SELECT event FROM idem_history('gp_w', '{"id": 7, "k": 1}');
DROP TABLE gp_w;
-- the key has no other columns than those that partition
CREATE TABLE gp_r (id int PRIMARY KEY, state text, v int DEFAULT 1) PARTITION BY RANGE (id);
CREATE TABLE gp_r1 PARTITION OF gp_r FOR VALUES FROM (0) TO (100);
CREATE TABLE gp_r2 PARTITION OF gp_r FOR VALUES FROM (100) TO (200);
SELECT idem_attach('gp', 'gp_r', 'state');
INSERT INTO gp_r VALUES (1, 'draft'), (2, 'draft');
UPDATE gp_r SET state = 'pending';
UPDATE gp_r SET id = 101 WHERE id = 1;
UPDATE gp_r SET id = 1, state = 'approved' WHERE id = 101;
UPDATE gp_r SET id = 50 WHERE id = 1;
CREATE TRIGGER none BEFORE INSERT ON gp_r2 FOR EACH ROW EXECUTE FUNCTION gp_none();
WITH u AS (UPDATE gp_r SET id = id + 100 WHERE id = 2 RETURNING id)
	INSERT INTO gp_r SELECT 3, 'approved' UNION ALL SELECT id, 'draft' FROM u;
DROP TRIGGER none ON gp_r2;
SELECT * FROM gp_r ORDER BY id;
DROP TABLE gp_r;
-- the UPDATE gives the row another key, and a trigger behind the guard makes it move
CREATE TABLE gp_l (id int, k int, state text, v int, PRIMARY KEY (id, k)) PARTITION BY LIST (k);
CREATE TABLE gp_l1 PARTITION OF gp_l FOR VALUES IN (1);
CREATE TABLE gp_l2 (v int, k int NOT NULL, id int NOT NULL, state text);
ALTER TABLE gp_l ATTACH PARTITION gp_l2 FOR VALUES IN (2);
SELECT idem_attach('gp', 'gp_l', 'state', history => true);
CREATE FUNCTION gp_send() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN IF new.v = 9 THEN new.k := 3 - new.k; END IF; RETURN new; END$$;
CREATE TRIGGER "~~send" BEFORE UPDATE ON gp_l FOR EACH ROW EXECUTE FUNCTION gp_send();
INSERT INTO gp_l VALUES (1, 1, 'draft', 1), (2, 1, 'draft', 1);
UPDATE gp_l SET state = 'pending' WHERE id = 1;
UPDATE gp_l SET id = id + 10, v = 9;
UPDATE gp_l SET id = id + 10, state = 'approved' WHERE state = 'pending';
UPDATE gp_l SET id = id + 10, v = 1;
UPDATE gp_l SET id = id + 10, v = 9, state = 'done' WHERE state = 'draft';
SELECT tableoid::regclass, * FROM gp_l ORDER BY id;
SELECT row_key, event, from_state, to_state FROM idem.history WHERE table_name = 'gp_l' ORDER BY seq;
DROP TABLE gp_l;
DROP FUNCTION gp_send;
-- a part of it is computed
CREATE TABLE gp_g (id int, state text, code text GENERATED ALWAYS AS ((id + 1)::text) STORED, k int, v int DEFAULT 1, PRIMARY KEY (id, code, k)) PARTITION BY LIST (k);
CREATE TABLE gp_g1 PARTITION OF gp_g FOR VALUES IN (1);
CREATE TABLE gp_g2 PARTITION OF gp_g FOR VALUES IN (2);
SELECT idem_attach('gp', 'gp_g', 'state', history => true);
INSERT INTO gp_g VALUES (1, 'draft', DEFAULT, 1);
UPDATE gp_g SET id = 2, k = 2, state = 'pending';
UPDATE gp_g SET id = 3, k = 1;
SELECT row_key, event, from_state, to_state FROM idem.history WHERE table_name = 'gp_g' ORDER BY seq;
DROP TABLE gp_g;
DROP FUNCTION gp_none;
-- moves that are refused on arrival, again and again, take no memory
CREATE TABLE gp_m (id int, state text, k int, v int, pad text, PRIMARY KEY (id, k)) PARTITION BY LIST (k);
CREATE TABLE gp_m1 PARTITION OF gp_m FOR VALUES IN (1);
CREATE TABLE gp_m2 PARTITION OF gp_m FOR VALUES IN (2);
ALTER TABLE gp_m ALTER pad SET STORAGE PLAIN;
ALTER TABLE gp_m1 ALTER pad SET STORAGE PLAIN;
ALTER TABLE gp_m2 ALTER pad SET STORAGE PLAIN;
SELECT idem_attach('gp', 'gp_m', 'state');
INSERT INTO gp_m VALUES (1, 'draft', 1, 1, repeat('x', 5000));
CREATE FUNCTION gp_done() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN new.state := 'done'; RETURN new; END$$;
CREATE TRIGGER done BEFORE INSERT ON gp_m2 FOR EACH ROW EXECUTE FUNCTION gp_done();
CREATE FUNCTION gp_refused(n int) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
	refused int := 0;
BEGIN
	FOR i IN 1 .. n LOOP
		BEGIN
			UPDATE gp_m SET k = 2;
		EXCEPTION WHEN SQLSTATE 'ID409' THEN
			refused := refused + 1;
		END;
	END LOOP;
	RETURN refused;
END $$;
BEGIN;
SELECT gp_refused(200);
SELECT total_bytes < 200000 AS little FROM pg_backend_memory_contexts WHERE name = 'TopTransactionContext';
ROLLBACK;
-- nor do rows that move, until the statement ends
ALTER TABLE gp_m2 DISABLE TRIGGER done;
INSERT INTO gp_m SELECT i, 'draft', 1, 1, (SELECT string_agg(md5(format('%s %s', i, j)), '') FROM generate_series(1, 45) AS j)
	FROM generate_series(11, 1010) AS i;
BEGIN;
UPDATE gp_m SET k = 2, state = 'pending' WHERE id > 10;
SELECT total_bytes < 500000 AS little FROM pg_backend_memory_contexts WHERE name = 'TopTransactionContext';
ROLLBACK;
DROP TABLE gp_m;
DROP FUNCTION gp_done, gp_refused;
-- judged again where it arrives, the row before is the same in each layout
SELECT idem_define('gpx', E'stateDiagram-v2\n[*] --> a\na --> b : go [old.tableoid::regclass::text = ''gp_x1'' AND old.ctid = ''(0,1)'' AND old.xmin = new.x]');
CREATE TABLE gp_x (id int, s text, k int, x xid, PRIMARY KEY (id, k)) PARTITION BY LIST (k);
CREATE TABLE gp_x1 PARTITION OF gp_x FOR VALUES IN (1);
CREATE TABLE gp_x2 (k int NOT NULL, x xid, gone int, s text, id int NOT NULL);
ALTER TABLE gp_x2 DROP COLUMN gone;
ALTER TABLE gp_x ATTACH PARTITION gp_x2 FOR VALUES IN (2);
SELECT idem_attach('gpx', 'gp_x', 's');
CREATE FUNCTION gp_x() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN IF new.k = 2 THEN new.id := new.id + 0; new.s := 'b'; END IF; RETURN new; END$$;
CREATE TRIGGER x BEFORE INSERT ON gp_x FOR EACH ROW EXECUTE FUNCTION gp_x();
INSERT INTO gp_x VALUES (1, 'a', 1);
UPDATE gp_x SET k = 2, x = xmin WHERE id = 1 RETURNING tableoid::regclass, s;
DROP TABLE gp_x;
DROP FUNCTION gp_x;
DELETE FROM idem.machine WHERE name = 'gpx';
ALTER TABLE idem.history DISABLE TRIGGER protected_row;
DELETE FROM idem.history WHERE machine = 'gp';
ALTER TABLE idem.history ENABLE TRIGGER protected_row;
DELETE FROM idem.state WHERE machine = 'gp';
DELETE FROM idem.machine WHERE name = 'gp';
