-- A function runs under the collation that a plain call gives it: its arguments'
-- types', and in a twin the arguments' own.

\pset null '(null)'
\set VERBOSITY terse
SET client_min_messages = warning;
CREATE ROLE regress_idem_collator;
SELECT idem_grant('regress_idem_collator');
CREATE SCHEMA regress_collation AUTHORIZATION regress_idem_collator;
SET search_path = regress_collation, public;
SET ROLE regress_idem_collator;

CREATE DOMAIN c AS text COLLATE "C";
CREATE DOMAIN posix AS text COLLATE "POSIX";
-- what a parameter has, and what a variable of a type with a collation of its own
CREATE FUNCTION told(a text, OUT parameter text, OUT variable text) LANGUAGE plpgsql AS $$
DECLARE
	v c;
BEGIN
	parameter := pg_collation_for(a);
	variable := pg_collation_for(v);
END $$;
CREATE FUNCTION plain_text(a text) RETURNS text LANGUAGE sql AS $$SELECT pg_collation_for(a)$$;
CREATE FUNCTION domain_sql(a c) RETURNS text LANGUAGE sql AS $$SELECT pg_collation_for(a)$$;
CREATE FUNCTION domain_plpgsql(n int, a c) RETURNS text LANGUAGE plpgsql AS $$BEGIN RETURN pg_collation_for(a); END$$;
CREATE FUNCTION domain_set(a c) RETURNS SETOF text LANGUAGE plpgsql AS $$BEGIN RETURN NEXT pg_collation_for(a); END$$;
CREATE FUNCTION domain_array(VARIADIC a c[]) RETURNS text LANGUAGE sql AS $$SELECT pg_collation_for(a[1])$$;
CREATE FUNCTION domain_default(t text, a c DEFAULT 'x') RETURNS text LANGUAGE sql AS $$SELECT pg_collation_for(t) || pg_collation_for(a)$$;
CREATE FUNCTION domain_first(a c, t text) RETURNS text LANGUAGE sql AS $$SELECT pg_collation_for(a) || pg_collation_for(t)$$;
CREATE FUNCTION domain_left(n int, a c DEFAULT 'x') RETURNS text LANGUAGE sql AS $$SELECT pg_collation_for(a)$$;
CREATE FUNCTION domain_result(a posix) RETURNS c LANGUAGE sql AS $$SELECT pg_collation_for(a)$$;
CREATE FUNCTION of_name(a name) RETURNS text LANGUAGE sql AS $$SELECT pg_collation_for(a)$$;
CREATE FUNCTION two(a c, b posix, OUT x text, OUT y text) LANGUAGE sql AS $$SELECT pg_collation_for(a), pg_collation_for(b)$$;
CREATE FUNCTION without(n int, OUT v text) LANGUAGE plpgsql AS $$DECLARE d c; BEGIN v := pg_collation_for(d); END$$;
SELECT count(idem_wrap(oid)) FROM pg_proc WHERE pronamespace = 'regress_collation'::regnamespace;

-- each by hand, by its twin, by idem_call
CREATE TABLE calls (name text, types text, arguments text, document jsonb);
INSERT INTO calls VALUES
('told', 'text', $$'x'$$, '["x"]'), ('plain_text', 'text', $$'x'$$, '["x"]'), ('domain_sql', 'c', $$'x'$$, '["x"]'), ('domain_plpgsql', 'int,c', $$1, 'x'$$, '[1, "x"]'),
('domain_set', 'c', $$'x'$$, '["x"]'), ('domain_array', 'c[]', $$'x', 'y'$$, '["x", "y"]'), ('domain_default', 'text,c', $$'x'$$, '["x"]'), ('domain_result', 'posix', $$'x'$$, '["x"]'),
('domain_first', 'c,text', $$'x', 'y'$$, '["x", "y"]'), ('domain_left', 'int,c', '1', '[1]'), ('domain_left', 'int,c', $$1, 'y'$$, '[1, "y"]'), ('of_name', 'name', $$'x'$$, '["x"]'), ('two', 'c,posix', $$'x', 'y'$$, '["x", "y"]'), ('without', 'int', '1', '[1]'),
('told', 'text', $$'x' COLLATE "C"$$, NULL), ('plain_text', 'text', $$'x'::name$$, NULL), ('domain_sql', 'c', $$'x' COLLATE "POSIX"$$, NULL), ('domain_set', 'c', $$'x' COLLATE "POSIX"$$, NULL),
('domain_default', 'text,c', $$'x' COLLATE "POSIX", 'y'$$, NULL), ('domain_default', 'text,c', $$'x', 'y'$$, '["x", "y"]'), ('of_name', 'name', $$'x' COLLATE "POSIX"$$, NULL);
CREATE FUNCTION make(name text, arguments text, document jsonb, types text) RETURNS TABLE (by_hand text, by_twin text, by_call text) LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('SELECT to_json(t)::text FROM %I(%s) AS t', name, arguments) INTO by_hand;
	EXECUTE format('SELECT to_json(t)::text FROM %I(%L, %s) AS t', name || '_once', name || arguments, arguments) INTO by_twin;
	IF document IS NOT NULL THEN
		by_call := idem_call(name || document, format('%I(%s)', name, types)::regprocedure, document);
	END IF;
	RETURN NEXT;
END $$;
SELECT name, arguments, by_hand, by_twin = by_hand AS twin, by_call IN (by_hand, '[' || by_hand || ']') AS call FROM calls, make(name, arguments, document, types);
-- the key's collation counts among a twin's arguments; where it conflicts with theirs, their types' are left
SELECT plain_text_once('k1' COLLATE "C", 'x'), plain_text_once((SELECT 'k2' COLLATE "C"), (SELECT 'x' COLLATE "POSIX")), domain_sql_once((SELECT 'k3' COLLATE "POSIX"), 'x');
RESET ROLE;
-- a function that needs one, where the parser finds none
CREATE FUNCTION needs_one(a c, b posix) RETURNS bool LANGUAGE internal IMMUTABLE AS 'text_lt';
SELECT needs_one('x', 'y');
SELECT idem_call('n', 'needs_one(c,posix)', '["x", "y"]');

DROP SCHEMA regress_collation CASCADE;
SELECT idem_revoke('regress_idem_collator');
REVOKE ALL ON SCHEMA public FROM regress_idem_collator;
DROP ROLE regress_idem_collator;
DELETE FROM idem.key;
