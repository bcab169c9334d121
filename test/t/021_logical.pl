# idem.key published and subscribed to: what the direct way writes decodes like
# any other change, and the subscriber answers replays.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use IdemTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $publisher = idem_node('publisher', init => { allows_streaming => 'logical' });
my $subscriber = idem_node('subscriber', init => { allows_streaming => 'logical' });

foreach my $access (accesses())
{
	my $db = "idem_$access";
	my $connstr = $publisher->connstr($db) =~ s/'/''/gr;

	idem_database($_, $db, $access) foreach $publisher, $subscriber;
	$publisher->safe_psql($db, q{
SELECT idem_once('before');
CREATE PUBLICATION registry FOR TABLE idem.key});
	$subscriber->safe_psql($db,
		"CREATE SUBSCRIPTION registry_$access CONNECTION '$connstr' PUBLICATION registry");
	$subscriber->wait_for_subscription_sync($publisher, "registry_$access", $db);

	bench_run($publisher, $db, "$access: load", [ '-c', '4', '-t', '100' ],
		<<'EOT', <<'EOT2');
\set k random(1, 100)
BEGIN;
SELECT run FROM idem_claim('t' || :k, '{"a": 1}') \gset
\if :run
SAVEPOINT s;
SELECT idem_step('t' || :k, 'undone');
ROLLBACK TO s;
SELECT idem_step('t' || :k, repeat('s', :k));
SELECT idem_complete('t' || :k, (SELECT string_agg(md5(:k || '.' || i), '') FROM generate_series(1, 2 * :k) AS i));
\endif
COMMIT;
EOT
\set k random(1, 100)
SELECT run, coalesce(fence, 0) AS fence FROM idem_claim('l' || :k, lease => '1 h') \gset
\if :run
SELECT idem_retry('l' || :k, fence => :fence);
\endif
SELECT count(*) FROM idem_once_many(ARRAY(SELECT 'm' || i FROM generate_series(:k, :k + 5) AS i ORDER BY random()), ttl => '1 ms');
SELECT count(*) FROM idem_sweep(20);
EOT2
	$publisher->wait_for_catchup("registry_$access");
	is( $subscriber->safe_psql($db, 'SELECT k FROM idem.key AS k ORDER BY 1'),
		$publisher->safe_psql($db, 'SELECT k FROM idem.key AS k ORDER BY 1'),
		"$access: the subscriber has the same rows");
	is( $subscriber->safe_psql($db, q{
SELECT idem_once('before');
SELECT count(DISTINCT c.outcome), min(c.outcome), bool_and(c.response = k.response)
FROM idem.key AS k, idem_claim(k.key, '{"a": 1}') AS c WHERE k.key LIKE 't%';
SELECT DISTINCT outcome FROM idem.key AS k, idem_claim(k.key, '{"a": 2}') AS c WHERE k.key LIKE 't%'}),
		"f\n1|completed|t\nmismatch",
		"$access: and answers replays");
	check_storage($subscriber, $db, "$access, subscriber");
	$subscriber->safe_psql($db, "DROP SUBSCRIPTION registry_$access");
}

$subscriber->stop;
$publisher->stop;
done_testing();
