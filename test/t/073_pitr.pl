# A cluster restored to a point in time: keys and effects are those of that
# moment, together; what came later can come again.  Fences and tokens of after
# it can be handed out or used again, and idem_fence_advance is for that.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use EveryKind;
use IdemTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $primary = idem_node('primary', init => { has_archiving => 1, allows_streaming => 1 });
$primary->safe_psql('postgres', <<'EOT');
CREATE ROLE regress_idem_owner LOGIN;
CREATE ROLE regress_idem_app LOGIN;
CREATE DATABASE app OWNER regress_idem_owner;
EOT
foreach my $access (accesses())
{
	idem_database($primary, "idem_$access", $access);
	$primary->safe_psql("idem_$access", 'CREATE TABLE effect (key text)');
}
$primary->backup('base');
my $filled = fill_every_kind($primary, 'regress_idem_owner', 'app');

my $claim = <<'EOT';
BEGIN;
SELECT run FROM idem_claim('KEY');
INSERT INTO effect VALUES ('KEY');
SELECT idem_complete('KEY', 'response'::text);
COMMIT;
EOT
my (%open, %token);
foreach my $access (accesses())
{
	my $db = "idem_$access";

	$primary->safe_psql($db, $claim =~ s/KEY/before/gr);
	$token{$access} = $primary->safe_psql($db, q{SELECT idem_token_issue('mail', 'ann', ttl => '1 day')});

	# a transaction that is open at the point, with its claim
	$open{$access} = session($primary, $db);
	ask($open{$access}, q{BEGIN; SELECT run FROM idem_claim('open'); INSERT INTO effect VALUES ('open')});
	$primary->safe_psql($db, q{SELECT outcome FROM idem_claim('leased', lease => '1 h')});
}
my $rows = every_row($primary, 'regress_idem_owner', 'app');
$primary->safe_psql('postgres', q{SELECT pg_create_restore_point('here')});

my %highest;
foreach my $access (accesses())
{
	my $db = "idem_$access";

	ask($open{$access}, q{SELECT idem_complete('open', 'r'::text); COMMIT});
	$open{$access}->quit;
	$primary->safe_psql($db, $claim =~ s/KEY/after/gr);
	is($primary->safe_psql($db, "SELECT idem_token_use('$token{$access}', 'mail', 'ann')"), 'consumed', "$access: used after the point");
	$highest{$access} = $primary->safe_psql($db, q{SELECT max(fence) FROM generate_series(1, 100) AS i, idem_claim('later' || i, lease => '1 h')});
}
$primary->safe_psql('postgres', 'SELECT pg_switch_wal()');
$primary->poll_query_until('postgres', q{SELECT last_archived_wal >= pg_walfile_name(pg_current_wal_lsn() - 1) FROM pg_stat_archiver})
  or die 'not archived';
$primary->stop;

my $restored = PostgreSQL::Test::Cluster->new('restored');
$restored->init_from_backup($primary, 'base', has_restoring => 1, standby => 0);
$restored->append_conf('postgresql.conf', <<'EOT');
recovery_target_name = 'here'
recovery_target_action = 'promote'
archive_mode = off
EOT
$restored->start;
$restored->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()');

foreach my $access (accesses())
{
	my $db = "idem_$access";

	is($restored->safe_psql($db, 'SELECT key FROM effect'), 'before', "$access: the effects of that moment");
	is($restored->safe_psql($db, q{SELECT string_agg(key, ' ' ORDER BY key) FROM idem.key}), 'before leased', "$access: and its keys");
	check_effects($restored, $db, q{hold IS DISTINCT FROM 'lease'}, $access);
	is($restored->safe_psql($db, q{SELECT outcome, response FROM idem_claim('before')}), 'completed|response', "$access: a replay");
	foreach my $key ('open', 'after')
	{
		is($restored->safe_psql($db, $claim =~ s/KEY/$key/gr), "t\nt", "$access: $key runs once more");
	}
	is($restored->safe_psql($db, q{SELECT outcome FROM idem_claim('leased', lease => '1 h')}), 'in_progress',
		"$access: a lease of before still counts, until its time");

	# What others remember of the time after the point.
	cmp_ok($restored->safe_psql($db, q{SELECT fence FROM idem_claim('first', lease => '1 h')}), '<=', $highest{$access},
		"$access: a fence repeats");
	is($restored->safe_psql($db, "SELECT idem_token_peek('$token{$access}', 'mail', 'ann')"), 'valid', "$access: a used token is unused again");
	$restored->safe_psql($db, "SELECT idem_fence_advance($highest{$access})");
	cmp_ok($restored->safe_psql($db, q{SELECT fence FROM idem_claim('next', lease => '1 h')}), '>', $highest{$access},
		"$access: idem_fence_advance ends that");
}

# Every kind, but windows, which are unlogged, and what fences without sequence's
# read-ahead would say.
is( (join "\n", grep { !/^(window|sequence)\|/ } split /\n/, every_row($restored, 'regress_idem_owner', 'app')),
	(join "\n", grep { !/^(window|sequence)\|/ } split /\n/, $rows),
	'every kind of row is as it was');
every_kind_goes_on($restored, 'regress_idem_owner', 'app', $filled, 'restored', windows_lost => 1);

$restored->stop;
done_testing();
