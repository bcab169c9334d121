/*
 * act.c
 *	  Verbs that go on with a claim or end it.
 *
 * One loop as for claims (registry.c): read the row, check that the claim is
 * the caller's, and write over exactly that version.  Whose a claim is tells
 * its fence, or, where none is given, that it was made in this transaction or
 * is held by this session.  A lease that ran out but was taken by nobody still
 * belongs to its fence; what ends it is the takeover, whose row has another.
 *
 * A verb that is repeated with the same fence and values succeeds and changes
 * nothing, since the caller may not have seen the first answer.  Anything else
 * that comes late is an error, never a change of the winner's row.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_collation.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/timestamp.h"

#include "act.h"
#include "catalog.h"
#include "errors.h"
#include "registry.h"
#include "session.h"

static void
act_report(const char *detail, const char *hint)
{
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_CONFLICT),
			 errmsg("idem claim is not held by the caller"),
			 errdetail("%s", detail),
			 errhint("%s", hint),
			 errhidestmt(true)));
}

static void
act_report_lost(const char *detail)
{
	act_report(detail, "Claim the key again; the answer is the winner's.");
}

static void
act_note_one(const IdemClaim *claim, void *arg)
{
	*(bool *) arg = true;
}

/*
 * The claim of a call is no longer what the call made, by verbs or by SQL.
 */
static void
act_report_call(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_CONFLICT),
			 errmsg("idem claim has already ended"),
			 errdetail("The function that was called has ended the claim of its own call."),
			 errhint("Leave that to the call, which completes the claim with the function's result, or claim by hand with idem_claim()."),
			 errhidestmt(true)));
}

/*
 * There is nothing to end: mostly another key or scope than was claimed, or a
 * claim that was rolled back.
 */
static void
act_report_absent(text *scope)
{
	bool		others = false;

	idem_claims_visit_unfinished(act_note_one, &others);
	act_report(psprintf("There is no record of the key in scope \"%s\".",
						text_to_cstring(scope)),
			   others ?
			   "Compare key and scope with idem_unfinished(); a claim made in a block with EXCEPTION is rolled back with the block." :
			   "Pass the key and scope that idem_claim() got; a claim that was rolled back has to be made again.");
}

/*
 * The claim is somebody else's, or nobody's: whoever ends it did not look at
 * "run".
 */
static void
act_report_not_run(const IdemRow *row)
{
	const char *detail = NULL;

	switch (idem_row_state(row))
	{
		case IDEM_COMPLETED:
			detail = "The key was completed before.";
			break;
		case IDEM_FAILED:
			detail = "The key has failed before.";
			break;
		case IDEM_IN_PROGRESS:
			detail = "Another holder has it.";
			break;
		case IDEM_OPEN:
			detail = "The claim was retried or released before.";
			break;
	}
	act_report(detail,
			   idem_row_state(row) != IDEM_IN_PROGRESS &&
			   !row->nulls[IDEM_COL_FENCE] ?
			   "Work, and end the claim, only where idem_claim() returned run = true; to repeat a verb that ended it, pass its fence." :
			   "Work, and end the claim, only where idem_claim() returned run = true.");
}

/*
 * Whether the claim is the caller's: by its fence, or without one because it
 * was made in this transaction, or in this session.  Otherwise an error.
 */
static void
act_check_owner(const IdemAct *act, const IdemScope *scope,
				const IdemClaim *claim, bool known, const IdemRow *row)
{
	IdemHold	hold;

	if (!known && act->function != NULL)
		act_report_call();
	if (!known)
		act_report_absent(scope->name);

	hold = idem_row_hold(row);
	if (act->fence != NULL)
	{
		if (row->nulls[IDEM_COL_FENCE] ||
			DatumGetInt64(row->values[IDEM_COL_FENCE]) != *act->fence)
			act_report("Another holder has taken the claim over since, or the fence is not this key's.",
					   "Stop the work; claim the key again to learn the answer.");
		return;
	}
	if (claim != NULL)
		return;

	if (hold == IDEM_HOLD_SESSION)
	{
		int64		fence = DatumGetInt64(row->values[IDEM_COL_FENCE]);

		if (idem_session_is_mine(fence))
			return;
		if (idem_session_was_mine(fence))
			act_report_lost("The session lock of the claim is gone: DISCARD ALL or pg_advisory_unlock_all() freed it.");
	}
	if (hold == IDEM_HOLD_LEASE && idem_row_state(row) == IDEM_IN_PROGRESS)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_BAD_ARGUMENT),
				 errmsg("argument \"fence\" is missing"),
				 errdetail("The claim is held by a lease that was committed before this transaction."),
				 errhint("Pass the fence that idem_claim() returned."),
				 errhidestmt(true)));
	act_report_not_run(row);
}

static bool
act_same_text(text *given, const IdemRow *row, IdemColumn column)
{
	if (given == NULL || row->nulls[column])
		return given == NULL && row->nulls[column];
	return DatumGetBool(DirectFunctionCall2Coll(texteq, C_COLLATION_OID,
												PointerGetDatum(given),
												row->values[column]));
}

static bool
act_same_code(const IdemAct *act, const IdemRow *row)
{
	if (act->code == NULL || row->nulls[IDEM_COL_CODE])
		return act->code == NULL && row->nulls[IDEM_COL_CODE];
	return DatumGetInt32(row->values[IDEM_COL_CODE]) == *act->code;
}

/*
 * Of a call, whether its key is still claimed for it, or again without a
 * request after the function has released it.
 */
static bool
act_is_same_claim(const IdemAct *act, const IdemRow *row)
{
	return act->fingerprint == NULL ||
		(!row->nulls[IDEM_COL_FINGERPRINT] &&
		 DatumGetBool(DirectFunctionCall2(byteaeq,
										  PointerGetDatum(act->fingerprint),
										  row->values[IDEM_COL_FINGERPRINT])));
}

/*
 * Whether the verb with these very values has already been applied.  A call is
 * completed once, by itself.
 */
static bool
act_is_repeat(const IdemAct *act, const IdemRow *row)
{
	IdemState	state = idem_row_state(row);

	if (act->function != NULL)
		return false;
	switch (act->verb)
	{
		case IDEM_COMPLETE:
		case IDEM_FAIL:
			return state == (act->verb == IDEM_COMPLETE ?
							 IDEM_COMPLETED : IDEM_FAILED) &&
				act_same_text(act->response, row, IDEM_COL_RESPONSE) &&
				act_same_code(act, row);
		case IDEM_RETRY:
			return state == IDEM_OPEN &&
				idem_row_hold(row) != IDEM_HOLD_NONE &&
				act_same_text(act->response, row, IDEM_COL_RESPONSE);
		case IDEM_RELEASE:
			return state == IDEM_OPEN && idem_row_hold(row) == IDEM_HOLD_NONE;
		case IDEM_STEP:
			return state == IDEM_IN_PROGRESS &&
				act_same_text(act->step, row, IDEM_COL_STEP) &&
				(act->progress == NULL) == row->nulls[IDEM_COL_PROGRESS] &&
				(act->progress == NULL ||
				 DatumGetBool(DirectFunctionCall2(jsonb_eq,
												  JsonbPGetDatum(act->progress),
												  row->values[IDEM_COL_PROGRESS])));
		case IDEM_RENEW:
			return false;
	}
	return false;
}

static void
act_check_in_progress(const IdemAct *act, const IdemRow *row)
{
	IdemState	state = idem_row_state(row);

	if (state == IDEM_IN_PROGRESS && act_is_same_claim(act, row))
		return;
	if (act->function != NULL)
		act_report_call();
	if (state == IDEM_OPEN)
		act_report_lost("The claim was retried or released before.");
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_CONFLICT),
			 errmsg("idem claim has already ended"),
			 errdetail("It was %s before, with another value or by another verb.",
					   state == IDEM_COMPLETED ? "completed" : "failed"),
			 errhint("Claim the key again; the answer is what was stored."),
			 errhidestmt(true)));
}

static void
act_check_size(const IdemScope *scope, Size size, const char *argument)
{
	if (size > scope->max_response)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_MISUSE),
				 errmsg("argument \"%s\" is larger than the scope allows",
						argument),
				 errdetail("It has %zu bytes; at most %d are allowed.",
						   size, scope->max_response),
				 errhint("Store a reference instead, or raise column \"max_response\" of table \"idem.scope\"."),
				 errhidestmt(true)));
}

/*
 * The same of what a function returned, as JSON or as typed text.
 */
static void
act_check_result(const IdemAct *act, const IdemScope *scope, text *result,
				 const char *form)
{
	if (result != NULL && VARSIZE_ANY_EXHDR(result) > scope->max_response)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_MISUSE),
				 errmsg("result of function %s is larger than the scope allows",
						text_to_cstring(act->function)),
				 errdetail("It has %zu bytes as %s; at most %d are allowed.",
						   (Size) VARSIZE_ANY_EXHDR(result), form,
						   scope->max_response),
				 errhint("Return a reference instead, or raise column \"max_response\" of table \"idem.scope\"."),
				 errhidestmt(true)));
}

static void
act_check_response(const IdemAct *act, const IdemScope *scope)
{
	if (act->function != NULL)
	{
		act_check_result(act, scope, act->response, "JSON");
		act_check_result(act, scope, act->result, "typed text");
	}
	else if (act->response != NULL)
		act_check_size(scope, VARSIZE_ANY_EXHDR(act->response),
					   act->verb == IDEM_COMPLETE ? "response" : "error");
}

static void
act_set_response(const IdemAct *act, IdemRow *row)
{
	row->nulls[IDEM_COL_RESPONSE] = act->response == NULL;
	row->values[IDEM_COL_RESPONSE] = PointerGetDatum(act->response);
	row->nulls[IDEM_COL_CODE] = act->code == NULL;
	if (act->code != NULL)
		row->values[IDEM_COL_CODE] = Int32GetDatum(*act->code);
}

static void
act_reopen(IdemRow *row, const IdemScope *scope, TimestampTz now,
		   const Interval *after)
{
	TimestampTz from = now;

	idem_row_set_state(row, IDEM_OPEN);
	row->nulls[IDEM_COL_LEASE_UNTIL] = true;
	row->nulls[IDEM_COL_CLAIMED_AT] = true;
	if (after != NULL)
	{
		from = idem_scope_deadline_or_now(now, after, "after");
		idem_row_set(row, IDEM_COL_LEASE_UNTIL, TimestampTzGetDatum(from));
	}
	idem_row_set_expiry(row, scope, from);
}

/*
 * As if the claim had not been made: its attempt is taken back, and at the
 * first one all that it brought along.
 */
static void
act_release(IdemRow *row, const IdemScope *scope, TimestampTz now)
{
	int32		attempt = DatumGetInt32(row->values[IDEM_COL_ATTEMPT]) - 1;

	act_reopen(row, scope, now, NULL);
	row->nulls[IDEM_COL_HOLD] = true;
	row->values[IDEM_COL_ATTEMPT] = Int32GetDatum(attempt);
	if (attempt == 0)
	{
		row->nulls[IDEM_COL_FINGERPRINT] = true;
		row->nulls[IDEM_COL_STEP] = true;
		row->nulls[IDEM_COL_PROGRESS] = true;
		row->nulls[IDEM_COL_TTL] = true;
	}
	else if (idem_row_is_spent(row, scope))
	{
		/* it was claimed all the same, so an operator had allowed it */
		idem_row_set(row, IDEM_COL_FINISHED_AT, TimestampTzGetDatum(now));
	}
}

/*
 * Applies the verb to the row, in memory.
 */
static void
act_change(const IdemAct *act, const IdemScope *scope, TimestampTz now,
		   IdemRow *row)
{
	switch (act->verb)
	{
		case IDEM_COMPLETE:
		case IDEM_FAIL:
			idem_row_set_state(row, act->verb == IDEM_COMPLETE ?
							   IDEM_COMPLETED : IDEM_FAILED);
			act_set_response(act, row);
			if (act->function != NULL)
				idem_row_set(row, IDEM_COL_FUNCTION,
							 PointerGetDatum(act->function));
			if (act->result != NULL)
				idem_row_set(row, IDEM_COL_RESULT,
							 PointerGetDatum(act->result));
			row->nulls[IDEM_COL_LEASE_UNTIL] = true;
			idem_row_set(row, IDEM_COL_FINISHED_AT, TimestampTzGetDatum(now));
			idem_row_set_expiry(row, scope, now);
			break;
		case IDEM_RETRY:
			act_reopen(row, scope, now, act->span);
			act_set_response(act, row);
			break;
		case IDEM_RELEASE:
			act_release(row, scope, now);
			break;
		case IDEM_RENEW:
			{
				TimestampTz until;

				if (idem_row_hold(row) != IDEM_HOLD_LEASE)
					ereport(ERROR,
							(errcode(ERRCODE_IDEM_BAD_ARGUMENT),
							 errmsg("idem claim has no lease to renew"),
							 errdetail("It is held by its transaction or session, for as long as that lives."),
							 errhidestmt(true)));
				until = idem_scope_deadline(now, act->span != NULL ?
											act->span : &scope->lease,
											"lease");
				idem_row_set(row, IDEM_COL_LEASE_UNTIL,
							 TimestampTzGetDatum(until));
				idem_row_set_expiry(row, scope, until);
				break;
			}
		case IDEM_STEP:
			idem_row_set(row, IDEM_COL_STEP, PointerGetDatum(act->step));
			row->nulls[IDEM_COL_PROGRESS] = act->progress == NULL;
			row->values[IDEM_COL_PROGRESS] = JsonbPGetDatum(act->progress);
			break;
	}
}

/*
 * Whether times that were written at "now" are worth writing anew, since the write
 * slept, or the clock was set back: a thousandth of what was granted is not, as a
 * large response is written again with them.
 */
static bool
act_lost_time(const IdemAct *act, const IdemRow *row, TimestampTz now)
{
	IdemColumn	column = row->nulls[IDEM_COL_LEASE_UNTIL] ?
	IDEM_COL_EXPIRES_AT : IDEM_COL_LEASE_UNTIL;
	int64		slept;

	if (act->verb == IDEM_STEP || row->nulls[column] ||
		!idem_wait_may_have_slept(now))
		return false;
	slept = GetCurrentTimestamp() - now;
	return Max(slept, -slept) >
		(DatumGetTimestampTz(row->values[column]) - now) / 1000;
}

/*
 * Writes the row as the verb leaves it over the version that was judged.
 */
static IdemStoreResult
act_write(const IdemAct *act, const IdemScope *scope, IdemStore *store,
		  const IdemRow *old, IdemRow *row)
{
	TimestampTz now = GetCurrentTimestamp();
	IdemRow		written;
	IdemStoreResult result;

	*row = *old;
	act_change(act, scope, now, row);
	result = idem_store_update(store, old, row, &idem_wait_forever);
	if (result != IDEM_STORE_OK || !act_lost_time(act, row, now))
		return result;

	written = *row;
	*row = *old;
	act_change(act, scope, GetCurrentTimestamp(), row);
	idem_store_update_again(store, &written, row);
	return result;
}

/*
 * Notes what the verb did to this transaction's own claim, if it is one, and
 * to the session's lock.
 */
static void
act_note(const IdemAct *act, const IdemScope *scope, IdemClaim *claim,
		 IdemRow *row)
{
	IdemHold	hold = idem_row_hold(row);
	bool		ended = act->verb != IDEM_RENEW && act->verb != IDEM_STEP;

	if (ended && !row->nulls[IDEM_COL_FENCE])
		idem_session_end(DatumGetInt64(row->values[IDEM_COL_FENCE]));
	if (act->verb == IDEM_RENEW)
		ForceSyncCommit();
	if (claim != NULL)
		idem_claims_note(scope->name, act->key,
						 ended ? IDEM_CLAIM_ENDED : IDEM_CLAIM_HELD,
						 hold, &row->tid);
}

/*
 * Goes on with a claim, or ends it.  Repeating a verb that succeeded succeeds
 * and changes nothing; whoever does not hold the claim gets an error.  Returns
 * the deadline of a renewed lease.
 */
TimestampTz
idem_act_apply(const IdemAct *act)
{
	static const char *const verb_names[] = {
		[IDEM_COMPLETE] = "idem_complete()",
		[IDEM_FAIL] = "idem_fail()",
		[IDEM_RETRY] = "idem_retry()",
		[IDEM_RELEASE] = "idem_release()",
		[IDEM_RENEW] = "idem_renew()",
		[IDEM_STEP] = "idem_step()"
	};
	IdemScope	scope;
	IdemStore	store;
	IdemClaim  *claim;
	IdemRow		row;
	TimestampTz until = 0;

	idem_registry_check_key(act->key, true);
	idem_scope_resolve(act->scope, IDEM_SCOPE_USING, &scope);
	act_check_response(act, &scope);
	if (act->step != NULL)
		act_check_size(&scope, VARSIZE_ANY_EXHDR(act->step), "step");
	if (act->progress != NULL)
		act_check_size(&scope, VARSIZE_ANY(act->progress), "progress");
	idem_require_writable(verb_names[act->verb]);

	idem_store_open(&store, RowExclusiveLock);
	claim = idem_claims_find(scope.name, act->key);
	for (int rounds = 0;; rounds++)
	{
		bool		known;
		IdemRow		old;

		CHECK_FOR_INTERRUPTS();
		idem_registry_check_rounds(rounds);

		known = idem_registry_read(&store, scope.name, act->key, claim,
								   true, &old);
		act_check_owner(act, &scope, claim, known, &old);
		if (act_is_repeat(act, &old))
			break;
		act_check_in_progress(act, &old);

		if (act_write(act, &scope, &store, &old, &row) == IDEM_STORE_OK)
		{
			act_note(act, &scope, claim, &row);
			if (act->verb == IDEM_RENEW)
				until = DatumGetTimestampTz(row.values[IDEM_COL_LEASE_UNTIL]);
			break;
		}
	}
	idem_store_close(&store);
	return until;
}

/*
 * Completes the claim of a call, whose row is still as this transaction's
 * claim wrote it, unless the function that was called did something to it:
 * then as any verb does.
 */
static void
act_complete_claimed(const IdemAct *act, const IdemScope *scope,
					 const IdemRow *claimed)
{
	IdemClaim  *claim = idem_claims_find(scope->name, act->key);
	IdemStore	store;
	IdemRow		row = *claimed;
	bool		done;

	if (claim == NULL || claim->status != IDEM_CLAIM_HELD ||
		!ItemPointerIsValid(&claimed->tid) ||
		!ItemPointerEquals(&claim->tid, &row.tid) ||
		claim->tid_epoch != idem_catalog_epoch(IDEM_REL_KEY))
	{
		(void) idem_act_apply(act);
		return;
	}

	act_check_response(act, scope);
	act_change(act, scope, GetCurrentTimestamp(), &row);
	/* the claim's lock is still there */
	idem_store_open(&store, NoLock);
	done = idem_store_is_latest(&store, claimed) &&
		idem_store_update(&store, claimed, &row,
						  &idem_wait_forever) == IDEM_STORE_OK;
	idem_store_close(&store);
	if (done)
		act_note(act, scope, claim, &row);
	else
		(void) idem_act_apply(act);
}

/*
 * The same, also where the function has made the transaction read-only.
 */
void
idem_act_complete_call(const IdemAct *act, const IdemScope *scope,
					   const IdemRow *claimed)
{
	bool		read_only = XactReadOnly;

	/* an error ends the (sub)transaction, and so restores it */
	XactReadOnly = false;
	act_complete_claimed(act, scope, claimed);
	XactReadOnly = read_only;
}
