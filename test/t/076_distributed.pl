# What an engine like Citus asks of a table and of the statements on it, as far
# as it can be read off without one: the unique index contains the column that
# distributes; rows are written and locked by that column alone, with no
# volatile function; nothing changes it; the script runs the same on every
# server.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use IdemTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = idem_node('distributed');
my $worker = idem_node('worker');

# Two servers that never met make the same thing of CREATE EXTENSION.
my $catalog = <<'EOT';
SELECT p.oid::regprocedure, pg_get_function_result(p.oid), p.provolatile, p.proparallel, p.proacl IS NULL, obj_description(p.oid, 'pg_proc')
FROM pg_proc AS p, pg_depend AS d
WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'idem')
ORDER BY 1;
SELECT a.attrelid::regclass, attname, atttypid::regtype, attnotnull, pg_get_expr(adbin, adrelid)
FROM pg_attribute AS a LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
WHERE attnum > 0 AND attrelid IN (SELECT oid FROM pg_class WHERE relnamespace = 'idem'::regnamespace)
ORDER BY a.attrelid::regclass::text, attnum;
SELECT indexdef FROM pg_indexes WHERE schemaname = 'idem' ORDER BY indexname;
EOT
idem_database($_, 'app', undef) foreach $node, $worker;
is($node->safe_psql('app', $catalog), $worker->safe_psql('app', $catalog),
	'CREATE EXTENSION makes the same on every server');

# The key distributes: every unique index contains it.
is( $node->safe_psql('app', <<'EOT'), 't', 'every unique index of idem.key contains the key');
SELECT bool_and((SELECT attnum FROM pg_attribute WHERE attrelid = indrelid AND attname = 'key') = ANY (indkey::int2[]))
FROM pg_index WHERE indrelid = 'idem.key'::regclass AND indisunique;
EOT
is( $node->safe_psql('app', <<'EOT'), '', 'no foreign key, exclusion, trigger or generated column is in the way');
SELECT conname FROM pg_constraint WHERE 'idem.key'::regclass IN (conrelid, confrelid) AND contype NOT IN ('p', 'n')
UNION ALL SELECT tgname FROM pg_trigger WHERE tgrelid = 'idem.key'::regclass
UNION ALL SELECT attname FROM pg_attribute WHERE attrelid = 'idem.key'::regclass AND (attgenerated <> '' OR attidentity <> '')
EOT

# Every statement that the verbs run on it.
my $load = <<'EOT';
LOAD 'auto_explain';
SET auto_explain.log_min_duration = 0;
SET auto_explain.log_nested_statements = on;
SET auto_explain.log_level = notice;
EOT
my $life = <<'EOT';
CREATE FUNCTION double(n numeric) RETURNS numeric LANGUAGE sql AS 'SELECT n * 2';
SELECT idem_wrap('double(numeric)');
CREATE TABLE event (id int, key text);
SELECT idem_attach_once('event', '{key}');
BEGIN;
SELECT outcome FROM idem_claim('done', '{"a":1}');
SELECT idem_step('done', 's');
SELECT idem_complete('done', 'r'::text, code => 200);
SELECT outcome FROM idem_claim('failed');
SELECT idem_fail('failed', 'e');
COMMIT;
SELECT outcome FROM idem_claim('done', '{"a":1}');
SELECT outcome, fence AS f FROM idem_claim('leased', lease => '1 h') \gset
SELECT idem_renew('leased', '2 h', fence => :f) > now();
SELECT idem_complete('leased', 'r'::text, fence => :f);
SELECT outcome FROM idem_claim('session', hold => 'session');
SELECT idem_retry('session', 'busy');
SELECT outcome FROM idem_claim('session', hold => 'session');
SELECT idem_release('session');
SELECT outcome FROM idem_claim('dead', lease => '1 ms');
SELECT pg_sleep(0.01);
SELECT outcome FROM idem_claim('dead', lease => '1 h');
SELECT idem_once('once'), idem_once('once');
SELECT idem_once_many(ARRAY['b', 'once', 'a']);
SELECT idem_import('i', 'x'), idem_import_many(ARRAY['i', 'j'], ARRAY['x', 'y']);
SELECT idem_reopen('failed'), idem_forget('j', force => true);
SELECT outcome FROM idem_lookup('done');
SELECT count(*) FROM idem.held;
SELECT idem_call('call', 'double(numeric)', '{"n": 2}'), idem_call('call', 'double(numeric)', '{"n": 2}');
SELECT double_once('twin', 2), double_once('twin', 2);
INSERT INTO event VALUES (1, 'x'), (2, 'x'), (3, 'y');
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT idem_once('rr'), idem_once('done');
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT idem_once('ser'), idem_once('done');
COMMIT;
SELECT count(*) FROM idem_once_many(ARRAY['s1', 's2'], ttl => '1 ms');
SELECT pg_sleep(0.01);
SELECT sum(removed) > 0 FROM idem_sweep();
SELECT count(*) FROM idem_once_many(ARRAY['s1', 's2', 's3'], ttl => '1 ms');
SELECT pg_sleep(0.01);
SELECT sum(removed) > 0 FROM idem_sweep(2);
EOT
$node->command_ok(
	[ 'psql', '-X', '-q', '-o', '/dev/null', '-f', "$FindBin::RealBin/../lib/partitioned.sql", $node->connstr('app') ],
	'idem.key is partitioned by hash of the key');
my ($rc, $out, $err) = $node->psql('app', $load . $life, on_error_stop => 1);
is($rc, 0, 'a life of every kind of claim') or diag($err);

my %statements;
foreach my $text ($err =~ /^Query Text: (.*?)\n\S/mgs)
{
	$statements{$text} = 1 if $text =~ /^(?!CREATE)[^']*\bidem\.key\b/ && $text !~ /idem_claim|idem\.held|pg_/
		|| $text =~ /\bidem\.key\b.*OPERATOR\(pg_catalog/s;
}
my @statements = sort keys %statements;
cmp_ok(scalar(@statements), '>=', 6, 'the statements were seen');
diag(join "\n", @statements) if $ENV{IDEM_SHOW};

# Is it about one key?
sub routed
{
	my ($text) = @_;

	return $text =~ /\bkey OPERATOR\(pg_catalog\.=\) \$\d+/
	  || $text =~ /^INSERT INTO idem\.key \(.*\bkey\b.*\) VALUES \(\$1, \$2,/s;
}

my %volatile = map { $_ => 1 } split /\n/,
  $node->safe_psql('app', q{SELECT DISTINCT proname FROM pg_proc WHERE provolatile = 'v'});
foreach my $text (@statements)
{
	my $name = substr($text, 0, 60);
	my @called = map { s/.*\.//r } $text =~ /\b([\w.]+)\s*\((?!pg_catalog\.[=<>])/g;

	ok($text =~ /^SELECT/ || !(grep { $volatile{$_} } @called),
		"no volatile function where rows are written: $name");
	unlike($text, qr/\bSET\b[^W]*\bkey\s*=/, "the key is not changed: $name");
	ok(routed($text) || $text !~ /\bFOR (UPDATE|SHARE|NO KEY|KEY)|SKIP LOCKED/,
		"locks and skips rows of one key only: $name");
	unlike($text, qr/\bctid\b|\bxmin\b|\btableoid\b/, "no row's place: $name");

	# a sweep's DELETE is by time, over all shards, and locks nothing beforehand
	ok(routed($text) || $text =~ /^(SELECT|DELETE FROM idem\.key WHERE expires_at OPERATOR\(pg_catalog\.<=\) \$1( AND|$))/,
		"writes rows of one key only: $name");
	unlike($text, qr/\bON CONFLICT\b(?! DO NOTHING)/, "no DO UPDATE: $name");
}

# Without bounds a sweep looks for none.
unlike(($node->psql('app', "${load}SELECT idem_sweep(NULL)"))[2], qr/ORDER BY expires_at/,
	'a sweep without max_rows asks for no cutoff');
like(($node->psql('app', "${load}SELECT idem_sweep(10)"))[2], qr/ORDER BY expires_at/,
	'and one with it does');

# The same on the plain table by SQL: an engine may take it over at any time.  But for
# sweeps, which look for one first.
$node->safe_psql('postgres', "CREATE DATABASE plain; ALTER DATABASE plain SET idem.access = 'sql'");
$node->safe_psql('plain', 'CREATE EXTENSION idem');
($rc, $out, $err) = $node->psql('plain', $load . $life, on_error_stop => 1);
my %plain = map { $_ => 1 } $err =~ /^Query Text: (.*?)\n\S/mgs;
is(join("\n", grep { !$plain{$_} && !/WHERE expires_at OPERATOR|'session'/ } @statements), '', 'the same statements on a plain table');

# The tier that needs Citus says so.
SKIP:
{
	skip 'this server has Citus', 2
	  if $node->safe_psql('postgres', q{SELECT count(*) FROM pg_available_extensions WHERE name = 'citus'});
	local %ENV = (%ENV, PGHOST => $node->host, PGPORT => $node->port, PGUSER => scalar getpwuid($>));
	delete @ENV{qw(MAKEFLAGS MAKELEVEL MFLAGS)};
	my $bindir = $node->config_data('--bindir');
	my ($stdout, $stderr);
	my $ok = IPC::Run::run(
		[ 'make', '-s', '-C', "$FindBin::RealBin/../..", "PG_CONFIG=$bindir/pg_config", 'installcheck-citus' ],
		'>', \$stdout, '2>', \$stderr);
	ok($ok, 'make installcheck-citus succeeds without Citus') or diag($stderr);
	like($stdout, qr/^SKIP: this server has no Citus$/m, 'and says SKIP');
}

$_->stop foreach $node, $worker;
done_testing();
