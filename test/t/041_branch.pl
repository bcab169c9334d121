# Branches of sagas: a storm of calls in any order by 8 sessions, without a
# deadlock and with an audit of what ran; prepared transactions, crash, standby,
# dump and restore.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use IdemTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = idem_node(
	'primary',
	init => { allows_streaming => 1 },
	conf => "max_prepared_transactions = 30\ndeadlock_timeout = 100ms\nrestart_after_crash = on\n");
my $db = idem_database($node, 'branches');

# The work: one row for each call that ran, and money that a try takes away and a
# cancel gives back.  Some of the transactions roll back, some at an error.
$node->safe_psql($db, <<'EOT');
CREATE TABLE ran (saga int, branch int, op text, verdict text, n bigserial);
CREATE TABLE account (id int PRIMARY KEY, balance int);
INSERT INTO account SELECT n, 0 FROM generate_series(1, 3) AS n;
CREATE FUNCTION call(saga int, branch int, op text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	verdict text := idem_branch('s' || saga, 'b' || branch, op);
BEGIN
	IF verdict IN ('run', 'null_cancel') THEN
		INSERT INTO ran VALUES (saga, branch, op, verdict);
	END IF;
	IF verdict = 'run' AND op <> 'confirm' THEN
		UPDATE account SET balance = balance + CASE op WHEN 'try' THEN -1 ELSE 1 END WHERE id = branch;
	END IF;
	RETURN verdict;
END $$;
EOT
my $storm = <<'EOT';
\set s random(1, :sagas)
\set b random(1, 3)
\set o random(1, 3)
BEGIN ISOLATION LEVEL :level;
SELECT call(:s::int, :b::int, (ARRAY['try', 'confirm', 'cancel'])[:o::int]);
END;
\set o random(1, 3)
BEGIN;
SELECT call(:s::int, :b::int, (ARRAY['try', 'confirm', 'cancel'])[:o::int]);
ROLLBACK;
EOT
my $sweep = "SELECT count(*) FROM idem_sweep(50);\n";

sub audit
{
	my ($name) = @_;

	is( $node->safe_psql($db, <<'EOT'), '', "$name: what ran is what may run");
SELECT saga, branch, array_agg(op || ' ' || verdict ORDER BY n) FROM ran GROUP BY 1, 2
HAVING array_agg(op || ' ' || verdict ORDER BY n) NOT IN ('{try run}', '{try run,confirm run}', '{try run,cancel run}', '{cancel null_cancel}');
EOT
	is( $node->safe_psql($db, <<'EOT'), '', "$name: and what is recorded");
SELECT coalesce('s' || r.saga, b.saga), coalesce('b' || r.branch, b.branch) FROM
(SELECT saga, branch, bool_or(op = 'try') AS t, bool_or(op = 'confirm') AS f, bool_or(op = 'cancel') AS x FROM ran GROUP BY 1, 2) AS r
FULL JOIN (SELECT * FROM idem.branch WHERE saga LIKE 's%') AS b ON b.saga = 's' || r.saga AND b.branch = 'b' || r.branch
WHERE (t, f, x) IS DISTINCT FROM (tried_at IS NOT NULL, confirmed_at IS NOT NULL, cancelled_at IS NOT NULL)
EOT
	is( $node->safe_psql($db, <<'EOT'), '', "$name: the money is where it has to be");
SELECT a.id, a.balance FROM account AS a WHERE balance <> (
	SELECT count(*) FILTER (WHERE op = 'cancel' AND verdict = 'run') - count(*) FILTER (WHERE op = 'try') FROM ran WHERE branch = a.id);
EOT
	return;
}

# Few sagas, so that all calls meet; then many.
foreach my $sagas (2, 40, 2000)
{
	$node->safe_psql($db, 'TRUNCATE ran, idem.branch; UPDATE account SET balance = 0');
	bench_run($node, $db, "storm on $sagas sagas",
		[ '-M', 'simple', '-c', '8', '-t', '250', '-D', "sagas=$sagas", '-D', 'level=READ COMMITTED' ],
		[ $storm, 10 ], [ $sweep, 1 ]);
	audit("$sagas sagas");
	cmp_ok($node->safe_psql($db, q{SELECT count(DISTINCT op || verdict) FROM ran}), '>=', $sagas > 2 ? 4 : 1, "$sagas sagas: all kinds ran");
}
# Above READ COMMITTED, 40001 is the only error, and is retried.
foreach my $level ('REPEATABLE READ', 'SERIALIZABLE')
{
	$node->safe_psql($db, 'TRUNCATE ran, idem.branch; UPDATE account SET balance = 0');
	bench_run($node, $db, "storm at $level",
		[ '-M', 'simple', '-c', '8', '-t', '60', '--max-tries=10000', '-D', 'sagas=40', '-D', "level=$level" ],
		[ $storm, 10 ], [ $sweep, 1 ]);
	audit($level);
}

# With savepoints and prepared transactions, while sessions are ended and then the
# whole server is killed.  What is prepared then is committed or rolled back later.
{
	$node->safe_psql($db, 'TRUNCATE ran, idem.branch; UPDATE account SET balance = 0');
	my @options = ('-M', 'simple', '-c', '8', '-T', '60', '-D', 'sagas=300');
	my $hard = <<'EOT';
\set s random(1, :sagas)
\set b random(1, 3)
\set o random(1, 3)
\set q random(1, 3)
\set n random(1, 1000000000)
\set end random(1, 3)
BEGIN;
SAVEPOINT a;
SELECT call(:s::int, :b::int, (ARRAY['try', 'confirm', 'cancel'])[:o::int]);
ROLLBACK TO a;
SELECT call(:s::int, :b::int, (ARRAY['try', 'confirm', 'cancel'])[:q::int]);
SAVEPOINT b;
SELECT call(:s::int, :b::int, (ARRAY['try', 'confirm', 'cancel'])[:o::int]);
RELEASE b;
\if :end = 1
COMMIT;
\else
PREPARE TRANSACTION 'g:client_id.:n';
\if :end = 2
COMMIT PREPARED 'g:client_id.:n';
\else
ROLLBACK PREPARED 'g:client_id.:n';
\endif
\endif
EOT
	my $load = bench_start($node, $db, \@options, [ $hard, 10 ], [ $sweep, 1 ]);
	foreach my $i (1 .. 6)
	{
		select(undef, undef, undef, 0.3);
		$node->safe_psql('postgres', q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'pgbench' LIMIT 1});
	}
	$node->kill9;
	bench_finish($load);
	start_after_crash($node);
	foreach my $gid (split /\n/, $node->safe_psql($db, 'SELECT gid FROM pg_prepared_xacts'))
	{
		$node->safe_psql($db, ($gid =~ /[02468]$/ ? 'COMMIT' : 'ROLLBACK') . " PREPARED '$gid'");
	}
	cmp_ok($node->safe_psql($db, 'SELECT count(*) FROM ran'), '>', 0, 'calls ran');
	audit('savepoints, prepared transactions, kills');
}

# Prepared: under way until resolved.
foreach my $case ([ 'COMMIT', 'run' ], [ 'ROLLBACK', 'null_cancel' ])
{
	my ($end, $verdict) = @$case;

	$node->safe_psql($db, qq{BEGIN; SELECT idem_branch('$end', 'b', 'try'); PREPARE TRANSACTION 'p'});
	is( errcode($node, $db, qq{SET lock_timeout = '100 ms'; SELECT idem_branch('$end', 'b', 'cancel')}),
		'55P03', "$end: a cancel waits for a prepared try, within lock_timeout");
	$node->kill9;
	start_after_crash($node);
	my $s = session($node, $db);
	my $pid = session_pid($s);
	ask_later($s, qq{SELECT idem_branch('$end', 'b', 'cancel')});
	wait_blocked($node, $pid);
	$node->safe_psql($db, "$end PREPARED 'p'");
	is(answer($s), $verdict, "$end: $verdict afterwards");
	$s->quit;
}
audit('after a crash');

# A backend that dies after the call and before its commit.
crash_backend($node, $db, q{BEGIN; SELECT idem_branch('crash', 'b', 'try');});
is($node->safe_psql($db, q{SELECT idem_branch('crash', 'b', 'cancel')}), 'null_cancel', 'a try dies with its backend');

# Standby.
$node->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'base', has_streaming => 1);
$standby->start;
is(errcode($standby, $db, qq{SELECT idem_branch('s1', 'b1', '$_')}), '25006', "$_ on a standby")
  foreach ('try', 'confirm', 'cancel');
is( $standby->safe_psql($db, q{SELECT count(*) FROM idem.branch}),
	$node->safe_psql($db, q{SELECT count(*) FROM idem.branch}), 'its rows are there');
$standby->stop;

# Dump and restore.
my $dump = $node->basedir . '/branches.sql';
$node->command_ok([ 'pg_dump', '-f', $dump, '-d', $node->connstr($db) ], 'dump');
$node->safe_psql('postgres', 'CREATE DATABASE restored');
$node->command_ok([ 'psql', '-qX', '-v', 'ON_ERROR_STOP=1', '-f', $dump, '-d', $node->connstr('restored') ], 'restore');
is($node->safe_psql('restored', q{SELECT idem_branch('crash', 'b', 'try'), idem_branch('COMMIT', 'b', 'cancel')}),
	'suspended|duplicate', 'branches are known after a restore');

is( $node->safe_psql($db, q{
CREATE EXTENSION amcheck;
SELECT msg FROM verify_heapam('idem.branch');
SELECT count(bt_index_check(indexrelid, true)::text) FROM pg_index WHERE indrelid = 'idem.branch'::regclass}),
	'1', 'heap and index agree');
unlike(slurp_file($node->logfile), qr/deadlock detected/, 'no deadlock');

$node->stop;
done_testing();
