/*
 * once_key.c
 *	  The key of a row of a table that skips repeated inserts.
 *
 * The key is the text of each column behind its length in bytes, such as
 * "5:ab:cd" and "2:421:x", so that no two rows of different values have one
 * key; where that is longer than a key may be, "#" and its SHA-256.  Text is
 * what the type's output function gives under settings that are pinned, so
 * that a session's DateStyle or TimeZone does not make a repeated row new.  Of
 * numbers, trailing zeros and the sign of zero do not count, as they do not for
 * a unique index; everything else is compared byte by byte.
 *
 * A row whose column is not of the type that was found in the trigger is
 * refused.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "pgtime.h"
#include "utils/builtins.h"
#include "utils/bytea.h"
#include "utils/float.h"
#include "utils/fmgrprotos.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/numeric.h"

#include "digest.h"
#include "guc.h"
#include "once.h"

/* what the registry allows */
#define MAX_KEY_LENGTH	1024

/* a column's length in decimal, and a colon */
#define MAX_PREFIX		12

#define HEX_LENGTH		(PG_SHA256_DIGEST_LENGTH * 2)

/*
 * What the output of a type depends on.
 */
IdemOncePin
idem_once_pin(Oid base)
{
	switch (base)
	{
		case BOOLOID:
		case INT2OID:
		case INT4OID:
		case INT8OID:
		case NUMERICOID:
		case OIDOID:
		case TEXTOID:
		case VARCHAROID:
		case BPCHAROID:
		case CHAROID:
		case NAMEOID:
		case UUIDOID:
		case INETOID:
		case CIDROID:
		case MACADDROID:
		case MACADDR8OID:
		case BITOID:
		case VARBITOID:
		case JSONOID:
		case JSONBOID:
			return IDEM_ONCE_PIN_NONE;
		case DATEOID:
		case TIMEOID:
		case TIMETZOID:
		case TIMESTAMPOID:
		case TIMESTAMPTZOID:
		case INTERVALOID:
		case FLOAT4OID:
		case FLOAT8OID:
		case BYTEAOID:
			return IDEM_ONCE_PIN_STYLE;
		default:
			return type_is_enum(base) ? IDEM_ONCE_PIN_NONE : IDEM_ONCE_PIN_ALL;
	}
}

static void
pin_set(int *nestlevel, const char *name, const char *value)
{
	if (*nestlevel < 0)
		*nestlevel = NewGUCNestLevel();
	idem_guc_set(name, value);
}

/*
 * Pins the settings that output depends on, where they differ.  Returns what
 * pin_restore() needs; an error in between needs no cleanup.
 */
static int
pin_settings(IdemOncePin pin)
{
	int			nestlevel = -1;
	const char *zone;

	if (pin == IDEM_ONCE_PIN_NONE)
		return nestlevel;

	if (DateStyle != USE_ISO_DATES)
		pin_set(&nestlevel, "datestyle", "ISO");
	if (IntervalStyle != INTSTYLE_POSTGRES)
		pin_set(&nestlevel, "intervalstyle", "postgres");
	/* one and more all print the shortest text that reads back the same */
	if (extra_float_digits < 1)
		pin_set(&nestlevel, "extra_float_digits", "3");
	if (bytea_output != BYTEA_OUTPUT_HEX)
		pin_set(&nestlevel, "bytea_output", "hex");
	zone = pg_get_timezone_name(session_timezone);
	if (strcmp(zone, "UTC") != 0 && strcmp(zone, "Etc/UTC") != 0 &&
		strcmp(zone, "GMT") != 0)
		pin_set(&nestlevel, "timezone", "UTC");

	if (pin == IDEM_ONCE_PIN_ALL)
	{
		pin_set(&nestlevel, "search_path", "pg_catalog");
		pin_set(&nestlevel, "quote_all_identifiers", "off");
		pin_set(&nestlevel, "lc_monetary", "C");
	}
	return nestlevel;
}

static void
pin_restore(int nestlevel)
{
	if (nestlevel >= 0)
		AtEOXact_GUC(true, nestlevel);
}

/*
 * The text of one value that is not NULL.
 */
static char *
column_text(IdemOnceColumn *column, Datum value)
{
	switch (column->base)
	{
		case NUMERICOID:
			return numeric_normalize(DatumGetNumeric(value));
		case FLOAT4OID:
			if (DatumGetFloat4(value) == 0)
				value = Float4GetDatum(0);
			break;
		case FLOAT8OID:
			if (DatumGetFloat8(value) == 0)
				value = Float8GetDatum(0);
			break;
	}
	return OutputFunctionCall(&column->output, value);
}

/*
 * SHA-256 in hexadecimal digits.
 */
char *
idem_once_digest(const char *data, Size len)
{
	uint8		digest[PG_SHA256_DIGEST_LENGTH];
	char	   *hex = palloc(HEX_LENGTH + 1);

	idem_digest(data, len, digest);
	hex[hex_encode((const char *) digest, sizeof(digest), hex)] = '\0';
	return hex;
}

/*
 * The key of a row, or NULL where a column of it is NULL: such a row is never
 * a repeated one.
 */
text *
idem_once_key(IdemOnceTable *table, HeapTuple tuple, TupleDesc desc)
{
	StringInfoData buf;
	int			nestlevel;
	text	   *key;
	int			len;

	initStringInfo(&buf);
	appendStringInfoSpaces(&buf, VARHDRSZ);
	nestlevel = pin_settings(table->pin);
	for (int i = 0; i < table->ncolumns; i++)
	{
		IdemOnceColumn *column = &table->columns[i];
		Datum		value;
		bool		isnull;
		char	   *part;
		int			partlen;

		if (column->attnum > desc->natts ||
			TupleDescAttr(desc, column->attnum - 1)->attisdropped ||
			TupleDescAttr(desc, column->attnum - 1)->atttypid != column->type)
			elog(ERROR, "column %d of relation %u has another type",
				 column->attnum, table->relid);
		value = heap_getattr(tuple, column->attnum, desc, &isnull);
		if (isnull)
		{
			pin_restore(nestlevel);
			return NULL;
		}
		part = column_text(column, value);
		partlen = strlen(part);
		enlargeStringInfo(&buf, partlen + MAX_PREFIX);
		buf.len += pg_ltoa(partlen, buf.data + buf.len);
		buf.data[buf.len++] = ':';
		appendBinaryStringInfo(&buf, part, partlen);
	}
	pin_restore(nestlevel);

	len = buf.len - VARHDRSZ;
	if (len > MAX_KEY_LENGTH)
		return cstring_to_text(psprintf("#%s",
										idem_once_digest(buf.data + VARHDRSZ, len)));
	key = (text *) buf.data;
	SET_VARSIZE(key, buf.len);
	return key;
}
