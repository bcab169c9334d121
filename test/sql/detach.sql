-- idem_detach: whose triggers a column's name stands for.

\set SHOW_CONTEXT never
CREATE ROLE regress_idem_detach;
SELECT idem_grant('regress_idem_detach', 'operator');
CREATE SCHEMA regress_idem_detach AUTHORIZATION regress_idem_detach;
SET ROLE regress_idem_detach;
SET search_path = regress_idem_detach, public;
CREATE VIEW left_behind AS
	SELECT tgrelid::regclass AS table_name, string_agg(tgname, ' ' ORDER BY tgname COLLATE "C") AS triggers
	FROM pg_trigger WHERE tgname LIKE '_idem%' GROUP BY 1;

SELECT idem_define('dt', 'stateDiagram-v2
	[*] --> a
	a --> b : go after 1 day');

-- a name that only begins, or once was, that of a column which is attached
CREATE TABLE dt (id int PRIMARY KEY, status text DEFAULT 'a', st text DEFAULT 'a', st_2 text DEFAULT 'a');
SELECT idem_attach('dt', 'dt', 'status', history => true);
INSERT INTO dt VALUES (1);
SELECT idem_detach('dt', 'st');
SELECT idem_detach('dt', 'stat');
SELECT idem_detach('dt', '');
ALTER TABLE dt RENAME status TO state;
SELECT idem_detach('dt', 'status');
SELECT idem_attach('dt', 'dt', 'st', history => true);
SELECT idem_attach('dt', 'dt', 'st_2', history => true);
SELECT idem_detach('dt', 's');
UPDATE dt SET state = 'c';
SELECT machine, column_name FROM idem.binding WHERE table_name = 'dt'::regclass ORDER BY 2;
-- two columns change their names
ALTER TABLE dt RENAME st TO status;
ALTER TABLE dt RENAME state TO st;
SELECT idem_detach('dt', 'status');
SELECT column_name FROM idem.binding WHERE table_name = 'dt'::regclass ORDER BY 1;
SELECT idem_detach('dt', 'st');
SELECT column_name FROM idem.binding WHERE table_name = 'dt'::regclass ORDER BY 1;
SELECT idem_detach('dt', 'st_2');
SELECT * FROM left_behind;
DROP TABLE dt;

-- what is left of a column that is gone has the name that it was attached by
CREATE TABLE dt (id int PRIMARY KEY, status text DEFAULT 'a', x int);
SELECT idem_attach('dt', 'dt', 'status', history => true);
ALTER TABLE dt RENAME status TO state;
ALTER TABLE dt DROP state CASCADE;
SELECT * FROM left_behind;
INSERT INTO dt VALUES (1);
UPDATE dt SET x = 1;
SELECT idem_detach('dt', 'state');
ALTER TABLE dt ADD other text DEFAULT 'a';
SELECT idem_attach('dt', 'dt', 'other', history => true);
SELECT idem_detach('dt', 'state');
-- which is nothing to the rows of another
INSERT INTO dt VALUES (2);
UPDATE dt SET other = 'b' WHERE id = 2;
SELECT row_key, from_state, to_state FROM idem_history('dt', 2);
SELECT idem_detach('dt', 'status');
SELECT * FROM left_behind;
-- a trigger that was lost in another way
BEGIN;
DROP TRIGGER "~idem_other" ON dt;
INSERT INTO dt VALUES (3);
ROLLBACK;
SELECT idem_detach('dt', 'other');
-- it goes along with that of another column of the same name
ALTER TABLE dt ADD status text DEFAULT 'a';
SELECT idem_attach('dt', 'dt', 'status', history => true);
ALTER TABLE dt DROP status CASCADE;
ALTER TABLE dt ADD status text DEFAULT 'a';
SELECT idem_attach('dt', 'dt', 'status', history => true);
SELECT idem_detach('dt', 'status');
SELECT * FROM left_behind;
INSERT INTO dt VALUES (3);
DROP TABLE dt;

-- what is left is written while a row of another table is still to be proven
CREATE TABLE dt (id int PRIMARY KEY, state text DEFAULT 'a', x int);
CREATE TABLE dt_late (id int PRIMARY KEY, state text DEFAULT 'a', x int);
SELECT idem_define('dt plain', 'stateDiagram-v2
	[*] --> a
	a --> b : go');
SELECT idem_attach('dt plain', t, 'state') FROM unnest('{dt, dt_late}'::regclass[]) AS t;
INSERT INTO dt VALUES (1);
INSERT INTO dt_late VALUES (1);
CREATE FUNCTION dt_late() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN UPDATE dt SET x = new.id; RETURN new; END$$;
CREATE TRIGGER "~~late" BEFORE UPDATE ON dt_late FOR EACH ROW EXECUTE FUNCTION dt_late();
ALTER TABLE dt DROP state CASCADE;
UPDATE dt_late SET state = 'b';
TABLE dt;
DROP TABLE dt, dt_late;

-- a child that was attached by itself before it inherited stays attached
CREATE TABLE dt (id int PRIMARY KEY, state text DEFAULT 'a');
CREATE TABLE dt_given (PRIMARY KEY (id)) INHERITS (dt);
CREATE TABLE dt_own (id int PRIMARY KEY, state text DEFAULT 'a');
SELECT idem_attach('dt', 'dt', 'state', history => true);
SELECT idem_attach('dt', 'dt_own', 'state', history => true);
ALTER TABLE dt_own INHERIT dt;
INSERT INTO dt_own VALUES (1);
SELECT idem_detach('dt_given', 'state');
SELECT idem_detach('dt', 'state');
SELECT * FROM left_behind;
SELECT count(*) FROM idem.timer WHERE table_name = 'dt_own';
UPDATE dt_own SET state = 'c';
SELECT idem_detach('dt_own', 'state');
SELECT count(*) FROM idem.timer WHERE table_name = 'dt_own';
DROP TABLE dt CASCADE;

-- char(n) holds no state whose name ends in a blank
RESET ROLE;
INSERT INTO idem.machine (name) VALUES ('dt blank');
INSERT INTO idem.state (machine, name, initial) VALUES ('dt blank', 'x ', true), ('dt blank', 'y', true);
SET ROLE regress_idem_detach;
CREATE DOMAIN dt_domain AS char(4);
CREATE TABLE dt (id int PRIMARY KEY, c char(4) DEFAULT 'y', d dt_domain DEFAULT 'y', t text DEFAULT 'x ', v varchar(4) DEFAULT 'x ');
SELECT idem_attach('dt blank', 'dt', 'c'), idem_attach('dt blank', 'dt', 'd'),
	idem_attach('dt blank', 'dt', 't'), idem_attach('dt blank', 'dt', 'v');
INSERT INTO dt (id, c) VALUES (1, 'x');
INSERT INTO dt (id, d) VALUES (1, 'x ');
INSERT INTO dt (id, t) VALUES (1, 'x');
INSERT INTO dt (id, v) VALUES (1, 'x');
INSERT INTO dt (id) VALUES (1);
SELECT * FROM idem_verify('dt');

RESET ROLE;
RESET search_path;
SET client_min_messages = warning;
DROP SCHEMA regress_idem_detach CASCADE;
DELETE FROM idem.machine WHERE name ~ '^dt';
SELECT idem_revoke('regress_idem_detach');
DROP ROLE regress_idem_detach;
