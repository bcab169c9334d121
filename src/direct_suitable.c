/*
 * direct_suitable.c
 *	  Whether a table may be reached through the access methods, so that
 *	  nothing stands on it that only the executor would honour.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/skey.h"
#include "access/table.h"
#include "catalog/pg_am.h"
#include "catalog/pg_class.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_namespace.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "direct.h"
#include "own.h"

/*
 * Whether a distributing engine has taken the table over: Citus lists such
 * tables in pg_catalog.pg_dist_partition.
 */
bool
idem_direct_has_foreign_planner(Oid relid)
{
	Oid			catalog = get_relname_relid("pg_dist_partition",
											PG_CATALOG_NAMESPACE);
	AttrNumber	column;
	Relation	rel;
	SysScanDesc scan;
	ScanKeyData skey;
	bool		found;

	if (!OidIsValid(catalog))
		return false;
	column = get_attnum(catalog, "logicalrelid");
	if (column == InvalidAttrNumber)
		return true;

	rel = table_open(catalog, AccessShareLock);
	ScanKeyInit(&skey, column, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(relid));
	scan = systable_beginscan(rel, InvalidOid, false, NULL, 1, &skey);
	found = HeapTupleIsValid(systable_getnext(scan));
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return found;
}

static bool
direct_index_is_plain(Relation index, int nkeys, bool primary)
{
	Form_pg_index form = index->rd_index;

	if (index->rd_rel->relam != BTREE_AM_OID ||
		!idem_own_index_is_plain(index) ||
		form->indisexclusion || !form->indimmediate)
		return false;
	if (!form->indisunique)
		return true;
	if (form->indnkeyatts != nkeys || (primary && !form->indisvalid))
		return false;
	for (int i = 0; i < nkeys; i++)
	{
		if (form->indkey.values[i] < 1 ||
			form->indkey.values[i] > nkeys ||
			(OidIsValid(index->rd_indcollation[i]) &&
			 index->rd_indcollation[i] != C_COLLATION_OID))
			return false;
	}
	return true;
}

/*
 * Whether every index is one that direct_insert_entries() can serve, and the
 * primary key is on the first "nkeys" columns, in whichever order, compared
 * byte by byte, immediate and valid.  Another unique index has to be on the
 * same: a conflict elsewhere would be taken for one of the key.
 */
static bool
direct_indexes_are_plain(Relation rel, int nkeys)
{
	bool		plain;
	Oid			pk;

	do
	{
		List	   *indexes = RelationGetIndexList(rel);
		ListCell   *lc;

		pk = rel->rd_pkindex;
		plain = OidIsValid(pk);
		foreach(lc, indexes)
		{
			Relation	index = index_open(lfirst_oid(lc), AccessShareLock);

			plain = plain &&
				direct_index_is_plain(index, nkeys,
									  RelationGetRelid(index) == pk);
			index_close(index, AccessShareLock);
		}
		list_free(indexes);

		/* where another became the primary key meanwhile, look again */
		list_free(RelationGetIndexList(rel));
	} while (rel->rd_pkindex != pk);
	return plain;
}

/*
 * Whether the table has exactly these columns, and nothing stands on it that
 * only the executor would honour.
 */
bool
idem_direct_suitable(Relation rel, int natts, const Oid *types, int nkeys)
{
	TupleDesc	desc = RelationGetDescr(rel);

	if (rel->rd_rel->relkind != RELKIND_RELATION ||
		rel->rd_rel->relam != HEAP_TABLE_AM_OID ||
		rel->rd_rel->relispartition || rel->rd_rel->relhassubclass ||
		rel->rd_rel->relrowsecurity ||
		rel->rd_rel->relreplident != REPLICA_IDENTITY_DEFAULT ||
		rel->rd_rules != NULL || rel->trigdesc != NULL)
		return false;

	if (desc->natts != natts ||
		(desc->constr != NULL &&
		 (desc->constr->num_check > 0 || desc->constr->has_generated_stored)))
		return false;
	for (int i = 0; i < natts; i++)
	{
		if (TupleDescAttr(desc, i)->attisdropped ||
			TupleDescAttr(desc, i)->atttypid != types[i])
			return false;
	}

	return direct_indexes_are_plain(rel, nkeys) &&
		!idem_direct_has_foreign_planner(RelationGetRelid(rel));
}
