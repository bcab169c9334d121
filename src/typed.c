/*
 * typed.c
 *	  A typed argument in the form in which it is compared: as JSON that no
 *	  other value of its type has.
 *
 * It is the JSON that would name the value to idem_call(), so that either way
 * the same call has the same fingerprint: what JSON has no form for is a string
 * in the type's own notation.  Unlike to_json() it runs nothing that a user
 * made but output functions of types: a cast to json may give two values one
 * form, be changed between a call and its retry, or quote what it was given.
 *
 * JSON itself counts by what it says, not by its text, as jsonb does.  Within a
 * composite or array a JSON null would look like a NULL, and within an array
 * an element that is a JSON array itself would look like one more dimension, so
 * that such a value is a string, and so is an array with bounds of its own.
 *
 * The caller has pinned the settings that texts follow.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/date.h"
#include "utils/datetime.h"
#include "utils/fmgrprotos.h"
#include "utils/json.h"
#include "utils/jsonb.h"
#include "utils/lsyscache.h"
#include "utils/numeric.h"
#include "utils/typcache.h"

#include "function.h"
#include "typed.h"

static bool typed_append_value(StringInfo buf, Oid type, Datum value);

/*
 * A json value as jsonb; NULL if jsonb does not take it.
 */
static Jsonb *
typed_try_jsonb(const char *json)
{
	MemoryContext context = CurrentMemoryContext;
	Jsonb	   *volatile jsonb = NULL;

	PG_TRY();
	{
		jsonb = DatumGetJsonbP(DirectFunctionCall1(jsonb_in,
												   CStringGetDatum(json)));
	}
	PG_CATCH();
	{
		(void) idem_argument_reword(context, false);
	}
	PG_END_TRY();
	return jsonb;
}

static bool
typed_is_json_null(Jsonb *jsonb)
{
	return JB_ROOT_IS_SCALAR(jsonb) &&
		getIthJsonbValueFromContainer(&jsonb->root, 0)->type == jbvNull;
}

/*
 * False for what has no form of its own within other JSON.
 */
static bool
typed_append_json(StringInfo buf, Oid type, Datum value)
{
	Jsonb	   *jsonb = type == JSONBOID ? DatumGetJsonbP(value) :
	typed_try_jsonb(TextDatumGetCString(value));

	if (jsonb == NULL || typed_is_json_null(jsonb))
		return false;
	(void) JsonbToCString(buf, &jsonb->root, VARSIZE(jsonb));
	return true;
}

/*
 * A number as it is printed, unless that is no JSON or says too little.
 */
static void
typed_append_number(StringInfo buf, const char *printed)
{
	if (strcmp(printed, "-0") == 0 ||
		strspn(printed, "0123456789+-.e") < strlen(printed))
		escape_json(buf, printed);
	else
		appendStringInfoString(buf, printed);
}

static void
typed_append_time(StringInfo buf, Oid type, Datum value)
{
	char		printed[MAXDATELEN + 1];

	(void) JsonEncodeDateTime(printed, value, type, NULL);
	appendStringInfo(buf, "\"%s\"", printed);
}

/*
 * The elements from *offset on of one dimension.  False if one of them has no
 * form within an array.
 */
static bool
typed_append_dimension(StringInfo buf, Oid type, int ndims, const int *dims,
					   const Datum *elems, const bool *nulls, int *offset)
{
	int			start;

	appendStringInfoChar(buf, '[');
	for (int i = 0; i < dims[0]; i++)
	{
		if (i > 0)
			appendStringInfoChar(buf, ',');
		if (ndims > 1)
		{
			if (!typed_append_dimension(buf, type, ndims - 1, dims + 1, elems,
										nulls, offset))
				return false;
			continue;
		}
		start = buf->len;
		if (nulls[*offset])
			appendStringInfoString(buf, "null");
		else if (!typed_append_value(buf, type, elems[*offset]) ||
				 buf->data[start] == '[')
			return false;
		(*offset)++;
	}
	appendStringInfoChar(buf, ']');
	return true;
}

static bool
typed_append_array(StringInfo buf, Oid type, Datum value)
{
	ArrayType  *array = DatumGetArrayTypeP(value);
	Datum	   *elems;
	bool	   *nulls;
	int			nelems;
	int			offset = 0;
	int16		len;
	bool		byval;
	char		align;

	for (int i = 0; i < ARR_NDIM(array); i++)
	{
		if (ARR_LBOUND(array)[i] != 1)
			return false;
	}
	if (ARR_NDIM(array) == 0)
	{
		appendStringInfoString(buf, "[]");
		return true;
	}
	get_typlenbyvalalign(type, &len, &byval, &align);
	deconstruct_array(array, type, len, byval, align, &elems, &nulls, &nelems);
	return typed_append_dimension(buf, type, ARR_NDIM(array), ARR_DIMS(array),
								  elems, nulls, &offset);
}

static bool
typed_append_columns(StringInfo buf, TupleDesc desc, const Datum *values,
					 const bool *nulls)
{
	bool		first = true;

	appendStringInfoChar(buf, '{');
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		if (att->attisdropped)
			continue;
		if (!first)
			appendStringInfoChar(buf, ',');
		first = false;
		escape_json(buf, NameStr(att->attname));
		appendStringInfoChar(buf, ':');
		if (nulls[i])
			appendStringInfoString(buf, "null");
		else if (!typed_append_value(buf, att->atttypid, values[i]))
			return false;
	}
	appendStringInfoChar(buf, '}');
	return true;
}

static bool
typed_append_composite(StringInfo buf, Datum value)
{
	HeapTupleHeader header = DatumGetHeapTupleHeader(value);
	TupleDesc	desc = lookup_rowtype_tupdesc_copy(HeapTupleHeaderGetTypeId(header),
												   HeapTupleHeaderGetTypMod(header));
	HeapTupleData tuple;
	Datum	   *values = palloc(desc->natts * sizeof(Datum));
	bool	   *nulls = palloc(desc->natts * sizeof(bool));

	tuple.t_data = header;
	tuple.t_len = HeapTupleHeaderGetDatumLength(header);
	ItemPointerSetInvalid(&tuple.t_self);
	tuple.t_tableOid = InvalidOid;
	heap_deform_tuple(&tuple, desc, values, nulls);
	return typed_append_columns(buf, desc, values, nulls);
}

static char *
typed_print(Oid type, Datum value)
{
	Oid			output;
	bool		is_varlena;

	getTypeOutputInfo(type, &output, &is_varlena);
	return OidOutputFunctionCall(output, value);
}

/*
 * What has elements or columns; a string if its JSON would say too little.
 * True if it was one of them.
 */
static bool
typed_append_container(StringInfo buf, Oid type, Datum value)
{
	Oid			element = get_element_type(type);
	int			len = buf->len;
	bool		exact;

	if (OidIsValid(element))
		exact = typed_append_array(buf, element, value);
	else if (get_typtype(type) == TYPTYPE_COMPOSITE)
		exact = typed_append_composite(buf, value);
	else
		return false;

	if (!exact)
	{
		buf->len = len;
		escape_json(buf, typed_print(type, value));
	}
	return true;
}

/*
 * Appends one value that is not NULL.  False for JSON that has no form of its
 * own.
 */
static bool
typed_append_value(StringInfo buf, Oid type, Datum value)
{
	check_stack_depth();
	type = getBaseType(type);
	switch (type)
	{
		case BOOLOID:
			appendStringInfoString(buf, DatumGetBool(value) ? "true" : "false");
			break;
		case INT2OID:
			appendStringInfo(buf, "%d", DatumGetInt16(value));
			break;
		case INT4OID:
			appendStringInfo(buf, "%d", DatumGetInt32(value));
			break;
		case INT8OID:
			appendStringInfo(buf, INT64_FORMAT, DatumGetInt64(value));
			break;
		case FLOAT4OID:
		case FLOAT8OID:
		case NUMERICOID:
			typed_append_number(buf, typed_print(type, value));
			break;
		case TEXTOID:
		case VARCHAROID:
		case BPCHAROID:
			escape_json(buf, TextDatumGetCString(value));
			break;
		case DATEOID:
		case TIMESTAMPOID:
		case TIMESTAMPTZOID:
			typed_append_time(buf, type, value);
			break;
		case JSONOID:
		case JSONBOID:
			return typed_append_json(buf, type, value);
		default:
			if (!typed_append_container(buf, type, value))
				escape_json(buf, typed_print(type, value));
	}
	return true;
}

/*
 * A document as a value.
 */
static void
typed_take_document(Jsonb *document, JsonbValue *json)
{
	if (JB_ROOT_IS_SCALAR(document))
	{
		*json = *getIthJsonbValueFromContainer(&document->root, 0);
		return;
	}
	json->type = jbvBinary;
	json->val.binary.data = &document->root;
	json->val.binary.len = VARSIZE(document) - VARHDRSZ;
}

static void
typed_take_string(char *s, int len, JsonbValue *json)
{
	json->type = jbvString;
	json->val.string.val = s;
	json->val.string.len = len;
}

/*
 * What is not told by a simple value.  A JSON null, and what jsonb does not
 * take, have other forms than the NULL and the string that they look like.
 */
static void
typed_take_any(Oid type, Datum value, JsonbValue *json, const char **form)
{
	StringInfoData buf;
	Jsonb	   *document = NULL;
	char	   *printed;

	if (type == JSONBOID)
		document = DatumGetJsonbP(value);
	else if (type == JSONOID)
		document = typed_try_jsonb(TextDatumGetCString(value));
	else
	{
		initStringInfo(&buf);
		if (!typed_append_value(&buf, type, value))
			elog(ERROR, "value of type %u has no form", type);
		document = typed_try_jsonb(buf.data);
	}

	if (document != NULL)
	{
		typed_take_document(document, json);
		if (json->type == jbvNull)
			*form = " json";
		return;
	}
	printed = typed_print(type, value);
	typed_take_string(printed, strlen(printed), json);
	*form = " text";
}

/*
 * An argument as the JSON in which it is compared, and in *form, unless NULL,
 * what tells it from another value that has the same.
 */
JsonbValue *
idem_typed_value(Oid type, Datum value, bool isnull, const char **form)
{
	JsonbValue *json = palloc(sizeof(JsonbValue));

	*form = NULL;
	if (isnull)
	{
		json->type = jbvNull;
		return json;
	}
	type = getBaseType(type);
	switch (type)
	{
		case BOOLOID:
			json->type = jbvBool;
			json->val.boolean = DatumGetBool(value);
			break;
		case INT2OID:
			json->type = jbvNumeric;
			json->val.numeric = int64_to_numeric(DatumGetInt16(value));
			break;
		case INT4OID:
			json->type = jbvNumeric;
			json->val.numeric = int64_to_numeric(DatumGetInt32(value));
			break;
		case INT8OID:
			json->type = jbvNumeric;
			json->val.numeric = int64_to_numeric(DatumGetInt64(value));
			break;
		case TEXTOID:
		case VARCHAROID:
		case BPCHAROID:
			{
				text	   *t = DatumGetTextPP(value);

				typed_take_string(VARDATA_ANY(t), VARSIZE_ANY_EXHDR(t), json);
				break;
			}
		default:
			typed_take_any(type, value, json, form);
	}
	return json;
}
