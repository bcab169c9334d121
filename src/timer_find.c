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
 * A row that moves again and again in one transaction leaves its dead timers in the
 * index, and each move would read all of them.  So the session remembers which
 * timers a row has after a move, for as long as nothing but moves makes any:
 * whatever else writes the table by SQL forgets all of it (idem_timers_run).
 * What is remembered holds for the subtransaction that wrote it and those around, and
 * is looked at before it is believed.
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
#include "catalog/pg_collation.h"
#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/jsonb.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "catalog.h"
#include "digest.h"
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

/* the timers that a row has since it moved in this transaction */
typedef struct Remembered
{
	Oid			relid;
	TransactionId xid;			/* what they are true in */
	uint64		tag;			/* the binding's, hashed */
	uint64		key;			/* the whole one, hashed */
	uint64		epoch;			/* of the table ... */
	uint64		generation;		/* ... and of what is remembered */
	int			n;
	ItemPointerData tids[4];
} Remembered;

static Remembered remembered[1024];
static uint64 generation = 1;

struct IdemTimersFound
{
	ItemPointerData *tids;
	int			n;
	int			room;
};

/* what a row is found by in an index, in order */
static const AttrNumber find_columns[] = {
	TIMER_ROW_HASH, TIMER_SCHEMA, TIMER_TABLE
};

/*
 * The index by which a row is found, and how many of its columns help; or
 * InvalidOid: then all is read.  What it may lack for snapshots that are older than
 * it (indcheckxmin) is not looked for.
 */
static Oid
find_index(Relation rel, int *ncolumns)
{
	Oid			found = InvalidOid;
	List	   *oids = RelationGetIndexList(rel);
	ListCell   *lc;

	*ncolumns = 0;
	foreach(lc, oids)
	{
		Relation	index = index_open(lfirst_oid(lc), AccessShareLock);
		int			n = 0;

		if (index->rd_rel->relam == BTREE_AM_OID &&
			index->rd_index->indisvalid &&
			idem_own_index_is_plain(index))
		{
			while (n < Min(lengthof(find_columns), index->rd_index->indnkeyatts) &&
				   index->rd_index->indkey.values[n] == find_columns[n] &&
				   (n == 0 || index->rd_indcollation[n] == C_COLLATION_OID))
				n++;
		}
		if (n > *ncolumns)
		{
			found = lfirst_oid(lc);
			*ncolumns = n;
		}
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
find_add(IdemTimersFound *found, ItemPointer tid)
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
 * From here on nothing is known of the timers that this transaction has made.
 */
void
idem_timers_forget_moves(void)
{
	generation++;
}

static uint64
find_hash_tag(const char *tag)
{
	return hash_bytes_extended((const unsigned char *) tag, strlen(tag), 0);
}

/*
 * What a row is remembered by: row_hash may be that of others, too, where states
 * are part of the key.
 */
uint64
idem_timers_hash_key(Datum key)
{
	return DatumGetUInt64(DirectFunctionCall2(jsonb_hash_extended, key,
											  UInt64GetDatum(idem_secret_seed())));
}

/*
 * Where a row's timers are remembered, if any row's are there.
 */
static Remembered *
find_place(Oid relid, uint64 tag, uint64 key)
{
	uint64		place = hash_combine64(key, tag ^ relid);

	return &remembered[place % lengthof(remembered)];
}

static bool
find_is_known(const Remembered *row, Oid relid, uint64 tag, uint64 key)
{
	return row->relid == relid && row->tag == tag &&
		row->key == key && row->generation == generation &&
		row->epoch == idem_catalog_epoch(IDEM_REL_TIMER) &&
		TransactionIdIsCurrentTransactionId(row->xid);
}

/*
 * A row has lost all of its timers.
 */
void
idem_timers_remember_left(Oid relid, const char *tag, uint64 key)
{
	uint64		hash = find_hash_tag(tag);
	Remembered *row = find_place(relid, hash, key);

	row->relid = relid;
	row->tag = hash;
	row->key = key;
	row->xid = GetCurrentTransactionId();
	row->epoch = idem_catalog_epoch(IDEM_REL_TIMER);
	row->generation = generation;
	row->n = 0;
}

/*
 * It has got one.
 */
void
idem_timers_remember_made(Oid relid, const char *tag, uint64 key,
						  ItemPointer tid)
{
	uint64		hash = find_hash_tag(tag);
	Remembered *row = find_place(relid, hash, key);

	if (!find_is_known(row, relid, hash, key))
		return;
	/* more than one knows of: it has to be looked for */
	if (row->n == lengthof(row->tids))
		row->generation = 0;
	else
	{
		row->tids[row->n++] = *tid;
		row->xid = GetCurrentTransactionId();
	}
}

/*
 * Adds what is remembered of a row; false if that is not known, or not so any more.
 */
static bool
find_remembered(Relation rel, TupleTableSlot *slot, const Remembered *row,
				Jsonb *key, IdemTimersFound *found)
{
	for (int i = 0; i < row->n; i++)
	{
		ItemPointerData tid = row->tids[i];
		bool		isnull;
		Datum		row_key;
		bool		same;

		if (!table_tuple_fetch_row_version(rel, &tid, SnapshotSelf, slot))
			return false;
		row_key = slot_getattr(slot, TIMER_ROW_KEY, &isnull);
		same = !isnull &&
			compareJsonbContainers(&key->root,
								   &DatumGetJsonbP(row_key)->root) == 0;
		ExecClearTuple(slot);
		if (!same)
			return false;
	}
	for (int i = 0; i < row->n; i++)
	{
		ItemPointerData tid = row->tids[i];

		find_add(found, &tid);
	}
	return true;
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
	int			nkeys;
	Oid			index = find_index(rel, &nkeys);
	Datum		schema_text = CStringGetTextDatum(schema);
	Datum		table_text = CStringGetTextDatum(table);
	uint64		hash = find_hash_tag(tag);
	TupleTableSlot *slot = table_slot_create(rel, NULL);

	/* what this transaction has written so far can be deleted from here on */
	CommandCounterIncrement();
	for (int i = 0; i < n; i++)
	{
		Jsonb	   *key = DatumGetJsonbP(keys[i]);
		ScanKeyData scankeys[lengthof(find_columns)];
		SysScanDesc scan;
		HeapTuple	tuple;

		uint64		key_hash = idem_timers_hash_key(keys[i]);
		const Remembered *row = find_place(relid, hash, key_hash);

		if (find_is_known(row, relid, hash, key_hash) &&
			find_remembered(rel, slot, row, key, found))
			continue;
		ScanKeyInit(&scankeys[0], TIMER_ROW_HASH, BTEqualStrategyNumber,
					F_INT8EQ, hashes[i]);
		ScanKeyInit(&scankeys[1], TIMER_SCHEMA, BTEqualStrategyNumber,
					F_TEXTEQ, schema_text);
		ScanKeyInit(&scankeys[2], TIMER_TABLE, BTEqualStrategyNumber,
					F_TEXTEQ, table_text);
		scan = systable_beginscan(rel, index, OidIsValid(index), SnapshotSelf,
								  Max(nkeys, 1), scankeys);
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
	ExecDropSingleTupleTableSlot(slot);
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
idem_timers_delete(IdemTimersFound *found)
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
