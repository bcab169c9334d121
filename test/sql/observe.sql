-- Mode observe: each write that would be refused is reported once, also where
-- rows are asked for after the write too, and ten of a statement are warned of.

\set SHOW_CONTEXT never
\set VERBOSITY terse

SELECT idem_define('ob', E'stateDiagram-v2\n[*] --> a\n[*] --> f\na --> b : go\nb --> c : on\nnote right of f : frozen');
CREATE FUNCTION ob_nop() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RETURN new; END$$;
CREATE FUNCTION ob_late() RETURNS trigger LANGUAGE plpgsql AS
$$BEGIN new.x := coalesce(new.x, 0) + 1; RETURN new; END$$;
CREATE TABLE ob_plain (id int, state text, x int, PRIMARY KEY (id));
CREATE TABLE ob_row (LIKE ob_plain INCLUDING ALL);
CREATE TRIGGER nop AFTER UPDATE ON ob_row FOR EACH ROW EXECUTE FUNCTION ob_nop();
-- a trigger behind the guard, which changes the row
CREATE TABLE ob_late (LIKE ob_plain INCLUDING ALL);
CREATE TRIGGER "~~late" BEFORE UPDATE ON ob_late FOR EACH ROW EXECUTE FUNCTION ob_late();
CREATE TABLE ob_late_row (LIKE ob_plain INCLUDING ALL);
CREATE TRIGGER "~~late" BEFORE UPDATE ON ob_late_row FOR EACH ROW EXECUTE FUNCTION ob_late();
CREATE TABLE ob_parts (id int, state text, x int, PRIMARY KEY (id, x)) PARTITION BY RANGE (x);
CREATE TABLE ob_parts1 PARTITION OF ob_parts FOR VALUES FROM (0) TO (1);
CREATE TABLE ob_parts2 PARTITION OF ob_parts FOR VALUES FROM (1) TO (2);
CREATE TABLE ob_parts3 PARTITION OF ob_parts FOR VALUES FROM (2) TO (1000);
SELECT idem_attach('ob', t, 'state', history => h, mode => 'observe')
FROM (VALUES ('ob_plain', true), ('ob_row', true), ('ob_late', false),
	('ob_late_row', true), ('ob_parts', true)) AS t (t, h);
INSERT INTO ob_plain SELECT i, CASE WHEN i > 5 THEN 'f' ELSE 'a' END, 0 FROM generate_series(1, 9) AS i;
INSERT INTO ob_row TABLE ob_plain;
INSERT INTO ob_late TABLE ob_plain;
INSERT INTO ob_late_row TABLE ob_plain;
INSERT INTO ob_parts TABLE ob_plain;

-- into no state, NULL, another state; a frozen row that stays, and one that moves;
-- a frozen row, and others, to another partition
DO $$
DECLARE
	name text;
	change text;
BEGIN
	FOREACH name IN ARRAY '{ob_plain,ob_row,ob_late,ob_late_row,ob_parts}'::text[] LOOP
		RAISE NOTICE '%', name;
		FOREACH change IN ARRAY ARRAY[
			'state = ''zz'' WHERE id = 1',
			'state = NULL WHERE id = 2',
			'state = ''c'' WHERE id = 3',
			'id = id + 20 WHERE id = 6',
			'state = ''a'' WHERE id = 7',
			'x = x + 1 WHERE id = 8',
			'state = ''zz'', x = x + 1 WHERE id = 4',
			'state = ''c'', x = x + 1 WHERE id = 5'] LOOP
			RAISE NOTICE 'SET %', change;
			EXECUTE format('UPDATE %I SET %s', name, change);
		END LOOP;
	END LOOP;
END$$;
SELECT table_name, count(*) FILTER (WHERE event IS NULL) AS without_event, count(*)
FROM idem.history WHERE machine = 'ob' AND from_state IS NOT NULL GROUP BY 1 ORDER BY 1;
SELECT * FROM ob_parts ORDER BY id, x;

-- a trigger behind the guard makes a row move that stays in a frozen state
CREATE FUNCTION ob_move() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN new.x := 2; RETURN new; END$$;
CREATE TRIGGER "~~late" BEFORE UPDATE ON ob_parts1 FOR EACH ROW EXECUTE FUNCTION ob_move();
UPDATE ob_parts SET state = state WHERE id = 7 AND x = 0;
UPDATE ob_parts SET state = state WHERE id = 9;
DROP TRIGGER "~~late" ON ob_parts1;

-- ten of a statement, over partitions and triggers
DELETE FROM ob_parts;
INSERT INTO ob_parts SELECT i, 'c', i % 3 FROM generate_series(1, 18) AS i;
UPDATE ob_parts SET state = 'a';
UPDATE ob_parts SET state = 'a' WHERE id = 1;
INSERT INTO ob_parts SELECT i, 'b', 0 FROM generate_series(1, 6) AS i
ON CONFLICT DO NOTHING;
DELETE FROM ob_parts WHERE id < 5;
COPY ob_parts FROM stdin;
1	b	0
2	b	1
3	b	2
4	b	0
\.
WITH moved AS (UPDATE ob_parts SET state = 'x' WHERE id < 9 RETURNING id),
	more AS (INSERT INTO ob_row SELECT i, 'b', 0 FROM generate_series(31, 38) AS i RETURNING id)
SELECT count(*) FROM moved UNION ALL SELECT count(*) FROM more;

DROP TABLE ob_plain, ob_row, ob_late, ob_late_row, ob_parts;
DROP FUNCTION ob_nop, ob_late, ob_move;
DELETE FROM idem.machine WHERE name = 'ob';
ALTER TABLE idem.history DISABLE TRIGGER protected_row;
DELETE FROM idem.history WHERE machine = 'ob';
ALTER TABLE idem.history ENABLE TRIGGER protected_row;
