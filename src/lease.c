/*
 * lease.c
 *	  Leases: idem_lease_acquire, _renew, _release, _guard, _break.
 *
 * Everything is one loop, as in registry.c: read the latest committed version,
 * judge it by the wall clock, and write exactly over that version; who was
 * overtaken reads again.
 *
 * Three strengths of row locks keep a guarded transaction safe:
 *
 *	guard		KEY SHARE, kept until its transaction ends
 *	renew,		an update that leaves the key alone, which KEY SHARE lets
 *	release		through: neither gives the lease to anybody else
 *	takeover,	FOR UPDATE first, which KEY SHARE does not let through: a new
 *	break		holder, or nobody, comes only after the last guard has ended
 *
 * A guard that got its lock while the lease was being released stands on the
 * released version too, since an update carries KEY SHARE locks over.  But the
 * version that it locked may already be an old one; so it reads the row once
 * more when it has its lock.
 *
 * The fence is drawn after the last sleep, and a row is never deleted but by
 * a sweep long after its end, so that fences of one name grow.
 *
 * Waiting for a committed lease is no wait for a lock, since its holder has no
 * transaction: it is a sleep without any lock on the table, and a look every
 * half second.  Behind uncommitted work the sleep is in the lock queue, where
 * the deadlock detector sees it.
 *
 * Above READ COMMITTED, who would run on a snapshot that does not see what
 * the former holder committed gets 40001, as with a claim.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/latch.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"
#include "utils/typcache.h"

#include "catalog.h"
#include "compat.h"
#include "errors.h"
#include "leases.h"
#include "registry.h"
#include "stats.h"

PG_FUNCTION_INFO_V1(idem_lease_acquire);
PG_FUNCTION_INFO_V1(idem_lease_renew);
PG_FUNCTION_INFO_V1(idem_lease_release);
PG_FUNCTION_INFO_V1(idem_lease_guard);
PG_FUNCTION_INFO_V1(idem_lease_break);

#define MAX_NAME_LENGTH		1024

/* milliseconds from one look at a held lease to the next, at first and at most */
#define FIRST_NAP			10
#define LONGEST_NAP			500

typedef struct Acquisition
{
	text	   *name;
	const Interval *span;
	text	   *owner;			/* may be NULL */
	IdemWait	wait;
	bool		run;
	IdemLease	lease;			/* where it runs */
	int			retry_after;	/* where it does not */
} Acquisition;

static void
lease_check_text(text *value, const char *what)
{
	if (value == NULL || VARSIZE_ANY_EXHDR(value) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_BAD_ARGUMENT),
				 errmsg("argument \"%s\" is missing or empty", what),
				 errhidestmt(true)));
	if (VARSIZE_ANY_EXHDR(value) > MAX_NAME_LENGTH)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_BAD_ARGUMENT),
				 errmsg("argument \"%s\" is too long", what),
				 errdetail("It has %zu bytes; at most %d are allowed.",
						   (Size) VARSIZE_ANY_EXHDR(value), MAX_NAME_LENGTH),
				 errhidestmt(true)));
}

static text *
lease_arg_name(FunctionCallInfo fcinfo)
{
	text	   *name = IDEM_ARG_TEXT(0);

	lease_check_text(name, "name");
	return name;
}

static const Interval *
lease_arg_span(FunctionCallInfo fcinfo)
{
	const Interval *span = IDEM_ARG_INTERVAL(1);

	if (span == NULL)
		idem_report_missing("lease");
	(void) idem_scope_deadline(GetCurrentTimestamp(), span, "lease");
	return span;
}

static int64
lease_arg_fence(FunctionCallInfo fcinfo, int n)
{
	idem_require_argument(fcinfo, n, "fence");
	return PG_GETARG_INT64(n);
}

static Datum
lease_pack(FunctionCallInfo fcinfo, int natts, Datum *values, bool *nulls)
{
	/* without an expression in a fast-path call */
	Oid			rettype = get_fn_expr_rettype(fcinfo->flinfo);
	TupleDesc	desc;
	HeapTuple	tuple;

	if (!OidIsValid(rettype))
		rettype = get_func_rettype(fcinfo->flinfo->fn_oid);
	desc = lookup_rowtype_tupdesc(rettype, -1);
	if (desc->natts != natts)
		elog(ERROR, "result type has %d columns, not %d", desc->natts, natts);
	tuple = heap_form_tuple(desc, values, nulls);
	ReleaseTupleDesc(desc);
	return HeapTupleGetDatum(tuple);
}

static void
lease_report_old_snapshot(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 errmsg("could not serialize access due to a former holder of the lease"),
			 errdetail("The transaction's snapshot is older than what that holder committed."),
			 errhint("The transaction might succeed if retried. Acquire a lease in a transaction of its own, at READ COMMITTED."),
			 errhidestmt(true)));
}

static bool
lease_is_owned_by(const IdemLease *lease, text *owner)
{
	return owner != NULL && lease->owner != NULL &&
		VARSIZE_ANY_EXHDR(owner) == VARSIZE_ANY_EXHDR(lease->owner) &&
		memcmp(VARDATA_ANY(owner), VARDATA_ANY(lease->owner),
			   VARSIZE_ANY_EXHDR(owner)) == 0;
}

/*
 * Sleeps until it is time for another look.  False if the wait has run out.
 */
static bool
lease_nap(const IdemWait *wait, TimestampTz until, long *ms)
{
	static uint32 wait_event = 0;
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz end = wait->forever ? until : Min(until, wait->until);
	long		left;

	if (!wait->forever && wait->until <= now)
		return false;
	left = Max(TimestampDifferenceMilliseconds(now, end), 1);
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					 Min(*ms, left), IDEM_WAIT_EVENT(wait_event, "IdemLease"));
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
	*ms = Min(*ms * 2, LONGEST_NAP);
	return true;
}

/*
 * Writes the lease anew: with the same fence, or as a grant, which has one of
 * its own.  The times count from here.
 */
static IdemStoreResult
acquire_write(IdemLeases *leases, Acquisition *a, bool there, bool grant,
			  const IdemWait *wait)
{
	IdemLease  *lease = &a->lease;
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz until = idem_scope_deadline(now, a->span, "lease");

	if (grant)
	{
		lease->owner = a->owner;
		lease->fence = idem_catalog_draw_fence(there ? lease->fence : 0);
		lease->since = now;
		lease->until = until;
		lease->released = false;
	}
	else
		lease->until = Max(lease->until, until);
	return there ? idem_leases_update(leases, a->name, lease, wait) :
		idem_leases_insert(leases, a->name, lease, wait);
}

/*
 * Takes the lease, which is free or the caller's own.
 */
static IdemStoreResult
acquire_take(IdemLeases *leases, Acquisition *a, bool there, bool grant)
{
	TimestampTz former = a->lease.until;
	TimestampTz began;
	IdemStoreResult result;

	if (there && IsolationUsesXactSnapshot() &&
		!(grant ? idem_leases_snapshot_sees(a->name, &a->lease) :
		  idem_leases_snapshot_sees_fence(leases, a->name, &a->lease)))
		lease_report_old_snapshot();

	if (there && grant)
	{
		/* it was over before it was read */
		a->lease.ended = 0;
		result = idem_leases_lock(leases, a->name, &a->lease,
								  LockTupleExclusive, &a->wait);
		if (result != IDEM_STORE_OK)
			return result;
		if (IsolationUsesXactSnapshot() &&
			!idem_leases_snapshot_sees(a->name, &a->lease))
			lease_report_old_snapshot();
		result = acquire_write(leases, a, there, grant, &idem_wait_forever);
		if (result != IDEM_STORE_OK)
			elog(ERROR, "lease was changed although it was locked");
		return result;
	}
	began = GetCurrentTimestamp();
	result = acquire_write(leases, a, there, grant, &a->wait);

	/* the update may have slept: its times are of before that */
	if (result == IDEM_STORE_OK && there && idem_wait_may_have_slept(began))
	{
		a->lease.until = former;
		if (acquire_write(leases, a, true, grant,
						  &idem_wait_forever) != IDEM_STORE_OK)
			elog(ERROR, "lease was changed by its own transaction");
	}
	return result;
}

/*
 * One look, and if it allows one attempt.  "until" is the end of the lease of
 * another, where that is what the answer was.
 *
 * The clock is read before the row: if the lease had run out by then, nobody
 * can guard it any more who is not in the row that we read.
 */
static IdemStoreResult
acquire_try(IdemLeases *leases, Acquisition *a, TimestampTz *until)
{
	TimestampTz now = GetCurrentTimestamp();
	bool		there = idem_leases_read(leases, a->name, false, &a->lease);
	bool		held = there && !a->lease.released && a->lease.until > now;

	*until = 0;
	if (held && !lease_is_owned_by(&a->lease, a->owner))
	{
		/* somebody is just giving it back, or renewing it */
		if (TransactionIdIsValid(a->lease.writer))
		{
			a->retry_after = 1;
			return idem_leases_wait(leases, &a->lease, &a->wait);
		}
		*until = a->lease.until;
		a->retry_after = idem_registry_seconds(now, a->lease.until);
		return IDEM_STORE_BUSY;
	}
	a->retry_after = 1;
	return acquire_take(leases, a, there, !held);
}

static void
lease_acquire(Acquisition *a)
{
	IdemLeases	leases;
	long		nap = FIRST_NAP;

	idem_leases_open(&leases, RowExclusiveLock);
	for (;;)
	{
		TimestampTz until;
		IdemStoreResult result;

		CHECK_FOR_INTERRUPTS();
		result = acquire_try(&leases, a, &until);
		if (result == IDEM_STORE_OK)
			break;
		if (result == IDEM_STORE_CHANGED)
			continue;
		if (until == 0)
		{
			/* uncommitted work of another, for all the time there was */
			idem_leases_close(&leases);
			return;
		}
		idem_leases_forgo(&leases);
		if (!lease_nap(&a->wait, until, &nap))
			return;
		idem_leases_open(&leases, RowExclusiveLock);
	}
	idem_leases_close(&leases);
	/* a crash that forgot the lease would give its fence out again */
	ForceSyncCommit();
	a->run = true;
}

/*
 * idem_lease_acquire(name, lease, wait, owner) -> idem_lease_acquired
 */
Datum
idem_lease_acquire(PG_FUNCTION_ARGS)
{
	Acquisition a = {.name = lease_arg_name(fcinfo)};
	Datum		values[5] = {0};
	bool		nulls[5] = {false, false, true, true, true};

	a.span = lease_arg_span(fcinfo);
	idem_registry_parse_wait(IDEM_ARG_INTERVAL(2), &a.wait);
	a.owner = IDEM_ARG_TEXT(3);
	if (a.owner != NULL)
		lease_check_text(a.owner, "owner");
	idem_require_writable("idem_lease_acquire()");

	lease_acquire(&a);
	idem_stats_counted(IDEM_STATS_LEASE, NULL,
					   a.run ? IDEM_COUNT_CLAIMS : IDEM_COUNT_IN_PROGRESS);
	values[0] = BoolGetDatum(a.run);
	values[1] = CStringGetTextDatum(a.run ? "acquired" : "held");
	if (a.run)
	{
		values[2] = Int64GetDatum(a.lease.fence);
		values[3] = TimestampTzGetDatum(a.lease.until);
		nulls[2] = nulls[3] = false;
	}
	else
	{
		values[4] = Int32GetDatum(a.retry_after);
		nulls[4] = false;
	}
	return lease_pack(fcinfo, lengthof(values), values, nulls);
}

/*
 * Whether the row is there and nobody has had the lease since "fence".
 */
static bool
lease_find(IdemLeases *leases, text *name, int64 fence, IdemLease *lease)
{
	return idem_leases_read(leases, name, true, lease) &&
		lease->fence == fence;
}

/*
 * idem_lease_renew(name, lease, fence) -> idem_lease_renewed
 */
Datum
idem_lease_renew(PG_FUNCTION_ARGS)
{
	text	   *name = lease_arg_name(fcinfo);
	const Interval *span = lease_arg_span(fcinfo);
	int64		fence = lease_arg_fence(fcinfo, 2);
	IdemLeases	leases;
	IdemLease	lease;
	bool		renewed = false;
	Datum		values[2] = {0};
	bool		nulls[2] = {false, true};

	idem_require_writable("idem_lease_renew()");
	idem_leases_open(&leases, RowExclusiveLock);
	while (!renewed && lease_find(&leases, name, fence, &lease) &&
		   !lease.released)
	{
		TimestampTz now = GetCurrentTimestamp();

		CHECK_FOR_INTERRUPTS();
		lease.until = idem_scope_deadline(now, span, "lease");
		if (idem_leases_update(&leases, name, &lease,
							   &idem_wait_forever) != IDEM_STORE_OK)
			continue;
		renewed = true;
		/* the update may have slept; the lease counts from now */
		if (idem_wait_may_have_slept(now))
		{
			lease.until = idem_scope_deadline(GetCurrentTimestamp(), span,
											  "lease");
			if (idem_leases_update(&leases, name, &lease,
								   &idem_wait_forever) != IDEM_STORE_OK)
				elog(ERROR, "lease was changed by its own transaction");
		}
	}
	idem_leases_close(&leases);

	if (!renewed)
		idem_stats_counted(IDEM_STATS_LEASE, NULL, IDEM_COUNT_STALE);
	values[0] = CStringGetTextDatum(renewed ? "renewed" : "lost");
	if (renewed)
	{
		/* who relies on the new deadline must not find the old one */
		ForceSyncCommit();
		values[1] = TimestampTzGetDatum(lease.until);
		nulls[1] = false;
	}
	return lease_pack(fcinfo, lengthof(values), values, nulls);
}

/*
 * Makes the row nobody's, as of now, from when a sweep counts, also where the
 * lease had run out before.
 */
static IdemStoreResult
lease_give_back(IdemLeases *leases, text *name, IdemLease *lease)
{
	IdemStoreResult result;
	TimestampTz now = GetCurrentTimestamp();

	lease->owner = NULL;
	lease->until = now;
	lease->released = true;
	result = idem_leases_update(leases, name, lease, &idem_wait_forever);
	if (result != IDEM_STORE_OK || !idem_wait_may_have_slept(now))
		return result;

	lease->until = GetCurrentTimestamp();
	if (idem_leases_update(leases, name, lease,
						   &idem_wait_forever) != IDEM_STORE_OK)
		elog(ERROR, "lease was changed by its own transaction");
	return IDEM_STORE_OK;
}

/*
 * idem_lease_release(name, fence) -> text: released or lost
 */
Datum
idem_lease_release(PG_FUNCTION_ARGS)
{
	text	   *name = lease_arg_name(fcinfo);
	int64		fence = lease_arg_fence(fcinfo, 1);
	IdemLeases	leases;
	IdemLease	lease;
	bool		released = false;

	idem_require_writable("idem_lease_release()");
	idem_leases_open(&leases, RowExclusiveLock);
	while (!released && lease_find(&leases, name, fence, &lease))
	{
		CHECK_FOR_INTERRUPTS();
		released = lease.released ||
			lease_give_back(&leases, name, &lease) == IDEM_STORE_OK;
	}
	idem_leases_close(&leases);
	if (!released)
		idem_stats_counted(IDEM_STATS_LEASE, NULL, IDEM_COUNT_STALE);
	PG_RETURN_TEXT_P(cstring_to_text(released ? "released" : "lost"));
}

static void
guard_report(const char *detail)
{
	idem_stats_counted(IDEM_STATS_LEASE, NULL, IDEM_COUNT_STALE);
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_STALE),
			 errmsg("lease is not held by this fence"),
			 errdetail("%s", detail),
			 errhint("Roll back, and acquire the lease again before going on."),
			 errhidestmt(true)));
}

/*
 * An error unless the fence holds the lease at this moment.
 */
static void
guard_check(IdemLeases *leases, text *name, int64 fence, IdemLease *lease)
{
	if (!idem_leases_read(leases, name, true, lease))
		guard_report("There is no lease of that name.");
	if (lease->fence != fence)
		guard_report("It was taken over or broken since, or the fence is not this lease's.");
	if (lease->released)
		guard_report("It was released.");
	if (lease->until <= GetCurrentTimestamp())
		guard_report("It ran out before it was renewed.");
}

/*
 * idem_lease_guard(name, fence) -> true
 */
Datum
idem_lease_guard(PG_FUNCTION_ARGS)
{
	text	   *name = lease_arg_name(fcinfo);
	int64		fence = lease_arg_fence(fcinfo, 1);
	IdemLeases	leases;
	IdemLease	lease;

	idem_require_writable("idem_lease_guard()");
	idem_leases_open(&leases, RowShareLock);
	do
	{
		CHECK_FOR_INTERRUPTS();
		guard_check(&leases, name, fence, &lease);
	} while (idem_leases_lock(&leases, name, &lease, LockTupleKeyShare,
							  &idem_wait_forever) != IDEM_STORE_OK);

	/* time has gone by, and a release or a taker of it may have come between */
	guard_check(&leases, name, fence, &lease);
	if (IsolationUsesXactSnapshot() &&
		!idem_leases_snapshot_sees_fence(&leases, name, &lease))
		lease_report_old_snapshot();
	idem_leases_close(&leases);
	PG_RETURN_BOOL(true);
}

/*
 * idem_lease_break(name) -> true: takes the lease from whoever has it.
 */
Datum
idem_lease_break(PG_FUNCTION_ARGS)
{
	text	   *name = lease_arg_name(fcinfo);
	IdemLeases	leases;
	IdemLease	lease;

	idem_require_writable("idem_lease_break()");
	idem_leases_open(&leases, RowExclusiveLock);
	for (;;)
	{
		CHECK_FOR_INTERRUPTS();
		if (!idem_leases_read(&leases, name, true, &lease) || lease.released)
			ereport(ERROR,
					(errcode(ERRCODE_IDEM_NOT_FOUND),
					 errmsg("no such lease is held"),
					 errhidestmt(true)));
		if (idem_leases_lock(&leases, name, &lease, LockTupleExclusive,
							 &idem_wait_forever) != IDEM_STORE_OK)
			continue;
		/* another fence, so that the former holder is told */
		lease.fence = idem_catalog_draw_fence(lease.fence);
		if (lease_give_back(&leases, name, &lease) == IDEM_STORE_OK)
			break;
	}
	idem_leases_close(&leases);
	ForceSyncCommit();
	PG_RETURN_BOOL(true);
}
