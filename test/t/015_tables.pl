# idem.access = auto: a plain idem.key is reached directly; one with triggers,
# row security that applies, partitions, or a foreign planner is reached by
# SQL, where all of these work, and the answers stay right.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use IdemTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = idem_node('tables');

# A short life of every kind of claim.
my $life = <<'EOT';
BEGIN;
SELECT outcome FROM idem_claim('PREt', '{"a":1}');
SELECT idem_step('PREt', 's');
SELECT idem_complete('PREt', 'r'::text, code => 200);
SELECT outcome FROM idem_claim('PREf');
SELECT idem_fail('PREf', 'e');
COMMIT;
SELECT outcome, response, code FROM idem_claim('PREt', '{"a":1}');
SELECT outcome FROM idem_claim('PREt', '{"a":2}');
SELECT outcome, response FROM idem_claim('PREf');
SELECT outcome, fence AS f FROM idem_claim('PREl', lease => '1 h') \gset
SELECT :'outcome', outcome FROM idem_claim('PREl');
SELECT idem_renew('PREl', '2 h', fence => :f) > now();
SELECT idem_complete('PREl', 'r'::text, fence => :f);
SELECT outcome FROM idem_claim('PREl');
SELECT outcome FROM idem_claim('PREs', hold => 'session');
SELECT idem_retry('PREs', 'busy');
SELECT outcome, attempt FROM idem_claim('PREs', hold => 'session');
SELECT idem_release('PREs');
SELECT idem_once('PREo');
SELECT idem_once('PREo');
SELECT idem_once_many(ARRAY['PREb', 'PREo', 'PREa']);
SELECT idem_import('PREi', 'x');
SELECT idem_import_many(ARRAY['PREi', 'PREj'], ARRAY['x', 'y']);
SELECT idem_reopen('PREf');
SELECT idem_forget('PREj', force => true);
SELECT count(*) FROM idem_lookup('PREj');
SELECT outcome FROM idem_claim('PREx', lease => '1 ms', ttl => '1 ms');
SELECT sum(removed) >= 0 FROM idem_sweep();
SELECT outcome FROM idem_lookup('PREt');
EOT
my $answers = 'claimed t t claimed t completed|r|200 mismatch failed|e '
  . 'claimed|in_progress t t completed claimed t claimed|2 t t f PREb PREa '
  . 't 1 t t 0 claimed t completed';

sub life_is
{
	my ($db, $prefix, $name) = @_;
	my $sql = $life =~ s/PRE/$prefix/gr;

	is( $node->safe_psql($db, $sql) =~ s/\n/ /gr,
		$answers =~ s/PRE/$prefix/gr, $name);
	return;
}

# The same under contention.
sub contention_ok
{
	my ($db, $prefix, $name) = @_;

	$node->safe_psql($db, 'CREATE TABLE IF NOT EXISTS effect (key text); TRUNCATE effect');
	bench_run($node, $db, $name, [ '-c', '6', '-t', '60' ], <<"EOT", <<"EOT2");
\\set k random(1, 60)
BEGIN;
SELECT run FROM idem_claim('$prefix' || :k) \\gset
\\if :run
INSERT INTO effect VALUES ('$prefix' || :k);
SELECT idem_complete('$prefix' || :k, 'r' || :k);
\\endif
COMMIT;
EOT
\\set k random(1, 60)
INSERT INTO effect SELECT idem_once_many(ARRAY(SELECT '${prefix}m' || i FROM generate_series(:k, :k + 5) AS i ORDER BY random()));
EOT2
	check_effects($node, $db, "key LIKE '$prefix%'", $name);
	return;
}

# Plain.
my $db = idem_database($node, 'auto', undef);
is(way_taken($node, $db, 'plain'), 'direct', 'a plain table is reached directly');
life_is($db, 'plain', 'plain table');
$node->safe_psql($db, 'CREATE INDEX extra ON idem.key (created_at)');
is(way_taken($node, $db, 'extra'), 'direct', 'an index more does not matter');
life_is($db, 'index', 'with an index more');
is( $node->safe_psql($db, q{
SET enable_seqscan = off;
SELECT count(*) = (SELECT count(*) FROM (SELECT created_at + '0 s' FROM idem.key OFFSET 0) AS x)
FROM idem.key WHERE created_at > '-infinity'}),
	't',
	'the index has every row');
check_storage($node, $db, 'with an index more');

# A forced choice is seen.
is( $node->safe_psql($db, q{SET idem.access = 'sql'; SELECT idem_once('forced')}),
	't', 'idem.access can be set by a superuser');

# User triggers, made while a session is using the table.
my $s = session($node, $db);
ask($s, q{SELECT idem_once('before trigger')});
$node->safe_psql($db, <<'EOT');
CREATE TABLE fired (op text, key text);
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO public.fired VALUES (TG_OP, coalesce(NEW.key, OLD.key));
	RETURN coalesce(NEW, OLD);
END $$;
CREATE TRIGGER note BEFORE INSERT OR UPDATE OR DELETE ON idem.key
	FOR EACH ROW EXECUTE FUNCTION note();
EOT
is(ask($s, q{SELECT idem_once('seen'), idem_once('seen')}),
	't|f', 'the session goes on');
like($node->safe_psql($db, q{SELECT DISTINCT op FROM fired WHERE key = 'seen'}),
	qr/INSERT/, 'and the new trigger fires');
$s->quit;
is(way_taken($node, $db, 'trigger'), 'sql', 'a table with a trigger is reached by SQL');
life_is($db, 'trig', 'with a trigger');
contention_ok($db, 'ct', 'with a trigger');
is( $node->safe_psql($db, q{SELECT string_agg(DISTINCT op, ' ' ORDER BY op) FROM fired WHERE key LIKE 'trig%'}),
	'DELETE INSERT UPDATE',
	'the trigger fires for every kind of write');
$node->safe_psql($db, 'DROP TRIGGER note ON idem.key');
is(way_taken($node, $db, 'no trigger'), 'direct', 'and directly without it again');

# Constraint triggers are honoured; one that would put off its owner's code to
# the end of the caller's transaction makes every claim fail instead.
$node->safe_psql($db, <<'EOT');
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF NEW.key = 'unwanted' THEN RAISE EXCEPTION 'unwanted' USING ERRCODE = 'P0999'; END IF;
	RETURN NEW;
END $$;
CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON idem.key
	FOR EACH ROW EXECUTE FUNCTION refuse();
EOT
is(errcode($node, $db, q{SELECT idem_once('unwanted')}),
	'P0999', 'a constraint trigger refuses a claim');
is($node->safe_psql($db, q{SELECT count(*) FROM idem_lookup('unwanted'); SELECT idem_once('wanted')}),
	"0\nt", 'and nothing is stored; others pass');
$node->safe_psql($db, <<'EOT');
DROP TRIGGER refuse ON idem.key;
CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON idem.key DEFERRABLE INITIALLY DEFERRED
	FOR EACH ROW EXECUTE FUNCTION refuse();
EOT
is(errcode($node, $db, q{SELECT idem_once('deferred')}),
	'42501', 'a deferred one is not run as its owner at COMMIT');
is($node->safe_psql($db, q{SELECT count(*) FROM idem_lookup('deferred')}),
	'0', 'and nothing is stored past it');
$node->safe_psql($db, 'DROP TRIGGER refuse ON idem.key');

# Row security: it applies to an owner who is no superuser, when forced.
$node->safe_psql($db, 'ALTER TABLE idem.key ENABLE ROW LEVEL SECURITY');
life_is($db, 'rls', 'row security that does not apply to the owner');
$node->safe_psql($db, 'ALTER TABLE idem.key DISABLE ROW LEVEL SECURITY');

$node->safe_psql('postgres', <<'EOT');
CREATE ROLE regress_idem_owner LOGIN;
CREATE ROLE regress_idem_app LOGIN;
CREATE DATABASE rls OWNER regress_idem_owner;
EOT
run_as($node, 'regress_idem_owner', 'rls', <<'EOT');
CREATE EXTENSION idem;
SELECT idem_grant('regress_idem_app');
SELECT idem_once('before', 'blue');
ALTER TABLE idem.key ENABLE ROW LEVEL SECURITY;
ALTER TABLE idem.key FORCE ROW LEVEL SECURITY;
CREATE POLICY red ON idem.key USING (scope = 'red');
EOT
foreach my $role ('regress_idem_owner', 'regress_idem_app')
{
	is( run_as($node, $role, 'rls', qq{
BEGIN; SELECT outcome FROM idem_claim('$role', scope => 'red');
SELECT idem_complete('$role', 'r'::text, 'red'); COMMIT;
SELECT outcome, response FROM idem_claim('$role', scope => 'red');}) =~ s/\n/ /gr,
		'claimed t completed|r',
		"$role: a claim that the policy allows");
	is( errcode($node, 'rls', q{SELECT * FROM idem_claim('k', scope => 'green', lease => '1 h')},
			extra_params => [ '-U', $role ]),
		'42501',
		"$role: one that it does not");
	is( errcode($node, 'rls', q{SELECT idem_once('before', 'blue')},
			extra_params => [ '-U', $role ]),
		'42501',
		"$role: a key that exists but is hidden is not granted again");
}

# A foreign planner that distributes the table.
my $fake = idem_database($node, 'fake', undef);
is(way_taken($node, $fake, 'one'), 'direct', 'before');
$node->safe_psql($fake, <<'EOT');
SET allow_system_table_mods = on;
CREATE TABLE pg_catalog.pg_dist_partition (logicalrelid regclass NOT NULL, partmethod "char" NOT NULL, partkey text);
INSERT INTO pg_catalog.pg_dist_partition VALUES ('idem.scope', 'n');
EOT
is(way_taken($node, $fake, 'other'), 'direct',
	'another table is distributed: directly');
$node->safe_psql($fake, <<'EOT');
SET allow_system_table_mods = on;
INSERT INTO pg_catalog.pg_dist_partition VALUES ('idem.key', 'h');
EOT
is(way_taken($node, $fake, 'two'), 'sql', 'a distributed table is reached by SQL');
life_is($fake, 'fake', 'distributed in name');

# Without its primary key nothing is granted.
my $bare = idem_database($node, 'bare', undef);
$node->safe_psql($bare, q{SELECT idem_once('k'); ALTER TABLE idem.key DROP CONSTRAINT key_pkey});
isnt(errcode($node, $bare, q{SELECT idem_once('k')}),
	'none', 'no claim without a unique index');
$node->safe_psql($bare, 'ALTER TABLE idem.key ADD CONSTRAINT again PRIMARY KEY (scope, key)');
is($node->safe_psql($bare, q{SELECT idem_once('k'), idem_once('l')}),
	'f|t', 'it works again with one of another name');
$node->safe_psql($bare, q{ALTER TABLE idem.key DROP CONSTRAINT again;
CREATE UNIQUE INDEX partial ON idem.key (scope, key) WHERE state = 'completed'});
isnt(errcode($node, $bare, q{SELECT idem_once('k')}),
	'none', 'a partial unique index is not enough');

# Partitioned by hash.
my $part = idem_database($node, 'part', undef);
my $through = session($node, $part);
ask($through, q{SELECT idem_once('direct'); SET idem.access = 'sql';
SELECT idem_once('sql'); RESET idem.access});
$node->safe_psql($part, <<'EOT');
SELECT idem_once('from before');
SELECT pg_get_viewdef('idem.held'::regclass) AS held \gset
BEGIN;
ALTER EXTENSION idem DROP TABLE idem.key;
ALTER TABLE idem.key RENAME TO key_plain;
CREATE TABLE idem.key (LIKE idem.key_plain INCLUDING DEFAULTS INCLUDING CONSTRAINTS,
	PRIMARY KEY (scope, key)) PARTITION BY HASH (scope, key);
CREATE TABLE idem.key_0 PARTITION OF idem.key FOR VALUES WITH (MODULUS 3, REMAINDER 0) WITH (fillfactor = 45);
CREATE TABLE idem.key_1 PARTITION OF idem.key FOR VALUES WITH (MODULUS 3, REMAINDER 1) WITH (fillfactor = 45);
CREATE TABLE idem.key_2 PARTITION OF idem.key FOR VALUES WITH (MODULUS 3, REMAINDER 2) WITH (fillfactor = 45);
INSERT INTO idem.key SELECT * FROM idem.key_plain;
CREATE OR REPLACE VIEW idem.held AS :held
DROP TABLE idem.key_plain;
COMMIT;
EOT
is($node->safe_psql($part, q{SELECT idem_once('from before')}),
	'f', 'partitioned: the old rows count');
is(ask($through, q{SELECT idem_once('sql'), idem_once('direct'), idem_once('then')}),
	'f|f|t', 'partitioned: a session goes on through the exchange');
$through->quit;
is(way_taken($node, $part, 'two'), 'sql', 'a partitioned table is reached by SQL');
life_is($part, 'part', 'partitioned by hash');
contention_ok($part, 'cp', 'partitioned by hash');
$node->safe_psql($part, <<'EOT');
SELECT count(*) FROM idem_once_many(ARRAY(SELECT 'x' || i FROM generate_series(1, 3000) AS i), ttl => '1 ms');
EOT
$node->safe_psql($part, 'SELECT idem_sweep(100000)') foreach 1 .. 3;
is($node->safe_psql($part, q{SELECT count(*) FROM idem.key WHERE key LIKE 'x%'}),
	'0', 'partitioned: swept');
# ... by few statements, also where all expired at the same time
foreach my $bounds (q{NULL, '1 h'}, '10000')
{
	is($node->safe_psql($part, <<"EOT"), '3000|t', "partitioned: swept by few statements ($bounds)");
SET client_min_messages = error;
SET idem.access = 'auto';
CREATE SEQUENCE swept;
CREATE FUNCTION swept() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM nextval(''public.swept''); RETURN NULL; END';
CREATE TRIGGER swept AFTER DELETE ON idem.key FOR EACH STATEMENT EXECUTE FUNCTION swept();
DO \$\$ BEGIN PERFORM idem_once_many(ARRAY(SELECT 'x' || i FROM generate_series(1, 3000) AS i)); END \$\$;
UPDATE idem.key SET expires_at = '2020-01-01' WHERE key LIKE 'x%';
SELECT removed, (SELECT last_value FROM swept) < 30 FROM idem_sweep($bounds) WHERE kind = 'key';
DROP TRIGGER swept ON idem.key;
DROP FUNCTION swept;
DROP SEQUENCE swept;
EOT
}
is($node->safe_psql($part, q{
SELECT idem_once_many(ARRAY(SELECT 'x' || i FROM generate_series(1, 3) AS i));
SELECT outcome FROM idem_claim('held', lease => '1 h');
SELECT key FROM idem.held}) =~ s/\n/ /gr,
	'x1 x2 x3 claimed held', 'partitioned: batch and view');
isnt(errcode($node, $part, q{SET idem.access = 'direct'; SELECT idem_once('direct')}),
	'XX000', 'direct on a partitioned table is not an internal error');
is($node->safe_psql($part, q{SELECT count(*) > 0 FROM idem.key}),
	't', 'and the server lives');

# A foreign table: exact for one session at a time.
my $remote = idem_database($node, 'remote', undef);
my $foreign = idem_database($node, 'foreign', undef);
my ($host, $port) = ($node->host, $node->port);
$node->safe_psql($foreign, <<"EOT");
CREATE EXTENSION postgres_fdw;
CREATE SERVER remote FOREIGN DATA WRAPPER postgres_fdw
	OPTIONS (host '$host', port '$port', dbname 'remote');
CREATE USER MAPPING FOR CURRENT_USER SERVER remote;
CREATE SCHEMA imported;
IMPORT FOREIGN SCHEMA idem LIMIT TO (key) FROM SERVER remote INTO imported;
SELECT pg_get_viewdef('idem.held'::regclass) AS held \\gset
ALTER EXTENSION idem DROP TABLE idem.key;
ALTER TABLE idem.key RENAME TO key_plain;
ALTER FOREIGN TABLE imported.key SET SCHEMA idem;
CREATE OR REPLACE VIEW idem.held AS :held
EOT
life_is($foreign, 'foreign', 'a foreign table, one session');
is(way_taken($node, $foreign, 'two'), 'sql', 'a foreign table is reached by SQL');
is($node->safe_psql($remote, q{SELECT response FROM idem_claim('foreignt')}),
	'r', 'the other side has the same record');
check_storage($node, $remote, 'the other side');

$node->stop;
done_testing();
