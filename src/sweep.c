/*
 * sweep.c
 *	  idem_sweep: removes what has expired.
 *
 * A kind of record is one entry of the table "kinds" below: its name, its
 * relation, and either the condition under which a row of it has expired or a
 * function that sweeps it its own way.  The same holds for all of them:
 *
 * There is no index on expiry, since it would have to be maintained by every
 * write.  Instead a sweep walks the relation's blocks from where the last one
 * stopped, a bounded number of blocks at a time, the fewer the slower they are, and
 * goes once round at most.
 *
 * It never waits: a row that somebody else is changing is left for the next
 * time, and so is a row that raises an error, and a relation that is locked.
 * Hence sweeps may run beside each other and beside the verbs without
 * deadlock.  A row is removed only if the very version that is deleted has
 * expired.  It keeps to vacuum_cost_delay as VACUUM does, so that it can be
 * slowed down where the foreground needs the disk.
 *
 * max_rows and budget are shared out, so that no kind starves another: each
 * gets an equal part of what is left, and what some did not need then goes to
 * those that could use more.  A sweep that ran out before all were through
 * lets the next one begin with another kind, so that this holds also where
 * there are more kinds than rows to be removed.
 *
 * Positions belong to one sweep at a time; another that runs beside it starts
 * at the first block and does not save its own.
 */
#include "postgres.h"

#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_am.h"
#include "catalog/pg_type.h"
#include "commands/vacuum.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "errors.h"
#include "own.h"
#include "registry.h"
#include "sweep.h"

PG_FUNCTION_INFO_V1(idem_sweep);

/* between two looks at whether the time is up: at most, and at first */
#define BLOCKS_AT_A_TIME	64
#define ROWS_AT_A_TIME		16384
#define FIRST_BLOCKS		1
#define FIRST_ROWS			16

struct IdemSweepKind
{
	const char *name;			/* also the table's, where "walk" is NULL */
	IdemRelation relation;

	/* rows expire by a condition ... */
	IdemOwnStatement list;
	IdemOwnStatement lock;
	IdemOwnStatement remove;
	/* ... or are swept in another way */
	void		(*walk) (IdemSweep *sweep);
};

#define EXPIRED_IN_RANGE(table, expired) \
	"SELECT ctid FROM ONLY idem." table \
	" WHERE ctid OPERATOR(pg_catalog.>=) $1" \
	" AND ctid OPERATOR(pg_catalog.<) $2 AND (" expired ") LIMIT $4"

/*
 * A kind whose rows have expired where "expired" holds.  It may use the
 * table's columns, and $3, the present time; everything in it is qualified.
 */
#define SWEEP_WHERE(table, rel, expired) \
{ \
	.name = table, \
	.relation = rel, \
	.list = { \
		.text = EXPIRED_IN_RANGE(table, expired), \
		.nparams = 4, .types = {TIDOID, TIDOID, TIMESTAMPTZOID, INT8OID}, \
		.way = IDEM_OWN_BY_INDEX \
	}, \
	.lock = { \
		.text = "SELECT ARRAY(" EXPIRED_IN_RANGE(table, expired) \
		" FOR UPDATE SKIP LOCKED)", \
		.nparams = 4, .types = {TIDOID, TIDOID, TIMESTAMPTZOID, INT8OID}, \
		.way = IDEM_OWN_BY_INDEX \
	}, \
	.remove = { \
		.text = "DELETE FROM ONLY idem." table \
		" WHERE ctid OPERATOR(pg_catalog.=) ANY ($1)", \
		.nparams = 1, .types = {TIDARRAYOID}, \
		.way = IDEM_OWN_BY_INDEX \
	} \
}

static IdemSweepKind kinds[] =
{
	{
		.name = "key",.relation = IDEM_REL_KEY,.walk = idem_sweep_keys
	},
	SWEEP_WHERE("history", IDEM_REL_HISTORY,
				"expires_at OPERATOR(pg_catalog.<=) $3"),
	SWEEP_WHERE("branch", IDEM_REL_BRANCH,
				"expires_at OPERATOR(pg_catalog.<=) $3"),
	SWEEP_WHERE("token", IDEM_REL_TOKEN,
				"expires_at OPERATOR(pg_catalog.<=)"
				" ($3 OPERATOR(pg_catalog.-) '24 h'::pg_catalog.interval)"

	/*
	 * The one that ended older ones last stays while there are any, also
	 * expired ones, since the clock may be set back: in that it stands for
	 * all that ended any before it.
	 */
				" AND (ends_older IS NULL"
				" OR ends_older OPERATOR(pg_catalog.<) ("
				"SELECT newer.ends_older FROM ONLY idem.token AS newer"
				" WHERE newer.subject OPERATOR(pg_catalog.=) token.subject"
				" AND newer.purpose OPERATOR(pg_catalog.=) token.purpose"
				" AND newer.ends_older IS NOT NULL"
				" ORDER BY newer.ends_older DESC LIMIT 1)"
				" OR NOT EXISTS ("
				"SELECT FROM ONLY idem.token AS older"
				" WHERE older.subject OPERATOR(pg_catalog.=) token.subject"
				" AND older.purpose OPERATOR(pg_catalog.=) token.purpose"
				" AND older.created_at OPERATOR(pg_catalog.<=) token.ends_older"
				" AND older.hash OPERATOR(pg_catalog.<>) token.hash"
				" AND older.used_at IS NULL))"),
	SWEEP_WHERE("lease", IDEM_REL_LEASE,
				"until OPERATOR(pg_catalog.<=) ($3 OPERATOR(pg_catalog.-)"
				" CASE WHEN released THEN '1 h'::pg_catalog.interval"
				" ELSE '24 h'::pg_catalog.interval END)"),
	SWEEP_WHERE("window_hit", IDEM_REL_WINDOW_HIT,
				"expires_at OPERATOR(pg_catalog.<=) $3")
};

#define NKINDS		lengthof(kinds)

/* the row of idem.sweep_state that says which kind comes first */
#define FIRST		"first"

static struct IdemOwnStatement load_statement = {
	"SELECT kind::pg_catalog.text, COALESCE(position, 0)::pg_catalog.int8"
	" FROM idem.sweep_state FOR UPDATE SKIP LOCKED",
	IDEM_OWN_WRITE, 0, {InvalidOid}, NULL
};

static struct IdemOwnStatement save_statement = {
	"UPDATE idem.sweep_state SET position = $2"
	" WHERE kind OPERATOR(pg_catalog.=) $1",
	IDEM_OWN_WRITE, 2, {TEXTOID, INT8OID}, NULL
};

/*
 * Whether the turn has to end.
 */
bool
idem_sweep_is_over(const IdemSweep *sweep)
{
	return sweep->removed >= sweep->quota ||
		GetCurrentTimestamp() >= sweep->stop_at;
}

/* rows of one kind, from a place in its relation up to another */
typedef struct SweepRange
{
	IdemSweep  *sweep;
	ItemPointerData from;		/* goes on behind the last that was found */
	ItemPointerData to;			/* not included */
	bool		full;			/* there may be more than it found */
	bool		listing;
	ItemPointer found;
	uint64		nfound;
} SweepRange;

/*
 * How much comes next, by how long the last took: twice as much while that was
 * less than a tenth of the time that is left, else half.
 */
static int64
sweep_next_pace(const IdemSweep *sweep, int64 pace, TimestampTz began)
{
	TimestampTz now = GetCurrentTimestamp();

	return (now - began) * 10 < sweep->stop_at - now ? pace * 2 :
		Max(pace / 2, 1);
}

/*
 * The rows of the range that have expired, as many as are wanted: the result of
 * a statement that gives their places in order.  The caller has connected to SPI.
 */
static void
sweep_list(SweepRange *range, const Datum *values)
{
	IdemSweep  *sweep = range->sweep;

	(void) idem_own_run((IdemOwnStatement *) & sweep->kind->list,
						sweep->kind->relation, values);
	range->nfound = SPI_processed;
	range->found = MemoryContextAlloc(sweep->context,
									  Max(range->nfound, 1) *
									  sizeof(ItemPointerData));
	for (uint64 i = 0; i < range->nfound; i++)
	{
		bool		isnull;
		Datum		tid = SPI_getbinval(SPI_tuptable->vals[i],
										SPI_tuptable->tupdesc, 1, &isnull);

		range->found[i] = *(ItemPointer) DatumGetPointer(tid);
	}
}

/*
 * Removes them.  A trigger of the owner's may keep some, so how many were found
 * is not to be told from how many are gone.
 */
static int64
sweep_remove(SweepRange *range, const Datum *values)
{
	IdemSweepKind *kind = (IdemSweepKind *) range->sweep->kind;
	ArrayType  *array;
	Datum		tids;
	bool		isnull;

	(void) idem_own_run(&kind->lock, kind->relation, values);
	tids = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1,
						 &isnull);
	array = DatumGetArrayTypeP(tids);
	range->nfound = ArrayGetNItems(ARR_NDIM(array), ARR_DIMS(array));
	range->found = (ItemPointer) ARR_DATA_PTR(array);
	if (range->nfound == 0)
		return 0;
	(void) idem_own_run(&kind->remove, kind->relation, &tids);
	return SPI_processed;
}

/*
 * A row that was updated while we looked may lie before or behind the range.
 */
static void
sweep_go_behind(SweepRange *range, ItemPointer tid)
{
	if (ItemPointerCompare(tid, &range->from) < 0)
		return;
	range->from = *tid;
	ItemPointerSetOffsetNumber(&range->from,
							   ItemPointerGetOffsetNumber(tid) + 1);
}

/*
 * Removes what has expired in the range, or lists it.
 */
static void
sweep_range(void *arg)
{
	SweepRange *range = (SweepRange *) arg;
	IdemSweep  *sweep = range->sweep;
	TimestampTz began = GetCurrentTimestamp();
	int64		left = sweep->quota - sweep->removed;
	int64		most = range->listing ? left : Min(left, sweep->row_pace);
	Datum		values[4] = {
		PointerGetDatum(&range->from),
		PointerGetDatum(&range->to),
		TimestampTzGetDatum(sweep->now),
		Int64GetDatum(most)
	};

	SPI_connect();
	if (range->listing)
		sweep_list(range, values);
	else
		sweep->removed += sweep_remove(range, values);
	range->full = range->nfound >= most;
	if (range->nfound > 0)
		sweep_go_behind(range, &range->found[range->nfound - 1]);
	SPI_finish();

	if (!range->listing)
	{
		int64		next = sweep_next_pace(sweep, sweep->row_pace, began);

		if (range->full || next < sweep->row_pace)
			sweep->row_pace = Min(next, ROWS_AT_A_TIME);
	}
}

static bool
sweep_range_tried(SweepRange *range)
{
	int64		before = range->sweep->removed;

	if (idem_try(sweep_range, range, idem_try_tolerates))
		return true;
	range->sweep->removed = before;
	return false;
}

/*
 * The same row by row, so that only the one that is to blame stays.
 */
static void
sweep_row_by_row(SweepRange *range)
{
	IdemSweep  *sweep = range->sweep;
	bool		failed = false;

	range->listing = true;
	do
	{
		MemoryContextReset(sweep->context);
		if (!sweep_range_tried(range))
		{
			failed = true;
			break;
		}
		for (uint64 i = 0; i < range->nfound && !idem_sweep_is_over(sweep); i++)
		{
			SweepRange	one = {.sweep = sweep,.from = range->found[i]};
			SweepRange	behind = one;

			CHECK_FOR_INTERRUPTS();
			sweep_go_behind(&behind, &range->found[i]);
			one.to = behind.from;
			if (!sweep_range_tried(&one))
				failed = true;
		}
	} while (range->full && !idem_sweep_is_over(sweep));
	if (failed)
		ereport(WARNING,
				(errmsg("an expired row of table \"idem.%s\" could not be swept",
						sweep->kind->name)));
}

/*
 * Removes what has expired in some blocks, row by row from where that raises an
 * error.  False if the turn ended before all was removed.
 */
static bool
sweep_blocks(IdemSweep *sweep, BlockNumber block, BlockNumber n)
{
	SweepRange	range = {.sweep = sweep};

	ItemPointerSet(&range.from, block, 0);
	ItemPointerSet(&range.to, block + n, 0);
	while (sweep_range_tried(&range))
	{
		if (!range.full)
			return true;
		if (idem_sweep_is_over(sweep))
			return false;
		CHECK_FOR_INTERRUPTS();
		IDEM_VACUUM_DELAY();
		MemoryContextReset(sweep->context);
	}
	sweep_row_by_row(&range);
	return sweep->removed < sweep->quota;
}

/*
 * One turn of a kind whose rows expire by a condition.
 */
static void
sweep_table(IdemSweep *sweep)
{
	Relation	rel = table_open(idem_catalog_relation(sweep->kind->relation),
								 NoLock);
	BlockNumber nblocks = 0;
	MemoryContext caller = CurrentMemoryContext;

	/* in any other its rows have no place that a range could name */
	if (rel->rd_rel->relkind == RELKIND_RELATION &&
		rel->rd_rel->relam == HEAP_TABLE_AM_OID)
		nblocks = RelationGetNumberOfBlocks(rel);
	else
	{
		sweep->skipped = true;
		ereport(WARNING,
				(errmsg("table \"idem.%s\" is not a plain table and is not swept",
						sweep->kind->name)));
	}

	sweep->nblocks = nblocks;
	sweep->file = rel->rd_rel->relfilenode;
	while (sweep->done < nblocks && !idem_sweep_is_over(sweep))
	{
		TimestampTz began = GetCurrentTimestamp();
		bool		through;
		BlockNumber block = sweep->block % nblocks;
		BlockNumber n = Min(sweep->pace, nblocks - sweep->done);

		n = Min(n, nblocks - block);
		CHECK_FOR_INTERRUPTS();
		idem_sweep_stats_show(sweep);
		MemoryContextSwitchTo(sweep->context);
		through = sweep_blocks(sweep, block, n);
		MemoryContextSwitchTo(caller);
		MemoryContextReset(sweep->context);
		IDEM_VACUUM_DELAY();
		sweep->pace = Min(sweep_next_pace(sweep, sweep->pace, began),
						  BLOCKS_AT_A_TIME);

		/* the same blocks again */
		sweep->block = block;
		if (!through)
			break;
		sweep->done += n;
		sweep->block = (block + n) % nblocks;
	}
	sweep->once_round = sweep->done >= nblocks;
	table_close(rel, NoLock);
}

/*
 * One turn of one kind.
 */
static void
sweep_take_turn(IdemSweep *sweep)
{
	idem_sweep_stats_begin(sweep, sweep->kind->name);
	if (!ConditionalLockRelationOid(idem_catalog_relation(sweep->kind->relation),
									RowExclusiveLock))
	{
		sweep->once_round = true;
		sweep->skipped = true;
	}
	else if (sweep->kind->walk != NULL)
		sweep->kind->walk(sweep);
	else
		sweep_table(sweep);
}

/* all kinds in one call */
typedef struct SweepCall
{
	IdemSweep	sweeps[NKINDS];
	int			first;			/* of the kinds */
	int64		rows_left;
	TimestampTz stop_at;
} SweepCall;

/*
 * Gives each kind its part, and the rest to those that could use more.
 */
static void
sweep_share(SweepCall *call)
{
	for (int round = 0; round < 2; round++)
	{
		for (int i = 0; i < NKINDS; i++)
		{
			IdemSweep  *sweep = &call->sweeps[(call->first + i) % NKINDS];
			int			sharers = round == 0 ? NKINDS - i : 1;
			int64		share = call->rows_left / sharers +
			(call->rows_left % sharers != 0);
			int64		before = sweep->removed;
			TimestampTz now = GetCurrentTimestamp();

			if (call->rows_left <= 0 || now >= call->stop_at)
				return;
			if (sweep->once_round)
				continue;
			sweep->quota = share > PG_INT64_MAX - before ?
				PG_INT64_MAX : before + share;
			sweep->stop_at = TIMESTAMP_NOT_FINITE(call->stop_at) ?
				call->stop_at : now + (call->stop_at - now) / sharers;
			sweep_take_turn(sweep);
			call->rows_left -= sweep->removed - before;
		}
	}
}

/*
 * The same at the pace of vacuum_cost_delay.
 */
static void
sweep_at_pace(SweepCall *call)
{
	IDEM_VACUUM_COSTS();
	VacuumCostBalance = 0;
	PG_TRY();
	{
		sweep_share(call);
	}
	PG_FINALLY();
	{
		VacuumCostActive = false;
	}
	PG_END_TRY();
}

/*
 * Sweeps all kinds, from the positions that are saved, and saves where it
 * came to.  The caller has connected to SPI.
 */
static void
sweep_all(SweepCall *call)
{
	bool		owned[NKINDS] = {false};
	bool		owns_first = false;
	bool		all_round = true;
	BlockNumber before[NKINDS] = {0};
	Datum		values[2];

	(void) idem_own_run(&load_statement, IDEM_REL_SWEEP_STATE, NULL);
	for (uint64 row = 0; row < SPI_processed; row++)
	{
		char	   *kind = idem_own_text(SPI_tuptable->vals[row],
										 SPI_tuptable->tupdesc, 1);
		bool		isnull;
		int64		position = DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[row],
														   SPI_tuptable->tupdesc,
														   2, &isnull));

		if (strcmp(kind, FIRST) == 0)
		{
			owns_first = true;
			call->first = (uint64) position % NKINDS;
		}
		for (int i = 0; i < NKINDS; i++)
		{
			if (strcmp(kind, kinds[i].name) != 0)
				continue;
			owned[i] = true;
			before[i] = (BlockNumber) position;
			call->sweeps[i].block = before[i];
		}
	}

	sweep_at_pace(call);

	for (int i = 0; i < NKINDS; i++)
	{
		all_round = all_round && call->sweeps[i].once_round;
		idem_sweep_stats_end(&call->sweeps[i], owned[i]);
		if (!owned[i] || call->sweeps[i].block == before[i])
			continue;
		values[0] = CStringGetTextDatum(kinds[i].name);
		values[1] = Int64GetDatum(call->sweeps[i].block);
		(void) idem_own_run(&save_statement, IDEM_REL_SWEEP_STATE, values);
	}
	if (owns_first && !all_round)
	{
		values[0] = CStringGetTextDatum(FIRST);
		values[1] = Int64GetDatum((call->first + 1) % NKINDS);
		(void) idem_own_run(&save_statement, IDEM_REL_SWEEP_STATE, values);
	}
}

/*
 * Sweeps at most so many rows until then; "rsinfo", if it is not NULL, gets one
 * row per kind.  How many were removed.
 */
int64
idem_sweep_run(int64 max_rows, TimestampTz stop_at, ReturnSetInfo *rsinfo)
{
	SweepCall	call;
	TimestampTz now = GetCurrentTimestamp();
	MemoryContext context;
	int64		removed = 0;

	memset(&call, 0, sizeof(call));
	call.rows_left = max_rows;
	call.stop_at = stop_at;
	context = AllocSetContextCreate(CurrentMemoryContext, "idem sweep",
									ALLOCSET_DEFAULT_SIZES);
	for (int i = 0; i < NKINDS; i++)
	{
		call.sweeps[i].kind = &kinds[i];
		call.sweeps[i].now = now;
		call.sweeps[i].context = context;
		call.sweeps[i].pace = FIRST_BLOCKS;
		call.sweeps[i].row_pace = FIRST_ROWS;
	}
	SPI_connect();
	sweep_all(&call);
	SPI_finish();
	MemoryContextDelete(context);

	for (int i = 0; i < NKINDS; i++)
	{
		Datum		values[2];
		bool		nulls[2] = {false, false};

		removed += call.sweeps[i].removed;
		if (rsinfo == NULL)
			continue;
		values[0] = CStringGetTextDatum(kinds[i].name);
		values[1] = Int64GetDatum(call.sweeps[i].removed);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return removed;
}

/*
 * idem_sweep(max_rows, budget) -> SETOF (kind, removed): one row per kind
 */
Datum
idem_sweep(PG_FUNCTION_ARGS)
{
	int64		max_rows = PG_ARGISNULL(0) ? PG_INT64_MAX : PG_GETARG_INT32(0);
	TimestampTz stop_at;

	if (max_rows <= 0)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_BAD_ARGUMENT),
				 errmsg("argument \"max_rows\" must be greater than zero"),
				 errhidestmt(true)));
	stop_at = PG_ARGISNULL(1) ? DT_NOEND :
		idem_scope_deadline(GetCurrentTimestamp(), PG_GETARG_INTERVAL_P(1),
							"budget");
	idem_require_writable("idem_sweep()");

	InitMaterializedSRF(fcinfo, 0);
	(void) idem_sweep_run(max_rows, stop_at,
						  (ReturnSetInfo *) fcinfo->resultinfo);
	PG_RETURN_NULL();
}
