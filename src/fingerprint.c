/*
 * fingerprint.c
 *	  The canonical form of a JSON document (RFC 8785) and its fingerprint.
 *
 * Two documents that are equal as jsonb have the same canonical form, and
 * two that differ have different ones, on every server and in every server
 * encoding: the form is always UTF-8.  jsonb's own text is no such form,
 * since it tells 1.0 from 1 and depends on the server encoding.
 *
 * Numbers.  The RFC writes the shortest decimal that reads back as the same
 * double.  jsonb holds decimals, and whenever a decimal is that shortest one,
 * its digits are the RFC's; any other, which a double does not hold, has to
 * keep its digits here, or requests that differ would be taken for one.  So
 * the digits are always the number's own, without zeros at either end, laid
 * out in the RFC's way, and no floating point is needed.  They are taken from
 * numeric's wire format, whose size follows the digits stored: the text of
 * 1e131071 would be 131,072 characters.
 *
 * Keys.  jsonb sorts them by length, then bytes; the RFC by UTF-16 code
 * units.  Hence the containers are read through their entries, in any order,
 * and not by JsonbIterator, which knows only jsonb's.  The open containers
 * stand on a stack in palloc'd memory: whatever depth jsonb could take, this
 * can walk.
 *
 * A fingerprint is the SHA-256 of the canonical form, behind the version of
 * these rules.  Whoever changes the form of any document changes the version
 * too: fingerprints are stored, and compared with those of later releases.
 */
#include "postgres.h"

#include "common/sha2.h"
#include "fmgr.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "port/pg_bswap.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/memutils.h"

#include "fingerprint.h"

PG_FUNCTION_INFO_V1(idem_canonical);
PG_FUNCTION_INFO_V1(idem_fingerprint);

/* the version of the form, in a stored fingerprint and in a printed one */
#define FINGERPRINT_VERSION			1
#define FINGERPRINT_PREFIX			"1."

/* numeric's wire format: four 16-bit fields, then digits of base 10000 */
#define WIRE_HEADER_LEN				8
#define WIRE_NEGATIVE				0x4000
#define WIRE_POSITIVE				0x0000

/* decimal digits that need no memory of their own */
#define SMALL_DIGITS				64

/* what is written without exponent, as ES6 does: 1e-6 <= n < 1e21 */
#define MIN_PLAIN_POINT				(-5)
#define MAX_PLAIN_POINT				21

/* a member of an open object, in canonical order */
typedef struct CanonicalMember
{
	const char *key;			/* UTF-8 */
	int			keylen;
	uint32		index;			/* of the value's entry */
	uint32		offset;			/* of the value's data */
	bool		converted;		/* "key" is a copy */
} CanonicalMember;

/* an open container */
typedef struct CanonicalFrame
{
	JsonbContainer *container;
	char	   *data;
	uint32		count;
	uint32		next;			/* of "count": what comes next */
	uint32		offset;			/* of an array: of the next element's data */
	Size		members;		/* of an object: its first member */
} CanonicalFrame;

typedef struct CanonicalWalk
{
	StringInfo	buf;
	CanonicalFrame *frames;
	Size		nframes;
	Size		maxframes;
	CanonicalMember *members;	/* of all open objects */
	Size		nmembers;
	Size		maxmembers;
} CanonicalWalk;

static inline bool
canonical_must_escape(unsigned char c)
{
	return c < 0x20 || c == '"' || c == '\\';
}

/*
 * Whether any of eight bytes must be escaped.  For each condition the sum
 * leaves the top bit of a byte clear where it holds.
 */
static inline bool
canonical_must_escape_any(uint64 bytes)
{
	const uint64 ones = UINT64CONST(0x0101010101010101);
	const uint64 low = ones * 0x7F;
	uint64		rest = bytes & low;
	uint64		quote = (rest ^ (ones * '"')) + low;
	uint64		backslash = (rest ^ (ones * '\\')) + low;
	uint64		printable = rest + ones * (0x80 - 0x20);

	return ((quote & backslash & printable) | bytes | low) != ~UINT64CONST(0);
}

/*
 * A string in UTF-8, in quotes.
 */
static void
canonical_append_string(StringInfo buf, const char *s, int len)
{
	const char *end = s + len;
	const char *run = s;

	enlargeStringInfo(buf, len + 2);
	appendStringInfoCharMacro(buf, '"');

	for (;;)
	{
		uint64		bytes;
		char		c;

		while (end - s >= (int) sizeof(bytes))
		{
			memcpy(&bytes, s, sizeof(bytes));
			if (canonical_must_escape_any(bytes))
				break;
			s += sizeof(bytes);
		}
		while (s < end && !canonical_must_escape((unsigned char) *s))
			s++;
		appendBinaryStringInfoNT(buf, run, s - run);
		if (s == end)
			break;

		c = *s++;
		run = s;
		CHECK_FOR_INTERRUPTS();
		switch (c)
		{
			case '"':
			case '\\':
				break;
			case '\b':
				c = 'b';
				break;
			case '\t':
				c = 't';
				break;
			case '\n':
				c = 'n';
				break;
			case '\f':
				c = 'f';
				break;
			case '\r':
				c = 'r';
				break;
			default:
				appendStringInfo(buf, "\\u%04x", (unsigned char) c);
				continue;
		}
		appendStringInfoCharMacro(buf, '\\');
		appendStringInfoCharMacro(buf, c);
	}

	appendStringInfoCharMacro(buf, '"');
}

/*
 * A string of jsonb's, which is in the server encoding.
 */
static void
canonical_append_server_string(StringInfo buf, const char *s, int len)
{
	char	   *utf8 = pg_server_to_any(s, len, PG_UTF8);

	if (utf8 == s)
		canonical_append_string(buf, s, len);
	else
	{
		canonical_append_string(buf, utf8, strlen(utf8));
		pfree(utf8);
	}
}

/*
 * The number 0.DIGITS * 10^point, in ES6's layout.  The first and the last
 * digit are not zero.
 */
static void
canonical_append_decimal(StringInfo buf, bool negative, const char *digits,
						 int ndigits, int point)
{
	if (negative)
		appendStringInfoCharMacro(buf, '-');

	if (point < MIN_PLAIN_POINT || point > MAX_PLAIN_POINT)
	{
		appendStringInfoCharMacro(buf, digits[0]);
		if (ndigits > 1)
		{
			appendStringInfoCharMacro(buf, '.');
			appendBinaryStringInfoNT(buf, digits + 1, ndigits - 1);
		}
		appendStringInfo(buf, "e%+d", point - 1);
	}
	else if (point >= ndigits)
	{
		appendBinaryStringInfoNT(buf, digits, ndigits);
		for (int i = ndigits; i < point; i++)
			appendStringInfoCharMacro(buf, '0');
	}
	else if (point > 0)
	{
		appendBinaryStringInfoNT(buf, digits, point);
		appendStringInfoCharMacro(buf, '.');
		appendBinaryStringInfoNT(buf, digits + point, ndigits - point);
	}
	else
	{
		appendBinaryStringInfoNT(buf, "0.", 2);
		for (int i = point; i < 0; i++)
			appendStringInfoCharMacro(buf, '0');
		appendBinaryStringInfoNT(buf, digits, ndigits);
	}
}

static inline int
canonical_wire_field(const unsigned char *p)
{
	return (p[0] << 8) | p[1];
}

static void
canonical_append_number(StringInfo buf, Numeric number)
{
	bytea	   *wire = DatumGetByteaP(DirectFunctionCall1(numeric_send,
														  NumericGetDatum(number)));
	const unsigned char *p = (const unsigned char *) VARDATA(wire);
	int			nwire = canonical_wire_field(p);
	int			weight = (int16) canonical_wire_field(p + 2);
	int			sign = canonical_wire_field(p + 4);
	char		small[SMALL_DIGITS];
	char	   *space = small;
	char	   *digits;
	int			ndigits = nwire * 4;
	int			point = (weight + 1) * 4;

	if (sign != WIRE_POSITIVE && sign != WIRE_NEGATIVE)
		elog(ERROR, "jsonb holds a number that JSON does not have");

	if (ndigits > SMALL_DIGITS)
		space = palloc(ndigits);
	digits = space;
	p += WIRE_HEADER_LEN;
	for (int i = 0; i < nwire; i++, p += 2)
	{
		int			group = canonical_wire_field(p);

		digits[i * 4] = '0' + group / 1000;
		digits[i * 4 + 1] = '0' + group / 100 % 10;
		digits[i * 4 + 2] = '0' + group / 10 % 10;
		digits[i * 4 + 3] = '0' + group % 10;
	}
	while (ndigits > 0 && digits[ndigits - 1] == '0')
		ndigits--;
	while (ndigits > 0 && digits[0] == '0')
	{
		digits++;
		ndigits--;
		point--;
	}

	if (ndigits == 0)
		appendStringInfoCharMacro(buf, '0');
	else
		canonical_append_decimal(buf, sign == WIRE_NEGATIVE, digits, ndigits,
								 point);

	if (space != small)
		pfree(space);
	pfree(wire);
}

/*
 * Where the order of UTF-16 code units is not that of UTF-8's bytes: U+E000
 * to U+FFFF, lead bytes EE and EF, come after the surrogates that stand for
 * all above, lead bytes F0 to F4.  Two valid strings first differ at the same
 * place of a character, and within one lead byte both orders agree.
 */
static inline int
canonical_utf16_rank(unsigned char c)
{
	return (c == 0xEE || c == 0xEF) ? c + 0x10 : c;
}

static int
canonical_compare_members(const void *a, const void *b)
{
	const CanonicalMember *ma = a;
	const CanonicalMember *mb = b;
	int			len = Min(ma->keylen, mb->keylen);

	CHECK_FOR_INTERRUPTS();
	for (int i = 0; i < len; i++)
	{
		if (ma->key[i] != mb->key[i])
			return canonical_utf16_rank((unsigned char) ma->key[i]) -
				canonical_utf16_rank((unsigned char) mb->key[i]);
	}
	return ma->keylen - mb->keylen;
}

/*
 * Length of the data of an entry that starts at an offset.
 */
static inline uint32
canonical_length(JEntry entry, uint32 offset)
{
	uint32		offlen = JBE_OFFLENFLD(entry);

	return JBE_HAS_OFF(entry) ? offlen - offset : offlen;
}

/*
 * Puts an object's members on top of the walk's, in canonical order.
 */
static void
canonical_push_members(CanonicalWalk *walk, CanonicalFrame *frame)
{
	JsonbContainer *c = frame->container;
	uint32		count = frame->count;
	uint32		offset = 0;
	CanonicalMember *members;

	frame->members = walk->nmembers;
	if (walk->maxmembers - walk->nmembers < count)
	{
		Size		max = Max(walk->maxmembers * 2, walk->nmembers + count);

		walk->members = repalloc_huge(walk->members,
									  max * sizeof(CanonicalMember));
		walk->maxmembers = max;
	}
	members = walk->members + walk->nmembers;
	walk->nmembers += count;

	for (uint32 i = 0; i < count; i++)
	{
		JEntry		entry = c->children[i];
		char	   *key = frame->data + offset;
		int			len = canonical_length(entry, offset);
		char	   *utf8 = pg_server_to_any(key, len, PG_UTF8);

		CHECK_FOR_INTERRUPTS();
		members[i].key = utf8;
		members[i].converted = (utf8 != key);
		members[i].keylen = members[i].converted ? strlen(utf8) : len;
		JBE_ADVANCE_OFFSET(offset, entry);
	}
	for (uint32 i = 0; i < count; i++)
	{
		members[i].index = count + i;
		members[i].offset = offset;
		JBE_ADVANCE_OFFSET(offset, c->children[count + i]);
	}

	qsort(members, count, sizeof(CanonicalMember), canonical_compare_members);
}

static inline bool
canonical_has_brackets(const CanonicalFrame *frame)
{
	return !JsonContainerIsScalar(frame->container);
}

static void
canonical_open(CanonicalWalk *walk, JsonbContainer *container)
{
	CanonicalFrame *frame;
	bool		is_object = JsonContainerIsObject(container);

	if (walk->nframes == walk->maxframes)
	{
		walk->frames = repalloc_huge(walk->frames, walk->maxframes * 2 *
									 sizeof(CanonicalFrame));
		walk->maxframes *= 2;
	}
	frame = &walk->frames[walk->nframes++];
	frame->container = container;
	frame->count = JsonContainerSize(container);
	frame->next = 0;
	frame->offset = 0;
	frame->data = (char *) &container->children[is_object ?
												frame->count * 2 :
												frame->count];
	if (canonical_has_brackets(frame))
		appendStringInfoCharMacro(walk->buf, is_object ? '{' : '[');
	if (is_object)
		canonical_push_members(walk, frame);
}

static void
canonical_close(CanonicalWalk *walk)
{
	CanonicalFrame *frame = &walk->frames[--walk->nframes];
	bool		is_object = JsonContainerIsObject(frame->container);

	if (canonical_has_brackets(frame))
		appendStringInfoCharMacro(walk->buf, is_object ? '}' : ']');
	if (is_object)
		walk->nmembers = frame->members;
}

/*
 * Writes the innermost open container's next value, or opens it.
 */
static void
canonical_append_next(CanonicalWalk *walk)
{
	CanonicalFrame *frame = &walk->frames[walk->nframes - 1];
	StringInfo	buf = walk->buf;
	uint32		index = frame->next;
	uint32		offset = frame->offset;
	JEntry		entry;
	char	   *data;

	if (frame->next > 0)
		appendStringInfoCharMacro(buf, ',');

	if (JsonContainerIsObject(frame->container))
	{
		CanonicalMember *member = &walk->members[frame->members + index];

		canonical_append_string(buf, member->key, member->keylen);
		appendStringInfoCharMacro(buf, ':');
		if (member->converted)
			pfree(unconstify(char *, member->key));
		index = member->index;
		offset = member->offset;
		entry = frame->container->children[index];
	}
	else
	{
		entry = frame->container->children[index];
		JBE_ADVANCE_OFFSET(frame->offset, entry);
	}
	frame->next++;

	data = frame->data + offset;
	if (JBE_ISSTRING(entry))
		canonical_append_server_string(buf, data,
									   canonical_length(entry, offset));
	else if (JBE_ISNUMERIC(entry))
		canonical_append_number(buf, (Numeric) (frame->data +
												INTALIGN(offset)));
	else if (JBE_ISBOOL_TRUE(entry))
		appendBinaryStringInfoNT(buf, "true", 4);
	else if (JBE_ISBOOL_FALSE(entry))
		appendBinaryStringInfoNT(buf, "false", 5);
	else if (JBE_ISNULL(entry))
		appendBinaryStringInfoNT(buf, "null", 4);
	else
		canonical_open(walk, (JsonbContainer *) (frame->data +
												 INTALIGN(offset)));
}

/*
 * Appends the canonical form of a document, in UTF-8 whatever the server
 * encoding is.
 *
 * Fails where a string cannot be converted to UTF-8, or where the form is
 * larger than a StringInfo may be.
 */
static void
canonical_append(StringInfo buf, JsonbContainer *document)
{
	CanonicalWalk walk = {0};

	walk.buf = buf;
	walk.maxframes = 16;
	walk.frames = palloc(walk.maxframes * sizeof(CanonicalFrame));
	walk.maxmembers = 32;
	walk.members = palloc(walk.maxmembers * sizeof(CanonicalMember));

	canonical_open(&walk, document);
	while (walk.nframes > 0)
	{
		CanonicalFrame *frame = &walk.frames[walk.nframes - 1];

		CHECK_FOR_INTERRUPTS();
		if (frame->next < frame->count)
			canonical_append_next(&walk);
		else
			canonical_close(&walk);
	}

	pfree(walk.frames);
	pfree(walk.members);

	/* a StringInfo is always terminated, and has room for that */
	buf->data[buf->len] = '\0';
}

/*
 * Appends the canonical form of a value that need not be a document.
 */
void
idem_canonical_append_value(StringInfo buf, const JsonbValue *value)
{
	switch (value->type)
	{
		case jbvNull:
			appendBinaryStringInfo(buf, "null", 4);
			break;
		case jbvBool:
			appendStringInfoString(buf, value->val.boolean ? "true" : "false");
			break;
		case jbvString:
			canonical_append_server_string(buf, value->val.string.val,
										   value->val.string.len);
			break;
		case jbvNumeric:
			canonical_append_number(buf, value->val.numeric);
			break;
		case jbvBinary:
			canonical_append(buf, value->val.binary.data);
			break;
		default:
			elog(ERROR, "unexpected kind of JSON value: %d", (int) value->type);
	}
}

/*
 * Appends one of several parts that are digested together: its length in
 * front, in UTF-8, so that no two lists of parts give the same bytes.
 */
void
idem_digest_append_part(StringInfo buf, const char *part, int len)
{
	char	   *converted = pg_server_to_any(part, len, PG_UTF8);
	uint32		size = converted == part ? len : strlen(converted);
	uint32		prefix = pg_hton32(size);

	appendBinaryStringInfo(buf, (char *) &prefix, sizeof(prefix));
	appendBinaryStringInfo(buf, converted, size);
}

/*
 * SHA-256 of the canonical form.
 */
static void
fingerprint_digest(Jsonb *document, uint8 *digest)
{
	StringInfoData buf;

	initStringInfo(&buf);
	canonical_append(&buf, &document->root);
	idem_digest(buf.data, buf.len, digest);
	pfree(buf.data);
}

/*
 * A fingerprint as it is stored: a version byte, then the digest.
 */
bytea *
idem_fingerprint_digest(const char *data, int len)
{
	bytea	   *result = palloc(VARHDRSZ + 1 + PG_SHA256_DIGEST_LENGTH);
	uint8	   *bytes = (uint8 *) VARDATA(result);

	SET_VARSIZE(result, VARHDRSZ + 1 + PG_SHA256_DIGEST_LENGTH);
	bytes[0] = FINGERPRINT_VERSION;
	idem_digest(data, len, bytes + 1);
	return result;
}

/*
 * The fingerprint of a request.
 */
bytea *
idem_fingerprint_jsonb(Jsonb *document)
{
	StringInfoData buf;
	bytea	   *result;

	initStringInfo(&buf);
	canonical_append(&buf, &document->root);
	result = idem_fingerprint_digest(buf.data, buf.len);
	pfree(buf.data);
	return result;
}

/*
 * The fingerprint of a call: an identity, and arguments.  It differs from that
 * of any request, whose canonical form is never binary.
 */
bytea *
idem_fingerprint_call(const char *identity, Jsonb *arguments)
{
	StringInfoData buf;
	bytea	   *result;

	initStringInfo(&buf);
	idem_digest_append_part(&buf, identity, strlen(identity));
	canonical_append(&buf, &arguments->root);
	result = idem_fingerprint_digest(buf.data, buf.len);
	pfree(buf.data);
	return result;
}

/*
 * 32 bytes in base64 with the alphabet for URLs, without padding or terminator.
 */
void
idem_digest_print(const uint8 *digest, char *printed)
{
	static const char alphabet[] =
	"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

	for (int i = 0; i < IDEM_DIGEST_PRINT_LEN; i++)
	{
		int			bit = i * 6;
		int			pair = digest[bit / 8] << 8;

		if (bit / 8 + 1 < PG_SHA256_DIGEST_LENGTH)
			pair |= digest[bit / 8 + 1];
		printed[i] = alphabet[(pair >> (10 - bit % 8)) & 0x3F];
	}
}

/*
 * idem_canonical(jsonb) -> text
 */
Datum
idem_canonical(PG_FUNCTION_ARGS)
{
	Jsonb	   *document = PG_GETARG_JSONB_P(0);
	StringInfoData buf;
	char	   *converted;
	text	   *result;

	initStringInfo(&buf);
	canonical_append(&buf, &document->root);

	converted = pg_any_to_server(buf.data, buf.len, PG_UTF8);
	result = cstring_to_text_with_len(converted, converted == buf.data ?
									  buf.len : strlen(converted));
	PG_FREE_IF_COPY(document, 0);
	PG_RETURN_TEXT_P(result);
}

/*
 * idem_fingerprint(jsonb) -> text: the version, a dot, the digest.
 */
Datum
idem_fingerprint(PG_FUNCTION_ARGS)
{
	Jsonb	   *document = PG_GETARG_JSONB_P(0);
	uint8		digest[PG_SHA256_DIGEST_LENGTH];
	char		printed[sizeof(FINGERPRINT_PREFIX) + IDEM_DIGEST_PRINT_LEN] =
	FINGERPRINT_PREFIX;

	fingerprint_digest(document, digest);
	idem_digest_print(digest, printed + strlen(FINGERPRINT_PREFIX));
	PG_FREE_IF_COPY(document, 0);
	PG_RETURN_TEXT_P(cstring_to_text_with_len(printed, sizeof(printed) - 1));
}
