-- idem_grant and idem_revoke: who gets what.

\set VERBOSITY sqlstate
CREATE ROLE regress_idem_app;
CREATE ROLE regress_idem_operator;
CREATE ROLE regress_idem_none;
CREATE ROLE regress_idem_member IN ROLE regress_idem_app;
SELECT idem_grant('regress_idem_app');
SELECT idem_grant('regress_idem_operator', 'operator');
SELECT idem_grant('regress_idem_app', 'app');

-- nothing for anybody else
SET ROLE regress_idem_none;
SELECT idem_key();
SELECT idem_claim('k');
SELECT idem_complete('k');
SELECT idem_complete('k', '{}'::json);
SELECT idem_complete('k', '{}'::jsonb);
SELECT idem_fail('k');
SELECT idem_retry('k');
SELECT idem_release('k');
SELECT idem_renew('k');
SELECT idem_step('k', 's');
SELECT idem_lookup('k');
SELECT idem_once('k');
SELECT idem_once_many('{k}');
SELECT idem_unfinished();
SELECT idem_forget('k');
SELECT idem_reopen('k');
SELECT idem_import('k');
SELECT idem_import_many('{k}');
SELECT idem_fence_advance(1);
SELECT idem_sweep();
SELECT idem_grant('regress_idem_none');
SELECT idem_revoke('regress_idem_app');
SELECT idem_catalog_changed();
SELECT * FROM idem.key;
SELECT * FROM idem.scope;
SELECT * FROM idem.held;
SELECT * FROM idem.sweep_state;
SELECT * FROM idem.fence;
CREATE TABLE idem.mine ();

-- app: the verbs of daily work, and no table
SET ROLE regress_idem_app;
SELECT idem_key() IS NULL AS no_key;
BEGIN;
SELECT run FROM idem_claim('k', '{"a": 1}');
SELECT idem_step('k', 'one');
SELECT * FROM idem_unfinished();
SELECT idem_complete('k', '{}'::jsonb);
COMMIT;
SELECT outcome, response FROM idem_claim('k', '{"a": 1}');
SELECT outcome, step FROM idem_lookup('k');
SELECT fence FROM idem_claim('l', lease => '1 h') \gset
SELECT idem_renew('l', fence => :fence) > clock_timestamp() AS renewed;
SELECT idem_retry('l', fence => :fence);
SELECT run, attempt FROM idem_claim('l', hold => 'session');
SELECT idem_release('l');
SELECT idem_once('o'), idem_once('o');
SELECT * FROM idem_once_many('{o,p,q}');
BEGIN;
SELECT run FROM idem_claim('f');
SELECT idem_fail('f', 'e');
COMMIT;
DO $$
DECLARE
	claim idem_claimed;
BEGIN
	claim := idem_claim('d');
	PERFORM idem_complete('d', claim.outcome);
END $$;
SELECT response FROM idem_lookup('d');
SELECT idem_forget('k', force => true);
SELECT idem_reopen('f');
SELECT idem_import('i');
SELECT idem_import_many('{i}');
SELECT idem_fence_advance(1);
SELECT idem_sweep();
SELECT idem_grant('regress_idem_app', 'operator');
SELECT idem_revoke('regress_idem_operator');
SELECT count(*) FROM idem.key;
INSERT INTO idem.key SELECT * FROM idem.key;
UPDATE idem.key SET response = 'mine';
DELETE FROM idem.key;
TRUNCATE idem.key;
BEGIN;
LOCK TABLE idem.key;
ROLLBACK;
SELECT count(*) FROM idem.held;
SELECT count(*) FROM idem.scope;
INSERT INTO idem.scope (name) VALUES ('mine');
SELECT nextval('idem.fence');
SELECT setval('idem.fence', 1);
SET idem.access = 'sql';
-- whoever is a member has the same
SET ROLE regress_idem_member;
SELECT outcome FROM idem_claim('k');
SELECT count(*) FROM idem.key;

-- operator: these, and the operators' verbs and views
SET ROLE regress_idem_operator;
SELECT outcome FROM idem_claim('k');
SELECT idem_reopen('f'), idem_forget('k', force => true), idem_import('i', 'x'), idem_import_many('{i,j}');
SELECT idem_fence_advance(1) > 0 AS advanced;
SELECT removed FROM idem_sweep() WHERE kind = 'key';
SELECT count(*) FROM idem.held;
SELECT count(*) FROM idem.scope;
SELECT count(*) FROM idem.key;
DELETE FROM idem.key;
INSERT INTO idem.scope (name) VALUES ('mine');
DELETE FROM idem.scope;
SELECT * FROM idem.sweep_state;
UPDATE idem.sweep_state SET position = 0;
SELECT nextval('idem.fence');
SELECT idem_grant('regress_idem_none', 'operator');
RESET ROLE;

-- a grant only adds
SELECT idem_grant('regress_idem_operator', 'app');
SET ROLE regress_idem_operator;
SELECT idem_forget('j', force => true);
RESET ROLE;

-- a definer function may do it for others
CREATE FUNCTION regress_pay(k text) RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
	claim idem_claimed := idem_claim(k);
BEGIN
	IF claim.run THEN
		PERFORM idem_complete(k, 'paid');
	END IF;
	RETURN claim.outcome || coalesce(', ' || claim.response, '');
END $$;
ALTER FUNCTION regress_pay(text) OWNER TO regress_idem_app;
SET ROLE regress_idem_none;
SELECT regress_pay('pay');
SELECT regress_pay('pay');
SELECT idem_claim('pay');
RESET ROLE;
DROP FUNCTION regress_pay(text);

-- revoke: all of it, again and again, and of who never had it
SELECT idem_revoke('regress_idem_operator'), idem_revoke('regress_idem_operator'), idem_revoke('regress_idem_none');
SET ROLE regress_idem_operator;
SELECT idem_claim('k');
SELECT idem_forget('o', force => true);
SELECT * FROM idem.held;
RESET ROLE;
SET ROLE regress_idem_app;
SELECT outcome FROM idem_claim('o');
RESET ROLE;
SELECT idem_revoke('regress_idem_app');
SET ROLE regress_idem_member;
SELECT idem_claim('o');
RESET ROLE;

-- names that need quotes
CREATE ROLE "regress_idem_We""ird %s ' \ x";
SELECT idem_grant('regress_idem_We"ird %s '' \ x', 'operator');
SET ROLE "regress_idem_We""ird %s ' \ x";
SELECT outcome FROM idem_claim('o');
SELECT count(*) FROM idem.held;
RESET ROLE;
SELECT idem_revoke('regress_idem_We"ird %s '' \ x');
DROP ROLE "regress_idem_We""ird %s ' \ x";

-- what is refused
SELECT idem_grant(NULL);
SELECT idem_grant('regress_idem_app', NULL);
SELECT idem_grant('regress_idem_app', 'admin');
SELECT idem_grant('regress_idem_app', 'APP');
\set VERBOSITY default
\set SHOW_CONTEXT never
SELECT idem_grant('public');
SELECT idem_grant('REGRESS_IDEM_APP');
\unset SHOW_CONTEXT
\set VERBOSITY sqlstate
SELECT idem_grant('regress_idem_app', '');
SELECT idem_grant('regress_idem_not_there');
SELECT idem_grant('regress_idem_not_there', 'operator');
SELECT idem_grant('');
-- ... PUBLIC is no role
SELECT idem_grant('public');
SELECT idem_revoke(NULL);
SELECT idem_revoke('regress_idem_not_there');
SELECT idem_revoke('');

-- nothing is left that would keep a role
DROP ROLE regress_idem_app, regress_idem_operator, regress_idem_none, regress_idem_member;
DELETE FROM idem.key;
