/*
 * row.c
 *	  What one row of idem.key means: its state, who holds it, when it is gone.
 *
 * Columns that mean something together:
 *
 * expires_at	from then on the row counts as absent, whatever its state.  A
 *				finished record: the end of its retention.  An unfinished one:
 *				the ttl after its holder died (lease_until + ttl for a lease;
 *				for a session the ttl after a sweep found its holder dead), or
 *				after its last retry or release where it is open.
 * hold			how it was claimed last; NULL where it was released, recorded
 *				by idem_once() or idem_import(), so that a released record is
 *				told from a retried one.
 * lease_until	in progress under a lease: until when.  Open: not before then.
 * finished_at	also on an open row: an operator reopened it, or took part in
 *				its release, and it may be claimed once more however many
 *				attempts it has had.
 * response		also on an open or resumed row: the last error.
 * fence		stays when the claim has ended, so that a repeated verb is known.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "registry.h"
#include "session.h"

static const char *const state_names[] = {
	[IDEM_OPEN] = "open",
	[IDEM_IN_PROGRESS] = "in_progress",
	[IDEM_COMPLETED] = "completed",
	[IDEM_FAILED] = "failed"
};

/*
 * The state by its first letter, or -1 if it is none: nothing but idem writes
 * the column, but its owner could.
 */
static int
row_state_or_none(const IdemRow *row)
{
	text	   *state;

	if (row->nulls[IDEM_COL_STATE])
		return -1;
	state = DatumGetTextPP(row->values[IDEM_COL_STATE]);
	for (int i = 0; VARSIZE_ANY_EXHDR(state) > 0 && i < lengthof(state_names);
		 i++)
	{
		if (VARDATA_ANY(state)[0] == state_names[i][0])
			return i;
	}
	return -1;
}

bool
idem_row_is_in_progress(const IdemRow *row)
{
	return row_state_or_none(row) == IDEM_IN_PROGRESS;
}

IdemState
idem_row_state(const IdemRow *row)
{
	int			state = row_state_or_none(row);

	if (state < 0)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("a row of table \"idem.key\" has an unknown state"),
				 errhidestmt(true)));
	return (IdemState) state;
}

IdemHold
idem_row_hold(const IdemRow *row)
{
	text	   *hold;

	if (row->nulls[IDEM_COL_HOLD])
		return IDEM_HOLD_NONE;
	hold = DatumGetTextPP(row->values[IDEM_COL_HOLD]);
	switch (VARSIZE_ANY_EXHDR(hold) > 0 ? VARDATA_ANY(hold)[0] : '\0')
	{
		case 't':
			return IDEM_HOLD_TRANSACTION;
		case 'l':
			return IDEM_HOLD_LEASE;
		case 's':
			return IDEM_HOLD_SESSION;
	}
	return IDEM_HOLD_NONE;
}

/*
 * Whether the row counts as absent.
 */
bool
idem_row_is_expired(const IdemRow *row, TimestampTz now)
{
	return !row->nulls[IDEM_COL_EXPIRES_AT] &&
		DatumGetTimestampTz(row->values[IDEM_COL_EXPIRES_AT]) <= now;
}

void
idem_row_set(IdemRow *row, IdemColumn column, Datum value)
{
	row->values[column] = value;
	row->nulls[column] = false;
}

void
idem_row_set_text(IdemRow *row, IdemColumn column, const char *value)
{
	idem_row_set(row, column, CStringGetTextDatum(value));
}

void
idem_row_set_state(IdemRow *row, IdemState state)
{
	idem_row_set_text(row, IDEM_COL_STATE, state_names[state]);
}

/*
 * Sets expires_at, counted from "from": by the claim's own ttl, else by what
 * the scope says, of failed keys apart.  Call it when the state is set.
 */
void
idem_row_set_expiry(IdemRow *row, const IdemScope *scope, TimestampTz from)
{
	const Interval *ttl = NULL;

	if (scope->has_failure_ttl && idem_row_state(row) == IDEM_FAILED)
		ttl = &scope->failure_ttl;
	else if (!row->nulls[IDEM_COL_TTL])
		ttl = DatumGetIntervalP(row->values[IDEM_COL_TTL]);
	else if (!scope->no_expiry)
		ttl = &scope->ttl;

	if (ttl == NULL)
		row->nulls[IDEM_COL_EXPIRES_AT] = true;
	else
		idem_row_set(row, IDEM_COL_EXPIRES_AT,
					 TimestampTzGetDatum(idem_scope_deadline(from, ttl, "ttl")));
}

/*
 * Whether the row is in progress under a holder who lives, or open but not to
 * be claimed yet; "until" is then the end of that by the clock, or 0.
 */
bool
idem_row_is_held(const IdemRow *row, const IdemClaim *claim, TimestampTz now,
				 TimestampTz *until)
{
	IdemState	state = idem_row_state(row);

	*until = 0;
	if (state != IDEM_OPEN && state != IDEM_IN_PROGRESS)
		return false;

	if (!row->nulls[IDEM_COL_LEASE_UNTIL])
		*until = DatumGetTimestampTz(row->values[IDEM_COL_LEASE_UNTIL]);
	if (state == IDEM_OPEN)
		return *until > now;

	if (claim != NULL && claim->status == IDEM_CLAIM_HELD)
		return true;

	/* a transaction's claim that is not ours cannot have been committed */
	switch (idem_row_hold(row))
	{
		case IDEM_HOLD_LEASE:
			return *until > now;
		case IDEM_HOLD_SESSION:
			return idem_session_is_alive(DatumGetInt64(row->values[IDEM_COL_FENCE]));
		default:
			return false;
	}
}

/*
 * Whether an unfinished row has had all the attempts that it may have.
 */
bool
idem_row_is_spent(const IdemRow *row, const IdemScope *scope)
{
	return scope->max_attempts > 0 &&
		DatumGetInt32(row->values[IDEM_COL_ATTEMPT]) >= scope->max_attempts &&
		row->nulls[IDEM_COL_FINISHED_AT];
}

/*
 * An empty row for a key, at its first attempt.
 */
void
idem_row_start(IdemRow *row, text *scope, text *key, TimestampTz created_at)
{
	memset(row->values, 0, sizeof(row->values));
	memset(row->nulls, true, sizeof(row->nulls));
	idem_row_set(row, IDEM_COL_SCOPE, PointerGetDatum(scope));
	idem_row_set(row, IDEM_COL_KEY, PointerGetDatum(key));
	idem_row_set(row, IDEM_COL_ATTEMPT, Int32GetDatum(1));
	idem_row_set(row, IDEM_COL_CREATED_AT, TimestampTzGetDatum(created_at));
	ItemPointerSetInvalid(&row->tid);
	row->xmin = InvalidTransactionId;
}
