/*
 * tick_timer.h
 *	  One due timer, in the hands of idem_tick().
 */
#ifndef IDEM_TICK_TIMER_H
#define IDEM_TICK_TIMER_H

#include "storage/itemptr.h"
#include "utils/jsonb.h"

#include "fire.h"
#include "tick_table.h"

typedef struct IdemTickTimer
{
	ItemPointerData tid;
	char	   *machine;
	char	   *schema;
	char	   *table;
	char	   *tag;
	Jsonb	   *row_key;
	int64		row_hash;
	char	   *state;
	char	   *event;
	TimestampTz since;
	TimestampTz key_since;		/* as in the table; else DT_NOBEGIN */
	int32		tries;			/* that failed */

	bool		unread;			/* its key is none of the table's, as far as
								 * that was found out */
	Jsonb	   *former_key;		/* what it was if that is not row_key; or NULL */
	bool		looked;			/* the table has been looked at in this call */
	Oid			refused_by;		/* a table in which none is fired */
	IdemTickSession *session;

	/* what has become of it */
	bool		done;			/* what was written stays */
	bool		applied;		/* the row has moved */
	const char *outcome;		/* NULL: nothing to tell */
	bool		keep;			/* look at it again ... */
	TimestampTz due;			/* ... then, if not 0 */
	TimestampTz next;			/* ... or then, if it is put off for longer */

	/* while it is handled */
	const IdemFire *fire;
	Jsonb	   *history_key;	/* how idem.history knows the row */
	bool		early;			/* its time is still to come */
} IdemTickTimer;

extern void idem_tick_put_off(IdemTickTimer *timer);
extern bool idem_tick_is_note(const IdemTickTimer *timer);
extern bool idem_tick_is_of_key(const IdemTickTimer *note);
extern void idem_tick_handle(void *arg);

#endif							/* IDEM_TICK_TIMER_H */
