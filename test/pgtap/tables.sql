-- The registry's tables: columns, keys, storage, what pg_dump takes along.
BEGIN;
SET client_min_messages = warning;
SET search_path = public;
CREATE EXTENSION pgtap;
CREATE EXTENSION idem;

SELECT no_plan();

SELECT has_schema('idem');
SELECT has_table('idem', 'key', 'table idem.key');
SELECT has_table('idem', 'scope', 'table idem.scope');
SELECT has_table('idem', 'window_hit', 'table idem.window_hit');
SELECT has_view('idem', 'held', 'view idem.held');
SELECT has_view('idem', 'version', 'view idem.version');
SELECT columns_are('idem', 'version', ARRAY['library', 'objects']);
SELECT is((SELECT library || ' ' || objects FROM idem.version), (SELECT extversion || ' ' || extversion FROM pg_extension WHERE extname = 'idem'), 'library and objects are of one version');
SELECT has_view('idem', 'binding', 'view idem.binding');
SELECT columns_are('idem', 'binding', ARRAY['machine', 'table_name', 'column_name', 'options']);
SELECT has_table('idem', 'lease', 'table idem.lease');
SELECT has_view('idem', 'lease_held', 'view idem.lease_held');
SELECT columns_are('idem', 'lease', ARRAY['name', 'owner', 'fence', 'since', 'until', 'released']);
SELECT columns_are('idem', 'lease_held', ARRAY['name', 'owner', 'fence', 'since', 'until']);
SELECT col_is_pk('idem', 'lease', 'name', 'primary key of idem.lease');
SELECT is(
	(SELECT count(*)::int FROM pg_index WHERE indrelid = 'idem.lease'::regclass),
	1, 'no index covers what renewing changes');
SELECT has_sequence('idem', 'fence', 'sequence idem.fence');

SELECT col_type_is('idem', 'key', c, t, format('idem.key.%s is %s', c, t))
FROM (VALUES
	('scope', 'text'), ('key', 'text'), ('state', 'text'), ('hold', 'text'),
	('attempt', 'integer'), ('fence', 'bigint'),
	('lease_until', 'timestamp with time zone'),
	('expires_at', 'timestamp with time zone'),
	('step', 'text'), ('progress', 'jsonb'), ('response', 'text'),
	('code', 'integer'), ('created_at', 'timestamp with time zone'),
	('finished_at', 'timestamp with time zone'), ('function', 'text'),
	('result', 'text'), ('ttl', 'interval'),
	('claimed_at', 'timestamp with time zone')) AS v (c, t);
SELECT has_column('idem', 'key', 'fingerprint', 'idem.key.fingerprint');
SELECT col_is_pk('idem', 'key', ARRAY['key', 'scope'], 'primary key of idem.key');
SELECT col_not_null('idem', 'key', c, c || ' is not null')
FROM unnest(ARRAY['scope', 'key', 'state', 'attempt', 'created_at']) AS c;
SELECT is(
	ARRAY(SELECT attname::text FROM pg_attribute
		WHERE attrelid = 'idem.key'::regclass AND attname IN ('scope', 'key')
		AND attcollation <> '"C"'::regcollation),
	'{}', 'scope and key are COLLATE "C"');
SELECT is(
	(SELECT array_agg(o ORDER BY o) FROM pg_class, unnest(reloptions) AS o
	 WHERE oid = 'idem.key'::regclass AND o LIKE 'fillfactor%'),
	ARRAY['fillfactor=45'], 'fillfactor of idem.key');
SELECT is(
	(SELECT count(*)::int FROM pg_index WHERE indrelid = 'idem.key'::regclass),
	1, 'no index covers what completing changes');
SELECT is(
	(SELECT count(*)::int FROM pg_trigger
	 WHERE tgrelid IN ('idem.key'::regclass) AND NOT tgisinternal),
	0, 'no trigger on idem.key');
SELECT is(
	(SELECT relpersistence FROM pg_class WHERE oid = 'idem.key'::regclass),
	'p', 'idem.key is logged');
SELECT is(
	(SELECT relpersistence FROM pg_class WHERE oid = 'idem.window_hit'::regclass),
	'u', 'idem.window_hit is unlogged');
SELECT col_is_pk('idem', 'window_hit', ARRAY['key', 'scope'], 'primary key of idem.window_hit');
SELECT is(
	(SELECT count(*)::int FROM pg_index WHERE indrelid = 'idem.window_hit'::regclass),
	1, 'no index covers what a further hit changes');
SELECT is(
	(SELECT seqcache FROM pg_sequence WHERE seqrelid = 'idem.fence'::regclass),
	1::bigint, 'the fence sequence has CACHE 1');
SELECT ok(NOT seqcycle, 'and does not cycle')
FROM pg_sequence WHERE seqrelid = 'idem.fence'::regclass;

SELECT col_type_is('idem', 'token', c, t, format('idem.token.%s is %s', c, t))
FROM (VALUES
	('hash', 'bytea'), ('created_at', 'timestamp with time zone'),
	('expires_at', 'timestamp with time zone'), ('used_at', 'timestamp with time zone'),
	('purpose', 'text'), ('subject', 'text'), ('fingerprint', 'bytea'),
	('ends_older', 'timestamp with time zone')) AS v (c, t);
SELECT col_is_pk('idem', 'token', 'hash', 'primary key of idem.token');

SELECT col_type_is('idem', 'branch', c, t, format('idem.branch.%s is %s', c, t))
FROM (VALUES
	('saga', 'text'), ('branch', 'text'), ('seq', 'integer'),
	('tried_at', 'timestamp with time zone'), ('confirmed_at', 'timestamp with time zone'),
	('cancelled_at', 'timestamp with time zone'), ('expires_at', 'timestamp with time zone')) AS v (c, t);
SELECT col_is_pk('idem', 'branch', ARRAY['saga', 'branch', 'seq'], 'primary key of idem.branch');

SELECT col_type_is('idem', 'scope', c, t, format('idem.scope.%s is %s', c, t))
FROM (VALUES
	('hold', 'text'), ('lease', 'interval'), ('ttl', 'interval'),
	('no_expiry', 'boolean'), ('max_response', 'integer'),
	('max_attempts', 'integer'), ('roles', 'name[]'),
	('keep_failures', 'interval')) AS v (c, t);
SELECT col_is_pk('idem', 'scope', 'name', 'primary key of idem.scope');
SELECT col_default_is('idem', 'scope', 'no_expiry', 'false', 'no_expiry is false by default');

SELECT columns_are('idem', 'held',
	ARRAY['scope', 'key', 'hold', 'since', 'lease_until', 'attempt', 'step']);

-- Definitions of machines.
SELECT columns_are('idem', 'machine', ARRAY['name', 'owner']);
SELECT columns_are('idem', 'state', ARRAY['machine', 'name', 'initial', 'final', 'frozen', 'self']);
SELECT columns_are('idem', 'transition',
	ARRAY['machine', 'event', 'from_state', 'to_state', 'priority', 'guard', 'roles', 'after']);
SELECT col_is_pk('idem', 'machine', 'name', 'primary key of idem.machine');
SELECT col_is_pk('idem', 'state', ARRAY['machine', 'name'], 'primary key of idem.state');
SELECT col_is_pk('idem', 'transition', ARRAY['machine', 'event', 'from_state', 'priority'], 'primary key of idem.transition');
SELECT is_empty('SELECT conname FROM pg_constraint WHERE contype = ''f'' AND connamespace = ''idem''::regnamespace', 'no foreign keys: pg_restore -j loads in any order');
SELECT is(
	ARRAY(SELECT attrelid::regclass || '.' || attname FROM pg_attribute
		WHERE attrelid IN ('idem.machine'::regclass, 'idem.state'::regclass, 'idem.transition'::regclass)
		AND atttypid = 'text'::regtype AND attcollation <> '"C"'::regcollation),
	'{}', 'their texts are COLLATE "C"');
SELECT is(
	(SELECT string_agg(tgname::text || tgenabled::text, ' ' ORDER BY tgrelid::regclass::text, tgname) FROM pg_trigger
		WHERE tgrelid IN ('idem.machine'::regclass, 'idem.state'::regclass, 'idem.transition'::regclass) AND NOT tgisinternal),
	'changedA checkedO emptiedA changedA checkedO emptiedA changedA checkedO emptiedA', 'changes are checked, and announced always');

-- Settings of scopes are checked where they are written.
SELECT throws_ok(
	$$INSERT INTO idem.scope (name, hold) VALUES ('x', 'nonsense')$$,
	'23514', NULL, 'a hold that is none is refused');
SELECT throws_ok(
	$$INSERT INTO idem.scope (name, ttl) VALUES ('x', '-1 s')$$,
	'23514', NULL, 'a negative ttl is refused');
SELECT throws_ok(
	$$INSERT INTO idem.scope (name, lease) VALUES ('x', '0 s')$$,
	'23514', NULL, 'a lease of zero is refused');

-- pg_dump takes user data and the sequence; where a sweep stands is not such.
SELECT set_eq(
	$$SELECT c::regclass::text FROM pg_extension, unnest(extconfig) AS c WHERE extname = 'idem'$$,
	$$SELECT oid::regclass::text FROM pg_class WHERE relnamespace = 'idem'::regnamespace AND relkind IN ('r', 'p', 'S') AND relname <> 'sweep_state'$$,
	'tables and sequences are dumped');

-- All of it belongs to the extension.
SELECT is(
	ARRAY(SELECT relname::text FROM pg_class AS c
		WHERE relnamespace = 'idem'::regnamespace AND relkind IN ('r', 'p', 'v', 'S')
		AND NOT EXISTS (SELECT FROM pg_depend WHERE classid = 'pg_class'::regclass
			AND objid = c.oid AND deptype = 'e') ORDER BY 1),
	'{}', 'everything in schema idem belongs to the extension');
SELECT is(
	(SELECT format('%s %s %s', extrelocatable, extversion, obj_description(oid, 'pg_extension') IS NOT NULL)
	 FROM pg_extension WHERE extname = 'idem'),
	(SELECT format('f %s t', default_version) FROM pg_available_extensions WHERE name = 'idem'),
	'not relocatable, default version, commented');
SELECT is(
	(SELECT format('%s %s %s', trusted, superuser, schema IS NULL)
	 FROM pg_available_extension_versions WHERE name = 'idem' AND installed),
	't t t', 'trusted, without a fixed schema');

SELECT finish();
ROLLBACK;
