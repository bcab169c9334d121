/*
 * target.c
 *	  A row of a user's table, named by its primary key.
 *
 * What is known of a table is cached per session: columns, types, and saved
 * plans.  Names in the statements are quoted and qualified, operators are
 * those of the primary key's index, so that neither search_path nor objects of
 * the user's own change what a statement means.  An entry is stale when
 * PostgreSQL says that the table changed, or any schema, since a renamed
 * schema leaves its tables alone.
 *
 * A stale entry may still be in use further up the stack: a trigger of the
 * table can change the table's definition or call a verb again.  So it is only
 * unlinked, and freed when the transaction ends.  By then no verb can be under
 * way: a function that SQL calls cannot end the transaction around it.
 *
 * A table with old-style inheritance children is taken ONLY: the key tells
 * apart its own rows, not theirs.
 *
 * Locks: the table, in the caller's mode, kept until the end of the
 * transaction; then whatever the statement takes.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/relation.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/index.h"
#include "catalog/pg_am.h"
#include "catalog/pg_operator.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/plancache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "errors.h"
#include "pin.h"
#include "store.h"
#include "target.h"

/* statements that are kept per table; further ones are planned each time */
#define MAX_PLANS	64

typedef struct TargetSlot
{
	Oid			relid;			/* hash key; must be first */
	bool		stale;
	IdemTarget *target;			/* NULL: not built yet */
} TargetSlot;

typedef struct TargetPlan
{
	char	   *sql;
	int			nparams;
	Oid		   *types;
	SPIPlanPtr	plan;
} TargetPlan;

static HTAB *targets;
static List *retired = NIL;		/* of IdemTarget */

static void
target_relation_changed(Datum arg, Oid relid)
{
	HASH_SEQ_STATUS status;
	TargetSlot *slot;

	if (targets == NULL)
		return;
	if (OidIsValid(relid))
	{
		slot = hash_search(targets, &relid, HASH_FIND, NULL);
		if (slot != NULL)
			slot->stale = true;
		return;
	}
	hash_seq_init(&status, targets);
	while ((slot = hash_seq_search(&status)) != NULL)
		slot->stale = true;
}

static void
target_schema_changed(Datum arg, int cacheid, uint32 hashvalue)
{
	target_relation_changed(arg, InvalidOid);
}

static void
target_free_retired(XactEvent event, void *arg)
{
	ListCell   *lc;

	if (retired == NIL ||
		(event != XACT_EVENT_COMMIT && event != XACT_EVENT_ABORT &&
		 event != XACT_EVENT_PREPARE))
		return;
	foreach(lc, retired)
	{
		IdemTarget *target = (IdemTarget *) lfirst(lc);
		ListCell   *plan;

		foreach(plan, target->plans)
			(void) SPI_freeplan(((TargetPlan *) lfirst(plan))->plan);
		MemoryContextDelete(target->context);
	}
	list_free(retired);
	retired = NIL;
}

/*
 * Registers the callbacks; called once, when the library is loaded.
 */
void
idem_target_init(void)
{
	CacheRegisterRelcacheCallback(target_relation_changed, (Datum) 0);
	CacheRegisterSyscacheCallback(NAMESPACEOID, target_schema_changed,
								  (Datum) 0);
	RegisterXactCallback(target_free_retired, NULL);
}

static TargetSlot *
target_slot(Oid relid)
{
	TargetSlot *slot;
	bool		found;

	if (targets == NULL)
		targets = idem_pin_table("idem targets", sizeof(Oid),
								 sizeof(TargetSlot), HASH_BLOBS);
	slot = hash_search(targets, &relid, HASH_ENTER, &found);
	if (!found)
	{
		slot->stale = false;
		slot->target = NULL;
	}
	return slot;
}

/*
 * The primary key's index, opened; NULL if there is none that can tell rows
 * apart at every moment.
 */
static Relation
target_open_key(Relation rel)
{
	Relation	index;

	list_free(RelationGetIndexList(rel));
	if (!OidIsValid(rel->rd_pkindex))
		return NULL;
	index = index_open(rel->rd_pkindex, AccessShareLock);
	if (index->rd_rel->relam == BTREE_AM_OID && index->rd_index->indimmediate)
		return index;
	index_close(index, AccessShareLock);
	return NULL;
}

/*
 * "OPERATOR(schema.=)", the index's own.
 */
static char *
target_operator(Relation index, int n)
{
	Oid			opcintype = index->rd_opcintype[n];
	Oid			operator = get_opfamily_member(index->rd_opfamily[n],
											   opcintype, opcintype,
											   BTEqualStrategyNumber);
	HeapTuple	tuple = SearchSysCache1(OPEROID, ObjectIdGetDatum(operator));
	Form_pg_operator form;
	char	   *result;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "no equality operator for key column %d of index %u",
			 n + 1, RelationGetRelid(index));
	form = (Form_pg_operator) GETSTRUCT(tuple);
	result = psprintf("OPERATOR(%s.%s)",
					  quote_identifier(get_namespace_name(form->oprnamespace)),
					  NameStr(form->oprname));
	ReleaseSysCache(tuple);
	return result;
}

/*
 * The column as the operator's operand: a domain over an enum or the like is
 * not taken for what it is over where the operator is polymorphic.
 */
static char *
target_operand(Form_pg_attribute att, Oid opcintype)
{
	const char *column = quote_identifier(NameStr(att->attname));
	Oid			base = getBaseType(att->atttypid);
	HeapTuple	tuple;
	Form_pg_type form;
	char	   *operand;

	if (base == att->atttypid || !IsPolymorphicType(opcintype))
		return psprintf("t.%s", column);
	tuple = SearchSysCache1(TYPEOID, ObjectIdGetDatum(base));
	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for type %u", base);
	form = (Form_pg_type) GETSTRUCT(tuple);
	operand = psprintf("t.%s::%s", column,
					   quote_qualified_identifier(get_namespace_name(form->typnamespace),
												  NameStr(form->typname)));
	ReleaseSysCache(tuple);
	return operand;
}

/*
 * All that is known of the table, in a context of its own.  NULL if it has no
 * primary key.
 */
static IdemTarget *
target_build(Relation rel)
{
	Relation	index = target_open_key(rel);
	MemoryContext context;
	MemoryContext caller;
	IdemTarget *target;
	StringInfoData condition;

	if (index == NULL)
		return NULL;

	context = AllocSetContextCreate(CurrentMemoryContext, "idem target",
									ALLOCSET_SMALL_SIZES);
	caller = MemoryContextSwitchTo(context);
	target = palloc0(sizeof(IdemTarget));
	target->context = context;
	target->relid = RelationGetRelid(rel);
	target->schema = get_namespace_name(RelationGetNamespace(rel));
	target->table = pstrdup(RelationGetRelationName(rel));
	target->name = quote_qualified_identifier(target->schema, target->table);
	target->only = rel->rd_rel->relkind == RELKIND_RELATION;
	target->nkeys = index->rd_index->indnkeyatts;
	target->attnums = palloc(target->nkeys * sizeof(AttrNumber));
	target->columns = palloc(target->nkeys * sizeof(char *));
	target->types = palloc(target->nkeys * sizeof(Oid));
	target->operators = palloc(target->nkeys * sizeof(char *));
	target->operands = palloc(target->nkeys * sizeof(char *));

	initStringInfo(&condition);
	for (int i = 0; i < target->nkeys; i++)
	{
		AttrNumber	attnum = index->rd_index->indkey.values[i];
		Form_pg_attribute att = TupleDescAttr(RelationGetDescr(rel),
											  attnum - 1);

		target->attnums[i] = attnum;
		target->columns[i] = pstrdup(NameStr(att->attname));
		target->types[i] = getBaseType(att->atttypid);
		target->operators[i] = target_operator(index, i);
		target->operands[i] = target_operand(att, index->rd_opcintype[i]);
		appendStringInfo(&condition, "%s%s %s $%d", i > 0 ? " AND " : "",
						 target->operands[i], target->operators[i], i + 1);
	}
	target->condition = condition.data;
	index_close(index, NoLock);

	MemoryContextSetParent(context, CacheMemoryContext);
	MemoryContextSwitchTo(caller);
	return target;
}

static IdemTarget *
target_of(Relation rel)
{
	TargetSlot *slot = target_slot(RelationGetRelid(rel));

	if (slot->target != NULL && slot->stale)
	{
		MemoryContext caller = MemoryContextSwitchTo(CacheMemoryContext);

		retired = lappend(retired, slot->target);
		slot->target = NULL;
		MemoryContextSwitchTo(caller);
	}
	if (slot->target == NULL)
	{
		/* first, so that what changes while we look is looked at again */
		slot->stale = false;
		slot->target = target_build(rel);
	}
	return slot->target;
}

/*
 * For who has locked the table already, such as a trigger.  NULL if it has no
 * primary key that would tell its rows apart.
 */
IdemTarget *
idem_target_find(Oid relid)
{
	Relation	rel = table_open(relid, NoLock);
	IdemTarget *target = target_of(rel);

	table_close(rel, NoLock);
	return target;
}

/*
 * Locks the table.  An error if it is no table, or its rows have no names.
 */
IdemTarget *
idem_target_open(Oid relid, LOCKMODE lockmode)
{
	Relation	rel = try_relation_open(relid, lockmode);
	IdemTarget *target;

	if (rel == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("relation with OID %u does not exist", relid),
				 errhidestmt(true)));
	if (rel->rd_rel->relkind != RELKIND_RELATION &&
		rel->rd_rel->relkind != RELKIND_PARTITIONED_TABLE)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" is not a table",
						RelationGetRelationName(rel)),
				 errdetail("Only a row of an ordinary or partitioned table can be named by its primary key."),
				 errhidestmt(true),
				 errtable(rel)));
	target = target_of(rel);
	if (target == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_MISUSE),
				 errmsg("table \"%s\" has no primary key",
						RelationGetRelationName(rel)),
				 errdetail("A row is named by the primary key of its table; a deferrable one, or one that is not a btree index, does not name rows at every moment."),
				 errhint("Add one with ALTER TABLE ... ADD PRIMARY KEY."),
				 errhidestmt(true),
				 errtable(rel)));
	relation_close(rel, NoLock);
	return target;
}

/*
 * Whether the statement is really about this table: between the look at its
 * name and now, schemas may have been renamed.  A rule may have left nothing of
 * it, and who gets no row back finds out why.
 */
static void
target_check_plan(const IdemTarget *target, SPIPlanPtr plan)
{
	ListCell   *lc;

	foreach(lc, SPI_plan_get_plan_sources(plan))
	{
		CachedPlanSource *source = (CachedPlanSource *) lfirst(lc);

		if (source->query_list == NIL ||
			list_member_oid(source->relationOids, target->relid))
			return;
	}
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_TABLE),
			 errmsg("table %s was renamed meanwhile", target->name),
			 errhidestmt(true)));
}

static SPIPlanPtr
target_prepare(const IdemTarget *target, const char *text, int nparams,
			   const Oid *types, int options)
{
	SPIPlanPtr	plan = idem_sql_prepare(text, nparams, types, options);

	target_check_plan(target, plan);
	return plan;
}

/*
 * The statement's plan, kept from the first time on as far as there is room.
 */
static TargetPlan *
target_keep(IdemTarget *target, const char *text, int nparams,
			const Oid *types, int options)
{
	ListCell   *lc;
	TargetPlan *kept;
	MemoryContext caller;

	foreach(lc, target->plans)
	{
		kept = (TargetPlan *) lfirst(lc);
		if (strcmp(kept->sql, text) == 0 && kept->nparams == nparams &&
			memcmp(kept->types, types, nparams * sizeof(Oid)) == 0)
			return kept;
	}
	if (list_length(target->plans) >= MAX_PLANS)
	{
		kept = palloc0(sizeof(TargetPlan));
		kept->plan = target_prepare(target, text, nparams, types, options);
		return kept;
	}

	caller = MemoryContextSwitchTo(target->context);
	kept = palloc0(sizeof(TargetPlan));
	kept->sql = pstrdup(text);
	kept->nparams = nparams;
	kept->types = palloc(nparams * sizeof(Oid));
	memcpy(kept->types, types, nparams * sizeof(Oid));
	MemoryContextSwitchTo(caller);

	kept->plan = target_prepare(target, text, nparams, types, options);
	SPI_keepplan(kept->plan);

	caller = MemoryContextSwitchTo(target->context);
	target->plans = lappend(target->plans, kept);
	MemoryContextSwitchTo(caller);
	return kept;
}

/*
 * The statement "HEAD table AS t MIDDLE WHERE key TAIL", while connected to
 * SPI.  What the caller writes is constant text, or identifiers quoted and
 * operators qualified by himself.  HEAD is "UPDATE", "DELETE FROM" or "SELECT ... FROM".
 */
SPIPlanPtr
idem_target_plan(IdemTarget *target, const char *head, const char *middle,
				 const char *tail, int nextra, const Oid *extra_types)
{
	int			nparams = target->nkeys + nextra;
	Oid		   *types = palloc(nparams * sizeof(Oid));

	memcpy(types, target->types, target->nkeys * sizeof(Oid));
	if (nextra > 0)
		memcpy(types + target->nkeys, extra_types, nextra * sizeof(Oid));
	return target_keep(target,
					   psprintf("%s %s%s AS t %s WHERE %s %s", head,
								target->only ? "ONLY " : "", target->name,
								middle, target->condition, tail),
					   nparams, types, 0)->plan;
}

/*
 * A statement about several rows, while connected to SPI, whose text the caller
 * has made in the same way.
 */
SPIPlanPtr
idem_target_plan_rows(IdemTarget *target, const char *text, int nparams,
					  const Oid *types)
{
	return target_prepare(target, text, nparams, types, 0);
}

/*
 * The same by a plan that is kept, and finds rows by the key's index; NULL if it
 * does not serve.
 */
SPIPlanPtr
idem_target_plan_few(IdemTarget *target, const char *text, int nparams,
					 const Oid *types)
{
	TargetPlan *kept = target_keep(target, text, nparams, types,
								   CURSOR_OPT_GENERIC_PLAN);

	return idem_sql_plan_by_index(kept->plan) ? kept->plan : NULL;
}

/*
 * Runs it, as the caller.  Rows that it returns are in SPI_tuptable, their
 * number in SPI_processed.
 */
void
idem_target_run(SPIPlanPtr plan, Datum *values, const char *nulls)
{
	int			rc = SPI_execute_snapshot(plan, values, nulls,
										  InvalidSnapshot, InvalidSnapshot,
										  false, true, 0);

	if (rc < 0)
		elog(ERROR, "SPI_execute_snapshot failed: %s",
			 SPI_result_code_string(rc));
}
