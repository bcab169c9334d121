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
#include "access/subtrans.h"
#include "access/tableam.h"
#include "access/transam.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "common/hashfn.h"
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
 * How many transactions have ended.
 */
static uint64
leases_count_ended(void)
{
	return GetLatestSnapshot()->snapXactCompletionCount;
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
	uint64		ended = IsolationUsesXactSnapshot() ? leases_count_ended() : 0;

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
	lease->xmax = leases->direct.xmax;
	lease->infomask = leases->direct.infomask;
	lease->writer = leases->direct.dirty.xmax;
	lease->ended = ended;
	return true;
}

/*
 * Leases of which this transaction has locked or replaced a version, though its
 * snapshot does not see all that was committed under them, by a hash of the
 * name.  In the row the transaction's own id has taken the place of what told
 * that, and a rollback to a savepoint does not bring it back.
 */
typedef enum LeasesAge
{
	LEASES_SEES_ALL,
	LEASES_OLD,
	LEASES_OLDER_THAN_GRANT
} LeasesAge;

typedef struct LeasesOld
{
	uint64		name;
	LeasesAge	age;
} LeasesOld;

static HTAB *old_leases = NULL;

static uint64
leases_hash_name(text *name)
{
	return hash_bytes_extended((unsigned char *) VARDATA_ANY(name),
							   VARSIZE_ANY_EXHDR(name), 0);
}

static LeasesAge
leases_noted(text *name)
{
	uint64		key;
	LeasesOld  *old = NULL;

	if (old_leases != NULL)
	{
		key = leases_hash_name(name);
		old = hash_search(old_leases, &key, HASH_FIND, NULL);
	}
	return old != NULL ? old->age : LEASES_SEES_ALL;
}

static void
leases_forget_old(void *arg)
{
	old_leases = NULL;
}

/*
 * The notes end with the transaction.
 */
static void
leases_note_old(text *name, LeasesAge age)
{
	uint64		key = leases_hash_name(name);
	LeasesOld  *old;
	bool		found;

	if (old_leases == NULL)
	{
		MemoryContext context = TopTransactionContext;
		MemoryContextCallback *callback = MemoryContextAlloc(context,
															 sizeof(*callback));
		HASHCTL		ctl = {
			.keysize = sizeof(uint64),
			.entrysize = sizeof(LeasesOld),
			.hcxt = context
		};

		*callback = (MemoryContextCallback)
		{
			.func = leases_forget_old
		};
		MemoryContextRegisterResetCallback(context, callback);
		old_leases = hash_create("idem old leases", 16, &ctl,
								 HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	}
	old = hash_search(old_leases, &key, HASH_ENTER, &found);
	old->age = found ? Max(old->age, age) : age;
}

static bool
leases_snapshot_sees_xact(TransactionId xid)
{
	return TransactionIdIsCurrentTransactionId(xid) ||
		!XidInMVCCSnapshot(xid, GetTransactionSnapshot());
}

/*
 * The same of who may have been rolled back: of what the transaction itself
 * has rolled back to a savepoint there is nothing to see.
 */
static bool
leases_snapshot_sees_locker(TransactionId xid)
{
	TransactionId top = GetTopTransactionIdIfAny();

	return leases_snapshot_sees_xact(xid) ||
		(TransactionIdIsValid(top) &&
		 TransactionIdEquals(SubTransGetTopmostTransaction(xid), top));
}

/*
 * Whether it also sees what was committed by those who guarded the version
 * that was read.  Their ids stay in the tuple when they end.  One that is not
 * there any more had ended when a later one came, or when the version was
 * written; a snapshot that does not see the former does not see the latter
 * either, and where the latter is this transaction, it has noted that.  So the
 * later one counts even where it was rolled back: it may have taken the place
 * of one that committed.
 */
static bool
leases_snapshot_sees_guards(const IdemLease *lease)
{
	MultiXactMember *members;
	int			n;
	bool		sees = true;

	if (!TransactionIdIsValid(lease->xmax))
		return true;
	if (!(lease->infomask & HEAP_XMAX_IS_MULTI))
		return leases_snapshot_sees_locker(lease->xmax);

	n = GetMultiXactIdMembers(lease->xmax, &members,
							  HEAP_LOCKED_UPGRADED(lease->infomask), false);
	for (int i = 0; i < n; i++)
		sees = sees && leases_snapshot_sees_locker(members[i].xid);
	return sees;
}

/*
 * Whether the transaction's own snapshot already sees this version, and
 * all that the transaction has found in the lease's row before.
 */
bool
idem_leases_snapshot_sees(text *name, const IdemLease *lease)
{
	return leases_noted(name) == LEASES_SEES_ALL &&
		leases_snapshot_sees_xact(lease->xmin);
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

	if (leases_noted(name) == LEASES_OLDER_THAN_GRANT)
		return false;
	if (leases_snapshot_sees_xact(lease->xmin))
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

/*
 * How old the transaction's snapshot is, to be asked before the version that was
 * read is locked or replaced: from then on the row does not tell who had guarded
 * it.
 */
static LeasesAge
leases_age(IdemLeases *leases, text *name, const IdemLease *lease)
{
	if (!IsolationUsesXactSnapshot())
		return LEASES_SEES_ALL;
	if (!leases_snapshot_sees_xact(lease->xmin))
		return idem_leases_snapshot_sees_fence(leases, name, lease) ?
			LEASES_OLD : LEASES_OLDER_THAN_GRANT;
	return leases_snapshot_sees_guards(lease) ? LEASES_SEES_ALL : LEASES_OLD;
}

/*
 * To be called when that was done.
 */
static void
leases_has_displaced(text *name, const IdemLease *lease, LeasesAge age)
{
	/* somebody may have come and gone since it was read */
	if (age == LEASES_SEES_ALL && lease->ended != 0 &&
		lease->ended != leases_count_ended())
		age = LEASES_OLD;
	if (age != LEASES_SEES_ALL)
		leases_note_old(name, age);
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
idem_leases_lock(IdemLeases *leases, text *name, IdemLease *lease,
				 LockTupleMode mode, const IdemWait *wait)
{
	ItemPointerData tid = lease->tid;
	LeasesAge	age = leases_age(leases, name, lease);
	IdemStoreResult result;

	/* a version that this very command wrote can be locked too */
	CommandCounterIncrement();
	result = idem_direct_lock(&leases->direct, &tid, mode, wait);
	if (result != IDEM_STORE_OK)
		return result;
	leases_has_displaced(name, lease, age);
	if (mode == LockTupleExclusive)
		lease->ended = 0;
	return result;
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
	LeasesAge	age = leases_age(leases, name, lease);
	IdemStoreResult result;

	leases_pack(name, lease, values, nulls);
	result = idem_direct_update(&leases->direct, &lease->tid, values, nulls,
								wait);
	if (result == IDEM_STORE_OK)
	{
		leases_has_displaced(name, lease, age);
		leases_note(leases, name, lease);
	}
	return result;
}
