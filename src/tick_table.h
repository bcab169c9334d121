/*
 * tick_table.h
 *	  Tables as a ticker finds them.
 */
#ifndef IDEM_TICK_TABLE_H
#define IDEM_TICK_TABLE_H

#include "datatype/timestamp.h"
#include "nodes/pg_list.h"

/* what one call has found of the session, and whose rows it fires */
typedef struct IdemTickSession
{
	List	   *misled;			/* roles whom temporary objects mislead */
	bool		bars;			/* tables are left for that */
	int			temporary;		/* how many temporary objects there are */
	bool		one_owner;		/* it fires rows of one owner */
	Oid			owner;			/* his; InvalidOid: the first one's */
} IdemTickSession;

extern Oid	idem_tick_role(Oid owner);
extern bool idem_tick_is_misled(List **misled, Oid role);
extern bool idem_tick_lock(Oid relid);
extern List *idem_tick_barred(List **misled, TimestampTz now);

#endif							/* IDEM_TICK_TABLE_H */
