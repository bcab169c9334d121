/*
 * wait.h
 *	  Work that may fail in part, or may sleep only so long.
 */
#ifndef IDEM_WAIT_H
#define IDEM_WAIT_H

#include "datatype/timestamp.h"
#include "utils/elog.h"

/* how long a duplicate may sleep behind someone's uncommitted work */
typedef struct IdemWait
{
	bool		forever;
	TimestampTz until;			/* if not forever; past: do not sleep at all */
} IdemWait;

extern const IdemWait idem_wait_forever;

/* a write that took longer may have slept behind somebody who then rolled back */
#define IDEM_BRIEF		(USECS_PER_SEC / 1000)

extern bool idem_wait_may_have_slept(TimestampTz since);

typedef void (*IdemWork) (void *arg);
typedef bool (*IdemExpected) (const ErrorData *error);

extern bool idem_try(IdemWork work, void *arg, IdemExpected expected);
extern void idem_try_undo(void);
extern bool idem_try_tolerates(const ErrorData *error);
extern bool idem_try_without_waiting(IdemWork work, void *arg);
extern const char *idem_try_why(void);
extern bool idem_wait_run(const IdemWait *wait, IdemWork work, void *arg);

extern bool idem_try_within(int limit, IdemWork work, void *arg,
							IdemExpected expected);
extern bool idem_try_ran_out(const ErrorData *error);
extern bool idem_try_met_table(void);

#endif							/* IDEM_WAIT_H */
