-- What idem_attach_once refuses, what it makes a key of, and what else may
-- stand on the table.

CREATE ROLE regress_idem_owner;
CREATE ROLE regress_idem_other;
SELECT idem_grant('regress_idem_owner', 'operator');
SELECT idem_grant('regress_idem_other', 'operator');
CREATE SCHEMA regress_once AUTHORIZATION regress_idem_owner;
GRANT USAGE ON SCHEMA regress_once TO regress_idem_other;

SET ROLE regress_idem_owner;
SET search_path = regress_once, public;
CREATE TABLE plain (id int, key text, twice int GENERATED ALWAYS AS (id * 2) STORED);
CREATE VIEW watched AS SELECT * FROM plain;
CREATE MATERIALIZED VIEW kept AS SELECT * FROM plain;
CREATE SEQUENCE numbers;
CREATE TEMPORARY TABLE passing (id int);
CREATE UNLOGGED TABLE light (id int);
CREATE TABLE parent (id int);
CREATE TABLE child () INHERITS (parent);
CREATE TABLE root (id int) PARTITION BY LIST (id);
CREATE TABLE leaf PARTITION OF root FOR VALUES IN (1);

SELECT idem_attach_once(NULL, '{id}');
SELECT idem_attach_once('plain', NULL);
SELECT idem_attach_once('plain', '{}');
SELECT idem_attach_once('plain', '{id,NULL}');
SELECT idem_attach_once('plain', '{id,id}');
SELECT idem_attach_once('plain', '{id,none}');
SELECT idem_attach_once('plain', '{ctid}');
SELECT idem_attach_once('plain', '{twice}');
SELECT idem_attach_once('plain', '{id}', scope => '');
SELECT idem_attach_once('plain', '{id}', scope => 'a/');
SELECT idem_attach_once('plain', '{id}', ttl => '0 s');
SELECT idem_attach_once('plain', '{id}', ttl => '1001 years');
SELECT idem_attach_once('watched', '{id}');
SELECT idem_attach_once('kept', '{id}');
SELECT idem_attach_once('numbers', '{last_value}');
SELECT idem_attach_once('passing', '{id}');
SELECT idem_attach_once('light', '{id}');
SELECT idem_attach_once('parent', '{id}');
SELECT idem_attach_once('leaf', '{id}');
SELECT idem_attach_once('pg_catalog.pg_class', '{relname}');
SELECT idem_attach_once('idem.key', '{key}');
SELECT idem_attach_once(0, '{id}');
SELECT idem_detach_once(NULL);
SELECT idem_detach_once('plain');
-- a child of its own is a table like any other
SELECT idem_attach_once('child', '{id}');

-- only the owner, and whoever is as the owner
SET ROLE regress_idem_other;
SELECT idem_attach_once('regress_once.plain', '{id}');
SELECT idem_detach_once('regress_once.child');
SET ROLE regress_idem_owner;

-- only once
SELECT idem_attach_once('plain', '{id}');
SELECT idem_attach_once('plain', '{key}');
-- refused without a trace
SELECT idem_detach_once('plain');
INSERT INTO plain VALUES (1, 'x'), (1, 'y'), (1, 'z'), (2, 'x'), (2, 'y'), (3, NULL), (NULL, NULL);
SELECT idem_attach_once('plain', '{id}');
SELECT idem_attach_once('plain', '{id,key}');
SELECT tgname FROM pg_trigger WHERE tgrelid = 'plain'::regclass ORDER BY tgname;
RESET ROLE;
SELECT key FROM idem.key WHERE scope = 'once.regress_once.plain' ORDER BY key COLLATE "C";
SET ROLE regress_idem_owner;
INSERT INTO plain VALUES (1, 'x'), (1, 'w'), (3, 'x'), (3, NULL), (NULL, 'x');
SELECT id, key FROM plain ORDER BY id, key;

-- scopes: names that need quotes, long ones, tables that must not share one
CREATE TABLE "a.b" (id int);
CREATE TABLE "we""ird/name" (id int);
CREATE TABLE abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijk (id int);
SELECT idem_attach_once('"a.b"', '{id}'), idem_attach_once('"we""ird/name"', '{id}'),
	idem_attach_once('abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijk', '{id}');
INSERT INTO "a.b" VALUES (1), (1);
INSERT INTO "we""ird/name" VALUES (1), (1);
INSERT INTO abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijk VALUES (1), (1);
RESET ROLE;
SELECT scope, key FROM idem.key WHERE scope LIKE 'once.%' AND key = '1:1' ORDER BY scope;
SET ROLE regress_idem_owner;
-- the verbs may not claim there, but look and forget
SELECT idem_once('1:1', 'once.regress_once."a.b"');
SELECT outcome FROM idem_lookup('1:1', 'once.regress_once."a.b"');
SELECT idem_forget('1:1', 'once.regress_once."a.b"', force => true);
INSERT INTO "a.b" VALUES (1), (1);
-- a scope that is shared by two tables, and with a claim
CREATE TABLE shared_1 (id int);
CREATE TABLE shared_2 (key text);
SELECT idem_attach_once('shared_1', '{id}', 'regress_once/shared'), idem_attach_once('shared_2', '{key}', 'regress_once/shared');
INSERT INTO shared_1 VALUES (1), (2), (2);
INSERT INTO shared_2 VALUES ('2'), ('3'), ('3');
SELECT run FROM idem_claim('1:4', scope => 'regress_once/shared', lease => '1 h');
INSERT INTO shared_1 VALUES (4);

-- every type, and settings that change how it is printed
CREATE TYPE mood AS ENUM ('sad', 'it''s ok');
CREATE DOMAIN positive AS numeric CHECK (VALUE > 0);
CREATE TYPE pair AS (a int, b timestamptz);
CREATE TABLE typed (
	a bigint, b text, c numeric, d float8, e timestamptz, f interval, g bytea,
	h jsonb, i uuid, j mood, k positive, l pair, m timestamptz[], n tstzrange,
	o money, p regclass, q char(5), r date, s varchar(10) COLLATE "C", t float4);
SELECT idem_attach_once('typed', '{a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q,r,s,t}');
CREATE FUNCTION fill(c numeric DEFAULT 1.50, d float8 DEFAULT 0.1, e timestamptz DEFAULT '2026-07-01 12:00+00', o int DEFAULT 5)
	RETURNS bigint LANGUAGE sql SET search_path = regress_once, pg_catalog AS $$
	WITH n AS (INSERT INTO typed VALUES (1, 'x:y', c, d, e, '1 mon -2 days 3.5 s', '\xdead00',
		'{"a": [1, null]}', '00000000-0000-0000-0000-000000000001', 'it''s ok', 7.0, (1, e), ARRAY[e],
		tstzrange(e, NULL), o::money, 'pg_class', 'ab', '2026-07-01', 'v', d) RETURNING 1)
	SELECT count(*) FROM n $$;
SELECT fill(), fill(), fill(c => 1.5000), fill(c => 1.51), fill(d => 0.1 + 1e-17), fill(d => 0.2), fill(e => '2026-07-01 14:00+02');
SET datestyle = 'German';
SET timezone = 'Asia/Kathmandu';
SET intervalstyle = 'sql_standard';
SET extra_float_digits = -10;
SET bytea_output = 'escape';
SET quote_all_identifiers = on;
SELECT fill(), fill(d => 0.3), fill(d => 0.3);
SET quote_all_identifiers = off;
SHOW datestyle;
SHOW timezone;
RESET datestyle;
RESET timezone;
RESET intervalstyle;
RESET extra_float_digits;
RESET bytea_output;
SELECT fill(d => 0.3), fill(c => 'NaN'), fill(c => 'NaN'), fill(c => 'Infinity'), fill(d => '-0'), fill(d => '0'), fill(d => 'NaN'), fill(d => 'NaN');
SELECT count(*) FROM typed;
-- part of one is not part of another
CREATE TABLE parts (a text, b text);
SELECT idem_attach_once('parts', '{a,b}');
INSERT INTO parts VALUES ('a', 'bc'), ('ab', 'c'), ('', 'abc'), ('a1:b', 'c'), ('a', '1:bc'), ('abc', '');
-- long ones, also out of line
INSERT INTO parts SELECT repeat('x', 2000), repeat(c, 10000000) FROM unnest('{y,z,y}'::text[]) c;
INSERT INTO parts VALUES (repeat('v', 1016), ''), (repeat('v', 1017), ''), (repeat('v', 1017), ''), (repeat('v', 1016), '');
SELECT length(a), length(b) FROM parts ORDER BY 1, 2;
RESET ROLE;
SELECT length(key), left(key, 5) FROM idem.key WHERE scope = 'once.regress_once.parts' AND length(key) > 20 ORDER BY left(key, 5) = '#', key COLLATE "C" <> '', length(key) DESC, key COLLATE "C";
SET ROLE regress_idem_owner;

-- triggers that come later: they may skip the row, and may change its key
CREATE TABLE later (id int UNIQUE, key text);
SELECT idem_attach_once('later', '{key}');
CREATE FUNCTION change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF NEW.id < 0 THEN RETURN NULL; END IF;
	IF NEW.id = 10 THEN INSERT INTO later VALUES (11, NEW.key); END IF;
	IF NEW.id = 20 THEN INSERT INTO later VALUES (1, 'drop') ON CONFLICT DO NOTHING; END IF;
	NEW.key := lower(NEW.key);
	RETURN NEW;
END $$;
CREATE TRIGGER "~z" BEFORE INSERT ON later FOR EACH ROW EXECUTE FUNCTION change();
INSERT INTO later VALUES (-1, 'a'), (1, 'a'), (2, 'a');
INSERT INTO later VALUES (3, 'B'), (4, 'b');
INSERT INTO later VALUES (5, 'C'), (6, 'D');
INSERT INTO later VALUES (7, 'A');
-- it inserts the same row, or another, in between
INSERT INTO later VALUES (10, 'e');
INSERT INTO later VALUES (20, 'f');
INSERT INTO later VALUES (21, 'f'), (22, 'drop'), (23, 'drop');
SELECT * FROM later ORDER BY id;
RESET ROLE;
SELECT key FROM idem.key WHERE scope = 'once.regress_once.later' ORDER BY key COLLATE "C";
SET ROLE regress_idem_owner;
DROP TRIGGER "~z" ON later;
-- a function of a constraint that inserts
CREATE TABLE nested (id int UNIQUE, key text);
CREATE FUNCTION insert_too(id int) RETURNS bool LANGUAGE plpgsql AS $$
BEGIN
	IF id < 100 THEN
		INSERT INTO nested VALUES (1000 + id, 'n' || id), (1000, 'x' || id) ON CONFLICT DO NOTHING;
	END IF;
	RETURN true;
END $$;
INSERT INTO nested VALUES (1000, 'first');
ALTER TABLE nested ADD CHECK (insert_too(id)) NOT VALID;
SELECT idem_attach_once('nested', '{key}');
INSERT INTO nested VALUES (1, 'a'), (2, 'b'), (3, 'a'), (4, 'n1'), (5, 'x1') ;
SELECT * FROM nested ORDER BY id;
RESET ROLE;
SELECT key FROM idem.key WHERE scope = 'once.regress_once.nested' ORDER BY key COLLATE "C";
SET ROLE regress_idem_owner;

-- not whole: refused rather than half done
ALTER TABLE later DISABLE TRIGGER "~idem_once_done";
INSERT INTO later VALUES (30, 'g');
ALTER TABLE later ENABLE TRIGGER "~idem_once_done";
ALTER TABLE later DISABLE TRIGGER "~idem_once";
INSERT INTO later VALUES (30, 'g');
ALTER TABLE later DISABLE TRIGGER USER;
INSERT INTO later VALUES (30, 'a');
ALTER TABLE later ENABLE TRIGGER USER;
INSERT INTO later VALUES (31, 'a');
ALTER TABLE later DROP COLUMN key CASCADE;
INSERT INTO later VALUES (32);
SELECT idem_detach_once('later');
INSERT INTO later VALUES (32);
-- renamed triggers
ALTER TRIGGER "~idem_once" ON nested RENAME TO "a first";
INSERT INTO nested VALUES (200, 'a'), (201, 'y');
SELECT idem_detach_once('nested');
SELECT tgname FROM pg_trigger WHERE tgrelid = 'nested'::regclass ORDER BY tgname;

-- the trigger function and the type are of no other use
CREATE TABLE misuse (id int);
CREATE TRIGGER t BEFORE INSERT ON misuse FOR EACH ROW EXECUTE FUNCTION idem_once_row();
INSERT INTO misuse VALUES (1);
DROP TRIGGER t ON misuse;
CREATE TRIGGER t BEFORE INSERT ON misuse FOR EACH STATEMENT EXECUTE FUNCTION idem_once_row();
INSERT INTO misuse VALUES (1);
DROP TRIGGER t ON misuse;
CREATE TRIGGER t BEFORE INSERT ON misuse FOR EACH ROW EXECUTE FUNCTION idem_once_row('s', '');
INSERT INTO misuse VALUES (1);
SELECT idem_once_row();
SELECT 'x'::idem_inserted;
SELECT '(0,1)'::idem_inserted;
SELECT ctid::idem_inserted FROM pg_class LIMIT 1;
DO $$
BEGIN
	INSERT INTO "a.b" VALUES (77);
	PERFORM GREATEST('(0,1)'::tid::idem_inserted, '(0,1)'::tid::idem_inserted);
END $$;
BEGIN;
INSERT INTO "a.b" VALUES (78);
UPDATE "a.b" SET id = 77 WHERE id = 78;
SELECT GREATEST(ctid::idem_inserted, ctid::idem_inserted) FROM "a.b" WHERE id = 77;
ROLLBACK;
SELECT DISTINCT id FROM "a.b" ORDER BY id;

-- not under a statement that inserts, into the table or a part of it
CREATE TABLE busy (id int, p int) PARTITION BY LIST (p);
CREATE TABLE busy_1 PARTITION OF busy FOR VALUES IN (1) PARTITION BY LIST (id);
CREATE TABLE busy_1a PARTITION OF busy_1 DEFAULT;
INSERT INTO busy SELECT g, 1 FROM generate_series(1, 3) g WHERE g <> 2 OR idem_attach_once('busy', '{id}');
INSERT INTO busy_1a SELECT g, 1 FROM generate_series(1, 3) g WHERE g <> 2 OR idem_attach_once('busy', '{id}');
BEGIN;
DECLARE reading CURSOR FOR SELECT * FROM busy_1;
SELECT idem_attach_once('busy', '{id}');
ROLLBACK;
SELECT idem_attach_once('busy', '{id}');
INSERT INTO busy SELECT g, 1 FROM generate_series(1, 3) g WHERE g <> 2 OR idem_detach_once('busy');
INSERT INTO busy SELECT g, 1 FROM generate_series(1, 3) g;
SELECT id FROM busy ORDER BY id;
-- a key that is there lasts at least as long as the table says from now on
CREATE TABLE lasting (id int);
SELECT idem_attach_once('lasting', '{id}', 'regress_once_kept', '1 h');
INSERT INTO lasting VALUES (1), (2);
DELETE FROM lasting WHERE id = 2;
SELECT idem_detach_once('lasting');
SELECT idem_attach_once('lasting', '{id}', 'regress_once_kept', '5 min');
SELECT idem_detach_once('lasting');
RESET ROLE;
SELECT key, ttl, expires_at - finished_at AS kept FROM idem.key WHERE scope = 'regress_once_kept' ORDER BY key;
SET ROLE regress_idem_owner;
SELECT idem_attach_once('lasting', '{id}', 'regress_once_kept', '2 days');
SELECT idem_detach_once('lasting');
RESET ROLE;
SELECT key, ttl, expires_at - finished_at >= '2 days' AS longer FROM idem.key WHERE scope = 'regress_once_kept' ORDER BY key;
SET ROLE regress_idem_owner;
SELECT idem_attach_once('lasting', '{id}', 'regress_once_kept');
RESET ROLE;
SELECT key, ttl, expires_at IS NULL AS for_ever FROM idem.key WHERE scope = 'regress_once_kept' ORDER BY key;
-- one that has expired is not told of
SELECT idem_detach_once('lasting');
UPDATE idem.key SET expires_at = now() - interval '1 s' WHERE scope = 'regress_once_kept' AND key = '1:2';
SELECT idem_attach_once('lasting', '{id}', 'regress_once_kept');
SET ROLE regress_idem_owner;
INSERT INTO lasting VALUES (1), (3) RETURNING id;
-- the scope does not follow what the session says of quoting
SET quote_all_identifiers = on;
CREATE TABLE quoted (id int);
SELECT idem_attach_once('quoted', '{id}');
RESET quote_all_identifiers;
INSERT INTO quoted VALUES (1);
RESET ROLE;
SELECT scope, key FROM idem.key WHERE scope LIKE '%quoted%';
SET ROLE regress_idem_owner;
-- scopes of idem's own are none for tables
SELECT idem_detach_once('lasting');
SELECT idem_attach_once('lasting', '{id}', 'idem.fire');

-- what a session knows of tables that are gone is forgotten
RESET ROLE;
DO $$
BEGIN
	FOR i IN 1 .. 100 LOOP
		CREATE TABLE gone (id int);
		PERFORM idem_attach_once('gone', '{id}', 'regress_once_gone' || i);
		INSERT INTO gone VALUES (i);
		DROP TABLE gone;
	END LOOP;
END $$;
SELECT count(*) < 20 AS few FROM pg_backend_memory_contexts WHERE name = 'idem once table';

RESET search_path;
\set VERBOSITY terse
DROP SCHEMA regress_once CASCADE;
DELETE FROM idem.key WHERE scope LIKE 'once.%' OR scope LIKE 'regress_once%';
SELECT idem_revoke('regress_idem_owner'), idem_revoke('regress_idem_other');
DROP OWNED BY regress_idem_owner, regress_idem_other;
DROP ROLE regress_idem_owner, regress_idem_other;
