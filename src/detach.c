/*
 * detach.c
 *	  SQL function idem_detach.
 *
 * Drops every trigger of a binding, also of one that has lost some of them or
 * its column, and forgets its timers: what rows do from now on is not seen.
 * Done as the caller, who must own the table.
 *
 * The column is found by what the triggers' WHEN clauses name now.  Only where
 * none of a binding's is left, since the column was dropped with all that
 * depended on it, does the name count that the column had when it was
 * attached; it stands in the tag.
 */
#include "postgres.h"

#include "access/relation.h"
#include "catalog/pg_inherits.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "nodes/value.h"
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
 * Whether a trigger is one of a binding.
 */
static bool
detach_is_ours(const Trigger *trigger)
{
	return trigger->tgnargs == IDEM_NARGS &&
		idem_trigger_is_ours(trigger->tgfoid, NULL);
}

/*
 * Drops a binding's triggers from a table, their clones go along; from one that
 * inherits, those alone that it was given with its parent's: it may have been
 * attached by itself.
 */
static void
detach_drop(Oid relid, const char *tag, bool inherits)
{
	Relation	rel = relation_open(relid, NoLock);
	List	   *names = NIL;
	ListCell   *lc;
	TriggerDesc *triggers = CopyTriggerDesc(rel->trigdesc);
	int			n = triggers != NULL ? triggers->numtriggers : 0;

	for (int i = 0; i < n; i++)
	{
		const Trigger *trigger = &triggers->triggers[i];

		if (detach_is_ours(trigger) && !trigger->tgisclone &&
			strcmp(trigger->tgargs[IDEM_ARG_TAG], tag) == 0 &&
			(!inherits ||
			 idem_binding_is_child(trigger->tgargs[IDEM_ARG_OPTIONS])))
			names = lappend(names, pstrdup(trigger->tgname));
	}
	relation_close(rel, NoLock);

	foreach(lc, names)
		idem_attach_execute(psprintf("DROP TRIGGER %s ON %s",
									 quote_identifier((char *) lfirst(lc)),
									 idem_attach_table_name(relid)));
	if (!inherits || names != NIL)
		idem_timers_forget(relid, tag);
}

/*
 * Whether a tag is one that idem_attach() gives the binding of such a column.
 */
static bool
detach_was_of(const char *tag, const char *column)
{
	const char *first = idem_attach_first_tag(column);
	Size		length = strlen(first);

	if (strncmp(tag, first, length) != 0)
		return false;
	tag += length;
	return tag[0] == '\0' ||
		(tag[0] == '_' && tag[1] != '\0' &&
		 strspn(tag + 1, "0123456789") == strlen(tag + 1));
}

/*
 * An error that says which names would be found.
 */
static void
detach_find_nothing(Relation rel, const char *column, List *attached,
					List *left)
{
	StringInfoData hint;

	initStringInfo(&hint);
	if (attached != NIL)
		appendStringInfo(&hint, "Machines are attached to column %s",
						 idem_names_text(attached, -1));
	if (left != NIL)
		appendStringInfo(&hint, "%s left of column %s",
						 hint.len > 0 ? "; triggers are" : "Triggers are",
						 idem_names_text(left, -1));
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_MISUSE),
			 errmsg("no machine is attached to column \"%s\" of table \"%s\"",
					column, RelationGetRelationName(rel)),
			 hint.len > 0 ? errhint("%s.", hint.data) : 0,
			 errtable(rel),
			 errhidestmt(true)));
}

/*
 * The tags of what the name of a column stands for: the binding that moves it,
 * also where that has lost its first trigger, and what is left of those whose
 * column was called so and is gone.  Whatever moves another column is not meant,
 * though that one may have been called so when it was attached.
 */
static List *
detach_find(Relation rel, const char *column)
{
	AttrNumber	attnum = get_attnum(RelationGetRelid(rel), column);
	TriggerDesc *triggers = CopyTriggerDesc(rel->trigdesc);
	int			n = triggers != NULL ? triggers->numtriggers : 0;
	List	   *found = NIL;
	List	   *elsewhere = NIL;
	List	   *attached = NIL;
	List	   *left = NIL;
	const char *first = idem_attach_first_tag("");

	for (int i = 0; i < n; i++)
	{
		const Trigger *trigger = &triggers->triggers[i];
		AttrNumber	moved;
		String	   *tag;

		if (!detach_is_ours(trigger))
			continue;
		moved = idem_trigger_column(trigger->tgqual);
		if (moved == InvalidAttrNumber)
			continue;
		tag = makeString(trigger->tgargs[IDEM_ARG_TAG]);
		if (moved == attnum)
			found = list_append_unique(found, tag);
		else
		{
			char	   *name = get_attname(RelationGetRelid(rel), moved, false);

			elsewhere = lappend(elsewhere, tag);
			attached = list_append_unique(attached, makeString(name));
		}
	}
	for (int i = 0; i < n; i++)
	{
		const Trigger *trigger = &triggers->triggers[i];
		String	   *tag;

		if (!detach_is_ours(trigger))
			continue;
		tag = makeString(trigger->tgargs[IDEM_ARG_TAG]);
		if (list_member(elsewhere, tag))
			continue;
		if (detach_was_of(strVal(tag), column))
			found = list_append_unique(found, tag);
		else if (!list_member(found, tag) &&
				 strncmp(strVal(tag), first, strlen(first)) == 0)
			left = list_append_unique(left,
									  makeString(strVal(tag) + strlen(first)));
	}
	if (found == NIL)
		detach_find_nothing(rel, column, attached, left);
	return found;
}

/*
 * Leaves what a table above was attached with; an error if there is nothing
 * else that moves the column.
 */
static List *
detach_own(Relation rel, List *tags)
{
	IdemTable  *table = idem_table_get(rel, CurrentMemoryContext);
	const IdemBinding *above = NULL;
	bool		own = false;

	for (int i = 0; i < table->nbindings; i++)
	{
		const IdemBinding *binding = &table->bindings[i];
		String	   *tag = makeString((char *) binding->tag);

		if (!list_member(tags, tag))
			continue;
		if (binding->root == table->relid)
			own = true;
		else
		{
			above = binding;
			tags = list_delete(tags, tag);
		}
	}
	if (above != NULL && !own)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("machine of table \"%s\" was attached to a table above it",
						RelationGetRelationName(rel)),
				 errhint("Detach it from table \"%s\".",
						 get_rel_name(above->root)),
				 errtable(rel),
				 errhidestmt(true)));
	return tags;
}

/*
 * idem_detach(table_name, column_name) -> true
 */
Datum
idem_detach(PG_FUNCTION_ARGS)
{
	Oid			relid;
	char	   *column;
	List	   *tags;
	Relation	rel;
	ListCell   *lc;

	idem_require_argument(fcinfo, 0, "table_name");
	idem_require_argument(fcinfo, 1, "column_name");
	relid = PG_GETARG_OID(0);
	column = pstrdup(NameStr(*PG_GETARG_NAME(1)));
	idem_require_writable("idem_detach()");

	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	idem_attach_check_owner(relid);
	rel = relation_open(relid, AccessExclusiveLock);
	idem_attach_check_owner(relid);
	idem_catalog_check_idle(rel, AccessExclusiveLock, "Call idem_detach()");
	tags = detach_own(rel, detach_find(rel, column));
	relation_close(rel, NoLock);

	foreach(lc, find_all_inheritors(relid, AccessExclusiveLock, NULL))
	{
		bool		inherits = lfirst_oid(lc) != relid;
		ListCell   *cell;

		if (inherits && get_rel_relispartition(lfirst_oid(lc)))
			continue;
		foreach(cell, tags)
			detach_drop(lfirst_oid(lc), strVal(lfirst(cell)), inherits);
	}
	SPI_finish();
	PG_RETURN_BOOL(true);
}
