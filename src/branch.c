/*
 * branch.c
 *	  idem_branch: which of a saga's calls on one branch may run.
 *
 * One row per saga, branch and sequence number tells which of try, confirm and
 * cancel the branch has had.  A call reads it, judges, and writes the judged
 * version's successor; so of calls that meet on one branch each is judged
 * behind the one before it, in the order in which they commit.
 *
 * A call sleeps behind another of the same branch whose transaction is still
 * open, as far as its answer depends on that one: behind the first call of the
 * branch always, behind a later one where it would itself write.  The row is
 * the only thing that it sleeps for and holds, so calls of one branch never
 * wait in a circle by themselves.
 *
 * Most tries are the first call of their branch.  After some in a row that were,
 * a session takes the next one for the first as well and inserts without a look;
 * the primary key finds out where that is wrong, at the price of one dead row.
 *
 * A branch that was tried and neither confirmed nor cancelled is kept for
 * ever: without its row a cancel would be taken for one without a try, and
 * what the try did would stay.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "direct.h"
#include "errors.h"
#include "guc.h"
#include "registry.h"
#include "stats.h"

PG_FUNCTION_INFO_V1(idem_branch);

#define MAX_NAME_LENGTH		1024

/* columns of idem.branch, in order */
enum
{
	COL_SAGA,
	COL_BRANCH,
	COL_SEQ,
	COL_TRIED_AT,
	COL_CONFIRMED_AT,
	COL_CANCELLED_AT,
	COL_EXPIRES_AT,
	NCOLUMNS
};

#define NKEYS		(COL_SEQ + 1)

static const Oid column_types[NCOLUMNS] = {
	[COL_SAGA] = TEXTOID,
	[COL_BRANCH] = TEXTOID,
	[COL_SEQ] = INT4OID,
	[COL_TRIED_AT] = TIMESTAMPTZOID,
	[COL_CONFIRMED_AT] = TIMESTAMPTZOID,
	[COL_CANCELLED_AT] = TIMESTAMPTZOID,
	[COL_EXPIRES_AT] = TIMESTAMPTZOID
};

static IdemDirectKind branch_table = {
	.relation = IDEM_REL_BRANCH,
	.name = "branch",
	.natts = NCOLUMNS,
	.types = column_types,
	.nkeys = NKEYS
};

typedef struct BranchRow
{
	Datum		values[NCOLUMNS];
	bool		nulls[NCOLUMNS];
	ItemPointerData tid;
	TransactionId xmin;
} BranchRow;

typedef enum BranchVerdict
{
	BRANCH_RUN,
	BRANCH_DUPLICATE,
	BRANCH_NULL_CANCEL,
	BRANCH_SUSPENDED
} BranchVerdict;

static const char *const verdict_names[] = {
	[BRANCH_RUN] = "run",
	[BRANCH_DUPLICATE] = "duplicate",
	[BRANCH_NULL_CANCEL] = "null_cancel",
	[BRANCH_SUSPENDED] = "suspended"
};

/* tries in a row that were the first call of their branch */
static int	new_in_a_row = 0;

static void
branch_check_name(text *name, const char *what)
{
	if (name == NULL || VARSIZE_ANY_EXHDR(name) == 0)
		idem_report_missing(what);
	if (VARSIZE_ANY_EXHDR(name) > MAX_NAME_LENGTH)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_BAD_ARGUMENT),
				 errmsg("argument \"%s\" is too long", what),
				 errdetail("It has %zu bytes; at most %d are allowed.",
						   (Size) VARSIZE_ANY_EXHDR(name), MAX_NAME_LENGTH),
				 errhidestmt(true)));
}

/*
 * The column that an op sets.
 */
static int
branch_parse_op(text *op)
{
	static const struct
	{
		const char *name;
		int			column;
	}			ops[] = {
		{"try", COL_TRIED_AT},
		{"confirm", COL_CONFIRMED_AT},
		{"cancel", COL_CANCELLED_AT}
	};

	for (int i = 0; op != NULL && i < lengthof(ops); i++)
	{
		if (VARSIZE_ANY_EXHDR(op) == strlen(ops[i].name) &&
			memcmp(VARDATA_ANY(op), ops[i].name, strlen(ops[i].name)) == 0)
			return ops[i].column;
	}
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_BAD_ARGUMENT),
			 errmsg("invalid value for argument \"%s\"", "op"),
			 errhint("Available values are \"try\", \"confirm\" and \"cancel\"."),
			 errhidestmt(true)));
}

/*
 * The row of the branch.  Where there is none, or none that still counts, it is
 * filled as an empty one; false if there is none.  With "presume" there is none,
 * as far as we know.
 */
static bool
branch_read(IdemDirect *table, const Datum *key, bool presume, bool sure,
			TimestampTz now, BranchRow *row)
{
	HeapTuple	tuple = presume ? NULL :
	idem_direct_probe(table, key, sure, row->values, row->nulls);

	if (tuple != NULL)
	{
		row->tid = tuple->t_self;
		row->xmin = HeapTupleHeaderGetXmin(tuple->t_data);
		if (row->nulls[COL_EXPIRES_AT] ||
			DatumGetTimestampTz(row->values[COL_EXPIRES_AT]) > now)
			return true;
	}
	memset(row->nulls, true, sizeof(row->nulls));
	for (int i = 0; i < NKEYS; i++)
	{
		row->values[i] = key[i];
		row->nulls[i] = false;
	}
	return tuple != NULL;
}

/*
 * What the call is answered, by what the branch has had.
 */
static BranchVerdict
branch_judge(const BranchRow *row, int op)
{
	if (!row->nulls[COL_CANCELLED_AT])
		return op == COL_CANCELLED_AT ? BRANCH_DUPLICATE : BRANCH_SUSPENDED;
	if (!row->nulls[COL_CONFIRMED_AT])
		return op == COL_CANCELLED_AT ? BRANCH_SUSPENDED : BRANCH_DUPLICATE;
	if (!row->nulls[COL_TRIED_AT])
		return op == COL_TRIED_AT ? BRANCH_DUPLICATE : BRANCH_RUN;

	/* nothing yet: there is nothing to confirm, and nothing is recorded */
	if (op == COL_CONFIRMED_AT)
		return BRANCH_SUSPENDED;
	return op == COL_TRIED_AT ? BRANCH_RUN : BRANCH_NULL_CANCEL;
}

/*
 * Above READ COMMITTED, refuses to run on a snapshot that does not see what
 * the call before it committed.
 */
static void
branch_check_snapshot(const BranchRow *row)
{
	if (!IsolationUsesXactSnapshot() ||
		TransactionIdIsCurrentTransactionId(row->xmin) ||
		!XidInMVCCSnapshot(row->xmin, GetTransactionSnapshot()))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 errmsg("could not serialize access due to an earlier call of the branch"),
			 errdetail("The transaction's snapshot is older than what that call committed."),
			 errhint("The transaction might succeed if retried."),
			 errhidestmt(true)));
}

/*
 * Records the call on the version that was judged.
 */
static IdemStoreResult
branch_write(IdemDirect *table, BranchRow *row, bool there, int op,
			 TimestampTz now)
{
	row->values[op] = TimestampTzGetDatum(now);
	row->nulls[op] = false;
	row->nulls[COL_EXPIRES_AT] = op == COL_TRIED_AT || idem_guc_branch_ttl < 0;
	row->values[COL_EXPIRES_AT] =
		TimestampTzGetDatum(now + (int64) Max(idem_guc_branch_ttl, 0) *
							USECS_PER_SEC);
	if (there)
		return idem_direct_update(table, &row->tid, row->values, row->nulls,
								  &idem_wait_forever);
	return idem_direct_insert(table, row->values, row->nulls,
							  &idem_wait_forever, &row->tid);
}

static BranchVerdict
branch_call(IdemDirect *table, const Datum *key, int op)
{
	bool		presume = op == COL_TRIED_AT && new_in_a_row >= IDEM_ENOUGH_NEW;

	for (;; presume = false)
	{
		TimestampTz now = GetCurrentTimestamp();
		BranchRow	row;
		bool		there;
		BranchVerdict verdict;

		CHECK_FOR_INTERRUPTS();
		/* who inserts finds out that there was a row after all */
		there = branch_read(table, key, presume, op == COL_CONFIRMED_AT, now,
							&row);
		if (!there && TransactionIdIsValid(table->pending))
		{
			(void) idem_direct_wait(table, &idem_wait_forever);
			continue;
		}
		if (there && op == COL_TRIED_AT)
			new_in_a_row = 0;
		verdict = branch_judge(&row, op);
		if (verdict == BRANCH_DUPLICATE || verdict == BRANCH_SUSPENDED)
			return verdict;
		/* also where the call before it is remembered no more */
		if (there && verdict == BRANCH_RUN)
			branch_check_snapshot(&row);
		if (branch_write(table, &row, there, op, now) != IDEM_STORE_OK)
			continue;
		/* only an update sleeps: then the call is made now */
		if (there && idem_wait_may_have_slept(now) &&
			branch_write(table, &row, true, op,
						 GetCurrentTimestamp()) != IDEM_STORE_OK)
			elog(ERROR, "branch was changed by its own transaction");
		if (!there && op == COL_TRIED_AT)
			new_in_a_row++;
		return verdict;
	}
}

/*
 * idem_branch(saga, branch, op, seq) -> verdict
 */
Datum
idem_branch(PG_FUNCTION_ARGS)
{
	text	   *saga = IDEM_ARG_TEXT(0);
	text	   *branch = IDEM_ARG_TEXT(1);
	int			op;
	IdemDirect	table;
	Datum		key[NKEYS];
	BranchVerdict verdict;

	idem_require_writable("idem_branch()");
	branch_check_name(saga, "saga");
	branch_check_name(branch, "branch");
	op = branch_parse_op(IDEM_ARG_TEXT(2));
	if (PG_ARGISNULL(3) || PG_GETARG_INT32(3) <= 0)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_BAD_ARGUMENT),
				 errmsg("argument \"%s\" must be greater than zero", "seq"),
				 errhidestmt(true)));

	key[COL_SAGA] = PointerGetDatum(saga);
	key[COL_BRANCH] = PointerGetDatum(branch);
	key[COL_SEQ] = PG_GETARG_DATUM(3);
	idem_direct_open_own(&table, &branch_table, RowExclusiveLock);
	verdict = branch_call(&table, key, op);
	idem_direct_close_own(&table);
	idem_stats_counted(IDEM_STATS_BRANCH, NULL,
					   verdict == BRANCH_RUN ? IDEM_COUNT_CLAIMS :
					   verdict == BRANCH_DUPLICATE ? IDEM_COUNT_REPLAYS :
					   IDEM_COUNT_REFUSED);
	return CStringGetTextDatum(verdict_names[verdict]);
}
