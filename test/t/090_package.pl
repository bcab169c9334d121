# What packagers read: META.json as the PGXN Meta Spec has it, one version and
# one set of majors in all places, and "make dist".

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use Cwd 'realpath';
use Digest::SHA;
use IO::Uncompress::Unzip;
use JSON::PP;
use PostgreSQL::Test::Utils;
use Test::More;

my $top = realpath("$FindBin::RealBin/../..");
my $meta = JSON::PP->new->utf8->decode(slurp_file("$top/META.json"));
my ($version) = slurp_file("$top/idem.control") =~ /^default_version *= *'(.*)'$/m;

# A text without control characters, where the specification wants one.
sub string_ok
{
	my ($value, $what) = @_;

	ok(defined $value && !ref $value && $value =~ /\A[^\x00-\x1f]+\z/, "META: $what");
	return;
}

my $semver = qr/\A(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?\z/;

# required fields
string_ok($meta->{$_}, $_) foreach qw(name version abstract maintainer license);
like($meta->{name}, qr/\A[^\s\/\\:]{2,}\z/, 'META: the name is a term');
like($meta->{version}, $semver, 'META: the version is a semantic one');
is($meta->{license}, 'postgresql', 'META: a license that the specification names');
is($meta->{'meta-spec'}{version}, '1.0.0', 'META: version of the specification');
like($meta->{'meta-spec'}{url}, qr{^https?://(www\.)?pgxn\.org/}, 'META: its place');
ok(ref $meta->{provides} eq 'HASH' && keys %{ $meta->{provides} }, 'META: provides something');
while (my ($name, $what) = each %{ $meta->{provides} })
{
	like($what->{version}, $semver, "META: version of $name");
	ok(-f "$top/$what->{file}", "META: file of $name is there");
	ok(!defined $what->{docfile} || -f "$top/$what->{docfile}", "META: docfile of $name is there");
	string_ok($what->{abstract}, "abstract of $name");
}

# optional ones, where they are there
ok((grep { $_ eq $meta->{release_status} } qw(stable testing unstable)), 'META: release_status')
  if exists $meta->{release_status};
foreach my $phase (keys %{ $meta->{prereqs} // {} })
{
	ok((grep { $_ eq $phase } qw(configure build test runtime develop)), "META: phase $phase");
	foreach my $relation (keys %{ $meta->{prereqs}{$phase} })
	{
		ok((grep { $_ eq $relation } qw(requires recommends suggests conflicts)),
			"META: $phase $relation");
		while (my ($name, $range) = each %{ $meta->{prereqs}{$phase}{$relation} })
		{
			like($range, qr/\A(0|(([<>]=?|[!=]=) *)?\d+\.\d+\.\d+(, *([<>]=?|[!=]=) *\d+\.\d+\.\d+)*)\z/,
				"META: versions of $name");
		}
	}
}
ok(!(grep { ref || !length || length > 256 || m{[/\\\x00-\x1f]} } @{ $meta->{tags} // [] }), 'META: tags');
foreach my $key (keys %$meta)
{
	ok( $key =~ /^x_/i
		  || (grep { $_ eq $key }
				qw(name version abstract description maintainer license provides prereqs
				generated_by meta-spec no_index tags release_status resources)),
		"META: $key is a field that the specification knows");
}

# the same version everywhere
is($meta->{version}, $version, 'META has the version of the control file');
is($meta->{provides}{idem}{version}, $version, 'so does what it provides');
like(slurp_file("$top/debian/changelog"), qr/\Aidem \(\Q$version\E\)/, 'so does debian/changelog');
like(slurp_file("$top/CHANGELOG.md"), qr/^## \Q$version\E /m, 'and CHANGELOG.md');
like(slurp_file("$top/src/release.h"), qr/^#define IDEM_VERSION "\Q$version\E"$/m, 'and the library');


# a released script never changes: databases that have it are updated from it
my %released = ('1.0.0' => 'c7754941dbf355f0a65f04172c7dda09d2977a221db675478c8fa88219244d7a');
foreach my $old (sort keys %released)
{
	is(Digest::SHA->new(256)->addfile("$top/sql/idem--$old.sql")->hexdigest, $released{$old}, "script of $old is as it was released");
	like(slurp_file("$top/CHANGELOG.md"), qr/^## \Q$old\E/m, 'and CHANGELOG.md knows it');
}
my @full = map { m{--([0-9.]+)\.sql$} ? $1 : () } glob "$top/sql/idem--*.sql";
is(join(' ', grep { !$released{$_} && $_ ne $version } @full), '', 'no other script is kept');

# the same majors everywhere
my @workflow = slurp_file("$top/.github/workflows/check.yml") =~ /\{postgresql: (\d+), debian: (\w+),/g;
my %known = slurp_file("$top/tools/chroot.sh") =~ /^\t\t(\d+)\) echo (\w+) ;;$/mg;
is_deeply({@workflow}, \%known, 'the workflow tests the majors of tools/check-majors, in the same Debians');
my ($least) = sort { $a <=> $b } keys %known;
like($meta->{prereqs}{runtime}{requires}{PostgreSQL}, qr/^$least\./, 'META asks for the least of them');
is(slurp_file("$top/debian/pgversions"), "$least+\n", 'debian/pgversions too');
is( slurp_file("$top/debian/control"),
	slurp_file("$top/debian/control.in") =~ s/PGVERSION/$least/gr,
	"debian/control is control.in for $least");

# make dist
SKIP:
{
	skip 'git is not installed', 3 if system('git --version >/dev/null 2>&1') != 0;

	my $dir = PostgreSQL::Test::Utils::tempdir();
	local %ENV = (%ENV, HOME => $dir);
	delete @ENV{ grep { /^GIT_|^MAKE(FLAGS|LEVEL)$|^MFLAGS$/ } keys %ENV };
	my @git = ('git', '-c', 'user.name=t', '-c', 'user.email=t@localhost', '-C', "$dir/tree");
	mkdir "$dir/tree" or die;
	system_or_bail('sh', '-c', 'cd "$1" && tar -cf - --exclude=./.git --exclude=./tmp_check . | tar -xf - -C "$2"', 'sh', $top, "$dir/tree");
	system_or_bail(@git, 'init', '-q');
	system_or_bail(@git, 'add', '-A');
	system_or_bail(@git, 'commit', '-q', '-m', 'x');
	is(system_log('make', '-s', '-C', "$dir/tree", 'dist'), 0, 'make dist');

	my (@names, $zip);
	$zip = IO::Uncompress::Unzip->new("$dir/tree/idem-$version.zip") or die;
	do { push @names, $zip->getHeaderInfo->{Name} } while $zip->nextStream > 0;
	is((grep { !m{^idem-\Q$version\E/} } @names), 0, 'all in one directory');
	my %got = map { $_ => 1 } @names;
	is( join(' ', grep { !$got{"idem-$version/$_"} }
			  qw(META.json Makefile idem.control README.md LICENSE debian/rules src/init.c sql/10_schema.sql sql/idem--1.0.0.sql test/sql/claim.sql)),
		'',
		'with all that building and testing needs');
}

done_testing();
