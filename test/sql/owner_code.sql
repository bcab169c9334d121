-- What belongs to a table or to a guard, and runs when somebody asks about the
-- machine, runs as its owner.

\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE ROLE regress_idem_code_owner;
CREATE ROLE regress_idem_code_other;
CREATE ROLE regress_idem_code_deployer IN ROLE regress_idem_code_owner;
SELECT idem_grant('regress_idem_code_owner', 'operator'), idem_grant('regress_idem_code_other', 'operator'), idem_grant('regress_idem_code_deployer', 'operator');
CREATE SCHEMA oc AUTHORIZATION regress_idem_code_owner;
GRANT USAGE ON SCHEMA oc TO PUBLIC;
CREATE SCHEMA oc_super;
GRANT USAGE ON SCHEMA oc_super TO PUBLIC;
CREATE SEQUENCE oc_super.as_owner;
CREATE SEQUENCE oc_super.as_another;
GRANT ALL ON ALL SEQUENCES IN SCHEMA oc_super TO PUBLIC;
CREATE FUNCTION oc_super.ran() RETURNS TABLE (as_owner bool, as_another bool) LANGUAGE plpgsql AS $$
BEGIN
	RETURN QUERY SELECT o.is_called, a.is_called FROM oc_super.as_owner AS o, oc_super.as_another AS a;
	PERFORM setval('oc_super.as_owner', 1, false), setval('oc_super.as_another', 1, false);
END $$;
CREATE FUNCTION oc_super.def(machine text, VARIADIC guards text[]) RETURNS bool LANGUAGE sql AS $$
SELECT idem_define(machine, E'stateDiagram-v2\n[*] --> a\n' || string_agg(format(E'a --> b : go%s [%s]\n', n, g), '' ORDER BY n) || E'b --> [*]') FROM unnest(guards) WITH ORDINALITY AS x (g, n)
$$;

SET ROLE regress_idem_code_owner;
CREATE FUNCTION oc.draw() RETURNS bool LANGUAGE plpgsql AS $$
BEGIN
	PERFORM nextval(CASE WHEN CURRENT_USER = 'regress_idem_code_owner' THEN 'oc_super.as_owner' ELSE 'oc_super.as_another' END);
	RETURN true;
END $$;
CREATE FUNCTION oc.chk(text) RETURNS bool LANGUAGE plpgsql AS $$ BEGIN RETURN oc.draw(); END $$;
CREATE FUNCTION oc.imm(i int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN PERFORM oc.draw(); RETURN i; END $$;
CREATE DOMAIN oc.d AS text CHECK (oc.chk(value));

-- a guard of the machine's owner, in his table
SELECT oc_super.def('oc', $$'{1}'::oc.d[] IS NOT NULL$$);
CREATE TABLE oc.t (id int PRIMARY KEY, s text NOT NULL DEFAULT 'a');
SELECT idem_attach('oc', 'oc.t', 's');
RESET ROLE;
\c -
SET client_min_messages = warning;
SELECT as_another FROM oc_super.ran();
SELECT code, what FROM idem_lint('oc');
SELECT * FROM oc_super.ran();
SELECT oc_super.def('oc', 'true', $$'{2}'::oc.d[] IS NOT NULL$$);
SELECT * FROM oc_super.ran();
INSERT INTO idem.transition (machine, event, from_state, to_state, priority, guard) VALUES ('oc', 'go3', 'a', 'b', 9, $$'{3}'::oc.d[] IS NOT NULL$$);
SELECT * FROM oc_super.ran();
SET ROLE regress_idem_code_other;
SELECT code, what FROM idem_lint('oc');
RESET ROLE;
SELECT * FROM oc_super.ran();

-- in a superuser's: never as him
CREATE TABLE oc_super.t (id int PRIMARY KEY, s text NOT NULL DEFAULT 'a');
SET client_min_messages = error;
SELECT idem_attach('oc', 'oc_super.t', 's');
SET client_min_messages = warning;
SELECT idem_detach('oc.t', 's');
SELECT setval('oc_super.as_owner', 1, false), setval('oc_super.as_another', 1, false);
SELECT code, what FROM idem_lint('oc');
SELECT * FROM oc_super.ran();
SET ROLE regress_idem_code_other;
SELECT code, what FROM idem_lint('oc');
RESET ROLE;
SELECT * FROM oc_super.ran();
SELECT idem_detach('oc_super.t', 's');

-- a superuser's machine, and a table of somebody else's whose column and index are made so
SELECT oc_super.def('oc2', $$new.tags @> '{urgent}'$$);
SET ROLE regress_idem_code_owner;
CREATE TABLE oc.u (id int PRIMARY KEY, tags oc.d[], s oc.d NOT NULL DEFAULT 'a');
SELECT idem_attach('oc2', 'oc.u', 's');
INSERT INTO oc.u VALUES (1, NULL, 'a'), (2, '{urgent}', 'a');
UPDATE oc.u SET s = 'b' WHERE id = 2;
CREATE INDEX ON oc.u ((id + oc.imm(1)));
RESET ROLE;
SELECT as_another FROM oc_super.ran();
\c -
SET client_min_messages = warning;
SELECT code, what, rows FROM idem_lint('oc2');
SELECT * FROM oc_super.ran();
\c -
SET client_min_messages = warning;
SELECT oc_super.def('oc2', $$new.tags @> '{vip}'$$);
SELECT * FROM oc_super.ran();
-- rows are counted as he, for who may read them himself
\c -
SET client_min_messages = warning;
SELECT idem_define('oc2', E'stateDiagram-v2\n[*] --> a\na --> [*]');
SELECT * FROM oc_super.ran();
UPDATE idem.machine SET owner = 'regress_idem_code_other' WHERE name = 'oc2';
INSERT INTO idem.state (machine, name) VALUES ('oc2', 'c');
SET ROLE regress_idem_code_other;
SELECT oc_super.def('oc2', 'true');
SELECT code, what, rows FROM idem_lint('oc2');
RESET ROLE;
GRANT SELECT (s) ON oc.u TO regress_idem_code_other;
REVOKE USAGE ON SCHEMA oc FROM PUBLIC;
SET ROLE regress_idem_code_other;
SELECT oc_super.def('oc2', 'true');
SELECT code, what, rows FROM idem_lint('oc2');
RESET ROLE;
GRANT USAGE ON SCHEMA oc TO PUBLIC;
ALTER TABLE oc.u ENABLE ROW LEVEL SECURITY;
SET ROLE regress_idem_code_other;
SELECT oc_super.def('oc2', 'true');
SELECT code, what, rows FROM idem_lint('oc2');
RESET ROLE;
ALTER TABLE oc.u DISABLE ROW LEVEL SECURITY;
SELECT as_another FROM oc_super.ran();
\c -
SET client_min_messages = warning;
SET ROLE regress_idem_code_other;
SELECT code, what, rows FROM idem_lint('oc2');
SELECT oc_super.def('oc2', 'true');
SELECT idem_define('oc2', E'stateDiagram-v2\n[*] --> a\na --> [*]');
SELECT idem_diagram('oc2', counts => true);
RESET ROLE;
SELECT as_another FROM oc_super.ran();

-- a superuser attaches what is not his
SELECT idem_detach('oc.u', 's');
SELECT as_another FROM oc_super.ran();
SELECT oc_super.def('oc3', $$new.tags @> '{urgent}'$$);
SELECT idem_attach('oc3', 'oc.u', 's');
SELECT * FROM oc_super.ran();

-- the owner's code does not find what a stranger has made
SET ROLE regress_idem_code_other;
CREATE TEMP TABLE conf (id int);
SELECT code, what FROM idem_lint('oc3');
DROP TABLE conf;
SELECT code, what FROM idem_lint('oc3');
-- who may act as the owner may have temporary tables
SET ROLE regress_idem_code_deployer;
CREATE TEMP TABLE conf (id int);
SELECT code, what FROM idem_lint('oc3');
DROP TABLE conf;
RESET ROLE;
SELECT * FROM oc_super.ran();

-- what is parsed may read guards itself
SET ROLE regress_idem_code_owner;
CREATE FUNCTION oc.again(text) RETURNS bool LANGUAGE plpgsql AS $$
BEGIN
	IF coalesce(current_setting('oc.again', true), '') = '' THEN
		PERFORM set_config('oc.again', '1', true);
		PERFORM public.idem_lint('oc4');
	END IF;
	RETURN true;
END $$;
CREATE DOMAIN oc.again AS text CHECK (oc.again(value));
CREATE TABLE oc.w (id int PRIMARY KEY, gone int, s text);
SELECT oc_super.def('oc4', $$'{1}'::oc.again[] IS NOT NULL AND new.gone > 0$$);
SET oc.again = '1';
SELECT idem_attach('oc4', 'oc.w', 's');
ALTER TABLE oc.w DROP COLUMN gone;
SET oc.again = '';
SELECT code, what FROM idem_lint('oc4');

-- a schema that is gone
SELECT oc_super.def('oc4', 'oc_gone.f(new.id)');
SELECT oc_super.def('oc4', 'new.s::oc_gone.d IS NULL');
RESET ROLE;
CREATE SCHEMA oc_gone;
GRANT USAGE ON SCHEMA oc_gone TO PUBLIC;
CREATE FUNCTION oc_gone.f(int) RETURNS bool LANGUAGE sql RETURN true;
SELECT oc_super.def('oc4', 'oc_gone.f(new.id)');
DROP SCHEMA oc_gone CASCADE;
SELECT code, what FROM idem_lint('oc4');

-- a domain's CHECK raises what it likes
SET ROLE regress_idem_code_owner;
CREATE DOMAIN oc.tag AS text CONSTRAINT tag CHECK (value IN ('vip', 'late'));
CREATE TABLE oc.v (id int PRIMARY KEY, tags oc.tag[], s text);
SELECT oc_super.def('oc5', $$new.tags @> '{vip}'$$);
SELECT idem_attach('oc5', 'oc.v', 's');
ALTER DOMAIN oc.tag DROP CONSTRAINT tag;
ALTER DOMAIN oc.tag ADD CONSTRAINT tag CHECK (value IN ('VIP')) NOT VALID;
SELECT code, what FROM idem_lint('oc5');
SELECT oc_super.def('oc5', $$new.tags @> '{late}'$$);
CREATE FUNCTION oc.raise(text) RETURNS bool LANGUAGE plpgsql AS $$ BEGIN RAISE 'not %', $1; END $$;
ALTER DOMAIN oc.tag DROP CONSTRAINT tag;
ALTER DOMAIN oc.tag ADD CONSTRAINT tag CHECK (oc.raise(value)) NOT VALID;
SELECT code, what FROM idem_lint('oc5');
RESET ROLE;

-- a table's owner who may not use its schema
CREATE SCHEMA oc_hidden;
CREATE TABLE oc_hidden.t (id int PRIMARY KEY, s text);
ALTER TABLE oc_hidden.t OWNER TO regress_idem_code_owner;
SELECT oc_super.def('oc6', 'new.id > 0');
SELECT idem_attach('oc6', 'oc_hidden.t', 's');
INSERT INTO oc_hidden.t VALUES (1, 'a');
SELECT code, what, rows FROM idem_lint('oc6');
SELECT idem_define('oc6', E'stateDiagram-v2\n[*] --> c\nc --> b', moved => '{"a": "c"}');
SELECT s FROM oc_hidden.t;
SELECT idem_diagram('oc6', counts => true);

DROP SCHEMA oc, oc_super, oc_hidden CASCADE;
DELETE FROM idem.machine WHERE name LIKE 'oc%';
SELECT idem_revoke('regress_idem_code_owner'), idem_revoke('regress_idem_code_other'), idem_revoke('regress_idem_code_deployer');
DROP ROLE regress_idem_code_deployer, regress_idem_code_owner, regress_idem_code_other;
