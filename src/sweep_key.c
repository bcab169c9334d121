/*
 * sweep_key.c
 *	  How idem.key is swept.
 *
 * On the direct way the blocks are walked with the table's access method, and
 * each expired row is deleted as a verb would delete it.  Where the table is
 * not a plain heap it is DELETE by a cutoff, and then row by row what that
 * left.
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
#include "registry.h"
#include "session.h"
#include "own.h"
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
	"COALESCE(key::pg_catalog.text, '') FROM idem.key"

static struct IdemOwnStatement cutoff_statement = {
	"SELECT expires_at::pg_catalog.timestamptz FROM idem.key WHERE " EXPIRED
	" ORDER BY expires_at LIMIT 1 OFFSET $2",
	IDEM_OWN_WRITE, 2, {TIMESTAMPTZOID, INT8OID}, NULL
};

static struct IdemOwnStatement delete_statement = {
	"DELETE FROM idem.key WHERE expires_at OPERATOR(pg_catalog.<) $1",
	IDEM_OWN_WRITE, 1, {TIMESTAMPTZOID}, NULL
};

static struct IdemOwnStatement expired_statement = {
	SCOPE_AND_KEY " WHERE " EXPIRED " LIMIT $2",
	IDEM_OWN_WRITE, 2, {TIMESTAMPTZOID, INT8OID}, NULL
};

static struct IdemOwnStatement sessions_statement = {
	SCOPE_AND_KEY
	" WHERE state OPERATOR(pg_catalog.=) 'in_progress'"
	" AND hold OPERATOR(pg_catalog.=) 'session' AND expires_at IS NULL",
	IDEM_OWN_WRITE, 0, {InvalidOid}, NULL
};

/*
 * Deletes all that expired before the row that would be one too many.
 */
static void
key_delete_expired(void *arg)
{
	IdemSweep  *sweep = ((KeySweep *) arg)->sweep;
	Datum		values[2] = {
		TimestampTzGetDatum(sweep->now),
		Int64GetDatum(sweep->quota - sweep->removed)
	};
	bool		isnull;

	SPI_connect();
	if (sweep->quota < PG_INT64_MAX)
	{
		(void) idem_own_run(&cutoff_statement, IDEM_REL_KEY, values);
		if (SPI_processed > 0)
			values[0] = SPI_getbinval(SPI_tuptable->vals[0],
									  SPI_tuptable->tupdesc, 1, &isnull);
	}
	(void) idem_own_run(&delete_statement, IDEM_REL_KEY, values);
	sweep->removed += SPI_processed;
	SPI_finish();
}

static void
key_delete_without_waiting(void *arg)
{
	IdemWait	briefly = {.until = 0};

	/* runs out as an error, so that the caller's undoing covers it */
	if (!idem_wait_run(&briefly, key_delete_expired, arg))
		ereport(ERROR,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
				 errmsg("an expired row is locked")));
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
 * Applies "work" to each row that the statement names, each for itself.
 */
static void
key_one_by_one(KeySweep *keys, IdemOwnStatement * which, const Datum *values,
			   void (*work) (void *arg))
{
	IdemSweep  *sweep = keys->sweep;
	MemoryContext caller = CurrentMemoryContext;
	SPITupleTable *table;
	uint64		n;

	SPI_connect();
	(void) idem_own_run(which, IDEM_REL_KEY, values);
	table = SPI_tuptable;
	n = SPI_processed;
	for (uint64 i = 0; i < n && !idem_sweep_is_over(sweep); i++)
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
			ereport(WARNING,
					(errmsg("an expired row of table \"idem.key\" could not be swept")));
		MemoryContextReset(sweep->context);
		MemoryContextSwitchTo(caller);
	}
	SPI_finish();
}

/*
 * In one statement where nothing stands in its way, then what it left: rows
 * that expired at the very same time, or that are locked or raise an error.
 */
static void
key_sweep_sql(KeySweep *keys)
{
	IdemSweep  *sweep = keys->sweep;
	Datum		values[2];

	(void) idem_try(key_delete_without_waiting, keys, idem_try_tolerates);
	if (!idem_sweep_is_over(sweep))
	{
		values[0] = TimestampTzGetDatum(sweep->now);
		values[1] = Int64GetDatum(sweep->quota - sweep->removed);
		key_one_by_one(keys, &expired_statement, values, key_delete_one);
	}
	if (!idem_sweep_is_over(sweep))
	{
		key_one_by_one(keys, &sessions_statement, NULL, key_mark_dead);
		sweep->once_round = true;
	}
}

/*
 * One turn of idem.key.
 */
void
idem_sweep_keys(IdemSweep *sweep)
{
	KeySweep	keys = {.sweep = sweep};

	idem_store_open(&keys.store, RowExclusiveLock);
	if (keys.store.direct)
		key_sweep_heap(&keys);
	else
		key_sweep_sql(&keys);
	idem_store_close(&keys.store);
}
