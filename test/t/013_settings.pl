# One scenario gives the same answers under every setting that changes how
# PostgreSQL prints, plans or isolates, and in databases of other encodings.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use IdemTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = idem_node('settings');

# Answers hold no time and no fence.  The script is ASCII; one letter outside it
# is made from its UTF8 bytes, and shown so.
my $scenario = <<'EOT';
BEGIN;
SELECT 1, run, outcome, attempt, fence, step, progress, response, code, retry_after FROM PRE.idem_claim('k', '{"amount": 1.0, "list": [1e2, true, null], "at": "2024-01-31"}');
SELECT 2, run, outcome, attempt FROM PRE.idem_claim('k');
SELECT 3, * FROM PRE.idem_unfinished();
SELECT 4, PRE.idem_step('k', 'half', '{"n": [1, 2.50]}');
SELECT 5, PRE.idem_complete('k', 'Text', code => 201);
COMMIT;
SELECT 6, run, outcome, attempt, fence, step, progress, response, code, retry_after FROM PRE.idem_claim('k', '{"list": [100, true, null], "at": "2024-01-31", "amount": 1}');
SELECT 7, run, outcome, response FROM PRE.idem_claim('k', '{"amount": 1.01}');
SELECT 8, outcome, attempt, step, progress, response, code, created_at <= finished_at, expires_at - finished_at BETWEEN '86399 s' AND '86401 s' FROM PRE.idem_lookup('k');
BEGIN;
SELECT 9, run FROM PRE.idem_claim('json', ttl => '1 mon');
SELECT 10, PRE.idem_complete('json', '{"b": 1.50, "a" : null}'::json);
SELECT 11, run FROM PRE.idem_claim('jsonb');
SELECT 12, PRE.idem_complete('jsonb', '{"b": 1.50, "a" : null}'::jsonb);
SELECT 13, run FROM PRE.idem_claim('bytes');
SELECT 14, PRE.idem_complete('bytes', encode('\x00ff'::bytea, 'hex'));
COMMIT;
SELECT 15, k, response FROM unnest(ARRAY['json', 'jsonb', 'bytes']) AS k, PRE.idem_lookup(k);
SELECT 16, run, outcome, retry_after, fence IS NOT NULL FROM PRE.idem_claim('lease', lease => '90 s');
SELECT 17, run, outcome, retry_after BETWEEN 80 AND 90 FROM PRE.idem_claim('lease', lease => '90 s');
SELECT fence FROM idem.key WHERE key = 'lease' \gset
SELECT 18, PRE.idem_renew('lease', '1 day 02:03:04', fence => :fence) BETWEEN clock_timestamp() + '26 h' AND clock_timestamp() + '27 h';
SELECT 19, scope, key, hold, since <= clock_timestamp(), lease_until > since, attempt, step FROM idem.held;
SELECT 20, PRE.idem_retry('lease', 'busy', fence => :fence, after => '1 h');
SELECT 21, run, outcome, retry_after BETWEEN 3500 AND 3600 FROM PRE.idem_claim('lease');
SELECT 22, run, outcome, attempt FROM PRE.idem_claim('short', lease => '1 ms');
SELECT 23, pg_sleep(0.002) IS NULL;
SELECT 24, run, outcome, attempt FROM PRE.idem_claim('short', lease => '1 ms');
SELECT 25, run, outcome FROM PRE.idem_claim('sess', hold => 'session');
SELECT 26, PRE.idem_fail('sess', 'no', code => 402);
SELECT 27, run, outcome, response, code FROM PRE.idem_claim('sess');
SELECT 28, PRE.idem_reopen('sess');
SELECT 29, PRE.idem_once('o'), PRE.idem_once('p', 's/t', '1 year');
SELECT 30, PRE.idem_once('o'), PRE.idem_once('p', 's/t');
SELECT 31, encode(convert_to(k, 'UTF8'), 'hex') FROM PRE.idem_once_many(ARRAY['b', 'o', 'a', 'b', convert_from('\xLETTER', 'UTF8'), 'c']) AS k;
SELECT 32, PRE.idem_import('i', 'r', created_at => '2020-02-29 12:00:00+00', ttl => '100 years');
SELECT 33, outcome, created_at = '2020-02-29 12:00:00+00', expires_at = '2120-02-29 12:00:00+00' FROM PRE.idem_lookup('i');
SELECT 34, PRE.idem_import_many(ARRAY['i', 'j', 'l'], ARRAY['1', NULL, '']);
SELECT 35, PRE.idem_forget('i', force => true), PRE.idem_forget('short', force => true);
SELECT set_config('idem.key', 'by setting', false);
BEGIN;
SELECT 36, run, outcome FROM PRE.idem_claim();
SELECT 37, PRE.idem_complete(response => convert_from('\xLETTER', 'UTF8'));
COMMIT;
SELECT 38, outcome, encode(convert_to(response, 'UTF8'), 'hex') FROM PRE.idem_claim();
SELECT 39, PRE.idem_canonical('{"b": [1.0, 1e21, -0.0, 1e-7], "a": "x"}');
SELECT 40, PRE.idem_fingerprint('{"b": [1.0, 1e21, -0.0, 1e-7], "a": "x"}');
SELECT 41, PRE.idem_fingerprint(format('{"%s": 1}', convert_from('\xLETTER', 'UTF8'))::jsonb);
SELECT 42, (c).run, (c).outcome FROM (SELECT PRE.idem_claim('by setting') AS c OFFSET 0) AS x;
SELECT 43, scope, encode(convert_to(key, 'UTF8'), 'escape'), state, hold, attempt, encode(convert_to(response, 'UTF8'), 'hex'), code FROM idem.key ORDER BY scope, key COLLATE "C";
SELECT 44, kind, removed FROM PRE.idem_sweep() WHERE removed > 0;
EOT
sub run_scenario
{
	my ($db, %o) = @_;
	my $settings = $o{settings} // {};
	my $letter = $o{letter} // 'c3a9';
	my $pre = $o{pre} // '';
	my $sql = $scenario =~ s/PRE\./$pre/gr =~ s/LETTER/$letter/gr;

	# Backslashes are escapes then.
	$sql =~ s/'\\x/'\\\\x/g
	  if exists $settings->{standard_conforming_strings};

	local $ENV{PGOPTIONS} =
	  join(' ', map { "-c $_=" . ($settings->{$_} =~ s/([ \\])/\\$1/gr) }
		  sort keys %$settings);
	my ($rc, $out, $err) = $node->psql($db, $sql);

	return $rc == 0 ? $out : "failed: $err";
}

my $expected;

each_access(
	$node,
	sub {
		my ($db) = @_;
		my $clear = 'TRUNCATE idem.key';

		my $got = run_scenario($db);
		$expected //= $got;
		unlike($got, qr/^failed/, 'the scenario runs') or diag($got);
		is($got, $expected, 'both ways give the same answers');

		my @cases = (
			{ DateStyle => 'SQL, DMY' },
			{ DateStyle => 'German', IntervalStyle => 'sql_standard' },
			{ IntervalStyle => 'iso_8601' },
			{ bytea_output => 'escape' },
			{ TimeZone => 'Asia/Kathmandu' },
			{ TimeZone => 'America/St_Johns', DateStyle => 'Postgres, MDY' },
			{ quote_all_identifiers => 'on' },
			{ default_transaction_isolation => 'serializable' },
			{ default_transaction_isolation => 'repeatable read' },
			{ default_transaction_deferrable => 'on' },
			{ plan_cache_mode => 'force_generic_plan' },
			{ plan_cache_mode => 'force_custom_plan' },
			{
				enable_indexscan => 'off',
				enable_indexonlyscan => 'off',
				enable_bitmapscan => 'off'
			},
			{ enable_seqscan => 'off' },
			{ extra_float_digits => '-15' },
			{ client_encoding => 'LATIN1' },
			{ standard_conforming_strings => 'off', backslash_quote => 'off' },
			{ array_nulls => 'off' },
			{ transform_null_equals => 'on' },
			{ synchronous_commit => 'off' },
			{ row_security => 'off' },
			{ xmlbinary => 'hex', lc_monetary => 'C' },
			{ check_function_bodies => 'off', jit_above_cost => '0' },
			{ session_replication_role => 'replica' },
			{ ($node->pg_version >= 16 ? 'debug_parallel_query' : 'force_parallel_mode') => 'on' },
			{ work_mem => '64kB', default_toast_compression => 'pglz' },
			{ idle_in_transaction_session_timeout => '1h', lock_timeout => '1min', statement_timeout => '1min' },
			{ search_path => 'pg_catalog' });
		foreach my $settings (@cases)
		{
			my $name = join(', ', map { "$_ = $settings->{$_}" } sort keys %$settings);
			my $pre = exists $settings->{search_path} ? 'public.' : '';

			$node->safe_psql($db, $clear);
			is(run_scenario($db, settings => $settings, pre => $pre),
				$expected, $name);
		}

		# Hostile names in front of everything.
		$node->safe_psql($db, $clear);
		$node->safe_psql($db, <<'EOT');
CREATE ROLE regress_idem_attacker;
CREATE SCHEMA trap AUTHORIZATION regress_idem_attacker;
GRANT USAGE ON SCHEMA trap TO PUBLIC;
SET ROLE regress_idem_attacker;
CREATE FUNCTION trap.boom() RETURNS boolean LANGUAGE plpgsql
	AS $$ BEGIN RAISE EXCEPTION 'trapped as %', current_user; END $$;
DO $$
DECLARE
	op text;
	t text;
BEGIN
	FOREACH t IN ARRAY ARRAY['text', 'bigint', 'int', 'timestamptz', 'name', 'boolean', 'oid', 'interval', 'jsonb'] LOOP
		EXECUTE format('CREATE FUNCTION trap.boom(%s, %1$s) RETURNS boolean LANGUAGE plpgsql AS ''BEGIN RAISE EXCEPTION $m$trapped$m$; END''', t);
		FOREACH op IN ARRAY ARRAY['=', '<>', '<', '<=', '>', '>='] LOOP
			EXECUTE format('CREATE OPERATOR trap.%s (FUNCTION = trap.boom, LEFTARG = %s, RIGHTARG = %s)', op, t, t);
		END LOOP;
	END LOOP;
END $$;
CREATE FUNCTION trap.now() RETURNS timestamptz LANGUAGE sql AS 'SELECT trap.boom(); SELECT NULL::timestamptz';
CREATE FUNCTION trap.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS 'SELECT trap.boom(); SELECT NULL::timestamptz';
CREATE FUNCTION trap.nextval(regclass) RETURNS bigint LANGUAGE sql AS 'SELECT trap.boom(); SELECT 1::bigint';
CREATE FUNCTION trap.idem_key() RETURNS text LANGUAGE sql AS 'SELECT trap.boom()::text';
CREATE FUNCTION trap.current_setting(text, boolean) RETURNS text LANGUAGE sql AS 'SELECT trap.boom()::text';
CREATE FUNCTION trap.array_agg(text) RETURNS text LANGUAGE sql AS 'SELECT trap.boom()::text';
CREATE FUNCTION trap.unnest(text[]) RETURNS SETOF text LANGUAGE sql AS 'SELECT trap.boom()::text';
RESET ROLE;
CREATE TABLE trap.key (LIKE idem.key);
CREATE TABLE trap.scope (LIKE idem.scope);
CREATE TYPE trap.idem_claimed AS (a int);
EOT
		# Under the hostile path only the verbs run, without operators of ours.
		is( $node->safe_psql(
				$db, <<'EOT') =~ s/\n/ /gr, 'claimed t t completed|r claimed t t t a t claimed in_progress 1 t', 'hostile search_path changes nothing');
CREATE TEMP TABLE key (LIKE idem.key);
CREATE TEMP TABLE scope (LIKE idem.scope);
CREATE TEMP TABLE pg_class (relname name);
CREATE TEMP TABLE pg_proc (proname name);
SET search_path = trap, pg_temp, pg_catalog, public;
BEGIN;
SELECT outcome FROM public.idem_claim('h', '{"a": 1}');
SELECT public.idem_step('h', 's');
SELECT public.idem_complete('h', 'r'::pg_catalog.text);
COMMIT;
SELECT outcome, response FROM public.idem_claim('h', '{"a": 1}');
SELECT outcome FROM public.idem_claim('hs', hold => 'session');
SELECT public.idem_release('hs');
SELECT public.idem_once('ho');
SELECT public.idem_import('hi', 'x');
SELECT public.idem_once_many('{ho,a}');
SELECT public.idem_forget('hi', force => true);
SELECT outcome FROM public.idem_claim('hl', lease => '1 h');
SELECT outcome FROM public.idem_claim('hl', lease => '1 h');
SELECT pg_catalog.count(*) FROM public.idem_lookup('h');
SELECT pg_catalog.count(*) OPERATOR(pg_catalog.>) 0 FROM public.idem_sweep();
EOT
		$node->safe_psql($db,
			'DROP SCHEMA trap CASCADE; DROP ROLE regress_idem_attacker');
	});

# Other server encodings.
foreach my $access (accesses())
{
	foreach my $encoding ('LATIN1', 'SQL_ASCII', 'EUC_JP')
	{
		my $db = lc "enc_${encoding}_$access";

		idem_database($node, $db, $access,
			options => "ENCODING '$encoding' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
		);

		# EUC_JP lacks the letter of the others.
		my $letter = $encoding eq 'EUC_JP' ? 'e38182' : 'c3a9';

		$node->safe_psql("idem_$access", 'TRUNCATE idem.key');
		is( run_scenario($db, letter => $letter),
			run_scenario("idem_$access", letter => $letter),
			"$access, server encoding $encoding");
		is( $node->safe_psql(
				$db, q{SELECT idem_once(repeat('x', 1024)); SELECT idem_once(repeat('x', 1024));}
			),
			"t\nf",
			"$access, $encoding: the longest key");
		is( errcode($node, $db, q{SELECT idem_once(repeat('x', 1025))}),
			'ID400', "$access, $encoding: one byte more");
	}
}

# Lengths are bytes of the server encoding.
is(errcode($node, 'idem_' . (accesses())[0],
		q{SELECT idem_once(repeat(U&'\00e9', 513))}),
	'ID400', 'UTF8: 513 letters of two bytes are too long');
is(errcode($node, 'enc_latin1_' . (accesses())[0],
		q{SELECT idem_once(repeat(chr(233), 1024))}),
	'none', 'LATIN1: 1024 letters of one byte are not');

$node->stop;
done_testing();
