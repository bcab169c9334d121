-- What was counted since the server started, where idem is preloaded.

CREATE FUNCTION idem_stats(
	OUT kind pg_catalog.text,
	OUT name pg_catalog.text,
	OUT claims pg_catalog.int8,
	OUT replays pg_catalog.int8,
	OUT failures pg_catalog.int8,
	OUT in_progress pg_catalog.int8,
	OUT mismatches pg_catalog.int8,
	OUT takeovers pg_catalog.int8,
	OUT waits pg_catalog.int8,
	OUT wait_time pg_catalog.float8,
	OUT moves pg_catalog.int8,
	OUT illegal pg_catalog.int8,
	OUT forbidden pg_catalog.int8,
	OUT guarded pg_catalog.int8,
	OUT stale pg_catalog.int8,
	OUT frozen pg_catalog.int8,
	OUT refused pg_catalog.int8,
	OUT observed pg_catalog.int8,
	OUT runs pg_catalog.int8,
	OUT removed pg_catalog.int8,
	OUT lag pg_catalog.float8,
	OUT since pg_catalog.timestamptz
) RETURNS SETOF pg_catalog.record
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL SAFE;
COMMENT ON FUNCTION idem_stats() IS
'For operators: what was counted in this database since the server started or idem_stats_reset() was called, also in transactions that rolled back. One row per kind and name: scope (without tenants), machine, version, token, lease, window, branch, sweep (one per kind of record), tick, and others (what found no room, see idem.stats_max). A counter that a kind does not have is NULL. wait_time and lag: seconds. lag of a sweep: no expired record of that kind is older; of a tick: how late its oldest timer was. Where idem is not in shared_preload_libraries: one row of kind "not preloaded".';

CREATE FUNCTION idem_stats_reset() RETURNS pg_catalog.bool
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_stats_reset() IS
'For operators: forgets what idem_stats() and idem_refusals() show of this database. Returns true, or false where idem is not preloaded.';

CREATE FUNCTION idem_refusals(
	OUT at pg_catalog.timestamptz,
	OUT role_name pg_catalog.text,
	OUT verdict pg_catalog.text,
	OUT observed pg_catalog.bool,
	OUT table_name pg_catalog.text,
	OUT machine pg_catalog.text,
	OUT scope pg_catalog.text,
	OUT from_state pg_catalog.text,
	OUT to_state pg_catalog.text,
	OUT event pg_catalog.text,
	OUT code pg_catalog.text
) RETURNS SETOF pg_catalog.record
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL SAFE;
COMMENT ON FUNCTION idem_refusals() IS
'For operators: the latest refusals in this database, newest first, at most idem.refusals_max over all databases. verdict: illegal, forbidden, guarded, stale, frozen or refused; observed: only watched, the write passed. code: the SQLSTATE that it was, or with a verdict in its place would have been. Where idem is not in shared_preload_libraries: one row with verdict "not preloaded".';

CREATE FUNCTION idem_sweep_progress(
	OUT kind pg_catalog.text,
	OUT pid pg_catalog.int4,
	OUT started_at pg_catalog.timestamptz,
	OUT blocks pg_catalog.int8,
	OUT blocks_done pg_catalog.int8,
	OUT removed pg_catalog.int8
) RETURNS SETOF pg_catalog.record
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL SAFE;
COMMENT ON FUNCTION idem_sweep_progress() IS
'For operators: the sweeps that run in this database now, one row per kind of record that is at its turn: by whom, since when, of how many blocks how many are done, and how many records were removed. Empty where idem is not in shared_preload_libraries.';
