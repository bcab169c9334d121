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
 * In idem.key, column "result" begins with the result type as text.  A value
 * whose type is no longer the recorded one is an error, not a guess.
 *
 * Settings are pinned only where they matter to a type of the function's, since
 * that costs more than the rest of a replay.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
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
#include "twin.h"


PG_FUNCTION_INFO_V1(idem_twin);
PG_FUNCTION_INFO_V1(idem_twin_value);

/*
 * Pins all settings that a type's output or input could follow, until
 * AtEOXact_GUC() of the level returned.  What a user made may look up other
 * objects by search_path, so that a cast of his runs under the caller's.
 */
int
idem_twin_pin_settings(bool search_path)
{
	static const char *const settings[][2] = {
		{"search_path", "pg_catalog, pg_temp"},
		{"datestyle", "ISO, YMD"},
		{"intervalstyle", "postgres"},
		{"timezone", "UTC"},
		{"extra_float_digits", "3"},
		{"bytea_output", "hex"},
		{"array_nulls", "on"},
		{"quote_all_identifiers", "off"},
		{"xmlbinary", "base64"},
		{"xmloption", "content"},
		{"lc_monetary", "C"}
	};
	int			nestlevel = NewGUCNestLevel();

	for (int i = search_path ? 0 : 1; i < lengthof(settings); i++)
		(void) set_config_option(settings[i][0], settings[i][1],
								 PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE,
								 true, 0, false);
	return nestlevel;
}

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
} TwinResult;

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

	if (function->result_has_cast)
	{
		nestlevel = idem_twin_pin_settings(false);
		idem_function_json_add(value, isnull, &result->json);
		AtEOXact_GUC(true, nestlevel);
	}
	if (function->settings_matter)
		nestlevel = idem_twin_pin_settings(true);
	if (!function->result_has_cast)
		idem_function_json_add(value, isnull, &result->json);
	if (!isnull)
		printed = OidOutputFunctionCall(result->output, value);
	if (function->settings_matter)
		AtEOXact_GUC(true, nestlevel);
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
 * What is recorded: the result type, a newline, and of a set an array literal
 * of the values' texts, of one value nothing if it is NULL, else "=" and its
 * text.
 */
static text *
twin_record_result(TwinResult *result)
{
	const IdemFunction *function = result->function;
	StringInfoData buf;

	initStringInfo(&buf);
	appendStringInfo(&buf, "%s\n", function->result_type);
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

/*
 * A recorded value, from its text.  It may not fit a type that was altered
 * since; the error of the type's input would quote it.
 */
static Datum
twin_read_value(TwinResult *result, char *printed)
{
	MemoryContext context = CurrentMemoryContext;
	volatile Datum value = (Datum) 0;

	PG_TRY();
	{
		value = OidInputFunctionCall(result->input, printed,
									 result->input_param, result->typmod);
	}
	PG_CATCH();
	{
		const char *sqlstate = idem_function_reword(context);

		ereport(ERROR,
				(errcode(ERRCODE_IDEM_MISUSE),
				 errmsg("recorded result of function %s does not fit its type any more",
						result->function->identity),
				 errdetail("Reading it failed with SQLSTATE %s.", sqlstate),
				 errhint("idem_call() returns the recorded result as JSON."),
				 errhidestmt(true)));
	}
	PG_END_TRY();
	return value;
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
		Datum		value = (Datum) 0;

		CHECK_FOR_INTERRUPTS();
		if (!nulls[i])
			value = twin_read_value(result, TextDatumGetCString(elems[i]));
		twin_return(result, value, nulls[i]);
	}
}

/*
 * Returns what was recorded.
 */
static void
twin_replay(TwinResult *result, const IdemRow *recorded)
{
	const IdemFunction *function = result->function;
	const char *type = function->result_type;
	bool		pin = function->settings_matter || function->retset;
	char	   *text_form;
	char	   *literal;
	int			nestlevel = 0;

	if (recorded->nulls[IDEM_COL_RESULT])
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_MISUSE),
				 errmsg("idem key was recorded without a typed result"),
				 errdetail("It was completed by another way than a twin of function %s.",
						   function->identity),
				 errhint("Use idem_call() or idem_claim() for this key."),
				 errhidestmt(true)));

	text_form = TextDatumGetCString(recorded->values[IDEM_COL_RESULT]);
	literal = strchr(text_form, '\n');
	if (literal == NULL)
		elog(ERROR, "recorded result has no type");
	*literal++ = '\0';
	if (strcmp(text_form, type) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_MISUSE),
				 errmsg("recorded result of function %s has another type",
						function->identity),
				 errdetail("It was recorded as %s; now the function returns %s.",
						   text_form, type),
				 errhint("idem_call() returns the recorded result as JSON."),
				 errhidestmt(true)));

	if (pin)
		nestlevel = idem_twin_pin_settings(true);
	if (function->retset)
		twin_replay_set(result, literal);
	else if (*literal == '=')
		twin_return(result, twin_read_value(result, literal + 1), false);
	else
		twin_return(result, (Datum) 0, true);
	if (pin)
		AtEOXact_GUC(true, nestlevel);
}

/*
 * A json value as jsonb, so that it counts by what it says; NULL if jsonb does
 * not take it.
 */
static Jsonb *
twin_try_jsonb(const char *json)
{
	MemoryContext context = CurrentMemoryContext;
	Jsonb	   *volatile jsonb = NULL;

	PG_TRY();
	{
		jsonb = DatumGetJsonbP(DirectFunctionCall1(jsonb_in,
												   CStringGetDatum(json)));
	}
	PG_CATCH();
	{
		(void) idem_function_reword(context);
	}
	PG_END_TRY();
	return jsonb;
}

/*
 * Appends member "name" for an argument.  A JSON null is not the NULL that
 * it would look like, and json that jsonb does not take counts by its text;
 * both stand under another name.
 */
static void
twin_append_argument(StringInfo buf, int n, Oid type, Datum value,
					 bool isnull)
{
	char	   *json = NULL;
	Jsonb	   *jsonb = NULL;

	if (!isnull && type == JSONOID)
	{
		json = TextDatumGetCString(value);
		jsonb = twin_try_jsonb(json);
	}
	else if (!isnull && type == JSONBOID)
		jsonb = DatumGetJsonbP(value);

	if (json != NULL && jsonb == NULL)
	{
		appendStringInfo(buf, "\"%d text\":", n);
		escape_json(buf, json);
	}
	else if (jsonb != NULL && JB_ROOT_IS_SCALAR(jsonb) &&
			 getIthJsonbValueFromContainer(&jsonb->root, 0)->type == jbvNull)
		appendStringInfo(buf, "\"%d json\":null", n);
	else
	{
		appendStringInfo(buf, "\"%d\":", n);
		idem_function_append_json(buf, type, value, isnull);
	}
}

/*
 * The arguments of a twin, which begin at "first", and whose types must be the
 * original's.
 */
static Jsonb *
twin_take_arguments(FunctionCallInfo fcinfo, int first,
					const IdemFunction *function, Datum *values, bool *nulls)
{
	MemoryContext context = CurrentMemoryContext;
	Jsonb	   *volatile arguments = NULL;
	StringInfoData buf;

	if (PG_NARGS() - first != function->nargs)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_BAD_ARGUMENT),
				 errmsg("function %s has %d parameters, not %d",
						function->identity, function->nargs,
						PG_NARGS() - first),
				 errhint("Wrap it anew with idem_wrap()."),
				 errhidestmt(true)));

	initStringInfo(&buf);
	appendStringInfoChar(&buf, '{');
	for (int i = 0; i < function->nargs; i++)
	{
		Oid			type = function->argtypes[i];
		int			nestlevel = 0;

		if (get_fn_expr_argtype(fcinfo->flinfo, i + first) != type)
			ereport(ERROR,
					(errcode(ERRCODE_IDEM_BAD_ARGUMENT),
					 errmsg("argument %d of function %s has another type",
							i + 1, function->identity),
					 errhint("Wrap it anew with idem_wrap()."),
					 errhidestmt(true)));
		nulls[i] = PG_ARGISNULL(i + first);
		values[i] = nulls[i] ? (Datum) 0 : PG_GETARG_DATUM(i + first);
		if (i > 0)
			appendStringInfoChar(&buf, ',');
		if (function->settings_matter)
			nestlevel = idem_twin_pin_settings(!idem_function_has_cast(type));
		twin_append_argument(&buf, i + 1, type, values[i], nulls[i]);
		if (function->settings_matter)
			AtEOXact_GUC(true, nestlevel);
	}
	appendStringInfoChar(&buf, '}');

	PG_TRY();
	{
		arguments = DatumGetJsonbP(DirectFunctionCall1(jsonb_in,
													   CStringGetDatum(buf.data)));
	}
	PG_CATCH();
	{
		const char *sqlstate = idem_function_reword(context);

		ereport(ERROR,
				(errcode(ERRCODE_IDEM_BAD_ARGUMENT),
				 errmsg("arguments of function %s have no fingerprint",
						function->identity),
				 errdetail("Their conversion to jsonb failed with SQLSTATE %s.",
						   sqlstate),
				 errhidestmt(true)));
	}
	PG_END_TRY();
	return arguments;
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
			 TupleDescAttr(desc, 0)->atttypid == function->rettype);

	if (desc->natts != expected->natts)
		return false;
	for (int i = 0; i < desc->natts; i++)
	{
		if (TupleDescAttr(desc, i)->atttypid !=
			TupleDescAttr(expected, i)->atttypid)
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
	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_BAD_ARGUMENT),
				 errmsg("argument \"function\" is missing"),
				 errhidestmt(true)));
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

	call->arguments = twin_take_arguments(fcinfo, first, call->function,
										  values, nulls);
	if (!idem_call_begin(call))
	{
		twin_replay(result, &call->row);
		return;
	}
	idem_function_json_begin(&result->json, call->function);
	idem_call_run(call, values, nulls, twin_take_value, result);
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
	if (call.function->retset ||
		type != (call.function->rettype == VOIDOID ?
				 BOOLOID : call.function->rettype))
		twin_refuse_result(call.function);
	twin_call(fcinfo, 3, &call, &result);
	if (result.isnull)
		PG_RETURN_NULL();
	PG_RETURN_DATUM(result.value);
}
