/*
 * decision.h
 *	  What the guard decided for a row, until the row is written.
 */
#ifndef IDEM_DECISION_H
#define IDEM_DECISION_H

#include "access/htup.h"
#include "storage/itemptr.h"

#include "machine_cache.h"

typedef struct IdemDecision
{
	const IdemMachine *machine; /* whose states and event these are */
	int			from;			/* state */
	int			to;
	const char *event;			/* NULL: it passed without a rule */
	bool		named;			/* the write named the column */
	bool		told;			/* it would have been refused, and was
								 * reported */
	bool		stays;			/* in its state */
	bool		has_image;		/* of the new row as it was decided on: */
	uint64		row_hash;		/* guard_image.c */
	uint64		key_hash;		/* by which it is known where it moves */
} IdemDecision;

extern void idem_decision_init(void);
extern void idem_decision_none(Oid trigger, ItemPointer tid, int depth);
extern void idem_decision_keep(Oid trigger, ItemPointer tid, CommandId command,
							   int depth, const IdemDecision *decision);
extern bool idem_decision_take(Oid trigger, ItemPointer tid, CommandId command,
							   IdemDecision *decision);
extern void idem_decision_hold(const IdemMachine *machine);

#endif							/* IDEM_DECISION_H */
