-- idem_lint: each thing that is probably not meant.
CREATE ROLE regress_idem_gone;
CREATE FUNCTION pg_temp.lint(definition text) RETURNS TABLE (code text, severity text, what text, "rows" bigint) LANGUAGE plpgsql AS $$
BEGIN
	PERFORM idem_define('m', E'stateDiagram-v2\n' || definition);
	RETURN QUERY SELECT * FROM idem_lint('m');
END $$;

SELECT * FROM pg_temp.lint(E'[*] --> a\na --> b : go\nb --> [*]');
SELECT * FROM pg_temp.lint(E'[*] --> a\na --> b : go\nb --> [*]\nstate c\nd --> b');
SELECT * FROM pg_temp.lint(E'[*] --> a\na --> b : go');
SELECT * FROM pg_temp.lint(E'[*] --> a\na --> b : go\na --> c : go\nb --> [*]\nc --> [*]');
SELECT * FROM pg_temp.lint(E'[*] --> a\na --> b : go by regress_idem_gone\na --> c : go\nb --> [*]\nc --> [*]');
SELECT * FROM pg_temp.lint(E'[*] --> a\na --> b : go [new.n > 1]\na --> c : go\nb --> [*]\nc --> [*]');
SELECT * FROM pg_temp.lint(E'[*] --> a\na --> b : go [new.n > 1]\na --> c : go [new.n > 1]\nb --> [*]\nc --> [*]');
SELECT * FROM pg_temp.lint(E'[*] --> a\n[any] --> c : stop\na --> b : stop\na --> b : go\nb --> c : go\nb --> c : stop\nc --> [*]');
SELECT * FROM pg_temp.lint(E'[*] --> a\na --> b : stop\n[any] --> c : stop\nb --> [*]\nc --> [*]');
SELECT * FROM pg_temp.lint(E'[*] --> a\n[any] --> b : stop\n[any] --> c : stop\nb --> [*]\nc --> [*]');
SELECT * FROM pg_temp.lint(E'[*] --> on\non --> off : press\noff --> on : press');
SELECT * FROM pg_temp.lint(E'[*] --> a\na --> b : go\nb --> c : go\nc --> b : back\na --> d : end\nd --> [*]');
SELECT * FROM pg_temp.lint(E'[*] --> a\na --> a : touch\na --> b : go\nb --> [*]\n');
SELECT * FROM pg_temp.lint(E'[*] --> a\na --> a : touch\na --> b : go\nb --> [*]\nnote right of a : reenter');
SELECT * FROM pg_temp.lint(E'[*] --> a\na --> b : go\nb --> c : on\n[any] --> d : stop\nc --> [*]\nd --> [*]\nnote right of b : frozen');
SELECT * FROM pg_temp.lint(E'[*] --> a\na --> b : go by regress_idem_gone\nb --> [*]');
DROP ROLE regress_idem_gone;
SELECT * FROM idem_lint('m');
INSERT INTO idem.machine (name) VALUES ('empty');
SELECT * FROM idem_lint('empty');

-- With rows.
SELECT * FROM pg_temp.lint(E'[*] --> a\na --> b : go\na --> c : end\nc --> [*]\nd --> c');
CREATE TABLE lint_row (id int, state text);
INSERT INTO lint_row SELECT i, (ARRAY['a', 'b', 'b', 'd', 'z'])[1 + i % 5] FROM generate_series(1, 50) AS i;
SELECT idem_attach('m', 'lint_row', 'state', accept_existing => true);
SELECT * FROM idem_lint('m');

-- Rows are told to who may see them.
CREATE ROLE regress_idem_reader;
SELECT idem_grant('regress_idem_reader');
SET ROLE regress_idem_reader;
SELECT code, "rows" FROM idem_lint('m');
SELECT idem_diagram('m') IS NOT NULL;
SELECT idem_diagram('m', counts => true);
RESET ROLE;
GRANT SELECT (state) ON lint_row TO regress_idem_reader;
SET ROLE regress_idem_reader;
SELECT code, "rows" FROM idem_lint('m');
SELECT idem_diagram('m', counts => true) IS NOT NULL;
RESET ROLE;
DROP TABLE lint_row;
SELECT idem_revoke('regress_idem_reader');
DROP ROLE regress_idem_reader;

SELECT * FROM idem_lint(NULL);
SELECT * FROM idem_lint('nothing like it');
DELETE FROM idem.machine;
