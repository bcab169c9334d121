-- Keys that change hands inside of a statement: each row that waits has one timer,
-- which counts from when it came into its state.

\set SHOW_CONTEXT never
SELECT idem_define('hk', $$
stateDiagram-v2
    [*] --> a
    a --> b : ab
    b --> c : bc
    a --> x : ax after 1 h
    b --> x : bx after 1 h
    c --> x : cx after 1 h
$$);
CREATE FUNCTION hk_nothing() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RETURN NULL; END$$;

-- by statement, by row, and in partitions; the value n is the row's, whatever its key
CREATE TABLE hk_t (id int PRIMARY KEY, s text NOT NULL DEFAULT 'a', n int);
CREATE TABLE hk_r (id int PRIMARY KEY, s text NOT NULL DEFAULT 'a', n int);
CREATE TRIGGER nothing AFTER UPDATE ON hk_r FOR EACH ROW EXECUTE FUNCTION hk_nothing();
CREATE TABLE hk_p (id int PRIMARY KEY, s text NOT NULL DEFAULT 'a', n int) PARTITION BY RANGE (id);
CREATE TABLE hk_p1 PARTITION OF hk_p FOR VALUES FROM (0) TO (50);
CREATE TABLE hk_p2 PARTITION OF hk_p FOR VALUES FROM (50) TO (1000);
SELECT t, idem_attach('hk', t, 's', history => true) FROM unnest('{hk_t,hk_r,hk_p}'::regclass[]) AS t;

-- before the update of a row the first time: what is to be done then
CREATE TABLE hk_act (id int, command text);
CREATE FUNCTION hk_before() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
	act record;
BEGIN
	FOR act IN DELETE FROM hk_act AS h WHERE h.id = old.id RETURNING h.command LOOP
		EXECUTE replace(act.command, '@', TG_ARGV[0]);
	END LOOP;
	RETURN new;
END$$;
CREATE TRIGGER before BEFORE UPDATE ON hk_t FOR EACH ROW EXECUTE FUNCTION hk_before('hk_t');
CREATE TRIGGER before BEFORE UPDATE ON hk_r FOR EACH ROW EXECUTE FUNCTION hk_before('hk_r');
CREATE TRIGGER before BEFORE UPDATE ON hk_p FOR EACH ROW EXECUTE FUNCTION hk_before('hk_p');

-- each row with the events of its timers, and what they count from: when row n was
-- made, or since
CREATE TABLE hk_made (tab text, n int, since timestamptz);
CREATE FUNCTION hk_rows(tab text) RETURNS TABLE (at_key int, state text, n int, timers text) LANGUAGE plpgsql AS $$
BEGIN
	RETURN QUERY EXECUTE format($q$
		SELECT coalesce(r.id, (t.row_key ->> 'id')::int), r.s, r.n, string_agg(concat_ws(' ', t.state, t.event,
				CASE WHEN t.since = m.since THEN 'from then' WHEN t.since > m.since THEN 'from now' END), ', ' ORDER BY t.event)
			FROM %1$I AS r FULL JOIN (SELECT * FROM idem.timer WHERE table_name = %1$L) AS t
				ON (t.row_key ->> 'id')::int = r.id
			LEFT JOIN hk_made AS m ON m.tab = %1$L AND m.n = r.n
			GROUP BY r.id, r.s, r.n, t.row_key ORDER BY 1 $q$, tab);
END$$;
CREATE PROCEDURE hk_make(tab text, VARIADIC ids int[]) LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('DELETE FROM %I', tab);
	DELETE FROM idem.timer WHERE table_name = tab;
	DELETE FROM hk_made AS m WHERE m.tab = hk_make.tab;
	EXECUTE format('INSERT INTO %I (id, n) SELECT i, i FROM unnest($1) AS i', tab) USING ids;
	INSERT INTO hk_made SELECT tab, (t.row_key ->> 'id')::int, t.since FROM idem.timer AS t WHERE t.table_name = tab;
END$$;
CREATE FUNCTION hk_run(statement text, VARIADIC acts text[])
RETURNS TABLE (tab text, at_key int, state text, n int, timers text) LANGUAGE plpgsql AS $$
BEGIN
	FOREACH tab IN ARRAY '{hk_t,hk_r,hk_p}'::text[] LOOP
		CALL hk_make(tab, 1, 2);
		TRUNCATE hk_act;
		INSERT INTO hk_act SELECT 2, act FROM unnest(acts) AS act;
		EXECUTE replace(statement, '@', tab);
		RETURN QUERY SELECT hk_run.tab, r.* FROM hk_rows(hk_run.tab) AS r;
	END LOOP;
END$$;

-- a key that is given up, and taken: both in one call, which began before either
SELECT * FROM hk_run('UPDATE @ SET id = id + 60', 'INSERT INTO @ VALUES (1, ''a'', 7)');
SELECT * FROM hk_run('UPDATE @ SET id = id + 60', 'INSERT INTO @ VALUES (1, ''a'', 7)', 'UPDATE @ SET s = ''b'' WHERE id = 1');
SELECT * FROM hk_run('UPDATE @ SET id = id + 60, s = ''b''', 'INSERT INTO @ VALUES (1, ''a'', 7)', 'UPDATE @ SET id = 3 WHERE id = 1');
-- a row that gets yet another key
SELECT * FROM hk_run('UPDATE @ SET id = id + 60', 'UPDATE @ SET id = 161 WHERE id = 61');
SELECT * FROM hk_run('UPDATE @ SET id = id + 60', 'UPDATE @ SET n = n WHERE id = 61', 'UPDATE @ SET id = 161 WHERE id = 61', 'UPDATE @ SET id = 20 WHERE id = 161');
SELECT * FROM hk_run('UPDATE @ SET id = id + 60', 'UPDATE @ SET id = 161 WHERE id = 61', 'INSERT INTO @ VALUES (1, ''a'', 7), (61, ''a'', 8)');
SELECT * FROM hk_run('UPDATE @ SET id = id + 60', 'UPDATE @ SET id = 161, s = ''b'' WHERE id = 61');
-- and in a block that fails
SELECT * FROM hk_run('UPDATE @ SET id = id + 60',
	'DO $d$BEGIN UPDATE @ SET id = 161 WHERE id = 61; INSERT INTO @ VALUES (1, ''a'', 7); RAISE division_by_zero; EXCEPTION WHEN division_by_zero THEN NULL; END$d$');

-- who takes a key while the statement is at work, and who does so in a block that
-- fails, in a statement inside of it
SELECT * FROM hk_run('UPDATE @ SET id = id + 60, s = ''b''', 'INSERT INTO @ VALUES (1, ''a'', 7), (4, ''a'', 4), (5, ''a'', 5)',
	'INSERT INTO hk_act VALUES (5, ''DO $d$BEGIN UPDATE @ SET id = 9 WHERE id = 1; INSERT INTO @ VALUES (1, ''''a'''', 8); RAISE division_by_zero; EXCEPTION WHEN division_by_zero THEN NULL; END$d$'')',
	'UPDATE @ SET s = ''b'' WHERE id IN (4, 5)');
DROP TRIGGER before ON hk_r;

-- a foreign key's action gives a key away, which a trigger behind it takes
CREATE TABLE hk_parent (k int PRIMARY KEY);
CREATE TABLE hk_given (id int PRIMARY KEY, k int REFERENCES hk_parent ON UPDATE CASCADE, s text DEFAULT 'a', n int);
CREATE FUNCTION hk_away() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	new.id := old.id + 100;
	RETURN new;
END$$;
CREATE FUNCTION hk_take() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO hk_given VALUES (2, 9, 'a', 7);
	RETURN NULL;
END$$;
CREATE TRIGGER away BEFORE UPDATE ON hk_given FOR EACH ROW WHEN (old.k = 8 AND new.k = 9) EXECUTE FUNCTION hk_away();
CREATE TRIGGER take AFTER UPDATE ON hk_given FOR EACH ROW WHEN (new.id = 101) EXECUTE FUNCTION hk_take();
SELECT idem_attach('hk', 'hk_given', 's', history => true);
INSERT INTO hk_parent VALUES (7);
INSERT INTO hk_given VALUES (5, 7, 'a', 5);
BEGIN;
UPDATE hk_parent SET k = 8;
INSERT INTO hk_given VALUES (1, 8, 'a', 1), (2, 8, 'a', 2);
UPDATE hk_parent SET k = 9;
COMMIT;
SELECT * FROM hk_rows('hk_given');
-- what it remembers of keys ends with that statement
DELETE FROM hk_given;
DELETE FROM hk_p;
INSERT INTO hk_given VALUES (1, 9, 'a', 1);
INSERT INTO hk_given SELECT i FROM generate_series(1000, 3000) AS i;
BEGIN;
UPDATE hk_given SET s = 'b' WHERE id >= 1000;
SELECT used_bytes AS before FROM pg_backend_memory_contexts WHERE name = 'TopTransactionContext' \gset
UPDATE hk_parent SET k = 10;
UPDATE hk_given SET s = 'c' WHERE id >= 1000;
SELECT used_bytes - :before < 60000 AS little FROM pg_backend_memory_contexts WHERE name = 'TopTransactionContext';
COMMIT;
BEGIN;
UPDATE hk_parent SET k = 11;
INSERT INTO hk_p SELECT i FROM generate_series(100, 999) AS i;
UPDATE hk_p SET s = 'b' WHERE id >= 100;
SELECT used_bytes < 100000 AS little FROM pg_backend_memory_contexts WHERE name = 'TopTransactionContext';
COMMIT;
DROP TABLE hk_given;
DELETE FROM hk_parent;

-- actions inside of one another, which give their rows yet another key
CREATE TABLE hk_chain (id int, k int REFERENCES hk_parent ON UPDATE CASCADE, s text DEFAULT 'a', n int, PRIMARY KEY (id, k));
CREATE FUNCTION hk_once_more() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	UPDATE hk_parent SET k = k + 1 WHERE k = new.k;
	RETURN NULL;
END$$;
CREATE TRIGGER once_more AFTER UPDATE ON hk_chain FOR EACH ROW WHEN (new.k = 11 AND new.id = 1) EXECUTE FUNCTION hk_once_more();
SELECT idem_attach('hk', 'hk_chain', 's', history => true);
INSERT INTO hk_parent VALUES (10);
INSERT INTO hk_chain VALUES (1, 10, 'a', 1), (2, 10, 'a', 2), (3, 10, 'a', 3);
-- (another row was under a key that they pass)
INSERT INTO hk_parent VALUES (11);
INSERT INTO hk_chain VALUES (3, 11);
DELETE FROM hk_chain WHERE k = 11;
DELETE FROM hk_parent WHERE k = 11;
DELETE FROM idem.timer WHERE table_name = 'hk_chain' AND row_key ->> 'k' = '11';
INSERT INTO hk_made SELECT 'hk_chain', (row_key ->> 'id')::int, since FROM idem.timer WHERE table_name = 'hk_chain';
UPDATE hk_parent SET k = 11 WHERE k = 10;
SELECT * FROM hk_rows('hk_chain');
SELECT row_key FROM idem.timer WHERE table_name = 'hk_chain' ORDER BY row_key;
DROP TABLE hk_chain;

-- one action is begun inside of another, before that one has told of itself: rows of
-- the outer one are moved on before they are recorded
CREATE TABLE hk_inner (k int PRIMARY KEY);
CREATE TABLE hk_moved (id int PRIMARY KEY, k int, i int REFERENCES hk_inner ON UPDATE CASCADE, s text DEFAULT 'a');
CREATE FUNCTION hk_begin_inner() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	UPDATE hk_inner SET k = k + 1;
	new.s := 'b';
	RETURN new;
END$$;
CREATE FUNCTION hk_move_on() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	UPDATE hk_moved SET s = 'c' WHERE id = 2;
	RETURN NULL;
END$$;
CREATE TRIGGER begin_inner BEFORE UPDATE ON hk_moved FOR EACH ROW WHEN (old.k IS DISTINCT FROM new.k) EXECUTE FUNCTION hk_begin_inner();
CREATE TRIGGER move_on AFTER UPDATE ON hk_moved FOR EACH ROW WHEN (new.id = 1 AND new.s = 'b') EXECUTE FUNCTION hk_move_on();
SELECT idem_attach('hk', 'hk_moved', 's', history => true);
INSERT INTO hk_parent VALUES (20);
INSERT INTO hk_inner VALUES (1);
INSERT INTO hk_moved VALUES (1, 20, NULL), (2, 20, NULL), (3, NULL, 1);
ALTER TABLE hk_moved ADD FOREIGN KEY (k) REFERENCES hk_parent ON UPDATE CASCADE;
UPDATE hk_parent SET k = 21 WHERE k = 20;
SELECT row_key, from_state, to_state FROM idem.history WHERE table_name = 'hk_moved' AND row_key @> '{"id": 2}' ORDER BY seq;
SELECT row_key, state FROM idem.timer WHERE table_name = 'hk_moved' ORDER BY row_key;

-- a key that is made to have the hash of another's is not taken for it
CREATE TABLE hk_crafted (ref text PRIMARY KEY, s text NOT NULL DEFAULT 'a', fast bool NOT NULL DEFAULT false);
CREATE FUNCTION hk_go_on() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	UPDATE hk_crafted SET s = 'c' WHERE ref = new.ref;
	RETURN NULL;
END$$;
SELECT idem_attach('hk', 'hk_crafted', 's', history => true);
CREATE TRIGGER go_on AFTER UPDATE ON hk_crafted FOR EACH ROW WHEN (new.s = 'b' AND new.fast) EXECUTE FUNCTION hk_go_on();
INSERT INTO hk_crafted VALUES ('order-1', 'a', true), ('<=pCCJ.>Y(Gh', 'a', false), ('order-3', 'a', false);
UPDATE hk_crafted SET s = 'b';
SELECT row_key, string_agg(to_state, ' ' ORDER BY seq) FROM idem.history WHERE table_name = 'hk_crafted' GROUP BY row_key ORDER BY row_key;
SELECT row_key, state FROM idem.timer WHERE table_name = 'hk_crafted' ORDER BY row_key;

-- a parent's row and its child's that have one key are two, each with its timer
CREATE TABLE hk_up (id int PRIMARY KEY, s text NOT NULL DEFAULT 'a', fast bool NOT NULL DEFAULT false);
CREATE TABLE hk_down (PRIMARY KEY (id)) INHERITS (hk_up);
SELECT idem_attach('hk', 'hk_up', 's', history => true);
CREATE FUNCTION hk_on_up() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	UPDATE ONLY hk_up SET s = 'c' WHERE id = new.id;
	RETURN NULL;
END$$;
CREATE TRIGGER on_up AFTER UPDATE ON hk_up FOR EACH ROW WHEN (new.s = 'b' AND new.fast) EXECUTE FUNCTION hk_on_up();
INSERT INTO hk_up VALUES (1, 'a', true), (2, 'a', false);
INSERT INTO hk_down VALUES (1, 'a', false), (3, 'a', false);
UPDATE hk_up SET s = 'b';
SELECT tableoid::regclass AS t, id, s FROM hk_up ORDER BY t, id;
SELECT table_name, row_key, state FROM idem.timer WHERE table_name IN ('hk_up', 'hk_down') ORDER BY table_name, row_key;

DROP TABLE hk_down, hk_up;
DROP FUNCTION hk_on_up;
DROP TABLE hk_crafted, hk_moved, hk_inner, hk_parent, hk_t, hk_r, hk_p, hk_act, hk_made;
DROP FUNCTION hk_go_on, hk_rows, hk_run, hk_before, hk_nothing, hk_away, hk_take, hk_once_more, hk_begin_inner, hk_move_on;
DROP PROCEDURE hk_make;
DELETE FROM idem.timer WHERE machine = 'hk';
ALTER TABLE idem.history DISABLE TRIGGER protected_row;
DELETE FROM idem.history WHERE machine = 'hk';
ALTER TABLE idem.history ENABLE TRIGGER protected_row;
DELETE FROM idem.machine WHERE name = 'hk';
