-- Timed transitions of rows that were in the state before.

\set SHOW_CONTEXT never
SET client_min_messages = error;
CREATE ROLE regress_idem_fill_owner;
SELECT idem_grant('regress_idem_fill_owner', 'operator');
GRANT CREATE, USAGE ON SCHEMA public TO regress_idem_fill_owner;
CREATE VIEW fi_timer AS
SELECT table_name, row_key, state, event, date_trunc('minute', due - since) AS after,
	CASE WHEN clock_timestamp() - since < '10 min' THEN 'now' ELSE 'before' END AS since
FROM idem.timer WHERE machine LIKE 'fi%' ORDER BY table_name, row_key, event;
CREATE FUNCTION fi_pass(span interval) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	UPDATE idem.timer SET since = since - span, due = due - span WHERE machine LIKE 'fi%' AND event <> '';
	ALTER TABLE idem.history DISABLE TRIGGER protected;
	UPDATE idem.history SET at = at - span WHERE machine LIKE 'fi%';
	ALTER TABLE idem.history ENABLE TRIGGER protected;
END $$;

SET ROLE regress_idem_fill_owner;
SELECT idem_define('fi', $$stateDiagram-v2
	[*] --> open
	open --> held : hold
	held --> open : free
	open --> taken : take
	open --> expired : expire after 30 min
	[any] --> gone : purge after 1 year
	taken --> [*]
	expired --> [*]
	gone --> [*]
$$);

-- attached to a table with rows; an empty one needs no look
CREATE TABLE fi_none (id int PRIMARY KEY, state text, n int);
SELECT idem_attach('fi', 'fi_none', 'state', history => true);
CREATE TABLE fi_t (id int PRIMARY KEY, state text, n int);
INSERT INTO fi_t VALUES (0, 'open'), (1, 'open'), (2, 'held'), (3, 'taken'), (4, 'open');
SELECT idem_attach('fi', 'fi_t', 'state', history => true, validate => false);
RESET ROLE;
SELECT * FROM fi_timer;
-- who moves until then has his timers already, and takes the others' along
UPDATE fi_t SET state = 'held' WHERE id = 1;
UPDATE fi_t SET state = 'held' WHERE id = 0;
UPDATE fi_t SET state = 'open' WHERE id = 0;
SELECT * FROM idem_tick();
SELECT * FROM fi_timer;
SELECT * FROM idem_tick();
SELECT fi_pass('30 min');
SELECT * FROM idem_tick() ORDER BY row_key;
SELECT * FROM fi_t ORDER BY id;
SELECT row_key, event, from_state, to_state FROM idem.history WHERE table_name = 'fi_t' ORDER BY seq;

-- a definition that gives a state a time: since the row came there, if its history tells
INSERT INTO fi_t VALUES (5, 'open');
UPDATE fi_t SET state = 'held' WHERE id = 5;
SELECT fi_pass('1 hour');
INSERT INTO fi_t VALUES (6, 'open');
UPDATE fi_t SET state = 'held' WHERE id = 6;
ALTER TABLE fi_t DISABLE TRIGGER USER;
UPDATE fi_t SET state = 'held' WHERE id = 3;
UPDATE fi_t SET state = 'open' WHERE id = 5;
UPDATE fi_t SET state = 'held' WHERE id = 5;
ALTER TABLE fi_t ENABLE TRIGGER USER;
SET ROLE regress_idem_fill_owner;
SELECT idem_define('fi', replace(idem_diagram('fi'), 'held --> open : free', 'held --> open : free after 40 min'));
RESET ROLE;
SELECT * FROM fi_timer WHERE event IN ('', 'free');
SELECT * FROM idem_tick() ORDER BY row_key;
SELECT * FROM fi_timer WHERE event = 'free';
SELECT * FROM fi_t ORDER BY id;
-- the same definition, and one that changes something else, look at nothing
SET ROLE regress_idem_fill_owner;
SELECT idem_define('fi', idem_diagram('fi'));
SELECT idem_define('fi', replace(idem_diagram('fi'), ': take', ': take [new.n > 0] by regress_idem_fill_owner'));
RESET ROLE;
SELECT * FROM fi_timer WHERE event = '';

-- sooner: at the new time
SET ROLE regress_idem_fill_owner;
SELECT idem_define('fi', replace(idem_diagram('fi'), '40 min', '20 min'));
RESET ROLE;
SELECT count(*) FROM idem_tick();
SELECT * FROM fi_timer WHERE event = 'free';
SELECT fi_pass('20 min');
-- later: put off when the old time comes
SET ROLE regress_idem_fill_owner;
SELECT idem_define('fi', replace(idem_diagram('fi'), '20 min', '50 min'));
RESET ROLE;
SELECT * FROM idem_tick();
SELECT * FROM fi_timer WHERE event = 'free';
-- not any more: goes when it is due
SET ROLE regress_idem_fill_owner;
SELECT idem_define('fi', replace(idem_diagram('fi'), ' after 50 min', ''));
RESET ROLE;
SELECT fi_pass('50 min');
SELECT row_key, outcome FROM idem_tick() WHERE event = 'free' ORDER BY row_key;
-- by plain DML; one note for a table
UPDATE idem.transition SET after = '2 h' WHERE machine = 'fi' AND event IN ('free', 'hold', 'expire');
SELECT * FROM fi_timer WHERE event = '';
SELECT count(*) FROM idem_tick();
SELECT table_name, state, event, after, since, count(*) FROM fi_timer GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2, 3, 4, 5;
-- rolled back
BEGIN;
UPDATE idem.transition SET after = '3 h' WHERE machine = 'fi' AND event = 'free';
SELECT count(*) FROM fi_timer WHERE event = '';
ROLLBACK;
SELECT count(*) FROM fi_timer WHERE event = '';

-- of two timers the one of the later stay counts
SELECT count(*) FROM idem.timer WHERE table_name = 'fi_t' AND row_key = '{"id": 2}' AND event = 'expire';
INSERT INTO fi_t VALUES (7, 'open');
INSERT INTO idem.timer SELECT machine, table_schema, table_name, binding, row_key, row_hash, state, event, since - interval '3 h', due - interval '3 h' FROM idem.timer WHERE row_key = '{"id": 7}' AND event = 'expire';
SELECT row_key, event, outcome FROM idem_tick();
SELECT * FROM fi_timer WHERE row_key = '{"id": 7}' AND event = 'expire';

-- detached: nothing is known of its rows any more, attached again it is
SET ROLE regress_idem_fill_owner;
SELECT idem_detach('fi_t', 'state');
RESET ROLE;
SELECT * FROM fi_timer WHERE table_name = 'fi_t';
SET ROLE regress_idem_fill_owner;
SELECT idem_attach('fi', 'fi_t', 'state', history => true);
RESET ROLE;
SELECT count(*) FROM idem_tick();
SELECT row_key, state, event, after FROM fi_timer WHERE table_name = 'fi_t' AND event <> 'purge';

-- a table that is gone, and one of a superuser
SET ROLE regress_idem_fill_owner;
CREATE TABLE fi_gone (id int PRIMARY KEY, state text, n int);
INSERT INTO fi_gone VALUES (1, 'open');
SELECT idem_attach('fi', 'fi_gone', 'state', history => true);
DROP TABLE fi_gone;
RESET ROLE;
CREATE TABLE fi_super (id int PRIMARY KEY, state text, n int);
INSERT INTO fi_super VALUES (1, 'open');
SELECT idem_attach('fi', 'fi_super', 'state', history => true);
SELECT * FROM idem_tick();
SELECT row_key, event, tries, due > clock_timestamp() AS later FROM idem.timer WHERE table_name IN ('fi_gone', 'fi_super');
DROP TABLE fi_super;

-- a look that is refused, where the owner does not see all rows, is put off
SET ROLE regress_idem_fill_owner;
CREATE FUNCTION fi_policy() RETURNS bool LANGUAGE plpgsql AS $$ BEGIN RAISE 'policy'; END $$;
CREATE TABLE fi_bad (id int PRIMARY KEY, state text, n int);
INSERT INTO fi_bad VALUES (1, 'open');
SELECT idem_attach('fi', 'fi_bad', 'state', history => true);
CREATE POLICY bad ON fi_bad USING (fi_policy());
ALTER TABLE fi_bad ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
RESET ROLE;
SET client_min_messages = warning;
SELECT * FROM idem_tick();
SET client_min_messages = error;
SELECT row_key, event, tries FROM idem.timer WHERE table_name = 'fi_bad';
ALTER TABLE fi_bad NO FORCE ROW LEVEL SECURITY;
UPDATE idem.timer SET due = since WHERE table_name = 'fi_bad';
SELECT * FROM idem_tick();
SELECT row_key, event FROM idem.timer WHERE table_name = 'fi_bad' ORDER BY 2;

-- a bound table without history
SET ROLE regress_idem_fill_owner;
SELECT idem_define('fi2', 'stateDiagram-v2
	[*] --> 1
	1 --> 2 : go
	1 --> 300000 : late
	2 --> [*]');
CREATE TABLE fi_plain (id int PRIMARY KEY, state int);
SELECT idem_attach('fi2', 'fi_plain', 'state');
UPDATE idem.transition SET after = '1 h' WHERE machine = 'fi2' AND event = 'go';
SELECT idem_detach('fi_plain', 'state');

-- types of states and keys; names that are no values of the type
CREATE TYPE fi_enum AS ENUM ('1', '2');
CREATE DOMAIN fi_domain AS fi_enum;
CREATE TABLE fi_type (a text COLLATE "C", s smallint, e fi_domain, c char(7), b bigint, PRIMARY KEY (b, a));
INSERT INTO fi_type VALUES ('x', 1, '1', '1', 1), ('y', 2, '1', '2', 1), ('x', 1, '2', '1', 2);
SELECT idem_attach('fi2', 'fi_type', c, history => true) FROM unnest('{s,e,c}'::name[]) AS c;
UPDATE idem.transition SET after = '1 h' WHERE machine = 'fi2' AND event IN ('go', 'late');
RESET ROLE;
SELECT count(*) FROM idem_tick();
SELECT binding, row_key, state, event FROM idem.timer WHERE table_name = 'fi_type' ORDER BY 1, 2, 4;
SELECT fi_pass('1 h');
SELECT table_name, row_key, event, outcome FROM idem_tick() WHERE event = 'go' ORDER BY row_key;
SELECT * FROM fi_type ORDER BY b, a;

-- partitioned by the state, which is part of the key
SET ROLE regress_idem_fill_owner;
CREATE TABLE fi_p (state int, x int, id int, PRIMARY KEY (state, id)) PARTITION BY LIST (state);
CREATE TABLE fi_p1 PARTITION OF fi_p FOR VALUES IN (1);
CREATE TABLE fi_p2 (id int NOT NULL, x2 int, state int NOT NULL, x int);
ALTER TABLE fi_p2 DROP COLUMN x2;
ALTER TABLE fi_p ATTACH PARTITION fi_p2 DEFAULT;
INSERT INTO fi_p VALUES (1, 1, 1), (2, 1, 2);
SELECT idem_attach('fi2', 'fi_p', 'state', history => true);
INSERT INTO fi_p VALUES (1, 1, 3);
UPDATE idem.transition SET after = '0 s' WHERE machine = 'fi2' AND event = 'go';
RESET ROLE;
SELECT table_name, row_key, event, outcome FROM idem_tick() WHERE table_name = 'public.fi_p' ORDER BY row_key;
SELECT * FROM fi_p ORDER BY id;
SELECT row_key, event, from_state, to_state FROM idem.history WHERE table_name = 'fi_p' ORDER BY seq;
SELECT count(*) FROM idem.timer WHERE table_name = 'fi_p';

-- children are tables of their own, also where a key stands twice
SET ROLE regress_idem_fill_owner;
CREATE TABLE fi_parent (id int PRIMARY KEY, state int);
CREATE TABLE fi_child (PRIMARY KEY (id)) INHERITS (fi_parent);
INSERT INTO fi_parent VALUES (1, 1);
INSERT INTO fi_child VALUES (1, 1);
SELECT idem_attach('fi2', 'fi_parent', 'state', history => true);
INSERT INTO fi_child VALUES (2, 1);
RESET ROLE;
SELECT table_name, row_key, event FROM fi_timer WHERE table_name IN ('fi_parent', 'fi_child');
SELECT table_name, row_key, event, outcome FROM idem_tick() ORDER BY 1, 2;
SELECT tableoid::regclass, * FROM fi_parent ORDER BY 1, 2;
SET ROLE regress_idem_fill_owner;
INSERT INTO fi_child VALUES (3, 1);
SELECT idem_detach('fi_parent', 'state');
RESET ROLE;
SELECT table_name, row_key, event FROM fi_timer WHERE table_name IN ('fi_parent', 'fi_child');

-- sooner: neither what has failed, nor what is due, which the call is at
SET ROLE regress_idem_fill_owner;
SELECT idem_define('fi3', E'stateDiagram-v2\n[*] --> a\na --> b : go [new.id < 3] after 2 h');
CREATE TABLE fi_sooner (id int PRIMARY KEY, state text);
SELECT idem_attach('fi3', 'fi_sooner', 'state', history => true);
INSERT INTO fi_sooner VALUES (1, 'a'), (2, 'a'), (3, 'a');
SELECT idem_define('fi3', E'stateDiagram-v2\n[*] --> a\na --> b : go [new.id < 3] after 1 h');
RESET ROLE;
UPDATE idem.timer SET tries = 2 WHERE table_name = 'fi_sooner' AND row_key = '{"id": 2}';
UPDATE idem.timer SET since = since - interval '2 h', due = clock_timestamp() WHERE table_name = 'fi_sooner' AND row_key = '{"id": 3}';
ALTER TABLE idem.history DISABLE TRIGGER protected;
UPDATE idem.history SET at = at - interval '2 h' WHERE table_name = 'fi_sooner' AND row_key = '{"id": 3}';
ALTER TABLE idem.history ENABLE TRIGGER protected;
SELECT row_key, event, outcome FROM idem_tick();
SELECT row_key, due - since > interval '90 min' AS long, tries FROM idem.timer WHERE table_name = 'fi_sooner' ORDER BY row_key;
DROP TABLE fi_sooner;
-- partitions have no note of their own
SET ROLE regress_idem_fill_owner;
CREATE TABLE fi_parts (id int PRIMARY KEY, state text) PARTITION BY RANGE (id);
CREATE TABLE fi_parts1 PARTITION OF fi_parts FOR VALUES FROM (0) TO (9);
INSERT INTO fi_parts VALUES (1, 'a');
SELECT idem_attach('fi3', 'fi_parts', 'state', history => true);
RESET ROLE;
SELECT table_name, row_key, event FROM fi_timer WHERE table_name ~ 'fi_parts';
DROP TABLE fi_parts;

-- what a state is decides what time takes out of it, too: final, frozen, re-entered
SET ROLE regress_idem_fill_owner;
SELECT idem_define('fi4', $$stateDiagram-v2
	[*] --> a
	a --> f : go
	a --> a : beat after 1 hour
	z --> f : go
	[*] --> z
	z --> a : back after 2 hours
	[any] --> x : purge after 1 day
	x --> [*]
	f --> [*]
	note right of z : frozen
$$);
CREATE TABLE fi_kind (id int PRIMARY KEY, state text);
SELECT idem_attach('fi4', 'fi_kind', 'state', history => true);
INSERT INTO fi_kind VALUES (1, 'a'), (2, 'a'), (3, 'z');
UPDATE fi_kind SET state = 'f' WHERE id = 2;
RESET ROLE;
SELECT row_key, state, event, after FROM fi_timer WHERE table_name = 'fi_kind';
SET ROLE regress_idem_fill_owner;
SELECT idem_define('fi4', $$stateDiagram-v2
	[*] --> a
	a --> f : go
	a --> a : beat after 1 hour
	z --> f : go
	[*] --> z
	z --> a : back after 2 hours
	[any] --> x : purge after 1 day
	x --> [*]
	note right of a : reenter
$$);
RESET ROLE;
SELECT * FROM idem_tick();
SELECT row_key, state, event, after FROM fi_timer WHERE table_name = 'fi_kind';
-- what leaves fewer timers wants no look
DELETE FROM idem.timer WHERE machine = 'fi4';
SET ROLE regress_idem_fill_owner;
SELECT idem_define('fi4', $$stateDiagram-v2
	[*] --> a
	a --> f : go
	z --> f : go
	[*] --> z
	z --> a : back after 2 hours
	[any] --> x : purge after 1 day
	x --> [*]
	f --> [*]
	note right of z : frozen
$$);
RESET ROLE;
SELECT row_key, state, event, after FROM fi_timer WHERE table_name = 'fi_kind';
-- by hand
SET ROLE regress_idem_fill_owner;
UPDATE idem.state SET final = false WHERE machine = 'fi4' AND name = 'f';
UPDATE idem.state SET frozen = false WHERE machine = 'fi4' AND name = 'z';
RESET ROLE;
SELECT * FROM idem_tick();
SELECT row_key, state, event, after FROM fi_timer WHERE table_name = 'fi_kind';
DELETE FROM idem.timer WHERE machine = 'fi4';
SET ROLE regress_idem_fill_owner;
UPDATE idem.transition SET to_state = 'f' WHERE machine = 'fi4' AND event = 'back';
RESET ROLE;
SELECT event, count(*) FROM fi_timer WHERE table_name = 'fi_kind' GROUP BY 1;
DROP TABLE fi_kind;

-- what is no state is left along wildcards, NULL is not
SET ROLE regress_idem_fill_owner;
CREATE TABLE fi_strange (id int PRIMARY KEY, state text);
INSERT INTO fi_strange VALUES (1, 'Old'), (2, NULL), (3, 'a'), (4, 'x');
SELECT idem_attach('fi4', 'fi_strange', 'state', history => true, accept_existing => true);
RESET ROLE;
SELECT * FROM idem_tick();
SELECT row_key, state, event, after FROM fi_timer WHERE table_name = 'fi_strange';
SELECT fi_pass('2 days');
SELECT row_key, event, outcome FROM idem_tick() WHERE table_name = 'public.fi_strange' ORDER BY row_key;
SELECT * FROM fi_strange ORDER BY id;
DROP TABLE fi_strange;

DROP VIEW fi_timer;
DROP FUNCTION fi_pass;
DROP TABLE fi_none, fi_t, fi_bad, fi_plain, fi_type, fi_p, fi_parent, fi_child;
DROP FUNCTION fi_policy;
DROP DOMAIN fi_domain;
DROP TYPE fi_enum;
DELETE FROM idem.timer WHERE machine LIKE 'fi%';
ALTER TABLE idem.history DISABLE TRIGGER protected_row;
DELETE FROM idem.history WHERE machine LIKE 'fi%';
ALTER TABLE idem.history ENABLE TRIGGER protected_row;
DELETE FROM idem.machine WHERE name LIKE 'fi%';
SELECT idem_revoke('regress_idem_fill_owner');
REVOKE ALL ON SCHEMA public FROM regress_idem_fill_owner;
DROP ROLE regress_idem_fill_owner;
