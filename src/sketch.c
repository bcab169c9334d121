/*
 * sketch.c
 *	  Reads the lines of a definition, the text of a Mermaid state diagram.
 *
 * Mermaid's own grammar goes by lines, and so does this one: each line is one
 * statement, read by descent with one place to look at.  A name may be used
 * before the line that says what it stands for, so what is read is only
 * collected here; definition.c makes it a machine.
 *
 * What has a meaning is read strictly.  What only concerns the drawing is
 * passed over.  What would say more than a table of transitions can hold
 * (composite states, forks, choices, regions) is refused, never ignored: a
 * diagram that shows a rule which nobody keeps is worse than none.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "parser/scansup.h"
#include "utils/memutils.h"

#include "sketch.h"

static void
sketch_error(IdemSketch *sketch, const char *expected, const char *hint)
{
	idem_place_error(&sketch->place, expected,
					 pnstrdup(sketch->at, sketch->end - sketch->at), hint);
}

static const char blanks_hint[] =
"A name with blanks is declared by: state \"its name\" as x";

static void
skip_blanks(IdemSketch *sketch)
{
	while (sketch->at < sketch->end && scanner_isspace(*sketch->at))
		sketch->at++;
}

static bool
at_end(IdemSketch *sketch)
{
	skip_blanks(sketch);
	return sketch->at >= sketch->end;
}

static bool
at_text(const IdemSketch *sketch, const char *text)
{
	Size		len = strlen(text);

	return sketch->end - sketch->at >= len &&
		memcmp(sketch->at, text, len) == 0;
}

static bool
accept(IdemSketch *sketch, const char *text)
{
	skip_blanks(sketch);
	if (!at_text(sketch, text))
		return false;
	sketch->at += strlen(text);
	return true;
}

/*
 * The same for a word, which ends at a blank, a colon or the end of the line.
 */
static bool
accept_word(IdemSketch *sketch, const char *word)
{
	const char *behind;

	skip_blanks(sketch);
	behind = sketch->at + strlen(word);
	if (!at_text(sketch, word) ||
		(behind < sketch->end && !scanner_isspace(*behind) &&
		 *behind != ':'))
		return false;
	sketch->at = behind;
	return true;
}

static void
expect_end(IdemSketch *sketch)
{
	if (!at_end(sketch))
		sketch_error(sketch, "the end of the line", NULL);
}

/*
 * The name of a state ends at a blank; what stands behind it is not "expected".
 */
static void
refuse_behind_name(IdemSketch *sketch, const char *expected)
{
	const char *hint = blanks_hint;
	const char *first = sketch->place.text;
	const char *before = sketch->at;

	while (before > first && scanner_isspace(before[-1]))
		before--;
	if (at_text(sketch, "-->"))
		hint = "A line has one arrow.";
	else if (at_text(sketch, "-") || at_text(sketch, "="))
		hint = "An arrow is written: -->";
	else if (at_text(sketch, ",") ||
			 (before > first && before[-1] == ','))
		hint = "Write a line for each state, or [any].";
	sketch_error(sketch, expected, hint);
}

/*
 * Goes to the next line; false if there is none.
 */
static bool
next_line(IdemSketch *sketch)
{
	const char *newline;

	CHECK_FOR_INTERRUPTS();
	if (*sketch->next == '\0')
		return false;
	sketch->at = sketch->next;
	newline = strchr(sketch->at, '\n');
	sketch->end = newline ? newline : sketch->at + strlen(sketch->at);
	sketch->next = newline ? newline + 1 : sketch->end;
	sketch->place.line++;
	while (sketch->end > sketch->at &&
		   scanner_isspace(sketch->end[-1]))
		sketch->end--;
	return true;
}

/*
 * Passes over text up to "last", and over it; "what" began at the current
 * place.
 */
static void
skip_behind(IdemSketch *sketch, const char *last, const char *what)
{
	int			line = sketch->place.line;

	do
	{
		for (; sketch->at < sketch->end; sketch->at++)
		{
			if (at_text(sketch, last))
			{
				sketch->at += strlen(last);
				return;
			}
		}
	} while (next_line(sketch));
	sketch->place.line = line;
	idem_place_error(&sketch->place, psprintf("\"%s\" to end it", last), what,
					 NULL);
}

/*
 * What is known of a name; it is known from then on.
 */
IdemSketchName *
idem_sketch_name(IdemSketch *sketch, const char *name)
{
	IdemSketchKey key = {0};
	IdemSketchName *known;
	bool		found;

	strlcpy(key, name, sizeof(key));
	known = hash_search(sketch->names, key, HASH_ENTER, &found);
	if (!found)
	{
		known->state = NULL;
		known->text = NULL;
		known->drawn = false;
		sketch->order = lappend(sketch->order, pstrdup(name));
	}
	return known;
}

/*
 * A name of a state as it stands in the text, or "[*]"; "drawn" is but for notes.
 */
static char *
read_name(IdemSketch *sketch, bool drawn)
{
	const char *from;
	char	   *name;

	skip_blanks(sketch);
	from = sketch->at;
	while (sketch->at < sketch->end &&
		   !scanner_isspace(*sketch->at) && *sketch->at != ':' &&
		   *sketch->at != '{' && *sketch->at != '"' &&
		   !at_text(sketch, "-->") && !at_text(sketch, "<<"))
		sketch->at++;
	if (sketch->at == from)
		sketch_error(sketch, "the name of a state", blanks_hint);
	if (sketch->at - from > IDEM_MAX_NAME)
		idem_place_error(&sketch->place, "a name of at most 128 bytes",
						 pnstrdup(from, sketch->at - from), NULL);
	name = pnstrdup(from, sketch->at - from);

	/* a class for the drawing */
	if (at_text(sketch, ":::"))
	{
		while (sketch->at < sketch->end &&
			   !scanner_isspace(*sketch->at))
			sketch->at++;
	}
	if (strcmp(name, IDEM_EDGE_STATE) != 0)
	{
		IdemSketchName *known = idem_sketch_name(sketch, name);

		known->drawn = known->drawn || drawn;
	}
	return name;
}

/*
 * name --> name [: label], or a name alone, which declares it, or
 * name : description, which is for the drawing.
 */
static void
read_arrow(IdemSketch *sketch)
{
	IdemSketchArrow *arrow = palloc0(sizeof(IdemSketchArrow));

	arrow->line = sketch->place.line;
	arrow->from = read_name(sketch, true);
	if (accept(sketch, "-->"))
	{
		arrow->to = read_name(sketch, true);
		skip_blanks(sketch);
		arrow->has_label = accept(sketch, ":");
		if (arrow->has_label)
			idem_label_parse(&sketch->place, sketch->at,
							 sketch->end - sketch->at, &arrow->label);
		else if (!at_end(sketch))
			refuse_behind_name(sketch, "\":\" or the end of the line");
		sketch->arrows = lappend(sketch->arrows, arrow);
		return;
	}
	if (at_end(sketch))
		return;
	if (strcmp(arrow->from, IDEM_EDGE_STATE) == 0 || !accept(sketch, ":"))
		refuse_behind_name(sketch, "\"-->\" or \":\"");
}

static void
refuse_unknown_kind(IdemSketch *sketch, const char *what)
{
	sketch_error(sketch, "states and transitions only",
				 psprintf("%s cannot be kept as transitions between states; draw them out.",
						  what));
}

/*
 * state name, or state "text" as name
 */
static void
read_state(IdemSketch *sketch)
{
	char	   *text = NULL;
	char	   *name;

	if (accept(sketch, "\""))
	{
		const char *from = sketch->at;

		while (sketch->at < sketch->end && *sketch->at != '"')
			sketch->at++;
		if (sketch->at == sketch->end)
			sketch_error(sketch, "a closing quote", NULL);
		text = idem_entities_decode(&sketch->place, from, sketch->at - from);

		sketch->at++;
		if (!accept_word(sketch, "as"))
			sketch_error(sketch, "\"as\"", blanks_hint);
	}
	name = read_name(sketch, true);
	skip_blanks(sketch);
	if (at_text(sketch, "{"))
		refuse_unknown_kind(sketch, "Composite states");
	if (at_text(sketch, "<<") || at_text(sketch, "[["))
		refuse_unknown_kind(sketch, "Forks, joins and choices");
	if (strcmp(name, IDEM_EDGE_STATE) == 0)
		sketch_error(sketch, "the name of a state", NULL);
	if (text !=NULL)
	{
		IdemSketchName *known = idem_sketch_name(sketch, name);

		if (known->text !=NULL && strcmp(known->text, text) != 0)
			idem_place_error(&sketch->place,
							 "a name that does not stand for another state",
							 name, NULL);
		known->text = text;
	}
	if (!at_end(sketch) && !accept(sketch, ":"))
		refuse_behind_name(sketch, "\":\" or the end of the line");
}

/*
 * note right of name : text, or note right of name, lines, end note
 */
static void
read_note(IdemSketch *sketch)
{
	IdemSketchNote *note;
	StringInfoData text;

	skip_blanks(sketch);
	if (at_text(sketch, "\""))
		return;					/* a note to nothing */
	if (!(accept_word(sketch, "right") || accept_word(sketch, "left")) ||
		!accept_word(sketch, "of"))
		sketch_error(sketch, "\"right of\" or \"left of\"", NULL);
	note = palloc0(sizeof(IdemSketchNote));
	note->line = sketch->place.line;
	note->name = read_name(sketch, false);
	initStringInfo(&text);
	if (accept(sketch, ":"))
		appendBinaryStringInfo(&text, sketch->at, sketch->end - sketch->at);
	else
	{
		if (!at_end(sketch))
			refuse_behind_name(sketch, "\":\" or the end of the line");
		for (;;)
		{
			if (!next_line(sketch))
			{
				sketch->place.line = note->line;
				idem_place_error(&sketch->place, "\"end note\" to end it",
								 "note", NULL);
			}
			skip_blanks(sketch);
			if (accept_word(sketch, "end") && accept_word(sketch, "note"))
				break;
			appendBinaryStringInfo(&text, sketch->at,
								   sketch->end - sketch->at);
			appendStringInfoChar(&text, '\n');
		}
		expect_end(sketch);
	}
	note->text = text.data;

	sketch->notes = lappend(sketch->notes, note);
}

/*
 * Whether the line is about the drawing only; if so it has been read.
 */
static bool
read_drawing(IdemSketch *sketch)
{
	static const char *const words[] = {
		"direction", "classDef", "class", "style", "click", "accTitle",
		"title", "hide", "scale"
	};
	const char *from = sketch->at;

	if (accept(sketch, "%%{"))
	{
		skip_behind(sketch, "}%%", "%%{");
		return true;
	}
	if (at_text(sketch, "%%"))
		return true;
	if (accept_word(sketch, "accDescr") || accept(sketch, "accDescr{"))
	{
		if (sketch->at[-1] == '{' || accept(sketch, "{"))
			skip_behind(sketch, "}", "accDescr");
		return true;
	}
	for (int i = 0; i < lengthof(words); i++)
	{
		/* a state may be called so */
		if (accept_word(sketch, words[i]))
		{
			skip_blanks(sketch);
			if (!at_end(sketch) && !at_text(sketch, "-->") &&
				(!at_text(sketch, ":") || strncmp(words[i], "acc", 3) == 0))
				return true;
			sketch->at = from;
			return false;
		}
	}
	return false;
}

static void
read_line(IdemSketch *sketch)
{
	const char *from = sketch->at;

	if (at_end(sketch) || read_drawing(sketch))
		return;
	if (at_text(sketch, "}"))
		refuse_unknown_kind(sketch, "Composite states");
	if (at_text(sketch, "--") && !at_text(sketch, "-->"))
		refuse_unknown_kind(sketch, "Concurrent regions");

	from = sketch->at;
	if (accept_word(sketch, "state") && !at_end(sketch) &&
		!at_text(sketch, "-->") && !at_text(sketch, ":"))
	{
		read_state(sketch);
		return;
	}
	sketch->at = from;
	if (accept_word(sketch, "note") && !at_end(sketch) &&
		!at_text(sketch, "-->") && !at_text(sketch, ":"))
	{
		read_note(sketch);
		return;
	}
	sketch->at = from;
	read_arrow(sketch);
}

/*
 * Front matter, comments, and the word that every such diagram begins with.
 */
static void
read_header(IdemSketch *sketch)
{
	bool		first = true;

	while (next_line(sketch))
	{
		if (at_end(sketch))
			continue;
		if (first && accept(sketch, "---"))
			skip_behind(sketch, "---", "---");
		else if (accept_word(sketch, "stateDiagram-v2") ||
				 accept_word(sketch, "stateDiagram"))
		{
			expect_end(sketch);
			return;
		}
		else if (!read_drawing(sketch))
			break;
		first = false;
	}
	if (sketch->place.line == 0)
		sketch->place.line = 1;
	sketch_error(sketch, "\"stateDiagram-v2\"",
				 "A definition is the text of a Mermaid state diagram, without Markdown's lines of backquotes.");
}

/*
 * Reads a whole text; place.machine is set, all else is zero.
 */
void
idem_sketch_read(IdemSketch *sketch, const char *text)
{
	HASHCTL		ctl = {.keysize = sizeof(IdemSketchKey),.entrysize = sizeof(IdemSketchName)};

	if (strncmp(text, "\xEF\xBB\xBF", 3) == 0)
		text	  +=3;			/* byte order mark */
	sketch->next = sketch->at = sketch->end = text;

	ctl.hcxt = CurrentMemoryContext;
	sketch->names = hash_create("idem sketch", 64, &ctl,
								HASH_ELEM | HASH_STRINGS | HASH_CONTEXT);
	read_header(sketch);
	while (next_line(sketch))
		read_line(sketch);
}
