/*
 * catalog.c
 *	  Finds idem's own relations, and counts the changes made to them.
 *
 * A name is looked up once per session and forgotten when PostgreSQL says that
 * the relation changed (dropped, renamed, altered).  Whoever caches something
 * derived from such a relation keeps the epoch it was built in and builds anew
 * when the epoch has moved on.  The callback only counts: it reads no catalog
 * and frees nothing, because it may run in the middle of anything.
 *
 * Definer work runs as the owner of the tables, never as the owner of the
 * functions, who is the bootstrap superuser after a trusted installation.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/catalog.h"
#include "catalog/dependency.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_depend.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_type.h"
#include "commands/sequence.h"
#include "commands/trigger.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "catalog.h"
#include "errors.h"
#include "guc.h"
#include "release.h"

PG_FUNCTION_INFO_V1(idem_catalog_changed);

static const char *const relation_names[IDEM_NRELATIONS] = {
	[IDEM_REL_KEY] = "key",
	[IDEM_REL_SCOPE] = "scope",
	[IDEM_REL_FENCE] = "fence",
	[IDEM_REL_SWEEP_STATE] = "sweep_state",
	[IDEM_REL_MACHINE] = "machine",
	[IDEM_REL_STATE] = "state",
	[IDEM_REL_TRANSITION] = "transition",
	[IDEM_REL_HISTORY] = "history",
	[IDEM_REL_HISTORY_SEQ] = "history_seq",
	[IDEM_REL_TIMER] = "timer",
	[IDEM_REL_TOKEN] = "token",
	[IDEM_REL_BRANCH] = "branch",
	[IDEM_REL_LEASE] = "lease",
	[IDEM_REL_WINDOW_HIT] = "window_hit"
};

/* how many fences are drawn to get above a former one */
#define FENCE_DRAWS		1000

/*
 * An OID that is not valid any more is kept until the next look-up, so that
 * changes to its relation still count.
 */
static Oid	relation_oids[IDEM_NRELATIONS];
static bool relation_valid[IDEM_NRELATIONS];
static uint64 relation_epochs[IDEM_NRELATIONS];

/*
 * Relcache callback: InvalidOid stands for every relation.
 */
static void
catalog_relation_changed(Datum arg, Oid relid)
{
	for (int i = 0; i < IDEM_NRELATIONS; i++)
	{
		if (relid == InvalidOid || relid == relation_oids[i])
		{
			relation_valid[i] = false;
			relation_epochs[i]++;
		}
	}
}

/*
 * Registers the callback; called once, when the library is loaded.
 */
void
idem_catalog_init(void)
{
	CacheRegisterRelcacheCallback(catalog_relation_changed, (Datum) 0);
}

static Oid
catalog_find(IdemRelation which)
{
	if (!relation_valid[which])
	{
		Oid			namespace = get_namespace_oid("idem", true);
		Oid			relid = InvalidOid;

		if (OidIsValid(namespace))
			relid = get_relname_relid(relation_names[which], namespace);
		if (!OidIsValid(relid))
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_TABLE),
					 errmsg("relation \"idem.%s\" does not exist",
							relation_names[which]),
					 errhint("Extension \"idem\" is not installed in this database, or its schema was altered.")));
		relation_oids[which] = relid;
		relation_valid[which] = true;
	}
	return relation_oids[which];
}

/*
 * The OID of one of idem's relations.  An ERROR if it is not there, which only
 * the owner of schema "idem" can bring about, or is not of this library's
 * version.
 */
Oid
idem_catalog_relation(IdemRelation which)
{
	idem_release_require();
	return catalog_find(which);
}

/*
 * Whose relation it is; InvalidOid if there is none.
 */
Oid
idem_catalog_owner_of(Oid relid)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relid));
	Oid			owner = InvalidOid;

	if (HeapTupleIsValid(tuple))
	{
		owner = ((Form_pg_class) GETSTRUCT(tuple))->relowner;
		ReleaseSysCache(tuple);
	}
	return owner;
}

static Oid
catalog_type_owner(Oid type)
{
	HeapTuple	tuple = SearchSysCache1(TYPEOID, ObjectIdGetDatum(type));
	Oid			owner = InvalidOid;

	if (HeapTupleIsValid(tuple))
	{
		owner = ((Form_pg_type) GETSTRUCT(tuple))->typowner;
		ReleaseSysCache(tuple);
	}
	return owner;
}

/*
 * Whom the relation belongs to.
 */
Oid
idem_catalog_owner(IdemRelation which)
{
	Oid			relid = idem_catalog_relation(which);
	Oid			owner = idem_catalog_owner_of(relid);

	if (!OidIsValid(owner))
		elog(ERROR, "cache lookup failed for relation %u", relid);
	return owner;
}

/*
 * Whether a table is PostgreSQL's or idem's own, so that nothing of idem's may
 * be attached to it.
 */
bool
idem_catalog_is_system(Relation rel)
{
	return IsSystemRelation(rel) ||
		RelationGetNamespace(rel) == get_namespace_oid("idem", true);
}

/*
 * Whether a dump is being restored into the table, as far as can be told:
 * dumps and pg_restore switch check_function_bodies off, and act as the table's
 * owner or a superuser, who could switch triggers off as well.  The session's
 * user counts too, since anybody can change the setting and then call a
 * function of the owner's.
 */
bool
idem_catalog_is_restored(Relation rel)
{
	return !check_function_bodies &&
		has_privs_of_role(GetUserId(), rel->rd_rel->relowner) &&
		has_privs_of_role(GetSessionUserId(), rel->rd_rel->relowner);
}

/*
 * The next fence, above the former one of the same name or key (0: none).
 * The sequence gives that by itself, unless it was set back or made to cache
 * by its owner: then the session's cached numbers are passed over.
 */
int64
idem_catalog_draw_fence(int64 former)
{
	Oid			sequence = idem_catalog_relation(IDEM_REL_FENCE);

	for (int i = 0; i < FENCE_DRAWS; i++)
	{
		int64		fence = nextval_internal(sequence, false);

		if (fence > former)
			return fence;
	}
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("sequence \"idem.fence\" is behind fences that were handed out"),
			 errhint("Move it on with idem_fence_advance()."),
			 errhidestmt(true)));
	return 0;					/* keep compilers quiet */
}

/*
 * Moves whenever the relation may have changed.
 */
uint64
idem_catalog_epoch(IdemRelation which)
{
	return relation_epochs[which];
}

/*
 * A search_path that leads to pg_catalog, to that schema (InvalidOid: none) and,
 * last, to temporary objects.
 */
const char *
idem_catalog_path(Oid namespace)
{
	const char *name = OidIsValid(namespace) && !isAnyTempNamespace(namespace) ?
	get_namespace_name(namespace) : NULL;

	/* "$user" is another schema for each role, however it is quoted */
	return name != NULL && strcmp(name, "$user") != 0 ?
		psprintf("pg_catalog, %s, pg_temp", quote_identifier(name)) :
		"pg_catalog, pg_temp";
}

/*
 * Acts as the owner of idem's tables from here to idem_catalog_restore().  Names
 * without a schema do not lead to the caller's objects: what these do would be
 * done as the owner.
 */
void
idem_catalog_become(Oid owner, IdemIdentity *saved)
{
	idem_catalog_become_under(owner, idem_catalog_path(InvalidOid), saved);
}

/*
 * Acts as a role under a search_path; NULL: the caller's, which is for where
 * nobody's code runs.  What a role put on his tables (triggers, defaults, checks)
 * must not outlast that: it may neither defer its work to the end of the caller's
 * transaction nor leave settings behind.  An error in between needs no cleanup:
 * the end of the (sub)transaction restores all of it.
 */
void
idem_catalog_become_under(Oid role, const char *path, IdemIdentity *saved)
{
	GetUserIdAndSecContext(&saved->userid, &saved->sec_context);
	SetUserIdAndSecContext(role,
						   saved->sec_context |
						   SECURITY_LOCAL_USERID_CHANGE |
						   SECURITY_RESTRICTED_OPERATION);
	saved->guc_level = NewGUCNestLevel();
	if (path != NULL)
		idem_guc_set("search_path", path);
}

void
idem_catalog_restore(const IdemIdentity *saved)
{
	AtEOXact_GUC(false, saved->guc_level);
	SetUserIdAndSecContext(saved->userid, saved->sec_context);
}

/*
 * The schema of the session's temporary objects, once it has had some.
 */
Oid
idem_catalog_temporary(void)
{
	Oid			namespace;
	Oid			toast;

	GetTempNamespaceState(&namespace, &toast);
	return namespace;
}

/*
 * How many temporary objects the session has; if a role is told, of relations and
 * types alone, which names lead to, and of those who may not do themselves what it
 * may.
 */
int
idem_catalog_count_temporary(Oid role)
{
	Oid			namespace = idem_catalog_temporary();
	Relation	depend;
	ScanKeyData keys[2];
	SysScanDesc scan;
	HeapTuple	tuple;
	int			n = 0;

	if (!OidIsValid(namespace))
		return 0;
	depend = table_open(DependRelationId, AccessShareLock);
	ScanKeyInit(&keys[0], Anum_pg_depend_refclassid, BTEqualStrategyNumber,
				F_OIDEQ, ObjectIdGetDatum(NamespaceRelationId));
	ScanKeyInit(&keys[1], Anum_pg_depend_refobjid, BTEqualStrategyNumber,
				F_OIDEQ, ObjectIdGetDatum(namespace));
	scan = systable_beginscan(depend, DependReferenceIndexId, true, NULL, 2,
							  keys);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_depend object = (Form_pg_depend) GETSTRUCT(tuple);
		Oid			owner = object->classid == TypeRelationId ?
		catalog_type_owner(object->objid) :
		object->classid == RelationRelationId ?
		idem_catalog_owner_of(object->objid) : InvalidOid;

		if (!OidIsValid(role) ||
			(OidIsValid(owner) && !has_privs_of_role(owner, role)))
			n++;
	}
	systable_endscan(scan);
	table_close(depend, AccessShareLock);
	return n;
}

/*
 * Acts as a user's table's owner, whose code may run when the table is opened or
 * planned for.  It must not find what others have made in this session.
 */
void
idem_catalog_become_user(Oid owner, Oid namespace, IdemIdentity *saved)
{
	if (idem_catalog_count_temporary(owner) > 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("tables of role \"%s\" cannot be looked into in a session that has temporary objects of others",
						GetUserNameFromId(owner, false)),
				 errdetail("What belongs to the tables runs as their owner, and would find them by name."),
				 errhint("Use a session of its own, or DISCARD TEMP."),
				 errhidestmt(true)));
	idem_catalog_become_under(owner, idem_catalog_path(namespace), saved);
}

/*
 * Locks partitions and children, and refuses where a statement of this session is at
 * work in any of the tables: it fires the triggers that there were when it
 * began.  "deed" is what is to be done elsewhere, for the hint.
 */
void
idem_catalog_check_idle(Relation root, LOCKMODE lockmode, const char *deed)
{
	List	   *relids = find_all_inheritors(RelationGetRelid(root),
											 lockmode, NULL);
	ListCell   *lc;

	foreach(lc, relids)
	{
		Relation	rel = table_open(lfirst_oid(lc), NoLock);

		/* we have it open, and the root twice */
		if (rel->rd_refcnt > (lfirst_oid(lc) == RelationGetRelid(root) ? 2 : 1))
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_IN_USE),
					 errmsg("table \"%s\" is in use by a statement of this session",
							RelationGetRelationName(rel)),
					 errhint("%s in a statement of its own, while no cursor is open on the table.",
							 deed),
					 errtable(rel),
					 errhidestmt(true)));
		table_close(rel, NoLock);
	}
	list_free(relids);
}

/*
 * idem_catalog_changed([relation]) -> trigger
 *
 * Tells every session that a relation of idem's changed: the one that is named
 * in schema "idem", or the trigger's own.  For each row, since the apply worker
 * of logical replication fires no trigger for a statement.  Whatever the
 * versions are: to tell is never wrong.
 */
Datum
idem_catalog_changed(PG_FUNCTION_ARGS)
{
	TriggerData *trigdata = (TriggerData *) fcinfo->context;

	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function must be called as a trigger")));
	if (!TRIGGER_FIRED_AFTER(trigdata->tg_event))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function must be fired AFTER")));

	if (trigdata->tg_trigger->tgnargs == 0)
		CacheInvalidateRelcache(trigdata->tg_relation);
	else
		for (int i = 0; i < IDEM_NRELATIONS; i++)
		{
			if (strcmp(relation_names[i], trigdata->tg_trigger->tgargs[0]) == 0)
				CacheInvalidateRelcacheByRelid(catalog_find(i));
		}
	return PointerGetDatum(NULL);
}
