/*
 * version.c
 *	  SQL functions idem_attach_version and idem_detach_version.
 *
 * Attaching makes a trigger, as the caller; rowversion.c says what stands in
 * it.  The table is locked first, in the mode in which CREATE TRIGGER locks
 * it, so that what is looked at stays so.
 */
#include "postgres.h"

#include <ctype.h>

#include "access/genam.h"
#include "access/relation.h"
#include "access/table.h"
#include "catalog/objectaddress.h"
#include "catalog/partition.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_trigger.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "binding.h"
#include "catalog.h"
#include "compat.h"
#include "errors.h"
#include "registry.h"
#include "rowversion.h"

PG_FUNCTION_INFO_V1(idem_attach_version);
PG_FUNCTION_INFO_V1(idem_detach_version);

#define TRIGGER_NAME	"~idem_version"
#define ARRIVAL_NAME	TRIGGER_NAME "_moved"

/*
 * Locks a table that the caller owns.
 */
static Relation
version_open_table(Oid relid)
{
	Relation	rel;

	/* whoever does not own it shall not lock it */
	if (get_rel_name(relid) != NULL && !IDEM_OWNS_RELATION(relid, GetUserId()))
		aclcheck_error(ACLCHECK_NOT_OWNER,
					   get_relkind_objtype(get_rel_relkind(relid)),
					   get_rel_name(relid));
	rel = try_relation_open(relid, ShareRowExclusiveLock);
	if (rel == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("relation with OID %u does not exist", relid),
				 errhidestmt(true)));
	/* it may have changed hands while we waited */
	if (!IDEM_OWNS_RELATION(relid, GetUserId()))
		aclcheck_error(ACLCHECK_NOT_OWNER,
					   get_relkind_objtype(rel->rd_rel->relkind),
					   RelationGetRelationName(rel));
	if (rel->rd_rel->relkind != RELKIND_RELATION &&
		rel->rd_rel->relkind != RELKIND_PARTITIONED_TABLE)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" is not a table",
						RelationGetRelationName(rel)),
				 errdetail("Only ordinary and partitioned tables can have a version column."),
				 errhidestmt(true),
				 errtable(rel)));
	if (idem_catalog_is_system(rel))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("\"%s\" is a table of the system",
						RelationGetRelationName(rel)),
				 errhidestmt(true)));
	return rel;
}

static void
version_refuse_column(Relation rel, AttrNumber column, int sqlstate,
					  const char *detail, const char *hint)
{
	ereport(ERROR,
			(errcode(sqlstate),
			 errmsg("column \"%s\" of table \"%s\" cannot be a version",
					NameStr(TupleDescAttr(RelationGetDescr(rel),
										  column - 1)->attname),
					RelationGetRelationName(rel)),
			 errdetail("%s", detail),
			 hint != NULL ? errhint("%s", hint) : 0,
			 errhidestmt(true),
			 errtablecol(rel, column)));
}

static bool
version_is_in_key(Relation rel, AttrNumber column)
{
	Bitmapset  *key = RelationGetIndexAttrBitmap(rel,
												 INDEX_ATTR_BITMAP_PRIMARY_KEY);
	bool		member = bms_is_member(column - FirstLowInvalidHeapAttributeNumber,
									   key);

	bms_free(key);
	return member ||
		(rel->rd_rel->relkind == RELKIND_PARTITIONED_TABLE &&
		 has_partition_attrs(rel,
							 bms_make_singleton(column - FirstLowInvalidHeapAttributeNumber),
							 NULL));
}

static AttrNumber
version_find_column(Relation rel, const char *name)
{
	AttrNumber	column = get_attnum(RelationGetRelid(rel), name);

	if (column <= 0)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_COLUMN),
				 errmsg("column \"%s\" of table \"%s\" does not exist",
						name, RelationGetRelationName(rel)),
				 errhidestmt(true),
				 errtable(rel)));
	return column;
}

/*
 * A column that can count: an integer, never NULL, that nothing else computes.
 */
static AttrNumber
version_check_column(Relation rel, const char *name)
{
	AttrNumber	column = version_find_column(rel, name);
	Form_pg_attribute att = TupleDescAttr(RelationGetDescr(rel), column - 1);
	Oid			base = getBaseType(att->atttypid);

	if (base != INT2OID && base != INT4OID && base != INT8OID)
		version_refuse_column(rel, column, ERRCODE_DATATYPE_MISMATCH,
							  "A version is a smallint, integer or bigint, or a domain over one of them.",
							  NULL);
	if (att->attgenerated != '\0')
		version_refuse_column(rel, column, ERRCODE_IDEM_MISUSE,
							  "It is a generated column.", NULL);
	if (att->attidentity != '\0')
		version_refuse_column(rel, column, ERRCODE_IDEM_MISUSE,
							  "It is an identity column.", NULL);
	if (!att->attnotnull)
		version_refuse_column(rel, column, ERRCODE_IDEM_MISUSE,
							  "It may be null.",
							  "Fill it, then ALTER TABLE ... ALTER COLUMN ... SET NOT NULL, and give it a default.");
	if (version_is_in_key(rel, column))
		version_refuse_column(rel, column, ERRCODE_IDEM_MISUSE,
							  "It belongs to the primary key or the partition key.",
							  NULL);
	return column;
}

/*
 * The last name of those triggers that fire before the row is updated, or inserted,
 * idem's own aside, or the name given; partitions may have more of them.
 */
static const char *
version_last_trigger(Relation rel, Oid schema, int16 event, const char *name)
{
	TriggerDesc *desc = CopyTriggerDesc(rel->trigdesc);

	for (int i = 0; desc != NULL && i < desc->numtriggers; i++)
	{
		const Trigger *trigger = &desc->triggers[i];

		if (TRIGGER_FOR_BEFORE(trigger->tgtype) &&
			TRIGGER_FOR_ROW(trigger->tgtype) &&
			(trigger->tgtype & event) != 0 &&
			strcmp(trigger->tgname, name) > 0 &&
			!idem_rowversion_is_harmless(trigger->tgfoid, schema))
			name = pstrdup(trigger->tgname);
	}
	return name;
}

/*
 * Whether a character may stand in the midst of a word.
 */
static bool
version_is_of_word(char c)
{
	return isalnum((unsigned char) c) || c == '_' || c == '$' ||
		IS_HIGHBIT_SET(c);
}

/*
 * Whether a text has the name as a word, in any case.
 */
static bool
version_names_it(const char *source, const char *name)
{
	int			length = strlen(name);

	for (const char *at = source; *at != '\0'; at++)
	{
		if (pg_strncasecmp(at, name, length) == 0 &&
			!version_is_of_word(at[length]) &&
			(at == source || !version_is_of_word(at[-1])))
			return true;
	}
	return false;
}

/*
 * Warns of triggers that fire before the version is checked and may set it: what
 * the writer sent is gone then, and what they set passes.  Whether they do is not
 * known; that the source of the function, or the trigger's arguments, name the
 * column is.
 */
static void
version_warn_of_setters(Relation rel, Oid schema, const char *column)
{
	TriggerDesc *desc = CopyTriggerDesc(rel->trigdesc);

	for (int i = 0; desc != NULL && i < desc->numtriggers; i++)
	{
		const Trigger *trigger = &desc->triggers[i];
		HeapTuple	function;
		Datum		source;
		bool		isnull;
		bool		named;

		if (!TRIGGER_FOR_BEFORE(trigger->tgtype) ||
			!TRIGGER_FOR_ROW(trigger->tgtype) ||
			!TRIGGER_FOR_UPDATE(trigger->tgtype) ||
			trigger->tgisclone || trigger->tgenabled == TRIGGER_DISABLED ||
			idem_rowversion_is_harmless(trigger->tgfoid, schema))
			continue;
		function = SearchSysCache1(PROCOID, ObjectIdGetDatum(trigger->tgfoid));
		if (!HeapTupleIsValid(function))
			continue;
		source = SysCacheGetAttr(PROCOID, function, Anum_pg_proc_prosrc, &isnull);
		named = !isnull && version_names_it(TextDatumGetCString(source), column);
		ReleaseSysCache(function);
		for (int n = 0; n < trigger->tgnargs; n++)
			named = named || pg_strcasecmp(trigger->tgargs[n], column) == 0;
		if (named)
			ereport(WARNING,
					(errmsg("trigger \"%s\" of table \"%s\" may set column \"%s\" before it is checked",
							trigger->tgname, RelationGetRelationName(rel),
							column),
					 errdetail("Its function %s() names the column. If it sets it, the version that an UPDATE gives is lost, and no plain UPDATE is checked.",
							   get_func_name(trigger->tgfoid)),
					 errhint("Drop the trigger in this transaction, unless it only reads the column."),
					 errtable(rel)));
	}
}

/*
 * The table's triggers for rows that arrive, by name, but those that go with a
 * parent's.  They are left where the version's was dropped by hand.
 */
static List *
version_arrivals(Relation rel)
{
	TriggerDesc *desc = CopyTriggerDesc(rel->trigdesc);
	List	   *names = NIL;

	for (int i = 0; desc != NULL && i < desc->numtriggers; i++)
	{
		const Trigger *trigger = &desc->triggers[i];

		if (!trigger->tgisclone && idem_rowversion_is_arrival(trigger))
			names = lappend(names, trigger->tgname);
	}
	return names;
}

/*
 * The table that the version of a partition was attached to, NULL if to itself.
 */
static const char *
version_above(Relation rel, const IdemVersion *version)
{
	Oid			table = idem_trigger_made_for(version->trigger);

	return table == RelationGetRelid(rel) ? NULL : get_rel_name(table);
}

/*
 * Refuses a partition that has a version by itself, or what is left of one: it
 * cannot have two.
 */
static void
version_refuse_partition(Relation member)
{
	IdemVersion version;

	if (!idem_rowversion_find(member, &version) &&
		version_arrivals(member) == NIL)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_DUPLICATE_OBJECT),
			 errmsg("partition \"%s\" has a version column by itself",
					RelationGetRelationName(member)),
			 errdetail("A trigger that idem_attach_version() made is on it."),
			 errhint("Call idem_detach_version() for the partition first."),
			 errhidestmt(true),
			 errtable(member)));
}

/*
 * A name for a trigger of ours that sorts behind all of them, in the table and its
 * partitions, which are locked.  One before updates is about the column; one before
 * inserts, where that is NULL, is not needed if there are no others: NULL.
 */
static const char *
version_choose_name(Relation rel, Oid schema, int16 event, const char *name,
					const char *column)
{
	const char *last = "";
	ListCell   *lc;

	foreach(lc, find_all_inheritors(RelationGetRelid(rel),
									ShareRowExclusiveLock, NULL))
	{
		Relation	member;

		if (rel->rd_rel->relkind != RELKIND_PARTITIONED_TABLE &&
			lfirst_oid(lc) != RelationGetRelid(rel))
			continue;
		member = table_open(lfirst_oid(lc), NoLock);
		last = version_last_trigger(member, schema, event, last);
		if (member != rel)
			version_refuse_partition(member);
		if (column != NULL)
			version_warn_of_setters(member, schema, column);
		table_close(member, NoLock);
	}
	if (last[0] == '\0' && column == NULL)
		return NULL;
	if (strcmp(last, name) <= 0)
		return name;
	if (strlen(last) + strlen(name) >= NAMEDATALEN)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_MISUSE),
				 errmsg("no trigger of table \"%s\" could be the last one",
						RelationGetRelationName(rel)),
				 errdetail("Trigger \"%s\" would fire after the version was checked.",
						   last),
				 errhint("Give that trigger another name."),
				 errhidestmt(true),
				 errtable(rel)));
	return psprintf("%s%s", last, name);
}

static void
version_warn_of_children(Relation rel)
{
	if (rel->rd_rel->relkind != RELKIND_PARTITIONED_TABLE &&
		find_inheritance_children(RelationGetRelid(rel), NoLock) != NIL)
		ereport(WARNING,
				(errmsg("tables that inherit from \"%s\" get no version check of their own",
						RelationGetRelationName(rel)),
				 errhint("Call idem_attach_version() for each of them.")));
}

/*
 * The WHEN clause, always true, that names the columns.
 */
static void
version_add_when(StringInfo statement, Relation rel, AttrNumber column,
				 ArrayType *ignore)
{
	TupleDesc	desc = RelationGetDescr(rel);
	Datum	   *names;
	bool	   *nulls;
	int			n = 0;

	appendStringInfo(statement, " WHEN (NEW.%s IS NOT NULL OR true",
					 quote_identifier(NameStr(TupleDescAttr(desc, column - 1)->attname)));
	if (ignore != NULL)
		deconstruct_array(ignore, NAMEOID, NAMEDATALEN, false, TYPALIGN_CHAR,
						  &names, &nulls, &n);
	for (int i = 0; i < n; i++)
	{
		const char *name;

		if (nulls[i])
			ereport(ERROR,
					(errcode(ERRCODE_IDEM_BAD_ARGUMENT),
					 errmsg("argument \"ignore\" has a null element"),
					 errhidestmt(true)));
		name = NameStr(*DatumGetName(names[i]));
		if (version_find_column(rel, name) == column)
			version_refuse_column(rel, column, ERRCODE_IDEM_BAD_ARGUMENT,
								  "It is among the columns to be ignored.",
								  NULL);
		appendStringInfo(statement, " OR OLD.%s IS NOT NULL",
						 quote_identifier(name));
	}
	appendStringInfoChar(statement, ')');
}

static void
version_execute(const char *statement)
{
	int			rc;

	SPI_connect();
	rc = SPI_execute(statement, false, 0);
	if (rc != SPI_OK_UTILITY)
		elog(ERROR, "SPI_execute failed: %s", SPI_result_code_string(rc));
	SPI_finish();
}

static const char *
version_qualified_name(Relation rel)
{
	return quote_qualified_identifier(get_namespace_name(RelationGetNamespace(rel)),
									  RelationGetRelationName(rel));
}

static void
version_drop(const char *table, List *names)
{
	ListCell   *lc;

	foreach(lc, names)
		version_execute(psprintf("DROP TRIGGER %s ON %s",
								 quote_identifier(lfirst(lc)), table));
}

/*
 * idem_attach_version(table_name, column_name, mode, strict, retryable,
 * ignore) -> boolean
 */
Datum
idem_attach_version(PG_FUNCTION_ARGS)
{
	Relation	rel;
	IdemVersion version;
	AttrNumber	column;
	StringInfoData statement;
	const char *arrival = NULL;
	const char *table;
	List	   *left;
	const char *above;
	const char *mode = PG_ARGISNULL(2) ? "read" :
	text_to_cstring(PG_GETARG_TEXT_PP(2));
	bool		strict = !PG_ARGISNULL(3) && PG_GETARG_BOOL(3);
	bool		retryable = !PG_ARGISNULL(4) && PG_GETARG_BOOL(4);
	Oid			schema = get_func_namespace(fcinfo->flinfo->fn_oid);
	ArrayType  *ignore = PG_ARGISNULL(5) ? NULL : PG_GETARG_ARRAYTYPE_P(5);

	idem_require_argument(fcinfo, 0, "table_name");
	idem_require_argument(fcinfo, 1, "column_name");
	if (strcmp(mode, "read") != 0 && strcmp(mode, "next") != 0)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_BAD_ARGUMENT),
				 errmsg("invalid value for argument \"mode\""),
				 errhint("Available modes are \"read\" and \"next\"."),
				 errhidestmt(true)));
	idem_require_writable("idem_attach_version()");

	rel = version_open_table(PG_GETARG_OID(0));
	column = version_check_column(rel, NameStr(*PG_GETARG_NAME(1)));
	if (idem_rowversion_find(rel, &version))
	{
		above = version_above(rel, &version);
		ereport(ERROR,
				(errcode(ERRCODE_DUPLICATE_OBJECT),
				 errmsg("table \"%s\" already has a version column",
						RelationGetRelationName(rel)),
				 above != NULL ?
				 errdetail("It is column \"%s\", by a table above it.",
						   version.column_name) :
				 errdetail("It is column \"%s\".", version.column_name),
				 above != NULL ?
				 errhint("Detach it from table \"%s\".", above) :
				 errhint("Call idem_detach_version() first."),
				 errhidestmt(true),
				 errtablecol(rel, version.column)));
	}

	idem_trigger_refuse_taken(rel, column);
	idem_catalog_check_idle(rel, ShareRowExclusiveLock,
							"Call idem_attach_version()");
	version_warn_of_children(rel);
	table = version_qualified_name(rel);
	left = version_arrivals(rel);
	initStringInfo(&statement);
	appendStringInfo(&statement, "CREATE TRIGGER %s BEFORE UPDATE ON %s FOR EACH ROW",
					 quote_identifier(version_choose_name(rel, schema,
														  TRIGGER_TYPE_UPDATE,
														  TRIGGER_NAME,
														  NameStr(*PG_GETARG_NAME(1)))),
					 table);
	version_add_when(&statement, rel, column, ignore);
	appendStringInfo(&statement, " EXECUTE FUNCTION %s.idem_rowversion('%s'%s%s)",
					 quote_identifier(get_namespace_name(schema)),
					 mode, strict ? ", 'strict'" : "",
					 retryable ? ", 'retryable'" : "");
	if (rel->rd_rel->relkind == RELKIND_PARTITIONED_TABLE)
		arrival = version_choose_name(rel, schema, TRIGGER_TYPE_INSERT,
									  ARRIVAL_NAME, NULL);
	if (arrival != NULL)
		arrival = psprintf("CREATE TRIGGER %s BEFORE INSERT ON %s FOR EACH ROW EXECUTE FUNCTION %s.idem_rowversion('%s')",
						   quote_identifier(arrival), table,
						   quote_identifier(get_namespace_name(schema)),
						   IDEM_VERSION_ARRIVES);
	table_close(rel, NoLock);
	version_drop(table, left);
	version_execute(statement.data);
	if (arrival != NULL)
		version_execute(arrival);
	idem_trigger_warn_of_owners(PG_GETARG_OID(0));
	PG_RETURN_BOOL(true);
}

/*
 * idem_detach_version(table_name) -> boolean
 */
Datum
idem_detach_version(PG_FUNCTION_ARGS)
{
	Relation	rel;
	IdemVersion version;
	const char *table;
	const char *above = NULL;
	List	   *names;

	idem_require_argument(fcinfo, 0, "table_name");
	idem_require_writable("idem_detach_version()");

	rel = version_open_table(PG_GETARG_OID(0));
	names = version_arrivals(rel);
	if (idem_rowversion_find(rel, &version))
	{
		above = version_above(rel, &version);
		if (above == NULL)
			names = lcons(version.trigger_name, names);
	}
	if (names == NIL && above != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("version of table \"%s\" was attached to a table above it",
						RelationGetRelationName(rel)),
				 errhint("Detach it from table \"%s\".", above),
				 errhidestmt(true),
				 errtable(rel)));
	if (names == NIL)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_MISUSE),
				 errmsg("table \"%s\" has no version column",
						RelationGetRelationName(rel)),
				 errhidestmt(true),
				 errtable(rel)));
	idem_catalog_check_idle(rel, ShareRowExclusiveLock,
							"Call idem_detach_version()");
	table = version_qualified_name(rel);
	table_close(rel, NoLock);
	version_drop(table, names);
	PG_RETURN_BOOL(true);
}
