# A server whose clock is set on and back: what the statistics of sweeps, the
# windows and the tokens make of it.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use IdemTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $source = "$FindBin::RealBin/../../tools/deep/clock.c";
my $dir = PostgreSQL::Test::Utils::tempdir();
my $cc = $ENV{CC} // 'cc';

plan skip_all => 'nothing that compiles tools/deep/clock.c'
  if !-e $source || system("$cc -shared -fPIC -O2 -o $dir/clock.so $source >/dev/null 2>&1") != 0;

# By how many seconds the server's clock is ahead; it has the file mapped.
sub set_clock
{
	my ($seconds) = @_;

	open my $file, -e "$dir/clock" ? '+<' : '>', "$dir/clock" or die $!;
	printf $file "%-31d\n", $seconds;
	close $file or die $!;
	return;
}

set_clock(0);
my $node;
{
	local $ENV{IDEM_CLOCK} = "$dir/clock";
	local $ENV{LD_PRELOAD} = "$dir/clock.so";

	$node = idem_node('clock', conf => "shared_preload_libraries = 'idem'\n");
}
my $db = idem_database($node, 'clock');

sub query
{
	return $node->safe_psql($db, join(';', @_));
}

my $lag = q{SELECT lag BETWEEN 0 AND 60 FROM idem_stats() WHERE kind = 'sweep' AND name = 'token'};
my $expired = q{INSERT INTO idem.token (hash, created_at, expires_at, purpose)
	SELECT sha256(random()::text::bytea), now(), now() - interval '30 h', 'p' FROM generate_series(1, 1600)};

query('ALTER TABLE idem.token SET (fillfactor = 10, autovacuum_enabled = off)');
my $now = query('SELECT extract(epoch FROM now())');
set_clock(86400);
cmp_ok(query('SELECT extract(epoch FROM now())'), '>', $now + 86000, 'the clock can be set');

# A round that came to its end in the future says nothing of the present, and one that
# began there does not count.
query('SELECT idem_sweep()');
is(query($lag), 't', 'a sweep has come round');
set_clock(0);
is(query($lag), '', 'the clock is set back: nobody knows');
query($expired);
query('SELECT idem_sweep(900)') foreach 1 .. 3;
is(query($lag), 't', 'another has come round, in several calls');
query($expired);
set_clock(86400);
query('SELECT idem_sweep(800)');
set_clock(0);
query('SELECT idem_sweep(900)');
is(query($lag), 't', 'a round that began in the future does not count');
is(query('SELECT count(*) FROM idem.token'), '0', 'what is over is swept by the new clock');

# Hits of a clock that was ahead twice: no day has more than two.
my $hit = q{SELECT allowed, count FROM idem_window('w', '1 day', max => 2)};
set_clock(3600);
is(query($hit), 't|1', 'a hit, an hour ahead');
set_clock(80000);
is(query($hit), 't|2', 'another, most of a day ahead');
set_clock(0);
is(query($hit), 'f|2', 'the clock is right: both count');
set_clock(20000);
is(query($hit), 'f|2', 'five hours later too');
set_clock(86410);
is(query($hit), 't|1', 'and no longer than a day');

# Replaced while a use sleeps, and the clock is set back meanwhile.
{
	my $first = session($node, $db);
	my $second = session($node, $db);
	my $pid = session_pid($second);

	set_clock(86410);
	my $token = query(q{SELECT idem_token_issue('p', 's')});
	ask($first, "BEGIN; SELECT idem_token_use('$token', 'p', 's')");
	ask_later($second, "SELECT idem_token_use('$token', 'p', 's')");
	wait_blocked($node, $pid);
	set_clock(80000);
	query(q{SELECT idem_token_issue('p', 's', replace => true)});
	ask($first, 'ROLLBACK');
	is(answer($second), 'expired', 'a token that was replaced during the sleep, by a clock that was set back');
	$_->quit foreach $first, $second;
}

# Asleep behind what is rolled back, and the clock is set back meanwhile: what is granted
# for an hour ends an hour from then.
sub slept_is
{
	my ($access, $kind, $before, $act, $check, $held) = @_;
	my $first = session($node, $db);
	my $second = session($node, $db);
	my $pid = session_pid($second);

	set_clock(90000);
	my $fence = query("SET idem.access = '$access'", 'DELETE FROM idem.key', $before);
	$fence = $1 if $fence =~ /(\d+)\s*$/;
	($act, $held) = map { s/FENCE/$fence/gr } $act, $held // $act;
	ask($_, "SET idem.access = '$access'") foreach $first, $second;
	ask($first, "BEGIN; $held");
	ask_later($second, $act);
	wait_blocked($node, $pid);
	set_clock(80000);
	ask($first, 'ROLLBACK');
	unlike(answer($second), qr/ERROR/, "$kind ($access)");
	is(query("SELECT $check"), 't', "$kind ($access): by the clock that was set back");
	$_->quit foreach $first, $second;
	return;
}

foreach my $access (accesses())
{
	my $claim = q{SELECT fence FROM idem_claim('k', lease => '9 h', ttl => '1 h')};
	my $step = q{SELECT idem_step('k', 's', fence => FENCE)};
	my $over = q{SELECT fence FROM idem_claim('k', lease => '1 ms'); SELECT pg_sleep(0.01)};
	my $hour = q{BETWEEN clock_timestamp() + interval '59 min' AND clock_timestamp() + interval '1 h' FROM idem.key};

	slept_is($access, 'idem_renew', $claim, q{SELECT idem_renew('k', '1 h', fence => FENCE)}, "lease_until $hour", $step);
	slept_is($access, 'idem_retry', $claim, q{SELECT idem_retry('k', after => '1 h', fence => FENCE)}, "lease_until $hour", $step);
	slept_is($access, 'idem_complete', $claim, q{SELECT idem_complete('k', fence => FENCE)}, "expires_at $hour", $step);
	slept_is($access, 'idem_claim', $over, q{SELECT run FROM idem_claim('k', lease => '1 h')}, "lease_until $hour");
	slept_is($access, 'idem_once', q{SELECT idem_once('k', ttl => '1 ms'); SELECT pg_sleep(0.01)},
		q{SELECT idem_once('k', ttl => '1 h')}, "expires_at $hour");
	slept_is($access, 'idem_reopen', "BEGIN; $claim; SELECT idem_fail('k', 'e'); COMMIT",
		q{SELECT idem_reopen('k')}, "expires_at $hour");
}
{
	my $lease = q{DELETE FROM idem.lease; SELECT fence FROM idem_lease_acquire('l', '1 min', owner => 'o')};
	my $hour = q{BETWEEN clock_timestamp() + interval '59 min' AND clock_timestamp() + interval '1 h' FROM idem.lease};
	my $renew = q{SELECT idem_lease_renew('l', '1 h', FENCE)};

	slept_is('auto', 'idem_lease_renew', $lease, $renew, "until $hour");
	slept_is('auto', 'idem_lease_acquire, his own', $lease, q{SELECT run FROM idem_lease_acquire('l', '1 h', NULL, 'o')},
		q{until <= clock_timestamp() + interval '10000 s 2 min' FROM idem.lease}, $renew);
	slept_is('auto', 'idem_lease_release', $lease, q{SELECT idem_lease_release('l', FENCE)},
		'until <= clock_timestamp() FROM idem.lease', $renew);
	slept_is('auto', 'idem_branch', q{SELECT idem_branch('s', 'b', 'try')}, q{SELECT idem_branch('s', 'b', 'confirm')},
		'confirmed_at <= clock_timestamp() FROM idem.branch');
	slept_is('auto', 'idem_window', q{SELECT idem_window('slept', '1 day', max => 5)}, q{SELECT idem_window('slept', '1 day', max => 5)},
		q{hits = ARRAY(SELECT unnest(hits) ORDER BY 1) FROM idem.window_hit WHERE key = 'slept'});
}

# A sweep's budget ends by a clock that is set back.
{
	my $sweeper = session($node, $db);

	query(q{CREATE FUNCTION count_on() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN FOR i IN 1 .. 200000 LOOP END LOOP; RETURN OLD; END $$},
		'CREATE TRIGGER count_on BEFORE DELETE ON idem.token FOR EACH ROW EXECUTE FUNCTION count_on()',
		$expired, q{SET client_min_messages = error; SELECT idem_sweep(1)});
	ask_later($sweeper, q{SELECT sum(removed) < 1000 FROM idem_sweep(NULL, '600 ms')});
	$node->poll_query_until($db, q{SELECT count(*) > 0 FROM idem_sweep_progress()});
	set_clock(70000);
	is(answer($sweeper), 't', 'a sweep ends when the clock is set back');
	$sweeper->quit;
	query('DROP TRIGGER count_on ON idem.token', 'DELETE FROM idem.token');
}

# Set back while another kind is swept: keys that go by SQL are not looked at by the old
# clock, either.
query('CREATE TABLE more_keys () INHERITS (idem.key)', 'DELETE FROM idem.key',
	qq{CREATE FUNCTION set_back() RETURNS trigger LANGUAGE plpgsql AS \$\$ BEGIN
		COPY (SELECT rpad('70000', 31)) TO PROGRAM 'dd conv=notrunc of=$dir/clock 2>/dev/null'; RETURN OLD; END \$\$},
	'CREATE TRIGGER set_back BEFORE DELETE ON idem.token FOR EACH ROW EXECUTE FUNCTION set_back()');
my $kinds = query(q{SELECT array_position(array_agg(kind), 'token') - 1 FROM idem_sweep()});
query(q{SELECT idem_once('alive', ttl => '1 h')}, $expired, "UPDATE idem.sweep_state SET position = $kinds WHERE kind = 'first'");
set_clock(80000);
cmp_ok(query(q{SELECT removed FROM idem_sweep() WHERE kind = 'token'}), '>', 0, 'tokens are swept first');
is(query(q{SELECT idem_once('alive')}), 'f', 'what lives by the clock that was set back is not swept');
query('DROP TRIGGER set_back ON idem.token', 'DELETE FROM idem.token', 'DROP TABLE more_keys');

# Ten warnings an hour are logged; an hour of the future is none.
query(q{CREATE FUNCTION poison() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'poisoned'; END $$},
	'CREATE TRIGGER poison BEFORE DELETE ON idem.token FOR EACH ROW EXECUTE FUNCTION poison()',
	q{INSERT INTO idem.token (hash, created_at, expires_at, purpose) VALUES (sha256('poison'), now(), now() - interval '30 h', 'p')});
set_clock(5 * 86400);
my $offset = -s $node->logfile;
$node->append_conf('postgresql.conf', "idem.databases = 'clock'\nidem.naptime = 1\n");
$node->reload;
$node->wait_for_log(qr/WARNING:  1 expired row of table "idem.token"/, $offset);
$offset = -s $node->logfile;
set_clock(4 * 86400);
$node->wait_for_log(qr/(?s:WARNING:  1 expired row.*){10}/, $offset);
pass('warnings after the clock was set back');

$node->stop;
done_testing();
