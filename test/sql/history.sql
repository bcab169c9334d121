-- History: what is recorded, and who may see and change it.

\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE ROLE regress_idem_hist_app;
CREATE ROLE regress_idem_hist_other;
SELECT idem_grant('regress_idem_hist_app'), idem_grant('regress_idem_hist_other');
GRANT CREATE, USAGE ON SCHEMA public TO regress_idem_hist_app;

INSERT INTO idem.machine (name) VALUES ('hi');
INSERT INTO idem.state (machine, name, initial, final, self) VALUES
	('hi', 'draft', true, false, 'noop'), ('hi', 'pending', false, false, 'reenter'),
	('hi', 'approved', false, false, 'noop'), ('hi', 'done', false, true, 'noop');
INSERT INTO idem.transition (machine, event, from_state, to_state, priority, guard) VALUES
	('hi', 'submit', 'draft', 'pending', 1, 'new.v < 100'),
	('hi', 'resubmit', 'draft', 'pending', 2, NULL),
	('hi', 'again', 'pending', 'pending', 3, NULL),
	('hi', 'approve', 'pending', 'approved', 4, NULL),
	('hi', 'finish', 'approved', 'done', 5, NULL),
	('hi', 'back', 'approved', 'draft', 6, NULL);

-- What was added since the last look.  seq tells the order, not the numbers.
CREATE TABLE hi_seen (seq bigint);
INSERT INTO hi_seen VALUES (0);
CREATE FUNCTION hi_new(OUT tab text, OUT row_key jsonb, OUT event text, OUT from_state text, OUT to_state text,
	OUT version bigint, OUT role_name text, OUT actor text, OUT key text, OUT context jsonb)
	RETURNS SETOF record LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
	last bigint := (SELECT max(s.seq) FROM hi_seen AS s);
BEGIN
	RETURN QUERY SELECT h.table_name, h.row_key, h.event, h.from_state, h.to_state, h.version,
		nullif(h.role_name, CURRENT_USER), h.actor, h.key, h.context
		FROM idem.history AS h WHERE h.seq > last AND h.machine = 'hi' ORDER BY h.seq;
	UPDATE hi_seen SET seq = (SELECT coalesce(max(h.seq), 0) FROM idem.history AS h);
END $$;
SELECT count(*) >= 0 FROM hi_new();

CREATE TABLE hi_t (id int PRIMARY KEY, state text NOT NULL, v int NOT NULL DEFAULT 0);
SELECT idem_attach('hi', 'hi_t', 'state', history => true);

-- inserts of every kind
INSERT INTO hi_t VALUES (1, 'draft', 0), (2, 'draft', 100);
COPY hi_t FROM stdin;
3	draft	0
4	draft	0
\.
SELECT * FROM hi_new();
-- the rule that the guard took, also where two lead to the same state
UPDATE hi_t SET state = 'pending' WHERE id IN (1, 2);
SELECT * FROM hi_new();
-- one statement that inserts and updates
INSERT INTO hi_t VALUES (1, 'draft', 0), (5, 'draft', 0) ON CONFLICT (id) DO UPDATE SET state = 'approved';
SELECT * FROM hi_new();
MERGE INTO hi_t USING (VALUES (2), (6)) AS s (id) ON hi_t.id = s.id
	WHEN MATCHED THEN UPDATE SET state = 'approved'
	WHEN NOT MATCHED THEN INSERT VALUES (s.id, 'draft', 0);
SELECT * FROM hi_new();
-- a transition to the same state is one where the state is entered anew
UPDATE hi_t SET state = 'pending' WHERE id = 3;
UPDATE hi_t SET state = 'pending' WHERE id = 3;
UPDATE hi_t SET v = v + 1 WHERE id = 3;
UPDATE hi_t SET state = 'draft', v = 1 WHERE id = 4;
SELECT * FROM hi_new();
-- nothing of what was rolled back, or refused
BEGIN;
UPDATE hi_t SET state = 'approved' WHERE id = 3;
SAVEPOINT s;
UPDATE hi_t SET state = 'done' WHERE id = 3;
ROLLBACK TO s;
UPDATE hi_t SET state = 'draft' WHERE id = 3;
COMMIT;
UPDATE hi_t SET state = 'done' WHERE id = 3;
SELECT * FROM hi_new();

-- rows that another trigger suppresses shift nothing
CREATE FUNCTION hi_skip() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	RETURN CASE WHEN new.id % 2 = 1 THEN NULL ELSE new END;
END $$;
INSERT INTO hi_t SELECT i, 'draft', CASE WHEN i % 4 = 0 THEN 100 ELSE 0 END FROM generate_series(10, 17) AS i;
CREATE TRIGGER a_skip BEFORE UPDATE ON hi_t FOR EACH ROW EXECUTE FUNCTION hi_skip();
SELECT count(*) FROM hi_new();
UPDATE hi_t SET state = 'pending' WHERE id >= 10;
SELECT row_key, event, from_state, to_state FROM hi_new();
DROP TRIGGER a_skip ON hi_t;
CREATE TRIGGER "~z_skip" BEFORE UPDATE ON hi_t FOR EACH ROW EXECUTE FUNCTION hi_skip();
UPDATE hi_t SET state = CASE state WHEN 'draft' THEN 'pending' ELSE 'approved' END WHERE id >= 10;
SELECT row_key, event, from_state, to_state FROM hi_new();
DROP TRIGGER "~z_skip" ON hi_t;

-- a trigger of the same table moves other rows of it
CREATE FUNCTION hi_along() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF new.id = 11 THEN
		UPDATE hi_t SET state = 'pending' WHERE id = 13;
	END IF;
	RETURN new;
END $$;
CREATE TRIGGER along BEFORE UPDATE ON hi_t FOR EACH ROW EXECUTE FUNCTION hi_along();
UPDATE hi_t SET state = 'pending' WHERE id IN (11, 15);
SELECT row_key, event, from_state, to_state FROM hi_new() ORDER BY row_key;
DROP TRIGGER along ON hi_t;

-- foreign keys: a cascade that sets the state, and two in one statement
CREATE TABLE hi_state (name text PRIMARY KEY);
INSERT INTO hi_state VALUES ('draft'), ('pending'), ('approved');
CREATE TABLE hi_fk (id int PRIMARY KEY, state text DEFAULT 'draft' REFERENCES hi_state ON DELETE SET DEFAULT ON UPDATE CASCADE, v int DEFAULT 0);
SELECT idem_attach('hi', 'hi_fk', 'state', history => true);
INSERT INTO hi_fk VALUES (1), (2), (3);
UPDATE hi_fk SET state = 'pending';
UPDATE hi_fk SET state = 'approved' WHERE id < 3;
SELECT count(*) FROM hi_new();
DELETE FROM hi_state WHERE name = 'approved';
SELECT row_key, event, from_state, to_state FROM hi_new();
UPDATE hi_state SET name = 'approved' WHERE name = 'pending';
SELECT row_key, event, from_state, to_state FROM hi_new();

-- who and why
BEGIN;
SELECT set_config('idem.actor', 'ann', true), set_config('idem.context', '{"ip": "::1"}', true);
UPDATE hi_t SET state = 'pending' WHERE id = 6;
COMMIT;
SET idem.context = 'no json';
SET idem.context = '{"a": 1';
SET idem.context = '{"a": "\u0000"}';
SET idem.context = '[1e200000]';
SET idem.context = '';
UPDATE hi_t SET state = 'approved' WHERE id = 6;
SELECT * FROM hi_new();

-- with a version, by whoever writes, under any search_path
CREATE TABLE hi_v (a int, b text, state text NOT NULL DEFAULT 'draft', n int NOT NULL DEFAULT 1, v int DEFAULT 0, PRIMARY KEY (a, b));
SELECT idem_attach('hi', 'hi_v', 'state', history => true), idem_attach_version('hi_v', 'n');
GRANT SELECT, INSERT, UPDATE ON hi_v TO regress_idem_hist_app;
SET ROLE regress_idem_hist_app;
SET search_path = pg_temp;
INSERT INTO public.hi_v VALUES (1, 'x"y');
UPDATE public.hi_v SET state = 'pending';
RESET search_path;
SELECT * FROM hi_new();
SELECT event, to_state FROM idem_history('hi_v', '{"a": 1, "b": "x\"y"}');
SELECT event, to_state FROM idem_history('hi_v', '{"b": "x\"y", "a": 1}'::jsonb);
SELECT event, to_state FROM idem_history('hi_v', 1);
SELECT event, to_state FROM idem_history('hi_v', NULL::text);
SELECT event, to_state FROM idem_history('hi_t', 1);
SELECT * FROM idem.history;
INSERT INTO idem.history DEFAULT VALUES;
RESET ROLE;

-- policies hide the history of what they hide
ALTER TABLE hi_v ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON hi_v TO regress_idem_hist_app USING (a > 1);
GRANT SELECT ON hi_v TO regress_idem_hist_other;
SET ROLE regress_idem_hist_app;
SELECT count(*) FROM idem_history('hi_v', '{"a": 1, "b": "x\"y"}');
INSERT INTO hi_v VALUES (2, 'y');
SELECT count(*) FROM idem_history('hi_v', '{"a": 2, "b": "y"}');
-- ... and that of an earlier row with the same key
RESET ROLE;
SET idem.context = '{"secret": true}';
INSERT INTO hi_v VALUES (3, 'z');
UPDATE hi_v SET state = 'pending' WHERE a = 3;
DELETE FROM hi_v WHERE a = 3;
RESET idem.context;
SET ROLE regress_idem_hist_app;
INSERT INTO hi_v VALUES (3, 'z');
SELECT event, to_state, context FROM idem_history('hi_v', '{"a": 3, "b": "z"}');
RESET ROLE;
SELECT event, to_state, context FROM idem_history('hi_v', '{"a": 3, "b": "z"}');
-- ... also of a column whose machine was not there when the row came
CREATE TABLE hi_two (id int PRIMARY KEY, state text NOT NULL DEFAULT 'draft', other text NOT NULL DEFAULT 'draft', v int DEFAULT 0);
SELECT idem_attach('hi', 'hi_two', 'state', history => true), idem_attach('hi', 'hi_two', 'other', history => true);
ALTER TABLE hi_two ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON hi_two TO regress_idem_hist_app USING (true);
GRANT SELECT ON hi_two TO regress_idem_hist_app;
SET idem.context = '{"secret": true}';
INSERT INTO hi_two VALUES (1), (2);
UPDATE hi_two SET state = 'pending', other = 'pending' WHERE id = 1;
DELETE FROM hi_two;
RESET idem.context;
SELECT idem_detach('hi_two', 'other');
INSERT INTO hi_two VALUES (1), (2);
SET ROLE regress_idem_hist_app;
SELECT column_name, event, to_state, context FROM idem_history('hi_two', 1);
RESET ROLE;
-- ... nor after a restore, which is one transaction
BEGIN;
CREATE TEMP TABLE hi_dump AS SELECT * FROM idem.history WHERE table_name = 'hi_two';
ALTER TABLE idem.history DISABLE TRIGGER USER;
DELETE FROM idem.history WHERE table_name = 'hi_two';
INSERT INTO idem.history SELECT * FROM hi_dump;
SET ROLE regress_idem_hist_app;
SELECT row_key, column_name, event, to_state, context FROM generate_series(1, 2) AS n, idem_history('hi_two', n);
ROLLBACK;
SELECT idem_attach('hi', 'hi_two', 'other', history => true);
UPDATE hi_two SET other = 'pending';
SET ROLE regress_idem_hist_app;
SELECT column_name, event, to_state, context FROM idem_history('hi_two', 1);
RESET ROLE;
-- of one insert, what was written last, since it tells nothing of the other
DELETE FROM hi_two;
INSERT INTO hi_two VALUES (1);
SET ROLE regress_idem_hist_app;
SELECT column_name, event, to_state, context FROM idem_history('hi_two', 1);
RESET ROLE;
SELECT column_name, to_state FROM idem_history('hi_two', 1) ORDER BY seq DESC LIMIT 2;
DROP TABLE hi_two;

-- key types: the text of a key is the same in every session
CREATE TABLE hi_k (t timestamptz, d date, u uuid, n numeric, b bytea, f float8, o bool, s text, state text NOT NULL DEFAULT 'draft', v int DEFAULT 0,
	PRIMARY KEY (t, d, u, n, b, f, o, s));
SELECT idem_attach('hi', 'hi_k', 'state', history => true);
SET timezone = 'Asia/Tokyo'; SET datestyle = 'German'; SET bytea_output = 'escape'; SET extra_float_digits = 0;
INSERT INTO hi_k VALUES ('2026-01-01 00:00:00+00', '2026-02-03', '00000000-0000-0000-0000-00000000000a', 1.50, '\x00ff', 0.1::float8 + 0.2, true, 'é');
RESET timezone; RESET datestyle; RESET bytea_output; RESET extra_float_digits;
SELECT jsonb_pretty(row_key) FROM hi_new() WHERE tab = 'hi_k';
CREATE TABLE hi_name (id regclass PRIMARY KEY, state text NOT NULL DEFAULT 'draft', v int DEFAULT 0);
SELECT idem_attach('hi', 'hi_name', 'state', history => true);
INSERT INTO hi_name VALUES ('hi_k'), ('pg_class');
SET quote_all_identifiers = on; SET search_path = 'idem';
UPDATE public.hi_name SET state = 'pending';
SELECT public.idem_why_not('public.hi_name', 'public.hi_k', 'approve') IS NULL AS found;
RESET quote_all_identifiers; RESET search_path;
SELECT row_key, to_state FROM hi_new() WHERE tab = 'hi_name' ORDER BY row_key, to_state;
DROP TABLE hi_name;

-- partitioned: by the state itself, and by another column
CREATE TABLE hi_p (id int, state text NOT NULL, v int DEFAULT 0, PRIMARY KEY (id, state)) PARTITION BY LIST (state);
CREATE TABLE hi_p1 PARTITION OF hi_p FOR VALUES IN ('draft');
CREATE TABLE hi_p2 PARTITION OF hi_p DEFAULT;
SELECT idem_attach('hi', 'hi_p', 'state', history => true);
INSERT INTO hi_p VALUES (1, 'draft', 0), (2, 'draft', 100);
UPDATE hi_p SET state = 'pending';
UPDATE hi_p2 SET state = 'approved' WHERE id = 1;
UPDATE hi_p SET v = 3;
SELECT * FROM hi_new();
SELECT event, to_state FROM idem_history('hi_p', '{"id": 1, "state": "approved"}');
SELECT event, to_state FROM idem_history('hi_p2', '{"id": 1, "state": "approved"}');
-- inherited
CREATE TABLE hi_i (id int PRIMARY KEY, state text NOT NULL, v int DEFAULT 0);
CREATE TABLE hi_j (PRIMARY KEY (id)) INHERITS (hi_i);
SELECT idem_attach('hi', 'hi_i', 'state', history => true);
INSERT INTO hi_j VALUES (1, 'draft');
UPDATE hi_i SET state = 'pending';
SELECT * FROM hi_new();

-- exempt roles and observe mode: recorded without an event
SELECT idem_detach('hi_t', 'state');
SELECT idem_attach('hi', 'hi_t', 'state', history => true, mode => 'observe');
SET client_min_messages = error;
UPDATE hi_t SET state = 'done' WHERE id = 11;
UPDATE hi_t SET state = 'nowhere' WHERE id = 13;
SET client_min_messages = warning;
SELECT * FROM hi_new();
SELECT idem_detach('hi_t', 'state');
UPDATE hi_t SET state = 'draft' WHERE id = 16;
SELECT * FROM hi_new();

-- no history without names of rows
CREATE TABLE hi_n (id int, state text, v int);
SELECT idem_attach('hi', 'hi_n', 'state', history => true);
ALTER TABLE hi_fk DROP CONSTRAINT hi_fk_pkey;
UPDATE hi_fk SET state = 'draft' WHERE state = 'approved';

-- append-only, but for what is past its time
UPDATE idem.history SET event = 'x' WHERE false;
TRUNCATE idem.history;
DELETE FROM idem.history WHERE machine = 'hi';
SELECT idem_attach('hi', 'hi_t', 'state', history => true, accept_existing => true, keep => '1 microsecond');
INSERT INTO hi_t VALUES (100, 'draft');
SELECT count(*) FROM idem_history('hi_t', 100);
SELECT removed >= 1 AS some FROM idem_sweep() WHERE kind = 'history';
SELECT count(*) FROM idem_history('hi_t', 100);
SELECT count(*) FROM idem_history('hi_t', 1);

-- what its owner has put on it is honoured
CREATE FUNCTION hi_tell() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	RAISE WARNING '% % as %', new.event, new.row_key, CURRENT_USER = pg_get_userbyid((SELECT relowner FROM pg_class WHERE oid = 'idem.history'::regclass));
	RETURN NULL;
END $$;
CREATE TRIGGER tell AFTER INSERT ON idem.history FOR EACH ROW EXECUTE FUNCTION hi_tell();
SET ROLE regress_idem_hist_app;
UPDATE hi_v SET state = 'pending' WHERE a = 2;
RESET ROLE;
DROP TRIGGER tell ON idem.history;
SELECT event, to_state FROM idem_history('hi_v', '{"a": 2, "b": "y"}');

-- how long rows stay
SELECT machine, state, count, median >= 0 AS median, p95 >= median AS p95, oldest <= clock_timestamp() AS oldest
FROM idem.dwell WHERE machine = 'hi' ORDER BY state;

-- not as anything but the triggers that they are
CREATE TRIGGER wrong BEFORE INSERT ON hi_n FOR EACH ROW EXECUTE FUNCTION idem_history_changed('hi', '{}', 'x');
INSERT INTO hi_n VALUES (1, 'draft');
SELECT idem_history_changed();

-- a foreign key's action on a partitioned table, and on one with children
CREATE TABLE hi_ref (state text PRIMARY KEY);
INSERT INTO hi_ref VALUES ('draft'), ('pending'), ('approved');
CREATE TABLE hi_fp (id int, state text DEFAULT 'draft' REFERENCES hi_ref ON DELETE SET DEFAULT ON UPDATE CASCADE,
	v int DEFAULT 0, k int, PRIMARY KEY (id, k)) PARTITION BY LIST (k);
CREATE TABLE hi_fp1 PARTITION OF hi_fp DEFAULT;
CREATE TABLE hi_fi (id int PRIMARY KEY, state text DEFAULT 'draft' REFERENCES hi_ref ON DELETE SET DEFAULT ON UPDATE CASCADE, v int DEFAULT 0);
CREATE TABLE hi_fi1 (PRIMARY KEY (id)) INHERITS (hi_fi);
SELECT idem_attach('hi', 'hi_fp', 'state', history => true), idem_attach('hi', 'hi_fi', 'state', history => true);
INSERT INTO hi_fp (id, k) VALUES (1, 1), (2, 1);
INSERT INTO hi_fi (id) VALUES (1);
UPDATE hi_fp SET state = 'pending' WHERE id = 1;
UPDATE hi_fp SET state = 'approved' WHERE id = 1;
UPDATE hi_fi SET state = 'pending';
UPDATE hi_fi SET state = 'approved';
DELETE FROM hi_ref WHERE state = 'approved';
UPDATE hi_ref SET state = 'nowhere' WHERE state = 'draft';
SELECT table_name, row_key, event, from_state, to_state FROM idem.history WHERE table_name ~ 'hi_f[pi]' AND from_state IS NOT NULL ORDER BY seq;
DROP TABLE hi_fp, hi_fi, hi_fi1, hi_ref;
-- a note tells of one step of a row alone
INSERT INTO idem.machine (name) VALUES ('hn');
INSERT INTO idem.state (machine, name, initial, final, self) VALUES
	('hn', 'a', true, false, 'noop'), ('hn', 'b', false, false, 'noop'), ('hn', 'c', false, false, 'noop');
INSERT INTO idem.transition (machine, event, from_state, to_state, priority, guard) VALUES
	('hn', 'e1', 'a', 'b', 1, 'new.v < 10'), ('hn', 'e2', 'a', 'b', 2, NULL), ('hn', 'e3', 'a', 'c', 3, NULL),
	('hn', 'e4', 'b', 'c', 4, NULL), ('hn', 'back1', 'c', 'a', 5, 'new.v > 10'), ('hn', 'back2', 'c', 'a', 6, NULL);
CREATE TABLE hn_state (state text PRIMARY KEY);
INSERT INTO hn_state VALUES ('a'), ('b'), ('c');
CREATE TABLE hn_t (id int PRIMARY KEY, state text NOT NULL DEFAULT 'a' REFERENCES hn_state ON DELETE SET DEFAULT,
	v int NOT NULL DEFAULT 0 CHECK (v <> 99));
SELECT idem_attach('hn', 'hn_t', 'state', history => true);
INSERT INTO hn_t SELECT generate_series(1, 5);
-- an update that failed, then another
BEGIN;
SAVEPOINT s;
UPDATE hn_t SET state = 'b', v = 99 WHERE id = 1;
ROLLBACK TO s;
UPDATE hn_t SET state = 'c' WHERE id = 1;
COMMIT;
SELECT event, from_state, to_state FROM idem_history('hn_t', 1) WHERE from_state IS NOT NULL;
-- a savepoint that was released
BEGIN;
SAVEPOINT s;
UPDATE hn_t SET state = 'b', v = 11 WHERE id = 2;
RELEASE s;
COMMIT;
SELECT event, from_state, to_state FROM idem_history('hn_t', 2) WHERE from_state IS NOT NULL;
-- a later trigger makes another step of it
CREATE FUNCTION hn_other() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF new.id = 3 THEN new.state := 'c'; END IF;
	RETURN new;
END $$;
CREATE TRIGGER "~zzz" BEFORE UPDATE ON hn_t FOR EACH ROW EXECUTE FUNCTION hn_other();
UPDATE hn_t SET state = 'b' WHERE id = 3;
SELECT event, from_state, to_state FROM idem_history('hn_t', 3) WHERE from_state IS NOT NULL;
DROP TRIGGER "~zzz" ON hn_t;
-- a trigger after the update moves the row on
CREATE FUNCTION hn_on() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF new.state = 'b' THEN UPDATE hn_t SET state = 'c' WHERE id = new.id; END IF;
	RETURN NULL;
END $$;
CREATE TRIGGER moves_on AFTER UPDATE ON hn_t FOR EACH ROW EXECUTE FUNCTION hn_on();
SELECT outcome FROM idem_fire('hn_t', 4, 'e2', key => 'outer', context => '{"out": 1}');
SELECT h.event, h.from_state, h.to_state, h.key, h.context FROM idem_history('hn_t', 4) AS h WHERE h.from_state IS NOT NULL ORDER BY h.event;
DROP TRIGGER moves_on ON hn_t;
-- a foreign key's action
DELETE FROM hn_state WHERE state = 'c';
SELECT row_key, event, from_state, to_state FROM idem.history WHERE machine = 'hn' AND to_state = 'a' AND from_state IS NOT NULL ORDER BY row_key;
DELETE FROM idem.key WHERE key = 'outer';
DROP TABLE hn_t, hn_state;
DROP FUNCTION hn_other, hn_on;
ALTER TABLE idem.history DISABLE TRIGGER protected_row;
DELETE FROM idem.history WHERE machine = 'hn';
ALTER TABLE idem.history ENABLE TRIGGER protected_row;
DELETE FROM idem.machine WHERE name = 'hn';

DROP FUNCTION hi_new();
DROP TABLE hi_seen, hi_t, hi_fk, hi_state, hi_v, hi_k, hi_p, hi_j, hi_i, hi_n;
DROP FUNCTION hi_skip, hi_along, hi_tell;
ALTER TABLE idem.history DISABLE TRIGGER protected_row;
DELETE FROM idem.history WHERE machine = 'hi';
ALTER TABLE idem.history ENABLE TRIGGER protected_row;
DELETE FROM idem.machine WHERE name = 'hi';
SELECT idem_revoke('regress_idem_hist_app'), idem_revoke('regress_idem_hist_other');
REVOKE ALL ON SCHEMA public FROM regress_idem_hist_app;
REVOKE USAGE ON SCHEMA public FROM regress_idem_hist_app, regress_idem_hist_other;
DROP ROLE regress_idem_hist_app, regress_idem_hist_other;
