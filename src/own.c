/*
 * own.c
 *	  What is done with idem's own tables, whose owner may have altered them.
 *
 * They belong to the role that installed the extension, which need not be a
 * superuser.  A value of another type would be taken for a pointer, and a NULL
 * followed as one, in the session of whoever calls.  So whoever takes a value apart
 * gets it here, unless the table was found to be as declared while it is locked.
 *
 * Nor is anybody to run what its owner has put into an index but he himself: what
 * it is made of is asked of the catalog's row, since the relation cache evaluates
 * constant parts of expressions.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_class.h"
#include "catalog/pg_index.h"
#include "executor/spi.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "own.h"
#include "store.h"

/*
 * An error unless a table is a plain one, and its first columns have these types.
 * The caller holds a lock on it that keeps them so.
 */
void
idem_own_require(Relation rel, const Oid *types, int ncolumns)
{
	TupleDesc	desc = RelationGetDescr(rel);
	bool		fits = rel->rd_rel->relkind == RELKIND_RELATION &&
	desc->natts >= ncolumns;

	for (int i = 0; fits && i < ncolumns; i++)
		fits = !TupleDescAttr(desc, i)->attisdropped &&
			TupleDescAttr(desc, i)->atttypid == types[i];
	if (!fits)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("table \"idem.%s\" is not a plain table with its declared columns",
						RelationGetRelationName(rel)),
				 errhint("Take back what was changed on the table. A column that was dropped and added again stays in the way until a dump and restore."),
				 errtable(rel),
				 errhidestmt(true)));
}

/*
 * Runs a statement as the owner of a relation of idem's, by a snapshot, while
 * connected to SPI; its rows are in SPI_tuptable.  How many.
 */
uint64
idem_own_run_at(IdemOwnStatement *statement, IdemRelation whose,
				const Datum *values, const char *nulls, Snapshot snapshot)
{
	bool		by_index = statement->way == IDEM_OWN_BY_INDEX;
	IdemIdentity saved;
	int			rc;

	idem_catalog_become(idem_catalog_owner(whose), &saved);
	if (statement->plan == NULL)
		statement->plan = by_index ?
			idem_sql_keep_generic_plan(statement->text, statement->nparams,
									   statement->types) :
			idem_sql_keep_plan(statement->text, statement->nparams,
							   statement->types);
	rc = by_index ?
		idem_sql_execute_by_index(statement->plan, (Datum *) values,
								  snapshot) :
		SPI_execute_snapshot(statement->plan, (Datum *) values, nulls,
							 snapshot, InvalidSnapshot,
							 statement->way == IDEM_OWN_READ, true, 0);
	idem_catalog_restore(&saved);
	if (rc < 0)
		elog(ERROR, "SPI_execute_snapshot failed: %s",
			 SPI_result_code_string(rc));
	return SPI_processed;
}

/*
 * The same by the latest one, without a NULL.
 */
uint64
idem_own_run(IdemOwnStatement *statement, IdemRelation whose,
			 const Datum *values)
{
	return idem_own_run_at(statement, whose, values, NULL,
						   GetLatestSnapshot());
}

static void
own_require(bool fits, TupleDesc desc, int column)
{
	if (!fits)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("column \"%s\" of a table of schema \"idem\" is not as declared",
						NameStr(TupleDescAttr(desc, column - 1)->attname)),
				 errdetail("It has another type, or is NULL in a row."),
				 errhint("Take back what was changed on the table."),
				 errhidestmt(true)));
}

/*
 * The number of a column by its name.
 */
int
idem_own_column(TupleDesc desc, const char *name)
{
	int			column = SPI_fnumber(desc, name);

	if (column <= 0)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_COLUMN),
				 errmsg("column \"%s\" of a table of schema \"idem\" does not exist",
						name),
				 errhidestmt(true)));
	return column;
}

/*
 * A value of that type; of what may not be NULL if "isnull" is NULL.
 */
Datum
idem_own_value(HeapTuple tuple, TupleDesc desc, int column, Oid type,
			   bool *isnull)
{
	Datum		value;
	bool		none;

	Assert(column >= 1 && column <= desc->natts);
	own_require(TupleDescAttr(desc, column - 1)->atttypid == type,
				desc, column);
	value = heap_getattr(tuple, column, desc, &none);
	if (isnull != NULL)
		*isnull = none;
	else
		own_require(!none, desc, column);
	return value;
}

/*
 * A value of any type as text, which may not be NULL.
 */
char *
idem_own_text(HeapTuple tuple, TupleDesc desc, int column)
{
	char	   *value = SPI_getvalue(tuple, desc, column);

	own_require(value != NULL, desc, column);
	return value;
}

/*
 * Whether an index is of columns only, and of all rows.
 */
bool
idem_own_index_is_plain(Relation index)
{
	return heap_attisnull(index->rd_indextuple, Anum_pg_index_indexprs, NULL) &&
		heap_attisnull(index->rd_indextuple, Anum_pg_index_indpred, NULL);
}
