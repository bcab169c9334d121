# Installing and removing: any schema name, nothing of ours beforehand, no
# superuser needed, nothing left behind, no preload.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use IdemTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = idem_node('install');

# Schemas whose names need quoting.
my $n = 0;
foreach my $schema ('we"ird', 'a$b', 'x y', 'Ünïcode', '$libdir', "qu'ote")
{
	my $db = 'schema' . $n++;
	(my $q = $schema) =~ s/"/""/g;

	$node->safe_psql('postgres', "CREATE DATABASE $db TEMPLATE template0");
	$node->safe_psql(
		$db, qq{CREATE SCHEMA "$q"; CREATE EXTENSION idem SCHEMA "$q"});
	is( $node->safe_psql(
			$db, qq{
BEGIN;
SELECT outcome FROM "$q".idem_claim('k');
SELECT "$q".idem_complete('k', 'done'::text);
COMMIT;
SELECT outcome, response FROM "$q".idem_claim('k');
SET idem.key = 'k2';
SELECT outcome FROM "$q".idem_claim(lease => '60 s');
SELECT count(*) FROM "$q".idem_sweep();
SELECT "$q".idem_once_many(ARRAY['b', 'a']);
}) =~ s/\n/ /gr =~ s/claimed \d+ b a$/claimed n b a/r,
		'claimed t completed|done claimed n b a',
		"verbs work in schema $schema");
	is( $node->safe_psql(
			$db,
			q{SELECT DISTINCT n.nspname FROM pg_depend d
			  JOIN pg_extension e ON e.oid = d.refobjid
			  JOIN pg_proc p ON p.oid = d.objid AND d.classid = 'pg_proc'::regclass
			  JOIN pg_namespace n ON n.oid = p.pronamespace
			  WHERE e.extname = 'idem' AND d.deptype = 'e'}),
		$schema,
		"all functions are in schema $schema");
}

# Not where it would vanish, not beside things of our name.
$node->safe_psql('postgres', 'CREATE DATABASE hostile');
isnt(errcode($node, 'hostile', 'CREATE TEMP TABLE t(); CREATE EXTENSION idem SCHEMA pg_temp'),
	'none', 'refused in pg_temp');
isnt(errcode($node, 'hostile', 'CREATE SCHEMA idem; CREATE EXTENSION idem'),
	'none', 'refused where schema idem exists');
$node->safe_psql('hostile', 'DROP SCHEMA idem');
foreach my $object (
	[
		q{CREATE FUNCTION public.idem_claim(text) RETURNS int LANGUAGE sql AS 'SELECT 1'},
		'DROP FUNCTION public.idem_claim(text)', 'an overload of idem_claim'
	],
	[
		q{CREATE FUNCTION public.idem_claim(key text, request jsonb, scope text, hold text, lease interval, ttl interval, wait interval) RETURNS int LANGUAGE sql AS 'SELECT 1'},
		'DROP FUNCTION public.idem_claim', 'a function of our signature'
	],
	[
		q{CREATE PROCEDURE public.idem_else() LANGUAGE sql AS 'SELECT 1'},
		'DROP PROCEDURE public.idem_else', 'a procedure idem_*'
	],
	[
		'CREATE TYPE public.idem_claimed AS (a int)',
		'DROP TYPE public.idem_claimed', 'a type'
	],
	[
		'CREATE DOMAIN public.idem_any AS text',
		'DROP DOMAIN public.idem_any', 'a domain'
	],
	[
		'CREATE TABLE public.idem_claimed (run bool)',
		'DROP TABLE public.idem_claimed',
		'a table, hence a type'
	])
{
	my ($make, $drop, $what) = @$object;

	isnt(errcode($node, 'hostile', "$make; CREATE EXTENSION idem"),
		'none', "refused beside $what");
	is( $node->safe_psql(
			'hostile',
			q{SELECT count(*) FROM pg_namespace WHERE nspname = 'idem'}),
		'0',
		"$what: the refusal leaves nothing");
	$node->safe_psql('hostile', $drop);
}
$node->safe_psql('hostile', <<'EOT');
CREATE SCHEMA other;
CREATE FUNCTION other.idem_claim(text) RETURNS int LANGUAGE sql AS 'SELECT 1';
CREATE EXTENSION idem;
DROP EXTENSION idem;
DROP SCHEMA other CASCADE;
EOT
pass('things of our name in another schema do not matter');

# Traps laid in the search path and the temporary schema.
is( $node->safe_psql(
		'hostile', <<'EOT'), 'claimed', 'hostile objects change nothing');
CREATE SCHEMA trap;
CREATE FUNCTION trap.boom(text, text) RETURNS boolean LANGUAGE plpgsql
	AS $$ BEGIN RAISE EXCEPTION 'trapped'; END $$;
CREATE OPERATOR trap.= (FUNCTION = trap.boom, LEFTARG = text, RIGHTARG = text);
CREATE OPERATOR trap.~~ (FUNCTION = trap.boom, LEFTARG = text, RIGHTARG = text);
CREATE OPERATOR trap.|| (FUNCTION = trap.boom, LEFTARG = text, RIGHTARG = text);
CREATE FUNCTION trap.format(text, text) RETURNS text LANGUAGE plpgsql
	AS $$ BEGIN RAISE EXCEPTION 'trapped'; END $$;
CREATE FUNCTION trap.now() RETURNS timestamptz LANGUAGE plpgsql
	AS $$ BEGIN RAISE EXCEPTION 'trapped'; END $$;
CREATE TEMP TABLE pg_extension (extname name, extowner oid);
CREATE TEMP TABLE pg_proc (proname name);
CREATE TEMP TABLE pg_namespace (nspname name);
SET search_path = trap, pg_temp, pg_catalog, public;
CREATE EXTENSION idem SCHEMA public;
SELECT outcome FROM public.idem_claim('k', lease => '60 s');
EOT
$node->safe_psql('hostile', 'DROP EXTENSION idem');

# Nothing is left.
is( $node->safe_psql(
		'hostile', <<'EOT'), '', 'DROP EXTENSION leaves nothing');
SELECT 'schema', nspname FROM pg_namespace WHERE nspname LIKE 'idem%'
UNION ALL SELECT 'function', proname FROM pg_proc WHERE proname LIKE 'idem%'
UNION ALL SELECT 'type', typname FROM pg_type WHERE typname LIKE '%idem%'
UNION ALL SELECT 'event trigger', evtname FROM pg_event_trigger
UNION ALL SELECT 'setting', classid::regclass::text FROM pg_shdepend
	WHERE dbid = (SELECT oid FROM pg_database WHERE datname = 'hostile');
EOT
$node->safe_psql('hostile', 'CREATE EXTENSION idem');
pass('installed again after DROP EXTENSION');

# What depends on it is named.
$node->safe_psql('hostile',
	q{CREATE VIEW uses AS SELECT * FROM idem_claim('k')});
is(errcode($node, 'hostile', 'DROP EXTENSION idem'),
	'2BP01', 'DROP EXTENSION says what depends on it');

# The library needs no preload and no extension.
$node->safe_psql('postgres', 'CREATE DATABASE bare');
is( $node->safe_psql('bare', "LOAD 'idem'; SHOW idem.access"),
	'auto', 'LOAD without preload and without the extension');
is( $node->safe_psql(
		'bare', "LOAD 'idem'; SET idem.key = 'x'; BEGIN; SELECT 1; COMMIT"),
	'1',
	'transactions go on');

# Dropped in the session that used it, and made again; also in transactions.
foreach my $access (accesses())
{
	is( $node->safe_psql(
			'bare', <<"EOT") =~ s/\n+/ /gr, 't t f claimed t 1 t f t', "$access: one session sees drop and create");
SET idem.access = '$access';
CREATE EXTENSION idem;
SELECT idem_once('k');
DROP EXTENSION idem;
CREATE EXTENSION idem;
SELECT idem_once('k');
SELECT idem_once('k');
DROP EXTENSION idem;
BEGIN;
CREATE EXTENSION idem;
SELECT outcome FROM idem_claim('k');
SELECT idem_complete('k', 'x'::text);
COMMIT;
SELECT count(*) FROM idem_lookup('k');
BEGIN;
DROP EXTENSION idem;
ROLLBACK;
SELECT idem_once('l');
SELECT idem_once('k');
BEGIN;
SELECT run FROM idem_claim('m');
DROP EXTENSION idem;
ROLLBACK;
DROP EXTENSION idem;
EOT
}

# It stays where it is, but its schema may be renamed.
$node->safe_psql('bare', 'CREATE SCHEMA one; CREATE EXTENSION idem SCHEMA one');
is(errcode($node, 'bare', 'ALTER EXTENSION idem SET SCHEMA public'),
	'0A000', 'the extension cannot be moved');
is( $node->safe_psql(
		'bare', <<'EOT') =~ s/\n/ /gr, 'k claimed t', 'its schema can be renamed');
ALTER SCHEMA one RENAME TO two;
BEGIN;
SELECT set_config('idem.key', 'k', true);
SELECT outcome FROM two.idem_claim();
SELECT two.idem_complete(response => 'x'::text);
COMMIT;
EOT

# A database owner who is no superuser.
$node->safe_psql('postgres', <<'EOT');
CREATE ROLE regress_idem_owner LOGIN;
CREATE ROLE regress_idem_app LOGIN;
CREATE ROLE regress_idem_ops LOGIN;
CREATE ROLE regress_idem_none LOGIN;
CREATE DATABASE trusted OWNER regress_idem_owner;
EOT
run_as($node, 'regress_idem_owner', 'trusted', <<'EOT');
CREATE EXTENSION idem;
SELECT idem_grant('regress_idem_app');
SELECT idem_grant('regress_idem_ops', 'operator');
INSERT INTO idem.scope (name, ttl) VALUES ('pay', '1 h');
EOT
is( $node->safe_psql(
		'trusted', <<'EOT'), 'regress_idem_owner', 'the installer owns schema, tables and sequences');
SELECT DISTINCT pg_get_userbyid(o) FROM (
	SELECT nspowner FROM pg_namespace WHERE nspname = 'idem'
	UNION ALL SELECT relowner FROM pg_class
		WHERE relnamespace = 'idem'::regnamespace AND relkind IN ('r', 'S', 'v', 'p')
) AS x (o)
EOT
is( run_as(
		$node, 'regress_idem_owner', 'trusted',
		q{BEGIN; SELECT outcome FROM idem_claim('o'); SELECT idem_complete('o', 'r'::text); COMMIT; SELECT key FROM idem.key}
	  ) =~ s/\n/ /gr,
	'claimed t o',
	'the installer uses the verbs and reads the table');
foreach my $access ('direct', 'sql')
{
	$node->safe_psql('postgres',
		"ALTER DATABASE trusted SET idem.access = '$access'");
	is( run_as(
			$node, 'regress_idem_app', 'trusted', qq{
BEGIN;
SELECT outcome FROM idem_claim('$access', scope => 'pay');
SELECT idem_complete('$access', 'r'::text, 'pay');
COMMIT;
SELECT outcome, response FROM idem_claim('$access', scope => 'pay');
}) =~ s/\n/ /gr,
		'claimed t completed|r',
		"$access: a role granted by the installer works");
	is( errcode($node, 'trusted', 'SELECT * FROM idem.key',
			extra_params => [ '-U', 'regress_idem_app' ]),
		'42501',
		"$access: it does not read the table");
	is( errcode($node, 'trusted', "SELECT idem_forget('$access', 'pay')",
			extra_params => [ '-U', 'regress_idem_app' ]),
		'42501',
		"$access: nor an operator's verb");
	is( run_as(
			$node, 'regress_idem_ops', 'trusted',
			qq{SELECT idem_forget('$access', 'pay', true)}),
		't',
		"$access: an operator has it");
	is( errcode($node, 'trusted', q{SELECT idem_once('k')},
			extra_params => [ '-U', 'regress_idem_none' ]),
		'42501',
		"$access: others have nothing");
}
is( errcode($node, 'trusted', q{SELECT idem_grant('regress_idem_none')},
		extra_params => [ '-U', 'regress_idem_ops' ]),
	'42501',
	'an operator does not grant');
run_as($node, 'regress_idem_owner', 'trusted',
	q{SELECT idem_revoke('regress_idem_app')});
is( errcode($node, 'trusted', q{SELECT idem_once('k')},
		extra_params => [ '-U', 'regress_idem_app' ]),
	'42501',
	'idem_revoke takes all back');
is( errcode($node, 'trusted', q{SELECT idem_key(); SET idem.access = 'auto'},
		extra_params => [ '-U', 'regress_idem_owner' ]),
	'42501',
	'idem.access is for superusers');
is( run_as($node, 'regress_idem_owner', 'trusted',
		q{SET idem.access = 'auto'; SELECT idem_key(); SHOW idem.access}) =~
	  s/^\n//r,
	'sql',
	'also where it was set before the library was loaded');

run_as($node, 'regress_idem_owner', 'trusted', 'DROP EXTENSION idem');
pass('the installer drops it');

# Preloaded, by the server and by the session.
foreach my $setting ('shared_preload_libraries', 'session_preload_libraries')
{
	foreach my $access (accesses())
	{
		$node->append_conf('postgresql.conf',
			"$setting = 'idem'\nidem.access = '$access'\n");
		$node->restart;
		$node->safe_psql('postgres',
			'CREATE DATABASE preload TEMPLATE template0');
		is( $node->safe_psql('preload', 'SHOW idem.access; SELECT 1'),
			"$access\n1", "$setting, $access: before the extension is there");
		is( $node->safe_psql('preload', <<'EOT') =~ s/\n/ /gr,
CREATE EXTENSION idem;
BEGIN;
SELECT outcome FROM idem_claim('k');
SELECT idem_complete('k', 'x'::text);
COMMIT;
SELECT outcome FROM idem_claim('k');
EOT
			'claimed t completed', "$setting, $access: claims");
		is(errcode($node, 'preload', q{SELECT * FROM idem_claim('l')}),
			'ID500', "$setting, $access: unfinished");
		$node->safe_psql('postgres', 'DROP DATABASE preload');
	}
	$node->append_conf('postgresql.conf', "$setting = ''\n");
}

$node->stop;
done_testing();
