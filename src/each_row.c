/*
 * each_row.c
 *	  SQL function idem_each_row: the WHEN clause of the triggers that write
 *	  history by row.
 *
 * The history of a plain table is written when a statement ends, and nothing
 * may be queued for its rows.  Whether that is possible changes after the
 * triggers were made: somebody adds a trigger of his own, or the table becomes
 * a partition or a child (binding.c).  As idem_not_initial() the function is
 * never called for a row: the planner asks its support function when a
 * statement begins, and gets true or false.  So nobody needs to be granted it.
 * The answer is the statement's (writing.c).
 *
 * The table is named by a constant of type regclass, which follows renaming and
 * is dumped by name.
 *
 * A trigger that will not fire is still not for nothing: after each update of a
 * row the executor reads the version that was replaced once more, before it asks
 * any trigger's clause, which is 1,900 instructions.  So where all triggers after
 * the update of a row are such ones, and the answer is false, it is told before the
 * statement's first row that there is none, in its own copy of the table's
 * triggers.  What is not told so (a statement that inserts, the first one of a
 * session, a subscription's) pays the look.
 */
#include "postgres.h"

#include "access/relation.h"
#include "catalog/pg_trigger.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "fmgr.h"
#include "nodes/makefuncs.h"
#include "nodes/supportnodes.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "binding.h"
#include "taken.h"
#include "writing.h"

PG_FUNCTION_INFO_V1(idem_each_row);
PG_FUNCTION_INFO_V1(idem_each_row_support);

static ExecutorStart_hook_type former_executor_start = NULL;

/*
 * The answer for the statement whose memory is the current context: the executor
 * prepares the clause there.
 */
static bool
each_row_of(Relation rel, const IdemTable *table)
{
	int			depth = idem_taken_depth();

	return idem_writing_by_row(CurrentMemoryContext, RelationGetRelid(rel),
							   depth, idem_writing_now(depth),
							   table->each_row);
}

static bool
each_row(Oid relid)
{
	Relation	rel = try_relation_open(relid, AccessShareLock);
	MemoryContext context;
	bool		result;

	if (rel == NULL)
		return false;
	context = AllocSetContextCreate(CurrentMemoryContext, "idem_each_row",
									ALLOCSET_SMALL_SIZES);
	result = each_row_of(rel, idem_table_get(rel, context));
	MemoryContextDelete(context);
	relation_close(rel, AccessShareLock);
	return result;
}

/*
 * Takes the triggers after the update of a row from a statement that is about to
 * write, and whose memory is the current context, if none of them will fire.
 */
static void
each_row_spare(ResultRelInfo *result)
{
	TriggerDesc *triggers = result->ri_TrigDesc;

	if (triggers == NULL || !triggers->trig_update_after_row ||
		!triggers->trig_update_before_row)
		return;
	for (int i = 0; i < triggers->numtriggers; i++)
	{
		const Trigger *trigger = &triggers->triggers[i];

		if (TRIGGER_TYPE_MATCHES(trigger->tgtype, TRIGGER_TYPE_ROW,
								 TRIGGER_TYPE_AFTER, TRIGGER_TYPE_UPDATE) &&
			trigger->tgnargs == IDEM_NARGS &&
			idem_trigger_fires_now(trigger->tgenabled))
		{
			MemoryContext context = AllocSetContextCreate(CurrentMemoryContext,
														  "idem_each_row",
														  ALLOCSET_SMALL_SIZES);
			IdemTable  *table = idem_table_get(result->ri_RelationDesc, context);

			if (table->spares_updates &&
				!each_row_of(result->ri_RelationDesc, table))
				triggers->trig_update_after_row = false;
			MemoryContextDelete(context);
			return;
		}
	}
}

static void
each_row_executor_start(QueryDesc *query, int eflags)
{
	MemoryContext caller;
	ListCell   *lc;

	if (former_executor_start != NULL)
		former_executor_start(query, eflags);
	else
		standard_ExecutorStart(query, eflags);

	if (query->operation == CMD_INSERT || query->operation == CMD_DELETE ||
		(eflags & EXEC_FLAG_EXPLAIN_ONLY) != 0)
		return;
	caller = MemoryContextSwitchTo(query->estate->es_query_cxt);
	foreach(lc, query->estate->es_opened_result_relations)
		each_row_spare((ResultRelInfo *) lfirst(lc));
	MemoryContextSwitchTo(caller);
}

/*
 * Called once, when the library is loaded.
 */
void
idem_each_row_init(void)
{
	former_executor_start = ExecutorStart_hook;
	ExecutorStart_hook = each_row_executor_start;
}

/*
 * idem_each_row(value "any", table_name regclass) -> boolean
 *
 * The value is there so that the trigger depends on the column.
 */
Datum
idem_each_row(PG_FUNCTION_ARGS)
{
	if (PG_ARGISNULL(1))
		PG_RETURN_NULL();
	PG_RETURN_BOOL(each_row(PG_GETARG_OID(1)));
}

/*
 * Planner support of idem_each_row.
 */
Datum
idem_each_row_support(PG_FUNCTION_ARGS)
{
	Node	   *request = (Node *) PG_GETARG_POINTER(0);

	if (IsA(request, SupportRequestSimplify))
	{
		List	   *args = ((SupportRequestSimplify *) request)->fcall->args;
		Const	   *table;

		if (list_length(args) == 2 && IsA(lsecond(args), Const))
		{
			table = (Const *) lsecond(args);
			if (!table->constisnull && table->consttype == REGCLASSOID)
				PG_RETURN_POINTER(makeBoolConst(each_row(DatumGetObjectId(table->constvalue)),
												false));
		}
	}
	PG_RETURN_POINTER(NULL);
}
