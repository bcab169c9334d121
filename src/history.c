/*
 * history.c
 *	  Records what happens to rows that move by machines: idem_history_changed.
 *
 * The guard tells of each step of a row.  Where history goes by statement, it
 * does so before the update of the row, as the last trigger to see it, and steps
 * are written together (history_pending.c); the trigger after the statement
 * writes what is left.  So nothing is decided twice, and neither the old rows
 * nor the new ones are kept.  Rows that are inserted have no such trigger: theirs
 * are read from the transition table when the statement has ended.
 *
 * On partitioned and inherited tables, and where others' triggers come between,
 * the guard's row triggers tell of each row after it was written
 * (idem_taken_row).  Which of the two is one answer for a statement, and who
 * moves a row on inside of it has his step numbered behind it (writing.c).
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "commands/trigger.h"
#include "executor/executor.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/datum.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/tuplestore.h"

#include "catalog.h"
#include "errors.h"
#include "history.h"
#include "rowversion.h"
#include "taken.h"
#include "timer.h"
#include "writing.h"

PG_FUNCTION_INFO_V1(idem_history_changed);

/* what rows of one statement have in common */
typedef struct History
{
	const IdemBinding *binding;
	IdemTarget *key;
	IdemTarget *whole_key;		/* with the state column, if that is in it */
	bool		timed;			/* the machine is */
	bool		has_version;
	bool		version_later;	/* it is counted after the guard */
	IdemVersion version;
} History;

static void
history_begin(History *history, Relation rel, const IdemBinding *binding)
{
	memset(history, 0, sizeof(History));
	history->binding = binding;
	history->key = idem_history_find_key(rel, binding);
	history->whole_key = idem_target_find(RelationGetRelid(rel));
	history->timed = idem_machine_get(binding->machine, false,
									  CurrentMemoryContext)->timed;
	history->has_version = idem_rowversion_find(rel, &history->version);
}

/*
 * The key's values of a row; they live as long as the row does.
 */
static void
history_key_values(const IdemTarget *key, TupleTableSlot *slot, Datum *values)
{
	for (int i = 0; i < key->nkeys; i++)
	{
		bool		isnull;

		values[i] = slot_getattr(slot, key->attnums[i], &isnull);
		/* it would be refused when the row is written */
		if (isnull)
			ereport(ERROR,
					(errcode(ERRCODE_NOT_NULL_VIOLATION),
					 errmsg("null value in column \"%s\" of relation \"%s\" violates not-null constraint",
							key->columns[i], key->table),
					 idem_errcolumn(key->relid, key->columns[i])));
	}
}

/*
 * Fills in all of a step but its states; "slot" is the row as it will be.
 */
static void
history_describe(History *history, TupleTableSlot *slot, const char *event,
				 const IdemIntent *intent, IdemHistoryRow *row)
{
	Datum		values[IDEM_TARGET_MAXKEYS];

	row->event = event;
	history_key_values(history->whole_key, slot, values);
	idem_history_name(history->key, history->whole_key, values, row);
	row->left_hash = row->row_hash;
	row->left_whole_hash = row->whole_hash;
	if (history->has_version)
	{
		bool		isnull;
		Datum		version = slot_getattr(slot, history->version.column,
										   &isnull);

		row->has_version = !isnull;
		if (!isnull)
			row->version = idem_rowversion_from_datum(version,
													  history->version.base);
	}
	if (intent != NULL)
	{
		row->key = intent->key;
		row->context = intent->context;
	}
}

/*
 * The name that a row had; false if it is the same, which costs less.
 */
static bool
history_describe_left(History *history, TupleTableSlot *old_slot,
					  TupleTableSlot *new_slot, IdemHistoryRow *left)
{
	const IdemTarget *key = history->whole_key;
	TupleDesc	desc = new_slot->tts_tupleDescriptor;
	Datum		old_values[IDEM_TARGET_MAXKEYS];
	Datum		new_values[IDEM_TARGET_MAXKEYS];
	bool		same = true;

	history_key_values(key, old_slot, old_values);
	history_key_values(key, new_slot, new_values);
	for (int i = 0; i < key->nkeys && same; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, key->attnums[i] - 1);

		same = datum_image_eq(old_values[i], new_values[i], att->attbyval,
							  att->attlen);
	}
	if (!same)
		idem_history_name(history->key, key, old_values, left);
	return !same;
}

/*
 * The name that a row has before a step, by which its timers are found, and the
 * step that gave it that name.
 */
static void
history_describe_old(History *history, TupleTableSlot *old_slot,
					 TupleTableSlot *new_slot, IdemHistoryRow *row)
{
	IdemHistoryRow left;

	if (!history_describe_left(history, old_slot, new_slot, &left))
		return;
	row->left_key = left.whole_key;
	row->left_hash = left.row_hash;
	row->left_whole_hash = left.whole_hash;
}

/*
 * What a trigger of a statement knows of the table.
 */
static History *
history_of(IdemTaken *taken, TriggerData *trigdata, const IdemBinding *binding)
{
	History    *history = (History *) taken->history;
	MemoryContext caller;

	if (history != NULL)
		return history;
	caller = MemoryContextSwitchTo(taken->holder);
	history = palloc(sizeof(History));
	history_begin(history, trigdata->tg_relation, binding);
	history->version_later = history->has_version &&
		idem_rowversion_is_after(trigdata->tg_relation, &history->version,
								 trigdata->tg_trigger);
	taken->history = history;
	MemoryContextSwitchTo(caller);
	return history;
}

/*
 * An IdemTakenStep.
 */
static void
history_step(IdemTaken *taken, TriggerData *trigdata,
			 const IdemBinding *binding, const char *from, const char *to,
			 const char *event, const IdemIntent *intent)
{
	History    *history = history_of(taken, trigdata, binding);
	IdemHistoryRow row = {0};

	history_describe(history, trigdata->tg_newslot, event, intent, &row);
	if (history->version_later)
		row.has_version = idem_rowversion_next(trigdata, &history->version,
											   &row.version);
	row.from = from;
	row.to = to;
	row.command = taken->command;
	row.left_command = taken->replaced;
	if (history->timed || row.left_command != InvalidCommandId)
		history_describe_old(history, trigdata->tg_trigslot,
							 trigdata->tg_newslot, &row);
	if (history->timed)
		row.takes_key = idem_writing_take_key(binding, row.whole_hash,
											  row.command);
	idem_history_pend(trigdata->tg_relation, binding, taken->serial, &row);
}

static char *
history_label(TupleTableSlot *slot, const IdemBinding *binding)
{
	bool		isnull;
	Datum		value = slot_getattr(slot, binding->column, &isnull);

	return isnull ? NULL : idem_binding_label(binding, value);
}

/*
 * Whether a row's whole key is there yet.
 */
static bool
history_has_key(const History *history, TupleTableSlot *slot)
{
	for (int i = 0; i < history->whole_key->nkeys; i++)
	{
		if (slot_attisnull(slot, history->whole_key->attnums[i]))
			return false;
	}
	return true;
}

/*
 * An IdemTakenKey.  Before the row has left its key, nobody else has it, and what
 * tells since when it is in its state is there to be found; or it was left for the
 * version that is replaced.  A step of the row that stands here comes before:
 * where it can be written, its timers go with the old name; where not, it sets none.
 */
static void
history_key_stays(IdemTaken *taken, TriggerData *trigdata,
				  const IdemBinding *binding, TupleTableSlot *old_slot,
				  TupleTableSlot *new_slot)
{
	History    *history = history_of(taken, trigdata, binding);
	bool		notes = taken->by_row && TRIGGER_FIRED_BEFORE(trigdata->tg_event);
	IdemHistoryRow left;
	IdemHistoryRow row = {0};
	TimestampTz since = 0;

	if ((notes && !history_has_key(history, new_slot)) ||
		!history_describe_left(history, old_slot, new_slot, &left))
		return;
	history_describe(history, new_slot, NULL, NULL, &row);
	row.command = taken->command;
	row.left_command = taken->replaced;
	row.left_key = left.whole_key;
	row.left_hash = left.row_hash;
	row.left_whole_hash = left.whole_hash;
	row.to = history_label(new_slot, binding);
	row.takes_key = true;
	if (!notes)
	{
		idem_history_precede(binding, &row);
		if (row.to != NULL)
			since = idem_writing_since(binding, row.command, row.whole_hash,
									   row.to);
		row.passed = idem_writing_reserved(binding, row.command, row.whole_hash,
										   &row.seq, &row.at);
	}

	/*
	 * under a key that is not recorded yet there is only what another row
	 * left
	 */
	if (since == 0 && row.to != NULL && !row.passed)
		since = idem_writing_since(binding, taken->replaced, left.whole_hash,
								   row.to);
	if (since == 0 && row.to != NULL && !row.passed)
		since = idem_timers_since(binding, &left, row.to);
	if (notes)
	{
		if (since != 0)
			idem_writing_leave(binding, row.command, row.whole_hash, row.to,
							   since);
		return;
	}
	(void) idem_writing_take_key(binding, row.whole_hash, row.command);
	row.at = since;
	idem_timers_carry(binding, &row);
}

/*
 * The hash of a row's whole key; false if it is not there yet.
 */
static bool
history_hash_of(History *history, TupleTableSlot *slot, int64 *hash)
{
	const IdemTarget *key = history->whole_key;
	Datum		values[IDEM_TARGET_MAXKEYS];
	IdemHistoryRow row;

	if (!history_has_key(history, slot))
		return false;
	history_key_values(key, slot, values);
	idem_history_name(key, key, values, &row);
	*hash = row.whole_hash;
	return true;
}

/*
 * An IdemTakenAgain.
 */
static void
history_again(IdemTaken *taken, TriggerData *trigdata,
			  const IdemBinding *binding)
{
	History    *history;
	int64		left_hash;
	int64		hash;

	if (!idem_writing_replaces(taken->statement, taken->replaced,
							   trigdata->tg_trigtuple, taken->partition))
		return;
	history = history_of(taken, trigdata, binding);
	if (history_hash_of(history, trigdata->tg_trigslot, &left_hash) &&
		idem_writing_replace(taken->statement, binding, taken->replaced,
							 left_hash, trigdata->tg_trigtuple,
							 taken->partition) &&
		history_hash_of(history, trigdata->tg_newslot, &hash))
		idem_writing_continue(binding, taken->command, hash, taken->replaced,
							  left_hash);
}

/*
 * Records a step that is behind the row.
 */
static void
history_record(History *history, IdemHistoryWriter *writer, IdemHistoryRow *row)
{
	const IdemBinding *binding = history->binding;

	idem_history_precede(binding, row);
	row->passed = idem_writing_reserved(binding, row->command, row->whole_hash,
										&row->seq, &row->at);
	if (history->timed)
		row->takes_key = idem_writing_take_key(binding, row->whole_hash,
											   row->command);
	if (idem_history_is_full(writer))
		idem_history_flush(writer);
	idem_history_add(writer, row);
}

/*
 * An IdemTakenRow.
 */
static void
history_row(IdemTaken *taken, Relation rel, TupleTableSlot *old_slot,
			TupleTableSlot *new_slot, const IdemBinding *binding,
			const char *event, const IdemIntent *intent)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext,
												  "idem history",
												  ALLOCSET_SMALL_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(context);
	IdemHistoryWriter *writer = idem_history_open(binding);
	History		history;
	IdemHistoryRow row = {0};

	history_begin(&history, rel, binding);
	history_describe(&history, new_slot, event, intent, &row);
	row.to = history_label(new_slot, binding);
	row.command = taken->command;
	row.left_command = taken->replaced;
	if (old_slot != NULL)
	{
		row.from = history_label(old_slot, binding);
		history_describe_old(&history, old_slot, new_slot, &row);
	}
	history_record(&history, writer, &row);
	idem_history_close(writer);
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(context);
}

/*
 * Rows that a statement inserted into a plain table.
 */
static void
history_inserted(TriggerData *trigdata, const IdemBinding *binding,
				 MemoryContext statement)
{
	Relation	rel = trigdata->tg_relation;
	IdemHistoryWriter *writer = idem_history_open(binding);
	MemoryContext row_context = AllocSetContextCreate(CurrentMemoryContext,
													  "idem history row",
													  ALLOCSET_DEFAULT_SIZES);
	TupleTableSlot *slot = MakeSingleTupleTableSlot(RelationGetDescr(rel),
													&TTSOpsMinimalTuple);
	Tuplestorestate *rows = trigdata->tg_newtable;
	History		history;
	CommandId	command = idem_writing_command_of(statement,
												  RelationGetRelid(rel));
	int			pointer;

	history_begin(&history, rel, binding);
	/* from the beginning, whoever else reads it */
	pointer = tuplestore_alloc_read_pointer(rows, EXEC_FLAG_REWIND);
	tuplestore_select_read_pointer(rows, pointer);
	tuplestore_rescan(rows);
	for (;;)
	{
		IdemHistoryRow row = {0};
		MemoryContext caller;

		CHECK_FOR_INTERRUPTS();
		tuplestore_select_read_pointer(rows, pointer);
		if (!tuplestore_gettupleslot(rows, true, false, slot))
			break;
		/* the slot frees its row itself */
		caller = MemoryContextSwitchTo(row_context);
		history_describe(&history, slot, NULL, NULL, &row);
		row.to = history_label(slot, binding);
		row.command = command;
		row.left_command = InvalidCommandId;
		history_record(&history, writer, &row);
		MemoryContextSwitchTo(caller);
		MemoryContextReset(row_context);
	}
	ExecDropSingleTupleTableSlot(slot);
	MemoryContextDelete(row_context);
	idem_history_close(writer);
}

/*
 * idem_history_changed(machine, options, tag) -> trigger
 */
Datum
idem_history_changed(PG_FUNCTION_ARGS)
{
	TriggerData *trigdata = (TriggerData *) fcinfo->context;
	MemoryContext statement = fcinfo->flinfo->fn_mcxt;
	bool		inserted;
	MemoryContext context;
	MemoryContext caller;
	IdemTable  *table;
	Oid			relid;
	int			depth;

	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function must be called as a trigger")));
	inserted = TRIGGER_FIRED_BY_INSERT(trigdata->tg_event);
	if (!TRIGGER_FIRED_FOR_STATEMENT(trigdata->tg_event) ||
		!TRIGGER_FIRED_AFTER(trigdata->tg_event) ||
		!(inserted ? trigdata->tg_newtable != NULL :
		  TRIGGER_FIRED_BY_UPDATE(trigdata->tg_event)) ||
		trigdata->tg_trigger->tgnargs != IDEM_NARGS)
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("trigger \"%s\" does not fire as one of a history",
						trigdata->tg_trigger->tgname),
				 errhint("Make it with idem_attach().")));
	if (TRIGGER_FIRED_BY_INSERT(trigdata->tg_event) &&
		idem_catalog_is_restored(trigdata->tg_relation))
		return PointerGetDatum(NULL);

	relid = RelationGetRelid(trigdata->tg_relation);
	depth = idem_taken_depth() - 1;
	if (!inserted)
	{
		idem_history_settle(relid);
		idem_writing_end(statement, relid, false, false);
		return PointerGetDatum(NULL);
	}

	/*
	 * one that inserted nothing has told nobody so, and is not the one around
	 * it
	 */
	if (tuplestore_tuple_count(trigdata->tg_newtable) > 0)
		statement = idem_writing_statement(statement, relid, depth);
	context = AllocSetContextCreate(CurrentMemoryContext, "idem history",
									ALLOCSET_DEFAULT_SIZES);
	caller = MemoryContextSwitchTo(context);
	table = idem_table_get(trigdata->tg_relation, context);
	if (!idem_writing_end(statement, relid, true, table->each_row) &&
		tuplestore_tuple_count(trigdata->tg_newtable) > 0)
	{
		IdemBinding *binding = idem_table_statement_binding(table,
															trigdata->tg_relation,
															trigdata->tg_trigger->tgargs[IDEM_ARG_TAG]);

		if (binding != NULL)
			history_inserted(trigdata, binding, statement);
	}
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(context);
	return PointerGetDatum(NULL);
}

/*
 * Called once, when the library is loaded.
 */
void
idem_history_init(void)
{
	idem_taken_step = history_step;
	idem_taken_row = history_row;
	idem_taken_key = history_key_stays;
	idem_taken_again = history_again;
	idem_history_pending_init();
}
