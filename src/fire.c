/*
 * fire.c
 *	  Events of rows: idem_fire and idem_try_fire, and what all verbs share.
 *
 * A verb locks the row as the caller, judges it, and writes it by an ordinary
 * UPDATE of the caller's, with his privileges, row security and the table's
 * triggers.  While that runs its intent stands in taken.c, so that the guard
 * takes the row by this event and the history records who fired it.
 *
 * The order of judging: missing, already (the key has had its effect), stale,
 * frozen, already (the event does not leave the state but leads to it),
 * illegal, forbidden, guarded, applied.  All of it is judged on the version
 * that is locked, so nothing can come between verdict and write; what a guard
 * reads elsewhere may change, and the guard's trigger has the last word.
 *
 * An idempotency key (fire_key.c) is written just before the row, after the
 * verdict: an event that is refused spends none.
 *
 * Locks, in order: the table, ROW EXCLUSIVE; the row; the key.  Two callers
 * with one key and one row meet at the row.  With one key and two rows, which
 * is a mistake, the second waits at the key and is told of it.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "executor/spi.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/value.h"
#include "utils/builtins.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "errors.h"
#include "fire.h"
#include "stats.h"
#include "taken.h"

PG_FUNCTION_INFO_V1(idem_fire);
PG_FUNCTION_INFO_V1(idem_try_fire);

/* events that an error names */
#define MAX_SHOWN	20

const char *const idem_fire_outcomes[] = {
	[IDEM_FIRE_APPLIED] = "applied",
	[IDEM_FIRE_ALREADY] = "already",
	[IDEM_FIRE_MISSING] = "missing",
	[IDEM_FIRE_STALE] = "stale",
	[IDEM_FIRE_FROZEN] = "frozen",
	[IDEM_FIRE_ILLEGAL] = "illegal",
	[IDEM_FIRE_FORBIDDEN] = "forbidden",
	[IDEM_FIRE_GUARDED] = "guarded",
	[IDEM_FIRE_MISMATCH] = "mismatch"
};

/*
 * The events of the table's machines, or of the one that is named.
 */
static char *
fire_events_text(const IdemTable *table, const char *name)
{
	List	   *events = NIL;

	for (int i = 0; i < table->nbindings; i++)
	{
		const char *of = table->bindings[i].machine;
		const IdemMachine *machine;

		if (name != NULL && strcmp(of, name) != 0)
			continue;
		machine = idem_machine_get(of, false, CurrentMemoryContext);
		for (int j = 0; j < machine->nrules &&
			 list_length(events) <= MAX_SHOWN; j++)
			events = list_append_unique(events,
										makeString((char *) machine->rules[j].event));
	}
	return events == NIL ? "none" : idem_names_text(events, MAX_SHOWN);
}

static char *
fire_machines_text(const IdemTable *table)
{
	List	   *machines = NIL;

	for (int i = 0; i < table->nbindings; i++)
		machines = list_append_unique(machines,
									  makeString((char *) table->bindings[i].machine));
	return idem_names_text(machines, MAX_SHOWN);
}

/*
 * Which of the table's machines is meant.
 */
void
idem_fire_choose(IdemFire *fire, const char *name)
{
	Relation	rel = table_open(fire->target->relid, NoLock);
	IdemTable  *table;
	int			found = 0;

	idem_machine_accept();
	table = idem_table_get(rel, CurrentMemoryContext);
	for (int i = 0; i < table->nbindings; i++)
	{
		IdemBinding *binding = &table->bindings[i];
		const IdemMachine *machine;

		if (name != NULL && strcmp(binding->machine, name) != 0)
			continue;
		machine = idem_machine_get(binding->machine, false,
								   CurrentMemoryContext);
		/* of several, the one that knows the event */
		if (name == NULL && table->nbindings > 1 &&
			!idem_machine_has_event(machine, fire->event))
			continue;
		fire->binding = binding;
		fire->machine = machine;
		found++;
	}

	if (table->nbindings == 0 || (found == 0 && name != NULL))
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_MISUSE),
				 name == NULL ?
				 errmsg("no machine is attached to table \"%s\"",
						fire->target->table) :
				 errmsg("machine \"%s\" is not attached to table \"%s\"",
						name, fire->target->table),
				 table->nbindings == 0 ?
				 errhint("Attach one with idem_attach().") :
				 errhint("Machines of the table: %s.", fire_machines_text(table)),
				 idem_errcolumn(fire->target->relid, NULL),
				 errhidestmt(true)));
	if (found > 1)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_MISUSE),
				 errmsg("several columns of table \"%s\" could take event \"%s\"",
						fire->target->table, fire->event),
				 fire->unnamed ?
				 errhint("idem_allowed() tells what each machine of the table allows.") :
				 name == NULL ? errhint("Pass the machine's name.") :
				 errhint("Attach each column to a machine of its own."),
				 idem_errcolumn(fire->target->relid, NULL),
				 errhidestmt(true)));
	if (found == 0 ||
		!idem_machine_has_event(fire->machine, fire->event))
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_MISUSE),
				 found == 0 ?
				 errmsg("no machine of table \"%s\" has an event \"%s\"",
						fire->target->table, fire->event) :
				 errmsg("machine \"%s\" has no event \"%s\"",
						fire->machine->name, fire->event),
				 errhint("Events: %s.", fire_events_text(table, name)),
				 idem_errcolumn(fire->target->relid, NULL),
				 errhidestmt(true)));

	fire->has_version = idem_rowversion_find(rel, &fire->version);
	table_close(rel, NoLock);
	for (int i = 0; i < fire->target->nkeys; i++)
		fire->moves |= fire->target->attnums[i] == fire->binding->column;
	fire->context_of = CurrentMemoryContext;
}

/*
 * Takes the arguments that all verbs have: table_name, id, event, version,
 * key, context, machine; all but the id.
 */
void
idem_fire_prepare(IdemFire *fire, FunctionCallInfo fcinfo, LOCKMODE lockmode)
{
	static const char *const names[] = {"table_name", "id", "event"};

	for (int i = 0; i <= 2; i++)
	{
		if (PG_ARGISNULL(i) && i != 1)
			idem_report_missing(names[i]);
	}
	fire->event = text_to_cstring(PG_GETARG_TEXT_PP(2));
	fire->target = idem_target_open(PG_GETARG_OID(0), lockmode);
	fire->has_expected = !PG_ARGISNULL(3);
	if (fire->has_expected)
		fire->expected = PG_GETARG_INT64(3);
	fire->key = IDEM_ARG_TEXT(4);
	fire->context = PG_ARGISNULL(5) ? NULL : PG_GETARG_JSONB_P(5);

	if (fire->key != NULL)
	{
		/* other verbs cannot do without one */
		if (VARSIZE_ANY_EXHDR(fire->key) == 0)
			ereport(ERROR,
					(errcode(ERRCODE_IDEM_BAD_ARGUMENT),
					 errmsg("idem key is missing"),
					 errhint("Pass a key, or NULL for an event without one."),
					 errhidestmt(true)));
		idem_registry_check_key(fire->key, false);
		idem_scope_resolve(cstring_to_text("idem.fire"), IDEM_SCOPE_USING,
						   &fire->scope);
	}
	idem_fire_choose(fire, PG_ARGISNULL(6) ? NULL :
					 text_to_cstring(PG_GETARG_TEXT_PP(6)));
	if (fire->has_expected && !fire->has_version)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_MISUSE),
				 errmsg("table \"%s\" has no version column",
						fire->target->table),
				 errdetail("Argument \"version\" is given."),
				 errhint("Attach one with idem_attach_version()."),
				 idem_errcolumn(fire->target->relid, NULL),
				 errhidestmt(true)));
}

/*
 * "SET column = $param" and what the statement returns: the state and the
 * version.
 */
void
idem_fire_set_list(IdemFire *fire, int param, StringInfo set,
				   StringInfo returning)
{
	const char *column = quote_identifier(NameStr(fire->binding->column_name));

	appendStringInfo(set, "SET %s = $%d", column, param);
	appendStringInfo(returning, "t.%s", column);
	if (fire->has_version)
		appendStringInfo(returning, ", t.%s",
						 quote_identifier(fire->version.column_name));
}

/*
 * A trigger of the table has made the UPDATE leave the row alone, or a policy.
 */
void
idem_fire_refuse_lost(IdemFire *fire)
{
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_MISUSE),
			 errmsg("event \"%s\" did not update the row of table \"%s\"",
					fire->event, fire->target->table),
			 errdetail("The row was locked, but the UPDATE left it alone: a trigger or a rule suppresses it."),
			 idem_errcolumn(fire->target->relid, NULL),
			 errhidestmt(true)));
}

/*
 * Whether a trigger may leave the row in the state that it had: the event leads
 * back to it and begins it anew.  In no state it may where that is only observed.
 */
static bool
fire_may_stay(const IdemFire *fire, const char *label)
{
	const IdemRule *const *rules;
	int			state;
	int			nrules;

	if (label == NULL)
		return fire->binding->observe;
	state = idem_machine_state(fire->machine, label, strlen(label));
	if (state < 0 || fire->machine->states[state].self != IDEM_SELF_REENTER)
		return false;
	nrules = idem_machine_rules(fire->machine, state, &rules);
	for (int i = 0; i < nrules; i++)
	{
		if (rules[i]->to_state == state &&
			strcmp(rules[i]->event, fire->event) == 0)
			return true;
	}
	return false;
}

/*
 * What the UPDATE says of the row that it wrote, from that column on; "meant" is
 * the state that it was to get, "row" what it was, and "key" what the event was
 * fired with.  A trigger
 * may have chosen another transition of the event.
 */
void
idem_fire_take_written(IdemFire *fire, HeapTuple tuple, TupleDesc desc,
					   int first, const IdemFireRow *row, text *key,
					   IdemFireVerdict *verdict)
{
	const char *meant = verdict->to;
	bool		isnull;
	Datum		value = SPI_getbinval(tuple, desc, first, &isnull);

	verdict->to = isnull ? NULL : idem_binding_label(fire->binding, value);
	if (verdict->to == NULL || strcmp(verdict->to, meant) != 0)
	{
		if ((verdict->to == NULL ||
			 (verdict->from != NULL &&
			  strcmp(verdict->to, verdict->from) == 0)) &&
			!fire_may_stay(fire, verdict->to))
			ereport(ERROR,
					(errcode(ERRCODE_IDEM_MISUSE),
					 errmsg("event \"%s\" did not move the row of table \"%s\"",
							fire->event, fire->target->table),
					 errdetail("It was to get state \"%s\", and a trigger has left it in %s.",
							   meant, idem_judge_quoted(verdict->to)),
					 errhint("Make what holds a row back a guard of the transition."),
					 idem_errcolumn(fire->target->relid, NULL),
					 errhidestmt(true)));
		if (key != NULL)
			idem_fire_correct(fire, key, row->row_key, verdict);
	}
	if (fire->has_version)
	{
		value = SPI_getbinval(tuple, desc, first + 1, &isnull);
		verdict->has_version = !isnull;
		if (!isnull)
			verdict->version = idem_rowversion_from_datum(value,
														  fire->version.base);
	}
}

/*
 * Locks the row, while connected to SPI.  False if it is not there, or somebody
 * else has it and is not to be waited for.
 *
 * Who has waited for a row that was deleted, or got another key, does not see the
 * one that was put in its place meanwhile.  So what is not found is read again.
 */
bool
idem_fire_lock(IdemFire *fire, Datum *id, IdemFireRow *row)
{
	const char *lock = psprintf("FOR %sUPDATE OF t%s",
								fire->moves ? "" : "NO KEY ",
								fire->timed_since != NULL ? " SKIP LOCKED" : "");

	for (int attempt = 0; attempt < IDEM_FIRE_ATTEMPTS; attempt++)
	{
		if (idem_fire_read(fire, id, lock, InvalidSnapshot, row))
			return true;
		if (fire->timed_since != NULL || IsolationUsesXactSnapshot() ||
			!idem_fire_read(fire, id, "", InvalidSnapshot, row))
			return false;
	}
	return false;
}

/*
 * Writes the row, which is locked.  "id" has room for one value more than the
 * key has; "key" is what was recorded for the row, or NULL.
 */
void
idem_fire_write(IdemFire *fire, Datum *id, const IdemFireRow *row,
				text *key, IdemFireVerdict *verdict)
{
	IdemIntent	intent = {
		.machine = fire->machine,
		.column = NameStr(fire->binding->column_name),
		.event = fire->event,
		.timed_since = fire->timed_since,
		.key = fire->key,
		.context = fire->context,
		.relid = row->relid,
		.tid = row->tid
	};
	StringInfoData set;
	StringInfoData returning;
	Oid			types[1] = {fire->binding->base_type};
	SPIPlanPtr	plan;

	initStringInfo(&set);
	initStringInfo(&returning);
	appendStringInfoString(&returning, "RETURNING ");
	idem_fire_set_list(fire, fire->target->nkeys + 1, &set, &returning);
	plan = idem_target_plan(fire->target, "UPDATE", set.data, returning.data,
							1, types);
	id[fire->target->nkeys] = idem_binding_value(fire->binding, verdict->to);

	idem_taken_begin(&intent);
	PG_TRY();
	{
		idem_target_run(plan, id, NULL);
	}
	PG_FINALLY();
	{
		idem_taken_end(&intent);
	}
	PG_END_TRY();
	if (SPI_processed != 1)
		idem_fire_refuse_lost(fire);
	idem_fire_take_written(fire, SPI_tuptable->vals[0], SPI_tuptable->tupdesc,
						   1, row, key, verdict);
}

/*
 * Fires the event for one row, while connected to SPI.  "id" is as above.
 */
void
idem_fire_one(IdemFire *fire, Datum *id, IdemFireVerdict *verdict)
{
	IdemFireRow row;

	if (!idem_fire_lock(fire, id, &row))
	{
		idem_fire_missing(fire, fire->key, id, verdict);
		return;
	}
	if ((fire->only_from != NULL &&
		 (row.state_null ||
		  strcmp(idem_binding_label(fire->binding, row.state),
				 fire->only_from) != 0)) ||
		(fire->is_over != NULL && fire->is_over(fire->is_over_arg)))
	{
		memset(verdict, 0, sizeof(IdemFireVerdict));
		verdict->outcome = IDEM_FIRE_ALREADY;
		return;
	}

	if (fire->key != NULL)
	{
		memset(verdict, 0, sizeof(IdemFireVerdict));
		verdict->has_version = row.has_version;
		verdict->version = row.version;
		if (idem_fire_recall(fire, fire->key, row.row_key, verdict))
			return;
	}
	idem_fire_judge(fire, &row, SnapshotAny, verdict);
	if (verdict->outcome != IDEM_FIRE_APPLIED)
		return;
	idem_fire_check_row(fire, &row);
	if (fire->key != NULL &&
		!idem_fire_spend(fire, fire->key, row.row_key, verdict))
		return;
	idem_fire_write(fire, id, &row, fire->key, verdict);
}

/*
 * Counts a verdict.  What is raised is counted by who raises it.
 */
void
idem_fire_count(const IdemFire *fire, const IdemFireVerdict *verdict,
				bool raised)
{
	const char *machine = fire->machine->name;

	switch (verdict->outcome)
	{
		case IDEM_FIRE_APPLIED:
			idem_stats_counted(IDEM_STATS_MACHINE, machine, IDEM_COUNT_MOVES);
			break;
		case IDEM_FIRE_ALREADY:
			idem_stats_counted(IDEM_STATS_MACHINE, machine,
							   IDEM_COUNT_REPLAYS);
			break;
		case IDEM_FIRE_MISMATCH:
			idem_stats_counted(IDEM_STATS_MACHINE, machine,
							   IDEM_COUNT_MISMATCHES);
			break;
		case IDEM_FIRE_MISSING:
			break;
		case IDEM_FIRE_STALE:
			{
				IdemRefusal refusal = {
					.kind = IDEM_STATS_MACHINE,
					.name = machine,
					.counter = IDEM_COUNT_STALE,
					.relid = verdict->judge->relid,
					.from = verdict->from,
					.event = fire->event,
					.sqlerrcode = ERRCODE_IDEM_STALE
				};

				idem_stats_refused(&refusal);
				break;
			}
		case IDEM_FIRE_FROZEN:
		case IDEM_FIRE_ILLEGAL:
		case IDEM_FIRE_FORBIDDEN:
		case IDEM_FIRE_GUARDED:
			if (!raised)
				idem_judge_count(verdict->judge, false, verdict->verdict,
								 verdict->state, verdict->to, fire->event,
								 verdict->rule);
			break;
	}
}

/*
 * Raises what a verdict other than applied and already is.
 */
static void
fire_report(IdemFire *fire, const IdemFireVerdict *verdict)
{
	const IdemTarget *target = fire->target;

	switch (verdict->outcome)
	{
		case IDEM_FIRE_APPLIED:
		case IDEM_FIRE_ALREADY:
			break;
		case IDEM_FIRE_MISSING:
			ereport(ERROR,
					(errcode(ERRCODE_IDEM_NOT_FOUND),
					 errmsg("row of table \"%s\" does not exist",
							target->table),
					 errdetail("It is not there, or not visible to role \"%s\".",
							   GetUserNameFromId(GetUserId(), false)),
					 idem_errcolumn(target->relid, NULL),
					 errhidestmt(true)));
			break;
		case IDEM_FIRE_STALE:
			ereport(ERROR,
					(errcode(ERRCODE_IDEM_STALE),
					 errmsg("version of the row of table \"%s\" is stale",
							target->table),
					 verdict->has_version ?
					 errdetail("Version " INT64_FORMAT " was expected, the row has " INT64_FORMAT ".",
							   fire->expected, verdict->version) :
					 errdetail("Version " INT64_FORMAT " was expected, the row has none.",
							   fire->expected),
					 errhint("Read the row again."),
					 idem_errcolumn(target->relid, NULL),
					 errhidestmt(true)));
			break;
		case IDEM_FIRE_MISMATCH:
			ereport(ERROR,
					(errcode(ERRCODE_IDEM_MISMATCH),
					 errmsg("idem key was used before for a different event"),
					 errdetail("It was recorded for another table, row, machine or event than \"%s\".",
							   fire->event),
					 errhint("Use a key of its own for each event of each row."),
					 errhidestmt(true)));
			break;
		case IDEM_FIRE_FROZEN:
		case IDEM_FIRE_ILLEGAL:
		case IDEM_FIRE_FORBIDDEN:
		case IDEM_FIRE_GUARDED:
			idem_judge_report(verdict->judge, ERROR, verdict->verdict,
							  verdict->state, verdict->to, fire->event,
							  verdict->rule);
			break;
	}
}

/*
 * The row of type idem_fired.
 */
static Datum
fire_pack(FunctionCallInfo fcinfo, const IdemFireVerdict *verdict)
{
	TupleDesc	desc = (TupleDesc) fcinfo->flinfo->fn_extra;
	Datum		values[4] = {0};
	bool		nulls[4] = {false};

	if (desc == NULL)
	{
		MemoryContext caller = MemoryContextSwitchTo(fcinfo->flinfo->fn_mcxt);

		if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
			elog(ERROR, "return type is not composite");
		desc = BlessTupleDesc(CreateTupleDescCopy(desc));
		fcinfo->flinfo->fn_extra = desc;
		MemoryContextSwitchTo(caller);
	}
	values[0] = CStringGetTextDatum(idem_fire_outcomes[verdict->outcome]);
	nulls[1] = verdict->from == NULL;
	if (!nulls[1])
		values[1] = CStringGetTextDatum(verdict->from);
	nulls[2] = verdict->to == NULL;
	if (!nulls[2])
		values[2] = CStringGetTextDatum(verdict->to);
	nulls[3] = !verdict->has_version;
	values[3] = Int64GetDatum(verdict->version);
	return HeapTupleGetDatum(heap_form_tuple(desc, values, nulls));
}

static Datum
fire_call(FunctionCallInfo fcinfo, const char *verb, bool raise)
{
	IdemFire	fire = {.verb = verb};
	IdemFireVerdict verdict;
	Datum		id[IDEM_TARGET_MAXKEYS + 1];

	idem_require_writable(verb);
	idem_fire_prepare(&fire, fcinfo, RowExclusiveLock);
	idem_target_take_id(fire.target, fcinfo, 1, id);

	SPI_connect();
	idem_fire_one(&fire, id, &verdict);
	idem_fire_count(&fire, &verdict, raise);
	if (raise)
		fire_report(&fire, &verdict);
	idem_fire_close(&fire);
	{
		/* they are in memory of SPI's */
		char	   *from = verdict.from;
		char	   *to = verdict.to;

		if (from != NULL)
			verdict.from = strcpy(SPI_palloc(strlen(from) + 1), from);
		if (to != NULL)
			verdict.to = strcpy(SPI_palloc(strlen(to) + 1), to);
	}
	SPI_finish();
	return fire_pack(fcinfo, &verdict);
}

/*
 * idem_fire(table_name, id, event, version, key, context, machine)
 *	 -> idem_fired
 */
Datum
idem_fire(PG_FUNCTION_ARGS)
{
	return fire_call(fcinfo, "idem_fire()", true);
}

/*
 * idem_try_fire(...) -> idem_fired: a verdict in place of an error.
 */
Datum
idem_try_fire(PG_FUNCTION_ARGS)
{
	return fire_call(fcinfo, "idem_try_fire()", false);
}
