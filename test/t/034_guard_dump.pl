# Guarded tables through pg_dump: a full restore guards as before and refuses
# none of its own rows; a schema-only one keeps the bindings and says which
# definitions are missing; so does a trusted, unprivileged owner's.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use IdemTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = idem_node('guard_dump');
my $superuser = getpwuid($>);
$node->safe_psql('postgres', 'CREATE ROLE regress_idem_owner LOGIN');

my $fill = <<'EOT';
INSERT INTO idem.machine (name) VALUES ('or"der');
INSERT INTO idem.state (machine, name, initial) VALUES ('or"der', 'draft', true), ('or"der', 'it''s', false), ('or"der', 'done', false);
INSERT INTO idem.transition (machine, event, from_state, to_state, priority, guard) VALUES
	('or"der', 'submit', 'draft', 'it''s', 1, 'new.v > 0'), ('or"der', 'finish', 'it''s', 'done', 2, NULL);
CREATE TABLE "Or ders" (gone int, id int PRIMARY KEY, "St""ate" text, v int);
ALTER TABLE "Or ders" DROP gone;
CREATE TABLE parts (id int, state text, v int) PARTITION BY LIST (state);
CREATE TABLE parts_draft PARTITION OF parts FOR VALUES IN ('draft');
CREATE TABLE parts_rest PARTITION OF parts DEFAULT;
CREATE TABLE parent (id int, state text, v int);
CREATE TABLE child () INHERITS (parent);
SELECT idem_attach('or"der', '"Or ders"', 'St"ate', on_delete => 'never', exempt => '{regress_idem_owner}', mode => 'observe');
SELECT idem_detach('"Or ders"', 'St"ate');
SELECT idem_attach('or"der', '"Or ders"', 'St"ate', on_delete => 'never');
SELECT idem_attach('or"der', 'parts', 'state', events_only => true);
SELECT idem_attach('or"der', 'parent', 'state');
INSERT INTO "Or ders" VALUES (1, 'draft', 1), (2, 'draft', 1);
UPDATE "Or ders" SET "St""ate" = 'it''s' WHERE id = 1;
INSERT INTO parts VALUES (1, 'draft', 1);
INSERT INTO parent VALUES (1, 'draft', 1);
INSERT INTO child VALUES (2, 'draft', 1);
UPDATE child SET state = 'it''s';
EOT

my $bindings = <<'EOT';
SELECT * FROM idem.binding ORDER BY machine, table_name::text;
SELECT tgrelid::regclass, pg_get_triggerdef(oid) FROM pg_trigger WHERE tgname ~ '^~idem' ORDER BY tgrelid::regclass::text, tgname;
EOT

my $writes = <<'EOT';
UPDATE "Or ders" SET "St""ate" = 'done' WHERE id = 2;
DELETE FROM "Or ders" WHERE id = 1;
UPDATE "Or ders" SET "St""ate" = 'done' WHERE id = 1;
INSERT INTO "Or ders" VALUES (3, 'done', 1);
UPDATE parts SET state = 'it''s';
UPDATE parent SET state = 'done' WHERE id = 1;
UPDATE parent SET state = 'done' WHERE id = 2;
EOT

# what psql says of each statement: its SQLSTATE, or nothing
sub told
{
	my ($role, $db, $sql) = @_;
	my $err = '';

	$node->psql($db, "\\set VERBOSITY sqlstate\n$sql", stderr => \$err,
		on_error_stop => 0, extra_params => [ '-U', $role ]);
	return join ' ', $err =~ /ERROR:\s+(\w+)/g;
}

my $n = 0;
foreach my $role ($superuser, 'regress_idem_owner')
{
	my $db = 'source' . ++$n;
	my $tmp = $PostgreSQL::Test::Utils::tmp_check;

	$node->safe_psql('postgres',
		"CREATE DATABASE $db OWNER $role TEMPLATE template0");
	run_as($node, $role, $db, "CREATE EXTENSION idem;\n$fill");

	foreach my $case ([ 'full', [] ], [ 'schema', ['--schema-only'] ])
	{
		my ($kind, $options) = @$case;
		my $copy = "${kind}_$n";

		$node->command_ok(
			[ 'pg_dump', @$options, '-U', $role, '-f', "$tmp/$copy.sql", $node->connstr($db) ],
			"$role: pg_dump, $kind");
		$node->safe_psql('postgres',
			"CREATE DATABASE $copy OWNER $role TEMPLATE template0");
		$node->command_ok(
			[ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-U', $role,
				'-o', "$tmp/$copy.out", '-f', "$tmp/$copy.sql", $node->connstr($copy) ],
			"$role: restore, $kind");
		is( run_as($node, $role, $copy, $bindings),
			run_as($node, $role, $db, $bindings),
			"$role: the same bindings and triggers, $kind");
	}

	my $expected = 'ID409 ID409 ID409 42501 ID409';
	is(told($role, "full_$n", $writes), $expected,
		"$role: the full copy guards as the source did");
	is(told($role, $db, $writes), $expected, "$role: as the source does");

	my $err = '';
	$node->psql("schema_$n", qq{INSERT INTO parent VALUES (1, 'draft', 1)},
		stderr => \$err, extra_params => [ '-U', $role ]);
	like($err, qr/machine "or"der" does not exist\nHINT:.*idem_export\(\)/,
		"$role: a copy of the schema says that the definition is missing");
	run_as($node, $role, "schema_$n", join '', grep { /idem\.|or"der|INTO idem/ } map { "$_\n" } (split /\n/, $fill)[0 .. 3]);
	is(told($role, "schema_$n", q{INSERT INTO parent VALUES (1, 'draft', 1); INSERT INTO parent VALUES (1, 'done', 1)}),
		'ID409', "$role: and guards when it is there");
}

# rows put into a table that is guarded already come in with triggers off
my $tmp = $PostgreSQL::Test::Utils::tmp_check;
$node->command_ok(
	[ 'pg_dump', '--data-only', '--disable-triggers', '-t', '"Or ders"', '-f', "$tmp/data.sql", $node->connstr('source1') ],
	'pg_dump of rows');
$node->safe_psql('schema_1', 'TRUNCATE "Or ders"');
$node->command_ok(
	[ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', "$tmp/data.sql", $node->connstr('schema_1') ],
	'restored with --disable-triggers');
is($node->safe_psql('schema_1', 'SELECT count(*) FROM "Or ders"'), '2', 'all rows are there');
is($node->safe_psql('schema_1', q{SELECT count(*) FROM idem_verify('"Or ders"')}), '0', 'and are in states of the machine');

done_testing();
