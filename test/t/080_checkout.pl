# The shop of examples/checkout in a headless browser: its own test, on a
# cluster of this one.

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

my $examples = "$FindBin::RealBin/../../examples";
my $chromium = program('chromium', 'chromium-browser', 'google-chrome');

plan skip_all => 'chromium is not installed (package chromium)'
  unless defined $chromium;
plan skip_all => 'graphviz is not installed (package graphviz)'
  unless program('dot');
plan skip_all => 'node, npm or the packages of examples/ are not to be had'
  unless npm_packages($examples);

my $node = idem_node('checkout');
foreach my $role ('shop', 'provider')
{
	$node->safe_psql('postgres', "CREATE ROLE $role LOGIN; ");
	$node->safe_psql('postgres', "CREATE DATABASE $role");
}
foreach my $file ('schema.sql', 'provider.sql')
{
	$node->safe_psql($file eq 'schema.sql' ? 'shop' : 'provider',
		slurp_file("$examples/checkout/$file"));
}

my $out = '';
my $done;
{
	local %ENV = (
		%ENV,
		CHROMIUM => $chromium,
		HOME     => PostgreSQL::Test::Utils::tempdir(),
		PGHOST   => $node->host,
		PGPORT   => $node->port,
		PGUSER   => scalar getpwuid($>));
	$done = IPC::Run::run([ 'node', "$examples/checkout/test/browser.js" ],
		'<', \undef, '>', \$out, IPC::Run::timeout(240));
}

my $planned;
foreach my $line (split /\n/, $out)
{
	if ($line =~ /^(not )?ok \d+ - (.*)/)
	{
		ok(!$1, $2);
	}
	elsif ($line =~ /^1\.\.(\d+)$/)
	{
		$planned = $1;
	}
	else
	{
		diag($line =~ s/^# //r);
	}
}
is($planned, Test::More->builder->current_test, 'the browser test came to its end');
ok($done, 'and succeeded');
my @middleware = split(/\n/, slurp_file("$examples/checkout/idempotency.js"));
cmp_ok(scalar @middleware, '<', 100, 'the middleware is under 100 lines');

$node->stop;
done_testing();
