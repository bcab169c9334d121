-- A write of an event that fails in a savepoint leaves nothing of the event
-- behind, whatever runs on the stack afterwards.

\set SHOW_CONTEXT never
SET client_min_messages = warning;
SELECT idem_define('fire_failed', $$
stateDiagram-v2
    [*] --> draft
    draft --> pending : submit
$$);
CREATE TABLE fire_failed (id int PRIMARY KEY, state text NOT NULL DEFAULT 'draft');
SELECT idem_attach('fire_failed', 'fire_failed', 'state', history => true, events_only => true);
CREATE FUNCTION fire_failed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF new.id = 1 THEN
		RAISE EXCEPTION 'row 1 fails';
	END IF;
	RETURN new;
END $$;
CREATE TRIGGER fails AFTER UPDATE ON fire_failed FOR EACH ROW EXECUTE FUNCTION fire_failed();
INSERT INTO fire_failed SELECT generate_series(1, 4);

-- deep in other calls, each in a subtransaction of its own
CREATE PROCEDURE fire_failed_writes(depth int) LANGUAGE plpgsql AS $$
DECLARE
	code text;
BEGIN
	IF depth > 0 THEN
		CALL fire_failed_writes(depth - 1);
	END IF;
	FOR i IN 1 .. 4 LOOP
		BEGIN
			UPDATE fire_failed SET state = 'pending' WHERE id = i AND state = 'draft';
			IF found THEN
				RAISE WARNING 'row % was written', i;
			END IF;
		EXCEPTION WHEN OTHERS THEN
			GET STACKED DIAGNOSTICS code = RETURNED_SQLSTATE;
			RAISE WARNING '% for row %', code, i;
		END;
	END LOOP;
END $$;

BEGIN;
SAVEPOINT s;
SELECT outcome FROM idem_fire('fire_failed', 1, 'submit');
ROLLBACK TO s;
CALL fire_failed_writes(2);
SELECT outcome FROM idem_fire('fire_failed', 2, 'submit');
SAVEPOINT s;
SELECT count(*) FROM idem_fire_many('fire_failed', ARRAY[3, 1], 'submit');
ROLLBACK TO s;
CALL fire_failed_writes(1);
SELECT count(*) FROM idem_fire_many('fire_failed', ARRAY[3, 4], 'submit');
COMMIT;
-- the next transaction, too
CALL fire_failed_writes(1);
SELECT id, state FROM fire_failed ORDER BY id;
SELECT row_key, event, from_state, to_state FROM idem.history WHERE machine = 'fire_failed' AND event <> '' ORDER BY seq;

DROP TABLE fire_failed;
DROP FUNCTION fire_failed;
DROP PROCEDURE fire_failed_writes;
ALTER TABLE idem.history DISABLE TRIGGER protected_row;
DELETE FROM idem.history WHERE machine = 'fire_failed';
ALTER TABLE idem.history ENABLE TRIGGER protected_row;
DELETE FROM idem.machine WHERE name = 'fire_failed';
