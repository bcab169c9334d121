/*
 * writing.c
 *	  Statements that are writing rows with history.
 *
 * Whether a statement's history goes by row or by statement is asked before the
 * update of its first row, by the WHEN clauses of the triggers after rows, and
 * by the triggers themselves; and the table may become a parent, or get a
 * trigger, between two of these.  So the first who asks gets the answer for all:
 * it is kept by the statement's memory, which is the executor's for the query,
 * and by the table, and goes with that memory.
 *
 * A statement inside another one (of a trigger, or of a function in a clause)
 * may move on a row that the outer one has written and not recorded yet, because
 * it records behind the row.  Then the inner one, which records first, draws two
 * numbers, and leaves the lower one and the time for the step of the outer one:
 * the history is in the order of steps.  The outer one leaves the row's timers as
 * they are, which are of the later state.  A statement that nobody nests in pays
 * nothing for that.  What was left by a subtransaction that failed since does not
 * count.  The memory of a foreign key's action is gone when its triggers fire,
 * those of the statement that it belongs to: nothing is left for these.
 */
#include "postgres.h"

#include "access/xact.h"
#include "commands/sequence.h"
#include "common/hashfn.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "catalog.h"
#include "writing.h"

/* a row that an inner statement moved on */
typedef struct MovedKey
{
	Oid			root;
	uint32		tag;			/* hash of the binding's */
	int64		row_hash;
} MovedKey;

typedef struct MovedRow
{
	MovedKey	key;
	char		status;			/* simplehash's own */
	TransactionId xid;			/* of the subtransaction that did */
	int64		seq;
	TimestampTz at;
} MovedRow;

static inline uint32
moved_hash_key(MovedKey key)
{
	return hash_bytes((const unsigned char *) &key, sizeof(key));
}

static inline bool
moved_same_key(MovedKey a, MovedKey b)
{
	return a.row_hash == b.row_hash && a.root == b.root && a.tag == b.tag;
}

#define SH_PREFIX moved
#define SH_ELEMENT_TYPE MovedRow
#define SH_KEY_TYPE MovedKey
#define SH_KEY key
#define SH_HASH_KEY(tb, k) moved_hash_key(k)
#define SH_EQUAL(tb, a, b) moved_same_key(a, b)
#define SH_SCOPE static inline
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

/* in the statement's memory */
typedef struct Writing
{
	MemoryContext statement;
	Oid			relid;
	Oid			root;
	int			depth;			/* of triggers that the statement runs in */
	bool		by_row;
	bool		done;			/* all of the table is recorded */
	uint64		serial;			/* no two share one */
	moved_hash *moved;			/* NULL: none */
	struct Writing *outer;
	MemoryContextCallback callback;
} Writing;

static Writing *writings = NULL;	/* innermost first */
static uint64 last_serial = 0;

static uint32
writing_hash_tag(const char *tag)
{
	return hash_bytes((const unsigned char *) tag, strlen(tag));
}

static Writing *
writing_find(MemoryContext statement, Oid relid)
{
	Writing    *writing = writings;

	while (writing != NULL &&
		   (writing->statement != statement || writing->relid != relid))
		writing = writing->outer;
	return writing;
}

/*
 * The statement's memory goes.
 */
static void
writing_release(void *arg)
{
	Writing    *writing = (Writing *) arg;

	for (Writing **link = &writings; *link != NULL; link = &(*link)->outer)
	{
		if (*link == writing)
		{
			*link = writing->outer;
			break;
		}
	}
}

static Writing *
writing_add(MemoryContext statement, Oid relid, Oid root, int depth)
{
	Writing    *writing = MemoryContextAllocZero(statement, sizeof(Writing));

	writing->statement = statement;
	writing->relid = relid;
	writing->root = root;
	writing->depth = depth;
	writing->serial = ++last_serial;
	writing->callback.func = writing_release;
	writing->callback.arg = writing;
	MemoryContextRegisterResetCallback(statement, &writing->callback);
	writing->outer = writings;
	writings = writing;
	return writing;
}

/*
 * Whether history of the table goes by row in the statement that has that
 * memory, and runs in so many triggers.  "now" is what the table says now; it is
 * the answer for who asks first.
 */
bool
idem_writing_by_row(MemoryContext statement, Oid relid, Oid root, int depth,
					bool now)
{
	Writing    *writing = writing_find(statement, relid);

	if (writing == NULL)
	{
		writing = writing_add(statement, relid, root, depth);
		writing->by_row = now;
	}
	return writing->by_row;
}

/*
 * A number that is this statement's on the table; one must have asked before how
 * its history goes.
 */
uint64
idem_writing_serial(MemoryContext statement, Oid relid)
{
	return writing_find(statement, relid)->serial;
}

/*
 * The memory of the statement that inserted, for a trigger after it.  COPY fires
 * triggers outside of its executor's.
 */
MemoryContext
idem_writing_statement(MemoryContext statement, Oid relid, int depth)
{
	if (writing_find(statement, relid) != NULL)
		return statement;
	for (Writing *writing = writings; writing != NULL; writing = writing->outer)
	{
		if (writing->relid == relid && writing->depth == depth)
			return writing->statement;
	}
	return statement;
}

/*
 * For a trigger after the statement: whether the rows were recorded one by one.
 */
bool
idem_writing_end(MemoryContext statement, Oid relid, bool now)
{
	Writing    *writing = writing_find(statement, relid);

	if (writing == NULL)
		return now;
	writing->done = true;
	return writing->by_row;
}

/*
 * The statement's rows of a table, or of tables that were attached as one; the
 * outermost in the list.
 */
static Writing *
writing_holder(MemoryContext statement, Oid relid, Oid root)
{
	Writing    *holder = NULL;

	for (Writing *writing = writings; writing != NULL; writing = writing->outer)
	{
		if (writing->statement == statement &&
			(writing->relid == relid || writing->root == root))
			holder = writing;
	}
	return holder;
}

static MovedKey
moved_key(const IdemBinding *binding, int64 row_hash)
{
	MovedKey	key;

	memset(&key, 0, sizeof(key));
	key.root = binding->root;
	key.tag = writing_hash_tag(binding->tag);
	key.row_hash = row_hash;
	return key;
}

static void
writing_reserve(Writing *writing, MemoryContext statement, Oid relid,
				const IdemBinding *binding, int64 row_hash)
{
	MovedRow   *row;
	bool		found;

	if (writing == NULL)
		return;
	/* outer ones come first */
	writing_reserve(writing->outer, statement, relid, binding, row_hash);
	if (writing->statement == statement || writing->done ||
		writing_holder(writing->statement, relid, binding->root) != writing)
		return;
	if (writing->moved == NULL)
		writing->moved = moved_create(writing->statement, 16, NULL);
	row = moved_insert(writing->moved, moved_key(binding, row_hash), &found);
	if (found && TransactionIdIsCurrentTransactionId(row->xid))
		return;
	row->xid = GetCurrentTransactionId();
	row->seq = nextval_internal(idem_catalog_relation(IDEM_REL_HISTORY_SEQ),
								false);
	row->at = GetCurrentTimestamp();
}

/*
 * Before a step is recorded: leaves a number for those that statements around
 * this one may have done with the row before.
 */
void
idem_writing_reserve(MemoryContext statement, Oid relid,
					 const IdemBinding *binding, int64 row_hash)
{
	if (writings != NULL)
		writing_reserve(writings, statement, relid, binding, row_hash);
}

/*
 * The number and the time that a statement inside has left for this one's step,
 * if it moved the row on.
 */
bool
idem_writing_reserved(MemoryContext statement, const IdemBinding *binding,
					  int64 row_hash, int64 *seq, TimestampTz *at)
{
	for (Writing *writing = writings; writing != NULL; writing = writing->outer)
	{
		MovedRow   *row;
		bool		counts;

		if (writing->statement != statement || writing->moved == NULL)
			continue;
		row = moved_lookup(writing->moved, moved_key(binding, row_hash));
		if (row == NULL)
			continue;
		counts = TransactionIdIsCurrentTransactionId(row->xid);
		*seq = row->seq;
		*at = row->at;
		moved_delete(writing->moved, row->key);
		return counts;
	}
	return false;
}
