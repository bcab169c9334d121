/*
 * judge.c
 *	  Whether a row may move, and if not, why.
 *
 * Triggers and verbs ask here, so that they agree.  A judge belongs to one
 * binding of one relation and to one statement: it pins the definition, and
 * what it finds out about the role holds for as long as the role is the same.
 *
 * A guard is an expression over the row before and after, as a trigger's WHEN
 * clause is, and is evaluated as that is: without a query.  It is parsed and
 * planned once per session, relation and role; PostgreSQL marks the plan when
 * something that it depends on changes.  Its text is read under pinned
 * settings and with a search_path of pg_catalog, the table's schema and, last,
 * the temporary schema, so that who writes cannot change what it means.  The
 * functions in it run as the writer.
 *
 * The order of verdicts: frozen, final, illegal, then the rules that lead
 * there in order; the first that role and guard let through.  If none does, a
 * rule that the role may take makes the verdict "guarded", else "forbidden".
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/namespace.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "optimizer/optimizer.h"
#include "parser/parse_clause.h"
#include "parser/parse_collate.h"
#include "parser/parse_relation.h"
#include "parser/parser.h"
#include "rewrite/prs2lock.h"
#include "rewrite/rewriteManip.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/plancache.h"
#include "utils/rel.h"

#include "catalog.h"
#include "compat.h"
#include "errors.h"
#include "guc.h"
#include "judge.h"
#include "timer.h"

/* planned guards of one binding, by index of the rule */
typedef struct IdemPlans
{
	uint64		serial;			/* of the machine */
	int			room;
	int			n;
	CachedExpression **plans;
	Oid		   *roles;			/* whom each was planned for */
	MemoryContextCallback callback;
} IdemPlans;

/* which guard an error is about */
typedef struct GuardContext
{
	const IdemMachine *machine;
	const IdemRule *rule;
	const char *source;			/* while it is parsed */
	const char *places;			/* where its names are looked for */
	ErrorContextCallback callback;
} GuardContext;

/*
 * An error of the parser's: its position is none in the client's statement, and
 * a name that it did not find is there, perhaps, where nobody looked.
 */
static void
judge_parse_error(const GuardContext *context)
{
	int			position = geterrposition();
	int			code = geterrcode();

	if (position > 0)
	{
		errposition(0);
		internalerrposition(position);
		internalerrquery(context->source);
	}
	if (code == ERRCODE_UNDEFINED_FUNCTION ||
		code == ERRCODE_UNDEFINED_OBJECT)
		errhint("A guard's names are looked for in %s only: qualify others with their schema%s.",
				context->places,
				code == ERRCODE_UNDEFINED_FUNCTION ?
				", and cast arguments to the types that are declared" : "");
	else if (code == ERRCODE_AMBIGUOUS_COLUMN)
		errhint("Write \"new.\" before a column for the row as it will be, \"old.\" for the row as it was.");
}

static void
judge_error_context(void *arg)
{
	GuardContext *context = (GuardContext *) arg;

	if (context->source != NULL)
		judge_parse_error(context);
	errcontext("guard of transition \"%s\" from \"%s\" to \"%s\" of machine \"%s\"",
			   context->rule->event,
			   context->rule->from != NULL ? context->rule->from : "*",
			   context->rule->to, context->machine->name);
}

/*
 * Says of errors which guard they are about, until judge_context_end().
 */
static void
judge_context_begin(GuardContext *context, const IdemMachine *machine,
					const IdemRule *rule)
{
	context->machine = machine;
	context->rule = rule;
	context->source = NULL;
	context->callback.callback = judge_error_context;
	context->callback.arg = context;
	context->callback.previous = error_context_stack;
	error_context_stack = &context->callback;
}

static void
judge_context_end(const GuardContext *context)
{
	error_context_stack = context->callback.previous;
}

/*
 * Pins what the meaning of an expression's text follows, until
 * AtEOXact_GUC() of the level returned.
 */
static int
judge_pin_settings(Oid namespace)
{
	static const char *const settings[][2] = {
		{"standard_conforming_strings", "on"},
		{"transform_null_equals", "off"},
		{"datestyle", "ISO, MDY"},
		{"intervalstyle", "postgres"},
		{"timezone", "UTC"}
	};
	int			nestlevel = NewGUCNestLevel();

	idem_guc_set("search_path", idem_catalog_path(namespace));
	for (int i = 0; i < lengthof(settings); i++)
		idem_guc_set(settings[i][0], settings[i][1]);
	return nestlevel;
}

/*
 * Generated columns of the new row are computed after the guard, and what the
 * system knows of it when it is written.  Virtual ones are in neither row.
 */
static void
judge_refuse_later(Relation rel, Node *expr)
{
	TupleDesc	desc = RelationGetDescr(rel);
	ListCell   *lc;
	bool		virtual = desc->constr != NULL && IDEM_HAS_VIRTUAL(desc->constr);
	bool		generated = virtual ||
	(desc->constr != NULL && desc->constr->has_generated_stored);

	foreach(lc, pull_var_clause(expr, 0))
	{
		Var		   *var = (Var *) lfirst(lc);
		Form_pg_attribute att = var->varattno > 0 ?
		TupleDescAttr(desc, var->varattno - 1) : NULL;

		if (virtual && var->varattno >= 0 && (att == NULL || IDEM_IS_VIRTUAL(att)))
			ereport(ERROR,
					(errcode(ERRCODE_IDEM_MISUSE),
					 errmsg("guard cannot refer to virtual generated columns"),
					 errdetail("They are in no row."),
					 errhint("Write their expression."),
					 errtable(rel),
					 errhidestmt(true)));
		if (var->varno != PRS2_NEW_VARNO)
			continue;
		if (var->varattno < 0)
			ereport(ERROR,
					(errcode(ERRCODE_IDEM_MISUSE),
					 errmsg("guard cannot refer to system columns of the new row"),
					 errdetail("They are known when it is written."),
					 errtable(rel),
					 errhidestmt(true)));
		if (generated && (att == NULL || att->attgenerated != '\0'))
			ereport(ERROR,
					(errcode(ERRCODE_IDEM_MISUSE),
					 errmsg("guard cannot refer to generated columns of the new row"),
					 errdetail("They are computed after it."),
					 errtable(rel),
					 errhidestmt(true)));
	}
}

/*
 * The guard as a boolean expression, where "old" is the inner row and "new"
 * the outer one.
 */
static Node *
judge_parse(Relation rel, GuardContext *context)
{
	ParseState *pstate;
	ParseNamespaceItem *item;
	SelectStmt *select;
	List	   *raw;
	Node	   *expr;
	char	   *source = psprintf("SELECT (%s\n)", context->rule->guard);
	int			nestlevel;

	context->places = isAnyTempNamespace(RelationGetNamespace(rel)) ?
		"pg_catalog" :
		psprintf("pg_catalog and schema \"%s\"",
				 get_namespace_name(RelationGetNamespace(rel)));
	context->source = source;
	nestlevel = judge_pin_settings(RelationGetNamespace(rel));
	raw = raw_parser(source, RAW_PARSE_DEFAULT);
	select = list_length(raw) == 1 ?
		(SelectStmt *) linitial_node(RawStmt, raw)->stmt : NULL;
	if (select == NULL || !IsA(select, SelectStmt) ||
		select->op != SETOP_NONE || list_length(select->targetList) != 1 ||
		select->fromClause != NIL || select->whereClause != NULL ||
		select->groupClause != NIL || select->havingClause != NULL ||
		select->sortClause != NIL || select->limitCount != NULL ||
		select->limitOffset != NULL || select->lockingClause != NIL ||
		select->intoClause != NULL || select->windowClause != NIL ||
		select->distinctClause != NIL || select->withClause != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_MISUSE),
				 errmsg("guard is not an expression"),
				 errhidestmt(true)));

	pstate = make_parsestate(NULL);
	pstate->p_sourcetext = source;
	item = addRangeTableEntryForRelation(pstate, rel, AccessShareLock,
										 makeAlias("old", NIL), false, false);
	addNSItemToQuery(pstate, item, false, true, true);
	item = addRangeTableEntryForRelation(pstate, rel, AccessShareLock,
										 makeAlias("new", NIL), false, false);
	addNSItemToQuery(pstate, item, false, true, true);

	expr = transformWhereClause(pstate,
								linitial_node(ResTarget,
											  select->targetList)->val,
								EXPR_KIND_TRIGGER_WHEN, "guard");
	assign_expr_collations(pstate, expr);
	free_parsestate(pstate);
	judge_refuse_later(rel, expr);
	ChangeVarNodes(expr, PRS2_OLD_VARNO, INNER_VAR, 0);
	ChangeVarNodes(expr, PRS2_NEW_VARNO, OUTER_VAR, 0);

	AtEOXact_GUC(true, nestlevel);
	context->source = NULL;
	return expr;
}

/*
 * Parses a guard against a relation: the parser's own error if it does not fit.
 */
void
idem_judge_check_guard(Relation rel, const char *machine,
					   const IdemTransitionDef *rule)
{
	IdemMachine of = {.name = machine};
	IdemRule	compiled = {
		.event = rule->event,.from = rule->from,.to = rule->to,
		.guard = rule->guard
	};
	GuardContext context;

	judge_context_begin(&context, &of, &compiled);
	(void) judge_parse(rel, &context);
	judge_context_end(&context);
}

static void
judge_free_plans(void *arg)
{
	IdemPlans  *plans = (IdemPlans *) arg;

	for (int i = 0; i < plans->n; i++)
	{
		if (plans->plans[i] != NULL)
			FreeCachedExpression(plans->plans[i]);
		plans->plans[i] = NULL;
	}
}

/*
 * The planned guard, a copy of the caller's own.
 */
static Expr *
judge_plan(Relation rel, IdemJudge *judge, GuardContext *context)
{
	const IdemRule *rule = context->rule;
	IdemBinding *binding = judge->binding;
	IdemPlans  *plans = binding->plans;
	MemoryContext keeper = judge->table->context;
	CachedExpression *plan;

	if (plans != NULL && plans->serial != judge->machine->serial)
	{
		/* copies of them may be in use, the plans themselves are not */
		judge_free_plans(plans);
		plans->n = 0;
	}
	if (plans == NULL || plans->room < judge->machine->nrules)
	{
		int			room = Max(16, 2 * judge->machine->nrules);

		plans = MemoryContextAllocZero(keeper, sizeof(IdemPlans));
		plans->plans = MemoryContextAllocZero(keeper,
											  room * sizeof(CachedExpression *));
		plans->roles = MemoryContextAllocZero(keeper, room * sizeof(Oid));
		plans->room = room;
		plans->callback.func = judge_free_plans;
		plans->callback.arg = plans;
		MemoryContextRegisterResetCallback(keeper, &plans->callback);
		binding->plans = plans;
	}
	plans->serial = judge->machine->serial;
	plans->n = judge->machine->nrules;

	plan = plans->plans[rule->index];
	if (plan != NULL &&
		(!plan->is_valid || plans->roles[rule->index] != GetUserId()))
	{
		plans->plans[rule->index] = NULL;
		FreeCachedExpression(plan);
		plan = NULL;
	}
	if (plan == NULL)
	{
		Node	   *expr = judge_parse(rel, context);

		plan = GetCachedExpression(expr);
		if (binding->plans != plans || plans->serial != judge->machine->serial)
		{
			/* planning ran a statement that met another definition */
			Expr	   *copy = copyObject((Expr *) plan->expr);

			FreeCachedExpression(plan);
			return copy;
		}
		if (plans->plans[rule->index] != NULL)
			FreeCachedExpression(plans->plans[rule->index]);
		plans->plans[rule->index] = plan;
		plans->roles[rule->index] = GetUserId();
	}
	return copyObject((Expr *) plan->expr);
}

/*
 * Starts judging, until "holder" is reset.  "table" and "binding" are from
 * idem_table_get(), and the machine is the binding's, all of the same holder.
 */
IdemJudge *
idem_judge_begin(Relation rel, IdemTable *table, IdemBinding *binding,
				 const IdemMachine *machine, MemoryContext holder)
{
	IdemJudge  *judge = MemoryContextAllocZero(holder, sizeof(IdemJudge));
	Form_pg_attribute column = TupleDescAttr(RelationGetDescr(rel),
											 binding->column - 1);

	if (column->attisdropped || column->atttypid != binding->type ||
		binding->kind == IDEM_STATE_NOT_A_KIND)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_MISUSE),
				 errmsg("column \"%s\" of table \"%s\" is not what machine \"%s\" was attached to",
						NameStr(binding->column_name),
						RelationGetRelationName(rel), binding->machine),
				 errhint("Detach it with idem_detach(), and attach the machine again."),
				 errtable(rel),
				 errhidestmt(true)));

	judge->relid = RelationGetRelid(rel);
	judge->table = table;
	judge->binding = binding;
	judge->machine = machine;
	judge->holder = holder;
	judge->guards = MemoryContextAllocZero(holder,
										   Max(judge->machine->nrules, 1) *
										   sizeof(ExprState *));
	judge->allowed = MemoryContextAllocZero(holder,
											Max(judge->machine->nrules, 1));
	judge->userid = GetUserId();
	return judge;
}

/*
 * Forgets what was found out about another role.
 */
static void
judge_follow_role(IdemJudge *judge)
{
	if (judge->userid == GetUserId())
		return;
	judge->userid = GetUserId();
	judge->exempt = 0;
	memset(judge->allowed, 0, judge->machine->nrules);
	memset(judge->guards, 0, judge->machine->nrules * sizeof(ExprState *));
}

/*
 * Whether the current role is one that the binding lets pass.  A superuser is
 * only if he is named, himself or by a role that he was given.
 */
bool
idem_judge_is_exempt(IdemJudge *judge)
{
	if (judge->binding->nexempt == 0)
		return false;
	judge_follow_role(judge);
	if (judge->exempt == 0)
	{
		judge->exempt = -1;
		for (int i = 0; i < judge->binding->nexempt; i++)
		{
			Oid			role = get_role_oid(judge->binding->exempt[i], true);

			if (OidIsValid(role) &&
				is_member_of_role_nosuper(judge->userid, role))
				judge->exempt = 1;
		}
	}
	return judge->exempt > 0;
}

/*
 * Whether the current role may take a transition.
 */
bool
idem_judge_role(IdemJudge *judge, const IdemRule *rule)
{
	if (rule->nroles == 0 || judge->timed_since != NULL)
		return true;
	judge_follow_role(judge);
	if (judge->allowed[rule->index] == 0)
	{
		judge->allowed[rule->index] = -1;
		for (int i = 0; i < rule->nroles; i++)
		{
			Oid			role = get_role_oid(rule->roles[i], true);

			if (OidIsValid(role) && has_privs_of_role(judge->userid, role))
				judge->allowed[rule->index] = 1;
		}
	}
	return judge->allowed[rule->index] > 0;
}

/*
 * The row that the transition would make of the old one.
 */
static TupleTableSlot *
judge_result(IdemJudge *judge, TupleTableSlot *old_slot, const IdemRule *rule)
{
	AttrNumber	column = judge->binding->column;

	if (judge->new_slot == NULL)
	{
		MemoryContext former = MemoryContextSwitchTo(judge->holder);

		judge->new_slot = MakeSingleTupleTableSlot(old_slot->tts_tupleDescriptor,
												   &TTSOpsVirtual);
		MemoryContextSwitchTo(former);
	}
	ExecClearTuple(judge->new_slot);
	slot_getallattrs(old_slot);
	memcpy(judge->new_slot->tts_values, old_slot->tts_values,
		   old_slot->tts_tupleDescriptor->natts * sizeof(Datum));
	memcpy(judge->new_slot->tts_isnull, old_slot->tts_isnull,
		   old_slot->tts_tupleDescriptor->natts * sizeof(bool));
	judge->new_slot->tts_values[column - 1] =
		idem_binding_value(judge->binding, rule->to);
	judge->new_slot->tts_isnull[column - 1] = false;
	return ExecStoreVirtualTuple(judge->new_slot);
}

static bool
judge_guard(IdemJudge *judge, TupleTableSlot *old_slot,
			TupleTableSlot *new_slot, const IdemRule *rule)
{
	GuardContext context;
	Datum		value;
	bool		isnull;

	if (rule->guard == NULL)
		return true;
	judge_follow_role(judge);

	judge_context_begin(&context, judge->machine, rule);
	if (judge->guards[rule->index] == NULL)
	{
		Relation	rel = RelationIdGetRelation(judge->relid);
		MemoryContext former;
		Expr	   *plan;

		if (!RelationIsValid(rel))
			elog(ERROR, "could not open relation with OID %u", judge->relid);
		plan = judge_plan(rel, judge, &context);
		RelationClose(rel);
		former = MemoryContextSwitchTo(judge->holder);
		if (judge->econtext == NULL)
			judge->econtext = CreateStandaloneExprContext();
		judge->guards[rule->index] = ExecInitExpr(copyObject(plan), NULL);
		MemoryContextSwitchTo(former);
	}
	if (new_slot == NULL)
		new_slot = judge_result(judge, old_slot, rule);

	judge->econtext->ecxt_innertuple = old_slot;
	judge->econtext->ecxt_outertuple = new_slot;
	value = ExecEvalExprSwitchContext(judge->guards[rule->index],
									  judge->econtext, &isnull);
	judge_context_end(&context);
	ResetExprContext(judge->econtext);
	return !isnull && DatumGetBool(value);
}

/*
 * What a rule from a state to itself makes of the row, where that is no move.
 */
static IdemJudgement
judge_stays(const IdemMachineState *state)
{
	return state->self == IDEM_SELF_NOOP ? IDEM_JUDGE_SAME : IDEM_JUDGE_ILLEGAL;
}

/*
 * Whether one of some rules leaves the state by the event; NULL is any.
 */
static bool
judge_leaves(const IdemRule *const *rules, int nrules, int from,
			 const char *event)
{
	for (int i = 0; i < nrules; i++)
	{
		if (rules[i]->to_state != from &&
			(event == NULL || strcmp(rules[i]->event, event) == 0))
			return true;
	}
	return false;
}

/*
 * Judges a move from state "from" to "to" (IDEM_STATE_UNKNOWN: to any) by
 * "event" (NULL: by any).  "rule" is the one that passes, or whose role or
 * guard does not, or NULL.  new_slot NULL stands for the old row with nothing
 * but its state changed.
 *
 * Where the state stays, only a rule that is declared so makes it a move, in
 * a state whose mode is "reenter"; in others it is one of the event's rules,
 * whose turn comes in order, and what it says if none of them leaves the state.
 * Where time is what fires it, only a rule that is timed, and whose time has
 * come.
 */
IdemJudgement
idem_judge_slots(IdemJudge *judge, TupleTableSlot *old_slot,
				 TupleTableSlot *new_slot, int from, int to,
				 const char *event, const IdemRule **rule)
{
	const IdemMachine *machine = judge->machine;
	const IdemRule *const *rules;
	const IdemRule *stays = NULL;
	IdemJudgement verdict = IDEM_JUDGE_ILLEGAL;
	int			nrules;

	*rule = NULL;
	if (from >= 0 && machine->states[from].frozen)
		return IDEM_JUDGE_FROZEN;
	if (from == IDEM_STATE_NULL)
		return IDEM_JUDGE_ILLEGAL;

	nrules = idem_machine_rules(machine, from, &rules);
	for (int i = 0; i < nrules; i++)
	{
		const IdemRule *candidate = rules[i];

		if (to >= 0 && candidate->to_state != to)
			continue;
		if (event != NULL && strcmp(candidate->event, event) != 0)
			continue;
		if (judge->timed_since != NULL &&
			!(candidate->timed &&
			  idem_timer_due(candidate, *judge->timed_since) <= GetCurrentTimestamp()))
			continue;
		if (candidate->to_state == from &&
			machine->states[from].self != IDEM_SELF_REENTER)
		{
			/* its guard is not asked where nothing else could be taken */
			if ((verdict == IDEM_JUDGE_ILLEGAL &&
				 !judge_leaves(rules + i + 1, nrules - i - 1, from, event)) ||
				(idem_judge_role(judge, candidate) &&
				 judge_guard(judge, old_slot, new_slot, candidate)))
			{
				*rule = candidate;
				return judge_stays(&machine->states[from]);
			}
			if (stays == NULL)
				stays = candidate;
		}
		else if (!idem_judge_role(judge, candidate))
		{
			if (verdict == IDEM_JUDGE_ILLEGAL)
			{
				verdict = IDEM_JUDGE_FORBIDDEN;
				*rule = candidate;
			}
		}
		else if (!judge_guard(judge, old_slot, new_slot, candidate))
		{
			if (verdict != IDEM_JUDGE_GUARDED)
			{
				verdict = IDEM_JUDGE_GUARDED;
				*rule = candidate;
			}
		}
		else
		{
			*rule = candidate;
			return IDEM_JUDGE_PASS;
		}
	}

	if (verdict != IDEM_JUDGE_ILLEGAL)
		return verdict;
	if (stays != NULL)
	{
		*rule = stays;
		return judge_stays(&machine->states[from]);
	}
	if (from >= 0 && machine->states[from].final)
		return IDEM_JUDGE_FINAL;
	return IDEM_JUDGE_ILLEGAL;
}

/*
 * The same for tuples; new_tuple may be NULL.
 */
IdemJudgement
idem_judge_tuples(IdemJudge *judge, HeapTuple old_tuple, HeapTuple new_tuple,
				  int from, int to, const char *event, const IdemRule **rule)
{
	TupleTableSlot *new_slot = NULL;
	IdemJudgement verdict;

	if (judge->old_slot == NULL)
	{
		Relation	rel = RelationIdGetRelation(judge->relid);
		MemoryContext former = MemoryContextSwitchTo(judge->holder);

		if (!RelationIsValid(rel))
			elog(ERROR, "could not open relation with OID %u", judge->relid);
		judge->desc = CreateTupleDescCopyConstr(RelationGetDescr(rel));
		judge->old_slot = MakeSingleTupleTableSlot(judge->desc,
												   &TTSOpsHeapTuple);
		MemoryContextSwitchTo(former);
		RelationClose(rel);
	}
	ExecStoreHeapTuple(old_tuple, judge->old_slot, false);
	if (new_tuple != NULL)
	{
		new_slot = MakeSingleTupleTableSlot(judge->desc, &TTSOpsHeapTuple);
		ExecStoreHeapTuple(new_tuple, new_slot, false);
	}
	verdict = idem_judge_slots(judge, judge->old_slot, new_slot, from, to,
							   event, rule);
	ExecClearTuple(judge->old_slot);
	if (new_slot != NULL)
		ExecDropSingleTupleTableSlot(new_slot);
	return verdict;
}
