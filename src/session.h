/*
 * session.h
 *	  Session locks on fences: the proof that a session claim's holder lives.
 */
#ifndef IDEM_SESSION_H
#define IDEM_SESSION_H

#include "access/xact.h"

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
