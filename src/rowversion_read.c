/*
 * rowversion_read.c
 *	  What a trigger that keeps a version column was told.
 *
 * It stands in the trigger itself.  The mode and two switches are arguments;
 * the columns are references in the WHEN clause, which is always true:
 * NEW.column is the version, OLD.column one to be ignored.  So they follow
 * RENAME, hold back DROP COLUMN, have their own numbers in each partition, and
 * are dumped by name.  It is read once per session and table, and again when the
 * table changes.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_language.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_trigger.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "nodes/primnodes.h"
#include "optimizer/optimizer.h"
#include "rewrite/prs2lock.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "binding.h"
#include "errors.h"
#include "guard_call.h"
#include "pin.h"
#include "rowversion.h"

extern Datum idem_rowversion(PG_FUNCTION_ARGS);
extern Datum idem_rowversion_1_1(PG_FUNCTION_ARGS); /* since.c */

/* what is known of a table */
typedef struct VersionSlot
{
	Oid			relid;			/* hash key; must be first */
	bool		valid;
	bool		found;
	IdemVersion version;
} VersionSlot;

static HTAB *versions;
static uint64 changes = 0;		/* of tables, that were announced */

static void
rowversion_table_changed(Datum arg, Oid relid)
{
	HASH_SEQ_STATUS status;
	VersionSlot *slot;

	changes++;
	if (versions == NULL)
		return;
	if (OidIsValid(relid))
	{
		slot = hash_search(versions, &relid, HASH_FIND, NULL);
		if (slot != NULL)
			slot->valid = false;
		return;
	}
	hash_seq_init(&status, versions);
	while ((slot = hash_seq_search(&status)) != NULL)
		slot->valid = false;
}

/*
 * Registers the callback; called once, when the library is loaded.
 */
void
idem_rowversion_init(void)
{
	CacheRegisterRelcacheCallback(rowversion_table_changed, (Datum) 0);
}

/*
 * A number that is another one when any table has changed.
 */
uint64
idem_rowversion_changes(void)
{
	return changes;
}

/*
 * Whether a trigger function is idem_rowversion(), whatever its name and schema.
 */
static bool
rowversion_is_ours(Oid function)
{
	FmgrInfo	flinfo;

	fmgr_info(function, &flinfo);
	return flinfo.fn_addr == idem_rowversion_1_1 ||
		flinfo.fn_addr == idem_rowversion;
}

/*
 * Whether it is one of idem's trigger functions, in its schema; none of them
 * changes a version.  Only a superuser makes functions in C.
 */
bool
idem_rowversion_is_harmless(Oid function, Oid schema)
{
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	Form_pg_proc form;
	bool		harmless;

	if (!HeapTupleIsValid(tuple))
		return false;
	form = (Form_pg_proc) GETSTRUCT(tuple);
	harmless = form->prolang == ClanguageId && form->pronamespace == schema &&
		strncmp(NameStr(form->proname), "idem_", 5) == 0;
	ReleaseSysCache(tuple);
	return harmless;
}

/*
 * Refuses a trigger that was not told what it needs to know.
 */
void
idem_rowversion_refuse(Relation rel, const char *name)
{
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_MISUSE),
			 errmsg("trigger \"%s\" of table \"%s\" was not made by idem_attach_version()",
					name, RelationGetRelationName(rel)),
			 errhidestmt(true),
			 errtable(rel)));
}

/*
 * The columns, from the WHEN clause.
 */
static void
rowversion_take_columns(Relation rel, const Trigger *trigger,
						IdemVersion *version)
{
	List	   *vars;
	ListCell   *lc;
	Form_pg_attribute att;

	if (trigger->tgqual == NULL)
		idem_rowversion_refuse(rel, trigger->tgname);
	vars = pull_var_clause(stringToNode(trigger->tgqual), 0);
	foreach(lc, vars)
	{
		Var		   *var = (Var *) lfirst(lc);

		if (var->varattno <= 0)
			idem_rowversion_refuse(rel, trigger->tgname);
		if (var->varno == PRS2_OLD_VARNO)
			version->ignored = bms_add_member(version->ignored,
											  var->varattno);
		else if (version->column == InvalidAttrNumber)
			version->column = var->varattno;
		else
			idem_rowversion_refuse(rel, trigger->tgname);
	}
	if (version->column == InvalidAttrNumber)
		idem_rowversion_refuse(rel, trigger->tgname);

	att = TupleDescAttr(RelationGetDescr(rel), version->column - 1);
	strlcpy(version->column_name, NameStr(att->attname), NAMEDATALEN);
	version->type = att->atttypid;
	version->base = getBaseType(att->atttypid);
	if (version->base != INT2OID && version->base != INT4OID &&
		version->base != INT8OID)
		idem_rowversion_refuse(rel, trigger->tgname);
}

static void
rowversion_take_options(Relation rel, const Trigger *trigger,
						IdemVersion *version)
{
	if (trigger->tgnargs < 1)
		idem_rowversion_refuse(rel, trigger->tgname);
	if (strcmp(trigger->tgargs[0], "next") == 0)
		version->next = true;
	else if (strcmp(trigger->tgargs[0], "read") != 0)
		idem_rowversion_refuse(rel, trigger->tgname);
	for (int i = 1; i < trigger->tgnargs; i++)
	{
		if (strcmp(trigger->tgargs[i], "strict") == 0)
			version->strict = true;
		else if (strcmp(trigger->tgargs[i], "retryable") == 0)
			version->retryable = true;
		else
			idem_rowversion_refuse(rel, trigger->tgname);
	}
}

/*
 * Whether the trigger fires before a row is inserted, or updated.
 */
static bool
rowversion_is_before(const Trigger *trigger, int16 event)
{
	return TRIGGER_FOR_BEFORE(trigger->tgtype) &&
		TRIGGER_FOR_ROW(trigger->tgtype) && (trigger->tgtype & event) != 0;
}

/*
 * Whether it sees to rows that arrive from another partition.
 */
bool
idem_rowversion_is_arrival(const Trigger *trigger)
{
	return rowversion_is_before(trigger, TRIGGER_TYPE_INSERT) &&
		trigger->tgnargs == 1 &&
		strcmp(trigger->tgargs[0], IDEM_VERSION_ARRIVES) == 0 &&
		rowversion_is_ours(trigger->tgfoid);
}

/*
 * Whether it is another's and fires where ours does.  One for replicas does only
 * where ours fires there as well.
 */
static bool
rowversion_is_other(const Trigger *trigger, const Trigger *ours, int16 event)
{
	return rowversion_is_before(trigger, event) &&
		(trigger->tgenabled == TRIGGER_FIRES_ON_ORIGIN ||
		 trigger->tgenabled == TRIGGER_FIRES_ALWAYS ||
		 (trigger->tgenabled == TRIGGER_FIRES_ON_REPLICA &&
		  ours->tgenabled != TRIGGER_FIRES_ON_ORIGIN)) &&
		!idem_rowversion_is_harmless(trigger->tgfoid,
									 get_func_namespace(ours->tgfoid));
}

/*
 * The trigger that sees to rows which move to another partition, and whether one
 * comes after it.  It has to fire where the version's does.
 */
static void
rowversion_read_arrival(const TriggerDesc *desc, const Trigger *ours,
						IdemVersion *version)
{
	for (int i = 0; i < desc->numtriggers; i++)
	{
		const Trigger *trigger = &desc->triggers[i];

		if (rowversion_is_other(trigger, ours, TRIGGER_TYPE_INSERT))
			strlcpy(version->insert_later, trigger->tgname, NAMEDATALEN);
		else if (idem_rowversion_is_arrival(trigger))
		{
			version->arrives = trigger->tgenabled == ours->tgenabled ||
				trigger->tgenabled == TRIGGER_FIRES_ALWAYS;
			if (!version->arrives)
				strlcpy(version->idle, trigger->tgname, NAMEDATALEN);
			version->insert_later[0] = '\0';
		}
	}
}

/*
 * Reads the table's triggers.  False if none of them keeps a version.
 */
static bool
rowversion_read(Relation rel, IdemVersion *version)
{
	TriggerDesc *desc = CopyTriggerDesc(rel->trigdesc);
	const Trigger *ours = NULL;

	if (desc == NULL || !desc->trig_update_before_row)
		return false;
	for (int i = 0; i < desc->numtriggers && ours == NULL; i++)
	{
		const Trigger *trigger = &desc->triggers[i];

		if (rowversion_is_before(trigger, TRIGGER_TYPE_UPDATE) &&
			rowversion_is_ours(trigger->tgfoid))
			ours = trigger;
	}
	if (ours == NULL)
		return false;
	version->trigger = ours->tgoid;
	version->function = ours->tgfoid;
	strlcpy(version->trigger_name, ours->tgname, NAMEDATALEN);
	rowversion_take_columns(rel, ours, version);
	rowversion_take_options(rel, ours, version);
	for (int i = 0; i < desc->numtriggers; i++)
	{
		const Trigger *trigger = &desc->triggers[i];

		/* they stand in the order in which they fire */
		if (!rowversion_is_other(trigger, ours, TRIGGER_TYPE_UPDATE))
			continue;
		version->others = true;
		if (trigger > ours)
			strlcpy(version->later, trigger->tgname, NAMEDATALEN);
	}
	rowversion_read_arrival(desc, ours, version);
	version->partition = idem_guard_partition_columns(rel);
	return true;
}

static VersionSlot *
rowversion_slot(Oid relid)
{
	VersionSlot *slot;
	bool		found;

	if (versions == NULL)
		versions = idem_pin_table("idem versions", sizeof(Oid),
								  sizeof(VersionSlot), HASH_BLOBS);
	slot = hash_search(versions, &relid, HASH_ENTER, &found);
	if (!found)
		memset((char *) slot + sizeof(Oid), 0,
			   sizeof(VersionSlot) - sizeof(Oid));
	return slot;
}

/*
 * What was declared of the table.  False if nothing was.
 */
bool
idem_rowversion_find(Relation rel, IdemVersion *version)
{
	VersionSlot *slot = rowversion_slot(RelationGetRelid(rel));

	if (!slot->valid)
	{
		MemoryContext caller;
		IdemVersion read;
		bool		found;

		/* first, so that what changes while we look is looked at again */
		slot->valid = true;
		slot->found = false;
		memset(&read, 0, sizeof(read));
		PG_TRY();
		{
			found = rowversion_read(rel, &read);
		}
		PG_CATCH();
		{
			slot->valid = false;
			PG_RE_THROW();
		}
		PG_END_TRY();
		caller = MemoryContextSwitchTo(CacheMemoryContext);
		bms_free(slot->version.ignored);
		bms_free(slot->version.partition);
		slot->version = read;
		slot->version.ignored = bms_copy(read.ignored);
		slot->version.partition = bms_copy(read.partition);
		slot->found = found;
		MemoryContextSwitchTo(caller);
	}
	if (!slot->found)
		return false;
	*version = slot->version;
	version->ignored = bms_copy(slot->version.ignored);
	version->partition = bms_copy(slot->version.partition);
	return true;
}

/*
 * Whether the version of a row is counted by a trigger that fires behind this
 * one.
 */
bool
idem_rowversion_is_after(Relation rel, const IdemVersion *version,
						 const Trigger *trigger)
{
	bool		behind = false;

	for (int i = 0; i < rel->trigdesc->numtriggers; i++)
	{
		const Trigger *other = &rel->trigdesc->triggers[i];

		if (other->tgoid == trigger->tgoid)
			behind = true;
		else if (other->tgoid == version->trigger)
			return behind && idem_trigger_fires_now(other->tgenabled);
	}
	return false;
}
