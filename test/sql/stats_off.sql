-- Without preload statistics say so in one row, and the settings that belong
-- to preload are there and mean nothing.  A preloaded server passes this too.

SELECT current_setting('shared_preload_libraries') ~ '\midem\M' AS preloaded,
	'nothing is counted: put idem into shared_preload_libraries and restart the server' AS told \gset
SELECT count(*) = (NOT :'preloaded')::int AS stats FROM idem_stats()
WHERE kind = 'not preloaded' AND name = :'told' AND claims IS NULL AND since IS NULL;
SELECT count(*) = (NOT :'preloaded')::int AS refusals FROM idem_refusals()
WHERE verdict = 'not preloaded' AND table_name = :'told' AND at IS NULL;
SELECT idem_stats_reset() = :'preloaded' AS reset;
SELECT count(*) FROM idem_sweep_progress();
SELECT name, context = CASE WHEN :'preloaded' AND name <> 'idem.databases' THEN 'postmaster' ELSE 'sighup' END AS context
FROM pg_settings
WHERE name IN ('idem.stats_max', 'idem.refusals_max', 'idem.databases') ORDER BY name;

-- for operators only
CREATE ROLE regress_idem_stats_app;
CREATE ROLE regress_idem_stats_ops;
SELECT idem_grant('regress_idem_stats_app');
SELECT idem_grant('regress_idem_stats_ops', 'operator');
\set VERBOSITY sqlstate
SET ROLE regress_idem_stats_app;
SELECT count(*) FROM idem_stats();
SELECT count(*) FROM idem_refusals();
SELECT idem_stats_reset();
SELECT count(*) FROM idem_sweep_progress();
SET ROLE regress_idem_stats_ops;
SELECT count(*) >= (NOT :'preloaded')::int AS stats FROM idem_stats();
SELECT count(*) >= (NOT :'preloaded')::int AS refusals FROM idem_refusals();
SELECT idem_stats_reset() = :'preloaded' AS reset;
SELECT count(*) FROM idem_sweep_progress();
RESET ROLE;
SELECT idem_revoke(r) FROM unnest('{regress_idem_stats_app,regress_idem_stats_ops}'::name[]) AS r;
DROP OWNED BY regress_idem_stats_app, regress_idem_stats_ops;
DROP ROLE regress_idem_stats_app, regress_idem_stats_ops;
