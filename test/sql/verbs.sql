-- The verbs that go on with a claim or end it: what they store, who may call
-- them, what a repeat does.  Codes only here; the messages are in verb_errors.

\set VERBOSITY sqlstate
\pset null '(null)'

-- complete: text, json and jsonb; a bare literal is text
BEGIN;
SELECT key, c.run FROM unnest('{text,bare,json,jsonb,nojson,nojsonb,nothing}'::text[]) AS key, idem_claim(key) AS c;
SELECT idem_complete('text', ' a "b" \n '::text, code => 200);
SELECT idem_complete('bare', '{"b" :  1.50,  "a": 2, "a": 3}', code => NULL);
SELECT idem_complete('json', '{"b" :  1.50,  "a": 2, "a": 3}'::json, code => -1);
SELECT idem_complete('jsonb', '{"b" :  1.50,  "a": 2, "a": 3}'::jsonb, code => 2147483647);
SELECT idem_complete('nojson', NULL::json), idem_complete('nojsonb', NULL::jsonb);
SELECT idem_complete('nothing');
COMMIT;
SELECT key, c.outcome, c.response, c.code, c.response IS NULL AS is_null
FROM unnest('{text,bare,json,jsonb,nojson,nojsonb,nothing}'::text[]) AS key, idem_claim(key) AS c;

-- a repeat with the same value succeeds and changes nothing; another does not
BEGIN;
SELECT run FROM idem_claim('r');
SELECT idem_complete('r', 'one', code => 1);
SELECT ctid AS place, finished_at, expires_at FROM idem.key WHERE key = 'r' \gset
SELECT idem_complete('r', 'one', code => 1);
SELECT ctid = :'place' AND finished_at = :'finished_at' AND expires_at = :'expires_at' AS unchanged FROM idem.key WHERE key = 'r';
SAVEPOINT s;
SELECT idem_complete('r', 'two', code => 1);
ROLLBACK TO s;
SELECT idem_complete('r', 'one', code => 2);
ROLLBACK TO s;
SELECT idem_complete('r', 'one');
ROLLBACK TO s;
SELECT idem_complete('r', NULL, code => 1);
ROLLBACK TO s;
-- terminal states stay
SELECT idem_fail('r', 'one', code => 1);
ROLLBACK TO s;
SELECT idem_retry('r', 'one');
ROLLBACK TO s;
SELECT idem_release('r');
ROLLBACK TO s;
SELECT idem_step('r', 'one');
ROLLBACK TO s;
SELECT idem_renew('r');
ROLLBACK TO s;
SELECT outcome, response, code FROM idem_lookup('r');
COMMIT;
-- in another transaction the claim is nobody's any more
SELECT idem_complete('r', 'one', code => 1);
SELECT idem_complete('r', 'one', fence => 1, code => 1);
SELECT outcome, response, code FROM idem_lookup('r');

-- fail
BEGIN;
SELECT run FROM idem_claim('f');
SELECT idem_fail('f', 'declined', code => 402);
SELECT idem_fail('f', 'declined', code => 402);
SAVEPOINT s;
SELECT idem_fail('f', 'other', code => 402);
ROLLBACK TO s;
SELECT idem_complete('f', 'declined', code => 402);
ROLLBACK TO s;
SELECT idem_retry('f', 'declined');
ROLLBACK TO s;
SELECT run FROM idem_claim('f0');
SELECT idem_fail('f0');
COMMIT;
SELECT outcome, attempt, response, code, finished_at IS NOT NULL AS finished FROM idem_lookup('f');
SELECT outcome, attempt, response, code, finished_at IS NOT NULL AS finished FROM idem_lookup('f0');

-- retry and release
BEGIN;
SELECT run FROM idem_claim('o');
SELECT idem_retry('o', 'busy');
SELECT idem_retry('o', 'busy');
SELECT outcome, attempt, response FROM idem_lookup('o');
SAVEPOINT s;
SELECT idem_retry('o', 'other');
ROLLBACK TO s;
SELECT idem_complete('o');
ROLLBACK TO s;
SELECT idem_step('o', 'x');
ROLLBACK TO s;
SELECT idem_release('o');
ROLLBACK TO s;
SELECT run, attempt FROM idem_claim('o');
SELECT idem_release('o');
SELECT idem_release('o');
SELECT outcome, attempt, response FROM idem_lookup('o');
SAVEPOINT s;
SELECT idem_retry('o', 'busy');
ROLLBACK TO s;
SELECT idem_complete('o');
ROLLBACK TO s;
COMMIT;

-- step: the last one counts, with its progress
BEGIN;
SELECT run FROM idem_claim('s');
SELECT idem_step('s', 'one', '{"n": 1.0}');
SELECT ctid AS place FROM idem.key WHERE key = 's' \gset
SELECT idem_step('s', 'one', '{"n": 1.0}');
SELECT ctid = :'place' AS unchanged FROM idem.key WHERE key = 's';
SELECT idem_step('s', 'one', '{"n": 2}');
SELECT step, progress FROM idem_lookup('s');
SELECT idem_step('s', 'two');
SELECT step, progress FROM idem_lookup('s');
SELECT idem_step('s', '', 'null');
SELECT step, progress FROM idem_lookup('s');
SAVEPOINT s;
SELECT idem_step('s', NULL);
ROLLBACK TO s;
SELECT idem_step('s');
ROLLBACK TO s;
SELECT idem_complete('s');
COMMIT;
SELECT outcome, step, progress FROM idem_lookup('s');

-- lease: by fence from any transaction
SELECT fence FROM idem_claim('l', lease => '1 h') \gset
SELECT idem_step('l', 'one', fence => :fence);
SELECT idem_renew('l', '3 h', fence => :fence) - clock_timestamp() BETWEEN '2 h' AND '3 h' AS renewed;
SELECT idem_renew('l', NULL, fence => :fence) - clock_timestamp() BETWEEN '1 s' AND '1 min' AS renewed;
SELECT idem_renew('l', fence => :fence) AS deadline \gset
SELECT lease_until = :'deadline' AS deadline FROM idem.key WHERE key = 'l';
SELECT lease_until - clock_timestamp() BETWEEN '1 s' AND '1 min' AS a_minute, expires_at - lease_until AS ttl_after FROM idem.key WHERE key = 'l';
-- without a fence, or with another
SELECT idem_step('l', 'two');
SELECT idem_renew('l');
SELECT idem_complete('l');
SELECT idem_fail('l');
SELECT idem_retry('l');
SELECT idem_release('l');
SELECT idem_step('l', 'two', fence => :fence + 1);
SELECT idem_renew('l', fence => :fence - 1);
SELECT idem_complete('l', fence => 0);
SELECT idem_fail('l', fence => -1);
SELECT idem_retry('l', fence => 9223372036854775807);
SELECT idem_release('l', fence => :fence + 1);
SELECT outcome, attempt, step FROM idem_lookup('l');
SELECT idem_complete('l', 'done', fence => :fence, code => 200);
SELECT idem_complete('l', 'done', fence => :fence, code => 200);
SELECT idem_complete('l', 'other', fence => :fence, code => 200);
SELECT idem_renew('l', fence => :fence);
SELECT idem_step('l', 'one', fence => :fence);
SELECT outcome, step, response, code FROM idem_lookup('l');
-- repeats of the others, in transactions of their own
SELECT fence FROM idem_claim('l2', lease => '1 h') \gset
SELECT idem_retry('l2', 'e', fence => :fence);
SELECT idem_retry('l2', 'e', fence => :fence);
SELECT outcome, attempt FROM idem_lookup('l2');
SELECT fence AS fence2 FROM idem_claim('l2', lease => '1 h') \gset
SELECT idem_retry('l2', 'e', fence => :fence);
SELECT idem_release('l2', fence => :fence2);
SELECT idem_release('l2', fence => :fence2);
SELECT outcome, attempt FROM idem_lookup('l2');
SELECT fence FROM idem_claim('l2', lease => '1 h') \gset
SELECT idem_fail('l2', 'e', fence => :fence);
SELECT idem_fail('l2', 'e', fence => :fence);
SELECT outcome, attempt, response FROM idem_lookup('l2');

-- a lease that ran out but was taken by nobody still belongs to its fence
SELECT fence FROM idem_claim('x1', lease => '1 h') \gset f1_
SELECT fence FROM idem_claim('x2', lease => '1 h') \gset f2_
SELECT fence FROM idem_claim('x3', lease => '1 h') \gset f3_
SELECT fence FROM idem_claim('x4', lease => '1 h') \gset f4_
SELECT fence FROM idem_claim('x5', lease => '1 h') \gset f5_
SELECT fence FROM idem_claim('x6', lease => '1 h') \gset f6_
UPDATE idem.key SET lease_until = clock_timestamp() - interval '1 h' WHERE key LIKE 'x%';
SELECT idem_complete('x1', 'c', fence => :f1_fence);
SELECT idem_fail('x2', 'f', fence => :f2_fence);
SELECT idem_retry('x3', 'r', fence => :f3_fence);
SELECT idem_release('x4', fence => :f4_fence);
SELECT idem_step('x5', 's', fence => :f5_fence);
SELECT idem_renew('x6', '1 h', fence => :f6_fence) > clock_timestamp() AS renewed;
SELECT key, l.outcome, l.attempt, l.step, l.response FROM unnest('{x1,x2,x3,x4,x5,x6}'::text[]) AS key, idem_lookup(key) AS l;
SELECT outcome FROM idem_claim('x6', lease => '1 h');

-- ... also past its expiry, until a takeover or a sweep
SELECT fence FROM idem_claim('x7', lease => '1 h', ttl => '2 h') \gset
UPDATE idem.key SET lease_until = clock_timestamp() - interval '3 h', expires_at = clock_timestamp() - interval '1 h' WHERE key = 'x7';
SELECT count(*) FROM idem_lookup('x7');
SELECT idem_complete('x7', 'still ours', fence => :fence);
SELECT outcome, response, expires_at - finished_at AS kept FROM idem_lookup('x7');

-- after a takeover every verb of the former holder is refused, and harmless
SELECT outcome FROM idem_claim('x5', lease => '1 h');
SELECT idem_complete('x5', 'late', fence => :f5_fence);
SELECT idem_fail('x5', 'late', fence => :f5_fence);
SELECT idem_retry('x5', 'late', fence => :f5_fence);
SELECT idem_release('x5', fence => :f5_fence);
SELECT idem_step('x5', 'late', fence => :f5_fence);
SELECT idem_renew('x5', fence => :f5_fence);
SELECT outcome, attempt, step, response FROM idem_lookup('x5');
SELECT fence FROM idem.key WHERE key = 'x5' \gset
SELECT idem_complete('x5', 'winner', fence => :fence);
SELECT idem_complete('x5', 'winner', fence => :f5_fence);
SELECT outcome, attempt, step, response FROM idem_lookup('x5');

-- a transaction's claim has no fence
BEGIN;
SELECT run FROM idem_claim('t');
SAVEPOINT s;
SELECT idem_complete('t', fence => 1);
ROLLBACK TO s;
SELECT idem_renew('t');
ROLLBACK TO s;
SELECT idem_release('t');
COMMIT;
-- a session's has no lease to renew
SELECT run FROM idem_claim('t2', hold => 'session');
SELECT idem_renew('t2');
SELECT idem_release('t2');

-- nothing there: nothing of yours
SELECT idem_complete('absent');
SELECT idem_fail('absent');
SELECT idem_retry('absent');
SELECT idem_release('absent');
SELECT idem_step('absent', 's');
SELECT idem_renew('absent');
SELECT idem_complete('absent', fence => 1);
SELECT idem_complete('r', 'one', scope => 'regress_other', code => 1);
SELECT count(*) FROM idem.key WHERE key = 'absent' OR scope <> 'default';

-- no key
SELECT idem_complete(NULL);
SELECT idem_complete();
SELECT idem_complete('');
SELECT idem_complete(NULL, '{}'::json);
SELECT idem_complete(NULL, '{}'::jsonb);
SELECT idem_fail(NULL);
SELECT idem_fail();
SELECT idem_retry(NULL);
SELECT idem_retry();
SELECT idem_release(NULL);
SELECT idem_release();
SELECT idem_renew(NULL);
SELECT idem_renew();
SELECT idem_step(NULL, 's');
SELECT idem_step(step => 's');
SELECT idem_lookup(NULL);
SELECT idem_lookup();
SELECT idem_once(NULL);

-- the key of the request
BEGIN;
SELECT set_config('idem.key', 'mine', true);
SELECT run FROM idem_claim();
SELECT idem_step(step => 'one');
SELECT idem_retry(error => 'again');
SELECT run FROM idem_claim();
SELECT idem_release();
SELECT run FROM idem_claim(lease => '1 h');
SELECT idem_renew() > clock_timestamp() AS renewed;
SELECT idem_fail(error => 'no');
SELECT outcome, attempt, step, response FROM idem_lookup();
COMMIT;

-- lookup takes no transaction id, and knows all states
BEGIN;
SELECT key, l.outcome, l.attempt, l.created_at IS NOT NULL AS created, l.finished_at IS NOT NULL AS finished, l.expires_at IS NOT NULL AS expires
FROM unnest('{r,f,l2,x3,x6,absent}'::text[]) AS key, idem_lookup(key) AS l;
SELECT count(*) FROM idem_lookup('r', 'regress_other');
SELECT pg_current_xact_id_if_assigned();
COMMIT;

-- values that are stored out of line, read in the same transaction and later
CREATE TEMP TABLE big AS SELECT string_agg(md5(n::text), '') AS t FROM generate_series(1, 20000) AS n;
BEGIN;
SELECT c.outcome FROM big, idem_claim('big', to_jsonb(t)) AS c;
SELECT idem_step('big', left(t, 500000), to_jsonb(t)) FROM big;
SELECT c.outcome, c.step = left(t, 500000) AS step, c.progress = to_jsonb(t) AS progress FROM big, idem_claim('big', to_jsonb(t)) AS c;
SELECT idem_step('big', left(t, 500000), to_jsonb(t)) FROM big;
SAVEPOINT s;
SELECT idem_complete('big', t || 'x') FROM big;
ROLLBACK TO s;
SELECT idem_complete('big', t, code => 200) FROM big;
SELECT idem_complete('big', t, code => 200) FROM big;
SELECT c.outcome, c.response = t AS response FROM big, idem_claim('big', to_jsonb(t)) AS c;
COMMIT;
SELECT c.outcome, c.response = t AS response FROM big, idem_claim('big', to_jsonb(t)) AS c;
SELECT c.outcome FROM big, idem_claim('big', to_jsonb(t || 'x')) AS c;

-- what cannot be stored
BEGIN;
SELECT run FROM idem_claim('bad');
SAVEPOINT s;
SELECT idem_complete('bad', '{"a"'::json);
ROLLBACK TO s;
SELECT idem_release('bad');
ROLLBACK;

DELETE FROM idem.key;
