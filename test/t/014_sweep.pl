# Sweeps side by side under load: no deadlock, no live claim removed, all that
# expired removed in the end, and the table does not grow over cycles.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use IdemTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = idem_node('sweep', conf => "deadlock_timeout = 200ms\n");

each_access(
	$node,
	sub {
		my ($db) = @_;
		my $holder = session($node, $db);

		$node->safe_psql($db, <<'EOT');
CREATE TABLE effect (key text);
INSERT INTO idem.scope (name, no_expiry) VALUES ('kept', true);
SELECT count(*) FROM idem_once_many(ARRAY(SELECT 'x' || i FROM generate_series(1, 20000) AS i), ttl => '1 ms');
SELECT count(*) FROM idem_once_many(ARRAY(SELECT 'y' || i FROM generate_series(1, 2000) AS i), ttl => '1 h');
SELECT count(*) FROM idem_once_many(ARRAY(SELECT 'z' || i FROM generate_series(1, 2000) AS i), scope => 'kept');
SELECT count(*) FROM generate_series(1, 500) AS i, idem_claim('live' || i, lease => '1 h', ttl => '1 ms') AS c;
SELECT count(*) FROM generate_series(1, 500) AS i, idem_claim('dead' || i, lease => '1 ms', ttl => '1 ms') AS c;
SELECT count(*) FROM generate_series(1, 500) AS i, idem_claim('takeable' || i, lease => '1 ms', ttl => '1 h') AS c;
SELECT count(*) FROM idem_once_many(ARRAY(SELECT 'x' || i FROM generate_series(20001, 40000) AS i), ttl => '1 ms');
EOT
		ask($holder, q{SELECT run FROM idem_claim('session', hold => 'session', ttl => '1 ms')});

		my $load = bench_start($node, $db, [ '-c', '3', '-T', '5' ],
			<<'EOT', <<'EOT2');
\set k random(1, 300)
BEGIN;
SELECT run FROM idem_claim('t' || :k, ttl => '5 ms') \gset
\if :run
INSERT INTO effect VALUES ('t' || :k);
SELECT idem_complete('t' || :k, 'r' || :k);
\endif
COMMIT;
EOT
\set k random(1, 300)
SELECT run, coalesce(fence, 0) AS fence FROM idem_claim('l' || :k, lease => '1 min', ttl => '5 ms') \gset
\if :run
SELECT idem_complete('l' || :k, 'r' || :k, fence => :fence);
\endif
EOT2
		my ($rc, $out, $err) = bench_finish(
			bench_start($node, $db, [ '-c', '4', '-T', '4' ],
				"SELECT count(*) FROM idem_sweep(1000);\n",
				"SELECT count(*) FROM idem_sweep(100, '20 ms');\n"));
		is($rc, 0, 'four sweeps at once') or diag($err);
		($rc, $out, $err) = bench_finish($load);
		is($rc, 0, 'claims went on') or diag($err);
		unlike($err, qr/ERROR/, 'no error');

		# Now all that is due goes, and only that.
		foreach my $i (1 .. 20)
		{
			last
			  if $node->safe_psql($db,
				q{SELECT coalesce(sum(removed), 0) FROM idem_sweep(100000)}) == 0
			  && $i > 2;
		}
		is( $node->safe_psql($db, <<'EOT'), <<'EOT2' =~ s/\n$//r, 'what expired is gone, the rest is there');
SELECT substring(key FROM '^[a-z]+') AS kind, count(*) FROM idem.key
WHERE key ~ '^(x|y|z|live|dead|takeable|session)\d*$' GROUP BY 1 ORDER BY 1;
EOT
live|500
session|1
takeable|500
y|2000
z|2000
EOT2
		is( $node->safe_psql($db, q{SELECT outcome, attempt FROM idem_claim('takeable1', lease => '1 h')}),
			'takeover|2', 'a dead claim within its ttl is taken over');
		is( $node->safe_psql($db, q{SELECT outcome, attempt FROM idem_claim('dead1', lease => '1 h')}),
			'claimed|1', 'one past it is absent');
		is(ask($holder, q{SELECT idem_complete('session', 'x'::text)}),
			't', 'the session claim survived');
		$holder->quit;
		check_storage($node, $db, 'after the sweeps');

		# A row that a session locks is passed over, not waited for.
		my $locker = session($node, $db);
		$node->safe_psql($db, q{SELECT idem_once('locked', ttl => '1 ms'); SELECT idem_once('free', ttl => '1 ms')});
		ask($locker, q{BEGIN; SELECT 1 FROM idem.key WHERE key = 'locked' FOR KEY SHARE});
		$node->safe_psql($db, q{SET statement_timeout = '20 s'; SELECT idem_sweep(100000); SELECT idem_sweep(100000)});
		is( $node->safe_psql($db, q{SELECT key FROM idem.key WHERE key IN ('locked', 'free')}),
			'locked', 'a locked row is skipped');
		ask($locker, 'COMMIT');
		$locker->quit;

		# At the pace of VACUUM: here four tenths of a second for 64 pages, so that three
		# seconds are over long before all of it is done.
		$node->safe_psql($db, q{
INSERT INTO idem.token (hash, created_at, expires_at, purpose)
SELECT sha256(i::text::bytea), '2020-01-01', '2020-01-01', 'slow' FROM generate_series(1, 50000) AS i});
		my $left = q{SELECT count(*) FROM idem.token};
		cmp_ok($node->safe_psql($db, q{SELECT pg_relation_size('idem.token') / 8192}), '>', 640, 'many pages of tokens');
		$node->safe_psql($db, q{
SET vacuum_cost_delay = '100 ms';
SET vacuum_cost_limit = 1;
SELECT idem_sweep(NULL, '3 s')});
		cmp_ok($node->safe_psql($db, $left), '>', 0, 'a sweep keeps to vacuum_cost_delay');
		$node->safe_psql($db, q{SELECT idem_sweep(NULL)});
		is($node->safe_psql($db, $left), '0', 'and without it goes on');

		# Where rows are slow the time is looked at after few of them: here two milliseconds for
		# each, some hundred to a block.
		$node->safe_psql($db, q{
CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_sleep(0.002);
	IF to_jsonb(OLD) ->> 'purpose' = 'poison' THEN RAISE 'poisoned'; END IF;
	RETURN OLD;
END $$;
CREATE TRIGGER slow BEFORE DELETE ON idem.token FOR EACH ROW EXECUTE FUNCTION slow();
INSERT INTO idem.token (hash, created_at, expires_at, purpose)
SELECT sha256(i::text::bytea), '2020-01-01', '2020-01-01', 'slow' FROM generate_series(1, 5000) AS i});
		$node->safe_psql($db, q{SELECT idem_sweep(NULL, '400 ms')});
		cmp_ok($node->safe_psql($db, $left), '>', 4000, 'a sweep of slow rows ends in time');
		$node->safe_psql($db, q{UPDATE idem.token SET purpose = 'poison'
WHERE ctid IN (SELECT min(ctid) FROM idem.token GROUP BY split_part(ctid::text, ',', 1))});
		$node->safe_psql($db, q{SELECT idem_sweep(NULL, '400 ms')});
		cmp_ok($node->safe_psql($db, $left), '>', 3000, 'also where each has to be tried by itself');
		# The time is shared out: whichever comes first leaves some for the other.
		$node->safe_psql($db, q{
CREATE TRIGGER slow BEFORE DELETE ON idem.branch FOR EACH ROW EXECUTE FUNCTION slow();
INSERT INTO idem.branch (saga, branch, seq, expires_at) SELECT 's', 'b', i, '2020-01-01' FROM generate_series(1, 5000) AS i});
		foreach my $first (2, 3)
		{
			is( $node->safe_psql($db, qq{
UPDATE idem.sweep_state SET position = $first WHERE kind = 'first';
SELECT string_agg(kind, ' ' ORDER BY kind) FROM idem_sweep(NULL, '1 s') WHERE removed > 0}),
				'branch token', 'two slow kinds share the time');
		}
		$node->safe_psql($db, q{DROP TRIGGER slow ON idem.token; DROP TRIGGER slow ON idem.branch; SELECT idem_sweep(NULL)});
		is($node->safe_psql($db, $left), '0', 'and goes on where it was');

		# Nor is a lock waited for that a trigger of the owner's needs; it is nobody's error.
		$node->safe_psql($db, q{
CREATE TABLE archive (hash bytea);
CREATE FUNCTION archive() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO public.archive SELECT OLD.hash; RETURN OLD; END $$;
CREATE TRIGGER archive BEFORE DELETE ON idem.token FOR EACH ROW EXECUTE FUNCTION archive();
INSERT INTO idem.token (hash, created_at, expires_at, purpose)
SELECT sha256(i::text::bytea), '2020-01-01', '2020-01-01', 'locked' FROM generate_series(1, 10) AS i});
		$locker = session($node, $db);
		ask($locker, 'BEGIN; LOCK TABLE archive');
		my ($rc2, $out2, $err2) = $node->psql($db, q{SET statement_timeout = '20 s'; SELECT removed FROM idem_sweep() WHERE kind = 'token'});
		is("$rc2|$out2|$err2", '0|0|', 'a lock inside a trigger is not waited for');
		ask($locker, 'COMMIT');
		$locker->quit;
		is($node->safe_psql($db, q{SELECT removed FROM idem_sweep() WHERE kind = 'token'; SELECT count(*) FROM archive}), "10\n10", 'and the next sweep removes');
		$node->safe_psql($db, q{DROP TRIGGER archive ON idem.token});

		# Keys by SQL alike.
		$node->safe_psql($db, q{
SET idem.access = 'auto';
SELECT idem_sweep(NULL);
SELECT count(idem_once('slow' || i, ttl => '1 us')) FROM generate_series(1, 3000) AS i;
CREATE TRIGGER slow BEFORE DELETE ON idem.key FOR EACH ROW EXECUTE FUNCTION slow();
SELECT idem_sweep(NULL, '400 ms')});
		$left = q{SELECT count(*) FROM idem.key WHERE key LIKE 'slow%'};
		my $n = $node->safe_psql($db, $left);
		cmp_ok($n, '>', 2000, 'a sweep of slow keys ends in time');
		cmp_ok($n, '<', 3000, 'and removes some');
		$node->safe_psql($db, q{DROP TRIGGER slow ON idem.key});

		# Flat over cycles.
		my @size;
		foreach my $cycle (1 .. 8)
		{
			$node->safe_psql($db, qq{
SELECT count(*) FROM idem_once_many(ARRAY(SELECT 'c$cycle.' || i FROM generate_series(1, 5000) AS i), scope => 'cycle', ttl => '1 ms')});
			$node->safe_psql($db,
				'SELECT idem_sweep(1000000); SELECT idem_sweep(1000000)');
			$node->safe_psql($db, 'VACUUM idem.key');
			push @size,
			  $node->safe_psql($db, q{SELECT pg_relation_size('idem.key')});
		}
		is( $node->safe_psql($db, q{SELECT count(*) FROM idem.key WHERE scope = 'cycle'}),
			'0', 'every cycle was swept');
		cmp_ok($size[-1], '<=', $size[1], 'the table does not grow');
	});

# However slow some rows were, the next batch has one row at least: here one row in each batch
# takes an eighth of the time, until a batch is one row; the others take none.
my $db = idem_database($node, 'slow');
$node->safe_psql($db, q{
CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_sleep(0.3) WHERE OLD.subject IN ('1', '17', '25', '29', '31');
	RETURN OLD;
END $$;
CREATE TRIGGER slow BEFORE DELETE ON idem.token FOR EACH ROW EXECUTE FUNCTION slow();
INSERT INTO idem.token (hash, created_at, expires_at, purpose, subject)
SELECT sha256(i::text::bytea), '2020-01-01', '2020-01-01', 'slow', i FROM generate_series(1, 1000) AS i;
UPDATE idem.sweep_state SET position = 4 WHERE kind = 'first'});
is($node->safe_psql($db, q{SELECT removed FROM idem_sweep(NULL, '2400 ms') WHERE kind = 'token'}),
	1000, 'slow rows do not end a sweep that has time left');

$node->stop;
done_testing();
