-- Claims and subtransactions: ROLLBACK TO, RELEASE, EXCEPTION blocks.

\set VERBOSITY sqlstate
\pset null '(null)'

-- ROLLBACK TO frees the key at once, and counts no attempt
BEGIN;
SAVEPOINT a;
SELECT outcome, attempt FROM idem_claim('k');
ROLLBACK TO a;
SELECT * FROM idem_unfinished();
SELECT count(*) FROM idem_lookup('k');
SELECT outcome, attempt FROM idem_claim('k');
SELECT * FROM idem_unfinished();
SELECT idem_complete('k', '1');
COMMIT;
SELECT outcome, attempt, response FROM idem_lookup('k');

-- claimed in a subtransaction that rolls back: a verb finds nothing of ours
BEGIN;
SAVEPOINT a;
SELECT run FROM idem_claim('k1');
ROLLBACK TO a;
SELECT idem_complete('k1');
ROLLBACK;
BEGIN;
SAVEPOINT a;
SELECT run FROM idem_claim('k1');
ROLLBACK TO a;
COMMIT;

-- RELEASE keeps it
BEGIN;
SAVEPOINT a;
SELECT run FROM idem_claim('k2');
RELEASE a;
SELECT * FROM idem_unfinished();
SELECT outcome FROM idem_claim('k2');
SELECT idem_complete('k2', '2');
COMMIT;
SELECT outcome, response FROM idem_lookup('k2');
BEGIN;
SAVEPOINT a;
SELECT run FROM idem_claim('k3');
RELEASE a;
COMMIT;
SELECT count(*) FROM idem_lookup('k3');

-- claimed outside, completed inside, rolled back: open business again
BEGIN;
SELECT run FROM idem_claim('k4');
SAVEPOINT a;
SELECT idem_complete('k4', 'undone');
SELECT * FROM idem_unfinished();
ROLLBACK TO a;
SELECT * FROM idem_unfinished();
SELECT outcome FROM idem_claim('k4');
SAVEPOINT a;
SELECT idem_step('k4', 'undone');
ROLLBACK TO a;
SELECT outcome, step FROM idem_claim('k4');
SELECT idem_fail('k4', 'final');
COMMIT;
SELECT outcome, step, response FROM idem_lookup('k4');
BEGIN;
SELECT run FROM idem_claim('k5');
SAVEPOINT a;
SELECT idem_complete('k5', 'undone');
ROLLBACK TO a;
COMMIT;
SELECT count(*) FROM idem_lookup('k5');

-- claimed in one subtransaction, completed in another which rolls back
BEGIN;
SAVEPOINT a;
SELECT run FROM idem_claim('k6');
RELEASE a;
SAVEPOINT b;
SELECT idem_complete('k6', 'undone');
ROLLBACK TO b;
SELECT * FROM idem_unfinished();
SELECT idem_complete('k6', 'done');
COMMIT;
SELECT outcome, attempt, response FROM idem_lookup('k6');

-- retried inside and rolled back; retried, claimed again inside, rolled back
BEGIN;
SELECT run FROM idem_claim('k7');
SAVEPOINT a;
SELECT idem_retry('k7', 'undone');
SELECT run, attempt FROM idem_claim('k7');
SELECT idem_retry('k7', 'undone too');
ROLLBACK TO a;
SELECT outcome, attempt FROM idem_claim('k7');
SELECT idem_retry('k7', 'kept');
SAVEPOINT b;
SELECT run, attempt FROM idem_claim('k7');
ROLLBACK TO b;
SELECT * FROM idem_unfinished();
SELECT outcome, attempt, response FROM idem_lookup('k7');
COMMIT;
SELECT outcome, attempt, response FROM idem_lookup('k7');

-- release inside, rolled back
BEGIN;
SELECT run FROM idem_claim('k8');
SAVEPOINT a;
SELECT idem_release('k8');
ROLLBACK TO a;
COMMIT;
-- release of a claim, kept by RELEASE of the savepoint
BEGIN;
SELECT run FROM idem_claim('k8');
SAVEPOINT a;
SELECT idem_release('k8');
RELEASE a;
COMMIT;
SELECT outcome, attempt FROM idem_lookup('k8');

-- nested: each level undoes its own
BEGIN;
SELECT run FROM idem_claim('n0');
SAVEPOINT a;
SELECT run FROM idem_claim('n1');
SELECT idem_step('n0', 'a');
SAVEPOINT b;
SELECT run FROM idem_claim('n2');
SELECT idem_step('n0', 'b');
SELECT idem_complete('n1', 'in b');
SAVEPOINT c;
SELECT idem_complete('n2', 'in c');
SELECT idem_complete('n0', 'in c');
SELECT * FROM idem_unfinished() ORDER BY key;
ROLLBACK TO c;
SELECT * FROM idem_unfinished() ORDER BY key;
RELEASE c;
SELECT idem_complete('n2', 'in b');
RELEASE b;
SELECT * FROM idem_unfinished() ORDER BY key;
SELECT key, l.outcome, l.step, l.response FROM unnest('{n0,n1,n2}'::text[]) AS key, idem_lookup(key) AS l;
ROLLBACK TO a;
SELECT * FROM idem_unfinished() ORDER BY key;
SELECT key, l.outcome, l.step, l.response FROM unnest('{n0,n1,n2}'::text[]) AS key, idem_lookup(key) AS l;
SELECT outcome FROM idem_claim('n1');
SAVEPOINT d;
SAVEPOINT e;
SELECT idem_complete('n1', 'in e');
RELEASE e;
ROLLBACK TO d;
SELECT * FROM idem_unfinished() ORDER BY key;
SAVEPOINT d2;
SAVEPOINT e2;
SELECT idem_complete('n1', 'in e2');
RELEASE e2;
SELECT idem_complete('n0', 'in d2');
RELEASE d2;
SELECT * FROM idem_unfinished() ORDER BY key;
COMMIT;
SELECT key, l.outcome, l.step, l.response FROM unnest('{n0,n1,n2}'::text[]) AS key, idem_lookup(key) AS l;

-- the same savepoint name, and going back to it repeatedly
BEGIN;
SAVEPOINT a;
SELECT run FROM idem_claim('s1');
SAVEPOINT a;
SELECT idem_complete('s1', 'x');
ROLLBACK TO a;
ROLLBACK TO a;
SELECT * FROM idem_unfinished();
SELECT idem_complete('s1', 'y');
RELEASE a;
ROLLBACK TO a;
SELECT * FROM idem_unfinished();
SELECT run, attempt FROM idem_claim('s1');
ROLLBACK TO a;
SELECT run, attempt FROM idem_claim('s1');
SELECT idem_complete('s1', 'z');
COMMIT;
SELECT outcome, attempt, response FROM idem_lookup('s1');

-- lease and session claims are undone alike
BEGIN;
SAVEPOINT a;
SELECT run FROM idem_claim('l1', lease => '1 h');
SELECT run FROM idem_claim('l2', hold => 'session');
ROLLBACK TO a;
SELECT count(*) FROM idem_lookup('l1');
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid();
SELECT outcome, attempt FROM idem_claim('l1', lease => '1 h');
SELECT outcome, attempt FROM idem_claim('l2', hold => 'session');
SAVEPOINT b;
SELECT idem_complete('l2', 'undone');
SELECT idem_complete('l1', 'undone');
ROLLBACK TO b;
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid();
SELECT idem_step('l1', 'ours');
COMMIT;
SELECT outcome, step FROM idem_lookup('l1');
SELECT idem_complete('l2', 'done');
SELECT outcome, response FROM idem_lookup('l2');
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid();

-- plpgsql: an EXCEPTION block is a subtransaction
CREATE FUNCTION pg_temp.work(k text, fails boolean) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	claim idem_claimed;
BEGIN
	claim := idem_claim(k);
	IF NOT claim.run THEN
		RETURN claim.outcome;
	END IF;
	IF fails THEN
		PERFORM 1 / 0;
	END IF;
	PERFORM idem_complete(k, 'worked');
	RETURN 'ran at attempt ' || claim.attempt;
EXCEPTION WHEN division_by_zero THEN
	RETURN 'division by zero';
END $$;
SELECT pg_temp.work('p1', true);
SELECT pg_temp.work('p1', true);
SELECT pg_temp.work('p1', false);
SELECT pg_temp.work('p1', false);
-- caught outside of the claim, so that the failure is recorded
CREATE FUNCTION pg_temp.record(k text, fails boolean) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	claim idem_claimed;
BEGIN
	SELECT * INTO claim FROM idem_claim(k);
	IF NOT claim.run THEN
		RETURN claim.outcome || coalesce(': ' || claim.response, '');
	END IF;
	BEGIN
		IF fails THEN
			PERFORM idem_complete(k, 'too early');
			PERFORM 1 / 0;
		END IF;
		PERFORM idem_complete(k, 'worked');
	EXCEPTION WHEN division_by_zero THEN
		PERFORM idem_retry(k, SQLERRM);
	END;
	RETURN 'ran at attempt ' || claim.attempt;
END $$;
SELECT pg_temp.record('p2', true);
SELECT outcome, attempt, response FROM idem_lookup('p2');
SELECT pg_temp.record('p2', true);
SELECT pg_temp.record('p2', false);
SELECT pg_temp.record('p2', false);
-- an error of ours in a block, and one that leaves the function
DO $$
BEGIN
	BEGIN
		PERFORM idem_complete('p3');
	EXCEPTION WHEN SQLSTATE 'ID409' THEN
		RAISE INFO 'not ours';
	END;
	IF (idem_claim('p3')).run THEN
		PERFORM idem_complete('p3', 'ours');
	END IF;
END $$;
SELECT outcome, response FROM idem_lookup('p3');
DO $$
BEGIN
	PERFORM idem_claim('p4');
	PERFORM idem_complete('p4');
	RAISE EXCEPTION 'after all';
END $$;
SELECT count(*) FROM idem_lookup('p4');
-- a thousand blocks, every other one undone
DO $$
BEGIN
	FOR i IN 1..1000 LOOP
		BEGIN
			PERFORM idem_claim('many' || i);
			PERFORM idem_complete('many' || i, i::text);
			IF i % 2 = 0 THEN
				RAISE EXCEPTION USING ERRCODE = 'ZZ000';
			END IF;
		EXCEPTION WHEN SQLSTATE 'ZZ000' THEN
			NULL;
		END;
	END LOOP;
END $$;
SELECT count(*), count(*) FILTER (WHERE key::text ~ '[13579]$' AND state = 'completed') AS odd FROM idem.key WHERE key LIKE 'many%';
-- a procedure that commits between claims
CREATE PROCEDURE pg_temp.two() LANGUAGE plpgsql AS $$
BEGIN
	PERFORM idem_claim('c1');
	PERFORM idem_complete('c1', 'one');
	COMMIT;
	PERFORM idem_claim('c2');
	PERFORM idem_complete('c2', 'two');
	ROLLBACK;
	PERFORM idem_claim('c3');
	COMMIT;
END $$;
CALL pg_temp.two();
SELECT key, state FROM idem.key WHERE key LIKE 'c_' ORDER BY key;

-- many claims in one subtransaction, undone and handed over
BEGIN;
SELECT count(*) FILTER (WHERE run) FROM generate_series(1, 50) AS n, idem_claim('b' || n);
SAVEPOINT a;
SELECT count(idem_complete('b' || n)) FROM generate_series(1, 50) AS n;
SAVEPOINT b;
SELECT count(*) FILTER (WHERE run) FROM generate_series(51, 100) AS n, idem_claim('b' || n);
SELECT count(*) FROM idem_unfinished();
RELEASE b;
SELECT count(*) FROM idem_unfinished();
ROLLBACK TO a;
SELECT count(*) FROM idem_unfinished();
SELECT count(idem_release('b' || n)) FROM generate_series(1, 50) AS n;
COMMIT;

-- once in subtransactions, beside a claim of the same key
BEGIN;
SELECT run FROM idem_claim('o');
SELECT idem_retry('o', 'again');
SAVEPOINT a;
SELECT idem_once('o');
SELECT outcome, attempt FROM idem_lookup('o');
ROLLBACK TO a;
SELECT outcome, attempt, response FROM idem_lookup('o');
SELECT run, attempt FROM idem_claim('o');
SELECT idem_complete('o', 'o');
COMMIT;
SELECT outcome, attempt, response FROM idem_lookup('o');

DELETE FROM idem.key;
