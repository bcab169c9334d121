-- A trigger of the owner's on idem.key that takes its time and changes what is
-- written: what is written again since the first write was slow finds it.

SET idem.access = auto;
CREATE FUNCTION pg_temp.slowly() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
	began CONSTANT timestamptz := clock_timestamp();
BEGIN
	WHILE clock_timestamp() < began + interval '20 ms' LOOP
	END LOOP;
	NEW.expires_at := date_trunc('second', NEW.expires_at);
	NEW.lease_until := date_trunc('second', NEW.lease_until);
	RETURN NEW;
END $$;
CREATE TRIGGER slowly BEFORE UPDATE ON idem.key FOR EACH ROW EXECUTE FUNCTION pg_temp.slowly();
INSERT INTO idem.scope (name, ttl) VALUES ('regress_short', '5 s');

-- every verb that writes times
BEGIN;
SELECT outcome FROM idem_claim('done', scope => 'regress_short');
SELECT idem_complete('done', 'r', scope => 'regress_short');
SELECT outcome FROM idem_claim('failed', scope => 'regress_short');
SELECT idem_fail('failed', 'e', scope => 'regress_short');
SELECT idem_reopen('failed', 'regress_short');
SELECT outcome FROM idem_claim('failed', scope => 'regress_short', lease => '3 s');
SELECT outcome FROM idem_claim('later', scope => 'regress_short');
SELECT idem_retry('later', 'e', 'regress_short', after => '2 s');
SELECT outcome FROM idem_claim('lease', scope => 'regress_short', lease => '3 s');
SELECT idem_renew('lease', '5 s', scope => 'regress_short') > clock_timestamp() AS renewed;
SELECT idem_release('lease', scope => 'regress_short');
SELECT key, state, attempt, expires_at = date_trunc('second', expires_at) AS rounded FROM idem.key ORDER BY key;
COMMIT;

-- a repeat that a table's longer retention keeps
CREATE TABLE regress_rounded (key text);
INSERT INTO regress_rounded VALUES ('a'), ('b');
SELECT idem_attach_once('regress_rounded', '{key}', ttl => '1 day');
SELECT idem_detach_once('regress_rounded');
SELECT idem_attach_once('regress_rounded', '{key}', ttl => '1 year');
SELECT count(*), bool_and(expires_at > clock_timestamp() + interval '300 days') AS kept
FROM idem.key WHERE scope = 'once.public.regress_rounded';

-- one that goes on from what was written: it stands
BEGIN;
CREATE FUNCTION pg_temp.go_on() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF NEW.state = 'in_progress' AND NEW.attempt < 9 THEN
		UPDATE idem.key SET attempt = 9 WHERE key = NEW.key;
	END IF;
	RETURN NULL;
END $$;
SELECT outcome FROM idem_claim('on', scope => 'regress_short', lease => '3 s');
CREATE TRIGGER go_on AFTER UPDATE ON idem.key FOR EACH ROW EXECUTE FUNCTION pg_temp.go_on();
SELECT idem_renew('on', '5 s', scope => 'regress_short') > clock_timestamp() AS renewed;
SELECT outcome FROM idem_claim('lease', scope => 'regress_short', lease => '3 s');
SELECT key, attempt FROM idem.key WHERE key IN ('on', 'lease') ORDER BY key;
ROLLBACK;

DROP TRIGGER slowly ON idem.key;
DROP TABLE regress_rounded;
DELETE FROM idem.key;
DELETE FROM idem.scope WHERE name = 'regress_short';
