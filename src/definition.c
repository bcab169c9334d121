/*
 * definition.c
 *	  Reads a definition: the text of a Mermaid state diagram.
 *
 * Mermaid's own grammar goes by lines, and so does this one: each line is one
 * statement, read by descent with one place to look at.  A name may be used
 * before the line that says what it stands for, so lines are only collected at
 * first, and names are resolved when all were read.
 *
 * What has a meaning here is read strictly.  What only concerns the drawing is
 * passed over.  What would say more than a table of transitions can hold
 * (composite states, forks, choices, regions) is refused, never ignored: a
 * diagram that shows a rule which nobody keeps is worse than none.
 *
 * Nothing here looks at the database.
 */
#include "postgres.h"

#include <ctype.h>

#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"

#include "definition.h"
#include "errors.h"
#include "machine.h"

#define MAX_DEFINITION	(1024 * 1024)
#define MAX_NAME		128

#define EDGE_STATE			"[*]"

/* a name in the text; a hash key */
typedef char NameKey[MAX_NAME + 1];

/* what a name in the text stands for */
typedef struct KnownName
{
	NameKey		key;
	IdemStateDef *state;		/* NULL until resolved */
	char	   *text;			/* given by state "text" as name, or NULL */
}			KnownName;

typedef struct Arrow
{
	int			line;
	char	   *from;
	char	   *to;
	bool		has_label;
	IdemLabel	label;
}			Arrow;

typedef struct Note
{
	int			line;
	char	   *name;
	char	   *text;
}			Note;

typedef struct Reader
{
	IdemPlace	place;
	const char *next;			/* behind the current line */
	const char *at;				/* in the current line */
	const char *end;			/* of it */
	HTAB	   *names;
	List	   *order;			/* the names as they came up, C strings */
	List	   *arrows;
	List	   *notes;
}			Reader;

static void
reader_error(Reader * reader, const char *expected, const char *hint)
{
	idem_place_error(&reader->place, expected,
					 pnstrdup(reader->at, reader->end - reader->at), hint);
}

static void
skip_blanks(Reader * reader)
{
	while (reader->at < reader->end && isspace((unsigned char) *reader->at))
		reader->at++;
}

static bool
at_end(Reader * reader)
{
	skip_blanks(reader);
	return reader->at >= reader->end;
}

static bool
at_text(const Reader * reader, const char *text)
{
	Size		len = strlen(text);

	return reader->end - reader->at >= len &&
		memcmp(reader->at, text, len) == 0;
}

static bool
accept(Reader * reader, const char *text)
{
	skip_blanks(reader);
	if (!at_text(reader, text))
		return false;
	reader->at += strlen(text);
	return true;
}

/*
 * The same for a word, which ends at a blank, a colon or the end of the line.
 */
static bool
accept_word(Reader * reader, const char *word)
{
	const char *behind;

	skip_blanks(reader);
	behind = reader->at + strlen(word);
	if (!at_text(reader, word) ||
		(behind < reader->end && !isspace((unsigned char) *behind) &&
		 *behind != ':'))
		return false;
	reader->at = behind;
	return true;
}

static void
expect_end(Reader * reader)
{
	if (!at_end(reader))
		reader_error(reader, "the end of the line", NULL);
}

/*
 * Goes to the next line; false if there is none.
 */
static bool
next_line(Reader * reader)
{
	const char *newline;

	CHECK_FOR_INTERRUPTS();
	if (*reader->next == '\0')
		return false;
	reader->at = reader->next;
	newline = strchr(reader->at, '\n');
	reader->end = newline ? newline : reader->at + strlen(reader->at);
	reader->next = newline ? newline + 1 : reader->end;
	reader->place.line++;
	while (reader->end > reader->at &&
		   isspace((unsigned char) reader->end[-1]))
		reader->end--;
	return true;
}

/*
 * Passes over text up to "last", and over it; "what" began at the current
 * place.
 */
static void
skip_behind(Reader * reader, const char *last, const char *what)
{
	int			line = reader->place.line;

	do
	{
		for (; reader->at < reader->end; reader->at++)
		{
			if (at_text(reader, last))
			{
				reader->at += strlen(last);
				return;
			}
		}
	} while (next_line(reader));
	reader->place.line = line;
	idem_place_error(&reader->place, psprintf("\"%s\" to end it", last), what,
					 NULL);
}

static KnownName *
know_name(Reader * reader, const char *name)
{
	NameKey		key = {0};
	KnownName  *known;
	bool		found;

	strlcpy(key, name, sizeof(key));
	known = hash_search(reader->names, key, HASH_ENTER, &found);
	if (!found)
	{
		known->state = NULL;
		known->text = NULL;
		reader->order = lappend(reader->order, pstrdup(name));
	}
	return known;
}

/*
 * A name of a state as it stands in the text, or "[*]".
 */
static char *
read_name(Reader * reader)
{
	const char *from;
	char	   *name;

	skip_blanks(reader);
	from = reader->at;
	while (reader->at < reader->end &&
		   !isspace((unsigned char) *reader->at) && *reader->at != ':' &&
		   *reader->at != '{' && *reader->at != '"' &&
		   !at_text(reader, "-->") && !at_text(reader, "<<"))
		reader->at++;
	if (reader->at == from)
		reader_error(reader, "the name of a state",
					 "A name with blanks is declared by: state \"its name\" as x");
	if (reader->at - from > MAX_NAME)
		idem_place_error(&reader->place, "a name of at most 128 bytes",
						 pnstrdup(from, reader->at - from), NULL);
	name = pnstrdup(from, reader->at - from);

	/* a class for the drawing */
	if (at_text(reader, ":::"))
	{
		while (reader->at < reader->end &&
			   !isspace((unsigned char) *reader->at))
			reader->at++;
	}
	if (strcmp(name, EDGE_STATE) != 0)
		(void) know_name(reader, name);
	return name;
}

/*
 * name --> name [: label], or a name alone, which declares it, or
 * name : description, which is for the drawing.
 */
static void
read_arrow(Reader * reader)
{
	Arrow	   *arrow = palloc0(sizeof(Arrow));

	arrow->line = reader->place.line;
	arrow->from = read_name(reader);
	if (accept(reader, "-->"))
	{
		arrow->to = read_name(reader);
		skip_blanks(reader);
		arrow->has_label = accept(reader, ":");
		if (arrow->has_label)
			idem_label_parse(&reader->place, reader->at,
							 reader->end - reader->at, &arrow->label);
		else
			expect_end(reader);
		reader->arrows = lappend(reader->arrows, arrow);
		return;
	}
	if (at_end(reader))
		return;
	if (strcmp(arrow->from, EDGE_STATE) == 0 || !accept(reader, ":"))
		reader_error(reader, "\"-->\" or \":\"", NULL);
}

static void
refuse_unknown_kind(Reader * reader, const char *what)
{
	reader_error(reader, "states and transitions only",
				 psprintf("%s cannot be kept as transitions between states; draw them out.",
						  what));
}

/*
 * state name, or state "text" as name
 */
static void
read_state(Reader * reader)
{
	char	   *text = NULL;
	char	   *name;

	if (accept(reader, "\""))
	{
		const char *from = reader->at;

		while (reader->at < reader->end && *reader->at != '"')
			reader->at++;
		if (reader->at == reader->end)
			reader_error(reader, "a closing quote", NULL);
		text = idem_entities_decode(&reader->place, from, reader->at - from);

		reader->at++;
		if (!accept_word(reader, "as"))
			reader_error(reader, "\"as\"", NULL);
	}
	name = read_name(reader);
	skip_blanks(reader);
	if (at_text(reader, "{"))
		refuse_unknown_kind(reader, "Composite states");
	if (at_text(reader, "<<") || at_text(reader, "[["))
		refuse_unknown_kind(reader, "Forks, joins and choices");
	if (strcmp(name, EDGE_STATE) == 0)
		reader_error(reader, "the name of a state", NULL);
	if (text !=NULL)
	{
		KnownName  *known = know_name(reader, name);

		if (known->text !=NULL && strcmp(known->text, text) != 0)
			idem_place_error(&reader->place,
							 "a name that does not stand for another state",
							 name, NULL);
		known->text = text;
	}
	if (!at_end(reader) && !accept(reader, ":"))
		reader_error(reader, "the end of the line", NULL);
}

/*
 * note right of name : text, or note right of name, lines, end note
 */
static void
read_note(Reader * reader)
{
	Note	   *note;
	StringInfoData text;

	skip_blanks(reader);
	if (at_text(reader, "\""))
		return;					/* a note to nothing */
	if (!(accept_word(reader, "right") || accept_word(reader, "left")) ||
		!accept_word(reader, "of"))
		reader_error(reader, "\"right of\" or \"left of\"", NULL);
	note = palloc0(sizeof(Note));
	note->line = reader->place.line;
	note->name = read_name(reader);
	initStringInfo(&text);
	if (accept(reader, ":"))
		appendBinaryStringInfo(&text, reader->at, reader->end - reader->at);
	else
	{
		expect_end(reader);
		for (;;)
		{
			if (!next_line(reader))
			{
				reader->place.line = note->line;
				idem_place_error(&reader->place, "\"end note\" to end it",
								 "note", NULL);
			}
			skip_blanks(reader);
			if (accept_word(reader, "end") && accept_word(reader, "note"))
				break;
			appendBinaryStringInfo(&text, reader->at,
								   reader->end - reader->at);
			appendStringInfoChar(&text, '\n');
		}
		expect_end(reader);
	}
	note->text = text.data;

	reader->notes = lappend(reader->notes, note);
}

/*
 * Whether the line is about the drawing only; if so it has been read.
 */
static bool
read_drawing(Reader * reader)
{
	static const char *const words[] = {
		"direction", "classDef", "class", "style", "click", "accTitle",
		"title", "hide", "scale"
	};
	const char *from = reader->at;

	if (accept(reader, "%%{"))
	{
		skip_behind(reader, "}%%", "%%{");
		return true;
	}
	if (at_text(reader, "%%"))
		return true;
	if (accept_word(reader, "accDescr") || accept(reader, "accDescr{"))
	{
		if (reader->at[-1] == '{' || accept(reader, "{"))
			skip_behind(reader, "}", "accDescr");
		return true;
	}
	for (int i = 0; i < lengthof(words); i++)
	{
		/* a state may be called so */
		if (accept_word(reader, words[i]))
		{
			skip_blanks(reader);
			if (!at_end(reader) && !at_text(reader, "-->") &&
				(!at_text(reader, ":") || strncmp(words[i], "acc", 3) == 0))
				return true;
			reader->at = from;
			return false;
		}
	}
	return false;
}

static void
read_line(Reader * reader)
{
	const char *from = reader->at;

	if (at_end(reader) || read_drawing(reader))
		return;
	if (at_text(reader, "}"))
		refuse_unknown_kind(reader, "Composite states");
	if (at_text(reader, "--") && !at_text(reader, "-->"))
		refuse_unknown_kind(reader, "Concurrent regions");

	from = reader->at;
	if (accept_word(reader, "state") && !at_end(reader) &&
		!at_text(reader, "-->") && !at_text(reader, ":"))
	{
		read_state(reader);
		return;
	}
	reader->at = from;
	if (accept_word(reader, "note") && !at_end(reader) &&
		!at_text(reader, "-->") && !at_text(reader, ":"))
	{
		read_note(reader);
		return;
	}
	reader->at = from;
	read_arrow(reader);
}

/*
 * Front matter, comments, and the word that every such diagram begins with.
 */
static void
read_header(Reader * reader)
{
	bool		first = true;

	while (next_line(reader))
	{
		if (at_end(reader))
			continue;
		if (first && accept(reader, "---"))
			skip_behind(reader, "---", "---");
		else if (accept_word(reader, "stateDiagram-v2") ||
				 accept_word(reader, "stateDiagram"))
		{
			expect_end(reader);
			return;
		}
		else if (!read_drawing(reader))
			break;
		first = false;
	}
	if (reader->place.line == 0)
		reader->place.line = 1;
	reader_error(reader, "\"stateDiagram-v2\"",
				 "A definition is the text of a Mermaid state diagram.");
}

/*
 * The state that a name in the text stands for.
 */
static IdemStateDef *
resolve(Reader * reader, const char *name)
{
	NameKey		key = {0};
	KnownName  *known;

	strlcpy(key, name, sizeof(key));
	known = hash_search(reader->names, key, HASH_FIND, NULL);
	Assert(known != NULL && known->state != NULL);
	return known->state;
}

/*
 * Makes a state of every name.  Two names that stand for one state would be
 * two boxes in the drawing.
 */
static void
resolve_names(Reader * reader, IdemDefinition * definition)
{
	HASHCTL		ctl = {.keysize = sizeof(NameKey),.entrysize = sizeof(NameKey)};
	HTAB	   *taken;
	ListCell   *cell;

	ctl.hcxt = CurrentMemoryContext;
	taken = hash_create("idem state names", 64, &ctl,
						HASH_ELEM | HASH_STRINGS | HASH_CONTEXT);
	foreach(cell, reader->order)
	{
		KnownName  *known = know_name(reader, lfirst(cell));
		IdemStateDef *state = palloc0(sizeof(IdemStateDef));
		NameKey		key = {0};
		bool		found;

		known->state = state;
		state->self = "noop";
		if (known->text == NULL &&
			(strcmp(known->key, IDEM_ANY_STATE) == 0 ||
			 strcmp(known->key, IDEM_ANY_STATE_DRAWN) == 0))
		{
			state->name = pstrdup(IDEM_ANY_STATE);
			continue;
		}
		state->name = known->text ? known->text :
			idem_entities_decode(&reader->place, known->key,
								 strlen(known->key));
		if (state->name[0] == '\0' || strlen(state->name) > MAX_NAME ||
			strcmp(state->name, IDEM_ANY_STATE) == 0)
			ereport(ERROR,
					(errcode(ERRCODE_IDEM_MISUSE),
					 errmsg("definition of machine \"%s\" has a state with an impossible name",
							reader->place.machine),
					 errdetail("\"%s\" stands for it; a name has 1 to %d bytes and is not \"*\".",
							   known->key, MAX_NAME),
					 errhidestmt(true)));
		strlcpy(key, state->name, sizeof(key));
		(void) hash_search(taken, key, HASH_ENTER, &found);
		if (found)
			ereport(ERROR,
					(errcode(ERRCODE_IDEM_MISUSE),
					 errmsg("definition of machine \"%s\" has state \"%s\" twice",
							reader->place.machine, state->name),
					 errdetail("\"%s\" is another name for it.", known->key),
					 errhidestmt(true)));
		definition->states = lappend(definition->states, state);
	}
	hash_destroy(taken);
}

static void
resolve_arrow(Reader * reader, const Arrow * arrow, IdemDefinition * definition)
{
	bool		begins = strcmp(arrow->from, EDGE_STATE) == 0;
	bool		ends = strcmp(arrow->to, EDGE_STATE) == 0;
	IdemStateDef *from = begins ? NULL : resolve(reader, arrow->from);
	IdemStateDef *to = ends ? NULL : resolve(reader, arrow->to);
	IdemTransitionDef *rule;

	reader->place.line = arrow->line;
	if ((begins && ends) ||
		(to && strcmp(to->name, IDEM_ANY_STATE) == 0) ||
		(from && ends && strcmp(from->name, IDEM_ANY_STATE) == 0))
		idem_place_error(&reader->place, "an arrow from or to a state",
						 psprintf("%s --> %s", arrow->from, arrow->to), NULL);
	if ((begins || ends) && arrow->has_label)
		idem_place_error(&reader->place, "no label",
						 psprintf("%s --> %s : ...", arrow->from, arrow->to),
						 "An arrow from or to [*] is no transition: it says where rows begin or end.");
	if (begins)
	{
		to->initial = true;
		return;
	}
	if (ends)
	{
		from->final = true;
		return;
	}

	rule = palloc0(sizeof(IdemTransitionDef));
	rule->event = arrow->label.event ? arrow->label.event : to->name;
	rule->from = from->name;
	rule->to = to->name;
	rule->guard = arrow->label.guard;
	rule->roles = arrow->label.roles;
	rule->after = arrow->label.after;
	rule->priority = list_length(definition->transitions) + 1;
	if (rule->event[0] == '\0' || strlen(rule->event) > MAX_NAME)
		idem_place_error(&reader->place, "an event of 1 to 128 bytes",
						 rule->event, NULL);
	if (rule->guard != NULL)
		idem_guard_check(rule->guard, rule->event);
	definition->transitions = lappend(definition->transitions, rule);
}

static bool
apply_option(IdemStateDef * state, const char *option)
{
	static const char *const modes[] = {"deny", "noop", "reenter"};

	if (strcmp(option, "frozen") == 0)
	{
		state->frozen = true;
		return true;
	}
	for (int i = 0; i < lengthof(modes); i++)
	{
		if (strcmp(option, modes[i]) == 0)
		{
			state->self = modes[i];
			return true;
		}
	}
	return false;
}

/*
 * A note is a list of options, or a comment: a text of several words none of
 * which stands alone between commas and is an option.  One word that is none is
 * taken for a misspelt option.
 */
static void
resolve_note(Reader * reader, const Note * note)
{
	IdemStateDef *state;
	char	   *unknown = NULL;
	char	   *save = NULL;
	bool		any = false;
	bool		words = false;

	reader->place.line = note->line;
	if (strcmp(note->name, EDGE_STATE) == 0)
		return;
	state = resolve(reader, note->name);
	for (char *item = strtok_r(pstrdup(note->text), ",\n", &save);
		 item != NULL; item = strtok_r(NULL, ",\n", &save))
	{
		char	   *end = item + strlen(item);

		while (isspace((unsigned char) *item))
			item++;
		while (end > item && isspace((unsigned char) end[-1]))
			*--end = '\0';
		if (*item == '\0')
			continue;
		if (strcmp(state->name, IDEM_ANY_STATE) != 0 &&
			apply_option(state, item))
			any = true;
		else
		{
			unknown = item;
			words = words || strpbrk(item, " \t") != NULL;
		}
	}
	if (unknown != NULL && (any || !words))
		idem_place_error(&reader->place,
						 "\"frozen\", \"deny\", \"noop\" or \"reenter\"", unknown,
						 "A note of several words without any of these is a comment.");
}

static void
check_whole(Reader * reader, const IdemDefinition * definition)
{
	ListCell   *cell;
	bool		initial = false;

	foreach(cell, definition->states)
		initial = initial || ((IdemStateDef *) lfirst(cell))->initial;
	if (!initial)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_MISUSE),
				 errmsg("definition of machine \"%s\" has no initial state",
						reader->place.machine),
				 errhint("Write: [*] --> name"),
				 errhidestmt(true)));
	foreach(cell, reader->arrows)
	{
		Arrow	   *arrow = lfirst(cell);

		reader->place.line = arrow->line;
		if (strcmp(arrow->from, EDGE_STATE) != 0 &&
			strcmp(arrow->to, EDGE_STATE) != 0 &&
			resolve(reader, arrow->from)->final)
			idem_place_error(&reader->place,
							 "no transition out of a final state",
							 psprintf("%s --> %s", arrow->from, arrow->to),
							 NULL);
	}
}

static void
definition_context(void *arg)
{
	Reader	   *reader = arg;

	errcontext("line %d of the definition of machine \"%s\"",
			   reader->place.line, reader->place.machine);
}

/*
 * The machine that a text defines, or an error that says where and why not.
 */
IdemDefinition *
idem_definition_parse(const char *machine, const char *text)
{
	HASHCTL		ctl = {.keysize = sizeof(NameKey),.entrysize = sizeof(KnownName)};
	Reader		reader = {0};
	IdemDefinition *definition = palloc0(sizeof(IdemDefinition));
	ErrorContextCallback context;
	ListCell   *cell;

	if (strlen(text) > MAX_DEFINITION)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_MISUSE),
				 errmsg("definition of machine \"%s\" is too long", machine),
				 errdetail("It has %zu bytes; at most %d are allowed.",
						   strlen(text), MAX_DEFINITION),
				 errhidestmt(true)));

	definition->machine = pstrdup(machine);
	if (strncmp(text, "\xEF\xBB\xBF", 3) == 0)
		text	  +=3;			/* byte order mark */

	reader.place.machine = machine;
	reader.next = reader.at = reader.end = text;

	ctl.hcxt = CurrentMemoryContext;
	reader.names = hash_create("idem definition", 64, &ctl,
							   HASH_ELEM | HASH_STRINGS | HASH_CONTEXT);

	context.callback = definition_context;
	context.arg = &reader;
	context.previous = error_context_stack;
	error_context_stack = &context;

	read_header(&reader);
	while (next_line(&reader))
		read_line(&reader);
	resolve_names(&reader, definition);
	foreach(cell, reader.arrows)
		resolve_arrow(&reader, lfirst(cell), definition);
	foreach(cell, reader.notes)
		resolve_note(&reader, lfirst(cell));
	check_whole(&reader, definition);

	error_context_stack = context.previous;
	hash_destroy(reader.names);
	return definition;
}

/*
 * A state by its name, or NULL.
 */
IdemStateDef *
idem_definition_state(const IdemDefinition * definition, const char *name)
{
	ListCell   *cell;

	foreach(cell, definition->states)
	{
		IdemStateDef *state = lfirst(cell);

		if (strcmp(state->name, name) == 0)
			return state;
	}
	return NULL;
}
