/*
 * history_write.c
 *	  Rows for idem.history, until they are written.
 *
 * What all rows of one writer have in common (table, machine, role, actor) is
 * made once, and rows are formed when they are added, but for their number and
 * time: those they get when they are written, or just before, all at once.  A
 * draw from the sequence serves as many rows as its increment says.
 *
 * They are formed by hand, since heap_form_tuple(), which looks at each column
 * twice, is 1,450 instructions a row more: 7 % of what check and history add to
 * an update.
 *
 * Rows are written as the owner of idem.history, whoever wrote the table, and
 * nothing here depends on the caller's search_path or privileges.  Values of
 * the user's types never get here: keys and states arrive as JSON and text,
 * made before, as the writer.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_sequence.h"
#include "catalog/pg_type.h"
#include "commands/sequence.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "catalog.h"
#include "compat.h"
#include "guc.h"
#include "history_writer.h"
#include "scope.h"
#include "timer.h"

/* so many bytes of rows at most are inserted together */
#define BATCH_BYTES		(256 * 1024)

/* the columns that are numbers stand at multiples of this in a row */
#define NUMBER_ALIGN	sizeof(int64)

/* the first, one in the midst and those at the end, with what is before them */
#define NUMBERS_BYTES	(7 * NUMBER_ALIGN)

/* whose rows are being written, while triggers on idem.history fire */
static IdemHistoryWriter *writing = NULL;

/*
 * How long a value of variable length is in a row, at most.
 */
static Size
history_size(Datum value)
{
	struct varlena *v = (struct varlena *) DatumGetPointer(value);

	if (VARATT_IS_4B_U(v) && VARATT_CAN_MAKE_SHORT(v))
		return VARATT_CONVERTED_SHORT_SIZE(v);
	return VARSIZE_ANY(v) + ALIGNOF_INT - 1;
}

static void
history_set(IdemHistoryWriter *writer, int column, Datum value)
{
	writer->common[column] = value;
	writer->null[column] = false;
	writer->common_size += history_size(value);
}

/*
 * Begins to write rows of one binding.
 */
IdemHistoryWriter *
idem_history_open(const IdemBinding *binding)
{
	IdemHistoryWriter *writer = palloc0(sizeof(IdemHistoryWriter));

	writer->binding = binding;
	writer->context = CurrentMemoryContext;
	writer->rows_context = AllocSetContextCreate(CurrentMemoryContext,
												 "idem history rows",
												 ALLOCSET_DEFAULT_SIZES);
	writer->rows = palloc(IDEM_HISTORY_BATCH * sizeof(IdemHistoryWaiting));
	writer->timed = idem_machine_get(binding->machine, false,
									 CurrentMemoryContext)->timed;

	memset(writer->null, true, sizeof(writer->null));
	history_set(writer, IDEM_HISTORY_TABLE_SCHEMA,
				CStringGetTextDatum(get_namespace_name(get_rel_namespace(binding->root))));
	history_set(writer, IDEM_HISTORY_TABLE_NAME,
				CStringGetTextDatum(get_rel_name(binding->root)));
	history_set(writer, IDEM_HISTORY_COLUMN_NAME,
				CStringGetTextDatum(NameStr(binding->column_name)));
	history_set(writer, IDEM_HISTORY_MACHINE, CStringGetTextDatum(binding->machine));
	history_set(writer, IDEM_HISTORY_ROLE_NAME,
				CStringGetTextDatum(GetUserNameFromId(GetUserId(), false)));
	if (idem_guc_actor != NULL && idem_guc_actor[0] != '\0')
		history_set(writer, IDEM_HISTORY_ACTOR, CStringGetTextDatum(idem_guc_actor));
	if (idem_guc_context != NULL && idem_guc_context[0] != '\0')
		history_set(writer, IDEM_HISTORY_CONTEXT,
					DirectFunctionCall1(jsonb_in,
										CStringGetDatum(idem_guc_context)));
	return writer;
}

static bool
history_is_label(const IdemHistoryLabel *kept, const char *label)
{
	if (kept->label == NULL || label == NULL)
		return kept->label == label;
	return strcmp(kept->label, label) == 0;
}

static Datum
history_keep_label(IdemHistoryWriter *writer, int which, const char *label)
{
	IdemHistoryLabel *kept = &writer->labels[which];

	if (!history_is_label(kept, label))
	{
		kept->label = label ? pstrdup(label) : NULL;
		kept->value = label ? CStringGetTextDatum(label) : (Datum) 0;
	}
	return kept->value;
}

/*
 * A value of variable length at the end of the row; returns what comes behind
 * it.
 */
static char *
history_append(char *end, const char *data, Datum value)
{
	struct varlena *v = (struct varlena *) DatumGetPointer(value);
	Size		size = VARSIZE_ANY(v);

	if (VARATT_IS_4B_U(v) && VARATT_CAN_MAKE_SHORT(v))
	{
		size = VARATT_CONVERTED_SHORT_SIZE(v);
		SET_VARSIZE_SHORT(end, size);
		memcpy(end + 1, VARDATA(v), size - 1);
		return end + size;
	}
	if (!VARATT_IS_1B(v))
	{
		Size		aligned = INTALIGN(end - data);

		memset(end, 0, data + aligned - end);
		end = unconstify(char *, data) + aligned;
	}
	memcpy(end, v, size);
	return end + size;
}

/*
 * The row as it stands in the heap, with room for what is not known yet.  It is
 * what heap_form_tuple() makes, but the columns' kinds are known here.
 */
static void
history_form(IdemHistoryWriter *writer, IdemHistoryWaiting *waiting,
			 const Datum *values, const bool *nulls, Size room)
{
	Size		offset = MAXALIGN(SizeofHeapTupleHeader + BITMAPLEN(IDEM_HISTORY_NCOLUMNS));
	HeapTuple	tuple = palloc0(HEAPTUPLESIZE + offset + room);
	HeapTupleHeader header = (HeapTupleHeader) ((char *) tuple + HEAPTUPLESIZE);
	char	   *data = (char *) header + offset;
	char	   *end = data;

	for (int i = 0; i < IDEM_HISTORY_NCOLUMNS; i++)
	{
		if (nulls[i])
			continue;
		header->t_bits[i >> 3] |= 1 << (i & 7);
		if (idem_history_types[i] == INT8OID || idem_history_types[i] == TIMESTAMPTZOID)
		{
			end = data + TYPEALIGN(NUMBER_ALIGN, end - data);
			*(int64 *) end = DatumGetInt64(values[i]);
			end += sizeof(int64);
		}
		else
		{
			if (i == IDEM_HISTORY_ROW_KEY)
				writer->key_offset = end - (char *) header;
			end = history_append(end, data, values[i]);
		}
	}
	header->t_hoff = offset;
	header->t_infomask = HEAP_HASNULL | HEAP_HASVARWIDTH;
	HeapTupleHeaderSetNatts(header, IDEM_HISTORY_NCOLUMNS);
	ItemPointerSetInvalid(&header->t_ctid);
	tuple->t_data = header;
	tuple->t_len = end - (char *) header;
	ItemPointerSetInvalid(&tuple->t_self);
	tuple->t_tableOid = InvalidOid;
	waiting->tuple = tuple;
	writer->bytes += tuple->t_len;
}

/*
 * The same where the row before this one differs in nothing but its key, and
 * that is as long: it is copied.  False: it has to be formed.
 */
static bool
history_repeat(IdemHistoryWriter *writer, IdemHistoryWaiting *waiting,
			   const IdemHistoryRow *row)
{
	HeapTuple	before;
	HeapTuple	tuple;
	struct varlena *key;
	Size		size;

	if (!writer->plain || row->has_version || row->key != NULL ||
		row->context != NULL ||
		!history_is_label(&writer->labels[0], row->event) ||
		!history_is_label(&writer->labels[1], row->from) ||
		!history_is_label(&writer->labels[2], row->to))
		return false;
	before = writer->rows[writer->n - 1].tuple;
	key = (struct varlena *) ((char *) before->t_data + writer->key_offset);
	if (!VARATT_CAN_MAKE_SHORT(row->row_key) || !VARATT_IS_1B(key) ||
		VARATT_CONVERTED_SHORT_SIZE(row->row_key) != VARSIZE_1B(key))
		return false;

	size = HEAPTUPLESIZE + before->t_len;
	tuple = memcpy(palloc(size), before, size);
	tuple->t_data = (HeapTupleHeader) ((char *) tuple + HEAPTUPLESIZE);
	key = (struct varlena *) ((char *) tuple->t_data + writer->key_offset);
	memcpy(VARDATA_1B(key), VARDATA_4B(row->row_key),
		   VARSIZE_4B(row->row_key) - VARHDRSZ);
	((int64 *) ((char *) tuple + size))[-1] = row->row_hash;
	waiting->tuple = tuple;
	writer->bytes += tuple->t_len;
	return true;
}

/*
 * Puts number and time into a row, and until when it is kept.  The number comes
 * first in it, and the others, with the hash, last: nothing of variable length
 * and no padding is before the one or behind the others.
 */
static void
history_stamp(IdemHistoryWriter *writer, IdemHistoryWaiting *row, int64 seq,
			  TimestampTz at)
{
	HeapTupleHeader header = row->tuple->t_data;
	int64	   *last = (int64 *) ((char *) header + row->tuple->t_len) - 1;

	StaticAssertStmt(IDEM_HISTORY_SEQ == 0 &&
					 IDEM_HISTORY_AT == IDEM_HISTORY_EXPIRES_AT - 1 &&
					 IDEM_HISTORY_EXPIRES_AT == IDEM_HISTORY_ROW_HASH - 1 &&
					 IDEM_HISTORY_ROW_HASH == IDEM_HISTORY_NCOLUMNS - 1,
					 "idem.history has its numbers elsewhere");
	row->seq = seq;
	row->since = at;
	*(int64 *) ((char *) header + header->t_hoff) = seq;
	if (writer->binding->has_keep)
		*--last = idem_scope_deadline(at, &writer->binding->keep, "keep");
	*--last = at;
}

/*
 * The same from the row's columns.
 */
static void
history_describe_columns(IdemHistoryWriter *writer, IdemHistoryWaiting *waiting,
						 const IdemHistoryRow *row)
{
	Datum		values[IDEM_HISTORY_NCOLUMNS];
	bool		nulls[IDEM_HISTORY_NCOLUMNS];
	Size		room = NUMBERS_BYTES + writer->common_size;
	Datum		event = history_keep_label(writer, 0, row->event);
	Datum		from = history_keep_label(writer, 1, row->from);
	Datum		to = history_keep_label(writer, 2, row->to);

	memcpy(values, writer->common, sizeof(values));
	memcpy(nulls, writer->null, sizeof(nulls));

#define SET(column, value) \
	(values[column] = (value), nulls[column] = false)
#define SET_VARLENA(column, value) \
	(SET(column, value), room += history_size(values[column]))
	SET(IDEM_HISTORY_SEQ, Int64GetDatum(0));
	SET_VARLENA(IDEM_HISTORY_ROW_KEY, JsonbPGetDatum(row->row_key));
	SET(IDEM_HISTORY_ROW_HASH, Int64GetDatum(row->row_hash));
	if (row->event != NULL)
		SET_VARLENA(IDEM_HISTORY_EVENT, event);
	if (row->from != NULL)
		SET_VARLENA(IDEM_HISTORY_FROM_STATE, from);
	if (row->to != NULL)
		SET_VARLENA(IDEM_HISTORY_TO_STATE, to);
	if (row->has_version)
		SET(IDEM_HISTORY_VERSION, Int64GetDatum(row->version));
	if (row->key != NULL)
		SET_VARLENA(IDEM_HISTORY_KEY, PointerGetDatum(PG_DETOAST_DATUM_PACKED(PointerGetDatum(row->key))));
	if (row->context != NULL)
		SET_VARLENA(IDEM_HISTORY_CONTEXT, JsonbPGetDatum(row->context));
	SET(IDEM_HISTORY_AT, Int64GetDatum(0));
	if (writer->binding->has_keep)
		SET(IDEM_HISTORY_EXPIRES_AT, Int64GetDatum(0));
#undef SET_VARLENA
#undef SET

	history_form(writer, waiting, values, nulls, room);
	writer->plain = !row->has_version && row->key == NULL && row->context == NULL;
}

/*
 * Adds a row.  What it points to is copied.
 */
void
idem_history_add(IdemHistoryWriter *writer, const IdemHistoryRow *row)
{
	IdemHistoryWaiting *waiting = &writer->rows[writer->n];
	MemoryContext caller = MemoryContextSwitchTo(writer->rows_context);

	memset(waiting, 0, sizeof(IdemHistoryWaiting));
	if (!history_repeat(writer, waiting, row))
		history_describe_columns(writer, waiting, row);
	waiting->row_hash = row->row_hash;
	waiting->whole_hash = row->whole_hash;
	waiting->command = row->command;
	waiting->passed = row->passed;
	if (writer->timed)
	{
		waiting->timed = palloc(sizeof(IdemHistoryRow));
		*waiting->timed = *row;
		waiting->timed->row_key = (Jsonb *) PG_DETOAST_DATUM_COPY(JsonbPGetDatum(row->row_key));
		waiting->timed->whole_key = (Jsonb *) PG_DETOAST_DATUM_COPY(JsonbPGetDatum(row->whole_key));
		if (row->left_key != NULL)
			waiting->timed->left_key = (Jsonb *) PG_DETOAST_DATUM_COPY(JsonbPGetDatum(row->left_key));
		waiting->timed->from = writer->labels[1].label;
		waiting->timed->to = writer->labels[2].label;
	}
	writer->n++;
	if (row->seq != 0)
		history_stamp(writer, waiting, row->seq, row->at);
	MemoryContextSwitchTo(caller);
}

/*
 * Whether it must be flushed before another row is added.
 */
bool
idem_history_is_full(const IdemHistoryWriter *writer)
{
	return writer->n == IDEM_HISTORY_BATCH || writer->bytes > BATCH_BYTES;
}

/*
 * How many numbers one draw gives.
 */
static int64
history_increment(Oid sequence)
{
	HeapTuple	tuple = SearchSysCache1(SEQRELID, ObjectIdGetDatum(sequence));
	int64		step = 1;

	if (HeapTupleIsValid(tuple))
	{
		step = ((Form_pg_sequence) GETSTRUCT(tuple))->seqincrement;
		ReleaseSysCache(tuple);
	}
	return Max(step, 1);
}

/*
 * Gives numbers to the rows that have none.  Those of one draw serve these rows
 * only: what is added later may have waited for somebody who draws meanwhile.
 */
void
idem_history_number(IdemHistoryWriter *writer)
{
	Oid			sequence;
	int64		step;
	int64		seq = 0;
	int64		left = 0;
	TimestampTz at;

	if (writer->numbered == writer->n)
		return;
	sequence = idem_catalog_relation(IDEM_REL_HISTORY_SEQ);
	step = history_increment(sequence);
	at = GetCurrentTimestamp();
	for (; writer->numbered < writer->n; writer->numbered++)
	{
		IdemHistoryWaiting *row = &writer->rows[writer->numbered];

		if (row->seq != 0)
			continue;
		if (left == 0)
		{
			seq = nextval_internal(sequence, false);
			left = step;
		}
		history_stamp(writer, row, seq++, at);
		left--;
	}
}

/*
 * Somebody inside, who may fail alone, moves the row on that the command made.
 */
void
idem_history_pass(IdemHistoryWriter *writer, CommandId command, int64 hash)
{
	for (int i = 0; i < writer->n; i++)
	{
		IdemHistoryWaiting *row = &writer->rows[i];

		/* one that still counts cannot fail without the one that is at work */
		if (row->whole_hash == hash && row->command == command &&
			!(TransactionIdIsValid(row->passed_by) &&
			  TransactionIdIsCurrentTransactionId(row->passed_by)))
			row->passed_by = GetCurrentTransactionId();
	}
}

/*
 * A trigger on idem.history moves the row on, whose last step is being written.
 */
void
idem_history_pass_writing(Oid trigger, CommandId command, int64 hash)
{
	for (IdemHistoryWriter *writer = writing; writer != NULL;
		 writer = writer->outer)
	{
		if (writer->binding->trigger == trigger)
			idem_history_pass(writer, command, hash);
	}
}

static void
history_set_timers(IdemHistoryWriter *writer)
{
	IdemTimers *timers = idem_timers_open(writer->binding);

	for (int i = 0; i < writer->n && timers != NULL; i++)
	{
		IdemHistoryWaiting *row = &writer->rows[i];

		if (row->timed == NULL)
			continue;
		row->timed->at = row->since;
		if (row->passed ||
			(TransactionIdIsValid(row->passed_by) &&
			 TransactionIdIsCurrentTransactionId(row->passed_by)))
			idem_timers_rename(timers, row->timed);
		else
			idem_timers_add(timers, row->timed);
	}
	if (timers != NULL)
		idem_timers_close(timers);
}

/*
 * Writes what was added.  Where rows go on and on, their memory is kept.
 */
void
idem_history_flush(IdemHistoryWriter *writer)
{
	MemoryContext caller;

	if (writer->n == 0)
		return;
	idem_history_number(writer);
	caller = MemoryContextSwitchTo(writer->rows_context);
	writer->outer = writing;
	PG_TRY();
	{
		writing = writer;
		idem_history_insert(writer);
	}
	PG_FINALLY();
	{
		writing = writer->outer;
	}
	PG_END_TRY();
	if (writer->timed)
		history_set_timers(writer);
	MemoryContextSwitchTo(caller);

	if (!writer->goes_on && idem_history_is_full(writer))
	{
		writer->goes_on = true;
		MemoryContextDelete(writer->rows_context);
		writer->rows_context = AllocSetContextCreate(writer->context,
													 "idem history rows",
													 BATCH_BYTES,
													 BATCH_BYTES, BATCH_BYTES);
	}
	else
		MemoryContextReset(writer->rows_context);
	memset(writer->labels, 0, sizeof(writer->labels));
	writer->plain = false;
	writer->n = 0;
	writer->numbered = 0;
	writer->bytes = 0;
}

/*
 * Writes what is left.
 */
void
idem_history_close(IdemHistoryWriter *writer)
{
	idem_history_flush(writer);
	for (int i = 0; i < writer->nslots; i++)
		ExecDropSingleTupleTableSlot(writer->slots[i]);
	MemoryContextDelete(writer->rows_context);
	pfree(writer->rows);
}
