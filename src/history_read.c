/*
 * history_read.c
 *	  Who may see and change what was recorded: idem_history,
 *	  idem_history_protect.
 *
 * A row's history is read as the owner of idem.history, by whoever may read the
 * row: with SELECT on its table, and under row security only while the row is
 * there and visible to him, and only from its last insert on: what had the key
 * before may have been another's.  A column whose machine was not attached then has
 * no entry of that insert, only ones of before and after; so what begins there is
 * told by the last entry of an insert in whichever column, for all of them.  The
 * table must keep a history: whoever made a table under a name that another one had
 * could read that one's, else.  Of others it is read by who may read idem.history
 * itself.
 */
#include "postgres.h"

#include "access/table.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/rls.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "catalog.h"
#include "compat.h"
#include "errors.h"
#include "history.h"
#include "registry.h"
#include "store.h"

/* which rows of idem.history are one row's, under all of its names */
#define HISTORY_OF_ROW(h) \
	h ".row_hash OPERATOR(pg_catalog.=) $4" \
	" AND " h ".row_key OPERATOR(pg_catalog.=) $1" \
	" AND EXISTS (SELECT FROM ROWS FROM (pg_catalog.unnest($2)," \
	" pg_catalog.unnest($3)) AS t (table_schema, table_name)" \
	" WHERE " h ".table_schema OPERATOR(pg_catalog.=) t.table_schema" \
	" AND " h ".table_name OPERATOR(pg_catalog.=) t.table_name)"

PG_FUNCTION_INFO_V1(idem_history_protect);
PG_FUNCTION_INFO_V1(idem_history);

/*
 * idem_history_protect() -> trigger
 */
Datum
idem_history_protect(PG_FUNCTION_ARGS)
{
	TriggerData *trigdata = (TriggerData *) fcinfo->context;

	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function must be called as a trigger")));
	if (TRIGGER_FIRED_FOR_ROW(trigdata->tg_event) &&
		TRIGGER_FIRED_BY_DELETE(trigdata->tg_event))
	{
		Relation	rel = trigdata->tg_relation;
		int			column = SPI_fnumber(RelationGetDescr(rel), "expires_at");
		bool		isnull = true;
		Datum		value = (Datum) 0;

		if (column > 0 &&
			SPI_gettypeid(RelationGetDescr(rel), column) == TIMESTAMPTZOID)
			value = heap_getattr(trigdata->tg_trigtuple, column,
								 RelationGetDescr(rel), &isnull);
		if (!isnull && DatumGetTimestampTz(value) <= GetCurrentTimestamp())
			return PointerGetDatum(trigdata->tg_trigtuple);
	}
	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("table \"%s\" is append-only",
					RelationGetRelationName(trigdata->tg_relation)),
			 errdetail("Rows are removed by idem_sweep() when the time that option \"keep\" of idem_attach() gave them is over."),
			 errtable(trigdata->tg_relation)));
	return (Datum) 0;
}

/*
 * Whether the caller may read about the row: the table's rows are his to
 * select, and where policies hide some from him, this one is not.  The id
 * becomes the row's own, which may be equal and print otherwise.
 */
static bool
history_find_row(IdemTarget *target, Datum *values)
{
	AclResult	result = pg_class_aclcheck(target->relid, GetUserId(),
										   ACL_SELECT);
	StringInfoData columns;

	if (result != ACLCHECK_OK)
		aclcheck_error(result,
					   get_relkind_objtype(get_rel_relkind(target->relid)),
					   target->table);
	initStringInfo(&columns);
	appendStringInfoString(&columns, "SELECT ");
	for (int i = 0; i < target->nkeys; i++)
		appendStringInfo(&columns, "%st.%s", i > 0 ? ", " : "",
						 quote_identifier(target->columns[i]));
	appendStringInfoString(&columns, " FROM");
	if (SPI_execute_snapshot(idem_target_plan(target, columns.data, "", "", 0,
											  NULL), values, NULL,
							 InvalidSnapshot, InvalidSnapshot, true, false,
							 1) < 0)
		elog(ERROR, "could not look for the row");
	if (SPI_processed == 0)
		return check_enable_rls(target->relid, InvalidOid, true) != RLS_ENABLED;
	for (int i = 0; i < target->nkeys; i++)
	{
		bool		isnull;

		values[i] = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc,
								  i + 1, &isnull);
	}
	return true;
}

/*
 * The tables under whose names the row's history may be: its own, and those
 * that machines were attached to above it.
 */
static void
history_names(const IdemTable *table, Datum *schemas, Datum *names)
{
	ArrayBuildState *all_schemas = NULL;
	ArrayBuildState *all_names = NULL;

	for (int i = -1; i < table->nbindings; i++)
	{
		Oid			relid = i < 0 ? table->relid : table->bindings[i].root;
		bool		again = i >= 0 && relid == table->relid;

		for (int j = 0; j < i && !again; j++)
			again = table->bindings[j].root == relid;
		if (again)
			continue;
		all_schemas = accumArrayResult(all_schemas,
									   CStringGetTextDatum(get_namespace_name(get_rel_namespace(relid))),
									   false, TEXTOID, CurrentMemoryContext);
		all_names = accumArrayResult(all_names,
									 CStringGetTextDatum(get_rel_name(relid)),
									 false, TEXTOID, CurrentMemoryContext);
	}
	*schemas = makeArrayResult(all_schemas, CurrentMemoryContext);
	*names = makeArrayResult(all_names, CurrentMemoryContext);
}

static bool
history_is_kept(const IdemTable *table)
{
	for (int i = 0; i < table->nbindings; i++)
	{
		if (table->bindings[i].history)
			return true;
	}
	return false;
}

/*
 * Says why there is nothing, where nothing has been recorded: once in a
 * statement, which may ask for row after row.
 */
static void
history_tell_of_none(const IdemTable *table, const IdemTarget *target,
					 FmgrInfo *flinfo)
{
	if (flinfo->fn_extra != NULL)
		return;
	flinfo->fn_extra = flinfo;
	ereport(NOTICE,
			(errmsg("nothing is recorded of rows of table \"%s\"",
					target->table),
			 table->nbindings == 0 ?
			 errdetail("No machine is attached to it.") :
			 errdetail("Its machine is attached without history."),
			 errhint("Attach the machine with history => true.")));
}

/*
 * idem_history(table_name, id) -> SETOF idem.history
 */
Datum
idem_history(PG_FUNCTION_ARGS)
{
	/* nothing that a dump keeps tells the other entries of that insert apart */
	static const char statement[] =
	"SELECT h.* FROM idem.history AS h"
	" WHERE " HISTORY_OF_ROW("h")
	" AND ($5 OR h.seq OPERATOR(pg_catalog.>=) COALESCE("
	"(SELECT pg_catalog.max(i.seq) FROM idem.history AS i"
	" WHERE " HISTORY_OF_ROW("i")
	" AND i.from_state IS NULL AND i.event IS NULL), h.seq))"
	" ORDER BY h.seq";
	static const Oid types[] = {JSONBOID, TEXTARRAYOID, TEXTARRAYOID, INT8OID, BOOLOID};
	static SPIPlanPtr plan = NULL;
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	IdemTarget *target;
	IdemHistoryRow name;
	Relation	rel;
	IdemTable  *table;
	Datum		values[IDEM_TARGET_MAXKEYS];
	Datum		args[lengthof(types)];
	IdemIdentity saved;
	bool		kept;
	bool		fits;

	idem_require_argument(fcinfo, 0, "table_name");
	target = idem_target_open(PG_GETARG_OID(0), AccessShareLock);
	idem_target_take_id(target, fcinfo, 1, values);
	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);

	SPI_connect();
	if (!history_find_row(target, values))
	{
		SPI_finish();
		PG_RETURN_NULL();
	}

	rel = table_open(target->relid, NoLock);
	table = idem_table_get(rel, CurrentMemoryContext);
	idem_history_name(idem_history_key(target, table), target, values, &name);
	table_close(rel, NoLock);
	kept = history_is_kept(table);
	if (!kept &&
		pg_class_aclcheck(idem_catalog_relation(IDEM_REL_HISTORY), GetUserId(),
						  ACL_SELECT) != ACLCHECK_OK)
	{
		history_tell_of_none(table, target, fcinfo->flinfo);
		SPI_finish();
		PG_RETURN_NULL();
	}

	args[0] = JsonbPGetDatum(name.row_key);
	history_names(table, &args[1], &args[2]);
	args[3] = Int64GetDatum(name.row_hash);
	args[4] = BoolGetDatum(check_enable_rls(target->relid, InvalidOid, true) !=
						   RLS_ENABLED);
	idem_catalog_become(idem_catalog_owner(IDEM_REL_HISTORY), &saved);
	if (plan == NULL)
		plan = idem_sql_keep_generic_plan(statement, lengthof(types), types);
	idem_sql_plan_by_index(plan);
	if (SPI_execute_plan(plan, args, NULL, true, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not read idem.history");
	idem_catalog_restore(&saved);
	fits = SPI_tuptable->tupdesc->natts == rsinfo->setDesc->natts;
	for (int i = 0; fits && i < rsinfo->setDesc->natts; i++)
		fits = TupleDescAttr(SPI_tuptable->tupdesc, i)->atttypid ==
			TupleDescAttr(rsinfo->setDesc, i)->atttypid;
	if (!fits)
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("table \"idem.history\" does not have its declared columns")));
	if (SPI_processed == 0 && !kept)
		history_tell_of_none(table, target, fcinfo->flinfo);
	for (uint64 i = 0; i < SPI_processed; i++)
		tuplestore_puttuple(rsinfo->setResult, SPI_tuptable->vals[i]);
	SPI_finish();
	PG_RETURN_NULL();
}
