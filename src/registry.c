/*
 * registry.c
 *	  Claims are judged and recorded here, and the verbs that go on with a
 *	  claim are applied.
 *
 * Everything is one loop: read the row, decide by it, and where the decision
 * is to write, write exactly over the version that was read.  If that version
 * is no longer the latest (CHANGED), the decision is void and the loop goes
 * round; so a takeover never overwrites a result, a late verb never a
 * winner's row, and a key that vanishes between conflict and read is simply
 * claimed again.  Time is read after each read, hence after each sleep, from
 * the wall clock: a transaction's now() would let dead leases live.
 *
 * The fence is drawn after the last sleep before the write that carries it,
 * and where the write itself slept, drawn and written again.  Draw and write
 * are not one act, but a write that another holder overtook fails and draws
 * anew, so that along the versions of one row fences grow.
 *
 * Above READ COMMITTED a claim that would run on a snapshot older than the
 * row it takes over is refused with 40001: the caller would not see what the
 * former holder committed.  Answers that do not run are given at every level.
 *
 * Locks: see store.c.  A transaction that sleeps here may hold other keys, so
 * two that claim the same keys in opposite order can deadlock, which
 * PostgreSQL detects; batches sort their keys and cannot.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_collation.h"
#include "commands/sequence.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/timestamp.h"

#include "catalog.h"
#include "errors.h"
#include "registry.h"
#include "session.h"

#define MAX_KEY_LENGTH	1024

/* nobody loses so many races in a row */
#define MAX_ROUNDS		10000

/* a write that took longer may have slept */
#define BRIEF			(USECS_PER_SEC / 1000)

/*
 * Refuses what cannot be a key.  The length limit keeps every index entry
 * below PostgreSQL's own limit, which would depend on how well data compress.
 */
void
idem_registry_check_key(text *key)
{
	if (key == NULL || VARSIZE_ANY_EXHDR(key) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_BAD_ARGUMENT),
				 errmsg("idem key is missing"),
				 errhint("Pass a key, or set \"idem.key\" for the request."),
				 errhidestmt(true)));
	if (VARSIZE_ANY_EXHDR(key) > MAX_KEY_LENGTH)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_BAD_ARGUMENT),
				 errmsg("idem key is too long"),
				 errdetail("The key has %zu bytes; at most %d are allowed.",
						   (Size) VARSIZE_ANY_EXHDR(key), MAX_KEY_LENGTH),
				 errhint("Use a digest of it, such as encode(sha256(...), 'hex')."),
				 errhidestmt(true)));
}

/*
 * Order of keys by their bytes, as in the "C" collation: the order in which
 * batches take them.
 */
int
idem_registry_compare_keys(text *a, text *b)
{
	Size		alen = VARSIZE_ANY_EXHDR(a);
	Size		blen = VARSIZE_ANY_EXHDR(b);
	int			order = memcmp(VARDATA_ANY(a), VARDATA_ANY(b),
							   Min(alen, blen));

	if (order != 0)
		return order;
	return alen < blen ? -1 : alen > blen;
}

/*
 * The argument "wait": NULL sleeps for the exact answer.
 */
void
idem_registry_parse_wait(const Interval *span, IdemWait *wait)
{
	TimestampTz now = GetCurrentTimestamp();

	memset(wait, 0, sizeof(IdemWait));
	if (span == NULL)
		wait->forever = true;
	else
		wait->until = idem_scope_deadline_or_now(now, span, "wait");
}

/*
 * Each further round of a loop means that somebody else wrote the row in
 * between.  That does not go on for ever, unless something on the table
 * swallows what we write.
 */
void
idem_registry_check_rounds(int rounds)
{
	if (rounds >= MAX_ROUNDS)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("writing to table \"idem.key\" has no effect"),
				 errdetail("A trigger, rule or policy on it seems to suppress the write."),
				 errhidestmt(true)));
}

/*
 * The row of a key, by its remembered position where this transaction wrote
 * it, else through the index.
 */
bool
idem_registry_read(IdemStore *store, text *scope, text *key,
				   const IdemClaim *claim, IdemRow *row)
{
	if (claim != NULL &&
		claim->tid_epoch == idem_catalog_epoch(IDEM_REL_KEY))
	{
		ItemPointerData tid = claim->tid;

		if (idem_store_read_at(store, &tid, scope, key, row))
			return true;
	}
	return idem_store_read(store, scope, key, row);
}

/*
 * Whole seconds from now to then, rounded up, at least one.
 */
static int
registry_seconds(TimestampTz now, TimestampTz then)
{
	int64		seconds = (then - now + USECS_PER_SEC - 1) / USECS_PER_SEC;

	return (int) Min(Max(seconds, 1), PG_INT32_MAX);
}

/*
 * Whether both requests are known, and differ.
 */
static bool
registry_mismatches(bytea *request, const IdemRow *row)
{
	bytea	   *recorded;
	Size		len;

	if (request == NULL || row->nulls[IDEM_COL_FINGERPRINT])
		return false;
	recorded = DatumGetByteaPP(row->values[IDEM_COL_FINGERPRINT]);
	len = VARSIZE_ANY_EXHDR(recorded);
	return len != VARSIZE_ANY_EXHDR(request) ||
		memcmp(VARDATA_ANY(recorded), VARDATA_ANY(request), len) != 0;
}

/*
 * What a claim is answered, by the row as it stands.
 */
static void
registry_judge(const IdemRequest *request, const IdemClaim *claim,
			   TimestampTz now, IdemVerdict *verdict)
{
	const IdemRow *row = &verdict->row;
	IdemState	state;
	TimestampTz until;

	verdict->own = claim != NULL && claim->status == IDEM_CLAIM_HELD;
	if (!verdict->known || (!verdict->own && idem_row_is_expired(row, now)))
	{
		verdict->known = false;
		verdict->outcome = IDEM_OUT_CLAIMED;
		return;
	}

	state = idem_row_state(row);
	if (registry_mismatches(request->fingerprint, row))
		verdict->outcome = IDEM_OUT_MISMATCH;
	else if (state == IDEM_COMPLETED)
		verdict->outcome = IDEM_OUT_COMPLETED;
	else if (state == IDEM_FAILED)
		verdict->outcome = IDEM_OUT_FAILED;
	else if (idem_row_is_held(row, claim, now, &until))
	{
		if (state == IDEM_OPEN && idem_row_is_spent(row, request->scope))
		{
			verdict->outcome = IDEM_OUT_FAILED;
			return;
		}
		verdict->outcome = IDEM_OUT_IN_PROGRESS;
		verdict->retry_after = registry_seconds(now, until);
		if (idem_row_hold(row) == IDEM_HOLD_SESSION &&
			idem_session_is_mine(DatumGetInt64(row->values[IDEM_COL_FENCE])))
			verdict->own = true;
	}
	else if (idem_row_is_spent(row, request->scope))
		verdict->outcome = IDEM_OUT_FAILED;
	else
		verdict->outcome = state == IDEM_OPEN ?
			IDEM_OUT_CLAIMED : IDEM_OUT_TAKEOVER;
}

static void
registry_draw_fence(IdemRow *row)
{
	Oid			sequence = idem_catalog_relation(IDEM_REL_FENCE);

	idem_row_set(row, IDEM_COL_FENCE,
				 Int64GetDatum(nextval_internal(sequence, false)));
}

/*
 * Sets the times that count from the grant, and draws the fence.
 */
static void
registry_stamp(const IdemRequest *request, TimestampTz now, IdemRow *row)
{
	if (request->once)
	{
		idem_row_set(row, IDEM_COL_FINISHED_AT, TimestampTzGetDatum(now));
		idem_row_set_expiry(row, request->scope, now);
		return;
	}
	if (request->hold == IDEM_HOLD_TRANSACTION)
		return;

	registry_draw_fence(row);
	idem_row_set(row, IDEM_COL_CLAIMED_AT, TimestampTzGetDatum(now));
	if (request->hold == IDEM_HOLD_LEASE)
	{
		TimestampTz until = idem_scope_deadline(now, request->lease, "lease");

		idem_row_set(row, IDEM_COL_LEASE_UNTIL, TimestampTzGetDatum(until));
		idem_row_set_expiry(row, request->scope, until);
	}
}

/*
 * Makes the judged row into the one that the caller's claim writes.
 */
static void
registry_fill_claim(const IdemRequest *request, TimestampTz now,
					bool known, IdemRow *row)
{
	static const char *const hold_names[] = {
		[IDEM_HOLD_TRANSACTION] = "transaction",
		[IDEM_HOLD_LEASE] = "lease",
		[IDEM_HOLD_SESSION] = "session"
	};

	if (known)
	{
		int32		attempt = DatumGetInt32(row->values[IDEM_COL_ATTEMPT]);

		idem_row_set(row, IDEM_COL_ATTEMPT, Int32GetDatum(attempt + 1));
	}
	else
		idem_row_start(row, request->scope->name, request->key, now);

	if (request->ttl != NULL)
		idem_row_set(row, IDEM_COL_TTL, IntervalPGetDatum(request->ttl));
	if (request->fingerprint != NULL)
		idem_row_set(row, IDEM_COL_FINGERPRINT,
					 PointerGetDatum(request->fingerprint));
	row->nulls[IDEM_COL_HOLD] = true;
	row->nulls[IDEM_COL_FENCE] = true;
	row->nulls[IDEM_COL_LEASE_UNTIL] = true;
	row->nulls[IDEM_COL_EXPIRES_AT] = true;
	row->nulls[IDEM_COL_FINISHED_AT] = true;
	row->nulls[IDEM_COL_FUNCTION] = true;
	row->nulls[IDEM_COL_RESULT] = true;
	row->nulls[IDEM_COL_CLAIMED_AT] = true;

	if (request->once)
	{
		idem_row_set_state(row, IDEM_COMPLETED);
		row->nulls[IDEM_COL_RESPONSE] = true;
		row->nulls[IDEM_COL_CODE] = true;
	}
	else
	{
		idem_row_set_state(row, IDEM_IN_PROGRESS);
		idem_row_set_text(row, IDEM_COL_HOLD, hold_names[request->hold]);
	}
	registry_stamp(request, now, row);
}

/*
 * Above READ COMMITTED, refuses to run on a snapshot that does not see what
 * the former holder of the row committed.
 */
static void
registry_check_snapshot(IdemStore *store, const IdemRow *row)
{
	if (!IsolationUsesXactSnapshot() || idem_store_snapshot_sees(store, row))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 errmsg("could not serialize access due to a former holder of the idem key"),
			 errdetail("The transaction's snapshot is older than what that holder committed."),
			 errhint("The transaction might succeed if retried."),
			 errhidestmt(true)));
}

/*
 * Writes the claim over what was judged.  A session claim locks its fence
 * first, so that whoever sees the row sees its holder alive.
 */
static IdemStoreResult
registry_write(IdemStore *store, const IdemRequest *request,
			   const IdemRow *old, IdemRow *row)
{
	bool		session = !request->once &&
	request->hold == IDEM_HOLD_SESSION;
	IdemStoreResult result;

	while (session &&
		   !idem_session_take(DatumGetInt64(row->values[IDEM_COL_FENCE])))
	{
		CHECK_FOR_INTERRUPTS();
		registry_draw_fence(row);
	}
	result = old != NULL ?
		idem_store_update(store, old, row, &request->wait) :
		idem_store_insert(store, row, &request->wait);
	if (session && result != IDEM_STORE_OK)
		idem_session_give_up(DatumGetInt64(row->values[IDEM_COL_FENCE]));
	return result;
}

/*
 * Where the write itself may have slept behind somebody who then rolled back,
 * the claim's times and fence are older than the grant: sets them anew.
 */
static void
registry_restamp(IdemStore *store, const IdemRequest *request, bool there,
				 TimestampTz judged_at, IdemRow *row)
{
	TimestampTz now = GetCurrentTimestamp();
	IdemRow		fresh = *row;

	/* the direct insert never sleeps, but says CHANGED afterwards */
	if (now - judged_at < BRIEF || (store->direct && !there) ||
		(!request->once && request->hold == IDEM_HOLD_TRANSACTION))
		return;

	registry_stamp(request, now, &fresh);
	if (registry_write(store, request, row, &fresh) != IDEM_STORE_OK)
		elog(ERROR, "idem claim was changed by its own transaction");
	if (!row->nulls[IDEM_COL_FENCE])
		idem_session_give_up(DatumGetInt64(row->values[IDEM_COL_FENCE]));
	*row = fresh;
}

/*
 * Claims a key, or says why not.  Never raises a unique violation, never
 * leaves the caller's transaction aborted, and writes only where it runs.
 */
void
idem_registry_claim(IdemStore *store, const IdemRequest *request,
					IdemVerdict *verdict)
{
	text	   *scope = request->scope->name;
	IdemClaim  *claim = idem_claims_find(scope, request->key);
	const char *verb = request->once ? "idem_once()" : "idem_claim()";

	for (int rounds = 0;; rounds++)
	{
		TimestampTz now;
		IdemRow		row;
		IdemStoreResult result;
		bool		there;

		CHECK_FOR_INTERRUPTS();
		idem_registry_check_rounds(rounds);

		there = idem_registry_read(store, scope, request->key, claim,
								   &verdict->row);
		if (!there && XactReadOnly)
			there = idem_store_read(store, scope, request->key,
									&verdict->row);
		now = GetCurrentTimestamp();
		verdict->known = there;
		registry_judge(request, claim, now, verdict);
		if (!IDEM_OUTCOME_RUNS(verdict->outcome))
			return;

		PreventCommandIfReadOnly(verb);
		PreventCommandIfParallelMode(verb);
		if (there)
			registry_check_snapshot(store, &verdict->row);

		row = verdict->row;
		registry_fill_claim(request, now, verdict->known, &row);
		result = registry_write(store, request,
								there ? &verdict->row : NULL, &row);
		if (result == IDEM_STORE_OK)
		{
			registry_restamp(store, request, there, now, &row);
			if (!request->once)
				idem_claims_note(scope, request->key, IDEM_CLAIM_HELD,
								 request->hold, &row.tid);
			else if (claim != NULL)
				idem_claims_note(scope, request->key, IDEM_CLAIM_ENDED,
								 IDEM_HOLD_NONE, &row.tid);
			/* what a crash can forget would protect nothing */
			if (!row.nulls[IDEM_COL_FENCE])
				ForceSyncCommit();
			verdict->row = row;
			return;
		}
		if (result == IDEM_STORE_BUSY)
		{
			verdict->outcome = IDEM_OUT_IN_PROGRESS;
			verdict->known = false;
			verdict->own = false;
			verdict->retry_after = 1;
			return;
		}
	}
}

static void
act_report_lost(const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_CONFLICT),
			 errmsg("idem claim is not held by the caller"),
			 errdetail("%s", detail),
			 errhint("Claim the key again; the answer is the winner's."),
			 errhidestmt(true)));
}

/*
 * Whether the claim is the caller's: by its fence, or without one because it
 * was made in this transaction, or in this session.  Otherwise an error.
 */
static void
act_check_owner(const IdemAct *act, const IdemClaim *claim, bool known,
				const IdemRow *row)
{
	IdemHold	hold;

	if (!known)
		act_report_lost("There is no record of the key.");

	hold = idem_row_hold(row);
	if (act->fence != NULL)
	{
		if (row->nulls[IDEM_COL_FENCE] ||
			DatumGetInt64(row->values[IDEM_COL_FENCE]) != *act->fence)
			act_report_lost("The record has another fence than the one given.");
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
	act_report_lost("The claim was not made in this transaction.");
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
 * Whether the verb with these very values has already been applied.
 */
static bool
act_is_repeat(const IdemAct *act, const IdemRow *row)
{
	IdemState	state = idem_row_state(row);

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

	if (state == IDEM_IN_PROGRESS)
		return;
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
act_check_size(const IdemScope *scope, Size size, const char *what)
{
	if (size > scope->max_response)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_MISUSE),
				 errmsg("argument \"%s\" is larger than the scope allows", what),
				 errdetail("It has %zu bytes; at most %d are allowed.",
						   size, scope->max_response),
				 errhint("Store a reference instead, or raise column \"max_response\" of table \"idem.scope\"."),
				 errhidestmt(true)));
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
act_apply(const IdemAct *act, const IdemScope *scope, TimestampTz now,
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
idem_registry_act(const IdemAct *act)
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

	idem_registry_check_key(act->key);
	idem_scope_resolve(act->scope, IDEM_SCOPE_USING, &scope);
	if (act->response != NULL)
		act_check_size(&scope, VARSIZE_ANY_EXHDR(act->response),
					   act->verb == IDEM_COMPLETE ? "response" : "error");
	if (act->step != NULL)
		act_check_size(&scope, VARSIZE_ANY_EXHDR(act->step), "step");
	if (act->progress != NULL)
		act_check_size(&scope, VARSIZE_ANY(act->progress), "progress");
	PreventCommandIfReadOnly(verb_names[act->verb]);
	PreventCommandIfParallelMode(verb_names[act->verb]);

	idem_store_open(&store, RowExclusiveLock);
	claim = idem_claims_find(scope.name, act->key);
	for (int rounds = 0;; rounds++)
	{
		bool		known;
		IdemRow		old;
		IdemStoreResult result;

		CHECK_FOR_INTERRUPTS();
		idem_registry_check_rounds(rounds);

		known = idem_registry_read(&store, scope.name, act->key, claim, &old);
		act_check_owner(act, claim, known, &old);
		if (act_is_repeat(act, &old))
			break;
		act_check_in_progress(act, &old);

		row = old;
		act_apply(act, &scope, GetCurrentTimestamp(), &row);
		result = idem_store_update(&store, &old, &row, &idem_wait_forever);
		if (result == IDEM_STORE_OK)
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
