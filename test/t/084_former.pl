# The library of 1.0.0 itself beside objects of today, and today's beside its
# objects: what sessions see that were connected over ALTER EXTENSION UPDATE,
# where a package came without a restart, and where an old one is put back.
#
# IDEM_FORMER is a directory with a built tree of each former version, which
# tools/former makes from a clone's history.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use EveryKind;
use IdemTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Versions;

my $former = $ENV{IDEM_FORMER} // '';
plan skip_all => 'no library of 1.0.0: IDEM_FORMER names no tree of it (tools/former makes it where the history of the clone goes back to it)'
  if !-e "$former/1.0.0/idem.so";

my ($version) = slurp_file("$FindBin::RealBin/../../idem.control") =~ /^default_version *= *'(.*)'$/m;
my $owner = 'regress_idem_owner';
my $dir = PostgreSQL::Test::Utils::tempdir();
my $install = server_copy($dir);
my $older = qr/ERROR:  the library of extension "idem" that is loaded is older than version \Q$version\E\nDETAIL:.*\nHINT:  Connect again/;
my $unknown = qr/\AERROR:  could not find function "idem_\w+_1_1" in file ".*idem\.so"(\nCONTEXT:.*)?\z/;

sub former_node
{
	my ($name, $conf) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name, install_path => $install);

	put_version($dir, "$former/1.0.0");
	$node->init(extra => [ '--encoding=UTF8', '--locale=C' ]);
	$node->append_conf('postgresql.conf', "log_statement = none\nlog_line_prefix = '%m [%p] %q%a '\nstatement_timeout = 1min\n$conf");
	$node->start;
	$node->safe_psql('postgres', <<"EOT");
CREATE ROLE $owner LOGIN;
CREATE ROLE regress_idem_app LOGIN;
CREATE ROLE regress_idem_reader;
CREATE DATABASE work OWNER $owner TEMPLATE template0;
CREATE DATABASE other OWNER $owner TEMPLATE template0;
EOT
	run_as($node, $owner, 'work', 'CREATE EXTENSION idem');
	my $filled = fill_former($node, $owner, 'work', '1.0.0', 'public');
	run_as($node, $owner, 'work', $more_tables);
	return ($node, $filled);
}

sub owners
{
	my ($node, $db) = @_;

	return session($node, $db, extra_params => [ '-U', $owner ]);
}

# Every verb and every write is told that the library has no such function.
sub all_unknown
{
	my ($node, $s, $name) = @_;
	my $before = every_row($node, $owner, 'work');
	my %told;

	$s->query('\set VERBOSITY default');
	%told = every_answer($s);
	is(join("\n", map { "$_: $told{$_}" } grep { $told{$_} !~ $unknown } sort keys %told), '', "$name: every verb and trigger is refused");
	$s->query('\set VERBOSITY sqlstate');
	is(every_row($node, $owner, 'work'), $before, "$name: nothing has changed");
	is( join(' ', map { ask($s, $_) } (
				q{SELECT idem_canonical('{"a": 1.0}'), count(*) FROM idem.held WHERE key = 'leased'},
				q{SET enable_seqscan = off; SELECT id FROM document WHERE idem_fingerprint(body) = idem_fingerprint('{"a": 1}')},
				q{RESET ALL; SELECT count(*) >= 0 FROM idem_stats()},
				q{CREATE TEMP TABLE own (id int); INSERT INTO own VALUES (1) RETURNING id},
				q{SELECT * FROM idem.version})),
		'{"a":1}|1 1 t 1 ERROR 42883',
		"$name: reading, indexes, statistics and work of others go on");
	return;
}

# Sessions that are connected over the update.
my ($node, $filled) = former_node('sessions', "autovacuum = off\n");
my %s = map { $_ => owners($node, 'work') } 'idle', 'finished', 'unfinished', 'failed';
foreach my $who (sort keys %s)
{
	is(ask($s{$who}, qq{PREPARE p AS SELECT idem_once(\$1); PREPARE w AS UPDATE counted SET n = n + 1; EXECUTE p('by $who')}), 't', "1.0.0: $who works");
}
ask($s{finished}, q{BEGIN; SELECT idem_claim('over the update'), idem_complete('over the update', 'r'::text)});
ask($s{$_}, qq{BEGIN; SELECT idem_claim('over the update, $_')}) foreach 'unfinished', 'failed';

put_version($dir);
is(ask($s{idle}, q{EXECUTE p('old files gone')}), 't', 'new files: a session keeps its library, and goes on with the objects as they are');
is(ask($s{idle}, 'EXECUTE w; SELECT n, v FROM counted'), '2|2', 'its triggers too');
$s{idle}->query('\set VERBOSITY default');
$s{idle}->{stderr} = '';
$s{idle}->query('ALTER EXTENSION idem UPDATE;');
like($s{idle}->{stderr}, $older, 'it cannot update the objects, and is told why');
$s{idle}->query('\set VERBOSITY sqlstate');
is($node->safe_psql('work', q{SELECT extversion FROM pg_extension WHERE extname = 'idem'}), '1.0.0', 'they are what they were');
is(ask($s{idle}, q{SELECT idem_once('after that')}), 't', 'and it goes on');
is(errcode($node, 'work', q{SELECT idem_once('x')}, extra_params => [ '-U', $owner ]), 'ID500', 'a new session is refused');
all_refused($node, $owner, 'work', 'new library, old objects');

run_as($node, $owner, 'work', 'ALTER EXTENSION idem UPDATE');
is($node->safe_psql('work', 'SELECT library, objects FROM idem.version'), "$version|$version", 'somebody else updates');
is(ask($s{idle}, q{EXECUTE p('again')}), 'ERROR 42883', 'a session with the old library is refused, by its prepared statements too');
is(ask($s{idle}, 'EXECUTE w'), 'ERROR 42883', 'and its writes');
is(ask($s{finished}, 'COMMIT'), '', 'who had finished commits');
is(ask($s{unfinished}, 'COMMIT'), 'ERROR ID500', 'who had not cannot');
is(ask($s{failed}, q{SELECT idem_complete('over the update, failed', 'r'::text)}), 'ERROR 42883', 'and cannot finish any more');
ask($s{failed}, 'ROLLBACK');
is($node->safe_psql('work', q{SELECT string_agg(key || ' ' || state, ',') FROM idem.key WHERE key LIKE 'over the update%'}),
	'over the update completed', 'what had committed stays, no more');
all_unknown($node, $s{idle}, 'old library, new objects');
$_->quit foreach values %s;
is(run_as($node, $owner, 'work', q{SELECT outcome FROM idem_claim('over the update, failed', lease => '1 h')}), 'claimed', 'who connects again goes on');
run_as($node, $owner, 'work', q{DELETE FROM idem.key WHERE key = 'over the update, failed'});
every_kind_goes_on($node, $owner, 'work', $filled, 'after the update');
unlike(slurp_file($node->logfile), qr/PANIC|FATAL|terminated by signal/, 'no crash');
$node->stop;

# Where the library is preloaded, it stays until a restart.
($node, $filled) = former_node('preloaded', <<'EOT');
restart_after_crash = on
shared_preload_libraries = 'idem'
idem.databases = '*'
idem.naptime = '1 s'
idem.workers = 0
EOT
put_version($dir);
is(run_as($node, $owner, 'work', q{SELECT idem_once('n'), idem_once('n')}), 't|f', 'preloaded, no restart: new sessions have the old library and go on');
is(errcode($node, 'work', q{UPDATE orders SET state = 'draft' WHERE id = 1}, extra_params => [ '-U', $owner ]), 'ID409', 'guards guard');
my $before = every_row($node, $owner, 'work');
my ($rc, $out, $err) = $node->psql('work', 'ALTER EXTENSION idem UPDATE', extra_params => [ '-U', $owner ]);
like($err, $older, 'objects are not updated, and it is told why');
is(every_row($node, $owner, 'work'), $before, 'nothing has changed');
($rc, $out, $err) = $node->psql('other', 'CREATE EXTENSION idem', extra_params => [ '-U', $owner ]);
like($err, $older, 'nor are new ones made');
is($node->safe_psql('other', q{SELECT count(*) FROM pg_extension WHERE extname = 'idem' UNION ALL SELECT count(*) FROM pg_namespace WHERE nspname = 'idem'
	UNION ALL SELECT count(*) FROM pg_proc WHERE proname LIKE 'idem%'}), "0\n0\n0", 'nothing is left of it');
run_as($node, $owner, 'other', q{CREATE EXTENSION idem VERSION '1.0.0'; SELECT idem_once('k')});
pass('those of 1.0.0 can be made');
$node->safe_psql('work', q{UPDATE idem.key SET expires_at = now() - interval '1 day' WHERE key = 'n'});
$node->append_conf('postgresql.conf', 'idem.workers = 1');
$node->reload;
ok($node->poll_query_until('work', q{SELECT count(*) = 0 FROM idem.key WHERE key = 'n'}), 'its worker sweeps on');
crash_backend($node, 'work', 'SELECT 1;');
is(run_as($node, $owner, 'work', q{SELECT idem_once('after a crash')}), 't', 'after a crash it is the old one still');
run_as($node, $owner, 'work', q{DELETE FROM idem.key WHERE key = 'after a crash'});

my $offset = -s $node->logfile;
$node->restart;
$node->wait_for_log(qr/WARNING: +library and objects of extension "idem" are of different versions/, $offset);
all_refused($node, $owner, 'work', 'after the restart');
run_as($node, $owner, $_, 'ALTER EXTENSION idem UPDATE') foreach 'work', 'other';
is(run_as($node, $owner, 'other', q{SELECT idem_once('k'), idem_once('l')}), 'f|t', 'what was made meanwhile goes on after its update');

# An old package put back over objects that were updated: its verbs and triggers
# are refused; its worker, which asks nobody, does what it did.
run_as($node, $owner, 'work', q{INSERT INTO loose VALUES (1, 'pending'); SELECT idem_attach('order', 'loose', 'state', history => true)});
is($node->safe_psql('work', q{SELECT count(*) FROM idem.timer WHERE table_name = 'loose'}), '1', 'something is there that 1.0.0 knows not');
put_version($dir, "$former/1.0.0");
$offset = -s $node->logfile;
$node->restart;
my $s = owners($node, 'work');
all_unknown($node, $s, 'old package put back');
$s->quit;
$node->safe_psql('work', q{UPDATE idem.key SET expires_at = now() - interval '1 day' WHERE key = 'failed'});
ok($node->poll_query_until('work', q{SELECT count(*) = 0 FROM idem.key WHERE key = 'failed'}), 'old package put back: the worker sweeps');
unlike(slurp_file($node->logfile, $offset), qr/PANIC|FATAL|terminated by signal/, 'no crash');
unlike(slurp_file($node->logfile, $offset), qr/(?:ERROR|WARNING): ++(?!could not find function)/, 'nor another error');
is($node->safe_psql('work', q{SELECT state FROM loose}), 'pending', 'no row has moved');

put_version($dir);
$node->restart;
is(run_as($node, $owner, 'work', q{SELECT idem_once('o'), idem_once('o')}), 't|f', 'the new one again');
$node->stop;
done_testing();
