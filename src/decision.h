/*
 * decision.h
 *	  What the guard decided for a row, until the row is written.
 */
#ifndef IDEM_DECISION_H
#define IDEM_DECISION_H

#include "access/htup.h"
#include "storage/itemptr.h"

typedef struct IdemDecision
{
	int			from;			/* state */
	int			to;
	const char *event;			/* NULL: it passed without a rule */
	bool		named;			/* the write named the column */
	bool		stays;			/* in its state: there is nothing but the
								 * image */
	HeapTuple	image;			/* the new row as it was decided on, or NULL */
}			IdemDecision;

extern void idem_decision_init(void);
extern void idem_decision_none(Oid trigger, ItemPointer tid, int depth);
extern void idem_decision_keep(Oid trigger, ItemPointer tid, CommandId command,
							   int depth, const IdemDecision * decision);
extern bool idem_decision_take(Oid trigger, ItemPointer tid, CommandId command,
							   IdemDecision * decision);
extern const char *idem_decision_event(const char *event);

#endif							/* IDEM_DECISION_H */
