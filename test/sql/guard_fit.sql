-- Guards against the tables that their machine is attached to.

\set SHOW_CONTEXT always
CREATE ROLE regress_idem_fit_a;
CREATE ROLE regress_idem_fit_b;
SELECT idem_grant('regress_idem_fit_a', 'operator'), idem_grant('regress_idem_fit_b', 'operator');
CREATE SCHEMA regress_idem_fit AUTHORIZATION regress_idem_fit_a;
CREATE SCHEMA regress_idem_hidden AUTHORIZATION regress_idem_fit_b;
SET ROLE regress_idem_fit_a;
SET search_path = regress_idem_fit, public;
CREATE FUNCTION gf(guard text, by text DEFAULT '') RETURNS boolean LANGUAGE sql
RETURN idem_define('gf', format(E'stateDiagram-v2\n[*] --> new\nnew --> off : stop\nnew --> paid : pay %s %s\npaid --> [*]\noff --> [*]', '[' || guard || ']', by));

-- what no table can be asked is refused where it is written down
SELECT gf('(select true)');
SELECT gf('new.total = any (array(select 1))');
SELECT gf('exists (select)');
SELECT gf('count(*) > 1');
SELECT gf('max(new.total) > 1');
SELECT gf('pg_catalog.sum(new.total) > 1');
SELECT gf('sum(new.total) filter (where true) > 1');
SELECT gf('row_number() over () = 1');
SELECT gf('generate_series(1, new.total) = 1');
SELECT gf('case when new.total > 0 then unnest(new.many) else false end');
-- a name that another function has, too, or none so far, may be meant otherwise
CREATE FUNCTION bool_and(int) RETURNS boolean LANGUAGE sql RETURN true;
SELECT gf('bool_and(new.total)');
SELECT gf('later(new.total)');
SELECT gf('regress_idem_fit.sum(new.total)');

-- a guard that is changed is read against every table
SELECT gf('new.total > 0');
CREATE TABLE orders (id int PRIMARY KEY, state text DEFAULT 'new', total int, g int GENERATED ALWAYS AS (1) STORED);
CREATE TABLE "Or ders" (id int PRIMARY KEY, "st ate" text DEFAULT 'new', total int) PARTITION BY LIST (id);
CREATE TABLE parent (id int PRIMARY KEY, state text DEFAULT 'new', total int, extra int);
CREATE TABLE regress_idem_fit.child (own int) INHERITS (parent);
SELECT idem_attach('gf', 'orders', 'state'), idem_attach('gf', '"Or ders"', 'st ate'), idem_attach('gf', 'parent', 'state');
SELECT gf('new.totl > 0');
SELECT gf('new.total');
SELECT gf('new.g = 1');
SELECT gf('later(new.total)');
SELECT gf('new.state = ''x''');
SELECT gf('new.total > 0 and ''x''::int = 1');
SELECT gf('new.total > 1');
UPDATE idem.transition SET guard = 'new.nothing' WHERE machine = 'gf' AND event = 'pay';
INSERT INTO idem.transition (machine, event, from_state, to_state, priority, guard) VALUES ('gf', 'pay', 'new', 'off', 9, 'old.nothing');
UPDATE idem.transition SET priority = 7, guard = 'new.total > 2' WHERE machine = 'gf' AND event = 'pay';
-- not by who restores a dump
BEGIN;
SET LOCAL check_function_bodies = off;
SELECT gf('new.nothing > 0', 'by regress_idem_gone');
ROLLBACK;

-- a table that is changed later: lint says so, and the rest can be changed
SELECT gf('new.total > 1');
ALTER TABLE orders RENAME total TO amount;
ALTER TABLE parent RENAME total TO amount;
SELECT * FROM idem_lint('gf');
INSERT INTO orders (id, amount) VALUES (1, 5);
UPDATE orders SET state = 'paid';
SELECT gf('new.total > 1');
SELECT gf('new.total > 1', 'after 1 day');
SELECT gf('new.total > 1', 'by regress_idem_fit_a');
SELECT gf('new.amount > 1');
ALTER TABLE "Or ders" RENAME total TO amount;
SELECT gf('new.amount > 1');
SELECT * FROM idem_lint('gf');
UPDATE orders SET state = 'paid';

-- who may not look is warned
SELECT gf('true');
RESET ROLE;
UPDATE idem.machine SET owner = 'regress_idem_fit_a' WHERE name = 'gf';
SET ROLE regress_idem_fit_b;
CREATE FUNCTION regress_idem_hidden.secret(int) RETURNS boolean LANGUAGE sql RETURN true;
CREATE TABLE regress_idem_hidden.orders (id int PRIMARY KEY, state text, amount int);
SELECT idem_attach('gf', 'regress_idem_hidden.orders', 'state');
SET ROLE regress_idem_fit_a;
SELECT gf('secret(new.amount)');
SELECT gf('regress_idem_hidden.secret(new.amount)');
SELECT * FROM idem_lint('gf');
SET ROLE regress_idem_fit_b;
INSERT INTO regress_idem_hidden.orders VALUES (1, 'new', 1);
UPDATE regress_idem_hidden.orders SET state = 'paid';
SET ROLE regress_idem_fit_a;

-- roles are named with their line
SELECT gf('true', 'by regress_idem_fit_a, regress_idem_gone');

-- states that a column cannot be in
CREATE TYPE gf_state AS ENUM ('new', 'off');
CREATE TABLE typed (id int PRIMARY KEY, e gf_state, v varchar(3), c char(3), n int, t text);
SELECT gf('true');
SELECT idem_attach('gf', 'typed', c) FROM unnest('{e,v,c,n,t}'::name[]) AS c;
SELECT * FROM idem_lint('gf') ORDER BY what COLLATE "C";

RESET ROLE;
RESET search_path;
SET client_min_messages = warning;
DROP SCHEMA regress_idem_fit, regress_idem_hidden CASCADE;
DELETE FROM idem.machine WHERE name = 'gf';
SELECT idem_revoke('regress_idem_fit_a'), idem_revoke('regress_idem_fit_b');
DROP ROLE regress_idem_fit_a, regress_idem_fit_b;
