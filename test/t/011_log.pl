# The server log at default settings: contended claims leave no ERROR line, and
# no key, payload or response stands in it, whatever goes wrong.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use IdemTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = idem_node('log', conf => "deadlock_timeout = 100ms\n");

each_access(
	$node,
	sub {
		my ($db) = @_;
		my $offset = -s $node->logfile;

		# 10,000 contended claims.
		bench_run($node, $db, 'contended claims',
			[ '-c', '10', '-t', '1000', '-M', 'prepared' ], <<'EOT');
\set k random(1, 300)
BEGIN;
SELECT run FROM idem_claim('SECRET-' || :k, '{"card": "SECRET"}') \gset
\if :run
SELECT idem_complete('SECRET-' || :k, 'SECRET response'::text);
\endif
COMMIT;
EOT
		is( $node->safe_psql($db, q{SELECT count(*) FROM idem.key WHERE state = 'completed'}),
			'300',
			'all keys were completed');
		my $log = slurp_file($node->logfile, $offset);
		unlike($log, qr/ERROR|FATAL|WARNING/, 'no ERROR line in the log');
		unlike($log, qr/SECRET/, 'nothing of the claims in the log');

		# Every error a claim can meet, with parameters and with literals.
		$node->safe_psql($db, <<'EOT');
CREATE ROLE regress_idem_other;
INSERT INTO idem.scope (name, max_response) VALUES ('small', 10);
INSERT INTO idem.scope (name, roles) VALUES ('closed', '{regress_idem_other}');
SELECT run FROM idem_claim('SECRET-leased', lease => '1 h');
SELECT run FROM idem_import('SECRET-done', 'SECRET') AS run;
CREATE TABLE fenced (fence bigint NOT NULL, t text);
SELECT idem_attach_fence('fenced', 'fence');
INSERT INTO fenced VALUES (9);
EOT
		my @errors = (
			[ 'ID400', 'SELECT * FROM idem_claim(repeat(:key, 200))' ],
			[ 'ID400', q{SELECT * FROM idem_claim(:key, scope => repeat(:key, 20))} ],
			[ 'ID400', q{SELECT idem_complete('SECRET-leased', :key)} ],
			[ 'ID409', q{SELECT idem_complete(:key, :key)} ],
			[ 'ID409', q{SELECT idem_complete(:key, :key, fence => 77001177)} ],
			[ 'ID409', q{SELECT idem_complete('SECRET-leased', :key, fence => 77001177)} ],
			[ 'ID409', q{SELECT idem_fail(:key, :key)} ],
			[ 'ID409', q{SELECT idem_step(:key, :key)} ],
			[ 'ID409', q{SELECT idem_renew(:key, fence => 77001177)} ],
			[ 'ID409', q{SELECT idem_release(:key, fence => 77001177)} ],
			[ 'ID409', q{SELECT idem_retry(:key, :key, fence => 77001177)} ],
			[ 'ID404', 'SELECT idem_forget(:key)' ],
			[ 'ID409', q{SELECT idem_forget('SECRET-done')} ],
			[ 'ID404', 'SELECT idem_reopen(:key)' ],
			[
				'ID500',
				q{WITH c AS MATERIALIZED (SELECT run FROM idem_claim(:key, scope => 'small')) SELECT idem_complete(:key, :key || ' is too long', scope => 'small') FROM c WHERE run}
			],
			[ 'ID500', q{SELECT * FROM idem_claim(:key)} ],
			[ 'ID400', 'SELECT idem_lease_acquire(:key, NULL)' ],
			[ 'ID400', q{SELECT idem_lease_acquire(:key, '1 h', owner => repeat(:key, 200))} ],
			[ 'ID400', 'SELECT idem_lease_renew(:key, NULL, 77001177)' ],
			[ 'ID400', 'SELECT idem_lease_release(:key, NULL)' ],
			[ 'ID412', 'SELECT idem_lease_guard(:key, 77001177)' ],
			[ 'ID404', 'SELECT idem_lease_break(:key)' ],
			[ 'ID400', 'SELECT idem_token_issue(:key, NULL, replace => true)' ],
			[ 'ID400', 'SELECT idem_token_use(:key, NULL)' ],
			[ 'ID400', 'SELECT idem_token_peek(:key, NULL)' ],
			[ 'ID400', 'SELECT idem_window(:key, NULL)' ],
			[ 'ID400', q{SELECT idem_window(:key, '1 h', max => 10001)} ],
			[ 'ID400', q{SELECT idem_branch(:key, :key, :key)} ],
			[ 'ID400', q{SELECT idem_branch(:key, :key, 'try', 0)} ],
			[ 'ID400', q{SELECT idem_sweep(0) WHERE :key <> ''} ],
			[ 'ID400', q{SELECT idem_fence_advance(0) WHERE :key <> ''} ],
			[ 'ID412', q{UPDATE fenced SET fence = 1, t = :key} ]);
		$node->append_conf('postgresql.conf', "log_error_verbosity = verbose\n");
		$node->reload;
		$offset = -s $node->logfile;
		foreach my $case (@errors)
		{
			my ($code, $sql) = @$case;

			foreach my $mode ('extended', 'prepared', 'simple')
			{
				my ($rc, $out, $err) = bench_finish(
					bench_start(
						$node, $db,
						[ '-t', '1', '-M', $mode, '-D', q{key='SECRET-absent'} ],
						$mode eq 'simple' ? "$sql;\n"
						: "SELECT 'SECRET-absent' AS key \\gset\n$sql;\n"));

				$offset = check_error($node, $code, "$mode: $sql", $rc, $err,
					$offset);
			}
		}

		# A lease that was taken after the snapshot, and tables that their owner altered.
		my $old = session($node, $db);
		$node->safe_psql($db, q{SELECT fence FROM idem_lease_acquire('SECRET-lease', '1 h')});
		ask($old, 'BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1');
		$node->safe_psql($db, q{SELECT idem_lease_break('SECRET-lease')});
		$offset = -s $node->logfile;
		is(ask($old, q{SELECT run FROM idem_lease_acquire('SECRET-lease', '1 h')}), 'ERROR 40001', 'an old snapshot');
		$old->quit;
		foreach my $case (
			[ 'lease', q{idem_lease_acquire('SECRET-x', '1 h')} ],
			[ 'token', q{idem_token_issue('SECRET-x')} ],
			[ 'window_hit', q{idem_window('SECRET-x', '1 h')} ],
			[ 'branch', q{idem_branch('SECRET-x', 'b', 'try')} ])
		{
			my ($table, $call) = @$case;

			is(errcode($node, $db, "BEGIN; ALTER TABLE idem.$table ADD COLUMN more int; SELECT $call"), '55000', "altered: $call");
		}
		foreach my $case (
			[ 'token', 'subject', q{idem_token_issue('SECRET-x')} ],
			$db =~ /sql/ ? () : [ 'key', 'fingerprint', q{idem_claim('SECRET-x')} ])
		{
			my ($table, $column, $call) = @$case;

			is(errcode($node, $db, "BEGIN; ALTER TABLE idem.$table ALTER $column SET NOT NULL; SELECT $call"), '23502', "not null: $call");
		}
		unlike(slurp_file($node->logfile, $offset), qr/SECRET/, 'nothing of it in the log');
		$offset = -s $node->logfile;

		# A role without the scope.
		$node->safe_psql($db, <<'EOT');
CREATE ROLE regress_idem_app LOGIN;
SELECT idem_grant('regress_idem_app');
EOT
		is( errcode($node, $db, q{SELECT * FROM idem_claim('SECRET-x', scope => 'closed')},
				extra_params => [ '-U', 'regress_idem_app' ]),
			'42501', 'scope role');
		unlike(slurp_file($node->logfile, $offset),
			qr/SECRET/, 'nothing of it in the log');
		$offset = -s $node->logfile;

		# Waiting: timeouts, cancel, and PostgreSQL's own deadlock report.
		my ($a, $b) = map { session($node, $db) } 1, 2;
		my $b_pid = session_pid($b);
		ask($a, q{BEGIN; SELECT run FROM idem_claim('SECRET-a')});
		is(ask($b, q{SET lock_timeout = '10 ms'; SELECT run FROM idem_claim('SECRET-a')}),
			'ERROR 55P03', 'lock_timeout');
		is(ask($b, q{RESET lock_timeout; SET statement_timeout = '10 ms'; SELECT run FROM idem_claim('SECRET-a')}),
			'ERROR 57014', 'statement_timeout');
		ask($b, 'RESET statement_timeout');
		ask_later($b, q{SELECT run FROM idem_claim('SECRET-a')});
		wait_blocked($node, $b_pid);
		$node->safe_psql($db, "SELECT pg_cancel_backend($b_pid)");
		is(answer($b), 'ERROR 57014', 'cancel');
		is(ask($a, 'COMMIT'), 'ERROR ID500', 'unfinished');
		$_->quit foreach $a, $b;
		$log = slurp_file($node->logfile, $offset);
		$log =~ s/^.*STATEMENT:.*$//mg;
		unlike($log, qr/SECRET/, 'messages, details and contexts hold no key');

		$node->safe_psql($db, 'DROP OWNED BY regress_idem_app; DROP ROLE regress_idem_app; DROP ROLE regress_idem_other');
		$node->append_conf('postgresql.conf', "log_error_verbosity = default\n");
		$node->reload;
	});

# The error came, and the log holds nothing secret beside it.
sub check_error
{
	my ($node, $code, $name, $rc, $err, $offset) = @_;
	my $log = slurp_file($node->logfile, $offset);

	isnt($rc, 0, "$name fails");
	unlike($err, qr/SECRET|77001177/, "$name: nothing secret in the message");
	like($log, qr/ERROR:  $code/, "$name: $code");
	unlike($log, qr/SECRET|77001177/, "$name: nothing secret in the log");
	return -s $node->logfile;
}

$node->stop;
done_testing();
