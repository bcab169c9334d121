-- What becomes of twins and their records when the original, its types or the
-- twin itself change.

\pset null '(null)'
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE ROLE regress_idem_wrapper;
CREATE ROLE regress_idem_other;
SELECT idem_grant('regress_idem_wrapper'), idem_grant('regress_idem_other');
CREATE SCHEMA regress_wrap AUTHORIZATION regress_idem_wrapper;
CREATE SCHEMA "regress ""wrap'" AUTHORIZATION regress_idem_wrapper;
GRANT USAGE ON SCHEMA regress_wrap TO regress_idem_other;
SET search_path = regress_wrap, public;
SET ROLE regress_idem_wrapper;
CREATE FUNCTION f(a int, b text DEFAULT 'x') RETURNS int LANGUAGE sql AS 'SELECT a';

-- names
SELECT idem_wrap('f(int,text)') AS twin;
SELECT idem_wrap('f(int,text)', 'g') AS twin;
SELECT idem_wrap('f(int,text)', 'regress_wrap."G"') AS twin;
SELECT idem_wrap('f(int,text)', '"regress ""wrap''"."F ""once"" $1"') AS twin;
SELECT idem_wrap('f(int,text)', 'MiXed') AS twin;
SELECT "regress ""wrap'"."F ""once"" $1"('name', 1), "regress ""wrap'"."F ""once"" $1"('name', 1);
SELECT idem_wrap('f(int,text)', '');
SELECT idem_wrap('f(int,text)', 'a.b.c.d');
SELECT idem_wrap('f(int,text)', 'regress_not_there.f');
SELECT idem_wrap(NULL);
CREATE FUNCTION a_name_of_63_bytes_is_the_longest_that_a_function_can_have_12345() RETURNS int LANGUAGE sql AS 'SELECT 1';
SELECT idem_wrap('a_name_of_63_bytes_is_the_longest_that_a_function_can_have_12345()');
SELECT idem_wrap('a_name_of_63_bytes_is_the_longest_that_a_function_can_have_12345()', 'shorter') AS twin;
CREATE FUNCTION has_key(idem_key text) RETURNS int LANGUAGE sql AS 'SELECT 1';
SELECT idem_wrap('has_key(text)');
CREATE FUNCTION gives_key(a int, OUT idem_key text) LANGUAGE sql AS $$SELECT 'x'$$;
CREATE FUNCTION gives_keys(a int) RETURNS TABLE (idem_key text, b int) LANGUAGE sql AS $$SELECT 'x', 1$$;
CREATE TYPE keyed AS (idem_key text, idem_result int);
CREATE FUNCTION gives_keyed(a int) RETURNS SETOF keyed LANGUAGE sql AS $$SELECT 'x', a$$;
SELECT idem_wrap('gives_key(int)');
SELECT idem_wrap('gives_keys(int)');
-- that is no parameter
SELECT idem_wrap('gives_keyed(int)');
SELECT * FROM gives_keyed_once('keyed', 1);
SELECT * FROM gives_keyed_once('keyed', 1);
-- a name that is taken by something else
CREATE FUNCTION taken(idem_key text, a int, b text) RETURNS int LANGUAGE sql AS 'SELECT 0';
SELECT idem_wrap('f(int,text)', 'taken');
SELECT taken('k', 1, 'x');
CREATE FUNCTION of_f(idem_key text) RETURNS int LANGUAGE sql AS 'SELECT 0';
CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 2';
SELECT idem_wrap('f()', 'of_f');
-- an overload of the twin is another twin
SELECT idem_wrap('f()') AS twin;
SELECT f_once('f()'), f_once('f(int,text)', 1);
BEGIN READ ONLY;
SELECT idem_wrap('f()');
ROLLBACK;

-- again: the same twin; what it recorded is still there
SELECT f_once('again', 1);
SELECT idem_wrap('f(int,text)') AS twin;
SELECT f_once('again', 1);
-- a new default
CREATE OR REPLACE FUNCTION f(a int, b text DEFAULT 'new') RETURNS int LANGUAGE sql AS 'SELECT a + 1';
SELECT f_once('again', 1), f_once('default', 1);
SELECT idem_wrap('f(int,text)') AS twin;
SELECT f_once('again', 1);
SELECT f_once('again', 1, 'x');
-- grants of the twin stay, its owner too
REVOKE EXECUTE ON FUNCTION f_once(text, int, text) FROM PUBLIC;
SELECT idem_wrap('f(int,text)') AS twin;
SET ROLE regress_idem_other;
SELECT f_once('again', 1, 'x');
RESET ROLE;
SELECT proowner::regrole FROM pg_proc WHERE oid = 'f_once(text,int,text)'::regprocedure;
SET ROLE regress_idem_wrapper;

-- dropped, and back
DROP FUNCTION f(int, text);
SELECT f_once('again', 1, 'x');
CREATE FUNCTION f(a int, b text DEFAULT 'x') RETURNS int LANGUAGE sql AS 'SELECT -a';
SELECT f_once('again', 1, 'x'), f_once('another', 1, 'x');
-- with other parameters under the same name
DROP FUNCTION f(int, text);
CREATE FUNCTION f(a int, b int) RETURNS int LANGUAGE sql AS 'SELECT -a';
SELECT f_once('again', 1, 'x');
DROP FUNCTION f_once(text, int, text);

-- another result type: the twin says so, before it runs anything
CREATE TYPE pair AS (x int, secret text);
CREATE FUNCTION r() RETURNS int LANGUAGE sql AS 'SELECT 1';
SELECT idem_wrap('r()') AS twin;
SELECT r_once('r1');
DROP FUNCTION r();
CREATE FUNCTION r() RETURNS pair LANGUAGE sql AS $$SELECT ROW(1, 'secret')::pair$$;
SELECT r_once('r1');
SELECT r_once('r2');
SELECT idem_wrap('r()');
DROP FUNCTION r_once(text);
SELECT idem_wrap('r()') AS twin;
-- the old record is no value of the new type; as JSON it is there
SELECT r_once('r1');
SELECT idem_call('r1', 'r()');
SELECT r_once('r2');
-- a set of it is yet another type
DROP FUNCTION r();
CREATE FUNCTION r() RETURNS SETOF pair LANGUAGE sql AS $$SELECT ROW(1, 'secret')::pair$$;
SELECT r_once('r2');
-- columns of a record
CREATE FUNCTION c(OUT a int, OUT b text) LANGUAGE sql AS $$SELECT 1, 'secret'$$;
SELECT idem_wrap('c()') AS twin;
SELECT * FROM c_once('c1');
DROP FUNCTION c();
CREATE FUNCTION c(OUT a int, OUT b text, OUT c int) LANGUAGE sql AS $$SELECT 1, 'secret', 2$$;
SELECT * FROM c_once('c1');
SELECT * FROM c_once('c2');

-- a type that changed under the record: no value is quoted
DROP FUNCTION r();
DROP FUNCTION r_once(text);
CREATE TYPE mood AS ENUM ('secret', 'ok');
CREATE FUNCTION r() RETURNS pair LANGUAGE sql AS $$SELECT ROW(1, 'secret')::pair$$;
CREATE FUNCTION m() RETURNS mood LANGUAGE sql AS $$SELECT 'secret'::mood$$;
CREATE FUNCTION ms() RETURNS SETOF mood[] LANGUAGE sql AS $$SELECT '{ok,secret}'::mood[]$$;
SELECT idem_wrap('r()'), idem_wrap('m()'), idem_wrap('ms()');
SELECT r_once('t1'), m_once('t2'), ms_once('t3');
ALTER TYPE pair ADD ATTRIBUTE z int;
ALTER TYPE mood RENAME VALUE 'secret' TO 'renamed';
SELECT r_once('t1');
SELECT m_once('t2');
SELECT ms_once('t3');
SELECT idem_call('t2', 'm()');
-- an attribute dropped and added again
ALTER TYPE pair DROP ATTRIBUTE z;
ALTER TYPE pair DROP ATTRIBUTE x;
ALTER TYPE pair ADD ATTRIBUTE x text;
SELECT r_once('t1');
-- a table's row type with a dropped column
CREATE TABLE tab (gone int, a int, b text DEFAULT 'b');
ALTER TABLE tab DROP COLUMN gone;
CREATE FUNCTION tabs() RETURNS SETOF tab LANGUAGE sql AS $$INSERT INTO tab VALUES (1), (2) RETURNING *$$;
CREATE FUNCTION take(t tab) RETURNS tab LANGUAGE sql AS 'SELECT t';
SELECT idem_wrap('tabs()'), idem_wrap('take(tab)');
SELECT * FROM tabs_once('tabs');
SELECT * FROM tabs_once('tabs');
SELECT (take_once('take' || a, t)).* FROM tab AS t;
SELECT (take_once('take' || a, t)).* FROM tab AS t;
SELECT idem_call('tabs', 'tabs()'), idem_call('take', 'take(tab)', '[{"b": "x", "a": 3}]');

-- renamed: another function
ALTER FUNCTION m() RENAME TO n;
SELECT m_once('t2');
ALTER FUNCTION n() RENAME TO m;
CREATE OR REPLACE FUNCTION m() RETURNS mood LANGUAGE sql AS $$SELECT 'ok'::mood$$;
ALTER FUNCTION m_once(text) RENAME TO m_renamed;
SELECT m_renamed('new');
SELECT m_renamed('new');

-- no CREATE on the schema, no EXECUTE on the function
SET ROLE regress_idem_other;
SELECT idem_wrap('regress_wrap.m()');
SELECT idem_wrap('regress_wrap.m()', 'regress_wrap.stolen');
RESET ROLE;
GRANT CREATE ON SCHEMA regress_wrap TO regress_idem_other;
SET ROLE regress_idem_other;
SELECT idem_wrap('m()', 'theirs') AS twin;
SELECT proowner::regrole FROM pg_proc WHERE oid = 'theirs(text)'::regprocedure;
-- a twin of someone else's is not replaced
SELECT idem_wrap('m()', 'm_renamed');
SET ROLE regress_idem_wrapper;
REVOKE EXECUTE ON FUNCTION m() FROM PUBLIC;
SET ROLE regress_idem_other;
SELECT idem_wrap('m()', 'theirs');
SELECT theirs('new');
SELECT theirs('newer');
RESET ROLE;

-- a schema that gets another name, in one session
CREATE SCHEMA regress_wrap_moving;
CREATE FUNCTION regress_wrap_moving.f(a int) RETURNS int LANGUAGE sql AS 'SELECT a';
SELECT idem_call('moving', 'regress_wrap_moving.f(int)', '[1]');
ALTER SCHEMA regress_wrap_moving RENAME TO regress_wrap_moved;
\set VERBOSITY sqlstate
SELECT idem_call('moving', 'regress_wrap_moved.f(int)', '[1]');
\set VERBOSITY terse
ALTER SCHEMA regress_wrap_moved RENAME TO regress_wrap_moving;
SELECT idem_call('moving', 'regress_wrap_moving.f(int)', '[1]');
DROP SCHEMA regress_wrap_moving CASCADE;

DROP SCHEMA regress_wrap, "regress ""wrap'" CASCADE;
SELECT idem_revoke('regress_idem_wrapper'), idem_revoke('regress_idem_other');
REVOKE ALL ON SCHEMA public FROM regress_idem_wrapper, regress_idem_other;
DROP ROLE regress_idem_wrapper, regress_idem_other;
DELETE FROM idem.key;
