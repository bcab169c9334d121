-- Triggers that come after the guard: what they make of a row is proven.

\set SHOW_CONTEXT never

INSERT INTO idem.machine (name) VALUES ('gl');
INSERT INTO idem.state (machine, name, initial) VALUES
	('gl', 'a', true), ('gl', 'b', false), ('gl', 'c', false);
INSERT INTO idem.transition (machine, event, from_state, to_state, priority, guard) VALUES
	('gl', 'ab', 'a', 'b', 1, 'new.v < 100'), ('gl', 'bc', 'b', 'c', 2, NULL);
CREATE TABLE gl_t (id int PRIMARY KEY, state text, v int DEFAULT 0);
SELECT idem_attach('gl', 'gl_t', 'state');
INSERT INTO gl_t SELECT i, 'a' FROM generate_series(1, 9) AS i;

CREATE FUNCTION gl_later() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	CASE new.v
		WHEN 1 THEN new.state := 'c';
		WHEN 2 THEN new.state := 'b';
		WHEN 3 THEN new.v := 100;
		WHEN 4 THEN RETURN NULL;
		WHEN 5 THEN new.state := NULL;
		WHEN 6 THEN new.state := old.state;
		WHEN 7 THEN UPDATE gl_t SET v = 1 WHERE id = new.id + 1;
		WHEN 8 THEN
			BEGIN
				UPDATE gl_t SET v = 1 WHERE id = new.id + 1;
			EXCEPTION WHEN SQLSTATE 'ID409' THEN
				RAISE NOTICE '%', sqlerrm;
			END;
		ELSE NULL;
	END CASE;
	RETURN new;
END$$;
CREATE TRIGGER "~late" BEFORE UPDATE ON gl_t FOR EACH ROW EXECUTE FUNCTION gl_later();
UPDATE gl_t SET v = 1 WHERE id = 1;
UPDATE gl_t SET v = 1, state = 'b' WHERE id = 1;
UPDATE gl_t SET v = 2 WHERE id = 1;
UPDATE gl_t SET v = 3, state = 'b' WHERE id = 2;
UPDATE gl_t SET v = 4, state = 'b' WHERE id = 2;
UPDATE gl_t SET v = 5, state = 'b' WHERE id = 2;
UPDATE gl_t SET v = 6, state = 'b' WHERE id = 2;
UPDATE gl_t SET v = 7, state = 'b' WHERE id = 2;
UPDATE gl_t SET v = 8, state = 'b' WHERE id = 3;
UPDATE gl_t SET v = 9, state = 'b' WHERE id IN (4, 5, 6);
SELECT * FROM gl_t ORDER BY id;
-- of an upsert
INSERT INTO gl_t VALUES (7, 'a') ON CONFLICT (id) DO UPDATE SET v = 1;
INSERT INTO gl_t VALUES (7, 'a') ON CONFLICT (id) DO UPDATE SET v = 2;
-- a second update of the row by a trigger after
CREATE FUNCTION gl_again() RETURNS trigger LANGUAGE plpgsql AS
$$BEGIN UPDATE gl_t SET state = 'c', v = 20 WHERE id = new.id; RETURN NULL; END$$;
CREATE TRIGGER again AFTER UPDATE ON gl_t FOR EACH ROW WHEN (new.v = 19) EXECUTE FUNCTION gl_again();
UPDATE gl_t SET state = 'b', v = 19 WHERE id = 8;
UPDATE gl_t SET v = 19 WHERE id = 9;
SELECT * FROM gl_t WHERE id > 6 ORDER BY id;
-- a refusal rolled back leaves nothing to prove
BEGIN;
SAVEPOINT s;
UPDATE gl_t SET v = 1 WHERE id = 9;
ROLLBACK TO s;
UPDATE gl_t SET v = 0 WHERE id = 9;
COMMIT;
-- disabled, it changes nothing, and so is nothing
ALTER TABLE gl_t DISABLE TRIGGER "~late";
UPDATE gl_t SET v = 1 WHERE id = 9;
ALTER TABLE gl_t ENABLE TRIGGER "~late";
-- inserts: a later trigger, and one that drops the row
CREATE FUNCTION gl_insert() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN IF new.v = 1 THEN new.state := 'c'; ELSIF new.v = 2 THEN new.state := 'a'; ELSIF new.v = 4 THEN RETURN NULL; END IF; RETURN new; END$$;
CREATE TRIGGER "~late_insert" BEFORE INSERT ON gl_t FOR EACH ROW EXECUTE FUNCTION gl_insert();
INSERT INTO gl_t VALUES (20, 'a', 1);
INSERT INTO gl_t VALUES (20, 'c', 2), (21, 'c', 4);

-- the table becomes a child, so that its statement trigger does not fire:
-- proven when the transaction ends
CREATE TABLE gl_parent (id int, state text, v int);
ALTER TABLE gl_t INHERIT gl_parent;
UPDATE gl_parent SET v = 1 WHERE id = 9;
UPDATE gl_parent SET v = 2 WHERE id = 9;
BEGIN;
UPDATE gl_parent SET v = 2 WHERE id = 9;
UPDATE gl_parent SET v = 1, state = 'b' WHERE id = 8;
COMMIT;
SELECT * FROM gl_t WHERE id > 7 ORDER BY id;

-- by the role that wrote, not the one that commits; and not where the rows were
-- written anew since
CREATE ROLE regress_idem_gl_clerk;
CREATE ROLE regress_idem_gl_nobody;
SELECT idem_define('glr', E'stateDiagram-v2\n [*] --> a\n a --> b : e1 by regress_idem_gl_clerk\n b --> a : e2 by regress_idem_gl_nobody');
CREATE TABLE gl_up (id int PRIMARY KEY, state text, v int);
CREATE TABLE gl_role (id int PRIMARY KEY, state text, v int);
SELECT idem_attach('glr', 'gl_role', 'state');
ALTER TABLE gl_role INHERIT gl_up;
CREATE FUNCTION gl_count() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN new.v := new.v + 1; RETURN new; END$$;
CREATE TRIGGER "~late" BEFORE UPDATE ON gl_role FOR EACH ROW EXECUTE FUNCTION gl_count();
INSERT INTO gl_role VALUES (1, 'a', 0), (2, 'a', 0);
GRANT SELECT, UPDATE ON gl_up, gl_role TO regress_idem_gl_clerk;
CREATE FUNCTION gl_write(i int) RETURNS void LANGUAGE sql SECURITY DEFINER AS
	'UPDATE gl_up SET state = ''b'' WHERE id = i';
ALTER FUNCTION gl_write OWNER TO regress_idem_gl_clerk;
SET ROLE regress_idem_gl_nobody;
SELECT gl_write(1);
RESET ROLE;
SELECT * FROM gl_role ORDER BY id;
BEGIN;
SET LOCAL ROLE regress_idem_gl_clerk;
UPDATE gl_up SET state = 'b' WHERE id = 2;
RESET ROLE;
ALTER TABLE gl_up ALTER v TYPE bigint;
COMMIT;
SELECT * FROM gl_role ORDER BY id;
-- the guards of who wrote cannot become who commits
ALTER TABLE gl_up ALTER v TYPE int;
CREATE FUNCTION gl_become() RETURNS bool LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_catalog.set_config('role', 'none', true);
	RAISE WARNING 'this is %', CURRENT_USER;
	RETURN true;
END$$;
SELECT idem_define('glr', E'stateDiagram-v2\n [*] --> a\n a --> b : e1 [new.v = 0 OR public.gl_become()]');
DELETE FROM gl_role;
INSERT INTO gl_role VALUES (3, 'a', 0);
\set VERBOSITY terse
SELECT gl_write(3);
\set VERBOSITY default
SELECT * FROM gl_role;
-- ... nor can they do more at the end than they could when the row was written
CREATE FUNCTION gl_write_too() RETURNS int LANGUAGE sql AS
	'UPDATE public.gl_up SET state = ''b'' WHERE id = 4; SELECT 1';
CREATE OR REPLACE FUNCTION gl_become() RETURNS bool LANGUAGE plpgsql AS $$
BEGIN
	IF current_setting('gl.at_the_end', true) = 'yes' THEN
		PERFORM pg_catalog.set_config('role', 'none', true);
		RAISE WARNING 'this is %', CURRENT_USER;
	END IF;
	RETURN true;
END$$;
GRANT CREATE ON SCHEMA public TO regress_idem_gl_clerk;
SET ROLE regress_idem_gl_clerk;
CREATE MATERIALIZED VIEW gl_view AS SELECT public.gl_write_too();
RESET ROLE;
INSERT INTO gl_role VALUES (4, 'a', 0);
\set VERBOSITY terse
BEGIN;
SET LOCAL ROLE regress_idem_gl_clerk;
REFRESH MATERIALIZED VIEW gl_view;
SET LOCAL gl.at_the_end = 'yes';
COMMIT;
\set VERBOSITY default
SELECT * FROM gl_role;
DROP MATERIALIZED VIEW gl_view;
DROP FUNCTION gl_write_too;
REVOKE CREATE ON SCHEMA public FROM regress_idem_gl_clerk;
DROP FUNCTION gl_become;
DROP TABLE gl_role, gl_up;
DROP FUNCTION gl_write, gl_count;
DELETE FROM idem.machine WHERE name = 'glr';
DROP ROLE regress_idem_gl_clerk, regress_idem_gl_nobody;

-- a transition of a state to itself is one also where the row is another by then
SELECT idem_define('gls', E'stateDiagram-v2\n [*] --> c\n c --> c : again [new.v <> 5]\n note right of c : reenter');
CREATE FUNCTION gl_touch() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	new.touched := coalesce(new.touched, 0) + 1;
	IF new.v = 4 THEN new.v := 5; END IF;
	RETURN new;
END$$;
CREATE TABLE gl_self (id int PRIMARY KEY, state text, v int, touched int);
CREATE TRIGGER "~~touch" BEFORE UPDATE ON gl_self FOR EACH ROW EXECUTE FUNCTION gl_touch();
CREATE TABLE gl_bare (LIKE gl_self);
CREATE TRIGGER "~~touch" BEFORE UPDATE ON gl_bare FOR EACH ROW EXECUTE FUNCTION gl_touch();
CREATE TABLE gl_part (id int, state text, v int, touched int, k int, PRIMARY KEY (id, k)) PARTITION BY LIST (k);
CREATE TABLE gl_part1 PARTITION OF gl_part FOR VALUES IN (1);
CREATE TABLE gl_part2 PARTITION OF gl_part FOR VALUES IN (2);
CREATE TRIGGER touch BEFORE INSERT OR UPDATE ON gl_part FOR EACH ROW EXECUTE FUNCTION gl_touch();
SELECT idem_attach('gls', 'gl_self', 'state', history => true), idem_attach('gls', 'gl_bare', 'state'),
	idem_attach('gls', 'gl_part', 'state', history => true);
INSERT INTO gl_self VALUES (1, 'c', 0);
INSERT INTO gl_bare VALUES (1, 'c', 0);
INSERT INTO gl_part VALUES (1, 'c', 0, 0, 1);
UPDATE gl_self SET state = 'c', v = 1;
UPDATE gl_self SET v = 2;
UPDATE gl_self SET state = 'c', v = 4;
SELECT outcome FROM idem_try_fire('gl_self', 1, 'again');
UPDATE gl_bare SET state = 'c', v = 1;
UPDATE gl_bare SET v = 4;
UPDATE gl_bare SET state = 'c', v = 4;
UPDATE gl_part SET state = 'c', k = 2;
UPDATE gl_part SET k = 1;
UPDATE gl_part SET state = 'c', k = 2, v = 4;
SELECT table_name, event, from_state, to_state FROM idem.history WHERE machine = 'gls' ORDER BY seq;
DROP TABLE gl_self, gl_bare, gl_part;
DROP FUNCTION gl_touch;
ALTER TABLE idem.history DISABLE TRIGGER protected_row;
DELETE FROM idem.history WHERE machine = 'gls';
ALTER TABLE idem.history ENABLE TRIGGER protected_row;
DELETE FROM idem.machine WHERE name = 'gls';

DROP TABLE gl_t, gl_parent;
DROP FUNCTION gl_later, gl_again, gl_insert;
DELETE FROM idem.state WHERE machine = 'gl';
DELETE FROM idem.machine WHERE name = 'gl';
