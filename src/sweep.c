/*
 * sweep.c
 *	  idem_sweep: removes what has expired.
 *
 * It keeps to vacuum_cost_delay as VACUUM does, so that it can be slowed down
 * where the foreground needs the disk.
 *
 * There is no index on expiry, since it would have to be maintained by every
 * completion.  Instead a sweep walks the table's blocks from where the last
 * one stopped, a bounded number of blocks at a time, and goes once round at
 * most.  Where the table is not a plain heap it is DELETE by a cutoff.
 *
 * It never waits: a row that somebody else is changing is left for the next
 * time, and so is a row that raises an error.  Hence sweeps may run beside
 * each other and beside claims without deadlock.  A row is removed only if its
 * own expires_at is over, judged on the version that is deleted; live claims
 * have none that is.
 *
 * A session claim's row has no deadline while its holder lives.  The first
 * sweep that finds the holder dead gives it one: the ttl from then on.
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "commands/vacuum.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "catalog.h"
#include "compat.h"
#include "errors.h"
#include "registry.h"
#include "session.h"

PG_FUNCTION_INFO_V1(idem_sweep);

#define BLOCKS_AT_A_TIME	16

typedef struct Sweep
{
	IdemStore  *store;
	IdemRow    *row;			/* one under examination */
	TimestampTz now;
	int64		max_rows;
	TimestampTz stop_at;
	int64		removed;
	MemoryContext context;		/* reset after each row or block */
} Sweep;

static const IdemWait no_wait = {.forever = false,.until = 0};

static bool
sweep_is_over(const Sweep *sweep)
{
	return sweep->removed >= sweep->max_rows ||
		GetCurrentTimestamp() >= sweep->stop_at;
}

static bool
sweep_is_session_without_end(const IdemRow *row)
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
sweep_mark_dead(void *arg)
{
	Sweep	   *sweep = (Sweep *) arg;
	IdemRow		row = *sweep->row;
	IdemScope	scope;

	if (!sweep_is_session_without_end(&row) ||
		idem_session_is_alive(DatumGetInt64(row.values[IDEM_COL_FENCE])))
		return;
	idem_scope_resolve(DatumGetTextPP(row.values[IDEM_COL_SCOPE]),
					   IDEM_SCOPE_OPERATING, &scope);
	idem_row_set_expiry(&row, &scope, sweep->now);
	if (!row.nulls[IDEM_COL_EXPIRES_AT])
		(void) idem_store_update(sweep->store, sweep->row, &row, &no_wait);
}

/*
 * One row of the heap, as it is in its buffer.
 */
static void
sweep_heap_row(Sweep *sweep, TupleTableSlot *slot)
{
	IdemRow		row;

	slot_getallattrs(slot);
	memcpy(row.values, slot->tts_values, sizeof(row.values));
	memcpy(row.nulls, slot->tts_isnull, sizeof(row.nulls));
	row.tid = slot->tts_tid;
	row.xmin = InvalidTransactionId;

	if (idem_row_is_expired(&row, sweep->now))
	{
		if (idem_store_delete(sweep->store, &row, &no_wait) == IDEM_STORE_OK)
			sweep->removed++;
	}
	else if (sweep_is_session_without_end(&row))
	{
		sweep->row = &row;
		(void) idem_try(sweep_mark_dead, sweep, idem_try_tolerates);
	}
}

/*
 * Walks the heap from block "start" and returns the block to go on from.
 */
static BlockNumber
sweep_heap(Sweep *sweep, BlockNumber start)
{
	Relation	rel = sweep->store->rel;
	BlockNumber nblocks = RelationGetNumberOfBlocks(rel);
	BlockNumber done = 0;
	BlockNumber block;

	if (nblocks == 0)
		return 0;
	block = start % nblocks;

	while (done < nblocks && !sweep_is_over(sweep))
	{
		BlockNumber n = Min(BLOCKS_AT_A_TIME, nblocks - done);
		Snapshot	snapshot;
		TableScanDesc scan;
		TupleTableSlot *slot;
		MemoryContext caller;

		n = Min(n, nblocks - block);
		CHECK_FOR_INTERRUPTS();
		snapshot = RegisterSnapshot(GetLatestSnapshot());
		scan = table_beginscan_strat(rel, snapshot, 0, NULL, true, false);
		heap_setscanlimits(scan, block, n);
		slot = table_slot_create(rel, NULL);
		caller = MemoryContextSwitchTo(sweep->context);
		while (sweep->removed < sweep->max_rows &&
			   table_scan_getnextslot(scan, ForwardScanDirection, slot))
		{
			sweep_heap_row(sweep, slot);
		}
		MemoryContextSwitchTo(caller);
		ExecDropSingleTupleTableSlot(slot);
		table_endscan(scan);
		UnregisterSnapshot(snapshot);
		MemoryContextReset(sweep->context);
		IDEM_VACUUM_DELAY();

		/* where max_rows ran out, the same blocks again */
		if (sweep->removed >= sweep->max_rows)
			break;
		done += n;
		block = (block + n) % nblocks;
	}
	return block;
}

typedef enum SweepStatement
{
	SWEEP_POSITION,
	SWEEP_SAVE_POSITION,
	SWEEP_CUTOFF,
	SWEEP_DELETE,
	SWEEP_EXPIRED,
	SWEEP_SESSIONS
} SweepStatement;

#define EXPIRED "expires_at OPERATOR(pg_catalog.<=) $1"

/* empty where they are NULL, which no key is */
#define SCOPE_AND_KEY \
	"SELECT COALESCE(scope::pg_catalog.text, ''), " \
	"COALESCE(key::pg_catalog.text, '') FROM idem.key"

static const struct
{
	const char *text;
	int			nparams;
	Oid			types[2];
}			statements[] = {

	[SWEEP_POSITION] = {
		"SELECT COALESCE(position, 0)::pg_catalog.int8 FROM idem.sweep_state"
		" WHERE kind OPERATOR(pg_catalog.=) $1 FOR UPDATE SKIP LOCKED",
		1, {TEXTOID}
	},
	[SWEEP_SAVE_POSITION] = {
		"UPDATE idem.sweep_state SET position = $2"
		" WHERE kind OPERATOR(pg_catalog.=) $1",
		2, {TEXTOID, INT8OID}
	},
	[SWEEP_CUTOFF] = {
		"SELECT expires_at::pg_catalog.timestamptz FROM idem.key WHERE " EXPIRED
		" ORDER BY expires_at LIMIT 1 OFFSET $2",
		2, {TIMESTAMPTZOID, INT8OID}
	},
	[SWEEP_DELETE] = {
		"DELETE FROM idem.key WHERE expires_at OPERATOR(pg_catalog.<) $1",
		1, {TIMESTAMPTZOID}
	},
	[SWEEP_EXPIRED] = {
		SCOPE_AND_KEY " WHERE " EXPIRED " LIMIT $2",
		2, {TIMESTAMPTZOID, INT8OID}
	},
	[SWEEP_SESSIONS] = {
		SCOPE_AND_KEY
		" WHERE state OPERATOR(pg_catalog.=) 'in_progress'"
		" AND hold OPERATOR(pg_catalog.=) 'session' AND expires_at IS NULL",
		0, {InvalidOid}
	}
};

/*
 * Runs a statement as the tables' owner, with the latest snapshot; the caller
 * has connected to SPI and reads the result.
 */
static void
sweep_execute(Sweep *sweep, SweepStatement which, Datum a, Datum b)
{
	static SPIPlanPtr plans[lengthof(statements)];
	Datum		values[2] = {a, b};
	IdemIdentity saved;
	int			rc;

	if (plans[which] == NULL)
		plans[which] = idem_sql_keep_plan(statements[which].text,
										  statements[which].nparams,
										  statements[which].types);
	idem_catalog_become(sweep->store->rel->rd_rel->relowner, &saved);
	rc = SPI_execute_snapshot(plans[which], values, NULL, GetLatestSnapshot(),
							  InvalidSnapshot, false, true, 0);
	idem_catalog_restore(&saved);
	if (rc < 0)
		elog(ERROR, "SPI_execute_snapshot failed: %s",
			 SPI_result_code_string(rc));
}

/*
 * Deletes all that expired before the row that would be one too many.
 */
static void
sweep_delete_expired(void *arg)
{
	Sweep	   *sweep = (Sweep *) arg;
	TimestampTz cutoff = sweep->now;
	bool		isnull;

	SPI_connect();
	if (sweep->max_rows < PG_INT64_MAX)
	{
		sweep_execute(sweep, SWEEP_CUTOFF, TimestampTzGetDatum(sweep->now),
					  Int64GetDatum(sweep->max_rows));
		if (SPI_processed > 0)
			cutoff = DatumGetTimestampTz(SPI_getbinval(SPI_tuptable->vals[0],
													   SPI_tuptable->tupdesc,
													   1, &isnull));
	}
	sweep_execute(sweep, SWEEP_DELETE, TimestampTzGetDatum(cutoff), (Datum) 0);
	sweep->removed += SPI_processed;
	SPI_finish();
}

static void
sweep_delete_without_waiting(void *arg)
{
	IdemWait	briefly = {.until = 0};

	/* runs out as an error, so that the caller's undoing covers it */
	if (!idem_wait_run(&briefly, sweep_delete_expired, arg))
		ereport(ERROR,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
				 errmsg("an expired row is locked")));
}

static void
sweep_delete_one(void *arg)
{
	Sweep	   *sweep = (Sweep *) arg;

	if (idem_row_is_expired(sweep->row, sweep->now) &&
		idem_store_delete(sweep->store, sweep->row,
						  &no_wait) == IDEM_STORE_OK)
		sweep->removed++;
}

/*
 * Applies "work" to each row that the statement names, each for itself.
 */
static void
sweep_one_by_one(Sweep *sweep, SweepStatement which, Datum a, Datum b,
				 void (*work) (void *arg))
{
	MemoryContext caller = CurrentMemoryContext;
	SPITupleTable *table;
	uint64		n;

	SPI_connect();
	sweep_execute(sweep, which, a, b);
	table = SPI_tuptable;
	n = SPI_processed;
	for (uint64 i = 0; i < n && !sweep_is_over(sweep); i++)
	{
		IdemRow		row;
		bool		isnull;
		Datum		scope = SPI_getbinval(table->vals[i], table->tupdesc, 1,
										  &isnull);
		Datum		key = SPI_getbinval(table->vals[i], table->tupdesc, 2,
										&isnull);

		CHECK_FOR_INTERRUPTS();
		MemoryContextSwitchTo(sweep->context);
		sweep->row = &row;
		if (idem_store_read(sweep->store, DatumGetTextPP(scope),
							DatumGetTextPP(key), false, &row) &&
			!idem_try(work, sweep, idem_try_tolerates))
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
sweep_sql(Sweep *sweep)
{
	(void) idem_try(sweep_delete_without_waiting, sweep,
					idem_try_tolerates);
	if (!sweep_is_over(sweep))
		sweep_one_by_one(sweep, SWEEP_EXPIRED,
						 TimestampTzGetDatum(sweep->now),
						 Int64GetDatum(sweep->max_rows - sweep->removed),
						 sweep_delete_one);
	if (!sweep_is_over(sweep))
		sweep_one_by_one(sweep, SWEEP_SESSIONS, (Datum) 0, (Datum) 0,
						 sweep_mark_dead);
}

/*
 * Sweeps idem.key.  The position belongs to one sweep at a time; another that
 * runs beside it starts at the first block and does not save its own.
 */
static void
sweep_keys(Sweep *sweep)
{
	Datum		kind = CStringGetTextDatum("key");
	bool		owns_position;
	bool		isnull;
	volatile BlockNumber position = 0;

	if (!sweep->store->direct)
	{
		sweep_sql(sweep);
		return;
	}

	SPI_connect();
	sweep_execute(sweep, SWEEP_POSITION, kind, (Datum) 0);
	owns_position = SPI_processed > 0;
	if (owns_position)
		position = (BlockNumber) DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0],
															 SPI_tuptable->tupdesc,
															 1, &isnull));
	IDEM_VACUUM_COSTS();
	VacuumCostBalance = 0;
	PG_TRY();
	{
		position = sweep_heap(sweep, position);
	}
	PG_FINALLY();
	{
		VacuumCostActive = false;
	}
	PG_END_TRY();
	if (owns_position)
		sweep_execute(sweep, SWEEP_SAVE_POSITION, kind,
					  Int64GetDatum(position));
	SPI_finish();
}

/*
 * idem_sweep(max_rows, budget) -> SETOF (kind, removed)
 */
Datum
idem_sweep(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	IdemStore	store;
	Sweep		sweep = {.store = &store,.max_rows = PG_INT64_MAX};
	Datum		values[2];
	bool		nulls[2] = {false, false};

	if (!PG_ARGISNULL(0))
		sweep.max_rows = PG_GETARG_INT32(0);
	if (sweep.max_rows <= 0)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_BAD_ARGUMENT),
				 errmsg("argument \"max_rows\" must be greater than zero"),
				 errhidestmt(true)));
	sweep.now = GetCurrentTimestamp();
	sweep.stop_at = PG_ARGISNULL(1) ? DT_NOEND :
		idem_scope_deadline(sweep.now, PG_GETARG_INTERVAL_P(1), "budget");
	PreventCommandIfReadOnly("idem_sweep()");
	PreventCommandIfParallelMode("idem_sweep()");

	InitMaterializedSRF(fcinfo, 0);
	idem_store_open(&store, RowExclusiveLock);
	sweep.context = AllocSetContextCreate(CurrentMemoryContext, "idem sweep",
										  ALLOCSET_DEFAULT_SIZES);
	sweep_keys(&sweep);
	idem_store_close(&store);
	MemoryContextDelete(sweep.context);

	values[0] = CStringGetTextDatum("key");
	values[1] = Int64GetDatum(sweep.removed);
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	PG_RETURN_NULL();
}
