/*
 * binding.c
 *	  Which columns of a table move by which machines.
 *
 * A binding is nothing but triggers on the table: machine and options are in
 * their arguments, the column is in the WHEN clause of the one that fires
 * before the update of a row.  So PostgreSQL itself keeps bindings right: it
 * dumps them by name, clones them to partitions, follows renaming and refuses
 * to drop the column.  Nothing is looked up here that the relation's cache
 * entry does not hold; an entry of ours is as old as that one, and a relcache
 * callback marks it when it is not any more.
 *
 * As with machines, nothing in use is freed: who gets a table's bindings names
 * a memory context, and until that is reset they stay.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/sysattr.h"
#include "access/table.h"
#include "access/tableam.h"
#include "catalog/partition.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_trigger.h"
#include "commands/trigger.h"
#include "nodes/primnodes.h"
#include "utils/fmgroids.h"
#include "utils/fmgrprotos.h"
#include "utils/inval.h"
#include "utils/jsonb.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/reltrigger.h"

#include "binding.h"
#include "errors.h"
#include "pin.h"

typedef struct TableKept
{
	IdemTable	table;
	IdemPinned	pinned;
} TableKept;

typedef struct TableEntry
{
	Oid			relid;			/* hash key */
	bool		valid;
	TableKept  *kept;
} TableEntry;

static HTAB *cache = NULL;

/*
 * Relcache callback: only marks.
 */
static void
binding_relation_changed(Datum arg, Oid relid)
{
	TableEntry *entry;

	if (cache == NULL)
		return;
	if (OidIsValid(relid))
	{
		entry = hash_search(cache, &relid, HASH_FIND, NULL);
		if (entry != NULL)
			entry->valid = false;
	}
	else
	{
		HASH_SEQ_STATUS seq;

		hash_seq_init(&seq, cache);
		while ((entry = hash_seq_search(&seq)) != NULL)
			entry->valid = false;
	}
}

/*
 * Registers the callback; called once, when the library is loaded.
 */
void
idem_binding_init(void)
{
	CacheRegisterRelcacheCallback(binding_relation_changed, (Datum) 0);
}

static IdemTable *
table_hold(TableKept *kept, MemoryContext holder)
{
	idem_pin_hold(&kept->pinned, holder);
	return &kept->table;
}

static JsonbValue *
option_find(Jsonb *options, const char *name)
{
	if (!JB_ROOT_IS_OBJECT(options))
		return NULL;
	return getKeyJsonValueFromContainer(&options->root, name, strlen(name),
										NULL);
}

static bool
option_bool(Jsonb *options, const char *name)
{
	JsonbValue *value = option_find(options, name);

	return value != NULL && value->type == jbvBool && value->val.boolean;
}

static char *
option_string(Jsonb *options, const char *name)
{
	JsonbValue *value = option_find(options, name);

	if (value == NULL || value->type != jbvString)
		return NULL;
	return pnstrdup(value->val.string.val, value->val.string.len);
}

static Jsonb *
options_read(const char *options_text)
{
	return DatumGetJsonbP(DirectFunctionCall1(jsonb_in,
											  CStringGetDatum(options_text)));
}

/*
 * Whether a trigger's options say that a table was attached with one that it
 * inherits from.
 */
bool
idem_binding_is_child(const char *options_text)
{
	return option_bool(options_read(options_text), "child");
}

static void
binding_read_options(IdemBinding *binding)
{
	Jsonb	   *options = options_read(binding->options_text);
	JsonbValue *value;
	char	   *word;

	binding->child = option_bool(options, "child");
	binding->history = option_bool(options, "history");
	binding->events_only = option_bool(options, "events_only");

	word = option_string(options, "mode");
	binding->observe = word != NULL && strcmp(word, "observe") == 0;

	word = option_string(options, "on_delete");
	if (word != NULL && strcmp(word, "final") == 0)
		binding->on_delete = IDEM_DELETE_FINAL;
	else if (word != NULL && strcmp(word, "never") == 0)
		binding->on_delete = IDEM_DELETE_NEVER;

	word = option_string(options, "keep");
	if (word != NULL)
	{
		binding->has_keep = true;
		binding->keep = *DatumGetIntervalP(DirectFunctionCall3(interval_in,
															   CStringGetDatum(word),
															   ObjectIdGetDatum(InvalidOid),
															   Int32GetDatum(-1)));
	}

	value = option_find(options, "exempt");
	if (value != NULL && value->type == jbvBinary &&
		JsonContainerIsArray(value->val.binary.data))
	{
		JsonbContainer *array = value->val.binary.data;
		int			n = JsonContainerSize(array);

		binding->exempt = palloc(Max(n, 1) * sizeof(char *));
		for (int i = 0; i < n; i++)
		{
			JsonbValue *role = getIthJsonbValueFromContainer(array, i);

			if (role->type == jbvString)
				binding->exempt[binding->nexempt++] =
					pnstrdup(role->val.string.val, role->val.string.len);
		}
	}
}

/*
 * A parent that a table inherits from, or InvalidOid.
 */
static Oid
table_parent(Oid relid)
{
	Relation	inherits = table_open(InheritsRelationId, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;
	Oid			parent = InvalidOid;

	ScanKeyInit(&key, Anum_pg_inherits_inhrelid, BTEqualStrategyNumber,
				F_OIDEQ, ObjectIdGetDatum(relid));
	scan = systable_beginscan(inherits, InheritsRelidSeqnoIndexId, true, NULL,
							  1, &key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
		parent = ((Form_pg_inherits) GETSTRUCT(tuple))->inhparent;
	systable_endscan(scan);
	table_close(inherits, AccessShareLock);
	return parent;
}

/*
 * The table in which a key is one row's, and by which a ticker finds the row: the
 * one that was attached, with its partitions; children's rows only by themselves.
 */
Oid
idem_binding_table(const IdemBinding *binding)
{
	return binding->child ? binding->table->relid : binding->root;
}

/*
 * The topmost of the table's ancestors that has the binding.
 */
static Oid
binding_root(Relation rel, const Trigger *trigger, const IdemBinding *binding)
{
	Oid			root = RelationGetRelid(rel);

	if (trigger->tgisclone)
	{
		/* none while it is being detached concurrently */
		List	   *ancestors = get_partition_ancestors(root);

		for (int i = list_length(ancestors) - 1; i >= 0; i--)
		{
			Oid			ancestor = list_nth_oid(ancestors, i);

			if (OidIsValid(get_trigger_oid(ancestor, trigger->tgname, true)))
				return ancestor;
		}
		return root;
	}
	if (binding->child)
	{
		Oid			parent = root;

		while (OidIsValid(parent = table_parent(parent)))
		{
			if (OidIsValid(get_trigger_oid(parent, binding->tag, true)))
				root = parent;
		}
	}
	return root;
}

/*
 * Whether "trigger" is one that fires so.
 */
static bool
trigger_fires(const Trigger *trigger, int16 timing, int16 event)
{
	return TRIGGER_TYPE_MATCHES(trigger->tgtype, TRIGGER_TYPE_ROW, timing,
								event);
}

/*
 * Whether it could write the table again, or what a foreign key does with
 * another that could, between the write of a row and the statement's end.
 */
static bool
trigger_comes_between(const Trigger *trigger)
{
	if (trigger->tgenabled == TRIGGER_DISABLED ||
		!TRIGGER_FOR_AFTER(trigger->tgtype) ||
		!(TRIGGER_FOR_INSERT(trigger->tgtype) ||
		  TRIGGER_FOR_UPDATE(trigger->tgtype)))
		return false;
	switch (trigger->tgfoid)
	{
		case F_RI_FKEY_CHECK_INS:
		case F_RI_FKEY_CHECK_UPD:
		case F_RI_FKEY_NOACTION_UPD:
		case F_RI_FKEY_RESTRICT_UPD:
		case F_UNIQUE_KEY_RECHECK:
			return false;
	}
	return !idem_trigger_is_ours(trigger->tgfoid, NULL);
}

/*
 * Whether the history of the table's rows must be written row by row: a
 * statement may name another table and reach this one's rows, or others, or
 * somebody's trigger may move a row on before the statement ends.
 */
static bool
table_is_each_row(Relation rel, const TriggerDesc *triggers)
{
	if (rel->rd_rel->relkind != RELKIND_RELATION ||
		rel->rd_tableam != GetHeapamTableAmRoutine() ||
		rel->rd_rel->relispartition || rel->rd_rel->relhassubclass ||
		OidIsValid(table_parent(RelationGetRelid(rel))))
		return true;
	for (int i = 0; triggers != NULL && i < triggers->numtriggers; i++)
	{
		if (trigger_comes_between(&triggers->triggers[i]))
			return true;
	}
	return false;
}

/*
 * Whether a trigger fires only where the history of the table goes by row: its
 * WHEN clause is idem_each_row() of the table, and nothing else.
 */
static bool
trigger_asks_each_row(const Trigger *trigger, Oid relid)
{
	FuncExpr   *call;
	Const	   *table;

	if (trigger->tgqual == NULL)
		return false;
	call = (FuncExpr *) stringToNode(trigger->tgqual);
	if (!IsA(call, FuncExpr) || list_length(call->args) != 2 ||
		!idem_trigger_is_ours(call->funcid, "idem_each_row"))
		return false;
	table = (Const *) lsecond(call->args);
	return IsA(table, Const) && !table->constisnull &&
		DatumGetObjectId(table->constvalue) == relid;
}

/*
 * Whether all triggers after the update of a row are such ones.
 */
static bool
table_spares_updates(Relation rel, const TriggerDesc *triggers)
{
	for (int i = 0; triggers != NULL && i < triggers->numtriggers; i++)
	{
		const Trigger *trigger = &triggers->triggers[i];

		if (trigger_fires(trigger, TRIGGER_TYPE_AFTER, TRIGGER_TYPE_UPDATE) &&
			!trigger_asks_each_row(trigger, RelationGetRelid(rel)))
			return false;
	}
	return true;
}

/*
 * Fills in a binding from its trigger, the i-th.
 */
static void
binding_read(Relation rel, const TriggerDesc *desc, int i, IdemTable *table,
			 IdemBinding *binding)
{
	const Trigger *trigger = &desc->triggers[i];
	Form_pg_attribute column;

	memset(binding, 0, sizeof(IdemBinding));
	binding->table = table;
	binding->trigger = trigger->tgoid;
	binding->trigger_name = pstrdup(trigger->tgname);
	binding->machine = pstrdup(trigger->tgargs[IDEM_ARG_MACHINE]);
	binding->options_text = pstrdup(trigger->tgargs[IDEM_ARG_OPTIONS]);
	binding->tag = pstrdup(trigger->tgargs[IDEM_ARG_TAG]);
	binding->attached_as = pstrdup(trigger->tgargs[IDEM_ARG_TABLE]);
	binding->column = idem_trigger_column(trigger->tgqual);
	if (binding->column == InvalidAttrNumber ||
		binding->column > RelationGetNumberOfAttributes(rel))
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_MISUSE),
				 errmsg("trigger \"%s\" of table \"%s\" names no column in its WHEN clause",
						trigger->tgname, RelationGetRelationName(rel)),
				 errhint("Make it with idem_attach()."),
				 errtable(rel),
				 errhidestmt(true)));
	column = TupleDescAttr(RelationGetDescr(rel), binding->column - 1);
	binding->column_name = column->attname;
	binding->type = column->atttypid;
	binding->kind = idem_state_kind(column->atttypid, column->atttypmod,
									&binding->base_type, &binding->typmod);
	binding_read_options(binding);
	binding->root = binding_root(rel, trigger, binding);
	binding->history_enabled = TRIGGER_DISABLED;

	/* PostgreSQL fires triggers of one kind in the order they stand here */
	for (int j = 0; j < desc->numtriggers; j++)
	{
		const Trigger *other = &desc->triggers[j];

		if (j > i && other->tgenabled != TRIGGER_DISABLED &&
			trigger_fires(other, TRIGGER_TYPE_BEFORE, TRIGGER_TYPE_UPDATE) &&
			!idem_trigger_is_ours(other->tgfoid, NULL))
			binding->overruled = true;
		if (other->tgnargs != IDEM_NARGS ||
			strcmp(other->tgargs[IDEM_ARG_TAG], binding->tag) != 0)
			continue;
		if (!binding->history &&
			trigger_fires(other, TRIGGER_TYPE_AFTER, TRIGGER_TYPE_UPDATE) &&
			other->tgfoid == trigger->tgfoid)
			binding->rowwise = true;
		if (binding->history &&
			TRIGGER_TYPE_MATCHES(other->tgtype, TRIGGER_TYPE_STATEMENT,
								 TRIGGER_TYPE_AFTER, TRIGGER_TYPE_UPDATE) &&
			other->tgfoid != trigger->tgfoid)
			binding->history_enabled = other->tgenabled;
	}
}

/*
 * Whether the row that the guard sees before the update is not the one that is
 * written: another's trigger comes behind it, or part of the key is computed.
 */
static bool
binding_sees_draft(Relation rel, const IdemBinding *binding)
{
	TupleDesc	desc = RelationGetDescr(rel);
	Bitmapset  *key;
	int			column = -1;

	if (binding->overruled)
		return true;
	if (desc->constr == NULL || !desc->constr->has_generated_stored)
		return false;
	key = RelationGetIndexAttrBitmap(rel, INDEX_ATTR_BITMAP_PRIMARY_KEY);
	while ((column = bms_next_member(key, column)) >= 0)
	{
		AttrNumber	attnum = column + FirstLowInvalidHeapAttributeNumber;

		if (attnum > 0 &&
			TupleDescAttr(desc, attnum - 1)->attgenerated != '\0')
			return true;
	}
	return false;
}

/*
 * Without history nothing but the proof is asked for by row.
 */
static void
table_choose_way(Relation rel, const TriggerDesc *triggers, IdemTable *table)
{
	table->spares_updates = table_spares_updates(rel, triggers);
	table->each_row = table_is_each_row(rel, triggers);
	for (int i = 0; i < table->nbindings && !table->each_row; i++)
		table->each_row = table->bindings[i].history &&
			binding_sees_draft(rel, &table->bindings[i]);
	for (int i = 0; i < table->nbindings; i++)
	{
		if (table->bindings[i].history && table->each_row)
			table->bindings[i].rowwise = true;
	}
}

/*
 * Reads the triggers from a copy: looking something up can let the relation's
 * own be read anew.
 */
static TableKept *
table_read(Relation rel)
{
	MemoryContext context;
	MemoryContext former;
	TableKept  *kept;
	TriggerDesc *triggers = CopyTriggerDesc(rel->trigdesc);
	int			n = triggers != NULL ? triggers->numtriggers : 0;

	context = AllocSetContextCreate(CurrentMemoryContext, "idem bindings",
									ALLOCSET_SMALL_SIZES);
	former = MemoryContextSwitchTo(context);
	kept = palloc0(sizeof(TableKept));
	kept->table.relid = RelationGetRelid(rel);
	kept->table.context = kept->pinned.context = context;
	kept->table.bindings = palloc(Max(n, 1) * sizeof(IdemBinding));
	for (int i = 0; i < n; i++)
	{
		const Trigger *trigger = &triggers->triggers[i];

		if (trigger_fires(trigger, TRIGGER_TYPE_BEFORE, TRIGGER_TYPE_UPDATE) &&
			trigger->tgnargs == IDEM_NARGS &&
			idem_trigger_is_ours(trigger->tgfoid, "idem_guard"))
			binding_read(rel, triggers, i, &kept->table,
						 &kept->table.bindings[kept->table.nbindings++]);
	}
	table_choose_way(rel, triggers, &kept->table);
	MemoryContextSwitchTo(former);
	return kept;
}

/*
 * Removes what is not valid any more, of tables that were dropped above all.
 */
static void
table_tidy(void)
{
	HASH_SEQ_STATUS seq;
	TableEntry *entry;

	hash_seq_init(&seq, cache);
	while ((entry = hash_seq_search(&seq)) != NULL)
	{
		TableKept  *kept = entry->kept;

		if (entry->valid || kept == NULL)
			continue;
		hash_search(cache, &entry->relid, HASH_REMOVE, NULL);
		idem_pin_uncache(&kept->pinned);
	}
}

/*
 * The bindings of an opened relation, the very one whose rows are touched,
 * pinned until "holder" is reset.
 */
IdemTable *
idem_table_get(Relation rel, MemoryContext holder)
{
	Oid			relid = RelationGetRelid(rel);
	TableEntry *entry;
	TableKept  *kept;
	bool		found;

	if (cache == NULL)
		cache = idem_pin_table("idem bindings", sizeof(Oid),
							   sizeof(TableEntry), HASH_BLOBS);
	entry = hash_search(cache, &relid, HASH_FIND, NULL);
	if (entry != NULL && entry->valid)
		return table_hold(entry->kept, holder);
	table_tidy();

	/*
	 * The relation is open, so its triggers are as they were when it was
	 * opened or newer; reading them opens catalogs, which may bring news of
	 * the relation.  Then what was read serves this caller only.
	 */
	entry = hash_search(cache, &relid, HASH_ENTER, &found);
	entry->valid = true;
	entry->kept = NULL;
	PG_TRY();
	{
		kept = table_read(rel);
	}
	PG_CATCH();
	{
		hash_search(cache, &relid, HASH_REMOVE, NULL);
		PG_RE_THROW();
	}
	PG_END_TRY();

	entry->kept = kept;
	idem_pin_cache(&kept->pinned);
	return table_hold(kept, holder);
}

/*
 * The same as of now, for a verb; an error if there are none.
 */
IdemTable *
idem_table_require(Relation rel, MemoryContext holder)
{
	IdemTable  *table;

	idem_machine_accept();
	table = idem_table_get(rel, holder);
	if (table->nbindings == 0)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_MISUSE),
				 errmsg("no machine is attached to table \"%s\"",
						RelationGetRelationName(rel)),
				 errhint("Attach one with idem_attach()."),
				 errtable(rel),
				 errhidestmt(true)));
	return table;
}

static IdemBinding *
table_find(IdemTable *table, const char *tag)
{
	for (int i = 0; i < table->nbindings; i++)
	{
		if (strcmp(table->bindings[i].tag, tag) == 0)
			return &table->bindings[i];
	}
	return NULL;
}

/*
 * The binding that a trigger belongs to; an error if it has lost it.
 */
IdemBinding *
idem_table_binding(IdemTable *table, const char *tag)
{
	IdemBinding *binding = table_find(table, tag);

	if (binding != NULL)
		return binding;
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_MISUSE),
			 errmsg("table \"%s\" has lost trigger \"%s\" of a binding",
					get_rel_name(table->relid), tag),
			 errhint("Detach what is left of it with idem_detach(), and attach the machine again."),
			 errhidestmt(true)));
}

/*
 * The same for a trigger of the statement.  NULL if the column was dropped with
 * all that depends on it, which are the triggers for each row: where one of these
 * is left, another was lost in another way.
 */
IdemBinding *
idem_table_statement_binding(IdemTable *table, Relation rel, const char *tag)
{
	const TriggerDesc *triggers = rel->trigdesc;
	IdemBinding *binding = table_find(table, tag);

	if (binding != NULL)
		return binding;
	for (int i = 0; triggers != NULL && i < triggers->numtriggers; i++)
	{
		const Trigger *trigger = &triggers->triggers[i];

		if (TRIGGER_FOR_ROW(trigger->tgtype) &&
			trigger->tgnargs == IDEM_NARGS &&
			strcmp(trigger->tgargs[IDEM_ARG_TAG], tag) == 0)
			return idem_table_binding(table, tag);
	}
	return NULL;
}
