-- Rows under way: what later triggers, functions and hand-typed casts do
-- between the look at a row and its place in the table.

CREATE ROLE regress_idem_owner;
CREATE ROLE regress_idem_updater;
CREATE ROLE regress_idem_writer;
SELECT idem_grant('regress_idem_owner', 'operator');
CREATE SCHEMA regress_once AUTHORIZATION regress_idem_owner;
SET ROLE regress_idem_owner;
GRANT USAGE ON SCHEMA regress_once TO regress_idem_updater, regress_idem_writer;
SET search_path = regress_once, public;
RESET ROLE;
CREATE VIEW regress_once_keys AS SELECT regexp_replace(scope, '.*\.', '') AS scope,
	string_agg(key, ' ' ORDER BY key COLLATE "C") AS keys FROM idem.key WHERE scope LIKE 'once.regress_once.%' GROUP BY 1;
GRANT SELECT ON regress_once_keys TO regress_idem_owner;
SET ROLE regress_idem_owner;

-- an update that would move a row, but whose delete a later trigger drops
CREATE TABLE part (id int, at int, key text) PARTITION BY RANGE (at);
CREATE TABLE part_1 PARTITION OF part FOR VALUES FROM (0) TO (10);
CREATE TABLE part_2 PARTITION OF part FOR VALUES FROM (10) TO (20);
SELECT idem_attach_once('part', '{key}');
INSERT INTO part VALUES (1, 1, 'a'), (2, 2, 'b'), (3, 3, 'c');
CREATE FUNCTION drop_row() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
CREATE TRIGGER "~z" BEFORE DELETE ON part_1 FOR EACH ROW WHEN (OLD.id = 1) EXECUTE FUNCTION drop_row();
BEGIN;
UPDATE part SET at = 11 WHERE id = 1;
INSERT INTO part VALUES (4, 11, 'a'), (5, 11, 'd'), (6, 11, 'd');
SELECT * FROM regress_once_keys;
COMMIT;
SELECT * FROM part ORDER BY id;
-- in one statement
WITH moved AS (UPDATE part SET at = 12 WHERE id = 1 RETURNING 1)
INSERT INTO part SELECT 7, 12, 'a' FROM (SELECT count(*) FROM moved) m;
MERGE INTO part p USING (VALUES (1, 'x'), (8, 'a'), (9, 'e'), (10, 'e')) AS s (id, key) ON p.id = s.id
WHEN MATCHED THEN UPDATE SET at = 13
WHEN NOT MATCHED THEN INSERT VALUES (s.id, 13, s.key);
SELECT * FROM part ORDER BY id;
-- the insert is dropped: the row is gone, by the user's own trigger, and no other comes in for it
CREATE TRIGGER "a" BEFORE INSERT ON part_2 FOR EACH ROW WHEN (NEW.id = 2) EXECUTE FUNCTION drop_row();
CREATE TRIGGER "~z" BEFORE INSERT ON part_2 FOR EACH ROW WHEN (NEW.id = 3) EXECUTE FUNCTION drop_row();
BEGIN;
UPDATE part SET at = 14 WHERE id IN (2, 3);
INSERT INTO part VALUES (20, 14, 'b'), (21, 14, 'c'), (22, 14, 'a');
COMMIT;
SELECT * FROM part ORDER BY id;
DROP TRIGGER a ON part_2;
DROP TRIGGER "~z" ON part_1;
-- the key changes on the way: by the update itself, or by triggers
UPDATE part SET at = 15, key = 'e' WHERE id = 1;
CREATE FUNCTION change_key() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.key := 'd'; RETURN NEW; END $$;
CREATE TRIGGER b BEFORE INSERT ON part_1 FOR EACH ROW EXECUTE FUNCTION change_key();
UPDATE part SET at = 5 WHERE id = 1;
SELECT tableoid::regclass, * FROM part ORDER BY id, at;
ALTER TRIGGER b ON part_1 RENAME TO "~y";
UPDATE part SET at = 5 WHERE id = 1;
SELECT tableoid::regclass, * FROM part ORDER BY id, at;
SELECT * FROM regress_once_keys;
DROP TABLE part;

-- a mark that is taken back, because a verb looks, or that another row takes, while its row is under way
CREATE TABLE under_way (id int, key text);
SELECT idem_attach_once('under_way', '{key}');
CREATE FUNCTION meddle() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF NEW.id IN (1, 2) THEN
		PERFORM idem_lookup('1:' || NEW.key, 'once.regress_once.under_way');
	END IF;
	IF NEW.id IN (2, 3, 4) THEN
		INSERT INTO under_way VALUES (NEW.id + 100, NEW.key);
	END IF;
	IF NEW.id = 5 THEN
		BEGIN
			INSERT INTO under_way VALUES (105, NEW.key);
			RAISE division_by_zero;
		EXCEPTION WHEN division_by_zero THEN
		END;
	END IF;
	IF NEW.id = 4 THEN
		RETURN NULL;
	END IF;
	RETURN NEW;
END $$;
CREATE TRIGGER "~z" BEFORE INSERT ON under_way FOR EACH ROW EXECUTE FUNCTION meddle();
INSERT INTO under_way VALUES (1, 'a');
INSERT INTO under_way VALUES (2, 'b');
INSERT INTO under_way VALUES (3, 'c');
-- redirected: the other row is the one that is kept
INSERT INTO under_way VALUES (4, 'd');
INSERT INTO under_way VALUES (5, 'e'), (6, 'e'), (7, 'd'), (8, 'f'), (9, 'a');
SELECT * FROM under_way ORDER BY id;
SELECT * FROM regress_once_keys WHERE scope = 'under_way';
DROP TRIGGER "~z" ON under_way;
-- a redirection into another table of the same scope
CREATE TABLE elsewhere (id int, key text);
SELECT idem_attach_once('elsewhere', '{key}', 'once.regress_once.under_way');
CREATE FUNCTION redirect() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO elsewhere VALUES (NEW.*); RETURN NULL; END $$;
CREATE TRIGGER "~z" BEFORE INSERT ON under_way FOR EACH ROW EXECUTE FUNCTION redirect();
INSERT INTO under_way VALUES (10, 'g'), (11, 'g'), (12, 'h');
SELECT * FROM elsewhere ORDER BY id;
SELECT * FROM regress_once_keys WHERE scope = 'under_way';

-- the comparison, typed by hand
GRANT SELECT, UPDATE ON elsewhere TO regress_idem_updater;
GRANT SELECT, INSERT, UPDATE ON elsewhere TO regress_idem_writer;
CREATE FUNCTION confirm(place text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	PERFORM GREATEST(place::tid::idem_inserted, place::tid::idem_inserted) IS NULL;
	RETURN 'accepted';
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE;
END $$;
SET ROLE regress_idem_updater;
BEGIN;
UPDATE elsewhere SET key = 'spent' WHERE id = 10;
SELECT confirm((SELECT ctid FROM elsewhere WHERE id = 10)::text);
WITH u AS (UPDATE elsewhere SET key = 'spent too' WHERE id = 12 RETURNING ctid)
SELECT confirm(ctid::text) FROM u;
COMMIT;
SET ROLE regress_idem_writer;
-- with a row under way: nothing is read beyond the table's end, and nothing but this transaction's rows
SELECT pg_relation_size('elsewhere') AS size \gset
WITH i AS (INSERT INTO elsewhere VALUES (20, 'i'), (21, 'j') RETURNING 1)
SELECT confirm(place) FROM (SELECT count(*) FROM i) c,
	(VALUES ('(4294967295,1)'), ('(4294967295,0)'), ('(4294967294,1)'), ('(7,1)'), ('(0,0)'), ('(0,65535)'), ('(0,4000)'), ('(0,1)')) v (place);
RESET ROLE;
SET ROLE regress_idem_owner;
CREATE FUNCTION confirm_all() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	NEW.key := NEW.key || (SELECT string_agg(confirm(place), ' ') FROM
		(VALUES ('(4294967295,1)'), ('(4294967295,0)'), ('(4294967294,1)'), ('(7,1)'), ('(0,0)'), ('(0,65535)'), ('(0,4000)'), ('(0,1)')) v (place));
	RETURN NEW;
END $$;
CREATE TRIGGER "~z" BEFORE INSERT ON elsewhere FOR EACH ROW EXECUTE FUNCTION confirm_all();
SET ROLE regress_idem_writer;
INSERT INTO elsewhere VALUES (22, 'k');
INSERT INTO elsewhere VALUES (23, 'l') RETURNING *;
SELECT pg_relation_size('elsewhere') = :size AS same_size;
SET ROLE regress_idem_owner;
SELECT * FROM elsewhere ORDER BY id;
SELECT * FROM regress_once_keys WHERE scope = 'under_way';

-- COPY FREEZE, with a later trigger and without
CREATE TABLE frozen (key text);
SELECT idem_attach_once('frozen', '{key}');
BEGIN;
TRUNCATE frozen;
COPY frozen FROM stdin (FREEZE);
a
b
a
\.
COMMIT;
CREATE TRIGGER "~z" BEFORE INSERT ON frozen FOR EACH ROW WHEN (NEW.key = 'c') EXECUTE FUNCTION drop_row();
BEGIN;
TRUNCATE frozen;
COPY frozen FROM stdin (FREEZE);
b
c
d
d
\.
COMMIT;
SELECT * FROM frozen ORDER BY key;
SELECT * FROM regress_once_keys WHERE scope = 'frozen';

-- a table of a former one's name is told of its keys
DROP TABLE frozen;
CREATE TABLE frozen (key text);
INSERT INTO frozen VALUES ('a'), ('z');
SELECT idem_attach_once('frozen', '{key}');
INSERT INTO frozen VALUES ('b'), ('e');
SELECT * FROM frozen ORDER BY key;
-- in a session that restores a dump nothing is skipped silently
SET check_function_bodies = off;
INSERT INTO frozen VALUES ('f');
INSERT INTO frozen VALUES ('g'), ('a');
RESET check_function_bodies;
INSERT INTO frozen VALUES ('g'), ('a');
SELECT * FROM frozen ORDER BY key;

RESET ROLE;
-- the extension does not go while a table needs it
BEGIN;
\set VERBOSITY terse
DROP EXTENSION idem;
\set VERBOSITY default
ROLLBACK;
\set VERBOSITY terse
DROP VIEW regress_once_keys;
SET client_min_messages = warning;
DROP SCHEMA regress_once CASCADE;
DELETE FROM idem.key WHERE scope LIKE 'once.regress_once.%';
SELECT idem_revoke('regress_idem_owner');
DROP OWNED BY regress_idem_owner, regress_idem_updater, regress_idem_writer;
DROP ROLE regress_idem_owner, regress_idem_updater, regress_idem_writer;
