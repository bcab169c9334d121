/*
 * timer_find.c
 *	  The timers of rows, found and deleted without SQL.
 *
 * They are found as they are at this moment, whatever the transaction's snapshot
 * is: the row is locked by who moves it, so nobody else makes timers of its
 * stay.  That leaves nothing behind, at SERIALIZABLE, that the timers of other rows
 * on the same page of the index would run into.
 *
 * A timer that a ticker has locked is left to it: it finds that the row has moved,
 * and removes it.  So neither writers nor other tickers wait for the end of a
 * batch, deadlock with it, or fail with 40001 because of it.  A ticker that moves
 * the row itself removes the timer in the transaction that has locked it; deleted
 * in its subtransaction, each would be of a MultiXactId of the two.
 *
 * The table is idem's own, and nobody's triggers on it are promised to fire.
 *
 * Locks: a row's timers, after the row, those only that can be had at once.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_am.h"
#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/jsonb.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "catalog.h"
#include "own.h"
#include "timer.h"

/* columns of idem.timer, in order */
enum
{
	TIMER_MACHINE = 1,
	TIMER_SCHEMA,
	TIMER_TABLE,
	TIMER_BINDING,
	TIMER_ROW_KEY,
	TIMER_ROW_HASH
};

struct IdemTimersFound
{
	ItemPointerData *tids;
	int			n;
	int			room;
};

/*
 * The index by which a row is found, or InvalidOid: then all is read.  What it may
 * lack for snapshots that are older than it (indcheckxmin) is not looked for.
 */
static Oid
find_index(Relation rel)
{
	Oid			found = InvalidOid;
	List	   *oids = RelationGetIndexList(rel);
	ListCell   *lc;

	foreach(lc, oids)
	{
		Relation	index = index_open(lfirst_oid(lc), AccessShareLock);

		if (index->rd_rel->relam == BTREE_AM_OID &&
			index->rd_index->indisvalid &&
			index->rd_index->indkey.values[0] == TIMER_ROW_HASH &&
			idem_own_index_is_plain(index))
			found = lfirst_oid(lc);
		index_close(index, NoLock);
	}
	list_free(oids);
	return found;
}

static bool
find_is_text(HeapTuple tuple, TupleDesc desc, int column, const char *value)
{
	bool		isnull;
	Datum		datum = heap_getattr(tuple, column, desc, &isnull);
	text	   *found;

	if (isnull)
		return false;
	found = DatumGetTextPP(datum);
	return VARSIZE_ANY_EXHDR(found) == strlen(value) &&
		memcmp(VARDATA_ANY(found), value, strlen(value)) == 0;
}

static void
find_add(IdemTimersFound * found, ItemPointer tid)
{
	if (found->n == found->room)
	{
		found->room = Max(2 * found->room, 16);
		found->tids = found->tids == NULL ?
			palloc(found->room * sizeof(ItemPointerData)) :
			repalloc_huge(found->tids,
						  (Size) found->room * sizeof(ItemPointerData));
	}
	found->tids[found->n++] = *tid;
}

/*
 * Its owner may have put something else in the place of idem.timer.
 */
Relation
idem_timers_open_table(void)
{
	static const Oid types[] = {
		[TIMER_MACHINE - 1] = TEXTOID,
		[TIMER_SCHEMA - 1] = TEXTOID,
		[TIMER_TABLE - 1] = TEXTOID,
		[TIMER_BINDING - 1] = TEXTOID,
		[TIMER_ROW_KEY - 1] = JSONBOID,
		[TIMER_ROW_HASH - 1] = INT8OID
	};
	Relation	rel = table_open(idem_catalog_relation(IDEM_REL_TIMER),
								 RowExclusiveLock);

	idem_own_require(rel, types, lengthof(types));
	return rel;
}

/*
 * The timers of a binding's rows that have those hashes and keys.
 */
IdemTimersFound *
idem_timers_find(Oid relid, const char *tag, const Datum *hashes,
				 const Datum *keys, int n)
{
	IdemTimersFound *found = palloc0(sizeof(IdemTimersFound));
	const char *schema = get_namespace_name(get_rel_namespace(relid));
	const char *table = get_rel_name(relid);
	Relation	rel = idem_timers_open_table();
	TupleDesc	desc = RelationGetDescr(rel);
	Oid			index = find_index(rel);

	/* what this transaction has written so far can be deleted from here on */
	CommandCounterIncrement();
	for (int i = 0; i < n; i++)
	{
		Jsonb	   *key = DatumGetJsonbP(keys[i]);
		ScanKeyData hash;
		SysScanDesc scan;
		HeapTuple	tuple;

		ScanKeyInit(&hash, TIMER_ROW_HASH, BTEqualStrategyNumber, F_INT8EQ,
					hashes[i]);
		scan = systable_beginscan(rel, index, OidIsValid(index), SnapshotSelf,
								  1, &hash);
		while (HeapTupleIsValid(tuple = systable_getnext(scan)))
		{
			bool		isnull;
			Datum		row_key = heap_getattr(tuple, TIMER_ROW_KEY, desc,
											   &isnull);

			if (!isnull &&
				find_is_text(tuple, desc, TIMER_TABLE, table) &&
				find_is_text(tuple, desc, TIMER_SCHEMA, schema) &&
				find_is_text(tuple, desc, TIMER_BINDING, tag) &&
				compareJsonbContainers(&key->root,
									   &DatumGetJsonbP(row_key)->root) == 0)
				find_add(found, &tuple->t_self);
		}
		systable_endscan(scan);
	}
	table_close(rel, NoLock);
	return found;
}

/*
 * Locks a timer, unless somebody else is at it, or it is not what it was.
 */
bool
idem_timers_lock(Relation rel, ItemPointer tid, TupleTableSlot *slot)
{
	TM_FailureData failure;

	return table_tuple_lock(rel, tid, GetActiveSnapshot(), slot,
							GetCurrentCommandId(true), LockTupleExclusive,
							LockWaitSkip, 0, &failure) == TM_Ok;
}

/*
 * Whether a timer that is locked was so before, by the ticker within whose
 * subtransaction this is.
 */
static bool
find_is_held(TupleTableSlot *slot)
{
	HeapTuple	tuple = ExecFetchSlotHeapTuple(slot, false, NULL);

	return HeapTupleHeaderGetRawXmax(tuple->t_data) !=
		GetCurrentTransactionId();
}

/*
 * Deletes what was found, but what a ticker is at.
 */
void
idem_timers_delete(IdemTimersFound * found)
{
	Relation	rel;
	TupleTableSlot *slot;

	if (found->n == 0)
		return;
	rel = idem_timers_open_table();
	slot = table_slot_create(rel, NULL);
	for (int i = 0; i < found->n; i++)
	{
		if (idem_timers_lock(rel, &found->tids[i], slot) &&
			!find_is_held(slot))
			simple_table_tuple_delete(rel, &found->tids[i],
									  GetActiveSnapshot());
	}
	ExecDropSingleTupleTableSlot(slot);
	table_close(rel, NoLock);
}
