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
 * next insert of the command is another row's, which tells from the columns of the
 * primary key by which no table is partitioned: a move does not change them.  Where
 * there is no such column, an insert by the command that moved a row is taken for
 * it.  A partition without partitions that is bound by itself sees no arrival; to
 * it a move is a delete.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "access/tupconvert.h"
#include "access/xact.h"
#include "catalog/partition.h"
#include "executor/executor.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "guard_call.h"

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
	Bitmapset  *identity;		/* what a move leaves as it is, of the row */
	bool		decided;
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
	if (move->decided && move->decision.image != NULL)
		heap_freetuple(move->decision.image);
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
 * The columns of the primary key that are in no partition key.
 */
static Bitmapset *
move_identity(Relation rel)
{
	Bitmapset  *primary = RelationGetIndexAttrBitmap(rel,
													 INDEX_ATTR_BITMAP_PRIMARY_KEY);
	List	   *ancestors = get_partition_ancestors(RelationGetRelid(rel));
	Bitmapset  *identity = NULL;
	int			member = -1;

	while ((member = bms_next_member(primary, member)) >= 0)
	{
		AttrNumber	column = member + FirstLowInvalidHeapAttributeNumber;
		const char *name = NameStr(TupleDescAttr(RelationGetDescr(rel),
												 column - 1)->attname);
		bool		partitions = false;
		ListCell   *lc;

		foreach(lc, ancestors)
		{
			Relation	ancestor = table_open(lfirst_oid(lc), AccessShareLock);
			AttrNumber	above = get_attnum(lfirst_oid(lc), name);

			partitions |= has_partition_attrs(ancestor,
											  bms_make_singleton(above - FirstLowInvalidHeapAttributeNumber),
											  NULL);
			table_close(ancestor, NoLock);
		}
		if (!partitions)
			identity = bms_add_member(identity, column);
	}
	list_free(ancestors);
	return identity;
}

/*
 * Whether it may be the row that is on its way; "row" is that as the partition of
 * the slot has it.
 */
static bool
move_is_same(const GuardMove *move, Relation source, Oid relid, HeapTuple row,
			 TupleTableSlot *slot)
{
	TupleDesc	desc = slot->tts_tupleDescriptor;
	int			member = -1;

	while ((member = bms_next_member(move->identity, member)) >= 0)
	{
		const char *name = NameStr(TupleDescAttr(RelationGetDescr(source),
												 member - 1)->attname);
		AttrNumber	column = get_attnum(relid, name);
		Form_pg_attribute att = TupleDescAttr(desc, column - 1);
		bool		was_null;
		bool		is_null;
		Datum		was = heap_getattr(row, column, desc, &was_null);
		Datum		is = slot_getattr(slot, column, &is_null);

		if (was_null || is_null ||
			!datum_image_eq(was, is, att->attbyval, att->attlen))
			return false;
	}
	return true;
}

/*
 * After the delete of a row: true if it moves, and is kept.
 */
bool
idem_guard_leave(IdemGuardCall * call, TriggerData *trigdata)
{
	IdemBinding *binding = call->judge->binding;
	HeapTuple	old_tuple = trigdata->tg_trigtuple;
	GuardMove  *move;
	MemoryContext former;

	if (!trigdata->tg_relation->rd_rel->relispartition ||
		binding->root == call->judge->relid ||
		!HeapTupleHeaderIndicatesMovedPartitions(old_tuple->t_data))
		return false;
	move = move_at(call->depth, binding, true);
	if (move->filled)
		move_forget(move);
	former = MemoryContextSwitchTo(TopTransactionContext);
	if (move->relid != call->judge->relid ||
		move->command != HeapTupleHeaderGetCmax(old_tuple->t_data))
	{
		bms_free(move->identity);
		move->identity = NULL;
		move->identity = move_identity(trigdata->tg_relation);
	}
	move->row = heap_copytuple(old_tuple);
	MemoryContextSwitchTo(former);
	move->relid = call->judge->relid;
	move->command = HeapTupleHeaderGetCmax(old_tuple->t_data);
	move->decided = idem_decision_take(binding->trigger, &old_tuple->t_self,
									   &move->decision);
	move->filled = true;
	return true;
}

/*
 * The arrival of a row that was in another partition.  False if it is another row.
 */
static bool
move_arrive(IdemGuardCall * call, TriggerData *trigdata, GuardMove *move)
{
	Relation	rel = trigdata->tg_relation;
	Relation	source = table_open(move->relid, NoLock);
	TupleConversionMap *map;
	TupleTableSlot *old_slot;
	HeapTuple	row = move->row;
	IdemDecision kept = move->decision;
	IdemDecision decision;
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
	if (!move_is_same(move, source, RelationGetRelid(rel), row,
					  trigdata->tg_trigslot))
	{
		table_close(source, NoLock);
		return false;
	}
	old_slot = MakeSingleTupleTableSlot(RelationGetDescr(rel),
										&TTSOpsHeapTuple);
	ExecStoreHeapTuple(row, old_slot, false);

	/* whoever fires named the row where it was */
	call->fired_at = move->relid;
	moves_on = idem_guard_prove(call, &tid, move->decided ? &kept : NULL, old_slot,
								trigdata->tg_trigslot, &decision, &intent);
	call->fired_at = call->judge->relid;
	if (!moves_on)
		idem_guard_stays(call, trigdata, old_slot, trigdata->tg_trigslot);
	else if (call->judge->binding->history && idem_taken_row != NULL)
		idem_taken_row(call->statement, rel, row, trigdata->tg_trigtuple,
					   call->judge->binding, decision.event, intent);

	ExecDropSingleTupleTableSlot(old_slot);
	table_close(source, NoLock);
	return true;
}

/*
 * After the insert of a row: true if it is one that moved here.
 */
bool
idem_guard_arrive(IdemGuardCall * call, TriggerData *trigdata)
{
	GuardMove  *move;
	GuardMove	arrived;
	bool		same;

	if (moves == NULL || !trigdata->tg_relation->rd_rel->relispartition)
		return false;
	move = move_at(call->depth, call->judge->binding, false);
	if (move == NULL || !move->filled ||
		HeapTupleHeaderGetCmin(trigdata->tg_trigtuple->t_data) != move->command)
		return false;
	/* a guard's function may move another row */
	arrived = *move;
	arrived.identity = bms_copy(move->identity);
	move->filled = false;
	same = move_arrive(call, trigdata, &arrived);
	move_forget(&arrived);
	bms_free(arrived.identity);
	return same;
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
