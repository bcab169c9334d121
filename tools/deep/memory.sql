-- One procedure for each verb, load_VERB(first, last), which calls it once in each
-- transaction; view verbs names them, with the ways to the table to try; view
-- memory is what this backend has of its own, in kB.
SET client_min_messages = warning;
CREATE EXTENSION idem;

CREATE VIEW memory AS
	SELECT (regexp_match(pg_read_file('/proc/self/status'), 'RssAnon:\s+(\d+)'))[1]::int AS rss,
		(SELECT sum(total_bytes) / 1024 FROM pg_backend_memory_contexts)::int AS contexts;

CREATE FUNCTION greet(who text, n int) RETURNS text LANGUAGE sql AS $$SELECT 'hello ' || who || n$$;
SELECT idem_wrap('greet(text,int)');

CREATE TABLE page (id int PRIMARY KEY, body text, version int NOT NULL DEFAULT 1);
INSERT INTO page SELECT generate_series(0, 999);
SELECT idem_attach_version('page', 'version');

CREATE TABLE lamp (id int PRIMARY KEY, state text NOT NULL DEFAULT 'off');
SELECT idem_define('lamp', $$
stateDiagram-v2
    [*] --> off
    off --> on : flip
    on --> off : flip
$$);
SELECT idem_attach('lamp', 'lamp', 'state', history => true);
INSERT INTO lamp SELECT generate_series(0, 999);

-- A verb that did not answer what it should has not been measured.
CREATE PROCEDURE define(verb text, body text, declarations text DEFAULT '') LANGUAGE plpgsql AS $define$
BEGIN
	EXECUTE format($$
		CREATE PROCEDURE load_%s(first int, last int) LANGUAGE plpgsql AS %L$$,
		verb, format($$
		DECLARE
			%s
		BEGIN
			FOR i IN first .. last LOOP
				%s
				COMMIT;
			END LOOP;
		END$$, declarations, body));
END $define$;

-- by hand, to compare with
CREATE TABLE hand (key text PRIMARY KEY, response text, at timestamptz DEFAULT now());
CALL define('insert', $$INSERT INTO hand VALUES ('h' || i, 'done');$$);
CALL define('claim', $$
	SELECT * INTO c FROM idem_claim('m' || i, '{"a": 1}');
	ASSERT c.run AND idem_complete('m' || i, 'done'::text);$$, 'c record;');
CALL define('replay', $$
	SELECT * INTO c FROM idem_claim('r' || i % 100);
	IF c.run THEN PERFORM idem_complete('r' || i % 100, repeat('r', 200)); END IF;$$, 'c record;');
CALL define('once', $$ASSERT idem_once('o' || i);$$);
CALL define('call', $$
	ASSERT idem_call('c' || i, 'greet(text,int)', jsonb_build_object('who', 'w', 'n', i))::text = '"hello w' || i || '"';$$);
CALL define('twin', $$ASSERT greet_once('t' || i, 'w', i) = 'hello w' || i;$$);
CALL define('token', $$
	t := idem_token_issue('reset', 'u' || i);
	ASSERT idem_token_use(t, 'reset', 'u' || i) = 'consumed';$$, 't text;');
CALL define('lease', $$
	SELECT * INTO l FROM idem_lease_acquire('l' || i % 1000, '1 min');
	ASSERT l.run AND idem_lease_release('l' || i % 1000, l.fence) = 'released';$$, 'l record;');
CALL define('window', $$
	SELECT * INTO w FROM idem_window('w' || i % 1000, '1 ms', max => 5);
	ASSERT w.allowed IS NOT NULL;$$, 'w record;');
CALL define('branch', $$ASSERT idem_branch('s' || i, 'b', 'try') = 'run';$$);
CALL define('fire', $$
	SELECT * INTO f FROM idem_fire('lamp', abs(i % 1000), 'flip');
	ASSERT f.outcome = 'applied';$$, 'f record;');
CALL define('update', $$
	SELECT version INTO v FROM page WHERE id = abs(i % 1000);
	SELECT * INTO u FROM idem_update('page', abs(i % 1000), v, jsonb_build_object('body', i));
	ASSERT u.outcome = 'updated';$$, 'u record; v int;');

CREATE VIEW verbs AS
	SELECT proname AS verb, access
	FROM pg_proc, unnest(ARRAY['direct', 'sql']) AS access
	WHERE proname LIKE 'load\_%' AND
		(access = 'direct' OR proname IN ('load_claim', 'load_replay', 'load_once', 'load_call'))
	ORDER BY pg_proc.oid, access;

-- The next verb starts with small tables.
CREATE PROCEDURE forget() LANGUAGE sql AS 'TRUNCATE idem.key, idem.token, idem.branch';
