/*
 * tick_timer.c
 *	  One due timer, in the hands of idem_tick().
 *
 * The row is locked with SKIP LOCKED, and its table with its partitions only if
 * they can be had at once: a ticker waits for nobody.  A row that somebody is
 * writing, or one of a table that is locked, is looked at again some seconds
 * later, so that a batch is not filled with those for as long as that lasts.  The
 * subtransaction of a row that is not fired is undone, and the row's lock with
 * it: nobody waits for the rest of the batch.
 *
 * The timer only says where to look.  What is done is judged by the row and
 * the definition as they are now: the row must still be in the state that it
 * entered, and a timed rule of the event must lead on from there, whose time
 * must have come; no other rule of that event is taken.  A definition that has
 * become slower puts the timer off.
 *
 * A note that rows of a table lack timers is due at once, and is dealt with in
 * the same way (timer_fill.c).
 *
 * A row's error is also what it leaves to the end of the transaction and would
 * be refused there: a claim that is not ended, a proof that fails.
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
 * Locks: those of tick.c.
 */
#include "postgres.h"

#include "access/table.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "executor/spi.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#include "catalog.h"
#include "claims.h"
#include "errors.h"
#include "fire.h"
#include "guard_call.h"
#include "stats.h"
#include "tick_table.h"
#include "tick_timer.h"
#include "timer.h"
#include "wait.h"

/* how long a timer is put off where its row or table is locked */
#define LOCKED_DELAY		(5 * USECS_PER_SEC)

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
void
idem_tick_put_off(IdemTickTimer *timer)
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
	IdemTickTimer *timer = arg;
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
bool
idem_tick_is_note(const IdemTickTimer *timer)
{
	return timer->event[0] == '\0';
}

/*
 * Whether a note is left by a timer under a key that the table does not have any
 * more.
 */
bool
idem_tick_is_of_key(const IdemTickTimer *note)
{
	return JB_ROOT_COUNT(note->row_key) > 0;
}

/*
 * The row's key as the table names it now; false if it has other columns, or
 * values that are none of their types'.
 */
static bool
tick_name(IdemTickTimer *timer, IdemFire *fire, Datum *id)
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
tick_look(IdemTickTimer *timer, Oid relid)
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
tick_fire(IdemTickTimer *timer, Relation rel, IdemFire *fire)
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
	/* a transition to the state that it is in comes first, for now */
	if (verdict.rule != NULL && strcmp(verdict.rule->to, timer->state) == 0 &&
		(verdict.outcome == IDEM_FIRE_ALREADY ||
		 verdict.outcome == IDEM_FIRE_ILLEGAL))
		verdict.outcome = IDEM_FIRE_GUARDED;
	switch (verdict.outcome)
	{
		case IDEM_FIRE_APPLIED:
			timer->outcome = "applied";
			timer->applied = true;
			timer->done = true;
			break;
		case IDEM_FIRE_MISSING:
			if (tick_is_there(fire, id))
				idem_tick_put_off(timer);
			else
				timer->outcome = "missing";
			break;
		case IDEM_FIRE_FROZEN:
			if (verdict.state == verdict.from)
			{
				timer->outcome = "obsolete";
				break;
			}
			/* by another machine: that may end */
			/* FALLTHROUGH */
		case IDEM_FIRE_GUARDED:
			timer->outcome = "guarded";
			timer->keep = true;
			timer->due = 1;
			break;
		case IDEM_FIRE_ALREADY:
			if (timer->early)
			{
				timer->keep = true;
				timer->tries = 0;
			}
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
void
idem_tick_handle(void *arg)
{
	IdemTickTimer *timer = (IdemTickTimer *) arg;
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
	int			temporary;

	/* the name may be another thing's now */
	if (!OidIsValid(owner) ||
		(get_rel_relkind(relid) != RELKIND_RELATION &&
		 get_rel_relkind(relid) != RELKIND_PARTITIONED_TABLE))
	{
		timer->outcome = idem_tick_is_note(timer) ? NULL : "missing";
		return;
	}
	if (timer->session->one_owner)
	{
		if (OidIsValid(timer->session->owner) && timer->session->owner != owner)
		{
			timer->keep = true;
			return;
		}
		timer->session->owner = owner;
	}
	/* to open a table may be to run functions of its owner's */
	role = idem_tick_role(owner);
	if (idem_tick_is_misled(&timer->session->misled, role))
	{
		/*
		 * a table's that had nothing due when the call began; the next one
		 * bars it
		 */
		timer->session->bars = true;
		timer->keep = true;
		return;
	}
	idem_catalog_become_under(role, idem_catalog_path(schema), &saved);
	if (idem_tick_lock(relid))
		rel = try_table_open(relid, NoLock);
	if (rel == NULL || rel->rd_rel->relowner != owner)
	{
		idem_tick_put_off(timer);
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
	if (fire.machine != NULL && !idem_tick_is_note(timer))
	{
		int			state = idem_machine_state(fire.machine, timer->state,
											   strlen(timer->state));

		due = idem_timer_next(fire.machine, state, timer->event, timer->since,
							  DT_NOBEGIN);
		timer->next = idem_timer_next(fire.machine, state, timer->event,
									  timer->since, now);
	}
	if (fire.machine == NULL || (due == DT_NOEND && !idem_tick_is_note(timer)))
		timer->outcome = idem_tick_is_note(timer) ? NULL : "obsolete";
	else if (due != DT_NOEND && due > now)
	{
		timer->due = due;
		timer->keep = true;
		timer->tries = 0;
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
		if (idem_tick_is_note(timer))
		{
			idem_timers_fill(rel, fire.binding, fire.machine,
							 timer->schema, timer->table, timer->since,
							 idem_tick_is_of_key(timer));
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
		/* what the end of the transaction would refuse, for all of its rows */
		idem_claims_check_finished(unfinished);
		idem_guard_proof_of_rest(GetCurrentTransactionNestLevel());
		/* it would keep this session from the tables of others */
		temporary = idem_catalog_count_temporary(InvalidOid);
		if (temporary > timer->session->temporary)
			ereport(ERROR,
					(errcode(ERRCODE_IDEM_MISUSE),
					 errmsg("a timed transition of table \"%s\" has made something temporary",
							timer->table),
					 errhint("Make it elsewhere than in pg_temp."),
					 errhidestmt(true)));
		timer->session->temporary = temporary;
		if (timer->applied)
		{
			idem_stats_counted(IDEM_STATS_MACHINE, timer->machine,
							   IDEM_COUNT_MOVES);
			idem_stats_counted(IDEM_STATS_TICK, NULL, IDEM_COUNT_MOVES);
		}
	}
}
