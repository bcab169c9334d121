# Every verb called as drivers call it: extended protocol, untyped parameters
# only, named and unnamed statements (pgbench -M extended and prepared send no
# types), results as text.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use IdemTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = idem_node('untyped');

# A variable is sent as an untyped parameter.  Each result is checked by the
# division, which fails where it is not what it should be.
my $script = <<'EOT';
SELECT 'k-MODE' AS k, '{"a": 1}' AS req, '{"a": 2}' AS other, 's/t' AS scope, '1 h' AS h, '0 s' AS none,
	'lease' AS lease, 'session' AS session, 'r' AS r, '201' AS code, 'half' AS step, '{"n": 1}' AS progress,
	'{k-MODE,b-MODE,a-MODE}' AS keys, '{NULL,x,y}' AS responses, 'true' AS yes, '2020-01-01 00:00:00Z' AS at \gset
BEGIN;
SELECT set_config('idem.key', :k, true);
SELECT outcome FROM idem_claim() \gset
SELECT 1 / (:outcome = 'claimed')::int;
SELECT idem_complete(response => :r) AS ok \gset
SELECT 1 / (:ok = 't')::int;
COMMIT;
SELECT outcome, response FROM idem_claim(:k) \gset
SELECT 1 / (:outcome = 'completed' AND :response = 'r')::int;
SELECT idem_forget(:k, NULL, :yes) AS ok \gset
BEGIN;
SELECT outcome FROM idem_claim(:k, :req, :scope, NULL, NULL, :h, :none) \gset
SELECT 1 / (:outcome = 'claimed')::int;
SELECT count(*) AS n FROM idem_unfinished() \gset
SELECT 1 / (:n = '1')::int;
SELECT idem_step(:k, :step, :progress, :scope) AS ok \gset
SELECT idem_complete(:k, :r, :scope, NULL, :code) AS ok \gset
COMMIT;
SELECT outcome, response, code AS c FROM idem_claim(:k, :req, :scope) \gset
SELECT 1 / (:outcome = 'completed' AND :response = 'r' AND :c = '201')::int;
SELECT outcome FROM idem_claim(:k, :other, :scope) \gset
SELECT 1 / (:outcome = 'mismatch')::int;
SELECT outcome, step AS st, progress AS p FROM idem_lookup(:k, :scope) \gset
SELECT 1 / (:outcome = 'completed')::int;
SELECT outcome, fence FROM idem_claim(:lease, :req, :scope, :lease, :h) \gset
SELECT 1 / (:outcome = 'claimed')::int;
SELECT outcome, retry_after FROM idem_claim(:lease, request => :req, scope => :scope, lease => :h, wait => :none) \gset
SELECT 1 / (:outcome = 'in_progress' AND :retry_after::int BETWEEN 1 AND 3600)::int;
SELECT idem_renew(:lease, :h, :scope, :fence) AS until \gset
SELECT idem_retry(:lease, :r, :scope, :fence, :none) AS ok \gset
SELECT outcome, attempt, fence FROM idem_claim(:lease, scope => :scope, lease => :h) \gset
SELECT 1 / (:outcome = 'claimed' AND :attempt = '2')::int;
SELECT idem_complete(:lease, :progress::json, :scope, :fence, :code) AS ok \gset
SELECT idem_complete(:lease, :progress::json, :scope, :fence, :code) AS ok \gset
SELECT idem_forget(:lease, scope => :scope, force => :yes) AS ok \gset
SELECT outcome FROM idem_claim(:session, hold => :session) \gset
SELECT 1 / (:outcome = 'claimed')::int;
SELECT idem_release(:session) AS ok \gset
SELECT outcome FROM idem_claim(:session, hold => :session) \gset
SELECT idem_fail(:session, :r, NULL, NULL, :code) AS ok \gset
SELECT outcome, response, code AS c FROM idem_claim(:session) \gset
SELECT 1 / (:outcome = 'failed' AND :response = 'r' AND :c = '201')::int;
SELECT idem_reopen(:session, NULL) AS ok \gset
SELECT idem_forget(:session) AS ok \gset
SELECT idem_once(:r, :scope, :h) AS ok, idem_once(:r, :scope, :h) AS again \gset
SELECT 1 / (:ok = 't' AND :again = 'f')::int;
SELECT idem_forget(:r, :scope, :yes) AS ok \gset
SELECT count(*) AS n FROM idem_once_many(:keys, :scope, :h) \gset
SELECT 1 / (:n = '2')::int;
SELECT idem_import(:k, :r, NULL, :at, '1000 years') AS ok \gset
SELECT 1 / (:ok = 't')::int;
SELECT idem_import_many(:keys, :responses, NULL, :at, '1000 years') AS n \gset
SELECT 1 / (:n = '2')::int;
SELECT count(*) AS n FROM idem.held WHERE scope = :scope AND key = :k \gset
SELECT sum(removed) AS n FROM idem_sweep(:code, :h) \gset
SELECT idem_canonical(:progress) AS c, idem_fingerprint(:progress) AS f \gset
SELECT 1 / (:c = '{"n":1}')::int;
EOT

each_access(
	$node,
	sub {
		my ($db) = @_;

		foreach my $mode ('extended', 'prepared')
		{
			bench_run($node, $db, $mode, [ '-t', '1', '-M', $mode ],
				$script =~ s/MODE/$mode/gr);
			$node->safe_psql($db, 'TRUNCATE idem.key');
		}
	});

$node->stop;
done_testing();
