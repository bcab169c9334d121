/*
 * function.c
 *	  Runs a function by its OID, on values of its parameters' types.
 *
 * The call is built as the parser would build it, but for a function that is
 * already known, so that overloads cannot get in the way.  It runs as the
 * caller, whose EXECUTE privilege was checked; a SECURITY DEFINER function
 * changes identity by itself.
 *
 * Each value of the result goes to a sink, which makes of it what its caller
 * needs.  A function that returns no set is invoked directly, which keeps a NULL
 * composite apart from a row of NULLs; one that does goes through the
 * executor's function scan into a tuplestore, in order.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/objectaccess.h"
#include "executor/executor.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "pgstat.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "function.h"

/*
 * The call as an expression over constants.
 */
static FuncExpr *
function_make_expr(const IdemFunction *function, Oid collation,
				   const Datum *values, const bool *nulls)
{
	List	   *args = NIL;
	FuncExpr   *expr;

	for (int i = 0; i < function->nargs; i++)
	{
		Oid			type = function->argtypes[i];
		int16		len;
		bool		byval;

		get_typlenbyval(type, &len, &byval);
		args = lappend(args, makeConst(type, -1, get_typcollation(type), len,
									   nulls[i] ? (Datum) 0 : values[i],
									   nulls[i], byval));
	}
	expr = makeNode(FuncExpr);
	*expr = *function->expr;
	expr->inputcollid = collation;
	expr->args = args;
	return expr;
}

static void
function_run_plain(const IdemFunction *function, Oid collation,
				   Datum *values, bool *nulls,
				   IdemFunctionSink sink, void *arg)
{
	LOCAL_FCINFO(fcinfo, FUNC_MAX_ARGS);
	FmgrInfo	flinfo;
	PgStat_FunctionCallUsage usage;
	Datum		result = (Datum) 0;
	bool		call = true;

	fmgr_info_copy(&flinfo, unconstify(FmgrInfo *, &function->flinfo),
				   CurrentMemoryContext);
	InitFunctionCallInfoData(*fcinfo, &flinfo, function->nargs, collation,
							 NULL, NULL);
	for (int i = 0; i < function->nargs; i++)
	{
		fcinfo->args[i].value = values[i];
		fcinfo->args[i].isnull = nulls[i];
		if (nulls[i] && function->strict)
			call = false;
	}
	fcinfo->isnull = !call;
	if (call)
	{
		InvokeFunctionExecuteHook(function->oid);
		pgstat_init_function_usage(fcinfo, &usage);
		result = FunctionCallInvoke(fcinfo);
		pgstat_end_function_usage(&usage, true);
	}
	sink(result, fcinfo->isnull || function->rettype == VOIDOID, arg);
}

static void
function_run_set(const IdemFunction *function, FuncExpr *expr,
				 IdemFunctionSink sink, void *arg)
{
	EState	   *estate = CreateExecutorState();
	ExprContext *econtext;
	MemoryContext arg_context;
	MemoryContext caller;
	SetExprState *setexpr;
	TupleDesc	desc = function->resultdesc;
	Tuplestorestate *store;
	TupleTableSlot *slot;

	if (desc == NULL)
	{
		desc = CreateTemplateTupleDesc(1);
		TupleDescInitEntry(desc, 1, function->name, function->rettype, -1, 0);
		TupleDescInitEntryCollation(desc, 1,
									get_typcollation(function->rettype));
	}

	caller = MemoryContextSwitchTo(estate->es_query_cxt);
	econtext = CreateExprContext(estate);
	arg_context = AllocSetContextCreate(estate->es_query_cxt,
										"idem function arguments",
										ALLOCSET_DEFAULT_SIZES);
	setexpr = ExecInitTableFunctionResult((Expr *) expr, econtext, NULL);
	store = ExecMakeTableFunctionResult(setexpr, econtext, arg_context, desc,
										false);
	slot = MakeSingleTupleTableSlot(desc, &TTSOpsMinimalTuple);
	MemoryContextSwitchTo(caller);

	while (tuplestore_gettupleslot(store, true, false, slot))
	{
		bool		isnull = false;
		Datum		value;

		CHECK_FOR_INTERRUPTS();
		if (function->resultdesc != NULL)
			value = ExecFetchSlotHeapTupleDatum(slot);
		else
			value = slot_getattr(slot, 1, &isnull);
		sink(value, isnull || function->rettype == VOIDOID, arg);
	}

	ExecDropSingleTupleTableSlot(slot);
	tuplestore_end(store);
	FreeExecutorState(estate);
}

/*
 * Calls the function under a collation and hands each value of its result to
 * "sink", in order: exactly one, unless it returns a set.
 */
void
idem_function_run(const IdemFunction *function, Oid collation,
				  Datum *values, bool *nulls,
				  IdemFunctionSink sink, void *arg)
{
	/* what a former holder committed while we slept is there for it to see */
	PushActiveSnapshot(GetTransactionSnapshot());
	if (function->retset)
		function_run_set(function, function_make_expr(function, collation,
													  values, nulls),
						 sink, arg);
	else
		function_run_plain(function, collation, values, nulls, sink, arg);
	PopActiveSnapshot();
}
