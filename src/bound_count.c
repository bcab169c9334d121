/*
 * bound_count.c
 *	  How many rows of a bound table are in which state.
 *
 * Whoever asks about a machine looks into tables that others have attached to it.
 * To plan a query would be to run functions that are in their indexes, as him.  So
 * nothing is planned: the tables are read from end to end, and a value is printed
 * by its type's output function, which only a superuser can have made.  That runs
 * nobody's code, and needs no privilege but the caller's, who must be able to see
 * all rows: row security that would hide some of them is an error.
 *
 * Passed over are a temporary table of another session, which cannot be read, and a
 * foreign partition, whose rows are not the machine's.
 *
 * Locks: the table with its partitions and children, ACCESS SHARE.
 */
#include "postgres.h"

#include "access/table.h"
#include "access/tableam.h"
#include "catalog/namespace.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/rls.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "compat.h"
#include "guc.h"
#include "machine.h"

/*
 * Whether the table can be looked into: it is there and not another session's.
 */
bool
idem_bound_is_readable(Oid relid)
{
	char		persistence;

	if (!SearchSysCacheExists1(RELOID, ObjectIdGetDatum(relid)))
		return false;
	persistence = get_rel_persistence(relid);
	return persistence != RELPERSISTENCE_TEMP ||
		!isOtherTempNamespace(get_rel_namespace(relid));
}

static bool
count_may_select(const IdemBound *bound)
{
	AttrNumber	attnum = get_attnum(bound->relid, NameStr(bound->column));

	return pg_class_aclcheck(bound->relid, GetUserId(),
							 ACL_SELECT) == ACLCHECK_OK ||
		pg_attribute_aclcheck(bound->relid, attnum, GetUserId(),
							  ACL_SELECT) == ACLCHECK_OK;
}

static void
count_context(void *arg)
{
	errcontext("counting rows of table %s, which a machine moves",
			   (const char *) arg);
}

/*
 * The errors that the caller's own query would meet.  Others may have attached the
 * table.
 */
static void
count_require(const IdemBound *bound)
{
	Oid			namespace = get_rel_namespace(bound->relid);
	int			guc_level = NewGUCNestLevel();
	ErrorContextCallback context = {
		.previous = error_context_stack,.callback = count_context,
		.arg = idem_bound_name(bound->relid)
	};

	error_context_stack = &context;

	if (!IDEM_MAY_USE_SCHEMA(namespace))
		aclcheck_error(ACLCHECK_NO_PRIV, OBJECT_SCHEMA,
					   get_namespace_name(namespace));
	if (!count_may_select(bound))
		aclcheck_error(ACLCHECK_NO_PRIV, OBJECT_TABLE,
					   get_rel_name(bound->relid));
	idem_guc_set("row_security", "off");
	(void) check_enable_rls(bound->relid, InvalidOid, false);
	AtEOXact_GUC(false, guc_level);
	error_context_stack = context.previous;
}

/*
 * Whether idem_bound_count() would succeed.
 */
bool
idem_bound_may_count(const IdemBound *bound)
{
	if (!idem_bound_is_readable(bound->relid))
		return true;
	return IDEM_MAY_USE_SCHEMA(get_rel_namespace(bound->relid)) &&
		count_may_select(bound) &&
		check_enable_rls(bound->relid, InvalidOid, true) != RLS_ENABLED;
}

static uint32
count_hash(const void *key, Size size)
{
	const char *state = *(char *const *) key;

	return hash_bytes((const unsigned char *) state, strlen(state));
}

static int
count_match(const void *a, const void *b, Size size)
{
	return strcmp(*(char *const *) a, *(char *const *) b);
}

static int
count_compare(const ListCell *a, const ListCell *b)
{
	return strcmp(((IdemStateCount *) lfirst(a))->state,
				  ((IdemStateCount *) lfirst(b))->state);
}

/*
 * The name of a state in a column's value.
 */
static char *
count_label(FmgrInfo *output, bool padded, Datum value)
{
	char	   *label = OutputFunctionCall(output, value);

	if (padded)
	{
		int			len = strlen(label);

		while (len > 0 && label[len - 1] == ' ')
			label[--len] = '\0';
	}
	return label;
}

/*
 * Adds the rows of one table.
 */
static void
count_table(Relation rel, const char *column, Snapshot snapshot, HTAB *counts,
			int64 *without)
{
	AttrNumber	attnum = get_attnum(RelationGetRelid(rel), column);
	Oid			type = get_atttype(RelationGetRelid(rel), attnum);
	bool		padded = getBaseType(type) == BPCHAROID;
	TableScanDesc scan = table_beginscan(rel, snapshot, 0, NULL);
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	MemoryContext row = AllocSetContextCreate(CurrentMemoryContext,
											  "idem count",
											  ALLOCSET_SMALL_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(row);
	FmgrInfo	output;
	Oid			function;
	bool		is_varlena;

	getTypeOutputInfo(type, &function, &is_varlena);
	fmgr_info_cxt(function, &output, caller);
	while (table_scan_getnextslot(scan, ForwardScanDirection, slot))
	{
		bool		isnull;
		Datum		value = slot_getattr(slot, attnum, &isnull);
		char	   *label;
		IdemStateCount *count;
		bool		found;

		CHECK_FOR_INTERRUPTS();
		if (isnull)
		{
			(*without)++;
			continue;
		}
		label = count_label(&output, padded, value);
		count = hash_search(counts, &label, HASH_ENTER, &found);
		if (!found)
		{
			count->state = MemoryContextStrdup(caller, label);
			count->rows = 0;
		}
		count->rows++;
		MemoryContextReset(row);
	}
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(row);
	ExecDropSingleTupleTableSlot(slot);
	table_endscan(scan);
}

/*
 * How many rows are in which state by the latest snapshot, as a list of
 * IdemStateCount in the order of their bytes; and how many in none, if "without" is
 * given.
 */
List *
idem_bound_count(const IdemBound *bound, int64 *without)
{
	HASHCTL		ctl = {.keysize = sizeof(char *),.entrysize = sizeof(IdemStateCount),.hash = count_hash,.match = count_match,.hcxt = CurrentMemoryContext};
	HTAB	   *table;
	HASH_SEQ_STATUS seq;
	IdemStateCount *count;
	Snapshot	snapshot;
	List	   *counts = NIL;
	ListCell   *lc;
	int64		nulls = 0;

	/* its owner and its schema stay */
	LockRelationOid(bound->relid, AccessShareLock);
	if (!idem_bound_is_readable(bound->relid))
	{
		UnlockRelationOid(bound->relid, AccessShareLock);
		return NIL;
	}
	count_require(bound);

	table = hash_create("idem counts", 32, &ctl,
						HASH_ELEM | HASH_FUNCTION | HASH_COMPARE | HASH_CONTEXT);
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	foreach(lc, find_all_inheritors(bound->relid, AccessShareLock, NULL))
	{
		Relation	rel = table_open(lfirst_oid(lc), NoLock);

		if (rel->rd_rel->relkind == RELKIND_RELATION &&
			!RELATION_IS_OTHER_TEMP(rel))
			count_table(rel, NameStr(bound->column), snapshot, table, &nulls);
		table_close(rel, NoLock);
	}
	UnregisterSnapshot(snapshot);

	hash_seq_init(&seq, table);
	while ((count = hash_seq_search(&seq)) != NULL)
	{
		IdemStateCount *copy = palloc(sizeof(IdemStateCount));

		*copy = *count;
		counts = lappend(counts, copy);
	}
	hash_destroy(table);
	list_sort(counts, count_compare);
	if (without != NULL)
		*without = nulls;
	return counts;
}
