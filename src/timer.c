/*
 * timer.c
 *	  Notes when rows are due for a transition by themselves.
 *
 * A row that enters a state from which a timed rule leads on gets one timer
 * per event of such rules; one that leaves takes its timers along.  Both are
 * written together with the history, by the same statement, and with the row
 * locked by whoever moves it, so that a row's timers are those of the state
 * that it is in.  They are a reminder only: what is done at the time is judged
 * by the row and the definition as they are then (tick.c).  A machine without
 * timed rules costs nothing.
 *
 * A timer that a ticker has locked, or put off since the writer's snapshot, is left
 * to it: whoever takes it next finds that the row has moved, and removes it.  So
 * neither writers nor other tickers wait for the end of a batch, deadlock with it,
 * or fail with 40001 because of it.
 *
 * Written as the owner of idem.timer.  Locks: a row's timers, after the row,
 * those only that can be had at once.
 */
#include "postgres.h"

#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "catalog.h"
#include "machine_cache.h"
#include "scope.h"
#include "store.h"
#include "timer.h"

struct IdemTimers
{
	const IdemBinding *binding;
	const IdemMachine *machine;
	MemoryContext context;
	ArrayBuildState *left_keys;
	ArrayBuildState *left_hashes;
	ArrayBuildState *keys;
	ArrayBuildState *hashes;
	ArrayBuildState *states;
	ArrayBuildState *events;
	ArrayBuildState *sinces;
	ArrayBuildState *dues;
};

static const char find_statement[] =
"SELECT t.ctid FROM idem.timer AS t,"
" ROWS FROM (pg_catalog.unnest($4), pg_catalog.unnest($5)) AS k (hash, row_key)"
" WHERE t.row_hash OPERATOR(pg_catalog.=) k.hash"
" AND t.row_key OPERATOR(pg_catalog.@>) k.row_key"
" AND t.table_schema OPERATOR(pg_catalog.=) $1"
" AND t.table_name OPERATOR(pg_catalog.=) $2"
" AND t.binding OPERATOR(pg_catalog.=) $3";

static const char insert_statement[] =
"INSERT INTO idem.timer (machine, table_schema, table_name, binding, row_hash,"
" row_key, state, event, since, due)"
" SELECT $4, $1, $2, $3, k.hash, k.row_key, k.state, k.event, k.since, k.due"
" FROM ROWS FROM (pg_catalog.unnest($5), pg_catalog.unnest($6),"
" pg_catalog.unnest($7), pg_catalog.unnest($8), pg_catalog.unnest($9),"
" pg_catalog.unnest($10)) AS k (hash, row_key, state, event, since, due)";

static const char carry_statement[] =
"INSERT INTO idem.timer (machine, table_schema, table_name, binding, row_hash,"
" row_key, state, event, since, due)"
" SELECT t.machine, $1, $2, $3, $6, $7, t.state, t.event, t.since, t.due"
" FROM idem.timer AS t, ROWS FROM (pg_catalog.unnest($4), pg_catalog.unnest($5))"
" AS k (hash, row_key) WHERE t.row_hash OPERATOR(pg_catalog.=) k.hash"
" AND t.row_key OPERATOR(pg_catalog.@>) k.row_key"
" AND t.table_schema OPERATOR(pg_catalog.=) $1"
" AND t.table_name OPERATOR(pg_catalog.=) $2"
" AND t.binding OPERATOR(pg_catalog.=) $3";

#define TIMESTAMPTZARRAYOID	1185

/*
 * The timed rule by which the event leaves the state, or NULL.
 */
const IdemRule *
idem_timer_rule(const IdemMachine *machine, int state, const char *event)
{
	const IdemRule *const *rules;
	int			nrules = idem_machine_rules(machine, state, &rules);

	for (int i = 0; i < nrules; i++)
	{
		if (rules[i]->timed && strcmp(rules[i]->event, event) == 0)
			return rules[i];
	}
	return NULL;
}

TimestampTz
idem_timer_due(const IdemRule *rule, TimestampTz since)
{
	return idem_scope_deadline_or_now(since, &rule->after, "after");
}

/*
 * The table by which a ticker finds the rows of a binding: the one that was
 * attached, with its partitions; children's rows only by themselves.
 */
Oid
idem_timers_table(const IdemBinding *binding)
{
	return binding->child ? binding->table->relid : binding->root;
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
		get_rel_persistence(idem_timers_table(binding)) == RELPERSISTENCE_TEMP)
		return NULL;
	timers = palloc0(sizeof(IdemTimers));
	timers->binding = binding;
	timers->machine = machine;
	timers->context = CurrentMemoryContext;
	return timers;
}

static void
timers_append(IdemTimers *timers, ArrayBuildState **array, Datum value,
			  Oid type)
{
	*array = accumArrayResult(*array, value, false, type, timers->context);
}

/*
 * A row moved, or is new.
 */
void
idem_timers_add(IdemTimers *timers, const IdemHistoryRow *row)
{
	const IdemRule *const *rules;
	int			nrules;
	int			state;

	if (row->from != NULL)
	{
		/* the rest of the key may have changed with the state */
		timers_append(timers, &timers->left_hashes,
					  Int64GetDatum(row->row_hash), INT8OID);
		timers_append(timers, &timers->left_keys,
					  JsonbPGetDatum(row->row_key), JSONBOID);
	}
	if (row->to == NULL)
		return;
	state = idem_machine_state(timers->machine, row->to, strlen(row->to));
	nrules = idem_machine_rules(timers->machine, state, &rules);
	for (int i = 0; i < nrules; i++)
	{
		bool		again = !rules[i]->timed;

		for (int j = 0; j < i && !again; j++)
			again = rules[j]->timed &&
				strcmp(rules[j]->event, rules[i]->event) == 0;
		if (again)
			continue;
		timers_append(timers, &timers->hashes, Int64GetDatum(row->row_hash),
					  INT8OID);
		timers_append(timers, &timers->keys, JsonbPGetDatum(row->whole_key),
					  JSONBOID);
		timers_append(timers, &timers->states, CStringGetTextDatum(row->to),
					  TEXTOID);
		timers_append(timers, &timers->events,
					  CStringGetTextDatum(rules[i]->event), TEXTOID);
		timers_append(timers, &timers->sinces, TimestampTzGetDatum(row->at),
					  TIMESTAMPTZOID);
		timers_append(timers, &timers->dues,
					  TimestampTzGetDatum(idem_timer_due(rules[i], row->at)),
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
void
idem_timers_execute(SPIPlanPtr *plan, const char *statement, int nargs,
					const Oid *types, Datum *args)
{
	IdemIdentity saved;
	int			rc;

	idem_catalog_become(idem_catalog_owner(IDEM_REL_TIMER), &saved);
	if (*plan == NULL)
		*plan = idem_sql_keep_plan(statement, nargs, types);
	rc = SPI_execute_plan(*plan, args, NULL, false, 0);
	idem_catalog_restore(&saved);
	if (rc < 0)
		elog(ERROR, "SPI_execute_plan failed: %s", SPI_result_code_string(rc));
}

/*
 * The timers of rows.
 */
static SPITupleTable *
timers_find(Datum *args)
{
	static SPIPlanPtr plan = NULL;
	static const Oid types[] = {TEXTOID, TEXTOID, TEXTOID, INT8ARRAYOID,
	JSONBARRAYOID};

	idem_timers_execute(&plan, find_statement, lengthof(types), types, args);
	return SPI_tuptable;
}

/*
 * Deletes what was found, but not those that somebody else is at.
 */
static void
timers_delete(SPITupleTable *found)
{
	Relation	rel;
	TupleTableSlot *slot;

	if (found->numvals == 0)
		return;
	rel = table_open(idem_catalog_relation(IDEM_REL_TIMER), RowExclusiveLock);
	slot = table_slot_create(rel, NULL);
	for (uint64 i = 0; i < found->numvals; i++)
	{
		bool		isnull;
		ItemPointer tid = (ItemPointer)
		DatumGetPointer(SPI_getbinval(found->vals[i], found->tupdesc, 1,
									  &isnull));
		TM_FailureData failure;

		if (table_tuple_lock(rel, tid, GetActiveSnapshot(), slot,
							 GetCurrentCommandId(true), LockTupleExclusive,
							 LockWaitSkip, 0, &failure) == TM_Ok)
			simple_table_tuple_delete(rel, tid, GetActiveSnapshot());
	}
	ExecDropSingleTupleTableSlot(slot);
	table_close(rel, NoLock);
}

/*
 * Writes what was collected.
 */
void
idem_timers_close(IdemTimers *timers)
{
	static SPIPlanPtr insert_plan = NULL;
	static const Oid insert_types[] = {TEXTOID, TEXTOID, TEXTOID, TEXTOID,
		INT8ARRAYOID, JSONBARRAYOID, TEXTARRAYOID, TEXTARRAYOID,
	TIMESTAMPTZARRAYOID, TIMESTAMPTZARRAYOID};
	Datum		args[10];

	if (timers->left_keys == NULL && timers->keys == NULL)
		return;
	SPI_connect();
	idem_timers_name_table(args, idem_timers_table(timers->binding),
						   timers->binding->tag);
	if (timers->left_keys != NULL)
	{
		args[3] = timers_array(timers, timers->left_hashes);
		args[4] = timers_array(timers, timers->left_keys);
		timers_delete(timers_find(args));
	}
	if (timers->keys != NULL)
	{
		args[3] = CStringGetTextDatum(timers->machine->name);
		args[4] = timers_array(timers, timers->hashes);
		args[5] = timers_array(timers, timers->keys);
		args[6] = timers_array(timers, timers->states);
		args[7] = timers_array(timers, timers->events);
		args[8] = timers_array(timers, timers->sinces);
		args[9] = timers_array(timers, timers->dues);
		idem_timers_execute(&insert_plan, insert_statement,
							lengthof(insert_types), insert_types, args);
	}
	SPI_finish();
}

/*
 * The row stays in its state, and gets another key.  What a ticker is at ends as
 * one of a row that is missing.
 */
void
idem_timers_carry(const IdemBinding *binding, const IdemHistoryRow *from,
				  const IdemHistoryRow *to)
{
	static SPIPlanPtr plan = NULL;
	static const Oid types[] = {TEXTOID, TEXTOID, TEXTOID, INT8ARRAYOID,
	JSONBARRAYOID, INT8OID, JSONBOID};
	IdemTimers *timers = idem_timers_open(binding);
	SPITupleTable *found;
	Datum		args[7];
	Datum		hash = Int64GetDatum(from->row_hash);
	Datum		row_key = JsonbPGetDatum(from->row_key);

	if (timers == NULL)
		return;
	SPI_connect();
	idem_timers_name_table(args, idem_timers_table(binding), binding->tag);
	args[3] = PointerGetDatum(construct_array(&hash, 1, INT8OID, sizeof(int64),
											  FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
	args[4] = PointerGetDatum(construct_array(&row_key, 1, JSONBOID, -1, false,
											  TYPALIGN_INT));
	args[5] = Int64GetDatum(to->row_hash);
	args[6] = JsonbPGetDatum(to->whole_key);
	found = timers_find(args);
	if (found->numvals > 0)
		idem_timers_execute(&plan, carry_statement, lengthof(types), types,
							args);
	timers_delete(found);
	SPI_finish();
}
