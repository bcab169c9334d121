/*
 * change_direct.c
 *	  The change of a row by its version, without SQL.
 *
 * A row that is named by its primary key and changed by its version needs no
 * plan: one probe of the primary key, a look at the version, one heap update,
 * and index entries where it is no HOT update.  That is half the work of the
 * statement that change.c would run.  Nothing is taken over from the executor
 * that it does for itself here: privileges, constraints and index entries are
 * judged and made by its own functions.
 *
 * It serves plain tables, at READ COMMITTED, on which nothing stands that only
 * a statement would honour: no partition, row security or rule, no generated
 * column, and no trigger on UPDATE but the version's own, whose work is done
 * here; a foreign key's only where the columns that it is about stay as they
 * are.  Everything else is left undecided, and so is what ends in an error of
 * the version's trigger, or comes again and again: then the statement answers.
 * It may always be tried first, because what it leaves undecided it has not
 * touched.
 *
 * A row that another transaction is changing is waited for by the heap update
 * itself.  When that one has committed, the row is read anew with a new
 * snapshot, and judged by what it is then: the same as the statement does by
 * looking at the newest version, without locking it first.  Only where CHECK
 * constraints would judge before the wait, a row that somebody holds is locked
 * before they do, so that who comes late is told stale, not that his values do
 * not fit a row that is gone.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/relscan.h"
#include "access/skey.h"
#include "access/sysattr.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_am.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_trigger.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "utils/acl.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "change.h"
#include "compat.h"
#include "direct.h"
#include "guc.h"

/* how often a row may change under our hands before the statement has its go */
#define MAX_ROUNDS	3

/* what the executor wants for one statement on one table */
typedef struct DirectWrite
{
	EState	   *estate;
	ResultRelInfo *rri;
} DirectWrite;

static int
direct_bit(AttrNumber attnum)
{
	return attnum - FirstLowInvalidHeapAttributeNumber;
}

/*
 * Whether the table's triggers let an update pass that is not by SQL: none but
 * the version's own, and those of foreign keys (*foreign_keys).
 */
static bool
direct_triggers_are_ours(const IdemChange *change, bool *foreign_keys)
{
	TriggerDesc *desc = change->rel->trigdesc;

	*foreign_keys = false;
	if (desc == NULL)
		return true;
	for (int i = 0; i < desc->numtriggers; i++)
	{
		const Trigger *trigger = &desc->triggers[i];

		if (!TRIGGER_FOR_UPDATE(trigger->tgtype) ||
			trigger->tgoid == change->column.trigger)
			continue;
		if (RI_FKey_trigger_type(trigger->tgfoid) == RI_TRIGGER_NONE)
			return false;
		*foreign_keys = true;
	}
	return true;
}

/*
 * Whether the table is one that is written here; known until it changes.
 */
static bool
direct_table_suits(const IdemChange *change)
{
	Relation	rel = change->rel;
	TupleDesc	desc = RelationGetDescr(rel);
	IdemTarget *target = change->target;

	if (target->direct != IDEM_TARGET_UNKNOWN)
		return target->direct != IDEM_TARGET_BY_SQL;

	target->direct = IDEM_TARGET_BY_SQL;
	if (rel->rd_rel->relkind != RELKIND_RELATION ||
		rel->rd_rel->relam != HEAP_TABLE_AM_OID ||
		rel->rd_rel->relpersistence == RELPERSISTENCE_TEMP ||
		rel->rd_rel->relispartition || rel->rd_rel->relrowsecurity ||
		rel->rd_rules != NULL ||
		change->column.type != change->column.base ||
		!direct_triggers_are_ours(change, &target->foreign_keys) ||
		idem_direct_has_foreign_planner(RelationGetRelid(rel)))
		return false;
	for (int i = 0; i < desc->natts; i++)
	{
		if (TupleDescAttr(desc, i)->attgenerated != '\0')
			return false;
	}
	target->direct = IDEM_TARGET_DIRECT;
	return true;
}

/*
 * Whether this change of it is one that is made here; "columns" are those that
 * change, as the executor counts them.
 */
static bool
direct_change_suits(const IdemChange *change, const Bitmapset *columns)
{
	Relation	rel = change->rel;

	if (!IDEM_MAY_USE_SCHEMA(RelationGetNamespace(rel)) ||
		change->version >= idem_rowversion_max(change->column.base) ||
		change->version < -idem_rowversion_max(change->column.base) - 1)
		return false;
	for (int i = 0; i < change->ncolumns; i++)
	{
		Form_pg_attribute att = TupleDescAttr(RelationGetDescr(rel),
											  change->columns[i].attnum - 1);

		if (att->attidentity != '\0' ||
			(att->attnotnull && change->columns[i].isnull))
			return false;
	}
	if (change->target->foreign_keys)
	{
		Bitmapset  *key = RelationGetIndexAttrBitmap(rel,
													 INDEX_ATTR_BITMAP_KEY);
		ListCell   *lc;

		if (bms_overlap(key, columns))
			return false;
		foreach(lc, RelationGetFKeyList(rel))
		{
			ForeignKeyCacheInfo *fk = lfirst_node(ForeignKeyCacheInfo, lc);

			for (int i = 0; i < fk->nkeys; i++)
			{
				if (bms_is_member(direct_bit(fk->conkey[i]), columns))
					return false;
			}
		}
	}
	return true;
}

/*
 * Sets the executor up, which checks the caller's privileges.
 */
static void
direct_begin(const IdemChange *change, Bitmapset *columns, DirectWrite *write)
{
	Bitmapset  *read = bms_make_singleton(direct_bit(change->column.column));

	for (int i = 0; i < change->target->nkeys; i++)
		read = bms_add_member(read, direct_bit(change->target->attnums[i]));
	write->estate = CreateExecutorState();
	idem_compat_init_result_table(write->estate, change->rel,
								  ACL_SELECT | ACL_UPDATE, read, columns);
	write->estate->es_output_cid = GetCurrentCommandId(true);
	write->rri = makeNode(ResultRelInfo);
	InitResultRelInfo(write->rri, change->rel, 1, NULL, 0);
	CheckCmdReplicaIdentity(change->rel, CMD_UPDATE);
}

/*
 * The row that the snapshot shows, in the slot.  False if there is none.
 */
static bool
direct_probe(const IdemChange *change, Relation index, Snapshot snapshot,
			 TupleTableSlot *slot)
{
	ScanKeyData keys[IDEM_TARGET_MAXKEYS];
	IndexScanDesc scan;
	bool		found;

	for (int i = 0; i < change->target->nkeys; i++)
	{
		Oid			type = index->rd_opcintype[i];
		Oid			operator = get_opfamily_member(index->rd_opfamily[i], type,
												   type, BTEqualStrategyNumber);

		ScanKeyEntryInitialize(&keys[i], 0, i + 1, BTEqualStrategyNumber,
							   InvalidOid, index->rd_indcollation[i],
							   get_opcode(operator), change->key[i]);
	}
	scan = IDEM_INDEX_BEGINSCAN(change->rel, index, snapshot,
								change->target->nkeys);
	index_rescan(scan, keys, change->target->nkeys, NULL, 0);
	found = index_getnext_slot(scan, ForwardScanDirection, slot);
	index_endscan(scan);
	return found;
}

/*
 * The row as jsonb, as the statement's to_jsonb(t.*) makes it.
 */
static Datum
direct_show(Relation rel, TupleTableSlot *slot)
{
	LOCAL_FCINFO(fcinfo, 1);
	FmgrInfo	flinfo;

	fmgr_info(F_TO_JSONB, &flinfo);
	fmgr_info_set_expr((Node *) makeFuncExpr(F_TO_JSONB, JSONBOID,
											 list_make1(makeNullConst(rel->rd_rel->reltype, -1, InvalidOid)),
											 InvalidOid, InvalidOid,
											 COERCE_EXPLICIT_CALL), &flinfo);
	InitFunctionCallInfoData(*fcinfo, &flinfo, 1, InvalidOid, NULL, NULL);
	fcinfo->args[0].value = ExecFetchSlotHeapTupleDatum(slot);
	fcinfo->args[0].isnull = false;
	return FunctionCallInvoke(fcinfo);
}

/*
 * The row as it becomes, in "new_slot".
 */
static void
direct_form(const IdemChange *change, TupleTableSlot *slot,
			TupleTableSlot *new_slot)
{
	TupleDesc	desc = RelationGetDescr(change->rel);
	int			natts = desc->natts;
	int			version = change->column.column - 1;

	slot_getallattrs(slot);
	ExecClearTuple(new_slot);
	memcpy(new_slot->tts_values, slot->tts_values, natts * sizeof(Datum));
	memcpy(new_slot->tts_isnull, slot->tts_isnull, natts * sizeof(bool));
	for (int i = 0; i < change->ncolumns; i++)
	{
		new_slot->tts_values[change->columns[i].attnum - 1] =
			change->columns[i].value;
		new_slot->tts_isnull[change->columns[i].attnum - 1] =
			change->columns[i].isnull;
	}
	/* nor is what was dropped carried along */
	for (int i = 0; i < natts; i++)
	{
		if (TupleDescAttr(desc, i)->attisdropped)
			new_slot->tts_isnull[i] = true;
	}
	new_slot->tts_values[version] =
		idem_rowversion_to_datum(change->version + 1, change->column.base);
	ExecStoreVirtualTuple(new_slot);
	new_slot->tts_tableOid = RelationGetRelid(change->rel);
}

/*
 * Waits for who holds the row in "slot".  False if it is not the newest any
 * more.
 */
static bool
direct_lock(const IdemChange *change, DirectWrite *write, Snapshot snapshot,
			TupleTableSlot *slot)
{
	HeapTuple	tuple = ExecFetchSlotHeapTuple(slot, false, NULL);
	ItemPointerData tid = slot->tts_tid;
	TM_FailureData failure;

	if ((tuple->t_data->t_infomask & HEAP_XMAX_INVALID) != 0)
		return true;
	return table_tuple_lock(change->rel, &tid, snapshot, slot,
							write->estate->es_output_cid,
							ExecUpdateLockMode(write->estate, write->rri),
							LockWaitBlock, 0, &failure) == TM_Ok;
}

/*
 * A CHECK constraint's function has written the very row: in the executor's
 * words.
 */
static void
direct_refuse_self_modified(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_TRIGGERED_DATA_CHANGE_VIOLATION),
			 errmsg("tuple to be updated was already modified by an operation triggered by the current command"),
			 errhint("Consider using an AFTER trigger instead of a BEFORE trigger to propagate changes to other rows.")));
}

/*
 * Replaces the row in "slot", as the snapshot shows it.  False if it is not the
 * newest any more.
 */
static bool
direct_replace(const IdemChange *change, DirectWrite *write,
			   Snapshot snapshot, TupleTableSlot *slot,
			   TupleTableSlot *new_slot)
{
	Relation	rel = change->rel;
	IdemIndexesToUpdate update_indexes;
	LockTupleMode lockmode;
	TM_FailureData failure;
	TM_Result	result;

	write->estate->es_snapshot = snapshot;
	if (rel->rd_att->constr != NULL && rel->rd_att->constr->num_check > 0 &&
		!direct_lock(change, write, snapshot, slot))
		return false;
	direct_form(change, slot, new_slot);
	if (rel->rd_att->constr != NULL)
		ExecConstraints(write->rri, new_slot, write->estate);
	result = table_tuple_update(rel, &slot->tts_tid, new_slot,
								write->estate->es_output_cid, snapshot,
								InvalidSnapshot, true, &failure, &lockmode,
								&update_indexes);
	if (result == TM_SelfModified)
		direct_refuse_self_modified();
	if (result != TM_Ok)
		return false;
	if (IDEM_INDEXES_NEED_ANY(update_indexes))
	{
		ExecOpenIndices(write->rri, false);
		list_free(IDEM_UPDATE_INDEX_TUPLES(write->rri, new_slot, write->estate,
										   update_indexes));
		ExecCloseIndices(write->rri);
	}
	return true;
}

/*
 * One look at the row, and what follows from it.
 */
static IdemChangeOutcome
direct_round(const IdemChange *change, DirectWrite *write, Relation index,
			 TupleTableSlot *slot, TupleTableSlot *new_slot,
			 IdemChangeVerdict *verdict)
{
	Snapshot	snapshot = GetActiveSnapshot();
	Datum		version;
	bool		isnull;

	memset(verdict, 0, sizeof(IdemChangeVerdict));
	if (!direct_probe(change, index, snapshot, slot))
		return IDEM_CHANGE_MISSING;

	version = slot_getattr(slot, change->column.column, &isnull);
	verdict->has_version = !isnull;
	verdict->version = isnull ? 0 :
		idem_rowversion_from_datum(version, change->column.base);
	if (isnull || verdict->version != change->version)
	{
		/* who may see some columns only is shown those by the statement */
		if (pg_class_aclcheck(RelationGetRelid(change->rel), GetUserId(),
							  ACL_SELECT) != ACLCHECK_OK)
			return IDEM_CHANGE_UNDECIDED;
		verdict->has_current = true;
		verdict->current = direct_show(change->rel, slot);
		return IDEM_CHANGE_STALE;
	}

	/* a foreign key is always checked for a row of this very transaction */
	if (change->target->foreign_keys &&
		TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetXmin(ExecFetchSlotHeapTuple(slot, false, NULL)->t_data)))
		return IDEM_CHANGE_UNDECIDED;
	if (!direct_replace(change, write, snapshot, slot, new_slot))
		return IDEM_CHANGE_UNDECIDED;
	if (idem_rowversion_watch != NULL)
		idem_rowversion_tell(change->rel, slot, verdict->version);
	verdict->version++;
	return IDEM_CHANGE_DONE;
}

/*
 * Makes the change, or finds why it is not to be.  UNDECIDED: nothing was done.
 */
void
idem_change_directly(IdemChange *change, IdemChangeVerdict *verdict)
{
	Bitmapset  *columns = bms_make_singleton(direct_bit(change->column.column));
	DirectWrite write;
	Relation	index;
	TupleTableSlot *slot;
	TupleTableSlot *new_slot;

	verdict->outcome = IDEM_CHANGE_UNDECIDED;
	for (int i = 0; i < change->ncolumns; i++)
		columns = bms_add_member(columns,
								 direct_bit(change->columns[i].attnum));
	if (idem_guc_access == IDEM_ACCESS_SQL || change->deletes ||
		IsolationUsesXactSnapshot() || !direct_table_suits(change) ||
		!direct_change_suits(change, columns))
		return;

	/* what this command has done so far is seen, as a statement sees it */
	CommandCounterIncrement();
	direct_begin(change, columns, &write);
	if (!change->rel->rd_indexvalid)
		list_free(RelationGetIndexList(change->rel));
	index = index_open(change->rel->rd_pkindex, RowExclusiveLock);
	slot = table_slot_create(change->rel, NULL);
	new_slot = MakeSingleTupleTableSlot(RelationGetDescr(change->rel),
										&TTSOpsVirtual);
	for (int round = 0; round < MAX_ROUNDS &&
		 verdict->outcome == IDEM_CHANGE_UNDECIDED; round++)
	{
		CHECK_FOR_INTERRUPTS();
		PushActiveSnapshot(GetTransactionSnapshot());
		verdict->outcome = direct_round(change, &write, index, slot, new_slot,
										verdict);
		PopActiveSnapshot();
	}
	ExecDropSingleTupleTableSlot(new_slot);
	ExecDropSingleTupleTableSlot(slot);
	index_close(index, NoLock);
	FreeExecutorState(write.estate);
}
