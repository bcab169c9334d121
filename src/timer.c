/*
 * timer.c
 *	  Notes when rows are due for a transition by themselves.
 *
 * A row that enters a state from which a timed rule leads on gets one timer
 * per event of such rules, for the first of them that is due; one that leaves
 * takes its timers along.  Both are
 * written together with the history, by the same statement, and with the row
 * locked by whoever moves it, so that a row's timers are those of the state
 * that it is in.  They are a reminder only: what is done at the time is judged
 * by the row and the definition as they are then (tick.c).  A machine without
 * timed rules costs nothing.
 *
 * Written as the owner of idem.timer, by plans that find rows by index however
 * empty it was when they were made.  Locks: a row's timers, after the row, those
 * only that can be had at once.
 */
#include "postgres.h"

#include "access/table.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#include "catalog.h"
#include "definition.h"
#include "machine_cache.h"
#include "own.h"
#include "scope.h"
#include "store.h"
#include "timer.h"
#include "writing.h"

struct IdemTimers
{
	const IdemBinding *binding;
	const IdemMachine *machine;
	MemoryContext context;
	TimestampTz key_since;		/* as in the table; else DT_NOBEGIN */
	ArrayBuildState *left_keys;
	ArrayBuildState *left_hashes;
	ArrayBuildState *keys;
	ArrayBuildState *hashes;
	ArrayBuildState *states;
	ArrayBuildState *events;
	ArrayBuildState *sinces;
	ArrayBuildState *dues;
};

static struct IdemOwnStatement insert_statement = {
	"INSERT INTO idem.timer (machine, table_schema, table_name, binding, row_hash,"
	" row_key, state, event, since, due, key_since)"
	" SELECT $4, $1, $2, $3, k.hash, k.row_key, k.state, k.event, k.since, k.due,"
	" CASE WHEN $11 OPERATOR(pg_catalog.>) '-infinity' THEN $11 END"
	" FROM ROWS FROM (pg_catalog.unnest($5), pg_catalog.unnest($6),"
	" pg_catalog.unnest($7), pg_catalog.unnest($8), pg_catalog.unnest($9),"
	" pg_catalog.unnest($10)) AS k (hash, row_key, state, event, since, due)"
	" RETURNING ctid",
	IDEM_OWN_BY_INDEX, 11,
	{TEXTOID, TEXTOID, TEXTOID, TEXTOID, INT8ARRAYOID, JSONBARRAYOID,
		TEXTARRAYOID, TEXTARRAYOID, TIMESTAMPTZARRAYOID, TIMESTAMPTZARRAYOID,
	TIMESTAMPTZOID}, NULL
};

/*
 * Since when a row is in its state, by its timers and its history; and as one of
 * those that a note was left for.  What the history tells of the key from before
 * the row had it is another row's.
 */
static struct IdemOwnStatement since_statement = {
	"SELECT GREATEST(o.since, "
	IDEM_TIMERS_SINCE("$5", "$7", "$8", "$9", "$10", "$11", "$4",
					  " AND (l.at OPERATOR(pg_catalog.<=) o.key_since) IS NOT TRUE") "),"
	" (SELECT pg_catalog.max(n.since) FROM idem.timer AS n"
	" WHERE n.row_hash OPERATOR(pg_catalog.=) 0 AND n.event OPERATOR(pg_catalog.=) ''"
	" AND n.table_schema OPERATOR(pg_catalog.=) $1"
	" AND n.table_name OPERATOR(pg_catalog.=) $2"
	" AND n.binding OPERATOR(pg_catalog.=) $3)"
	" FROM (SELECT pg_catalog.max(t.since) AS since,"
	" pg_catalog.max(t.key_since) AS key_since FROM idem.timer AS t"
	" WHERE t.row_hash OPERATOR(pg_catalog.=) $5"
	" AND t.row_key OPERATOR(pg_catalog.=) $6"
	" AND t.event OPERATOR(pg_catalog.<>) ''"
	" AND t.state OPERATOR(pg_catalog.=) $8"
	" AND t.table_schema OPERATOR(pg_catalog.=) $1"
	" AND t.table_name OPERATOR(pg_catalog.=) $2"
	" AND t.binding OPERATOR(pg_catalog.=) $3) AS o",
	IDEM_OWN_BY_INDEX, 11,
	{TEXTOID, TEXTOID, TEXTOID, TEXTOID, INT8OID, JSONBOID, JSONBOID,
	TEXTOID, TEXTOID, TEXTOID, TEXTOID}, NULL
};

/*
 * Whether time takes rows out of a state by the rule, or into it anew.
 */
static bool
timer_leaves(const IdemMachine *machine, int state, const IdemRule *rule)
{
	const IdemMachineState *from = state < 0 ? NULL : &machine->states[state];

	return rule->timed &&
		(from == NULL ||
		 (!from->frozen &&
		  (rule->to_state != state || from->self == IDEM_SELF_REENTER)));
}

/*
 * The timed rule by which the event leaves the state first, or NULL.
 */
static const IdemRule *
timer_rule(const IdemMachine *machine, int state, const char *event)
{
	const IdemRule *const *rules;
	int			nrules = idem_machine_rules(machine, state, &rules);
	const IdemRule *first = NULL;

	for (int i = 0; i < nrules; i++)
	{
		if (timer_leaves(machine, state, rules[i]) &&
			strcmp(rules[i]->event, event) == 0 &&
			(first == NULL ||
			 DatumGetBool(DirectFunctionCall2(interval_lt,
											  IntervalPGetDatum(&rules[i]->after),
											  IntervalPGetDatum(&first->after)))))
			first = rules[i];
	}
	return first;
}

/*
 * The timed rules that leave a state: of each event the one that does so first.
 */
List *
idem_timer_rules(const IdemMachine *machine, int state)
{
	const IdemRule *const *rules;
	int			nrules = idem_machine_rules(machine, state, &rules);
	List	   *first = NIL;

	for (int i = 0; i < nrules; i++)
	{
		if (timer_rule(machine, state, rules[i]->event) == rules[i])
			first = lappend(first, (void *) rules[i]);
	}
	return first;
}

/*
 * Whether rows that are in a state already get other times from "new" than from
 * "old", which may be in what names its states, its flags or its rules.
 */
bool
idem_timers_differ(const IdemMachine *old, const IdemMachine *new)
{
	for (int state = -1; state < new->nstates; state++)
	{
		int			before = state < 0 ? -1 :
		idem_machine_state(old, new->states[state].name,
						   new->states[state].length);
		List	   *known = idem_timer_rules(old, before);
		ListCell   *lc;

		foreach(lc, idem_timer_rules(new, state))
		{
			const IdemRule *rule = lfirst(lc);
			bool		found = false;
			ListCell   *inner;

			foreach(inner, known)
			{
				const IdemRule *other = lfirst(inner);

				found |= strcmp(other->event, rule->event) == 0 &&
					idem_intervals_equal(&other->after, &rule->after);
			}
			if (!found)
				return true;
		}
	}
	return false;
}

TimestampTz
idem_timer_due(const IdemRule *rule, TimestampTz since)
{
	return idem_scope_deadline_or_now(since, &rule->after, "after");
}

/*
 * The first time later than that at which a rule of the event is due, or
 * DT_NOEND.
 */
TimestampTz
idem_timer_next(const IdemMachine *machine, int state, const char *event,
				TimestampTz since, TimestampTz after)
{
	const IdemRule *const *rules;
	int			nrules = idem_machine_rules(machine, state, &rules);
	TimestampTz next = DT_NOEND;

	for (int i = 0; i < nrules; i++)
	{
		if (rules[i]->timed && strcmp(rules[i]->event, event) == 0)
		{
			TimestampTz due = idem_timer_due(rules[i], since);

			if (due > after && due < next)
				next = due;
		}
	}
	return next;
}

/*
 * The column by which a row's history is looked for: none where the history of a key
 * may be that of several rows.  A parent and its children may each have a row of
 * that key, and their history is under one name.
 */
Datum
idem_timers_history_column(const IdemBinding *binding)
{
	bool		shared = binding->child ||
	(get_rel_relkind(binding->root) != RELKIND_PARTITIONED_TABLE &&
	 has_subclass(binding->root));

	return CStringGetTextDatum(shared ? "" : NameStr(binding->column_name));
}

/*
 * Begins with rows of one binding; NULL if they get no timers.
 */
IdemTimers *
idem_timers_open(const IdemBinding *binding)
{
	const IdemMachine *machine = idem_machine_get(binding->machine, false,
												  CurrentMemoryContext);
	IdemTimers *timers;

	/* no ticker sees another session's temporary tables */
	if (!machine->timed ||
		get_rel_persistence(idem_binding_table(binding)) == RELPERSISTENCE_TEMP)
		return NULL;
	timers = palloc0(sizeof(IdemTimers));
	timers->binding = binding;
	timers->machine = machine;
	timers->context = CurrentMemoryContext;
	timers->key_since = DT_NOBEGIN;
	return timers;
}

static void
timers_append(IdemTimers *timers, ArrayBuildState **array, Datum value,
			  Oid type)
{
	*array = accumArrayResult(*array, value, false, type, timers->context);
}

/*
 * Who has the key has no timers any more.
 */
static void
timers_leave(IdemTimers *timers, Jsonb *key, int64 hash)
{
	timers_append(timers, &timers->left_hashes, Int64GetDatum(hash), INT8OID);
	timers_append(timers, &timers->left_keys, JsonbPGetDatum(key), JSONBOID);
}

/*
 * A row has another key, under which it may have got timers since.  Those under
 * the one that it had go, unless that is another row's already.
 */
void
idem_timers_rename(IdemTimers *timers, const IdemHistoryRow *row)
{
	if (row->left_key != NULL &&
		!idem_writing_is_taken(timers->binding, row->left_whole_hash,
							   row->command))
		timers_leave(timers, row->left_key, row->left_hash);
}

/*
 * A row moved, or is new.
 */
void
idem_timers_add(IdemTimers *timers, const IdemHistoryRow *row)
{
	ListCell   *lc;
	int			state;

	if (row->from != NULL || row->takes_key)
	{
		/* who had the key before is gone */
		timers_leave(timers, row->whole_key, row->row_hash);
		idem_timers_rename(timers, row);
	}
	if (row->to == NULL)
		return;
	state = idem_machine_state(timers->machine, row->to, strlen(row->to));
	foreach(lc, idem_timer_rules(timers->machine, state))
	{
		const IdemRule *rule = lfirst(lc);

		timers_append(timers, &timers->hashes, Int64GetDatum(row->row_hash),
					  INT8OID);
		timers_append(timers, &timers->keys, JsonbPGetDatum(row->whole_key),
					  JSONBOID);
		timers_append(timers, &timers->states, CStringGetTextDatum(row->to),
					  TEXTOID);
		timers_append(timers, &timers->events,
					  CStringGetTextDatum(rule->event), TEXTOID);
		timers_append(timers, &timers->sinces, TimestampTzGetDatum(row->at),
					  TIMESTAMPTZOID);
		timers_append(timers, &timers->dues,
					  TimestampTzGetDatum(idem_timer_next(timers->machine, state,
														  rule->event,
														  row->at, DT_NOBEGIN)),
					  TIMESTAMPTZOID);
	}
}

static Datum
timers_array(IdemTimers *timers, ArrayBuildState *array)
{
	return makeArrayResult(array, timers->context);
}

/*
 * The first three arguments of every statement: whose timers they are.
 */
void
idem_timers_name(Datum *args, const char *schema, const char *table,
				 const char *tag)
{
	args[0] = CStringGetTextDatum(schema);
	args[1] = CStringGetTextDatum(table);
	args[2] = CStringGetTextDatum(tag);
}

void
idem_timers_name_table(Datum *args, Oid relid, const char *tag)
{
	idem_timers_name(args, get_namespace_name(get_rel_namespace(relid)),
					 get_rel_name(relid), tag);
}

/*
 * Runs a statement as the owner of idem.timer, while connected to SPI.
 */
static uint64
timers_run(IdemOwnStatement *statement, const Datum *values)
{
	return idem_own_run_at(statement, IDEM_REL_TIMER, values, NULL,
						   InvalidSnapshot);
}

/*
 * The same for one that may make timers, but those of rows that move.
 */
uint64
idem_timers_run(IdemOwnStatement *statement, const Datum *values)
{
	idem_timers_forget_moves();
	return timers_run(statement, values);
}

/*
 * The timers of the rows that left, or got another key.
 */
static IdemTimersFound *
timers_find(IdemTimers *timers)
{
	return idem_timers_find(idem_binding_table(timers->binding),
							timers->binding->tag, timers->left_hashes->dvalues,
							timers->left_keys->dvalues,
							timers->left_keys->nelems);
}

/*
 * Makes timers of rows that moved.
 */
static void
timers_insert(IdemTimers *timers, Oid relid)
{
	Datum		args[11];
	uint64		n = timers->hashes->nelems;
	uint64	   *keys = palloc(n * sizeof(uint64));

	/* an array that is made takes what it is made of along */
	for (uint64 i = 0; i < n; i++)
		keys[i] = idem_timers_hash_key(timers->keys->dvalues[i]);
	table_close(idem_timers_open_table(), NoLock);
	idem_timers_name_table(args, relid, timers->binding->tag);
	args[3] = CStringGetTextDatum(timers->machine->name);
	args[4] = timers_array(timers, timers->hashes);
	args[5] = timers_array(timers, timers->keys);
	args[6] = timers_array(timers, timers->states);
	args[7] = timers_array(timers, timers->events);
	args[8] = timers_array(timers, timers->sinces);
	args[9] = timers_array(timers, timers->dues);
	args[10] = TimestampTzGetDatum(timers->key_since);

	/* the owner's triggers may have kept some of them away */
	if (timers_run(&insert_statement, args) != n)
		idem_timers_forget_moves();
	else
	{
		for (uint64 i = 0; i < n; i++)
			idem_timers_remember_made(relid, timers->binding->tag,
									  keys[i],
									  (ItemPointer) DatumGetPointer(idem_own_value(SPI_tuptable->vals[i],
																				   SPI_tuptable->tupdesc, 1,
																				   TIDOID, NULL)));
	}
}

/*
 * Writes what was collected.
 */
void
idem_timers_close(IdemTimers *timers)
{
	Oid			relid = idem_binding_table(timers->binding);

	if (timers->left_keys == NULL && timers->keys == NULL)
		return;
	SPI_connect();
	if (timers->left_keys != NULL)
	{
		idem_timers_delete(timers_find(timers));
		for (int i = 0; i < timers->left_keys->nelems; i++)
			idem_timers_remember_left(relid, timers->binding->tag,
									  idem_timers_hash_key(timers->left_keys->dvalues[i]));
	}
	if (timers->keys != NULL)
		timers_insert(timers, relid);
	SPI_finish();
}

/*
 * Since when the row that has a key is in a state that it stays in, before it gets
 * another; 0 if no timed rule leaves the state.
 */
TimestampTz
idem_timers_since(const IdemBinding *binding, const IdemHistoryRow *left,
				  const char *label)
{
	IdemTimers *timers = label != NULL ? idem_timers_open(binding) : NULL;
	Datum		args[11];
	TimestampTz since[2] = {0, 0};

	if (timers == NULL ||
		idem_timer_rules(timers->machine,
						 idem_machine_state(timers->machine, label,
											strlen(label))) == NIL)
		return 0;
	SPI_connect();
	idem_timers_name_table(args, idem_binding_table(binding), binding->tag);
	args[3] = CStringGetTextDatum(timers->machine->name);
	args[4] = Int64GetDatum(left->row_hash);
	args[5] = JsonbPGetDatum(left->whole_key);
	args[6] = JsonbPGetDatum(left->row_key);
	args[7] = CStringGetTextDatum(label);
	args[8] = CStringGetTextDatum(get_namespace_name(get_rel_namespace(binding->root)));
	args[9] = CStringGetTextDatum(get_rel_name(binding->root));
	args[10] = idem_timers_history_column(binding);
	timers_run(&since_statement, args);
	for (int i = 0; i < lengthof(since); i++)
	{
		bool		isnull;
		Datum		value = SPI_getbinval(SPI_tuptable->vals[0],
										  SPI_tuptable->tupdesc, i + 1, &isnull);

		if (!isnull)
			since[i] = DatumGetTimestampTz(value);
	}
	SPI_finish();
	return since[0] != 0 ? since[0] :
		since[1] != 0 ? since[1] : GetCurrentTimestamp();
}

/*
 * A row stays in its state, since then, and gets another key.  Its timers are made
 * from the state that it is in, whichever were found: those of a note may not be
 * there yet, and one that a ticker is at ends as that of a row that is missing.
 * If it has passed on since, it has those that it should under the key.
 */
void
idem_timers_carry(const IdemBinding *binding, const IdemHistoryRow *row)
{
	IdemTimers *timers = idem_timers_open(binding);

	if (timers == NULL)
		return;
	if (row->passed)
		idem_timers_rename(timers, row);
	else
	{
		timers->key_since = GetCurrentTimestamp();
		idem_timers_add(timers, row);
	}
	idem_timers_close(timers);
}
