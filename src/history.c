/*
 * history.c
 *	  Records what happens to rows that move by machines: idem_history_changed.
 *
 * On a plain table two statement triggers see what was written, old rows and
 * new ones in two stores that PostgreSQL fills side by side, row by row: a row
 * that a trigger suppressed is in neither, so the two cannot shift.  Their
 * counts are compared all the same.  On partitioned and inherited tables, and
 * where others' triggers come between, the guard's row triggers tell of each row
 * (idem_taken_row).  Which of the two is one answer for a statement, and who
 * moves a row on inside of it has his step numbered behind it (writing.c).
 *
 * Which event a row was moved by follows from its two states where one rule
 * alone leads from the one to the other.  Where several do, or a verb fired the
 * event, or no rule was needed, the guard has told before the update
 * (idem_taken_note), and what it told is kept here until the statement trigger
 * asks: deciding again might give another answer, since guards may read what has
 * changed meanwhile.  A note is kept by the old row's key, by its two states,
 * and by the depth of triggers, so that it tells of that step alone: not of
 * another one that the same row makes in a trigger, nor of what a later trigger
 * made of it.  A note for a row that was then suppressed is replaced by the next
 * one for the same step; notes of a statement that failed go with its
 * subtransaction.
 */
#include "postgres.h"

#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "common/hashfn.h"
#include "executor/spi.h"
#include "executor/tuptable.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "catalog.h"
#include "compat.h"
#include "decision.h"
#include "errors.h"
#include "history.h"
#include "machine_cache.h"
#include "registry.h"
#include "rowversion.h"
#include "taken.h"
#include "writing.h"

PG_FUNCTION_INFO_V1(idem_history_changed);

/* what the guard told of a row before its update */
typedef struct HistoryNote
{
	uint64		hash;			/* of binding, depth, key, states; hash key */
	char		status;			/* simplehash's own */
	const char *event;			/* NULL: none was needed */
	const IdemIntent *intent;	/* NULL: nobody fired it */
	int			nestlevel;		/* of subtransactions */
} HistoryNote;

#define SH_PREFIX note
#define SH_ELEMENT_TYPE HistoryNote
#define SH_KEY_TYPE uint64
#define SH_KEY hash
#define SH_HASH_KEY(tb, k) ((uint32) (k))
#define SH_EQUAL(tb, a, b) ((a) == (b))
#define SH_SCOPE static inline
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

/* in TopTransactionContext */
static note_hash * notes = NULL;
static int	deepest_note = 0;	/* no note has a higher nestlevel */

static bool
history_is_state(const IdemTable *table, AttrNumber column)
{
	for (int i = 0; i < table->nbindings; i++)
	{
		if (table->bindings[i].column == column)
			return true;
	}
	return false;
}

/*
 * The key that names rows in the history: the primary key without the columns
 * that machines move, unless nothing would be left.  The result may be the
 * argument.
 */
IdemTarget *
idem_history_key(IdemTarget *target, const IdemTable *table)
{
	IdemTarget *key;
	int			n = 0;

	for (int i = 0; i < target->nkeys; i++)
		n += !history_is_state(table, target->attnums[i]);
	if (n == target->nkeys || n == 0)
		return target;

	key = palloc(sizeof(IdemTarget));
	*key = *target;
	key->attnums = palloc(n * sizeof(AttrNumber));
	key->columns = palloc(n * sizeof(char *));
	key->types = palloc(n * sizeof(Oid));
	key->nkeys = 0;
	for (int i = 0; i < target->nkeys; i++)
	{
		if (history_is_state(table, target->attnums[i]))
			continue;
		key->attnums[key->nkeys] = target->attnums[i];
		key->columns[key->nkeys] = target->columns[i];
		key->types[key->nkeys] = target->types[i];
		key->nkeys++;
	}
	return key;
}

static IdemTarget *
history_find_key(Relation rel, const IdemBinding *binding)
{
	IdemTarget *target = idem_target_find(RelationGetRelid(rel));

	if (target == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("table \"%s\" has no primary key",
						RelationGetRelationName(rel)),
				 errdetail("Machine \"%s\" is attached with history, which names rows by it.",
						   binding->machine),
				 errhint("Add a primary key, or detach the machine."),
				 errtable(rel)));
	return idem_history_key(target, binding->table);
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
		if (isnull)
			elog(ERROR, "primary key column \"%s\" is null", key->columns[i]);
	}
}

/*
 * What idem.history is indexed by.  Integers stay in order, so that a
 * statement that goes through a table goes through the index likewise.
 */
int64
idem_history_hash(const IdemTarget *key, const Datum *values, Jsonb *row_key)
{
	if (key->nkeys == 1)
	{
		switch (key->types[0])
		{
			case INT2OID:
				return DatumGetInt16(values[0]);
			case INT4OID:
				return DatumGetInt32(values[0]);
			case INT8OID:
				return DatumGetInt64(values[0]);
		}
	}
	return DatumGetInt64(DirectFunctionCall2(jsonb_hash_extended,
											 JsonbPGetDatum(row_key),
											 Int64GetDatum(0)));
}

static uint64
history_hash_value(Form_pg_attribute att, Datum value, bool isnull,
				   uint64 hash)
{
	if (isnull)
		return hash_bytes_extended((const unsigned char *) "", 0, hash);
	if (att->attbyval)
		return hash_bytes_extended((unsigned char *) &value, sizeof(Datum),
								   hash);
	if (att->attlen == -1)
	{
		struct varlena *v = PG_DETOAST_DATUM_PACKED(value);

		return hash_bytes_extended((unsigned char *) VARDATA_ANY(v),
								   VARSIZE_ANY_EXHDR(v), hash);
	}
	return hash_bytes_extended((unsigned char *) DatumGetPointer(value),
							   datumGetSize(value, false, att->attlen), hash);
}

/*
 * What a note is kept by; the values are those of the key in the old row.
 */
static uint64
history_hash(const IdemTarget *key, TupleDesc desc, const IdemBinding *binding,
			 int depth, const Datum *values, NullableDatum from,
			 NullableDatum to)
{
	Form_pg_attribute state = TupleDescAttr(desc, binding->column - 1);
	uint64		hash = hash_bytes_extended((const unsigned char *) binding->tag,
										   strlen(binding->tag), key->relid);

	hash = hash_bytes_extended((const unsigned char *) &depth, sizeof(depth),
							   hash);
	for (int i = 0; i < key->nkeys; i++)
		hash = history_hash_value(TupleDescAttr(desc, key->attnums[i] - 1),
								  values[i], false, hash);
	hash = history_hash_value(state, from.value, from.isnull, hash);
	return history_hash_value(state, to.value, to.isnull, hash);
}

/*
 * An IdemTakenNote, before the update of a row of a plain table.
 */
static void
history_note(Relation rel, HeapTuple old_tuple, HeapTuple new_tuple,
			 const IdemBinding *binding, const char *event,
			 const IdemIntent *intent)
{
	IdemTarget *key = history_find_key(rel, binding);
	TupleDesc	desc = RelationGetDescr(rel);
	Datum		values[IDEM_TARGET_MAXKEYS];
	NullableDatum from;
	NullableDatum to;
	HistoryNote *note;
	bool		found;
	bool		isnull;

	from.value = heap_getattr(old_tuple, binding->column, desc, &from.isnull);
	to.value = heap_getattr(new_tuple, binding->column, desc, &to.isnull);
	for (int i = 0; i < key->nkeys; i++)
		values[i] = heap_getattr(old_tuple, key->attnums[i], desc, &isnull);

	if (notes == NULL)
	{
		deepest_note = 0;
		notes = note_create(TopTransactionContext, 64, NULL);
	}
	note = note_insert(notes,
					   history_hash(key, desc, binding, idem_taken_depth(),
									values, from, to), &found);
	note->event = idem_decision_event(event);
	note->intent = intent;
	note->nestlevel = GetCurrentTransactionNestLevel();
	deepest_note = Max(deepest_note, note->nestlevel);
}

/* what rows of one statement have in common */
typedef struct History
{
	const IdemBinding *binding;
	const IdemMachine *machine;
	IdemTarget *key;
	IdemTarget *whole_key;		/* with the state column, if that is in it */
	bool		has_version;
	IdemVersion version;
	IdemHistoryWriter *writer;	/* NULL until there is a row */
	Oid			relid;
	MemoryContext statement;	/* the memory of it (writing.c) */
} History;

static void
history_begin(History *history, Relation rel, const IdemBinding *binding,
			  MemoryContext statement)
{
	memset(history, 0, sizeof(History));
	history->relid = RelationGetRelid(rel);
	history->statement = statement;
	history->binding = binding;
	history->machine = idem_writing_machine(statement, RelationGetRelid(rel),
											binding->tag);
	if (history->machine == NULL)
		history->machine = idem_machine_get(binding->machine, false,
											CurrentMemoryContext);
	history->key = history_find_key(rel, binding);
	history->whole_key = idem_target_find(RelationGetRelid(rel));
	history->has_version = idem_rowversion_find(rel, &history->version);
}

static void
history_record(History *history, TupleTableSlot *slot, char *from, char *to,
			   const char *event, const IdemIntent *intent)
{
	IdemHistoryRow row = {.event = event,.from = from,.to = to};
	Datum		values[IDEM_TARGET_MAXKEYS];

	if (history->writer == NULL)
		elog(ERROR, "idem history is not open");
	history_key_values(history->key, slot, values);
	row.row_key = idem_target_print(history->key, values);
	row.whole_key = row.row_key;
	if (history->whole_key != history->key && history->machine->timed)
	{
		Datum		whole[IDEM_TARGET_MAXKEYS];

		history_key_values(history->whole_key, slot, whole);
		row.whole_key = idem_target_print(history->whole_key, whole);
	}
	row.row_hash = idem_history_hash(history->key, values, row.row_key);
	if (history->has_version)
	{
		bool		isnull;
		Datum		version = slot_getattr(slot, history->version.column,
										   &isnull);

		row.has_version = !isnull;
		if (!isnull)
			row.version = idem_rowversion_from_datum(version,
													 history->version.base);
	}
	if (intent != NULL)
	{
		row.key = intent->key;
		row.context = intent->context;
	}
	idem_writing_reserve(history->statement, history->relid, history->binding,
						 row.row_hash, idem_history_sequence(history->writer));
	row.passed = idem_writing_reserved(history->statement, history->binding,
									   row.row_hash, &row.seq, &row.at);
	if (!row.passed)
	{
		row.seq = 0;
		row.at = GetCurrentTimestamp();
	}
	idem_history_add(history->writer, &row);
}

/*
 * An IdemTakenRow.
 */
static void
history_row(MemoryContext statement, Relation rel, HeapTuple old_tuple,
			HeapTuple new_tuple, const IdemBinding *binding,
			const char *event, const IdemIntent *intent)
{
	History		history;
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext,
												  "idem history",
												  ALLOCSET_SMALL_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(context);
	TupleTableSlot *slot;
	Datum		value;
	bool		isnull;
	char	   *from = NULL;
	char	   *to = NULL;

	history_begin(&history, rel, binding, statement);
	if (old_tuple != NULL)
	{
		value = heap_getattr(old_tuple, binding->column,
							 RelationGetDescr(rel), &isnull);
		if (!isnull)
			from = idem_binding_label(binding, value);
	}
	value = heap_getattr(new_tuple, binding->column, RelationGetDescr(rel),
						 &isnull);
	if (!isnull)
		to = idem_binding_label(binding, value);
	slot = MakeSingleTupleTableSlot(RelationGetDescr(rel), &TTSOpsHeapTuple);
	ExecStoreHeapTuple(new_tuple, slot, false);
	history.writer = idem_history_open(binding);
	history_record(&history, slot, from, to, event, intent);
	idem_history_close(history.writer);
	ExecDropSingleTupleTableSlot(slot);
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(context);
}

/*
 * What the guard told of this step of the row, or NULL.
 */
static HistoryNote *
history_find_note(History *history, TupleDesc desc, TupleTableSlot *old_slot,
				  TupleTableSlot *new_slot)
{
	AttrNumber	column = history->binding->column;
	int			depth = idem_taken_depth();
	Datum		values[IDEM_TARGET_MAXKEYS];
	NullableDatum from;
	NullableDatum to;
	HistoryNote *note = NULL;

	if (notes == NULL || notes->members == 0)
		return NULL;
	history_key_values(history->key, old_slot, values);
	from.value = slot_getattr(old_slot, column, &from.isnull);
	to.value = slot_getattr(new_slot, column, &to.isnull);

	/* triggers after a foreign key's action fire one level further out */
	for (int i = 0; i < 2 && note == NULL; i++)
		note = note_lookup(notes,
						   history_hash(history->key, desc, history->binding,
										depth + i, values, from, to));
	return note;
}

/*
 * The event of a row that moved.  The note of it is used up.
 */
static const char *
history_event(History *history, TupleDesc desc, TupleTableSlot *old_slot,
			  TupleTableSlot *new_slot, int from, int to,
			  const IdemIntent **intent)
{
	const IdemRule *rule = NULL;
	HistoryNote *note = history_find_note(history, desc, old_slot, new_slot);
	bool		many;

	*intent = NULL;
	if (note != NULL)
	{
		const char *event = note->event;

		if (note->intent != NULL && idem_taken_is_live(note->intent))
			*intent = note->intent;
		note_delete(notes, note->hash);
		return event;
	}
	if (to >= 0)
		rule = idem_machine_pair(history->machine, from, to, &many);
	return rule != NULL ? rule->event : NULL;
}

/*
 * Reads a transition table from its beginning, whoever else reads it.
 */
static int
history_rewind(Tuplestorestate *store)
{
	int			pointer = tuplestore_alloc_read_pointer(store,
														EXEC_FLAG_REWIND);

	tuplestore_select_read_pointer(store, pointer);
	tuplestore_rescan(store);
	return pointer;
}

/*
 * One row that was written; old_slot is NULL for an insert.
 */
static void
history_changed_row(History *history, TupleDesc desc,
					TupleTableSlot *old_slot, TupleTableSlot *new_slot)
{
	const IdemBinding *binding = history->binding;
	AttrNumber	column = binding->column;
	Form_pg_attribute att = TupleDescAttr(desc, column - 1);
	Datum		old_value = (Datum) 0;
	bool		old_null = true;
	Datum		new_value;
	bool		new_null;
	const char *event = NULL;
	const IdemIntent *intent = NULL;

	new_value = slot_getattr(new_slot, column, &new_null);
	if (old_slot != NULL)
	{
		int			from;
		int			to;

		old_value = slot_getattr(old_slot, column, &old_null);
		to = idem_binding_state(binding, history->machine, new_value,
								new_null);
		if (old_null == new_null &&
			(old_null || datum_image_eq(old_value, new_value, att->attbyval,
										att->attlen)))
		{
			from = to;
			if (to < 0 || notes == NULL ||
				history->machine->states[to].self != IDEM_SELF_REENTER)
				return;
		}
		else
			from = idem_binding_state(binding, history->machine, old_value,
									  old_null);
		if (from == to && from >= 0)
		{
			if (history->machine->states[to].self != IDEM_SELF_REENTER ||
				history_find_note(history, desc, old_slot, new_slot) == NULL)
				return;
		}
		event = history_event(history, desc, old_slot, new_slot, from, to,
							  &intent);
	}
	history_record(history, new_slot,
				   old_null ? NULL : idem_binding_label(binding, old_value),
				   new_null ? NULL : idem_binding_label(binding, new_value),
				   event, intent);
}

/*
 * The statement trigger of a plain table.
 */
static void
history_changed(TriggerData *trigdata, IdemTable *table,
				MemoryContext statement)
{
	Relation	rel = trigdata->tg_relation;
	TupleDesc	desc = RelationGetDescr(rel);
	IdemBinding *binding = idem_table_binding(table,
											  trigdata->tg_trigger->tgargs[IDEM_ARG_TAG]);
	MemoryContext row_context;
	History		history;
	TupleTableSlot *new_slot;
	TupleTableSlot *old_slot = NULL;
	int			new_pointer;
	int			old_pointer = 0;

	history_begin(&history, rel, binding, statement);
	history.writer = idem_history_open(binding);
	row_context = AllocSetContextCreate(CurrentMemoryContext,
										"idem history row",
										ALLOCSET_DEFAULT_SIZES);
	new_slot = MakeSingleTupleTableSlot(desc, &TTSOpsMinimalTuple);
	new_pointer = history_rewind(trigdata->tg_newtable);
	if (trigdata->tg_oldtable != NULL)
	{
		old_slot = MakeSingleTupleTableSlot(desc, &TTSOpsMinimalTuple);
		old_pointer = history_rewind(trigdata->tg_oldtable);
	}

	for (;;)
	{
		bool		more;
		MemoryContext caller;

		CHECK_FOR_INTERRUPTS();
		tuplestore_select_read_pointer(trigdata->tg_newtable, new_pointer);
		more = tuplestore_gettupleslot(trigdata->tg_newtable, true, false,
									   new_slot);
		if (old_slot != NULL)
		{
			tuplestore_select_read_pointer(trigdata->tg_oldtable, old_pointer);
			if (tuplestore_gettupleslot(trigdata->tg_oldtable, true, false,
										old_slot) != more)
				elog(ERROR, "old and new rows of table \"%s\" differ in number",
					 RelationGetRelationName(rel));
		}
		if (!more)
			break;
		/* the slots free their rows themselves */
		caller = MemoryContextSwitchTo(row_context);
		history_changed_row(&history, desc, old_slot, new_slot);
		MemoryContextSwitchTo(caller);
		MemoryContextReset(row_context);
	}

	ExecDropSingleTupleTableSlot(new_slot);
	if (old_slot != NULL)
		ExecDropSingleTupleTableSlot(old_slot);
	idem_history_close(history.writer);
	MemoryContextDelete(row_context);
}

/*
 * idem_history_changed(machine, options, tag) -> trigger
 */
Datum
idem_history_changed(PG_FUNCTION_ARGS)
{
	TriggerData *trigdata = (TriggerData *) fcinfo->context;
	MemoryContext statement = fcinfo->flinfo->fn_mcxt;
	MemoryContext context;
	MemoryContext caller;
	IdemTable  *table;
	Oid			relid;
	int			depth;

	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function must be called as a trigger")));
	if (!TRIGGER_FIRED_FOR_STATEMENT(trigdata->tg_event) ||
		!TRIGGER_FIRED_AFTER(trigdata->tg_event) ||
		!(TRIGGER_FIRED_BY_UPDATE(trigdata->tg_event) ?
		  trigdata->tg_oldtable != NULL :
		  TRIGGER_FIRED_BY_INSERT(trigdata->tg_event)) ||
		trigdata->tg_newtable == NULL ||
		trigdata->tg_trigger->tgnargs != IDEM_NARGS)
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("trigger \"%s\" does not fire as one of a history",
						trigdata->tg_trigger->tgname),
				 errhint("Make it with idem_attach().")));

	relid = RelationGetRelid(trigdata->tg_relation);
	depth = idem_taken_depth() - 1;
	if (TRIGGER_FIRED_BY_INSERT(trigdata->tg_event))
		statement = idem_writing_statement(statement, relid, depth);
	context = AllocSetContextCreate(CurrentMemoryContext, "idem history",
									ALLOCSET_DEFAULT_SIZES);
	caller = MemoryContextSwitchTo(context);
	table = idem_table_get(trigdata->tg_relation, context);
	if (!idem_writing_end(statement, relid, depth, table->each_row) &&
		tuplestore_tuple_count(trigdata->tg_newtable) > 0)
		history_changed(trigdata, table, statement);
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(context);
	return PointerGetDatum(NULL);
}

static void
history_transaction_ends(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT ||
		event == XACT_EVENT_PREPARE || event == XACT_EVENT_PARALLEL_COMMIT ||
		event == XACT_EVENT_PARALLEL_ABORT)
	{
		/* the memory goes with the transaction */
		notes = NULL;
	}
}

/*
 * Notes of a subtransaction that is undone go.  One that is released has none
 * left: the statement trigger has used them up.
 */
static void
history_subtransaction_ends(SubXactEvent event, SubTransactionId mine,
							SubTransactionId parent, void *arg)
{
	int			level = GetCurrentTransactionNestLevel();
	note_iterator iterator;
	HistoryNote *note;

	if (event != SUBXACT_EVENT_ABORT_SUB || notes == NULL ||
		deepest_note < level)
		return;
	note_start_iterate(notes, &iterator);
	while ((note = note_iterate(notes, &iterator)) != NULL)
	{
		if (note->nestlevel >= level)
			note_delete(notes, note->hash);
	}
	deepest_note = level - 1;
}

/*
 * Called once, when the library is loaded.
 */
void
idem_history_init(void)
{
	idem_taken_note = history_note;
	idem_taken_row = history_row;
	RegisterXactCallback(history_transaction_ends, NULL);
	RegisterSubXactCallback(history_subtransaction_ends, NULL);
}
