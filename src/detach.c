/*
 * detach.c
 *	  SQL function idem_detach.
 *
 * Drops every trigger of a binding, also of one that has lost some of them or
 * its column, and forgets its timers: what rows do from now on is not seen.
 * Done as the caller, who must own the table.
 */
#include "postgres.h"

#include "access/relation.h"
#include "catalog/pg_inherits.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/reltrigger.h"

#include "attach.h"
#include "binding.h"
#include "catalog.h"
#include "compat.h"
#include "errors.h"
#include "timer.h"

PG_FUNCTION_INFO_V1(idem_detach);

/*
 * Drops the binding's triggers from a table, their clones go along.
 */
static void
detach_drop(Oid relid, const char *tag)
{
	Relation	rel = relation_open(relid, NoLock);
	List	   *names = NIL;
	ListCell   *lc;
	TriggerDesc *triggers = CopyTriggerDesc(rel->trigdesc);
	int			n = triggers != NULL ? triggers->numtriggers : 0;

	for (int i = 0; i < n; i++)
	{
		const Trigger *trigger = &triggers->triggers[i];

		if (trigger->tgnargs == IDEM_NARGS && !trigger->tgisclone &&
			strcmp(trigger->tgargs[IDEM_ARG_TAG], tag) == 0 &&
			idem_trigger_is_ours(trigger->tgfoid, NULL))
			names = lappend(names, pstrdup(trigger->tgname));
	}
	relation_close(rel, NoLock);

	foreach(lc, names)
		idem_attach_execute(psprintf("DROP TRIGGER %s ON %s",
									 quote_identifier((char *) lfirst(lc)),
									 idem_attach_table_name(relid)));
}

/*
 * The tag of the binding of a column, also where its first trigger is gone; or
 * of one whose column is gone.  NULL if there is none.
 */
static char *
detach_find_tag(Relation rel, const char *column)
{
	AttrNumber	attnum = get_attnum(RelationGetRelid(rel), column);
	char	   *orphan = NULL;
	TriggerDesc *triggers = CopyTriggerDesc(rel->trigdesc);
	int			n = triggers != NULL ? triggers->numtriggers : 0;

	for (int i = 0; i < n; i++)
	{
		const Trigger *trigger = &triggers->triggers[i];
		char	   *tag;

		if (trigger->tgnargs != IDEM_NARGS ||
			!idem_trigger_is_ours(trigger->tgfoid, NULL))
			continue;
		tag = trigger->tgargs[IDEM_ARG_TAG];
		if (attnum != InvalidAttrNumber &&
			idem_trigger_column(trigger->tgqual) == attnum)
			return pstrdup(tag);
		if (attnum == InvalidAttrNumber && strncmp(tag, "~idem_", 6) == 0 &&
			strncmp(tag + 6, column, Min(strlen(column), IDEM_MAX_TAG_COLUMN)) == 0)
			orphan = pstrdup(tag);
	}
	return orphan;
}

/*
 * idem_detach(table_name, column_name) -> true
 */
Datum
idem_detach(PG_FUNCTION_ARGS)
{
	Oid			relid;
	char	   *column;
	char	   *tag;
	Relation	rel;
	IdemTable  *table;
	ListCell   *lc;

	idem_attach_require(fcinfo, 0, "table_name");
	idem_attach_require(fcinfo, 1, "column_name");
	relid = PG_GETARG_OID(0);
	column = pstrdup(NameStr(*PG_GETARG_NAME(1)));
	idem_require_writable("idem_detach()");

	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	idem_attach_check_owner(relid);
	rel = relation_open(relid, AccessExclusiveLock);
	idem_attach_check_owner(relid);
	idem_catalog_check_idle(rel, AccessExclusiveLock, "idem_detach()");
	tag = detach_find_tag(rel, column);
	if (tag == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_MISUSE),
				 errmsg("no machine is attached to column \"%s\" of table \"%s\"",
						column, RelationGetRelationName(rel)),
				 errtable(rel),
				 errhidestmt(true)));
	table = idem_table_get(rel, CurrentMemoryContext);
	for (int i = 0; i < table->nbindings; i++)
	{
		const IdemBinding *binding = &table->bindings[i];

		if (strcmp(binding->tag, tag) == 0 && binding->root != relid)
			ereport(ERROR,
					(errcode(ERRCODE_WRONG_OBJECT_TYPE),
					 errmsg("machine of table \"%s\" was attached to a table above it",
							RelationGetRelationName(rel)),
					 errhint("Detach it from table \"%s\".",
							 get_rel_name(binding->root)),
					 errtable(rel),
					 errhidestmt(true)));
	}
	relation_close(rel, NoLock);

	foreach(lc, find_all_inheritors(relid, AccessExclusiveLock, NULL))
	{
		if (lfirst_oid(lc) != relid && get_rel_relispartition(lfirst_oid(lc)))
			continue;
		detach_drop(lfirst_oid(lc), tag);
		idem_timers_forget(lfirst_oid(lc), tag);
	}
	SPI_finish();
	PG_RETURN_BOOL(true);
}
