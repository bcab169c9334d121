# A backend killed by SIGKILL between any two verbs: no half state, and the
# next call is right.  (The server restarts all backends then.)

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use IdemTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = idem_node('crash', conf => "restart_after_crash = on\n");

# Runs statements 0 .. $point, then kills the backend.
sub crash_after
{
	my ($db, $point, @statements) = @_;
	my $sql = join("\n",
		map { /\\gset$/ ? $_ : "$_;" } @statements[ 0 .. $point ]);
	like(crash_backend($node, $db, $sql),
		qr/server closed the connection/, 'the backend was killed');
	return;
}

each_access(
	$node,
	sub {
		my ($db) = @_;

		$node->safe_psql($db, 'CREATE TABLE effect (key text, n int)');

		# Transaction claim: whatever the point, the key is free at once and
		# the effect is gone; after COMMIT both are there.
		my @life = (
			'BEGIN',
			q{SELECT * FROM idem_claim('KEY', '{"a": 1}')},
			q{INSERT INTO effect VALUES ('KEY')},
			q{SELECT idem_step('KEY', 'charged', '{"n": 1}')},
			q{SELECT idem_complete('KEY', 'done'::text, code => 201)},
			'COMMIT');

		foreach my $point (1 .. $#life)
		{
			my $key = "t$point";
			my $committed = $point == $#life;

			crash_after($db, $point, map { s/KEY/$key/gr } @life);
			is( $node->safe_psql(
					$db,
					"SELECT outcome, response FROM idem_lookup('$key')"),
				$committed ? 'completed|done' : '',
				"transaction claim, point $point: record");
			is( $node->safe_psql(
					$db, "SELECT count(*) FROM effect WHERE key = '$key'"),
				$committed ? '1' : '0',
				"transaction claim, point $point: effect");
			is( $node->safe_psql(
					$db, qq{
BEGIN;
SELECT run, outcome, attempt, response, code FROM idem_claim('$key', '{"a": 1}');
ROLLBACK;}),
				$committed
				? 'f|completed|1|done|201'
				: 't|claimed|1||',
				"transaction claim, point $point: next claim");
		}

		# Lease claim, each verb its own transaction: the record stands where
		# the last commit left it, and its fence goes on.
		my @lease = (
			q{SELECT fence FROM idem_claim('KEY', lease => '1 h') \gset},
			q{SELECT idem_step('KEY', 'charged', '{"n": 1}', fence => :fence)},
			q{SELECT idem_renew('KEY', '2 h', fence => :fence)},
			q{SELECT idem_complete('KEY', 'done'::text, fence => :fence)});

		foreach my $point (0 .. $#lease)
		{
			my $key = "l$point";

			crash_after($db, $point, map { s/KEY/$key/gr } @lease);
			is( $node->safe_psql(
					$db, qq{
SELECT run, outcome, attempt, response, retry_after >= 1 FROM idem_claim('$key');}),
				$point < 3
				? 'f|in_progress|1||t'
				: 'f|completed|1|done|',
				"lease claim, point $point: next claim");
			is( $node->safe_psql(
					$db,
					"SELECT step, progress FROM idem_lookup('$key')"),
				$point == 0 ? '|' : 'charged|{"n": 1}',
				"lease claim, point $point: step") if $point < 3;
			my $fence = $node->safe_psql($db,
				"SELECT fence FROM idem.key WHERE key = '$key'");
			is( $node->safe_psql(
					$db,
					"SELECT idem_complete('$key', 'done'::text, fence => $fence)"
				),
				't',
				"lease claim, point $point: its fence still completes");
			is( $node->safe_psql(
					$db, "SELECT outcome, response FROM idem_claim('$key')"),
				'completed|done',
				"lease claim, point $point: replay");
		}

		# A verb that did not commit did not happen.
		my %open = (
			complete => q{idem_complete('KEY', 'x'::text, fence => :fence)},
			fail     => q{idem_fail('KEY', 'x', fence => :fence)},
			retry    => q{idem_retry('KEY', 'x', fence => :fence)},
			release  => q{idem_release('KEY', fence => :fence)},
			step     => q{idem_step('KEY', 'two', fence => :fence)},
			renew    => q{idem_renew('KEY', '1 min', fence => :fence)},
			forget   => q{idem_forget('KEY', force => true)});
		foreach my $verb (sort keys %open)
		{
			my $row = 'SELECT state, hold, attempt, fence IS NOT NULL, '
			  . "lease_until > now() + interval '30 min', step, response "
			  . "FROM idem.key WHERE key = '$verb'";

			crash_after(
				$db, 3,
				map { s/KEY/$verb/gr } (
					q{SELECT fence FROM idem_claim('KEY', lease => '1 h') \gset},
					q{SELECT idem_step('KEY', 'one', fence => :fence)},
					'BEGIN',
					"SELECT $open{$verb}"));
			is($node->safe_psql($db, $row),
				'in_progress|lease|1|t|t|one|', "uncommitted $verb is undone");
		}

		# Takeover that did not commit: the former holder's fence still holds.
		my $fence = $node->safe_psql($db,
			q{SELECT fence FROM idem_claim('take', lease => '1 ms')});
		crash_after(
			$db, 1, 'BEGIN',
			q{SELECT outcome FROM idem_claim('take', lease => '1 h')});
		is( $node->safe_psql(
				$db,
				"SELECT idem_complete('take', 'mine'::text, fence => $fence)"),
			't',
			'uncommitted takeover is undone');

		# Session claim: the killed backend's claim is taken over at once.
		my @session = (
			q{SELECT * FROM idem_claim('KEY', hold => 'session')},
			q{SELECT idem_step('KEY', 'charged', '{"n": 1}')},
			'BEGIN',
			q{SELECT idem_complete('KEY', 'done'::text)},
			'COMMIT');
		foreach my $point (0 .. $#session)
		{
			my $key = "s$point";

			crash_after($db, $point, map { s/KEY/$key/gr } @session);
			is( $node->safe_psql(
					$db, qq{
SELECT run, outcome, attempt, step, progress, response FROM idem_claim('$key', hold => 'session');}),
				$point == 0   ? 't|takeover|2|||'
				: $point < 4 ? 't|takeover|2|charged|{"n": 1}|'
				: 'f|completed|1|||done',
				"session claim, point $point: next claim");
		}

		# The same where the backend ends without a crash.
		foreach my $how ('SELECT pg_terminate_backend(PID)', 'quit')
		{
			my $s = session($node, $db);
			my $pid = session_pid($s);

			is( ask($s,
					qq{SELECT run, outcome, fence IS NOT NULL FROM idem_claim('$how', hold => 'session')}
				),
				't|claimed|t',
				"session claim, $how");
			is( $node->safe_psql(
					$db, "SELECT outcome FROM idem_claim('$how')"),
				'in_progress',
				"$how: held while the backend lives");
			$node->safe_psql($db, $how =~ s/PID/$pid/r) unless $how eq 'quit';
			$s->quit;
			$node->poll_query_until($db,
				"SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $pid");
			is( $node->safe_psql(
					$db, "SELECT outcome FROM idem_claim('$how', lease => '1 h')"
				),
				'takeover',
				"$how: taken over at once");
		}

		# An error in the holder's session does not end its claim; a rollback of
		# the claim does, and leaves no lock.
		my $s = session($node, $db);
		ask($s, q{SELECT run FROM idem_claim('error', hold => 'session')});
		is(ask($s, 'SELECT 1/0'), 'ERROR 22012', 'an error in the session');
		is(ask($s, q{BEGIN; SELECT 1/0}), 'ERROR 22012', 'and in a block');
		ask($s, 'ROLLBACK');
		is( $node->safe_psql($db, q{SELECT outcome FROM idem_claim('error')}),
			'in_progress',
			'the session claim outlives them');
		is(ask($s, q{SELECT idem_complete('error', 'x'::text)}),
			't', 'and is completed');
		ask($s, q{BEGIN; SELECT run FROM idem_claim('undone', hold => 'session'); ROLLBACK});
		ask($s, q{BEGIN; SAVEPOINT s; SELECT run FROM idem_claim('undone', hold => 'session'); ROLLBACK TO s; COMMIT});
		is( ask($s, q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'}),
			'0',
			'no lock is left of ended and undone claims');
		is( $node->safe_psql($db, q{SELECT outcome FROM idem_claim('undone', lease => '1 h')}),
			'claimed',
			'an undone session claim is free');
		$s->quit;

		# Keys done once, batches, reopen and import.
		my @once = (
			'BEGIN',
			q{SELECT idem_once('o')},
			q{SELECT count(*) FROM idem_once_many(ARRAY['m1', 'm2', 'o'])},
			q{SELECT idem_import('i', 'r')},
			'COMMIT');
		foreach my $point (1 .. $#once)
		{
			crash_after($db, $point, @once);
			is( $node->safe_psql(
					$db,
					q{SELECT count(*) FROM idem.key WHERE key IN ('o', 'm1', 'm2', 'i')}
				),
				$point == $#once ? '4' : '0',
				"once and import, point $point");
		}

		# A fast shutdown ends holders and those that wait for them.
		my ($holder, $waiter) = map { session($node, $db) } 1, 2;
		my $waiter_pid = session_pid($waiter);
		ask($holder, q{BEGIN; SELECT run FROM idem_claim('shutdown')});
		ask_later($waiter, q{SELECT run FROM idem_claim('shutdown')});
		wait_blocked($node, $waiter_pid);
		$node->stop('fast');
		$holder->quit;
		eval { $waiter->quit };
		$node->start;
		is( $node->safe_psql(
				$db, q{BEGIN; SELECT outcome FROM idem_claim('shutdown'); ROLLBACK}),
			'claimed',
			'free after a fast shutdown');

		# Fences of all these claims differ and nothing is damaged.
		is( $node->safe_psql(
				$db,
				'SELECT count(fence) - count(DISTINCT fence) FROM idem.key'),
			'0',
			'no fence twice');
		check_storage($node, $db, 'after the crashes');
	});

$node->stop;
done_testing();
