/*
 * registry.h
 *	  Claims: how they are judged and recorded, and what a row means.
 */
#ifndef IDEM_REGISTRY_H
#define IDEM_REGISTRY_H

#include "claims.h"
#include "scope.h"
#include "store.h"

/* arguments of SQL functions, none of which is strict */
#define IDEM_ARG_TEXT(n) \
	(PG_ARGISNULL(n) ? NULL : PG_GETARG_TEXT_PP(n))
#define IDEM_ARG_INTERVAL(n) \
	(PG_ARGISNULL(n) ? NULL : PG_GETARG_INTERVAL_P(n))

typedef enum IdemOutcome
{
	IDEM_OUT_CLAIMED,
	IDEM_OUT_TAKEOVER,
	IDEM_OUT_COMPLETED,
	IDEM_OUT_FAILED,
	IDEM_OUT_IN_PROGRESS,
	IDEM_OUT_MISMATCH
} IdemOutcome;

#define IDEM_OUTCOME_RUNS(o) \
	((o) == IDEM_OUT_CLAIMED || (o) == IDEM_OUT_TAKEOVER)

/* what a caller asks for; pointers may be NULL */
typedef struct IdemRequest
{
	const char *verb;			/* what the caller called */
	text	   *key;
	const IdemScope *scope;
	bool		once;			/* record as completed at once ... */
	text	   *response;		/* ... with this */
	bool		presume_new;	/* insert before looking */
	IdemHold	hold;
	const Interval *lease;
	const Interval *ttl;
	bytea	   *fingerprint;
	IdemWait	wait;
} IdemRequest;

typedef struct IdemVerdict
{
	IdemOutcome outcome;
	bool		known;			/* "row" is there */
	bool		own;			/* the caller holds the claim */
	IdemRow		row;			/* as judged or, where it runs, as written */
	int			retry_after;	/* seconds, where in progress */
} IdemVerdict;

/* a key of a batch */
typedef struct IdemBatchKey
{
	text	   *key;
	uint64		prefix;			/* its first bytes, as a number */
	int			position;		/* in the array given */
} IdemBatchKey;

extern void idem_registry_check_key(text *key, bool has_default);
extern IdemBatchKey *idem_registry_sort_keys(Datum *keys, bool *nulls,
											 int nkeys);
extern void idem_registry_parse_wait(const Interval *span, IdemWait *wait);
extern void idem_registry_check_rounds(int rounds);
extern int	idem_registry_seconds(TimestampTz now, TimestampTz then);
extern bool idem_row_is_in_progress(const IdemRow *row);
extern IdemState idem_row_state(const IdemRow *row);
extern IdemHold idem_row_hold(const IdemRow *row);
extern bool idem_row_is_expired(const IdemRow *row, TimestampTz now);
extern void idem_row_set(IdemRow *row, IdemColumn column, Datum value);
extern void idem_row_set_text(IdemRow *row, IdemColumn column,
							  const char *value);
extern void idem_row_set_state(IdemRow *row, IdemState state);
extern void idem_row_set_expiry(IdemRow *row, const IdemScope *scope,
								TimestampTz from);
extern bool idem_row_is_held(const IdemRow *row, const IdemClaim *claim,
							 TimestampTz now, TimestampTz *until);
extern bool idem_row_is_spent(const IdemRow *row, const IdemScope *scope);
extern void idem_row_start(IdemRow *row, text *scope, text *key,
						   TimestampTz created_at);
extern bool idem_registry_read(IdemStore *store, text *scope, text *key,
							   const IdemClaim *claim, bool sure,
							   IdemRow *row);
extern void idem_registry_claim(IdemStore *store, const IdemRequest *request,
								IdemVerdict *verdict);

#endif							/* IDEM_REGISTRY_H */
