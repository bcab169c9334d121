/*
 * guard_proof.c
 *	  Proves rows that a trigger behind the guard may have changed.
 *
 * Where another's BEFORE UPDATE trigger sorts after the guard, the row may not
 * be what was decided on.  Row triggers after the update would cost every table
 * a second fetch of every row, so on plain tables the guard notes the old row's
 * position instead, and the statement trigger follows it to the row that was
 * written: old row versions of an open transaction are not removed.  If that
 * trigger does not fire (the statement named a parent that the table was made
 * to inherit from later), the proof is at the end of the transaction, as the role
 * that wrote; in a security-restricted context, if that is not who commits, as the
 * guards' functions could become him otherwise.  A rewrite of the table in between
 * leaves nothing to follow.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/relation.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "catalog.h"
#include "guard_call.h"

/* a row whose final image is still to be proven */
typedef struct ProofNote
{
	Oid			relid;
	char		tag[NAMEDATALEN];
	int			depth;
	int			nestlevel;		/* of subtransactions */
	Oid			writer;			/* role */
	int			security;		/* the context that it wrote in */
	const char *path;			/* and its search_path */
	Oid			filenode;
	ItemPointerData tid;		/* of the old row */
	IdemDecision decision;
} ProofNote;

/* in TopTransactionContext */
static ProofNote *notes = NULL;
static int	nnotes = 0;
static int	notes_room = 0;
static const char *last_path = NULL;

/*
 * Whether any row is still to be proven.
 */
bool
idem_guard_proof_is_due(void)
{
	return nnotes > 0;
}

/*
 * Notes a row whose final image is to be proven.
 */
void
idem_guard_proof_note(IdemGuardCall *call, Relation rel, ItemPointer tid,
					  const IdemDecision *decision)
{
	ProofNote  *note;

	if (nnotes == notes_room)
	{
		int			room = Max(64, notes_room * 2);

		if (notes == NULL)
			notes = MemoryContextAllocHuge(TopTransactionContext,
										   room * sizeof(ProofNote));
		else
			notes = repalloc_huge(notes, room * sizeof(ProofNote));
		notes_room = room;
	}
	note = &notes[nnotes];
	memset(note, 0, sizeof(ProofNote));
	note->relid = call->judge->relid;
	strlcpy(note->tag, call->judge->binding->tag, NAMEDATALEN);
	note->depth = call->depth;
	note->nestlevel = GetCurrentTransactionNestLevel();
	GetUserIdAndSecContext(&note->writer, &note->security);
	if (last_path == NULL || strcmp(last_path, namespace_search_path) != 0)
		last_path = MemoryContextStrdup(TopTransactionContext,
										namespace_search_path);
	note->path = last_path;
	note->filenode = rel->rd_rel->relfilenode;
	note->tid = *tid;
	idem_decision_hold(decision->machine);
	note->decision = *decision;
	nnotes++;
}

/*
 * Follows an old row to the one that was written in its place, and judges it.
 */
static void
proof_of_note(Relation rel, IdemGuardCall *call, ProofNote *note)
{
	TupleTableSlot *old_slot = table_slot_create(rel, NULL);
	TupleTableSlot *new_slot = table_slot_create(rel, NULL);
	ItemPointerData tid = note->tid;

	if (table_tuple_fetch_row_version(rel, &tid, SnapshotAny, old_slot))
	{
		bool		free_it;
		HeapTuple	old_tuple = ExecFetchSlotHeapTuple(old_slot, false,
													   &free_it);
		HeapTupleHeader header = old_tuple->t_data;
		ItemPointerData next = header->t_ctid;

		if (!(header->t_infomask & HEAP_XMAX_INVALID) &&
			!HEAP_XMAX_IS_LOCKED_ONLY(header->t_infomask) &&
			!HeapTupleHeaderIndicatesMovedPartitions(header) &&
			!ItemPointerEquals(&next, &tid) &&
			TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetUpdateXid(header)) &&
			table_tuple_fetch_row_version(rel, &next, SnapshotAny, new_slot))
		{
			IdemDecision decision;
			const IdemIntent *intent;

			(void) idem_guard_prove(call, &tid, &note->decision, old_slot,
									new_slot, &decision, &intent);
		}
	}
	ExecDropSingleTupleTableSlot(old_slot);
	ExecDropSingleTupleTableSlot(new_slot);
}

/*
 * After a statement: proves the rows of the table that were noted in it.
 */
void
idem_guard_proof_of_statement(IdemGuardCall *call, Relation rel)
{
	const char *tag = call->judge->binding->tag;
	Oid			relid = call->judge->relid;
	int			n = nnotes;
	int			first = n;
	int			kept;

	/* behind those of the statements that it is part of */
	while (first > 0 && notes[first - 1].depth >= call->depth)
		first--;
	for (int i = first; i < n; i++)
	{
		if (notes[i].relid == relid && notes[i].depth == call->depth &&
			strcmp(notes[i].tag, tag) == 0)
		{
			/* a guard's function may move them */
			ProofNote	note = notes[i];

			proof_of_note(rel, call, &note);
		}
	}
	/* a guard's function may have left notes of its own behind these */
	kept = first;
	for (int i = first; i < nnotes; i++)
	{
		if (i < n && notes[i].relid == relid && notes[i].depth == call->depth &&
			strcmp(notes[i].tag, tag) == 0)
			continue;
		notes[kept++] = notes[i];
	}
	nnotes = kept;
}

/*
 * Acts as who wrote the row, and finds names as he did.
 */
static void
proof_become(const ProofNote *note, IdemIdentity *saved)
{
	Oid			user;
	int			security;

	GetUserIdAndSecContext(&user, &security);
	idem_catalog_become_under(note->writer, note->path, saved);
	if (user == note->writer && security == note->security)
		SetUserIdAndSecContext(user, security);
}

/*
 * The first note of a subtransaction: later ones are never of an outer one.
 */
static int
proof_first(int nestlevel)
{
	int			first = nnotes;

	while (first > 0 && notes[first - 1].nestlevel >= nestlevel)
		first--;
	return first;
}

/*
 * At the end of the transaction, or of a subtransaction that is not to leave it to
 * that: proves what no statement trigger has.
 */
void
idem_guard_proof_of_rest(int nestlevel)
{
	int			first = proof_first(nestlevel);
	MemoryContext context;
	MemoryContext former;

	if (first == nnotes)
		return;
	context = AllocSetContextCreate(CurrentMemoryContext, "idem proof",
									ALLOCSET_SMALL_SIZES);
	former = MemoryContextSwitchTo(context);
	PushActiveSnapshot(GetTransactionSnapshot());
	for (int i = first; i < nnotes; i++)
	{
		Relation	rel = try_relation_open(notes[i].relid, AccessShareLock);
		IdemTable  *table;

		if (rel == NULL)
			continue;
		MemoryContextReset(context);
		table = idem_table_get(rel, context);
		for (int j = 0; j < table->nbindings; j++)
		{
			IdemGuardCall call;
			ProofNote	note;
			IdemIdentity saved;

			if (strcmp(table->bindings[j].tag, notes[i].tag) != 0)
				continue;
			memset(&call, 0, sizeof(call));
			call.judge = idem_judge_begin(rel, table, &table->bindings[j],
										  idem_machine_get(table->bindings[j].machine,
														   false, context),
										  context);
			call.fired_at = RelationGetRelid(rel);
			note = notes[i];
			/* TRUNCATE or a rewrite has replaced what stood there */
			if (note.filenode != rel->rd_rel->relfilenode)
				continue;
			proof_become(&note, &saved);
			proof_of_note(rel, &call, &note);
			idem_catalog_restore(&saved);
		}
		relation_close(rel, NoLock);
	}
	PopActiveSnapshot();
	nnotes = first;
	MemoryContextSwitchTo(former);
	MemoryContextDelete(context);
}

static void
proof_transaction_ends(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
		case XACT_EVENT_PARALLEL_PRE_COMMIT:
		case XACT_EVENT_PRE_PREPARE:
			idem_guard_proof_of_rest(0);
			break;
		default:
			/* the memory goes with the transaction */
			notes = NULL;
			nnotes = 0;
			notes_room = 0;
			last_path = NULL;
			break;
	}
}

static void
proof_subtransaction_ends(SubXactEvent event, SubTransactionId mine,
						  SubTransactionId parent, void *arg)
{
	int			level = GetCurrentTransactionNestLevel();
	int			first = proof_first(level);

	if (event == SUBXACT_EVENT_COMMIT_SUB)
	{
		for (int i = first; i < nnotes; i++)
			notes[i].nestlevel = level - 1;
	}
	else if (event == SUBXACT_EVENT_ABORT_SUB)
		nnotes = first;
}

/*
 * Registers the callbacks; called once, when the library is loaded.
 */
void
idem_guard_proof_init(void)
{
	RegisterXactCallback(proof_transaction_ends, NULL);
	RegisterSubXactCallback(proof_subtransaction_ends, NULL);
}
