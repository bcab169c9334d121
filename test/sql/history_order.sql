-- History in the order in which rows moved, whoever moves them on.

\set SHOW_CONTEXT never
SELECT idem_define('ho', $$
stateDiagram-v2
    [*] --> a
    a --> b : e1 [new.v < 10]
    a --> b : e2
    a --> c : e3
    b --> c : e4
    b --> x : late after 1 h
    c --> d : later after 2 h
    c --> a : back
$$);
CREATE TABLE ho_seen (seq bigint);
INSERT INTO ho_seen VALUES (0);
CREATE FUNCTION ho_new(OUT tab text, OUT col text, OUT row_key jsonb, OUT event text, OUT from_state text, OUT to_state text,
	OUT key text, OUT context jsonb) RETURNS SETOF record LANGUAGE plpgsql AS $$
DECLARE
	last bigint := (SELECT max(s.seq) FROM ho_seen AS s);
BEGIN
	RETURN QUERY SELECT h.table_name, h.column_name, h.row_key, h.event, h.from_state, h.to_state, h.key, h.context
		FROM idem.history AS h WHERE h.seq > last AND h.machine = 'ho' ORDER BY h.seq;
	UPDATE ho_seen SET seq = (SELECT coalesce(max(h.seq), 0) FROM idem.history AS h);
END $$;
SELECT count(*) FROM ho_new();
CREATE VIEW ho_timer AS SELECT table_name, binding, row_key, state, event FROM idem.timer WHERE machine = 'ho';

-- a trigger after the update of a row moves it on, whatever its name
CREATE TABLE ho_t (id int PRIMARY KEY, s text NOT NULL DEFAULT 'a', v int);
SELECT idem_attach('ho', 'ho_t', 's', history => true);
CREATE FUNCTION ho_on() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF new.s = 'b' THEN
		EXECUTE format('UPDATE %I SET s = ''c'' WHERE id = $1', TG_ARGV[0]) USING new.id;
	END IF;
	RETURN NULL;
END $$;
CREATE TRIGGER aa AFTER UPDATE ON ho_t FOR EACH ROW EXECUTE FUNCTION ho_on('ho_t');
INSERT INTO ho_t VALUES (1, 'a', 1), (2, 'a', 20);
UPDATE ho_t SET s = 'b' WHERE id = 1;
SELECT outcome, from_state, to_state FROM idem_fire('ho_t', 2, 'e2', key => 'ho-outer', context => '{"out": 1}');
SELECT * FROM ho_new();
SELECT * FROM ho_timer ORDER BY row_key, event;
SELECT count(*) FILTER (WHERE state = 'c'), count(*) FILTER (WHERE state <> 'c') FROM (
	SELECT state FROM idem.dwell WHERE machine = 'ho' AND count > 0) AS d;
-- a savepoint around the step that fails leaves the row where it was
CREATE OR REPLACE FUNCTION ho_on() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF new.s = 'b' THEN
		BEGIN
			UPDATE ho_t SET s = 'c' WHERE id = new.id;
			RAISE 'no';
		EXCEPTION WHEN raise_exception THEN
			NULL;
		END;
	END IF;
	RETURN NULL;
END $$;
UPDATE ho_t SET s = 'a' WHERE id = 1;
UPDATE ho_t SET s = 'b' WHERE id = 1;
SELECT * FROM ho_new();
SELECT * FROM ho_timer WHERE row_key = '{"id": 1}';
-- so does one on a table that is attached, a trigger of a statement, or of an insert
DROP TRIGGER aa ON ho_t;
CREATE FUNCTION ho_on_statement() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF EXISTS (SELECT FROM n WHERE n.s = 'b') THEN
		UPDATE ho_t SET s = 'c' WHERE id IN (SELECT n.id FROM n WHERE n.s = 'b');
	END IF;
	RETURN NULL;
END $$;
CREATE TRIGGER aa AFTER UPDATE ON ho_t REFERENCING NEW TABLE AS n
	FOR EACH STATEMENT EXECUTE FUNCTION ho_on_statement();
UPDATE ho_t SET s = 'a' WHERE id = 2;
UPDATE ho_t SET s = 'b' WHERE id = 2;
SELECT * FROM ho_new();
SELECT * FROM ho_timer WHERE row_key = '{"id": 2}';
DROP TRIGGER aa ON ho_t;
CREATE FUNCTION ho_start() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	UPDATE ho_t SET s = 'b' WHERE id = new.id;
	RETURN NULL;
END $$;
CREATE TRIGGER aa AFTER INSERT ON ho_t FOR EACH ROW EXECUTE FUNCTION ho_start();
INSERT INTO ho_t VALUES (3, 'a', 1), (4, 'a', 20);
INSERT INTO ho_t VALUES (3, 'a', 1), (5, 'a', 20) ON CONFLICT (id) DO UPDATE SET s = 'c';
SELECT * FROM ho_new();
SELECT * FROM ho_timer WHERE row_key IN ('{"id": 3}', '{"id": 4}') ORDER BY row_key;
-- a later BEFORE trigger changes what was decided on
CREATE FUNCTION ho_other() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF new.v = 7 THEN new.s := 'c'; END IF;
	RETURN new;
END $$;
CREATE TRIGGER "~zz" BEFORE UPDATE ON ho_t FOR EACH ROW EXECUTE FUNCTION ho_other();
ALTER TABLE ho_t DISABLE TRIGGER aa;
INSERT INTO ho_t VALUES (6, 'a', 7), (7, 'a', 7);
UPDATE ho_t SET s = 'b' WHERE id = 6;
ALTER TABLE ho_t ENABLE TRIGGER aa;
UPDATE ho_t SET s = 'b' WHERE id = 7;
SELECT * FROM ho_new();
DROP TRIGGER "~zz" ON ho_t;

-- the same where rows are in partitions, and where they move between them
CREATE TABLE ho_p (id int, s text NOT NULL DEFAULT 'a', v int, PRIMARY KEY (id, s)) PARTITION BY LIST (s);
CREATE TABLE ho_p1 PARTITION OF ho_p FOR VALUES IN ('a', 'c');
CREATE TABLE ho_p2 PARTITION OF ho_p FOR VALUES IN ('b');
SELECT idem_attach('ho', 'ho_p', 's', history => true);
CREATE FUNCTION ho_on_p() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF new.s = 'b' THEN UPDATE ho_p SET s = 'c' WHERE id = new.id; END IF;
	RETURN NULL;
END $$;
CREATE TRIGGER aa AFTER INSERT OR UPDATE ON ho_p FOR EACH ROW EXECUTE FUNCTION ho_on_p();
INSERT INTO ho_p VALUES (1, 'a', 1);
UPDATE ho_p SET s = 'b' WHERE id = 1;
SELECT * FROM ho_new();
SELECT * FROM ho_timer WHERE table_name = 'ho_p';

-- a note goes with the update that failed
CREATE TABLE ho_c (id int PRIMARY KEY, s text DEFAULT 'a', v int CHECK (v <> 99));
SELECT idem_attach('ho', 'ho_c', 's', history => true);
INSERT INTO ho_c VALUES (1, 'a', 1);
BEGIN;
SAVEPOINT x;
UPDATE ho_c SET s = 'b', v = 99 WHERE id = 1;
ROLLBACK TO x;
UPDATE ho_c SET s = 'c' WHERE id = 1;
COMMIT;
SELECT * FROM ho_new();

-- a table that became a child, and a parent, after it was attached
CREATE TABLE ho_up (id int PRIMARY KEY, s text, v int);
ALTER TABLE ho_c INHERIT ho_up;
UPDATE ho_up SET s = 'a' WHERE id = 1;
UPDATE ho_c SET s = 'b' WHERE id = 1;
INSERT INTO ho_c VALUES (2, 'a', 1);
SELECT * FROM ho_new();
SELECT * FROM ho_timer WHERE table_name = 'ho_c' ORDER BY row_key;
SELECT to_state FROM idem_history('ho_c', 1);
ALTER TABLE ho_c NO INHERIT ho_up;
UPDATE ho_c SET s = 'c' WHERE id = 1;
CREATE TABLE ho_down () INHERITS (ho_c);
INSERT INTO ho_down VALUES (1, 'free', 1);
UPDATE ho_c SET s = 'a' WHERE s = 'c';
UPDATE ho_c SET s = 'any' WHERE s = 'free';
SELECT * FROM ho_new();
DROP TABLE ho_down;
-- as a partition, with and without a machine on its root
CREATE TABLE ho_root (id int PRIMARY KEY, s text, v int) PARTITION BY RANGE (id);
ALTER TABLE ho_root ATTACH PARTITION ho_c FOR VALUES FROM (0) TO (10);
UPDATE ho_root SET s = 'c' WHERE id = 2;
UPDATE ho_root SET s = 'b' WHERE id = 2;
INSERT INTO ho_root VALUES (3, 'b', 1);
INSERT INTO ho_root VALUES (3, 'a', 1);
UPDATE ho_root SET s = 'b' WHERE id = 3;
SELECT * FROM ho_new();
SELECT * FROM ho_timer WHERE table_name IN ('ho_c', 'ho_root') ORDER BY row_key;
SELECT to_state FROM idem_history('ho_c', 3);
SELECT idem_attach('ho', 'ho_root', 's', history => true);
ALTER TABLE ho_root DETACH PARTITION ho_c;
SELECT idem_attach('ho', 'ho_root', 's', history => true);
\set VERBOSITY sqlstate
ALTER TABLE ho_root ATTACH PARTITION ho_c FOR VALUES FROM (0) TO (10);
\set VERBOSITY default
SELECT idem_detach('ho_c', 's');
ALTER TABLE ho_root ATTACH PARTITION ho_c FOR VALUES FROM (0) TO (10);
UPDATE ho_root SET s = 'c' WHERE id = 3;
SELECT * FROM ho_new();
SELECT to_state FROM idem_history('ho_c', 3);
SELECT to_state FROM idem_history('ho_root', 3);

-- two machines, one's column in the primary key; one machine twice
CREATE TABLE ho_two (id int, s text DEFAULT 'a', s2 text DEFAULT 'a', v int, PRIMARY KEY (id, s));
SELECT idem_attach('ho', 'ho_two', 's', history => true);
SELECT idem_attach('ho', 'ho_two', 's2', history => true);
INSERT INTO ho_two VALUES (1, 'a', 'a', 1);
UPDATE ho_two SET s = 'b' WHERE id = 1;
UPDATE ho_two SET s2 = 'b' WHERE id = 1;
UPDATE ho_two SET s = 'c', s2 = 'c' WHERE id = 1;
SELECT * FROM ho_new();
SELECT column_name, event, to_state FROM idem_history('ho_two', '{"id": 1, "s": "a"}');
SELECT column_name, event, to_state FROM idem_history('ho_two', '{"id": 1, "s": "c"}');
SELECT count(*) FROM ho_timer WHERE table_name = 'ho_two';

-- keys that are equal and print otherwise
CREATE TABLE ho_char (id char(6) PRIMARY KEY, s text DEFAULT 'a', v int);
CREATE TABLE ho_case (id numeric[] PRIMARY KEY, s text DEFAULT 'a', v int);
CREATE TABLE ho_num (id numeric PRIMARY KEY, s text DEFAULT 'a', v int);
SELECT idem_attach('ho', t, 's', history => true) FROM unnest(ARRAY['ho_char', 'ho_case', 'ho_num']::regclass[]) AS t;
INSERT INTO ho_char VALUES ('ab');
INSERT INTO ho_case VALUES ('{1.0}');
INSERT INTO ho_num VALUES (1.0);
UPDATE ho_case SET s = 'b' WHERE id = '{1}';
SELECT row_key, to_state FROM idem_history('ho_char', 'ab'::text);
SELECT row_key, to_state FROM idem_history('ho_case', '{1.00}'::text);
SELECT row_key, to_state FROM idem_history('ho_num', 1);
SELECT row_key, to_state FROM idem_history('ho_num', '1.00'::text);
SELECT count(*) FROM ho_new();

-- attaching in a statement that writes the table
CREATE TABLE ho_busy (id int PRIMARY KEY, s text, v int, version int NOT NULL DEFAULT 1);
INSERT INTO ho_busy SELECT i, 'nowhere' FROM generate_series(1, 3) AS i
	WHERE i <> 2 OR idem_attach('ho', 'ho_busy', 's');
INSERT INTO ho_busy SELECT i, 'nowhere' FROM generate_series(1, 3) AS i
	WHERE i <> 2 OR idem_attach_version('ho_busy', 'version');
SELECT idem_attach('ho', 'ho_busy', 's', history => true);
INSERT INTO ho_busy VALUES (1, 'a');
UPDATE ho_busy SET version = 1 WHERE idem_detach('ho_busy', 's');

-- out of NULL, where events alone move rows
CREATE TABLE ho_null (id int PRIMARY KEY, s text, v int);
INSERT INTO ho_null VALUES (1), (2);
SELECT idem_attach('ho', 'ho_null', 's', history => true, events_only => true, accept_existing => true);
UPDATE ho_null SET s = 'b' WHERE id = 1;
UPDATE ho_null SET s = 'a' WHERE id = 1;
UPDATE ho_null SET s = 'b' WHERE id = 1;
SELECT outcome, to_state FROM idem_fire('ho_null', 1, 'e2');
SELECT * FROM ho_new();

-- moved on inside of the statement: by a function in RETURNING, in a later
-- member, and by a trigger before another row; a step that fails changes nothing
CREATE TABLE ho_in (id int PRIMARY KEY, s text NOT NULL DEFAULT 'a', v int);
SELECT idem_attach('ho', 'ho_in', 's', history => true);
CREATE FUNCTION ho_move(i int, fail bool DEFAULT false) RETURNS int LANGUAGE plpgsql AS $$
BEGIN
	UPDATE ho_in SET s = 'c' WHERE id = i AND s = 'b';
	IF fail THEN RAISE 'no'; END IF;
	RETURN i;
EXCEPTION WHEN raise_exception THEN
	RETURN 0;
END $$;
CREATE FUNCTION ho_after() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM ho_move(7);
	RETURN NULL;
END $$;
CREATE FUNCTION ho_start_of(i int) RETURNS int LANGUAGE plpgsql AS $$
BEGIN
	UPDATE ho_in SET s = 'b' WHERE id = i;
	RETURN i;
END $$;
INSERT INTO ho_in SELECT i, 'a', 20 FROM generate_series(1, 8) AS i;
SELECT count(*) FROM ho_new();
UPDATE ho_in SET s = 'b' WHERE id = 1 RETURNING ho_move(id);
UPDATE ho_in SET s = 'b' WHERE id = 2 RETURNING ho_move(id, true);
WITH w AS (UPDATE ho_in SET s = 'b' WHERE id = 3 RETURNING id) SELECT ho_move(id) FROM w;
SELECT * FROM ho_new();
SELECT row_key, state, event FROM ho_timer WHERE table_name = 'ho_in' ORDER BY row_key;
CREATE FUNCTION ho_before() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF new.id = 5 AND new.s = 'b' THEN PERFORM ho_move(4); END IF;
	RETURN new;
END $$;
CREATE TRIGGER aa BEFORE UPDATE ON ho_in FOR EACH ROW EXECUTE FUNCTION ho_before();
UPDATE ho_in SET s = 'b' WHERE id IN (4, 5);
DROP TRIGGER aa ON ho_in;
-- a trigger after one row moves on another that the statement has moved
CREATE TRIGGER aa AFTER UPDATE ON ho_in FOR EACH ROW WHEN (new.id = 6 AND new.s = 'b') EXECUTE FUNCTION ho_after();
UPDATE ho_in SET s = 'b' WHERE id IN (6, 7);
DROP TRIGGER aa ON ho_in;
INSERT INTO ho_in VALUES (9, 'a', 20), (10, 'a', 20) RETURNING ho_start_of(id);
SELECT row_key, event, from_state, to_state FROM ho_new();
SELECT row_key, state, event FROM ho_timer WHERE table_name = 'ho_in' ORDER BY row_key;
SELECT state, count FROM idem.dwell WHERE machine = 'ho' AND state = 'c' AND median < 0;

-- one answer for a statement: the table becomes a parent, or gets a trigger, by
-- a function of the statement itself
CREATE FUNCTION ho_make(i int, command text) RETURNS bool LANGUAGE plpgsql AS $$
BEGIN
	IF i = 2 THEN EXECUTE command; END IF;
	RETURN true;
END $$;
CREATE TABLE ho_once (id int PRIMARY KEY, s text NOT NULL DEFAULT 'a', v int);
SELECT idem_attach('ho', 'ho_once', 's', history => true);
INSERT INTO ho_once VALUES (1), (2), (3);
SELECT count(*) FROM ho_new();
UPDATE ho_once SET s = 'c' WHERE ho_make(id, 'CREATE TRIGGER aa AFTER UPDATE ON ho_once FOR EACH ROW WHEN (false) EXECUTE FUNCTION ho_after()');
SELECT row_key, event, to_state FROM ho_new();
DROP TRIGGER aa ON ho_once;
UPDATE ho_once SET s = 'a' WHERE ho_make(id, 'CREATE TABLE ho_once_down () INHERITS (ho_once)');
SELECT row_key, event, to_state FROM ho_new();
SELECT row_key, state, event FROM ho_timer WHERE table_name = 'ho_once' ORDER BY row_key, event;
UPDATE ho_once SET s = 'c';
SELECT row_key, event, to_state FROM ho_new();
DROP TABLE ho_once_down;
INSERT INTO ho_once SELECT i, 'a' FROM generate_series(4, 6) AS i
	WHERE ho_make(i - 3, 'CREATE TABLE ho_once_down () INHERITS (ho_once)');
SELECT row_key, event, to_state FROM ho_new();
-- a foreign key's action writes rows of a plain table
CREATE TABLE ho_state (s text PRIMARY KEY);
INSERT INTO ho_state VALUES ('a'), ('b'), ('c');
CREATE TABLE ho_fk (id int PRIMARY KEY, s text DEFAULT 'c' REFERENCES ho_state ON DELETE SET DEFAULT, v int);
SELECT idem_attach('ho', 'ho_fk', 's', history => true);
INSERT INTO ho_fk VALUES (1, 'a'), (2, 'a');
DELETE FROM ho_state WHERE s = 'a';
SELECT row_key, event, from_state, to_state FROM ho_new();
SELECT row_key, state, event FROM ho_timer WHERE table_name = 'ho_fk' ORDER BY row_key;

-- a write that leaves the state, where the mode is reenter and one rule leads back
SELECT idem_define('hor', $$
stateDiagram-v2
    [*] --> a
    a --> b : e1
    a --> a : again
$$);
UPDATE idem.state SET self = 'reenter' WHERE machine = 'hor' AND name = 'a';
CREATE TABLE ho_re (id int PRIMARY KEY, s text NOT NULL DEFAULT 'a', v int);
SELECT idem_attach('hor', 'ho_re', 's', history => true);
INSERT INTO ho_re VALUES (1);
UPDATE ho_re SET v = 1;
UPDATE ho_re SET s = 'a', v = 2;
SELECT event, from_state, to_state FROM idem_history('ho_re', 1);
-- the row moves on while it is on its way to another partition
CREATE FUNCTION ho_leave() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	UPDATE ho_q SET s = 'c' WHERE id = old.id AND s = 'b';
	RETURN NULL;
END $$;
CREATE TABLE ho_q (id int, s text, v int, PRIMARY KEY (id, s)) PARTITION BY LIST (s);
CREATE TABLE ho_q1 PARTITION OF ho_q FOR VALUES IN ('a');
CREATE TABLE ho_q2 PARTITION OF ho_q FOR VALUES IN ('b', 'c');
SELECT idem_attach('ho', 'ho_q', 's', history => true);
CREATE TRIGGER aa AFTER DELETE ON ho_q1 FOR EACH ROW EXECUTE FUNCTION ho_leave();
INSERT INTO ho_q VALUES (1, 'a', 20);
UPDATE ho_q SET s = 'b' WHERE id = 1;
SELECT row_key, event, from_state, to_state FROM ho_new();
SELECT row_key, state, event FROM ho_timer WHERE table_name = 'ho_q' ORDER BY row_key;
-- what a trigger behind the guard made of a row is not proven where the table was
-- emptied since
SELECT idem_define('hoc', 'stateDiagram-v2' || E'\n [*] --> a\n a --> b : e1');
CREATE TABLE ho_proof_up (id int PRIMARY KEY, s text, v int);
CREATE TABLE ho_proof (id int PRIMARY KEY, s text, v int);
SELECT idem_attach('hoc', 'ho_proof', 's');
ALTER TABLE ho_proof INHERIT ho_proof_up;
CREATE TRIGGER "~zz" BEFORE UPDATE ON ho_proof FOR EACH ROW EXECUTE FUNCTION ho_other();
INSERT INTO ho_proof VALUES (1, 'a'), (2, 'a');
BEGIN;
UPDATE ho_proof_up SET s = 'b' WHERE id = 1;
TRUNCATE ho_proof;
COMMIT;

-- the time is the wall clock's, also in a transaction that is older, and a timer counts from it
CREATE TABLE ho_clock (id int PRIMARY KEY, s text);
SELECT idem_define('hok', 'stateDiagram-v2' || E'\n [*] --> a\n a --> b : e1\n b --> c : e2 after 1 h'),
	idem_attach('hok', 'ho_clock', 's', history => true);
BEGIN;
INSERT INTO ho_clock VALUES (1, 'a');
DO $$ BEGIN WHILE clock_timestamp() < now() + '20 ms'::interval LOOP NULL; END LOOP; END $$;
UPDATE ho_clock SET s = 'b';
SELECT count(DISTINCT at), max(at) >= now() + '20 ms'::interval AS by_the_clock FROM idem.history WHERE machine = 'hok';
SELECT since >= now() + '20 ms'::interval AS by_the_clock, due - since AS after FROM idem.timer WHERE machine = 'hok';
COMMIT;
DROP TABLE ho_clock;

-- also where no row may begin, since the column has no value for what is initial
SELECT idem_define('hoe', 'stateDiagram-v2' || E'\n [*] --> new\n new --> a : e1\n a --> b : e2\n a --> b : e3 after 1 h');
CREATE TYPE ho_enum AS ENUM ('a', 'b');
CREATE TABLE ho_none (id int PRIMARY KEY, s ho_enum);
SET client_min_messages = error;
SELECT idem_attach('hoe', 'ho_none', 's', history => true, mode => 'observe');
CREATE FUNCTION ho_up(i int) RETURNS int LANGUAGE sql AS 'UPDATE ho_none SET s = ''b'' WHERE id = i RETURNING id';
INSERT INTO ho_none VALUES (1, 'a') RETURNING ho_up(id);
RESET client_min_messages;
SELECT row_key, event, from_state, to_state FROM idem.history WHERE machine = 'hoe' ORDER BY seq;
SELECT count(*) FROM idem.timer WHERE machine = 'hoe';
DROP TABLE ho_none;
DROP TYPE ho_enum;
DROP FUNCTION ho_up;

DROP TABLE ho_re, ho_q, ho_proof, ho_proof_up, ho_in, ho_once, ho_once_down, ho_fk, ho_state, ho_t, ho_p, ho_up, ho_root, ho_two, ho_char, ho_case, ho_num, ho_busy, ho_null, ho_seen;
DROP FUNCTION ho_new, ho_on, ho_on_p, ho_on_statement, ho_start, ho_other, ho_move, ho_before, ho_after,
	ho_start_of, ho_make, ho_leave;
DROP VIEW ho_timer;
ALTER TABLE idem.history DISABLE TRIGGER protected_row;
DELETE FROM idem.history WHERE machine IN ('ho', 'hor', 'hok', 'hoe');
ALTER TABLE idem.history ENABLE TRIGGER protected_row;
DELETE FROM idem.timer WHERE machine IN ('ho', 'hok', 'hoe');
DELETE FROM idem.key WHERE key = 'ho-outer';
DELETE FROM idem.machine WHERE name IN ('ho', 'hor', 'hoc', 'hok', 'hoe');
