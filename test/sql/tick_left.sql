-- What a row's triggers leave to the end of the transaction is that row's error
-- in idem_tick(), and no other's.

SET client_min_messages = warning;
CREATE ROLE regress_idem_left_evil;
CREATE ROLE regress_idem_left_good;
SELECT idem_grant('regress_idem_left_evil', 'operator'), idem_grant('regress_idem_left_good', 'operator');
SELECT idem_define('left', E'stateDiagram-v2\n[*] --> a\na --> b : late after 0s');
CREATE SCHEMA le AUTHORIZATION regress_idem_left_evil;
CREATE SCHEMA lg AUTHORIZATION regress_idem_left_good;
SET ROLE regress_idem_left_good;
CREATE TABLE lg.t (id int PRIMARY KEY, s text);
SELECT idem_attach('left', 'lg.t', 's', history => true);
SET ROLE regress_idem_left_evil;
CREATE TABLE le.t (id int PRIMARY KEY, s text);
SELECT idem_attach('left', 'le.t', 's', history => true);
CREATE FUNCTION le.f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM public.idem_claim('left'); RETURN new; END $$;
CREATE TRIGGER f BEFORE UPDATE ON le.t FOR EACH ROW EXECUTE FUNCTION le.f();

-- a claim that nobody ends
INSERT INTO le.t VALUES (1, 'a');
SET ROLE regress_idem_left_good;
INSERT INTO lg.t VALUES (1, 'a');
RESET ROLE;
UPDATE idem.timer SET due = now() - '1 min'::interval, tries = -5 WHERE machine = 'left';
SELECT * FROM idem_tick() ORDER BY table_name;
SELECT table_schema, tries FROM idem.timer WHERE machine = 'left';
SELECT e.s AS evil, g.s AS good FROM le.t AS e, lg.t AS g;
-- ... beside one that the caller will end
BEGIN;
SELECT outcome FROM idem_claim('of the caller');
UPDATE idem.timer SET due = now() - '1 min'::interval WHERE machine = 'left';
SELECT * FROM idem_tick();
SELECT key FROM idem_unfinished();
SELECT idem_complete('of the caller');
COMMIT;
SELECT idem_forget('of the caller', force => true);

-- a row that is proven at the end of the transaction
SET ROLE regress_idem_left_evil;
CREATE TABLE le.n (x int);
INSERT INTO le.n VALUES (0);
CREATE FUNCTION le.chk(int) RETURNS bool LANGUAGE plpgsql AS $$
DECLARE
	r int;
BEGIN
	UPDATE le.n SET x = x + 1 RETURNING x INTO r;
	RETURN r <= 1;
END $$;
SELECT idem_define('left2', E'stateDiagram-v2\n[*] --> a\na --> b : go [le.chk(new.id)]');
CREATE TABLE le.xp (id int, s text, q int);
CREATE TABLE le.xc (id int PRIMARY KEY, s text, q int);
SELECT idem_attach('left2', 'le.xc', 's');
CREATE FUNCTION le.change() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN new.q := 7; RETURN new; END $$;
CREATE TRIGGER "~~l" BEFORE UPDATE ON le.xc FOR EACH ROW EXECUTE FUNCTION le.change();
ALTER TABLE le.xc INHERIT le.xp;
INSERT INTO le.xc VALUES (1, 'a');
CREATE OR REPLACE FUNCTION le.f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN UPDATE le.xp SET s = 'b' WHERE s = 'a'; RETURN new; END $$;
SET ROLE regress_idem_left_good;
INSERT INTO lg.t VALUES (2, 'a');
RESET ROLE;
UPDATE idem.timer SET due = now() - '1 min'::interval WHERE machine = 'left';
SELECT * FROM idem_tick() ORDER BY table_name;
SELECT e.s AS evil, x.s AS child, g.s AS good FROM le.t AS e, le.xc AS x, lg.t AS g WHERE g.id = 2;

-- the proof is under the path that the row was written under
CREATE FUNCTION le.moved() RETURNS void LANGUAGE sql SET search_path = pg_catalog, le, pg_temp AS $$ UPDATE xp SET s = 'b' $$;
CREATE OR REPLACE FUNCTION le.chk(int) RETURNS bool LANGUAGE plpgsql AS $$ BEGIN RETURN EXISTS (SELECT FROM n); END $$;
BEGIN;
SELECT le.moved();
COMMIT;
SELECT s FROM le.xc;

-- keys that are none
UPDATE idem.timer SET due = now() - '1 min'::interval, row_key = '[1]' WHERE machine = 'left';
SELECT * FROM idem_tick();
SELECT row_key, event FROM idem.timer WHERE machine = 'left';

-- what the owner of idem.timer has put on it
GRANT USAGE ON SCHEMA le TO PUBLIC;
BEGIN;
ALTER TABLE idem.timer OWNER TO regress_idem_left_evil;
CREATE SEQUENCE le.as_another;
GRANT USAGE ON SEQUENCE le.as_another TO PUBLIC;
CREATE FUNCTION le.pol(text) RETURNS bool LANGUAGE plpgsql AS $$
BEGIN
	IF CURRENT_USER <> 'regress_idem_left_evil' THEN
		PERFORM nextval('le.as_another');
	END IF;
	RETURN true;
END $$;
INSERT INTO lg.t VALUES (3, 'a');
INSERT INTO idem.timer (machine, table_schema, table_name, binding, row_hash, row_key, state, event, since, due)
SELECT machine, table_schema, table_name, binding, 0, '{"x": 1}', '', '', now(), now() FROM idem.timer WHERE table_schema = 'lg' LIMIT 1;
CREATE POLICY p ON idem.timer USING (le.pol(event));
ALTER TABLE idem.timer ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
SELECT table_name, outcome FROM idem_tick();
SELECT is_called FROM le.as_another;
ROLLBACK;

-- a partition of somebody else's: his triggers would run as the owner of the root
SET ROLE regress_idem_left_good;
CREATE TABLE lg.p (id int PRIMARY KEY, s text) PARTITION BY RANGE (id);
CREATE TABLE lg.p1 PARTITION OF lg.p DEFAULT;
SELECT idem_attach('left', 'lg.p', 's', history => true);
INSERT INTO lg.p VALUES (1, 'a');
RESET ROLE;
ALTER TABLE lg.p1 OWNER TO regress_idem_left_evil;
SELECT table_name, outcome FROM idem_tick();
SELECT s FROM lg.p;
ALTER TABLE lg.p1 OWNER TO CURRENT_USER;
UPDATE idem.timer SET due = now() - '1 min'::interval WHERE machine = 'left';
SELECT table_name, outcome FROM idem_tick();
SELECT s FROM lg.p;

-- types made in the temporary schema would mislead the next owner, and keep the
-- session from his tables; newer minor releases of PostgreSQL let nobody make them
DROP TRIGGER f ON le.t;
DELETE FROM idem.timer WHERE machine = 'left';
SET ROLE regress_idem_left_evil;
CREATE FUNCTION le.makes() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN CREATE DOMAIN pg_temp.amount AS int; RETURN NULL; END $$;
CREATE TRIGGER makes AFTER UPDATE ON le.t FOR EACH ROW EXECUTE FUNCTION le.makes();
INSERT INTO le.t VALUES (8, 'a');
RESET ROLE;
UPDATE idem.timer SET due = now() - '1 min'::interval WHERE machine = 'left';
\set VERBOSITY terse
SELECT row_key, outcome, pg_my_temp_schema() FROM idem_tick();
\set VERBOSITY default
SELECT s, pg_my_temp_schema() FROM le.t WHERE id = 8;
-- also in a session that has such ones already; others' rows go on
BEGIN;
CREATE DOMAIN pg_temp.mine AS int;
INSERT INTO lg.t VALUES (8, 'a');
UPDATE idem.timer SET due = now() - '1 min'::interval * CASE table_schema WHEN 'le' THEN 2 ELSE 1 END WHERE machine = 'left';
SET LOCAL client_min_messages = error;
SELECT table_name, row_key, outcome FROM idem_tick();
SELECT 'le' AS t, s FROM le.t WHERE id = 8 UNION ALL SELECT 'lg', s FROM lg.t WHERE id = 8 ORDER BY t;
ROLLBACK;
CREATE OR REPLACE FUNCTION le.makes() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN CREATE FUNCTION pg_temp.f() RETURNS int LANGUAGE sql AS 'SELECT 1'; RETURN NULL; END $$;
BEGIN;
CREATE DOMAIN pg_temp.mine AS int;
UPDATE idem.timer SET due = now() - '1 min'::interval WHERE machine = 'left' AND table_schema = 'le';
SET LOCAL client_min_messages = error;
SELECT table_name, row_key, outcome FROM idem_tick();
ROLLBACK;
DROP TRIGGER makes ON le.t;

-- a session with temporary objects of another's leaves the timer as it is, unlocked,
-- and has time for others
DELETE FROM idem.timer WHERE machine = 'left';
INSERT INTO lg.t VALUES (9, 'a'), (10, 'a');
INSERT INTO le.t VALUES (9, 'a');
UPDATE idem.timer SET due = now() - '1 min'::interval - (row_key ->> 'id')::int * '1 s'::interval WHERE machine = 'left' AND table_schema = 'lg';
SET ROLE regress_idem_left_evil;
CREATE TEMP TABLE misleading (a int);
SELECT * FROM idem_tick(1);
RESET ROLE;
SELECT table_schema, row_key, due < now(), tries, xmax FROM idem.timer WHERE machine = 'left' ORDER BY row_key;
DROP TABLE misleading;
SELECT table_name, outcome FROM idem_tick();

-- a row that another machine has frozen is tried again: that may end
SELECT idem_define('leftice', E'stateDiagram-v2\n[*] --> open\nopen --> shut : shut\nnote right of shut : frozen');
SET ROLE regress_idem_left_good;
CREATE TABLE lg.ice (id int PRIMARY KEY, s text DEFAULT 'a', lock text DEFAULT 'open');
SELECT idem_attach('left', 'lg.ice', 's', history => true), idem_attach('leftice', 'lg.ice', 'lock');
INSERT INTO lg.ice VALUES (1);
UPDATE lg.ice SET lock = 'shut';
RESET ROLE;
SELECT * FROM idem_tick();
SELECT state, event, due > now() AS later FROM idem.timer WHERE table_name = 'ice';

-- history of another table that had the name
SET ROLE regress_idem_left_good;
ALTER TABLE lg.t RENAME TO former;
CREATE TABLE lg.t (id int PRIMARY KEY);
SELECT to_state FROM idem_history('lg.t', 1);
RESET ROLE;
CREATE ROLE regress_idem_left_app;
SELECT idem_grant('regress_idem_left_app');
ALTER TABLE lg.t OWNER TO regress_idem_left_app;
GRANT USAGE ON SCHEMA lg TO regress_idem_left_app;
SET ROLE regress_idem_left_app;
SELECT to_state FROM idem_history('lg.t', 1);
RESET ROLE;

DROP SCHEMA le, lg CASCADE;
DELETE FROM idem.timer WHERE machine = 'left';
DELETE FROM idem.machine WHERE name LIKE 'left%';
SELECT idem_revoke('regress_idem_left_app'), idem_revoke('regress_idem_left_evil'), idem_revoke('regress_idem_left_good');
DROP ROLE regress_idem_left_app, regress_idem_left_evil, regress_idem_left_good;
