-- The types that a state column may have, and those that it may not.

\set SHOW_CONTEXT never

INSERT INTO idem.machine (name) VALUES ('gt'), ('gt_n');
INSERT INTO idem.state (machine, name, initial) VALUES
	('gt', 'new', true), ('gt', 'open', false), ('gt', 'done', false), ('gt', 'later', true),
	('gt_n', '0', true), ('gt_n', '10', false), ('gt_n', '-1', false), ('gt_n', '3000000000', false), ('gt_n', '007', true);
INSERT INTO idem.transition (machine, event, from_state, to_state, priority) VALUES
	('gt', 'open', 'new', 'open', 1), ('gt', 'done', 'open', 'done', 2), ('gt', 'any', '*', 'later', 3),
	('gt_n', 'go', '0', '10', 1), ('gt_n', 'fail', '10', '-1', 2), ('gt_n', 'big', '10', '3000000000', 3);

-- one row for each type, taken through: new, open, new (no), done, nonsense
CREATE FUNCTION gt_try(type text, machine text, variadic states text[]) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE s text;
BEGIN
	EXECUTE format('CREATE TABLE gt_t (id int, state %s)', type);
	PERFORM idem_attach(machine, 'gt_t', 'state');
	EXECUTE format('INSERT INTO gt_t VALUES (1, %L)', states[1]);
	FOREACH s IN ARRAY states[2:] LOOP
		BEGIN
			EXECUTE format('UPDATE gt_t SET state = %L', s);
			RETURN NEXT s;
		EXCEPTION WHEN OTHERS THEN
			RETURN NEXT format('%s: %s', sqlstate, sqlerrm);
		END;
	END LOOP;
	BEGIN
		EXECUTE format('INSERT INTO gt_t VALUES (2, %L)', states[2]);
		RETURN NEXT 'inserted';
	EXCEPTION WHEN OTHERS THEN
		RETURN NEXT format('%s: %s', sqlstate, sqlerrm);
	END;
	BEGIN
		INSERT INTO gt_t VALUES (2, NULL);
		RETURN NEXT 'inserted';
	EXCEPTION WHEN OTHERS THEN
		RETURN NEXT format('%s: %s', sqlstate, sqlerrm);
	END;
	DROP TABLE gt_t;
END$$;
CREATE TYPE gt_enum AS ENUM ('new', 'open', 'done', 'other');
CREATE DOMAIN gt_domain AS varchar(20) CHECK (length(value) < 15);
CREATE DOMAIN gt_domain2 AS gt_domain NOT NULL;
CREATE DOMAIN gt_enum_domain AS gt_enum;
SELECT * FROM gt_try('text', 'gt', 'new', 'open', 'new', 'done', repeat('x', 10));
SELECT * FROM gt_try('varchar(10)', 'gt', 'new', 'open', 'new', 'done', 'other');
SELECT * FROM gt_try('char(10)', 'gt', 'new', 'open', 'new', 'done   ', 'other');
SELECT * FROM gt_try('gt_enum', 'gt', 'new', 'open', 'new', 'done', 'other');
SELECT * FROM gt_try('gt_domain2', 'gt', 'new', 'open', 'new', 'done', 'other');
SELECT * FROM gt_try('gt_enum_domain', 'gt', 'new', 'open', 'new', 'done', 'other');
SELECT * FROM gt_try('smallint', 'gt_n', '0', '10', '0', '-1', '7');
SELECT * FROM gt_try('int', 'gt_n', '0', '10', '0', '-1', '7');
SELECT * FROM gt_try('bigint', 'gt_n', '0', '10', '0', '3000000000', '7');

-- the others are refused
CREATE TABLE gt_bad (id int GENERATED ALWAYS AS IDENTITY, n numeric, j jsonb, b boolean, a text[], c "char", m name,
	g text GENERATED ALWAYS AS ('x') STORED, gi int, s text);
SELECT idem_attach('gt', 'gt_bad', c) FROM unnest('{n}'::name[]) AS c;
SELECT idem_attach('gt', 'gt_bad', 'j');
SELECT idem_attach('gt', 'gt_bad', 'b');
SELECT idem_attach('gt', 'gt_bad', 'a');
SELECT idem_attach('gt', 'gt_bad', 'c');
SELECT idem_attach('gt', 'gt_bad', 'm');
SELECT idem_attach('gt', 'gt_bad', 'g');
SELECT idem_attach('gt', 'gt_bad', 'id');
SELECT idem_attach('gt', 'gt_bad', 'ctid');
SELECT idem_attach('gt', 'gt_bad', 'missing');

-- a label added in this very transaction
CREATE TABLE gt_e (id int, state gt_enum);
SELECT idem_attach('gt', 'gt_e', 'state');
INSERT INTO gt_e VALUES (1, 'new');
BEGIN;
ALTER TYPE gt_enum ADD VALUE 'later';
INSERT INTO gt_e VALUES (2, 'new');
UPDATE gt_e SET state = 'open' WHERE id = 2;
COMMIT;
UPDATE gt_e SET state = 'later' WHERE id = 2;
INSERT INTO gt_e VALUES (3, 'later');
-- a label renamed
ALTER TYPE gt_enum RENAME VALUE 'done' TO 'finished';
UPDATE gt_e SET state = 'open' WHERE id = 1;
UPDATE gt_e SET state = 'finished' WHERE id = 1;
ALTER TYPE gt_enum RENAME VALUE 'finished' TO 'done';
UPDATE gt_e SET state = 'done' WHERE id = 1;

-- values over a page, compressed and toasted, elsewhere and in the column
CREATE TABLE gt_big (id int, state text, doc text);
ALTER TABLE gt_big ALTER doc SET STORAGE EXTERNAL, ALTER state SET STORAGE EXTERNAL;
SELECT idem_attach('gt', 'gt_big', 'state', accept_existing => true);
INSERT INTO gt_big VALUES (1, 'new', repeat('x', 10000));
UPDATE gt_big SET state = 'open';
SELECT length(doc), state FROM gt_big;
ALTER TABLE gt_big DISABLE TRIGGER USER;
UPDATE gt_big SET state = repeat('y', 10000);
ALTER TABLE gt_big ENABLE TRIGGER USER;
UPDATE gt_big SET doc = 'd';
UPDATE gt_big SET state = state, doc = 'e';
UPDATE gt_big SET state = 'later';
SELECT state, doc FROM gt_big;

-- rows of one statement, in and to states that take turns: each is judged by its own
CREATE FUNCTION gt_mix(type text, machine text, variadic steps text[]) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE mark bigint := (SELECT coalesce(max(seq), 0) FROM idem.history);
BEGIN
	EXECUTE format('CREATE TABLE gt_t (id int PRIMARY KEY, state %s, next %1$s)', type);
	FOR i IN 1 .. array_length(steps, 1) BY 2 LOOP
		EXECUTE format('INSERT INTO gt_t VALUES (%s, %L, %L)', i, steps[i], steps[i + 1]);
	END LOOP;
	PERFORM idem_attach(machine, 'gt_t', 'state', history => true, accept_existing => true);
	FOR i IN REVERSE array_length(steps, 1) - 1 .. 1 BY 2 LOOP
		BEGIN
			EXECUTE format('UPDATE gt_t SET state = next WHERE id <= %s', i);
			RETURN NEXT 'passed: ' || i;
			EXIT;
		EXCEPTION WHEN SQLSTATE 'ID409' THEN
			RETURN NEXT sqlerrm;
		END;
	END LOOP;
	RETURN QUERY SELECT format('%s %s %s: %s', row_key ->> 'id', from_state, to_state, event) FROM idem.history WHERE seq > mark ORDER BY seq;
	DROP TABLE gt_t;
END$$;
SELECT * FROM gt_mix('text', 'gt', 'new', 'open', 'open', 'done', 'new', 'open', 'done', 'later', 'open', 'done', 'done', 'open', 'new', 'done');
SELECT * FROM gt_mix('char(10)', 'gt', 'new', 'open', 'open', 'done', 'new', 'open', 'done', 'later', 'open', 'done', 'done', 'open', 'new', 'done');
SELECT * FROM gt_mix('gt_enum', 'gt', 'new', 'open', 'open', 'done', 'new', 'open', 'done', 'done', 'open', 'done', 'done', 'open', 'new', 'done');
SELECT * FROM gt_mix('smallint', 'gt_n', '0', '10', '10', '-1', '0', '10', '-1', '-1', '10', '-1', '-1', '10', '0', '-1');
SELECT * FROM gt_mix('bigint', 'gt_n', '0', '10', '10', '3000000000', '0', '10', '10', '-1', '10', '3000000000', '3000000000', '10', '0', '-1');
-- values that are longer than what is kept of them
SELECT * FROM gt_mix('text', 'gt', 'new', 'open', 'open', 'done', 'new', 'open', repeat('x', 100), 'later', repeat('x', 99) || 'y', 'later', 'open', 'done', repeat('x', 100), repeat('x', 99) || 'y');

-- dropped columns, columns with a stored default, and a renamed one
CREATE TABLE gt_cols (gone int, id int, gone2 text, state text, v int);
ALTER TABLE gt_cols DROP gone;
INSERT INTO gt_cols VALUES (1, 'x', 'new', 1);
SELECT idem_attach('gt', 'gt_cols', 'state');
ALTER TABLE gt_cols DROP gone2, ADD extra text DEFAULT 'fast';
UPDATE gt_cols SET state = 'done';
ALTER TABLE gt_cols RENAME state TO "Status";
UPDATE gt_cols SET "Status" = 'done';
UPDATE gt_cols SET "Status" = 'open';
SELECT column_name FROM idem.binding WHERE table_name = 'gt_cols'::regclass;
ALTER TABLE gt_cols DROP "Status";
ALTER TABLE gt_cols ALTER "Status" TYPE varchar(10);
-- what was fast by default may be the state column itself
CREATE TABLE gt_fast (id int);
INSERT INTO gt_fast VALUES (1);
ALTER TABLE gt_fast ADD state text DEFAULT 'new';
SELECT idem_attach('gt', 'gt_fast', 'state');
UPDATE gt_fast SET state = 'done';
UPDATE gt_fast SET state = 'open';

-- temporary and unlogged tables
CREATE TEMP TABLE gt_temp (state text);
SELECT idem_attach('gt', 'gt_temp', 'state');
INSERT INTO gt_temp VALUES ('new');
UPDATE gt_temp SET state = 'done';
CREATE UNLOGGED TABLE gt_unlogged (state text);
SELECT idem_attach('gt', 'gt_unlogged', 'state');
INSERT INTO gt_unlogged VALUES ('done');
-- LIKE copies no trigger
CREATE TABLE gt_like (LIKE gt_unlogged INCLUDING ALL);
INSERT INTO gt_like VALUES ('done');

DROP TABLE gt_bad, gt_e, gt_big, gt_cols, gt_fast, gt_temp, gt_unlogged, gt_like;
DROP FUNCTION gt_try, gt_mix;
DROP DOMAIN gt_domain2, gt_domain, gt_enum_domain;
DROP TYPE gt_enum;
DELETE FROM idem.state WHERE machine IN ('gt', 'gt_n');
DELETE FROM idem.machine WHERE name IN ('gt', 'gt_n');
