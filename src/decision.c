/*
 * decision.c
 *	  What the guard decided for a row, until the row is written.
 *
 * Decided before the update, asked for by the row trigger after it.  Kept in
 * the transaction's memory, not in the statement's: a foreign key's action is
 * a statement of its own, whose triggers after the update fire in the one that
 * it belongs to.
 *
 * A decision is found by the trigger that made it, which is one relation's and
 * one binding's, by the position of the row version that is replaced, and by the
 * command that replaces it: the guard has that before the update from its
 * statement, and after it from the row.  Nobody replaces a version twice, unless
 * the first time was rolled back, and decisions of a subtransaction that fails go
 * with it.  So one for an update that a later trigger suppressed is found by no
 * other command, be it inside of the update or after it.  It goes when the guard
 * sees that version again, in as many triggers or fewer: then that update is over,
 * whose command may be the same (several statements in one WITH).  If nobody
 * writes the version any more it stays until the transaction ends.
 *
 * States and events are the definition's that was in force when the statement
 * began, which is held as long as the decision.  A foreign key's action begins
 * with one of its own, and its triggers after the update may have another.
 */
#include "postgres.h"

#include "access/xact.h"
#include "common/hashfn.h"
#include "replication/logicalworker.h"
#include "utils/memutils.h"

#include "decision.h"

typedef struct DecisionKey
{
	Oid			trigger;
	ItemPointerData tid;
} DecisionKey;

/* updates of one version stand inside each other */
typedef struct Kept
{
	CommandId	command;		/* InvalidCommandId: whichever */
	int			depth;			/* of triggers */
	IdemDecision decision;
	struct Kept *outer;
} Kept;

typedef struct Decision
{
	DecisionKey key;
	char		status;			/* simplehash's own */
	Kept	   *kept;			/* innermost first */
} Decision;

static inline uint32
decision_hash_key(DecisionKey key)
{
	uint32		h = key.trigger * 0x27D4EB2Fu;

	h ^= ItemPointerGetBlockNumberNoCheck(&key.tid) * 0x9E3779B1u;
	h ^= ItemPointerGetOffsetNumberNoCheck(&key.tid) * 0x85EBCA6Bu;
	h ^= h >> 15;
	return h * 0xC2B2AE35u;
}

static inline bool
decision_same_key(DecisionKey a, DecisionKey b)
{
	return a.trigger == b.trigger && ItemPointerEquals(&a.tid, &b.tid);
}

static DecisionKey
decision_key(Oid trigger, ItemPointer tid)
{
	DecisionKey key;

	key.trigger = trigger;
	key.tid = *tid;
	return key;
}

#define SH_PREFIX decision
#define SH_ELEMENT_TYPE Decision
#define SH_KEY_TYPE DecisionKey
#define SH_KEY key
#define SH_HASH_KEY(tb, k) decision_hash_key(k)
#define SH_EQUAL(tb, a, b) decision_same_key(a, b)
#define SH_SCOPE static inline
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

/* one that was kept in a subtransaction; the last is never of an outer one */
typedef struct InnerDecision
{
	DecisionKey key;
	CommandId	command;
	int			nestlevel;
} InnerDecision;

/* all in TopTransactionContext */
static decision_hash *decisions = NULL;
static InnerDecision *inner = NULL;
static int	ninner = 0;
static int	inner_room = 0;
static const IdemMachine **machines = NULL;
static int	nmachines = 0;
static int	machines_room = 0;

/*
 * Keeps a machine until the transaction ends: one that is compiled anew has
 * others of its own.
 */
void
idem_decision_hold(const IdemMachine *machine)
{
	for (int i = nmachines - 1; i >= 0; i--)
	{
		if (machines[i] == machine)
			return;
	}
	if (nmachines == machines_room)
	{
		int			room = Max(8, 2 * machines_room);

		if (machines == NULL)
			machines = MemoryContextAlloc(TopTransactionContext,
										  room * sizeof(IdemMachine *));
		else
			machines = repalloc(machines, room * sizeof(IdemMachine *));
		machines_room = room;
	}
	idem_machine_hold(machine, TopTransactionContext);
	machines[nmachines++] = machine;
}

static void
decision_note_inner(DecisionKey key, CommandId command, int nestlevel)
{
	if (ninner == inner_room)
	{
		int			room = Max(64, 2 * inner_room);

		if (inner == NULL)
			inner = MemoryContextAllocHuge(TopTransactionContext,
										   room * sizeof(InnerDecision));
		else
			inner = repalloc_huge(inner, room * sizeof(InnerDecision));
		inner_room = room;
	}
	inner[ninner].key = key;
	inner[ninner].command = command;
	inner[ninner++].nestlevel = nestlevel;
}

/*
 * Forgets what was decided for updates of the version that are over.
 */
static void
decision_clear(Decision *of, int depth)
{
	while (of->kept != NULL && of->kept->depth >= depth)
	{
		Kept	   *kept = of->kept;

		of->kept = kept->outer;
		pfree(kept);
	}
}

/*
 * Before an update for which nothing is kept.
 */
void
idem_decision_none(Oid trigger, ItemPointer tid, int depth)
{
	Decision   *of;

	if (decisions == NULL || decisions->members == 0)
		return;
	of = decision_lookup(decisions, decision_key(trigger, tid));
	if (of == NULL)
		return;
	decision_clear(of, depth);
	if (of->kept == NULL)
		decision_delete(decisions, of->key);
}

/*
 * Keeps a copy.
 */
void
idem_decision_keep(Oid trigger, ItemPointer tid, CommandId command, int depth,
				   const IdemDecision *decision)
{
	MemoryContext caller = MemoryContextSwitchTo(TopTransactionContext);
	int			nestlevel = GetCurrentTransactionNestLevel();
	DecisionKey key = decision_key(trigger, tid);
	Decision   *of;
	Kept	   *kept = palloc0(sizeof(Kept));
	bool		found;

	idem_decision_hold(decision->machine);
	kept->command = command;
	kept->depth = depth;
	/* what is replicated is written by the command that is the next one then */
	if (depth == 1 && IsLogicalWorker())
		kept->command = InvalidCommandId;
	kept->decision = *decision;
	if (decisions == NULL)
		decisions = decision_create(TopTransactionContext, 64, NULL);
	else if (decisions->members == 0)
		ninner = 0;
	of = decision_insert(decisions, key, &found);
	if (!found)
		of->kept = NULL;
	decision_clear(of, depth);
	kept->outer = of->kept;
	of->kept = kept;
	if (nestlevel > 1)
		decision_note_inner(key, command, nestlevel);
	MemoryContextSwitchTo(caller);
}

/*
 * Takes one out of those of its version; NULL if there is none.
 */
static Kept *
decision_unlink(DecisionKey key, CommandId command)
{
	Decision   *of = decision_lookup(decisions, key);
	Kept	  **link;
	Kept	   *kept;

	if (of == NULL)
		return NULL;
	link = &of->kept;
	while (*link != NULL && (*link)->command != command &&
		   (*link)->command != InvalidCommandId)
		link = &(*link)->outer;
	kept = *link;
	if (kept != NULL)
		*link = kept->outer;
	if (of->kept == NULL)
		decision_delete(decisions, key);
	return kept;
}

/*
 * Takes it out.  False if there is none.
 */
bool
idem_decision_take(Oid trigger, ItemPointer tid, CommandId command,
				   IdemDecision *decision)
{
	Kept	   *kept;

	if (decisions == NULL)
		return false;
	kept = decision_unlink(decision_key(trigger, tid), command);
	if (kept == NULL)
		return false;
	*decision = kept->decision;
	pfree(kept);
	return true;
}

static void
decision_transaction_ends(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT ||
		event == XACT_EVENT_PREPARE || event == XACT_EVENT_PARALLEL_COMMIT ||
		event == XACT_EVENT_PARALLEL_ABORT)
	{
		/* the memory goes with the transaction */
		decisions = NULL;
		inner = NULL;
		ninner = 0;
		inner_room = 0;
		machines = NULL;
		nmachines = 0;
		machines_room = 0;
	}
}

/*
 * Decisions of a subtransaction that is undone go; those of one that is released
 * are the outer one's.
 */
static void
decision_subtransaction_ends(SubXactEvent event, SubTransactionId mine,
							 SubTransactionId parent, void *arg)
{
	int			level = GetCurrentTransactionNestLevel();
	int			first = ninner;

	while (first > 0 && inner[first - 1].nestlevel >= level)
		first--;
	if (event == SUBXACT_EVENT_COMMIT_SUB)
	{
		for (int i = first; i < ninner; i++)
			inner[i].nestlevel = level - 1;
	}
	else if (event == SUBXACT_EVENT_ABORT_SUB)
	{
		for (int i = first; i < ninner; i++)
		{
			Kept	   *kept = decision_unlink(inner[i].key, inner[i].command);

			if (kept != NULL)
				pfree(kept);
		}
		ninner = first;
	}
}

/*
 * Registers the callbacks; called once, when the library is loaded.
 */
void
idem_decision_init(void)
{
	RegisterXactCallback(decision_transaction_ends, NULL);
	RegisterSubXactCallback(decision_subtransaction_ends, NULL);
}
