# ALTER EXTENSION idem UPDATE: a database of each former version becomes what a
# fresh installation is, loses nothing of its users', and goes on.
#
# What a database of that version was is in test/lib/database-VERSION.sql.  It
# comes from pg_dump, so that no former library is needed to make it.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use Catalog;
use EveryKind;
use IdemTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = idem_node('update');
my $owner = 'regress_idem_owner';
my $admin = 'regress_idem_admin';
my ($version) = slurp_file("$FindBin::RealBin/../../idem.control") =~ /^default_version *= *'(.*)'$/m;
my $tmp = $PostgreSQL::Test::Utils::tmp_check;

$node->safe_psql('postgres', <<"EOT");
CREATE ROLE $owner LOGIN;
CREATE ROLE regress_idem_app LOGIN;
CREATE ROLE regress_idem_reader;
CREATE ROLE $admin LOGIN SUPERUSER;
EOT

# A database with the extension.
sub made
{
	my ($db, $installer, $schema, $what) = @_;

	(my $q = $schema) =~ s/"/""/g;
	$node->safe_psql('postgres', "CREATE DATABASE $db OWNER $owner TEMPLATE template0");
	run_as($node, $owner, $db, qq{CREATE SCHEMA "$q"}) if $schema ne 'public';
	run_as($node, $installer, $db, qq{CREATE EXTENSION idem SCHEMA "$q" $what});
	run_as($node, $owner, $db, qq{ALTER DATABASE $db SET search_path = public, "$q"});
	return $db;
}

# Lines that only one of two texts has.
sub difference
{
	my ($got, $expected) = @_;
	my %got = map { $_ => 1 } split /\n/, $got;
	my %expected = map { $_ => 1 } split /\n/, $expected;

	return join "\n",
	  (map { "only here: $_" } grep { !$expected{$_} } sort keys %got),
	  (map { "only there: $_" } grep { !$got{$_} } sort keys %expected);
}

# What users have in idem's tables, and what they granted, but for the version
# and the functions that are new.
sub theirs
{
	my ($db, $before) = @_;
	my $rows = every_row($node, $owner, $db);
	my %known = map { /^grant\|(\S+)/ ? ($1 => 1) : () } split /\n/, $before // $rows;

	# a column that has come since is NULL
	return join "\n", map { s/^(timer\|.*),\)$/$1)/r } grep { !/^extension\|/ && (!/^grant\|(\S+)/ || $known{$1}) } split /\n/, $rows;
}

my $n = 0;
foreach my $old (sort keys %former_databases)
{
	# The catalogs are equal, whoever installed it, and wherever.
	foreach my $case ([ $owner, 'public' ], [ $owner, 'we"ird' ], [ $owner, 'x y' ], [ $admin, 'a$b' ])
	{
		my ($installer, $schema) = @$case;
		my $fresh = made('fresh' . ++$n, $installer, $schema, '');
		my $updated = made("updated$n", $installer, $schema, "VERSION '$old'");

		run_as($node, $installer, $updated, 'ALTER EXTENSION idem UPDATE');
		is(difference(extension_catalog($node, $updated), extension_catalog($node, $fresh)), '',
			"$old by $installer in schema $schema: the catalog is that of a fresh installation");
	}

	# Rows, triggers, grants, views of users.
	foreach my $case ([ 'public', $owner ], [ 'we"ird', $admin ])
	{
		my ($schema, $by) = @$case;
		my $db = made('filled' . ++$n, $owner, $schema, "VERSION '$old'");
		my $name = "$old in schema $schema, updated by $by";
		my $filled = fill_former($node, $admin, $db, $old, $schema);
		my $before = theirs($db);

		run_as($node, $by, $db, 'ALTER EXTENSION idem UPDATE');
		is(difference(theirs($db, $before), $before), '', "$name: rows, sequences, triggers, grants are what they were");

		# A dump of the former version, restored where the new one is the default.
		my $restored = made("restored$n", $owner, $schema, '');
		fill_former($node, $owner, $restored, $old, $schema);
		is($node->safe_psql($restored, 'SELECT objects FROM idem.version'), $version, "$name: a dump is restored as $version");
		is(difference(theirs($restored, $before), $before), '', "$name: with all that it had");
		is(difference(extension_catalog($node, $db), extension_catalog($node, $restored)), '',
			"$name: the catalogs of the two are equal, grants included");
		foreach my $which ($db, $restored)
		{
			$node->command_ok([ 'pg_dump', '--schema-only', '-U', $owner, '-f', "$tmp/$which.sql", $node->connstr($which) ], "$which: dumped");
		}
		is(difference(map { slurp_file("$tmp/$_.sql") =~ s/^\\(un)?restrict .*\n//mgr } $db, $restored), '', "$name: so are their dumps");
		every_kind_goes_on($node, $owner, $restored, $filled, "$name: the dump");

		is(run_as($node, 'regress_idem_app', $db, q{SELECT outcome FROM idem_claim('by app', lease => '1 h', scope => 'pay')}),
			'claimed', "$name: a grant counts");
		is(errcode($node, $db, 'SELECT idem_version()', extra_params => [ '-U', 'regress_idem_app' ]), '42501',
			"$name: but not for what is new");
		run_as($node, $owner, $db, q{SELECT idem_grant('regress_idem_app'); DELETE FROM idem.key WHERE key = 'by app'});
		is(run_as($node, 'regress_idem_app', $db, 'SELECT idem_version()'), $version, "$name: until it is granted again");

		is(run_as($node, $owner, $db, <<'EOT'), "t\nleased\n2\njob\n1\nid409", "$name: views and functions of users work");
SELECT claim_once('theirs');
SELECT key FROM busy WHERE scope = 'pay';
SELECT count(*) FROM moved WHERE table_name = 'orders' AND event = 'submit' OR event IS NULL AND table_name = 'parts';
SELECT name FROM leases;
SELECT id FROM document WHERE idem_fingerprint(body) = idem_fingerprint('{"a": 1.0}');
DO $$ BEGIN
	UPDATE orders SET state = 'approved' WHERE id = 2;
EXCEPTION WHEN SQLSTATE 'ID409' THEN
	PERFORM set_config('test.told', 'id409', false);
END $$;
SELECT current_setting('test.told');
EOT
		run_as($node, $owner, $db, q{DELETE FROM idem.key WHERE key = 'theirs'});
		every_kind_goes_on($node, $owner, $db, $filled, $name);
	}

	# Names of ours that others have taken since.
	my $taken = made('taken' . ++$n, $owner, 'public', "VERSION '$old'");
	foreach my $theirs ('idem_version()', 'idem_version(int)')
	{
		run_as($node, $owner, $taken, "CREATE FUNCTION $theirs RETURNS text LANGUAGE sql AS 'SELECT 1::text'");
		isnt(errcode($node, $taken, 'ALTER EXTENSION idem UPDATE'), 'none', "$old: refused beside a function $theirs");
		is($node->safe_psql($taken, q{SELECT extversion FROM pg_extension WHERE extname = 'idem'}), $old, "$old: nothing has changed then");
		run_as($node, $owner, $taken, "DROP FUNCTION $theirs");
	}

	# Nor does it take what the installer has put into the extension for its own.
	run_as($node, $owner, $taken, <<'EOT');
CREATE FUNCTION theirs() RETURNS text LANGUAGE sql SECURITY DEFINER AS 'SELECT current_user::text';
CREATE FUNCTION idem_catalog_changed(int) RETURNS text LANGUAGE sql AS 'SELECT current_user::text';
CREATE TYPE idem_theirs AS (a int);
ALTER EXTENSION idem ADD FUNCTION theirs();
ALTER EXTENSION idem ADD FUNCTION idem_catalog_changed(int);
ALTER EXTENSION idem ADD TYPE idem_theirs;
REVOKE ALL ON FUNCTION idem_revoke FROM regress_idem_owner;
ALTER EXTENSION idem DROP VIEW idem.dwell;
DROP VIEW idem.dwell;
ALTER EXTENSION idem UPDATE;
EOT
	is(run_as($node, $owner, $taken, 'SELECT theirs()'), $owner, "$old: a function of the installer's still runs as he");
	is($node->safe_psql($taken, <<'EOT'), "t|t|t", "$old: what is his stays his");
SELECT bool_and(pg_get_userbyid(proowner) = 'regress_idem_owner'),
	(SELECT pg_get_userbyid(typowner) = 'regress_idem_owner' FROM pg_type WHERE typname = 'idem_theirs'),
	(SELECT pg_get_userbyid(relowner) = 'regress_idem_owner' FROM pg_class WHERE oid = 'idem.dwell'::regclass)
FROM pg_proc WHERE oid IN ('theirs()'::regprocedure, 'idem_catalog_changed(int)'::regprocedure, 'idem_revoke'::regproc)
EOT
	run_as($node, $owner, $taken, "DROP EXTENSION idem; CREATE EXTENSION idem VERSION '$old'; ALTER EXTENSION idem DROP FUNCTION idem_grant; DROP FUNCTION idem_grant");
	is(errcode($node, $taken, 'ALTER EXTENSION idem UPDATE'), '42883', "$old: refused without idem_grant()");
	run_as($node, $owner, $taken, 'DROP EXTENSION idem; CREATE EXTENSION idem');
	is($node->safe_psql($taken, "SELECT idem_once('a')"), 't', "$old: updated, dropped and made again");
}

$node->stop;
done_testing();
