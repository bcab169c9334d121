/*
 * fingerprint.h
 *	  The canonical form of a JSON document, and its fingerprint.
 */
#ifndef IDEM_FINGERPRINT_H
#define IDEM_FINGERPRINT_H

#include "lib/stringinfo.h"
#include "utils/jsonb.h"

extern void idem_canonical_append(StringInfo buf, JsonbContainer *document);
extern bytea *idem_fingerprint_jsonb(Jsonb *document);

#endif							/* IDEM_FINGERPRINT_H */
