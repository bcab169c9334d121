/*
 * leases.c
 *	  The table idem.lease: one row per lease that is, or was, held.
 *
 * The row stays when a lease is released, broken, or runs out: the next holder
 * updates it, which is cheaper than an insert and a delete, lets a repeated
 * release be known, and makes fences grow along the versions of one row.  Only
 * a sweep removes it, long after its end.  No index covers what a renewal
 * changes, so that renewals are HOT.
 *
 * Places of rows are remembered (see direct.c): who renews or releases finds
 * the version that he wrote without the index, however many dead versions an
 * old snapshot keeps behind it; and what another session wrote, too, as long
 * as the row stays on its page.
 *
 * The table has to be what the script made of it.  Unlike idem.key it has no
 * second way by SQL: what a lease promises rests on row locks of exactly the
 * version that was read.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/multixact.h"
#include "access/tableam.h"
#include "access/transam.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "catalog.h"
#include "compat.h"
#include "leases.h"

/* columns of idem.lease, in order */
enum
{
	COL_NAME,
	COL_OWNER,
	COL_FENCE,
	COL_SINCE,
	COL_UNTIL,
	COL_RELEASED,
	NCOLUMNS
};

static const Oid column_types[NCOLUMNS] = {
	[COL_NAME] = TEXTOID,
	[COL_OWNER] = TEXTOID,
	[COL_FENCE] = INT8OID,
	[COL_SINCE] = TIMESTAMPTZOID,
	[COL_UNTIL] = TIMESTAMPTZOID,
	[COL_RELEASED] = BOOLOID
};

static IdemHints hints;

static IdemDirectKind lease_table = {
	.relation = IDEM_REL_LEASE,
	.name = "lease",
	.natts = NCOLUMNS,
	.types = column_types,
	.nkeys = 1
};

void
idem_leases_open(IdemLeases *leases, LOCKMODE lockmode)
{
	leases->lockmode = lockmode;
	idem_direct_open_own(&leases->direct, &lease_table, lockmode);
}

/*
 * Closes the table; the lock on it stays until the transaction ends.
 */
void
idem_leases_close(IdemLeases *leases)
{
	idem_direct_close_own(&leases->direct);
}

/*
 * Closes the table and gives its lock back, for who has written nothing.
 */
void
idem_leases_forgo(IdemLeases *leases)
{
	Oid			table = RelationGetRelid(leases->direct.rel);
	Relation	pk = leases->direct.pk;
	Oid			index = pk != NULL ? RelationGetRelid(pk) : InvalidOid;

	idem_direct_close_own(&leases->direct);
	if (OidIsValid(index))
		UnlockRelationOid(index, leases->lockmode);
	UnlockRelationOid(table, leases->lockmode);
}

static void
leases_unpack(HeapTuple tuple, const Datum *values, const bool *nulls,
			  IdemLease *lease)
{
	lease->owner = nulls[COL_OWNER] ? NULL : DatumGetTextPP(values[COL_OWNER]);
	lease->fence = DatumGetInt64(values[COL_FENCE]);
	lease->since = DatumGetTimestampTz(values[COL_SINCE]);
	lease->until = DatumGetTimestampTz(values[COL_UNTIL]);
	lease->released = DatumGetBool(values[COL_RELEASED]);
	lease->tid = tuple->t_self;
	lease->xmin = HeapTupleHeaderGetXmin(tuple->t_data);
	lease->xmax = HeapTupleHeaderGetRawXmax(tuple->t_data);
	lease->infomask = tuple->t_data->t_infomask;
}

static void
leases_pack(text *name, const IdemLease *lease, Datum *values, bool *nulls)
{
	memset(nulls, false, NCOLUMNS);
	values[COL_NAME] = PointerGetDatum(name);
	values[COL_OWNER] = PointerGetDatum(lease->owner);
	nulls[COL_OWNER] = lease->owner == NULL;
	values[COL_FENCE] = Int64GetDatum(lease->fence);
	values[COL_SINCE] = TimestampTzGetDatum(lease->since);
	values[COL_UNTIL] = TimestampTzGetDatum(lease->until);
	values[COL_RELEASED] = BoolGetDatum(lease->released);
}

/*
 * The latest committed version of the row, or the caller's own.  False if
 * there is none, which is certain only where "sure" is asked for.
 */
bool
idem_leases_read(IdemLeases *leases, text *name, bool sure, IdemLease *lease)
{
	Datum		key = PointerGetDatum(name);
	uint32		hash = idem_direct_hash(&leases->direct, &key);
	Datum		values[NCOLUMNS];
	bool		nulls[NCOLUMNS];
	HeapTuple	tuple;

	tuple = idem_direct_hinted(&leases->direct, &hints,
							   idem_catalog_epoch(IDEM_REL_LEASE), hash, &key,
							   values, nulls);
	if (tuple == NULL)
	{
		tuple = idem_direct_probe(&leases->direct, &key, sure, values, nulls);
		if (tuple == NULL)
			return false;
		idem_direct_note(&leases->direct, &hints, hash);
	}
	leases_unpack(tuple, values, nulls, lease);
	lease->writer = leases->direct.dirty.xmax;
	return true;
}

/*
 * Whether the transaction's own snapshot already sees this version.
 */
bool
idem_leases_snapshot_sees(IdemLeases *leases, text *name,
						  const IdemLease *lease)
{
	return TransactionIdIsCurrentTransactionId(lease->xmin) ||
		!XidInMVCCSnapshot(lease->xmin, GetTransactionSnapshot());
}

static bool
leases_snapshot_sees_xact(TransactionId xid, Snapshot snapshot)
{
	return TransactionIdIsCurrentTransactionId(xid) ||
		!XidInMVCCSnapshot(xid, snapshot);
}

/*
 * Versions that subtransactions of ours have locked, having found that the
 * snapshot sees their guards.  Such a lock shuts out later ones.  So where its id
 * still stands in the tuple when the subtransaction was rolled back, nobody has
 * guarded since.  One that locked and then failed is not here.
 */
typedef struct LeasesLocked
{
	TransactionId xid;
	BlockNumber block;
	uint32		offset;
}			LeasesLocked;

static HTAB *locked_versions = NULL;
static FullTransactionId locked_by;

static LeasesLocked
leases_locked(TransactionId xid, const IdemLease *lease)
{
	LeasesLocked key = {
		.xid = xid,
		.block = ItemPointerGetBlockNumber(&lease->tid),
		.offset = ItemPointerGetOffsetNumber(&lease->tid)
	};

	return key;
}

/*
 * Notes that the current subtransaction has locked the version and that the
 * snapshot sees its guards.  The notes end with the transaction.
 */
void
idem_leases_note_locked(const IdemLease *lease)
{
	LeasesLocked key;
	FullTransactionId top = GetTopFullTransactionId();

	if (GetCurrentTransactionNestLevel() == 1)
		return;
	if (locked_versions == NULL || !FullTransactionIdEquals(locked_by, top))
	{
		HASHCTL		ctl = {
			.keysize = sizeof(LeasesLocked),
			.entrysize = sizeof(LeasesLocked),
			.hcxt = TopTransactionContext
		};

		locked_versions = hash_create("idem leases locked", 16, &ctl,
									  HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
		locked_by = top;
	}
	key = leases_locked(GetCurrentTransactionId(), lease);
	(void) hash_search(locked_versions, &key, HASH_ENTER, NULL);
}

static bool
leases_locked_by_us(TransactionId xid, const IdemLease *lease)
{
	LeasesLocked key = leases_locked(xid, lease);

	return locked_versions != NULL &&
		FullTransactionIdEquals(locked_by, GetTopFullTransactionIdIfAny()) &&
		hash_search(locked_versions, &key, HASH_FIND, NULL) != NULL;
}

/*
 * Whether it also sees what was committed by those who guarded the version
 * that was read, all of whom have ended by now.  Their ids stay in the tuple
 * when they end.  One that is not there any more had ended when a later one
 * came, or when the version was written; a snapshot that does not see the
 * former does not see the latter either.  So the later one counts even where
 * it was rolled back: it may have taken the place of one that committed.
 */
bool
idem_leases_snapshot_sees_guards(const IdemLease *lease)
{
	Snapshot	snapshot = GetTransactionSnapshot();
	MultiXactMember *members;
	int			n;
	bool		sees = true;

	if (!TransactionIdIsValid(lease->xmax))
		return true;
	if (!(lease->infomask & HEAP_XMAX_IS_MULTI))
		return leases_snapshot_sees_xact(lease->xmax, snapshot) ||
			leases_locked_by_us(lease->xmax, lease);

	n = GetMultiXactIdMembers(lease->xmax, &members,
							  HEAP_LOCKED_UPGRADED(lease->infomask), false);
	for (int i = 0; i < n; i++)
		sees = sees && leases_snapshot_sees_xact(members[i].xid, snapshot);
	return sees;
}

/*
 * Whether it sees some version of the row with this fence, so that it is not
 * older than the grant, though it may be older than a renewal.
 *
 * The versions are judged here, one by one: a scan with the snapshot itself
 * would leave predicate locks at SERIALIZABLE.  If the grant's own version was
 * pruned, every snapshot sees a later one.
 */
bool
idem_leases_snapshot_sees_fence(IdemLeases *leases, text *name,
								const IdemLease *lease)
{
	IdemDirect *direct = &leases->direct;
	Snapshot	snapshot = GetTransactionSnapshot();
	TupleTableSlot *slot;
	ScanKeyData skey;
	IndexScanDesc scan;
	bool		sees = false;

	if (idem_leases_snapshot_sees(leases, name, lease))
		return true;

	ScanKeyInit(&skey, 1, BTEqualStrategyNumber, F_TEXTEQ,
				PointerGetDatum(name));
	scan = IDEM_INDEX_BEGINSCAN(direct->rel, idem_direct_pk(direct),
								SnapshotAny, 1);
	index_rescan(scan, &skey, 1, NULL, 0);
	slot = idem_direct_read_slot(direct);
	while (!sees && index_getnext_slot(scan, ForwardScanDirection, slot))
	{
		HeapTuple	tuple = ExecFetchSlotHeapTuple(slot, false, NULL);
		TransactionId xmin = HeapTupleHeaderGetXmin(tuple->t_data);
		bool		isnull;
		Datum		fence = slot_getattr(slot, COL_FENCE + 1, &isnull);

		sees = DatumGetInt64(fence) == lease->fence &&
			(TransactionIdIsCurrentTransactionId(xmin) ||
			 (!XidInMVCCSnapshot(xmin, snapshot) &&
			  TransactionIdDidCommit(xmin)));
	}
	ExecClearTuple(slot);
	index_endscan(scan);
	return sees;
}

static void
leases_note(IdemLeases *leases, text *name, IdemLease *lease)
{
	Datum		key = PointerGetDatum(name);

	lease->xmin = GetCurrentTransactionId();
	idem_direct_note(&leases->direct, &hints,
					 idem_direct_hash(&leases->direct, &key));
}

/*
 * Sleeps behind lease->writer.
 */
IdemStoreResult
idem_leases_wait(IdemLeases *leases, const IdemLease *lease,
				 const IdemWait *wait)
{
	leases->direct.pending = lease->writer;
	leases->direct.pending_token = 0;
	return idem_direct_wait(&leases->direct, wait);
}

/*
 * Inserts the row of a name of which the last read found none.
 */
IdemStoreResult
idem_leases_insert(IdemLeases *leases, text *name, IdemLease *lease,
				   const IdemWait *wait)
{
	Datum		values[NCOLUMNS];
	bool		nulls[NCOLUMNS];
	IdemStoreResult result;

	leases_pack(name, lease, values, nulls);
	result = idem_direct_insert(&leases->direct, values, nulls, wait,
								&lease->tid);
	if (result == IDEM_STORE_OK)
		leases_note(leases, name, lease);
	return result;
}

/*
 * Locks the version that was read, until the (sub)transaction ends.
 */
IdemStoreResult
idem_leases_lock(IdemLeases *leases, const IdemLease *lease,
				 LockTupleMode mode, const IdemWait *wait)
{
	ItemPointerData tid = lease->tid;

	/* a version that this very command wrote can be locked too */
	CommandCounterIncrement();
	return idem_direct_lock(&leases->direct, &tid, mode, wait);
}

/*
 * Replaces the version that was read, which is where lease->tid says.
 */
IdemStoreResult
idem_leases_update(IdemLeases *leases, text *name, IdemLease *lease,
				   const IdemWait *wait)
{
	Datum		values[NCOLUMNS];
	bool		nulls[NCOLUMNS];
	IdemStoreResult result;

	leases_pack(name, lease, values, nulls);
	result = idem_direct_update(&leases->direct, &lease->tid, values, nulls,
								wait);
	if (result == IDEM_STORE_OK)
		leases_note(leases, name, lease);
	return result;
}
