-- What an owner may put on idem.key, or do to it, while claims are at work.
-- Each case is rolled back.

\set VERBOSITY sqlstate
\pset null '(null)'
CREATE FUNCTION pg_temp.life(k text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	told text := '';
	way text;
	f bigint;
BEGIN
	FOREACH way IN ARRAY '{direct,auto,sql}'::text[] LOOP
		PERFORM set_config('idem.access', way, true);
		told := told || way || ': ';
		BEGIN
			told := told || (idem_claim(k || way)).outcome;
			PERFORM idem_step(k || way, 's');
			PERFORM idem_retry(k || way, 'e');
			told := told || ', ' || (idem_claim(k || way)).attempt;
			PERFORM idem_complete(k || way, 'r');
			told := told || ', ' || (idem_claim(k || way)).response;
			f := (idem_claim(k || 'l' || way, lease => '1 h')).fence;
			PERFORM idem_renew(k || 'l' || way, fence => f);
			PERFORM idem_release(k || 'l' || way, fence => f);
			told := told || ', ' || idem_once(k || 'o' || way)::text || ' ' || idem_once(k || 'o' || way)::text;
			PERFORM idem_forget(k || way, force => true);
			told := told || ', ' || (SELECT count(*) FROM idem_lookup(k || way)) || '; ';
		EXCEPTION WHEN OTHERS THEN
			told := told || SQLSTATE || '; ';
		END;
	END LOOP;
	RETURN told;
END $$;

SELECT pg_temp.life('as it is');
DELETE FROM idem.key;

-- what the direct way would pass over: auto goes through SQL, and it counts
CREATE TEMP TABLE seen (op text, key text);
CREATE FUNCTION pg_temp.see() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO seen VALUES (TG_OP, coalesce(NEW.key, OLD.key));
	RETURN NULL;
END $$;
BEGIN;
CREATE TRIGGER see AFTER INSERT OR UPDATE OR DELETE ON idem.key FOR EACH ROW EXECUTE FUNCTION pg_temp.see();
SELECT pg_temp.life('trigger');
SELECT DISTINCT op FROM seen ORDER BY op;
ROLLBACK;
-- ... in the owner's context: names have a schema, and nothing is deferred
CREATE TABLE regress_audit (key text);
CREATE FUNCTION pg_temp.note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO regress_audit VALUES (NEW.key);
	RETURN NULL;
END $$;
BEGIN;
CREATE TRIGGER note AFTER INSERT ON idem.key FOR EACH ROW EXECUTE FUNCTION pg_temp.note();
SELECT pg_temp.life('no schema');
ALTER FUNCTION pg_temp.note() SET search_path = public;
SELECT pg_temp.life('path');
SELECT count(*) > 0 AS noted FROM regress_audit;
ROLLBACK;
ALTER FUNCTION pg_temp.note() SET search_path = public;
BEGIN;
CREATE CONSTRAINT TRIGGER note AFTER INSERT ON idem.key DEFERRABLE FOR EACH ROW EXECUTE FUNCTION pg_temp.note();
SELECT pg_temp.life('immediate');
SET CONSTRAINTS ALL DEFERRED;
SELECT pg_temp.life('deferred');
ROLLBACK;
DROP TABLE regress_audit;
BEGIN;
ALTER TABLE idem.key ADD CHECK (key NOT LIKE 'check%');
SELECT pg_temp.life('check'), pg_temp.life('other');
ROLLBACK;
-- ... or it finds the same
BEGIN;
ALTER TABLE idem.key ALTER fingerprint SET NOT NULL;
SELECT pg_temp.life('not null');
ROLLBACK;
BEGIN;
ALTER TABLE idem.key ENABLE ROW LEVEL SECURITY;
SELECT pg_temp.life('row security');
ROLLBACK;
BEGIN;
CREATE RULE no_delete AS ON DELETE TO idem.key DO ALSO NOTIFY regress_idem;
SELECT pg_temp.life('rule');
ROLLBACK;
BEGIN;
ALTER TABLE idem.key ADD COLUMN note text DEFAULT 'added';
SELECT pg_temp.life('column');
SELECT DISTINCT note FROM idem.key;
ROLLBACK;

-- an index that refuses nothing is served; one that might, or none, is not
BEGIN;
CREATE INDEX regress_extra ON idem.key (created_at, state);
SELECT pg_temp.life('index');
SET LOCAL enable_seqscan = off;
SELECT count(*) FROM idem.key WHERE created_at > '-infinity' AND state = 'completed';
ROLLBACK;
BEGIN;
CREATE UNIQUE INDEX regress_extra ON idem.key (key);
SELECT pg_temp.life('unique index');
ROLLBACK;
BEGIN;
ALTER TABLE idem.key DROP CONSTRAINT key_pkey;
SELECT pg_temp.life('no primary key');
CREATE UNIQUE INDEX regress_partial ON idem.key (scope, key) WHERE state <> 'open';
SELECT pg_temp.life('partial index');
ROLLBACK;

-- each of the tables that are reached directly refuses what that would pass over
CREATE FUNCTION pg_temp.answer(ddl text, verb text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE ddl;
	EXECUTE verb;
	RAISE EXCEPTION 'served' USING ERRCODE = 'OK000';
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE;
END $$;
CREATE TEMP TABLE own (name text, first text, pk text, time text, verb text);
INSERT INTO own VALUES
	('key', 'key', 'key, scope', 'created_at', $$SELECT idem_once('k')$$),
	('lease', 'name', 'name', 'until', $$SELECT idem_lease_acquire('k', '1 min')$$),
	('token', 'purpose', 'hash', 'created_at', $$SELECT idem_token_issue('p')$$),
	('window_hit', 'key', 'scope, key', 'expires_at', $$SELECT idem_window('k', '1 min')$$),
	('branch', 'saga', 'saga, branch, seq', 'expires_at', $$SELECT idem_branch('s', 'b', 'try')$$);
CREATE TEMP TABLE change (n serial, ddl text);
INSERT INTO change (ddl) VALUES
	('CREATE INDEX ON idem.%1$s (%4$s, %2$s)'),
	('CREATE INDEX ON idem.%1$s (%2$s) WHERE %4$s IS NOT NULL'),
	('CREATE INDEX ON idem.%1$s (lower(%2$s))'),
	('CREATE INDEX ON idem.%1$s USING brin (%4$s)'),
	('CREATE UNIQUE INDEX ON idem.%1$s (%4$s)'),
	('CREATE UNIQUE INDEX ON idem.%1$s (%2$s COLLATE "POSIX")'),
	('ALTER TABLE idem.%1$s ADD EXCLUDE USING btree (%4$s WITH =)'),
	('ALTER TABLE idem.%1$s ADD UNIQUE (%3$s) DEFERRABLE'),
	('CREATE TABLE pg_temp.child () INHERITS (idem.%1$s)'),
	('ALTER TABLE idem.%1$s SET ACCESS METHOD regress_heap');
BEGIN;
SET LOCAL idem.access = direct;
CREATE ACCESS METHOD regress_heap TYPE TABLE HANDLER heap_tableam_handler;
SELECT format(ddl, 'T', 'FIRST', 'PK', 'TIME') AS ddl,
	string_agg(pg_temp.answer(format(ddl, name, first, pk, time), verb), ' ' ORDER BY name) AS branch_key_lease_token_window
FROM change, own GROUP BY n, ddl ORDER BY n;
ROLLBACK;

-- what swallows writes is found out
CREATE FUNCTION pg_temp.swallow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
BEGIN;
CREATE TRIGGER swallow BEFORE INSERT ON idem.key FOR EACH ROW EXECUTE FUNCTION pg_temp.swallow();
SELECT pg_temp.life('swallowed');
ROLLBACK;

-- rewritten, emptied and altered between two verbs of a claim
BEGIN;
SELECT run FROM idem_claim('a');
SELECT count(*) FILTER (WHERE run) FROM generate_series(1, 100) AS n, idem_claim('other' || n);
CLUSTER idem.key USING key_pkey;
SELECT outcome FROM idem_claim('a');
SELECT idem_step('a', 'clustered');
REINDEX TABLE idem.key;
SELECT idem_retry('a', 'reindexed');
SELECT run, attempt, step FROM idem_claim('a');
ALTER TABLE idem.key SET (fillfactor = 90);
SELECT idem_complete('a', 'altered');
SELECT outcome, response FROM idem_claim('a');
SELECT count(*) FROM idem_unfinished();
DELETE FROM idem.key WHERE key = 'other1';
SAVEPOINT s;
SELECT idem_complete('other1');
ROLLBACK TO s;
TRUNCATE idem.key;
SELECT outcome FROM idem_claim('a');
SAVEPOINT s;
SELECT idem_complete('other2');
ROLLBACK;
SELECT count(*) FROM idem.key;

-- an empty table is swept
BEGIN;
TRUNCATE idem.key;
SELECT removed FROM idem_sweep() WHERE kind = 'key';
ROLLBACK;

-- nor do keys that a foreign key or a trigger keeps hide those that are behind them
CREATE PROCEDURE pg_temp.fill() LANGUAGE plpgsql AS $$
BEGIN
	PERFORM set_config('idem.access', 'auto', true), set_config('client_min_messages', 'error', true);
	PERFORM idem_import_many(ARRAY(SELECT 'kept' || n FROM generate_series(1, 200) AS n));
	PERFORM idem_import_many(ARRAY(SELECT 'free' || n FROM generate_series(1, 100) AS n));
	UPDATE idem.key SET expires_at = CASE WHEN key LIKE 'kept%' THEN '2020-01-01' ELSE '2021-01-01' END::timestamptz
	WHERE key ~ '^(kept|free)';
END $$;
BEGIN;
CALL pg_temp.fill();
CREATE TABLE regress_pay (scope text, key text, FOREIGN KEY (scope, key) REFERENCES idem.key (scope, key));
INSERT INTO regress_pay SELECT scope, key FROM idem.key WHERE key LIKE 'kept%';
SELECT removed FROM idem_sweep(60) WHERE kind = 'key';
SELECT removed FROM idem_sweep() WHERE kind = 'key';
DROP TABLE regress_pay;
SELECT removed FROM idem_sweep() WHERE kind = 'key';
ROLLBACK;
CREATE FUNCTION pg_temp.hold() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF OLD.key LIKE 'kept%' THEN
		RETURN NULL;
	END IF;
	RETURN OLD;
END $$;
BEGIN;
CALL pg_temp.fill();
CREATE TRIGGER hold BEFORE DELETE ON idem.key FOR EACH ROW EXECUTE FUNCTION pg_temp.hold();
SELECT removed FROM idem_sweep(60) WHERE kind = 'key';
SELECT removed FROM idem_sweep() WHERE kind = 'key';
-- the claim of a session that is gone gets its deadline there, too
SELECT run FROM idem_claim('session', hold => 'session');
UPDATE idem.key SET fence = -fence WHERE key = 'session';
SELECT removed FROM idem_sweep() WHERE kind = 'key';
SELECT expires_at > clock_timestamp() AS deadline FROM idem.key WHERE key = 'session';
ROLLBACK;

-- rows that no verb wrote
SELECT count(idem_once(key)) FROM unnest('{state,hold,digest}'::text[]) AS key;
UPDATE idem.key SET state = 'paused' WHERE key = 'state';
UPDATE idem.key SET hold = 'mine', state = 'in_progress' WHERE key = 'hold';
UPDATE idem.key SET fingerprint = '\xff00' WHERE key = 'digest';
SELECT idem_claim('state');
SELECT idem_once('state');
SELECT outcome FROM idem_lookup('hold');
BEGIN;
SELECT outcome, attempt FROM idem_claim('hold');
SELECT idem_complete('hold');
COMMIT;
-- a fingerprint of another version cannot be compared
SELECT outcome FROM idem_claim('digest', '{"a": 1}');
DELETE FROM idem.key;

-- settings of scopes that cannot be read
BEGIN;
ALTER TABLE idem.scope ALTER COLUMN roles TYPE text[];
SELECT idem_once('k');
ROLLBACK;
BEGIN;
ALTER TABLE idem.scope DROP COLUMN keep_failures;
SELECT idem_once('k');
ROLLBACK;
BEGIN;
ALTER TABLE idem.scope ADD COLUMN note text;
INSERT INTO idem.scope (name, ttl, note) VALUES ('default', '1 h', 'x');
SELECT idem_once('k');
SELECT expires_at - finished_at AS kept FROM idem_lookup('k');
ROLLBACK;
SELECT idem_once('k');

DELETE FROM idem.key;
