-- The canonical form of a JSON document, and its fingerprint.

CREATE FUNCTION idem_canonical(document pg_catalog.jsonb)
	RETURNS pg_catalog.text
	LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE
	AS 'MODULE_PATHNAME', 'idem_canonical';
COMMENT ON FUNCTION idem_canonical(pg_catalog.jsonb) IS
	'the document in the canonical form of RFC 8785, except that a number which a double does not hold keeps its exact digits';

CREATE FUNCTION idem_fingerprint(document pg_catalog.jsonb)
	RETURNS pg_catalog.text
	LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE
	AS 'MODULE_PATHNAME', 'idem_fingerprint';
COMMENT ON FUNCTION idem_fingerprint(pg_catalog.jsonb) IS
	'"1." (the version of the rules), then the SHA-256 of the canonical form in UTF-8 as base64url without padding: 45 characters';
