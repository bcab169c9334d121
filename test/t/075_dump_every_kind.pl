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

# By several processes, which load the largest table first, without regard to
# what belongs to what: here the transitions, then the states, then the machines.
made('parallel_from');
restored('parallel_from', "$tmp/plain");
$node->safe_psql('parallel_from', q{
INSERT INTO idem.machine (name) VALUES ('large');
INSERT INTO idem.state (machine, name) SELECT 'large', 'state ' || i FROM generate_series(1, 400) i;
INSERT INTO idem.transition (machine, event, from_state, to_state, guard)
SELECT 'large', 'to ' || i, '*', 'state ' || i, (SELECT string_agg(format('%L <> %L', md5((i + random())::text), j), ' AND ') FROM generate_series(1, 30) j)
FROM generate_series(1, 400) i;
ANALYZE});
ok($node->safe_psql('parallel_from', q{SELECT bool_and(after.pages > before.pages)
FROM (VALUES ('idem.transition', 'idem.state'), ('idem.state', 'idem.machine')) AS v (late, early)
CROSS JOIN LATERAL (SELECT relpages FROM pg_class WHERE oid = late::regclass) AS after (pages)
CROSS JOIN LATERAL (SELECT relpages FROM pg_class WHERE oid = early::regclass) AS before (pages)}) eq 't',
	'what comes last is largest');
my $many = every_row($node, $owner, 'parallel_from');
$node->command_ok([ 'pg_dump', '-U', $owner, '-Fd', '-f', "$tmp/parallel", $node->connstr('parallel_from') ], 'pg_dump -Fd');
foreach my $case (
	[ 'parallel', [] ],
	[ 'parallel_in_three', ['--section=pre-data'], ['--data-only'], ['--section=post-data'] ],
	[ 'parallel_in_two', ['--schema-only'], [ '--data-only', '--disable-triggers' ] ])
{
	my ($db, @steps) = @$case;

	made($db);
	foreach my $step (@steps)
	{
		# only a superuser may disable triggers
		my @role = grep({ /disable/ } @$step) ? () : ('-U', $owner);

		$node->command_ok([ 'pg_restore', '--exit-on-error', '-j', '4', @role, @$step, '-d', $node->connstr($db), "$tmp/parallel" ],
			"$db: pg_restore -j 4 @$step");
	}
	is(every_row($node, $owner, $db), $many, "$db: every row");
	every_kind_goes_on($node, $owner, $db, $filled, $db);
}

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
