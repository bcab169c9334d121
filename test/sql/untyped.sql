-- What drivers send: parameters of unknown type, text for everything, other
-- integer and string types.

\set VERBOSITY sqlstate
\pset null '(null)'

-- types left open resolve to the declared ones; a response of unknown type is text
PREPARE claim AS SELECT outcome, attempt, fence IS NOT NULL AS fenced FROM idem_claim($1, $2, $3, $4, $5, $6, $7);
PREPARE complete AS SELECT idem_complete($1, $2, $3, $4, $5);
PREPARE complete2 AS SELECT idem_complete($1, $2);
PREPARE complete_json AS SELECT idem_complete($1, $2::json);
PREPARE complete_jsonb AS SELECT idem_complete($1, $2::jsonb);
PREPARE fail AS SELECT idem_fail($1, $2, $3, $4, $5);
PREPARE retry AS SELECT idem_retry($1, $2, $3, $4, $5);
PREPARE release AS SELECT idem_release($1, $2, $3);
PREPARE renew AS SELECT idem_renew($1, $2, $3, $4) > clock_timestamp() AS renewed;
PREPARE step AS SELECT idem_step($1, $2, $3, $4, $5);
PREPARE lookup AS SELECT outcome, response FROM idem_lookup($1, $2);
PREPARE once AS SELECT idem_once($1, $2, $3);
PREPARE once_many AS SELECT * FROM idem_once_many($1, $2, $3);
PREPARE forget AS SELECT idem_forget($1, $2, $3);
PREPARE reopen AS SELECT idem_reopen($1, $2);
PREPARE import AS SELECT idem_import($1, $2, $3, $4, $5);
PREPARE import_many AS SELECT idem_import_many($1, $2, $3, $4, $5);
PREPARE advance AS SELECT idem_fence_advance($1) > 0 AS advanced;
PREPARE sweep AS SELECT kind FROM idem_sweep($1, $2) WHERE kind = 'key';
PREPARE grants AS SELECT idem_grant($1, $2);
SELECT name, array_agg(typname ORDER BY n) AS types
FROM pg_prepared_statements, unnest(parameter_types::oid[]) WITH ORDINALITY AS p (oid, n) JOIN pg_type AS t USING (oid)
GROUP BY name ORDER BY name;

-- all of them with text, as the driver sends it
BEGIN;
EXECUTE claim ('k', '{"a": [1, 2]}', 'regress_s', 'transaction', NULL, '2 hours', '0');
EXECUTE step ('k', 'one', '{"n": 1}', 'regress_s', NULL);
EXECUTE retry ('k', 'e', 'regress_s', NULL, '0 s');
EXECUTE claim ('k', '{"a": [1.0, 2]}', 'regress_s', NULL, NULL, NULL, NULL);
EXECUTE release ('k', 'regress_s', NULL);
EXECUTE claim ('k', '{"a": [1, 2e0]}', 'regress_s', NULL, NULL, NULL, NULL);
EXECUTE complete ('k', '{"r": 1}', 'regress_s', NULL, '200');
COMMIT;
EXECUTE lookup ('k', 'regress_s');
EXECUTE claim ('l', NULL, NULL, NULL, '90', NULL, NULL);
SELECT fence FROM idem.key WHERE key = 'l' \gset
EXECUTE renew ('l', '1:30:00', NULL, :'fence');
EXECUTE fail ('l', 'no', NULL, :'fence', '500');
EXECUTE reopen ('l', NULL);
EXECUTE claim ('l', NULL, NULL, NULL, 'PT90S', NULL, NULL);
SELECT extract(epoch FROM lease_until - claimed_at)::int AS seconds FROM idem.key WHERE key = 'l';
BEGIN;
EXECUTE claim ('j', NULL, NULL, NULL, NULL, NULL, NULL);
EXECUTE complete_json ('j', '{"b":1 ,"a":2}');
EXECUTE claim ('jb', NULL, NULL, NULL, NULL, NULL, NULL);
EXECUTE complete_jsonb ('jb', '{"b":1 ,"a":2}');
EXECUTE claim ('t', NULL, NULL, NULL, NULL, NULL, NULL);
EXECUTE complete2 ('t', '{"b":1 ,"a":2}');
COMMIT;
EXECUTE lookup ('j', NULL);
EXECUTE lookup ('jb', NULL);
EXECUTE lookup ('t', NULL);
EXECUTE once ('o', 'regress_s', '1 day');
EXECUTE once ('o', 'regress_s', NULL);
EXECUTE once_many ('{a,b,"c d"}', NULL, NULL);
EXECUTE once_many (ARRAY['b', 'e'], NULL, '1 h');
EXECUTE import ('i', 'x', NULL, '2024-01-31 12:00+00', '900 years');
EXECUTE import_many ('{i,i2}', '{x,y}', NULL, NULL, NULL);
EXECUTE forget ('i', NULL, 'true');
EXECUTE advance ('1');
EXECUTE sweep ('10', '1 min');
DEALLOCATE ALL;

-- malformed text is PostgreSQL's own error, and claims nothing
SELECT idem_claim('bad', '{"a"');
SELECT idem_claim('bad', lease => 'soon');
SELECT idem_claim('bad', ttl => '');
SELECT idem_once_many('a,b');
SELECT idem_complete('bad', fence => 'x');
SELECT idem_import('bad', created_at => 'yesterdayish');
SELECT count(*) FROM idem.key WHERE key = 'bad';

-- declared types of the driver: varchar, char, name, smallint, int
BEGIN;
PREPARE declared (varchar, varchar) AS SELECT outcome FROM idem_claim($1, scope => $2);
EXECUTE declared ('v', 'regress_s');
PREPARE declared2 (varchar, varchar, varchar) AS SELECT idem_complete($1, $2, $3);
EXECUTE declared2 ('v', 'r', 'regress_s');
SELECT outcome FROM idem_claim('pad'::char(10));
SELECT outcome FROM idem_claim('pad'::name);
SELECT outcome FROM idem_claim('pad'::varchar);
SELECT idem_complete('pad', code => 200::smallint);
SELECT * FROM idem_once_many('{x,y}'::varchar[]);
ROLLBACK;
DEALLOCATE ALL;
SELECT fence FROM idem_claim('f', lease => '1 h') \gset
SELECT idem_step('f', 's', fence => (:fence)::int);
SELECT idem_step('f', 's', fence => (:fence)::numeric);
-- a text where jsonb, an integer where interval is declared need a cast
PREPARE wrong (text) AS SELECT idem_claim('w', $1);
PREPARE wrong (text) AS SELECT idem_claim('w', lease => $1);
PREPARE wrong (int) AS SELECT idem_claim('w', lease => $1);
PREPARE wrong (uuid) AS SELECT idem_claim($1);
PREPARE casted (text, text, uuid) AS SELECT outcome FROM idem_claim($3::text, $1::jsonb, lease => $2::interval);
EXECUTE casted ('{}', '60', '0191f7a8-0000-7000-8000-000000000001');
EXECUTE casted ('{ }', '60', '0191F7A8-0000-7000-8000-000000000001');
DEALLOCATE ALL;

-- positional, named and mixed arguments
BEGIN;
SELECT outcome FROM idem_claim(key => 'n', wait => '0 s', request => '{"a": 1}');
SELECT outcome FROM idem_claim('n', '{"a": 1}', wait => '0 s');
SELECT outcome FROM idem_claim(wait => '0 s', key => 'n', request => '{"a": 2}');
SELECT idem_complete(code => 200, key => 'n', response => 'named'::text);
SELECT outcome, response FROM idem_lookup(scope => NULL, key => 'n');
ROLLBACK;

-- results: every column has a type that drivers know
SELECT attname, typname FROM pg_attribute JOIN pg_type AS t ON t.oid = atttypid WHERE attrelid = 'idem_claimed'::regclass ORDER BY attnum;
-- ... neither void nor interval
SELECT DISTINCT typname FROM pg_depend AS d JOIN pg_proc AS p ON p.oid = objid, unnest(p.prorettype || p.proallargtypes) AS o JOIN pg_type AS t ON t.oid = o
WHERE classid = 'pg_proc'::regclass AND refclassid = 'pg_extension'::regclass AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'idem') AND proname <> 'idem_sweep' AND typname IN ('void', 'interval');

DELETE FROM idem.key;
