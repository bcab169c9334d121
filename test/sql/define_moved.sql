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
DELETE FROM idem.machine WHERE name = 'flow';
SELECT idem_revoke('regress_idem_keeper');
REVOKE CREATE ON SCHEMA public FROM regress_idem_keeper;
DROP ROLE regress_idem_keeper, regress_idem_clerk;
