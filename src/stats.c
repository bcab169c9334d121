/*
 * stats.c
 *	  SQL functions that show what was counted: idem_stats, idem_stats_reset,
 *	  idem_refusals, idem_sweep_progress.
 *
 * They show the current database only.  Which counters a kind of row has is in
 * the table "shown"; all others are NULL, so that a zero always means that it
 * could have been counted.  Without preload the first and the third answer in
 * one row that says so.
 */
#include "postgres.h"

#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/procarray.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "stats_shared.h"

PG_FUNCTION_INFO_V1(idem_stats);
PG_FUNCTION_INFO_V1(idem_stats_reset);
PG_FUNCTION_INFO_V1(idem_refusals);
PG_FUNCTION_INFO_V1(idem_sweep_progress);

static const char not_preloaded[] =
"nothing is counted: put idem into shared_preload_libraries and restart the server";

static const char *const kind_names[] = {
	[IDEM_STATS_SCOPE] = "scope",
	[IDEM_STATS_MACHINE] = "machine",
	[IDEM_STATS_VERSION] = "version",
	[IDEM_STATS_TOKEN] = "token",
	[IDEM_STATS_LEASE] = "lease",
	[IDEM_STATS_WINDOW] = "window",
	[IDEM_STATS_BRANCH] = "branch",
	[IDEM_STATS_SWEEP] = "sweep",
	[IDEM_STATS_TICK] = "tick",
	[IDEM_STATS_OTHERS] = "others"
};

#define BIT(c)		(UINT64CONST(1) << IDEM_COUNT_##c)
#define CLAIM_BITS	(BIT(CLAIMS) | BIT(REPLAYS) | BIT(FAILURES) | \
					 BIT(IN_PROGRESS) | BIT(MISMATCHES) | BIT(TAKEOVERS) | \
					 BIT(WAITS) | BIT(WAIT_USECS))
#define MOVE_BITS	(BIT(MOVES) | BIT(ILLEGAL) | BIT(FORBIDDEN) | \
					 BIT(GUARDED) | BIT(STALE) | BIT(FROZEN) | BIT(OBSERVED))

/* which counters a kind has */
static const uint64 shown[] = {
	[IDEM_STATS_SCOPE] = CLAIM_BITS | BIT(FORBIDDEN),
	[IDEM_STATS_MACHINE] = MOVE_BITS | BIT(MISMATCHES) | BIT(REPLAYS),
	[IDEM_STATS_VERSION] = BIT(STALE),
	[IDEM_STATS_TOKEN] = BIT(CLAIMS) | BIT(REPLAYS) | BIT(MISMATCHES) | BIT(REFUSED),
	[IDEM_STATS_LEASE] = BIT(CLAIMS) | BIT(IN_PROGRESS) | BIT(STALE),
	[IDEM_STATS_WINDOW] = BIT(CLAIMS) | BIT(REFUSED),
	[IDEM_STATS_BRANCH] = BIT(CLAIMS) | BIT(REPLAYS) | BIT(REFUSED),
	[IDEM_STATS_SWEEP] = BIT(RUNS) | BIT(REMOVED),
	[IDEM_STATS_TICK] = BIT(RUNS) | BIT(MOVES) | BIT(REFUSED),
	[IDEM_STATS_OTHERS] = ~UINT64CONST(0)
};

/* columns of idem_stats(), in order */
enum
{
	STATS_KIND,
	STATS_NAME,
	STATS_COUNTERS,				/* as in IdemCounter */
	STATS_LAG = STATS_COUNTERS + IDEM_NCOUNTERS,
	STATS_SINCE,
	STATS_NCOLUMNS
};

static int
stats_compare(const void *a, const void *b)
{
	const IdemStatsKey *x = &(*(IdemStatsRow *const *) a)->key;
	const IdemStatsKey *y = &(*(IdemStatsRow *const *) b)->key;

	if (x->kind != y->kind)
		return x->kind - y->kind;
	if (x->database != y->database)
		return OidIsValid(x->database) ? -1 : 1;
	return strcmp(x->name, y->name);
}

/*
 * Seconds.
 */
static double
stats_seconds(int64 usecs)
{
	return Max(usecs, 0) / (double) USECS_PER_SEC;
}

static void
stats_put_row(ReturnSetInfo *rsinfo, IdemStatsRow *row)
{
	Datum		values[STATS_NCOLUMNS] = {0};
	bool		nulls[STATS_NCOLUMNS] = {false};
	IdemStatsKind kind = row->key.kind;
	int64		caught_up_at = idem_stats_get(row, IDEM_GAUGE_CAUGHT_UP_AT);
	int64		lag;
	const char *name = row->key.name;

	if (kind == IDEM_STATS_OTHERS && !OidIsValid(row->key.database))
		name = "of all databases";
	values[STATS_KIND] = CStringGetTextDatum(kind_names[kind]);
	nulls[STATS_NAME] = name[0] == '\0';
	values[STATS_NAME] = CStringGetTextDatum(name);
	for (int i = 0; i < IDEM_NCOUNTERS; i++)
	{
		int64		n = idem_stats_sum(row, i);

		nulls[STATS_COUNTERS + i] = (shown[kind] & (UINT64CONST(1) << i)) == 0;
		values[STATS_COUNTERS + i] = i == IDEM_COUNT_WAIT_USECS ?
			Float8GetDatum(stats_seconds(n)) : Int64GetDatum(n);
	}
	lag = GetCurrentTimestamp() - caught_up_at;
	/* the clock was set back since: nobody knows */
	nulls[STATS_LAG] = caught_up_at == 0 || lag < 0;
	values[STATS_LAG] = Float8GetDatum(stats_seconds(lag));
	values[STATS_SINCE] = TimestampTzGetDatum(row->since);
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

/*
 * The one row that says that nothing is counted, in column "column".
 */
static void
stats_put_not_preloaded(ReturnSetInfo *rsinfo, int kind, int column)
{
	int			natts = rsinfo->setDesc->natts;
	Datum	   *values = palloc0(natts * sizeof(Datum));
	bool	   *nulls = palloc(natts * sizeof(bool));

	memset(nulls, true, natts * sizeof(bool));
	values[kind] = CStringGetTextDatum("not preloaded");
	nulls[kind] = false;
	values[column] = CStringGetTextDatum(not_preloaded);
	nulls[column] = false;
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

/*
 * idem_stats() -> SETOF (kind, name, counters ..., lag, since)
 */
Datum
idem_stats(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	IdemStatsRow **rows;
	int			n;

	InitMaterializedSRF(fcinfo, 0);
	if (!idem_stats_on)
	{
		stats_put_not_preloaded(rsinfo, STATS_KIND, STATS_NAME);
		PG_RETURN_NULL();
	}

	n = idem_stats_copy_rows(&rows);
	qsort(rows, n, sizeof(IdemStatsRow *), stats_compare);
	for (int i = 0; i < n; i++)
	{
		bool		empty = rows[i]->key.kind == IDEM_STATS_OTHERS;

		for (int j = 0; j < IDEM_NCOUNTERS; j++)
			empty = empty && idem_stats_sum(rows[i], j) == 0;
		if (!empty)
			stats_put_row(rsinfo, rows[i]);
	}
	PG_RETURN_NULL();
}

/*
 * idem_stats_reset() -> boolean: whether there was anything to count in.
 */
Datum
idem_stats_reset(PG_FUNCTION_ARGS)
{
	if (idem_stats_on)
		idem_stats_forget();
	PG_RETURN_BOOL(idem_stats_on);
}

static const char *
stats_verdict(IdemCounter counter)
{
	switch (counter)
	{
		case IDEM_COUNT_ILLEGAL:
			return "illegal";
		case IDEM_COUNT_FORBIDDEN:
			return "forbidden";
		case IDEM_COUNT_GUARDED:
			return "guarded";
		case IDEM_COUNT_STALE:
			return "stale";
		case IDEM_COUNT_FROZEN:
			return "frozen";
		default:
			return "refused";
	}
}

/* columns of idem_refusals(), in order */
enum
{
	REFUSAL_AT,
	REFUSAL_ROLE,
	REFUSAL_VERDICT,
	REFUSAL_OBSERVED,
	REFUSAL_TABLE,
	REFUSAL_MACHINE,
	REFUSAL_SCOPE,
	REFUSAL_FROM,
	REFUSAL_TO,
	REFUSAL_EVENT,
	REFUSAL_CODE,
	REFUSAL_NCOLUMNS
};

static Datum
refusal_text(const char *s, bool isnull, bool *null)
{
	*null = isnull;
	return isnull ? (Datum) 0 : CStringGetTextDatum(s);
}

/*
 * idem_refusals() -> SETOF (at, role_name, verdict, observed, table_name,
 * machine, scope, from_state, to_state, event, code), the latest first
 */
Datum
idem_refusals(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	IdemKeptRefusal *refusals;
	int			n;

	InitMaterializedSRF(fcinfo, 0);
	if (!idem_stats_on)
	{
		stats_put_not_preloaded(rsinfo, REFUSAL_VERDICT, REFUSAL_TABLE);
		PG_RETURN_NULL();
	}

	n = idem_stats_copy_refusals(&refusals);
	for (int i = 0; i < n; i++)
	{
		const IdemKeptRefusal *kept = &refusals[i];
		Datum		values[REFUSAL_NCOLUMNS];
		bool		nulls[REFUSAL_NCOLUMNS] = {false};

		values[REFUSAL_AT] = TimestampTzGetDatum(kept->at);
		values[REFUSAL_ROLE] = refusal_text(kept->role, kept->role[0] == '\0',
											&nulls[REFUSAL_ROLE]);
		values[REFUSAL_VERDICT] =
			CStringGetTextDatum(stats_verdict(kept->counter));
		values[REFUSAL_OBSERVED] = BoolGetDatum(kept->observed);
		values[REFUSAL_TABLE] = refusal_text(kept->table,
											 kept->table[0] == '\0',
											 &nulls[REFUSAL_TABLE]);
		values[REFUSAL_MACHINE] =
			refusal_text(kept->name, kept->kind != IDEM_STATS_MACHINE,
						 &nulls[REFUSAL_MACHINE]);
		values[REFUSAL_SCOPE] =
			refusal_text(kept->name, kept->kind != IDEM_STATS_SCOPE,
						 &nulls[REFUSAL_SCOPE]);
		values[REFUSAL_FROM] = refusal_text(kept->from, !kept->has_from,
											&nulls[REFUSAL_FROM]);
		values[REFUSAL_TO] = refusal_text(kept->to, !kept->has_to,
										  &nulls[REFUSAL_TO]);
		values[REFUSAL_EVENT] = refusal_text(kept->event, !kept->has_event,
											 &nulls[REFUSAL_EVENT]);
		values[REFUSAL_CODE] =
			CStringGetTextDatum(unpack_sql_state(kept->sqlerrcode));
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values,
							 nulls);
	}
	PG_RETURN_NULL();
}

/*
 * idem_sweep_progress() -> SETOF (kind, pid, started_at, blocks, blocks_done,
 * removed): the sweeps that run now
 */
Datum
idem_sweep_progress(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	IdemStatsRow **rows;
	int			n = 0;

	InitMaterializedSRF(fcinfo, 0);
	if (idem_stats_on)
		n = idem_stats_copy_rows(&rows);
	for (int i = 0; i < n; i++)
	{
		IdemStatsRow *row = rows[i];
		Datum		values[6];
		bool		nulls[6] = {false};

		/* who was killed has not said that it is over */
		if (row->key.kind != IDEM_STATS_SWEEP ||
			BackendPidGetProc((int) idem_stats_get(row, IDEM_GAUGE_PID)) == NULL)
			continue;
		values[0] = CStringGetTextDatum(row->key.name);
		values[1] = Int32GetDatum((int32) idem_stats_get(row, IDEM_GAUGE_PID));
		values[2] = TimestampTzGetDatum(idem_stats_get(row,
													   IDEM_GAUGE_STARTED_AT));
		values[3] = Int64GetDatum(idem_stats_get(row, IDEM_GAUGE_BLOCKS));
		values[4] = Int64GetDatum(idem_stats_get(row, IDEM_GAUGE_BLOCKS_DONE));
		values[5] = Int64GetDatum(idem_stats_get(row, IDEM_GAUGE_REMOVED));
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values,
							 nulls);
	}
	PG_RETURN_NULL();
}
