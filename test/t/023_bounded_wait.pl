# Bounded waits that end in the same instant as what they wait for: the answer
# is a verdict, never an error, in whatever way the row is being written.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use IdemTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = idem_node('wait');

# Holders last about as long as waits: the claim is released (the next one
# updates its row), rolled back (the next one inserts), or forgotten.
my @scripts = map { <<"EOT" }
\\set k random(1, 3)
\\set wait random(0, 4)
\\set work random(0, 2500)
BEGIN;
SELECT run FROM idem_claim('$_->[0]' || :k, wait => format('%s ms', :wait)::interval) \\gset
\\if :run
SELECT pg_sleep(:work / 1000000.0);
$_->[1]
\\endif
COMMIT;
EOT
  [ 'u', q{SELECT idem_release('u' || :k);} ],
  [ 'r', 'ROLLBACK; BEGIN;' ],
  [ 'd', q{SELECT idem_forget('d' || :k, force => true);} ];

# Sweeps and leases beside them.
push @scripts, <<'EOT', <<'EOT2';
\set k random(1, 3)
\set wait random(0, 4)
SELECT outcome FROM idem_claim('l' || :k, lease => '1 ms', ttl => '1 ms', wait => format('%s ms', :wait)::interval);
EOT
SELECT count(*) FROM idem_sweep(10);
EOT2

each_access(
	$node,
	sub {
		my ($db) = @_;

		bench_run($node, $db, 'bounded waits', [ '-c', '16', '-T', '5' ],
			@scripts);
		is( $node->safe_psql(
				$db,
				q{SELECT count(*) FROM idem.key WHERE state = 'in_progress' AND hold = 'transaction'}
			),
			'0',
			'nothing is left in progress');
		check_storage($node, $db, 'afterwards');
	});

$node->stop;
done_testing();
