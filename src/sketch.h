/*
 * sketch.h
 *	  The lines of a diagram, read but not yet understood.
 */
#ifndef IDEM_SKETCH_H
#define IDEM_SKETCH_H

#include "utils/hsearch.h"

#include "definition.h"

#define IDEM_EDGE_STATE		"[*]"

/* a name in the text, which may be longer than its like in the tables */
typedef char IdemSketchKey[IDEM_MAX_NAME + 1];

/* what a name in the text stands for; the key first */
typedef struct IdemSketchName
{
	IdemSketchKey key;
	IdemStateDef *state;		/* NULL until resolved */
	char	   *text;			/* given by state "text" as name, or NULL */
	bool		drawn;			/* a line names it that is no note */
} IdemSketchName;

typedef struct IdemSketchArrow
{
	int			line;
	char	   *from;
	char	   *to;
	bool		has_label;
	IdemLabel	label;
} IdemSketchArrow;

typedef struct IdemSketchNote
{
	int			line;
	char	   *name;
	char	   *text;
} IdemSketchNote;

/* where the reading is, and what was found; zeroed but for its place */
typedef struct IdemSketch
{
	IdemPlace	place;
	const char *next;			/* behind the current line */
	const char *at;				/* in the current line */
	const char *end;			/* of it */
	HTAB	   *names;
	List	   *order;			/* the names as they came up, C strings */
	List	   *arrows;
	List	   *notes;
} IdemSketch;

extern IdemSketchName *idem_sketch_name(IdemSketch *sketch, const char *name);
extern void idem_sketch_read(IdemSketch *sketch, const char *text);

#endif							/* IDEM_SKETCH_H */
