-- A statement keeps to the definition that it began with, also where triggers
-- of it have another memory; and what was decided as one role stands.

\set SHOW_CONTEXT never
\set VERBOSITY terse

CREATE FUNCTION gs_define(changed boolean) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM idem_define('gs', CASE WHEN changed
		THEN E'stateDiagram-v2\n[*] --> a\n[*] --> aa\n[*] --> c\na --> aa : go\nb --> c : on'
		ELSE E'stateDiagram-v2\n[*] --> a\na --> b : go\nb --> c : on' END);
END$$;
SELECT gs_define(false);
CREATE FUNCTION gs_change() RETURNS trigger LANGUAGE plpgsql AS
$$BEGIN PERFORM gs_define(true); RETURN coalesce(new, old); END$$;
CREATE FUNCTION gs_nop() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RETURN new; END$$;

-- a foreign key's action
CREATE TABLE gs_states (name text PRIMARY KEY);
CREATE TABLE gs_row (id int PRIMARY KEY, state text DEFAULT 'b' REFERENCES gs_states ON UPDATE CASCADE ON DELETE SET DEFAULT);
CREATE TABLE gs_late (id int PRIMARY KEY, state text DEFAULT 'b' REFERENCES gs_states ON UPDATE CASCADE ON DELETE SET DEFAULT);
CREATE TRIGGER nop AFTER UPDATE ON gs_row FOR EACH ROW EXECUTE FUNCTION gs_nop();
CREATE TRIGGER "~~late" BEFORE UPDATE ON gs_late FOR EACH ROW EXECUTE FUNCTION gs_nop();
CREATE TRIGGER zz AFTER DELETE ON gs_states FOR EACH ROW EXECUTE FUNCTION gs_change();
SELECT idem_attach('gs', 'gs_row', 'state', history => true);
SELECT idem_attach('gs', 'gs_late', 'state', history => true);
INSERT INTO gs_states VALUES ('a'), ('b'), ('c');
INSERT INTO gs_row VALUES (1, 'a');
INSERT INTO gs_late VALUES (1, 'a');
BEGIN;
DELETE FROM gs_states WHERE name = 'a';
SELECT table_name, row_key, event, from_state, to_state FROM idem.history
WHERE machine = 'gs' AND from_state IS NOT NULL ORDER BY seq;
ROLLBACK;

-- COPY
CREATE TABLE gs_copy (id int PRIMARY KEY, state text);
SELECT idem_attach('gs', 'gs_copy', 'state', history => true);
CREATE TRIGGER nop AFTER INSERT ON gs_copy FOR EACH ROW EXECUTE FUNCTION gs_nop();
CREATE FUNCTION gs_second() RETURNS trigger LANGUAGE plpgsql AS
$$BEGIN IF new.id = 3 THEN PERFORM gs_define(true); END IF; RETURN new; END$$;
CREATE TRIGGER second BEFORE INSERT ON gs_copy FOR EACH ROW EXECUTE FUNCTION gs_second();
COPY gs_copy FROM stdin;
2	a
3	c
\.
INSERT INTO gs_copy VALUES (2, 'a'), (3, 'c');
-- the next statement sees it
BEGIN;
SELECT gs_define(true);
INSERT INTO gs_copy VALUES (2, 'a'), (4, 'c');
ROLLBACK;

-- a verb's statement keeps to the verb's
CREATE TABLE gs_fire (id int PRIMARY KEY, state text);
CREATE TRIGGER a_change BEFORE UPDATE ON gs_fire FOR EACH ROW EXECUTE FUNCTION gs_change();
SELECT idem_attach('gs', 'gs_fire', 'state', history => true);
INSERT INTO gs_fire VALUES (1, 'a'), (2, 'a');
BEGIN;
SELECT outcome, to_state FROM idem_try_fire('gs_fire', 1, 'go');
ROLLBACK;

-- what a foreign key's action did as the table's owner, who is exempt, is asked
-- for as whoever deletes
CREATE ROLE regress_idem_gs_owner;
CREATE ROLE regress_idem_gs_user;
GRANT CREATE, USAGE ON SCHEMA public TO regress_idem_gs_owner;
CREATE TABLE gs_list (name text PRIMARY KEY);
ALTER TABLE gs_list OWNER TO regress_idem_gs_owner;
CREATE TABLE gs_plain (id int PRIMARY KEY, state text REFERENCES gs_list ON DELETE SET NULL ON UPDATE CASCADE);
CREATE TABLE gs_rows (LIKE gs_plain INCLUDING ALL, FOREIGN KEY (state) REFERENCES gs_list ON DELETE SET NULL ON UPDATE CASCADE);
CREATE TRIGGER nop AFTER UPDATE ON gs_rows FOR EACH ROW EXECUTE FUNCTION gs_nop();
CREATE TABLE gs_over (LIKE gs_rows INCLUDING ALL, FOREIGN KEY (state) REFERENCES gs_list ON DELETE SET NULL ON UPDATE CASCADE);
CREATE TRIGGER "~~late" BEFORE UPDATE ON gs_over FOR EACH ROW EXECUTE FUNCTION gs_nop();
ALTER TABLE gs_plain OWNER TO regress_idem_gs_owner;
ALTER TABLE gs_rows OWNER TO regress_idem_gs_owner;
ALTER TABLE gs_over OWNER TO regress_idem_gs_owner;
SELECT idem_attach('gs', t, 'state', exempt => '{regress_idem_gs_owner}', history => h)
FROM (VALUES ('gs_plain', true), ('gs_rows', true), ('gs_over', false)) AS t (t, h);
INSERT INTO gs_list VALUES ('a'), ('b');
INSERT INTO gs_plain VALUES (1, 'a'), (2, 'a');
INSERT INTO gs_rows TABLE gs_plain;
INSERT INTO gs_over TABLE gs_plain;
GRANT ALL ON gs_list, gs_plain, gs_rows, gs_over TO regress_idem_gs_user;
SET ROLE regress_idem_gs_user;
UPDATE gs_rows SET state = 'c' WHERE id = 1;
BEGIN;
DELETE FROM gs_list WHERE name = 'a';
SELECT * FROM gs_plain, gs_rows, gs_over ORDER BY 1, 3, 5;
ROLLBACK;
UPDATE gs_list SET name = 'unknown' WHERE name = 'a';
SELECT * FROM gs_plain WHERE id = 1 UNION ALL SELECT * FROM gs_rows WHERE id = 1 UNION ALL SELECT * FROM gs_over WHERE id = 1;
RESET ROLE;
SELECT table_name, row_key, event, from_state, to_state FROM idem.history
WHERE table_name IN ('gs_plain', 'gs_rows') AND from_state IS NOT NULL ORDER BY table_name, row_key;

-- rows of COPY FREEZE, while one that moved has not arrived
CREATE TABLE gs_parts (id int, k int, state text, PRIMARY KEY (id, k)) PARTITION BY LIST (k);
CREATE TABLE gs_parts1 PARTITION OF gs_parts FOR VALUES IN (1);
CREATE TABLE gs_parts2 PARTITION OF gs_parts FOR VALUES IN (2);
CREATE TABLE gs_parts3 PARTITION OF gs_parts FOR VALUES IN (3);
SELECT idem_attach('gs', 'gs_parts', 'state', history => true);
CREATE FUNCTION gs_null() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RETURN NULL; END$$;
CREATE TRIGGER suppressed BEFORE INSERT ON gs_parts2 FOR EACH ROW EXECUTE FUNCTION gs_null();
INSERT INTO gs_parts VALUES (1, 1, 'a');
BEGIN;
TRUNCATE gs_parts3;
UPDATE gs_parts SET k = 2 WHERE id = 1;
COPY gs_parts3 FROM stdin FREEZE;
7	3	a
8	3	a
\.
COMMIT;
SELECT row_key, event, from_state, to_state FROM idem.history WHERE table_name = 'gs_parts' ORDER BY seq;

DROP TABLE gs_row, gs_late, gs_states, gs_copy, gs_fire, gs_plain, gs_rows, gs_over, gs_list, gs_parts;
DROP FUNCTION gs_define, gs_change, gs_nop, gs_second, gs_null;
DELETE FROM idem.machine WHERE name = 'gs';
ALTER TABLE idem.history DISABLE TRIGGER protected_row;
DELETE FROM idem.history WHERE machine = 'gs';
ALTER TABLE idem.history ENABLE TRIGGER protected_row;
REVOKE CREATE, USAGE ON SCHEMA public FROM regress_idem_gs_owner;
DROP ROLE regress_idem_gs_owner, regress_idem_gs_user;
