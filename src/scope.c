/*
 * scope.c
 *	  Settings of scopes: rows of idem.scope over what is built in.
 *
 * A scope is "name" or "name/tenant"; its settings and roles are those of the
 * row "name", what that row leaves open those of the row "default" (roles
 * never), and what is open there is built in.
 *
 * The whole table is small and is kept per session, in a memory context of its
 * own that is replaced when the table changes: a statement trigger on it
 * announces every change as a relcache invalidation.  It is read with the
 * latest snapshot, not the transaction's, because the announcement is consumed
 * by the reading: a REPEATABLE READ transaction would otherwise keep its old
 * rows for the rest of the session.  Callers get a copy.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "fmgr.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "catalog.h"
#include "compat.h"
#include "errors.h"
#include "guc.h"
#include "own.h"
#include "scope.h"
#include "stats.h"

#define MAX_SCOPE_LENGTH	128
#define DEFAULT_SCOPE		"default"

#define BUILT_IN_TTL			(24 * USECS_PER_HOUR)
#define BUILT_IN_LEASE			(60 * USECS_PER_SEC)
#define BUILT_IN_MAX_RESPONSE	(1024 * 1024)

/* no span of time in idem may be longer */
#define MAX_SPAN_MONTHS			(1000 * MONTHS_PER_YEAR)

/* columns of idem.scope, in order */
enum
{
	COL_NAME,
	COL_HOLD,
	COL_LEASE,
	COL_TTL,
	COL_NO_EXPIRY,
	COL_MAX_RESPONSE,
	COL_MAX_ATTEMPTS,
	COL_ROLES,
	COL_KEEP_FAILURES,
	NCOLUMNS
};

static const Oid column_types[NCOLUMNS] = {
	[COL_NAME] = TEXTOID,
	[COL_HOLD] = TEXTOID,
	[COL_LEASE] = INTERVALOID,
	[COL_TTL] = INTERVALOID,
	[COL_NO_EXPIRY] = BOOLOID,
	[COL_MAX_RESPONSE] = INT4OID,
	[COL_MAX_ATTEMPTS] = INT4OID,
	[COL_ROLES] = NAMEARRAYOID,
	[COL_KEEP_FAILURES] = INTERVALOID
};

/* the longest name that fits its column's check, and a terminator */
typedef char ScopeName[MAX_SCOPE_LENGTH + 1];

/* a row of idem.scope; has[] tells which columns are not NULL */
typedef struct ScopeRow
{
	ScopeName	name;			/* hash key */
	bool		has[NCOLUMNS];
	IdemHold	hold;
	Interval	lease;
	Interval	ttl;
	Interval	keep_failures;
	bool		no_expiry;
	int			max_response;
	int			max_attempts;
	int			nroles;
	NameData   *roles;
} ScopeRow;

static MemoryContext cache_context = NULL;
static HTAB *cache = NULL;
static uint64 cache_epoch;

/*
 * "transaction", "lease" or "session"; anything else is an error.
 */
IdemHold
idem_scope_parse_hold(text *hold)
{
	char	   *name = text_to_cstring(hold);

	if (strcmp(name, "transaction") == 0)
		return IDEM_HOLD_TRANSACTION;
	if (strcmp(name, "lease") == 0)
		return IDEM_HOLD_LEASE;
	if (strcmp(name, "session") == 0)
		return IDEM_HOLD_SESSION;
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_BAD_ARGUMENT),
			 errmsg("invalid value for argument \"hold\""),
			 errhint("Available values are \"transaction\", \"lease\" and \"session\"."),
			 errhidestmt(true)));
}

static void
scope_load_roles(ScopeRow *row, Datum roles)
{
	Datum	   *elems;
	bool	   *nulls;
	int			nelems;

	deconstruct_array(DatumGetArrayTypeP(roles), NAMEOID, NAMEDATALEN, false,
					  TYPALIGN_CHAR, &elems, &nulls, &nelems);
	row->roles = palloc(Max(nelems, 1) * sizeof(NameData));
	for (int i = 0; i < nelems; i++)
	{
		if (!nulls[i])
			row->roles[row->nroles++] = *DatumGetName(elems[i]);
	}
}

static void
scope_load_row(HTAB *table, Datum *values, bool *nulls)
{
	ScopeName	name = {0};
	ScopeRow   *row;

	text_to_cstring_buffer(DatumGetTextPP(values[COL_NAME]),
						   name, sizeof(name));
	row = hash_search(table, name, HASH_ENTER, NULL);
	memset((char *) row + sizeof(ScopeName), 0,
		   sizeof(ScopeRow) - sizeof(ScopeName));

	for (int i = 0; i < NCOLUMNS; i++)
		row->has[i] = !nulls[i];
	if (row->has[COL_HOLD])
		row->hold = idem_scope_parse_hold(DatumGetTextPP(values[COL_HOLD]));
	if (row->has[COL_LEASE])
		row->lease = *DatumGetIntervalP(values[COL_LEASE]);
	if (row->has[COL_TTL])
		row->ttl = *DatumGetIntervalP(values[COL_TTL]);
	if (row->has[COL_NO_EXPIRY])
		row->no_expiry = DatumGetBool(values[COL_NO_EXPIRY]);
	if (row->has[COL_MAX_RESPONSE])
		row->max_response = DatumGetInt32(values[COL_MAX_RESPONSE]);
	if (row->has[COL_MAX_ATTEMPTS])
		row->max_attempts = DatumGetInt32(values[COL_MAX_ATTEMPTS]);
	if (row->has[COL_KEEP_FAILURES])
		row->keep_failures = *DatumGetIntervalP(values[COL_KEEP_FAILURES]);
	if (row->has[COL_ROLES])
		scope_load_roles(row, values[COL_ROLES]);
}

/*
 * Reads idem.scope anew if it changed, also while this transaction already
 * holds its locks and so would hear of nothing by itself.  The new cache is
 * built beside the old one, which is only given up when the new one is whole.
 */
static void
scope_load(void)
{
	HASHCTL		ctl = {.keysize = sizeof(ScopeName),.entrysize = sizeof(ScopeRow)};
	MemoryContext context;
	MemoryContext old_context;
	HTAB	   *table;
	Relation	rel;
	Snapshot	snapshot;
	TableScanDesc scan;
	TupleTableSlot *slot;
	uint64		epoch;

	AcceptInvalidationMessages();
	if (cache != NULL && cache_epoch == idem_catalog_epoch(IDEM_REL_SCOPE))
		return;

	rel = table_open(idem_catalog_relation(IDEM_REL_SCOPE), AccessShareLock);
	epoch = idem_catalog_epoch(IDEM_REL_SCOPE);
	idem_own_require(rel, column_types, NCOLUMNS);

	context = AllocSetContextCreate(CurrentMemoryContext, "idem scopes",
									ALLOCSET_SMALL_SIZES);
	ctl.hcxt = context;
	table = hash_create("idem scopes", 16, &ctl,
						HASH_ELEM | HASH_STRINGS | HASH_CONTEXT);

	snapshot = RegisterSnapshot(GetLatestSnapshot());
	scan = table_beginscan(rel, snapshot, 0, NULL);
	slot = table_slot_create(rel, NULL);
	while (table_scan_getnextslot(scan, ForwardScanDirection, slot))
	{
		slot_getallattrs(slot);
		if (slot->tts_isnull[COL_NAME])
			continue;
		old_context = MemoryContextSwitchTo(context);
		scope_load_row(table, slot->tts_values, slot->tts_isnull);
		MemoryContextSwitchTo(old_context);
	}
	ExecDropSingleTupleTableSlot(slot);
	table_endscan(scan);
	UnregisterSnapshot(snapshot);
	table_close(rel, AccessShareLock);

	MemoryContextSetParent(context, CacheMemoryContext);
	if (cache_context != NULL)
		MemoryContextDelete(cache_context);
	cache_context = context;
	cache = table;
	cache_epoch = epoch;
}

/*
 * The name before "/"; an error if name or tenant is empty, or all too long.
 */
static void
scope_base_name(text *name, ScopeName base)
{
	const char *data = VARDATA_ANY(name);
	Size		len = VARSIZE_ANY_EXHDR(name);
	const char *slash = memchr(data, '/', len);
	Size		base_len = slash ? slash - data : len;

	if (base_len == 0 || len > MAX_SCOPE_LENGTH || base_len + 1 == len)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_BAD_ARGUMENT),
				 errmsg("invalid idem scope"),
				 errdetail("The scope has %zu bytes; it must have 1 to %d, and neither name nor tenant may be empty.",
						   len, MAX_SCOPE_LENGTH),
				 errhint("A scope is \"name\" or \"name/tenant\"."),
				 errhidestmt(true)));

	memcpy(base, data, base_len);
	memset(base + base_len, 0, sizeof(ScopeName) - base_len);
}

static bool
scope_is_internal(const char *base)
{
	return strncmp(base, "idem.", 5) == 0 || strncmp(base, "once.", 5) == 0;
}

static void
scope_check_roles(const ScopeRow *row)
{
	IdemRefusal refusal = {
		.kind = IDEM_STATS_SCOPE,
		.name = row->name,
		.counter = IDEM_COUNT_FORBIDDEN,
		.sqlerrcode = ERRCODE_INSUFFICIENT_PRIVILEGE
	};

	for (int i = 0; i < row->nroles; i++)
	{
		Oid			role = get_role_oid(NameStr(row->roles[i]), true);

		if (OidIsValid(role) && has_privs_of_role(GetUserId(), role))
			return;
	}
	idem_stats_refused(&refusal);
	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("permission denied for idem scope \"%s\"", row->name),
			 errhint("Column \"roles\" of table \"idem.scope\" lists the roles that may use it."),
			 errhidestmt(true)));
}

static void
scope_apply(const ScopeRow *row, IdemScope *scope)
{
	if (row->has[COL_HOLD])
		scope->hold = row->hold;
	if (row->has[COL_LEASE])
		scope->lease = row->lease;
	if (row->has[COL_TTL])
	{
		scope->ttl = row->ttl;
		scope->no_expiry = false;
	}
	if (row->has[COL_NO_EXPIRY] && row->no_expiry)
		scope->no_expiry = true;
	if (row->has[COL_MAX_RESPONSE])
		scope->max_response = row->max_response;
	if (row->has[COL_MAX_ATTEMPTS])
		scope->max_attempts = row->max_attempts;
	if (row->has[COL_KEEP_FAILURES])
	{
		scope->failure_ttl = row->keep_failures;
		scope->has_failure_ttl = true;
	}
}

/*
 * Which settings hold for "name" (NULL: the setting idem.scope, else
 * "default"), after checking that it may be used at all.
 */
void
idem_scope_resolve(text *name, IdemScopeUse use, IdemScope *scope)
{
	ScopeName	base;
	ScopeRow   *row;
	ScopeRow   *defaults;

	/* a function that was declared PARALLEL SAFE by mistake */
	PreventCommandIfParallelMode("functions of idem");
	if (name == NULL)
		name = cstring_to_text(idem_guc_scope != NULL &&
							   idem_guc_scope[0] != '\0' ?
							   idem_guc_scope : DEFAULT_SCOPE);
	scope_base_name(name, base);

	memset(scope, 0, sizeof(IdemScope));
	scope->name = name;
	scope->hold = IDEM_HOLD_TRANSACTION;
	scope->lease.time = BUILT_IN_LEASE;
	scope->ttl.time = BUILT_IN_TTL;
	scope->max_response = BUILT_IN_MAX_RESPONSE;

	if (use == IDEM_SCOPE_CLAIMING && scope_is_internal(base))
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_BAD_ARGUMENT),
				 errmsg("idem scope \"%s\" is reserved", base),
				 errdetail("Scopes that begin with \"idem.\" or \"once.\" belong to idem itself."),
				 errhidestmt(true)));

	scope_load();
	if (hash_get_num_entries(cache) == 0 && !idem_guc_declared_scopes)
		return;

	row = hash_search(cache, base, HASH_FIND, NULL);
	if (row == NULL)
	{
		if (idem_guc_declared_scopes && !scope_is_internal(base) &&
			use != IDEM_SCOPE_OPERATING)
			ereport(ERROR,
					(errcode(ERRCODE_IDEM_MISUSE),
					 errmsg("idem scope \"%s\" is not declared", base),
					 errhint("Insert a row into table \"idem.scope\", or turn \"idem.declared_scopes\" off."),
					 errhidestmt(true)));
	}
	else if (row->has[COL_ROLES] && use != IDEM_SCOPE_OPERATING)
		scope_check_roles(row);

	defaults = hash_search(cache, DEFAULT_SCOPE, HASH_FIND, NULL);
	if (defaults != NULL)
		scope_apply(defaults, scope);
	if (row != NULL && row != defaults)
		scope_apply(row, scope);
}

/*
 * "from" plus a span, which is bounded so that the sum cannot overflow.
 */
static TimestampTz
scope_add_span(TimestampTz from, const Interval *span, const char *what)
{
	double		months = span->month + span->day / 30.0 +
	span->time / ((double) USECS_PER_DAY * 30.0);

	if (IDEM_INTERVAL_IS_INFINITE(span) || months > MAX_SPAN_MONTHS ||
		months < -MAX_SPAN_MONTHS)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_BAD_ARGUMENT),
				 errmsg("argument \"%s\" is out of range", what),
				 errdetail("The longest span is %d years.",
						   MAX_SPAN_MONTHS / MONTHS_PER_YEAR),
				 errhidestmt(true)));
	if (span->month == 0 && span->day == 0)
		return from + span->time;
	return DatumGetTimestampTz(DirectFunctionCall2(timestamptz_pl_interval,
												   TimestampTzGetDatum(from),
												   IntervalPGetDatum(span)));
}

/*
 * "from" plus a span that must be positive and finite; "what" is the argument
 * or setting to name where it is not.
 */
TimestampTz
idem_scope_deadline(TimestampTz from, const Interval *span, const char *what)
{
	TimestampTz deadline = scope_add_span(from, span, what);

	if (deadline <= from)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_BAD_ARGUMENT),
				 errmsg("argument \"%s\" must be greater than zero", what),
				 errhidestmt(true)));
	return deadline;
}

/*
 * The same for a span that may be zero.
 */
TimestampTz
idem_scope_deadline_or_now(TimestampTz from, const Interval *span,
						   const char *what)
{
	TimestampTz deadline = scope_add_span(from, span, what);

	if (deadline < from)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_BAD_ARGUMENT),
				 errmsg("argument \"%s\" must not be negative", what),
				 errhidestmt(true)));
	return deadline;
}
