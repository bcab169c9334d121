# Load at READ COMMITTED, REPEATABLE READ and SERIALIZABLE at once: no double
# claim, and replays over the direct way never fail to serialize.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use IdemTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = idem_node('isolation', conf => "deadlock_timeout = 20ms\n");

each_access(
	$node,
	sub {
		my ($db, $access) = @_;
		my @levels = ('READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE');

		$node->safe_psql($db, <<'EOT');
CREATE TABLE effect (key text);
SELECT count(*) FROM idem_once_many(ARRAY(SELECT 'done' || i FROM generate_series(1, 200) AS i));
EOT
		my @claims = map { <<"EOT" } @levels;
\\set k random(1, 800)
BEGIN ISOLATION LEVEL $_;
SELECT count(*) FROM pg_class;
SELECT run FROM idem_claim('t' || :k) \\gset
\\if :run
INSERT INTO effect VALUES ('t' || :k);
SELECT idem_complete('t' || :k, 'r' || :k);
\\endif
COMMIT;
EOT
		my @once = map { <<"EOT" } @levels;
\\set k random(1, 800)
BEGIN ISOLATION LEVEL $_;
INSERT INTO effect SELECT idem_once_many(ARRAY(SELECT 'm' || i FROM generate_series(:k, :k + 3) AS i ORDER BY random()));
COMMIT;
EOT
		# Two keys at once, in whatever order: PostgreSQL ends deadlocks.
		my @pairs = map { <<"EOT" } @levels;
\\set k random(1, 100)
\\set l random(1, 100)
BEGIN ISOLATION LEVEL $_;
SELECT run AS r1 FROM idem_claim('p' || :k) \\gset
\\if :r1
INSERT INTO effect VALUES ('p' || :k);
SELECT idem_complete('p' || :k, 'r'::text);
\\endif
SELECT run AS r2 FROM idem_claim('p' || :l) \\gset
\\if :r2
INSERT INTO effect VALUES ('p' || :l);
SELECT idem_complete('p' || :l, 'r'::text);
\\endif
COMMIT;
EOT
		my @replays = map { <<"EOT" } @levels;
\\set k random(1, 200)
BEGIN ISOLATION LEVEL $_;
SELECT 1 / (outcome = 'completed')::int FROM idem_claim('done' || :k);
SELECT 1 / (NOT idem_once('done' || :k))::int;
SELECT 1 / (count(*) = 1)::int FROM idem_lookup('done' || :k);
COMMIT;
EOT
		my $load = bench_start($node, $db,
			[ '-c', '6', '-T', '4', '--max-tries=1000' ],
			@claims, @once, @pairs);
		my ($rc, $out, $err) = bench_finish(
			bench_start(
				$node, $db,
				[
					'-c', '2', '-T', '3',
					$access eq 'direct' ? () : ('--max-tries=1000')
				],
				@replays));
		is($rc, 0, 'replays') or diag($err);
		unlike($err, qr/ERROR|aborted/, 'replays do not fail');
		($rc, $out, $err) = bench_finish($load);
		is($rc, 0, 'claims') or diag($err);
		unlike($err, qr/aborted/, 'claims fail to serialize at worst');
		check_effects($node, $db, q{key NOT LIKE 'done%'}, 'after the load');
		check_storage($node, $db, 'after the load');
	});

$node->stop;
done_testing();
