/*
 * store_heap.c
 *	  The direct way to idem.key: table and index access methods.
 *
 * A read is one probe of the primary key with a dirty snapshot, which tells
 * apart what is committed, what is the caller's own, and what another
 * transaction is just inserting (store->pending).  It takes no predicate lock,
 * so that it answers alike at every isolation level, and writes nothing.
 *
 * A new row is inserted speculatively, as INSERT ...  ON CONFLICT does: the
 * tuple goes into the heap under a token, its entry into every unique index
 * without an error on conflict, and is taken back where one of them knew the
 * key.  The race that this closes is two sessions that both read "absent":
 * exactly one of them finds no other entry when it puts its own into the
 * index.  Every ready index gets its entry, so that while REINDEX CONCURRENTLY
 * keeps two primary keys, any two sessions still meet in at least one.
 *
 * An update or delete names the very version that was read, so that of two
 * that read the same one only the first succeeds.  Where the caller may not
 * sleep for ever, the row is locked first, because that can be bounded.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/skey.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/index.h"
#include "catalog/pg_am.h"
#include "catalog/pg_class.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_namespace.h"
#include "common/hashfn.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "storage/procarray.h"
#include "utils/fmgroids.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "catalog.h"
#include "compat.h"
#include "store.h"

/*
 * Whether a distributing engine has taken the table over: Citus lists such
 * tables in pg_catalog.pg_dist_partition.
 */
static bool
heap_has_foreign_planner(Oid relid)
{
	Oid			catalog = get_relname_relid("pg_dist_partition",
											PG_CATALOG_NAMESPACE);
	AttrNumber	column;
	Relation	rel;
	SysScanDesc scan;
	ScanKeyData skey;
	bool		found;

	if (!OidIsValid(catalog))
		return false;
	column = get_attnum(catalog, "logicalrelid");
	if (column == InvalidAttrNumber)
		return true;

	rel = table_open(catalog, AccessShareLock);
	ScanKeyInit(&skey, column, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(relid));
	scan = systable_beginscan(rel, InvalidOid, false, NULL, 1, &skey);
	found = HeapTupleIsValid(systable_getnext(scan));
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return found;
}

/*
 * Whether every index is one that heap_insert_entries() can serve, and the
 * primary key is (scope, key) in the "C" collation, immediate and valid.
 */
static bool
heap_indexes_are_plain(Relation rel)
{
	List	   *indexes = RelationGetIndexList(rel);
	Oid			pk = rel->rd_pkindex;
	bool		plain = OidIsValid(pk);
	ListCell   *lc;

	foreach(lc, indexes)
	{
		Relation	index = index_open(lfirst_oid(lc), AccessShareLock);
		Form_pg_index form = index->rd_index;

		if (index->rd_rel->relam != BTREE_AM_OID ||
			RelationGetIndexExpressions(index) != NIL ||
			RelationGetIndexPredicate(index) != NIL ||
			form->indisexclusion || !form->indimmediate)
			plain = false;
		if (RelationGetRelid(index) == pk &&
			(!form->indisvalid || form->indnkeyatts != 2 ||
			 form->indkey.values[0] != IDEM_COL_SCOPE + 1 ||
			 form->indkey.values[1] != IDEM_COL_KEY + 1 ||
			 index->rd_indcollation[0] != C_COLLATION_OID ||
			 index->rd_indcollation[1] != C_COLLATION_OID))
			plain = false;
		index_close(index, NoLock);
	}
	list_free(indexes);
	return plain;
}

/*
 * Whether nothing stands on the table that only the executor would honour.
 */
bool
idem_heap_suitable(Relation rel)
{
	TupleDesc	desc = RelationGetDescr(rel);

	if (rel->rd_rel->relkind != RELKIND_RELATION ||
		rel->rd_rel->relam != HEAP_TABLE_AM_OID ||
		rel->rd_rel->relispartition || rel->rd_rel->relhassubclass ||
		rel->rd_rel->relrowsecurity ||
		rel->rd_rel->relreplident != REPLICA_IDENTITY_DEFAULT ||
		rel->rd_rules != NULL || rel->trigdesc != NULL)
		return false;

	if (desc->natts != IDEM_NCOLUMNS ||
		(desc->constr != NULL &&
		 (desc->constr->num_check > 0 || desc->constr->has_generated_stored)))
		return false;
	for (int i = 0; i < IDEM_NCOLUMNS; i++)
	{
		if (TupleDescAttr(desc, i)->attisdropped ||
			TupleDescAttr(desc, i)->atttypid != idem_column_types[i])
			return false;
	}

	return heap_indexes_are_plain(rel) &&
		!heap_has_foreign_planner(RelationGetRelid(rel));
}

void
idem_heap_open(IdemStore *store, LOCKMODE lockmode)
{
	/* rd_pkindex is known once the list of indexes is */
	if (!store->rel->rd_indexvalid)
		list_free(RelationGetIndexList(store->rel));
	store->pk = index_open(store->rel->rd_pkindex, lockmode);
	store->read_slot = table_slot_create(store->rel, NULL);
	InitDirtySnapshot(store->dirty);
}

void
idem_heap_close(IdemStore *store)
{
	if (store->scan != NULL)
		index_endscan(store->scan);
	if (store->write_slot != NULL)
		ExecDropSingleTupleTableSlot(store->write_slot);
	ExecDropSingleTupleTableSlot(store->read_slot);
	index_close(store->pk, NoLock);
}

/*
 * Copies the tuple in the slot out of its buffer and takes it apart.
 */
static void
heap_take_row(IdemStore *store, TupleTableSlot *slot, IdemRow *row)
{
	HeapTuple	tuple = ExecCopySlotHeapTuple(slot);

	heap_deform_tuple(tuple, RelationGetDescr(store->rel),
					  row->values, row->nulls);
	row->tid = slot->tts_tid;
	row->xmin = HeapTupleHeaderGetXmin(tuple->t_data);
	ExecClearTuple(slot);
}

/*
 * One probe.  The first version found that is committed or our own is the
 * answer: at most one is, whoever may be changing it.
 */
static bool
heap_probe(IdemStore *store, text *scope, text *key, IdemRow *row)
{
	ScanKeyData skey[2];
	MemoryContext caller;
	bool		found = false;

	ScanKeyInit(&skey[0], 1, BTEqualStrategyNumber, F_TEXTEQ,
				PointerGetDatum(scope));
	ScanKeyInit(&skey[1], 2, BTEqualStrategyNumber, F_TEXTEQ,
				PointerGetDatum(key));

	/* what the scan allocates on the way lives as long as the scan */
	caller = MemoryContextSwitchTo(store->context);
	if (store->scan == NULL)
		store->scan = IDEM_INDEX_BEGINSCAN(store->rel, store->pk,
										   &store->dirty, 2);
	index_rescan(store->scan, skey, 2, NULL, 0);

	store->pending = InvalidTransactionId;
	while (!found && index_getnext_slot(store->scan, ForwardScanDirection,
										store->read_slot))
	{
		if (!TransactionIdIsValid(store->dirty.xmin))
			found = true;
		else
		{
			store->pending = store->dirty.xmin;
			store->pending_token = store->dirty.speculativeToken;
		}
	}
	MemoryContextSwitchTo(caller);

	if (found)
		heap_take_row(store, store->read_slot, row);
	ExecClearTuple(store->read_slot);
	return found;
}

/*
 * Where finished keys were seen last, so that a session that answers one key
 * again and again need not descend the index each time.  Only a hint: the
 * tuple that stands there now has to be a committed version of the very key,
 * and such a version is the only one.  All hints go when the table changes.
 */
#define HINTS	256

static struct
{
	uint32		hash;
	ItemPointerData tid;
}			hints[HINTS];
static uint64 hints_epoch;

static uint32
heap_hint_hash(text *scope, text *key)
{
	return hash_combine(hash_bytes((unsigned char *) VARDATA_ANY(key),
								   VARSIZE_ANY_EXHDR(key)),
						hash_bytes((unsigned char *) VARDATA_ANY(scope),
								   VARSIZE_ANY_EXHDR(scope)));
}

static bool
heap_same_text(text *a, Datum b)
{
	text	   *t = DatumGetTextPP(b);

	return VARSIZE_ANY_EXHDR(a) == VARSIZE_ANY_EXHDR(t) &&
		memcmp(VARDATA_ANY(a), VARDATA_ANY(t), VARSIZE_ANY_EXHDR(a)) == 0;
}

static bool
heap_read_hinted(IdemStore *store, text *scope, text *key, uint32 hash,
				 IdemRow *row)
{
	ItemPointerData tid = hints[hash % HINTS].tid;

	if (hints_epoch != idem_catalog_epoch(IDEM_REL_KEY))
	{
		memset(hints, 0, sizeof(hints));
		hints_epoch = idem_catalog_epoch(IDEM_REL_KEY);
		return false;
	}
	/* our lock keeps the table from being cut shorter after this look */
	if (hints[hash % HINTS].hash != hash || !ItemPointerIsValid(&tid) ||
		ItemPointerGetBlockNumber(&tid) >=
		RelationGetNumberOfBlocks(store->rel) ||
		!table_tuple_fetch_row_version(store->rel, &tid, &store->dirty,
									   store->read_slot))
		return false;
	if (TransactionIdIsValid(store->dirty.xmin))
	{
		ExecClearTuple(store->read_slot);
		return false;
	}
	heap_take_row(store, store->read_slot, row);
	store->pending = InvalidTransactionId;
	return heap_same_text(key, row->values[IDEM_COL_KEY]) &&
		heap_same_text(scope, row->values[IDEM_COL_SCOPE]);
}

static void
heap_note_hint(const IdemRow *row, uint32 hash)
{
	if (row->nulls[IDEM_COL_FINISHED_AT])
		return;
	hints[hash % HINTS].hash = hash;
	hints[hash % HINTS].tid = row->tid;
}

/*
 * Moves whenever any transaction ends.
 */
static uint64
heap_completions(void)
{
	return GetLatestSnapshot()->snapXactCompletionCount;
}

/*
 * See idem_store_read().
 *
 * A version that moved to another page while we were between its old and its
 * new index entry can be missed by a probe: the old one was already replaced,
 * the new one not yet there, or not yet committed.  Its mover committed during
 * the probe then.  So "absent" is sure if no transaction ended meanwhile, and
 * where it has to be, the probe is repeated until that is so.
 */
bool
idem_heap_read(IdemStore *store, text *scope, text *key, bool sure,
			   IdemRow *row)
{
	uint32		hash = heap_hint_hash(scope, key);
	uint64		before;

	if (heap_read_hinted(store, scope, key, hash, row))
		return true;
	if (heap_probe(store, scope, key, row))
	{
		heap_note_hint(row, hash);
		return true;
	}
	if (!sure)
		return false;

	do
	{
		CHECK_FOR_INTERRUPTS();
		before = heap_completions();
		if (heap_probe(store, scope, key, row))
			return true;
	} while (heap_completions() != before);
	return false;
}

/*
 * See idem_store_read_at().
 */
bool
idem_heap_read_at(IdemStore *store, ItemPointer tid,
				  text *scope, text *key, IdemRow *row)
{
	store->pending = InvalidTransactionId;
	if (!table_tuple_fetch_row_version(store->rel, tid, SnapshotSelf,
									   store->read_slot))
		return false;
	heap_take_row(store, store->read_slot, row);

	/* after a rollback the place may be another row's */
	return heap_same_text(key, row->values[IDEM_COL_KEY]) &&
		heap_same_text(scope, row->values[IDEM_COL_SCOPE]);
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

static void
heap_sleep_behind_xact(void *arg)
{
	XactLockTableWait(*(TransactionId *) arg, NULL, NULL, XLTW_None);
}

/*
 * Sleeps behind the transaction that is inserting the key.
 */
static IdemStoreResult
heap_wait_for_pending(IdemStore *store, const IdemWait *wait)
{
	/* a speculative insertion is over in a moment, one way or the other */
	if (store->pending_token != 0)
	{
		SpeculativeInsertionWait(store->pending, store->pending_token);
		return IDEM_STORE_CHANGED;
	}
	if (!wait->forever && wait->until <= GetCurrentTimestamp())
		return IDEM_XACT_LOCK_TRY(store->pending) ?
			IDEM_STORE_CHANGED : IDEM_STORE_BUSY;
	return idem_wait_run(wait, heap_sleep_behind_xact, &store->pending) ?
		IDEM_STORE_CHANGED : IDEM_STORE_BUSY;
}

/*
 * Puts the row's tuple into the write slot.
 */
static TupleTableSlot *
heap_form_slot(IdemStore *store, IdemRow *row)
{
	TupleDesc	desc = RelationGetDescr(store->rel);

	if (store->write_slot == NULL)
	{
		MemoryContext caller = MemoryContextSwitchTo(store->context);
		ResourceOwner owner = CurrentResourceOwner;

		/* it outlives the subtransaction that we may be in */
		CurrentResourceOwner = store->owner;
		store->write_slot = MakeSingleTupleTableSlot(desc, &TTSOpsHeapTuple);
		CurrentResourceOwner = owner;
		MemoryContextSwitchTo(caller);
	}
	ExecStoreHeapTuple(heap_form_tuple(desc, row->values, row->nulls),
					   store->write_slot, true);
	return store->write_slot;
}

/*
 * Gives the tuple in the slot its entry in every ready index.  With "partial",
 * false means that a unique index already had the key.
 */
static bool
heap_insert_entries(IdemStore *store, TupleTableSlot *slot, bool partial)
{
	List	   *indexes = RelationGetIndexList(store->rel);
	ListCell   *lc;
	bool		unique = true;

	foreach(lc, indexes)
	{
		Oid			indexid = lfirst_oid(lc);
		bool		is_pk = indexid == RelationGetRelid(store->pk);
		Relation	index = is_pk ? store->pk :
		index_open(indexid, RowExclusiveLock);

		if (index->rd_index->indisready)
		{
			IndexInfo  *info = BuildIndexInfo(index);
			Datum		values[INDEX_MAX_KEYS];
			bool		nulls[INDEX_MAX_KEYS];
			IndexUniqueCheck check = UNIQUE_CHECK_NO;

			if (index->rd_index->indisunique)
				check = partial ? UNIQUE_CHECK_PARTIAL : UNIQUE_CHECK_YES;
			FormIndexDatum(info, slot, NULL, values, nulls);
			/* what it returns means something only for a partial check */
			if (!index_insert(index, values, nulls, &slot->tts_tid,
							  store->rel, check, !partial, info) &&
				check == UNIQUE_CHECK_PARTIAL)
				unique = false;
			pfree(info);
		}
		if (!is_pk)
			index_close(index, NoLock);
	}
	list_free(indexes);
	return unique;
}

/*
 * See idem_store_insert().
 */
IdemStoreResult
idem_heap_insert(IdemStore *store, IdemRow *row, const IdemWait *wait)
{
	TransactionId xid;
	TupleTableSlot *slot;
	uint32		token;
	bool		unique;

	if (TransactionIdIsValid(store->pending))
		return heap_wait_for_pending(store, wait);

	slot = heap_form_slot(store, row);
	xid = GetCurrentTransactionId();
	token = SpeculativeInsertionLockAcquire(xid);
	table_tuple_insert_speculative(store->rel, slot,
								   GetCurrentCommandId(true), 0, NULL, token);
	unique = heap_insert_entries(store, slot, true);
	table_tuple_complete_speculative(store->rel, slot, token, unique);
	SpeculativeInsertionLockRelease(xid);

	row->tid = slot->tts_tid;
	row->xmin = xid;
	ExecClearTuple(slot);
	return unique ? IDEM_STORE_OK : IDEM_STORE_CHANGED;
}

typedef struct HeapLock
{
	IdemStore  *store;
	ItemPointerData tid;
	LockTupleMode mode;
	LockWaitPolicy policy;
	TM_Result	result;
} HeapLock;

static void
heap_lock_row(void *arg)
{
	HeapLock   *lock = (HeapLock *) arg;
	TM_FailureData failure;

	lock->result = table_tuple_lock(lock->store->rel, &lock->tid,
									GetActiveSnapshot(),
									lock->store->read_slot,
									GetCurrentCommandId(true), lock->mode,
									lock->policy, 0, &failure);
	ExecClearTuple(lock->store->read_slot);
}

/*
 * Gets hold of the version that was read, sleeping no longer than allowed.
 * What may sleep for ever does that in the update or delete itself.
 */
static IdemStoreResult
heap_get_hold(IdemStore *store, const IdemRow *old, LockTupleMode mode,
			  const IdemWait *wait)
{
	HeapLock	lock = {
		.store = store,
		.tid = old->tid,
		.mode = mode,
		.policy = LockWaitSkip
	};

	if (wait->forever)
		return IDEM_STORE_OK;

	/* mostly nobody is there: no subtransaction for that */
	heap_lock_row(&lock);
	if (lock.result == TM_WouldBlock &&
		wait->until > GetCurrentTimestamp())
	{
		lock.policy = LockWaitBlock;
		if (!idem_wait_run(wait, heap_lock_row, &lock))
			return IDEM_STORE_BUSY;
	}

	switch (lock.result)
	{
		case TM_Ok:
			return IDEM_STORE_OK;
		case TM_WouldBlock:
			return IDEM_STORE_BUSY;
		default:
			return IDEM_STORE_CHANGED;
	}
}

static IdemStoreResult
heap_result(TM_Result result)
{
	switch (result)
	{
		case TM_Ok:
			return IDEM_STORE_OK;
		case TM_SelfModified:
		case TM_Updated:
		case TM_Deleted:
			return IDEM_STORE_CHANGED;
		default:
			elog(ERROR, "unexpected table_tuple status: %u", result);
	}
}

/*
 * See idem_store_update().
 */
IdemStoreResult
idem_heap_update(IdemStore *store, const IdemRow *old, IdemRow *row,
				 const IdemWait *wait)
{
	ItemPointerData tid = old->tid;
	TM_FailureData failure;
	LockTupleMode lockmode;
	IdemIndexesToUpdate indexes;
	IdemStoreResult result;
	TupleTableSlot *slot;

	/* a version that this very command wrote may be replaced too */
	CommandCounterIncrement();

	result = heap_get_hold(store, old, LockTupleNoKeyExclusive, wait);
	if (result != IDEM_STORE_OK)
		return result;

	slot = heap_form_slot(store, row);
	result = heap_result(table_tuple_update(store->rel, &tid, slot,
											GetCurrentCommandId(true),
											GetActiveSnapshot(),
											InvalidSnapshot, true, &failure,
											&lockmode, &indexes));
	if (result == IDEM_STORE_OK)
	{
		if (IDEM_INDEXES_NEED_ENTRY(indexes))
			heap_insert_entries(store, slot, false);
		row->tid = slot->tts_tid;
		row->xmin = GetCurrentTransactionId();
	}
	ExecClearTuple(slot);
	return result;
}

/*
 * See idem_store_delete().
 */
IdemStoreResult
idem_heap_delete(IdemStore *store, const IdemRow *old, const IdemWait *wait)
{
	ItemPointerData tid = old->tid;
	TM_FailureData failure;
	IdemStoreResult result;

	CommandCounterIncrement();

	result = heap_get_hold(store, old, LockTupleExclusive, wait);
	if (result != IDEM_STORE_OK)
		return result;

	return heap_result(table_tuple_delete(store->rel, &tid,
										  GetCurrentCommandId(true),
										  GetActiveSnapshot(),
										  InvalidSnapshot, true, &failure,
										  false));
}
