-- Operators' verbs: forget, reopen, import, import_many, fence_advance, and
-- the view idem.held.

\set VERBOSITY sqlstate
\pset null '(null)'

-- forget: a completed or a live held key needs force, nothing else does
BEGIN;
SELECT count(*) FILTER (WHERE c.run) FROM unnest('{done,failed,open,later}'::text[]) AS key, idem_claim(key) AS c;
SELECT idem_complete('done', 'r'), idem_fail('failed', 'e'), idem_release('open'), idem_retry('later', after => '1 h');
COMMIT;
SELECT count(*) FILTER (WHERE c.run) FROM unnest('{held,dead}'::text[]) AS key, idem_claim(key, lease => '1 h') AS c;
SELECT run FROM idem_claim('sess', hold => 'session');
SELECT run FROM idem_claim('dead sess', hold => 'session');
UPDATE idem.key SET lease_until = clock_timestamp() WHERE key = 'dead';
UPDATE idem.key SET fence = -fence WHERE key = 'dead sess';
SELECT idem_once('expired');
UPDATE idem.key SET expires_at = clock_timestamp() WHERE key = 'expired';
SELECT idem_forget('done');
SELECT idem_forget('done', NULL, NULL);
SELECT idem_forget('held');
SELECT idem_forget('sess');
SELECT idem_forget('failed');
SELECT idem_forget('open');
SELECT idem_forget('later');
SELECT idem_forget('dead');
SELECT idem_forget('dead sess');
SELECT idem_forget('expired');
SELECT idem_forget('expired', force => true);
SELECT idem_forget('absent');
SELECT idem_forget('absent', force => true);
SELECT idem_forget('done', 'regress_other', true);
SELECT key, state FROM idem.key ORDER BY key;
SELECT fence FROM idem.key WHERE key = 'held' \gset
SELECT idem_forget('done', force => true), idem_forget('held', force => true), idem_forget('sess', force => true);
SELECT key, state FROM idem.key ORDER BY key;
-- the holder is told, and the key is new
SELECT idem_complete('held', fence => :fence);
SELECT idem_complete('sess');
-- of the two locks the one of "dead sess", which is not, is left
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid();
SELECT outcome, attempt FROM idem_claim('held', lease => '1 h');
SELECT fence > :fence AS newer FROM idem.key WHERE key = 'held';
DELETE FROM idem.key;

-- in the claiming transaction
BEGIN;
SELECT run FROM idem_claim('k', '1');
SAVEPOINT s;
SELECT idem_forget('k');
ROLLBACK TO s;
SELECT idem_forget('k', force => true);
SELECT count(*) FROM idem_lookup('k');
SELECT outcome, attempt FROM idem_claim('k', '2');
SELECT idem_complete('k', 'x');
SELECT idem_forget('k', force => true);
SELECT outcome FROM idem_claim('k');
SAVEPOINT s;
SELECT idem_forget('k', force => true);
ROLLBACK TO s;
SELECT * FROM idem_unfinished();
SELECT idem_complete('k', 'y');
COMMIT;
SELECT outcome, attempt, response FROM idem_lookup('k');
-- undone with its transaction
BEGIN;
SELECT idem_forget('k', force => true);
SELECT idem_once('k');
ROLLBACK;
SELECT outcome, response FROM idem_lookup('k');
DELETE FROM idem.key;

-- reopen: a failed key, keeping attempt and fingerprint
BEGIN;
SELECT run FROM idem_claim('f', '{"a": 1}', ttl => '5 h');
SELECT idem_retry('f', 'e1');
SELECT run FROM idem_claim('f', '{"a": 1}');
SELECT idem_step('f', 'half');
SELECT idem_fail('f', 'e2', code => 500);
COMMIT;
SELECT idem_reopen('f');
SELECT outcome, attempt, step, finished_at FROM idem_lookup('f');
SELECT outcome FROM idem_claim('f', '{"a": 2}');
BEGIN;
SELECT run, outcome, attempt, step FROM idem_claim('f', '{"a": 1}');
SELECT idem_complete('f', 'good', code => 200);
COMMIT;
SELECT outcome, attempt, response, code, expires_at - finished_at AS kept FROM idem_lookup('f');
SELECT idem_reopen('f');
SELECT idem_reopen('absent');
SELECT idem_reopen('f', 'regress_other');
-- of a lease or session claim that failed: its fence is spent
SELECT fence FROM idem_claim('l', lease => '1 h') \gset
SELECT idem_reopen('l');
SELECT idem_fail('l', 'e', fence => :fence);
SELECT idem_reopen('l');
SELECT idem_reopen('l');
SELECT idem_fail('l', 'e', fence => :fence);
SELECT idem_complete('l', 'late', fence => :fence);
SELECT outcome, attempt FROM idem_claim('l', lease => '1 h');
SELECT idem_reopen('l');
-- expired: not there
SELECT run FROM idem_claim('x', lease => '1 h');
SELECT idem_fail('x', fence => fence) FROM idem.key WHERE key = 'x';
UPDATE idem.key SET expires_at = clock_timestamp() WHERE key = 'x';
SELECT idem_reopen('x');
DELETE FROM idem.key;

-- import: recorded as completed before; true if it was stored
SELECT idem_import('a', 'r'), idem_import('a', 'other'), idem_import('b');
SELECT idem_import('c', 'old', created_at => clock_timestamp() - interval '1 h');
SELECT idem_import('d', 'older', 'regress_t/x', clock_timestamp() - interval '3 days', '10 days');
SELECT idem_import('too old', 'gone', created_at => clock_timestamp() - interval '25 h');
SELECT idem_import('ancient', 'gone', created_at => '2000-01-01');
SELECT scope, key, l.outcome, l.attempt, l.response, l.code, l.created_at = l.finished_at AS at_once, l.expires_at - l.finished_at AS kept, round(extract(epoch FROM clock_timestamp() - l.created_at) / 60) AS minutes
FROM idem.key AS k, idem_lookup(k.key, k.scope) AS l ORDER BY scope, key;
SELECT state, hold, fence, fingerprint FROM idem.key WHERE key = 'a';
SELECT outcome, response FROM idem_claim('a', '{"any": "request"}');
SELECT idem_once('b');
-- over what is there, expired, failed, open or held
SELECT run FROM idem_claim('held', lease => '1 h');
BEGIN;
SELECT run FROM idem_claim('failed');
SELECT idem_fail('failed');
SELECT run FROM idem_claim('open');
SELECT idem_release('open');
SELECT run FROM idem_claim('mine');
SELECT idem_import('mine', 'x');
SELECT idem_release('mine');
COMMIT;
SELECT idem_import('held', 'x'), idem_import('failed', 'x'), idem_import('open', 'x');
UPDATE idem.key SET expires_at = clock_timestamp(), attempt = 5 WHERE key = 'a';
SELECT idem_import('a', 'anew');
SELECT outcome, attempt, response FROM idem_lookup('a');
-- kept for ever, so it is never too old; a reserved scope
INSERT INTO idem.scope (name, no_expiry) VALUES ('regress_ever', true);
SELECT idem_import('k', 'r', 'regress_ever', '1970-01-01'), idem_import('k', 'r', 'once.regress');
SELECT outcome, expires_at FROM idem_lookup('k', 'regress_ever');
DELETE FROM idem.scope;
-- what it refuses
SELECT idem_import(NULL);
SELECT idem_import('');
SELECT idem_import('bad', created_at => 'infinity');
SELECT idem_import('bad', created_at => '-infinity');
SELECT idem_import('bad', created_at => clock_timestamp() + interval '1 h');
SELECT idem_import('bad', repeat('x', 1048577));
SELECT idem_import('bad', scope => '');
DELETE FROM idem.key;

-- import_many: how many were stored; of equal keys the first counts
SELECT idem_import_many('{b,a,c}', '{B,NULL,""}');
SELECT idem_import_many('{d,b,e,d}', '{D1,X,E,D2}');
SELECT idem_import_many('{f,g}'), idem_import_many('{f,g}', NULL), idem_import_many('{}'), idem_import_many('{}', '{}');
SELECT idem_import_many('{{h,i},{j,k}}', '{{H,I},{J,K}}', 'regress_t', clock_timestamp() - interval '1 h', '2 h');
SELECT idem_import_many('{old1,old2}', created_at => '2000-01-01');
SELECT scope, key, response, response IS NULL AS is_null, expires_at - finished_at AS kept FROM idem.key ORDER BY scope, key;
SELECT idem_import_many(NULL);
SELECT idem_import_many('{x,NULL}');
SELECT idem_import_many('{x,""}');
SELECT idem_import_many('{x,y}', '{X}');
SELECT idem_import_many('{x}', '{}');
SELECT idem_import_many('{}', '{X}');
SELECT idem_import_many(ARRAY['x', repeat('y', 1025)]);
SELECT idem_import_many('{x,y}', ARRAY['X', repeat('Y', 1048577)]);
SELECT idem_import_many('{x}', ttl => '0 s');
SELECT idem_import_many('{x}', created_at => 'infinity');
SELECT count(*) FROM idem.key WHERE key IN ('x', 'y');
SELECT idem_import_many(ARRAY(SELECT 'n' || n FROM generate_series(1, 2000) AS n), ARRAY(SELECT n::text FROM generate_series(1, 2000) AS n));
SELECT count(*), sum(response::int) FROM idem.key WHERE key LIKE 'n%';
DELETE FROM idem.key;

-- fence_advance: every later fence is above n; it never goes back
SELECT fence FROM idem_claim('k1', lease => '1 h') \gset
SELECT idem_fence_advance(:fence + 1000) = :fence + 1000 AS there;
SELECT fence > :fence + 1000 AS above FROM idem_claim('k2', lease => '1 h');
SELECT idem_fence_advance(1) > :fence + 1000 AS not_back;
SELECT idem_fence_advance(:fence + 5) > :fence + 1000 AS not_back;
SELECT fence > :fence + 1000 AS above FROM idem_claim('k3', hold => 'session');
-- a rollback does not take it back
SELECT fence FROM idem_claim('k4', lease => '1 h') \gset
BEGIN;
SELECT idem_fence_advance(:fence + 100) = :fence + 100 AS there;
ROLLBACK;
SELECT fence > :fence + 100 AS above FROM idem_claim('k5', lease => '1 h');
SELECT idem_fence_advance(NULL);
SELECT idem_fence_advance(0);
SELECT idem_fence_advance(-1);
SELECT idem_fence_advance(9223372036854775807);
SELECT idem_release('k3');
DELETE FROM idem.key;

-- idem.held: committed claims in progress
SELECT run FROM idem_claim('lease', scope => 'regress_t/a', lease => '1 h');
SELECT idem_step('lease', 's1', scope => 'regress_t/a', fence => fence) FROM idem.key;
SELECT run FROM idem_claim('sess', hold => 'session');
SELECT run FROM idem_claim('done', lease => '1 h');
SELECT idem_complete('done', fence => fence) FROM idem.key WHERE key = 'done';
SELECT idem_once('once');
UPDATE idem.key SET lease_until = clock_timestamp() - interval '1 h' WHERE key = 'lease';
SELECT run, attempt FROM idem_claim('lease', scope => 'regress_t/a', lease => '1 h');
SELECT scope, key, hold, since <= clock_timestamp() AS since, lease_until > since AS until, attempt, step FROM idem.held ORDER BY scope, key;
SELECT idem_release('sess');
SELECT scope, key FROM idem.held ORDER BY scope, key;
DELETE FROM idem.key;
