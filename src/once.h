/*
 * once.h
 *	  Tables that skip repeated inserts: what is known of one, its keys, and the
 *	  marks that a transaction makes of them.
 */
#ifndef IDEM_ONCE_H
#define IDEM_ONCE_H

#include "access/htup.h"
#include "access/xact.h"
#include "fmgr.h"
#include "lib/ilist.h"
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

/* a key that this transaction marked, for a row that may not get in */
typedef struct IdemMark
{
	const IdemOnceTable *table;
	text	   *key;
	ItemPointerData tid;		/* of the registry's row ... */
	uint64		tid_epoch;		/* ... while the registry is the same table */
	SubTransactionId made_in;
	SubTransactionId settled_in;	/* invalid: pending */
	struct IdemMark *former;	/* of the same key, settled before this one */
} IdemMark;

typedef enum IdemOnceRowKind
{
	IDEM_ROW_NONE,
	IDEM_ROW_UPDATED,			/* an update of it was seen */
	IDEM_ROW_LEAVING,			/* ... and then its delete: it moves */
	/* under way, to be confirmed: */
	IDEM_ROW_MARKED,
	IDEM_ROW_EXEMPT,			/* has no key */
	IDEM_ROW_MOVED,				/* is no new one */
	IDEM_ROW_STANDIN			/* of another statement's row that moves */
} IdemOnceRowKind;

/* the row of a running statement that its triggers saw last */
typedef struct IdemOnceRow
{
	dlist_node	node;
	MemoryContext context;		/* the statement's */
	MemoryContextCallback end;
	IdemOnceRowKind kind;
	SubTransactionId subid;
	Oid			relid;
	const IdemOnceTable *table;

	/* marked */
	bool		owns_mark;		/* else it is a pending one */
	ItemPointerData mark;
	text	   *key;			/* also of one that leaves ... */
	bool		owns_key;		/* ... if it has one */
	Size		key_size;

	/* leaving or moved: the stand-in got in there, or invalid */
	SubTransactionId replaced_in;

	/* updated or leaving */
	ItemPointerData tid;
	HeapTuple	tuple;			/* its new version */
} IdemOnceRow;

/* once_table.c */
extern bool idem_once_is_ours(const Trigger *trigger);
extern bool idem_once_is_reserved(const char *scope);
extern bool idem_once_is_attached(Relation rel);
extern void idem_once_watch(Oid relid);
extern bool idem_once_watched_changed(void);
extern IdemOnceTable *idem_once_table(Relation rel);

/* once_key.c */
extern IdemOncePin idem_once_pin(Oid base);
extern text *idem_once_key(IdemOnceTable *table, HeapTuple tuple,
						   TupleDesc desc);
extern char *idem_once_digest(const char *data, Size len);

/* once_import.c */
extern int64 idem_once_count_keys(text *scope);
extern void idem_once_import(Relation root, int64 former_keys);

/* once_row.c */
extern IdemOnceRow *idem_once_row_get(FmgrInfo *flinfo);
extern IdemOnceRow *idem_once_row_newest(void);
extern bool idem_once_row_is_alone(void);
extern void idem_once_row_set(IdemOnceRow *row, IdemOnceRowKind kind);
extern void idem_once_row_clear(IdemOnceRow *row);
extern void idem_once_row_keep_key(IdemOnceRow *row, text *key);
extern bool idem_once_row_is_gone(const IdemOnceRow *row);
extern IdemOnceRow *idem_once_row_find_moving(const IdemOnceTable *table,
											  text *key);
extern void idem_once_row_give_marks(void);
extern void idem_once_row_init(void);

/* once_mark.c */
extern bool idem_mark_import(IdemStore *store, const IdemOnceTable *table,
							 text *key);
extern IdemOutcome idem_mark_make(const IdemOnceTable *table, text *key,
								  ItemPointer tid);
extern IdemMark *idem_mark_find_pending(const IdemOnceTable *table,
										text *key);
extern void idem_mark_enter(const IdemOnceTable *table, text *key,
							ItemPointer tid, SubTransactionId made_in);
extern void idem_mark_settle(IdemMark *mark);
extern void idem_mark_release_all(void);
extern void idem_mark_end_statement(bool release);
extern void idem_mark_at_xact(XactEvent event);
extern void idem_mark_at_subxact(SubXactEvent event, SubTransactionId subid,
								 SubTransactionId parent);

#endif							/* IDEM_ONCE_H */
