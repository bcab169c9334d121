/*
 * compat.h
 *	  The one place that knows which PostgreSQL this is.
 *
 * Supported are 15 to 18.  Each difference gets one macro under idem's own
 * name, so that no other file tests PG_VERSION_NUM.
 */
#ifndef IDEM_COMPAT_H
#define IDEM_COMPAT_H

#include "access/genam.h"
#include "access/tableam.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_proc.h"
#include "executor/executor.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "utils/guc.h"
#include "utils/guc_tables.h"
#include "utils/rel.h"
#include "utils/wait_event.h"

/* what postgres.h had up to 15 */
#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#endif

/* 18 has generated columns that are in no row */
#if PG_VERSION_NUM >= 180000
#define IDEM_IS_VIRTUAL(att) ((att)->attgenerated == ATTRIBUTE_GENERATED_VIRTUAL)
#define IDEM_HAS_VIRTUAL(constr) ((constr)->has_generated_virtual)
#else
#define IDEM_IS_VIRTUAL(att) ((void) (att), false)
#define IDEM_HAS_VIRTUAL(constr) ((void) (constr), false)
#endif

/* utils/pg_locale.h wants ICU's headers, which need not be there */
extern PGDLLIMPORT char *locale_monetary;

/* 15 declares _PG_init nowhere */
#if PG_VERSION_NUM < 160000
extern PGDLLEXPORT void _PG_init(void);
#endif

/* 16 tells summarizing indexes apart; idem meets only btrees here */
#if PG_VERSION_NUM < 160000
typedef bool IdemIndexesToUpdate;
#define IDEM_INDEXES_NEED_ENTRY(u)	(u)
#define IDEM_INDEXES_NEED_ANY(u)	(u)
#define IDEM_UPDATE_INDEX_TUPLES(rri, slot, estate, u) \
	ExecInsertIndexTuples((rri), (slot), (estate), true, false, NULL, NIL)
#else
typedef TU_UpdateIndexes IdemIndexesToUpdate;
#define IDEM_INDEXES_NEED_ENTRY(u)	((u) == TU_All)
#define IDEM_INDEXES_NEED_ANY(u)	((u) != TU_None)
#define IDEM_UPDATE_INDEX_TUPLES(rri, slot, estate, u) \
	ExecInsertIndexTuples((rri), (slot), (estate), true, false, NULL, NIL, \
						  (u) == TU_Summarizing)
#endif

/* 16 has one function for every kind of object's privileges */
#if PG_VERSION_NUM < 160000
#define IDEM_ROLE_MAY_EXECUTE(function, role) \
	(pg_proc_aclcheck((function), (role), ACL_EXECUTE) == ACLCHECK_OK)
#define IDEM_MAY_USE_SCHEMA(schema) \
	(pg_namespace_aclcheck((schema), GetUserId(), ACL_USAGE) == ACLCHECK_OK)
#else
#define IDEM_ROLE_MAY_EXECUTE(function, role) \
	(object_aclcheck(ProcedureRelationId, (function), (role), \
					 ACL_EXECUTE) == ACLCHECK_OK)
#define IDEM_MAY_USE_SCHEMA(schema) \
	(object_aclcheck(NamespaceRelationId, (schema), GetUserId(), \
					 ACL_USAGE) == ACLCHECK_OK)
#endif
#define IDEM_MAY_EXECUTE(function) \
	IDEM_ROLE_MAY_EXECUTE((function), GetUserId())

/* 16 has one place where the costs of vacuum are set up, 18 asks who delays */
#if PG_VERSION_NUM < 160000
#define IDEM_VACUUM_COSTS()		(VacuumCostActive = VacuumCostDelay > 0)
#else
#define IDEM_VACUUM_COSTS()		VacuumUpdateCosts()
#endif
#if PG_VERSION_NUM < 180000
#define IDEM_VACUUM_DELAY()		vacuum_delay_point()
#else
#define IDEM_VACUUM_DELAY()		vacuum_delay_point(false)
#endif

/* 17 can ask for a stronger mode too */
#if PG_VERSION_NUM < 170000
#define IDEM_LOCK_HELD_BY_ME(tag, mode) LockHeldByMe((tag), (mode))
#else
#define IDEM_LOCK_HELD_BY_ME(tag, mode) LockHeldByMe((tag), (mode), false)
#endif

/* 17 has names for waits of extensions */
#if PG_VERSION_NUM < 170000
#define IDEM_WAIT_EVENT(known, name)	((void) (known), PG_WAIT_EXTENSION)
#else
#define IDEM_WAIT_EVENT(known, name) \
	((known) != 0 ? (known) : ((known) = WaitEventExtensionNew(name)))
#endif

/* 17 can end a session whose transaction takes long */
#if PG_VERSION_NUM < 170000
#define IDEM_FORGO_TRANSACTION_TIMEOUT()	((void) 0)
#else
#define IDEM_FORGO_TRANSACTION_TIMEOUT() \
	SetConfigOption("transaction_timeout", "0", PGC_SUSET, PGC_S_OVERRIDE)
#endif

/* 17 can put a lexing context on the stack */
#if PG_VERSION_NUM < 170000
#define IDEM_MAKE_JSON_LEX(json)	makeJsonLexContext((json), false)
#else
#define IDEM_MAKE_JSON_LEX(json)	makeJsonLexContext(NULL, (json), false)
#endif

/* 17 has infinite intervals */
#if PG_VERSION_NUM < 170000
#define IDEM_INTERVAL_IS_INFINITE(i)	false
#else
#define IDEM_INTERVAL_IS_INFINITE(i)	INTERVAL_NOT_FINITE(i)
#endif

/* 18 counts index searches and can log failed conditional locks */
#if PG_VERSION_NUM < 180000
#define IDEM_INDEX_BEGINSCAN(heap, index, snap, nkeys) \
	index_beginscan((heap), (index), (snap), (nkeys), 0)
#define IDEM_XACT_LOCK_TRY(xid) ConditionalXactLockTableWait(xid)
#else
#define IDEM_INDEX_BEGINSCAN(heap, index, snap, nkeys) \
	index_beginscan((heap), (index), (snap), NULL, (nkeys), 0)
#define IDEM_XACT_LOCK_TRY(xid) ConditionalXactLockTableWait((xid), false)
#endif

/* 16 can leave the datum in the sort's own memory */
#if PG_VERSION_NUM < 160000
#define IDEM_TUPLESORT_GETDATUM(sort, value, isnull) \
	tuplesort_getdatum((sort), true, (value), (isnull), NULL)
#else
#define IDEM_TUPLESORT_GETDATUM(sort, value, isnull) \
	tuplesort_getdatum((sort), true, true, (value), (isnull), NULL)
#endif

/* 16 has one function for every kind of object */
#if PG_VERSION_NUM < 160000
#define IDEM_OWNS_RELATION(relid, role) pg_class_ownercheck((relid), (role))
#else
#define IDEM_OWNS_RELATION(relid, role) \
	object_ownercheck(RelationRelationId, (relid), (role))
#endif

/* 16 names a relation's file in another way */
#if PG_VERSION_NUM < 160000
#define IDEM_RELATION_FILE(rel)	((rel)->rd_node)
#else
#define IDEM_RELATION_FILE(rel)	((rel)->rd_locator)
#endif

/* 16 lets a setting be looked up */
#if PG_VERSION_NUM < 160000
static inline struct config_generic *
idem_compat_find_setting(const char *name)
{
	struct config_generic **settings = get_guc_variables();

	for (int i = 0; i < GetNumConfigOptions(); i++)
	{
		if (strcmp(settings[i]->name, name) == 0)
			return settings[i];
	}
	return NULL;
}
#define IDEM_FIND_SETTING(name)	idem_compat_find_setting(name)
#else
#define IDEM_FIND_SETTING(name)	find_option((name), false, true, 0)
#endif

/* 16 has its own memory for settings */
#if PG_VERSION_NUM < 160000
#define IDEM_GUC_MALLOC(size)	malloc(size)
#else
#define IDEM_GUC_MALLOC(size)	guc_malloc(LOG, (size))
#endif

/* 16 can leave out indexes that point to rows */
#if PG_VERSION_NUM < 160000
#define IDEM_INSERT_INDEX_TUPLES(rri, slot, estate) \
	ExecInsertIndexTuples((rri), (slot), (estate), false, false, NULL, NIL)
#else
#define IDEM_INSERT_INDEX_TUPLES(rri, slot, estate) \
	ExecInsertIndexTuples((rri), (slot), (estate), false, false, NULL, NIL, \
						  false)
#endif

/*
 * Makes the relation the first of the executor's range table, once the caller's
 * privileges on it are checked: 16 has moved them out of it, 18 knows which
 * relations were pruned.
 */
static inline void
idem_compat_init_result_table(EState *estate, Relation rel, AclMode privileges,
							  Bitmapset *read, Bitmapset *written)
{
	RangeTblEntry *rte = makeNode(RangeTblEntry);
#if PG_VERSION_NUM >= 160000
	RTEPermissionInfo *permissions = makeNode(RTEPermissionInfo);
#else
	RangeTblEntry *permissions = rte;
#endif

	rte->rtekind = RTE_RELATION;
	rte->relid = RelationGetRelid(rel);
	rte->relkind = rel->rd_rel->relkind;
	rte->rellockmode = RowExclusiveLock;
	permissions->requiredPerms = privileges;
	permissions->selectedCols = read;
	permissions->updatedCols = written;
#if PG_VERSION_NUM >= 160000
	rte->perminfoindex = 1;
	permissions->relid = rte->relid;
	(void) ExecCheckPermissions(list_make1(rte), list_make1(permissions), true);
#else
	(void) ExecCheckRTPerms(list_make1(rte), true);
#endif
#if PG_VERSION_NUM >= 180000
	ExecInitRangeTable(estate, list_make1(rte), list_make1(permissions),
					   bms_make_singleton(1));
#elif PG_VERSION_NUM >= 160000
	ExecInitRangeTable(estate, list_make1(rte), list_make1(permissions));
#else
	ExecInitRangeTable(estate, list_make1(rte));
#endif
}

/* before 18 what a setting forbids costs ten billion more; since, it is counted */
#if PG_VERSION_NUM < 180000
#define IDEM_PLAN_IS_FORCED(plan)	((plan)->total_cost >= 1.0e10)
#else
#define IDEM_PLAN_IS_FORCED(plan)	((plan)->disabled_nodes > 0)
#endif

#endif							/* IDEM_COMPAT_H */
