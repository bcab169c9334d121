# A hot standby and READ ONLY transactions: lookup and replay answer, whatever
# would write is 25006, and what lives cannot be judged from a standby.  After
# promotion the new primary goes on.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use IdemTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# The standby compares every page that it replays with the primary's.
my $primary = idem_node(
	'primary',
	init => { allows_streaming => 1 },
	conf => "wal_consistency_checking = 'heap,heap2,btree,sequence'\n");

foreach my $access (accesses())
{
	idem_database($primary, "idem_$access", $access);
}
$primary->backup('base');

my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
$standby->start;

# What only reads: query => answer.
my @reads = (
	[
		q{SELECT outcome, attempt, step, response, code FROM idem_lookup('done')},
		'completed|1||byte  for "byte"|201'
	],
	[ q{SELECT count(*) FROM idem_lookup('absent')}, '0' ],
	[
		q{SELECT run, outcome, attempt, response, code, retry_after, expires_at IS NOT NULL FROM idem_claim('done', '{"a":1}')},
		'f|completed|1|byte  for "byte"|201||t'
	],
	[
		q{SELECT run, outcome, response FROM idem_claim('done', '{ "a" : 1.0 }', lease => '1 h')},
		'f|completed|byte  for "byte"'
	],
	[
		q{SELECT run, outcome, response FROM idem_claim('done', '{"a":2}')},
		'f|mismatch|'
	],
	[
		q{SELECT run, outcome, response, code FROM idem_claim('failed')},
		'f|failed|no funds|402'
	],
	[
		q{SELECT run, outcome, fence, step, progress, retry_after BETWEEN 1 AND 3600 FROM idem_claim('leased')},
		'f|in_progress||||t'
	],
	[
		q{SELECT run, outcome, retry_after >= 1 FROM idem_claim('session')},
		'f|in_progress|t'
	],
	[
		q{SELECT run, outcome, retry_after > 60 FROM idem_claim('later')},
		'f|in_progress|t'
	],
	[ q{SELECT idem_once('done')}, 'f' ],
	[ q{SELECT count(*) FROM idem_once_many(ARRAY['done', 'failed'])}, '0' ],
	[ q{SELECT count(*) FROM idem_unfinished()}, '0' ],
	[ q{SELECT key FROM idem.held ORDER BY 1}, "leased\nrun out\nsession" ],
	[ q{SET idem.key = 'done'; SELECT outcome FROM idem_claim()}, 'completed' ]);

# What would write.
my @writes = (
	q{idem_claim('new')},
	q{idem_claim('new', lease => '1 h')},
	q{idem_claim('new', hold => 'session')},
	q{idem_claim('open')},
	q{idem_claim('run out', lease => '1 h')},
	q{idem_once('new')},
	q{idem_once_many(ARRAY['done', 'new'])},
	q{idem_complete('leased', 'x'::text, fence => 1)},
	q{idem_complete('leased', '{}'::json, fence => 1)},
	q{idem_complete('leased', '{}'::jsonb, fence => 1)},
	q{idem_fail('leased', 'x', fence => 1)},
	q{idem_retry('leased', 'x', fence => 1)},
	q{idem_release('leased', fence => 1)},
	q{idem_renew('leased', '1 h', fence => 1)},
	q{idem_step('leased', 'x', fence => 1)},
	q{idem_forget('done', force => true)},
	q{idem_reopen('failed')},
	q{idem_import('new', 'x')},
	q{idem_import_many(ARRAY['new'], ARRAY['x'])},
	q{idem_fence_advance(10)},
	q{idem_sweep()});

my %holder;
foreach my $access (accesses())
{
	my $db = "idem_$access";

	$primary->safe_psql($db, <<'EOT');
BEGIN;
SELECT run FROM idem_claim('done', '{"a":1}');
SELECT idem_complete('done', 'byte  for "byte"'::text, code => 201);
SELECT run FROM idem_claim('failed');
SELECT idem_fail('failed', 'no funds', code => 402);
SELECT run FROM idem_claim('open');
SELECT idem_release('open');
SELECT run FROM idem_claim('later');
SELECT idem_retry('later', 'busy', after => '1 h');
SELECT run FROM idem_claim('leased', lease => '1 h');
SELECT run FROM idem_claim('run out', lease => '1 ms');
COMMIT;
EOT
	$holder{$access} = session($primary, $db);
	is( ask($holder{$access},
			q{SELECT outcome FROM idem_claim('session', hold => 'session')}),
		'claimed',
		"$access: session claim on the primary");
}
$primary->wait_for_catchup($standby);

foreach my $access (accesses())
{
	my $db = "idem_$access";

	foreach my $case (
		[ $standby, '', 'standby' ],
		[ $standby, 'BEGIN ISOLATION LEVEL REPEATABLE READ;', 'standby RR' ],
		[ $primary, 'BEGIN READ ONLY;', 'READ ONLY' ],
		[
			$primary, 'BEGIN READ ONLY ISOLATION LEVEL SERIALIZABLE;',
			'READ ONLY SERIALIZABLE'
		])
	{
		my ($node, $begin, $name) = @$case;

		my $s = session($node, $db);
		foreach my $read (@reads)
		{
			is(ask($s, "$begin $read->[0]"),
				$read->[1], "$access, $name: $read->[0]");
			ask($s, 'ROLLBACK') if $begin ne '';
		}
		foreach my $write (@writes)
		{
			is(ask($s, "$begin SELECT * FROM $write"),
				'ERROR 25006', "$access, $name: $write is 25006");
			ask($s, 'ROLLBACK') if $begin ne '';
		}
		$s->quit;
	}

	# A replay in a transaction takes no xid.
	is( $primary->safe_psql(
			$db, q{
BEGIN;
SELECT outcome FROM idem_claim('done');
SELECT outcome FROM idem_claim('failed');
SELECT outcome FROM idem_claim('leased');
SELECT outcome FROM idem_claim('done', '{"a":3}');
SELECT outcome FROM idem_claim('session', hold => 'session');
SELECT outcome FROM idem_lookup('done');
SELECT idem_once('done');
SELECT count(*) FROM idem_once_many(ARRAY['done']);
SELECT pg_current_xact_id_if_assigned() IS NULL;
COMMIT;}) =~ s/\n/ /gr,
		'completed failed in_progress mismatch in_progress completed f 0 t',
		"$access: reads take no xid");
}

# What is in flight on the primary is nothing to a reader, and nobody waits.
foreach my $access (accesses())
{
	my $db = "idem_$access";
	my $s = session($primary, $db);

	ask($s, q{BEGIN; SELECT run FROM idem_claim('in flight');
SELECT idem_forget('failed')});
	$primary->safe_psql('postgres', 'SELECT pg_switch_wal()');
	$primary->wait_for_catchup($standby);
	foreach my $case ([ $standby, 'standby' ], [ $primary, 'READ ONLY' ])
	{
		my ($node, $name) = @$case;

		is( $node->safe_psql($db, q{
BEGIN READ ONLY;
SELECT count(*) FROM idem_lookup('in flight');
SELECT outcome FROM idem_claim('failed');}) =~ s/\n/ /r,
			'0 failed',
			"$access, $name: uncommitted work is not seen");
		is( errcode($node, $db, q{BEGIN READ ONLY; SELECT * FROM idem_claim('in flight')}),
			'25006',
			"$access, $name: a claim behind it is 25006");
	}
	ask($s, 'ROLLBACK');
	$s->quit;
}

# Load, replayed with the comparison.
foreach my $access (accesses())
{
	bench_run($primary, "idem_$access", "$access: load", [ '-c', '4', '-t', '150' ],
		<<'EOT');
\set k random(1, 300)
BEGIN;
SELECT run FROM idem_claim('load' || :k) \gset
\if :run
SELECT idem_step('load' || :k, repeat('s', :k));
SELECT idem_complete('load' || :k, repeat('r', 10 * :k));
\endif
SELECT count(*) FROM idem_once_many(ARRAY(SELECT 'm' || i FROM generate_series(:k, :k + 5) AS i), ttl => '1 ms');
COMMIT;
SELECT count(*) FROM idem_sweep(50);
EOT
}
$primary->wait_for_catchup($standby);
foreach my $access (accesses())
{
	is( $standby->safe_psql("idem_$access", 'SELECT k FROM idem.key AS k ORDER BY 1'),
		$primary->safe_psql("idem_$access", 'SELECT k FROM idem.key AS k ORDER BY 1'),
		"$access: the standby has the same rows");
}

# Promotion: the sessions of the old primary are dead, fences go on.
my %highest;
foreach my $access (accesses())
{
	$highest{$access} = $primary->safe_psql("idem_$access",
		q{SELECT max(fence) FROM idem.key});
	$holder{$access}->quit;
}
$primary->wait_for_catchup($standby);
$primary->stop;
$standby->promote;
foreach my $access (accesses())
{
	my $db = "idem_$access";

	is( $standby->safe_psql(
			$db,
			"SELECT outcome, fence > $highest{$access} FROM idem_claim('session', hold => 'session')"
		),
		'takeover|t',
		"$access, promoted: a session claim of the old primary is taken over");
	is( $standby->safe_psql(
			$db,
			"SELECT outcome, fence > $highest{$access} FROM idem_claim('fresh', lease => '1 h')"
		),
		'claimed|t',
		"$access, promoted: fences go on");
	is( $standby->safe_psql(
			$db, q{SELECT outcome, response FROM idem_claim('done')}),
		'completed|byte  for "byte"',
		"$access, promoted: replay");
}
$standby->stop;
done_testing();
