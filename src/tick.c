/*
 * tick.c
 *	  SQL function idem_tick: fires the transitions whose time has come.
 *
 * It takes due timers in order, each locked with SKIP LOCKED, so that two
 * tickers share the work and none is fired twice, and handles each in a
 * subtransaction: an error of a guard or trigger undoes that row alone, and its
 * timer is put off, longer each time, so that it does not stand in the way of
 * others.  A row's error is also what it leaves to the end of the transaction and
 * would be refused there: a claim that is not ended, a proof that fails.  One that
 * takes too long is cancelled (idem.tick_row_timeout).
 * The row itself is locked with SKIP LOCKED too, and its table with its
 * partitions only if they can be had at once: a ticker waits for nobody.  A row
 * that somebody is writing, or one of a table that is locked, is looked at again
 * some seconds later, so that a batch is not filled with those for as long as
 * that lasts.  The subtransaction of a row that is not fired is undone, and the
 * row's lock with it: nobody waits for the rest of the batch.  What guards,
 * triggers and foreign keys wait for is not known before.  If that is a table, and
 * a row's time is over, the others of its table are left for some seconds, too:
 * they would wait for the same.
 *
 * The timer only says where to look.  What is done is judged by the row and
 * the definition as they are now: the row must still be in the state that it
 * entered, and a timed rule of the event must lead on from there, whose time
 * must have come; no other rule of that event is taken.  A definition that has
 * become slower puts the timer off.
 *
 * A note that rows of a table lack timers is due at once, and is dealt with in
 * the same way (timer_fill.c); what they turn out to be due for is fired by the
 * same call.
 *
 * Guards, triggers and defaults of a user's table are his code.  So the row is
 * written as the table's owner, in a security-restricted context and with a
 * search_path of pg_catalog, the table's schema and, last, pg_temp, as guards are
 * read: names must not lead to what the caller has made.  So are its table and its
 * partitions opened, whose keys' functions may run then; and a session that has
 * temporary objects of a role that may not act as the owner leaves the table to
 * others (tick_table.c).  A table of a superuser's is refused: whoever may define
 * its machine could otherwise run anything.  So is one whose owner is under its row
 * security: rows that he does not see are not gone.  Roles of a rule are not asked
 * for, since no role acts.
 *
 * Locks, in order: the timer; the table, ROW EXCLUSIVE; the row; its other
 * timers.  Writers lock the row before its timers; but nobody waits for a
 * timer, nor a ticker for a row.
 */
#include "postgres.h"

#include "access/table.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "catalog.h"
#include "claims.h"
#include "errors.h"
#include "fire.h"
#include "guard_call.h"
#include "guc.h"
#include "own.h"
#include "stats.h"
#include "sweep.h"
#include "tick.h"
#include "tick_table.h"
#include "timer.h"
#include "wait.h"

PG_FUNCTION_INFO_V1(idem_tick);

/* how long a timer is put off: doubled with each try */
#define FIRST_DELAY		(USECS_PER_MINUTE)
#define MAX_DOUBLINGS	6

/* ... and how long where its row or table is locked */
#define LOCKED_DELAY		(5 * USECS_PER_SEC)

typedef struct Timer
{
	ItemPointerData tid;
	char	   *machine;
	char	   *schema;
	char	   *table;
	char	   *tag;
	Jsonb	   *row_key;
	int64		row_hash;
	char	   *state;
	char	   *event;
	TimestampTz since;
	TimestampTz key_since;		/* as in the table; else DT_NOBEGIN */
	int32		tries;

	bool		unread;			/* its key is none of the table's, as far as
								 * that was found out */
	Jsonb	   *former_key;		/* what it was if that is not row_key; or NULL */
	bool		looked;			/* the table has been looked at in this call */
	Oid			refused_by;		/* a table in which none is fired */
	struct Tick *tick;			/* the call */

	/* what has become of it */
	bool		done;			/* what was written stays */
	bool		applied;		/* the row has moved */
	const char *outcome;		/* NULL: nothing to tell */
	bool		keep;			/* look at it again ... */
	TimestampTz due;			/* ... then, if not 0 */
	TimestampTz next;			/* ... or then, if it is put off for longer */

	/* while it is handled */
	const IdemFire *fire;
	Jsonb	   *history_key;	/* how idem.history knows the row */
	bool		early;			/* its time is still to come */
} Timer;

/* one call */
typedef struct Tick
{
	ReturnSetInfo *rsinfo;		/* NULL: nobody to tell */
	TimestampTz now;
	TimestampTz stop_at;
	List	   *stalled;		/* timers that waited for another table in
								 * vain */
	List	   *looked;			/* notes of tables that were looked at */
	List	   *warned;			/* OIDs of tables in which none is fired */
	Datum		barred;			/* names of tables that this session leaves */
	bool		bars;			/* there are some, or were in the midst */
	List	   *misled;			/* roles whom temporary objects mislead */
} Tick;

static char *tick_error;
static int	tick_sqlerrcode;

static const char select_statement[] =
"SELECT ctid, machine, table_schema, table_name, binding, row_key, state,"
" event, since, tries, row_hash, key_since FROM idem.timer WHERE due OPERATOR(pg_catalog.<=) $1"
" AND pg_catalog.quote_ident(table_schema) OPERATOR(pg_catalog.||) '.'"
" OPERATOR(pg_catalog.||) pg_catalog.quote_ident(table_name)"
" OPERATOR(pg_catalog.<>) ALL ($3)"
" ORDER BY due LIMIT $2 FOR UPDATE SKIP LOCKED";

static const char delete_statement[] =
"DELETE FROM idem.timer WHERE ctid OPERATOR(pg_catalog.=) $1";

static const char put_off_statement[] =
"UPDATE idem.timer SET due = $2, tries = $3 WHERE ctid OPERATOR(pg_catalog.=) $1";

/*
 * Whether the row is there, for who could not lock it.
 */
static bool
tick_is_there(IdemFire *fire, Datum *id)
{
	idem_target_run(idem_target_plan(fire->target, "SELECT FROM", "", "", 0,
									 NULL), id, NULL);
	return SPI_processed > 0;
}

/*
 * Somebody holds what it needs.
 */
static void
tick_put_off(Timer *timer)
{
	timer->keep = true;
	timer->due = GetCurrentTimestamp() + LOCKED_DELAY;
}

/*
 * Whether the timer is of an earlier stay in the state than the row's now.  If the
 * row has no other, it stands for the present stay, whose time may still come: that
 * begins with the last entry of its history that is not older than its key.
 */
static bool
tick_is_over(void *arg)
{
	Timer	   *timer = arg;
	TimestampTz recorded;

	if (idem_timer_is_outdated(timer->schema, timer->table, timer->tag,
							   timer->row_hash, timer->row_key,
							   timer->event,
							   Max(timer->since, timer->key_since)))
		return true;
	recorded = idem_timer_recorded_since(timer->fire->binding, timer->row_hash,
										 timer->history_key, timer->state);
	if (recorded > timer->since && recorded > timer->key_since)
	{
		const IdemMachine *machine = timer->fire->machine;
		TimestampTz due = idem_timer_next(machine,
										  idem_machine_state(machine, timer->state,
															 strlen(timer->state)),
										  timer->event, recorded, DT_NOBEGIN);

		timer->since = recorded;
		timer->early = due > GetCurrentTimestamp();
		if (timer->early)
			timer->due = due;
	}
	return timer->early;
}

/*
 * Whether it is the note that rows of a table lack timers (timer_fill.c).
 */
static bool
tick_is_note(const Timer *timer)
{
	return timer->event[0] == '\0';
}

/*
 * The row's key as the table names it now; false if it has other columns, or
 * values that are none of their types'.
 */
static bool
tick_name(Timer *timer, IdemFire *fire, Datum *id)
{
	IdemHistoryRow name;
	MemoryContext caller;

	/* it was tried before */
	if (timer->unread)
		return false;
	timer->unread = true;
	timer->former_key = timer->row_key;
	if (!idem_timer_name(fire->target, fire->binding->table, timer->row_key,
						 id, &name))
		return false;
	timer->unread = false;
	if (compareJsonbContainers(&timer->row_key->root,
							   &name.whole_key->root) == 0)
		timer->former_key = NULL;
	caller = MemoryContextSwitchTo(GetMemoryChunkContext(timer));
	timer->row_key = (Jsonb *) PG_DETOAST_DATUM_COPY(JsonbPGetDatum(name.whole_key));
	MemoryContextSwitchTo(caller);
	timer->row_hash = name.row_hash;
	timer->history_key = name.row_key;
	return true;
}

/*
 * The timer is under a key that the table does not have any more, and others may
 * be like it: they are looked at, all at once.
 */
static void
tick_look(Timer *timer, Oid relid)
{
	if (!timer->looked)
		idem_timers_expect_renamed(relid, timer->machine, timer->tag,
								   timer->former_key);
	timer->done = true;
}

/*
 * Fires the event, as the table's owner.
 */
static void
tick_fire(Timer *timer, Relation rel, IdemFire *fire)
{
	Oid			relid = RelationGetRelid(rel);
	Datum		id[IDEM_TARGET_MAXKEYS + 1];
	IdemFireVerdict verdict;

	fire->target = idem_target_open(relid, RowExclusiveLock);
	fire->has_version = idem_rowversion_find(rel, &fire->version);
	for (int i = 0; i < fire->target->nkeys; i++)
		fire->moves |= fire->target->attnums[i] == fire->binding->column;
	if (!tick_name(timer, fire, id))
	{
		tick_look(timer, relid);
		timer->outcome = "obsolete";
		return;
	}
	timer->fire = fire;
	idem_fire_one(fire, id, &verdict);
	switch (verdict.outcome)
	{
		case IDEM_FIRE_APPLIED:
			timer->outcome = "applied";
			timer->applied = true;
			timer->done = true;
			break;
		case IDEM_FIRE_MISSING:
			if (tick_is_there(fire, id))
				tick_put_off(timer);
			else
				timer->outcome = "missing";
			break;
		case IDEM_FIRE_GUARDED:
			timer->outcome = "guarded";
			timer->keep = true;
			timer->due = 1;
			break;
		case IDEM_FIRE_ALREADY:
			if (timer->early)
				timer->keep = true;
			else
				timer->outcome = "moved";
			break;
		default:
			timer->outcome = "obsolete";
			break;
	}
	if (timer->former_key != NULL &&
		(verdict.outcome == IDEM_FIRE_APPLIED ||
		 (verdict.outcome == IDEM_FIRE_MISSING && !timer->keep)))
		tick_look(timer, relid);
	idem_fire_close(fire);
}

/*
 * Looks at table, machine and rule.
 */
static void
tick_handle(void *arg)
{
	Timer	   *timer = (Timer *) arg;
	IdemFire	fire = {.verb = "idem_tick()",.event = timer->event,
	.timed_since = &timer->since,.only_from = timer->state,.is_over = tick_is_over,.is_over_arg = timer};
	Oid			schema = get_namespace_oid(timer->schema, true);
	Oid			relid = OidIsValid(schema) ?
	get_relname_relid(timer->table, schema) : InvalidOid;
	Oid			owner = OidIsValid(relid) ? idem_catalog_owner_of(relid) : InvalidOid;
	Oid			role;
	Relation	rel = NULL;
	IdemTable  *table;
	IdemIdentity saved;
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz due = DT_NOEND;
	int64		unfinished = idem_claims_unfinished();
	bool		temporary = idem_tick_has_temporary();

	/* the name may be another thing's now */
	if (!OidIsValid(owner) ||
		(get_rel_relkind(relid) != RELKIND_RELATION &&
		 get_rel_relkind(relid) != RELKIND_PARTITIONED_TABLE))
	{
		timer->outcome = tick_is_note(timer) ? NULL : "missing";
		return;
	}
	/* to open a table may be to run functions of its owner's */
	role = idem_tick_role(owner);
	if (idem_tick_is_misled(&timer->tick->misled, role))
	{
		/*
		 * a table's that had nothing due when the call began; the next one
		 * bars it
		 */
		timer->tick->bars = true;
		timer->keep = true;
		return;
	}
	idem_catalog_become_under(role, idem_catalog_path(schema), &saved);
	if (idem_tick_lock(relid))
		rel = try_table_open(relid, NoLock);
	if (rel == NULL || rel->rd_rel->relowner != owner)
	{
		tick_put_off(timer);
		if (rel != NULL)
			table_close(rel, NoLock);
		idem_catalog_restore(&saved);
		/* and gives back what it has locked of it */
		idem_try_undo();
		return;
	}
	SPI_connect();
	fire.context_of = CurrentMemoryContext;
	idem_machine_accept();
	table = idem_table_get(rel, CurrentMemoryContext);
	for (int i = 0; i < table->nbindings; i++)
	{
		if (strcmp(table->bindings[i].tag, timer->tag) == 0)
			fire.binding = &table->bindings[i];
	}
	if (fire.binding != NULL &&
		strcmp(fire.binding->machine, timer->machine) == 0)
		fire.machine = idem_machine_get(fire.binding->machine, true,
										CurrentMemoryContext);
	if (fire.machine != NULL && !tick_is_note(timer))
	{
		int			state = idem_machine_state(fire.machine, timer->state,
											   strlen(timer->state));

		due = idem_timer_next(fire.machine, state, timer->event, timer->since,
							  DT_NOBEGIN);
		timer->next = idem_timer_next(fire.machine, state, timer->event,
									  timer->since, now);
	}
	if (fire.machine == NULL || (due == DT_NOEND && !tick_is_note(timer)))
		timer->outcome = tick_is_note(timer) ? NULL : "obsolete";
	else if (due != DT_NOEND && due > now)
	{
		timer->due = due;
		timer->keep = true;
	}
	else if (idem_timers_are_refused(rel))
	{
		timer->refused_by = relid;
		timer->outcome = "refused";
		timer->keep = true;
		timer->due = 1;
	}
	else
	{
		timer->due = 0;
		if (tick_is_note(timer))
		{
			idem_timers_fill(rel, fire.binding, fire.machine,
							 timer->schema, timer->table, timer->since,
							 JB_ROOT_COUNT(timer->row_key) > 0);
			timer->done = true;
		}
		else
			tick_fire(timer, rel, &fire);
	}
	SPI_finish();
	table_close(rel, NoLock);
	idem_catalog_restore(&saved);
	if (!timer->done)
		idem_try_undo();
	else
	{
		/* it would keep this session from the tables of others */
		if (!temporary && idem_tick_has_temporary())
			ereport(ERROR,
					(errcode(ERRCODE_IDEM_MISUSE),
					 errmsg("a timed transition of table \"%s\" has made something temporary",
							timer->table),
					 errhint("Make it elsewhere than in pg_temp."),
					 errhidestmt(true)));
		/* what the end of the transaction would refuse, for all of its rows */
		idem_claims_check_finished(unfinished);
		idem_guard_proof_of_rest(GetCurrentTransactionNestLevel());
		if (timer->applied)
		{
			idem_stats_counted(IDEM_STATS_MACHINE, timer->machine,
							   IDEM_COUNT_MOVES);
			idem_stats_counted(IDEM_STATS_TICK, NULL, IDEM_COUNT_MOVES);
		}
	}
}

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
tick_has_table(List *timers, const Timer *timer)
{
	ListCell   *cell;

	foreach(cell, timers)
	{
		const Timer *other = lfirst(cell);

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
tick_one(Tick *tick, Timer *timer, int limit)
{
	static SPIPlanPtr delete_plan = NULL;
	static SPIPlanPtr put_off_plan = NULL;
	static const Oid types[] = {TIDOID, TIMESTAMPTZOID, INT4OID};
	Datum		args[3];

	/* what took too long may take longer the next time */
	if (tick_is_note(timer))
		limit = Min((int64) limit << Min(timer->tries, MAX_DOUBLINGS), INT_MAX);
	timer->looked = tick_has_table(tick->looked, timer);
	if (tick_has_table(tick->stalled, timer))
		tick_put_off(timer);
	else if (!idem_try_within(limit, tick_handle, timer, tick_tolerates) &&
			 (!timer->unread || tick_sqlerrcode != ERRCODE_IDEM_BAD_ARGUMENT ||
			  !idem_try_within(limit, tick_handle, timer, tick_tolerates)))
	{
		idem_stats_counted(IDEM_STATS_TICK, NULL, IDEM_COUNT_REFUSED);
		timer->outcome = "error";
		timer->done = false;
		timer->keep = true;
		timer->due = 1;
		if (idem_try_met_table())
			tick->stalled = lappend(tick->stalled, timer);
		ereport(WARNING,
				(tick_is_note(timer) ?
				 errmsg("timers of table \"%s\" could not be made",
						timer->table) :
				 errmsg("timed event \"%s\" of table \"%s\" failed",
						timer->event, timer->table),
				 errdetail("%s", tick_error),
				 errhidestmt(true)));
	}

	if (tick_is_note(timer) && timer->done)
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
		idem_timers_execute(&delete_plan, delete_statement, 1, types, args);
	else if (timer->due != 0)
	{
		bool		failed = timer->due == 1;

		args[1] = TimestampTzGetDatum(failed ?
									  Min(tick_later(timer->tries), timer->next) :
									  timer->due);
		args[2] = Int32GetDatum(failed ? timer->tries + 1 : 0);
		idem_timers_execute(&put_off_plan, put_off_statement, 3, types, args);
	}
}

static void
tick_load(HeapTuple tuple, TupleDesc desc, Timer *timer)
{
	bool		isnull;

	memset(timer, 0, sizeof(Timer));
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
tick_tell(ReturnSetInfo *rsinfo, const char *table, const Timer *timer,
		  const char *outcome)
{
	Datum		values[4];
	bool		nulls[4] = {false};

	values[0] = CStringGetTextDatum(table);
	values[3] = CStringGetTextDatum(outcome);
	nulls[1] = nulls[2] = timer == NULL || tick_is_note(timer);
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

	foreach(cell, idem_tick_barred(&tick->misled, tick->now))
	{
		char	   *name = lfirst(cell);

		idem_stats_counted(IDEM_STATS_TICK, NULL, IDEM_COUNT_REFUSED);
		if (tick->rsinfo != NULL)
			tick_tell(tick->rsinfo, name, NULL, "refused");
		accumArrayResult(names, CStringGetTextDatum(name), false, TEXTOID,
						 CurrentMemoryContext);
		tick->bars = true;
	}
	tick->barred = makeArrayResult(names, CurrentMemoryContext);
}

/*
 * Handles what is due, until its time is over, but one at least.  How much that
 * was, and whether rows may have got timers meanwhile.
 */
static int64
tick_due(Tick *tick, int64 left, bool *filled)
{
	static SPIPlanPtr plan = NULL;
	static const Oid types[] = {TIMESTAMPTZOID, INT8OID, TEXTARRAYOID};
	Datum		args[3];
	SPITupleTable *table;
	uint64		n;

	*filled = false;
	args[0] = TimestampTzGetDatum(tick->now);
	args[1] = Int64GetDatum(left);
	args[2] = tick->barred;
	idem_timers_execute(&plan, select_statement, 3, types, args);
	table = SPI_tuptable;
	n = SPI_processed;
	for (uint64 i = 0; i < n; i++)
	{
		Timer	   *timer;

		if (i > 0 && GetCurrentTimestamp() >= tick->stop_at)
			return (int64) i;
		CHECK_FOR_INTERRUPTS();
		timer = palloc(sizeof(Timer));
		tick_load(table->vals[i], table->tupdesc, timer);
		timer->tick = tick;
		tick_one(tick, timer, idem_guc_tick_row_timeout);
		*filled |= tick_is_note(timer) && timer->done;
		if (timer->outcome != NULL && tick->rsinfo != NULL)
			tick_tell(tick->rsinfo,
					  quote_qualified_identifier(timer->schema, timer->table),
					  timer, timer->outcome);
	}
	return (int64) n;
}

/*
 * Fires what is due, and tells of it.  How much that was.
 */
static int64
tick_run(ReturnSetInfo *rsinfo, int64 left, TimestampTz stop_at)
{
	Tick		tick = {.rsinfo = rsinfo,.stop_at = stop_at,
	.now = GetCurrentTimestamp()};
	int64		n = 0;
	bool		filled;
	bool		in_time;

	SPI_connect();
	tick_bar(&tick);
	do
	{
		n += tick_due(&tick, left - n, &filled);
		in_time = GetCurrentTimestamp() < stop_at;
	} while (filled && n < left && in_time);
	SPI_finish();
	idem_stats_counted(IDEM_STATS_TICK, NULL, IDEM_COUNT_RUNS);
	if (n < left && in_time && !tick.bars)
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
