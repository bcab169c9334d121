/*
 * report.c
 *	  Parts that many errors have.
 */
#include "postgres.h"

#include "lib/stringinfo.h"
#include "nodes/value.h"
#include "utils/lsyscache.h"

#include "errors.h"

/*
 * An argument that is NULL, or not there.
 */
void
idem_report_missing(const char *argument)
{
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_BAD_ARGUMENT),
			 errmsg("argument \"%s\" is missing", argument),
			 errhidestmt(true)));
}

void
idem_require_argument(FunctionCallInfo fcinfo, int n, const char *name)
{
	if (PG_ARGISNULL(n))
		idem_report_missing(name);
}

/*
 * Puts a table, and a column if it is not NULL, into an error's fields.
 */
int
idem_errcolumn(Oid relid, const char *column)
{
	err_generic_string(PG_DIAG_SCHEMA_NAME,
					   get_namespace_name(get_rel_namespace(relid)));
	err_generic_string(PG_DIAG_TABLE_NAME, get_rel_name(relid));
	if (column != NULL)
		err_generic_string(PG_DIAG_COLUMN_NAME, column);
	return 0;
}

/*
 * Names in double quotes, so many at most.
 */
char *
idem_names_text(List *names, int most)
{
	StringInfoData buf;
	ListCell   *lc;

	initStringInfo(&buf);
	foreach(lc, names)
	{
		if (foreach_current_index(lc) > 0)
			appendStringInfoString(&buf, ", ");
		if (foreach_current_index(lc) == most)
		{
			appendStringInfoString(&buf, "...");
			break;
		}
		appendStringInfo(&buf, "\"%s\"", strVal(lfirst(lc)));
	}
	return buf.data;
}
