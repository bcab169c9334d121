-- idem.scope.roles: who may use a scope, and that others learn nothing of it.

\set VERBOSITY sqlstate
CREATE ROLE regress_idem_in;
CREATE ROLE regress_idem_member IN ROLE regress_idem_in;
CREATE ROLE regress_idem_noinherit NOINHERIT IN ROLE regress_idem_in;
CREATE ROLE regress_idem_out;
SELECT count(idem_grant(r)) FROM unnest('{regress_idem_in,regress_idem_noinherit,regress_idem_out}'::name[]) AS r;
INSERT INTO idem.scope (name, roles) VALUES ('regress_closed', '{regress_idem_in,NULL,regress_idem_not_there}');
INSERT INTO idem.scope (name, roles) VALUES ('regress_nobody', '{}');
INSERT INTO idem.scope (name) VALUES ('regress_open');

-- who is in, is a member, or may act as one without SET ROLE
SET ROLE regress_idem_in;
SELECT idem_once('k', 'regress_closed'), idem_once('k', 'regress_closed/t'), idem_once('k', 'regress_open');
SELECT idem_once('k', 'regress_nobody');
SET ROLE regress_idem_member;
SELECT idem_once('k', 'regress_closed'), idem_once('k2', 'regress_closed');
SET ROLE regress_idem_noinherit;
SELECT idem_once('k', 'regress_closed');
RESET ROLE;

-- a superuser is a member of every role
SELECT idem_once('k', 'regress_closed'), idem_once('k3', 'regress_closed');

-- whoever is out gets one answer, whether the key is there or not
SELECT fence FROM idem_claim('held', scope => 'regress_closed', lease => '1 h') \gset
SET ROLE regress_idem_out;
SELECT idem_claim('k', scope => 'regress_closed');
SELECT idem_claim('absent', scope => 'regress_closed');
SELECT idem_claim('k', scope => 'regress_closed/t');
SELECT idem_claim('k', scope => 'regress_closed/other');
SELECT idem_claim('held', '{}', 'regress_closed', wait => '0 s');
SELECT idem_once('k', 'regress_closed');
SELECT idem_once('absent', 'regress_closed');
SELECT * FROM idem_once_many('{k,absent}', 'regress_closed');
SELECT * FROM idem_once_many('{}', 'regress_closed');
SELECT * FROM idem_lookup('k', 'regress_closed');
SELECT * FROM idem_lookup('absent', 'regress_closed');
SELECT idem_complete('held', 'x', 'regress_closed', :fence);
SELECT idem_complete('held', '{}'::json, 'regress_closed', :fence);
SELECT idem_fail('held', 'x', 'regress_closed', :fence);
SELECT idem_retry('held', 'x', 'regress_closed', :fence);
SELECT idem_release('held', 'regress_closed', :fence);
SELECT idem_renew('held', NULL, 'regress_closed', :fence);
SELECT idem_step('held', 'x', NULL, 'regress_closed', :fence);
SELECT idem_complete('absent', 'x', 'regress_closed');
SELECT idem_once('k', 'regress_nobody');
SET idem.scope = 'regress_closed/t';
SELECT idem_claim('k');
SELECT idem_lookup('k');
RESET idem.scope;
SELECT idem_once('k', 'regress_open'), idem_once('k'), idem_once('k', 'regress_without_row');
RESET ROLE;
SELECT outcome, step FROM idem_lookup('held', 'regress_closed');

-- roles of "default" are its own: others do not inherit them
INSERT INTO idem.scope (name, roles) VALUES ('default', '{regress_idem_in}');
SET ROLE regress_idem_out;
SELECT idem_once('d');
SELECT idem_once('d', 'default/t');
SELECT idem_once('d', 'regress_open'), idem_once('d', 'regress_without_row');
SET ROLE regress_idem_in;
SELECT idem_once('d');
RESET ROLE;

-- a change counts at once, for a claim that is held too
UPDATE idem.scope SET roles = NULL WHERE name = 'default';
BEGIN;
SET LOCAL ROLE regress_idem_out;
SELECT run FROM idem_claim('e');
SET LOCAL ROLE none;
UPDATE idem.scope SET roles = '{regress_idem_in}' WHERE name = 'default';
SET LOCAL ROLE regress_idem_out;
SAVEPOINT s;
SELECT idem_complete('e');
ROLLBACK TO s;
SET LOCAL ROLE none;
UPDATE idem.scope SET roles = '{regress_idem_in,regress_idem_out}' WHERE name = 'default';
SET LOCAL ROLE regress_idem_out;
SELECT idem_complete('e');
ROLLBACK;
REVOKE regress_idem_in FROM regress_idem_member;
SELECT idem_grant('regress_idem_member');
SET ROLE regress_idem_member;
SELECT idem_once('k4', 'regress_closed');
RESET ROLE;

-- a definer function acts as its owner
CREATE FUNCTION regress_closed_once(key text) RETURNS boolean LANGUAGE sql SECURITY DEFINER AS $$ SELECT idem_once(key, 'regress_closed') $$;
ALTER FUNCTION regress_closed_once(text) OWNER TO regress_idem_in;
SET ROLE regress_idem_out;
SELECT regress_closed_once('by definer');
SELECT idem_once('by definer', 'regress_closed');
RESET ROLE;
DROP FUNCTION regress_closed_once(text);

-- operators' verbs are not bound
SELECT idem_grant('regress_idem_out', 'operator');
SET ROLE regress_idem_out;
SELECT idem_import('imported', 'x', 'regress_closed'), idem_forget('imported', 'regress_closed', true);
RESET ROLE;

DELETE FROM idem.key;
DELETE FROM idem.scope;
SELECT count(idem_revoke(r)) FROM unnest('{regress_idem_in,regress_idem_noinherit,regress_idem_out,regress_idem_member}'::name[]) AS r;
DROP ROLE regress_idem_in, regress_idem_member, regress_idem_noinherit, regress_idem_out;
