-- A call whose key is found where the session saw it last takes no lock of the
-- primary key's index; where its result then does not fit on the page, it does.
SET client_min_messages = warning;
CREATE FUNCTION regress_page_big(n int) RETURNS text LANGUAGE sql AS $$SELECT repeat('x', n)$$;
CREATE TABLE regress_page_place (key text, page int, new_page int, locked bool);
CREATE FUNCTION regress_page_of(wanted text) RETURNS int LANGUAGE sql AS
	$$SELECT (ctid::text::point)[0]::int FROM idem.key WHERE key = wanted$$;
VACUUM idem.key;
SELECT count(idem_call('page ' || i, 'regress_page_big(int)', '[1]', ttl => '1 ms')) FROM generate_series(1, 12) AS i;
DO $$
DECLARE
	place regress_page_place;
BEGIN
	FOR i IN 1..12 LOOP
		place.key := 'page ' || i;
		place.page := regress_page_of(place.key);
		WHILE EXISTS (SELECT FROM idem_lookup(place.key)) LOOP
			NULL;
		END LOOP;
		PERFORM idem_call(place.key, 'regress_page_big(int)', '[1600]', ttl => '1 ms');
		place.new_page := regress_page_of(place.key);
		place.locked := EXISTS (SELECT FROM pg_locks WHERE pid = pg_backend_pid()
			AND relation = 'idem.key_pkey'::regclass AND mode = 'RowExclusiveLock');
		INSERT INTO regress_page_place SELECT place.*;
		COMMIT;
	END LOOP;
END $$;
SELECT count(*) > 0 AS moved, bool_and(locked) OR current_setting('idem.access') = 'sql' AS locked FROM regress_page_place WHERE new_page <> page;
DROP TABLE regress_page_place;
DROP FUNCTION regress_page_big, regress_page_of;
DELETE FROM idem.key WHERE key LIKE 'page %';
