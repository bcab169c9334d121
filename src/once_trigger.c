/*
 * once_trigger.c
 *	  The triggers of a table that skips repeated inserts.
 *
 * Four triggers, made by idem_attach_once() and cloned to every partition:
 *
 * ~idem_once		before the insert of a row, as late as names allow: marks
 *					the row's key in idem.key, or skips the row where the key
 *					is spent.
 * ~idem_once_done	after the insert of a row, for its WHEN clause only.  That
 *					is evaluated as soon as the row is in the table, and is
 *					never true: so every row is confirmed at once, and no
 *					event is queued.  A function called there would need to be
 *					granted to whoever inserts; the one that compares values of
 *					a type does not, so the clause is GREATEST of ctid and
 *					ctid, cast to type idem_inserted.
 * ~idem_once_end	after the statement: takes back the marks of rows that were
 *					not inserted after all.
 * ~idem_once_move	before update and delete of a row of a partitioned table:
 *					an update that moves a row to another partition runs it for
 *					both, of the same row, and then inserts.
 *
 * Between the first two a row is under way.  A statement, which is told by the
 * memory context that its triggers' FmgrInfo lives in, has at most one row
 * under way: when its next one comes, the former was dropped.  But functions
 * that later triggers, constraints and indexes call may insert rows of their
 * own meanwhile.  So there is one OnceRow for each running statement, and the
 * mark of its row belongs to it, not yet to the transaction's pending marks.
 *
 * A confirmation is that of the row under way if there is only one and no
 * later trigger has seen it.  Else the row that got in is read, and its key
 * looked up.  If it has no mark (a later trigger changed the key) it is given
 * one then; if its key is spent, that is an error, because the row is already
 * there.  A row that comes with the key of another that is under way is let
 * through: whichever of the two gets in first has the key, so that a trigger
 * may put a row elsewhere and drop it here.
 *
 * The comparison can be typed by anybody.  It does nothing without a row under way
 * in that table, so whoever may not insert cannot spend a key with it.
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
#include "access/sysattr.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "commands/trigger.h"
#include "executor/tuptable.h"
#include "lib/ilist.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "errors.h"
#include "once.h"

PG_FUNCTION_INFO_V1(idem_once_row);
PG_FUNCTION_INFO_V1(idem_inserted_cmp);
PG_FUNCTION_INFO_V1(idem_inserted_in);
PG_FUNCTION_INFO_V1(idem_inserted_out);

typedef enum RowKind
{
	ROW_NONE,
	ROW_UPDATED,				/* an update of it was seen */
	ROW_LEAVING,				/* ... and then its delete: it moves */
	/* under way, to be confirmed: */
	ROW_MARKED,
	ROW_EXEMPT,					/* has no key */
	ROW_MOVED,					/* is no new one */
	ROW_STANDIN					/* of another statement's row that moves */
} RowKind;

/* the row of a running statement that its triggers saw last */
typedef struct OnceRow
{
	dlist_node	node;
	MemoryContext context;		/* the statement's */
	MemoryContextCallback end;
	RowKind		kind;
	SubTransactionId subid;
	Oid			relid;
	const IdemOnceTable *table;

	/* marked */
	bool		owns_mark;		/* else it is a pending one */
	ItemPointerData mark;
	text	   *key;			/* also of one that leaves ... */
	bool		owns_key;		/* ... if it has one */
	Size		key_size;

	/* leaving or moved: the stand-in got in there, or invalid */
	SubTransactionId replaced_in;

	/* updated or leaving */
	ItemPointerData tid;
	HeapTuple	tuple;			/* its new version */
} OnceRow;

/*
 * All running statements, that which saw a row last first.  Each takes itself
 * out when its context ends, also after an error.
 */
static dlist_head rows = DLIST_STATIC_INIT(rows);
static int	nunderway = 0;

static bool
row_is_under_way(const OnceRow *row)
{
	return row->kind >= ROW_MARKED;
}

static void
row_set_kind(OnceRow *row, RowKind kind)
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
row_give_mark(OnceRow *row)
{
	if (!row->owns_mark)
		return;
	row->owns_mark = false;
	idem_mark_enter(row->table, row->key, &row->mark, row->subid);
}

static void
rows_give_marks(void)
{
	dlist_iter	iter;

	dlist_foreach(iter, &rows)
		row_give_mark(dlist_container(OnceRow, node, iter.cur));
}

/*
 * A verb is about to look at the registry, while rows may be under way: one
 * that was dropped has spent no key, and one that gets in yet is given a new
 * mark then.
 */
static void
rows_take_marks_back(void)
{
	rows_give_marks();
	idem_mark_release_all();
}

/*
 * The end of a statement's memory.
 */
static void
row_statement_ends(void *arg)
{
	OnceRow    *row = (OnceRow *) arg;

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
			rows_give_marks();
			break;
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PREPARE:
			dlist_foreach(iter, &rows)
			{
				OnceRow    *row = dlist_container(OnceRow, node, iter.cur);

				row->kind = ROW_NONE;
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
			OnceRow    *row = dlist_container(OnceRow, node, iter.cur);

			if (row->replaced_in == subid)
				row->replaced_in = event == SUBXACT_EVENT_COMMIT_SUB ?
					parent : InvalidSubTransactionId;
			if (row->subid != subid)
				continue;
			if (event == SUBXACT_EVENT_ABORT_SUB)
			{
				nunderway -= row_is_under_way(row);
				row->kind = ROW_NONE;
				row->owns_mark = false;
			}
			row->subid = parent;
		}
	}
	idem_mark_at_subxact(event, subid, parent);
}

static void
rows_register(void)
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
static OnceRow *
row_of_statement(FmgrInfo *flinfo)
{
	OnceRow    *row = (OnceRow *) flinfo->fn_extra;
	dlist_iter	iter;

	if (row == NULL)
	{
		dlist_foreach(iter, &rows)
		{
			OnceRow    *other = dlist_container(OnceRow, node, iter.cur);

			if (other->context == flinfo->fn_mcxt)
				row = other;
		}
	}
	if (row == NULL)
	{
		row = MemoryContextAllocZero(flinfo->fn_mcxt, sizeof(OnceRow));
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
static void
row_clear(OnceRow *row)
{
	row_give_mark(row);
	row_set_kind(row, ROW_NONE);
	if (row->tuple != NULL)
		heap_freetuple(row->tuple);
	row->tuple = NULL;
}

static void
row_keep_key(OnceRow *row, text *key)
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
static bool
row_is_gone(const OnceRow *row)
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
 * A row of this key that an update moves and that is not in yet, or NULL.
 */
static OnceRow *
row_find_moving(const IdemOnceTable *table, text *key)
{
	dlist_iter	iter;

	dlist_foreach(iter, &rows)
	{
		OnceRow    *row = dlist_container(OnceRow, node, iter.cur);

		if ((row->kind == ROW_MOVED ||
			 (row->kind == ROW_LEAVING && row->owns_key)) &&
			row->replaced_in == InvalidSubTransactionId &&
			idem_once_same_key(row->key, key) &&
			idem_once_same_key(row->table->scope.name, table->scope.name) &&
			(row->kind == ROW_MOVED || row_is_gone(row)))
			return row;
	}
	return NULL;
}

/*
 * A dump's keys are there before its rows where data only is restored into
 * tables that have their triggers, and every row would be lost.  What a dump
 * sets in the session that restores it tells.
 */
static void
row_check_restore(Relation rel)
{
	if (check_function_bodies)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_MISUSE),
			 errmsg("a row of table \"%s\" was to be skipped while a dump is restored",
					RelationGetRelationName(rel)),
			 errdetail("Its key is there already, as all are where keys are restored before rows."),
			 errhint("Restore data with --disable-triggers, or disable the table's triggers meanwhile.  Where rows are to be skipped, set \"check_function_bodies\" to on."),
			 errtable(rel),
			 errhidestmt(true)));
}

/*
 * Before the insert: the row as it is, or NULL to skip it.
 */
static HeapTuple
once_before_insert(TriggerData *trigdata, FmgrInfo *flinfo)
{
	Relation	rel = trigdata->tg_relation;
	HeapTuple	tuple = trigdata->tg_trigtuple;
	IdemOnceTable *table = idem_once_table(rel);
	OnceRow    *row = row_of_statement(flinfo);
	text	   *key = idem_once_key(table, tuple, RelationGetDescr(rel));
	bool		moving = row->kind == ROW_LEAVING && key != NULL &&
	row_is_gone(row);
	bool		same = moving && row->owns_key &&
	row->replaced_in == InvalidSubTransactionId &&
	idem_once_same_key(row->key, key);
	ItemPointerData tid;

	row_clear(row);
	row->relid = RelationGetRelid(rel);
	row->table = table;
	if (same || key == NULL)
	{
		row_set_kind(row, same ? ROW_MOVED : ROW_EXEMPT);
		return tuple;
	}

	/* what other rows under way have marked is to be found */
	if (nunderway > 0)
		rows_give_marks();
	row_keep_key(row, key);
	if (row_find_moving(table, row->key) != NULL)
	{
		row_set_kind(row, ROW_STANDIN);
		return tuple;
	}
	if (IDEM_OUTCOME_RUNS(idem_mark_make(table, row->key, &tid)))
	{
		row->mark = tid;
		row->owns_mark = true;
	}
	else if (idem_mark_find_pending(table, row->key) == NULL)
	{
		if (moving)
			ereport(ERROR,
					(errcode(ERRCODE_IDEM_MISUSE),
					 errmsg("a repeated row was to be moved into table \"%s\"",
							RelationGetRelationName(rel)),
					 errdetail("A trigger changed the key of a row that an UPDATE moves to another partition, or inserted the row elsewhere already."),
					 errtable(rel),
					 errhidestmt(true)));
		row_check_restore(rel);
		return NULL;
	}
	row_set_kind(row, ROW_MARKED);
	return tuple;
}

/*
 * Before an update or delete in a partitioned table: notices a row that is
 * deleted by the very update that was just seen.
 */
static HeapTuple
once_before_move(TriggerData *trigdata, FmgrInfo *flinfo)
{
	Relation	rel = trigdata->tg_relation;
	OnceRow    *row = row_of_statement(flinfo);
	ItemPointer tid = &trigdata->tg_trigtuple->t_self;
	text	   *key;

	if (TRIGGER_FIRED_BY_UPDATE(trigdata->tg_event))
	{
		MemoryContext caller;

		row_clear(row);
		caller = MemoryContextSwitchTo(row->context);
		row->tuple = heap_copytuple(trigdata->tg_newtuple);
		MemoryContextSwitchTo(caller);
		row->relid = RelationGetRelid(rel);
		row->tid = *tid;
		row_set_kind(row, ROW_UPDATED);
		return trigdata->tg_newtuple;
	}

	if (row->kind != ROW_UPDATED || row->relid != RelationGetRelid(rel) ||
		!ItemPointerEquals(&row->tid, tid))
	{
		row_clear(row);
		return trigdata->tg_trigtuple;
	}
	row->table = idem_once_table(rel);
	key = idem_once_key(unconstify(IdemOnceTable *, row->table), row->tuple,
						RelationGetDescr(rel));
	row->owns_key = key != NULL;
	if (key != NULL)
		row_keep_key(row, key);
	row_set_kind(row, ROW_LEAVING);
	return trigdata->tg_trigtuple;
}

/*
 * idem_once_row() -> trigger: all four of them.
 */
Datum
idem_once_row(PG_FUNCTION_ARGS)
{
	TriggerData *trigdata = (TriggerData *) fcinfo->context;
	HeapTuple	result = NULL;

	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function must be called as a trigger"),
				 errhint("Call idem_attach_once() to create its triggers.")));
	rows_register();

	if (TRIGGER_FIRED_FOR_ROW(trigdata->tg_event) &&
		TRIGGER_FIRED_BEFORE(trigdata->tg_event))
	{
		if (TRIGGER_FIRED_BY_INSERT(trigdata->tg_event))
			result = once_before_insert(trigdata, fcinfo->flinfo);
		else
			result = once_before_move(trigdata, fcinfo->flinfo);
	}
	else if (TRIGGER_FIRED_FOR_STATEMENT(trigdata->tg_event) &&
			 TRIGGER_FIRED_AFTER(trigdata->tg_event))
	{
		row_clear(row_of_statement(fcinfo->flinfo));
		idem_mark_end_statement(true);
		/* reports a trigger that is missing */
		(void) idem_once_table(trigdata->tg_relation);
	}
	else if (!TRIGGER_FIRED_AFTER(trigdata->tg_event))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function must not be fired BEFORE FOR EACH STATEMENT or INSTEAD OF"),
				 errhint("Call idem_attach_once() to create its triggers.")));
	return PointerGetDatum(result);
}

static void
inserted_report_invalid(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("cannot accept a value of type %s", "idem_inserted"),
			 errdetail("It stands for a row that is just being inserted, and that trigger \"%s\" has looked at.",
					   IDEM_ONCE_TRIGGER),
			 errhint("If a table's trigger is missing or disabled, call idem_detach_once() and idem_attach_once() for it."),
			 errhidestmt(true)));
}

/*
 * The key of a row that this transaction has just inserted, or NULL.
 */
static text *
inserted_key(Relation rel, IdemOnceTable *table, ItemPointer tid)
{
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	bool		isnull;
	Datum		xmin;
	text	   *key;

	/* the comparison may have been typed with any place */
	if (!ItemPointerIsValid(tid) ||
		ItemPointerGetBlockNumber(tid) >= RelationGetNumberOfBlocks(rel) ||
		!table_tuple_fetch_row_version(rel, tid, SnapshotSelf, slot))
		inserted_report_invalid();
	/* also if COPY has frozen it */
	xmin = slot_getsysattr(slot, MinTransactionIdAttributeNumber, &isnull);
	if (isnull ||
		!TransactionIdIsCurrentTransactionId(DatumGetTransactionId(xmin)))
		inserted_report_invalid();
	key = idem_once_key(table, ExecFetchSlotHeapTuple(slot, false, NULL),
						RelationGetDescr(rel));
	ExecDropSingleTupleTableSlot(slot);
	return key;
}

/*
 * Reads the row that was just inserted, and sees to it that its key is marked.
 */
static void
inserted_verify(Oid relid, ItemPointer tid)
{
	Relation	rel = table_open(relid, NoLock);
	IdemOnceTable *table = idem_once_table(rel);
	text	   *key = inserted_key(rel, table, tid);
	OnceRow    *moving;
	IdemMark   *mark;
	ItemPointerData mark_tid;

	rows_give_marks();
	if (key == NULL)
		 /* it needs none */ ;
	else if ((moving = row_find_moving(table, key)) != NULL)
		moving->replaced_in = GetCurrentSubTransactionId();
	else if ((mark = idem_mark_find_pending(table, key)) != NULL)
		idem_mark_settle(mark);
	else if (!IDEM_OUTCOME_RUNS(idem_mark_make(table, key, &mark_tid)))
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_MISUSE),
				 errmsg("a repeated row was inserted into table \"%s\"",
						RelationGetRelationName(rel)),
				 errdetail("A trigger or function changed its key, or inserted it, after trigger \"%s\" had looked at the row.",
						   IDEM_ONCE_TRIGGER),
				 errhint("Give triggers names that sort before \"%s\".",
						 IDEM_ONCE_TRIGGER),
				 errtable(rel),
				 errhidestmt(true)));
	table_close(rel, NoLock);
}

/*
 * The row at this place, in the table whose row was looked at last, has just
 * been inserted.  Without one under way this was typed by somebody, or the
 * trigger that looks at rows first is missing.
 */
static void
once_inserted(ItemPointer tid)
{
	OnceRow    *row = NULL;
	dlist_iter	iter;

	dlist_foreach(iter, &rows)
	{
		row = dlist_container(OnceRow, node, iter.cur);
		if (row_is_under_way(row))
			break;
		row = NULL;
	}
	if (row == NULL)
		inserted_report_invalid();

	if (nunderway > 1 || !row->table->is_last ||
		row->subid != GetCurrentSubTransactionId() ||
		row->kind == ROW_STANDIN ||
		row->replaced_in != InvalidSubTransactionId ||
		(row->kind == ROW_MARKED && !row->owns_mark))
		inserted_verify(row->relid, tid);
	row->owns_mark = false;
	row_set_kind(row, ROW_NONE);
}

/*
 * idem_inserted_cmp(idem_inserted, idem_inserted) -> int: for the WHEN clause
 * of trigger ~idem_once_done, where both are the new row's place.
 */
Datum
idem_inserted_cmp(PG_FUNCTION_ARGS)
{
	once_inserted((ItemPointer) PG_GETARG_POINTER(0));
	PG_RETURN_INT32(0);
}

Datum
idem_inserted_in(PG_FUNCTION_ARGS)
{
	inserted_report_invalid();
	PG_RETURN_NULL();
}

Datum
idem_inserted_out(PG_FUNCTION_ARGS)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("cannot display a value of type %s", "idem_inserted")));
}
