/*
 * fence.c
 *	  idem_fence_check: what a write with a stale fence is told.
 *
 * All the comparing is in the WHEN clauses of the two triggers that
 * idem_attach_fence() makes, so that a write which is fine calls no function.
 * The clause names the column, so that it follows a rename, keeps the column
 * from being dropped, and is cloned and dumped by name.  The BEFORE trigger
 * sorts behind most others and sees what they made of the row; the AFTER
 * trigger looks at the row as it was written, whatever fired in between.
 *
 * Where a row moves to another partition there is no such trigger, and BEFORE
 * INSERT triggers see a row that is new to them.  Where a partitioned table has
 * any, or one before updates that sorts behind ours, a third trigger comes behind
 * them, before updates and inserts: it checks a row that leaves again, and gives it
 * at least that fence where it arrives (move.c).
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_trigger.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "fmgr.h"
#include "nodes/primnodes.h"
#include "optimizer/optimizer.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "binding.h"
#include "errors.h"
#include "guard_call.h"
#include "rowversion.h"
#include "stats.h"

PG_FUNCTION_INFO_V1(idem_fence_check);

/* the argument of the trigger that sees to rows that move */
#define FENCE_MOVED		"moved"

/* kept by that trigger for the length of a statement */
typedef struct FenceLeave
{
	AttrNumber	column;
	IdemMoveFrom *from;			/* NULL: it is no partition */
} FenceLeave;

static AttrNumber
fence_column(TriggerData *td)
{
	List	   *vars = NIL;
	AttrNumber	column = InvalidAttrNumber;
	ListCell   *lc;

	if (td->tg_trigger->tgqual != NULL)
		vars = pull_var_clause(stringToNode(td->tg_trigger->tgqual), 0);
	foreach(lc, vars)
		column = Max(column, ((Var *) lfirst(lc))->varattno);
	if (column <= 0)
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("trigger \"%s\" has no condition on a column",
						td->tg_trigger->tgname),
				 errhint("Make it with idem_attach_fence().")));
	return column;
}

static Oid
fence_type(TriggerData *td, AttrNumber column)
{
	Oid			type = TupleDescAttr(RelationGetDescr(td->tg_relation),
									 column - 1)->atttypid;

	if (type != INT8OID && type != INT4OID)
		elog(ERROR, "column of a fence is of type %u", type);
	return type;
}

/*
 * The least number stands for none.
 */
static int64
fence_of(TriggerData *td, TupleTableSlot *slot, AttrNumber column)
{
	bool		isnull;
	Datum		value = slot_getattr(slot, column, &isnull);

	return isnull ? PG_INT64_MIN :
		idem_rowversion_from_datum(value, fence_type(td, column));
}

/*
 * Refuses where a trigger before the same event comes behind ours.
 */
static void
fence_refuse_later(TriggerData *td, int16 event, const char *detail)
{
	TriggerDesc *desc = CopyTriggerDesc(td->tg_relation->trigdesc);
	Oid			schema = get_func_namespace(td->tg_trigger->tgfoid);

	for (int i = 0; i < desc->numtriggers; i++)
	{
		const Trigger *trigger = &desc->triggers[i];

		if (TRIGGER_TYPE_MATCHES(trigger->tgtype, TRIGGER_TYPE_ROW,
								 TRIGGER_TYPE_BEFORE, event) &&
			strcmp(trigger->tgname, td->tg_trigger->tgname) > 0 &&
			idem_trigger_fires_now(trigger->tgenabled) &&
			!idem_rowversion_is_harmless(trigger->tgfoid, schema))
			ereport(ERROR,
					(errcode(ERRCODE_IDEM_MISUSE),
					 errmsg("trigger \"%s\" of table \"%s\" fires after the fence was checked",
							trigger->tgname,
							RelationGetRelationName(td->tg_relation)),
					 errdetail("%s", detail),
					 errhint("Call idem_detach_fence() and idem_attach_fence() in one transaction."),
					 errtable(td->tg_relation),
					 errhidestmt(true)));
	}
}

/*
 * Before the update of a row: keeps the fence of one that leaves its partition.
 * False if that is stale.
 */
static bool
fence_leave(FunctionCallInfo fcinfo)
{
	TriggerData *td = (TriggerData *) fcinfo->context;
	FenceLeave *leave = fcinfo->flinfo->fn_extra;
	int64		value;

	if (leave == NULL)
	{
		MemoryContext caller = MemoryContextSwitchTo(fcinfo->flinfo->fn_mcxt);
		Bitmapset  *columns = idem_guard_partition_columns(td->tg_relation);

		leave = palloc0(sizeof(FenceLeave));
		leave->column = fence_column(td);
		if (columns != NULL)
		{
			/* it could make any row leave */
			fence_refuse_later(td, TRIGGER_TYPE_UPDATE,
							   "A BEFORE UPDATE trigger could make a row move to another partition, where its fence is not checked.");
			leave->from = idem_move_from(td, columns, leave->column);
		}
		fcinfo->flinfo->fn_extra = leave;
		MemoryContextSwitchTo(caller);
	}
	if (leave->from == NULL || !idem_move_leaves(leave->from, td))
		return true;
	value = fence_of(td, td->tg_newslot, leave->column);
	if (value < fence_of(td, td->tg_trigslot, leave->column))
		return false;
	idem_move_keep(leave->from, td, fcinfo->flinfo->fn_mcxt,
				   td->tg_trigger->tgname, value);
	return true;
}

/*
 * Before the insert of a row: one that moves here has no smaller fence than it left
 * with.
 */
static HeapTuple
fence_arrive(TriggerData *td, MemoryContext query)
{
	TupleDesc	desc = RelationGetDescr(td->tg_relation);
	int			column;
	int64		kept;
	Datum		value;
	bool		isnull = false;

	if (!idem_move_arrives(td, query, td->tg_trigger->tgname, &kept))
		return td->tg_trigtuple;
	fence_refuse_later(td, TRIGGER_TYPE_INSERT,
					   "A row that moves to another partition is inserted there, and a BEFORE INSERT trigger could change the fence.");
	column = fence_column(td);
	if (fence_of(td, td->tg_trigslot, column) >= kept)
		return td->tg_trigtuple;
	value = idem_rowversion_to_datum(kept, fence_type(td, column));
	return heap_modify_tuple_by_cols(td->tg_trigtuple, desc, 1, &column, &value,
									 &isnull);
}

Datum
idem_fence_check(PG_FUNCTION_ARGS)
{
	TriggerData *td = (TriggerData *) fcinfo->context;
	IdemRefusal refusal = {
		.kind = IDEM_STATS_VERSION,
		.counter = IDEM_COUNT_STALE,
		.sqlerrcode = ERRCODE_IDEM_STALE
	};
	AttrNumber	column;

	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function \"idem_fence_check\" was not called by trigger manager")));
	if (td->tg_trigger->tgnargs == 1 &&
		strcmp(td->tg_trigger->tgargs[0], FENCE_MOVED) == 0 &&
		TRIGGER_FIRED_FOR_ROW(td->tg_event) &&
		TRIGGER_FIRED_BEFORE(td->tg_event))
	{
		if (TRIGGER_FIRED_BY_INSERT(td->tg_event))
			return PointerGetDatum(fence_arrive(td, fcinfo->flinfo->fn_mcxt));
		if (TRIGGER_FIRED_BY_UPDATE(td->tg_event) && fence_leave(fcinfo))
			return PointerGetDatum(td->tg_newtuple);
	}
	if (!TRIGGER_FIRED_FOR_ROW(td->tg_event) ||
		!TRIGGER_FIRED_BY_UPDATE(td->tg_event))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function \"idem_fence_check\" must be fired for each row of an UPDATE")));
	column = fence_column(td);
	refusal.relid = RelationGetRelid(td->tg_relation);
	idem_stats_refused(&refusal);
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_STALE),
			 errmsg("fence of a row of table \"%s\" is stale",
					RelationGetRelationName(td->tg_relation)),
			 errdetail("The row was written under a later fence than the write carries, or the write carries none."),
			 errhint("Stop the work: the lease was lost, and its next holder has written the row."),
			 errtablecol(td->tg_relation, column),
			 errhidestmt(true)));
	return (Datum) 0;
}
