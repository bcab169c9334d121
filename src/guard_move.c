/*
 * guard_move.c
 *	  Rows that move to another partition.
 *
 * To triggers such a move is a DELETE and an INSERT: before update and before
 * delete on the one, before insert on the other, then after delete, after
 * insert.  PostgreSQL marks the deleted row as moved, so the trigger after the
 * delete knows it for sure; it keeps the row, and the next insert into the same
 * table by the same command at the same depth is its arrival, for each binding
 * on its own.  If what arrived is the row that was decided on, the decision
 * stands; if not, it is judged again.
 *
 * There may be no arrival: a trigger suppresses it, the row leaves for a partition
 * that is not bound, or its arrival in an initial state fires nothing.  Then the
 * next insert of the command is another row's.  Which of the two it is, tells the
 * primary key that the row was to have, as the guard saw it before the update:
 * its columns by which the row was in its partition may be set anew on the way,
 * so that they count only where the key has no others.  A trigger that sorts
 * behind the guard may make the row move: where there is one, the guard keeps each
 * row that gets another key.  A table without a primary key has none: there, an
 * insert by the command that moved a row is taken for it.  A partition without
 * partitions that is bound by itself sees no arrival; to it a move is a delete.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/sysattr.h"
#include "access/table.h"
#include "access/tupconvert.h"
#include "access/xact.h"
#include "executor/executor.h"
#include "optimizer/optimizer.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/partcache.h"
#include "utils/rel.h"

#include "guard_call.h"
#include "writing.h"

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
	Bitmapset  *key;			/* columns that it is known by */
	bool		whole;			/* these are the whole primary key */
	bool		kept;
	IdemDecision decision;
	struct GuardMove *next;
} GuardMove;

/* in TopTransactionContext */
static GuardMove *moves = NULL;

/*
 * The slot of row moves of a binding at a trigger depth.
 */
static GuardMove *
move_at(int depth, const IdemBinding *binding, bool create)
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

static void
move_forget(GuardMove *move)
{
	heap_freetuple(move->row);
	move->filled = false;
}

/*
 * Whether a row has moved between partitions in this transaction.
 */
bool
idem_guard_has_moved(void)
{
	return moves != NULL;
}

/*
 * The columns that say whether a row is in this partition.
 */
Bitmapset *
idem_guard_partition_columns(Relation rel)
{
	Bitmapset  *columns = NULL;

	pull_varattnos((Node *) RelationGetPartitionQual(rel), 1, &columns);
	return columns;
}

/*
 * The columns whose change makes the guard keep a row: it may move, or by a
 * trigger behind the guard, with another key.
 */
Bitmapset *
idem_guard_leave_columns(Relation rel, const IdemBinding *binding)
{
	Bitmapset  *columns = idem_guard_partition_columns(rel);

	if (binding->overruled)
		columns = bms_add_members(columns,
								  RelationGetIndexAttrBitmap(rel, INDEX_ATTR_BITMAP_PRIMARY_KEY));
	return columns;
}

/*
 * Before the update of a row: whether it changes one of these columns.
 */
bool
idem_guard_differs(const Bitmapset *columns, TriggerData *trigdata)
{
	TupleDesc	desc = trigdata->tg_trigslot->tts_tupleDescriptor;
	int			member = -1;

	while ((member = bms_next_member(columns, member)) >= 0)
	{
		AttrNumber	column = member + FirstLowInvalidHeapAttributeNumber;
		Form_pg_attribute att = TupleDescAttr(desc, column - 1);
		bool		was_null;
		bool		is_null;
		Datum		was = slot_getattr(trigdata->tg_trigslot, column, &was_null);
		Datum		is = slot_getattr(trigdata->tg_newslot, column, &is_null);

		if (was_null != is_null ||
			(!is_null && !datum_image_eq(was, is, att->attbyval, att->attlen)))
			return true;
	}
	return false;
}

/*
 * The columns by which a row is known where it moves: those of its primary key that
 * do not say in which partition it is; all ("whole") if there are no others.
 */
Bitmapset *
idem_guard_key_columns(Relation rel, bool *whole)
{
	Bitmapset  *primary = RelationGetIndexAttrBitmap(rel, INDEX_ATTR_BITMAP_PRIMARY_KEY);
	Bitmapset  *key = bms_difference(primary, idem_guard_partition_columns(rel));

	*whole = bms_is_empty(key);
	return *whole ? primary : key;
}

/*
 * Whether it may be the row that is on its way, and that was the old one.  What
 * was decided on is known by the key that it was to have.
 */
static bool
move_is_same(const GuardMove *move, Relation source, Oid relid,
			 TupleTableSlot *old_slot, TupleTableSlot *slot)
{
	bool		image = move->kept && move->decision.has_image;

	if (move->whole && !image)
		return true;
	return idem_guard_hash_columns(slot, relid, source, move->key) ==
		(image ? move->decision.key_hash :
		 idem_guard_hash_columns(old_slot, relid, source, move->key));
}

static void
move_set_columns(GuardMove *move, Relation rel)
{
	Bitmapset  *key = idem_guard_key_columns(rel, &move->whole);
	MemoryContext caller = MemoryContextSwitchTo(TopTransactionContext);

	bms_free(move->key);
	move->key = bms_copy(key);
	MemoryContextSwitchTo(caller);
}

/*
 * After the delete of a row: true if it moves, and is kept.
 */
bool
idem_guard_leave(IdemGuardCall *call, TriggerData *trigdata)
{
	IdemBinding *binding = call->judge->binding;
	HeapTuple	old_tuple = trigdata->tg_trigtuple;
	GuardMove  *move;
	CommandId	command;
	MemoryContext former;

	if (!call->taken.partition ||
		!HeapTupleHeaderIndicatesMovedPartitions(old_tuple->t_data))
		return false;
	move = move_at(call->depth, binding, true);
	if (move->filled)
		move_forget(move);
	command = HeapTupleHeaderGetCmax(old_tuple->t_data);
	if (move->relid != call->judge->relid || move->command != command)
		move_set_columns(move, trigdata->tg_relation);
	former = MemoryContextSwitchTo(TopTransactionContext);
	move->row = heap_copytuple(old_tuple);
	move->kept = idem_decision_take(binding->trigger, &old_tuple->t_self,
									command, &move->decision);
	MemoryContextSwitchTo(former);
	move->relid = call->judge->relid;
	move->command = command;
	move->filled = true;
	return true;
}

/*
 * The arrival of a row that was in another partition.  False if it is another row.
 */
static bool
move_arrive(IdemGuardCall *call, TriggerData *trigdata, GuardMove *move)
{
	Relation	rel = trigdata->tg_relation;
	Relation	source = table_open(move->relid, NoLock);
	TupleConversionMap *map;
	TupleTableSlot *old_slot;
	HeapTuple	row = move->row;
	IdemDecision decision;
	const IdemIntent *intent;
	ItemPointerData tid = row->t_self;
	bool		moves_on;

	map = convert_tuples_by_name(RelationGetDescr(source),
								 RelationGetDescr(rel));
	if (map != NULL)
	{
		row = execute_attr_map_tuple(row, map);
		/* a guard may ask for these, too */
		row->t_self = move->row->t_self;
		row->t_tableOid = move->row->t_tableOid;
		row->t_data->t_choice.t_heap = move->row->t_data->t_choice.t_heap;
		row->t_data->t_ctid = move->row->t_data->t_ctid;
	}
	old_slot = MakeSingleTupleTableSlot(RelationGetDescr(rel),
										&TTSOpsHeapTuple);
	ExecStoreHeapTuple(row, old_slot, false);
	if (!move_is_same(move, source, RelationGetRelid(rel), old_slot,
					  trigdata->tg_trigslot))
	{
		ExecDropSingleTupleTableSlot(old_slot);
		table_close(source, NoLock);
		return false;
	}

	/* whoever fires named the row where it was */
	call->fired_at = move->relid;
	call->taken.replaced = idem_writing_command(move->row);
	moves_on = idem_guard_prove(call, &tid, move->kept ? &move->decision : NULL, old_slot,
								trigdata->tg_trigslot, &decision, &intent);
	call->fired_at = call->judge->relid;
	if (!moves_on)
		idem_guard_stays(call, trigdata, old_slot, trigdata->tg_trigslot);
	else if (call->judge->binding->history && idem_taken_row != NULL)
		idem_taken_row(&call->taken, rel, old_slot, trigdata->tg_trigslot,
					   call->judge->binding, decision.event, intent);
	call->taken.replaced = InvalidCommandId;

	ExecDropSingleTupleTableSlot(old_slot);
	table_close(source, NoLock);
	return true;
}

/*
 * After the insert of a row: true if it is one that moved here.
 */
bool
idem_guard_arrive(IdemGuardCall *call, TriggerData *trigdata)
{
	GuardMove  *move;
	GuardMove	arrived;

	if (moves == NULL || !trigdata->tg_relation->rd_rel->relispartition)
		return false;
	move = move_at(call->depth, call->judge->binding, false);
	if (move == NULL || !move->filled ||
		idem_writing_command(trigdata->tg_trigtuple) != move->command)
		return false;
	/* a guard's function may move another row, or fail */
	arrived = *move;
	arrived.row = heap_copytuple(move->row);
	arrived.key = bms_copy(move->key);
	move_forget(move);
	return move_arrive(call, trigdata, &arrived);
}

static void
move_transaction_ends(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT ||
		event == XACT_EVENT_PREPARE || event == XACT_EVENT_PARALLEL_COMMIT ||
		event == XACT_EVENT_PARALLEL_ABORT)
		moves = NULL;			/* the memory goes with the transaction */
}

/*
 * Registers the callback; called once, when the library is loaded.
 */
void
idem_guard_move_init(void)
{
	RegisterXactCallback(move_transaction_ends, NULL);
}
