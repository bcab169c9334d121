-- idem_diagram: what it prints is what idem_define reads, for any machine.
\pset format unaligned
\pset tuples_only on
CREATE ROLE "regress_idem_a b, ""c""";
CREATE ROLE regress_idem_by;

SELECT idem_define('order', $$stateDiagram-v2
    [*] --> draft
    draft --> pending : submit [new.amount > 0 AND new.memo ~ '#59;|"']
    pending --> draft : "send back" by regress_idem_by after 1 day
    draft --> cancelled
    [any] --> cancelled : cancel
    cancelled --> [*]
    state "in review" as x
    state s1
    note right of x : frozen, deny
$$);
SELECT idem_diagram('order');
SELECT idem_diagram('order', 'dot');
SELECT idem_diagram('order', 'mermaid', true);
SELECT idem_define('order', idem_diagram('order', counts => true)),
	idem_diagram('order') = (SELECT idem_diagram('order'));

-- With rows.
CREATE TABLE diagram_order (id int PRIMARY KEY, state text);
SELECT idem_define('order', $$stateDiagram-v2
    [*] --> draft
    draft --> pending : submit
    [any] --> cancelled : cancel
    cancelled --> [*]
$$);
INSERT INTO diagram_order SELECT i, CASE WHEN i < 4 THEN 'draft' ELSE 'pending' END FROM generate_series(1, 10) AS i;
SELECT idem_attach('order', 'diagram_order', 'state', accept_existing => true);
SELECT idem_diagram('order', counts => true);
SELECT idem_diagram('order', 'dot', true);
DROP TABLE diagram_order;

-- With a history there are numbers of transitions; lines that it cannot tell apart share theirs.
SELECT idem_define('logged', $$stateDiagram-v2
    [*] --> draft
    draft --> pending : submit [new.id < 3]
    draft --> pending : submit
    [any] --> cancelled
    cancelled --> [*]
$$);
CREATE TABLE diagram_logged (id int PRIMARY KEY, state text DEFAULT 'draft');
SELECT idem_attach('logged', 'diagram_logged', 'state', history => true);
SELECT idem_diagram('logged', counts => true);
INSERT INTO diagram_logged SELECT generate_series(1, 5);
UPDATE diagram_logged SET state = 'pending' WHERE id < 5;
UPDATE diagram_logged SET state = 'cancelled' WHERE id > 3;
SELECT idem_diagram('logged', counts => true);
SELECT idem_diagram('logged', 'dot', true);
SELECT idem_diagram('logged') AS before \gset
SELECT idem_define('logged', idem_diagram('logged', counts => true)), idem_diagram('logged') = :'before';
DROP TABLE diagram_logged;
SELECT count(*) FROM regexp_matches(idem_diagram('logged', counts => true), '\(\d\)', 'g');

-- Arguments.
SELECT idem_diagram(NULL);
SELECT idem_diagram('nothing like it');
SELECT idem_diagram('order', 'svg');
SELECT idem_diagram('order', NULL, NULL) = idem_diagram('order');

-- so that there are numbers
INSERT INTO idem.history (table_schema, table_name, column_name, row_key, machine, event, from_state, to_state, role_name, at, row_hash)
VALUES ('public', 'chance', 'state', '{"id": 1}', 'chance', 'go', 'w1', 'w2', 'somebody', now(), 1);
-- Machines by chance: rows, diagram, rows again.  Every character that means
-- something to anybody is in some name, guard or role.
CREATE FUNCTION pg_temp.word(max int) RETURNS text LANGUAGE sql VOLATILE AS $$
	SELECT string_agg(substr(chars, 1 + floor(random() * length(chars))::int, 1), '')
	FROM generate_series(1, 1 + floor(random() * max)::int),
		(VALUES (E'ab1_-. :;,#[](){}<>"''%&\\\n\t*+/=|~!?@^`$éß€字')) AS v (chars)
$$;
CREATE FUNCTION pg_temp.states(n int) RETURNS text[] LANGUAGE sql VOLATILE AS $$
	SELECT array_agg(DISTINCT name) FROM (
		SELECT CASE WHEN i % 3 = 0 THEN pg_temp.word(12)
			WHEN i % 7 = 0 THEN (ARRAY['state', 'note', 'end', 's1', 's2', 'by', 'after', '[any]', '[*]', 'root', 'class', '-->', '#35;', ' a ', '%%', '--', 'a --> b', E'\u00a0', '"'])[1 + i % 19]
			ELSE 'w' || i END AS name
		FROM generate_series(1, n) AS i) AS names
	WHERE name <> '*'
$$;
CREATE FUNCTION pg_temp.guard() RETURNS text LANGUAGE sql VOLATILE AS $$
	SELECT (ARRAY['new.a > 1', 'new.a::int = 3', format('new.t = %L', pg_temp.word(20)), format('new.%I IS NULL', pg_temp.word(10)),
		'new.x[1] = old.x[2]', format('$q$%s]$q$ = ''''', translate(pg_temp.word(8), '$', '')), E'E''\\]'' = ''[''', 'true -- ]', E'true /* [ ] ] */\n', NULL, NULL, NULL])[1 + floor(random() * 12)::int]
$$;
CREATE FUNCTION pg_temp.make(n int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	names text[] := pg_temp.states(n);
BEGIN
	DELETE FROM idem.machine WHERE name = 'chance';
	INSERT INTO idem.machine (name) VALUES ('chance');
	INSERT INTO idem.state (machine, name, initial, final, frozen, self)
	SELECT 'chance', name, random() < 0.3 OR name = names[1], random() < 0.2, random() < 0.2,
		(ARRAY['deny', 'noop', 'reenter'])[1 + floor(random() * 3)::int]
	FROM unnest(names) AS name;
	INSERT INTO idem.transition (machine, event, from_state, to_state, priority, guard, roles, after)
	SELECT 'chance', CASE WHEN random() < 0.2 THEN t ELSE pg_temp.word(10) END, f, t, row_number() OVER (), pg_temp.guard(),
		(ARRAY[NULL, NULL, '{"regress_idem_a b, \"c\"",regress_idem_by}', '{regress_idem_by}'])[1 + floor(random() * 4)::int]::name[],
		(ARRAY[NULL, NULL, NULL, '0 s', '1 mon -1 day', '-3 h +1 day', '1.000001 s', '2 years 3 days 04:05:06.7'])[1 + floor(random() * 8)::int]::interval
	FROM (SELECT f.name AS f, t.name AS t
		FROM (SELECT name FROM idem.state WHERE machine = 'chance' AND NOT final UNION ALL SELECT '*') AS f,
			(SELECT name FROM idem.state WHERE machine = 'chance') AS t
		WHERE random() < 3.0 / n) AS pairs;
END $$;
SELECT setseed(0.42);
DO $$
DECLARE
	before text;
	after text;
	text text;
BEGIN
	FOR i IN 1 .. 300 LOOP
		PERFORM pg_temp.make(3 + i % 12);
		SELECT jsonb_agg(to_jsonb(s) ORDER BY name)::text || (SELECT coalesce(jsonb_agg(to_jsonb(t) ORDER BY priority), '[]')::text FROM idem.transition AS t WHERE machine = 'chance')
		INTO before FROM idem.state AS s WHERE machine = 'chance';
		text := idem_diagram('chance', counts => i % 5 = 0);
		DELETE FROM idem.machine WHERE name = 'chance';
		PERFORM idem_define('chance', text);
		SELECT jsonb_agg(to_jsonb(s) ORDER BY name)::text || (SELECT coalesce(jsonb_agg(to_jsonb(t) ORDER BY priority), '[]')::text FROM idem.transition AS t WHERE machine = 'chance')
		INTO after FROM idem.state AS s WHERE machine = 'chance';
		IF before IS DISTINCT FROM after THEN
			RAISE EXCEPTION E'machine % came out different\n%\n%\n%', i, text, before, after;
		END IF;
		IF text LIKE '%' || chr(9) || '%' OR length(text) < 20 THEN
			RAISE EXCEPTION 'diagram %: %', i, text;
		END IF;
		COMMIT;
	END LOOP;
END $$;

-- Nothing is written.
SET session_replication_role = replica;
DELETE FROM idem.history WHERE machine IN ('logged', 'chance');
RESET session_replication_role;
DELETE FROM idem.machine WHERE name = 'chance';
BEGIN READ ONLY;
SELECT idem_diagram('order', counts => true) IS NOT NULL, count(*) FROM idem_lint('order');
SELECT pg_current_xact_id_if_assigned() IS NULL;
COMMIT;
DELETE FROM idem.machine;
DROP ROLE "regress_idem_a b, ""c""", regress_idem_by;
