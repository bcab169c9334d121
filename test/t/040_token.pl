# One-time tokens: 64 sessions at each of 10,000 tokens, one consumes it
# (IDEM_TOKEN_ROUNDS: how many); on a
# standby they can be looked at; prepared transactions; crash, dump and restore;
# nothing of a token in the server's log.

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
	conf => "max_prepared_transactions = 10\ndeadlock_timeout = 200ms\nlog_lock_waits = on\nrestart_after_crash = on\n");
my $db = idem_database($node, 'tokens');
# all 10,000 rounds, unless told otherwise
my ($users, $rounds) = (64, $ENV{IDEM_TOKEN_ROUNDS} // 10000);

# 64 users.  Each goes through the tokens in the same order, a transaction for
# each, so that they meet.
$node->safe_psql($db, <<EOT);
CREATE TABLE token (n int PRIMARY KEY, token text);
INSERT INTO token SELECT n, idem_token_issue('race', 'u' || n) FROM generate_series(1, $rounds) AS n;
CREATE TABLE verdict (verdict text, n int, times bigint);
CREATE PROCEDURE race() LANGUAGE plpgsql AS \$\$
DECLARE
	tokens text[] := ARRAY(SELECT token FROM token ORDER BY n);
	verdict text;
	others bigint := 0;
BEGIN
	FOR i IN 1 .. $rounds LOOP
		verdict := idem_token_use(tokens[i], 'race', 'u' || i);
		IF verdict = 'consumed' THEN
			INSERT INTO verdict VALUES (verdict, i, 1);
		ELSIF verdict = 'reused' THEN
			others := others + 1;
		ELSE
			RAISE EXCEPTION '%', verdict;
		END IF;
		COMMIT;
	END LOOP;
	INSERT INTO verdict VALUES ('reused', NULL, others);
END \$\$;
EOT
bench_run($node, $db, "$users users of $rounds tokens", [ '-c', $users, '-t', '1' ], "CALL race();\n");
is( $node->safe_psql($db, q{SELECT verdict, count(DISTINCT n), sum(times) FROM verdict GROUP BY 1 ORDER BY 1}),
	"consumed|$rounds|$rounds\nreused|0|" . ($users - 1) * $rounds,
	'each token was consumed once');
is($node->safe_psql($db, q{SELECT count(*), count(used_at) FROM idem.token}),
	"$rounds|$rounds", 'and its row says so');

# Uses that roll back, uses that commit, replacements and sweeps at once.
my $one = $node->safe_psql($db, q{SELECT idem_token_issue('storm', 'alice')});
bench_run(
	$node, $db, 'storm',
	[ '-M', 'prepared', '-c', '8', '-t', '300' ],
	[ <<'EOT', 3 ], [ <<'EOT', 2 ], [ <<'EOT', 1 ]);
\set k random(1, 5)
BEGIN;
SELECT idem_token_issue('storm', 's' || :k::text, replace => true) AS t \gset
SELECT 1 / (idem_token_use(:t, 'storm', 's' || :k::text) IN ('consumed', 'expired'))::int;
END;
EOT
\set k random(1, 5)
SELECT length(idem_token_issue('storm', 's' || :k::text, replace => true));
SELECT count(*) FROM idem_sweep(100);
EOT
\set k random(1, 5)
BEGIN;
SELECT idem_token_issue('storm', 's' || :k::text, replace => true) AS t \gset
ROLLBACK;
SELECT 1 / (idem_token_use(:t, 'storm', 's' || :k::text) = 'unknown')::int;
EOT
my $live = q{
SELECT coalesce(max(n), 0) <= 1 FROM (SELECT count(*) AS n FROM idem.token AS t
WHERE purpose = 'storm' AND subject <> 'alice' AND used_at IS NULL AND expires_at > clock_timestamp()
AND NOT EXISTS (SELECT FROM idem.token AS newer WHERE newer.purpose = t.purpose AND newer.subject = t.subject
	AND (newer.ends_older, newer.hash) > (t.created_at, t.hash)) GROUP BY subject) AS s};
is( $node->safe_psql($db, $live),
	't', 'after replacements at most one lives per subject');

# One who uses the subject's token and then asks for a new one, one who
# replaces twice, and one who rolls back, in one transaction each: no deadlock.
$node->safe_psql($db, q{
CREATE TABLE mail (n int, token text);
INSERT INTO mail SELECT n, idem_token_issue('cycle', n::text) FROM generate_series(1, 3) AS n});
my $before = -s $node->logfile;
bench_run(
	$node, $db, 'use and replace',
	[ '-c', '8', '-t', '300' ],
	[ <<'EOT', 2 ], [ <<'EOT', 1 ], [ <<'EOT', 1 ]);
\set n random(1, 3)
BEGIN;
SELECT count(idem_token_use(token, 'cycle', :n::text)) FROM (SELECT token FROM mail WHERE n = :n ORDER BY ctid DESC LIMIT 1) AS m;
INSERT INTO mail VALUES (:n, idem_token_issue('cycle', :n::text, replace => true));
END;
EOT
\set n random(1, 3)
BEGIN;
INSERT INTO mail VALUES (:n, idem_token_issue('cycle', :n::text, replace => true));
INSERT INTO mail VALUES (:n, idem_token_issue('cycle', :n::text, replace => true));
END;
EOT
\set n random(1, 3)
BEGIN;
INSERT INTO mail VALUES (:n, idem_token_issue('cycle', :n::text, replace => true));
ROLLBACK;
EOT
unlike(substr(slurp_file($node->logfile), $before), qr/deadlock/, 'no deadlock');
is($node->safe_psql($db, q{
SELECT bool_and(valid <= 1) FROM (SELECT count(*) FILTER (WHERE idem_token_peek(token, 'cycle', n::text) = 'valid') AS valid FROM mail GROUP BY n) AS s}),
	't', 'and at most one of a subject is valid');
is($node->safe_psql($db, q{SELECT count(idem_token_issue('subjects', n::text, replace => true)) FROM generate_series(1, 50000) AS n}),
	'50000', '50,000 subjects in one transaction');
$node->safe_psql($db, q{DROP TABLE mail; DELETE FROM idem.token WHERE purpose IN ('cycle', 'subjects')});

# Prepared transactions: in use until they are resolved.
my ($kept, $back) = map { $node->safe_psql($db, q{SELECT idem_token_issue('prepared')}) } 1 .. 2;
foreach my $case ([ $kept, 'kept', 'COMMIT', 'reused' ], [ $back, 'back', 'ROLLBACK', 'consumed' ])
{
	my ($t, $gid, $end, $verdict) = @$case;

	is( $node->safe_psql($db, qq{BEGIN; SELECT idem_token_use('$t', 'prepared'); PREPARE TRANSACTION '$gid'}),
		'consumed', "$gid: consumed by a prepared transaction");
	is($node->safe_psql($db, qq{SELECT idem_token_peek('$t', 'prepared')}),
		'valid', "$gid: a look does not wait");
	is( errcode($node, $db, qq{SET lock_timeout = '100 ms'; SELECT idem_token_use('$t', 'prepared')}),
		'55P03', "$gid: a use waits, within lock_timeout");
	my $s = session($node, $db);
	my $pid = session_pid($s);
	ask_later($s, qq{SELECT idem_token_use('$t', 'prepared')});
	wait_blocked($node, $pid);
	$node->safe_psql($db, "$end PREPARED '$gid'");
	is(answer($s), $verdict, "$gid: $verdict afterwards");
	$s->quit;
}
# A replacement in a prepared transaction counts once that is committed.
my $older = $node->safe_psql($db, q{SELECT idem_token_issue('prepared', 'alice')});
$node->safe_psql($db, q{BEGIN; SELECT idem_token_issue('prepared', 'alice', replace => true); PREPARE TRANSACTION 'replacing'});

# Crash: what was committed is there, what was not is not.
$node->kill9;
start_after_crash($node);
is($node->safe_psql($db, qq{SELECT idem_token_use('$kept', 'prepared')}),
	'reused', 'used before the crash');
is($node->safe_psql($db, qq{SELECT idem_token_peek('$one', 'storm', 'alice')}),
	'valid', 'unused before the crash');
is($node->safe_psql($db, qq{SELECT idem_token_peek('$older', 'prepared', 'alice')}),
	'valid', 'not replaced yet');
$node->safe_psql($db, q{COMMIT PREPARED 'replacing'});
is($node->safe_psql($db, qq{SELECT idem_token_use('$older', 'prepared', 'alice')}),
	'expired', 'replaced by a prepared transaction, over a crash');
crash_backend($node, $db, qq{BEGIN; SELECT idem_token_use('$one', 'storm', 'alice');});
is($node->safe_psql($db, qq{SELECT idem_token_peek('$one', 'storm', 'alice')}),
	'valid', 'a use dies with its backend');

# A cancel while a use sleeps leaves the next one right.
{
	my ($s1, $s2) = map { session($node, $db) } 1 .. 2;

	is(ask($s1, qq{BEGIN; SELECT idem_token_use('$one', 'storm', 'alice')}), 'consumed', 'in use');
	is( ask($s2, qq{SET statement_timeout = '100 ms'; SELECT idem_token_use('$one', 'storm', 'alice')}),
		'ERROR 57014', 'statement_timeout ends a sleep');
	ask($s2, 'RESET statement_timeout');
	is(ask($s2, qq{SELECT idem_token_peek('$one', 'storm', 'alice')}), 'valid', 'and the session goes on');
	ask($s1, 'ROLLBACK');
	$_->quit foreach ($s1, $s2);
}

# Its time runs out while a use sleeps behind one that then rolls back.
{
	my ($s1, $s2) = map { session($node, $db) } 1 .. 2;
	my $pid = session_pid($s2);
	my $short = $node->safe_psql($db, q{SELECT idem_token_issue('short', ttl => '1 s')});

	is(ask($s1, qq{BEGIN; SELECT idem_token_use('$short', 'short')}), 'consumed', 'in time');
	ask_later($s2, qq{SELECT idem_token_use('$short', 'short', request => '[1]')});
	wait_blocked($node, $pid);
	ask($s1, 'SELECT pg_sleep(1.1); ROLLBACK');
	is(answer($s2), 'expired', 'too late by the end of the sleep');
	is( $node->safe_psql($db, q{SELECT count(*), count(used_at), count(fingerprint) FROM idem.token WHERE purpose = 'short'}),
		'1|0|0', 'and not used');
	$_->quit foreach ($s1, $s2);
}

# Standby: looks are answered, the rest is 25006.
$node->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'base', has_streaming => 1);
$standby->start;
my $wide = $node->safe_psql($db, q{SELECT idem_token_issue('wide', 'bob', '{"n": 1}')});
$node->wait_for_catchup($standby);
is( $standby->safe_psql($db, qq{
SELECT idem_token_peek('$kept', 'prepared'), idem_token_peek('$one', 'storm', 'alice'), idem_token_peek('$one', 'storm'),
	idem_token_peek(repeat('x', 43), 'storm'), idem_token_peek('$wide', 'wide', 'bob', '{"n": 1.0}')}),
	'reused|valid|mismatch|unknown|valid', 'looks on a standby');
is(errcode($standby, $db, qq{SELECT idem_token_use('$one', 'storm', 'alice')}), '25006', 'use on a standby');
is(errcode($standby, $db, qq{SELECT idem_token_use('$kept', 'prepared')}), '25006', 'even of a used one');
is(errcode($standby, $db, q{SELECT idem_token_issue('a')}), '25006', 'issue on a standby');
$standby->stop;

# Dump and restore.
my $dump = $node->basedir . '/tokens.sql';
$node->safe_psql($db, 'DROP TABLE token, verdict; DROP PROCEDURE race');
$node->command_ok([ 'pg_dump', '-f', $dump, '-d', $node->connstr($db) ], 'dump');
unlike(slurp_file($dump), qr/\Q$one\E/, 'no token in a dump');
$node->safe_psql('postgres', 'CREATE DATABASE restored');
$node->command_ok([ 'psql', '-qX', '-v', 'ON_ERROR_STOP=1', '-f', $dump, '-d', $node->connstr('restored') ], 'restore');
is( $node->safe_psql('restored', qq{SELECT idem_token_use('$kept', 'prepared'), idem_token_use('$one', 'storm', 'alice')}),
	'reused|consumed', 'tokens are good after a restore');

# The log: with tokens as parameters, errors, waits and deadlocks name none.
my $secret = $node->safe_psql($db, q{SELECT idem_token_issue('log')});
my $offset = -s $node->logfile;
$node->psql($db, <<EOT);
PREPARE use AS SELECT idem_token_use(\$1, \$2, \$3);
EXECUTE use ('$secret', 'log', '');
EOT
my $holder = session($node, $db);
ask($holder, qq{BEGIN; SELECT idem_token_use('$secret', 'log')});
my ($rc, $out, $err) = bench_finish(
	bench_start($node, $db, [ '-M', 'prepared', '-c', '1', '-t', '1', '-D', "t=$secret" ], <<'EOT'));
SET lock_timeout = '400 ms';
SELECT idem_token_use(:t, 'log');
EOT
like($err, qr/lock timeout/, 'a use that was given as a parameter runs into lock_timeout');
ask($holder, 'ROLLBACK');
$holder->quit;
# what the verb itself raises hides the statement
is(errcode($node, $db, qq{BEGIN READ ONLY; SELECT idem_token_use('$secret', 'log')}), '25006', 'a token in the text, in a read-only transaction');
is(errcode($node, $db, qq{SELECT idem_token_use('$secret', NULL)}), 'ID400', 'and with a bad argument');
my $log = substr(slurp_file($node->logfile), $offset);
like($log, qr/cannot execute idem_token_use/, 'the log tells of the error');
$log =~ s/^.*EXECUTE use.*$//gm;
unlike($log, qr/\Q$secret\E/, 'its token is not in the log');
like($log, qr/still waiting/, 'where the wait is told of');

$node->stop;
done_testing();
