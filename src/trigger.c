/*
 * trigger.c
 *	  Triggers of the extension's on users' tables.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/dependency.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_trigger.h"
#include "commands/extension.h"
#include "commands/trigger.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "binding.h"
#include "compat.h"
#include "errors.h"
#include "rowversion.h"

/*
 * Whether a trigger's function is the extension's, and of that name; NULL is
 * any name.
 */
bool
idem_trigger_is_ours(Oid function, const char *name)
{
	char	   *actual = get_func_name(function);
	Oid			extension;

	if (actual == NULL || strncmp(actual, "idem_", 5) != 0)
		return false;
	if (name != NULL && strcmp(actual, name) != 0)
		return false;
	extension = get_extension_oid("idem", true);
	return OidIsValid(extension) &&
		getExtensionOfObject(ProcedureRelationId, function) == extension;
}

/*
 * Shows each trigger of the tables, by the catalog alone: they need not be locked,
 * nor the caller's.
 */
void
idem_trigger_each(List *relids, IdemTriggerLook look, void *arg)
{
	Relation	catalog = table_open(TriggerRelationId, AccessShareLock);
	ListCell   *lc;

	foreach(lc, relids)
	{
		ScanKeyData key;
		SysScanDesc scan;
		HeapTuple	tuple;

		CHECK_FOR_INTERRUPTS();
		ScanKeyInit(&key, Anum_pg_trigger_tgrelid, BTEqualStrategyNumber,
					F_OIDEQ, ObjectIdGetDatum(lfirst_oid(lc)));
		scan = systable_beginscan(catalog, TriggerRelidNameIndexId, true,
								  NULL, 1, &key);
		while (HeapTupleIsValid(tuple = systable_getnext(scan)))
			look(catalog, tuple, arg);
		systable_endscan(scan);
	}
	table_close(catalog, AccessShareLock);
}

/*
 * The table that a trigger was made for: it may be a partition's, which goes with
 * the one of a table above it.
 */
Oid
idem_trigger_made_for(Oid trigger)
{
	Relation	catalog = table_open(TriggerRelationId, AccessShareLock);
	Oid			relid = InvalidOid;

	while (OidIsValid(trigger))
	{
		ScanKeyData key;
		SysScanDesc scan;
		HeapTuple	tuple;

		ScanKeyInit(&key, Anum_pg_trigger_oid, BTEqualStrategyNumber,
					F_OIDEQ, ObjectIdGetDatum(trigger));
		scan = systable_beginscan(catalog, TriggerOidIndexId, true, NULL, 1,
								  &key);
		tuple = systable_getnext(scan);
		if (!HeapTupleIsValid(tuple))
			elog(ERROR, "could not find tuple for trigger %u", trigger);
		relid = ((Form_pg_trigger) GETSTRUCT(tuple))->tgrelid;
		trigger = ((Form_pg_trigger) GETSTRUCT(tuple))->tgparentid;
		systable_endscan(scan);
	}
	table_close(catalog, AccessShareLock);
	return relid;
}

/*
 * Whether a trigger that is enabled so fires in this session.
 */
bool
idem_trigger_fires_now(char enabled)
{
	if (SessionReplicationRole == SESSION_REPLICATION_ROLE_REPLICA)
		return enabled == TRIGGER_FIRES_ON_REPLICA ||
			enabled == TRIGGER_FIRES_ALWAYS;
	return enabled == TRIGGER_FIRES_ON_ORIGIN ||
		enabled == TRIGGER_FIRES_ALWAYS;
}

/*
 * The column that a trigger's WHEN clause names, or InvalidAttrNumber.
 */
AttrNumber
idem_trigger_column(const char *qual)
{
	AttrNumber	column = InvalidAttrNumber;
	ListCell   *lc;

	if (qual == NULL)
		return InvalidAttrNumber;
	foreach(lc, pull_var_clause(stringToNode(qual), 0))
	{
		Var		   *var = (Var *) lfirst(lc);

		if (column != InvalidAttrNumber && var->varattno != column)
			return InvalidAttrNumber;
		column = var->varattno;
	}
	return column > 0 ? column : InvalidAttrNumber;
}

/*
 * Refuses a column that the extension looks after in another way: two would
 * write or judge what the other one does.
 */
void
idem_trigger_refuse_taken(Relation rel, AttrNumber column)
{
	const char *name = NameStr(TupleDescAttr(RelationGetDescr(rel),
											 column - 1)->attname);
	const char *table = RelationGetRelationName(rel);
	TriggerDesc *triggers = CopyTriggerDesc(rel->trigdesc);
	IdemVersion version;

	for (int i = 0; triggers != NULL && i < triggers->numtriggers; i++)
	{
		const Trigger *trigger = &triggers->triggers[i];

		if (idem_trigger_column(trigger->tgqual) != column)
			continue;
		if (trigger->tgnargs == IDEM_NARGS &&
			idem_trigger_is_ours(trigger->tgfoid, "idem_guard"))
			ereport(ERROR,
					(errcode(ERRCODE_DUPLICATE_OBJECT),
					 errmsg("column \"%s\" of table \"%s\" is moved by machine \"%s\"",
							name, table, trigger->tgargs[IDEM_ARG_MACHINE]),
					 errhint("Detach it first with idem_detach()."),
					 errtablecol(rel, column),
					 errhidestmt(true)));
		if (idem_trigger_is_ours(trigger->tgfoid, "idem_fence_check"))
			ereport(ERROR,
					(errcode(ERRCODE_DUPLICATE_OBJECT),
					 errmsg("column \"%s\" of table \"%s\" is a fence",
							name, table),
					 errtablecol(rel, column),
					 errhidestmt(true)));
	}
	if (idem_rowversion_find(rel, &version) && version.column == column)
		ereport(ERROR,
				(errcode(ERRCODE_DUPLICATE_OBJECT),
				 errmsg("column \"%s\" of table \"%s\" is the version of its row",
						name, table),
				 errtablecol(rel, column),
				 errhidestmt(true)));
}

/*
 * A function of the extension's whose trigger a new partition of this table gets,
 * and which the table's owner may not execute; InvalidOid if there is none.
 */
static Oid
trigger_lacking(Relation rel)
{
	/* each look into a catalog may replace those that the table has */
	TriggerDesc *triggers = CopyTriggerDesc(rel->trigdesc);

	for (int i = 0; triggers != NULL && i < triggers->numtriggers; i++)
	{
		const Trigger *trigger = &triggers->triggers[i];

		if (TRIGGER_FOR_ROW(trigger->tgtype) &&
			idem_trigger_is_ours(trigger->tgfoid, NULL) &&
			!IDEM_ROLE_MAY_EXECUTE(trigger->tgfoid, rel->rd_rel->relowner))
			return trigger->tgfoid;
	}
	return InvalidOid;
}

/*
 * Warns of a partitioned table whose owner may not make partitions of it now:
 * PostgreSQL clones the triggers of rows into each, for which whoever makes it
 * needs EXECUTE on their functions, and names none of them where he lacks it.
 * Partitioned tables below it may have owners of their own.
 */
void
idem_trigger_warn_of_owners(Oid relid)
{
	List	   *told = NIL;
	ListCell   *lc;

	if (get_rel_relkind(relid) != RELKIND_PARTITIONED_TABLE)
		return;
	CommandCounterIncrement();
	/* CREATE TRIGGER left out what was being detached by such a snapshot */
	PushActiveSnapshot(GetTransactionSnapshot());
	foreach(lc, find_all_inheritors(relid, NoLock, NULL))
	{
		Relation	rel;
		Oid			lacking;

		if (get_rel_relkind(lfirst_oid(lc)) != RELKIND_PARTITIONED_TABLE)
			continue;
		rel = table_open(lfirst_oid(lc), NoLock);
		lacking = trigger_lacking(rel);
		if (OidIsValid(lacking) &&
			!list_member_oid(told, rel->rd_rel->relowner))
		{
			char	   *owner = GetUserNameFromId(rel->rd_rel->relowner, false);

			told = lappend_oid(told, rel->rd_rel->relowner);
			ereport(WARNING,
					(errmsg("owner \"%s\" of table \"%s\" cannot make partitions of it",
							owner, RelationGetRelationName(rel)),
					 errdetail("A new partition gets the table's triggers, which takes EXECUTE on function %s.",
							   get_func_name(lacking)),
					 errhint("Call idem_grant(%s, 'operator'), or have a role with that level make them.",
							 quote_literal_cstr(owner))));
		}
		table_close(rel, NoLock);
	}
	PopActiveSnapshot();
}
