-- A load of keys that stay for ever fills the pages of idem.key; one of keys
-- that expire leaves room for what comes after them.
SET client_min_messages = warning;
CREATE TABLE regress_once_pages (id int PRIMARY KEY, key text);
-- bytes of pages for each key
CREATE FUNCTION regress_once_load(name text) RETURNS bigint LANGUAGE sql AS $$
	DELETE FROM regress_once_pages;
	INSERT INTO regress_once_pages SELECT i, name || i FROM generate_series(1, 4000) i;
	SELECT count(DISTINCT (ctid::text::point)[0]) * current_setting('block_size')::int / 4000 FROM idem.key
	WHERE scope = 'once.public.regress_once_pages' AND key LIKE '%' || name || '%';
$$;
SELECT idem_attach_once('regress_once_pages', '{key}', ttl => '1 day');
SELECT regress_once_load('expiring ') > 150 AS expiring;
SELECT idem_detach_once('regress_once_pages');
SELECT idem_attach_once('regress_once_pages', '{key}');
SELECT regress_once_load('for ever ') BETWEEN 50 AND 150 OR current_setting('idem.access') = 'sql' AS for_ever;
SELECT regress_once_load('for ever ') BETWEEN 50 AND 150 OR current_setting('idem.access') = 'sql' AS repeated, count(*) FROM regress_once_pages;

DROP FUNCTION regress_once_load;
DROP TABLE regress_once_pages;
DELETE FROM idem.key WHERE scope = 'once.public.regress_once_pages';
