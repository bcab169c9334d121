# idem_canonical and idem_fingerprint where one database does not suffice:
# the same document in every server encoding, and 100,000 documents against
# the npm package "canonicalize" (IDEM_DOCUMENTS for another number; skipped
# where node, npm or the package is not to be had).

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use IdemTest;
use IPC::Run ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = idem_node('canonical');
my $tool = "$FindBin::RealBin/../../tools/canonical-check";

idem_database($node, 'idem_utf8', undef, options => 'ENCODING UTF8');

sub of
{
	my ($db, $expression, $document) = @_;

	return $node->safe_psql($db, sprintf $expression, "'$document'::jsonb");
}

my $bytes = "SELECT encode(convert_to(idem_canonical(%s), 'UTF8'), 'hex')";
my $print = 'SELECT idem_fingerprint(%s)';

foreach my $case (
	[ 'LATIN1', '{"\u00e9": "\u00fc\u0001\"", "\u00e0": [1.0], "z": "\u00ff"}' ],
	[ 'LATIN9', '{"\u20ac": 1, "\u00e9\u20ac": 2, "\u0153": {"a": "\u20ac"}}' ],
	[ 'WIN1251', '{"\u0451": 1, "\u0436": 2, "\u2116": 3, "\u0402": 4}' ],
	[ 'EUC_JP', '{"\u65e5\u672c": "\u8a9e", "\uff71": 1, "\u3042\u30a2": [], "\u4e00": 2}' ],
	[ 'EUC_KR', '{"\ud55c": "\uae00", "\u4e00": 1, "a\uac00": 2}' ])
{
	my ($encoding, $document) = @$case;
	my $db = 'idem_' . lc $encoding;

	idem_database($node, $db, undef,
		options => "TEMPLATE template0 ENCODING $encoding LC_COLLATE 'C' LC_CTYPE 'C'");
	is(of($db, $bytes, $document), of('idem_utf8', $bytes, $document),
		"$encoding: the form of UTF8");
	is(of($db, $print, $document), of('idem_utf8', $print, $document),
		"$encoding: the fingerprint of UTF8");
}

# SQL_ASCII passes bytes on: what is UTF-8 has the same form, and what is not
# has none.
idem_database($node, 'idem_ascii', undef,
	options => "TEMPLATE template0 ENCODING SQL_ASCII LC_COLLATE 'C' LC_CTYPE 'C'");
is(of('idem_ascii', $print, "{\"\xf0\x9f\x98\x80\": 1, \"\xef\xac\xb3\": 2}"),
	of('idem_utf8', $print, '{"\ud83d\ude00": 1, "\ufb33": 2}'),
	'SQL_ASCII: the fingerprint of UTF8');
foreach my $document ('"\xe9"', '{"\xe9": 1}', '["\xf0\x9f"]')
{
	is( errcode($node, 'idem_ascii',
			"SELECT idem_fingerprint(E'$document'::jsonb)"),
		'22021', "SQL_ASCII: no UTF-8 in $document");
}

SKIP:
{
	IPC::Run::run([ 'node', '--version' ], '>', \my $version, '2>', \my $error)
	  if grep { -x "$_/node" } split /:/, $ENV{PATH};
	skip 'node is not installed', 1 unless $version;

	local @ENV{ 'PGHOST', 'PGPORT', 'PGDATABASE' } =
	  ($node->host, $node->port, 'idem_utf8');
	IPC::Run::run([ 'node', $tool, $ENV{IDEM_DOCUMENTS} // 100000 ],
		'>', \my $out, '2>', \my $err);
	my $status = $? >> 8;

	skip $out =~ s/\n.*//sr, 1 if $status == 77;
	is($status, 0, 'generated documents') or diag "$out$err";
	note $out;
}

$node->stop;
done_testing();
