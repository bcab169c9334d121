# Leases on a standby and through a transaction-mode pooler; waits for a committed lease,
# which end by release, by running out, on time, by timeout and by cancel.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use IdemTest;
use IPC::Run ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $node = idem_node(
	'primary',
	init => { allows_streaming => 1 },
	conf => "max_prepared_transactions = 5\n");
my $db = idem_database($node, 'leases');
my $fence = $node->safe_psql($db,
	q{SELECT fence FROM idem_lease_acquire('job', '1 h', owner => 'a')});

# A standby shows who holds what, and the rest is read-only.
$node->backup('b');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'b', has_streaming => 1);
$standby->start;
$node->wait_for_catchup($standby);
is( $standby->safe_psql($db,
		'SELECT name, owner, fence FROM idem.lease_held'),
	"job|a|$fence", 'standby: the view');
foreach my $call (
	q{idem_lease_acquire('job', '1 h')},
	q{idem_lease_acquire('job', '1 h', owner => 'a')},
	q{idem_lease_acquire('new', '1 h', wait => NULL)},
	"idem_lease_renew('job', '1 h', $fence)",
	"idem_lease_release('job', $fence)",
	"idem_lease_guard('job', $fence)",
	q{idem_lease_break('job')})
{
	is(errcode($standby, $db, "SELECT $call"), '25006', "standby: $call");
}
is( $node->safe_psql($db, <<'EOT'), 't', 'a verdict takes no transaction id');
BEGIN;
SELECT NULL FROM idem_lease_acquire('job', '1 h') WHERE run;
SELECT NULL FROM idem_lease_renew('job', '1 h', 0) WHERE outcome <> 'lost';
SELECT NULL WHERE idem_lease_release('job', 0) <> 'lost';
SELECT pg_current_xact_id_if_assigned() IS NULL;
COMMIT;
EOT
$standby->stop;

# Waits.
my ($a, $b) = map { session($node, $db) } 1 .. 2;
my $pid = session_pid($b);
my $free = 'SELECT run FROM idem_lease_acquire(\'job\', \'1 h\', wait => ';

sub wait_asleep
{
	$node->poll_query_until('postgres',
		"SELECT wait_event_type = 'Extension' FROM pg_stat_activity WHERE pid = $pid"
	) or die 'does not wait';
	return;
}

ask_later($b, "$free NULL)");
wait_asleep();
is( $node->safe_psql('postgres', <<"EOT"), '', 'asleep: no lock on a table, no transaction id');
SELECT locktype, relation::regclass FROM pg_locks
WHERE pid = $pid AND (locktype = 'transactionid' OR locktype = 'tuple')
EOT
is( $node->safe_psql($db, <<"EOT"), '0', 'asleep: no lock on idem.lease');
SELECT count(*) FROM pg_locks WHERE pid = $pid
AND relation IN ('idem.lease'::regclass, 'idem.lease_pkey'::regclass)
EOT
my $began = time;
is(ask($a, "SELECT idem_lease_release('job', $fence)"), 'released', 'release');
is(answer($b), 't', 'a wait ends by release');
cmp_ok(time - $began, '<', 5, 'soon');

$fence = ask($a, q{SELECT fence FROM idem.lease WHERE name = 'job'});
ask_later($b, "$free '1 min')");
wait_asleep();
is(ask($a, q{SELECT idem_lease_break('job')}), 't', 'break');
is(answer($b), 't', 'a wait ends by break');

ask($a, q{UPDATE idem.lease SET until = clock_timestamp() + interval '0.7 s'});
is(ask($b, "$free '1 min')"), 't', 'a wait ends when the lease runs out');
is(ask($b, "$free '0.3 s')"), 'f', 'or when its time is over');
is(ask($b, "SET statement_timeout = '300ms'; $free NULL)"), 'ERROR 57014', 'or by statement_timeout');
ask($b, 'RESET statement_timeout');
# It is looked at every half second, also after a long time: naps that went on doubling
# would last ten by then, and who comes five seconds after the release would be first.
ask_later($b, "$free NULL)");
wait_asleep();
$fence = ask($a, q{SELECT pg_sleep(11); SELECT fence FROM idem.lease WHERE name = 'job'});
$fence =~ s/\s//g;
is(ask($a, "SELECT idem_lease_release('job', $fence)"), 'released', 'released late');
is(ask($a, 'SELECT pg_sleep(5); ' . "$free '0 s')") =~ s/\s//gr, 'f', 'a long wait ends soon, too');
is(answer($b), 't', 'by having it');
ask_later($b, "$free NULL)");
wait_asleep();
ask($a, "SELECT pg_cancel_backend($pid)");
is(answer($b), 'ERROR 57014', 'or by a cancel');
is(ask($b, 'SELECT 1'), '1', 'the session goes on');
ask_later($b, "$free NULL)");
wait_asleep();
ask($a, "SELECT pg_terminate_backend($pid)");
ask($a, 'TRUNCATE idem.lease');
eval { $b->quit };

# a holder that dies before it commits
my $c = session($node, $db);
$pid = session_pid($c);
$b = session($node, $db);
ask($b, q{BEGIN; SELECT run FROM idem_lease_acquire('mine', '1 h')});
my $other = session_pid($b);
ask_later($c, q{SELECT run FROM idem_lease_acquire('mine', '1 h', wait => NULL)});
wait_blocked($node, $pid);
ask($a, "SELECT pg_terminate_backend($other)");
is(answer($c), 't', 'as if never acquired');
eval { $b->quit };

# prepared: held until it is resolved, and a guard likewise
my $p = ask($c, q{BEGIN; SELECT fence FROM idem_lease_acquire('p', '1 h')});
ask($c, q{PREPARE TRANSACTION 'p'});
is(ask($a, q{SELECT outcome FROM idem_lease_acquire('p', '1 h')}),
	'held', 'prepared: held');
ask($a, q{COMMIT PREPARED 'p'});
is(ask($c, "BEGIN; SELECT idem_lease_guard('p', $p)"), 't', 'guard');
ask($c, q{PREPARE TRANSACTION 'p'});
is(ask($a, "SELECT idem_lease_release('p', $p)"), 'released', 'release');
is(ask($a, q{SELECT outcome FROM idem_lease_acquire('p', '1 h')}),
	'held', 'prepared: guarded');
$node->restart;
$_ = session($node, $db) foreach $a, $c;
is(ask($a, q{SELECT outcome FROM idem_lease_acquire('p', '1 h')}),
	'held', 'prepared: guarded after a restart');
ask($a, q{ROLLBACK PREPARED 'p'});
is(ask($a, q{SELECT outcome FROM idem_lease_acquire('p', '1 h')}),
	'acquired', 'resolved: free');
$_->quit foreach $a, $c;

# Through a pooler.
SKIP:
{
	my $pooler = pooler_start($node);
	skip 'pgbouncer is not installed', 1 unless defined $pooler;

	my ($x, $y, $z) =
	  map { pooled_session($pooler, $db) } 1 .. 3;
	my $f = ask($x, q{SELECT fence FROM idem_lease_acquire('pooled', '1 h', owner => 'x')});
	ask($y, 'BEGIN');
	is(ask($x, "SELECT outcome FROM idem_lease_renew('pooled', '1 h', $f)"),
		'renewed', 'pooler: renew over the other connection');
	is(ask($y, "SELECT idem_lease_guard('pooled', $f)"), 't', 'pooler: guard');
	is(ask($z, q{SELECT outcome FROM idem_lease_acquire('pooled', '1 h')}),
		'held', 'pooler: held');
	is(ask($z, "SELECT idem_lease_release('pooled', $f)"),
		'released', 'pooler: release by another client');
	is(ask($z, q{SELECT outcome FROM idem_lease_acquire('pooled', '1 h')}),
		'held', 'pooler: still guarded');
	ask($y, 'COMMIT');
	is(ask($z, q{SELECT outcome FROM idem_lease_acquire('pooled', '1 h')}),
		'acquired', 'pooler: then free');
	$_->quit foreach $x, $y, $z;
	pooler_stop($pooler);
}

$node->stop;
done_testing();
