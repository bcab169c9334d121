/*
 * claim.c
 *	  SQL functions that claim: idem_key, idem_claim, idem_once,
 *	  idem_once_many.
 *
 * They check arguments, open the table once, and pack the verdict; the
 * judgement itself is registry.c's.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/supportnodes.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"
#include "utils/typcache.h"

#include "compat.h"
#include "current_key.h"
#include "errors.h"
#include "fingerprint.h"
#include "registry.h"

PG_FUNCTION_INFO_V1(idem_key);
PG_FUNCTION_INFO_V1(idem_claim);
PG_FUNCTION_INFO_V1(idem_claim_key);
PG_FUNCTION_INFO_V1(idem_claim_support);
PG_FUNCTION_INFO_V1(idem_once);
PG_FUNCTION_INFO_V1(idem_once_many);

/* parameters of idem_claim */
#define CLAIM_NARGS		7

/* columns of type idem_claimed, in order */
enum
{
	OUT_RUN,
	OUT_OUTCOME,
	OUT_ATTEMPT,
	OUT_FENCE,
	OUT_STEP,
	OUT_PROGRESS,
	OUT_RESPONSE,
	OUT_CODE,
	OUT_RETRY_AFTER,
	OUT_EXPIRES_AT,
	OUT_NCOLUMNS
};

static const char *const outcome_names[] = {
	[IDEM_OUT_CLAIMED] = "claimed",
	[IDEM_OUT_TAKEOVER] = "takeover",
	[IDEM_OUT_COMPLETED] = "completed",
	[IDEM_OUT_FAILED] = "failed",
	[IDEM_OUT_IN_PROGRESS] = "in_progress",
	[IDEM_OUT_MISMATCH] = "mismatch"
};

/*
 * idem_key() -> text: the setting idem.key, NULL where it is empty; in a call its
 * child key.
 */
Datum
idem_key(PG_FUNCTION_ARGS)
{
	const char *key = idem_current_key();

	if (key == NULL || key[0] == '\0')
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(cstring_to_text(key));
}

/*
 * The arguments "hold" and "lease" over what the scope says.
 */
static void
claim_parse_hold(text *hold, const Interval *lease, const IdemScope *scope,
				 IdemRequest *request)
{
	request->lease = lease != NULL ? lease : &scope->lease;
	if (hold != NULL)
		request->hold = idem_scope_parse_hold(hold);
	else
		request->hold = lease != NULL ? IDEM_HOLD_LEASE : scope->hold;

	if (lease != NULL && request->hold != IDEM_HOLD_LEASE)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_BAD_ARGUMENT),
				 errmsg("argument \"lease\" does not go with this hold"),
				 errdetail("A lease belongs to hold \"lease\" only."),
				 errhidestmt(true)));
}

/*
 * Bad spans of time are refused also where the verdict would not need them.
 */
static void
claim_check_spans(const IdemRequest *request)
{
	TimestampTz now = GetCurrentTimestamp();

	if (request->ttl != NULL)
		(void) idem_scope_deadline(now, request->ttl, "ttl");
	if (request->hold == IDEM_HOLD_LEASE && request->lease != NULL)
		(void) idem_scope_deadline(now, request->lease, "lease");
}

static Datum
claim_pack(FunctionCallInfo fcinfo, const IdemVerdict *verdict)
{
	/* per column: from where, and whether this verdict shows it */
	static const struct
	{
		int			out;
		IdemColumn	column;
	}			copied[] = {
		{OUT_ATTEMPT, IDEM_COL_ATTEMPT},
		{OUT_FENCE, IDEM_COL_FENCE},
		{OUT_STEP, IDEM_COL_STEP},
		{OUT_PROGRESS, IDEM_COL_PROGRESS},
		{OUT_RESPONSE, IDEM_COL_RESPONSE},
		{OUT_CODE, IDEM_COL_CODE},
		{OUT_EXPIRES_AT, IDEM_COL_EXPIRES_AT}
	};
	bool		runs = IDEM_OUTCOME_RUNS(verdict->outcome);
	bool		finished = verdict->outcome == IDEM_OUT_COMPLETED ||
	verdict->outcome == IDEM_OUT_FAILED;
	bool		holds = runs || verdict->own;
	Datum		values[OUT_NCOLUMNS];
	bool		nulls[OUT_NCOLUMNS];
	Oid			rettype;
	TupleDesc	desc;
	HeapTuple	tuple;

	memset(nulls, true, sizeof(nulls));
	values[OUT_RUN] = BoolGetDatum(runs);
	nulls[OUT_RUN] = false;
	values[OUT_OUTCOME] = CStringGetTextDatum(outcome_names[verdict->outcome]);
	nulls[OUT_OUTCOME] = false;
	if (verdict->outcome == IDEM_OUT_IN_PROGRESS)
	{
		values[OUT_RETRY_AFTER] = Int32GetDatum(verdict->retry_after);
		nulls[OUT_RETRY_AFTER] = false;
	}

	for (int i = 0; (runs || verdict->known) && i < lengthof(copied); i++)
	{
		int			out = copied[i].out;
		IdemColumn	column = copied[i].column;
		bool		shown = out == OUT_ATTEMPT;

		if (out == OUT_FENCE || out == OUT_STEP || out == OUT_PROGRESS)
			shown = holds;
		else if (out == OUT_RESPONSE || out == OUT_CODE ||
				 out == OUT_EXPIRES_AT)
			shown = finished;
		if (shown && !verdict->row.nulls[column])
		{
			values[out] = verdict->row.values[column];
			nulls[out] = false;
		}
	}

	/* without an expression in a fast-path call */
	rettype = get_fn_expr_rettype(fcinfo->flinfo);
	if (!OidIsValid(rettype))
		rettype = get_func_rettype(fcinfo->flinfo->fn_oid);
	desc = lookup_rowtype_tupdesc(rettype, -1);
	if (desc->natts != OUT_NCOLUMNS)
		elog(ERROR, "type idem_claimed has %d columns, not %d",
			 desc->natts, OUT_NCOLUMNS);
	tuple = heap_form_tuple(desc, values, nulls);
	ReleaseTupleDesc(desc);
	return HeapTupleGetDatum(tuple);
}

/*
 * idem_claim(key, request, scope, hold, lease, ttl, wait) -> idem_claimed
 */
Datum
idem_claim(PG_FUNCTION_ARGS)
{
	IdemRequest request = {.verb = "idem_claim()",.key = IDEM_ARG_TEXT(0)};
	IdemScope	scope;
	IdemStore	store;
	IdemVerdict verdict;

	idem_registry_check_key(request.key, true);
	idem_scope_resolve(IDEM_ARG_TEXT(2), IDEM_SCOPE_CLAIMING, &scope);
	request.scope = &scope;
	claim_parse_hold(IDEM_ARG_TEXT(3), IDEM_ARG_INTERVAL(4), &scope, &request);
	request.ttl = IDEM_ARG_INTERVAL(5);
	claim_check_spans(&request);
	idem_registry_parse_wait(IDEM_ARG_INTERVAL(6), &request.wait);
	if (!PG_ARGISNULL(1))
		request.fingerprint = idem_fingerprint_jsonb(PG_GETARG_JSONB_P(1));

	idem_store_open(&store, RowExclusiveLock);
	memset(&verdict, 0, offsetof(IdemVerdict, row));
	idem_registry_claim(&store, &request, &verdict);
	idem_store_close(&store);
	PG_RETURN_DATUM(claim_pack(fcinfo, &verdict));
}

/*
 * idem_claim_key(key) -> idem_claimed: what idem_claim(key) is planned as.
 */
Datum
idem_claim_key(PG_FUNCTION_ARGS)
{
	LOCAL_FCINFO(claim, CLAIM_NARGS);

	InitFunctionCallInfoData(*claim, fcinfo->flinfo, CLAIM_NARGS,
							 fcinfo->fncollation, NULL, NULL);
	claim->args[0] = fcinfo->args[0];
	for (int i = 1; i < CLAIM_NARGS; i++)
		claim->args[i].isnull = true;
	return idem_claim(claim);
}

/*
 * Planner support of idem_claim: where nothing but the key is given, calls
 * idem_claim_key().  Setting up six more arguments per execution is a
 * twentieth of what a replay costs.
 */
Datum
idem_claim_support(PG_FUNCTION_ARGS)
{
	SupportRequestSimplify *request = (SupportRequestSimplify *) PG_GETARG_POINTER(0);
	FuncExpr   *call;
	FuncExpr   *simple;
	Oid			argtypes[1] = {TEXTOID};
	oidvector  *types;
	Oid			inner;

	if (!IsA(request, SupportRequestSimplify))
		PG_RETURN_POINTER(NULL);

	call = request->fcall;
	if (list_length(call->args) != CLAIM_NARGS)
		PG_RETURN_POINTER(NULL);
	for (int i = 1; i < CLAIM_NARGS; i++)
	{
		Node	   *arg = list_nth(call->args, i);

		if (!IsA(arg, Const) || !((Const *) arg)->constisnull)
			PG_RETURN_POINTER(NULL);
	}

	types = buildoidvector(argtypes, 1);
	inner = GetSysCacheOid3(PROCNAMEARGSNSP, Anum_pg_proc_oid,
							CStringGetDatum("idem_claim_key"),
							PointerGetDatum(types),
							ObjectIdGetDatum(get_func_namespace(call->funcid)));
	if (!OidIsValid(inner) || !IDEM_MAY_EXECUTE(inner))
		PG_RETURN_POINTER(NULL);

	simple = copyObject(call);
	simple->funcid = inner;
	simple->args = list_truncate(simple->args, 1);
	PG_RETURN_POINTER(simple);
}

/*
 * A request that records the key as done at once, key still to be set.
 */
static void
once_prepare(text *scope_name, const Interval *ttl, IdemScope *scope,
			 IdemRequest *request)
{
	memset(request, 0, sizeof(IdemRequest));
	idem_scope_resolve(scope_name, IDEM_SCOPE_CLAIMING, scope);
	request->verb = "idem_once()";
	request->scope = scope;
	request->once = true;
	request->ttl = ttl;
	request->wait = idem_wait_forever;
	if (ttl != NULL)
		(void) idem_scope_deadline(GetCurrentTimestamp(), ttl, "ttl");
}

/*
 * idem_once(key, scope, ttl) -> boolean
 */
Datum
idem_once(PG_FUNCTION_ARGS)
{
	IdemRequest request;
	IdemScope	scope;
	IdemStore	store;
	IdemVerdict verdict;
	text	   *key = IDEM_ARG_TEXT(0);

	idem_registry_check_key(key, false);
	once_prepare(IDEM_ARG_TEXT(1), IDEM_ARG_INTERVAL(2), &scope, &request);
	request.key = key;

	idem_store_open(&store, RowExclusiveLock);
	idem_registry_claim(&store, &request, &verdict);
	idem_store_close(&store);
	PG_RETURN_BOOL(IDEM_OUTCOME_RUNS(verdict.outcome));
}

/*
 * idem_once_many(keys, scope, ttl) -> SETOF text: those that were new.
 *
 * Of equal keys the first counts.  After some new keys in a row the next is
 * presumed to be new as well and inserted without a look; the unique check
 * finds out where that is wrong, at the price of one dead row.
 */
Datum
idem_once_many(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	IdemRequest request;
	IdemScope	scope;
	IdemStore	store;
	Datum	   *elems;
	bool	   *nulls;
	bool	   *is_new;
	IdemBatchKey *batch;
	int			nelems;
	IdemVerdict verdict;
	int			new_in_a_row = 0;
	MemoryContext context;
	MemoryContext caller;

	idem_require_argument(fcinfo, 0, "keys");
	once_prepare(IDEM_ARG_TEXT(1), IDEM_ARG_INTERVAL(2), &scope, &request);
	request.verb = "idem_once_many()";

	deconstruct_array(PG_GETARG_ARRAYTYPE_P(0), TEXTOID, -1, false,
					  TYPALIGN_INT, &elems, &nulls, &nelems);
	batch = idem_registry_sort_keys(elems, nulls, nelems);

	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	is_new = palloc0(Max(nelems, 1) * sizeof(bool));
	idem_store_open(&store, RowExclusiveLock);
	idem_store_expect_many(&store);
	context = AllocSetContextCreate(CurrentMemoryContext, "idem batch",
									ALLOCSET_DEFAULT_SIZES);
	caller = MemoryContextSwitchTo(context);
	for (int i = 0; i < nelems; i++)
	{
		bool		runs;

		request.key = batch[i].key;
		request.presume_new = new_in_a_row >= IDEM_ENOUGH_NEW;
		idem_registry_claim(&store, &request, &verdict);
		runs = IDEM_OUTCOME_RUNS(verdict.outcome);
		new_in_a_row = runs ? new_in_a_row + 1 : 0;
		is_new[batch[i].position] = runs;
		MemoryContextReset(context);
	}
	MemoryContextSwitchTo(caller);
	idem_store_close(&store);
	MemoryContextDelete(context);

	for (int i = 0; i < nelems; i++)
	{
		bool		isnull = false;

		if (is_new[i])
			tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc,
								 &elems[i], &isnull);
	}
	PG_RETURN_NULL();
}
