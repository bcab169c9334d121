# "make example" as a newcomer runs it: the shop answers, takes a payment once,
# and after Ctrl-C nothing of it is left.

use strict;
use warnings;

use Cwd qw(realpath);
use FindBin;
use lib "$FindBin::RealBin/../lib";

use HTTP::Tiny;
use IPC::Run ();
use NodeTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $top = realpath("$FindBin::RealBin/../..");

plan skip_all => 'graphviz is not installed (package graphviz)'
  unless program('dot');
plan skip_all => 'node, npm or the packages of examples/ are not to be had'
  unless npm_packages("$top/examples");

# In a process group of its own, as a shell with a terminal starts it, so that
# SIGINT to the group is what Ctrl-C does.
my ($out, $err) = ('', '');
my $leader;
my $make = IPC::Run::start(
	[ 'make', '-s', '-C', $top, 'example' ],
	'<', \undef, '>', \$out, '2>', \$err,
	init => sub {
		setpgrp(0, 0);
		$SIG{INT} = 'DEFAULT';
		delete @ENV{ 'PORT', 'PROVIDER', 'MFLAGS' };
	});
$leader = $make->{KIDS}[0]{PID};
END { kill('INT', -$leader) if defined $leader }

my $until = time + 240;
while ($out !~ m{^shop: http://\S+:\d+$}m && $make->pumpable && time < $until)
{
	$make->pump_nb;
	select(undef, undef, undef, 0.1);
}
my ($url) = $out =~ m{^shop: (http://\S+:\d+)$}m;
my ($dir) = $out =~ m{psql -h (\S+) -U postgres shop$}m;

if (!defined $url && $err =~ /^(setup: packages are missing|example: .* is not yours to write to)/m)
{
	undef $leader;
	$make->finish;
	plan skip_all => "make example cannot run here: $1";
}
ok(defined $url && defined $dir, 'make example says where the shop is, and its database')
  or BAIL_OUT("make example did not start: $out$err");

# One order, paid with one key, twice.
my $http = HTTP::Tiny->new(max_redirect => 0, timeout => 30);
my $page = $http->get($url);
is($page->{status}, 200, 'the shop answers');
my ($token) = $page->{content} =~ /name="token" value="([^"]+)"/;
my $order = $http->post_form("$url/orders", { token => $token, tea => 2, cup => 0, pot => 0 });
is($order->{status}, 303, 'an order is placed');

sub pay
{
	return $http->post(
		"$url/api$order->{headers}{location}/payment",
		{
			headers => { 'Content-Type' => 'application/json', 'Idempotency-Key' => 'key-of-082' },
			content => '{"card": "good"}'
		});
}
my ($first, $second) = (pay(), pay());
is_deeply(
	[ map { $_->{status}, $_->{headers}{'idempotency-replayed'} } $first, $second ],
	[ 201, 'false', 201, 'true' ],
	'it is paid, and the repeat is a replay');
is($second->{content}, $first->{content}, 'with the same answer, byte for byte');

sub ask
{
	my ($db, $sql) = @_;
	my $answer = `psql -qAtX -h $dir -p 5432 -U postgres -c "$sql" $db`;
	chomp $answer;
	return $answer;
}
is(ask('shop', 'SELECT count(*), max(state) FROM orders JOIN payment ON order_id = id'), '1|paid',
	'the shop has one payment');
is(ask('shop', "SELECT response FROM idem.key WHERE key = 'key-of-082'"), $first->{content},
	'and the answer as it was sent');
is(ask('provider', 'SELECT count(*) FROM charge'), '1', 'the provider has one charge');

# Whatever works in its directory, or inherited its mark.
sub left
{
	my @pids;

	foreach my $proc (glob('/proc/[0-9]*'))
	{
		my $cwd = readlink("$proc/cwd") // '';
		my $mark = '';

		if (open(my $environ, '<', "$proc/environ"))
		{
			local $/;
			$mark = <$environ> // '';
		}
		push @pids, $proc
		  if $cwd =~ m{^\Q$dir\E(/|$)} || $mark =~ /(^|\0)IDEM_TMP=\Q$dir\E(\0|$)/;
	}
	return scalar @pids;
}
cmp_ok(left(), '>=', 4, 'its servers run meanwhile');

kill('INT', -$leader);
undef $leader;
eval { $make->finish(IPC::Run::timeout(60)) };
$until = time + 60;
select(undef, undef, undef, 0.1) while (left() || -e $dir) && time < $until;

is(left(), 0, 'after Ctrl-C no process is left');
ok(!-e $dir, 'nor its directory');
is($http->get($url)->{status}, 599, 'nor the shop');

done_testing();
