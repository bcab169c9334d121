# Tables that skip repeated inserts, dumped and restored: in one piece, schema
# and data apart, data only, schema only, single tables; and a subscriber.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use IdemTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = idem_node('once', init => { allows_streaming => 'logical' });
my $tmp = $PostgreSQL::Test::Utils::tmp_check;

my $rows = q{SELECT string_agg(id || ':' || key, ' ' ORDER BY id) FROM event};
my $keys = q{SELECT string_agg(key, ' ' ORDER BY key) FROM idem.key WHERE scope = 'once.public.event'};
my $triggers = q{SELECT string_agg(tgname || ' ' || tgrelid::regclass, ',' ORDER BY tgname, tgrelid::regclass::text)
	FROM pg_trigger WHERE tgname LIKE '~idem%'};

# dump FORMAT...: the file; runs pg_dump
sub dump_db
{
	my ($name, @options) = @_;

	$node->command_ok(
		[ 'pg_dump', '-Fc', '-f', "$tmp/$name", @options, $node->connstr('original') ],
		"pg_dump @options");
	return "$tmp/$name";
}

# restore DB FILE...: what pg_restore wrote to stderr
sub restore_db
{
	my ($db, $file, @options) = @_;
	my ($out, $err);

	IPC::Run::run(
		[ 'pg_restore', '-d', $node->connstr($db), @options, $file ],
		'>', \$out, '2>', \$err);
	return $err;
}

sub check_restored
{
	my ($db, $what) = @_;

	is($node->safe_psql($db, $rows), '1:a 2:b 3:c', "$what: rows");
	is($node->safe_psql($db, $keys), '1:a 1:b 1:c 4:gone', "$what: keys");
	$node->safe_psql($db, q{INSERT INTO event VALUES (10, 11, 'a'), (11, 1, 'gone'), (12, 12, 'd'), (13, 1, 'd')});
	is($node->safe_psql($db, $rows), '1:a 2:b 3:c 12:d', "$what: skips as before");
	is($node->safe_psql($db, $triggers), $node->safe_psql('original', $triggers), "$what: triggers");
	return;
}

foreach my $access (accesses())
{
	idem_database($node, 'original', $access);
	$node->safe_psql('original', q{
CREATE TABLE event (id int, at int, dropped int, key text) PARTITION BY RANGE (at);
CREATE TABLE event_1 PARTITION OF event FOR VALUES FROM (0) TO (10);
CREATE TABLE event_2 (more int, key text, id int, at int, dropped int);
ALTER TABLE event_2 DROP COLUMN more;
ALTER TABLE event ATTACH PARTITION event_2 FOR VALUES FROM (10) TO (20);
ALTER TABLE event DROP COLUMN dropped;
SELECT idem_attach_once('event', '{key}');
ALTER TABLE event_1 REPLICA IDENTITY FULL;
ALTER TABLE event_2 REPLICA IDENTITY FULL;
INSERT INTO event VALUES (1, 1, 'a'), (2, 12, 'b'), (3, 3, 'c'), (4, 4, 'gone'), (5, 15, 'a');
DELETE FROM event WHERE key = 'gone'});

	my $full = dump_db('full');
	$node->safe_psql('postgres', "CREATE DATABASE copy TEMPLATE template0");
	is(restore_db('copy', $full), '', "$access: full restore");
	$node->safe_psql('copy', 'SELECT 1');
	check_restored('copy', "$access, full");

	# single tables have no keys; attaching anew records them
	$node->safe_psql('postgres', 'DROP DATABASE copy');
	idem_database($node, 'copy', $access);
	my $single = dump_db('single', '-t', 'event*');
	is(restore_db('copy', $single), '', "$access: restore of tables");
	$node->safe_psql('copy', q{SELECT idem_detach_once('event'); SELECT idem_attach_once('event', '{key}')});
	$node->safe_psql('copy', q{INSERT INTO event VALUES (10, 11, 'a')});
	is($node->safe_psql('copy', $rows), '1:a 2:b 3:c', "$access: tables alone, attached again");

	# schema, then data
	foreach my $disable (0, 1)
	{
		$node->safe_psql('postgres', 'DROP DATABASE copy');
		$node->safe_psql('postgres', "CREATE DATABASE copy TEMPLATE template0");
		is(restore_db('copy', dump_db('schema', '-s')), '', "$access: schema only");
		is($node->safe_psql('copy', $triggers), $node->safe_psql('original', $triggers),
			"$access: a schema alone has the triggers");
		my $data = dump_db('data', '-a');
		if ($disable)
		{
			is(restore_db('copy', $data, '--disable-triggers'), '', "$access: data only, triggers disabled");
			check_restored('copy', "$access, data only");
		}
		else
		{
			like(restore_db('copy', $data), qr/ERROR:  a row of table "event_1" was to be skipped while a dump is restored.*HINT:  Restore data with --disable-triggers/s,
				"$access: data only is refused");
		}
	}

	# as the tables' owner may do it
	$node->safe_psql('copy', q{TRUNCATE event, idem.key; ALTER TABLE event DISABLE TRIGGER USER});
	is(restore_db('copy', dump_db('data', '-a')), '', "$access: data only, disabled by the owner");
	$node->safe_psql('copy', q{ALTER TABLE event ENABLE TRIGGER USER});
	check_restored('copy', "$access, data only by the owner");
	$node->safe_psql('postgres', 'DROP DATABASE copy');

	# a subscriber's apply worker takes every row, and records no key
	idem_database($node, 'copy', $access);
	restore_db('copy', $single, '-s');
	$node->safe_psql('original', 'CREATE PUBLICATION events FOR TABLE event');
	my $connstr = $node->connstr('original') =~ s/'/''/gr;
	$node->safe_psql('original', q{SELECT pg_create_logical_replication_slot('events', 'pgoutput')});
	$node->safe_psql('copy',
		"CREATE SUBSCRIPTION events CONNECTION '$connstr' PUBLICATION events WITH (create_slot = false)");
	$node->wait_for_subscription_sync($node, 'events', 'copy');
	$node->safe_psql('original', q{
INSERT INTO event VALUES (20, 1, 'e'), (21, 11, 'e');
UPDATE event SET at = 13 WHERE id = 1});
	$node->wait_for_catchup('events');
	is($node->safe_psql('copy', $rows), '1:a 2:b 3:c 20:e', "$access: a subscriber has the rows");
	is($node->safe_psql('copy', $keys), '', "$access: and no keys");
	$node->safe_psql('copy', q{SELECT idem_detach_once('event'); SELECT idem_attach_once('event', '{key}')});
	$node->safe_psql('copy', q{INSERT INTO event VALUES (30, 1, 'e'), (31, 1, 'f')});
	is($node->safe_psql('copy', $rows), '1:a 2:b 3:c 20:e 31:f', "$access: until attached again");
	$node->safe_psql('copy', 'DROP SUBSCRIPTION events');
	$node->safe_psql('postgres', "DROP DATABASE $_ WITH (FORCE)") foreach 'copy', 'original';
}

$node->stop;
done_testing();
