/*
 * lint.c
 *	  idem_lint: what is allowed in a machine, but probably not meant.
 *
 * Errors of form are refused where they are written (machine.c); what is said
 * here is known only from the whole of a machine, and from the rows that are
 * in its states.  Guards and roles are taken as if each could pass: what is
 * called unreachable is so for certain.
 *
 * Nothing is written, and no writer waits.  Rows are counted in the bound
 * tables that the caller may read; if there is one that he may not, they are NULL.
 * What belongs to a table or a guard and runs at that runs as its owner
 * (bound.c, guard_text.c).
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_trigger.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "rewrite/rewriteHandler.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#include "binding.h"
#include "diagram.h"
#include "errors.h"
#include "machine.h"

PG_FUNCTION_INFO_V1(idem_lint);

/* larger machines are not searched for cycles: that is cubic */
#define MAX_CYCLE_STATES	500

typedef struct Lint
{
	ReturnSetInfo *rsinfo;
	IdemDefinition *definition;
	int			nstates;
	IdemStateDef **states;		/* sorted by name */
	bool	   *edge;			/* [from * nstates + to] */
	bool		counted;		/* rows are known */
	List	   *bounds;			/* the tables that were counted */
	List	   *counts;			/* per table, see idem_bound_rows */
	int64	   *without;		/* per table, its rows that are in no state */
	List	   *told;			/* triggers that do not fire, by OID */
} Lint;

#define EDGE(lint, from, to)	((lint)->edge[(Size) (from) * (lint)->nstates + (to)])

/* a negative number of rows stands for none that could be meant */
static void
lint_say(Lint *lint, const char *code, const char *severity, const char *what,
		 int64 rows)
{
	Datum		values[4] = {
		CStringGetTextDatum(code),
		CStringGetTextDatum(severity),
		CStringGetTextDatum(what),
		Int64GetDatum(rows)
	};
	bool		nulls[4] = {false, false, false, rows < 0 || !lint->counted};

	tuplestore_putvalues(lint->rsinfo->setResult, lint->rsinfo->setDesc,
						 values, nulls);
}

static int
state_number(Lint *lint, const char *name)
{
	int			low = 0;
	int			high = lint->nstates - 1;

	while (low <= high)
	{
		int			middle = (low + high) / 2;
		int			order = strcmp(name, lint->states[middle]->name);

		if (order == 0)
			return middle;
		if (order < 0)
			high = middle - 1;
		else
			low = middle + 1;
	}
	return -1;
}

/*
 * Which state leads to which.  A rule for any state leads from all that are
 * not final, but from its target; none leads from a frozen one.
 */
static void
lint_draw(Lint *lint)
{
	ListCell   *cell;

	lint->nstates = list_length(lint->definition->states);
	lint->states = palloc(Max(lint->nstates, 1) * sizeof(IdemStateDef *));
	foreach(cell, lint->definition->states)
		lint->states[foreach_current_index(cell)] = lfirst(cell);
	lint->edge = MemoryContextAllocExtended(CurrentMemoryContext,
											Max((Size) lint->nstates *
												lint->nstates, 1),
											MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	foreach(cell, lint->definition->transitions)
	{
		IdemTransitionDef *rule = lfirst(cell);
		int			to = state_number(lint, rule->to);

		if (strcmp(rule->from, IDEM_ANY_STATE) != 0)
		{
			int			from = state_number(lint, rule->from);

			if (!lint->states[from]->frozen)
				EDGE(lint, from, to) = true;
			continue;
		}
		for (int from = 0; from < lint->nstates; from++)
		{
			if (from != to && !lint->states[from]->final &&
				!lint->states[from]->frozen)
				EDGE(lint, from, to) = true;
		}
	}
}

static bool
leads_on(Lint *lint, int from)
{
	for (int to = 0; to < lint->nstates; to++)
	{
		if (to != from && EDGE(lint, from, to))
			return true;
	}
	return false;
}

static void
lint_reach(Lint *lint)
{
	bool	   *reached = palloc0(Max(lint->nstates, 1));
	int		   *queue = palloc(Max(lint->nstates, 1) * sizeof(int));
	int			head = 0;
	int			tail = 0;

	for (int i = 0; i < lint->nstates; i++)
	{
		if (lint->states[i]->initial)
		{
			reached[i] = true;
			queue[tail++] = i;
		}
	}
	if (tail == 0)
		lint_say(lint, "no_initial", "error",
				 "no state is initial: no row can be inserted", -1);
	while (head < tail)
	{
		int			from = queue[head++];

		CHECK_FOR_INTERRUPTS();
		for (int to = 0; to < lint->nstates; to++)
		{
			if (EDGE(lint, from, to) && !reached[to])
			{
				reached[to] = true;
				queue[tail++] = to;
			}
		}
	}
	for (int i = 0; i < lint->nstates; i++)
	{
		if (!reached[i])
			lint_say(lint, "unreachable", "warning",
					 psprintf("state \"%s\" cannot be reached from an initial one",
							  lint->states[i]->name),
					 idem_bound_rows_of_all(lint->counts, lint->states[i]->name));
	}
}

static void
lint_dead_ends(Lint *lint)
{
	for (int i = 0; i < lint->nstates; i++)
	{
		IdemStateDef *state = lint->states[i];
		int64		rows;

		CHECK_FOR_INTERRUPTS();
		if (state->final || leads_on(lint, i))
			continue;
		rows = idem_bound_rows_of_all(lint->counts, state->name);
		lint_say(lint, "dead_end", "warning",
				 psprintf("state \"%s\" is not final, and nothing leaves it",
						  state->name),
				 rows);
		if (rows > 0)
			lint_say(lint, "stuck", "error",
					 psprintf("rows are in state \"%s\", which they cannot leave",
							  state->name),
					 rows);
	}
}

static bool
same_list(List *a, List *b)
{
	ListCell   *x;
	ListCell   *y;

	if (list_length(a) != list_length(b))
		return false;
	forboth(x, a, y, b)
	{
		if (strcmp(lfirst(x), lfirst(y)) != 0)
			return false;
	}
	return true;
}

static char *
rule_text(const IdemTransitionDef *rule)
{
	return psprintf("\"%s\" from \"%s\" to \"%s\"",
					rule->event, rule->from, rule->to);
}

/*
 * Whether two rules of one event may be asked for the same row.
 */
static bool
rules_meet(const IdemTransitionDef *first, const IdemTransitionDef *second,
		   bool *always)
{
	bool		any = strcmp(first->from, IDEM_ANY_STATE) == 0;

	if (strcmp(first->event, second->event) != 0)
		return false;

	/* "any" does not mean the target itself, so it covers no other "any" */
	*always = strcmp(first->from, second->from) == 0 ?
		!any || strcmp(first->to, second->to) == 0 :
		any && strcmp(first->to, second->from) != 0;
	return *always || (any && strcmp(first->from, second->from) == 0);
}

static void
lint_pair(Lint *lint, const IdemTransitionDef *first,
		  const IdemTransitionDef *second)
{
	bool		always;
	bool		free = first->guard == NULL && first->roles == NIL;
	bool		same_guard = first->guard != NULL && second->guard != NULL &&
	strcmp(first->guard, second->guard) == 0;

	if (!rules_meet(first, second, &always))
		return;
	/* by hand it is the first, but the second's time comes alone, or sooner */
	if (second->after != NULL &&
		(first->after == NULL ||
		 DatumGetBool(DirectFunctionCall2(interval_gt,
										  IntervalPGetDatum(first->after),
										  IntervalPGetDatum(second->after)))))
		return;
	if (first->guard == NULL && second->guard == NULL &&
		strcmp(first->from, second->from) == 0)
		lint_say(lint, "ambiguous", "warning",
				 psprintf("event \"%s\" from \"%s\" has two rules without a guard, to \"%s\" and to \"%s\"",
						  first->event, first->from, first->to, second->to),
				 -1);
	if (always && (free || ((same_guard || first->guard == NULL) &&
							(first->roles == NIL ||
							 same_list(first->roles, second->roles)))))
		lint_say(lint, "shadowed", "warning",
				 psprintf("rule %s is never asked: the one to \"%s\" comes first",
						  rule_text(second), first->to),
				 -1);
}

static void
lint_rules(Lint *lint)
{
	List	   *rules = lint->definition->transitions;

	for (int i = 0; i < list_length(rules); i++)
	{
		IdemTransitionDef *rule = list_nth(rules, i);
		IdemStateDef *from;
		ListCell   *cell;

		CHECK_FOR_INTERRUPTS();
		for (int j = i + 1; j < list_length(rules); j++)
			lint_pair(lint, rule, list_nth(rules, j));
		foreach(cell, rule->roles)
		{
			if (!OidIsValid(get_role_oid(lfirst(cell), true)))
				lint_say(lint, "no_role", "error",
						 psprintf("rule %s is for role \"%s\", which does not exist",
								  rule_text(rule), (char *) lfirst(cell)),
						 -1);
		}
		from = idem_definition_state(lint->definition, rule->from);
		if (from != NULL && from->frozen)
			lint_say(lint, "frozen", "warning",
					 psprintf("rule %s is never taken: rows of a frozen state are not updated",
							  rule_text(rule)),
					 -1);
		if (from != NULL && strcmp(rule->from, rule->to) == 0 &&
			strcmp(from->self, "reenter") != 0)
			lint_say(lint, "self", "note",
					 psprintf("rule %s leads to where it began, and the state says \"%s\"",
							  rule_text(rule), from->self),
					 -1);
	}
}

/*
 * States that lead only to each other, none of them final.
 */
static void
lint_cycles(Lint *lint)
{
	int			n = lint->nstates;
	bool	   *told = palloc0(Max(n, 1));
	bool		any_final = false;

	if (n > MAX_CYCLE_STATES)
		return;

	/* the edges become paths; nothing is asked about edges after this */
	for (int via = 0; via < n; via++)
	{
		CHECK_FOR_INTERRUPTS();
		any_final = any_final || lint->states[via]->final;
		for (int from = 0; from < n; from++)
		{
			if (!EDGE(lint, from, via))
				continue;
			for (int to = 0; to < n; to++)
				EDGE(lint, from, to) |= EDGE(lint, via, to);
		}
	}
	for (int i = 0; i < n; i++)
	{
		StringInfoData names;
		int64		rows = 0;
		bool		closed = EDGE(lint, i, i) && !told[i];
		int			members = 0;

		for (int to = 0; closed && to < n; to++)
			closed = !EDGE(lint, i, to) ||
				(EDGE(lint, to, i) && !lint->states[to]->final);
		if (!closed)
			continue;
		initStringInfo(&names);
		for (int to = 0; to < n; to++)
		{
			if (!EDGE(lint, i, to))
				continue;
			told[to] = true;
			appendStringInfo(&names, "%s\"%s\"", members++ > 0 ? ", " : "",
							 lint->states[to]->name);
			rows += idem_bound_rows_of_all(lint->counts, lint->states[to]->name);
		}
		if (members > 1)
			lint_say(lint, "no_exit", any_final ? "warning" : "note",
					 psprintf("states %s lead only to each other, and none is final",
							  names.data),
					 rows);
	}
}

/*
 * Rows in states that the machine does not have, and in none.
 */
static void
lint_strangers(Lint *lint)
{
	List	   *names = NIL;
	ListCell   *cell;
	ListCell   *counts;

	for (int i = 0; i < lint->nstates; i++)
		names = lappend(names, lint->states[i]->name);
	forboth(cell, lint->bounds, counts, lint->counts)
	{
		IdemBound  *bound = lfirst(cell);
		int64		rows = idem_bound_rows_elsewhere(lfirst(counts), names);
		int64		without = lint->without[foreach_current_index(cell)];

		if (rows > 0)
			lint_say(lint, "unknown_state", "error",
					 psprintf("column \"%s\" of table %s has rows in states that the machine does not have",
							  NameStr(bound->column),
							  idem_bound_name(bound->relid)),
					 rows);
		if (without > 0)
			lint_say(lint, "unknown_state", "error",
					 psprintf("column \"%s\" of table %s has rows in no state: they are NULL",
							  NameStr(bound->column),
							  idem_bound_name(bound->relid)),
					 without);
	}
}

/*
 * Guards that a table of the machine's cannot be asked, since it or what it calls
 * was changed.
 */
static void
lint_guards(Lint *lint, Oid relid)
{
	ListCell   *cell;

	foreach(cell, lint->definition->transitions)
	{
		IdemTransitionDef *rule = lfirst(cell);
		bool		certain;
		ErrorData  *error;

		CHECK_FOR_INTERRUPTS();
		if (rule->guard == NULL)
			continue;
		error = idem_guard_misfit(relid, lint->definition->machine, rule,
								  &certain);
		if (error != NULL && certain)
			lint_say(lint, "guard", "error",
					 psprintf("guard of rule %s does not fit table %s: %s",
							  rule_text(rule), idem_bound_name(relid),
							  error->message),
					 -1);
	}
}

/*
 * States that a table's column has no value for.
 */
static void
lint_values(Lint *lint, Oid relid, const IdemBinding *binding)
{
	for (int i = 0; i < lint->nstates; i++)
	{
		const char *name = lint->states[i]->name;

		CHECK_FOR_INTERRUPTS();
		if (!idem_binding_holds(binding, name))
			lint_say(lint, "value", "warning",
					 psprintf("column \"%s\" of table %s cannot be in state \"%s\"",
							  NameStr(binding->column_name),
							  idem_bound_name(relid), name),
					 -1);
	}
}

/*
 * Whether a trigger is one of the machine's.
 */
static bool
lint_is_of_machine(const Lint *lint, Relation triggers, HeapTuple tuple)
{
	Form_pg_trigger form = (Form_pg_trigger) GETSTRUCT(tuple);
	bool		isnull;
	Datum		args;

	if (form->tgnargs != IDEM_NARGS || !idem_trigger_is_ours(form->tgfoid, NULL))
		return false;

	/* each ends with a zero byte, and this one is the first */
	StaticAssertStmt(IDEM_ARG_MACHINE == 0, "trigger arguments in another order");
	args = heap_getattr(tuple, Anum_pg_trigger_tgargs,
						RelationGetDescr(triggers), &isnull);
	return !isnull &&
		strcmp(VARDATA_ANY(DatumGetByteaPP(args)),
			   lint->definition->machine) == 0;
}

/*
 * An IdemTriggerLook.  Clones go by their parent where that does not fire either.
 */
static void
lint_trigger(Relation triggers, HeapTuple tuple, void *arg)
{
	Lint	   *lint = arg;
	Form_pg_trigger form = (Form_pg_trigger) GETSTRUCT(tuple);
	bool		disabled = form->tgenabled == TRIGGER_DISABLED;

	if ((!disabled && form->tgenabled != TRIGGER_FIRES_ON_REPLICA) ||
		!lint_is_of_machine(lint, triggers, tuple) ||
		list_member_oid(lint->told, form->oid))
		return;
	if (!list_member_oid(lint->told, form->tgparentid))
		lint_say(lint, "trigger", "error",
				 psprintf(disabled ?
						  "trigger \"%s\" of table %s is disabled" :
						  "trigger \"%s\" of table %s is enabled for replicas only",
						  NameStr(form->tgname),
						  idem_bound_name(form->tgrelid)),
				 -1);
	lint->told = lappend_oid(lint->told, form->oid);
}

/*
 * Triggers of the machine that do not fire, in a table and its partitions, which
 * may be another's.
 */
static void
lint_triggers(Lint *lint, Relation rel)
{
	Oid			relid = RelationGetRelid(rel);

	idem_trigger_each(rel->rd_rel->relkind == RELKIND_PARTITIONED_TABLE ?
					  find_all_inheritors(relid, NoLock, NULL) :
					  list_make1_oid(relid),
					  lint_trigger, lint);
}

/*
 * Types of one category, if any, have one text for one value.
 */
static char
lint_type_category(Oid type)
{
	switch (type)
	{
		case INT2OID:
		case INT4OID:
		case INT8OID:
			return TYPCATEGORY_NUMERIC;
		case TEXTOID:
		case VARCHAROID:
		case BPCHAROID:
			return TYPCATEGORY_STRING;
		default:
			return '\0';
	}
}

/*
 * A column's default that no row may begin with.  One that has to be computed is
 * not looked at: that may fail, or run what somebody else has made.
 */
static void
lint_default(Lint *lint, Relation rel, const IdemBinding *binding)
{
	Node	   *value = build_column_default(rel, binding->column);
	IdemStateDef *state;
	Const	   *constant;
	Oid			type;
	Oid			output;
	bool		is_varlena;
	char	   *label;

	if (value == NULL)
		return;
	value = strip_implicit_coercions(value);
	if (!IsA(value, Const) || ((Const *) value)->constisnull)
		return;
	constant = (Const *) value;
	type = getBaseType(constant->consttype);
	/* what becomes another value when it is computed is left alone */
	if (type != binding->base_type &&
		!(lint_type_category(type) != '\0' &&
		  lint_type_category(type) == lint_type_category(binding->base_type)))
		return;
	getTypeOutputInfo(type, &output, &is_varlena);
	label = OidOutputFunctionCall(output, constant->constvalue);
	if (binding->base_type == BPCHAROID)
		label = pnstrdup(label, bpchartruelen(label, strlen(label)));
	else if (label[0] != '\0' && label[strlen(label) - 1] == ' ')
		return;
	state = idem_definition_state(lint->definition, label);
	if (state == NULL || !state->initial)
		lint_say(lint, "default", "warning",
				 psprintf("default of column \"%s\" of table %s is \"%s\", in which no row can be inserted",
						  NameStr(binding->column_name),
						  idem_bound_name(RelationGetRelid(rel)), label),
				 -1);
}

/*
 * What does not fit the tables that the machine is attached to.
 */
static void
lint_tables(Lint *lint)
{
	ListCell   *cell;

	foreach(cell, idem_guard_readers(lint->definition->machine))
	{
		Oid			relid = lfirst_oid(cell);
		IdemIdentity saved;
		Relation	rel = idem_guard_open(relid, lint->definition->machine,
										  &saved);
		IdemTable  *table;

		if (rel == NULL)
			continue;
		table = idem_table_get(rel, CurrentMemoryContext);
		for (int i = 0; i < table->nbindings; i++)
		{
			const IdemBinding *binding = &table->bindings[i];

			if (strcmp(binding->machine, lint->definition->machine) == 0)
			{
				lint_values(lint, relid, binding);
				lint_default(lint, rel, binding);
			}
		}
		lint_triggers(lint, rel);
		table_close(rel, AccessShareLock);
		idem_catalog_restore(&saved);
		lint_guards(lint, relid);
	}
}

/*
 * idem_lint(machine) -> code, severity, what, rows
 */
Datum
idem_lint(PG_FUNCTION_ARGS)
{
	Lint		lint = {0};
	List	   *tables;
	ListCell   *cell;

	idem_require_argument(fcinfo, 0, "machine");
	lint.definition =
		idem_diagram_machine(text_to_cstring(PG_GETARG_TEXT_PP(0)));
	InitMaterializedSRF(fcinfo, 0);
	lint.rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	lint.counted = true;
	tables = idem_bound_tables(lint.definition->machine);
	lint.without = palloc0(Max(list_length(tables), 1) * sizeof(int64));
	foreach(cell, tables)
	{
		if (idem_bound_may_count(lfirst(cell)))
		{
			int64	   *without = &lint.without[list_length(lint.bounds)];

			lint.bounds = lappend(lint.bounds, lfirst(cell));
			lint.counts = lappend(lint.counts,
								  idem_bound_count(lfirst(cell), without));
		}
		else
			lint.counted = false;
	}

	if (!OidIsValid(get_role_oid(lint.definition->owner, true)))
		lint_say(&lint, "no_role", "error",
				 psprintf("the machine belongs to role \"%s\", which does not exist",
						  lint.definition->owner),
				 -1);
	lint_draw(&lint);
	lint_reach(&lint);
	lint_dead_ends(&lint);
	lint_rules(&lint);
	lint_strangers(&lint);
	lint_tables(&lint);
	lint_cycles(&lint);
	return (Datum) 0;
}
