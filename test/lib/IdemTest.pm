# IdemTest.pm - clusters, sessions and audits shared by the TAP tests
#
# A test runs its scenario once for each way to the table (idem.access direct
# and sql), in a database of its own on one cluster.  IDEM_ACCESS in the
# environment restricts it to one of them.
#
# Errors are compared by SQLSTATE only: psql runs with VERBOSITY sqlstate, and
# ask() and errcode() return "ERROR ID409" or "ID409".

package IdemTest;

use strict;
use warnings;

use Exporter 'import';
use File::Temp ();
use IPC::Run ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

our @EXPORT = qw(
  idem_node idem_database accesses each_access
  errcode run_as session ask ask_later answer session_pid wait_blocked
  bench_start bench_finish bench_run
  crash_backend start_after_crash
  pooler_start pooler_stop pooled pooled_session
  way_taken check_effects check_storage
);

# A started cluster that neither logs statements nor waits for a disk; what hangs
# there ends.
sub idem_node
{
	my ($name, %o) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);

	$node->init(
		extra => [ '--encoding=UTF8', '--locale=C' ],
		%{ $o{init} // {} });
	$node->append_conf('postgresql.conf', <<EOT);
log_statement = none
log_replication_commands = off
log_line_prefix = '%m [%p] %q%a '
max_connections = 100
shared_buffers = 64MB
statement_timeout = 1min
EOT
	$node->append_conf('postgresql.conf', $o{conf}) if defined $o{conf};
	$node->start;
	return $node;
}

sub accesses
{
	return $ENV{IDEM_ACCESS} ? ($ENV{IDEM_ACCESS}) : ('direct', 'sql');
}

# A database with the extension, in which idem.access is set.
sub idem_database
{
	my ($node, $db, $access, %o) = @_;

	$node->safe_psql('postgres',
		"CREATE DATABASE \"$db\" " . ($o{options} // ''));
	$node->safe_psql('postgres',
		"ALTER DATABASE \"$db\" SET idem.access = '$access'")
	  if defined $access;
	$node->safe_psql($db, 'CREATE EXTENSION idem');
	return $db;
}

# Runs code($db, $access) as a subtest for each access.
sub each_access
{
	my ($node, $code) = @_;

	foreach my $access (accesses())
	{
		my $db = idem_database($node, "idem_$access", $access);

		subtest "idem.access = $access" => sub {
			$code->($db, $access);
			done_testing();
		};
	}
}

# The SQLSTATE of the first error of a script, or 'none'.
sub errcode
{
	my ($node, $db, $sql, %o) = @_;
	my ($rc, $out, $err) =
	  $node->psql($db, "\\set VERBOSITY sqlstate\n$sql", %o);

	return $err =~ /(?:ERROR|FATAL):\s+(\w{5})/ ? $1 : 'none';
}

# The output of a script run as a role; dies on error.
sub run_as
{
	my ($node, $role, $db, $sql) = @_;

	return $node->safe_psql($db, $sql, extra_params => [ '-U', $role ]);
}

# A background session whose errors do not end it.
sub session
{
	my ($node, $db, %o) = @_;
	my $s = $node->background_psql($db, on_error_stop => 0, %o);

	$s->set_query_timer_restart();
	$s->query('\set VERBOSITY sqlstate');
	return $s;
}

# The answer to a query: its output, or "ERROR sqlstate".
sub ask
{
	my ($s, $sql) = @_;

	$s->{stderr} = '';
	return answer($s, $sql);
}

# Sends a query without waiting for its end; answer() fetches the result.
sub ask_later
{
	my ($s, $sql) = @_;

	$s->{stderr} = '';
	$s->query_until(qr/sent\n/, "\\echo sent\n$sql;\n");
	return;
}

sub answer
{
	my ($s, $sql) = @_;
	my $out = $s->query($sql // '');

	return "ERROR $1" if $s->{stderr} =~ /(?:ERROR|FATAL):\s+(\w{5})/;
	return $out;
}

sub session_pid
{
	my ($s) = @_;

	return ask($s, 'SELECT pg_backend_pid()');
}

# Waits until a backend sleeps in the lock queue.
sub wait_blocked
{
	my ($node, $pid) = @_;

	$node->poll_query_until('postgres',
		"SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = $pid"
	) or die "backend $pid does not wait for a lock";
	return;
}

# Starts pgbench with scripts given as texts; bench_finish waits for its end
# and returns exit code, standard output and standard error.
sub bench_start
{
	my ($node, $db, $opts, @scripts) = @_;
	my $dir = File::Temp->newdir(DIR => $PostgreSQL::Test::Utils::tmp_check);
	my ($n, $out, $err) = (0, '', '');
	my @files;

	foreach my $script (@scripts)
	{
		my ($text, $weight) = ref $script ? @$script : ($script, 1);
		my $file = "$dir/" . $n++ . '.sql';

		append_to_file($file, $text);
		push @files, '-f', "$file\@$weight";
	}

	my $h = IPC::Run::start(
		[
			$node->installed_command('pgbench'), '-n',
			'-h', $node->host, '-p', $node->port,
			@$opts, @files, $db
		],
		'<', \undef, '>', \$out, '2>', \$err);

	return { h => $h, out => \$out, err => \$err, dir => $dir };
}

sub bench_finish
{
	my ($b) = @_;

	$b->{h}->finish;
	return ($b->{h}->result(0), ${ $b->{out} }, ${ $b->{err} });
}

# A whole pgbench run that must succeed.
sub bench_run
{
	my ($node, $db, $name, $opts, @scripts) = @_;
	my ($rc, $out, $err) =
	  bench_finish(bench_start($node, $db, $opts, @scripts));

	is($rc, 0, "$name: pgbench succeeds") or diag($err);
	unlike($err, qr/ERROR/, "$name: no error");
	return $out;
}

# Runs SQL in a backend that then kills itself with SIGKILL, and waits until the
# cluster is out of the crash recovery that follows.  Returns psql's standard
# error.
sub crash_backend
{
	my ($node, $db, $sql) = @_;
	my $offset = -s $node->logfile;
	my ($rc, $out, $err) = $node->psql($db,
		"$sql\n" . q{COPY (SELECT 1) TO PROGRAM 'kill -9 $PPID'});

	$node->wait_for_log(qr/database system is ready to accept connections/,
		$offset);
	return $err;
}

# Starts a cluster whose postmaster was killed.  Its lock files go first: the
# dead process may stay a zombie for a while, which looks alive.  Backends that
# need a moment to notice still keep the new postmaster out, by shared memory.
sub start_after_crash
{
	my ($node) = @_;

	unlink($node->data_dir . '/postmaster.pid',
		$node->host . '/.s.PGSQL.' . $node->port . '.lock');
	foreach my $i (1 .. 100)
	{
		system_log('pg_ctl', '-w', '-D', $node->data_dir, '-l',
			$node->logfile, 'start') == 0
		  and last;
		select(undef, undef, undef, 0.1);
	}
	$node->_update_pid(1);
	return;
}

my %poolers;
END { pooler_stop($_) foreach values %poolers; }

# A pgbouncer in transaction mode in front of a node, which ends with the test;
# undef where pgbouncer is not installed.  Connects as {user} if that is given,
# who then has {password}, and has {conf} in its configuration.
sub pooler_start
{
	my ($node, %o) = @_;
	my ($program) = grep { -x } map { "$_/pgbouncer" }
	  (split(/:/, $ENV{PATH}), '/usr/sbin', '/usr/local/sbin');
	return unless defined $program;

	my $port = PostgreSQL::Test::Cluster::get_free_port();
	my $dir = PostgreSQL::Test::Utils::tempdir_short();
	my ($host, $server_port) = ($node->host, $node->port);
	my $user = $o{user} // getpwuid($>);
	my $size = $o{size} // 2;
	my $conf = $o{conf} // '';
	local $ENV{PGPASSWORD} = $o{password} // '';

	append_to_file("$dir/users", qq{"$user" "$ENV{PGPASSWORD}"\n});
	append_to_file("$dir/ini", <<EOT);
[databases]
* = host=$host port=$server_port user=$user
[pgbouncer]
pool_mode = transaction
listen_addr =
listen_port = $port
unix_socket_dir = $dir
auth_type = any
auth_file = $dir/users
default_pool_size = $size
max_client_conn = 100
server_check_delay = 10
logfile = $dir/log
$conf
EOT

	my ($in, $log) = ('', '');
	my $pooler = {
		node => $node,
		params => "host=$dir port=$port user=$user",
		port => $port,
		host => $dir,
		user => $user,
		h => IPC::Run::start([ $program, "$dir/ini" ],
			'<', \$in, '>', \$log, '2>', \$log)
	};
	$poolers{$port} = $pooler;
	foreach my $i (1 .. 100)
	{
		# psql without input: it may be gone before it could be written to
		last
		  if IPC::Run::run(
			[ $node->installed_command('psql'), '-XAtq', '-c', 'SELECT 1', '-d', pooled($pooler, 'postgres') ],
			'<', \undef, '>', \my $out, '2>', \my $err);
		select(undef, undef, undef, 0.1);
	}
	return $pooler;
}

sub pooler_stop
{
	my ($pooler) = @_;

	delete $poolers{ $pooler->{port} };
	$pooler->{h}->kill_kill(grace => 2);
	return;
}

# How to connect through a pooler.
sub pooled
{
	my ($pooler, $db) = @_;

	return "$pooler->{params} dbname=$db";
}

sub pooled_session
{
	my ($pooler, $db) = @_;

	# extra_params come after -d, and the last -d counts.
	return session($pooler->{node}, $db,
		extra_params => [ '-d', pooled($pooler, $db) ]);
}

# Which way a claim takes to the table, seen by auto_explain: only the SQL way
# runs statements.
sub way_taken
{
	my ($node, $db, $key) = @_;
	my ($rc, $out, $err) = $node->psql($db, <<EOT);
LOAD 'auto_explain';
SET auto_explain.log_min_duration = 0;
SET auto_explain.log_nested_statements = on;
SET auto_explain.log_level = notice;
SELECT idem_once('$key');
EOT

	die $err if $rc != 0;
	return $err =~ /Insert on|INSERT INTO/ ? 'sql' : 'direct';
}

# The audit: every key that "which" selects is completed and has its one effect,
# and every effect has its key.
sub check_effects
{
	my ($node, $db, $which, $name) = @_;

	is( $node->safe_psql(
			$db, <<EOT), '', "$name: effects = keys completed, once each");
SELECT coalesce(e.key, k.key), e.n, k.state
FROM (SELECT key, count(*) AS n FROM effect GROUP BY key) AS e
FULL JOIN (SELECT key, state FROM idem.key WHERE $which) AS k USING (key)
WHERE e.n IS DISTINCT FROM 1 OR k.state IS DISTINCT FROM 'completed';
EOT
	return;
}

# Heap and indexes of idem.key agree.
sub check_storage
{
	my ($node, $db, $name) = @_;

	is( $node->safe_psql(
			$db, <<EOT), '', "$name: heap and indexes of idem.key agree");
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS amcheck;
SELECT msg FROM verify_heapam('idem.key');
DO \$\$
BEGIN
	PERFORM bt_index_check(indexrelid, true)
	FROM pg_index WHERE indrelid = 'idem.key'::regclass;
END
\$\$;
EOT
	return;
}

1;
