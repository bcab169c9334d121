/*
 * tick.c
 *	  SQL function idem_tick: fires the transitions whose time has come.
 *
 * It takes due timers in order, each locked with SKIP LOCKED, so that two
 * tickers share the work and none is fired twice, and handles each (tick_timer.c)
 * in a subtransaction: an error of a guard or trigger undoes that row alone, and
 * its timer is put off, longer each time, so that it does not stand in the way of
 * others.  One that takes too long is cancelled (idem.tick_row_timeout).  What
 * guards, triggers and foreign keys wait for is not known before.  If that is a
 * table, and a row's time is over, the others of its table are left for some
 * seconds, too: they would wait for the same.
 *
 * What a row's triggers leave in the transaction (SET CONSTRAINTS, open cursors)
 * nothing but its end takes back.  So the background worker has transactions for
 * each owner; who calls the function sees to that himself.
 *
 * What rows turn out to be due for when a note of their table is dealt with is
 * fired by the same call.
 *
 * Locks, in order: the timer; the table, ROW EXCLUSIVE; the row; its other
 * timers.  Writers lock the row before its timers; but nobody waits for a
 * timer, nor a ticker for a row.
 */
#include "postgres.h"

#include "catalog/namespace.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "catalog.h"
#include "errors.h"
#include "guc.h"
#include "own.h"
#include "stats.h"
#include "sweep.h"
#include "tick.h"
#include "tick_table.h"
#include "tick_timer.h"
#include "timer.h"
#include "wait.h"

PG_FUNCTION_INFO_V1(idem_tick);

/* how long a timer is put off: doubled with each try */
#define FIRST_DELAY		(USECS_PER_MINUTE)
#define MAX_DOUBLINGS	6

/* one call */
typedef struct Tick
{
	ReturnSetInfo *rsinfo;		/* NULL: nobody to tell */
	TimestampTz now;
	TimestampTz from;			/* what is due then ... */
	TimestampTz to;				/* ... till then is read */
	TimestampTz stop_at;
	List	   *stalled;		/* timers that waited for another table in
								 * vain */
	List	   *looked;			/* notes of tables that were looked at */
	List	   *warned;			/* OIDs of tables in which none is fired */
	Datum		barred;			/* names of tables that this session leaves */
	IdemTickSession session;
} Tick;

static char *tick_error;
static int	tick_sqlerrcode;

/* with what is due, but not of tables that this session leaves */
#define FROM_DUE \
	" FROM idem.timer WHERE due OPERATOR(pg_catalog.<=) $1" \
	" AND pg_catalog.quote_ident(table_schema) OPERATOR(pg_catalog.||) '.'" \
	" OPERATOR(pg_catalog.||) pg_catalog.quote_ident(table_name)" \
	" OPERATOR(pg_catalog.<>) ALL ($2)"

static struct IdemOwnStatement select_statement = {
	"SELECT ctid, machine, table_schema, table_name, binding, row_key, state,"
	" event, since, tries, row_hash, key_since" FROM_DUE
	" AND due OPERATOR(pg_catalog.>=) $4 AND ($5 OPERATOR(pg_catalog.=) 0 OR $5 OPERATOR(pg_catalog.=)"
	" (SELECT c.relowner FROM pg_catalog.pg_class AS c"
	" WHERE c.relname OPERATOR(pg_catalog.=) table_name::pg_catalog.name"
	" AND c.relnamespace OPERATOR(pg_catalog.=) (SELECT n.oid FROM pg_catalog.pg_namespace AS n"
	" WHERE n.nspname OPERATOR(pg_catalog.=) table_schema::pg_catalog.name)))"
	" ORDER BY due LIMIT $3 FOR UPDATE OF timer SKIP LOCKED",
	IDEM_OWN_BY_INDEX, 5, {TIMESTAMPTZOID, TEXTARRAYOID, INT8OID, TIMESTAMPTZOID, OIDOID}, NULL
};

static struct IdemOwnStatement first_statement = {
	"SELECT table_schema, table_name, due" FROM_DUE
	" ORDER BY due LIMIT 1 FOR UPDATE SKIP LOCKED",
	IDEM_OWN_BY_INDEX, 2, {TIMESTAMPTZOID, TEXTARRAYOID}, NULL
};

static struct IdemOwnStatement window_statement = {
	"SELECT due" FROM_DUE " AND due OPERATOR(pg_catalog.>=) $3"
	" ORDER BY due LIMIT 1 OFFSET 4000",
	IDEM_OWN_BY_INDEX, 3, {TIMESTAMPTZOID, TEXTARRAYOID, TIMESTAMPTZOID}, NULL
};

static struct IdemOwnStatement delete_statement = {
	"DELETE FROM idem.timer WHERE ctid OPERATOR(pg_catalog.=) $1",
	IDEM_OWN_BY_INDEX, 1, {TIDOID}, NULL
};

static struct IdemOwnStatement put_off_statement = {
	"UPDATE idem.timer SET due = $2, tries = $3 WHERE ctid OPERATOR(pg_catalog.=) $1",
	IDEM_OWN_BY_INDEX, 3, {TIDOID, TIMESTAMPTZOID, INT4OID}, NULL
};

/*
 * An IdemExpected that keeps what happened.  A real cancel ends the tick; who
 * takes longer than he may, raises that error, or one that tells of a lack of
 * resources, in a guard or a trigger must not stop the timers of others.  What
 * ends the session is FATAL and does not come here.
 */
static bool
tick_tolerates(const ErrorData *error)
{
	bool		ran_out = idem_try_ran_out(error);

	if (!ran_out && error->sqlerrcode == ERRCODE_QUERY_CANCELED &&
		error->funcname != NULL &&
		strcmp(error->funcname, "ProcessInterrupts") == 0)
		return false;
	tick_sqlerrcode = error->sqlerrcode;
	tick_error = MemoryContextStrdup(TopTransactionContext,
									 psprintf("%s: %s",
											  unpack_sql_state(error->sqlerrcode),
											  ran_out ?
											  "it ran for longer than idem.tick_row_timeout" :
											  error->message));
	return true;
}

static TimestampTz
tick_later(int tries)
{
	return GetCurrentTimestamp() +
		(((int64) FIRST_DELAY) << Min(tries, MAX_DOUBLINGS));
}

/*
 * Whether one of the timers is of the same table.
 */
static bool
tick_has_table(List *timers, const IdemTickTimer *timer)
{
	ListCell   *cell;

	foreach(cell, timers)
	{
		const IdemTickTimer *other = lfirst(cell);

		if (strcmp(other->table, timer->table) == 0 &&
			strcmp(other->schema, timer->schema) == 0)
			return true;
	}
	return false;
}

/*
 * One due timer, from beginning to end.
 */
static void
tick_one(Tick *tick, IdemTickTimer *timer, int limit)
{
	Datum		args[3];

	/* what took too long may take longer the next time */
	if (idem_tick_is_note(timer))
		limit = Min((int64) limit << Min(timer->tries, MAX_DOUBLINGS), INT_MAX);
	timer->looked = tick_has_table(tick->looked, timer);
	if (tick_has_table(tick->stalled, timer))
		idem_tick_put_off(timer);
	else if (!idem_try_within(limit, idem_tick_handle, timer, tick_tolerates) &&
			 (!timer->unread || tick_sqlerrcode != ERRCODE_IDEM_BAD_ARGUMENT ||
			  !idem_try_within(limit, idem_tick_handle, timer, tick_tolerates)))
	{
		idem_stats_counted(IDEM_STATS_TICK, NULL, IDEM_COUNT_REFUSED);
		timer->outcome = "error";
		timer->done = false;
		timer->keep = true;
		timer->due = 1;
		if (idem_try_met_table())
			tick->stalled = lappend(tick->stalled, timer);
		ereport(WARNING,
				(idem_tick_is_note(timer) ?
				 errmsg("timers of table \"%s\" could not be made",
						timer->table) :
				 errmsg("timed event \"%s\" of table \"%s\" failed",
						timer->event, timer->table),
				 errdetail("%s", tick_error),
				 errhidestmt(true)));
	}

	if (idem_tick_is_note(timer) && timer->done)
		tick->looked = lappend(tick->looked, timer);
	if (OidIsValid(timer->refused_by))
	{
		idem_stats_counted(IDEM_STATS_TICK, NULL, IDEM_COUNT_REFUSED);
		if (!list_member_oid(tick->warned, timer->refused_by))
			idem_timers_warn(timer->refused_by);
		tick->warned = list_append_unique_oid(tick->warned,
											  timer->refused_by);
	}

	args[0] = PointerGetDatum(&timer->tid);
	if (!timer->keep)
		idem_timers_run(&delete_statement, args);
	else if (timer->due != 0)
	{
		bool		failed = timer->due == 1;

		args[1] = TimestampTzGetDatum(failed ?
									  Min(tick_later(timer->tries), timer->next) :
									  timer->due);
		args[2] = Int32GetDatum(timer->tries + failed);
		idem_timers_run(&put_off_statement, args);
	}
}

static void
tick_load(HeapTuple tuple, TupleDesc desc, IdemTickTimer *timer)
{
	bool		isnull;

	memset(timer, 0, sizeof(IdemTickTimer));
	timer->next = DT_NOEND;
	timer->tid = *(ItemPointer) DatumGetPointer(idem_own_value(tuple, desc, 1,
															   TIDOID, NULL));
	timer->machine = idem_own_text(tuple, desc, 2);
	timer->schema = idem_own_text(tuple, desc, 3);
	timer->table = idem_own_text(tuple, desc, 4);
	timer->tag = idem_own_text(tuple, desc, 5);
	timer->row_key = DatumGetJsonbPCopy(idem_own_value(tuple, desc, 6,
													   JSONBOID, NULL));
	timer->state = idem_own_text(tuple, desc, 7);
	timer->event = idem_own_text(tuple, desc, 8);
	timer->since = DatumGetTimestampTz(idem_own_value(tuple, desc, 9,
													  TIMESTAMPTZOID, NULL));
	timer->tries = DatumGetInt32(idem_own_value(tuple, desc, 10, INT4OID,
												NULL));
	timer->tries = Max(Min(timer->tries, INT_MAX - 1), 0);
	timer->row_hash = DatumGetInt64(idem_own_value(tuple, desc, 11, INT8OID,
												   NULL));
	timer->key_since = DatumGetTimestampTz(idem_own_value(tuple, desc, 12,
														  TIMESTAMPTZOID,
														  &isnull));
	if (isnull)
		timer->key_since = DT_NOBEGIN;
}

/*
 * What has become of a timer, or of a table's.
 */
static void
tick_tell(ReturnSetInfo *rsinfo, const char *table, const IdemTickTimer *timer,
		  const char *outcome)
{
	Datum		values[4];
	bool		nulls[4] = {false};

	values[0] = CStringGetTextDatum(table);
	values[3] = CStringGetTextDatum(outcome);
	nulls[1] = nulls[2] = timer == NULL || idem_tick_is_note(timer);
	if (!nulls[1])
	{
		values[1] = JsonbPGetDatum(timer->row_key);
		values[2] = CStringGetTextDatum(timer->event);
	}
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

/*
 * Leaves tables to other sessions.
 */
static void
tick_bar(Tick *tick)
{
	ArrayBuildState *names = initArrayResult(TEXTOID, CurrentMemoryContext,
											 false);
	ListCell   *cell;

	foreach(cell, idem_tick_barred(&tick->session.misled, tick->now))
	{
		char	   *name = lfirst(cell);

		idem_stats_counted(IDEM_STATS_TICK, NULL, IDEM_COUNT_REFUSED);
		if (tick->rsinfo != NULL)
			tick_tell(tick->rsinfo, name, NULL, "refused");
		accumArrayResult(names, CStringGetTextDatum(name), false, TEXTOID,
						 CurrentMemoryContext);
		tick->session.bars = true;
	}
	tick->barred = makeArrayResult(names, CurrentMemoryContext);
}

/*
 * Whose rows are fired: the owner's of the table whose timer is due first, and is
 * not locked by others.  His are looked for among so many timers behind it that the
 * owners' number does not count.  Where the table is gone, all that is due is his.
 */
static void
tick_choose_owner(Tick *tick)
{
	Datum		args[3];
	HeapTuple	first;
	TupleDesc	desc;
	Oid			schema;
	Oid			relid;

	args[0] = TimestampTzGetDatum(tick->now);
	args[1] = tick->barred;
	if (idem_timers_run(&first_statement, args) == 0)
		return;
	first = SPI_tuptable->vals[0];
	desc = SPI_tuptable->tupdesc;
	schema = get_namespace_oid(idem_own_text(first, desc, 1), true);
	relid = OidIsValid(schema) ?
		get_relname_relid(idem_own_text(first, desc, 2), schema) : InvalidOid;
	if (!OidIsValid(relid))
		return;
	tick->session.owner = idem_catalog_owner_of(relid);
	tick->from = DatumGetTimestampTz(idem_own_value(first, desc, 3,
													TIMESTAMPTZOID, NULL));
	args[2] = TimestampTzGetDatum(tick->from);
	if (idem_timers_run(&window_statement, args) > 0)
		tick->to = DatumGetTimestampTz(idem_own_value(SPI_tuptable->vals[0],
													  SPI_tuptable->tupdesc, 1,
													  TIMESTAMPTZOID, NULL));
}

/*
 * Handles what is due, until its time is over, but one at least.  How much that
 * was, and whether there may be other timers by now.
 */
static int64
tick_due(Tick *tick, int64 left, bool *filled)
{
	Datum		args[5];
	SPITupleTable *table;
	uint64		n;

	*filled = false;
	args[0] = TimestampTzGetDatum(tick->to);
	args[1] = tick->barred;
	args[2] = Int64GetDatum(left);
	args[3] = TimestampTzGetDatum(tick->from);
	args[4] = ObjectIdGetDatum(tick->session.owner);
	n = idem_timers_run(&select_statement, args);
	table = SPI_tuptable;
	for (uint64 i = 0; i < n; i++)
	{
		IdemTickTimer *timer;

		if (i > 0 && GetCurrentTimestamp() >= tick->stop_at)
			return (int64) i;
		CHECK_FOR_INTERRUPTS();
		timer = palloc(sizeof(IdemTickTimer));
		tick_load(table->vals[i], table->tupdesc, timer);
		timer->session = &tick->session;
		tick_one(tick, timer, idem_guc_tick_row_timeout);
		if (idem_tick_is_note(timer) && timer->done)
		{
			*filled = true;
			/* those of its table that were read are no more as they were */
			if (idem_tick_is_of_key(timer))
				return (int64) i + 1;
		}
		if (timer->outcome != NULL && tick->rsinfo != NULL)
			tick_tell(tick->rsinfo,
					  quote_qualified_identifier(timer->schema, timer->table),
					  timer, timer->outcome);
	}
	return (int64) n;
}

/*
 * Fires what is due, and tells of it.  How much that was, or "left" where rows of
 * other owners may be due.
 */
static int64
tick_run(ReturnSetInfo *rsinfo, int64 left, TimestampTz stop_at)
{
	Tick		tick = {.rsinfo = rsinfo,.stop_at = stop_at,
	.now = GetCurrentTimestamp(),.from = DT_NOBEGIN};
	int64		n = 0;
	bool		filled;
	bool		in_time;

	tick.to = tick.now;
	SPI_connect();
	tick.session.temporary = idem_catalog_count_temporary(InvalidOid);
	tick_bar(&tick);
	tick.session.one_owner = rsinfo == NULL;
	if (tick.session.one_owner)
	{
		tick_choose_owner(&tick);
		/* to look through what others have locked is not the rows' time */
		tick.stop_at += GetCurrentTimestamp() - tick.now;
	}
	do
	{
		n += tick_due(&tick, left - n, &filled);
		in_time = GetCurrentTimestamp() < tick.stop_at;
	} while (filled && n < left && in_time);
	SPI_finish();
	idem_stats_counted(IDEM_STATS_TICK, NULL, IDEM_COUNT_RUNS);
	/* another call finds out whether rows of others are due */
	if (tick.session.one_owner && n > 0)
		return left;
	if (n < left && in_time && !tick.session.bars)
		idem_sweep_stats_ticked(tick.now);
	return n;
}

/*
 * The same, but not within itself: its own locks would not keep it from the
 * timers that it is at.  Without "rsinfo" it tells of nothing.  After "stop_at" no
 * further row is begun with.
 */
int64
idem_tick_run(ReturnSetInfo *rsinfo, int64 left, TimestampTz stop_at)
{
	static bool running = false;
	int64		n = 0;

	if (running)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_MISUSE),
				 errmsg("idem_tick() cannot be called within itself"),
				 errhint("Do not call it in a guard or a trigger."),
				 errhidestmt(true)));
	running = true;
	PG_TRY();
	{
		n = tick_run(rsinfo, left, stop_at);
	}
	PG_FINALLY();
	{
		running = false;
	}
	PG_END_TRY();
	return n;
}

/*
 * idem_tick(max_rows) -> SETOF (table_name, row_key, event, outcome)
 */
Datum
idem_tick(PG_FUNCTION_ARGS)
{
	if (!PG_ARGISNULL(0) && PG_GETARG_INT32(0) <= 0)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_BAD_ARGUMENT),
				 errmsg("argument \"max_rows\" must be greater than zero"),
				 errhidestmt(true)));
	idem_require_writable("idem_tick()");
	InitMaterializedSRF(fcinfo, 0);
	(void) idem_tick_run((ReturnSetInfo *) fcinfo->resultinfo,
						 PG_ARGISNULL(0) ? PG_INT64_MAX : PG_GETARG_INT32(0),
						 DT_NOEND);
	PG_RETURN_NULL();
}
