/*
 * tick_table.h
 *	  Tables as a ticker finds them.
 */
#ifndef IDEM_TICK_TABLE_H
#define IDEM_TICK_TABLE_H

#include "datatype/timestamp.h"
#include "nodes/pg_list.h"

/* owners, as one call finds the session's temporary objects */
typedef struct IdemTickRoles
{
	List	   *clear;			/* no such object misleads what runs as they */
	List	   *misled;
} IdemTickRoles;

extern Oid	idem_tick_role(Oid owner);
extern bool idem_tick_is_misled(IdemTickRoles *roles, Oid role);
extern bool idem_tick_lock(Oid relid);
extern List *idem_tick_barred(IdemTickRoles *roles, TimestampTz now);

#endif							/* IDEM_TICK_TABLE_H */
