-- idem.scope: what a row may hold, what it inherits, when a change is seen.

\set VERBOSITY sqlstate
\pset null '(null)'
CREATE FUNCTION pg_temp.kept(k text, s text) RETURNS interval LANGUAGE sql AS
	'SELECT expires_at - finished_at FROM idem_lookup(k, s)';

-- constraints
INSERT INTO idem.scope (name) VALUES (NULL);
INSERT INTO idem.scope (name) VALUES ('');
INSERT INTO idem.scope (name) VALUES (repeat('x', 129));
INSERT INTO idem.scope (name) VALUES ('a/b');
INSERT INTO idem.scope (name, hold) VALUES ('regress_x', 'leased');
INSERT INTO idem.scope (name, hold) VALUES ('regress_x', '');
INSERT INTO idem.scope (name, lease) VALUES ('regress_x', '0 s');
INSERT INTO idem.scope (name, lease) VALUES ('regress_x', '-1 s');
INSERT INTO idem.scope (name, lease) VALUES ('regress_x', '1001 years');
INSERT INTO idem.scope (name, ttl) VALUES ('regress_x', '0 s');
INSERT INTO idem.scope (name, ttl) VALUES ('regress_x', '-1 s');
INSERT INTO idem.scope (name, ttl) VALUES ('regress_x', '1001 years');
INSERT INTO idem.scope (name, no_expiry) VALUES ('regress_x', NULL);
INSERT INTO idem.scope (name, max_response) VALUES ('regress_x', -1);
INSERT INTO idem.scope (name, max_attempts) VALUES ('regress_x', 0);
INSERT INTO idem.scope (name, keep_failures) VALUES ('regress_x', '0 s');
INSERT INTO idem.scope (name, keep_failures) VALUES ('regress_x', '-1 s');
INSERT INTO idem.scope (name, keep_failures) VALUES ('regress_x', '1001 years');
INSERT INTO idem.scope (name, hold, lease, ttl, max_response, max_attempts, roles, keep_failures)
VALUES ('regress_x', 'lease', '1000 years', '1000 years', 0, 1, '{}', '1000 years');
INSERT INTO idem.scope (name) VALUES ('regress_x');
SELECT name, no_expiry FROM idem.scope;
DELETE FROM idem.scope;

-- built in
SELECT run FROM idem_claim('k', scope => 'regress_a', hold => 'lease');
SELECT lease_until - claimed_at AS lease, expires_at - lease_until AS ttl FROM idem.key;
DELETE FROM idem.key;

-- a row over row "default" over what is built in; tenants have their name's
INSERT INTO idem.scope (name, hold, lease, ttl, max_attempts) VALUES ('default', 'lease', '5 min', '2 days', 3);
INSERT INTO idem.scope (name, ttl) VALUES ('regress_a', '1 h');
INSERT INTO idem.scope (name, lease, max_attempts) VALUES ('regress_b', '7 min', 1);
INSERT INTO idem.scope (name, hold) VALUES ('regress_c', 'session');
SELECT scope, c.outcome, c.fence IS NOT NULL AS fenced
FROM unnest('{NULL,default,default/t,regress_a,regress_a/t,regress_a/t/u,regress_b,regress_c/t,regress_other}'::text[]) AS scope, idem_claim('k', scope => scope) AS c;
SELECT scope, hold, lease_until - claimed_at AS lease, expires_at - lease_until AS ttl FROM idem.key ORDER BY scope;
UPDATE idem.key SET lease_until = clock_timestamp() WHERE hold = 'lease';
SELECT scope, c.outcome, c.attempt
FROM unnest('{default,regress_a/t,regress_b,regress_other}'::text[]) AS scope, idem_claim('k', scope => scope) AS c;
-- the claim's own arguments go before
BEGIN;
SELECT outcome, fence FROM idem_claim('t', scope => 'regress_a', hold => 'transaction', ttl => '9 h');
SELECT idem_complete('t', scope => 'regress_a');
SELECT pg_temp.kept('t', 'regress_a');
SELECT outcome FROM idem_claim('l', scope => 'regress_c', lease => '2 min');
SELECT hold, lease_until - claimed_at AS lease FROM idem.key WHERE key = 'l';
SELECT outcome FROM idem_claim('l2', scope => 'regress_b');
SELECT idem_renew('l2', scope => 'regress_b') - clock_timestamp() BETWEEN '6 min' AND '7 min' AS renewed;
ROLLBACK;
SELECT idem_release('k', 'regress_c/t');
DELETE FROM idem.key;
DELETE FROM idem.scope;

-- no_expiry, ttl and keep_failures
INSERT INTO idem.scope (name, no_expiry) VALUES ('regress_ever', true);
INSERT INTO idem.scope (name, ttl, keep_failures) VALUES ('regress_fail', '3 h', '5 min');
INSERT INTO idem.scope (name, no_expiry, keep_failures) VALUES ('regress_both', true, '6 min');
BEGIN;
SELECT count(*) FILTER (WHERE c.run)
FROM unnest('{regress_ever,regress_fail,regress_both}'::text[]) AS scope, unnest('{done,failed}'::text[]) AS key, idem_claim(key, scope => scope) AS c;
SELECT scope, idem_complete('done', scope => scope), idem_fail('failed', scope => scope) FROM unnest('{regress_ever,regress_fail,regress_both}'::text[]) AS scope;
SELECT scope, pg_temp.kept('done', scope) AS done, pg_temp.kept('failed', scope) AS failed FROM unnest('{regress_ever,regress_fail,regress_both}'::text[]) AS scope;
-- a claim's ttl bounds it all the same
SELECT run FROM idem_claim('ttl', scope => 'regress_ever', ttl => '1 h');
SELECT idem_complete('ttl', scope => 'regress_ever');
SELECT pg_temp.kept('ttl', 'regress_ever');
SELECT idem_once('once', 'regress_ever'), idem_once('once ttl', 'regress_ever', '1 h');
SELECT pg_temp.kept('once', 'regress_ever'), pg_temp.kept('once ttl', 'regress_ever');
-- an unfinished one never ends there
SELECT run FROM idem_claim('lease', scope => 'regress_ever', lease => '1 h');
SELECT run FROM idem_claim('open', scope => 'regress_ever');
SELECT idem_retry('open', scope => 'regress_ever');
SELECT key, state, expires_at FROM idem.key WHERE key IN ('lease', 'open') ORDER BY key;
ROLLBACK;
-- no_expiry of "default" is inherited, but not by a row with a ttl
INSERT INTO idem.scope (name, no_expiry) VALUES ('default', true);
INSERT INTO idem.scope (name) VALUES ('regress_null');
BEGIN;
SELECT scope, idem_once('k', scope), pg_temp.kept('k', scope) FROM unnest('{default,regress_null,regress_fail,regress_other}'::text[]) AS scope;
ROLLBACK;
DELETE FROM idem.scope;

-- max_response: bytes of response, error and progress
INSERT INTO idem.scope (name, max_response) VALUES ('regress_small', 4), ('regress_none', 0);
BEGIN;
SELECT scope, c.run FROM unnest('{regress_small,regress_none,default}'::text[]) AS scope, idem_claim('k', scope => scope) AS c;
SAVEPOINT s;
SELECT idem_complete('k', '12345', 'regress_small');
ROLLBACK TO s;
SELECT idem_complete('k', E'123\xc3\xa9', 'regress_small');
ROLLBACK TO s;
SELECT idem_complete('k', '[1,2]'::json, 'regress_small');
ROLLBACK TO s;
SELECT idem_complete('k', '[1,2]'::jsonb, 'regress_small');
ROLLBACK TO s;
SELECT idem_fail('k', '12345', 'regress_small');
ROLLBACK TO s;
SELECT idem_retry('k', '12345', 'regress_small');
ROLLBACK TO s;
SELECT idem_step('k', 's', '{"a": "a long progress"}', 'regress_small');
ROLLBACK TO s;
SELECT idem_step('k', '12345', NULL, 'regress_small');
ROLLBACK TO s;
SELECT idem_step('k', repeat('x', 1048577));
ROLLBACK TO s;
SELECT idem_complete('k', 'x', 'regress_none');
ROLLBACK TO s;
SELECT idem_complete('k', repeat('x', 1048577));
ROLLBACK TO s;
-- the claim is still ours, and what fits is taken
SELECT * FROM idem_unfinished() ORDER BY scope;
SELECT idem_complete('k', E'12\xc3\xa9', 'regress_small'), idem_complete('k', '', 'regress_none'), idem_complete('k', repeat('x', 1048576));
COMMIT;
SELECT scope, octet_length(l.response) FROM unnest('{regress_small,regress_none,default}'::text[]) AS scope, idem_lookup('k', scope) AS l;
-- an error aborts effect and record alike
BEGIN;
SELECT run FROM idem_claim('k2', scope => 'regress_small');
SELECT idem_complete('k2', '12345', 'regress_small');
COMMIT;
SELECT count(*) FROM idem_lookup('k2', 'regress_small');
DELETE FROM idem.key;
DELETE FROM idem.scope;

-- a change is seen by the next verb: in the same transaction ...
BEGIN;
SELECT run FROM idem_claim('a', scope => 'regress_a', hold => 'lease');
INSERT INTO idem.scope (name, lease) VALUES ('regress_a', '2 min');
SELECT run FROM idem_claim('b', scope => 'regress_a', hold => 'lease');
UPDATE idem.scope SET lease = '3 min';
SELECT run FROM idem_claim('c', scope => 'regress_a', hold => 'lease');
SAVEPOINT s;
UPDATE idem.scope SET lease = '4 min';
SELECT run FROM idem_claim('d', scope => 'regress_a', hold => 'lease');
SELECT key, lease_until - claimed_at AS lease FROM idem.key WHERE key = 'd';
ROLLBACK TO s;
SELECT run FROM idem_claim('e', scope => 'regress_a', hold => 'lease');
DELETE FROM idem.scope;
SELECT run FROM idem_claim('f', scope => 'regress_a', hold => 'lease');
INSERT INTO idem.scope (name, lease) VALUES ('default', '5 min');
SELECT run FROM idem_claim('g', scope => 'regress_a', hold => 'lease');
TRUNCATE idem.scope;
SELECT run FROM idem_claim('h', scope => 'regress_a', hold => 'lease');
SELECT key, lease_until - claimed_at AS lease FROM idem.key ORDER BY key;
ROLLBACK;
-- ... after its rollback ...
BEGIN;
INSERT INTO idem.scope (name, lease) VALUES ('regress_a', '2 min');
SELECT run FROM idem_claim('a', scope => 'regress_a', hold => 'lease');
ROLLBACK;
BEGIN;
SELECT run FROM idem_claim('a', scope => 'regress_a', hold => 'lease');
SELECT key, lease_until - claimed_at AS lease FROM idem.key ORDER BY key;
ROLLBACK;
-- ... at REPEATABLE READ, and in a prepared statement
BEGIN ISOLATION LEVEL REPEATABLE READ;
PREPARE claim AS SELECT run FROM idem_claim($1, scope => 'regress_a', hold => 'lease');
EXECUTE claim ('a');
INSERT INTO idem.scope (name, lease) VALUES ('regress_a', '2 min');
EXECUTE claim ('b');
COMMIT;
UPDATE idem.scope SET lease = '3 min';
EXECUTE claim ('c');
DELETE FROM idem.scope;
EXECUTE claim ('d');
SELECT key, lease_until - claimed_at AS lease FROM idem.key ORDER BY key;
DEALLOCATE claim;
DELETE FROM idem.key;

-- declared_scopes: a scope without a row is the developer's mistake
INSERT INTO idem.scope (name) VALUES ('regress_a');
SELECT idem_once('k'), idem_once('k', 'regress_undeclared');
SET idem.declared_scopes = on;
SELECT idem_claim('k');
SELECT idem_claim('k', scope => 'regress_undeclared/t');
SELECT idem_once('k', 'regress_undeclared');
SELECT idem_once_many('{k}', 'regress_undeclared');
SELECT idem_complete('k', scope => 'regress_undeclared');
SELECT idem_fail('k', scope => 'regress_undeclared');
SELECT idem_retry('k', scope => 'regress_undeclared');
SELECT idem_release('k', 'regress_undeclared');
SELECT idem_renew('k', scope => 'regress_undeclared');
SELECT idem_step('k', 's', scope => 'regress_undeclared');
SELECT idem_lookup('k', 'regress_undeclared');
SELECT idem_once('k', 'regress_a'), idem_once('k', 'regress_a/t');
-- operators may clean up, and idem's own scopes are declared
SELECT idem_forget('k', 'regress_undeclared', force => true);
SELECT count(*) FROM idem_lookup('k', 'once.public.orders');
SELECT count(*) FROM idem_lookup('k', 'idem.fire');
INSERT INTO idem.scope (name) VALUES ('default'), ('regress_undeclared');
SELECT idem_once('k'), idem_once('k', 'regress_undeclared');
RESET idem.declared_scopes;
DELETE FROM idem.key;
DELETE FROM idem.scope;

-- the trigger that tells of changes is nothing else
SELECT idem_catalog_changed();
CREATE TEMP TABLE other (a int);
CREATE TRIGGER changed AFTER INSERT ON other FOR EACH STATEMENT EXECUTE FUNCTION idem_catalog_changed();
CREATE TRIGGER changed_row BEFORE INSERT ON other FOR EACH ROW EXECUTE FUNCTION idem_catalog_changed();
INSERT INTO other SELECT 1 WHERE false;
INSERT INTO other VALUES (1);

-- reserved scopes: claim verbs refuse them, whoever has a row for them
INSERT INTO idem.scope (name) VALUES ('idem.fire');
SELECT idem_claim('k', scope => 'idem.fire');
SELECT idem_claim('k', scope => 'idem.');
SELECT idem_claim('k', scope => 'idem.x/t');
SELECT idem_claim('k', scope => 'once.public.orders');
SELECT idem_once('k', 'once.x');
SELECT idem_once_many('{k}', 'idem.x');
SET idem.scope = 'once.x';
SELECT idem_claim('k');
RESET idem.scope;
SELECT idem_complete('k', scope => 'idem.fire');
SELECT idem_forget('k', 'once.x');
BEGIN;
SELECT scope, c.run FROM unnest('{idem,once,IDEM.x,x.idem.y,onceupon}'::text[]) AS scope, idem_claim('k', scope => scope) AS c;
ROLLBACK;
DELETE FROM idem.scope;
SELECT count(*) FROM idem.key;
