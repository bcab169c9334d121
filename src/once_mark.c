/*
 * once_mark.c
 *	  The keys that a transaction marks in idem.key for rows that it inserts.
 *
 * A mark is a completed row of the registry, and the race between sessions is
 * the registry's: a twin sleeps until we commit, and then skips its row, or
 * roll back, and then has the key.  Nobody else can change our mark before
 * that.
 *
 * A mark is written before its row is inserted, and the row may yet be dropped
 * (ON CONFLICT DO NOTHING, a later trigger).  Marks of rows that were dropped,
 * or of which that is not known, stand here as pending.  The invariant is:
 * when the transaction commits, no mark is pending.  They are deleted after
 * the statement if its table is the one that the statement names, else (a
 * statement that names a partition fires no trigger of the root's, and many
 * statements that drop one key would leave many dead rows of it) before commit
 * or prepare, or when there are many, or when a verb of this transaction is
 * about to look at the registry and would believe them.  Whoever deletes the mark
 * of a row that gets in after all does no harm: the row is given a new one then.
 *
 * Subtransactions: a mark belongs to the one that wrote it, and is settled
 * (its row got in, it was taken over or deleted) by the one that did that; the
 * rollback of the first forgets the mark, that of the second makes it pending
 * again.  Marks live in TopTransactionContext.
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"

#include "catalog.h"
#include "errors.h"
#include "name.h"
#include "once.h"

/* pending marks are deleted when there are more than so many */
#define MANY_MARKS		1000

/* so many statements of a transaction take their marks back at once */
#define MANY_RELEASES	100

/* after so many new keys in one transaction the next is taken to be new */
#define SURELY_NEW		8

typedef struct MarkEntry
{
	IdemName	name;
	uint32		hash;
	char		status;			/* simplehash's own */
	IdemMark   *mark;
} MarkEntry;

#define SH_PREFIX marktable
#define SH_ELEMENT_TYPE MarkEntry
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

static marktable_hash *marks = NULL;
static int	nmarks = 0;
static int	npending = 0;
static int	nreleases = 0;
static int	new_keys = 0;		/* since the last that was not */

/* the registry, kept open from row to row */
static IdemStore kept;
static bool kept_open = false;
static SubTransactionId kept_in;

/*
 * Records a key as spent, unless it is; sleeps behind another's uncommitted
 * mark.  Gives the row that was written, or is there.
 *
 * After some keys that were new it is taken that the next one is new as well,
 * which saves every second descent of a bulk load.  Where it is not, a dead
 * row is left.
 */
static IdemOutcome
mark_write(IdemStore *store, const IdemOnceTable *table, text *key,
		   IdemRow *row)
{
	IdemRequest request = {
		.verb = "INSERT",
		.key = key,
		.scope = &table->scope,
		.once = true,
		.presume_new = new_keys >= SURELY_NEW,
		.ttl = table->has_ttl ? &table->ttl : NULL,
		.wait = idem_wait_forever
	};
	IdemVerdict verdict;

	idem_require_writable("INSERT");
	idem_registry_claim(store, &request, &verdict);
	new_keys = IDEM_OUTCOME_RUNS(verdict.outcome) ? new_keys + 1 : 0;
	if (!IDEM_OUTCOME_RUNS(verdict.outcome) &&
		verdict.outcome != IDEM_OUT_COMPLETED)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_CONFLICT),
				 errmsg("idem key of a row is held or has failed"),
				 errdetail("In scope \"%s\" it was claimed by other means than an insert.",
						   text_to_cstring(table->scope.name)),
				 errhidestmt(true)));
	*row = verdict.row;
	return verdict.outcome;
}

/*
 * Gives a key that is there the table's retention, where it would expire
 * sooner.  False if somebody else changed it meanwhile.
 */
static bool
mark_extend(IdemStore *store, const IdemOnceTable *table, const IdemRow *row)
{
	TimestampTz now = GetCurrentTimestamp();
	IdemRow		fresh = *row;
	IdemRow		written;

	if (row->nulls[IDEM_COL_EXPIRES_AT])
		return true;
	fresh.nulls[IDEM_COL_TTL] = !table->has_ttl;
	fresh.values[IDEM_COL_TTL] = IntervalPGetDatum(&table->ttl);
	idem_row_set_expiry(&fresh, &table->scope, now);
	if (!fresh.nulls[IDEM_COL_EXPIRES_AT] &&
		DatumGetTimestampTz(fresh.values[IDEM_COL_EXPIRES_AT]) <=
		DatumGetTimestampTz(row->values[IDEM_COL_EXPIRES_AT]))
		return true;
	if (idem_store_update(store, row, &fresh,
						  &idem_wait_forever) != IDEM_STORE_OK)
		return false;
	if (fresh.nulls[IDEM_COL_EXPIRES_AT] || !idem_wait_may_have_slept(now))
		return true;

	/* it counts from the end of the sleep, unless the clock was set back */
	written = fresh;
	idem_row_set_expiry(&fresh, &table->scope, GetCurrentTimestamp());
	if (DatumGetTimestampTz(fresh.values[IDEM_COL_EXPIRES_AT]) >
		DatumGetTimestampTz(written.values[IDEM_COL_EXPIRES_AT]))
		idem_store_update_again(store, &written, &fresh);
	return true;
}

/*
 * Records the key of a row that is there already.  False if it was recorded
 * before; then it is kept for as long as the table says, at least.
 */
bool
idem_mark_import(IdemStore *store, const IdemOnceTable *table, text *key)
{
	IdemRow		row;

	for (int rounds = 0;; rounds++)
	{
		CHECK_FOR_INTERRUPTS();
		idem_registry_check_rounds(rounds);
		if (IDEM_OUTCOME_RUNS(mark_write(store, table, key, &row)))
			return true;
		if (mark_extend(store, table, &row))
			return false;
	}
}

/*
 * Closes the registry if it was kept open for the rows of a statement.
 */
static void
mark_close_kept(void)
{
	ResourceOwner owner = CurrentResourceOwner;

	if (!kept_open)
		return;
	kept_open = false;
	CurrentResourceOwner = kept.owner;
	idem_store_close(&kept);
	CurrentResourceOwner = owner;
	MemoryContextDelete(kept.context);
}

static IdemMark *
mark_find(const IdemOnceTable *table, text *key)
{
	IdemName	name = {.scope = table->scope.name,.key = key};
	MarkEntry  *entry = marks != NULL ? marktable_lookup(marks, name) : NULL;

	return entry != NULL ? entry->mark : NULL;
}

static bool
mark_is_pending(const IdemMark *mark)
{
	return mark->settled_in == InvalidSubTransactionId;
}

/*
 * This transaction's mark of a key whose row is not known to be there.
 */
IdemMark *
idem_mark_find_pending(const IdemOnceTable *table, text *key)
{
	IdemMark   *mark = npending > 0 ? mark_find(table, key) : NULL;

	return mark != NULL && mark_is_pending(mark) ? mark : NULL;
}

static void
mark_remove(IdemMark *mark)
{
	IdemName	name = {.scope = mark->table->scope.name,.key = mark->key};
	MarkEntry  *entry = marktable_lookup(marks, name);
	IdemMark  **link = &entry->mark;

	while (*link != mark)
		link = &(*link)->former;
	*link = mark->former;
	if (entry->mark != NULL)
		entry->name.key = entry->mark->key;
	else
		marktable_delete(marks, name);
	pfree(mark->key);
	pfree(mark);
	nmarks--;
}

static void
mark_settle_in(IdemMark *mark, SubTransactionId subid)
{
	npending--;
	mark->settled_in = subid;
	if (mark->settled_in == mark->made_in)
		mark_remove(mark);
}

/*
 * A mark is no longer pending, as far as the current subtransaction goes.  It
 * may be gone when this returns.
 */
void
idem_mark_settle(IdemMark *mark)
{
	mark_settle_in(mark, GetCurrentSubTransactionId());
}

/*
 * Enters a mark as pending.  A former one of the same key, which was deleted
 * in the meantime, stays behind it, for it may come back.
 */
void
idem_mark_enter(const IdemOnceTable *table, text *key, ItemPointer tid,
				SubTransactionId made_in)
{
	Size		size = VARSIZE_ANY(key);
	IdemName	name;
	MarkEntry  *entry;
	IdemMark   *mark;
	bool		found;

	mark = idem_mark_find_pending(table, key);
	if (mark != NULL)
		mark_settle_in(mark, made_in);

	if (marks == NULL)
		marks = marktable_create(TopTransactionContext, 64, NULL);
	mark = MemoryContextAllocZero(TopTransactionContext, sizeof(IdemMark));
	mark->key = memcpy(MemoryContextAlloc(TopTransactionContext, size),
					   key, size);
	mark->table = table;
	mark->tid = *tid;
	mark->tid_epoch = idem_catalog_epoch(IDEM_REL_KEY);
	mark->made_in = made_in;
	mark->settled_in = InvalidSubTransactionId;

	name.scope = table->scope.name;
	name.key = mark->key;
	entry = marktable_insert(marks, name, &found);
	mark->former = found ? entry->mark : NULL;
	entry->name = name;
	entry->mark = mark;
	nmarks++;
	npending++;
}

/*
 * Whether a row that has a mark's key looks like one.
 */
static bool
mark_is_like(const IdemRow *row)
{
	return idem_row_state(row) == IDEM_COMPLETED &&
		row->nulls[IDEM_COL_FINGERPRINT] && row->nulls[IDEM_COL_FUNCTION] &&
		row->nulls[IDEM_COL_RESPONSE];
}

/*
 * Deletes the registry's row of a pending mark.
 */
static void
mark_release(IdemStore *store, IdemMark *mark)
{
	text	   *scope = mark->table->scope.name;
	IdemRow		row;
	bool		there = false;

	if (mark->tid_epoch == idem_catalog_epoch(IDEM_REL_KEY))
		there = idem_store_read_at(store, &mark->tid, scope, mark->key, &row);
	if (!there)
		there = idem_store_read(store, scope, mark->key, true, &row) &&
			mark_is_like(&row);
	if (there)
		(void) idem_store_delete(store, &row, &idem_wait_forever);
	idem_mark_settle(mark);
}

/*
 * Deletes every pending mark, also where the transaction has become read-only
 * since they were written.
 */
void
idem_mark_release_all(void)
{
	bool		read_only = XactReadOnly;

	IdemStore	store;
	marktable_iterator iterator;
	MarkEntry  *entry;
	IdemMark  **pending;
	int			n = 0;
	bool		pushed = false;

	if (npending == 0 || IsInParallelMode())
		return;

	pending = palloc(npending * sizeof(IdemMark *));
	marktable_start_iterate(marks, &iterator);
	while ((entry = marktable_iterate(marks, &iterator)) != NULL)
	{
		if (mark_is_pending(entry->mark))
			pending[n++] = entry->mark;
	}
	Assert(n == npending);

	if (!ActiveSnapshotSet())
	{
		PushActiveSnapshot(GetTransactionSnapshot());
		pushed = true;
	}
	/* an error ends the (sub)transaction, and so restores it */
	XactReadOnly = false;
	idem_store_open_as_is(&store, RowExclusiveLock);
	for (int i = 0; i < n; i++)
	{
		CHECK_FOR_INTERRUPTS();
		mark_release(&store, pending[i]);
	}
	idem_store_close(&store);
	XactReadOnly = read_only;
	if (pushed)
		PopActiveSnapshot();
	pfree(pending);
}

/*
 * Marks a key for a trigger.  The registry stays open until the end of the
 * statement, in the (sub)transaction that opened it; another one uses its own.
 */
IdemOutcome
idem_mark_make(const IdemOnceTable *table, text *key, ItemPointer tid)
{
	ResourceOwner owner = CurrentResourceOwner;
	IdemOutcome outcome;
	IdemStore	store;
	IdemRow		row;

	if (npending > MANY_MARKS)
		idem_mark_release_all();

	if (!kept_open)
	{
		MemoryContext context = AllocSetContextCreate(CurTransactionContext,
													  "idem once registry",
													  ALLOCSET_DEFAULT_SIZES);
		MemoryContext caller = MemoryContextSwitchTo(context);

		CurrentResourceOwner = CurTransactionResourceOwner;
		idem_store_open_as_is(&kept, RowExclusiveLock);
		idem_store_expect_many(&kept);
		CurrentResourceOwner = owner;
		MemoryContextSwitchTo(caller);
		kept_in = GetCurrentSubTransactionId();
		kept_open = true;
	}
	if (kept_in == GetCurrentSubTransactionId())
	{
		CurrentResourceOwner = kept.owner;
		outcome = mark_write(&kept, table, key, &row);
		CurrentResourceOwner = owner;
	}
	else
	{
		idem_store_open_as_is(&store, RowExclusiveLock);
		outcome = mark_write(&store, table, key, &row);
		idem_store_close(&store);
	}
	*tid = row.tid;
	return outcome;
}

/*
 * A statement that may have marked keys is over.
 */
void
idem_mark_end_statement(bool release)
{
	mark_close_kept();
	/* else the same key dropped again and again would go quadratic */
	if (release && npending > 0 && nreleases < MANY_RELEASES)
	{
		nreleases++;
		idem_mark_release_all();
	}
}

void
idem_mark_at_xact(XactEvent event)
{
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
		case XACT_EVENT_PRE_PREPARE:
			mark_close_kept();
			idem_mark_release_all();
			break;
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PREPARE:
			marks = NULL;
			nmarks = 0;
			npending = 0;
			nreleases = 0;
			new_keys = 0;
			kept_open = false;
			break;
		default:
			break;
	}
}

/*
 * The marks that the end of a subtransaction concerns.
 */
static void
marks_at_subxact(bool committed, SubTransactionId subid,
				 SubTransactionId parent)
{
	marktable_iterator iterator;
	MarkEntry  *entry;
	IdemMark  **gone;
	int			n = 0;

	gone = MemoryContextAlloc(TopTransactionContext,
							  nmarks * sizeof(IdemMark *));
	marktable_start_iterate(marks, &iterator);
	while ((entry = marktable_iterate(marks, &iterator)) != NULL)
	{
		for (IdemMark *mark = entry->mark; mark != NULL; mark = mark->former)
		{
			bool		undone = !committed && mark->made_in == subid;

			if (mark->made_in == subid)
				mark->made_in = parent;
			if (mark->settled_in == subid)
			{
				mark->settled_in = committed ? parent : InvalidSubTransactionId;
				if (!committed)
					npending++;
			}
			if (undone && mark_is_pending(mark))
				npending--;
			if (undone || mark->settled_in == mark->made_in)
				gone[n++] = mark;
		}
	}
	for (int i = 0; i < n; i++)
		mark_remove(gone[i]);
	pfree(gone);
}

void
idem_mark_at_subxact(SubXactEvent event, SubTransactionId subid,
					 SubTransactionId parent)
{
	if (kept_open && kept_in == subid)
	{
		if (event == SUBXACT_EVENT_PRE_COMMIT_SUB)
			mark_close_kept();
		else if (event == SUBXACT_EVENT_ABORT_SUB)
			kept_open = false;
	}
	if (nmarks > 0 && (event == SUBXACT_EVENT_COMMIT_SUB ||
					   event == SUBXACT_EVENT_ABORT_SUB))
		marks_at_subxact(event == SUBXACT_EVENT_COMMIT_SUB, subid, parent);
}
