# EveryKind.pm - a database with a row of every kind that idem keeps, for tests
# that move it: pg_upgrade, dumps, standbys
#
# fill_every_kind() makes it, every_row() is all that must arrive, and
# every_kind_goes_on() uses each of them there.  fill_former() makes one as a
# former version left it.

package EveryKind;

use strict;
use warnings;

use Exporter 'import';
use File::Basename;
use IdemTest;
use PostgreSQL::Test::Utils;
use Test::More;

our @EXPORT = qw(fill_every_kind fill_former %former_databases every_row every_kind_goes_on);

# What the rows of test/lib/database-VERSION.sql do not tell, as fill_every_kind()
# returned it.
our %former_databases = (
	'1.0.0' => {
		fresh => '7jM1JWl9k9RrK0WmA6hHOi4U4Ehc-LqEEyij1qkex7w',
		used => 'JLNp2Mlqkl9grK381zb3auZ5XFu5v4uixD7zUCi541A',
		highest => 3
	});

# As a role that may install idem in an empty database.  Returns what the rows
# do not tell: the tokens, and the highest fence.
sub fill_every_kind
{
	my ($node, $role, $db) = @_;
	my ($fresh, $used, $highest) = split /\n/, run_as($node, $role, $db, <<'EOT');
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
SELECT max(fence) FROM (SELECT fence FROM idem.key UNION ALL SELECT fence FROM idem.lease) AS f;
EOT

	return { fresh => $fresh, used => $used, highest => $highest };
}

# Loads what a database of a former version had, and some objects of users that
# depend on idem's, into one that has the extension in a schema.  Its own roles
# are regress_idem_owner, _app and _reader.  Where the extension is of that
# version too, this library's triggers would refuse the rows, so a superuser
# loads them.
sub fill_former
{
	my ($node, $by, $db, $version, $schema) = @_;
	my $dump = slurp_file(dirname(__FILE__) . "/database-$version.sql");
	my $file = "$PostgreSQL::Test::Utils::tmp_check/former_$db.sql";

	(my $q = $schema) =~ s/"/""/g;
	$dump = "SET session_replication_role = replica;\n$dump" if $by ne 'regress_idem_owner';
	$dump =~ s/\bpublic\.idem_/"$q".idem_/g if $schema ne 'public';
	append_to_file($file, qq{$dump\nGRANT USAGE ON SCHEMA "$q" TO regress_idem_app;\n});
	$node->command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-o', "$file.out", '-U', $by, '-f', $file, $node->connstr($db) ],
		"$db: filled as $version was");
	unlink $file, "$file.out";
	return $former_databases{$version};
}

# Every row of every table, sequences, bindings, triggers, grants.
sub every_row
{
	my ($node, $role, $db) = @_;

	return run_as($node, $role, $db, <<'EOT');
SELECT 'key', k::text FROM idem.key AS k
UNION ALL SELECT 'scope', s::text FROM idem.scope AS s
UNION ALL SELECT 'machine', m::text FROM idem.machine AS m
UNION ALL SELECT 'state', s::text FROM idem.state AS s
UNION ALL SELECT 'transition', t::text FROM idem.transition AS t
UNION ALL SELECT 'history', h::text FROM idem.history AS h
UNION ALL SELECT 'timer', t::text FROM idem.timer AS t
UNION ALL SELECT 'token', t::text FROM idem.token AS t
UNION ALL SELECT 'lease', l::text FROM idem.lease AS l
UNION ALL SELECT 'window', w::text FROM idem.window_hit AS w
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
}

# The verbs, and what triggers refuse.  Windows are unlogged: where they could
# not come along, they start afresh.
sub every_kind_goes_on
{
	my ($node, $role, $db, $filled, $name, %o) = @_;
	my ($fresh, $used, $highest) = @$filled{qw(fresh used highest)};
	my $hits = $o{windows_lost} ? 1 : 2;

	is(run_as($node, $role, $db, <<"EOT"), <<"EOT2" =~ s/\n\z//r, "$name: the verbs go on");
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
t|$hits
reused|valid|consumed
t
EOT2
	is( join(' ', map { errcode($node, $db, $_) } (
				q{UPDATE orders SET state = 'draft' WHERE id = 1},
				q{UPDATE report SET body = 'old', fence = 999},
				q{UPDATE report SET body = 'newer', fence = 1001})),
		'ID409 ID412 none',
		"$name: guards and fences refuse as before");
	return;
}

1;
