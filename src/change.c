/*
 * change.c
 *	  SQL functions idem_update and idem_delete: a row is changed only if it
 *	  still has the version that the caller read.
 *
 * One UPDATE or DELETE with the version in its WHERE clause does it.  At READ
 * COMMITTED it waits for whoever holds the row and then looks at what that one
 * left, so that of two writers with one version exactly one finds the row.
 * Where it finds none, the row is read with a new snapshot: absent it is
 * missing, with another version it is stale.
 *
 * The row read may have the very version asked for: inserted meanwhile, or
 * hidden from the UPDATE by row security or a trigger.  Then it is locked and
 * tried once more; what does not change even so is an error.  Above READ COMMITTED there is one snapshot, and a row changed after
 * it is PostgreSQL's own 40001.
 *
 * All of it runs as the caller, with his privileges and row security; the
 * current row is shown as far as he may see it.  Values that cannot be
 * converted are ID400; the message names the column, never the value.
 *
 * Locks: the table, ROW EXCLUSIVE; then the row.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/jsonb.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/rls.h"

#include "compat.h"
#include "errors.h"
#include "function.h"
#include "rowversion.h"
#include "target.h"

PG_FUNCTION_INFO_V1(idem_update);
PG_FUNCTION_INFO_V1(idem_delete);

/* how often a row that is hidden from locking may look as if it were there */
#define MAX_ATTEMPTS	5

/* columns of idem_versioned */
enum
{
	OUT_OUTCOME,
	OUT_VERSION,
	OUT_CURRENT,
	OUT_N
};

/* one call of either verb */
typedef struct Change
{
	const char *verb;
	IdemTarget *target;
	Relation	rel;
	IdemVersion column;
	int64		version;		/* as given */
	int64		done_version;	/* what the row has if it was changed */
	Datum	   *values;			/* parameters, the key first */
	char	   *nulls;
	Oid		   *types;			/* of those after the key */
	int			nextra;
	bool		unversioned;	/* the row read has none: NOT NULL was dropped */
	const char *head;
	StringInfoData middle;
	StringInfoData tail;
} Change;

static void
change_missing_argument(const char *name, int sqlstate)
{
	ereport(ERROR,
			(errcode(sqlstate),
			 errmsg("argument \"%s\" is missing", name),
			 errhidestmt(true)));
}

/*
 * Adds a parameter and returns its number.
 */
static int
change_add(Change *change, Datum value, bool isnull, Oid type)
{
	int			n = change->target->nkeys + change->nextra;

	change->values[n] = value;
	change->nulls[n] = isnull ? 'n' : ' ';
	change->types[change->nextra++] = type;
	return n + 1;
}

/*
 * A value that is an array or object: as jsonb_to_record() would take it.
 */
static Datum
change_convert_nested(Form_pg_attribute att, JsonbValue *value, bool *isnull)
{
	LOCAL_FCINFO(fcinfo, 1);
	FmgrInfo	flinfo;
	ReturnSetInfo rsinfo;
	TupleDesc	desc = CreateTemplateTupleDesc(1);
	HeapTupleData tuple;
	JsonbParseState *state = NULL;
	JsonbValue	name;
	Datum		record;
	Datum		converted;

	TupleDescInitEntry(desc, 1, "v", att->atttypid, att->atttypmod, 0);
	desc = BlessTupleDesc(desc);

	pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
	name.type = jbvString;
	name.val.string.val = "v";
	name.val.string.len = 1;
	pushJsonbValue(&state, WJB_KEY, &name);
	pushJsonbValue(&state, WJB_VALUE, value);

	memset(&rsinfo, 0, sizeof(rsinfo));
	rsinfo.type = T_ReturnSetInfo;
	rsinfo.expectedDesc = desc;
	fmgr_info(F_JSONB_TO_RECORD, &flinfo);
	fmgr_info_set_expr((Node *) makeFuncExpr(F_JSONB_TO_RECORD, RECORDOID,
											 list_make1(makeNullConst(JSONBOID, -1, InvalidOid)),
											 InvalidOid, InvalidOid,
											 COERCE_EXPLICIT_CALL), &flinfo);
	InitFunctionCallInfoData(*fcinfo, &flinfo, 1, InvalidOid, NULL,
							 (Node *) &rsinfo);
	fcinfo->args[0].value = JsonbPGetDatum(JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, NULL)));
	fcinfo->args[0].isnull = false;
	record = FunctionCallInvoke(fcinfo);

	tuple.t_data = DatumGetHeapTupleHeader(record);
	tuple.t_len = HeapTupleHeaderGetDatumLength(tuple.t_data);
	ItemPointerSetInvalid(&tuple.t_self);
	tuple.t_tableOid = InvalidOid;
	heap_deform_tuple(&tuple, desc, &converted, isnull);
	return converted;
}

static char *
change_print_scalar(JsonbValue *value, bool as_json)
{
	if (as_json || value->type == jbvBinary)
	{
		Jsonb	   *jsonb = JsonbValueToJsonb(value);

		return JsonbToCString(NULL, &jsonb->root, VARSIZE(jsonb));
	}
	switch (value->type)
	{
		case jbvString:
			return pnstrdup(value->val.string.val, value->val.string.len);
		case jbvNumeric:
			return DatumGetCString(DirectFunctionCall1(numeric_out,
													   NumericGetDatum(value->val.numeric)));
		case jbvBool:
			return value->val.boolean ? "true" : "false";
		default:
			return NULL;
	}
}

/*
 * The column's value, as jsonb_populate_record() would make it.
 */
static Datum
change_convert_value(Form_pg_attribute att, JsonbValue *value, bool *isnull)
{
	Oid			base = getBaseType(att->atttypid);
	bool		is_json = base == JSONBOID || base == JSONOID;
	Oid			input;
	Oid			ioparam;

	if (value->type == jbvBinary && !is_json)
		return change_convert_nested(att, value, isnull);
	*isnull = value->type == jbvNull;
	getTypeInputInfo(att->atttypid, &input, &ioparam);
	/* a NULL is for the checks of a domain */
	return OidInputFunctionCall(input,
								*isnull ? NULL :
								change_print_scalar(value, is_json),
								ioparam, att->atttypmod);
}

static Datum
change_convert(Relation rel, Form_pg_attribute att, JsonbValue *value,
			   bool *isnull)
{
	MemoryContext context = CurrentMemoryContext;
	volatile Datum result = (Datum) 0;

	PG_TRY();
	{
		result = change_convert_value(att, value, isnull);
	}
	PG_CATCH();
	{
		const char *sqlstate = idem_argument_reword(context);

		ereport(ERROR,
				(errcode(ERRCODE_IDEM_BAD_ARGUMENT),
				 errmsg("new value of column \"%s\" cannot be converted to type %s",
						NameStr(att->attname),
						format_type_with_typemod(att->atttypid,
												 att->atttypmod)),
				 errdetail("The conversion failed with SQLSTATE %s.",
						   sqlstate),
				 errhidestmt(true),
				 errtablecol(rel, att->attnum)));
	}
	PG_END_TRY();
	return result;
}

/*
 * There is a name in "changes" that no column has.
 */
static void
change_refuse_unknown(Relation rel, Jsonb *changes)
{
	JsonbIterator *it = JsonbIteratorInit(&changes->root);
	JsonbIteratorToken token;
	JsonbValue	v;

	while ((token = JsonbIteratorNext(&it, &v, true)) != WJB_DONE)
	{
		char	   *name;

		if (token != WJB_KEY)
			continue;
		name = pnstrdup(v.val.string.val, v.val.string.len);
		if (strlen(name) < NAMEDATALEN &&
			get_attnum(RelationGetRelid(rel), name) > 0)
			continue;
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_BAD_ARGUMENT),
				 errmsg("argument \"changes\" names a column that table \"%s\" does not have",
						RelationGetRelationName(rel)),
				 strlen(name) < NAMEDATALEN ?
				 errdetail("There is no column \"%s\".", name) : 0,
				 errhidestmt(true),
				 errtable(rel)));
	}
}

/*
 * Makes "SET column = $n, ..." of the changes, the next version included.
 */
static void
change_set(Change *change, Jsonb *changes)
{
	TupleDesc	desc = RelationGetDescr(change->rel);
	int64		next = change->version <
	idem_rowversion_max(change->column.base) ?
	change->version + 1 : change->version;
	int			matched = 0;

	change->done_version = next;
	appendStringInfo(&change->middle, "SET %s = $%d",
					 quote_identifier(change->column.column_name),
					 change_add(change,
								idem_rowversion_to_datum(next, change->column.base),
								false, change->column.base));
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);
		JsonbValue *value;
		Datum		datum;
		bool		isnull;

		if (att->attisdropped)
			continue;
		value = getKeyJsonValueFromContainer(&changes->root,
											 NameStr(att->attname),
											 strlen(NameStr(att->attname)),
											 NULL);
		if (value == NULL)
			continue;
		if (att->attnum == change->column.column)
			ereport(ERROR,
					(errcode(ERRCODE_IDEM_BAD_ARGUMENT),
					 errmsg("argument \"changes\" names the version column \"%s\"",
							NameStr(att->attname)),
					 errhint("Give the version that was read as argument \"version\"; the next one is set by itself."),
					 errhidestmt(true),
					 errtablecol(change->rel, att->attnum)));
		matched++;
		datum = change_convert(change->rel, att, value, &isnull);
		appendStringInfo(&change->middle, ", %s = $%d",
						 quote_identifier(NameStr(att->attname)),
						 change_add(change, datum, isnull, att->atttypid));
	}
	if (matched != JB_ROOT_COUNT(changes))
		change_refuse_unknown(change->rel, changes);
}

/*
 * The columns of the row that the caller may see, as one jsonb.
 */
static char *
change_visible_row(Change *change)
{
	TupleDesc	desc = RelationGetDescr(change->rel);
	Oid			relid = RelationGetRelid(change->rel);
	StringInfoData expr;
	bool		first = true;

	if (pg_class_aclcheck(relid, GetUserId(), ACL_SELECT) == ACLCHECK_OK)
		return "pg_catalog.to_jsonb(t.*)";

	initStringInfo(&expr);
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		if (att->attisdropped ||
			pg_attribute_aclcheck(relid, att->attnum, GetUserId(),
								  ACL_SELECT) != ACLCHECK_OK)
			continue;
		/* in groups: a function has at most 100 arguments */
		appendStringInfo(&expr, "%spg_catalog.jsonb_build_object(%s, t.%s)",
						 first ? "" : " OPERATOR(pg_catalog.||) ",
						 quote_literal_cstr(NameStr(att->attname)),
						 quote_identifier(NameStr(att->attname)));
		first = false;
	}
	return first ? "NULL::pg_catalog.jsonb" : expr.data;
}

/*
 * Reads the row as it is now.  False if there is none.
 */
static bool
change_read(Change *change, bool lock, int64 *version, Datum *current,
			bool *current_isnull)
{
	SPIPlanPtr	plan;
	Datum		datum;
	bool		isnull;

	plan = idem_target_plan(change->target,
							psprintf("SELECT t.%s, %s FROM",
									 quote_identifier(change->column.column_name),
									 change_visible_row(change)),
							"", lock ? "FOR UPDATE OF t" : "", 0, NULL);
	idem_target_run(plan, change->values, change->nulls);
	if (SPI_processed == 0)
		return false;
	datum = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1,
						  &isnull);
	change->unversioned = isnull;
	*version = isnull ? 0 :
		idem_rowversion_from_datum(datum, change->column.base);
	*current = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 2,
							 current_isnull);
	return true;
}

/*
 * The UPDATE or DELETE.  True if it found the row with the version given.
 */
static bool
change_write(Change *change)
{
	SPIPlanPtr	plan;

	/* a version that the column cannot hold is not the row's */
	if (change->version > idem_rowversion_max(change->column.base) ||
		change->version < -idem_rowversion_max(change->column.base) - 1)
		return false;
	plan = idem_target_plan(change->target, change->head, change->middle.data,
							change->tail.data, change->nextra, change->types);
	idem_target_run(plan, change->values, change->nulls);
	return SPI_processed > 0;
}

/*
 * The row is there, with the version given, and still the write does not find
 * it.
 */
static void
change_refuse_suppressed(Change *change)
{
	bool		secured = check_enable_rls(RelationGetRelid(change->rel),
										   InvalidOid, true) == RLS_ENABLED;

	ereport(ERROR,
			(errcode(secured ? ERRCODE_INSUFFICIENT_PRIVILEGE :
					 ERRCODE_IDEM_MISUSE),
			 errmsg("row of table \"%s\" has the version given, but cannot be changed",
					RelationGetRelationName(change->rel)),
			 secured ?
			 errdetail("Row security lets it be seen, but not changed.") :
			 errdetail("A trigger or a rule suppresses the change."),
			 errhidestmt(true),
			 errtable(change->rel)));
}

/*
 * Writes, and finds out why where that was not to be.
 */
static Datum
change_apply(Change *change, FunctionCallInfo fcinfo, const char *done)
{
	MemoryContext caller = CurrentMemoryContext;
	TupleDesc	desc;
	Datum		values[OUT_N];
	bool		nulls[OUT_N] = {false, true, true};
	const char *outcome = NULL;
	int64		version = 0;
	Datum		current = (Datum) 0;
	bool		current_isnull = true;
	bool		locked = false;

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	desc = BlessTupleDesc(desc);

	SPI_connect();
	for (int attempt = 1; outcome == NULL; attempt++)
	{
		CHECK_FOR_INTERRUPTS();
		if (change_write(change))
		{
			outcome = done;
			version = change->done_version;
		}
		else if (!change_read(change, false, &version, &current,
							  &current_isnull))
			outcome = "missing";
		else if (version != change->version || change->unversioned)
			outcome = "stale";
		else if (locked || attempt > MAX_ATTEMPTS)
			change_refuse_suppressed(change);
		else
			locked = change_read(change, true, &version, &current,
								 &current_isnull);
	}
	if (strcmp(outcome, "stale") == 0 && !current_isnull)
	{
		MemoryContext spi = MemoryContextSwitchTo(caller);

		values[OUT_CURRENT] = JsonbPGetDatum(DatumGetJsonbPCopy(current));
		nulls[OUT_CURRENT] = false;
		MemoryContextSwitchTo(spi);
	}
	SPI_finish();

	if (strcmp(outcome, "missing") != 0 && !change->unversioned)
	{
		values[OUT_VERSION] = Int64GetDatum(version);
		nulls[OUT_VERSION] = false;
	}
	values[OUT_OUTCOME] = CStringGetTextDatum(outcome);
	return HeapTupleGetDatum(heap_form_tuple(desc, values, nulls));
}

/*
 * The arguments that both have: table, id, version.
 */
static void
change_begin(Change *change, FunctionCallInfo fcinfo, const char *verb)
{
	int			nparams;

	memset(change, 0, sizeof(Change));
	if (PG_ARGISNULL(0))
		change_missing_argument("table_name", ERRCODE_IDEM_BAD_ARGUMENT);
	if (PG_ARGISNULL(2))
		change_missing_argument("version", ERRCODE_IDEM_VERSION_MISSING);
	idem_require_writable(verb);
	change->verb = verb;
	change->version = change->done_version = PG_GETARG_INT64(2);
	change->target = idem_target_open(PG_GETARG_OID(0), RowExclusiveLock);
	change->rel = table_open(PG_GETARG_OID(0), NoLock);
	if (!idem_rowversion_find(change->rel, &change->column))
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_MISUSE),
				 errmsg("table \"%s\" has no version column",
						RelationGetRelationName(change->rel)),
				 errhint("Its owner declares one with idem_attach_version()."),
				 errhidestmt(true),
				 errtable(change->rel)));

	/* room for the key, the version twice, and each column */
	nparams = change->target->nkeys + 2 + RelationGetNumberOfAttributes(change->rel);
	change->values = palloc(nparams * sizeof(Datum));
	change->nulls = palloc(nparams);
	change->types = palloc(nparams * sizeof(Oid));
	memset(change->nulls, ' ', change->target->nkeys);
	idem_target_take_id(change->target, fcinfo, 1, change->values);
	initStringInfo(&change->middle);
	initStringInfo(&change->tail);
	appendStringInfo(&change->tail, "AND t.%s OPERATOR(pg_catalog.=) $%d",
					 quote_identifier(change->column.column_name),
					 change_add(change,
								idem_rowversion_to_datum(change->version, change->column.base),
								false, change->column.base));
}

/*
 * idem_update(table_name, id, version, changes) -> idem_versioned
 */
Datum
idem_update(PG_FUNCTION_ARGS)
{
	Change		change;
	Jsonb	   *changes;
	Datum		result;

	change_begin(&change, fcinfo, "idem_update()");
	if (PG_ARGISNULL(3))
		change_missing_argument("changes", ERRCODE_IDEM_BAD_ARGUMENT);
	changes = PG_GETARG_JSONB_P(3);
	if (!JB_ROOT_IS_OBJECT(changes))
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_BAD_ARGUMENT),
				 errmsg("argument \"changes\" is not a JSON object"),
				 errhint("Give the new values by column name."),
				 errhidestmt(true)));
	change.head = "UPDATE";
	change_set(&change, changes);
	result = change_apply(&change, fcinfo, "updated");
	table_close(change.rel, NoLock);
	PG_RETURN_DATUM(result);
}

/*
 * idem_delete(table_name, id, version) -> idem_versioned
 */
Datum
idem_delete(PG_FUNCTION_ARGS)
{
	Change		change;
	Datum		result;

	change_begin(&change, fcinfo, "idem_delete()");
	change.head = "DELETE FROM";
	result = change_apply(&change, fcinfo, "deleted");
	table_close(change.rel, NoLock);
	PG_RETURN_DATUM(result);
}
