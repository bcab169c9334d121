# Events under load while the server is killed: after each restart the history
# of every row is a chain from its first state to the one that it is in, with
# one entry for each effect, and keys and effects are the same.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use IdemTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $rounds = $ENV{IDEM_CRASH_ROUNDS} // 3;
my $node = idem_node(
	'fire_crash',
	conf => "synchronous_commit = off\nwal_writer_delay = 5s\n");

my $fill = <<'EOT';
INSERT INTO idem.machine (name) VALUES ('m');
INSERT INTO idem.state (machine, name, initial) VALUES ('m', 'a', true), ('m', 'b', false), ('m', 'c', false);
INSERT INTO idem.transition (machine, event, from_state, to_state, priority) VALUES
	('m', 'next', 'a', 'b', 1), ('m', 'next', 'b', 'c', 2), ('m', 'next', 'c', 'a', 3), ('m', 'leap', 'a', 'c', 4), ('m', 'hop', 'a', 'c', 5);
CREATE TABLE t (id int PRIMARY KEY, state text NOT NULL DEFAULT 'a', moves int NOT NULL DEFAULT 0, v int NOT NULL DEFAULT 1);
CREATE TABLE p (id int, part int, state text NOT NULL DEFAULT 'a', moves int NOT NULL DEFAULT 0, PRIMARY KEY (id, part)) PARTITION BY LIST (part);
CREATE TABLE p0 PARTITION OF p FOR VALUES IN (0);
CREATE TABLE p1 PARTITION OF p FOR VALUES IN (1);
-- the effect: the table counts its own moves
CREATE FUNCTION count_move() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	new.moves := old.moves + (new.state <> old.state)::int;
	RETURN new;
END $$;
CREATE TRIGGER count_move BEFORE UPDATE ON t FOR EACH ROW EXECUTE FUNCTION count_move();
CREATE TRIGGER count_move BEFORE UPDATE ON p FOR EACH ROW EXECUTE FUNCTION count_move();
SELECT idem_attach('m', 't', 'state', history => true), idem_attach_version('t', 'v');
SELECT idem_attach('m', 'p', 'state', history => true);
INSERT INTO t (id) SELECT generate_series(1, 50);
INSERT INTO p (id, part) SELECT i, i % 2 FROM generate_series(1, 50) i;
EOT

my $fire = <<'EOT';
\set id random(1, 50)
\set k random(1, 100000)
SELECT outcome FROM idem_try_fire('t', :id, 'next', key => 'k' || :k);
EOT
my $hop = <<'EOT';
\set id random(1, 50)
BEGIN;
SELECT outcome FROM idem_try_fire('t', :id, 'hop');
SELECT outcome FROM idem_try_fire('p', format('{"id": %s, "part": %s}', :id, :id % 2), 'next');
END;
EOT
my $many = <<'EOT';
\set id random(1, 40)
SELECT count(*) FROM idem_fire_many('t', ARRAY(SELECT :id + i FROM generate_series(10, 1, -1) i), 'next');
EOT
my $plain = <<'EOT';
\set id random(1, 50)
UPDATE t SET state = CASE state WHEN 'a' THEN 'b' WHEN 'b' THEN 'c' ELSE 'a' END WHERE id = :id;
UPDATE p SET part = 1 - part, state = 'c' WHERE id = :id AND state = 'b';
EOT
my $rollback = <<'EOT';
\set id random(1, 50)
BEGIN;
SELECT outcome FROM idem_try_fire('t', :id, 'next', key => 'r' || :id);
ROLLBACK;
EOT

sub audit
{
	my ($db, $name) = @_;

	is($node->safe_psql($db, <<'EOT'), '', "$name: every history is a chain");
SELECT table_name, row_key, seq, from_state, before FROM (
	SELECT h.*, lag(to_state) OVER (PARTITION BY table_name, row_key->'id' ORDER BY seq) AS before FROM idem.history h
) AS h WHERE from_state IS DISTINCT FROM before;
EOT
	is($node->safe_psql($db, <<'EOT'), '', "$name: it ends where the row is, and has each move once");
WITH r AS (
	SELECT 't' AS tab, id, state, moves FROM t UNION ALL SELECT 'p', id, state, moves FROM p
), h AS (
	SELECT table_name AS tab, (row_key->>'id')::int AS id, count(*) - 1 AS moves,
		(array_agg(to_state ORDER BY seq DESC))[1] AS state,
		bool_and(event IS NOT NULL OR from_state IS NULL) AS known
	FROM idem.history GROUP BY 1, 2
)
SELECT * FROM r FULL JOIN h USING (tab, id)
WHERE r.state IS DISTINCT FROM h.state OR r.moves IS DISTINCT FROM h.moves OR NOT known;
EOT
	is($node->safe_psql($db, <<'EOT'), '', "$name: keys = effects that were fired with a key");
SELECT * FROM (SELECT key FROM idem.key WHERE scope = 'idem.fire' AND key ~ '^[kr]') AS k
FULL JOIN (SELECT key, count(*) AS n FROM idem.history WHERE key IS NOT NULL GROUP BY key) AS h USING (key)
WHERE k IS NULL OR h.n IS DISTINCT FROM 1;
EOT
	is($node->safe_psql($db, <<'EOT'), '', "$name: versions grow with the moves");
SELECT * FROM (SELECT seq, version, row_number() OVER (PARTITION BY row_key ORDER BY seq) AS n FROM idem.history WHERE table_name = 't') AS h
WHERE version <> n;
EOT
	return;
}

each_access(
	$node,
	sub {
		my ($db, $access) = @_;

		$node->safe_psql($db, $fill);
		foreach my $round (1 .. $rounds)
		{
			my $load = bench_start($node, $db, [ '-c', '6', '-T', '60' ],
				[ $fire, 4 ], [ $hop, 2 ], [ $many, 1 ], [ $plain, 2 ], [ $rollback, 1 ]);

			select(undef, undef, undef, 0.6 + rand(0.6));
			$node->kill9;
			bench_finish($load);
			start_after_crash($node);
			audit($db, "round $round");
		}
		cmp_ok($node->safe_psql($db, 'SELECT count(*) FROM idem.history'), '>', 200, 'there was something to audit');

		# and without a crash nothing fails
		my ($rc, $out, $err) = bench_finish(bench_start($node, $db, [ '-c', '6', '-t', '100' ],
			[ $fire, 4 ], [ $hop, 2 ], [ $many, 1 ], [ $plain, 2 ], [ $rollback, 1 ]));
		unlike($err, qr/ERROR:(?!  deadlock)/, 'no error under load but deadlocks of the callers\' own making') or diag($err);
		audit($db, 'at the end');
		is($node->safe_psql($db, <<'EOT'), '', 'heap and indexes of idem.history agree');
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS amcheck;
SELECT msg FROM verify_heapam('idem.history');
DO $$ BEGIN PERFORM bt_index_check(indexrelid, true) FROM pg_index WHERE indrelid = 'idem.history'::regclass; END $$;
EOT
	});

$node->stop;
done_testing();
