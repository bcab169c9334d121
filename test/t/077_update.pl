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
my ($version) = slurp_file("$FindBin::RealBin/../../idem.control") =~ /^default_version *= *'(.*)'$/m;
my %former = (
	'1.0.0' => {
		fresh => '7jM1JWl9k9RrK0WmA6hHOi4U4Ehc-LqEEyij1qkex7w',
		used => 'JLNp2Mlqkl9grK381zb3auZ5XFu5v4uixD7zUCi541A',
		highest => 3
	});
my $tmp = $PostgreSQL::Test::Utils::tmp_check;

$node->safe_psql('postgres', <<"EOT");
CREATE ROLE $owner LOGIN;
CREATE ROLE regress_idem_app LOGIN;
CREATE ROLE regress_idem_reader;
CREATE ROLE regress_idem_admin LOGIN SUPERUSER;
EOT

# A database whose extension was made by "installer", or an empty one.
sub made
{
	my ($db, $installer, $schema, $what) = @_;

	(my $q = $schema) =~ s/"/""/g;
	$node->safe_psql('postgres', "CREATE DATABASE $db OWNER $owner TEMPLATE template0");
	$node->safe_psql($db, qq{CREATE SCHEMA "$q" AUTHORIZATION $owner}) if $schema ne 'public';
	run_as($node, $installer, $db, qq{CREATE EXTENSION idem SCHEMA "$q" $what});
	return $db;
}

# Loads what a database of a former version had, into one that has that version.
sub filled
{
	my ($db, $old, $schema) = @_;
	my $dump = slurp_file("$FindBin::RealBin/../lib/database-$old.sql");

	(my $q = $schema) =~ s/"/""/g;
	$dump =~ s/\bpublic\.idem_/"$q".idem_/g if $schema ne 'public';
	append_to_file("$tmp/$db.sql", $dump);
	$node->command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-o', "$tmp/$db.out", '-U', $owner, '-f', "$tmp/$db.sql", $node->connstr($db) ],
		"$db: loaded");
	return;
}

sub difference
{
	my ($got, $expected) = @_;
	my %got = map { $_ => 1 } split /\n/, $got;
	my %expected = map { $_ => 1 } split /\n/, $expected;

	return join "\n",
	  (map { "only updated: $_" } grep { !$expected{$_} } sort keys %got),
	  (map { "only fresh: $_" } grep { !$got{$_} } sort keys %expected);
}

my $n = 0;
foreach my $old (sort keys %former)
{
	# The catalogs are equal: whoever installed, and wherever.
	foreach my $case ([ $owner, 'public' ], [ $owner, 'we"ird' ], [ $owner, 'x y' ], [ 'regress_idem_admin', 'a$b' ])
	{
		my ($installer, $schema) = @$case;
		my $fresh = made('fresh' . ++$n, $installer, $schema, '');
		my $updated = made('updated' . $n, $installer, $schema, "VERSION '$old'");

		run_as($node, $installer, $updated, 'ALTER EXTENSION idem UPDATE');
		is(difference(extension_catalog($node, $updated), extension_catalog($node, $fresh)), '',
			"$old by $installer in schema $schema: the updated catalog equals the fresh one");
	}
}

$node->stop;
done_testing();
