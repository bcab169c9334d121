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
-- many take no more memory than one
CREATE OR REPLACE FUNCTION gl_become() RETURNS bool LANGUAGE plpgsql AS $$
DECLARE
	little bool := total_bytes < 50000 FROM pg_backend_memory_contexts WHERE name = 'idem proof';
BEGIN
	IF NOT little THEN
		RAISE EXCEPTION 'much memory';
	END IF;
	RETURN true;
END$$;
INSERT INTO gl_role SELECT i, 'a', 0 FROM generate_series(10, 209) AS i;
UPDATE gl_up SET state = 'b' WHERE id >= 10;
SELECT count(*) FROM gl_role WHERE state = 'b' AND v = 1;
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

-- what was decided for an update that a later trigger suppressed, or that is inside
-- of another, is no other update's: the second of each pair names no state
SELECT idem_define('glk', E'stateDiagram-v2\n [*] --> a\n a --> b : go\n b --> c : end\n c --> c : again\n note right of b : deny\n note right of c : reenter');
CREATE FUNCTION gl_suppress() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF TG_OP = 'DELETE' THEN
		RETURN CASE WHEN old.v <> 8 THEN old END;
	ELSIF new.v = 9 THEN
		RETURN NULL;
	ELSIF new.v = 7 AND pg_trigger_depth() = 1 THEN
		-- another that is taken back
		BEGIN
			EXECUTE format('UPDATE %I SET note = 1 WHERE id = %s', TG_ARGV[0], new.id);
			RAISE 'undone';
		EXCEPTION WHEN raise_exception THEN NULL;
		END;
	ELSIF new.v = 6 AND pg_trigger_depth() = 1 THEN
		-- another that does not happen
		EXECUTE format('UPDATE %I SET state = state, v = 9 WHERE id = %s', TG_ARGV[0], new.id);
	END IF;
	RETURN new;
END$$;
CREATE TABLE gl_kept (id int PRIMARY KEY, state text, v int, note int);
CREATE TRIGGER "~~suppress" BEFORE UPDATE ON gl_kept FOR EACH ROW EXECUTE FUNCTION gl_suppress('gl_kept');
CREATE TABLE gl_keptp (id int, state text, v int, note int, k int DEFAULT 1, PRIMARY KEY (id, k)) PARTITION BY LIST (k);
CREATE TABLE gl_keptp1 PARTITION OF gl_keptp FOR VALUES IN (1);
CREATE TABLE gl_keptp2 PARTITION OF gl_keptp FOR VALUES IN (2);
CREATE TRIGGER "~~suppress" BEFORE UPDATE OR DELETE ON gl_keptp FOR EACH ROW EXECUTE FUNCTION gl_suppress('gl_keptp');
SELECT idem_attach('glk', 'gl_kept', 'state', history => true), idem_attach('glk', 'gl_keptp', 'state', history => true);
INSERT INTO gl_kept VALUES (1, 'a', 0);
INSERT INTO gl_keptp VALUES (1, 'a', 8);
UPDATE gl_kept SET state = 'b';
UPDATE gl_keptp SET state = 'b';
BEGIN;
UPDATE gl_kept SET state = 'c', v = 9;
UPDATE gl_kept SET note = 1;
UPDATE gl_keptp SET state = 'c', v = 9;
UPDATE gl_keptp SET note = 1;
UPDATE gl_keptp SET state = 'c', k = 2;
UPDATE gl_keptp SET note = 2;
COMMIT;
UPDATE gl_kept SET state = 'c';
UPDATE gl_keptp SET state = 'c';
BEGIN;
UPDATE gl_kept SET state = 'c', v = 9;
UPDATE gl_kept SET note = 1;
UPDATE gl_keptp SET state = 'c', k = 2;
UPDATE gl_keptp SET note = 1;
COMMIT;
-- inside of one that names no state, and of one that does
UPDATE gl_kept SET v = 6;
UPDATE gl_keptp SET v = 6;
SELECT table_name, event FROM idem.history WHERE machine = 'glk' AND event = 'again' ORDER BY seq;
UPDATE gl_kept SET state = 'c', v = 7;
UPDATE gl_keptp SET state = 'c', v = 7;
UPDATE gl_keptp SET state = 'c', k = 2;
SELECT outcome FROM idem_try_fire('gl_kept', 1, 'again');
-- statements of one command: the one that names a state is suppressed
UPDATE gl_kept SET v = 1;
UPDATE gl_keptp SET v = 1;
WITH u AS (UPDATE gl_kept SET state = 'c', v = 9 RETURNING 1)
	UPDATE gl_kept SET note = 3 WHERE (SELECT count(*) FROM u) = 0;
WITH u AS (UPDATE gl_keptp SET state = 'c', v = 9 RETURNING 1)
	UPDATE gl_keptp SET note = 3 WHERE (SELECT count(*) FROM u) = 0;
SELECT table_name, count(*) FROM idem.history WHERE machine = 'glk' AND event = 'again' GROUP BY 1 ORDER BY 1;
-- what was decided for updates that do not happen takes no memory
CREATE FUNCTION gl_try(n int) RETURNS bool LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1 .. n LOOP
		UPDATE gl_keptp SET state = 'c', v = 9, pad = repeat('x', 100000 + i);
	END LOOP;
	RETURN (SELECT sum(total_bytes) < 1000000 FROM pg_backend_memory_contexts WHERE name = 'TopTransactionContext');
END$$;
ALTER TABLE gl_keptp ADD pad text;
SELECT gl_try(50) AS little;
DROP FUNCTION gl_try;
-- a foreign key's action names all of the key's columns
CREATE TABLE gl_owner (state text, note int, PRIMARY KEY (state, note));
INSERT INTO gl_owner SELECT state, note FROM gl_kept;
ALTER TABLE gl_kept ADD FOREIGN KEY (state, note) REFERENCES gl_owner ON UPDATE CASCADE;
UPDATE gl_owner SET note = 5;
SELECT table_name, event FROM idem.history WHERE machine = 'glk' AND event = 'again' ORDER BY seq;
SELECT * FROM gl_kept;
SELECT * FROM gl_keptp;
-- a step of a row that gets another key stands behind the one by which it was moved on
CREATE TABLE gl_order (id int, state text, k int DEFAULT 1, PRIMARY KEY (id, k)) PARTITION BY LIST (k);
CREATE TABLE gl_order1 PARTITION OF gl_order FOR VALUES IN (1);
SELECT idem_attach('glk', 'gl_order', 'state', history => true);
INSERT INTO gl_order VALUES (1, 'a'), (2, 'a');
CREATE FUNCTION gl_rename(i int) RETURNS bool LANGUAGE plpgsql AS $$
BEGIN
	IF i = 2 THEN
		UPDATE gl_order SET id = 100, state = 'c' WHERE id = 1;
	END IF;
	RETURN true;
END$$;
UPDATE gl_order SET state = 'b' WHERE gl_rename(id) AND id IN (1, 2);
SELECT row_key, event FROM idem.history WHERE table_name = 'gl_order' AND from_state IS NOT NULL ORDER BY seq;
DROP TABLE gl_order;
DROP FUNCTION gl_rename;
DROP TABLE gl_kept, gl_keptp, gl_owner;
DROP FUNCTION gl_suppress;
ALTER TABLE idem.history DISABLE TRIGGER protected_row;
DELETE FROM idem.history WHERE machine = 'glk';
ALTER TABLE idem.history ENABLE TRIGGER protected_row;
DELETE FROM idem.machine WHERE name = 'glk';

-- who writes a row cannot make one that the trigger turns into another which is taken
-- for it: this note has, with those columns, the sum of hashes of the row behind the trigger
CREATE TABLE gl_crafted (id int PRIMARY KEY, s text NOT NULL DEFAULT 'a', note text, req_s text, req_note text);
CREATE FUNCTION gl_carry_out() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF new.req_s IS NOT NULL THEN
		new.s := new.req_s; new.note := new.req_note; new.req_s := NULL; new.req_note := NULL;
	END IF;
	RETURN new;
END$$;
SELECT idem_define('gl_crafted', E'stateDiagram-v2\n[*] --> a\na --> b : ab\nb --> d : bd [false]');
SELECT idem_attach('gl_crafted', 'gl_crafted', 's');
CREATE TRIGGER "~~carry_out" BEFORE UPDATE ON gl_crafted FOR EACH ROW EXECUTE FUNCTION gl_carry_out();
INSERT INTO gl_crafted VALUES (1);
UPDATE gl_crafted SET s = 'b', note = 'any note', req_s = 'd', req_note = 'hello';
UPDATE gl_crafted SET s = 'b', note = 'Ul}XucG4`LIo', req_s = 'd', req_note = 'hello';
SELECT s FROM gl_crafted;
DROP TABLE gl_crafted;
DROP FUNCTION gl_carry_out;
DELETE FROM idem.machine WHERE name = 'gl_crafted';

DROP TABLE gl_t, gl_parent;
DROP FUNCTION gl_later, gl_again, gl_insert;
DELETE FROM idem.state WHERE machine = 'gl';
DELETE FROM idem.machine WHERE name = 'gl';
