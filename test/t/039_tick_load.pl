# Two tickers beside writers: every due row is fired exactly once or was moved
# by somebody else.  A standby reads: what is allowed, why not, history.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use IdemTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = idem_node(
	'tick_load',
	init => { allows_streaming => 1 },
	conf => "restart_after_crash = on\nwal_consistency_checking = 'heap,heap2,btree,sequence'\n");

$node->safe_psql('postgres', 'CREATE ROLE regress_idem_owner');
idem_database($node, 'tick');
$node->safe_psql('tick', <<'EOT');
SELECT idem_grant('regress_idem_owner', 'operator');
GRANT CREATE ON SCHEMA public TO regress_idem_owner;
INSERT INTO idem.machine (name) VALUES ('m');
INSERT INTO idem.state (machine, name, initial) VALUES ('m', 'open', true), ('m', 'taken', false), ('m', 'expired', false);
INSERT INTO idem.transition (machine, event, from_state, to_state, priority, guard, after) VALUES
	('m', 'take', 'open', 'taken', 1, NULL, NULL), ('m', 'expire', 'open', 'expired', 2, '1 / new.n > 0', '0 s'), ('m', 'reopen', 'taken', 'open', 3, NULL, NULL);
SET ROLE regress_idem_owner;
CREATE TABLE t (id int PRIMARY KEY, state text NOT NULL DEFAULT 'open', n int NOT NULL DEFAULT 1);
SELECT idem_attach('m', 't', 'state', history => true);
RESET ROLE;
EOT
$node->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'base', has_streaming => 1);
$standby->start;

# every tenth row is poisoned
my $insert = <<'EOT';
\set id random(1, 1000000)
INSERT INTO t VALUES (:id, 'open', CASE WHEN :id % 10 = 0 THEN 0 ELSE 1 END) ON CONFLICT DO NOTHING;
EOT
my $take = <<'EOT';
BEGIN;
SELECT coalesce(max(id), 0) AS id FROM (SELECT id FROM t WHERE state = 'open' LIMIT 1) AS one \gset
SELECT outcome FROM idem_try_fire('t', :id, 'take');
END;
EOT
my $tick = 'SELECT count(*) FROM idem_tick(50)';

my $load = bench_start($node, 'tick', [ '-c', '6', '-j', '2', '-t', '300' ], [ $insert, 4 ], [ $take, 2 ], [ $tick, 2 ]);
my ($rc, $out, $err) = bench_finish($load);
is($rc, 0, 'no writer and no ticker fails');
unlike($err, qr/ERROR/, 'nor a statement') or diag($err);
# takers may have taken every poisoned row; this one they cannot
$node->safe_psql('tick', q{INSERT INTO t VALUES (1000010, 'open', 0)});
$node->safe_psql('tick', 'SELECT count(*) FROM idem_tick(NULL)');

is($node->safe_psql('tick', q{SELECT count(*) FROM t WHERE state = 'open' AND n = 1}), '0', 'all that could expire has');
is($node->safe_psql('tick', <<'EOT'), '', 'each row once, by one event');
SELECT row_key, count(*) FROM idem.history GROUP BY row_key HAVING count(*) > 2;
EOT
is($node->safe_psql('tick', <<'EOT'), '', 'and is where its history says');
SELECT * FROM t JOIN (SELECT (row_key->>'id')::int AS id, (array_agg(to_state ORDER BY seq DESC))[1] AS last FROM idem.history GROUP BY 1) AS h USING (id)
WHERE state <> last;
EOT
# a row that was taken while a ticker put its timer off may have that still
is($node->safe_psql('tick', <<'EOT'), 't|t|t', 'timers are left of the poisoned alone, put off');
SELECT bool_and(n = 0 AND due > since) FILTER (WHERE t.state = 'open'), count(*) FILTER (WHERE t.state = 'open') = (SELECT count(*) FROM t WHERE state = 'open'), count(*) > 0
FROM idem.timer JOIN t ON id = (row_key->>'id')::int;
EOT
cmp_ok($node->safe_psql('tick', q{SELECT count(*) FROM idem.history WHERE event = 'expire'}), '>', 50, 'tickers had work');

# a cancelled or killed tick leaves nothing half done
$node->safe_psql('tick', q{INSERT INTO t SELECT generate_series(2000001, 2000020)});
crash_backend($node, 'tick', "BEGIN;\nSELECT count(*) FROM idem_tick(10);");
is($node->safe_psql('tick', q{SELECT count(*) FROM t WHERE id > 2000000 AND state = 'open'}), '20', 'killed: nothing fired');
is($node->safe_psql('tick', q{SELECT count(*) FROM idem_tick() WHERE outcome = 'applied'}), '20', 'then all');

# A row's trigger or guard that sleeps, waits for a lock, or goes on after a
# cancel, is ended when its time is up; others are fired.  A cancel of the
# whole statement is none of that.
$node->safe_psql('tick', <<'EOT');
SET ROLE regress_idem_owner;
CREATE TABLE behind (id int PRIMARY KEY);
INSERT INTO behind VALUES (1);
CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	CASE new.id - 3000000
	WHEN 91 THEN PERFORM pg_sleep(600);
	WHEN 92 THEN PERFORM FROM behind FOR UPDATE;
	WHEN 93 THEN
		FOR i IN 1 .. 2 LOOP
			BEGIN
				PERFORM pg_sleep(600);
			EXCEPTION WHEN query_canceled THEN NULL;
			END;
		END LOOP;
		PERFORM pg_sleep(600);
	WHEN 94 THEN PERFORM set_config('idem.tick_row_timeout', '0', false);
	ELSE NULL;
	END CASE;
	RETURN new;
END $$;
CREATE TRIGGER slow BEFORE UPDATE ON t FOR EACH ROW EXECUTE FUNCTION slow();
INSERT INTO t SELECT i, 'open', 1 FROM generate_series(3000090, 3000095) AS i;
EOT
my $holder = $node->background_psql('tick');
$holder->query_safe("BEGIN;\nSELECT FROM behind FOR UPDATE;");
my $ticked = q{SELECT string_agg((row_key->>'id') || ' ' || outcome, ', ' ORDER BY row_key) FROM idem_tick() WHERE row_key->>'id' ~ '^30000..$'};
is($node->safe_psql('tick', "SET idem.tick_row_timeout = '200ms'; $ticked"),
	'3000090 applied, 3000091 error, 3000092 error, 3000093 error, 3000094 error, 3000095 applied',
	'what takes too long is ended, alone');
is($node->safe_psql('tick', q{SELECT string_agg(tries::text, ' ') FROM idem.timer WHERE row_key->>'id' ~ '^30000..$'}), '1 1 1 1', 'and put off');
$holder->query_safe('COMMIT');
$holder->quit;
my $again = q{UPDATE idem.timer SET due = since WHERE row_key = '{"id": 3000091}'};
is(errcode($node, 'tick', "$again; SET statement_timeout = '300ms'; SELECT * FROM idem_tick()"), '57014', 'a statement that is cancelled is');
is($node->safe_psql('tick', q{SELECT state FROM t WHERE id = 3000091}), 'open', 'and nothing of it stays');

# Timer and row are locked and written by one transaction or subtransaction
# each, so that no event costs a MultiXactId.
sub multixacts
{
	$node->safe_psql('tick', 'CHECKPOINT');
	return $node->safe_psql('tick', 'SELECT next_multixact_id FROM pg_control_checkpoint()');
}
$node->safe_psql('tick', <<'EOT');
INSERT INTO idem.machine (name) VALUES ('mx');
INSERT INTO idem.state (machine, name, initial) VALUES ('mx', 'open', true), ('mx', 'late', false), ('mx', 'lost', false);
INSERT INTO idem.transition (machine, event, from_state, to_state, priority, guard, after) VALUES
	('mx', 'delay', 'open', 'late', 1, 'new.id % 10 <> 0', '0 s'), ('mx', 'lose', 'late', 'lost', 2, 'new.id % 10 <> 1 or 1 / (new.id % 10 - 1) > 0', '0 s');
SET ROLE regress_idem_owner;
CREATE TABLE mx (id int PRIMARY KEY, state text NOT NULL DEFAULT 'open');
SELECT idem_attach('mx', 'mx', 'state', history => true);
INSERT INTO mx SELECT generate_series(1, 100);
DELETE FROM mx WHERE id % 10 = 5;
EOT
my $before = multixacts();
my $told = q{SELECT string_agg(event || ' ' || outcome || ' ' || n, ', ' ORDER BY event, outcome) FROM (SELECT event, outcome, count(*) AS n FROM idem_tick() WHERE table_name = 'public.mx' GROUP BY 1, 2) AS told};
is($node->safe_psql('tick', $told), 'delay applied 80, delay guarded 10, delay missing 10', 'events of many rows');
is($node->safe_psql('tick', $told), 'lose applied 70, lose error 10', 'and what they make due');
is(multixacts(), $before, 'without a MultiXactId');

$node->wait_for_catchup($standby);
is($standby->safe_psql('tick', q{SELECT * FROM idem_allowed('t', 2000001)}), '', 'standby: allowed');
is($standby->safe_psql('tick', q{SELECT idem_why_not('t', '2000001', 'take')}), 'illegal: no transition "take" leaves "expired"', 'standby: why not');
is($standby->safe_psql('tick', q{SELECT event, to_state FROM idem_history('t', 2000001)}), "|open\nexpire|expired", 'standby: history');
is($standby->safe_psql('tick', q{SELECT count(*) >= 2 FROM idem.dwell}), 't', 'standby: dwell');
foreach my $write (
	q{idem_fire('t', 2000001, 'take')}, q{idem_try_fire('t', 2000001, 'take')},
	q{idem_fire_many('t', '{2000001}', 'take')}, 'idem_tick()')
{
	is(errcode($standby, 'tick', "SELECT * FROM $write"), '25006', "standby: $write");
}

$standby->stop;
$node->stop;
done_testing();
