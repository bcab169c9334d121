/*
 * label.c
 *	  The label of an arrow in a diagram, read and written, and the entities
 *	  that stand for what Mermaid cannot carry.
 *
 *	label  = [ event ] [ "[" guard "]" ] [ "by" role { "," role } ]
 *			 [ "after" interval ] [ "(" number ")" ]
 *	event, role = word | '"' text '"'
 *
 * A word ends at white space, a comma, a quote or a bracket.  A guard ends at
 * its bracket: brackets nest, and those inside SQL quotes do not count.  What
 * is inside a token is decoded when the token has been found, so that an entity
 * never begins or ends one.  The number is how often the transition was taken,
 * as idem_diagram() counts it; it is passed over.
 *
 * An entity is "#", a number or a name, and ";": a code point in decimal, or
 * one of the HTML names below.  Whatever is written by idem_entities_encode()
 * comes back the same from idem_entities_decode().
 */
#include "postgres.h"

#include <ctype.h>

#include "fmgr.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "parser/scansup.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "definition.h"
#include "errors.h"

/* so much of what was found, and of its line, is shown in a message */
#define MAX_FOUND		40
#define MAX_LINE		160

static const char order_hint[] =
"The order is: event [guard] by role, role after interval.";

/* as the table's CHECK says */
#define MAX_AFTER_YEARS	1000

static const struct
{
	const char *name;
	char		character;
}			entity_names[] = {

	{"amp", '&'},
	{"apos", '\''},
	{"colon", ':'},
	{"comma", ','},
	{"gt", '>'},
	{"lbrace", '{'},
	{"lpar", '('},
	{"lsqb", '['},
	{"lt", '<'},
	{"num", '#'},
	{"percnt", '%'},
	{"quot", '"'},
	{"rbrace", '}'},
	{"rpar", ')'},
	{"rsqb", ']'},
	{"semi", ';'}
};

static char *
place_clip(const char *text, int len, int limit)
{
	if (len <= limit)
		return pnstrdup(text, len);
	return psprintf("%.*s...", pg_mbcliplen(text, len, limit), text);
}

/*
 * The line that an error is about.
 */
static char *
place_line(const IdemPlace *place)
{
	const char *from = place->text;
	const char *end;

	for (int line = 1; line < place->line && *from != '\0'; from++)
	{
		if (*from == '\n')
			line++;
	}
	while (*from != '\0' && *from != '\n' && scanner_isspace(*from))
		from++;
	end = from + strcspn(from, "\n");
	while (end > from && scanner_isspace(end[-1]))
		end--;
	return place_clip(from, end - from, MAX_LINE);
}

/*
 * Everything that is wrong with the form of a definition.
 */
void
idem_place_error(const IdemPlace *place, const char *expected,
				 const char *found, const char *hint)
{
	const char *line = place_line(place);

	found = place_clip(found, strlen(found), MAX_FOUND);
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_MISUSE),
			 errmsg("definition of machine \"%s\" is malformed at line %d",
					place->machine, place->line),
			 found[0] == '\0' ?
			 errdetail("Expected %s, found the end of the line%s%s",
					   expected, line[0] != '\0' ? ": " : ".", line) :
			 strcmp(found, line) == 0 ?
			 errdetail("Expected %s, found \"%s\".", expected, found) :
			 errdetail("Expected %s, found \"%s\" in: %s",
					   expected, found, line),
			 hint != NULL ? errhint("%s", hint) : 0,
			 errhidestmt(true)));
}

/*
 * Appends the character that an entity names; false if it names none.
 */
static bool
entity_append(StringInfo out, const char *name, int len)
{
	unsigned long code = 0;
	unsigned char buffer[MAX_UNICODE_EQUIVALENT_STRING + 1];
	int			i;

	for (i = 0; i < lengthof(entity_names); i++)
	{
		if (strlen(entity_names[i].name) == len &&
			memcmp(entity_names[i].name, name, len) == 0)
		{
			appendStringInfoChar(out, entity_names[i].character);
			return true;
		}
	}
	for (i = 0; i < len && i < 8 && isdigit((unsigned char) name[i]); i++)
		code = code * 10 + (name[i] - '0');
	if (i < len || !is_valid_unicode_codepoint(code) ||
		is_utf16_surrogate_first(code) || is_utf16_surrogate_second(code))
		return false;
	pg_unicode_to_server(code, buffer);
	appendStringInfoString(out, (char *) buffer);
	return true;
}

/*
 * A copy of the text with its entities replaced.
 */
char *
idem_entities_decode(const IdemPlace *place, const char *text, int len)
{
	StringInfoData out;
	int			i = 0;

	initStringInfo(&out);
	while (i < len)
	{
		int			end = i + 1;

		if (text[i] != '#')
		{
			appendStringInfoChar(&out, text[i++]);
			continue;
		}
		while (end < len && isalnum((unsigned char) text[end]))
			end++;
		if (end == i + 1 || end == len || text[end] != ';')
			appendStringInfoChar(&out, text[i++]);
		else if (entity_append(&out, text +i + 1, end - i - 1))
			i = end + 1;
		else
			idem_place_error(place, "an entity such as \"#59;\"",
							 pnstrdup(text +i, end - i + 1),
							 "A \"#\" that begins no entity is \"#35;\".");
	}
	return out.data;
}

/*
 * Appends the text with entities for control characters, for what never passes
 * through Mermaid, for a blank at either end and for what is in "special".
 */
void
idem_entities_encode(StringInfo out, const char *text, const char *special)
{
	for (const char *c = text; *c != '\0'; c++)
	{
		bool		edge = *c == ' ' && (c == text ||c[1] == '\0');

		if ((unsigned char) *c < ' ' || *c == 127 || *c == '#' || *c == ';' ||
			edge || (*c == '%' && c[1] == '%') || strchr(special, *c) != NULL)
			appendStringInfo(out, "#%d;", (unsigned char) *c);
		else
			appendStringInfoChar(out, *c);
	}
}

/* where a label is being read */
typedef struct LabelReader
{
	const IdemPlace *place;
	const char *at;
	const char *end;
} LabelReader;

/*
 * Cuts off a count at the end.
 */
static void
label_cut_count(LabelReader *reader)
{
	const char *c = reader->end;

	while (c > reader->at && scanner_isspace(c[-1]))
		c--;
	if (c == reader->at || *--c != ')')
		return;
	while (c > reader->at && isdigit((unsigned char) c[-1]))
		c--;
	if (c > reader->at && c[-1] == '(' && *c != ')')
		reader->end = c - 1;
}

static void
label_skip_blanks(LabelReader *reader)
{
	while (reader->at < reader->end && scanner_isspace(*reader->at))
		reader->at++;
}

static void
label_error(LabelReader *reader, const char *expected, const char *hint)
{
	idem_place_error(reader->place, expected,
					 pnstrdup(reader->at, reader->end - reader->at), hint);
}

static int
label_word_length(const LabelReader *reader)
{
	const char *c = reader->at;

	while (c < reader->end && !scanner_isspace(*c) &&
		   strchr(",\"[]", *c) == NULL)
		c++;
	return c - reader->at;
}

static bool
label_at_keyword(const LabelReader *reader, const char *keyword)
{
	int			len = label_word_length(reader);

	return len == strlen(keyword) && memcmp(reader->at, keyword, len) == 0;
}

/*
 * The word or quoted text that is next; NULL if there is neither.
 */
static char *
label_read_name(LabelReader *reader)
{
	const char *from = reader->at;
	int			len;

	if (reader->at < reader->end && *reader->at == '"')
	{
		char	   *name;

		from++;
		for (reader->at++; reader->at < reader->end; reader->at++)
		{
			if (*reader->at == '"')
				break;
		}
		if (reader->at == reader->end)
		{
			reader->at = from - 1;
			label_error(reader, "a closing quote", NULL);
		}
		name = idem_entities_decode(reader->place, from, reader->at - from);
		reader->at++;
		return name;
	}

	len = label_word_length(reader);
	if (len == 0)
		return NULL;
	reader->at += len;
	return idem_entities_decode(reader->place, from, len);
}

/*
 * Where the guard that begins behind "[" ends, or NULL.
 */
static const char *
guard_end(const char *at, const char *end)
{
	int			depth = 0;
	char		quote = '\0';

	for (; at < end; at++)
	{
		if (quote != '\0')
		{
			if (*at == quote)
				quote = '\0';
		}
		else if (*at == '\'' || *at == '"')
			quote = *at;
		else if (*at == '[')
			depth++;
		else if (*at == ']' && depth-- == 0)
			return at;
	}
	return NULL;
}

/*
 * An interval; what interval_in() says of a bad one becomes ours.
 */
static Interval *
label_read_interval(LabelReader *reader)
{
	MemoryContext caller = CurrentMemoryContext;
	char	   *text = idem_entities_decode(reader->place, reader->at,
											reader->end - reader->at);
	Interval   *interval = NULL;
	double		months;

	PG_TRY();
	{
		interval = DatumGetIntervalP(DirectFunctionCall3(interval_in,
														 CStringGetDatum(text),
														 ObjectIdGetDatum(InvalidOid),
														 Int32GetDatum(-1)));
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(caller);
		if (ERRCODE_TO_CATEGORY(geterrcode()) != ERRCODE_DATA_EXCEPTION)
			PG_RE_THROW();
		FlushErrorState();
		idem_place_error(reader->place, "an interval such as \"30 min\"", text,
						 strstr(text, " by ") != NULL || strchr(text, '[') != NULL ?
						 order_hint : NULL);
	}
	PG_END_TRY();

	months = interval->month + interval->day / 30.0 +
		interval->time / ((double) USECS_PER_DAY * 30.0);
	if (IDEM_INTERVAL_IS_INFINITE(interval) || months < 0 ||
		months > MAX_AFTER_YEARS * MONTHS_PER_YEAR)
		idem_place_error(reader->place, "an interval from 0 to 1000 years",
						 text, NULL);
	reader->at = reader->end;
	return interval;
}

/*
 * Reads a label; what it leaves out is NULL.
 */
void
idem_label_parse(const IdemPlace *place, const char *text, int len,
				 IdemLabel *label)
{
	LabelReader reader;

	reader.place = place;
	reader.at = text;
	reader.end = text +len;

	memset(label, 0, sizeof(IdemLabel));
	label_cut_count(&reader);
	label_skip_blanks(&reader);
	if (!label_at_keyword(&reader, "by") && !label_at_keyword(&reader, "after"))
		label->event = label_read_name(&reader);

	label_skip_blanks(&reader);
	if (reader.at < reader.end && *reader.at == '[')
	{
		const char *end = guard_end(reader.at + 1, reader.end);

		if (end == NULL)
			label_error(&reader, "a closing \"]\"", NULL);
		label->guard = idem_entities_decode(place, reader.at + 1,
											end - reader.at - 1);
		reader.at = end + 1;
		label_skip_blanks(&reader);
	}
	if (label_at_keyword(&reader, "by"))
	{
		reader.at += strlen("by");
		do
		{
			char	   *role;

			label_skip_blanks(&reader);
			role = label_read_name(&reader);
			if (role == NULL)
				label_error(&reader, "a role", NULL);
			if (strlen(role) >= NAMEDATALEN)
				idem_place_error(place, "a role", role,
								 "The name is too long for a role.");
			label->roles = lappend(label->roles, role);
			label_skip_blanks(&reader);
		} while (reader.at < reader.end && *reader.at == ',' && reader.at++);
	}
	if (label_at_keyword(&reader, "after"))
	{
		reader.at += strlen("after");
		label_skip_blanks(&reader);
		label->after = label_read_interval(&reader);
	}
	if (reader.at < reader.end)
		label_error(&reader,
					label->roles != NIL ? "\",\", \"after\" or the end of the line" :
					label->guard != NULL ? "\"by\", \"after\" or the end of the line" :
					"\"[\", \"by\", \"after\" or the end of the line",
					*reader.at == '[' || label_at_keyword(&reader, "by") ||
					label_at_keyword(&reader, "after") ? order_hint :
					"A name of several words is put in double quotes.");
}

static void
label_print_name(StringInfo out, const char *name)
{
	bool		word = strcmp(name, "by") != 0 && strcmp(name, "after") != 0;

	for (const char *c = name; word && *c != '\0'; c++)
		word = IS_HIGHBIT_SET(*c) || isalnum((unsigned char) *c) ||
			*c == '_' || *c == '.' || *c == '-';
	if (word)
		appendStringInfoString(out, name);
	else
	{
		appendStringInfoChar(out, '"');
		idem_entities_encode(out, name, "\":");
		appendStringInfoChar(out, '"');
	}
}

/*
 * Appends it in units that any setting reads the same, a blank before each.
 */
void
idem_label_print_interval(StringInfo out, const Interval *interval)
{
	int64		time = interval->time;
	int			start = out->len;

	if (interval->month != 0)
		appendStringInfo(out, " %d mon", interval->month);
	if (interval->day != 0)
		appendStringInfo(out, " %d %s", interval->day,
						 interval->day == 1 ? "day" : "days");
	if (time / USECS_PER_HOUR != 0)
		appendStringInfo(out, " " INT64_FORMAT " h", time / USECS_PER_HOUR);
	time %= USECS_PER_HOUR;
	if (time / USECS_PER_MINUTE != 0)
		appendStringInfo(out, " " INT64_FORMAT " min", time / USECS_PER_MINUTE);
	time %= USECS_PER_MINUTE;
	if (time % USECS_PER_SEC != 0)
		appendStringInfo(out, " %s" INT64_FORMAT ".%06d s",
						 time < 0 ? "-" : "", (time < 0 ? -time : time) / USECS_PER_SEC,
						 (int) ((time < 0 ? -time : time) % USECS_PER_SEC));
	else if (time != 0 || out->len == start)
		appendStringInfo(out, " " INT64_FORMAT " s", time / USECS_PER_SEC);
}

/*
 * Appends the label that reads as this rule, without a blank before it.
 */
void
idem_label_print(StringInfo out, const IdemTransitionDef *rule)
{
	ListCell   *cell;

	label_print_name(out, rule->event);
	if (rule->guard != NULL)
	{
		StringInfoData guard;
		const char *end;

		initStringInfo(&guard);
		idem_entities_encode(&guard, rule->guard, ":");
		appendStringInfoChar(&guard, ']');
		end = guard_end(guard.data, guard.data + guard.len);
		if (end != guard.data + guard.len - 1)
		{
			resetStringInfo(&guard);
			idem_entities_encode(&guard, rule->guard, ":[]'\"");
			appendStringInfoChar(&guard, ']');
		}
		appendStringInfo(out, " [%s", guard.data);
	}
	foreach(cell, rule->roles)
	{
		appendStringInfoString(out, foreach_current_index(cell) == 0 ?
							   " by " : ", ");
		label_print_name(out, lfirst(cell));
	}
	if (rule->after != NULL)
	{
		appendStringInfoString(out, " after");
		idem_label_print_interval(out, rule->after);
	}
}
