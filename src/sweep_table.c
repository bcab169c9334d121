/*
 * sweep_table.c
 *	  How a plain table is swept whose rows expire by a condition.
 *
 * Its blocks are walked, some in one statement, and the rows that have expired
 * in them are deleted by their places, some in one statement: the fewer the slower
 * the ones before were.  Where that raises an error, or would wait for a
 * lock, it is done again row by row, so that only those stay that are to blame.
 *
 * What stays must hide nothing that is behind it.  So the next turn goes on at the
 * very row to which the last one came.
 */
#include "postgres.h"

#include "access/table.h"
#include "catalog/pg_am.h"
#include "commands/vacuum.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/array.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "own.h"
#include "sweep.h"
#include "wait.h"

/* between two looks at whether the time is up */
#define BLOCKS_AT_A_TIME	64

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
int64
idem_sweep_next_pace(const IdemSweep *sweep, int64 pace, TimestampTz began)
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

	(void) idem_own_run((IdemOwnStatement *) &sweep->kind->list,
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

static ItemPointerData
sweep_behind(const ItemPointerData *tid)
{
	ItemPointerData next = *tid;

	ItemPointerSetOffsetNumber(&next, ItemPointerGetOffsetNumber(tid) + 1);
	return next;
}

/*
 * Goes on behind the last place in the range that was found.  A row that was
 * updated while we looked has another by now, before or behind the range.
 */
static void
sweep_go_on(SweepRange *range)
{
	for (uint64 i = 0; i < range->nfound; i++)
	{
		if (ItemPointerCompare(&range->found[i], &range->from) >= 0 &&
			ItemPointerCompare(&range->found[i], &range->to) < 0)
			range->from = sweep_behind(&range->found[i]);
	}
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
	sweep_go_on(range);
	SPI_finish();

	if (!range->listing)
	{
		int64		next = idem_sweep_next_pace(sweep, sweep->row_pace, began);

		if (range->full || next < sweep->row_pace)
			sweep->row_pace = Min(next, IDEM_SWEEP_ROWS);
	}
}

/*
 * The same in a subtransaction.  False, and nothing is removed, if that raised an
 * error or would have waited for a lock.
 */
static bool
sweep_range_tried(SweepRange *range)
{
	int64		before = range->sweep->removed;
	ItemPointerData from = range->from;

	if (idem_try_without_waiting(sweep_range, range))
		return true;
	range->sweep->removed = before;
	range->from = from;
	return false;
}

/*
 * The same row by row, so that only the one that is to blame stays.  False if
 * it did not come to the end of the range, but to where that begins now.
 */
static bool
sweep_row_by_row(SweepRange *range)
{
	IdemSweep  *sweep = range->sweep;

	range->listing = true;
	do
	{
		MemoryContextReset(sweep->context);
		if (!sweep_range_tried(range))
		{
			idem_sweep_failed(sweep);
			return true;
		}
		for (uint64 i = 0; i < range->nfound; i++)
		{
			SweepRange	one = {
				.sweep = sweep,
				.from = range->found[i],
				.to = sweep_behind(&range->found[i])
			};

			CHECK_FOR_INTERRUPTS();
			if (idem_sweep_is_over(sweep))
			{
				range->from = range->found[i];
				return false;
			}
			if (!sweep_range_tried(&one))
				idem_sweep_failed(sweep);
		}
		if (!range->full)
			return true;
	} while (!idem_sweep_is_over(sweep));
	return false;
}

/*
 * Removes what has expired in the range, row by row from where that raises an
 * error.  False if it did not come to the end, but to where the range begins now.
 */
static bool
sweep_blocks(SweepRange *range)
{
	IdemSweep  *sweep = range->sweep;

	while (sweep_range_tried(range))
	{
		if (!range->full)
			return true;
		if (idem_sweep_is_over(sweep))
			return false;
		CHECK_FOR_INTERRUPTS();
		IDEM_VACUUM_DELAY();
		MemoryContextReset(sweep->context);
	}
	return sweep_row_by_row(range);
}

/*
 * Whether the rows of an opened table have places that a range can name.
 */
bool
idem_sweep_has_places(Relation rel)
{
	return rel->rd_rel->relkind == RELKIND_RELATION &&
		rel->rd_rel->relam == HEAP_TABLE_AM_OID;
}

/*
 * One turn: "look", if not NULL, is called for each of its parts.
 */
void
idem_sweep_table(IdemSweep *sweep, Relation rel, IdemSweepLook look, void *arg)
{
	BlockNumber nblocks = RelationGetNumberOfBlocks(rel);
	BlockNumber whole;
	MemoryContext caller = CurrentMemoryContext;

	sweep->nblocks = nblocks;
	sweep->file = rel->rd_rel->relfilenode;
	if (sweep->block >= nblocks)
		sweep->offset = 0;
	if (sweep->done == 0)
		sweep->midway = sweep->offset > FirstOffsetNumber;
	whole = sweep->midway ? nblocks + 1 : nblocks;
	while (sweep->done < whole && nblocks > 0 && !idem_sweep_is_over(sweep))
	{
		TimestampTz began = GetCurrentTimestamp();
		SweepRange	range = {.sweep = sweep};
		BlockNumber block = sweep->block % nblocks;
		BlockNumber n = Min(sweep->pace, whole - sweep->done);
		BlockNumber end = block + Min(n, nblocks - block);

		CHECK_FOR_INTERRUPTS();
		idem_sweep_stats_show(sweep);
		ItemPointerSet(&range.from, block, sweep->offset);
		ItemPointerSet(&range.to, end, 0);
		MemoryContextSwitchTo(sweep->context);
		if (sweep_blocks(&range))
			range.from = range.to;
		if (look != NULL)
			look(sweep, block, end, arg);
		MemoryContextSwitchTo(caller);
		MemoryContextReset(sweep->context);
		IDEM_VACUUM_DELAY();
		sweep->pace = Min(idem_sweep_next_pace(sweep, sweep->pace, began),
						  BLOCKS_AT_A_TIME);

		sweep->block = ItemPointerGetBlockNumberNoCheck(&range.from);
		sweep->offset = ItemPointerGetOffsetNumberNoCheck(&range.from);
		sweep->done += sweep->block - block;
		sweep->block %= nblocks;
	}
	sweep->once_round = sweep->done >= whole;
}
