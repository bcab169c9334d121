-- The settings: who may set them, to what, and for how long.

\set VERBOSITY sqlstate
\pset null '(null)'
LOAD 'idem';
SELECT name, context, vartype, enumvals FROM pg_settings WHERE name LIKE 'idem.%' ORDER BY name COLLATE "C";
SELECT name, boot_val FROM pg_settings WHERE name LIKE 'idem.%' ORDER BY name COLLATE "C";

-- what they do not take
SET idem.access = 'heap';
SET idem.access = '';
SET idem.declared_scopes = 'perhaps';
SET idem.no_such = 1;
SET idem.Key = 'any case';
SELECT idem_key();
RESET idem.key;

-- a middleware's: for one transaction, undone by its rollback and by that of a
-- savepoint, and never interpolated
BEGIN;
SELECT set_config('idem.key', ''' OR 1=1 --', true), set_config('idem.scope', 'regress_s', true);
SELECT idem_key();
SAVEPOINT s;
SELECT set_config('idem.key', 'inner', true);
SELECT run FROM idem_claim();
ROLLBACK TO s;
SELECT idem_key();
SELECT run FROM idem_claim();
SELECT idem_complete(response => 'r');
COMMIT;
SELECT idem_key();
SELECT scope, key, response FROM idem.key;
BEGIN;
SELECT set_config('idem.key', NULL, true) = '' AS empty;
SELECT idem_key();
ROLLBACK;

-- of the session; an argument goes before
SET idem.key = 'session';
SET idem.scope = 'regress_s/t';
SELECT idem_once(idem_key()), idem_once('other', 'regress_o');
SELECT outcome FROM idem_lookup();
SELECT outcome FROM idem_lookup(scope => 'regress_s/t');
SELECT count(*) FROM idem_lookup('session', 'regress_o');
RESET ALL;
SELECT idem_key();
-- of a function
CREATE FUNCTION pg_temp.keyed() RETURNS text LANGUAGE sql SET idem.key = 'of the function' AS 'SELECT idem_key()';
SELECT pg_temp.keyed(), idem_key();

-- the way to the table may change between two verbs of one claim
BEGIN;
SET LOCAL idem.access = 'sql';
SELECT run FROM idem_claim('both');
SET LOCAL idem.access = 'direct';
SELECT outcome FROM idem_claim('both');
SELECT idem_step('both', 'one');
SET LOCAL idem.access = 'auto';
SELECT idem_retry('both', 'e');
SET LOCAL idem.access = 'sql';
SELECT run, attempt, step FROM idem_claim('both');
SAVEPOINT s;
SELECT idem_fail('both', 'undone');
SET LOCAL idem.access = 'direct';
SELECT outcome, response FROM idem_claim('both');
ROLLBACK TO s;
SELECT idem_complete('both', 'r');
SET LOCAL idem.access = 'direct';
SELECT outcome, attempt, response FROM idem_claim('both');
COMMIT;

-- an application's role may set its own, not the way to the table
CREATE ROLE regress_idem_settings;
SELECT idem_grant('regress_idem_settings');
SET ROLE regress_idem_settings;
SET idem.access = 'direct';
SET idem.key = 'mine';
SET idem.scope = 'regress_m';
SET idem.declared_scopes = on;
SELECT idem_claim();
SET idem.declared_scopes = off;
BEGIN;
SELECT run FROM idem_claim();
SELECT idem_complete();
COMMIT;
RESET ROLE;
RESET ALL;
SELECT idem_revoke('regress_idem_settings');
DROP ROLE regress_idem_settings;

SELECT scope, key, state FROM idem.key ORDER BY scope, key;
DELETE FROM idem.key;
