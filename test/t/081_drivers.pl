# Real drivers and ORMs: every verb with the driver's own binds (test/clients),
# and the example of each (examples/drivers), directly, with prepared
# statements, and through a pooler in transaction mode.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use IdemTest;
use IPC::Run ();
use NodeTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $top = "$FindBin::RealBin/../..";
my ($clients, $examples) = ("$top/test/clients", "$top/examples/drivers");
my $verbs = "$clients/verbs.txt";
my $build = PostgreSQL::Test::Utils::tempdir();
my $password = join('', map { ('a' .. 'z', 0 .. 9)[ rand 36 ] } 1 .. 20);

# pgjdbc speaks TCP only, so this server listens to this machine, with a
# password.
my $node = idem_node('drivers',
	conf => "listen_addresses = '127.0.0.1'\npassword_encryption = 'scram-sha-256'\ndeadlock_timeout = '50ms'\n");
open(my $hba, '>', $node->data_dir . '/pg_hba.conf') or die $!;
print $hba "local all all trust\nhost all app 127.0.0.1/32 scram-sha-256\n";
close($hba);
$node->reload;
$node->safe_psql('postgres', "CREATE ROLE app LOGIN PASSWORD '$password'; CREATE ROLE helper");

my $pooler = pooler_start(
	$node,
	user     => 'app',
	password => $password,
	size     => 4,
	conf     => "auth_type = scram-sha-256\nlisten_addr = 127.0.0.1\nignore_startup_parameters = extra_float_digits");

# Runs a program against a database; its output and whether it succeeded.
my $db;

sub client
{
	my ($way, @command) = @_;
	my $through = $way eq 'pooled' ? $pooler : { host => $node->host, port => $node->port };
	my ($out, $err) = ('', '');
	local %ENV = (
		%ENV,
		NODE_PATH  => "$top/examples/node_modules",
		PGHOST     => $through->{host},
		PGPORT     => $through->{port},
		PGUSER     => 'app',
		PGPASSWORD => $password,
		PGDATABASE => $db);
	my $done = IPC::Run::run(\@command, '<', \undef, '>', \$out, '2>', \$err,
		IPC::Run::timeout(120));

	diag($err) if !$done;
	return ($out, $done);
}

# The first Python that has some modules; the machine's own comes first.
sub python_with
{
	my ($modules) = @_;

	foreach my $python (grep { -x } ('/usr/bin/python3', program('python3') // ()))
	{
		return $python if system_log($python, '-c', "import $modules") == 0;
	}
	return undef;
}

sub url
{
	my ($way) = @_;

	return sprintf('jdbc:postgresql://127.0.0.1:%d/%s?prepareThreshold=%d%s',
		$way eq 'pooled' ? $pooler->{port} : $node->port, $db, $way eq 'prepared',
		$way eq 'strings' ? '&stringtype=unspecified' : '');
}

# Each driver: what it needs, how it is made ready, its two programs.
my $libpq = $node->config_data('--includedir');
my $jar = '/usr/share/java/postgresql.jar';
my ($python, $django) = map { python_with($_) } ('psycopg', 'django, psycopg2');
my @drivers = (
	{
		name    => 'libpq',
		ready   => sub {
			program('cc', 'gcc') && -e "$libpq/libpq-fe.h" || return 'a C compiler and libpq-dev';
			foreach my $source ([ "$clients/verbs.c", 'verbs' ], [ "$examples/libpq/example.c", 'example' ])
			{
				system_or_bail(program('cc', 'gcc'), '-Wall', '-Wextra', '-Werror', '-pthread', "-I$libpq",
					'-o', "$build/$source->[1]", $source->[0],
					'-L' . $node->config_data('--libdir'), '-lpq');
			}
			return;
		},
		verbs   => sub { ("$build/verbs", $verbs, $_[0]) },
		example => sub { ("$build/example") },
	},
	{
		name    => 'psycopg 3',
		ready   => sub { return defined $python ? undef : 'package python3-psycopg' },
		verbs   => sub { ($python, "$clients/verbs.py", $verbs, $_[0]) },
		example => sub { ($python, "$examples/psycopg/example.py", $_[0]) },
	},
	{
		name    => 'node-postgres',
		ready   => sub { return npm_packages("$top/examples") ? undef : 'node, npm and the packages of examples/' },
		verbs   => sub { ('node', "$clients/verbs.js", $verbs, $_[0]) },
		example => sub { ('node', "$examples/node/example.js") },
	},
	{
		name    => 'pgjdbc',
		ready   => sub {
			program('javac') && program('java') && -e $jar
			  || return 'packages default-jdk-headless and libpostgresql-jdbc-java';
			system_or_bail('javac', '-cp', $jar, '-d', $build, "$clients/Verbs.java", "$examples/jdbc/Example.java");
			return;
		},
		ways    => [ 'plain', 'prepared', 'pooled', 'strings' ],
		verbs   => sub { ('java', '-cp', "$jar:$build", 'Verbs', $verbs, url($_[0])) },
		example => sub { ('java', '-cp', "$jar:$build", 'Example', url($_[0])) },
	},
	{
		name     => 'Active Record',
		ready    => sub {
			return program('ruby') && system_log('ruby', '-ractive_record', '-rpg', '-e', '1') == 0
			  ? undef : 'packages ruby-activerecord and ruby-pg';
		},
		ways     => [ 'plain', 'pooled' ],
		example  => sub { ('ruby', "$examples/activerecord/example.rb", $_[0]) },
		expected => 'activerecord/expected.txt',
	},
	{
		name     => 'Django',
		ready    => sub { return defined $django ? undef : 'packages python3-django and python3-psycopg2' },
		ways     => [ 'plain', 'pooled' ],
		example  => sub { ($django, "$examples/django/example.py") },
		expected => 'django/expected.txt',
	});

# The statements, and the pattern that each answer has to match.
my @statements;
foreach my $line (split /\n/, slurp_file($verbs))
{
	next if $line eq '' || $line =~ /^#/;
	my ($sql, $answer) = split(/##/, $line);

	push @statements,
	  [
		$sql,
		defined $answer
		? join('.+', map { quotemeta(s/ //gr) } split(/\*/, $answer, -1))
		: '(?!ERROR).*'
	  ];
}

sub check_verbs
{
	my ($name, $way, $driver) = @_;

	$node->safe_psql('postgres', "CREATE DATABASE $db OWNER app");
	$node->safe_psql($db, 'CREATE EXTENSION idem', extra_params => [ '-U', 'app' ]);
	my ($out, $done) = client($way, $driver->{verbs}->($way));
	my @answers = split(/\n/, $out, -1);
	my @wrong;
	foreach my $i (0 .. $#statements)
	{
		my $answer = ($answers[$i] // '(none)') =~ s/ //gr;

		push @wrong, "$statements[$i][0]: $answer"
		  if $answer !~ /^$statements[$i][1]$/;
	}
	ok($done && @answers == @statements + 1, "$name: every statement has its answer");
	is(join("\n", @wrong), '', "$name: all verbs");
	$node->safe_psql('postgres', "DROP DATABASE $db WITH (FORCE)");
	return;
}

foreach my $driver (@drivers)
{
  SKIP:
	{
		my $missing = $driver->{ready}->();
		skip("$driver->{name}: not to be had: $missing", 1) if defined $missing;

		foreach my $way (@{ $driver->{ways} // [ 'plain', 'prepared', 'pooled' ] })
		{
			my $name = "$driver->{name}, $way";

		  SKIP:
			{
				skip("$name: pgbouncer is not installed", 1)
				  if $way eq 'pooled' && !defined $pooler;

				$db = lc($driver->{name} =~ s/\W//gr) . $way;
				check_verbs($name, $way, $driver) if defined $driver->{verbs};
				$node->safe_psql('postgres', "CREATE DATABASE $db");
				$node->safe_psql($db, slurp_file("$examples/setup.sql"));
				my $before = -s $node->logfile;
				my ($out, $done) = client($way, $driver->{example}->($way));
				is($out, slurp_file("$examples/" . ($driver->{expected} // 'expected.txt')),
					"$name: the example");
				ok($done, "$name: and it ended well");
				next if defined $driver->{expected};

				# what it tried again was the server's own doing
				my $log = slurp_file($node->logfile, $before);
				like($log, qr/ERROR:  could not serialize access due to read\/write dependencies/,
					"$name: a serialization failure");
				like($log, qr/ERROR:  deadlock detected/, "$name: a deadlock");
			}
		}
	}
}

# verbs.txt leaves out only what is for the planner, for triggers and for twins: a
# new verb gets a line there.
my $text = slurp_file($verbs);
$node->safe_psql('postgres', 'CREATE EXTENSION idem');
is( join(
		' ',
		grep { $text !~ /\b$_\(/ } split /\n/,
		$node->safe_psql('postgres', <<'EOT')), '', 'every verb is called');
SELECT DISTINCT p.proname
FROM pg_depend d JOIN pg_proc p ON p.oid = d.objid
WHERE d.classid = 'pg_proc'::regclass AND d.deptype = 'e'
	AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'idem')
	AND p.prorettype <> 'trigger'::regtype
	AND p.proname !~ '_support$|^idem_twin|_claim_key$|_not_initial$|_each_row$'
	AND NOT EXISTS (SELECT FROM pg_type t WHERE p.oid IN (t.typinput, t.typoutput))
	AND p.oid NOT IN (SELECT amproc FROM pg_amproc)
ORDER BY 1
EOT

pooler_stop($pooler) if defined $pooler;
$node->stop;
done_testing();
