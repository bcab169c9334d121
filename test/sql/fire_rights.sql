-- What a role needs to fire: what idem_allowed and idem_why_not say of one that
-- lacks it; errors of what a guard calls name the guard; tables without history.

SET client_min_messages = warning;
CREATE ROLE regress_idem_rights;
SELECT idem_grant('regress_idem_rights');
GRANT USAGE ON SCHEMA public TO regress_idem_rights;
CREATE SCHEMA fr;
CREATE FUNCTION fr.enough(amount int) RETURNS boolean LANGUAGE plpgsql STABLE AS $$ BEGIN RETURN 10 / amount > 0; END $$;

-- names in a guard: of functions, operators, types; of the table's schema and of others
SELECT idem_define('fr', E'stateDiagram-v2\n[*] --> draft\ndraft --> sent : send [enough(new.amount)]');
CREATE TABLE fr_t (id int PRIMARY KEY, state text NOT NULL DEFAULT 'draft', amount int, version int NOT NULL DEFAULT 1);
\set VERBOSITY default
SELECT idem_attach('fr', 'fr_t', 'state');
CREATE TEMPORARY TABLE fr_temp (id int PRIMARY KEY, state text NOT NULL, amount int);
SELECT idem_attach('fr', 'fr_temp', 'state');
CREATE TABLE fr.there (id int PRIMARY KEY, state text NOT NULL DEFAULT 'draft', amount int);
SELECT idem_attach('fr', 'fr.there', 'state');
DROP TABLE fr.there;
UPDATE idem.transition SET guard = 'new.amount + new.state > 0' WHERE machine = 'fr';
SELECT idem_attach('fr', 'fr_t', 'state');
UPDATE idem.transition SET guard = 'new.amount::mood > 0' WHERE machine = 'fr';
SELECT idem_attach('fr', 'fr_t', 'state');
UPDATE idem.transition SET guard = 'fr.enough(new.nothing)' WHERE machine = 'fr';
SELECT idem_attach('fr', 'fr_t', 'state');

-- what it calls: found, called, and looked into while it is planned
UPDATE idem.transition SET guard = 'fr.enough(new.amount)' WHERE machine = 'fr';
SELECT idem_attach('fr', 'fr_t', 'state');
INSERT INTO fr_t (id, amount) VALUES (0, 0), (1, 1), (2, 20), (3, 3);
GRANT SELECT, UPDATE ON fr_t TO regress_idem_rights;
SET ROLE regress_idem_rights;
SELECT * FROM idem_fire('fr_t', 1, 'send');
RESET ROLE;
GRANT USAGE ON SCHEMA fr TO regress_idem_rights;
REVOKE EXECUTE ON FUNCTION fr.enough FROM PUBLIC;
SET ROLE regress_idem_rights;
SELECT * FROM idem_fire('fr_t', 1, 'send');
UPDATE fr_t SET state = 'sent' WHERE id = 1;
SELECT idem_why_not('fr_t', 1, 'send');
RESET ROLE;
GRANT EXECUTE ON FUNCTION fr.enough TO PUBLIC;
SET ROLE regress_idem_rights;
UPDATE fr_t SET state = 'sent' WHERE id = 0;
RESET ROLE;
UPDATE idem.transition SET guard = 'new.amount > 1 / 0' WHERE machine = 'fr';
UPDATE fr_t SET state = 'sent' WHERE id = 1;
UPDATE idem.transition SET guard = 'fr.enough(new.amount)' WHERE machine = 'fr';
UPDATE fr_t SET amount = amount WHERE id = 1 RETURNING amount / 0;

-- privileges on columns: exactly what is documented
\set VERBOSITY terse
\set ask 'SELECT (SELECT string_agg(event, \',\') FROM idem_allowed(\'fr_t\', 1)) AS allowed, idem_why_not(\'fr_t\', 1, \'send\'), idem_why_not(\'fr_t\', 2, \'send\') AS and_guarded;'
\set fire 'BEGIN; SELECT outcome FROM idem_try_fire(\'fr_t\', 1, \'send\'); ROLLBACK; BEGIN; SELECT id, outcome FROM idem_fire_many(\'fr_t\', \'{1}\', \'send\'); ROLLBACK;'
REVOKE ALL ON fr_t FROM regress_idem_rights;
SET ROLE regress_idem_rights;
:ask
RESET ROLE;
GRANT SELECT ON fr_t TO regress_idem_rights;
SET ROLE regress_idem_rights;
:ask
:fire
RESET ROLE;
GRANT UPDATE (amount, version) ON fr_t TO regress_idem_rights;
SET ROLE regress_idem_rights;
:ask
:fire
RESET ROLE;
-- beside the verdicts that come before it
UPDATE fr_t SET state = 'sent' WHERE id = 3;
SET ROLE regress_idem_rights;
SELECT idem_why_not('fr_t', 3, 'send'), idem_why_not('fr_t', 99, 'send');
RESET ROLE;
REVOKE UPDATE ON fr_t FROM regress_idem_rights;
GRANT UPDATE (state) ON fr_t TO regress_idem_rights;
SET ROLE regress_idem_rights;
:ask
:fire
-- a version counts by itself, a strict one too
RESET ROLE;
SELECT idem_attach_version('fr_t', 'version');
SET ROLE regress_idem_rights;
:ask
:fire
RESET ROLE;
SELECT idem_detach_version('fr_t'), idem_attach_version('fr_t', 'version', strict => true);
SET ROLE regress_idem_rights;
:ask
:fire
-- without the table as a whole
RESET ROLE;
REVOKE SELECT ON fr_t FROM regress_idem_rights;
GRANT SELECT (id, state, version) ON fr_t TO regress_idem_rights;
SET ROLE regress_idem_rights;
:ask
:fire
RESET ROLE;
GRANT SELECT (ctid, tableoid) ON fr_t TO regress_idem_rights;
SET ROLE regress_idem_rights;
:ask
:fire
RESET ROLE;

-- a partitioned table: its own privileges count, whichever partition has the row
CREATE TABLE fr_p (id int PRIMARY KEY, state text NOT NULL DEFAULT 'draft', amount int) PARTITION BY RANGE (id);
CREATE TABLE fr_p1 PARTITION OF fr_p DEFAULT;
SELECT idem_attach('fr', 'fr_p', 'state');
INSERT INTO fr_p VALUES (1, 'draft', 1);
GRANT SELECT, UPDATE (state) ON fr_p TO regress_idem_rights;
GRANT SELECT ON fr_p1 TO regress_idem_rights;
SET ROLE regress_idem_rights;
SELECT event FROM idem_allowed('fr_p', 1);
SELECT event FROM idem_allowed('fr_p1', 1);
SELECT idem_why_not('fr_p', 1, 'send'), idem_why_not('fr_p1', 1, 'send');
RESET ROLE;

-- history that nobody has asked for
\set VERBOSITY default
SET client_min_messages = notice;
SELECT event FROM idem_history('fr_t', 1);
SELECT t.id, h.event FROM fr_t AS t, idem_history('fr_t', t.id) AS h;
CREATE TABLE fr_plain (id int PRIMARY KEY);
SELECT event FROM idem_history('fr_plain', 1);
-- what was recorded before is there all the same; of other rows nothing is
SELECT idem_detach('fr_p', 'state');
SELECT idem_attach('fr', 'fr_p', 'state', history => true);
INSERT INTO fr_p VALUES (2, 'draft', 1);
SELECT event FROM idem_history('fr_p', 1);
SELECT event FROM idem_history('fr_p1', 1);
SELECT idem_detach('fr_p', 'state');
SELECT idem_attach('fr', 'fr_p', 'state');
SELECT to_state FROM idem_history('fr_p', 2);
SELECT to_state FROM idem_history('fr_p', 1);
\set VERBOSITY terse
SET client_min_messages = warning;

DROP TABLE fr_t, fr_temp, fr_p, fr_plain;
DROP SCHEMA fr CASCADE;
ALTER TABLE idem.history DISABLE TRIGGER protected_row;
DELETE FROM idem.history WHERE machine = 'fr';
ALTER TABLE idem.history ENABLE TRIGGER protected_row;
DELETE FROM idem.machine WHERE name = 'fr';
SELECT idem_revoke('regress_idem_rights');
REVOKE ALL ON SCHEMA public FROM regress_idem_rights;
DROP ROLE regress_idem_rights;
