# Version columns through pg_dump: the trigger, its options and its columns come
# back with the table, in a plain, a schema-only and a custom dump, whatever the
# columns' numbers; restoring fires nothing; and pg_dump of the copy says the same.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use IdemTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = idem_node('dump');
my $tmp = $PostgreSQL::Test::Utils::tmp_check;

$node->safe_psql('postgres', 'CREATE ROLE regress_idem_owner LOGIN');
$node->safe_psql('postgres', 'CREATE DATABASE source OWNER regress_idem_owner');
$node->safe_psql('source', <<'EOT');
CREATE SCHEMA "i ""s""";
CREATE EXTENSION idem SCHEMA "i ""s""";
EOT
$node->safe_psql('source', q{GRANT USAGE ON SCHEMA "i ""s""" TO regress_idem_owner});
$node->safe_psql('source', q{SELECT "i ""s""".idem_grant('regress_idem_owner', 'operator')});
run_as($node, 'regress_idem_owner', 'source', <<'EOT');
SET search_path = public, "i ""s""";
CREATE SCHEMA app;
-- columns that are gone, in front of the version and of what is ignored
CREATE TABLE app.doc (gone1 text, id int PRIMARY KEY, gone2 int, "seen ""at""" int, gone3 int, body text,
	"lock v" bigint NOT NULL DEFAULT 1, hits int);
ALTER TABLE app.doc DROP COLUMN gone1, DROP COLUMN gone2, DROP COLUMN gone3;
SELECT idem_attach_version('app.doc', 'lock v', strict => true, ignore => '{"seen \"at\"",hits}');
INSERT INTO app.doc SELECT i, 0, 'b', i * 100, 0 FROM generate_series(1, 5) AS i;
UPDATE app.doc SET body = 'c', "lock v" = "lock v" WHERE id > 2;
-- renamed since
CREATE TABLE renamed (id int PRIMARY KEY, v int NOT NULL DEFAULT 1);
SELECT idem_attach_version('renamed', 'v', 'next', retryable => true);
ALTER TABLE renamed RENAME v TO "V";
ALTER TABLE renamed RENAME TO "Renamed";
INSERT INTO "Renamed" VALUES (1, 7);
-- a trigger of the user's behind which it had to go, and one that is off
CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
CREATE TABLE late (id int PRIMARY KEY, v int NOT NULL DEFAULT 1);
CREATE TRIGGER "~last" BEFORE UPDATE ON late FOR EACH ROW EXECUTE FUNCTION nothing();
SELECT idem_attach_version('late', 'v');
INSERT INTO late VALUES (1, 3);
CREATE TABLE off (id int PRIMARY KEY, v int NOT NULL DEFAULT 1);
SELECT idem_attach_version('off', 'v');
ALTER TABLE off DISABLE TRIGGER "~idem_version";
-- partitions whose columns have other numbers
CREATE TABLE part (id int, region text, hits int, v int NOT NULL DEFAULT 1, PRIMARY KEY (id, region)) PARTITION BY LIST (region);
CREATE TABLE part_a PARTITION OF part FOR VALUES IN ('a');
CREATE TABLE part_b (gone int, v int NOT NULL DEFAULT 1, hits int, region text NOT NULL, id int NOT NULL);
ALTER TABLE part_b DROP COLUMN gone;
ALTER TABLE part ATTACH PARTITION part_b FOR VALUES IN ('b');
SELECT idem_attach_version('part', 'v', ignore => '{hits}');
INSERT INTO part VALUES (1, 'a', 0, 10), (2, 'b', 0, 20);
EOT

my $contents = <<'EOT';
SELECT 'doc', d::text FROM app.doc AS d
UNION ALL SELECT 'renamed', r::text FROM "Renamed" AS r
UNION ALL SELECT 'late', l::text FROM late AS l
UNION ALL SELECT 'part', p::text FROM part AS p
UNION ALL SELECT 'trigger', pg_get_triggerdef(oid) || ' ' || tgenabled::text FROM pg_trigger WHERE NOT tgisinternal AND tgrelid <> 'idem.scope'::regclass
ORDER BY 1, 2;
EOT

# What the check does in a database, in one line.
sub behaviour
{
	my ($db) = @_;
	my @answers;

	foreach my $statement (
		q{UPDATE app.doc SET body = 'x' WHERE id = 1},
		q{UPDATE app.doc SET body = 'x', "lock v" = 1 WHERE id = 1},
		q{UPDATE app.doc SET body = 'x', "lock v" = 100 WHERE id = 1},
		q{UPDATE app.doc SET "seen ""at""" = 5, hits = 6 WHERE id = 1},
		q{UPDATE "Renamed" SET "V" = 7},
		q{UPDATE "Renamed" SET "V" = 8},
		q{UPDATE late SET v = 2},
		q{UPDATE late SET v = 3},
		q{UPDATE off SET v = 2},
		q{UPDATE part SET v = 10 WHERE id = 2},
		q{UPDATE part SET v = 20, region = 'a' WHERE id = 2},
		q{UPDATE part SET hits = 1})
	{
		push @answers, errcode($node, $db, $statement);
	}
	push @answers, $node->safe_psql($db, <<'EOT') =~ s/\n/ /gr;
SELECT string_agg("lock v"::text, ',' ORDER BY id) FROM app.doc;
SELECT string_agg(v::text, ',' ORDER BY id) FROM part;
SELECT outcome, version FROM "i ""s""".idem_update('part', '{"id": 2, "region": "a"}', 21, '{"hits": 4}');
SELECT outcome, version FROM "i ""s""".idem_update('app.doc', 5, 7, '{"body": "z"}');
EOT
	return join(' ', @answers);
}
my $expected =
  'ID428 ID412 none none 40001 none ID412 none none ID412 none none '
  . '101,200,301,401,501 10,21 updated|22 stale|501';

my %dumps = (
	plain => [ '-Fp' ],
	custom => [ '-Fc' ],
	sections => [ '-Fc' ]);
foreach my $name (sort keys %dumps)
{
	my $file = "$tmp/$name.dump";

	$node->command_ok(
		[ 'pg_dump', @{ $dumps{$name} }, '-f', $file, $node->connstr('source') ],
		"$name: pg_dump");
	$node->safe_psql('postgres', "CREATE DATABASE copy_$name TEMPLATE template0");
	if ($name eq 'plain')
	{
		$node->command_ok(
			[ 'psql', '-XqAt', '-v', 'ON_ERROR_STOP=1', '-o', "$file.out", '-f', $file, $node->connstr("copy_$name") ],
			"$name: restore");
	}
	else
	{
		my @options = $name eq 'sections' ? ([ '--section=pre-data' ], [ '--section=data' ], [ '--section=post-data' ]) : ([ '-j', '2' ]);

		$node->command_ok(
			[ 'pg_restore', '-e', @$_, '-d', $node->connstr("copy_$name"), $file ],
			"$name: restore @$_")
		  foreach @options;
	}
	is( $node->safe_psql("copy_$name", $contents),
		$node->safe_psql('source', $contents),
		"$name: rows, versions and triggers are the same");
	is(behaviour("copy_$name"), $expected, "$name: and do the same");
}

# The definitions alone, then the data alone, into tables that are guarded already.
$node->safe_psql('postgres', 'CREATE DATABASE two_steps TEMPLATE template0');
foreach my $part ('--schema-only', '--data-only')
{
	my $file = "$tmp/two_steps$part.sql";

	$node->command_ok(
		[ 'pg_dump', $part, '-f', $file, $node->connstr('source') ],
		"pg_dump $part");
	$node->command_ok(
		[ 'psql', '-XqAt', '-v', 'ON_ERROR_STOP=1', '-o', "$file.out", '-f', $file, $node->connstr('two_steps') ],
		"restore $part");
}
is( $node->safe_psql('two_steps', $contents),
	$node->safe_psql('source', $contents),
	'in two steps: rows, versions and triggers are the same');
is(behaviour('two_steps'), $expected, 'in two steps: and do the same');
is(behaviour('source'), $expected, 'as the source does');

# DROP EXTENSION says what depends on it, and takes it along only when told.
is(errcode($node, 'copy_plain', 'DROP EXTENSION idem'), '2BP01', 'DROP EXTENSION is refused');
is(errcode($node, 'copy_plain', 'DROP EXTENSION idem CASCADE; UPDATE app.doc SET body = 1'),
	'none', 'with CASCADE the tables go on without a check');
is( $node->safe_psql('copy_plain', q{
CREATE EXTENSION idem SCHEMA "i ""s""";
SELECT "i ""s""".idem_attach_version('app.doc', 'lock v')}),
	't', 'and can have it again');

$node->stop;
done_testing();
