# Promotion of a standby after the primary was killed under load.  Synchronous:
# nothing that a client was told of is lost.  Asynchronous: what is lost is lost
# together, key with effect, and runs once more.  Each client notes what was
# acknowledged to it.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use IdemTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $tmp = $PostgreSQL::Test::Utils::tmp_check;
my $keys = 1500;

# A client: claims every key once, in an order of its own, and says so after
# each COMMIT.  Every third is a lease, in two transactions.
sub client
{
	my ($node, $db, $name) = @_;
	my $file = "$tmp/$name";
	my $script = '';

	foreach my $i (sort { $a->[1] <=> $b->[1] } map { [ $_, rand ] } 1 .. $keys)
	{
		my $k = "k$i->[0]";

		$script .= $i->[0] % 3 ? <<"EOT" : <<"EOT2";
BEGIN;
SELECT run FROM idem_claim('$k') \\gset
\\if :run
INSERT INTO effect VALUES ('$k');
SELECT idem_complete('$k', 'response of $k'::text) \\g /dev/null
\\endif
COMMIT;
\\echo done $k
EOT
SELECT run, coalesce(fence, 0) AS fence FROM idem_claim('$k', lease => '1 h') \\gset
\\if :run
\\echo fence :fence
BEGIN;
INSERT INTO effect VALUES ('$k');
SELECT idem_complete('$k', 'response of $k'::text, fence => :fence) \\g /dev/null
COMMIT;
\\echo done $k
\\endif
EOT2
	}
	append_to_file($file, $script);
	return IPC::Run::start(
		[ 'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-f', $file, $node->connstr($db) ],
		'<', \undef, '>', "$file.acked", '2>', "$file.err");
}

# What clients were told: keys that are done, and fences.
sub told
{
	my (@names) = @_;
	my (%done, %fences);

	foreach my $line (map { split /\n/, slurp_file("$tmp/$_.acked") } @names)
	{
		$done{$1} = 1 if $line =~ /^done (\S+)$/;
		$fences{$1}++ if $line =~ /^fence (\d+)$/;
	}
	return (\%done, \%fences);
}

sub effects
{
	my ($node, $db) = @_;

	return map { $_ => 1 } split /\n/, $node->safe_psql($db, 'SELECT key FROM effect');
}

foreach my $mode ('synchronous', 'asynchronous')
{
	my $primary = idem_node("${mode}_primary", init => { allows_streaming => 1 });

	foreach my $access (accesses())
	{
		idem_database($primary, "idem_$access", $access);
		$primary->safe_psql("idem_$access", 'CREATE TABLE effect (key text)');
	}
	$primary->backup('base');
	my $standby = PostgreSQL::Test::Cluster->new("${mode}_standby");
	$standby->init_from_backup($primary, 'base', has_streaming => 1);
	$standby->start;
	if ($mode eq 'synchronous')
	{
		$primary->append_conf('postgresql.conf', "synchronous_standby_names = '*'\n");
		$primary->reload;
		$primary->poll_query_until('postgres', q{SELECT bool_or(sync_state = 'sync') FROM pg_stat_replication});
	}

	# two clients for each way to the table, who want the same keys
	my %clients;
	foreach my $access (accesses())
	{
		foreach my $n (1, 2)
		{
			$clients{"${mode}_${access}_$n"} = client($primary, "idem_$access", "${mode}_${access}_$n");
		}
	}
	my $enough = sub {
		my ($min) = @_;

		foreach my $i (1 .. 600)
		{
			return if !grep { (-s "$tmp/$_.acked" // 0) < $min } keys %clients;
			select(undef, undef, undef, 0.05);
		}
		die 'no load';
	};
	$enough->(1200);
	my $receiver;
	if ($mode eq 'asynchronous')
	{
		# the standby stops hearing of it; the clients do not notice
		$receiver = $standby->safe_psql('postgres', 'SELECT pid FROM pg_stat_wal_receiver');
		kill 'STOP', $receiver;
		my %size = map { $_ => -s "$tmp/$_.acked" } keys %clients;
		foreach my $i (1 .. 600)
		{
			last if !grep { -s "$tmp/$_.acked" < $size{$_} + 600 } keys %clients;
			select(undef, undef, undef, 0.05);
		}
	}
	$primary->stop('immediate');
	kill 'CONT', $receiver if $receiver;
	$_->finish foreach values %clients;
	$standby->promote;

	foreach my $access (accesses())
	{
		my $db = "idem_$access";
		my $what = "$mode, $access";
		my ($done, $fences) = told("${mode}_${access}_1", "${mode}_${access}_2");
		my %there = effects($standby, $db);
		my @lost = grep { !$there{$_} } keys %$done;
		my ($highest) = sort { $b <=> $a } keys %$fences;

		cmp_ok(scalar(keys %$done), '>', 100, "$what: there was load");
		if ($mode eq 'synchronous')
		{
			is("@lost", '', "$what: no effect is lost that was acknowledged");
			is($standby->safe_psql($db, "SELECT count(*) FROM idem.key WHERE fence = ANY ('{" . join(',', keys %$fences) . "}')"),
				scalar(keys %$fences), "$what: nor a lease");
		}
		else
		{
			cmp_ok(scalar(@lost), '>', 0, "$what: the newest effects are lost");
		}
		is((grep { $_ > 1 } values %$fences), 0, "$what: no fence was given twice");
		check_effects($standby, $db, q{key LIKE 'k%' AND state <> 'in_progress'}, "$what: key with effect, or neither");
		is($standby->safe_psql($db, q{SELECT count(*) FROM idem.key WHERE state = 'in_progress' AND hold <> 'lease'}),
			'0', "$what: nothing is left half");
		is($standby->safe_psql($db, q{
SELECT count(*) FROM idem.key AS k, idem_claim(k.key) AS c
WHERE k.state = 'completed' AND (c.outcome <> 'completed' OR c.response <> 'response of ' || k.key)}),
			'0', "$what: what is there is replayed");

		# All keys arrive again, on the new primary.
		$standby->safe_psql($db, "SELECT idem_fence_advance($highest)");
		is( $standby->safe_psql($db, "SELECT fence > $highest FROM idem_claim('new', lease => '1 h')"),
			't', "$what: fences go on above the highest known");
		$standby->safe_psql($db, q{SELECT count(idem_release(key, fence => fence)) FROM idem.key WHERE state = 'in_progress'});
		my @run = (client($standby, $db, "${mode}_${access}_again"), client($standby, $db, "${mode}_${access}_too"));
		$_->finish foreach @run;
		is($run[0]->result(0) + $run[1]->result(0), 0, "$what: all keys once more");
		is($standby->safe_psql($db, "SELECT count(*), count(DISTINCT key) FROM effect"),
			"$keys|$keys", "$what: every key has its one effect");
		check_storage($standby, $db, $what);
	}
	$standby->stop;
}

done_testing();
