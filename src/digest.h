/*
 * digest.h
 *	  SHA-256.
 */
#ifndef IDEM_DIGEST_H
#define IDEM_DIGEST_H

#include "common/sha2.h"

extern void idem_digest(const char *data, int len, uint8 *digest);

#endif							/* IDEM_DIGEST_H */
