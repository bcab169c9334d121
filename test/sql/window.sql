-- idem_window: at most so many hits in any span of time.

\set VERBOSITY terse
CREATE ROLE regress_idem_window;
SELECT idem_grant('regress_idem_window');
DELETE FROM idem.window_hit;
SET ROLE regress_idem_window;

-- one in a span, unless told otherwise
SELECT * FROM idem_window('one', '1 h');
SELECT allowed, count, retry_after BETWEEN 3590 AND 3600 AS retry FROM idem_window('one', '1 h');
SELECT count(*) FILTER (WHERE w.allowed), max(w.count), min(retry_after) > 3590
FROM generate_series(1, 12) AS i, LATERAL idem_window(left('five' || i, 4), '1 h', max => 5) AS w;

-- a scope is part of the key, and the setting counts
SELECT * FROM idem_window('one', '1 h', 'other/tenant');
SET idem.scope = 'third';
SELECT * FROM idem_window('one', '1 h');
SELECT allowed FROM idem_window('one', '1 h', 'default');
RESET idem.scope;

-- two keys with one hash are two windows
SELECT hashtext('k11453') = hashtext('k305250') AS same_hash;
SELECT key, allowed FROM unnest('{k11453,k305250,k11453}'::text[]) AS key, idem_window(key, '1 h');

-- hits leave one by one: the window slides
RESET ROLE;
CREATE PROCEDURE pg_temp.age(which text, by interval) LANGUAGE sql AS
	'UPDATE idem.window_hit SET hits = ARRAY(SELECT h - by FROM unnest(hits) WITH ORDINALITY AS u (h, n) ORDER BY n) WHERE key = which';
CREATE FUNCTION pg_temp.kept(which text) RETURNS int LANGUAGE sql AS
	'SELECT cardinality(hits) FROM idem.window_hit WHERE key = which';
SELECT * FROM idem_window('slide', '1 h', max => 3);
CALL pg_temp.age('slide', '20 min');
SELECT * FROM idem_window('slide', '1 h', max => 3);
CALL pg_temp.age('slide', '20 min');
SELECT * FROM idem_window('slide', '1 h', max => 3);
SELECT allowed, count, retry_after BETWEEN 1190 AND 1200 AS first_leaves FROM idem_window('slide', '1 h', max => 3);
CALL pg_temp.age('slide', '20 min');
SELECT * FROM idem_window('slide', '1 h', max => 3);
SELECT allowed, count, retry_after BETWEEN 1190 AND 1200 AS second_leaves FROM idem_window('slide', '1 h', max => 3);
SELECT pg_temp.kept('slide');

-- another limit: what is lowered has to be made room for
SELECT allowed, count, retry_after BETWEEN 2390 AND 2400 AS two_leave FROM idem_window('slide', '1 h', max => 2);
SELECT * FROM idem_window('slide', '1 h', max => 4);
-- another span: each call looks back as far as it says, and keeps no more
SELECT allowed, count FROM idem_window('slide', '10 min', max => 2);
SELECT * FROM idem_window('slide', '10 min', max => 3);
SELECT pg_temp.kept('slide');
SELECT * FROM idem_window('slide', '2 h', max => 4);
-- the row stays for the longer of two spans, as long as the hit made in it is there
SELECT count FROM idem_window('spans', '1 h', max => 2);
SELECT count FROM idem_window('spans', '1 min', max => 2);
SELECT expires_at - hits[1] AS kept FROM idem.window_hit WHERE key = 'spans';
CALL pg_temp.age('spans', '2 min');
SELECT count FROM idem_window('spans', '1 min', max => 2);
SELECT expires_at - hits[1] AS kept FROM idem.window_hit WHERE key = 'spans';

-- part of a second counts as one
DO $$ BEGIN PERFORM idem_window('part', '1 min'); END $$;
CALL pg_temp.age('part', '58.05 s');
SELECT retry_after FROM idem_window('part', '1 min');
-- less than a second left is one
SELECT allowed FROM idem_window('brief', '1 s');
SELECT retry_after FROM idem_window('brief', '1 s');
-- spans of months and days are the calendar's
SELECT * FROM idem_window('month', '1 mon 1 day');
CALL pg_temp.age('month', '27 days');
SELECT allowed, retry_after > 0 FROM idem_window('month', '1 mon 1 day');
CALL pg_temp.age('month', '6 days');
SELECT * FROM idem_window('month', '1 mon 1 day');
-- where the clock skips hours a later hit can end first, and waits for the earlier: it
-- skipped twelve an hour ago, so a day from 14 hours ago ends in 10 hours, and one from
-- 12 1/2 hours ago has ended
SELECT count(*) FROM generate_series(1, 2), idem_window('skipped', '1 day', max => 2);
UPDATE idem.window_hit SET hits = ARRAY[now() - '14 h'::interval, now() - '12 h 30 min'::interval] WHERE key = 'skipped';
SELECT current_setting('TimeZone') AS zone, format('STD0DST-12,%s/%s,%s', day, to_char(at, 'HH24:MI:SS'), (day + 180) % 365) AS skips
FROM (SELECT at, extract(doy FROM at)::int - 1 AS day FROM (SELECT now() AT TIME ZONE 'UTC' - '1 h'::interval AS at) AS t) AS t \gset
SET TimeZone = :'skips';
SELECT hits[1] + '1 day'::interval > now() AS first_counts, hits[2] + '1 day'::interval <= now() AS second_ended FROM idem.window_hit WHERE key = 'skipped';
SELECT allowed, count, retry_after > 35000 AS first_leaves FROM idem_window('skipped', '1 day', max => 1);
SET TimeZone = :'zone';
-- a clock that goes back
CALL pg_temp.age('month', '-1 h');
SELECT * FROM idem_window('month', '1 mon 1 day', max => 2);
SELECT hits[1] = hits[2] FROM idem.window_hit WHERE key = 'month';
SELECT allowed, count FROM idem_window('month', '1 mon 1 day', max => 2);
-- and finds the window full: it is free again one span from now, no later
SELECT one.count, two.count FROM idem_window('ahead', '1 h', max => 2) AS one, idem_window('ahead', '1 h', max => 2) AS two;
CALL pg_temp.age('ahead', '-1 day');
SELECT allowed, count, retry_after BETWEEN 3590 AND 3600 AS one_span FROM idem_window('ahead', '1 h', max => 2);
SELECT hits[2] <= now(), expires_at BETWEEN now() AND now() + '1 h 1 min' FROM idem.window_hit WHERE key = 'ahead';
CALL pg_temp.age('ahead', '1 h');
SELECT allowed, count FROM idem_window('ahead', '1 h', max => 2);
-- the clock was ahead for a while: hits of the right time stay where they are
SELECT count FROM idem_window('mixed', '1 h', max => 2);
CALL pg_temp.age('mixed', '10 min');
SELECT count FROM idem_window('mixed', '1 h', max => 2);
UPDATE idem.window_hit SET hits[2] = now() + '30 min' WHERE key = 'mixed';
SELECT allowed FROM idem_window('mixed', '1 h', max => 2);
SELECT now() - hits[1] BETWEEN '10 min' AND '11 min' AS stays, now() - hits[2] < '1 min' AS moved FROM idem.window_hit WHERE key = 'mixed';

-- several that were ahead, by whatever each of them was, count as made now, in order
UPDATE idem.window_hit SET hits = ARRAY[now() - '1 min'::interval, now() + '10 min'::interval, now() + '55 min'::interval] WHERE key = 'mixed';
SELECT allowed, count FROM idem_window('mixed', '1 h', max => 4);
SELECT clock_timestamp() - hits[1] > '1 min' AS stays, count(*) FILTER (WHERE hits[n] <= clock_timestamp() AND hits[n] > clock_timestamp() - interval '50 s') AS now
FROM idem.window_hit, generate_series(1, 4) AS n WHERE key = 'mixed' GROUP BY hits;
-- and the row is not kept until the year that the clock showed
SELECT count FROM idem_window('years', '1 h', max => 2);
UPDATE idem.window_hit SET hits = ARRAY[now() + '10 years'::interval], expires_at = now() + '10 years 1 h' WHERE key = 'years';
SELECT count FROM idem_window('years', '1 h', max => 2);
SELECT expires_at < now() + '2 h' AS kept FROM idem.window_hit WHERE key = 'years';

-- and the row for as long as the longest span among them
SELECT count FROM idem_window('longer', '10 h');
UPDATE idem.window_hit SET hits = hits || now() + '50 min' WHERE key = 'longer';
SELECT count FROM idem_window('longer', '1 h', max => 5);
SELECT expires_at - hits[1] AS kept FROM idem.window_hit WHERE key = 'longer';

-- a hit that is rolled back does not count
BEGIN;
SELECT count FROM idem_window('undone', '1 h');
ROLLBACK;
BEGIN;
SELECT count FROM idem_window('undone', '1 h');
SAVEPOINT s;
SELECT count FROM idem_window('undone', '1 h', max => 9);
SELECT count FROM idem_window('undone', '1 h', max => 9);
ROLLBACK TO s;
SELECT count FROM idem_window('undone', '1 h', max => 9);
DO $$
BEGIN
	PERFORM idem_window('undone', '1 h', max => 9);
	RAISE division_by_zero;
EXCEPTION WHEN division_by_zero THEN
END $$;
SELECT count FROM idem_window('undone', '1 h', max => 9);
COMMIT;
SELECT allowed, count FROM idem_window('undone', '1 h', max => 3);

-- many in one transaction and one statement
SELECT count(*), max(w.count) FROM generate_series(1, 2000) AS i, LATERAL idem_window(left('many' || i, 4), '1 h', max => 2000) AS w WHERE allowed;
SELECT allowed, count FROM idem_window('many', '1 h', max => 2000);
-- what is refused writes nothing
BEGIN;
SELECT count(*) FROM generate_series(1, 100) AS i, LATERAL idem_window(left('many' || i, 4), '1 h', max => 2000);
SELECT pg_current_xact_id_if_assigned() IS NULL AS no_xid;
COMMIT;

-- a hit for each column, and one for all rows
SELECT allowed, count FROM (SELECT (idem_window('columns', '1 h', max => 2)).*) AS w;
SELECT allowed, count FROM idem_window('columns', '1 h', max => 3);
SELECT count(*), max(w.count) FROM generate_series(1, 5), LATERAL idem_window('rows', '1 h', max => 3) AS w WHERE w.allowed;

-- every isolation level, and what they call read-only
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT count FROM idem_window('levels', '1 h', max => 2);
COMMIT;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT count FROM idem_window('levels', '1 h', max => 2);
SELECT allowed, count FROM idem_window('levels', '1 h', max => 2);
COMMIT;
\set VERBOSITY sqlstate
BEGIN READ ONLY;
SELECT idem_window('levels', '1 h');
ROLLBACK;

-- arguments
SELECT idem_window(NULL, '1 h');
SELECT idem_window('', '1 h');
SELECT idem_window(repeat('x', 1025), '1 h');
SELECT idem_window('a', NULL);
SELECT idem_window('a', '0 s');
SELECT idem_window('a', '-1 s');
SELECT idem_window('a', '1001 years');
SELECT idem_window('a', '1 h', max => NULL);
SELECT idem_window('a', '1 h', max => 0);
SELECT idem_window('a', '1 h', max => -1);
SELECT idem_window('a', '1 h', max => 10001);
SELECT idem_window('a', '1 h', '');
SELECT idem_window('a', '1 h', 'idem.x');
SELECT idem_window('a', '1 h', wait => '-1 s');
SELECT allowed FROM idem_window('a', '1 h', max => 10000, wait => '0 s');
SELECT allowed FROM idem_window(repeat(U&'\+01F600', 256), '1000 years', NULL, 1, '1 s');
\set VERBOSITY default
SELECT idem_window('secret', '1 h', max => 10001);
-- untyped parameters
PREPARE untyped AS SELECT allowed, count FROM idem_window($1, $2, $3, $4, $5);
EXECUTE untyped('untyped', '1 h', NULL, '2', '1 s');
DEALLOCATE untyped;

-- scopes
\set VERBOSITY terse
INSERT INTO idem.scope (name, roles) VALUES ('mine', '{regress_idem_window}'), ('theirs', '{pg_monitor}');
SET ROLE regress_idem_window;
SELECT allowed FROM idem_window('a', '1 h', 'mine');
SELECT allowed FROM idem_window('a', '1 h', 'theirs');
SELECT * FROM idem.window_hit;
RESET ROLE;
DELETE FROM idem.scope WHERE name IN ('mine', 'theirs');

-- swept when the last hit has left
DELETE FROM idem.window_hit WHERE key NOT IN ('one', 'five');
UPDATE idem.window_hit SET expires_at = '2020-01-01' WHERE key = 'five';
SELECT removed FROM idem_sweep() WHERE kind = 'window_hit';
SELECT scope, key, cardinality(hits) FROM idem.window_hit ORDER BY scope;

-- a table that its owner altered
ALTER TABLE idem.window_hit ENABLE ROW LEVEL SECURITY;
SELECT idem_window('a', '1 h');
ALTER TABLE idem.window_hit DISABLE ROW LEVEL SECURITY;
UPDATE idem.window_hit SET hits = '{{2020-01-01}}' WHERE scope = 'third';
SELECT idem_window('one', '1 h', 'third');
UPDATE idem.window_hit SET hits = '{NULL}' WHERE scope = 'third';
SELECT idem_window('one', '1 h', 'third');
UPDATE idem.window_hit SET hits = '{}' WHERE scope = 'third';
SELECT * FROM idem_window('one', '1 h', 'third');
TRUNCATE idem.window_hit;
SELECT * FROM idem_window('one', '1 h', 'third');

-- after eight new keys in a row the next is taken for new, which changes nothing
SELECT count(*) FROM generate_series(1, 3) AS i, LATERAL idem_window(left('old' || i, 3), '1 h', max => 3);
\c -
\set VERBOSITY terse
SET ROLE regress_idem_window;
SELECT count(*), bool_and(w.allowed AND w.count = 1) FROM generate_series(1, 8) AS i, LATERAL idem_window('new' || i, '1 h') AS w;
SELECT allowed, count, retry_after > 3590 AS retry FROM idem_window('old', '1 h', max => 3);
SELECT count(*), bool_and(w.allowed AND w.count = 1) FROM generate_series(11, 19) AS i, LATERAL idem_window('new' || i, '1 h') AS w;
SELECT allowed, count FROM idem_window('new19', '1 h', max => 2);
SELECT allowed, count FROM idem_window('new20', '1 h', max => 2);
RESET ROLE;
SELECT count(*), count(DISTINCT key) FROM idem.window_hit WHERE key LIKE 'new%';

DELETE FROM idem.window_hit;
SELECT idem_revoke('regress_idem_window');
DROP ROLE regress_idem_window;
