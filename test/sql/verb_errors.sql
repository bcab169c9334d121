-- What errors say: code, message, detail, hint; and that neither a key, nor
-- what it carries, nor a fence stands in any of it.

CREATE FUNCTION pg_temp.tell(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	message text;
	detail text;
	hint text;
	told text;
BEGIN
	EXECUTE statement;
	RETURN 'no error';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
	told := SQLSTATE || ': ' || message || coalesce(E'\n' || nullif(detail, ''), '') || coalesce(E'\n' || nullif(hint, ''), '');
	IF told ~ 'SECRET|4711' THEN
		RETURN 'tells a secret: ' || told;
	END IF;
	RETURN told;
END $$;
\pset tuples_only on
\pset format unaligned

-- ID400
SELECT pg_temp.tell($$ SELECT idem_claim('') $$);
SELECT pg_temp.tell($$ SELECT idem_claim(repeat('SECRET', 200)) $$);
SELECT pg_temp.tell($$ SELECT idem_claim('SECRET', scope => '') $$);
SELECT pg_temp.tell($$ SELECT idem_claim('SECRET', scope => repeat('SECRET', 22)) $$);
SELECT pg_temp.tell($$ SELECT idem_claim('SECRET', scope => 'idem.fire') $$);
SELECT pg_temp.tell($$ SELECT idem_claim('SECRET', hold => 'SECRET') $$);
SELECT pg_temp.tell($$ SELECT idem_claim('SECRET', hold => 'session', lease => '1 s') $$);
SELECT pg_temp.tell($$ SELECT idem_claim('SECRET', lease => '0 s') $$);
SELECT pg_temp.tell($$ SELECT idem_claim('SECRET', ttl => '-1 s') $$);
SELECT pg_temp.tell($$ SELECT idem_claim('SECRET', wait => '-1 s') $$);
SELECT pg_temp.tell($$ SELECT idem_claim('SECRET', ttl => '4711 years') $$);
SELECT pg_temp.tell($$ SELECT idem_once_many(NULL) $$);
SELECT pg_temp.tell($$ SELECT idem_once_many('{SECRET,NULL}') $$);
-- only where the setting is the default
SELECT pg_temp.tell($$ SELECT idem_complete(NULL) $$), pg_temp.tell($$ SELECT idem_lookup('') $$);
SELECT t, pg_temp.tell('SELECT ' || t) FROM unnest(ARRAY[$$idem_once('')$$, $$idem_call(NULL, 'now()')$$, $$idem_child(NULL, 'a')$$,
	$$idem_window('', '1 s')$$, $$idem_forget(NULL)$$, $$idem_reopen('')$$, $$idem_import(NULL)$$, $$idem_import_many('{NULL}')$$]) AS t;
SELECT pg_temp.tell($$ SELECT idem_import('SECRET', created_at => 'infinity') $$);
SELECT pg_temp.tell($$ SELECT idem_import_many('{SECRET}', '{SECRET,SECRET}') $$);
SELECT pg_temp.tell($$ SELECT idem_import_many(NULL) $$);
SELECT pg_temp.tell($$ SELECT idem_fence_advance(-4711) $$);
SELECT pg_temp.tell($$ SELECT idem_sweep(0) $$);
SELECT pg_temp.tell($$ SELECT idem_grant('regress_idem_SECRET', 'SECRET') $$);
SELECT pg_temp.tell($$ SELECT idem_revoke(NULL) $$);

SELECT run FROM idem_claim('SECRET', '{"SECRET": 1}', lease => '1 h');
UPDATE idem.key SET fence = 4711;
SELECT pg_temp.tell($$ SELECT idem_complete('SECRET', 'SECRET') $$);
SELECT pg_temp.tell($$ SELECT idem_step('SECRET', NULL, '"SECRET"') $$);
SELECT pg_temp.tell($$ SELECT idem_renew('SECRET', '-1 s', fence => 4711) $$);
SELECT pg_temp.tell($$ SELECT idem_retry('SECRET', 'SECRET', fence => 4711, after => '-1 s') $$);
SELECT run FROM idem_claim('SECRET sess', hold => 'session');
SELECT pg_temp.tell($$ SELECT idem_renew('SECRET sess') $$);

-- ID404
SELECT pg_temp.tell($$ SELECT idem_forget('SECRET not there') $$);
SELECT pg_temp.tell($$ SELECT idem_reopen('SECRET not there') $$);

-- ID409
SELECT pg_temp.tell($$ SELECT idem_complete('SECRET', fence => 47110) $$);
SELECT pg_temp.tell($$ SELECT idem_complete('SECRET not there', fence => 4711) $$);
SELECT pg_temp.tell($$ SELECT idem_forget('SECRET') $$);
SELECT pg_temp.tell($$ SELECT idem_reopen('SECRET') $$);
SELECT pg_advisory_unlock_all();
SELECT pg_temp.tell($$ SELECT idem_complete('SECRET sess', 'SECRET') $$);
SELECT idem_complete('SECRET', 'SECRET', fence => 4711);
SELECT pg_temp.tell($$ SELECT idem_complete('SECRET', 'SECRET 2', fence => 4711) $$);
SELECT pg_temp.tell($$ SELECT idem_fail('SECRET', 'SECRET', fence => 4711) $$);
SELECT pg_temp.tell($$ SELECT idem_complete('SECRET', 'SECRET') $$);
SELECT pg_temp.tell($$ SELECT idem_forget('SECRET') $$);
SELECT run FROM idem_claim('SECRET fail', lease => '1 h');
UPDATE idem.key SET fence = 4711 WHERE key = 'SECRET fail';
SELECT idem_fail('SECRET fail', 'SECRET', fence => 4711);
SELECT pg_temp.tell($$ SELECT idem_complete('SECRET fail', 'SECRET', fence => 4711) $$);
SELECT run FROM idem_claim('SECRET open', lease => '1 h');
UPDATE idem.key SET fence = 4711 WHERE key = 'SECRET open';
SELECT idem_retry('SECRET open', 'SECRET', fence => 4711);
SELECT pg_temp.tell($$ SELECT idem_complete('SECRET open', 'SECRET', fence => 4711) $$);

-- ID500
SET idem.declared_scopes = on;
SELECT pg_temp.tell($$ SELECT idem_claim('SECRET', scope => 'regress_undeclared/SECR') $$);
RESET idem.declared_scopes;
INSERT INTO idem.scope (name, max_response) VALUES ('regress_small', 2);
BEGIN;
SELECT run FROM idem_claim('SECRET', scope => 'regress_small');
SELECT pg_temp.tell($$ SELECT idem_complete('SECRET', 'SECRET', 'regress_small') $$);
SELECT pg_temp.tell($$ SELECT idem_fail('SECRET', 'SECRET', 'regress_small') $$);
SELECT pg_temp.tell($$ SELECT idem_retry('SECRET', 'SECRET', 'regress_small') $$);
SELECT pg_temp.tell($$ SELECT idem_step('SECRET', 'SECRET', NULL, 'regress_small') $$);
SELECT pg_temp.tell($$ SELECT idem_step('SECRET', 'S', '["SECRET"]', 'regress_small') $$);
SELECT pg_temp.tell($$ SELECT idem_import('SECRET', 'SECRET', 'regress_small') $$);
SELECT pg_temp.tell($$ SELECT idem_import_many('{SECRET}', '{SECRET}', 'regress_small') $$);
ROLLBACK;
\set VERBOSITY default
SELECT run FROM idem_claim('SECRET unfinished');
BEGIN;
SELECT run FROM idem_claim('SECRET unfinished');
COMMIT;
BEGIN;
SELECT run FROM idem_claim('SECRET unfinished') UNION ALL SELECT run FROM idem_claim('SECRET unfinished 2');
COMMIT;

-- 42501
CREATE ROLE regress_idem_errors;
CREATE ROLE regress_idem_errors_other;
SELECT idem_grant('regress_idem_errors');
INSERT INTO idem.scope (name, roles) VALUES ('regress_closed', '{regress_idem_errors_other}');
SET ROLE regress_idem_errors;
SELECT pg_temp.tell($$ SELECT idem_claim('SECRET', scope => 'regress_closed/tenant') $$);
RESET ROLE;

-- 25006
BEGIN READ ONLY;
SELECT pg_temp.tell($$ SELECT idem_claim('SECRET new') $$);
SELECT pg_temp.tell($$ SELECT idem_once('SECRET new') $$);
SELECT pg_temp.tell($$ SELECT idem_complete('SECRET', 'SECRET', fence => 4711) $$);
ROLLBACK;

DELETE FROM idem.key;
DELETE FROM idem.scope;
SELECT idem_revoke('regress_idem_errors');
DROP ROLE regress_idem_errors, regress_idem_errors_other;
