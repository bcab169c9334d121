/*
 * launcher.c
 *	  Starts workers for the databases of idem.databases.
 *
 * The launcher is the only process that is always there.  It is connected to
 * no database, so that it stands in the way of none, and reads the shared
 * catalog to learn which there are; whatever a database needs is done by a
 * worker (worker.c) that is started for it and leaves after a second at most.
 *
 * Each database is visited once in idem.naptime.  Where there was too much for
 * one visit the next follows after a pause that is long enough for commands
 * that want the database for themselves to find it free.  Where a visit failed
 * the nap is doubled each time, up to an hour.  A database without the
 * extension is looked at again after a minute.  A reload of the configuration
 * makes all of them due at once.
 *
 * It ends with status 1, so that the postmaster starts it again if somebody
 * terminates it.  Nothing is registered during pg_upgrade, and on a standby it
 * starts with the promotion.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_database.h"
#include "miscadmin.h"
#include "nodes/pg_list.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "storage/shmem.h"
#include "tcop/tcopprot.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/varlena.h"

#include "compat.h"
#include "guc.h"
#include "worker.h"

PGDLLEXPORT void idem_launcher_main(Datum arg);

/* seconds until the postmaster starts it again */
#define RESTART_AFTER	5

/* between two visits of a database with much to do */
#define PAUSE			(250 * INT64CONST(1000))
#define ASIDE_NAP		USECS_PER_SEC
#define ABSENT_NAP		USECS_PER_MINUTE
#define LONGEST_NAP		USECS_PER_HOUR

/* warnings about one database that are logged in an hour */
#define MAX_WARNINGS	10

/* a database that is wanted */
typedef struct Visited
{
	Oid			database;
	bool		wanted;			/* as of the last look */
	int			slot;			/* of the worker that is there, or -1 */
	int			failures;		/* in a row */
	TimestampTz next_at;
	int			warnings;
	TimestampTz warnings_since;
} Visited;

typedef struct RunningWorker
{
	Oid			database;		/* or InvalidOid */
	BackgroundWorkerHandle *handle;
} RunningWorker;

static shmem_request_hook_type former_request = NULL;
static shmem_startup_hook_type former_startup = NULL;
static IdemVisitSlot *slots = NULL;

static HTAB *visited = NULL;
static RunningWorker running[IDEM_MAX_WORKERS];
static bool told_of_missing = false;
static TimestampTz told_of_no_room_at = 0;

static void
launcher_request(void)
{
	if (former_request != NULL)
		former_request();
	RequestAddinShmemSpace(MAXALIGN(IDEM_MAX_WORKERS * sizeof(IdemVisitSlot)));
}

static void
launcher_startup(void)
{
	bool		found;

	if (former_startup != NULL)
		former_startup();
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	slots = ShmemInitStruct("idem workers",
							IDEM_MAX_WORKERS * sizeof(IdemVisitSlot), &found);
	if (!found)
		memset(slots, 0, IDEM_MAX_WORKERS * sizeof(IdemVisitSlot));
	LWLockRelease(AddinShmemInitLock);
}

static void
describe_worker(BackgroundWorker *worker, const char *name,
				const char *function, int restart_time)
{
	memset(worker, 0, sizeof(*worker));
	worker->bgw_flags = BGWORKER_SHMEM_ACCESS |
		BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker->bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker->bgw_restart_time = restart_time;
	strlcpy(worker->bgw_library_name, "idem", BGW_MAXLEN);
	strlcpy(worker->bgw_function_name, function, BGW_MAXLEN);
	strlcpy(worker->bgw_name, name, BGW_MAXLEN);
	strlcpy(worker->bgw_type, name, BGW_MAXLEN);
}

/*
 * Registers the launcher, if the library is preloaded.
 */
void
idem_launcher_init(void)
{
	BackgroundWorker worker;

	if (!process_shared_preload_libraries_in_progress || IsBinaryUpgrade)
		return;
	former_request = shmem_request_hook;
	shmem_request_hook = launcher_request;
	former_startup = shmem_startup_hook;
	shmem_startup_hook = launcher_startup;

	describe_worker(&worker, "idem launcher", "idem_launcher_main",
					RESTART_AFTER);
	RegisterBackgroundWorker(&worker);
}

IdemVisitSlot *
idem_launcher_slot(int i)
{
	return &slots[i];
}

/*
 * Takes the lock, until the end of the transaction, that keeps commands which
 * want the database for themselves waiting.  False if one of them has it or
 * waits for it.
 */
bool
idem_launcher_lock_database(Oid database)
{
	LOCKTAG		tag;

	SET_LOCKTAG_OBJECT(tag, InvalidOid, DatabaseRelationId, database, 0);
	return LockAcquire(&tag, RowExclusiveLock, false, true) !=
		LOCKACQUIRE_NOT_AVAIL;
}

/*
 * The names in idem.databases; "all" if one of them is "*".
 */
static List *
launcher_names(bool *all)
{
	char	   *list = pstrdup(idem_guc_databases != NULL ?
							   idem_guc_databases : "");
	List	   *names = NIL;
	ListCell   *lc;

	*all = false;
	if (!SplitIdentifierString(list, ',', &names))
		return NIL;
	foreach(lc, names)
	{
		if (strcmp((char *) lfirst(lc), "*") == 0)
			*all = true;
	}
	return names;
}

static void
launcher_want(Oid database)
{
	bool		found;
	Visited    *entry = hash_search(visited, &database, HASH_ENTER, &found);

	if (!found)
	{
		memset(entry, 0, sizeof(Visited));
		entry->database = database;
		entry->slot = -1;
		entry->warnings = MAX_WARNINGS;
	}
	entry->wanted = true;
}

/*
 * Takes the databases that are wanted from the catalog.
 */
static void
launcher_look(void)
{
	bool		all;
	List	   *names = launcher_names(&all);
	List	   *missing = list_copy(names);
	HASH_SEQ_STATUS seq;
	Visited    *entry;
	ListCell   *lc;

	hash_seq_init(&seq, visited);
	while ((entry = hash_seq_search(&seq)) != NULL)
		entry->wanted = false;

	if (idem_guc_workers > 0 && names != NIL)
	{
		Relation	rel;
		TableScanDesc scan;
		HeapTuple	tuple;

		StartTransactionCommand();
		(void) GetTransactionSnapshot();
		rel = table_open(DatabaseRelationId, AccessShareLock);
		scan = table_beginscan_catalog(rel, 0, NULL);
		while ((tuple = heap_getnext(scan, ForwardScanDirection)) != NULL)
		{
			Form_pg_database database = (Form_pg_database) GETSTRUCT(tuple);
			bool		wanted = all && !database->datistemplate;

			foreach(lc, names)
			{
				if (strcmp((char *) lfirst(lc), NameStr(database->datname)) != 0)
					continue;
				wanted = true;
				missing = list_delete_ptr(missing, lfirst(lc));
			}
			if (wanted && database->datallowconn &&
				database->datconnlimit != DATCONNLIMIT_INVALID_DB)
				launcher_want(database->oid);
		}
		table_endscan(scan);
		table_close(rel, AccessShareLock);
		CommitTransactionCommand();

		foreach(lc, missing)
		{
			if (!told_of_missing && strcmp((char *) lfirst(lc), "*") != 0)
				ereport(LOG,
						(errmsg("database \"%s\" of setting \"%s\" does not exist",
								(char *) lfirst(lc), "idem.databases")));
		}
		told_of_missing = true;
	}

	hash_seq_init(&seq, visited);
	while ((entry = hash_seq_search(&seq)) != NULL)
	{
		if (!entry->wanted && entry->slot < 0)
			hash_search(visited, &entry->database, HASH_REMOVE, NULL);
	}
}

static int64
launcher_naptime(void)
{
	return idem_guc_naptime * USECS_PER_SEC;
}

/*
 * Starts a worker for a database that is due.  False if there is no place for
 * one.
 */
static bool
launcher_start(Visited *entry, TimestampTz now)
{
	BackgroundWorker worker;
	int			slot = 0;
	bool		is_free;

	while (slot < idem_guc_workers && OidIsValid(running[slot].database))
		slot++;
	if (slot >= idem_guc_workers)
		return false;

	StartTransactionCommand();
	is_free = idem_launcher_lock_database(entry->database);
	CommitTransactionCommand();
	if (!is_free)
	{
		entry->next_at = now + ASIDE_NAP;
		return true;
	}

	if (now - entry->warnings_since >= USECS_PER_HOUR ||
		now < entry->warnings_since)
	{
		entry->warnings_since = now;
		entry->warnings = MAX_WARNINGS;
	}
	memset(&slots[slot], 0, sizeof(IdemVisitSlot));
	slots[slot].database = entry->database;
	slots[slot].quiet = entry->failures > 0;
	slots[slot].warnings = entry->warnings;

	describe_worker(&worker, "idem worker", "idem_worker_main",
					BGW_NEVER_RESTART);
	worker.bgw_main_arg = Int32GetDatum(slot);
	worker.bgw_notify_pid = MyProcPid;
	if (!RegisterDynamicBackgroundWorker(&worker, &running[slot].handle))
	{
		if (now - told_of_no_room_at >= USECS_PER_HOUR)
		{
			ereport(LOG,
					(errmsg("no worker of idem could be started"),
					 errhint("Consider increasing \"max_worker_processes\".")));
			told_of_no_room_at = now;
		}
		entry->next_at = now + launcher_naptime();
		return true;
	}
	running[slot].database = entry->database;
	entry->slot = slot;
	return true;
}

/*
 * What follows from the end of a visit.
 */
static void
launcher_finish(Visited *entry, IdemVisitSlot *slot, TimestampTz now)
{
	entry->slot = -1;
	entry->warnings = slot->warnings;
	if (slot->outcome == IDEM_VISIT_FAILED)
		entry->failures = Min(entry->failures + 1, 20);
	else
		entry->failures = 0;

	switch (slot->outcome)
	{
		case IDEM_VISIT_FAILED:
			entry->next_at = now + Min(launcher_naptime() << entry->failures,
									   Max(LONGEST_NAP, launcher_naptime()));
			break;
		case IDEM_VISIT_DONE:
			entry->next_at = now + launcher_naptime();
			break;
		case IDEM_VISIT_MORE:
			entry->next_at = now + PAUSE;
			break;
		case IDEM_VISIT_ASIDE:
			entry->next_at = now + ASIDE_NAP;
			break;
		case IDEM_VISIT_ABSENT:
			entry->next_at = now + Max(ABSENT_NAP, launcher_naptime());
			break;
	}
}

/*
 * Collects the workers that have ended.
 */
static void
launcher_collect(TimestampTz now)
{
	for (int i = 0; i < IDEM_MAX_WORKERS; i++)
	{
		Visited    *entry;
		pid_t		pid;

		if (!OidIsValid(running[i].database) ||
			GetBackgroundWorkerPid(running[i].handle, &pid) != BGWH_STOPPED)
			continue;
		entry = hash_search(visited, &running[i].database, HASH_FIND, NULL);
		if (entry != NULL)
			launcher_finish(entry, &slots[i], now);
		pfree(running[i].handle);
		running[i].handle = NULL;
		running[i].database = InvalidOid;
	}
}

/*
 * Starts what is due, longest first, and says when there will be more.
 */
static TimestampTz
launcher_start_due(TimestampTz now)
{
	for (;;)
	{
		HASH_SEQ_STATUS seq;
		Visited    *entry;
		Visited    *first = NULL;

		hash_seq_init(&seq, visited);
		while ((entry = hash_seq_search(&seq)) != NULL)
		{
			if (entry->wanted && entry->slot < 0 &&
				(first == NULL || entry->next_at < first->next_at))
				first = entry;
		}
		if (first == NULL)
			return DT_NOEND;
		/* with no place free, the end of a worker wakes us */
		if (first->next_at > now)
			return first->next_at;
		if (!launcher_start(first, now))
			return DT_NOEND;
	}
}

/*
 * What was planned no longer holds: all is due.
 */
static void
launcher_plan_anew(void)
{
	HASH_SEQ_STATUS seq;
	Visited    *entry;

	hash_seq_init(&seq, visited);
	while ((entry = hash_seq_search(&seq)) != NULL)
		entry->next_at = 0;
}

/*
 * The launcher's main function.
 */
void
idem_launcher_main(Datum arg)
{
	static uint32 wait_event = 0;
	HASHCTL		ctl = {.keysize = sizeof(Oid),.entrysize = sizeof(Visited)};
	MemoryContext context;
	TimestampTz look_at = 0;
	TimestampTz last = 0;

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);
	pgstat_report_appname("idem launcher");
	IDEM_FORGO_TRANSACTION_TIMEOUT();

	ctl.hcxt = TopMemoryContext;
	visited = hash_create("databases visited by idem", 32, &ctl,
						  HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	context = AllocSetContextCreate(TopMemoryContext, "idem launcher",
									ALLOCSET_SMALL_SIZES);

	for (;;)
	{
		TimestampTz now;
		TimestampTz next_at;

		CHECK_FOR_INTERRUPTS();
		if (ShutdownRequestPending)
			proc_exit(1);
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
			told_of_missing = false;
			launcher_plan_anew();
			look_at = 0;
		}

		now = GetCurrentTimestamp();
		/* where the clock was set back, the plan may be for next year */
		if (now < last)
		{
			launcher_plan_anew();
			look_at = 0;
			told_of_no_room_at = 0;
		}
		last = now;
		launcher_collect(now);
		if (now >= look_at)
		{
			MemoryContextSwitchTo(context);
			launcher_look();
			MemoryContextSwitchTo(TopMemoryContext);
			MemoryContextReset(context);
			look_at = now + launcher_naptime();
		}
		next_at = Min(launcher_start_due(now), look_at);

		(void) WaitLatch(MyLatch,
						 WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 Max(TimestampDifferenceMilliseconds(GetCurrentTimestamp(),
															 next_at), 1),
						 IDEM_WAIT_EVENT(wait_event, "IdemLauncher"));
		ResetLatch(MyLatch);
	}
}
