/*
 * store_heap.c
 *	  The direct way to idem.key: direct.c, and hints for replays.
 *
 * Places of finished keys are remembered, so that a session that answers one
 * key again and again need not descend the index each time.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "utils/snapmgr.h"

#include "catalog.h"
#include "store.h"

#define NKEYS	2

static IdemHints hints;

bool
idem_heap_suitable(Relation rel)
{
	return idem_direct_suitable(rel, IDEM_NCOLUMNS, idem_column_types, NKEYS);
}

void
idem_heap_open(IdemStore *store, LOCKMODE lockmode)
{
	idem_direct_open(&store->heap, store->rel, NKEYS, lockmode);
}

void
idem_heap_close(IdemStore *store)
{
	idem_direct_close(&store->heap);
}

void
idem_heap_expect_many(IdemStore *store)
{
	idem_direct_expect_many(&store->heap);
}

static void
heap_note_place(HeapTuple tuple, IdemRow *row)
{
	row->tid = tuple->t_self;
	row->xmin = HeapTupleHeaderGetXmin(tuple->t_data);
}

/*
 * See idem_store_read().
 */
bool
idem_heap_read(IdemStore *store, text *scope, text *key, bool sure,
			   IdemRow *row)
{
	Datum		keys[NKEYS] = {PointerGetDatum(scope), PointerGetDatum(key)};
	uint32		hash = idem_direct_hash(&store->heap, keys);
	HeapTuple	tuple;

	tuple = idem_direct_hinted(&store->heap, &hints,
							   idem_catalog_epoch(IDEM_REL_KEY), hash, keys,
							   row->values, row->nulls);
	if (tuple == NULL)
	{
		tuple = idem_direct_probe(&store->heap, keys, sure,
								  row->values, row->nulls);
		if (tuple == NULL)
			return false;
		if (!row->nulls[IDEM_COL_FINISHED_AT])
			idem_direct_note(&store->heap, &hints, hash);
	}
	heap_note_place(tuple, row);
	return true;
}

/*
 * See idem_store_read_at().
 */
bool
idem_heap_read_at(IdemStore *store, ItemPointer tid,
				  text *scope, text *key, IdemRow *row)
{
	Datum		keys[NKEYS] = {PointerGetDatum(scope), PointerGetDatum(key)};
	HeapTuple	tuple = idem_direct_fetch(&store->heap, tid, SnapshotSelf,
										  keys, row->values, row->nulls);

	if (tuple == NULL)
		return false;
	heap_note_place(tuple, row);
	return true;
}

/*
 * See idem_store_is_latest().
 */
bool
idem_heap_is_latest(IdemStore *store, const IdemRow *row)
{
	ItemPointerData tid = row->tid;

	return ItemPointerIsValid(&tid) &&
		idem_direct_is_latest(&store->heap, &tid);
}

/*
 * See idem_store_snapshot_sees().
 */
bool
idem_heap_snapshot_sees(const IdemRow *row)
{
	return TransactionIdIsCurrentTransactionId(row->xmin) ||
		!XidInMVCCSnapshot(row->xmin, GetTransactionSnapshot());
}

/*
 * See idem_store_insert().  What is finished and kept for ever will not change
 * again.
 */
IdemStoreResult
idem_heap_insert(IdemStore *store, IdemRow *row, const IdemWait *wait)
{
	IdemStoreResult result;

	store->heap.pack = !row->nulls[IDEM_COL_FINISHED_AT] &&
		row->nulls[IDEM_COL_EXPIRES_AT];
	result = idem_direct_insert(&store->heap, row->values, row->nulls, wait,
								&row->tid);
	if (result == IDEM_STORE_OK)
		row->xmin = GetCurrentTransactionId();
	return result;
}

/*
 * See idem_store_update().
 */
IdemStoreResult
idem_heap_update(IdemStore *store, const IdemRow *old, IdemRow *row,
				 const IdemWait *wait)
{
	ItemPointerData tid = old->tid;
	IdemStoreResult result = idem_direct_update(&store->heap, &tid,
												row->values, row->nulls,
												wait);

	if (result == IDEM_STORE_OK)
	{
		row->tid = tid;
		row->xmin = GetCurrentTransactionId();
	}
	return result;
}

/*
 * See idem_store_delete().
 */
IdemStoreResult
idem_heap_delete(IdemStore *store, const IdemRow *old, const IdemWait *wait)
{
	ItemPointerData tid = old->tid;

	return idem_direct_delete(&store->heap, &tid, wait);
}
