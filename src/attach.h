/*
 * attach.h
 *	  What idem_attach() and idem_detach() share.
 */
#ifndef IDEM_ATTACH_H
#define IDEM_ATTACH_H

#include "fmgr.h"

/* what a tag keeps of the column's name, so that suffixes find room */
#define IDEM_MAX_TAG_COLUMN	40

extern char *idem_attach_table_name(Oid relid);
extern void idem_attach_check_owner(Oid relid);
extern void idem_attach_execute(const char *statement);
extern void idem_attach_require(FunctionCallInfo fcinfo, int n,
								const char *name);

#endif							/* IDEM_ATTACH_H */
