-- One-time tokens: every verdict, what a token is bound to, replacing, retention.

\set VERBOSITY terse
\pset null '(null)'

DELETE FROM idem.token;
CREATE ROLE regress_idem_token;
CREATE ROLE regress_idem_nobody;
SELECT idem_grant('regress_idem_token');
SET ROLE regress_idem_token;

-- issued, looked at, used, used again
SELECT idem_token_issue('form') AS t \gset
SELECT length(:'t'), :'t' ~ '^[A-Za-z0-9_-]{43}$' AS base64url;
SELECT idem_token_peek(:'t', 'form'), idem_token_peek(:'t', 'form');
SELECT idem_token_use(:'t', 'form');
SELECT idem_token_use(:'t', 'form'), idem_token_peek(:'t', 'form');
-- twice in one statement, and issued in the same statement
SELECT idem_token_issue('form') AS t \gset
SELECT idem_token_use(:'t', 'form'), idem_token_use(:'t', 'form');
SELECT idem_token_use(idem_token_issue('form'), 'form');
WITH t AS MATERIALIZED (SELECT idem_token_issue('form') AS t)
SELECT idem_token_use(t, 'form') AS first, idem_token_use(t, 'form') AS second FROM t;
-- all are different
SELECT count(DISTINCT idem_token_issue('many')) FROM generate_series(1, 1000);

-- what never was a token
SELECT idem_token_use(t, 'form'), idem_token_peek(t, 'form')
FROM unnest(ARRAY['x', repeat('x', 43), repeat('é', 43), repeat('x', 44), repeat('x', 100000), ' ', :'t' || '=', ' ' || :'t', upper(:'t')]) AS t;

-- purpose
SELECT idem_token_issue('a') AS t \gset
SELECT idem_token_use(:'t', 'b'), idem_token_use(:'t', 'A'), idem_token_use(:'t', 'a '), idem_token_peek(:'t', 'b'), idem_token_use(:'t', 'a'), idem_token_use(:'t', 'b');

-- subject: the same, or none both times
SELECT idem_token_issue('a', 'alice') AS t \gset
SELECT idem_token_use(:'t', 'a', 'bob'), idem_token_use(:'t', 'a', NULL), idem_token_use(:'t', 'a'), idem_token_use(:'t', 'a', 'Alice'), idem_token_use(:'t', 'a', 'alice');
SELECT idem_token_use(:'t', 'a', 'bob'), idem_token_use(:'t', 'a', NULL), idem_token_use(:'t', 'a', 'alice');
SELECT idem_token_issue('a') AS t \gset
SELECT idem_token_use(:'t', 'a', 'alice'), idem_token_use(:'t', 'a', NULL);

-- request: bound at issue
SELECT idem_token_issue('pay', 'alice', '{"amount": 10, "to": "bob"}') AS t \gset
SELECT idem_token_use(:'t', 'pay', 'alice', '{"amount": 11, "to": "bob"}') AS other, idem_token_use(:'t', 'pay', 'alice') AS none, idem_token_peek(:'t', 'pay', 'alice') AS peek_none;
SELECT idem_token_peek(:'t', 'pay', 'alice', '{"to": "bob", "amount": 1e1}') AS peek, idem_token_use(:'t', 'pay', 'alice', '{"to": "bob", "amount": 10.0}') AS same;
SELECT idem_token_use(:'t', 'pay', 'alice', '{"amount": 10, "to": "bob"}') AS same, idem_token_use(:'t', 'pay', 'alice', '{"amount": 11}') AS other, idem_token_use(:'t', 'pay', 'alice') AS none;
-- ... or by the first use: an honest repeat is told from other data
SELECT idem_token_issue('pay') AS t \gset
SELECT idem_token_use(:'t', 'pay', request => '{"amount": 10}') AS first, idem_token_use(:'t', 'pay', request => '{"amount": 10}') AS repeat, idem_token_use(:'t', 'pay', request => '{"amount": 99}') AS other, idem_token_use(:'t', 'pay') AS none;
-- ... or never
SELECT idem_token_issue('pay') AS t \gset
SELECT idem_token_use(:'t', 'pay') AS first, idem_token_use(:'t', 'pay', request => '{"amount": 10}') AS repeat;
-- the JSON value null is a request, SQL's NULL is none
SELECT idem_token_issue('pay', request => 'null') AS t \gset
SELECT idem_token_use(:'t', 'pay'), idem_token_use(:'t', 'pay', request => '{}'), idem_token_use(:'t', 'pay', request => 'null');

-- time: expired is told from unknown for 24 hours, a used one stays used
RESET ROLE;
CREATE FUNCTION pg_temp.age(token text, how_long interval) RETURNS void LANGUAGE sql AS $$
	UPDATE idem.token SET expires_at = clock_timestamp() - how_long WHERE hash = sha256(convert_to($1, 'UTF8'))
$$;
SELECT idem_token_issue('a') AS fresh, idem_token_issue('a', ttl => '1 ms') AS quick, idem_token_issue('a') AS t, idem_token_issue('a') AS used, idem_token_issue('a') AS old, idem_token_issue('a') AS old_used \gset
SELECT expires_at - created_at AS ttl, count(*) FROM idem.token WHERE hash IN (sha256(:'fresh'), sha256(:'quick')) GROUP BY 1 ORDER BY 1;
SELECT idem_token_use(:'used', 'a'), idem_token_use(:'old_used', 'a');
SELECT count(pg_temp.age(t, '23 h 59 min')) FROM unnest(ARRAY[:'t', :'used']) AS t;
SELECT count(pg_temp.age(t, '24 h')) FROM unnest(ARRAY[:'old', :'old_used']) AS t;
SELECT idem_token_use(:'t', 'a') AS expired, idem_token_use(:'t', 'b') AS mismatch, idem_token_use(:'used', 'a') AS reused, idem_token_use(:'old', 'a') AS unknown, idem_token_use(:'old_used', 'a') AS unknown, idem_token_use(:'old', 'b') AS unknown, idem_token_use(:'fresh', 'a') AS fresh;
SELECT idem_token_peek(:'t', 'a') AS expired, idem_token_peek(:'t', 'b') AS mismatch, idem_token_peek(:'used', 'a') AS reused, idem_token_peek(:'old', 'a') AS unknown, idem_token_peek(:'fresh', 'a') AS fresh;
SELECT removed FROM idem_sweep() WHERE kind = 'token';
SELECT idem_token_use(:'t', 'a') AS expired, idem_token_use(:'used', 'a') AS reused, idem_token_use(:'old', 'a') AS unknown;
-- in a function that somebody took for parallel safe
CREATE FUNCTION pg_temp.peek(token text) RETURNS text LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
BEGIN RETURN idem_token_peek(token, 'a'); END $$;
SELECT set_config(name, 'on', false) FROM pg_settings WHERE name IN ('force_parallel_mode', 'debug_parallel_query');
SELECT pg_temp.peek('none');
SELECT set_config(name, 'off', false) FROM pg_settings WHERE name IN ('force_parallel_mode', 'debug_parallel_query');
-- in the middle of a transaction: the wall clock counts, not when that began
SELECT idem_token_issue('a') AS t \gset
BEGIN;
SELECT pg_temp.age(:'t', '0 s'), pg_temp.age(:'used', '24 h');
SELECT idem_token_peek(:'t', 'a') AS expired, idem_token_use(:'t', 'a') AS expired, idem_token_peek(:'used', 'a') AS unknown, idem_token_use(:'used', 'a') AS unknown;
ROLLBACK;

-- replace: one live token per purpose and subject
SET ROLE regress_idem_token;
SELECT idem_token_issue('reset', 'alice') AS one, idem_token_issue('reset', 'alice') AS two, idem_token_issue('reset', 'bob') AS bob, idem_token_issue('login', 'alice') AS login, idem_token_issue('reset', 'alice') AS used \gset
SELECT idem_token_use(:'used', 'reset', 'alice');
SELECT idem_token_issue('reset', 'alice', replace => true) AS three \gset
SELECT idem_token_peek(:'one', 'reset', 'alice') AS one, idem_token_peek(:'two', 'reset', 'alice') AS two, idem_token_peek(:'bob', 'reset', 'bob') AS bob, idem_token_peek(:'login', 'login', 'alice') AS login, idem_token_peek(:'used', 'reset', 'alice') AS used, idem_token_peek(:'three', 'reset', 'alice') AS three;
SELECT idem_token_issue('reset', 'alice', replace => true) AS four, idem_token_issue('reset', 'alice', replace => true) AS five \gset
SELECT idem_token_use(:'three', 'reset', 'alice') AS three, idem_token_use(:'four', 'reset', 'alice') AS four, idem_token_use(:'five', 'reset', 'alice') AS five;
SELECT idem_token_issue('reset', 'alice', replace => false) IS NOT NULL AS a, idem_token_issue('reset', 'alice', replace => NULL) IS NOT NULL AS b;
-- an older one in the same statement, and one created "later", before the clock was set back
SELECT idem_token_issue('reset', 'carol') AS old \gset
SELECT length(idem_token_issue('reset', 'carol', replace => true)) AS new, idem_token_use(:'old', 'reset', 'carol') AS old;
RESET ROLE;
UPDATE idem.token SET created_at = created_at + interval '1 h', ends_older = ends_older + interval '1 h' WHERE subject = 'carol';
SELECT idem_token_issue('reset', 'carol', replace => true) AS new \gset
SELECT count(*) FILTER (WHERE created_at >= ends_older) AS marks, count(*) AS tokens FROM idem.token WHERE subject = 'carol';
SELECT idem_token_peek(:'old', 'reset', 'carol') AS old, idem_token_peek(:'new', 'reset', 'carol') AS new;
-- nor is one born expired that replaces none
SELECT idem_token_issue('reset', 'carol') AS beside \gset
SELECT idem_token_peek(:'new', 'reset', 'carol') AS new, idem_token_peek(:'beside', 'reset', 'carol') AS beside;
-- one that replaces none is of the future itself, and is replaced all the same
SELECT idem_token_issue('reset', 'frank') AS old \gset
UPDATE idem.token SET created_at = created_at + interval '1 h' WHERE subject = 'frank';
SELECT idem_token_issue('reset', 'frank', replace => true) IS NOT NULL AS new, idem_token_peek(:'old', 'reset', 'frank') AS old;
-- of two that were created in one instant the one with the greater hash
SELECT idem_token_issue('reset', 'dave', replace => true) AS a, idem_token_issue('reset', 'dave', replace => true) AS b \gset
UPDATE idem.token SET created_at = '2020-01-01', ends_older = '2020-01-01' WHERE subject = 'dave';
SELECT idem_token_peek(t, 'reset', 'dave') AS verdict
FROM unnest(ARRAY[:'a', :'b']) AS t ORDER BY sha256(t::bytea);
-- a short-lived one that replaced a long-lived one is not swept before that is: the
-- clock may be ahead, and the old one would come back when it is right
SELECT idem_token_issue('reset', 'erin', ttl => '1 year') AS old, idem_token_issue('reset', 'erin', replace => true) AS new \gset
SELECT pg_temp.age(:'new', '25 h');
SELECT removed FROM idem_sweep() WHERE kind = 'token';
SELECT idem_token_peek(:'old', 'reset', 'erin') AS old, idem_token_peek(:'new', 'reset', 'erin') AS new;
SELECT pg_temp.age(:'old', '1 h');
SELECT removed FROM idem_sweep() WHERE kind = 'token';
SELECT pg_temp.age(:'old', '25 h');
SELECT removed FROM idem_sweep() WHERE kind = 'token';
SELECT removed FROM idem_sweep() WHERE kind = 'token';
SELECT idem_token_peek(:'old', 'reset', 'erin') AS old;
-- no lock for each subject
BEGIN;
SELECT count(idem_token_issue('many', n::text, replace => true)) FROM generate_series(1, 1000) AS n;
SELECT count(*) < 20 AS few FROM pg_locks WHERE pid = pg_backend_pid();
ROLLBACK;
SET ROLE regress_idem_token;

-- undone with the caller's work
SELECT idem_token_issue('a', 'alice') AS t \gset
BEGIN;
SELECT idem_token_use(:'t', 'a', 'alice');
SELECT idem_token_peek(:'t', 'a', 'alice');
ROLLBACK;
BEGIN;
SAVEPOINT s;
SELECT idem_token_use(:'t', 'a', 'alice', '{"n": 1}');
ROLLBACK TO s;
SELECT idem_token_use(:'t', 'a', 'alice', '{"n": 2}');
SAVEPOINT s;
SELECT idem_token_use(:'t', 'a', 'alice', '{"n": 2}'), idem_token_use(:'t', 'a', 'alice', '{"n": 1}');
RELEASE s;
COMMIT;
SELECT idem_token_use(:'t', 'a', 'alice', '{"n": 2}'), idem_token_use(:'t', 'a', 'alice', '{"n": 1}');
SELECT idem_token_issue('a', 'alice') AS t \gset
BEGIN;
SELECT length(idem_token_issue('a', 'alice', replace => true));
SELECT idem_token_peek(:'t', 'a', 'alice');
ROLLBACK;
SELECT idem_token_peek(:'t', 'a', 'alice');
BEGIN;
SELECT idem_token_issue('a', 'alice') AS gone \gset
SELECT idem_token_use(:'gone', 'a', 'alice');
ROLLBACK;
SELECT idem_token_use(:'gone', 'a', 'alice');

-- as drivers call them, with parameters of no type
PREPARE issue AS SELECT idem_token_issue($1, $2, $3, $4, $5) AS t;
PREPARE use AS SELECT idem_token_use($1, $2, $3, $4);
PREPARE peek AS SELECT idem_token_peek($1, $2, $3, $4);
EXECUTE issue ('driver', 'alice', '{"n": 1}', '1 h', 'false') \gset
EXECUTE peek (:'t', 'driver', 'alice', '{"n": 1}');
EXECUTE use (:'t', 'driver', 'alice', '{"n": 1}');
EXECUTE issue ('driver', NULL, NULL, '1 h', NULL) \gset
EXECUTE use (:'t', 'driver', NULL, NULL);
DEALLOCATE ALL;

-- errors leave nothing
\set VERBOSITY default
SELECT idem_token_issue(NULL);
SELECT idem_token_issue('');
SELECT idem_token_issue(repeat('x', 129));
SELECT length(idem_token_issue(repeat('x', 128), repeat('x', 1024)));
SELECT idem_token_issue('a', '');
SELECT idem_token_issue('a', repeat('x', 1025));
SELECT idem_token_issue('a', replace => true);
SELECT idem_token_issue('a', ttl => NULL);
SELECT idem_token_issue('a', ttl => '0 s');
SELECT idem_token_issue('a', ttl => '-1 s');
SELECT idem_token_issue('a', ttl => '1001 years');
SELECT length(idem_token_issue('a', ttl => '999 years'));
SELECT idem_token_use(NULL, 'a');
SELECT idem_token_use('', 'a');
SELECT idem_token_use('x', NULL);
SELECT idem_token_use('x', '');
SELECT idem_token_use('x', 'a', '');
SELECT idem_token_peek(NULL, 'a');
SELECT idem_token_peek('x', NULL);
\set VERBOSITY terse

-- read-only, and every isolation level
SELECT idem_token_issue('a') AS t \gset
BEGIN READ ONLY;
SELECT idem_token_peek(:'t', 'a');
SELECT pg_current_xact_id_if_assigned() IS NULL AS no_xid;
SAVEPOINT s;
SELECT idem_token_use(:'t', 'a');
ROLLBACK TO s;
SELECT idem_token_issue('a');
ROLLBACK;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT idem_token_peek(:'t', 'a');
SELECT count(*) FROM pg_locks WHERE mode = 'SIReadLock' AND pid = pg_backend_pid();
SELECT idem_token_use(:'t', 'a');
COMMIT;
-- an answer takes no transaction id
BEGIN;
SELECT idem_token_use(:'t', 'a'), idem_token_use('x', 'a'), idem_token_use(:'t', 'b'), idem_token_peek(:'t', 'a');
SELECT pg_current_xact_id_if_assigned() IS NULL AS no_xid;
COMMIT;

-- rights: nothing of the table, nothing without a grant
SELECT * FROM idem.token;
SET ROLE regress_idem_nobody;
SELECT idem_token_issue('a');
SELECT idem_token_use('x', 'a');
SELECT idem_token_peek('x', 'a');
RESET ROLE;

-- the token itself is stored nowhere
SELECT count(*) FROM idem.token AS t WHERE strpos(t::text, :'t') > 0 OR strpos(encode(hash, 'escape'), :'t') > 0;
SELECT count(*) FROM idem.token WHERE hash = sha256(:'t');

-- a table that its owner changed is not passed over
CREATE FUNCTION pg_temp.nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE TRIGGER nothing BEFORE UPDATE ON idem.token FOR EACH ROW EXECUTE FUNCTION pg_temp.nothing();
SELECT idem_token_use(:'t', 'a');
DROP TRIGGER nothing ON idem.token;
SELECT idem_token_use(:'t', 'a');
BEGIN;
DROP INDEX idem.token_subject;
SELECT idem_token_issue('a', 'alice', replace => true);
ROLLBACK;
SELECT idem_token_issue('a', 'alice') AS t \gset
BEGIN;
DROP INDEX idem.token_subject;
SELECT idem_token_use(:'t', 'a', 'alice');
ROLLBACK;

DELETE FROM idem.token;
SELECT idem_revoke('regress_idem_token');
DROP ROLE regress_idem_token, regress_idem_nobody;
