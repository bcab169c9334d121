# Verbs called from wherever SQL can be: filters, cursors, deferred triggers,
# pipelines, procedures.  A claim is judged once per call and an unfinished one
# never slips through the end of a transaction.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use IdemTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = idem_node('places');

each_access(
	$node,
	sub {
		my ($db) = @_;

		# One statement over many rows, with duplicates in it.
		is( $node->safe_psql($db, <<'EOT') =~ s/\n/ /gr, '1,2,3 4 0 3', 'as a filter');
CREATE TABLE source AS SELECT i % 3 + 1 AS id, i FROM generate_series(0, 8) AS i;
CREATE TABLE target (id int, i int);
INSERT INTO target SELECT id, i FROM source WHERE idem_once('f' || id);
SELECT string_agg(id::text, ',' ORDER BY id) FROM target;
INSERT INTO source VALUES (4, 9);
INSERT INTO target SELECT id, i FROM source WHERE idem_once('f' || id);
SELECT count(*) FROM target;
UPDATE target SET i = -1 WHERE idem_once('f' || id);
SELECT count(*) FROM target WHERE i = -1;
DELETE FROM target WHERE id < 4 AND NOT idem_once('f' || id);
MERGE INTO target USING source ON false
WHEN NOT MATCHED AND idem_once('m' || source.id) THEN INSERT VALUES (-source.id, source.i);
SELECT count(*) - 2 FROM target;
EOT
		is( $node->safe_psql($db, <<'EOT') =~ s/\n/ /gr, 't t f f', 'in RETURNING, CASE and a lateral join');
INSERT INTO target VALUES (77, 0) RETURNING idem_once('ret');
SELECT CASE WHEN idem_once('case') THEN true ELSE false END;
SELECT o FROM (VALUES ('ret'), ('case')) AS v (k), LATERAL idem_once(k) AS o;
EOT
		is( $node->safe_psql($db, <<'EOT') =~ s/\n/ /gr, 'claimed in_progress in_progress 1 t completed', 'claims of one key in one statement');
BEGIN;
SELECT (idem_claim('lat')).outcome FROM generate_series(1, 3);
SELECT attempt FROM idem_claim('lat');
SELECT idem_complete('lat', 'x'::text);
SELECT outcome FROM idem_claim('lat');
COMMIT;
EOT
		is( $node->safe_psql($db, <<'EOT') =~ s/\n/ /gr, 't claimed t x', 'claim, work and complete in one statement');
WITH c AS MATERIALIZED (SELECT * FROM idem_claim('cte')),
	w AS (INSERT INTO target SELECT 99, 0 FROM c WHERE run AND attempt = 1 RETURNING id)
SELECT c.run, c.outcome, CASE WHEN run THEN idem_complete('cte', 'x'::text) END AS finished
FROM c, (SELECT count(*) FROM w) AS done \gset
\echo :run :outcome :finished
SELECT response FROM idem_claim('cte');
EOT

		# Results fetched bit by bit, kept, explained, copied.
		is( $node->safe_psql($db, <<'EOT') =~ s/\n/ /gr, '1 2 3 f f', 'through a cursor');
BEGIN;
DECLARE c CURSOR FOR SELECT i FROM generate_series(1, 5) AS i WHERE idem_once('cur' || i);
FETCH 2 FROM c;
SAVEPOINT s;
FETCH 1 FROM c;
COMMIT;
SELECT idem_once('cur1');
SELECT idem_once('cur3');
EOT
		is( errcode($node, $db, q{
BEGIN; DECLARE c CURSOR WITH HOLD FOR SELECT * FROM idem_claim('hold'); COMMIT}),
			'ID500', 'a claim made by a holdable cursor at COMMIT is refused');
		is( $node->safe_psql($db, q{
BEGIN; DECLARE c CURSOR WITH HOLD FOR SELECT idem_once('held'); COMMIT; FETCH c; SELECT idem_once('held')}),
			"t\nf", 'a completed one is kept');
		is( errcode($node, $db, q{EXPLAIN ANALYZE SELECT * FROM idem_claim('explain')}),
			'ID500', 'EXPLAIN ANALYZE claims');
		is( errcode($node, $db, q{EXPLAIN SELECT * FROM idem_claim('explain')}),
			'none', 'EXPLAIN does not');
		is( errcode($node, $db, q{COPY (SELECT * FROM idem_claim('copy')) TO STDOUT}),
			'ID500', 'COPY of an unfinished claim');
		is( errcode($node, $db, q{CREATE TABLE made AS SELECT * FROM idem_claim('ctas')}),
			'ID500', 'CREATE TABLE AS of one');
		is( errcode($node, $db, q{SELECT count(*) FROM made}),
			'42P01', 'which makes no table');

		# At the end of the transaction.
		$node->safe_psql($db, <<'EOT');
CREATE TABLE deferred (k text, finish boolean);
CREATE FUNCTION late() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF (idem_claim(NEW.k)).run AND NEW.finish THEN
		PERFORM idem_complete(NEW.k, 'late'::text);
	END IF;
	RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER late AFTER INSERT ON deferred
	DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION late();
EOT
		is( errcode($node, $db, q{INSERT INTO deferred VALUES ('late1', true), ('late2', false)}),
			'ID500', 'a claim left by a deferred trigger is refused');
		is( $node->safe_psql($db, q{
INSERT INTO deferred VALUES ('late1', true), ('late2', true);
SELECT response FROM idem_lookup('late1')}),
			'late', 'a finished one is stored');

		# Procedures that commit, and blocks that catch.
		is( errcode($node, $db, q{
DO $$ BEGIN PERFORM idem_claim('proc'); COMMIT; END $$}),
			'ID500', 'COMMIT in a DO block with an unfinished claim');
		is( $node->safe_psql($db, q{
DO $$
DECLARE c idem_claimed;
BEGIN
	FOR i IN 1 .. 3 LOOP
		BEGIN
			c := idem_claim('block' || i);
			IF i = 2 THEN RAISE EXCEPTION 'undone'; END IF;
			PERFORM idem_complete('block' || i, i::text);
		EXCEPTION WHEN raise_exception THEN NULL;
		END;
		COMMIT;
	END LOOP;
	c := idem_claim('rolled back');
	ROLLBACK;
END $$;
SELECT string_agg(key, ' ' ORDER BY key) FROM idem.key WHERE key LIKE 'block%' OR key = 'rolled back';}),
			'block1 block3', 'subtransactions and COMMIT in a procedure');
		is( errcode($node, $db, q{
DO $$ BEGIN
	BEGIN COMMIT; EXCEPTION WHEN OTHERS THEN NULL; END;
	PERFORM idem_claim('again');
END $$}), 'ID500', 'a DO block that ends with an unfinished claim');

		# Several statements in one message, and in one pipeline, are one
		# transaction.
		my ($rc, $out, $err) = $node->psql($db, q{SELECT 1 \;
SELECT run FROM idem_claim('message') \; SELECT idem_complete('message', 'm'::text);
SELECT response FROM idem_claim('message');});
		is($out, "1\nt\nt\nm", 'claim and complete in one message');
		bench_run($node, $db, 'one pipeline', [ '-t', '1', '-M', 'extended' ], <<'EOT');
\startpipeline
SELECT * FROM idem_claim('pipe');
INSERT INTO target VALUES (1000, 0);
SELECT idem_complete('pipe', 'p'::text);
\endpipeline
EOT
		is( $node->safe_psql($db, q{SELECT response FROM idem_claim('pipe')}),
			'p', 'claim and complete in one pipeline');
		($rc, $out, $err) = bench_finish(
			bench_start($node, $db, [ '-t', '1', '-M', 'extended' ], <<'EOT'));
\startpipeline
INSERT INTO target VALUES (2000, 0);
SELECT * FROM idem_claim('pipe2');
\endpipeline
EOT
		isnt($rc, 0, 'a pipeline that ends with an unfinished claim fails');
		is( $node->safe_psql($db, q{SELECT count(*) FROM target WHERE id = 2000}),
			'0', 'with all that was in it');

		# Two-step: savepoints of a driver round every statement.
		is( $node->safe_psql($db, <<'EOT') =~ s/\n/ /gr, 'claimed t completed|s', 'a savepoint round every statement');
BEGIN;
SAVEPOINT _1; SELECT outcome FROM idem_claim('sp'); RELEASE _1;
SAVEPOINT _1; SELECT idem_complete('sp', 's'::text); RELEASE _1;
COMMIT;
SELECT outcome, response FROM idem_claim('sp');
EOT
		is( errcode($node, $db, <<'EOT'), 'ID500', 'complete rolled back: unfinished again');
BEGIN;
SELECT outcome FROM idem_claim('sp2');
SAVEPOINT a; SELECT idem_complete('sp2', 's'::text); ROLLBACK TO a;
COMMIT;
EOT
		check_storage($node, $db, 'afterwards');
	});

$node->stop;
done_testing();
