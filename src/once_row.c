/*
 * once_row.c
 *	  The row of each running statement that is under way.
 *
 * Between its look by trigger ~idem_once and its confirmation a row is under
 * way.  A statement, which is told by the memory context that its triggers'
 * FmgrInfo lives in, has at most one row under way: when its next one comes,
 * the former was dropped.  But functions that later triggers, constraints and
 * indexes call may insert rows of their own meanwhile.  So there is one
 * IdemOnceRow for each running statement, and the mark of its row belongs to
 * it, not yet to the transaction's pending marks.  It is given to those when
 * another row is looked at, and when a verb of this transaction is about to
 * look at the registry: whether a row is still on its way in, or was dropped as
 * its statement's last, cannot be told, but the mark of either may go.
 *
 * A move is taken for one only if the row that was to leave is really gone:
 * a later trigger may have kept it.  Where triggers insert the row elsewhere
 * and drop the one that an update moves, that is its move: from its delete to
 * its confirmation, the first row of its key to get in stands in for it, in
 * whatever table keeps keys in its scope.  There are never more rows of the
 * key than before.  A stand-in may be rolled back, and then the move is still
 * to come.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "executor/tuptable.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "name.h"
#include "once.h"

/*
 * All running statements, that which saw a row last first.  Each takes itself
 * out when its context ends, also after an error.
 */
static dlist_head rows = DLIST_STATIC_INIT(rows);
static int	nunderway = 0;

static bool
row_is_under_way(const IdemOnceRow *row)
{
	return row->kind >= IDEM_ROW_MARKED;
}

void
idem_once_row_set(IdemOnceRow *row, IdemOnceRowKind kind)
{
	nunderway -= row_is_under_way(row);
	row->kind = kind;
	row->subid = GetCurrentSubTransactionId();
	row->replaced_in = InvalidSubTransactionId;
	nunderway += row_is_under_way(row);
}

/*
 * Hands the mark of a row over to the transaction's pending ones.
 */
static void
row_give_mark(IdemOnceRow *row)
{
	if (!row->owns_mark)
		return;
	row->owns_mark = false;
	idem_mark_enter(row->table, row->key, &row->mark, row->subid);
}

void
idem_once_row_give_marks(void)
{
	dlist_iter	iter;

	if (nunderway == 0)
		return;
	dlist_foreach(iter, &rows)
		row_give_mark(dlist_container(IdemOnceRow, node, iter.cur));
}

/*
 * A verb is about to look at the registry, while rows may be under way: one
 * that was dropped has spent no key, and one that gets in yet is given a new
 * mark then.
 */
static void
rows_take_marks_back(void)
{
	idem_once_row_give_marks();
	idem_mark_release_all();
}

/*
 * The end of a statement's memory.
 */
static void
row_statement_ends(void *arg)
{
	IdemOnceRow *row = (IdemOnceRow *) arg;

	dlist_delete(&row->node);
	nunderway -= row_is_under_way(row);
	/* after an error everything is released with the (sub)transaction */
	if (IsTransactionState())
	{
		row_give_mark(row);
		idem_mark_end_statement(false);
	}
}

static void
rows_at_xact(XactEvent event, void *arg)
{
	dlist_iter	iter;

	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
		case XACT_EVENT_PRE_PREPARE:
			idem_once_row_give_marks();
			break;
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PREPARE:
			dlist_foreach(iter, &rows)
			{
				IdemOnceRow *row = dlist_container(IdemOnceRow, node, iter.cur);

				row->kind = IDEM_ROW_NONE;
				row->owns_mark = false;
			}
			nunderway = 0;
			break;
		default:
			break;
	}
	idem_mark_at_xact(event);
}

static void
rows_at_subxact(SubXactEvent event, SubTransactionId subid,
				SubTransactionId parent, void *arg)
{
	dlist_iter	iter;

	if (event == SUBXACT_EVENT_COMMIT_SUB || event == SUBXACT_EVENT_ABORT_SUB)
	{
		dlist_foreach(iter, &rows)
		{
			IdemOnceRow *row = dlist_container(IdemOnceRow, node, iter.cur);

			if (row->replaced_in == subid)
				row->replaced_in = event == SUBXACT_EVENT_COMMIT_SUB ?
					parent : InvalidSubTransactionId;
			if (row->subid != subid)
				continue;
			if (event == SUBXACT_EVENT_ABORT_SUB)
			{
				nunderway -= row_is_under_way(row);
				row->kind = IDEM_ROW_NONE;
				row->owns_mark = false;
			}
			row->subid = parent;
		}
	}
	idem_mark_at_subxact(event, subid, parent);
}

void
idem_once_row_init(void)
{
	static bool registered = false;

	if (registered)
		return;
	RegisterXactCallback(rows_at_xact, NULL);
	RegisterSubXactCallback(rows_at_subxact, NULL);
	idem_store_before_open = rows_take_marks_back;
	registered = true;
}

/*
 * What is kept for the statement that a BEFORE trigger runs in, moved to the
 * front.
 */
IdemOnceRow *
idem_once_row_get(FmgrInfo *flinfo)
{
	IdemOnceRow *row = (IdemOnceRow *) flinfo->fn_extra;
	dlist_iter	iter;

	if (row == NULL)
	{
		dlist_foreach(iter, &rows)
		{
			IdemOnceRow *other = dlist_container(IdemOnceRow, node, iter.cur);

			if (other->context == flinfo->fn_mcxt)
				row = other;
		}
	}
	if (row == NULL)
	{
		row = MemoryContextAllocZero(flinfo->fn_mcxt, sizeof(IdemOnceRow));
		row->context = flinfo->fn_mcxt;
		row->end.func = row_statement_ends;
		row->end.arg = row;
		MemoryContextRegisterResetCallback(row->context, &row->end);
		dlist_push_head(&rows, &row->node);
	}
	flinfo->fn_extra = row;
	dlist_move_head(&rows, &row->node);
	return row;
}

/*
 * The statement's former row has not been inserted, or is done with.
 */
void
idem_once_row_clear(IdemOnceRow *row)
{
	row_give_mark(row);
	idem_once_row_set(row, IDEM_ROW_NONE);
	if (row->tuple != NULL)
		heap_freetuple(row->tuple);
	row->tuple = NULL;
}

void
idem_once_row_keep_key(IdemOnceRow *row, text *key)
{
	Size		size = VARSIZE_ANY(key);

	if (row->key == NULL || row->key_size < size)
	{
		row->key_size = Max(size, 64);
		row->key = MemoryContextAlloc(row->context, row->key_size);
	}
	memcpy(row->key, key, size);
}

/*
 * Whether a row that was to leave its partition has left it.
 */
bool
idem_once_row_is_gone(const IdemOnceRow *row)
{
	Relation	rel = table_open(row->relid, NoLock);
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	ItemPointerData tid = row->tid;
	bool		gone;

	gone = !table_tuple_fetch_row_version(rel, &tid, SnapshotSelf, slot);
	ExecDropSingleTupleTableSlot(slot);
	table_close(rel, NoLock);
	return gone;
}

/*
 * The row under way whose triggers ran last, or NULL.
 */
IdemOnceRow *
idem_once_row_newest(void)
{
	dlist_iter	iter;

	dlist_foreach(iter, &rows)
	{
		IdemOnceRow *row = dlist_container(IdemOnceRow, node, iter.cur);

		if (row_is_under_way(row))
			return row;
	}
	return NULL;
}

bool
idem_once_row_is_alone(void)
{
	return nunderway == 1;
}

/*
 * A row of this key that an update moves and that is not in yet, or NULL.
 */
IdemOnceRow *
idem_once_row_find_moving(const IdemOnceTable *table, text *key)
{
	dlist_iter	iter;

	dlist_foreach(iter, &rows)
	{
		IdemOnceRow *row = dlist_container(IdemOnceRow, node, iter.cur);

		if ((row->kind == IDEM_ROW_MOVED ||
			 (row->kind == IDEM_ROW_LEAVING && row->owns_key)) &&
			row->replaced_in == InvalidSubTransactionId &&
			idem_text_equal(row->key, key) &&
			idem_text_equal(row->table->scope.name, table->scope.name) &&
			(row->kind == IDEM_ROW_MOVED || idem_once_row_is_gone(row)))
			return row;
	}
	return NULL;
}
