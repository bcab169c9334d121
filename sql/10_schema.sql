-- The fixed schema, and a refusal to be installed among look-alikes.
--
-- The target schema is whatever CREATE EXTENSION puts first in search_path; its
-- name is never spliced into text, so that it may be called anything.  Every
-- name and operator below is qualified, since that schema may hold others'
-- objects.

\echo Use "CREATE EXTENSION idem" to load this file. \quit

DO $$
DECLARE
	target pg_catalog.oid := (SELECT oid FROM pg_catalog.pg_namespace
		WHERE nspname OPERATOR(pg_catalog.=) pg_catalog.current_schema());
	clash pg_catalog.name;
BEGIN
	IF target OPERATOR(pg_catalog.=) pg_catalog.pg_my_temp_schema() THEN
		RAISE EXCEPTION 'extension "idem" cannot be installed into a temporary schema'
			USING ERRCODE = 'invalid_schema_name';
	END IF;
	SELECT name INTO clash FROM (
		SELECT proname FROM pg_catalog.pg_proc
		WHERE pronamespace OPERATOR(pg_catalog.=) target
		UNION ALL
		SELECT typname FROM pg_catalog.pg_type
		WHERE typnamespace OPERATOR(pg_catalog.=) target
	) AS objects (name)
	WHERE name OPERATOR(pg_catalog.~~) 'idem\_%' LIMIT 1;
	IF clash IS NOT NULL THEN
		RAISE EXCEPTION 'schema "%" already holds a function or type named "%"',
			pg_catalog.current_schema(), clash
			USING ERRCODE = 'duplicate_object',
			DETAIL = 'Names that begin with "idem_" belong to the extension.',
			HINT = 'Remove it, or choose another schema with CREATE EXTENSION idem SCHEMA name.';
	END IF;
END
$$;

CREATE SCHEMA idem;
COMMENT ON SCHEMA idem IS 'tables and views of extension idem';

-- The library's version beside that of the objects.  A server that preloaded
-- the library of a former version has no such function in it.
DO $$
BEGIN
	CREATE FUNCTION idem_version()
		RETURNS pg_catalog.text
		LANGUAGE C STABLE STRICT PARALLEL SAFE
		AS 'MODULE_PATHNAME', 'idem_version';
EXCEPTION WHEN undefined_function THEN
	RAISE EXCEPTION 'the library of extension "idem" that is loaded is older than version 1.1.0'
		USING ERRCODE = 'ID500',
		DETAIL = 'The objects of version 1.1.0 need a library of the same version.',
		HINT = 'Connect again to load the library that is installed; restart the server if "idem" is preloaded; install version 1.1.0 if it is not on this server.';
END
$$;
COMMENT ON FUNCTION idem_version() IS
'The version of the library that this session has loaded.';

CREATE VIEW idem.version AS
	SELECT idem_version() AS library, e.extversion AS objects
	FROM pg_catalog.pg_extension AS e
	WHERE e.extname OPERATOR(pg_catalog.=) 'idem';
COMMENT ON VIEW idem.version IS
'The versions of the library and of the objects in this database. Where they differ, every verb and trigger is refused.';
