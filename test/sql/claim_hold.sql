-- The three holds, ttl, lease and wait of a claim.

\set VERBOSITY sqlstate
\pset null '(null)'

-- lease: by name, with the scope's time, or implied by giving one
SELECT outcome, fence IS NOT NULL AS fenced FROM idem_claim('a', hold => 'lease');
SELECT outcome, fence IS NOT NULL AS fenced FROM idem_claim('b', lease => '5 min');
SELECT outcome, fence IS NOT NULL AS fenced FROM idem_claim('c', hold => 'lease', lease => '2 h', ttl => '3 days');
SELECT key, state, hold, attempt, lease_until - claimed_at AS lease, expires_at - lease_until AS ttl_after, created_at <= claimed_at AS in_order, ttl
FROM idem.key ORDER BY key;
SELECT outcome, attempt, created_at IS NOT NULL AS created, finished_at, expires_at FROM idem_lookup('c');

-- fences grow
SELECT array_agg(key ORDER BY fence) AS by_fence FROM idem.key;

-- ttl counts from completion, not from the claim
SELECT fence FROM idem.key WHERE key = 'c' \gset
SELECT idem_complete('c', fence => :fence);
SELECT finished_at > created_at AS finished_later, expires_at - finished_at AS kept FROM idem_lookup('c');
SELECT hold, fence = :fence AS fence_stays, lease_until FROM idem.key WHERE key = 'c';

-- transaction: no fence; ttl is remembered over a retry, and a new one counts
BEGIN;
SELECT outcome, fence FROM idem_claim('t', ttl => '10 days');
SELECT idem_retry('t');
SELECT expires_at - finished_at IS NULL AS open FROM idem_lookup('t');
SELECT outcome FROM idem_claim('t', hold => 'transaction');
SELECT idem_complete('t');
SELECT expires_at - finished_at AS kept FROM idem_lookup('t');
SELECT outcome FROM idem_claim('u', ttl => '10 days');
SELECT idem_retry('u');
SELECT outcome FROM idem_claim('u', ttl => '1 mon');
SELECT idem_fail('u');
SELECT expires_at = finished_at + interval '1 mon' AS a_month FROM idem_lookup('u');
COMMIT;

-- a live lease past its ttl is still held
SELECT outcome FROM idem_claim('short', lease => '1 day', ttl => '1 us');
SELECT outcome FROM idem_claim('short', lease => '1 day');
SELECT outcome, expires_at FROM idem_lookup('short');

-- a dead one stays takeable for the ttl after its holder died, then it is absent
SELECT outcome FROM idem_claim('dead', '{"r": 1}', lease => '1 h', ttl => '2 h');
SELECT fence FROM idem.key WHERE key = 'dead' \gset
SELECT idem_step('dead', 's1', fence => :fence);
UPDATE idem.key SET lease_until = lease_until - interval '150 min', expires_at = expires_at - interval '150 min' WHERE key = 'dead';
BEGIN;
SELECT outcome, attempt, step FROM idem_claim('dead', '{"r": 1}');
SELECT idem_release('dead');
ROLLBACK;
UPDATE idem.key SET lease_until = lease_until - interval '50 min', expires_at = expires_at - interval '50 min' WHERE key = 'dead';
BEGIN;
SELECT outcome, attempt, step FROM idem_claim('dead', '{"r": 2}');
SELECT idem_release('dead');
ROLLBACK;

-- an open one for the ttl after its last retry or release
BEGIN;
SELECT outcome FROM idem_claim('open1', ttl => '2 h');
SELECT idem_retry('open1', 'e');
SELECT outcome FROM idem_claim('open2', ttl => '2 h');
SELECT idem_release('open2');
SELECT outcome FROM idem_claim('open3', ttl => '2 h');
SELECT idem_retry('open3', 'e', after => '1 h');
COMMIT;
SELECT key, state, hold, attempt, round(extract(epoch FROM expires_at - clock_timestamp()) / 600) AS ten_minutes, lease_until IS NOT NULL AS later
FROM idem.key WHERE key LIKE 'open%' ORDER BY key;

-- the claiming transaction needs no fence for a lease; afterwards it does
BEGIN;
SELECT outcome, attempt FROM idem_claim('own', lease => '1 h');
SELECT idem_step('own', 'one');
SELECT outcome, attempt, fence IS NOT NULL AS fenced, step FROM idem_claim('own', lease => '1 h');
SELECT idem_renew('own', '2 h') > clock_timestamp() + interval '1 h' AS renewed;
COMMIT;
SELECT idem_step('own', 'two');
SELECT idem_complete('own');
SELECT outcome, attempt, fence, step FROM idem_claim('own', lease => '1 h');

-- session: its own backend needs no fence, in later transactions neither
SELECT run, outcome, attempt, fence IS NOT NULL AS fenced FROM idem_claim('sess', hold => 'session');
SELECT state, hold, lease_until, expires_at, claimed_at IS NOT NULL AS since FROM idem.key WHERE key = 'sess';
SELECT idem_step('sess', 'one');
SELECT run, outcome, attempt, fence IS NOT NULL AS fenced, step, retry_after FROM idem_claim('sess');
SELECT idem_complete('sess', 'done');
SELECT run, outcome, response FROM idem_claim('sess');
-- the lock is in a class of its own, and is gone after the commit of complete
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid();

-- ... and is freed where the claiming transaction aborts, kept where complete aborts
BEGIN;
SELECT outcome FROM idem_claim('sess2', hold => 'session');
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid();
ROLLBACK;
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid();
SELECT outcome FROM idem_claim('sess2', hold => 'session');
BEGIN;
SELECT idem_complete('sess2', 'undone');
ROLLBACK;
SELECT outcome, fence IS NOT NULL AS mine FROM idem_claim('sess2');
-- an error does not free it
SELECT 1 / 0;
SELECT outcome, fence IS NOT NULL AS mine FROM idem_claim('sess2');
SELECT idem_retry('sess2', 'again');
SELECT outcome, attempt FROM idem_claim('sess2', hold => 'session');
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid();
SELECT idem_release('sess2');
SELECT outcome, attempt FROM idem_lookup('sess2');
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid();

-- its end is repeated by its fence: the lock has ended with it
SELECT fence FROM idem_claim('sess5', hold => 'session') \gset
SELECT idem_complete('sess5', 'done');
\set VERBOSITY default
SELECT idem_complete('sess5', 'done');
\set VERBOSITY sqlstate
SELECT idem_complete('sess5', 'done', fence => :fence);

-- the application's advisory locks do not meet it
SELECT fence FROM idem_claim('sess3', hold => 'session') \gset
SELECT pg_try_advisory_lock(:fence), pg_try_advisory_lock(0, :fence);
SELECT pg_advisory_unlock(:fence), pg_advisory_unlock(0, :fence);
SELECT outcome, fence = :fence AS mine FROM idem_claim('sess3');
-- pg_advisory_unlock_all and DISCARD ALL end it; the next verb says so
SELECT pg_advisory_unlock_all();
SELECT idem_complete('sess3', 'late');
SELECT outcome, attempt, fence > :fence AS newer FROM idem_claim('sess3', hold => 'session');
DISCARD ALL;
SELECT idem_step('sess3', 'late');
SELECT outcome, attempt FROM idem_claim('sess3', lease => '1 h');
-- its fence serves as well as any, while nobody took it
SELECT fence FROM idem_claim('sess4', hold => 'session') \gset
SELECT pg_advisory_unlock_all();
SELECT idem_complete('sess4', 'by fence', fence => :fence);
SELECT outcome, response FROM idem_lookup('sess4');

-- many at a time
SELECT count(*) FILTER (WHERE run) FROM generate_series(1, 30) AS n, idem_claim('s' || n, hold => 'session');
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid();
SELECT count(idem_complete('s' || n)) FROM generate_series(1, 30) AS n;
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid();

-- a session that nobody has any more
SELECT fence FROM idem_claim('gone', hold => 'session') \gset
SELECT idem_step('gone', 'far', '[1]');
UPDATE idem.key SET fence = -:fence WHERE key = 'gone';
BEGIN;
SELECT outcome, attempt, step, progress FROM idem_claim('gone');
SELECT idem_complete('gone');
COMMIT;

-- what does not fit together
SELECT idem_claim('x', hold => 'transaction', lease => '1 s');
SELECT idem_claim('x', hold => 'session', lease => '1 s');
SELECT idem_claim('x', hold => 'Lease');
SELECT idem_claim('x', hold => '');
SELECT count(*) FROM idem.key WHERE key = 'x';

-- wait concerns uncommitted claims only
SELECT outcome FROM idem_claim('w', lease => '1 h');
SELECT wait, outcome FROM unnest('{NULL,0 s,1 us,2 s,1 year}'::interval[]) AS wait, idem_claim('w', wait => wait);
BEGIN;
SELECT wait, outcome FROM unnest('{0 s,2 s}'::interval[]) AS wait, idem_claim('w' || wait, wait => wait);
SELECT wait, outcome FROM unnest('{0 s,2 s,NULL}'::interval[]) AS wait, idem_claim('w0 s', wait => wait);
ROLLBACK;

-- retry_after: whole seconds, rounded up, at least one
UPDATE idem.key SET lease_until = clock_timestamp() + interval '1000.5 s' WHERE key = 'w';
SELECT retry_after BETWEEN 900 AND 1001 AS seconds FROM idem_claim('w');
UPDATE idem.key SET lease_until = clock_timestamp() + interval '900 years' WHERE key = 'w';
SELECT retry_after FROM idem_claim('w');

DELETE FROM idem.key;
