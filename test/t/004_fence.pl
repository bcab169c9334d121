# Fences under synchronous_commit = off: a fence that a client has seen is never
# handed out again, and the claim it belongs to is not forgotten.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use IdemTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = idem_node(
	'fence',
	conf => "synchronous_commit = off\nwal_writer_delay = 10s\n");

each_access(
	$node,
	sub {
		my ($db) = @_;
		my $highest = 0;

		# Each claim is the last thing written before the crash.
		foreach my $claim (
			q{idem_claim('KEY', lease => '1 h')},
			q{idem_claim('KEY', hold => 'session')},
			q{idem_claim('KEY', hold => 'lease')},
			q{idem_claim('taken', lease => '1 ms')},
			q{idem_claim('taken', lease => '1 ms')})
		{
			my $key = $claim =~ /taken/ ? 'taken' : "k$highest";
			my $fence = $node->safe_psql($db,
				'SELECT fence FROM ' . $claim =~ s/KEY/$key/r);

			cmp_ok($fence, '>', $highest, "$claim: fence is new");
			$node->kill9;
			start_after_crash($node);
			is( $node->safe_psql(
					$db, "SELECT fence FROM idem.key WHERE key = '$key'"),
				$fence,
				"$claim: the claim survives the crash");
			$highest = $fence;
		}
		cmp_ok(
			$node->safe_psql(
				$db, q{SELECT fence FROM idem_claim('last', lease => '1 h')}),
			'>', $highest, 'the next fence is higher');

		# So are what a lease is renewed until, that it is broken, and how far fences
		# were advanced.
		my $lease = q{SELECT fence FROM idem_lease_acquire('job', '1 h')};
		my $fence = $node->safe_psql($db, $lease);
		my $claim = $node->safe_psql($db, q{SELECT fence FROM idem_claim('renewed', lease => '1 h')});
		foreach my $case (
			[ "SELECT FROM idem_renew('renewed', '3 h', fence => $claim)",
				q{SELECT lease_until > now() + interval '2 h' FROM idem.key WHERE key = 'renewed'} ],
			[ "SELECT FROM idem_lease_renew('job', '3 h', $fence)",
				q{SELECT until > now() + interval '2 h' FROM idem.lease WHERE name = 'job'} ],
			[ q{SELECT idem_lease_break('job')},
				q{SELECT count(*) = 0 FROM idem.lease_held} ],
			[ q{SELECT FROM idem_lease_acquire('last', '1 h')},
				q{SELECT count(*) = 1 FROM idem.lease_held WHERE name = 'last'} ],
			[ 'SELECT idem_fence_advance(900000)', q{SELECT fence > 900000 FROM idem_lease_acquire('next', '1 h')} ])
		{
			my ($sql, $holds) = @$case;

			$node->safe_psql($db, $sql);
			$node->kill9;
			start_after_crash($node);
			is($node->safe_psql($db, $holds), 't', "after a crash holds: $sql");
		}

		# A claim and its transaction's other work are durable together.
		$node->safe_psql(
			$db, q{
CREATE TABLE work (n int);
BEGIN;
INSERT INTO work VALUES (1);
SELECT run FROM idem_claim('with work', lease => '1 h');
COMMIT;
});
		$node->kill9;
		start_after_crash($node);
		is( $node->safe_psql(
				$db,
				q{SELECT count(*) FROM work, idem.key WHERE key = 'with work'}),
			'1',
			'the claiming transaction is durable as a whole');
	});

$node->stop;
done_testing();
