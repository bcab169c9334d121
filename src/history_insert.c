/*
 * history_insert.c
 *	  Rows of idem.history into the table.
 *
 * They go in by table_multi_insert(), where the table is the plain heap that the
 * extension made; with anything on it that only the executor honours (a trigger
 * on INSERT, a rule, row security, a column, check or NOT NULL of its owner's), they
 * go in one by one as SQL.  An index of the two columns that every row's place is
 * told by gets its entries without the executor.
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
#include "catalog/index.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "executor/spi.h"
#include "utils/rel.h"

#include "catalog.h"
#include "compat.h"
#include "history_writer.h"
#include "own.h"
#include "store.h"

const Oid	idem_history_types[IDEM_HISTORY_NCOLUMNS] = {
	[IDEM_HISTORY_SEQ] = INT8OID,
	[IDEM_HISTORY_TABLE_SCHEMA] = TEXTOID,
	[IDEM_HISTORY_TABLE_NAME] = TEXTOID,
	[IDEM_HISTORY_COLUMN_NAME] = TEXTOID,
	[IDEM_HISTORY_ROW_KEY] = JSONBOID,
	[IDEM_HISTORY_MACHINE] = TEXTOID,
	[IDEM_HISTORY_EVENT] = TEXTOID,
	[IDEM_HISTORY_FROM_STATE] = TEXTOID,
	[IDEM_HISTORY_TO_STATE] = TEXTOID,
	[IDEM_HISTORY_VERSION] = INT8OID,
	[IDEM_HISTORY_ROLE_NAME] = TEXTOID,
	[IDEM_HISTORY_ACTOR] = TEXTOID,
	[IDEM_HISTORY_KEY] = TEXTOID,
	[IDEM_HISTORY_CONTEXT] = JSONBOID,
	[IDEM_HISTORY_AT] = TIMESTAMPTZOID,
	[IDEM_HISTORY_EXPIRES_AT] = TIMESTAMPTZOID,
	[IDEM_HISTORY_ROW_HASH] = INT8OID
};

static const bool history_may_be_null[IDEM_HISTORY_NCOLUMNS] = {
	[IDEM_HISTORY_EVENT] = true,
	[IDEM_HISTORY_FROM_STATE] = true,
	[IDEM_HISTORY_TO_STATE] = true,
	[IDEM_HISTORY_VERSION] = true,
	[IDEM_HISTORY_ACTOR] = true,
	[IDEM_HISTORY_KEY] = true,
	[IDEM_HISTORY_CONTEXT] = true,
	[IDEM_HISTORY_EXPIRES_AT] = true
};

static const char insert_statement[] =
"INSERT INTO idem.history (seq, table_schema, table_name, column_name,"
" row_key, machine, event, from_state, to_state, version, role_name, actor,"
" key, context, at, expires_at, row_hash) VALUES ($1, $2, $3, $4, $5, $6, $7,"
" $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)";

/*
 * The columns as the extension makes them.
 */
static TupleDesc
history_desc(void)
{
	static TupleDesc desc = NULL;

	if (desc == NULL)
	{
		MemoryContext caller = MemoryContextSwitchTo(TopMemoryContext);
		TupleDesc	made = CreateTemplateTupleDesc(IDEM_HISTORY_NCOLUMNS);

		for (int i = 0; i < IDEM_HISTORY_NCOLUMNS; i++)
			TupleDescInitEntry(made, i + 1, "c", idem_history_types[i], -1, 0);
		desc = made;
		MemoryContextSwitchTo(caller);
	}
	return desc;
}

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
		rel->rd_rel->relispartition ||
		desc->natts != IDEM_HISTORY_NCOLUMNS)
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
	for (int i = 0; i < IDEM_HISTORY_NCOLUMNS; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		if (att->attisdropped || att->atttypid != idem_history_types[i] ||
			(att->attnotnull && history_may_be_null[i]))
			return false;
	}
	return true;
}

static void
history_insert_by_sql(IdemHistoryWaiting *row)
{
	static SPIPlanPtr plan = NULL;
	Datum		values[IDEM_HISTORY_NCOLUMNS];
	bool		nulls[IDEM_HISTORY_NCOLUMNS];
	char		null_chars[IDEM_HISTORY_NCOLUMNS];
	int			rc;

	heap_deform_tuple(row->tuple, history_desc(), values, nulls);
	for (int i = 0; i < IDEM_HISTORY_NCOLUMNS; i++)
		null_chars[i] = nulls[i] ? 'n' : ' ';
	if (plan == NULL)
		plan = idem_sql_keep_plan(insert_statement, IDEM_HISTORY_NCOLUMNS, idem_history_types);
	rc = SPI_execute_plan(plan, values, null_chars, false, 0);
	if (rc < 0)
		elog(ERROR, "SPI_execute_plan failed: %s", SPI_result_code_string(rc));
}

/*
 * Whether an index is over the row's hash and number only.
 */
static bool
history_index_is_simple(Relation index)
{
	Form_pg_index form = index->rd_index;

	if (!idem_own_index_is_plain(index) || form->indisexclusion ||
		!form->indisready)
		return false;
	for (int i = 0; i < form->indnatts; i++)
	{
		if (form->indkey.values[i] != IDEM_HISTORY_SEQ + 1 &&
			form->indkey.values[i] != IDEM_HISTORY_ROW_HASH + 1)
			return false;
	}
	return true;
}

/*
 * Opens the indexes as ExecOpenIndices() does, but does not ask what they are made
 * of.  Whether all of them are simple.
 */
static bool
history_open_indexes(Relation rel, ResultRelInfo *result)
{
	List	   *indexes = RelationGetIndexList(rel);
	bool		simple = true;
	ListCell   *lc;

	InitResultRelInfo(result, rel, 1, NULL, 0);
	result->ri_IndexRelationDescs =
		palloc(list_length(indexes) * sizeof(Relation));
	result->ri_IndexRelationInfo =
		palloc(list_length(indexes) * sizeof(IndexInfo *));
	foreach(lc, indexes)
	{
		Relation	index = index_open(lfirst_oid(lc), RowExclusiveLock);

		simple = simple && history_index_is_simple(index);
		result->ri_IndexRelationDescs[result->ri_NumIndices++] = index;
	}
	list_free(indexes);
	return simple;
}

static void
history_insert_entries(IdemHistoryWriter *writer, Relation rel,
					   ResultRelInfo *result, bool simple, EState *estate)
{
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
				values[k] = Int64GetDatum(info->ii_IndexAttrNumbers[k] == IDEM_HISTORY_SEQ + 1 ?
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

/*
 * Slots for the rows of a batch; they serve the next one too.
 */
static void
history_make_slots(IdemHistoryWriter *writer)
{
	MemoryContext caller = MemoryContextSwitchTo(writer->context);

	if (writer->slots == NULL)
		writer->slots = palloc(IDEM_HISTORY_BATCH * sizeof(TupleTableSlot *));
	while (writer->nslots < writer->n)
		writer->slots[writer->nslots++] =
			MakeSingleTupleTableSlot(history_desc(), &TTSOpsHeapTuple);
	MemoryContextSwitchTo(caller);
}

static void
history_insert_directly(IdemHistoryWriter *writer, Relation rel)
{
	EState	   *estate = CreateExecutorState();
	ResultRelInfo *result = makeNode(ResultRelInfo);
	bool		simple;
	IdemIdentity saved;

	history_make_slots(writer);
	for (int i = 0; i < writer->n; i++)
	{
		writer->rows[i].tuple->t_tableOid = RelationGetRelid(rel);
		/* a slot's own is not copied by the insert */
		ExecStoreHeapTuple(writer->rows[i].tuple, writer->slots[i], true);
	}

	simple = history_open_indexes(rel, result);
	idem_catalog_become_under(rel->rd_rel->relowner,
							  simple ? NULL : idem_catalog_path(InvalidOid),
							  &saved);
	for (int i = 0; i < result->ri_NumIndices; i++)
		result->ri_IndexRelationInfo[i] =
			BuildIndexInfo(result->ri_IndexRelationDescs[i]);
	table_multi_insert(rel, writer->slots, writer->n, GetCurrentCommandId(true),
					   0, NULL);
	history_insert_entries(writer, rel, result, simple, estate);
	idem_catalog_restore(&saved);
	for (int i = 0; i < writer->n; i++)
		ExecClearTuple(writer->slots[i]);
	ExecCloseIndices(result);
	FreeExecutorState(estate);
}

/*
 * Writes the rows that wait, as the table's owner: what he has put into an index
 * runs as himself.
 */
void
idem_history_insert(IdemHistoryWriter *writer)
{
	Relation	rel = table_open(idem_catalog_relation(IDEM_REL_HISTORY),
								 RowExclusiveLock);

	if (history_is_plain(rel))
		history_insert_directly(writer, rel);
	else
	{
		IdemIdentity saved;

		SPI_connect();
		idem_catalog_become(rel->rd_rel->relowner, &saved);
		for (int i = 0; i < writer->n; i++)
			history_insert_by_sql(&writer->rows[i]);
		idem_catalog_restore(&saved);
		SPI_finish();
	}
	table_close(rel, NoLock);
}
