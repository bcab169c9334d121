# Statistics in places of their own: a standby counts what it answers, parallel
# workers read what their leader would, and a sweep is seen while it runs.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use IdemTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = idem_node('primary', init => { allows_streaming => 1 }, conf => <<'EOT');
shared_preload_libraries = 'idem'
max_parallel_workers_per_gather = 2
autovacuum = off
EOT
$node->safe_psql('postgres', <<'EOT');
CREATE EXTENSION idem;
BEGIN;
SELECT idem_claim('done', '{"a":1}', scope => 's'), idem_complete('done', 'r', 's');
COMMIT;
SELECT idem_claim('held', lease => '1 h', scope => 's');
EOT

sub counted
{
	my ($n) = @_;

	return $n->safe_psql('postgres', q{SELECT name, claims, replays, in_progress, mismatches FROM idem_stats() WHERE kind = 'scope'});
}

# A standby.
$node->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'backup', has_streaming => 1);
$standby->start;
$node->wait_for_catchup($standby);
is(counted($standby), '', 'standby: begins without the counts of its primary');
my $before = counted($node);
is(errcode($standby, 'postgres', <<'EOT'), '25006', 'standby: what would write is refused');
SELECT outcome FROM idem_claim('done', scope => 's');
SELECT outcome FROM idem_claim('done', '{"a":1}', scope => 's');
SELECT outcome FROM idem_claim('done', '{"a":2}', scope => 's');
SELECT outcome FROM idem_claim('held', scope => 's');
SELECT outcome FROM idem_claim('new', scope => 's');
EOT
is(counted($standby), 's|0|2|1|1', 'standby: counts what it answers');
is(counted($node), $before, 'standby: its primary does not');
is($standby->safe_psql('postgres', 'SELECT count(*) FROM idem_sweep_progress(); SELECT count(*) FROM idem_refusals()'), "0\n0", 'standby: nothing is swept or refused');
is($standby->safe_psql('postgres', 'SELECT idem_stats_reset()'), 't', 'standby: reset');
is(counted($standby), '', 'standby: counts of its own are forgotten');
is(counted($node), $before, 'standby: those of its primary are not');
$standby->safe_psql('postgres', q{SELECT idem_claim('done', scope => 's')});
$standby->promote;
$standby->safe_psql('postgres', q{SELECT idem_once('after', scope => 's')});
is(counted($standby), 's|1|1|0|0', 'promoted: counts go on');
$standby->stop;

# Parallel workers.
my $forced = $node->safe_psql('postgres', q{SELECT name FROM pg_settings WHERE name IN ('force_parallel_mode', 'debug_parallel_query')});
my $query = q{SELECT name, claims, replays, in_progress, mismatches FROM idem_stats() WHERE kind = 'scope'};
like($node->safe_psql('postgres', "SET $forced = on; EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) $query"), qr/Workers Launched: 1/, 'a parallel worker reads statistics');
is($node->safe_psql('postgres', "SET $forced = on; $query"), $before, 'the same ones');
is($node->safe_psql('postgres', "SET $forced = on; SELECT count(*) FROM idem_refusals(); SELECT count(*) FROM idem_sweep_progress()"), "0\n0", 'so for refusals and progress');

# A sweep, slowed down as VACUUM would be: it lasts longer than what is asked of
# it meanwhile, on a busy machine too.
$node->safe_psql('postgres', 'CREATE DATABASE elsewhere');
$node->safe_psql('elsewhere', 'CREATE EXTENSION idem');
$node->safe_psql('postgres', <<'EOT');
SELECT count(*) FROM idem_once_many(ARRAY(SELECT i::text FROM generate_series(1, 20000) AS i));
UPDATE idem.key SET expires_at = now() - interval '1 day' WHERE scope = 'default';
EOT
my $sweeper = session($node, 'postgres');
my $pid = session_pid($sweeper);
ask($sweeper, q{SET vacuum_cost_delay = '100ms'; SET vacuum_cost_limit = 1; SET statement_timeout = 0});
ask_later($sweeper, 'SELECT count(*) FROM idem_sweep(1000000)');
ok($node->poll_query_until('postgres', "SELECT count(*) = 1 FROM idem_sweep_progress() WHERE pid = $pid AND kind = 'key' AND blocks_done > 1"),
	'a sweep is seen while it runs');
is($node->safe_psql('postgres', 'SELECT count(*), bool_and(blocks_done < blocks), bool_and(removed > 0), bool_and(started_at < clock_timestamp()) FROM idem_sweep_progress()'),
	'1|t|t|t', 'in the middle');
my ($done, $removed) = split /\|/, $node->safe_psql('postgres', 'SELECT blocks_done, removed FROM idem_sweep_progress()');
ok($node->poll_query_until('postgres', "SELECT count(*) = 1 FROM idem_sweep_progress() WHERE blocks_done > $done AND removed > $removed"), 'it comes on');
is($node->safe_psql('elsewhere', 'SELECT count(*) FROM idem_sweep_progress()'), '0', 'not from another database');
$node->safe_psql('postgres', "SELECT pg_cancel_backend($pid)");
is(answer($sweeper), 'ERROR 57014', 'it is cancelled');
is($node->safe_psql('postgres', 'SELECT count(*) FROM idem_sweep_progress()'), '0', 'and seen no more');
is($node->safe_psql('postgres', q{SELECT sum(removed) > 0 FROM idem_sweep(1000000); SELECT count(*) FROM idem_sweep_progress()}), "t\n0", 'a whole one ends too');
ask($sweeper, q{SET vacuum_cost_delay = '100ms'; SET vacuum_cost_limit = 1});
$node->safe_psql('postgres', <<'EOT');
SELECT count(*) FROM idem_once_many(ARRAY(SELECT i::text FROM generate_series(1, 20000) AS i));
UPDATE idem.key SET expires_at = now() - interval '1 day' WHERE scope = 'default';
EOT
ask_later($sweeper, 'SELECT count(*) FROM idem_sweep(1000000)');
ok($node->poll_query_until('postgres', 'SELECT count(*) = 1 FROM idem_sweep_progress() WHERE blocks_done > 1'), 'another one');
$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
ok($node->poll_query_until('postgres', 'SELECT count(*) = 0 FROM idem_sweep_progress()'), 'is not seen when its session was ended');

$node->stop;
done_testing();
