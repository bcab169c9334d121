-- Without preload statistics say so in one row, and the settings that belong
-- to preload are there and mean nothing.

SELECT kind, name, claims, since FROM idem_stats();
SELECT verdict, table_name, at FROM idem_refusals();
SELECT idem_stats_reset();
SELECT count(*) FROM idem_sweep_progress();
SELECT name, context FROM pg_settings
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
SELECT count(*) FROM idem_stats();
SELECT count(*) FROM idem_refusals();
SELECT idem_stats_reset();
SELECT count(*) FROM idem_sweep_progress();
RESET ROLE;
SELECT idem_revoke(r) FROM unnest('{regress_idem_stats_app,regress_idem_stats_ops}'::name[]) AS r;
DROP OWNED BY regress_idem_stats_app, regress_idem_stats_ops;
DROP ROLE regress_idem_stats_app, regress_idem_stats_ops;
