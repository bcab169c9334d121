# Leases under load and under crashes, with synchronous_commit off: at no time
# has a name two holders, and its fences grow, over backends that are killed,
# restarts, kill -9 of the server, and dump and restore.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use IdemTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# The witness does not crash, and numbers what it is told in that order.
my $witness = idem_node('witness', conf => "max_connections = 200\n");
$witness->safe_psql('postgres', <<'EOT');
CREATE TABLE told (n bigserial, name text, fence bigint);
EOT
my $connstr = $witness->connstr('postgres') =~ s/'//gr;

my $node = idem_node('leases',
	conf => "synchronous_commit = off\nwal_writer_delay = 10s\n");
my $db = idem_database($node, 'leases');
$node->safe_psql($db, <<'EOT');
CREATE EXTENSION dblink;
CREATE TABLE job (name text PRIMARY KEY, fence bigint, runs int);
INSERT INTO job SELECT 'job' || i, 0, 0 FROM generate_series(1, 5) AS i;
SELECT idem_attach_fence('job', 'fence');
EOT

# Acquires, tells the witness at once while it holds the lease, writes a fenced row
# under a guard; then mostly releases, and sometimes goes away without.
my $worker = <<"EOT";
\\set k random(1, 5)
\\set way random(1, 20)
SELECT run, coalesce(fence, 0) AS fence FROM idem_lease_acquire('job' || :k, '300 ms', wait => '50 ms') \\gset
\\if :run
SELECT dblink_connect('witness', '$connstr') WHERE dblink_get_connections() IS NULL;
SELECT dblink_exec('witness', format('INSERT INTO told (name, fence) SELECT %L, %s', 'job' || :k, :fence));
BEGIN;
SELECT idem_lease_renew('job' || :k, '300 ms', :fence);
UPDATE job SET fence = :fence, runs = runs + 1 WHERE name = 'job' || :k AND fence < :fence;
COMMIT;
\\if :way > 1
SELECT idem_lease_release('job' || :k, :fence);
\\endif
\\endif
EOT

# What the witness was told, per name in its order: the fences have to grow.  A
# worker that was slower than its lease may tell late; the guarded row is exact.
sub audit
{
	my ($name) = @_;

	is( $witness->safe_psql(
			'postgres', <<'EOT'), '', "$name: no fence twice");
SELECT name, fence FROM told GROUP BY name, fence HAVING count(*) > 1
EOT
	is( $witness->safe_psql(
			'postgres', <<'EOT'), '', "$name: fences of a name grow");
SELECT name, fence, before FROM (
	SELECT name, fence, lag(fence) OVER (PARTITION BY name ORDER BY n) AS before FROM told) AS t
WHERE fence <= before
EOT
	return $witness->safe_psql('postgres', 'SELECT count(*) FROM told');
}

sub load
{
	my ($seconds) = @_;

	return bench_start($node, $db, [ '-c', '8', '-T', $seconds ], $worker);
}

my $goal = $ENV{IDEM_LEASE_GOAL} // 10000;

# backends ended one at a time, and the whole server killed and restarted
foreach my $round (1 .. 4)
{
	my $run = load(60);

	foreach my $i (1 .. 5)
	{
		select(undef, undef, undef, 0.15);
		$node->safe_psql('postgres', <<'EOT');
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE application_name = 'pgbench' AND pid <> pg_backend_pid() LIMIT 1
EOT
	}
	$node->kill9;
	bench_finish($run);
	start_after_crash($node);
	audit("crash $round");
	is( $node->safe_psql(
			$db, 'SELECT count(*) FROM job WHERE fence > (SELECT last_value FROM idem.fence)'),
		'0', "crash $round: no fence is ahead of the sequence");
}

# an ordinary restart, under load again
$node->restart;
my $rounds = 0;
my $n = audit('restart');
while ($n < $goal && $rounds++ < 100)
{
	my ($rc, $out, $err) = bench_finish(load(5));
	is($rc, 0, 'load') or diag($err);
	$n = audit("load $rounds");
}
cmp_ok($n, '>=', $goal, "$goal acquisitions");

# dump and restore: leases stay held, and fences go on
my $held = $node->safe_psql($db,
	q{SELECT fence FROM idem_lease_acquire('kept', '1 h', owner => 'me')});
$node->run_log(
	[
		'pg_dump', '-Fc', '-f', "$PostgreSQL::Test::Utils::tmp_check/leases.dump",
		'-d', $node->connstr($db)
	]);
$node->safe_psql('postgres', 'CREATE DATABASE restored');
command_ok(
	[
		'pg_restore', '--exit-on-error', '-d', $node->connstr('restored'),
		"$PostgreSQL::Test::Utils::tmp_check/leases.dump"
	],
	'restore');
is( $node->safe_psql('restored',
		q{SELECT outcome FROM idem_lease_acquire('kept', '1 h')}),
	'held', 'restored: a lease is still held');
is( $node->safe_psql('restored',
		q{SELECT fence FROM idem_lease_acquire('kept', '1 h', owner => 'me')}),
	$held, 'restored: its owner has it');
is($node->safe_psql('restored', "SELECT idem_lease_guard('kept', $held)"),
	't', 'restored: guard');
cmp_ok(
	$node->safe_psql('restored',
		q{SELECT fence FROM idem_lease_acquire('new', '1 h')}),
	'>', $held, 'restored: fences go on');
is( errcode($node, 'restored', 'UPDATE job SET fence = fence - 1'),
	'ID412', 'restored: the fenced table is fenced');
is( $node->safe_psql('restored', <<'EOT'), 't', 'restored: the triggers are as they were');
SELECT idem_detach_fence('job', 'fence')
EOT

# the storage agrees
is( $node->safe_psql($db, <<'EOT'), '', 'heap and index of idem.lease agree');
SET client_min_messages = warning;
CREATE EXTENSION amcheck;
SELECT msg FROM verify_heapam('idem.lease');
DO $$ BEGIN PERFORM bt_index_check('idem.lease_pkey', true); END $$;
EOT

$node->stop;
$witness->stop;
done_testing();
