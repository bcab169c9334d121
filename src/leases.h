/*
 * leases.h
 *	  The table idem.lease: one row per lease that is, or was, held.
 */
#ifndef IDEM_LEASES_H
#define IDEM_LEASES_H

#include "datatype/timestamp.h"

#include "direct.h"

/* one version of one row */
typedef struct IdemLease
{
	text	   *owner;			/* NULL: none was given */
	int64		fence;
	TimestampTz since;
	TimestampTz until;
	bool		released;		/* nobody's, whatever until says */
	ItemPointerData tid;
	TransactionId xmin;			/* who wrote this version */
	TransactionId xmax;			/* who locked it, as the tuple has it */
	uint16		infomask;
	TransactionId writer;		/* is writing the next one, if valid */
	uint64		ended;			/* transactions, before it was read, above
								 * READ COMMITTED; 0: nobody can have guarded
								 * it since */
} IdemLease;

typedef struct IdemLeases
{
	LOCKMODE	lockmode;
	IdemDirect	direct;
} IdemLeases;

extern void idem_leases_open(IdemLeases *leases, LOCKMODE lockmode);
extern void idem_leases_close(IdemLeases *leases);
extern void idem_leases_forgo(IdemLeases *leases);
extern bool idem_leases_read(IdemLeases *leases, text *name, bool sure,
							 IdemLease *lease);
extern bool idem_leases_snapshot_sees(text *name, const IdemLease *lease);
extern bool idem_leases_snapshot_sees_fence(IdemLeases *leases, text *name,
											const IdemLease *lease);
extern IdemStoreResult idem_leases_wait(IdemLeases *leases,
										const IdemLease *lease,
										const IdemWait *wait);
extern IdemStoreResult idem_leases_insert(IdemLeases *leases, text *name,
										  IdemLease *lease,
										  const IdemWait *wait);
extern IdemStoreResult idem_leases_lock(IdemLeases *leases, text *name,
										IdemLease *lease,
										LockTupleMode mode,
										const IdemWait *wait);
extern IdemStoreResult idem_leases_update(IdemLeases *leases, text *name,
										  IdemLease *lease,
										  const IdemWait *wait);

#endif							/* IDEM_LEASES_H */
