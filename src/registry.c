/*
 * registry.c
 *	  Claims are judged and recorded here.
 *
 * Everything is one loop: read the row, decide by it, and where the decision
 * is to write, write exactly over the version that was read.  If that version
 * is no longer the latest (CHANGED), the decision is void and the loop goes
 * round; so a takeover never overwrites a result, and a key that vanishes
 * between conflict and read is simply claimed again.  Time is read after each
 * read, hence after each sleep, from the wall clock: a transaction's now()
 * would let dead leases live.
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
#include "miscadmin.h"
#include "port/pg_bswap.h"
#include "utils/timestamp.h"

#include "catalog.h"
#include "errors.h"
#include "registry.h"
#include "session.h"
#include "stats.h"

#define MAX_KEY_LENGTH	1024

/* nobody loses so many races in a row */
#define MAX_ROUNDS		10000

/*
 * Refuses what cannot be a key.  The length limit keeps every index entry
 * below PostgreSQL's own limit, which would depend on how well data compress.
 * "has_default" is true where the setting idem.key is taken for a key that is
 * not given.
 */
void
idem_registry_check_key(text *key, bool has_default)
{
	if (key == NULL || VARSIZE_ANY_EXHDR(key) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_BAD_ARGUMENT),
				 errmsg("idem key is missing"),
				 has_default ?
				 errhint("Pass a key, or set \"idem.key\" for the request.") :
				 errhint("Pass a key."),
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
 * By bytes, as in the "C" collation; equal keys in the order given.
 */
static int
registry_compare_keys(const void *a, const void *b)
{
	const IdemBatchKey *x = (const IdemBatchKey *) a;
	const IdemBatchKey *y = (const IdemBatchKey *) b;
	Size		xlen;
	Size		ylen;
	int			order;

	if (x->prefix != y->prefix)
		return x->prefix < y->prefix ? -1 : 1;

	xlen = VARSIZE_ANY_EXHDR(x->key);
	ylen = VARSIZE_ANY_EXHDR(y->key);
	order = memcmp(VARDATA_ANY(x->key), VARDATA_ANY(y->key), Min(xlen, ylen));
	if (order != 0)
		return order;
	if (xlen != ylen)
		return xlen < ylen ? -1 : 1;
	return x->position - y->position;
}

/*
 * The keys of a batch in the order in which every batch takes them, so that
 * two of them never wait for each other in a circle.
 */
IdemBatchKey *
idem_registry_sort_keys(Datum *keys, bool *nulls, int nkeys)
{
	IdemBatchKey *batch = palloc_extended(Max(nkeys, 1) * sizeof(IdemBatchKey),
										  MCXT_ALLOC_HUGE);

	for (int i = 0; i < nkeys; i++)
	{
		batch[i].key = nulls[i] ? NULL : DatumGetTextPP(keys[i]);
		batch[i].position = i;
		idem_registry_check_key(batch[i].key, false);
		batch[i].prefix = 0;
		memcpy(&batch[i].prefix, VARDATA_ANY(batch[i].key),
			   Min(VARSIZE_ANY_EXHDR(batch[i].key), sizeof(uint64)));
		batch[i].prefix = pg_ntoh64(batch[i].prefix);
	}
	qsort(batch, nkeys, sizeof(IdemBatchKey), registry_compare_keys);
	return batch;
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
				   const IdemClaim *claim, bool sure, IdemRow *row)
{
	if (claim != NULL &&
		claim->tid_epoch == idem_catalog_epoch(IDEM_REL_KEY))
	{
		ItemPointerData tid = claim->tid;

		if (idem_store_read_at(store, &tid, scope, key, row))
			return true;
	}
	return idem_store_read(store, scope, key, sure, row);
}

/*
 * Whole seconds from now to then, rounded up, at least one.
 */
int
idem_registry_seconds(TimestampTz now, TimestampTz then)
{
	int64		seconds = (then - now + USECS_PER_SEC - 1) / USECS_PER_SEC;

	return (int) Min(Max(seconds, 1), PG_INT32_MAX);
}

/*
 * Whether both requests are known, and differ.  Fingerprints of different
 * versions cannot be compared.
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
	if (len == 0 || VARDATA_ANY(recorded)[0] != VARDATA_ANY(request)[0])
		return false;
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
		verdict->retry_after = idem_registry_seconds(now, until);
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

/*
 * Draws the fence, above the one that the row has.
 */
static void
registry_draw_fence(IdemRow *row)
{
	int64		former = row->nulls[IDEM_COL_FENCE] ? 0 :
	DatumGetInt64(row->values[IDEM_COL_FENCE]);

	idem_row_set(row, IDEM_COL_FENCE,
				 Int64GetDatum(idem_catalog_draw_fence(former)));
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
	if (request->once || request->hold == IDEM_HOLD_TRANSACTION)
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
		row->nulls[IDEM_COL_RESPONSE] = request->response == NULL;
		row->values[IDEM_COL_RESPONSE] = PointerGetDatum(request->response);
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
 * Writes the claim over what was judged, or over itself ("own").  A session
 * claim locks its fence first, so that whoever sees the row sees its holder
 * alive.
 */
static IdemStoreResult
registry_write(IdemStore *store, const IdemRequest *request,
			   const IdemRow *old, bool own, IdemRow *row)
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
	if (own)
		result = idem_store_update_own(store, old, row);
	else
		result = old != NULL ?
			idem_store_update(store, old, row, &request->wait) :
			idem_store_insert(store, row, &request->wait);
	if (session && result != IDEM_STORE_OK)
		idem_session_give_up(DatumGetInt64(row->values[IDEM_COL_FENCE]));
	return result;
}

/*
 * Where the write itself may have slept behind somebody who then rolled back,
 * or the clock was set back, the claim's times and fence are not the grant's: sets
 * them anew.
 */
static void
registry_restamp(IdemStore *store, const IdemRequest *request, bool there,
				 TimestampTz judged_at, IdemRow *row)
{
	IdemRow		fresh = *row;

	/* the direct insert never sleeps, but says CHANGED afterwards */
	if (!idem_wait_may_have_slept(judged_at) || (store->direct && !there) ||
		(!request->once && request->hold == IDEM_HOLD_TRANSACTION))
		return;

	registry_stamp(request, GetCurrentTimestamp(), &fresh);
	/* a trigger of the owner's has gone on from what was written: it stands */
	if (registry_write(store, request, row, true, &fresh) != IDEM_STORE_OK)
		return;
	if (!row->nulls[IDEM_COL_FENCE])
		idem_session_give_up(DatumGetInt64(row->values[IDEM_COL_FENCE]));
	*row = fresh;
}

/*
 * How long a write slept behind somebody else, in microseconds, as far as can
 * be told: one that was overtaken, if it was slow, and one that succeeded, if it
 * was slower than work explains.
 */
static int64
registry_sleep(IdemStore *store, IdemStoreResult result, bool there,
			   TimestampTz since)
{
	int64		took;

	/* the direct insert never sleeps, but says CHANGED afterwards */
	if (result == IDEM_STORE_OK && store->direct && !there)
		return 0;
	took = GetCurrentTimestamp() - since;
	return took >= (result == IDEM_STORE_OK ? 10 * IDEM_BRIEF : IDEM_BRIEF) ? took : 0;
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
	int64		waited = 0;

	for (int rounds = 0;; rounds++)
	{
		TimestampTz now;
		IdemRow		row;
		IdemStoreResult result;
		bool		there;

		CHECK_FOR_INTERRUPTS();
		idem_registry_check_rounds(rounds);

		if (request->presume_new && rounds == 0)
		{
			idem_store_presume_absent(store);
			there = false;
		}
		else
			there = idem_registry_read(store, scope, request->key, claim,
									   XactReadOnly, &verdict->row);
		now = GetCurrentTimestamp();
		verdict->known = there;
		registry_judge(request, claim, now, verdict);
		if (!IDEM_OUTCOME_RUNS(verdict->outcome))
		{
			idem_stats_claimed(scope, verdict->outcome, waited);
			return;
		}

		idem_require_writable(request->verb);
		if (there)
			registry_check_snapshot(store, &verdict->row);

		row = verdict->row;
		registry_fill_claim(request, now, verdict->known, &row);
		result = registry_write(store, request,
								there ? &verdict->row : NULL, false, &row);
		if (idem_stats_on)
			waited += registry_sleep(store, result, there, now);
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
			idem_stats_claimed(scope, verdict->outcome, waited);
			verdict->row = row;
			return;
		}
		if (result == IDEM_STORE_BUSY)
		{
			verdict->outcome = IDEM_OUT_IN_PROGRESS;
			verdict->known = false;
			verdict->own = false;
			verdict->retry_after = 1;
			idem_stats_claimed(scope, verdict->outcome, waited);
			return;
		}
	}
}
