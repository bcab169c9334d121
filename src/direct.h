/*
 * direct.h
 *	  A plain table with a primary key, reached without SQL.
 */
#ifndef IDEM_DIRECT_H
#define IDEM_DIRECT_H

#include "access/genam.h"
#include "access/htup.h"
#include "executor/tuptable.h"
#include "nodes/lockoptions.h"
#include "storage/buf.h"
#include "storage/itemptr.h"
#include "storage/lockdefs.h"
#include "utils/relcache.h"
#include "utils/resowner.h"
#include "utils/snapshot.h"

#include "catalog.h"
#include "wait.h"

typedef enum IdemStoreResult
{
	IDEM_STORE_OK,
	IDEM_STORE_CHANGED,			/* the row is not what was read: read again */
	IDEM_STORE_BUSY				/* "wait" ran out */
} IdemStoreResult;

/* the opened table; zeroed and filled by idem_direct_open */
typedef struct IdemDirect
{
	Relation	rel;
	LOCKMODE	lockmode;
	Relation	pk;				/* once needed: idem_direct_pk() */
	int			nkeys;			/* the table's first columns are its key */
	MemoryContext context;		/* of what lives as long as it is open */
	ResourceOwner owner;
	IndexScanDesc scan;
	TupleTableSlot *read_slot;	/* once needed: idem_direct_read_slot() */
	TupleTableSlot *write_slot; /* and for writing */
	SnapshotData dirty;
	List	   *indexes;		/* OIDs of all indexes, once needed */
	struct IndexInfo *pk_info;	/* of the primary key, once needed */
	struct BulkInsertStateData *bulk;	/* if many are to be inserted */
	bool		pack;			/* what is inserted will not change again */
	uint64		nrows;			/* of those */
	TransactionId token_xid;	/* holds the lock of speculative insertions */
	uint32		token;			/* under this token, if not 0 */
	TransactionId pending;		/* inserts this key right now, if valid */
	uint32		pending_token;	/* and is not even sure of it, if not 0 */
	ItemPointerData place;		/* of the version last read or written */
	TransactionId xmax;			/* of the one last read, and what it is, in */
	uint16		infomask;		/* one look: a locker changes both */
	OffsetNumber root;			/* and where on that page the index says so */
	Buffer		place_buffer;	/* that page was in this one, if not invalid */
} IdemDirect;

/* the most key columns that a table may have */
#define IDEM_DIRECT_MAX_KEYS	3

/* one of idem's own tables that is reached in no other way */
typedef struct IdemDirectKind
{
	IdemRelation relation;
	const char *name;
	int			natts;
	const Oid  *types;
	int			nkeys;

	/* for which state of which relation it was found suitable */
	Oid			relid;
	uint64		epoch;
} IdemDirectKind;

/*
 * Keys in a row that were new, after which a caller may presume that the next one
 * is, and insert without a look: a look and an insertion descend the index twice.
 */
#define IDEM_ENOUGH_NEW	8

/* where a session saw rows last; static, hence zeroed */
#define IDEM_HINTS		4096

typedef struct IdemHints
{
	uint64		epoch;
	struct
	{
		uint32		hash;
		ItemPointerData tid;
		OffsetNumber root;
		Buffer		buffer;
	}			hint[IDEM_HINTS];
} IdemHints;

extern bool idem_direct_has_foreign_planner(Oid relid);
extern bool idem_direct_suitable(Relation rel, int natts, const Oid *types,
								 int nkeys);
extern void idem_direct_open(IdemDirect *table, Relation rel, int nkeys,
							 LOCKMODE lockmode);
extern void idem_direct_close(IdemDirect *table);
extern Relation idem_direct_pk(IdemDirect *table);
extern TupleTableSlot *idem_direct_make_slot(IdemDirect *table,
											 const TupleTableSlotOps *ops);
extern TupleTableSlot *idem_direct_read_slot(IdemDirect *table);
extern void idem_direct_release_token(IdemDirect *table);
extern void idem_direct_expect_many(IdemDirect *table);
extern bool idem_direct_packs(IdemDirect *table, TupleTableSlot *slot);
extern void idem_direct_insert_packed(IdemDirect *table, TupleTableSlot *slot,
									  uint32 token);
extern void idem_direct_open_own(IdemDirect *table, IdemDirectKind *kind,
								 LOCKMODE lockmode);
extern void idem_direct_close_own(IdemDirect *table);
extern uint64 idem_direct_completions(void);
extern HeapTuple idem_direct_probe(IdemDirect *table, const Datum *key,
								   bool sure, Datum *values, bool *nulls);
extern HeapTuple idem_direct_fetch(IdemDirect *table, ItemPointer tid,
								   Snapshot snapshot, const Datum *key,
								   Datum *values, bool *nulls);
extern bool idem_direct_is_latest(IdemDirect *table, ItemPointer tid);
extern uint32 idem_direct_hash(const IdemDirect *table, const Datum *key);
extern bool idem_direct_has_hint(const IdemHints *hints, uint32 hash);
extern HeapTuple idem_direct_hinted(IdemDirect *table, IdemHints *hints,
									uint64 epoch, uint32 hash,
									const Datum *key, Datum *values,
									bool *nulls);
extern void idem_direct_note(const IdemDirect *table, IdemHints *hints,
							 uint32 hash);
extern IdemStoreResult idem_direct_wait(IdemDirect *table,
										const IdemWait *wait);
extern IdemStoreResult idem_direct_insert(IdemDirect *table, Datum *values,
										  bool *nulls, const IdemWait *wait,
										  ItemPointer tid);
extern IdemStoreResult idem_direct_lock(IdemDirect *table, ItemPointer tid,
										LockTupleMode mode,
										const IdemWait *wait);
extern IdemStoreResult idem_direct_update(IdemDirect *table, ItemPointer tid,
										  Datum *values, bool *nulls,
										  const IdemWait *wait);
extern IdemStoreResult idem_direct_delete(IdemDirect *table, ItemPointer tid,
										  const IdemWait *wait);

#endif							/* IDEM_DIRECT_H */
