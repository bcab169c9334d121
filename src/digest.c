/*
 * digest.c
 *	  SHA-256.
 *
 * PostgreSQL's own goes through the cryptographic library, which for a short
 * message takes four times as long to set up as to compute.  Requests, keys and
 * tokens are short; so what fits into a few blocks is computed here, as FIPS
 * 180-4 has it, and what is longer there, where the processor's instructions
 * for it are known.
 */
#include "postgres.h"

#include "common/cryptohash.h"
#include "common/sha2.h"
#include "port/pg_bitutils.h"
#include "port/pg_bswap.h"

#include "digest.h"

#define BLOCK_SIZE	64

/* what padding adds at least: a byte, and the length in bits */
#define PADDING		9

/* from here on the library is faster */
#define SHORT		(3 * BLOCK_SIZE - PADDING)

static const uint32 round_constants[64] = {
	0x428A2F98, 0x71374491, 0xB5C0FBCF, 0xE9B5DBA5,
	0x3956C25B, 0x59F111F1, 0x923F82A4, 0xAB1C5ED5,
	0xD807AA98, 0x12835B01, 0x243185BE, 0x550C7DC3,
	0x72BE5D74, 0x80DEB1FE, 0x9BDC06A7, 0xC19BF174,
	0xE49B69C1, 0xEFBE4786, 0x0FC19DC6, 0x240CA1CC,
	0x2DE92C6F, 0x4A7484AA, 0x5CB0A9DC, 0x76F988DA,
	0x983E5152, 0xA831C66D, 0xB00327C8, 0xBF597FC7,
	0xC6E00BF3, 0xD5A79147, 0x06CA6351, 0x14292967,
	0x27B70A85, 0x2E1B2138, 0x4D2C6DFC, 0x53380D13,
	0x650A7354, 0x766A0ABB, 0x81C2C92E, 0x92722C85,
	0xA2BFE8A1, 0xA81A664B, 0xC24B8B70, 0xC76C51A3,
	0xD192E819, 0xD6990624, 0xF40E3585, 0x106AA070,
	0x19A4C116, 0x1E376C08, 0x2748774C, 0x34B0BCB5,
	0x391C0CB3, 0x4ED8AA4A, 0x5B9CCA4F, 0x682E6FF3,
	0x748F82EE, 0x78A5636F, 0x84C87814, 0x8CC70208,
	0x90BEFFFA, 0xA4506CEB, 0xBEF9A3F7, 0xC67178F2
};

/*
 * One round; the next one has its variables one place further.
 */
#define DIGEST_ROUND(a, b, c, d, e, f, g, h, i) \
	do { \
		uint32		t = (h) + \
			(pg_rotate_right32((e), 6) ^ pg_rotate_right32((e), 11) ^ \
			 pg_rotate_right32((e), 25)) + \
			((g) ^ ((e) & ((f) ^ (g)))) + round_constants[i] + w[i]; \
		(d) += t; \
		(h) = t + \
			(pg_rotate_right32((a), 2) ^ pg_rotate_right32((a), 13) ^ \
			 pg_rotate_right32((a), 22)) + \
			(((a) & (b)) ^ ((c) & ((a) ^ (b)))); \
	} while (0)

static void
digest_block(uint32 *state, const uint8 *block)
{
	uint32		w[64];
	uint32		a = state[0];
	uint32		b = state[1];
	uint32		c = state[2];
	uint32		d = state[3];
	uint32		e = state[4];
	uint32		f = state[5];
	uint32		g = state[6];
	uint32		h = state[7];

	memcpy(w, block, BLOCK_SIZE);
	for (int i = 0; i < 16; i++)
		w[i] = pg_ntoh32(w[i]);
	for (int i = 16; i < 64; i++)
	{
		uint32		x = w[i - 15];
		uint32		y = w[i - 2];

		w[i] = w[i - 16] + w[i - 7] +
			(pg_rotate_right32(x, 7) ^ pg_rotate_right32(x, 18) ^ (x >> 3)) +
			(pg_rotate_right32(y, 17) ^ pg_rotate_right32(y, 19) ^ (y >> 10));
	}
	for (int i = 0; i < 64; i += 8)
	{
		DIGEST_ROUND(a, b, c, d, e, f, g, h, i);
		DIGEST_ROUND(h, a, b, c, d, e, f, g, i + 1);
		DIGEST_ROUND(g, h, a, b, c, d, e, f, i + 2);
		DIGEST_ROUND(f, g, h, a, b, c, d, e, i + 3);
		DIGEST_ROUND(e, f, g, h, a, b, c, d, i + 4);
		DIGEST_ROUND(d, e, f, g, h, a, b, c, i + 5);
		DIGEST_ROUND(c, d, e, f, g, h, a, b, i + 6);
		DIGEST_ROUND(b, c, d, e, f, g, h, a, i + 7);
	}
	state[0] += a;
	state[1] += b;
	state[2] += c;
	state[3] += d;
	state[4] += e;
	state[5] += f;
	state[6] += g;
	state[7] += h;
}

static void
digest_short(const char *data, int len, uint8 *digest)
{
	uint32		state[8] = {
		0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A,
		0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19
	};
	uint8		padded[SHORT + PADDING] = {0};
	int			size = (len + PADDING + BLOCK_SIZE - 1) / BLOCK_SIZE * BLOCK_SIZE;
	uint32		bits = pg_hton32(len * 8);

	memcpy(padded, data, len);
	padded[len] = 0x80;
	memcpy(padded + size - sizeof(bits), &bits, sizeof(bits));
	for (int at = 0; at < size; at += BLOCK_SIZE)
		digest_block(state, padded + at);
	for (int i = 0; i < lengthof(state); i++)
		state[i] = pg_hton32(state[i]);
	memcpy(digest, state, sizeof(state));
}

/*
 * SHA-256 of some bytes.
 */
void
idem_digest(const char *data, int len, uint8 *digest)
{
	pg_cryptohash_ctx *ctx;

	if (len <= SHORT)
	{
		digest_short(data, len, digest);
		return;
	}

	/* should we fail, the resource owner frees the context */
	ctx = pg_cryptohash_create(PG_SHA256);
	if (pg_cryptohash_init(ctx) < 0 ||
		pg_cryptohash_update(ctx, (const uint8 *) data, len) < 0 ||
		pg_cryptohash_final(ctx, digest, PG_SHA256_DIGEST_LENGTH) < 0)
		elog(ERROR, "could not compute SHA-256: %s",
			 pg_cryptohash_error(ctx));
	pg_cryptohash_free(ctx);
}
