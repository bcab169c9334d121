/*
 * change.h
 *	  A change of a row that is based on a version: what both ways of writing
 *	  it share.
 */
#ifndef IDEM_CHANGE_H
#define IDEM_CHANGE_H

#include "access/attnum.h"
#include "utils/relcache.h"

#include "rowversion.h"
#include "target.h"

/* a column's new value */
typedef struct IdemChangedColumn
{
	AttrNumber	attnum;
	Datum		value;
	bool		isnull;
} IdemChangedColumn;

/* one call of idem_update() or idem_delete() */
typedef struct IdemChange
{
	const char *verb;
	IdemTarget *target;
	Relation	rel;
	IdemVersion column;
	Datum	   *key;
	int64		version;		/* as given */
	bool		deletes;
	int			ncolumns;		/* what changes, in the order of the table */
	IdemChangedColumn *columns;
} IdemChange;

typedef enum IdemChangeOutcome
{
	IDEM_CHANGE_UNDECIDED,		/* not by this way */
	IDEM_CHANGE_DONE,
	IDEM_CHANGE_STALE,
	IDEM_CHANGE_MISSING
} IdemChangeOutcome;

typedef struct IdemChangeVerdict
{
	IdemChangeOutcome outcome;
	bool		has_version;	/* not if the row has none: NOT NULL was
								 * dropped */
	int64		version;		/* the new one, or the row's */
	bool		has_current;
	Datum		current;		/* jsonb: the row, where stale */
} IdemChangeVerdict;

/* change_direct.c */
extern void idem_change_directly(IdemChange *change,
								 IdemChangeVerdict *verdict);

/* change_sql.c */
extern void idem_change_by_sql(const IdemChange *change,
							   IdemChangeVerdict *verdict);

#endif							/* IDEM_CHANGE_H */
