/*
 * guard.c
 *	  The trigger that lets rows move only as their machine says.
 *
 * One function, idem_guard(), behind these triggers of a binding:
 *
 * before update of a row	decides.  Its name sorts last, so that it sees what
 *					other triggers made of the row.
 * after insert of a row	an INSERT must begin in an initial state.  Not
 *					before the insert: an INSERT ... ON CONFLICT DO UPDATE
 *					inserts nothing.  On a plain table its WHEN clause is
 *					idem_not_initial(), which the planner replaces by a plain
 *					comparison with the states that are initial when the
 *					statement begins: no event is queued for the others.
 * after delete of a row	the rule for deletes; on partitioned tables always,
 *					for moves (below).
 * after update of a row	on partitioned and inheritance tables: proves the
 *					final row, and records history.
 * after the statement	on plain tables: proves rows that a later trigger may
 *					have changed.
 *
 * The first call of a statement for a relation sets up a judge (judge.c) in
 * fn_extra, and takes in invalidations first.  It lives as long as the
 * statement, whose definition of the machine is therefore one and the same.
 *
 * A later trigger.  Where another's BEFORE UPDATE trigger sorts after the
 * guard, the row may not be what was decided on.  Row triggers after the
 * update would cost every table a second fetch of every row, so on plain
 * tables the guard notes the old row's position instead, and the statement
 * trigger follows it to the row that was written: old row versions of an open
 * transaction are not removed.  If that trigger does not fire (the statement
 * named a parent that the table was made to inherit from later), the proof
 * is at the end of the transaction.
 *
 * A move to another partition is a DELETE and an INSERT to triggers: before
 * update and before delete on the one, before insert on the other, then after
 * delete, after insert.  PostgreSQL marks the deleted row as moved, so the
 * trigger after the delete knows it for sure; it keeps the row, and the next
 * insert into the same table by the same command at the same depth is its
 * arrival, for each binding on its own.  If what arrived is the row that was
 * decided on, the decision stands; if not, it is judged again.  A move that a
 * trigger turned into a loss leaves a row that no insert of a later command can
 * claim.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/relation.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/tupconvert.h"
#include "access/xact.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_operator.h"
#include "catalog/pg_trigger.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "executor/executor.h"
#include "fmgr.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "nodes/supportnodes.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "catalog.h"
#include "errors.h"
#include "guard.h"
#include "judge.h"
#include "machine.h"
#include "taken.h"

PG_FUNCTION_INFO_V1(idem_guard);

/* so many rows are warned of per statement and trigger in observe mode */
#define MAX_WARNINGS	10

/* what was decided for a row before its update */
typedef struct GuardDecision
{
	ItemPointerData tid;		/* of the old row; hash key */
	char		status;			/* simplehash's own */
	int			to;
	const char *event;			/* NULL: it passed without a rule */
	HeapTuple	image;			/* the new row as it was decided on, or NULL */
} GuardDecision;

static inline uint32
hash_position(ItemPointerData tid)
{
	uint32		h = ItemPointerGetBlockNumberNoCheck(&tid) * 0x9E3779B1u;

	h ^= ItemPointerGetOffsetNumberNoCheck(&tid) * 0x85EBCA6Bu;
	h ^= h >> 15;
	return h * 0xC2B2AE35u;
}

#define SH_PREFIX decision
#define SH_ELEMENT_TYPE GuardDecision
#define SH_KEY_TYPE ItemPointerData
#define SH_KEY tid
#define SH_HASH_KEY(tb, k) hash_position(k)
#define SH_EQUAL(tb, a, b) ItemPointerEquals((ItemPointer) &(a), (ItemPointer) &(b))
#define SH_SCOPE static inline
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"


/* one trigger of one relation in one statement */
typedef struct GuardCall
{
	MemoryContextCallback callback;
	IdemJudge  *judge;
	int			depth;			/* of triggers */
	Oid			fired_at;		/* where an event names the row */
	int			warnings;
	bool		keep_image;		/* what is inserted may be another row */
	decision_hash *decisions;	/* of tables with row triggers after updates */
	struct GuardCall *next;		/* in live_calls */
} GuardCall;

/* a row on its way to another partition; of one binding and trigger depth */
typedef struct GuardMove
{
	Oid			root;
	char		tag[NAMEDATALEN];
	int			depth;
	bool		filled;
	Oid			relid;			/* where it was */
	CommandId	command;
	HeapTuple	row;
	bool		decided;
	GuardDecision decision;
	struct GuardMove *next;
} GuardMove;

/* a row whose final image is still to be proven */
typedef struct GuardNote
{
	Oid			relid;
	char		tag[NAMEDATALEN];
	int			depth;
	int			nestlevel;		/* of subtransactions */
	bool		decided;		/* else the row stayed in its state */
	GuardDecision decision;
} GuardNote;

/* with decisions; newest first */
static GuardCall *live_calls = NULL;

/* both in TopTransactionContext */
static GuardMove *moves = NULL;
static GuardNote *notes = NULL;
static int	nnotes = 0;
static int	notes_room = 0;

static void
guard_call_end(void *arg)
{
	GuardCall **link = &live_calls;

	while (*link != NULL && *link != (GuardCall *) arg)
		link = &(*link)->next;
	if (*link != NULL)
		*link = (*link)->next;
}

/*
 * The first call of a trigger in a statement.
 */
static GuardCall *
guard_begin(FunctionCallInfo fcinfo)
{
	TriggerData *trigdata = (TriggerData *) fcinfo->context;
	MemoryContext holder = fcinfo->flinfo->fn_mcxt;
	Relation	rel = trigdata->tg_relation;
	IdemTable  *table;
	IdemBinding *binding;
	GuardCall  *call;

	if (trigdata->tg_trigger->tgnargs != IDEM_NARGS)
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("trigger \"%s\" has not the arguments of a binding",
						trigdata->tg_trigger->tgname),
				 errhint("Make it with idem_attach().")));

	idem_machine_accept();
	table = idem_table_get(rel, holder);
	binding = idem_table_binding(table,
								 trigdata->tg_trigger->tgargs[IDEM_ARG_TAG]);

	call = MemoryContextAllocZero(holder, sizeof(GuardCall));
	call->judge = idem_judge_begin(rel, table, binding, holder);
	call->fired_at = RelationGetRelid(rel);
	call->depth = idem_taken_depth();
	call->keep_image = binding->overruled ||
		(rel->rd_rel->relispartition && rel->trigdesc != NULL &&
		 rel->trigdesc->trig_insert_before_row);

	if (TRIGGER_FIRED_BEFORE(trigdata->tg_event) && binding->rowwise)
	{
		call->decisions = decision_create(holder, 64, NULL);
		call->callback.func = guard_call_end;
		call->callback.arg = call;
		MemoryContextRegisterResetCallback(holder, &call->callback);
		call->next = live_calls;
		live_calls = call;
	}
	fcinfo->flinfo->fn_extra = call;
	return call;
}

/*
 * The state in a row, with its label if it has one.
 */
static int
guard_state(GuardCall *call, TupleTableSlot *slot, Datum *value, bool *isnull)
{
	*value = slot_getattr(slot, call->judge->binding->column, isnull);
	return idem_binding_state(call->judge->binding, call->judge->machine,
							  *value, *isnull);
}

static char *
guard_label(GuardCall *call, Datum value, bool isnull)
{
	return isnull ? NULL : idem_binding_label(call->judge->binding, value);
}

/*
 * Where the write is not refused but only watched: whether to warn of it too.
 */
static int
guard_elevel(GuardCall *call)
{
	if (!call->judge->binding->observe)
		return ERROR;
	return ++call->warnings <= MAX_WARNINGS ? WARNING : DEBUG1;
}

static int
guard_errcolumn(GuardCall *call)
{
	Oid			relid = call->judge->relid;

	err_generic_string(PG_DIAG_SCHEMA_NAME,
					   get_namespace_name(get_rel_namespace(relid)));
	err_generic_string(PG_DIAG_TABLE_NAME, get_rel_name(relid));
	err_generic_string(PG_DIAG_COLUMN_NAME,
					   NameStr(call->judge->binding->column_name));
	return 0;
}

/*
 * An insert in a state that is not initial.
 */
static void
guard_refuse_insert(GuardCall *call, const char *label)
{
	const IdemMachine *machine = call->judge->machine;
	StringInfoData initial;
	int			elevel = guard_elevel(call);

	initStringInfo(&initial);
	for (int i = 0; i < machine->nstates; i++)
	{
		if (machine->states[i].initial)
			appendStringInfo(&initial, "%s\"%s\"", initial.len > 0 ? ", " : "",
							 machine->states[i].name);
	}

	if (label == NULL)
		ereport(elevel,
				(errcode(ERRCODE_IDEM_CONFLICT),
				 errmsg("column \"%s\" of table \"%s\" cannot be NULL",
						NameStr(call->judge->binding->column_name),
						get_rel_name(call->judge->relid)),
				 errdetail("It is moved by machine \"%s\".", machine->name),
				 errhint("A row begins in an initial state: %s.", initial.data),
				 guard_errcolumn(call),
				 errhidestmt(true)));
	else if (idem_machine_state(machine, label, strlen(label)) < 0)
		ereport(elevel,
				(errcode(ERRCODE_IDEM_CONFLICT),
				 errmsg("machine \"%s\" has no state \"%s\"", machine->name,
						label),
				 errhint("A row begins in an initial state: %s.", initial.data),
				 guard_errcolumn(call),
				 errhidestmt(true)));
	else
		ereport(elevel,
				(errcode(ERRCODE_IDEM_CONFLICT),
				 errmsg("\"%s\" is not an initial state of machine \"%s\"",
						label, machine->name),
				 errhint("A row begins in an initial state: %s.", initial.data),
				 guard_errcolumn(call),
				 errhidestmt(true)));
}

/*
 * Decides on an update of a row; an ERROR if it may not be.  False if the row
 * does not move.
 */
static bool
guard_decide(GuardCall *call, ItemPointer tid, TupleTableSlot *old_slot,
			 TupleTableSlot *new_slot, const Bitmapset *named,
			 GuardDecision *decision, const IdemIntent **intent)
{
	IdemJudge  *judge = call->judge;
	IdemBinding *binding = judge->binding;
	const IdemMachine *machine = judge->machine;
	const IdemRule *rule = NULL;
	IdemJudgement verdict;
	Datum		old_value;
	Datum		new_value;
	bool		old_null;
	bool		new_null;
	int			from = guard_state(call, old_slot, &old_value, &old_null);
	int			to = guard_state(call, new_slot, &new_value, &new_null);
	bool		same = from == to;

	*intent = NULL;
	decision->to = to;
	decision->event = NULL;
	decision->image = NULL;

	if (same && from == IDEM_STATE_UNKNOWN)
		same = strcmp(guard_label(call, old_value, old_null),
					  guard_label(call, new_value, new_null)) == 0;
	if (same)
	{
		const IdemMachineState *state;

		if (from < 0)
			return false;
		state = &machine->states[from];
		if (state->frozen)
		{
			if (idem_judge_is_exempt(judge))
				return false;
			idem_judge_report(judge, guard_elevel(call), IDEM_JUDGE_FROZEN,
							  state->name, state->name, NULL, NULL);
			return false;
		}
		if (state->self == IDEM_SELF_NOOP ||
			!bms_is_member(binding->column - FirstLowInvalidHeapAttributeNumber,
						   named))
			return false;
		if (idem_judge_is_exempt(judge))
			return false;
		*intent = idem_taken_intent(call->fired_at, tid, machine->name,
									NameStr(binding->column_name));
		if (state->self == IDEM_SELF_DENY)
		{
			idem_judge_report(judge, guard_elevel(call), IDEM_JUDGE_ILLEGAL,
							  state->name, state->name, NULL, NULL);
			return false;
		}
		if (binding->events_only && *intent == NULL)
			return false;
	}
	else
	{
		*intent = idem_taken_intent(call->fired_at, tid, machine->name,
									NameStr(binding->column_name));
		if (*intent == NULL && idem_judge_is_exempt(judge))
			return true;
		if (from != IDEM_STATE_NULL && to >= 0 &&
			idem_machine_migrates(machine->name,
								  from >= 0 ? machine->states[from].name :
								  guard_label(call, old_value, old_null),
								  machine->states[to].name))
		{
			decision->event = "migrate";
			return true;
		}
	}

	if (!same && from == IDEM_STATE_NULL && to >= 0 &&
		machine->states[to].initial && !binding->events_only)
		return true;

	if (!same && binding->events_only && *intent == NULL &&
		!(from >= 0 && machine->states[from].frozen))
	{
		ereport(guard_elevel(call),
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("column \"%s\" of table \"%s\" moves by events only",
						NameStr(binding->column_name),
						get_rel_name(judge->relid)),
				 errdetail("The write would change it from %s to %s.",
						   old_null ? "NULL" :
						   psprintf("\"%s\"", guard_label(call, old_value,
														  false)),
						   new_null ? "NULL" :
						   psprintf("\"%s\"", guard_label(call, new_value,
														  false))),
				 errhint("Use idem_fire()."),
				 guard_errcolumn(call),
				 errhidestmt(true)));
		return true;
	}

	if (to < 0 && !(from >= 0 && machine->states[from].frozen))
		verdict = IDEM_JUDGE_ILLEGAL;
	else
	{
		judge->any_role = *intent != NULL && (*intent)->any_role;
		verdict = idem_judge_slots(judge, old_slot, new_slot, from, to,
								   *intent != NULL ? (*intent)->event : NULL,
								   &rule);
		if (same && verdict == IDEM_JUDGE_ILLEGAL && *intent == NULL)
			return false;
	}

	if (verdict == IDEM_JUDGE_PASS)
		decision->event = rule->event;
	else if (verdict != IDEM_JUDGE_SAME)
		idem_judge_report(judge, guard_elevel(call), verdict,
						  guard_label(call, old_value, old_null),
						  guard_label(call, new_value, new_null),
						  *intent != NULL ? (*intent)->event : NULL, rule);
	return true;
}

/*
 * Whether two rows of one relation are the same, column for column.
 */
static bool
guard_same_row(HeapTuple a, TupleTableSlot *slot)
{
	TupleDesc	desc = slot->tts_tupleDescriptor;
	Datum	   *values = palloc(desc->natts * sizeof(Datum));
	bool	   *nulls = palloc(desc->natts * sizeof(bool));
	bool		same = true;

	heap_deform_tuple(a, desc, values, nulls);
	slot_getallattrs(slot);
	for (int i = 0; i < desc->natts && same; i++)
	{
		Form_pg_attribute column = TupleDescAttr(desc, i);

		/* what is generated follows from the others */
		if (column->attisdropped || column->attgenerated != '\0')
			continue;
		if (nulls[i] || slot->tts_isnull[i])
			same = nulls[i] && slot->tts_isnull[i];
		else
			same = datum_image_eq(values[i], slot->tts_values[i],
								  column->attbyval, column->attlen);
	}
	pfree(values);
	pfree(nulls);
	return same;
}

/*
 * Keeps what was decided until the trigger after the update asks.
 */
static void
guard_keep(GuardCall *call, HeapTuple old_tuple, HeapTuple new_tuple,
		   const GuardDecision *decision)
{
	GuardDecision *kept;
	bool		found;

	kept = decision_insert(call->decisions, old_tuple->t_self, &found);
	kept->to = decision->to;
	kept->event = decision->event;
	kept->image = NULL;
	if (call->keep_image)
	{
		MemoryContext former = MemoryContextSwitchTo(call->judge->holder);

		kept->image = heap_copytuple(new_tuple);
		MemoryContextSwitchTo(former);
	}
}

/*
 * What was decided for a row of the relation before its update, or NULL.
 */
static GuardDecision *
guard_recall(Oid relid, const char *tag, int depth, ItemPointerData tid)
{
	for (GuardCall *call = live_calls; call != NULL; call = call->next)
	{
		GuardDecision *decision;

		if (call->judge->relid != relid || call->depth != depth ||
			strcmp(call->judge->binding->tag, tag) != 0)
			continue;
		decision = decision_lookup(call->decisions, tid);
		if (decision != NULL)
			return decision;
	}
	return NULL;
}

/*
 * Notes a row whose final image is to be proven.
 */
static void
guard_note(GuardCall *call, ItemPointer tid, const GuardDecision *decision,
		   HeapTuple new_tuple)
{
	GuardNote  *note;

	if (nnotes == notes_room)
	{
		int			room = Max(64, notes_room * 2);

		if (notes == NULL)
			notes = MemoryContextAllocHuge(TopTransactionContext,
										   room * sizeof(GuardNote));
		else
			notes = repalloc_huge(notes, room * sizeof(GuardNote));
		notes_room = room;
	}
	note = &notes[nnotes];
	memset(note, 0, sizeof(GuardNote));
	note->relid = call->judge->relid;
	strlcpy(note->tag, call->judge->binding->tag, NAMEDATALEN);
	note->depth = call->depth;
	note->nestlevel = GetCurrentTransactionNestLevel();
	note->decision.tid = *tid;
	if (decision != NULL)
	{
		MemoryContext former = MemoryContextSwitchTo(TopTransactionContext);

		note->decided = true;
		note->decision.to = decision->to;
		note->decision.image = heap_copytuple(new_tuple);
		MemoryContextSwitchTo(former);
	}
	nnotes++;
}

/*
 * Before the update of a row.
 */
static HeapTuple
guard_before_update(GuardCall *call, TriggerData *trigdata)
{
	IdemBinding *binding = call->judge->binding;
	HeapTuple	old_tuple = trigdata->tg_trigtuple;
	GuardDecision decision;
	const IdemIntent *intent;
	bool		moves_on;

	moves_on = guard_decide(call, &old_tuple->t_self, trigdata->tg_trigslot,
							trigdata->tg_newslot, trigdata->tg_updatedcols,
							&decision, &intent);
	if (binding->rowwise)
	{
		if (moves_on)
			guard_keep(call, old_tuple, trigdata->tg_newtuple, &decision);
	}
	else
	{
		if (binding->overruled)
			guard_note(call, &old_tuple->t_self,
					   moves_on ? &decision : NULL, trigdata->tg_newtuple);
		if (moves_on && binding->history)
		{
			bool		many = true;

			if (intent == NULL && decision.event != NULL)
			{
				Datum		value;
				bool		isnull;

				(void) idem_machine_pair(call->judge->machine,
										 guard_state(call,
													 trigdata->tg_trigslot,
													 &value, &isnull),
										 decision.to, &many);
				if (strcmp(decision.event, "migrate") == 0)
					many = true;
			}
			if (many && idem_taken_note != NULL)
				idem_taken_note(trigdata->tg_relation, old_tuple,
								trigdata->tg_newtuple, binding, decision.event,
								intent);
		}
	}
	return trigdata->tg_newtuple;
}

/*
 * The event by which a row has moved from what it was to what it is, as it was
 * decided before the update, or anew if it is another row now.  False if it
 * has not moved.
 */
static bool
guard_prove(GuardCall *call, ItemPointer tid, const GuardDecision *kept,
			TupleTableSlot *old_slot, TupleTableSlot *new_slot,
			GuardDecision *decision, const IdemIntent **intent)
{
	if (kept != NULL)
	{
		Datum		value;
		bool		isnull;

		if (guard_state(call, new_slot, &value, &isnull) == kept->to &&
			(kept->image == NULL || guard_same_row(kept->image, new_slot)) &&
			kept->to >= 0)
		{
			*decision = *kept;
			*intent = idem_taken_intent(call->fired_at, tid,
										call->judge->machine->name,
										NameStr(call->judge->binding->column_name));
			return true;
		}
	}
	return guard_decide(call, tid, old_slot, new_slot, NULL, decision, intent);
}

static void
guard_after_update(GuardCall *call, TriggerData *trigdata)
{
	IdemBinding *binding = call->judge->binding;
	HeapTuple	old_tuple = trigdata->tg_trigtuple;
	GuardDecision *kept;
	GuardDecision decision;
	const IdemIntent *intent;

	kept = guard_recall(call->judge->relid, binding->tag, call->depth,
						old_tuple->t_self);
	if (kept == NULL && !binding->overruled)
	{
		Datum		value;
		bool		isnull;

		/* a foreign key's action: these triggers outlive its statement */
		if (guard_state(call, trigdata->tg_trigslot, &value, &isnull) ==
			guard_state(call, trigdata->tg_newslot, &value, &isnull))
			return;
	}
	if (guard_prove(call, &old_tuple->t_self, kept, trigdata->tg_trigslot,
					trigdata->tg_newslot, &decision, &intent) &&
		binding->history && idem_taken_row != NULL)
		idem_taken_row(trigdata->tg_relation, old_tuple, trigdata->tg_newtuple,
					   binding, decision.event, intent);
}

/*
 * The slot of row moves of a binding at a trigger depth.
 */
static GuardMove *
guard_move_at(int depth, const IdemBinding *binding, bool create)
{
	GuardMove  *move;

	for (move = moves; move != NULL; move = move->next)
	{
		if (move->depth == depth && move->root == binding->root &&
			strcmp(move->tag, binding->tag) == 0)
			return move;
	}
	if (!create)
		return NULL;
	move = MemoryContextAllocZero(TopTransactionContext, sizeof(GuardMove));
	move->root = binding->root;
	strlcpy(move->tag, binding->tag, NAMEDATALEN);
	move->depth = depth;
	move->next = moves;
	moves = move;
	return move;
}

/*
 * After the delete of a row: the rule for deletes, or the first half of a move.
 */
static void
guard_after_delete(GuardCall *call, TriggerData *trigdata)
{
	IdemBinding *binding = call->judge->binding;
	const IdemMachine *machine = call->judge->machine;
	HeapTuple	old_tuple = trigdata->tg_trigtuple;
	Datum		value;
	bool		isnull;
	int			state;

	if (trigdata->tg_relation->rd_rel->relispartition &&
		HeapTupleHeaderIndicatesMovedPartitions(old_tuple->t_data))
	{
		GuardMove  *move = guard_move_at(call->depth, binding, true);
		GuardDecision *kept;
		MemoryContext former;

		if (move->filled)
			heap_freetuple(move->row);
		move->filled = false;
		former = MemoryContextSwitchTo(TopTransactionContext);
		move->row = heap_copytuple(old_tuple);
		MemoryContextSwitchTo(former);
		move->relid = call->judge->relid;
		move->command = HeapTupleHeaderGetCmax(old_tuple->t_data);
		kept = guard_recall(move->relid, binding->tag, call->depth,
							old_tuple->t_self);
		move->decided = kept != NULL;
		if (kept != NULL)
			move->decision = *kept;
		move->filled = true;
		return;
	}

	if (binding->on_delete == IDEM_DELETE_ANY || idem_judge_is_exempt(call->judge))
		return;
	state = guard_state(call, trigdata->tg_trigslot, &value, &isnull);
	if (binding->on_delete == IDEM_DELETE_FINAL && state >= 0 &&
		machine->states[state].final)
		return;
	ereport(guard_elevel(call),
			(errcode(ERRCODE_IDEM_CONFLICT),
			 errmsg("row of table \"%s\" cannot be deleted in state %s of machine \"%s\"",
					get_rel_name(call->judge->relid),
					isnull ? "NULL" :
					psprintf("\"%s\"", guard_label(call, value, false)),
					machine->name),
			 binding->on_delete == IDEM_DELETE_NEVER ?
			 errdetail("The machine was attached with on_delete \"never\".") :
			 errdetail("The machine was attached with on_delete \"final\"."),
			 guard_errcolumn(call),
			 errhidestmt(true)));
}

/*
 * The arrival of a row that was in another partition.
 */
static void
guard_arrive(GuardCall *call, TriggerData *trigdata, GuardMove *move)
{
	Relation	rel = trigdata->tg_relation;
	Relation	source = table_open(move->relid, NoLock);
	TupleConversionMap *map;
	TupleTableSlot *old_slot;
	HeapTuple	row = move->row;
	GuardDecision kept = move->decision;
	GuardDecision decision;
	const IdemIntent *intent;
	ItemPointerData tid = row->t_self;
	bool		moves_on;

	map = convert_tuples_by_name(RelationGetDescr(source),
								 RelationGetDescr(rel));
	if (map != NULL)
	{
		row = execute_attr_map_tuple(row, map);
		if (kept.image != NULL)
			kept.image = execute_attr_map_tuple(kept.image, map);
	}
	old_slot = MakeSingleTupleTableSlot(RelationGetDescr(rel),
										&TTSOpsHeapTuple);
	ExecStoreHeapTuple(row, old_slot, false);

	/* whoever fires named the row where it was */
	call->fired_at = move->relid;
	moves_on = guard_prove(call, &tid, move->decided ? &kept : NULL, old_slot,
						   trigdata->tg_trigslot, &decision, &intent);
	call->fired_at = call->judge->relid;
	if (moves_on && call->judge->binding->history && idem_taken_row != NULL)
		idem_taken_row(rel, row, trigdata->tg_trigtuple, call->judge->binding,
					   decision.event, intent);

	ExecDropSingleTupleTableSlot(old_slot);
	table_close(source, NoLock);
	heap_freetuple(move->row);
}

static void
guard_after_insert(GuardCall *call, TriggerData *trigdata)
{
	IdemBinding *binding = call->judge->binding;
	const IdemMachine *machine = call->judge->machine;
	HeapTuple	tuple = trigdata->tg_trigtuple;
	Datum		value;
	bool		isnull;
	int			state;

	if (trigdata->tg_relation->rd_rel->relispartition && moves != NULL)
	{
		GuardMove  *move = guard_move_at(call->depth, binding, false);

		if (move != NULL && move->filled &&
			HeapTupleHeaderGetCmin(tuple->t_data) == move->command)
		{
			move->filled = false;
			guard_arrive(call, trigdata, move);
			return;
		}
	}

	state = guard_state(call, trigdata->tg_trigslot, &value, &isnull);
	if (!(state >= 0 && machine->states[state].initial) &&
		!idem_judge_is_exempt(call->judge))
		guard_refuse_insert(call, guard_label(call, value, isnull));
	if (binding->rowwise && binding->history && idem_taken_row != NULL)
		idem_taken_row(trigdata->tg_relation, NULL, tuple, binding, NULL,
					   NULL);
}

/*
 * Follows an old row to the one that was written in its place, and judges it.
 */
static void
guard_prove_note(Relation rel, GuardCall *call, GuardNote *note)
{
	TupleTableSlot *old_slot = table_slot_create(rel, NULL);
	TupleTableSlot *new_slot = table_slot_create(rel, NULL);
	ItemPointerData tid = note->decision.tid;

	if (table_tuple_fetch_row_version(rel, &tid, SnapshotAny, old_slot))
	{
		bool		free_it;
		HeapTuple	old_tuple = ExecFetchSlotHeapTuple(old_slot, false,
													   &free_it);
		HeapTupleHeader header = old_tuple->t_data;
		ItemPointerData next = header->t_ctid;

		if (!(header->t_infomask & HEAP_XMAX_INVALID) &&
			!HEAP_XMAX_IS_LOCKED_ONLY(header->t_infomask) &&
			!HeapTupleHeaderIndicatesMovedPartitions(header) &&
			!ItemPointerEquals(&next, &tid) &&
			TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetUpdateXid(header)) &&
			table_tuple_fetch_row_version(rel, &next, SnapshotAny, new_slot))
		{
			GuardDecision decision;
			const IdemIntent *intent;

			(void) guard_prove(call, &tid,
							   note->decided ? &note->decision : NULL,
							   old_slot, new_slot, &decision, &intent);
		}
	}
	ExecDropSingleTupleTableSlot(old_slot);
	ExecDropSingleTupleTableSlot(new_slot);
}

/*
 * After a statement: proves the rows of the table that were noted in it.
 */
static void
guard_after_statement(GuardCall *call, TriggerData *trigdata)
{
	const char *tag = call->judge->binding->tag;
	Oid			relid = call->judge->relid;
	int			kept = 0;
	int			n = nnotes;

	if (n == 0)
		return;
	for (int i = 0; i < n; i++)
	{
		if (notes[i].relid == relid && notes[i].depth == call->depth &&
			strcmp(notes[i].tag, tag) == 0)
			guard_prove_note(trigdata->tg_relation, call, &notes[i]);
	}
	/* a guard's function may have left notes of its own behind these */
	for (int i = 0; i < nnotes; i++)
	{
		if (i < n && notes[i].relid == relid && notes[i].depth == call->depth &&
			strcmp(notes[i].tag, tag) == 0)
		{
			if (notes[i].decided)
				heap_freetuple(notes[i].decision.image);
			continue;
		}
		notes[kept++] = notes[i];
	}
	nnotes = kept;
}

/*
 * At the end of the transaction: proves what no statement trigger has.
 */
static void
guard_prove_rest(void)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext,
												  "idem proof",
												  ALLOCSET_SMALL_SIZES);
	MemoryContext former = MemoryContextSwitchTo(context);

	PushActiveSnapshot(GetTransactionSnapshot());
	for (int i = 0; i < nnotes; i++)
	{
		Relation	rel = try_relation_open(notes[i].relid, AccessShareLock);
		IdemTable  *table;

		if (rel == NULL)
			continue;
		table = idem_table_get(rel, context);
		for (int j = 0; j < table->nbindings; j++)
		{
			GuardCall	call;

			if (strcmp(table->bindings[j].tag, notes[i].tag) != 0)
				continue;
			memset(&call, 0, sizeof(call));
			call.judge = idem_judge_begin(rel, table, &table->bindings[j],
										  context);
			call.fired_at = RelationGetRelid(rel);
			guard_prove_note(rel, &call, &notes[i]);
		}
		relation_close(rel, NoLock);
	}
	PopActiveSnapshot();
	nnotes = 0;
	MemoryContextSwitchTo(former);
	MemoryContextDelete(context);
}

static void
guard_transaction_ends(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
		case XACT_EVENT_PARALLEL_PRE_COMMIT:
		case XACT_EVENT_PRE_PREPARE:
			if (nnotes > 0)
				guard_prove_rest();
			break;
		default:
			/* their memory goes with the transaction */
			moves = NULL;
			notes = NULL;
			nnotes = 0;
			notes_room = 0;
			break;
	}
}

static void
guard_subtransaction_ends(SubXactEvent event, SubTransactionId mine,
						  SubTransactionId parent, void *arg)
{
	int			level = GetCurrentTransactionNestLevel();
	int			kept = 0;

	if (event == SUBXACT_EVENT_COMMIT_SUB)
	{
		for (int i = 0; i < nnotes; i++)
			notes[i].nestlevel = Min(notes[i].nestlevel, level - 1);
	}
	else if (event == SUBXACT_EVENT_ABORT_SUB)
	{
		for (int i = 0; i < nnotes; i++)
		{
			if (notes[i].nestlevel < level)
				notes[kept++] = notes[i];
		}
		nnotes = kept;
	}
}

/*
 * Registers the callbacks; called once, when the library is loaded.
 */
void
idem_guard_init(void)
{
	RegisterXactCallback(guard_transaction_ends, NULL);
	RegisterSubXactCallback(guard_subtransaction_ends, NULL);
}

static void
guard_check_trigger(TriggerData *trigdata)
{
	if (TRIGGER_FIRED_FOR_ROW(trigdata->tg_event) ?
		(TRIGGER_FIRED_BEFORE(trigdata->tg_event) ?
		 TRIGGER_FIRED_BY_UPDATE(trigdata->tg_event) :
		 TRIGGER_FIRED_AFTER(trigdata->tg_event)) :
		(TRIGGER_FIRED_AFTER(trigdata->tg_event) &&
		 TRIGGER_FIRED_BY_UPDATE(trigdata->tg_event)))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
			 errmsg("trigger \"%s\" does not fire as one of a binding",
					trigdata->tg_trigger->tgname),
			 errhint("Make it with idem_attach().")));
}

/*
 * idem_guard(machine, options, tag) -> trigger
 */
Datum
idem_guard(PG_FUNCTION_ARGS)
{
	TriggerData *trigdata = (TriggerData *) fcinfo->context;
	GuardCall  *call;

	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function must be called as a trigger")));

	call = (GuardCall *) fcinfo->flinfo->fn_extra;
	if (call == NULL)
	{
		guard_check_trigger(trigdata);
		/* it outlives a column that is dropped with all that depends on it */
		if (TRIGGER_FIRED_FOR_STATEMENT(trigdata->tg_event) && nnotes == 0)
			return PointerGetDatum(NULL);
		call = guard_begin(fcinfo);
	}

	if (TRIGGER_FIRED_BEFORE(trigdata->tg_event))
		return PointerGetDatum(guard_before_update(call, trigdata));
	if (TRIGGER_FIRED_FOR_STATEMENT(trigdata->tg_event))
		guard_after_statement(call, trigdata);
	else if (TRIGGER_FIRED_BY_UPDATE(trigdata->tg_event))
		guard_after_update(call, trigdata);
	else if (TRIGGER_FIRED_BY_INSERT(trigdata->tg_event))
		guard_after_insert(call, trigdata);
	else
		guard_after_delete(call, trigdata);
	return PointerGetDatum(NULL);
}
