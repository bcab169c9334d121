# Statistics of a preloaded server: every verdict is counted, once, also in
# transactions that rolled back; the number of rows and of refusals is bounded;
# a crash starts them afresh; nothing of another database or of a key is shown.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use IdemTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = idem_node('stats', conf => <<'EOT');
shared_preload_libraries = 'idem'
max_prepared_transactions = 5
restart_after_crash = on
idem.stats_max = 60
idem.refusals_max = 20
EOT

# The counters of a row that are not zero, as "name=value ...".
sub counters
{
	my ($db, $kind, $name) = @_;

	return $node->safe_psql($db, <<EOT);
SELECT string_agg(key || '=' || value, ' ' ORDER BY n)
FROM (SELECT to_jsonb(s) - '{kind,name,since,lag,wait_time}'::text[] AS doc
	FROM idem_stats() AS s WHERE kind = '$kind' AND name IS NOT DISTINCT FROM nullif('$name', '')) AS s,
	unnest('{claims,replays,failures,in_progress,mismatches,takeovers,moves,illegal,forbidden,guarded,stale,frozen,refused,observed,runs,removed}'::text[])
	WITH ORDINALITY AS c (key, n), LATERAL (SELECT doc ->> key AS value) AS v
WHERE value <> '0';
EOT
}

sub reset_stats
{
	my ($db) = @_;

	is($node->safe_psql($db, 'SELECT idem_stats_reset()'), 't', 'reset');
	return;
}

# When a sweep had last come round: later than that, nothing has expired.
sub caught_up
{
	my ($db, $kind) = @_;

	return $node->safe_psql($db, "SELECT clock_timestamp() - lag * interval '1 s' FROM idem_stats() WHERE kind = 'sweep' AND name = '$kind'");
}

# Whether it has come round since.
sub come_round_since
{
	my ($db, $kind, $before) = @_;

	return "SELECT clock_timestamp() - lag * interval '1 s' - '$before' > interval '20 ms' FROM idem_stats() WHERE kind = 'sweep' AND name = '$kind'";
}

# Nobody is given the first.
$node->safe_psql('postgres', 'CREATE ROLE regress_idem_shipper; CREATE ROLE regress_idem_seller');

each_access(
	$node,
	sub {
		my ($db) = @_;

		reset_stats($db);

		# The registry's verdicts.
		$node->safe_psql($db, <<'EOT');
BEGIN; SELECT idem_claim('lost', scope => 's'); ROLLBACK;
BEGIN; SELECT idem_claim('a', '{"a":1}', scope => 's'); SELECT idem_complete('a', 'r', 's'); COMMIT;
SELECT idem_claim('a', '{"a":2}', scope => 's');
SELECT idem_claim('a', scope => 's') FROM generate_series(1, 5);
BEGIN; SELECT idem_claim('f', scope => 's/tenant'); SELECT idem_fail('f', 'e', 's/tenant'); COMMIT;
SELECT idem_claim('f', scope => 's/tenant');
SELECT idem_claim('l', scope => 's', lease => '1 ms');
SELECT pg_sleep(0.01);
SELECT idem_claim('l', scope => 's', lease => '1 h');
SELECT idem_claim('l', scope => 's', lease => '1 h');
SELECT idem_once('o', scope => 's/other');
SELECT idem_once('o', scope => 's/other');
SELECT count(*) FROM idem_once_many(ARRAY['o', 'p', 'q'], scope => 's/other');
EOT
		is(counters($db, 'scope', 's'),
			'claims=7 replays=7 failures=1 in_progress=1 mismatches=1 takeovers=1',
			'verdicts of claims');

		# What failed at COMMIT, in a subtransaction, in an exception block.
		reset_stats($db);
		is(errcode($node, $db, q{SELECT idem_claim('x', scope => 's')}), 'ID500', 'unfinished');
		$node->safe_psql($db, <<'EOT');
BEGIN; SAVEPOINT a; SELECT idem_claim('y', scope => 's'); ROLLBACK TO a; COMMIT;
DO $$ BEGIN PERFORM idem_claim('z', scope => 's'); RAISE 'no'; EXCEPTION WHEN raise_exception THEN END $$;
BEGIN; SELECT idem_once('p2', scope => 's'); PREPARE TRANSACTION 'p'; ROLLBACK PREPARED 'p';
EOT
		is(counters($db, 'scope', 's'), 'claims=4', 'rolled back, in every way');

		# A sleeper is counted with its time.
		my ($a, $b) = map { session($node, $db) } 1 .. 2;
		my $pid = session_pid($b);
		ask($a, q{BEGIN; SELECT idem_once('wait', scope => 'w')});
		ask_later($b, q{SELECT idem_once('wait', scope => 'w')});
		wait_blocked($node, $pid);
		$node->safe_psql($db, 'SELECT pg_sleep(0.05)');
		ask($a, 'COMMIT');
		is(answer($b), 'f', 'the sleeper gets the answer');
		is(counters($db, 'scope', 'w'), 'claims=1 replays=1', 'both counted');
		is($node->safe_psql($db, q{SELECT waits, wait_time BETWEEN 0.04 AND 60 FROM idem_stats() WHERE name = 'w'}),
			'1|t', 'one waited, and how long');
		$_->quit foreach $a, $b;

		# A role without the scope is counted; its key is not shown.
		$node->safe_psql($db, <<'EOT');
INSERT INTO idem.scope (name, roles) VALUES ('closed', '{regress_idem_nobody}');
CREATE ROLE regress_idem_clerk;
SELECT idem_grant('regress_idem_clerk');
EOT
		is(errcode($node, $db, q{SET ROLE regress_idem_clerk; SELECT idem_once('secret key', scope => 'closed')}),
			'42501', 'forbidden scope');
		is(counters($db, 'scope', 'closed'), 'forbidden=1', 'counted');
		is($node->safe_psql($db, q{SELECT role_name, verdict, observed, table_name, scope, code FROM idem_refusals()}),
			'regress_idem_clerk|forbidden|f||closed|42501', 'and kept');
		$node->safe_psql($db, q{DELETE FROM idem.scope WHERE name = 'closed'; DROP OWNED BY regress_idem_clerk; DROP ROLE regress_idem_clerk});

		# Sweeps.
		$node->safe_psql($db, q{SELECT count(*) FROM idem_once_many(ARRAY(SELECT i::text FROM generate_series(1, 100) AS i), scope => 'e', ttl => '1 ms')});
		$node->safe_psql($db, q{SELECT pg_sleep(0.01)});
		$node->safe_psql($db, q{SELECT idem_sweep()}) foreach 1 .. 2;
		is(counters($db, 'sweep', 'key'), 'runs=2 removed=100', 'sweeps');
		is($node->safe_psql($db, q{SELECT bool_and(lag BETWEEN 0 AND 60) FROM idem_stats() WHERE kind = 'sweep'}),
			't', 'all kinds have a lag');
		is($node->safe_psql($db, q{SELECT count(*) FROM idem_sweep_progress()}), '0', 'none runs now');

		# What stopped half way has not come round.
		$node->safe_psql($db, q{SELECT count(*) FROM idem_once_many(ARRAY(SELECT i::text FROM generate_series(1, 500) AS i), scope => 'e', ttl => '1 ms')});
		my $behind = caught_up($db, 'key');
		$node->safe_psql($db, q{SELECT pg_sleep(0.05)});
		$node->safe_psql($db, q{SELECT idem_sweep(20)});
		is($node->safe_psql($db, come_round_since($db, 'key', $behind)), 'f', 'stopped half way');
		$node->safe_psql($db, q{SELECT idem_sweep()});
		is($node->safe_psql($db, come_round_since($db, 'key', $behind)), 't', 'and come round');

		# A round over several calls.
		$node->safe_psql($db, q{SELECT count(*) FROM idem_once_many(ARRAY(SELECT i::text FROM generate_series(1, 500) AS i), scope => 'e', ttl => '1 ms')});
		my $before = caught_up($db, 'key');
		$node->safe_psql($db, q{SELECT pg_sleep(0.05)});
		$node->safe_psql($db, q{BEGIN; SELECT idem_sweep(); ROLLBACK});
		is($node->safe_psql($db, come_round_since($db, 'key', $before)), 'f',
			'a sweep that rolled back has removed nothing');
		$node->safe_psql($db, $_) foreach
			'BEGIN; SAVEPOINT a; SELECT idem_sweep(), idem_tick(); ROLLBACK TO a; COMMIT',
			'BEGIN; SAVEPOINT a; SAVEPOINT b; SELECT idem_sweep(); RELEASE b; ROLLBACK TO a; COMMIT',
			q{BEGIN; SELECT idem_sweep(); PREPARE TRANSACTION 'sweep'; SELECT 1; ROLLBACK PREPARED 'sweep'};
		is($node->safe_psql($db, come_round_since($db, 'key', $before)), 'f',
			'nor one that a savepoint took back, or a prepared transaction');
		is($node->safe_psql($db, q{SELECT lag IS NULL FROM idem_stats() WHERE kind = 'tick'}), 't', 'the same of a tick');
		$node->safe_psql($db, q{SELECT idem_sweep(600)}) foreach 1 .. 4;
		is($node->safe_psql($db, come_round_since($db, 'key', $before)), 't',
			'calls that stop half way come round together');
		is($node->safe_psql($db, q{SELECT count(*) FROM idem.key WHERE scope = 'e'}), '0', 'all is gone');
		$before = caught_up($db, 'key');
		$node->safe_psql($db, q{SELECT pg_sleep(0.05); BEGIN; SAVEPOINT a; SELECT idem_sweep(); RELEASE a; COMMIT});
		is($node->safe_psql($db, come_round_since($db, 'key', $before)), 't', 'a savepoint that was released counts');

		# What the time did not suffice for is not told to be swept, wherever that ran out.
		$node->safe_psql($db, <<'EOT');
CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_sleep(0.002);
	IF OLD.purpose = 'poison' THEN RAISE 'poisoned'; END IF;
	IF OLD.purpose = 'kept' THEN RETURN NULL; END IF;
	RETURN OLD;
END $$;
CREATE TRIGGER slow BEFORE DELETE ON idem.token FOR EACH ROW EXECUTE FUNCTION slow();
INSERT INTO idem.token (hash, created_at, expires_at, purpose)
SELECT sha256(i::text::bytea), '2020-01-01', '2020-01-01', 'p' FROM generate_series(1, 2000) AS i;
UPDATE idem.token SET purpose = 'poison' WHERE ctid IN (SELECT min(ctid) FROM idem.token GROUP BY split_part(ctid::text, ',', 1));
EOT
		$before = caught_up($db, 'token');
		$node->safe_psql($db, q{SELECT pg_sleep(0.05)});
		$node->safe_psql($db, q{SELECT idem_sweep(NULL, '100 ms')}) foreach 1 .. 40;
		cmp_ok($node->safe_psql($db, q{SELECT count(*) FROM idem.token}), '>', 100, 'slow rows are left');
		is($node->safe_psql($db, come_round_since($db, 'token', $before)), 'f', 'row by row');
		# Those that stay all the same, in blocks that no turn comes to the end of, hide none.
		$node->safe_psql($db, q{UPDATE idem.token SET purpose = 'kept' WHERE purpose = 'p'});
		$node->safe_psql($db, q{INSERT INTO idem.token (hash, created_at, expires_at, purpose)
SELECT sha256(('free' || i)::bytea), '2020-01-01', '2020-01-01', 'free' FROM generate_series(1, 10) AS i});
		foreach my $i (1 .. 200)
		{
			$node->safe_psql($db, q{SELECT idem_sweep(NULL, '60 ms')});
			last if $node->safe_psql($db, q{SELECT count(*) FROM idem.token WHERE purpose = 'free'}) == 0;
		}
		is($node->safe_psql($db, q{SELECT count(*) FROM idem.token WHERE purpose = 'free'}), '0', 'kept rows hide none');
		$node->safe_psql($db, q{DROP TRIGGER slow ON idem.token; DROP FUNCTION slow; SELECT idem_sweep()});
		is($node->safe_psql($db, come_round_since($db, 'token', $before)), 't', 'this is');

		# What could not be looked at is not told to be swept.  (All went round before.)
		my $locker = session($node, $db);
		$node->safe_psql($db, 'SELECT idem_sweep()');
		my %before = map { $_ => caught_up($db, $_) } qw(token key);
		ask($locker, 'BEGIN; LOCK TABLE idem.token');
		$node->safe_psql($db, 'SELECT pg_sleep(0.05); SELECT idem_sweep()');
		is(join(' ', map { $node->safe_psql($db, come_round_since($db, $_, $before{$_})) } qw(token key)), 'f t',
			'the lag of a kind that was locked goes on');
		ask($locker, 'ROLLBACK');
		$locker->quit;

		# A machine's verdicts: raised, given, rolled back, only watched.
		reset_stats($db);
		$node->safe_psql($db, <<'EOT');
SELECT idem_define('order', $m$stateDiagram-v2
[*] --> draft
draft --> paid : pay [new.total > 0]
paid --> shipped : ship by regress_idem_shipper
paid --> archived : archive
shipped --> [*]
note right of archived : frozen
$m$);
CREATE TABLE orders (id int PRIMARY KEY, state text NOT NULL DEFAULT 'draft', total int NOT NULL DEFAULT 1, version int NOT NULL DEFAULT 1);
CREATE TABLE watched (id int PRIMARY KEY, state text NOT NULL DEFAULT 'draft', total int NOT NULL DEFAULT 1);
SELECT idem_attach('order', 'orders', 'state');
SELECT idem_attach('order', 'watched', 'state', mode => 'observe');
SELECT idem_attach_version('orders', 'version');
INSERT INTO orders (id, total) VALUES (1, 1), (2, 0), (3, 1);
INSERT INTO watched VALUES (1);
SELECT idem_fire('orders', 1, 'pay', key => 'once');
SELECT idem_fire('orders', 1, 'pay', key => 'once');
SELECT idem_try_fire('orders', 2, 'pay');
GRANT SELECT, UPDATE ON orders TO regress_idem_seller;
SELECT idem_grant('regress_idem_seller');
SET ROLE regress_idem_seller;
SELECT idem_try_fire('orders', 1, 'ship');
RESET ROLE;
SELECT idem_try_fire('orders', 3, 'archive');
SELECT idem_try_fire('orders', 1, 'archive', version => 7);
BEGIN; SELECT idem_try_fire('orders', 3, 'archive'); ROLLBACK;
SELECT count(*) FROM idem_fire_many('orders', ARRAY[2, 3], 'archive');
SELECT idem_fire('orders', 1, 'archive');
UPDATE watched SET state = 'shipped';
EOT
		is(errcode($node, $db, q{UPDATE orders SET state = 'shipped' WHERE id = 3}), 'ID409', 'illegal');
		is(errcode($node, $db, q{UPDATE orders SET total = 9 WHERE id = 1}), 'ID409', 'frozen');
		is(errcode($node, $db, q{INSERT INTO orders (id, state) VALUES (9, 'paid')}), 'ID409', 'not initial');
		is(errcode($node, $db, q{SELECT idem_fire('orders', 2, 'pay')}), 'ID409', 'guarded');
		is(counters($db, 'machine', 'order'),
			'replays=1 moves=2 illegal=6 forbidden=1 guarded=2 stale=1 frozen=1 observed=1',
			'verdicts of a machine');
		is($node->safe_psql($db, <<'EOT'),
SELECT verdict, observed, table_name, machine, from_state, to_state, event, code FROM idem_refusals() LIMIT 5
EOT
			join("\n",
				'guarded|f|public.orders|order|draft|paid|pay|ID409',
				'illegal|f|public.orders|order||paid||ID409',
				'frozen|f|public.orders|order|archived|archived||ID409',
				'illegal|f|public.orders|order|draft|shipped||ID409',
				'illegal|t|public.watched|order|draft|shipped||ID409'),
			'the latest first');

		# Versions, tokens, leases, windows, branches.
		is(errcode($node, $db, q{UPDATE orders SET version = 5 WHERE id = 2}), 'ID412', 'stale');
		$node->safe_psql($db, <<'EOT');
SELECT outcome FROM idem_update('orders', 2, 9, '{"total": 3}');
SELECT idem_token_issue('p', 's') AS token \gset
SELECT idem_token_use(:'token', 'other', 's');
SELECT idem_token_use(:'token', 'p', 's');
SELECT idem_token_use(:'token', 'p', 's');
SELECT idem_token_use(repeat('A', 43), 'p', 's');
SELECT fence FROM idem_lease_acquire('l', '1 h') \gset
SELECT run FROM idem_lease_acquire('l', '1 h');
SELECT idem_lease_break('l');
SELECT outcome FROM idem_lease_renew('l', '1 h', :fence);
SELECT idem_lease_release('l', :fence);
SELECT allowed FROM idem_window('w', '1 h');
SELECT allowed FROM idem_window('w', '1 h');
SELECT idem_branch('saga', 'b', 'try');
SELECT idem_branch('saga', 'b', 'try');
SELECT idem_branch('saga', 'c', 'cancel');
SELECT idem_tick();
EOT
		is(counters($db, 'version', ''), 'stale=2', 'versions');
		is(counters($db, 'token', ''), 'claims=1 replays=1 mismatches=1 refused=1', 'tokens');
		is(counters($db, 'lease', ''), 'claims=1 in_progress=1 stale=2', 'leases');
		is(counters($db, 'window', ''), 'claims=1 refused=1', 'windows');
		is(counters($db, 'branch', ''), 'claims=1 replays=1 refused=1', 'branches');
		is(counters($db, 'tick', ''), 'runs=1', 'ticks');
		is($node->safe_psql($db, q{SELECT lag BETWEEN 0 AND 60 FROM idem_stats() WHERE kind = 'tick'}), 't', 'and their lag');

		# The ring holds no more than it may.
		$node->safe_psql($db, q{SELECT idem_try_fire('orders', 3, 'archive') FROM generate_series(1, 50)});
		is($node->safe_psql($db, q{SELECT count(*), count(*) FILTER (WHERE event = 'archive') FROM idem_refusals()}),
			'20|20', 'the latest twenty');

		# Forgotten on request, by a session that has counted before too.
		my $warm = session($node, $db);
		ask($warm, q{SELECT idem_once('warm', scope => 'warm')}) foreach 1 .. 2;
		is(ask($warm, 'SELECT idem_stats_reset()'), 't', 'reset');
		ask($warm, q{SELECT idem_once('warm', scope => 'warm')});
		is(counters($db, 'scope', 'warm'), 'replays=1', 'a session that was there counts anew');
		$warm->quit;
		reset_stats($db);
		is($node->safe_psql($db, q{SELECT count(*) FROM idem_stats() WHERE kind <> 'sweep'}), '0', 'no counters');
		is($node->safe_psql($db, q{SELECT count(*) FROM idem_refusals()}), '0', 'no refusals');
	});

# A round that goes on over several calls, and a table that becomes shorter in
# between: what was walked may be what is gone.
{
	my $db = 'idem_' . (accesses())[0];
	my $expired = q{clock_timestamp() - interval '30 h'};
	my $issue = sub {
		my ($n, $until) = @_;

		return "INSERT INTO idem.token (hash, created_at, expires_at, purpose) SELECT sha256(random()::text::bytea), now(), $until, 'p' FROM generate_series(1, $n)";
	};
	my $left = q{SELECT count(*) > 0 FROM idem.token};
	my $before;

	$node->safe_psql($db, q{TRUNCATE idem.token; ALTER TABLE idem.token SET (fillfactor = 10, autovacuum_enabled = off)});
	my $begin = sub {
		$node->safe_psql($db, $_) foreach
			'TRUNCATE idem.token',
			q{UPDATE idem.sweep_state SET position = 0 WHERE kind = 'token'},
			'SELECT idem_sweep()';
		return;
	};

	$begin->();
	$before = caught_up($db, 'token');
	$node->safe_psql($db, $_) foreach
		$issue->(1600, "CASE WHEN generate_series % 2 = 0 THEN $expired ELSE now() + interval '1 h' END"),
		$issue->(1600, $expired),
		'SELECT pg_sleep(0.05)',
		'SELECT idem_sweep(900)',
		'DELETE FROM idem.token WHERE expires_at > now()',
		'VACUUM FULL idem.token',
		'SELECT idem_sweep(500)';
	is($node->safe_psql($db, $left), 't', 'some are left');
	is($node->safe_psql($db, come_round_since($db, 'token', $before)), 'f', 'VACUUM FULL: the round begins anew');
	$node->safe_psql($db, 'SELECT idem_sweep(500)') foreach 1 .. 6;
	is($node->safe_psql($db, come_round_since($db, 'token', $before)), 't', 'and ends');

	$begin->();
	$before = caught_up($db, 'token');
	$node->safe_psql($db, $_) foreach
		$issue->(1600, $expired),
		q{UPDATE idem.sweep_state SET position = (SELECT pg_relation_size('idem.token') / 8192 / 2) WHERE kind = 'token'},
		'SELECT pg_sleep(0.05)',
		'SELECT idem_sweep(850)',
		'VACUUM idem.token',
		'SELECT idem_sweep(10)';
	is($node->safe_psql($db, $left), 't', 'some are left');
	is($node->safe_psql($db, come_round_since($db, 'token', $before)), 'f', 'VACUUM: the round is as long as before');
	$node->safe_psql($db, 'SELECT idem_sweep(500)') foreach 1 .. 6;
	is($node->safe_psql($db, come_round_since($db, 'token', $before)), 't', 'and ends');

	# As many blocks as before, in another file.
	$begin->();
	$before = caught_up($db, 'token');
	$node->safe_psql($db, $_) foreach
		$issue->(1600, q{now() + interval '1 h'}),
		$issue->(1600, $expired),
		'SELECT pg_sleep(0.05)',
		'SELECT idem_sweep(10)',
		"UPDATE idem.token SET expires_at = $expired",
		'VACUUM FULL idem.token',
		'SELECT idem_sweep(2600)';
	is($node->safe_psql($db, $left), 't', 'some are left');
	is($node->safe_psql($db, come_round_since($db, 'token', $before)), 'f', 'what was walked was another file');

	# A sweep beside another begins where that began.
	$begin->();
	$before = caught_up($db, 'token');
	$node->safe_psql($db, $issue->(3200, $expired));
	my $other = session($node, $db);
	ask($other, 'BEGIN; SELECT count(*) FROM idem_sweep(1)');
	$node->safe_psql($db, $_) foreach 'SELECT pg_sleep(0.05)', ('SELECT idem_sweep(700)') x 3;
	is($node->safe_psql($db, $left), 't', 'some are left');
	is($node->safe_psql($db, come_round_since($db, 'token', $before)), 'f', 'sweeps beside another are no round');
	ask($other, 'ROLLBACK');

	# One that is cancelled runs no longer, also where the error was caught.
	is(ask($other, <<'EOT'), 0, 'a sweep that was cancelled is not shown');
SET vacuum_cost_delay = 100;
SET vacuum_cost_limit = 1;
SET statement_timeout = '300ms';
DO $$ BEGIN PERFORM idem_sweep(); RAISE 'was not cancelled'; EXCEPTION WHEN query_canceled THEN NULL; END $$;
RESET statement_timeout;
SELECT count(*) FROM idem_sweep_progress();
EOT
	$other->quit;

	$node->safe_psql($db, q{ALTER TABLE idem.token RESET (fillfactor, autovacuum_enabled)});
}

# Many backends count the same exactly.
my $db = idem_database($node, 'many');
bench_run($node, $db, 'load', [ '-c', '8', '-j', '2', '-t', '250' ], <<'EOT');
SELECT idem_once('hot');
EOT
is(counters($db, 'scope', 'default'), 'claims=1 replays=1999', 'of eight backends');

# The eight have used one row, so the rest is free for the scopes that follow.
is($node->safe_psql($db, q{SELECT count(*) FROM idem_stats()}), '1', 'one row');

# More scopes than rows: counted together, and said so.
$node->safe_psql($db, q{SELECT idem_once('x', scope => 'o' || i) FROM generate_series(1, 100) AS i});
is($node->safe_psql($db, q{SELECT claims > 0 FROM idem_stats() WHERE kind = 'others' AND name IS NULL}),
	't', 'the rest has one row');
is($node->safe_psql($db, q{SELECT sum(claims) FROM idem_stats()}), '101', 'nothing is lost');
is($node->safe_psql('idem_' . (accesses())[0], q{SELECT count(*) FROM idem_stats() WHERE name LIKE 'o%'}),
	'0', 'no other database shows them');

# A database that is dropped gives its rows back.
$node->safe_psql('postgres', 'DROP DATABASE many');
$db = idem_database($node, 'after');
$node->safe_psql($db, q{SELECT count(*) FROM idem_stats()});
$node->safe_psql($db, q{SELECT idem_once('x', scope => 'n' || i) FROM generate_series(1, 10) AS i});
cmp_ok($node->safe_psql($db, q{SELECT count(*) FROM idem_stats() WHERE name ~ '^n'}),
	'>=', 1, 'after another look for dropped databases there is room');

# A killed backend starts all afresh, and nothing else happens.
crash_backend($node, $db, q{SELECT idem_once('crash');});
is($node->safe_psql($db, q{SELECT count(*) FROM idem_stats()}), '0', 'afresh after a crash');
$node->safe_psql($db, q{SELECT idem_once('after')});
is(counters($db, 'scope', 'default'), 'claims=1', 'and counts');

$node->restart;
is($node->safe_psql($db, q{SELECT count(*) FROM idem_stats()}), '0', 'afresh after a restart');

$node->stop;
done_testing();
