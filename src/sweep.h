/*
 * sweep.h
 *	  One sweep of one kind of record, for the kinds that do it their own way.
 */
#ifndef IDEM_SWEEP_H
#define IDEM_SWEEP_H

#include "datatype/timestamp.h"
#include "funcapi.h"
#include "storage/block.h"
#include "storage/off.h"
#include "utils/relcache.h"

#include "catalog.h"
#include "own.h"

struct IdemSweep;

typedef struct IdemSweepKind
{
	const char *name;			/* also the table's */
	IdemRelation relation;

	/* rows of a plain table expire by a condition ... */
	IdemOwnStatement list;
	IdemOwnStatement lock;
	IdemOwnStatement remove;
	/* ... or are swept in another way */
	void		(*walk) (struct IdemSweep *sweep);
} IdemSweepKind;

/* rows that one statement removes, at first and at most */
#define IDEM_SWEEP_FIRST_ROWS	16
#define IDEM_SWEEP_ROWS			16384

typedef struct IdemSweep
{
	const IdemSweepKind *kind;
	TimestampTz now;			/* what expires until then is removed */

	/* the bounds of this turn */
	TimestampTz stop_at;
	int64		quota;

	/* how far it has come */
	int64		removed;		/* in all turns; never more than "quota" */
	BlockNumber nblocks;		/* of the relation, where it is walked ... */
	Oid			file;			/* ... and which file that is */
	BlockNumber block;			/* where it goes on ... */
	OffsetNumber offset;		/* ... within that */
	bool		midway;			/* so it began */
	BlockNumber done;			/* blocks that were walked */
	int64		pace;			/* and so many are in one statement ... */
	int64		row_pace;		/* ... that removes so many rows */
	int64		failed;			/* rows of this turn that raised an error ... */
	char		why[256];		/* ... which was this of the first of them */
	bool		once_round;		/* nothing is left to be done */
	bool		skipped;		/* it was not to be had, or cannot be swept */
	struct IdemStatsRow *stats; /* or NULL */

	MemoryContext context;		/* reset after each row or batch */
} IdemSweep;

/* sweep.c */
extern int64 idem_sweep_run(int64 max_rows, TimestampTz stop_at,
							ReturnSetInfo *rsinfo);
extern bool idem_sweep_is_over(const IdemSweep *sweep);
extern void idem_sweep_failed(IdemSweep *sweep);

/* sweep_table.c */
typedef void (*IdemSweepLook) (IdemSweep *sweep, BlockNumber from,
							   BlockNumber to, void *arg);
extern bool idem_sweep_has_places(Relation rel);
extern void idem_sweep_table(IdemSweep *sweep, Relation rel,
							 IdemSweepLook look, void *arg);
extern int64 idem_sweep_next_pace(const IdemSweep *sweep, int64 pace,
								  TimestampTz began);

/* sweep_key.c */
extern void idem_sweep_keys(IdemSweep *sweep);

/* sweep_stats.c */
extern void idem_sweep_stats_begin(IdemSweep *sweep, const char *kind);
extern void idem_sweep_stats_show(IdemSweep *sweep);
extern void idem_sweep_stats_end(IdemSweep *sweep, bool owned);
extern void idem_sweep_stats_ticked(TimestampTz then);

#endif							/* IDEM_SWEEP_H */
