/*
 * attach.h
 *	  What idem_attach() and idem_detach() share, and what may be attached to.
 */
#ifndef IDEM_ATTACH_H
#define IDEM_ATTACH_H

#include "fmgr.h"

#include "binding.h"

/* what a tag keeps of the column's name, so that suffixes find room */
#define IDEM_MAX_TAG_COLUMN	40

/* attachable.c */
extern void idem_attachable_table(Relation rel, bool is_root);
extern AttrNumber idem_attachable_column(Relation rel, const char *name);
extern void idem_attachable_values(Relation rel, AttrNumber attnum,
								   const IdemMachine *machine);
extern void idem_attachable_history(Relation rel);
extern void idem_attachable_rows(Oid relid, const char *column,
								 const IdemMachine *machine);

/* attach.c */
extern char *idem_attach_table_name(Oid relid);
extern char *idem_attach_first_tag(const char *column);
extern void idem_attach_check_owner(Oid relid);
extern void idem_attach_execute(const char *statement);

#endif							/* IDEM_ATTACH_H */
