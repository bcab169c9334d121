-- Timers are under a row's key, and go where the row goes.

\set SHOW_CONTEXT never
SET client_min_messages = error;
CREATE ROLE regress_idem_timer_key;
SELECT idem_grant('regress_idem_timer_key', 'operator');
GRANT CREATE, USAGE ON SCHEMA public TO regress_idem_timer_key;
SET ROLE regress_idem_timer_key;
SELECT idem_define('tk', E'stateDiagram-v2\n[*] --> a\na --> b : go\nb --> a : back\nb --> c : stop\na --> y : ay after 1 h\nb --> x : bx after 1 h');
RESET ROLE;
CREATE VIEW tk_timer AS SELECT table_name, row_key, state, event, date_trunc('minute', now() - since) AS since, due - since AS after FROM idem.timer WHERE machine = 'tk' ORDER BY table_name, row_key, event, since;
CREATE VIEW tk_history AS SELECT table_name, row_key, event, from_state, to_state FROM idem.history WHERE machine = 'tk' ORDER BY seq;
-- everything is some minutes older
CREATE FUNCTION tk_pass(minutes int) RETURNS void LANGUAGE sql AS
	$$ UPDATE idem.timer SET since = since - minutes * '1 min'::interval, due = due - minutes * '1 min'::interval, key_since = key_since - minutes * '1 min'::interval WHERE machine = 'tk';
	UPDATE idem.history SET at = at - minutes * '1 min'::interval WHERE machine = 'tk' $$;
ALTER TABLE idem.history DISABLE TRIGGER protected, DISABLE TRIGGER protected_row;
SET ROLE regress_idem_timer_key;

-- with the state, and without
CREATE TABLE tk_plain (id int PRIMARY KEY, s text, n int DEFAULT 0);
SELECT idem_attach('tk', 'tk_plain', 's', history => true);
INSERT INTO tk_plain VALUES (1, 'a'), (2, 'a');
RESET ROLE;
SELECT tk_pass(20);
SET ROLE regress_idem_timer_key;
UPDATE tk_plain SET id = id + 10, s = CASE id WHEN 1 THEN 'b' ELSE s END;
RESET ROLE;
TABLE tk_timer;
SET ROLE regress_idem_timer_key;
-- the key that was left is another row's then
UPDATE tk_plain SET id = 11 - 10, s = 'a' WHERE id = 11;
INSERT INTO tk_plain VALUES (2, 'a');
RESET ROLE;
TABLE tk_timer;

-- rows that have none get them: since their history says, or the note, or now
DELETE FROM idem.timer WHERE row_key = '{"id": 1}';
UPDATE idem.timer SET since = since - '1 min'::interval WHERE row_key = '{"id": 2}';
SET ROLE regress_idem_timer_key;
CREATE TABLE tk_old (id int PRIMARY KEY, s text);
INSERT INTO tk_old VALUES (1, 'a'), (2, 'b'), (3, 'c');
SELECT idem_attach('tk', 'tk_old', 's', history => true);
RESET ROLE;
SELECT tk_pass(5);
SET ROLE regress_idem_timer_key;
UPDATE tk_plain SET id = id + 100;
UPDATE tk_old SET id = id + 100 WHERE id <> 2;
RESET ROLE;
TABLE tk_timer;
SET ROLE regress_idem_timer_key;
SELECT * FROM idem_tick();
RESET ROLE;
TABLE tk_timer;
DELETE FROM idem.timer WHERE table_name = 'tk_old';
SET ROLE regress_idem_timer_key;
UPDATE tk_old SET id = id + 100;
RESET ROLE;
TABLE tk_timer;
DELETE FROM idem.timer WHERE machine = 'tk';
SET ROLE regress_idem_timer_key;
DROP TABLE tk_old;
DELETE FROM tk_plain;

-- a row that gets the key of one that was deleted is as old as before: with the
-- next key, when timers are made, and when its time comes
INSERT INTO tk_plain VALUES (2, 'a'), (4, 'a');
RESET ROLE;
SELECT tk_pass(20);
SET ROLE regress_idem_timer_key;
INSERT INTO tk_plain VALUES (1, 'a'), (3, 'a');
RESET ROLE;
SELECT tk_pass(10);
SET ROLE regress_idem_timer_key;
DELETE FROM tk_plain WHERE id IN (1, 3);
UPDATE tk_plain SET id = id - 1;
UPDATE tk_plain SET id = 5 WHERE id = 3;
RESET ROLE;
TABLE tk_timer;
SET ROLE regress_idem_timer_key;
SELECT idem_define('tk', E'stateDiagram-v2\n[*] --> a\na --> b : go\nb --> a : back\nb --> c : stop\na --> y : ay after 50 min\na --> y : ay2 after 2 h\nb --> x : bx after 1 h');
SELECT * FROM idem_tick();
RESET ROLE;
TABLE tk_timer;
SELECT tk_pass(21);
SET ROLE regress_idem_timer_key;
SELECT row_key, event, outcome FROM idem_tick() ORDER BY row_key ->> 'id';
-- what happened under the key since is its own
INSERT INTO tk_plain VALUES (2, 'a');
UPDATE tk_plain SET s = 'b' WHERE id = 2;
RESET ROLE;
SELECT tk_pass(10);
SET ROLE regress_idem_timer_key;
UPDATE tk_plain SET id = 7 WHERE id = 2;
RESET ROLE;
SELECT tk_pass(10);
SET ROLE regress_idem_timer_key;
SELECT idem_define('tk', E'stateDiagram-v2\n[*] --> a\na --> b : go\nb --> a : back\nb --> c : stop\na --> y : ay\nb --> x : bx');
UPDATE tk_plain SET s = 'a' WHERE id = 7;
UPDATE tk_plain SET s = 'b' WHERE id = 7;
RESET ROLE;
SELECT tk_pass(45);
SET ROLE regress_idem_timer_key;
SELECT idem_define('tk', E'stateDiagram-v2\n[*] --> a\na --> b : go\nb --> a : back\nb --> c : stop\na --> y : ay after 1 h\nb --> x : bx after 1 h');
RESET ROLE;
TABLE tk_timer;
SET ROLE regress_idem_timer_key;
SELECT row_key, event, outcome FROM idem_tick() WHERE event <> '' ORDER BY row_key ->> 'id';
RESET ROLE;
TABLE tk_timer;
DELETE FROM idem.timer WHERE machine = 'tk';
SET ROLE regress_idem_timer_key;
SELECT idem_define('tk', E'stateDiagram-v2\n[*] --> a\na --> b : go\nb --> a : back\nb --> c : stop\na --> y : ay after 1 h\nb --> x : bx after 1 h');
SELECT * FROM idem_tick();
RESET ROLE;
DELETE FROM idem.timer WHERE machine = 'tk';
SET ROLE regress_idem_timer_key;
DELETE FROM tk_plain;

-- a parent and its child may have rows of one key, each with its own time
CREATE TABLE tk_parent (id int PRIMARY KEY, s text);
CREATE TABLE tk_child (PRIMARY KEY (id)) INHERITS (tk_parent);
SELECT idem_attach('tk', 'tk_parent', 's', history => true);
INSERT INTO tk_parent VALUES (1, 'a'), (2, 'a');
RESET ROLE;
SELECT tk_pass(40);
SET ROLE regress_idem_timer_key;
INSERT INTO tk_child VALUES (1, 'a'), (2, 'a');
UPDATE tk_parent SET id = 3 WHERE tableoid = 'tk_parent'::regclass AND id = 2;
RESET ROLE;
SELECT tk_pass(21);
SET ROLE regress_idem_timer_key;
SELECT table_name, row_key, event, outcome FROM idem_tick() ORDER BY row_key ->> 'id';
RESET ROLE;
TABLE tk_timer;
DELETE FROM idem.timer WHERE machine = 'tk';
SET ROLE regress_idem_timer_key;
DROP TABLE tk_child, tk_parent;

-- a row that moves again and again in one transaction: its former timers are not read
-- each time; what was rolled back, and who else wrote the timers, counts
CREATE PROCEDURE tk_turn(n int) LANGUAGE plpgsql AS
	$$BEGIN FOR i IN 1 .. n LOOP UPDATE tk_plain SET s = CASE s WHEN 'a' THEN 'b' ELSE 'a' END; END LOOP; END$$;
INSERT INTO tk_plain VALUES (1, 'a'), (2, 'a');
SELECT pg_stat_force_next_flush();
BEGIN;
CALL tk_turn(100);
SAVEPOINT one;
CALL tk_turn(3);
ROLLBACK TO one;
CALL tk_turn(1);
SAVEPOINT two;
CALL tk_turn(2);
RELEASE two;
CALL tk_turn(100);
RESET ROLE;
SELECT pg_stat_get_xact_tuples_returned('idem.timer_row'::regclass) BETWEEN 1 AND 5000 AS flat;
SELECT row_key, state, event FROM tk_timer;
UPDATE idem.timer SET tries = 1 WHERE row_key = '{"id": 1}' AND machine = 'tk';
DELETE FROM idem.timer WHERE row_key = '{"id": 2}' AND machine = 'tk';
SET ROLE regress_idem_timer_key;
CALL tk_turn(1);
UPDATE tk_plain SET id = id + 10;
CALL tk_turn(1);
UPDATE tk_plain SET id = id - 10;
CALL tk_turn(1);
COMMIT;
RESET ROLE;
SELECT row_key, state, event FROM tk_timer;
DELETE FROM idem.timer WHERE machine = 'tk';
SET ROLE regress_idem_timer_key;
DELETE FROM tk_plain;
DROP PROCEDURE tk_turn;

-- a statement inside gives another key to a row that the one around it has moved,
-- and not recorded yet
CREATE FUNCTION tk_inside(id int, way text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	IF id <> 2 THEN
		RETURN true;
	ELSIF way = 'plain' THEN
		UPDATE tk_plain AS t SET id = 100 WHERE t.id = 1;
		RETURN true;
	END IF;
	BEGIN
		UPDATE tk_plain AS t SET id = 100 WHERE t.id = 1;
		IF way = 'failed' THEN
			RAISE division_by_zero;
		END IF;
	EXCEPTION WHEN division_by_zero THEN
		NULL;
	END;
	RETURN true;
END$$;
SET ROLE regress_idem_timer_key;
INSERT INTO tk_plain VALUES (1, 'a'), (2, 'a');
UPDATE tk_plain SET s = 'b' WHERE tk_inside(id, 'plain');
RESET ROLE;
TABLE tk_timer;
DELETE FROM idem.timer WHERE machine = 'tk';
SET ROLE regress_idem_timer_key;
DELETE FROM tk_plain;
INSERT INTO tk_plain VALUES (1, 'a'), (2, 'a');
UPDATE tk_plain SET s = 'b' WHERE tk_inside(id, 'savepoint');
RESET ROLE;
TABLE tk_timer;
DELETE FROM idem.timer WHERE machine = 'tk';
SET ROLE regress_idem_timer_key;
DELETE FROM tk_plain;
INSERT INTO tk_plain VALUES (1, 'a'), (2, 'a');
UPDATE tk_plain SET s = 'b' WHERE tk_inside(id, 'failed');
RESET ROLE;
TABLE tk_timer;
DELETE FROM idem.timer WHERE machine = 'tk';
-- the same where history is written by row
SET ROLE regress_idem_timer_key;
DELETE FROM tk_plain;
CREATE FUNCTION tk_nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE TRIGGER by_row AFTER UPDATE OR INSERT ON tk_plain FOR EACH ROW EXECUTE FUNCTION tk_nothing();
INSERT INTO tk_plain VALUES (1, 'a'), (2, 'a');
UPDATE tk_plain SET s = 'b' WHERE tk_inside(id, 'plain');
RESET ROLE;
TABLE tk_timer;
DELETE FROM idem.timer WHERE machine = 'tk';
SET ROLE regress_idem_timer_key;
DELETE FROM tk_plain;
-- ... by a trigger that fires before the history's, with the state too
CREATE FUNCTION tk_before() RETURNS trigger LANGUAGE plpgsql AS
	$$BEGIN UPDATE tk_plain SET id = id + 100, s = CASE NEW.id WHEN 1 THEN s ELSE 'c' END WHERE id = NEW.id AND id < 100; RETURN NULL; END$$;
INSERT INTO tk_plain VALUES (1, 'a'), (2, 'a'), (3, 'a');
CREATE TRIGGER " before" AFTER UPDATE ON tk_plain FOR EACH ROW WHEN (NEW.id < 3) EXECUTE FUNCTION tk_before();
UPDATE tk_plain SET s = 'b';
SELECT id, s FROM tk_plain ORDER BY id;
RESET ROLE;
TABLE tk_timer;
DELETE FROM idem.timer WHERE machine = 'tk';
SET ROLE regress_idem_timer_key;
DELETE FROM tk_plain;
DROP TRIGGER " before" ON tk_plain;
DROP TRIGGER by_row ON tk_plain;
-- ... with the state too, by a function
CREATE FUNCTION tk_on(id int) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	IF id = 2 THEN
		BEGIN
			UPDATE tk_plain AS t SET id = 100, s = 'a' WHERE t.id = 1;
		EXCEPTION WHEN division_by_zero THEN
			NULL;
		END;
	END IF;
	RETURN true;
END$$;
INSERT INTO tk_plain VALUES (1, 'a'), (2, 'a');
UPDATE tk_plain SET s = 'b' WHERE tk_on(id);
RESET ROLE;
TABLE tk_timer;
DELETE FROM idem.timer WHERE machine = 'tk';
SET ROLE regress_idem_timer_key;
DELETE FROM tk_plain;
-- and to rows that it has inserted
CREATE FUNCTION tk_rename() RETURNS trigger LANGUAGE plpgsql AS
	'BEGIN UPDATE tk_plain SET id = id + 100 WHERE id < 100; RETURN NULL; END';
CREATE TRIGGER "a rename" AFTER INSERT ON tk_plain FOR EACH STATEMENT EXECUTE FUNCTION tk_rename();
INSERT INTO tk_plain VALUES (1, 'a'), (2, 'a');
RESET ROLE;
TABLE tk_timer;
DELETE FROM idem.timer WHERE machine = 'tk';
SET ROLE regress_idem_timer_key;
DROP TABLE tk_plain;

-- to another partition with another key, with the state and without
CREATE TABLE tk_part (id int, s text, k int, PRIMARY KEY (id, k)) PARTITION BY LIST (k);
CREATE TABLE tk_part1 PARTITION OF tk_part FOR VALUES IN (1);
CREATE TABLE tk_part2 (k int NOT NULL, s text, gone int, id int NOT NULL);
ALTER TABLE tk_part2 DROP COLUMN gone;
ALTER TABLE tk_part ATTACH PARTITION tk_part2 FOR VALUES IN (2);
SELECT idem_attach('tk', 'tk_part', 's', history => true);
INSERT INTO tk_part VALUES (1, 'a', 1), (2, 'a', 1), (3, 'a', 1), (4, 'a', 1);
UPDATE tk_part SET s = 'b' WHERE id = 1;
RESET ROLE;
SELECT tk_pass(10);
SET ROLE regress_idem_timer_key;
UPDATE tk_part SET k = 2, id = 10 WHERE id = 1;
UPDATE tk_part SET k = 2, id = 20 WHERE id = 2;
UPDATE tk_part SET k = 2, id = 30, s = 'b' WHERE id = 3;
UPDATE tk_part SET k = 2, s = 'b' WHERE id = 4;
UPDATE tk_part SET k = 1, id = 50, s = 'c' WHERE id = 10;
RESET ROLE;
TABLE tk_timer;
SELECT * FROM tk_history WHERE table_name = 'tk_part';
DELETE FROM idem.timer WHERE machine = 'tk';
SET ROLE regress_idem_timer_key;
DROP TABLE tk_part;

-- the state is part of the key, and a row's other machine too
CREATE TABLE tk_two (id int, s text, s2 text, PRIMARY KEY (id, s, s2));
SELECT idem_attach('tk', 'tk_two', 's', history => true), idem_attach('tk', 'tk_two', 's2', history => true);
INSERT INTO tk_two VALUES (1, 'a', 'a');
UPDATE tk_two SET s = 'b';
RESET ROLE;
TABLE tk_timer;
SET ROLE regress_idem_timer_key;
-- rows that only the state tells apart: each has its own
INSERT INTO tk_two VALUES (1, 'a', 'a');
UPDATE tk_two SET s = 'c' WHERE s = 'b';
RESET ROLE;
TABLE tk_timer;
DELETE FROM idem.timer WHERE machine = 'tk';
SET ROLE regress_idem_timer_key;
DROP TABLE tk_two;

-- the key's column gets another name ...
CREATE TABLE tk_name (id int PRIMARY KEY, s text, id2 text NOT NULL DEFAULT 'x');
SELECT idem_attach('tk', 'tk_name', 's', history => true);
INSERT INTO tk_name VALUES (1, 'a'), (2, 'a'), (3, 'a'), (4, 'a');
RESET ROLE;
SELECT tk_pass(50);
SET ROLE regress_idem_timer_key;
INSERT INTO tk_name VALUES (5, 'a');
ALTER TABLE tk_name RENAME id TO ident;
UPDATE tk_name SET s = 'b' WHERE ident = 2;
UPDATE tk_name SET s = 'b' WHERE ident = 3;
UPDATE tk_name SET s = 'a' WHERE ident = 3;
DELETE FROM tk_name WHERE ident = 4;
RESET ROLE;
SELECT tk_pass(15);
SET ROLE regress_idem_timer_key;
SELECT * FROM idem_tick() ORDER BY row_key;
SELECT * FROM tk_name ORDER BY 1;
-- the first that comes due has the others put under the new name, as they are
RESET ROLE;
TABLE tk_timer;
SET ROLE regress_idem_timer_key;
SELECT * FROM idem_tick();
UPDATE tk_name SET ident = 6 WHERE ident = 5;
RESET ROLE;
TABLE tk_timer;
-- ... or there are others: one look for all, whichever come due before it
SELECT tk_pass(20);
SET ROLE regress_idem_timer_key;
INSERT INTO tk_name VALUES (7, 'a'), (8, 'a');
RESET ROLE;
SELECT tk_pass(30);
SET ROLE regress_idem_timer_key;
ALTER TABLE tk_name DROP CONSTRAINT tk_name_pkey, ADD PRIMARY KEY (ident, id2);
SELECT * FROM idem_tick() ORDER BY row_key;
RESET ROLE;
TABLE tk_timer;
UPDATE idem.timer SET due = since + '1 h' WHERE table_name = 'tk_name' AND event = '';
UPDATE idem.timer SET due = due - '30 min'::interval, since = since - '30 min'::interval WHERE row_key = '{"ident": 7}';
SET ROLE regress_idem_timer_key;
SELECT * FROM idem_tick() ORDER BY row_key;
RESET ROLE;
TABLE tk_timer;
UPDATE idem.timer SET due = now(), since = now() WHERE table_name = 'tk_name' AND event = '';
SET ROLE regress_idem_timer_key;
SELECT * FROM idem_tick() ORDER BY row_key;
RESET ROLE;
TABLE tk_timer;
SET ROLE regress_idem_timer_key;
-- a key is not null, as PostgreSQL says it
UPDATE tk_name SET ident = NULL WHERE ident = 2;
UPDATE tk_name SET ident = NULL, s = 'a' WHERE ident = 2;
-- a table of the same name whose key has another type
DROP TABLE tk_name;
CREATE TABLE tk_name (ident inet, id2 text, s text, PRIMARY KEY (ident, id2));
SELECT idem_attach('tk', 'tk_name', 's', history => true);
INSERT INTO tk_name VALUES ('::1', 'x', 'a');
RESET ROLE;
SELECT tk_pass(60);
SET ROLE regress_idem_timer_key;
SELECT * FROM idem_tick() ORDER BY row_key;
SELECT * FROM idem_tick();
-- another column in place of the key's is not the key under another name
DROP TABLE tk_name;
CREATE TABLE tk_name (id int PRIMARY KEY, other int NOT NULL, s text);
SELECT idem_attach('tk', 'tk_name', 's', history => true);
INSERT INTO tk_name VALUES (1, 2, 'a');
RESET ROLE;
SELECT tk_pass(60);
SET ROLE regress_idem_timer_key;
INSERT INTO tk_name VALUES (2, 1, 'a');
ALTER TABLE tk_name DROP CONSTRAINT tk_name_pkey, ADD PRIMARY KEY (other);
SELECT * FROM idem_tick() ORDER BY row_key;
TABLE tk_name;
DROP TABLE tk_name;
-- who waits behind that look is asked once
SELECT idem_define('tkg', E'stateDiagram-v2\n[*] --> a\na --> y : ay [new.n > 0] after 1 h');
CREATE TABLE tk_asked (id int PRIMARY KEY, n int, s text);
SELECT idem_attach('tkg', 'tk_asked', 's', history => true);
INSERT INTO tk_asked VALUES (1, 0, 'a'), (2, 0, 'a'), (3, 1, 'a');
ALTER TABLE tk_asked RENAME id TO ident;
RESET ROLE;
UPDATE idem.timer SET since = since - '2 h'::interval, due = CASE row_key ->> 'id' WHEN '3' THEN now() ELSE due END WHERE machine = 'tkg';
SET ROLE regress_idem_timer_key;
SELECT * FROM idem_tick();
RESET ROLE;
UPDATE idem.timer SET due = now() WHERE machine = 'tkg' AND event <> '';
SET ROLE regress_idem_timer_key;
SELECT * FROM idem_tick() ORDER BY row_key;
RESET ROLE;
SELECT row_key, event, due > now() AS later, tries FROM idem.timer WHERE machine = 'tkg' ORDER BY row_key;
DELETE FROM idem.timer WHERE machine = 'tkg';
SET ROLE regress_idem_timer_key;
DROP TABLE tk_asked;
-- values of the key that are none of its types' any more, or others by now: rows
-- get timers that can be read, and go when the time comes
CREATE TYPE tk_enum AS ENUM ('x', 'y');
CREATE TABLE tk_enum_key (id int, e tk_enum, s text, PRIMARY KEY (id, e));
CREATE TABLE tk_uuid_key (id int PRIMARY KEY, s text);
CREATE TABLE tk_text_key (id int PRIMARY KEY, s text);
CREATE TABLE tk_same_key (id int PRIMARY KEY, s text);
SELECT count(idem_attach('tk', t, 's', history => true)) FROM unnest('{tk_enum_key, tk_uuid_key, tk_text_key, tk_same_key}'::regclass[]) AS t;
INSERT INTO tk_enum_key VALUES (1, 'x', 'a'), (2, 'y', 'a'), (3, 'x', 'a');
INSERT INTO tk_uuid_key VALUES (1, 'a'), (2, 'a');
INSERT INTO tk_text_key VALUES (1, 'a'), (2, 'a');
INSERT INTO tk_same_key VALUES (1, 'a'), (2, 'a');
RESET ROLE;
SELECT tk_pass(40);
SET ROLE regress_idem_timer_key;
ALTER TYPE tk_enum RENAME VALUE 'x' TO 'z';
ALTER TABLE tk_uuid_key ALTER id TYPE uuid USING lpad(id::text, 32, '0')::uuid;
ALTER TABLE tk_text_key ALTER id TYPE text USING 'U' || id;
ALTER TABLE tk_same_key ALTER id TYPE text;
RESET ROLE;
UPDATE idem.timer SET due = due - '30 min'::interval, since = since - '30 min'::interval WHERE row_key = '{"id": 1}' AND table_name <> 'tk_enum_key';
UPDATE idem.timer SET due = due - '30 min'::interval, since = since - '30 min'::interval WHERE row_key = '{"id": 1, "e": "x"}';
SET ROLE regress_idem_timer_key;
SELECT * FROM idem_tick() ORDER BY table_name, row_key;
SELECT * FROM idem_tick();
RESET ROLE;
TABLE tk_timer;
SELECT tk_pass(60);
SET ROLE regress_idem_timer_key;
SELECT * FROM idem_tick() ORDER BY table_name, row_key;
RESET ROLE;
TABLE tk_timer;
SET ROLE regress_idem_timer_key;
DROP TABLE tk_enum_key, tk_uuid_key, tk_text_key, tk_same_key;
DROP TYPE tk_enum;

-- rows that enter their state anew, one of which a statement inside renames: each
-- has one timer, under its key; since now where the step could be recorded before
SELECT idem_define('tk', E'stateDiagram-v2\n[*] --> a\na --> a : again\na --> b : go\nb --> a : back\nb --> c : stop\na --> y : ay after 1 h\nb --> x : bx after 1 h');
RESET ROLE;
UPDATE idem.state SET self = 'reenter' WHERE machine = 'tk' AND name = 'a';
SET ROLE regress_idem_timer_key;
CREATE TABLE tk_plain (id int PRIMARY KEY, s text);
SELECT idem_attach('tk', 'tk_plain', 's', history => true);
INSERT INTO tk_plain VALUES (1, 'a'), (2, 'a');
RESET ROLE;
SELECT tk_pass(20);
SET ROLE regress_idem_timer_key;
UPDATE tk_plain SET s = 'a' WHERE tk_inside(id, 'plain');
RESET ROLE;
SELECT row_key, event, since FROM tk_timer;
DELETE FROM idem.timer WHERE machine = 'tk';
SET ROLE regress_idem_timer_key;
DELETE FROM tk_plain;
INSERT INTO tk_plain VALUES (1, 'a'), (2, 'a');
UPDATE tk_plain SET s = 'a' WHERE tk_inside(id, 'savepoint');
RESET ROLE;
SELECT row_key, event FROM tk_timer;
DELETE FROM idem.timer WHERE machine = 'tk';
SET ROLE regress_idem_timer_key;
DELETE FROM tk_plain;
INSERT INTO tk_plain VALUES (1, 'a'), (2, 'a');
RESET ROLE;
SELECT tk_pass(20);
SET ROLE regress_idem_timer_key;
UPDATE tk_plain SET s = 'a' WHERE tk_inside(id, 'failed');
RESET ROLE;
SELECT row_key, event, since FROM tk_timer;
DELETE FROM idem.timer WHERE machine = 'tk';
SET ROLE regress_idem_timer_key;
CREATE TRIGGER by_row AFTER UPDATE OR INSERT ON tk_plain FOR EACH ROW EXECUTE FUNCTION tk_nothing();
DELETE FROM tk_plain;
INSERT INTO tk_plain VALUES (1, 'a'), (2, 'a');
UPDATE tk_plain SET s = 'a' WHERE tk_inside(id, 'plain');
RESET ROLE;
SELECT row_key, event FROM tk_timer;
DELETE FROM idem.timer WHERE machine = 'tk';
SELECT row_key, event, from_state, to_state FROM tk_history WHERE table_name = 'tk_plain' AND event = 'again';
SET ROLE regress_idem_timer_key;
DROP TABLE tk_plain;
-- two rows that differ in their states only, moved by one transaction
CREATE TABLE tk_state_key (id int, s text, PRIMARY KEY (id, s));
SELECT idem_attach('tk', 'tk_state_key', 's', history => true);
INSERT INTO tk_state_key VALUES (1, 'a');
UPDATE tk_state_key SET s = 'b';
INSERT INTO tk_state_key VALUES (1, 'a');
BEGIN;
UPDATE tk_state_key SET s = 'c' WHERE s = 'b';
UPDATE tk_state_key SET s = 'y' WHERE s = 'a';
COMMIT;
RESET ROLE;
SELECT row_key, event FROM tk_timer;
SET ROLE regress_idem_timer_key;
DROP TABLE tk_state_key;

RESET ROLE;
DROP VIEW tk_timer, tk_history;
DROP FUNCTION tk_pass, tk_inside, tk_nothing, tk_rename, tk_before, tk_on;
DELETE FROM idem.timer WHERE machine = 'tk';
DELETE FROM idem.history WHERE machine IN ('tk', 'tkg');
ALTER TABLE idem.history ENABLE TRIGGER protected, ENABLE TRIGGER protected_row;
DELETE FROM idem.machine WHERE name IN ('tk', 'tkg');
SELECT idem_revoke('regress_idem_timer_key');
REVOKE ALL ON SCHEMA public FROM regress_idem_timer_key;
DROP ROLE regress_idem_timer_key;
