# History and timers through pg_dump: a whole restore keeps every row, records
# nothing of its own and goes on counting; a dump without the table keeps its
# history; so does one of data into a schema that is there.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use IdemTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = idem_node('history_dump');
my $dir = PostgreSQL::Test::Utils::tempdir();

$node->safe_psql('postgres', 'CREATE ROLE regress_idem_owner LOGIN; CREATE DATABASE origin OWNER regress_idem_owner');

# by an unprivileged owner, who dumps it too
my @owner = ('-U', 'regress_idem_owner');
run_as($node, 'regress_idem_owner', 'origin', <<'EOT');
CREATE EXTENSION idem;
INSERT INTO idem.machine (name) VALUES ('order');
INSERT INTO idem.state (machine, name, initial) VALUES ('order', 'draft', true), ('order', 'pending', false), ('order', 'expired', false);
INSERT INTO idem.transition (machine, event, from_state, to_state, priority, after) VALUES
	('order', 'submit', 'draft', 'pending', 1, NULL), ('order', 'expire', 'pending', 'expired', 2, '1 h');
CREATE SCHEMA shop;
CREATE TABLE shop.orders (id int PRIMARY KEY, state text DEFAULT 'draft', v int NOT NULL DEFAULT 1);
CREATE TABLE shop.parts (id int, state text DEFAULT 'draft', v int, PRIMARY KEY (id, state)) PARTITION BY LIST (state);
CREATE TABLE shop.parts_draft PARTITION OF shop.parts FOR VALUES IN ('draft');
CREATE TABLE shop.parts_rest PARTITION OF shop.parts DEFAULT;
SELECT idem_attach('order', 'shop.orders', 'state', history => true, keep => '10 years'), idem_attach_version('shop.orders', 'v');
SELECT idem_attach('order', 'shop.parts', 'state', history => true);
SET idem.actor = 'ann';
INSERT INTO shop.orders (id) VALUES (1), (2), (3);
INSERT INTO shop.parts (id) VALUES (1), (2);
SELECT idem_fire('shop.orders', 1, 'submit', key => 'k', context => '{"a": "\u00e9"}');
UPDATE shop.orders SET state = 'pending' WHERE id = 2;
UPDATE shop.parts SET state = 'pending' WHERE id = 1;
EOT

my $rows = <<'EOT';
SELECT h.* FROM idem.history h ORDER BY seq;
SELECT t.* FROM idem.timer t ORDER BY table_name, row_key;
EOT
my $before = $node->safe_psql('origin', $rows);
is(scalar(split /\n/, $before), 11, 'eight rows of history and three timers');

sub restore
{
	my ($db, @options) = @_;

	$node->safe_psql('postgres', "CREATE DATABASE $db OWNER regress_idem_owner TEMPLATE template0");
	$node->command_ok([ 'pg_dump', '-Fc', '-h', $node->host, '-p', $node->port, @owner, '-f', "$dir/$db.dump", @options, 'origin' ], "$db: dump");
	$node->command_ok([ 'pg_restore', '--exit-on-error', '-h', $node->host, '-p', $node->port, @owner, '-d', $db, "$dir/$db.dump" ], "$db: restore");
	return;
}

restore('whole');
is($node->safe_psql('whole', $rows), $before, 'a whole restore keeps all, and records nothing');
is($node->safe_psql('whole', q{SELECT outcome FROM idem_fire('shop.orders', 1, 'submit', key => 'k')}), 'already', 'keys too');
is($node->safe_psql('whole', <<'EOT'), 'already', '... also of a table that is renamed then');
BEGIN;
ALTER TABLE shop.orders RENAME TO bills;
SELECT outcome FROM idem_fire('shop.bills', 1, 'submit', key => 'k');
ROLLBACK;
EOT
is(run_as($node, 'regress_idem_owner', 'whole', <<'EOT'), "applied\nsubmit|draft|pending", 'and history goes on');
SELECT outcome FROM idem_fire('shop.orders', 3, 'submit');
SELECT event, from_state, to_state FROM idem.history ORDER BY seq DESC LIMIT 1;
EOT
$node->safe_psql('whole', q{SET session_replication_role = replica;
UPDATE idem.history SET at = at - interval '2 h';
RESET session_replication_role;
UPDATE idem.timer SET since = since - interval '2 h', due = due - interval '2 h'});
is(run_as($node, 'regress_idem_owner', 'whole', 'SELECT table_name, row_key, outcome FROM idem_tick() ORDER BY 1, 2'),
	join("\n", map { "shop.orders|{\"id\": $_}|applied" } 1 .. 3) . "\n" . 'shop.parts|{"id": 1, "state": "pending"}|applied', 'timers fire');

restore('without', '-T', 'shop.orders');
is($node->safe_psql('without', $rows), $before, 'without a table its history stays');
is($node->safe_psql('without', q{SELECT count(*) FROM idem_history('shop.parts', '{"id": 1, "state": "pending"}')}), '2', 'that of others can be read');

# what is not the extension's own
$node->command_ok([ 'pg_dump', '-Fc', '-h', $node->host, '-p', $node->port, '-f', "$dir/data.dump", '-a', '-t', 'shop.orders', 'origin' ], 'data of a table: dump');
$node->safe_psql('without', q{CREATE TABLE shop.orders (id int PRIMARY KEY, state text DEFAULT 'draft', v int NOT NULL DEFAULT 1); SELECT idem_attach('order', 'shop.orders', 'state', history => true)});
foreach my $how ([], ['--disable-triggers'])
{
	$node->command_ok([ 'pg_restore', '--exit-on-error', @$how, '-h', $node->host, '-p', $node->port, '-d', 'without', "$dir/data.dump" ],
		"data of a table into a guarded one: @$how");
	is($node->safe_psql('without', 'SELECT count(*) FROM shop.orders'), '3', 'restored as it was');
	is($node->safe_psql('without', $rows), $before, 'and records nothing');
	$node->safe_psql('without', 'TRUNCATE shop.orders');
}

# a database that publishes all its tables sweeps and ticks as ever
$node->safe_psql('origin', 'CREATE PUBLICATION everything FOR ALL TABLES');
is(run_as($node, 'regress_idem_owner', 'origin', <<'EOT'), "applied\nmissing\n0", 'published: events, ticks, sweeps');
SELECT outcome FROM idem_fire('shop.orders', 3, 'submit');
DELETE FROM shop.orders WHERE id = 3;
UPDATE idem.timer SET since = since - interval '2 h', due = due - interval '2 h' WHERE row_key = '{"id": 3}';
SELECT outcome FROM idem_tick();
SELECT removed FROM idem_sweep() WHERE kind = 'history';
EOT

$node->stop;
done_testing();
