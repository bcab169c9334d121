-- History: how steps come into the table, by statement and by row.

\set SHOW_CONTEXT never
SELECT idem_define('hw', $$
stateDiagram-v2
    [*] --> a
    a --> b : e1
    b --> c : e2
    b --> x : late after 1 h
    c --> a : e3
$$);
CREATE VIEW hw_row AS SELECT seq, table_name, row_key, event, from_state, to_state, version, role_name
	FROM idem.history WHERE machine = 'hw';

-- many rows at once: one number each, in the order in which they were written
CREATE TABLE hw_t (id int PRIMARY KEY, s text NOT NULL DEFAULT 'a', v int);
SELECT idem_attach('hw', 'hw_t', 's', history => true);
INSERT INTO hw_t SELECT i, 'a' FROM generate_series(1, 1200) AS i;
UPDATE hw_t SET s = 'b';
UPDATE hw_t SET s = 'c' WHERE id = 7;
SELECT event, count(*), count(DISTINCT seq), bool_and(in_order) AS in_order
FROM (SELECT event, seq, seq > lag(seq, 1, 0::bigint) OVER (PARTITION BY event ORDER BY (row_key ->> 'id')::int) AS in_order
	FROM hw_row WHERE table_name = 'hw_t') AS h GROUP BY event ORDER BY event;
SELECT max(seq) FILTER (WHERE event = 'e1') < max(seq) FILTER (WHERE event = 'e2') AS later FROM hw_row;
SELECT count(*), count(DISTINCT row_key) FROM idem.timer WHERE machine = 'hw';
-- who inserts by hand draws from the same sequence
SELECT nextval('idem.history_seq') > max(seq) AS above FROM idem.history;

-- keys of one integer are what jsonb makes of them
CREATE TABLE hw_2 (i int2 PRIMARY KEY, s text DEFAULT 'a');
CREATE TABLE hw_4 (abcd int4 PRIMARY KEY, s text DEFAULT 'a');
CREATE DOMAIN hw_big AS int8;
CREATE TABLE hw_8 (number hw_big PRIMARY KEY, s text DEFAULT 'a');
SELECT idem_attach('hw', t, 's', history => true) FROM unnest('{hw_2,hw_4,hw_8}'::regclass[]) AS t;
INSERT INTO hw_2 VALUES (-32768), (0), (32767);
INSERT INTO hw_4 VALUES (-2147483648), (10000), (99990000), (-1);
INSERT INTO hw_8 VALUES (-9223372036854775808), (9223372036854775807), (100000000), (5);
UPDATE hw_2 SET s = 'b';
UPDATE hw_4 SET s = 'b';
UPDATE hw_8 SET s = 'b';
SELECT row_key, count(*) FROM hw_row WHERE table_name IN ('hw_2', 'hw_4', 'hw_8') GROUP BY row_key ORDER BY row_key;
SELECT bool_and(row_key = made) AND bool_and(jsonb_hash(row_key) = jsonb_hash(made)) AND
	bool_and(row_key @> made) AND bool_and(pg_column_size(row_key || '{}') = pg_column_size(made || '{}')) AS same
FROM (SELECT row_key, row_key::text::jsonb AS made FROM hw_row) AS keys;
SELECT event, to_state FROM idem_history('hw_8', -9223372036854775808);
SELECT event, to_state FROM idem_history('hw_4', 99990000);

-- a key that is computed behind every trigger
CREATE TABLE hw_generated (a int, id int GENERATED ALWAYS AS (a * 2) STORED PRIMARY KEY, s text DEFAULT 'a');
SELECT idem_attach('hw', 'hw_generated', 's', history => true);
INSERT INTO hw_generated VALUES (1);
UPDATE hw_generated SET a = 5, s = 'b';
SELECT row_key, event, to_state FROM hw_row WHERE table_name = 'hw_generated' ORDER BY seq;

-- the version that the row gets, whichever of the two triggers comes first
CREATE TABLE hw_a (id int PRIMARY KEY, a text DEFAULT 'a', v int, version int NOT NULL DEFAULT 1);
CREATE TABLE hw_z (id int PRIMARY KEY, z text DEFAULT 'a', v int, version int NOT NULL DEFAULT 1);
CREATE TABLE hw_i (id int PRIMARY KEY, a text DEFAULT 'a', v int, version bigint NOT NULL DEFAULT 1);
SELECT idem_attach('hw', 'hw_a', 'a', history => true), idem_attach('hw', 'hw_z', 'z', history => true),
	idem_attach('hw', 'hw_i', 'a', history => true);
SELECT idem_attach_version('hw_a', 'version'), idem_attach_version('hw_z', 'version'),
	idem_attach_version('hw_i', 'version', ignore => '{a}');
INSERT INTO hw_a VALUES (1);
INSERT INTO hw_z VALUES (1);
INSERT INTO hw_i VALUES (1);
UPDATE hw_a SET a = 'b';
UPDATE hw_z SET z = 'b';
UPDATE hw_i SET a = 'b';
UPDATE hw_a SET a = 'c', version = version;
UPDATE hw_z SET z = 'c', version = version + 1;
UPDATE hw_i SET a = 'c', v = 1;
ALTER TABLE hw_a DISABLE TRIGGER "~idem_version";
UPDATE hw_a SET a = 'a', version = 77;
SELECT table_name, version, to_state FROM hw_row WHERE table_name IN ('hw_a', 'hw_z', 'hw_i') ORDER BY table_name, seq;
SELECT a.version, z.version, i.version FROM hw_a AS a, hw_z AS z, hw_i AS i;

-- who does not let the history's trigger fire has no history
UPDATE hw_t SET s = 'a', v = 1 WHERE id = 7;
ALTER TABLE hw_t DISABLE TRIGGER "~idem_s_log_u";
UPDATE hw_t SET s = 'b' WHERE id = 7;
ALTER TABLE hw_t ENABLE TRIGGER "~idem_s_log_u";
ALTER TABLE hw_t ENABLE ALWAYS TRIGGER "~idem_s";
SET session_replication_role = replica;
UPDATE hw_t SET s = 'c' WHERE id = 7;
SET session_replication_role = origin;
ALTER TABLE hw_t ENABLE ALWAYS TRIGGER "~idem_s_log_u";
SET session_replication_role = replica;
UPDATE hw_t SET s = 'a' WHERE id = 7;
SET session_replication_role = origin;
SELECT event, to_state FROM idem_history('hw_t', 7);

-- triggers as release 1.0.0 made them
DROP TRIGGER "~idem_s_log_u" ON hw_t;
DO $$
BEGIN
	EXECUTE (SELECT replace(replace(replace(pg_get_triggerdef(oid), 'AFTER INSERT', 'AFTER UPDATE'), '_log_i', '_log_u'),
			'REFERENCING', 'REFERENCING OLD TABLE AS idem_old')
		FROM pg_trigger WHERE tgrelid = 'hw_t'::regclass AND tgname = '~idem_s_log_i');
END $$;
UPDATE hw_t SET s = 'b' WHERE id = 7;
SELECT event, to_state FROM idem_history('hw_t', 7) OFFSET 5;

-- a function inside of the statement writes as somebody else
CREATE ROLE regress_idem_hw;
GRANT SELECT, UPDATE ON hw_t TO regress_idem_hw;
CREATE FUNCTION hw_other(i int) RETURNS bool LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
	UPDATE hw_t SET s = 'c' WHERE id = i + 1000 AND s = 'b';
	RETURN true;
END $$;
ALTER FUNCTION hw_other OWNER TO regress_idem_hw;
UPDATE hw_t SET s = 'c' WHERE id IN (11, 12, 13) AND hw_other(id);
SELECT row_key, event, role_name = CURRENT_USER AS mine, role_name = 'regress_idem_hw' AS others
FROM hw_row WHERE table_name = 'hw_t' AND event = 'e2' AND row_key <> '{"id": 7}' ORDER BY seq;

-- labels and contexts of any length
SELECT idem_define('hwl', format(E'stateDiagram-v2\n [*] --> a\n a --> %1$s : %2$s\n %1$s --> a : %2$s',
	repeat('s', 127), repeat('e', 128)));
CREATE TABLE hw_long (id bigint PRIMARY KEY, s text DEFAULT 'a');
SELECT idem_attach('hwl', 'hw_long', 's', history => true, keep => '1 day');
INSERT INTO hw_long VALUES (1), (2);
SELECT set_config('idem.actor', repeat('x', 126), false) IS NOT NULL,
	set_config('idem.context', format('{"a": "%s"}', (SELECT string_agg(md5(i::text), '') FROM generate_series(1, 300) AS i)), false) IS NOT NULL;
UPDATE hw_long SET s = repeat('s', 127);
RESET idem.context;
UPDATE hw_long SET s = 'a';
SELECT outcome FROM idem_fire('hw_long', 1, repeat('e', 128), key => repeat('k', 200), context => '{"b": 1}');
RESET idem.actor;
SELECT row_key, length(event), length(from_state), length(to_state), length(actor), length(key), length(context::text),
	expires_at - at AS kept
FROM idem.history WHERE machine = 'hwl' ORDER BY seq;
SELECT md5(context ->> 'a') = md5((SELECT string_agg(md5(i::text), '') FROM generate_series(1, 300) AS i)) AS whole
FROM idem.history WHERE machine = 'hwl' AND length(context::text) > 100;

-- an index of somebody's own
CREATE INDEX hw_by_seq ON idem.history (seq);
CREATE INDEX hw_by_state ON idem.history (to_state, seq) WHERE machine = 'hw';
UPDATE hw_2 SET s = 'c';
UPDATE hw_4 SET s = 'c' WHERE abcd = -1;
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SELECT count(*) FROM idem.history WHERE seq > (SELECT max(seq) FROM hw_row WHERE table_name = 'hw_2' AND event = 'e1')
	AND table_name IN ('hw_2', 'hw_4') AND event = 'e2';
SELECT count(*) FROM idem.history WHERE to_state = 'c' AND machine = 'hw' AND table_name IN ('hw_2', 'hw_4');
DROP INDEX idem.hw_by_state;
CREATE INDEX hw_of_none ON idem.history (seq) WHERE machine = 'none';
UPDATE hw_2 SET s = 'a';
SELECT count(*) FROM idem.history WHERE machine = 'none' AND seq > 0;
DROP INDEX idem.hw_of_none;
SELECT count(*) FROM idem.history WHERE seq > (SELECT max(seq) FROM hw_row WHERE table_name = 'hw_4') AND event = 'e3';
RESET enable_seqscan;
RESET enable_bitmapscan;
DROP INDEX idem.hw_by_seq;

-- a column that is renamed is the same column: a stay ends with the next step
CREATE TABLE hw_renamed (id int PRIMARY KEY, s text DEFAULT 'a');
SELECT idem_define('hwr', E'stateDiagram-v2\n [*] --> a\n a --> b : e1');
SELECT idem_attach('hwr', 'hw_renamed', 's', history => true);
INSERT INTO hw_renamed VALUES (1), (2);
ALTER TABLE hw_renamed RENAME s TO t;
UPDATE hw_renamed SET t = 'b' WHERE id = 1;
SELECT state, count, median IS NOT NULL AS left_it FROM idem.dwell WHERE machine = 'hwr' ORDER BY state;
-- two columns by one machine are two
CREATE TABLE hw_two (id int PRIMARY KEY, s text DEFAULT 'a', u text DEFAULT 'a');
SELECT idem_attach('hwr', 'hw_two', c, history => true) FROM unnest('{s,u}'::name[]) AS c;
INSERT INTO hw_two VALUES (3);
UPDATE hw_two SET u = 'b' WHERE id = 3;
SELECT column_name, event, to_state FROM idem.history WHERE machine = 'hwr' AND table_name = 'hw_two' ORDER BY column_name, seq;
SELECT state, count, median IS NOT NULL AS left_it FROM idem.dwell WHERE machine = 'hwr' ORDER BY state;

-- triggers that come in the middle of a statement do not belong to it
CREATE FUNCTION hw_make(i int, command text) RETURNS bool LANGUAGE plpgsql AS $$
BEGIN
	IF i = 2 THEN EXECUTE command; END IF;
	RETURN true;
END $$;
CREATE FUNCTION hw_skip() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
CREATE TABLE hw_in (id int PRIMARY KEY, s text NOT NULL DEFAULT 'a');
SELECT idem_attach('hw', 'hw_in', 's', history => true);
INSERT INTO hw_in SELECT i FROM generate_series(1, 3) AS i
	WHERE hw_make(i, 'CREATE TRIGGER aa AFTER INSERT ON hw_in FOR EACH ROW EXECUTE FUNCTION hw_skip()');
UPDATE hw_in SET s = 'b' WHERE hw_make(id, 'CREATE TRIGGER "~zz" BEFORE UPDATE ON hw_in FOR EACH ROW EXECUTE FUNCTION hw_skip()');
UPDATE hw_in SET s = 'c';
DROP TRIGGER "~zz" ON hw_in;
UPDATE hw_in SET s = 'c' WHERE hw_make(id, 'DROP FUNCTION IF EXISTS hw_none');
SELECT row_key, event, to_state FROM hw_row WHERE table_name = 'hw_in' ORDER BY seq;

-- the table becomes a parent after its first row was judged and before it is written:
-- the statement stays with the way that it began with
CREATE TABLE hw_check (id int PRIMARY KEY, s text NOT NULL DEFAULT 'a');
SELECT idem_attach('hw', 'hw_check', 's', history => true);
INSERT INTO hw_check VALUES (1), (2);
CREATE FUNCTION hw_child(i int, s text) RETURNS bool LANGUAGE plpgsql AS $$
BEGIN
	IF s = 'b' AND i = 1 THEN
		CREATE TABLE hw_check_child () INHERITS (hw_check);
	END IF;
	RETURN true;
END$$;
ALTER TABLE hw_check ADD CHECK (hw_child(id, s)) NOT VALID;
UPDATE hw_check SET s = 'b';
SELECT row_key, event FROM hw_row WHERE table_name = 'hw_check' ORDER BY seq;
DROP TABLE hw_check CASCADE;
DROP FUNCTION hw_child;
-- what a trigger before the row sets of the writer is the row's own
CREATE TABLE hw_set (id int PRIMARY KEY, s text NOT NULL DEFAULT 'a', reason text);
SELECT idem_attach('hw', 'hw_set', 's', history => true);
CREATE FUNCTION hw_reason() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM set_config('idem.context', jsonb_build_object('reason', new.reason)::text, true), set_config('idem.actor', new.reason, true);
	RETURN new;
END$$;
CREATE TRIGGER reason BEFORE UPDATE ON hw_set FOR EACH ROW EXECUTE FUNCTION hw_reason();
INSERT INTO hw_set SELECT i, 'a', 'r' || i FROM generate_series(1, 3) AS i;
UPDATE hw_set SET s = 'b';
SELECT row_key, event, actor, context FROM idem.history WHERE table_name = 'hw_set' ORDER BY seq;
-- ... and so is who writes it
CREATE ROLE regress_idem_hw_r1;
CREATE ROLE regress_idem_hw_r2;
CREATE FUNCTION hw_role() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM set_config('role', new.reason, true);
	RETURN new;
END$$;
DROP TRIGGER reason ON hw_set;
CREATE TRIGGER reason BEFORE UPDATE ON hw_set FOR EACH ROW EXECUTE FUNCTION hw_role();
UPDATE hw_set SET reason = 'none';
BEGIN;
UPDATE hw_set SET s = 'c', reason = 'regress_idem_hw_r' || id % 2 + 1;
RESET ROLE;
COMMIT;
SELECT row_key, role_name FROM idem.history WHERE table_name = 'hw_set' AND event = 'e2' ORDER BY seq;
DROP TABLE hw_set;
DROP FUNCTION hw_reason, hw_role;
DROP ROLE regress_idem_hw_r1, regress_idem_hw_r2;

-- a trigger on the history moves rows on while the statement goes on
CREATE TABLE hw_on (id int PRIMARY KEY, s text NOT NULL DEFAULT 'a');
SELECT idem_attach('hw', 'hw_on', 's', history => true);
INSERT INTO hw_on SELECT i FROM generate_series(1, 1200) AS i;
CREATE FUNCTION hw_on() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	UPDATE public.hw_on SET s = CASE s WHEN 'a' THEN 'b' ELSE 'c' END
	WHERE id IN ((NEW.row_key ->> 'id')::int, (NEW.row_key ->> 'id')::int + 1196) AND s IN ('a', 'b');
	RETURN NULL;
END $$;
CREATE TRIGGER hw_on AFTER INSERT ON idem.history FOR EACH ROW
	WHEN (NEW.table_name = 'hw_on' AND NEW.to_state = 'b' AND NEW.row_hash % 400 = 3) EXECUTE FUNCTION hw_on();
UPDATE hw_on SET s = 'b' WHERE id <= 1190;
DROP TRIGGER hw_on ON idem.history;
-- or a NOT NULL: no history without an actor
\set VERBOSITY terse
BEGIN;
ALTER TABLE idem.history DISABLE TRIGGER protected;
UPDATE idem.history SET actor = 'x' WHERE actor IS NULL;
ALTER TABLE idem.history ALTER actor SET NOT NULL;
SET LOCAL idem.actor = 'alice';
INSERT INTO hw_on (id) VALUES (1211);
SET LOCAL idem.actor = '';
INSERT INTO hw_on (id) VALUES (1212);
ROLLBACK;
-- or the bounds of a partition
BEGIN;
CREATE TABLE hw_all (LIKE idem.history) PARTITION BY RANGE (seq);
DO $$
BEGIN
	EXECUTE format('ALTER TABLE hw_all ATTACH PARTITION idem.history FOR VALUES FROM (minvalue) TO (%s)', (SELECT max(seq) + 1 FROM idem.history));
END $$;
INSERT INTO hw_on (id) VALUES (1213);
ROLLBACK;
-- or a CHECK
BEGIN;
ALTER TABLE idem.history ADD CHECK (actor IS DISTINCT FROM 'eve');
INSERT INTO hw_on (id) VALUES (1214);
SET LOCAL idem.actor = 'eve';
INSERT INTO hw_on (id) VALUES (1215);
ROLLBACK;
-- or an index, whichever columns it is of
BEGIN;
CREATE INDEX hw_by_actor ON idem.history (actor);
CREATE INDEX hw_by_place ON idem.history (row_hash, table_name);
SET LOCAL idem.actor = 'zoe';
INSERT INTO hw_on (id) VALUES (1216), (1217);
SET LOCAL enable_seqscan = off;
SELECT count(*) FROM idem.history WHERE actor = 'zoe';
SELECT count(*) FROM idem.history WHERE row_hash = 1217 AND table_name = 'hw_on';
ROLLBACK;
BEGIN;
ALTER TABLE idem.history DISABLE TRIGGER protected_row;
DELETE FROM idem.history;
CREATE UNIQUE INDEX hw_once ON idem.history (row_hash);
INSERT INTO hw_on (id) VALUES (1218);
UPDATE hw_on SET s = 'b' WHERE id = 1218;
ROLLBACK;
-- what it moves on, a function of the statement moves on again
CREATE TABLE hw_again (id int PRIMARY KEY, s text NOT NULL DEFAULT 'a');
SELECT idem_attach('hw', 'hw_again', 's', history => true);
INSERT INTO hw_again SELECT i FROM generate_series(1, 700) AS i;
CREATE FUNCTION hw_again() RETURNS trigger LANGUAGE plpgsql AS
	$$ BEGIN UPDATE public.hw_again SET s = 'b' WHERE id = 700; RETURN NULL; END $$;
CREATE FUNCTION hw_once_more(id int) RETURNS bool LANGUAGE plpgsql AS $$
BEGIN
	IF id = 600 THEN UPDATE hw_again AS h SET s = 'c' WHERE h.id = 700; END IF;
	RETURN true;
END $$;
CREATE TRIGGER hw_again AFTER INSERT ON idem.history FOR EACH ROW
	WHEN (NEW.table_name = 'hw_again' AND NEW.row_hash = 5) EXECUTE FUNCTION hw_again();
UPDATE hw_again SET s = 'b' WHERE id <= 610 AND hw_once_more(id);
DROP TRIGGER hw_again ON idem.history;
SELECT event, from_state, to_state FROM idem_history('hw_again', 700);
SELECT state, event FROM idem.timer WHERE table_name = 'hw_again' AND row_key = '{"id": 700}';
DROP TABLE hw_again;
DROP FUNCTION hw_again, hw_once_more;
\set VERBOSITY default
-- what was not written takes no memory
CREATE FUNCTION hw_fails() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE division_by_zero; END';
CREATE TRIGGER hw_fails AFTER INSERT ON idem.history FOR EACH ROW WHEN (NEW.table_name = 'hw_on') EXECUTE FUNCTION hw_fails();
CREATE FUNCTION hw_fail(n int) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
	failed int := 0;
BEGIN
	FOR i IN 1 .. n LOOP
		BEGIN
			UPDATE hw_on SET s = 'b' WHERE id = 1200;
		EXCEPTION WHEN division_by_zero THEN
			failed := failed + 1;
		END;
	END LOOP;
	RETURN failed;
END $$;
BEGIN;
SELECT hw_fail(100);
SELECT count(*) < 10 AS few FROM pg_backend_memory_contexts WHERE name LIKE 'idem history%';
ROLLBACK;
DROP TRIGGER hw_fails ON idem.history;
DROP FUNCTION hw_fails, hw_fail;
SELECT event, count(*), count(DISTINCT seq), bool_and(from_state IS NOT DISTINCT FROM was) AS chained
FROM (SELECT event, seq, from_state, lag(to_state) OVER (PARTITION BY row_key ORDER BY seq) AS was
	FROM hw_row WHERE table_name = 'hw_on') AS h GROUP BY event ORDER BY event;
SELECT row_key, string_agg(to_state, ' ' ORDER BY seq) AS states FROM hw_row WHERE table_name = 'hw_on'
GROUP BY row_key HAVING bool_or(to_state = 'c') OR (row_key ->> 'id')::int > 1190 AND bool_or(to_state = 'b') ORDER BY row_key;
SELECT s, count(*) FROM hw_on GROUP BY s ORDER BY s;

-- triggers after the update of a row that do not come between are fired as ever:
-- a foreign key's, of a table that is referenced and that refers, and a key's that is checked later
CREATE TABLE hw_after (id int PRIMARY KEY, s text NOT NULL DEFAULT 'a', up int REFERENCES hw_after,
	n int UNIQUE DEFERRABLE INITIALLY DEFERRED);
SELECT idem_attach('hw', 'hw_after', 's', history => true);
INSERT INTO hw_after VALUES (1, 'a', NULL, 1), (2, 'a', 1, 2);
UPDATE hw_after SET s = 'b' WHERE id = 2;
UPDATE hw_after SET s = 'b', id = 3 WHERE id = 1;
UPDATE hw_after SET s = 'b', up = 4 WHERE id = 1;
UPDATE hw_after SET s = 'b', n = 2 WHERE id = 1;
UPDATE hw_after SET s = 'b', n = 3 - n WHERE id = 1 OR n = 2;
SELECT row_key, from_state, to_state FROM hw_row WHERE table_name = 'hw_after' ORDER BY seq;
SELECT id, s, n FROM hw_after ORDER BY id;

-- a trigger of the guard's that is made by hand, and does not fire, disturbs nobody
CREATE TABLE hw_hand (id int PRIMARY KEY, s text NOT NULL DEFAULT 'a', n int);
CREATE FUNCTION hw_quiet() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE TRIGGER other AFTER UPDATE ON hw_hand FOR EACH ROW EXECUTE FUNCTION hw_quiet();
CREATE TRIGGER bad BEFORE UPDATE ON hw_hand FOR EACH ROW WHEN (NEW.s IS NOT NULL OR true) EXECUTE FUNCTION idem_guard('hw', 'nonsense', 'bad', 'hw_hand');
INSERT INTO hw_hand VALUES (1);
UPDATE hw_hand SET n = 1;
UPDATE hw_hand SET n = 2 WHERE false;
ALTER TABLE hw_hand DISABLE TRIGGER bad;
UPDATE hw_hand SET n = 3;
SELECT n FROM hw_hand;

DROP VIEW hw_row;
DROP TABLE hw_hand, hw_after, hw_t, hw_2, hw_4, hw_8, hw_generated, hw_a, hw_z, hw_i, hw_long, hw_renamed, hw_two, hw_in, hw_on;
DROP DOMAIN hw_big;
DROP FUNCTION hw_quiet, hw_other, hw_make, hw_skip, hw_on;
DROP ROLE regress_idem_hw;
ALTER TABLE idem.history DISABLE TRIGGER protected_row;
DELETE FROM idem.history WHERE machine IN ('hw', 'hwl', 'hwr');
ALTER TABLE idem.history ENABLE TRIGGER protected_row;
DELETE FROM idem.timer WHERE machine = 'hw';
DELETE FROM idem.key WHERE key = repeat('k', 200);
DELETE FROM idem.machine WHERE name IN ('hw', 'hwl', 'hwr');
