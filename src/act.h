/*
 * act.h
 *	  Verbs that go on with a claim or end it.
 */
#ifndef IDEM_ACT_H
#define IDEM_ACT_H

#include "datatype/timestamp.h"
#include "utils/jsonb.h"

#include "registry.h"

typedef enum IdemVerb
{
	IDEM_COMPLETE,
	IDEM_FAIL,
	IDEM_RETRY,
	IDEM_RELEASE,
	IDEM_RENEW,
	IDEM_STEP
} IdemVerb;

/* a verb on a claim; pointers may be NULL */
typedef struct IdemAct
{
	IdemVerb	verb;
	text	   *key;
	text	   *scope;
	const int64 *fence;
	text	   *response;		/* or error */
	const int32 *code;
	const Interval *span;		/* lease of renew, "after" of retry */
	text	   *step;
	Jsonb	   *progress;
	text	   *function;		/* whose result the response is ... */
	text	   *result;			/* ... and the same as typed text, */
	bytea	   *fingerprint;	/* and that of its call */
} IdemAct;

extern TimestampTz idem_act_apply(const IdemAct *act);
extern void idem_act_complete_call(const IdemAct *act, const IdemScope *scope,
								   const IdemRow *claimed);

#endif							/* IDEM_ACT_H */
