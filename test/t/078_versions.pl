# Library and objects of different versions: every verb and every trigger says
# so and does nothing, until they fit; what has to go on goes on; every function
# of a former version is still in the library.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use EveryKind;
use File::Basename;
use IdemTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Versions;

my $top = "$FindBin::RealBin/../..";
my ($version) = slurp_file("$top/idem.control") =~ /^default_version *= *'(.*)'$/m;
my $tmp = $PostgreSQL::Test::Utils::tmp_check;
my $owner = 'regress_idem_owner';
my $admin = 'regress_idem_admin';
my $node = idem_node('versions', conf => "autovacuum = off\n");

$node->safe_psql('postgres', <<"EOT");
CREATE ROLE $owner LOGIN;
CREATE ROLE regress_idem_app LOGIN;
CREATE ROLE regress_idem_reader;
CREATE ROLE $admin LOGIN SUPERUSER;
EOT

sub filled
{
	my ($db, $what) = @_;

	$node->safe_psql('postgres', "CREATE DATABASE $db OWNER $owner TEMPLATE template0");
	run_as($node, $owner, $db, 'CREATE EXTENSION idem');
	fill_former($node, $owner, $db, '1.0.0', 'public');
	run_as($node, $owner, $db, $more_tables);
	return;
}

# The update script of a version makes view idem.version anew, which tells
# sessions that there is something to look at.
my $remade = 'CREATE OR REPLACE VIEW idem.version AS ' . $node->safe_psql('postgres', <<'EOT');
CREATE EXTENSION idem;
SELECT pg_get_viewdef('idem.version'::regclass);
DROP EXTENSION idem;
EOT
sub set_version
{
	my ($db, $objects) = @_;

	$node->safe_psql($db, "BEGIN; UPDATE pg_extension SET extversion = '$objects' WHERE extname = 'idem'; $remade; COMMIT");
	return;
}

# What has to go on where versions differ.
sub goes_on
{
	my ($db, $name) = @_;

	foreach my $what ([ 'reads the tables', 'SELECT count(*) FROM idem.key, idem.held, idem.binding, idem.history, idem.dwell' ],
		[ 'uses an index', q{SET enable_seqscan = off; SELECT id FROM document WHERE idem_fingerprint(body) = idem_fingerprint('{"a": 1}'); INSERT INTO document VALUES (2, '{}')} ],
		[ 'reads statistics', 'SELECT * FROM idem_stats(), idem_refusals(), idem_sweep_progress()' ],
		[ 'ends a transaction with work of others', 'BEGIN; CREATE TABLE own (id int); INSERT INTO own VALUES (1); COMMIT; DROP TABLE own' ],
		[ 'grants', q{SELECT idem_grant('regress_idem_reader'), idem_revoke('regress_idem_reader')} ])
	{
		is(errcode($node, $db, $what->[1], extra_params => [ '-U', $owner ]), 'none', "$name: $what->[0]");
	}
	$node->command_ok([ 'pg_dump', '-U', $owner, '-f', "$tmp/$db.sql", $node->connstr($db) ], "$name: pg_dump");
	unlink "$tmp/$db.sql";
	return;
}

# Older objects.
$node->safe_psql('postgres', "CREATE DATABASE older OWNER $owner TEMPLATE template0");
run_as($node, $owner, 'older', q{CREATE EXTENSION idem VERSION '1.0.0'});
fill_former($node, $admin, 'older', '1.0.0', 'public');
run_as($node, $owner, 'older', <<'EOT');
CREATE TABLE counted (n int, v int NOT NULL DEFAULT 1);
CREATE TRIGGER "~idem_version" BEFORE UPDATE ON counted FOR EACH ROW WHEN (new.v IS NOT NULL OR true) EXECUTE FUNCTION idem_rowversion('read');
INSERT INTO counted VALUES (1);
CREATE TABLE loose (id int PRIMARY KEY, state text, v int NOT NULL DEFAULT 1, f bigint);
EOT
my ($rc, $out, $err) = $node->psql('older', "SELECT idem_once('new')");
is($err, <<"EOT" =~ s/\n\z//r, 'older objects: what is said');
psql:<stdin>:1: ERROR:  library and objects of extension "idem" are of different versions
DETAIL:  The library is version $version, the objects in this database are version 1.0.0.
HINT:  Update the objects with ALTER EXTENSION idem UPDATE.
EOT
is(errcode($node, 'older', "SELECT idem_once('new')"), 'ID500', 'older objects: the code');
all_refused($node, $owner, 'older', 'older objects');
goes_on('older', 'older objects');

# A session that was refused goes on as soon as somebody has updated, also in
# its transaction and with its cached plans; an update that is rolled back is none.
my $s = session($node, 'older');
is(ask($s, 'PREPARE p AS SELECT idem_once($1); PREPARE w AS UPDATE orders SET v = v WHERE id = 1; EXECUTE p(\'p1\')'), 'ERROR ID500', 'a session is refused');
is(ask($s, 'EXECUTE w'), 'ERROR ID500', 'so is a write');
is(ask($s, q{BEGIN; ALTER EXTENSION idem UPDATE; SELECT idem_once('in the transaction that updates')}), 't', 'not after its own update');
is(ask($s, q{ROLLBACK; EXECUTE p('p1')}), 'ERROR ID500', 'but after a rollback');
is(ask($s, 'EXECUTE w'), 'ERROR ID500', 'so is a write');
run_as($node, $owner, 'older', 'ALTER EXTENSION idem UPDATE');
is(ask($s, q{EXECUTE p('p1')}), 't', 'it goes on after an update by somebody else');
is(ask($s, 'EXECUTE w; SELECT v FROM orders WHERE id = 1'), 3, 'so does a write');

# Newer objects: a session learns of them in the middle of its work.
filled('newer');
is(run_as($node, $owner, 'newer', 'SELECT library, objects FROM idem.version'), "$version|$version", 'versions are told');
my %s = map { $_ => session($node, 'newer', extra_params => [ '-U', $owner ]) } 'idle', 'open', 'repeatable';
foreach my $who (sort keys %s)
{
	is(ask($s{$who}, qq{PREPARE p AS SELECT idem_once(\$1); PREPARE w AS UPDATE counted SET n = n + 1; EXECUTE p('$who'); EXECUTE w}), 't', "$who: goes on");
}
ask($s{open}, 'BEGIN; SELECT 1');
ask($s{repeatable}, 'BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1');
set_version('newer', '9.9.9');
is(ask($s{$_}, 'EXECUTE w'), 'ERROR ID500', "$_: a write after others updated") foreach sort keys %s;
ask($s{$_}, 'ROLLBACK') foreach sort keys %s;
is(ask($s{$_}, qq{EXECUTE p('$_ again')}), 'ERROR ID500', "$_: a verb after others updated") foreach sort keys %s;
($rc, $out, $err) = $node->psql('newer', "SELECT idem_once('new')");
is($err, <<"EOT" =~ s/\n\z//r, 'newer objects: what is said');
psql:<stdin>:1: ERROR:  library and objects of extension "idem" are of different versions
DETAIL:  The library is version $version, the objects in this database are version 9.9.9.
HINT:  Connect again to load the library of version 9.9.9; restart the server if "idem" is preloaded; install that version if it is not on this server.
EOT
all_refused($node, $owner, 'newer', 'newer objects');
goes_on('newer', 'newer objects');
set_version('newer', $version);
is(ask($s{$_}, qq{EXECUTE p('$_ again')}), 't', "$_: goes on when they fit again") foreach sort keys %s;
$_->quit foreach $s, values %s;

# A claim that is open when somebody updates can still be finished or rolled
# back by who has the library for it; without, the commit is refused.
my $claimer = session($node, 'newer', extra_params => [ '-U', $owner ]);
is(ask($claimer, q{BEGIN; SELECT outcome FROM idem_claim('open claim')}), 'claimed', 'a claim is open');
set_version('newer', '9.9.9');
is(ask($claimer, q{SELECT idem_complete('open claim', 'r'::text)}), 'ERROR ID500', 'it cannot be completed by a library that does not fit');
is(ask($claimer, 'ROLLBACK; SELECT 1'), 1, 'but rolled back');
set_version('newer', $version);
is(ask($claimer, q{BEGIN; SELECT outcome FROM idem_claim('open claim')}), 'claimed', 'it is free');
set_version('newer', '9.9.9');
is(ask($claimer, 'COMMIT'), 'ERROR ID500', 'an unfinished claim does not commit');
$claimer->quit;
set_version('newer', $version);

# A library of another version, as a package would bring it: this one with
# another name for itself.
my $library = slurp_file($node->config_data('--pkglibdir') . '/idem.so');
(my $other = $version) =~ tr{0-8}{1-9};
is($library =~ s/\x{00}\Q$version\E\x{00}/\x{00}$other\x{00}/g, 1, 'another library is made');
append_to_file("$tmp/other.so", $library);
chmod 0755, "$tmp/other.so";
$node->safe_psql('newer', "UPDATE pg_proc SET probin = '$tmp/other.so' WHERE probin LIKE '%idem'");
is($node->safe_psql('newer', 'SELECT library, objects FROM idem.version'), "$other|$version", 'another library: versions are told');
all_refused($node, $owner, 'newer', 'another library');
$node->safe_psql('newer', q{UPDATE pg_proc SET probin = '$libdir/idem' WHERE probin LIKE '%other.so'});

# Scripts that meet the library of 1.0.0, which had no idem_version, say so.
$library = slurp_file($node->config_data('--pkglibdir') . '/idem.so');
cmp_ok($library =~ s/idem_version\x{00}/idem_versioX\x{00}/g, '>=', 1, 'a library without idem_version is made');
append_to_file("$tmp/without.so", $library);
chmod 0755, "$tmp/without.so";
$node->safe_psql('postgres', 'CREATE DATABASE without');
foreach my $file ("$top/sql/10_schema.sql", "$top/sql/idem--1.0.0--1.1.0.sql")
{
	my ($block) = slurp_file($file) =~ /^(DO \$\$\nBEGIN\n\tCREATE FUNCTION idem_version\(.*?^\$\$;)/ms;

	$block =~ s/MODULE_PATHNAME/$tmp\/without.so/;
	($rc, $out, $err) = $node->psql('without', $block);
	like($err, qr/ERROR:  the library of extension "idem" that is loaded is older than version 1\.1\.0\nDETAIL:.*\nHINT:  Connect again/,
		basename($file) . ': an older library is told');
}

# DROP EXTENSION needs no library.
set_version('newer', '9.9.9');
is(errcode($node, 'newer', 'DROP EXTENSION idem CASCADE', extra_params => [ '-U', $owner ]), 'none', 'DROP EXTENSION');

# Functions of every version are in the library.
my %symbols;
foreach my $file (glob "$top/sql/idem--*.sql")
{
	my $script = slurp_file($file) =~ s/^\s*--.*$//mgr;
	while ($script =~ /\bFUNCTION\s+(\w+)\s*\((?:(?!\bFUNCTION\b).)*?'MODULE_PATHNAME'(?:\s*,\s*'(\w+)')?/sg)
	{
		$symbols{ $2 // $1 } = 1;
	}
}
cmp_ok(scalar(keys %symbols), '>', 70, 'the scripts name functions of the library');
is(join(' ', grep { errcode($node, 'postgres', "CREATE FUNCTION pg_temp.f() RETURNS int LANGUAGE C AS '\$libdir/idem', '$_'") ne 'none' } sort keys %symbols), '',
	'all are there');

# The worker says it too, and goes on after the update.
$node->append_conf('postgresql.conf', <<'EOT');
shared_preload_libraries = 'idem'
idem.databases = 'work'
idem.naptime = '1 s'
EOT
$node->safe_psql('postgres', "CREATE DATABASE work OWNER $owner TEMPLATE template0");
run_as($node, $owner, 'work', q{CREATE EXTENSION idem VERSION '1.0.0'});
fill_former($node, $admin, 'work', '1.0.0', 'public');
$node->safe_psql('work', q{UPDATE idem.key SET expires_at = now() - interval '1 day' WHERE state = 'completed'});
my $offset = -s $node->logfile;
$node->restart;
$node->wait_for_log(qr/WARNING: +library and objects of extension "idem" are of different versions/, $offset);
is($node->safe_psql('work', q{SELECT count(*) > 0 FROM idem.key WHERE expires_at < now()}), 't', 'worker: says so, and sweeps nothing');
run_as($node, $owner, 'work', 'ALTER EXTENSION idem UPDATE');
$node->reload;
ok($node->poll_query_until('work', q{SELECT count(*) = 0 FROM idem.key WHERE expires_at < now()}), 'worker: sweeps after the update');
unlike(slurp_file($node->logfile, $offset), qr/(ERROR|PANIC|FATAL):/, 'worker: no error');

$node->stop;
done_testing();
