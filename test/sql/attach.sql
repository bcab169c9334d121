-- idem_attach and idem_detach: options, roles, and what they refuse.

\set SHOW_CONTEXT never
CREATE ROLE regress_idem_shop;
CREATE ROLE regress_idem_clerk;
CREATE ROLE regress_idem_lead IN ROLE regress_idem_clerk;
CREATE ROLE regress_idem_batch;
SELECT idem_grant('regress_idem_shop', 'operator');
CREATE SCHEMA regress_idem_at AUTHORIZATION regress_idem_shop;
GRANT USAGE ON SCHEMA regress_idem_at TO regress_idem_clerk, regress_idem_batch;
SET ROLE regress_idem_shop;
SET search_path = regress_idem_at, public;
INSERT INTO idem.machine (name) VALUES ('at');
INSERT INTO idem.state (machine, name, initial, final) VALUES
	('at', 'draft', true, false), ('at', 'pending', false, false),
	('at', 'approved', false, true);
INSERT INTO idem.transition (machine, event, from_state, to_state, priority, roles, guard) VALUES
	('at', 'submit', 'draft', 'pending', 1, NULL, NULL),
	('at', 'approve', 'pending', 'approved', 2, '{regress_idem_clerk}', NULL),
	('at', 'return', 'pending', 'draft', 3, '{regress_idem_lead}', 'new.v > 1');
CREATE TABLE at_t (id int PRIMARY KEY, state text, v int);
GRANT ALL ON at_t TO regress_idem_clerk, regress_idem_batch;

-- bad arguments
SELECT idem_attach(NULL, 'at_t', 'state');
SELECT idem_attach('at', NULL, 'state');
SELECT idem_attach('at', 'at_t', NULL);
SELECT idem_attach('at', 'at_t', 'state', on_delete => 'sometimes');
SELECT idem_attach('at', 'at_t', 'state', mode => 'watch');
SELECT idem_attach('at', 'at_t', 'state', keep => '1 day');
SELECT idem_attach('at', 'at_t', 'state', history => true, keep => '-1 day');
SELECT idem_attach('at', 'at_t', 'state', history => true, keep => '10000 years');
SELECT idem_attach('at', 'at_t', 'state', exempt => '{regress_idem_missing}');
SELECT idem_attach('nothing', 'at_t', 'state');
SELECT idem_attach('at', 0, 'state');
SELECT idem_detach(NULL, 'state');
SELECT idem_detach('at_t', NULL);
SELECT idem_detach('at_t', 'state');
SELECT idem_detach('at_t', 'missing');
SELECT * FROM idem_verify(NULL);
SELECT * FROM idem_verify('at_t');

-- what is no table, or not one's own
CREATE VIEW at_view AS SELECT * FROM at_t;
CREATE MATERIALIZED VIEW at_matview AS SELECT * FROM at_t;
CREATE SEQUENCE at_seq;
SELECT idem_attach('at', 'at_view', 'state');
SELECT idem_attach('at', 'at_matview', 'state');
SELECT idem_attach('at', 'at_seq', 'last_value');
SELECT idem_attach('at', 'at_t_pkey', 'id');
SELECT idem_attach('at', 'pg_catalog.pg_class', 'relname');
RESET ROLE;
SELECT idem_attach('at', 'pg_catalog.pg_description', 'description');
SELECT idem_attach('at', 'idem.state', 'name');
CREATE TABLE at_other (state text);
SET ROLE regress_idem_shop;
SELECT idem_attach('at', 'at_other', 'state');
SELECT idem_detach('at_other', 'state');
RESET ROLE;
DROP TABLE at_other;
SET ROLE regress_idem_clerk;
SELECT idem_attach('at', 'at_t', 'state');
SET ROLE regress_idem_shop;

-- rows that are in no state
INSERT INTO at_t VALUES (1, NULL, 1), (2, 'wrong', 1), (3, 'wrong', 1), (4, 'Draft', 1), (5, 'draft', 1);
SELECT idem_attach('at', 'at_t', 'state');
SELECT idem_attach('at', 'at_t', 'state', accept_existing => true);
SELECT * FROM idem_verify('at_t') ORDER BY row_key ->> 'id';
UPDATE at_t SET v = 2;
UPDATE at_t SET state = 'pending' WHERE id = 1;
UPDATE at_t SET state = 'draft' WHERE id = 1;
UPDATE at_t SET state = 'draft' WHERE id = 2;
SELECT idem_attach('at', 'at_t', 'state');
SELECT idem_detach('at_t', 'state');
SELECT idem_attach('at', 'at_t', 'state', validate => false);
SELECT count(*) FROM idem_verify('at_t');
SELECT idem_detach('at_t', 'state');
DELETE FROM at_t;

-- roles
SELECT idem_attach('at', 'at_t', 'state', exempt => '{regress_idem_batch}', on_delete => 'final');
SELECT options FROM idem.binding;
INSERT INTO at_t SELECT i, 'draft', 1 FROM generate_series(1, 5) AS i;
UPDATE at_t SET state = 'pending';
UPDATE at_t SET state = 'approved' WHERE id = 1;
SET ROLE regress_idem_clerk;
UPDATE at_t SET state = 'draft' WHERE id = 1;
UPDATE at_t SET state = 'approved' WHERE id = 1;
DELETE FROM at_t WHERE id = 1;
DELETE FROM at_t WHERE id = 2;
SET ROLE regress_idem_batch;
UPDATE at_t SET state = 'draft' WHERE id = 2;
UPDATE at_t SET state = 'nonsense' WHERE id = 3;
INSERT INTO at_t VALUES (9, 'approved', 1);
DELETE FROM at_t WHERE id = 4;
-- a guard that a role may not run
RESET ROLE;
CREATE FUNCTION at_secret(int) RETURNS boolean LANGUAGE plpgsql AS 'BEGIN RETURN $1 > 0; END';
REVOKE ALL ON FUNCTION at_secret(int) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION at_secret(int) TO regress_idem_shop;
UPDATE idem.transition SET roles = NULL, guard = 'regress_idem_at.at_secret(new.v)' WHERE event = 'return' AND machine = 'at';
SET ROLE regress_idem_shop;
UPDATE at_t SET state = 'draft' WHERE id = 5;
UPDATE at_t SET state = 'pending' WHERE id = 5;
SET ROLE regress_idem_clerk;
UPDATE at_t SET state = 'draft' WHERE id = 5;
SET ROLE regress_idem_shop;
UPDATE at_t SET state = 'draft' WHERE id = 5;
-- the superuser may take every transition, but is not exempt
RESET ROLE;
UPDATE at_t SET state = 'approved' WHERE id = 5;
UPDATE idem.transition SET guard = NULL WHERE event = 'return' AND machine = 'at';
SET ROLE regress_idem_shop;
SELECT idem_detach('at_t', 'state');
DELETE FROM at_t;

-- events only
SELECT idem_attach('at', 'at_t', 'state', events_only => true, on_delete => 'never');
INSERT INTO at_t VALUES (1, 'draft', 1);
UPDATE at_t SET state = 'pending';
UPDATE at_t SET id = 1, state = 'draft', v = 3;
DELETE FROM at_t;
SELECT idem_detach('at_t', 'state');
DELETE FROM at_t;

-- observe
SELECT idem_attach('at', 'at_t', 'state', mode => 'observe', on_delete => 'never');
SELECT options FROM idem.binding;
INSERT INTO at_t VALUES (1, 'pending', 1), (2, 'what', 1), (3, NULL, 1);
UPDATE at_t SET state = 'approved' WHERE id = 1;
UPDATE at_t SET state = 'draft' WHERE id = 1;
DELETE FROM at_t WHERE id = 1;
INSERT INTO at_t SELECT i, 'approved', 1 FROM generate_series(11, 30) AS i;
SELECT count(*) FROM at_t;
SELECT idem_detach('at_t', 'state');
DELETE FROM at_t;

-- two machines on two columns, and one on both
RESET ROLE;
INSERT INTO idem.machine (name, owner) VALUES ('at "2"', 'regress_idem_shop');
INSERT INTO idem.state (machine, name, initial) VALUES ('at "2"', 'it''s', true), ('at "2"', 'b\', false);
INSERT INTO idem.transition (machine, event, from_state, to_state, priority, guard) VALUES
	('at "2"', 'go', 'it''s', 'b\', 1, 'new.state = ''pending''');
SET ROLE regress_idem_shop;
ALTER TABLE at_t ADD "Other ""state" text DEFAULT 'it''s', ADD third text DEFAULT 'draft';
SELECT idem_attach('at', 'at_t', 'state');
SELECT idem_attach('at "2"', 'at_t', 'Other "state');
SELECT idem_attach('at', 'at_t', 'third');
SELECT idem_attach('at "2"', 'at_t', 'state');
SELECT machine, column_name FROM idem.binding ORDER BY 1, 2;
INSERT INTO at_t VALUES (1, 'draft', 1);
INSERT INTO at_t VALUES (2, 'draft', 1, 'b\');
UPDATE at_t SET "Other ""state" = 'b\';
UPDATE at_t SET state = 'pending', "Other ""state" = 'b\', third = 'approved';
UPDATE at_t SET state = 'pending', "Other ""state" = 'b\', third = 'pending';
-- a table of a long name, columns of long names, triggers renamed
ALTER TRIGGER "~idem_state" ON at_t RENAME TO guard_of_state;
UPDATE at_t SET state = 'approved';
ALTER TABLE at_t RENAME third TO aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaé;
SELECT idem_detach('at_t', 'third');
SELECT idem_detach('at_t', 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaé');
SELECT idem_attach('at', 'at_t', 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaé');
SELECT idem_detach('at_t', 'state');
SELECT machine, column_name FROM idem.binding ORDER BY 1, 2;
-- a name that another trigger has
CREATE FUNCTION at_nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN new; END';
CREATE TRIGGER "~idem_state_end" BEFORE UPDATE ON at_t FOR EACH ROW EXECUTE FUNCTION at_nothing();
SELECT idem_attach('at', 'at_t', 'state');
SELECT tgname FROM pg_trigger WHERE tgrelid = 'at_t'::regclass AND tgname ~ 'state' ORDER BY 1;
SELECT idem_detach('at_t', 'state');
DROP TRIGGER "~idem_state_end" ON at_t;
-- a column dropped with all that depends on it leaves the table usable
SELECT idem_attach('at', 'at_t', 'state');
ALTER TABLE at_t DROP state CASCADE;
UPDATE at_t SET v = 3;
SELECT idem_detach('at_t', 'state');
SELECT count(*) FROM pg_trigger WHERE tgrelid = 'at_t'::regclass AND tgname ~ '^~idem_state';
DROP TABLE at_t CASCADE;

-- guards are read against the table
CREATE TABLE at_t (id int PRIMARY KEY, state text, v int, g int GENERATED ALWAYS AS (v + 1) STORED);
UPDATE idem.transition SET guard = 'new.nope = 1' WHERE event = 'return' AND machine = 'at';
SELECT idem_attach('at', 'at_t', 'state');
UPDATE idem.transition SET guard = 'new.v' WHERE event = 'return' AND machine = 'at';
SELECT idem_attach('at', 'at_t', 'state');
UPDATE idem.transition SET guard = 'new.g = 1' WHERE event = 'return' AND machine = 'at';
SELECT idem_attach('at', 'at_t', 'state');
UPDATE idem.transition SET guard = 'new IS NOT NULL' WHERE event = 'return' AND machine = 'at';
SELECT idem_attach('at', 'at_t', 'state');
UPDATE idem.transition SET guard = 'new.tableoid > 0 AND old.tableoid > 0' WHERE event = 'return' AND machine = 'at';
SELECT idem_attach('at', 'at_t', 'state');
-- 18 has columns that are in no row; what is refused is told by nothing here
DO $$
DECLARE v text;
BEGIN
	IF current_setting('server_version_num')::int < 180000 THEN
		RETURN;
	END IF;
	EXECUTE 'ALTER TABLE at_t ADD virtual int GENERATED ALWAYS AS (v + 1) VIRTUAL';
	FOREACH v IN ARRAY ARRAY['old.virtual > 0', 'new.virtual > 0', 'old IS NOT NULL'] LOOP
		UPDATE idem.transition SET guard = v WHERE event = 'return' AND machine = 'at';
		BEGIN
			PERFORM idem_attach('at', 'at_t', 'state');
			RAISE 'accepted: %', v;
		EXCEPTION WHEN SQLSTATE 'ID500' THEN
		END;
	END LOOP;
	EXECUTE 'ALTER TABLE at_t DROP virtual';
END $$;
UPDATE idem.transition SET guard = 'sum(new.v) > 1' WHERE event = 'return' AND machine = 'at';
UPDATE idem.transition SET guard = 'old.g = old.v + 1 and old is not null -- always' WHERE event = 'return' AND machine = 'at';
SELECT idem_attach('at', 'at_t', 'state');
INSERT INTO at_t VALUES (1, 'draft', 1);
UPDATE at_t SET state = 'pending';
UPDATE at_t SET state = 'draft';

-- who writes does not change what a guard means
CREATE FUNCTION allowed(int) RETURNS boolean LANGUAGE plpgsql AS 'BEGIN RETURN $1 > 10; END';
UPDATE idem.transition SET guard = 'allowed(new.v) and new.state = ''draft''' WHERE event = 'return' AND machine = 'at';
UPDATE at_t SET state = 'pending';
CREATE FUNCTION pg_temp.allowed(int) RETURNS boolean LANGUAGE sql AS 'SELECT true';
CREATE FUNCTION pg_temp.yes(text, text) RETURNS boolean LANGUAGE sql AS 'SELECT true';
CREATE OPERATOR pg_temp.= (leftarg = text, rightarg = text, function = pg_temp.yes);
SET search_path = pg_temp, pg_catalog, regress_idem_at, public;
SET standard_conforming_strings = off;
SET transform_null_equals = on;
UPDATE at_t SET state = 'draft';
RESET standard_conforming_strings;
RESET transform_null_equals;
SET search_path = regress_idem_at, public;
UPDATE at_t SET state = 'draft', v = 11;
DROP TABLE at_t;

-- a machine that is gone
UPDATE idem.transition SET guard = NULL WHERE event = 'return' AND machine = 'at';
CREATE TABLE at_t (id int PRIMARY KEY, state text);
SELECT idem_attach('at', 'at_t', 'state');
RESET ROLE;
ALTER TABLE idem.machine DISABLE TRIGGER checked;
ALTER TABLE idem.state DISABLE TRIGGER checked;
DELETE FROM idem.transition WHERE machine = 'at';
DELETE FROM idem.state WHERE machine = 'at';
DELETE FROM idem.machine WHERE name = 'at';
ALTER TABLE idem.machine ENABLE TRIGGER checked;
ALTER TABLE idem.state ENABLE TRIGGER checked;
SET ROLE regress_idem_shop;
INSERT INTO at_t VALUES (1, 'draft');
SELECT * FROM idem_verify('at_t');
SELECT idem_detach('at_t', 'state');

-- options that no idem_attach() wrote are passed by, and stop nobody
CREATE TABLE at_hand (id int PRIMARY KEY, state text);
CREATE FUNCTION pg_temp.listed(options text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	told text;
BEGIN
	EXECUTE format('CREATE TRIGGER q BEFORE UPDATE ON at_hand FOR EACH ROW WHEN (NEW.state IS NOT NULL OR true) EXECUTE FUNCTION public.idem_guard(%L, %L, %L, %L)', 'at_hand', options, 'q', 'x');
	SELECT string_agg(b.options::text, ', ') INTO told FROM idem.binding AS b WHERE table_name = 'at_hand'::regclass;
	DROP TRIGGER q ON at_hand;
	RETURN told;
END $$;
SELECT o, pg_temp.listed(o) FROM unnest(ARRAY['{}', E'{"exempt": ["d\x7Fel"]}', '{"history": true, "exempt": ["a\\b", "c\"d", "\u0001x", ""], "keep": "P1D"}', '{"exempt": []}',
	'{"child": true}', '{bad', '', '{"history": true, }', '{"history": true, ', '{"history": true, "keep": "P1D"', '{"history": true, "exempt": [], "keep": "x"}', '{, }', '{"history": true "keep": "x"}', '{true: true}', '{"a": "\u0000"}', '{"a": "\ud800"}', '{"a": "b\"}', '{"a": [,]}', '{"a": ["b", ]}', '{"a": "b', '[]', E'{"a": "\n"}']) AS o;
DROP TABLE at_hand;

RESET search_path;
RESET ROLE;
DROP OPERATOR pg_temp.= (text, text);
DROP FUNCTION pg_temp.yes, pg_temp.allowed, pg_temp.listed;
DROP SCHEMA regress_idem_at CASCADE;
DELETE FROM idem.state WHERE machine ~ '^at';
DELETE FROM idem.machine WHERE name ~ '^at';
SELECT idem_revoke('regress_idem_shop');
DROP ROLE regress_idem_shop, regress_idem_lead, regress_idem_clerk, regress_idem_batch;
