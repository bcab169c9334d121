-- A definition that gives up a state: refused while rows are in it, unless it
-- is said where they go.
CREATE ROLE regress_idem_keeper;
CREATE ROLE regress_idem_clerk;
GRANT CREATE ON SCHEMA public TO regress_idem_keeper;
SELECT idem_grant('regress_idem_keeper', 'operator');
SET ROLE regress_idem_keeper;

SELECT idem_define('flow', $$stateDiagram-v2
    [*] --> draft
    draft --> review : submit
    review --> edit : edit
    edit --> review
    review --> done : finish
    done --> [*]
    note right of done : frozen
$$);
CREATE TYPE flow_state AS ENUM ('draft', 'review', 'edit', 'done', 'checked');
CREATE DOMAIN flow_domain AS varchar(10) CHECK (VALUE <> '');
CREATE TABLE flow_text (id int PRIMARY KEY, state text NOT NULL, n int DEFAULT 0);
CREATE TABLE flow_enum (id int PRIMARY KEY, state flow_state);
CREATE TABLE "flow ch""ar" (id int PRIMARY KEY, "st ate" char(10));
CREATE TABLE flow_domains (id int, state flow_domain);
CREATE TABLE flow_parts (id int, state text) PARTITION BY LIST (state);
CREATE TABLE flow_parts_a PARTITION OF flow_parts FOR VALUES IN ('draft', 'review');
CREATE TABLE flow_parts_b PARTITION OF flow_parts DEFAULT;
INSERT INTO flow_text SELECT i, (ARRAY['draft', 'review', 'edit', 'done'])[i] FROM generate_series(1, 4) AS i;
INSERT INTO flow_enum SELECT id, state::flow_state FROM flow_text;
INSERT INTO "flow ch""ar" SELECT id, state FROM flow_text;
INSERT INTO flow_domains SELECT id, state FROM flow_text;
INSERT INTO flow_parts SELECT id, state FROM flow_text;
SELECT idem_attach('flow', 'flow_text', 'state');
SELECT idem_attach('flow', 'flow_enum', 'state');
SELECT idem_attach('flow', '"flow ch""ar"', 'st ate');
SELECT idem_attach('flow', 'flow_domains', 'state');
SELECT idem_attach('flow', 'flow_parts', 'state');
SELECT machine, table_name, column_name FROM idem.binding ORDER BY table_name::text;

-- Refused, with counts, by definition and by plain DML.
SELECT idem_define('flow', $$stateDiagram-v2
    [*] --> draft
    draft --> checked : submit
    checked --> [*]
$$);
DELETE FROM idem.state WHERE machine = 'flow' AND name = 'review';
UPDATE idem.state SET name = 'seen' WHERE machine = 'flow' AND name = 'review';
DELETE FROM idem.machine WHERE name = 'flow';
UPDATE idem.machine SET name = 'flood' WHERE name = 'flow';
SELECT idem_define('flow', $$stateDiagram-v2
    [*] --> draft
    draft --> checked : submit
    checked --> [*]
$$, moved => '{"review": "checked", "edit": "checked"}');
SELECT name FROM idem.state WHERE machine = 'flow' ORDER BY 1;
SELECT state, count(*) FROM flow_text GROUP BY 1 ORDER BY 1;

-- A state that no row is in goes without more.
UPDATE flow_text SET n = 1 WHERE id = 2;
SELECT idem_define('flow', $$stateDiagram-v2
    [*] --> draft
    draft --> review : submit
    review --> edit : edit
    edit --> review
    review --> done : finish
    review --> idle
    done --> [*]
    note right of done : frozen
$$);
SELECT idem_define('flow', $$stateDiagram-v2
    [*] --> draft
    draft --> review : submit
    review --> edit : edit
    edit --> review
    review --> done : finish
    done --> [*]
    note right of done : frozen
$$);

-- With a place for each, rows move, also out of a frozen and final state, past
-- what the machine allows, and old names may be new ones' neighbours.
BEGIN;
SELECT idem_define('flow', $$stateDiagram-v2
    [*] --> draft
    draft --> checked : submit
    checked --> [*]
$$, moved => '{"review": "checked", "edit": "draft", "done": "checked", "other": "draft"}');
SELECT name FROM idem.state WHERE machine = 'flow' ORDER BY 1;
SELECT state, count(*) FROM flow_text GROUP BY 1 ORDER BY 1;
SELECT state, count(*) FROM flow_enum GROUP BY 1 ORDER BY 1;
SELECT "st ate", count(*) FROM "flow ch""ar" GROUP BY 1 ORDER BY 1;
SELECT state, count(*) FROM flow_domains GROUP BY 1 ORDER BY 1;
SELECT tableoid::regclass, state, count(*) FROM flow_parts GROUP BY 1, 2 ORDER BY 2;

-- The same again is nothing, and the new rules hold at once.
SELECT idem_define('flow', $$stateDiagram-v2
    [*] --> draft
    draft --> checked : submit
    checked --> [*]
$$, moved => '{"review": "checked", "edit": "draft", "done": "checked", "other": "draft"}');
UPDATE flow_text SET state = 'checked' WHERE id = 1;
SAVEPOINT s;
UPDATE flow_text SET state = 'draft' WHERE id = 1;
ROLLBACK;

-- A label that the column cannot hold.
SELECT idem_define('flow', $$stateDiagram-v2
    [*] --> draft
    draft --> unheard_of : submit
    unheard_of --> [*]
$$, moved => '{"review": "unheard_of", "edit": "draft", "done": "draft"}');

-- A trigger that keeps rows where they are does not get past.
CREATE FUNCTION flow_keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
CREATE TRIGGER a BEFORE UPDATE ON flow_text FOR EACH ROW EXECUTE FUNCTION flow_keep();
SELECT idem_define('flow', $$stateDiagram-v2
    [*] --> draft
    draft --> checked : submit
    checked --> [*]
$$, moved => '{"review": "checked", "edit": "draft", "done": "checked"}');
DROP TRIGGER a ON flow_text;

-- Who may define may not therefore read or write: the tables are the caller's
-- business.
RESET ROLE;
CREATE TABLE flow_other (id int, state text);
INSERT INTO flow_other VALUES (1, 'review');
SELECT idem_attach('flow', 'flow_other', 'state');
SET ROLE regress_idem_keeper;
SELECT idem_define('flow', $$stateDiagram-v2
    [*] --> draft
    draft --> checked : submit
    checked --> [*]
$$, moved => '{"review": "checked", "edit": "draft", "done": "checked"}');
RESET ROLE;
GRANT SELECT, UPDATE ON flow_other TO regress_idem_keeper;
ALTER TABLE flow_other ENABLE ROW LEVEL SECURITY;
CREATE POLICY few ON flow_other USING (state <> 'review');
SET ROLE regress_idem_keeper;
SELECT idem_define('flow', $$stateDiagram-v2
    [*] --> draft
    draft --> checked : submit
    checked --> [*]
$$, moved => '{"review": "checked", "edit": "draft", "done": "checked"}');
RESET ROLE;
DROP TABLE flow_other;

-- The first transition after some time needs histories.
SELECT idem_define('flow', $$stateDiagram-v2
    [*] --> draft
    draft --> review : submit
    review --> edit : edit
    edit --> review
    review --> done : finish after 1 h
    done --> [*]
    note right of done : frozen
$$);

DROP TABLE flow_text, flow_enum, "flow ch""ar", flow_domains, flow_parts;
DROP TYPE flow_state;
DROP DOMAIN flow_domain;
DROP FUNCTION flow_keep();
-- Rows in what is no state, that a table was attached with, are moved likewise,
-- by a definition that stands or by another.
SET ROLE regress_idem_keeper;
CREATE TYPE flow_dirt AS ENUM ('NEW', 'new', 'old', 'zapped');
CREATE TABLE flow_text (id int PRIMARY KEY, state text, n int);
CREATE TABLE flow_enum (id int PRIMARY KEY, state flow_dirt);
CREATE TABLE flow_parts (id int, state text, PRIMARY KEY (id, state)) PARTITION BY LIST (state);
CREATE TABLE flow_parts_a PARTITION OF flow_parts FOR VALUES IN ('new', 'old');
CREATE TABLE flow_parts_b PARTITION OF flow_parts DEFAULT;
INSERT INTO flow_text VALUES (1, 'NEW'), (2, 'NEW'), (3, ''), (4, NULL), (5, 'new'), (6, 'zapped');
INSERT INTO flow_enum VALUES (1, 'NEW'), (2, 'zapped'), (3, 'new');
INSERT INTO flow_parts SELECT id, state FROM flow_text WHERE state IS NOT NULL;
SELECT idem_define('dirt', E'stateDiagram-v2\n[*] --> new\nnew --> old : age after 1 year\nold --> [*]\nnote right of old : frozen');
SELECT idem_attach('dirt', t, 'state', history => true, accept_existing => true, events_only => t = 'flow_enum'::regclass)
FROM unnest('{flow_text,flow_enum,flow_parts}'::regclass[]) AS t;
UPDATE flow_text SET state = 'new' WHERE id = 1;
SELECT idem_why_not('flow_text', 1, 'age');
SELECT idem_define('dirt', idem_diagram('dirt'), moved => '{"new": "old"}');
SELECT idem_define('dirt', idem_diagram('dirt'), moved => '{"NEW": "now"}');
SELECT idem_define('dirt', idem_diagram('dirt'), moved => '{"NEW": "new", "": "old", "never": "old"}');
SELECT * FROM flow_text ORDER BY id;
SELECT * FROM flow_enum ORDER BY id;
SELECT tableoid::regclass, * FROM flow_parts ORDER BY id;
SELECT table_name, row_key, event, from_state, to_state FROM idem.history WHERE machine = 'dirt' ORDER BY table_name, seq;
SELECT * FROM idem_verify('flow_text');
UPDATE flow_text SET n = 1 WHERE id = 3;
-- again it is nothing, and takes no lock
BEGIN;
SELECT idem_define('dirt', idem_diagram('dirt'), moved => '{"NEW": "new", "": "old", "never": "old"}');
SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND mode = 'ShareRowExclusiveLock';
COMMIT;
-- together with a state that goes
SELECT idem_define('dirt', E'stateDiagram-v2\n[*] --> new\nnew --> done : age after 1 year\ndone --> [*]',
	moved => '{"zapped": "done", "old": "done"}');
DELETE FROM flow_enum WHERE id = 2;
SELECT idem_define('dirt', E'stateDiagram-v2\n[*] --> new\nnew --> done : age after 1 year\ndone --> [*]',
	moved => '{"zapped": "done", "old": "done"}');
SELECT state, count(*) FROM flow_text GROUP BY 1 ORDER BY 1;
SELECT state, count(*) FROM flow_parts GROUP BY 1 ORDER BY 1;
-- what the caller may not see stays
RESET ROLE;
CREATE TABLE flow_other (id int PRIMARY KEY, state text);
INSERT INTO flow_other VALUES (1, 'NEW');
SET client_min_messages = error;
SELECT idem_attach('dirt', 'flow_other', 'state', history => true, validate => false);
RESET client_min_messages;
SET ROLE regress_idem_keeper;
UPDATE flow_enum SET state = 'new' WHERE id = 1;
SELECT idem_detach('flow_enum', 'state');
UPDATE flow_enum SET state = 'NEW' WHERE id = 1;
SELECT idem_attach('dirt', 'flow_enum', 'state', history => true, validate => false);
SELECT idem_define('dirt', idem_diagram('dirt'), moved => '{"NEW": "new"}');
SELECT * FROM flow_enum ORDER BY id;
SELECT idem_define('dirt', idem_diagram('dirt') || E'\nnew --> gone\ngone --> [*]', moved => '{"NEW": "new"}');
RESET ROLE;
GRANT SELECT, UPDATE ON flow_other TO regress_idem_keeper;
SET ROLE regress_idem_keeper;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT * FROM flow_other;
SELECT idem_define('dirt', idem_diagram('dirt'), moved => '{"NEW": "new"}');
SELECT * FROM flow_other;
COMMIT;
RESET ROLE;
DROP TABLE flow_text, flow_enum, flow_parts, flow_other;
-- a version counts on, a strict one too
SET ROLE regress_idem_keeper;
CREATE TABLE flow_text (id int PRIMARY KEY, state varchar(8), "Ver sion" int NOT NULL DEFAULT 1);
SELECT idem_define('dirt', E'stateDiagram-v2\n[*] --> new\nnew --> old'),
	idem_attach('dirt', 'flow_text', 'state', history => true, events_only => true),
	idem_attach_version('flow_text', 'Ver sion', strict => true);
INSERT INTO flow_text VALUES (1, 'new'), (2, 'new');
SELECT outcome FROM idem_fire('flow_text', 1, 'old');
SELECT idem_define('dirt', E'stateDiagram-v2\n[*] --> new\nnew --> ancient', moved => '{"old": "ancient"}');
SELECT idem_detach_version('flow_text'), idem_attach_version('flow_text', 'Ver sion', strict => true, mode => 'next');
SELECT idem_define('dirt', E'stateDiagram-v2\n[*] --> new\nnew --> antique', moved => '{"ancient": "antique"}');
SELECT * FROM flow_text ORDER BY id;
-- of partitions and children alone
CREATE TABLE flow_sp (id int PRIMARY KEY, state text, n int NOT NULL DEFAULT 1) PARTITION BY RANGE (id);
CREATE TABLE flow_sp1 PARTITION OF flow_sp DEFAULT;
CREATE TABLE flow_si (id int PRIMARY KEY, state text);
CREATE TABLE flow_sc (n int NOT NULL DEFAULT 1, PRIMARY KEY (id)) INHERITS (flow_si);
SELECT idem_define('sdirt', E'stateDiagram-v2\n[*] --> a'), idem_attach('sdirt', 'flow_sp', 'state'), idem_attach('sdirt', 'flow_si', 'state'),
	idem_attach_version('flow_sp1', 'n', strict => true), idem_attach_version('flow_sc', 'n', strict => true);
INSERT INTO flow_sp VALUES (1, 'a');
INSERT INTO flow_si VALUES (1, 'a');
INSERT INTO flow_sc VALUES (2, 'a');
SELECT idem_define('sdirt', E'stateDiagram-v2\n[*] --> b', moved => '{"a": "b"}');
SELECT state, n FROM flow_sp UNION ALL SELECT state, n FROM flow_sc UNION ALL SELECT state, NULL FROM ONLY flow_si;
DROP TABLE flow_sp, flow_sc, flow_si;
-- an exempt role, too, has its rows moved by "migrate"
CREATE TABLE flow_sp (id int PRIMARY KEY, state text);
SELECT idem_attach('sdirt', 'flow_sp', 'state', history => true, exempt => '{regress_idem_keeper}');
INSERT INTO flow_sp VALUES (1, 'b');
SELECT idem_define('sdirt', E'stateDiagram-v2\n[*] --> c', moved => '{"b": "c"}');
SELECT event, from_state, to_state FROM idem_history('flow_sp', 1);
DROP TABLE flow_sp;
RESET ROLE;
DELETE FROM idem.machine WHERE name = 'sdirt';
SET ROLE regress_idem_keeper;
-- what the column cannot hold, with the table
\set SHOW_CONTEXT always
SELECT idem_define('dirt', E'stateDiagram-v2\n[*] --> new\nnew --> antediluvian', moved => '{"antique": "antediluvian"}');
\set SHOW_CONTEXT errors
RESET ROLE;
DROP TABLE flow_text;
DROP TYPE flow_dirt;

-- A statement that is writing an attached table keeps to the states there were
CREATE TABLE flow_text (id int PRIMARY KEY, state text, n int);
SELECT idem_define('busy', E'stateDiagram-v2\n[*] --> a\na --> b\na --> c'), idem_attach('busy', 'flow_text', 'state');
INSERT INTO flow_text VALUES (1, 'a'), (2, 'a');
CREATE FUNCTION flow_define(definition text, moved jsonb) RETURNS int LANGUAGE plpgsql AS $$BEGIN
	PERFORM idem_define('busy', definition, moved);
	RETURN 1;
END$$;
CREATE FUNCTION flow_delete() RETURNS int LANGUAGE plpgsql AS $$BEGIN
	DELETE FROM idem.state WHERE machine = 'busy' AND name = 'c';
	RETURN 1;
END$$;
UPDATE flow_text SET state = CASE id WHEN 1 THEN 'b' ELSE 'c' END,
	n = CASE id WHEN 2 THEN flow_define(E'stateDiagram-v2\n[*] --> a\na --> b', NULL) END;
UPDATE flow_text SET state = CASE id WHEN 1 THEN 'b' ELSE 'c' END,
	n = CASE id WHEN 2 THEN flow_define(E'stateDiagram-v2\n[*] --> a\na --> b', '{"c": "a"}') END;
UPDATE flow_text SET state = CASE id WHEN 1 THEN 'b' ELSE 'c' END, n = CASE id WHEN 2 THEN flow_delete() END;
-- a definition that gives up none, and one in a statement of its own
UPDATE flow_text SET n = flow_define(E'stateDiagram-v2\n[*] --> a\na --> b\na --> c\nb --> c', NULL) WHERE id = 1;
SELECT flow_define(E'stateDiagram-v2\n[*] --> a\na --> b', NULL);
-- not in the midst of rows being moved
CREATE FUNCTION flow_again() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
	PERFORM idem_define('busy', E'stateDiagram-v2\n[*] --> a');
	RETURN new;
END$$;
CREATE TRIGGER again BEFORE UPDATE ON flow_text FOR EACH ROW EXECUTE FUNCTION flow_again();
SELECT idem_define('busy', E'stateDiagram-v2\n[*] --> b', '{"a": "b"}');
SELECT * FROM flow_text ORDER BY id;
SELECT * FROM idem_verify('flow_text');
DROP TRIGGER again ON flow_text;

-- rows that a trigger keeps where they are, though they were to go
CREATE FUNCTION flow_keep() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
	RETURN old;
END$$;
CREATE TRIGGER keep BEFORE UPDATE ON flow_text FOR EACH ROW WHEN (old.state = 'b') EXECUTE FUNCTION flow_keep();
UPDATE flow_text SET state = 'b';
SELECT idem_define('busy', E'stateDiagram-v2\n[*] --> a', '{"b": "a"}');
DROP TRIGGER keep ON flow_text;
SELECT idem_define('busy', E'stateDiagram-v2\n[*] --> a', '{"b": "a"}');
SELECT * FROM flow_text ORDER BY id;
DROP TABLE flow_text;
DROP FUNCTION flow_define, flow_delete, flow_again, flow_keep;

DELETE FROM idem.machine WHERE name IN ('flow', 'dirt', 'busy');
SELECT idem_revoke('regress_idem_keeper');
REVOKE CREATE ON SCHEMA public FROM regress_idem_keeper;
DROP ROLE regress_idem_keeper, regress_idem_clerk;
