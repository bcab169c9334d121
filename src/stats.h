/*
 * stats.h
 *	  Counting what happens, in shared memory, where the library is preloaded.
 */
#ifndef IDEM_STATS_H
#define IDEM_STATS_H

#include "datatype/timestamp.h"
#include "port/atomics.h"

#include "registry.h"

/* what a row of counters is about */
typedef enum IdemStatsKind
{
	IDEM_STATS_SCOPE,			/* named by the scope without its tenant */
	IDEM_STATS_MACHINE,			/* named by the machine */
	IDEM_STATS_VERSION,			/* all versioned and fenced tables */
	IDEM_STATS_TOKEN,
	IDEM_STATS_LEASE,
	IDEM_STATS_WINDOW,
	IDEM_STATS_BRANCH,
	IDEM_STATS_SWEEP,			/* named by the kind of record */
	IDEM_STATS_TICK,
	IDEM_STATS_OTHERS,			/* whatever found no row of its own */
	IDEM_STATS_NKINDS
} IdemStatsKind;

typedef enum IdemCounter
{
	IDEM_COUNT_CLAIMS,
	IDEM_COUNT_REPLAYS,
	IDEM_COUNT_FAILURES,
	IDEM_COUNT_IN_PROGRESS,
	IDEM_COUNT_MISMATCHES,
	IDEM_COUNT_TAKEOVERS,
	IDEM_COUNT_WAITS,
	IDEM_COUNT_WAIT_USECS,
	IDEM_COUNT_MOVES,
	IDEM_COUNT_ILLEGAL,
	IDEM_COUNT_FORBIDDEN,
	IDEM_COUNT_GUARDED,
	IDEM_COUNT_STALE,
	IDEM_COUNT_FROZEN,
	IDEM_COUNT_REFUSED,			/* in any other way */
	IDEM_COUNT_OBSERVED,		/* would have been refused */
	IDEM_COUNT_RUNS,			/* sweeps or ticks */
	IDEM_COUNT_REMOVED,
	IDEM_NCOUNTERS
} IdemCounter;

/* values that are set, not counted */
typedef enum IdemGauge
{
	IDEM_GAUGE_PID,				/* who sweeps, or 0 */
	IDEM_GAUGE_STARTED_AT,		/* of this sweep */
	IDEM_GAUGE_BLOCKS,
	IDEM_GAUGE_BLOCKS_DONE,
	IDEM_GAUGE_REMOVED,			/* by this sweep */
	IDEM_GAUGE_ROUND_AT,		/* when the round that goes on began ... */
	IDEM_GAUGE_ROUND_DONE,		/* ... how many blocks of it are done ... */
	IDEM_GAUGE_ROUND_BLOCKS,	/* ... of how many at most so far ... */
	IDEM_GAUGE_ROUND_FILE,		/* ... and of which file */
	IDEM_GAUGE_CAUGHT_UP_AT,	/* what expired before it is gone */
	IDEM_NGAUGES
} IdemGauge;

typedef struct IdemStatsRow IdemStatsRow;

/* a write that was refused, or in mode "observe" would have been */
typedef struct IdemRefusal
{
	IdemStatsKind kind;
	const char *name;			/* of machine or scope, or NULL */
	IdemCounter counter;		/* how it was refused */
	bool		observed;
	Oid			relid;			/* or InvalidOid */
	const char *from;			/* labels, or NULL */
	const char *to;
	const char *event;
	int			sqlerrcode;
} IdemRefusal;

/* whether there is anything to count in */
extern bool idem_stats_on;

extern void idem_stats_init(void);
extern IdemStatsRow *idem_stats_row(IdemStatsKind kind, const char *name,
									Size len);
extern void idem_stats_add(IdemStatsRow *row, IdemCounter counter, int64 n);
extern void idem_stats_set(IdemStatsRow *row, IdemGauge gauge, int64 value);
extern int64 idem_stats_get(IdemStatsRow *row, IdemGauge gauge);
extern void idem_stats_count_claim(text *scope, IdemOutcome outcome,
								   int64 waited);
extern void idem_stats_count_refusal(const IdemRefusal *refusal);

/*
 * What hot paths call: nothing but a test where nothing is counted.
 */
static inline void
idem_stats_claimed(text *scope, IdemOutcome outcome, int64 waited)
{
	if (idem_stats_on)
		idem_stats_count_claim(scope, outcome, waited);
}

static inline void
idem_stats_counted(IdemStatsKind kind, const char *name, IdemCounter counter)
{
	if (idem_stats_on)
		idem_stats_add(idem_stats_row(kind, name,
									  name != NULL ? strlen(name) : 0),
					   counter, 1);
}

static inline void
idem_stats_refused(const IdemRefusal *refusal)
{
	if (idem_stats_on)
		idem_stats_count_refusal(refusal);
}

#endif							/* IDEM_STATS_H */
