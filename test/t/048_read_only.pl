# Every verb that writes, on a standby and in a READ ONLY transaction: 25006, and
# the server's log shows neither the statement nor the payloads that stand in its
# text as literals.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use IdemTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = idem_node('primary', init => { allows_streaming => 1 });
my $db = idem_database($node, 'ro');

$node->safe_psql($db, <<'EOT');
CREATE TABLE t (id int PRIMARY KEY, state text, version bigint NOT NULL DEFAULT 1, fence bigint, v2 bigint NOT NULL DEFAULT 1, s2 text);
INSERT INTO t VALUES (1, 'a', 1, 1, 1, 'a');
CREATE FUNCTION f(x text) RETURNS text LANGUAGE sql AS 'SELECT x';
SELECT idem_define('m', E'stateDiagram-v2\n[*] --> a\na --> b : go');
SELECT idem_attach('m', 't', 'state');
SELECT idem_attach_version('t', 'version');
SELECT idem_attach_fence('t', 'fence');
SELECT idem_wrap('f(text)');
EOT

# verb => call with a literal that must not be seen, or none where it takes nothing
# that could be one
my %writes = (
	idem_claim => [q{idem_claim('SECRET')}],
	idem_claim_key => [q{idem_claim_key('SECRET')}],
	idem_complete => [ map { "idem_complete('SECRET', $_, fence => 77001177)" } q{'SECRET'::text}, q{'"SECRET"'::json}, q{'"SECRET"'::jsonb} ],
	idem_fail => [q{idem_fail('SECRET', 'SECRET', fence => 77001177)}],
	idem_retry => [q{idem_retry('SECRET', 'SECRET', fence => 77001177)}],
	idem_release => [q{idem_release('SECRET', fence => 77001177)}],
	idem_renew => [q{idem_renew('SECRET', fence => 77001177)}],
	idem_step => [q{idem_step('SECRET', 'SECRET', '"SECRET"', fence => 77001177)}],
	idem_once => [q{idem_once('SECRET')}],
	idem_once_many => [q{idem_once_many('{SECRET}')}],
	idem_forget => [q{idem_forget('SECRET')}],
	idem_reopen => [q{idem_reopen('SECRET')}],
	idem_import => [q{idem_import('SECRET', 'SECRET')}],
	idem_import_many => [q{idem_import_many('{SECRET}', '{SECRET}')}],
	idem_fence_advance => [q{idem_fence_advance(77001177)}],
	idem_call => [q{idem_call('SECRET', 'f(text)', '{"x": "SECRET"}')}],
	idem_wrap => [q{idem_wrap('f(text)', 'other')}],
	idem_attach_once => [q{idem_attach_once('t', '{id}', scope => 'SECRET')}],
	idem_detach_once => [q{idem_detach_once('t')}],
	idem_define => [q{idem_define('SECRET', E'stateDiagram-v2\n[*] --> SECRET')}],
	idem_attach => [q{idem_attach('m', 't', 's2')}],
	idem_detach => [q{idem_detach('t', 'state')}],
	idem_fire => [ map { "idem_fire('t', $_, 'go', key => 'SECRET', context => '\"SECRET\"')" } '1', q{'1'} ],
	idem_try_fire => [ map { "idem_try_fire('t', $_, 'go', key => 'SECRET', context => '\"SECRET\"')" } '1', q{'1'} ],
	idem_fire_many => [ map { "idem_fire_many('t', $_, 'go', key => 'SECRET', context => '\"SECRET\"')" } 'ARRAY[1]', q{'{1}'} ],
	idem_tick => ['idem_tick()'],
	idem_attach_version => [q{idem_attach_version('t', 'v2')}],
	idem_detach_version => [q{idem_detach_version('t')}],
	idem_update => [ map { "idem_update('t', $_, 1, '{\"s2\": \"SECRET\"}')" } '1', q{'1'} ],
	idem_delete => [ map { "idem_delete('t', $_, 1)" } '1', q{'1'} ],
	idem_token_issue => [q{idem_token_issue('SECRET', 'SECRET', '"SECRET"')}],
	idem_token_use => [q{idem_token_use('SECRET', 'SECRET', 'SECRET', '"SECRET"')}],
	idem_lease_acquire => [q{idem_lease_acquire('SECRET', '1 h', owner => 'SECRET')}],
	idem_lease_renew => [q{idem_lease_renew('SECRET', '1 h', 77001177)}],
	idem_lease_release => [q{idem_lease_release('SECRET', 77001177)}],
	idem_lease_guard => [q{idem_lease_guard('SECRET', 77001177)}],
	idem_lease_break => [q{idem_lease_break('SECRET')}],
	idem_attach_fence => [q{idem_attach_fence('t', 'v2')}],
	idem_detach_fence => [q{idem_detach_fence('t', 'fence')}],
	idem_window => [q{idem_window('SECRET', '1 h')}],
	idem_branch => [q{idem_branch('SECRET', 'SECRET', 'try')}],
	idem_sweep => ['idem_sweep()'],
	idem_grant => [q{idem_grant('pg_monitor')}],
	idem_revoke => [q{idem_revoke('pg_monitor')}]);

# those that are no C, or read a table first: PostgreSQL refuses them, and there is
# nothing secret in them
my %by_postgres = map { $_ => 1 } qw(idem_grant idem_revoke idem_attach_fence idem_detach_fence);

# what reads, or writes to shared memory, or is called by triggers, twins and indexes only
my @reads = qw(idem_stats idem_stats_reset idem_refusals idem_sweep_progress idem_token_peek idem_lookup idem_unfinished idem_diagram idem_lint idem_export idem_twin idem_twin_value idem_inserted_cmp);

is( $node->safe_psql($db, <<"EOT"), '', 'every volatile function is one that this test knows');
SELECT DISTINCT p.proname FROM pg_depend AS d JOIN pg_proc AS p ON p.oid = d.objid
WHERE d.classid = 'pg_proc'::regclass AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'idem') AND d.deptype = 'e'
AND p.provolatile = 'v' AND p.prorettype <> 'trigger'::regtype
AND p.proname <> ALL ('{@{[ join ',', keys %writes, @reads ]}}') ORDER BY 1
EOT

$node->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'base', has_streaming => 1);
$standby->start;
$node->wait_for_catchup($standby);

foreach my $case ([ $standby, 'standby', '' ], [ $node, 'READ ONLY', 'BEGIN READ ONLY;' ])
{
	my ($where, $name, $begin) = @$case;

	foreach my $access (accesses())
	{
		foreach my $verb (sort keys %writes)
		{
			next if $by_postgres{$verb} && $access ne 'direct';
			foreach my $call (@{ $writes{$verb} })
			{
				my $offset = -s $where->logfile;

				is(errcode($where, $db, "SET idem.access = $access;\n$begin\nSELECT $call"),
					'25006', "$name, $access: $call");
				my $log = substr(slurp_file($where->logfile), $offset);
				like($log, qr/ERROR: +cannot execute/, "$verb: the log tells of it");
				unlike($log, qr/SECRET|77001177/, "$verb: and of nothing secret");
				unlike($log, qr/STATEMENT/, "$verb: nor of the statement") unless $by_postgres{$verb};
			}
		}
		my $offset = -s $where->logfile;
		is(errcode($where, $db, "SET idem.access = $access;\n$begin\nSELECT f_once('SECRET', 'SECRET')"), '25006', "$name, $access: a twin");
		unlike(substr(slurp_file($where->logfile), $offset), qr/SECRET/, 'a twin: and of nothing secret');
	}
}

$standby->stop;
$node->stop;
done_testing();
