# A row that is written all the time, with values of changing size so that it
# moves from page to page, is found by every reader (lookup, replay, and in READ
# ONLY transactions, at every isolation level) and by its holder's verbs; so are
# leases, tokens and branches.

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

# The other families' tables have one way only.  Their owner's updates make the rows move.
my $db = idem_database($node, 'families', undef);
$node->safe_psql($db, <<'EOT');
ALTER TABLE idem.lease SET (fillfactor = 100);
ALTER TABLE idem.token SET (fillfactor = 100);
ALTER TABLE idem.branch SET (fillfactor = 100);
CREATE TABLE given AS SELECT i, (idem_lease_acquire('l' || i, '1 h', owner => repeat('o', 900))).fence, idem_token_issue('p', ttl => '1 h') AS token
FROM generate_series(1, 10) AS i;
UPDATE idem.token SET fingerprint = decode('00', 'hex');
SELECT idem_branch(repeat('s', 900) || i, 'b', op) FROM generate_series(1, 10) AS i, unnest('{try,confirm}'::text[]) AS op;
EOT
my $mover = <<'EOT';
\set k random(1, 10)
\set size random(1, 1000)
UPDATE idem.lease SET owner = repeat('o', :size) WHERE name = 'l' || :k;
UPDATE idem.token SET fingerprint = decode(repeat('00', :size), 'hex') WHERE hash = (SELECT sha256(token::bytea) FROM given WHERE i = :k);
UPDATE idem.branch SET expires_at = CASE WHEN :size > 500 THEN 'infinity'::timestamptz END WHERE saga = repeat('s', 900) || :k;
EOT
my $finder = <<'EOT';
\set k random(1, 10)
SELECT 1 / idem_lease_guard('l' || i, fence)::int FROM given WHERE i = :k;
SELECT 1 / (idem_token_peek(token, 'p') <> 'unknown')::int FROM given WHERE i = :k;
SELECT 1 / (idem_token_use(token, 'p') = 'mismatch')::int FROM given WHERE i = :k;
SELECT 1 / (idem_branch(repeat('s', 900) || :k, 'b', 'confirm') = 'duplicate')::int;
EOT
my $renewer2 = <<'EOT';
\set k random(1, 10)
SELECT 1 / ((idem_lease_renew('l' || i, '1 h', fence)).outcome = 'renewed')::int FROM given WHERE i = :k;
EOT
my $moves = bench_start($node, $db, [ '-c', '4', '-T', '6' ], $mover);
bench_run($node, $db, 'leases, tokens and branches are found', [ '-c', '3', '-T', '5' ], $finder, $renewer2);
my ($rc, $out, $err) = bench_finish($moves);
is($rc, 0, 'their owner') or diag($err);
is($node->safe_psql($db, q{SELECT count(*) FROM idem.lease UNION ALL SELECT count(*) FROM idem.token UNION ALL SELECT count(*) FROM idem.branch}),
	"10\n10\n10", 'nothing was inserted beside them');
cmp_ok($node->safe_psql($db, q{SELECT pg_stat_force_next_flush(); SELECT sum(n_tup_upd - n_tup_hot_upd) FROM pg_stat_user_tables WHERE schemaname = 'idem'} =~ s/^.*?; //r), '>', 100, 'they did move');

$node->stop;
done_testing();
