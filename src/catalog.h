/*
 * catalog.h
 *	  Where idem's own relations are, and when what is cached of them is stale.
 */
#ifndef IDEM_CATALOG_H
#define IDEM_CATALOG_H

#include "postgres_ext.h"
#include "storage/lockdefs.h"
#include "utils/relcache.h"

/* relations in the fixed schema "idem" */
typedef enum IdemRelation
{
	IDEM_REL_KEY,
	IDEM_REL_SCOPE,
	IDEM_REL_FENCE,
	IDEM_REL_SWEEP_STATE,
	IDEM_REL_MACHINE,
	IDEM_REL_STATE,
	IDEM_REL_TRANSITION,
	IDEM_REL_HISTORY,
	IDEM_REL_HISTORY_SEQ,
	IDEM_REL_TIMER,
	IDEM_REL_TOKEN,
	IDEM_REL_LEASE,
	IDEM_REL_WINDOW_HIT,
	IDEM_REL_BRANCH,
	IDEM_NRELATIONS
} IdemRelation;

/* the caller's identity, while definer work is done */
typedef struct IdemIdentity
{
	Oid			userid;
	int			sec_context;
	int			guc_level;
} IdemIdentity;

extern void idem_catalog_init(void);
extern Oid	idem_catalog_relation(IdemRelation which);
extern Oid	idem_catalog_owner(IdemRelation which);
extern bool idem_catalog_is_system(Relation rel);
extern bool idem_catalog_is_restored(Relation rel);
extern int64 idem_catalog_draw_fence(int64 former);
extern uint64 idem_catalog_epoch(IdemRelation which);
extern const char *idem_catalog_path(Oid namespace);
extern void idem_catalog_become(Oid owner, IdemIdentity *saved);
extern void idem_catalog_become_under(Oid role, const char *path,
									  IdemIdentity *saved);
extern Oid	idem_catalog_owner_of(Oid relid);
extern Oid	idem_catalog_temporary(void);
extern int	idem_catalog_count_temporary(Oid role);
extern void idem_catalog_become_user(Oid owner, Oid namespace,
									 IdemIdentity *saved);
extern void idem_catalog_restore(const IdemIdentity *saved);
extern void idem_catalog_check_idle(Relation root, LOCKMODE lockmode,
									const char *deed);

#endif							/* IDEM_CATALOG_H */
