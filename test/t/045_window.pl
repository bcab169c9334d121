# Sliding windows: exact under many sessions, emptied by a crash, none on a
# standby.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use IdemTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = idem_node('window', init => { allows_streaming => 1 },
	conf => "restart_after_crash = on\n");
my $db = idem_database($node, 'window');

# 64 sessions go through the same windows, each of five places; in half of the
# windows every second hit is rolled back.
my ($sessions, $rounds) = (64, 150);
$node->safe_psql($db, <<'EOT');
CREATE TABLE won (window_key text, at timestamptz);
CREATE PROCEDURE storm(n int, mode text) LANGUAGE plpgsql AS $$
BEGIN
	FOR r IN 1 .. n LOOP
		INSERT INTO won SELECT mode || r, clock_timestamp()
		FROM idem_window(mode || r, '1 h', max => 5) WHERE allowed;
		IF mode = 'undo' AND random() < 0.5 THEN
			ROLLBACK;
		ELSE
			COMMIT;
		END IF;
	END LOOP;
END $$;
EOT
foreach my $mode ('keep', 'undo')
{
	bench_run($node, $db, $mode, [ '-c', $sessions, '-j', '2', '-t', '1' ],
		"CALL storm($rounds, '$mode');");
	is( $node->safe_psql($db, <<EOT), "5|5|$rounds", "$mode: every window let exactly five through");
SELECT min(n), max(n), count(*) FROM
	(SELECT count(*) AS n FROM won WHERE window_key LIKE '$mode%' GROUP BY window_key) AS w
EOT
	is( $node->safe_psql($db, "SELECT count(*) FROM idem.window_hit WHERE key LIKE '$mode%' AND cardinality(hits) <> 5"),
		0, "$mode: and holds just them");
}

# A short window under load: among the hits recorded, no more than the limit in
# any span.  Every hit of it is kept beside, as the row shows it to its own
# transaction.
$node->safe_psql($db, 'CREATE TABLE hit (at timestamptz)');
bench_run($node, $db, 'sliding', [ '-c', '16', '-j', '2', '-T', '3' ], <<'EOT');
BEGIN;
SELECT allowed FROM idem_window('slide', '100 ms', max => 7) \gset
\if :allowed
INSERT INTO hit SELECT hits[cardinality(hits)] FROM idem.window_hit WHERE key = 'slide';
\endif
COMMIT;
EOT
is( $node->safe_psql($db, <<'EOT'), '0|t', 'never an eighth hit within the span of the first');
SELECT count(*) FILTER (WHERE at < first + interval '100 ms'), count(*) > 7 * 15
FROM (SELECT at, lag(at, 7) OVER (ORDER BY at) AS first FROM hit) AS h
EOT
is($node->safe_psql($db, q{SELECT cardinality(hits) <= 7 FROM idem.window_hit WHERE key = 'slide'}),
	't', 'and its row holds no more than the limit');

# Hits, rollbacks, sweeps beside each other: the storage stays sound.
bench_run($node, $db, 'with sweeps', [ '-c', '16', '-j', '2', '-T', '3' ], <<'EOT', "SELECT count(*) FROM idem_sweep(50);\n");
\set k random(1, 5)
\set undo random(0, 1)
BEGIN;
SELECT allowed FROM idem_window('s' || :k, '5 ms', max => 3, wait => '2 ms');
\if :undo
ROLLBACK;
\else
COMMIT;
\endif
EOT
is($node->safe_psql($db, <<'EOT'), '', 'heap and index of idem.window_hit agree');
SET client_min_messages = warning;
CREATE EXTENSION amcheck;
SELECT msg FROM verify_heapam('idem.window_hit');
SELECT FROM bt_index_check('idem.window_hit_pkey', true) WHERE false;
EOT

# A standby has nothing in unlogged tables, and says read-only first.
$node->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'base', has_streaming => 1);
$standby->start;
$node->wait_for_catchup($standby);
is(errcode($standby, $db, q{SELECT idem_window('keep1', '1 h')}),
	'25006', 'on a standby');
$standby->promote;
is($standby->safe_psql($db, q{SELECT allowed, count FROM idem_window('keep1', '1 h', max => 5)}),
	't|1', 'and empty once that is promoted');
$standby->stop;

# A dump takes windows along, or leaves them.
$node->safe_psql('postgres', 'CREATE DATABASE copied');
my $dump = $node->basedir . '/dump';
$node->command_ok([ 'pg_dump', '-f', $dump, '-T', 'won', '-T', 'hit', $node->connstr($db) ], 'dumped');
$node->command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-o', "$dump.out", '-f', $dump, $node->connstr('copied') ], 'restored');
is($node->safe_psql('copied', q{SELECT allowed, count FROM idem_window('keep1', '1 h', max => 5)}),
	'f|5', 'full in the copy too');

# A crash empties every window.
is($node->safe_psql($db, q{SELECT allowed FROM idem_window('keep1', '1 h', max => 5)}), 'f', 'full before a crash');
crash_backend($node, $db, q{SELECT idem_window('keep1', '1 h', max => 9);});
is($node->safe_psql($db, q{SELECT allowed, count FROM idem_window('keep1', '1 h', max => 5)}), 't|1', 'empty after it');
is($node->safe_psql($db, 'SELECT count(*) FROM idem.window_hit'), '1', 'as is the table');

$node->stop;
done_testing();
