/*
 * verb.c
 *	  SQL functions that go on with a claim or end it, and those that look:
 *	  idem_complete, idem_fail, idem_retry, idem_release, idem_renew,
 *	  idem_step, idem_unfinished, idem_lookup.
 *
 * Each unpacks its arguments into an IdemAct; act.c applies it.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/timestamp.h"

#include "act.h"
#include "compat.h"
#include "errors.h"
#include "registry.h"

PG_FUNCTION_INFO_V1(idem_complete);
PG_FUNCTION_INFO_V1(idem_complete_jsonb);
PG_FUNCTION_INFO_V1(idem_fail);
PG_FUNCTION_INFO_V1(idem_retry);
PG_FUNCTION_INFO_V1(idem_release);
PG_FUNCTION_INFO_V1(idem_renew);
PG_FUNCTION_INFO_V1(idem_step);
PG_FUNCTION_INFO_V1(idem_unfinished);
PG_FUNCTION_INFO_V1(idem_lookup);

/* what an optional argument needs to be pointed to */
typedef struct VerbValues
{
	int64		fence;
	int32		code;
} VerbValues;

static void
verb_take_fence(FunctionCallInfo fcinfo, int n, VerbValues *values,
				IdemAct *act)
{
	if (PG_ARGISNULL(n))
		return;
	values->fence = PG_GETARG_INT64(n);
	act->fence = &values->fence;
}

static void
verb_take_code(FunctionCallInfo fcinfo, int n, VerbValues *values,
			   IdemAct *act)
{
	if (PG_ARGISNULL(n))
		return;
	values->code = PG_GETARG_INT32(n);
	act->code = &values->code;
}

/*
 * The common arguments (key, response or error, scope, fence, code).
 */
static Datum
verb_finish(FunctionCallInfo fcinfo, IdemVerb verb, text *response)
{
	VerbValues	values;
	IdemAct		act = {
		.verb = verb,
		.key = IDEM_ARG_TEXT(0),
		.response = response,
		.scope = IDEM_ARG_TEXT(2)
	};

	verb_take_fence(fcinfo, 3, &values, &act);
	verb_take_code(fcinfo, 4, &values, &act);
	(void) idem_act_apply(&act);
	PG_RETURN_BOOL(true);
}

/*
 * idem_complete(key, response text or json, scope, fence, code) -> true
 */
Datum
idem_complete(PG_FUNCTION_ARGS)
{
	return verb_finish(fcinfo, IDEM_COMPLETE, IDEM_ARG_TEXT(1));
}

/*
 * The same for jsonb, stored as its text.
 */
Datum
idem_complete_jsonb(PG_FUNCTION_ARGS)
{
	text	   *response = NULL;

	if (!PG_ARGISNULL(1))
	{
		Jsonb	   *jsonb = PG_GETARG_JSONB_P(1);

		response = cstring_to_text(JsonbToCString(NULL, &jsonb->root,
												  VARSIZE(jsonb)));
	}
	return verb_finish(fcinfo, IDEM_COMPLETE, response);
}

/*
 * idem_fail(key, error, scope, fence, code) -> true
 */
Datum
idem_fail(PG_FUNCTION_ARGS)
{
	return verb_finish(fcinfo, IDEM_FAIL, IDEM_ARG_TEXT(1));
}

/*
 * idem_retry(key, error, scope, fence, after) -> true
 */
Datum
idem_retry(PG_FUNCTION_ARGS)
{
	VerbValues	values;
	IdemAct		act = {
		.verb = IDEM_RETRY,
		.key = IDEM_ARG_TEXT(0),
		.response = IDEM_ARG_TEXT(1),
		.scope = IDEM_ARG_TEXT(2),
		.span = IDEM_ARG_INTERVAL(4)
	};

	verb_take_fence(fcinfo, 3, &values, &act);
	(void) idem_act_apply(&act);
	PG_RETURN_BOOL(true);
}

/*
 * idem_release(key, scope, fence) -> true
 */
Datum
idem_release(PG_FUNCTION_ARGS)
{
	VerbValues	values;
	IdemAct		act = {
		.verb = IDEM_RELEASE,
		.key = IDEM_ARG_TEXT(0),
		.scope = IDEM_ARG_TEXT(1)
	};

	verb_take_fence(fcinfo, 2, &values, &act);
	(void) idem_act_apply(&act);
	PG_RETURN_BOOL(true);
}

/*
 * idem_renew(key, lease, scope, fence) -> timestamptz
 */
Datum
idem_renew(PG_FUNCTION_ARGS)
{
	VerbValues	values;
	IdemAct		act = {
		.verb = IDEM_RENEW,
		.key = IDEM_ARG_TEXT(0),
		.span = IDEM_ARG_INTERVAL(1),
		.scope = IDEM_ARG_TEXT(2)
	};

	verb_take_fence(fcinfo, 3, &values, &act);
	PG_RETURN_TIMESTAMPTZ(idem_act_apply(&act));
}

/*
 * idem_step(key, step, progress, scope, fence) -> true
 */
Datum
idem_step(PG_FUNCTION_ARGS)
{
	VerbValues	values;
	IdemAct		act = {
		.verb = IDEM_STEP,
		.key = IDEM_ARG_TEXT(0),
		.step = IDEM_ARG_TEXT(1),
		.progress = PG_ARGISNULL(2) ? NULL : PG_GETARG_JSONB_P(2),
		.scope = IDEM_ARG_TEXT(3)
	};

	if (act.step == NULL)
		idem_report_missing("step");
	verb_take_fence(fcinfo, 4, &values, &act);
	(void) idem_act_apply(&act);
	PG_RETURN_BOOL(true);
}

static void
unfinished_put(const IdemClaim *claim, void *arg)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) arg;
	Datum		values[2] = {
		PointerGetDatum(claim->scope),
		PointerGetDatum(claim->key)
	};
	bool		nulls[2] = {false, false};

	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

/*
 * idem_unfinished() -> SETOF (scope, key)
 */
Datum
idem_unfinished(PG_FUNCTION_ARGS)
{
	InitMaterializedSRF(fcinfo, 0);
	idem_claims_visit_unfinished(unfinished_put, fcinfo->resultinfo);
	PG_RETURN_NULL();
}

/*
 * idem_lookup(key, scope) -> 0 or 1 row
 */
Datum
idem_lookup(PG_FUNCTION_ARGS)
{
	static const IdemColumn shown[] = {
		IDEM_COL_STATE, IDEM_COL_ATTEMPT, IDEM_COL_STEP, IDEM_COL_PROGRESS,
		IDEM_COL_RESPONSE, IDEM_COL_CODE, IDEM_COL_CREATED_AT,
		IDEM_COL_FINISHED_AT, IDEM_COL_EXPIRES_AT
	};
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	text	   *key = IDEM_ARG_TEXT(0);
	IdemScope	scope;
	IdemStore	store;
	IdemClaim  *claim;
	IdemRow		row;

	idem_registry_check_key(key, true);
	idem_scope_resolve(IDEM_ARG_TEXT(1), IDEM_SCOPE_USING, &scope);
	InitMaterializedSRF(fcinfo, 0);

	idem_store_open(&store, AccessShareLock);
	claim = idem_claims_find(scope.name, key);

	if (idem_registry_read(&store, scope.name, key, claim, true, &row) &&
		(claim != NULL ||
		 !idem_row_is_expired(&row, GetCurrentTimestamp())))
	{
		Datum		values[lengthof(shown)];
		bool		nulls[lengthof(shown)];

		/* of an unfinished record it is no promise yet */
		if (idem_row_state(&row) == IDEM_IN_PROGRESS)
			row.nulls[IDEM_COL_EXPIRES_AT] = true;
		if (idem_row_state(&row) == IDEM_OPEN)
			row.nulls[IDEM_COL_FINISHED_AT] = true;
		for (int i = 0; i < lengthof(shown); i++)
		{
			values[i] = row.values[shown[i]];
			nulls[i] = row.nulls[shown[i]];
		}
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc,
							 values, nulls);
	}
	idem_store_close(&store);
	PG_RETURN_NULL();
}
