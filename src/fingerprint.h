/*
 * fingerprint.h
 *	  The canonical form of a JSON document, and its fingerprint.
 */
#ifndef IDEM_FINGERPRINT_H
#define IDEM_FINGERPRINT_H

#include "lib/stringinfo.h"
#include "utils/jsonb.h"

#include "digest.h"

extern void idem_canonical_append_value(StringInfo buf,
										const JsonbValue *value);
extern bytea *idem_fingerprint_jsonb(Jsonb *document);
extern bytea *idem_fingerprint_call(const char *identity, Jsonb *arguments);
extern bytea *idem_fingerprint_digest(const char *data, int len);
extern void idem_digest_append_part(StringInfo buf, const char *part, int len);

/* 32 bytes in base64 without padding */
#define IDEM_DIGEST_PRINT_LEN	43

extern void idem_digest_print(const uint8 *digest, char *printed);

#endif							/* IDEM_FINGERPRINT_H */
