/*
 * digest.c
 *	  SHA-256, by the library that the server was built with.
 *
 * PostgreSQL's interface to OpenSSL 3 makes a context for each digest, and has
 * the algorithm looked up among OpenSSL's providers each time, which is far
 * more work than to digest a short text.  So where the server has that library,
 * and its headers are at hand (Makefile), it is called here, with algorithm and
 * context kept for the session.  Everywhere else PostgreSQL's interface does it.
 *
 * OpenSSL itself wipes the text from the context when a digest is finished.
 */
#include "postgres.h"

#include "common/cryptohash.h"
#include "common/sha2.h"
#include "port.h"

#include "digest.h"

#ifdef IDEM_OPENSSL
#include <openssl/err.h>
#include <openssl/evp.h>
#endif

#if defined(OPENSSL_VERSION_MAJOR) && OPENSSL_VERSION_MAJOR >= 3

/*
 * SHA-256 of some bytes.
 */
void
idem_digest(const char *data, int len, uint8 *digest)
{
	static EVP_MD *algorithm = NULL;
	static EVP_MD_CTX *context = NULL;

	if (algorithm == NULL)
		algorithm = EVP_MD_fetch(NULL, "SHA256", NULL);
	if (context == NULL)
		context = EVP_MD_CTX_new();
	if (algorithm == NULL || context == NULL ||
		EVP_DigestInit_ex2(context, algorithm, NULL) <= 0 ||
		EVP_DigestUpdate(context, data, len) <= 0 ||
		EVP_DigestFinal_ex(context, digest, NULL) <= 0)
	{
		/* nobody else should come upon them */
		ERR_clear_error();
		elog(ERROR, "could not compute SHA-256");
	}
}

#else

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

#endif

/*
 * What nobody but this session knows: where something is known by a hash, nobody
 * can choose another that has the same.
 */
const char *
idem_secret(void)
{
	static char secret[IDEM_SECRET_SIZE];
	static bool is_made = false;

	if (!is_made && !pg_strong_random(secret, sizeof(secret)))
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not generate random bytes")));
	is_made = true;
	return secret;
}

/*
 * The same for a hash that takes a number.
 */
uint64
idem_secret_seed(void)
{
	uint64		seed;

	memcpy(&seed, idem_secret(), sizeof(seed));
	return seed;
}
