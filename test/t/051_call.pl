# Idempotent functions beyond one session: idem.key through a transaction-mode
# pooler, twins in dumps, a standby, the server's log, and calls under load.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use IdemTest;
use IPC::Run ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = idem_node('call', init => { allows_streaming => 1 });
my $superuser = getpwuid($>);
my $tmp = $PostgreSQL::Test::Utils::tmp_check;

my $shop = <<'EOT';
CREATE SCHEMA shop;
SET search_path = shop, public;
CREATE TYPE receipt AS (account int, amount numeric, x float8, j jsonb, a int[]);
CREATE TABLE account (id int PRIMARY KEY, balance numeric DEFAULT 0);
CREATE TABLE effect (key text);
INSERT INTO account SELECT generate_series(1, 10);
CREATE FUNCTION charge(account int, amount numeric DEFAULT 1.50) RETURNS receipt LANGUAGE plpgsql AS $$
BEGIN
	UPDATE shop.account AS a SET balance = balance + charge.amount WHERE id = charge.account;
	INSERT INTO shop.effect VALUES (idem_key());
	RETURN (account, amount, '0.30000000000000004', 'null', '[0:1]={1,NULL}')::shop.receipt;
END $$;
CREATE FUNCTION receipts(n int) RETURNS SETOF receipt LANGUAGE sql AS
	$$SELECT i, 1.50, 'NaN'::float8, '[1, null]'::jsonb, NULL::int[] FROM generate_series(n, 1, -1) AS i$$;
CREATE FUNCTION columns(INOUT a int, OUT "b b" text) LANGUAGE sql AS $$SELECT a, E'x\n"\\'$$;
SELECT idem_wrap('charge(int,numeric)'), idem_wrap('receipts(int)', '"a""twin"'), idem_wrap('columns(int)');
EOT

# Through a pooler.
my $pooler = pooler_start($node, size => 1);

SKIP:
{
	skip 'pgbouncer is not installed (package pgbouncer)'
	  unless defined $pooler;

	each_access(
		$node,
		sub {
			my ($db) = @_;
			$node->safe_psql($db, $shop);
			$node->safe_psql($db, <<'EOT');
CREATE FUNCTION shop.seen() RETURNS text LANGUAGE sql AS 'SELECT idem_key()';
CREATE FUNCTION shop.sets() RETURNS text LANGUAGE plpgsql AS
	$$ BEGIN PERFORM set_config('idem.key', 'from inside', false); RETURN idem_key(); END $$;
CREATE FUNCTION shop.fails() RETURNS text LANGUAGE plpgsql AS
	$$ BEGIN PERFORM set_config('idem.key', 'from inside', false); RAISE EXCEPTION 'no'; END $$;
EOT
			# both clients share the one server connection
			my ($a, $b) =
			  map { pooled_session($pooler, $db) } 1 .. 2;
			my $key = q{SELECT coalesce(idem_key(), '')};

			is( ask($a, q{
BEGIN;
SELECT set_config('idem.key', 'request-a', true);
SELECT idem_call(idem_key(), 'shop.seen()') #>> '{}' = idem_child('request-a', 'seen');
SELECT idem_key();
COMMIT;}) =~ s/\n/ /gr,
				'request-a t request-a', 'idem.key around a call');
			is(ask($b, $key), '', 'it does not reach another client');
			is(ask($a, $key), '', 'nor the next transaction');
			is( ask($b, q{SELECT idem_call('b', 'shop.seen()') #>> '{}' = idem_child('b', 'seen')}),
				't', 'a call in autocommit');
			is(ask($a, $key), '', 'leaves nothing');
			is(ask($b, q{SELECT idem_call('c', 'shop.sets()')}),
				'"from inside"', 'a function that sets the session\'s key');
			is(ask($a, $key), '', 'leaves nothing either');
			is(ask($b, q{SELECT idem_call('d', 'shop.fails()')}),
				'ERROR P0001', 'nor does one that fails');
			is(ask($a, $key), '', 'after it');
			is( ask($b, q{
BEGIN;
SELECT set_config('idem.key', 'request-b', true);
SELECT shop.charge_once(idem_key(), 1) IS NOT NULL;
ROLLBACK;}) =~ s/\n/ /gr,
				'request-b t', 'a twin, rolled back');
			is(ask($a, $key), '', 'leaves nothing');
			is(ask($a, q{SELECT shop.charge_once('request-b', 1)}),
				ask($b, q{SELECT shop.charge_once('request-b', 1)}),
				'a twin and its replay by two clients');
			is($node->safe_psql($db, 'SELECT count(*) FROM shop.effect'),
				'1', 'it ran once');
			$_->quit foreach $a, $b;
		});
	pooler_stop($pooler);
}

# A notification is sent once per run, not by a replay, nor where the call failed.
foreach my $access (accesses())
{
	my $db = idem_database($node, "told_$access", $access);

	$node->safe_psql($db, <<'EOT');
CREATE FUNCTION tells(fail boolean) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_notify('told', idem_key());
	IF fail THEN RAISE 'no'; END IF;
	RETURN 'told';
END $$;
EOT
	my $told = sub {
		my ($fail) = @_;
		my $call = "SELECT idem_call('tell', 'tells(boolean)', '[$fail]');\n";

		$node->psql($db, "LISTEN told;\n$call$call", stdout => \my $out, on_error_stop => 0);
		return scalar(() = $out =~ /Asynchronous notification "told"/g);
	};
	is($told->('true'), 0, "a call that fails sends no notification ($access)");
	is($told->('false'), 1, "a call and its replay send one ($access)");
	is($told->('false'), 0, "replays send none ($access)");
}

# Dump and restore: twins and what they recorded.
my $replays = <<'EOT';
SET search_path = shop, public;
SELECT charge_once('c1', 1), (charge_once('c1', 1)).j IS NULL, array_lower((charge_once('c1', 1)).a, 1);
SELECT * FROM "a""twin"('r1', 3);
SELECT count(*) FROM "a""twin"('r0', 0);
SELECT * FROM columns_once('o1', 7);
SELECT idem_call('c1', 'charge(int,numeric)', '[1, 1.5]'), idem_call('call', 'charge(int,numeric)', '[2]');
EOT
my $twins = <<'EOT';
SELECT p.oid::regprocedure::text, pg_get_userbyid(proowner), pg_get_functiondef(p.oid), proacl
FROM pg_proc AS p WHERE pronamespace = 'shop'::regnamespace ORDER BY 1;
EOT
$node->safe_psql('postgres', 'CREATE ROLE regress_idem_owner LOGIN');
my $n = 0;
foreach my $access (accesses())
{
	foreach my $schema ('public', 'we"ird')
	{
		my $db = "dump" . ++$n;
		my $copy = "restored$n";
		my $q = '"' . ($schema =~ s/"/""/gr) . '"';
		my $in_schema = sub { $_[0] =~ s/shop, public/shop, $q, public/r };

		$node->safe_psql('postgres', qq{
CREATE DATABASE $db OWNER regress_idem_owner TEMPLATE template0;
ALTER DATABASE $db SET idem.access = '$access'});
		run_as($node, 'regress_idem_owner', $db,
			($schema eq 'public' ? '' : "CREATE SCHEMA $q;\n")
			. "CREATE EXTENSION idem SCHEMA $q;\n"
			. ($in_schema->($shop) =~ s/\(idem_key\(\)\)/('k')/r));
		my $first =
		  run_as($node, 'regress_idem_owner', $db, $in_schema->($replays));

		foreach my $form ('p', 'c')
		{
			my $file = "$tmp/$db.$form";
			my $target = "$copy$form";

			$node->command_ok(
				[ 'pg_dump', "-F$form", '-U', 'regress_idem_owner', '-f', $file, $node->connstr($db) ],
				"$access, $schema: pg_dump -F$form");
			$node->safe_psql('postgres',
				"CREATE DATABASE $target OWNER regress_idem_owner TEMPLATE template0");
			$node->command_ok(
				$form eq 'p' ?
				  [ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-U', 'regress_idem_owner',
					'-o', "$file.out", '-f', $file, $node->connstr($target) ] :
				  [ 'pg_restore', '-e', '-U', 'regress_idem_owner', '-d', $node->connstr($target), $file ],
				"$access, $schema: restored without an error");
			is( run_as($node, 'regress_idem_owner', $target, $twins),
				run_as($node, 'regress_idem_owner', $db, $twins),
				"$access, $schema: the same twins");
			is( run_as($node, 'regress_idem_owner', $target, $in_schema->($replays)),
				$first, "$access, $schema: the same results");
			is( run_as($node, 'regress_idem_owner', $target,
					'SELECT sum(balance) FROM shop.account; SELECT count(*) FROM shop.effect'),
				"3.00\n2", "$access, $schema: nothing ran again");
		}

		# schema only: the twins, without their records
		my $file = "$tmp/$db.schema";
		$node->command_ok(
			[ 'pg_dump', '-s', '-U', 'regress_idem_owner', '-f', $file, $node->connstr($db) ],
			"$access, $schema: pg_dump -s");
		$node->safe_psql('postgres',
			"CREATE DATABASE ${copy}s OWNER regress_idem_owner TEMPLATE template0");
		$node->command_ok(
			[ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-U', 'regress_idem_owner',
				'-o', "$file.out", '-f', $file, $node->connstr("${copy}s") ],
			"$access, $schema: schema restored without an error");
		is( run_as($node, 'regress_idem_owner', "${copy}s", $twins),
			run_as($node, 'regress_idem_owner', $db, $twins),
			"$access, $schema: the same twins in a schema-only copy");
		is( run_as($node, 'regress_idem_owner', "${copy}s", $in_schema->($replays)),
			$first, "$access, $schema: which run");
	}
}

# A standby replays and does not run.
$node->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'base', has_streaming => 1);
$standby->start;
foreach my $i (1 .. $n)
{
	$node->wait_for_catchup($standby);
	my $q = $i % 2 ? 'public' : '"we""ird"';
	my $replay = "SET search_path = shop, $q; "
	  . q{SELECT charge_once('c1', 1); SELECT idem_call('call', 'charge(int,numeric)', '[2]')};

	is($standby->safe_psql("dump$i", $replay),
		$node->safe_psql("dump$i", $replay), 'a standby replays');
	is( errcode($standby, "dump$i", "SET search_path = shop, $q; SELECT charge_once('new', 1)"),
		'25006', 'and runs nothing');
	is( errcode($standby, "dump$i", "SET search_path = shop, $q; SELECT idem_call('new', 'charge(int,numeric)', '[2]')"),
		'25006', 'by idem_call neither');
	is( errcode($standby, "dump$i", "SET search_path = shop, $q; SELECT charge_once('c1', 2)"),
		'ID422', 'and tells a mismatch');
}
$standby->stop;

# The log: nothing of keys, arguments and results, at default settings.
foreach my $access (accesses())
{
	my $db = idem_database($node, "log_$access", $access);
	$node->safe_psql($db, <<'EOT');
CREATE TYPE mood AS ENUM ('SECRET', 'ok');
CREATE TYPE pair AS (a int, b text);
CREATE DOMAIN short AS text CHECK (length(VALUE) < 5);
CREATE FUNCTION f(a int, b text DEFAULT '') RETURNS text LANGUAGE sql AS 'SELECT b';
CREATE FUNCTION p() RETURNS pair LANGUAGE sql AS $$SELECT 1, 'SECRET'$$;
CREATE FUNCTION m(m mood DEFAULT 'SECRET') RETURNS mood LANGUAGE sql AS 'SELECT m';
CREATE FUNCTION j(j json) RETURNS json LANGUAGE sql AS 'SELECT j';
CREATE FUNCTION q(q tsquery DEFAULT NULL, c regclass DEFAULT NULL, s short DEFAULT NULL, r pair DEFAULT NULL) RETURNS int LANGUAGE sql AS 'SELECT 1';
CREATE FUNCTION again(k text) RETURNS json LANGUAGE sql AS $$SELECT idem_call(k, 'again(text)', jsonb_build_array(k))$$;
SELECT idem_wrap('f(int,text)'), idem_wrap('p()'), idem_wrap('m(mood)'), idem_wrap('j(json)');
INSERT INTO idem.scope (name, max_response) VALUES ('small', 5);
SELECT idem_call('SECRET', 'f(int,text)', '[1, "SECRET"]'), p_once('SECRET p'), m_once('SECRET m');
ALTER TYPE pair ADD ATTRIBUTE c int;
ALTER TYPE mood RENAME VALUE 'SECRET' TO 'SECRET too';
BEGIN;
SELECT run FROM idem_claim('SECRET failed');
SELECT idem_fail('SECRET failed', 'SECRET');
COMMIT;
EOT
	my $offset = -s $node->logfile;
	foreach my $case (
		[ 'ID422', q{SELECT idem_call('SECRET', 'f(int,text)', '[2, "SECRET"]')} ],
		[ 'ID422', q{SELECT f_once('SECRET', 2, 'SECRET')} ],
		[ 'ID500', q{SELECT f_once('SECRET', 1, 'SECRET')} ],
		[ 'ID409', q{SELECT idem_call('SECRET failed', 'f(int,text)', '[2, "SECRET"]')} ],
		[ 'ID400', q{SELECT idem_call('SECRET a', 'f(int,text)', '["SECRET"]')} ],
		[ 'ID400', q{SELECT idem_call('SECRET a', 'f(int,text)', '{"a": 1, "SECRET": 1}')} ],
		[ 'ID400', q{SELECT idem_call('SECRET a', 'f(int,text)', '"SECRET"')} ],
		[ 'ID400', q{SELECT idem_call('SECRET a', 'q(tsquery,regclass,short,pair)', '{"q": "SECRET & ("}')} ],
		[ 'ID400', q{SELECT idem_call('SECRET a', 'q(tsquery,regclass,short,pair)', '{"c": "SECRET"}')} ],
		[ 'ID400', q{SELECT idem_call('SECRET a', 'q(tsquery,regclass,short,pair)', '{"r": "(SECRET"}')} ],
		[ 'ID400', q{SELECT idem_call('SECRET a', 'q(tsquery,regclass,short,pair)', '{"s": "SECRET"}')} ],
		[ 'ID400', q{SELECT idem_call('SECRET a', 'm(mood)', '["SECRET"]')} ],
		[ 'ID500', q{SELECT idem_call('SECRET b', 'f(int,text)', '[2, "SECRET"]', scope => 'small')} ],
		[ 'ID500', q{SET idem.scope = 'small'; SELECT f_once('SECRET b', 2, 'SECRET')} ],
		[ 'ID500', q{SELECT p_once('SECRET p')} ],
		[ 'ID500', q{SELECT idem_call('SECRET c', 'again(text)', '["SECRET c"]')} ],
		[ 'none', q{SELECT j_once('SECRET d', '{"a": "SECRET \u0000"}')} ])
	{
		my ($code, $statement) = @$case;
		is(errcode($node, $db, $statement), $code, $statement);
	}
	# the statement is not in the log either
	$node->psql($db, q{\set VERBOSITY verbose
DO $$ BEGIN PERFORM set_config('x.k', 'SEC' || 'RET', false); END $$;
SELECT idem_call(current_setting('x.k'), 'f(int,text)', jsonb_build_array(2, current_setting('x.k')));
SELECT idem_call(current_setting('x.k') || 'x', 'f(int,text)', jsonb_build_array(current_setting('x.k')));});
	my $log = slurp_file($node->logfile, $offset);
	like($log, qr/idem key was used before/, 'errors are in the log');
	unlike($log, qr/SECRET/, 'without keys, arguments, results');
}

# Under load, with backends killed: each key ran as often as it is recorded.
foreach my $access (accesses())
{
	my $db = idem_database($node, "load_$access", $access);
	$node->safe_psql($db, <<'EOT');
CREATE TABLE effect (key text);
CREATE FUNCTION work(k text) RETURNS text LANGUAGE sql AS $$INSERT INTO effect VALUES (k) RETURNING 'done ' || k$$;
SELECT idem_wrap('work(text)');
EOT
	my $bench = bench_start($node, $db, [ '-c', '8', '-t', '400', '-M', 'prepared' ], <<'EOT');
\set k random(1, 500)
\set twin random(0, 1)
\if :twin
SELECT work_once(:k::text, :k::text);
\else
SELECT idem_call('call ' || :k, 'work(text)', jsonb_build_array('call ' || :k));
\endif
EOT
	my ($rc, $out, $err) = bench_finish($bench);
	is($rc, 0, "$access: calls under load") or diag($err);
	is( $node->safe_psql($db, q{
SELECT count(*) - count(DISTINCT key) FROM effect;
SELECT count(*) FROM effect FULL JOIN idem.key USING (key) WHERE effect.key IS NULL OR state IS DISTINCT FROM 'completed' OR response <> to_json('done ' || key)::text;
SELECT count(*) > 900 FROM effect}),
		"0\n0\nt", "$access: each key ran once and is recorded with its result");
}

$node->stop;
done_testing();
