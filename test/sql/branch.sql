-- idem_branch: every order of try, confirm and cancel, alone and in twos and
-- threes; what is remembered, and for how long.

\set VERBOSITY terse
\pset null '(null)'

DELETE FROM idem.branch;
CREATE ROLE regress_idem_branch;
CREATE ROLE regress_idem_nobody;
SELECT idem_grant('regress_idem_branch');
SET ROLE regress_idem_branch;

-- all sequences of up to three calls, on a branch each
CREATE FUNCTION pg_temp.calls(VARIADIC ops text[]) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	verdicts text[];
	op text;
BEGIN
	FOREACH op IN ARRAY ops LOOP
		verdicts := verdicts || idem_branch(array_to_string(ops, ' '), 'b', op);
	END LOOP;
	RETURN array_to_string(verdicts, ', ');
END $$;
SELECT a, pg_temp.calls(a) FROM unnest('{try,confirm,cancel}'::text[]) AS a ORDER BY 1;
SELECT a, b, pg_temp.calls(a, b) FROM unnest('{try,confirm,cancel}'::text[]) AS a, unnest('{try,confirm,cancel}'::text[]) AS b ORDER BY 1, 2;
SELECT a, b, c, pg_temp.calls(a, b, c) FROM unnest('{try,confirm,cancel}'::text[]) AS a, unnest('{try,confirm,cancel}'::text[]) AS b, unnest('{try,confirm,cancel}'::text[]) AS c ORDER BY 1, 2, 3;

-- a saga's branches, and the effects of one branch, are apart
SELECT idem_branch('s', 'debit', 'try') AS debit, idem_branch('s', 'credit', 'cancel') AS credit, idem_branch('s', 'debit', 'try', 2) AS second, idem_branch('s', 'debit', 'cancel', 3) AS third;
SELECT idem_branch('s', 'debit', 'confirm') AS debit, idem_branch('s', 'credit', 'try') AS credit, idem_branch('s', 'debit', 'cancel', 2) AS second, idem_branch('s', 'debit', 'try', 3) AS third, idem_branch('S', 'debit', 'try') AS other;
SELECT idem_branch('s', 'down', 'try', seq => 2) AS second, idem_branch('s', 'down', 'cancel', seq => 1) AS first;
SELECT idem_branch('s', 'x', 'try', seq => 2147483647), idem_branch('é', '''', 'try'), idem_branch(repeat('x', 1024), repeat('x', 1024), 'try');

-- undone with the caller's work
BEGIN;
SELECT idem_branch('undone', 'b', 'try');
ROLLBACK;
SELECT idem_branch('undone', 'b', 'cancel'), idem_branch('undone', 'b', 'try');
BEGIN;
SELECT idem_branch('savepoint', 'b', 'try'), idem_branch('savepoint', 'b', 'try');
SAVEPOINT s;
SELECT idem_branch('savepoint', 'b', 'confirm');
ROLLBACK TO s;
SELECT idem_branch('savepoint', 'b', 'cancel');
COMMIT;
SELECT idem_branch('savepoint', 'b', 'confirm');
-- in one statement
SELECT idem_branch('statement', 'b', op) FROM unnest('{try,try,confirm,cancel}'::text[]) AS op;

-- calls that do not run write nothing
BEGIN;
SELECT idem_branch('savepoint', 'b', 'cancel') AS duplicate, idem_branch('savepoint', 'b', 'try') AS suspended, idem_branch('never', 'b', 'confirm') AS early;
SELECT pg_current_xact_id_if_assigned() IS NULL AS no_xid;
COMMIT;

-- retention: from the end of the branch, never while it is open
RESET ROLE;
SELECT tried_at IS NOT NULL AS tried, confirmed_at IS NOT NULL AS confirmed, cancelled_at IS NOT NULL AS cancelled, justify_hours(expires_at - coalesce(confirmed_at, cancelled_at)) AS kept, count(*) FROM idem.branch GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4;
SHOW idem.branch_ttl;
SET idem.branch_ttl = '90 s';
SELECT idem_branch('ttl', 'b', 'try'), idem_branch('ttl', 'b', 'confirm'), idem_branch('ttl', 'c', 'cancel');
SET idem.branch_ttl = -1;
SELECT idem_branch('ever', 'b', 'try'), idem_branch('ever', 'b', 'cancel');
SET idem.branch_ttl = 0;
SELECT idem_branch('none', 'b', 'try'), idem_branch('none', 'b', 'try'), idem_branch('none', 'b', 'confirm');
SELECT idem_branch('none', 'b', 'try') AS afresh;
RESET idem.branch_ttl;
SELECT saga, branch, expires_at - coalesce(confirmed_at, cancelled_at) AS kept FROM idem.branch WHERE saga IN ('ttl', 'ever') ORDER BY 1, 2;
\set VERBOSITY sqlstate
SET idem.branch_ttl = '-2 min';
SET idem.branch_ttl = '400000 d';
\set VERBOSITY terse
UPDATE idem.branch SET expires_at = clock_timestamp() WHERE saga = 'ttl';
SELECT idem_branch('ttl', 'b', 'cancel') AS afresh, idem_branch('ttl', 'c', 'try') AS afresh;
SELECT idem_branch('ttl', 'b', 'try') AS suspended, idem_branch('ttl', 'c', 'confirm') AS run;
SELECT saga, branch, seq, tried_at IS NOT NULL AS tried FROM idem.branch WHERE saga = 'ttl' ORDER BY 2;
-- in the middle of a transaction: the wall clock counts, not when that began
BEGIN;
SELECT idem_branch('wall', 'b', 'try'), idem_branch('wall', 'b', 'confirm');
UPDATE idem.branch SET expires_at = clock_timestamp() WHERE saga = 'wall';
SELECT idem_branch('wall', 'b', 'cancel') AS afresh;
ROLLBACK;
UPDATE idem.branch SET expires_at = '2020-01-01', tried_at = '2020-01-01' WHERE saga IN ('ttl', 'ever');
INSERT INTO idem.branch (saga, branch, seq, tried_at) VALUES ('open', 'b', 1, '2020-01-01');
SELECT removed FROM idem_sweep() WHERE kind = 'branch';
SELECT idem_branch('open', 'b', 'cancel');

-- as drivers call it, with parameters of no type
PREPARE branch AS SELECT idem_branch($1, $2, $3, $4);
EXECUTE branch ('driver', 'b', 'try', '1');
DEALLOCATE branch;

-- errors
\set VERBOSITY default
SELECT idem_branch(NULL, 'b', 'try');
SELECT idem_branch('', 'b', 'try');
SELECT idem_branch('s', NULL, 'try');
SELECT idem_branch('s', '', 'try');
SELECT idem_branch(repeat('x', 1025), 'b', 'try');
SELECT idem_branch('s', repeat('x', 1025), 'try');
SELECT idem_branch('s', 'b', NULL);
SELECT idem_branch('s', 'b', 'Try');
SELECT idem_branch('s', 'b', 'tryy');
SELECT idem_branch('s', 'b', 'try', NULL);
SELECT idem_branch('s', 'b', 'try', 0);
BEGIN READ ONLY;
SELECT idem_branch('s', 'debit', 'try');
ROLLBACK;
\set VERBOSITY terse

-- at every isolation level
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT idem_branch('rr', 'b', 'try'), idem_branch('rr', 'b', 'confirm'), idem_branch('rr', 'b', 'confirm');
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT idem_branch('rr', 'b', 'try'), idem_branch('rr', 'c', 'cancel');
SELECT count(*) FROM pg_locks WHERE mode = 'SIReadLock' AND pid = pg_backend_pid();
COMMIT;

-- after eight tries in a row that were the first call of their branch the next one
-- is taken for one as well, which changes nothing but that it has a transaction id
SELECT idem_branch('presumed', 'cancelled', 'cancel');
SELECT count(*) FROM generate_series(1, 8) AS n WHERE idem_branch('presumed', 'b' || n, 'try') = 'run';
BEGIN;
SELECT idem_branch('presumed', 'b1', 'try'), pg_current_xact_id_if_assigned() IS NOT NULL AS presumed;
COMMIT;
BEGIN;
SELECT idem_branch('presumed', 'b1', 'try'), pg_current_xact_id_if_assigned() IS NOT NULL AS presumed;
COMMIT;
SELECT count(*) FROM generate_series(11, 19) AS n WHERE idem_branch('presumed', 'b' || n, 'try') = 'run';
SELECT idem_branch('presumed', 'cancelled', 'try'), idem_branch('presumed', 'b19', 'confirm'), idem_branch('presumed', 'b19', 'try');
SELECT count(*), count(DISTINCT branch) FROM idem.branch WHERE saga = 'presumed';

-- rights
SET ROLE regress_idem_branch;
SELECT * FROM idem.branch;
SET ROLE regress_idem_nobody;
SELECT idem_branch('s', 'b', 'try');
RESET ROLE;
SELECT idem_grant('regress_idem_branch', 'operator');
SET ROLE regress_idem_branch;
SELECT count(*) > 0 AS readable FROM idem.branch;
DELETE FROM idem.branch;
RESET ROLE;

-- a table that its owner changed is not passed over
BEGIN;
ALTER TABLE idem.branch ADD COLUMN more int;
SELECT idem_branch('s', 'b', 'try');
ROLLBACK;
SELECT idem_branch('s', 'b', 'try');

DROP FUNCTION pg_temp.calls;
DELETE FROM idem.branch;
SELECT idem_revoke('regress_idem_branch');
DROP ROLE regress_idem_branch, regress_idem_nobody;
