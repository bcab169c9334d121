# The documents: every example is run and prints what the page says, in both
# ways to the table; signatures are the catalogue's; nothing public is left
# out; excerpts are what the named file holds; links lead somewhere.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use DocTest;
use Encode 'encode_utf8';
use IdemTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $top = "$FindBin::RealBin/../..";

# What benchmarks.md prints was measured once, on the machine that it names.
my @pages = grep { $_ ne 'doc/benchmarks.md' }
  ('README.md', map { s{^\Q$top/\E}{}r } glob("$top/doc/*.md $top/examples/*/README.md"));
my $translation = 'README.zh-CN.md';
my %blocks =
  map { $_ => [ doc_blocks("$top/$_") ] } @pages, $translation;
my $node = idem_node('docs');

foreach my $access (accesses())
{
	foreach my $page (@pages)
	{
		my @blocks =
		  grep { $_->{kind} eq 'sql' || $_->{kind} eq 'run' } @{ $blocks{$page} };
		next if !@blocks;

		$node->safe_psql('postgres', 'CREATE DATABASE page TEMPLATE template0');
		$node->safe_psql('postgres',
			"ALTER DATABASE page SET idem.access = '$access'");
		doc_run($node, 'page', @blocks);
		foreach my $block (@blocks)
		{
			my $name = "$access, $page:$block->{line}";

			if (defined $block->{output})
			{
				is($block->{got}, $block->{output}, $name);
			}
			else
			{
				unlike($block->{got} // 'ERROR: no output at all',
					qr/^(ERROR|FATAL|PANIC|WARNING|unrecognized|invalid|\\)/m,
					"$name: no error");
			}
		}

		# what an example makes in the cluster ends with its page
		$node->safe_psql('postgres', <<'EOT');
DROP DATABASE page WITH (FORCE);
SELECT format('DROP ROLE %I', rolname) FROM pg_roles WHERE oid >= 16384 \gexec
EOT
	}
}

# Signatures.
my $casts = qr/::(\w+\[\]|\w+( with time zone)?)/;
$node->safe_psql('postgres', 'CREATE DATABASE catalogue');
$node->safe_psql('catalogue', 'CREATE EXTENSION idem');
my %signatures;
foreach my $line (
	split /\n/,
	$node->safe_psql('catalogue', <<'EOT'))
SELECT p.proname, pg_get_function_arguments(p.oid), pg_get_function_result(p.oid)
FROM pg_depend d JOIN pg_proc p ON p.oid = d.objid
WHERE d.classid = 'pg_proc'::regclass AND d.deptype = 'e'
	AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'idem')
	AND p.prorettype <> 'trigger'::regtype
	AND NOT EXISTS (SELECT FROM pg_type t WHERE p.oid IN (t.typinput, t.typoutput))
	AND p.oid NOT IN (SELECT amproc FROM pg_amproc)
EOT
{
	my ($name, $arguments, $result) = split /\|/, $line;
	my @all = map { s/$casts//gr } split(/, /, $arguments);
	my @in = grep { !/^OUT / } @all;
	my @out = map { s/^OUT //r } grep { /^OUT / } @all;

	$result =~ s/record/'(' . join(', ', @out) . ')'/e if @out;
	my $signature = "$name(" . join(', ', @in) . ") -> $result";
	$signature =~ s/timestamp with time zone/timestamptz/g;
	$signature =~ s/\binteger\b/int/g;
	$signatures{$signature} = 1;
}
my %documented = map { $_ => 1 } map { doc_signatures("$top/$_") } @pages;
is( join("\n", sort keys %documented),
	join("\n", sort keys %signatures),
	'every function has its signature in doc/, as the catalogue has it');

# What else is public has to be named, in backquotes.
my $text = join('', map { slurp_file("$top/$_") } @pages);
foreach my $what (
	split /\n/,
	$node->safe_psql('catalogue', <<'EOT'))
LOAD 'idem';
SELECT name FROM pg_settings WHERE name LIKE 'idem.%'
UNION ALL
SELECT c.oid::regclass::text FROM pg_class c
WHERE relnamespace = 'idem'::regnamespace AND relkind IN ('r', 'v', 'S')
UNION ALL
SELECT attname FROM pg_attribute
WHERE attrelid IN ('idem.key'::regclass, 'idem.scope'::regclass, 'idem.held'::regclass,
	'idem_claimed'::regclass, 'idem_versioned'::regclass) AND attnum > 0
ORDER BY 1
EOT
{
	like($text, qr/`\Q$what\E`/, "$what is documented");
}
foreach my $code (
	map { join '', /'(.)'/g }
	slurp_file("$top/src/errors.h") =~ /MAKE_SQLSTATE\(([^)]*)\)/g)
{
	like($text, qr/`$code`/, "$code is documented");
}

# The translation has the examples of the original, so they need not run again.
is_deeply(
	[ map { [ @$_{qw(kind text output)} ] } @{ $blocks{$translation} } ],
	[ map { [ @$_{qw(kind text output)} ] } @{ $blocks{'README.md'} } ],
	"$translation has the same examples as README.md");

# Excerpts, shell commands and links.
foreach my $page (@pages, $translation)
{
	my ($dir) = "$top/$page" =~ m{^(.*)/};

	foreach my $block (grep { defined $_->{from} } @{ $blocks{$page} })
	{
		ok(index(slurp_file("$top/$block->{from}"), $block->{text}) >= 0,
			"$page:$block->{line}: stands in $block->{from}");
	}

	foreach my $block (grep { $_->{kind} eq 'sh' } @{ $blocks{$page} })
	{
		foreach my $command (grep { $_ ne '' }
			map { s/\s*#.*//r } split(/\n/, $block->{text}))
		{
			my ($targets) = $command =~ /^make( [\w ]+)?$/
			  or die "$page:$block->{line}: not a make command: $command";
			local %ENV = %ENV;
			delete @ENV{qw(MAKEFLAGS MAKELEVEL MFLAGS)};
			is(system_log('make', '-s', '-n', '-C', $top, split(' ', $targets // '')),
				0, "$page:$block->{line}: $command");
		}
	}
	foreach my $link (doc_links("$top/$page"))
	{
		my ($path, $anchor) = $link =~ /^([^#]*)(?:#(.*))?$/;
		my $target = $path eq '' ? "$top/$page" : "$dir/$path";
		# names of tests are bytes
		my $name = encode_utf8("$page: $link");

		ok(-e $target, "$name is there") or next;
		ok((grep { $_ eq $anchor } doc_anchors($target)),
			"$name has its heading")
		  if defined $anchor;
	}
}

$node->stop;
done_testing();
