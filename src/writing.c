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
 * it records behind the row.  So before the update of such a row version a number
 * and a time are left for the step that made it: the history is in the order of
 * steps.  When the inner step is recorded, the version counts as passed, and the
 * outer one leaves the row's timers as they are, which are of the later state.
 *
 * A version is known by the command that wrote it and by its primary key, which
 * no two that stand have in common.  Since it may be replaced without a step, it
 * is remembered which one the new version continues.  Whether a command's rows are
 * recorded, tells the list of statements; but an INSERT into a partitioned table
 * does not stand there before the first trigger after its rows fires.  So rows of
 * partitions that were inserted in this transaction are taken for unrecorded,
 * unless their command is known to have got there.  And the memory of a foreign
 * key's action is gone when its triggers fire, those of the statement that it
 * belongs to: rows of all commands from the first such one to the last are taken
 * for unrecorded, at the price of a number for each that is updated again.  That
 * ends with that statement.  What runs while its triggers fire runs in as many of
 * them as the action, or in more.  So the next statement that begins in fewer finds
 * it over; one that is at its own triggers by then does if it began since.
 *
 * A row that stays in its state and gets another key takes its timers along.  By
 * row that is after the write, when statements inside may have put another row
 * under the key that it had, or given it yet another one.  So since when it is in
 * its state is asked before the write, and left with the version that is going
 * to be; and who gets a key while its timers may not have been taken along yet is
 * remembered, so that they are not taken for those of the row that had it.
 *
 * A statement that nobody nests in pays a look at that list.  What a
 * subtransaction that failed since has done does not count.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "commands/sequence.h"
#include "common/hashfn.h"
#include "replication/logicalworker.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "catalog.h"
#include "writing.h"

/* a command of a subtransaction by which a row got a key */
typedef struct Taker
{
	CommandId	command;
	TransactionId by;
	struct Taker *former;
} Taker;

/* a row version that a statement inside of the one that wrote it replaces */
typedef struct VersionKey
{
	Oid			table;
	uint32		tag;			/* hash of the binding's */
	int64		hash;			/* of the row's primary key */
	CommandId	command;		/* that wrote it; InvalidCommandId: for those
								 * who got the key */
	uint32		zero;
} VersionKey;

typedef struct Version
{
	VersionKey	key;
	char		status;			/* simplehash's own */
	TransactionId passed_by;	/* subtransaction */
	int64		seq;			/* 0: none is asked for */
	TimestampTz at;
	TimestampTz since;			/* where it got another key; 0: not asked */
	uint32		state;			/* hash of that in which it is since then */
	bool		continues;		/* the one that it replaced: */
	CommandId	former;
	int64		former_hash;
	Taker	   *takers;			/* who got the key, the last first */
} Version;

static inline uint32
version_hash_key(VersionKey key)
{
	return hash_bytes((const unsigned char *) &key, sizeof(key));
}

static inline bool
version_same_key(VersionKey a, VersionKey b)
{
	return a.hash == b.hash && a.command == b.command && a.table == b.table &&
		a.tag == b.tag;
}

#define SH_PREFIX version
#define SH_ELEMENT_TYPE Version
#define SH_KEY_TYPE VersionKey
#define SH_KEY key
#define SH_HASH_KEY(tb, k) version_hash_key(k)
#define SH_EQUAL(tb, a, b) version_same_key(a, b)
#define SH_SCOPE static inline
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

/* both in the statement's memory */
typedef struct Writing
{
	MemoryContext statement;
	int			depth;			/* of triggers that the statement runs in */
	CommandId	command;
	struct WritingTable *tables;
	int			inserting;		/* of these not all inserts are recorded */
	int			updating;		/* ... not all updates */
	struct Writing *outer;
	MemoryContextCallback callback;
} Writing;

typedef struct WritingTable
{
	Writing    *writing;
	Oid			relid;
	bool		by_row;
	bool		inserted;		/* all that it inserted is recorded */
	bool		updated;		/* all that it updated */
	uint64		serial;			/* no two share one */
	struct WritingTable *next;
} WritingTable;

/* in TopTransactionContext */
typedef struct Replaced
{
	version_hash *versions;
	bool		continued;		/* there is one that continues another */
	CommandId	told_first;		/* inserts that have got to their triggers */
	CommandId	told_last;
	CommandId	action_first;	/* foreign keys' actions, and others */
	CommandId	action_last;
	int			action_depth;	/* the fewest triggers that one ran in */
	MemoryContextCallback callback;
} Replaced;

static Writing *writings = NULL;	/* innermost first */
static Replaced *replaced = NULL;
static uint64 last_serial = 0;

static uint32
writing_hash(const char *name)
{
	return hash_bytes((const unsigned char *) name, strlen(name));
}

static WritingTable *
writing_table(const Writing *writing, Oid relid)
{
	WritingTable *table = writing->tables;

	while (table != NULL && table->relid != relid)
		table = table->next;
	return table;
}

static WritingTable *
writing_find(MemoryContext statement, Oid relid)
{
	for (Writing *writing = writings; writing != NULL; writing = writing->outer)
	{
		WritingTable *table = writing->statement == statement ?
		writing_table(writing, relid) : NULL;

		if (table != NULL)
			return table;
	}
	return NULL;
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

/*
 * The entry of a statement's command.
 */
static Writing *
writing_get(MemoryContext statement, int depth, CommandId command)
{
	Writing    *writing = writings;

	while (writing != NULL &&
		   (writing->statement != statement || writing->command != command))
		writing = writing->outer;
	if (writing != NULL)
		return writing;
	writing = MemoryContextAllocZero(statement, sizeof(Writing));
	writing->statement = statement;
	writing->depth = depth;
	writing->command = command;
	writing->callback.func = writing_release;
	writing->callback.arg = writing;
	MemoryContextRegisterResetCallback(statement, &writing->callback);
	writing->outer = writings;
	writings = writing;
	return writing;
}

/*
 * A statement that runs in so many triggers, and writes by that command, begins, or
 * is at its triggers after rows: ends the time in which the rows of actions are not
 * recorded, if none can still be so.
 */
static void
writing_end_actions(int depth, CommandId command)
{
	if (replaced == NULL || depth >= replaced->action_depth ||
		command == InvalidCommandId || command <= replaced->action_last)
		return;
	replaced->action_first = InvalidCommandId;
	replaced->action_last = 0;
	replaced->action_depth = PG_INT32_MAX;
}

/*
 * Whether history of the table goes by row in the statement that has that
 * memory, that command, and runs in so many triggers.  "now" is what the table
 * says now; it is the answer for who asks first.
 */
bool
idem_writing_by_row(MemoryContext statement, Oid relid, int depth,
					CommandId command, bool now)
{
	WritingTable *table = writing_find(statement, relid);

	if (table == NULL)
	{
		Writing    *writing = writing_get(statement, depth, command);

		writing_end_actions(depth, command);
		table = MemoryContextAllocZero(statement, sizeof(WritingTable));
		table->writing = writing;
		table->relid = relid;
		table->by_row = now;
		table->serial = ++last_serial;
		table->next = writing->tables;
		writing->tables = table;
		writing->inserting++;
		writing->updating++;
	}
	return table->by_row;
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
 * The command by which a statement that runs in so many triggers writes: that of
 * its snapshot.  Rows that are replicated have no such statement, and are written
 * by the next command, whatever their snapshot.
 */
CommandId
idem_writing_now(int depth)
{
	if ((depth == 0 && IsLogicalWorker()) || !ActiveSnapshotSet())
		return GetCurrentCommandId(false);
	return GetActiveSnapshot()->curcid;
}

/*
 * The command that wrote a row, if this transaction has; else InvalidCommandId.
 */
CommandId
idem_writing_command(HeapTuple row)
{
	HeapTupleHeader header = row->t_data;

	/* frozen ones are nobody's */
	if (!TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetXmin(header)))
		return InvalidCommandId;
	return HeapTupleHeaderGetCmin(header);
}

/*
 * The command of a statement that writes the table; InvalidCommandId if it does
 * not stand here.
 */
CommandId
idem_writing_command_of(MemoryContext statement, Oid relid)
{
	WritingTable *table = writing_find(statement, relid);

	return table != NULL ? table->writing->command : InvalidCommandId;
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
		if (writing->depth == depth && writing_table(writing, relid) != NULL)
			return writing->statement;
	}
	return statement;
}

/*
 * For a trigger after the statement: whether the rows were recorded one by one.
 * A statement may insert and update rows of a table.
 */
bool
idem_writing_end(MemoryContext statement, Oid relid, bool inserted, bool now)
{
	WritingTable *table = writing_find(statement, relid);

	if (table == NULL)
		return now;
	if (inserted && !table->inserted)
		table->writing->inserting--;
	if (!inserted && !table->updated)
		table->writing->updating--;
	table->inserted |= inserted;
	table->updated |= !inserted;
	return table->by_row;
}

static VersionKey
version_key(const IdemBinding *binding, CommandId command, int64 hash)
{
	VersionKey	key;

	memset(&key, 0, sizeof(key));
	key.table = idem_binding_table(binding);
	key.tag = writing_hash(binding->tag);
	key.hash = hash;
	key.command = command;
	return key;
}

static Version *
version_find(const IdemBinding *binding, CommandId command, int64 hash)
{
	if (replaced == NULL || replaced->versions == NULL ||
		command == InvalidCommandId)
		return NULL;
	return version_lookup(replaced->versions,
						  version_key(binding, command, hash));
}

static bool
version_is_passed(const Version *version)
{
	return TransactionIdIsValid(version->passed_by) &&
		TransactionIdIsCurrentTransactionId(version->passed_by);
}

/*
 * The memory goes with the transaction.
 */
static void
replaced_release(void *arg)
{
	replaced = NULL;
}

static Replaced *
replaced_get(void)
{
	if (replaced == NULL)
	{
		replaced = MemoryContextAllocZero(TopTransactionContext,
										  sizeof(Replaced));
		replaced->told_first = replaced->action_first = InvalidCommandId;
		replaced->action_depth = PG_INT32_MAX;
		replaced->callback.func = replaced_release;
		MemoryContextRegisterResetCallback(TopTransactionContext,
										   &replaced->callback);
	}
	return replaced;
}

static Version *
version_get(const IdemBinding *binding, CommandId command, int64 hash)
{
	Replaced   *all = replaced_get();
	Version    *version;
	bool		found;

	if (all->versions == NULL)
		all->versions = version_create(TopTransactionContext, 16, NULL);
	version = version_insert(all->versions,
							 version_key(binding, command, hash), &found);
	if (!found)
		memset((char *) version + offsetof(Version, passed_by), 0,
			   sizeof(Version) - offsetof(Version, passed_by));
	return version;
}

/*
 * That rows of a partition get to a trigger after their insert by that command.
 * Commands since are of statements inside of it, and over, up to the one before
 * the next.
 */
void
idem_writing_tells(CommandId command)
{
	CommandId	next = GetCurrentCommandId(false);
	Replaced   *all = replaced_get();

	if (all->told_first > command || all->told_last + 1 < command)
		all->told_first = command;
	all->told_last = Max(command + 1, next) - 1;
}

/*
 * That a command may be a foreign key's action, which runs in so many triggers, and
 * whose rows are told of after they were written.
 */
void
idem_writing_acts(CommandId command, int depth)
{
	Replaced   *all = replaced_get();

	/* one inside of another may be the first to say so */
	all->action_first = Min(all->action_first, command);
	all->action_last = Max(all->action_last, command);
	all->action_depth = Min(all->action_depth, depth);
}

/*
 * Whether the row, which this transaction wrote by that command, is of a statement
 * around this one that may not have recorded it.
 */
static bool
writing_is_unrecorded(MemoryContext statement, CommandId command,
					  HeapTuple row, bool partition)
{
	bool		inserted = (row->t_data->t_infomask & HEAP_UPDATED) == 0;

	for (Writing *writing = writings; writing != NULL; writing = writing->outer)
	{
		if (writing->command == command && writing->statement != statement &&
			(inserted ? writing->inserting : writing->updating) > 0)
			return true;
	}
	if (replaced != NULL && replaced->action_first <= command &&
		command <= replaced->action_last)
		return true;
	return partition && inserted &&
		!(replaced != NULL && replaced->told_first <= command &&
		  command <= replaced->told_last);
}

/*
 * Before the update of such a row, of a partition or not: whether
 * idem_writing_replace() has anything to do.
 */
bool
idem_writing_replaces(MemoryContext statement, CommandId command,
					  HeapTuple row, bool partition)
{
	return command != InvalidCommandId &&
		((replaced != NULL && replaced->continued) ||
		 writing_is_unrecorded(statement, command, row, partition));
}

/*
 * Leaves a number for the step that made the row what it is, if that may not be
 * recorded yet.  False if nothing is known of the row.
 */
bool
idem_writing_replace(MemoryContext statement, const IdemBinding *binding,
					 CommandId command, int64 hash, HeapTuple row,
					 bool partition)
{
	Version    *version;

	if (!writing_is_unrecorded(statement, command, row, partition))
		return version_find(binding, command, hash) != NULL;
	version = version_get(binding, command, hash);
	if (version->seq == 0)
	{
		version->seq = nextval_internal(idem_catalog_relation(IDEM_REL_HISTORY_SEQ),
										false);
		version->at = GetCurrentTimestamp();
	}
	return true;
}

/*
 * That the row goes on as what a command of that number writes.
 */
void
idem_writing_continue(const IdemBinding *binding, CommandId command, int64 hash,
					  CommandId former, int64 former_hash)
{
	Version    *version = version_get(binding, command, hash);

	version->continues = true;
	version->former = former;
	version->former_hash = former_hash;
	replaced->continued = true;
}

/*
 * A step of a version, or another key, is being recorded, which passes the one
 * that made it.  True with the version before, if that one may have made none.
 */
bool
idem_writing_pass(const IdemBinding *binding, CommandId *command, int64 *hash)
{
	Version    *version = version_find(binding, *command, *hash);

	/* those before one that is passed are passed, too, and stay so with it */
	if (version == NULL || version_is_passed(version))
		return false;
	version->passed_by = GetCurrentTransactionId();
	if (!version->continues)
		return false;
	*command = version->former;
	*hash = version->former_hash;
	return true;
}

/*
 * That the row is to have another key, and has been in that state since then.
 */
void
idem_writing_leave(const IdemBinding *binding, CommandId command, int64 hash,
				   const char *state, TimestampTz since)
{
	Version    *version = version_get(binding, command, hash);

	version->since = since;
	version->state = writing_hash(state);
}

/*
 * What was left of that for a version, or for one that it continues; 0 if nothing
 * was.
 */
TimestampTz
idem_writing_since(const IdemBinding *binding, CommandId command, int64 hash,
				   const char *state)
{
	Version    *version = version_find(binding, command, hash);

	while (version != NULL && version->since == 0 && version->continues)
		version = version_find(binding, version->former, version->former_hash);
	return version != NULL && version->since != 0 &&
		version->state == writing_hash(state) ? version->since : 0;
}

/*
 * The number and the time that were left for the step that made a version; 0 if
 * there are none.  True if the row has moved on.
 */
bool
idem_writing_reserved(const IdemBinding *binding, CommandId command,
					  int64 hash, int64 *seq, TimestampTz *at)
{
	Version    *version = version_find(binding, command, hash);
	bool		passed;

	*seq = 0;
	if (version == NULL)
		return false;
	*seq = version->seq;
	*at = version->at;
	passed = version_is_passed(version);
	version_delete(replaced->versions, version->key);
	return passed;
}

/*
 * The last of those who got a key that counts.
 */
static Taker *
version_taker(Version *version)
{
	while (version->takers != NULL &&
		   !TransactionIdIsCurrentTransactionId(version->takers->by))
		version->takers = version->takers->former;
	return version->takers;
}

/*
 * A row that the command writes has the key of that hash.  True if one of a
 * statement around it may have given it up, and not recorded that yet.
 */
bool
idem_writing_take_key(const IdemBinding *binding, int64 hash, CommandId command)
{
	Version    *version;
	Taker	   *taker;
	Writing    *writing = writings;

	if (command == InvalidCommandId)
		return false;
	while (writing != NULL &&
		   (writing->command == command || writing->updating == 0))
		writing = writing->outer;
	if (writing == NULL &&
		(replaced == NULL || replaced->action_first == InvalidCommandId))
		return false;
	version = version_get(binding, InvalidCommandId, hash);
	taker = version_taker(version);

	/* one inside, which has the key by now, does not fail without this one */
	if (taker != NULL && taker->command >= command)
		return true;
	if (taker == NULL || taker->by != GetCurrentTransactionId())
	{
		taker = MemoryContextAlloc(TopTransactionContext, sizeof(Taker));
		taker->by = GetCurrentTransactionId();
		taker->former = version->takers;
		version->takers = taker;
	}
	taker->command = command;
	return true;
}

/*
 * Whether a later command than that one did so.
 */
bool
idem_writing_is_taken(const IdemBinding *binding, int64 hash, CommandId command)
{
	Version    *version = NULL;
	Taker	   *taker = NULL;

	if (replaced != NULL && replaced->versions != NULL)
		version = version_lookup(replaced->versions,
								 version_key(binding, InvalidCommandId, hash));
	if (version != NULL)
		taker = version_taker(version);
	return taker != NULL && taker->command > command;
}
