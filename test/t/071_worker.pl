# The worker: it sweeps and ticks the databases that it is told of, reads its
# settings at once, stands in nobody's way, and does not fill the log.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use IdemTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = idem_node(
	'worker',
	init => { allows_streaming => 1 },
	conf => <<'EOT');
shared_preload_libraries = 'idem'
restart_after_crash = on
max_prepared_transactions = 5
idem.naptime = 1
idem.databases = 'one, "T wo", none, missing'
EOT

# Loading it without preload, and by LOAD in a preloaded server.
is(errcode($node, 'postgres', q{LOAD 'idem'}), 'none', 'LOAD');

my @dbs = ('one', 'T wo');
idem_database($node, $_) foreach @dbs, 'three';
$node->safe_psql('postgres', 'CREATE DATABASE none');

sub fill
{
	my ($db, $n) = @_;

	$node->safe_psql($db, qq{SELECT count(*) FROM idem_once_many(ARRAY(SELECT 'k' || i FROM generate_series(1, $n) AS i), ttl => '1 ms')});
	return;
}

sub emptied
{
	my ($db) = @_;

	return $node->poll_query_until($db, 'SELECT count(*) = 0 FROM idem.key');
}

sub setting
{
	my ($name, $value) = @_;

	$node->safe_psql('postgres', "ALTER SYSTEM SET $name = $value");
	$node->reload;
	return;
}

sub workers
{
	return $node->safe_psql('postgres',
		q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'idem worker'});
}

# Sweeping.
fill($_, 1000) foreach @dbs, 'three';
ok(emptied($_), "database $_ is swept") foreach @dbs;
is($node->safe_psql('three', 'SELECT count(*) FROM idem.key'), '1000', 'another is not');
is( $node->safe_psql('one', q{SELECT removed, lag < 60 FROM idem_stats() WHERE kind = 'sweep' AND name = 'key'}),
	'1000|t', 'and is counted');
ok($node->poll_query_until('postgres', q{SELECT xact_commit > 0 FROM pg_stat_database WHERE datname = 'none'}),
	'a database without the extension is looked at');
unlike(slurp_file($node->logfile), qr/ERROR|WARNING|FATAL/, 'and nothing is said of it');

# Settings of the database that would stop it do not.
{
	local $ENV{PGOPTIONS} = '-c default_transaction_read_only=off -c default_transaction_isolation=read\\ committed -c search_path=public'
	  . ' -c session_replication_role=origin -c statement_timeout=1min -c lock_timeout=0';
	my $later = $node->pg_version >= 17;

	$ENV{PGOPTIONS} .= ' -c transaction_timeout=1min' if $later;

	$node->safe_psql('one', $_) foreach 'ALTER DATABASE one SET default_transaction_read_only = on',
	  'ALTER DATABASE one SET default_transaction_isolation = serializable',
	  'ALTER DATABASE one SET search_path = nowhere',
	  'ALTER DATABASE one SET session_replication_role = replica',
	  q{ALTER DATABASE one SET statement_timeout = '1ms'},
	  q{ALTER DATABASE one SET lock_timeout = '1ms'};
	$node->safe_psql('one', q{ALTER DATABASE one SET transaction_timeout = '1ms'}) if $later;
	fill('one', 20000);
	ok(emptied('one'), 'settings of the database');
	$node->safe_psql('one', 'ALTER DATABASE one RESET ALL');
}

# Ticking, by the owner of the table, who is no superuser.
$node->safe_psql('one', <<'EOT');
CREATE ROLE regress_idem_owner;
GRANT CREATE ON SCHEMA public TO regress_idem_owner;
SELECT idem_grant('regress_idem_owner', 'operator');
SET ROLE regress_idem_owner;
SELECT idem_define('cart', E'stateDiagram-v2\n[*] --> open\nopen --> stale : expire after 1 ms\nstale --> [*]\n');
CREATE TABLE cart (id int PRIMARY KEY, state text NOT NULL DEFAULT 'open', by_whom text);
CREATE FUNCTION who() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.by_whom := current_user; RETURN NEW; END $$;
CREATE TRIGGER who BEFORE UPDATE ON cart FOR EACH ROW EXECUTE FUNCTION who();
SELECT idem_attach('cart', 'cart', 'state', history => true);
INSERT INTO cart SELECT i FROM generate_series(1, 250) AS i;
EOT
ok($node->poll_query_until('one', q{SELECT bool_and(state = 'stale') FROM cart}), 'timed events are fired');
is($node->safe_psql('one', q{SELECT DISTINCT by_whom FROM cart}), 'regress_idem_owner', 'as the owner');

my $offset;

# What one owner's trigger leaves in a transaction is not there for another's rows.
setting('idem.naptime', '3600');
$node->safe_psql('one', <<'EOT');
CREATE ROLE regress_idem_other;
GRANT CREATE ON SCHEMA public TO regress_idem_other;
GRANT SELECT ON cart TO regress_idem_other;
SELECT idem_grant('regress_idem_other', 'operator');
GRANT USAGE ON SCHEMA public TO regress_idem_other;
BEGIN;
SET ROLE regress_idem_owner;
CREATE FUNCTION defer() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	SET CONSTRAINTS ALL DEFERRED;
	PERFORM pg_advisory_lock(4711);
	RETURN NEW;
END $$;
CREATE TRIGGER defer BEFORE UPDATE ON cart FOR EACH ROW EXECUTE FUNCTION defer();
INSERT INTO cart VALUES (1001);
SET ROLE regress_idem_other;
SELECT idem_define('basket', E'stateDiagram-v2\n[*] --> open\nopen --> stale : expire after 1 ms\nstale --> [*]\n');
CREATE TABLE state (state text PRIMARY KEY);
INSERT INTO state VALUES ('open'), ('stale');
CREATE TABLE basket (id int PRIMARY KEY, state text NOT NULL DEFAULT 'open' REFERENCES state DEFERRABLE);
CREATE FUNCTION locked() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	IF EXISTS (SELECT FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory' AND objid = 4711) THEN
		RAISE 'locked by another';
	END IF;
	RETURN NEW;
END $$;
CREATE TRIGGER locked BEFORE UPDATE ON basket FOR EACH ROW EXECUTE FUNCTION locked();
SELECT idem_attach('basket', 'basket', 'state', history => true);
INSERT INTO basket VALUES (1);
RESET ROLE;
INSERT INTO cart VALUES (1002);
INSERT INTO basket VALUES (2);
COMMIT;
EOT
$offset = -s $node->logfile;
$node->reload;
ok($node->poll_query_until('one', q{SELECT bool_and(state = 'stale') FROM basket}), 'rows of two owners are fired');
is($node->safe_psql('one', q{SELECT count(*) FROM cart WHERE id > 1000 AND state = 'stale'}), '2', 'both');
unlike(slurp_file($node->logfile, $offset), qr/WARNING/, 'and none at the second try');
# nor does one that is locked stand in the way of another's
$node->safe_psql('one', <<'EOT');
INSERT INTO cart VALUES (1003);
INSERT INTO basket VALUES (3);
BEGIN;
UPDATE cart SET state = 'stale' WHERE id = 1003;
PREPARE TRANSACTION 'held';
EOT
$node->reload;
ok($node->poll_query_until('one', q{SELECT state = 'stale' FROM basket WHERE id = 3}), 'a timer in front is locked');
$node->safe_psql('one', q{COMMIT PREPARED 'held'});
setting('idem.naptime', '1');

# SIGHUP at once: a long nap is cut short, an off switch works, and on again.
setting('idem.naptime', '3600');
setting('idem.databases', q{'*'});
ok(emptied('three'), 'every database, at once');
setting('idem.workers', '0');
ok($node->poll_query_until('postgres', q{SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'idem worker'}),
	'switched off');
fill('one', 100);
$node->safe_psql('postgres', 'SELECT pg_sleep(1.5)');
is($node->safe_psql('one', 'SELECT count(*) FROM idem.key'), '100', 'nothing is swept');
setting('idem.naptime', '1');
setting('idem.workers', '2');
ok(emptied('one'), 'switched on');
isnt(($node->psql('postgres', q{ALTER SYSTEM SET idem.databases = '"'}))[0], 0, 'a list that is none');

# Who wants a database for himself gets it, while there is always work to do.
setting('idem.batch_size', '100');
fill($_, 60000) foreach @dbs, 'three';
$node->safe_psql('postgres', 'CREATE DATABASE copy TEMPLATE one');
$node->safe_psql('postgres', 'ALTER DATABASE one RENAME TO uno');
$node->safe_psql('postgres', 'ALTER DATABASE uno RENAME TO one');
$node->safe_psql('postgres', 'DROP DATABASE three');
$node->safe_psql('postgres', 'DROP DATABASE copy WITH (FORCE)');
pass('template, rename and drop');
setting('idem.batch_size', '10000');
ok(emptied('one'), 'and work goes on');

# Also where each of many timers takes long: the wait is for one of them, and longer
# than the five seconds after which PostgreSQL gives up if nobody else would have the
# database's lock.
idem_database($node, 'slow');
$node->safe_psql('slow', <<'EOT');
GRANT CREATE ON SCHEMA public TO regress_idem_owner;
SELECT idem_grant('regress_idem_owner', 'operator');
SET ROLE regress_idem_owner;
CREATE FUNCTION slowly() RETURNS bool LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(8); RETURN true; END $$;
SELECT idem_define('slow', E'stateDiagram-v2\n[*] --> open\nopen --> stale : expire [slowly()] after 1 ms\nstale --> [*]\n');
CREATE TABLE slow (id int PRIMARY KEY, state text NOT NULL DEFAULT 'open');
SELECT idem_attach('slow', 'slow', 'state', history => true);
INSERT INTO slow SELECT i FROM generate_series(1, 20) AS i;
EOT
# it may have been looked at before the extension was there
$node->reload;
my $asleep = q{SELECT count(*) > 0 FROM pg_stat_activity WHERE backend_type = 'idem worker' AND wait_event = 'PgSleep'};
ok($node->poll_query_until('postgres', $asleep), 'in the middle of a slow one');
is(($node->psql('postgres', 'ALTER DATABASE slow RENAME TO slower'))[0], 0, 'a database can be renamed');
$node->safe_psql('postgres', q{DO $$ BEGIN
	EXECUTE format('ALTER DATABASE %I ALLOW_CONNECTIONS false', (SELECT datname FROM pg_database WHERE datname LIKE 'slow%')); END $$});

# A batch that ran out of time is not the last one, however few timers there are; and
# those that are left are not told to be done.
setting('idem.naptime', '3600');
idem_database($node, 'slowish');
$node->safe_psql('slowish', <<'EOT');
GRANT CREATE ON SCHEMA public TO regress_idem_owner;
SELECT idem_grant('regress_idem_owner', 'operator');
SET ROLE regress_idem_owner;
CREATE FUNCTION slowly() RETURNS bool LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.3); RETURN true; END $$;
SELECT idem_define('slow', E'stateDiagram-v2\n[*] --> open\nopen --> stale : expire [slowly()] after 1 ms\nstale --> [*]\n');
CREATE TABLE slow (id int PRIMARY KEY, state text NOT NULL DEFAULT 'open');
SELECT idem_attach('slow', 'slow', 'state', history => true);
INSERT INTO slow SELECT i FROM generate_series(1, 20) AS i;
EOT
$node->reload;
ok($node->poll_query_until('slowish', q{SELECT count(*) >= 10 FROM slow WHERE state = 'stale'}), 'half of the slow ones');
is($node->safe_psql('slowish', <<'EOT'), 't', 'the lag tells of the others');
SELECT extract(epoch FROM clock_timestamp() - min(due)) < coalesce((SELECT lag FROM idem_stats() WHERE kind = 'tick'), 'infinity') + 1
	OR min(due) IS NULL FROM idem.timer
EOT
ok($node->poll_query_until('slowish', q{SELECT count(*) = 20 FROM slow WHERE state = 'stale'}), 'and all of them');
$node->safe_psql('postgres', 'DROP DATABASE slowish WITH (FORCE)');
setting('idem.naptime', '1');

# The installation is looked for again and again, not complained of.
is(workers() <= 2, 1, 'no more workers than allowed');
$node->safe_psql('T wo', 'DROP EXTENSION idem CASCADE');

# What fails is told of once.  Row by row it is a warning, and only a few.
$offset = -s $node->logfile;
$node->safe_psql('one', <<'EOT');
CREATE FUNCTION poison() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'poisoned'; END $$;
CREATE TRIGGER poison BEFORE DELETE ON idem.key FOR EACH ROW WHEN (OLD.key LIKE 'bad%') EXECUTE FUNCTION poison();
SELECT count(*) FROM idem_once_many(ARRAY(SELECT 'bad' || i FROM generate_series(1, 100) AS i), ttl => '1 ms');
SELECT idem_once('good', ttl => '1 ms');
EOT
ok($node->poll_query_until('one', q{SELECT count(*) = 100 FROM idem.key}), 'the good one is swept');
$node->safe_psql('postgres', 'SELECT pg_sleep(3)');
my $log = slurp_file($node->logfile, $offset);
my $n = () = $log =~ /could not be swept/g;
cmp_ok($n, '>=', 1, 'poisoned rows are told of');
cmp_ok($n, '<=', 10, 'but not for ever');
$node->safe_psql('one', 'DROP TRIGGER poison ON idem.key');
ok(emptied('one'), 'swept in the end');

$offset = -s $node->logfile;
$node->safe_psql('one', 'ALTER TABLE idem.sweep_state RENAME TO gone');
$node->wait_for_log(qr/sweep_state/, $offset);
$node->reload foreach 1 .. 3;
$node->safe_psql('postgres', 'SELECT pg_sleep(3)');
$log = slurp_file($node->logfile, $offset);
$n = () = $log =~ /ERROR/g;
is($n, 1, 'a database that fails is told of once') or diag($log);

# It is visited less and less often: after two failures not twice within four seconds.
my $visits = q{SELECT xact_rollback FROM pg_stat_database WHERE datname = 'one'};
my $before = $node->safe_psql('postgres', $visits);
$node->safe_psql('postgres', 'SELECT pg_sleep(6)');
cmp_ok($node->safe_psql('postgres', $visits) - $before, '<=', 2, 'nor visited once in each nap');
$node->safe_psql('one', 'ALTER TABLE idem.gone RENAME TO sweep_state');
fill('one', 10);
$node->reload;
ok(emptied('one'), 'and is worked on again');

# Workers and launcher that are terminated or killed.
my $launcher = q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'idem launcher'};
my $pid = $node->safe_psql('postgres', $launcher);
$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
ok($node->poll_query_until('postgres', "SELECT ($launcher) <> $pid"), 'the launcher comes back');
crash_backend($node, 'one', 'SELECT 1;');
fill('one', 10);
ok(emptied('one'), 'after a crash it works');

# Where all places for workers are taken it waits for one, and says so once.
setting('max_worker_processes', '2');
$offset = -s $node->logfile;
$node->restart;
fill('one', 10);
$node->wait_for_log(qr/no worker of idem could be started/, $offset);
$node->safe_psql('postgres', 'SELECT pg_sleep(3)');
$n = () = slurp_file($node->logfile, $offset) =~ /no worker of idem could be started/g;
is($n, 1, 'no place for a worker: told of once');
is($node->safe_psql('one', 'SELECT count(*) FROM idem.key'), '10', 'and nothing is swept');
setting('max_worker_processes', '8');
$node->restart;
ok(emptied('one'), 'with places it works');

# A standby does nothing, and a promoted one goes on.
setting('idem.workers', '0');
$node->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'base', has_streaming => 1);
$standby->append_conf('postgresql.conf', "idem.databases = '*'\n");
unlink $standby->data_dir . '/postgresql.auto.conf.keep';
$standby->start;
fill('one', 50);
$node->wait_for_catchup($standby);
is($standby->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'idem%'}),
	'0', 'nothing runs on a standby');
is($standby->safe_psql('one', q{SELECT outcome FROM idem_claim('k1', lease => '1 h') WHERE false; SELECT count(*) FROM idem.key}),
	'50', 'nothing is swept');
$standby->promote;
$standby->safe_psql('postgres', 'ALTER SYSTEM SET idem.workers = 1');
$standby->reload;
ok($standby->poll_query_until('one', 'SELECT count(*) = 0 FROM idem.key'), 'promoted, it sweeps');
$standby->stop('fast');

# Shutdown in the middle of it.
setting('idem.workers', '2');
setting('idem.batch_size', '1000000');
fill('one', 100000);
$node->reload;
$node->safe_psql('postgres', q{DO $$ BEGIN
	EXECUTE format('ALTER DATABASE %I ALLOW_CONNECTIONS true', (SELECT datname FROM pg_database WHERE datname LIKE 'slow%')); END $$});
$node->reload;
ok($node->poll_query_until('postgres', $asleep), 'also of a slow timer');
my $began = time;
$node->stop('fast');
cmp_ok(time - $began, '<', 30, 'a fast shutdown is not held up');
unlike(slurp_file($node->logfile), qr/PANIC|TRAP|signal 11/, 'no crash of its own');

# One place for the workers of three databases: each gets it in turn, and that
# there could be more is told of once.
{
	my $node = idem_node('crowded', conf => <<'EOT');
shared_preload_libraries = 'idem'
max_worker_processes = 2
max_logical_replication_workers = 0
idem.naptime = 1
idem.workers = 4
idem.databases = '*'
EOT
	my $no_room = qr/no worker of idem could be started/;

	foreach my $db (qw(one two three))
	{
		idem_database($node, $db);
		$node->safe_psql($db, q{SELECT idem_once('a', ttl => '1 ms')});
	}
	$node->wait_for_log($no_room);
	foreach my $round (1 .. 3)
	{
		$node->safe_psql($_, q{SELECT idem_once('a', ttl => '1 ms')}) foreach qw(one two three);
		ok($node->poll_query_until($_, 'SELECT count(*) = 0 FROM idem.key'), "round $round: $_ has its turn")
		  foreach qw(one two three);
	}
	my $n = () = slurp_file($node->logfile) =~ /$no_room/g;
	is($n, 1, 'too few places are told of once');
	$node->stop;
}

done_testing();
