-- One line for each thing that must not be; none is right.
SET enable_nestloop = off;
WITH step AS (
	SELECT row_key, seq, from_state, to_state,
		lag(to_state) OVER (PARTITION BY row_key ORDER BY seq) AS before,
		lead(seq) OVER (PARTITION BY row_key ORDER BY seq) IS NULL AS last
	FROM idem.history WHERE from_state IS NOT NULL AND machine = 'order'
), done AS (
	SELECT key, count(*) AS n FROM effect GROUP BY key
)
SELECT 'key and effect differ', key, coalesce(state, 'no key'), n::text
FROM (SELECT * FROM done WHERE key ~ '^[toc][0-9]') AS e FULL JOIN idem.key USING (key)
WHERE (key ~ '^[toc][0-9]' AND (n IS DISTINCT FROM 1 OR state IS DISTINCT FROM 'completed'))
UNION ALL
SELECT 'response of another key', key, response, NULL
FROM idem.key WHERE key ~ '^t[0-9]' AND state = 'completed' AND response <> 'r' || key
UNION ALL
SELECT 'work done more than once', key, n::text, NULL
FROM done WHERE key !~ '^page' AND n > 1
UNION ALL
SELECT 'confirmed or cancelled without its try', key, NULL, NULL
FROM done AS d WHERE key ~ '^(confirm|cancel)' AND
	NOT EXISTS (SELECT FROM done WHERE key = regexp_replace(d.key, '^[a-z]+', 'try'))
UNION ALL
SELECT 'both confirmed and cancelled', c.key, NULL, NULL
FROM done AS c JOIN done AS x ON x.key = replace(c.key, 'confirm', 'cancel')
WHERE c.key ~ '^confirm'
UNION ALL
SELECT 'version and writes differ', id::text, version::text, n::text
FROM page LEFT JOIN done ON key = 'page' || id
WHERE version <> coalesce(n, 0) + 1
UNION ALL
SELECT 'step that the machine does not have', row_key::text, from_state, to_state
FROM step WHERE (from_state, to_state) NOT IN (SELECT from_state, to_state FROM idem.transition WHERE machine = 'order')
UNION ALL
SELECT 'history with a gap', row_key::text, before, from_state
FROM step WHERE before <> from_state
UNION ALL
SELECT 'row is not where its history says', id::text, state, to_state
FROM orders JOIN step ON (row_key->>'id')::int = id AND last WHERE state <> to_state
UNION ALL
SELECT 'fence given out twice', min(name), fence::text, count(*)::text
FROM fence GROUP BY fence HAVING count(*) > 1
UNION ALL
SELECT 'fence went back', name, before::text, fence::text
FROM (SELECT name, fence, lag(fence) OVER (PARTITION BY name ORDER BY n) AS before FROM fence) AS f
WHERE fence <= before;
