# Machines through pg_dump and restore, for a superuser and for a database owner
# who is none: the same rows, nothing fires, roles may be missing; and a
# schema-only dump with idem_export, for databases that start empty.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use IdemTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = idem_node('machine_dump');
my $superuser = getpwuid($>);

$node->safe_psql('postgres', <<'EOT');
CREATE ROLE regress_idem_owner LOGIN;
CREATE ROLE regress_idem_keeper;
CREATE ROLE regress_idem_clerk;
EOT

my $fill = <<'EOT';
SET search_path = SCHEMA, public;
SELECT idem_define('order', $m$stateDiagram-v2
    [*] --> draft
    draft --> pending : submit [new.amount > 0] by regress_idem_clerk
    pending --> approved : approve
    state "in review" as r
    pending --> r : "look; closer"
    r --> approved
    approved --> [*]
    note right of approved : frozen
$m$);
SELECT idem_define('empty', E'stateDiagram-v2\n[*] --> a');
INSERT INTO idem.machine (name) VALUES ('hand');
INSERT INTO idem.state (machine, name) VALUES ('hand', 'x'), ('hand', 'y');
INSERT INTO idem.transition (machine, event, from_state, to_state, priority) VALUES ('hand', 'go', 'x', 'y', 7), ('hand', 'back', '*', 'x', -3);
CREATE TABLE orders (id int PRIMARY KEY, state text, amount int);
INSERT INTO orders VALUES (1, 'draft', 1), (2, 'draft', 0);
SELECT idem_attach('order', 'orders', 'state');
INSERT INTO idem.scope (name, ttl) VALUES ('pay', '3 days');
EOT

my $rows = <<'EOT';
SELECT 'machine', m.name || ' ' || m.owner FROM idem.machine AS m
UNION ALL SELECT 'state', s::text FROM idem.state AS s
UNION ALL SELECT 'transition', t::text FROM idem.transition AS t
UNION ALL SELECT 'scope', s::text FROM idem.scope AS s
UNION ALL SELECT 'binding', b.machine || ' ' || b.table_name || ' ' || b.column_name FROM idem.binding AS b
ORDER BY 1, 2
EOT

# psql -f as a role, without an error.
sub restore
{
	my ($role, $db, $file, $what) = @_;

	$node->safe_psql('postgres',
		"CREATE DATABASE $db OWNER $role TEMPLATE template0");
	$node->command_ok(
		[
			'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-U', $role,
			'-o', "$file.out", '-f', $file, $node->connstr($db)
		],
		"$what: restore without an error");
	return;
}

my $n = 0;
foreach my $case ([ $superuser, 'public' ],
	[ 'regress_idem_owner', 'public' ],
	[ 'regress_idem_owner', 'we"ird' ])
{
	my ($role, $schema) = @$case;
	my $db = 'machine' . ++$n;
	my $what = "$role, $schema";
	my $q = '"' . ($schema =~ s/"/""/gr) . '"';
	my $file = "$PostgreSQL::Test::Utils::tmp_check/$db";
	my $fires = qq{
SET search_path = $q, public;
\\set VERBOSITY sqlstate
UPDATE orders SET state = 'approved' WHERE id = 1;
UPDATE orders SET state = 'in review' WHERE id = 1;
};

	$node->safe_psql('postgres',
		"CREATE DATABASE $db OWNER $role TEMPLATE template0");
	run_as($node, $role, $db,
		($schema eq 'public' ? '' : "CREATE SCHEMA $q;\n")
		. "CREATE EXTENSION idem SCHEMA $q;\n"
		. ($fill =~ s/SCHEMA/$q/gr));
	my $expected = run_as($node, $role, $db, $rows);

	# All of it.
	$node->command_ok(
		[ 'pg_dump', '-Fp', '-U', $role, '-f', "$file.sql", $node->connstr($db) ],
		"$what: pg_dump");
	restore($role, "full$n", "$file.sql", $what);
	is(run_as($node, $role, "full$n", $rows), $expected,
		"$what: machines and bindings are the same");
	is(errcode($node, "full$n", $fires, extra_params => [ '-U', $role ]),
		'ID409', "$what: the copy is guarded");

	# The schema, and what idem_export says.
	$node->command_ok(
		[ 'pg_dump', '-Fp', '-s', '-U', $role, '-f', "$file-s.sql", $node->connstr($db) ],
		"$what: pg_dump of the schema");
	restore($role, "schema$n", "$file-s.sql", $what);
	is(errcode($node, "schema$n",
			"SET search_path = $q, public; INSERT INTO orders VALUES (1, 'draft', 1)",
			extra_params => [ '-U', $role ]),
		'ID500', "$what: without its machine a bound table takes nothing");
	run_as($node, $role, "schema$n",
		run_as($node, $role, $db, "SELECT * FROM $q.idem_export()"));
	is(run_as($node, $role, "schema$n", $rows), $expected,
		"$what: the export makes the same machines");
	is(run_as($node, $role, "schema$n",
			"SET search_path = $q, public; INSERT INTO orders VALUES (1, 'draft', 1) RETURNING state"),
		'draft', "$what: and then it does");
}

# One table: its triggers come along, and neither the extension nor the machine.
# Without the extension it is left unguarded, and an error says so.
my $table = "$PostgreSQL::Test::Utils::tmp_check/table.sql";
$node->command_ok(
	[ 'pg_dump', '-Fp', '-t', 'orders', '-f', $table, $node->connstr('machine1') ],
	'pg_dump of a table');
$node->safe_psql('postgres', 'CREATE DATABASE bare TEMPLATE template0');
$node->command_fails_like(
	[ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', $table, $node->connstr('bare') ],
	qr/function public\.idem_\w+\(.*\) does not exist/,
	'one table, without the extension: an error');
is($node->safe_psql('bare', q{UPDATE public.orders SET state = 'nonsense' WHERE id = 1 RETURNING 1}),
	'1', 'one table, without the extension: it is not guarded');
$node->safe_psql('postgres', 'CREATE DATABASE single TEMPLATE template0');
$node->safe_psql('single', 'CREATE EXTENSION idem');
$node->command_ok(
	[ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', $table, '-o', "$table.out", $node->connstr('single') ],
	'one table, with the extension: restored');
my $move = q{UPDATE public.orders SET state = 'approved' WHERE id = 1};
is(errcode($node, 'single', $move), 'ID500', 'one table: nothing moves without its machine');
$node->safe_psql('single',
	$node->safe_psql('machine1', 'SELECT * FROM idem_export()'));
is(errcode($node, 'single', $move), 'ID409', 'one table: with it, it is guarded');

# A role that is nowhere when the machines come, or came too late.
$node->safe_psql('machine1', "UPDATE idem.machine SET owner = 'regress_idem_keeper' WHERE name = 'empty'");
my $file = "$PostgreSQL::Test::Utils::tmp_check/roles.sql";
$node->command_ok(
	[ 'pg_dump', '-Fp', '-f', $file, $node->connstr('machine1') ], 'pg_dump');
$node->safe_psql('postgres', 'DROP ROLE regress_idem_clerk, regress_idem_keeper');
restore($superuser, 'roles', $file, 'without the roles');
is($node->safe_psql('roles', q{SELECT code FROM idem_lint('order') WHERE severity = 'error'}),
	'no_role', 'lint tells of the missing role');
is($node->safe_psql('roles', q{SELECT owner FROM idem.machine WHERE name = 'empty'}),
	'regress_idem_keeper', 'an owner who is nowhere stays named');
is(errcode($node, 'roles', q{SELECT idem_define('order', idem_diagram('order'))}),
	'none', 'a definition that is there already asks for nothing');

# Standbys and read-only sessions read diagrams.
is($node->safe_psql('machine1', q{BEGIN READ ONLY; SELECT idem_diagram('empty'); COMMIT}),
	"stateDiagram-v2\n    [*] --> a\n", 'a read-only transaction');

$node->stop;
done_testing();
