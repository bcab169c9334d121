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
 * A foreign key's action has a memory of its own, which is gone when its
 * triggers fire, those of the statement that it belongs to.  Its answer is left
 * behind for them, by the depth of triggers at which the action ran.  Several
 * actions are written by one statement trigger, so they follow the first answer.
 * By row is always right; if the first was by statement, and is not right any
 * more, the statement fails.
 *
 * A statement inside another one (of a trigger, or of a function in a clause)
 * may move on a row that the outer one has moved and not recorded yet.  Then the
 * inner one, which records first, draws two numbers, and leaves the lower one
 * and the time for the step of the outer one: the history is in the order of
 * steps.  The outer one leaves the row's timers as they are, which are of the
 * later state.  A statement that nobody nests in pays nothing for that.  What was
 * left by a subtransaction that failed since does not count.
 */
#include "postgres.h"

#include "access/xact.h"
#include "commands/sequence.h"
#include "common/hashfn.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "errors.h"
#include "writing.h"

/* a row that an inner statement moved on */
typedef struct MovedKey
{
	Oid			root;
	uint32		tag;			/* hash of the binding's */
	int64		row_hash;
}			MovedKey;

typedef struct MovedRow
{
	MovedKey	key;
	char		status;			/* simplehash's own */
	TransactionId xid;			/* of the subtransaction that did */
	int64		seq;
	TimestampTz at;
}			MovedRow;

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

/* the definition by which the guard takes rows */
typedef struct WritingMachine
{
	uint32		tag;			/* hash of the binding's */
	const IdemMachine *machine;
	struct WritingMachine *next;
}			WritingMachine;

/* in the statement's memory */
typedef struct Writing
{
	MemoryContext statement;
	Oid			relid;
	Oid			root;
	int			depth;			/* of triggers that the statement runs in */
	bool		by_row;
	bool		done;			/* all of the table is recorded */
	bool		adopted;		/* the answer is of a foreign key's action */
	moved_hash *moved;			/* NULL: none */
	WritingMachine *machines;
	struct Writing *outer;
	MemoryContextCallback callback;
}			Writing;

/* of a foreign key's action that has ended; in TopTransactionContext */
typedef struct WritingLeft
{
	Oid			relid;
	int			depth;
	bool		by_row;
	struct WritingLeft *next;
}			WritingLeft;

static Writing * writings = NULL;	/* innermost first */
static WritingLeft * left = NULL;

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

static WritingLeft *
writing_find_left(Oid relid, int depth)
{
	WritingLeft *answer = left;

	while (answer != NULL &&
		   (answer->relid != relid || answer->depth != depth))
		answer = answer->next;
	return answer;
}

/*
 * The statement's memory goes.
 */
static void
writing_release(void *arg)
{
	Writing    *writing = (Writing *) arg;
	WritingLeft *answer;

	for (Writing * *link = &writings; *link != NULL; link = &(*link)->outer)
	{
		if (*link == writing)
		{
			*link = writing->outer;
			break;
		}
	}
	if (writing->done || writing->depth == 0 || !IsTransactionState())
		return;
	answer = writing_find_left(writing->relid, writing->depth);
	if (answer == NULL)
	{
		answer = MemoryContextAlloc(TopTransactionContext,
									sizeof(WritingLeft));
		answer->relid = writing->relid;
		answer->depth = writing->depth;
		answer->next = left;
		left = answer;
	}
	answer->by_row = writing->by_row;
}

static Writing *
writing_add(MemoryContext statement, Oid relid, Oid root, int depth)
{
	Writing    *writing = MemoryContextAllocZero(statement, sizeof(Writing));

	writing->statement = statement;
	writing->relid = relid;
	writing->root = root;
	writing->depth = depth;
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
	WritingLeft *answer;

	if (writing != NULL)
		return writing->by_row;
	answer = depth > 0 ? writing_find_left(relid, depth) : NULL;
	if (answer != NULL && answer->by_row)
		now = true;
	else if (answer != NULL && now)
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("a table with history was changed while a foreign key's action wrote it"),
				 errhint("Try the transaction again."),
				 errhidestmt(true)));
	writing_add(statement, relid, root, depth)->by_row = now;
	return now;
}

/*
 * The definition that a statement keeps to; it stays as long as the statement's
 * memory.
 */
void
idem_writing_keep_machine(MemoryContext statement, Oid relid, const char *tag,
						  const IdemMachine *machine)
{
	Writing    *writing = writing_find(statement, relid);
	WritingMachine *kept;

	if (writing == NULL || idem_writing_machine(statement, relid, tag) != NULL)
		return;
	kept = MemoryContextAlloc(statement, sizeof(WritingMachine));
	kept->tag = writing_hash_tag(tag);
	kept->machine = machine;
	kept->next = writing->machines;
	writing->machines = kept;
}

/*
 * That definition, or NULL if the guard has not decided anything.
 */
const IdemMachine *
idem_writing_machine(MemoryContext statement, Oid relid, const char *tag)
{
	Writing    *writing = writing_find(statement, relid);

	if (writing == NULL)
		return NULL;
	for (WritingMachine * kept = writing->machines; kept != NULL; kept = kept->next)
	{
		if (kept->tag == writing_hash_tag(tag))
			return kept->machine;
	}
	return NULL;
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
	for (Writing * writing = writings; writing != NULL; writing = writing->outer)
	{
		if (writing->relid == relid && writing->depth == depth)
			return writing->statement;
	}
	return statement;
}

/*
 * For the statement trigger: whether the rows were recorded one by one.
 */
bool
idem_writing_end(MemoryContext statement, Oid relid, int depth, bool now)
{
	Writing    *writing = writing_find(statement, relid);
	WritingLeft **link = &left;
	WritingLeft *answer;

	if (writing == NULL || writing->adopted)
	{
		/* triggers of a foreign key's action fire one level further out */
		while (*link != NULL &&
			   ((*link)->relid != relid || (*link)->depth != depth + 1))
			link = &(*link)->next;
		answer = *link;
		if (answer != NULL)
		{
			now = answer->by_row;
			*link = answer->next;
			pfree(answer);
			if (writing == NULL)
			{
				writing = writing_add(statement, relid, InvalidOid, depth);
				writing->adopted = true;
			}
			writing->by_row = now;
		}
	}
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

	for (Writing * writing = writings; writing != NULL; writing = writing->outer)
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
writing_reserve(Writing * writing, MemoryContext statement, Oid relid,
				const IdemBinding *binding, int64 row_hash, Oid sequence)
{
	MovedRow   *row;
	bool		found;

	if (writing == NULL)
		return;
	/* outer ones come first */
	writing_reserve(writing->outer, statement, relid, binding, row_hash,
					sequence);
	if (writing->statement == statement || writing->done ||
		writing_holder(writing->statement, relid, binding->root) != writing)
		return;
	if (writing->moved == NULL)
		writing->moved = moved_create(writing->statement, 16, NULL);
	row = moved_insert(writing->moved, moved_key(binding, row_hash), &found);
	if (found && TransactionIdIsCurrentTransactionId(row->xid))
		return;
	row->xid = GetCurrentTransactionId();
	row->seq = nextval_internal(sequence, false);
	row->at = GetCurrentTimestamp();
}

/*
 * Before a step is recorded: leaves a number for those that statements around
 * this one may have done with the row before.
 */
void
idem_writing_reserve(MemoryContext statement, Oid relid,
					 const IdemBinding *binding, int64 row_hash, Oid sequence)
{
	if (writings != NULL)
		writing_reserve(writings, statement, relid, binding, row_hash,
						sequence);
}

/*
 * The number and the time that a statement inside has left for this one's step,
 * if it moved the row on.
 */
bool
idem_writing_reserved(MemoryContext statement, const IdemBinding *binding,
					  int64 row_hash, int64 *seq, TimestampTz *at)
{
	for (Writing * writing = writings; writing != NULL; writing = writing->outer)
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

static void
writing_transaction_ends(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT ||
		event == XACT_EVENT_PREPARE || event == XACT_EVENT_PARALLEL_COMMIT ||
		event == XACT_EVENT_PARALLEL_ABORT)
		left = NULL;			/* the memory goes with the transaction */
}

/*
 * Registers the callback; called once, when the library is loaded.
 */
void
idem_writing_init(void)
{
	RegisterXactCallback(writing_transaction_ends, NULL);
}
