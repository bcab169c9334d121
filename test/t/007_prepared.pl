# Two-phase commit: an unfinished transaction claim is refused at PREPARE, a
# finished one blocks others until the prepared transaction is resolved, from
# whatever session and after whatever crash.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use IdemTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = idem_node('prepared', conf => "max_prepared_transactions = 20\n");

each_access(
	$node,
	sub {
		my ($db, $access) = @_;
		my ($a, $b, $c) = map { session($node, $db) } 1 .. 3;
		my $b_pid = session_pid($b);

		# Unfinished: refused, rolled back, the key is free.
		ask($a, q{BEGIN; SELECT run FROM idem_claim('u')});
		is(ask($a, "PREPARE TRANSACTION 'u $access'"),
			'ERROR ID500', 'PREPARE with an unfinished claim');
		is(ask($a, 'SELECT 1'), '1', 'the session goes on');
		is(ask($b, q{BEGIN; SELECT outcome, attempt FROM idem_claim('u'); ROLLBACK}),
			'claimed|1', 'the key is free');
		is($node->safe_psql($db, 'SELECT count(*) FROM pg_prepared_xacts'),
			'0', 'nothing was prepared');

		# Unfinished in a savepoint that was rolled back: not refused.
		is( ask($a, qq{BEGIN; SAVEPOINT s; SELECT run FROM idem_claim('u');
ROLLBACK TO s; PREPARE TRANSACTION 'undone $access'; COMMIT PREPARED 'undone $access'}),
			't',
			'PREPARE after the claim was undone');

		# Finished, each way.
		foreach my $case (
			[ 'complete', q{idem_complete('KEY', 'done'::text)}, 'completed|done' ],
			[ 'fail', q{idem_fail('KEY', 'error')}, 'failed|error' ],
			[ 'release', q{idem_release('KEY')}, 'claimed|' ],
			[ 'retry', q{idem_retry('KEY', after => '1 h')}, 'in_progress|' ])
		{
			my ($verb, $call, $after) = @$case;

			foreach my $end ('COMMIT', 'ROLLBACK')
			{
				my $key = "$verb $end";

				is( ask($a, qq{BEGIN; SELECT run FROM idem_claim('$key');
SELECT $call; PREPARE TRANSACTION '$key $access'} =~ s/KEY/$key/gr) =~ s/\n/ /gr,
					't t',
					"$verb: PREPARE");
				is( ask($c, qq{SELECT run, outcome, retry_after >= 1 FROM idem_claim('$key', wait => '0 s')}),
					'f|in_progress|t',
					"$verb: in_progress at once");
				is( ask($c, qq{SELECT run, outcome FROM idem_claim('$key', wait => '50 ms')}),
					'f|in_progress',
					"$verb: in_progress after a bounded wait");
				ask_later($b, qq{BEGIN; SELECT outcome, response FROM idem_claim('$key'); ROLLBACK});
				wait_blocked($node, $b_pid);
				is(ask($c, "$end PREPARED '$key $access'"), '', "$verb: $end PREPARED elsewhere");
				is(answer($b), $end eq 'COMMIT' ? $after : 'claimed|',
					"$verb: the waiter's answer after $end");
			}
		}
		is( ask($a, q{SELECT outcome, response FROM idem_claim('complete COMMIT')}),
			'completed|done',
			'the preparing session sees it too');

		# Once, lease and session claims.
		ask($a, qq{BEGIN; SELECT idem_once('once'); PREPARE TRANSACTION 'once $access'});
		ask_later($b, q{SELECT idem_once('once')});
		wait_blocked($node, $b_pid);
		ask($c, "ROLLBACK PREPARED 'once $access'");
		is(answer($b), 't', 'once: the waiter is the one after ROLLBACK PREPARED');

		my $fence = ask($a, q{BEGIN; SELECT fence FROM idem_claim('lease', lease => '1 h')});
		is(ask($a, "PREPARE TRANSACTION 'lease $access'"),
			'', 'an unfinished lease claim may be prepared');
		is(ask($c, q{SELECT outcome FROM idem_claim('lease', wait => '0 s')}),
			'in_progress', 'lease: in flight');
		ask($c, "COMMIT PREPARED 'lease $access'");
		is(ask($b, "SELECT idem_complete('lease', 'x'::text, fence => $fence)"),
			't', 'lease: the fence holds after COMMIT PREPARED');

		# A server crash in between.
		ask($a, qq{BEGIN; SELECT run FROM idem_claim('crash');
SELECT idem_complete('crash', 'kept'::text); PREPARE TRANSACTION 'crash $access'});
		$_->quit foreach $a, $b, $c;
		$node->kill9;
		start_after_crash($node);
		is( $node->safe_psql($db, q{SELECT outcome FROM idem_claim('crash', wait => '0 s')}),
			'in_progress',
			'after a crash the prepared claim still blocks');
		is( $node->safe_psql($db, qq{COMMIT PREPARED 'crash $access'; SELECT outcome, response FROM idem_claim('crash')}),
			'completed|kept',
			'and commits');
	});

$node->stop;
done_testing();
