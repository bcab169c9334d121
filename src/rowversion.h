/*
 * rowversion.h
 *	  The version column of a user's table.
 */
#ifndef IDEM_ROWVERSION_H
#define IDEM_ROWVERSION_H

#include "access/attnum.h"
#include "commands/trigger.h"
#include "nodes/bitmapset.h"
#include "utils/relcache.h"
#include "utils/reltrigger.h"

#include "move.h"

/* what idem_attach_version() declared of a table */
typedef struct IdemVersion
{
	Oid			trigger;
	char		trigger_name[NAMEDATALEN];
	Oid			function;		/* of the trigger */
	AttrNumber	column;
	char		column_name[NAMEDATALEN];
	Oid			type;
	Oid			base;			/* int2, int4 or int8, under a domain */
	bool		next;			/* mode */
	bool		strict;
	bool		retryable;
	Bitmapset  *ignored;		/* columns, by number */
	char		later[NAMEDATALEN]; /* a trigger that could undo it, or "" */
	bool		others;			/* triggers before it may change the row */
	Bitmapset  *partition;		/* columns by which a row is in this one, as
								 * in tg_updatedcols */
	bool		arrives;		/* one sees to rows that move to a partition */
	char		idle[NAMEDATALEN];	/* it does not fire where this one does,
									 * or "" */
	char		insert_later[NAMEDATALEN];	/* could undo what that does */
} IdemVersion;

/* whether a statement counts a row on from that version */
typedef struct IdemVersionWatch
{
	struct IdemTarget *target;	/* the row is of this table, or a partition */
	const Datum *key;
	int64		version;
	bool		seen;
	struct IdemVersionWatch *outer;
} IdemVersionWatch;

/* the argument of the trigger for rows that arrive */
#define IDEM_VERSION_ARRIVES	"arrives"

/* rowversion.c */
extern IdemVersionWatch *idem_rowversion_watch;
extern void idem_rowversion_tell(Relation rel, TupleTableSlot *row,
								 int64 version);
extern int64 idem_rowversion_from_datum(Datum value, Oid base);
extern Datum idem_rowversion_to_datum(int64 value, Oid base);
extern bool idem_rowversion_next(TriggerData *td, const IdemVersion *version,
								 int64 *next);
extern int64 idem_rowversion_max(Oid base);

/* rowversion_read.c */
extern void idem_rowversion_init(void);
extern bool idem_rowversion_is_arrival(const Trigger *trigger);
extern bool idem_rowversion_find(Relation rel, IdemVersion *version);
extern bool idem_rowversion_is_after(Relation rel, const IdemVersion *version,
									 const Trigger *trigger);
extern uint64 idem_rowversion_changes(void);
extern void idem_rowversion_refuse(Relation rel, const char *name);
extern bool idem_rowversion_is_harmless(Oid function, Oid schema);

/* rowversion_move.c */
extern IdemMoveFrom *idem_rowversion_leave_begin(TriggerData *td,
												 const IdemVersion *version);
extern void idem_rowversion_leave(TriggerData *td, IdemMoveFrom *from,
								  const IdemVersion *version,
								  MemoryContext query, int64 value);
extern HeapTuple idem_rowversion_arrive(TriggerData *td, MemoryContext query);

#endif							/* IDEM_ROWVERSION_H */
