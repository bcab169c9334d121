# The postmaster killed by SIGKILL under load, several times, with
# synchronous_commit off.  The audit after each restart: every key has its
# effect and every effect its key, once; no fence was given out twice.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use IdemTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $rounds = $ENV{IDEM_CRASH_ROUNDS} // 4;

# Work outside the database is done on a server that does not crash.
my $outside = idem_node('outside', conf => "max_connections = 200\n");
$outside->safe_psql('postgres',
	'CREATE TABLE effect (n bigserial, key text, fence bigint)');

my $node = idem_node(
	'load',
	conf => "synchronous_commit = off\nwal_writer_delay = 5s\n");

# Claim, work and result in one transaction.
my $transaction = <<'EOT';
\set k random(1, 200 * :round)
BEGIN;
SELECT run FROM idem_claim('t' || :k) \gset
\if :run
INSERT INTO effect VALUES ('t' || :k);
SELECT idem_complete('t' || :k, 'r' || :k);
\endif
COMMIT;
EOT

# The same through idem_once, with every second effect rolled back.
my $once = <<'EOT';
\set k random(1, 200 * :round)
\set keep random(0, 1)
BEGIN;
SELECT idem_once('o' || :k) AS run \gset
\if :run
INSERT INTO effect VALUES ('o' || :k);
\endif
\if :keep
COMMIT;
\else
ROLLBACK;
\endif
EOT

# Work outside between two transactions: the other side records the fence.
my $lease = <<'EOT';
\set k random(1, 60 * :round)
SELECT run, coalesce(fence, 0) AS fence FROM idem_claim('l' || :k, lease => '2 s') \gset
\if :run
SELECT dblink_exec('OUTSIDE', format('INSERT INTO effect (key, fence) VALUES (%L, %s)', 'l' || :k, :fence));
SELECT idem_complete('l' || :k, :fence::text, fence => :fence);
\endif
EOT
my $connstr = $outside->connstr('postgres') =~ s/'//gr;
$lease =~ s/OUTSIDE/$connstr/;

sub audit
{
	my ($db, $access, $name) = @_;

	check_effects($node, $db, q{key ~ '^[to]'}, $name);
	is( $node->safe_psql(
			$db,
			q{SELECT key, response FROM idem.key WHERE key LIKE 't%' AND response <> 'r' || substr(key, 2)}
		),
		'',
		"$name: each response is its own");

	my %effect;
	my %completed = map { split /\|/ } split /\n/,
	  $node->safe_psql($db,
		q{SELECT key, response FROM idem.key WHERE key LIKE 'l%' AND state = 'completed'}
	  );
	foreach my $row (
		split /\n/,
		$outside->safe_psql(
			'postgres', "SELECT key, fence FROM effect ORDER BY n"))
	{
		my ($key, $fence) = split /\|/, $row;
		push @{ $effect{$key} }, $fence;
	}
	my @all = map { @$_ } values %effect;
	my %distinct = map { $_ => 1 } @all;
	is(scalar(keys %distinct), scalar(@all),
		"$name: no fence was given out twice");
	is( join(' ',
			grep
			{
				my $key = $_;
				!grep { $_ == $completed{$key} } @{ $effect{$key} // [] }
			} sort keys %completed),
		'',
		"$name: each completed lease claim has its outside effect");
	is( join(' ',
			grep
			{
				my $last = 0;
				my $bad = 0;
				foreach my $fence (@{ $effect{$_} })
				{
					$bad = 1 if $fence <= $last;
					$last = $fence;
				}
				$bad;
			} sort keys %effect),
		'',
		"$name: fences of one key grow");
	check_storage($node, $db, $name);
	return;
}

each_access(
	$node,
	sub {
		my ($db, $access) = @_;

		$node->safe_psql($db,
			'CREATE EXTENSION dblink; CREATE TABLE effect (key text)');
		$outside->safe_psql('postgres', 'TRUNCATE effect');

		foreach my $round (1 .. $rounds)
		{
			my $load = bench_start(
				$node, $db,
				[ '-c', '8', '-T', '60', '-D', "round=$round" ],
				[ $transaction, 3 ], [ $once, 2 ], [ $lease, 3 ]);

			# The moment does not matter, only that work is in flight.
			select(undef, undef, undef, 0.4 + rand(0.8));
			$node->kill9;
			my ($rc, $out, $err) = bench_finish($load);
			unlike($err, qr/ERROR/, "round $round: no error before the crash");
			start_after_crash($node);
			audit($db, $access, "round $round");
			cmp_ok(
				$node->safe_psql($db, 'SELECT count(*) FROM effect'),
				'>', 0, "round $round: there was work");
		}

		# All that was left open can be finished.
		$node->poll_query_until($db,
			q{SELECT count(*) = 0 FROM idem.key
			  WHERE state = 'in_progress' AND lease_until >= clock_timestamp()}
		);
		is( $node->safe_psql(
				$db, <<'EOT'), '', 'what the crashes left open is taken over');
SELECT key, c.outcome
FROM idem.key AS k, idem_claim(k.key, lease => '1 min') AS c
WHERE k.state <> 'completed' AND c.outcome <> 'takeover';
EOT
	});

$node->stop;
$outside->stop;
done_testing();
