/*
 * shape.c
 *	  What the text of a value depends on, besides the value: the columns in
 *	  its type, and settings.
 *
 * The text of a composite value holds its columns by position, without names.
 * Read into a type that was altered since, it could mean other columns.  So who
 * keeps such texts keeps a digest of the type's shape as well: names, types
 * and order of the columns, down to the last composite inside, whether in an
 * array, a domain, a range or a column.  Lengths and precisions are left out,
 * since most changes of them change no value; who reads a value compares its
 * text again.  Labels of an enum are their own names.
 *
 * Settings are changed only where a type follows them and where they are not
 * what is needed already, since that costs more than the rest of a replay.
 */
#include "postgres.h"

#include "access/transam.h"
#include "catalog/namespace.h"
#include "catalog/pg_type.h"
#include "common/sha2.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "pgtime.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/bytea.h"
#include "utils/float.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/typcache.h"
#include "utils/xml.h"

#include "compat.h"
#include "fingerprint.h"
#include "guc.h"
#include "shape.h"

/* characters of a digest that are kept: 132 bits */
#define DIGEST_LEN	22

void
idem_shape_begin(IdemShape *shape)
{
	initStringInfo(&shape->text);
	shape->has_columns = false;
	shape->settings = 0;
	shape->unreadable = InvalidOid;
	shape->seen = NIL;
}

/*
 * The settings that the text of a built-in type follows.
 */
static int
shape_settings(Oid type)
{
	switch (type)
	{
		case BOOLOID:
		case CHAROID:
		case INT2OID:
		case INT4OID:
		case INT8OID:
		case OIDOID:
		case NUMERICOID:
		case TEXTOID:
		case VARCHAROID:
		case BPCHAROID:
		case NAMEOID:
		case UUIDOID:
		case JSONOID:
		case JSONBOID:
		case VOIDOID:
			return 0;
		case MONEYOID:
			return IDEM_SETTINGS_MONEY;
		case REGPROCOID:
		case REGPROCEDUREOID:
		case REGOPEROID:
		case REGOPERATOROID:
		case REGCLASSOID:
		case REGTYPEOID:
		case REGROLEOID:
		case REGNAMESPACEOID:
		case REGCOLLATIONOID:
		case REGCONFIGOID:
		case REGDICTIONARYOID:
			return IDEM_SETTINGS_PLAIN | IDEM_SETTINGS_PATH;
	}
	return IDEM_SETTINGS_PLAIN;
}

/*
 * Whether a type is one whose input refuses every value.
 */
static bool
shape_is_unreadable(Oid type)
{
	switch (type)
	{
		case PG_NODE_TREEOID:
		case PG_NDISTINCTOID:
		case PG_DEPENDENCIESOID:
		case PG_MCV_LISTOID:
		case PG_BRIN_BLOOM_SUMMARYOID:
		case PG_BRIN_MINMAX_MULTI_SUMMARYOID:
		case GTSVECTOROID:
			return true;
		case VOIDOID:
			return false;
	}
	return get_typtype(type) == TYPTYPE_PSEUDO;
}

/*
 * Adds a type, as that of a column if it has a name.
 */
void
idem_shape_add(IdemShape *shape, const char *name, Oid type)
{
	StringInfo text = &shape->text;
	Oid			inner;

	check_stack_depth();
	if (name != NULL)
	{
		appendStringInfo(text, "%s ", quote_identifier(name));
		shape->has_columns = true;
	}

	inner = get_element_type(type);
	if (OidIsValid(inner))
	{
		shape->settings |= IDEM_SETTINGS_PLAIN;
		idem_shape_add(shape, NULL, inner);
		appendStringInfoString(text, "[]");
		return;
	}

	if (shape_is_unreadable(type))
		shape->unreadable = type;
	appendStringInfoString(text, format_type_be_qualified(type));
	switch (get_typtype(type))
	{
		case TYPTYPE_DOMAIN:
			/* its constraints may call anything */
			shape->settings |= IDEM_SETTINGS_ALL;
			inner = getBaseType(type);
			break;
		case TYPTYPE_RANGE:
			shape->settings |= IDEM_SETTINGS_PLAIN;
			if (type >= FirstNormalObjectId)
				inner = get_range_subtype(type);
			break;
		case TYPTYPE_MULTIRANGE:
			shape->settings |= IDEM_SETTINGS_PLAIN;
			if (type >= FirstNormalObjectId)
				inner = get_multirange_range(type);
			break;
		case TYPTYPE_COMPOSITE:
			if (!list_member_oid(shape->seen, type))
			{
				TupleDesc	desc = lookup_rowtype_tupdesc_copy(type, -1);

				shape->seen = lappend_oid(shape->seen, type);
				idem_shape_add_columns(shape, desc);
			}
			break;
		case TYPTYPE_ENUM:
			break;
		default:
			shape->settings |= type < FirstNormalObjectId ?
				shape_settings(type) : IDEM_SETTINGS_ALL;
	}
	if (OidIsValid(inner))
	{
		shape->has_columns = true;
		appendStringInfoString(text, " over ");
		idem_shape_add(shape, NULL, inner);
	}
}

/*
 * Adds the columns of a row.
 */
void
idem_shape_add_columns(IdemShape *shape, TupleDesc desc)
{
	shape->has_columns = true;
	appendStringInfoChar(&shape->text, '(');
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		if (att->attisdropped)
			continue;
		idem_shape_add(shape, NameStr(att->attname), att->atttypid);
		appendStringInfoChar(&shape->text, ',');
	}
	appendStringInfoChar(&shape->text, ')');
}

/*
 * The digest of what was added; nothing, where that has no columns.
 */
char *
idem_shape_digest(const IdemShape *shape)
{
	uint8		digest[PG_SHA256_DIGEST_LENGTH];
	char		printed[IDEM_DIGEST_PRINT_LEN];

	if (!shape->has_columns)
		return pstrdup("");
	idem_digest(shape->text.data, shape->text.len, digest);
	idem_digest_print(digest, printed);
	return pnstrdup(printed, DIGEST_LEN);
}

/* a setting that is pinned, and whether it is so already */
typedef struct ShapeSetting
{
	int			which;
	const char *name;
	const char *value;
	bool		set;
} ShapeSetting;

/*
 * Sets what the text of values follows to what texts are kept under, until
 * AtEOXact_GUC() of the level returned.
 */
int
idem_shape_pin_settings(int which)
{
	const ShapeSetting settings[] = {
		{IDEM_SETTINGS_PLAIN, "datestyle", "ISO, YMD",
		DateStyle == USE_ISO_DATES && DateOrder == DATEORDER_YMD},
		{IDEM_SETTINGS_PLAIN, "intervalstyle", "postgres",
		IntervalStyle == INTSTYLE_POSTGRES},
		{IDEM_SETTINGS_PLAIN, "timezone", "UTC",
			strcmp(pg_get_timezone_name(session_timezone), "UTC") == 0 ||
		strcmp(pg_get_timezone_name(session_timezone), "Etc/UTC") == 0},
		/* any number of them above 0 is the shortest exact one */
		{IDEM_SETTINGS_PLAIN, "extra_float_digits", "3",
		extra_float_digits > 0},
		{IDEM_SETTINGS_PLAIN, "bytea_output", "hex",
		bytea_output == BYTEA_OUTPUT_HEX},
		{IDEM_SETTINGS_PLAIN, "array_nulls", "on", Array_nulls},
		{IDEM_SETTINGS_PLAIN, "quote_all_identifiers", "off",
		!quote_all_identifiers},
		{IDEM_SETTINGS_PLAIN, "xmlbinary", "base64",
		xmlbinary == XMLBINARY_BASE64},
		{IDEM_SETTINGS_PLAIN, "xmloption", "content",
		xmloption == XMLOPTION_CONTENT},
		{IDEM_SETTINGS_MONEY, "lc_monetary", "C",
		strcmp(locale_monetary, "C") == 0},
		{IDEM_SETTINGS_PATH, "search_path", "pg_catalog, pg_temp", false}
	};
	int			nestlevel = NewGUCNestLevel();

	for (int i = 0; i < lengthof(settings); i++)
	{
		if ((which & settings[i].which) != 0 && !settings[i].set)
			idem_guc_set(settings[i].name, settings[i].value);
	}
	return nestlevel;
}
