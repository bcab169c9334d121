-- Timed transitions: what is due is fired, as the table's owner, once.

\set SHOW_CONTEXT never
SET client_min_messages = error;
CREATE ROLE regress_idem_tick_owner;
CREATE ROLE regress_idem_tick_none;
SELECT idem_grant('regress_idem_tick_owner', 'operator');
GRANT CREATE, USAGE ON SCHEMA public TO regress_idem_tick_owner;
INSERT INTO idem.machine (name) VALUES ('ti');
INSERT INTO idem.state (machine, name, initial, final, self) VALUES
	('ti', 'draft', true, false, 'noop'), ('ti', 'pending', false, false, 'reenter'),
	('ti', 'expired', false, true, 'noop'), ('ti', 'done', false, true, 'noop');
INSERT INTO idem.transition (machine, event, from_state, to_state, priority, guard, roles, after) VALUES
	('ti', 'submit', 'draft', 'pending', 1, NULL, NULL, NULL),
	('ti', 'finish', 'pending', 'done', 2, NULL, NULL, NULL),
	('ti', 'again', 'pending', 'pending', 3, NULL, NULL, NULL),
	('ti', 'expire', 'pending', 'expired', 4, '10 / new.n > 1', '{regress_idem_tick_none}', '30 min'),
	('ti', 'forget', '*', 'expired', 5, NULL, NULL, '1 year');

SET ROLE regress_idem_tick_owner;
-- a machine with timed transitions needs a history
CREATE TABLE ti_t (id int PRIMARY KEY, state text NOT NULL DEFAULT 'draft', n int DEFAULT 1, version int NOT NULL DEFAULT 1);
SELECT idem_attach('ti', 'ti_t', 'state');
SELECT idem_attach('ti', 'ti_t', 'state', history => true, events_only => true), idem_attach_version('ti_t', 'version', strict => true);
INSERT INTO ti_t (id) SELECT generate_series(1, 8);
RESET ROLE;
CREATE VIEW ti_timer AS SELECT table_name, row_key, state, event, date_trunc('minute', due - since) AS after, tries FROM idem.timer WHERE machine = 'ti' ORDER BY table_name, row_key, event;
SELECT * FROM ti_timer WHERE row_key < '{"id": 3}';
SELECT outcome, count(*) FROM idem_fire_many('ti_t', ARRAY(SELECT generate_series(1, 7)), 'submit') GROUP BY 1;
SELECT * FROM ti_timer WHERE row_key < '{"id": 3}';
SELECT count(*) FROM idem_tick();
-- the time comes
CREATE FUNCTION ti_pass(span interval) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	UPDATE idem.timer SET since = since - span, due = due - span WHERE machine = 'ti';
	ALTER TABLE idem.history DISABLE TRIGGER protected;
	UPDATE idem.history SET at = at - span WHERE machine = 'ti';
	ALTER TABLE idem.history ENABLE TRIGGER protected;
END $$;
-- entering the state anew begins anew
SELECT ti_pass('20 min');
SELECT outcome FROM idem_fire('ti_t', 2, 'again');
SELECT ti_pass('15 min');
SELECT outcome FROM idem_fire('ti_t', 3, 'finish');
UPDATE ti_t SET n = 0, version = version WHERE id = 4;
UPDATE ti_t SET n = 10, version = version WHERE id = 5;
DELETE FROM ti_t WHERE id = 6;
ALTER TABLE ti_t DISABLE TRIGGER USER;
UPDATE ti_t SET state = 'draft' WHERE id = 7;
ALTER TABLE ti_t ENABLE TRIGGER USER;
SELECT * FROM idem_tick(0);
SELECT * FROM idem_tick(1);
SELECT * FROM idem_tick() ORDER BY row_key;
SELECT * FROM idem_tick();
SELECT * FROM ti_timer;
SELECT id, state, version FROM ti_t ORDER BY id;
SELECT event, from_state, to_state, version, nullif(role_name, CURRENT_USER) AS other_role FROM idem_history('ti_t', 1);
-- what failed is tried again, at growing intervals
SELECT row_key, due - clock_timestamp() BETWEEN '50 s' AND '60 s' AS soon FROM idem.timer WHERE tries > 0 AND machine = 'ti' ORDER BY row_key;
UPDATE ti_t SET n = 1, version = version WHERE id = 4;
SELECT ti_pass('2 min');
SELECT * FROM idem_tick() ORDER BY row_key;
SELECT row_key, due - clock_timestamp() BETWEEN '110 s' AND '120 s' AS later FROM idem.timer WHERE tries > 1 AND machine = 'ti';

-- the definition counts that stands when the time comes
UPDATE idem.transition SET after = '2 hours' WHERE machine = 'ti' AND event = 'expire';
SELECT ti_pass('30 min');
SELECT row_key, outcome FROM idem_tick();
SELECT row_key, event, after, tries FROM ti_timer WHERE event = 'expire';
UPDATE idem.transition SET after = NULL WHERE machine = 'ti' AND event = 'expire';
SELECT ti_pass('3 hours');
SELECT row_key, event, outcome FROM idem_tick() ORDER BY row_key;

-- as nobody but the owner: neither who calls nor a superuser
UPDATE idem.transition SET after = '0 s' WHERE machine = 'ti' AND event = 'forget';
CREATE TABLE ti_super (id int PRIMARY KEY, state text NOT NULL DEFAULT 'draft', n int DEFAULT 1);
SELECT idem_attach('ti', 'ti_super', 'state', history => true);
SET ROLE regress_idem_tick_owner;
CREATE TABLE ti_owner (id int PRIMARY KEY, state text NOT NULL DEFAULT 'draft', n int DEFAULT 1, who name);
SELECT idem_attach('ti', 'ti_owner', 'state', history => true);
CREATE FUNCTION ti_who() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	new.who := CURRENT_USER;
	PERFORM set_config('search_path', 'pg_temp', false);
	IF new.id = 2 THEN
		CREATE TEMP TABLE ti_temp (i int);
	END IF;
	IF new.id = 3 THEN
		SET ROLE NONE;
	END IF;
	RETURN new;
END $$;
CREATE TRIGGER who BEFORE UPDATE ON ti_owner FOR EACH ROW EXECUTE FUNCTION ti_who();
INSERT INTO ti_owner (id) VALUES (1), (2), (3);
RESET ROLE;
INSERT INTO ti_super (id) VALUES (1);
SELECT * FROM idem_tick() ORDER BY table_name, row_key;
SELECT id, state, who FROM ti_owner ORDER BY id;
SHOW search_path;
SELECT CURRENT_USER = SESSION_USER AS same;
SELECT * FROM idem_tick();
SET ROLE regress_idem_tick_none;
SELECT * FROM idem_tick();
RESET ROLE;
BEGIN READ ONLY;
SELECT * FROM idem_tick();
ROLLBACK;
-- a table that is gone
SELECT ti_pass('1 day');
DROP TABLE ti_super, ti_owner;
SELECT table_name, row_key, outcome FROM idem_tick() ORDER BY table_name, row_key;

-- partitioned by the state
SET ROLE regress_idem_tick_owner;
CREATE TABLE ti_p (id int, state text NOT NULL DEFAULT 'draft', n int, PRIMARY KEY (id, state)) PARTITION BY LIST (state);
CREATE TABLE ti_p1 PARTITION OF ti_p FOR VALUES IN ('draft');
CREATE TABLE ti_p2 PARTITION OF ti_p DEFAULT;
SELECT idem_attach('ti', 'ti_p', 'state', history => true);
INSERT INTO ti_p VALUES (1, 'draft', 1), (2, 'draft', 1);
UPDATE ti_p SET state = 'pending' WHERE id = 2;
RESET ROLE;
SELECT * FROM ti_timer WHERE table_name = 'ti_p';
SELECT table_name, row_key, event, outcome FROM idem_tick() ORDER BY row_key;
SELECT * FROM ti_timer WHERE table_name = 'ti_p';
SELECT row_key, event, from_state, to_state FROM idem.history WHERE table_name = 'ti_p' ORDER BY seq;

-- what a table's owner raises does not stop the timers of others, whatever it says
SET ROLE regress_idem_tick_owner;
CREATE TABLE ti_bad (id int PRIMARY KEY, state text NOT NULL DEFAULT 'draft', n int DEFAULT 1);
CREATE TABLE ti_good (id int PRIMARY KEY, state text NOT NULL DEFAULT 'draft', n int DEFAULT 1);
SELECT idem_attach('ti', 'ti_bad', 'state', history => true), idem_attach('ti', 'ti_good', 'state', history => true);
CREATE FUNCTION ti_raise() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF new.id = 4 THEN
		PERFORM idem_tick();
	ELSE
		RAISE EXCEPTION 'raised' USING ERRCODE = (ARRAY['53100', '57014', '57P01'])[new.id];
	END IF;
	RETURN new;
END $$;
INSERT INTO ti_bad SELECT generate_series(1, 4);
INSERT INTO ti_good VALUES (1);
UPDATE ti_bad SET state = 'pending';
UPDATE ti_good SET state = 'pending';
CREATE TRIGGER raises BEFORE UPDATE ON ti_bad FOR EACH ROW EXECUTE FUNCTION ti_raise();
RESET ROLE;
UPDATE idem.timer SET due = '2000-01-01'::timestamptz + (row_key ->> 'id')::int * interval '1 min' WHERE table_name = 'ti_bad';
SELECT ti_pass('35 min');
UPDATE ti_good SET n = 2;
SET client_min_messages = warning;
SELECT table_name, row_key, event, outcome FROM idem_tick() WHERE table_name ~ 'ti_(bad|good)';
SET client_min_messages = error;
SELECT row_key, state, tries FROM ti_timer WHERE table_name = 'ti_bad' ORDER BY row_key;
DROP TABLE ti_bad, ti_good;
DROP FUNCTION ti_raise;

-- a row that its table's owner does not see is not gone
DELETE FROM idem.timer WHERE machine = 'ti';
SET ROLE regress_idem_tick_owner;
CREATE TABLE ti_rls (id int PRIMARY KEY, state text NOT NULL DEFAULT 'draft', n int DEFAULT 1);
SELECT idem_attach('ti', 'ti_rls', 'state', history => true);
INSERT INTO ti_rls VALUES (1);
UPDATE ti_rls SET state = 'pending';
CREATE POLICY none ON ti_rls USING (id = 0);
ALTER TABLE ti_rls ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
RESET ROLE;
SELECT ti_pass('35 min');
SELECT * FROM idem_tick();
SELECT * FROM ti_timer;
SET ROLE regress_idem_tick_owner;
ALTER TABLE ti_rls NO FORCE ROW LEVEL SECURITY;
RESET ROLE;
SELECT ti_pass('2 min');
SELECT * FROM idem_tick();
-- a row that gets another key takes its timers along, also into another partition
SET ROLE regress_idem_tick_owner;
CREATE TABLE ti_key (id int PRIMARY KEY, state text NOT NULL DEFAULT 'draft', n int DEFAULT 1);
CREATE TABLE ti_part (id int, k int, state text NOT NULL DEFAULT 'draft', n int DEFAULT 1, PRIMARY KEY (id, k)) PARTITION BY LIST (k);
CREATE TABLE ti_part1 PARTITION OF ti_part FOR VALUES IN (1);
CREATE TABLE ti_part2 PARTITION OF ti_part DEFAULT;
SELECT idem_attach('ti', 'ti_key', 'state', history => true), idem_attach('ti', 'ti_part', 'state', history => true);
INSERT INTO ti_key VALUES (1), (2);
INSERT INTO ti_part VALUES (1, 1), (2, 2);
UPDATE ti_key SET state = 'pending';
UPDATE ti_part SET state = 'pending';
RESET ROLE;
SELECT ti_pass('20 min');
UPDATE ti_key SET id = 10 WHERE id = 1;
UPDATE ti_part SET k = 2 WHERE id = 1;
UPDATE ti_part SET k = 3 WHERE id = 2;
SELECT * FROM ti_timer WHERE table_name ~ 'ti_(key|part)';
SELECT ti_pass('15 min');
SELECT * FROM idem_tick() ORDER BY table_name, row_key;
SELECT * FROM ti_timer;
-- a key that is JSON itself; what has the name of a table that was dropped; a temporary table
SET ROLE regress_idem_tick_owner;
DROP TABLE ti_key;
CREATE TABLE ti_key (id jsonb PRIMARY KEY, state text NOT NULL DEFAULT 'draft', n int DEFAULT 1);
CREATE TABLE ti_gone (id int PRIMARY KEY, state text NOT NULL DEFAULT 'draft', n int DEFAULT 1);
SELECT idem_attach('ti', 'ti_key', 'state', history => true), idem_attach('ti', 'ti_gone', 'state', history => true);
INSERT INTO ti_key VALUES ('1'), ('[1, 2]'), ('{"id": 5}'), ('"x"');
INSERT INTO ti_gone VALUES (1);
DROP TABLE ti_gone;
CREATE TYPE ti_gone AS (a int);
RESET ROLE;
CREATE TEMP TABLE ti_temp (id int PRIMARY KEY, state text NOT NULL DEFAULT 'draft', n int DEFAULT 1);
SELECT idem_attach('ti', 'ti_temp', 'state', history => true);
INSERT INTO ti_temp VALUES (1);
SELECT ti_pass('1 year');
SELECT * FROM idem_tick() ORDER BY table_name, row_key;
SELECT id, state FROM ti_key ORDER BY id;
DROP TYPE ti_gone;
DROP TABLE ti_temp;
-- a table that was dropped has left timers; the next one of its name begins anew
SET ROLE regress_idem_tick_owner;
DROP TABLE ti_rls, ti_key, ti_part;
CREATE TABLE ti_key (id int PRIMARY KEY, state text NOT NULL DEFAULT 'draft', n int DEFAULT 1);
SELECT idem_attach('ti', 'ti_key', 'state', history => true);
INSERT INTO ti_key VALUES (1);
UPDATE ti_key SET state = 'pending';
RESET ROLE;
SELECT ti_pass('20 min');
SET ROLE regress_idem_tick_owner;
DROP TABLE ti_key;
CREATE TABLE ti_key (id int PRIMARY KEY, state text NOT NULL DEFAULT 'pending', n int DEFAULT 1);
INSERT INTO ti_key VALUES (1);
SELECT idem_attach('ti', 'ti_key', 'state', history => true);
RESET ROLE;
SELECT * FROM ti_timer;
DELETE FROM idem.timer WHERE table_name = 'ti_key';
-- a step is passed by the first that moved the row on, though a later one fails
SET ROLE regress_idem_tick_owner;
CREATE FUNCTION ti_on(i int) RETURNS bool LANGUAGE plpgsql AS $$
BEGIN
	IF i = 2 THEN
		BEGIN UPDATE ti_key SET state = 'pending', n = 2 WHERE id = 1; EXCEPTION WHEN division_by_zero THEN NULL; END;
		BEGIN UPDATE ti_key SET state = 'done' WHERE id = 1; PERFORM 1 / 0; EXCEPTION WHEN division_by_zero THEN NULL; END;
	END IF;
	RETURN true;
END$$;
RESET ROLE;
INSERT INTO idem.state (machine, name) VALUES ('ti', 'queued');
INSERT INTO idem.transition (machine, event, from_state, to_state, priority) VALUES ('ti', 'queue', 'draft', 'queued', 6), ('ti', 'take', 'queued', 'pending', 7);
TRUNCATE ti_key;
INSERT INTO ti_key VALUES (1, 'draft'), (2, 'draft');
UPDATE ti_key SET state = 'queued' WHERE ti_on(id);
SELECT * FROM ti_key ORDER BY id;
SELECT * FROM ti_timer WHERE table_name ~ 'ti_(key|part)';
DROP TABLE ti_key;
DROP FUNCTION ti_on;

-- a trigger on the history moves rows on while they are written: their timers are
-- those of the last state, also of one whose move is undone
CREATE TABLE ti_on (id int PRIMARY KEY, state text NOT NULL DEFAULT 'draft', n int DEFAULT 1);
CREATE TABLE ti_on_part (LIKE ti_on INCLUDING ALL) PARTITION BY RANGE (id);
CREATE TABLE ti_on_part_1 PARTITION OF ti_on_part DEFAULT;
SELECT idem_attach('ti', 'ti_on', 'state', history => true), idem_attach('ti', 'ti_on_part', 'state', history => true);
CREATE FUNCTION ti_on() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('UPDATE public.%I SET state = ''done'' WHERE id = $1', NEW.table_name) USING (NEW.row_key ->> 'id')::int;
	IF NEW.row_key @> '{"id": 2}' THEN
		RAISE division_by_zero;
	END IF;
	RETURN NULL;
EXCEPTION WHEN division_by_zero THEN
	RETURN NULL;
END $$;
CREATE TRIGGER ti_on AFTER INSERT ON idem.history FOR EACH ROW
	WHEN (NEW.table_name ~ 'ti_on' AND NEW.to_state = 'pending' AND NEW.row_key < '{"id": 4}') EXECUTE FUNCTION ti_on();
INSERT INTO ti_on SELECT generate_series(1, 4);
INSERT INTO ti_on_part SELECT generate_series(1, 4);
UPDATE ti_on SET state = 'pending';
UPDATE ti_on_part SET state = 'pending';
SELECT * FROM ti_on ORDER BY id;
SELECT * FROM ti_timer WHERE table_name ~ 'ti_on';
DROP TRIGGER ti_on ON idem.history;
DROP TABLE ti_on, ti_on_part;
DROP FUNCTION ti_on;

DROP VIEW ti_timer;
DROP TABLE ti_t, ti_p;
DROP FUNCTION ti_pass, ti_who;
DELETE FROM idem.timer WHERE machine = 'ti';
ALTER TABLE idem.history DISABLE TRIGGER protected_row;
DELETE FROM idem.history WHERE machine = 'ti';
ALTER TABLE idem.history ENABLE TRIGGER protected_row;
DELETE FROM idem.machine WHERE name = 'ti';
SELECT idem_revoke('regress_idem_tick_owner');
REVOKE ALL ON SCHEMA public FROM regress_idem_tick_owner;
DROP ROLE regress_idem_tick_owner, regress_idem_tick_none;
