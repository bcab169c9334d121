# Cancel requests at arbitrary points of claims, caught by the caller: no half
# state, nothing left unfinished, the next call is right.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use IdemTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = idem_node('cancel');

each_access(
	$node,
	sub {
		my ($db) = @_;

		$node->safe_psql($db, <<'EOT');
CREATE TABLE effect (key text);
CREATE TABLE cancelled (n int);
CREATE PROCEDURE work(n int) LANGUAGE plpgsql AS $$
DECLARE
	c idem_claimed;
	k text;
	lost int := 0;
BEGIN
	FOR i IN 1 .. n LOOP
		k := 't' || (random() * 3000)::int;
		BEGIN
			SELECT * INTO c FROM idem_claim(k, jsonb_build_object('k', k));
			IF c.run THEN
				INSERT INTO effect VALUES (k);
				PERFORM idem_complete(k, 'r' || k);
			ELSIF c.outcome <> 'completed' OR c.response <> 'r' || k THEN
				RAISE EXCEPTION 'wrong answer %', c.outcome;
			END IF;
			INSERT INTO effect SELECT idem_once_many(ARRAY(SELECT 'm' || j % 3000 FROM generate_series(i, i + 5) AS j));
		EXCEPTION WHEN query_canceled THEN
			lost := lost + 1;
		END;
		IF EXISTS (SELECT FROM idem_unfinished()) THEN
			RAISE EXCEPTION 'unfinished after a cancel';
		END IF;
		COMMIT;
		-- A session claim whose cancel does not end the session.
		BEGIN
			k := 's' || (random() * 500)::int;
			SELECT * INTO c FROM idem_claim(k, hold => 'session');
			IF c.run THEN
				PERFORM idem_complete(k, 'x'::text);
			END IF;
		EXCEPTION WHEN query_canceled THEN
			lost := lost + 1;
		END;
		COMMIT;
	END LOOP;
	INSERT INTO cancelled VALUES (lost);
END $$;
CREATE PROCEDURE annoy(n int) LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1 .. n LOOP
		PERFORM pg_cancel_backend(pid) FROM pg_stat_activity
		WHERE datname = current_database() AND query LIKE 'CALL work%' AND random() < 0.2;
		PERFORM pg_sleep(0.002);
		COMMIT;
	END LOOP;
END $$;
EOT
		# Where a cancel hits between the caught blocks, the call ends with it.
		my @workers = map { session($node, $db) } 1 .. 4;
		ask_later($_, join(";\n", ('CALL work(50)') x 100)) foreach @workers;
		my $annoy =
		  bench_start($node, $db, [ '-t', '1' ], "CALL annoy(1000);\n");
		foreach my $s (@workers)
		{
			answer($s);
			unlike($s->{stderr} =~ s/ERROR:  57014//gr,
				qr/ERROR|FATAL|PANIC/, 'cancelled or well');
			$s->quit;
		}
		bench_finish($annoy);
		cmp_ok($node->safe_psql($db, 'SELECT sum(n) FROM cancelled'),
			'>', 0, 'cancels hit claims');

		check_effects($node, $db, q{key NOT LIKE 's%'}, 'after the cancels');
		is( $node->safe_psql(
				$db, q{SELECT count(*) FROM idem.key, idem_claim(key, hold => 'session') AS c
				       WHERE key LIKE 's%' AND state = 'in_progress' AND c.outcome <> 'takeover'}),
			'0',
			'session claims of ended sessions are taken over');
		bench_run($node, $db, 'afterwards', [ '-c', '4', '-t', '1' ],
			"CALL work(500);\n");
		check_storage($node, $db, 'after the cancels');
	});

$node->stop;
done_testing();
