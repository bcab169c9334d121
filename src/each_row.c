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
 */
#include "postgres.h"

#include "access/relation.h"
#include "catalog/pg_type.h"
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

static bool
each_row(Oid relid)
{
	Relation	rel = try_relation_open(relid, AccessShareLock);
	MemoryContext context;
	IdemTable  *table;
	bool		result;

	if (rel == NULL)
		return false;
	context = AllocSetContextCreate(CurrentMemoryContext, "idem_each_row",
									ALLOCSET_SMALL_SIZES);
	table = idem_table_get(rel, context);
	/* the executor prepares the clause in the statement's memory */
	result = idem_writing_by_row(CurrentMemoryContext, relid,
								 idem_taken_depth(),
								 idem_writing_now(idem_taken_depth()),
								 table->each_row);
	MemoryContextDelete(context);
	relation_close(rel, AccessShareLock);
	return result;
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
