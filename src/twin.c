/*
 * twin.c
 *	  SQL functions idem_twin and idem_twin_value: what a twin's body calls.
 *
 * They are idem_call() for values that are typed already, and return what the
 * original returned the first time: value for value, since beside the JSON
 * they keep each value's type output text, written and read under pinned
 * settings.  JSON alone would lose digits of floats, bounds of arrays and JSON
 * nulls.
 *
 * In idem.key, column "result" begins with the result type as text and the
 * digest of its shape (shape.c).  A value whose type is no longer the recorded
 * one, or that does not read as it was written, is an error, not a guess.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "nodes/primnodes.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/guc.h"
#include "utils/json.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

#include "call.h"
#include "compat.h"
#include "errors.h"
#include "shape.h"
#include "typed.h"

PG_FUNCTION_INFO_V1(idem_twin);
PG_FUNCTION_INFO_V1(idem_twin_value);

/* where the values of a result go: to the caller, and into the record */
typedef struct TwinResult
{
	const IdemFunction *function;
	ReturnSetInfo *rsinfo;		/* NULL: one value is asked for */
	Datum		value;
	bool		isnull;
	IdemFunctionJson json;
	ArrayBuildState *texts;		/* of a set's values */
	char	   *printed;		/* one value; NULL: it is */
	Oid			output;			/* of the result type */
	Oid			input;
	Oid			input_param;
	int32		typmod;
	bool		not_run;		/* strict, and an argument is NULL */
} TwinResult;

/*
 * Settings are pinned only where some value follows them.
 */
static int
twin_pin(int settings)
{
	return settings == 0 ? 0 : idem_shape_pin_settings(settings);
}

static void
twin_unpin(int nestlevel)
{
	if (nestlevel != 0)
		AtEOXact_GUC(true, nestlevel);
}

/*
 * One value to the caller: as one column, or an anonymous record's as many.
 */
static void
twin_return(TwinResult *result, Datum value, bool isnull)
{
	TupleDesc	desc = result->function->resultdesc;

	if (result->rsinfo == NULL)
	{
		result->value = value;
		result->isnull = isnull;
	}
	else if (result->function->rettype == RECORDOID)
	{
		Datum	   *values = palloc(desc->natts * sizeof(Datum));
		bool	   *nulls = palloc(desc->natts * sizeof(bool));

		memset(nulls, true, desc->natts * sizeof(bool));
		if (!isnull)
		{
			HeapTupleData tuple;

			tuple.t_data = DatumGetHeapTupleHeader(value);
			tuple.t_len = HeapTupleHeaderGetDatumLength(tuple.t_data);
			ItemPointerSetInvalid(&tuple.t_self);
			tuple.t_tableOid = InvalidOid;
			heap_deform_tuple(&tuple, desc, values, nulls);
		}
		tuplestore_putvalues(result->rsinfo->setResult,
							 result->rsinfo->setDesc, values, nulls);
	}
	else
		tuplestore_putvalues(result->rsinfo->setResult,
							 result->rsinfo->setDesc, &value, &isnull);
}

/*
 * An IdemFunctionSink.
 */
static void
twin_take_value(Datum value, bool isnull, void *arg)
{
	TwinResult *result = (TwinResult *) arg;
	const IdemFunction *function = result->function;
	char	   *printed = NULL;
	int			nestlevel = 0;

	/* a user's cast to json finds what it uses by the caller's search_path */
	nestlevel = twin_pin(function->result_settings & ~IDEM_SETTINGS_PATH);
	idem_function_json_add(value, isnull, &result->json);
	twin_unpin(nestlevel);
	if (!isnull)
	{
		nestlevel = twin_pin(function->result_settings);
		printed = OidOutputFunctionCall(result->output, value);
		twin_unpin(nestlevel);
	}
	if (function->retset)
		result->texts = accumArrayResult(result->texts, isnull ? (Datum) 0 :
										 CStringGetTextDatum(printed),
										 isnull, TEXTOID,
										 CurrentMemoryContext);
	else
		result->printed = printed;
	twin_return(result, value, isnull);
}

/*
 * What is recorded: the result type, the digest of its shape, each with a
 * newline behind it, and of a set an array literal of the values' texts, of
 * one value nothing if it is NULL, else "=" and its text.
 */
static text *
twin_record_result(TwinResult *result)
{
	const IdemFunction *function = result->function;
	StringInfoData buf;

	initStringInfo(&buf);
	appendStringInfo(&buf, "%s\n%s\n", function->result_type,
					 function->result_shape);
	if (function->retset)
	{
		Datum		texts;
		Oid			output;
		bool		is_varlena;

		if (result->texts != NULL)
			texts = makeArrayResult(result->texts, CurrentMemoryContext);
		else
			texts = PointerGetDatum(construct_empty_array(TEXTOID));
		getTypeOutputInfo(TEXTARRAYOID, &output, &is_varlena);
		appendStringInfoString(&buf, OidOutputFunctionCall(output, texts));
	}
	else if (result->printed != NULL)
	{
		appendStringInfoChar(&buf, '=');
		appendStringInfoString(&buf, result->printed);
	}
	return cstring_to_text_with_len(buf.data, buf.len);
}

static void
twin_report_unfit(const IdemFunction *function, const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_MISUSE),
			 errmsg("recorded result of function %s does not fit its type any more",
					function->identity),
			 errdetail_internal("%s", detail),
			 errhint("idem_call() returns the recorded result as JSON."),
			 errhidestmt(true)));
}

/*
 * A recorded value to the caller, from its text, which is NULL for NULL.  It
 * may not fit a type that was altered since; the error of the type's input
 * would quote it.
 */
static void
twin_return_recorded(TwinResult *result, char *printed)
{
	MemoryContext context = CurrentMemoryContext;
	volatile Datum value = (Datum) 0;
	const char *volatile sqlstate = NULL;

	/* what has no shape cannot have come to refuse NULL */
	if (printed == NULL &&
		(result->not_run || result->function->result_shape[0] == '\0'))
	{
		twin_return(result, (Datum) 0, true);
		return;
	}
	PG_TRY();
	{
		value = OidInputFunctionCall(result->input, printed,
									 result->input_param, result->typmod);
	}
	PG_CATCH();
	{
		sqlstate = idem_argument_reword(context,
										(result->function->result_settings &
										 IDEM_SETTINGS_PATH) != 0);
	}
	PG_END_TRY();
	if (sqlstate != NULL)
		twin_report_unfit(result->function,
						  psprintf("Reading it failed with SQLSTATE %s.",
								   sqlstate));

	/* a column's length or precision may cut it down without an error */
	if (printed != NULL && result->function->result_shape[0] != '\0' &&
		strcmp(OidOutputFunctionCall(result->output, value), printed) != 0)
		twin_report_unfit(result->function,
						  "It would read as another value.");
	twin_return(result, value, printed == NULL);
}

/*
 * The values of a recorded set, in order.
 */
static void
twin_replay_set(TwinResult *result, char *literal)
{
	Datum	   *elems;
	bool	   *nulls;
	int			nelems;
	Oid			input;
	Oid			input_param;

	getTypeInputInfo(TEXTARRAYOID, &input, &input_param);
	deconstruct_array(DatumGetArrayTypeP(OidInputFunctionCall(input, literal,
															  input_param,
															  -1)),
					  TEXTOID, -1, false, TYPALIGN_INT, &elems, &nulls,
					  &nelems);
	for (int i = 0; i < nelems; i++)
	{
		CHECK_FOR_INTERRUPTS();
		twin_return_recorded(result, nulls[i] ? NULL :
							 TextDatumGetCString(elems[i]));
	}
}

/*
 * Ends the line that begins here; returns where the next one begins.
 */
static char *
twin_next_line(char *line)
{
	char	   *end = strchr(line, '\n');

	if (end == NULL)
		elog(ERROR, "recorded result has no type");
	*end = '\0';
	return end + 1;
}

/*
 * Returns what was recorded.
 */
static void
twin_replay(TwinResult *result, const IdemRow *recorded)
{
	const IdemFunction *function = result->function;

	/* a set is in an array */
	int			settings = function->result_settings |
	(function->retset ? IDEM_SETTINGS_PLAIN : 0);
	char	   *recorded_type;
	char	   *shape;
	char	   *literal;
	int			nestlevel;

	if (recorded->nulls[IDEM_COL_RESULT])
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_MISUSE),
				 errmsg("idem key was recorded without a typed result"),
				 errdetail("It was completed by another way than a twin of function %s.",
						   function->identity),
				 errhint("Use idem_call() or idem_claim() for this key."),
				 errhidestmt(true)));

	recorded_type = TextDatumGetCString(recorded->values[IDEM_COL_RESULT]);
	shape = twin_next_line(recorded_type);
	literal = twin_next_line(shape);
	if (strcmp(recorded_type, function->result_type) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_MISUSE),
				 errmsg("recorded result of function %s has another type",
						function->identity),
				 errdetail("It was recorded as %s; now the function returns %s.",
						   recorded_type, function->result_type),
				 errhint("idem_call() returns the recorded result as JSON."),
				 errhidestmt(true)));
	if (strcmp(shape, function->result_shape) != 0)
		twin_report_unfit(function,
						  "Names, types or order of the columns of its type have changed since.");

	nestlevel = twin_pin(settings);
	if (function->retset)
		twin_replay_set(result, literal);
	else
		twin_return_recorded(result, *literal == '=' ? literal + 1 : NULL);
	twin_unpin(nestlevel);
}

/*
 * The arguments of a twin, which begin at "first", and whose types must be the
 * original's.
 */
static void
twin_take_arguments(FunctionCallInfo fcinfo, int first,
					const IdemFunction *function, IdemArguments *arguments,
					Datum *values, bool *nulls)
{
	int			nestlevel;

	if (PG_NARGS() - first != function->nargs)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_BAD_ARGUMENT),
				 errmsg("function %s has %d parameters, not %d",
						function->identity, function->nargs,
						PG_NARGS() - first),
				 errhint("Wrap it anew with idem_wrap()."),
				 errhidestmt(true)));

	nestlevel = twin_pin(function->argument_settings);
	arguments->count = function->nargs;
	for (int i = 0; i < function->nargs; i++)
	{
		Oid			type = function->argtypes[i];

		if (get_fn_expr_argtype(fcinfo->flinfo, i + first) != type)
			ereport(ERROR,
					(errcode(ERRCODE_IDEM_BAD_ARGUMENT),
					 errmsg("argument %d of function %s has another type",
							i + 1, function->identity),
					 errhint("Wrap it anew with idem_wrap()."),
					 errhidestmt(true)));
		nulls[i] = PG_ARGISNULL(i + first);
		values[i] = nulls[i] ? (Datum) 0 : PG_GETARG_DATUM(i + first);
		arguments->values[i] = idem_typed_value(type, values[i], nulls[i],
												&arguments->forms[i]);
	}
	twin_unpin(nestlevel);
}

/*
 * The collation that the twin's call would give the original: PL/pgSQL hands
 * down to every parameter what the parser derived of all arguments, the key
 * among them.  Where those conflict, each has its type's.  Where it is the
 * default one, and no parameter's type has that, it is the key's only: the
 * arguments that could have one were left to their defaults.
 */
static Oid
twin_collation(FunctionCallInfo fcinfo, int first,
			   const IdemFunction *function)
{
	List	   *args = castNode(FuncExpr, fcinfo->flinfo->fn_expr)->args;
	Oid			collations[FUNC_MAX_ARGS];
	bool		has_default = false;

	for (int i = 0; i < function->nargs; i++)
	{
		collations[i] = exprCollation(list_nth(args, i + first));
		has_default |= exprCollation(list_nth(function->expr->args, i)) ==
			DEFAULT_COLLATION_OID;
	}
	for (int i = 0; i < function->nargs && !has_default; i++)
	{
		if (collations[i] == DEFAULT_COLLATION_OID)
			return InvalidOid;
	}
	return idem_function_derive_collation(collations, function->nargs);
}

/*
 * Whether the column list that the twin reads the result through is what the
 * function returns.
 */
static bool
twin_fits(const IdemFunction *function, TupleDesc desc)
{
	TupleDesc	expected = function->resultdesc;

	if (function->rettype != RECORDOID)
		return desc->natts == 1 &&
			(function->rettype == VOIDOID ||
			 TupleDescAttr(desc, 0)->atttypid == function->rettype) &&
			(function->result_name == NULL ||
			 strcmp(NameStr(TupleDescAttr(desc, 0)->attname),
					function->result_name) == 0);

	if (desc->natts != expected->natts)
		return false;
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute have = TupleDescAttr(desc, i);
		Form_pg_attribute want = TupleDescAttr(expected, i);

		if (have->atttypid != want->atttypid ||
			strcmp(NameStr(have->attname), NameStr(want->attname)) != 0)
			return false;
	}
	return true;
}

static void
twin_refuse_result(const IdemFunction *function)
{
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_MISUSE),
			 errmsg("function %s does not return what its twin does",
					function->identity),
			 errhint("Drop the twin, and wrap the function anew with idem_wrap()."),
			 errhidestmt(true)));
}

static void
twin_prepare_result(TwinResult *result, const IdemFunction *function)
{
	bool		is_varlena;

	memset(result, 0, sizeof(TwinResult));
	result->function = function;
	result->isnull = true;
	result->typmod = -1;
	if (function->rettype == RECORDOID)
		result->typmod = function->resultdesc->tdtypmod;
	if (function->rettype != VOIDOID)
	{
		getTypeOutputInfo(function->rettype, &result->output, &is_varlena);
		getTypeInputInfo(function->rettype, &result->input,
						 &result->input_param);
	}
}

static void
twin_prepare_call(FunctionCallInfo fcinfo, IdemCall *call)
{
	idem_call_prepare(call, PG_ARGISNULL(1) ? NULL : PG_GETARG_TEXT_PP(1),
					  NULL);
	idem_require_argument(fcinfo, 0, "function");
	call->function = idem_function_acquire_named(PG_GETARG_TEXT_PP(0));
}

/*
 * Runs or replays, with the arguments that begin at "first".
 */
static void
twin_call(FunctionCallInfo fcinfo, int first, IdemCall *call,
		  TwinResult *result)
{
	Datum		values[FUNC_MAX_ARGS];
	bool		nulls[FUNC_MAX_ARGS];

	twin_take_arguments(fcinfo, first, call->function, &call->arguments,
						values, nulls);
	if (!idem_call_begin(call))
	{
		for (int i = 0; call->function->strict && i < call->function->nargs; i++)
			result->not_run |= nulls[i];
		twin_replay(result, &call->row);
		return;
	}
	idem_function_json_begin(&result->json, call->function);
	idem_call_run(call, twin_collation(fcinfo, first, call->function),
				  values, nulls, twin_take_value, result);
	idem_call_end(call, idem_function_json_end(&result->json),
				  twin_record_result(result));
}

/*
 * idem_twin(function, key, arguments ...) -> SETOF record
 *
 * Called by the body of a twin whose result is a set or an anonymous record,
 * with a column list: one column of the result type, or the record's.
 */
Datum
idem_twin(PG_FUNCTION_ARGS)
{
	IdemCall	call;
	TwinResult	result;

	twin_prepare_call(fcinfo, &call);
	twin_prepare_result(&result, call.function);
	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	result.rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	if (!twin_fits(call.function, result.rsinfo->setDesc))
		twin_refuse_result(call.function);
	twin_call(fcinfo, 2, &call, &result);
	PG_RETURN_NULL();
}

/*
 * idem_twin_value(function, key, NULL, arguments ...) -> the type of that NULL
 *
 * Called by the body of a twin whose result is one value; of a function that
 * returns void a NULL boolean.
 */
Datum
idem_twin_value(PG_FUNCTION_ARGS)
{
	IdemCall	call;
	TwinResult	result;
	Oid			type = get_fn_expr_rettype(fcinfo->flinfo);

	twin_prepare_call(fcinfo, &call);
	twin_prepare_result(&result, call.function);
	if (call.function->retset || call.function->result_name != NULL ||
		type != (call.function->rettype == VOIDOID ?
				 BOOLOID : call.function->rettype))
		twin_refuse_result(call.function);
	twin_call(fcinfo, 3, &call, &result);
	if (result.isnull)
		PG_RETURN_NULL();
	PG_RETURN_DATUM(result.value);
}
