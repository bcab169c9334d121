/*
 * digest.h
 *	  SHA-256, and a secret.
 */
#ifndef IDEM_DIGEST_H
#define IDEM_DIGEST_H

#include "common/sha2.h"

/* bytes of the session's secret */
#define IDEM_SECRET_SIZE	32

extern void idem_digest(const char *data, int len, uint8 *digest);
extern const char *idem_secret(void);
extern uint64 idem_secret_seed(void);

#endif							/* IDEM_DIGEST_H */
