-- What ORMs and their like send, each style by name.  In each the first of two
-- writers that read the same version wins, and the second is told.

\set VERBOSITY terse
CREATE TABLE regress_orm (id int PRIMARY KEY, name text, updated_at int DEFAULT 0, version int NOT NULL DEFAULT 0);
INSERT INTO regress_orm VALUES (1, 'a'), (2, 'b'), (3, 'c');
SELECT idem_attach_version('regress_orm', 'version', ignore => '{updated_at}');

-- JPA, Hibernate, Doctrine: SET version = n + 1 WHERE version = n; the count of rows tells
UPDATE regress_orm SET name = 'jpa', version = 1 WHERE id = 1 AND version = 0;
\echo :ROW_COUNT
UPDATE regress_orm SET name = 'jpa again', version = 1 WHERE id = 1 AND version = 0;
\echo :ROW_COUNT
SELECT * FROM regress_orm WHERE id = 1;
-- ... and a forced increment without a change
UPDATE regress_orm SET version = 2 WHERE id = 1 AND version = 1;
\echo :ROW_COUNT

-- Rails lock_version: the same, after which it believes that the row is at n + 1
UPDATE regress_orm SET name = 'rails', version = 3 WHERE id = 1 AND version = 2;
UPDATE regress_orm SET name = 'rails', version = 3 WHERE id = 1 AND version = 2;
\echo :ROW_COUNT
-- touch, with and without a version; update_column without one
UPDATE regress_orm SET updated_at = 1, version = 4 WHERE id = 1 AND version = 3;
UPDATE regress_orm SET updated_at = 2 WHERE id = 1;
UPDATE regress_orm SET updated_at = 3, version = 5 WHERE id = 1 AND version = 4;
\echo :ROW_COUNT
SELECT * FROM regress_orm WHERE id = 1;

-- Django: F() + 1 in a filter on the version, and save() of all fields
UPDATE regress_orm SET name = 'django', version = version + 1 WHERE id = 1 AND version = 5;
\echo :ROW_COUNT
UPDATE regress_orm SET name = 'django', version = version + 1 WHERE id = 1 AND version = 5;
\echo :ROW_COUNT
UPDATE regress_orm SET name = 'saved', updated_at = 3, version = 6 WHERE id = 1;
UPDATE regress_orm SET name = 'saved over', updated_at = 3, version = 6 WHERE id = 1;

-- plain SQL, SET version = n: the trigger tells
UPDATE regress_orm SET name = 'plain', version = 7 WHERE id = 1;
UPDATE regress_orm SET name = 'plain again', version = 7 WHERE id = 1;

-- a full-row UPDATE, as a row value
UPDATE regress_orm SET (id, name, updated_at, version) = (1, 'full', 3, 8) WHERE id = 1;
UPDATE regress_orm SET (id, name, updated_at, version) = (1, 'full again', 3, 8) WHERE id = 1;

-- upsert with EXCLUDED.version
INSERT INTO regress_orm VALUES (1, 'upsert', 0, 9)
ON CONFLICT (id) DO UPDATE SET name = EXCLUDED.name, version = EXCLUDED.version RETURNING version;
INSERT INTO regress_orm VALUES (1, 'upsert again', 0, 9)
ON CONFLICT (id) DO UPDATE SET name = EXCLUDED.name, version = EXCLUDED.version RETURNING version;
-- ... with a condition, which leaves the row alone
INSERT INTO regress_orm AS t VALUES (1, 'upsert again', 0, 9)
ON CONFLICT (id) DO UPDATE SET name = EXCLUDED.name, version = EXCLUDED.version
WHERE t.version = EXCLUDED.version RETURNING version;
-- ... without a version it is the last writer's
INSERT INTO regress_orm VALUES (1, 'upsert blind')
ON CONFLICT (id) DO UPDATE SET name = EXCLUDED.name RETURNING version;

-- MERGE
MERGE INTO regress_orm AS t USING (VALUES (1, 'merge', 11), (4, 'new', 0)) AS s (id, name, version) ON t.id = s.id
WHEN MATCHED THEN UPDATE SET name = s.name, version = s.version
WHEN NOT MATCHED THEN INSERT (id, name) VALUES (s.id, s.name);
MERGE INTO regress_orm AS t USING (VALUES (1, 'merge again', 11)) AS s (id, name, version) ON t.id = s.id
WHEN MATCHED THEN UPDATE SET name = s.name, version = s.version;
-- ... with two actions, one of which says no version
MERGE INTO regress_orm AS t USING (VALUES (1, 'merge'), (4, 'blind')) AS s (id, name) ON t.id = s.id
WHEN MATCHED AND t.id = 1 THEN UPDATE SET name = s.name, version = 12
WHEN MATCHED THEN UPDATE SET name = s.name;
SELECT * FROM regress_orm ORDER BY id;

-- bulk: UPDATE FROM unnest with one version per row, all or nothing
UPDATE regress_orm AS t SET name = u.name, version = u.version
FROM unnest('{1,2,3}'::int[], '{x,y,z}'::text[], '{13,0,0}'::int[]) AS u (id, name, version)
WHERE t.id = u.id RETURNING t.id, t.version;
UPDATE regress_orm AS t SET name = u.name, version = u.version
FROM unnest('{1,2,3}'::int[], '{x,y,z}'::text[], '{14,0,1}'::int[]) AS u (id, name, version)
WHERE t.id = u.id RETURNING t.id, t.version;
-- ... or those that were current
UPDATE regress_orm AS t SET name = u.name, version = u.version
FROM unnest('{1,2,3}'::int[], '{x,y,z}'::text[], '{14,0,1}'::int[]) AS u (id, name, version)
WHERE t.id = u.id AND t.version = u.version RETURNING t.id, t.version;

-- EF with xmin as token, beside a version
SELECT xmin AS token FROM regress_orm WHERE id = 2 \gset
UPDATE regress_orm SET name = 'ef' WHERE id = 2 AND xmin = :'token' RETURNING version;
UPDATE regress_orm SET name = 'ef again' WHERE id = 2 AND xmin = :'token' RETURNING version;
-- EF with a version: it reads what the database made of it
UPDATE regress_orm SET name = 'ef 2' WHERE id = 2 AND version = 2 RETURNING version;
UPDATE regress_orm SET name = 'ef again' WHERE id = 2 AND version = 2 RETURNING version;

-- n + 1 without WHERE: mode next
SELECT idem_detach_version('regress_orm'), idem_attach_version('regress_orm', 'version', mode => 'next');
UPDATE regress_orm SET name = 'next', version = 4 WHERE id = 2 RETURNING version;
UPDATE regress_orm SET name = 'next again', version = 4 WHERE id = 2 RETURNING version;
-- ... where mode read would let the second one through
SELECT idem_detach_version('regress_orm'), idem_attach_version('regress_orm', 'version');
UPDATE regress_orm SET name = 'lost', version = 5 WHERE id = 2 RETURNING version;
UPDATE regress_orm SET name = 'the lost update', version = 5 WHERE id = 2 RETURNING version;
-- ... JPA's WHERE goes with both
SELECT idem_detach_version('regress_orm'), idem_attach_version('regress_orm', 'version', mode => 'next', strict => true);
UPDATE regress_orm SET name = 'jpa', version = 7 WHERE id = 2 AND version = 6;
UPDATE regress_orm SET name = 'jpa', version = 7 WHERE id = 2 AND version = 6;
\echo :ROW_COUNT

-- a trigger of the application's that counts as well: it totals one
CREATE FUNCTION regress_count() RETURNS trigger LANGUAGE plpgsql AS
	'BEGIN NEW.version := OLD.version + 1; RETURN NEW; END';
SELECT idem_detach_version('regress_orm'), idem_attach_version('regress_orm', 'version');
CREATE TRIGGER count BEFORE UPDATE ON regress_orm FOR EACH ROW EXECUTE FUNCTION regress_count();
UPDATE regress_orm SET name = 'counted' WHERE id = 3 RETURNING version;
DROP TRIGGER count ON regress_orm;

-- a cursor's row, a row joined twice, a statement that fails and is tried again
BEGIN;
DECLARE c CURSOR FOR SELECT * FROM regress_orm WHERE id = 3 FOR UPDATE;
FETCH c;
UPDATE regress_orm SET version = 3 WHERE CURRENT OF c RETURNING version;
UPDATE regress_orm SET version = version WHERE CURRENT OF c;
SELECT version FROM regress_orm WHERE id = 3;
COMMIT;
UPDATE regress_orm AS t SET name = s.name, version = s.version
FROM (VALUES (3, 'one', 5), (3, 'two', 5)) AS s (id, name, version) WHERE t.id = s.id RETURNING t.version;
BEGIN;
SAVEPOINT s;
UPDATE regress_orm SET version = 0 WHERE id = 3;
ROLLBACK TO s;
UPDATE regress_orm SET version = 6 WHERE id = 3 RETURNING version;
COMMIT;

-- clean up
DROP TABLE regress_orm;
DROP FUNCTION regress_count();
