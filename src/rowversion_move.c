/*
 * rowversion_move.c
 *	  Versions of rows that move to another partition.
 *
 * To triggers such a move is an update of the row where it was and an insert
 * where it goes, whose BEFORE INSERT triggers see a new row: one that begins
 * versions with 1 would take back what was counted, and a stale writer passed.
 * So where a partitioned table has such triggers, attaching makes a trigger of
 * ours behind them, which gives the row the version that the update gave it.
 * Tables without them do not pay for one.  If they come later, or behind ours,
 * moves are refused until the version is attached anew.
 *
 * Both triggers are called for one row, one after the other and by one query: so
 * a row that leaves is kept by the memory in which that has its functions.  It may
 * not arrive, since others suppress it; the next row that the query inserts has
 * another key then.  Where the table has none beside the columns that partition,
 * it is taken for the one that left: nothing else is known of it, as triggers may
 * have changed the rest.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/partition.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_trigger.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "optimizer/optimizer.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/partcache.h"
#include "utils/rel.h"

#include "binding.h"
#include "errors.h"
#include "guard_call.h"
#include "rowversion.h"

/* a query that moves rows; in its memory */
typedef struct VersionMove
{
	MemoryContext query;
	bool		filled;			/* a row is on its way: */
	Oid			relid;			/* from there */
	Bitmapset  *key;			/* it is known by these columns */
	uint64		key_hash;
	int64		value;			/* its version */
	struct VersionMove *outer;
	MemoryContextCallback callback;
} VersionMove;

/* what a statement knows of a partition */
struct IdemVersionLeave
{
	Bitmapset  *columns;		/* by which a row is in it */
	ExprState  *constraint;
	ExprContext *econtext;
	Bitmapset  *key;
	VersionMove *move;
};

static VersionMove *moves = NULL;	/* innermost first */

static void
move_release(void *arg)
{
	VersionMove **link = &moves;

	while (*link != (VersionMove *) arg)
		link = &(*link)->outer;
	*link = (*link)->outer;
}

static VersionMove *
move_find(MemoryContext query)
{
	VersionMove *move = moves;

	while (move != NULL && move->query != query)
		move = move->outer;
	return move;
}

static VersionMove *
move_get(MemoryContext query)
{
	VersionMove *move = move_find(query);

	if (move != NULL)
		return move;
	move = MemoryContextAllocZero(query, sizeof(VersionMove));
	move->query = query;
	move->callback.func = move_release;
	move->callback.arg = move;
	MemoryContextRegisterResetCallback(query, &move->callback);
	move->outer = moves;
	moves = move;
	return move;
}

/*
 * For a statement's first row in a partition: NULL if none of its rows can leave
 * it, since nobody writes what says that they are in it.
 */
IdemVersionLeave *
idem_rowversion_leave_begin(TriggerData *td, const IdemVersion *version)
{
	Relation	rel = td->tg_relation;
	IdemVersionLeave *leave;
	bool		whole;

	if (version->partition == NULL ||
		(!version->others &&
		 !bms_overlap(version->partition, td->tg_updatedcols)))
		return NULL;
	leave = palloc0(sizeof(IdemVersionLeave));
	leave->columns = version->partition;
	leave->constraint =
		ExecInitCheck((List *) expression_planner((Expr *) RelationGetPartitionQual(rel)),
					  NULL);
	leave->econtext = CreateStandaloneExprContext();
	leave->key = idem_guard_key_columns(rel, &whole);
	if (whole)
		leave->key = NULL;
	return leave;
}

/*
 * Whether the row is about to leave the partition.
 */
bool
idem_rowversion_leaves(TriggerData *td, IdemVersionLeave *leave)
{
	bool		leaves;

	if (!idem_guard_differs(leave->columns, td))
		return false;
	leave->econtext->ecxt_scantuple = td->tg_newslot;
	leaves = !ExecCheck(leave->constraint, leave->econtext);
	ResetExprContext(leave->econtext);
	return leaves;
}

static void
move_refuse(Oid relid, const char *trigger)
{
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_MISUSE),
			 errmsg("trigger \"%s\" of table \"%s\" fires after the version was checked",
					trigger, get_rel_name(relid)),
			 errdetail("A row that moves to another partition is inserted there, and a BEFORE INSERT trigger could change the version."),
			 errhint("Call idem_detach_version() and idem_attach_version() in one transaction."),
			 errhidestmt(true),
			 idem_errcolumn(relid, NULL)));
}

/* for move_look() */
typedef struct VersionMoveLook
{
	Oid			schema;			/* of the version's function */
	bool		replica;
} VersionMoveLook;

/*
 * An IdemTriggerLook: refuses the move of a row because of this trigger.
 */
static void
move_look(Relation catalog, HeapTuple tuple, void *arg)
{
	const VersionMoveLook *look = arg;
	Form_pg_trigger form = (Form_pg_trigger) GETSTRUCT(tuple);

	if (TRIGGER_FOR_BEFORE(form->tgtype) && TRIGGER_FOR_ROW(form->tgtype) &&
		TRIGGER_FOR_INSERT(form->tgtype) &&
		form->tgenabled != TRIGGER_DISABLED &&
		(form->tgenabled != TRIGGER_FIRES_ON_REPLICA || look->replica) &&
		!idem_rowversion_is_harmless(form->tgfoid, look->schema))
		move_refuse(form->tgrelid, NameStr(form->tgname));
}

/*
 * Refuses the move of a row where a trigger before inserts is in any of the
 * partitions, and none of ours behind it.
 */
static void
move_refuse_unguarded(Relation rel, const IdemVersion *version)
{
	static Oid	asked = InvalidOid;
	static uint64 asked_at = 0;
	uint64		now = idem_rowversion_changes();
	Oid			root = RelationGetRelid(rel);
	bool		replica = SessionReplicationRole == SESSION_REPLICATION_ROLE_REPLICA;
	VersionMoveLook look = {get_func_namespace(version->function), replica};
	ListCell   *lc;

	foreach(lc, get_partition_ancestors(RelationGetRelid(rel)))
	{
		Relation	ancestor = table_open(lfirst_oid(lc), AccessShareLock);
		IdemVersion same;
		bool		found = idem_rowversion_find(ancestor, &same);

		table_close(ancestor, NoLock);
		if (!found)
			break;
		root = lfirst_oid(lc);
	}

	/*
	 * attached to this partition alone: what is elsewhere is no concern of
	 * its
	 */
	if (root == RelationGetRelid(rel))
		return;
	if (root == asked && now == asked_at && !replica)
		return;

	idem_trigger_each(find_all_inheritors(root, NoLock, NULL), move_look, &look);
	if (replica)
		return;
	asked = root;
	asked_at = now;
}

/*
 * Before the update of a row that leaves: what version it is to have.
 */
void
idem_rowversion_leave(TriggerData *td, IdemVersionLeave *leave,
					  const IdemVersion *version, MemoryContext query,
					  int64 value)
{
	Relation	rel = td->tg_relation;
	VersionMove *move;

	if (!version->arrives)
	{
		move_refuse_unguarded(rel, version);
		return;
	}
	move = move_get(query);
	move->filled = true;
	move->relid = RelationGetRelid(rel);
	move->key = leave->key;
	move->key_hash = idem_guard_hash_columns(td->tg_newslot, move->relid, rel,
											 move->key);
	move->value = value;
}

/*
 * Whether the inserted row is the one that is on its way.
 */
static bool
move_is(const VersionMove *move, TriggerData *td)
{
	Relation	source = table_open(move->relid, NoLock);
	uint64		hash = idem_guard_hash_columns(td->tg_trigslot,
											   RelationGetRelid(td->tg_relation),
											   source, move->key);

	table_close(source, NoLock);
	return hash == move->key_hash;
}

/*
 * Before the insert of a row: gives one that moves here its version.
 */
HeapTuple
idem_rowversion_arrive(TriggerData *td, MemoryContext query)
{
	Relation	rel = td->tg_relation;
	VersionMove *move = move_find(query);
	IdemVersion version;
	int			column;
	Datum		value;
	bool		isnull;

	if (move == NULL || !move->filled || !move_is(move, td))
		return td->tg_trigtuple;
	move->filled = false;
	if (!idem_rowversion_find(rel, &version))
		idem_rowversion_refuse(rel, td->tg_trigger->tgname);
	if (version.insert_later[0] != '\0')
		move_refuse(RelationGetRelid(rel), version.insert_later);
	column = version.column;
	value = heap_getattr(td->tg_trigtuple, column, RelationGetDescr(rel), &isnull);
	if (!isnull && idem_rowversion_from_datum(value, version.base) == move->value)
		return td->tg_trigtuple;
	value = idem_rowversion_to_datum(move->value, version.base);
	isnull = false;
	return heap_modify_tuple_by_cols(td->tg_trigtuple, RelationGetDescr(rel), 1,
									 &column, &value, &isnull);
}
