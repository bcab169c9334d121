/*
 * history_write.c
 *	  Appends to idem.history.
 *
 * What all rows of one writer have in common (table, machine, role, actor) is
 * made once, and rows are formed when they are added, but for their number and
 * time: those they get when they are written, or just before, all at once.  A
 * draw from the sequence serves as many rows as its increment says.
 *
 * Rows go in by table_multi_insert(), where the table is the plain heap that the
 * extension made; with anything on it that only the executor honours (a trigger
 * on INSERT, a rule, row security, a column or check of its owner's), they go in
 * one by one as SQL.  An index of the two columns that every row's place is told
 * by gets its entries without the executor.
 *
 * Rows are written as the owner of idem.history, whoever wrote the table, and
 * nothing here depends on the caller's search_path or privileges.  Values of
 * the user's types never get here: keys and states arrive as JSON and text,
 * made before, as the writer.
 *
 * Locks: idem.history in ROW EXCLUSIVE mode until the end of the transaction.
 * Nothing here waits for another transaction, since no row is ever updated and
 * seq is drawn from a sequence.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_sequence.h"
#include "catalog/pg_type.h"
#include "commands/sequence.h"
#include "executor/executor.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "catalog.h"
#include "compat.h"
#include "errors.h"
#include "guc.h"
#include "history.h"
#include "scope.h"
#include "store.h"
#include "timer.h"

/* rows that are inserted together, and bytes of them */
#define BATCH_ROWS		500
#define BATCH_BYTES		(256 * 1024)

/* columns of idem.history, in order */
enum
{
	COL_SEQ,
	COL_TABLE_SCHEMA,
	COL_TABLE_NAME,
	COL_COLUMN_NAME,
	COL_ROW_KEY,
	COL_MACHINE,
	COL_EVENT,
	COL_FROM_STATE,
	COL_TO_STATE,
	COL_VERSION,
	COL_ROLE_NAME,
	COL_ACTOR,
	COL_KEY,
	COL_CONTEXT,
	COL_AT,
	COL_EXPIRES_AT,
	COL_ROW_HASH,
	NCOLUMNS
};

static const Oid column_types[NCOLUMNS] = {
	[COL_SEQ] = INT8OID,
	[COL_TABLE_SCHEMA] = TEXTOID,
	[COL_TABLE_NAME] = TEXTOID,
	[COL_COLUMN_NAME] = TEXTOID,
	[COL_ROW_KEY] = JSONBOID,
	[COL_MACHINE] = TEXTOID,
	[COL_EVENT] = TEXTOID,
	[COL_FROM_STATE] = TEXTOID,
	[COL_TO_STATE] = TEXTOID,
	[COL_VERSION] = INT8OID,
	[COL_ROLE_NAME] = TEXTOID,
	[COL_ACTOR] = TEXTOID,
	[COL_KEY] = TEXTOID,
	[COL_CONTEXT] = JSONBOID,
	[COL_AT] = TIMESTAMPTZOID,
	[COL_EXPIRES_AT] = TIMESTAMPTZOID,
	[COL_ROW_HASH] = INT8OID
};

static const char insert_statement[] =
"INSERT INTO idem.history (seq, table_schema, table_name, column_name,"
" row_key, machine, event, from_state, to_state, version, role_name, actor,"
" key, context, at, expires_at, row_hash) VALUES ($1, $2, $3, $4, $5, $6, $7,"
" $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)";

/* the columns that are numbers stand at multiples of this in a row */
#define NUMBER_ALIGN	sizeof(int64)

/* labels come again and again */
typedef struct Label
{
	const char *label;
	Datum		value;
} Label;

/* a row that is not written yet */
typedef struct WaitingRow
{
	HeapTuple	tuple;
	char	   *at;				/* the column in it */
	char	   *expires_at;		/* likewise; NULL: it has none */
	int64		row_hash;
	int64		seq;			/* 0: it has no number yet */
	TimestampTz since;
	bool		passed;
	TransactionId passed_by;	/* who has moved the row on since, if he
								 * commits */
	IdemHistoryRow *timed;		/* for the timers; NULL: none */
} WaitingRow;

struct IdemHistoryWriter
{
	const IdemBinding *binding;
	MemoryContext context;		/* of what lives until it is closed */
	MemoryContext rows_context; /* of rows that are not written */
	Datum		common[NCOLUMNS];
	bool		null[NCOLUMNS];
	Size		common_size;
	Label		labels[3];		/* of event, from, to; with the rows */
	bool		timed;			/* the machine is */
	WaitingRow *rows;
	int			n;				/* that are there */
	int			numbered;		/* of these */
	Size		bytes;
	TupleDesc	desc;
	TupleTableSlot **slots;
	int			nslots;			/* that were made */
};

/*
 * Whether nothing would be passed over by inserting without the executor.
 */
static bool
history_is_plain(Relation rel)
{
	TupleDesc	desc = RelationGetDescr(rel);

	if (rel->rd_rel->relkind != RELKIND_RELATION ||
		rel->rd_tableam != GetHeapamTableAmRoutine() ||
		rel->rd_rel->relhasrules || rel->rd_rel->relrowsecurity ||
		desc->natts != NCOLUMNS)
		return false;
	if (rel->trigdesc != NULL &&
		(rel->trigdesc->trig_insert_before_row ||
		 rel->trigdesc->trig_insert_after_row ||
		 rel->trigdesc->trig_insert_before_statement ||
		 rel->trigdesc->trig_insert_after_statement))
		return false;
	if (desc->constr != NULL &&
		(desc->constr->num_check > 0 || desc->constr->has_generated_stored))
		return false;
	for (int i = 0; i < NCOLUMNS; i++)
	{
		if (TupleDescAttr(desc, i)->attisdropped ||
			TupleDescAttr(desc, i)->atttypid != column_types[i])
			return false;
	}
	return true;
}

static void
history_set(IdemHistoryWriter *writer, int column, Datum value)
{
	writer->common[column] = value;
	writer->null[column] = false;
	writer->common_size += VARSIZE_ANY(DatumGetPointer(value)) + sizeof(int32);
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
	writer->rows = palloc(BATCH_ROWS * sizeof(WaitingRow));
	writer->timed = idem_machine_get(binding->machine, false,
									 CurrentMemoryContext)->timed;

	memset(writer->null, true, sizeof(writer->null));
	history_set(writer, COL_TABLE_SCHEMA,
				CStringGetTextDatum(get_namespace_name(get_rel_namespace(binding->root))));
	history_set(writer, COL_TABLE_NAME,
				CStringGetTextDatum(get_rel_name(binding->root)));
	history_set(writer, COL_COLUMN_NAME,
				CStringGetTextDatum(NameStr(binding->column_name)));
	history_set(writer, COL_MACHINE, CStringGetTextDatum(binding->machine));
	history_set(writer, COL_ROLE_NAME,
				CStringGetTextDatum(GetUserNameFromId(GetUserId(), false)));
	if (idem_guc_actor != NULL && idem_guc_actor[0] != '\0')
		history_set(writer, COL_ACTOR, CStringGetTextDatum(idem_guc_actor));
	if (idem_guc_context != NULL && idem_guc_context[0] != '\0')
		history_set(writer, COL_CONTEXT,
					DirectFunctionCall1(jsonb_in,
										CStringGetDatum(idem_guc_context)));
	return writer;
}

static Datum
history_label(IdemHistoryWriter *writer, int which, const char *label)
{
	Label	   *kept = &writer->labels[which];

	if (kept->label == NULL || strcmp(kept->label, label) != 0)
	{
		MemoryContext caller = MemoryContextSwitchTo(writer->rows_context);

		kept->label = pstrdup(label);
		kept->value = CStringGetTextDatum(label);
		MemoryContextSwitchTo(caller);
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
history_form(IdemHistoryWriter *writer, WaitingRow *waiting,
			 const Datum *values, const bool *nulls, Size room)
{
	Size		offset = MAXALIGN(SizeofHeapTupleHeader + BITMAPLEN(NCOLUMNS));
	HeapTuple	tuple = palloc0(HEAPTUPLESIZE + offset + room);
	HeapTupleHeader header = (HeapTupleHeader) ((char *) tuple + HEAPTUPLESIZE);
	char	   *data = (char *) header + offset;
	char	   *end = data;

	for (int i = 0; i < NCOLUMNS; i++)
	{
		if (nulls[i])
			continue;
		header->t_bits[i >> 3] |= 1 << (i & 7);
		if (column_types[i] == INT8OID || column_types[i] == TIMESTAMPTZOID)
		{
			end = data + TYPEALIGN(NUMBER_ALIGN, end - data);
			if (i == COL_AT)
				waiting->at = end;
			else if (i == COL_EXPIRES_AT)
				waiting->expires_at = end;
			*(int64 *) end = DatumGetInt64(values[i]);
			end += sizeof(int64);
		}
		else
			end = history_append(end, data, values[i]);
	}
	header->t_hoff = offset;
	header->t_infomask = HEAP_HASNULL | HEAP_HASVARWIDTH;
	HeapTupleHeaderSetNatts(header, NCOLUMNS);
	ItemPointerSetInvalid(&header->t_ctid);
	tuple->t_data = header;
	tuple->t_len = end - (char *) header;
	ItemPointerSetInvalid(&tuple->t_self);
	tuple->t_tableOid = InvalidOid;
	waiting->tuple = tuple;
	writer->bytes += tuple->t_len;
}

static void
history_stamp(IdemHistoryWriter *writer, WaitingRow *row, int64 seq,
			  TimestampTz at)
{
	HeapTupleHeader header = row->tuple->t_data;

	row->seq = seq;
	row->since = at;
	*(int64 *) ((char *) header + header->t_hoff) = seq;
	*(int64 *) row->at = at;
	if (row->expires_at != NULL)
		*(int64 *) row->expires_at = idem_scope_deadline(at,
														 &writer->binding->keep,
														 "keep");
}

/*
 * Adds a row.  What it points to is copied.
 */
void
idem_history_add(IdemHistoryWriter *writer, const IdemHistoryRow *row)
{
	WaitingRow *waiting = &writer->rows[writer->n];
	Datum		values[NCOLUMNS];
	bool		nulls[NCOLUMNS];
	Size		room = NCOLUMNS * 2 * NUMBER_ALIGN + writer->common_size;
	MemoryContext caller = MemoryContextSwitchTo(writer->rows_context);

	memset(waiting, 0, sizeof(WaitingRow));
	memcpy(values, writer->common, sizeof(values));
	memcpy(nulls, writer->null, sizeof(nulls));

#define SET(column, value) \
	(values[column] = (value), nulls[column] = false)
#define SET_VARLENA(column, value) \
	(SET(column, value), \
	 room += VARSIZE_ANY(DatumGetPointer(values[column])) + sizeof(int32))
	SET(COL_SEQ, Int64GetDatum(0));
	SET_VARLENA(COL_ROW_KEY, JsonbPGetDatum(row->row_key));
	SET(COL_ROW_HASH, Int64GetDatum(row->row_hash));
	if (row->event != NULL)
		SET_VARLENA(COL_EVENT, history_label(writer, 0, row->event));
	if (row->from != NULL)
		SET_VARLENA(COL_FROM_STATE, history_label(writer, 1, row->from));
	if (row->to != NULL)
		SET_VARLENA(COL_TO_STATE, history_label(writer, 2, row->to));
	if (row->has_version)
		SET(COL_VERSION, Int64GetDatum(row->version));
	if (row->key != NULL)
		SET_VARLENA(COL_KEY, PointerGetDatum(PG_DETOAST_DATUM_PACKED(PointerGetDatum(row->key))));
	if (row->context != NULL)
		SET_VARLENA(COL_CONTEXT, JsonbPGetDatum(row->context));
	SET(COL_AT, Int64GetDatum(0));
	if (writer->binding->has_keep)
		SET(COL_EXPIRES_AT, Int64GetDatum(0));
#undef SET_VARLENA
#undef SET

	history_form(writer, waiting, values, nulls, room);
	waiting->row_hash = row->row_hash;
	waiting->passed = row->passed;
	if (writer->timed)
	{
		waiting->timed = palloc(sizeof(IdemHistoryRow));
		*waiting->timed = *row;
		waiting->timed->row_key = (Jsonb *) PG_DETOAST_DATUM_COPY(JsonbPGetDatum(row->row_key));
		waiting->timed->whole_key = (Jsonb *) PG_DETOAST_DATUM_COPY(JsonbPGetDatum(row->whole_key));
		if (row->from != NULL)
			waiting->timed->from = writer->labels[1].label;
		if (row->to != NULL)
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
	return writer->n == BATCH_ROWS || writer->bytes > BATCH_BYTES;
}

/*
 * How many numbers one draw gives.
 */
static int64
history_step(Oid sequence)
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
	step = history_step(sequence);
	at = GetCurrentTimestamp();
	for (; writer->numbered < writer->n; writer->numbered++)
	{
		WaitingRow *row = &writer->rows[writer->numbered];

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
 * Somebody inside, who may fail alone, moves the row on.
 */
void
idem_history_pass(IdemHistoryWriter *writer, int64 row_hash)
{
	for (int i = 0; i < writer->n; i++)
	{
		if (writer->rows[i].row_hash == row_hash)
			writer->rows[i].passed_by = GetCurrentTransactionId();
	}
}

static void
history_insert_by_sql(WaitingRow *row)
{
	static SPIPlanPtr plan = NULL;
	Datum		values[NCOLUMNS];
	bool		nulls[NCOLUMNS];
	char		null_chars[NCOLUMNS];
	TupleDesc	desc = CreateTemplateTupleDesc(NCOLUMNS);
	int			rc;

	for (int i = 0; i < NCOLUMNS; i++)
		TupleDescInitEntry(desc, i + 1, "c", column_types[i], -1, 0);
	heap_deform_tuple(row->tuple, desc, values, nulls);
	for (int i = 0; i < NCOLUMNS; i++)
		null_chars[i] = nulls[i] ? 'n' : ' ';
	if (plan == NULL)
		plan = idem_sql_keep_plan(insert_statement, NCOLUMNS, column_types);
	rc = SPI_execute_plan(plan, values, null_chars, false, 0);
	if (rc < 0)
		elog(ERROR, "SPI_execute_plan failed: %s", SPI_result_code_string(rc));
}

/*
 * Whether an index is over the row's hash and number only.
 */
static bool
history_index_is_simple(const IndexInfo *info)
{
	if (info->ii_Expressions != NIL || info->ii_Predicate != NIL ||
		info->ii_ExclusionOps != NULL || !info->ii_ReadyForInserts)
		return false;
	for (int i = 0; i < info->ii_NumIndexAttrs; i++)
	{
		if (info->ii_IndexAttrNumbers[i] != COL_SEQ + 1 &&
			info->ii_IndexAttrNumbers[i] != COL_ROW_HASH + 1)
			return false;
	}
	return true;
}

static void
history_insert_entries(IdemHistoryWriter *writer, Relation rel,
					   ResultRelInfo *result, EState *estate)
{
	bool		simple = true;

	for (int i = 0; i < result->ri_NumIndices; i++)
		simple = simple &&
			history_index_is_simple(result->ri_IndexRelationInfo[i]);
	for (int i = 0; i < writer->n; i++)
	{
		TupleTableSlot *slot = writer->slots[i];

		if (!simple)
		{
			(void) IDEM_INSERT_INDEX_TUPLES(result, slot, estate);
			ResetPerTupleExprContext(estate);
			continue;
		}
		for (int j = 0; j < result->ri_NumIndices; j++)
		{
			Relation	index = result->ri_IndexRelationDescs[j];
			IndexInfo  *info = result->ri_IndexRelationInfo[j];
			Datum		values[INDEX_MAX_KEYS];
			bool		nulls[INDEX_MAX_KEYS];

			for (int k = 0; k < info->ii_NumIndexAttrs; k++)
			{
				values[k] = Int64GetDatum(info->ii_IndexAttrNumbers[k] == COL_SEQ + 1 ?
										  writer->rows[i].seq :
										  writer->rows[i].row_hash);
				nulls[k] = false;
			}
			(void) index_insert(index, values, nulls, &slot->tts_tid, rel,
								info->ii_Unique ? UNIQUE_CHECK_YES :
								UNIQUE_CHECK_NO, false, info);
		}
	}
}

static void
history_insert_directly(IdemHistoryWriter *writer, Relation rel)
{
	EState	   *estate = CreateExecutorState();
	ResultRelInfo *result = makeNode(ResultRelInfo);
	BulkInsertState bulk = writer->n > 1 ? GetBulkInsertState() : NULL;

	if (writer->slots == NULL)
	{
		/* a copy, which needs no pin */
		writer->desc = CreateTupleDescCopy(RelationGetDescr(rel));
		writer->slots = palloc(BATCH_ROWS * sizeof(TupleTableSlot *));
	}
	while (writer->nslots < writer->n)
		writer->slots[writer->nslots++] =
			MakeSingleTupleTableSlot(writer->desc, &TTSOpsHeapTuple);
	for (int i = 0; i < writer->n; i++)
	{
		writer->rows[i].tuple->t_tableOid = RelationGetRelid(rel);
		ExecStoreHeapTuple(writer->rows[i].tuple, writer->slots[i], false);
	}

	InitResultRelInfo(result, rel, 1, NULL, 0);
	ExecOpenIndices(result, false);
	table_multi_insert(rel, writer->slots, writer->n, GetCurrentCommandId(true),
					   0, bulk);
	history_insert_entries(writer, rel, result, estate);
	for (int i = 0; i < writer->n; i++)
		ExecClearTuple(writer->slots[i]);
	if (bulk != NULL)
		FreeBulkInsertState(bulk);
	ExecCloseIndices(result);
	FreeExecutorState(estate);
}

static void
history_set_timers(IdemHistoryWriter *writer)
{
	IdemTimers *timers = idem_timers_open(writer->binding,
										  writer->common[COL_TABLE_SCHEMA],
										  writer->common[COL_TABLE_NAME]);

	for (int i = 0; i < writer->n && timers != NULL; i++)
	{
		WaitingRow *row = &writer->rows[i];

		if (row->timed == NULL || row->passed ||
			(TransactionIdIsValid(row->passed_by) &&
			 TransactionIdIsCurrentTransactionId(row->passed_by)))
			continue;
		row->timed->at = row->since;
		idem_timers_add(timers, row->timed);
	}
	if (timers != NULL)
		idem_timers_close(timers);
}

/*
 * Writes what was added.
 */
void
idem_history_flush(IdemHistoryWriter *writer)
{
	Relation	rel;
	IdemIdentity saved;
	MemoryContext caller;

	if (writer->n == 0)
		return;
	idem_history_number(writer);
	caller = MemoryContextSwitchTo(writer->context);
	rel = table_open(idem_catalog_relation(IDEM_REL_HISTORY), RowExclusiveLock);

	/* what its owner has put into an index runs as himself */
	if (history_is_plain(rel))
	{
		idem_catalog_become(rel->rd_rel->relowner, &saved);
		history_insert_directly(writer, rel);
		idem_catalog_restore(&saved);
	}
	else
	{
		SPI_connect();
		idem_catalog_become(rel->rd_rel->relowner, &saved);
		for (int i = 0; i < writer->n; i++)
			history_insert_by_sql(&writer->rows[i]);
		idem_catalog_restore(&saved);
		SPI_finish();
	}
	MemoryContextSwitchTo(writer->rows_context);
	if (writer->timed)
		history_set_timers(writer);
	table_close(rel, NoLock);
	MemoryContextSwitchTo(caller);

	MemoryContextReset(writer->rows_context);
	memset(writer->labels, 0, sizeof(writer->labels));
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
