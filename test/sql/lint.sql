-- idem_lint: each thing that is probably not meant.
CREATE ROLE regress_idem_gone;
CREATE FUNCTION pg_temp.lint(definition text) RETURNS TABLE (code text, severity text, what text, "rows" bigint) LANGUAGE plpgsql AS $$
BEGIN
	PERFORM idem_define('m', E'stateDiagram-v2\n' || definition);
	RETURN QUERY SELECT * FROM idem_lint('m');
END $$;

SELECT * FROM pg_temp.lint(E'[*] --> a\na --> b : go\nb --> [*]');
SELECT * FROM pg_temp.lint(E'[*] --> a\na --> b : go\nb --> [*]\nstate c\nd --> b');
SELECT * FROM pg_temp.lint(E'[*] --> a\na --> b : go');
SELECT * FROM pg_temp.lint(E'[*] --> a\na --> b : go\na --> c : go\nb --> [*]\nc --> [*]');
SELECT * FROM pg_temp.lint(E'[*] --> a\na --> b : go by regress_idem_gone\na --> c : go\nb --> [*]\nc --> [*]');
SELECT * FROM pg_temp.lint(E'[*] --> a\na --> b : go [new.n > 1]\na --> c : go\nb --> [*]\nc --> [*]');
SELECT * FROM pg_temp.lint(E'[*] --> a\na --> b : go [new.n > 1]\na --> c : go [new.n > 1]\nb --> [*]\nc --> [*]');
SELECT * FROM pg_temp.lint(E'[*] --> a\n[any] --> c : stop\na --> b : stop\na --> b : go\nb --> c : go\nb --> c : stop\nc --> [*]');
SELECT * FROM pg_temp.lint(E'[*] --> a\na --> b : stop\n[any] --> c : stop\nb --> [*]\nc --> [*]');
SELECT * FROM pg_temp.lint(E'[*] --> a\n[any] --> b : stop\n[any] --> c : stop\nb --> [*]\nc --> [*]');
SELECT * FROM pg_temp.lint(E'[*] --> on\non --> off : press\noff --> on : press');
SELECT * FROM pg_temp.lint(E'[*] --> a\na --> b : go\nb --> c : go\nc --> b : back\na --> d : end\nd --> [*]');
SELECT * FROM pg_temp.lint(E'[*] --> a\na --> a : touch\na --> b : go\nb --> [*]\n');
SELECT * FROM pg_temp.lint(E'[*] --> a\na --> a : touch\na --> b : go\nb --> [*]\nnote right of a : reenter');
SELECT * FROM pg_temp.lint(E'[*] --> a\na --> b : go\nb --> c : on\n[any] --> d : stop\nc --> [*]\nd --> [*]\nnote right of b : frozen');
SELECT * FROM pg_temp.lint(E'[*] --> a\na --> b : go by regress_idem_gone\nb --> [*]');
DROP ROLE regress_idem_gone;
SELECT * FROM idem_lint('m');
INSERT INTO idem.machine (name) VALUES ('empty');
SELECT * FROM idem_lint('empty');

-- With rows.
SELECT * FROM pg_temp.lint(E'[*] --> a\na --> b : go\na --> c : end\nc --> [*]\nd --> c');
CREATE TABLE lint_row (id int, state text);
INSERT INTO lint_row SELECT i, (ARRAY['a', 'b', 'b', 'd', 'z'])[1 + i % 5] FROM generate_series(1, 50) AS i;
SELECT idem_attach('m', 'lint_row', 'state', accept_existing => true);
SELECT * FROM idem_lint('m');
-- each table's own, and those in no state
CREATE TABLE "Lint none" (id int, state text);
INSERT INTO "Lint none" SELECT i, CASE i % 3 WHEN 1 THEN 'a' WHEN 2 THEN 'y' END FROM generate_series(1, 9) AS i;
SELECT idem_attach('m', '"Lint none"', 'state', accept_existing => true);
SELECT * FROM idem_lint('m') WHERE code = 'unknown_state';
UPDATE "Lint none" SET state = 'a' WHERE state IS NULL;
SELECT * FROM idem_lint('m') WHERE code = 'unknown_state';
DROP TABLE "Lint none";

-- Rows are told to who may see them.
CREATE ROLE regress_idem_reader;
SELECT idem_grant('regress_idem_reader');
SET ROLE regress_idem_reader;
SELECT code, "rows" FROM idem_lint('m');
SELECT idem_diagram('m') IS NOT NULL;
SELECT idem_diagram('m', counts => true);
RESET ROLE;
GRANT SELECT (state) ON lint_row TO regress_idem_reader;
SET ROLE regress_idem_reader;
SELECT code, "rows" FROM idem_lint('m');
SELECT idem_diagram('m', counts => true) IS NOT NULL;
RESET ROLE;
DROP TABLE lint_row;

-- a default with which no row begins; what is not constant is not looked at
SELECT count(*) FROM pg_temp.lint(E'[*] --> a\na --> b : go\nb --> [*]');
CREATE TYPE lint_label AS ENUM ('b', 'a');
CREATE DOMAIN lint_domain AS varchar(9) DEFAULT 'b';
CREATE TABLE lint_default (id int, cut varchar(9) DEFAULT 'b', label lint_label DEFAULT 'b', of_domain lint_domain,
	strange text DEFAULT 'z', padded char(4) DEFAULT 'b', fine text DEFAULT 'a', none text, made text DEFAULT CURRENT_USER);
SELECT count(idem_attach('m', 'lint_default', name))
FROM unnest('{cut,label,of_domain,strange,padded,fine,none,made}'::name[]) AS name;
SELECT code, severity, what FROM idem_lint('m');
DROP TABLE lint_default;
-- one that fails when it is computed, or runs something, is neither
CREATE FUNCTION lint_bad() RETURNS text IMMUTABLE LANGUAGE plpgsql AS $$BEGIN RAISE 'bad'; END$$;
CREATE TABLE lint_fails (id int, a varchar(3) DEFAULT 'abcdef', b text DEFAULT lint_bad(), c text DEFAULT (1/0)::text, d bigint DEFAULT 1, e text DEFAULT true, f int DEFAULT 1.0);
SELECT count(idem_attach('m', 'lint_fails', name)) FROM unnest('{a,b,c,d,e,f}'::name[]) AS name;
SELECT what FROM idem_lint('m') WHERE code = 'default' ORDER BY what;
DROP TABLE lint_fails;
DROP FUNCTION lint_bad;
-- a label that the transaction has just added is one
CREATE TYPE lint_new AS ENUM ('a');
CREATE TABLE lint_added (id int, s lint_new DEFAULT 'a');
BEGIN;
ALTER TYPE lint_new ADD VALUE 'b';
SELECT idem_attach('m', 'lint_added', 's');
SELECT count(*) FROM idem_lint('m') WHERE what LIKE '%lint_added%';
ROLLBACK;
DROP TABLE lint_added;
DROP TYPE lint_new;
DROP DOMAIN lint_domain;
DROP TYPE lint_label;

-- a trigger that does not fire
CREATE TABLE lint_trigger (id int PRIMARY KEY, state text DEFAULT 'a', other text DEFAULT 'a');
SELECT idem_attach('m', 'lint_trigger', 'state', history => true);
SELECT idem_define('other', E'stateDiagram-v2\n[*] --> a');
SELECT idem_attach('other', 'lint_trigger', 'other');
ALTER TABLE lint_trigger DISABLE TRIGGER USER;
SELECT code, severity, what FROM idem_lint('m');
ALTER TABLE lint_trigger ENABLE TRIGGER USER;
SELECT * FROM idem_lint('m');
ALTER TABLE lint_trigger ENABLE REPLICA TRIGGER "~idem_state";
SELECT code, severity, what FROM idem_lint('m');
ALTER TABLE lint_trigger ENABLE ALWAYS TRIGGER "~idem_state";
SELECT * FROM idem_lint('m');
-- in partitions, once where the parent's does not fire either
CREATE TABLE lint_part (id int PRIMARY KEY, state text DEFAULT 'a') PARTITION BY RANGE (id);
CREATE TABLE lint_part_1 PARTITION OF lint_part FOR VALUES FROM (0) TO (10);
CREATE TABLE lint_part_2 PARTITION OF lint_part DEFAULT PARTITION BY RANGE (id);
CREATE TABLE lint_part_3 PARTITION OF lint_part_2 DEFAULT;
SELECT idem_attach('m', 'lint_part', 'state');
ALTER TABLE lint_part_1 DISABLE TRIGGER USER;
ALTER TABLE lint_part_3 ENABLE REPLICA TRIGGER "~idem_state";
SELECT code, severity, what FROM idem_lint('m');
ALTER TABLE lint_part DISABLE TRIGGER "~idem_state";
ALTER TABLE lint_part_1 ENABLE TRIGGER USER;
SELECT code, severity, what FROM idem_lint('m');
DROP TABLE lint_part;
-- and one that is gone
DROP TRIGGER "~idem_state" ON lint_trigger;
SELECT idem_attach('m', 'lint_trigger', 'state');
SELECT idem_detach('lint_trigger', 'state'), idem_attach('m', 'lint_trigger', 'state');
DROP TABLE lint_trigger;

-- whose owner is gone
CREATE ROLE regress_idem_gone;
UPDATE idem.machine SET owner = 'regress_idem_gone' WHERE name = 'm';
DROP ROLE regress_idem_gone;
SELECT * FROM idem_lint('m');
SELECT idem_revoke('regress_idem_reader');
DROP ROLE regress_idem_reader;

SELECT * FROM idem_lint(NULL);
SELECT * FROM idem_lint('nothing like it');
DELETE FROM idem.machine;
