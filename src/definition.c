/*
 * definition.c
 *	  Makes a machine of a diagram: names become states, arrows transitions,
 *	  notes options.
 *
 * Priorities are numbers in the order of lines, over the whole machine, so
 * that the first line that fits is the rule.  Nothing here looks at the
 * database.
 */
#include "postgres.h"

#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "parser/scansup.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"

#include "definition.h"
#include "errors.h"
#include "machine.h"
#include "sketch.h"

#define MAX_DEFINITION	(1024 * 1024)

/*
 * The state that a name in the text stands for.
 */
static IdemStateDef *
resolve(IdemSketch *sketch, const char *name)
{
	IdemSketchKey key = {0};
	IdemSketchName *known;

	strlcpy(key, name, sizeof(key));
	known = hash_search(sketch->names, key, HASH_FIND, NULL);
	Assert(known != NULL && known->state != NULL);
	return known->state;
}

/*
 * Makes a state of every name.  Two names that stand for one state would be
 * two boxes in the drawing.
 */
static void
resolve_names(IdemSketch *sketch, IdemDefinition *definition)
{
	HASHCTL		ctl = {.keysize = sizeof(IdemSketchKey),.entrysize = sizeof(IdemSketchKey)};
	HTAB	   *taken;
	ListCell   *cell;

	ctl.hcxt = CurrentMemoryContext;
	taken = hash_create("idem state names", 64, &ctl,
						HASH_ELEM | HASH_STRINGS | HASH_CONTEXT);
	foreach(cell, sketch->order)
	{
		IdemSketchName *known = idem_sketch_name(sketch, lfirst(cell));
		IdemStateDef *state = palloc0(sizeof(IdemStateDef));
		IdemSketchKey key = {0};
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
			idem_entities_decode(&sketch->place, known->key,
								 strlen(known->key));
		if (state->name[0] == '\0' || strlen(state->name) > IDEM_MAX_NAME ||
			strcmp(state->name, IDEM_ANY_STATE) == 0)
			ereport(ERROR,
					(errcode(ERRCODE_IDEM_MISUSE),
					 errmsg("definition of machine \"%s\" has a state with an impossible name",
							sketch->place.machine),
					 errdetail("\"%s\" stands for it; a name has 1 to %d bytes and is not \"*\".",
							   known->key, IDEM_MAX_NAME),
					 errhidestmt(true)));
		strlcpy(key, state->name, sizeof(key));
		(void) hash_search(taken, key, HASH_ENTER, &found);
		if (found)
			ereport(ERROR,
					(errcode(ERRCODE_IDEM_MISUSE),
					 errmsg("definition of machine \"%s\" has state \"%s\" twice",
							sketch->place.machine, state->name),
					 errdetail("\"%s\" is another name for it.", known->key),
					 errhidestmt(true)));
		definition->states = lappend(definition->states, state);
	}
	hash_destroy(taken);
}

static void
resolve_arrow(IdemSketch *sketch, const IdemSketchArrow *arrow, IdemDefinition *definition)
{
	bool		begins = strcmp(arrow->from, IDEM_EDGE_STATE) == 0;
	bool		ends = strcmp(arrow->to, IDEM_EDGE_STATE) == 0;
	IdemStateDef *from = begins ? NULL : resolve(sketch, arrow->from);
	IdemStateDef *to = ends ? NULL : resolve(sketch, arrow->to);
	IdemTransitionDef *rule;

	sketch->place.line = arrow->line;
	if ((begins && ends) ||
		(to && strcmp(to->name, IDEM_ANY_STATE) == 0) ||
		(from && ends && strcmp(from->name, IDEM_ANY_STATE) == 0))
		idem_place_error(&sketch->place, "an arrow from or to a state",
						 psprintf("%s --> %s", arrow->from, arrow->to), NULL);
	if ((begins || ends) && arrow->has_label)
		idem_place_error(&sketch->place, "no label",
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
	rule->line = arrow->line;
	rule->priority = list_length(definition->transitions) + 1;
	if (rule->event[0] == '\0' || strlen(rule->event) > IDEM_MAX_NAME)
		idem_place_error(&sketch->place, "an event of 1 to 128 bytes",
						 rule->event, NULL);
	if (rule->guard != NULL)
		idem_guard_check(rule->guard, rule->event);
	definition->transitions = lappend(definition->transitions, rule);
}

static bool
apply_option(IdemStateDef *state, const char *option)
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
resolve_note(IdemSketch *sketch, const IdemSketchNote *note)
{
	IdemStateDef *state;
	char	   *unknown = NULL;
	char	   *save = NULL;
	bool		any = false;
	bool		words = false;

	sketch->place.line = note->line;
	if (strcmp(note->name, IDEM_EDGE_STATE) == 0)
		return;
	state = resolve(sketch, note->name);
	if (strcmp(state->name, IDEM_ANY_STATE) != 0 &&
		!idem_sketch_name(sketch, note->name)->drawn)
		idem_place_error(&sketch->place,
						 "a note of a state that another line names", note->name,
						 psprintf("A state that no arrow names is declared by: state %s",
								  note->name));
	for (char *item = strtok_r(pstrdup(note->text), ",\n", &save);
		 item != NULL; item = strtok_r(NULL, ",\n", &save))
	{
		char	   *end = item + strlen(item);

		while (scanner_isspace(*item))
			item++;
		while (end > item && scanner_isspace(end[-1]))
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
		idem_place_error(&sketch->place,
						 "\"frozen\", \"deny\", \"noop\" or \"reenter\"", unknown,
						 "A note of several words without any of these is a comment.");
}

static void
check_whole(IdemSketch *sketch, const IdemDefinition *definition)
{
	ListCell   *cell;
	bool		initial = false;

	foreach(cell, definition->states)
		initial = initial || ((IdemStateDef *) lfirst(cell))->initial;
	if (!initial)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_MISUSE),
				 errmsg("definition of machine \"%s\" has no initial state",
						sketch->place.machine),
				 errhint("Write: [*] --> name"),
				 errhidestmt(true)));
	foreach(cell, sketch->arrows)
	{
		IdemSketchArrow *arrow = lfirst(cell);

		sketch->place.line = arrow->line;
		if (strcmp(arrow->from, IDEM_EDGE_STATE) != 0 &&
			strcmp(arrow->to, IDEM_EDGE_STATE) != 0 &&
			resolve(sketch, arrow->from)->final)
			idem_place_error(&sketch->place,
							 "no transition out of a final state",
							 psprintf("%s --> %s", arrow->from, arrow->to),
							 NULL);
	}
}

static void
definition_context(void *arg)
{
	IdemSketch *sketch = arg;

	errcontext("line %d of the definition of machine \"%s\"",
			   sketch->place.line, sketch->place.machine);
}

/*
 * The machine that a text defines, or an error that says where and why not.
 */
IdemDefinition *
idem_definition_parse(const char *machine, const char *text)
{
	IdemSketch	sketch = {0};
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
	sketch.place.machine = machine;
	sketch.place.text = text;

	context.callback = definition_context;
	context.arg = &sketch;
	context.previous = error_context_stack;
	error_context_stack = &context;

	idem_sketch_read(&sketch, text);
	resolve_names(&sketch, definition);
	foreach(cell, sketch.arrows)
		resolve_arrow(&sketch, lfirst(cell), definition);
	foreach(cell, sketch.notes)
		resolve_note(&sketch, lfirst(cell));
	check_whole(&sketch, definition);

	error_context_stack = context.previous;
	hash_destroy(sketch.names);
	return definition;
}

/*
 * A state by its name, or NULL.
 */
IdemStateDef *
idem_definition_state(const IdemDefinition *definition, const char *name)
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
