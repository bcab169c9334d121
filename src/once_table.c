/*
 * once_table.c
 *	  What the triggers of a table that skips repeated inserts say.
 *
 * The columns of the key stand in the WHEN clause of the trigger, not in its
 * arguments: so they follow a RENAME, keep the column from being dropped or
 * given another type, survive a dump by name, and have their own numbers in
 * each partition.  Scope and retention are arguments.  What is read from there
 * is kept per session, until the relation changes or goes.
 *
 * Triggers are read from a copy: each look into a catalog may have the
 * relation's own read anew.
 *
 * A table whose triggers are not whole is refused here, on each insert, rather
 * than let repeated rows in or lose rows that move.
 */
#include "postgres.h"

#include "access/table.h"
#include "catalog/partition.h"
#include "catalog/pg_language.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_trigger.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "nodes/nodeFuncs.h"
#include "rewrite/prs2lock.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "binding.h"
#include "errors.h"
#include "once.h"

typedef struct TableEntry
{
	Oid			relid;			/* hash key */
	bool		valid;
	MemoryContext context;
	IdemOnceTable *table;
} TableEntry;

static HTAB *tables = NULL;
static int	ninvalid = 0;

/* moves whenever any entry may be wrong */
static uint64 nchanges = 0;

/* a relation that somebody wants to hear of, and whether it changed since */
static Oid	watched = InvalidOid;
static bool watched_changed;

static void
table_invalidate(TableEntry *entry)
{
	ninvalid += entry->valid;
	entry->valid = false;
}

/*
 * Relcache callback: InvalidOid stands for every relation.
 */
static void
table_changed(Datum arg, Oid relid)
{
	HASH_SEQ_STATUS status;
	TableEntry *entry;

	nchanges++;
	if (!OidIsValid(relid) || relid == watched)
		watched_changed = true;
	if (OidIsValid(relid))
	{
		entry = hash_search(tables, &relid, HASH_FIND, NULL);
		if (entry != NULL)
			table_invalidate(entry);
		return;
	}
	hash_seq_init(&status, tables);
	while ((entry = hash_seq_search(&status)) != NULL)
		table_invalidate(entry);
}

/*
 * Gives up what is no longer valid, of relations that are gone too.  Somebody
 * further out may still be at work with it, until the transaction ends.
 */
static void
table_give_up_invalid(void)
{
	HASH_SEQ_STATUS status;
	TableEntry *entry;

	if (ninvalid == 0)
		return;
	hash_seq_init(&status, tables);
	while ((entry = hash_seq_search(&status)) != NULL)
	{
		if (entry->valid)
			continue;
		MemoryContextSetParent(entry->context, TopTransactionContext);
		(void) hash_search(tables, &entry->relid, HASH_REMOVE, NULL);
	}
	ninvalid = 0;
}

static void
table_init_cache(void)
{
	HASHCTL		ctl = {.keysize = sizeof(Oid),.entrysize = sizeof(TableEntry)};

	if (tables != NULL)
		return;
	tables = hash_create("idem once tables", 16, &ctl, HASH_ELEM | HASH_BLOBS);
	CacheRegisterRelcacheCallback(table_changed, (Datum) 0);
}

/*
 * From now on idem_once_watched_changed() tells whether the relation, of which
 * nobody need hold a lock, has become another one, as with each trigger that
 * comes or goes.
 */
void
idem_once_watch(Oid relid)
{
	table_init_cache();
	watched = relid;
	watched_changed = false;
}

bool
idem_once_watched_changed(void)
{
	return watched_changed;
}

/*
 * Whether a function is idem's trigger function, in whatever schema.
 */
static bool
once_is_function(Oid function)
{
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	Form_pg_proc form;
	bool		ours = false;

	if (!HeapTupleIsValid(tuple))
		return false;
	form = (Form_pg_proc) GETSTRUCT(tuple);
	if (form->prolang == ClanguageId && form->prorettype == TRIGGEROID)
	{
		bool		isnull;
		Datum		source = SysCacheGetAttr(PROCOID, tuple,
											 Anum_pg_proc_prosrc, &isnull);

		if (!isnull)
		{
			char	   *symbol = TextDatumGetCString(source);

			/* see since.c */
			ours = strcmp(symbol, IDEM_ONCE_FUNCTION "_1_1") == 0 ||
				strcmp(symbol, IDEM_ONCE_FUNCTION) == 0;
		}
	}
	ReleaseSysCache(tuple);
	return ours;
}

bool
idem_once_is_ours(const Trigger *trigger)
{
	return once_is_function(trigger->tgfoid);
}

/*
 * Whether a relation has any of idem's triggers for this, whole or not.
 */
bool
idem_once_is_attached(Relation rel)
{
	TriggerDesc *triggers = CopyTriggerDesc(rel->trigdesc);
	bool		found = false;

	for (int i = 0; !found && triggers != NULL && i < triggers->numtriggers; i++)
		found = idem_once_is_ours(&triggers->triggers[i]);
	FreeTriggerDesc(triggers);
	return found;
}

/*
 * An IdemTriggerLook.
 */
static void
once_look(Relation catalog, HeapTuple tuple, void *arg)
{
	if (once_is_function(((Form_pg_trigger) GETSTRUCT(tuple))->tgfoid))
		*(bool *) arg = true;
}

/*
 * The same by OID, without a lock on the relation: a partition must not lock
 * its root, since whoever changes the tree goes the other way.
 */
static bool
once_is_attached_oid(Oid relid)
{
	bool		found = false;

	idem_trigger_each(list_make1_oid(relid), once_look, &found);
	return found;
}

static void
table_report_broken(Relation rel, const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_MISUSE),
			 errmsg("table \"%s\" cannot tell repeated inserts",
					RelationGetRelationName(rel)),
			 errdetail("%s", detail),
			 errhint("Call idem_detach_once() and idem_attach_once() for the table, or for the root of its partitions."),
			 errtable(rel),
			 errhidestmt(true)));
}

/*
 * Whether a scope is one of idem's own, that no table's keys go into.
 */
bool
idem_once_is_reserved(const char *scope)
{
	return strncmp(scope, "idem.", 5) == 0;
}

static bool
table_collect_columns(Node *node, void *arg)
{
	List	  **attnums = (List **) arg;

	if (node == NULL)
		return false;
	if (IsA(node, Var))
	{
		*attnums = lappend_int(*attnums, ((Var *) node)->varattno);
		return false;
	}
	return expression_tree_walker(node, table_collect_columns, arg);
}

static void
table_add_columns(IdemOnceTable *table, Relation rel, const char *qual)
{
	List	   *attnums = NIL;
	ListCell   *lc;

	if (qual != NULL)
		(void) table_collect_columns(stringToNode(qual), &attnums);
	if (attnums == NIL)
		table_report_broken(rel, "The WHEN clause of its trigger names no column.");

	table->columns = palloc0(list_length(attnums) * sizeof(IdemOnceColumn));
	foreach(lc, attnums)
	{
		IdemOnceColumn *column = &table->columns[table->ncolumns++];
		Form_pg_attribute att;
		Oid			output;
		bool		is_varlena;

		column->attnum = lfirst_int(lc);
		if (column->attnum <= 0 ||
			column->attnum > RelationGetDescr(rel)->natts)
			table_report_broken(rel, "The WHEN clause of its trigger names another column than the table has.");
		att = TupleDescAttr(RelationGetDescr(rel), column->attnum - 1);
		if (att->attisdropped || att->attgenerated)
			table_report_broken(rel, "A column of the key was dropped, or is generated.");
		column->type = att->atttypid;
		column->base = getBaseType(att->atttypid);
		getTypeOutputInfo(column->type, &output, &is_varlena);
		fmgr_info_cxt(output, &column->output, CurrentMemoryContext);
		table->pin = Max(table->pin, idem_once_pin(column->base));
	}
}

/*
 * Whether an enabled trigger of ours for this event stands beside the one for
 * inserts.
 */
static bool
table_has_part(const TriggerDesc *triggers, const Trigger *insert, int16 type)
{
	for (int i = 0; i < triggers->numtriggers; i++)
	{
		const Trigger *trigger = &triggers->triggers[i];

		if (trigger->tgfoid == insert->tgfoid &&
			(trigger->tgtype & type) == type &&
			(trigger->tgtype & TRIGGER_TYPE_TIMING_MASK) ==
			(type & TRIGGER_TYPE_TIMING_MASK) &&
			trigger->tgenabled == insert->tgenabled)
			return true;
	}
	return false;
}

/*
 * Whether the root of a partition is attached.  One that is being detached
 * CONCURRENTLY has no root any more, and keeps its triggers until it is no
 * partition.
 */
static bool
table_root_is_attached(Oid partition)
{
	List	   *ancestors = get_partition_ancestors(partition);

	return ancestors == NIL || once_is_attached_oid(llast_oid(ancestors));
}

/*
 * Everything that would let a repeated row in, or lose a row that is moved
 * between partitions, is refused here rather than overlooked.
 */
static void
table_check_parts(Relation rel, const TriggerDesc *triggers,
				  const Trigger *insert)
{
	if (rel->rd_rel->relkind == RELKIND_FOREIGN_TABLE)
		table_report_broken(rel, "It is a foreign table.");
	if (rel->rd_rel->relpersistence != RELPERSISTENCE_PERMANENT)
		table_report_broken(rel, "It is unlogged: its keys would outlive its rows.  ALTER TABLE ... SET LOGGED makes it whole.");
	if (!table_has_part(triggers, insert,
						TRIGGER_TYPE_ROW | TRIGGER_TYPE_INSERT))
		table_report_broken(rel, "Its trigger that runs after the insert of a row is missing, or not enabled alike.");
	if (!rel->rd_rel->relispartition)
		return;

	if (!insert->tgisclone || !table_root_is_attached(RelationGetRelid(rel)))
		table_report_broken(rel, "It became a partition of a table to which idem_attach_once() was not applied.");
	if (!table_has_part(triggers, insert, TRIGGER_TYPE_ROW |
						TRIGGER_TYPE_BEFORE | TRIGGER_TYPE_UPDATE) ||
		!table_has_part(triggers, insert, TRIGGER_TYPE_ROW |
						TRIGGER_TYPE_BEFORE | TRIGGER_TYPE_DELETE))
		table_report_broken(rel, "Its trigger that notices rows moved between partitions is missing, or not enabled alike.");
}

static IdemOnceTable *
table_build(Relation rel)
{
	IdemOnceTable *table = palloc0(sizeof(IdemOnceTable));
	TriggerDesc *triggers = CopyTriggerDesc(rel->trigdesc);
	const Trigger *insert = NULL;

	table->relid = RelationGetRelid(rel);
	table->is_last = true;
	for (int i = 0; triggers != NULL && i < triggers->numtriggers; i++)
	{
		Trigger    *trigger = &triggers->triggers[i];

		if (!TRIGGER_FOR_ROW(trigger->tgtype) ||
			!TRIGGER_FOR_BEFORE(trigger->tgtype) ||
			!TRIGGER_FOR_INSERT(trigger->tgtype) ||
			trigger->tgenabled == TRIGGER_DISABLED)
			continue;
		if (insert == NULL && idem_once_is_ours(trigger))
			insert = trigger;
		else if (insert != NULL)
			table->is_last = false;
	}
	if (insert == NULL || insert->tgnargs != 2)
		table_report_broken(rel, "Its trigger that runs before the insert of a row is missing or disabled.");
	table_check_parts(rel, triggers, insert);

	if (idem_once_is_reserved(insert->tgargs[0]))
		table_report_broken(rel, "The scope that its trigger names belongs to idem itself.");
	table->scope.name = cstring_to_text(insert->tgargs[0]);
	table->scope.no_expiry = true;
	if (insert->tgargs[1][0] != '\0')
	{
		Datum		ttl = DirectFunctionCall3(interval_in,
											  CStringGetDatum(insert->tgargs[1]),
											  ObjectIdGetDatum(InvalidOid),
											  Int32GetDatum(-1));

		table->has_ttl = true;
		table->ttl = *DatumGetIntervalP(ttl);
	}
	table_add_columns(table, rel, insert->tgqual);
	FreeTriggerDesc(triggers);
	return table;
}

/*
 * What is known of an opened table whose rows are checked.  An error if its
 * triggers are not whole.
 */
IdemOnceTable *
idem_once_table(Relation rel)
{
	Oid			relid = RelationGetRelid(rel);
	TableEntry *entry;
	MemoryContext context;
	MemoryContext caller;
	IdemOnceTable *table;
	uint64		before;
	bool		found;

	table_init_cache();
	entry = hash_search(tables, &relid, HASH_FIND, NULL);
	if (entry != NULL && entry->valid)
		return entry->table;

	context = AllocSetContextCreate(CurrentMemoryContext, "idem once table",
									ALLOCSET_SMALL_SIZES);
	caller = MemoryContextSwitchTo(context);
	before = nchanges;
	table = table_build(rel);
	MemoryContextSwitchTo(caller);

	table_give_up_invalid();
	entry = hash_search(tables, &relid, HASH_ENTER, &found);
	if (found)
		MemoryContextSetParent(entry->context, TopTransactionContext);
	MemoryContextSetParent(context, CacheMemoryContext);
	entry->context = context;
	entry->table = table;
	entry->valid = true;
	if (nchanges != before)
		table_invalidate(entry);
	return table;
}
