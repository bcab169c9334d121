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

# What the PGXN Meta Spec 1.0 says, as patterns of single values, [ pattern ] for
# a list of them, and hashes of fields: "!" marks one that is required, "*" stands
# for all others, with a pattern for their names.  Fields that begin with x_ are
# anybody's.
my $text = qr/\A[^\x00-\x1f\x7f]+\z/;
my $term = qr{\A[^\s/\\\x00-\x1f\x7f]{2,}\z};
my $number = qr/(?:0|[1-9]\d*)/;
my $semver = qr/$number\.$number\.$number(?:-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?/;
my $range = qr/(?:0|(?:(?:[<>]=?|[!=]=)\s*)?$semver)/;
my $url = qr{\A[a-z][a-z+.-]*://[^\s/]+\S*\z};
my $path = qr{\A(?!/)(?!.*(?:^|/)\.\.(?:/|$))[^\\\x00-\x1f\x7f]+\z};
my $license = qr/\A(?:agpl_3|apache_1_1|apache_2_0|artistic_[12]|bsd|freebsd|gfdl_1_[23]|gpl_[123]|lgpl_2_1|lgpl_3_0|mit|mozilla_1_[01]|openssl|perl_5|postgresql|qpl_1_0|ssleay|sun|zlib|open_source|restricted|unrestricted|unknown)\z/;
my $specification = {
	'name!' => $term,
	'version!' => qr/\A$semver\z/,
	'abstract!' => $text,
	'maintainer!' => [$text],
	'license!' => [$license],
	'meta-spec!' => { 'version!' => qr/\A1\.0\.\d+\z/, 'url' => qr{\Ahttps?://pgxn\.org/meta/spec\.txt\z} },
	'provides!' => {
		'*' => [ $term, { 'file!' => $path, 'version!' => qr/\A$semver\z/, 'abstract' => $text, 'docfile' => $path } ] },
	'description' => qr/\S/,
	'generated_by' => $text,
	'tags' => [qr{\A[^/\\\x00-\x1f\x7f]{2,255}\z}],
	'release_status' => qr/\A(?:stable|testing|unstable)\z/,
	'no_index' => { 'file' => [$path], 'directory' => [$path] },
	'prereqs' => {
		'*' => [ qr/\A(?:configure|build|test|runtime|develop)\z/, {
				'*' => [ qr/\A(?:requires|recommends|suggests|conflicts)\z/, {
						'*' => [ $term, qr/\A$range(?:,\s*$range)*\z/ ] } ] } ] },
	'resources' => {
		'license' => [$url],
		'homepage' => $url,
		'bugtracker' => { 'web' => $url, 'mailto' => qr/\A[^\s@]+@[^\s@]+\z/ },
		'repository' => { 'url' => $url, 'web' => $url, 'type' => qr/\A[a-z]+\z/ } } };

# Where a value is not as it should be; one that stands for a list of one is.
sub faults
{
	my ($spec, $value, $where) = @_;

	if (ref $spec eq 'Regexp')
	{
		return defined $value && !ref $value && $value =~ $spec ? () : ($where);
	}
	elsif (ref $spec eq 'ARRAY')
	{
		my @values = ref $value eq 'ARRAY' ? @$value : ($value);

		return @values ? map { faults($spec->[0], $values[$_], "$where/$_") } 0 .. $#values : ($where);
	}
	return ($where) if ref $value ne 'HASH' || !%$value;

	my %known = map { s/!\z//r => $_ } keys %$spec;
	my @faults = map { exists $value->{$_} ? () : "$where/$_ is missing" } grep { $known{$_} =~ /!/ } sort keys %known;
	foreach my $field (grep { !/\Ax_./i } sort keys %$value)
	{
		my ($name, $inner) = exists $known{$field} ? ($text, $spec->{ $known{$field} }) : @{ $spec->{'*'} // [] };

		push @faults, defined $name && $field =~ $name ? faults($inner, $value->{$field}, "$where/$field") : "$where/$field is unknown";
	}
	return @faults;
}

is(join("\n", faults($specification, $meta, '')), '', 'META.json is as the specification has it');
my %wrong = (
	'/name' => { %$meta, name => 'i d' },
	'/abstract is missing' => { map { $_ => $meta->{$_} } grep { $_ ne 'abstract' } keys %$meta },
	'/provides/idem/version' => { %$meta, provides => { idem => { %{ $meta->{provides}{idem} }, version => '1.1' } } },
	'/prereqs/runtime/requires/PostgreSQL' => { %$meta, prereqs => { runtime => { requires => { PostgreSQL => '15' } } } },
	'/prereqs/use is unknown' => { %$meta, prereqs => { use => {} } },
	'/tags/1' => { %$meta, tags => [ 'good', 'a/b' ] },
	'/licence is unknown' => { %$meta, licence => 'postgresql' });
is(join(' ', faults($specification, $wrong{$_}, '')), $_, "what is wrong would be found: $_") foreach sort keys %wrong;
foreach my $provided (map { @$_{qw(file docfile)} } values %{ $meta->{provides} })
{
	ok(!defined $provided || -f "$top/$provided", "META: $provided is there");
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
