/*
 * direct.c
 *	  A plain table with a primary key, reached through the table and index
 *	  access methods.
 *
 * A read is one probe of the primary key with a dirty snapshot, which tells
 * apart what is committed, what is the caller's own, and what another
 * transaction is just inserting (table->pending).  It takes no predicate lock,
 * so that it answers alike at every isolation level, and writes nothing.
 *
 * Which tables are plain enough is in direct_suitable.c, how rows are written
 * in direct_write.c.
 *
 * Nobody's privileges are looked at: whoever calls has judged them.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/hio.h"
#include "access/htup_details.h"
#include "access/skey.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "direct.h"
#include "name.h"

/* what a row's next version may need more than this one */
#define ROOM_TO_GROW	512

/*
 * Takes an opened and locked table that is suitable.
 */
void
idem_direct_open(IdemDirect *table, Relation rel, int nkeys, LOCKMODE lockmode)
{
	memset(table, 0, sizeof(IdemDirect));
	table->rel = rel;
	table->lockmode = lockmode;
	table->nkeys = nkeys;
	table->context = CurrentMemoryContext;
	table->owner = CurrentResourceOwner;
	InitDirtySnapshot(table->dirty);
}

/*
 * The primary key's index.  Whoever knows where a row is can do without, so that
 * who relies on a lock of the table that was taken before need not have one of
 * the index.
 */
Relation
idem_direct_pk(IdemDirect *table)
{
	ResourceOwner owner = CurrentResourceOwner;

	if (table->pk != NULL)
		return table->pk;

	/* it outlives the subtransaction that we may be in */
	CurrentResourceOwner = table->owner;
	/* rd_pkindex is known once the list of indexes is */
	if (!table->rel->rd_indexvalid)
		list_free(RelationGetIndexList(table->rel));
	table->pk = index_open(table->rel->rd_pkindex,
						   table->lockmode == NoLock ? RowExclusiveLock :
						   table->lockmode);
	CurrentResourceOwner = owner;
	return table->pk;
}

/*
 * A slot for rows of the table.
 */
TupleTableSlot *
idem_direct_make_slot(IdemDirect *table, const TupleTableSlotOps *ops)
{
	MemoryContext caller = MemoryContextSwitchTo(table->context);
	ResourceOwner owner = CurrentResourceOwner;
	TupleTableSlot *slot;

	/* it outlives the subtransaction that we may be in */
	CurrentResourceOwner = table->owner;
	slot = MakeSingleTupleTableSlot(RelationGetDescr(table->rel), ops);
	CurrentResourceOwner = owner;
	MemoryContextSwitchTo(caller);
	return slot;
}

/*
 * The slot for rows that are in a buffer.
 */
TupleTableSlot *
idem_direct_read_slot(IdemDirect *table)
{
	if (table->read_slot == NULL)
		table->read_slot = idem_direct_make_slot(table,
												 table_slot_callbacks(table->rel));
	return table->read_slot;
}

/*
 * Closes all but the table itself; locks stay until the transaction ends.
 */
void
idem_direct_close(IdemDirect *table)
{
	if (table->scan != NULL)
		index_endscan(table->scan);
	if (table->bulk != NULL)
		FreeBulkInsertState(table->bulk);
	idem_direct_release_token(table);
	list_free(table->indexes);
	if (table->write_slot != NULL)
		ExecDropSingleTupleTableSlot(table->write_slot);
	if (table->read_slot != NULL)
		ExecDropSingleTupleTableSlot(table->read_slot);
	if (table->pk != NULL)
		index_close(table->pk, NoLock);
}

/*
 * Before many inserts in a row: the page that they go to stays pinned until
 * the table is closed.  It stays in shared buffers like any other, for it is
 * soon read again: no ring of buffers.
 */
void
idem_direct_expect_many(IdemDirect *table)
{
	MemoryContext caller = MemoryContextSwitchTo(table->context);

	table->bulk = GetBulkInsertState();
	FreeAccessStrategy(table->bulk->strategy);
	table->bulk->strategy = NULL;
	MemoryContextSwitchTo(caller);
}

/*
 * Opens a table of idem's own for which there is no other way.
 */
void
idem_direct_open_own(IdemDirect *table, IdemDirectKind *kind,
					 LOCKMODE lockmode)
{
	Relation	rel = table_open(idem_catalog_relation(kind->relation),
								 lockmode);

	if (kind->relid != RelationGetRelid(rel) ||
		kind->epoch != idem_catalog_epoch(kind->relation))
	{
		/* the epoch first: what changes while we look is looked at again */
		kind->relid = InvalidOid;
		kind->epoch = idem_catalog_epoch(kind->relation);
		if (!idem_direct_suitable(rel, kind->natts, kind->types, kind->nkeys))
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("table \"idem.%s\" cannot be reached directly",
							kind->name),
					 errdetail("It is not a plain table with its declared columns and primary key, or it has triggers, rules, row security, constraints or indexes that would be passed over."),
					 errhint("Take back what was changed on the table. A column that was added stays in the way when it is dropped, until a dump and restore."),
					 errtable(rel),
					 errhidestmt(true)));
		kind->relid = RelationGetRelid(rel);
	}
	idem_direct_open(table, rel, kind->nkeys, lockmode);
}

void
idem_direct_close_own(IdemDirect *table)
{
	idem_direct_close(table);
	table_close(table->rel, NoLock);
}

/*
 * How a key column is compared.
 */
static RegProcedure
direct_equality(IdemDirect *table, int column)
{
	switch (TupleDescAttr(RelationGetDescr(table->rel), column)->atttypid)
	{
		case INT4OID:
			return F_INT4EQ;
		case BYTEAOID:
			return F_BYTEAEQ;
		default:
			return F_TEXTEQ;
	}
}

/*
 * Copies the tuple out of its buffer, takes it apart, and lets the buffer go.
 * The page is pruned if another version of the row might not find room there.
 */
static HeapTuple
direct_take_row(IdemDirect *table, HeapTuple found, Buffer buffer,
				Datum *values, bool *nulls)
{
	HeapTuple	tuple = heap_copytuple(found);

	if (PageGetExactFreeSpace(BufferGetPage(buffer)) <
		tuple->t_len + ROOM_TO_GROW)
		heap_page_prune_opt(table->rel, buffer);
	ReleaseBuffer(buffer);
	heap_deform_tuple(tuple, RelationGetDescr(table->rel), values, nulls);
	return tuple;
}

/*
 * Whether there is a version for us at a place on the page in the buffer, or
 * none there, along the chain of versions that begins at "root" on that page.
 */
static bool
direct_see_version(IdemDirect *table, ItemPointer tid, OffsetNumber root,
				   Buffer buffer, HeapTuple tuple, bool *all_dead)
{
	Page		page = BufferGetPage(buffer);
	OffsetNumber offset = ItemPointerGetOffsetNumber(tid);
	ItemId		item = offset <= PageGetMaxOffsetNumber(page) ?
	PageGetItemId(page, offset) : NULL;

	if (offset != root && item != NULL && ItemIdIsNormal(item))
	{
		tuple->t_data = (HeapTupleHeader) PageGetItem(page, item);
		tuple->t_len = ItemIdGetLength(item);
		tuple->t_self = *tid;
		tuple->t_tableOid = RelationGetRelid(table->rel);
		if (HeapTupleSatisfiesVisibility(tuple, &table->dirty, buffer))
			return true;
	}
	ItemPointerSetOffsetNumber(tid, root);
	return heap_hot_search_buffer(tid, table->rel, buffer, &table->dirty,
								  tuple, all_dead, true);
}

/*
 * The same; what it finds stays pinned, and the pin on the page is given back
 * where there is nothing.
 */
static bool
direct_take_version(IdemDirect *table, const ItemPointerData *place,
					OffsetNumber root, Buffer buffer, HeapTuple tuple,
					bool *all_dead)
{
	ItemPointerData tid = *place;
	bool		found;

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	found = direct_see_version(table, &tid, root, buffer, tuple, all_dead);
	if (found)
	{
		table->xmax = HeapTupleHeaderGetRawXmax(tuple->t_data);
		table->infomask = tuple->t_data->t_infomask;
	}
	LockBuffer(buffer, BUFFER_LOCK_UNLOCK);
	if (!found)
	{
		ReleaseBuffer(buffer);
		return false;
	}
	table->place = tid;
	table->root = root;
	table->place_buffer = buffer;
	return true;
}

/*
 * The next entry of the scan whose row has a version for us, and the pinned
 * buffer that this is in.  As index_getnext_slot(), but without pruning the page
 * each time, which would be the greater part of the work where each look is
 * followed by an update; see direct_take_row().
 */
static bool
direct_next(IdemDirect *table, HeapTuple tuple, Buffer *buffer)
{
	IndexScanDesc scan = table->scan;

	while (index_getnext_tid(scan, ForwardScanDirection) != NULL)
	{
		ItemPointerData tid = scan->xs_heaptid;
		bool		all_dead = false;

		*buffer = ReadBuffer(table->rel, ItemPointerGetBlockNumber(&tid));
		if (direct_take_version(table, &tid,
								ItemPointerGetOffsetNumber(&tid), *buffer,
								tuple, &all_dead))
			return true;
		/* the next one who looks need not come here */
		if (!scan->xactStartedInRecovery)
			scan->kill_prior_tuple = all_dead;
	}
	return false;
}

/*
 * One probe.  The first version found that is committed or our own is the
 * answer: at most one is, whoever may be changing it.
 */
static HeapTuple
direct_probe(IdemDirect *table, const Datum *key, Datum *values, bool *nulls)
{
	Relation	pk = idem_direct_pk(table);
	ScanKeyData skey[IDEM_DIRECT_MAX_KEYS];
	MemoryContext caller;
	HeapTupleData tuple;
	Buffer		buffer;
	bool		found = false;

	for (int i = 0; i < table->nkeys; i++)
	{
		int			column = pk->rd_index->indkey.values[i] - 1;

		ScanKeyInit(&skey[i], i + 1, BTEqualStrategyNumber,
					direct_equality(table, column), key[column]);
	}

	/* what the scan allocates on the way lives as long as the scan */
	caller = MemoryContextSwitchTo(table->context);
	if (table->scan == NULL)
		table->scan = IDEM_INDEX_BEGINSCAN(table->rel, pk, &table->dirty,
										   table->nkeys);
	index_rescan(table->scan, skey, table->nkeys, NULL, 0);

	table->pending = InvalidTransactionId;
	while (!found && direct_next(table, &tuple, &buffer))
	{
		if (!TransactionIdIsValid(table->dirty.xmin))
			found = true;
		else
		{
			ReleaseBuffer(buffer);
			table->pending = table->dirty.xmin;
			table->pending_token = table->dirty.speculativeToken;
		}
	}
	/* the caller may sleep, and VACUUM would wait for the pin on the leaf */
	index_rescan(table->scan, NULL, table->nkeys, NULL, 0);
	MemoryContextSwitchTo(caller);

	return found ? direct_take_row(table, &tuple, buffer, values, nulls) : NULL;
}

/*
 * Whether these are the values of the row with that key.
 */
static bool
direct_is_row_of(const IdemDirect *table, const Datum *key,
				 const Datum *values)
{
	for (int i = 0; i < table->nkeys; i++)
	{
		if (TupleDescAttr(RelationGetDescr(table->rel), i)->attbyval)
		{
			if (key[i] != values[i])
				return false;
			continue;
		}
		if (!idem_text_equal(DatumGetTextPP(key[i]), DatumGetTextPP(values[i])))
			return false;
	}
	return true;
}

/*
 * The row at a known place, where "snapshot" shows it there; NULL if not, or
 * if it is another's (after a rollback the place may be reused).
 */
HeapTuple
idem_direct_fetch(IdemDirect *table, ItemPointer tid, Snapshot snapshot,
				  const Datum *key, Datum *values, bool *nulls)
{
	HeapTupleData found;
	Buffer		buffer;
	HeapTuple	tuple;

	table->pending = InvalidTransactionId;
	found.t_self = *tid;
	if (!heap_fetch(table->rel, snapshot, &found, &buffer, false))
		return NULL;
	tuple = direct_take_row(table, &found, buffer, values, nulls);
	return direct_is_row_of(table, key, values) ? tuple : NULL;
}

/*
 * Whether a version that this transaction wrote is still the row's latest: its
 * own statements may have changed or deleted the row since.
 */
bool
idem_direct_is_latest(IdemDirect *table, ItemPointer tid)
{
	HeapTupleData found;
	Buffer		buffer;

	found.t_self = *tid;
	if (!heap_fetch(table->rel, SnapshotSelf, &found, &buffer, false))
		return false;
	ReleaseBuffer(buffer);
	return true;
}

/*
 * Hints say where a session saw a row last, and in which buffer, so that it need
 * not descend the index each time.  If another session has written the row since,
 * the version is found from the one that the index knows, which stands on the same
 * page, unless the row has moved to another.  Only a hint: what stands there now
 * has to be a committed version (or our own) of the very row, and such a version
 * is the only one.  All hints go when "epoch" says that the table has changed.
 */
uint32
idem_direct_hash(const IdemDirect *table, const Datum *key)
{
	uint32		hash = 0;

	for (int i = 0; i < table->nkeys; i++)
	{
		uint32		h = idem_text_hash(DatumGetTextPP(key[i]));

		hash = i == 0 ? h : hash_combine(h, hash);
	}
	return hash;
}

bool
idem_direct_has_hint(const IdemHints *hints, uint32 hash)
{
	return hints->hint[hash % IDEM_HINTS].hash == hash;
}

/*
 * Pins the page that a row is hinted to stand on.  Our lock keeps the table
 * from being cut shorter after the look at its length.
 */
static Buffer
direct_read_hinted(IdemDirect *table, BlockNumber block, Buffer buffer)
{
	if (BufferIsValid(buffer) &&
		ReadRecentBuffer(IDEM_RELATION_FILE(table->rel), MAIN_FORKNUM, block,
						 buffer))
		return buffer;
	if (block >= RelationGetNumberOfBlocks(table->rel))
		return InvalidBuffer;
	return ReadBuffer(table->rel, block);
}

HeapTuple
idem_direct_hinted(IdemDirect *table, IdemHints *hints, uint64 epoch,
				   uint32 hash, const Datum *key, Datum *values, bool *nulls)
{
	ItemPointerData tid = hints->hint[hash % IDEM_HINTS].tid;
	OffsetNumber root = hints->hint[hash % IDEM_HINTS].root;
	Buffer		buffer = hints->hint[hash % IDEM_HINTS].buffer;
	HeapTupleData found;
	HeapTuple	tuple;

	if (hints->epoch != epoch)
	{
		memset(hints, 0, sizeof(IdemHints));
		hints->epoch = epoch;
		return NULL;
	}
	if (!idem_direct_has_hint(hints, hash) || !ItemPointerIsValid(&tid))
		return NULL;
	buffer = direct_read_hinted(table, ItemPointerGetBlockNumber(&tid), buffer);
	if (!BufferIsValid(buffer) ||
		!direct_take_version(table, &tid, root, buffer, &found, NULL))
		return NULL;

	table->pending = InvalidTransactionId;
	if (TransactionIdIsValid(table->dirty.xmin))
	{
		ReleaseBuffer(buffer);
		return NULL;
	}
	tuple = direct_take_row(table, &found, buffer, values, nulls);
	if (!direct_is_row_of(table, key, values))
		return NULL;
	idem_direct_note(table, hints, hash);
	return tuple;
}

/*
 * Notes where the row of that hash stands, which was the last to be read or
 * written.
 */
void
idem_direct_note(const IdemDirect *table, IdemHints *hints, uint32 hash)
{
	hints->hint[hash % IDEM_HINTS].hash = hash;
	hints->hint[hash % IDEM_HINTS].tid = table->place;
	hints->hint[hash % IDEM_HINTS].root = table->root;
	hints->hint[hash % IDEM_HINTS].buffer = table->place_buffer;
}

/*
 * Moves whenever any transaction ends.
 */
uint64
idem_direct_completions(void)
{
	return GetLatestSnapshot()->snapXactCompletionCount;
}

/*
 * The latest committed version of the row, or the caller's own; NULL if there
 * is none.
 *
 * A version that moved to another page while we were between its old and its
 * new index entry can be missed by a probe: the old one was already replaced,
 * the new one not yet there, or not yet committed.  Its mover committed during
 * the probe then.  So "absent" is sure if no transaction ended meanwhile, and
 * where it has to be, the probe is repeated until that is so.
 */
HeapTuple
idem_direct_probe(IdemDirect *table, const Datum *key, bool sure,
				  Datum *values, bool *nulls)
{
	HeapTuple	tuple = direct_probe(table, key, values, nulls);
	uint64		before;

	if (tuple != NULL || !sure)
		return tuple;

	do
	{
		CHECK_FOR_INTERRUPTS();
		before = idem_direct_completions();
		tuple = direct_probe(table, key, values, nulls);
	} while (tuple == NULL && idem_direct_completions() != before);
	return tuple;
}

static void
direct_sleep_behind_xact(void *arg)
{
	XactLockTableWait(*(TransactionId *) arg, NULL, NULL, XLTW_None);
}

static void
direct_sleep_behind_token(void *arg)
{
	IdemDirect *table = (IdemDirect *) arg;

	SpeculativeInsertionWait(table->pending, table->pending_token);
}

/*
 * Sleeps behind the transaction that is inserting the key, as the last probe
 * said (table->pending).  CHANGED when it is over, BUSY if "wait" ran out.
 */
IdemStoreResult
idem_direct_wait(IdemDirect *table, const IdemWait *wait)
{
	/* mostly over in a moment, which is allowed in any case */
	if (table->pending_token != 0)
		return idem_wait_run(wait, direct_sleep_behind_token, table) ?
			IDEM_STORE_CHANGED : IDEM_STORE_BUSY;
	if (!wait->forever && wait->until <= GetCurrentTimestamp())
		return IDEM_XACT_LOCK_TRY(table->pending) ?
			IDEM_STORE_CHANGED : IDEM_STORE_BUSY;
	return idem_wait_run(wait, direct_sleep_behind_xact, &table->pending) ?
		IDEM_STORE_CHANGED : IDEM_STORE_BUSY;
}
