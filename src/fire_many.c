/*
 * fire_many.c
 *	  SQL function idem_fire_many: one event for many rows.
 *
 * Four steps, each over all rows: one SELECT locks them in the order of their
 * keys, so that two calls cannot deadlock; each is judged as idem_fire() does;
 * the keys of those that will move are recorded, in the order of these; and one
 * UPDATE for each state that is entered writes them, as the caller.  Two ids of
 * one row are refused before anything is judged: a row cannot move twice in one
 * statement.
 *
 * Of an idempotency key each row has its own part, derived from it and the
 * row's key, so that a call that is repeated answers row by row, and what was
 * refused the first time can still be applied.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "executor/spi.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/plancache.h"
#include "utils/snapmgr.h"
#include "utils/varlena.h"

#include "errors.h"
#include "fire.h"
#include "function.h"
#include "taken.h"

PG_FUNCTION_INFO_V1(idem_fire_many);

/* so many at most are done by plans that are kept */
#define FEW_ROWS	100

/* a row version that was locked */
typedef struct Covered
{
	Oid			relid;
	ItemPointerData tid;
} Covered;

typedef struct CoveredEntry
{
	Covered		row;
	bool		moves;			/* it is to be written */
	char		status;			/* simplehash's own */
} CoveredEntry;

static inline uint32
covered_hash_of(Covered row)
{
	return hash_combine(murmurhash32(row.relid),
						murmurhash32(ItemPointerGetBlockNumberNoCheck(&row.tid) * 31 +
									 ItemPointerGetOffsetNumberNoCheck(&row.tid)));
}

#define SH_PREFIX covered
#define SH_ELEMENT_TYPE CoveredEntry
#define SH_KEY_TYPE Covered
#define SH_KEY row
#define SH_HASH_KEY(tb, k) covered_hash_of(k)
#define SH_EQUAL(tb, a, b) ((a).relid == (b).relid && \
	ItemPointerEquals((ItemPointer) &(a).tid, (ItemPointer) &(b).tid))
#define SH_SCOPE static inline
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

typedef struct ManyRow
{
	Datum		id;				/* as given */
	Datum	   *values;			/* of the key */
	IdemFireRow row;
	IdemFireVerdict verdict;
	text	   *key;			/* its part of the idempotency key; NULL: none
								 * was given */
	text	   *former_key;		/* as 1.0.0 made it, if that is another one */
} ManyRow;

typedef struct Many
{
	IdemFire	fire;
	int			n;
	ManyRow    *rows;
	bool		few;			/* done by plans that are kept */
	Oid			id_type;
	covered_hash *covered;		/* the rows that were locked */
} Many;

/*
 * The text of an array, whose own error would quote an id.
 */
static ArrayType *
many_read_ids(text *ids)
{
	MemoryContext context = CurrentMemoryContext;
	ArrayType  *volatile array = NULL;

	PG_TRY();
	{
		array = DatumGetArrayTypeP(OidInputFunctionCall(F_ARRAY_IN,
														text_to_cstring(ids),
														TEXTOID, -1));
	}
	PG_CATCH();
	{
		(void) idem_argument_reword(context, false);
	}
	PG_END_TRY();
	if (array == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_BAD_ARGUMENT),
				 errmsg("argument \"ids\" is not the text of an array"),
				 errhint("Write it as {1,2}, or pass an array."),
				 errhidestmt(true)));
	return array;
}

/*
 * The ids, as values of the key.
 */
static void
many_take_ids(Many *many, FunctionCallInfo fcinfo)
{
	IdemTarget *target = many->fire.target;
	ArrayType  *array;
	Oid			type = get_fn_expr_argtype(fcinfo->flinfo, 1);
	Datum	   *elems;
	bool	   *nulls;
	int16		len;
	bool		byval;
	char		align;

	idem_require_argument(fcinfo, 1, "ids");
	if (type == TEXTOID)
		array = many_read_ids(PG_GETARG_TEXT_PP(1));
	else
		array = PG_GETARG_ARRAYTYPE_P(1);
	many->id_type = ARR_ELEMTYPE(array);
	get_typlenbyvalalign(many->id_type, &len, &byval, &align);
	deconstruct_array(array, many->id_type, len, byval, align, &elems, &nulls,
					  &many->n);

	/*
	 * plans that are kept are not used where each execution has one of its
	 * own
	 */
	many->few = many->n <= FEW_ROWS &&
		plan_cache_mode != PLAN_CACHE_MODE_FORCE_CUSTOM_PLAN;
	many->rows = MemoryContextAllocExtended(CurrentMemoryContext,
											Max(many->n, 1) * sizeof(ManyRow),
											MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	for (int i = 0; i < many->n; i++)
	{
		ManyRow    *row = &many->rows[i];

		CHECK_FOR_INTERRUPTS();
		if (nulls[i])
			ereport(ERROR,
					(errcode(ERRCODE_IDEM_BAD_ARGUMENT),
					 errmsg("argument \"ids\" contains a NULL"),
					 errhidestmt(true)));
		row->id = elems[i];
		/* with room for what idem_fire_write() adds */
		row->values = palloc((target->nkeys + 1) * sizeof(Datum));
		idem_target_convert(target, elems[i], many->id_type, row->values);
	}
}

/*
 * The key columns of some rows and their numbers as array parameters, and the
 * relation k (k1, ..., n) that is made of them.  In a FROM clause unnest() would
 * take a composite value apart; in a list of columns it does not.  How many
 * parameters.
 */
static int
many_bind(Many *many, int *which, int n, Datum *args, Oid *types,
		  StringInfo from)
{
	IdemTarget *target = many->fire.target;
	Datum	   *numbers = palloc(n * sizeof(Datum));

	appendStringInfoString(from, "(SELECT ");
	for (int i = 0; i < target->nkeys; i++)
	{
		Datum	   *values = palloc(n * sizeof(Datum));
		int16		len;
		bool		byval;
		char		align;

		types[i] = get_array_type(target->types[i]);
		if (!OidIsValid(types[i]))
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("type %s of column \"%s\" has no array type",
							format_type_be(target->types[i]),
							target->columns[i]),
					 errhidestmt(true)));
		get_typlenbyvalalign(target->types[i], &len, &byval, &align);
		for (int j = 0; j < n; j++)
			values[j] = many->rows[which != NULL ? which[j] : j].values[i];
		args[i] = PointerGetDatum(construct_array(values, n, target->types[i],
												  len, byval, align));
		appendStringInfo(from, "pg_catalog.unnest($%d) AS k%d, ", i + 1,
						 i + 1);
	}
	for (int j = 0; j < n; j++)
		numbers[j] = Int32GetDatum(j);
	types[target->nkeys] = INT4ARRAYOID;
	args[target->nkeys] =
		PointerGetDatum(construct_array(numbers, n, INT4OID, sizeof(int32),
										true, TYPALIGN_INT));
	appendStringInfo(from, "pg_catalog.unnest($%d) AS n) AS k",
					 target->nkeys + 1);
	return target->nkeys + 1;
}

/*
 * "HEAD the keys of t and k are equal TAIL".  For few rows in a way that is of use
 * for the index alone (idem_sql_plan_by_index), so that these go through k in its
 * order.
 */
static char *
many_text(const Many *many, const char *head, const char *tail)
{
	const IdemTarget *target = many->fire.target;
	StringInfoData text;

	initStringInfo(&text);
	appendStringInfoString(&text, head);
	for (int i = 0; i < target->nkeys; i++)
		appendStringInfo(&text, many->few ?
						 "%s%s %s ANY (ARRAY[k.k%d])" : "%s%s %s k.k%d",
						 i > 0 ? " AND " : "", target->operands[i],
						 target->operators[i], i + 1);
	appendStringInfoString(&text, tail);
	return text.data;
}

/*
 * Runs such a statement.  Few rows are many where no index serves: whatever reads
 * the table should do it once.
 */
static void
many_execute(Many *many, const char *head, const char *tail, int nargs,
			 Oid *types, Datum *args)
{
	IdemTarget *target = many->fire.target;
	SPIPlanPtr	plan = NULL;

	if (many->few)
	{
		plan = idem_target_plan_few(target, many_text(many, head, tail), nargs,
									types);
		many->few = plan != NULL;
	}
	if (plan == NULL)
		plan = idem_target_plan_rows(target, many_text(many, head, tail),
									 nargs, types);
	idem_target_run(plan, args, NULL);
}

/*
 * A row that was locked.
 */
static void
many_take(Many *many, ManyRow *row)
{
	Covered		version = {.relid = row->row.relid,.tid = row->row.tid};
	bool		found;

	covered_insert(many->covered, version, &found)->moves = false;
	if (found)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_BAD_ARGUMENT),
				 errmsg("argument \"ids\" contains an id more than once"),
				 errhint("An event moves a row once; give each id once."),
				 idem_errcolumn(many->fire.target->relid, NULL),
				 errhidestmt(true)));
	row->verdict.outcome = IDEM_FIRE_APPLIED;
	row->verdict.has_version = row->row.has_version;
	row->verdict.version = row->row.version;
}

/*
 * Reads some of the rows, in the order of their keys, with "lock" after that.  How
 * many are there.
 */
static uint64
many_read(Many *many, int *which, int n, const char *lock)
{
	IdemFire   *fire = &many->fire;
	IdemTarget *target = fire->target;
	Datum		args[IDEM_TARGET_MAXKEYS + 1];
	Oid			types[IDEM_TARGET_MAXKEYS + 1];
	int			nargs;
	StringInfoData query;
	StringInfoData tail;
	StringInfoData from;

	initStringInfo(&from);
	nargs = many_bind(many, which, n, args, types, &from);
	initStringInfo(&query);
	appendStringInfoString(&query, "SELECT k.n, ");
	idem_fire_columns(fire, &query);
	appendStringInfo(&query, " FROM %s JOIN %s%s AS t ON ", from.data,
					 target->only ? "ONLY " : "", target->name);
	/* by something that no index has, which might be read from end to end */
	initStringInfo(&tail);
	appendStringInfoString(&tail, " ORDER BY ");
	for (int i = 0; i < target->nkeys; i++)
	{
		const char *column = quote_identifier(target->columns[i]);

		appendStringInfo(&tail, "%sCOALESCE(t.%s, t.%s)", i > 0 ? ", " : "",
						 column, column);
	}
	appendStringInfoString(&tail, lock);
	many_execute(many, query.data, tail.data, nargs, types, args);
	return SPI_processed;
}

/*
 * Locks the rows that are there, in the order of their keys.  Which ids name
 * one row, the row tells: equal values of the key may look different.  What is
 * not found is looked for again, as in idem_fire_lock().
 */
static void
many_lock(Many *many)
{
	IdemFire   *fire = &many->fire;
	const char *lock = fire->moves ? " FOR UPDATE OF t" :
	" FOR NO KEY UPDATE OF t";
	int		   *which = palloc(many->n * sizeof(int));
	int			n = many->n;

	many->covered = covered_create(CurrentMemoryContext, many->n, NULL);
	for (int i = 0; i < many->n; i++)
	{
		many->rows[i].verdict.outcome = IDEM_FIRE_MISSING;
		which[i] = i;
	}
	if (many->n == 1)
	{
		if (idem_fire_lock(fire, many->rows[0].values, &many->rows[0].row))
			many_take(many, &many->rows[0]);
		return;
	}

	for (int attempt = 0; attempt < IDEM_FIRE_ATTEMPTS; attempt++)
	{
		uint64		found = many_read(many, which, n, lock);
		SPITupleTable *table = SPI_tuptable;
		int			left = 0;

		for (uint64 i = 0; i < found; i++)
		{
			bool		isnull;
			int			k = DatumGetInt32(SPI_getbinval(table->vals[i],
														table->tupdesc, 1,
														&isnull));
			ManyRow    *row = &many->rows[which[k]];

			CHECK_FOR_INTERRUPTS();
			idem_fire_take_row(fire, table->vals[i], table->tupdesc, 2,
							   &row->row);
			many_take(many, row);
		}
		for (int i = 0; i < n; i++)
		{
			if (many->rows[which[i]].verdict.outcome == IDEM_FIRE_MISSING)
				which[left++] = which[i];
		}
		n = left;
		if (n == 0 || IsolationUsesXactSnapshot() ||
			many_read(many, which, n, "") == 0)
			return;
	}
}

static bool
many_covers(const IdemIntent *intent, Oid relid, ItemPointer tid)
{
	Covered		row = {.relid = relid,.tid = *tid};
	CoveredEntry *entry = covered_lookup((covered_hash *) intent->arg, row);

	return entry != NULL && entry->moves;
}

/*
 * Writes rows that enter one state.
 */
static void
many_write(Many *many, int *which, int n)
{
	IdemFire   *fire = &many->fire;
	IdemTarget *target = fire->target;
	IdemIntent	intent = {
		.machine = fire->machine,
		.column = NameStr(fire->binding->column_name),
		.event = fire->event,
		.key = fire->key,
		.context = fire->context,
		.covers = many_covers,
		.arg = many->covered
	};
	Datum		args[IDEM_TARGET_MAXKEYS + 2];
	Oid			types[IDEM_TARGET_MAXKEYS + 2];
	int			nargs;
	StringInfoData from;
	StringInfoData set;
	StringInfoData returning;
	StringInfoData query;
	SPITupleTable *table;

	if (n == 1)
	{
		ManyRow    *row = &many->rows[which[0]];

		idem_fire_write(fire, row->values, &row->row, row->key,
						&row->verdict);
		return;
	}
	initStringInfo(&from);
	nargs = many_bind(many, which, n, args, types, &from);
	types[nargs] = fire->binding->base_type;
	args[nargs++] = idem_binding_value(fire->binding,
									   many->rows[which[0]].verdict.to);
	initStringInfo(&set);
	initStringInfo(&returning);
	idem_fire_set_list(fire, nargs, &set, &returning);
	initStringInfo(&query);
	appendStringInfo(&query, "UPDATE %s%s AS t %s FROM %s WHERE ",
					 target->only ? "ONLY " : "", target->name, set.data,
					 from.data);

	idem_taken_begin(&intent);
	PG_TRY();
	{
		many_execute(many, query.data,
					 psprintf(" RETURNING k.n, %s", returning.data), nargs,
					 types, args);
	}
	PG_FINALLY();
	{
		idem_taken_end(&intent);
	}
	PG_END_TRY();
	if (SPI_processed != n)
		idem_fire_refuse_lost(fire);

	table = SPI_tuptable;
	for (int i = 0; i < n; i++)
	{
		HeapTuple	tuple = table->vals[i];
		bool		isnull;
		int			k = DatumGetInt32(SPI_getbinval(tuple, table->tupdesc, 1,
													&isnull));
		ManyRow    *row = &many->rows[which[k]];

		idem_fire_take_written(fire, tuple, table->tupdesc, 2, &row->row, row->key,
							   &row->verdict);
	}
}

/*
 * Where the work for one row is done; what is kept of it is copied.
 */
static MemoryContext
many_scratch(void)
{
	return AllocSetContextCreate(CurrentMemoryContext, "idem fire row",
								 ALLOCSET_SMALL_SIZES);
}

static text *
many_keep_key(const text *key)
{
	return key == NULL ? NULL :
		(text *) DatumGetPointer(datumCopy(PointerGetDatum(key), false, -1));
}

static int
many_compare_keys(const void *a, const void *b, void *arg)
{
	const ManyRow *rows = arg;
	text	   *x = rows[*(const int *) a].key;
	text	   *y = rows[*(const int *) b].key;

	return varstr_cmp(VARDATA_ANY(x), VARSIZE_ANY_EXHDR(x), VARDATA_ANY(y),
					  VARSIZE_ANY_EXHDR(y), C_COLLATION_OID);
}

/*
 * The order in which rows are judged, and their parts of the key recorded.  Two
 * rows that have one part in common would be taken for one.
 */
static int *
many_order(Many *many)
{
	int		   *order = MemoryContextAllocHuge(CurrentMemoryContext,
											   many->n * sizeof(int));
	MemoryContext scratch;

	for (int i = 0; i < many->n; i++)
		order[i] = i;
	if (many->fire.key == NULL)
		return order;
	scratch = many_scratch();
	for (int i = 0; i < many->n; i++)
	{
		ManyRow    *row = &many->rows[i];
		MemoryContext caller = MemoryContextSwitchTo(scratch);

		row->key = idem_fire_child_key(&many->fire,
									   row->row.row_key != NULL ? row->row.row_key :
									   idem_fire_row_key(&many->fire, row->values),
									   &row->former_key);
		MemoryContextSwitchTo(caller);
		row->key = many_keep_key(row->key);
		row->former_key = many_keep_key(row->former_key);
		MemoryContextReset(scratch);
	}
	MemoryContextDelete(scratch);
	qsort_arg(order, many->n, sizeof(int), many_compare_keys, many->rows);
	for (int i = 1; i < many->n; i++)
	{
		const ManyRow *one = &many->rows[order[i - 1]];
		const ManyRow *other = &many->rows[order[i]];

		if (many_compare_keys(&order[i - 1], &order[i], many->rows) == 0 &&
			(one->verdict.outcome != IDEM_FIRE_MISSING ||
			 other->verdict.outcome != IDEM_FIRE_MISSING))
			ereport(ERROR,
					(errcode(ERRCODE_IDEM_BAD_ARGUMENT),
					 errmsg("one key cannot stand for two rows of table \"%s\" that differ in a state only",
							many->fire.target->table),
					 errdetail("A key is bound to what stays of the primary key when the row moves."),
					 errhint("Fire them in calls of their own, each with its own key."),
					 idem_errcolumn(many->fire.target->relid, NULL),
					 errhidestmt(true)));
	}
	return order;
}

/*
 * The verdict of a row that was locked, or is missing; whether it is to be
 * written.
 */
static bool
many_judge(Many *many, ManyRow *row)
{
	IdemFire   *fire = &many->fire;
	text	   *key = row->key;

	if (row->verdict.outcome == IDEM_FIRE_MISSING)
	{
		idem_fire_missing(fire, key, row->values, &row->verdict);
		if (row->verdict.outcome == IDEM_FIRE_MISSING &&
			row->former_key != NULL)
			idem_fire_missing(fire, row->former_key, row->values,
							  &row->verdict);
		return false;
	}
	if (key != NULL &&
		(idem_fire_recall(fire, key, row->row.row_key, &row->verdict) ||
		 (row->former_key != NULL &&
		  idem_fire_recall(fire, row->former_key, row->row.row_key,
						   &row->verdict))))
		return false;
	idem_fire_judge(fire, &row->row, SnapshotAny, &row->verdict);
	return row->verdict.outcome == IDEM_FIRE_APPLIED &&
		(key == NULL ||
		 idem_fire_spend(fire, key, row->row.row_key, &row->verdict));
}

/*
 * Judges what was locked, and writes what may move.
 */
static void
many_apply(Many *many)
{
	IdemFire   *fire = &many->fire;
	int		   *which = palloc(Max(many->n, 1) * sizeof(int));
	bool	   *done = palloc0(Max(many->n, 1) * sizeof(bool));
	int		   *order = many_order(many);
	MemoryContext scratch = many_scratch();

	for (int k = 0; k < many->n; k++)
	{
		ManyRow    *row = &many->rows[order[k]];
		IdemFireVerdict *verdict = &row->verdict;
		MemoryContext caller = MemoryContextSwitchTo(scratch);

		CHECK_FOR_INTERRUPTS();
		done[order[k]] = !many_judge(many, row);
		MemoryContextSwitchTo(caller);
		verdict->from = verdict->from ? pstrdup(verdict->from) : NULL;
		verdict->to = verdict->to ? pstrdup(verdict->to) : NULL;
		MemoryContextReset(scratch);
	}
	MemoryContextDelete(scratch);
	for (int i = 0; i < many->n; i++)
	{
		int			n = 0;
		char	   *to = many->rows[i].verdict.to;

		if (done[i])
			continue;
		for (int j = i; j < many->n; j++)
		{
			if (!done[j] && strcmp(many->rows[j].verdict.to, to) == 0)
			{
				Covered		version = {
					.relid = many->rows[j].row.relid,
					.tid = many->rows[j].row.tid
				};

				idem_fire_check_row(fire, &many->rows[j].row);
				covered_lookup(many->covered, version)->moves = true;
				which[n++] = j;
				done[j] = true;
			}
		}
		many_write(many, which, n);
	}
}

/*
 * idem_fire_many(table_name, ids, event, version, key, context, machine)
 *	 -> SETOF idem_fired_row
 */
Datum
idem_fire_many(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	Many		many = {.fire = {.verb = "idem_fire_many()"}};
	Oid			output;
	bool		is_varlena;
	FmgrInfo	print;

	idem_require_writable("idem_fire_many()");
	idem_fire_prepare(&many.fire, fcinfo, RowExclusiveLock);
	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	many_take_ids(&many, fcinfo);

	SPI_connect();
	if (many.n > 0)
	{
		many_lock(&many);
		many_apply(&many);
	}
	for (int i = 0; i < many.n; i++)
		idem_fire_count(&many.fire, &many.rows[i].verdict, false);
	idem_fire_close(&many.fire);

	getTypeOutputInfo(many.id_type, &output, &is_varlena);
	fmgr_info(output, &print);
	for (int i = 0; i < many.n; i++)
	{
		const IdemFireVerdict *verdict = &many.rows[i].verdict;
		Datum		values[5] = {0};
		bool		nulls[5] = {false};

		values[0] = CStringGetTextDatum(OutputFunctionCall(&print,
														   many.rows[i].id));
		values[1] = CStringGetTextDatum(idem_fire_outcomes[verdict->outcome]);
		nulls[2] = verdict->from == NULL;
		if (!nulls[2])
			values[2] = CStringGetTextDatum(verdict->from);
		nulls[3] = verdict->to == NULL;
		if (!nulls[3])
			values[3] = CStringGetTextDatum(verdict->to);
		nulls[4] = !verdict->has_version;
		values[4] = Int64GetDatum(verdict->version);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values,
							 nulls);
	}
	SPI_finish();
	PG_RETURN_NULL();
}
