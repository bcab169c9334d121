/*
 * stats_shared.h
 *	  How counters lie in shared memory, for the two files that know.
 */
#ifndef IDEM_STATS_SHARED_H
#define IDEM_STATS_SHARED_H

#include "stats.h"

#include "storage/lwlock.h"
#include "utils/memutils.h"

/* the longest name of a scope or machine, and the end of the string */
#define IDEM_STATS_NAME		(128 + 1)

/* copies of the counters, so that processors do not fight for one line */
#define IDEM_STATS_STRIPES	4

typedef struct IdemStatsKey
{
	Oid			database;
	int32		kind;
	char		name[IDEM_STATS_NAME];
	char		padding[3];
} IdemStatsKey;

typedef struct IdemStripe
{
	pg_atomic_uint64 counters[IDEM_NCOUNTERS];
	char		padding[24 * sizeof(uint64) -
						IDEM_NCOUNTERS * sizeof(pg_atomic_uint64)];
} IdemStripe;

struct IdemStatsRow
{
	IdemStatsKey key;
	bool		used;
	TimestampTz since;
	pg_atomic_uint64 gauges[IDEM_NGAUGES];
	IdemStripe	stripes[IDEM_STATS_STRIPES];
};

/* a refusal as it is kept; strings are cut where they are too long */
typedef struct IdemKeptRefusal
{
	TimestampTz at;
	Oid			database;
	IdemStatsKind kind;
	IdemCounter counter;
	bool		observed;
	int			sqlerrcode;
	char		role[NAMEDATALEN];
	char		table[2 * NAMEDATALEN + 8];
	char		name[IDEM_STATS_NAME];
	char		from[NAMEDATALEN];
	char		to[NAMEDATALEN];
	char		event[NAMEDATALEN];
	bool		has_from;
	bool		has_to;
	bool		has_event;
} IdemKeptRefusal;

extern int64 idem_stats_sum(IdemStatsRow *row, IdemCounter counter);
extern int	idem_stats_copy_rows(IdemStatsRow ***rows);
extern int	idem_stats_copy_refusals(IdemKeptRefusal **refusals);
extern void idem_stats_forget(void);

#endif							/* IDEM_STATS_SHARED_H */
