-- idem_claim: every outcome, which of them goes first, what NULL means.
-- The claims of one session in two transactions are two holders.

\set VERBOSITY sqlstate
\pset null '(null)'
\set verdict 'run, outcome, attempt, fence IS NOT NULL AS fenced, step, progress, response, code, retry_after, expires_at IS NOT NULL AS expires'
\set brief 'run, outcome, attempt, response, code'

-- claimed, then in_progress to the same transaction, then completed
BEGIN;
SELECT :verdict FROM idem_claim('pay', '{"amount": 10, "to": ["a", {"b": null}]}');
SELECT :verdict FROM idem_claim('pay', '{"amount": 10, "to": ["a", {"b": null}]}');
SELECT idem_step('pay', 'sent', '{"n": 1}');
SELECT :verdict FROM idem_claim('pay');
SELECT idem_complete('pay', 'Paid.', code => 201);
SELECT :verdict FROM idem_claim('pay');
COMMIT;
SELECT :verdict FROM idem_claim('pay', '{"amount": 10, "to": ["a", {"b": null}]}');

-- the same request in another notation; a record and a claim without request
SELECT :brief FROM idem_claim('pay', '{"to":["\u0061",{"b":null}],"amount":1.00e1}');
SELECT :brief FROM idem_claim('pay', NULL);
BEGIN;
SELECT run FROM idem_claim('bare');
SELECT idem_complete('bare');
COMMIT;
SELECT :brief FROM idem_claim('bare', '{"any": 1}');

-- mismatch tells nothing of the response, and leaves the record alone
SELECT :verdict FROM idem_claim('pay', '{"amount": 11, "to": ["a", {"b": null}]}');
SELECT :brief FROM idem_claim('pay');

-- what counts as different
BEGIN;
SELECT count(*) FILTER (WHERE run) AS claimed
FROM unnest('{1,2,3,4,5,6,7,8}'::int[], '{"{}","{\"a\":null}","null","[]","0","9007199254740992","\"1\"","[1,2]"}'::jsonb[]) AS r (n, request),
	idem_claim('r' || n, request);
SELECT n, outcome
FROM unnest('{1,2,3,4,5,6,7,8}'::int[], '{"{\"a\":null}","{}","{}","{}","-0.0","9007199254740993","1","[2,1]"}'::jsonb[]) AS r (n, request),
	idem_claim('r' || n, request) ORDER BY n;
SELECT n, outcome
FROM unnest('{1,2,3,4,5,6,7,8}'::int[], '{"{ }","{\"a\":null}","null","[ ]","0.00","9007199254740992.0","\"\\u0031\"","[1e0,20e-1]"}'::jsonb[]) AS r (n, request),
	idem_claim('r' || n, request) ORDER BY n;
ROLLBACK;

-- a request that comes with a later attempt binds from then on
BEGIN;
SELECT run FROM idem_claim('later');
SELECT idem_retry('later');
SELECT :brief FROM idem_claim('later', '{"a": 1}');
SELECT idem_retry('later');
SELECT :brief FROM idem_claim('later', '{"a": 2}');
SELECT :brief FROM idem_claim('later');
SELECT idem_retry('later');
SELECT :brief FROM idem_claim('later', '{"a": 2}');
ROLLBACK;

-- failed
BEGIN;
SELECT run FROM idem_claim('broke', '1');
SELECT idem_fail('broke', 'no funds', code => 402);
SELECT :verdict FROM idem_claim('broke', '1');
COMMIT;
SELECT :verdict FROM idem_claim('broke', '1');

-- in_progress of another holder: neither fence nor step nor progress
SELECT :verdict FROM idem_claim('job', '{"j": 1}', lease => '1 h');
SELECT fence FROM idem.key WHERE key = 'job' \gset
SELECT idem_step('job', 'half', '{"n": 50}', fence => :fence);
SELECT run, outcome, attempt, fence, step, progress, response, code, retry_after BETWEEN 3000 AND 3600 AS retry, expires_at
FROM idem_claim('job', '{"j": 1}', lease => '1 h');

-- takeover: the lease ran out
UPDATE idem.key SET lease_until = clock_timestamp() - interval '1 s' WHERE key = 'job';
SELECT idem_claim('job', '{"j": 1}', lease => '1 h') AS c \gset
SELECT run, outcome, attempt, fence > :fence AS newer, step, progress, response, code, retry_after, expires_at
FROM (SELECT (:'c'::idem_claimed).*) AS c;
SELECT outcome FROM idem_claim('job');

-- precedence: mismatch before completed, failed, in_progress, takeover, claimed
SELECT outcome FROM idem_claim('pay', '0');
SELECT outcome FROM idem_claim('broke', '0');
SELECT outcome FROM idem_claim('job', '0');
UPDATE idem.key SET lease_until = clock_timestamp() - interval '1 s' WHERE key = 'job';
SELECT outcome FROM idem_claim('job', '0');
SELECT outcome FROM idem_claim('job', '{"j": 1.0}', lease => '1 h');
SELECT fence FROM idem.key WHERE key = 'job' \gset
SELECT idem_retry('job', 'busy', fence => :fence);
SELECT outcome FROM idem_claim('job', '0');
-- ... but not before claimed where the record has expired
UPDATE idem.key SET expires_at = clock_timestamp() - interval '1 s' WHERE key IN ('job', 'pay', 'broke');
BEGIN;
SELECT key, c.run, c.outcome, c.attempt, c.step, c.progress, c.response, c.code FROM unnest('{job,pay,broke}'::text[]) AS key, idem_claim(key, '0') AS c;
ROLLBACK;
-- ... and a bad key goes before everything
SELECT idem_claim(NULL, '0');
SELECT idem_claim('', '0');

-- a verdict that does not run takes no transaction id
BEGIN;
SELECT run FROM idem_claim('p1') UNION ALL SELECT run FROM idem_claim('p2', '1');
SELECT idem_complete('p1'), idem_fail('p2');
SELECT run FROM idem_claim('p3', lease => '1 h');
COMMIT;
BEGIN;
SELECT key, c.outcome FROM unnest('{p1,p2,p3}'::text[]) AS key, idem_claim(key) AS c;
SELECT outcome FROM idem_claim('p2', '2');
SELECT count(*) FROM idem_lookup('p1');
SELECT pg_current_xact_id_if_assigned();
COMMIT;

-- NULL for every argument but the key, and all defaults, are the same
BEGIN;
SELECT :verdict FROM idem_claim('n', NULL, NULL, NULL, NULL, NULL, NULL);
SELECT scope, key, state, hold, fence, lease_until, fingerprint, ttl FROM idem.key WHERE key = 'n';
SELECT idem_complete('n', NULL, NULL, NULL, NULL);
SELECT outcome, attempt, step, progress, response, code, expires_at = finished_at + interval '24 h' AS for_24_h FROM idem_lookup('n', NULL);
ROLLBACK;

-- the key of the request
SELECT idem_key() IS NULL AS none;
SELECT idem_claim();
SET idem.key = '';
SELECT idem_key() IS NULL AS none;
SELECT idem_claim();
RESET idem.key;
BEGIN;
SELECT set_config('idem.key', 'from "the" header', true);
SELECT idem_key();
SELECT run, outcome FROM idem_claim();
SELECT * FROM idem_unfinished();
SELECT idem_complete(response => 'ok');
SELECT outcome, response FROM idem_lookup();
-- an explicit NULL is not the default
SAVEPOINT s;
SELECT idem_claim(NULL);
ROLLBACK TO s;
SELECT idem_claim('');
ROLLBACK;
SELECT idem_key() IS NULL AS none;

-- the scope of the request; the same key in two scopes is two things
BEGIN;
SELECT set_config('idem.scope', 'orders/acme', true);
SELECT run FROM idem_claim('k');
SELECT idem_complete('k', 'acme''s');
SELECT run FROM idem_claim('k', scope => 'orders/other');
SELECT idem_complete('k', 'other''s', scope => 'orders/other');
SELECT run FROM idem_claim('k', scope => 'default');
SELECT idem_fail('k', 'default''s', scope => 'default');
SELECT outcome, response FROM idem_claim('k');
SELECT outcome, response FROM idem_claim('k', scope => 'orders/other');
SELECT outcome, response FROM idem_claim('k', scope => 'default');
SELECT set_config('idem.scope', '', true);
SELECT outcome, response FROM idem_claim('k');
SELECT scope, key, state FROM idem.key WHERE key = 'k' ORDER BY scope;
ROLLBACK;

-- results that are not nothing
BEGIN;
SELECT n, c.run, idem_complete('v' || n, answer)
FROM unnest('{1,2,3,4,5,6}'::int[], ARRAY[NULL, '', 'null', '0', '[]', E' \n\t"x" ']) AS r (n, answer), idem_claim('v' || n) AS c;
COMMIT;
SELECT n, c.run, c.outcome, c.response IS NULL AS is_null, quote_literal(c.response) AS response
FROM generate_series(1, 6) AS n, idem_claim('v' || n) AS c ORDER BY n;

-- expired: absent, claimed afresh at attempt 1
UPDATE idem.key SET expires_at = clock_timestamp() - interval '1 ms', attempt = 7, step = 'old', progress = '1' WHERE key = 'v4';
SELECT count(*) FROM idem_lookup('v4');
BEGIN;
SELECT :verdict FROM idem_claim('v4');
SELECT idem_complete('v4', 'new');
COMMIT;
SELECT outcome, attempt, step, progress, response FROM idem_lookup('v4');

-- after any verdict the transaction goes on
BEGIN;
SELECT outcome FROM idem_claim('v1') UNION ALL SELECT outcome FROM idem_claim('p2', '3') UNION ALL SELECT outcome FROM idem_claim('p3');
SELECT 'still here' AS transaction;
COMMIT;

DELETE FROM idem.key;
