/*
 * scope.h
 *	  What holds for the keys of one scope.
 */
#ifndef IDEM_SCOPE_H
#define IDEM_SCOPE_H

#include "datatype/timestamp.h"

#include "store.h"

typedef struct IdemScope
{
	text	   *name;			/* as given, tenant included */
	IdemHold	hold;
	Interval	lease;
	Interval	ttl;
	bool		no_expiry;		/* ttl does not count */
	bool		has_failure_ttl;
	Interval	failure_ttl;	/* of failed keys, if it has one of its own */
	int			max_response;	/* bytes */
	int			max_attempts;	/* 0: no limit */
} IdemScope;

typedef enum IdemScopeUse
{
	IDEM_SCOPE_CLAIMING,		/* starts a life: not in idem's own scopes */
	IDEM_SCOPE_USING,			/* looks at it or goes on with it */
	IDEM_SCOPE_OPERATING		/* an operator's verb: roles do not bind it */
} IdemScopeUse;

extern void idem_scope_resolve(text *name, IdemScopeUse use,
							   IdemScope *scope);
extern IdemHold idem_scope_parse_hold(text *hold);
extern TimestampTz idem_scope_deadline(TimestampTz from,
									   const Interval *span,
									   const char *what);
extern TimestampTz idem_scope_deadline_or_now(TimestampTz from,
											  const Interval *span,
											  const char *what);

#endif							/* IDEM_SCOPE_H */
