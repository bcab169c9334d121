/*
 * window.c
 *	  SQL function idem_window: at most so many hits in any span of time.
 *
 * One row per (scope, key) holds the times of its hits, oldest first, and no
 * more of them than were allowed.  A hit is one act on that row: what has left
 * the span is dropped, the rest counted, and the hit added to the very version
 * that was read.  If that is no longer the latest, or another transaction is
 * at it, the call starts over behind it.  So of two that saw one place left,
 * one takes it and the other sees none; and a hit that is rolled back was
 * never counted, since those that came after have waited to know.
 *
 * The first hit of a key is a speculative insertion (direct.c), which meets
 * every other first hit in the primary key.  After some keys in a row that were
 * new, a session takes the next one for new as well and inserts without a look;
 * the primary key finds out where that is wrong, at the price of one dead row.
 * That is never tried where the session has seen the key's row lately.
 *
 * The row is judged as committed, whatever the caller's isolation level: a
 * limit is about what happened, not about what a snapshot shows.  Where no
 * place is left nothing is written but for such a dead row, and nobody waited
 * for: what others have under way could only add hits.
 *
 * Time is read from the wall clock after the row, and once more where the
 * update slept behind a transaction that then rolled back.  Where the clock was
 * set back, the hits that are in the future count as made just now, which is
 * written also where no place is left: else such a row would be full until the
 * clock is where it was.
 *
 * Locks: idem.window_hit and its index in ROW EXCLUSIVE mode, then the row, to
 * the end of the transaction.  A transaction that hits two keys in an order and
 * another that hits them in the other can deadlock, which PostgreSQL detects.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"
#include "utils/typcache.h"

#include "catalog.h"
#include "direct.h"
#include "errors.h"
#include "registry.h"
#include "stats.h"

PG_FUNCTION_INFO_V1(idem_window);

/* the row is rewritten with each hit */
#define MAX_HITS		10000

/* columns of idem.window_hit, in order */
enum
{
	COL_SCOPE,
	COL_KEY,
	COL_HITS,
	COL_EXPIRES_AT,
	NCOLUMNS
};

static const Oid column_types[NCOLUMNS] = {
	[COL_SCOPE] = TEXTOID,
	[COL_KEY] = TEXTOID,
	[COL_HITS] = TIMESTAMPTZARRAYOID,
	[COL_EXPIRES_AT] = TIMESTAMPTZOID
};

static IdemDirectKind window_table = {
	.relation = IDEM_REL_WINDOW_HIT,
	.name = "window_hit",
	.natts = NCOLUMNS,
	.types = column_types,
	.nkeys = 2
};

/* what is asked for */
typedef struct Window
{
	Datum		key[2];			/* scope and key */
	const Interval *span;
	int			max;
	IdemWait	wait;
} Window;

typedef struct WindowVerdict
{
	bool		allowed;
	int			count;			/* -1: not known */
	int			retry_after;	/* seconds, where not allowed */
} WindowVerdict;

static IdemHints hints;

/* keys without a hint that were new, since one that was not */
static int	new_in_a_row = 0;

/*
 * When a hit leaves the span.
 */
static TimestampTz
window_end(const Window *window, TimestampTz hit)
{
	if (window->span->month == 0 && window->span->day == 0)
		return hit + window->span->time;
	return DatumGetTimestampTz(DirectFunctionCall2(timestamptz_pl_interval,
												   TimestampTzGetDatum(hit),
												   IntervalPGetDatum(window->span)));
}

/*
 * How many of the hits, which are in order, have left the span.  Days and
 * months are added by the calendar, where an hour may be skipped: then a later
 * hit can end first, and waits for the earlier ones.
 */
static int
window_count_gone(const Window *window, const TimestampTz *hits, int nhits,
				  TimestampTz now)
{
	int			low = 0;
	int			high = nhits;

	if (window->span->month != 0 || window->span->day != 0)
	{
		while (low < nhits && window_end(window, hits[low]) <= now)
			low++;
		return low;
	}

	while (low < high)
	{
		int			middle = low + (high - low) / 2;

		if (window_end(window, hits[middle]) <= now)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/*
 * The hits of a row as they are stored: nothing but idem writes them, but the
 * table's owner could.
 */
static const TimestampTz *
window_take_hits(Datum value, bool isnull, int *nhits)
{
	ArrayType  *array;

	*nhits = 0;
	if (isnull)
		return NULL;
	array = DatumGetArrayTypeP(value);
	if (ARR_NDIM(array) > 1 || ARR_HASNULL(array) ||
		ARR_ELEMTYPE(array) != TIMESTAMPTZOID)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("a row of table \"idem.window_hit\" does not hold a list of times"),
				 errhidestmt(true)));
	if (ARR_NDIM(array) == 1)
		*nhits = ARR_DIMS(array)[0];
	return (const TimestampTz *) ARR_DATA_PTR(array);
}

/*
 * Where the clock was set back, hits are in the future.  How far each of them
 * is, nobody knows, since the clock may have been ahead by more than once; none
 * was made later than now.  So they count as made now: none leaves the span
 * sooner than it should, and all have left one span from now.  The row is kept
 * for less only if all of them were in the future: else it may stand for a hit
 * with a longer span that was not; and by no more than the least that they
 * were ahead.  True if there were any.
 */
static bool
window_rebase(const Window *window, TimestampTz now, Datum *values, bool *nulls)
{
	int			nhits;
	const TimestampTz *hits = window_take_hits(values[COL_HITS],
											   nulls[COL_HITS], &nhits);
	TimestampTz expires_at;
	ArrayType  *array;
	TimestampTz *moved;

	if (nhits == 0 || hits[nhits - 1] <= now)
		return false;
	array = DatumGetArrayTypePCopy(values[COL_HITS]);
	moved = (TimestampTz *) ARR_DATA_PTR(array);
	for (int i = 0; i < nhits; i++)
		moved[i] = Min(hits[i], now);
	values[COL_HITS] = PointerGetDatum(array);
	expires_at = DatumGetTimestampTz(values[COL_EXPIRES_AT]);
	expires_at -= Max(hits[0] - now, 0);
	values[COL_EXPIRES_AT] =
		TimestampTzGetDatum(Max(window_end(window, now), expires_at));
	return true;
}

/*
 * The hits that count, and one more.
 */
static Datum
window_add_hit(const TimestampTz *hits, int nhits, TimestampTz hit)
{
	int			n = nhits + 1;
	Size		size = ARR_OVERHEAD_NONULLS(1) + n * sizeof(TimestampTz);
	ArrayType  *array = palloc0(size);
	TimestampTz *data;

	SET_VARSIZE(array, size);
	array->ndim = 1;
	array->dataoffset = 0;
	array->elemtype = TIMESTAMPTZOID;
	ARR_DIMS(array)[0] = n;
	ARR_LBOUND(array)[0] = 1;
	data = (TimestampTz *) ARR_DATA_PTR(array);
	if (nhits > 0)
		memcpy(data, hits, nhits * sizeof(TimestampTz));
	data[nhits] = hit;
	return PointerGetDatum(array);
}

/*
 * Whole seconds until a time, rounded up, at least one.
 */
static int
window_seconds_until(TimestampTz then, TimestampTz now)
{
	int64		seconds = (then - now + USECS_PER_SEC - 1) / USECS_PER_SEC;

	return (int) Min(Max(seconds, 1), PG_INT32_MAX);
}

/*
 * Judges the row as it was read, at a time.  Where a place is left, the row
 * becomes what is to be written.
 */
static void
window_judge(const Window *window, bool known, TimestampTz now,
			 Datum *values, bool *nulls, WindowVerdict *verdict)
{
	int			nhits = 0;
	const TimestampTz *hits = known ?
	window_take_hits(values[COL_HITS], nulls[COL_HITS], &nhits) : NULL;
	int			gone = window_count_gone(window, hits, nhits, now);
	int			count = nhits - gone;
	TimestampTz expires_at;

	verdict->allowed = count < window->max;
	if (!verdict->allowed)
	{
		/* where fewer are allowed than before, more than one has to leave */
		TimestampTz free_at = now;

		for (int i = gone; i <= nhits - window->max; i++)
			free_at = Max(free_at, window_end(window, hits[i]));
		verdict->count = count;
		verdict->retry_after = window_seconds_until(free_at, now);
		return;
	}

	verdict->count = count + 1;
	values[COL_SCOPE] = window->key[0];
	values[COL_KEY] = window->key[1];
	values[COL_HITS] = window_add_hit(hits + gone, count, now);
	/* a hit with a longer span may still count for that one */
	expires_at = window_end(window, now);
	if (count > 0)
		expires_at = Max(expires_at,
						 DatumGetTimestampTz(values[COL_EXPIRES_AT]));
	values[COL_EXPIRES_AT] = TimestampTzGetDatum(expires_at);
	memset(nulls, false, NCOLUMNS * sizeof(bool));
}

/*
 * The update slept, behind somebody who then rolled back: the hit happens now,
 * and the rest has grown older.
 */
static void
window_restamp(IdemDirect *table, const Window *window, ItemPointer tid,
			   TimestampTz now, Datum *values, bool *nulls,
			   WindowVerdict *verdict)
{
	ArrayType  *array = DatumGetArrayTypeP(values[COL_HITS]);

	/* without the hit that was added */
	ARR_DIMS(array)[0]--;
	window_judge(window, true, now, values, nulls, verdict);
	if (idem_direct_update(table, tid, values, nulls,
						   &idem_wait_forever) != IDEM_STORE_OK)
		elog(ERROR, "window was changed by its own transaction");
}

/*
 * The row of the key, where the session saw it last, else through the index.
 * NULL if there is none, or if this is presumed.
 */
static HeapTuple
window_read(IdemDirect *table, const Window *window, uint32 hash,
			bool first_look, Datum *values, bool *nulls)
{
	bool		seen = idem_direct_has_hint(&hints, hash);
	HeapTuple	tuple = idem_direct_hinted(table, &hints,
										   idem_catalog_epoch(IDEM_REL_WINDOW_HIT),
										   hash, window->key, values, nulls);

	if (tuple != NULL ||
		(first_look && !seen && new_in_a_row >= IDEM_ENOUGH_NEW))
		return tuple;

	tuple = idem_direct_probe(table, window->key, false, values, nulls);
	if (tuple != NULL)
	{
		new_in_a_row = 0;
		idem_direct_note(table, &hints, hash);
	}
	return tuple;
}

static void
window_hit(const Window *window, WindowVerdict *verdict)
{
	IdemDirect	table;
	uint32		hash;

	idem_direct_open_own(&table, &window_table, RowExclusiveLock);
	hash = idem_direct_hash(&table, window->key);
	for (bool first_look = true;; first_look = false)
	{
		Datum		values[NCOLUMNS];
		bool		nulls[NCOLUMNS];
		HeapTuple	tuple;
		ItemPointerData tid;
		TimestampTz now;
		bool		rebased;
		IdemStoreResult result;

		CHECK_FOR_INTERRUPTS();

		tuple = window_read(&table, window, hash, first_look, values, nulls);
		now = GetCurrentTimestamp();
		rebased = tuple != NULL && window_rebase(window, now, values, nulls);
		window_judge(window, tuple != NULL, now, values, nulls, verdict);
		if (!verdict->allowed && !rebased)
			break;

		if (tuple != NULL)
		{
			tid = tuple->t_self;
			result = idem_direct_update(&table, &tid, values, nulls,
										&window->wait);
		}
		else
		{
			result = idem_direct_insert(&table, values, nulls, &window->wait,
										&tid);
			new_in_a_row = result == IDEM_STORE_OK ? new_in_a_row + 1 : 0;
		}
		if (result == IDEM_STORE_OK)
		{
			if (tuple != NULL && verdict->allowed &&
				idem_wait_may_have_slept(now))
				window_restamp(&table, window, &tid,
							   Max(GetCurrentTimestamp(), now), values, nulls,
							   verdict);
			idem_direct_note(&table, &hints, hash);
			break;
		}
		if (result == IDEM_STORE_BUSY)
		{
			verdict->allowed = false;
			verdict->count = -1;
			verdict->retry_after = 1;
			break;
		}
	}
	idem_direct_close_own(&table);
}

static void
window_check_arguments(const Interval *span, bool has_max, int max)
{
	if (span == NULL)
		idem_report_missing("span");
	(void) idem_scope_deadline(GetCurrentTimestamp(), span, "span");
	if (!has_max)
		idem_report_missing("max");
	if (max < 1 || max > MAX_HITS)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_BAD_ARGUMENT),
				 errmsg("argument \"max\" is out of range"),
				 errdetail("It is %d; it must be 1 to %d.", max, MAX_HITS),
				 max < 1 ? 0 : errhint("Divide span and max by the same number."),
				 errhidestmt(true)));
}

/*
 * idem_window(key, span, scope, max, wait) -> idem_windowed
 */
Datum
idem_window(PG_FUNCTION_ARGS)
{
	Window		window = {.span = IDEM_ARG_INTERVAL(1)};
	WindowVerdict verdict = {0};
	IdemScope	scope;
	Oid			rettype;
	TupleDesc	desc;
	HeapTuple	tuple;
	Datum		values[3];
	bool		nulls[3] = {false, false, false};

	idem_registry_check_key(IDEM_ARG_TEXT(0), false);
	window_check_arguments(window.span, !PG_ARGISNULL(3),
						   PG_ARGISNULL(3) ? 0 : PG_GETARG_INT32(3));
	window.max = PG_GETARG_INT32(3);
	idem_scope_resolve(IDEM_ARG_TEXT(2), IDEM_SCOPE_CLAIMING, &scope);
	idem_registry_parse_wait(IDEM_ARG_INTERVAL(4), &window.wait);
	idem_require_writable("idem_window()");

	window.key[0] = PointerGetDatum(scope.name);
	window.key[1] = PointerGetDatum(IDEM_ARG_TEXT(0));
	window_hit(&window, &verdict);
	idem_stats_counted(IDEM_STATS_WINDOW, NULL, verdict.allowed ?
					   IDEM_COUNT_CLAIMS : IDEM_COUNT_REFUSED);

	/* without an expression in a fast-path call */
	rettype = get_fn_expr_rettype(fcinfo->flinfo);
	if (!OidIsValid(rettype))
		rettype = get_func_rettype(fcinfo->flinfo->fn_oid);
	desc = lookup_rowtype_tupdesc(rettype, -1);
	if (desc->natts != lengthof(values))
		elog(ERROR, "type idem_windowed does not have its declared columns");
	values[0] = BoolGetDatum(verdict.allowed);
	values[1] = Int32GetDatum(verdict.count);
	nulls[1] = verdict.count < 0;
	values[2] = Int32GetDatum(verdict.retry_after);
	nulls[2] = verdict.allowed;
	tuple = heap_form_tuple(desc, values, nulls);
	ReleaseTupleDesc(desc);
	PG_RETURN_DATUM(HeapTupleGetDatum(tuple));
}
