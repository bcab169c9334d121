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
 * A confirmation is that of the row under way (once_row.c) if there is only
 * one and no later trigger has seen it.  Else the row that got in is read, and
 * its key looked up.  If it has no mark (a later trigger changed the key, or a
 * verb looked) it is given one then; if its key is spent, that is an error,
 * because the row is already there.  A row that comes with the key of another
 * that is under way is let through: whichever of the two gets in first has the
 * key, so that a trigger may put a row elsewhere and drop it here.
 *
 * The comparison can be typed by anybody.  It does nothing without a row under
 * way in that table, so whoever may not insert cannot spend a key with it.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/sysattr.h"
#include "access/table.h"
#include "access/tableam.h"
#include "commands/trigger.h"
#include "executor/tuptable.h"
#include "storage/bufmgr.h"
#include "utils/guc.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "errors.h"
#include "name.h"
#include "once.h"

PG_FUNCTION_INFO_V1(idem_once_row);
PG_FUNCTION_INFO_V1(idem_inserted_cmp);
PG_FUNCTION_INFO_V1(idem_inserted_in);
PG_FUNCTION_INFO_V1(idem_inserted_out);

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
	IdemOnceRow *row = idem_once_row_get(flinfo);
	text	   *key = idem_once_key(table, tuple, RelationGetDescr(rel));
	bool		moving = row->kind == IDEM_ROW_LEAVING && key != NULL &&
	idem_once_row_is_gone(row);
	bool		same = moving && row->owns_key &&
	row->replaced_in == InvalidSubTransactionId &&
	idem_text_equal(row->key, key);
	ItemPointerData tid;

	idem_once_row_clear(row);
	row->relid = RelationGetRelid(rel);
	row->table = table;
	if (same || key == NULL)
	{
		idem_once_row_set(row, same ? IDEM_ROW_MOVED : IDEM_ROW_EXEMPT);
		return tuple;
	}

	/* what other rows under way have marked is to be found */
	idem_once_row_give_marks();
	idem_once_row_keep_key(row, key);
	if (idem_once_row_find_moving(table, row->key) != NULL)
	{
		idem_once_row_set(row, IDEM_ROW_STANDIN);
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
	idem_once_row_set(row, IDEM_ROW_MARKED);
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
	IdemOnceRow *row = idem_once_row_get(flinfo);
	ItemPointer tid = &trigdata->tg_trigtuple->t_self;
	text	   *key;

	if (TRIGGER_FIRED_BY_UPDATE(trigdata->tg_event))
	{
		MemoryContext caller;

		idem_once_row_clear(row);
		caller = MemoryContextSwitchTo(row->context);
		row->tuple = heap_copytuple(trigdata->tg_newtuple);
		MemoryContextSwitchTo(caller);
		row->relid = RelationGetRelid(rel);
		row->tid = *tid;
		idem_once_row_set(row, IDEM_ROW_UPDATED);
		return trigdata->tg_newtuple;
	}

	if (row->kind != IDEM_ROW_UPDATED || row->relid != RelationGetRelid(rel) ||
		!ItemPointerEquals(&row->tid, tid))
	{
		idem_once_row_clear(row);
		return trigdata->tg_trigtuple;
	}
	row->table = idem_once_table(rel);
	key = idem_once_key(unconstify(IdemOnceTable *, row->table), row->tuple,
						RelationGetDescr(rel));
	row->owns_key = key != NULL;
	if (key != NULL)
		idem_once_row_keep_key(row, key);
	idem_once_row_set(row, IDEM_ROW_LEAVING);
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
	idem_once_row_init();

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
		idem_once_row_clear(idem_once_row_get(fcinfo->flinfo));
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
	IdemOnceRow *moving;
	IdemMark   *mark;
	ItemPointerData mark_tid;

	idem_once_row_give_marks();
	if (key == NULL)
		 /* it needs none */ ;
	else if ((moving = idem_once_row_find_moving(table, key)) != NULL)
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
	IdemOnceRow *row = idem_once_row_newest();

	if (row == NULL)
		inserted_report_invalid();

	if (!idem_once_row_is_alone() || !row->table->is_last ||
		row->subid != GetCurrentSubTransactionId() ||
		row->kind == IDEM_ROW_STANDIN ||
		row->replaced_in != InvalidSubTransactionId ||
		(row->kind == IDEM_ROW_MARKED && !row->owns_mark))
		inserted_verify(row->relid, tid);
	row->owns_mark = false;
	idem_once_row_set(row, IDEM_ROW_NONE);
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
