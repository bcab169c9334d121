-- READ ONLY, REPEATABLE READ and SERIALIZABLE transactions of one session.

\set VERBOSITY sqlstate
\pset null '(null)'
BEGIN;
SELECT run FROM idem_claim('done', '1') UNION ALL SELECT run FROM idem_claim('failed') UNION ALL SELECT run FROM idem_claim('open');
SELECT idem_complete('done', 'r', code => 200), idem_fail('failed', 'e', code => 500), idem_retry('open', 'later', after => '1 h');
COMMIT;
SELECT fence FROM idem_claim('held', lease => '1 h') \gset
SELECT run FROM idem_claim('dead', lease => '1 h');
UPDATE idem.key SET lease_until = clock_timestamp() WHERE key = 'dead';

-- READ ONLY: what writes nothing is answered
BEGIN READ ONLY;
SELECT key, c.run, c.outcome, c.response, c.code FROM unnest('{done,failed,open,held}'::text[]) AS key, idem_claim(key) AS c;
SELECT outcome FROM idem_claim('done', '2');
SELECT idem_once('done');
SELECT * FROM idem_once_many('{done,held,failed}');
SELECT * FROM idem_once_many('{}');
SELECT outcome, response FROM idem_lookup('done');
SELECT count(*) FROM idem_lookup('absent');
SELECT count(*) FROM idem_unfinished();
COMMIT;
-- what would write is PostgreSQL's own refusal
SET default_transaction_read_only = on;
SELECT idem_claim('new');
SELECT idem_claim('new', lease => '1 h');
SELECT idem_claim('new', hold => 'session');
SELECT idem_claim('dead');
SELECT idem_once('new');
SELECT idem_once_many('{done,new}');
SELECT idem_complete('held', fence => :fence);
SELECT idem_complete('held', '1'::json, fence => :fence);
SELECT idem_complete('held', '1'::jsonb, fence => :fence);
SELECT idem_fail('held', fence => :fence);
SELECT idem_retry('held', fence => :fence);
SELECT idem_release('held', fence => :fence);
SELECT idem_renew('held', fence => :fence);
SELECT idem_step('held', 's', fence => :fence);
SELECT idem_forget('held', force => true);
SELECT idem_reopen('failed');
SELECT idem_import('new');
SELECT idem_import_many('{new}');
SELECT idem_fence_advance(1);
SELECT idem_sweep();
RESET default_transaction_read_only;
-- no lock and no fence was left by the refusals
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid();
SELECT count(*) FROM idem_lookup('new');
-- a transaction that becomes READ ONLY after its claim
BEGIN;
SELECT run FROM idem_claim('late');
SET TRANSACTION READ ONLY;
SELECT outcome FROM idem_claim('late');
SAVEPOINT s;
SELECT idem_complete('late');
ROLLBACK TO s;
COMMIT;

-- REPEATABLE READ
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT key, c.run, c.outcome, c.attempt, c.response FROM unnest('{done,failed,open,held,dead}'::text[]) AS key, idem_claim(key) AS c;
SELECT outcome FROM idem_claim('done', '2');
SELECT idem_complete('dead', 'taken over');
SELECT run, attempt FROM idem_claim('rr');
SELECT outcome, attempt FROM idem_claim('rr');
SELECT idem_step('rr', 's');
SAVEPOINT s;
SELECT idem_complete('rr', 'undone');
ROLLBACK TO s;
SELECT idem_retry('rr', 'again');
SELECT run, attempt, step FROM idem_claim('rr');
SELECT idem_complete('rr', 'done');
SELECT outcome, response FROM idem_claim('rr');
SELECT idem_once('rr once'), idem_once('rr once');
SELECT * FROM idem_once_many('{rr2,rr once,rr1}');
SELECT idem_step('held', 'from rr', fence => :fence);
SELECT idem_forget('rr1', force => true), idem_once('rr1');
SELECT idem_import('rr3', 'x');
SELECT count(*) FROM idem_unfinished();
COMMIT;
SELECT key, state, attempt, step, response FROM idem.key WHERE key ~ '^(rr|dead|held)' ORDER BY key;
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;
SELECT outcome, response FROM idem_claim('rr');
COMMIT;

-- SERIALIZABLE
UPDATE idem.key SET lease_until = clock_timestamp() WHERE key = 'held';
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT key, c.run, c.outcome, c.attempt, c.response FROM unnest('{done,failed,open,held}'::text[]) AS key, idem_claim(key) AS c;
SELECT idem_complete('held', 'taken over');
SELECT run, attempt FROM idem_claim('ser');
SELECT outcome, attempt FROM idem_claim('ser');
SAVEPOINT s;
SELECT idem_complete('ser', 'undone');
ROLLBACK TO s;
SELECT idem_release('ser');
SELECT run, attempt FROM idem_claim('ser');
SELECT idem_complete('ser', 'done');
SELECT outcome, response FROM idem_claim('ser');
SELECT idem_once('ser once'), idem_once('ser once');
SELECT * FROM idem_once_many('{ser2,ser once,ser1}');
COMMIT;
SELECT key, state, attempt, response FROM idem.key WHERE key ~ '^(ser|held)' ORDER BY key;
-- a refusal at COMMIT at each level
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT run FROM idem_claim('left');
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT run FROM idem_claim('left');
COMMIT;
SELECT count(*) FROM idem_lookup('left');
-- a replay leaves no predicate lock, where the table is reached directly
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT outcome FROM idem_claim('done') UNION ALL SELECT outcome FROM idem_claim('failed');
SELECT count(*) FROM idem_lookup('done');
SELECT current_setting('idem.access') = 'sql' OR NOT EXISTS (SELECT FROM pg_locks WHERE mode = 'SIReadLock' AND pid = pg_backend_pid() AND relation IN ('idem.key'::regclass, 'idem.key_pkey'::regclass)) AS none;
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY DEFERRABLE;
SELECT outcome FROM idem_claim('done');
COMMIT;

DELETE FROM idem.key;
