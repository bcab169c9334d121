/*
 * store.c
 *	  Chooses the way to idem.key.
 *
 * There are two ways.  The direct one (store_heap.c) calls the table and index
 * access methods as the executor does; it is taken where the table is a plain
 * heap with its primary key as declared and nothing on it that only the
 * executor or a foreign planner would honour.  Everywhere else the same
 * operations run as SQL (store_sql.c).  Both give the same answers.
 *
 * What a read returns is the latest committed version of the row, or the
 * caller's own; what another transaction has not committed is never an answer,
 * only something to sleep behind.  An insert, update or delete that meets such
 * work sleeps at most as long as IdemWait allows, in PostgreSQL's own lock
 * queue, and then says CHANGED (read again) or BUSY (time is up).
 *
 * Locks, in order: idem.key and its indexes in the caller's lock mode, kept
 * until the end of the transaction; then, one at a time, transaction ids.  No
 * buffer or lightweight lock is held during a sleep.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/table.h"
#include "catalog/pg_type.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "catalog.h"
#include "guc.h"
#include "own.h"
#include "store.h"

/*
 * Called before a verb looks at the table, by whoever has rows there that are
 * to be gone by then; or NULL.
 */
void		(*idem_store_before_open) (void) = NULL;

const Oid	idem_column_types[IDEM_NCOLUMNS] = {
	[IDEM_COL_SCOPE] = TEXTOID,
	[IDEM_COL_KEY] = TEXTOID,
	[IDEM_COL_STATE] = TEXTOID,
	[IDEM_COL_HOLD] = TEXTOID,
	[IDEM_COL_ATTEMPT] = INT4OID,
	[IDEM_COL_FENCE] = INT8OID,
	[IDEM_COL_LEASE_UNTIL] = TIMESTAMPTZOID,
	[IDEM_COL_EXPIRES_AT] = TIMESTAMPTZOID,
	[IDEM_COL_FINGERPRINT] = BYTEAOID,
	[IDEM_COL_STEP] = TEXTOID,
	[IDEM_COL_PROGRESS] = JSONBOID,
	[IDEM_COL_RESPONSE] = TEXTOID,
	[IDEM_COL_CODE] = INT4OID,
	[IDEM_COL_CREATED_AT] = TIMESTAMPTZOID,
	[IDEM_COL_FINISHED_AT] = TIMESTAMPTZOID,
	[IDEM_COL_FUNCTION] = TEXTOID,
	[IDEM_COL_RESULT] = TEXTOID,
	[IDEM_COL_TTL] = INTERVALOID,
	[IDEM_COL_CLAIMED_AT] = TIMESTAMPTZOID
};

static bool
store_index_is_on(Relation index, AttrNumber a, AttrNumber b)
{
	Form_pg_index form = index->rd_index;

	return form->indnkeyatts == 2 &&
		((form->indkey.values[0] == a && form->indkey.values[1] == b) ||
		 (form->indkey.values[0] == b && form->indkey.values[1] == a)) &&
		idem_own_index_is_plain(index);
}

/*
 * Whether uniqueness of (scope, key), and of nothing else, stands behind ON
 * CONFLICT.  A foreign table's is out of sight.
 */
static bool
store_is_unique(Relation rel)
{
	AttrNumber	scope = get_attnum(RelationGetRelid(rel), "scope");
	AttrNumber	key = get_attnum(RelationGetRelid(rel), "key");
	List	   *indexes;
	ListCell   *lc;
	bool		unique = false;
	bool		others = false;

	if (rel->rd_rel->relkind == RELKIND_FOREIGN_TABLE)
		return true;

	indexes = RelationGetIndexList(rel);
	foreach(lc, indexes)
	{
		Relation	index = index_open(lfirst_oid(lc), AccessShareLock);
		Form_pg_index form = index->rd_index;

		if (!form->indisunique && !form->indisexclusion)
			 /* it refuses nothing */ ;
		else if (!store_index_is_on(index, scope, key) || !form->indimmediate)
			others = true;
		else if (form->indisvalid)
			unique = true;
		index_close(index, NoLock);
	}
	list_free(indexes);
	return unique && !others;
}

/*
 * Whether the direct way is taken for the opened table.  An error if it is
 * asked for and not possible, or if no way would be exact.
 */
static bool
store_choose_direct(Relation rel)
{
	static bool suitable;
	static bool unique;
	static uint64 known_epoch;
	static Oid	known_relid = InvalidOid;

	if (known_relid != RelationGetRelid(rel) ||
		known_epoch != idem_catalog_epoch(IDEM_REL_KEY))
	{
		/* the epoch first: what changes while we look is looked at again */
		known_relid = InvalidOid;
		known_epoch = idem_catalog_epoch(IDEM_REL_KEY);
		suitable = idem_heap_suitable(rel);
		unique = store_is_unique(rel);
		known_relid = RelationGetRelid(rel);
	}

	if (!unique)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("table \"idem.key\" is not unique by (scope, key) alone"),
				 errdetail("Without its primary key the same key could be claimed twice; with another unique index or exclusion constraint a new key could be refused."),
				 errhint("Restore the primary key, and drop other unique indexes."),
				 errhidestmt(true)));
	if (idem_guc_access == IDEM_ACCESS_SQL)
		return false;
	if (!suitable && idem_guc_access == IDEM_ACCESS_DIRECT)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("table \"idem.key\" cannot be reached directly"),
				 errdetail("It is not a plain table with its declared primary key, or it has triggers, rules, row security, constraints or indexes that the direct way would pass over."),
				 errhint("Set \"idem.access\" to \"auto\"."),
				 errhidestmt(true)));
	return suitable;
}

/*
 * Opens idem.key and chooses the way.
 */
void
idem_store_open(IdemStore *store, LOCKMODE lockmode)
{
	if (idem_store_before_open != NULL)
		idem_store_before_open();
	idem_store_open_as_is(store, lockmode);
}

/*
 * The same for who is called before it is opened.
 */
void
idem_store_open_as_is(IdemStore *store, LOCKMODE lockmode)
{
	store->context = CurrentMemoryContext;
	store->owner = CurrentResourceOwner;
	store->rel = table_open(idem_catalog_relation(IDEM_REL_KEY), lockmode);
	store->direct = store_choose_direct(store->rel);
	if (store->direct)
		idem_heap_open(store, lockmode);
}

/*
 * Closes what was opened; locks stay until the transaction ends.
 */
void
idem_store_close(IdemStore *store)
{
	if (store->direct)
		idem_heap_close(store);
	table_close(store->rel, NoLock);
}

/*
 * The latest committed version of the row, or the caller's own.  False if
 * there is none; another's uncommitted row does not count as one.  Unless
 * "sure", that may be wrong while somebody else updates the row: it will do
 * for who goes on to insert.
 */
bool
idem_store_read(IdemStore *store, text *scope, text *key, bool sure,
				IdemRow *row)
{
	return store->direct ? idem_heap_read(store, scope, key, sure, row) :
		idem_sql_read(store, scope, key, row);
}

/*
 * The same for a row that this transaction wrote, by the position remembered
 * of it.  False if it is not there any more: then read by key.
 */
bool
idem_store_read_at(IdemStore *store, ItemPointer tid,
				   text *scope, text *key, IdemRow *row)
{
	return store->direct && ItemPointerIsValid(tid) &&
		idem_heap_read_at(store, tid, scope, key, row);
}

/*
 * Whether a row that this transaction wrote is known to be still what it wrote,
 * so that it need not be read again.
 */
bool
idem_store_is_latest(IdemStore *store, const IdemRow *row)
{
	return store->direct && idem_heap_is_latest(store, row);
}

/*
 * In place of a read that would have found nothing, and nobody inserting: an
 * insert finds out if that is wrong.
 */
void
idem_store_presume_absent(IdemStore *store)
{
	store->heap.pending = InvalidTransactionId;
}

/*
 * Before many inserts in a row: the page that they go to stays pinned until
 * the store is closed.
 */
void
idem_store_expect_many(IdemStore *store)
{
	if (store->direct)
		idem_heap_expect_many(store);
}

/*
 * Whether the transaction's own snapshot already sees this version, so that
 * work based on that snapshot is not older than what the row stands for.
 */
bool
idem_store_snapshot_sees(IdemStore *store, const IdemRow *row)
{
	return store->direct ? idem_heap_snapshot_sees(row) :
		idem_sql_snapshot_sees(store, row);
}

/*
 * Inserts a row for a key of which the last read found none.
 */
IdemStoreResult
idem_store_insert(IdemStore *store, IdemRow *row, const IdemWait *wait)
{
	return store->direct ? idem_heap_insert(store, row, wait) :
		idem_sql_insert(store, row, wait);
}

/*
 * Replaces the version that was read.  Scope and key must be the same.
 */
IdemStoreResult
idem_store_update(IdemStore *store, const IdemRow *old, IdemRow *row,
				  const IdemWait *wait)
{
	return store->direct ? idem_heap_update(store, old, row, wait) :
		idem_sql_update(store, old, row, false, wait);
}

/*
 * The same over a version that this transaction wrote.
 */
IdemStoreResult
idem_store_update_own(IdemStore *store, const IdemRow *old, IdemRow *row)
{
	return store->direct ?
		idem_heap_update(store, old, row, &idem_wait_forever) :
		idem_sql_update(store, old, row, true, &idem_wait_forever);
}

/*
 * The same with times that count from now, since the first write slept.  Where a
 * trigger of the owner's has gone on from what was written, that stands.
 */
void
idem_store_update_again(IdemStore *store, const IdemRow *written, IdemRow *row)
{
	if (idem_store_update_own(store, written, row) != IDEM_STORE_OK)
		*row = *written;
}

/*
 * Deletes the version that was read.
 */
IdemStoreResult
idem_store_delete(IdemStore *store, const IdemRow *old, const IdemWait *wait)
{
	return store->direct ? idem_heap_delete(store, old, wait) :
		idem_sql_delete(store, old, wait);
}
