# pg_upgrade from an older major, preloaded on both sides, with workers that
# would be in its way if they ran: every kind of row comes over as it was, and
# the verbs go on with it.  Also from a database whose objects are of a former
# version, which are updated afterwards.  The older server's programs are in
# $IDEM_OLD_SERVER/bin; tools/check-majors makes them.

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

my $old_server = $ENV{IDEM_OLD_SERVER}
  or plan skip_all => 'IDEM_OLD_SERVER names no server to upgrade from';

my $conf = <<'EOT';
shared_preload_libraries = 'idem'
idem.databases = '*'
idem.naptime = '1 s'
max_prepared_transactions = 10
EOT
my %init = (extra => [ '--encoding=UTF8', '--locale=C' ]);

sub upgrade_node
{
	my ($name, %o) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name, %o);

	$node->init(%init);
	$node->append_conf('postgresql.conf', $conf);
	return $node;
}

my $old = upgrade_node('old', install_path => $old_server);
$old->start;
$old->safe_psql('postgres', <<'EOT');
CREATE ROLE regress_idem_owner LOGIN;
CREATE ROLE regress_idem_app LOGIN;
CREATE DATABASE app OWNER regress_idem_owner;
CREATE ROLE regress_idem_reader;
CREATE ROLE regress_idem_admin LOGIN SUPERUSER;
CREATE DATABASE former OWNER regress_idem_owner;
EOT

# An unprivileged owner installs and uses it.
my $filled = fill_every_kind($old, 'regress_idem_owner', 'app');

# The first sweep that finds a session claim's holder dead gives it a deadline.
sub settled
{
	my ($node) = @_;

	return join "\n", grep { !/^key\|\(default,session,/ } split /\n/, every_row($node, 'regress_idem_owner', 'app');
}
my $before = settled($old);

my ($former) = sort keys %former_databases;
run_as($old, 'regress_idem_owner', 'former', "CREATE EXTENSION idem VERSION '$former'");
my $former_filled = fill_former($old, 'regress_idem_admin', 'former', $former, 'public');
my $former_rows = every_row($old, 'regress_idem_owner', 'former');
$old->stop;

my $new = upgrade_node('new');
chdir $PostgreSQL::Test::Utils::tmp_check or die;
$new->command_ok(
	[
		'pg_upgrade', '--no-sync',
		'-d', $old->data_dir, '-D', $new->data_dir,
		'-b', "$old_server/bin", '-B', $new->config_data('--bindir'),
		'-s', $new->host, '-p', $old->port, '-P', $new->port
	],
	'pg_upgrade');
$new->start;

ok($new->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'idem launcher'}),
	'workers are started again');
is(settled($new), $before,
	'rows, sequences, triggers, grants are what they were');
every_kind_goes_on($new, 'regress_idem_owner', 'app', $filled, 'upgraded');
is(run_as($new, 'regress_idem_app', 'app', q{SELECT outcome FROM idem_claim('by app', scope => 'pay')}),
	'claimed', 'grants count');

is(every_row($new, 'regress_idem_owner', 'former'), $former_rows, "$former: rows are what they were, and so is the version");
is(errcode($new, 'former', q{SELECT idem_once('a')}), 'ID500', "$former: verbs wait for the update");
$new->safe_psql('former', 'ALTER EXTENSION idem UPDATE');
$new->safe_psql('postgres', 'CREATE DATABASE fresh OWNER regress_idem_owner');
run_as($new, 'regress_idem_owner', 'fresh', 'CREATE EXTENSION idem');
fill_former($new, 'regress_idem_owner', 'fresh', $former, 'public');
# but for what pg_upgrade makes of the extension's owner and first privileges
my ($is, $expected) = map { join "\n", grep { !/^(extension|first privileges) \|/ } split /\n/, extension_catalog($new, $_) } 'former', 'fresh';
is($is, $expected, "$former: updated, the catalog is that of a restored dump");
every_kind_goes_on($new, 'regress_idem_owner', 'former', $former_filled, "$former, upgraded and updated");

is($new->safe_psql('app', q{DROP EXTENSION idem CASCADE; CREATE EXTENSION idem; SELECT idem_once('again')}),
	't', 'dropped and made again');

$new->stop;
done_testing();
