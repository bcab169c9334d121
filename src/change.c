/*
 * change.c
 *	  SQL functions idem_update and idem_delete: a row is changed only if it
 *	  still has the version that the caller read.
 *
 * Here arguments become values of columns; who writes them is change_direct.c,
 * or, where that does not decide, a statement (change_sql.c).  Both answer
 * alike, as the caller, with his privileges; the current row is shown as far as
 * he may see it.  Values that cannot be converted are ID400; the message names
 * the column, never the value.
 *
 * Locks: the table, ROW EXCLUSIVE; then the row.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/jsonb.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "change.h"
#include "errors.h"
#include "function.h"
#include "stats.h"

PG_FUNCTION_INFO_V1(idem_update);
PG_FUNCTION_INFO_V1(idem_delete);

/* columns of idem_versioned */
enum
{
	OUT_OUTCOME,
	OUT_VERSION,
	OUT_CURRENT,
	OUT_N
};

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
		const char *sqlstate = idem_argument_reword(context,
													att->atttypid >= FirstNormalObjectId);

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
 * The columns that change, from what the caller gave.
 */
static void
change_take_columns(IdemChange *change, Jsonb *changes)
{
	TupleDesc	desc = RelationGetDescr(change->rel);

	change->columns = palloc(desc->natts * sizeof(IdemChangedColumn));
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);
		JsonbValue *value;
		IdemChangedColumn *column;

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
		column = &change->columns[change->ncolumns++];
		column->attnum = att->attnum;
		column->value = change_convert(change->rel, att, value,
									   &column->isnull);
	}
	if (change->ncolumns != JB_ROOT_COUNT(changes))
		change_refuse_unknown(change->rel, changes);
}

/*
 * Writes, in one way or the other.
 */
static Datum
change_apply(IdemChange *change, FunctionCallInfo fcinfo, const char *done)
{
	static const char *const outcomes[] = {
		[IDEM_CHANGE_STALE] = "stale",
		[IDEM_CHANGE_MISSING] = "missing"
	};
	IdemChangeVerdict verdict;
	IdemRefusal refusal = {
		.kind = IDEM_STATS_VERSION,
		.counter = IDEM_COUNT_STALE,
		.relid = RelationGetRelid(change->rel),
		.sqlerrcode = ERRCODE_IDEM_STALE
	};
	TupleDesc	desc = (TupleDesc) fcinfo->flinfo->fn_extra;
	Datum		values[OUT_N];
	bool		nulls[OUT_N];

	if (desc == NULL)
	{
		MemoryContext caller = MemoryContextSwitchTo(fcinfo->flinfo->fn_mcxt);

		if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
			elog(ERROR, "return type must be a row type");
		desc = BlessTupleDesc(CreateTupleDescCopy(desc));
		fcinfo->flinfo->fn_extra = desc;
		MemoryContextSwitchTo(caller);
	}

	idem_change_directly(change, &verdict);
	if (verdict.outcome == IDEM_CHANGE_UNDECIDED)
		idem_change_by_sql(change, &verdict);
	if (verdict.outcome == IDEM_CHANGE_STALE)
		idem_stats_refused(&refusal);

	values[OUT_OUTCOME] =
		CStringGetTextDatum(verdict.outcome == IDEM_CHANGE_DONE ? done :
							outcomes[verdict.outcome]);
	nulls[OUT_OUTCOME] = false;
	values[OUT_VERSION] = Int64GetDatum(verdict.version);
	nulls[OUT_VERSION] = !verdict.has_version;
	values[OUT_CURRENT] = verdict.current;
	nulls[OUT_CURRENT] = !verdict.has_current;
	return HeapTupleGetDatum(heap_form_tuple(desc, values, nulls));
}

/*
 * The arguments that both have: table, id, version.
 */
static void
change_begin(IdemChange *change, FunctionCallInfo fcinfo, const char *verb)
{
	memset(change, 0, sizeof(IdemChange));
	idem_require_argument(fcinfo, 0, "table_name");
	if (PG_ARGISNULL(2))
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_VERSION_MISSING),
				 errmsg("argument \"version\" is missing"),
				 errhidestmt(true)));
	idem_require_writable(verb);
	change->verb = verb;
	change->version = PG_GETARG_INT64(2);
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

	change->key = palloc(change->target->nkeys * sizeof(Datum));
	idem_target_take_id(change->target, fcinfo, 1, change->key);
}

/*
 * idem_update(table_name, id, version, changes) -> idem_versioned
 */
Datum
idem_update(PG_FUNCTION_ARGS)
{
	IdemChange	change;
	Jsonb	   *changes;
	Datum		result;

	change_begin(&change, fcinfo, "idem_update()");
	idem_require_argument(fcinfo, 3, "changes");
	changes = PG_GETARG_JSONB_P(3);
	if (!JB_ROOT_IS_OBJECT(changes))
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_BAD_ARGUMENT),
				 errmsg("argument \"changes\" is not a JSON object"),
				 errhint("Give the new values by column name."),
				 errhidestmt(true)));
	change_take_columns(&change, changes);
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
	IdemChange	change;
	Datum		result;

	change_begin(&change, fcinfo, "idem_delete()");
	change.deletes = true;
	result = change_apply(&change, fcinfo, "deleted");
	table_close(change.rel, NoLock);
	PG_RETURN_DATUM(result);
}
