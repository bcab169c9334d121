/*
 * history_write.c
 *	  Appends to idem.history.
 *
 * What all rows of one writer have in common (table, machine, role, actor) is
 * made once.  Rows are collected and go in by table_multi_insert(), where the
 * table is the plain heap that the extension made; with anything on it that
 * only the executor honours (a trigger on INSERT, a rule, row security, a
 * column or check of its owner's), they go in one by one as SQL.
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

#include "access/heapam.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
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

/* labels come again and again */
typedef struct Label
{
	char	   *label;
	Datum		value;
} Label;

struct IdemHistoryWriter
{
	const IdemBinding *binding;
	Relation	rel;
	Oid			sequence;
	bool		direct;
	MemoryContext context;		/* of what lives until it is closed */
	Datum		common[NCOLUMNS];
	bool		null[NCOLUMNS];
	Label		labels[3];		/* of event, from, to */
	IdemTimers *timers;

	/* direct way only; opened at the first flush */
	EState	   *estate;
	ResultRelInfo *result;
	TupleTableSlot **slots;
	int			nslots;			/* that were made */
	int			n;				/* that are filled */
	Size		bytes;
	BulkInsertState bulk;
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
}

/*
 * Begins to write rows of one binding.
 */
IdemHistoryWriter *
idem_history_open(const IdemBinding *binding)
{
	IdemHistoryWriter *writer = palloc0(sizeof(IdemHistoryWriter));
	Oid			relid = idem_catalog_relation(IDEM_REL_HISTORY);

	writer->binding = binding;
	writer->context = CurrentMemoryContext;
	writer->rel = table_open(relid, RowExclusiveLock);
	writer->sequence = idem_catalog_relation(IDEM_REL_HISTORY_SEQ);
	writer->direct = history_is_plain(writer->rel);

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
	writer->timers = idem_timers_open(binding,
									  writer->common[COL_TABLE_SCHEMA],
									  writer->common[COL_TABLE_NAME]);
	return writer;
}

/*
 * The sequence that rows are numbered by.
 */
Oid
idem_history_sequence(const IdemHistoryWriter *writer)
{
	return writer->sequence;
}

static void
history_flush(IdemHistoryWriter *writer)
{
	IdemIdentity saved;
	MemoryContext caller;

	if (writer->n == 0)
		return;
	caller = MemoryContextSwitchTo(writer->context);
	/* what its owner has put into an index runs as himself */
	idem_catalog_become(writer->rel->rd_rel->relowner, &saved);
	if (writer->result == NULL)
	{
		writer->estate = CreateExecutorState();
		writer->result = makeNode(ResultRelInfo);
		InitResultRelInfo(writer->result, writer->rel, 1, NULL, 0);
		ExecOpenIndices(writer->result, false);
	}
	if (writer->n > 1 && writer->bulk == NULL)
		writer->bulk = GetBulkInsertState();

	table_multi_insert(writer->rel, writer->slots, writer->n,
					   GetCurrentCommandId(true), 0, writer->bulk);
	for (int i = 0; i < writer->n; i++)
	{
		TupleTableSlot *slot = writer->slots[i];

		(void) IDEM_INSERT_INDEX_TUPLES(writer->result, slot, writer->estate);
		ResetPerTupleExprContext(writer->estate);
		ExecClearTuple(slot);
	}
	idem_catalog_restore(&saved);
	MemoryContextSwitchTo(caller);
	writer->n = 0;
	writer->bytes = 0;
}

static void
history_insert_by_sql(IdemHistoryWriter *writer, Datum *values, bool *nulls)
{
	static SPIPlanPtr plan = NULL;
	IdemIdentity saved;
	char		null_chars[NCOLUMNS];
	int			rc;

	for (int i = 0; i < NCOLUMNS; i++)
		null_chars[i] = nulls[i] ? 'n' : ' ';
	SPI_connect();
	idem_catalog_become(writer->rel->rd_rel->relowner, &saved);
	if (plan == NULL)
		plan = idem_sql_keep_plan(insert_statement, NCOLUMNS, column_types);
	rc = SPI_execute_plan(plan, values, null_chars, false, 0);
	idem_catalog_restore(&saved);
	if (rc < 0)
		elog(ERROR, "SPI_execute_plan failed: %s", SPI_result_code_string(rc));
	SPI_finish();
}

static Datum
history_label(IdemHistoryWriter *writer, int which, const char *label)
{
	Label	   *kept = &writer->labels[which];

	if (kept->label == NULL || strcmp(kept->label, label) != 0)
	{
		MemoryContext caller = MemoryContextSwitchTo(writer->context);

		kept->label = pstrdup(label);
		kept->value = CStringGetTextDatum(label);
		MemoryContextSwitchTo(caller);
	}
	return kept->value;
}

/*
 * Adds a row.  What it points to is copied.
 */
void
idem_history_add(IdemHistoryWriter *writer, const IdemHistoryRow *row)
{
	Datum		values[NCOLUMNS];
	bool		nulls[NCOLUMNS];
	int64		seq;
	TupleTableSlot *slot;

	memcpy(values, writer->common, sizeof(values));
	memcpy(nulls, writer->null, sizeof(nulls));
	seq = row->seq != 0 ? row->seq : nextval_internal(writer->sequence, false);

#define SET(column, value) \
	(values[column] = (value), nulls[column] = false)
	SET(COL_SEQ, Int64GetDatum(seq));
	SET(COL_ROW_KEY, JsonbPGetDatum(row->row_key));
	SET(COL_ROW_HASH, Int64GetDatum(row->row_hash));
	if (row->event != NULL)
		SET(COL_EVENT, history_label(writer, 0, row->event));
	if (row->from != NULL)
		SET(COL_FROM_STATE, history_label(writer, 1, row->from));
	if (row->to != NULL)
		SET(COL_TO_STATE, history_label(writer, 2, row->to));
	if (row->has_version)
		SET(COL_VERSION, Int64GetDatum(row->version));
	if (row->key != NULL)
		SET(COL_KEY, PointerGetDatum(row->key));
	if (row->context != NULL)
		SET(COL_CONTEXT, JsonbPGetDatum(row->context));
	SET(COL_AT, TimestampTzGetDatum(row->at));
	if (writer->binding->has_keep)
		SET(COL_EXPIRES_AT,
			TimestampTzGetDatum(idem_scope_deadline(row->at,
													&writer->binding->keep,
													"keep")));
#undef SET

	if (writer->timers != NULL && !row->passed)
		idem_timers_add(writer->timers, row);

	if (!writer->direct)
	{
		history_insert_by_sql(writer, values, nulls);
		return;
	}

	if (writer->slots == NULL)
		writer->slots = MemoryContextAlloc(writer->context,
										   BATCH_ROWS * sizeof(TupleTableSlot *));
	if (writer->n == writer->nslots)
	{
		MemoryContext caller = MemoryContextSwitchTo(writer->context);

		writer->slots[writer->nslots++] =
			MakeSingleTupleTableSlot(RelationGetDescr(writer->rel),
									 &TTSOpsHeapTuple);
		MemoryContextSwitchTo(caller);
	}
	slot = writer->slots[writer->n++];
	{
		MemoryContext caller = MemoryContextSwitchTo(slot->tts_mcxt);
		HeapTuple	tuple = heap_form_tuple(RelationGetDescr(writer->rel),
											values, nulls);

		tuple->t_tableOid = RelationGetRelid(writer->rel);
		MemoryContextSwitchTo(caller);
		ExecStoreHeapTuple(tuple, slot, true);
		writer->bytes += tuple->t_len;
	}
	if (writer->n == BATCH_ROWS || writer->bytes > BATCH_BYTES)
		history_flush(writer);
}

/*
 * Writes what is left.
 */
void
idem_history_close(IdemHistoryWriter *writer)
{
	history_flush(writer);
	if (writer->bulk != NULL)
		FreeBulkInsertState(writer->bulk);
	if (writer->result != NULL)
	{
		ExecCloseIndices(writer->result);
		FreeExecutorState(writer->estate);
	}
	for (int i = 0; i < writer->nslots; i++)
		ExecDropSingleTupleTableSlot(writer->slots[i]);
	if (writer->timers != NULL)
		idem_timers_close(writer->timers);
	table_close(writer->rel, NoLock);
}
