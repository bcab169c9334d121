/*
 * digest.c
 *	  SHA-256, by PostgreSQL's own.
 */
#include "postgres.h"

#include "common/cryptohash.h"
#include "common/sha2.h"

#include "digest.h"

/*
 * SHA-256 of some bytes.
 */
void
idem_digest(const char *data, int len, uint8 *digest)
{
	/* should we fail, the resource owner frees the context */
	pg_cryptohash_ctx *ctx = pg_cryptohash_create(PG_SHA256);

	if (pg_cryptohash_init(ctx) < 0 ||
		pg_cryptohash_update(ctx, (const uint8 *) data, len) < 0 ||
		pg_cryptohash_final(ctx, digest, PG_SHA256_DIGEST_LENGTH) < 0)
		elog(ERROR, "could not compute SHA-256: %s",
			 pg_cryptohash_error(ctx));
	pg_cryptohash_free(ctx);
}
