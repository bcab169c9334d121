/*
 * change_sql.c
 *	  The change of a row by its version, as a statement.
 *
 * One UPDATE or DELETE with the version in its WHERE clause does it.  At READ
 * COMMITTED it waits for whoever holds the row and then looks at what that one
 * left, so that of two writers with one version exactly one finds the row.
 * Where it finds none, the row is read with a new snapshot: absent it is
 * missing, with another version it is stale.
 *
 * The row read may have the very version asked for: inserted meanwhile, or
 * hidden from the UPDATE by row security or a trigger.  Then it is locked and
 * tried once more; what does not change even so is an error.  So is a row that the
 * statement's own triggers or rules have counted on, without its being changed as
 * was asked: nobody else was faster.  Above READ
 * COMMITTED there is one snapshot, and a row changed after it is PostgreSQL's
 * own 40001.
 */
#include "postgres.h"

#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/rel.h"
#include "utils/rls.h"

#include "change.h"
#include "compat.h"
#include "errors.h"

/* how often a row that is hidden from locking may look as if it were there */
#define MAX_ATTEMPTS	5

/* the statement that makes a change */
typedef struct Statement
{
	Datum	   *values;			/* parameters, the key first */
	char	   *nulls;
	Oid		   *types;			/* of those after the key */
	int			nextra;
	StringInfoData middle;
	StringInfoData tail;
} Statement;

/*
 * Adds a parameter and returns its number.
 */
static int
sql_add(const IdemChange *change, Statement *statement, Datum value,
		bool isnull, Oid type)
{
	int			n = change->target->nkeys + statement->nextra;

	statement->values[n] = value;
	statement->nulls[n] = isnull ? 'n' : ' ';
	statement->types[statement->nextra++] = type;
	return n + 1;
}

static int
sql_add_version(const IdemChange *change, Statement *statement, int64 version)
{
	return sql_add(change, statement,
				   idem_rowversion_to_datum(version, change->column.base),
				   false, change->column.base);
}

/*
 * Makes the statement: "SET column = $n, ...", the next version included, and
 * "AND version = $n".
 */
static void
sql_compose(const IdemChange *change, Statement *statement, int64 next)
{
	const char *version = quote_identifier(change->column.column_name);
	int			nparams = change->target->nkeys + 2 + change->ncolumns;

	memset(statement, 0, sizeof(Statement));
	statement->values = palloc(nparams * sizeof(Datum));
	statement->nulls = palloc(nparams);
	statement->types = palloc(nparams * sizeof(Oid));
	memcpy(statement->values, change->key,
		   change->target->nkeys * sizeof(Datum));
	memset(statement->nulls, ' ', change->target->nkeys);
	initStringInfo(&statement->middle);
	initStringInfo(&statement->tail);
	appendStringInfo(&statement->tail, "AND t.%s OPERATOR(pg_catalog.=) $%d",
					 version,
					 sql_add_version(change, statement, change->version));
	if (change->deletes)
		return;
	appendStringInfo(&statement->middle, "SET %s = $%d", version,
					 sql_add_version(change, statement, next));
	for (int i = 0; i < change->ncolumns; i++)
	{
		const IdemChangedColumn *column = &change->columns[i];
		Form_pg_attribute att = TupleDescAttr(RelationGetDescr(change->rel),
											  column->attnum - 1);

		appendStringInfo(&statement->middle, ", %s = $%d",
						 quote_identifier(NameStr(att->attname)),
						 sql_add(change, statement, column->value,
								 column->isnull, att->atttypid));
	}
}

/*
 * The columns of the row that the caller may see, as one jsonb.
 */
static char *
sql_visible_row(const IdemChange *change)
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
sql_read(const IdemChange *change, bool lock, IdemChangeVerdict *verdict)
{
	SPIPlanPtr	plan;
	Datum		datum;
	bool		isnull;

	plan = idem_target_plan(change->target,
							psprintf("SELECT t.%s, %s FROM",
									 quote_identifier(change->column.column_name),
									 sql_visible_row(change)),
							"", lock ? "FOR UPDATE OF t" : "", 0, NULL);
	idem_target_run(plan, change->key, NULL);
	if (SPI_processed == 0)
		return false;
	datum = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1,
						  &isnull);
	verdict->has_version = !isnull;
	verdict->version = isnull ? 0 :
		idem_rowversion_from_datum(datum, change->column.base);
	verdict->current = SPI_getbinval(SPI_tuptable->vals[0],
									 SPI_tuptable->tupdesc, 2, &isnull);
	verdict->has_current = !isnull;
	return true;
}

/*
 * The UPDATE or DELETE.  True if it found the row with the version given; else
 * "counted" says whether such a row has another version by now, by what it did.
 */
static bool
sql_write(const IdemChange *change, const Statement *statement, bool *counted)
{
	IdemVersionWatch watch = {
		.target = change->target,
		.key = change->key,
		.version = change->version,
		.outer = idem_rowversion_watch
	};
	SPIPlanPtr	plan;

	*counted = false;
	/* a version that the column cannot hold is not the row's */
	if (change->version > idem_rowversion_max(change->column.base) ||
		change->version < -idem_rowversion_max(change->column.base) - 1)
		return false;
	plan = idem_target_plan(change->target,
							change->deletes ? "DELETE FROM" : "UPDATE",
							statement->middle.data, statement->tail.data,
							statement->nextra, statement->types);
	idem_rowversion_watch = &watch;
	PG_TRY();
	{
		idem_target_run(plan, statement->values, statement->nulls);
	}
	PG_FINALLY();
	{
		idem_rowversion_watch = watch.outer;
	}
	PG_END_TRY();
	*counted = watch.seen;
	return SPI_processed > 0;
}

/*
 * The row is there, with the version given, and still the write does not find
 * it; or it was "counted" on by the write.
 */
static void
sql_refuse_suppressed(const IdemChange *change, bool counted)
{
	bool		secured = !counted &&
	check_enable_rls(RelationGetRelid(change->rel), InvalidOid,
					 true) == RLS_ENABLED;

	ereport(ERROR,
			(errcode(secured ? ERRCODE_INSUFFICIENT_PRIVILEGE :
					 ERRCODE_IDEM_MISUSE),
			 errmsg("row of table \"%s\" has the version given, but cannot be changed",
					RelationGetRelationName(change->rel)),
			 secured ?
			 errdetail("Row security lets it be seen, but not changed.") :
			 counted ?
			 errdetail("A trigger or a rule makes another change of it.") :
			 errdetail("A trigger or a rule suppresses the change."),
			 errhidestmt(true),
			 errtable(change->rel)));
}

/*
 * Writes, and finds out why where that was not to be.
 */
void
idem_change_by_sql(const IdemChange *change, IdemChangeVerdict *verdict)
{
	MemoryContext caller = CurrentMemoryContext;
	int64		next = change->version <
	idem_rowversion_max(change->column.base) ?
	change->version + 1 : change->version;
	Statement	statement;
	bool		locked = false;
	bool		counted;

	memset(verdict, 0, sizeof(IdemChangeVerdict));
	SPI_connect();
	sql_compose(change, &statement, next);
	for (int attempt = 1; verdict->outcome == IDEM_CHANGE_UNDECIDED; attempt++)
	{
		CHECK_FOR_INTERRUPTS();
		if (sql_write(change, &statement, &counted))
		{
			verdict->outcome = IDEM_CHANGE_DONE;
			verdict->has_version = true;
			verdict->version = change->deletes ? change->version : next;
			verdict->has_current = false;
		}
		else if (!sql_read(change, false, verdict))
		{
			/* it may have another key by now */
			if (counted)
				sql_refuse_suppressed(change, true);
			memset(verdict, 0, sizeof(IdemChangeVerdict));
			verdict->outcome = IDEM_CHANGE_MISSING;
		}
		else if (counted && verdict->has_version &&
				 verdict->version > change->version)
			sql_refuse_suppressed(change, true);
		else if (!verdict->has_version || verdict->version != change->version)
			verdict->outcome = IDEM_CHANGE_STALE;
		else if (locked || attempt > MAX_ATTEMPTS)
			sql_refuse_suppressed(change, false);
		else
			locked = sql_read(change, true, verdict);
	}
	if (verdict->has_current)
	{
		MemoryContext spi = MemoryContextSwitchTo(caller);

		verdict->current =
			JsonbPGetDatum(DatumGetJsonbPCopy(verdict->current));
		MemoryContextSwitchTo(spi);
	}
	SPI_finish();
}
