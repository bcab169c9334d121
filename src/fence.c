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
 */
#include "postgres.h"

#include "commands/trigger.h"
#include "fmgr.h"
#include "nodes/primnodes.h"
#include "optimizer/optimizer.h"
#include "utils/rel.h"

#include "errors.h"
#include "stats.h"

PG_FUNCTION_INFO_V1(idem_fence_check);

Datum
idem_fence_check(PG_FUNCTION_ARGS)
{
	TriggerData *td = (TriggerData *) fcinfo->context;
	IdemRefusal refusal = {
		.kind = IDEM_STATS_VERSION,
		.counter = IDEM_COUNT_STALE,
		.sqlerrcode = ERRCODE_IDEM_STALE
	};
	List	   *vars = NIL;
	AttrNumber	column = 0;
	ListCell   *lc;

	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function \"idem_fence_check\" was not called by trigger manager")));
	if (!TRIGGER_FIRED_FOR_ROW(td->tg_event) ||
		!TRIGGER_FIRED_BY_UPDATE(td->tg_event))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function \"idem_fence_check\" must be fired for each row of an UPDATE")));
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
