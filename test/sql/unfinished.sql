-- A transaction that would commit with a claim left unfinished is refused.

\pset null '(null)'

-- in autocommit, and in a block: two hints
SELECT run FROM idem_claim('k');
BEGIN;
SELECT run FROM idem_claim('k');
SELECT * FROM idem_unfinished();
COMMIT;
-- a block that begins with the statement that was sent
SELECT run FROM idem_claim('k') \; SELECT count(*) FROM idem_unfinished();
SELECT count(*) FROM idem_lookup('k');
\set VERBOSITY sqlstate
SELECT count(*) FROM idem_unfinished();

-- PREPARE TRANSACTION likewise
BEGIN;
SELECT run FROM idem_claim('k');
PREPARE TRANSACTION 'regress_idem_unfinished';
SELECT count(*) FROM pg_prepared_xacts WHERE gid = 'regress_idem_unfinished';
SELECT count(*) FROM idem_lookup('k');

-- what counts as finished, and what does not
BEGIN;
SELECT key, c.run FROM unnest('{done,failed,retried,released,stepped,left}'::text[]) AS key, idem_claim(key) AS c;
SELECT run FROM idem_claim('other', scope => 'regress_b/t');
SELECT run FROM idem_claim('lease', lease => '1 h');
SELECT run FROM idem_claim('session', hold => 'session');
SELECT idem_once('once');
SELECT * FROM idem_unfinished() ORDER BY scope, key;
SELECT idem_complete('done'), idem_fail('failed'), idem_retry('retried'), idem_release('released'), idem_step('stepped', 's');
SELECT * FROM idem_unfinished() ORDER BY scope, key;
SELECT idem_complete('stepped'), idem_complete('other', scope => 'regress_b/t');
SELECT * FROM idem_unfinished();
COMMIT;
SELECT count(*) FROM idem.key;

-- reopened by an operator, forgotten by one
BEGIN;
SELECT run FROM idem_claim('r');
SELECT idem_fail('r', 'e');
SELECT idem_reopen('r');
SELECT run FROM idem_claim('f');
SELECT idem_forget('f', force => true);
SELECT * FROM idem_unfinished();
SELECT run, attempt FROM idem_claim('r');
SELECT * FROM idem_unfinished();
SELECT idem_complete('r');
COMMIT;
SELECT key, state, attempt FROM idem.key ORDER BY key;

-- a hold that was changed within the transaction
BEGIN;
SELECT run FROM idem_claim('h');
SELECT idem_retry('h');
SELECT run, attempt FROM idem_claim('h', lease => '1 h');
SELECT * FROM idem_unfinished();
COMMIT;
BEGIN;
SELECT run FROM idem_claim('h2', lease => '1 h');
SELECT idem_retry('h2');
SELECT run, attempt FROM idem_claim('h2');
SELECT * FROM idem_unfinished();
COMMIT;
SELECT outcome, attempt FROM idem_lookup('h');
SELECT count(*) FROM idem_lookup('h2');

-- deferred constraints and triggers have their turn before the check
CREATE TABLE regress_order (id int PRIMARY KEY, parent int REFERENCES regress_order DEFERRABLE INITIALLY DEFERRED);
CREATE FUNCTION regress_finish() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM idem_complete('deferred', NEW.id::text);
	RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER finish AFTER INSERT ON regress_order DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION regress_finish();
BEGIN;
SELECT run FROM idem_claim('deferred');
INSERT INTO regress_order VALUES (1, NULL);
SELECT * FROM idem_unfinished();
COMMIT;
SELECT outcome, response FROM idem_lookup('deferred');
-- ... and one that fails takes the claim with it
ALTER TABLE regress_order DISABLE TRIGGER finish;
BEGIN;
SELECT run FROM idem_claim('constraint');
INSERT INTO regress_order VALUES (2, 7);
SELECT idem_complete('constraint');
COMMIT;
SELECT count(*) FROM idem_lookup('constraint');
-- ... and a claim made by one must be finished too
CREATE FUNCTION regress_claim() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM idem_claim('by trigger');
	RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER claim AFTER INSERT ON regress_order DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION regress_claim();
INSERT INTO regress_order VALUES (3, NULL);
SELECT id FROM regress_order ORDER BY id;
SELECT count(*) FROM idem_lookup('by trigger');
DROP TABLE regress_order;
DROP FUNCTION regress_finish(), regress_claim();

-- an aborted transaction needs no finishing; COMMIT of it is a rollback
BEGIN;
SELECT run FROM idem_claim('a');
SELECT 1 / 0;
COMMIT;
SELECT count(*) FROM idem_lookup('a');
-- COMMIT AND CHAIN
BEGIN;
SELECT run FROM idem_claim('a');
COMMIT AND CHAIN;
ROLLBACK;
BEGIN;
SELECT run FROM idem_claim('a');
SELECT idem_complete('a', '1');
COMMIT AND CHAIN;
SELECT outcome FROM idem_claim('a');
SELECT * FROM idem_unfinished();
ROLLBACK;

-- after all this nothing is left over
SELECT count(*) FROM idem_unfinished();
DELETE FROM idem.key;
