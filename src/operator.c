/*
 * operator.c
 *	  SQL functions for operators: idem_forget, idem_reopen, idem_import,
 *	  idem_import_many, idem_fence_advance.
 *
 * They act on records whoever claimed them, under the same loop as every other
 * verb: what they overwrite is what they read.  A scope's roles do not bind
 * them.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "commands/sequence.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/lock.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "catalog.h"
#include "compat.h"
#include "errors.h"
#include "registry.h"
#include "session.h"

/* fences that are drawn one by one, and how far to jump beyond others' draws */
#define FENCE_GAP	10000
#define FENCE_JUMP	1000000

PG_FUNCTION_INFO_V1(idem_forget);
PG_FUNCTION_INFO_V1(idem_reopen);
PG_FUNCTION_INFO_V1(idem_import);
PG_FUNCTION_INFO_V1(idem_import_many);
PG_FUNCTION_INFO_V1(idem_fence_advance);

/*
 * Reads the record that an operator names.  What has expired is not there.
 */
static void
operator_read(IdemStore *store, const IdemScope *scope, text *key,
			  const IdemClaim *claim, IdemRow *row)
{
	if (!idem_registry_read(store, scope->name, key, claim, true, row) ||
		(claim == NULL && idem_row_is_expired(row, GetCurrentTimestamp())))
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_NOT_FOUND),
				 errmsg("idem key does not exist"),
				 errdetail("There is no record of it in scope \"%s\", or its retention is over.",
						   text_to_cstring(scope->name)),
				 errhidestmt(true)));
}

/*
 * Whether the record may be forgotten without force.
 */
static void
forget_check(const IdemRow *row, const IdemClaim *claim)
{
	TimestampTz until;
	bool		completed = idem_row_state(row) == IDEM_COMPLETED;

	if (!completed &&
		(idem_row_state(row) != IDEM_IN_PROGRESS ||
		 !idem_row_is_held(row, claim, GetCurrentTimestamp(), &until)))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_CONFLICT),
			 completed ? errmsg("idem key is completed") :
			 errmsg("idem key is held"),
			 completed ? errdetail("To forget it lets the same request run again.") :
			 errdetail("To forget it lets the same request run beside its holder."),
			 errhint("Pass force => true if that is meant."),
			 errhidestmt(true)));
}

/*
 * idem_forget(key, scope, force) -> true
 */
Datum
idem_forget(PG_FUNCTION_ARGS)
{
	text	   *key = IDEM_ARG_TEXT(0);
	bool		force = !PG_ARGISNULL(2) && PG_GETARG_BOOL(2);
	IdemScope	scope;
	IdemStore	store;
	IdemClaim  *claim;
	IdemRow		row;
	int			rounds = 0;

	idem_registry_check_key(key, false);
	idem_scope_resolve(IDEM_ARG_TEXT(1), IDEM_SCOPE_OPERATING, &scope);
	idem_require_writable("idem_forget()");

	idem_store_open(&store, RowExclusiveLock);
	claim = idem_claims_find(scope.name, key);
	do
	{
		CHECK_FOR_INTERRUPTS();
		idem_registry_check_rounds(rounds++);
		operator_read(&store, &scope, key, claim, &row);
		if (!force)
			forget_check(&row, claim);
	} while (idem_store_delete(&store, &row, &idem_wait_forever) !=
			 IDEM_STORE_OK);

	if (!row.nulls[IDEM_COL_FENCE])
		idem_session_end(DatumGetInt64(row.values[IDEM_COL_FENCE]));
	if (claim != NULL)
	{
		ItemPointerData nowhere;

		ItemPointerSetInvalid(&nowhere);
		idem_claims_note(scope.name, key, IDEM_CLAIM_NONE, IDEM_HOLD_NONE,
						 &nowhere);
	}
	idem_store_close(&store);
	PG_RETURN_BOOL(true);
}

static void
reopen_stamp(IdemRow *row, const IdemScope *scope, TimestampTz now)
{
	idem_row_set(row, IDEM_COL_FINISHED_AT, TimestampTzGetDatum(now));
	idem_row_set_expiry(row, scope, now);
}

/*
 * idem_reopen(key, scope) -> true
 */
Datum
idem_reopen(PG_FUNCTION_ARGS)
{
	text	   *key = IDEM_ARG_TEXT(0);
	IdemScope	scope;
	IdemStore	store;
	IdemClaim  *claim;
	IdemRow		old;
	IdemRow		row;
	IdemRow		written;
	TimestampTz now;
	int			rounds = 0;

	idem_registry_check_key(key, false);
	idem_scope_resolve(IDEM_ARG_TEXT(1), IDEM_SCOPE_OPERATING, &scope);
	idem_require_writable("idem_reopen()");

	idem_store_open(&store, RowExclusiveLock);
	claim = idem_claims_find(scope.name, key);
	do
	{
		TimestampTz until;
		IdemState	state;

		CHECK_FOR_INTERRUPTS();
		idem_registry_check_rounds(rounds++);
		operator_read(&store, &scope, key, claim, &old);
		now = GetCurrentTimestamp();
		state = idem_row_state(&old);
		if (state == IDEM_COMPLETED ||
			(state != IDEM_FAILED &&
			 (!idem_row_is_spent(&old, &scope) ||
			  (state == IDEM_IN_PROGRESS &&
			   idem_row_is_held(&old, claim, now, &until)))))
			ereport(ERROR,
					(errcode(ERRCODE_IDEM_CONFLICT),
					 errmsg("idem key has not failed"),
					 errdetail("Only a key that ended with an error, or has no attempts left, can be reopened."),
					 errhidestmt(true)));

		row = old;
		idem_row_set_state(&row, IDEM_OPEN);
		row.nulls[IDEM_COL_HOLD] = true;
		row.nulls[IDEM_COL_FENCE] = true;
		row.nulls[IDEM_COL_LEASE_UNTIL] = true;
		row.nulls[IDEM_COL_CLAIMED_AT] = true;
		reopen_stamp(&row, &scope, now);
	} while (idem_store_update(&store, &old, &row, &idem_wait_forever) !=
			 IDEM_STORE_OK);
	if (idem_wait_may_have_slept(now))
	{
		written = row;
		reopen_stamp(&row, &scope, GetCurrentTimestamp());
		idem_store_update_again(&store, &written, &row);
	}

	if (claim != NULL)
		idem_claims_note(scope.name, key, IDEM_CLAIM_ENDED, IDEM_HOLD_NONE,
						 &row.tid);
	idem_store_close(&store);
	PG_RETURN_BOOL(true);
}

/* what all imported records of one call have in common */
typedef struct Import
{
	IdemScope	scope;
	const Interval *ttl;
	TimestampTz created_at;
	TimestampTz now;
} Import;

static void
import_prepare(FunctionCallInfo fcinfo, Import *import)
{
	idem_scope_resolve(IDEM_ARG_TEXT(2), IDEM_SCOPE_OPERATING, &import->scope);
	import->now = GetCurrentTimestamp();
	import->created_at = PG_ARGISNULL(3) ? import->now :
		PG_GETARG_TIMESTAMPTZ(3);
	import->ttl = IDEM_ARG_INTERVAL(4);

	if (import->created_at < SetEpochTimestamp() ||
		import->created_at > import->now)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_BAD_ARGUMENT),
				 errmsg("argument \"created_at\" is out of range"),
				 errdetail("It must not be before 1970, nor in the future."),
				 errhidestmt(true)));
	if (import->ttl != NULL)
		(void) idem_scope_deadline(import->created_at, import->ttl, "ttl");
	idem_require_writable("idem_import()");
}

/*
 * Stores one completed record, unless the key has one, or its retention would
 * be over already.  True if it was stored.
 */
static bool
import_one(IdemStore *store, const Import *import, text *key, text *response)
{
	const IdemScope *scope = &import->scope;
	IdemClaim  *claim = idem_claims_find(scope->name, key);
	IdemStoreResult result;
	int			rounds = 0;

	if (response != NULL && VARSIZE_ANY_EXHDR(response) > scope->max_response)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_MISUSE),
				 errmsg("argument \"response\" is larger than the scope allows"),
				 errdetail("It has %zu bytes; at most %d are allowed.",
						   (Size) VARSIZE_ANY_EXHDR(response),
						   scope->max_response),
				 errhidestmt(true)));
	do
	{
		IdemRow		old;
		IdemRow		row;
		bool		known;

		CHECK_FOR_INTERRUPTS();
		idem_registry_check_rounds(rounds++);
		known = idem_registry_read(store, scope->name, key, claim, false,
								   &old);
		if (known && !idem_row_is_expired(&old, import->now))
			return false;

		idem_row_start(&row, scope->name, key, import->created_at);
		idem_row_set_state(&row, IDEM_COMPLETED);
		if (import->ttl != NULL)
			idem_row_set(&row, IDEM_COL_TTL, IntervalPGetDatum(import->ttl));
		if (response != NULL)
			idem_row_set(&row, IDEM_COL_RESPONSE, PointerGetDatum(response));
		idem_row_set(&row, IDEM_COL_FINISHED_AT,
					 TimestampTzGetDatum(import->created_at));
		idem_row_set_expiry(&row, scope, import->created_at);
		if (idem_row_is_expired(&row, import->now))
			return false;

		result = known ?
			idem_store_update(store, &old, &row, &idem_wait_forever) :
			idem_store_insert(store, &row, &idem_wait_forever);
	} while (result != IDEM_STORE_OK);
	return true;
}

/*
 * idem_import(key, response, scope, created_at, ttl) -> boolean
 */
Datum
idem_import(PG_FUNCTION_ARGS)
{
	text	   *key = IDEM_ARG_TEXT(0);
	Import		import;
	IdemStore	store;
	bool		stored;

	idem_registry_check_key(key, false);
	import_prepare(fcinfo, &import);
	idem_store_open(&store, RowExclusiveLock);
	stored = import_one(&store, &import, key, IDEM_ARG_TEXT(1));
	idem_store_close(&store);
	PG_RETURN_BOOL(stored);
}

/*
 * idem_import_many(keys, responses, scope, created_at, ttl) -> bigint
 */
Datum
idem_import_many(PG_FUNCTION_ARGS)
{
	Import		import;
	IdemStore	store;
	Datum	   *keys;
	Datum	   *responses = NULL;
	bool	   *key_nulls;
	bool	   *response_nulls = NULL;
	int			nkeys;
	int			nresponses = 0;
	IdemBatchKey *batch;
	int64		stored = 0;
	MemoryContext context;
	MemoryContext caller;

	idem_require_argument(fcinfo, 0, "keys");
	import_prepare(fcinfo, &import);
	deconstruct_array(PG_GETARG_ARRAYTYPE_P(0), TEXTOID, -1, false,
					  TYPALIGN_INT, &keys, &key_nulls, &nkeys);
	if (!PG_ARGISNULL(1))
		deconstruct_array(PG_GETARG_ARRAYTYPE_P(1), TEXTOID, -1, false,
						  TYPALIGN_INT, &responses, &response_nulls,
						  &nresponses);
	if (responses != NULL && nresponses != nkeys)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_BAD_ARGUMENT),
				 errmsg("arguments \"keys\" and \"responses\" differ in length"),
				 errdetail("There are %d keys and %d responses.",
						   nkeys, nresponses),
				 errhidestmt(true)));

	batch = idem_registry_sort_keys(keys, key_nulls, nkeys);

	idem_store_open(&store, RowExclusiveLock);
	context = AllocSetContextCreate(CurrentMemoryContext, "idem import",
									ALLOCSET_DEFAULT_SIZES);
	caller = MemoryContextSwitchTo(context);
	for (int i = 0; i < nkeys; i++)
	{
		int			position = batch[i].position;
		text	   *response = NULL;

		if (responses != NULL && !response_nulls[position])
			response = DatumGetTextPP(responses[position]);
		if (import_one(&store, &import, batch[i].key, response))
			stored++;
		MemoryContextReset(context);
	}
	MemoryContextSwitchTo(caller);
	idem_store_close(&store);
	MemoryContextDelete(context);
	PG_RETURN_INT64(stored);
}

/*
 * Lets only one session at a time move the sequence, without standing in the
 * way of those who draw from it.
 */
static void
fence_lock(LOCKTAG *tag)
{
	SET_LOCKTAG_ADVISORY(*tag, MyDatabaseId, 0, 0, IDEM_FENCE_LOCK_CLASS);
	(void) LockAcquire(tag, ExclusiveLock, false, false);
}

/*
 * idem_fence_advance(n) -> bigint: every later fence is above n.
 *
 * The sequence must never go back, and others draw from it between our look
 * and our setting.  A small gap is closed by drawing; over a large one we jump
 * further than anybody could have drawn meanwhile.
 */
Datum
idem_fence_advance(PG_FUNCTION_ARGS)
{
	Oid			sequence = idem_catalog_relation(IDEM_REL_FENCE);
	LOCKTAG		tag;
	int64		target;
	int64		fence;

	if (PG_ARGISNULL(0) || PG_GETARG_INT64(0) < 1 ||
		PG_GETARG_INT64(0) > PG_INT64_MAX / 2)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_BAD_ARGUMENT),
				 errmsg("argument \"n\" must be a fence, greater than zero"),
				 errhidestmt(true)));
	target = PG_GETARG_INT64(0);
	idem_require_writable("idem_fence_advance()");

	fence_lock(&tag);
	fence = nextval_internal(sequence, false);
	if (target - fence > FENCE_GAP)
	{
		IdemIdentity saved;

		fence = target + FENCE_JUMP;
		idem_catalog_become(idem_catalog_owner(IDEM_REL_FENCE), &saved);
		(void) DirectFunctionCall2(setval_oid, ObjectIdGetDatum(sequence),
								   Int64GetDatum(fence));
		idem_catalog_restore(&saved);
	}
	while (fence < target)
		fence = nextval_internal(sequence, false);
	LockRelease(&tag, ExclusiveLock, false);
	ForceSyncCommit();
	PG_RETURN_INT64(fence);
}
