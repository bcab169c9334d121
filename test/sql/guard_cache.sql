-- Compiled machines follow their definition: within a transaction, after a
-- rollback, after ROLLBACK TO, and when the extension is made anew.

\set SHOW_CONTEXT never
\set VERBOSITY terse

INSERT INTO idem.machine (name) VALUES ('gc');
INSERT INTO idem.state (machine, name, initial) VALUES ('gc', 'a', true), ('gc', 'b', false), ('gc', 'c', false);
INSERT INTO idem.transition (machine, event, from_state, to_state, priority, guard) VALUES ('gc', 'ab', 'a', 'b', 1, 'new.v = 1');
CREATE TABLE gc_t (id int PRIMARY KEY, state text, v int);
SELECT idem_attach('gc', 'gc_t', 'state');
INSERT INTO gc_t SELECT i, 'a', 0 FROM generate_series(1, 9) AS i;
PREPARE gc_move(text, int) AS UPDATE gc_t SET state = $1 WHERE id = $2;
EXECUTE gc_move('b', 1);

-- in the transaction that changes it, and not after its rollback
BEGIN;
UPDATE idem.transition SET guard = NULL WHERE machine = 'gc';
EXECUTE gc_move('b', 1);
ROLLBACK;
EXECUTE gc_move('b', 1);
BEGIN;
SAVEPOINT s;
UPDATE idem.transition SET guard = NULL WHERE machine = 'gc';
EXECUTE gc_move('b', 1);
ROLLBACK TO s;
EXECUTE gc_move('b', 2);
ROLLBACK;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT count(*) FROM gc_t;
UPDATE idem.transition SET guard = NULL WHERE machine = 'gc';
EXECUTE gc_move('b', 1);
COMMIT;
EXECUTE gc_move('b', 2);

-- initial states too, of prepared inserts
PREPARE gc_new(text, int) AS INSERT INTO gc_t VALUES ($2, $1, 0);
EXECUTE gc_new('c', 20);
UPDATE idem.state SET initial = true WHERE machine = 'gc' AND name = 'c';
EXECUTE gc_new('c', 20);
UPDATE idem.state SET initial = false WHERE machine = 'gc' AND name = 'c';
EXECUTE gc_new('c', 21);
UPDATE idem.state SET initial = false WHERE machine = 'gc' AND name = 'a';
EXECUTE gc_new('a', 21);
UPDATE idem.state SET initial = true WHERE machine = 'gc' AND name = 'a';

-- a statement keeps to the definition that it began with
CREATE FUNCTION gc_change() RETURNS trigger LANGUAGE plpgsql AS
$$BEGIN DELETE FROM idem.transition WHERE machine = 'gc'; RETURN new; END$$;
CREATE TRIGGER change BEFORE UPDATE ON gc_t FOR EACH ROW WHEN (new.id = 4) EXECUTE FUNCTION gc_change();
BEGIN;
UPDATE gc_t SET state = 'b' WHERE id IN (3, 4, 5);
UPDATE gc_t SET state = 'b' WHERE id = 6;
ROLLBACK;
DROP TRIGGER change ON gc_t;

-- functions that a guard calls: replaced, dropped
CREATE FUNCTION gc_ok(int) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT $1 = 1';
UPDATE idem.transition SET guard = 'public.gc_ok(new.v)' WHERE machine = 'gc';
EXECUTE gc_move('b', 7);
CREATE OR REPLACE FUNCTION gc_ok(int) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT $1 = 0';
EXECUTE gc_move('b', 7);
DROP FUNCTION gc_ok(int);
EXECUTE gc_move('b', 8);
-- columns: renamed and dropped, and of another type
UPDATE idem.transition SET guard = 'new.v = 0' WHERE machine = 'gc';
ALTER TABLE gc_t RENAME v TO w;
EXECUTE gc_move('b', 8);
ALTER TABLE gc_t RENAME w TO v;
ALTER TABLE gc_t ALTER v TYPE numeric;
EXECUTE gc_move('b', 8);
ALTER TABLE gc_t DROP v, ADD v bigint DEFAULT 0;
EXECUTE gc_move('b', 9);
SELECT id, state FROM gc_t ORDER BY id;

-- two guards of one name on two tables
UPDATE idem.transition SET guard = 'new.id > 0' WHERE machine = 'gc';
CREATE TABLE gc_u (v text, state varchar, id int);
SELECT idem_attach('gc', 'gc_u', 'state', validate => false);
INSERT INTO gc_u VALUES ('x', 'a', 0), ('x', 'a', 1);
UPDATE gc_u SET state = 'b' WHERE id = 1;
UPDATE gc_u SET state = 'b' WHERE id = 0;
UPDATE gc_t SET state = 'b' WHERE id = 3;

DEALLOCATE gc_move;
DEALLOCATE gc_new;
DROP TABLE gc_t, gc_u;
DROP FUNCTION gc_change;
DELETE FROM idem.state WHERE machine = 'gc';
DELETE FROM idem.machine WHERE name = 'gc';
