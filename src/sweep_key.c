/*
 * sweep_key.c
 *	  How idem.key is swept.
 *
 * On the direct way the blocks are walked with the table's access method, and
 * each expired row is deleted as a verb would delete it.  Another plain table
 * is swept as the other kinds' are.  In a partitioned, inherited, distributed or
 * foreign one rows have no places: it is DELETE by a cutoff, and then row by
 * row some of what that left, drawn by lot, so that those that stay cannot hide
 * others for ever.
 *
 * A row is removed only if its own expires_at is over, judged on the version
 * that is deleted; live claims have none that is.
 *
 * A session claim's row has no deadline while its holder lives.  The first
 * sweep that finds the holder dead gives it one: the ttl from then on.
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/tableam.h"
#include "catalog/pg_type.h"
#include "commands/vacuum.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "own.h"
#include "registry.h"
#include "session.h"
#include "sweep.h"

/* between two looks at whether the time is up */
#define BLOCKS_AT_A_TIME	16

typedef struct KeySweep
{
	IdemSweep  *sweep;
	IdemStore	store;
	IdemRow    *row;			/* one under examination */
} KeySweep;

static const IdemWait no_wait = {.forever = false,.until = 0};

static bool
key_is_session_without_end(const IdemRow *row)
{
	return row->nulls[IDEM_COL_EXPIRES_AT] &&
		!row->nulls[IDEM_COL_FENCE] &&
		idem_row_is_in_progress(row) &&
		idem_row_hold(row) == IDEM_HOLD_SESSION;
}

/*
 * Gives the row of a dead session its deadline.
 */
static void
key_mark_dead(void *arg)
{
	KeySweep   *keys = (KeySweep *) arg;
	IdemRow		row = *keys->row;
	IdemScope	scope;

	if (!key_is_session_without_end(&row) ||
		idem_session_is_alive(DatumGetInt64(row.values[IDEM_COL_FENCE])))
		return;
	idem_scope_resolve(DatumGetTextPP(row.values[IDEM_COL_SCOPE]),
					   IDEM_SCOPE_OPERATING, &scope);
	idem_row_set_expiry(&row, &scope, keys->sweep->now);
	if (!row.nulls[IDEM_COL_EXPIRES_AT])
		(void) idem_store_update(&keys->store, keys->row, &row, &no_wait);
}

/*
 * One row of the heap, as it is in its buffer.
 */
static void
key_sweep_row(KeySweep *keys, TupleTableSlot *slot)
{
	IdemRow		row;

	slot_getallattrs(slot);
	memcpy(row.values, slot->tts_values, sizeof(row.values));
	memcpy(row.nulls, slot->tts_isnull, sizeof(row.nulls));
	row.tid = slot->tts_tid;
	row.xmin = InvalidTransactionId;

	if (idem_row_is_expired(&row, keys->sweep->now))
	{
		if (idem_store_delete(&keys->store, &row, &no_wait) == IDEM_STORE_OK)
			keys->sweep->removed++;
	}
	else if (key_is_session_without_end(&row))
	{
		keys->row = &row;
		(void) idem_try(key_mark_dead, keys, idem_try_tolerates);
	}
}

/*
 * Walks the heap on from where the sweep stands.
 */
static void
key_sweep_heap(KeySweep *keys)
{
	IdemSweep  *sweep = keys->sweep;
	Relation	rel = keys->store.rel;
	BlockNumber nblocks = RelationGetNumberOfBlocks(rel);

	sweep->offset = 0;
	sweep->nblocks = nblocks;
	sweep->file = rel->rd_rel->relfilenode;
	while (sweep->done < nblocks && !idem_sweep_is_over(sweep))
	{
		BlockNumber block = sweep->block % nblocks;
		BlockNumber n = Min(BLOCKS_AT_A_TIME, nblocks - sweep->done);
		TableScanDesc scan;
		TupleTableSlot *slot;
		MemoryContext caller;

		n = Min(n, nblocks - block);
		CHECK_FOR_INTERRUPTS();
		idem_sweep_stats_show(sweep);
		/* an MVCC snapshot would lock predicates at SERIALIZABLE */
		scan = table_beginscan_strat(rel, SnapshotSelf, 0, NULL, true, false);
		heap_setscanlimits(scan, block, n);
		slot = table_slot_create(rel, NULL);
		caller = MemoryContextSwitchTo(sweep->context);
		while (sweep->removed < sweep->quota &&
			   table_scan_getnextslot(scan, ForwardScanDirection, slot))
		{
			key_sweep_row(keys, slot);
		}
		MemoryContextSwitchTo(caller);
		ExecDropSingleTupleTableSlot(slot);
		table_endscan(scan);
		MemoryContextReset(sweep->context);
		IDEM_VACUUM_DELAY();

		/* where the quota ran out, the same blocks again */
		sweep->block = block;
		if (sweep->removed >= sweep->quota)
			return;
		sweep->done += n;
		sweep->block = (block + n) % nblocks;
	}
	sweep->once_round = sweep->done >= nblocks;
}

#define EXPIRED "expires_at OPERATOR(pg_catalog.<=) $1"

/* empty where they are NULL, which no key is */
#define SCOPE_AND_KEY \
	"SELECT COALESCE(scope::pg_catalog.text, ''), " \
	"COALESCE(key::pg_catalog.text, '')"

#define SESSION_WITHOUT_END \
	" state OPERATOR(pg_catalog.=) 'in_progress'" \
	" AND hold OPERATOR(pg_catalog.=) 'session' AND expires_at IS NULL"

static struct IdemOwnStatement cutoff_statement = {
	SCOPE_AND_KEY ", expires_at::pg_catalog.timestamptz"
	" FROM idem.key WHERE " EXPIRED
	" ORDER BY expires_at, scope, key LIMIT 1 OFFSET $2",
	IDEM_OWN_WRITE, 2, {TIMESTAMPTZOID, INT8OID}, NULL
};

static struct IdemOwnStatement delete_statement = {
	"DELETE FROM idem.key WHERE " EXPIRED,
	IDEM_OWN_WRITE, 1, {TIMESTAMPTZOID}, NULL
};

/* not as a comparison of rows, which no foreign server is asked for */
static struct IdemOwnStatement delete_before_statement = {
	"DELETE FROM idem.key WHERE " EXPIRED
	" AND (expires_at OPERATOR(pg_catalog.<) $1"
	" OR scope OPERATOR(pg_catalog.<) $2"
	" OR (scope OPERATOR(pg_catalog.=) $2"
	" AND key OPERATOR(pg_catalog.<) $3))",
	IDEM_OWN_WRITE, 3, {TIMESTAMPTZOID, TEXTOID, TEXTOID}, NULL
};

static struct IdemOwnStatement expired_statement = {
	SCOPE_AND_KEY " FROM idem.key WHERE " EXPIRED
	" ORDER BY pg_catalog.random() LIMIT $2",
	IDEM_OWN_WRITE, 2, {TIMESTAMPTZOID, INT8OID}, NULL
};

static struct IdemOwnStatement sessions_statement = {
	SCOPE_AND_KEY " FROM idem.key WHERE" SESSION_WITHOUT_END,
	IDEM_OWN_WRITE, 0, {InvalidOid}, NULL
};

static struct IdemOwnStatement sessions_there_statement = {
	SCOPE_AND_KEY " FROM ONLY idem.key WHERE ctid OPERATOR(pg_catalog.>=) $1"
	" AND ctid OPERATOR(pg_catalog.<) $2 AND" SESSION_WITHOUT_END,
	IDEM_OWN_BY_INDEX, 2, {TIDOID, TIDOID}, NULL
};

/* one DELETE by a cutoff */
typedef struct KeyDelete
{
	IdemSweep  *sweep;
	int64		most;			/* rows */
	TimestampTz began;			/* when it would have begun if to find the
								 * cutoff took no time */
} KeyDelete;

/*
 * Deletes all that comes before the row that would be one too many, by when they
 * expired and then by their keys.  Without max_rows there is none: that is an int.
 */
static void
key_delete_expired(void *arg)
{
	KeyDelete  *batch = (KeyDelete *) arg;
	TimestampTz began = GetCurrentTimestamp();
	Datum		values[2] = {
		TimestampTzGetDatum(batch->sweep->now),
		Int64GetDatum(batch->most)
	};
	Datum		cutoff[3];
	bool		bounded;
	bool		isnull;

	SPI_connect();
	bounded = batch->most <= PG_INT32_MAX &&
		idem_own_run(&cutoff_statement, IDEM_REL_KEY, values) > 0;
	if (bounded)
	{
		HeapTuple	row = SPI_tuptable->vals[0];
		TupleDesc	desc = SPI_tuptable->tupdesc;

		cutoff[0] = SPI_getbinval(row, desc, 3, &isnull);
		cutoff[1] = SPI_getbinval(row, desc, 1, &isnull);
		cutoff[2] = SPI_getbinval(row, desc, 2, &isnull);
	}
	/* it looks for its rows as long as that took */
	batch->began = GetCurrentTimestamp() + (GetCurrentTimestamp() - began);
	if (bounded)
		(void) idem_own_run(&delete_before_statement, IDEM_REL_KEY, cutoff);
	else
		(void) idem_own_run(&delete_statement, IDEM_REL_KEY, values);
	batch->sweep->removed += SPI_processed;
	SPI_finish();
}

static void
key_delete_one(void *arg)
{
	KeySweep   *keys = (KeySweep *) arg;

	if (idem_row_is_expired(keys->row, keys->sweep->now) &&
		idem_store_delete(&keys->store, keys->row,
						  &no_wait) == IDEM_STORE_OK)
		keys->sweep->removed++;
}

/*
 * Applies "work" to each row that the statement names, each for itself.  How
 * many there were; -1 if the turn ended before the last.
 */
static int64
key_one_by_one(KeySweep *keys, IdemOwnStatement *which, const Datum *values,
			   void (*work) (void *arg))
{
	IdemSweep  *sweep = keys->sweep;
	MemoryContext caller = CurrentMemoryContext;
	SPITupleTable *table;
	int64		n;
	bool		through = true;

	SPI_connect();
	(void) idem_own_run(which, IDEM_REL_KEY, values);
	table = SPI_tuptable;
	n = SPI_processed;
	for (int64 i = 0; through && i < n; i++)
	{
		IdemRow		row;
		bool		isnull;
		Datum		scope = SPI_getbinval(table->vals[i], table->tupdesc, 1,
										  &isnull);
		Datum		key = SPI_getbinval(table->vals[i], table->tupdesc, 2,
										&isnull);

		CHECK_FOR_INTERRUPTS();
		MemoryContextSwitchTo(sweep->context);
		keys->row = &row;
		if (idem_store_read(&keys->store, DatumGetTextPP(scope),
							DatumGetTextPP(key), false, &row) &&
			!idem_try(work, keys, idem_try_tolerates))
			idem_sweep_failed(sweep);
		MemoryContextReset(sweep->context);
		MemoryContextSwitchTo(caller);
		through = i == n - 1 || !idem_sweep_is_over(sweep);
	}
	SPI_finish();
	return through ? n : -1;
}

/*
 * By cutoffs, while that removes any, of as many rows as the last one was quick
 * for.  The position is what that had come to.
 */
static void
key_delete_batches(IdemSweep *sweep)
{
	bool		bounded = !TIMESTAMP_NOT_FINITE(sweep->stop_at);
	int64		pace = Max(sweep->block, IDEM_SWEEP_FIRST_ROWS);
	int64		before;

	do
	{
		KeyDelete	batch = {.sweep = sweep};
		int64		left = sweep->quota - sweep->removed;

		CHECK_FOR_INTERRUPTS();
		before = sweep->removed;
		pace = Min(pace, IDEM_SWEEP_ROWS);
		batch.most = bounded ? Min(left, pace) : left;
		if (!idem_try_without_waiting(key_delete_expired, &batch))
			sweep->removed = before;
		else if (bounded && sweep->removed > before)
			pace = idem_sweep_next_pace(sweep, pace, batch.began);
	} while (sweep->removed > before && !idem_sweep_is_over(sweep));
	sweep->offset = 0;
	if (bounded)
		sweep->block = pace;
}

/*
 * In one statement where nothing stands in its way and no budget ends, else in
 * some; then what they left: rows that are locked or raise an error.
 */
static void
key_sweep_sql(KeySweep *keys)
{
	IdemSweep  *sweep = keys->sweep;
	Datum		values[2];
	int64		n;
	bool		through;

	key_delete_batches(sweep);
	if (idem_sweep_is_over(sweep))
		return;
	values[0] = TimestampTzGetDatum(sweep->now);
	values[1] = Int64GetDatum(sweep->quota - sweep->removed);
	n = key_one_by_one(keys, &expired_statement, values, key_delete_one);
	if (idem_sweep_is_over(sweep))
		return;
	/* rows that stay keep nobody from these */
	through = key_one_by_one(keys, &sessions_statement, NULL,
							 key_mark_dead) >= 0;
	sweep->once_round = through && n >= 0 && n < DatumGetInt64(values[1]);
}

/*
 * Part of a plain table.
 */
static void
key_look_for_sessions(IdemSweep *sweep, BlockNumber from, BlockNumber to,
					  void *arg)
{
	ItemPointerData places[2];
	Datum		values[2] = {
		PointerGetDatum(&places[0]),
		PointerGetDatum(&places[1])
	};

	ItemPointerSet(&places[0], from, 0);
	ItemPointerSet(&places[1], to, 0);
	(void) key_one_by_one((KeySweep *) arg, &sessions_there_statement, values,
						  key_mark_dead);
}

/*
 * One turn of idem.key.
 */
void
idem_sweep_keys(IdemSweep *sweep)
{
	KeySweep	keys = {.sweep = sweep};
	Relation	rel;

	idem_store_open(&keys.store, RowExclusiveLock);
	rel = keys.store.rel;
	if (keys.store.direct)
		key_sweep_heap(&keys);
	else if (idem_sweep_has_places(rel) && !rel->rd_rel->relhassubclass &&
			 !idem_direct_has_foreign_planner(RelationGetRelid(rel)))
		idem_sweep_table(sweep, rel, key_look_for_sessions, &keys);
	else
		key_sweep_sql(&keys);
	idem_store_close(&keys.store);
}
