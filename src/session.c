/*
 * session.c
 *	  Session locks on fences: the proof that a session claim's holder lives.
 *
 * A session claim holds a session-level lock on its fence, in the user lock
 * method (in the default one any ERROR would free it), with a class of its own
 * in field 4 so that it meets no advisory lock of the application's.  The lock
 * manager frees it with the process, however that dies, so "is it alive" is
 * one attempt to lock the fence: a number that somebody holds is not taken
 * again, so nobody else wants that lock but to ask.
 *
 * The lock outlives transactions, so this file takes it back where the claim
 * was rolled back, and frees it once the end of the claim is committed.  What
 * it remembers of each lock is the subtransaction that took it and the one
 * that ended it.  DISCARD ALL and pg_advisory_unlock_all() free the lock
 * behind our back; then the claim is lost, and is told so.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/lock.h"
#include "utils/memutils.h"

#include "compat.h"
#include "session.h"

typedef struct SessionLock
{
	int64		fence;
	SubTransactionId taken_in;	/* invalid once that is committed */
	SubTransactionId ended_in;	/* invalid while the claim goes on */
} SessionLock;

static SessionLock *locks = NULL;
static int	nlocks = 0;
static int	maxlocks = 0;

static void
session_lock_tag(LOCKTAG *tag, int64 fence)
{
	SET_LOCKTAG_ADVISORY(*tag, MyDatabaseId, (uint32) (fence >> 32),
						 (uint32) fence, IDEM_FENCE_LOCK_CLASS);
}

/*
 * Frees lock i if it is still ours, and forgets it.
 */
static void
session_free(int i)
{
	LOCKTAG		tag;

	session_lock_tag(&tag, locks[i].fence);
	if (IDEM_LOCK_HELD_BY_ME(&tag, ExclusiveLock))
		LockRelease(&tag, ExclusiveLock, true);
	locks[i] = locks[--nlocks];
}

/*
 * Locks a fence that was just drawn.  False if somebody holds that lock, us
 * included: then the sequence has gone back (an extension made anew, a restore
 * from the past), and another number has to be drawn.
 */
bool
idem_session_take(int64 fence)
{
	LOCKTAG		tag;

	if (nlocks == maxlocks)
	{
		int			size = Max(maxlocks * 2, 8);

		if (locks == NULL)
			locks = MemoryContextAlloc(TopMemoryContext,
									   size * sizeof(SessionLock));
		else
			locks = repalloc(locks, size * sizeof(SessionLock));
		maxlocks = size;
	}

	session_lock_tag(&tag, fence);
	switch (LockAcquire(&tag, ExclusiveLock, true, true))
	{
		case LOCKACQUIRE_NOT_AVAIL:
			return false;
		case LOCKACQUIRE_ALREADY_HELD:
		case LOCKACQUIRE_ALREADY_CLEAR:
			LockRelease(&tag, ExclusiveLock, true);
			return false;
		default:
			break;
	}
	locks[nlocks].fence = fence;
	locks[nlocks].taken_in = GetCurrentSubTransactionId();
	locks[nlocks].ended_in = InvalidSubTransactionId;
	nlocks++;
	return true;
}

static int
session_find(int64 fence)
{
	for (int i = 0; i < nlocks; i++)
	{
		if (locks[i].fence == fence)
			return i;
	}
	return -1;
}

/*
 * Frees it at once: the claim that it was drawn for came to nothing.
 */
void
idem_session_give_up(int64 fence)
{
	int			i = session_find(fence);

	if (i >= 0)
		session_free(i);
}

/*
 * The claim has ended, if this transaction commits.
 */
void
idem_session_end(int64 fence)
{
	int			i = session_find(fence);

	/* the outermost end counts, should an inner one be undone */
	if (i >= 0 && locks[i].ended_in == InvalidSubTransactionId)
		locks[i].ended_in = GetCurrentSubTransactionId();
}

/*
 * Whether this backend holds the lock.
 */
bool
idem_session_is_mine(int64 fence)
{
	LOCKTAG		tag;

	session_lock_tag(&tag, fence);
	return IDEM_LOCK_HELD_BY_ME(&tag, ExclusiveLock);
}

/*
 * Whether this backend took the lock, and may have lost it since.
 */
bool
idem_session_was_mine(int64 fence)
{
	return session_find(fence) >= 0;
}

/*
 * Whether any process holds the lock.  A standby cannot know.
 */
bool
idem_session_is_alive(int64 fence)
{
	LOCKTAG		tag;

	if (RecoveryInProgress() || idem_session_is_mine(fence))
		return true;

	session_lock_tag(&tag, fence);
	if (LockAcquire(&tag, ShareLock, false, true) == LOCKACQUIRE_NOT_AVAIL)
		return true;
	LockRelease(&tag, ShareLock, false);
	return false;
}

/*
 * End of the transaction.  After PREPARE TRANSACTION the claim may still be
 * committed, by whichever session: its lock stays for as long as we live.
 */
void
idem_session_at_xact_end(bool committed, bool prepared)
{
	for (int i = nlocks - 1; i >= 0; i--)
	{
		bool		taken = locks[i].taken_in != InvalidSubTransactionId;
		bool		ended = locks[i].ended_in != InvalidSubTransactionId;

		if (prepared || (committed ? !ended : !taken))
		{
			locks[i].taken_in = InvalidSubTransactionId;
			locks[i].ended_in = InvalidSubTransactionId;
		}
		else
			session_free(i);
	}
}

/*
 * End of a subtransaction: what happened in it happened in its parent, or not
 * at all.
 */
void
idem_session_at_subxact_end(bool committed, SubTransactionId subid,
							SubTransactionId parent)
{
	for (int i = nlocks - 1; i >= 0; i--)
	{
		if (locks[i].ended_in == subid)
			locks[i].ended_in = committed ? parent : InvalidSubTransactionId;
		if (locks[i].taken_in != subid)
			continue;
		if (committed)
			locks[i].taken_in = parent;
		else
			session_free(i);
	}
}
