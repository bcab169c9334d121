/*
 * judge_report.c
 *	  What a verdict says to whoever wrote or fired.
 *
 * Messages name states, events and roles; never a value of another column.
 */
#include "postgres.h"

#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "nodes/value.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

#include "definition.h"
#include "errors.h"
#include "judge.h"
#include "stats.h"

/*
 * Whether a rule of a state is one that the role may take there.
 */
static bool
judge_may_take(IdemJudge *judge, int from, const IdemRule *rule)
{
	if (rule->to_state == from &&
		judge->machine->states[from].self != IDEM_SELF_REENTER)
		return false;
	return idem_judge_role(judge, rule);
}

/*
 * What leads on from a state, or begins it anew, for a hint, as far as roles
 * tell; an empty string if nothing does.  Without "event", if that is not NULL,
 * else without what leads to "to", if that is not NULL: it was refused.
 */
char *
idem_judge_allowed_text(IdemJudge *judge, int from, const char *event,
						const char *to)
{
	const IdemRule *const *rules;
	StringInfoData buf;
	int			nrules = 0;
	int			shown = 0;

	initStringInfo(&buf);
	if (from != IDEM_STATE_NULL)
		nrules = idem_machine_rules(judge->machine, from, &rules);
	if (from >= 0 && judge->machine->states[from].frozen)
		nrules = 0;
	for (int i = 0; i < nrules; i++)
	{
		const IdemRule *rule = rules[i];
		bool		skip = event != NULL ? strcmp(rule->event, event) == 0 :
		to != NULL && strcmp(rule->to, to) == 0;

		skip = skip || !judge_may_take(judge, from, rule);
		for (int j = 0; j < i && !skip; j++)
			skip = rules[j]->to_state == rule->to_state &&
				strcmp(rules[j]->event, rule->event) == 0 &&
				judge_may_take(judge, from, rules[j]);
		if (skip)
			continue;
		if (++shown > 10)
		{
			appendStringInfoString(&buf, ", ...");
			break;
		}
		appendStringInfo(&buf, "%s\"%s\" to \"%s\"", shown > 1 ? ", " : "",
						 rule->event, rule->to);
		if (rule->timed)
		{
			appendStringInfoString(&buf, " after");
			idem_label_print_interval(&buf, &rule->after);
		}
	}
	return buf.data;
}

/*
 * The states in which a row may begin, said of what may begin there.
 */
char *
idem_judge_initial_text(const IdemMachine *machine, const char *what)
{
	List	   *names = NIL;

	for (int i = 0; i < machine->nstates; i++)
	{
		if (machine->states[i].initial)
			names = lappend(names,
							makeString((char *) machine->states[i].name));
	}
	if (names == NIL)
		return "The machine has no initial state.";
	return psprintf("%s: %s.", what, idem_names_text(names, -1));
}

/*
 * The roles that may take a row from a state to where the rule leads; NULL is by
 * any event.
 */
char *
idem_judge_role_text(const IdemMachine *machine, int from,
					 const IdemRule *rule, const char *event)
{
	const IdemRule *const *rules;
	int			nrules = idem_machine_rules(machine, from, &rules);
	List	   *names = NIL;
	StringInfoData buf;
	ListCell   *cell;

	for (int i = 0; i < nrules; i++)
	{
		if (rules[i]->to_state != rule->to_state ||
			(event != NULL && strcmp(rules[i]->event, event) != 0))
			continue;
		for (int j = 0; j < rules[i]->nroles; j++)
			names = list_append_unique(names,
									   makeString((char *) rules[i]->roles[j]));
	}
	initStringInfo(&buf);
	foreach(cell, names)
		appendStringInfo(&buf, "%s\"%s\"", buf.len > 0 ? " or " : "",
						 strVal(lfirst(cell)));
	return buf.data;
}

/*
 * A hint, or NULL, as it is given at that level: where the write is not refused,
 * that is said.
 */
const char *
idem_judge_hint(int elevel, const char *hint)
{
	static const char passes[] =
	"The table is attached in mode \"observe\": the write passes.";

	if (elevel >= ERROR)
		return hint;
	return hint != NULL ? psprintf("%s %s", hint, passes) : passes;
}

/*
 * What a row may do in a state, or in what is none.
 */
static const char *
judge_ways_text(const IdemMachine *machine, const char *from, int from_state,
				const char *allowed)
{
	const char *ways = "";

	if (from == NULL)
		return idem_judge_initial_text(machine,
									   "A row without a state may take an initial one");
	if (allowed[0] != '\0')
		ways = psprintf("Allowed from \"%s\": %s.", from, allowed);
	if (from_state >= 0)
		return allowed[0] != '\0' ? ways :
			psprintf("Nothing is allowed from \"%s\".", from);
	return psprintf("%s%s\"%s\" is no state of the machine; idem_define() moves such rows, with moved => '{\"old\": \"new\"}'.",
					ways, allowed[0] != '\0' ? " " : "", from);
}

/*
 * Puts table and column into the error's fields.
 */
int
idem_judge_errcolumn(const IdemJudge *judge)
{
	return idem_errcolumn(judge->relid, NameStr(judge->binding->column_name));
}

const char *
idem_judge_quoted(const char *label)
{
	return label != NULL ? psprintf("\"%s\"", label) : "NULL";
}

/*
 * Counts a verdict other than PASS and SAME, before it is raised or given.
 */
void
idem_judge_count(const IdemJudge *judge, bool observed, IdemJudgement verdict,
				 const char *from, const char *to, const char *event,
				 const IdemRule *rule)
{
	IdemRefusal refusal = {
		.kind = IDEM_STATS_MACHINE,
		.name = judge->machine->name,
		.observed = observed,
		.relid = judge->relid,
		.from = from,
		.to = to != NULL || rule == NULL ? to : rule->to,
		.event = event != NULL || rule == NULL ? event : rule->event,
		.sqlerrcode = verdict == IDEM_JUDGE_FORBIDDEN ?
		ERRCODE_INSUFFICIENT_PRIVILEGE : ERRCODE_IDEM_CONFLICT
	};

	switch (verdict)
	{
		case IDEM_JUDGE_FROZEN:
			refusal.counter = IDEM_COUNT_FROZEN;
			break;
		case IDEM_JUDGE_FORBIDDEN:
			refusal.counter = IDEM_COUNT_FORBIDDEN;
			break;
		case IDEM_JUDGE_GUARDED:
			refusal.counter = IDEM_COUNT_GUARDED;
			break;
		default:
			refusal.counter = IDEM_COUNT_ILLEGAL;
			break;
	}
	idem_stats_refused(&refusal);
}

/*
 * Whether an event leads on from a state: then it is by where a trigger has sent
 * the row that it may not.
 */
static bool
judge_leads_on(const IdemMachine *machine, int from, const char *event)
{
	const IdemRule *const *rules;
	int			nrules = from == IDEM_STATE_NULL ? 0 :
	idem_machine_rules(machine, from, &rules);

	for (int i = 0; i < nrules; i++)
	{
		if (strcmp(rules[i]->event, event) == 0)
			return true;
	}
	return false;
}

/*
 * Whether what is illegal is to take a state again whose mode is "deny".
 */
bool
idem_judge_is_denied(const IdemMachine *machine, int from, const char *event,
					 const char *to, const IdemRule *rule)
{
	return from >= 0 && machine->states[from].self == IDEM_SELF_DENY &&
		(rule != NULL ? rule->to_state == from :
		 event == NULL && to != NULL &&
		 strcmp(to, machine->states[from].name) == 0);
}

/*
 * Raises what a verdict other than PASS and SAME is to the writer.  from and
 * to are the values as the rows have them, NULL where they are NULL; "from" is
 * also NULL for an insert, which "rule" and event NULL and verdict ILLEGAL
 * with to given tell apart by idem_judge_refuse_insert() in guard.c.
 */
void
idem_judge_report(IdemJudge *judge, int elevel, IdemJudgement verdict,
				  const char *from, const char *to, const char *event,
				  const IdemRule *rule)
{
	const IdemMachine *machine = judge->machine;
	const char *table = get_rel_name(judge->relid);
	const char *column = NameStr(judge->binding->column_name);
	int			from_state = from == NULL ? IDEM_STATE_NULL :
	idem_machine_state(machine, from, strlen(from));
	bool		guarded = verdict == IDEM_JUDGE_GUARDED;
	char	   *allowed = idem_judge_allowed_text(judge, from_state,
												  guarded ? event : NULL,
												  guarded ? to : NULL);
	const char *hint = NULL;
	const char *note = idem_judge_hint(elevel, NULL);

	idem_judge_count(judge, elevel < ERROR, verdict, from, to, event, rule);
	if (!guarded || from == NULL || allowed[0] != '\0')
		hint = judge_ways_text(machine, from, from_state, allowed);
	hint = idem_judge_hint(elevel, hint);

	switch (verdict)
	{
		case IDEM_JUDGE_FROZEN:
			ereport(elevel,
					(errcode(ERRCODE_IDEM_CONFLICT),
					 errmsg("row of table \"%s\" is frozen in state \"%s\" of machine \"%s\"",
							table, from, machine->name),
					 errdetail("No column of a row in a frozen state may be changed."),
					 note != NULL ? errhint("%s", note) :
					 event == NULL ? errhint("Correct it as a role that idem_attach() was given as \"exempt\".") : 0,
					 idem_judge_errcolumn(judge),
					 errhidestmt(true)));
			break;
		case IDEM_JUDGE_FINAL:
			ereport(elevel,
					(errcode(ERRCODE_IDEM_CONFLICT),
					 errmsg("state \"%s\" of machine \"%s\" is final", from,
							machine->name),
					 event != NULL ?
					 errdetail("Event \"%s\" would take the row out of it.",
							   event) :
					 errdetail("Column \"%s\" of table \"%s\" would change to %s.",
							   column, table, idem_judge_quoted(to)),
					 note != NULL ? errhint("%s", note) : 0,
					 idem_judge_errcolumn(judge),
					 errhidestmt(true)));
			break;
		case IDEM_JUDGE_FORBIDDEN:
			ereport(elevel,
					(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
					 errmsg("permission denied for transition \"%s\" of machine \"%s\"",
							rule->event, machine->name),
					 errdetail("From %s to \"%s\" it takes role %s; the current role is \"%s\".",
							   idem_judge_quoted(from), rule->to,
							   idem_judge_role_text(machine, from_state, rule,
													event),
							   GetUserNameFromId(GetUserId(), false)),
					 errhint("%s", hint),
					 idem_judge_errcolumn(judge),
					 errhidestmt(true)));
			break;
		case IDEM_JUDGE_GUARDED:
			ereport(elevel,
					(errcode(ERRCODE_IDEM_CONFLICT),
					 errmsg("guard of transition \"%s\" of machine \"%s\" is not true",
							rule->event, machine->name),
					 errdetail("From %s to \"%s\" the row must satisfy: %s",
							   idem_judge_quoted(from), rule->to, rule->guard),
					 hint != NULL ? errhint("%s", hint) : 0,
					 idem_judge_errcolumn(judge),
					 errhidestmt(true)));
			break;
		default:
			if (idem_judge_is_denied(machine, from_state, event, to, rule))
				ereport(elevel,
						(errcode(ERRCODE_IDEM_CONFLICT),
						 errmsg("state \"%s\" of machine \"%s\" denies transitions to itself",
								from, machine->name),
						 event != NULL ?
						 errdetail("Event \"%s\" would take the row from it to itself.",
								   event) :
						 errdetail("Column \"%s\" of table \"%s\" is %s and would be set to it again.",
								   column, table, idem_judge_quoted(from)),
						 errhint("%s", hint),
						 idem_judge_errcolumn(judge),
						 errhidestmt(true)));
			else if (event != NULL && rule == NULL &&
					 judge_leads_on(machine, from_state, event))
				ereport(elevel,
						(errcode(ERRCODE_IDEM_CONFLICT),
						 errmsg("machine \"%s\" has no transition \"%s\" from %s to %s",
								machine->name, event, idem_judge_quoted(from),
								idem_judge_quoted(to)),
						 errdetail("A trigger of table \"%s\" has set column \"%s\" to %s.",
								   table, column, idem_judge_quoted(to)),
						 errhint("%s", hint),
						 idem_judge_errcolumn(judge),
						 errhidestmt(true)));
			else if (event != NULL)
				ereport(elevel,
						(errcode(ERRCODE_IDEM_CONFLICT),
						 errmsg("machine \"%s\" has no transition \"%s\" from %s",
								machine->name, event, idem_judge_quoted(from)),
						 errdetail("Column \"%s\" of table \"%s\" is %s.",
								   column, table, idem_judge_quoted(from)),
						 errhint("%s", hint),
						 idem_judge_errcolumn(judge),
						 errhidestmt(true)));
			else if (to == NULL)
				ereport(elevel,
						(errcode(ERRCODE_IDEM_CONFLICT),
						 errmsg("column \"%s\" of table \"%s\" cannot be set to NULL",
								column, table),
						 errdetail("It is moved by machine \"%s\" and is %s.",
								   machine->name, idem_judge_quoted(from)),
						 errhint("%s", hint),
						 idem_judge_errcolumn(judge),
						 errhidestmt(true)));
			else
				ereport(elevel,
						(errcode(ERRCODE_IDEM_CONFLICT),
						 idem_machine_state(machine, to, strlen(to)) < 0 ?
						 errmsg("machine \"%s\" has no state \"%s\"",
								machine->name, to) :
						 errmsg("machine \"%s\" has no transition from %s to \"%s\"",
								machine->name, idem_judge_quoted(from), to),
						 errdetail("Column \"%s\" of table \"%s\" is %s and would change to \"%s\".",
								   column, table, idem_judge_quoted(from), to),
						 errhint("%s", hint),
						 idem_judge_errcolumn(judge),
						 errhidestmt(true)));
			break;
	}
}
