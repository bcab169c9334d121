/*
 * once_import.c
 *	  The keys of rows that are there when a table is attached.
 *
 * They are sorted first, so that they are inserted in the order of the
 * registry's index and in the order in which every batch takes keys.  Rows
 * that share a key are counted, and reported as an error: nothing is attached
 * then.  A key that is there already stays, for as long at least as the table
 * says from now on.
 */
#include "postgres.h"

#include "access/table.h"
#include "access/tableam.h"
#include "catalog/pg_class.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_operator.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/tuplesort.h"

#include "catalog.h"
#include "compat.h"
#include "errors.h"
#include "once.h"
#include "own.h"

/*
 * Puts the keys of a table's rows into the sort.
 */
static void
import_collect_keys(Relation rel, Tuplesortstate *sort)
{
	IdemOnceTable *table = idem_once_table(rel);
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	TableScanDesc scan = table_beginscan(rel, snapshot, 0, NULL);
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext,
												  "idem once import",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(context);

	while (table_scan_getnextslot(scan, ForwardScanDirection, slot))
	{
		text	   *key;

		CHECK_FOR_INTERRUPTS();
		key = idem_once_key(table, ExecCopySlotHeapTuple(slot),
							RelationGetDescr(rel));
		if (key != NULL)
			tuplesort_putdatum(sort, PointerGetDatum(key), false);
		MemoryContextReset(context);
	}
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(context);
	ExecDropSingleTupleTableSlot(slot);
	table_endscan(scan);
	UnregisterSnapshot(snapshot);
}

/*
 * How many keys there are in a scope that would be skipped.  No index tells:
 * all of idem.key is read.
 */
int64
idem_once_count_keys(text *scope)
{
	static struct IdemOwnStatement statement = {
		"SELECT pg_catalog.count(*) FROM idem.key"
		" WHERE scope OPERATOR(pg_catalog.=) $1"
		" AND (expires_at IS NULL OR expires_at OPERATOR(pg_catalog.>)"
		" pg_catalog.clock_timestamp())",
		IDEM_OWN_READ, 1, {TEXTOID}, NULL
	};
	Datum		value = PointerGetDatum(scope);
	bool		isnull;
	int64		n;

	SPI_connect();
	(void) idem_own_run(&statement, IDEM_REL_KEY, &value);
	n = DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0],
									SPI_tuptable->tupdesc, 1, &isnull));
	SPI_finish();
	return n;
}

/*
 * Records the sorted keys, and counts those that come more than once.
 */
static void
import_record_keys(Relation root, Tuplesortstate *sort, int64 former_keys)
{
	IdemOnceTable *table = idem_once_table(root);
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext,
												  "idem once import",
												  ALLOCSET_DEFAULT_SIZES);
	IdemStore	store;
	StringInfoData previous;
	int64		rows = 0;
	int64		repeated = 0;
	int64		surplus = 0;
	bool		in_group = false;
	Datum		value;
	bool		isnull;

	initStringInfo(&previous);
	idem_store_open(&store, RowExclusiveLock);
	idem_store_expect_many(&store);
	while (IDEM_TUPLESORT_GETDATUM(sort, &value, &isnull))
	{
		MemoryContext caller = MemoryContextSwitchTo(context);
		text	   *key = DatumGetTextPP(value);

		CHECK_FOR_INTERRUPTS();
		if (previous.len == VARSIZE_ANY_EXHDR(key) &&
			memcmp(previous.data, VARDATA_ANY(key), previous.len) == 0)
		{
			surplus++;
			if (!in_group)
				repeated++;
			in_group = true;
		}
		else
		{
			if (repeated == 0 && !idem_mark_import(&store, table, key))
				former_keys--;
			rows++;
			in_group = false;
			resetStringInfo(&previous);
			appendBinaryStringInfo(&previous, VARDATA_ANY(key),
								   VARSIZE_ANY_EXHDR(key));
		}
		MemoryContextSwitchTo(caller);
		pfree(DatumGetPointer(value));
		MemoryContextReset(context);
	}
	idem_store_close(&store);
	MemoryContextDelete(context);

	if (repeated > 0)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_MISUSE),
				 errmsg("table \"%s\" already holds repeated rows",
						RelationGetRelationName(root)),
				 errdetail("Keys that stand in more than one row: %lld.  Rows beyond the first of each: %lld.",
						   (long long) repeated, (long long) surplus),
				 errhint("Delete the repetitions, or choose columns that tell the rows apart."),
				 errtable(root),
				 errhidestmt(true)));

	/* others came and went since they were counted */
	if (former_keys > 0)
	{
		CommandCounterIncrement();
		former_keys = idem_once_count_keys(table->scope.name) - rows;
	}
	if (former_keys > 0)
		ereport(NOTICE,
				(errmsg("scope \"%s\" already holds keys of rows that are not in table \"%s\"",
						text_to_cstring(table->scope.name),
						RelationGetRelationName(root)),
				 errdetail("Such keys: %lld.  Rows with them will be skipped.",
						   (long long) former_keys),
				 errhint("If they are of a former table of this name, give another scope, or delete them from \"idem.key\"."),
				 errtable(root),
				 errhidestmt(true)));
}

/*
 * Records the keys of all rows of a table and its partitions, which the caller
 * has locked.  Of the "former" keys, which were in its scope before, those are
 * told that none of the rows has.
 */
void
idem_once_import(Relation root, int64 former_keys)
{
	List	   *relids = find_all_inheritors(RelationGetRelid(root),
											 NoLock, NULL);
	Tuplesortstate *sort = tuplesort_begin_datum(TEXTOID, TextLessOperator,
												 C_COLLATION_OID, false,
												 maintenance_work_mem, NULL,
												 TUPLESORT_NONE);
	ListCell   *lc;

	foreach(lc, relids)
	{
		Relation	rel = table_open(lfirst_oid(lc), NoLock);

		if (rel->rd_rel->relkind != RELKIND_PARTITIONED_TABLE)
			import_collect_keys(rel, sort);
		table_close(rel, NoLock);
	}
	tuplesort_performsort(sort);
	import_record_keys(root, sort, former_keys);
	tuplesort_end(sort);
}
