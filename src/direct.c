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
 *
 * Nobody's privileges are looked at: whoever calls has judged them.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/hio.h"
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
#include "catalog/pg_type.h"
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

#include "compat.h"
#include "direct.h"
#include "name.h"

/* what a row's next version may need more than this one */
#define ROOM_TO_GROW	512

/*
 * Whether a distributing engine has taken the table over: Citus lists such
 * tables in pg_catalog.pg_dist_partition.
 */
bool
idem_direct_has_foreign_planner(Oid relid)
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

static bool
direct_index_is_plain(Relation index, int nkeys, bool primary)
{
	Form_pg_index form = index->rd_index;

	if (index->rd_rel->relam != BTREE_AM_OID ||
		RelationGetIndexExpressions(index) != NIL ||
		RelationGetIndexPredicate(index) != NIL ||
		form->indisexclusion || !form->indimmediate)
		return false;
	if (!form->indisunique)
		return true;
	if (form->indnkeyatts != nkeys || (primary && !form->indisvalid))
		return false;
	for (int i = 0; i < nkeys; i++)
	{
		if (form->indkey.values[i] < 1 ||
			form->indkey.values[i] > nkeys ||
			(OidIsValid(index->rd_indcollation[i]) &&
			 index->rd_indcollation[i] != C_COLLATION_OID))
			return false;
	}
	return true;
}

/*
 * Whether every index is one that direct_insert_entries() can serve, and the
 * primary key is on the first "nkeys" columns, in whichever order, compared
 * byte by byte, immediate and valid.  Another unique index has to be on the
 * same: a conflict elsewhere would be taken for one of the key.
 */
static bool
direct_indexes_are_plain(Relation rel, int nkeys)
{
	bool		plain;
	Oid			pk;

	do
	{
		List	   *indexes = RelationGetIndexList(rel);
		ListCell   *lc;

		pk = rel->rd_pkindex;
		plain = OidIsValid(pk);
		foreach(lc, indexes)
		{
			Relation	index = index_open(lfirst_oid(lc), AccessShareLock);

			plain = plain &&
				direct_index_is_plain(index, nkeys,
									  RelationGetRelid(index) == pk);
			index_close(index, AccessShareLock);
		}
		list_free(indexes);

		/* where another became the primary key meanwhile, look again */
	} while (!rel->rd_indexvalid || rel->rd_pkindex != pk);
	return plain;
}

/*
 * Whether the table has exactly these columns, and nothing stands on it that
 * only the executor would honour.
 */
bool
idem_direct_suitable(Relation rel, int natts, const Oid *types, int nkeys)
{
	TupleDesc	desc = RelationGetDescr(rel);

	if (rel->rd_rel->relkind != RELKIND_RELATION ||
		rel->rd_rel->relam != HEAP_TABLE_AM_OID ||
		rel->rd_rel->relispartition || rel->rd_rel->relhassubclass ||
		rel->rd_rel->relrowsecurity ||
		rel->rd_rel->relreplident != REPLICA_IDENTITY_DEFAULT ||
		rel->rd_rules != NULL || rel->trigdesc != NULL)
		return false;

	if (desc->natts != natts ||
		(desc->constr != NULL &&
		 (desc->constr->num_check > 0 || desc->constr->has_generated_stored)))
		return false;
	for (int i = 0; i < natts; i++)
	{
		if (TupleDescAttr(desc, i)->attisdropped ||
			TupleDescAttr(desc, i)->atttypid != types[i])
			return false;
	}

	return direct_indexes_are_plain(rel, nkeys) &&
		!idem_direct_has_foreign_planner(RelationGetRelid(rel));
}

/*
 * Takes an opened and locked table that is suitable.
 */
void
idem_direct_open(IdemDirect *table, Relation rel, int nkeys, LOCKMODE lockmode)
{
	memset(table, 0, sizeof(IdemDirect));
	table->rel = rel;
	table->nkeys = nkeys;
	table->context = CurrentMemoryContext;
	table->owner = CurrentResourceOwner;

	/* rd_pkindex is known once the list of indexes is */
	if (!rel->rd_indexvalid)
		list_free(RelationGetIndexList(rel));
	table->pk = index_open(rel->rd_pkindex, lockmode);
	table->read_slot = table_slot_create(rel, NULL);
	InitDirtySnapshot(table->dirty);
}

static void
direct_release_token(IdemDirect *table)
{
	ResourceOwner owner = CurrentResourceOwner;
	LOCKTAG		tag;

	if (table->token == 0)
		return;
	/* the executor may have taken others since */
	SET_LOCKTAG_SPECULATIVE_INSERTION(tag, table->token_xid, table->token);
	table->token = 0;
	CurrentResourceOwner = table->owner;
	LockRelease(&tag, ExclusiveLock, false);
	CurrentResourceOwner = owner;
}

/*
 * The token of a speculative insertion, with the lock that others sleep behind
 * who meet the row before it is confirmed.  Where many rows are inserted, it is
 * one lock for all of them, until the table is closed: who slept behind it
 * would have slept behind our transaction next.  A row that is not kept must
 * not hold up anybody, so its token is released.
 */
static uint32
direct_take_token(IdemDirect *table, TransactionId xid)
{
	ResourceOwner owner = CurrentResourceOwner;

	if (table->token != 0 && table->token_xid == xid)
		return table->token;
	direct_release_token(table);
	CurrentResourceOwner = table->owner;
	table->token = SpeculativeInsertionLockAcquire(xid);
	table->token_xid = xid;
	CurrentResourceOwner = owner;
	return table->token;
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
	direct_release_token(table);
	list_free(table->indexes);
	if (table->write_slot != NULL)
		ExecDropSingleTupleTableSlot(table->write_slot);
	ExecDropSingleTupleTableSlot(table->read_slot);
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
					 errhint("Take back what was changed on the table."),
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
 * Copies the tuple in the slot out of its buffer and takes it apart.  The page
 * is pruned if another version of the row might not find room there.
 */
static HeapTuple
direct_take_row(IdemDirect *table, Datum *values, bool *nulls)
{
	HeapTuple	tuple = ExecCopySlotHeapTuple(table->read_slot);
	Buffer		buffer = ((BufferHeapTupleTableSlot *) table->read_slot)->buffer;

	if (PageGetExactFreeSpace(BufferGetPage(buffer)) <
		tuple->t_len + ROOM_TO_GROW)
		heap_page_prune_opt(table->rel, buffer);
	heap_deform_tuple(tuple, RelationGetDescr(table->rel), values, nulls);
	ExecClearTuple(table->read_slot);
	return tuple;
}

/*
 * The next entry of the scan whose row has a version for us, which is in the
 * read slot then.  As index_getnext_slot(), but without pruning the page each
 * time, which would be the greater part of the work where each look is followed
 * by an update; see direct_take_row().
 */
static bool
direct_next(IdemDirect *table)
{
	IndexScanDesc scan = table->scan;
	BufferHeapTupleTableSlot *slot =
	(BufferHeapTupleTableSlot *) table->read_slot;

	while (index_getnext_tid(scan, ForwardScanDirection) != NULL)
	{
		ItemPointerData tid = scan->xs_heaptid;
		Buffer		buffer = ReadBuffer(table->rel,
										ItemPointerGetBlockNumber(&tid));
		bool		all_dead = false;
		bool		found;

		ExecClearTuple(table->read_slot);
		LockBuffer(buffer, BUFFER_LOCK_SHARE);
		found = heap_hot_search_buffer(&tid, table->rel, buffer,
									   &table->dirty, &slot->base.tupdata,
									   &all_dead, true);
		LockBuffer(buffer, BUFFER_LOCK_UNLOCK);
		if (found)
		{
			slot->base.tupdata.t_tableOid = RelationGetRelid(table->rel);
			ExecStorePinnedBufferHeapTuple(&slot->base.tupdata,
										   table->read_slot, buffer);
			return true;
		}
		ReleaseBuffer(buffer);
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
	ScanKeyData skey[IDEM_DIRECT_MAX_KEYS];
	MemoryContext caller;
	bool		found = false;

	for (int i = 0; i < table->nkeys; i++)
	{
		int			column = table->pk->rd_index->indkey.values[i] - 1;

		ScanKeyInit(&skey[i], i + 1, BTEqualStrategyNumber,
					direct_equality(table, column), key[column]);
	}

	/* what the scan allocates on the way lives as long as the scan */
	caller = MemoryContextSwitchTo(table->context);
	if (table->scan == NULL)
		table->scan = IDEM_INDEX_BEGINSCAN(table->rel, table->pk,
										   &table->dirty, table->nkeys);
	index_rescan(table->scan, skey, table->nkeys, NULL, 0);

	table->pending = InvalidTransactionId;
	while (!found && direct_next(table))
	{
		if (!TransactionIdIsValid(table->dirty.xmin))
			found = true;
		else
		{
			table->pending = table->dirty.xmin;
			table->pending_token = table->dirty.speculativeToken;
		}
	}
	/* the caller may sleep, and VACUUM would wait for the pin on the leaf */
	index_rescan(table->scan, NULL, table->nkeys, NULL, 0);
	MemoryContextSwitchTo(caller);

	if (found)
		return direct_take_row(table, values, nulls);
	ExecClearTuple(table->read_slot);
	return NULL;
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
	HeapTuple	tuple;

	table->pending = InvalidTransactionId;
	if (!table_tuple_fetch_row_version(table->rel, tid, snapshot,
									   table->read_slot))
		return NULL;
	tuple = direct_take_row(table, values, nulls);
	return direct_is_row_of(table, key, values) ? tuple : NULL;
}

/*
 * Hints say where a session saw a row last, so that it need not descend the
 * index each time.  Only a hint: the tuple that stands there now has to be a
 * committed version (or our own) of the very row, and such a version is the
 * only one.  All hints go when "epoch" says that the table has changed.
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

HeapTuple
idem_direct_hinted(IdemDirect *table, IdemHints *hints, uint64 epoch,
				   uint32 hash, const Datum *key, Datum *values, bool *nulls)
{
	ItemPointerData tid = hints->hint[hash % IDEM_HINTS].tid;

	if (hints->epoch != epoch)
	{
		memset(hints, 0, sizeof(IdemHints));
		hints->epoch = epoch;
		return NULL;
	}
	/* our lock keeps the table from being cut shorter after this look */
	if (hints->hint[hash % IDEM_HINTS].hash != hash ||
		!ItemPointerIsValid(&tid) ||
		ItemPointerGetBlockNumber(&tid) >=
		RelationGetNumberOfBlocks(table->rel) ||
		!table_tuple_fetch_row_version(table->rel, &tid, &table->dirty,
									   table->read_slot))
		return NULL;
	table->pending = InvalidTransactionId;
	if (!TransactionIdIsValid(table->dirty.xmin))
	{
		HeapTuple	tuple = direct_take_row(table, values, nulls);

		if (direct_is_row_of(table, key, values))
			return tuple;
	}
	ExecClearTuple(table->read_slot);
	return NULL;
}

void
idem_direct_note(IdemHints *hints, uint32 hash, ItemPointer tid)
{
	hints->hint[hash % IDEM_HINTS].hash = hash;
	hints->hint[hash % IDEM_HINTS].tid = *tid;
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

/*
 * Puts the row's tuple into the write slot.
 */
static TupleTableSlot *
direct_form_slot(IdemDirect *table, Datum *values, bool *nulls)
{
	TupleDesc	desc = RelationGetDescr(table->rel);

	if (table->write_slot == NULL)
	{
		MemoryContext caller = MemoryContextSwitchTo(table->context);
		ResourceOwner owner = CurrentResourceOwner;

		/* it outlives the subtransaction that we may be in */
		CurrentResourceOwner = table->owner;
		table->write_slot = MakeSingleTupleTableSlot(desc, &TTSOpsHeapTuple);
		CurrentResourceOwner = owner;
		MemoryContextSwitchTo(caller);
	}
	ExecStoreHeapTuple(heap_form_tuple(desc, values, nulls),
					   table->write_slot, true);
	return table->write_slot;
}

/*
 * The indexes that there are.  As for a statement of the executor's, the list
 * stays good while we hold the table: who builds an index waits for us.
 */
static List *
direct_indexes(IdemDirect *table)
{
	if (table->indexes == NIL)
	{
		MemoryContext caller = MemoryContextSwitchTo(table->context);

		table->indexes = RelationGetIndexList(table->rel);
		MemoryContextSwitchTo(caller);
	}
	return table->indexes;
}

static IndexInfo *
direct_index_info(IdemDirect *table, Relation index)
{
	MemoryContext caller;

	if (index != table->pk)
		return BuildIndexInfo(index);
	if (table->pk_info == NULL)
	{
		caller = MemoryContextSwitchTo(table->context);
		table->pk_info = BuildIndexInfo(index);
		MemoryContextSwitchTo(caller);
	}
	return table->pk_info;
}

/*
 * Gives the tuple in the slot its entry in every ready index.  With "partial",
 * false means that a unique index already had the key.
 */
static bool
direct_insert_entries(IdemDirect *table, TupleTableSlot *slot, bool partial)
{
	ListCell   *lc;
	bool		unique = true;

	foreach(lc, direct_indexes(table))
	{
		Oid			indexid = lfirst_oid(lc);
		bool		is_pk = indexid == RelationGetRelid(table->pk);
		Relation	index = is_pk ? table->pk :
		index_open(indexid, RowExclusiveLock);

		if (index->rd_index->indisready)
		{
			IndexInfo  *info = direct_index_info(table, index);
			Datum		values[INDEX_MAX_KEYS];
			bool		nulls[INDEX_MAX_KEYS];
			IndexUniqueCheck check = UNIQUE_CHECK_NO;

			if (index->rd_index->indisunique)
				check = partial ? UNIQUE_CHECK_PARTIAL : UNIQUE_CHECK_YES;
			FormIndexDatum(info, slot, NULL, values, nulls);
			/* what it returns means something only for a partial check */
			if (!index_insert(index, values, nulls, &slot->tts_tid,
							  table->rel, check, !partial, info) &&
				check == UNIQUE_CHECK_PARTIAL)
				unique = false;
			if (info != table->pk_info)
				pfree(info);
		}
		if (!is_pk)
			index_close(index, NoLock);
	}
	return unique;
}

/*
 * Inserts a row of which the last probe found none, and says where it is.
 */
IdemStoreResult
idem_direct_insert(IdemDirect *table, Datum *values, bool *nulls,
				   const IdemWait *wait, ItemPointer tid)
{
	TransactionId xid;
	TupleTableSlot *slot;
	uint32		token;
	bool		unique;

	if (TransactionIdIsValid(table->pending))
		return idem_direct_wait(table, wait);

	slot = direct_form_slot(table, values, nulls);
	xid = GetCurrentTransactionId();
	token = direct_take_token(table, xid);
	table_tuple_insert_speculative(table->rel, slot,
								   GetCurrentCommandId(true), 0, table->bulk,
								   token);
	unique = direct_insert_entries(table, slot, true);
	table_tuple_complete_speculative(table->rel, slot, token, unique);
	if (!unique || table->bulk == NULL)
		direct_release_token(table);

	*tid = slot->tts_tid;
	ExecClearTuple(slot);
	return unique ? IDEM_STORE_OK : IDEM_STORE_CHANGED;
}

typedef struct DirectLock
{
	IdemDirect *table;
	ItemPointerData tid;
	LockTupleMode mode;
	LockWaitPolicy policy;
	TM_Result	result;
} DirectLock;

static void
direct_lock_row(void *arg)
{
	DirectLock *lock = (DirectLock *) arg;
	TM_FailureData failure;
	uint8		flags = 0;

	/* what updates let through has to stand on the new version too */
	if (lock->mode == LockTupleKeyShare)
		flags = TUPLE_LOCK_FLAG_LOCK_UPDATE_IN_PROGRESS;
	lock->result = table_tuple_lock(lock->table->rel, &lock->tid,
									GetActiveSnapshot(),
									lock->table->read_slot,
									GetCurrentCommandId(true), lock->mode,
									lock->policy, flags, &failure);
	ExecClearTuple(lock->table->read_slot);
}

static IdemStoreResult
direct_result(TM_Result result)
{
	switch (result)
	{
		case TM_Ok:
			return IDEM_STORE_OK;
		case TM_SelfModified:
		case TM_Updated:
		case TM_Deleted:
			return IDEM_STORE_CHANGED;
		case TM_WouldBlock:
			return IDEM_STORE_BUSY;
		default:
			elog(ERROR, "unexpected table_tuple status: %u", result);
	}
}

/*
 * Locks the version that was read, sleeping no longer than allowed.
 */
IdemStoreResult
idem_direct_lock(IdemDirect *table, ItemPointer tid, LockTupleMode mode,
				 const IdemWait *wait)
{
	DirectLock	lock = {
		.table = table,
		.tid = *tid,
		.mode = mode,
		.policy = wait->forever ? LockWaitBlock : LockWaitSkip
	};

	/* mostly nobody is there: no subtransaction for that */
	direct_lock_row(&lock);
	if (lock.result == TM_WouldBlock &&
		wait->until > GetCurrentTimestamp())
	{
		lock.policy = LockWaitBlock;
		if (!idem_wait_run(wait, direct_lock_row, &lock))
			return IDEM_STORE_BUSY;
	}
	/* this transaction has replaced or deleted it since it was read */
	if (lock.result == TM_Invisible)
		return IDEM_STORE_CHANGED;
	return direct_result(lock.result);
}

/*
 * Replaces the version that was read by one with the same key, and says where
 * that is.  What may sleep for ever does so in the update itself.
 */
IdemStoreResult
idem_direct_update(IdemDirect *table, ItemPointer tid, Datum *values,
				   bool *nulls, const IdemWait *wait)
{
	ItemPointerData old = *tid;
	TM_FailureData failure;
	LockTupleMode lockmode;
	IdemIndexesToUpdate indexes;
	IdemStoreResult result;
	TupleTableSlot *slot;

	/* a version that this very command wrote may be replaced too */
	CommandCounterIncrement();

	if (!wait->forever)
	{
		result = idem_direct_lock(table, &old, LockTupleNoKeyExclusive, wait);
		if (result != IDEM_STORE_OK)
			return result;
	}

	slot = direct_form_slot(table, values, nulls);
	result = direct_result(table_tuple_update(table->rel, &old, slot,
											  GetCurrentCommandId(true),
											  GetActiveSnapshot(),
											  InvalidSnapshot, true, &failure,
											  &lockmode, &indexes));
	if (result == IDEM_STORE_OK)
	{
		if (IDEM_INDEXES_NEED_ENTRY(indexes))
			direct_insert_entries(table, slot, false);
		*tid = slot->tts_tid;
	}
	ExecClearTuple(slot);
	return result;
}

/*
 * Deletes the version that was read.
 */
IdemStoreResult
idem_direct_delete(IdemDirect *table, ItemPointer tid, const IdemWait *wait)
{
	ItemPointerData old = *tid;
	TM_FailureData failure;
	IdemStoreResult result;

	CommandCounterIncrement();

	if (!wait->forever)
	{
		result = idem_direct_lock(table, &old, LockTupleExclusive, wait);
		if (result != IDEM_STORE_OK)
			return result;
	}
	return direct_result(table_tuple_delete(table->rel, &old,
											GetCurrentCommandId(true),
											GetActiveSnapshot(),
											InvalidSnapshot, true, &failure,
											false));
}
