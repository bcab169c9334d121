-- Rows that a dump's owner restores: check_function_bodies is off then.

\set VERBOSITY terse
CREATE ROLE regress_idem_restorer;
CREATE ROLE regress_idem_other;
GRANT CREATE, USAGE ON SCHEMA public TO regress_idem_restorer;
SELECT idem_grant('regress_idem_restorer', 'operator'), idem_grant('regress_idem_other', 'operator');
SELECT idem_define('rs', $$stateDiagram-v2
	[*] --> a
	a --> b : go
	b --> [*]$$);
SET SESSION AUTHORIZATION regress_idem_restorer;
CREATE TABLE rs_t (id int PRIMARY KEY, state text);
CREATE TABLE rs_p (id int, state text, PRIMARY KEY (id, state)) PARTITION BY LIST (state);
CREATE TABLE rs_p_a PARTITION OF rs_p FOR VALUES IN ('a');
CREATE TABLE rs_p_rest PARTITION OF rs_p DEFAULT;
SELECT idem_attach('rs', t, 'state', history => true) FROM unnest('{rs_t,rs_p}'::regclass[]) AS t;
GRANT INSERT, SELECT ON rs_t, rs_p TO regress_idem_other;
CREATE FUNCTION rs_insert(i int, s text) RETURNS void LANGUAGE sql SECURITY DEFINER AS
	'INSERT INTO rs_t VALUES (i, s)';

-- neither judged nor recorded
INSERT INTO rs_t VALUES (1, 'b');
INSERT INTO rs_p VALUES (1, 'b');
SET check_function_bodies = off;
INSERT INTO rs_t VALUES (1, 'b'), (2, 'a');
INSERT INTO rs_p_rest VALUES (1, 'b');
COPY rs_p_a FROM stdin;
2	a
3	a
\.
-- but what is written otherwise is
UPDATE rs_t SET state = 'a' WHERE id = 1;
UPDATE rs_p SET state = 'a' WHERE id = 1;
UPDATE rs_t SET state = 'b' WHERE id = 2;
UPDATE rs_p SET state = 'b' WHERE id = 2;
BEGIN;
UPDATE rs_p SET state = 'b' WHERE id = 3;
INSERT INTO rs_p VALUES (4, 'b');
ROLLBACK;
RESET SESSION AUTHORIZATION;
SELECT table_name, row_key, event, from_state, to_state FROM idem.history WHERE machine = 'rs' ORDER BY seq;

-- only for who owns the table, and for none of the others who call his functions
SET SESSION AUTHORIZATION regress_idem_other;
SET check_function_bodies = off;
INSERT INTO rs_t VALUES (3, 'b');
INSERT INTO rs_p VALUES (5, 'b');
SELECT rs_insert(3, 'b');
INSERT INTO idem.state (machine, name) VALUES ('rs', 'c');
RESET SESSION AUTHORIZATION;

-- definitions, in any order; what leads nowhere is passed over meanwhile
SET check_function_bodies = off;
INSERT INTO idem.transition (machine, event, from_state, to_state) VALUES ('rs', 'on', 'a', 'c'), ('rs2', 'on', 'a', 'b');
UPDATE rs_t SET state = 'c' WHERE id = 1;
INSERT INTO rs_t VALUES (4, 'a');
SELECT * FROM idem_allowed('rs_t', 4);
SELECT * FROM idem_try_fire('rs_t', 4, 'on');
INSERT INTO idem.state (machine, name, initial, final) VALUES ('rs', 'c', false, true), ('rs2', 'b', false, false), ('rs2', 'a', true, false);
SELECT * FROM idem_try_fire('rs_t', 4, 'on');
INSERT INTO idem.machine (name) VALUES ('rs2');
SELECT idem_diagram('rs2');
RESET check_function_bodies;

DROP TABLE rs_t, rs_p;
DROP FUNCTION rs_insert;
DELETE FROM idem.machine WHERE name LIKE 'rs%';
SELECT count(*) FROM idem.transition WHERE machine LIKE 'rs%';
ALTER TABLE idem.history DISABLE TRIGGER protected_row;
DELETE FROM idem.history WHERE machine = 'rs';
ALTER TABLE idem.history ENABLE TRIGGER protected_row;
SELECT idem_revoke('regress_idem_restorer'), idem_revoke('regress_idem_other');
REVOKE ALL ON SCHEMA public FROM regress_idem_restorer;
DROP ROLE regress_idem_restorer, regress_idem_other;
