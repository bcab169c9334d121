# Short leases and short-lived sessions taken over from each other under load,
# with sweeps beside them, compared with a model: per key, in the order of
# fences, every claim's outcome, attempt and step follow from what went before,
# nothing follows a final verb, and a verb is lost only to a later holder.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use IdemTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = idem_node('model');

# A claim and its entry in the log are one transaction; so are a verb and its.
my $setup = <<'EOT';
CREATE TABLE claimed (key text, fence bigint, attempt int, outcome text, step text);
CREATE TABLE acted (n bigserial, key text, fence bigint, verb text, lost boolean);
CREATE PROCEDURE live(n int, holding text, spread int, final float) LANGUAGE plpgsql AS $$
DECLARE
	c idem_claimed;
	k text;
	f bigint;
	verb text;
BEGIN
	FOR i IN 1 .. n LOOP
		k := holding || (random() * spread)::int;
		IF holding = 'lease' THEN
			SELECT * INTO c FROM idem_claim(k, lease => '1 ms'::interval * (1 + 5 * random()));
		ELSE
			SELECT * INTO c FROM idem_claim(k, hold => 'session');
		END IF;
		IF c.run THEN
			INSERT INTO claimed VALUES (k, c.fence, c.attempt, c.outcome, c.step);
		END IF;
		COMMIT;
		CONTINUE WHEN NOT c.run;
		-- work of some length, longer than many a lease
		PERFORM pg_sleep(0.006 * random());
		COMMIT;
		FOR j IN 1 .. 3 LOOP
			verb := (ARRAY['step', 'step', 'renew', 'retry', 'release', 'none', 'complete', 'fail'])
				[1 + floor(random() * CASE WHEN random() < final THEN 8 ELSE 6 END)::int];
			EXIT WHEN verb = 'none';
			CONTINUE WHEN verb = 'renew' AND holding = 'session';
			f := CASE WHEN holding = 'lease' THEN c.fence END;
			BEGIN
				CASE verb
					WHEN 'step' THEN PERFORM idem_step(k, c.fence || '.' || j, fence => f);
					WHEN 'renew' THEN PERFORM idem_renew(k, '5 ms', fence => f);
					WHEN 'retry' THEN PERFORM idem_retry(k, 'again', fence => f);
					WHEN 'release' THEN PERFORM idem_release(k, fence => f);
					WHEN 'complete' THEN PERFORM idem_complete(k, c.fence::text, fence => f);
					WHEN 'fail' THEN PERFORM idem_fail(k, c.fence::text, fence => f);
				END CASE;
				INSERT INTO acted (key, fence, verb, lost)
				VALUES (k, c.fence, verb || CASE verb WHEN 'step' THEN c.fence || '.' || j ELSE '' END, false);
			EXCEPTION WHEN SQLSTATE 'ID409' THEN
				INSERT INTO acted (key, fence, verb, lost) VALUES (k, c.fence, verb, true);
			END;
			COMMIT;
			EXIT WHEN verb IN ('retry', 'release', 'complete', 'fail');
		END LOOP;
	END LOOP;
END $$;
EOT

# Walks through the log of one key; returns what does not fit.
sub check_key
{
	my ($claims, $acts, $final) = @_;
	my ($attempt, $step, $before, $last) = (0, '', 'open', 0);

	foreach my $c (sort { $a->{fence} <=> $b->{fence} } @$claims)
	{
		my $what = "fence $c->{fence}";
		my $outcome = $before eq 'held' ? 'takeover' : 'claimed';

		return "$what after a final verb" if $before eq 'final';
		return "$what twice" if $c->{fence} == $last;
		return "$what: $c->{outcome}, not $outcome"
		  if $c->{outcome} ne $outcome;
		return "$what: attempt $c->{attempt}, not " . ($attempt + 1)
		  if $c->{attempt} != $attempt + 1;
		return "$what: step $c->{step}, not $step" if $c->{step} ne $step;

		$last = $c->{fence};
		$attempt = $c->{attempt};
		$before = 'held';
		foreach my $act (@{ $acts->{$last} // [] })
		{
			if ($act->{lost})
			{
				return "$what: lost to nobody"
				  unless grep { $_->{fence} > $last } @$claims;
				next;
			}
			return "$what: $act->{verb} after its end" if $before ne 'held';
			$step = $1 if $act->{verb} =~ /^step(.*)/;
			$before = 'open' if $act->{verb} =~ /^(retry|release)/;
			$before = 'final' if $act->{verb} =~ /^(complete|fail)/;
			if ($act->{verb} eq 'release')
			{
				$attempt--;
				$step = '' if $attempt == 0;
			}
		}
	}
	my $state = $before eq 'held' ? 'in_progress' : $before;
	return "stored as $final->{state}, not $state"
	  if $state ne ($final->{state} =~ /completed|failed/ ? 'final' : $final->{state});
	return "stored result $final->{response}, not $last"
	  if $state eq 'final' && $final->{response} ne $last;
	return "stored attempt $final->{attempt}, not $attempt"
	  if $final->{attempt} != $attempt;
	return;
}

sub rows
{
	my ($db, $sql, @columns) = @_;
	my @rows;

	foreach my $line (split /\n/, $node->safe_psql($db, $sql))
	{
		my %row;
		@row{@columns} = split /\|/, $line, scalar @columns;
		push @rows, \%row;
	}
	return @rows;
}

each_access(
	$node,
	sub {
		my ($db) = @_;

		$node->safe_psql($db, $setup);

		# A new session for each call, so that session claims die.
		bench_run($node, $db, 'load', [ '-C', '-c', '8', '-T', '5' ],
			[ "CALL live(12, 'lease', 60, 0.05);\n", 4 ],
			[ "CALL live(3, 'session', 10, 0.004);\n", 6 ],
			[ "SELECT count(*) FROM idem_sweep(40);\n", 1 ]);

		my (%claims, %acts);
		push @{ $claims{ $_->{key} } }, $_ foreach rows($db,
			'SELECT key, fence, attempt, outcome, step FROM claimed',
			'key', 'fence', 'attempt', 'outcome', 'step');
		push @{ $acts{ $_->{key} }{ $_->{fence} } },
		  { verb => $_->{verb}, lost => $_->{lost} eq 't' } foreach rows($db,
			'SELECT key, fence, verb, lost FROM acted ORDER BY n',
			'key', 'fence', 'verb', 'lost');
		my %final = map { $_->{key} => $_ } rows($db,
			'SELECT key, state, attempt, response FROM idem.key',
			'key', 'state', 'attempt', 'response');

		my @bad;
		foreach my $key (sort keys %claims)
		{
			my $why = check_key($claims{$key}, $acts{$key} // {},
				$final{$key} // { state => 'nothing', attempt => 0, response => '' });
			push @bad, "$key: $why" if defined $why;
		}
		is(join("\n", @bad), '', 'every key lived as the model says');
		is(join(' ', sort keys %claims), join(' ', sort keys %final),
			'every claim is on record');
		is( $node->safe_psql(
				$db, 'SELECT count(*) - count(DISTINCT fence) FROM claimed'),
			'0',
			'no fence twice');

		# The load held what the model is for.
		foreach my $holding ('lease', 'session')
		{
			cmp_ok(
				$node->safe_psql(
					$db,
					"SELECT count(*) FROM claimed WHERE outcome = 'takeover' AND key LIKE '$holding%'"
				),
				'>', 20, "$holding: takeovers");
		}
		is( $node->safe_psql(
				$db,
				q{SELECT count(*) FROM acted WHERE lost AND key LIKE 'session%'}),
			'0',
			'no session that lives loses its claim');
		cmp_ok($node->safe_psql($db, 'SELECT count(*) FROM acted WHERE lost'),
			'>', 5, 'verbs that came too late');
		check_storage($node, $db, 'afterwards');
	});

$node->stop;
done_testing();
