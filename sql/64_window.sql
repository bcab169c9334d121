-- Sliding windows: at most so many hits in any span of time.

-- Unlogged: a crash empties it, which allows at most one window's hits again.
-- The fillfactor leaves room for the version with one hit more: updates stay
-- HOT.  Times do not compress.
CREATE UNLOGGED TABLE idem.window_hit (
	scope pg_catalog.text COLLATE pg_catalog."C" NOT NULL,
	key pg_catalog.text COLLATE pg_catalog."C" NOT NULL,
	hits pg_catalog.timestamptz[] NOT NULL,
	expires_at pg_catalog.timestamptz NOT NULL,
	PRIMARY KEY (key, scope)
) WITH (fillfactor = 50);
ALTER TABLE idem.window_hit ALTER COLUMN hits SET STORAGE EXTERNAL;
ALTER TABLE idem.window_hit ALTER COLUMN key SET STORAGE PLAIN;
ALTER TABLE idem.window_hit ALTER COLUMN scope SET STORAGE PLAIN;
COMMENT ON TABLE idem.window_hit IS 'one row per key of idem_window(); a crash empties it; written by idem_window() only';
COMMENT ON COLUMN idem.window_hit.hits IS 'times of the hits that may still count, oldest first';
COMMENT ON COLUMN idem.window_hit.expires_at IS 'when every hit has left the window that it was made in; then the row may be swept';

CREATE TYPE idem_windowed AS (
	allowed pg_catalog.bool,
	count pg_catalog.int4,
	retry_after pg_catalog.int4
);
COMMENT ON TYPE idem_windowed IS 'verdict of idem_window()';

CREATE FUNCTION idem_window(
	key pg_catalog.text,
	span pg_catalog.interval,
	scope pg_catalog.text DEFAULT NULL,
	max pg_catalog.int4 DEFAULT 1,
	wait pg_catalog.interval DEFAULT NULL
) RETURNS idem_windowed
	AS 'MODULE_PATHNAME', 'idem_window_1_1' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_window(pg_catalog.text, pg_catalog.interval, pg_catalog.text, pg_catalog.int4, pg_catalog.interval) IS
'Makes a hit on a key, if in the span of time up to now there were fewer than max. Returns allowed; count: hits in the span, this one included, NULL if not known; retry_after: not allowed, whole seconds until there is room. key: 1 to 1024 bytes. span: greater than zero. scope: as idem_claim(). max: 1 to 10000. wait: how long to sleep behind a hit of the key that is not committed, NULL until it is, ''0 s'' not at all; when it runs out: not allowed, count NULL, retry_after 1. Never waits for room. A hit that is rolled back does not count; a crash of the server empties all windows. Errors: ID400 bad argument, ID500 undeclared scope, 42501 scope not allowed, 25006 read-only.';
