/*
 * call.h
 *	  One call of a function per key, whatever form its arguments come in.
 */
#ifndef IDEM_CALL_H
#define IDEM_CALL_H

#include "function.h"
#include "registry.h"
#include "scope.h"

/* a call to be made once */
typedef struct IdemCall
{
	text	   *key;
	IdemScope	scope;
	IdemFunction *function;
	const Interval *ttl;
	IdemWait	wait;
	IdemArguments arguments;
	IdemRow		row;			/* as claimed, or as it was recorded */
} IdemCall;

extern void idem_call_prepare(IdemCall *call, text *key, text *scope);
extern bool idem_call_begin(IdemCall *call);
extern void idem_call_run(const IdemCall *call, Oid collation,
						  Datum *values, bool *nulls,
						  IdemFunctionSink sink, void *arg);
extern void idem_call_end(const IdemCall *call, text *response, text *result);

#endif							/* IDEM_CALL_H */
