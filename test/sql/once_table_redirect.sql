-- Rows that an update moves to another partition, of a table that skips
-- repeated inserts, and triggers that send them elsewhere or change their key.

CREATE TABLE regress_mv (k int, p int, note text) PARTITION BY LIST (p);
CREATE TABLE regress_mv1 PARTITION OF regress_mv FOR VALUES IN (1);
CREATE TABLE regress_mv2 PARTITION OF regress_mv FOR VALUES IN (2);
CREATE TABLE regress_mv3 PARTITION OF regress_mv FOR VALUES IN (3);
CREATE TABLE regress_mv4 PARTITION OF regress_mv FOR VALUES IN (4);
CREATE UNIQUE INDEX ON regress_mv3 (k);
CREATE TABLE regress_mv_other (k int);
INSERT INTO regress_mv VALUES (1, 1), (2, 1);
SELECT idem_attach_once('regress_mv', '{k}', scope => 'regress_mv');
SELECT idem_attach_once('regress_mv_other', '{k}', scope => 'regress_mv');
CREATE VIEW regress_mv_keys AS
	SELECT key FROM idem.key WHERE scope = 'regress_mv' ORDER BY key COLLATE "C";
CREATE VIEW regress_mv_all AS
	SELECT tableoid::regclass AS part, k, p, note FROM regress_mv ORDER BY k, p;

-- what the trigger on the second partition does
CREATE FUNCTION regress_send() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	CASE TG_ARGV[0]
	WHEN 'third' THEN
		INSERT INTO regress_mv VALUES (NEW.k, 3, TG_ARGV[0]);
		RETURN NULL;
	WHEN 'third, by name' THEN
		INSERT INTO regress_mv3 VALUES (NEW.k, 3, TG_ARGV[0]);
		RETURN NULL;
	WHEN 'third, or dropped' THEN
		INSERT INTO regress_mv VALUES (NEW.k, 3, TG_ARGV[0]) ON CONFLICT DO NOTHING;
		RETURN NULL;
	WHEN 'third and fourth' THEN
		INSERT INTO regress_mv VALUES (NEW.k, 3, TG_ARGV[0]), (NEW.k, 4, TG_ARGV[0]);
		RETURN NULL;
	WHEN 'other table' THEN
		INSERT INTO regress_mv_other VALUES (NEW.k);
		RETURN NULL;
	WHEN 'both' THEN
		INSERT INTO regress_mv VALUES (NEW.k, 3, TG_ARGV[0]);
		RETURN NEW;
	WHEN 'rolled back' THEN
		BEGIN
			INSERT INTO regress_mv VALUES (NEW.k, 3, TG_ARGV[0]);
			RAISE EXCEPTION 'no';
		EXCEPTION WHEN raise_exception THEN
			NULL;
		END;
		RETURN NEW;
	WHEN 'rolled back, then third' THEN
		BEGIN
			INSERT INTO regress_mv VALUES (NEW.k, 4, TG_ARGV[0]);
			RAISE EXCEPTION 'no';
		EXCEPTION WHEN raise_exception THEN
			INSERT INTO regress_mv VALUES (NEW.k, 3, TG_ARGV[0]);
		END;
		RETURN NULL;
	WHEN 'in a block' THEN
		BEGIN
			INSERT INTO regress_mv VALUES (NEW.k, 3, TG_ARGV[0]);
		EXCEPTION WHEN raise_exception THEN
			NULL;
		END;
		RETURN NULL;
	WHEN 'next key' THEN
		NEW.k := NEW.k + 1;
		RETURN NEW;
	WHEN 'new key' THEN
		NEW.k := NEW.k + 100;
		RETURN NEW;
	WHEN 'no key' THEN
		NEW.k := NULL;
		RETURN NEW;
	WHEN 'drop' THEN
		RETURN NULL;
	END CASE;
END $$;

-- moves one row under such a trigger, and tells what became of it
CREATE FUNCTION regress_move(does text, named text, OUT outcome text, OUT rows text, OUT keys text) LANGUAGE plpgsql AS $$
DECLARE
	n bigint;
BEGIN
	EXECUTE format('CREATE TRIGGER %I BEFORE INSERT ON regress_mv2 FOR EACH ROW EXECUTE FUNCTION regress_send(%L)', named, does);
	BEGIN
		UPDATE regress_mv SET p = 2 WHERE k = 1;
		GET DIAGNOSTICS n = ROW_COUNT;
		outcome := 'UPDATE ' || n;
	EXCEPTION WHEN OTHERS THEN
		outcome := SQLSTATE;
	END;
	-- what is repeated is skipped in any case
	INSERT INTO regress_mv VALUES (1, 4, 'again'), (2, 4, 'again');
	INSERT INTO regress_mv_other VALUES (1), (2);
	SELECT string_agg(format('%s@%s', k, p), ' ' ORDER BY k, p) INTO rows
		FROM (SELECT k, p::text FROM regress_mv UNION ALL SELECT k, 'other' FROM regress_mv_other) r (k, p);
	SELECT string_agg(key, ' ') INTO keys FROM regress_mv_keys;
	-- undo all of it
	RAISE EXCEPTION USING ERRCODE = 'P0099', MESSAGE = outcome, DETAIL = rows, HINT = keys;
EXCEPTION WHEN SQLSTATE 'P0099' THEN
	GET STACKED DIAGNOSTICS outcome = MESSAGE_TEXT, rows = PG_EXCEPTION_DETAIL, keys = PG_EXCEPTION_HINT;
END $$;
SELECT does, named, (regress_move(does, named)).*
FROM unnest(ARRAY['third', 'third, by name', 'third, or dropped', 'third and fourth', 'other table',
	'both', 'rolled back', 'rolled back, then third', 'in a block', 'next key', 'new key', 'no key', 'drop'])
	WITH ORDINALITY AS d (does, i), unnest(ARRAY['a', '~z']) AS named
ORDER BY i, named;

-- a key that was only updated is not spent by the move either
BEGIN;
UPDATE regress_mv SET k = 7 WHERE k = 1;
CREATE TRIGGER a BEFORE INSERT ON regress_mv2 FOR EACH ROW EXECUTE FUNCTION regress_send('third');
UPDATE regress_mv SET p = 2 WHERE k = 7;
SELECT * FROM regress_mv_all;
SELECT * FROM regress_mv_keys;
ROLLBACK;

-- a stand-in that a constraint drops
BEGIN;
INSERT INTO regress_mv3 VALUES (11, 3);
UPDATE regress_mv SET k = 11 WHERE k = 1;
CREATE TRIGGER a BEFORE INSERT ON regress_mv2 FOR EACH ROW EXECUTE FUNCTION regress_send('third, or dropped');
UPDATE regress_mv SET p = 2 WHERE p = 1 AND k = 11;
SELECT * FROM regress_mv_all;
SELECT * FROM regress_mv_keys;
ROLLBACK;

-- sent on from there, several rows, and from partition to partition
BEGIN;
CREATE TRIGGER a BEFORE INSERT ON regress_mv2 FOR EACH ROW EXECUTE FUNCTION regress_send('third');
CREATE FUNCTION regress_send_on() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO regress_mv VALUES (NEW.k, 4, 'sent on');
	RETURN NULL;
END $$;
CREATE TRIGGER "~z" BEFORE INSERT ON regress_mv3 FOR EACH ROW EXECUTE FUNCTION regress_send_on();
UPDATE regress_mv SET p = 2;
INSERT INTO regress_mv VALUES (1, 1), (2, 2), (3, 2);
SELECT * FROM regress_mv_all;
UPDATE regress_mv SET p = 1;
MERGE INTO regress_mv t USING (VALUES (1), (2), (4)) AS s (k) ON t.k = s.k
WHEN MATCHED THEN UPDATE SET p = 2
WHEN NOT MATCHED THEN INSERT VALUES (s.k, 2);
SELECT * FROM regress_mv_all;
SELECT * FROM regress_mv_keys;
ROLLBACK;

-- what the errors say
CREATE TRIGGER "~z" BEFORE INSERT ON regress_mv2 FOR EACH ROW EXECUTE FUNCTION regress_send('next key');
UPDATE regress_mv SET p = 2 WHERE k = 1;
DROP TRIGGER "~z" ON regress_mv2;
CREATE TRIGGER a BEFORE INSERT ON regress_mv2 FOR EACH ROW EXECUTE FUNCTION regress_send('both');
UPDATE regress_mv SET p = 2 WHERE k = 1;
SELECT * FROM regress_mv_all;

SET client_min_messages = warning;
DROP TABLE regress_mv, regress_mv_other CASCADE;
DROP VIEW regress_mv_keys;
DELETE FROM idem.key WHERE scope = 'regress_mv';
DROP FUNCTION regress_send(), regress_move(text, text);
