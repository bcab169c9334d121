/*
 * wait.c
 *	  Work that may fail in part, or may sleep only so long.
 *
 * A bounded sleep is an ordinary sleep in the lock manager's queue, with the
 * deadlock detector, the caller's lock_timeout and statement_timeout at work
 * as ever, which a timer of our own cancels when the time is up.  Only sleeps
 * are: work that takes long by itself is left to finish.  The cancel
 * is caught in a subtransaction, so that nothing but the sleep is undone.  The
 * timer's own flag tells it from a cancel by the user; of both in one instant
 * the user's is the one that is lost, and the verdict is at hand anyway.
 *
 * lock_timeout would not do instead: it starts anew with each lock of one row,
 * and a timer that fires just as the lock is granted surfaces later, as an
 * error of whatever the caller does next.
 *
 * A limit on somebody else's code (idem_try_within) cancels whatever that is
 * at, and goes on cancelling: a function may have caught the first one.
 */
#include "postgres.h"

#include "access/xact.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "storage/latch.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "utils/memutils.h"
#include "utils/resowner.h"
#include "utils/timeout.h"
#include "utils/timestamp.h"

#include "wait.h"

/* milliseconds from one look at a sleep that is too long to the next */
#define TIMER_INTERVAL	2

/* milliseconds from one cancel of work that is over its limit to the next */
#define LIMIT_INTERVAL	1000

const IdemWait idem_wait_forever = {.forever = true};

static bool undo = false;
static int	tolerated_code = 0;
static char tolerated_message[256];
static volatile sig_atomic_t wait_is_over = false;
static volatile sig_atomic_t limit_is_over = false;
static volatile sig_atomic_t limit_met_table = false;

/*
 * Runs "work" in a subtransaction of its own.  False if it failed with an
 * error that is expected; then all that it did is undone.  Every other error
 * passes through.
 */
bool
idem_try(IdemWork work, void *arg, IdemExpected expected)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	volatile bool done = true;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		undo = false;
		work(arg);
		if (undo)
			RollbackAndReleaseCurrentSubTransaction();
		else
			ReleaseCurrentSubTransaction();
		undo = false;
		MemoryContextSwitchTo(context);
		CurrentResourceOwner = owner;
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(context);
		CurrentResourceOwner = owner;
		if (!expected(error))
			ReThrowError(error);
		FreeErrorData(error);
		done = false;
	}
	PG_END_TRY();

	return done;
}

/*
 * For work that is at its end: what it did is undone, though it did not fail.
 */
void
idem_try_undo(void)
{
	undo = true;
}

/*
 * An IdemExpected: all but what nobody may pass over, which is a cancel, a
 * shutdown, or a lack of resources.
 */
bool
idem_try_tolerates(const ErrorData *error)
{
	int			category = ERRCODE_TO_CATEGORY(error->sqlerrcode);
	const char *message = error->message == NULL ? "" : error->message;
	int			length = pg_mbcliplen(message, strlen(message),
									  sizeof(tolerated_message) - 1);

	tolerated_code = error->sqlerrcode;
	memcpy(tolerated_message, message, length);
	tolerated_message[length] = '\0';
	return category != ERRCODE_OPERATOR_INTERVENTION &&
		category != ERRCODE_INSUFFICIENT_RESOURCES;
}

/*
 * The message of the error that was tolerated last; NULL if it was only that a
 * lock was not to be had.
 */
const char *
idem_try_why(void)
{
	return tolerated_code == ERRCODE_LOCK_NOT_AVAILABLE ? NULL :
		tolerated_message;
}

typedef struct TryWork
{
	IdemWork	work;
	void	   *arg;
} TryWork;

static void
try_work(void *arg)
{
	TryWork    *inner = (TryWork *) arg;

	inner->work(inner->arg);
	/* the timeout may have come just as the lock was granted */
	CHECK_FOR_INTERRUPTS();
}

/*
 * An IdemExpected.  A timeout that came just as the lock was granted, and before
 * an error that is another's, has nobody to cancel any more.
 */
static bool
try_tolerates(const ErrorData *error)
{
	if (get_timeout_indicator(LOCK_TIMEOUT, true))
		QueryCancelPending = false;
	return idem_try_tolerates(error);
}

/*
 * As idem_try() of what is tolerated, but "work" fails where it would wait for a
 * lock.  Here the caller's lock_timeout does: each lock may take that moment.  No
 * timer runs but in a sleep, so that none cuts short the next one for the cost of
 * pages.
 */
bool
idem_try_without_waiting(IdemWork work, void *arg)
{
	TryWork		inner = {.work = work,.arg = arg};
	int			saved = LockTimeout;
	volatile bool done = false;

	LockTimeout = 1;
	PG_TRY();
	{
		done = idem_try(try_work, &inner, try_tolerates);
	}
	PG_FINALLY();
	{
		LockTimeout = saved;
	}
	PG_END_TRY();
	return done;
}

/*
 * The timer's handler: cancels as the user would, if a lock is waited for.
 * Otherwise the timer comes again.
 */
static void
wait_time_out(void)
{
	if (MyProc == NULL || MyProc->waitLock == NULL)
		return;
	wait_is_over = true;
	InterruptPending = true;
	QueryCancelPending = true;
	SetLatch(MyLatch);
}

/*
 * Whether the error is one of a cancel, not of a timeout of the user's nor of
 * code that raises what looks like it.
 */
static bool
wait_is_cancel(const ErrorData *error)
{
	return error->sqlerrcode == ERRCODE_QUERY_CANCELED &&
		error->message_id != NULL &&
		strcmp(error->message_id,
			   "canceling statement due to user request") == 0;
}

/*
 * An IdemExpected: our own cancel, not the user's nor that of a timeout of
 * his.
 */
static bool
wait_has_timed_out(const ErrorData *error)
{
	return wait_is_over && wait_is_cancel(error);
}

typedef struct WaitWork
{
	IdemWork	work;
	void	   *arg;
	TimeoutId	timeout;
	TimestampTz until;
} WaitWork;

static void
wait_work(void *arg)
{
	WaitWork   *wait = (WaitWork *) arg;

	enable_timeout_every(wait->timeout, wait->until, TIMER_INTERVAL);
	wait->work(wait->arg);
	disable_timeout(wait->timeout, false);
	/* it may have fired as the sleep ended */
	CHECK_FOR_INTERRUPTS();
}

/*
 * Whether a write that began then may have slept behind somebody who rolled
 * back: times that it wrote are of before that.  So they are where the clock was
 * set back.
 */
bool
idem_wait_may_have_slept(TimestampTz since)
{
	TimestampTz now = GetCurrentTimestamp();

	return now < since || now - since >= IDEM_BRIEF;
}

/*
 * Runs "work", which may wait for locks, for no longer than "wait" says.
 * False if that time ran out; then all that it did is undone.  Every other
 * error passes through.
 */
bool
idem_wait_run(const IdemWait *wait, IdemWork work, void *arg)
{
	static TimeoutId timeout = MAX_TIMEOUTS;
	WaitWork	bounded = {.work = work,.arg = arg};
	volatile bool done = false;

	if (wait->forever)
	{
		work(arg);
		return true;
	}

	if (timeout == MAX_TIMEOUTS)
		timeout = RegisterTimeout(USER_TIMEOUT, wait_time_out);
	bounded.timeout = timeout;
	bounded.until = Max(wait->until,
						TimestampTzPlusMilliseconds(GetCurrentTimestamp(), 1));
	wait_is_over = false;
	PG_TRY();
	{
		done = idem_try(wait_work, &bounded, wait_has_timed_out);
	}
	PG_FINALLY();
	{
		disable_timeout(timeout, false);
		/* it may have fired after another error, and has nobody to cancel */
		if (wait_is_over)
			QueryCancelPending = false;
		wait_is_over = false;
	}
	PG_END_TRY();
	return done;
}

/*
 * The handler of a limit on work: cancels it as the user would, whatever it is
 * at, and again if it went on all the same.
 */
static void
limit_ran_out(void)
{
	LOCK	   *lock = MyProc->waitLock;

	if (!limit_is_over && lock != NULL &&
		lock->tag.locktag_type == LOCKTAG_RELATION)
		limit_met_table = true;
	limit_is_over = true;
	InterruptPending = true;
	QueryCancelPending = true;
	SetLatch(MyLatch);
}

/*
 * For an IdemExpected: whether it is the cancel of a limit.
 */
bool
idem_try_ran_out(const ErrorData *error)
{
	return limit_is_over && wait_is_cancel(error);
}

/*
 * Whether the work that ran out of its limit last had been waiting for a lock
 * on a whole table.
 */
bool
idem_try_met_table(void)
{
	return limit_met_table;
}

/*
 * As idem_try(), but work that takes more than "limit" milliseconds is
 * cancelled; 0 is no limit.  Not to be called within itself.
 */
bool
idem_try_within(int limit, IdemWork work, void *arg, IdemExpected expected)
{
	static TimeoutId timeout = MAX_TIMEOUTS;
	volatile bool done = false;

	limit_met_table = false;
	if (limit == 0)
		return idem_try(work, arg, expected);
	if (timeout == MAX_TIMEOUTS)
		timeout = RegisterTimeout(USER_TIMEOUT, limit_ran_out);
	limit_is_over = false;
	enable_timeout_every(timeout,
						 TimestampTzPlusMilliseconds(GetCurrentTimestamp(),
													 limit),
						 LIMIT_INTERVAL);
	PG_TRY();
	{
		done = idem_try(work, arg, expected);
	}
	PG_FINALLY();
	{
		disable_timeout(timeout, false);
		/* it may have fired as the work ended, and has nobody to cancel */
		if (limit_is_over)
			QueryCancelPending = false;
		limit_is_over = false;
	}
	PG_END_TRY();
	return done;
}
