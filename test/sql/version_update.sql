-- idem_update and idem_delete: verdicts, ids of every type, values, privileges.

\set VERBOSITY terse
CREATE ROLE regress_idem_writer;
CREATE ROLE regress_idem_clerk;
SELECT idem_grant('regress_idem_writer'), idem_grant('regress_idem_clerk');
CREATE TABLE regress_doc (id int PRIMARY KEY, body text, num numeric, version int NOT NULL DEFAULT 1);
INSERT INTO regress_doc (id, body) VALUES (1, 'a'), (2, 'b'), (3, 'c');
SELECT idem_attach_version('regress_doc', 'version');

-- verdicts, never an error, and the transaction goes on
BEGIN;
SELECT * FROM idem_update('regress_doc', 1, 1, '{"body": "x"}');
SELECT * FROM idem_update('regress_doc', 1, 1, '{"body": "y"}');
SELECT * FROM idem_update('regress_doc', 1, 3, '{"body": "y"}');
SELECT * FROM idem_update('regress_doc', 99, 1, '{"body": "y"}');
SELECT * FROM idem_update('regress_doc', 1, 9223372036854775807, '{"body": "y"}');
SELECT * FROM idem_update('regress_doc', 1, -9223372036854775808, '{"body": "y"}');
SELECT * FROM idem_delete('regress_doc', 1, 1);
SELECT * FROM idem_delete('regress_doc', 99, 1);
SELECT * FROM idem_delete('regress_doc', 1, 2);
SELECT * FROM idem_delete('regress_doc', 1, 2);
SELECT * FROM idem_update('regress_doc', 1, 2, '{"body": "y"}');
COMMIT;
SELECT * FROM regress_doc ORDER BY id;
-- in one statement over many rows
SELECT d.id, u.outcome, u.version FROM regress_doc AS d,
	LATERAL idem_update('regress_doc', d.id, 1, jsonb_build_object('body', d.body || '!')) AS u ORDER BY d.id;

-- arguments
\set VERBOSITY default
SELECT idem_update(NULL, 1, 1, '{}');
SELECT idem_update('regress_doc', NULL::int, 1, '{}');
SELECT idem_update('regress_doc', NULL, 1, '{}');
SELECT idem_update('regress_doc', 2, NULL, '{}');
\echo :LAST_ERROR_SQLSTATE
SELECT idem_delete('regress_doc', 2, NULL);
SELECT idem_update('regress_doc', 2, 2, NULL);
SELECT idem_update('regress_doc', 2, 2, '[]');
SELECT idem_update('regress_doc', 2, 2, '"body"');
SELECT idem_update('regress_doc', 2, 2, '{"body": "x", "boddy": "y"}');
SELECT idem_update('regress_doc', 2, 2, '{"ctid": "(0,1)"}');
SELECT idem_update('regress_doc', 2, 2, jsonb_build_object(repeat('x', 100), 1));
SELECT idem_update('regress_doc', 2, 2, '{"version": 3}');
SELECT idem_update('regress_doc', 2, 2, '{"num": "12 apples"}');
\echo :LAST_ERROR_SQLSTATE
SELECT idem_update(0, 2, 2, '{}');
SELECT idem_update('pg_class_oid_index', 2, 2, '{}');
SELECT idem_update('idem.held', 2, 2, '{}');
CREATE TABLE regress_bare (id int, version int NOT NULL);
SELECT idem_update('regress_bare', 2, 2, '{}');
SELECT idem_update('idem.scope', 'x', 2, '{}');
ALTER TABLE regress_bare ADD PRIMARY KEY (id) DEFERRABLE;
SELECT idem_update('regress_bare', 2, 2, '{}');
\set VERBOSITY terse
BEGIN READ ONLY;
SELECT idem_update('regress_doc', 2, 2, '{}');
ROLLBACK;
DROP TABLE regress_bare;
-- no changes count up; the key may change
SELECT * FROM idem_update('regress_doc', 2, 2, '{}');
SELECT * FROM idem_update('regress_doc', 2, 3, '{"id": 20}');
SELECT * FROM idem_update('regress_doc', 2, 4, '{}');
SELECT * FROM idem_update('regress_doc', 20, 4, '{"id": 3}');
SELECT * FROM regress_doc ORDER BY id;

-- ids: any type that can be read as the key's
SELECT (idem_update('regress_doc', '20', 4, '{}')).outcome;
SELECT (idem_update('regress_doc', 20::smallint, 5, '{}')).outcome;
SELECT (idem_update('regress_doc', 20::bigint, 6, '{}')).outcome;
SELECT (idem_update('regress_doc', 20::numeric, 7, '{}')).outcome;
SELECT (idem_update('regress_doc', ' 20 '::varchar, 8, '{}')).outcome;
SELECT (idem_update('regress_doc', '20'::jsonb, 9, '{}')).outcome;
SELECT (idem_update('regress_doc', '"20"'::json, 10, '{}')).outcome;
SELECT (idem_update('regress_doc', '{"id": 20}'::jsonb, 10, '{}')).outcome;
PREPARE untyped AS SELECT (idem_update('regress_doc', $1, $2, $3)).outcome;
EXECUTE untyped ('20', 11, '{}');
SELECT (idem_update('regress_doc', 3000000000, 1, '{}')).outcome;
SELECT (idem_update('regress_doc', 20.5, 1, '{}')).outcome;
SELECT (idem_update('regress_doc', 'twenty', 1, '{}')).outcome;
SELECT (idem_update('regress_doc', '', 1, '{}')).outcome;
SELECT (idem_update('regress_doc', '{"id": null}'::jsonb, 1, '{}')).outcome;
SELECT (idem_update('regress_doc', '{"id": [1]}'::jsonb, 1, '{}')).outcome;
SELECT (idem_update('regress_doc', '{"id": 20, "x": 1}'::jsonb, 1, '{}')).outcome;
SELECT (idem_update('regress_doc', '{"key": 20}'::jsonb, 1, '{}')).outcome;
SELECT (idem_update('regress_doc', '[20]'::jsonb, 1, '{}')).outcome;
SELECT (idem_update('regress_doc', 'null'::jsonb, 1, '{}')).outcome;
\echo :LAST_ERROR_SQLSTATE

-- keys of many types, and of several columns under odd names
CREATE TYPE regress_mood AS ENUM ('ok', 'it''s "fine"');
CREATE DOMAIN regress_code AS char(4) CHECK (VALUE <> 'none');
CREATE TABLE regress_keys (
	"a ""1""" regress_mood, "$2" regress_code, c varchar(5) COLLATE "C", d timestamptz, e uuid, f numeric(6, 2), g boolean, h bytea, t text,
	v bigint NOT NULL DEFAULT 1, "order" jsonb, PRIMARY KEY ("a ""1""", "$2", c, d, e, f, g, h, t));
SELECT idem_attach_version('regress_keys', 'v');
INSERT INTO regress_keys VALUES ('it''s "fine"', 'ab', 'c''\', '2026-01-02 03:04:05.678901+00', '123e4567-e89b-12d3-a456-426614174000', 1.50, true, '\x00ff', 'Key');
SELECT to_jsonb(k) - 'v' - 'order' AS key FROM regress_keys AS k \gset
SELECT * FROM idem_update('regress_keys', :'key'::jsonb, 1, '{"order": {"a": [1, null]}}');
SET timezone = 'Asia/Kolkata';
SET datestyle = 'German';
SELECT * FROM idem_update('regress_keys', :'key'::json, 2, '{"order": "text"}');
SELECT * FROM idem_update('regress_keys', :'key', 3, '{"order": null}');
RESET timezone;
RESET datestyle;
SELECT v, "order" FROM regress_keys;
SELECT outcome FROM idem_update('regress_keys', (:'key'::jsonb || '{"f": "1.5"}')::text, 4, '{}');
SELECT outcome FROM idem_update('regress_keys', :'key'::jsonb || '{"f": "1.501"}', 5, '{}');
SELECT outcome FROM idem_update('regress_keys', :'key'::jsonb || '{"c": "far too long"}', 5, '{}');
SELECT outcome FROM idem_update('regress_keys', :'key'::jsonb || '{"$2": "none"}', 5, '{}');
\set VERBOSITY default
SELECT outcome FROM idem_update('regress_keys', :'key'::jsonb - 'g', 5, '{}');
SELECT outcome FROM idem_update('regress_keys', :'key'::jsonb || '{"a \"1\"": "sad"}', 5, '{}');
SELECT outcome FROM idem_update('regress_keys', 'no json', 5, '{}');
SELECT outcome FROM idem_update('regress_keys', 5, 5, '{}');
\set VERBOSITY terse
SELECT outcome, version FROM idem_delete('regress_keys', :'key', 5);
DROP TABLE regress_keys;

-- values: as jsonb_populate_record() reads them, to the last digit
CREATE TYPE regress_point AS (x int, y float8);
CREATE DOMAIN regress_odd AS int CHECK (VALUE % 2 = 1) NOT NULL;
CREATE TABLE regress_values (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), v int NOT NULL DEFAULT 1,
	big bigint, num numeric, f float8, b boolean, j json, jb jsonb, arr int[][], txt text[], pt regress_point, pts regress_point[],
	odd regress_odd DEFAULT 1, vc varchar(3), r int4range, s text, ts timestamptz,
	gen int GENERATED ALWAYS AS (v * 2) STORED, ident int GENERATED ALWAYS AS IDENTITY);
INSERT INTO regress_values DEFAULT VALUES;
SELECT idem_attach_version('regress_values', 'v');
SELECT id FROM regress_values \gset
CREATE FUNCTION regress_change(changes jsonb) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	answer text;
	detail text;
BEGIN
	SELECT outcome INTO answer FROM regress_values AS t, LATERAL idem_update('regress_values', t.id, t.v, changes);
	RETURN answer;
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL;
	RETURN SQLSTATE || ' ' || SQLERRM || ' ' || detail;
END $$;
SELECT regress_change('{"big": 9223372036854775807, "num": 123456789012345678901234567890.123456789012345678901234567890,
	"f": 0.1, "b": true, "j": {"b": 1, "a": [1.50]}, "jb": "s", "arr": [[1, 2], [3, 4]], "txt": ["a", null, "{\"}"],
	"pt": {"x": 1, "y": 1e300}, "pts": [{"x": 2}, null], "odd": "7", "vc": "abc", "r": "[1,5)", "s": {"as": "text"}, "ts": "2026-01-01T00:00:00Z"}');
\x
SELECT big, num, f, b, j, jb, arr, txt, pt, pts, odd, vc, r, s, ts = '2026-01-01 00:00:00+00' AS ts, gen FROM regress_values;
SELECT regress_change('{"big": "5", "num": "NaN", "j": null, "jb": null, "arr": "{1,2}", "txt": [], "pt": "(3,4)", "odd": 9, "b": "off", "s": 12.50, "f": null}');
SELECT big, num, f, b, j, jb, arr, txt, pt, odd, s FROM regress_values;
\x
SELECT changes, regress_change(changes) FROM (VALUES
	('{"big": 9223372036854775808}'), ('{"big": 1.5}'), ('{"big": [1]}'), ('{"big": "x''; DROP TABLE regress_values; --"}'), ('{"num": "x"}'), ('{"b": "maybe"}'),
	('{"arr": [[1], [2, 3]]}'), ('{"arr": [1, "x"]}'), ('{"pt": {"x": "a"}}'), ('{"pt": [1]}'), ('{"odd": 2}'), ('{"odd": null}'), ('{"vc": "abcd"}'),
	('{"gen": 5}'), ('{"ident": 5}'), ('{"id": "no uuid"}'), ('{"r": "[5,1]"}'), ('{"": 1}'), ('{"BIG": 1}')) AS c (text), LATERAL (SELECT text::jsonb) AS j (changes);
DROP TABLE regress_values;
DROP FUNCTION regress_change(jsonb);

-- modes and options of the table make no difference
SELECT idem_detach_version('regress_doc'), idem_attach_version('regress_doc', 'version', 'next', true, true, '{num}');
SELECT * FROM idem_update('regress_doc', 3, 2, '{"num": 5}');
SELECT * FROM idem_update('regress_doc', 3, 2, '{"num": 6}');
SELECT * FROM idem_delete('regress_doc', 3, 2);
-- also where the trigger does not fire
ALTER TABLE regress_doc DISABLE TRIGGER "~idem_version";
SELECT * FROM idem_update('regress_doc', 3, 3, '{"num": 7}');
ALTER TABLE regress_doc ENABLE TRIGGER "~idem_version";
SELECT idem_detach_version('regress_doc');
SELECT * FROM idem_update('regress_doc', 3, 4, '{"num": 7}');
\echo :LAST_ERROR_SQLSTATE
SELECT idem_attach_version('regress_doc', 'version');
-- a table that changes while its statements are kept
SELECT outcome FROM idem_update('regress_doc', 3, 4, '{"body": "kept"}');
ALTER TABLE regress_doc RENAME body TO text;
ALTER TABLE regress_doc RENAME version TO lock;
ALTER TABLE regress_doc RENAME TO regress_paper;
SELECT outcome FROM idem_update('regress_paper', 3, 5, '{"text": "kept"}');
CREATE SCHEMA regress_a;
ALTER TABLE regress_paper SET SCHEMA regress_a;
SELECT outcome FROM idem_update('regress_a.regress_paper', 3, 6, '{"text": "kept"}');
ALTER SCHEMA regress_a RENAME TO regress_b;
CREATE SCHEMA regress_a;
CREATE TABLE regress_a.regress_paper (LIKE regress_b.regress_paper INCLUDING ALL);
SELECT outcome FROM idem_update('regress_b.regress_paper', 3, 7, '{"text": "kept"}');
SELECT current FROM idem_update('regress_b.regress_paper', 3, 0, '{"text": "kept"}');
ALTER TABLE regress_b.regress_paper ALTER id TYPE text;
SELECT outcome FROM idem_update('regress_b.regress_paper', '3', 8, '{"text": "kept"}');
SELECT outcome FROM idem_update('regress_b.regress_paper', 3, 9, '{"text": "kept"}');
DROP SCHEMA regress_a CASCADE;
ALTER TABLE regress_b.regress_paper SET SCHEMA public;
DROP SCHEMA regress_b;
-- a trigger that changes the table's kept statements under the statement, and one that calls again
CREATE FUNCTION regress_under() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF pg_trigger_depth() = 1 THEN
		EXECUTE 'ALTER SCHEMA regress_other RENAME TO regress_other2';
		PERFORM idem_update('regress_paper', '20', 12, '{"num": 1}');
	END IF;
	RETURN NEW;
END $$;
CREATE SCHEMA regress_other;
CREATE TRIGGER under BEFORE UPDATE ON regress_paper FOR EACH ROW EXECUTE FUNCTION regress_under();
SELECT outcome FROM idem_update('regress_paper', '3', 10, '{"num": 2}');
SELECT id, num, lock FROM regress_paper ORDER BY id;
DROP SCHEMA regress_other2;
-- more statements than are kept
CREATE TABLE regress_wide (id int PRIMARY KEY, v int NOT NULL DEFAULT 1, a int, b int, c int, d int, e int, f int, g int);
SELECT idem_attach_version('regress_wide', 'v');
INSERT INTO regress_wide VALUES (1);
SELECT u.outcome, count(*), max(u.version) FROM generate_series(1, 300) AS i,
	LATERAL (SELECT jsonb_object_agg(chr(97 + n), i) FROM generate_series(0, 6) AS n WHERE i & (1 << n) <> 0) AS c (changes),
	LATERAL idem_update('regress_wide', 1, i, coalesce(c.changes, '{}')) AS u GROUP BY 1;
SELECT * FROM regress_wide;
-- a row without a version is never the one that was read
ALTER TABLE regress_wide ALTER v DROP NOT NULL;
INSERT INTO regress_wide VALUES (2, NULL);
SELECT * FROM idem_update('regress_wide', 2, 0, '{"a": 1}');
UPDATE regress_wide SET a = 1 WHERE id = 2;
SELECT * FROM idem_update('regress_wide', 2, 1, '{"a": 2}');
DROP TABLE regress_wide;
-- a trigger that suppresses
CREATE OR REPLACE FUNCTION regress_under() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
\set VERBOSITY default
SELECT outcome FROM idem_update('regress_paper', '3', 11, '{"num": 3}');
\set VERBOSITY terse
SELECT outcome FROM idem_update('regress_paper', '3', 10, '{"num": 3}');
DROP TRIGGER under ON regress_paper;
-- ... and writes the row itself: nobody else was faster
CREATE TABLE regress_gone (id int, part int, v int NOT NULL DEFAULT 1, gone text, PRIMARY KEY (id, part)) PARTITION BY LIST (part);
CREATE TABLE regress_gone1 PARTITION OF regress_gone FOR VALUES IN (1);
CREATE TABLE regress_gone_plain (id int PRIMARY KEY, v int NOT NULL DEFAULT 1, gone text);
SELECT idem_attach_version('regress_gone', 'v'), idem_attach_version('regress_gone_plain', 'v');
INSERT INTO regress_gone VALUES (1, 1), (2, 1);
INSERT INTO regress_gone_plain VALUES (1), (2), (3);
CREATE FUNCTION regress_gone() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
	IF TG_OP = 'UPDATE' AND new.gone IS NOT NULL THEN RETURN new; END IF;
	IF old.id = 2 AND TG_ARGV[0] = 'regress_gone_plain' THEN
		PERFORM idem_update('regress_gone_plain', old.id, old.v, '{"gone": "by idem_update"}');
	ELSE
		EXECUTE format('UPDATE %I SET gone = $1 WHERE id = $2', TG_ARGV[0]) USING TG_OP, old.id;
	END IF;
	RETURN NULL;
END$$;
CREATE TRIGGER gone BEFORE DELETE ON regress_gone FOR EACH ROW EXECUTE FUNCTION regress_gone('regress_gone');
CREATE TRIGGER gone BEFORE DELETE ON regress_gone_plain FOR EACH ROW EXECUTE FUNCTION regress_gone('regress_gone_plain');
\set VERBOSITY default
SELECT * FROM idem_delete('regress_gone', '{"id": 1, "part": 1}', 1);
\set VERBOSITY terse
SELECT * FROM idem_delete('regress_gone', '{"id": 1, "part": 1}', 2);
SELECT * FROM idem_delete('regress_gone_plain', 1, 1);
SELECT * FROM idem_delete('regress_gone_plain', 2, 1);
SELECT * FROM idem_update('regress_gone_plain', 3, 1, '{"gone": null}');
CREATE TRIGGER gone_too BEFORE UPDATE ON regress_gone_plain FOR EACH ROW EXECUTE FUNCTION regress_gone('regress_gone_plain');
SELECT * FROM idem_update('regress_gone_plain', 3, 2, '{"gone": null}');
SELECT * FROM idem_update('regress_gone_plain', 3, 1, '{"gone": null}');
DROP TRIGGER gone ON regress_gone_plain;
DROP TRIGGER gone_too ON regress_gone_plain;
CREATE RULE gone AS ON DELETE TO regress_gone_plain DO INSTEAD UPDATE regress_gone_plain SET gone = 'by rule' WHERE id = old.id;
SELECT * FROM idem_delete('regress_gone_plain', 3, 2);
SELECT * FROM idem_delete('regress_gone_plain', 3, 1);
SELECT * FROM regress_gone_plain ORDER BY id;
DROP TABLE regress_gone, regress_gone_plain;
DROP FUNCTION regress_gone;

-- as the caller: his privileges
SET ROLE regress_idem_writer;
SELECT idem_update('regress_paper', '3', 11, '{"num": 3}');
RESET ROLE;
GRANT SELECT (id, lock), UPDATE (num, lock) ON regress_paper TO regress_idem_writer;
SET ROLE regress_idem_writer;
SELECT * FROM idem_update('regress_paper', '3', 11, '{"num": 3}');
SELECT * FROM idem_update('regress_paper', '3', 11, '{"num": 4}');
SELECT idem_update('regress_paper', '3', 12, '{"text": "not his"}');
SELECT idem_delete('regress_paper', '3', 12);
RESET ROLE;
-- ... and row security: what he cannot see is missing, what he may only see is his to see
GRANT SELECT, UPDATE, DELETE ON regress_paper TO regress_idem_clerk;
ALTER TABLE regress_paper ENABLE ROW LEVEL SECURITY;
CREATE POLICY see ON regress_paper FOR SELECT USING (id <> '20');
CREATE POLICY change ON regress_paper FOR UPDATE TO regress_idem_clerk USING (num < 4) WITH CHECK (num < 10);
INSERT INTO regress_paper VALUES ('30', 'locked', 7, 1);
SET ROLE regress_idem_clerk;
SELECT * FROM idem_update('regress_paper', '20', 13, '{"num": 3}');
SELECT * FROM idem_update('regress_paper', '3', 12, '{"num": 2}');
SELECT * FROM idem_update('regress_paper', '3', 12, '{"num": 2}');
SELECT * FROM idem_update('regress_paper', '3', 13, '{"num": 50}');
SELECT * FROM idem_update('regress_paper', '30', 5, '{"num": 3}');
SELECT * FROM idem_update('regress_paper', '30', 1, '{"num": 3}');
SELECT * FROM idem_delete('regress_paper', '3', 13);
RESET ROLE;
SELECT id, num, lock FROM regress_paper ORDER BY id;
DROP TABLE regress_paper;

-- partitions: the id holds the partition key, and a row may move
CREATE TABLE regress_part (id int, region text, v int NOT NULL DEFAULT 1, PRIMARY KEY (id, region)) PARTITION BY LIST (region);
CREATE TABLE regress_part_a PARTITION OF regress_part FOR VALUES IN ('a');
CREATE TABLE regress_part_b PARTITION OF regress_part FOR VALUES IN ('b');
SELECT idem_attach_version('regress_part', 'v');
INSERT INTO regress_part VALUES (1, 'a');
SELECT * FROM idem_update('regress_part', '{"id": 1, "region": "a"}'::jsonb, 1, '{"region": "b"}');
SELECT * FROM idem_update('regress_part', '{"id": 1, "region": "a"}'::jsonb, 1, '{"region": "b"}');
SELECT * FROM idem_update('regress_part_b', '{"id": 1, "region": "b"}', 2, '{}');
SELECT * FROM idem_delete('regress_part', '{"id": 1, "region": "b"}', 2);
DROP TABLE regress_part;
-- not missing where a trigger of the statement gives the row another key instead
CREATE TABLE regress_shelf (id int, archived bool DEFAULT false, v int NOT NULL DEFAULT 1, PRIMARY KEY (id, archived)) PARTITION BY LIST (archived);
CREATE TABLE regress_shelf_now PARTITION OF regress_shelf FOR VALUES IN (false);
CREATE TABLE regress_shelf_old PARTITION OF regress_shelf FOR VALUES IN (true);
CREATE FUNCTION regress_archive() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF pg_trigger_depth() > 1 THEN RETURN old; END IF;
	UPDATE regress_shelf SET archived = true WHERE id = old.id;
	RETURN NULL;
END$$;
CREATE TRIGGER archive BEFORE DELETE ON regress_shelf_now FOR EACH ROW EXECUTE FUNCTION regress_archive();
SELECT idem_attach_version('regress_shelf', 'v');
INSERT INTO regress_shelf VALUES (1);
SELECT * FROM idem_delete('regress_shelf', '{"id": 1, "archived": false}', 2);
\set VERBOSITY default
SELECT * FROM idem_delete('regress_shelf', '{"id": 1, "archived": false}', 1);
\set VERBOSITY terse
SELECT * FROM idem_delete('regress_shelf', '{"id": 2, "archived": false}', 1);
SELECT * FROM regress_shelf;
DROP TABLE regress_shelf;
DROP FUNCTION regress_archive;
-- stale is stale, also where a trigger of the statement counts another row on from that
-- version
CREATE TABLE regress_sum (id int PRIMARY KEY, n int NOT NULL DEFAULT 0, v int NOT NULL DEFAULT 1);
CREATE FUNCTION regress_add() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF pg_trigger_depth() = 1 THEN
		UPDATE regress_sum SET n = n + 1 WHERE id = 0;
	END IF;
	RETURN NULL;
END$$;
CREATE TRIGGER add AFTER UPDATE ON regress_sum FOR EACH STATEMENT EXECUTE FUNCTION regress_add();
SELECT idem_attach_version('regress_sum', 'v');
INSERT INTO regress_sum VALUES (0, 0, 4), (1, 0, 5);
SELECT outcome, version FROM idem_update('regress_sum', 1, 4, '{"n": 7}');
SELECT outcome, version FROM idem_update('regress_sum', 0, 5, '{"n": 7}');
DROP TABLE regress_sum;
DROP FUNCTION regress_add;
-- a key that is equal and has another text is the row's
CREATE TABLE regress_days (id interval PRIMARY KEY, gone bool NOT NULL DEFAULT false, v int NOT NULL DEFAULT 1);
CREATE FUNCTION regress_soft() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	UPDATE regress_days SET gone = true WHERE id = old.id;
	RETURN NULL;
END$$;
CREATE TRIGGER soft BEFORE DELETE ON regress_days FOR EACH ROW EXECUTE FUNCTION regress_soft();
SELECT idem_attach_version('regress_days', 'v');
INSERT INTO regress_days VALUES ('1 day');
SELECT * FROM idem_delete('regress_days', '24 hours', 1);
DROP TABLE regress_days;
DROP FUNCTION regress_soft;
-- inheritance: a row is its own table's
CREATE TABLE regress_parent (id int PRIMARY KEY, v int NOT NULL DEFAULT 1);
CREATE TABLE regress_child () INHERITS (regress_parent);
SET client_min_messages = error;
SELECT idem_attach_version('regress_parent', 'v');
RESET client_min_messages;
INSERT INTO regress_child VALUES (1);
SELECT * FROM idem_update('regress_parent', 1, 1, '{}');
INSERT INTO regress_parent VALUES (1);
SELECT * FROM idem_update('regress_parent', 1, 1, '{}');
SELECT tableoid::regclass, v FROM regress_parent ORDER BY 1;
DROP TABLE regress_parent CASCADE;

-- clean up
SELECT idem_revoke('regress_idem_writer'), idem_revoke('regress_idem_clerk');
REVOKE ALL ON SCHEMA public FROM regress_idem_writer, regress_idem_clerk;
DROP ROLE regress_idem_writer, regress_idem_clerk;
DROP FUNCTION regress_under();
DROP DOMAIN regress_odd, regress_code;
DROP TYPE regress_mood, regress_point;
