/*
 * tick_table.c
 *	  Tables as a ticker finds them: as whom he acts there, and where he may not.
 *
 * What belongs to a table runs as its owner, and would find by name what others
 * have made in this session's temporary schema.  A session that has such objects
 * leaves the table to others: its timers are not written, so that other sessions
 * find them as they are.  Which tables these are is asked before any timer is
 * taken, so that theirs are not locked, nor fill a batch.
 *
 * What a tick runs can make such objects, too: older minor releases of PostgreSQL
 * forbid it temporary relations, but not types.  So that an owner is not misled is
 * asked for each timer.
 */
#include "postgres.h"

#include "access/table.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "partitioning/partdesc.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

#include "catalog.h"
#include "own.h"
#include "tick_table.h"
#include "timer.h"

static struct IdemOwnStatement tables_statement = {
	"SELECT DISTINCT table_schema, table_name FROM idem.timer"
	" WHERE due OPERATOR(pg_catalog.<=) $1",
	IDEM_OWN_BY_INDEX, 1, {TIMESTAMPTZOID}, NULL
};

/*
 * As whom a table of that owner's is looked at.  A superuser's is refused, as the
 * caller.
 */
Oid
idem_tick_role(Oid owner)
{
	return superuser_arg(owner) ? GetUserId() : owner;
}

/*
 * Locks a table and its partitions, or finds that somebody else has.
 */
bool
idem_tick_lock(Oid relid)
{
	Relation	rel;
	bool		locked = true;

	if (!ConditionalLockRelationOid(relid, RowExclusiveLock))
		return false;
	if (get_rel_relkind(relid) != RELKIND_PARTITIONED_TABLE)
		return true;
	rel = table_open(relid, NoLock);
	{
		PartitionDesc parts = RelationGetPartitionDesc(rel, true);

		for (int i = 0; i < parts->nparts && locked; i++)
			locked = idem_tick_lock(parts->oids[i]);
	}
	table_close(rel, NoLock);
	return locked;
}

/*
 * Whether the session has temporary objects that may mislead what runs as a role.
 */
bool
idem_tick_is_misled(List **misled, Oid role)
{
	MemoryContext caller;

	if (list_member_oid(*misled, role))
		return true;
	if (idem_catalog_count_temporary(role) == 0)
		return false;
	caller = MemoryContextSwitchTo(TopTransactionContext);
	*misled = lappend_oid(*misled, role);
	MemoryContextSwitchTo(caller);
	return true;
}

/*
 * The qualified names of those that something is due in; warns of each.
 */
List *
idem_tick_barred(List **misled, TimestampTz now)
{
	Datum		args[] = {TimestampTzGetDatum(now)};
	List	   *barred = NIL;
	SPITupleTable *found;
	uint64		n;

	if (!OidIsValid(idem_catalog_temporary()))
		return NIL;
	n = idem_timers_run(&tables_statement, args);
	found = SPI_tuptable;
	for (uint64 i = 0; i < n; i++)
	{
		char	   *schema = idem_own_text(found->vals[i], found->tupdesc, 1);
		char	   *table = idem_own_text(found->vals[i], found->tupdesc, 2);
		Oid			inside = get_namespace_oid(schema, true);
		Oid			relid = OidIsValid(inside) ?
		get_relname_relid(table, inside) : InvalidOid;
		Oid			owner = OidIsValid(relid) ?
		idem_catalog_owner_of(relid) : InvalidOid;

		if (!OidIsValid(owner) ||
			!idem_tick_is_misled(misled, idem_tick_role(owner)))
			continue;
		ereport(WARNING,
				(errmsg("timed transitions of table \"%s\" are not fired by this session",
						table),
				 errdetail("They run as the table's owner, who would find temporary objects of others by name."),
				 errhint("Call idem_tick() in a session of its own, or after DISCARD TEMP."),
				 errhidestmt(true)));
		barred = lappend(barred, quote_qualified_identifier(schema, table));
	}
	return barred;
}
