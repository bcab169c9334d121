/*
 * guc.c
 *	  The settings of idem.
 *
 * idem.key and idem.scope are what a middleware sets once per request (with
 * set_config(..., true), so that they end with the transaction); the verbs fall
 * back on them.  idem.access is a superuser's, because forcing the direct way
 * passes over whatever a table's owner has put on the table.
 */
#include "postgres.h"

#include "access/xact.h"
#include "common/jsonapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/guc.h"
#include "utils/jsonfuncs.h"
#include "utils/varlena.h"

#include "compat.h"
#include "current_key.h"
#include "guc.h"
#include "worker.h"

char	   *idem_guc_scope = NULL;
int			idem_guc_access = IDEM_ACCESS_AUTO;
bool		idem_guc_declared_scopes = false;
int			idem_guc_branch_ttl = 30 * 24 * 60 * 60;
int			idem_guc_tick_row_timeout = 10000;
char	   *idem_guc_actor = NULL;
char	   *idem_guc_context = NULL;
int			idem_guc_stats_max = 1000;
char	   *idem_guc_databases = NULL;
int			idem_guc_workers = 1;
int			idem_guc_naptime = 10;
int			idem_guc_batch_size = 10000;
double		idem_guc_cost_delay = 2;
int			idem_guc_refusals_max = 1000;

static const struct config_enum_entry access_options[] = {
	{"auto", IDEM_ACCESS_AUTO, false},
	{"direct", IDEM_ACCESS_DIRECT, false},
	{"sql", IDEM_ACCESS_SQL, false},
	{NULL, 0, false}
};

/*
 * Whether idem.history can hold the text.  Outside a transaction it is only
 * looked at as JSON: jsonb may report in ways that need one.
 */
static bool
guc_is_jsonb(char *value)
{
	MemoryContext context = CurrentMemoryContext;
	volatile bool is_jsonb = true;

	PG_TRY();
	{
		if (IsTransactionState())
			(void) DirectFunctionCall1(jsonb_in, CStringGetDatum(value));
		else
			is_jsonb = pg_parse_json(IDEM_MAKE_JSON_LEX(cstring_to_text(value)),
									 &nullSemAction) == JSON_SUCCESS;
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		FlushErrorState();
		is_jsonb = false;
	}
	PG_END_TRY();
	return is_jsonb;
}

/*
 * What history says of the writer: counted, so that who keeps it sees a change.
 */
uint64		idem_guc_writer_serial = 0;

static void
guc_assign_writer(const char *newval, void *extra)
{
	idem_guc_writer_serial++;
}

/*
 * The context is refused where it is set, since the write that would record it
 * is somebody else's code.
 */
static bool
guc_check_context(char **newval, void **extra, GucSource source)
{
	if (*newval == NULL || (*newval)[0] == '\0' || guc_is_jsonb(*newval))
		return true;
	GUC_check_errdetail("It must be JSON that jsonb can hold, or empty.");
	return false;
}

static bool
guc_check_databases(char **newval, void **extra, GucSource source)
{
	char	   *list = pstrdup(*newval);
	List	   *names = NIL;
	bool		is_list = SplitIdentifierString(list, ',', &names);

	list_free(names);
	pfree(list);
	if (!is_list)
		GUC_check_errdetail("It must be a list of database names, or \"*\".");
	return is_list;
}

/*
 * Those of what is preloaded.  Without preload they mean nothing, but a
 * configuration that names them is not complained of.
 */
static void
guc_define_preloaded(void)
{
	GucContext	at_start = process_shared_preload_libraries_in_progress ?
	PGC_POSTMASTER : PGC_SIGHUP;

	DefineCustomIntVariable("idem.stats_max",
							"How many scopes, machines and other things have counters of their own.",
							"Over all databases. What is more is counted together.",
							&idem_guc_stats_max, 1000,
							10, 1000000,
							at_start, 0,
							NULL, NULL, NULL);
	DefineCustomIntVariable("idem.refusals_max",
							"How many of the latest refusals are kept.",
							"Over all databases. 0 keeps none.",
							&idem_guc_refusals_max, 1000,
							0, 1000000,
							at_start, 0,
							NULL, NULL, NULL);
	DefineCustomStringVariable("idem.databases",
							   "Databases that are swept and ticked by themselves.",
							   "\"*\" is every database that has the extension and is no template.",
							   &idem_guc_databases, "",
							   PGC_SIGHUP, GUC_LIST_INPUT,
							   guc_check_databases, NULL, NULL);
	DefineCustomIntVariable("idem.workers",
							"How many of them are worked on at the same time.",
							"0 switches the workers off.",
							&idem_guc_workers, 1,
							0, IDEM_MAX_WORKERS,
							PGC_SIGHUP, 0,
							NULL, NULL, NULL);
	DefineCustomIntVariable("idem.naptime",
							"Time between two visits of a database.",
							NULL,
							&idem_guc_naptime, 10,
							1, 24 * 60 * 60,
							PGC_SIGHUP, GUC_UNIT_S,
							NULL, NULL, NULL);
	DefineCustomIntVariable("idem.batch_size",
							"How many records a worker removes in one transaction.",
							NULL,
							&idem_guc_batch_size, 10000,
							1, 1000000,
							PGC_SIGHUP, 0,
							NULL, NULL, NULL);
	DefineCustomRealVariable("idem.cost_delay",
							 "What vacuum_cost_delay is for a worker's sweeps.",
							 "-1 leaves it as it is.",
							 &idem_guc_cost_delay, 2,
							 -1, 100,
							 PGC_SIGHUP, GUC_UNIT_MS,
							 NULL, NULL, NULL);
}

/*
 * Defines every setting; called once, when the library is loaded.
 */
void
idem_guc_define(void)
{
	idem_current_key_define();
	DefineCustomStringVariable("idem.scope",
							   "Scope of verbs that are called without one.",
							   "Empty means \"default\".",
							   &idem_guc_scope, NULL,
							   PGC_USERSET, GUC_NOT_IN_SAMPLE,
							   NULL, NULL, NULL);
	DefineCustomEnumVariable("idem.access",
							 "How the registry's table is reached.",
							 "\"auto\" goes straight to the table where that is exact, and through SQL elsewhere.",
							 &idem_guc_access, IDEM_ACCESS_AUTO,
							 access_options,
							 PGC_SUSET, GUC_NOT_IN_SAMPLE,
							 NULL, NULL, NULL);
	DefineCustomBoolVariable("idem.declared_scopes",
							 "Refuses scopes that have no row in idem.scope.",
							 NULL,
							 &idem_guc_declared_scopes, false,
							 PGC_USERSET, GUC_NOT_IN_SAMPLE,
							 NULL, NULL, NULL);
	DefineCustomStringVariable("idem.actor",
							   "Who acts, for idem.history.",
							   "A middleware sets it to the end user of the request.",
							   &idem_guc_actor, NULL,
							   PGC_USERSET, GUC_NOT_IN_SAMPLE,
							   NULL, guc_assign_writer, NULL);
	DefineCustomStringVariable("idem.context",
							   "What else idem.history records, as JSON.",
							   "Empty means none.",
							   &idem_guc_context, NULL,
							   PGC_USERSET, GUC_NOT_IN_SAMPLE,
							   guc_check_context, guc_assign_writer, NULL);

	DefineCustomIntVariable("idem.branch_ttl",
							"How long a branch of a saga is remembered after its end.",
							"-1 means for ever.",
							&idem_guc_branch_ttl, 30 * 24 * 60 * 60,
							-1, INT_MAX,
							PGC_USERSET, GUC_UNIT_S | GUC_NOT_IN_SAMPLE,
							NULL, NULL, NULL);

	DefineCustomIntVariable("idem.tick_row_timeout",
							"How long idem_tick() lets guards and triggers of one row run.",
							"0 means without limit.",
							&idem_guc_tick_row_timeout, 10000, 0, INT_MAX,
							PGC_SUSET, GUC_UNIT_MS | GUC_NOT_IN_SAMPLE,
							NULL, NULL, NULL);

	guc_define_preloaded();

	MarkGUCPrefixReserved("idem");
}

/*
 * Sets what is anybody's to set, until AtEOXact_GUC() of the level that
 * NewGUCNestLevel() told.
 */
void
idem_guc_set(const char *name, const char *value)
{
	(void) set_config_option(name, value, PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
}
