/*
 * definition.h
 *	  A state machine as it is written down: parsed from a diagram, read from
 *	  the tables, printed again.
 */
#ifndef IDEM_DEFINITION_H
#define IDEM_DEFINITION_H

#include "datatype/timestamp.h"
#include "lib/stringinfo.h"
#include "nodes/pg_list.h"

/* bytes of a name; the tables' CHECKs say the same */
#define IDEM_MAX_NAME		128

#define IDEM_ANY_STATE		"*"

/* how any state is drawn; "*" alone would be a list to some renderers */
#define IDEM_ANY_STATE_DRAWN	"[any]"

typedef struct IdemStateDef
{
	char	   *name;
	bool		initial;
	bool		final;
	bool		frozen;
	const char *self;			/* deny, noop or reenter */
} IdemStateDef;

typedef struct IdemTransitionDef
{
	char	   *event;
	char	   *from;			/* a state, or IDEM_ANY_STATE */
	char	   *to;
	int			priority;
	char	   *guard;			/* or NULL */
	List	   *roles;			/* of C strings; NIL: everybody */
	Interval   *after;			/* or NULL */
	int			line;			/* of the text, if it was parsed */
} IdemTransitionDef;

typedef struct IdemDefinition
{
	char	   *machine;
	char	   *owner;			/* as the tables say, else NULL */
	List	   *states;
	List	   *transitions;	/* in the order in which they are tried */
} IdemDefinition;

/* what the label of an arrow says */
typedef struct IdemLabel
{
	char	   *event;			/* NULL: the target's name */
	char	   *guard;
	List	   *roles;
	Interval   *after;
} IdemLabel;

/* how an error names its place */
typedef struct IdemPlace
{
	const char *machine;
	const char *text;			/* of the whole definition */
	int			line;
} IdemPlace;

/* label.c */
extern void idem_place_error(const IdemPlace *place, const char *expected,
							 const char *found, const char *hint);
extern char *idem_entities_decode(const IdemPlace *place, const char *text,
								  int len);
extern void idem_entities_encode(StringInfo out, const char *text,
								 const char *special);
extern void idem_label_parse(const IdemPlace *place, const char *text,
							 int len, IdemLabel *label);
extern void idem_label_print_interval(StringInfo out,
									  const Interval *interval);
extern void idem_label_print(StringInfo out, const IdemTransitionDef *rule);

/* definition.c */
extern IdemDefinition *idem_definition_parse(const char *machine,
											 const char *text);
extern IdemStateDef *idem_definition_state(const IdemDefinition *definition,
										   const char *name);

/* define.c */
extern bool idem_intervals_equal(const Interval *a, const Interval *b);
extern IdemDefinition *idem_definition_read(const char *machine);

#endif							/* IDEM_DEFINITION_H */
