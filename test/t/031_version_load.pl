# Versions under load, on a subscriber and on a standby: no update is lost,
# whichever way the writers say their version; a subscriber has the publisher's
# versions and not one more; reads of a key under a collation that takes 'Key'
# for 'KEY'; a backend that dies in the middle.

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

my $table = <<'EOT';
CREATE EXTENSION idem;
CREATE TABLE doc (id int PRIMARY KEY, hits bigint NOT NULL DEFAULT 0, seen bigint NOT NULL DEFAULT 0,
	version int NOT NULL DEFAULT 1) WITH (fillfactor = 20);
SELECT idem_attach_version('doc', 'version', ignore => '{seen}');
EOT
$_->safe_psql('postgres', $table) foreach $publisher, $subscriber;
$publisher->safe_psql('postgres', <<'EOT');
INSERT INTO doc SELECT generate_series(1, 5);
CREATE TABLE tally (way text, outcome text);
CREATE PUBLICATION docs FOR TABLE doc;
-- reads, then writes in one way of four by the version that it has read
CREATE PROCEDURE change(wanted int, way int) LANGUAGE plpgsql AS $$
DECLARE
	old doc;
	outcome text;
BEGIN
	SELECT * INTO old FROM doc WHERE id = wanted;
	COMMIT;
	BEGIN
		CASE way
		WHEN 1 THEN
			UPDATE doc SET hits = old.hits + 1, version = old.version WHERE id = wanted;
			outcome := CASE WHEN FOUND THEN 'updated' ELSE 'none' END;
		WHEN 2 THEN
			UPDATE doc SET hits = old.hits + 1, version = old.version + 1 WHERE id = wanted AND version = old.version;
			outcome := CASE WHEN FOUND THEN 'updated' ELSE 'none' END;
		WHEN 3 THEN
			outcome := (SELECT u.outcome FROM idem_update('doc', wanted, old.version, jsonb_build_object('hits', old.hits + 1)) AS u);
		WHEN 4 THEN
			INSERT INTO doc VALUES (wanted, old.hits + 1, 0, old.version)
			ON CONFLICT (id) DO UPDATE SET hits = EXCLUDED.hits, version = EXCLUDED.version;
			outcome := 'updated';
		ELSE
			UPDATE doc SET seen = seen + 1 WHERE id = wanted;
			outcome := 'seen';
		END CASE;
	EXCEPTION WHEN SQLSTATE 'ID412' THEN
		outcome := 'ID412';
	END;
	INSERT INTO tally VALUES (way, outcome);
END $$;
EOT
$subscriber->safe_psql('postgres',
	"CREATE SUBSCRIPTION docs CONNECTION '"
	  . ($publisher->connstr('postgres') =~ s/'/''/gr)
	  . "' PUBLICATION docs");
$subscriber->wait_for_subscription_sync($publisher, 'docs');

bench_run($publisher, 'postgres', 'load', [ '-c', '8', '-j', '2', '-t', '300' ], <<'EOT');
\set id random(1, 5)
\set way random(1, 5)
CALL change(:id, :way);
EOT
is( $publisher->safe_psql('postgres', q{
SELECT bool_and(version = hits + 1), sum(hits) = (SELECT count(*) FROM tally WHERE outcome = 'updated'),
	sum(seen) = (SELECT count(*) FROM tally WHERE outcome = 'seen') FROM doc}),
	't|t|t', 'no update is lost and none is counted twice');
is( $publisher->safe_psql('postgres', q{
SELECT string_agg(DISTINCT way || outcome, ' ' ORDER BY way || outcome) FROM tally WHERE outcome <> 'none'}),
	'1ID412 1updated 2updated 3stale 3updated 4ID412 4updated 5seen',
	'every way had both its answers');

$publisher->wait_for_catchup('docs');
is( $subscriber->safe_psql('postgres', 'SELECT d FROM doc AS d ORDER BY 1'),
	$publisher->safe_psql('postgres', 'SELECT d FROM doc AS d ORDER BY 1'),
	'the subscriber has the same versions');
is(errcode($subscriber, 'postgres', 'UPDATE doc SET version = 0 WHERE id = 1'),
	'ID412', 'and checks its own writers');
$subscriber->safe_psql('postgres', 'DROP SUBSCRIPTION docs');

# A backend that dies with the row held: the next one is judged by what was committed.
my ($holder, $waiter) = map { session($publisher, 'postgres') } 1 .. 2;
my ($holder_pid, $pid) = map { session_pid($_) } $holder, $waiter;
my $version = $publisher->safe_psql('postgres', 'SELECT version FROM doc WHERE id = 1');
ask($holder, 'BEGIN');
is(ask($holder, "SELECT outcome FROM idem_update('doc', 1, $version, '{\"hits\": 0}')"),
	'updated', 'one writer holds the row');
is( errcode($publisher, 'postgres', "SET lock_timeout = '20 ms'; SELECT idem_update('doc', 1, $version, '{}')"),
	'55P03', 'another does not wait for ever');
ask_later($waiter, "SELECT outcome FROM idem_update('doc', 1, $version, '{\"seen\": 0}')");
wait_blocked($publisher, $pid);
$publisher->safe_psql('postgres', "SELECT pg_terminate_backend($holder_pid)");
is(answer($waiter), 'updated', 'it dies, and the other one gets it');

# Keys under a collation that takes 'Key' for 'KEY'.
if ($publisher->safe_psql('postgres', q{SELECT count(*) FROM pg_collation WHERE collprovider = 'i'}) > 0)
{
	is( $publisher->safe_psql('postgres', <<'EOT'), "t\nupdated|2\nstale|2", 'a nondeterministic key');
CREATE COLLATION nocase (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
CREATE TABLE named (name text COLLATE nocase PRIMARY KEY, v int NOT NULL DEFAULT 1);
INSERT INTO named VALUES ('Key');
SELECT idem_attach_version('named', 'v');
SELECT outcome, version FROM idem_update('named', 'KEY', 1, '{}');
SELECT outcome, version FROM idem_update('named', 'key', 1, '{}');
EOT
}

$subscriber->stop;
$publisher->stop;
done_testing();
