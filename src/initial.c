/*
 * initial.c
 *	  SQL function idem_not_initial: the WHEN clause of the guard's trigger
 *	  after an insert.
 *
 * A load of many rows should not queue an event for each row that begins as it
 * should, and which states are initial may change after the trigger was made.
 * So the clause calls a function, but no row ever does: when a statement
 * begins, the planner asks the support function, and gets a comparison of the
 * column with the states that are initial then.  It costs a row what a clause
 * written by hand would, and nobody needs to be granted the function.
 *
 * Values are compared as bytes, whatever the column's collation.
 */
#include "postgres.h"

#include "catalog/pg_collation.h"
#include "catalog/pg_enum.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "nodes/supportnodes.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/syscache.h"
#include "utils/typcache.h"

#include "binding.h"
#include "machine_cache.h"
#include "statement.h"
#include "taken.h"

PG_FUNCTION_INFO_V1(idem_not_initial);
PG_FUNCTION_INFO_V1(idem_not_initial_support);

/*
 * idem_not_initial(value "any", machine text) -> boolean
 */
Datum
idem_not_initial(PG_FUNCTION_ARGS)
{
	Oid			type = get_fn_expr_argtype(fcinfo->flinfo, 0);
	IdemBinding binding;
	const IdemMachine *machine;
	MemoryContext context;
	int			state;
	bool		initial;

	if (PG_ARGISNULL(1))
		PG_RETURN_NULL();
	memset(&binding, 0, sizeof(binding));
	binding.kind = idem_state_kind(type, -1, &binding.base_type,
								   &binding.typmod);
	context = AllocSetContextCreate(CurrentMemoryContext, "idem_not_initial",
									ALLOCSET_SMALL_SIZES);
	machine = idem_machine_get(text_to_cstring(PG_GETARG_TEXT_PP(1)), false,
							   context);
	state = idem_binding_state(&binding, machine,
							   PG_ARGISNULL(0) ? (Datum) 0 : PG_GETARG_DATUM(0),
							   PG_ARGISNULL(0));
	initial = state >= 0 && machine->states[state].initial;
	MemoryContextDelete(context);
	PG_RETURN_BOOL(!initial);
}

/*
 * A state's name as a constant of the column's base type; NULL if the type has
 * no such value, which no row can have then.
 */
static Node *
initial_constant(const IdemMachineState *state, IdemStateKind kind, Oid type)
{
	int64		low = 0;
	int64		high = 0;

	switch (kind)
	{
		case IDEM_STATE_TEXT:
			return (Node *) makeConst(TEXTOID, -1, C_COLLATION_OID, -1,
									  CStringGetTextDatum(state->name), false,
									  false);
		case IDEM_STATE_BPCHAR:
			/* its values have no blanks at their ends, and compare so */
			if (state->length > 0 && state->name[state->length - 1] == ' ')
				return NULL;
			return (Node *) makeConst(BPCHAROID, -1, C_COLLATION_OID, -1,
									  CStringGetTextDatum(state->name), false,
									  false);
		case IDEM_STATE_ENUM:
			{
				HeapTuple	tuple;
				Oid			label;

				if (state->length >= NAMEDATALEN)
					return NULL;
				tuple = SearchSysCache2(ENUMTYPOIDNAME, ObjectIdGetDatum(type),
										CStringGetDatum(state->name));
				if (!HeapTupleIsValid(tuple))
					return NULL;
				label = ((Form_pg_enum) GETSTRUCT(tuple))->oid;
				ReleaseSysCache(tuple);
				return (Node *) makeConst(type, -1, InvalidOid, sizeof(Oid),
										  ObjectIdGetDatum(label), false, true);
			}
		case IDEM_STATE_INT2:
			low = PG_INT16_MIN;
			high = PG_INT16_MAX;
			break;
		case IDEM_STATE_INT4:
			low = PG_INT32_MIN;
			high = PG_INT32_MAX;
			break;
		case IDEM_STATE_INT8:
			low = PG_INT64_MIN;
			high = PG_INT64_MAX;
			break;
		case IDEM_STATE_NOT_A_KIND:
			break;
	}
	if (!state->is_number || state->number < low || state->number > high)
		return NULL;
	if (kind == IDEM_STATE_INT2)
		return (Node *) makeConst(INT2OID, -1, InvalidOid, sizeof(int16),
								  Int16GetDatum(state->number), false, true);
	if (kind == IDEM_STATE_INT4)
		return (Node *) makeConst(INT4OID, -1, InvalidOid, sizeof(int32),
								  Int32GetDatum(state->number), false, true);
	return (Node *) makeConst(INT8OID, -1, InvalidOid, sizeof(int64),
							  Int64GetDatum(state->number), false,
							  FLOAT8PASSBYVAL);
}

static Node *
initial_null_test(Expr *value, NullTestType type)
{
	NullTest   *test = makeNode(NullTest);

	test->arg = copyObject(value);
	test->nulltesttype = type;
	test->argisrow = false;
	test->location = -1;
	return (Node *) test;
}

/*
 * "value IS NULL OR value <> a AND value <> b ...", as of now.
 */
static Node *
initial_simplify(FuncExpr *call)
{
	Expr	   *value = (Expr *) linitial(call->args);
	Node	   *name = (Node *) lsecond(call->args);
	Oid			type;
	int32		typmod;
	IdemStateKind kind;
	Oid			compared;
	Oid			operator;
	List	   *differs = NIL;
	const IdemMachine *machine;
	Node	   *is_null;

	if (!IsA(name, Const) || ((Const *) name)->constisnull ||
		((Const *) name)->consttype != TEXTOID)
		return NULL;
	kind = idem_state_kind(exprType((Node *) value),
						   exprTypmod((Node *) value), &type, &typmod);
	if (kind == IDEM_STATE_NOT_A_KIND)
		return makeBoolConst(true, false);
	compared = kind == IDEM_STATE_TEXT ? TEXTOID : type;

	/* the executor prepares the clause in the statement's memory */
	machine = idem_statement_machine(CurrentMemoryContext, idem_taken_depth(),
									 false,
									 TextDatumGetCString(((Const *) name)->constvalue),
									 true);
	/* the trigger says so */
	if (machine == NULL)
		return makeBoolConst(true, false);

	if (exprType((Node *) value) != compared)
		value = (Expr *) makeRelabelType(value, compared, -1,
										 get_typcollation(compared),
										 COERCE_IMPLICIT_CAST);
	operator = get_negator(lookup_type_cache(compared,
											 TYPECACHE_EQ_OPR)->eq_opr);
	for (int i = 0; i < machine->nstates; i++)
	{
		Node	   *constant = NULL;

		if (machine->states[i].initial)
			constant = initial_constant(&machine->states[i], kind, type);
		if (constant != NULL)
			differs = lappend(differs,
							  make_opclause(operator, BOOLOID, false,
											copyObject(value),
											(Expr *) constant, InvalidOid,
											OidIsValid(get_typcollation(compared)) ?
											C_COLLATION_OID : InvalidOid));
	}
	is_null = initial_null_test(value, IS_NULL);

	/*
	 * always true, but no constant: that the planner would do without the
	 * rest for
	 */
	if (differs == NIL)
		return (Node *) make_orclause(list_make2(is_null,
												 initial_null_test(value, IS_NOT_NULL)));
	return (Node *) make_orclause(list_make2(is_null,
											 make_ands_explicit(differs)));
}

/*
 * Planner support of idem_not_initial.
 */
Datum
idem_not_initial_support(PG_FUNCTION_ARGS)
{
	Node	   *request = (Node *) PG_GETARG_POINTER(0);
	Node	   *result = NULL;

	if (IsA(request, SupportRequestSimplify))
	{
		FuncExpr   *call = ((SupportRequestSimplify *) request)->fcall;

		if (list_length(call->args) == 2)
			result = initial_simplify(call);
	}
	PG_RETURN_POINTER(result);
}
