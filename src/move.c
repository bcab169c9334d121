/*
 * move.c
 *	  What a row is to keep where it moves to another partition.
 *
 * To triggers such a move is an update of the row where it was and an insert
 * where it goes, whose BEFORE INSERT triggers see a new row: one that begins
 * versions with 1, or fences with none, would take back what was checked.  So
 * what a column has got is kept before the update, and given to the row by a
 * trigger of ours behind them.
 *
 * Both triggers are called for one row, one after the other and by one query: so
 * a row that leaves is kept by the memory in which that has its functions.  It may
 * not arrive, since others suppress it; the next row that the query inserts is of
 * another table then, or has another key.  The table is the one that the triggers
 * were made for, which a partition may be by itself.  Where it has no key beside the
 * columns that partition, that row is taken for the one that left: nothing else is
 * known of it, as triggers may have changed the rest.
 */
#include "postgres.h"

#include "access/sysattr.h"
#include "access/table.h"
#include "executor/executor.h"
#include "optimizer/optimizer.h"
#include "utils/memutils.h"
#include "utils/partcache.h"
#include "utils/rel.h"

#include "binding.h"
#include "guard_call.h"
#include "move.h"

/* a column of rows that a query moves, in its memory */
typedef struct Move
{
	MemoryContext query;
	char		tag[NAMEDATALEN];	/* of the triggers that share it */
	bool		filled;			/* a row is on its way: */
	Oid			table;			/* of this one */
	Oid			relid;			/* from there */
	Oid			other;			/* another partition that is of the table */
	Bitmapset  *key;			/* it is known by these columns */
	uint64		key_hash;
	int64		value;
	struct Move *outer;
	MemoryContextCallback callback;
} Move;

/* what a statement knows of a partition */
struct IdemMoveFrom
{
	const Bitmapset *columns;	/* by which a row is in it */
	ExprState  *constraint;
	ExprContext *econtext;
	Oid			table;			/* that the trigger was made for */
	Bitmapset  *key;
};

static Move *moves = NULL;		/* innermost first */

static void
move_release(void *arg)
{
	Move	  **link = &moves;

	while (*link != (Move *) arg)
		link = &(*link)->outer;
	*link = (*link)->outer;
}

static Move *
move_find(MemoryContext query, const char *tag)
{
	Move	   *move = moves;

	while (move != NULL &&
		   (move->query != query || strcmp(move->tag, tag) != 0))
		move = move->outer;
	return move;
}

static Move *
move_get(MemoryContext query, const char *tag)
{
	Move	   *move = move_find(query, tag);

	if (move != NULL)
		return move;
	move = MemoryContextAllocZero(query, sizeof(Move));
	move->query = query;
	strlcpy(move->tag, tag, NAMEDATALEN);
	move->callback.func = move_release;
	move->callback.arg = move;
	MemoryContextRegisterResetCallback(query, &move->callback);
	move->outer = moves;
	moves = move;
	return move;
}

/*
 * For a statement's first row in a partition, which has it by these columns.  What
 * is to be kept of it, in one column, is nothing to know it by: others may change
 * that.
 */
IdemMoveFrom *
idem_move_from(TriggerData *td, const Bitmapset *columns, AttrNumber kept)
{
	Relation	rel = td->tg_relation;
	IdemMoveFrom *from = palloc0(sizeof(IdemMoveFrom));
	bool		whole;

	from->columns = columns;
	from->constraint =
		ExecInitCheck((List *) expression_planner((Expr *) RelationGetPartitionQual(rel)),
					  NULL);
	from->econtext = CreateStandaloneExprContext();
	from->table = idem_trigger_made_for(td->tg_trigger->tgoid);
	from->key = idem_guard_key_columns(rel, &whole);
	if (whole)
		from->key = NULL;
	from->key = bms_del_member(from->key,
							   kept - FirstLowInvalidHeapAttributeNumber);
	return from;
}

/*
 * Before the update of a row: whether it is about to leave the partition.
 */
bool
idem_move_leaves(IdemMoveFrom *from, TriggerData *td)
{
	bool		leaves;

	if (!idem_guard_differs(from->columns, td))
		return false;
	from->econtext->ecxt_scantuple = td->tg_newslot;
	leaves = !ExecCheck(from->constraint, from->econtext);
	ResetExprContext(from->econtext);
	return leaves;
}

/*
 * Before the update of a row that leaves: what the column is to have.
 */
void
idem_move_keep(IdemMoveFrom *from, TriggerData *td, MemoryContext query,
			   const char *tag, int64 value)
{
	Relation	rel = td->tg_relation;
	Move	   *move = move_get(query, tag);

	move->filled = true;
	if (move->table != from->table)
		move->other = InvalidOid;
	move->table = from->table;
	move->relid = RelationGetRelid(rel);
	move->key = from->key;
	move->key_hash = idem_guard_hash_columns(td->tg_newslot, move->relid, rel,
											 move->key);
	move->value = value;
}

/*
 * Before the insert of a row: whether it is the one that is on its way, which it is
 * only once, and what its column is to have.
 */
bool
idem_move_arrives(TriggerData *td, MemoryContext query, const char *tag,
				  int64 *value)
{
	Oid			relid = RelationGetRelid(td->tg_relation);
	Move	   *move = move_find(query, tag);
	Relation	source;

	if (move == NULL || !move->filled)
		return false;
	if (relid != move->relid && relid != move->other)
	{
		if (idem_trigger_made_for(td->tg_trigger->tgoid) != move->table)
			return false;
		move->other = relid;
	}
	source = table_open(move->relid, NoLock);
	move->filled = idem_guard_hash_columns(td->tg_trigslot, relid, source,
										   move->key) != move->key_hash;
	table_close(source, NoLock);
	*value = move->value;
	return !move->filled;
}
