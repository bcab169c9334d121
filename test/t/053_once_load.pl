# Tables that skip repeated inserts, under load and when servers are killed:
# as many rows as different keys, whatever happened, and moves lose none.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use IdemTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = idem_node('once_load', conf => "restart_after_crash = on\nmax_prepared_transactions = 10");

my $compare = q{SELECT count(*) - count(DISTINCT key),
	(SELECT count(*) FROM (SELECT length(key) || ':' || key FROM event EXCEPT SELECT key FROM idem.key) x),
	(SELECT count(*) FROM (SELECT key FROM idem.key EXCEPT SELECT length(key) || ':' || key FROM event) x) FROM event};

my $insert = <<'EOT';
\set a random(1, 400)
\set b random(1, 400)
\set at random(0, 19)
\set undo random(1, 5)
BEGIN;
INSERT INTO event VALUES ('k' || least(:a, :b), :at), ('k' || least(:a, :b), 19 - :at), ('k' || greatest(:a, :b), :at);
SAVEPOINT s;
INSERT INTO event VALUES ('s' || :a, :at);
\if :undo = 1
ROLLBACK TO s;
\endif
\if :undo = 2
ROLLBACK;
\else
COMMIT;
\endif
EOT
$insert =~ s/^\\if (:undo) = (\d)$/\\set u$2 $1 = $2\n\\if :u$2/mg;
my $move = <<'EOT';
\set a random(1, 400)
UPDATE event SET at = 19 - at WHERE key = 'k' || :a;
EOT
my $drop = <<'EOT';
\set a random(1, 400)
INSERT INTO event VALUES ('first', 1), ('k' || :a, 19) ON CONFLICT DO NOTHING;
EOT

foreach my $access (accesses())
{
	my $db = idem_database($node, "idem_$access", $access);

	$node->safe_psql($db, q{
CREATE TABLE event (key text, at int) PARTITION BY RANGE (at);
CREATE TABLE event_1 PARTITION OF event FOR VALUES FROM (0) TO (10);
CREATE TABLE event_2 PARTITION OF event FOR VALUES FROM (10) TO (20);
CREATE UNIQUE INDEX ON event_1 (key);
CREATE UNIQUE INDEX ON event_2 (key);
SELECT idem_attach_once('event', '{key}')});

	bench_run($node, $db, "$access: load", [ '-c', '6', '-j', '2', '-t', '150', '--max-tries=100' ],
		[ $insert, 4 ], [ $move, 2 ], [ $drop, 1 ]);
	is($node->safe_psql($db, $compare), '0|0|0', "$access: rows and keys agree");

	# a backend is killed in the middle of a load
	my ($before) = $node->safe_psql($db, 'SELECT count(*) FROM event');
	my $err = crash_backend($node, $db, q{BEGIN; INSERT INTO event SELECT 'c' || i, i % 20 FROM generate_series(1, 5000) i;});
	is($node->safe_psql($db, 'SELECT count(*) FROM event'), $before, "$access: nothing of it is left");
	$node->safe_psql($db, q{INSERT INTO event SELECT 'c' || i, i % 20 FROM generate_series(1, 5000) i});
	is($node->safe_psql($db, $compare), '0|0|0', "$access: and all of it gets in afterwards");

	# prepared transactions
	$node->safe_psql($db, q{BEGIN; INSERT INTO event VALUES ('p', 1), ('q', 11); PREPARE TRANSACTION 'p'});
	$node->restart;
	like(errcode($node, $db, q{SET lock_timeout = '100 ms'; INSERT INTO event VALUES ('p', 11)}),
		qr/55P03/, "$access: a prepared transaction's row is waited for");
	$node->safe_psql($db, q{COMMIT PREPARED 'p'});
	$node->safe_psql($db, q{INSERT INTO event VALUES ('p', 11), ('q', 1)});
	is($node->safe_psql($db, $compare), '0|0|0', "$access: rows and keys agree");

	# one key dropped again and again in one transaction stays linear in rows
	$node->safe_psql($db, q{DO $$ BEGIN
	INSERT INTO event_1 VALUES ('taken', 1);
	PERFORM idem_forget('5:taken', 'once.public.event', force => true);
	FOR i IN 1..2000 LOOP INSERT INTO event_1 VALUES ('taken', 1) ON CONFLICT DO NOTHING; END LOOP;
END $$});
	is($node->safe_psql($db, q{SELECT count(*) FROM idem.key WHERE key = '5:taken'}), '0',
		"$access: dropped rows spend no key");
}

$node->stop;
done_testing();
