-- Keys of events: what they are bound to stays the same, whatever a row is called and however its id is spelled.

\set SHOW_CONTEXT never
SET client_min_messages = warning;
INSERT INTO idem.machine (name) VALUES ('fk');
INSERT INTO idem.state (machine, name, initial) VALUES ('fk', 'a', true), ('fk', 'b', false), ('fk', 'c', false);
INSERT INTO idem.transition (machine, event, from_state, to_state) VALUES ('fk', 'go', 'a', 'b'), ('fk', 'on', 'b', 'c'), ('fk', 'back', 'c', 'a');

-- equal ids that look different, in each verb
CREATE TYPE fk_pair AS (a numeric, b text);
CREATE TABLE fk_char (id char(6) PRIMARY KEY, state text DEFAULT 'a');
CREATE TABLE fk_numeric (id numeric PRIMARY KEY, state text DEFAULT 'a');
CREATE TABLE fk_float (id float8 PRIMARY KEY, state text DEFAULT 'a');
CREATE TABLE fk_row (id fk_pair PRIMARY KEY, state text DEFAULT 'a');
CREATE TABLE fk_array (id numeric[] PRIMARY KEY, state text DEFAULT 'a');
SELECT idem_attach('fk', 'fk_char', 'state', history => true), idem_attach('fk', 'fk_numeric', 'state', history => true),
	idem_attach('fk', 'fk_float', 'state', history => true), idem_attach('fk', 'fk_row', 'state'), idem_attach('fk', 'fk_array', 'state');
INSERT INTO fk_char VALUES ('ab');
INSERT INTO fk_numeric VALUES (1.0);
INSERT INTO fk_float VALUES ('-0');
INSERT INTO fk_row VALUES ('(1.0,x)');
INSERT INTO fk_array VALUES ('{1.0,2}');
SELECT outcome FROM idem_try_fire('fk_char', 'ab  '::text, 'go', key => 'char');
SELECT outcome, from_state FROM idem_try_fire('fk_char', 'ab'::text, 'go', key => 'char');
SELECT outcome, from_state FROM idem_try_fire('fk_char', 'ab'::char(4), 'go', key => 'char');
SELECT outcome FROM idem_try_fire('fk_numeric', 1, 'go', key => 'numeric');
SELECT outcome, from_state FROM idem_try_fire('fk_numeric', '1.000'::text, 'go', key => 'numeric');
SELECT outcome FROM idem_try_fire('fk_float', '0'::text, 'go', key => 'float');
SELECT outcome, from_state FROM idem_try_fire('fk_float', '-0'::float8, 'go', key => 'float');
SELECT outcome FROM idem_try_fire('fk_row', '(1,x)'::text, 'go', key => 'row');
SELECT outcome, from_state FROM idem_try_fire('fk_row', '(1.00,x)'::text, 'go', key => 'row');
SELECT outcome FROM idem_try_fire('fk_array', '{1,2.00}'::numeric[], 'go', key => 'array');
SELECT outcome, from_state FROM idem_try_fire('fk_array', '{1.000,2}'::text, 'go', key => 'array');
-- ... the row moved on meanwhile
SELECT outcome FROM idem_try_fire('fk_row', '(1.0,x)'::fk_pair, 'on');
SELECT outcome, from_state, to_state FROM idem_try_fire('fk_row', '(1,x)'::fk_pair, 'go', key => 'row');
-- many
SELECT id, outcome FROM idem_fire_many('fk_char', ARRAY['ab  '], 'on', key => 'many');
SELECT id, outcome, from_state FROM idem_fire_many('fk_char', ARRAY['ab'], 'on', key => 'many');
SELECT id, outcome FROM idem_fire_many('fk_row', ARRAY['(1,x)']::fk_pair[], 'back', key => 'many');
SELECT id, outcome, from_state FROM idem_fire_many('fk_row', '{"(1.000,x)","(2,x)"}', 'back', key => 'many');
-- ... one row twice, in whatever form; ids of no row are each missing
SELECT * FROM idem_fire_many('fk_char', ARRAY['ab', 'ab  '], 'back');
SELECT * FROM idem_fire_many('fk_numeric', ARRAY[1, 1.0], 'on');
SELECT * FROM idem_fire_many('fk_float', ARRAY[0, '-0']::float8[], 'on');
SELECT * FROM idem_fire_many('fk_row', ARRAY['(1,x)', '(1.0,x)'], 'go');
SELECT * FROM idem_fire_many('fk_numeric', ARRAY[7, 7.0, 1], 'on');
-- the history of a row is found by an id that is equal
SELECT event FROM idem_history('fk_char', 'ab'::text);
SELECT event FROM idem_history('fk_char', 'ab    '::text);
SELECT event FROM idem_history('fk_numeric', '1.00'::text);
SELECT event FROM idem_history('fk_float', 0);

-- a number that is stored with another scale is the same row's
UPDATE fk_numeric SET id = 1.00, state = 'a';
SELECT id, outcome FROM idem_fire_many('fk_numeric', ARRAY[1], 'go', key => 'scale');
UPDATE fk_numeric SET id = 1.0000, state = 'c';
UPDATE fk_numeric SET state = 'a';
SELECT id, outcome, from_state FROM idem_fire_many('fk_numeric', ARRAY[1.0], 'go', key => 'scale');
-- a retry by the id of then, whatever the row is called now or whether it is gone
SELECT outcome FROM idem_try_fire('fk_numeric', 1, 'go', key => 'then');
UPDATE fk_numeric SET id = 2;
SELECT outcome, from_state FROM idem_try_fire('fk_numeric', 1, 'go', key => 'then');
SELECT outcome FROM idem_try_fire('fk_numeric', 2, 'go', key => 'then');
DELETE FROM fk_numeric;
SELECT outcome, from_state FROM idem_try_fire('fk_numeric', 1, 'go', key => 'then');
SELECT outcome FROM idem_try_fire('fk_numeric', 2, 'go', key => 'then');
SELECT outcome FROM idem_try_fire('fk_numeric', 1, 'go');
SELECT id, outcome FROM idem_fire_many('fk_numeric', ARRAY[1, 3], 'go', key => 'scale');
-- ... also by a key that was made from the number as it was written then
INSERT INTO fk_numeric VALUES (5.00), (6.50);
SELECT id, outcome FROM idem_fire_many('fk_numeric', ARRAY[5, 6.5], 'go', key => 'former');
UPDATE idem.key SET key = idem_child('former', '[5.00]', 'idem.fire') WHERE scope = 'idem.fire' AND key = idem_child('former', '[5]', 'idem.fire');
UPDATE idem.key SET key = idem_child('former', '[6.50]', 'idem.fire') WHERE scope = 'idem.fire' AND key = idem_child('former', '[6.5]', 'idem.fire');
UPDATE fk_numeric SET state = 'c';
UPDATE fk_numeric SET state = 'a';
SELECT id, outcome, from_state FROM idem_fire_many('fk_numeric', ARRAY[5, 6.5], 'go', key => 'former');
-- two rows that differ in their states only have one part of a key
CREATE TABLE fk_both (id int, state text, PRIMARY KEY (id, state));
SELECT idem_attach('fk', 'fk_both', 'state');
INSERT INTO fk_both VALUES (1, 'a'), (2, 'a');
UPDATE fk_both SET state = 'b' WHERE id = 1;
INSERT INTO fk_both VALUES (1, 'a');
SELECT id, outcome FROM idem_fire_many('fk_both', ARRAY['{"id": 1, "state": "a"}', '{"id": 1, "state": "b"}']::jsonb[], 'on');
SELECT id, outcome FROM idem_fire_many('fk_both', ARRAY['{"id": 1, "state": "a"}', '{"id": 1, "state": "c"}']::jsonb[], 'go', key => 'both');
SELECT id, outcome FROM idem_fire_many('fk_both', ARRAY['{"id": 2, "state": "a"}', '{"id": 1, "state": "a"}']::jsonb[], 'go', key => 'both');
SELECT id, outcome FROM idem_fire_many('fk_both', ARRAY['{"id": 2, "state": "a"}', '{"id": 1, "state": "a"}', '{"id": 4, "state": "a"}', '{"id": 4, "state": "a"}']::jsonb[], 'go', key => 'both');
DROP TABLE fk_both;
-- no array; the id is not told
SELECT * FROM idem_fire_many('fk_char', 'secret', 'go');
SELECT * FROM idem_fire_many('fk_char', '{"secret', 'go');

-- a domain over an enum
CREATE TYPE fk_mood AS ENUM ('sad', 'ok');
CREATE DOMAIN fk_domain AS fk_mood;
CREATE TABLE fk_enum (id fk_domain PRIMARY KEY, state text DEFAULT 'a');
SELECT idem_attach('fk', 'fk_enum', 'state');
INSERT INTO fk_enum VALUES ('sad');
SELECT outcome FROM idem_try_fire('fk_enum', 'sad'::text, 'go');
SELECT id, outcome FROM idem_fire_many('fk_enum', '{sad,ok}', 'on');
DROP TABLE fk_enum;
DROP DOMAIN fk_domain;
DROP TYPE fk_mood;

-- the table, its schema and the columns of its key may be renamed
CREATE TABLE fk_t (id int, part int, state text DEFAULT 'a', PRIMARY KEY (id, part));
SELECT idem_attach('fk', 'fk_t', 'state');
INSERT INTO fk_t VALUES (1, 1), (2, 1), (1, 2);
SELECT outcome FROM idem_try_fire('fk_t', '{"id": 1, "part": 1}', 'go', key => 'k');
SELECT id, outcome FROM idem_fire_many('fk_t', ARRAY['{"id": 2, "part": 1}']::jsonb[], 'go', key => 'k');
ALTER TABLE fk_t RENAME TO fk_u;
SELECT outcome, from_state FROM idem_try_fire('fk_u', '{"id": 1, "part": 1}', 'go', key => 'k');
ALTER TABLE fk_u RENAME id TO number;
ALTER TABLE fk_u RENAME state TO status;
SELECT outcome, from_state FROM idem_try_fire('fk_u', '{"number": 1, "part": 1}', 'go', key => 'k');
SELECT id, outcome, from_state FROM idem_fire_many('fk_u', ARRAY['{"number": 2, "part": 1}']::jsonb[], 'go', key => 'k');
CREATE SCHEMA fk_s;
ALTER TABLE fk_u SET SCHEMA fk_s;
SELECT outcome, from_state FROM idem_try_fire('fk_s.fk_u', '{"number": 1, "part": 1}', 'go', key => 'k');
ALTER SCHEMA fk_s RENAME TO fk_s2;
SELECT outcome, from_state FROM idem_try_fire('fk_s2.fk_u', '{"number": 1, "part": 1}', 'go', key => 'k');
-- ... other rows, events and tables are told from it, also a table that has the name now
SELECT outcome FROM idem_try_fire('fk_s2.fk_u', '{"number": 2, "part": 1}', 'go', key => 'k');
SELECT outcome FROM idem_try_fire('fk_s2.fk_u', '{"number": 1, "part": 2}', 'go', key => 'k');
SELECT outcome FROM idem_try_fire('fk_s2.fk_u', '{"number": 1, "part": 1}', 'on', key => 'k');
SELECT outcome FROM idem_try_fire('fk_char', 'ab'::text, 'back', key => 'k');
SELECT idem_history FROM idem_history('fk_s2.fk_u', '{"number": 1, "part": 1}');
SELECT options FROM idem.binding WHERE table_name = 'fk_s2.fk_u'::regclass;
DROP SCHEMA fk_s2 CASCADE;

-- the state in the key: the id that it had is still the event's
CREATE TABLE fk_p (id int, state text DEFAULT 'a', PRIMARY KEY (id, state)) PARTITION BY LIST (state);
CREATE TABLE fk_p1 PARTITION OF fk_p FOR VALUES IN ('a');
CREATE TABLE fk_p2 PARTITION OF fk_p DEFAULT;
SELECT idem_attach('fk', 'fk_p', 'state');
INSERT INTO fk_p VALUES (1);
SELECT outcome FROM idem_try_fire('fk_p', '{"id": 1, "state": "a"}', 'go', key => 'p');
SELECT outcome, from_state, to_state FROM idem_try_fire('fk_p', '{"id": 1, "state": "a"}', 'go', key => 'p');
SELECT outcome, from_state, to_state FROM idem_try_fire('fk_p', '{"id": 1, "state": "b"}', 'go', key => 'p');
SELECT outcome, from_state, to_state FROM idem_try_fire('fk_p2', '{"id": 1, "state": "b"}', 'go', key => 'p');
SELECT outcome FROM idem_try_fire('fk_p', '{"id": 1, "state": "a"}', 'go');
SELECT outcome FROM idem_try_fire('fk_p', '{"id": 2, "state": "a"}', 'go', key => 'p');
SELECT outcome FROM idem_try_fire('fk_p', '{"id": 2, "state": "a"}', 'go', key => 'p2');
SELECT outcome FROM idem_fire_many('fk_p', ARRAY['{"id": 1, "state": "b"}']::jsonb[], 'on', key => 'p');
SELECT outcome, from_state, to_state FROM idem_fire_many('fk_p', ARRAY['{"id": 1, "state": "b"}', '{"id": 2, "state": "b"}']::jsonb[], 'on', key => 'p');

-- ... and that of another machine
CREATE TABLE fk_two (id int, state text DEFAULT 'a', second text DEFAULT 'a', PRIMARY KEY (id, state, second));
INSERT INTO idem.machine (name) VALUES ('fk2');
INSERT INTO idem.state (machine, name, initial) VALUES ('fk2', 'a', true), ('fk2', 'b', false);
INSERT INTO idem.transition (machine, event, from_state, to_state) VALUES ('fk2', 'second', 'a', 'b');
SELECT idem_attach('fk', 'fk_two', 'state'), idem_attach('fk2', 'fk_two', 'second');
INSERT INTO fk_two VALUES (1);
SELECT outcome FROM idem_try_fire('fk_two', '{"id": 1, "state": "a", "second": "a"}', 'go', key => 'two');
SELECT outcome FROM idem_try_fire('fk_two', '{"id": 1, "state": "b", "second": "a"}', 'second', key => 'two2');
SELECT outcome FROM idem_try_fire('fk_two', '{"id": 1, "state": "b", "second": "b"}', 'go', key => 'two');
SELECT outcome FROM idem_try_fire('fk_two', '{"id": 1, "state": "a", "second": "a"}', 'go', key => 'two');
SELECT outcome FROM idem_try_fire('fk_two', '{"id": 1, "state": "b", "second": "a"}', 'second', key => 'two2');
-- ... nothing else in the key
ALTER TABLE fk_two DROP CONSTRAINT fk_two_pkey, ADD PRIMARY KEY (second, state);
INSERT INTO fk_two VALUES (2);
SELECT outcome FROM idem_try_fire('fk_two', '{"state": "a", "second": "a"}', 'go', key => 'only');
SELECT outcome FROM idem_try_fire('fk_two', '{"state": "a", "second": "a"}', 'go', key => 'only');
DROP TABLE fk_two;
DELETE FROM idem.machine WHERE name = 'fk2';
-- the primary key made again in another order; a partition with its columns in another order
CREATE TABLE fk_order (x int, y int, state text DEFAULT 'a', PRIMARY KEY (x, y)) PARTITION BY RANGE (x);
CREATE TABLE fk_order1 (state text DEFAULT 'a', y int NOT NULL, x int NOT NULL);
ALTER TABLE fk_order ATTACH PARTITION fk_order1 FOR VALUES FROM (1) TO (9);
SELECT idem_attach('fk', 'fk_order', 'state');
INSERT INTO fk_order VALUES (1, 2), (2, 1);
SELECT outcome FROM idem_try_fire('fk_order', '{"x": 1, "y": 2}', 'go', key => 'o');
SELECT outcome FROM idem_try_fire('fk_order1', '{"x": 1, "y": 2}', 'go', key => 'o');
ALTER TABLE fk_order DROP CONSTRAINT fk_order_pkey, ADD PRIMARY KEY (y, x);
SELECT outcome FROM idem_try_fire('fk_order', '{"x": 1, "y": 2}', 'go', key => 'o');
SELECT outcome FROM idem_try_fire('fk_order1', '{"x": 1, "y": 2}', 'go', key => 'o');
SELECT outcome FROM idem_try_fire('fk_order', '{"x": 2, "y": 1}', 'go', key => 'o');
DROP TABLE fk_order;

-- a guard that changes the row is an error of its own, and nothing is left of it
DROP TABLE fk_char, fk_numeric, fk_float, fk_row, fk_array, fk_p;
CREATE TABLE fk_g (id int PRIMARY KEY, state text DEFAULT 'a', n int DEFAULT 0);
CREATE FUNCTION fk_write(row_id int, other int) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	UPDATE fk_g SET n = n + 1 WHERE id = other AND n = 0;
	RETURN true;
END $$;
UPDATE idem.transition SET guard = 'fk_write(new.id, new.id)' WHERE machine = 'fk' AND event = 'go';
UPDATE idem.transition SET guard = 'fk_write(new.id, 3 - new.id)' WHERE machine = 'fk' AND event = 'on';
INSERT INTO fk_g VALUES (1), (2), (3);
SELECT idem_attach('fk', 'fk_g', 'state', history => true);
SELECT * FROM idem_try_fire('fk_g', 1, 'go', key => 'g');
\echo :LAST_ERROR_SQLSTATE
SELECT * FROM idem_fire('fk_g', 1, 'go');
SELECT * FROM idem_fire_many('fk_g', ARRAY[1, 2], 'go');
UPDATE fk_g SET state = 'b' WHERE id = 1;
SELECT idem_detach('fk_g', 'state'), idem_attach('fk', 'fk_g', 'state', history => true, events_only => true);
SELECT * FROM idem_try_fire('fk_g', 1, 'go', key => 'g');
\echo :LAST_ERROR_SQLSTATE
SELECT * FROM fk_g ORDER BY id;
SELECT count(*) FROM idem.key WHERE scope = 'idem.fire' AND key = 'g';
-- one that changes another row is the user's own affair, unless that one is fired too
UPDATE fk_g SET n = 1;
SELECT outcome FROM idem_fire_many('fk_g', ARRAY[1, 2], 'go');
UPDATE fk_g SET n = 0 WHERE id = 2;
SELECT outcome FROM idem_fire('fk_g', 1, 'on');
SELECT * FROM fk_g ORDER BY id;
SELECT outcome FROM idem_fire_many('fk_g', ARRAY[1, 2], 'back');
UPDATE idem.transition SET guard = NULL WHERE machine = 'fk' AND event = 'go';
SELECT outcome FROM idem_fire_many('fk_g', ARRAY[1, 2], 'go');
UPDATE fk_g SET n = 0;
SELECT outcome FROM idem_fire_many('fk_g', ARRAY[1, 2], 'on');
SELECT * FROM fk_g ORDER BY id;

-- an empty key is none, and not the setting's
SET idem.key = 'request';
SELECT idem_fire('fk_g', 1, 'on', key => '');
RESET idem.key;

-- a trigger that chooses another transition is answered with what it has chosen, the
-- first time and later; one that keeps the row where it is lets nothing be applied
INSERT INTO idem.machine (name) VALUES ('fk2');
INSERT INTO idem.state (machine, name, initial) VALUES ('fk2', 'a', true), ('fk2', 'b', false), ('fk2', 'c', false);
INSERT INTO idem.transition (machine, event, from_state, to_state, priority) VALUES
	('fk2', 'go', 'a', 'b', 1), ('fk2', 'go', 'a', 'c', 2);
CREATE TABLE fk_chosen (id int PRIMARY KEY, s text NOT NULL DEFAULT 'a', n int NOT NULL);
SELECT idem_attach('fk2', 'fk_chosen', 's', history => true);
CREATE FUNCTION fk_choose() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	new.s := CASE WHEN new.n > 100 THEN 'c' WHEN new.n = 50 THEN old.s ELSE new.s END;
	RETURN new;
END$$;
CREATE TRIGGER choose BEFORE UPDATE OF s ON fk_chosen FOR EACH ROW EXECUTE FUNCTION fk_choose();
INSERT INTO fk_chosen (id, n) VALUES (1, 101), (2, 50), (3, 101), (4, 1), (5, 50), (6, 1);
SELECT outcome, from_state, to_state FROM idem_fire('fk_chosen', 1, 'go', key => 'chosen1');
SELECT outcome, from_state, to_state FROM idem_fire('fk_chosen', 1, 'go', key => 'chosen1');
SELECT outcome, from_state, to_state FROM idem_fire('fk_chosen', 2, 'go', key => 'chosen2');
SELECT outcome, from_state, to_state FROM idem_try_fire('fk_chosen', 2, 'go');
SELECT id, outcome, from_state, to_state FROM idem_fire_many('fk_chosen', ARRAY[3, 4], 'go', key => 'chosen3');
SELECT id, outcome, from_state, to_state FROM idem_fire_many('fk_chosen', ARRAY[3, 4], 'go', key => 'chosen3');
SELECT id, outcome, from_state, to_state FROM idem_fire_many('fk_chosen', ARRAY[5, 6], 'go', key => 'chosen5');
UPDATE fk_chosen SET n = 0;
SELECT outcome, from_state, to_state FROM idem_fire('fk_chosen', 2, 'go', key => 'chosen2');
-- where the state is begun anew, the event's way back to it is a way, too
UPDATE fk_chosen SET n = 50;
UPDATE idem.state SET self = 'reenter' WHERE machine = 'fk2' AND name = 'a';
INSERT INTO idem.transition (machine, event, from_state, to_state, priority) VALUES ('fk2', 'go', 'a', 'a', 3);
SELECT outcome, from_state, to_state FROM idem_fire('fk_chosen', 5, 'go', key => 'chosen50');
SELECT outcome, from_state, to_state FROM idem_fire('fk_chosen', 5, 'go', key => 'chosen50');
SELECT event, from_state, to_state FROM idem_history('fk_chosen', 5);
DELETE FROM idem.transition WHERE machine = 'fk2' AND to_state = 'a';
-- it may also forget the key
CREATE OR REPLACE FUNCTION fk_choose() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM idem_forget('chosen6', 'idem.fire', true);
	new.s := 'c';
	RETURN new;
END$$;
SELECT outcome, from_state, to_state FROM idem_fire('fk_chosen', 6, 'go', key => 'chosen6');
-- and use it for another row
INSERT INTO fk_chosen (id, n) VALUES (7, 0), (8, 0);
CREATE OR REPLACE FUNCTION fk_choose() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF new.id = 7 THEN
		PERFORM idem_forget('chosen7', 'idem.fire', true);
		PERFORM idem_fire('fk_chosen', 8, 'go', key => 'chosen7');
		new.s := 'c';
	END IF;
	RETURN new;
END$$;
SELECT outcome, from_state, to_state FROM idem_fire('fk_chosen', 7, 'go', key => 'chosen7');
SELECT outcome, from_state, to_state FROM idem_fire('fk_chosen', 8, 'go', key => 'chosen7');
SELECT id, s FROM fk_chosen ORDER BY id;

-- also where the machine only observes
CREATE TABLE fk_observed (id int PRIMARY KEY, s text DEFAULT 'a');
SELECT idem_attach('fk2', 'fk_observed', 's', mode => 'observe');
CREATE FUNCTION fk_hold() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	new.s := CASE new.id WHEN 1 THEN old.s END;
	RETURN new;
END$$;
CREATE TRIGGER hold BEFORE UPDATE ON fk_observed FOR EACH ROW EXECUTE FUNCTION fk_hold();
INSERT INTO fk_observed VALUES (1), (2);
SELECT outcome, from_state, to_state FROM idem_try_fire('fk_observed', 1, 'go', key => 'observed1');
SELECT outcome, from_state, to_state FROM idem_try_fire('fk_observed', 2, 'go', key => 'observed2');
SELECT outcome, from_state, to_state FROM idem_try_fire('fk_observed', 2, 'go', key => 'observed2');
-- nothing leaves no state
INSERT INTO idem.transition (machine, event, from_state, to_state, priority) VALUES ('fk2', 'any', '*', 'b', 9);
SELECT idem_why_not('fk_observed', 2, 'any');
DROP TABLE fk_observed;
DROP FUNCTION fk_hold;

DROP TABLE fk_chosen;
DROP FUNCTION fk_choose;
DROP TABLE fk_g;
DROP FUNCTION fk_write;
DROP TYPE fk_pair;
ALTER TABLE idem.history DISABLE TRIGGER protected_row;
DELETE FROM idem.history WHERE machine IN ('fk', 'fk2');
ALTER TABLE idem.history ENABLE TRIGGER protected_row;
DELETE FROM idem.key WHERE scope = 'idem.fire';
DELETE FROM idem.machine WHERE name IN ('fk', 'fk2');
