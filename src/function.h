/*
 * function.h
 *	  A function that is called by its OID with JSON arguments.
 */
#ifndef IDEM_FUNCTION_H
#define IDEM_FUNCTION_H

#include "access/tupdesc.h"
#include "fmgr.h"
#include "lib/stringinfo.h"
#include "nodes/pg_list.h"
#include "utils/jsonb.h"

typedef struct IdemFunction
{
	Oid			oid;
	char	   *name;
	char	   *identity;		/* schema.name(types) */
	int			nargs;
	Oid			argtypes[FUNC_MAX_ARGS];
	char	   *argnames[FUNC_MAX_ARGS];	/* NULL: it has none */
	List	   *defaults;		/* of the last arguments */
	Oid			variadic_elem;	/* of the last argument, if it is VARIADIC */
	bool		strict;
	bool		retset;
	Oid			rettype;
	TupleDesc	resultdesc;		/* of a composite result, else NULL */
} IdemFunction;

typedef void (*IdemFunctionSink) (Datum value, bool isnull, void *arg);

/* a result on its way to JSON */
typedef struct IdemFunctionJson
{
	StringInfoData buf;
	const IdemFunction *function;
	int64		nvalues;
} IdemFunctionJson;

extern void idem_function_lookup(Oid oid, IdemFunction *function);
extern Jsonb *idem_function_arrange(const IdemFunction *function,
									Jsonb *arguments);
extern void idem_function_convert(const IdemFunction *function,
								  Jsonb *arranged, Datum *values,
								  bool *nulls);
extern void idem_function_run(const IdemFunction *function, Datum *values,
							  bool *nulls, IdemFunctionSink sink, void *arg);
extern const char *idem_function_reword(MemoryContext context);
extern void idem_function_append_json(StringInfo buf, Oid type, Datum value,
									  bool isnull);
extern void idem_function_json_begin(IdemFunctionJson *json,
									 const IdemFunction *function);
extern void idem_function_json_add(Datum value, bool isnull, void *arg);
extern text *idem_function_json_end(IdemFunctionJson *json);

#endif							/* IDEM_FUNCTION_H */
