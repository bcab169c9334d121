/*
 * pin.h
 *	  What a cache of the session keeps, as long as somebody holds it.
 */
#ifndef IDEM_PIN_H
#define IDEM_PIN_H

#include "utils/hsearch.h"
#include "utils/palloc.h"

/* something kept, in a memory context of its own */
typedef struct IdemPinned
{
	MemoryContext context;		/* that holds all of it, this too */
	int			pins;
	bool		cached;			/* the cache still gives it out */
} IdemPinned;

extern HTAB *idem_pin_table(const char *name, Size keysize, Size entrysize,
							int kind);
extern void idem_pin_cache(IdemPinned *pinned);
extern void idem_pin_uncache(IdemPinned *pinned);
extern void idem_pin_hold(IdemPinned *pinned, MemoryContext holder);

#endif							/* IDEM_PIN_H */
