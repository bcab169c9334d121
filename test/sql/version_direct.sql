-- idem_update writes plain tables without SQL, others by a statement: what comes out is the same.
-- Each case runs both ways on a table of its own; what differs is printed.

\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE ROLE regress_idem_direct;
SELECT idem_grant('regress_idem_direct');
CREATE SCHEMA regress_direct;
SET search_path = regress_direct, public;

-- the answer or error of one call, by one way, and the table afterwards
CREATE FUNCTION way(access text, role name, id text, version bigint, changes jsonb) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	answer text;
	v_state text; v_message text; v_detail text; v_table text; v_column text; v_constraint text;
BEGIN
	PERFORM set_config('idem.access', access, true);
	BEGIN
		IF role IS NOT NULL THEN
			EXECUTE format('SET LOCAL ROLE %I', role);
		END IF;
		SELECT u::text INTO answer FROM idem_update('t', id, version, changes) AS u;
		RESET ROLE;
		SET CONSTRAINTS ALL IMMEDIATE;
	EXCEPTION WHEN OTHERS THEN
		GET STACKED DIAGNOSTICS v_state = RETURNED_SQLSTATE, v_message = MESSAGE_TEXT, v_detail = PG_EXCEPTION_DETAIL,
			v_table = TABLE_NAME, v_column = COLUMN_NAME, v_constraint = CONSTRAINT_NAME;
		answer := concat_ws(' | ', v_state, v_message, v_detail, v_table, v_column, v_constraint);
	END;
	RETURN answer;
END $$;
CREATE FUNCTION change(id text, version bigint, changes jsonb, role name DEFAULT NULL) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	answer text[];
	content text[];
	size bigint[];
BEGIN
	FOR i IN 1 .. 2 LOOP
		BEGIN
			answer[i] := way((ARRAY['auto', 'sql'])[i], role, id, version, changes);
			content[i] := (SELECT coalesce(string_agg(t::text, ' ' ORDER BY t::text), '') FROM t);
			size[i] := (SELECT sum(pg_column_size(t.*)) FROM t);
			RAISE EXCEPTION USING ERRCODE = 'XX999';
		EXCEPTION WHEN SQLSTATE 'XX999' THEN NULL;
		END;
	END LOOP;
	IF answer[1] IS DISTINCT FROM answer[2] OR content[1] IS DISTINCT FROM content[2] OR size[1] IS DISTINCT FROM size[2] THEN
		RETURN format('DIFFERENT: %s %s %s <> %s %s %s', answer[1], content[1], size[1], answer[2], content[2], size[2]);
	END IF;
	RETURN answer[1] || CASE WHEN answer[1] LIKE '(updated%' THEN ' -> ' || content[1] ELSE '' END;
END $$;

-- a plain one
CREATE TABLE t (id int PRIMARY KEY, dropped int, a int NOT NULL DEFAULT 0, b text, c numeric(6, 2), d char(4), v bigint NOT NULL DEFAULT 1);
ALTER TABLE t DROP COLUMN dropped;
INSERT INTO t VALUES (1, 10, 'x'), (2, 20, repeat('long ', 2));
ALTER TABLE t ADD COLUMN late int DEFAULT 7;
SELECT idem_attach_version('t', 'v');
SELECT change('1', 1, '{"a": 5}');
SELECT change('1', 1, '{"a": 5, "b": null, "c": 1.005, "d": "ab", "late": 8}');
SELECT change('1', 1, '{}');
SELECT change('1', 2, '{"a": 5}');
SELECT change('1', 9223372036854775807, '{"a": 5}');
SELECT change('9', 1, '{"a": 5}');
SELECT change('1', 1, '{"id": 7}');
SELECT change('1', 1, '{"id": 2}');
SELECT change('1', 1, '{"a": null}');
SELECT change('1', 1, '{"id": null}');
SELECT change('1', 1, jsonb_build_object('b', repeat('0123456789', 5000))) = (SELECT format('(updated,2,) -> (1,10,%s,,,2,7) (2,20,"long long ",,,1,7)', repeat('0123456789', 5000))) AS toasted;
UPDATE t SET v = 1, b = repeat('0123456789', 5000) WHERE id = 1;
SELECT length(change('1', 2, '{"a": 1}')), (SELECT length(b) FROM t WHERE id = 1);
UPDATE t SET b = 'x' WHERE id = 1;
-- constraints
ALTER TABLE t ADD CONSTRAINT positive CHECK (a >= 0 AND b <> 'bad'), ADD UNIQUE (a), ADD EXCLUDE USING btree (b WITH =);
SELECT change('1', 3, '{"a": -1}');
SELECT change('1', 3, '{"b": "bad"}');
SELECT change('1', 3, '{"a": 20}');
SELECT change('1', 3, '{"b": "long long "}');
SELECT change('1', 3, '{"a": 30, "b": "other"}');
-- other indexes: partial, on an expression, of other kinds, with included columns
CREATE INDEX ON t ((a + 1)) WHERE a > 5;
CREATE INDEX ON t USING hash (b);
CREATE INDEX ON t USING brin (late);
CREATE INDEX ON t (late) INCLUDE (c);
SELECT change('1', 3, '{"a": 31, "late": 9, "c": 3}');
SELECT outcome FROM idem_update('t', 1, 3, '{"a": 32, "late": 9, "c": 3, "b": "found"}');
SET enable_seqscan = off;
SELECT a FROM t WHERE a + 1 = 33 AND a > 5;
SELECT a FROM t WHERE b = 'found';
SELECT a FROM t WHERE late = 9;
RESET enable_seqscan;
-- twice in one statement, and in one that wrote the row itself
SELECT v, u.outcome, u.version FROM t, LATERAL idem_update('t', t.id, t.v, '{"b": "again"}') AS u WHERE id = 1;
SELECT (SELECT outcome FROM idem_update('t', 1, 5, '{"a": 40}')), (SELECT outcome FROM idem_update('t', 1, 6, '{"a": 41}')), (SELECT outcome FROM idem_update('t', 1, 5, '{"a": 42}'));
SELECT id, a, v FROM t ORDER BY id;
WITH w AS (UPDATE t SET a = 50 WHERE id = 1 RETURNING id) SELECT u.outcome, u.version FROM w, LATERAL idem_update('t', w.id, 7, '{"a": 51}') AS u;
SELECT id, a, v FROM t ORDER BY id;
-- in an aborted subtransaction
BEGIN;
SAVEPOINT s;
SELECT outcome FROM idem_update('t', 1, 8, '{"a": 60}');
ROLLBACK TO s;
SELECT outcome, version FROM idem_update('t', 1, 8, '{"a": 61}');
SELECT outcome, version FROM idem_update('t', 1, 9, '{"a": 62}');
ROLLBACK;
SELECT id, a, v FROM t ORDER BY id;
-- HOT
CREATE TABLE hot (id int PRIMARY KEY, a int, v int NOT NULL DEFAULT 1) WITH (fillfactor = 50);
SELECT idem_attach_version('hot', 'v');
INSERT INTO hot SELECT generate_series(1, 10);
BEGIN;
SELECT count(*) FILTER (WHERE outcome = 'updated') FROM generate_series(1, 10) AS i, LATERAL idem_update('hot', i, 1, '{"a": 1}');
SELECT pg_stat_get_xact_tuples_updated('hot'::regclass) AS updated, pg_stat_get_xact_tuples_hot_updated('hot'::regclass) AS hot;
COMMIT;
DROP TABLE hot;

-- foreign keys, to and from: also to a row of this very transaction
CREATE TABLE parent (id int PRIMARY KEY);
CREATE TABLE child (t int REFERENCES t (id) ON UPDATE CASCADE);
INSERT INTO parent VALUES (1), (2);
INSERT INTO child VALUES (1);
ALTER TABLE t ADD COLUMN p int REFERENCES parent DEFERRABLE;
SELECT change('1', 8, '{"a": 5}');
SELECT change('1', 8, '{"p": 2}');
SELECT change('1', 8, '{"p": 3}');
SELECT change('1', 8, '{"id": 4}');
BEGIN;
SET CONSTRAINTS ALL DEFERRED;
INSERT INTO t (id, a, p) VALUES (5, 100, 9);
SELECT outcome FROM idem_update('t', 5, 1, '{"b": "late"}');
COMMIT;
BEGIN;
SET CONSTRAINTS ALL DEFERRED;
INSERT INTO t (id, a, p) VALUES (5, 100, 9);
SELECT outcome FROM idem_update('t', 5, 1, '{"p": 2}');
ROLLBACK;
DROP TABLE child;

-- privileges
SELECT way('auto', 'regress_idem_direct', '1', 8, '{"a": 5}') AS hidden;
GRANT USAGE ON SCHEMA regress_direct TO regress_idem_direct;
GRANT SELECT (id, v) ON t TO regress_idem_direct;
SELECT change('1', 8, '{"a": 5}', 'regress_idem_direct');
GRANT UPDATE (a, v) ON t TO regress_idem_direct;
SELECT change('1', 8, '{"a": 5}', 'regress_idem_direct');
SELECT change('1', 8, '{"b": "x"}', 'regress_idem_direct');
SELECT change('1', 8, '{"a": -1}', 'regress_idem_direct');
SELECT change('1', 7, '{"a": 5}', 'regress_idem_direct');
REVOKE SELECT (v) ON t FROM regress_idem_direct;
SELECT change('1', 8, '{"a": 5}', 'regress_idem_direct');
GRANT SELECT ON t TO regress_idem_direct;
SELECT change('1', 7, '{"a": 5}', 'regress_idem_direct');
REVOKE USAGE ON SCHEMA regress_direct FROM regress_idem_direct;
BEGIN;
SET LOCAL ROLE regress_idem_direct;
SELECT outcome FROM idem_update((SELECT oid FROM pg_class WHERE relname = 't' AND relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = 'regress_direct')), 1, 8, '{"a": 5}');
ROLLBACK;

-- what a statement honours: triggers of every kind, rules, row security, generated and identity columns
CREATE FUNCTION seen() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO saw VALUES (TG_NAME);
	RETURN NEW;
END $$;
CREATE TABLE saw (what text);
CREATE TRIGGER a1 BEFORE UPDATE ON t FOR EACH ROW EXECUTE FUNCTION seen();
CREATE TRIGGER a2 AFTER UPDATE ON t FOR EACH ROW EXECUTE FUNCTION seen();
CREATE TRIGGER a3 BEFORE UPDATE ON t EXECUTE FUNCTION seen();
CREATE TRIGGER a4 AFTER UPDATE ON t EXECUTE FUNCTION seen();
CREATE TRIGGER a5 AFTER UPDATE ON t REFERENCING NEW TABLE AS n EXECUTE FUNCTION seen();
CREATE CONSTRAINT TRIGGER a6 AFTER UPDATE ON t DEFERRABLE FOR EACH ROW EXECUTE FUNCTION seen();
CREATE FUNCTION only_trigger(keep name) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	name name;
	answer text;
BEGIN
	FOR name IN SELECT tgname FROM pg_trigger WHERE tgrelid = 't'::regclass AND tgname ~ '^a\d' AND tgname <> keep LOOP
		EXECUTE format('DROP TRIGGER %I ON t', name);
	END LOOP;
	SELECT outcome INTO answer FROM idem_update('t', 1, 8, '{"a": 5}');
	SET CONSTRAINTS ALL IMMEDIATE;
	SELECT answer || ' ' || coalesce(string_agg(what, ' '), '') INTO answer FROM saw;
	RAISE EXCEPTION USING ERRCODE = 'XX999', MESSAGE = answer;
EXCEPTION WHEN SQLSTATE 'XX999' THEN RETURN SQLERRM;
END $$;
SELECT only_trigger('a' || i) FROM generate_series(1, 7) AS i;
DROP FUNCTION only_trigger;
DROP TRIGGER a1 ON t; DROP TRIGGER a2 ON t; DROP TRIGGER a3 ON t; DROP TRIGGER a4 ON t; DROP TRIGGER a5 ON t; DROP TRIGGER a6 ON t;
CREATE RULE r AS ON UPDATE TO t DO ALSO INSERT INTO saw VALUES ('rule');
SELECT change('1', 8, '{"a": 5}');
DROP RULE r ON t;
CREATE RULE r AS ON UPDATE TO t DO INSTEAD NOTHING;
CREATE RULE d AS ON DELETE TO t DO INSTEAD NOTHING;
SELECT change('1', 8, '{"a": 5}');
SELECT change('1', 7, '{"a": 5}');
SELECT idem_delete('t', 1, 8);
DROP RULE r ON t;
DROP RULE d ON t;
SELECT change('1', 8, '{"a": 5}');
ALTER TABLE t ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY p ON t USING (id = 2) WITH CHECK (a < 100);
GRANT USAGE ON SCHEMA regress_direct TO regress_idem_direct;
GRANT UPDATE ON t TO regress_idem_direct;
SELECT change('1', 8, '{"a": 5}', 'regress_idem_direct');
SELECT change('2', 1, '{"a": 5}', 'regress_idem_direct');
SELECT change('2', 1, '{"a": 500}', 'regress_idem_direct');
DROP POLICY p ON t;
ALTER TABLE t DISABLE ROW LEVEL SECURITY, NO FORCE ROW LEVEL SECURITY;
ALTER TABLE t ADD COLUMN g int GENERATED ALWAYS AS (a * 2) STORED;
SELECT change('1', 8, '{"a": 5}');
SELECT change('1', 8, '{"g": 5}');
ALTER TABLE t DROP COLUMN g;
ALTER TABLE t ADD COLUMN i int GENERATED ALWAYS AS IDENTITY;
SELECT change('1', 8, '{"i": 5}');
SELECT change('1', 8, '{"a": 5}');
ALTER TABLE t ADD UNIQUE (late) DEFERRABLE INITIALLY DEFERRED;
SELECT change('1', 8, '{"late": 7}');
SELECT idem_detach_version('t'), idem_attach_version('t', 'v', mode => 'next', strict => true, ignore => '{b}');
SELECT change('1', 8, '{"b": "only ignored"}');
ALTER TABLE t DISABLE TRIGGER ALL;
SELECT change('1', 8, '{"a": 5}');
ALTER TABLE t ENABLE TRIGGER ALL;
-- not writable, published without a name for its rows
ALTER TABLE t REPLICA IDENTITY NOTHING;
SET client_min_messages = error;
CREATE PUBLICATION regress_idem_pub FOR TABLE t;
RESET client_min_messages;
SELECT change('1', 8, '{"a": 5}');
DROP PUBLICATION regress_idem_pub;
-- the largest version
SELECT idem_detach_version('t'), idem_attach_version('t', 'v');
ALTER TABLE t DISABLE TRIGGER USER;
UPDATE t SET v = 9223372036854775807 WHERE id = 1;
ALTER TABLE t ENABLE TRIGGER USER;
SELECT change('1', 9223372036854775807, '{"a": 5}');
DROP TABLE t, parent, saw;

-- keys of several columns, of other types, with a collation; inherited, unlogged, temporary
CREATE TABLE t (b varchar(10) COLLATE "C", a uuid, x int, v smallint NOT NULL DEFAULT 1, PRIMARY KEY (a, b));
SELECT idem_attach_version('t', 'v');
INSERT INTO t VALUES ('one', '00000000-0000-0000-0000-000000000001', 1), ('two', '00000000-0000-0000-0000-000000000001', 2);
SELECT change('{"a": "00000000-0000-0000-0000-000000000001", "b": "two"}', 1, '{"x": 5}');
SELECT change('{"a": "00000000-0000-0000-0000-000000000001", "b": "two"}', 1, '{"b": "three"}');
SELECT change('{"a": "00000000-0000-0000-0000-000000000001", "b": "two"}', 1, '{"b": "one"}');
SELECT change('{"a": "00000000-0000-0000-0000-000000000001", "b": "two "}', 1, '{"x": 5}');
DROP TABLE t;
CREATE TYPE mood AS ENUM ('sad', 'ok');
CREATE DOMAIN key AS mood;
CREATE DOMAIN count AS int CHECK (VALUE < 2);
CREATE UNLOGGED TABLE t (id key PRIMARY KEY, x numeric[], v int NOT NULL DEFAULT 1);
SELECT idem_attach_version('t', 'v');
CREATE TABLE heir () INHERITS (t);
INSERT INTO heir VALUES ('ok');
INSERT INTO t VALUES ('sad');
SELECT change('sad', 1, '{"x": [1, 2.50]}');
SELECT change('ok', 1, '{"x": [1]}', 'regress_idem_direct');
SELECT change('ok', 1, '{"x": [1]}');
DROP TABLE heir;
ALTER TABLE t DISABLE TRIGGER USER;
SELECT idem_detach_version('t');
ALTER TABLE t ALTER v TYPE count;
SELECT idem_attach_version('t', 'v');
SELECT change('sad', 1, '{}');
DROP TABLE t;
CREATE TEMP TABLE t (id date PRIMARY KEY, x tsrange, v int NOT NULL DEFAULT 1);
SELECT idem_attach_version('t', 'v');
INSERT INTO t VALUES ('2026-01-01');
SELECT change('2026-01-01', 1, '{"x": "[2026-01-01,2026-02-01)"}');
DROP TABLE t;
-- what a dropped column held is not carried along
CREATE TABLE t (id int PRIMARY KEY, dropped text, a int, v int NOT NULL DEFAULT 1);
SELECT idem_attach_version('t', 'v');
INSERT INTO t VALUES (1, repeat('x', 100), 1);
ALTER TABLE t DROP COLUMN dropped;
SELECT change('1', 1, '{"a": 2}');
-- a constraint that writes the very row
CREATE FUNCTION writes(x int, y int) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	IF y = 7 THEN
		UPDATE t SET a = 8 WHERE id = x;
	END IF;
	RETURN true;
END $$;
ALTER TABLE t ADD CHECK (writes(id, a));
SELECT change('1', 1, '{"a": 7}');
SELECT change('1', 1, '{"a": 8}');
DROP TABLE t;
DROP FUNCTION writes;
-- rows of tables with machines
INSERT INTO idem.machine (name) VALUES ('vd');
INSERT INTO idem.state (machine, name, initial) VALUES ('vd', 'a', true), ('vd', 'b', false), ('vd', 'c', false);
INSERT INTO idem.transition (machine, event, from_state, to_state) VALUES ('vd', 'go', 'a', 'b');
CREATE TABLE t (id int PRIMARY KEY, state text DEFAULT 'a', v int NOT NULL DEFAULT 1);
SELECT idem_attach('vd', 't', 'state', history => true), idem_attach_version('t', 'v');
INSERT INTO t VALUES (1);
SELECT change('1', 1, '{"state": "b"}');
SELECT change('1', 1, '{"state": "c"}');
SELECT change('1', 7, '{}');
SELECT outcome FROM idem_update('t', 1, 1, '{"state": "b"}');
SELECT event, version FROM idem_history('t', 1) ORDER BY seq;
DROP TABLE t;
DELETE FROM idem.machine WHERE name = 'vd';
ALTER TABLE idem.history DISABLE TRIGGER protected_row;
DELETE FROM idem.history WHERE machine = 'vd';
ALTER TABLE idem.history ENABLE TRIGGER protected_row;
-- a key that others refer to
CREATE TABLE t (id int PRIMARY KEY, u int UNIQUE, v int NOT NULL DEFAULT 1);
CREATE TABLE referring (i int REFERENCES t, u int REFERENCES t (u) ON UPDATE CASCADE);
SELECT idem_attach_version('t', 'v');
INSERT INTO t VALUES (1, 10);
INSERT INTO referring VALUES (1, 10);
SELECT change('1', 1, '{"id": 2}');
SELECT outcome FROM idem_update('t', 1, 1, '{"u": 20}');
SELECT * FROM referring;
DROP TABLE referring, t;
-- above READ COMMITTED
CREATE TABLE t (id int PRIMARY KEY, v int NOT NULL DEFAULT 1);
SELECT idem_attach_version('t', 'v');
INSERT INTO t VALUES (1);
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT change('1', 1, '{}');
SELECT change('1', 2, '{}');
COMMIT;
DROP TABLE t;

RESET search_path;
SELECT idem_revoke('regress_idem_direct');
DROP SCHEMA regress_direct CASCADE;
DROP ROLE regress_idem_direct;
