# postgres_fdw commits its remote transaction from a callback of its own.  A
# commit that idem refuses must not have reached the other server, whichever
# library was loaded first, as long as the foreign table was first used before
# the transaction's first claim, or in an earlier transaction.  Otherwise
# (first use in the session after the claim) the remote side may be committed:
# that is a documented limit, and only the refusal itself is asserted.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use IdemTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = idem_node('fdw', conf => "max_prepared_transactions = 5\n");
my ($host, $port) = ($node->host, $node->port);

$node->safe_psql('postgres', 'CREATE DATABASE remote');
$node->safe_psql('remote', 'CREATE TABLE effect (key text)');

each_access(
	$node,
	sub {
		my ($db) = @_;

		$node->safe_psql('remote', 'TRUNCATE effect');
		$node->safe_psql($db, <<EOT);
CREATE EXTENSION postgres_fdw;
CREATE SERVER loopback FOREIGN DATA WRAPPER postgres_fdw
	OPTIONS (host '$host', port '$port', dbname 'remote');
CREATE USER MAPPING FOR CURRENT_USER SERVER loopback;
CREATE FOREIGN TABLE effect (key text) SERVER loopback;
CREATE TABLE local (key text);
EOT
		my $remote = sub {
			return $node->safe_psql('remote',
				"SELECT count(*) FROM effect WHERE key = '$_[0]'");
		};
		my %work = (
			fdw   => q{INSERT INTO effect VALUES ('KEY')},
			claim => q{SELECT run FROM idem_claim('KEY')});

		foreach my $case (
			[ 'fdw loaded first', 'SELECT 1 FROM effect', 'claim', 'fdw', 1 ],
			[ 'fdw loaded first', 'SELECT 1 FROM effect', 'fdw', 'claim', 1 ],
			[ 'fdw in this transaction', '', 'fdw', 'claim', 1 ],
			[
				'idem loaded first',
				q{SELECT idem_once('load ' || pg_backend_pid()); SELECT 1 FROM effect},
				'claim', 'fdw', 1
			],
			[
				'idem loaded first',
				q{SELECT idem_once('load ' || pg_backend_pid())},
				'fdw', 'claim', 1
			],
			[ 'claim before the first use', '', 'claim', 'fdw', 0 ])
		{
			my ($name, $load, $first, $second, $strict) = @$case;
			my $key = "$name, $first";
			my $s = session($node, $db);

			ask($s, $load) if $load ne '';
			ask($s, 'BEGIN');
			ask($s, q{INSERT INTO local VALUES ('KEY')} =~ s/KEY/$key/r);
			ask($s, $work{$first} =~ s/KEY/$key/r);
			ask($s, $work{$second} =~ s/KEY/$key/r);
			is(ask($s, 'COMMIT'), 'ERROR ID500', "$key: COMMIT is refused");
			is( $node->safe_psql($db,
					"SELECT count(*) FROM local WHERE key = '$key'"),
				'0',
				"$key: no local effect");
			is($remote->($key), '0', "$key: no remote effect") if $strict;

			# The next transaction of this session is in the right order in
			# any case.
			ask($s, 'BEGIN');
			ask($s, $work{claim} =~ s/KEY/again $key/r);
			ask($s, $work{fdw} =~ s/KEY/again $key/r);
			is(ask($s, 'COMMIT'), 'ERROR ID500', "$key, again: COMMIT is refused");
			is($remote->("again $key"), '0', "$key, again: no remote effect");

			# And a finished claim commits on both sides.
			ask($s, 'BEGIN');
			ask($s, $work{claim} =~ s/KEY/good $key/r);
			ask($s, $work{fdw} =~ s/KEY/good $key/r);
			ask($s, "SELECT idem_complete('good $key', 'x'::text)");
			is(ask($s, 'COMMIT'), '', "$key, good: COMMIT");
			is($remote->("good $key"), '1', "$key, good: remote effect");
			$s->quit;
		}
	});

# a partition that is foreign: attached later, it gets the guard's triggers, whose
# rows have no place by which to know them again
$node->safe_psql('remote', q{CREATE TABLE moving (id int, state text, k int); INSERT INTO moving VALUES (2, 'a', 2)});
$node->safe_psql('postgres', <<EOT);
CREATE EXTENSION IF NOT EXISTS idem;
CREATE EXTENSION IF NOT EXISTS postgres_fdw;
CREATE SERVER elsewhere FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '$host', port '$port', dbname 'remote');
CREATE USER MAPPING FOR CURRENT_USER SERVER elsewhere;
SELECT idem_define('mz', E'stateDiagram-v2\n [*] --> a\n a --> b : go');
CREATE TABLE moving (id int, state text, k int) PARTITION BY LIST (k);
CREATE TABLE moving_here PARTITION OF moving FOR VALUES IN (1);
SELECT idem_attach('mz', 'moving', 'state');
CREATE FOREIGN TABLE moving_there (id int, state text, k int) SERVER elsewhere OPTIONS (table_name 'moving');
ALTER TABLE moving ATTACH PARTITION moving_there FOR VALUES IN (2);
INSERT INTO moving VALUES (1, 'a', 1);
UPDATE moving SET state = 'b' WHERE k = 1;
EOT
is(errcode($node, 'postgres', q{UPDATE moving SET state = 'b' WHERE k = 2}), 'ID500', 'rows of a foreign partition are not guarded, but refused');
is(errcode($node, 'postgres', q{INSERT INTO moving VALUES (3, 'b', 2)}), 'ID500', '... also those that do not begin where rows begin');
is($node->safe_psql('postgres', 'SELECT id, state FROM moving ORDER BY id'), "1|b\n2|a", '... and stay as they were');

$node->stop;
done_testing();
