# Replays of one key by 64 sessions leave no trace: no WAL, no transaction id,
# no dead tuple, no lock left.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use IdemTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# Nothing but the sessions shall write.
my $node = idem_node('hot', conf => <<'EOT');
autovacuum = off
checkpoint_timeout = 1h
wal_level = minimal
max_wal_senders = 0
EOT

my $state = <<'EOT';
SELECT pg_current_wal_insert_lsn(), pg_snapshot_xmax(pg_current_snapshot()),
	(SELECT sum(dead_tuple_count) FROM pgstattuple('idem.key')),
	(SELECT count(*) FROM idem.key), (SELECT last_value FROM idem.fence),
	pg_relation_size('idem.key'), (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory')
EOT

each_access(
	$node,
	sub {
		my ($db) = @_;
		my $holder = session($node, $db);

		$node->safe_psql($db, <<'EOT');
CREATE EXTENSION pgstattuple;
BEGIN;
SELECT run FROM idem_claim('completed', '{"a":1}');
SELECT idem_complete('completed', repeat('r', 200), code => 200);
SELECT run FROM idem_claim('failed');
SELECT idem_fail('failed', 'no');
SELECT run FROM idem_claim('later');
SELECT idem_retry('later', after => '1 h');
COMMIT;
SELECT run FROM idem_claim('leased', lease => '1 h');
EOT
		ask($holder, q{SELECT run FROM idem_claim('session', hold => 'session')});
		$node->safe_psql($db, 'VACUUM FREEZE');
		# Catalog pages are pruned and hinted once.
		my @scripts = (
			q{SELECT 1/(outcome = 'completed' AND length(response) = 200)::int FROM idem_claim('completed', '{"a":1}');},
			q{SELECT 1/(outcome = 'completed')::int FROM idem_claim('completed', lease => '1 h', wait => '0 s');},
			q{SELECT 1/(outcome = 'mismatch')::int FROM idem_claim('completed', '{"a":2}');},
			q{SELECT 1/(outcome = 'failed')::int FROM idem_claim('failed');},
			q{SELECT 1/(outcome = 'in_progress')::int FROM idem_claim('leased', lease => '1 h');},
			q{SELECT 1/(outcome = 'in_progress')::int FROM idem_claim('session', hold => 'session');},
			q{SELECT 1/(outcome = 'in_progress')::int FROM idem_claim('later');},
			q{SELECT 1/(NOT idem_once('completed'))::int;},
			q{SELECT 1/(count(*) = 0)::int FROM idem_once_many(ARRAY['completed', 'failed']);},
			q{SELECT 1/(count(*) = 1)::int FROM idem_lookup('completed');},
			q{SELECT 1/(count(*) = 2)::int FROM idem.held;},
			qq{BEGIN ISOLATION LEVEL SERIALIZABLE;\nSELECT outcome FROM idem_claim('completed');\nCOMMIT;},
			qq{BEGIN ISOLATION LEVEL REPEATABLE READ;\nSELECT outcome FROM idem_claim('completed');\nCOMMIT;});
		bench_run($node, $db, 'warm', [ '-c', '2', '-t', '50' ], @scripts);

		# Each alone, so that a failure says which.
		my $before = $node->safe_psql($db, $state);
		foreach my $script (@scripts)
		{
			bench_run($node, $db, $script, [ '-c', '1', '-t', '3' ], $script);
			my $after = $node->safe_psql($db, $state);
			is($after, $before, "no trace of $script");
			$before = $after;
		}

		bench_run($node, $db, '64 sessions',
			[ '-c', '64', '-j', '2', '-t', '40', '-M', 'prepared' ], @scripts);
		is($node->safe_psql($db, $state), $before, 'no trace of 64 sessions');
		$holder->quit;
	});

$node->stop;
done_testing();
