-- The tables behind a definition, by plain INSERT, UPDATE and DELETE.
\set VERBOSITY terse
CREATE ROLE regress_idem_clerk;

INSERT INTO idem.machine (name) VALUES ('door');
INSERT INTO idem.state (machine, name, initial, final) VALUES
	('door', 'open', true, false), ('door', 'shut', false, false), ('door', 'gone', false, true);
INSERT INTO idem.transition (machine, event, from_state, to_state, guard, roles, after) VALUES
	('door', 'close', 'open', 'shut', 'new.wind > 3', NULL, '1 h'),
	('door', 'break', '*', 'gone', NULL, '{regress_idem_clerk}', NULL);

-- Names and values.
INSERT INTO idem.machine (name) VALUES ('');
INSERT INTO idem.machine (name) VALUES (repeat('x', 129));
INSERT INTO idem.machine (name) VALUES (repeat('x', 128));
INSERT INTO idem.machine (name) VALUES ('door');
INSERT INTO idem.machine (name, owner) VALUES ('other', 'regress_idem_gone');
INSERT INTO idem.state (machine, name) VALUES ('door', '');
INSERT INTO idem.state (machine, name) VALUES ('door', '*');
INSERT INTO idem.state (machine, name) VALUES ('door', repeat('x', 129));
INSERT INTO idem.state (machine, name) VALUES ('window', 'open');
INSERT INTO idem.state (machine, name, self) VALUES ('door', 'ajar', 'perhaps');
INSERT INTO idem.transition (machine, event, from_state, to_state) VALUES ('door', '', 'open', 'shut');
INSERT INTO idem.transition (machine, event, from_state, to_state) VALUES ('door', repeat('x', 129), 'open', 'shut');
INSERT INTO idem.transition (machine, event, from_state, to_state, after) VALUES ('door', 'e', 'open', 'shut', '-1 s');
INSERT INTO idem.transition (machine, event, from_state, to_state, after) VALUES ('door', 'e', 'open', 'shut', '1001 years');
INSERT INTO idem.transition (machine, event, from_state, to_state, guard) VALUES ('door', 'e', 'open', 'shut', repeat(' ', 8193));

-- What two rows say together.
INSERT INTO idem.transition (machine, event, from_state, to_state) VALUES ('door', 'e', 'ajar', 'shut');
INSERT INTO idem.transition (machine, event, from_state, to_state) VALUES ('door', 'e', 'open', 'ajar');
INSERT INTO idem.transition (machine, event, from_state, to_state) VALUES ('door', 'e', 'open', '*');
INSERT INTO idem.transition (machine, event, from_state, to_state) VALUES ('door', 'e', 'gone', 'open');
INSERT INTO idem.transition (machine, event, from_state, to_state) VALUES ('door', 'close', 'open', 'gone');
UPDATE idem.transition SET from_state = 'gone' WHERE event = 'close';
UPDATE idem.transition SET to_state = 'ajar' WHERE event = 'close';
UPDATE idem.state SET final = true WHERE name = 'open';

-- Guards and roles.
INSERT INTO idem.transition (machine, event, from_state, to_state, guard) VALUES ('door', 'e', 'open', 'shut', 'a b c');
INSERT INTO idem.transition (machine, event, from_state, to_state, guard) VALUES ('door', 'e', 'open', 'shut', 'true; DROP TABLE x');
INSERT INTO idem.transition (machine, event, from_state, to_state, guard) VALUES ('door', 'e', 'open', 'shut', 'true) OR (true');
INSERT INTO idem.transition (machine, event, from_state, to_state, guard) VALUES ('door', 'e', 'open', 'shut', 'true WHERE true');
INSERT INTO idem.transition (machine, event, from_state, to_state, guard) VALUES ('door', 'e', 'open', 'shut', '');
INSERT INTO idem.transition (machine, event, from_state, to_state, roles) VALUES ('door', 'e', 'open', 'shut', '{}');
INSERT INTO idem.transition (machine, event, from_state, to_state, roles) VALUES ('door', 'e', 'open', 'shut', '{NULL}');
INSERT INTO idem.transition (machine, event, from_state, to_state, roles) VALUES ('door', 'e', 'open', 'shut', '{regress_idem_gone}');
UPDATE idem.transition SET guard = '1 +' WHERE event = 'close';

-- As pg_restore does: roles may come later.
BEGIN;
SET LOCAL check_function_bodies = off;
INSERT INTO idem.machine (name, owner) VALUES ('other', 'regress_idem_gone');
INSERT INTO idem.transition (machine, event, from_state, to_state, roles) VALUES ('door', 'e', 'open', 'shut', '{regress_idem_gone}');
INSERT INTO idem.transition (machine, event, from_state, to_state) VALUES ('door', 'e', 'gone', 'shut');
ROLLBACK;

-- One statement may bring things into order in any sequence.
WITH off AS (DELETE FROM idem.transition WHERE event = 'close' RETURNING *)
UPDATE idem.state SET final = true WHERE name = 'open' AND EXISTS (SELECT FROM off);
UPDATE idem.state SET final = false WHERE name = 'open';
INSERT INTO idem.transition (machine, event, from_state, to_state) VALUES
	('door', 'close', 'open', 'shut'), ('door', 'open', 'shut', 'open'), ('door', 'oil', 'shut', 'shut');

-- A new name is followed, what goes takes along what needs it.
UPDATE idem.state SET name = 'closed' WHERE name = 'shut';
SELECT event, from_state, to_state FROM idem.transition ORDER BY 1;
UPDATE idem.machine SET name = 'gate' WHERE name = 'door';
SELECT machine, event, from_state, to_state FROM idem.transition ORDER BY 2;
SELECT machine, name FROM idem.state ORDER BY 2;
DELETE FROM idem.state WHERE name = 'closed';
SELECT event, from_state, to_state FROM idem.transition ORDER BY 1;
DELETE FROM idem.machine;
SELECT count(*) FROM idem.state;
SELECT count(*) FROM idem.transition;

-- Not for other tables.
CREATE TEMP TABLE mine (a int);
CREATE TRIGGER t AFTER INSERT ON mine FOR EACH ROW EXECUTE FUNCTION idem_machine_check();
INSERT INTO mine VALUES (1);
DROP TRIGGER t ON mine;
CREATE TRIGGER t BEFORE INSERT ON mine FOR EACH ROW EXECUTE FUNCTION idem_machine_check();
INSERT INTO mine VALUES (1);
DROP TRIGGER t ON mine;
CREATE TRIGGER t BEFORE INSERT ON mine FOR EACH ROW EXECUTE FUNCTION idem_catalog_changed();
INSERT INTO mine VALUES (1);
DROP ROLE regress_idem_clerk;
