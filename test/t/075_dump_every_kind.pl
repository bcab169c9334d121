# Every kind of row through every kind of dump: whole, in each format, by
# several processes, without tables, one schema, schema and data apart, without
# unlogged tables.  Each restore is without an error, as the unprivileged owner.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use EveryKind;
use IdemTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = idem_node('dump');
my $tmp = $PostgreSQL::Test::Utils::tmp_check;
my $owner = 'regress_idem_owner';

$node->safe_psql('postgres', <<"EOT");
CREATE ROLE $owner LOGIN;
CREATE ROLE regress_idem_app LOGIN;
CREATE DATABASE app OWNER $owner;
EOT
my $filled = fill_every_kind($node, $owner, 'app');
my $rows = every_row($node, $owner, 'app');
like($rows, qr/^$_\|/m, "there is a $_") foreach qw(key scope machine history timer token lease branch window);

sub dumped
{
	my ($name, @options) = @_;

	$node->command_ok(
		[ 'pg_dump', '-U', $owner, '-f', "$tmp/$name", @options, $node->connstr('app') ],
		"$name: pg_dump " . join(' ', @options));
	return "$tmp/$name";
}

sub made
{
	my ($db) = @_;

	$node->safe_psql('postgres',
		"DROP DATABASE IF EXISTS $db; CREATE DATABASE $db OWNER $owner TEMPLATE template0");
	return;
}

sub restored
{
	my ($db, $file, @options) = @_;
	my @by = -d $file || grep({ /^--format/ } @options)
	  ? ('pg_restore', '--exit-on-error')
	  : ('psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-o', "$file.out", '-f', $file);

	$node->command_ok([ @by, '-U', $owner, @options, '-d', $node->connstr($db), ($by[0] eq 'psql' ? () : $file) ],
		"$db: restored without an error");
	return;
}

# Whole.
foreach my $case ([ 'plain', [], [] ], [ 'custom', ['-Fc'], ['--format=c'] ], [ 'directory', [ '-Fd', '-j', '2' ], [] ])
{
	my ($name, $dump, $restore) = @$case;

	made($name);
	restored($name, dumped($name, @$dump), @$restore);
	is(every_row($node, $owner, $name), $rows, "$name: every row is there, and nothing fired");
	every_kind_goes_on($node, $owner, $name, $filled, $name) if $name ne 'custom';
}

# By several processes.  Data is then loaded in any order, without regard to
# what idem.transition refers to; so it goes in with triggers off.
made('parallel');
foreach my $step (
	[ '-U', $owner, '--section=pre-data' ],
	[ '--data-only', '--disable-triggers', '-j', '2' ],
	[ '-U', $owner, '--section=post-data', '-j', '2' ])
{
	$node->command_ok([ 'pg_restore', '--exit-on-error', @$step, '-d', $node->connstr('parallel'), "$tmp/directory" ],
		"parallel: pg_restore @$step");
}
is(every_row($node, $owner, 'parallel'), $rows, 'parallel: every row');
every_kind_goes_on($node, $owner, 'parallel', $filled, 'parallel');

# Schema and data apart.  What guards a table would judge its rows.
my $schema = dumped('schema', '--schema-only');
my $data = dumped('data', '--data-only', '--disable-triggers');
made('apart');
restored('apart', $schema);
is(run_as($node, $owner, 'apart', 'SELECT count(*) FROM idem.key; SELECT count(*) FROM idem.machine; SELECT count(*) FROM idem.binding'),
	"0\n0\n2", 'a schema has bindings, and no rows');
$node->command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-o', "$data.out", '-f', $data, $node->connstr('apart') ],
	'data alone, by a superuser with triggers off');
is(every_row($node, $owner, 'apart'), $rows, 'schema, then data: every row');
every_kind_goes_on($node, $owner, 'apart', $filled, 'schema, then data');

# A schema for a new database, and the definitions that go with it.
made('fresh');
restored('fresh', $schema);
run_as($node, $owner, 'fresh', run_as($node, $owner, 'app', 'SELECT * FROM idem_export()'));
is(run_as($node, $owner, 'fresh', <<'EOT'), "draft\nid409\napplied", 'schema and idem_export: works, with no rows of the old one');
INSERT INTO orders VALUES (1, 'draft') RETURNING state;
DO $$ BEGIN
	UPDATE orders SET state = 'approved';
EXCEPTION WHEN SQLSTATE 'ID409' THEN
	PERFORM set_config('test.told', 'id409', false);
END $$;
SELECT current_setting('test.told');
SELECT outcome FROM idem_fire('orders', 1, 'submit');
EOT

# Without tables of the user's: what idem knows of them stays.
made('without');
restored('without', dumped('without', '-T', 'orders', '-T', 'parts*', '-T', 'event', '-T', 'report'));
is( (join "\n", grep { !/^(binding|trigger)\|/ } split /\n/, every_row($node, $owner, 'without')),
	(join "\n", grep { !/^(binding|trigger)\|/ } split /\n/, $rows),
	'without the tables: history, timers, keys are there');
is(run_as($node, $owner, 'without', q{SELECT count(*) > 0 FROM idem_sweep(); SELECT count(*) FROM idem_tick()}),
	"t\n0", 'without the tables: sweep and tick have nothing to stumble over');

# Without data of idem's own.
made('unlogged');
restored('unlogged', dumped('unlogged', '--no-unlogged-table-data'));
every_kind_goes_on($node, $owner, 'unlogged', $filled, 'without unlogged rows', windows_lost => 1);

# One schema into a database that has idem.
made('one_schema');
run_as($node, $owner, 'app', <<'EOT');
CREATE SCHEMA shop;
CREATE TABLE shop.orders (id int PRIMARY KEY, state text, v int NOT NULL DEFAULT 1);
SELECT idem_attach('order', 'shop.orders', 'state', history => true), idem_attach_version('shop.orders', 'v'), idem_attach_once('shop.orders', '{id}');
INSERT INTO shop.orders VALUES (1, 'draft');
EOT
run_as($node, $owner, 'one_schema', 'CREATE EXTENSION idem');
run_as($node, $owner, 'one_schema', run_as($node, $owner, 'app', 'SELECT * FROM idem_export()'));
restored('one_schema', dumped('one_schema', '-n', 'shop'));
is(errcode($node, 'one_schema', q{UPDATE shop.orders SET state = 'approved'}), 'ID409', 'one schema: guarded');
is(errcode($node, 'one_schema', q{UPDATE shop.orders SET state = 'pending', v = 7}), 'ID412', 'one schema: versioned');
is(run_as($node, $owner, 'one_schema', <<'EOT'), "t\n1\n2", 'one schema: keys of its rows have stayed behind, until attached again');
SELECT idem_detach_once('shop.orders') AND idem_attach_once('shop.orders', '{id}');
INSERT INTO shop.orders VALUES (1, 'draft');
SELECT count(*) FROM shop.orders;
INSERT INTO shop.orders VALUES (2, 'draft');
SELECT count(*) FROM shop.orders;
EOT

# A dump of a copy is the dump.
made('again');
restored('again', "$tmp/plain");
$node->command_ok([ 'pg_dump', '-U', $owner, '-f', "$tmp/again", $node->connstr('again') ], 'a dump of the copy');
my ($first, $second) = map { slurp_file("$tmp/$_") =~ s/^\\(un)?restrict .*\n//mgr } qw(plain again);
is($second, $first, 'says the same');

$node->stop;
done_testing();
