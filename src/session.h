/*
 * session.h
 *	  Session locks on fences: the proof that a session claim's holder lives.
 */
#ifndef IDEM_SESSION_H
#define IDEM_SESSION_H

#include "access/xact.h"

/*
 * Field 4 of our locks in the user lock method; the advisory locks of SQL
 * functions have 1 and 2 there.  The lock on fence 0, which nobody holds, is
 * for idem_fence_advance().
 */
#define IDEM_FENCE_LOCK_CLASS	0x1DE

extern bool idem_session_take(int64 fence);
extern void idem_session_give_up(int64 fence);
extern void idem_session_end(int64 fence);
extern bool idem_session_is_mine(int64 fence);
extern bool idem_session_was_mine(int64 fence);
extern bool idem_session_is_alive(int64 fence);
extern void idem_session_at_xact_end(bool committed, bool prepared);
extern void idem_session_at_subxact_end(bool committed, SubTransactionId subid,
										SubTransactionId parent);

#endif							/* IDEM_SESSION_H */
