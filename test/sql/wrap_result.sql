-- Twins of every form of a result: one OUT parameter of a composite type in a set,
-- or without a name; void in a set; a strict function's NULL of a type that
-- refuses NULL. And results that cannot be read back, which have no twin.

\pset null '(null)'
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE ROLE regress_idem_former;
SELECT idem_grant('regress_idem_former');
CREATE SCHEMA regress_result AUTHORIZATION regress_idem_former;
SET search_path = regress_result, public;
SET ROLE regress_idem_former;

CREATE TYPE pair AS (a int[], b text);
CREATE DOMAIN full_pair AS pair CHECK ((VALUE).b <> '');
CREATE FUNCTION of_table() RETURNS TABLE (x pair) LANGUAGE sql AS $$VALUES (ROW(ARRAY[1], 'q')::pair), (NULL), (ROW(NULL, NULL)::pair)$$;
CREATE FUNCTION of_table_domain(i int) RETURNS TABLE (x full_pair) LANGUAGE sql AS $$SELECT ROW(ARRAY[i], 'q')::pair::full_pair$$;
CREATE FUNCTION out_set(OUT x pair) RETURNS SETOF pair LANGUAGE sql AS $$SELECT ROW(ARRAY[i], 'q')::pair FROM generate_series(1, 2) AS i$$;
CREATE FUNCTION inout_set(i int, INOUT x full_pair, VARIADIC v text[] DEFAULT '{}') RETURNS SETOF full_pair LANGUAGE sql AS 'SELECT x';
CREATE FUNCTION inout_int(INOUT x int) RETURNS SETOF int LANGUAGE sql AS 'VALUES (x), (x + 1)';
CREATE FUNCTION no_name(OUT int) LANGUAGE sql AS 'SELECT 1';
CREATE FUNCTION no_name_inout(INOUT int) LANGUAGE sql AS 'SELECT $1';
CREATE FUNCTION no_name_set(OUT int) RETURNS SETOF int LANGUAGE sql AS 'VALUES (1), (2)';
CREATE FUNCTION no_name_pair(OUT pair) LANGUAGE sql AS $$SELECT ROW(ARRAY[1], 'q')::pair$$;
CREATE FUNCTION no_name_pairs(i int, OUT full_pair) RETURNS SETOF full_pair LANGUAGE sql AS $$SELECT ROW(ARRAY[i], 'q')::pair::full_pair$$;
CREATE FUNCTION of_void() RETURNS SETOF void LANGUAGE plpgsql AS $$BEGIN RETURN QUERY SELECT NULL::void FROM generate_series(1, 2); END$$;
SELECT idem_wrap(oid) FROM pg_proc WHERE pronamespace = 'regress_result'::regnamespace ORDER BY proname;
-- by hand, and twice with a key
CREATE FUNCTION thrice(name text, arguments text) RETURNS TABLE (by_hand text, first text, again text) LANGUAGE plpgsql AS $$
DECLARE
	twin text := format('SELECT string_agg(t::text, '' '') FROM %I(%s) AS t', name || '_once', concat_ws(', ', quote_literal(name), arguments));
BEGIN
	EXECUTE format('SELECT string_agg(t::text, '' '') FROM %I(%s) AS t', name, arguments) INTO by_hand;
	EXECUTE twin INTO first;
	EXECUTE twin INTO again;
	RETURN NEXT;
END $$;
SELECT * FROM (VALUES ('of_table', NULL), ('of_table_domain', '3'), ('out_set', NULL), ('inout_set', $$1, ROW(ARRAY[2], 'z')::pair$$), ('inout_int', '5'), ('no_name', NULL), ('no_name_inout', '7'), ('no_name_set', NULL), ('no_name_pair', NULL), ('no_name_pairs', '4')) AS c (name, arguments), thrice(name, arguments);
SELECT a, b FROM out_set_once('out_set');
SELECT idem_call('out_set', 'out_set()'), idem_call('no_name', 'no_name()');
SELECT count(*) FROM of_void_once('v');
SELECT count(*) FROM of_void_once('v');
SELECT idem_call('v', 'of_void()'), idem_call('v2', 'of_void()');

-- a STRICT function is not run with a NULL, whatever its type says of NULL
CREATE DOMAIN sure AS int NOT NULL;
CREATE DOMAIN checked AS int CHECK (VALUE IS NOT NULL);
CREATE FUNCTION strict_sure(a int) RETURNS sure STRICT LANGUAGE sql AS 'SELECT 7::sure';
CREATE FUNCTION strict_checked(a int, b int) RETURNS checked STRICT LANGUAGE sql AS 'SELECT 7::checked';
SELECT idem_wrap('strict_sure(int)'), idem_wrap('strict_checked(int,int)');
SELECT strict_sure(NULL), strict_sure_once('s', NULL), strict_checked_once('c', 1, NULL);
SELECT strict_sure_once('s', NULL), strict_checked_once('c', 1, NULL);
SELECT strict_sure_once('s2', 1), strict_sure_once('s2', 1);

-- no text is read as one of these
CREATE FUNCTION of_default() RETURNS SETOF pg_attrdef LANGUAGE sql AS 'SELECT * FROM pg_attrdef LIMIT 0';
CREATE FUNCTION of_tree() RETURNS pg_node_tree LANGUAGE sql AS 'SELECT NULL::pg_node_tree';
CREATE FUNCTION of_stats() RETURNS SETOF pg_stats LANGUAGE sql AS 'SELECT * FROM pg_stats LIMIT 0';
CREATE FUNCTION of_more(OUT i int, OUT d pg_dependencies) LANGUAGE sql AS 'SELECT 1, NULL::pg_dependencies';
SELECT idem_wrap('of_default()');
SELECT idem_wrap('of_tree()');
SELECT idem_wrap('of_stats()');
SELECT idem_wrap('of_more()');
SELECT idem_call('d', 'of_default()'), idem_call('d', 'of_default()');

-- a type that reports a bad value as an internal error, in words of its own
CREATE FUNCTION refuse(v text) RETURNS bool LANGUAGE plpgsql AS $$BEGIN IF v = 'secret' THEN RAISE 'not %', v USING ERRCODE = 'XX000'; END IF; RETURN true; END$$;
CREATE DOMAIN picky AS text CHECK (refuse(VALUE));
CREATE FUNCTION of_picky(a picky) RETURNS picky LANGUAGE sql AS 'SELECT a';
CREATE FUNCTION make_picky(a text) RETURNS picky LANGUAGE sql AS 'SELECT a';
SELECT idem_wrap('make_picky(text)');
SELECT idem_call('p', 'of_picky(picky)', '["secret"]');
\echo :LAST_ERROR_SQLSTATE
SELECT make_picky_once('p', 'fine');
CREATE OR REPLACE FUNCTION refuse(v text) RETURNS bool LANGUAGE plpgsql AS $$BEGIN RAISE 'not %', v USING ERRCODE = 'XX000'; END$$;
SELECT make_picky_once('p', 'fine');

-- a function that was declared PARALLEL SAFE by mistake
CREATE FUNCTION no_safe() RETURNS bool LANGUAGE plpgsql PARALLEL SAFE AS $$BEGIN RETURN idem_once('n'); END$$;
SELECT set_config(name, 'on', false) FROM pg_settings WHERE name IN ('force_parallel_mode', 'debug_parallel_query');
SELECT no_safe();
\echo :LAST_ERROR_SQLSTATE
SELECT set_config(name, 'off', false) FROM pg_settings WHERE name IN ('force_parallel_mode', 'debug_parallel_query');

RESET ROLE;
DROP SCHEMA regress_result CASCADE;
SELECT idem_revoke('regress_idem_former');
REVOKE ALL ON SCHEMA public FROM regress_idem_former;
DROP ROLE regress_idem_former;
DELETE FROM idem.key;
