/*
 * timer_key.c
 *	  Timers that are under a key which their table does not have any more.
 *
 * A timer knows its row by the primary key as it was when the timer was made.
 * If one column has another name since, or a type that the old values can be
 * read as, it is the row's all the same.  If not, nothing tells whose it is.
 *
 * A look at a table (timer_fill.c) begins with its timers: what can be read is
 * put under the key that the table has now, so that the look finds it, and what
 * cannot is deleted.  All of them at once: the first that comes due asks for the
 * look, and no other one does after it.
 *
 * Values that cannot be read end a subtransaction, which reads and no more.
 *
 * Locks: timers, those only that can be had at once.  One that another ticker is
 * at stays as it is.
 */
#include "postgres.h"

#include "access/table.h"
#include "access/tableam.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "catalog.h"
#include "errors.h"
#include "own.h"
#include "store.h"
#include "timer.h"
#include "wait.h"

/* timers that are read and written together */
#define BATCH_ROWS	1000

static const char scan_statement[] =
"SELECT ctid, row_key FROM idem.timer WHERE table_schema OPERATOR(pg_catalog.=) $1"
" AND table_name OPERATOR(pg_catalog.=) $2 AND binding OPERATOR(pg_catalog.=) $3"
" AND event OPERATOR(pg_catalog.<>) ''";

static struct IdemOwnStatement rename_statement = {
	"UPDATE idem.timer SET row_key = $2, row_hash = $3"
	" WHERE ctid OPERATOR(pg_catalog.=) $1",
	IDEM_OWN_BY_INDEX, 3, {TIDOID, JSONBOID, INT8OID}, NULL
};

typedef struct KeyedTimer
{
	ItemPointer tid;
	Jsonb	   *row_key;
	bool		read;
	IdemHistoryRow name;		/* if so */
} KeyedTimer;

typedef struct Renaming
{
	IdemTarget *target;
	const IdemTable *table;
	KeyedTimer *timers;
	uint64		n;
	uint64		next;			/* the one that is being read */
} Renaming;

/*
 * The values of a timer's key, and the row's name by it now.  False if the table
 * has other columns; ID400 if their values are none of their types'.
 */
bool
idem_timer_name(IdemTarget *target, const IdemTable *table, Jsonb *row_key,
				Datum *id, IdemHistoryRow *name)
{
	Datum		values[IDEM_TARGET_MAXKEYS];

	if (!idem_target_read(target, row_key, id))
		return false;
	memcpy(values, id, target->nkeys * sizeof(Datum));
	idem_history_name(idem_history_key(target, table), target, values, name);
	return true;
}

/*
 * Reads the keys, from the next one on.
 */
static void
rename_read(void *arg)
{
	Renaming   *renaming = (Renaming *) arg;

	for (; renaming->next < renaming->n; renaming->next++)
	{
		KeyedTimer *timer = &renaming->timers[renaming->next];
		Datum		id[IDEM_TARGET_MAXKEYS];

		timer->read = idem_timer_name(renaming->target, renaming->table,
									  timer->row_key, id, &timer->name);
	}
}

/*
 * An IdemExpected.
 */
static bool
rename_is_unread(const ErrorData *error)
{
	return error->sqlerrcode == ERRCODE_IDEM_BAD_ARGUMENT;
}

/*
 * Writes what has another name, and deletes what has none.
 */
static void
rename_write(const Renaming *renaming)
{
	Datum		args[3];
	Relation	rel = idem_timers_open_table();
	TupleTableSlot *slot = table_slot_create(rel, NULL);

	for (uint64 i = 0; i < renaming->n; i++)
	{
		KeyedTimer *timer = &renaming->timers[i];

		if ((timer->read &&
			 compareJsonbContainers(&timer->row_key->root,
									&timer->name.whole_key->root) == 0) ||
			!idem_timers_lock(rel, timer->tid, slot))
			continue;
		if (timer->read)
		{
			args[0] = PointerGetDatum(timer->tid);
			args[1] = JsonbPGetDatum(timer->name.whole_key);
			args[2] = Int64GetDatum(timer->name.row_hash);
			idem_timers_run(&rename_statement, args);
		}
		else
			simple_table_tuple_delete(rel, timer->tid, GetActiveSnapshot());
	}
	ExecDropSingleTupleTableSlot(slot);
	table_close(rel, NoLock);
}

static Portal
rename_scan(Datum *args)
{
	static SPIPlanPtr plan = NULL;
	static const Oid types[] = {TEXTOID, TEXTOID, TEXTOID};
	IdemIdentity saved;
	Portal		portal;

	idem_catalog_become(idem_catalog_owner(IDEM_REL_TIMER), &saved);
	if (plan == NULL)
		plan = idem_sql_keep_plan(scan_statement, lengthof(types), types);
	portal = SPI_cursor_open(NULL, plan, args, NULL, false);
	idem_catalog_restore(&saved);
	return portal;
}

/*
 * Puts the timers of a table under the key that it has now, while connected to
 * SPI.  "args" is what idem_timers_name() says.
 */
void
idem_timers_rekey(IdemTarget *target, const IdemTable *table, Datum *args)
{
	Renaming	renaming = {.target = target,.table = table};
	Portal		portal = rename_scan(args);
	MemoryContext batch = AllocSetContextCreate(CurrentMemoryContext,
												"idem timers",
												ALLOCSET_DEFAULT_SIZES);

	do
	{
		MemoryContext caller;
		SPITupleTable *found;
		IdemIdentity saved;

		CHECK_FOR_INTERRUPTS();
		/* what its owner has put on idem.timer runs as he */
		idem_catalog_become(idem_catalog_owner(IDEM_REL_TIMER), &saved);
		SPI_cursor_fetch(portal, true, BATCH_ROWS);
		idem_catalog_restore(&saved);
		found = SPI_tuptable;
		caller = MemoryContextSwitchTo(batch);
		renaming.n = SPI_processed;
		renaming.next = 0;
		renaming.timers = palloc0(Max(renaming.n, 1) * sizeof(KeyedTimer));
		for (uint64 i = 0; i < renaming.n; i++)
		{
			renaming.timers[i].tid = (ItemPointer)
				DatumGetPointer(idem_own_value(found->vals[i], found->tupdesc,
											   1, TIDOID, NULL));
			renaming.timers[i].row_key =
				DatumGetJsonbP(idem_own_value(found->vals[i], found->tupdesc,
											  2, JSONBOID, NULL));
		}
		while (!idem_try(rename_read, &renaming, rename_is_unread))
			renaming.next++;
		rename_write(&renaming);
		SPI_freetuptable(found);
		MemoryContextSwitchTo(caller);
		MemoryContextReset(batch);
	} while (renaming.n > 0);
	MemoryContextDelete(batch);
	SPI_cursor_close(portal);
}
