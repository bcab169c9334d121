/*
 * claims.c
 *	  What the current transaction has claimed, and whether it is finished.
 *
 * The table idem.key says what is committed; this file says which of it is
 * ours.  Per key it keeps whether the claim is held or ended, and where its
 * row is, so that the next verb needs no second index descent and the
 * 20,000th claim of one key in one transaction costs what the first did.
 *
 * Subtransactions: before an entry changes for the first time in a
 * subtransaction, its former value goes onto a stack; ROLLBACK TO SAVEPOINT
 * (a plpgsql EXCEPTION block is one too) pops and restores, RELEASE hands the
 * saved value to the parent, or drops it where the parent has one of its own.
 * At top level nothing is saved, since its rollback discards everything.  So
 * the stack holds one value per key and nesting level at most.
 *
 * A transaction claim that is still held when the transaction wants to commit
 * or prepare is refused.  postgres_fdw commits its remote transactions in the
 * same callback phase, and callbacks run last registered first; so ours is
 * registered anew at the first claim of each transaction, to come before those
 * of libraries that were loaded earlier.
 *
 * Everything lives in TopTransactionContext and is forgotten with it.
 */
#include "postgres.h"

#include "access/xact.h"
#include "utils/memutils.h"

#include "catalog.h"
#include "claims.h"
#include "errors.h"
#include "name.h"
#include "session.h"

typedef struct ClaimEntry
{
	IdemName	name;
	uint32		hash;
	char		status;			/* simplehash's own */
	IdemClaim  *claim;
} ClaimEntry;

#define SH_PREFIX claimtable
#define SH_ELEMENT_TYPE ClaimEntry
#define SH_KEY_TYPE IdemName
#define SH_KEY name
#define SH_HASH_KEY(tb, k) idem_name_hash(k)
#define SH_EQUAL(tb, a, b) idem_name_equal(a, b)
#define SH_STORE_HASH
#define SH_GET_HASH(tb, e) (e)->hash
#define SH_SCOPE static inline
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

/* what to restore when subtransaction "subid" is undone */
typedef struct SavedClaim
{
	IdemClaim  *claim;
	IdemClaim	before;
	SubTransactionId subid;
} SavedClaim;

static claimtable_hash *claims = NULL;
static SavedClaim *saved = NULL;
static int	nsaved = 0;
static int	maxsaved = 0;

/*
 * The claim on a key that this transaction knows of, or NULL.
 */
IdemClaim *
idem_claims_find(text *scope, text *key)
{
	IdemName	name = {.scope = scope,.key = key};
	ClaimEntry *entry;

	if (claims == NULL)
		return NULL;
	entry = claimtable_lookup(claims, name);
	return entry != NULL ? entry->claim : NULL;
}

static text *
claim_copy_text(text *t)
{
	Size		size = VARSIZE_ANY(t);

	return memcpy(MemoryContextAlloc(TopTransactionContext, size), t, size);
}

static IdemClaim *
claim_enter(text *scope, text *key)
{
	IdemName	name = {.scope = scope,.key = key};
	uint32		hash = idem_name_hash(name);
	ClaimEntry *entry;
	IdemClaim  *claim;
	bool		found;

	if (claims == NULL)
		claims = claimtable_create(TopTransactionContext, 8, NULL);

	entry = claimtable_lookup_hash(claims, name, hash);
	if (entry != NULL)
		return entry->claim;

	/* whole before it is entered */
	claim = MemoryContextAllocZero(TopTransactionContext, sizeof(IdemClaim));
	claim->scope = name.scope = claim_copy_text(scope);
	claim->key = name.key = claim_copy_text(key);
	entry = claimtable_insert_hash(claims, name, hash, &found);
	entry->claim = claim;
	return claim;
}

/*
 * Saves what the claim is, if this subtransaction has not saved it yet.
 */
static void
claim_save(IdemClaim *claim)
{
	SubTransactionId subid = GetCurrentSubTransactionId();

	if (subid == TopSubTransactionId || claim->saved_in == subid)
		return;

	if (nsaved == maxsaved)
	{
		int			size = Max(maxsaved * 2, 16);

		if (saved == NULL)
			saved = MemoryContextAlloc(TopTransactionContext,
									   size * sizeof(SavedClaim));
		else
			saved = repalloc_huge(saved, size * sizeof(SavedClaim));
		maxsaved = size;
	}
	saved[nsaved].claim = claim;
	saved[nsaved].before = *claim;
	saved[nsaved].subid = subid;
	nsaved++;
	claim->saved_in = subid;
}

static void claims_at_xact(XactEvent event, void *arg);

/*
 * Notes that the claim is held or has ended, and where its row is now.
 */
void
idem_claims_note(text *scope, text *key, IdemClaimStatus status,
				 IdemHold hold, ItemPointer tid)
{
	IdemClaim  *claim;

	if (claims == NULL)
	{
		UnregisterXactCallback(claims_at_xact, NULL);
		RegisterXactCallback(claims_at_xact, NULL);
	}

	claim = claim_enter(scope, key);
	claim_save(claim);
	claim->status = status;
	claim->hold = hold;
	claim->tid = *tid;
	claim->tid_epoch = idem_catalog_epoch(IDEM_REL_KEY);
}

/*
 * Calls "visit" for each transaction claim that is neither completed, failed,
 * retried nor released.
 */
void
idem_claims_visit_unfinished(IdemClaimVisitor visit, void *arg)
{
	claimtable_iterator iterator;
	ClaimEntry *entry;

	if (claims == NULL)
		return;
	claimtable_start_iterate(claims, &iterator);
	while ((entry = claimtable_iterate(claims, &iterator)) != NULL)
	{
		if (entry->claim->status == IDEM_CLAIM_HELD &&
			entry->claim->hold == IDEM_HOLD_TRANSACTION)
			visit(entry->claim, arg);
	}
}

static void
claim_count(const IdemClaim *claim, void *arg)
{
	(*(int64 *) arg)++;
}

/*
 * How many claims the transaction has still to end.
 */
int64
idem_claims_unfinished(void)
{
	int64		unfinished = 0;

	idem_claims_visit_unfinished(claim_count, &unfinished);
	return unfinished;
}

/*
 * Refuses the end of a transaction, or of a part of one, that leaves more claims
 * unfinished than there were before it.  Without a transaction block the statement
 * that claimed was the whole transaction.
 */
void
idem_claims_check_finished(int64 before)
{
	int64		unfinished = idem_claims_unfinished() - before;

	if (unfinished <= 0)
		return;

	ereport(ERROR,
			(errcode(ERRCODE_IDEM_MISUSE),
			 errmsg_plural("%lld idem claim was left unfinished by its transaction",
						   "%lld idem claims were left unfinished by their transaction",
						   (unsigned long) unfinished,
						   (long long) unfinished),
			 IsTransactionBlock() ?
			 errdetail("A claim that its transaction holds must be completed, failed, retried or released in it.") :
			 errdetail("The statement was a transaction of its own."),
			 IsTransactionBlock() ?
			 errhint("Call idem_complete(), idem_fail(), idem_retry() or idem_release() before the end of the transaction; idem_unfinished() lists what is left.") :
			 errhint("Claim, work and complete between BEGIN and COMMIT, or claim with a lease."),
			 errhidestmt(true)));
}

static void
claims_forget(void)
{
	claims = NULL;
	saved = NULL;
	nsaved = 0;
	maxsaved = 0;
}

static void
claims_at_xact(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
		case XACT_EVENT_PRE_PREPARE:
			idem_claims_check_finished(0);
			break;
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PREPARE:
			claims_forget();
			idem_session_at_xact_end(event == XACT_EVENT_COMMIT,
									 event == XACT_EVENT_PREPARE);
			break;
		default:
			break;
	}
}

static void
claim_remove(IdemClaim *claim)
{
	IdemName	name = {.scope = claim->scope,.key = claim->key};

	claimtable_delete(claims, name);
	pfree(claim->scope);
	pfree(claim->key);
	pfree(claim);
}

/*
 * Undoes what was noted in subtransaction "subid", newest first.  An entry that
 * was made in it has no older value on the stack, and goes.
 */
static void
claims_undo(SubTransactionId subid)
{
	while (nsaved > 0 && saved[nsaved - 1].subid == subid)
	{
		IdemClaim  *claim = saved[--nsaved].claim;

		*claim = saved[nsaved].before;
		if (claim->status == IDEM_CLAIM_NONE)
			claim_remove(claim);
	}
}

/*
 * What was noted in "subid" was noted in "parent".  Each saved value becomes
 * the parent's, unless the parent has an older one of the same claim.
 */
static void
claims_hand_over(SubTransactionId subid, SubTransactionId parent)
{
	int			first = nsaved;
	int			kept;

	while (first > 0 && saved[first - 1].subid == subid)
		first--;

	kept = first;
	for (int i = first; i < nsaved; i++)
	{
		IdemClaim  *claim = saved[i].claim;
		bool		drop = parent == TopSubTransactionId ||
		saved[i].before.saved_in == parent;

		claim->saved_in = parent;
		if (!drop)
		{
			saved[kept] = saved[i];
			saved[kept].subid = parent;
			kept++;
		}
	}
	nsaved = kept;
}

static void
claims_at_subxact(SubXactEvent event, SubTransactionId subid,
				  SubTransactionId parent, void *arg)
{
	switch (event)
	{
		case SUBXACT_EVENT_COMMIT_SUB:
			claims_hand_over(subid, parent);
			idem_session_at_subxact_end(true, subid, parent);
			break;
		case SUBXACT_EVENT_ABORT_SUB:
			claims_undo(subid);
			idem_session_at_subxact_end(false, subid, parent);
			break;
		default:
			break;
	}
}

/*
 * Registers the callbacks; called once, when the library is loaded.
 */
void
idem_claims_init(void)
{
	RegisterXactCallback(claims_at_xact, NULL);
	RegisterSubXactCallback(claims_at_subxact, NULL);
}
