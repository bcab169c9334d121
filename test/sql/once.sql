-- idem_once and idem_once_many.

\set VERBOSITY sqlstate
\pset null '(null)'

SELECT idem_once('a');
SELECT idem_once('a');
SELECT idem_once('a', 'regress_group'), idem_once('a', scope => 'regress_group/t');
SELECT idem_once('a', 'regress_group'), idem_once('a', scope => 'regress_group/t');
SELECT idem_once('a', NULL), idem_once('a', NULL, NULL), idem_once('A'), idem_once('a ');
-- a rollback gives it back, to a savepoint too
BEGIN;
SELECT idem_once('b');
SELECT idem_once('b');
ROLLBACK;
BEGIN;
SAVEPOINT s;
SELECT idem_once('b');
ROLLBACK TO s;
SELECT idem_once('b');
SELECT idem_once('b');
COMMIT;
SELECT idem_once('b');

-- what it records
SELECT outcome, attempt, step, progress, response, code, created_at <= finished_at AS in_order, expires_at - finished_at AS kept FROM idem_lookup('a');
SELECT state, hold, fence, lease_until, ttl FROM idem.key WHERE key = 'a' AND scope = 'default';
SELECT outcome, response FROM idem_claim('a');
SELECT idem_once('a', 'regress_group', '10 days'), idem_once('c', ttl => '10 days');
SELECT key, l.expires_at - l.finished_at AS kept FROM unnest('{a,c}'::text[]) AS key, idem_lookup(key) AS l;
-- expired: new again
UPDATE idem.key SET expires_at = clock_timestamp() WHERE key = 'c';
SELECT idem_once('c', ttl => '1 h');
SELECT idem_once('c');
SELECT attempt, expires_at - finished_at AS kept FROM idem_lookup('c');

-- a key that is claimed, failed or open
SELECT run FROM idem_claim('l', lease => '1 h');
SELECT fence FROM idem.key WHERE key = 'l' \gset
SELECT idem_once('l');
SELECT idem_retry('l', 'again', fence => :fence, after => '1 h');
SELECT idem_once('l');
UPDATE idem.key SET lease_until = NULL WHERE key = 'l';
SELECT idem_once('l');
SELECT outcome, attempt, response FROM idem_lookup('l');
BEGIN;
SELECT run FROM idem_claim('t');
SELECT idem_once('t');
SELECT * FROM idem_unfinished();
SELECT idem_fail('t', 'no');
SELECT idem_once('t');
COMMIT;
SELECT idem_once('t');

-- a dead holder's key: its fence is void then
SELECT fence FROM idem_claim('dead', lease => '1 h') \gset
UPDATE idem.key SET lease_until = clock_timestamp() WHERE key = 'dead';
SELECT idem_once('dead'), idem_once('dead');
SELECT outcome, attempt FROM idem_lookup('dead');
SELECT idem_complete('dead', fence => :fence);

-- an answer of false takes no transaction id
BEGIN;
SELECT idem_once('a');
SELECT count(*) FROM idem_once_many('{a,b,c}');
SELECT pg_current_xact_id_if_assigned();
COMMIT;

-- many: the new ones in the order given; of equal ones the first counts
SELECT * FROM idem_once_many('{m3,m1,a,m2,m1,m3,M1}');
SELECT * FROM idem_once_many('{m3,m1,a,m2,m1,m3,M1}');
SELECT * FROM idem_once_many('{m4,m3,m4,"m 5","m\"6",m7}') WITH ORDINALITY;
SELECT idem_once_many('{m8,m3,m9}');
SELECT * FROM idem_once_many(ARRAY['m1', 'm3', 'm1'], 'regress_group', '2 days');
SELECT key, expires_at - finished_at AS kept FROM idem.key WHERE scope = 'regress_group' AND key LIKE 'm%' ORDER BY key;
SELECT count(*), sum((SELECT count(*) FROM idem_once_many(ARRAY[key]))) AS again FROM idem.key WHERE scope = 'default' AND key LIKE 'm%';

-- empty, two-dimensional, other bounds
SELECT * FROM idem_once_many('{}');
SELECT * FROM idem_once_many('{{d1,d2},{d2,d3}}');
SELECT * FROM idem_once_many('[5:7]={d4,d1,d5}');
SELECT * FROM idem_once_many((SELECT array_agg(key ORDER BY key) FROM (VALUES ('v1'), ('v2')) AS v (key)));
SELECT * FROM idem_once_many('{v1,v3}'::varchar[]);

-- a missing or oversized key refuses the whole batch
SELECT * FROM idem_once_many('{e1,NULL,e2}');
SELECT * FROM idem_once_many('{e1,"",e2}');
SELECT * FROM idem_once_many(ARRAY['e1', repeat('e', 1025)]);
SELECT * FROM idem_once_many(NULL);
SELECT * FROM idem_once_many('{e1}', '');
SELECT * FROM idem_once_many('{e1}', ttl => '0 s');
SELECT * FROM idem_once_many('{}', '');
SELECT * FROM idem_once_many('{}', ttl => '-1 s');
SELECT idem_once('e1', ttl => '-1 s');
SELECT idem_once('e1', '');
SELECT idem_once('');
SELECT count(*) FROM idem.key WHERE key LIKE 'e%';

-- many at a time, rolled back with a savepoint, and a thousand
BEGIN;
SAVEPOINT s;
SELECT count(*) FROM idem_once_many(ARRAY(SELECT 'n' || n FROM generate_series(1, 10) AS n));
ROLLBACK TO s;
SELECT count(*), min(o), bool_and(o = 'n' || i) AS in_order FROM idem_once_many(ARRAY(SELECT 'n' || n FROM generate_series(1, 1000) AS n)) WITH ORDINALITY AS o (o, i);
SELECT count(*) FROM idem_once_many(ARRAY(SELECT 'n' || n FROM generate_series(1000, 1, -1) AS n));
COMMIT;
SELECT count(*) FROM idem_once_many(ARRAY(SELECT 'n' || n FROM generate_series(501, 1500) AS n));

-- in a query's own rows: once per row
SELECT n, idem_once('q' || n % 3) FROM generate_series(1, 6) AS n ORDER BY n;
CREATE TEMP TABLE event (id text, body text);
INSERT INTO event SELECT 'ev' || n % 2, n FROM generate_series(1, 4) AS n WHERE idem_once('ev' || n % 2, 'regress_group');
SELECT * FROM event ORDER BY id;

DELETE FROM idem.key;
