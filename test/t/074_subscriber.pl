# Logical replication of a table that idem looks after.  A subscriber applies
# rows as they were written: no version is counted twice, no history recorded
# twice, nothing skipped; with triggers that fire ALWAYS, too.  Then the other
# way round: the subscriber takes over and publishes.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use IdemTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my %node = map {
	$_ => idem_node($_, init => { allows_streaming => 'logical' }, conf => "wal_retrieve_retry_interval = 100ms\n")
} qw(left right);

my $schema = <<'EOT';
CREATE EXTENSION idem;
SELECT idem_define('order', $$
stateDiagram-v2
    [*] --> draft
    draft --> pending : submit
    pending --> approved : approve
$$);
CREATE TABLE orders (id int PRIMARY KEY, state text, v int NOT NULL DEFAULT 1, note text);
SELECT idem_attach('order', 'orders', 'state', history => true), idem_attach_version('orders', 'v');
CREATE TABLE event (id int PRIMARY KEY, key text);
SELECT idem_attach_once('event', '{key}');
CREATE TABLE report (id int PRIMARY KEY, body text, fence bigint);
SELECT idem_attach_fence('report', 'fence');
EOT
$_->safe_psql('postgres', $schema) foreach values %node;

sub subscribe
{
	my ($from, $to, $name) = @_;
	my $connstr = $node{$from}->connstr('postgres') =~ s/'/''/gr;

	$node{$from}->safe_psql('postgres', "CREATE PUBLICATION $name FOR TABLE orders, event, report, idem.key, idem.history, idem.token, idem.lease, idem.branch");
	$node{$to}->safe_psql('postgres', "CREATE SUBSCRIPTION $name CONNECTION '$connstr' PUBLICATION $name WITH (copy_data = false)");
	$node{$to}->wait_for_subscription_sync($node{$from}, $name, 'postgres');
	return;
}

my $rows = <<'EOT';
SELECT 'order', o::text FROM orders AS o
UNION ALL SELECT 'event', e::text FROM event AS e
UNION ALL SELECT 'report', r::text FROM report AS r
UNION ALL SELECT 'key', k::text FROM idem.key AS k
UNION ALL SELECT 'history', h::text FROM idem.history AS h
UNION ALL SELECT 'token', t::text FROM idem.token AS t
UNION ALL SELECT 'lease', l::text FROM idem.lease AS l
UNION ALL SELECT 'branch', b::text FROM idem.branch AS b
ORDER BY 1, 2
EOT

# Everything that is recorded, once.
sub write_all
{
	my ($where, $n) = @_;

	$node{$where}->safe_psql('postgres', <<"EOT");
SET idem.actor = 'ann';
INSERT INTO orders VALUES ($n, 'draft');
SELECT idem_fire('orders', $n, 'submit', key => 'fire$n');
UPDATE orders SET note = 'x' WHERE id = $n;
SELECT idem_update('orders', $n, 3, '{"state": "approved"}');
INSERT INTO event VALUES ($n, 'same$n'), (1000 + $n, 'same$n');
INSERT INTO report VALUES ($n, 'b', 5);
UPDATE report SET fence = 6 WHERE id = $n;
BEGIN;
SELECT idem_claim('k$n'), idem_complete('k$n', 'r'::text);
COMMIT;
SELECT idem_lease_acquire('job$n', '1 h');
SELECT idem_branch('saga', 'b$n', 'try');
SELECT idem_token_issue('mail', 'ann');
EOT
	return;
}

sub same_rows
{
	my ($from, $to, $name, $what) = @_;

	$node{$from}->wait_for_catchup($name);
	is($node{$to}->safe_psql('postgres', $rows), $node{$from}->safe_psql('postgres', $rows), $what);
	return;
}

subscribe('left', 'right', 'there');
write_all('left', 1);
same_rows('left', 'right', 'there', 'a subscriber has the same rows, versions and history');
is($node{right}->safe_psql('postgres', q{SELECT v, (SELECT count(*) FROM idem.history) FROM orders}),
	'4|3', 'no version counted twice, no history twice');
is($node{right}->safe_psql('postgres', 'SELECT count(*) FROM idem.timer'), '0', 'no timer is made');

# What fires in the apply worker, too.
$node{right}->safe_psql('postgres', q{
ALTER TABLE orders ENABLE ALWAYS TRIGGER "~idem_version";
ALTER TABLE orders ENABLE ALWAYS TRIGGER "~idem_state";
ALTER TABLE report ENABLE ALWAYS TRIGGER "~idem_fence"});
write_all('left', 2);
$node{left}->safe_psql('postgres', q{
UPDATE orders SET note = 'y', v = v;
INSERT INTO orders VALUES (20, 'draft');
UPDATE orders SET state = 'pending', v = 2 WHERE id = 20});
same_rows('left', 'right', 'there', 'versions, guards and fences ENABLE ALWAYS: the same rows still');
is($node{right}->safe_psql('postgres', 'SELECT id, v FROM orders ORDER BY id'), "1|5\n2|5\n20|2", 'no version counted twice');

# A row that is refused stops the worker, until the trigger is set back.
$node{left}->safe_psql('postgres', q{
BEGIN;
SET LOCAL session_replication_role = replica;
UPDATE orders SET v = 50 WHERE id = 20;
COMMIT});
$node{right}->poll_query_until('postgres', q{SELECT apply_error_count > 0 FROM pg_stat_subscription_stats WHERE subname = 'there'});
is($node{right}->safe_psql('postgres', 'SELECT v FROM orders WHERE id = 20'), '2', 'ENABLE ALWAYS: a stale version stops the worker');
$node{right}->safe_psql('postgres', q{
ALTER TABLE orders ENABLE TRIGGER "~idem_version";
ALTER TABLE orders ENABLE TRIGGER "~idem_state";
ALTER TABLE report ENABLE TRIGGER "~idem_fence"});
same_rows('left', 'right', 'there', 'enabled for writers alone again, it goes on');

# The subscriber answers for what it has, and its own writers are judged.
is($node{right}->safe_psql('postgres', q{SELECT outcome, response FROM idem_claim('k1')}), 'completed|r', 'replays');
is($node{right}->safe_psql('postgres', q{SELECT outcome FROM idem_fire('orders', 1, 'submit', key => 'fire1')}), 'already', 'a key of an event');
is(join(' ', map { errcode($node{right}, 'postgres', $_) }
		q{UPDATE orders SET state = 'draft' WHERE id = 1},
		q{UPDATE orders SET v = 1 WHERE id = 1},
		q{UPDATE report SET fence = 1 WHERE id = 1}),
	'ID409 ID412 ID412', 'writers on the subscriber are judged');
is($node{right}->safe_psql('postgres', q{SELECT run, outcome FROM idem_lease_acquire('job1', '1 h')}), 'f|held', 'a lease is held there as well');

# Both would grant the same key: nothing tells them of each other in time.
is($node{$_}->safe_psql('postgres', q{BEGIN; SELECT run FROM idem_claim('both'); ROLLBACK}), 't', "$_ grants a key that neither has")
  foreach sort keys %node;

# Take over: sequences are not replicated.
$node{right}->safe_psql('postgres', 'DROP SUBSCRIPTION there');
$node{left}->safe_psql('postgres', 'DROP PUBLICATION there');
my $fence = $node{left}->safe_psql('postgres', 'SELECT last_value FROM idem.fence');
$node{right}->safe_psql('postgres', "SELECT idem_fence_advance($fence)");
$node{right}->safe_psql('postgres', q{SELECT setval('idem.history_seq', (SELECT max(seq) FROM idem.history))});
subscribe('right', 'left', 'back');
write_all('right', 3);
same_rows('right', 'left', 'back', 'the other way round');
is($node{right}->safe_psql('postgres', q{SELECT string_agg(to_state, ' ' ORDER BY seq) FROM idem.history WHERE row_key = '{"id": 3}'}),
	'draft pending approved', 'history goes on');
is($node{right}->safe_psql('postgres', "SELECT min(seq) > (SELECT max(seq) FROM idem.history WHERE row_key <> '{\"id\": 3}') FROM idem.history WHERE row_key = '{\"id\": 3}'"),
	't', 'behind what was there');
cmp_ok($node{right}->safe_psql('postgres', q{SELECT fence FROM idem.lease WHERE name = 'job3'}), '>', $fence, 'fences go on');

$node{left}->safe_psql('postgres', 'DROP SUBSCRIPTION back');

# Every table is published: what each database has by itself makes room first.
{
	my $connstr = $node{left}->connstr('whole') =~ s/'/''/gr;
	my $orders = 'CREATE TABLE orders (id int PRIMARY KEY, state text)';

	idem_database($_, 'whole') foreach values %node;
	$node{left}->safe_psql('whole', <<"EOT");
SELECT idem_define('order', E'stateDiagram-v2\n[*] --> open\nopen --> stale : expire after 1 ms');
$orders;
SELECT idem_attach('order', 'orders', 'state', history => true);
INSERT INTO orders VALUES (1, 'open');
CREATE PUBLICATION whole FOR ALL TABLES;
EOT
	$node{right}->safe_psql('whole', <<"EOT");
$orders;
DELETE FROM idem.sweep_state;
EOT
	$node{right}->safe_psql('whole', "CREATE SUBSCRIPTION whole CONNECTION '$connstr' PUBLICATION whole");
	$node{right}->wait_for_subscription_sync($node{left}, 'whole', 'whole');
	$node{left}->safe_psql('whole', q{INSERT INTO orders VALUES (2, 'open'); SELECT idem_sweep()});
	$node{left}->wait_for_catchup('whole');
	is($node{right}->safe_psql('whole', q{SELECT count(*) FROM idem.timer WHERE event = 'expire'}), '2', 'all tables: timers arrive');
	$node{right}->safe_psql('whole', 'DROP SUBSCRIPTION whole');
}

$_->stop foreach values %node;
done_testing();
