/*
 * init.c
 *	  What happens when the library is loaded.
 *
 * Loading needs no preload: it defines settings and registers callbacks that
 * only mark or tidy, so that LOAD, pg_upgrade and a first call in any session
 * are all the same to it.  Preloaded, it also asks for shared memory, for
 * statistics, and for the launcher of workers.
 */
#include "postgres.h"

#include "fmgr.h"

#include "binding.h"
#include "catalog.h"
#include "claims.h"
#include "compat.h"
#include "guard.h"
#include "function.h"
#include "guc.h"
#include "history.h"
#include "release.h"
#include "rowversion.h"
#include "stats.h"
#include "target.h"
#include "worker.h"

PG_MODULE_MAGIC;

void
_PG_init(void)
{
	idem_guc_define();
	idem_release_init();
	idem_catalog_init();
	idem_claims_init();
	idem_binding_init();
	idem_each_row_init();
	idem_guard_init();
	idem_history_init();
	idem_rowversion_init();
	idem_function_cache_init();
	idem_target_init();
	idem_stats_init();
	idem_launcher_init();
}
