/*
 * store_sql.c
 *	  The SQL way to idem.key: saved plans of constant statements.
 *
 * Taken where something other than a plain heap stands behind the name: a
 * partitioned or distributed table, triggers, row security.  The statements
 * hold parameters only; times and fences are computed in C, so that an engine
 * that plans on other nodes may send them there.  They run as the table's
 * owner, with every name and operator qualified.
 *
 * Reads use the latest snapshot, at every isolation level.  An insert is ON
 * CONFLICT DO NOTHING, which sleeps behind an uncommitted twin by itself.
 * Updates and deletes compare all that a holder or a taker could have changed
 * since the read, so that of two that read the same version only the first
 * finds its row.
 *
 * Above READ COMMITTED the same statements can raise 40001 where the snapshot
 * is too old; that is caught and the row read again, a bounded number of times
 * since SERIALIZABLE may mean it for good.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "executor/spi.h"
#include "jit/jit.h"
#include "miscadmin.h"
#include "nodes/plannodes.h"
#include "optimizer/cost.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"
#include "utils/plancache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "catalog.h"
#include "compat.h"
#include "guc.h"
#include "registry.h"

#define ALL_COLUMNS \
	"scope, key, state, hold, attempt, fence, lease_until, expires_at, " \
	"fingerprint, step, progress, response, code, created_at, finished_at, " \
	"function, result, ttl, claimed_at"

/* $1, $2 are scope and key; $20 on are what the version that was read said */
#define SAME_VERSION \
	" WHERE scope OPERATOR(pg_catalog.=) $1 AND key OPERATOR(pg_catalog.=) $2" \
	" AND state OPERATOR(pg_catalog.=) $20" \
	" AND attempt OPERATOR(pg_catalog.=) $21" \
	" AND COALESCE(fence, 0) OPERATOR(pg_catalog.=) COALESCE($22, 0)" \
	" AND COALESCE(lease_until, '-infinity'::pg_catalog.timestamptz)" \
	" OPERATOR(pg_catalog.=) COALESCE($23, '-infinity'::pg_catalog.timestamptz)" \
	" AND COALESCE(expires_at, '-infinity'::pg_catalog.timestamptz)" \
	" OPERATOR(pg_catalog.=) COALESCE($24, '-infinity'::pg_catalog.timestamptz)" \
	" AND COALESCE(step, '') OPERATOR(pg_catalog.=) COALESCE($25, '')" \
	" AND COALESCE(progress, 'null'::pg_catalog.jsonb)" \
	" OPERATOR(pg_catalog.=) COALESCE($26, 'null'::pg_catalog.jsonb)"

static const IdemColumn version_columns[] = {
	IDEM_COL_STATE, IDEM_COL_ATTEMPT, IDEM_COL_FENCE, IDEM_COL_LEASE_UNTIL,
	IDEM_COL_EXPIRES_AT, IDEM_COL_STEP, IDEM_COL_PROGRESS
};

#define NVERSION	lengthof(version_columns)
#define NPARAMS		(IDEM_NCOLUMNS + NVERSION)

typedef enum SqlStatement
{
	SQL_READ,
	SQL_INSERT,
	SQL_UPDATE,
	SQL_DELETE
} SqlStatement;

static const struct
{
	const char *text;
	int			nparams;
}			statements[] = {

	[SQL_READ] = {
		"SELECT " ALL_COLUMNS " FROM idem.key"
		" WHERE scope OPERATOR(pg_catalog.=) $1"
		" AND key OPERATOR(pg_catalog.=) $2",
		2
	},
	[SQL_INSERT] = {
		"INSERT INTO idem.key (" ALL_COLUMNS ") VALUES ($1, $2, $3, $4, $5,"
		" $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)"
		" ON CONFLICT DO NOTHING",
		IDEM_NCOLUMNS
	},
	[SQL_UPDATE] = {
		"UPDATE idem.key SET state = $3, hold = $4, attempt = $5, fence = $6,"
		" lease_until = $7, expires_at = $8, fingerprint = $9, step = $10,"
		" progress = $11, response = $12, code = $13, created_at = $14,"
		" finished_at = $15, function = $16, result = $17, ttl = $18,"
		" claimed_at = $19" SAME_VERSION,
		NPARAMS
	},
	/* the unused parameters keep one numbering for both */
	[SQL_DELETE] = {
		"DELETE FROM idem.key" SAME_VERSION,
		NPARAMS
	}
};

/* how often 40001 is taken for a stale read before it is passed on */
#define MAX_STALE_READS		10

/* the settings by which a plan is made */
typedef struct SqlPlanning
{
	bool		indexscan;
	bool		bitmapscan;
	bool		seqscan;
	bool		tidscan;
	bool		nestloop;
	bool		jit;
} SqlPlanning;

/*
 * A plan that goes with SPI_finish(), made while connected to SPI.
 */
SPIPlanPtr
idem_sql_prepare(const char *statement, int nparams, const Oid *types,
				 int options)
{
	SPIPlanPtr	plan = SPI_prepare_cursor(statement, nparams, (Oid *) types,
										  options);

	if (plan == NULL)
		elog(ERROR, "SPI_prepare_cursor failed: %s",
			 SPI_result_code_string(SPI_result));
	return plan;
}

static SPIPlanPtr
sql_keep(const char *statement, int nparams, const Oid *types, int options)
{
	SPIPlanPtr	plan = idem_sql_prepare(statement, nparams, types, options);

	SPI_keepplan(plan);
	return plan;
}

/*
 * The same, kept for the session.
 */
SPIPlanPtr
idem_sql_keep_plan(const char *statement, int nparams, const Oid *types)
{
	return sql_keep(statement, nparams, types, 0);
}

/*
 * The same for idem_sql_plan_by_index() and idem_sql_execute_by_index().
 */
SPIPlanPtr
idem_sql_keep_generic_plan(const char *statement, int nparams,
						   const Oid *types)
{
	return sql_keep(statement, nparams, types, CURSOR_OPT_GENERIC_PLAN);
}

static void
sql_set_planning(const SqlPlanning *planning)
{
	enable_indexscan = planning->indexscan;
	enable_bitmapscan = planning->bitmapscan;
	enable_seqscan = planning->seqscan;
	enable_tidscan = planning->tidscan;
	enable_nestloop = planning->nestloop;
	jit_enabled = planning->jit;
}

/*
 * Whether the plan does what the settings are to keep it from, since no index
 * serves: a condition may have to wait for that of a policy.
 */
static bool
sql_is_forced(const CachedPlan *planned)
{
	ListCell   *lc;

	foreach(lc, planned->stmt_list)
	{
		const PlannedStmt *statement = lfirst_node(PlannedStmt, lc);

		if (statement->planTree != NULL &&
			IDEM_PLAN_IS_FORCED(statement->planTree))
			return true;
	}
	return false;
}

/*
 * Makes the plan, where there is none, for the index alone.  Whether it is forced.
 */
static bool
sql_plan_by_index(SPIPlanPtr plan)
{
	static const SqlPlanning by_index = {
		.indexscan = true,
		.tidscan = true,
		.nestloop = true
	};
	const SqlPlanning caller = {
		.indexscan = enable_indexscan,
		.bitmapscan = enable_bitmapscan,
		.seqscan = enable_seqscan,
		.tidscan = enable_tidscan,
		.nestloop = enable_nestloop,
		.jit = jit_enabled
	};
	CachedPlan *planned;
	bool		forced;

	sql_set_planning(&by_index);
	PG_TRY();
	{
		planned = SPI_plan_get_cached_plan(plan);
		forced = planned != NULL && sql_is_forced(planned);
		if (planned != NULL)
			ReleaseCachedPlan(planned, CurrentResourceOwner);
	}
	PG_FINALLY();
	{
		sql_set_planning(&caller);
	}
	PG_END_TRY();
	return forced;
}

/*
 * The same, and runs it if "values" are given, whatever kind of plan the session
 * asks for.  That is set as a function's own settings are: one that runs inside,
 * and has such, gives back what it found when it fails, and that is after us.
 */
static int
sql_by_index(SPIPlanPtr plan, Datum *values, Snapshot snapshot, bool *forced)
{
	int			nestlevel = 0;
	int			rc = 0;

	if (plan_cache_mode != PLAN_CACHE_MODE_AUTO)
	{
		nestlevel = NewGUCNestLevel();
		idem_guc_set("plan_cache_mode", "auto");
	}
	*forced = sql_plan_by_index(plan);
	if (values != NULL)
		rc = SPI_execute_snapshot(plan, values, NULL, snapshot,
								  InvalidSnapshot, false, true, 0);
	if (nestlevel != 0)
		AtEOXact_GUC(false, nestlevel);
	return rc;
}

/*
 * Before a statement runs whose generic plan is kept: where it has to be planned,
 * so that it finds rows by index.  What is best for a table that is empty now
 * would read it from end to end until statistics are gathered, however large it
 * has become.  A join has to be written as "column = ANY (ARRAY[value])": that is
 * of use for the index, and not for a merge of two orders, for which all of an
 * index would be read.  The plan's locks are taken here, hence it stays valid until
 * it runs, and these settings are those of its planning alone.  What no index serves
 * is planned as if it cost ten billion, before 18: it must not be compiled for that.
 * False if that is so.
 *
 * Of no use in a session that asks for a plan of its own for each execution
 * (force_custom_plan), since that is what runs.
 */
bool
idem_sql_plan_by_index(SPIPlanPtr plan)
{
	bool		forced;

	(void) sql_by_index(plan, NULL, InvalidSnapshot, &forced);
	return !forced;
}

/*
 * The same, and runs it by that plan in every session: for statements on idem's
 * own tables, that run nothing of a user's which would see the setting.
 */
int
idem_sql_execute_by_index(SPIPlanPtr plan, Datum *values, Snapshot snapshot)
{
	bool		forced;

	return sql_by_index(plan, values, snapshot, &forced);
}

static SPIPlanPtr
sql_plan(SqlStatement which)
{
	static SPIPlanPtr plans[lengthof(statements)];

	if (plans[which] == NULL)
	{
		Oid			types[NPARAMS];

		memcpy(types, idem_column_types, sizeof(idem_column_types));
		for (int i = 0; i < NVERSION; i++)
			types[IDEM_NCOLUMNS + i] = idem_column_types[version_columns[i]];
		plans[which] = idem_sql_keep_plan(statements[which].text,
										  statements[which].nparams, types);
	}
	return plans[which];
}

/*
 * What stands behind the name may have been altered by its owner: values of
 * another type would be taken for pointers.
 */
static void
sql_check_columns(TupleDesc desc)
{
	for (int i = 0; i < IDEM_NCOLUMNS; i++)
	{
		if (TupleDescAttr(desc, i)->atttypid != idem_column_types[i])
			ereport(ERROR,
					(errcode(ERRCODE_DATATYPE_MISMATCH),
					 errmsg("column \"%s\" of table \"idem.key\" has type %s, not %s",
							NameStr(TupleDescAttr(desc, i)->attname),
							format_type_be(TupleDescAttr(desc, i)->atttypid),
							format_type_be(idem_column_types[i])),
					 errhidestmt(true)));
	}
}

/*
 * Runs one of the reads as the table's owner; true if it gave a row.
 */
static bool
sql_fetch(Oid owner, text *scope, text *key, Snapshot snapshot, IdemRow *row)
{
	Datum		values[2] = {PointerGetDatum(scope), PointerGetDatum(key)};
	IdemIdentity saved;
	bool		found;
	int			rc;

	SPI_connect();
	idem_catalog_become(owner, &saved);
	rc = SPI_execute_snapshot(sql_plan(SQL_READ), values, NULL, snapshot,
							  InvalidSnapshot, snapshot != InvalidSnapshot,
							  true, 1);
	idem_catalog_restore(&saved);
	if (rc != SPI_OK_SELECT)
		elog(ERROR, "SPI_execute_snapshot failed: %s",
			 SPI_result_code_string(rc));
	found = SPI_processed > 0;
	sql_check_columns(SPI_tuptable->tupdesc);
	if (found)
	{
		HeapTuple	tuple = SPI_copytuple(SPI_tuptable->vals[0]);

		heap_deform_tuple(tuple, SPI_tuptable->tupdesc,
						  row->values, row->nulls);
		ItemPointerSetInvalid(&row->tid);
		row->xmin = InvalidTransactionId;
	}
	SPI_finish();
	return found;
}

/*
 * See idem_store_read().
 */
bool
idem_sql_read(IdemStore *store, text *scope, text *key, IdemRow *row)
{
	/* our own writes so far belong to what the snapshot sees */
	CommandCounterIncrement();
	return sql_fetch(store->rel->rd_rel->relowner, scope, key,
					 GetLatestSnapshot(), row);
}

/*
 * See idem_store_snapshot_sees(): reads with the transaction's snapshot, and
 * compares every column.
 */
bool
idem_sql_snapshot_sees(IdemStore *store, const IdemRow *row)
{
	IdemRow		seen;

	if (!sql_fetch(store->rel->rd_rel->relowner,
				   DatumGetTextPP(row->values[IDEM_COL_SCOPE]),
				   DatumGetTextPP(row->values[IDEM_COL_KEY]),
				   InvalidSnapshot, &seen))
		return false;
	for (int i = 0; i < IDEM_NCOLUMNS; i++)
	{
		int16		len;
		bool		byval;

		get_typlenbyval(idem_column_types[i], &len, &byval);
		if (row->nulls[i] != seen.nulls[i] ||
			(!row->nulls[i] &&
			 !datumIsEqual(row->values[i], seen.values[i], byval, len)))
			return false;
	}
	return true;
}

typedef struct SqlWrite
{
	Oid			owner;
	SqlStatement statement;
	Datum		values[NPARAMS];
	char		nulls[NPARAMS];
	bool		own;			/* over what this transaction wrote */
	uint64		processed;
} SqlWrite;

static void
sql_write(void *arg)
{
	SqlWrite   *write = (SqlWrite *) arg;
	IdemIdentity saved;
	int			rc;

	SPI_connect();
	idem_catalog_become(write->owner, &saved);
	rc = SPI_execute_snapshot(sql_plan(write->statement), write->values,
							  write->nulls, GetLatestSnapshot(),
							  InvalidSnapshot, false, true, 0);
	idem_catalog_restore(&saved);
	if (rc < 0)
		elog(ERROR, "SPI_execute_snapshot failed: %s",
			 SPI_result_code_string(rc));
	write->processed = SPI_processed;
	SPI_finish();
}

/*
 * An IdemExpected.
 */
static bool
sql_is_stale(const ErrorData *error)
{
	return error->sqlerrcode == ERRCODE_T_R_SERIALIZATION_FAILURE;
}

/*
 * The same, where the snapshot of the transaction may be too old for it: then
 * nothing is written and nothing processed, and the caller reads again.  That
 * would not help over the transaction's own row, which nobody else can have
 * changed: there the error means what it says.
 */
static void
sql_write_or_stale(void *arg)
{
	static int	stale_reads = 0;
	SqlWrite   *write = (SqlWrite *) arg;

	if (!IsolationUsesXactSnapshot() || write->own ||
		stale_reads >= MAX_STALE_READS)
	{
		stale_reads = 0;
		sql_write(arg);
	}
	else if (idem_try(sql_write, arg, sql_is_stale))
		stale_reads = 0;
	else
	{
		stale_reads++;
		write->processed = 0;
	}
}

static IdemStoreResult
sql_run(IdemStore *store, SqlStatement statement, const IdemRow *old,
		const IdemRow *row, bool own, const IdemWait *wait)
{
	SqlWrite	write;

	write.own = own;
	write.owner = store->rel->rd_rel->relowner;
	write.statement = statement;
	for (int i = 0; i < IDEM_NCOLUMNS; i++)
	{
		write.values[i] = row->values[i];
		write.nulls[i] = row->nulls[i] ? 'n' : ' ';
	}
	for (int i = 0; old != NULL && i < NVERSION; i++)
	{
		write.values[IDEM_NCOLUMNS + i] = old->values[version_columns[i]];
		write.nulls[IDEM_NCOLUMNS + i] =
			old->nulls[version_columns[i]] ? 'n' : ' ';
	}

	if (!idem_wait_run(wait, sql_write_or_stale, &write))
		return IDEM_STORE_BUSY;
	return write.processed > 0 ? IDEM_STORE_OK : IDEM_STORE_CHANGED;
}

IdemStoreResult
idem_sql_insert(IdemStore *store, IdemRow *row, const IdemWait *wait)
{
	return sql_run(store, SQL_INSERT, NULL, row, false, wait);
}

static bool
sql_is_same_claim(const IdemRow *a, const IdemRow *b)
{
	return idem_row_state(a) == idem_row_state(b) &&
		DatumGetInt32(a->values[IDEM_COL_ATTEMPT]) ==
		DatumGetInt32(b->values[IDEM_COL_ATTEMPT]) &&
		a->nulls[IDEM_COL_FENCE] == b->nulls[IDEM_COL_FENCE] &&
		(a->nulls[IDEM_COL_FENCE] ||
		 DatumGetInt64(a->values[IDEM_COL_FENCE]) ==
		 DatumGetInt64(b->values[IDEM_COL_FENCE]));
}

IdemStoreResult
idem_sql_update(IdemStore *store, const IdemRow *old, IdemRow *row,
				bool own, const IdemWait *wait)
{
	IdemStoreResult result = sql_run(store, SQL_UPDATE, old, row, own, wait);
	IdemRow		stored;

	/* what we wrote is there as a trigger of the owner's may have changed it */
	if (own && result == IDEM_STORE_CHANGED &&
		idem_sql_read(store, DatumGetTextPP(row->values[IDEM_COL_SCOPE]),
					  DatumGetTextPP(row->values[IDEM_COL_KEY]), &stored) &&
		sql_is_same_claim(old, &stored))
		result = sql_run(store, SQL_UPDATE, &stored, row, own, wait);
	return result;
}

IdemStoreResult
idem_sql_delete(IdemStore *store, const IdemRow *old, const IdemWait *wait)
{
	return sql_run(store, SQL_DELETE, old, old, false, wait);
}
