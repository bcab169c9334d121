-- Every verb, each way to the table, with its refusals: for a server that checks
-- each access to memory, or that forgets all that it has cached at each chance
-- (:discard = 1).  :rounds of each verb.
\set ON_ERROR_STOP 0
SET client_min_messages = warning;
CREATE EXTENSION idem;
-- without caches a row may take long
SET idem.tick_row_timeout = '10min';
SET debug_discard_caches = :discard;
SELECT set_config('deep.rounds', :'rounds', false);
CREATE FUNCTION greet(who text, n int) RETURNS text LANGUAGE sql AS $$SELECT 'hello ' || who || n$$;
SELECT idem_wrap('greet(text,int)');
CREATE TABLE page (id int PRIMARY KEY, body text, version int NOT NULL DEFAULT 1);
INSERT INTO page SELECT generate_series(1, 20);
SELECT idem_attach_version('page', 'version');
CREATE TABLE orders (id int PRIMARY KEY, state text NOT NULL DEFAULT 'draft');
SELECT idem_define('order', $$
stateDiagram-v2
    [*] --> draft
    draft --> pending : submit
    pending --> draft : revise
$$);
SELECT idem_attach('order', 'orders', 'state', history => true);
INSERT INTO orders SELECT generate_series(1, 20);
CREATE TABLE message (id text, body text);
SELECT idem_attach_once('message', '{id}');
CREATE TABLE fenced (id int, fence bigint);
SELECT idem_attach_fence('fenced', 'fence');
CREATE TABLE bomb (id int PRIMARY KEY, state text NOT NULL DEFAULT 'cold');
SELECT idem_define('bomb', $$
stateDiagram-v2
    [*] --> cold
    cold --> lit : light
    lit --> cold : bang after 1 us
$$);
CREATE ROLE hot_owner;
GRANT CREATE ON SCHEMA public TO hot_owner;
ALTER TABLE bomb OWNER TO hot_owner;
SELECT idem_attach('bomb', 'bomb', 'state', history => true);
INSERT INTO bomb SELECT generate_series(1, 20);

-- a partitioned table of each kind, whose owner may not make partitions of it: a
-- warning each
CREATE ROLE hot_stranger;
GRANT CREATE ON SCHEMA public TO hot_stranger;
CREATE TABLE p_once (part int, id int) PARTITION BY LIST (part);
CREATE TABLE p_fenced (part int, id int, fence bigint) PARTITION BY LIST (part);
CREATE TABLE p_page (part int, id int, version int NOT NULL DEFAULT 1, PRIMARY KEY (id, part)) PARTITION BY LIST (part);
CREATE TABLE p_bomb (part int, id int, state text NOT NULL DEFAULT 'cold', PRIMARY KEY (id, part)) PARTITION BY LIST (part);
SELECT format('CREATE TABLE %s_1 PARTITION OF %1$s FOR VALUES IN (1)', t),
	format('CREATE TABLE %s_2 (gone int, LIKE %1$s INCLUDING ALL)', t),
	format('ALTER TABLE %s_2 DROP gone', t),
	format('ALTER TABLE %s ATTACH PARTITION %1$s_2 FOR VALUES IN (2)', t),
	format('INSERT INTO %s SELECT 1, i FROM generate_series(1, 3) AS i', t),
	format('ALTER TABLE %s OWNER TO hot_stranger', t)
FROM unnest('{p_once,p_fenced,p_page,p_bomb}'::text[]) AS t \gexec
SET client_min_messages = error;
SELECT idem_attach_once('p_once', '{id}');
SELECT idem_attach_fence('p_fenced', 'fence');
SELECT idem_attach_version('p_page', 'version');
SELECT idem_attach('bomb', 'p_bomb', 'state', history => true);
SET client_min_messages = warning;
SELECT format('CREATE TABLE %s_3 PARTITION OF %1$s DEFAULT', t)
FROM unnest('{p_once,p_fenced,p_page,p_bomb}'::text[]) AS t \gexec

CREATE PROCEDURE hot(tag text) LANGUAGE plpgsql AS $$
DECLARE
	t text;
	c idem_claimed;
	l idem_lease_acquired;
	home int;
BEGIN
	FOR i IN 1 .. current_setting('deep.rounds')::int LOOP
		PERFORM idem_claim(tag || i, '{"a": [1, 2, {"b": "c"}]}');
		PERFORM idem_step(tag || i, 's', '{"n": 1}');
		BEGIN
			PERFORM idem_once('o' || tag || i);
			IF i % 3 = 0 THEN
				RAISE EXCEPTION 'undone';
			END IF;
		EXCEPTION WHEN raise_exception THEN
			NULL;
		END;
		PERFORM idem_complete(tag || i, repeat('z', i * 60));
		PERFORM idem_claim(tag || i), idem_claim(tag || i, '{"b": 1}'), idem_lookup(tag || i);
		COMMIT;
		SELECT * INTO c FROM idem_claim('l' || tag || i, lease => '1 min');
		PERFORM idem_renew('l' || tag || i, fence => c.fence), idem_retry('l' || tag || i, 'again', fence => c.fence);
		PERFORM idem_claim('s' || tag || i, hold => 'session');
		PERFORM idem_fail('s' || tag || i, 'no', code => 500);
		COMMIT;
		PERFORM idem_reopen('s' || tag || i), idem_claim('s' || tag || i);
		PERFORM idem_unfinished();
		PERFORM idem_release('s' || tag || i);
		PERFORM idem_import('i' || tag || i, 'x', created_at => now() - interval '1 h', ttl => '1 day'),
			idem_import_many(ARRAY['i' || tag || i, 'j' || tag || i], ARRAY['x', NULL]), idem_forget('i' || tag || i, force => true);
		PERFORM set_config('idem.key', 'h' || tag || i, true), idem_child(idem_key(), 'mail');
		PERFORM idem_claim(), idem_complete(response => idem_fingerprint(to_jsonb(i)) || idem_canonical(to_jsonb(tag)));
		COMMIT;
		PERFORM idem_call('c' || tag || i, 'greet(text,int)', '{"who": "x", "n": 1}'),
			idem_call('c' || tag || i, 'greet(text,int)', '{"who": "x", "n": 1}'),
			greet_once('t' || tag || i, 'x', i), greet_once('t' || tag || i, 'x', i);
		t := idem_token_issue('reset', tag || i);
		PERFORM idem_token_peek(t, 'reset', tag || i), idem_token_use(t, 'reset', 'other'),
			idem_token_use(t, 'reset', tag || i), idem_token_use(t, 'reset', tag || i);
		COMMIT;
		SELECT * INTO l FROM idem_lease_acquire('lease' || i, '1 min', owner => tag);
		PERFORM idem_lease_acquire('lease' || i, '1 min'), idem_lease_renew('lease' || i, '1 min', l.fence),
			idem_lease_guard('lease' || i, l.fence);
		INSERT INTO fenced VALUES (i, l.fence);
		UPDATE fenced SET fence = l.fence WHERE id = i;
		PERFORM idem_lease_release('lease' || i, l.fence);
		PERFORM idem_lease_acquire('lease' || i, '1 min'), idem_lease_break('lease' || i);
		PERFORM idem_window('w' || i % 3, '1 min', max => 5);
		PERFORM idem_branch(tag || i, 'b', 'try'), idem_branch(tag || i, 'b', 'cancel'), idem_branch(tag || i, 'b', 'confirm');
		PERFORM idem_try_fire('orders', i % 20 + 1, 'submit'), idem_try_fire('orders', i % 20 + 1, 'revise', key => 'e' || tag || i),
			idem_why_not('orders', i % 20 + 1, 'revise'), idem_allowed('orders', i % 20 + 1), idem_history('orders', i % 20 + 1);
		PERFORM idem_update('page', i % 20 + 1, version, jsonb_build_object('body', i)) FROM page WHERE id = i % 20 + 1;
		PERFORM idem_update('page', i % 20 + 1, 1, '{}');
		INSERT INTO page VALUES (100 + i, 'x');
		PERFORM idem_delete('page', 100 + i, 2), idem_delete('page', 100 + i, 1), idem_delete('page', 100 + i, 1);
		PERFORM idem_fire('bomb', i % 20 + 1, 'light', context => '{"n": 1}');
		BEGIN
			PERFORM idem_fire('bomb', i % 20 + 1, 'light');
		EXCEPTION WHEN SQLSTATE 'ID409' THEN
			NULL;
		END;
		COMMIT;
		PERFORM idem_tick();
		INSERT INTO message VALUES (i, 'm'), (i + 1, 'm');
		COMMIT;
		home := i % 3 + 1;
		INSERT INTO p_once VALUES (home, 9 + i), (home, 10 + i);
		INSERT INTO p_fenced VALUES (home, 9 + i, l.fence);
		UPDATE p_fenced SET part = home % 3 + 1 WHERE id = 9 + i;
		INSERT INTO p_page VALUES (home, 9 + i);
		PERFORM idem_update('p_page', jsonb_build_object('part', home, 'id', 9 + i), 1, '{}');
		UPDATE p_page SET part = -home WHERE part = home AND id = 9 + i;
		PERFORM idem_delete('p_page', jsonb_build_object('part', -home, 'id', 9 + i), version) FROM p_page WHERE part = -home;
		INSERT INTO p_bomb VALUES (home, 9 + i);
		PERFORM idem_fire('p_bomb', jsonb_build_object('part', home, 'id', 9 + i), 'light');
		UPDATE p_bomb SET part = -home WHERE part = home AND id = 9 + i;
		COMMIT;
		PERFORM idem_tick();
		DELETE FROM p_bomb WHERE id = 9 + i;
		COMMIT;
	END LOOP;
END $$;
CALL hot('d');
SET idem.access = sql;
CALL hot('q');
RESET idem.access;
SELECT count(*) FROM idem_once_many(ARRAY(SELECT 'm' || i % 700 FROM generate_series(1, 5 * :rounds) AS i));
SELECT count(*) FROM idem_fire_many('orders', ARRAY(SELECT generate_series(1, 25)), 'submit');
UPDATE orders SET state = CASE state WHEN 'draft' THEN 'pending' ELSE 'draft' END;
SELECT count(*) FROM idem_tick();
SELECT idem_diagram('order', counts => true);
SELECT count(*) FROM idem_lint('order');
SELECT count(*) FROM idem_export();
SELECT count(*) FROM idem_verify('orders');
UPDATE idem.key SET expires_at = now() - interval '1 s';
SELECT * FROM idem_sweep(NULL);
SELECT idem_fence_advance(1000000);
SELECT count(*) FROM idem_stats() UNION ALL SELECT count(*) FROM idem_refusals() UNION ALL SELECT count(*) FROM idem_sweep_progress();
SELECT idem_stats_reset();
SELECT idem_detach('p_bomb', 'state'), idem_detach_version('p_page'), idem_detach_once('p_once'), idem_detach_fence('p_fenced', 'fence');
SELECT idem_detach('bomb', 'state'), idem_detach_version('page'), idem_detach_once('message'), idem_detach_fence('fenced', 'fence');
SELECT idem_grant('postgres', 'operator'), idem_revoke('postgres');
