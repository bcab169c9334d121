-- The bounds of keys, scopes and spans of time.  After an error nothing is
-- stored.  Letters outside ASCII are given as bytes.

\set VERBOSITY sqlstate
\pset null '(null)'

-- keys: 1 to 1024 bytes
BEGIN;
SELECT n, octet_length(key), c.outcome
FROM unnest('{1,2,3,4,5}'::int[], ARRAY['x', repeat('x', 1024), repeat(E'\xc3\xa9', 512), repeat(E'\xf0\x9f\x98\x80', 256), repeat(' ', 1024)]) AS k (n, key), idem_claim(key) AS c;
SELECT count(*), max(octet_length(key)) FROM idem_unfinished();
SELECT count(idem_complete(key, 'r')) FROM idem_unfinished();
SELECT count(*) FILTER (WHERE outcome = 'completed') FROM idem.key, idem_claim(key);
ROLLBACK;
SELECT idem_claim('');
SELECT idem_claim(repeat('x', 1025));
SELECT idem_claim(repeat('x', 1023) || E'\xc3\xa9');
SELECT idem_claim(repeat(E'\xf0\x9f\x98\x80', 257));
SELECT idem_claim(repeat('x', 1000000));
SELECT idem_once(repeat('x', 1025));
SELECT idem_lookup(repeat('x', 1025));
SELECT idem_complete(repeat('x', 1025));
SELECT idem_fail(repeat('x', 1025));
SELECT idem_retry(repeat('x', 1025));
SELECT idem_release(repeat('x', 1025));
SELECT idem_renew(repeat('x', 1025));
SELECT idem_step(repeat('x', 1025), 's');
SELECT idem_forget(repeat('x', 1025));
SELECT idem_reopen(repeat('x', 1025));
SELECT idem_import(repeat('x', 1025));
SELECT idem_import_many(ARRAY[repeat('x', 1025)]);
SET idem.key = '';
SELECT idem_claim();
SELECT set_config('idem.key', repeat('x', 1025), false) IS NOT NULL AS set;
SELECT idem_claim();
SELECT set_config('idem.key', repeat('x', 1024), false) IS NOT NULL AS set;
SELECT octet_length(idem_key());
BEGIN;
SELECT outcome FROM idem_claim();
ROLLBACK;
RESET idem.key;

-- text of any form; NFC and NFD, upper and lower case, blanks: two keys each
CREATE TEMP TABLE odd (n int, key text);
INSERT INTO odd VALUES (1, ''''), (2, '"'), (3, '%s%n%1$s'), (4, '\'), (5, E'\n'), (6, ' '), (7, '  '), (8, E'\t\r\n'),
	(9, E'\xf0\x9f\x98\x80'), (10, E'\xc3\xa9'), (11, E'e\xcc\x81'), (12, 'e'), (13, 'E'), (14, 'e '), (15, ' e'), (16, 'NULL'), (17, '{}'),
	(18, '$1'), (19, ''' OR true --'), (20, '/'), (21, E'\x01'), (22, '(1,2)'), (23, repeat('\', 1024)), (24, '0'), (25, '00');
BEGIN;
SELECT count(*) FILTER (WHERE c.outcome = 'claimed') AS claimed FROM odd, idem_claim(key) AS c;
SELECT count(*) AS completed FROM odd WHERE idem_complete(key, key);
COMMIT;
SELECT count(*) AS replayed FROM odd, idem_claim(key) AS c WHERE c.outcome = 'completed' AND c.response = odd.key;
SELECT count(*) AS looked_up FROM odd, idem_lookup(key) AS l WHERE l.response = odd.key;
SELECT count(*) AS known FROM odd WHERE NOT idem_once(key);
SELECT count(*) AS known FROM idem.key WHERE key IN (SELECT key FROM odd);
SELECT count(*) AS new FROM idem_once_many((SELECT array_agg(key ORDER BY n) FROM odd), 'regress_many');
SELECT count(*) AS as_step_too FROM odd, idem_claim('s' || n, lease => '1 h') AS c WHERE idem_step('s' || n, key, to_jsonb(key), fence => c.fence);
SELECT count(*) AS same FROM odd, idem_lookup('s' || n) AS l WHERE l.step = odd.key AND l.progress #>> '{}' = odd.key;
DELETE FROM idem.key;

-- scopes: "name" or "name/tenant", 1 to 128 bytes together
BEGIN;
SELECT octet_length(scope), c.outcome
FROM unnest(ARRAY['x', repeat('x', 128), repeat('x', 64) || '/' || repeat('y', 63), repeat(E'\xc3\xa9', 64), 'a/b/c', 'a//', 'a/ ', '''', '"', '%s', ' ', E'\n', E'\\', E'\xf0\x9f\x98\x80/\xf0\x9f\x98\x80']) AS scope, idem_claim('k', scope => scope) AS c;
SELECT count(*), bool_and(idem_complete(key, scope, scope)) FROM idem_unfinished();
SELECT count(*) FILTER (WHERE outcome = 'completed' AND c.response = k.scope) FROM idem.key AS k, idem_claim(k.key, scope => k.scope) AS c;
ROLLBACK;
SELECT idem_claim('k', scope => '');
SELECT idem_claim('k', scope => '/');
SELECT idem_claim('k', scope => '/t');
SELECT idem_claim('k', scope => 'a/');
SELECT idem_claim('k', scope => repeat('x', 129));
SELECT idem_claim('k', scope => repeat('x', 127) || E'\xc3\xa9');
SELECT idem_claim('k', scope => repeat('x', 64) || '/' || repeat('y', 64));
SELECT idem_claim('k', scope => repeat('x', 1000000));
SELECT idem_lookup('k', repeat('x', 129));
SELECT idem_complete('k', scope => repeat('x', 129));
SELECT idem_forget('k', repeat('x', 129));
SELECT idem_import('k', scope => 'a/');
SELECT set_config('idem.scope', repeat('x', 129), false) IS NOT NULL AS set;
SELECT idem_claim('k');
SELECT idem_lookup('k');
RESET idem.scope;

-- spans: greater than zero, at most 1000 years
CREATE FUNCTION pg_temp.span(statement text, span interval) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	answer text;
BEGIN
	EXECUTE statement INTO answer USING span;
	RETURN coalesce(answer, 'no row');
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE;
END $$;
CREATE TEMP TABLE span (n int, span interval);
INSERT INTO span VALUES (1, '0 s'), (2, '-1 us'), (3, '-1 day'), (4, '-178000000 years'), (5, '1 mon -31 days'), (6, '1001 years'), (7, '178000000 years'),
	(8, '2147483647 days'), (9, '2562047788:00:54.775807'), (10, '-2562047788:00:54.775807'), (11, '178000000 years -2147483648 days'),
	(12, '1 us'), (13, '-1 mon 32 days'), (14, '1000 years'), (15, NULL);
SELECT n, span,
	pg_temp.span('SELECT outcome FROM idem_claim(''t'' || random(), ttl => $1, lease => ''1 h'')', span) AS ttl,
	pg_temp.span('SELECT outcome FROM idem_claim(''l'' || random(), lease => $1, hold => ''lease'')', span) AS lease,
	pg_temp.span('SELECT outcome FROM idem_claim(''w'' || random(), wait => $1, lease => ''1 h'')', span) AS wait,
	pg_temp.span('SELECT idem_once(''o'' || random(), ttl => $1)', span) AS once,
	pg_temp.span('SELECT count(*) FROM idem_once_many(ARRAY[''m'' || random()], ttl => $1)', span) AS once_many,
	pg_temp.span('SELECT idem_import(''i'' || random(), ttl => $1)', span) AS import,
	pg_temp.span('SELECT idem_import_many(ARRAY[''j'' || random()], ttl => $1)', span) AS import_many
FROM span ORDER BY n;
-- no more was stored than the last lines tell
SELECT left(key, 1) AS what, count(*) FROM idem.key GROUP BY 1 ORDER BY 1;
SELECT fence FROM idem_claim('renew', lease => '1 h') \gset
SELECT n, pg_temp.span('SELECT idem_renew(''renew'', $1, fence => ' || :fence || ') IS NOT NULL', span) AS renew FROM span ORDER BY n;
CREATE FUNCTION pg_temp.after(span interval) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	PERFORM idem_retry('after', after => span) FROM idem_claim('after') WHERE run;
	RAISE EXCEPTION USING ERRCODE = 'ZZ000', MESSAGE = (SELECT outcome FROM idem_lookup('after'));
EXCEPTION
	WHEN SQLSTATE 'ZZ000' THEN
		RETURN SQLERRM;
	WHEN OTHERS THEN
		RETURN SQLSTATE;
END $$;
SELECT n, pg_temp.after(span) FROM span ORDER BY n;

-- an argument out of range is refused also where the verdict would not need it
SELECT idem_once('known');
SELECT idem_claim('known', ttl => '0 s');
SELECT idem_claim('known', lease => '-1 s');
SELECT idem_claim('known', wait => '-1 s');
SELECT idem_claim('known', hold => 'x');
SELECT idem_once('known', ttl => '0 s');

-- a scope with the longest spans
INSERT INTO idem.scope (name, lease, ttl, keep_failures) VALUES ('regress_long', '1000 years', '1000 years', '1000 years');
SELECT fence FROM idem_claim('k', scope => 'regress_long', hold => 'lease') \gset
SELECT idem_fail('k', scope => 'regress_long', fence => :fence);
SELECT idem_once('o', 'regress_long');
SELECT key, state, expires_at - finished_at > '360000 days' AS long FROM idem.key WHERE scope = 'regress_long' ORDER BY key;
DELETE FROM idem.scope;

-- code is any integer; fences that cannot be
SELECT idem_complete('k', code => 2147483648);
SELECT idem_complete('k', fence => 9223372036854775808);

DELETE FROM idem.key;
