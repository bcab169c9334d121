# Catalog.pm - all that the catalogs say of extension idem in a database, as
# sorted lines without OIDs and positions, so that two databases can be compared.
# (pg_attver is a number that minor releases of PostgreSQL put there.)

package Catalog;

use strict;
use warnings;

use Exporter 'import';

our @EXPORT = qw(extension_catalog);

# What has no line of its own here is still found by the list of members and of
# what they depend on.
sub extension_catalog
{
	my ($node, $db) = @_;

	my $lines = $node->safe_psql($db, <<'EOT');
SET search_path = '';
WITH extension AS (
	SELECT * FROM pg_catalog.pg_extension WHERE extname = 'idem'),
member AS (
	SELECT d.classid, d.objid, pg_catalog.pg_describe_object(d.classid, d.objid, 0) AS name
	FROM pg_catalog.pg_depend AS d JOIN extension AS e ON d.refobjid = e.oid
	WHERE d.refclassid = 'pg_catalog.pg_extension'::pg_catalog.regclass AND d.deptype = 'e'),
relation AS (
	SELECT c.*, c.oid::pg_catalog.regclass::text AS name FROM pg_catalog.pg_class AS c
	WHERE c.oid IN (SELECT objid FROM member WHERE classid = 'pg_catalog.pg_class'::pg_catalog.regclass)
		OR c.oid IN (SELECT typrelid FROM pg_catalog.pg_type JOIN member ON objid = pg_type.oid
			WHERE classid = 'pg_catalog.pg_type'::pg_catalog.regclass)),
line (kind, name, said) AS (
	SELECT 'extension', 'idem', pg_catalog.concat_ws(' ', extversion, pg_catalog.pg_get_userbyid(extowner),
		extnamespace::pg_catalog.regnamespace, extrelocatable)
	FROM extension
	UNION ALL
	SELECT 'dump', c.oid::pg_catalog.regclass::text, e.extcondition[c.n]
	FROM extension AS e, pg_catalog.unnest(e.extconfig) WITH ORDINALITY AS c (oid, n)
	UNION ALL
	SELECT 'member', name, NULL FROM member
	UNION ALL
	SELECT 'depends', m.name, pg_catalog.concat_ws(' ', pg_catalog.pg_describe_object(d.classid, d.objid, d.objsubid),
		'on', pg_catalog.pg_describe_object(d.refclassid, d.refobjid, d.refobjsubid), d.deptype)
	FROM member AS m JOIN pg_catalog.pg_depend AS d USING (classid, objid)
	UNION ALL
	SELECT 'role', m.name, pg_catalog.concat_ws(' ', d.objsubid, d.refobjid::pg_catalog.regrole, d.deptype)
	FROM member AS m JOIN pg_catalog.pg_shdepend AS d USING (classid, objid)
	WHERE d.dbid = (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database())
	UNION ALL
	SELECT 'comment', m.name, pg_catalog.concat_ws(' ', d.objsubid, d.description)
	FROM member AS m JOIN pg_catalog.pg_description AS d ON d.classoid = m.classid AND d.objoid = m.objid
	UNION ALL
	SELECT 'first privileges', m.name, pg_catalog.concat_ws(' ', i.objsubid, a::text)
	FROM member AS m JOIN pg_catalog.pg_init_privs AS i ON i.classoid = m.classid AND i.objoid = m.objid, pg_catalog.unnest(i.initprivs) AS a
	UNION ALL
	SELECT 'schema', m.name, pg_catalog.concat_ws(' ', pg_catalog.pg_get_userbyid(n.nspowner), a.a)
	FROM member AS m JOIN pg_catalog.pg_namespace AS n ON n.oid = m.objid AND m.classid = 'pg_catalog.pg_namespace'::pg_catalog.regclass
		LEFT JOIN LATERAL pg_catalog.unnest(n.nspacl) AS a (a) ON true
	UNION ALL
	SELECT 'function', m.name, pg_catalog.pg_get_functiondef(p.oid) || ' ' || pg_catalog.pg_get_userbyid(p.proowner)
	FROM member AS m JOIN pg_catalog.pg_proc AS p ON p.oid = m.objid AND m.classid = 'pg_catalog.pg_proc'::pg_catalog.regclass
	UNION ALL
	SELECT 'function privileges', m.name, CASE WHEN p.proacl IS NULL THEN 'none' ELSE a.a::text END
	FROM member AS m JOIN pg_catalog.pg_proc AS p ON p.oid = m.objid AND m.classid = 'pg_catalog.pg_proc'::pg_catalog.regclass
		LEFT JOIN LATERAL pg_catalog.unnest(p.proacl) AS a (a) ON true
	UNION ALL
	SELECT 'type', m.name, pg_catalog.concat_ws(' ', t.typtype, t.typlen, t.typbyval, t.typcategory, t.typdelim, t.typinput,
		t.typoutput, t.typreceive, t.typsend, t.typalign, t.typstorage, t.typnotnull, t.typdefault, t.typcollation,
		pg_catalog.pg_get_userbyid(t.typowner))
	FROM member AS m JOIN pg_catalog.pg_type AS t ON t.oid = m.objid AND m.classid = 'pg_catalog.pg_type'::pg_catalog.regclass
	UNION ALL
	SELECT 'type privileges', m.name, CASE WHEN t.typacl IS NULL THEN 'none' ELSE a.a::text END
	FROM member AS m JOIN pg_catalog.pg_type AS t ON t.oid = m.objid AND m.classid = 'pg_catalog.pg_type'::pg_catalog.regclass
		LEFT JOIN LATERAL pg_catalog.unnest(t.typacl) AS a (a) ON true
	UNION ALL
	SELECT 'relation', name, pg_catalog.concat_ws(' ', relkind, relpersistence, pg_catalog.pg_get_userbyid(relowner), relreplident,
		relrowsecurity, relforcerowsecurity, relispartition, reloptions, relam,
		CASE WHEN relkind = 'v' THEN pg_catalog.pg_get_viewdef(oid) END,
		(SELECT pg_catalog.concat_ws(' ', seqtypid::pg_catalog.regtype, seqstart, seqincrement, seqmax, seqmin, seqcache, seqcycle)
			FROM pg_catalog.pg_sequence WHERE seqrelid = relation.oid))
	FROM relation
	UNION ALL
	SELECT 'relation privileges', r.name, CASE WHEN r.relacl IS NULL THEN 'none' ELSE a.a::text END
	FROM relation AS r LEFT JOIN LATERAL pg_catalog.unnest(r.relacl) AS a (a) ON true
	UNION ALL
	SELECT 'column', r.name, pg_catalog.concat_ws(' ',
		pg_catalog.row_number() OVER (PARTITION BY r.oid ORDER BY a.attnum), a.attname,
		pg_catalog.format_type(a.atttypid, a.atttypmod), a.attcollation::pg_catalog.regcollation, a.attnotnull, a.attidentity,
		a.attgenerated, a.attstorage, a.attcompression, a.attstattarget,
		(SELECT pg_catalog.string_agg(o, ' ') FROM pg_catalog.unnest(a.attoptions) AS o WHERE o NOT LIKE 'pg\_attver=%'),
		(SELECT pg_catalog.string_agg(o::text, ' ' ORDER BY o::text) FROM pg_catalog.unnest(a.attacl) AS o),
		(SELECT pg_catalog.pg_get_expr(adbin, adrelid) FROM pg_catalog.pg_attrdef WHERE adrelid = r.oid AND adnum = a.attnum),
		pg_catalog.col_description(r.oid, a.attnum))
	FROM relation AS r JOIN pg_catalog.pg_attribute AS a ON a.attrelid = r.oid AND a.attnum > 0 AND NOT a.attisdropped
	UNION ALL
	SELECT 'constraint', r.name, pg_catalog.concat_ws(' ', c.conname, pg_catalog.pg_get_constraintdef(c.oid), c.convalidated,
		c.condeferrable, c.condeferred, pg_catalog.obj_description(c.oid, 'pg_constraint'))
	FROM relation AS r JOIN pg_catalog.pg_constraint AS c ON c.conrelid = r.oid
	UNION ALL
	SELECT 'index', r.name, pg_catalog.concat_ws(' ', pg_catalog.pg_get_indexdef(i.indexrelid), i.indisvalid, i.indisprimary,
		i.indisclustered, i.indisreplident, pg_catalog.obj_description(i.indexrelid, 'pg_class'))
	FROM relation AS r JOIN pg_catalog.pg_index AS i ON i.indrelid = r.oid
	UNION ALL
	SELECT 'trigger', r.name, pg_catalog.concat_ws(' ', pg_catalog.pg_get_triggerdef(t.oid), t.tgenabled,
		pg_catalog.obj_description(t.oid, 'pg_trigger'))
	FROM relation AS r JOIN pg_catalog.pg_trigger AS t ON t.tgrelid = r.oid AND NOT t.tgisinternal
	UNION ALL
	SELECT 'rule', r.name, pg_catalog.concat_ws(' ', pg_catalog.pg_get_ruledef(w.oid), w.ev_enabled)
	FROM relation AS r JOIN pg_catalog.pg_rewrite AS w ON w.ev_class = r.oid
	UNION ALL
	SELECT 'policy', r.name, pg_catalog.concat_ws(' ', p.polname, p.polcmd, p.polpermissive, p.polroles::pg_catalog.regrole[],
		pg_catalog.pg_get_expr(p.polqual, p.polrelid), pg_catalog.pg_get_expr(p.polwithcheck, p.polrelid))
	FROM relation AS r JOIN pg_catalog.pg_policy AS p ON p.polrelid = r.oid
)
SELECT pg_catalog.concat_ws(' | ', kind, name, pg_catalog.regexp_replace(said, '\s+', ' ', 'g'))
FROM line;
EOT
	return join "\n", sort split /\n/, $lines;
}

1;
