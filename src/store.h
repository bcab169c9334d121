/*
 * store.h
 *	  The table idem.key as rows that are read, inserted, updated and deleted,
 *	  whichever of the two ways to it is taken.
 */
#ifndef IDEM_STORE_H
#define IDEM_STORE_H

#include "datatype/timestamp.h"
#include "utils/relcache.h"

#include "direct.h"

/* columns of idem.key, in order */
typedef enum IdemColumn
{
	IDEM_COL_SCOPE,
	IDEM_COL_KEY,
	IDEM_COL_STATE,
	IDEM_COL_HOLD,
	IDEM_COL_ATTEMPT,
	IDEM_COL_FENCE,
	IDEM_COL_LEASE_UNTIL,
	IDEM_COL_EXPIRES_AT,
	IDEM_COL_FINGERPRINT,
	IDEM_COL_STEP,
	IDEM_COL_PROGRESS,
	IDEM_COL_RESPONSE,
	IDEM_COL_CODE,
	IDEM_COL_CREATED_AT,
	IDEM_COL_FINISHED_AT,
	IDEM_COL_FUNCTION,
	IDEM_COL_RESULT,
	IDEM_COL_TTL,
	IDEM_COL_CLAIMED_AT
} IdemColumn;

#define IDEM_NCOLUMNS	(IDEM_COL_CLAIMED_AT + 1)

typedef enum IdemState
{
	IDEM_OPEN,
	IDEM_IN_PROGRESS,
	IDEM_COMPLETED,
	IDEM_FAILED
} IdemState;

typedef enum IdemHold
{
	IDEM_HOLD_NONE,
	IDEM_HOLD_TRANSACTION,
	IDEM_HOLD_LEASE,
	IDEM_HOLD_SESSION
} IdemHold;

/*
 * One version of one row.  What values[] points to belongs to the memory
 * context that was current when the row was read or built.
 */
typedef struct IdemRow
{
	Datum		values[IDEM_NCOLUMNS];
	bool		nulls[IDEM_NCOLUMNS];
	ItemPointerData tid;		/* direct way only, else invalid */
	TransactionId xmin;			/* direct way only: who wrote this version */
} IdemRow;

/* the opened table; zeroed and filled by idem_store_open */
typedef struct IdemStore
{
	Relation	rel;
	bool		direct;
	MemoryContext context;		/* of what lives as long as it is open */
	ResourceOwner owner;
	IdemDirect	heap;			/* direct way only */
} IdemStore;

/* store.c */
extern const Oid idem_column_types[IDEM_NCOLUMNS];
extern void (*idem_store_before_open) (void);
extern void idem_store_open(IdemStore *store, LOCKMODE lockmode);
extern void idem_store_open_as_is(IdemStore *store, LOCKMODE lockmode);
extern void idem_store_close(IdemStore *store);
extern bool idem_store_read(IdemStore *store, text *scope, text *key,
							bool sure, IdemRow *row);
extern bool idem_store_read_at(IdemStore *store, ItemPointer tid,
							   text *scope, text *key, IdemRow *row);
extern bool idem_store_is_latest(IdemStore *store, const IdemRow *row);
extern void idem_store_presume_absent(IdemStore *store);
extern void idem_store_expect_many(IdemStore *store);
extern bool idem_store_snapshot_sees(IdemStore *store, const IdemRow *row);
extern IdemStoreResult idem_store_insert(IdemStore *store, IdemRow *row,
										 const IdemWait *wait);
extern IdemStoreResult idem_store_update(IdemStore *store,
										 const IdemRow *old, IdemRow *row,
										 const IdemWait *wait);
extern IdemStoreResult idem_store_update_own(IdemStore *store,
											 const IdemRow *old, IdemRow *row);
extern void idem_store_update_again(IdemStore *store, const IdemRow *written,
									IdemRow *row);
extern IdemStoreResult idem_store_delete(IdemStore *store,
										 const IdemRow *old,
										 const IdemWait *wait);

/* store_heap.c */
extern bool idem_heap_suitable(Relation rel);
extern void idem_heap_open(IdemStore *store, LOCKMODE lockmode);
extern void idem_heap_close(IdemStore *store);
extern void idem_heap_expect_many(IdemStore *store);
extern bool idem_heap_read(IdemStore *store, text *scope, text *key,
						   bool sure, IdemRow *row);
extern bool idem_heap_read_at(IdemStore *store, ItemPointer tid,
							  text *scope, text *key, IdemRow *row);
extern bool idem_heap_is_latest(IdemStore *store, const IdemRow *row);
extern bool idem_heap_snapshot_sees(const IdemRow *row);
extern IdemStoreResult idem_heap_insert(IdemStore *store, IdemRow *row,
										const IdemWait *wait);
extern IdemStoreResult idem_heap_update(IdemStore *store, const IdemRow *old,
										IdemRow *row, const IdemWait *wait);
extern IdemStoreResult idem_heap_delete(IdemStore *store, const IdemRow *old,
										const IdemWait *wait);

/* store_sql.c */
extern struct _SPI_plan *idem_sql_prepare(const char *statement, int nparams,
										  const Oid *types, int options);
extern struct _SPI_plan *idem_sql_keep_plan(const char *statement, int nparams,
											const Oid *types);
extern struct _SPI_plan *idem_sql_keep_generic_plan(const char *statement,
													int nparams,
													const Oid *types);
extern bool idem_sql_plan_by_index(struct _SPI_plan *plan);
extern int	idem_sql_execute_by_index(struct _SPI_plan *plan, Datum *values,
									  Snapshot snapshot);
extern bool idem_sql_read(IdemStore *store, text *scope, text *key,
						  IdemRow *row);
extern bool idem_sql_snapshot_sees(IdemStore *store, const IdemRow *row);
extern IdemStoreResult idem_sql_insert(IdemStore *store, IdemRow *row,
									   const IdemWait *wait);
extern IdemStoreResult idem_sql_update(IdemStore *store, const IdemRow *old,
									   IdemRow *row, bool own,
									   const IdemWait *wait);
extern IdemStoreResult idem_sql_delete(IdemStore *store, const IdemRow *old,
									   const IdemWait *wait);

#endif							/* IDEM_STORE_H */
