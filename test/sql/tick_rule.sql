-- Which transition time takes: one that is timed, and whose time has come.

\set SHOW_CONTEXT never
SET client_min_messages = error;
CREATE ROLE regress_idem_rule_owner;
CREATE ROLE regress_idem_rule_boss;
SELECT idem_grant('regress_idem_rule_owner', 'operator');
GRANT CREATE, USAGE ON SCHEMA public TO regress_idem_rule_owner;
CREATE FUNCTION tr_pass(span interval) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	UPDATE idem.timer SET since = since - span, due = due - span WHERE machine = 'tr' AND event <> '';
	ALTER TABLE idem.history DISABLE TRIGGER protected;
	UPDATE idem.history SET at = at - span WHERE machine = 'tr';
	ALTER TABLE idem.history ENABLE TRIGGER protected;
END $$;
CREATE VIEW tr_timer AS
SELECT row_key, state, event, date_trunc('minute', due - since) AS after, tries FROM idem.timer WHERE machine = 'tr' ORDER BY row_key, event;

SET ROLE regress_idem_rule_owner;
-- an event that a role decides on, and time as well; one of two times
SELECT idem_define('tr', $$stateDiagram-v2
	[*] --> pending
	[*] --> p
	pending --> approved : decide by regress_idem_rule_boss
	pending --> expired : decide after 30 min
	p --> p1 : esc [new.vip]
	p --> p2 : esc [new.vip] after 1 hour
	p --> p3 : esc after 3 hours
	p --> p4 : esc [new.n > 0] after 2 hours
	p --> q : leave
	q --> p : back
	approved --> [*]
	expired --> [*]
$$);
SELECT code, what FROM idem_lint('tr') WHERE code IN ('ambiguous', 'shadowed');
CREATE TABLE tr_t (id int PRIMARY KEY, state text NOT NULL, vip boolean NOT NULL DEFAULT false, n int NOT NULL DEFAULT 0);
SELECT idem_attach('tr', 'tr_t', 'state', history => true);
INSERT INTO tr_t VALUES (1, 'pending', false, 0), (2, 'p', true, 0), (3, 'p', false, 0), (4, 'p', false, 1), (5, 'pending', false, 0);
RESET ROLE;
SELECT * FROM tr_timer;
-- by hand the first that may be taken, whenever it is
SET ROLE regress_idem_rule_owner;
-- what time takes is no button
SELECT * FROM idem_allowed('tr_t', 5);
SELECT * FROM idem_allowed('tr_t', 2) ORDER BY 1;
SELECT * FROM idem_allowed('tr_t', 3) ORDER BY 1;
SELECT * FROM idem_try_fire('tr_t', 5, 'decide');
RESET ROLE;
SELECT idem_grant('regress_idem_rule_boss');
GRANT SELECT, UPDATE ON tr_t TO regress_idem_rule_boss;
INSERT INTO tr_t VALUES (6, 'pending');
SET ROLE regress_idem_rule_boss;
SELECT * FROM idem_allowed('tr_t', 6);
SELECT outcome, to_state FROM idem_try_fire('tr_t', 6, 'decide');
RESET ROLE;

-- by time the timed one, though the other has no guard
SELECT tr_pass('59 min');
SELECT row_key, event, outcome FROM idem_tick() ORDER BY row_key;
SELECT id, state FROM tr_t ORDER BY id;
-- and none before its own time: the next is waited for, however often it was in vain
SELECT tr_pass('2 min');
SELECT row_key, event, outcome FROM idem_tick() ORDER BY row_key;
SELECT id, state FROM tr_t ORDER BY id;
UPDATE idem.timer SET due = clock_timestamp() WHERE machine = 'tr' AND event <> '';
UPDATE idem.timer SET tries = 9 WHERE machine = 'tr' AND event <> '';
SELECT row_key, event, outcome FROM idem_tick() ORDER BY row_key;
SELECT * FROM tr_timer;
SELECT tr_pass('1 hour');
SELECT row_key, event, outcome FROM idem_tick() ORDER BY row_key;
SELECT id, state FROM tr_t ORDER BY id;
SELECT * FROM tr_timer;
SELECT tr_pass('1 hour');
SELECT row_key, event, outcome FROM idem_tick() ORDER BY row_key;
SELECT id, state FROM tr_t ORDER BY id;
SELECT row_key, event, from_state, to_state FROM idem.history WHERE table_name = 'tr_t' AND from_state IS NOT NULL ORDER BY row_key, seq;

-- a machine that is timed no more for a while: timers of a stay that is over are not the next one's
INSERT INTO tr_t VALUES (7, 'p'), (8, 'p');
UPDATE idem.transition SET after = '1 hour' WHERE machine = 'tr' AND event = 'esc' AND to_state = 'p3';
SELECT tr_pass('50 min');
SELECT count(*) FROM idem_tick();
CREATE TEMP TABLE tr_after AS SELECT event, from_state, to_state, after FROM idem.transition WHERE machine = 'tr' AND after IS NOT NULL;
UPDATE idem.transition SET after = NULL WHERE machine = 'tr';
UPDATE tr_t SET state = 'q' WHERE id = 7;
UPDATE tr_t SET state = 'p' WHERE id = 7;
UPDATE idem.transition AS t SET after = a.after FROM tr_after AS a WHERE t.machine = 'tr' AND t.event = a.event AND t.from_state = a.from_state AND t.to_state = a.to_state;
SELECT row_key, event, outcome FROM idem_tick();
SELECT * FROM tr_timer;
SELECT tr_pass('20 min');
SELECT row_key, event, outcome FROM idem_tick() ORDER BY row_key;
SELECT id, state FROM tr_t WHERE id > 6 ORDER BY id;
SELECT tr_pass('45 min');
SELECT row_key, event, outcome FROM idem_tick() ORDER BY row_key;
SELECT id, state FROM tr_t WHERE id > 6 ORDER BY id;

-- ... also before the rows have been looked for, and where the row's key changes
INSERT INTO tr_t VALUES (9, 'p'), (10, 'p');
SELECT tr_pass('50 min');
UPDATE idem.transition SET after = NULL WHERE machine = 'tr';
UPDATE tr_t SET state = 'q' WHERE id IN (9, 10);
UPDATE tr_t SET state = 'p' WHERE id IN (9, 10);
UPDATE idem.transition AS t SET after = a.after FROM tr_after AS a WHERE t.machine = 'tr' AND t.event = a.event AND t.from_state = a.from_state AND t.to_state = a.to_state;
UPDATE tr_t SET id = 11 WHERE id = 10;
DELETE FROM idem.timer WHERE machine = 'tr' AND event = '';
SELECT tr_pass('20 min');
SELECT row_key, event, outcome FROM idem_tick() ORDER BY row_key;
SELECT id, state FROM tr_t WHERE id > 8 ORDER BY id;
SELECT tr_pass('45 min');
SELECT row_key, event, outcome FROM idem_tick() ORDER BY row_key;
SELECT id, state FROM tr_t WHERE id > 8 ORDER BY id;

-- something else in the place of idem.timer
INSERT INTO tr_t VALUES (12, 'p');
BEGIN;
ALTER TABLE idem.timer RENAME TO tr_timer;
CREATE VIEW idem.timer AS TABLE idem.tr_timer;
UPDATE tr_t SET state = 'q' WHERE id = 12;
ROLLBACK;
BEGIN;
ALTER TABLE idem.timer ALTER table_name TYPE varchar;
UPDATE tr_t SET state = 'q' WHERE id = 12;
ROLLBACK;

-- a transition to the same state, which is not re-entered, comes first while its guard is true
DROP TABLE tr_t;
DELETE FROM idem.timer WHERE machine = 'tr';
DELETE FROM idem.transition WHERE machine = 'tr';
SET ROLE regress_idem_rule_owner;
SELECT idem_define('tr', $$stateDiagram-v2
	[*] --> p
	p --> p : esc [new.n < 3] after 1 hour
	p --> p1 : esc [new.vip] after 1 hour
	p1 --> [*]
$$, '{"pending": "p", "approved": "p", "expired": "p", "p2": "p", "p3": "p", "p4": "p", "q": "p"}');
CREATE TABLE tr_t (id int PRIMARY KEY, state text NOT NULL, vip boolean NOT NULL DEFAULT false, n int NOT NULL DEFAULT 0);
SELECT idem_attach('tr', 'tr_t', 'state', history => true);
INSERT INTO tr_t VALUES (1, 'p', true, 5), (2, 'p', false, 5), (3, 'p', true, 2);
RESET ROLE;
SELECT tr_pass('2 hours');
SELECT row_key, event, outcome FROM idem_tick() ORDER BY row_key;
UPDATE tr_t SET vip = true, n = 5;
SELECT tr_pass('2 hours');
SELECT row_key, event, outcome FROM idem_tick() ORDER BY row_key;
INSERT INTO tr_t VALUES (4, 'p', true, 2);
UPDATE idem.state SET self = 'deny' WHERE machine = 'tr' AND name = 'p';
SELECT tr_pass('2 hours');
SELECT row_key, event, outcome FROM idem_tick() ORDER BY row_key;
UPDATE tr_t SET n = 5 WHERE id = 4;
SELECT tr_pass('2 hours');
SELECT row_key, event, outcome FROM idem_tick() ORDER BY row_key;
SELECT id, state FROM tr_t ORDER BY id;

DROP VIEW tr_timer;
DROP TABLE tr_t;
DROP FUNCTION tr_pass;
DELETE FROM idem.timer WHERE machine = 'tr';
ALTER TABLE idem.history DISABLE TRIGGER protected_row;
DELETE FROM idem.history WHERE machine = 'tr';
ALTER TABLE idem.history ENABLE TRIGGER protected_row;
DELETE FROM idem.state WHERE machine = 'tr';
DELETE FROM idem.machine WHERE name = 'tr';
SELECT idem_revoke('regress_idem_rule_owner'), idem_revoke('regress_idem_rule_boss');
REVOKE ALL ON SCHEMA public FROM regress_idem_rule_owner;
DROP ROLE regress_idem_rule_owner, regress_idem_rule_boss;
