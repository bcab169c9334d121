# A row that is written all the time, with values of changing size so that it
# moves from page to page, is found by every reader (lookup, replay, and in READ
# ONLY transactions, at every isolation level) and by its holder's verbs.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use IdemTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = idem_node('moving');

my $writer = <<'EOT';
\set k random(1, 4)
\set size random(1, 1500)
SELECT fence FROM idem.key WHERE key = 'k' || :k \gset
SELECT idem_step('k' || :k, repeat('s', :size), NULL, NULL, :fence);
EOT
my $renewer = <<'EOT';
\set k random(1, 4)
SELECT fence FROM idem.key WHERE key = 'k' || :k \gset
SELECT idem_renew('k' || :k, '1 h', fence => :fence) IS NOT NULL;
EOT
my $reader = <<'EOT';
\set k random(1, 10)
SELECT 1 / (count(*) = 1)::int FROM idem_lookup('k' || :k);
SELECT 1 / (outcome = 'in_progress')::int FROM idem_claim('k' || :k, lease => '1 h');
SELECT 1 / (NOT idem_once('k' || :k))::int;
SELECT 1 / (count(*) = 0)::int FROM idem_once_many(ARRAY(SELECT 'k' || i FROM generate_series(1, 10) AS i));
EOT

each_access(
	$node,
	sub {
		my ($db) = @_;

		# Without room on their page rows move more often.
		$node->safe_psql($db, 'ALTER TABLE idem.key SET (fillfactor = 100)');
		$node->safe_psql($db,
			q{SELECT count(*) FROM generate_series(1, 10) AS i, idem_claim('k' || i, lease => '1 h')});
		my $load = bench_start($node, $db, [ '-c', '4', '-T', '6' ],
			$writer, $renewer);
		bench_run(
			$node, $db,
			'readers',
			[ '-c', '3', '-T', '5' ],
			$reader,
			"BEGIN READ ONLY;\n${reader}COMMIT;\n",
			"BEGIN ISOLATION LEVEL REPEATABLE READ;\nSELECT 1;\n${reader}COMMIT;\n",
			"BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY;\nSELECT 1;\n${reader}COMMIT;\n");
		my ($rc, $out, $err) = bench_finish($load);
		is($rc, 0, 'writers') or diag($err);
		is( $node->safe_psql($db, 'SELECT count(*), count(DISTINCT key), max(attempt) FROM idem.key'),
			'10|10|1',
			'nothing was inserted beside them');
		check_storage($node, $db, 'afterwards');
	});

$node->stop;
done_testing();
