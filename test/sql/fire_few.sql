-- events of few rows at once: plans that are kept, and what stays as for many
SET client_min_messages = warning;
CREATE ROLE regress_idem_few;
GRANT ALL ON SCHEMA public TO regress_idem_few;
SELECT idem_grant('regress_idem_few', 'operator');
SET ROLE regress_idem_few;
RESET client_min_messages;

SELECT idem_define('few', 'stateDiagram-v2
	[*] --> a
	a --> b : go
	b --> a : go
	a --> c : split [new.id % 2 = 0]
	a --> d : split');
CREATE TABLE few (id int PRIMARY KEY, state text NOT NULL DEFAULT 'a', other int NOT NULL DEFAULT 0)
	WITH (autovacuum_enabled = false);
SELECT idem_attach('few', 'few', 'state', history => true);
INSERT INTO few SELECT generate_series(1, 4);
VACUUM few;

-- a plan that was made while the table was small does not read it from end to
-- end when it is large, though nothing has been analyzed
SELECT id, outcome, from_state, to_state FROM idem_fire_many('few', ARRAY[3, 1], 'go');
SELECT id, outcome, from_state, to_state FROM idem_fire_many('few', ARRAY[1, 3, 9], 'go');
INSERT INTO few SELECT generate_series(11, 20000);
BEGIN;
SELECT seq_scan, idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relname = 'few' \gset
SELECT sum((SELECT count(*) FROM idem_fire_many('few', ARRAY[i, i + 10, i + 20], 'go') WHERE outcome = 'applied'))
	FROM generate_series(101, 110) i;
SELECT seq_scan - :seq_scan AS more, idx_tup_fetch - :idx_tup_fetch < 200 AS few FROM pg_stat_xact_user_tables WHERE relname = 'few';
COMMIT;

-- one statement for each state that is entered, whatever their number
CREATE FUNCTION few_tell() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	RAISE NOTICE '% rows', (SELECT count(*) FROM news);
	RETURN NULL;
END $$;
CREATE TRIGGER tell AFTER UPDATE ON few REFERENCING NEW TABLE AS news
	FOR EACH STATEMENT EXECUTE FUNCTION few_tell();
SELECT * FROM idem_fire_many('few', ARRAY[201], 'go');
SELECT id, outcome FROM idem_fire_many('few', ARRAY[203, 202], 'go');
SELECT outcome, count(*) FROM idem_fire_many('few', ARRAY(SELECT generate_series(301, 450)), 'go') GROUP BY 1;
SELECT id, outcome, to_state FROM idem_fire_many('few', ARRAY[217, 214, 213, 218, 215], 'split');
SELECT id, outcome, to_state FROM idem_fire_many('few', ARRAY[209, 210], 'split');
DROP TRIGGER tell ON few;

-- what a row's trigger does to another row of the call is done after both moved
CREATE FUNCTION few_touch() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	UPDATE few SET other = other + 1 WHERE id = NEW.other;
	RETURN NULL;
END $$;
UPDATE few SET other = 512 WHERE id = 511;
CREATE TRIGGER touch AFTER UPDATE OF state ON few
	FOR EACH ROW WHEN (NEW.other > 0) EXECUTE FUNCTION few_touch();
SELECT id, outcome, to_state FROM idem_fire_many('few', ARRAY[511, 512], 'go');
SELECT id, state, other FROM few WHERE id IN (511, 512) ORDER BY id;
DROP TRIGGER touch ON few;

-- a call within itself, by the same plan, on a table that has grown meanwhile
CREATE FUNCTION few_again() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF NEW.id < 700 THEN
		INSERT INTO few SELECT generate_series(100000, 160000);
		PERFORM idem_fire_many('few', ARRAY[NEW.id + 100, NEW.id + 200], 'go');
	END IF;
	RETURN NULL;
END $$;
CREATE TRIGGER again AFTER UPDATE OF state ON few
	FOR EACH ROW WHEN (NEW.id = 601) EXECUTE FUNCTION few_again();
SELECT id, outcome, to_state FROM idem_fire_many('few', ARRAY[602, 601], 'go');
SELECT id, state FROM few WHERE id IN (601, 602, 701, 801) ORDER BY id;
DROP TRIGGER again ON few;

-- one row: version, key and context as of many
SELECT idem_attach_version('few', 'other', strict => true);
SELECT * FROM idem_fire_many('few', ARRAY[901], 'go', version => 1);
SELECT * FROM idem_fire_many('few', ARRAY[901], 'go', version => 0, key => 'k', context => '{"x": 1}');
SELECT * FROM idem_fire_many('few', ARRAY[901, 902], 'go', key => 'k');
SELECT * FROM idem_fire_many('few', '{902}', 'go', key => 'k');
SELECT * FROM idem_fire_many('few', ARRAY[-1], 'go', key => 'k');
SELECT row_key, from_state, to_state, version, key, context FROM idem_history('few', 901);
SELECT row_key, from_state, to_state, version, key, context FROM idem_history('few', 902) WHERE event = 'go';

-- the key's type changes: plans follow
ALTER TABLE few ALTER COLUMN id TYPE bigint;
SELECT * FROM idem_fire_many('few', ARRAY[911, 912], 'go');
SELECT * FROM idem_fire_many('few', ARRAY[911, 912]::int[], 'go');

-- a session that asks for a plan of each execution's own gets one, that suits its
-- settings: the table is not read once for each row
ANALYZE few;
BEGIN;
SET LOCAL plan_cache_mode = force_custom_plan;
SET LOCAL enable_indexscan = off;
SET LOCAL enable_bitmapscan = off;
SET LOCAL enable_material = off;
SELECT seq_scan FROM pg_stat_xact_user_tables WHERE relname = 'few' \gset
SELECT count(*) FROM idem_fire_many('few', ARRAY(SELECT generate_series(1001, 1050)), 'go') WHERE outcome = 'applied';
SELECT seq_scan - :seq_scan < 10 AS few FROM pg_stat_xact_user_tables WHERE relname = 'few';
ROLLBACK;

-- nor where no index serves, since the key's operator may not come before a policy
-- (comparisons of its type are counted)
RESET ROLE;
CREATE SEQUENCE few_asked;
CREATE TYPE few_id AS (n int);
CREATE FUNCTION few_cmp(few_id, few_id) RETURNS int LANGUAGE plpgsql IMMUTABLE STRICT AS
	$$ BEGIN RETURN sign($1.n - $2.n); END $$;
CREATE FUNCTION few_eq(few_id, few_id) RETURNS bool LANGUAGE plpgsql IMMUTABLE STRICT AS
	$$ BEGIN RETURN nextval('few_asked') > 0 AND $1.n = $2.n; END $$;
CREATE FUNCTION few_lt(few_id, few_id) RETURNS bool LANGUAGE plpgsql IMMUTABLE STRICT AS
	$$ BEGIN RETURN $1.n < $2.n; END $$;
CREATE FUNCTION few_hash(few_id) RETURNS int LANGUAGE plpgsql IMMUTABLE STRICT AS
	$$ BEGIN RETURN hashint4($1.n); END $$;
CREATE OPERATOR === (FUNCTION = few_eq, LEFTARG = few_id, RIGHTARG = few_id, COMMUTATOR = ===, HASHES, RESTRICT = eqsel, JOIN = eqjoinsel);
CREATE OPERATOR <<< (FUNCTION = few_lt, LEFTARG = few_id, RIGHTARG = few_id);
CREATE OPERATOR CLASS few_ops DEFAULT FOR TYPE few_id USING btree AS
	OPERATOR 1 <<<, OPERATOR 3 ===, FUNCTION 1 few_cmp(few_id, few_id);
CREATE OPERATOR CLASS few_hash_ops DEFAULT FOR TYPE few_id USING hash AS
	OPERATOR 1 ===, FUNCTION 1 few_hash(few_id);
GRANT ALL ON SEQUENCE few_asked TO regress_idem_few;
SET ROLE regress_idem_few;
CREATE TABLE few_policy (id few_id PRIMARY KEY, state text NOT NULL DEFAULT 'a');
SELECT idem_define('few_policy', E'stateDiagram-v2\n[*] --> a\na --> b : go');
SELECT idem_attach('few_policy', 'few_policy', 'state');
INSERT INTO few_policy SELECT ROW(i)::few_id FROM generate_series(1, 3000) AS i;
ANALYZE few_policy;
ALTER TABLE few_policy ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY few_some ON few_policy USING (state <> 'x');
SELECT setval('few_asked', 1);
SELECT count(*) FROM idem_fire_many('few_policy', ARRAY(SELECT ROW(i)::few_id FROM generate_series(1001, 1050) AS i), 'go') WHERE outcome = 'applied';
SELECT last_value < 3000 AS few FROM few_asked;
DROP TABLE few_policy;

RESET ROLE;
SET client_min_messages = warning;
DROP TABLE few;
DROP TYPE few_id CASCADE;
DROP SEQUENCE few_asked;
DELETE FROM idem.machine WHERE name = 'few_policy';
DROP FUNCTION few_tell, few_touch, few_again;
ALTER TABLE idem.history DISABLE TRIGGER protected_row;
DELETE FROM idem.history WHERE machine = 'few';
ALTER TABLE idem.history ENABLE TRIGGER protected_row;
DELETE FROM idem.key WHERE scope = 'idem.fire';
DELETE FROM idem.machine WHERE name = 'few';
SELECT idem_revoke('regress_idem_few');
REVOKE ALL ON SCHEMA public FROM regress_idem_few;
DROP ROLE regress_idem_few;
