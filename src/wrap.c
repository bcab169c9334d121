/*
 * wrap.c
 *	  SQL functions idem_wrap and idem_twin: typed twins of functions.
 *
 * A twin is an SQL function of the caller's, with the original's parameters
 * and result type behind one more parameter, the key.  Its body calls
 * idem_twin(), which is idem_call() for values that are typed already, and
 * which returns what the original returned the first time: value for value,
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
PG_FUNCTION_INFO_V1(idem_wrap);

/* the twin's own parameter, in front of the original's */
#define KEY_PARAMETER	"idem_key"

/*
 * Pins all settings that a type's output or input could follow, until
 * AtEOXact_GUC() of the level returned.
 */
static int
twin_pin_settings(void)
{
	static const char *const settings[][2] = {
		{"datestyle", "ISO, YMD"},
		{"intervalstyle", "postgres"},
		{"timezone", "UTC"},
		{"extra_float_digits", "3"},
		{"bytea_output", "hex"},
		{"array_nulls", "on"},
		{"quote_all_identifiers", "off"},
		{"xmlbinary", "base64"},
		{"xmloption", "content"},
		{"lc_monetary", "C"},
		{"search_path", "pg_catalog, pg_temp"}
	};
	int			nestlevel = NewGUCNestLevel();

	for (int i = 0; i < lengthof(settings); i++)
		(void) set_config_option(settings[i][0], settings[i][1],
								 PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE,
								 true, 0, false);
	return nestlevel;
}

/* where the values of a result go: to the caller, and into the record */
typedef struct TwinResult
{
	const IdemFunction *function;
	ReturnSetInfo *rsinfo;
	IdemFunctionJson json;
	ArrayBuildState *texts;
	bool		pinned;			/* settings */
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

	if (result->function->rettype == RECORDOID)
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
	Datum		printed = (Datum) 0;

	/* the function is through by now; idem_call_run() ends this level too */
	if (!result->pinned)
		(void) twin_pin_settings();
	result->pinned = true;

	idem_function_json_add(value, isnull, &result->json);
	if (!isnull)
		printed = CStringGetTextDatum(OidOutputFunctionCall(result->output,
															value));
	result->texts = accumArrayResult(result->texts, printed, isnull, TEXTOID,
									 CurrentMemoryContext);
	twin_return(result, value, isnull);
}

/*
 * The result type as the record names it.
 */
static char *
twin_result_type(const IdemFunction *function)
{
	int			nestlevel = twin_pin_settings();
	char	   *type;

	if (function->rettype == RECORDOID)
	{
		StringInfoData buf;

		initStringInfo(&buf);
		for (int i = 0; i < function->resultdesc->natts; i++)
			appendStringInfo(&buf, "%s%s", i > 0 ? "," : "",
							 format_type_be_qualified(TupleDescAttr(function->resultdesc, i)->atttypid));
		type = psprintf("record(%s)", buf.data);
	}
	else
		type = format_type_be_qualified(function->rettype);
	if (function->retset)
		type = psprintf("setof %s", type);
	AtEOXact_GUC(true, nestlevel);
	return type;
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
									twin_result_type(result->function),
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
	char	   *type = twin_result_type(result->function);
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

	nestlevel = twin_pin_settings();
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
 * The arguments of a twin, whose types must be the original's.
 */
static Jsonb *
twin_take_arguments(FunctionCallInfo fcinfo, const IdemFunction *function,
					Datum *values, bool *nulls)
{
	MemoryContext context = CurrentMemoryContext;
	Jsonb	   *volatile arguments = NULL;
	StringInfoData buf;
	int			nestlevel;

	if (PG_NARGS() - 2 != function->nargs)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_BAD_ARGUMENT),
				 errmsg("function %s has %d parameters, not %d",
						function->identity, function->nargs, PG_NARGS() - 2),
				 errhint("Wrap it anew with idem_wrap()."),
				 errhidestmt(true)));

	nestlevel = twin_pin_settings();
	initStringInfo(&buf);
	appendStringInfoChar(&buf, '{');
	for (int i = 0; i < function->nargs; i++)
	{
		if (get_fn_expr_argtype(fcinfo->flinfo, i + 2) != function->argtypes[i])
			ereport(ERROR,
					(errcode(ERRCODE_IDEM_BAD_ARGUMENT),
					 errmsg("argument %d of function %s has another type",
							i + 1, function->identity),
					 errhint("Wrap it anew with idem_wrap()."),
					 errhidestmt(true)));
		nulls[i] = PG_ARGISNULL(i + 2);
		values[i] = nulls[i] ? (Datum) 0 : PG_GETARG_DATUM(i + 2);
		appendStringInfo(&buf, "%s\"%d\":", i > 0 ? "," : "", i + 1);
		/* json may hold what jsonb cannot; it counts by its text */
		if (function->argtypes[i] == JSONOID && !nulls[i])
			escape_json(&buf, TextDatumGetCString(values[i]));
		else
			idem_function_append_json(&buf, function->argtypes[i], values[i],
									  nulls[i]);
	}
	appendStringInfoChar(&buf, '}');
	AtEOXact_GUC(true, nestlevel);

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
twin_prepare_result(TwinResult *result, FunctionCallInfo fcinfo,
					const IdemFunction *function)
{
	bool		is_varlena;

	memset(result, 0, sizeof(TwinResult));
	result->function = function;
	result->rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	result->typmod = -1;
	if (function->rettype == RECORDOID)
		result->typmod = function->resultdesc->tdtypmod;
	if (function->rettype != VOIDOID)
	{
		getTypeOutputInfo(function->rettype, &result->output, &is_varlena);
		getTypeInputInfo(function->rettype, &result->input,
						 &result->input_param);
	}

	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	if (!twin_fits(function, result->rsinfo->setDesc))
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_MISUSE),
				 errmsg("function %s does not return what its twin does",
						function->identity),
				 errhint("Drop the twin, and wrap the function anew with idem_wrap()."),
				 errhidestmt(true)));
}

/*
 * idem_twin(function, key, arguments ...) -> SETOF record
 *
 * Called by the body of a twin, with a column list of the result: one column
 * of the result type, or those of an anonymous record.
 */
Datum
idem_twin(PG_FUNCTION_ARGS)
{
	IdemCall	call;
	TwinResult	result;
	Datum		values[FUNC_MAX_ARGS];
	bool		nulls[FUNC_MAX_ARGS];

	idem_call_prepare(&call, PG_ARGISNULL(1) ? NULL : PG_GETARG_TEXT_PP(1),
					  NULL);
	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_BAD_ARGUMENT),
				 errmsg("argument \"function\" is missing"),
				 errhidestmt(true)));
	call.function = idem_function_acquire(PG_GETARG_OID(0));
	twin_prepare_result(&result, fcinfo, call.function);
	call.arguments = twin_take_arguments(fcinfo, call.function,
										 values, nulls);

	if (!idem_call_begin(&call))
		twin_replay(&result, &call.row);
	else
	{
		idem_function_json_begin(&result.json, call.function);
		idem_call_run(&call, values, nulls, twin_take_value, &result);
		idem_call_end(&call, idem_function_json_end(&result.json),
					  twin_record_result(&result));
	}
	PG_RETURN_NULL();
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
 * The column list that the twin's body reads the result through.
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
	{
		Form_pg_attribute column = TupleDescAttr(function->resultdesc, i);

		appendStringInfo(&buf, "%s%s %s", i > 0 ? ", " : "",
						 quote_identifier(NameStr(column->attname)),
						 format_type_be_qualified(column->atttypid));
	}
	return buf.data;
}

static char *
wrap_body(const IdemFunction *function, Oid own_schema)
{
	StringInfoData buf;

	initStringInfo(&buf);
	appendStringInfo(&buf, "SELECT %s FROM %s.idem_twin(%s::pg_catalog.regprocedure, $1",
					 function->rettype == RECORDOID ? "*" : "r",
					 quote_identifier(get_namespace_name(own_schema)),
					 quote_literal_cstr(function->identity));
	for (int i = 0; i < function->nargs; i++)
		appendStringInfo(&buf, ", $%d", i + 2);
	appendStringInfo(&buf, ") AS t(%s)", wrap_result_columns(function));
	return buf.data;
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
	/* up to the column list, which a changed result type changes */
	twin = !isnull && strncmp(TextDatumGetCString(source), body,
							  strstr(body, " AS t(") - body) == 0;
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
	if (function->nargs >= FUNC_MAX_ARGS - 1)
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
	nestlevel = twin_pin_settings();
	body = wrap_body(function, get_func_namespace(fcinfo->flinfo->fn_oid));
	parameters = TextDatumGetCString(DirectFunctionCall1(pg_get_function_arguments,
														 ObjectIdGetDatum(function->oid)));
	initStringInfo(&command);
	appendStringInfo(&command,
					 "CREATE %sFUNCTION %s(" KEY_PARAMETER " pg_catalog.text%s%s)"
					 " RETURNS %s LANGUAGE sql VOLATILE PARALLEL UNSAFE AS %s",
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
