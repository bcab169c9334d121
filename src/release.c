/*
 * release.c
 *	  Whether the library and the objects in the database are of one version.
 *
 * A package replaces the library of all databases at once, ALTER EXTENSION the
 * objects of one, and a session keeps the library that it has loaded.  So each
 * can be newer than the other.  A library serves the objects of its own
 * version only: it knows the columns, types and triggers of no other, and to
 * guess would be to let a row through that a guard should refuse.
 *
 * The version of the objects is what pg_extension says.  It is read when a
 * session first needs it and again when view idem.version has changed, which
 * every update script makes anew: no message is sent about pg_extension itself.
 * In between it costs a test of one variable.
 *
 * Statements of the extension's own scripts are not held up, and what only
 * computes (idem_canonical, idem_fingerprint, which may stand in an index) or
 * tells of the library (idem_version, idem_stats) does not ask.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/namespace.h"
#include "catalog/pg_extension.h"
#include "commands/extension.h"
#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "errors.h"
#include "release.h"

PG_FUNCTION_INFO_V1(idem_version);

/* not to be set by others */
bool		idem_release_fits = false;

static Oid	view_oid = InvalidOid;
static uint64 changes = 0;

/*
 * Relcache callback: InvalidOid stands for every relation.
 */
static void
release_relation_changed(Datum arg, Oid relid)
{
	if (!OidIsValid(relid) || relid == view_oid)
	{
		idem_release_fits = false;
		changes++;
	}
}

/*
 * Registers the callback; called once, when the library is loaded.
 */
void
idem_release_init(void)
{
	CacheRegisterRelcacheCallback(release_relation_changed, (Datum) 0);
}

/*
 * The version of the objects in this database; NULL if there are none.
 */
static char *
release_installed(void)
{
	Relation	rel = table_open(ExtensionRelationId, AccessShareLock);
	char	   *version = NULL;
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;

	ScanKeyInit(&key, Anum_pg_extension_extname, BTEqualStrategyNumber,
				F_NAMEEQ, CStringGetDatum("idem"));
	scan = systable_beginscan(rel, ExtensionNameIndexId, true, NULL, 1, &key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
	{
		bool		isnull;
		Datum		value = heap_getattr(tuple, Anum_pg_extension_extversion,
										 RelationGetDescr(rel), &isnull);

		version = isnull ? pstrdup("") : TextDatumGetCString(value);
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return version;
}

/*
 * Whether version a comes before b.
 */
static bool
release_is_older(const char *a, const char *b)
{
	int			x[3] = {0};
	int			y[3] = {0};

	(void) sscanf(a, "%d.%d.%d", &x[0], &x[1], &x[2]);
	(void) sscanf(b, "%d.%d.%d", &y[0], &y[1], &y[2]);
	for (int i = 0; i < 3; i++)
	{
		if (x[i] != y[i])
			return x[i] < y[i];
	}
	return false;
}

/*
 * Whether the extension is there and fits; reports at "elevel" if it is there
 * and does not.  Where it is not there, whoever looks for its tables says so.
 */
bool
idem_release_look(int elevel)
{
	uint64		began = changes;
	Oid			namespace;
	char	   *installed;

	if (idem_release_fits ||
		(creating_extension &&
		 CurrentExtensionObject == get_extension_oid("idem", true)))
		return true;

	namespace = get_namespace_oid("idem", true);
	if (OidIsValid(namespace))
		view_oid = get_relname_relid("version", namespace);
	installed = release_installed();
	if (installed == NULL)
		return false;
	if (strcmp(installed, IDEM_VERSION) == 0)
	{
		/* a change while we were reading counts */
		idem_release_fits = OidIsValid(view_oid) && changes == began;
		pfree(installed);
		return true;
	}

	ereport(elevel,
			(errcode(ERRCODE_IDEM_MISUSE),
			 errmsg("library and objects of extension \"idem\" are of different versions"),
			 errdetail("The library is version %s, the objects in this database are version %s.",
					   IDEM_VERSION, installed),
			 release_is_older(installed, IDEM_VERSION) ?
			 errhint("Update the objects with ALTER EXTENSION idem UPDATE.") :
			 errhint("Connect again to load the library of version %s; restart the server if \"idem\" is preloaded; install that version if it is not on this server.",
					 installed),
			 errhidestmt(true)));
	return false;
}

/*
 * idem_version() -> text: the library's.
 */
Datum
idem_version(PG_FUNCTION_ARGS)
{
	PG_RETURN_TEXT_P(cstring_to_text(IDEM_VERSION));
}
