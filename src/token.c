/*
 * token.c
 *	  One-time tokens: idem_token_issue, idem_token_use, idem_token_peek.
 *
 * A token is 256 random bits.  Only its SHA-256 is stored, so that who reads
 * the table, a dump or a log has no token; without the token its hash cannot
 * be made, so the index may look for it as for any value.
 *
 * Use is one atomic act: it names the very version of the row that it judged,
 * and sets used_at on it, so that of any number of sessions exactly one finds
 * it unused; a rollback takes that back with the caller's work.  Who meets
 * another's use that is not committed yet sleeps behind it, and judges anew if
 * that commits.  If it rolls back, the version that was judged still stands, but
 * the time may be over by now: so the clock is looked at again after an act that
 * took long enough to have slept.
 *
 * The row stays for 24 hours past its expiry, used or not.  It counts as
 * absent from then on, swept or not.
 *
 * Replacing touches no older token.  The new one carries a mark, ends_older:
 * whatever token of its purpose and subject was created before that counts as
 * expired, once the mark is committed (or the caller's own).  So those who
 * replace, and those who use what is being replaced, neither wait for each
 * other nor hold a lock: no deadlock, and no entry in the lock table for each
 * subject.  Of any number that replace at once, all but the last created are
 * expired by the others' marks, in whichever order they commit.  Order is that
 * of created_at, and of the hash where that is equal; a new mark is later than
 * all tokens that its maker can see, and any new token than all marks, also
 * where the clock was set back.
 *
 * A use that began before the mark was committed stands.  The mark is looked for
 * again where the clock is, after a sleep.  A sweep leaves the
 * last mark of a subject for as long as there are rows of tokens that it ends.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "common/sha2.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/fmgrprotos.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "direct.h"
#include "errors.h"
#include "fingerprint.h"
#include "registry.h"
#include "stats.h"

PG_FUNCTION_INFO_V1(idem_token_issue);
PG_FUNCTION_INFO_V1(idem_token_use);
PG_FUNCTION_INFO_V1(idem_token_peek);

#define MAX_PURPOSE_LENGTH	128
#define MAX_SUBJECT_LENGTH	1024

#define RETENTION			(24 * SECS_PER_HOUR * USECS_PER_SEC)

/* columns of idem.token, in order */
enum
{
	COL_HASH,
	COL_CREATED_AT,
	COL_EXPIRES_AT,
	COL_USED_AT,
	COL_PURPOSE,
	COL_SUBJECT,
	COL_FINGERPRINT,
	COL_ENDS_OLDER,
	NCOLUMNS
};

static const Oid column_types[NCOLUMNS] = {
	[COL_HASH] = BYTEAOID,
	[COL_CREATED_AT] = TIMESTAMPTZOID,
	[COL_EXPIRES_AT] = TIMESTAMPTZOID,
	[COL_USED_AT] = TIMESTAMPTZOID,
	[COL_PURPOSE] = TEXTOID,
	[COL_SUBJECT] = TEXTOID,
	[COL_FINGERPRINT] = BYTEAOID,
	[COL_ENDS_OLDER] = TIMESTAMPTZOID
};

static IdemDirectKind token_table = {
	.relation = IDEM_REL_TOKEN,
	.name = "token",
	.natts = NCOLUMNS,
	.types = column_types,
	.nkeys = 1
};

typedef struct TokenRow
{
	Datum		values[NCOLUMNS];
	bool		nulls[NCOLUMNS];
	ItemPointerData tid;
} TokenRow;

/* what a token is for; what is NULL is not bound */
typedef struct TokenBinding
{
	text	   *purpose;
	text	   *subject;
	bytea	   *fingerprint;
} TokenBinding;

typedef enum TokenVerdict
{
	TOKEN_CONSUMED,
	TOKEN_REUSED,
	TOKEN_EXPIRED,
	TOKEN_UNKNOWN,
	TOKEN_MISMATCH
} TokenVerdict;

static void
token_check_length(text *value, int max, const char *what)
{
	if (value == NULL || VARSIZE_ANY_EXHDR(value) == 0)
		idem_report_missing(what);
	if (VARSIZE_ANY_EXHDR(value) > max)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_BAD_ARGUMENT),
				 errmsg("argument \"%s\" is too long", what),
				 errdetail("It has %zu bytes; at most %d are allowed.",
						   (Size) VARSIZE_ANY_EXHDR(value), max),
				 errhidestmt(true)));
}

/*
 * The arguments purpose, subject and request, which stand side by side.
 */
static void
token_get_binding(FunctionCallInfo fcinfo, int first, TokenBinding *binding)
{
	binding->purpose = IDEM_ARG_TEXT(first);
	binding->subject = IDEM_ARG_TEXT(first + 1);
	binding->fingerprint = PG_ARGISNULL(first + 2) ? NULL :
		idem_fingerprint_jsonb(PG_GETARG_JSONB_P(first + 2));
	token_check_length(binding->purpose, MAX_PURPOSE_LENGTH, "purpose");
	if (binding->subject != NULL)
		token_check_length(binding->subject, MAX_SUBJECT_LENGTH, "subject");
}

static bytea *
token_hash(const char *token)
{
	bytea	   *hash = palloc(VARHDRSZ + PG_SHA256_DIGEST_LENGTH);

	SET_VARSIZE(hash, VARHDRSZ + PG_SHA256_DIGEST_LENGTH);
	idem_digest(token, IDEM_DIGEST_PRINT_LEN, (uint8 *) VARDATA(hash));
	return hash;
}

/*
 * The row of a token, if there is one that still counts.
 */
static bool
token_read(IdemDirect *table, bytea *hash, TimestampTz now, TokenRow *row)
{
	Datum		key = PointerGetDatum(hash);
	HeapTuple	tuple = idem_direct_probe(table, &key, true,
										  row->values, row->nulls);
	bytea	   *found;

	if (tuple == NULL)
		return false;
	row->tid = tuple->t_self;
	found = DatumGetByteaPP(row->values[COL_HASH]);
	return VARSIZE_ANY_EXHDR(found) == PG_SHA256_DIGEST_LENGTH &&
		timingsafe_bcmp(VARDATA_ANY(found), VARDATA(hash),
						PG_SHA256_DIGEST_LENGTH) == 0 &&
		DatumGetTimestampTz(row->values[COL_EXPIRES_AT]) > now - RETENTION;
}

static bool
token_same_bytes(Datum stored, const void *given)
{
	bytea	   *a = DatumGetByteaPP(stored);

	return VARSIZE_ANY_EXHDR(a) == VARSIZE_ANY_EXHDR(given) &&
		memcmp(VARDATA_ANY(a), VARDATA_ANY(given),
			   VARSIZE_ANY_EXHDR(a)) == 0;
}

/*
 * Whether the token is for something else.  The subject has to be the same,
 * or none both times.  A request that the token is bound to has to be given,
 * until it is used: after that, who gives none asks only whether it was.
 */
static bool
token_mismatches(const TokenRow *row, const TokenBinding *binding)
{
	/* what was not NULL when it was declared may be now */
	if (row->nulls[COL_PURPOSE] ||
		!token_same_bytes(row->values[COL_PURPOSE], binding->purpose))
		return true;

	if (row->nulls[COL_SUBJECT] != (binding->subject == NULL) ||
		(binding->subject != NULL &&
		 !token_same_bytes(row->values[COL_SUBJECT], binding->subject)))
		return true;

	if (row->nulls[COL_FINGERPRINT])
		return false;
	if (binding->fingerprint == NULL)
		return row->nulls[COL_USED_AT];
	return !token_same_bytes(row->values[COL_FINGERPRINT],
							 binding->fingerprint);
}

/*
 * The index on (subject, purpose, ends_older).
 */
static Relation
token_open_subject_index(IdemDirect *table)
{
	List	   *indexes = RelationGetIndexList(table->rel);
	ListCell   *lc;

	foreach(lc, indexes)
	{
		Relation	index;
		Form_pg_index form;

		if (lfirst_oid(lc) == RelationGetRelid(idem_direct_pk(table)))
			continue;
		index = index_open(lfirst_oid(lc), AccessShareLock);
		form = index->rd_index;
		if (form->indisvalid && form->indnkeyatts == 3 &&
			form->indkey.values[0] == COL_SUBJECT + 1 &&
			form->indkey.values[1] == COL_PURPOSE + 1 &&
			form->indkey.values[2] == COL_ENDS_OLDER + 1)
			return index;
		index_close(index, AccessShareLock);
	}
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("table \"idem.token\" has no index on (subject, purpose, ends_older)"),
			 errhint("Create it anew."),
			 errtable(table->rel),
			 errhidestmt(true)));
}

/*
 * Begins to read the tokens of a purpose and subject; with "since" only those
 * whose mark is from then or later.
 */
static IndexScanDesc
token_begin_scan(IdemDirect *table, Relation index, Datum purpose,
				 Datum subject, const Datum *since, ScanKey skey)
{
	int			nkeys = since == NULL ? 2 : 3;
	IndexScanDesc scan = IDEM_INDEX_BEGINSCAN(table->rel, index,
											  &table->dirty, nkeys);

	ScanKeyInit(&skey[0], 1, BTEqualStrategyNumber, F_TEXTEQ, subject);
	ScanKeyInit(&skey[1], 2, BTEqualStrategyNumber, F_TEXTEQ, purpose);
	if (since != NULL)
		ScanKeyInit(&skey[2], 3, BTGreaterEqualStrategyNumber,
					F_TIMESTAMPTZ_GE, *since);
	index_rescan(scan, skey, nkeys, NULL, 0);
	return scan;
}

/*
 * Whether the mark of the row in the slot lets a token expire.
 */
static bool
token_mark_ends(TupleTableSlot *slot, const TokenRow *row)
{
	Datum	   *values = slot->tts_values;
	TimestampTz mark;
	TimestampTz created = DatumGetTimestampTz(row->values[COL_CREATED_AT]);

	slot_getallattrs(slot);
	mark = DatumGetTimestampTz(values[COL_ENDS_OLDER]);
	return mark > created ||
		(mark == created &&
		 DatumGetBool(DirectFunctionCall2(byteagt, values[COL_HASH],
										  row->values[COL_HASH])));
}

/*
 * Whether a newer token has taken the place of this one.  What another
 * transaction is just issuing has not.  A mark that moves to another page
 * meanwhile could be missed, as said at idem_direct_probe(): so "no" is sure
 * only if no transaction ended during the look.
 */
static bool
token_is_replaced(IdemDirect *table, const TokenRow *row)
{
	TupleTableSlot *slot = idem_direct_read_slot(table);
	Relation	index;
	IndexScanDesc scan;
	ScanKeyData skey[3];
	uint64		before;
	bool		found = false;

	if (row->nulls[COL_SUBJECT])
		return false;
	index = token_open_subject_index(table);
	scan = token_begin_scan(table, index, row->values[COL_PURPOSE],
							row->values[COL_SUBJECT],
							&row->values[COL_CREATED_AT], skey);
	for (;;)
	{
		CHECK_FOR_INTERRUPTS();
		before = idem_direct_completions();
		while (!found && index_getnext_slot(scan, ForwardScanDirection, slot))
			found = !TransactionIdIsValid(table->dirty.xmin) &&
				token_mark_ends(slot, row);
		if (found || idem_direct_completions() == before)
			break;
		index_rescan(scan, skey, 3, NULL, 0);
	}
	ExecClearTuple(slot);
	index_endscan(scan);
	index_close(index, NoLock);
	return found;
}

/*
 * Whether the token cannot be consumed any more.
 */
static bool
token_is_over(IdemDirect *table, const TokenRow *row, TimestampTz now)
{
	return DatumGetTimestampTz(row->values[COL_EXPIRES_AT]) <= now ||
		token_is_replaced(table, row);
}

static TokenVerdict
token_judge(IdemDirect *table, bytea *hash, const TokenBinding *binding,
			TimestampTz now, TokenRow *row)
{
	if (hash == NULL || !token_read(table, hash, now, row))
		return TOKEN_UNKNOWN;
	if (token_mismatches(row, binding))
		return TOKEN_MISMATCH;
	if (!row->nulls[COL_USED_AT])
		return TOKEN_REUSED;
	if (token_is_over(table, row, now))
		return TOKEN_EXPIRED;
	return TOKEN_CONSUMED;
}

/*
 * Marks the row that was just judged as used, or says that this came too late.
 * False if it is not the row's latest version any more.
 */
static bool
token_consume(IdemDirect *table, const TokenRow *judged,
			  const TokenBinding *binding, TimestampTz now,
			  TokenVerdict *verdict)
{
	TokenRow	row = *judged;

	row.values[COL_USED_AT] = TimestampTzGetDatum(now);
	row.nulls[COL_USED_AT] = false;
	if (binding->fingerprint != NULL)
	{
		row.values[COL_FINGERPRINT] = PointerGetDatum(binding->fingerprint);
		row.nulls[COL_FINGERPRINT] = false;
	}
	if (idem_direct_update(table, &row.tid, row.values, row.nulls,
						   &idem_wait_forever) != IDEM_STORE_OK)
		return false;

	if (idem_wait_may_have_slept(now) &&
		token_is_over(table, &row, GetCurrentTimestamp()))
	{
		TokenRow	unused = *judged;

		if (idem_direct_update(table, &row.tid, unused.values, unused.nulls,
							   &idem_wait_forever) != IDEM_STORE_OK)
			elog(ERROR, "token was changed by its own transaction");
		*verdict = TOKEN_EXPIRED;
	}
	return true;
}

/*
 * The hash of a token that was given; NULL if it cannot be one of ours.
 */
static bytea *
token_get_hash(FunctionCallInfo fcinfo)
{
	text	   *token = IDEM_ARG_TEXT(0);

	if (token == NULL || VARSIZE_ANY_EXHDR(token) == 0)
		idem_report_missing("token");
	if (VARSIZE_ANY_EXHDR(token) != IDEM_DIGEST_PRINT_LEN)
		return NULL;
	return token_hash(VARDATA_ANY(token));
}

static Datum
token_verdict(TokenVerdict verdict, const char *live)
{
	static const char *const names[] = {
		[TOKEN_REUSED] = "reused",
		[TOKEN_EXPIRED] = "expired",
		[TOKEN_UNKNOWN] = "unknown",
		[TOKEN_MISMATCH] = "mismatch"
	};

	return CStringGetTextDatum(verdict == TOKEN_CONSUMED ?
							   live : names[verdict]);
}

/*
 * idem_token_use(token, purpose, subject, request) -> verdict
 */
Datum
idem_token_use(PG_FUNCTION_ARGS)
{
	bytea	   *hash;
	TokenBinding binding;
	IdemDirect	table;
	TokenVerdict verdict;

	idem_require_writable("idem_token_use()");
	hash = token_get_hash(fcinfo);
	token_get_binding(fcinfo, 1, &binding);

	idem_direct_open_own(&table, &token_table, RowExclusiveLock);
	for (;;)
	{
		TimestampTz now = GetCurrentTimestamp();
		TokenRow	row;

		CHECK_FOR_INTERRUPTS();
		verdict = token_judge(&table, hash, &binding, now, &row);
		if (verdict != TOKEN_CONSUMED ||
			token_consume(&table, &row, &binding, now, &verdict))
			break;
	}
	idem_direct_close_own(&table);
	idem_stats_counted(IDEM_STATS_TOKEN, NULL,
					   verdict == TOKEN_CONSUMED ? IDEM_COUNT_CLAIMS :
					   verdict == TOKEN_REUSED ? IDEM_COUNT_REPLAYS :
					   verdict == TOKEN_MISMATCH ? IDEM_COUNT_MISMATCHES :
					   IDEM_COUNT_REFUSED);
	return token_verdict(verdict, "consumed");
}

/*
 * idem_token_peek(token, purpose, subject, request) -> verdict
 */
Datum
idem_token_peek(PG_FUNCTION_ARGS)
{
	bytea	   *hash = token_get_hash(fcinfo);
	TokenBinding binding;
	IdemDirect	table;
	TokenRow	row;
	TokenVerdict verdict;

	PreventCommandIfParallelMode("idem_token_peek()");
	token_get_binding(fcinfo, 1, &binding);
	idem_direct_open_own(&table, &token_table, AccessShareLock);
	verdict = token_judge(&table, hash, &binding, GetCurrentTimestamp(), &row);
	idem_direct_close_own(&table);
	return token_verdict(verdict, "valid");
}

/*
 * When a token of a subject is created: after every mark of its purpose and
 * subject, and one that replaces after every token of theirs, those included
 * that others are just issuing.  So it is not born expired where the clock was
 * set back.
 */
static TimestampTz
token_time_after(IdemDirect *table, const TokenBinding *binding,
				 bool replace, TimestampTz now)
{
	Relation	index = token_open_subject_index(table);
	TupleTableSlot *slot = idem_direct_read_slot(table);
	Datum		since = TimestampTzGetDatum(now);
	ScanKeyData skey[3];
	IndexScanDesc scan = token_begin_scan(table, index,
										  PointerGetDatum(binding->purpose),
										  PointerGetDatum(binding->subject),
										  replace ? NULL : &since, skey);

	while (index_getnext_slot(scan, ForwardScanDirection, slot))
	{
		bool		isnull;
		Datum		created = slot_getattr(slot, COL_CREATED_AT + 1, &isnull);

		if (now <= DatumGetTimestampTz(created))
			now = DatumGetTimestampTz(created) + 1;
	}
	ExecClearTuple(slot);
	index_endscan(scan);
	index_close(index, NoLock);
	return now;
}

/*
 * idem_token_issue(purpose, subject, request, ttl, replace) -> token
 */
Datum
idem_token_issue(PG_FUNCTION_ARGS)
{
	bool		replace = !PG_ARGISNULL(4) && PG_GETARG_BOOL(4);
	uint8		secret[PG_SHA256_DIGEST_LENGTH];
	text	   *token;
	TokenBinding binding;
	TokenRow	row;
	TimestampTz now;
	IdemDirect	table;

	idem_require_writable("idem_token_issue()");
	token_get_binding(fcinfo, 0, &binding);
	idem_require_argument(fcinfo, 3, "ttl");
	if (replace && binding.subject == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_BAD_ARGUMENT),
				 errmsg("argument \"subject\" is missing"),
				 errdetail("Only the older tokens of a subject can be replaced."),
				 errhidestmt(true)));
	(void) idem_scope_deadline(GetCurrentTimestamp(), PG_GETARG_INTERVAL_P(3),
							   "ttl");

	idem_direct_open_own(&table, &token_table, RowExclusiveLock);

	if (!pg_strong_random(secret, sizeof(secret)))
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not generate random values"),
				 errhidestmt(true)));
	token = palloc(VARHDRSZ + IDEM_DIGEST_PRINT_LEN);
	SET_VARSIZE(token, VARHDRSZ + IDEM_DIGEST_PRINT_LEN);
	idem_digest_print(secret, VARDATA(token));
	explicit_bzero(secret, sizeof(secret));

	now = GetCurrentTimestamp();
	memset(row.nulls, false, sizeof(row.nulls));
	row.values[COL_HASH] = PointerGetDatum(token_hash(VARDATA(token)));
	row.values[COL_CREATED_AT] = TimestampTzGetDatum(now);
	row.values[COL_EXPIRES_AT] =
		TimestampTzGetDatum(idem_scope_deadline(now, PG_GETARG_INTERVAL_P(3),
												"ttl"));
	row.nulls[COL_USED_AT] = true;
	row.values[COL_PURPOSE] = PointerGetDatum(binding.purpose);
	row.values[COL_SUBJECT] = PointerGetDatum(binding.subject);
	row.nulls[COL_SUBJECT] = binding.subject == NULL;
	row.values[COL_FINGERPRINT] = PointerGetDatum(binding.fingerprint);
	row.nulls[COL_FINGERPRINT] = binding.fingerprint == NULL;
	if (binding.subject != NULL)
		row.values[COL_CREATED_AT] =
			TimestampTzGetDatum(token_time_after(&table, &binding, replace,
												 now));
	row.values[COL_ENDS_OLDER] = row.values[COL_CREATED_AT];
	row.nulls[COL_ENDS_OLDER] = !replace;
	if (idem_direct_insert(&table, row.values, row.nulls, &idem_wait_forever,
						   &row.tid) != IDEM_STORE_OK)
		elog(ERROR, "token is not unique");
	idem_direct_close_own(&table);
	PG_RETURN_TEXT_P(token);
}
