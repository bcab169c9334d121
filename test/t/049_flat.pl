# What expires and is swept leaves room for what comes: over cycles of filling and
# sweeping, none of idem's tables grows, nor do their indexes.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use IdemTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = idem_node('flat', conf => "autovacuum = off\n");
my $db = idem_database($node, 'flat');
my ($rows, $cycles) = (1000, 7);

$node->safe_psql($db, <<'EOT');
SELECT idem_define('wait', E'stateDiagram-v2\n[*] --> waiting\nwaiting --> over : end after 1 ms');
CREATE TABLE job (id bigserial PRIMARY KEY, state text NOT NULL DEFAULT 'waiting');
-- whose timed work no superuser does
CREATE ROLE keeper;
ALTER TABLE job OWNER TO keeper;
SELECT idem_attach('wait', 'job', 'state', history => true, keep => '1 ms');
EOT

# table => how a cycle fills it with $rows rows by the verbs, and lets them expire
my %fill = (
	token => q{
SELECT count(idem_token_use(idem_token_issue('flat', 's' || n, ttl => '1 min', replace => n % 10 = 0), 'flat', 's' || n)) FROM generate_series(1, :rows) AS n;
UPDATE idem.token SET expires_at = '2020-01-01'},
	lease => q{
SELECT count(idem_lease_release('l' || :cycle || '.' || n, (idem_lease_acquire('l' || :cycle || '.' || n, '1 h')).fence)) FROM generate_series(1, :rows) AS n;
UPDATE idem.lease SET until = '2020-01-01'},
	window_hit => q{
SELECT count(idem_window('w' || :cycle || '.' || n % (:rows / 2), '1 ms', max => 5)) FROM generate_series(1, :rows) AS n},
	branch => q{
SET idem.branch_ttl = 0;
SELECT count(idem_branch('s' || :cycle, 'b' || n, 'try')) FROM generate_series(1, :rows) AS n;
SELECT count(idem_branch('s' || :cycle, 'b' || n, CASE n % 2 WHEN 0 THEN 'confirm' ELSE 'cancel' END)) FROM generate_series(1, :rows) AS n},
	# history's rows and timers at once; a tick takes the timers away
	history => q{
INSERT INTO job (id) SELECT nextval('job_id_seq') FROM generate_series(1, :rows);
UPDATE idem.timer SET due = '2020-01-01';
SELECT count(*) FROM idem_tick(NULL);
DELETE FROM job},
	timer => undef);

# pages of the table and of its indexes when it is fullest, and rows left in the end
my (%pages, %left);
foreach my $cycle (1 .. $cycles)
{
	foreach my $table (sort keys %fill)
	{
		my $sql = ($fill{$table} // '') =~ s/:rows/$rows/gr =~ s/:cycle/$cycle/gr;

		$node->safe_psql($db, $sql);
		push @{ $pages{$table} },
		  [ split /\|/, $node->safe_psql($db, "SELECT pg_relation_size('idem.$table') / 8192, pg_indexes_size('idem.$table') / 8192") ];
	}
	$node->safe_psql($db, 'SELECT pg_sleep(0.01)');
	$node->safe_psql($db, 'SELECT idem_sweep(NULL)') foreach 1 .. 2;
	push @{ $left{$_} }, $node->safe_psql($db, "SELECT count(*) FROM idem.$_") foreach keys %fill;
	# so that the pages stay, and an emptied page of an index is free for use
	$node->safe_psql($db, 'VACUUM (TRUNCATE false)') foreach 1 .. 2;
}
foreach my $table (sort keys %fill)
{
	my @p = @{ $pages{$table} };
	my $all = join(' ', map { "$_->[0]+$_->[1]" } @p);

	is(join(' ', @{ $left{$table} }), join(' ', (0) x $cycles), "$table: each cycle was swept whole");
	cmp_ok($p[0][0], '>', 5, "$table: and had filled pages");
	cmp_ok($p[-1][0], '<=', $p[3][0] * 1.2, "$table: after $cycles cycles as many pages as after four ($all)");
	cmp_ok($p[-1][1], '<=', $p[3][1] * 1.2, "$table: and in its indexes ($all)");
}

# What one call of idem_fire_many() needs for each id does not add up.
$node->safe_psql($db, <<'EOT');
SELECT idem_define('many', E'stateDiagram-v2\n[*] --> a\na --> b : go');
CREATE TABLE heap (id int PRIMARY KEY, state text NOT NULL DEFAULT 'a');
INSERT INTO heap SELECT generate_series(1, 20000);
SELECT idem_attach('many', 'heap', 'state');
EOT
my $pooled = session($node, $db);
my $peak = sub {
	my $pid = ask($pooled, 'SELECT pg_backend_pid()');
	return slurp_file("/proc/$pid/status") =~ /VmHWM:\s+(\d+)/ ? $1 : 0;
};
ask($pooled, q{SELECT count(*) FROM idem_fire_many('heap', (SELECT array_agg(id) FROM heap WHERE id <= 1000)::text, 'go', key => 'first')});
my $before = $peak->();
is(ask($pooled, q{SELECT count(*) FROM idem_fire_many('heap', (SELECT array_agg(id) FROM heap WHERE id > 1000)::text, 'go', key => 'second') WHERE outcome = 'applied'}),
	'19000', 'many events under one key');
cmp_ok($peak->() - $before, '<', 80_000, 'and four kilobytes for each at most');
$pooled->quit;

# Under an old snapshot, which keeps every version: what completes a claim finds room
# beside it, and what renews a lease does mostly, so that indexes do not grow.
my $old = session($node, $db);
$node->safe_psql($db, q{SELECT pg_stat_reset_single_table_counters('idem.key'::regclass), pg_stat_reset_single_table_counters('idem.lease'::regclass)});
ask($old, 'BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1');
my $fence = $node->safe_psql($db, q{SELECT fence FROM idem_lease_acquire('hot', '1 h')});
bench_run($node, $db, 'claims and renewals under an old snapshot', [ '-c', '8', '-t', '125' ], <<"EOT");
\\set k random(1, 1000000000000000)
SELECT fence FROM idem_claim('k' || :k, lease => '1 h') \\gset
SELECT idem_complete('k' || :k, repeat('r', 200), fence => :fence);
SELECT outcome FROM idem_lease_renew('hot', '1 h', $fence);
EOT
foreach my $table ('key', 'lease')
{
	is($node->safe_psql($db, "SELECT n_tup_upd >= 1000, n_tup_hot_upd >= 0.95 * n_tup_upd FROM pg_stat_user_tables WHERE relid = 'idem.$table'::regclass"),
		't|t', "updates of idem.$table are HOT")
	  or diag($node->safe_psql($db, "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relid = 'idem.$table'::regclass"));
}
ask($old, 'COMMIT');
$old->quit;

$node->stop;
done_testing();
