/*
 * wrap.c
 *	  SQL functions idem_wrap and idem_twin: typed twins of functions.
 *
 * A twin is a PL/pgSQL function of the caller's, with the original's parameters
 * and result type behind one more parameter, the key.  Its body calls
 * idem_twin_value() or idem_twin(), which are idem_call() for values that are
 * typed already, and return what the original returned the first time: value for value,
 * since beside the JSON it keeps each value's type output text, written and
 * read under pinned settings.  JSON alone would lose digits of floats, bounds
 * of arrays and JSON nulls.
 *
 * In idem.key, column "result" is the result type as text, a newline, and an
 * array literal of the values' texts.  A value whose type is no longer the
 * recorded one is an error, not a guess.
 *
 * The body names the original by its signature in text, so that a dump
 * restores twins in any order; a twin whose original is gone says so when it
 * is called.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/namespace.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
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
#include "utils/regproc.h"
#include "utils/syscache.h"
#include "utils/varlena.h"

#include "call.h"
#include "compat.h"
#include "errors.h"

PG_FUNCTION_INFO_V1(idem_twin);
PG_FUNCTION_INFO_V1(idem_twin_value);
PG_FUNCTION_INFO_V1(idem_wrap);

/* the twin's own parameter, in front of the original's */
#define KEY_PARAMETER	"idem_key"

/*
 * Pins all settings that a type's output or input could follow, until
 * AtEOXact_GUC() of the level returned.  What a user made may look up other
 * objects by search_path, so that a cast of his runs under the caller's.
 */
static int
twin_pin_settings(bool search_path)
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
	ArrayBuildState *texts;
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
	Datum		printed = (Datum) 0;
	int			nestlevel = 0;

	if (function->result_has_cast)
	{
		nestlevel = twin_pin_settings(false);
		idem_function_json_add(value, isnull, &result->json);
		AtEOXact_GUC(true, nestlevel);
	}
	if (function->settings_matter)
		nestlevel = twin_pin_settings(true);
	if (!function->result_has_cast)
		idem_function_json_add(value, isnull, &result->json);
	if (!isnull)
		printed = CStringGetTextDatum(OidOutputFunctionCall(result->output,
															value));
	if (function->settings_matter)
		AtEOXact_GUC(true, nestlevel);
	result->texts = accumArrayResult(result->texts, printed, isnull, TEXTOID,
									 CurrentMemoryContext);
	twin_return(result, value, isnull);
}

static text *
twin_record_result(TwinResult *result)
{
	Datum		texts;
	Oid			output;
	bool		is_varlena;
	char	   *literal;

	if (result->texts != NULL)
		texts = makeArrayResult(result->texts, CurrentMemoryContext);
	else
		texts = PointerGetDatum(construct_empty_array(TEXTOID));
	getTypeOutputInfo(TEXTARRAYOID, &output, &is_varlena);
	literal = OidOutputFunctionCall(output, texts);
	return cstring_to_text(psprintf("%s\n%s",
									result->function->result_type,
									literal));
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
 * Returns what was recorded.
 */
static void
twin_replay(TwinResult *result, const IdemRow *recorded)
{
	char	   *text_form;
	char	   *literal;
	const char *type = result->function->result_type;
	Datum	   *elems;
	bool	   *nulls;
	int			nelems;
	int			nestlevel;
	Oid			input;
	Oid			input_param;

	if (recorded->nulls[IDEM_COL_RESULT])
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_MISUSE),
				 errmsg("idem key was recorded without a typed result"),
				 errdetail("It was completed by another way than a twin of function %s.",
						   result->function->identity),
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
						result->function->identity),
				 errdetail("It was recorded as %s; now the function returns %s.",
						   text_form, type),
				 errhint("idem_call() returns the recorded result as JSON."),
				 errhidestmt(true)));

	nestlevel = twin_pin_settings(true);
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
			nestlevel = twin_pin_settings(!idem_function_has_cast(type));
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

/*
 * Name and schema of the twin: as given, else the original's with "_once", of
 * a built-in function in the current schema.
 */
static void
wrap_choose_name(Oid function, text *given, char **schema, char **name)
{
	char	   *given_schema = NULL;

	if (given == NULL)
	{
		*name = psprintf("%s_once", get_func_name(function));
		if (strlen(*name) >= NAMEDATALEN)
			ereport(ERROR,
					(errcode(ERRCODE_NAME_TOO_LONG),
					 errmsg("name of the twin would be too long"),
					 errhint("Pass a name.")));
	}
	else
		DeconstructQualifiedName(textToQualifiedNameList(given),
								 &given_schema, name);
	if (given_schema != NULL &&
		(strcmp(given_schema, "pg_temp") == 0 ||
		 isAnyTempNamespace(get_namespace_oid(given_schema, true))))
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_BAD_ARGUMENT),
				 errmsg("a twin cannot be temporary"),
				 errdetail("What it recorded outlasts the session."),
				 errhint("Name a schema that is not temporary."),
				 errhidestmt(true)));
	if (given_schema != NULL)
		*schema = given_schema;
	else if (get_func_namespace(function) != PG_CATALOG_NAMESPACE)
		*schema = get_namespace_name(get_func_namespace(function));
	else
	{
		/* a dump would leave it out beside a built-in function */
		List	   *path = fetch_search_path(false);

		if (path == NIL)
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_SCHEMA),
					 errmsg("no schema has been selected to create in")));
		*schema = get_namespace_name(linitial_oid(path));
	}
}

/*
 * The column list that the twin's body reads the result through: "r", or "c1",
 * "c2" and so on.
 */
static char *
wrap_result_columns(const IdemFunction *function)
{
	StringInfoData buf;

	if (function->rettype != RECORDOID)
		return psprintf("r %s", function->rettype == VOIDOID ? "pg_catalog.bool" :
						format_type_be_qualified(function->rettype));

	initStringInfo(&buf);
	for (int i = 0; i < function->resultdesc->natts; i++)
		appendStringInfo(&buf, "%sc%d %s", i > 0 ? ", " : "", i + 1,
						 format_type_be_qualified(TupleDescAttr(function->resultdesc, i)->atttypid));
	return buf.data;
}

/*
 * The original's parameters as PL/pgSQL numbers them in the twin, where the key
 * is the first: those that go in, as a list, and those that come out.
 */
static void
wrap_number_parameters(Oid oid, StringInfo in, List **out)
{
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(oid));
	Oid		   *types;
	char	  **names;
	char	   *modes;
	int			nall;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for function %u", oid);
	nall = get_func_arg_info(tuple, &types, &names, &modes);
	for (int i = 0; i < nall; i++)
	{
		char		mode = modes == NULL ? PROARGMODE_IN : modes[i];

		if (mode != PROARGMODE_OUT && mode != PROARGMODE_TABLE)
			appendStringInfo(in, ", $%d", i + 2);
		if (mode == PROARGMODE_OUT || mode == PROARGMODE_INOUT)
			*out = lappend_int(*out, i + 2);
	}
	ReleaseSysCache(tuple);
}

/* the first line of a body says whose twin it is */
#define BODY_MARK	"-- the twin of "

/*
 * The body, in PL/pgSQL, whose plan a session keeps.  The original is named in
 * text, since a constant of it in a kept plan would outlive it.
 */
static char *
wrap_body(const IdemFunction *function, Oid own_schema)
{
	const char *schema = quote_identifier(get_namespace_name(own_schema));
	const char *original = quote_literal_cstr(function->identity);
	bool		is_void = function->rettype == VOIDOID;
	bool		is_row = function->rettype == RECORDOID;
	StringInfoData body;
	StringInfoData in;
	List	   *out = NIL;
	ListCell   *lc;

	initStringInfo(&in);
	wrap_number_parameters(function->oid, &in, &out);

	initStringInfo(&body);
	appendStringInfo(&body, BODY_MARK "%s\n#variable_conflict use_column\n",
					 original);
	if (is_void)
		appendStringInfoString(&body, "DECLARE\n\tdone pg_catalog.bool;\n");
	else if (is_row && !function->retset)
		appendStringInfoString(&body, "DECLARE\n\tresult pg_catalog.record;\n");
	appendStringInfoString(&body, "BEGIN\n\t");

	if (function->retset || is_row)
		appendStringInfo(&body, "%s FROM %s.idem_twin(%s, $1%s) AS t(%s);\n",
						 !function->retset ? "SELECT * INTO result" :
						 is_row ? "RETURN QUERY SELECT *" :
						 function->resultdesc != NULL ?
						 "RETURN QUERY SELECT (t.r).*" :
						 "RETURN QUERY SELECT t.r",
						 schema, original, in.data,
						 wrap_result_columns(function));
	else
		appendStringInfo(&body, "%s %s.idem_twin_value(%s, $1, NULL::%s%s);\n",
						 is_void ? "done :=" : out == NIL ? "RETURN" :
						 psprintf("$%d :=", linitial_int(out)),
						 schema, original, is_void ? "pg_catalog.bool" :
						 format_type_be_qualified(function->rettype), in.data);

	if (is_row && !function->retset)
	{
		foreach(lc, out)
			appendStringInfo(&body, "\t$%d := result.c%d;\n", lfirst_int(lc),
							 foreach_current_index(lc) + 1);
	}
	appendStringInfoString(&body, "END");
	return body.data;
}

/*
 * Whether the name is taken by a twin of the same function already, with the
 * same parameters: that one may be replaced.
 */
static bool
wrap_is_twin(const IdemFunction *function, const char *schema,
			 const char *name, const char *body)
{
	oidvector  *types;
	Oid			all[FUNC_MAX_ARGS + 1];
	HeapTuple	tuple;
	Datum		source;
	bool		isnull;
	bool		twin;

	all[0] = TEXTOID;
	memcpy(all + 1, function->argtypes, function->nargs * sizeof(Oid));
	types = buildoidvector(all, function->nargs + 1);
	tuple = SearchSysCache3(PROCNAMEARGSNSP, CStringGetDatum(name),
							PointerGetDatum(types),
							ObjectIdGetDatum(get_namespace_oid(schema, false)));
	if (!HeapTupleIsValid(tuple))
		return false;
	source = SysCacheGetAttr(PROCNAMEARGSNSP, tuple, Anum_pg_proc_prosrc,
							 &isnull);
	/* the rest follows from the result type, which may have changed */
	twin = !isnull && strncmp(TextDatumGetCString(source), body,
							  strstr(body, "\n#") - body) == 0;
	ReleaseSysCache(tuple);
	return twin;
}

/*
 * idem_wrap(function, name) -> regprocedure
 */
Datum
idem_wrap(PG_FUNCTION_ARGS)
{
	IdemFunction *function;
	char	   *schema;
	char	   *name;
	char	   *body;
	char	   *parameters;
	StringInfoData command;
	StringInfoData signature;
	int			nestlevel;
	Datum		twin;

	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_BAD_ARGUMENT),
				 errmsg("argument \"function\" is missing"),
				 errhidestmt(true)));
	PreventCommandIfReadOnly("idem_wrap()");
	function = idem_function_acquire(PG_GETARG_OID(0));
	if (function->nargs > FUNC_MAX_ARGS - 3)
		ereport(ERROR,
				(errcode(ERRCODE_TOO_MANY_ARGUMENTS),
				 errmsg("function %s has no room for one more parameter",
						function->identity)));
	for (int i = 0; i < function->nargs; i++)
	{
		if (function->argnames[i] != NULL &&
			strcmp(function->argnames[i], KEY_PARAMETER) == 0)
			ereport(ERROR,
					(errcode(ERRCODE_IDEM_BAD_ARGUMENT),
					 errmsg("function %s has a parameter \"%s\" already",
							function->identity, KEY_PARAMETER)));
	}
	wrap_choose_name(function->oid,
					 PG_ARGISNULL(1) ? NULL : PG_GETARG_TEXT_PP(1),
					 &schema, &name);

	/* so that every type in the text below is qualified */
	nestlevel = twin_pin_settings(true);
	body = wrap_body(function, get_func_namespace(fcinfo->flinfo->fn_oid));
	parameters = TextDatumGetCString(DirectFunctionCall1(pg_get_function_arguments,
														 ObjectIdGetDatum(function->oid)));
	initStringInfo(&command);
	appendStringInfo(&command,
					 "CREATE %sFUNCTION %s(" KEY_PARAMETER " pg_catalog.text%s%s)"
					 " RETURNS %s LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE AS %s",
					 wrap_is_twin(function, schema, name, body) ?
					 "OR REPLACE " : "",
					 quote_qualified_identifier(schema, name),
					 parameters[0] != '\0' ? ", " : "", parameters,
					 TextDatumGetCString(DirectFunctionCall1(pg_get_function_result,
															 ObjectIdGetDatum(function->oid))),
					 quote_literal_cstr(body));
	SPI_connect();
	if (SPI_execute(command.data, false, 0) != SPI_OK_UTILITY)
		elog(ERROR, "could not create the twin");
	SPI_finish();

	initStringInfo(&signature);
	appendStringInfo(&signature, "%s(pg_catalog.text",
					 quote_qualified_identifier(schema, name));
	for (int i = 0; i < function->nargs; i++)
		appendStringInfo(&signature, ",%s",
						 format_type_be_qualified(function->argtypes[i]));
	appendStringInfoChar(&signature, ')');
	twin = DirectFunctionCall1(regprocedurein, CStringGetDatum(signature.data));
	AtEOXact_GUC(true, nestlevel);
	PG_RETURN_DATUM(twin);
}
