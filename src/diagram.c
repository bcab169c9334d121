/*
 * diagram.c
 *	  idem_diagram: a machine as Mermaid, which idem_define() reads back to the
 *	  same rows, or as DOT for graphviz.
 *
 * Mermaid takes few characters in the name of a state, so that a state with
 * any other gets a stand-in (state "in review" as s1).  Which names are safe is
 * decided narrowly: Mermaid knows more words than it documents.
 *
 * Nothing is written, nothing locked but the tables that are read.
 */
#include "postgres.h"

#include <ctype.h>

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

#include "catalog.h"
#include "diagram.h"
#include "errors.h"
#include "machine.h"
#include "own.h"

PG_FUNCTION_INFO_V1(idem_diagram);

#define INDENT	"    "

/*
 * The machine that is named, or an error; whole, also where its tables were
 * filled past their triggers.
 */
IdemDefinition *
idem_diagram_machine(const char *machine)
{
	IdemDefinition *definition = idem_definition_read(machine);
	ListCell   *cell;

	if (definition == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_MISUSE),
				 errmsg("machine \"%s\" does not exist", machine),
				 errhint("Define it with idem_define(), or with what idem_export() printed in the database that has it."),
				 errhidestmt(true)));
	foreach(cell, definition->transitions)
	{
		IdemTransitionDef *rule = lfirst(cell);

		if ((strcmp(rule->from, IDEM_ANY_STATE) != 0 &&
			 idem_definition_state(definition, rule->from) == NULL) ||
			idem_definition_state(definition, rule->to) == NULL)
			ereport(ERROR,
					(errcode(ERRCODE_IDEM_MISUSE),
					 errmsg("machine \"%s\" has a transition without its states",
							machine),
					 errdetail("Event \"%s\" leads from \"%s\" to \"%s\".",
							   rule->event, rule->from, rule->to),
					 errhint("Define it again with idem_define()."),
					 errhidestmt(true)));
	}
	return definition;
}

/*
 * Whether the name may stand for itself.
 */
static bool
name_is_plain(const char *name)
{
	static const char *const reserved[] = {
		"accDescr", "accTitle", "as", "choice", "class", "classDef", "click",
		"constructor", "default", "direction", "end", "fork", "hide", "href",
		"join", "left", "note", "of", "prototype", "right", "root", "scale",
		"state", "stateDiagram", "style", "title"
	};

	for (int i = 0; i < lengthof(reserved); i++)
	{
		if (pg_strcasecmp(name, reserved[i]) == 0)
			return false;
	}
	for (const char *c = name; *c != '\0'; c++)
	{
		if (!isalnum((unsigned char) *c) && *c != '_' &&
			!(IS_HIGHBIT_SET(*c) && GetDatabaseEncoding() == PG_UTF8))
			return false;

		/* the lead bytes of characters that may be white space elsewhere */
		if ((unsigned char) *c == 0xC2 || (unsigned char) *c == 0xE1 ||
			(unsigned char) *c == 0xE2 || (unsigned char) *c == 0xE3 ||
			(unsigned char) *c == 0xEF)
			return false;
	}
	return true;
}

/*
 * What each state is called in the drawing, as a list in their order.
 */
static List *
name_states(const IdemDefinition *definition)
{
	List	   *names = NIL;
	ListCell   *cell;
	int			next = 1;

	foreach(cell, definition->states)
	{
		IdemStateDef *state = lfirst(cell);
		char	   *name = state->name;

		if (!name_is_plain(name))
		{
			do
				name = psprintf("s%d", next++);
			while (idem_definition_state(definition, name) != NULL);
		}
		names = lappend(names, name);
	}
	return names;
}

static const char *
name_of(const IdemDefinition *definition, List *names, const char *state)
{
	ListCell   *cell;

	foreach(cell, definition->states)
	{
		if (strcmp(((IdemStateDef *) lfirst(cell))->name, state) == 0)
			return list_nth(names, foreach_current_index(cell));
	}
	return IDEM_ANY_STATE_DRAWN;
}

static int64
times_taken(const IdemDiagramCounts *counts, const IdemTransitionDef *rule)
{
	int64		times = 0;
	ListCell   *cell;

	foreach(cell, counts->edges)
	{
		IdemEdgeCount *edge = lfirst(cell);

		if (strcmp(edge->event, rule->event) == 0 &&
			strcmp(edge->to, rule->to) == 0 &&
			(strcmp(rule->from, IDEM_ANY_STATE) == 0 ||
			 strcmp(edge->from, rule->from) == 0))
			times += edge->times;
	}
	return times;
}

/*
 * Whether any arrow names the state.
 */
static bool
is_drawn(const IdemDefinition *definition, const IdemStateDef *state)
{
	ListCell   *cell;

	if (state->initial || state->final)
		return true;
	foreach(cell, definition->transitions)
	{
		IdemTransitionDef *rule = lfirst(cell);

		if (strcmp(rule->from, state->name) == 0 ||
			strcmp(rule->to, state->name) == 0)
			return true;
	}
	return false;
}

static void
mermaid_declare(StringInfo out, const IdemDefinition *definition,
				const IdemStateDef *state, const char *name,
				const IdemDiagramCounts *counts)
{
	if (name != state->name)
	{
		appendStringInfoString(out, INDENT "state \"");
		idem_entities_encode(out, state->name, "\":");
		appendStringInfo(out, "\" as %s\n", name);
	}
	else if (!is_drawn(definition, state))
		appendStringInfo(out, INDENT "state %s\n", name);
	if (counts != NULL)
	{
		int64		rows = idem_bound_rows_of_all(counts->tables, state->name);

		appendStringInfo(out, INDENT "%s : ", name);
		if (name == state->name)
			appendStringInfo(out, "%s (" INT64_FORMAT ")\n", name, rows);
		else
			appendStringInfo(out, INT64_FORMAT " %s\n", rows,
							 rows == 1 ? "row" : "rows");
	}
}

static void
mermaid_note(StringInfo out, const IdemStateDef *state, const char *name)
{
	bool		mode = strcmp(state->self, "noop") != 0;

	if (state->frozen || mode)
		appendStringInfo(out, INDENT "note right of %s : %s%s%s\n", name,
						 state->frozen ? "frozen" : "",
						 state->frozen && mode ? ", " : "",
						 mode ? state->self : "");
}

/*
 * Appends the text that idem_define() reads as this definition.
 */
void
idem_diagram_mermaid(StringInfo out, const IdemDefinition *definition,
					 const IdemDiagramCounts *counts)
{
	List	   *names = name_states(definition);
	ListCell   *cell;
	ListCell   *name;

	appendStringInfoString(out, "stateDiagram-v2\n");
	forboth(cell, definition->states, name, names)
		mermaid_declare(out, definition, lfirst(cell), lfirst(name), counts);
	forboth(cell, definition->states, name, names)
	{
		if (((IdemStateDef *) lfirst(cell))->initial)
			appendStringInfo(out, INDENT "[*] --> %s\n",
							 (char *) lfirst(name));
	}
	foreach(cell, definition->transitions)
	{
		IdemTransitionDef *rule = lfirst(cell);

		appendStringInfo(out, INDENT "%s --> %s",
						 name_of(definition, names, rule->from),
						 name_of(definition, names, rule->to));
		if (strcmp(rule->event, rule->to) != 0 || rule->guard != NULL ||
			rule->roles != NIL || rule->after != NULL ||
			(counts != NULL && counts->history))
		{
			appendStringInfoString(out, " : ");
			idem_label_print(out, rule);
		}
		if (counts != NULL && counts->history)
			appendStringInfo(out, " (" INT64_FORMAT ")",
							 times_taken(counts, rule));
		appendStringInfoChar(out, '\n');
	}
	forboth(cell, definition->states, name, names)
	{
		if (((IdemStateDef *) lfirst(cell))->final)
			appendStringInfo(out, INDENT "%s --> [*]\n",
							 (char *) lfirst(name));
	}
	forboth(cell, definition->states, name, names)
		mermaid_note(out, lfirst(cell), lfirst(name));
}

/*
 * Appends a text that stands in double quotes in DOT.
 */
static void
dot_escape(StringInfo out, const char *text)
{
	for (const char *c = text; *c != '\0'; c++)
	{
		if (*c == '"' || *c == '\\')
			appendStringInfo(out, "\\%c", *c);
		else if (*c == '\n')
			appendStringInfoString(out, "\\n");
		else if (*c == '&')
			appendStringInfoString(out, "&amp;");
		else if ((unsigned char) *c < ' ')
			appendStringInfoChar(out, ' ');
		else
			appendStringInfoChar(out, *c);
	}
}

static void
dot_state(StringInfo out, const IdemStateDef *state, int number,
		  const IdemDiagramCounts *counts)
{
	appendStringInfo(out, "\tn%d [label=\"", number);
	dot_escape(out, state->name);
	if (counts != NULL)
		appendStringInfo(out, "\\n" INT64_FORMAT, idem_bound_rows_of_all(counts->tables, state->name));
	appendStringInfo(out, "\"%s%s];\n",
					 state->final ? ", peripheries=2" : "",
					 state->frozen ? ", style=\"rounded,filled\", fillcolor=\"#dde6ee\"" : "");
	if (state->initial)
		appendStringInfo(out, "\tstart -> n%d;\n", number);
}

static void
dot_rule(StringInfo out, const IdemDefinition *definition,
		 const IdemTransitionDef *rule, const IdemDiagramCounts *counts)
{
	ListCell   *cell;
	StringInfoData from;
	StringInfoData to;

	initStringInfo(&from);
	initStringInfo(&to);
	appendStringInfoString(&from, "any");
	foreach(cell, definition->states)
	{
		const char *name = ((IdemStateDef *) lfirst(cell))->name;

		if (strcmp(name, rule->from) == 0)
		{
			resetStringInfo(&from);
			appendStringInfo(&from, "n%d", foreach_current_index(cell));
		}
		if (strcmp(name, rule->to) == 0)
			appendStringInfo(&to, "n%d", foreach_current_index(cell));
	}

	appendStringInfo(out, "\t%s -> %s [label=\" ", from.data, to.data);
	dot_escape(out, rule->event);
	if (rule->guard != NULL)
	{
		appendStringInfoString(out, "\\n [");
		dot_escape(out, rule->guard);
		appendStringInfoChar(out, ']');
	}
	foreach(cell, rule->roles)
	{
		appendStringInfoString(out, foreach_current_index(cell) == 0 ?
							   "\\n by " : ", ");
		dot_escape(out, lfirst(cell));
	}
	if (rule->after != NULL)
	{
		appendStringInfoString(out, "\\n after");
		idem_label_print_interval(out, rule->after);
	}
	if (counts != NULL && counts->history)
		appendStringInfo(out, "\\n " INT64_FORMAT, times_taken(counts, rule));
	appendStringInfo(out, "\"%s];\n",
					 rule->after != NULL ? ", style=dashed" : "");
}

static void
diagram_dot(StringInfo out, const IdemDefinition *definition,
			const IdemDiagramCounts *counts)
{
	ListCell   *cell;
	bool		any = false;

	appendStringInfoString(out, "digraph \"");
	dot_escape(out, definition->machine);
	appendStringInfoString(out, "\" {\n"
						   "\trankdir=TB;\n"
						   "\tnode [shape=box, style=rounded, fontname=\"Helvetica\", fontsize=12];\n"
						   "\tedge [fontname=\"Helvetica\", fontsize=10];\n"
						   "\tstart [shape=circle, style=filled, fillcolor=black, label=\"\", width=0.2];\n");
	foreach(cell, definition->transitions)
		any = any || strcmp(((IdemTransitionDef *) lfirst(cell))->from,
							IDEM_ANY_STATE) == 0;
	if (any)
		appendStringInfoString(out, "\tany [label=\"any state\", style=\"rounded,dashed\"];\n");
	foreach(cell, definition->states)
		dot_state(out, lfirst(cell), foreach_current_index(cell), counts);
	foreach(cell, definition->transitions)
		dot_rule(out, definition, lfirst(cell), counts);
	appendStringInfoString(out, "}\n");
}

/*
 * How often each transition was taken, from idem.history; as its owner, since
 * it says nothing of single rows.
 */
static List *
count_edges(const char *machine)
{
	static struct IdemOwnStatement statement = {
		"SELECT event, from_state, to_state, pg_catalog.count(*)"
		" FROM idem.history WHERE machine OPERATOR(pg_catalog.=) $1"
		" AND from_state IS NOT NULL AND event IS NOT NULL GROUP BY 1, 2, 3",
		IDEM_OWN_READ, 1, {TEXTOID}, NULL
	};
	MemoryContext caller = CurrentMemoryContext;
	Datum		machine_name = CStringGetTextDatum(machine);
	List	   *edges = NIL;

	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	(void) idem_own_run(&statement, IDEM_REL_MACHINE, &machine_name);
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		HeapTuple	tuple = SPI_tuptable->vals[i];
		TupleDesc	desc = SPI_tuptable->tupdesc;
		MemoryContext spi = MemoryContextSwitchTo(caller);
		IdemEdgeCount *edge = palloc(sizeof(IdemEdgeCount));
		bool		isnull;

		edge->event = pstrdup(idem_own_text(tuple, desc, 1));
		edge->from = pstrdup(idem_own_text(tuple, desc, 2));
		edge->to = pstrdup(idem_own_text(tuple, desc, 3));
		edge->times = DatumGetInt64(SPI_getbinval(tuple, desc, 4, &isnull));
		edges = lappend(edges, edge);
		MemoryContextSwitchTo(spi);
	}
	SPI_finish();
	return edges;
}

/*
 * idem_diagram(machine, format, counts) -> text
 */
Datum
idem_diagram(PG_FUNCTION_ARGS)
{
	char	   *format = "mermaid";
	IdemDiagramCounts counts = {0};
	IdemDiagramCounts *counted = NULL;
	IdemDefinition *definition;
	StringInfoData out;
	ListCell   *cell;

	idem_require_argument(fcinfo, 0, "machine");
	if (!PG_ARGISNULL(1))
		format = text_to_cstring(PG_GETARG_TEXT_PP(1));
	if (strcmp(format, "mermaid") != 0 && strcmp(format, "dot") != 0)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_BAD_ARGUMENT),
				 errmsg("invalid value for argument \"format\""),
				 errhint("Available formats are \"mermaid\" and \"dot\"."),
				 errhidestmt(true)));

	definition = idem_diagram_machine(text_to_cstring(PG_GETARG_TEXT_PP(0)));
	if (!PG_ARGISNULL(2) && PG_GETARG_BOOL(2))
	{
		counts.edges = count_edges(definition->machine);
		counts.history = counts.edges != NIL;
		foreach(cell, idem_bound_tables(definition->machine))
		{
			const IdemBound *bound = lfirst(cell);

			counts.history = counts.history || bound->history;
			counts.tables = lappend(counts.tables,
									idem_bound_count(bound, NULL));
		}
		counted = &counts;
	}
	initStringInfo(&out);
	if (strcmp(format, "mermaid") == 0)
		idem_diagram_mermaid(&out, definition, counted);
	else
		diagram_dot(&out, definition, counted);
	PG_RETURN_TEXT_P(cstring_to_text_with_len(out.data, out.len));
}
