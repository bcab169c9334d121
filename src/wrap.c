/*
 * wrap.c
 *	  SQL function idem_wrap: makes a typed twin of a function.
 *
 * A twin is a PL/pgSQL function of the caller's, with the original's parameters
 * and result type behind one more parameter, the key.  Its body calls
 * idem_twin_value() or, where the result is a set or has several columns,
 * idem_twin() (twin.c).  It is PL/pgSQL because a session keeps its plan: an SQL
 * function would be parsed at each call.
 *
 * The body names the original by its signature in text, so that a dump
 * restores twins in any order; a twin whose original is gone says so when it
 * is called.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/namespace.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "optimizer/optimizer.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/regproc.h"
#include "utils/syscache.h"
#include "utils/varlena.h"

#include "call.h"
#include "errors.h"
#include "shape.h"

PG_FUNCTION_INFO_V1(idem_wrap);

/* the twin's own parameter, in front of the original's */
#define KEY_PARAMETER	"idem_key"

/*
 * Name and schema of the twin: as given, else the original's with "_once", of
 * a built-in function in the current schema.
 */
static void
wrap_choose_name(Oid function, text *given, char **schema, char **name)
{
	char	   *given_schema = NULL;

	if (given == NULL)
	{
		*name = psprintf("%s_once", get_func_name(function));
		if (strlen(*name) >= NAMEDATALEN)
			ereport(ERROR,
					(errcode(ERRCODE_NAME_TOO_LONG),
					 errmsg("name of the twin would be too long"),
					 errhint("Pass a name.")));
	}
	else
		DeconstructQualifiedName(textToQualifiedNameList(given),
								 &given_schema, name);
	if (given_schema != NULL &&
		(strcmp(given_schema, "pg_temp") == 0 ||
		 isAnyTempNamespace(get_namespace_oid(given_schema, true))))
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_BAD_ARGUMENT),
				 errmsg("a twin cannot be temporary"),
				 errdetail("What it recorded outlasts the session."),
				 errhint("Name a schema that is not temporary."),
				 errhidestmt(true)));
	if (given_schema != NULL)
		*schema = given_schema;
	else if (get_func_namespace(function) != PG_CATALOG_NAMESPACE)
		*schema = get_namespace_name(get_func_namespace(function));
	else
	{
		/* a dump would leave it out beside a built-in function */
		List	   *path = fetch_search_path(false);

		if (path == NIL)
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_SCHEMA),
					 errmsg("no schema has been selected to create in")));
		*schema = get_namespace_name(linitial_oid(path));
	}
}

static const char *
wrap_result_name(const IdemFunction *function)
{
	return function->result_name == NULL ? "r" :
		quote_identifier(function->result_name);
}

/*
 * The column list that the twin's body reads the result through, with the
 * names that the result's columns have: so a twin tells when they changed.
 */
static char *
wrap_result_columns(const IdemFunction *function)
{
	TupleDesc	desc = function->resultdesc;
	StringInfoData buf;

	if (function->rettype != RECORDOID)
		return psprintf("%s %s", wrap_result_name(function),
						function->rettype == VOIDOID ? "pg_catalog.bool" :
						format_type_be_qualified(function->rettype));

	initStringInfo(&buf);
	for (int i = 0; i < desc->natts; i++)
	{
		const char *name = NameStr(TupleDescAttr(desc, i)->attname);

		for (int j = 0; j < i; j++)
		{
			if (strcmp(NameStr(TupleDescAttr(desc, j)->attname), name) == 0)
				ereport(ERROR,
						(errcode(ERRCODE_IDEM_BAD_ARGUMENT),
						 errmsg("result of function %s has two columns \"%s\"",
								function->identity, name),
						 errdetail("An OUT parameter without a name is a column named after its position."),
						 errhidestmt(true)));
		}
		appendStringInfo(&buf, "%s%s %s", i > 0 ? ", " : "",
						 quote_identifier(name),
						 format_type_be_qualified(TupleDescAttr(desc, i)->atttypid));
	}
	return buf.data;
}

/*
 * The original's parameters as PL/pgSQL numbers them in the twin, where the key
 * is the first: those that go in, as a list, and those that come out.  And a
 * name for a variable that none of them has.
 */
static void
wrap_number_parameters(const IdemFunction *function, StringInfo in, List **out,
					   StringInfo variable)
{
	HeapTuple	tuple = SearchSysCache1(PROCOID,
										ObjectIdGetDatum(function->oid));
	Oid		   *types;
	char	  **names;
	char	   *modes;
	int			nall;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for function %u", function->oid);
	nall = get_func_arg_info(tuple, &types, &names, &modes);
	for (int i = 0; names != NULL && i < nall; i++)
	{
		if (strcmp(names[i], KEY_PARAMETER) == 0)
			ereport(ERROR,
					(errcode(ERRCODE_IDEM_BAD_ARGUMENT),
					 errmsg("function %s has a parameter \"%s\" already",
							function->identity, KEY_PARAMETER),
					 errhidestmt(true)));
	}
	appendStringInfoString(variable, "idem_result");
	for (int i = 0; names != NULL && i < nall; i++)
	{
		if (strcmp(names[i], variable->data) != 0)
			continue;
		appendStringInfoChar(variable, '_');
		i = -1;
	}
	for (int i = 0; i < nall; i++)
	{
		char		mode = modes == NULL ? PROARGMODE_IN : modes[i];

		if (mode != PROARGMODE_OUT && mode != PROARGMODE_TABLE)
			appendStringInfo(in, ", $%d", i + 2);
		if (mode == PROARGMODE_OUT || mode == PROARGMODE_INOUT ||
			mode == PROARGMODE_TABLE)
			*out = lappend_int(*out, i + 2);
	}
	ReleaseSysCache(tuple);
}

/*
 * The body, in PL/pgSQL, whose plan a session keeps.  The original is named in
 * text, since a constant of it in a kept plan would outlive it.
 */
static char *
wrap_body(const IdemFunction *function, Oid own_schema)
{
	const char *schema = quote_identifier(get_namespace_name(own_schema));
	const char *original = quote_literal_cstr(function->identity);
	bool		is_void = function->rettype == VOIDOID;
	bool		is_row = function->rettype == RECORDOID;
	bool		is_rows = function->retset && !is_row &&
	function->resultdesc != NULL;

	/* a domain may refuse the NULL that tells idem_twin_value() its type */
	bool		is_domain = get_typtype(function->rettype) == TYPTYPE_DOMAIN;

	bool		by_name;
	StringInfoData body;
	StringInfoData in;
	StringInfoData variable;
	List	   *out = NIL;
	ListCell   *lc;

	initStringInfo(&in);
	initStringInfo(&variable);
	wrap_number_parameters(function, &in, &out, &variable);

	/* it would not know the name of what it returns, either */
	by_name = is_row || is_domain || out != NIL;

	initStringInfo(&body);
	/* says whose twin it is; a line end in a name would end the comment */
	appendStringInfo(&body, "-- the twin of %s\n#variable_conflict use_column\n",
					 idem_function_print_line(original));
	if (function->retset ? is_rows : is_void || by_name)
		appendStringInfo(&body, "DECLARE\n\t%s pg_catalog.%s;\n",
						 variable.data, is_void ? "bool" : "record");
	appendStringInfoString(&body, "BEGIN\n\t");

	if (function->retset || by_name)
	{
		if (is_rows)
			appendStringInfo(&body, "FOR %s IN ", variable.data);
		else if (function->retset)
			appendStringInfoString(&body, "RETURN QUERY ");
		appendStringInfo(&body, "SELECT %s FROM %s.idem_twin(%s, $1%s) AS t(%s)",
						 is_void ? "NULL::pg_catalog.void" : "*",
						 schema, original, in.data,
						 wrap_result_columns(function));
		/* at the end, where blanks in its place are not seen in a CONTEXT */
		if (!function->retset)
			appendStringInfo(&body, " INTO %s", variable.data);
	}
	else
	{
		if (is_void)
			appendStringInfo(&body, "%s :=", variable.data);
		else
			appendStringInfoString(&body, "RETURN");
		appendStringInfo(&body, " %s.idem_twin_value(%s, $1, NULL::%s%s)",
						 schema, original, is_void ? "pg_catalog.bool" :
						 format_type_be_qualified(function->rettype), in.data);
	}

	/* not as columns, which the plan would keep when the type is altered */
	if (is_rows && out != NIL)
		appendStringInfo(&body, " LOOP\n\t\t$%d := %s.%s;\n\t\tRETURN NEXT;\n\tEND LOOP;\n",
						 linitial_int(out), variable.data,
						 wrap_result_name(function));
	else if (is_rows)
		appendStringInfo(&body, " LOOP\n\t\tRETURN NEXT %s.%s;\n\tEND LOOP;\n",
						 variable.data, wrap_result_name(function));
	else
		appendStringInfoString(&body, ";\n");
	if (by_name && !function->retset)
	{
		foreach(lc, out)
			appendStringInfo(&body, "\t$%d := %s.%s;\n", lfirst_int(lc),
							 variable.data, !is_row ? wrap_result_name(function) :
							 quote_identifier(NameStr(TupleDescAttr(function->resultdesc,
																	foreach_current_index(lc))->attname)));
		if (out == NIL)
			appendStringInfo(&body, "\tRETURN %s.r;\n", variable.data);
	}
	appendStringInfoString(&body, "END");
	return body.data;
}

/*
 * Refuses a twin that belongs to another role, who could make anything of it.
 */
static void
wrap_check_owner(HeapTuple proc)
{
	Form_pg_proc form = (Form_pg_proc) GETSTRUCT(proc);

	if (form->proowner != GetUserId())
		ereport(ERROR,
				(errcode(ERRCODE_DUPLICATE_FUNCTION),
				 errmsg("function \"%s\" already exists with same argument types",
						NameStr(form->proname)),
				 errdetail("It looks like a twin of the same function, but belongs to another role."),
				 errhint("Wrap as its owner, drop it first, or pass another name.")));
}

/*
 * Whether the name is taken by a twin of the same function already, with the
 * same parameters: that one may be replaced, if it is the caller's own.  Anybody
 * may write a function that looks like one.
 */
static bool
wrap_is_own_twin(const IdemFunction *function, const char *schema,
				 const char *name, const char *body)
{
	oidvector  *types;
	Oid			all[FUNC_MAX_ARGS + 1];
	HeapTuple	tuple;
	Datum		source;
	bool		isnull;
	bool		twin;

	all[0] = TEXTOID;
	memcpy(all + 1, function->argtypes, function->nargs * sizeof(Oid));
	types = buildoidvector(all, function->nargs + 1);
	tuple = SearchSysCache3(PROCNAMEARGSNSP, CStringGetDatum(name),
							PointerGetDatum(types),
							ObjectIdGetDatum(get_namespace_oid(schema, false)));
	if (!HeapTupleIsValid(tuple))
		return false;
	source = SysCacheGetAttr(PROCNAMEARGSNSP, tuple, Anum_pg_proc_prosrc,
							 &isnull);
	/* the rest follows from the result type, which may have changed */
	twin = !isnull && strncmp(TextDatumGetCString(source), body,
							  strstr(body, "\n#") - body) == 0;
	if (twin)
		wrap_check_owner(tuple);
	ReleaseSysCache(tuple);
	return twin;
}

/*
 * A retry that leaves such an argument out is another call.
 */
static void
wrap_warn_of_defaults(const IdemFunction *function)
{
	int			first = function->nargs - list_length(function->defaults);

	for (int i = first; i < function->nargs; i++)
	{
		if (!contain_mutable_functions(list_nth(function->defaults, i - first)))
			continue;
		ereport(WARNING,
				(errmsg("default of parameter %d of function %s is not constant",
						i + 1, function->identity),
				 errdetail("The twin evaluates it at each call, and compares it with what the key was used with."),
				 errhint("Pass this argument, the same with each retry; or have the function fill it in where it is NULL.")));
	}
}

/*
 * idem_wrap(function, name) -> regprocedure
 */
Datum
idem_wrap(PG_FUNCTION_ARGS)
{
	IdemFunction *function;
	char	   *schema;
	char	   *name;
	char	   *body;
	char	   *parameters;
	StringInfoData command;
	StringInfoData signature;
	int			nestlevel;
	Datum		twin;
	HeapTuple	proc;

	idem_require_argument(fcinfo, 0, "function");
	idem_require_writable("idem_wrap()");
	function = idem_function_acquire(PG_GETARG_OID(0));
	if (function->nargs > FUNC_MAX_ARGS - 3)
		ereport(ERROR,
				(errcode(ERRCODE_TOO_MANY_ARGUMENTS),
				 errmsg("function %s has no room for one more parameter",
						function->identity)));
	if (OidIsValid(function->unreadable))
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_BAD_ARGUMENT),
				 errmsg("function %s cannot have a twin", function->identity),
				 errdetail("Its result holds type %s, of which PostgreSQL reads no values from text.",
						   format_type_be(function->unreadable)),
				 errhint("idem_call() replays it as JSON."),
				 errhidestmt(true)));
	wrap_choose_name(function->oid,
					 PG_ARGISNULL(1) ? NULL : PG_GETARG_TEXT_PP(1),
					 &schema, &name);

	/* so that every type in the text below is qualified */
	nestlevel = idem_shape_pin_settings(IDEM_SETTINGS_ALL);
	body = wrap_body(function, get_func_namespace(fcinfo->flinfo->fn_oid));
	parameters = TextDatumGetCString(DirectFunctionCall1(pg_get_function_arguments,
														 ObjectIdGetDatum(function->oid)));
	initStringInfo(&command);
	appendStringInfo(&command,
					 "CREATE %sFUNCTION %s(" KEY_PARAMETER " pg_catalog.text%s%s)"
					 " RETURNS %s LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE AS %s",
					 wrap_is_own_twin(function, schema, name, body) ?
					 "OR REPLACE " : "",
					 quote_qualified_identifier(schema, name),
					 parameters[0] != '\0' ? ", " : "", parameters,
					 TextDatumGetCString(DirectFunctionCall1(pg_get_function_result,
															 ObjectIdGetDatum(function->oid))),
					 quote_literal_cstr(body));
	SPI_connect();
	if (SPI_execute(command.data, false, 0) != SPI_OK_UTILITY)
		elog(ERROR, "could not create the twin");
	SPI_finish();

	wrap_warn_of_defaults(function);

	initStringInfo(&signature);
	appendStringInfo(&signature, "%s(pg_catalog.text",
					 quote_qualified_identifier(schema, name));
	for (int i = 0; i < function->nargs; i++)
		appendStringInfo(&signature, ",%s",
						 format_type_be_qualified(function->argtypes[i]));
	appendStringInfoChar(&signature, ')');
	twin = DirectFunctionCall1(regprocedurein, CStringGetDatum(signature.data));

	/* it may have become another's between the look and the replacement */
	proc = SearchSysCache1(PROCOID, twin);
	if (!HeapTupleIsValid(proc))
		elog(ERROR, "cache lookup failed for function %u", DatumGetObjectId(twin));
	wrap_check_owner(proc);
	ReleaseSysCache(proc);
	AtEOXact_GUC(true, nestlevel);
	PG_RETURN_DATUM(twin);
}
