-- Statements inside of the one whose rows they move on, rename, or take the keys
-- of: history in the order of steps, timers of the state and key that a row has.

\set SHOW_CONTEXT never
SELECT idem_define('hi', $$
stateDiagram-v2
    [*] --> a
    a --> b : e1
    b --> c : e2
    c --> a : e3
    a --> x : ax after 1 h
    b --> x : bx after 1 h
    c --> x : cx after 1 h
$$);
SELECT idem_define('hin', $$
stateDiagram-v2
    [*] --> a
    a --> b : e1
    b --> c : e2
$$);
-- rows that have not one timer, and timers that are of no row
CREATE FUNCTION hi_timers(tab text) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
	RETURN QUERY EXECUTE format($q$
		WITH r AS (SELECT jsonb_strip_nulls(to_jsonb(t) - 's' - 'v' - CASE WHEN %1$L ~ 'doc' THEN '' ELSE 'k' END) AS key, s FROM %1$I AS t),
		n AS (SELECT jsonb_strip_nulls(row_key - CASE WHEN %1$L ~ 'doc' THEN 's' ELSE 'k' END) AS key, state AS s
			FROM idem.timer WHERE table_name = %1$L)
		SELECT 'none of ' || r::text FROM r WHERE (SELECT count(*) FROM n WHERE n.key = r.key AND n.s = r.s COLLATE "C") <> 1
		UNION ALL
		SELECT 'left ' || n::text FROM n WHERE NOT EXISTS (SELECT FROM r WHERE r.key = n.key AND r.s = n.s COLLATE "C") $q$, tab);
END$$;

CREATE TABLE hi_t (id int PRIMARY KEY, s text NOT NULL DEFAULT 'a', v int);
-- with a trigger behind the row, so by row
CREATE TABLE hi_r (id int PRIMARY KEY, s text NOT NULL DEFAULT 'a', v int);
CREATE FUNCTION hi_nothing() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RETURN NULL; END$$;
CREATE TRIGGER nothing AFTER INSERT OR UPDATE ON hi_r FOR EACH ROW EXECUTE FUNCTION hi_nothing();
CREATE TABLE hi_p (id int, s text NOT NULL DEFAULT 'a', v int, k int DEFAULT 1, PRIMARY KEY (id, k)) PARTITION BY LIST (k);
CREATE TABLE hi_p1 PARTITION OF hi_p FOR VALUES IN (1);
CREATE TABLE hi_p2 PARTITION OF hi_p FOR VALUES IN (2);
SELECT idem_attach('hi', t, 's', history => true) FROM unnest('{hi_t,hi_r,hi_p}'::regclass[]) AS t;

-- a function of the statement does something at the row of that id
CREATE TABLE hi_act (id int, command text);
CREATE FUNCTION hi_do(tab text, i int) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
	command text;
BEGIN
	FOR command IN SELECT a.command FROM hi_act AS a WHERE a.id = i LOOP
		BEGIN
			EXECUTE replace(command, '@', tab);
			IF command ~ '/\* undone' THEN RAISE 'undone'; END IF;
		EXCEPTION WHEN raise_exception THEN NULL;
		END;
	END LOOP;
	RETURN true;
END$$;
CREATE PROCEDURE hi_run(statement text, VARIADIC acts text[]) LANGUAGE plpgsql AS $$
DECLARE
	tab text;
BEGIN
	TRUNCATE hi_act;
	INSERT INTO hi_act SELECT 2, act FROM unnest(acts) AS act;
	FOREACH tab IN ARRAY '{hi_t,hi_r,hi_p}'::text[] LOOP
		EXECUTE format('DELETE FROM %I', tab);
		DELETE FROM idem.timer WHERE table_name = tab;
		EXECUTE replace(replace(statement, '@', tab), '#', quote_literal(tab));
	END LOOP;
END$$;
CREATE FUNCTION hi_seen(VARIADIC tabs text[] DEFAULT '{hi_t,hi_r,hi_p}') RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	tab text;
	last bigint := coalesce((SELECT max(v) FROM hi_last), 0);
BEGIN
	FOREACH tab IN ARRAY tabs LOOP
		RETURN NEXT tab || ': ' || coalesce((SELECT string_agg(concat_ws(' ', h.row_key ->> 'id', h.from_state, '->', h.to_state), ', ' ORDER BY h.seq)
			FROM idem.history AS h WHERE h.table_name = tab AND h.seq > last), '');
		RETURN QUERY SELECT * FROM hi_timers(tab);
	END LOOP;
	UPDATE hi_last SET v = (SELECT max(h.seq) FROM idem.history AS h);
END$$;
CREATE TABLE hi_last (v bigint);
INSERT INTO hi_last SELECT coalesce(max(seq), 0) FROM idem.history;

-- rows of an INSERT that are moved on before any trigger tells of them
\set insert 'INSERT INTO @ (id) SELECT i FROM generate_series(1, 3) AS i WHERE hi_do(#, i)'
CALL hi_run(:'insert', 'UPDATE @ SET s = ''b'' WHERE id = 1');
SELECT * FROM hi_seen();
CALL hi_run(:'insert', 'UPDATE @ SET s = ''b'' WHERE id = 1', 'UPDATE @ SET s = ''c'' WHERE id = 1');
SELECT * FROM hi_seen();
-- by way of a write without a step, and of another key
CALL hi_run(:'insert', 'UPDATE @ SET v = 1 WHERE id = 1', 'UPDATE @ SET v = 2 WHERE id = 1', 'UPDATE @ SET s = ''b'' WHERE id = 1');
SELECT * FROM hi_seen();
CALL hi_run(:'insert', 'UPDATE @ SET id = 100 WHERE id = 1');
SELECT * FROM hi_seen();
CALL hi_run(:'insert', 'UPDATE @ SET id = 100 WHERE id = 1', 'UPDATE @ SET id = 101, v = 1 WHERE id = 100', 'UPDATE @ SET s = ''b'' WHERE id = 101');
SELECT * FROM hi_seen();
-- after an inner INSERT that inserts nothing
CALL hi_run(:'insert', 'INSERT INTO @ (id) VALUES (1) ON CONFLICT DO NOTHING', 'UPDATE @ SET s = ''b'' WHERE id = 1');
SELECT * FROM hi_seen();
CALL hi_run(:'insert', 'INSERT INTO @ (id) SELECT 1 WHERE false', 'UPDATE @ SET s = ''b'' WHERE id = 1', 'UPDATE @ SET s = ''c'' WHERE id = 1');
SELECT * FROM hi_seen();
-- what is undone counts for nothing
CALL hi_run(:'insert', 'UPDATE @ SET s = ''b'' WHERE id = 1 /* undone */');
SELECT * FROM hi_seen();
CALL hi_run(:'insert', 'UPDATE @ SET s = ''b'' WHERE id = 1 /* undone */', 'UPDATE @ SET id = 100, s = ''b'' WHERE id = 1', 'UPDATE @ SET s = ''c'' WHERE id = 100 /* undone */');
SELECT * FROM hi_seen();
-- of a command that is over, in the same transaction
BEGIN;
CALL hi_run('INSERT INTO @ (id) VALUES (1), (2)', 'SELECT');
CALL hi_run('INSERT INTO @ (id) VALUES (1), (2); UPDATE @ SET v = 1; UPDATE @ SET s = ''b'' WHERE id = 1', 'SELECT');
SELECT * FROM hi_seen();
COMMIT;
-- to another partition
CALL hi_run(:'insert', 'UPDATE @ SET s = ''b'' WHERE id = 1', 'UPDATE hi_p SET k = 2, s = ''c'' WHERE id = 1 AND s = ''b'' AND ''@'' = ''hi_p''');
SELECT * FROM hi_seen();

-- a machine without timers: the key of the step before counts there too
CREATE TABLE hi_n (id int PRIMARY KEY, s text NOT NULL DEFAULT 'a', v int);
CREATE TABLE hi_np (id int PRIMARY KEY, s text NOT NULL DEFAULT 'a', v int) PARTITION BY HASH (id);
CREATE TABLE hi_np0 PARTITION OF hi_np FOR VALUES WITH (MODULUS 1, REMAINDER 0);
SELECT idem_attach('hin', t, 's', history => true) FROM unnest('{hi_n,hi_np}'::regclass[]) AS t;
TRUNCATE hi_act;
INSERT INTO hi_act VALUES (2, 'UPDATE @ SET id = 100, s = ''b'' WHERE id = 1'), (2, 'UPDATE @ SET s = ''c'' WHERE id = 100');
INSERT INTO hi_n (id) SELECT i FROM generate_series(1, 2) AS i WHERE hi_do('hi_n', i);
INSERT INTO hi_np (id) SELECT i FROM generate_series(1, 2) AS i WHERE hi_do('hi_np', i);
SELECT f FROM hi_seen('hi_n', 'hi_np') AS f WHERE f LIKE 'hi%';
DROP TABLE hi_n, hi_np;

-- triggers before an INSERT: a newer one puts the older out of its state
CREATE FUNCTION hi_supersede() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('UPDATE %I SET s = ''b'' WHERE v = $1 AND s = ''a''', TG_ARGV[0]) USING new.v;
	RETURN new;
END$$;
CREATE TRIGGER supersede BEFORE INSERT ON hi_t FOR EACH ROW WHEN (new.v > 0) EXECUTE FUNCTION hi_supersede('hi_t');
CREATE TRIGGER supersede BEFORE INSERT ON hi_p FOR EACH ROW WHEN (new.v > 0) EXECUTE FUNCTION hi_supersede('hi_p');
INSERT INTO hi_t VALUES (21, 'a', 7), (22, 'a', 7), (23, 'a', 7);
INSERT INTO hi_p VALUES (21, 'a', 7), (22, 'a', 7), (23, 'a', 7);
COPY hi_p (id, v) FROM stdin;
31	8
32	8
33	8
\.
SELECT * FROM hi_seen('hi_t', 'hi_p');
DROP TRIGGER supersede ON hi_t;
DROP TRIGGER supersede ON hi_p;

-- and makes room: the key that the new row gets was another's
CREATE FUNCTION hi_room() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
	i int;
BEGIN
	FOR i IN EXECUTE format('SELECT id FROM %I WHERE id >= $1 AND id < 90 ORDER BY id DESC', TG_ARGV[0]) USING new.id LOOP
		EXECUTE format('UPDATE %I SET id = id + 1 WHERE id = $1', TG_ARGV[0]) USING i;
	END LOOP;
	RETURN new;
END$$;
CREATE TRIGGER room BEFORE INSERT ON hi_t FOR EACH ROW WHEN (new.v = 9) EXECUTE FUNCTION hi_room('hi_t');
CREATE TRIGGER room BEFORE INSERT ON hi_r FOR EACH ROW WHEN (new.v = 9) EXECUTE FUNCTION hi_room('hi_r');
CREATE TRIGGER room BEFORE INSERT ON hi_p FOR EACH ROW WHEN (new.v = 9) EXECUTE FUNCTION hi_room('hi_p');
CALL hi_run('INSERT INTO @ (id) VALUES (1), (2), (3); INSERT INTO @ (id, v) VALUES (91, 0), (2, 9), (3, 9), (3, 9)', 'SELECT');
SELECT * FROM hi_seen();
DROP TRIGGER room ON hi_t;
DROP TRIGGER room ON hi_r;
DROP TRIGGER room ON hi_p;
-- of an UPDATE too
CALL hi_run('INSERT INTO @ (id) VALUES (1), (2), (3); UPDATE @ SET s = ''b'', id = CASE id WHEN 1 THEN 7 ELSE 2 END WHERE hi_do(#, id - 1) AND id IN (1, 3)',
	'UPDATE @ SET id = 102 WHERE id = 2');
SELECT * FROM hi_seen();

-- a row that is given another key, under which an inner statement puts another row
\set step 'INSERT INTO @ (id) VALUES (1), (2); UPDATE @ SET id = id + 10, s = ''b'' WHERE hi_do(#, id)'
\set stay 'INSERT INTO @ (id) VALUES (1), (2); UPDATE @ SET id = id + 10 WHERE hi_do(#, id)'
CALL hi_run(:'step', 'INSERT INTO @ (id) VALUES (1)');
SELECT * FROM hi_seen();
CALL hi_run(:'stay', 'INSERT INTO @ (id) VALUES (1)');
SELECT * FROM hi_seen();
CALL hi_run(:'stay', 'UPDATE @ SET s = ''b'' WHERE id = 11');
SELECT * FROM hi_seen();
CALL hi_run(:'stay', 'UPDATE @ SET id = 21 WHERE id = 11', 'INSERT INTO @ (id) VALUES (1)');
SELECT * FROM hi_seen();
CALL hi_run(:'step', 'UPDATE @ SET id = 21 WHERE id = 11', 'INSERT INTO @ (id) VALUES (11)');
SELECT * FROM hi_seen();
CALL hi_run(:'step', 'INSERT INTO @ (id) VALUES (1) /* undone */');
SELECT * FROM hi_seen();
CALL hi_run(:'step', 'INSERT INTO @ (id) VALUES (1)',
	'UPDATE @ SET id = 50 WHERE id = 1', 'UPDATE @ SET s = ''c'' WHERE id = 11');
SELECT * FROM hi_seen();

-- the state is part of the key: the history names several rows alike
CREATE TABLE hi_doc (id int, s text DEFAULT 'a', v int, PRIMARY KEY (id, s));
CREATE TABLE hi_docr (id int, s text DEFAULT 'a', v int, PRIMARY KEY (id, s));
CREATE TRIGGER nothing AFTER UPDATE ON hi_docr FOR EACH ROW EXECUTE FUNCTION hi_nothing();
SELECT idem_attach('hi', t, 's', history => true) FROM unnest('{hi_doc,hi_docr}'::regclass[]) AS t;
CREATE FUNCTION hi_publish() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('UPDATE %I SET s = ''c'' WHERE id = $1 AND s = ''b''', TG_ARGV[0]) USING new.id - new.v;
	RETURN new;
EXCEPTION WHEN division_by_zero THEN
	RETURN new;
END$$;
CREATE TRIGGER publish BEFORE UPDATE ON hi_doc FOR EACH ROW WHEN (old.s = 'a' AND new.s = 'b') EXECUTE FUNCTION hi_publish('hi_doc');
CREATE TRIGGER publish BEFORE UPDATE ON hi_docr FOR EACH ROW WHEN (old.s = 'a' AND new.s = 'b') EXECUTE FUNCTION hi_publish('hi_docr');
INSERT INTO hi_doc VALUES (1, 'a', 0), (2, 'a', 0);
INSERT INTO hi_docr VALUES (1, 'a', 0), (2, 'a', 0);
UPDATE hi_doc SET s = 'b';
UPDATE hi_docr SET s = 'b';
INSERT INTO hi_doc VALUES (1, 'a', 0), (2, 'a', 0);
INSERT INTO hi_docr VALUES (1, 'a', 0), (2, 'a', 0);
SELECT count(*) FROM hi_seen('hi_doc', 'hi_docr');
UPDATE hi_doc SET s = 'b' WHERE s = 'a';
UPDATE hi_docr SET s = 'b' WHERE s = 'a';
SELECT * FROM hi_seen('hi_doc', 'hi_docr');
DROP TABLE hi_doc, hi_docr;

-- the new row is touched again, in vain; since when the other is in its state is known
CALL hi_run(:'step', 'INSERT INTO @ (id) VALUES (1)', 'UPDATE @ SET s = ''b'' WHERE id = 1 /* undone */');
SELECT * FROM hi_seen();
TRUNCATE hi_act;
DELETE FROM hi_r;
DELETE FROM idem.timer WHERE table_name = 'hi_r';
INSERT INTO hi_r (id) VALUES (1), (2);
SELECT max(since) AS entered FROM idem.timer WHERE table_name = 'hi_r' AND row_key = '{"id": 1}' \gset
INSERT INTO hi_act VALUES (2, 'INSERT INTO @ (id) VALUES (1)');
UPDATE hi_r SET id = id + 10 WHERE hi_do('hi_r', id);
SELECT row_key, since = :'entered' AS from_then FROM idem.timer WHERE table_name = 'hi_r' AND row_key ->> 'id' IN ('1', '11') ORDER BY 1;
SELECT count(*) FROM hi_seen();
-- what one WITH updates, and inserts, is recorded at the end of each
CREATE TABLE hi_other (id int);
CREATE FUNCTION hi_move() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	UPDATE hi_t SET s = 'b' WHERE id = new.id;
	RETURN NULL;
END$$;
CREATE TRIGGER move AFTER INSERT ON hi_other FOR EACH ROW EXECUTE FUNCTION hi_move();
CALL hi_run('INSERT INTO @ (id) VALUES (1)', 'SELECT');
WITH u AS (UPDATE hi_t SET v = 1 WHERE id = 1 RETURNING 1), i AS (INSERT INTO hi_t (id) VALUES (7) RETURNING id)
	INSERT INTO hi_other SELECT i.id FROM (SELECT count(*) AS n FROM u OFFSET 0) AS x, i WHERE x.n >= 0;
SELECT * FROM hi_seen('hi_t');
DROP TABLE hi_other;
DROP FUNCTION hi_move;

-- a foreign key's action, whose rows are told of by the statement that it belongs to
CREATE TABLE hi_state (s text PRIMARY KEY);
INSERT INTO hi_state VALUES ('a'), ('c');
CREATE FUNCTION hi_next() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('UPDATE %I SET s = ''c'' WHERE id = $1 AND s = ''b''', TG_ARGV[0]) USING new.id + 1;
	RETURN NULL;
END$$;
CREATE TRIGGER next AFTER UPDATE ON hi_r FOR EACH ROW WHEN (new.id = 1 AND new.s = 'b') EXECUTE FUNCTION hi_next('hi_r');
CREATE TRIGGER next AFTER UPDATE ON hi_p FOR EACH ROW WHEN (new.id = 1 AND new.s = 'b') EXECUTE FUNCTION hi_next('hi_p');
CALL hi_run('INSERT INTO @ (id) VALUES (1), (2), (3)', 'SELECT');
ALTER TABLE hi_r ADD FOREIGN KEY (s) REFERENCES hi_state ON UPDATE CASCADE;
ALTER TABLE hi_p ADD FOREIGN KEY (s) REFERENCES hi_state ON UPDATE CASCADE;
UPDATE hi_state SET s = 'b' WHERE s = 'a';
SELECT * FROM hi_seen('hi_r', 'hi_p');
-- ... and by which rows of another one are told of before
ALTER TABLE hi_p DROP CONSTRAINT hi_p_s_fkey;
INSERT INTO hi_state VALUES ('a');
CALL hi_run('INSERT INTO @ (id) VALUES (1), (2), (3)', 'SELECT');
DELETE FROM hi_state WHERE s = 'b';
WITH u AS (UPDATE hi_state SET s = 'b' WHERE s = 'a' RETURNING 1) INSERT INTO hi_p (id) SELECT 50 FROM u;
SELECT * FROM hi_seen('hi_r');
DROP TRIGGER next ON hi_r;
DROP TRIGGER next ON hi_p;
ALTER TABLE hi_r DROP CONSTRAINT hi_r_s_fkey;
DROP TABLE hi_state;
DROP FUNCTION hi_next;

-- rows that are frozen when they come are nobody's, and no arrivals
BEGIN;
CREATE FUNCTION hi_drop() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RETURN NULL; END$$;
CREATE TRIGGER hi_drop BEFORE INSERT ON hi_p1 FOR EACH ROW WHEN (new.id = 41) EXECUTE FUNCTION hi_drop();
INSERT INTO hi_p VALUES (41, 'a', 0, 2);
UPDATE hi_p SET k = 1 WHERE id = 41;
TRUNCATE hi_p2;
COPY hi_p2 (id, k) FROM stdin WITH (FREEZE);
42	2
43	2
\.
UPDATE hi_p SET s = 'b' WHERE id = 42;
COMMIT;
SELECT row_key, from_state, to_state FROM idem.history WHERE table_name = 'hi_p' AND row_key ->> 'id' IN ('42', '43') ORDER BY seq;

DROP TABLE hi_t, hi_r, hi_p, hi_act, hi_last;
DROP PROCEDURE hi_run;
DROP FUNCTION hi_timers, hi_seen, hi_do, hi_nothing, hi_supersede, hi_room, hi_publish, hi_drop;
DELETE FROM idem.timer WHERE machine = 'hi';
ALTER TABLE idem.history DISABLE TRIGGER protected_row;
DELETE FROM idem.history WHERE machine IN ('hi', 'hin');
ALTER TABLE idem.history ENABLE TRIGGER protected_row;
DELETE FROM idem.machine WHERE name IN ('hi', 'hin');
