/*
 * history_pending.c
 *	  Steps that are recorded and not written yet.
 *
 * The guard's trigger before the update of a row is the last one, where history
 * goes by statement: what it lets pass is written, or the statement fails.  So
 * the step is recorded there, and kept here until enough are together, or the
 * trigger after the statement says that no more will come.
 *
 * A step gets its number when it is written, not when it is recorded.  By then
 * the row is locked until the end of the transaction, so that who moves it
 * later, in whatever session, draws a higher number: seq tells the order of
 * a row's steps.  Whoever else is about to record a step of the table in this
 * transaction has to come behind those that stand here: one of the same
 * subtransaction has them written first; one of a subtransaction inside, which
 * may fail alone, has them numbered, and tells which row it moves on, so that
 * the timers of the state in between are not set.
 *
 * Steps are kept by the binding and by the subtransaction that the statement runs
 * in, with which they go.  What no trigger after the statement has written (a
 * foreign key's action has none of its own; logical replication fires none) is
 * written by the next one, or before the subtransaction commits.
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "guc.h"
#include "history.h"
#include "writing.h"

/* in the context that it names, which is the subtransaction's */
typedef struct Pending
{
	Oid			relid;
	Oid			trigger;		/* the binding's */
	int			nestlevel;		/* of subtransactions */
	uint64		statement;		/* who recorded last */
	uint64		writer_serial;	/* ... with what said of the writer */
	Oid			role;
	IdemHistoryWriter *writer;
	MemoryContext context;
	struct Pending *next;
} Pending;

static Pending *pendings = NULL;

/*
 * Before what stands there is written: a trigger on idem.history may write the
 * table again.
 */
static void
pending_unlink(Pending *pending)
{
	Pending   **link = &pendings;

	while (*link != pending)
		link = &(*link)->next;
	*link = pending->next;
}

/*
 * Writes what stands there, after which no more comes.
 */
static void
pending_close(Pending *pending)
{
	MemoryContext caller = MemoryContextSwitchTo(pending->context);

	pending_unlink(pending);
	idem_history_close(pending->writer);
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(pending->context);
}

/*
 * The first in the list that is of the binding, or of the table, and of that
 * subtransaction.
 */
static Pending *
pending_find(Oid trigger, Oid relid, int nestlevel)
{
	Pending    *pending = pendings;

	while (pending != NULL &&
		   (pending->nestlevel != nestlevel ||
			(pending->trigger != trigger && pending->relid != relid)))
		pending = pending->next;
	return pending;
}

/*
 * The same in the midst of a statement.  What others record meanwhile is written
 * by the triggers after their statements.
 */
static void
pending_flush(Pending *pending)
{
	pending_unlink(pending);
	idem_history_flush(pending->writer);
	pending->next = pendings;
	pendings = pending;
}

static Pending *
pending_open(Relation rel, const IdemBinding *binding, uint64 statement,
			 int nestlevel)
{
	MemoryContext context = AllocSetContextCreate(CurTransactionContext,
												  "idem history",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(context);
	Pending    *pending = palloc0(sizeof(Pending));
	IdemTable  *table = idem_table_get(rel, context);

	pending->context = context;
	pending->relid = RelationGetRelid(rel);
	pending->trigger = binding->trigger;
	pending->nestlevel = nestlevel;
	pending->statement = statement;
	pending->writer_serial = idem_guc_writer_serial;
	pending->role = GetUserId();
	pending->writer = idem_history_open(idem_table_binding(table,
														   binding->tag));
	pending->next = pendings;
	pendings = pending;
	MemoryContextSwitchTo(caller);
	return pending;
}

/*
 * What stands here of the binding, of outer subtransactions, comes before.
 */
static void
pending_number_outer(Oid trigger, int nestlevel)
{
	for (Pending *pending = pendings; pending != NULL; pending = pending->next)
	{
		if (pending->trigger == trigger && pending->nestlevel < nestlevel)
			idem_history_number(pending->writer);
	}
}

/*
 * The step by which the row came to be what it was is not the last one any more.
 */
static void
pending_pass(const IdemBinding *binding, const IdemHistoryRow *row)
{
	CommandId	command = row->left_command;
	int64		hash = row->left_whole_hash;

	if (command == InvalidCommandId)
		return;
	do
	{
		idem_history_pass_writing(binding->trigger, command, hash);
		for (Pending *pending = pendings; pending != NULL;
			 pending = pending->next)
		{
			if (pending->trigger == binding->trigger)
				idem_history_pass(pending->writer, command, hash);
		}
	} while (idem_writing_pass(binding, &command, &hash));
}

/*
 * Makes a step of the row come behind those that stand here.
 */
void
idem_history_precede(const IdemBinding *binding, const IdemHistoryRow *row)
{
	int			nestlevel = GetCurrentTransactionNestLevel();
	Pending    *pending = pending_find(binding->trigger, InvalidOid,
									   nestlevel);

	if (pending != NULL)
		pending_close(pending);
	pending_number_outer(binding->trigger, nestlevel);
	pending_pass(binding, row);
}

/*
 * A step that the statement of that number takes.
 */
void
idem_history_pend(Relation rel, const IdemBinding *binding, uint64 statement,
				  const IdemHistoryRow *row)
{
	int			nestlevel = GetCurrentTransactionNestLevel();
	Pending    *pending = pending_find(binding->trigger, InvalidOid,
									   nestlevel);

	if (pending != NULL &&
		(pending->statement != statement ||
		 pending->writer_serial != idem_guc_writer_serial ||
		 pending->role != GetUserId()))
	{
		pending_close(pending);
		pending = NULL;
	}
	pending_number_outer(binding->trigger, nestlevel);
	pending_pass(binding, row);
	if (pending == NULL)
		pending = pending_open(rel, binding, statement, nestlevel);
	idem_history_add(pending->writer, row);
	if (idem_history_is_full(pending->writer))
		pending_flush(pending);
}

/*
 * After a statement: writes what it, and those inside of it, recorded of the
 * table.
 */
void
idem_history_settle(Oid relid)
{
	int			nestlevel = GetCurrentTransactionNestLevel();
	Pending    *pending;

	while (pendings != NULL &&
		   (pending = pending_find(InvalidOid, relid, nestlevel)) != NULL)
		pending_close(pending);
}

static void
pending_write_all(int nestlevel)
{
	if (pendings == NULL)
		return;
	PushActiveSnapshot(GetTransactionSnapshot());
	for (Pending *pending = pendings; pending != NULL;)
	{
		if (pending->nestlevel >= nestlevel)
		{
			pending_close(pending);
			pending = pendings;
		}
		else
			pending = pending->next;
	}
	PopActiveSnapshot();
}

static void
pending_transaction_ends(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
		case XACT_EVENT_PARALLEL_PRE_COMMIT:
		case XACT_EVENT_PRE_PREPARE:
			pending_write_all(0);
			break;
		default:
			pendings = NULL;	/* the memory goes with the (sub)transactions */
			break;
	}
}

static void
pending_subtransaction_ends(SubXactEvent event, SubTransactionId mine,
							SubTransactionId parent, void *arg)
{
	int			level = GetCurrentTransactionNestLevel();
	Pending   **link = &pendings;

	if (event == SUBXACT_EVENT_PRE_COMMIT_SUB)
		pending_write_all(level);
	else if (event == SUBXACT_EVENT_ABORT_SUB)
	{
		while (*link != NULL)
		{
			Pending    *pending = *link;

			if (pending->nestlevel < level)
			{
				link = &pending->next;
				continue;
			}
			*link = pending->next;
			MemoryContextDelete(pending->context);
		}
	}
}

/*
 * Registers the callbacks; called once, when the library is loaded.
 */
void
idem_history_pending_init(void)
{
	RegisterXactCallback(pending_transaction_ends, NULL);
	RegisterSubXactCallback(pending_subtransaction_ends, NULL);
}
