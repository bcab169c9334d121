/*
 * call.c
 *	  SQL function idem_call: a function runs once per key.
 *
 * A call is a transaction claim, the function, and the completion with its
 * result, in one statement of the caller's transaction.  An error inside the
 * function takes the claim along, whatever catches it, since both belong to
 * the same (sub)transaction: nothing needs undoing here.  The claim's
 * fingerprint covers the function's identity and its arguments, arranged by
 * position, so that one key stands for one call.
 *
 * While the function runs, the setting idem.key is a key of its own, derived
 * from this one and the function's name: what it claims or calls in turn
 * without naming a key is as repeatable as itself (current_key.c).
 *
 * Locks: those of the claim, then whatever the function takes.  A function
 * that calls back with the same key finds its own claim in progress and is
 * told so, instead of waiting for itself.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "common/jsonapi.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/json.h"
#include "utils/jsonfuncs.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"

#include "act.h"
#include "call.h"
#include "compat.h"
#include "current_key.h"
#include "errors.h"
#include "fingerprint.h"

PG_FUNCTION_INFO_V1(idem_call);

/*
 * Whether a text is JSON, as json_in() would take it.  What is nested too
 * deeply to find out is taken for other text.
 */
static bool
call_is_json(text *t)
{
	MemoryContext context = CurrentMemoryContext;
	volatile bool is_json = false;

	PG_TRY();
	{
		is_json = pg_parse_json(IDEM_MAKE_JSON_LEX(t),
								&nullSemAction) == JSON_SUCCESS;
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		if (geterrcode() != ERRCODE_STATEMENT_TOO_COMPLEX)
			PG_RE_THROW();
		FlushErrorState();
	}
	PG_END_TRY();
	return is_json;
}

/*
 * What was recorded, as JSON: a record of idem_complete() may hold any text,
 * which is a JSON string then.
 */
static Datum
call_replay(const IdemRow *row)
{
	text	   *response;

	if (row->nulls[IDEM_COL_RESPONSE])
		return CStringGetTextDatum("null");

	response = DatumGetTextPP(row->values[IDEM_COL_RESPONSE]);
	if (row->nulls[IDEM_COL_FUNCTION] && !call_is_json(response))
	{
		StringInfoData buf;

		initStringInfo(&buf);
		escape_json(&buf, text_to_cstring(response));
		return PointerGetDatum(cstring_to_text_with_len(buf.data, buf.len));
	}
	return PointerGetDatum(response);
}

/*
 * The key stands for something else.
 */
static void
call_report_mismatch(const IdemFunction *function, const IdemRow *row)
{
	const char *recorded = row->nulls[IDEM_COL_FUNCTION] ? NULL :
	text_to_cstring(DatumGetTextPP(row->values[IDEM_COL_FUNCTION]));

	ereport(ERROR,
			(errcode(ERRCODE_IDEM_MISMATCH),
			 errmsg("idem key was used before for a different call"),
			 recorded == NULL ?
			 errdetail("It was recorded for another request; now it is function %s.",
					   function->identity) :
			 strcmp(recorded, function->identity) == 0 ?
			 errdetail("It was recorded for function %s with other arguments.",
					   recorded) :
			 errdetail("It was recorded for function %s; now it is function %s.",
					   recorded, function->identity),
			 errhint("Use a key of its own for each call with its arguments."),
			 errhidestmt(true)));
}

/*
 * A claim that did not run and has no result to give.
 */
static void
call_report(const IdemFunction *function, const IdemVerdict *verdict)
{
	const IdemRow *row = &verdict->row;

	if (verdict->own)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_MISUSE),
				 errmsg("idem key is already in use by this transaction or session"),
				 errdetail("Function %s was called with a key whose claim goes on.",
						   function->identity),
				 errhint("Give an inner call a key of its own, such as idem_child(idem_key(), 'name')."),
				 errhidestmt(true)));

	switch (verdict->outcome)
	{
		case IDEM_OUT_MISMATCH:
			call_report_mismatch(function, row);
			break;
		case IDEM_OUT_FAILED:
			ereport(ERROR,
					(errcode(ERRCODE_IDEM_CONFLICT),
					 errmsg("idem key has failed before"),
					 row->nulls[IDEM_COL_CODE] ?
					 errdetail("It was recorded without a code.") :
					 errdetail("It was recorded with code %d.",
							   DatumGetInt32(row->values[IDEM_COL_CODE])),
					 errhint("idem_lookup() shows the error; an operator can reopen the key."),
					 errhidestmt(true)));
			break;
		default:
			ereport(ERROR,
					(errcode(ERRCODE_IDEM_CONFLICT),
					 errmsg("idem key is in progress"),
					 errdetail("Someone else is at it, or it is not to be tried again yet."),
					 errhint("Try again in %d s.", verdict->retry_after),
					 errhidestmt(true)));
	}
}

/*
 * Appends the arguments whose positions begin with these digits, in the order
 * of their names as text.
 */
static void
call_append_arguments(StringInfo buf, const IdemArguments *arguments,
					  int position)
{
	const JsonbValue *value = arguments->values[position - 1];
	const char *form = arguments->forms[position - 1];

	if (value != NULL)
	{
		char		name[16];
		int			len = 0;

		if (buf->data[buf->len - 1] != '{')
			name[len++] = ',';
		name[len++] = '"';
		len += pg_ltoa(position, name + len);
		appendBinaryStringInfo(buf, name, len);
		if (form != NULL)
			appendStringInfoString(buf, form);
		appendBinaryStringInfo(buf, "\":", 2);
		idem_canonical_append_value(buf, value);
	}
	for (int next = position * 10;
		 next < position * 10 + 10 && next <= arguments->count; next++)
		call_append_arguments(buf, arguments, next);
}

/*
 * The fingerprint of a call, as idem_fingerprint_call() makes it: the function's
 * identity, and the canonical form of an object with the arguments by position.
 */
static bytea *
call_fingerprint(const IdemCall *call)
{
	const char *identity = call->function->identity;
	StringInfoData buf;

	initStringInfo(&buf);
	idem_digest_append_part(&buf, identity, strlen(identity));
	appendStringInfoChar(&buf, '{');
	for (int digit = 1; digit < 10 && digit <= call->arguments.count; digit++)
		call_append_arguments(&buf, &call->arguments, digit);
	appendStringInfoChar(&buf, '}');
	return idem_fingerprint_digest(buf.data, buf.len);
}

/*
 * Fills in what every form of a call has in common, but the function.
 */
void
idem_call_prepare(IdemCall *call, text *key, text *scope)
{
	call->key = key;
	call->ttl = NULL;
	call->wait = idem_wait_forever;
	idem_registry_check_key(key, false);
	idem_scope_resolve(scope, IDEM_SCOPE_CLAIMING, &call->scope);
}

/*
 * Claims the key.  True if the function is to be run now; false if it has been
 * run before, and call->row is what is known of that.
 */
bool
idem_call_begin(IdemCall *call)
{
	IdemRequest request = {
		.verb = "idem_call()",
		.key = call->key,
		.scope = &call->scope,
		.hold = IDEM_HOLD_TRANSACTION,
		.ttl = call->ttl,
		.wait = call->wait
	};
	IdemStore	store;
	IdemVerdict verdict;

	if (call->ttl != NULL)
		(void) idem_scope_deadline(GetCurrentTimestamp(), call->ttl, "ttl");
	request.fingerprint = call_fingerprint(call);

	idem_store_open(&store, RowExclusiveLock);
	idem_registry_claim(&store, &request, &verdict);
	idem_store_close(&store);
	if (verdict.outcome != IDEM_OUT_COMPLETED &&
		!IDEM_OUTCOME_RUNS(verdict.outcome))
		call_report(call->function, &verdict);
	call->row = verdict.row;
	return verdict.outcome != IDEM_OUT_COMPLETED;
}

/*
 * Runs the function under its child key.  Afterwards the setting is as it was,
 * here and for the session, whatever the function did with it.
 */
void
idem_call_run(const IdemCall *call, Oid collation, Datum *values, bool *nulls,
			  IdemFunctionSink sink, void *arg)
{
	IdemKeyFrame frame;

	idem_current_key_enter(&frame, call->scope.name, call->key,
						   call->function->name);
	PG_TRY();
	{
		idem_function_run(call->function, collation, values, nulls, sink, arg);
	}
	PG_FINALLY();
	{
		idem_current_key_leave(&frame);
	}
	PG_END_TRY();
	idem_current_key_restore(&frame);
}

/*
 * Records the result.
 */
void
idem_call_end(const IdemCall *call, text *response, text *result)
{
	IdemAct		act = {
		.verb = IDEM_COMPLETE,
		.key = call->key,
		.scope = call->scope.name,
		.response = response,
		.function = cstring_to_text(call->function->identity),
		.result = result,
		.fingerprint = DatumGetByteaPP(call->row.values[IDEM_COL_FINGERPRINT])
	};

	idem_act_complete_call(&act, &call->scope, &call->row);
}

/*
 * The collation that a plain call gives the function: defaults have no say.
 */
static Oid
call_collation(const IdemFunction *function, const IdemArguments *arguments)
{
	Oid			collations[FUNC_MAX_ARGS];

	if (function->defaults == NIL)
		return function->expr->inputcollid;
	for (int i = 0; i < function->nargs; i++)
		collations[i] = arguments->values[i] == NULL ? InvalidOid :
			get_typcollation(function->argtypes[i]);
	return idem_function_derive_collation(collations, function->nargs);
}

/*
 * idem_call(key, function, args, scope, ttl, wait) -> json
 */
Datum
idem_call(PG_FUNCTION_ARGS)
{
	IdemCall	call;
	IdemFunctionJson json;
	Datum		values[FUNC_MAX_ARGS];
	bool		nulls[FUNC_MAX_ARGS];
	Jsonb	   *arguments;
	text	   *response;

	idem_call_prepare(&call, IDEM_ARG_TEXT(0), IDEM_ARG_TEXT(3));
	idem_require_argument(fcinfo, 1, "function");
	call.function = idem_function_acquire(PG_GETARG_OID(1));
	call.ttl = IDEM_ARG_INTERVAL(4);
	idem_registry_parse_wait(IDEM_ARG_INTERVAL(5), &call.wait);
	arguments = PG_ARGISNULL(2) ?
		DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum("{}"))) :
		PG_GETARG_JSONB_P(2);
	idem_argument_arrange(call.function, arguments, &call.arguments);

	if (!idem_call_begin(&call))
		return call_replay(&call.row);

	idem_argument_convert(call.function, &call.arguments, values, nulls);
	idem_function_json_begin(&json, call.function);
	idem_call_run(&call, call_collation(call.function, &call.arguments),
				  values, nulls, idem_function_json_add, &json);
	response = idem_function_json_end(&json);
	idem_call_end(&call, response, NULL);
	PG_RETURN_TEXT_P(response);
}
