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

/* how a certain choice of arguments is read from JSON */
typedef struct IdemConversion
{
	MemoryContext context;		/* its own */
	Oid			userid;			/* whose privileges were checked */
	bool		given[FUNC_MAX_ARGS];
	TupleDesc	desc;			/* of those given */
	FmgrInfo	flinfo;
} IdemConversion;

typedef struct IdemFunction
{
	MemoryContext context;		/* of all this */
	uint64		generation;
	int			uses;
	bool		given_up;		/* by the cache */
	IdemConversion *conversion; /* the last one, or NULL */

	Oid			oid;
	Oid			schema;
	char	   *name;
	char	   *identity;		/* schema.name(types) */
	int			nargs;
	Oid			argtypes[FUNC_MAX_ARGS];
	char	   *argnames[FUNC_MAX_ARGS];	/* NULL: it has none */
	bool		argplain[FUNC_MAX_ARGS];	/* its input runs no user code */
	List	   *defaults;		/* of the last arguments */
	Oid			variadic_elem;	/* of the last argument, if it is VARIADIC */
	bool		strict;
	bool		retset;
	Oid			rettype;
	TupleDesc	resultdesc;		/* of a composite result, else NULL */
	FmgrInfo	flinfo;			/* to be copied */
	struct FuncExpr *expr;		/* over parameters, which have their types'
								 * collations */
	char	   *result_name;	/* of the one OUT parameter, else NULL */
	char	   *result_type;	/* as a record names it */
	char	   *result_shape;	/* digest of its columns, or "" */
	Oid			unreadable;		/* a type in it that no text is read as */
	int			result_settings;	/* IDEM_SETTINGS_... that its text follows */
	int			argument_settings;
} IdemFunction;

/* arguments by position */
typedef struct IdemArguments
{
	int			count;
	JsonbValue *values[FUNC_MAX_ARGS];	/* NULL: not given */
	const char *forms[FUNC_MAX_ARGS];	/* what else its value could be, or
										 * NULL */
} IdemArguments;

typedef void (*IdemFunctionSink) (Datum value, bool isnull, void *arg);

/* a result on its way to JSON */
typedef struct IdemFunctionJson
{
	StringInfoData buf;
	const IdemFunction *function;
	int64		nvalues;
} IdemFunctionJson;

/* function_cache.c */
extern void idem_function_cache_init(void);
extern IdemFunction *idem_function_acquire(Oid oid);
extern IdemFunction *idem_function_acquire_named(text *name);
extern char *idem_function_print_line(const char *s);
extern Oid	idem_function_derive_collation(const Oid *collations, int n);

/* argument.c */
extern void idem_argument_arrange(const IdemFunction *function,
								  Jsonb *given, IdemArguments *arguments);
extern void idem_argument_convert(IdemFunction *function,
								  const IdemArguments *arguments,
								  Datum *values, bool *nulls);
extern const char *idem_argument_reword(MemoryContext context,
										bool user_type);

/* function.c */
extern void idem_function_run(const IdemFunction *function, Oid collation,
							  Datum *values, bool *nulls,
							  IdemFunctionSink sink, void *arg);

/* function_json.c */
extern void idem_function_json_begin(IdemFunctionJson *json,
									 const IdemFunction *function);
extern void idem_function_json_add(Datum value, bool isnull, void *arg);
extern text *idem_function_json_end(IdemFunctionJson *json);

#endif							/* IDEM_FUNCTION_H */
