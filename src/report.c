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
