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
BEGIN
	IF target OPERATOR(pg_catalog.=) pg_catalog.pg_my_temp_schema() THEN
		RAISE EXCEPTION 'extension "idem" cannot be installed into a temporary schema'
			USING ERRCODE = 'invalid_schema_name';
	END IF;
	IF EXISTS (SELECT FROM pg_catalog.pg_proc
			WHERE pronamespace OPERATOR(pg_catalog.=) target
			AND proname OPERATOR(pg_catalog.~~) 'idem\_%')
		OR EXISTS (SELECT FROM pg_catalog.pg_type
			WHERE typnamespace OPERATOR(pg_catalog.=) target
			AND typname OPERATOR(pg_catalog.~~) 'idem\_%')
	THEN
		RAISE EXCEPTION 'schema "%" already holds a function or type named "idem_*"',
			pg_catalog.current_schema()
			USING ERRCODE = 'duplicate_object',
			HINT = 'Remove it, or choose another schema with CREATE EXTENSION idem SCHEMA name.';
	END IF;
END
$$;

CREATE SCHEMA idem;
COMMENT ON SCHEMA idem IS 'tables and views of extension idem';
