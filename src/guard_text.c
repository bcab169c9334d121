/*
 * guard_text.c
 *	  What may be written as a guard, and whether it fits the tables.
 *
 * A guard is evaluated for one row, as a trigger's WHEN clause is.  What that
 * rules out by its form is refused where the guard is written down: anything but
 * one expression, parameters, subqueries, and functions of which every one
 * that has the name is an aggregate, a window function or gives a set.
 *
 * What its names mean is known with a table only.  So a guard that is attached
 * with its machine is parsed then (attach.c), and a guard that is changed
 * later, against all tables that are attached: it would fail every step that it
 * is asked for.  Parsing takes no privilege but USAGE of the table's schema,
 * where names are looked up.  For who lacks that, or that of another schema, the
 * guard may fit all the same for those who write: a warning tells.
 *
 * But parsing runs code: a literal that becomes an array of a domain is asked
 * whether it passes the domain's CHECKs.  That may be code of the machine's owner
 * or of the table's, and whoever asks about the machine is neither.  So a guard
 * is read as the table's owner, who let the machine's owner act as himself when
 * he attached the table; where he is a superuser, as the machine's owner; where
 * he is one too, as the caller.  And that is done for who may become the one whom
 * it is read as, or write the guard, which is the same: what this session has
 * prepared could make anybody else him.  For others guards are not read, and
 * nothing is told of them.
 *
 * A table may change later, when nobody asks the machine.  Then idem_lint()
 * tells.
 */
#include "postgres.h"

#include "access/table.h"
#include "catalog/namespace.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_proc.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "parser/parser.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/catcache.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "catalog.h"
#include "compat.h"
#include "definition.h"
#include "errors.h"
#include "judge.h"
#include "machine.h"
#include "wait.h"

static bool
guard_has_parameter(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, ParamRef))
		return true;
	return raw_expression_tree_walker(node, guard_has_parameter, context);
}

static bool
guard_has_subquery(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, SubLink))
		return true;
	return raw_expression_tree_walker(node, guard_has_subquery, context);
}

/*
 * Whether whatever function a call means takes or gives more than one row.
 */
static bool
call_is_of_rows(const FuncCall *call)
{
	char	   *schema;
	char	   *name;
	CatCList   *functions;
	bool		known = false;
	bool		of_rows = true;

	if (call->agg_star || call->agg_distinct || call->agg_within_group ||
		call->agg_order != NIL || call->agg_filter != NULL ||
		call->over != NULL)
		return true;
	DeconstructQualifiedName(call->funcname, &schema, &name);
	functions = SearchSysCacheList1(PROCNAMEARGSNSP, CStringGetDatum(name));
	for (int i = 0; i < functions->n_members; i++)
	{
		Form_pg_proc form = (Form_pg_proc) GETSTRUCT(&functions->members[i]->tuple);

		if (schema != NULL &&
			form->pronamespace != get_namespace_oid(schema, true))
			continue;
		known = true;
		of_rows = of_rows && (form->proretset ||
							  form->prokind == PROKIND_AGGREGATE ||
							  form->prokind == PROKIND_WINDOW);
	}
	ReleaseSysCacheList(functions);
	return known && of_rows;
}

static bool
guard_calls_of_rows(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, FuncCall) && call_is_of_rows((FuncCall *) node))
		return true;
	return raw_expression_tree_walker(node, guard_calls_of_rows, context);
}

/*
 * Whether what was parsed is one bare expression.
 */
static bool
guard_is_expression(List *parsed)
{
	SelectStmt *select;
	ResTarget  *target;

	if (list_length(parsed) != 1)
		return false;
	select = (SelectStmt *) linitial_node(RawStmt, parsed)->stmt;
	if (!IsA(select, SelectStmt) || select->op != SETOP_NONE ||
		select->distinctClause != NIL || select->fromClause != NIL ||
		select->whereClause != NULL || select->groupClause != NIL ||
		select->havingClause != NULL || select->windowClause != NIL ||
		select->sortClause != NIL || select->limitCount != NULL ||
		select->limitOffset != NULL || select->lockingClause != NIL ||
		list_length(select->targetList) != 1)
		return false;
	target = linitial_node(ResTarget, select->targetList);
	return target->name == NULL && target->indirection == NIL;
}

/*
 * Whether an error is about what was parsed.
 */
static bool
error_is_of_text(const ErrorData *error)
{
	int			category = ERRCODE_TO_CATEGORY(error->sqlerrcode);

	return category == ERRCODE_SYNTAX_ERROR_OR_ACCESS_RULE_VIOLATION ||
		category == ERRCODE_DATA_EXCEPTION ||
		category == ERRCODE_FEATURE_NOT_SUPPORTED ||
		error->sqlerrcode == ERRCODE_UNDEFINED_SCHEMA ||
		error->sqlerrcode == ERRCODE_UNDEFINED_DATABASE ||
		error->sqlerrcode == ERRCODE_IDEM_MISUSE;
}

static void
guard_refuse(const char *guard, const char *event, const char *has)
{
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_MISUSE),
			 errmsg("guard of event \"%s\" has %s", event, has),
			 errdetail("\"%s\" is evaluated for one row, without a query.",
					   guard),
			 errhint("Put a query into a function that the guard calls."),
			 errhidestmt(true)));
}

/*
 * Refuses a guard that is not one SQL expression over one row.
 */
void
idem_guard_check(const char *guard, const char *event)
{
	MemoryContext caller = CurrentMemoryContext;
	List	   *parsed;
	Node	   *statement;

	PG_TRY();
	{
		parsed = raw_parser(guard, RAW_PARSE_PLPGSQL_EXPR);
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(caller);
		error = CopyErrorData();
		if (!error_is_of_text(error))
			PG_RE_THROW();
		FlushErrorState();
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_MISUSE),
				 errmsg("guard of event \"%s\" is not an SQL expression", event),
				 errdetail("In \"%s\": %s.", guard, error->message),
				 errhidestmt(true)));
	}
	PG_END_TRY();

	if (guard[strspn(guard, " \t\r\n\f\v")] == '\0')
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_MISUSE),
				 errmsg("guard of event \"%s\" is empty", event),
				 errhint("Leave out the brackets where there is no guard."),
				 errhidestmt(true)));
	if (!guard_is_expression(parsed))
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_MISUSE),
				 errmsg("guard of event \"%s\" is not an SQL expression", event),
				 errdetail("\"%s\" is a query, or several expressions.", guard),
				 errhint("Put a query into a function that the guard calls."),
				 errhidestmt(true)));
	statement = linitial_node(RawStmt, parsed)->stmt;
	if (guard_has_parameter(statement, NULL))
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_MISUSE),
				 errmsg("guard of event \"%s\" has a parameter", event),
				 errdetail("\"%s\" may refer to the columns of old and new only.",
						   guard),
				 errhidestmt(true)));
	if (guard_has_subquery(statement, NULL))
		guard_refuse(guard, event, "a subquery");
	if (guard_calls_of_rows(statement, NULL))
		guard_refuse(guard, event,
					 "an aggregate, window or set-returning function");
}

/*
 * Whom the machine belongs to; InvalidOid if there is no such role.
 */
static Oid
guard_owner(const char *machine)
{
	IdemDefinition *definition = idem_definition_read(machine);

	return definition == NULL ? InvalidOid :
		get_role_oid(definition->owner, true);
}

/*
 * Whether the caller may write the machine's guards.
 */
static bool
guard_is_his(const char *machine)
{
	IdemDefinition *definition = idem_definition_read(machine);

	return definition != NULL && idem_machine_may_change(definition->owner);
}

/*
 * Opens a table that reads the machine's guards, and acts as the one who may read
 * them, until idem_catalog_restore().  NULL if there is no such table or role, or
 * the caller may not act as he.
 */
Relation
idem_guard_open(Oid relid, const char *machine, IdemIdentity *saved)
{
	Relation	rel;
	Oid			reader;

	/* its owner and its schema stay, and nothing of it has run */
	LockRelationOid(relid, AccessShareLock);
	reader = idem_catalog_owner_of(relid);
	if (OidIsValid(reader) && superuser_arg(reader))
		reader = guard_owner(machine);
	/* a superuser's machine and table: what is found there may be another's */
	if (OidIsValid(reader) && superuser_arg(reader))
		reader = GetUserId();
	if (!OidIsValid(reader) ||
		!(has_privs_of_role(GetUserId(), reader) || guard_is_his(machine)))
	{
		UnlockRelationOid(relid, AccessShareLock);
		return NULL;
	}
	idem_catalog_become_user(reader, get_rel_namespace(relid), saved);
	rel = try_table_open(relid, NoLock);
	if (rel == NULL)
	{
		idem_catalog_restore(saved);
		UnlockRelationOid(relid, AccessShareLock);
	}
	return rel;
}

/* what guard_read() parses, and why it cannot be */
typedef struct GuardReading
{
	Oid			relid;
	const char *machine;
	const IdemTransitionDef *rule;
	ErrorData  *error;
	bool		opened;			/* what fails is the guard */
	bool		in_schema;		/* names could be looked up */
} GuardReading;

/* the innermost one: what is parsed may read other guards */
static GuardReading *reading;

static void
guard_read(void *arg)
{
	GuardReading *mine = (GuardReading *) arg;
	IdemIdentity saved;
	Relation	rel = idem_guard_open(mine->relid, mine->machine, &saved);

	if (rel == NULL)
		return;
	mine->opened = true;
	mine->in_schema = IDEM_MAY_USE_SCHEMA(RelationGetNamespace(rel));
	idem_judge_check_guard(rel, mine->machine, mine->rule);
	table_close(rel, AccessShareLock);
	idem_catalog_restore(&saved);
}

/*
 * An IdemExpected that keeps the error, which may be of any kind: a domain's CHECK
 * raises what it likes.
 */
static bool
guard_is_misread(const ErrorData *error)
{
	if (!reading->opened || !idem_try_tolerates(error))
		return false;
	reading->error = palloc0(sizeof(ErrorData));
	reading->error->sqlerrcode = error->sqlerrcode;
	reading->error->message = pstrdup(error->message);
	if (error->hint != NULL)
		reading->error->hint = pstrdup(error->hint);
	return true;
}

/*
 * Why a rule's guard does not fit a table: an error with code, message and
 * hint; NULL if it does.  "certain" is whether that is so for everybody.
 */
ErrorData *
idem_guard_misfit(Oid relid, const char *machine,
				  const IdemTransitionDef *rule, bool *certain)
{
	GuardReading *outer = reading;
	GuardReading mine = {.relid = relid,.machine = machine,.rule = rule};

	PG_TRY();
	{
		reading = &mine;
		(void) idem_try(guard_read, &mine, guard_is_misread);
	}
	PG_FINALLY();
	{
		reading = outer;
	}
	PG_END_TRY();
	*certain = mine.error == NULL ||
		(mine.error->sqlerrcode != ERRCODE_INSUFFICIENT_PRIVILEGE &&
		 mine.in_schema);
	return mine.error;
}

/*
 * The tables that read the machine's guards: those that are attached, and what
 * inherits from them; partitions go by their root.
 */
List *
idem_guard_readers(const char *machine)
{
	List	   *relids = NIL;
	ListCell   *cell;

	foreach(cell, idem_bound_tables(machine))
	{
		Oid			root = ((IdemBound *) lfirst(cell))->relid;
		ListCell   *inner;

		foreach(inner, find_all_inheritors(root, NoLock, NULL))
		{
			if (lfirst_oid(inner) == root ||
				!get_rel_relispartition(lfirst_oid(inner)))
				relids = list_append_unique_oid(relids, lfirst_oid(inner));
		}
	}
	return relids;
}

/*
 * Says that a rule's guard does not fit a table; "certain" is for whom.  The hint
 * is for an error that has none.
 */
static void
guard_report(Oid relid, const IdemTransitionDef *rule, const ErrorData *error,
			 bool certain, const char *hint)
{
	ereport(certain ? ERROR : WARNING,
			(errcode(certain ? ERRCODE_IDEM_MISUSE : ERRCODE_WARNING),
			 certain ?
			 errmsg("guard of event \"%s\" does not fit table %s",
					rule->event, idem_bound_name(relid)) :
			 errmsg("guard of event \"%s\" could not be checked against table %s",
					rule->event, idem_bound_name(relid)),
			 errdetail("In \"%s\": %s.", rule->guard, error->message),
			 error->hint != NULL ? errhint("%s", error->hint) :
			 certain ? errhint("%s", hint) : 0,
			 idem_errcolumn(relid, NULL),
			 errhidestmt(true)));
}

/*
 * Refuses a rule whose guard does not fit a table that the machine is attached
 * to.
 */
void
idem_guard_check_tables(const char *machine, const IdemTransitionDef *rule)
{
	ListCell   *cell;

	foreach(cell, idem_guard_readers(machine))
	{
		Oid			relid = lfirst_oid(cell);
		bool		certain;
		ErrorData  *error = idem_guard_misfit(relid, machine, rule, &certain);

		if (error != NULL)
			guard_report(relid, rule, error, certain,
						 psprintf("Machine \"%s\" is attached to the table: each step that asks the guard would fail.",
								  machine));
	}
}

/*
 * Refuses a rule whose guard does not fit a table that is to be attached.  It is
 * read as who runs this, who is told what he may not do.
 */
static void
guard_check_table(Relation rel, const char *machine,
				  const IdemTransitionDef *rule)
{
	MemoryContext caller = CurrentMemoryContext;

	PG_TRY();
	{
		idem_judge_check_guard(rel, machine, rule);
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(caller);
		error = CopyErrorData();
		if (!error_is_of_text(error) ||
			error->sqlerrcode == ERRCODE_INSUFFICIENT_PRIVILEGE)
			PG_RE_THROW();
		FlushErrorState();
		guard_report(RelationGetRelid(rel), rule, error, true,
					 "Change the table first, or the guard with idem_define().");
	}
	PG_END_TRY();
}

/*
 * The same of all rules of a machine.
 */
void
idem_guard_check_table(Relation rel, const IdemMachine *machine)
{
	for (int i = 0; i < machine->nrules; i++)
	{
		const IdemRule *compiled = &machine->rules[i];
		IdemTransitionDef rule = {
			.event = unconstify(char *, compiled->event),
			.from = unconstify(char *, compiled->from),
			.to = unconstify(char *, compiled->to),
			.guard = unconstify(char *, compiled->guard)
		};

		if (rule.guard != NULL)
			guard_check_table(rel, machine->name, &rule);
	}
}
