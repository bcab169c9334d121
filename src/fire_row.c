/*
 * fire_row.c
 *	  A row that an event is fired for: how it is read, and what it is judged.
 *
 * Every verb reads the same columns and judges what it has read, by the machine
 * of the very relation that holds the row: partitions and children have
 * definitions and numbers of columns of their own.
 *
 * A guard is the user's code, and may do anything; also write the row that it
 * is asked about.  What was judged is gone then, so it is an error, as it is
 * in a plain UPDATE: PostgreSQL's own 27000.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "executor/spi.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "errors.h"
#include "fire.h"

/* a relation that holds rows of the table */
typedef struct FireLeaf
{
	Relation	rel;
	IdemJudge  *judge;
	List	   *freezing;		/* judges of other machines that may freeze it */
	TupleTableSlot *slot;
	struct FireLeaf *next;
} FireLeaf;

/*
 * The columns by which a row is judged.
 */
void
idem_fire_columns(IdemFire *fire, StringInfo buf)
{
	appendStringInfo(buf, "t.tableoid, t.ctid, t.%s",
					 quote_identifier(NameStr(fire->binding->column_name)));
	if (fire->has_version)
		appendStringInfo(buf, ", t.%s",
						 quote_identifier(fire->version.column_name));
	if (fire->key == NULL)
		return;
	for (int i = 0; i < fire->target->nkeys; i++)
		appendStringInfo(buf, ", t.%s",
						 quote_identifier(fire->target->columns[i]));
}

/*
 * Reads the row, while connected to SPI; "lock" is how, and "snapshot" is for who
 * does not lock it.  False if it is not there, or somebody else has it and is not
 * to be waited for.
 */
bool
idem_fire_read(IdemFire *fire, Datum *id, const char *lock, Snapshot snapshot,
			   IdemFireRow *row)
{
	StringInfoData columns;
	SPIPlanPtr	plan;

	initStringInfo(&columns);
	appendStringInfoString(&columns, "SELECT ");
	idem_fire_columns(fire, &columns);
	appendStringInfoString(&columns, " FROM");
	plan = idem_target_plan(fire->target, columns.data, "", lock, 0, NULL);
	if (snapshot == InvalidSnapshot)
		idem_target_run(plan, id, NULL);
	else if (SPI_execute_snapshot(plan, id, NULL, snapshot, InvalidSnapshot,
								  true, false, 1) < 0)
		elog(ERROR, "could not read the row");
	if (SPI_processed == 0)
		return false;
	idem_fire_take_row(fire, SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1,
					   row);
	return true;
}

/*
 * These columns of a row that was read, from column "first" on.
 */
void
idem_fire_take_row(IdemFire *fire, HeapTuple tuple, TupleDesc desc, int first,
				   IdemFireRow *row)
{
	bool		isnull;
	Datum		key[IDEM_TARGET_MAXKEYS];

	memset(row, 0, sizeof(IdemFireRow));
	row->relid = DatumGetObjectId(SPI_getbinval(tuple, desc, first, &isnull));
	row->tid = *(ItemPointer) DatumGetPointer(SPI_getbinval(tuple, desc,
															first + 1,
															&isnull));
	row->state = SPI_getbinval(tuple, desc, first + 2, &row->state_null);
	first += 3;
	if (fire->has_version)
	{
		Datum		version = SPI_getbinval(tuple, desc, first++, &isnull);

		row->has_version = !isnull;
		if (!isnull)
			row->version = idem_rowversion_from_datum(version,
													  fire->version.base);
	}
	if (fire->key == NULL)
		return;
	/* the row's own, not the id given: values that are equal may differ */
	for (int i = 0; i < fire->target->nkeys; i++)
		key[i] = SPI_getbinval(tuple, desc, first + i, &isnull);
	row->row_key = idem_fire_row_key(fire, key);
}

/*
 * Whether the machine's trigger fires, which its owner may have disabled.
 */
static bool
fire_is_guarded(Relation rel, const IdemBinding *binding)
{
	const TriggerDesc *desc = rel->trigdesc;

	for (int i = 0; desc != NULL && i < desc->numtriggers; i++)
	{
		if (desc->triggers[i].tgoid == binding->trigger)
			return idem_trigger_fires_now(desc->triggers[i].tgenabled);
	}
	return false;
}

/*
 * The judges of the table's other machines that have frozen states.
 */
static List *
fire_freezing(IdemFire *fire, Relation rel, IdemTable *table,
			  const IdemBinding *binding)
{
	List	   *judges = NIL;

	for (int i = 0; i < table->nbindings; i++)
	{
		IdemBinding *other = &table->bindings[i];
		const IdemMachine *machine = NULL;
		bool		freezes = false;

		if (other != binding && !other->observe &&
			fire_is_guarded(rel, other))
			machine = idem_machine_get(other->machine, true, fire->context_of);
		for (int j = 0; machine != NULL && j < machine->nstates; j++)
			freezes = freezes || machine->states[j].frozen;
		if (freezes)
			judges = lappend(judges, idem_judge_begin(rel, table, other, machine,
													  fire->context_of));
	}
	return judges;
}

static FireLeaf *
fire_leaf(IdemFire *fire, Oid relid)
{
	FireLeaf   *leaf;
	MemoryContext caller;
	IdemTable  *table;
	IdemBinding *binding;

	for (leaf = fire->leaves; leaf != NULL; leaf = leaf->next)
	{
		if (RelationGetRelid(leaf->rel) == relid)
			return leaf;
	}
	caller = MemoryContextSwitchTo(fire->context_of);
	leaf = palloc0(sizeof(FireLeaf));
	/* the statement that found the row has locked it */
	leaf->rel = table_open(relid, NoLock);
	table = idem_table_get(leaf->rel, fire->context_of);
	binding = idem_table_binding(table, fire->binding->tag);
	leaf->judge = idem_judge_begin(leaf->rel, table, binding, fire->machine,
								   fire->context_of);
	leaf->judge->timed_since = fire->timed_since;
	leaf->freezing = fire_freezing(fire, leaf->rel, table, binding);
	leaf->slot = table_slot_create(leaf->rel, NULL);
	leaf->next = fire->leaves;
	fire->leaves = leaf;
	MemoryContextSwitchTo(caller);
	return leaf;
}

/*
 * Gives back what the verb has opened.
 */
void
idem_fire_close(IdemFire *fire)
{
	for (FireLeaf *leaf = fire->leaves; leaf != NULL; leaf = leaf->next)
	{
		ExecDropSingleTupleTableSlot(leaf->slot);
		table_close(leaf->rel, NoLock);
	}
	fire->leaves = NULL;
}

/*
 * Whether the event leads to a state from anywhere.
 */
static bool
fire_leads_to(const IdemFire *fire, int state)
{
	for (int i = 0; i < fire->machine->nrules; i++)
	{
		const IdemRule *rule = &fire->machine->rules[i];

		if (rule->to_state == state && strcmp(rule->event, fire->event) == 0)
			return true;
	}
	return false;
}

/*
 * Whether another machine lets nothing of the row be changed.
 */
static bool
fire_is_frozen(const FireLeaf *leaf, IdemFireVerdict *verdict)
{
	ListCell   *cell;

	foreach(cell, leaf->freezing)
	{
		IdemJudge  *judge = lfirst(cell);
		bool		isnull;
		Datum		value = slot_getattr(leaf->slot, judge->binding->column,
										 &isnull);
		int			state = idem_binding_state(judge->binding, judge->machine,
											   value, isnull);

		if (state >= 0 && judge->machine->states[state].frozen &&
			!idem_judge_is_exempt(judge))
		{
			verdict->judge = judge;
			verdict->state = judge->machine->states[state].name;
			return true;
		}
	}
	return false;
}

/*
 * The verdict on a row that is there, short of its key's.
 */
void
idem_fire_judge(IdemFire *fire, const IdemFireRow *row, Snapshot snapshot,
				IdemFireVerdict *verdict)
{
	FireLeaf   *leaf = fire_leaf(fire, row->relid);
	ItemPointerData tid = row->tid;
	int			from;

	memset(verdict, 0, sizeof(IdemFireVerdict));
	verdict->has_version = row->has_version;
	verdict->version = row->version;
	verdict->judge = leaf->judge;
	verdict->from = row->state_null ? NULL :
		idem_binding_label(fire->binding, row->state);
	verdict->state = verdict->from;
	from = idem_binding_state(fire->binding, fire->machine, row->state,
							  row->state_null);

	if (fire->has_expected &&
		(!row->has_version || row->version != fire->expected))
	{
		verdict->outcome = IDEM_FIRE_STALE;
		return;
	}

	if (!table_tuple_fetch_row_version(leaf->rel, &tid, snapshot, leaf->slot))
		elog(ERROR, "row of table \"%s\" is not there any more",
			 RelationGetRelationName(leaf->rel));
	verdict->verdict = idem_judge_tuples(leaf->judge,
										 ExecFetchSlotHeapTuple(leaf->slot,
																false, NULL),
										 NULL, from, -1, fire->event,
										 &verdict->rule);
	if (verdict->verdict == IDEM_JUDGE_PASS && fire_is_frozen(leaf, verdict))
	{
		verdict->verdict = IDEM_JUDGE_FROZEN;
		verdict->rule = NULL;
	}
	ExecClearTuple(leaf->slot);

	if (verdict->rule != NULL)
		verdict->to = pstrdup(verdict->rule->to);
	switch (verdict->verdict)
	{
		case IDEM_JUDGE_PASS:
			verdict->outcome = IDEM_FIRE_APPLIED;
			break;
		case IDEM_JUDGE_FROZEN:
			verdict->outcome = IDEM_FIRE_FROZEN;
			break;
		case IDEM_JUDGE_FORBIDDEN:
			verdict->outcome = IDEM_FIRE_FORBIDDEN;
			break;
		case IDEM_JUDGE_GUARDED:
			verdict->outcome = IDEM_FIRE_GUARDED;
			break;
		case IDEM_JUDGE_SAME:
			verdict->outcome = IDEM_FIRE_ALREADY;
			break;
		case IDEM_JUDGE_FINAL:
		case IDEM_JUDGE_ILLEGAL:
			verdict->outcome = IDEM_FIRE_ILLEGAL;
			if (verdict->rule == NULL && from >= 0 &&
				fire_leads_to(fire, from))
			{
				verdict->outcome = IDEM_FIRE_ALREADY;
				verdict->to = verdict->from;
			}
			break;
	}
}

/*
 * A row that was judged is about to be written: it must be the one that is
 * there.  It is locked, so nobody but ourselves can have written it.
 */
void
idem_fire_check_row(IdemFire *fire, const IdemFireRow *row)
{
	FireLeaf   *leaf = fire_leaf(fire, row->relid);
	ItemPointerData tid = row->tid;
	bool		found = table_tuple_fetch_row_version(leaf->rel, &tid,
													  SnapshotSelf,
													  leaf->slot);

	ExecClearTuple(leaf->slot);
	if (!found)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_MISUSE),
				 errmsg("row of table \"%s\" was changed while event \"%s\" was being fired",
						fire->target->table, fire->event),
				 errdetail("A guard or a trigger has written it after it was judged."),
				 errhint("A guard must only read; change the row in a BEFORE trigger, or in a statement of its own."),
				 idem_errcolumn(fire->target->relid, NULL),
				 errhidestmt(true)));
}
