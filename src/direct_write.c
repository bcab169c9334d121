/*
 * direct_write.c
 *	  Rows inserted, updated and deleted through the access methods.
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
#include "access/hio.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/index.h"
#include "executor/executor.h"
#include "storage/lmgr.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "direct.h"

void
idem_direct_release_token(IdemDirect *table)
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
	idem_direct_release_token(table);
	CurrentResourceOwner = table->owner;
	table->token = SpeculativeInsertionLockAcquire(xid);
	table->token_xid = xid;
	CurrentResourceOwner = owner;
	return table->token;
}

/*
 * Puts the row's tuple into the write slot.  A NOT NULL may be the owner's, as a
 * statement would find.
 */
static TupleTableSlot *
direct_form_slot(IdemDirect *table, Datum *values, bool *nulls)
{
	TupleDesc	desc = RelationGetDescr(table->rel);

	for (int i = 0; i < desc->natts; i++)
	{
		if (nulls[i] && TupleDescAttr(desc, i)->attnotnull)
			ereport(ERROR,
					(errcode(ERRCODE_NOT_NULL_VIOLATION),
					 errmsg("null value in column \"%s\" of relation \"%s\" violates not-null constraint",
							NameStr(TupleDescAttr(desc, i)->attname),
							RelationGetRelationName(table->rel)),
					 errhidestmt(true),
					 errtablecol(table->rel, i + 1)));
	}
	if (table->write_slot == NULL)
		table->write_slot = idem_direct_make_slot(table, &TTSOpsHeapTuple);
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
 * What the primary key has of a row.
 */
static void
direct_form_key(IdemDirect *table, const Datum *row, Datum *values, bool *nulls)
{
	for (int i = 0; i < table->nkeys; i++)
	{
		values[i] = row[table->pk->rd_index->indkey.values[i] - 1];
		nulls[i] = false;
	}
}

/*
 * Gives the tuple in the slot, which has the values "row", its entry in every
 * ready index.  With "partial", false means that a unique index already had the
 * key.
 */
static bool
direct_insert_entries(IdemDirect *table, TupleTableSlot *slot,
					  const Datum *row, bool partial)
{
	Relation	pk = idem_direct_pk(table);
	ListCell   *lc;
	bool		unique = true;

	foreach(lc, direct_indexes(table))
	{
		Oid			indexid = lfirst_oid(lc);
		bool		is_pk = indexid == RelationGetRelid(pk);
		Relation	index = is_pk ? pk :
		index_open(indexid, RowExclusiveLock);

		if (index->rd_index->indisready)
		{
			IndexInfo  *info = direct_index_info(table, index);
			Datum		values[INDEX_MAX_KEYS];
			bool		nulls[INDEX_MAX_KEYS];
			IndexUniqueCheck check = UNIQUE_CHECK_NO;

			if (index->rd_index->indisunique)
				check = partial ? UNIQUE_CHECK_PARTIAL : UNIQUE_CHECK_YES;
			if (is_pk && index->rd_index->indnatts == table->nkeys)
				direct_form_key(table, row, values, nulls);
			else
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
 * The row has an index entry for this place from now on.
 */
static void
direct_has_moved(IdemDirect *table, ItemPointer tid)
{
	table->place = *tid;
	table->root = ItemPointerGetOffsetNumber(tid);
	table->place_buffer = InvalidBuffer;
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
	if (idem_direct_packs(table, slot))
		idem_direct_insert_packed(table, slot, token);
	else
		table_tuple_insert_speculative(table->rel, slot,
									   GetCurrentCommandId(true), 0,
									   table->bulk, token);
	unique = direct_insert_entries(table, slot, values, true);
	table_tuple_complete_speculative(table->rel, slot, token, unique);
	if (!unique || table->bulk == NULL)
		idem_direct_release_token(table);

	*tid = slot->tts_tid;
	direct_has_moved(table, tid);
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
	TupleTableSlot *slot = idem_direct_read_slot(lock->table);
	TM_FailureData failure;
	uint8		flags = 0;

	/* what updates let through has to stand on the new version too */
	if (lock->mode == LockTupleKeyShare)
		flags = TUPLE_LOCK_FLAG_LOCK_UPDATE_IN_PROGRESS;
	lock->result = table_tuple_lock(lock->table->rel, &lock->tid,
									GetActiveSnapshot(), slot,
									GetCurrentCommandId(true), lock->mode,
									lock->policy, flags, &failure);
	ExecClearTuple(slot);
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
		*tid = slot->tts_tid;
		table->place = *tid;
		/* else it is on the same page, and the index need not know */
		if (IDEM_INDEXES_NEED_ENTRY(indexes))
		{
			direct_insert_entries(table, slot, values, false);
			direct_has_moved(table, tid);
		}
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
