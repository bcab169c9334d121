/*
 * verify.c
 *	  SQL function idem_verify: rows that are in no state of their machine.
 *
 * Such rows were accepted when the machine was attached, or written past the
 * triggers, which a table's owner can disable and which do not fire for a
 * replicated change.  They are looked for as the caller, with his snapshot, and
 * no writer waits.
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/table.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "binding.h"
#include "errors.h"

PG_FUNCTION_INFO_V1(idem_verify);

/* rows that are fetched at a time */
#define BATCH	1000

/*
 * The expression that names a row of table t.
 */
static char *
verify_key(Relation rel)
{
	StringInfoData buf;
	Oid			index;
	Relation	pkey;

	initStringInfo(&buf);
	list_free(RelationGetIndexList(rel));
	index = rel->rd_pkindex;
	if (!OidIsValid(index))
		return pstrdup("pg_catalog.jsonb_build_object('ctid', t.ctid::pg_catalog.text, 'table', t.tableoid::pg_catalog.regclass::pg_catalog.text)");

	pkey = relation_open(index, AccessShareLock);
	appendStringInfoString(&buf, "pg_catalog.jsonb_build_object(");
	for (int i = 0; i < pkey->rd_index->indnkeyatts; i++)
	{
		char	   *name = NameStr(TupleDescAttr(RelationGetDescr(rel),
												 pkey->rd_index->indkey.values[i] - 1)->attname);

		appendStringInfo(&buf, "%s%s, t.%s", i > 0 ? ", " : "",
						 quote_literal_cstr(name), quote_identifier(name));
	}
	appendStringInfoChar(&buf, ')');
	relation_close(pkey, AccessShareLock);
	return buf.data;
}

/*
 * The names of the machine's states as text[].
 */
static Datum
verify_states(const IdemMachine *machine)
{
	Datum	   *names = palloc(Max(machine->nstates, 1) * sizeof(Datum));

	for (int i = 0; i < machine->nstates; i++)
		names[i] = CStringGetTextDatum(machine->states[i].name);
	return PointerGetDatum(construct_array(names, machine->nstates, TEXTOID,
										   -1, false, TYPALIGN_INT));
}

static void
verify_binding(Relation rel, const IdemBinding *binding,
			   ReturnSetInfo *rsinfo)
{
	const IdemMachine *machine = idem_machine_get(binding->machine, false,
												  CurrentMemoryContext);
	char	   *column = psprintf("(t.%s)::pg_catalog.text COLLATE pg_catalog.\"C\"",
								  quote_identifier(NameStr(binding->column_name)));
	char	   *query;
	Oid			types[] = {TEXTARRAYOID};
	Datum		args[] = {verify_states(machine)};
	Portal		portal;

	query = psprintf("SELECT %s, %s FROM %s AS t WHERE %s IS NULL OR %s OPERATOR(pg_catalog.<>) ALL ($1)",
					 verify_key(rel), column,
					 quote_qualified_identifier(get_namespace_name(RelationGetNamespace(rel)),
												RelationGetRelationName(rel)),
					 column, column);
	portal = SPI_cursor_open_with_args(NULL, query, 1, types, args, NULL, true,
									   CURSOR_OPT_NO_SCROLL);
	for (;;)
	{
		SPI_cursor_fetch(portal, true, BATCH);
		if (SPI_processed == 0)
			break;
		for (uint64 i = 0; i < SPI_processed; i++)
		{
			HeapTuple	tuple = SPI_tuptable->vals[i];
			TupleDesc	desc = SPI_tuptable->tupdesc;
			Datum		values[3];
			bool		nulls[3] = {false, false, false};

			CHECK_FOR_INTERRUPTS();
			values[0] = SPI_getbinval(tuple, desc, 1, &nulls[0]);
			values[1] = CStringGetTextDatum(machine->name);
			values[2] = SPI_getbinval(tuple, desc, 2, &nulls[2]);
			tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values,
								 nulls);
		}
		SPI_freetuptable(SPI_tuptable);
	}
	SPI_cursor_close(portal);
}

/*
 * idem_verify(table_name) -> SETOF (row_key, machine, state)
 */
Datum
idem_verify(PG_FUNCTION_ARGS)
{
	Relation	rel;
	IdemTable  *table;
	char		relkind;

	idem_require_argument(fcinfo, 0, "table_name");
	relkind = get_rel_relkind(PG_GETARG_OID(0));
	if (relkind != RELKIND_RELATION && relkind != RELKIND_PARTITIONED_TABLE)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("relation with OID %u is not a table",
						PG_GETARG_OID(0))));

	InitMaterializedSRF(fcinfo, 0);
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	rel = table_open(PG_GETARG_OID(0), AccessShareLock);
	table = idem_table_require(rel, CurrentMemoryContext);
	for (int i = 0; i < table->nbindings; i++)
		verify_binding(rel, &table->bindings[i],
					   (ReturnSetInfo *) fcinfo->resultinfo);
	table_close(rel, NoLock);
	SPI_finish();
	PG_RETURN_NULL();
}
