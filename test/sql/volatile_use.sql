-- Where in a statement a verb may stand, and how often it is called.

\set VERBOSITY sqlstate
\pset null '(null)'

-- FROM: one call
BEGIN;
SELECT run, outcome, attempt FROM idem_claim('f');
SELECT * FROM (SELECT run, outcome FROM idem_claim('f2')) AS x, generate_series(1, 2);
ROLLBACK;
-- (idem_claim()).*: one call for each column; the row reads right all the same, since it
-- is the caller's own claim from the second call on
BEGIN;
SELECT (idem_claim('d')).*;
SELECT * FROM idem_unfinished();
SELECT idem_step('d', 's', '{"n": 1}');
SELECT (idem_claim('d')).*;
SELECT idem_complete('d', 'r', code => 200);
SELECT (c).run, (c).outcome, (c).attempt, (c).response, (c).code FROM (SELECT (idem_claim('d')).*) AS c;
SELECT (c).run AS run, (c).fence IS NOT NULL AS fenced, (c).attempt, (c).step
FROM (SELECT (idem_claim('l', lease => '1 h')).*) AS c;
ROLLBACK;
SELECT run, fence IS NOT NULL AS fenced, attempt FROM (SELECT (idem_claim('l', lease => '1 h')).*) AS c;
SELECT attempt, fence = (SELECT max(fence) FROM idem.key) AS one_fence FROM idem.key WHERE key = 'l';
SELECT (idem_lookup('l')).outcome, (idem_lookup('l')).attempt;

-- a prepared statement, with generic and custom plans
SET plan_cache_mode = force_generic_plan;
PREPARE claim (text) AS SELECT run, outcome, attempt FROM idem_claim($1, '{"a": 1}');
PREPARE complete (text, text) AS SELECT idem_complete($1, $2);
BEGIN;
EXECUTE claim ('p1');
EXECUTE claim ('p1');
EXECUTE claim ('p2');
EXECUTE complete ('p1', 'one');
EXECUTE claim ('p1');
EXECUTE complete ('p2', 'two');
COMMIT;
EXECUTE claim ('p1');
EXECUTE claim (NULL);
SET plan_cache_mode = force_custom_plan;
EXECUTE claim ('p2');
BEGIN;
EXECUTE claim ('p3');
ROLLBACK;
BEGIN;
EXECUTE claim ('p3');
ROLLBACK;
RESET plan_cache_mode;
DEALLOCATE ALL;

-- EXPLAIN claims nothing, EXPLAIN ANALYZE does
BEGIN;
DO $$ BEGIN EXECUTE 'EXPLAIN SELECT * FROM idem_claim(''x'')'; END $$;
SELECT * FROM idem_unfinished();
DO $$ BEGIN EXECUTE 'EXPLAIN ANALYZE SELECT * FROM idem_claim(''x'')'; END $$;
SELECT * FROM idem_unfinished();
ROLLBACK;

-- a cursor claims when it is fetched
BEGIN;
DECLARE c CURSOR FOR SELECT run, outcome FROM idem_claim('cursor');
SELECT * FROM idem_unfinished();
FETCH c;
SELECT * FROM idem_unfinished();
CLOSE c;
ROLLBACK;

-- in WHERE, in CASE, in a view, in a SQL function, in a subquery
BEGIN;
SELECT n FROM generate_series(1, 4) AS n WHERE (idem_claim('w' || n % 2)).run ORDER BY n;
SELECT n, CASE WHEN n = 2 THEN (idem_claim('c')).run END FROM generate_series(1, 3) AS n ORDER BY n;
CREATE TEMP VIEW claims AS SELECT run, outcome FROM idem_claim('v');
SELECT * FROM claims;
SELECT * FROM claims;
CREATE FUNCTION pg_temp.claims(k text) RETURNS text LANGUAGE sql AS $$ SELECT outcome FROM idem_claim(k) $$;
SELECT pg_temp.claims('q'), pg_temp.claims('q');
SELECT (SELECT outcome FROM idem_claim('u')), n FROM generate_series(1, 2) AS n;
SELECT scope, key FROM idem_unfinished() ORDER BY key;
ROLLBACK;

-- verbs among the rows of an UPDATE
CREATE TEMP TABLE account (id int PRIMARY KEY, balance int);
INSERT INTO account VALUES (1, 100), (2, 100);
UPDATE account SET balance = balance - 10 WHERE id = 1 AND idem_once('u1');
UPDATE account SET balance = balance - 10 WHERE id = 1 AND idem_once('u1');
SELECT * FROM account ORDER BY id;

-- a WITH that nobody reads is not asked, nor what stands behind a condition that is false;
-- among the rows of an UPDATE each asks for itself, and only the first is told "run"
WITH l AS (SELECT * FROM idem_lease_acquire('unread', '1 h')), b AS (SELECT idem_branch('use', 'unread', 'try')), w AS (SELECT * FROM idem_window('unread', '1 h'))
SELECT 1 AS one;
UPDATE account SET balance = 0 WHERE id < 0 AND idem_branch('use', 'unread', 'try') = 'run';
SELECT (SELECT count(*) FROM idem.lease WHERE name = 'unread') AS leases, (SELECT count(*) FROM idem.branch WHERE saga = 'use') AS branches, (SELECT count(*) FROM idem.window_hit WHERE key = 'unread') AS hits;
UPDATE account SET balance = balance - 1 WHERE idem_branch('use', 'rows', 'try') = 'run';
SELECT sum(balance) FROM account;
WITH b AS MATERIALIZED (SELECT idem_branch('use', 'asked once', 'try') AS verdict) UPDATE account SET balance = balance - 1 FROM b WHERE verdict = 'run';
SELECT sum(balance) FROM account;
DELETE FROM idem.branch WHERE saga = 'use';

-- one statement: claim in a CTE, work only where "run" at attempt 1, complete
-- outside, with the work aggregated so that it is called once
CREATE TEMP TABLE payment (id serial, account int, amount int);
PREPARE pay (text, int, int) AS
WITH claim AS MATERIALIZED (
	SELECT * FROM idem_claim($1, jsonb_build_object('account', $2, 'amount', $3))
), paid AS (
	INSERT INTO payment (account, amount) SELECT $2, $3 FROM claim WHERE run AND attempt = 1 RETURNING id
), work AS (
	SELECT count(*) AS n, max(id) AS id FROM paid
)
SELECT claim.outcome, claim.attempt, CASE WHEN work.n > 0 THEN idem_complete($1, 'payment ' || work.id, code => 201) END AS completed, claim.response, claim.code
FROM claim, work;
EXECUTE pay ('pay1', 1, 10);
EXECUTE pay ('pay1', 1, 10);
EXECUTE pay ('pay1', 1, 11);
EXECUTE pay ('pay2', 2, 20);
BEGIN;
EXECUTE pay ('pay3', 2, 30);
EXECUTE pay ('pay3', 2, 30);
ROLLBACK;
EXECUTE pay ('pay3', 2, 30);
-- of a later attempt it does no work, and COMMIT says that the claim is open
BEGIN;
SELECT run FROM idem_claim('pay4');
SELECT idem_retry('pay4', 'once before');
COMMIT;
EXECUTE pay ('pay4', 2, 40);
BEGIN;
EXECUTE pay ('pay4', 2, 40);
SELECT * FROM idem_unfinished();
SELECT idem_release('pay4');
COMMIT;
SELECT account, amount FROM payment ORDER BY id;
SELECT key, state, attempt FROM idem.key WHERE key LIKE 'pay%' ORDER BY key;
DEALLOCATE pay;
DELETE FROM idem.key;

\set VERBOSITY terse
-- one key claimed 20,000 times in one transaction, and a thousand times over
-- claim, step and retry
DO $$
DECLARE
	claim idem_claimed;
	n int := 0;
BEGIN
	FOR i IN 1..20000 LOOP
		claim := idem_claim('again');
		n := n + claim.run::int;
	END LOOP;
	RAISE INFO '% run, at the end %, attempt %', n, claim.outcome, claim.attempt;
	PERFORM idem_complete('again', 'x');
	FOR i IN 1..20000 LOOP
		claim := idem_claim('again');
		n := n + claim.run::int;
	END LOOP;
	RAISE INFO '% run, at the end %, attempt %', n, claim.outcome, claim.attempt;
END $$;
SELECT outcome, attempt, response FROM idem_lookup('again');
DO $$
DECLARE
	claim idem_claimed;
BEGIN
	FOR i IN 1..1000 LOOP
		claim := idem_claim('over');
		ASSERT claim.run AND claim.attempt = i;
		PERFORM idem_step('over', i::text);
		PERFORM idem_retry('over', i::text);
	END LOOP;
END $$;
SELECT outcome, attempt, step, response FROM idem_lookup('over');
-- takes of one key, each given back; the SQL way walks the versions that the
-- transaction has made so far, so fewer of them there
DO $$
BEGIN
	FOR i IN 1..CASE current_setting('idem.access') WHEN 'sql' THEN 1000 ELSE 20000 END LOOP
		ASSERT (idem_claim('taken')).run;
		PERFORM idem_release('taken');
	END LOOP;
END $$;
SELECT outcome, attempt FROM idem_lookup('taken');
-- many keys in one transaction
DO $$
BEGIN
	FOR i IN 1..5000 LOOP
		PERFORM idem_claim('many' || i);
	END LOOP;
	FOR i IN 1..5000 LOOP
		PERFORM idem_complete('many' || i);
	END LOOP;
END $$;
SELECT count(*) FROM idem.key WHERE key LIKE 'many%' AND state = 'completed';
DELETE FROM idem.key;
