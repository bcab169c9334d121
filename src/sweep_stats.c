/*
 * sweep_stats.c
 *	  What is known of sweeps: how far one has come, and how far behind they are.
 *
 * The lag is a promise, not a guess: every record that expired before the
 * beginning of the last complete round is gone, but for those that a sweep had
 * to pass over.  A round that one call does not finish goes on in the next one
 * that holds the position; it began when its first call did.  Where the table
 * was written to another file meanwhile (VACUUM FULL, CLUSTER) it begins anew,
 * and where blocks were cut off its end it is as long as before: what was
 * walked may be what is gone.  What a call has found out counts once its
 * transaction is committed, and no subtransaction around it was rolled back,
 * since only then is anything gone, and only then does the next call go on from
 * there.  A round of the future, which the clock has left behind by being set
 * back, says nothing.
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "utils/timestamp.h"

#include "stats.h"
#include "sweep.h"

#define MAX_PENDING		16

/* a call that is not committed yet */
typedef struct Pending
{
	IdemStatsRow *row;
	SubTransactionId sub;
	TimestampTz began_at;
	int64		done;
	int64		nblocks;
	Oid			file;
	bool		whole;			/* it went once round by itself */
	bool		midway;			/* in its first block it was not from the
								 * beginning */
	bool		owned;			/* it went on from where the last one stopped */
} Pending;

static Pending pending[MAX_PENDING];
static int	npending = 0;

/* of the kind that is at its turn, or NULL */
static IdemStatsRow *current = NULL;
static SubTransactionId current_sub;

/*
 * A time of the past, or 0.
 */
static TimestampTz
sweep_stats_past(IdemStatsRow *row, int gauge, TimestampTz now)
{
	TimestampTz then = idem_stats_get(row, gauge);

	return then > now ? 0 : then;
}

static void
sweep_settle(const Pending *call)
{
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz round_at = sweep_stats_past(call->row, IDEM_GAUGE_ROUND_AT,
											now);
	int64		done = idem_stats_get(call->row, IDEM_GAUGE_ROUND_DONE);
	int64		nblocks = idem_stats_get(call->row, IDEM_GAUGE_ROUND_BLOCKS);

	if (call->whole)
	{
		idem_stats_set(call->row, IDEM_GAUGE_CAUGHT_UP_AT, call->began_at);
		if (call->owned)
			idem_stats_set(call->row, IDEM_GAUGE_ROUND_AT, 0);
		return;
	}
	/* without blocks nobody knows how far it came */
	if (!call->owned || call->nblocks == 0)
		return;
	if (round_at == 0 ||
		call->file != idem_stats_get(call->row, IDEM_GAUGE_ROUND_FILE))
	{
		round_at = call->began_at;
		done = call->midway ? -1 : 0;
		nblocks = 0;
	}
	done += call->done;
	nblocks = Max(nblocks, call->nblocks);
	if (done >= nblocks)
	{
		if (round_at > sweep_stats_past(call->row, IDEM_GAUGE_CAUGHT_UP_AT,
										now))
			idem_stats_set(call->row, IDEM_GAUGE_CAUGHT_UP_AT, round_at);
		round_at = 0;
	}
	idem_stats_set(call->row, IDEM_GAUGE_ROUND_AT, round_at);
	idem_stats_set(call->row, IDEM_GAUGE_ROUND_DONE, done);
	idem_stats_set(call->row, IDEM_GAUGE_ROUND_BLOCKS, nblocks);
	idem_stats_set(call->row, IDEM_GAUGE_ROUND_FILE, call->file);
}

/*
 * The turn is over, or ended in an error.
 */
static void
sweep_stats_rest(void)
{
	if (current != NULL &&
		idem_stats_get(current, IDEM_GAUGE_PID) == MyProcPid)
		idem_stats_set(current, IDEM_GAUGE_PID, 0);
	current = NULL;
}

static void
sweep_stats_at_xact(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_COMMIT:
			for (int i = 0; i < npending; i++)
				sweep_settle(&pending[i]);
			npending = 0;
			break;
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PREPARE:
			npending = 0;
			sweep_stats_rest();
			break;
		default:
			break;
	}
}

/*
 * A sweep has subtransactions of its own, for rows that raise an error: its turn
 * ends with the one that it began in.
 */
static void
sweep_stats_at_subxact(SubXactEvent event, SubTransactionId sub,
					   SubTransactionId parent, void *arg)
{
	if (event == SUBXACT_EVENT_COMMIT_SUB)
	{
		for (int i = npending; i > 0 && pending[i - 1].sub == sub; i--)
			pending[i - 1].sub = parent;
	}
	else if (event == SUBXACT_EVENT_ABORT_SUB)
	{
		while (npending > 0 && pending[npending - 1].sub == sub)
			npending--;
		if (current != NULL && current_sub == sub)
			sweep_stats_rest();
	}
}

static void
sweep_stats_register(void)
{
	static bool registered = false;

	if (!registered)
	{
		RegisterXactCallback(sweep_stats_at_xact, NULL);
		RegisterSubXactCallback(sweep_stats_at_subxact, NULL);
	}
	registered = true;
}

/*
 * A call of this transaction, to be filled in, or NULL where there are too many.
 */
static Pending *
sweep_stats_add(IdemStatsRow *row)
{
	Pending    *call;

	if (npending == MAX_PENDING)
		return NULL;
	call = &pending[npending++];
	memset(call, 0, sizeof(Pending));
	call->row = row;
	call->sub = GetCurrentSubTransactionId();
	return call;
}

/*
 * At the beginning of a kind's turn.
 */
void
idem_sweep_stats_begin(IdemSweep *sweep, const char *kind)
{
	if (!idem_stats_on)
		return;
	sweep_stats_register();
	sweep_stats_rest();
	sweep->stats = idem_stats_row(IDEM_STATS_SWEEP, kind, strlen(kind));
	idem_stats_set(sweep->stats, IDEM_GAUGE_STARTED_AT, sweep->now);
	idem_stats_set(sweep->stats, IDEM_GAUGE_BLOCKS, 0);
	idem_sweep_stats_show(sweep);
	idem_stats_set(sweep->stats, IDEM_GAUGE_PID, MyProcPid);
	current = sweep->stats;
	current_sub = GetCurrentSubTransactionId();
}

/*
 * How far it is.
 */
void
idem_sweep_stats_show(IdemSweep *sweep)
{
	if (sweep->stats == NULL)
		return;
	idem_stats_set(sweep->stats, IDEM_GAUGE_BLOCKS, sweep->nblocks);
	idem_stats_set(sweep->stats, IDEM_GAUGE_BLOCKS_DONE, sweep->done);
	idem_stats_set(sweep->stats, IDEM_GAUGE_REMOVED, sweep->removed);
}

/*
 * After all turns of a call: "owned" if it went on from the saved position and
 * will save where it is now.
 */
void
idem_sweep_stats_end(IdemSweep *sweep, bool owned)
{
	Pending    *call;

	sweep_stats_rest();
	if (sweep->stats == NULL)
		return;
	idem_stats_add(sweep->stats, IDEM_COUNT_RUNS, 1);
	idem_stats_add(sweep->stats, IDEM_COUNT_REMOVED, sweep->removed);
	if (sweep->skipped)
		return;
	call = sweep_stats_add(sweep->stats);
	if (call == NULL)
		return;
	call->began_at = sweep->now;
	call->done = sweep->done;
	call->nblocks = sweep->nblocks;
	call->file = sweep->file;
	call->whole = sweep->once_round;
	call->midway = sweep->midway;
	call->owned = owned;
}

/*
 * What was due before "then" has been looked at.
 */
void
idem_sweep_stats_ticked(TimestampTz then)
{
	Pending    *call;

	if (!idem_stats_on)
		return;
	sweep_stats_register();
	call = sweep_stats_add(idem_stats_row(IDEM_STATS_TICK, NULL, 0));
	if (call == NULL)
		return;
	call->began_at = then;
	call->whole = true;
}
