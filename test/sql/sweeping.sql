-- idem_sweep: what has expired goes, whatever is alive stays.

\set VERBOSITY sqlstate
\pset null '(null)'

SELECT * FROM idem_sweep() WHERE kind = 'key';

-- one of each kind, alive and expired
CREATE PROCEDURE pg_temp.fill(prefix text) LANGUAGE plpgsql AS $$
BEGIN
	PERFORM idem_claim(prefix || 'open');
	PERFORM idem_retry(prefix || 'open', 'e');
	PERFORM idem_claim(prefix || 'released');
	PERFORM idem_release(prefix || 'released');
	PERFORM idem_claim(prefix || 'done');
	PERFORM idem_complete(prefix || 'done', 'r');
	PERFORM idem_claim(prefix || 'failed');
	PERFORM idem_fail(prefix || 'failed', 'e');
	PERFORM idem_once(prefix || 'once');
	PERFORM idem_import(prefix || 'imported');
	PERFORM idem_claim(prefix || 'lease', lease => '1 h');
	PERFORM idem_claim(prefix || 'session', hold => 'session');
END $$;
CALL pg_temp.fill('live ');
CALL pg_temp.fill('late ');
CALL pg_temp.fill('dead ');
-- not to be claimed before tomorrow
UPDATE idem.key SET lease_until = clock_timestamp() + interval '1 day', expires_at = clock_timestamp() + interval '2 days' WHERE key = 'live open';
-- dead, but takeable for a while; kept for ever
UPDATE idem.key SET lease_until = clock_timestamp() - interval '1 h' WHERE key = 'late lease';
UPDATE idem.key SET expires_at = clock_timestamp() + interval '1 h' WHERE key LIKE 'late %' AND expires_at IS NOT NULL;
UPDATE idem.key SET expires_at = NULL WHERE key = 'late done';
-- over
UPDATE idem.key SET lease_until = lease_until - interval '3 days', expires_at = clock_timestamp() - interval '1 us' WHERE key LIKE 'dead %' AND key <> 'dead session';
-- the last holders of these sessions are gone
UPDATE idem.key SET fence = -fence WHERE key IN ('dead session', 'late session');
SELECT * FROM idem_sweep() WHERE kind = 'key';
SELECT key, state, hold, expires_at IS NOT NULL AS expires FROM idem.key ORDER BY key;
-- a dead session got its deadline, from when it was found dead
SELECT key, round(extract(epoch FROM expires_at - clock_timestamp()) / 3600) AS hours FROM idem.key WHERE key LIKE '%session' ORDER BY key;
SELECT outcome, attempt FROM idem_claim('late session', lease => '1 h');
SELECT * FROM idem_sweep() WHERE kind = 'key';
UPDATE idem.key SET expires_at = clock_timestamp() WHERE key = 'dead session';
SELECT outcome, attempt FROM idem_claim('dead session', hold => 'session');
SELECT * FROM idem_sweep() WHERE kind = 'key';
SELECT count(*) FROM idem.key;
UPDATE idem.key SET fence = -fence, expires_at = clock_timestamp() WHERE key = 'dead session';
SELECT * FROM idem_sweep() WHERE kind = 'key';
SELECT count(*) FROM idem_lookup('dead session');
-- the live ones are still held
SELECT outcome FROM idem_claim('live lease') UNION ALL SELECT outcome FROM idem_claim('live session');
SELECT idem_complete('live session');
DELETE FROM idem.key;

-- a former holder is told
SELECT fence FROM idem_claim('k', lease => '1 h') \gset
UPDATE idem.key SET lease_until = clock_timestamp(), expires_at = clock_timestamp();
SELECT * FROM idem_sweep() WHERE kind = 'key';
SELECT idem_complete('k', fence => :fence);
SELECT outcome, attempt FROM idem_claim('k', lease => '1 h');
DELETE FROM idem.key;

-- max_rows: at most so many, and the next sweep goes on; whether they expired
-- one by one ...
SELECT idem_import_many(ARRAY(SELECT 'old' || n FROM generate_series(1, 250) AS n), ARRAY(SELECT repeat('x', 100) FROM generate_series(1, 250)));
UPDATE idem.key SET expires_at = clock_timestamp() - interval '1 s' * substr(key, 4)::int;
SELECT count(idem_once('new' || n)) FROM generate_series(1, 250) AS n;
SELECT * FROM idem_sweep(100) WHERE kind = 'key';
SELECT * FROM idem_sweep(max_rows => 100) WHERE kind = 'key';
SELECT * FROM idem_sweep(1) WHERE kind = 'key';
SELECT * FROM idem_sweep(100) WHERE kind = 'key';
SELECT * FROM idem_sweep(100) WHERE kind = 'key';
SELECT left(key, 3) AS what, count(*) FROM idem.key GROUP BY 1;
-- ... or all at the same time
SELECT idem_import_many(ARRAY(SELECT 'old' || n FROM generate_series(1, 250) AS n));
UPDATE idem.key SET expires_at = '2020-01-01' WHERE key LIKE 'old%';
SELECT * FROM idem_sweep(100) WHERE kind = 'key';
SELECT * FROM idem_sweep(100) WHERE kind = 'key';
SELECT * FROM idem_sweep(100) WHERE kind = 'key';
SELECT * FROM idem_sweep(100) WHERE kind = 'key';
SELECT left(key, 3) AS what, count(*) FROM idem.key GROUP BY 1;
-- the position goes round, and comes by again where rows were freed
UPDATE idem.key SET expires_at = '2020-01-01' WHERE key IN ('new1', 'new100', 'new250');
SELECT * FROM idem_sweep(1) WHERE kind = 'key';
SELECT * FROM idem_sweep(1) WHERE kind = 'key';
SELECT * FROM idem_sweep(1) WHERE kind = 'key';
SELECT * FROM idem_sweep(1) WHERE kind = 'key';
UPDATE idem.key SET expires_at = '2020-01-01' WHERE key IN ('new2', 'new99');
SELECT * FROM idem_sweep(5) WHERE kind = 'key';
SELECT count(*) FROM idem.key;
SELECT kind, count(*) FROM idem.sweep_state WHERE kind = 'key' GROUP BY kind;

-- rolled back, and in a transaction that holds a claim
BEGIN;
UPDATE idem.key SET expires_at = '2020-01-01' WHERE key IN ('new3', 'new4');
SELECT * FROM idem_sweep() WHERE kind = 'key';
ROLLBACK;
SELECT count(*) FROM idem.key;
UPDATE idem.key SET expires_at = '2020-01-01' WHERE key IN ('new3', 'new4');
BEGIN;
SELECT outcome, attempt FROM idem_claim('new3');
SELECT outcome FROM idem_claim('fresh');
SELECT * FROM idem_sweep() WHERE kind = 'key';
SELECT idem_complete('new3', 'again'), idem_complete('fresh');
COMMIT;
SELECT outcome, response FROM idem_lookup('new3');
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT count(*) FROM idem.key;
UPDATE idem.key SET expires_at = '2020-01-01' WHERE key = 'new5';
SELECT * FROM idem_sweep() WHERE kind = 'key';
SELECT * FROM idem_sweep() WHERE kind = 'key';
COMMIT;

-- keys of any form, and other scopes
SELECT count(idem_once(key, scope)) FROM unnest(ARRAY['''', '%', E'\n', repeat('x', 1024)]) AS key, unnest('{regress_a,regress_a/t,default}'::text[]) AS scope;
SELECT idem_import('k', 'x', 'once.regress'), idem_import('k', 'x', 'idem.regress');
UPDATE idem.key SET expires_at = '2020-01-01' WHERE key NOT LIKE 'new%';
SELECT * FROM idem_sweep() WHERE kind = 'key';

-- NULL is no limit
UPDATE idem.key SET expires_at = '2020-01-01';
SELECT removed = (SELECT count(*) FROM idem.key) AS all_of_them FROM idem_sweep(NULL, NULL) WHERE kind = 'key';
SELECT count(*) FROM idem.key;
SELECT * FROM idem_sweep(NULL, '1 h') WHERE kind = 'key';
SELECT * FROM idem_sweep(budget => '1 min') WHERE kind = 'key';
SELECT * FROM idem_sweep(2147483647, '1000 years') WHERE kind = 'key';
SELECT * FROM idem_sweep(0) WHERE kind = 'key';
SELECT * FROM idem_sweep(-1) WHERE kind = 'key';
SELECT * FROM idem_sweep(budget => '0 s') WHERE kind = 'key';
SELECT * FROM idem_sweep(budget => '-1 s') WHERE kind = 'key';
SELECT * FROM idem_sweep(budget => '1001 years') WHERE kind = 'key';
SELECT sum(removed) AS removed FROM (SELECT (idem_sweep()).removed) AS s;
