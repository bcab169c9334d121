/*
 * function_json.c
 *	  The result of a function as JSON.
 *
 * Made by to_json(), or as it would make it, so that it is what the user would
 * see from it, then stripped of white space outside strings.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "nodes/makefuncs.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/json.h"

#include "function.h"

/*
 * Appends a value of the commonest types just as to_json() would, which looks
 * up what a type is each time.  False if it is of none of them.
 */
static bool
json_append_plain(StringInfo buf, Oid type, Datum value)
{
	char		number[MAXINT8LEN + 1];

	switch (type)
	{
		case INT2OID:
			pg_itoa(DatumGetInt16(value), number);
			break;
		case INT4OID:
			pg_ltoa(DatumGetInt32(value), number);
			break;
		case INT8OID:
			pg_lltoa(DatumGetInt64(value), number);
			break;
		case BOOLOID:
			appendStringInfoString(buf, DatumGetBool(value) ? "true" : "false");
			return true;
		case TEXTOID:
			escape_json(buf, TextDatumGetCString(value));
			return true;
		default:
			return false;
	}
	appendStringInfoString(buf, number);
	return true;
}

/*
 * Appends a value as JSON.
 */
static void
json_append(StringInfo buf, Oid type, Datum value, bool isnull)
{
	LOCAL_FCINFO(fcinfo, 1);
	FmgrInfo	flinfo;
	struct varlena *json;

	if (isnull)
	{
		appendStringInfoString(buf, "null");
		return;
	}
	if (json_append_plain(buf, type, value))
		return;

	fmgr_info(F_TO_JSON, &flinfo);
	fmgr_info_set_expr((Node *) makeFuncExpr(F_TO_JSON, JSONOID,
											 list_make1(makeNullConst(type, -1, InvalidOid)),
											 InvalidOid, InvalidOid,
											 COERCE_EXPLICIT_CALL), &flinfo);
	InitFunctionCallInfoData(*fcinfo, &flinfo, 1, InvalidOid, NULL, NULL);
	fcinfo->args[0].value = value;
	fcinfo->args[0].isnull = false;
	json = PG_DETOAST_DATUM_PACKED(FunctionCallInvoke(fcinfo));
	appendBinaryStringInfo(buf, VARDATA_ANY(json), VARSIZE_ANY_EXHDR(json));
}

/*
 * Takes out white space outside strings, in place.
 */
static void
json_compact(StringInfo buf)
{
	bool		quoted = false;
	int			len = 0;

	for (int i = 0; i < buf->len; i++)
	{
		char		c = buf->data[i];

		if (quoted && c == '\\' && i + 1 < buf->len)
			buf->data[len++] = buf->data[i++];
		else if (c == '"')
			quoted = !quoted;
		else if (!quoted &&
				 (c == ' ' || c == '\t' || c == '\n' || c == '\r'))
			continue;
		buf->data[len++] = buf->data[i];
	}
	buf->data[len] = '\0';
	buf->len = len;
}

void
idem_function_json_begin(IdemFunctionJson *json, const IdemFunction *function)
{
	initStringInfo(&json->buf);
	json->function = function;
	json->nvalues = 0;
	if (function->retset)
		appendStringInfoChar(&json->buf, '[');
}

/*
 * An IdemFunctionSink.
 */
void
idem_function_json_add(Datum value, bool isnull, void *arg)
{
	IdemFunctionJson *json = (IdemFunctionJson *) arg;

	if (json->nvalues++ > 0)
		appendStringInfoChar(&json->buf, ',');
	json_append(&json->buf, json->function->rettype, value, isnull);
}

/*
 * The result as compact JSON: of a set an array, of a composite an object, of
 * no value null.
 */
text *
idem_function_json_end(IdemFunctionJson *json)
{
	if (json->function->retset)
		appendStringInfoChar(&json->buf, ']');
	json_compact(&json->buf);
	return cstring_to_text_with_len(json->buf.data, json->buf.len);
}
