-- Whose rights a call has, and that nothing in search_path or in a user's types
-- turns idem's own rights against anybody.

\set VERBOSITY terse
SET client_min_messages = warning;
CREATE ROLE regress_idem_owner;
CREATE ROLE regress_idem_caller;
CREATE ROLE regress_idem_attacker;
SELECT idem_grant('regress_idem_caller'), idem_grant('regress_idem_owner'), idem_grant('regress_idem_attacker');
CREATE SCHEMA regress_owner AUTHORIZATION regress_idem_owner;
SET ROLE regress_idem_owner;
CREATE TABLE regress_owner.log (who text);
CREATE FUNCTION regress_owner.as_caller() RETURNS text LANGUAGE sql AS 'SELECT current_user::text';
CREATE FUNCTION regress_owner.as_owner() RETURNS text LANGUAGE sql SECURITY DEFINER AS 'INSERT INTO regress_owner.log VALUES (session_user = current_user) RETURNING current_user::text';
CREATE FUNCTION regress_owner.closed() RETURNS int LANGUAGE sql AS 'SELECT 1';
REVOKE EXECUTE ON FUNCTION regress_owner.closed() FROM PUBLIC;
CREATE FUNCTION regress_owner.with_default(a int DEFAULT regress_owner.closed()) RETURNS int LANGUAGE sql AS 'SELECT a';
SELECT idem_wrap('regress_owner.as_caller()'), idem_wrap('regress_owner.as_owner()'), idem_wrap('regress_owner.closed()');
RESET ROLE;
SELECT 'regress_owner.as_caller()'::regprocedure::oid AS as_caller \gset

-- without USAGE on the schema, not even by OID
SET ROLE regress_idem_caller;
SELECT idem_call('u', 'regress_owner.as_caller()');
SELECT idem_call('u', :as_caller);
SELECT idem_wrap(:as_caller, 'pg_temp.as_caller');
RESET ROLE;
GRANT USAGE ON SCHEMA regress_owner TO regress_idem_caller, regress_idem_attacker;
-- EXECUTE is the caller's own
SET ROLE regress_idem_caller;
SELECT idem_call('a', 'regress_owner.as_caller()'), idem_call('b', 'regress_owner.as_owner()');
SELECT regress_owner.as_caller_once('c'), regress_owner.as_owner_once('d');
SELECT idem_call('e', 'regress_owner.closed()');
SELECT regress_owner.closed_once('e');
SELECT idem_call('e', 'regress_owner.with_default(int)');
SELECT idem_call('e', 'regress_owner.with_default(int)', '[1]');
-- ... also for what was recorded by one who may
SET ROLE regress_idem_owner;
SELECT idem_call('f', 'regress_owner.closed()');
SET ROLE regress_idem_caller;
SELECT idem_call('f', 'regress_owner.closed()');
SELECT regress_owner.closed_once('f');
RESET ROLE;
SELECT * FROM regress_owner.log;

-- scopes with roles
INSERT INTO idem.scope (name, roles) VALUES ('regress_closed', '{regress_idem_owner}');
SET ROLE regress_idem_owner;
SELECT idem_call('g', 'regress_owner.closed()', scope => 'regress_closed/t');
SET idem.scope = 'regress_closed/t';
SELECT regress_owner.closed_once('h');
SELECT idem_child('g', 'n') = idem_child('g', 'n', 'regress_closed/t') AS same;
SET ROLE regress_idem_caller;
SELECT regress_owner.as_caller_once('h');
SELECT idem_child('g', 'n');
RESET idem.scope;
SELECT idem_call('g', 'regress_owner.as_caller()', scope => 'regress_closed/t');
SELECT idem_child('g', 'n', 'regress_closed');
RESET ROLE;

-- without a grant
CREATE ROLE regress_idem_nobody;
GRANT USAGE ON SCHEMA regress_owner TO regress_idem_nobody;
SET ROLE regress_idem_nobody;
SELECT idem_call('k', 'now()');
SELECT idem_child('k', 'n');
SELECT idem_wrap('now()');
SELECT * FROM idem_twin('now()', 'k') AS t (r timestamptz);
SELECT regress_owner.as_caller_once('k');
RESET ROLE;

-- a role change inside the function stays, as with any function
CREATE FUNCTION regress_owner.becomes_caller() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	PERFORM set_config('role', 'regress_idem_caller', true);
	RETURN current_user;
END $$;
BEGIN;
SELECT idem_call('i', 'regress_owner.becomes_caller()'), current_user;
SELECT current_user;
COMMIT;

-- an attacker's types: what makes JSON or text of them, and checks them, runs as
-- the caller and nobody else
CREATE SCHEMA regress_trap AUTHORIZATION regress_idem_attacker;
GRANT USAGE ON SCHEMA regress_trap TO PUBLIC;
SET ROLE regress_idem_attacker;
CREATE TABLE regress_trap.caught (who text, what text);
GRANT INSERT, SELECT ON regress_trap.caught TO PUBLIC;
CREATE TYPE regress_trap.mood AS ENUM ('sad');
CREATE FUNCTION regress_trap.spring(what text) RETURNS text LANGUAGE sql AS 'INSERT INTO regress_trap.caught VALUES (current_user, what) RETURNING what';
CREATE FUNCTION regress_trap.to_json(regress_trap.mood) RETURNS json LANGUAGE sql AS $$SELECT to_json(regress_trap.spring('cast'))$$;
CREATE CAST (regress_trap.mood AS json) WITH FUNCTION regress_trap.to_json(regress_trap.mood);
CREATE FUNCTION regress_trap.check(int) RETURNS boolean LANGUAGE sql AS $$SELECT regress_trap.spring('domain') IS NOT NULL$$;
CREATE DOMAIN regress_trap.checked AS int CHECK (regress_trap.check(VALUE));
CREATE FUNCTION regress_trap.f(m regress_trap.mood, c regress_trap.checked DEFAULT length(regress_trap.spring('default'))) RETURNS regress_trap.mood LANGUAGE sql AS $$SELECT m FROM regress_trap.spring('body')$$;
CREATE FUNCTION regress_trap.g(c regress_trap.checked) RETURNS regress_trap.checked LANGUAGE sql AS 'SELECT c';
SELECT idem_wrap('regress_trap.f(regress_trap.mood,regress_trap.checked)'), idem_wrap('regress_trap.g(regress_trap.checked)');
SET ROLE regress_idem_caller;
SELECT idem_call('t1', 'regress_trap.f(regress_trap.mood,regress_trap.checked)', '["sad"]');
SELECT idem_call('t1', 'regress_trap.f(regress_trap.mood,regress_trap.checked)', '["sad"]');
SELECT regress_trap.f_once('t2', 'sad'), regress_trap.f_once('t2', 'sad');
SELECT regress_trap.g_once('t3', 1), regress_trap.g_once('t3', 1);
RESET ROLE;
SELECT who, what, count(*) > 0 AS sprung FROM regress_trap.caught GROUP BY who, what ORDER BY who, what;

-- what stands in front of everything in search_path changes nothing
SET ROLE regress_idem_attacker;
DO $$
DECLARE
	f text;
BEGIN
	FOREACH f IN ARRAY ARRAY['to_json(anyelement)', 'to_jsonb(anyelement)', 'jsonb_to_record(jsonb)', 'format_type(oid, integer)', 'array_out(anyarray)',
			'quote_ident(text)', 'quote_literal(text)', 'idem_key()', 'set_config(text, text, boolean)', 'text(json)'] LOOP
		EXECUTE format('CREATE FUNCTION regress_trap.%s RETURNS text LANGUAGE sql AS $x$SELECT regress_trap.spring(%L)$x$', f, f);
	END LOOP;
	FOREACH f IN ARRAY ARRAY['text', 'jsonb', 'json', 'regprocedure', 'bool', 'int4', 'record'] LOOP
		EXECUTE format('CREATE TYPE regress_trap.%I AS (trap int)', f);
	END LOOP;
	CREATE FUNCTION regress_trap.idem_twin(pg_catalog.regprocedure, pg_catalog.text, VARIADIC pg_catalog."any") RETURNS SETOF pg_catalog.record LANGUAGE internal AS 'hash_record';
EXCEPTION WHEN insufficient_privilege THEN
	RAISE NOTICE 'no twin in C';
END $$;
RESET ROLE;
TRUNCATE regress_trap.caught;
GRANT CREATE ON SCHEMA regress_owner TO regress_idem_caller;
SET ROLE regress_idem_caller;
SET search_path = regress_trap, pg_catalog, public;
CREATE FUNCTION regress_owner.typed(a pg_catalog.text DEFAULT 'a', b pg_catalog.int4 DEFAULT 1, c pg_catalog.jsonb DEFAULT '{}') RETURNS pg_catalog.jsonb LANGUAGE sql AS $$SELECT pg_catalog.jsonb_build_array(a, b, c)$$;
SELECT pg_catalog.pg_get_function_arguments(public.idem_wrap('regress_owner.typed(pg_catalog.text,pg_catalog.int4,pg_catalog.jsonb)'));
SELECT regress_owner.typed_once('p1'), regress_owner.typed_once('p1');
SELECT public.idem_call('p2', 'regress_owner.typed(pg_catalog.text,pg_catalog.int4,pg_catalog.jsonb)', '["x"]');
SELECT public.idem_child('p2', 'typed') IS NOT NULL AS child;
SET search_path = public;
SELECT regress_owner.typed_once('p1'), idem_call('p2', 'regress_owner.typed(text,int,jsonb)', '["x"]');
RESET search_path;
RESET ROLE;
SELECT * FROM regress_trap.caught;

-- a domain's constraint needs the privilege of whoever calls, in one session
-- and in spite of what was compiled before
CREATE FUNCTION regress_trap.checks(int) RETURNS boolean LANGUAGE plpgsql AS 'BEGIN RETURN $1 > 0; END';
REVOKE EXECUTE ON FUNCTION regress_trap.checks(int) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION regress_trap.checks(int) TO regress_idem_caller;
CREATE DOMAIN regress_trap.positive AS int CHECK (regress_trap.checks(VALUE));
CREATE FUNCTION regress_trap.takes(a regress_trap.positive) RETURNS int LANGUAGE sql AS 'SELECT a::int';
SET ROLE regress_idem_caller;
SELECT idem_call('d1', 'regress_trap.takes(regress_trap.positive)', '[1]');
SELECT idem_call('d1', 'regress_trap.takes(regress_trap.positive)', '[-1]');
SELECT idem_call('d2', 'regress_trap.takes(regress_trap.positive)', '[-1]');
SET ROLE regress_idem_owner;
SELECT idem_call('d3', 'regress_trap.takes(regress_trap.positive)', '[1]');
\echo SQLSTATE :LAST_ERROR_SQLSTATE
RESET ROLE;
GRANT regress_idem_caller TO regress_idem_owner;
SET ROLE regress_idem_owner;
SELECT idem_call('d3', 'regress_trap.takes(regress_trap.positive)', '[1]');
RESET ROLE;
REVOKE regress_idem_caller FROM regress_idem_owner;
SET ROLE regress_idem_owner;
SELECT idem_call('d4', 'regress_trap.takes(regress_trap.positive)', '[1]');
SET ROLE regress_idem_caller;
SELECT idem_call('d5', 'regress_trap.takes(regress_trap.positive)', '[1]');
RESET ROLE;

DROP SCHEMA regress_owner, regress_trap CASCADE;
SELECT idem_revoke('regress_idem_owner'), idem_revoke('regress_idem_caller'), idem_revoke('regress_idem_attacker');
REVOKE ALL ON SCHEMA public FROM regress_idem_owner, regress_idem_caller, regress_idem_attacker;
DROP ROLE regress_idem_owner, regress_idem_caller, regress_idem_attacker, regress_idem_nobody;
DELETE FROM idem.key;
DELETE FROM idem.scope WHERE name LIKE 'regress%';
