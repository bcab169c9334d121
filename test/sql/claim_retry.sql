-- attempt, max_attempts, retry after a while, release and reopen.

\set VERBOSITY sqlstate
\pset null '(null)'
\set verdict 'run, outcome, attempt, step, progress, response, code'

-- retry counts, keeps step and progress, and remembers the error
BEGIN;
SELECT :verdict FROM idem_claim('a', '{"x": 1}');
SELECT idem_step('a', 'one', '{"p": 1}');
SELECT idem_retry('a', 'timeout');
SELECT outcome, attempt, step, progress, response, code, finished_at FROM idem_lookup('a');
SELECT :verdict FROM idem_claim('a', '{"x": 1}');
SELECT idem_retry('a', 'timeout again');
SELECT :verdict FROM idem_claim('a', '{"x": 1}');
SELECT idem_complete('a', 'at last');
COMMIT;
SELECT :verdict FROM idem_claim('a', '{"x": 1}');

-- release takes its own attempt back: as if never claimed
BEGIN;
SELECT :verdict FROM idem_claim('b', '{"x": 1}', ttl => '1 day');
SELECT idem_step('b', 'one', '1');
SELECT idem_release('b');
SELECT outcome, attempt, step, progress, response FROM idem_lookup('b');
SELECT state, hold, fingerprint, ttl FROM idem.key WHERE key = 'b';
SELECT :verdict FROM idem_claim('b', '{"x": 2}');
SELECT idem_retry('b', 'first');
SELECT :verdict FROM idem_claim('b', '{"x": 2}');
SELECT idem_release('b');
SELECT outcome, attempt, response FROM idem_lookup('b');
SELECT :verdict FROM idem_claim('b', '{"x": 3}');
SELECT :verdict FROM idem_claim('b', '{"x": 2}');
SELECT idem_complete('b');
COMMIT;
SELECT :verdict FROM idem_claim('b', '{"x": 2}');

-- a takeover given back, too
SELECT outcome, attempt FROM idem_claim('t', '{"x": 1}', lease => '1 h');
SELECT idem_step('t', 'one', fence => fence) FROM idem.key WHERE key = 't';
UPDATE idem.key SET lease_until = clock_timestamp() WHERE key = 't';
BEGIN;
SELECT outcome, attempt, step FROM idem_claim('t', '{"x": 1}');
SELECT idem_release('t');
COMMIT;
SELECT outcome, attempt, step FROM idem_lookup('t');
SELECT outcome FROM idem_claim('t', '{"x": 2}');
BEGIN;
SELECT outcome, attempt, step FROM idem_claim('t');
SELECT idem_complete('t');
COMMIT;

-- in_progress until "after", then claimed
SELECT fence FROM idem_claim('c', lease => '1 h') \gset
SELECT idem_retry('c', 'rate limit', fence => :fence, after => '2 h');
SELECT run, outcome, attempt, fence, retry_after BETWEEN 7000 AND 7200 AS two_hours FROM idem_claim('c');
SELECT outcome, attempt, response FROM idem_lookup('c');
UPDATE idem.key SET lease_until = clock_timestamp() WHERE key = 'c';
BEGIN;
SELECT :verdict FROM idem_claim('c');
SELECT idem_retry('c', after => '0 s');
SELECT :verdict FROM idem_claim('c');
SELECT idem_release('c');
COMMIT;
SELECT outcome, attempt FROM idem_lookup('c');

-- at max_attempts the next claim is failed, with the last error
INSERT INTO idem.scope (name, max_attempts) VALUES ('regress_tries', 2);
BEGIN;
SELECT :verdict FROM idem_claim('d', scope => 'regress_tries');
SELECT idem_retry('d', 'first', scope => 'regress_tries');
SELECT :verdict FROM idem_claim('d', scope => 'regress_tries');
SELECT idem_retry('d', 'second', scope => 'regress_tries');
SELECT :verdict FROM idem_claim('d', scope => 'regress_tries');
COMMIT;
SELECT :verdict FROM idem_claim('d', scope => 'regress_tries');
-- ... without a write
BEGIN;
SELECT outcome FROM idem_claim('d', scope => 'regress_tries');
SELECT pg_current_xact_id_if_assigned();
COMMIT;
-- ... at once, whatever "after" said
BEGIN;
SELECT outcome FROM idem_claim('d2', scope => 'regress_tries');
SELECT idem_retry('d2', 'first', scope => 'regress_tries');
SELECT outcome FROM idem_claim('d2', scope => 'regress_tries');
SELECT idem_retry('d2', 'last', scope => 'regress_tries', after => '1 h');
SELECT :verdict FROM idem_claim('d2', scope => 'regress_tries');
COMMIT;
-- ... for a takeover too
SELECT outcome FROM idem_claim('e', scope => 'regress_tries', lease => '1 h');
UPDATE idem.key SET lease_until = clock_timestamp() WHERE key = 'e';
SELECT outcome, attempt FROM idem_claim('e', scope => 'regress_tries', lease => '1 h');
SELECT outcome, attempt FROM idem_claim('e', scope => 'regress_tries', lease => '1 h');
UPDATE idem.key SET lease_until = clock_timestamp() WHERE key = 'e';
SELECT :verdict FROM idem_claim('e', scope => 'regress_tries', lease => '1 h');
-- ... which an operator may reopen, but not while it is held
SELECT outcome FROM idem_claim('e2', scope => 'regress_tries', lease => '1 h');
UPDATE idem.key SET attempt = 2 WHERE key = 'e2';
SELECT idem_reopen('e2', 'regress_tries');
UPDATE idem.key SET lease_until = clock_timestamp() WHERE key = 'e2';
SELECT outcome FROM idem_claim('e2', scope => 'regress_tries');
SELECT idem_reopen('e2', 'regress_tries');
BEGIN;
SELECT outcome, attempt FROM idem_claim('e2', scope => 'regress_tries');
SELECT idem_complete('e2', scope => 'regress_tries');
COMMIT;
-- ... while the last holder may still finish
SELECT fence FROM idem.key WHERE key = 'e' \gset
SELECT idem_complete('e', 'late but ours', scope => 'regress_tries', fence => :fence);
SELECT :verdict FROM idem_claim('e', scope => 'regress_tries');

-- reopen allows one more, keeping attempt and fingerprint
SELECT idem_reopen('d', scope => 'regress_tries');
SELECT outcome, attempt FROM idem_lookup('d', scope => 'regress_tries');
BEGIN;
SELECT :verdict FROM idem_claim('d', scope => 'regress_tries');
SELECT idem_retry('d', 'third', scope => 'regress_tries');
SELECT :verdict FROM idem_claim('d', scope => 'regress_tries');
COMMIT;
-- ... which a release gives back
SELECT idem_reopen('d', scope => 'regress_tries');
BEGIN;
SELECT outcome, attempt FROM idem_claim('d', scope => 'regress_tries');
SELECT idem_release('d', scope => 'regress_tries');
SELECT outcome, attempt FROM idem_claim('d', scope => 'regress_tries');
SELECT idem_fail('d', 'for good', scope => 'regress_tries');
COMMIT;
SELECT :verdict FROM idem_claim('d', scope => 'regress_tries');

-- a rollback counts no attempt
BEGIN;
SELECT outcome, attempt FROM idem_claim('f', scope => 'regress_tries');
ROLLBACK;
BEGIN;
SELECT outcome, attempt FROM idem_claim('f', scope => 'regress_tries');
ROLLBACK;
BEGIN;
SELECT outcome, attempt FROM idem_claim('f', scope => 'regress_tries');
ROLLBACK;

-- max_attempts lowered and raised
BEGIN;
SELECT outcome FROM idem_claim('g', scope => 'regress_tries');
SELECT idem_retry('g', 'e1', scope => 'regress_tries');
COMMIT;
UPDATE idem.scope SET max_attempts = 1 WHERE name = 'regress_tries';
SELECT :verdict FROM idem_claim('g', scope => 'regress_tries');
UPDATE idem.scope SET max_attempts = NULL WHERE name = 'regress_tries';
BEGIN;
SELECT :verdict FROM idem_claim('g', scope => 'regress_tries');
ROLLBACK;

DELETE FROM idem.key;
DELETE FROM idem.scope;
