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
#include "catalog/pg_type.h"
#include "commands/vacuum.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
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

#define EXPIRED_IN_RANGE(table, expired) \
	"SELECT ctid FROM ONLY idem." table \
	" WHERE ctid OPERATOR(pg_catalog.>=) $1" \
	" AND ctid OPERATOR(pg_catalog.<) $2 AND (" expired ") LIMIT $4"

/*
 * A kind whose rows have expired where "expired" holds.  It may use the
 * table's columns, and $3, the present time; everything in it is qualified.
 */
#define SWEEP_WHERE(table, rel, turn, expired) \
{ \
	.name = table, \
	.relation = rel, \
	.walk = turn, \
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

static void sweep_plain_table(IdemSweep *sweep);

static IdemSweepKind kinds[] =
{
	SWEEP_WHERE("key", IDEM_REL_KEY, idem_sweep_keys,
				"expires_at OPERATOR(pg_catalog.<=) $3"),
	SWEEP_WHERE("history", IDEM_REL_HISTORY, sweep_plain_table,
				"expires_at OPERATOR(pg_catalog.<=) $3"),
	SWEEP_WHERE("branch", IDEM_REL_BRANCH, sweep_plain_table,
				"expires_at OPERATOR(pg_catalog.<=) $3"),
	SWEEP_WHERE("token", IDEM_REL_TOKEN, sweep_plain_table,
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
				" AND ROW(older.created_at, older.hash) OPERATOR(pg_catalog.<)"
				" ROW(token.ends_older, token.hash)"
				" AND older.used_at IS NULL))"),
	SWEEP_WHERE("lease", IDEM_REL_LEASE, sweep_plain_table,
				"until OPERATOR(pg_catalog.<=) ($3 OPERATOR(pg_catalog.-)"
				" CASE WHEN released THEN '1 h'::pg_catalog.interval"
				" ELSE '24 h'::pg_catalog.interval END)"),
	SWEEP_WHERE("window_hit", IDEM_REL_WINDOW_HIT, sweep_plain_table,
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
 * Whether the turn has to end.  Where the clock is set back it ends at once: what
 * had expired may be live.
 */
bool
idem_sweep_is_over(const IdemSweep *sweep)
{
	TimestampTz now;

	if (sweep->removed >= sweep->quota)
		return true;
	now = GetCurrentTimestamp();
	return now >= sweep->stop_at || now < sweep->now;
}

/*
 * A row could not be removed, for the reason that the last try failed.
 */
void
idem_sweep_failed(IdemSweep *sweep)
{
	const char *why = idem_try_why();

	if (why != NULL && sweep->failed++ == 0)
		strlcpy(sweep->why, why, sizeof(sweep->why));
}

/*
 * One turn of a kind whose table is walked, or nothing.
 */
static void
sweep_plain_table(IdemSweep *sweep)
{
	Relation	rel = table_open(idem_catalog_relation(sweep->kind->relation),
								 NoLock);

	if (idem_sweep_has_places(rel))
		idem_sweep_table(sweep, rel, NULL, NULL);
	else
	{
		sweep->once_round = true;
		sweep->skipped = true;
		ereport(WARNING,
				(errmsg("table \"idem.%s\" is not a plain table and is not swept",
						sweep->kind->name)));
	}
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
	else
		sweep->kind->walk(sweep);

	if (sweep->failed > 0)
		ereport(WARNING,
				(errmsg_plural("%lld expired row of table \"idem.%s\" could not be swept",
							   "%lld expired rows of table \"idem.%s\" could not be swept",
							   (unsigned long) sweep->failed,
							   (long long) sweep->failed, sweep->kind->name),
				 errdetail("The first error was: %s", sweep->why)));
	sweep->failed = 0;
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

			if (call->rows_left <= 0 || now >= call->stop_at ||
				now < sweep->now)
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
	int64		before[NKINDS] = {0};
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
			before[i] = position;
			call->sweeps[i].block = (BlockNumber) position;
			call->sweeps[i].offset = (OffsetNumber) (position >> 32);
		}
	}

	sweep_at_pace(call);

	for (int i = 0; i < NKINDS; i++)
	{
		int64		position = call->sweeps[i].block |
		(int64) call->sweeps[i].offset << 32;

		all_round = all_round && call->sweeps[i].once_round;
		idem_sweep_stats_end(&call->sweeps[i], owned[i]);
		if (!owned[i] || position == before[i])
			continue;
		values[0] = CStringGetTextDatum(kinds[i].name);
		values[1] = Int64GetDatum(position);
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
		call.sweeps[i].pace = 1;
		call.sweeps[i].row_pace = IDEM_SWEEP_FIRST_ROWS;
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
