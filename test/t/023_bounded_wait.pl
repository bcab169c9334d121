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
my $cc = $ENV{CC} // 'cc';

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

# A lock timeout that comes just as the lock is granted is one of the row's that is
# swept, and of nothing that follows, also where that row then fails: a trigger does
# what the lock manager leaves behind.
SKIP:
{
	my $dir = PostgreSQL::Test::Utils::tempdir();
	my $include = $node->config_data('--includedir-server');

	open my $source, '>', "$dir/late.c" or die $!;
	print $source <<'EOT';
#include "postgres.h"
#include "commands/trigger.h"
#include "fmgr.h"
#include "utils/timeout.h"

PG_MODULE_MAGIC;
PG_FUNCTION_INFO_V1(late);

Datum
late(PG_FUNCTION_ARGS)
{
	static bool again = false;

	/* not where rows are tried all at once */
	if (again)
	{
		enable_timeout_after(LOCK_TIMEOUT, 1);
		while (!get_timeout_indicator(LOCK_TIMEOUT, false))
			pg_usleep(100);
		disable_timeout(LOCK_TIMEOUT, true);
	}
	again = true;
	if (((TriggerData *) fcinfo->context)->tg_trigger->tgnargs > 0)
		ereport(ERROR, (errmsg("late")));
	return PointerGetDatum(((TriggerData *) fcinfo->context)->tg_trigtuple);
}
EOT
	close $source or die $!;
	skip 'nothing that compiles a trigger', 2
	  if system("$cc -shared -fPIC -I$include -o $dir/late.so $dir/late.c >/dev/null 2>&1") != 0;
	my $db = idem_database($node, 'late');

	foreach my $argument ('', q{'fails'})
	{
		is($node->safe_psql($db, <<"EOT"), '0|2', "a late lock timeout ($argument)");
SET client_min_messages = error;
INSERT INTO idem.token (hash, created_at, expires_at, purpose)
SELECT sha256(i::text::bytea), '2020-01-01', '2020-01-01', 'late' FROM generate_series(1, 2) AS i;
CREATE FUNCTION late() RETURNS trigger LANGUAGE C AS '$dir/late.so', 'late';
CREATE TRIGGER late BEFORE DELETE ON idem.token FOR EACH ROW EXECUTE FUNCTION late($argument);
SELECT removed, (SELECT count(*) FROM idem.token) FROM idem_sweep() WHERE kind = 'token';
DROP TRIGGER late ON idem.token;
DROP FUNCTION late;
DELETE FROM idem.token;
EOT
	}
}

$node->stop;
done_testing();
