/*
 * function_cache.c
 *	  What a session knows of the functions that it calls idempotently.
 *
 * All that a call needs to know of a function is looked up once: signature,
 * parameters, defaults, how it is invoked, and, once it was converted to, how
 * its arguments are read.  It lives in a memory context of its own until some
 * function, type, column or schema changes; then every entry is stale, since what
 * is in one may come from any of them.  The callback only counts; the next
 * look-up gives up all that is stale, and with it what is gone.
 *
 * Whoever acquires an entry may run user code, which may change the function
 * and acquire it again.  So entries are counted: a stale one is replaced at
 * once, and given up by its last user.  A user's memory context gives back
 * what was acquired in it, so that errors need no cleanup.
 *
 * Privileges are the caller's and are checked at each acquisition.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/transam.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/regproc.h"
#include "utils/syscache.h"

#include "compat.h"
#include "errors.h"
#include "function.h"
#include "shape.h"

/* an entry of the table of functions */
typedef struct FunctionEntry
{
	Oid			oid;			/* hash key */
	IdemFunction *function;
} FunctionEntry;

/* gives a function back when the memory context goes */
typedef struct FunctionUse
{
	MemoryContextCallback callback;
	IdemFunction *function;
} FunctionUse;

/* functions by the text that names them: a hint, whose entry has to agree */
#define NAMES	64

static HTAB *functions = NULL;
static Oid	names[NAMES];

/* moves whenever any entry may be wrong */
static uint64 catalog_generation = 0;

/* no entry is of an older one */
static uint64 oldest_generation = 0;

static void
function_catalog_changed(Datum arg, int cacheid, uint32 hashvalue)
{
	catalog_generation++;
}

/*
 * Registers the callbacks; called once, when the library is loaded.
 */
void
idem_function_cache_init(void)
{
	CacheRegisterSyscacheCallback(PROCOID, function_catalog_changed, 0);
	CacheRegisterSyscacheCallback(TYPEOID, function_catalog_changed, 0);
	CacheRegisterSyscacheCallback(ATTNUM, function_catalog_changed, 0);
	CacheRegisterSyscacheCallback(CASTSOURCETARGET, function_catalog_changed, 0);
	CacheRegisterSyscacheCallback(NAMESPACEOID, function_catalog_changed, 0);
	/* constraints of domains are compiled once, and privileges then checked */
	CacheRegisterSyscacheCallback(AUTHOID, function_catalog_changed, 0);
	CacheRegisterSyscacheCallback(AUTHMEMROLEMEM, function_catalog_changed, 0);
}

static void
function_refuse(const char *identity, const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_BAD_ARGUMENT),
			 errmsg("function %s cannot be called idempotently", identity),
			 errdetail("%s", detail),
			 errhidestmt(true)));
}

/*
 * Refuses what is no plain function of plain types.
 */
static void
function_check_kind(const IdemFunction *function, Form_pg_proc proc)
{
	switch (proc->prokind)
	{
		case PROKIND_FUNCTION:
			break;
		case PROKIND_PROCEDURE:
			function_refuse(function->identity, "It is a procedure.");
			break;
		case PROKIND_AGGREGATE:
			function_refuse(function->identity, "It is an aggregate.");
			break;
		default:
			function_refuse(function->identity, "It is a window function.");
	}

	if (function->rettype == TRIGGEROID || function->rettype == EVENT_TRIGGEROID)
		function_refuse(function->identity, "It is a trigger function.");
	if (get_typtype(function->rettype) == TYPTYPE_PSEUDO &&
		function->rettype != VOIDOID && function->rettype != RECORDOID)
		function_refuse(function->identity, "Its result type is not a definite one.");
	for (int i = 0; i < function->nargs; i++)
	{
		if (get_typtype(function->argtypes[i]) == TYPTYPE_PSEUDO)
			function_refuse(function->identity, "It has an argument of a pseudo-type.");
	}
}

static void
function_take_arguments(HeapTuple tuple, IdemFunction *function)
{
	Form_pg_proc proc = (Form_pg_proc) GETSTRUCT(tuple);
	Oid		   *types;
	char	  **names;
	char	   *modes;
	int			nall = get_func_arg_info(tuple, &types, &names, &modes);
	Datum		defaults;
	bool		isnull;

	for (int i = 0; i < nall; i++)
	{
		if (modes != NULL && (modes[i] == PROARGMODE_OUT ||
							  modes[i] == PROARGMODE_TABLE))
			continue;
		function->argtypes[function->nargs] = types[i];
		function->argnames[function->nargs] =
			names != NULL && names[i] != NULL && names[i][0] != '\0' ?
			names[i] : NULL;
		function->nargs++;
	}
	function->variadic_elem = proc->provariadic;

	defaults = SysCacheGetAttr(PROCOID, tuple, Anum_pg_proc_proargdefaults,
							   &isnull);
	if (!isnull)
		function->defaults = castNode(List,
									  stringToNode(TextDatumGetCString(defaults)));
}

/*
 * A text that may hold names, in one line.
 */
char *
idem_function_print_line(const char *s)
{
	StringInfoData buf;

	initStringInfo(&buf);
	for (; *s != '\0'; s++)
	{
		if (*s == '\n' || *s == '\r')
			appendStringInfoString(&buf, *s == '\n' ? "\\n" : "\\r");
		else
			appendStringInfoChar(&buf, *s);
	}
	return buf.data;
}

/*
 * The result type in words, with every type qualified; one line.
 */
static char *
function_result_type(const IdemFunction *function)
{
	char	   *type;

	if (function->rettype == RECORDOID)
	{
		StringInfoData buf;

		initStringInfo(&buf);
		for (int i = 0; i < function->resultdesc->natts; i++)
			appendStringInfo(&buf, "%s%s", i > 0 ? "," : "",
							 format_type_be_qualified(TupleDescAttr(function->resultdesc, i)->atttypid));
		type = psprintf("record(%s)", buf.data);
	}
	else
		type = format_type_be_qualified(function->rettype);
	type = idem_function_print_line(type);
	return function->retset ? psprintf("setof %s", type) : type;
}

/*
 * What conversions and twins need to know of the types.
 */
static void
function_look_at_types(IdemFunction *function)
{
	IdemShape	arguments;
	IdemShape	result;
	bool		quote_all = quote_all_identifiers;

	for (int i = 0; i < function->nargs; i++)
	{
		char		kind = get_typtype(function->argtypes[i]);

		function->argplain[i] = kind == TYPTYPE_ENUM ||
			(kind == TYPTYPE_BASE &&
			 function->argtypes[i] < FirstNormalObjectId);
	}

	quote_all_identifiers = false;
	PG_TRY();
	{
		idem_shape_begin(&arguments);
		for (int i = 0; i < function->nargs; i++)
			idem_shape_add(&arguments, NULL, function->argtypes[i]);

		idem_shape_begin(&result);
		if (function->rettype == RECORDOID)
			idem_shape_add_columns(&result, function->resultdesc);
		else
			idem_shape_add(&result, function->result_name, function->rettype);
		function->result_type = function_result_type(function);
	}
	PG_FINALLY();
	{
		quote_all_identifiers = quote_all;
	}
	PG_END_TRY();
	function->argument_settings = arguments.settings;
	function->result_settings = result.settings;
	function->unreadable = result.unreadable;
	function->result_shape = idem_shape_digest(&result);
}

/*
 * The function's signature, whatever the session says of quoting: it is part
 * of what is recorded.
 */
static char *
function_identity(Oid oid)
{
	bool		quote_all = quote_all_identifiers;
	char	   *volatile identity = NULL;

	quote_all_identifiers = false;
	PG_TRY();
	{
		identity = format_procedure_qualified(oid);
	}
	PG_FINALLY();
	{
		quote_all_identifiers = quote_all;
	}
	PG_END_TRY();
	return identity;
}

/*
 * The collation that a function runs under where its arguments have these, as
 * the parser derives it of expressions without COLLATE: the one that is not the
 * default; none, where two such differ.
 */
Oid
idem_function_derive_collation(const Oid *collations, int n)
{
	Oid			derived = InvalidOid;

	for (int i = 0; i < n; i++)
	{
		if (!OidIsValid(collations[i]) || collations[i] == derived)
			continue;
		if (!OidIsValid(derived) || derived == DEFAULT_COLLATION_OID)
			derived = collations[i];
		else if (collations[i] != DEFAULT_COLLATION_OID)
			return InvalidOid;
	}
	return derived;
}

/*
 * How it is invoked, where it returns no set: over parameters whose values are
 * not known yet.
 */
static void
function_prepare_call(IdemFunction *function)
{
	List	   *args = NIL;
	Oid			collations[FUNC_MAX_ARGS];

	for (int i = 0; i < function->nargs; i++)
	{
		Param	   *param = makeNode(Param);

		collations[i] = get_typcollation(function->argtypes[i]);
		param->paramkind = PARAM_EXTERN;
		param->paramid = i + 1;
		param->paramtype = function->argtypes[i];
		param->paramtypmod = -1;
		param->paramcollid = collations[i];
		param->location = -1;
		args = lappend(args, param);
	}
	function->expr = makeFuncExpr(function->oid, function->rettype, args,
								  get_typcollation(function->rettype),
								  idem_function_derive_collation(collations,
																 function->nargs),
								  COERCE_EXPLICIT_CALL);
	function->expr->funcretset = function->retset;
	function->expr->funcvariadic = OidIsValid(function->variadic_elem);
	fmgr_info_cxt(function->oid, &function->flinfo, function->context);
	fmgr_info_set_expr((Node *) function->expr, &function->flinfo);
}

/*
 * Looks the function up.  All of it is in a context of its own, which goes
 * with the current one until it is whole.
 */
static IdemFunction *
function_build(Oid oid)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext,
												  "idem function",
												  ALLOCSET_SMALL_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(context);
	IdemFunction *function = palloc0(sizeof(IdemFunction));
	HeapTuple	tuple;
	Form_pg_proc proc;

	function->context = context;
	function->generation = catalog_generation;
	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(oid));
	if (!HeapTupleIsValid(tuple))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_FUNCTION),
				 errmsg("function with OID %u does not exist", oid),
				 OidIsValid(oid) ?
				 errhint("A prepared statement or function that names it keeps its OID: prepare it anew, or give the signature as a parameter.") : 0,
				 errhidestmt(true)));
	proc = (Form_pg_proc) GETSTRUCT(tuple);

	function->oid = oid;
	function->schema = proc->pronamespace;
	function->name = pstrdup(NameStr(proc->proname));
	function->identity = function_identity(oid);
	function->strict = proc->proisstrict;
	function->retset = proc->proretset;
	function->rettype = proc->prorettype;
	function_take_arguments(tuple, function);
	function_check_kind(function, proc);
	ReleaseSysCache(tuple);

	(void) get_func_result_type(oid, &function->rettype,
								&function->resultdesc);
	function->result_name = get_func_result_name(oid);
	if (function->resultdesc != NULL)
		function->resultdesc = BlessTupleDesc(function->resultdesc);
	else if (function->rettype == RECORDOID)
		function_refuse(function->identity, "Its result type is not a definite one.");
	function_prepare_call(function);
	function_look_at_types(function);
	MemoryContextSwitchTo(caller);
	return function;
}

static void
function_check_privileges(const IdemFunction *function)
{
	if (!IDEM_MAY_USE_SCHEMA(function->schema))
		aclcheck_error(ACLCHECK_NO_PRIV, OBJECT_SCHEMA,
					   get_namespace_name(function->schema));
	if (!IDEM_MAY_EXECUTE(function->oid))
		aclcheck_error(ACLCHECK_NO_PRIV, OBJECT_FUNCTION, function->name);
}

/*
 * A function that is no longer the table's goes when its last user does.
 */
static void
function_give_up(IdemFunction *function)
{
	function->given_up = true;
	if (function->uses == 0)
		MemoryContextDelete(function->context);
}

/*
 * Takes all that is stale out of the table.
 */
static void
functions_give_up_stale(void)
{
	HASH_SEQ_STATUS status;
	FunctionEntry *entry;

	if (oldest_generation == catalog_generation)
		return;
	hash_seq_init(&status, functions);
	while ((entry = hash_seq_search(&status)) != NULL)
	{
		IdemFunction *function = entry->function;

		if (function->generation == catalog_generation)
			continue;
		(void) hash_search(functions, &entry->oid, HASH_REMOVE, NULL);
		function_give_up(function);
	}
	oldest_generation = catalog_generation;
}

/* a memory context's reset callback */
static void
function_release(void *arg)
{
	IdemFunction *function = ((FunctionUse *) arg)->function;

	function->uses--;
	if (function->given_up && function->uses == 0)
		MemoryContextDelete(function->context);
}

/*
 * A function that the caller may execute.  It stays as it is for as long as
 * the current memory context lives, whatever becomes of the function.
 */
IdemFunction *
idem_function_acquire(Oid oid)
{
	FunctionUse *use = palloc(sizeof(FunctionUse));
	FunctionEntry *entry;
	bool		found;

	if (functions == NULL)
	{
		HASHCTL		ctl = {.keysize = sizeof(Oid),.entrysize = sizeof(FunctionEntry)};

		ctl.hcxt = CacheMemoryContext;
		functions = hash_create("idem functions", 64, &ctl,
								HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	}

	entry = hash_search(functions, &oid, HASH_FIND, NULL);
	if (entry == NULL || entry->function->generation != catalog_generation)
	{
		IdemFunction *function;

		functions_give_up_stale();
		function = function_build(oid);
		/* building it may have read catalogs, which may have changed it */
		entry = hash_search(functions, &oid, HASH_ENTER, &found);
		if (found)
			function_give_up(entry->function);
		MemoryContextSetParent(function->context, CacheMemoryContext);
		entry->function = function;
	}
	function_check_privileges(entry->function);

	use->function = entry->function;
	use->function->uses++;
	use->callback.func = function_release;
	use->callback.arg = use;
	MemoryContextRegisterResetCallback(CurrentMemoryContext, &use->callback);
	return use->function;
}

/*
 * The same by the function's signature.
 */
IdemFunction *
idem_function_acquire_named(text *name)
{
	const char *data = VARDATA_ANY(name);
	int			len = VARSIZE_ANY_EXHDR(name);
	Oid		   *hint = &names[hash_bytes((const unsigned char *) data,
										 len) % NAMES];
	IdemFunction *function;

	if (OidIsValid(*hint) && functions != NULL)
	{
		FunctionEntry *entry = hash_search(functions, hint, HASH_FIND, NULL);

		if (entry != NULL &&
			entry->function->generation == catalog_generation &&
			strlen(entry->function->identity) == len &&
			memcmp(entry->function->identity, data, len) == 0)
			return idem_function_acquire(*hint);
	}

	function = idem_function_acquire(DatumGetObjectId(DirectFunctionCall1(regprocedurein,
																		  CStringGetDatum(text_to_cstring(name)))));
	*hint = function->oid;
	return function;
}
