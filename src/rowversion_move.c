/*
 * rowversion_move.c
 *	  Versions of rows that move to another partition.
 *
 * A BEFORE INSERT trigger could take back what was counted, and a stale writer
 * passed.  So where a partitioned table has such triggers, attaching makes a trigger
 * of ours behind them, which gives the row the version that the update gave it
 * (move.c).  Tables without them do not pay for one.  If they come later, or behind
 * ours, moves are refused until the version is attached anew.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/partition.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_trigger.h"
#include "miscadmin.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "binding.h"
#include "errors.h"
#include "move.h"
#include "rowversion.h"

/*
 * For a statement's first row in a partition: NULL if none of its rows can leave
 * it, since nobody writes what says that they are in it.
 */
IdemMoveFrom *
idem_rowversion_leave_begin(TriggerData *td, const IdemVersion *version)
{
	if (version->partition == NULL ||
		(!version->others &&
		 !bms_overlap(version->partition, td->tg_updatedcols)))
		return NULL;
	return idem_move_from(td, version->partition, version->column);
}

static void
move_refuse(Oid relid, const char *trigger, const IdemVersion *version)
{
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_MISUSE),
			 errmsg("trigger \"%s\" of table \"%s\" fires after the version was checked",
					trigger, get_rel_name(relid)),
			 version->idle[0] != '\0' ?
			 errdetail("Trigger \"%s\", which sees to rows that move to another partition, is not enabled as trigger \"%s\" is.",
					   version->idle, version->trigger_name) :
			 errdetail("A row that moves to another partition is inserted there, and a BEFORE INSERT trigger could change the version."),
			 version->idle[0] != '\0' ?
			 errhint("Enable both alike, in each partition too.") :
			 errhint("Call idem_detach_version() and idem_attach_version() in one transaction."),
			 errhidestmt(true),
			 idem_errcolumn(relid, NULL)));
}

/* for move_look() */
typedef struct VersionMoveLook
{
	const IdemVersion *version;
	Oid			schema;			/* of its function */
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
		move_refuse(form->tgrelid, NameStr(form->tgname), look->version);
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
	static bool asked_as_replica = false;
	uint64		now = idem_rowversion_changes();
	Oid			root = RelationGetRelid(rel);
	bool		replica = SessionReplicationRole == SESSION_REPLICATION_ROLE_REPLICA;
	VersionMoveLook look = {version, get_func_namespace(version->function), replica};
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
	if (root == asked && now == asked_at && replica == asked_as_replica)
		return;

	idem_trigger_each(find_all_inheritors(root, NoLock, NULL), move_look, &look);
	asked = root;
	asked_at = now;
	asked_as_replica = replica;
}

/*
 * Before the update of a row that leaves: what version it is to have.
 */
void
idem_rowversion_leave(TriggerData *td, IdemMoveFrom *from,
					  const IdemVersion *version, MemoryContext query,
					  int64 value)
{
	if (!version->arrives)
		move_refuse_unguarded(td->tg_relation, version);
	else
		idem_move_keep(from, td, query, IDEM_VERSION_ARRIVES, value);
}

/*
 * Before the insert of a row: gives one that moves here its version.
 */
HeapTuple
idem_rowversion_arrive(TriggerData *td, MemoryContext query)
{
	Relation	rel = td->tg_relation;
	IdemVersion version;
	int			column;
	int64		kept;
	Datum		value;
	bool		isnull;

	if (!idem_move_arrives(td, query, IDEM_VERSION_ARRIVES, &kept))
		return td->tg_trigtuple;
	if (!idem_rowversion_find(rel, &version))
		idem_rowversion_refuse(rel, td->tg_trigger->tgname);
	if (version.insert_later[0] != '\0')
		move_refuse(RelationGetRelid(rel), version.insert_later, &version);
	column = version.column;
	value = heap_getattr(td->tg_trigtuple, column, RelationGetDescr(rel), &isnull);
	if (!isnull && idem_rowversion_from_datum(value, version.base) == kept)
		return td->tg_trigtuple;
	value = idem_rowversion_to_datum(kept, version.base);
	isnull = false;
	return heap_modify_tuple_by_cols(td->tg_trigtuple, RelationGetDescr(rel), 1,
									 &column, &value, &isnull);
}
