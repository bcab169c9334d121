/*
 * target_id.c
 *	  A row's key from an id of any type, and as JSON.
 *
 * Ids arrive as anything: a number, a uuid, text from a driver that sends
 * everything as text, a JSON object where the key has several columns.  Each
 * becomes a value of the key column's type, through the column type's input
 * function where it is not of that type already.  A value that does not fit is
 * ID400; the message names column and type, never the value.
 *
 * Printed as JSON, a key is the same in every session, whatever that is set
 * to, and is an id again.
 */
#include "postgres.h"

#include "access/transam.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/date.h"
#include "utils/datetime.h"
#include "utils/guc.h"
#include "utils/json.h"
#include "utils/lsyscache.h"
#include "utils/numeric.h"

#include "errors.h"
#include "function.h"
#include "shape.h"
#include "target.h"

static void
target_refuse_id(const IdemTarget *target, const char *detail,
				 const char *hint)
{
	StringInfoData key;

	initStringInfo(&key);
	for (int i = 0; i < target->nkeys; i++)
		appendStringInfo(&key, "%s%s %s", i > 0 ? ", " : "",
						 quote_identifier(target->columns[i]),
						 format_type_be(target->types[i]));
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_BAD_ARGUMENT),
			 errmsg("id does not fit the primary key of table \"%s\"",
					target->table),
			 errdetail("%s The primary key is (%s).", detail, key.data),
			 hint != NULL ? errhint("%s", hint) : 0,
			 errhidestmt(true),
			 idem_errcolumn(target->relid, NULL)));
}

/*
 * In words of its own, since the error of a type's input quotes the value.
 */
static void
target_refuse_value(const IdemTarget *target, int n, const char *sqlstate)
{
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_BAD_ARGUMENT),
			 errmsg("id cannot be converted to type %s of column \"%s\"",
					format_type_be(target->types[n]), target->columns[n]),
			 errdetail("The conversion failed with SQLSTATE %s.", sqlstate),
			 errhidestmt(true),
			 idem_errcolumn(target->relid, target->columns[n])));
}

/*
 * A value of the n-th key column from its text.
 */
static Datum
target_from_text(const IdemTarget *target, int n, char *value)
{
	MemoryContext context = CurrentMemoryContext;
	Oid			input;
	Oid			ioparam;
	volatile Datum result = (Datum) 0;

	getTypeInputInfo(target->types[n], &input, &ioparam);
	PG_TRY();
	{
		result = OidInputFunctionCall(input, value, ioparam, -1);
	}
	PG_CATCH();
	{
		target_refuse_value(target, n,
							idem_argument_reword(context,
												 target->types[n] >= FirstNormalObjectId));
	}
	PG_END_TRY();
	return result;
}

static Datum
target_from_json(const IdemTarget *target, int n, JsonbValue *value)
{
	switch (value->type)
	{
		case jbvString:
			return target_from_text(target, n,
									pnstrdup(value->val.string.val,
											 value->val.string.len));
		case jbvNumeric:
			return target_from_text(target, n,
									DatumGetCString(DirectFunctionCall1(numeric_out,
																		NumericGetDatum(value->val.numeric))));
		case jbvBool:
			return target_from_text(target, n,
									value->val.boolean ? "true" : "false");
		case jbvNull:
			target_refuse_id(target, "A key column is null.", NULL);
			break;
		default:
			target_refuse_id(target,
							 "A key column is given as a JSON object or array.",
							 NULL);
	}
	return (Datum) 0;
}

/*
 * An object with each of the key's columns and nothing else; for a key of one
 * column also a JSON string, number or boolean.
 */
static void
target_from_jsonb(const IdemTarget *target, Jsonb *id, Datum *values)
{
	if (JB_ROOT_IS_SCALAR(id) && target->nkeys == 1)
	{
		values[0] = target_from_json(target, 0,
									 getIthJsonbValueFromContainer(&id->root, 0));
		return;
	}
	if (!JB_ROOT_IS_OBJECT(id))
		target_refuse_id(target, "It is not a JSON object with the key's columns.",
						 "Give a key of several columns as a JSON object by column name.");
	for (int i = 0; i < target->nkeys; i++)
	{
		JsonbValue *value = getKeyJsonValueFromContainer(&id->root,
														 target->columns[i],
														 strlen(target->columns[i]),
														 NULL);

		if (value == NULL)
			target_refuse_id(target, "A key column is missing in the JSON object.",
							 NULL);
		values[i] = target_from_json(target, i, value);
	}
	if (JB_ROOT_COUNT(id) != target->nkeys)
		target_refuse_id(target,
						 "The JSON object has a name that is no key column.",
						 NULL);
}

/*
 * Several columns from text, which must be the JSON object.
 */
static void
target_from_object_text(const IdemTarget *target, char *id, Datum *values)
{
	MemoryContext context = CurrentMemoryContext;
	volatile Datum json = (Datum) 0;

	PG_TRY();
	{
		json = DirectFunctionCall1(jsonb_in, CStringGetDatum(id));
	}
	PG_CATCH();
	{
		(void) idem_argument_reword(context, false);
		target_refuse_id(target, "It is not JSON.",
						 "Give a key of several columns as a JSON object by column name.");
	}
	PG_END_TRY();
	target_from_jsonb(target, DatumGetJsonbP(json), values);
}

/*
 * Integers of any width into one another.  False if this is not what it is.
 */
static bool
target_from_integer(const IdemTarget *target, Datum id, Oid type,
					Datum *value)
{
	int64		i;

	switch (type)
	{
		case INT2OID:
			i = DatumGetInt16(id);
			break;
		case INT4OID:
			i = DatumGetInt32(id);
			break;
		case INT8OID:
			i = DatumGetInt64(id);
			break;
		default:
			return false;
	}
	switch (target->types[0])
	{
		case INT2OID:
			if (i < PG_INT16_MIN || i > PG_INT16_MAX)
				return false;	/* its input says so */
			*value = Int16GetDatum((int16) i);
			return true;
		case INT4OID:
			if (i < PG_INT32_MIN || i > PG_INT32_MAX)
				return false;
			*value = Int32GetDatum((int32) i);
			return true;
		case INT8OID:
			*value = Int64GetDatum(i);
			return true;
		default:
			return false;
	}
}

static bool
target_has_column(const IdemTarget *target, const char *name)
{
	for (int i = 0; i < target->nkeys; i++)
	{
		if (strcmp(target->columns[i], name) == 0)
			return true;
	}
	return false;
}

/*
 * The key's values from a key as idem_target_print() printed it, since when one
 * column may have got another name.  False if it is a key of other columns, as
 * also where the table still has the column that is missing in its key.
 */
bool
idem_target_read(const IdemTarget *target, Jsonb *key, Datum *values)
{
	JsonbIterator *it = JsonbIteratorInit(&key->root);
	JsonbIteratorToken token;
	JsonbValue	value;
	JsonbValue	former;
	int			renamed = -1;
	int			known = 0;

	if (!JB_ROOT_IS_OBJECT(key) || JB_ROOT_COUNT(key) != target->nkeys)
		return false;
	for (int i = 0; i < target->nkeys; i++)
	{
		JsonbValue *found = getKeyJsonValueFromContainer(&key->root,
														 target->columns[i],
														 strlen(target->columns[i]),
														 NULL);

		if (found != NULL)
		{
			values[i] = target_from_json(target, i, found);
			known++;
		}
		else
			renamed = i;
	}
	if (known < target->nkeys - 1)
		return false;
	while (known < target->nkeys &&
		   (token = JsonbIteratorNext(&it, &value, true)) != WJB_DONE)
	{
		char	   *name;

		if (token != WJB_KEY)
			continue;
		name = pnstrdup(value.val.string.val, value.val.string.len);
		(void) JsonbIteratorNext(&it, &former, true);
		if (target_has_column(target, name))
			continue;
		if (get_attnum(target->relid, name) != InvalidAttrNumber)
			return false;
		values[renamed] = target_from_json(target, renamed, &former);
		known++;
	}
	return true;
}

/*
 * The key's values from an id of any type.
 */
void
idem_target_convert(const IdemTarget *target, Datum id, Oid type,
					Datum *values)
{
	Oid			base = getBaseType(type);
	Oid			output;
	bool		is_varlena;
	char	   *printed;

	if (target->nkeys == 1 && base == target->types[0])
	{
		values[0] = id;
		return;
	}
	if (target->nkeys == 1 && target_from_integer(target, id, base, values))
		return;
	if (base == JSONBOID)
	{
		target_from_jsonb(target, DatumGetJsonbP(id), values);
		return;
	}

	getTypeOutputInfo(type, &output, &is_varlena);
	printed = OidOutputFunctionCall(output, id);
	if (target->nkeys == 1 && base != JSONOID)
		values[0] = target_from_text(target, 0, printed);
	else
		target_from_object_text(target, printed, values);
}

/*
 * The same for an argument of a function that is declared "any" or text.
 */
void
idem_target_take_id(const IdemTarget *target, FunctionCallInfo fcinfo,
					int argno, Datum *values)
{
	Oid			type = get_fn_expr_argtype(fcinfo->flinfo, argno);

	idem_require_argument(fcinfo, argno, "id");
	if (!OidIsValid(type))
		elog(ERROR, "could not determine the type of argument \"id\"");
	idem_target_convert(target, PG_GETARG_DATUM(argno), type, values);
}

/*
 * Whether the text of a type's values may have names in it, which follow search_path.
 */
static bool
target_names_objects(Oid type)
{
	Oid			element = get_element_type(type);

	switch (OidIsValid(element) ? element : type)
	{
		case REGPROCOID:
		case REGPROCEDUREOID:
		case REGOPEROID:
		case REGOPERATOROID:
		case REGCLASSOID:
		case REGCOLLATIONOID:
		case REGTYPEOID:
		case REGCONFIGOID:
		case REGDICTIONARYOID:
			return true;
		default:
			/* who knows */
			return type >= FirstNormalObjectId;
	}
}

/*
 * Text of a value that is the same in every session, and for values that are
 * equal where their type shows it.
 */
static char *
target_print_value(Datum value, Oid type)
{
	int			utc = 0;
	int			nestlevel;
	Oid			output;
	bool		is_varlena;
	char	   *printed;

	if (type == DATEOID || type == TIMESTAMPOID || type == TIMESTAMPTZOID)
	{
		printed = palloc(MAXDATELEN + 1);
		return JsonEncodeDateTime(printed, value, type, &utc);
	}
	/* zero has a sign */
	if (type == FLOAT8OID && DatumGetFloat8(value) == 0)
		value = Float8GetDatum(0);
	if (type == FLOAT4OID && DatumGetFloat4(value) == 0)
		value = Float4GetDatum(0);

	getTypeOutputInfo(type, &output, &is_varlena);
	if (type == TEXTOID || type == VARCHAROID || type == UUIDOID)
		return OidOutputFunctionCall(output, value);
	if (type == BPCHAROID)
	{
		BpChar	   *text = DatumGetBpCharPP(value);

		/* blanks at the end mean nothing */
		return pnstrdup(VARDATA_ANY(text),
						bpchartruelen(VARDATA_ANY(text),
									  VARSIZE_ANY_EXHDR(text)));
	}

	/* it takes long to set the path */
	nestlevel = idem_shape_pin_settings(target_names_objects(type) ?
										IDEM_SETTINGS_PLAIN | IDEM_SETTINGS_PATH :
										IDEM_SETTINGS_PLAIN);
	printed = OidOutputFunctionCall(output, value);
	AtEOXact_GUC(true, nestlevel);
	return printed;
}

/*
 * A value of the key: numbers and booleans as such, all else as a string.
 */
static void
target_push_value(JsonbParseState **state, JsonbIteratorToken token,
				  Datum v, Oid type)
{
	JsonbValue	value;

	value.type = jbvNumeric;
	switch (type)
	{
		case INT2OID:
			value.val.numeric = int64_to_numeric(DatumGetInt16(v));
			break;
		case INT4OID:
			value.val.numeric = int64_to_numeric(DatumGetInt32(v));
			break;
		case INT8OID:
			value.val.numeric = int64_to_numeric(DatumGetInt64(v));
			break;
		case NUMERICOID:
			value.val.numeric = DatumGetNumeric(v);
			if (numeric_is_nan(value.val.numeric) ||
				numeric_is_inf(value.val.numeric))
				value.type = jbvString;
			break;
		case BOOLOID:
			value.type = jbvBool;
			value.val.boolean = DatumGetBool(v);
			break;
		default:
			value.type = jbvString;
	}
	if (value.type == jbvString)
	{
		value.val.string.val = target_print_value(v, type);
		value.val.string.len = strlen(value.val.string.val);
	}
	pushJsonbValue(state, token, &value);
}

/*
 * The object of one integer, the key of most tables: what the general way makes
 * of it, in a quarter of the time.
 */
static Jsonb *
target_print_integer(const char *name, int64 value)
{
	Numeric		number = int64_to_numeric(value);
	int			name_size = strlen(name);
	int			padding = INTALIGN(name_size) - name_size;
	int			number_size = VARSIZE(number);
	Size		size = offsetof(Jsonb, root.children) + 2 * sizeof(JEntry) +
	name_size + padding + number_size;
	Jsonb	   *result = palloc0(size);
	char	   *data = (char *) &result->root.children[2];

	SET_VARSIZE(result, size);
	result->root.header = JB_FOBJECT | 1;
	result->root.children[0] = JENTRY_ISSTRING | JENTRY_HAS_OFF | name_size;
	result->root.children[1] = JENTRY_ISNUMERIC | (padding + number_size);
	memcpy(data, name, name_size);
	memcpy(data + name_size + padding, number, number_size);
	return result;
}

/*
 * The key as a JSON object by column name, which idem_target_convert() takes
 * back.
 */
Jsonb *
idem_target_print(const IdemTarget *target, const Datum *values)
{
	JsonbParseState *state = NULL;

	if (target->nkeys == 1)
	{
		switch (target->types[0])
		{
			case INT2OID:
				return target_print_integer(target->columns[0],
											DatumGetInt16(values[0]));
			case INT4OID:
				return target_print_integer(target->columns[0],
											DatumGetInt32(values[0]));
			case INT8OID:
				return target_print_integer(target->columns[0],
											DatumGetInt64(values[0]));
		}
	}
	pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
	for (int i = 0; i < target->nkeys; i++)
	{
		JsonbValue	name;

		name.type = jbvString;
		name.val.string.val = target->columns[i];
		name.val.string.len = strlen(target->columns[i]);
		pushJsonbValue(&state, WJB_KEY, &name);
		target_push_value(&state, WJB_VALUE, values[i], target->types[i]);
	}
	return JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, NULL));
}

/*
 * Columns of the key, by their places in it, as a JSON array: a renamed column
 * leaves it as it is.
 */
Jsonb *
idem_target_print_values(const IdemTarget *target, const Datum *values,
						 const int *which, int n)
{
	JsonbParseState *state = NULL;

	pushJsonbValue(&state, WJB_BEGIN_ARRAY, NULL);
	for (int i = 0; i < n; i++)
		target_push_value(&state, WJB_ELEM, values[which[i]],
						  target->types[which[i]]);
	return JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_ARRAY, NULL));
}
