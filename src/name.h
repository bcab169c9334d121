/*
 * name.h
 *	  What names a row of the registry, for hash tables of such rows.
 */
#ifndef IDEM_NAME_H
#define IDEM_NAME_H

#include "common/hashfn.h"

#include "compat.h"

typedef struct IdemName
{
	text	   *scope;
	text	   *key;
} IdemName;

static inline bool
idem_text_equal(text *a, text *b)
{
	return VARSIZE_ANY_EXHDR(a) == VARSIZE_ANY_EXHDR(b) &&
		memcmp(VARDATA_ANY(a), VARDATA_ANY(b), VARSIZE_ANY_EXHDR(a)) == 0;
}

static inline bool
idem_name_equal(IdemName a, IdemName b)
{
	return idem_text_equal(a.key, b.key) && idem_text_equal(a.scope, b.scope);
}

static inline uint32
idem_text_hash(text *t)
{
	return hash_bytes((unsigned char *) VARDATA_ANY(t), VARSIZE_ANY_EXHDR(t));
}

static inline uint32
idem_name_hash(IdemName name)
{
	return hash_combine(idem_text_hash(name.scope), idem_text_hash(name.key));
}

#endif							/* IDEM_NAME_H */
