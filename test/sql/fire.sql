-- Events: every verdict, in the order of judging, for every form of id.

\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE ROLE regress_idem_fire_app;
CREATE ROLE regress_idem_fire_boss;
SELECT idem_grant('regress_idem_fire_app'), idem_grant('regress_idem_fire_boss');
GRANT USAGE ON SCHEMA public TO regress_idem_fire_app, regress_idem_fire_boss;

INSERT INTO idem.machine (name) VALUES ('fi');
INSERT INTO idem.state (machine, name, initial, final, frozen, self) VALUES
	('fi', 'draft', true, false, false, 'noop'), ('fi', 'pending', false, false, false, 'reenter'),
	('fi', 'approved', false, false, false, 'deny'), ('fi', 'rejected', false, true, false, 'noop'),
	('fi', 'archived', false, true, true, 'noop');
INSERT INTO idem.transition (machine, event, from_state, to_state, priority, guard, roles) VALUES
	('fi', 'submit', 'draft', 'pending', 1, 'new.amount > 0', NULL),
	('fi', 'save', 'draft', 'draft', 2, NULL, NULL),
	('fi', 'poke', 'pending', 'pending', 3, NULL, NULL),
	('fi', 'poke', 'approved', 'approved', 4, NULL, NULL),
	('fi', 'approve', 'pending', 'approved', 5, 'new.amount < 1000', '{regress_idem_fire_boss}'),
	('fi', 'approve', 'pending', 'rejected', 6, 'new.amount >= 1000', '{regress_idem_fire_boss}'),
	('fi', 'reject', 'pending', 'rejected', 7, NULL, NULL),
	('fi', 'archive', 'approved', 'archived', 8, NULL, NULL);
CREATE TABLE fi_t (id int PRIMARY KEY, state text NOT NULL DEFAULT 'draft', amount int, version int NOT NULL DEFAULT 1);
SELECT idem_attach('fi', 'fi_t', 'state', history => true, events_only => true), idem_attach_version('fi_t', 'version');
GRANT SELECT, INSERT, UPDATE ON fi_t TO regress_idem_fire_app, regress_idem_fire_boss;
INSERT INTO fi_t (id, amount) SELECT i, i FROM generate_series(0, 20) AS i;
SET ROLE regress_idem_fire_app;

-- applied; already, where the event leads
SELECT * FROM idem_fire('fi_t', 1, 'submit');
SELECT * FROM idem_fire('fi_t', 1, 'submit');
SELECT * FROM idem_try_fire('fi_t', 1, 'submit');
-- guarded, forbidden, illegal, missing, stale
SELECT * FROM idem_try_fire('fi_t', 0, 'submit');
SELECT * FROM idem_fire('fi_t', 0, 'submit');
SELECT * FROM idem_try_fire('fi_t', 1, 'approve');
SELECT * FROM idem_fire('fi_t', 1, 'approve');
SELECT * FROM idem_try_fire('fi_t', 2, 'archive');
SELECT * FROM idem_fire('fi_t', 2, 'archive');
SELECT * FROM idem_try_fire('fi_t', 99, 'submit');
SELECT * FROM idem_fire('fi_t', 99, 'submit');
SELECT * FROM idem_try_fire('fi_t', 2, 'submit', version => 7);
SELECT * FROM idem_fire('fi_t', 2, 'submit', version => 7);
SELECT * FROM idem_fire('fi_t', 2, 'submit', version => 1);
-- the same role does not get past the column
UPDATE fi_t SET state = 'rejected' WHERE id = 1;
RESET ROLE;
SET ROLE regress_idem_fire_boss;
SELECT * FROM idem_fire('fi_t', 1, 'approve');
SELECT * FROM idem_fire('fi_t', 1, 'archive');
SELECT * FROM idem_try_fire('fi_t', 1, 'archive');
SELECT * FROM idem_fire('fi_t', 1, 'archive');
-- stale comes before frozen
SELECT outcome FROM idem_try_fire('fi_t', 1, 'archive', version => 1);
RESET ROLE;
-- to the same state: noop, reenter, deny
SELECT * FROM idem_try_fire('fi_t', 3, 'save');
SELECT * FROM idem_try_fire('fi_t', 3, 'submit');
SELECT * FROM idem_try_fire('fi_t', 3, 'poke');
SELECT * FROM idem_try_fire('fi_t', 3, 'poke');
GRANT regress_idem_fire_boss TO CURRENT_USER;
SELECT * FROM idem_try_fire('fi_t', 3, 'approve');
SELECT * FROM idem_try_fire('fi_t', 3, 'poke');
-- a re-entry counts the version on, also where some columns are ignored, unless the state is
CREATE TABLE fi_ign (id int PRIMARY KEY, state text NOT NULL DEFAULT 'draft', amount int DEFAULT 1, seen int, version int NOT NULL DEFAULT 1);
SELECT idem_attach('fi', 'fi_ign', 'state', history => true), idem_attach_version('fi_ign', 'version', ignore => '{seen}');
INSERT INTO fi_ign (id) VALUES (1), (2);
SELECT outcome, version FROM idem_fire_many('fi_ign', '{1,2}'::int[], 'submit');
SELECT outcome, version FROM idem_fire('fi_ign', 1, 'poke', version => 2);
SELECT outcome, version FROM idem_try_fire('fi_ign', 1, 'poke', version => 2);
SELECT id, outcome, version FROM idem_fire_many('fi_ign', '{1,2}'::int[], 'poke');
UPDATE fi_ign SET seen = 1 RETURNING id, version;
SELECT event, version FROM idem_history('fi_ign', 1);
SELECT idem_detach_version('fi_ign'), idem_attach_version('fi_ign', 'version', ignore => '{state}');
SELECT outcome, version FROM idem_fire('fi_ign', 1, 'poke');
DROP TABLE fi_ign;
-- one to the same state takes its turn among the event's others, whatever the state's mode
SELECT idem_define('fi_retry', E'stateDiagram-v2\n [*] --> trying\n trying --> trying : attempt [new.n < 3]\n trying --> failed : attempt [new.n < 9]\n'
	'trying --> trying : wait [new.n < 3] by regress_idem_fire_app\n failed --> [*]');
CREATE TABLE fi_job (id int PRIMARY KEY, s text NOT NULL DEFAULT 'trying', n int NOT NULL);
SELECT idem_attach('fi_retry', 'fi_job', 's');
INSERT INTO fi_job (id, n) VALUES (2, 2), (3, 3), (9, 9);
CREATE FUNCTION fi_ask(event text) RETURNS TABLE (id int, outcome text, to_state text, why text, allowed text) LANGUAGE sql AS $$
	SELECT j.id, f.outcome, f.to_state, idem_why_not('fi_job', j.id, $1), (SELECT to_state FROM idem_allowed('fi_job', j.id) AS a WHERE a.event = $1)
	FROM fi_job AS j, idem_try_fire('fi_job', j.id, $1) AS f ORDER BY j.id $$;
BEGIN;
SELECT * FROM fi_ask('wait');
SELECT * FROM fi_ask('attempt');
SELECT id, s FROM fi_job ORDER BY id;
ROLLBACK;
UPDATE idem.state SET self = 'deny' WHERE machine = 'fi_retry' AND name = 'trying';
SELECT * FROM fi_ask('wait');
SELECT * FROM fi_ask('attempt');
DROP FUNCTION fi_ask(text);
-- its guard is not asked where the event has no other
UPDATE idem.transition SET guard = '1 / (new.n - new.n) > 0' WHERE machine = 'fi_retry' AND event = 'wait';
SELECT outcome FROM idem_try_fire('fi_job', 2, 'wait');
SELECT event FROM idem_allowed('fi_job', 2);
DROP TABLE fi_job;
DELETE FROM idem.machine WHERE name = 'fi_retry';
-- final
SELECT * FROM idem_try_fire('fi_t', 4, 'submit');
SELECT * FROM idem_try_fire('fi_t', 4, 'reject');
SELECT * FROM idem_try_fire('fi_t', 4, 'submit');
SELECT * FROM idem_fire('fi_t', 4, 'submit');
SELECT * FROM idem_fire('fi_t', 4, 'reject');

-- mistakes
SELECT * FROM idem_fire('fi_t', 5, 'nothing');
SELECT * FROM idem_try_fire('fi_t', 5, 'nothing');
SELECT * FROM idem_fire('fi_t', NULL::int, 'submit');
SELECT * FROM idem_fire(NULL, 5, 'submit');
SELECT * FROM idem_fire('fi_t', 5, NULL);
SELECT * FROM idem_fire('fi_t', 5, 'submit', machine => 'other');
SELECT * FROM idem_fire('fi_t', 5, 'submit', key => '');
SELECT * FROM idem_fire('fi_t', 'five', 'submit');
SELECT * FROM idem_fire('pg_class', 5, 'submit');
CREATE TABLE fi_u (id int PRIMARY KEY, state text DEFAULT 'draft', amount int DEFAULT 1);
SELECT * FROM idem_fire('fi_u', 5, 'submit');
SELECT idem_attach('fi', 'fi_u', 'state');
SELECT * FROM idem_fire('fi_u', 5, 'submit', version => 1);
BEGIN READ ONLY;
SELECT * FROM idem_try_fire('fi_t', 5, 'submit');
ROLLBACK;

-- with a key: once, and the same answer however the row went on
SELECT * FROM idem_fire('fi_t', 6, 'submit', key => 'k6');
SELECT * FROM idem_fire('fi_t', 6, 'reject');
SELECT * FROM idem_fire('fi_t', 6, 'submit', key => 'k6');
SELECT * FROM idem_try_fire('fi_t', 6, 'submit', key => 'k6', version => 1);
SELECT outcome FROM idem_try_fire('fi_t', 6, 'reject', key => 'k6');
SELECT outcome FROM idem_try_fire('fi_t', 7, 'submit', key => 'k6');
SELECT * FROM idem_fire('fi_t', 7, 'submit', key => 'k6');
-- what was refused spends no key
SELECT outcome FROM idem_try_fire('fi_t', 7, 'reject', key => 'k7');
SELECT outcome FROM idem_fire('fi_t', 7, 'submit', key => 'k7');
-- never the request's own
SET idem.key = 'request';
SELECT outcome FROM idem_fire('fi_t', 8, 'submit');
SELECT scope, key, state, response FROM idem.key WHERE scope = 'idem.fire' ORDER BY key;
RESET idem.key;
-- its scope is idem's own
SELECT idem_claim('k', scope => 'idem.fire');
-- gone with the transaction
BEGIN;
SELECT outcome FROM idem_fire('fi_t', 9, 'submit', key => 'k9');
ROLLBACK;
SELECT outcome FROM idem_fire('fi_t', 9, 'submit', key => 'k9');

-- context and key go into the history, once per call
SET idem.actor = 'ann';
SELECT (idem_fire('fi_t', 10, 'submit', key => 'k10', context => '{"why": "test"}')).*;
RESET idem.actor;
SELECT event, from_state, to_state, version, actor, key, context FROM idem_history('fi_t', 10);
SELECT count(*) FROM idem.history WHERE table_name = 'fi_t' AND row_key = '{"id": 10}';

-- ids of other types
CREATE TABLE fi_uuid (id uuid PRIMARY KEY, state varchar(20) DEFAULT 'draft', amount int DEFAULT 1);
SELECT idem_attach('fi', 'fi_uuid', 'state');
INSERT INTO fi_uuid VALUES ('00000000-0000-0000-0000-000000000001'), ('00000000-0000-0000-0000-000000000002');
SELECT * FROM idem_fire('fi_uuid', '00000000-0000-0000-0000-000000000001', 'submit');
SELECT * FROM idem_fire('fi_uuid', '00000000-0000-0000-0000-000000000002'::uuid, 'submit');
CREATE TYPE fi_enum AS ENUM ('draft', 'pending', 'approved', 'rejected', 'archived');
CREATE TABLE fi_two (a int, b text, state fi_enum DEFAULT 'draft', amount int DEFAULT 1, PRIMARY KEY (a, b));
SELECT idem_attach('fi', 'fi_two', 'state');
INSERT INTO fi_two VALUES (1, 'x'), (1, 'y');
SELECT * FROM idem_fire('fi_two', '{"a": 1, "b": "x"}', 'submit');
SELECT * FROM idem_fire('fi_two', '{"a": 1, "b": "y"}'::jsonb, 'submit');
SELECT * FROM idem_fire('fi_two', 1, 'submit');
PREPARE fire AS SELECT * FROM idem_fire($1, $2, $3);
EXECUTE fire('fi_t', '11', 'submit');
DEALLOCATE fire;

-- partitioned by the state
CREATE TABLE fi_p (id int, state text DEFAULT 'draft', amount int DEFAULT 1, PRIMARY KEY (id, state)) PARTITION BY LIST (state);
CREATE TABLE fi_p1 PARTITION OF fi_p FOR VALUES IN ('draft');
CREATE TABLE fi_p2 PARTITION OF fi_p DEFAULT;
SELECT idem_attach('fi', 'fi_p', 'state', history => true, events_only => true);
INSERT INTO fi_p (id) VALUES (1);
SELECT * FROM idem_fire('fi_p', '{"id": 1, "state": "draft"}', 'submit', context => '1');
SELECT * FROM idem_fire('fi_p', '{"id": 1, "state": "pending"}', 'reject');
SELECT * FROM idem_try_fire('fi_p', '{"id": 1, "state": "pending"}', 'reject');
SELECT event, from_state, to_state, context FROM idem.history WHERE table_name = 'fi_p' ORDER BY seq;

-- two machines on one table
INSERT INTO idem.machine (name) VALUES ('fi2');
INSERT INTO idem.state (machine, name, initial) VALUES ('fi2', 'off', true), ('fi2', 'on', false);
INSERT INTO idem.transition (machine, event, from_state, to_state) VALUES ('fi2', 'switch', 'off', 'on'), ('fi2', 'submit', 'on', 'off');
CREATE TABLE fi_both (id int PRIMARY KEY, state text DEFAULT 'draft', amount int DEFAULT 1, lamp text DEFAULT 'off');
SELECT idem_attach('fi', 'fi_both', 'state', events_only => true), idem_attach('fi2', 'fi_both', 'lamp', events_only => true);
INSERT INTO fi_both (id) VALUES (1);
SELECT * FROM idem_fire('fi_both', 1, 'switch');
SELECT * FROM idem_fire('fi_both', 1, 'submit');
SELECT idem_why_not('fi_both', 1, 'submit');
SELECT * FROM idem_allowed('fi_both', 1);
SELECT * FROM idem_fire('fi_both', 1, 'submit', machine => 'fi');
SELECT * FROM idem_fire('fi_both', 1, 'submit', machine => 'fi2');
SELECT * FROM idem_allowed('fi_both', 1) ORDER BY event;

-- the table's own triggers: one that moves another row gets no permission
CREATE FUNCTION fi_other() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	UPDATE fi_t SET state = 'pending' WHERE id = new.id + 1;
	RETURN new;
END $$;
CREATE TRIGGER other BEFORE UPDATE ON fi_t FOR EACH ROW WHEN (new.id = 13) EXECUTE FUNCTION fi_other();
SELECT * FROM idem_fire('fi_t', 13, 'submit');
DROP TRIGGER other ON fi_t;
-- one that suppresses the write is an error, not silence
CREATE FUNCTION fi_skip() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE TRIGGER skip BEFORE UPDATE ON fi_t FOR EACH ROW EXECUTE FUNCTION fi_skip();
SELECT * FROM idem_try_fire('fi_t', 13, 'submit', key => 'k13');
DROP TRIGGER skip ON fi_t;
SELECT outcome FROM idem_try_fire('fi_t', 13, 'submit', key => 'k13');
-- strict versions
CREATE TABLE fi_strict (id int PRIMARY KEY, state text DEFAULT 'draft', amount int DEFAULT 1, n bigint NOT NULL DEFAULT 5);
SELECT idem_attach('fi', 'fi_strict', 'state'), idem_attach_version('fi_strict', 'n', strict => true);
INSERT INTO fi_strict (id) VALUES (1), (2);
SELECT * FROM idem_fire('fi_strict', 1, 'submit', version => 5);
SELECT * FROM idem_fire_many('fi_strict', ARRAY[1, 2], 'submit');
-- of a partition or a child alone; and of a trigger that counts by itself
CREATE TABLE fi_sp (id int PRIMARY KEY, state text DEFAULT 'draft', amount int DEFAULT 1, n bigint NOT NULL DEFAULT 5) PARTITION BY RANGE (id);
CREATE TABLE fi_sp1 PARTITION OF fi_sp FOR VALUES FROM (0) TO (10);
CREATE TABLE fi_sp2 PARTITION OF fi_sp DEFAULT;
CREATE TABLE fi_si (id int PRIMARY KEY, state text DEFAULT 'draft', amount int DEFAULT 1);
CREATE TABLE fi_sc (n bigint NOT NULL DEFAULT 5, PRIMARY KEY (id)) INHERITS (fi_si);
CREATE FUNCTION fi_count() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN NEW.n = OLD.n + 1; RETURN NEW; END$$;
CREATE TRIGGER counts BEFORE UPDATE ON fi_sp2 FOR EACH ROW EXECUTE FUNCTION fi_count();
SELECT idem_attach('fi', 'fi_sp', 'state'), idem_attach('fi', 'fi_si', 'state'),
	idem_attach_version('fi_sp1', 'n', strict => true), idem_attach_version('fi_sp2', 'n', strict => true), idem_attach_version('fi_sc', 'n', strict => true);
INSERT INTO fi_sp (id) VALUES (1), (2), (3), (11);
INSERT INTO fi_sc (id) VALUES (1);
SELECT outcome FROM idem_fire('fi_sp', 1, 'submit');
SELECT id, outcome FROM idem_fire_many('fi_sp', ARRAY[2, 3, 11], 'submit');
SELECT outcome FROM idem_fire('fi_sc', 1, 'submit');
SELECT n FROM fi_sp UNION ALL SELECT n FROM fi_sc;
-- but a statement of a trigger inside it is not the verb's
CREATE FUNCTION fi_inside() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN UPDATE fi_sc SET amount = 7; RETURN NULL; END$$;
CREATE TRIGGER other AFTER UPDATE ON fi_sp1 FOR EACH ROW EXECUTE FUNCTION fi_inside();
INSERT INTO fi_sp (id) VALUES (4);
SELECT outcome FROM idem_fire('fi_sp', 4, 'submit');
DROP TABLE fi_sp, fi_sc, fi_si;
DROP FUNCTION fi_count(), fi_inside();

-- many
SELECT * FROM idem_fire_many('fi_t', ARRAY[15, 0, 14, 99, 1, 6], 'submit', key => 'many', context => '{"m": 1}');
SELECT * FROM idem_fire_many('fi_t', '{15,0,14,99,1,6}', 'submit', key => 'many');
SELECT * FROM idem_fire_many('fi_t', ARRAY[15, 14], 'approve', key => 'many');
SELECT * FROM idem_fire_many('fi_t', ARRAY[15, 16], 'submit', version => 1);
UPDATE fi_t SET amount = 5000 WHERE id = 14;
SELECT * FROM idem_fire_many('fi_t', ARRAY[14, 15], 'approve');
SELECT * FROM idem_fire_many('fi_t', ARRAY[]::int[], 'submit');
SELECT * FROM idem_fire_many('fi_t', ARRAY[17, 17], 'submit');
SELECT * FROM idem_fire_many('fi_t', '{17, 017}', 'submit');
SELECT * FROM idem_fire_many('fi_t', ARRAY[17, NULL], 'submit');
SELECT * FROM idem_fire_many('fi_t', NULL::int[], 'submit');
SELECT * FROM idem_fire_many('fi_t', ARRAY[17], 'nothing');
SELECT * FROM idem_fire_many('fi_two', ARRAY['{"a": 1, "b": "x"}', '{"a": 2, "b": "x"}']::jsonb[], 'reject');
SELECT * FROM idem_fire_many('fi_p', ARRAY['{"id": 1, "state": "rejected"}']::jsonb[], 'reject');
SELECT row_key, event, key, context FROM idem.history WHERE context = '{"m": 1}' ORDER BY seq;

-- what could be fired
SET ROLE regress_idem_fire_app;
SELECT * FROM idem_allowed('fi_t', 0);
SELECT * FROM idem_allowed('fi_t', 16);
SELECT * FROM idem_allowed('fi_t', 17);
SELECT * FROM idem_allowed('fi_t', '6');
SELECT * FROM idem_allowed('fi_t', 1);
SELECT * FROM idem_allowed('fi_t', 99);
SELECT idem_why_not('fi_t', 17, 'submit') IS NULL AS possible;
SELECT idem_why_not('fi_t', 0, 'submit');
SELECT idem_why_not('fi_t', '16', 'approve');
SELECT idem_why_not('fi_t', 17, 'archive');
SELECT idem_why_not('fi_t', 16, 'submit');
SELECT idem_why_not('fi_t', 1, 'archive');
SELECT idem_why_not('fi_t', 99, 'submit');
SELECT idem_why_not('fi_t', 17, 'nothing');
SELECT idem_why_not('fi_t', 17, NULL);
BEGIN READ ONLY;
SELECT * FROM idem_allowed('fi_t', 17);
SELECT pg_current_xact_id_if_assigned() IS NULL AS no_xid;
COMMIT;
-- privileges and policies are the caller's
RESET ROLE;
REVOKE UPDATE ON fi_t FROM regress_idem_fire_app;
SET ROLE regress_idem_fire_app;
SELECT * FROM idem_try_fire('fi_t', 17, 'submit');
RESET ROLE;
GRANT UPDATE ON fi_t TO regress_idem_fire_app;
ALTER TABLE fi_t ENABLE ROW LEVEL SECURITY;
CREATE POLICY visible ON fi_t TO regress_idem_fire_app USING (id > 17);
SET ROLE regress_idem_fire_app;
SELECT * FROM idem_try_fire('fi_t', 17, 'submit');
SELECT * FROM idem_fire_many('fi_t', ARRAY[17, 18], 'submit');
RESET ROLE;

-- a state of another machine freezes the row for this one, too
SELECT idem_define('fi3', 'stateDiagram-v2
	[*] --> open
	open --> shut : shut
	shut --> open : reopen
	note right of shut : frozen');
CREATE TABLE fi_frozen (id int PRIMARY KEY, state text DEFAULT 'draft', amount int DEFAULT 5, note text, lock text DEFAULT 'open') PARTITION BY RANGE (id);
CREATE TABLE fi_frozen_1 (note text, lock text DEFAULT 'open', id int NOT NULL, amount int DEFAULT 5, state text DEFAULT 'draft');
ALTER TABLE fi_frozen ATTACH PARTITION fi_frozen_1 FOR VALUES FROM (0) TO (10);
SELECT idem_attach('fi', 'fi_frozen', 'state'), idem_attach('fi3', 'fi_frozen', 'lock');
INSERT INTO fi_frozen VALUES (1), (2);
UPDATE fi_frozen SET lock = 'shut' WHERE id = 1;
SELECT * FROM idem_try_fire('fi_frozen', 1, 'submit');
SELECT * FROM idem_fire_many('fi_frozen', ARRAY[1, 2], 'submit');
\set VERBOSITY default
SELECT * FROM idem_fire('fi_frozen', 1, 'submit');
\set VERBOSITY terse
SELECT * FROM idem_allowed('fi_frozen', 1);
SELECT idem_why_not('fi_frozen', 1, 'submit');
-- nothing moves, so nothing hinders it
UPDATE fi_frozen SET lock = 'shut' WHERE id = 2;
SELECT * FROM idem_try_fire('fi_frozen', 2, 'submit');
-- where its trigger is disabled it does not
BEGIN;
ALTER TABLE fi_frozen DISABLE TRIGGER "~idem_lock";
SELECT * FROM idem_allowed('fi_frozen', 1);
ROLLBACK;
-- in mode observe it does not, nor for a role that is exempt
SELECT idem_detach('fi_frozen', 'lock'), idem_attach('fi3', 'fi_frozen', 'lock', mode => 'observe');
SELECT * FROM idem_allowed('fi_frozen', 1);
SELECT idem_detach('fi_frozen', 'lock'), idem_attach('fi3', 'fi_frozen', 'lock', exempt => ARRAY[current_user]);
SELECT * FROM idem_try_fire('fi_frozen', 1, 'submit');
DROP TABLE fi_frozen;

DROP TABLE fi_t, fi_u, fi_uuid, fi_two, fi_p, fi_both, fi_strict;
DROP TYPE fi_enum;
DROP FUNCTION fi_other, fi_skip;
ALTER TABLE idem.history DISABLE TRIGGER protected_row;
DELETE FROM idem.history WHERE machine IN ('fi', 'fi2');
ALTER TABLE idem.history ENABLE TRIGGER protected_row;
DELETE FROM idem.key WHERE scope = 'idem.fire';
DELETE FROM idem.machine WHERE name IN ('fi', 'fi2', 'fi3');
SELECT idem_revoke('regress_idem_fire_app'), idem_revoke('regress_idem_fire_boss');
REVOKE ALL ON SCHEMA public FROM regress_idem_fire_app, regress_idem_fire_boss;
DROP ROLE regress_idem_fire_app, regress_idem_fire_boss;
