/*
 * worker.c
 *	  One visit of one database: what has expired is swept, what is due fired.
 *
 * A worker stays for a second at most, and is then started again if there is
 * more to do, because while it is connected nobody can drop or rename the
 * database or use it as a template.  Each batch is a transaction of its own that
 * holds the lock that these commands wait for in a mode that conflicts with
 * theirs.  So they wait for the end of a batch, and the next batch, which does
 * not get the lock at once, is never begun: the worker leaves.  A batch has a budget
 * of time, after which no further row is begun with.
 *
 * It connects as the bootstrap superuser, as background workers do, and works
 * as the owner of idem's tables, in a security-restricted context; idem_tick
 * goes on to act as the owner of each table that it fires events of.
 *
 * An error ends the visit.  It is logged, unless the visit before failed too;
 * warnings are logged as long as the launcher has some left for the database.
 */
#include "postgres.h"

#include "access/xact.h"
#include "commands/dbcommands.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/lock.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "catalog.h"
#include "compat.h"
#include "guc.h"
#include "release.h"
#include "sweep.h"
#include "tick.h"
#include "worker.h"

PGDLLEXPORT void idem_worker_main(Datum arg);

/* how long a visit lasts, and a batch of it */
#define STAY			USECS_PER_SEC
#define BATCH_BUDGET	(200 * INT64CONST(1000))

/* timers in a batch: rows of users' tables are locked until it ends */
#define TICK_BATCH		100

typedef enum Batch
{
	BATCH_CHECK,				/* look whether the extension is there */
	BATCH_TICK,
	BATCH_SWEEP
} Batch;

static IdemVisitSlot *slot = NULL;
static emit_log_hook_type former_log = NULL;

/*
 * An emit_log_hook: one poisoned row must not fill the log.
 */
static void
worker_log(ErrorData *error)
{
	if (error->elevel == WARNING)
	{
		if (slot->warnings <= 0)
			error->output_to_server = false;
		else
			slot->warnings--;
	}
	if (former_log != NULL)
		former_log(error);
}

/*
 * Settings of the database that would keep it from its work.
 */
static void
worker_set(void)
{
	static const char *const settings[][2] = {
		{"search_path", "pg_catalog, pg_temp"},
		{"default_transaction_read_only", "off"},
		{"default_transaction_isolation", "read committed"},
		{"default_transaction_deferrable", "off"},
		{"session_replication_role", "origin"},
		{"lock_timeout", "0"},
		{"statement_timeout", "0"},
		{"idle_in_transaction_session_timeout", "0"}
	};

	for (int i = 0; i < lengthof(settings); i++)
		SetConfigOption(settings[i][0], settings[i][1], PGC_SUSET,
						PGC_S_OVERRIDE);
	IDEM_FORGO_TRANSACTION_TIMEOUT();
}

/*
 * The pace of sweeping, which may change while it runs.
 */
static void
worker_set_pace(void)
{
	char		delay[32];

	if (idem_guc_cost_delay < 0)
		return;
	snprintf(delay, sizeof(delay), "%g", idem_guc_cost_delay);
	SetConfigOption("vacuum_cost_delay", delay, PGC_USERSET, PGC_S_OVERRIDE);
}

/*
 * One transaction.  False if somebody else wants the database; else "n" is how
 * much was done, or found.
 */
static bool
worker_batch(Batch batch, int64 *n)
{
	IdemIdentity saved;
	bool		go_on;

	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	go_on = idem_launcher_lock_database(MyDatabaseId);
	if (go_on && batch == BATCH_CHECK)
		*n = idem_release_look(WARNING) ? 1 : 0;
	else if (go_on)
	{
		pgstat_report_activity(STATE_RUNNING, batch == BATCH_TICK ?
							   "idem: firing what is due" :
							   "idem: sweeping what has expired");
		PushActiveSnapshot(GetTransactionSnapshot());
		idem_catalog_become(idem_catalog_owner(IDEM_REL_KEY), &saved);
		if (batch == BATCH_TICK)
			*n = idem_tick_run(NULL, TICK_BATCH,
							   GetCurrentTimestamp() + BATCH_BUDGET);
		else
		{
			/* what a crash brings back is swept again */
			(void) set_config_option("synchronous_commit", "off",
									 PGC_USERSET, PGC_S_SESSION,
									 GUC_ACTION_LOCAL, true, 0, false);
			*n = idem_sweep_run(idem_guc_batch_size,
								GetCurrentTimestamp() + BATCH_BUDGET, NULL);
		}
		idem_catalog_restore(&saved);
		PopActiveSnapshot();
	}
	CommitTransactionCommand();
	/* what a trigger has locked for the session, which is nobody's */
	LockReleaseSession(USER_LOCKMETHOD);
	pgstat_report_stat(true);
	pgstat_report_activity(STATE_IDLE, NULL);
	return go_on;
}

static IdemVisit
worker_visit(void)
{
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz leave_at = now + STAY;
	int64		removed = 0;
	int64		n = 0;
	bool		ticking = true;
	bool		sweeping = true;

	if (!worker_batch(BATCH_CHECK, &n))
		return IDEM_VISIT_ASIDE;
	if (n == 0)
		return IDEM_VISIT_ABSENT;
	/* not for longer either where the clock is set back meanwhile */
	while ((ticking || sweeping) && now < leave_at && now >= leave_at - STAY)
	{
		CHECK_FOR_INTERRUPTS();
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
		}
		worker_set_pace();
		if (idem_guc_workers == 0)
			return IDEM_VISIT_DONE;
		if (ticking)
		{
			TimestampTz began_at = GetCurrentTimestamp();

			if (!worker_batch(BATCH_TICK, &n))
				return IDEM_VISIT_ASIDE;
			/* what others have locked may take long to look through, too */
			ticking = n >= TICK_BATCH ||
				(n > 0 && GetCurrentTimestamp() - began_at >= BATCH_BUDGET);
		}
		if (sweeping)
		{
			TimestampTz began_at = GetCurrentTimestamp();

			if (!worker_batch(BATCH_SWEEP, &n))
				return IDEM_VISIT_ASIDE;
			removed += n;
			sweeping = n >= idem_guc_batch_size ||
				GetCurrentTimestamp() - began_at >= BATCH_BUDGET;
		}
		now = GetCurrentTimestamp();
	}

	/* a large table where little expires is walked without haste */
	return ticking || (sweeping && removed >= idem_guc_batch_size) ?
		IDEM_VISIT_MORE : IDEM_VISIT_DONE;
}

/*
 * A worker's main function; "arg" is its slot.
 */
void
idem_worker_main(Datum arg)
{
	MemoryContext context;

	slot = idem_launcher_slot(DatumGetInt32(arg));
	former_log = emit_log_hook;
	emit_log_hook = worker_log;
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnectionByOid(slot->database, InvalidOid, 0);
	worker_set();

	context = CurrentMemoryContext;
	PG_TRY();
	{
		slot->outcome = worker_visit();
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		HOLD_INTERRUPTS();
		errcontext("idem worker");
		if (!slot->quiet)
			EmitErrorReport();
		AbortOutOfAnyTransaction();
		FlushErrorState();
		slot->outcome = IDEM_VISIT_FAILED;
		RESUME_INTERRUPTS();
	}
	PG_END_TRY();
	proc_exit(0);
}
