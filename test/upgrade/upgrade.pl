# pg_upgrade from an older major, preloaded on both sides: every kind of row
# comes over as it was, and the verbs go on with it.  The older server's
# programs are in $IDEM_OLD_SERVER/bin; tools/check-majors makes them.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use IdemTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $old_server = $ENV{IDEM_OLD_SERVER}
  or plan skip_all => 'IDEM_OLD_SERVER names no server to upgrade from';

my $conf = <<'EOT';
shared_preload_libraries = 'idem'
max_prepared_transactions = 10
EOT
my %init = (extra => [ '--encoding=UTF8', '--locale=C' ]);

sub upgrade_node
{
	my ($name, %o) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name, %o);

	$node->init(%init);
	$node->append_conf('postgresql.conf', $conf);
	return $node;
}

my $old = upgrade_node('old', install_path => $old_server);
$old->start;
$old->safe_psql('postgres', <<'EOT');
CREATE ROLE regress_idem_owner LOGIN;
CREATE ROLE regress_idem_app LOGIN;
CREATE DATABASE app OWNER regress_idem_owner;
EOT

# An unprivileged owner installs and uses it.
my @tokens = split /\n/, run_as($old, 'regress_idem_owner', 'app', <<'EOT');
\o /dev/null
CREATE EXTENSION idem;
SELECT idem_grant('regress_idem_app');
INSERT INTO idem.scope (name, hold, lease, ttl, roles) VALUES ('pay', 'lease', '5 min', '30 days', '{regress_idem_app,regress_idem_owner}');
BEGIN;
SELECT idem_claim('done', '{"a":1}'), idem_complete('done', E'byte\t"for" byte \u00e9'::text, code => 201);
SELECT idem_claim('failed'), idem_fail('failed', 'no funds', code => 402);
SELECT idem_claim('later'), idem_retry('later', 'busy', after => '1 h');
SELECT idem_once_many(ARRAY['b', 'a']);
COMMIT;
SELECT fence FROM idem_claim('leased', lease => '2 h', scope => 'pay') \gset
SELECT idem_step('leased', 'half', '{"n": 1e2}', scope => 'pay', fence => :fence);
SELECT run FROM idem_claim('session', hold => 'session');

CREATE FUNCTION double(n numeric) RETURNS numeric LANGUAGE sql AS 'SELECT n * 2';
SELECT idem_call('call', 'double(numeric)', '{"n": 2}'), idem_wrap('double(numeric)');
SELECT double_once('twin', 21);

SELECT idem_define('order', $$
stateDiagram-v2
    [*] --> draft
    draft --> pending : submit
    pending --> approved : approve
    pending --> expired : expire after 1 h
    approved --> [*]
$$);
CREATE TABLE orders (gone int, id int PRIMARY KEY, state text, v int NOT NULL DEFAULT 1);
ALTER TABLE orders DROP gone;
SELECT idem_attach('order', 'orders', 'state', history => true), idem_attach_version('orders', 'v');
INSERT INTO orders VALUES (1, 'draft'), (2, 'draft');
SELECT idem_fire('orders', 1, 'submit', key => 'fired');
CREATE TABLE parts (id int, state text, PRIMARY KEY (id, state)) PARTITION BY LIST (state);
CREATE TABLE parts_draft PARTITION OF parts FOR VALUES IN ('draft');
CREATE TABLE parts_rest PARTITION OF parts DEFAULT;
SELECT idem_attach('order', 'parts', 'state', history => true);
INSERT INTO parts VALUES (1, 'draft');

CREATE TABLE event (id int, key text);
SELECT idem_attach_once('event', '{key}');
INSERT INTO event VALUES (1, 'x'), (2, 'x');
SELECT idem_lease_acquire('job', '2 h', owner => 'me');
CREATE TABLE report (id int PRIMARY KEY, body text, fence bigint);
SELECT idem_attach_fence('report', 'fence');
INSERT INTO report VALUES (1, 'new', 1000);
SELECT idem_branch('saga', 'hotel', 'try');
SELECT idem_window('login', '1 day', max => 2);
SELECT idem_token_issue('mail', 'ann', ttl => '1 day') AS fresh, idem_token_issue('mail', 'bob', ttl => '1 day') AS used \gset
SELECT idem_token_use(:'used', 'mail', 'bob');
\o
SELECT :'fresh';
SELECT :'used';
EOT
is(scalar(@tokens), 2, 'filled');

# Every row of every table, sequences, triggers, grants.
my $contents = <<'EOT';
SELECT 'key', k::text FROM idem.key AS k
UNION ALL SELECT 'scope', s::text FROM idem.scope AS s
UNION ALL SELECT 'machine', m::text FROM idem.machine AS m
UNION ALL SELECT 'state', s::text FROM idem.state AS s
UNION ALL SELECT 'transition', t::text FROM idem.transition AS t
UNION ALL SELECT 'history', h::text FROM idem.history AS h
UNION ALL SELECT 'timer', t::text FROM idem.timer AS t
UNION ALL SELECT 'token', t::text FROM idem.token AS t
UNION ALL SELECT 'lease', l::text FROM idem.lease AS l
UNION ALL SELECT 'branch', b::text FROM idem.branch AS b
UNION ALL SELECT 'sequence', sequencename || ' ' || last_value FROM pg_sequences WHERE schemaname = 'idem'
UNION ALL SELECT 'binding', b::text FROM idem.binding AS b
UNION ALL SELECT 'trigger', tgrelid::regclass || ' ' || pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal
UNION ALL SELECT 'grant', p.oid::regprocedure || ' ' || (SELECT string_agg(a::text, ',' ORDER BY a::text) FROM unnest(p.proacl) AS a)
	FROM pg_proc AS p WHERE proname LIKE 'idem\_%'
UNION ALL SELECT 'dump', c.oid::regclass::text FROM pg_extension AS e, unnest(e.extconfig) AS c (oid) WHERE extname = 'idem'
UNION ALL SELECT 'extension', extversion FROM pg_extension WHERE extname = 'idem'
ORDER BY 1, 2;
EOT
my $before = run_as($old, 'regress_idem_owner', 'app', $contents);
my $highest = $old->safe_psql('app', 'SELECT max(fence) FROM (SELECT fence FROM idem.key UNION ALL SELECT fence FROM idem.lease) AS f');
$old->stop;

my $new = upgrade_node('new');
chdir $PostgreSQL::Test::Utils::tmp_check or die;
$new->command_ok(
	[
		'pg_upgrade', '--no-sync',
		'-d', $old->data_dir, '-D', $new->data_dir,
		'-b', "$old_server/bin", '-B', $new->config_data('--bindir'),
		'-s', $new->host, '-p', $old->port, '-P', $new->port
	],
	'pg_upgrade');
$new->start;

is(run_as($new, 'regress_idem_owner', 'app', $contents), $before,
	'rows, sequences, triggers, grants are what they were');
my ($fresh, $used) = @tokens;
is(run_as($new, 'regress_idem_owner', 'app', <<"EOT"), <<'EOT' =~ s/\n\z//r, 'the verbs go on');
\\set VERBOSITY sqlstate
SELECT outcome, response = E'byte\\t"for" byte \\u00e9', code FROM idem_claim('done', '{"a":1.0}');
SELECT outcome FROM idem_claim('done', '{"a":2}');
SELECT outcome, response, code FROM idem_claim('failed');
SELECT outcome FROM idem_claim('later');
SELECT idem_once('a'), idem_once('c');
SELECT outcome FROM idem_claim('leased', scope => 'pay');
SELECT idem_complete('leased', 'r'::text, scope => 'pay', fence => (SELECT fence FROM idem.key WHERE key = 'leased'));
SELECT outcome, fence > $highest FROM idem_claim('session', hold => 'session');
SELECT outcome, fence > $highest FROM idem_claim('fresh', lease => '1 h');
SELECT idem_call('call', 'double(numeric)', '{"n": 2.0}'), double_once('twin', 21);
SELECT outcome, version FROM idem_fire('orders', 1, 'submit', key => 'fired');
SELECT outcome, from_state, to_state, version FROM idem_try_fire('orders', 1, 'approve');
SELECT outcome FROM idem_try_fire('orders', 2, 'approve');
SELECT outcome, version FROM idem_update('orders', 2, 7, '{"state": "pending"}');
SELECT event, from_state, to_state FROM idem_history('orders', 1) ORDER BY seq;
UPDATE parts SET state = 'pending';
SELECT tableoid::regclass, count(*) FROM parts GROUP BY 1;
SELECT count(*), max(seq) > 5 FROM idem.history WHERE table_name = 'parts';
INSERT INTO event VALUES (3, 'x'), (4, 'y');
SELECT string_agg(id::text, ' ') FROM event;
SELECT run, outcome, fence <= $highest FROM idem_lease_acquire('job', '2 h', owner => 'me');
SELECT run, outcome FROM idem_lease_acquire('job', '2 h', owner => 'you');
SELECT run, fence > $highest FROM idem_lease_acquire('other job', '2 h');
SELECT idem_branch('saga', 'hotel', 'try'), idem_branch('saga', 'hotel', 'cancel');
SELECT allowed, count FROM idem_window('login', '1 day', max => 2);
SELECT idem_token_use('$used', 'mail', 'bob'), idem_token_peek('$fresh', 'mail', 'ann'), idem_token_use('$fresh', 'mail', 'ann');
SELECT count(*) > 0 FROM idem_sweep();
EOT
completed|t|201
mismatch
failed|no funds|402
in_progress
f|t
in_progress
t
takeover|t
claimed|t
4|42
already|2
applied|pending|approved|3
illegal
stale|1
||draft
submit|draft|pending
approve|pending|approved
parts_rest|1
2|t
1 4
t|acquired|t
f|held
t|t
duplicate|run
t|2
reused|valid|consumed
t
EOT

# What a trigger refuses.
is( join(' ', map { errcode($new, 'app', $_) } (
			q{UPDATE orders SET state = 'draft' WHERE id = 1},
			q{UPDATE report SET body = 'old', fence = 999},
			q{UPDATE report SET body = 'newer', fence = 1001})),
	'ID409 ID412 none',
	'guards and fences refuse as before');
is(run_as($new, 'regress_idem_app', 'app', q{SELECT outcome FROM idem_claim('by app', scope => 'pay')}),
	'claimed', 'grants count');
is($new->safe_psql('app', q{DROP EXTENSION idem CASCADE; CREATE EXTENSION idem; SELECT idem_once('again')}),
	't', 'dropped and made again');

$new->stop;
done_testing();
