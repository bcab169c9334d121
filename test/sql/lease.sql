-- Leases: acquire, renew, release, guard, break, and what each is told.

\set VERBOSITY sqlstate
\pset null '(null)'
SET client_min_messages = warning;
CREATE ROLE regress_idem_lease;
CREATE ROLE regress_idem_ops;
SELECT idem_grant('regress_idem_lease'), idem_grant('regress_idem_ops', 'operator');
SET ROLE regress_idem_lease;

SELECT run, outcome, fence > 0 AS fence, until > clock_timestamp() AS until, retry_after FROM idem_lease_acquire('job', '1 h');
SELECT run, outcome, fence, until, retry_after BETWEEN 3590 AND 3600 AS retry_after FROM idem_lease_acquire('job', '1 h');
SELECT * FROM idem_lease_acquire('job', '1 h', owner => 'b') \gset held_
SELECT :'held_outcome';
RESET ROLE;
SELECT fence, fence - 1 AS other FROM idem.lease WHERE name = 'job' \gset
SELECT name, owner, fence = :fence AS fence, since <= clock_timestamp() AS since, until - since AS lease FROM idem.lease_held;
SET ROLE regress_idem_lease;
SELECT outcome, until > clock_timestamp() + interval '119 min' AS until FROM idem_lease_renew('job', '2 h', :fence);
SELECT * FROM idem_lease_renew('job', '2 h', :other);
SELECT idem_lease_guard('job', :fence);
SELECT idem_lease_guard('job', :other);
SELECT idem_lease_release('job', :other);
SELECT idem_lease_release('job', :fence);
-- repeated: it was released when it was
BEGIN;
SELECT idem_lease_release('job', :fence);
SELECT pg_current_xact_id_if_assigned() IS NULL AS nothing_written;
COMMIT;
-- a released lease is nobody's
SELECT * FROM idem_lease_renew('job', '2 h', :fence);
SELECT idem_lease_guard('job', :fence);
-- the next holder has a greater fence
SELECT run, outcome, fence > :fence AS greater FROM idem_lease_acquire('job', '1 h');
SELECT idem_lease_release('job', :fence);

-- what was never there
SELECT * FROM idem_lease_renew('nothing', '1 h', 1);
SELECT idem_lease_release('nothing', 1);
SELECT idem_lease_guard('nothing', 1);

-- the same owner gets its own lease back, with at least as long to go
SELECT fence, until FROM idem_lease_acquire('own', '1 h', owner => 'a') \gset own_
SELECT run, outcome, fence = :own_fence AS same, until > :'own_until' AS later FROM idem_lease_acquire('own', '2 h', owner => 'a');
SELECT run, outcome, fence = :own_fence AS same, until > clock_timestamp() + interval '119 min' AS kept FROM idem_lease_acquire('own', '1 s', owner => 'a');
SELECT outcome FROM idem_lease_acquire('own', '1 h', owner => 'A');
SELECT outcome FROM idem_lease_acquire('own', '1 h');
SELECT outcome FROM idem_lease_acquire('own', '1 h', NULL, 'a');
SELECT (idem_lease_acquire('own', '3 h', owner => 'a')).fence = :own_fence AS same;
SELECT count(DISTINCT fence) FROM (SELECT (idem_lease_acquire('star', '1 h', owner => 'a')).*) AS s;
-- (...).* calls once for each column: without an owner all but the first find it held
SELECT run, outcome, fence FROM (SELECT (idem_lease_acquire('stars', '1 h')).*) AS s;
-- a lease without owner is not found again by NULL
SELECT outcome FROM idem_lease_acquire('nobody', '1 h');
SELECT outcome FROM idem_lease_acquire('nobody', '1 h', owner => NULL);
-- released, it is nobody's, also where the clock was set back since, and is taken afresh
SELECT idem_lease_release('own', :own_fence);
RESET ROLE;
SELECT owner FROM idem.lease WHERE name = 'own';
UPDATE idem.lease SET until = clock_timestamp() + interval '1 h' WHERE name = 'own';
SET ROLE regress_idem_lease;
SELECT idem_lease_guard('own', :own_fence);
SELECT run, fence > :own_fence AS greater FROM idem_lease_acquire('own', '1 h', owner => 'a');

-- run out: still its fence's until it is taken
SELECT fence FROM idem_lease_acquire('short', '1 us') \gset s1_
SELECT idem_lease_guard('short', :s1_fence);
SELECT outcome FROM idem_lease_renew('short', '1 us', :s1_fence);
SELECT outcome FROM idem_lease_renew('short', '1 h', :s1_fence);
SELECT idem_lease_guard('short', :s1_fence);
-- renewing may shorten it
SELECT outcome FROM idem_lease_renew('short', '1 us', :s1_fence);
SELECT run, outcome, fence > :s1_fence AS greater, fence FROM idem_lease_acquire('short', '1 h') \gset s2_
SELECT :'s2_run', :'s2_outcome', :'s2_greater';
SELECT outcome FROM idem_lease_renew('short', '1 h', :s1_fence);
SELECT idem_lease_release('short', :s1_fence);
SELECT idem_lease_guard('short', :s1_fence);
SELECT idem_lease_guard('short', :s2_fence);
SELECT fence FROM idem_lease_acquire('late', '1 us') \gset l_
SELECT idem_lease_release('late', :l_fence);
-- the same owner after its lease ran out: a new grant
SELECT fence FROM idem_lease_acquire('again', '1 us', owner => 'a') \gset g_
SELECT run, fence > :g_fence AS greater FROM idem_lease_acquire('again', '1 h', owner => 'a');

-- rolled back, as if never acquired; fences are not given back
BEGIN;
SELECT run, fence FROM idem_lease_acquire('undone', '1 h') \gset u_
SELECT idem_lease_guard('undone', :u_fence);
SELECT outcome FROM idem_lease_acquire('undone', '1 h');
SAVEPOINT a;
SELECT idem_lease_release('undone', :u_fence);
SELECT run FROM idem_lease_acquire('undone', '1 h');
ROLLBACK TO a;
SELECT idem_lease_guard('undone', :u_fence);
ROLLBACK;
SELECT idem_lease_release('undone', :u_fence);
SELECT run, fence > :u_fence AS greater FROM idem_lease_acquire('undone', '1 h');
BEGIN;
SAVEPOINT a;
SELECT run FROM idem_lease_acquire('sub', '1 h');
ROLLBACK TO a;
SELECT run FROM idem_lease_acquire('sub', '1 h');
COMMIT;
SELECT outcome FROM idem_lease_acquire('sub', '1 h');

-- acquire, guard and release in one statement
SELECT l.run, idem_lease_guard('one', l.fence), idem_lease_release('one', l.fence), idem_lease_release('one', l.fence)
FROM idem_lease_acquire('one', '1 h') AS l;

-- verdicts leave the transaction whole, an error does not
BEGIN;
SELECT outcome FROM idem_lease_acquire('sub', '1 h');
SELECT outcome FROM idem_lease_renew('sub', '1 h', 0);
SELECT idem_lease_release('sub', 0);
SELECT 1 AS goes_on;
COMMIT;

-- a wait that runs out
SELECT outcome, retry_after > 3000 AS retry_after FROM idem_lease_acquire('sub', '1 h', '30 ms');
-- and one that is as long as the lease: taken when it has run out
SELECT outcome FROM idem_lease_acquire('soon', '50 ms');
SELECT run, outcome FROM idem_lease_acquire('soon', '1 h', '1 min');
SELECT outcome FROM idem_lease_acquire('soon2', '50 ms');
SELECT run, outcome FROM idem_lease_acquire('soon2', '1 h', NULL);
SET statement_timeout = '100ms';
SELECT outcome FROM idem_lease_acquire('sub', '1 h', NULL);
SELECT outcome FROM idem_lease_acquire('sub', '1 h', '1 min');
RESET statement_timeout;

-- names of any form
SELECT count(*) AS acquired FROM unnest(ARRAY['''', '"', '%', ' ', E'\n', 'é', E'e\u0301', 'K', 'k', repeat('x', 1024)]) AS name, idem_lease_acquire(name, '1 h') AS l WHERE l.run;
SELECT outcome FROM idem_lease_acquire(E'\n', '1 h');

-- two names with one hash are two leases
SELECT hashtext('k11453') = hashtext('k305250') AS same_hash;
SELECT outcome, fence FROM idem_lease_acquire('k11453', '1 h') \gset h1_
SELECT outcome, fence <> :h1_fence AS other, fence FROM idem_lease_acquire('k305250', '1 h') \gset h2_
SELECT :'h1_outcome', :'h2_outcome', :'h2_other', idem_lease_guard('k11453', :h1_fence), idem_lease_guard('k305250', :h2_fence);

-- arguments
SELECT * FROM idem_lease_acquire(NULL, '1 h');
SELECT * FROM idem_lease_acquire('', '1 h');
SELECT * FROM idem_lease_acquire(repeat('x', 1025), '1 h');
SELECT * FROM idem_lease_acquire('a', NULL);
SELECT * FROM idem_lease_acquire('a', '0 s');
SELECT * FROM idem_lease_acquire('a', '-1 s');
SELECT * FROM idem_lease_acquire('a', '1001 years');
SELECT * FROM idem_lease_acquire('a', '1 h', '-1 s');
SELECT * FROM idem_lease_acquire('a', '1 h', '1001 years');
SELECT * FROM idem_lease_acquire('a', '1 h', owner => '');
SELECT * FROM idem_lease_acquire('a', '1 h', owner => repeat('x', 1025));
SELECT * FROM idem_lease_renew(NULL, '1 h', 1);
SELECT * FROM idem_lease_renew('a', NULL, 1);
SELECT * FROM idem_lease_renew('a', '0 s', 1);
SELECT * FROM idem_lease_renew('a', '1 h', NULL);
SELECT idem_lease_release(NULL, 1);
SELECT idem_lease_release('a', NULL);
SELECT idem_lease_guard(NULL, 1);
SELECT idem_lease_guard('a', NULL);
SELECT outcome FROM idem_lease_acquire('long', '1000 years', owner => repeat('o', 1024));
-- as drivers send them
PREPARE p AS SELECT outcome FROM idem_lease_acquire($1, $2, $3, $4);
EXECUTE p('driver', '1 h', NULL, 'd');
EXECUTE p('driver', '1 h', '0 s', 'e');
DEALLOCATE p;

-- read only
BEGIN READ ONLY;
SELECT * FROM idem_lease_acquire('ro', '1 h');
ROLLBACK;
BEGIN READ ONLY;
SELECT * FROM idem_lease_renew('ro', '1 h', 1);
ROLLBACK;
BEGIN READ ONLY;
SELECT idem_lease_release('ro', 1);
ROLLBACK;
BEGIN READ ONLY;
SELECT idem_lease_guard('sub', 1);
ROLLBACK;

-- what a stranger is told
\set VERBOSITY default
SELECT idem_lease_guard('sub', 0);
SELECT idem_lease_guard('nothing', 0);
\set VERBOSITY sqlstate

-- operators
SELECT idem_lease_break('sub');
SELECT count(*) FROM idem.lease_held;
RESET ROLE;
SET ROLE regress_idem_ops;
SELECT count(*) > 5 AS held, count(*) = count(until) AS all_until FROM idem.lease_held;
SELECT count(*) FROM idem.lease;
SELECT fence FROM idem.lease_held WHERE name = 'sub' \gset b_
SELECT idem_lease_break('sub');
SELECT idem_lease_break('sub');
SELECT idem_lease_break('nothing');
SELECT idem_lease_break(NULL);
SELECT idem_lease_break('');
SELECT count(*) FROM idem.lease_held WHERE name = 'sub';
SELECT outcome FROM idem_lease_renew('sub', '1 h', :b_fence);
SELECT idem_lease_release('sub', :b_fence);
SELECT idem_lease_guard('sub', :b_fence);
SELECT run, fence > :b_fence + 1 AS greater FROM idem_lease_acquire('sub', '1 h');
-- one that ran out is broken too: its holder is told
SELECT fence FROM idem_lease_acquire('out', '1 us') \gset o_
SELECT idem_lease_break('out');
SELECT outcome FROM idem_lease_renew('out', '1 h', :o_fence);
BEGIN READ ONLY;
SELECT idem_lease_break('sub');
ROLLBACK;
RESET ROLE;

-- above READ COMMITTED, what the transaction itself did and rolled back to a savepoint does
-- not stand in its way
SELECT fence FROM idem_lease_acquire('saved', '1 us') \gset v_
BEGIN ISOLATION LEVEL REPEATABLE READ;
SAVEPOINT a;
SELECT outcome FROM idem_lease_renew('saved', '1 h', :v_fence);
SELECT idem_lease_guard('saved', :v_fence);
ROLLBACK TO a;
SELECT idem_lease_release('saved', :v_fence);
ROLLBACK TO a;
SELECT idem_lease_break('saved');
ROLLBACK TO a;
SELECT outcome FROM idem_lease_acquire('saved', '1 us');
ROLLBACK TO a;
SELECT outcome FROM idem_lease_acquire('saved', '1 us');
SAVEPOINT b;
SELECT outcome FROM idem_lease_acquire('saved', '1 us');
ROLLBACK TO b;
SELECT outcome FROM idem_lease_acquire('saved', '1 us');
RELEASE b;
SAVEPOINT c;
SELECT outcome FROM idem_lease_acquire('saved', '1 us');
ROLLBACK TO c;
SELECT outcome FROM idem_lease_acquire('saved', '1 us');
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT idem_lease_break('saved');
SELECT outcome, fence FROM idem_lease_acquire('saved', '1 us') \gset v_
SAVEPOINT a;
SELECT outcome FROM idem_lease_renew('saved', '1 h', :v_fence);
SELECT idem_lease_guard('saved', :v_fence);
SELECT idem_lease_release('saved', :v_fence);
SELECT outcome FROM idem_lease_acquire('saved', '1 us');
ROLLBACK TO a;
SELECT outcome FROM idem_lease_acquire('saved', '1 us');
COMMIT;

-- renew and release never insert
SELECT fence FROM idem_lease_acquire('deleted', '1 h') \gset d_
DELETE FROM idem.lease WHERE name = 'deleted';
SELECT outcome FROM idem_lease_renew('deleted', '1 h', :d_fence);
SELECT idem_lease_release('deleted', :d_fence);
SELECT idem_lease_guard('deleted', :d_fence);
SELECT run, fence > :d_fence AS greater, fence FROM idem_lease_acquire('deleted', '1 h') \gset d2_
SELECT :'d2_run', :'d2_greater';
TRUNCATE idem.lease;
SELECT outcome FROM idem_lease_renew('deleted', '1 h', :d2_fence);
SELECT count(*) FROM idem.lease;

-- swept long after their end, fences going on
SELECT fence FROM idem_lease_acquire('live', '1 h') \gset live_
SELECT fence FROM idem_lease_acquire('run out', '1 h') \gset out_
SELECT fence FROM idem_lease_acquire('run out long ago', '1 h') \gset ago_
SELECT idem_lease_release('released', fence) FROM idem_lease_acquire('released', '1 h');
SELECT idem_lease_release('released long ago', fence) FROM idem_lease_acquire('released long ago', '1 h');
UPDATE idem.lease SET until = clock_timestamp() - interval '23 h 59 min' WHERE name = 'run out';
UPDATE idem.lease SET until = clock_timestamp() - interval '24 h' WHERE name = 'run out long ago';
UPDATE idem.lease SET until = clock_timestamp() - interval '59 min' WHERE name = 'released';
UPDATE idem.lease SET until = clock_timestamp() - interval '1 h' WHERE name = 'released long ago';
SELECT removed FROM idem_sweep() WHERE kind = 'lease';
SELECT name FROM idem.lease ORDER BY name;
SELECT outcome FROM idem_lease_renew('run out', '1 h', :out_fence);
-- an hour after its release, not after its end
UPDATE idem.lease SET until = clock_timestamp() - interval '2 h' WHERE name = 'run out';
SELECT idem_lease_release('run out', :out_fence);
SELECT removed FROM idem_sweep() WHERE kind = 'lease';
SELECT idem_lease_release('run out', :out_fence);
SELECT outcome FROM idem_lease_renew('run out long ago', '1 h', :ago_fence);
SELECT run, fence > :ago_fence AS greater FROM idem_lease_acquire('run out long ago', '1 h');

-- 100,000 in one transaction
BEGIN;
SELECT count(*) FROM generate_series(1, 100000) AS i, idem_lease_acquire('many' || i, '1 h') AS l WHERE l.run;
SELECT count(*) FROM idem.lease_held WHERE name LIKE 'many%';
COMMIT;
SELECT count(*) FROM idem.lease AS k, idem_lease_release(k.name, k.fence) AS r WHERE k.name LIKE 'many%' AND r = 'released';
TRUNCATE idem.lease;
-- and one 20,000 times in one transaction
BEGIN;
SELECT count(*) FROM generate_series(1, 20000) AS i, idem_lease_acquire('again', '1 h' + i * interval '1 us') AS l, idem_lease_release('again', l.fence) AS r WHERE r = 'released';
COMMIT;
SELECT count(*) FROM idem.lease;

-- renewals are HOT (one that may have slept is written twice)
TRUNCATE idem.lease;
BEGIN;
SELECT fence FROM idem_lease_acquire('hot', '1 h') \gset hot_
SELECT pg_stat_get_xact_tuples_updated('idem.lease'::regclass) AS n,
	pg_stat_get_xact_tuples_hot_updated('idem.lease'::regclass) AS hot \gset before_
SELECT count(*) FROM generate_series(1, 40) AS i, idem_lease_renew('hot', '1 h' + i * interval '1 us', :hot_fence) AS l WHERE l.outcome = 'renewed';
SELECT n >= 40 AS all_of_them, n = hot AS all_hot
FROM (SELECT pg_stat_get_xact_tuples_updated('idem.lease'::regclass) - :before_n AS n,
	pg_stat_get_xact_tuples_hot_updated('idem.lease'::regclass) - :before_hot AS hot) AS updates;
COMMIT;

-- the table as it must be
BEGIN;
CREATE TRIGGER t BEFORE UPDATE ON idem.lease FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger();
SELECT outcome FROM idem_lease_acquire('again', '1 h');
ROLLBACK;
BEGIN;
ALTER TABLE idem.lease ENABLE ROW LEVEL SECURITY;
SELECT outcome FROM idem_lease_acquire('again', '1 h');
ROLLBACK;
BEGIN;
ALTER TABLE idem.lease DROP CONSTRAINT lease_pkey;
SELECT outcome FROM idem_lease_acquire('again', '1 h');
ROLLBACK;
SELECT outcome FROM idem_lease_acquire('again', '1 h');
-- a column that was added stays in the way
BEGIN;
ALTER TABLE idem.lease ADD COLUMN more int;
ALTER TABLE idem.lease DROP COLUMN more;
SELECT outcome FROM idem_lease_acquire('again', '1 h');
ROLLBACK;
BEGIN;
CREATE UNIQUE INDEX regress_idem_owner ON idem.lease (owner);
SELECT outcome FROM idem_lease_acquire('another', '1 h', owner => 'me');
ROLLBACK;

-- a sequence that goes back does not give a smaller fence
BEGIN;
SELECT fence AS former FROM idem_lease_acquire('back', '1 microsecond') \gset
SELECT setval('idem.fence', :former - 20) IS NOT NULL AS back;
SELECT outcome, fence > :former AS greater FROM idem_lease_acquire('back', '1 microsecond');
ROLLBACK;
BEGIN;
SELECT fence AS former FROM idem_lease_acquire('back', '1 h') \gset
SELECT setval('idem.fence', :former - 20) IS NOT NULL AS back;
SELECT idem_lease_break('back');
SELECT setval('idem.fence', :former - 20) IS NOT NULL AS back;
SELECT outcome, fence > :former AS greater FROM idem_lease_acquire('back', '1 h');
ROLLBACK;
SELECT fence AS former FROM idem_claim('back', lease => '1 microsecond') \gset
SELECT setval('idem.fence', :former - 20) IS NOT NULL AS back;
SELECT outcome, fence > :former AS greater FROM idem_claim('back', lease => '1 microsecond');
SELECT idem_forget('back', force => true);
SELECT idem_fence_advance(:former + 100) > :former AS on;

-- the longest names do not look changed to a renewal, so it does not wait
SELECT string_agg(md5(i::text), '') AS long FROM generate_series(1, 32) AS i \gset
SELECT fence FROM idem_lease_acquire(:'long', '1 h', owner => :'long') \gset
BEGIN;
SELECT attname, attstorage FROM pg_attribute
WHERE attrelid = 'idem.lease'::regclass AND attname = 'name';
SELECT outcome FROM idem_lease_renew(:'long', '2 h', :fence);
ROLLBACK;
SELECT idem_lease_release(:'long', :fence);

-- where a session saw a row last: it was swept and the place is another's, it is in
-- another page, or the table is shorter or another
SELECT fence FROM idem_lease_acquire('place', '1 h', owner => 'a') \gset place_
DELETE FROM idem.lease;
VACUUM idem.lease;
INSERT INTO idem.lease (name, owner, fence, since, until, released) VALUES ('other', 'a', :place_fence, now(), now() + '1 h', false);
SELECT idem_lease_release('place', :place_fence), fence = :place_fence AS others FROM idem.lease;
SELECT run, fence > :place_fence AS greater, fence FROM idem_lease_acquire('place', '1 h', owner => 'a') \gset place_
INSERT INTO idem.lease (name, fence, since, until, released) SELECT 'fill' || i, 0, now(), now(), true FROM generate_series(1, 1000) AS i;
DELETE FROM idem.lease WHERE name = 'place';
VACUUM (TRUNCATE false) idem.lease;
INSERT INTO idem.lease (name, owner, fence, since, until, released) VALUES ('place', 'a', :place_fence, now(), now() + '1 h', false);
SELECT idem_lease_guard('place', :place_fence);
DELETE FROM idem.lease;
VACUUM idem.lease;
SELECT idem_lease_release('place', :place_fence);
SELECT run FROM idem_lease_acquire('place', '1 h');
VACUUM FULL idem.lease;
SELECT run FROM idem_lease_acquire('place', '1 h');
TRUNCATE idem.lease;
SELECT run FROM idem_lease_acquire('place', '1 h');
SELECT outcome FROM idem_lease_acquire('again', '1 h');

-- hostile path, objects and settings
CREATE SCHEMA regress_idem_evil;
CREATE FUNCTION regress_idem_evil.eq(text, text) RETURNS bool LANGUAGE sql AS 'SELECT false';
CREATE OPERATOR regress_idem_evil.= (LEFTARG = text, RIGHTARG = text, FUNCTION = regress_idem_evil.eq);
CREATE TEMP TABLE lease (name text);
SET search_path = regress_idem_evil, pg_temp, public, pg_catalog;
SET enable_indexscan = off;
SELECT outcome FROM idem_lease_acquire('again', '1 h');
RESET enable_indexscan;
RESET search_path;
DROP SCHEMA regress_idem_evil CASCADE;
SET default_transaction_isolation = serializable;
SELECT outcome FROM idem_lease_acquire('serializable', '1 h');
RESET default_transaction_isolation;

TRUNCATE idem.lease;
SELECT idem_revoke('regress_idem_lease'), idem_revoke('regress_idem_ops');
DROP TABLE pg_temp.lease;
DROP ROLE regress_idem_lease, regress_idem_ops;
