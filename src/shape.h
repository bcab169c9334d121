/*
 * shape.h
 *	  What the text of a value depends on, besides the value.
 */
#ifndef IDEM_SHAPE_H
#define IDEM_SHAPE_H

#include "access/tupdesc.h"

/* settings that some value's text follows, when it is written or read */
#define IDEM_SETTINGS_PLAIN	0x01	/* styles of dates, floats and the like */
#define IDEM_SETTINGS_MONEY	0x02
#define IDEM_SETTINGS_PATH	0x04	/* what is looked up by name */
#define IDEM_SETTINGS_ALL	0x07

/* of one type, or of several */
typedef struct IdemShape
{
	StringInfoData text;		/* names, types and order of all columns */
	bool		has_columns;	/* or else the type's name says it all */
	int			settings;
	Oid			unreadable;		/* a type whose input refuses every value */
	List	   *seen;			/* composites, each told only once */
} IdemShape;

extern void idem_shape_begin(IdemShape *shape);
extern void idem_shape_add(IdemShape *shape, const char *name, Oid type);
extern void idem_shape_add_columns(IdemShape *shape, TupleDesc desc);
extern char *idem_shape_digest(const IdemShape *shape);
extern int	idem_shape_pin_settings(int which);

#endif							/* IDEM_SHAPE_H */
