-- The guard: a state column moves along declared transitions, whoever writes
-- and however.

\set SHOW_CONTEXT never
\pset null '(null)'
INSERT INTO idem.machine (name) VALUES ('g_order');
INSERT INTO idem.state (machine, name, initial, final, frozen, self) VALUES
	('g_order', 'draft', true, false, false, 'noop'),
	('g_order', 'pending', false, false, false, 'noop'),
	('g_order', 'approved', false, false, false, 'reenter'),
	('g_order', 'rejected', false, false, false, 'deny'),
	('g_order', 'cancelled', false, true, false, 'noop'),
	('g_order', 'archived', false, true, true, 'noop');
INSERT INTO idem.transition (machine, event, from_state, to_state, priority, guard) VALUES
	('g_order', 'submit', 'draft', 'pending', 1, 'new.amount > 0'),
	('g_order', 'approve', 'pending', 'approved', 2, NULL),
	('g_order', 'renew', 'approved', 'approved', 3, 'new.amount > old.amount'),
	('g_order', 'reject', 'pending', 'rejected', 4, NULL),
	('g_order', 'archive', 'approved', 'archived', 5, NULL),
	('g_order', 'cancel', '*', 'cancelled', 6, NULL);
CREATE TABLE g_orders (id int PRIMARY KEY, state text, amount int, note text);
SELECT idem_attach('g_order', 'g_orders', 'state');
SELECT machine, table_name, column_name, options FROM idem.binding;

-- rows begin in an initial state
INSERT INTO g_orders VALUES (1, 'draft', 0);
INSERT INTO g_orders VALUES (2, 'pending', 0);
INSERT INTO g_orders VALUES (2, NULL, 0);
INSERT INTO g_orders VALUES (2, 'nowhere', 0);
INSERT INTO g_orders VALUES (2, 'Draft', 0);
INSERT INTO g_orders SELECT i, 'draft', i FROM generate_series(2, 9) AS i;
COPY g_orders (id, state, amount) FROM stdin;
10	draft	1
11	draft	1
\.
COPY g_orders (id, state, amount) FROM stdin;
12	draft	1
13	approved	1
\.

-- and move along transitions
UPDATE g_orders SET state = 'pending' WHERE id = 1;
UPDATE g_orders SET state = 'pending', amount = 5 WHERE id = 1;
UPDATE g_orders SET state = 'draft' WHERE id = 1;
UPDATE g_orders SET state = 'archived' WHERE id = 1;
UPDATE g_orders SET state = NULL WHERE id = 1;
UPDATE g_orders SET state = 'nowhere' WHERE id = 1;
UPDATE g_orders SET state = 'approved' WHERE id = 1;
UPDATE g_orders SET state = 'pending' WHERE id BETWEEN 2 AND 9;
-- one illegal row ends the statement
UPDATE g_orders SET state = 'approved' WHERE id BETWEEN 9 AND 10;
SELECT id, state FROM g_orders WHERE id > 8 ORDER BY id;

-- a state that stays: noop passes, a write of the whole row too
UPDATE g_orders SET id = 2, state = 'pending', amount = 2, note = 'again' WHERE id = 2;
-- reenter is a transition where the column is named
UPDATE g_orders SET note = 'x' WHERE id = 1;
UPDATE g_orders SET state = 'approved' WHERE id = 1;
UPDATE g_orders SET state = 'approved', amount = 6 WHERE id = 1;
-- deny refuses where the column is named
UPDATE g_orders SET state = 'rejected' WHERE id = 2;
UPDATE g_orders SET note = 'y' WHERE id = 2;
UPDATE g_orders SET state = 'rejected' WHERE id = 2;

-- final: no transition leaves, others columns may change; frozen: nothing may
UPDATE g_orders SET state = 'cancelled' WHERE id = 3;
UPDATE g_orders SET note = 'z' WHERE id = 3;
UPDATE g_orders SET state = 'draft' WHERE id = 3;
UPDATE g_orders SET state = 'archived' WHERE id = 1;
UPDATE g_orders SET note = 'z' WHERE id = 1;
UPDATE g_orders SET state = 'cancelled' WHERE id = 1;

-- an upsert is an insert or an update
INSERT INTO g_orders VALUES (4, 'draft', 4) ON CONFLICT (id) DO UPDATE SET note = 'upsert';
INSERT INTO g_orders VALUES (4, 'approved', 4) ON CONFLICT (id) DO UPDATE SET state = EXCLUDED.state;
INSERT INTO g_orders VALUES (4, 'draft', 4) ON CONFLICT (id) DO UPDATE SET state = EXCLUDED.state;
INSERT INTO g_orders VALUES (20, 'approved', 4) ON CONFLICT (id) DO UPDATE SET state = EXCLUDED.state;
INSERT INTO g_orders VALUES (5, 'archived', 4) ON CONFLICT (id) DO NOTHING;

-- MERGE
MERGE INTO g_orders AS o USING (VALUES (5, 'approved'), (21, 'draft')) AS s (id, state) ON o.id = s.id
	WHEN MATCHED THEN UPDATE SET state = s.state
	WHEN NOT MATCHED THEN INSERT (id, state) VALUES (s.id, s.state);
MERGE INTO g_orders AS o USING (VALUES (21, 'approved')) AS s (id, state) ON o.id = s.id
	WHEN MATCHED THEN UPDATE SET state = s.state;
MERGE INTO g_orders AS o USING (VALUES (22, 'approved')) AS s (id, state) ON o.id = s.id
	WHEN NOT MATCHED THEN INSERT (id, state) VALUES (s.id, s.state);
SELECT id, state FROM g_orders WHERE id IN (4, 5, 20, 21, 22) ORDER BY id;

-- what foreign keys do
CREATE TABLE g_states (name text PRIMARY KEY);
INSERT INTO g_states VALUES ('draft'), ('pending'), ('approved'), ('rejected'), ('cancelled'), ('archived'), ('other');
ALTER TABLE g_orders ALTER state SET DEFAULT 'draft';
ALTER TABLE g_orders ADD CONSTRAINT g_fk FOREIGN KEY (state) REFERENCES g_states
	ON DELETE SET DEFAULT ON UPDATE CASCADE;
DELETE FROM g_states WHERE name = 'pending';
UPDATE g_states SET name = 'shelved' WHERE name = 'pending';
DELETE FROM g_states WHERE name = 'other';
ALTER TABLE g_orders DROP CONSTRAINT g_fk, ADD CONSTRAINT g_fk FOREIGN KEY (state) REFERENCES g_states ON DELETE SET NULL;
DELETE FROM g_states WHERE name = 'pending';
ALTER TABLE g_orders DROP CONSTRAINT g_fk;

-- what other triggers do, before the guard and in statements of their own
CREATE FUNCTION g_set_state() RETURNS trigger LANGUAGE plpgsql AS
$$BEGIN IF new.note = 'force' THEN new.state := 'archived'; END IF; RETURN new; END$$;
CREATE TRIGGER a_first BEFORE UPDATE ON g_orders FOR EACH ROW EXECUTE FUNCTION g_set_state();
UPDATE g_orders SET note = 'force' WHERE id = 6;
DROP TRIGGER a_first ON g_orders;
CREATE FUNCTION g_other_row() RETURNS trigger LANGUAGE plpgsql AS
$$BEGIN UPDATE g_orders SET state = 'archived' WHERE id = 7; RETURN NULL; END$$;
CREATE TRIGGER b_after AFTER UPDATE ON g_orders FOR EACH ROW WHEN (new.id = 6) EXECUTE FUNCTION g_other_row();
UPDATE g_orders SET note = 'push' WHERE id = 6;
DROP TRIGGER b_after ON g_orders;
CREATE FUNCTION g_two_up() RETURNS trigger LANGUAGE plpgsql AS
$$BEGIN UPDATE g_orders SET state = 'approved' WHERE id = new.id + 1; RETURN NULL; END$$;
CREATE TRIGGER b_after AFTER UPDATE ON g_orders FOR EACH ROW WHEN (new.id = 6) EXECUTE FUNCTION g_two_up();
UPDATE g_orders SET note = 'push' WHERE id = 6;
SELECT id, state FROM g_orders WHERE id IN (6, 7) ORDER BY id;
DROP TRIGGER b_after ON g_orders;

-- an error in a subtransaction, a statement after it
BEGIN;
SAVEPOINT s;
UPDATE g_orders SET state = 'draft' WHERE id = 8;
ROLLBACK TO s;
UPDATE g_orders SET state = 'approved' WHERE id = 8;
COMMIT;

-- prepared, and in a function
PREPARE g_move (text, int) AS UPDATE g_orders SET state = $1 WHERE id = $2;
EXECUTE g_move ('cancelled', 8);
EXECUTE g_move ('draft', 8);
DEALLOCATE g_move;

-- fields of the error
DO $$
DECLARE
	state text; s text; t text; c text; m text; d text; h text;
BEGIN
	UPDATE public.g_orders SET state = 'draft' WHERE id = 9;
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, s = SCHEMA_NAME, t = TABLE_NAME, c = COLUMN_NAME,
		m = MESSAGE_TEXT, d = PG_EXCEPTION_DETAIL, h = PG_EXCEPTION_HINT;
	RAISE NOTICE E'% %.%.%\n%\n%\n%', state, s, t, c, m, d, h;
END$$;

-- a guard's own error passes, and says whose it is
\set SHOW_CONTEXT always
UPDATE idem.transition SET guard = '1 / (new.amount - 9) = 0' WHERE machine = 'g_order' AND event = 'reject';
UPDATE g_orders SET state = 'rejected' WHERE id = 9;
UPDATE idem.transition SET guard = 'new.missing > 0' WHERE machine = 'g_order' AND event = 'reject';
\set SHOW_CONTEXT never
UPDATE idem.transition SET guard = NULL WHERE machine = 'g_order' AND event = 'reject';
UPDATE g_orders SET state = 'rejected' WHERE id = 9;

-- first come by priority, then event; NULL is false
INSERT INTO idem.transition (machine, event, from_state, to_state, priority, guard) VALUES
	('g_order', 'rush', 'draft', 'approved', 1, 'new.amount > 100'),
	('g_order', 'b', 'draft', 'approved', 1, 'new.note = ''b'''),
	('g_order', 'late', 'draft', 'approved', 9, 'old.amount IS NOT DISTINCT FROM new.amount AND new.note = ''late''');
UPDATE g_orders SET state = 'approved' WHERE id = 10;
UPDATE g_orders SET state = 'approved', note = 'late' WHERE id = 10;
UPDATE g_orders SET state = 'approved', amount = 101 WHERE id = 11;

SELECT id, state, amount, note FROM g_orders ORDER BY id;
SELECT * FROM idem_verify('g_orders');
SELECT idem_detach('g_orders', 'state');
UPDATE g_orders SET state = 'anything' WHERE id = 1;
-- a wildcard covers a state that is added later, and leaves neither final states nor its target
INSERT INTO idem.state (machine, name) VALUES ('g_order', 'held');
INSERT INTO idem.transition (machine, event, from_state, to_state, priority) VALUES ('g_order', 'hold', 'draft', 'held', 7);
CREATE TABLE g_later (id int PRIMARY KEY, state text, amount int, note text);
SELECT idem_attach('g_order', 'g_later', 'state');
INSERT INTO g_later VALUES (1, 'draft', 1), (2, 'draft', 1);
UPDATE g_later SET state = 'held';
UPDATE g_later SET state = 'cancelled' WHERE id = 1;
SELECT event, to_state FROM idem_allowed('g_later', 1);
SELECT event, to_state FROM idem_allowed('g_later', 2);
SELECT outcome FROM idem_try_fire('g_later', 1, 'cancel');
SELECT idem_detach('g_later', 'state');
UPDATE g_later SET state = 'approved' WHERE id = 2;
SELECT idem_attach('g_order', 'g_later', 'state');
SELECT outcome FROM idem_try_fire('g_later', 2, 'archive');
SELECT outcome FROM idem_try_fire('g_later', 2, 'cancel');
DROP TABLE g_later;
DELETE FROM idem.state WHERE machine = 'g_order' AND name = 'held';
-- a wildcard to a state that is not final: who is in it does not take it
INSERT INTO idem.machine (name) VALUES ('g_star');
INSERT INTO idem.state (machine, name, initial, self) VALUES ('g_star', 'a', true, 'noop'), ('g_star', 'd', false, 'reenter');
INSERT INTO idem.transition (machine, event, from_state, to_state, priority) VALUES ('g_star', 'down', '*', 'd', 1);
CREATE TABLE g_star (id int PRIMARY KEY, state text);
SELECT idem_attach('g_star', 'g_star', 'state');
INSERT INTO g_star VALUES (1, 'a');
SELECT outcome FROM idem_try_fire('g_star', 1, 'down');
SELECT event, to_state FROM idem_allowed('g_star', 1);
SELECT outcome FROM idem_try_fire('g_star', 1, 'down');
DROP TABLE g_star;
DELETE FROM idem.machine WHERE name = 'g_star';
DROP TABLE g_orders, g_states;
DROP FUNCTION g_set_state, g_other_row, g_two_up;
DELETE FROM idem.transition WHERE machine = 'g_order';
DELETE FROM idem.state WHERE machine = 'g_order';
DELETE FROM idem.machine WHERE name = 'g_order';
