# Diagrams in the hands of those who draw them: what idem_diagram prints is read
# by Mermaid as it was meant (skipped where node, npm or the package is not to be
# had), and rendered by graphviz.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use IdemTest;
use IPC::Run ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = idem_node('diagram');
my $db = idem_database($node, 'idem_diagram');
my $machines = 40;

sub installed
{
	my ($program) = @_;

	return scalar grep { -x "$_/$program" } split /:/, $ENV{PATH};
}

$node->safe_psql($db, <<'EOT');
CREATE ROLE regress_idem_by;
CREATE ROLE "regress_idem_a b, ""c""";
EOT
# The machines by chance are those of the regression test.
my ($generator) = slurp_file("$FindBin::RealBin/../sql/diagram.sql") =~ /^(-- Machines by chance.*?)^SELECT setseed/ms
  or die 'test/sql/diagram.sql has no generator';
$node->safe_psql($db, ($generator =~ s/pg_temp\./public./gr) . <<'EOT' . "SELECT fill($machines);");
CREATE FUNCTION fill(n int) RETURNS void LANGUAGE plpgsql AS $fn$
BEGIN
	PERFORM setseed(0.7);
	FOR i IN 1 .. n LOOP
		PERFORM make(3 + i % 12);
		UPDATE idem.machine SET name = 'chance ' || i WHERE name = 'chance';
	END LOOP;
END $fn$;
SELECT idem_define('order', $m$stateDiagram-v2
    [*] --> draft
    draft --> pending : submit [new.amount > 0]
    pending --> approved : approve by regress_idem_by
    pending --> expired : expire after 30 min
    [any] --> cancelled : cancel
    approved --> [*]
    cancelled --> [*]
    expired --> [*]
    note right of approved : frozen
$m$);
EOT

# Where there is a history arrows have numbers.
$node->safe_psql($db, <<'EOT');
INSERT INTO idem.history (table_schema, table_name, column_name, row_key, machine, event, from_state, to_state, role_name, at, row_hash)
SELECT 'public', 'gone', 'state', '{"id": 1}', name, 'go', 'a', 'b', 'somebody', now(), 1 FROM idem.machine;
EOT

# What must be drawn: the arrows that begin, those of transitions, those that end.
my $cases = $node->safe_psql($db, <<'EOT');
SELECT json_agg(json_build_object('text', idem_diagram(m.name, counts => c),
	'arrows', (SELECT json_agg(json_build_array(f, t, e) ORDER BY part, n, t COLLATE "C", f COLLATE "C")
		FROM (SELECT 1 AS part, 0 AS n, NULL AS f, name AS t, NULL AS e FROM idem.state WHERE machine = m.name AND initial
			UNION ALL SELECT 2, priority, from_state, to_state, event FROM idem.transition WHERE machine = m.name
			UNION ALL SELECT 3, 0, name, NULL, NULL FROM idem.state WHERE machine = m.name AND final) AS arrows)))
FROM idem.machine AS m, unnest(ARRAY[false, true]) AS c;
EOT

SKIP:
{
	skip 'node is not installed', 1 unless installed('node');

	IPC::Run::run([ 'node', "$FindBin::RealBin/../../tools/mermaid-check" ],
		'<', \$cases, '>', \my $out, '2>', \my $err);
	my $status = $? >> 8;

	skip $out =~ s/\n.*//sr, 1 if $status == 77;
	is($status, 0, 'Mermaid reads the diagrams') or diag "$out$err";
	note $out;
}

SKIP:
{
	skip 'graphviz is not installed', 3 unless installed('dot');

	my $failed = 0;
	foreach my $name (split /\n/, $node->safe_psql($db, 'SELECT name FROM idem.machine ORDER BY 1'))
	{
		my $dot = $node->safe_psql($db, "SELECT idem_diagram('$name', 'dot', true)");

		IPC::Run::run([ 'dot', '-Tsvg' ], '<', \$dot, '>', \my $svg, '2>', \my $err);
		next if $? == 0 && $err !~ /^(?:Warning|Error)/m && $svg =~ /<\/svg>/;
		$failed++;
		diag "$name: $err\n$dot";
	}
	is($failed, 0, 'graphviz renders the diagrams');

	my $dot = $node->safe_psql($db, "SELECT idem_diagram('order', 'dot')");
	IPC::Run::run([ 'dot', '-Tsvg' ], '<', \$dot, '>', \my $svg);
	my %titles = map { $_ => 1 } $svg =~ /<text [^>]*>\s*([^<]*?)\s*<\/text>/g;
	is_deeply(
		[ grep { !$titles{$_} } qw(draft pending approved expired cancelled submit approve expire cancel) ],
		[], 'the picture of an order names every state and event');
	is(scalar(() = $svg =~ /class="edge"/g), 5, 'and has its arrows');
}

$node->stop;
done_testing();
