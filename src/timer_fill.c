/*
 * timer_fill.c
 *	  Gives timers to rows that were in a state before it became a timed one.
 *
 * A row gets its timers when it enters a state (timer.c).  Rows that are there
 * when a machine is attached, or when a transition becomes timed or gets
 * another delay, are looked for later, by idem_tick(): their table may be
 * large, and its writers need not wait until it has been read.  What is left at
 * the time is a note, a row of idem.timer without event or state, one for each
 * table; it stands for all rows of the table.
 *
 * Who leaves the note has locked the table SHARE ROW EXCLUSIVE: writers that
 * were judged by the old definition have finished then, and later ones are
 * judged by the new, and write the timers of the rows that they move.  So a
 * snapshot that sees the note sees every row that lacks a timer, and one look
 * at the table is enough.
 *
 * The look locks no row.  A row that leaves the state meanwhile, or its key, does
 * not take the timer along that it is being given.  That does no harm, since the
 * timer only says where to look (tick.c), and under its new key the row gets one
 * by itself (idem_timers_carry()).  Should the row come back, it gets another one,
 * and of two timers of one row and event the later stay counts:
 * idem_timer_is_outdated(), asked with the row locked.
 *
 * A note is also left by a ticker that finds a timer under a key which the table
 * does not have (any more).  Then its timers are looked at first (timer_key.c).
 *
 * The table is read as its owner, and what is found is written as the owner of
 * idem.timer.  Since when a row has been in its state is known from its history
 * if the last entry there is about that state; else from the note.  A timer of an
 * earlier stay, left from before the machine was timed for a while no more, is not
 * one of the row's.
 */
#include "postgres.h"

#include "access/table.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/rls.h"
#include "utils/timestamp.h"

#include "catalog.h"
#include "errors.h"
#include "machine.h"
#include "own.h"
#include "store.h"
#include "timer.h"

/* rows that are read and written together */
#define BATCH_ROWS	1000

/* the lists that a batch goes to its statements in */
enum
{
	LIST_HASHES,
	LIST_KEYS,					/* whole ones */
	LIST_ROW_KEYS,				/* as idem.history has them */
	LIST_STATES,
	LIST_EVENTS,
	LIST_AFTERS,
	NLISTS
};

/* what comes before the lists, they, and how the history knows the column */
#define FIRST_LIST	5
#define FIRST_NAME	(FIRST_LIST + NLISTS)
#define NARGS		(FIRST_NAME + 3)

static const Oid list_types[NLISTS] = {
	INT8OID, JSONBOID, JSONBOID, TEXTOID, TEXTOID, INTERVALOID
};

#define FILL_TYPES \
	{TEXTOID, TEXTOID, TEXTOID, TEXTOID, TIMESTAMPTZOID, \
	INT8ARRAYOID, JSONBARRAYOID, JSONBARRAYOID, TEXTARRAYOID, TEXTARRAYOID, \
	INTERVALARRAYOID, TEXTOID, TEXTOID, TEXTOID}

static struct IdemOwnStatement note_statement = {
	"INSERT INTO idem.timer (machine, table_schema, table_name, binding, row_hash,"
	" row_key, state, event, since, due)"
	" SELECT $4, $1, $2, $3, 0, $6, '', '', $5, $5"
	" WHERE NOT EXISTS (SELECT FROM idem.timer WHERE row_hash OPERATOR(pg_catalog.=) 0"
	" AND event OPERATOR(pg_catalog.=) '' AND table_schema OPERATOR(pg_catalog.=) $1"
	" AND table_name OPERATOR(pg_catalog.=) $2 AND binding OPERATOR(pg_catalog.=) $3"
	" AND (since OPERATOR(pg_catalog.=) $5"
	" OR (row_key OPERATOR(pg_catalog.<>) '{}' AND $6 OPERATOR(pg_catalog.<>) '{}')))",
	IDEM_OWN_BY_INDEX, 6,
	{TEXTOID, TEXTOID, TEXTOID, TEXTOID, TIMESTAMPTZOID, JSONBOID}, NULL
};

static struct IdemOwnStatement forget_statement = {
	"DELETE FROM idem.timer WHERE table_schema OPERATOR(pg_catalog.=) $1"
	" AND table_name OPERATOR(pg_catalog.=) $2 AND binding OPERATOR(pg_catalog.=) $3",
	IDEM_OWN_BY_INDEX, 3, {TEXTOID, TEXTOID, TEXTOID}, NULL
};

#define BATCH_FROM \
" FROM ROWS FROM (pg_catalog.unnest($6), pg_catalog.unnest($7)," \
" pg_catalog.unnest($8), pg_catalog.unnest($9), pg_catalog.unnest($10)," \
" pg_catalog.unnest($11)) AS k (hash, whole_key, row_key, state, event, after)"

#define BATCH_ROW \
"t.row_hash OPERATOR(pg_catalog.=) ANY (ARRAY[k.hash])" \
" AND t.row_key OPERATOR(pg_catalog.=) k.whole_key" \
" AND t.state OPERATOR(pg_catalog.=) k.state" \
" AND t.table_schema OPERATOR(pg_catalog.=) $1" \
" AND t.table_name OPERATOR(pg_catalog.=) $2" \
" AND t.binding OPERATOR(pg_catalog.=) $3"

#define BATCH_TIMER BATCH_ROW " AND t.event OPERATOR(pg_catalog.=) k.event"

/*
 * A delay that has become longer is seen when the time has come.  What is due
 * already is another's, or our own, to handle.
 */
static struct IdemOwnStatement sooner_statement = {
	"UPDATE idem.timer AS s SET due = f.due FROM (SELECT t.ctid AS tid,"
	" t.since OPERATOR(pg_catalog.+) k.after AS due" BATCH_FROM
	" JOIN idem.timer AS t ON " BATCH_TIMER
	" WHERE t.due OPERATOR(pg_catalog.>) (t.since OPERATOR(pg_catalog.+) k.after)"
	" AND t.due OPERATOR(pg_catalog.>) pg_catalog.clock_timestamp()"
	" AND t.tries OPERATOR(pg_catalog.=) 0 FOR UPDATE OF t SKIP LOCKED) AS f"
	" WHERE s.ctid OPERATOR(pg_catalog.=) f.tid",
	IDEM_OWN_BY_INDEX, NARGS, FILL_TYPES, NULL
};

/*
 * What the history tells of the key from before the row had it is another row's;
 * its own is under another key then, and was looked into when it left that.
 */
static struct IdemOwnStatement fill_statement = {
	"INSERT INTO idem.timer (machine, table_schema, table_name, binding, row_hash,"
	" row_key, state, event, since, due, key_since)"
	" SELECT $4, $1, $2, $3, k.hash, k.whole_key, k.state, k.event, s.since,"
	" s.since OPERATOR(pg_catalog.+) k.after, o.key_since" BATCH_FROM
	" CROSS JOIN LATERAL (SELECT pg_catalog.max(t.since) AS since,"
	" pg_catalog.max(t.key_since) AS key_since FROM idem.timer AS t WHERE " BATCH_ROW
	") AS o LEFT JOIN LATERAL "
	IDEM_TIMERS_SINCE("k.hash", "k.row_key", "k.state", "$13", "$14", "$12", "$4",
					  " AND (l.at OPERATOR(pg_catalog.<=) o.key_since) IS NOT TRUE")
	" AS h ON true CROSS JOIN LATERAL (SELECT COALESCE(h.at,"
	" CASE WHEN o.key_since IS NOT NULL THEN o.since END, $5)) AS s (since)"
	" WHERE NOT EXISTS (SELECT FROM idem.timer AS t WHERE " BATCH_TIMER
	" AND (t.since OPERATOR(pg_catalog.<) h.at) IS NOT TRUE)",
	IDEM_OWN_BY_INDEX, NARGS, FILL_TYPES, NULL
};

static struct IdemOwnStatement outdated_statement = {
	"SELECT FROM idem.timer AS t WHERE t.row_hash OPERATOR(pg_catalog.=) $4"
	" AND t.row_key OPERATOR(pg_catalog.=) $5"
	" AND t.event OPERATOR(pg_catalog.=) $6"
	" AND t.table_schema OPERATOR(pg_catalog.=) $1"
	" AND t.table_name OPERATOR(pg_catalog.=) $2"
	" AND t.binding OPERATOR(pg_catalog.=) $3"
	" AND GREATEST(t.since, t.key_since) OPERATOR(pg_catalog.>) $7 LIMIT 1",
	IDEM_OWN_BY_INDEX, 7,
	{TEXTOID, TEXTOID, TEXTOID, INT8OID, JSONBOID, TEXTOID,
	TIMESTAMPTZOID}, NULL
};

/*
 * Whether neither the table nor one that inherits from it has a block.
 */
static bool
timers_table_is_empty(Oid relid)
{
	bool		empty = true;
	ListCell   *lc;

	foreach(lc, find_all_inheritors(relid, NoLock, NULL))
	{
		Relation	rel = try_table_open(lfirst_oid(lc), AccessShareLock);

		if (rel == NULL)
			continue;
		if (RELKIND_HAS_STORAGE(rel->rd_rel->relkind) &&
			!RelationUsesLocalBuffers(rel) &&
			RelationGetNumberOfBlocks(rel) > 0)
			empty = false;
		table_close(rel, AccessShareLock);
	}
	return empty;
}

/*
 * Leaves a note for one table, whose writers are locked out, or who give timers to
 * what they write by themselves, as beside idem_tick().  A table without
 * a block has no rows.  Where it has some, and is only now attached, timers
 * under its name are of a table that was dropped; else they may be of rows that
 * a restore still has to bring.  With the key of a timer that is none of the table's,
 * one note is enough: others that are like it ask for the same, and a ticker does
 * not wait until it may look into children.
 */
static void
timers_note(Oid relid, const char *machine, const char *tag, bool attached,
			Jsonb *former_key)
{
	Datum		args[6];

	if (former_key == NULL && timers_table_is_empty(relid))
		return;
	if (attached)
		idem_timers_forget(relid, tag);

	idem_timers_name_table(args, relid, tag);
	args[3] = CStringGetTextDatum(machine);
	args[4] = TimestampTzGetDatum(GetCurrentTransactionStartTimestamp());
	args[5] = former_key != NULL ? JsonbPGetDatum(former_key) :
		DirectFunctionCall1(jsonb_in, CStringGetDatum("{}"));
	SPI_connect();
	idem_timers_run(&note_statement, args);
	SPI_finish();
}

/*
 * Whether a partition belongs to a role that the table's owner does not trust.
 */
static bool
timers_have_strange_owner(Relation rel)
{
	ListCell   *lc;

	foreach(lc, find_all_inheritors(RelationGetRelid(rel), NoLock, NULL))
	{
		Oid			owner = idem_catalog_owner_of(lfirst_oid(lc));

		if (OidIsValid(owner) && !superuser_arg(owner) &&
			!has_privs_of_role(rel->rd_rel->relowner, owner))
			return true;
	}
	return false;
}

/*
 * Why idem_tick() fires nothing in a table, as a warning's detail; NULL if it
 * does.
 */
static const char *
timers_refused(Relation rel, const char **hint)
{
	Oid			owner = rel->rd_rel->relowner;

	if (superuser_arg(owner))
	{
		*hint = "Give the table an owner that is no superuser.";
		return "They run as the table's owner, who is a superuser.";
	}
	if (check_enable_rls(RelationGetRelid(rel), owner, true) == RLS_ENABLED)
	{
		*hint = "Set the table to NO FORCE ROW LEVEL SECURITY, or give its owner BYPASSRLS.";
		return "They run as the table's owner, from whom row security may hide rows.";
	}
	if (rel->rd_rel->relkind == RELKIND_PARTITIONED_TABLE &&
		timers_have_strange_owner(rel))
	{
		*hint = "Give all partitions to the owner of the table.";
		return "They run as the table's owner, with triggers of a partition's owner, whose privileges he does not have.";
	}
	return NULL;
}

/*
 * Whether idem_tick() fires nothing in a table.
 */
bool
idem_timers_are_refused(Relation rel)
{
	const char *hint;

	return timers_refused(rel, &hint) != NULL;
}

/*
 * Warns where it does not.  No ticker waits to do so; others have the lock.
 */
void
idem_timers_warn(Oid relid)
{
	Relation	rel = NULL;
	const char *detail;
	const char *hint;

	if (ConditionalLockRelationOid(relid, AccessShareLock))
		rel = try_table_open(relid, NoLock);
	if (rel == NULL)
		return;
	detail = timers_refused(rel, &hint);
	if (detail != NULL)
		ereport(WARNING,
				(errmsg("timed transitions of table \"%s\" are not fired",
						RelationGetRelationName(rel)),
				 errdetail("%s", detail),
				 errhint("%s", hint),
				 errtable(rel),
				 errhidestmt(true)));
	table_close(rel, NoLock);
}

/*
 * Leaves notes for a table that a machine is attached to, and for its children.
 */
void
idem_timers_expect_of(Oid relid, const char *machine, const char *tag,
					  bool attached)
{
	ListCell   *lc;

	foreach(lc, find_all_inheritors(relid, NoLock, NULL))
	{
		if (lfirst_oid(lc) == relid || !get_rel_relispartition(lfirst_oid(lc)))
		{
			timers_note(lfirst_oid(lc), machine, tag, attached, NULL);
			idem_timers_warn(lfirst_oid(lc));
		}
	}
}

/*
 * The same for a table that has a timer under that key, which is none of its own
 * any more.
 */
void
idem_timers_expect_renamed(Oid relid, const char *machine, const char *tag,
						   Jsonb *former_key)
{
	timers_note(relid, machine, tag, false, former_key);
}

/*
 * Leaves a note for every table that is bound to the machine, whose row is
 * locked.  What falls due is known from the history of a table: a machine with
 * timed transitions needs one of each.
 */
void
idem_timers_expect(const char *machine)
{
	ListCell   *lc;

	foreach(lc, idem_bound_lock(machine))
	{
		IdemBound  *bound = lfirst(lc);
		Relation	rel = table_open(bound->relid, NoLock);
		IdemTable  *table = idem_table_get(rel, CurrentMemoryContext);

		for (int i = 0; i < table->nbindings; i++)
		{
			IdemBinding *binding = &table->bindings[i];

			if (binding->child || strcmp(binding->machine, machine) != 0 ||
				strcmp(NameStr(binding->column_name),
					   NameStr(bound->column)) != 0)
				continue;
			if (!binding->history)
				ereport(ERROR,
						(errcode(ERRCODE_IDEM_MISUSE),
						 errmsg("machine \"%s\" cannot have a transition after some time",
								machine),
						 errdetail("Table %s is bound to it without history.",
								   idem_bound_name(bound->relid)),
						 errhint("Detach the table and attach it with history => true."),
						 errhidestmt(true)));
			idem_timers_expect_of(bound->relid, machine, binding->tag, false);
		}
		table_close(rel, NoLock);
	}
}

/*
 * Forgets the timers of a binding that goes, whose table is locked.
 */
void
idem_timers_forget(Oid relid, const char *tag)
{
	Datum		args[3];

	SPI_connect();
	idem_timers_name_table(args, relid, tag);
	idem_timers_run(&forget_statement, args);
	SPI_finish();
}

/*
 * Whether the row has another timer for the event, of a later stay, or another row
 * has the key since.
 */
bool
idem_timer_is_outdated(const char *schema, const char *table,
					   const char *tag, int64 row_hash, Jsonb *row_key, const char *event,
					   TimestampTz since)
{
	Datum		args[7];

	idem_timers_name(args, schema, table, tag);
	args[3] = Int64GetDatum(row_hash);
	args[4] = JsonbPGetDatum(row_key);
	args[5] = CStringGetTextDatum(event);
	args[6] = TimestampTzGetDatum(since);
	return idem_timers_run(&outdated_statement, args) > 0;
}

/*
 * Since when the row is in the state, as its history tells; DT_NOBEGIN if that tells
 * of another state, or of none.
 */
TimestampTz
idem_timer_recorded_since(const IdemBinding *binding, int64 row_hash,
						  Jsonb *history_key, const char *state)
{
	static struct IdemOwnStatement statement = {
		"SELECT " IDEM_TIMERS_SINCE("$1", "$2", "$3", "$4", "$5", "$6", "$7", ""),
		IDEM_OWN_BY_INDEX, 7,
		{INT8OID, JSONBOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID}, NULL
	};
	Datum		args[7];
	bool		isnull = true;
	Datum		value = (Datum) 0;

	args[0] = Int64GetDatum(row_hash);
	args[1] = JsonbPGetDatum(history_key);
	args[2] = CStringGetTextDatum(state);
	args[3] = CStringGetTextDatum(get_namespace_name(get_rel_namespace(binding->root)));
	args[4] = CStringGetTextDatum(get_rel_name(binding->root));
	args[5] = idem_timers_history_column(binding);
	args[6] = CStringGetTextDatum(binding->machine);
	if (idem_timers_run(&statement, args) == 1)
		value = idem_own_value(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1,
							   TIMESTAMPTZOID, &isnull);
	return isnull ? DT_NOBEGIN : DatumGetTimestampTz(value);
}

/* what a look at one table needs */
typedef struct Fill
{
	const IdemBinding *binding;
	const IdemMachine *machine;
	bool		strangers;		/* time leaves what is no state, too */
	IdemTarget *key;			/* as idem.history has it */
	IdemTarget *whole_key;
	Datum		args[NARGS];
	ArrayBuildState *lists[NLISTS];
} Fill;

/*
 * The names of the states that timed rules leave, as a text[], or where what is
 * no state of the machine is left too: of those that none leaves.  0 if there
 * are no such rules.
 */
static Datum
fill_states(Fill *fill)
{
	const IdemMachine *machine = fill->machine;
	ArrayBuildState *states = NULL;
	bool		any;

	any = fill->strangers = idem_timer_rules(machine, -1) != NIL;
	for (int i = 0; i < machine->nstates; i++)
	{
		bool		timed = idem_timer_rules(machine, i) != NIL;

		any |= timed;
		if (timed != fill->strangers)
			states = accumArrayResult(states,
									  CStringGetTextDatum(machine->states[i].name),
									  false, TEXTOID, CurrentMemoryContext);
	}
	if (!any)
		return 0;
	return states != NULL ? makeArrayResult(states, CurrentMemoryContext) :
		PointerGetDatum(construct_empty_array(TEXTOID));
}

/*
 * The statement that finds the rows.  States are compared as text, since a
 * machine may have names that are no values of the column's type.
 */
static char *
fill_statement_text(const Fill *fill)
{
	const IdemTarget *target = fill->whole_key;
	const IdemBinding *binding = fill->binding;
	Oid			collation;
	Oid			type;
	int32		typmod;
	StringInfoData text;

	get_atttypetypmodcoll(target->relid, binding->column, &type, &typmod,
						  &collation);
	initStringInfo(&text);
	appendStringInfo(&text, "SELECT t.%s",
					 quote_identifier(NameStr(binding->column_name)));
	for (int i = 0; i < target->nkeys; i++)
		appendStringInfo(&text, ", t.%s",
						 quote_identifier(target->columns[i]));
	appendStringInfo(&text, " FROM %s%s AS t WHERE t.%s::pg_catalog.text%s"
					 " OPERATOR(pg_catalog.%s ($1)",
					 target->only ? "ONLY " : "", target->name,
					 quote_identifier(NameStr(binding->column_name)),
					 OidIsValid(collation) &&
					 !get_collation_isdeterministic(collation) ?
					 " COLLATE pg_catalog.\"C\"" : "",
					 fill->strangers ? "<>) ALL" : "=) ANY");
	return text.data;
}

/*
 * A row that was found, in the memory of its batch.
 */
static void
fill_add(Fill *fill, HeapTuple tuple, TupleDesc desc)
{
	Datum		values[IDEM_TARGET_MAXKEYS];
	Datum		items[NLISTS];
	IdemHistoryRow name;
	Datum		value;
	bool		isnull;
	int			state;
	ListCell   *lc;

	value = SPI_getbinval(tuple, desc, 1, &isnull);
	state = idem_binding_state(fill->binding, fill->machine, value, isnull);
	if (isnull)
		return;
	for (int i = 0; i < fill->whole_key->nkeys; i++)
		values[i] = SPI_getbinval(tuple, desc, i + 2, &isnull);
	idem_history_name(fill->key, fill->whole_key, values, &name);
	items[LIST_HASHES] = Int64GetDatum(name.row_hash);
	items[LIST_KEYS] = JsonbPGetDatum(name.whole_key);
	items[LIST_ROW_KEYS] = JsonbPGetDatum(name.row_key);
	items[LIST_STATES] =
		CStringGetTextDatum(state < 0 ? idem_binding_label(fill->binding, value) :
							fill->machine->states[state].name);

	foreach(lc, idem_timer_rules(fill->machine, state))
	{
		const IdemRule *rule = lfirst(lc);

		items[LIST_EVENTS] = CStringGetTextDatum(rule->event);
		items[LIST_AFTERS] = IntervalPGetDatum(&rule->after);
		for (int j = 0; j < NLISTS; j++)
			fill->lists[j] = accumArrayResult(fill->lists[j], items[j], false,
											  list_types[j],
											  CurrentMemoryContext);
	}
}

/*
 * Writes what is in the lists.
 */
static void
fill_write(Fill *fill)
{
	if (fill->lists[0] == NULL)
		return;
	for (int i = 0; i < NLISTS; i++)
	{
		fill->args[FIRST_LIST + i] = makeArrayResult(fill->lists[i],
													 CurrentMemoryContext);
		fill->lists[i] = NULL;
	}
	idem_timers_run(&sooner_statement, fill->args);
	idem_timers_run(&fill_statement, fill->args);
}

/*
 * Looks at a table, as its owner, while connected to SPI; if its key is not what it
 * was, at its timers first.
 */
void
idem_timers_fill(Relation rel, const IdemBinding *binding,
				 const IdemMachine *machine, const char *schema,
				 const char *table, TimestampTz since, bool renamed)
{
	Fill		fill = {.binding = binding,.machine = machine};
	Datum		states = fill_states(&fill);
	Oid			types[] = {TEXTARRAYOID};
	SPIPlanPtr	plan;
	Portal		portal;
	MemoryContext batch;
	uint64		n;

	if (states == 0)
		return;
	fill.whole_key = idem_target_open(RelationGetRelid(rel), AccessShareLock);
	fill.key = idem_history_key(fill.whole_key, binding->table);
	idem_timers_name(fill.args, schema, table, binding->tag);
	fill.args[3] = CStringGetTextDatum(machine->name);
	fill.args[4] = TimestampTzGetDatum(since);
	fill.args[FIRST_NAME] = idem_timers_history_column(binding);
	fill.args[FIRST_NAME + 1] =
		CStringGetTextDatum(get_namespace_name(get_rel_namespace(binding->root)));
	fill.args[FIRST_NAME + 2] =
		CStringGetTextDatum(get_rel_name(binding->root));

	if (renamed)
		idem_timers_rekey(fill.whole_key, binding->table, fill.args);
	plan = idem_sql_prepare(fill_statement_text(&fill), 1, types, 0);
	portal = SPI_cursor_open(NULL, plan, &states, NULL, false);
	batch = AllocSetContextCreate(CurrentMemoryContext, "idem timers",
								  ALLOCSET_DEFAULT_SIZES);
	do
	{
		MemoryContext caller;

		CHECK_FOR_INTERRUPTS();
		SPI_cursor_fetch(portal, true, BATCH_ROWS);
		n = SPI_processed;
		caller = MemoryContextSwitchTo(batch);
		for (uint64 i = 0; i < n; i++)
			fill_add(&fill, SPI_tuptable->vals[i], SPI_tuptable->tupdesc);
		SPI_freetuptable(SPI_tuptable);
		fill_write(&fill);
		MemoryContextSwitchTo(caller);
		MemoryContextReset(batch);
	} while (n > 0);
	SPI_cursor_close(portal);
}
