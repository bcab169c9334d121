/*
 * argument.c
 *	  The arguments of a function from JSON: by name or by position, and as
 *	  values of its parameters' types.
 *
 * They are arranged by position first, so that one call is the same however it
 * was written, and converted only when the function is to run.  That is done
 * all at once by jsonb_to_record(), which knows arrays, composites and domains,
 * unless nothing is to be converted; what is missing is filled from the declared
 * defaults.
 *
 * Errors of a type's input quote the value, which may be a secret, and go to
 * the server's log.  They are taken back and told in other words.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/fmgroids.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/numeric.h"

#include "errors.h"
#include "function.h"

/* so many characters of a number without a fraction fit any int64 */
#define MAX_SURE_DIGITS	18

static void
arrange_refuse(const IdemFunction *function, const char *detail)
{
	StringInfoData accepted;

	initStringInfo(&accepted);
	for (int i = 0; i < function->nargs; i++)
		appendStringInfo(&accepted, "%s%s %s", i > 0 ? ", " : "",
						 function->argnames[i] != NULL ?
						 quote_identifier(function->argnames[i]) : "unnamed",
						 format_type_be(function->argtypes[i]));
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_BAD_ARGUMENT),
			 errmsg("arguments do not fit function %s", function->identity),
			 errdetail("%s", detail),
			 errhint("Its parameters are: %s.",
					 function->nargs > 0 ? accepted.data : "none"),
			 errhidestmt(true)));
}

/*
 * Returns how many of the given it found a parameter for.
 */
static int
arrange_by_name(const IdemFunction *function, JsonbContainer *given,
				IdemArguments *arguments)
{
	int			matched = 0;

	for (int i = 0; i < function->nargs; i++)
	{
		const char *name = function->argnames[i];

		if (name == NULL)
			continue;
		arguments->values[i] = getKeyJsonValueFromContainer(given, name,
															strlen(name),
															NULL);
		if (arguments->values[i] != NULL)
			matched++;
	}
	return matched;
}

/*
 * The given from the n-th on as one array.
 */
static JsonbValue *
arrange_rest(JsonbContainer *given, int n)
{
	JsonbParseState *state = NULL;
	JsonbValue *rest = palloc(sizeof(JsonbValue));
	Jsonb	   *array;

	pushJsonbValue(&state, WJB_BEGIN_ARRAY, NULL);
	for (int i = n; i < JsonContainerSize(given); i++)
		pushJsonbValue(&state, WJB_ELEM,
					   getIthJsonbValueFromContainer(given, i));
	array = JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_ARRAY, NULL));
	rest->type = jbvBinary;
	rest->val.binary.data = &array->root;
	rest->val.binary.len = VARSIZE(array) - VARHDRSZ;
	return rest;
}

/*
 * By position; what is more than the parameters goes into a VARIADIC one, and
 * so does a single value for it that is no array.
 */
static void
arrange_by_position(const IdemFunction *function, JsonbContainer *given,
					IdemArguments *arguments)
{
	int			ngiven = JsonContainerSize(given);
	int			plain = OidIsValid(function->variadic_elem) ?
	function->nargs - 1 : function->nargs;
	JsonbValue *last;

	for (int i = 0; i < Min(ngiven, plain); i++)
		arguments->values[i] = getIthJsonbValueFromContainer(given, i);
	if (ngiven <= plain)
		return;

	if (!OidIsValid(function->variadic_elem))
		arrange_refuse(function, "There are more arguments than parameters.");
	last = getIthJsonbValueFromContainer(given, plain);
	if (ngiven == plain + 1 && last->type == jbvBinary &&
		JsonContainerIsArray(last->val.binary.data))
		arguments->values[plain] = last;
	else
		arguments->values[plain] = arrange_rest(given, plain);
}

/*
 * The arguments by position, however they are given.
 */
void
idem_argument_arrange(const IdemFunction *function, Jsonb *given,
					  IdemArguments *arguments)
{
	int			first_default = function->nargs -
	list_length(function->defaults);

	arguments->count = function->nargs;
	memset(arguments->values, 0, function->nargs * sizeof(JsonbValue *));
	memset(arguments->forms, 0, function->nargs * sizeof(char *));
	if (JB_ROOT_IS_OBJECT(given))
	{
		if (arrange_by_name(function, &given->root, arguments) !=
			JB_ROOT_COUNT(given))
			arrange_refuse(function, "An argument has a name that no parameter has.");
	}
	else if (JB_ROOT_IS_ARRAY(given) && !JB_ROOT_IS_SCALAR(given))
		arrange_by_position(function, &given->root, arguments);
	else
		arrange_refuse(function, "Arguments are a JSON object, by name, or a JSON array, by position.");

	for (int i = 0; i < first_default; i++)
	{
		if (arguments->values[i] == NULL)
			arrange_refuse(function, "An argument is missing for a parameter without default.");
	}
}

/*
 * In PG_CATCH, of a conversion whose error would quote what it converted:
 * takes the error back and returns its SQLSTATE, to be told in other words.
 * Errors that are not about the value go on as they are, and so does a lacking
 * privilege, which names only the object.  A type that is not built in may report
 * a bad value as an internal error.
 */
const char *
idem_argument_reword(MemoryContext context, bool user_type)
{
	ErrorData  *error;

	MemoryContextSwitchTo(context);
	error = CopyErrorData();
	if (error->sqlerrcode == ERRCODE_INSUFFICIENT_PRIVILEGE)
		PG_RE_THROW();
	switch (ERRCODE_TO_CATEGORY(error->sqlerrcode))
	{
		case ERRCODE_TRANSACTION_ROLLBACK:
		case ERRCODE_INSUFFICIENT_RESOURCES:
		case ERRCODE_PROGRAM_LIMIT_EXCEEDED:
		case ERRCODE_OPERATOR_INTERVENTION:
		case ERRCODE_SYSTEM_ERROR:
			PG_RE_THROW();
	}
	if (error->sqlerrcode == ERRCODE_INTERNAL_ERROR && !user_type)
		PG_RE_THROW();
	FlushErrorState();
	return unpack_sql_state(error->sqlerrcode);
}

/*
 * The given arguments as an object whose keys are "1", "2" and so on.
 */
static Jsonb *
convert_make_object(const IdemArguments *arguments)
{
	JsonbParseState *state = NULL;

	pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
	for (int i = 0; i < arguments->count; i++)
	{
		JsonbValue	key;

		if (arguments->values[i] == NULL)
			continue;
		key.type = jbvString;
		key.val.string.val = palloc(12);
		pg_ltoa(i + 1, key.val.string.val);
		key.val.string.len = strlen(key.val.string.val);
		pushJsonbValue(&state, WJB_KEY, &key);
		pushJsonbValue(&state, WJB_VALUE, arguments->values[i]);
	}
	return JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, NULL));
}

/*
 * How the given arguments are read, as far as that is the same at each call.
 * It belongs to the current memory context.
 */
static IdemConversion *
convert_prepare(const IdemFunction *function, const bool *given)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext,
												  "idem conversion",
												  ALLOCSET_SMALL_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(context);
	IdemConversion *conversion = palloc0(sizeof(IdemConversion));
	int			n = 0;

	conversion->context = context;
	conversion->userid = GetUserId();
	for (int i = 0; i < function->nargs; i++)
	{
		if (given[i])
			n++;
		conversion->given[i] = given[i];
	}
	conversion->desc = CreateTemplateTupleDesc(n);
	n = 0;
	for (int i = 0; i < function->nargs; i++)
	{
		char		name[12];

		pg_ltoa(i + 1, name);
		if (given[i])
			TupleDescInitEntry(conversion->desc, ++n, name,
							   function->argtypes[i], -1, 0);
	}
	conversion->desc = BlessTupleDesc(conversion->desc);

	fmgr_info_cxt(F_JSONB_TO_RECORD, &conversion->flinfo, context);
	fmgr_info_set_expr((Node *) makeFuncExpr(F_JSONB_TO_RECORD, RECORDOID,
											 list_make1(makeNullConst(JSONBOID, -1, InvalidOid)),
											 InvalidOid, InvalidOid,
											 COERCE_EXPLICIT_CALL),
					   &conversion->flinfo);
	MemoryContextSwitchTo(caller);
	return conversion;
}

/*
 * The function's conversion, if it is for these arguments and this user, or a
 * new one: domains' constraints are compiled into it, and privileges on their
 * functions are checked only then.  It is taken out of the function, since
 * converting may run user code that calls the same function, or fail half way.
 */
static IdemConversion *
convert_take(IdemFunction *function, const bool *given)
{
	IdemConversion *conversion = function->conversion;

	if (conversion == NULL || conversion->userid != GetUserId() ||
		memcmp(conversion->given, given, function->nargs * sizeof(bool)) != 0)
		return convert_prepare(function, given);
	function->conversion = NULL;
	MemoryContextSetParent(conversion->context, CurrentMemoryContext);
	return conversion;
}

static void
convert_put_back(IdemFunction *function, IdemConversion *conversion)
{
	if (function->conversion != NULL)
		MemoryContextDelete(function->conversion->context);
	MemoryContextSetParent(conversion->context, function->context);
	function->conversion = conversion;
}

/*
 * The arguments as a record.  Errors quote what they could not convert.
 */
static HeapTupleHeader
convert_run(IdemConversion *conversion, Jsonb *arranged)
{
	LOCAL_FCINFO(fcinfo, 1);
	ReturnSetInfo rsinfo;

	memset(&rsinfo, 0, sizeof(rsinfo));
	rsinfo.type = T_ReturnSetInfo;
	rsinfo.expectedDesc = conversion->desc;
	InitFunctionCallInfoData(*fcinfo, &conversion->flinfo, 1, InvalidOid,
							 NULL, (Node *) &rsinfo);
	fcinfo->args[0].value = JsonbPGetDatum(arranged);
	fcinfo->args[0].isnull = false;
	return DatumGetHeapTupleHeader(FunctionCallInvoke(fcinfo));
}

/*
 * The same; where it fails NULL, and the error's SQLSTATE.
 */
static HeapTupleHeader
convert_try(IdemConversion *conversion, Jsonb *arranged, bool user_type,
			const char **sqlstate)
{
	MemoryContext context = CurrentMemoryContext;
	HeapTupleHeader volatile record = NULL;

	PG_TRY();
	{
		record = convert_run(conversion, arranged);
	}
	PG_CATCH();
	{
		*sqlstate = idem_argument_reword(context, user_type);
	}
	PG_END_TRY();
	return record;
}

/*
 * Which of the arguments cannot be converted, in words that do not quote its
 * value; -1 if that is not known.
 */
static void
convert_refuse(const IdemFunction *function, int i, const char *sqlstate)
{
	if (i < 0)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_BAD_ARGUMENT),
				 errmsg("arguments of function %s cannot be converted to its parameters' types",
						function->identity),
				 errdetail("The conversion failed with SQLSTATE %s.",
						   sqlstate),
				 errhidestmt(true)));
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_BAD_ARGUMENT),
			 function->argnames[i] != NULL ?
			 errmsg("argument \"%s\" of function %s cannot be converted to type %s",
					function->argnames[i], function->identity,
					format_type_be(function->argtypes[i])) :
			 errmsg("argument %d of function %s cannot be converted to type %s",
					i + 1, function->identity,
					format_type_be(function->argtypes[i])),
			 errdetail("The conversion failed with SQLSTATE %s.", sqlstate),
			 errhidestmt(true)));
}

static void
convert_take_values(const IdemFunction *function,
					const IdemConversion *conversion, HeapTupleHeader record,
					Datum *values, bool *nulls)
{
	HeapTupleData tuple;
	Datum		converted[FUNC_MAX_ARGS];
	bool		converted_nulls[FUNC_MAX_ARGS];
	int			n = 0;

	tuple.t_data = record;
	tuple.t_len = HeapTupleHeaderGetDatumLength(record);
	ItemPointerSetInvalid(&tuple.t_self);
	tuple.t_tableOid = InvalidOid;
	heap_deform_tuple(&tuple, conversion->desc, converted, converted_nulls);
	for (int i = 0; i < function->nargs; i++)
	{
		if (!conversion->given[i])
			continue;
		values[i] = converted[n];
		nulls[i] = converted_nulls[n];
		n++;
	}
}

/*
 * One argument for itself.  False if that fails.
 */
static bool
convert_one(const IdemFunction *function, int i, Jsonb *arranged,
			Datum *values, bool *nulls, const char **sqlstate)
{
	bool		one[FUNC_MAX_ARGS] = {false};
	IdemConversion *conversion;
	HeapTupleHeader record;

	one[i] = true;
	conversion = convert_prepare(function, one);
	record = convert_try(conversion, arranged, !function->argplain[i],
						 sqlstate);
	if (record != NULL)
		convert_take_values(function, conversion, record, values, nulls);
	return record != NULL;
}

/*
 * The value where it is of the type already, or a number without a fraction,
 * just as jsonb_to_record() would convert it.  False if it is neither, or NULL.
 */
static bool
convert_plain(Oid type, const JsonbValue *value, Datum *converted)
{
	char	   *number;
	char	   *end;
	int64		n;

	if (type == TEXTOID && value->type == jbvString)
	{
		*converted = PointerGetDatum(cstring_to_text_with_len(value->val.string.val,
															  value->val.string.len));
		return true;
	}
	if (type == BOOLOID && value->type == jbvBool)
	{
		*converted = BoolGetDatum(value->val.boolean);
		return true;
	}
	if (value->type != jbvNumeric)
		return false;
	if (type == NUMERICOID)
	{
		*converted = NumericGetDatum(value->val.numeric);
		return true;
	}
	if (type != INT4OID && type != INT8OID)
		return false;

	number = DatumGetCString(DirectFunctionCall1(numeric_out,
												 NumericGetDatum(value->val.numeric)));
	if (strlen(number) > MAX_SURE_DIGITS)
		return false;
	n = strtoi64(number, &end, 10);
	if (*end != '\0')
		return false;
	if (type == INT8OID)
		*converted = Int64GetDatum(n);
	else if (n < PG_INT32_MIN || n > PG_INT32_MAX)
		return false;
	else
		*converted = Int32GetDatum((int32) n);
	return true;
}

/*
 * Whether all given arguments are such values.
 */
static bool
convert_all_plain(const IdemFunction *function, const IdemArguments *arguments,
				  Datum *values, bool *nulls)
{
	for (int i = 0; i < function->nargs; i++)
	{
		if (arguments->values[i] == NULL)
			continue;
		if (!convert_plain(function->argtypes[i], arguments->values[i],
						   &values[i]))
			return false;
		nulls[i] = false;
	}
	return true;
}

/*
 * Converts the given arguments to their parameters' types.  An error of a
 * type's input would quote the value, so it is told in other words.
 *
 * Together, in a way that is kept; and only if that fails one after the other,
 * to find the one that is to blame.  After an error of user code nothing more
 * can be run, though, so that where a type may have such, each is converted for
 * itself from the start.
 */
static void
convert_given(IdemFunction *function, const IdemArguments *arguments,
			  Datum *values, bool *nulls, bool *given)
{
	Jsonb	   *arranged;
	IdemConversion *conversion;
	HeapTupleHeader record;
	const char *sqlstate;
	const char *first_sqlstate;
	bool		plain = true;
	bool		any = false;

	for (int i = 0; i < function->nargs; i++)
	{
		given[i] = arguments->values[i] != NULL;
		if (given[i])
			any = true;
		if (given[i] && !function->argplain[i])
			plain = false;
	}
	if (!any || convert_all_plain(function, arguments, values, nulls))
		return;
	arranged = convert_make_object(arguments);

	if (plain)
	{
		conversion = convert_take(function, given);
		record = convert_try(conversion, arranged, false, &first_sqlstate);
		if (record != NULL)
		{
			convert_take_values(function, conversion, record, values, nulls);
			convert_put_back(function, conversion);
			return;
		}
	}
	for (int i = 0; i < function->nargs; i++)
	{
		if (given[i] &&
			!convert_one(function, i, arranged, values, nulls, &sqlstate))
			convert_refuse(function, i, sqlstate);
	}
	if (plain)
		convert_refuse(function, -1, first_sqlstate);
}

/*
 * Evaluates the defaults of the arguments that were not given.
 */
static void
convert_fill_defaults(const IdemFunction *function, Datum *values,
					  bool *nulls, const bool *given)
{
	int			first = function->nargs - list_length(function->defaults);
	EState	   *estate = NULL;

	for (int i = first; i < function->nargs; i++)
	{
		ExprState  *state;
		int16		len;
		bool		byval;

		if (given[i])
			continue;
		if (estate == NULL)
			estate = CreateExecutorState();
		state = ExecPrepareExpr(copyObject(list_nth(function->defaults,
													i - first)), estate);
		values[i] = ExecEvalExprSwitchContext(state,
											  GetPerTupleExprContext(estate),
											  &nulls[i]);
		get_typlenbyval(function->argtypes[i], &len, &byval);
		if (!nulls[i])
			values[i] = datumCopy(values[i], byval, len);
	}
	if (estate != NULL)
		FreeExecutorState(estate);
}

/*
 * The arguments as values of the parameters' types, defaults included.
 */
void
idem_argument_convert(IdemFunction *function,
					  const IdemArguments *arguments,
					  Datum *values, bool *nulls)
{
	bool		given[FUNC_MAX_ARGS];

	memset(nulls, true, FUNC_MAX_ARGS * sizeof(bool));
	memset(given, false, sizeof(given));
	convert_given(function, arguments, values, nulls, given);
	convert_fill_defaults(function, values, nulls, given);
}
