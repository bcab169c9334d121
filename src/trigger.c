/*
 * trigger.c
 *	  Triggers of the extension's on users' tables.
 */
#include "postgres.h"

#include "catalog/dependency.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_trigger.h"
#include "commands/extension.h"
#include "commands/trigger.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "utils/lsyscache.h"

#include "binding.h"

/*
 * Whether a trigger's function is the extension's, and of that name; NULL is
 * any name.
 */
bool
idem_trigger_is_ours(Oid function, const char *name)
{
	char	   *actual = get_func_name(function);
	Oid			extension;

	if (actual == NULL || strncmp(actual, "idem_", 5) != 0)
		return false;
	if (name != NULL && strcmp(actual, name) != 0)
		return false;
	extension = get_extension_oid("idem", true);
	return OidIsValid(extension) &&
		getExtensionOfObject(ProcedureRelationId, function) == extension;
}

/*
 * Whether a trigger that is enabled so fires in this session.
 */
bool
idem_trigger_fires_now(char enabled)
{
	if (SessionReplicationRole == SESSION_REPLICATION_ROLE_REPLICA)
		return enabled == TRIGGER_FIRES_ON_REPLICA ||
			enabled == TRIGGER_FIRES_ALWAYS;
	return enabled == TRIGGER_FIRES_ON_ORIGIN ||
		enabled == TRIGGER_FIRES_ALWAYS;
}

/*
 * The column that a trigger's WHEN clause names, or InvalidAttrNumber.
 */
AttrNumber
idem_trigger_column(const char *qual)
{
	AttrNumber	column = InvalidAttrNumber;
	ListCell   *lc;

	if (qual == NULL)
		return InvalidAttrNumber;
	foreach(lc, pull_var_clause(stringToNode(qual), 0))
	{
		Var		   *var = (Var *) lfirst(lc);

		if (column != InvalidAttrNumber && var->varattno != column)
			return InvalidAttrNumber;
		column = var->varattno;
	}
	return column > 0 ? column : InvalidAttrNumber;
}
