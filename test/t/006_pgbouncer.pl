# Everything works through a transaction-mode pooler: no verb of a transaction
# or lease claim leaves or needs anything in the session.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use IdemTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = idem_node('pooled');
my $pooler = pooler_start($node);
plan skip_all => 'pgbouncer is not installed (package pgbouncer)'
  unless defined $pooler;

each_access(
	$node,
	sub {
		my ($db) = @_;
		my ($a, $b, $c) = map { pooled_session($pooler, $db) } 1 .. 3;

		# One request after another over two server connections.
		is( ask($a, q{
BEGIN;
SELECT set_config('idem.key', 'one', true);
SELECT outcome FROM idem_claim();
SELECT idem_complete(response => 'r1'::text);
COMMIT;}) =~ s/\n/ /gr,
			'one claimed t',
			'claim, work and complete by idem.key');
		is( ask($a, q{SELECT coalesce(idem_key(), '')}),
			'', 'idem.key does not reach the next transaction');
		is(ask($a, 'SELECT * FROM idem_claim()'),
			'ERROR ID400', 'which has no key then');
		is(ask($b, q{SELECT outcome, response FROM idem_claim('one')}),
			'completed|r1', 'replay for another client');

		# Server connections change hands: while the first client keeps one in
		# a transaction, verbs go over the other, and the other way round.
		my %backend;
		my $fence = ask($a,
			q{SELECT fence FROM idem_claim('lease', '{"a":1}', lease => '1 h')});
		ask($b, 'BEGIN');
		$backend{ ask($b, 'SELECT pg_backend_pid()') } = 1;
		is( ask($a, "SELECT idem_step('lease', 'half', fence => $fence)"),
			't', 'step over the free connection');
		$backend{ ask($a, 'SELECT pg_backend_pid()') } = 1;
		ask($a, 'BEGIN');
		$backend{ ask($a, 'SELECT pg_backend_pid()') } = 1;
		ask($b, 'COMMIT');
		is( ask($c, "SELECT idem_renew('lease', '2 h', fence => $fence) > now()"),
			't', 'renew over the other');
		is(ask($c, q{SELECT outcome FROM idem_claim('lease', '{"a":1}')}),
			'in_progress', 'a duplicate sees it');
		is( ask($c, "SELECT idem_complete('lease', 'x'::text, fence => $fence)"),
			't', 'complete over the other');
		ask($a, 'COMMIT');
		is(keys %backend, 2, 'two server connections took part');
		is(ask($a, q{SELECT outcome, response FROM idem_claim('lease', '{"a":1}')}),
			'completed|x', 'replay');

		# A waiting duplicate and its holder.
		ask($a, 'BEGIN');
		ask($a, q{SELECT outcome FROM idem_claim('wait')});
		is(ask($b, q{SELECT outcome FROM idem_claim('wait', wait => '0 s')}),
			'in_progress', 'in flight');
		ask($a, 'ROLLBACK');
		is(ask($b, q{BEGIN; SELECT outcome FROM idem_claim('wait'); ROLLBACK}),
			'claimed', 'free again');

		# A refused COMMIT leaves the server connection fit for the next one.
		ask($a, 'BEGIN');
		ask($a, q{SELECT outcome FROM idem_claim('forgotten')});
		is(ask($a, 'COMMIT'), 'ERROR ID500', 'refused at COMMIT');
		foreach my $s ($a, $b, $c)
		{
			is(ask($s, 'SELECT count(*) FROM idem_unfinished()'),
				'0', 'nothing unfinished afterwards');
		}

		# A client that goes away in the middle of its transaction.
		ask($c, 'BEGIN');
		ask($c, q{SELECT outcome FROM idem_claim('gone')});
		$c->quit;
		is( ask($a, q{BEGIN; SELECT outcome FROM idem_claim('gone', wait => '10 s'); ROLLBACK}),
			'claimed',
			'the key of a client that went away is free');
		$_->quit foreach $a, $b;

		# Many clients over the two connections.
		$node->safe_psql($db, 'CREATE TABLE effect (key text)');
		local $ENV{PGHOST} = $pooler->{host};
		my ($rc, $out, $err) = bench_finish(
			bench_start(
				$node, $db,
				[
					'-h', $pooler->{host}, '-p', $pooler->{port},
					'-U', $pooler->{user}, '-c', '8', '-t', '100', '-M', 'extended'
				],
				<<'EOT'));
\set k random(1, 100)
BEGIN;
SELECT set_config('idem.key', :k::text, true);
SELECT run FROM idem_claim() \gset
\if :run
INSERT INTO effect VALUES (idem_key());
SELECT idem_complete(response => 'r'::text);
\endif
COMMIT;
EOT
		is($rc, 0, 'pgbench through the pooler') or diag($err);
		check_effects($node, $db, q{key ~ '^\d+$'}, 'pooled');
	});

pooler_stop($pooler);
$node->stop;
done_testing();
