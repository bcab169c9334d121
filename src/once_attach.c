/*
 * once_attach.c
 *	  SQL functions idem_attach_once and idem_detach_once.
 *
 * Attaching locks the table and its partitions against writers until the
 * transaction ends, creates the triggers, and then records the keys of the
 * rows that are there (once_import.c).
 *
 * Scope and retention stand in the trigger's arguments, so that a dump keeps
 * them; the retention as ISO 8601, which every IntervalStyle reads alike.
 * Everything is done as the caller, who must own the table.
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/table.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "binding.h"
#include "catalog.h"
#include "compat.h"
#include "errors.h"
#include "guc.h"
#include "once.h"

PG_FUNCTION_INFO_V1(idem_attach_once);
PG_FUNCTION_INFO_V1(idem_detach_once);

#define MAX_SCOPE_LENGTH	128

/* holds off whoever writes, and whoever attaches */
#define ATTACH_LOCK			ShareRowExclusiveLock

/*
 * Opens and locks the table; an error if it is not one, or not the caller's.
 */
static Relation
attach_open(Oid relid)
{
	Relation	rel;
	char		relkind = get_rel_relkind(relid);

	if (relkind == '\0')
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("relation with OID %u does not exist", relid),
				 errhidestmt(true)));
	if (!IDEM_OWNS_RELATION(relid, GetUserId()))
		aclcheck_error(ACLCHECK_NOT_OWNER, get_relkind_objtype(relkind),
					   get_rel_name(relid));
	rel = relation_open(relid, ATTACH_LOCK);
	/* it may have changed hands while we waited */
	if (!IDEM_OWNS_RELATION(relid, GetUserId()))
		aclcheck_error(ACLCHECK_NOT_OWNER, get_relkind_objtype(relkind),
					   RelationGetRelationName(rel));
	return rel;
}

static void
attach_refuse(Relation rel, const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_WRONG_OBJECT_TYPE),
			 errmsg("cannot skip repeated inserts into \"%s\"",
					RelationGetRelationName(rel)),
			 errdetail("%s", detail),
			 errtable(rel),
			 errhidestmt(true)));
}

static void
attach_check_table(Relation rel)
{
	char		relkind = rel->rd_rel->relkind;

	if (relkind != RELKIND_RELATION && relkind != RELKIND_PARTITIONED_TABLE)
		attach_refuse(rel, "It is not a table, or is a foreign one.");
	if (idem_catalog_is_system(rel))
		attach_refuse(rel, "It is a system table, or one of idem's own.");
	if (rel->rd_rel->relpersistence != RELPERSISTENCE_PERMANENT)
		attach_refuse(rel, "It is temporary or unlogged: its keys would outlive its rows.");
	if (rel->rd_rel->relispartition)
		attach_refuse(rel, "It is a partition: attach the root, so that rows which move between partitions are told from new ones.");
	if (relkind == RELKIND_RELATION &&
		find_inheritance_children(RelationGetRelid(rel), NoLock) != NIL)
		attach_refuse(rel, "Other tables inherit from it, and inserts into those would not be seen.");
	if (idem_once_is_attached(rel))
		ereport(ERROR,
				(errcode(ERRCODE_DUPLICATE_OBJECT),
				 errmsg("table \"%s\" already skips repeated inserts",
						RelationGetRelationName(rel)),
				 errhint("Call idem_detach_once() first; the keys stay."),
				 errtable(rel),
				 errhidestmt(true)));
}

/*
 * The clause that names the key's columns, after checking them.
 */
static char *
attach_when_clause(Relation rel, ArrayType *columns)
{
	StringInfoData clause;
	Datum	   *names;
	bool	   *nulls;
	int			n;

	deconstruct_array(columns, NAMEOID, NAMEDATALEN, false, TYPALIGN_CHAR,
					  &names, &nulls, &n);
	if (n == 0)
		idem_report_missing("columns");

	initStringInfo(&clause);
	for (int i = 0; i < n; i++)
	{
		const char *name = nulls[i] ? NULL : NameStr(*DatumGetName(names[i]));
		AttrNumber	attnum;

		if (name == NULL)
			idem_report_missing("columns");
		for (int j = 0; j < i; j++)
		{
			if (strcmp(name, NameStr(*DatumGetName(names[j]))) == 0)
				ereport(ERROR,
						(errcode(ERRCODE_DUPLICATE_COLUMN),
						 errmsg("column \"%s\" is named twice", name),
						 errhidestmt(true)));
		}
		attnum = get_attnum(RelationGetRelid(rel), name);
		if (attnum == InvalidAttrNumber)
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_COLUMN),
					 errmsg("column \"%s\" of relation \"%s\" does not exist",
							name, RelationGetRelationName(rel)),
					 errhidestmt(true)));
		if (attnum < 0 ||
			TupleDescAttr(RelationGetDescr(rel), attnum - 1)->attgenerated)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_COLUMN_REFERENCE),
					 errmsg("column \"%s\" cannot be part of a key", name),
					 errdetail("System columns and generated columns have no value before the insert."),
					 errtable(rel),
					 errhidestmt(true)));
		appendStringInfo(&clause, "NEW.%s IS NOT NULL OR ",
						 quote_identifier(name));
	}
	appendStringInfoString(&clause, "true");
	return clause.data;
}

/*
 * The scope that is made of the table's name, whatever the session says of
 * quoting.
 */
static char *
attach_default_scope(Oid relid)
{
	const char *schema = get_namespace_name(get_rel_namespace(relid));
	bool		quote_all = quote_all_identifiers;
	char	   *volatile table = NULL;
	char	   *name;

	quote_all_identifiers = false;
	PG_TRY();
	{
		table = quote_qualified_identifier(schema, get_rel_name(relid));
	}
	PG_FINALLY();
	{
		quote_all_identifiers = quote_all;
	}
	PG_END_TRY();
	name = psprintf("once.%s", table);
	if (strlen(name) > MAX_SCOPE_LENGTH || strchr(name, '/') != NULL)
		name = psprintf("once.#%s", idem_once_digest(table, strlen(table)));
	return name;
}

/*
 * The scope as given, or by default.
 */
static char *
attach_scope(Oid relid, text *given)
{
	IdemScope	scope;
	char	   *name;

	if (given == NULL)
		given = cstring_to_text(attach_default_scope(relid));
	idem_scope_resolve(given, IDEM_SCOPE_OPERATING, &scope);
	name = text_to_cstring(given);
	if (idem_once_is_reserved(name))
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_BAD_ARGUMENT),
				 errmsg("idem scope \"%s\" is reserved", name),
				 errdetail("Scopes that begin with \"idem.\" belong to idem itself."),
				 errhidestmt(true)));
	return name;
}

/*
 * The retention as text that reads the same under every setting.
 */
static char *
attach_ttl(const Interval *ttl)
{
	int			nestlevel;
	char	   *result;

	if (ttl == NULL)
		return "";
	(void) idem_scope_deadline(GetCurrentTimestamp(), ttl, "ttl");
	nestlevel = NewGUCNestLevel();
	idem_guc_set("intervalstyle", "iso_8601");
	result = DatumGetCString(DirectFunctionCall1(interval_out,
												 IntervalPGetDatum(ttl)));
	AtEOXact_GUC(true, nestlevel);
	return result;
}

static void
attach_run(const char *statement)
{
	int			rc = SPI_execute(statement, false, 0);

	if (rc != SPI_OK_UTILITY)
		elog(ERROR, "SPI_execute failed: %s", SPI_result_code_string(rc));
}

static char *
attach_table_name(Relation rel)
{
	return pstrdup(quote_qualified_identifier(get_namespace_name(RelationGetNamespace(rel)),
											  RelationGetRelationName(rel)));
}

static void
attach_create_triggers(Relation rel, const char *function_schema,
					   const char *when, const char *scope, const char *ttl)
{
	const char *table = attach_table_name(rel);
	const char *schema = quote_identifier(function_schema);

	SPI_connect();
	attach_run(psprintf("CREATE TRIGGER \"" IDEM_ONCE_TRIGGER "\""
						" BEFORE INSERT ON %s FOR EACH ROW WHEN (%s)"
						" EXECUTE FUNCTION %s." IDEM_ONCE_FUNCTION "(%s, %s)",
						table, when, schema, quote_literal_cstr(scope),
						quote_literal_cstr(ttl)));
	attach_run(psprintf("CREATE TRIGGER \"" IDEM_ONCE_TRIGGER "_done\""
						" AFTER INSERT ON %s FOR EACH ROW WHEN"
						" (GREATEST(NEW.ctid::%s.idem_inserted,"
						" NEW.ctid::%s.idem_inserted) IS NULL)"
						" EXECUTE FUNCTION %s." IDEM_ONCE_FUNCTION "()",
						table, schema, schema, schema));
	attach_run(psprintf("CREATE TRIGGER \"" IDEM_ONCE_TRIGGER "_end\""
						" AFTER INSERT ON %s FOR EACH STATEMENT"
						" EXECUTE FUNCTION %s." IDEM_ONCE_FUNCTION "()",
						table, schema));
	if (rel->rd_rel->relkind == RELKIND_PARTITIONED_TABLE)
		attach_run(psprintf("CREATE TRIGGER \"" IDEM_ONCE_TRIGGER "_move\""
							" BEFORE UPDATE OR DELETE ON %s FOR EACH ROW"
							" EXECUTE FUNCTION %s." IDEM_ONCE_FUNCTION "()",
							table, schema));
	SPI_finish();
}

/*
 * Refuses partitions that are no tables of our own.
 */
static void
attach_check_partitions(Relation root)
{
	List	   *relids = find_all_inheritors(RelationGetRelid(root),
											 ATTACH_LOCK, NULL);
	ListCell   *lc;

	foreach(lc, relids)
	{
		Relation	rel = table_open(lfirst_oid(lc), NoLock);

		if (rel->rd_rel->relkind == RELKIND_FOREIGN_TABLE)
			attach_refuse(rel, "It is a foreign table, where others insert unseen.");
		if (rel->rd_rel->relpersistence != RELPERSISTENCE_PERMANENT)
			attach_refuse(rel, "It is unlogged: its keys would outlive its rows.");
		table_close(rel, NoLock);
	}
	list_free(relids);
}

/*
 * How many keys are in the scope that the table will have, which is returned.
 * That takes long in a large registry, so that it is asked before the table is
 * locked; whoever may not attach it is told so after that: NULL, not counted.
 */
static char *
attach_count_former_keys(Oid relid, text *given, int64 *former_keys)
{
	char	   *scope;

	idem_once_watch(relid);
	if (get_rel_name(relid) == NULL ||
		!IDEM_OWNS_RELATION(relid, GetUserId()))
		return NULL;
	scope = attach_scope(relid, given);
	*former_keys = idem_once_count_keys(cstring_to_text(scope));
	return scope;
}

/*
 * idem_attach_once(table_name, columns, scope, ttl) -> true
 */
Datum
idem_attach_once(PG_FUNCTION_ARGS)
{
	Oid			relid;
	Relation	rel;
	char	   *when;
	char	   *scope;
	char	   *schema;
	char	   *counted;
	int64		former_keys = 0;

	idem_require_argument(fcinfo, 0, "table_name");
	idem_require_argument(fcinfo, 1, "columns");
	idem_require_writable("idem_attach_once()");

	relid = PG_GETARG_OID(0);
	counted = attach_count_former_keys(relid, IDEM_ARG_TEXT(2), &former_keys);
	rel = attach_open(relid);
	attach_check_table(rel);
	when = attach_when_clause(rel, PG_GETARG_ARRAYTYPE_P(1));
	scope = attach_scope(relid, IDEM_ARG_TEXT(2));
	schema = get_namespace_name(get_func_namespace(fcinfo->flinfo->fn_oid));
	idem_catalog_check_idle(rel, ATTACH_LOCK, "Call idem_attach_once()");

	/*
	 * It may have been attached meanwhile, and its rows be gone again; or it,
	 * or its schema, have another name.
	 */
	if (counted == NULL || strcmp(counted, scope) != 0 ||
		idem_once_watched_changed())
		former_keys = idem_once_count_keys(cstring_to_text(scope));

	/*
	 * A partition whose detaching began while we waited gets no triggers, and
	 * must not be listed below either: CREATE TRIGGER does not look with the
	 * statement's snapshot, but with one like this.
	 */
	PushActiveSnapshot(GetTransactionSnapshot());
	attach_create_triggers(rel, schema, when, scope,
						   attach_ttl(IDEM_ARG_INTERVAL(3)));
	CommandCounterIncrement();
	attach_check_partitions(rel);
	idem_once_import(rel, former_keys);
	relation_close(rel, NoLock);
	PopActiveSnapshot();
	idem_trigger_warn_of_owners(relid);
	PG_RETURN_BOOL(true);
}

/*
 * Tells where the keys are, if the next attach would not find them by itself.
 */
static void
detach_tell_scope(Relation rel, const char *scope)
{
	if (scope != NULL && strcmp(scope, attach_default_scope(RelationGetRelid(rel))) != 0)
		ereport(NOTICE,
				(errmsg("keys of table \"%s\" stay in scope \"%s\"",
						RelationGetRelationName(rel), scope),
				 errhint("Give that scope to idem_attach_once() for them to count again."),
				 errtable(rel),
				 errhidestmt(true)));
}

/*
 * idem_detach_once(table_name) -> true
 */
Datum
idem_detach_once(PG_FUNCTION_ARGS)
{
	Relation	rel;
	const char *table;
	const char *scope = NULL;
	int			dropped = 0;
	List	   *names = NIL;
	ListCell   *lc;
	TriggerDesc *triggers;

	idem_require_argument(fcinfo, 0, "table_name");
	idem_require_writable("idem_detach_once()");

	rel = attach_open(PG_GETARG_OID(0));
	table = attach_table_name(rel);
	triggers = CopyTriggerDesc(rel->trigdesc);
	for (int i = 0; triggers != NULL && i < triggers->numtriggers; i++)
	{
		const Trigger *trigger = &triggers->triggers[i];

		if (!trigger->tgisclone && idem_once_is_ours(trigger))
			names = lappend(names, pstrdup(trigger->tgname));
		if (idem_once_is_ours(trigger) && trigger->tgnargs == 2)
			scope = pstrdup(trigger->tgargs[0]);
	}
	if (names == NIL)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_MISUSE),
				 errmsg("table \"%s\" does not skip repeated inserts",
						RelationGetRelationName(rel)),
				 errdetail("idem_attach_once() was not called for it, or for the root of its partitions instead."),
				 errtable(rel),
				 errhidestmt(true)));
	idem_catalog_check_idle(rel, AccessExclusiveLock, "Call idem_detach_once()");
	detach_tell_scope(rel, scope);
	relation_close(rel, NoLock);

	SPI_connect();
	foreach(lc, names)
	{
		attach_run(psprintf("DROP TRIGGER %s ON %s",
							quote_identifier((char *) lfirst(lc)), table));
		dropped++;
	}
	SPI_finish();
	PG_RETURN_BOOL(dropped > 0);
}
