-- One procedure for each verb, load_VERB(first, last), which calls it once in each
-- transaction; view verbs names them, with the ways to the table to try; view
-- memory is what this backend has of its own, in kB.  Each procedure runs in a
-- database of its own, which is a copy of this one.
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

-- with a short history that no load makes longer
CREATE TABLE few (id int PRIMARY KEY, state text NOT NULL DEFAULT 'off');
SELECT idem_attach('lamp', 'few', 'state', history => true);
INSERT INTO few VALUES (1);

CREATE TABLE bomb (id int PRIMARY KEY, state text NOT NULL DEFAULT 'cold');
SELECT idem_define('bomb', $$
stateDiagram-v2
    [*] --> cold
    cold --> lit : light
    lit --> cold : bang after 1 us
$$);
CREATE ROLE bomber;
GRANT CREATE ON SCHEMA public TO bomber;
ALTER TABLE bomb OWNER TO bomber;
SELECT idem_attach('bomb', 'bomb', 'state', history => true);
INSERT INTO bomb SELECT generate_series(0, 9);

CREATE TABLE message (id text, body text);
SELECT idem_attach_once('message', '{id}');
CREATE TABLE fenced (id int PRIMARY KEY, fence bigint);
INSERT INTO fenced SELECT generate_series(0, 999), 1;
SELECT idem_attach_fence('fenced', 'fence');
CREATE TABLE bare (id int PRIMARY KEY, state text, version int NOT NULL DEFAULT 1, fence bigint);

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

-- What ends a claim, in every way; one transaction each.
CALL define('ends', $$
	k := 'e' || i;
	SELECT * INTO c FROM idem_claim(k, '{"a": 1}', ttl => '1 h');
	ASSERT c.run AND idem_step(k, 's', '{"n": 1}') AND idem_retry(k, 'again');
	SELECT * INTO c FROM idem_claim(k, '{"a": 1}');
	ASSERT c.attempt = 2 AND idem_release(k);
	SELECT * INTO c FROM idem_claim(k, '{"a": 1}');
	ASSERT c.step = 's' AND idem_fail(k, 'no', code => 500);
	ASSERT (idem_claim(k)).outcome = 'failed' AND (idem_claim(k, '{"b": 1}')).outcome = 'mismatch';
	ASSERT idem_reopen(k);
	ASSERT (SELECT outcome FROM idem_lookup(k)) = 'open';
	SELECT * INTO c FROM idem_claim(k, '{"a": 1}');
	ASSERT (SELECT count(*) FROM idem_unfinished()) = 1;
	ASSERT idem_complete(k, '{"b": 2}'::jsonb) AND idem_forget(k, force => true);$$, 'c record; k text;');
CALL define('lease_claim', $$
	SELECT * INTO c FROM idem_claim('g' || i, lease => '1 min');
	COMMIT;
	ASSERT c.run AND idem_renew('g' || i, '2 min', fence => c.fence) > now();
	ASSERT idem_step('g' || i, 's', fence => c.fence);
	ASSERT idem_complete('g' || i, '[1]'::json, fence => c.fence);$$, 'c record;');
CALL define('session_claim', $$
	ASSERT (idem_claim('v' || i, hold => 'session')).run;
	COMMIT;
	ASSERT idem_complete('v' || i, ''::text);$$);
CALL define('rollback', $$
	BEGIN
		ASSERT (idem_claim('y' || i)).run AND idem_once('z' || i);
		PERFORM idem_token_issue('p'), idem_branch('y' || i, 'b', 'try'), idem_lease_acquire('y', '1 min');
		RAISE EXCEPTION 'undone';
	EXCEPTION WHEN raise_exception THEN
		NULL;
	END;$$);
CALL define('refused', $$
	BEGIN
		PERFORM idem_complete('none' || i, 'x'::text);
		ASSERT false;
	EXCEPTION WHEN SQLSTATE 'ID409' THEN
		NULL;
	END;
	BEGIN
		UPDATE lamp SET state = 'nowhere' WHERE id = abs(i % 1000);
		ASSERT false;
	EXCEPTION WHEN SQLSTATE 'ID409' THEN
		NULL;
	END;
	BEGIN
		UPDATE page SET version = -1 WHERE id = abs(i % 1000);
		ASSERT false;
	EXCEPTION WHEN SQLSTATE 'ID412' THEN
		NULL;
	END;$$);
CALL define('many', $$
	ASSERT (SELECT count(*) FROM idem_once_many(ARRAY['a' || i, 'b' || i, 'a' || i])) = 2;
	ASSERT idem_import_many(ARRAY['i' || i, 'j' || i], ARRAY['x', NULL]) = 2 AND NOT idem_import('i' || i, 'y');$$);
CALL define('peek', $$
	ASSERT idem_token_peek(t, 'p') = 'valid' AND idem_token_peek('x' || t, 'p') = 'unknown';$$,
	't text := idem_token_issue(''p'', ttl => ''1 day'');');
CALL define('lease_guard', $$
	SELECT * INTO l FROM idem_lease_acquire('g' || i % 1000, '1 min', owner => 'me');
	ASSERT l.run AND idem_lease_guard('g' || i % 1000, l.fence);
	ASSERT (idem_lease_renew('g' || i % 1000, '2 min', l.fence)).outcome = 'renewed';
	ASSERT idem_lease_break('g' || i % 1000);$$, 'l record;');
CALL define('try_fire', $$
	SELECT * INTO f FROM idem_try_fire('lamp', abs(i % 1000), 'flip', key => 'k' || i, context => '{"a": 1}');
	ASSERT f.outcome = 'applied';
	ASSERT (idem_try_fire('lamp', abs(i % 1000), 'flip', key => 'k' || i)).outcome = 'already';$$, 'f record;');
CALL define('fire_many', $$
	ASSERT (SELECT count(*) FROM idem_fire_many('lamp', ARRAY[abs(i % 1000), -1, abs((i + 1) % 1000)], 'flip')) = 3;$$);
CALL define('ask', $$
	PERFORM idem_allowed('few', 1), idem_history('few', 1);
	ASSERT idem_why_not('few', 1, 'flip') IS NULL;
	ASSERT NOT EXISTS (SELECT FROM idem_verify('few'));$$);
CALL define('plain', $$
	UPDATE lamp SET state = CASE state WHEN 'on' THEN 'off' ELSE 'on' END WHERE id = abs(i % 1000);
	UPDATE page SET body = i WHERE id = abs(i % 1000);
	INSERT INTO message VALUES (i, 'x'), (i, 'y');
	UPDATE fenced SET fence = fence + 1 WHERE id = abs(i % 1000);$$);
CALL define('delete', $$
	INSERT INTO page VALUES (2000, 'x') ON CONFLICT DO NOTHING;
	ASSERT (idem_delete('page', 2000, 1)).outcome = 'deleted';
	ASSERT (idem_delete('page', 2000, 1)).outcome = 'missing';$$);
CALL define('tick', $$
	UPDATE bomb SET state = 'lit' WHERE id = abs(i % 10);
	ASSERT (SELECT count(*) FROM idem_tick() WHERE outcome = 'applied') = 1;$$);
-- each removes what it has at hand, which is at times more than one key, and none
-- where the table was being vacuumed
CALL define('sweep', $$
	PERFORM idem_once('x' || i, ttl => '1 us');
	COMMIT;
	SELECT removed + n INTO n FROM idem_sweep() WHERE kind = 'key';
	ASSERT i < last OR n >= (last - first) * 0.9;$$, 'n int := 0;');
CALL define('pure', $$
	ASSERT idem_canonical(jsonb_build_object('b', i, 'a', ARRAY[1.50])) <> idem_fingerprint(jsonb_build_object('b', i));
	ASSERT idem_child('k' || i, 'charge') IS NOT NULL AND idem_key() IS NULL;
	ASSERT idem_fence_advance(abs(i) + 1) > 0 AND idem_version() IS NOT NULL;
	PERFORM idem_stats(), idem_refusals(), idem_sweep_progress(), idem_stats_reset();$$);
-- lint counts the rows of a machine
CALL define('text_of', $$
	PERFORM idem_diagram('lamp'), idem_lint('bomb'), idem_export();$$);
-- What changes catalogs, whose own cost is much greater than what is ours.
-- Not idem_wrap(), and no write of a fence: PL/pgSQL keeps what it has compiled
-- for a function, or a trigger, that is gone.
CALL define('attach', $$
	PERFORM idem_define('odd', 'stateDiagram-v2' || E'\n[*] --> a\na --> b : e' || abs(i % 2));
	PERFORM idem_attach('odd', 'bare', 'state'), idem_attach_version('bare', 'version'), idem_attach_once('bare', '{id}'),
		idem_attach_fence('bare', 'fence');
	INSERT INTO bare VALUES (i, 'a');
	UPDATE bare SET state = 'b' WHERE id = i;
	PERFORM idem_forget(key, scope, true) FROM idem.key WHERE scope = 'once.public.bare';
	PERFORM idem_grant('bomber', 'app'), idem_revoke('bomber');
	PERFORM idem_detach('bare', 'state'), idem_detach_version('bare'), idem_detach_once('bare'),
		idem_detach_fence('bare', 'fence');
	TRUNCATE bare;$$);

-- "commits" of each round, "fewer" of which are made
CREATE VIEW verbs AS
	SELECT substr(proname, 6) AS verb, access, (length(prosrc) - length(replace(prosrc, 'COMMIT', ''))) / 6 AS commits,
		CASE proname WHEN 'load_attach' THEN 100 ELSE 1 END AS fewer
	FROM pg_proc, unnest(ARRAY['direct', 'sql']) AS access
	WHERE proname LIKE 'load\_%' AND
		(access = 'direct' OR proname IN ('load_claim', 'load_replay', 'load_once', 'load_call', 'load_ends', 'load_many', 'load_update'))
	ORDER BY pg_proc.oid, access;

-- Functions that no procedure calls by name, but for those that others call: a
-- claim with nothing but a key, a twin, the SQL way to the table, and what guards
-- a machine's table.
CREATE VIEW uncalled AS
	SELECT p.proname
	FROM pg_proc AS p
		JOIN pg_depend AS d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
		JOIN pg_extension AS e ON e.oid = d.refobjid AND e.extname = 'idem'
	WHERE p.prorettype <> ALL ('{trigger, event_trigger}'::regtype[]) AND 'internal'::regtype <> ALL (p.proargtypes) AND
		p.proname <> ALL ('{idem_wrap, idem_claim_key, idem_twin, idem_twin_value, idem_not_initial,
			idem_each_row, idem_inserted_in, idem_inserted_out, idem_inserted_cmp}') AND
		NOT EXISTS (SELECT FROM pg_proc AS l WHERE l.proname LIKE 'load\_%' AND l.prosrc ~ ('\m' || p.proname || '\M'));
