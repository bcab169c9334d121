/*
 * guard_decide.c
 *	  The guard's decisions: whether a write of a row may be.
 *
 * In mode observe what would be refused is a warning, and the write passes; once
 * for each write, also where it is decided on before and after it.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

#include "errors.h"
#include "guard_call.h"
#include "machine.h"
#include "statement.h"
#include "stats.h"

/* so many rows are warned of per statement in observe mode */
#define MAX_WARNINGS	10

/*
 * The column in a row.  It is taken out of the tuple where there is one: the
 * columns before it need not be taken apart where it has the same place in all
 * rows.
 */
static Datum
guard_value(AttrNumber column, TupleTableSlot *slot, bool *isnull)
{
	if (slot->tts_nvalid < column &&
		(TTS_IS_BUFFERTUPLE(slot) || TTS_IS_HEAPTUPLE(slot)))
	{
		HeapTuple	tuple = ((HeapTupleTableSlot *) slot)->tuple;

		if (tuple != NULL)
			return heap_getattr(tuple, column, slot->tts_tupleDescriptor, isnull);
	}
	return slot_getattr(slot, column, isnull);
}

/*
 * The state in a row, and the value that it is.  Most rows of a statement are in
 * the same state and go to the same one, so that a value is mostly one of the
 * last two: its state is known without its label.
 */
int
idem_guard_state(IdemGuardCall *call, TupleTableSlot *slot, Datum *value, bool *isnull)
{
	const IdemBinding *binding = call->judge->binding;
	IdemGuardSeen *seen;
	const char *image;
	Size		length;

	*value = guard_value(binding->column, slot, isnull);
	if (*isnull)
		return IDEM_STATE_NULL;

	if (binding->kind == IDEM_STATE_TEXT || binding->kind == IDEM_STATE_BPCHAR)
	{
		image = DatumGetPointer(*value);
		length = VARSIZE_ANY(image);
	}
	else
	{
		image = (const char *) value;
		length = sizeof(Datum);
	}
	for (int i = 0; i < lengthof(call->seen); i++)
	{
		seen = &call->seen[i];
		if (seen->length == length && memcmp(seen->image, image, length) == 0)
			return seen->state;
	}

	call->seen_last = 1 - call->seen_last;
	seen = &call->seen[call->seen_last];
	seen->length = 0;
	seen->state = idem_binding_state(binding, call->judge->machine, *value, false);
	if (length <= sizeof(seen->image))
	{
		memcpy(seen->image, image, length);
		seen->length = length;
	}
	return seen->state;
}

static char *
guard_label(IdemGuardCall *call, Datum value, bool isnull)
{
	return isnull ? NULL : idem_binding_label(call->judge->binding, value);
}

/*
 * The same where the state is known; NULL if the row has none.
 */
const char *
idem_guard_name(IdemGuardCall *call, int state, TupleTableSlot *slot)
{
	Datum		value;
	bool		isnull;

	if (state >= 0)
		return call->judge->machine->states[state].name;
	value = slot_getattr(slot, call->judge->binding->column, &isnull);
	return guard_label(call, value, isnull);
}

/*
 * Where the write is not refused but only watched: whether to warn of it too.
 */
static int
guard_elevel(IdemGuardCall *call)
{
	if (!call->judge->binding->observe)
		return ERROR;
	return idem_statement_warning(call->judge->holder) <= MAX_WARNINGS ?
		WARNING : DEBUG1;
}

/*
 * Counts a refusal that the judge does not report; before it is raised.
 */
static void
guard_count(IdemGuardCall *call, IdemCounter counter, const char *from,
			const char *to)
{
	IdemRefusal refusal = {
		.kind = IDEM_STATS_MACHINE,
		.name = call->judge->machine->name,
		.counter = counter,
		.observed = call->judge->binding->observe,
		.relid = call->judge->relid,
		.from = from,
		.to = to,
		.sqlerrcode = counter == IDEM_COUNT_FORBIDDEN ?
		ERRCODE_INSUFFICIENT_PRIVILEGE : ERRCODE_IDEM_CONFLICT
	};

	idem_stats_refused(&refusal);
}

static int
guard_insert_detail(const IdemGuardCall *call, const char *label)
{
	return errdetail("Column \"%s\" of table \"%s\" would begin with \"%s\".",
					 NameStr(call->judge->binding->column_name),
					 get_rel_name(call->judge->relid), label);
}

/*
 * An insert in a state that is not initial.
 */
static void
guard_refuse_insert(IdemGuardCall *call, const char *label)
{
	const IdemMachine *machine = call->judge->machine;
	int			elevel = guard_elevel(call);
	const char *hint;

	guard_count(call, IDEM_COUNT_ILLEGAL, NULL, label);
	hint = idem_judge_hint(elevel,
						   idem_judge_initial_text(machine,
												   "A row begins in an initial state"));

	if (label == NULL)
		ereport(elevel,
				(errcode(ERRCODE_IDEM_CONFLICT),
				 errmsg("column \"%s\" of table \"%s\" cannot be NULL",
						NameStr(call->judge->binding->column_name),
						get_rel_name(call->judge->relid)),
				 errdetail("It is moved by machine \"%s\".", machine->name),
				 errhint("%s", hint),
				 idem_judge_errcolumn(call->judge),
				 errhidestmt(true)));
	else if (idem_machine_state(machine, label, strlen(label)) < 0)
		ereport(elevel,
				(errcode(ERRCODE_IDEM_CONFLICT),
				 errmsg("machine \"%s\" has no state \"%s\"", machine->name,
						label),
				 guard_insert_detail(call, label),
				 errhint("%s", hint),
				 idem_judge_errcolumn(call->judge),
				 errhidestmt(true)));
	else
		ereport(elevel,
				(errcode(ERRCODE_IDEM_CONFLICT),
				 errmsg("\"%s\" is not an initial state of machine \"%s\"",
						label, machine->name),
				 guard_insert_detail(call, label),
				 errhint("%s", hint),
				 idem_judge_errcolumn(call->judge),
				 errhidestmt(true)));
}

/*
 * An update that may not be, unless it was reported before.
 */
static void
guard_refuse(IdemGuardCall *call, IdemDecision *decision,
			 IdemJudgement verdict, const char *from, const char *to,
			 const IdemIntent *intent, const IdemRule *rule)
{
	if (decision->told)
		return;
	decision->told = true;
	idem_judge_report(call->judge, guard_elevel(call), verdict, from, to,
					  intent != NULL ? intent->event : NULL, rule);
}

/*
 * Decides on an update of a row; an ERROR if it may not be.  False if the row
 * does not move.  "told" is the caller's: the write was reported on before.
 */
bool
idem_guard_decide(IdemGuardCall *call, ItemPointer tid, TupleTableSlot *old_slot,
				  TupleTableSlot *new_slot, bool named,
				  IdemDecision *decision, const IdemIntent **intent)
{
	IdemJudge  *judge = call->judge;
	IdemBinding *binding = judge->binding;
	const IdemMachine *machine = judge->machine;
	const IdemRule *rule = NULL;
	IdemJudgement verdict;
	Datum		old_value;
	Datum		new_value;
	bool		old_null;
	bool		new_null;
	int			from = idem_guard_state(call, old_slot, &old_value, &old_null);
	int			to = idem_guard_state(call, new_slot, &new_value, &new_null);
	bool		same = from == to;

	*intent = NULL;
	decision->from = from;
	decision->to = to;
	decision->event = NULL;
	decision->named = named;
	decision->has_image = false;

	if (same && from == IDEM_STATE_UNKNOWN)
		same = strcmp(guard_label(call, old_value, old_null),
					  guard_label(call, new_value, new_null)) == 0;
	if (same)
	{
		const IdemMachineState *state;

		if (from < 0)
			return false;
		state = &machine->states[from];
		if (state->frozen)
		{
			if (idem_judge_is_exempt(judge))
				return false;
			guard_refuse(call, decision, IDEM_JUDGE_FROZEN, state->name,
						 state->name, NULL, NULL);
			return false;
		}
		if (state->self == IDEM_SELF_NOOP || !named)
			return false;
		if (idem_judge_is_exempt(judge))
			return false;
		*intent = idem_taken_intent(call->fired_at, tid, machine->name,
									NameStr(binding->column_name));
		if (state->self == IDEM_SELF_DENY)
		{
			guard_refuse(call, decision, IDEM_JUDGE_ILLEGAL, state->name,
						 state->name, NULL, NULL);
			return false;
		}
		if (binding->events_only && *intent == NULL)
			return false;
	}
	else
	{
		*intent = idem_taken_intent(call->fired_at, tid, machine->name,
									NameStr(binding->column_name));
		if (from != IDEM_STATE_NULL && to >= 0 &&
			idem_machine_migrates(machine->name,
								  from >= 0 ? machine->states[from].name :
								  guard_label(call, old_value, old_null),
								  machine->states[to].name))
		{
			decision->event = "migrate";
			return true;
		}
		if (*intent == NULL && idem_judge_is_exempt(judge))
			return true;
	}

	/* no event leads out of NULL, so this is open to all */
	if (!same && from == IDEM_STATE_NULL && to >= 0 &&
		machine->states[to].initial)
		return true;

	if (!same && binding->events_only && *intent == NULL &&
		!(from >= 0 && machine->states[from].frozen))
	{
		int			elevel;

		if (decision->told)
			return true;
		decision->told = true;
		elevel = guard_elevel(call);
		guard_count(call, IDEM_COUNT_FORBIDDEN,
					guard_label(call, old_value, old_null),
					guard_label(call, new_value, new_null));
		ereport(elevel,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("column \"%s\" of table \"%s\" moves by events only",
						NameStr(binding->column_name),
						get_rel_name(judge->relid)),
				 errdetail("The write would change it from %s to %s.",
						   idem_judge_quoted(guard_label(call, old_value, old_null)),
						   idem_judge_quoted(guard_label(call, new_value, new_null))),
				 errhint("%s", idem_judge_hint(elevel, "Use idem_fire().")),
				 idem_judge_errcolumn(call->judge),
				 errhidestmt(true)));
		return true;
	}

	if (to < 0 && !(from >= 0 && machine->states[from].frozen))
		verdict = IDEM_JUDGE_ILLEGAL;
	else
	{
		judge->timed_since = *intent != NULL ? (*intent)->timed_since : NULL;
		verdict = idem_judge_slots(judge, old_slot, new_slot, from, to,
								   *intent != NULL ? (*intent)->event : NULL,
								   &rule);
		if (same && verdict == IDEM_JUDGE_ILLEGAL && *intent == NULL)
			return false;
	}

	if (verdict == IDEM_JUDGE_PASS)
		decision->event = rule->event;
	else if (verdict != IDEM_JUDGE_SAME)
		guard_refuse(call, decision, verdict,
					 guard_label(call, old_value, old_null),
					 guard_label(call, new_value, new_null), *intent,
					 rule);
	return true;
}

/*
 * Whether a row is what was decided on.
 */
static bool
guard_is_decided(IdemGuardCall *call, const IdemDecision *kept,
				 TupleTableSlot *slot)
{
	Datum		value;
	bool		isnull;
	int			state;

	if (kept->has_image)
		return kept->row_hash == idem_guard_hash_row(call, slot);
	state = idem_guard_state(call, slot, &value, &isnull);
	if (kept->machine == call->judge->machine)
		return state == kept->to;
	return !isnull && strcmp(kept->machine->states[kept->to].name,
							 guard_label(call, value, false)) == 0;
}

/*
 * The event by which a row has moved from what it was to what it is, as it was
 * decided before the update, or anew if it is another row now.  False if it
 * has not moved.
 */
bool
idem_guard_prove(IdemGuardCall *call, ItemPointer tid, const IdemDecision *kept,
				 TupleTableSlot *old_slot, TupleTableSlot *new_slot,
				 IdemDecision *decision, const IdemIntent **intent)
{
	if (kept != NULL && !kept->stays && guard_is_decided(call, kept, new_slot))
	{
		*decision = *kept;
		*intent = idem_taken_intent(call->fired_at, tid,
									call->judge->machine->name,
									NameStr(call->judge->binding->column_name));
		return true;
	}
	decision->told = kept != NULL && kept->told;
	return idem_guard_decide(call, tid, old_slot, new_slot,
							 kept != NULL && kept->named, decision, intent);
}

/*
 * The rule for inserts.
 */
void
idem_guard_insert(IdemGuardCall *call, TupleTableSlot *slot)
{
	Datum		value;
	bool		isnull;
	int			state = idem_guard_state(call, slot, &value, &isnull);

	if (!(state >= 0 && call->judge->machine->states[state].initial) &&
		!idem_judge_is_exempt(call->judge))
		guard_refuse_insert(call, guard_label(call, value, isnull));
}

/*
 * The rule for deletes.
 */
void
idem_guard_delete(IdemGuardCall *call, TupleTableSlot *slot)
{
	const IdemBinding *binding = call->judge->binding;
	const IdemMachine *machine = call->judge->machine;
	Datum		value;
	const char *note;
	bool		isnull;
	int			elevel;
	int			state;

	if (binding->on_delete == IDEM_DELETE_ANY || idem_judge_is_exempt(call->judge))
		return;
	state = idem_guard_state(call, slot, &value, &isnull);
	if (binding->on_delete == IDEM_DELETE_FINAL && state >= 0 &&
		machine->states[state].final)
		return;
	guard_count(call, IDEM_COUNT_ILLEGAL,
				guard_label(call, value, isnull), NULL);
	elevel = guard_elevel(call);
	note = idem_judge_hint(elevel, NULL);
	ereport(elevel,
			(errcode(ERRCODE_IDEM_CONFLICT),
			 errmsg("row of table \"%s\" cannot be deleted in state %s of machine \"%s\"",
					get_rel_name(call->judge->relid),
					idem_judge_quoted(guard_label(call, value, isnull)),
					machine->name),
			 binding->on_delete == IDEM_DELETE_NEVER ?
			 errdetail("The machine was attached with on_delete \"never\".") :
			 errdetail("The machine was attached with on_delete \"final\"."),
			 note != NULL ? errhint("%s", note) : 0,
			 idem_judge_errcolumn(call->judge),
			 errhidestmt(true)));
}
