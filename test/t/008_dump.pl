# pg_dump and restore: every row and every scope comes back byte for byte,
# grants too, fences stay above every earlier one, nothing fires; for a
# superuser and for a database owner who is none.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use IdemTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = idem_node('dump');
my $superuser = getpwuid($>);

$node->safe_psql('postgres', <<'EOT');
CREATE ROLE regress_idem_owner LOGIN;
CREATE ROLE regress_idem_app LOGIN;
EOT

my $fill = <<'EOT';
GRANT USAGE ON SCHEMA SCHEMA TO regress_idem_app;
SELECT SCHEMA.idem_grant('regress_idem_app');
INSERT INTO idem.scope (name, hold, lease, ttl, max_response, max_attempts, roles, keep_failures)
VALUES ('pay', 'lease', '5 min', '30 days', 1000, 3, '{regress_idem_app,regress_idem_owner}', '1 day');
INSERT INTO idem.scope (name, no_expiry) VALUES ('for ever', true);
INSERT INTO idem.scope (name, ttl) VALUES ('default', '2 h')
ON CONFLICT (name) DO UPDATE SET ttl = '2 h';
SET search_path = SCHEMA, public;
BEGIN;
SELECT run FROM idem_claim('done', '{"a":1}');
SELECT idem_complete('done', E'tab\t newline\n back\\slash "quote" \u00fc \U0001F600 \\N'::text, code => 201);
SELECT run FROM idem_claim('null');
SELECT idem_complete('null');
SELECT run FROM idem_claim('empty');
SELECT idem_complete('empty', ''::text);
SELECT run FROM idem_claim(E'k\t\\N\n', scope => 'pay/ten''ant', hold => 'transaction');
SELECT idem_fail(E'k\t\\N\n', 'no funds', 'pay/ten''ant', code => 402);
SELECT run FROM idem_claim('retry');
SELECT idem_retry('retry', 'busy', after => '1 h');
SELECT idem_once('for ever', 'for ever');
SELECT count(*) FROM idem_once_many(ARRAY['b', 'a']);
COMMIT;
SELECT fence FROM idem_claim('leased', lease => '2 h') \gset
SELECT idem_step('leased', 'half', '{"n": 1e2}', fence => :fence);
SELECT run FROM idem_claim('session', hold => 'session');
SELECT run FROM idem_claim('run out', lease => '1 ms');
EOT

my $contents = <<'EOT';
SELECT 'key', k::text FROM idem.key AS k
UNION ALL SELECT 'scope', s::text FROM idem.scope AS s
UNION ALL SELECT 'acl', p.oid::regprocedure || ' ' || (SELECT string_agg(a::text, ',' ORDER BY a::text) FROM unnest(p.proacl) AS a)
	FROM pg_proc AS p WHERE proname LIKE 'idem\_%'
UNION ALL SELECT 'owner', c.relname || ' ' || pg_get_userbyid(c.relowner)
	FROM pg_class AS c WHERE relnamespace = 'idem'::regnamespace
ORDER BY 1, 2;
EOT

sub dump_restore
{
	my ($name, $role, $schema, $target) = @_;
	my $file = "$PostgreSQL::Test::Utils::tmp_check/$name.sql";

	$node->command_ok(
		[ 'pg_dump', '-Fp', '-U', $role, '-f', $file, $node->connstr($name) ],
		"$name: pg_dump");
	$node->safe_psql('postgres',
		"CREATE DATABASE $target OWNER $role TEMPLATE template0");
	$node->command_ok(
		[
			'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-U', $role,
			'-o', "$file.out", '-f', $file, $node->connstr($target)
		],
		"$name: restore without an error");
	is( run_as($node, $role, $target, $contents),
		run_as($node, $role, $name, $contents),
		"$name: rows, scopes, owners and grants are the same");
	return;
}

my $n = 0;
foreach my $access (accesses())
{
	foreach my $case (
		[ $superuser, 'public' ],
		[ 'regress_idem_owner', 'public' ],
		[ 'regress_idem_owner', 'we"ird' ])
	{
		my ($role, $schema) = @$case;
		my $db = "source" . ++$n;
		my $q = '"' . ($schema =~ s/"/""/gr) . '"';

		$node->safe_psql('postgres', qq{
CREATE DATABASE $db OWNER $role TEMPLATE template0;
ALTER DATABASE $db SET idem.access = '$access'});
		run_as($node, $role, $db,
			($schema eq 'public' ? '' : "CREATE SCHEMA $q;\n")
			. "CREATE EXTENSION idem SCHEMA $q;\n"
			. ($fill =~ s/(?<!ON )SCHEMA/$q/gr));
		my $highest =
		  run_as($node, $role, $db, 'SELECT max(fence) FROM idem.key');
		dump_restore($db, $role, $schema, "copy$n");

		is( run_as($node, $role, "copy$n", qq{
SET search_path = $q, public;
SELECT outcome, response = E'tab\\t newline\\n back\\\\slash "quote" \\u00fc \\U0001F600 \\\\N', code FROM idem_claim('done', '{"a":1}');
SELECT outcome FROM idem_claim('done', '{"a":2}');
SELECT outcome, response IS NULL FROM idem_claim('null');
SELECT outcome, response = '' FROM idem_claim('empty');
SELECT outcome, response FROM idem_claim(E'k\\t\\\\N\\n', scope => 'pay/ten''ant');
SELECT outcome FROM idem_claim('retry');
SELECT outcome FROM idem_claim('leased');
SELECT outcome FROM idem_claim('session', hold => 'session');
SELECT idem_once('for ever', 'for ever');
SELECT outcome, fence > $highest FROM idem_claim('new', lease => '1 h');
SELECT outcome, fence > $highest FROM idem_claim('run out', lease => '1 h');
}),
			join("\n",
				'completed|t|201', 'mismatch', 'completed|t', 'completed|t',
				'failed|no funds', 'in_progress', 'in_progress', 'takeover',
				'f', 'claimed|t', 'takeover|t'),
			"$role, $schema, $access: the copy answers as the source did");
		is( run_as($node, 'regress_idem_app', "copy$n",
				"SELECT outcome FROM $q.idem_claim('by app', scope => 'pay')"),
			'claimed',
			"$role, $schema, $access: a granted role works in the copy");
		is( run_as($node, $role, "copy$n",
				"SELECT count(*) FROM pg_trigger WHERE tgrelid = 'idem.key'::regclass"
			),
			'0',
			"$role, $schema, $access: nothing could fire");
	}
}

# A restore from the past: the sequence is advanced by hand.
my $before = $node->safe_psql('copy1', 'SELECT last_value FROM idem.fence');
my $target = $before + 1000000;
$node->safe_psql('copy1', "SELECT idem_fence_advance($target)");
cmp_ok(
	$node->safe_psql('copy1',
		q{SELECT fence FROM idem_claim('advanced', lease => '1 h')}),
	'>', $target, 'fences after idem_fence_advance are above its argument');
$node->safe_psql('copy1', 'SELECT idem_fence_advance(5)');
cmp_ok(
	$node->safe_psql('copy1',
		q{SELECT fence FROM idem_claim('not back', lease => '1 h')}),
	'>', $target, 'and do not go back');

# Schema only, and data only into an installed copy.
$node->safe_psql('postgres', 'CREATE DATABASE bare TEMPLATE template0');
$node->safe_psql('bare', 'CREATE EXTENSION idem');
my $data = "$PostgreSQL::Test::Utils::tmp_check/data.sql";
$node->command_ok(
	[
		'pg_dump', '-a', '-t', 'idem.key', '-f', $data,
		$node->connstr('source1')
	],
	'data-only dump of the table');
$node->command_ok(
	[
		'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-o', "$data.out", '-f',
		$data, $node->connstr('bare')
	],
	'restored into a fresh installation');
is( $node->safe_psql('bare', 'SELECT k FROM idem.key AS k ORDER BY 1'),
	$node->safe_psql('source1', 'SELECT k FROM idem.key AS k ORDER BY 1'),
	'data-only restore keeps every row');

$node->stop;
done_testing();
