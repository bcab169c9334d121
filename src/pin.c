/*
 * pin.c
 *	  What a cache of the session keeps, as long as somebody holds it.
 *
 * A cache's entry may go while somebody reads it: an invalidation arrives with
 * any lock that is taken.  So nothing in use is freed.  Who gets an entry names
 * a memory context, and until that is reset the entry stays, also when the
 * cache has dropped it.  No error can lose a pin, because resetting the context
 * is what takes it back.
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "pin.h"

typedef struct Pin
{
	MemoryContextCallback callback;
	IdemPinned *pinned;
} Pin;

/*
 * An empty cache; kind is HASH_BLOBS or HASH_STRINGS.
 */
HTAB *
idem_pin_table(const char *name, Size keysize, Size entrysize, int kind)
{
	HASHCTL		ctl = {
		.keysize = keysize,
		.entrysize = entrysize,
		.hcxt = CacheMemoryContext
	};

	return hash_create(name, 16, &ctl, HASH_ELEM | HASH_CONTEXT | kind);
}

/*
 * The cache gives it out from now on.
 */
void
idem_pin_cache(IdemPinned *pinned)
{
	pinned->cached = true;
	MemoryContextSetParent(pinned->context, CacheMemoryContext);
}

static void
pin_free(IdemPinned *pinned)
{
	if (pinned->pins == 0 && !pinned->cached)
		MemoryContextDelete(pinned->context);
}

/*
 * The cache has dropped it.
 */
void
idem_pin_uncache(IdemPinned *pinned)
{
	pinned->cached = false;
	pin_free(pinned);
}

static void
pin_release(void *arg)
{
	IdemPinned *pinned = ((Pin *) arg)->pinned;

	pinned->pins--;
	pin_free(pinned);
}

/*
 * Keeps it until "holder" is reset.
 */
void
idem_pin_hold(IdemPinned *pinned, MemoryContext holder)
{
	Pin		   *pin = MemoryContextAlloc(holder, sizeof(Pin));

	pin->pinned = pinned;
	pin->callback.func = pin_release;
	pin->callback.arg = pin;
	pinned->pins++;
	MemoryContextRegisterResetCallback(holder, &pin->callback);
}
