# NodeTest.pm - what tests of clients need from this machine: programs, and the
# npm packages of examples/
#
# Each function answers undef where something is not to be had; tests are
# skipped then, and say what is missing.

package NodeTest;

use strict;
use warnings;

use Exporter 'import';
use PostgreSQL::Test::Utils;

our @EXPORT = qw(program npm_packages);

# The first of some programs that is there.
sub program
{
	my @names = @_;

	foreach my $name (@names)
	{
		return $name if $name =~ m{/} && -x $name;
		my ($path) = grep { -x } map { "$_/$name" } split(/:/, $ENV{PATH});
		return $path if defined $path;
	}
	return;
}

# Makes examples/node_modules; true if it is there.
sub npm_packages
{
	my ($examples) = @_;

	return 1 if -d "$examples/node_modules";
	return if !program('node') || !program('npm');
	local $ENV{HOME} = PostgreSQL::Test::Utils::tempdir();
	return system_log('npm', 'ci', '--prefix', $examples, '--ignore-scripts',
		'--no-audit', '--no-fund', '--fetch-retries=1', '--loglevel=error') == 0;
}

1;
