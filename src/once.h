/*
 * once.h
 *	  Tables that skip repeated inserts: what is known of one, and its keys.
 */
#ifndef IDEM_ONCE_H
#define IDEM_ONCE_H

#include "access/htup.h"
#include "fmgr.h"
#include "utils/relcache.h"
#include "utils/reltrigger.h"

#include "registry.h"

/* C symbol behind the trigger function, and the names of the triggers */
#define IDEM_ONCE_FUNCTION	"idem_once_row"
#define IDEM_ONCE_TRIGGER	"~idem_once"

/* how much of the session's settings a type's output depends on */
typedef enum IdemOncePin
{
	IDEM_ONCE_PIN_NONE,
	IDEM_ONCE_PIN_STYLE,		/* styles of dates, numbers, bytea; time zone */
	IDEM_ONCE_PIN_ALL			/* names and money too */
} IdemOncePin;

typedef struct IdemOnceColumn
{
	AttrNumber	attnum;
	Oid			type;
	Oid			base;			/* under a domain */
	FmgrInfo	output;
} IdemOnceColumn;

/*
 * What the triggers of one table, or of one partition, say.  Lives at least
 * until the transaction in which it was returned ends.
 */
typedef struct IdemOnceTable
{
	Oid			relid;
	IdemScope	scope;
	bool		has_ttl;
	Interval	ttl;
	bool		is_last;		/* no later trigger can change or skip a row */
	IdemOncePin pin;
	int			ncolumns;
	IdemOnceColumn *columns;
} IdemOnceTable;

/* once_key.c */
extern bool idem_once_is_ours(const Trigger *trigger);
extern bool idem_once_is_attached(Relation rel);
extern IdemOnceTable *idem_once_table(Relation rel);
extern text *idem_once_key(IdemOnceTable *table, HeapTuple tuple,
						   TupleDesc desc);
extern char *idem_once_digest(const char *data, Size len);

/* once_table.c */
extern IdemOutcome idem_once_mark(IdemStore *store,
								  const IdemOnceTable *table, text *key,
								  ItemPointer tid);

#endif							/* IDEM_ONCE_H */
