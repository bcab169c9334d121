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
$node->safe_psql($db, <<'EOT' . "SELECT fill($machines);");
-- Machines by chance: rows, diagram, rows again.  Every character that means
-- something to anybody is in some name, guard or role.
CREATE FUNCTION public.word(max int) RETURNS text LANGUAGE sql VOLATILE AS $fn$
	SELECT string_agg(substr(chars, 1 + floor(random() * length(chars))::int, 1), '')
	FROM generate_series(1, 1 + floor(random() * max)::int),
		(VALUES (E'ab1_-. :;,#[](){}<>"''%&\\\n\t*+/=|~!?@^`$éß€字')) AS v (chars)
$fn$;
CREATE FUNCTION public.states(n int) RETURNS text[] LANGUAGE sql VOLATILE AS $fn$
	SELECT array_agg(DISTINCT name) FROM (
		SELECT CASE WHEN i % 3 = 0 THEN public.word(12)
			WHEN i % 7 = 0 THEN (ARRAY['state', 'note', 'end', 's1', 's2', 'by', 'after', '[any]', '[*]', 'root', 'class', '-->', '#35;', ' a ', '%%', '--', 'a --> b', E'\u00a0', '"'])[1 + i % 19]
			ELSE 'w' || i END AS name
		FROM generate_series(1, n) AS i) AS names
	WHERE name <> '*'
$fn$;
CREATE FUNCTION public.guard() RETURNS text LANGUAGE sql VOLATILE AS $fn$
	SELECT (ARRAY['new.a > 1', 'new.a::int = 3', format('new.t = %L', public.word(20)), format('new.%I IS NULL', public.word(10)),
		'new.x[1] = old.x[2]', format('$q$%s]$q$ = ''''', translate(public.word(8), '$', '')), E'E''\\]'' = ''[''', 'true -- ]', E'true /* [ ] ] */\n', NULL, NULL, NULL])[1 + floor(random() * 12)::int]
$fn$;
CREATE FUNCTION public.make(n int) RETURNS void LANGUAGE plpgsql AS $fn$
DECLARE
	names text[] := public.states(n);
BEGIN
	DELETE FROM idem.machine WHERE name = 'chance';
	INSERT INTO idem.machine (name) VALUES ('chance');
	INSERT INTO idem.state (machine, name, initial, final, frozen, self)
	SELECT 'chance', name, random() < 0.3 OR name = names[1], random() < 0.2, random() < 0.2,
		(ARRAY['deny', 'noop', 'reenter'])[1 + floor(random() * 3)::int]
	FROM unnest(names) AS name;
	INSERT INTO idem.transition (machine, event, from_state, to_state, priority, guard, roles, after)
	SELECT 'chance', CASE WHEN random() < 0.2 THEN t ELSE public.word(10) END, f, t, row_number() OVER (), public.guard(),
		(ARRAY[NULL, NULL, '{"regress_idem_a b, \"c\"",regress_idem_by}', '{regress_idem_by}'])[1 + floor(random() * 4)::int]::name[],
		(ARRAY[NULL, NULL, NULL, '0 s', '1 mon -1 day', '-3 h +1 day', '1.000001 s', '2 years 3 days 04:05:06.7'])[1 + floor(random() * 8)::int]::interval
	FROM (SELECT f.name AS f, t.name AS t
		FROM (SELECT name FROM idem.state WHERE machine = 'chance' AND NOT final UNION ALL SELECT '*') AS f,
			(SELECT name FROM idem.state WHERE machine = 'chance') AS t
		WHERE random() < 3.0 / n) AS pairs;
END $fn$;
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
