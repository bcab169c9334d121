-- What is there when the clock jumps, and what has to be so afterwards, at each
-- of the times.  must(what, true) passes; anything else is told in one line.
-- Loaded after load.sql.
SET client_min_messages = warning;
INSERT INTO idem.scope (name, no_expiry) VALUES ('kept', true);
CREATE TABLE memo (name text PRIMARY KEY, value text);
CREATE FUNCTION memo(name text) RETURNS text LANGUAGE sql AS 'SELECT value FROM memo WHERE memo.name = $1';
CREATE FUNCTION must(what text, fact bool) RETURNS SETOF text LANGUAGE sql AS
	$$SELECT what WHERE fact IS DISTINCT FROM true$$;
-- the SQLSTATE of a statement that fails, else its answer
CREATE FUNCTION told(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	answer text;
BEGIN
	EXECUTE statement INTO answer;
	RETURN answer;
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE;
END $$;

CREATE ROLE ringer;
GRANT CREATE ON SCHEMA public TO ringer;
CREATE TABLE alarm (id int PRIMARY KEY, state text NOT NULL DEFAULT 'still');
ALTER TABLE alarm OWNER TO ringer;
SELECT idem_define('alarm', $$
stateDiagram-v2
    [*] --> still
    still --> waiting : wind
    still --> brief : hurry
    waiting --> rung : ring after 1 h
    brief --> rung : ring after 1 s
    rung --> still : rest
$$);
SELECT idem_attach('alarm', 'alarm', 'state', history => true);
INSERT INTO alarm SELECT generate_series(1, 9);

-- A full set of records whose names end in "tag".
CREATE PROCEDURE make(tag text, n int) LANGUAGE plpgsql AS $$
DECLARE
	t text;
BEGIN
	PERFORM idem_claim('done' || tag, '{"a": 1}', ttl => '1 h');
	PERFORM idem_complete('done' || tag, 'first'::text);
	PERFORM idem_claim('done' || tag, scope => 'kept');
	PERFORM idem_complete('done' || tag, 'first'::text, 'kept');
	PERFORM idem_once('once' || tag, 'kept');
	INSERT INTO memo SELECT 'held' || tag, fence FROM idem_claim('held' || tag, lease => '1 min');
	INSERT INTO memo SELECT 'lease' || tag, fence FROM idem_lease_acquire('lease' || tag, '1 min');
	INSERT INTO memo VALUES ('token' || tag, idem_token_issue('p', 's' || tag));
	PERFORM idem_token_issue('p', 'r' || tag, replace => true);
	t := idem_token_issue('p');
	INSERT INTO memo VALUES ('used' || tag, t);
	PERFORM idem_token_use(t, 'p');
	PERFORM idem_window('window' || tag, '1 min', max => 2), idem_window('window' || tag, '1 min', max => 2);
	PERFORM idem_window('brief' || tag, '1 s');
	PERFORM idem_branch('saga' || tag, 'b', 'try'), idem_branch('saga' || tag, 'b', 'confirm');
	PERFORM idem_fire('alarm', n, 'wind');
END $$;

-- What holds while the clock is no later than 1 minute after make(), however
-- far back it is: nothing is forgotten, nothing is given to somebody else.
CREATE FUNCTION still(tag text, n int) RETURNS SETOF text LANGUAGE sql AS $$
	SELECT must('a completed key replays', (idem_claim('done' || tag, '{"a": 1}')).response = 'first')
	UNION ALL SELECT must('another request is a mismatch', (idem_claim('done' || tag, '{"a": 2}')).outcome = 'mismatch')
	UNION ALL SELECT must('a key of a scope without expiry replays', (idem_claim('done' || tag, scope => 'kept')).response = 'first')
	UNION ALL SELECT must('what was done once is not done again', NOT idem_once('once' || tag, 'kept'))
	UNION ALL SELECT must('a lease claim is in progress', (idem_claim('held' || tag)).outcome = 'in_progress')
	UNION ALL SELECT must('its fence may go on', idem_step('held' || tag, 's', fence => memo('held' || tag)::bigint))
	UNION ALL SELECT must('a lease is held', (idem_lease_acquire('lease' || tag, '1 min')).outcome = 'held')
	UNION ALL SELECT must('its fence guards', idem_lease_guard('lease' || tag, memo('lease' || tag)::bigint))
	UNION ALL SELECT must('a token is valid', idem_token_peek(memo('token' || tag), 'p', 's' || tag) = 'valid')
	UNION ALL SELECT must('a used token is reused', idem_token_use(memo('used' || tag), 'p') = 'reused')
	UNION ALL SELECT must('a branch is a duplicate', idem_branch('saga' || tag, 'b', 'confirm') = 'duplicate')
	UNION ALL SELECT must('a branch that was confirmed is not cancelled', told(format($q$SELECT idem_branch(%L, 'b', 'cancel')$q$, 'saga' || tag)) <> 'run')
	UNION ALL SELECT must('a timer has not fired', (SELECT state FROM alarm WHERE id = n) = 'waiting')
$$;

-- What holds at any clock for what is begun and ended there; "later" is called
-- after more than a second.
CREATE PROCEDURE soon(tag text, n int) LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO memo SELECT 'soon' || tag, fence FROM idem_claim('soon' || tag, lease => '1 s');
	INSERT INTO memo SELECT 'soon lease' || tag, fence FROM idem_lease_acquire('soon' || tag, '1 s');
	INSERT INTO memo VALUES ('soon token' || tag, idem_token_issue('p', ttl => '1 s'));
	PERFORM idem_window('soon' || tag, '1 s');
	PERFORM idem_once('mark' || tag, ttl => '1 s');
	PERFORM idem_fire('alarm', n, 'hurry');
END $$;
CREATE FUNCTION later(tag text, n int) RETURNS SETOF text LANGUAGE sql AS $$
	SELECT must('a lease claim has run out', c.outcome = 'takeover') || coalesce(': ' || c.outcome, '') FROM idem_claim('soon' || tag, lease => '1 ms') AS c
	UNION ALL SELECT must('its fence is lost', told(format('SELECT idem_complete(%L, NULL::text, fence => %s)', 'soon' || tag, memo('soon' || tag))) = 'ID409')
	UNION ALL SELECT must('a lease has run out, and the fence has grown', l.run AND l.fence > memo('soon lease' || tag)::bigint) FROM idem_lease_acquire('soon' || tag, '1 ms') AS l
	UNION ALL SELECT must('its fence does not guard', told(format('SELECT idem_lease_guard(%L, %s)', 'soon' || tag, memo('soon lease' || tag))) = 'ID412')
	UNION ALL SELECT must('a token has expired', idem_token_use(memo('soon token' || tag), 'p') = 'expired')
	UNION ALL SELECT must('a window has room', (idem_window('soon' || tag, '1 s')).allowed)
	UNION ALL SELECT must('a key has expired', idem_once('mark' || tag, ttl => '1 ms'))
	UNION ALL SELECT must('a timer has fired', (SELECT state FROM alarm WHERE id = n) = 'rung')
	UNION ALL SELECT must('it has fired once', (SELECT count(*) FROM idem_history('alarm', n) WHERE event = 'ring') = 1)
$$;

-- A clock that was set back after make(): full windows are free after one span.
CREATE FUNCTION behind(tag text) RETURNS SETOF text LANGUAGE sql AS $$
	SELECT must('a token of a subject whose tokens were replaced is valid', idem_token_use(idem_token_issue('p', 'r' || tag), 'p', 'r' || tag) = 'consumed')
	UNION ALL SELECT must('also if it replaces them', idem_token_use(idem_token_issue('p', 'r' || tag, replace => true), 'p', 'r' || tag) = 'consumed')
	UNION ALL SELECT must('a window is full for one span at most', NOT w.allowed AND w.retry_after <= 60) FROM idem_window('window' || tag, '1 min', max => 2) AS w
	UNION ALL SELECT must('a window of a second was full', NOT w.allowed AND w.retry_after = 1) FROM idem_window('brief' || tag, '1 s') AS w
$$;
CREATE FUNCTION behind_later(tag text) RETURNS SETOF text LANGUAGE sql AS $$
	SELECT must('a window of a second is free again', (idem_window('brief' || tag, '1 s')).allowed)
	UNION ALL SELECT must('a lease is renewed by the present clock', (r).outcome = 'renewed' AND (r).until < clock_timestamp() + '61 s')
		FROM (SELECT idem_lease_renew('lease' || tag, '1 min', memo('lease' || tag)::bigint) AS r) AS r
	UNION ALL SELECT must('a claim is renewed by the present clock', idem_renew('held' || tag, '1 min', fence => memo('held' || tag)::bigint) < clock_timestamp() + '61 s')
	UNION ALL SELECT must('a new token is valid', idem_token_use(idem_token_issue('p', 's' || tag, replace => true), 'p', 's' || tag) = 'consumed')
	UNION ALL SELECT must('what was replaced is not', idem_token_use(memo('token' || tag), 'p', 's' || tag) = 'expired')
$$;

-- A clock that was set on by years after make(): what had a time is over, and
-- what had none is as it was.
CREATE FUNCTION ahead(tag text, n int) RETURNS SETOF text LANGUAGE sql AS $$
	SELECT must('the retention of a key is over', (idem_claim('done' || tag, '{"a": 2}', lease => '1 s')).outcome = 'claimed')
	UNION ALL SELECT must('a key of a scope without expiry replays', (idem_claim('done' || tag, scope => 'kept')).response = 'first')
	UNION ALL SELECT must('what was done once is not done again', NOT idem_once('once' || tag, 'kept'))
	UNION ALL SELECT must('a lease claim is somebody else''s, with a greater fence', c.run AND c.fence > memo('held' || tag)::bigint)
		FROM idem_claim('held' || tag, lease => '1 s') AS c
	UNION ALL SELECT must('its former fence is lost', told(format('SELECT idem_complete(%L, NULL::text, fence => %s)', 'held' || tag, memo('held' || tag))) = 'ID409')
	UNION ALL SELECT must('a lease is free, with a greater fence', l.run AND l.fence > memo('lease' || tag)::bigint) FROM idem_lease_acquire('lease' || tag, '1 s') AS l
	UNION ALL SELECT must('its former fence does not guard', told(format('SELECT idem_lease_guard(%L, %s)', 'lease' || tag, memo('lease' || tag))) = 'ID412')
	UNION ALL SELECT must('its former fence is not renewed', (idem_lease_renew('lease' || tag, '1 min', memo('lease' || tag)::bigint)).outcome = 'lost')
	UNION ALL SELECT must('a token is worth nothing', idem_token_use(memo('token' || tag), 'p', 's' || tag) IN ('expired', 'unknown'))
	UNION ALL SELECT must('a used token is not consumed again', idem_token_use(memo('used' || tag), 'p') IN ('reused', 'unknown'))
	UNION ALL SELECT must('a window has room', (idem_window('window' || tag, '1 min', max => 2)).count = 1)
$$;
CREATE FUNCTION ahead_later(tag text, n int) RETURNS SETOF text LANGUAGE sql AS $$
	SELECT must('a timer has fired', (SELECT state FROM alarm WHERE id = n) = 'rung')
	UNION ALL SELECT must('it has fired once', (SELECT count(*) FROM idem_history('alarm', n) WHERE event = 'ring') = 1)
	UNION ALL SELECT must('a branch is forgotten only by its setting', NOT EXISTS (SELECT FROM idem.branch WHERE saga = 'saga' || tag) OR
		current_setting('idem.branch_ttl') = '-1')
	UNION ALL SELECT must('history is kept', EXISTS (SELECT FROM idem_history('alarm', n) WHERE event = 'wind'))
$$;

-- Whoever holds something until a time that is far ahead can be ended.
CREATE FUNCTION broken(tag text) RETURNS SETOF text LANGUAGE sql AS $$
	SELECT must('a lease is broken', idem_lease_break('lease' || tag) AND (idem_lease_acquire('lease' || tag, '1 s')).run)
	UNION ALL SELECT must('a claim is forgotten', idem_forget('held' || tag, force => true) AND (idem_claim('held' || tag, lease => '1 s')).run)
$$;

-- for the load: who works under a lease is alone, and the row remembers its fence
CREATE TABLE fenced (id text PRIMARY KEY, fence bigint);
INSERT INTO fenced SELECT 'g' || generate_series(1, 5);
SELECT idem_attach_fence('fenced', 'fence');
CREATE FUNCTION guarded(name text, its bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	BEGIN
		PERFORM idem_lease_guard(name, its);
	EXCEPTION WHEN SQLSTATE 'ID412' THEN
		RETURN;
	END;
	IF NOT pg_try_advisory_xact_lock(hashtext(name)) THEN
		RAISE EXCEPTION 'two holders of one lease at once';
	END IF;
	UPDATE fenced SET fence = its WHERE id = name;
END $$;
