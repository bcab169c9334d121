/*
 * direct_pack.c
 *	  Rows that will not change again fill their pages.
 *
 * The fillfactor of idem.key keeps more than half of each page free, so that
 * the next version of a row finds room beside it.  A load of rows that are as
 * they will stay for ever needs no such room, and is smaller and faster where
 * it does not keep it.
 *
 * The invariant is that what other rows keep free is left to them: rows are
 * packed only when many came already, and then into pages as good as empty, or
 * new ones.  So the free space map is asked here, for an empty page, and not
 * by the insert, which would be content with any room.  Only the page that the
 * first rows went to is filled up as well.
 *
 * An insert takes the fillfactor from the relation's options and from nowhere
 * else; so it is set there for the time of one insert.  Nothing in between
 * opens a relation, which is what could have the relation's entry built anew:
 * rows that would need a TOAST table are not packed.
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/heaptoast.h"
#include "access/hio.h"
#include "access/htup_details.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "storage/bufmgr.h"
#include "storage/freespace.h"
#include "utils/rel.h"

#include "direct.h"

/* so many rows have to come first */
#define MANY_ROWS	64

/* free space of a page that is as good as empty */
#define EMPTY_PAGE	(BLCKSZ / 10 * 9)

/*
 * Whether the row in the slot is to be packed.
 */
bool
idem_direct_packs(IdemDirect *table, TupleTableSlot *slot)
{
	HeapTuple	tuple;

	if (!table->pack || table->bulk == NULL ||
		table->rel->rd_options == NULL || ++table->nrows <= MANY_ROWS)
		return false;
	tuple = ExecFetchSlotHeapTuple(slot, false, NULL);
	return tuple->t_len <= TOAST_TUPLE_THRESHOLD && !HeapTupleHasExternal(tuple);
}

/*
 * Once the current page is full, makes an empty one the current page, if the
 * table is known to have one.
 */
static void
pack_find_page(IdemDirect *table, Size len)
{
	Buffer		current = table->bulk->current_buf;
	BlockNumber block;
	Buffer		buffer;
	Page		page;
	Size		space;

	/* without a lock, as a hint */
	if (BufferIsValid(current) &&
		PageGetHeapFreeSpace(BufferGetPage(current)) >= MAXALIGN(len))
		return;
	block = GetPageWithFreeSpace(table->rel, EMPTY_PAGE);
	if (block == InvalidBlockNumber)
		return;

	buffer = ReadBuffer(table->rel, block);
	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	page = BufferGetPage(buffer);
	space = PageIsNew(page) ? BLCKSZ : PageGetHeapFreeSpace(page);
	LockBuffer(buffer, BUFFER_LOCK_UNLOCK);
	if (space < EMPTY_PAGE)
	{
		ReleaseBuffer(buffer);
		RecordPageWithFreeSpace(table->rel, block, space);
		return;
	}
	ReleaseBulkInsertStatePin(table->bulk);
	table->bulk->current_buf = buffer;
}

/*
 * Inserts the row in the slot, speculatively.
 */
void
idem_direct_insert_packed(IdemDirect *table, TupleTableSlot *slot,
						  uint32 token)
{
	StdRdOptions *options = (StdRdOptions *) table->rel->rd_options;
	int			fillfactor = options->fillfactor;

	pack_find_page(table, ExecFetchSlotHeapTuple(slot, false, NULL)->t_len);
	PG_TRY();
	{
		options->fillfactor = HEAP_DEFAULT_FILLFACTOR;
		table_tuple_insert_speculative(table->rel, slot,
									   GetCurrentCommandId(true),
									   TABLE_INSERT_SKIP_FSM, table->bulk,
									   token);
	}
	PG_FINALLY();
	{
		Assert(table->rel->rd_options == (bytea *) options);
		options->fillfactor = fillfactor;
	}
	PG_END_TRY();
}
