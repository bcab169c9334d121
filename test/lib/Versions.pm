# Versions.pm - library and objects of different versions
#
# every_answer() calls each verb and fires each trigger in a database that
# fill_former() has made, with $more_tables, and all_refused() expects that
# none of it is let.  server_copy() is a server whose files a test can replace,
# as a package does, and put_version() does so.

package Versions;

use strict;
use warnings;

use Exporter 'import';
use EveryKind;
use File::Basename;
use File::Copy;
use File::Path;
use PostgreSQL::Test::Utils;
use Test::More;

our @EXPORT = qw($more_tables @verbs @writes every_answer all_refused server_copy put_version);

# Tables that they need beside those of a database of 1.0.0.
our $more_tables = <<'EOT';
CREATE TABLE counted (n int, v int NOT NULL DEFAULT 1);
SELECT idem_attach_version('counted', 'v');
INSERT INTO counted VALUES (1);
CREATE TABLE loose (id int PRIMARY KEY, state text, v int NOT NULL DEFAULT 1, f bigint);
EOT

# One call of each verb, and one write for each trigger, as a database of 1.0.0
# knows them.  Each would do or say something if it were let.  (What fences a
# column is a trigger's condition that needs no library until it refuses.)
our @verbs = (
	q{idem_claim('new')}, q{idem_claim('new', lease => '1 h')}, q{idem_claim('new', hold => 'session')}, q{idem_claim('done')},
	q{idem_complete('leased', 'r'::text, 'pay', 1)}, q{idem_complete('leased', '1'::json, 'pay', 1)}, q{idem_complete('leased', '1'::jsonb, 'pay', 1)},
	q{idem_fail('leased', 'e', 'pay', 1)}, q{idem_retry('leased', 'e', 'pay', 1)}, q{idem_release('leased', 'pay', 1)},
	q{idem_renew('leased', '1 h', 'pay', 1)}, q{idem_step('leased', 's', NULL, 'pay', 1)}, q{idem_lookup('done')},
	q{idem_once('new')}, q{idem_once_many('{a,new}')}, q{idem_child('done', 'c')},
	q{idem_forget('done', force => true)}, q{idem_reopen('failed')}, q{idem_import('new')}, q{idem_import_many('{new}')},
	q{idem_fence_advance(1)}, q{idem_sweep()},
	q{idem_call('new', 'double(numeric)', '{"n": 2}')}, q{double_once('twin', 21)}, q{double_once('new', 21)}, q{idem_wrap('double(numeric)', 'other')},
	q{idem_attach_once('document', '{id}')}, q{idem_detach_once('event')},
	q{idem_define('new', 'stateDiagram-v2
		[*] --> a')}, q{idem_diagram('order')}, q{idem_lint('order')}, q{idem_export()},
	q{idem_attach('order', 'loose', 'state')}, q{idem_detach('orders', 'state')}, q{idem_verify('orders')},
	q{idem_fire('orders', 1, 'approve')}, q{idem_try_fire('orders', 1, 'approve')}, q{idem_fire_many('orders', '{1}', 'approve')},
	q{idem_allowed('orders', 1)}, q{idem_why_not('orders', 1, 'approve')}, q{idem_history('orders', 1)}, q{idem_tick()},
	q{idem_attach_version('loose', 'v')}, q{idem_detach_version('orders')},
	q{idem_update('orders', 1, 2, '{"state": "approved"}')}, q{idem_delete('orders', 1, 2)},
	q{idem_lease_acquire('new', '1 h')}, q{idem_lease_renew('job', '1 h', 2)}, q{idem_lease_release('job', 2)},
	q{idem_lease_guard('job', 2)}, q{idem_lease_break('job')},
	q{idem_token_issue('mail')}, q{idem_token_use('x', 'mail')}, q{idem_token_peek('x', 'mail')},
	q{idem_branch('saga', 'hotel', 'try')}, q{idem_window('login', '1 day')});
our @writes = (
	q{UPDATE orders SET state = 'approved' WHERE id = 1}, q{UPDATE orders SET state = 'draft' WHERE id = 1},
	q{INSERT INTO orders VALUES (3, 'draft')}, q{INSERT INTO orders VALUES (3, 'approved')},
	q{UPDATE orders SET v = 7}, q{UPDATE parts SET state = 'pending'},
	q{INSERT INTO parts VALUES (2, 'draft')}, q{DELETE FROM parts}, q{INSERT INTO event VALUES (3, 'x')}, q{INSERT INTO event VALUES (3, 'y')},
	q{UPDATE counted SET n = 2}, q{INSERT INTO idem.machine VALUES ('new', 'regress_idem_owner')},
	q{INSERT INTO idem.transition VALUES ('order', 'e', 'draft', 'approved')}, q{DELETE FROM idem.state WHERE name = 'draft'});

# What a session says to a statement: rows, or the error.  The transaction is
# rolled back.
sub answer_of
{
	my ($s, $sql) = @_;
	my $out;

	$s->{stderr} = '';
	$s->query('BEGIN');
	$out = $s->query("$sql;");
	$s->query('ROLLBACK');
	return $s->{stderr} =~ m{((?:ERROR|FATAL): .*?)(?:\n?background_psql:|\z)}s ? $1 : $out;
}

# The answers to all of them, by statement.
sub every_answer
{
	my ($s) = @_;

	return map { $_ => answer_of($s, $_) } ((map { "SELECT * FROM $_" } @verbs), @writes);
}

# All of them are refused, and nothing has changed.
sub all_refused
{
	my ($node, $owner, $db, $name) = @_;
	my $before = every_row($node, $owner, $db);
	my @told;

	foreach my $sql ((map { "SELECT * FROM $_" } @verbs), @writes)
	{
		my ($rc, $out, $err) = $node->psql($db, $sql, extra_params => [ '-U', $owner ]);
		push @told, "$sql: $out$err" if $err !~ /library and objects of extension "idem" are of different versions/;
	}
	is(join("\n", @told), '', "$name: every verb and trigger says so");
	is(every_row($node, $owner, $db), $before, "$name: nothing has changed");
	return;
}

sub config
{
	my ($what) = @_;

	chomp(my $value = `pg_config --$what`);
	return $value;
}

# A copy of the server in a directory of its own, which finds its libraries and
# scripts where its programs are.  Returns what Cluster->new() wants as
# install_path.
sub server_copy
{
	my ($dir) = @_;

	foreach my $what ('bindir', 'pkglibdir', 'sharedir')
	{
		my $from = config($what);

		mkpath("$dir$from");
		system_or_bail('sh', '-c', 'tar -C "$1" --exclude=./pgxs --exclude=./bitcode --exclude="./idem*" --exclude="./extension/idem*" -chf - . | tar -C "$2" -xf -',
			'sh', $from, "$dir$from");
	}
	return $dir . (config('bindir') =~ s{/bin\z}{}r);
}

# Puts the files of a version in place, as a package does: what is there is
# replaced, not written into.  They are taken from a tree that is built, or else
# from the server that was copied.
sub put_version
{
	my ($dir, $tree) = @_;
	my $lib = config('pkglibdir');
	my $scripts = config('sharedir') . '/extension';
	my @files =
	  defined $tree
	  ? ([ "$tree/idem.so", $lib ], map { [ $_, $scripts ] } "$tree/idem.control", glob("$tree/sql/idem--*.sql"))
	  : ([ "$lib/idem.so", $lib ], map { [ $_, $scripts ] } "$scripts/idem.control", glob("$scripts/idem--*.sql"));

	foreach my $file (@files)
	{
		my ($from, $to) = @$file;
		my $name = "$dir$to/" . basename($from);

		copy($from, "$name.new") or die "$from: $!";
		chmod 0755, "$name.new";
		rename("$name.new", $name) or die "$name: $!";
	}
	return;
}

1;
