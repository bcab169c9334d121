-- What the parts crash and cancel run: each function calls a verb with a random
-- key and does its work in the same transaction.  audit.sql knows what must hold
-- whatever became of these transactions.
SET client_min_messages = warning;
CREATE EXTENSION idem;

CREATE TABLE effect (key text NOT NULL);
CREATE TABLE fence (n bigserial, name text NOT NULL, fence bigint NOT NULL);

CREATE TABLE page (id int PRIMARY KEY, body text, version int NOT NULL DEFAULT 1);
INSERT INTO page SELECT generate_series(1, 50);
SELECT idem_attach_version('page', 'version');

CREATE TABLE orders (id int PRIMARY KEY, state text NOT NULL DEFAULT 'draft');
SELECT idem_define('order', $$
stateDiagram-v2
    [*] --> draft
    draft --> pending : submit
    pending --> approved : approve
    pending --> rejected : reject
    rejected --> draft : revise
    approved --> draft : reopen
$$);
SELECT idem_attach('order', 'orders', 'state', history => true);
INSERT INTO orders SELECT generate_series(1, 50);

CREATE TABLE issued (id int PRIMARY KEY, token text NOT NULL);

CREATE FUNCTION note(key text) RETURNS text LANGUAGE sql AS
	'INSERT INTO effect VALUES (key) RETURNING ''r'' || effect.key';

CREATE FUNCTION work_claim(k text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	c idem_claimed;
BEGIN
	SELECT * INTO c FROM idem_claim(k, jsonb_build_object('k', k));
	IF c.run THEN
		PERFORM idem_complete(k, note(k));
	ELSIF c.outcome <> 'completed' OR c.response IS DISTINCT FROM 'r' || k THEN
		RAISE EXCEPTION 'wrong answer: %', c;
	END IF;
END $$;

CREATE FUNCTION work_once(k text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	IF idem_once(k) THEN
		PERFORM note(k);
	END IF;
END $$;

CREATE FUNCTION work_call(k text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	IF idem_call(k, 'note(text)', jsonb_build_object('key', k))::text IS DISTINCT FROM to_jsonb('r' || k)::text THEN
		RAISE EXCEPTION 'wrong answer';
	END IF;
END $$;

CREATE FUNCTION work_fire(n int) RETURNS void LANGUAGE sql AS $$
	SELECT idem_try_fire('orders', n % 50 + 1,
		(ARRAY['submit', 'approve', 'reject', 'revise', 'reopen'])[1 + (random() * 4)::int])
$$;

CREATE FUNCTION work_update(n int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	v int;
	u idem_versioned;
BEGIN
	SELECT version INTO v FROM page WHERE id = n % 50 + 1;
	SELECT * INTO u FROM idem_update('page', n % 50 + 1, v, jsonb_build_object('body', n));
	IF u.outcome = 'updated' THEN
		PERFORM note('page' || n % 50 + 1);
	END IF;
END $$;

CREATE FUNCTION work_token(n int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	t text;
BEGIN
	SELECT token INTO t FROM issued WHERE id = n;
	IF t IS NULL THEN
		INSERT INTO issued VALUES (n, idem_token_issue('reset', 'u' || n)) ON CONFLICT DO NOTHING;
	ELSIF idem_token_use(t, 'reset', 'u' || n) = 'consumed' THEN
		PERFORM note('token' || n);
	END IF;
END $$;

CREATE FUNCTION work_branch(n int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	op text := (ARRAY['try', 'confirm', 'cancel'])[1 + (random() * 2)::int];
BEGIN
	IF idem_branch('s' || n, 'b', op) = 'run' THEN
		PERFORM note(op || n);
	END IF;
END $$;

CREATE FUNCTION work_lease(n int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	l idem_lease_acquired;
BEGIN
	SELECT * INTO l FROM idem_lease_acquire('l' || n % 20, '1 s');
	IF l.run THEN
		INSERT INTO fence (name, fence) VALUES ('l' || n % 20, l.fence);
		PERFORM idem_lease_release('l' || n % 20, l.fence);
	END IF;
END $$;

CREATE FUNCTION work_window(n int) RETURNS void LANGUAGE sql AS
	'SELECT idem_window(''w'' || n % 20, ''1 s'', max => 5)';

CREATE FUNCTION work(n int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	CASE (random() * 8)::int
		WHEN 0 THEN PERFORM work_claim('t' || n);
		WHEN 1 THEN PERFORM work_once('o' || n);
		WHEN 2 THEN PERFORM work_call('c' || n);
		WHEN 3 THEN PERFORM work_fire(n);
		WHEN 4 THEN PERFORM work_update(n);
		WHEN 5 THEN PERFORM work_token(n);
		WHEN 6 THEN PERFORM work_branch(n);
		WHEN 7 THEN PERFORM work_lease(n);
		WHEN 8 THEN PERFORM work_window(n);
	END CASE;
END $$;

-- A caller that goes on after a cancel, as an application with a savepoint does.
CREATE FUNCTION work_on(n int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	BEGIN
		PERFORM work(n);
	EXCEPTION WHEN query_canceled THEN
		IF EXISTS (SELECT FROM idem_unfinished()) THEN
			RAISE EXCEPTION 'a claim is left unfinished by a cancel';
		END IF;
	END;
	PERFORM work_once('o' || n + 1);
END $$;

-- n requests to a backend chosen at random, each a moment after the last.
CREATE PROCEDURE cancel(n int, OUT sent int) LANGUAGE plpgsql AS $$
DECLARE
	victim int;
BEGIN
	sent := 0;
	WHILE sent < n LOOP
		PERFORM pg_stat_clear_snapshot();
		SELECT pid INTO victim FROM pg_stat_activity
		WHERE application_name = 'work' AND state = 'active' ORDER BY random() LIMIT 1;
		IF victim IS NOT NULL AND pg_cancel_backend(victim) THEN
			sent := sent + 1;
		END IF;
		PERFORM pg_sleep(random() * 0.003);
		COMMIT;
	END LOOP;
END $$;
