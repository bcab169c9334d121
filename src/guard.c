/*
 * guard.c
 *	  The trigger that lets rows move only as their machine says.
 *
 * One function, idem_guard(), behind these triggers of a binding:
 *
 * before update of a row	decides, and tells the history of the step.  Its name
 *					sorts last, so that it sees what other triggers made
 *					of the row.
 * after insert of a row	an INSERT must begin in an initial state.  Not
 *					before the insert: an INSERT ... ON CONFLICT DO UPDATE
 *					inserts nothing.  Its WHEN clause is idem_not_initial(),
 *					which the planner replaces by a plain comparison with the
 *					states that are initial when the statement begins: no
 *					event is queued for the others.
 * after delete of a row	the rule for deletes; on partitioned tables always,
 *					for rows that move (guard_move.c).
 * after update of a row	proves the final row, and tells the history, where
 *					that was not done before.  On partitioned and
 *					inheritance tables always.
 * after the statement	on plain tables: proves rows that a later trigger may
 *					have changed (guard_proof.c).
 *
 * The history of a plain table is written by statement (history.c), as long as
 * nobody can come between the guard and the write of a row, or between that and
 * the end of its statement.  Otherwise (table_choose_way in binding.c) the
 * triggers after the insert and update of a row do it here.  Their WHEN clauses
 * have idem_each_row(), which the planner replaces by true or false when the
 * statement begins; the first who asks in a statement gets the answer for all
 * (writing.c).  The names of those that write history sort first: a trigger that
 * moves the row on has its own step recorded later.
 *
 * Rows that a restore inserts have been judged, and recorded, where they come
 * from.
 *
 * The first call of a statement for a relation sets up a judge (judge.c) in
 * fn_extra.  It lives as long as the statement, whose definition of the machine
 * is one and the same in all of its triggers (statement.c).
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "commands/trigger.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/rel.h"

#include "catalog.h"
#include "errors.h"
#include "guard.h"
#include "guard_call.h"
#include "statement.h"
#include "writing.h"

PG_FUNCTION_INFO_V1(idem_guard);

/*
 * The first call of a trigger in a statement.
 */
static IdemGuardCall *
guard_begin(FunctionCallInfo fcinfo)
{
	TriggerData *trigdata = (TriggerData *) fcinfo->context;
	MemoryContext holder = fcinfo->flinfo->fn_mcxt;
	Relation	rel = trigdata->tg_relation;
	int			depth = idem_taken_depth() - 1;
	const IdemMachine *machine;
	IdemTable  *table;
	IdemBinding *binding;
	IdemGuardCall *call;

	if (trigdata->tg_trigger->tgnargs != IDEM_NARGS)
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("trigger \"%s\" has not the arguments of a binding",
						trigdata->tg_trigger->tgname),
				 errhint("Make it with idem_attach().")));

	/* ALTER TABLE ... ATTACH PARTITION gives such a one the triggers too */
	if (rel->rd_rel->relkind == RELKIND_FOREIGN_TABLE)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_MISUSE),
				 errmsg("rows of foreign table \"%s\" cannot be guarded",
						RelationGetRelationName(rel)),
				 errhint("Detach it from the partitioned table, which is bound to a machine."),
				 errtable(rel),
				 errhidestmt(true)));
	/* first: the table's entry may be rebuilt by what this takes in */
	machine = idem_statement_machine(holder, depth,
									 TRIGGER_FIRED_BY_INSERT(trigdata->tg_event) &&
									 !rel->rd_rel->relispartition,
									 trigdata->tg_trigger->tgargs[IDEM_ARG_MACHINE],
									 false);
	table = idem_table_get(rel, holder);
	binding = idem_table_binding(table,
								 trigdata->tg_trigger->tgargs[IDEM_ARG_TAG]);

	call = MemoryContextAllocZero(holder, sizeof(IdemGuardCall));
	call->judge = idem_judge_begin(rel, table, binding, machine, holder);
	call->fired_at = RelationGetRelid(rel);
	call->depth = depth + 1;
	call->by_row = binding->rowwise;
	call->taken.holder = holder;
	call->taken.statement = holder;
	call->taken.partition = rel->rd_rel->relispartition &&
		binding->root != call->judge->relid;
	call->taken.command = call->taken.replaced = InvalidCommandId;
	if (TRIGGER_FIRED_BEFORE(trigdata->tg_event))
		call->taken.command = idem_writing_now(depth);
	else if (TRIGGER_FIRED_BY_INSERT(trigdata->tg_event))
		call->taken.command = idem_writing_command(trigdata->tg_trigtuple);
	if (binding->history && TRIGGER_FIRED_FOR_ROW(trigdata->tg_event) &&
		(TRIGGER_FIRED_BEFORE(trigdata->tg_event) ||
		 TRIGGER_FIRED_BY_INSERT(trigdata->tg_event)))
	{
		if (TRIGGER_FIRED_BY_INSERT(trigdata->tg_event) &&
			!rel->rd_rel->relispartition)
			call->taken.statement = idem_writing_statement(holder, call->fired_at,
														   depth);
		call->by_row = idem_writing_by_row(call->taken.statement,
										   call->fired_at, depth,
										   call->taken.command,
										   binding->rowwise);
		call->taken.by_row = call->by_row;
		call->records = idem_trigger_fires_now(binding->history_enabled);
		call->taken.serial = idem_writing_serial(call->taken.statement,
												 call->fired_at);
		if (call->taken.partition && TRIGGER_FIRED_BY_INSERT(trigdata->tg_event) &&
			call->taken.command != InvalidCommandId)
			idem_writing_tells(call->taken.command);
		/* that is how PostgreSQL runs them */
		if (call->by_row && TRIGGER_FIRED_BEFORE(trigdata->tg_event) &&
			InNoForceRLSOperation())
			idem_writing_acts(call->taken.command, depth);
	}
	if (call->taken.partition && TRIGGER_FIRED_BEFORE(trigdata->tg_event))
	{
		MemoryContext caller = MemoryContextSwitchTo(holder);
		bool		whole;

		call->leave_columns = idem_guard_leave_columns(rel, binding);
		call->key_columns = idem_guard_key_columns(rel, &whole);
		MemoryContextSwitchTo(caller);
	}

	fcinfo->flinfo->fn_extra = call;
	return call;
}

/*
 * A row that is written stays in its state: its timers go on, under its key.
 */
void
idem_guard_stays(IdemGuardCall *call, TriggerData *trigdata,
				 TupleTableSlot *old_slot, TupleTableSlot *new_slot)
{
	if (call->judge->machine->timed && call->judge->binding->history &&
		idem_taken_key != NULL)
		idem_taken_key(&call->taken, trigdata, call->judge->binding, old_slot,
					   new_slot);
}

/*
 * What the row is to be known by that is decided on.
 */
static void
guard_image(IdemGuardCall *call, TriggerData *trigdata, IdemDecision *decision)
{
	decision->has_image = true;
	decision->row_hash = idem_guard_hash_row(call, trigdata->tg_newslot);
	decision->key_hash = idem_guard_hash_columns(trigdata->tg_newslot,
												 call->judge->relid,
												 trigdata->tg_relation,
												 call->key_columns);
}

/*
 * Before the update of a row.
 */
static HeapTuple
guard_before_update(IdemGuardCall *call, TriggerData *trigdata)
{
	IdemBinding *binding = call->judge->binding;
	HeapTuple	old_tuple = trigdata->tg_trigtuple;
	IdemDecision decision;
	const IdemIntent *intent;
	bool		moves_on;

	decision.told = false;
	moves_on = idem_guard_decide(call, &old_tuple->t_self, trigdata->tg_trigslot,
								 trigdata->tg_newslot,
								 bms_is_member(binding->column - FirstLowInvalidHeapAttributeNumber,
											   trigdata->tg_updatedcols),
								 &decision, &intent);
	if (binding->history)
	{
		call->taken.replaced = idem_writing_command(old_tuple);
		if (call->taken.replaced != InvalidCommandId &&
			idem_taken_again != NULL)
			idem_taken_again(&call->taken, trigdata, binding);
	}
	if (call->by_row)
	{
		bool		leaves = idem_guard_differs(call->leave_columns, trigdata);

		if (moves_on || leaves || (decision.told && binding->overruled))
		{
			decision.machine = call->judge->machine;
			decision.stays = !moves_on;
			/* what is no state has no index to know it by */
			if (binding->overruled || leaves || decision.to < 0)
				guard_image(call, trigdata, &decision);
			idem_decision_keep(binding->trigger, &old_tuple->t_self,
							   call->taken.command, call->depth, &decision);
		}
		else
			idem_decision_none(binding->trigger, &old_tuple->t_self,
							   call->depth);
		if (!moves_on)
			idem_guard_stays(call, trigdata, trigdata->tg_trigslot,
							 trigdata->tg_newslot);
	}
	else
	{
		if (binding->overruled)
		{
			decision.machine = call->judge->machine;
			decision.stays = !moves_on;
			if (moves_on)
				guard_image(call, trigdata, &decision);
			idem_guard_proof_note(call, trigdata->tg_relation,
								  &old_tuple->t_self, &decision);
		}
		if (moves_on && call->records && idem_taken_step != NULL)
		{
			idem_taken_step(&call->taken, trigdata, binding,
							idem_guard_name(call, decision.from,
											trigdata->tg_trigslot),
							idem_guard_name(call, decision.to,
											trigdata->tg_newslot),
							decision.event, intent);
		}
		else if (!moves_on)
			idem_guard_stays(call, trigdata, trigdata->tg_trigslot,
							 trigdata->tg_newslot);
	}
	return trigdata->tg_newtuple;
}

static void
guard_after_update(IdemGuardCall *call, TriggerData *trigdata)
{
	IdemBinding *binding = call->judge->binding;
	HeapTuple	old_tuple = trigdata->tg_trigtuple;
	bool		kept;
	IdemDecision decided;
	IdemDecision decision;
	const IdemIntent *intent;
	bool		moves_on;

	call->taken.command = idem_writing_command(trigdata->tg_newtuple);
	call->taken.replaced = idem_writing_command(old_tuple);
	kept = idem_decision_take(binding->trigger, &old_tuple->t_self,
							  call->taken.command, &decided);
	if ((!kept || decided.stays) && !binding->overruled)
	{
		Datum		value;
		bool		isnull;

		/* it stayed in its state, or was decided on as a statement's row */
		if (idem_guard_state(call, trigdata->tg_trigslot, &value, &isnull) ==
			idem_guard_state(call, trigdata->tg_newslot, &value, &isnull))
		{
			idem_guard_stays(call, trigdata, trigdata->tg_trigslot,
							 trigdata->tg_newslot);
			return;
		}
	}
	moves_on = idem_guard_prove(call, &old_tuple->t_self, kept ? &decided : NULL,
								trigdata->tg_trigslot, trigdata->tg_newslot,
								&decision, &intent);
	if (!moves_on)
		idem_guard_stays(call, trigdata, trigdata->tg_trigslot,
						 trigdata->tg_newslot);
	else if (binding->history && idem_taken_row != NULL)
		idem_taken_row(&call->taken, trigdata->tg_relation,
					   trigdata->tg_trigslot, trigdata->tg_newslot, binding, decision.event, intent);
}

static void
guard_after_insert(IdemGuardCall *call, TriggerData *trigdata)
{
	IdemBinding *binding = call->judge->binding;

	if (idem_guard_arrive(call, trigdata))
		return;
	idem_guard_insert(call, trigdata->tg_trigslot);
	if (call->by_row && binding->history && idem_taken_row != NULL)
		idem_taken_row(&call->taken, trigdata->tg_relation, NULL,
					   trigdata->tg_trigslot, binding, NULL, NULL);
}

/*
 * Called once, when the library is loaded.
 */
void
idem_guard_init(void)
{
	idem_decision_init();
	idem_guard_proof_init();
	idem_guard_move_init();
}

static void
guard_check_trigger(TriggerData *trigdata)
{
	if (TRIGGER_FIRED_FOR_ROW(trigdata->tg_event) ?
		(TRIGGER_FIRED_BEFORE(trigdata->tg_event) ?
		 TRIGGER_FIRED_BY_UPDATE(trigdata->tg_event) :
		 TRIGGER_FIRED_AFTER(trigdata->tg_event)) :
		(TRIGGER_FIRED_AFTER(trigdata->tg_event) &&
		 TRIGGER_FIRED_BY_UPDATE(trigdata->tg_event)))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
			 errmsg("trigger \"%s\" does not fire as one of a binding",
					trigdata->tg_trigger->tgname),
			 errhint("Make it with idem_attach().")));
}

/*
 * Whether a trigger of the statement has anything to do.  It outlives a column that
 * is dropped with all that depends on it.
 */
static bool
guard_has_proof(FunctionCallInfo fcinfo)
{
	TriggerData *trigdata = (TriggerData *) fcinfo->context;

	return idem_guard_proof_is_due() &&
		(trigdata->tg_trigger->tgnargs != IDEM_NARGS ||
		 idem_table_statement_binding(idem_table_get(trigdata->tg_relation,
													 fcinfo->flinfo->fn_mcxt),
									  trigdata->tg_relation,
									  trigdata->tg_trigger->tgargs[IDEM_ARG_TAG]) != NULL);
}

/*
 * idem_guard(machine, options, tag) -> trigger
 */
Datum
idem_guard(PG_FUNCTION_ARGS)
{
	TriggerData *trigdata = (TriggerData *) fcinfo->context;
	IdemGuardCall *call;

	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function must be called as a trigger")));

	call = (IdemGuardCall *) fcinfo->flinfo->fn_extra;
	if (call == NULL)
	{
		guard_check_trigger(trigdata);
		/* pg_restore -j loads partitions when the parent has its triggers */
		if (TRIGGER_FIRED_BY_INSERT(trigdata->tg_event) &&
			!idem_guard_has_moved() &&
			idem_catalog_is_restored(trigdata->tg_relation))
			return PointerGetDatum(NULL);
		if (TRIGGER_FIRED_FOR_STATEMENT(trigdata->tg_event) &&
			!guard_has_proof(fcinfo))
			return PointerGetDatum(NULL);
		call = guard_begin(fcinfo);
	}

	if (TRIGGER_FIRED_BEFORE(trigdata->tg_event))
		return PointerGetDatum(guard_before_update(call, trigdata));
	if (TRIGGER_FIRED_FOR_STATEMENT(trigdata->tg_event))
		idem_guard_proof_of_statement(call, trigdata->tg_relation);
	else if (TRIGGER_FIRED_BY_UPDATE(trigdata->tg_event))
		guard_after_update(call, trigdata);
	else if (TRIGGER_FIRED_BY_INSERT(trigdata->tg_event))
		guard_after_insert(call, trigdata);
	else if (!idem_guard_leave(call, trigdata))
		idem_guard_delete(call, trigdata->tg_trigslot);
	return PointerGetDatum(NULL);
}
