# The registry rebuilt under load: REINDEX CONCURRENTLY (two arbiter indexes at
# once), CREATE INDEX CONCURRENTLY, VACUUM FULL, CLUSTER.  No claim is granted
# twice, no statement fails, heap and indexes agree.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use IdemTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = idem_node('maintenance');

my $claims = <<'EOT';
\set k random(1, 20000)
BEGIN;
SELECT run FROM idem_claim('t' || :k) \gset
\if :run
INSERT INTO effect VALUES ('t' || :k);
SELECT idem_complete('t' || :k, 'r' || :k);
\endif
COMMIT;
EOT
my $once = <<'EOT';
\set k random(1, 20000)
WITH o AS (SELECT idem_once('o' || :k) AS run)
INSERT INTO effect SELECT 'o' || :k FROM o WHERE run;
EOT
my $lease = <<'EOT';
\set k random(1, 5000)
SELECT run, coalesce(fence, 0) AS fence FROM idem_claim('l' || :k, lease => '1 min') \gset
\if :run
SELECT idem_renew('l' || :k, '2 min', fence => :fence);
INSERT INTO effect VALUES ('l' || :k);
SELECT idem_complete('l' || :k, (SELECT string_agg(md5('l' || :k || i), '') FROM generate_series(1, 300) AS i), fence => :fence);
\endif
EOT
my $batch = <<'EOT';
\set k random(1, 5000)
INSERT INTO effect SELECT idem_once_many(ARRAY(SELECT 'b' || i FROM generate_series(:k, :k + 20) AS i ORDER BY random()));
EOT

each_access(
	$node,
	sub {
		my ($db) = @_;

		$node->safe_psql($db, 'CREATE TABLE effect (key text)');

		# One session of claims to the end of its transaction, its row moved
		# in between by itself.
		foreach my $move (
			'CLUSTER idem.key USING key_pkey',
			'REINDEX TABLE idem.key',
			'ALTER TABLE idem.key SET UNLOGGED',
			'ALTER TABLE idem.key SET LOGGED')
		{
			is( $node->safe_psql(
					$db, qq{
BEGIN;
SELECT run FROM idem_claim('$move');
$move;
SELECT idem_step('$move', 'moved');
SELECT idem_complete('$move', 'x'::text);
COMMIT;
SELECT outcome, response FROM idem_claim('$move');}) =~ s/\n/ /gr,
				't t t completed|x',
				"complete finds its row after $move");
		}
		is( errcode($node, $db, q{
BEGIN; SELECT run FROM idem_claim('truncated'); TRUNCATE idem.key;
SELECT idem_complete('truncated', 'x'::text);}),
			'ID409',
			'complete after TRUNCATE in the same transaction');
		$node->safe_psql($db, 'TRUNCATE effect, idem.key');

		my $load = bench_start($node, $db, [ '-c', '6', '-T', '8' ],
			[ $claims, 3 ], [ $once, 3 ], [ $lease, 2 ], [ $batch, 1 ]);
		my $end = time + 7;
		my $round = 0;

		while (time < $end)
		{
			foreach my $command (
				'REINDEX TABLE CONCURRENTLY idem.key',
				'CREATE INDEX CONCURRENTLY extra ON idem.key (created_at)',
				'REINDEX INDEX CONCURRENTLY idem.key_pkey',
				'VACUUM FULL idem.key',
				'DROP INDEX CONCURRENTLY idem.extra',
				'CREATE UNIQUE INDEX CONCURRENTLY second ON idem.key (scope, key)',
				'CLUSTER idem.key USING key_pkey',
				'DROP INDEX CONCURRENTLY idem.second',
				'VACUUM idem.key')
			{
				my ($rc, $out, $err) = $node->psql($db, $command);

				is($rc, 0, $command) or diag($err);
			}
			$round++;
		}
		my ($rc, $out, $err) = bench_finish($load);
		is($rc, 0, "claims went on in $round rounds of maintenance")
		  or diag($err);
		unlike($err, qr/ERROR/, 'no statement failed');
		check_effects($node, $db, 'true', 'after the maintenance');
		is( $node->safe_psql(
				$db, <<'EOT'), '', 'responses out of line are whole');
SELECT key FROM idem.key
WHERE key LIKE 'l%' AND response IS DISTINCT FROM
	(SELECT string_agg(md5(key || i), '') FROM generate_series(1, 300) AS i);
EOT
		cmp_ok($node->safe_psql($db, 'SELECT count(*) FROM effect'),
			'>', 500, 'there was work');
		check_storage($node, $db, 'after the maintenance');
	});

$node->stop;
done_testing();
