# The transfer of doc/sagas.md between two databases, over dblink, with the server
# killed at every step of every call; then recovery, late repeats of each call,
# and an audit of the balances.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use DocTest;
use IdemTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# What the page tells the reader to type.
my @typed = map { $_->{text} } grep { $_->{kind} eq 'sql' } doc_blocks("$FindBin::RealBin/../../doc/sagas.md");
my ($bank) = grep { /^-- in each bank/ } @typed;
my ($coordinator) = grep { /^-- in the coordinator/ } @typed;
ok(defined $bank && defined $coordinator, 'the page has the example');

my $node = idem_node('transfer', conf => "restart_after_crash = on\n");

foreach my $case ([ 'bank_a', 'alice' ], [ 'bank_b', 'bob' ])
{
	my ($db, $name) = @$case;

	$node->safe_psql('postgres', "CREATE DATABASE $db");
	# A row in "fault" says before the commit of which op this bank dies.
	$node->safe_psql($db, "$bank\nINSERT INTO account VALUES ('$name', 1000);\n" . <<'EOT');
CREATE TABLE fault (op text);
CREATE FUNCTION die() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF EXISTS (SELECT FROM fault WHERE op = lower(TG_OP)) THEN
		EXECUTE $q$COPY (SELECT 1) TO PROGRAM 'kill -9 $PPID'$q$;
	END IF;
	RETURN NULL;
END $$;
CREATE TRIGGER die AFTER INSERT OR DELETE ON hold FOR EACH ROW EXECUTE FUNCTION die();
EOT
}

# The coordinator's own faults: before and after each call, and before the commit
# of each of its records.
$node->safe_psql('postgres', 'CREATE DATABASE coordinator');
$node->safe_psql('coordinator', $coordinator . sprintf(<<'EOT', $node->host, $node->port) . <<'EOT2');
UPDATE bank SET conninfo = conninfo || ' host=%s port=%s';
EOT
CREATE TABLE fault (at text);
CREATE FUNCTION die_at(here text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	IF EXISTS (SELECT FROM fault WHERE at = here) THEN
		EXECUTE $q$COPY (SELECT 1) TO PROGRAM 'kill -9 $PPID'$q$;
	END IF;
END $$;
ALTER FUNCTION ask RENAME TO ask_bank;
CREATE FUNCTION ask(bank text, saga text, op text, name text, amount numeric) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM die_at(format('before %s %s', bank, op));
	PERFORM ask_bank(bank, saga, op, name, amount);
	PERFORM die_at(format('after %s %s', bank, op));
END $$;
CREATE FUNCTION recorded() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM die_at('record ' || NEW.state);
	RETURN NULL;
END $$;
CREATE TRIGGER recorded AFTER INSERT OR UPDATE ON saga FOR EACH ROW EXECUTE FUNCTION recorded();
EOT2

my $moved = 0;
my $n = 0;

sub audit
{
	my ($name) = @_;
	my ($a, $b) = map { $node->safe_psql($_, q{SELECT sum(balance) || ' ' || (SELECT count(*) FROM hold) FROM account}) } ('bank_a', 'bank_b');

	is("$a, $b", (1000 - $moved) . ' 0, ' . (1000 + $moved) . ' 0', "$name: the balances, and nothing is held");
	return;
}

# One transfer, killed where $fault says, and brought to its end.
sub transfer
{
	my ($fault, $amount, $expected) = @_;
	my ($db, $where) = $fault =~ /^(bank_.): (\w+)$/ ? ($1, $2) : ('coordinator', $fault);
	my $id = 't' . ++$n;

	if ($fault ne 'none')
	{
		my $offset = -s $node->logfile;

		$node->safe_psql($db, "INSERT INTO fault VALUES ('$where')");
		my ($rc, $out, $err) = $node->psql('coordinator', "CALL send('$id', $amount)");
		isnt($rc, 0, "$fault: the server is killed");
		$node->wait_for_log(qr/database system is ready to accept connections/, $offset);
		$node->safe_psql($db, 'DELETE FROM fault');
	}
	else
	{
		$node->safe_psql('coordinator', "CALL send('$id', $amount)");
	}
	$node->safe_psql('coordinator', 'CALL recover(); CALL recover()');

	my $state = $node->safe_psql('coordinator', "SELECT coalesce((SELECT state FROM saga WHERE id = '$id'), 'never')");
	is($state, $expected, "$fault: $state");
	$moved += $amount if $state eq 'sent';
	audit($fault);

	# Whatever is still on its way comes now, in every order.
	foreach my $op ('try', 'cancel', 'confirm', 'cancel', 'try')
	{
		next if $state eq 'never';
		$node->safe_psql('bank_a', "SELECT transfer('$id', '$op', 'alice', -$amount)");
		$node->safe_psql('bank_b', "SELECT transfer('$id', '$op', 'bob', $amount)");
	}
	audit("$fault, late repeats");
	return;
}

transfer('none', 10, 'sent');
transfer('none', 5000, 'failed');
transfer('record open', 10, 'never');
transfer("before $_ try", 10, 'failed') foreach ('bank_a', 'bank_b');
transfer("after $_ try", 10, 'failed') foreach ('bank_a', 'bank_b');
transfer("$_: insert", 10, 'failed') foreach ('bank_a', 'bank_b');
transfer('record confirm', 10, 'failed');
transfer("before $_ confirm", 10, 'sent') foreach ('bank_a', 'bank_b');
transfer("after $_ confirm", 10, 'sent') foreach ('bank_a', 'bank_b');
transfer("$_: delete", 10, 'sent') foreach ('bank_a', 'bank_b');
transfer('record sent', 10, 'sent');
# the same for one that is refused
transfer('record cancel', 5000, 'failed');
transfer("before $_ cancel", 5000, 'failed') foreach ('bank_a', 'bank_b');
transfer("after $_ cancel", 5000, 'failed') foreach ('bank_a', 'bank_b');
transfer('record failed', 5000, 'failed');

# A bank dies while it undoes a try, once or again.
foreach my $bank ('bank_a', 'bank_b')
{
	foreach my $times (1, 2)
	{
		my $id = 't' . ++$n;

		foreach my $death ([ 'coordinator', 'after bank_b try', "send('$id', 10)" ], ([ $bank, 'delete', 'recover()' ]) x $times)
		{
			my ($db, $where, $call) = @$death;
			my $offset = -s $node->logfile;

			$node->safe_psql($db, "DELETE FROM fault; INSERT INTO fault VALUES ('$where')");
			my ($rc) = $node->psql('coordinator', "CALL $call");
			isnt($rc, 0, "$bank: the server is killed in $call");
			$node->wait_for_log(qr/database system is ready to accept connections/, $offset);
			is($node->safe_psql($bank, 'SELECT count(*) FROM hold'), '1', "$bank: the try stands");
			$node->safe_psql($db, 'DELETE FROM fault');
		}
		$node->safe_psql('coordinator', 'CALL recover(); CALL recover()');
		is($node->safe_psql('coordinator', "SELECT state FROM saga WHERE id = '$id'"), 'failed', "$bank: failed");
		audit("$bank died in its cancel, $times");
	}
}

# The whole server at once, at random moments, with eight at a time.
foreach my $round (1 .. 3)
{
	my $load = bench_start($node, 'coordinator', [ '-c', '8', '-T', '30' ],
		"\\set id random(1, 1000000000000)\n\\set amount random(1, 3)\nCALL send('r' || :id, :amount);\n");

	select(undef, undef, undef, 0.3 + 0.2 * $round);
	$node->kill9;
	bench_finish($load);
	start_after_crash($node);
	$node->safe_psql('coordinator', 'CALL recover()');
	is($node->safe_psql('coordinator', q{SELECT count(*) FROM saga WHERE state NOT IN ('sent', 'failed')}), '0', "round $round: all have ended");
	$moved = $node->safe_psql('coordinator', q{SELECT coalesce(sum(amount), 0) FROM saga WHERE state = 'sent'});
	audit("round $round");
}
cmp_ok($node->safe_psql('coordinator', q{SELECT count(*) FROM saga WHERE id LIKE 'r%' AND state = 'sent'}), '>', 0, 'transfers were sent');
is($node->safe_psql('bank_a', q{SELECT count(*) FROM idem.branch WHERE expires_at IS NULL}), '0', 'no branch is left open');

$node->stop;
done_testing();
