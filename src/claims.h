/*
 * claims.h
 *	  What the current transaction has claimed, and whether it is finished.
 */
#ifndef IDEM_CLAIMS_H
#define IDEM_CLAIMS_H

#include "access/xact.h"
#include "storage/itemptr.h"

#include "store.h"

typedef enum IdemClaimStatus
{
	IDEM_CLAIM_NONE,			/* not claimed in this transaction, or undone */
	IDEM_CLAIM_HELD,
	IDEM_CLAIM_ENDED			/* completed, failed, retried or released */
} IdemClaimStatus;

typedef struct IdemClaim
{
	text	   *scope;
	text	   *key;
	IdemClaimStatus status;
	IdemHold	hold;
	ItemPointerData tid;		/* of the row's latest version, if valid ... */
	uint64		tid_epoch;		/* ... and the table still the same */
	SubTransactionId saved_in;	/* innermost that could undo to what was */
} IdemClaim;

typedef void (*IdemClaimVisitor) (const IdemClaim *claim, void *arg);

extern void idem_claims_init(void);
extern IdemClaim *idem_claims_find(text *scope, text *key);
extern void idem_claims_note(text *scope, text *key, IdemClaimStatus status,
							 IdemHold hold, ItemPointer tid);
extern int64 idem_claims_unfinished(void);
extern void idem_claims_check_finished(int64 before);
extern void idem_claims_visit_unfinished(IdemClaimVisitor visit, void *arg);

#endif							/* IDEM_CLAIMS_H */
