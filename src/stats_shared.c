/*
 * stats_shared.c
 *	  Counters and refusals in shared memory.
 *
 * Without preload there is no shared memory, idem_stats_on stays false, and a
 * count is one test of it.  With it, a count is one atomic addition to a row
 * that the session has found before: no lock is taken, and nothing waits for
 * the transaction's end, so what a transaction that rolled back, or a backend
 * that was killed, has counted is counted.  Each row has its counters several
 * times over, so that processors which count the same do not fight for them.
 *
 * The number of rows is bounded by idem.stats_max.  What finds no room is
 * counted in a row of its database that says so, and if there is none even for
 * that, in one for all databases.  Rows of databases that were dropped make
 * room for others then.
 *
 * A row is given back by idem_stats_reset() only.  Sessions remember places of
 * rows; a generation, which each count reads, tells them to look again.  One
 * that has just read it may still add to a row that is given back: the rows
 * that were given back last are used again last, so that it adds to nobody's.
 *
 * Two locks, held for moments and never together: one for names and rows, one
 * for the ring of refusals.  The lock of the rows is taken when a session
 * meets a name for the first time; that of the ring once per refusal, which is
 * an error or a warning and costs a hundred times as much.
 */
#include "postgres.h"

#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/shmem.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "guc.h"
#include "stats_shared.h"

#define TRANCHE			"idem statistics"

/* between two looks for databases that were dropped */
#define CLEAN_INTERVAL	USECS_PER_MINUTE

/* names that a session remembers at most */
#define MAX_REMEMBERED	4096

typedef struct StatsShared
{
	pg_atomic_uint64 generation;

	/* under the lock of the rows */
	int			nfree;
	int			first_free;		/* in the circle of places that are free */
	TimestampTz cleaned_at;

	/* under the lock of the ring */
	uint64		nrefusals;		/* that ever were */
} StatsShared;

typedef struct StatsName
{
	IdemStatsKey key;
	int			place;
} StatsName;

/* what this session remembers of a kind: the name it met last */
typedef struct StatsLast
{
	IdemStatsRow *row;
	Size		len;
	char		name[IDEM_STATS_NAME];
} StatsLast;

typedef struct StatsRemembered
{
	IdemStatsKey key;
	IdemStatsRow *row;
} StatsRemembered;

bool		idem_stats_on = false;

static shmem_request_hook_type former_request = NULL;
static shmem_startup_hook_type former_startup = NULL;

static StatsShared *shared = NULL;
static HTAB *names = NULL;
static IdemStatsRow *rows = NULL;	/* stats_max of them, and one for all */
static int *free_places = NULL;
static IdemKeptRefusal *ring = NULL;
static LWLock *rows_lock = NULL;
static LWLock *ring_lock = NULL;

static uint64 generation = 0;
static StatsLast last[IDEM_STATS_NKINDS];
static HTAB *remembered = NULL;

static Size
stats_rows_size(void)
{
	return mul_size(idem_guc_stats_max + 1, sizeof(IdemStatsRow));
}

static void
stats_request(void)
{
	if (former_request != NULL)
		former_request();
	RequestAddinShmemSpace(MAXALIGN(sizeof(StatsShared)));
	RequestAddinShmemSpace(MAXALIGN(stats_rows_size()));
	RequestAddinShmemSpace(MAXALIGN(mul_size(idem_guc_stats_max, sizeof(int))));
	RequestAddinShmemSpace(MAXALIGN(mul_size(idem_guc_refusals_max,
											 sizeof(IdemKeptRefusal))));
	RequestAddinShmemSpace(hash_estimate_size(idem_guc_stats_max,
											  sizeof(StatsName)));
	RequestNamedLWLockTranche(TRANCHE, 2);
}

static void
stats_init_row(IdemStatsRow *row)
{
	for (int i = 0; i < IDEM_NGAUGES; i++)
		pg_atomic_init_u64(&row->gauges[i], 0);
	for (int i = 0; i < IDEM_STATS_STRIPES; i++)
	{
		for (int j = 0; j < IDEM_NCOUNTERS; j++)
			pg_atomic_init_u64(&row->stripes[i].counters[j], 0);
	}
}

static void
stats_startup(void)
{
	HASHCTL		ctl = {.keysize = sizeof(IdemStatsKey),.entrysize = sizeof(StatsName)};
	LWLockPadded *locks;
	bool		found;
	bool		found_rows;

	if (former_startup != NULL)
		former_startup();

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	locks = GetNamedLWLockTranche(TRANCHE);
	rows_lock = &locks[0].lock;
	ring_lock = &locks[1].lock;
	shared = ShmemInitStruct("idem statistics", sizeof(StatsShared), &found);
	rows = ShmemInitStruct("idem statistics rows", stats_rows_size(),
						   &found_rows);
	free_places = ShmemInitStruct("idem statistics free places",
								  mul_size(idem_guc_stats_max, sizeof(int)),
								  &found_rows);
	ring = ShmemInitStruct("idem refusals",
						   mul_size(idem_guc_refusals_max,
									sizeof(IdemKeptRefusal)), &found_rows);
	names = ShmemInitHash("idem statistics names", idem_guc_stats_max,
						  idem_guc_stats_max, &ctl, HASH_ELEM | HASH_BLOBS);
	if (!found)
	{
		memset(shared, 0, sizeof(StatsShared));
		memset(rows, 0, stats_rows_size());
		pg_atomic_init_u64(&shared->generation, 1);
		for (int i = 0; i <= idem_guc_stats_max; i++)
			stats_init_row(&rows[i]);
		for (int i = 0; i < idem_guc_stats_max; i++)
			free_places[i] = i;
		shared->nfree = idem_guc_stats_max;

		/* of all databases, for what finds no room at all */
		rows[idem_guc_stats_max].used = true;
		rows[idem_guc_stats_max].key.kind = IDEM_STATS_OTHERS;
		rows[idem_guc_stats_max].since = GetCurrentTimestamp();
	}
	LWLockRelease(AddinShmemInitLock);
	idem_stats_on = true;
}

/*
 * Asks for shared memory, if the library is preloaded.
 */
void
idem_stats_init(void)
{
	if (!process_shared_preload_libraries_in_progress)
		return;
	former_request = shmem_request_hook;
	shmem_request_hook = stats_request;
	former_startup = shmem_startup_hook;
	shmem_startup_hook = stats_startup;
}

/*
 * Gives the name a row, if it has none and there is room; under the lock.
 */
static IdemStatsRow *
stats_make_row(const IdemStatsKey *key)
{
	StatsName  *name = hash_search(names, key, HASH_FIND, NULL);
	IdemStatsRow *row;

	if (name != NULL)
		return &rows[name->place];
	if (shared->nfree == 0)
		return NULL;
	name = hash_search(names, key, HASH_ENTER_NULL, NULL);
	if (name == NULL)
		return NULL;
	name->place = free_places[shared->first_free];
	shared->first_free = (shared->first_free + 1) % idem_guc_stats_max;
	shared->nfree--;

	row = &rows[name->place];
	stats_init_row(row);
	row->key = *key;
	row->since = GetCurrentTimestamp();
	row->used = true;
	return row;
}

/*
 * Takes the row away from its name; under the lock.
 */
static void
stats_give_back(int place)
{
	hash_search(names, &rows[place].key, HASH_REMOVE, NULL);
	rows[place].used = false;
	free_places[(shared->first_free + shared->nfree) % idem_guc_stats_max] =
		place;
	shared->nfree++;
}

/*
 * Gives back the rows of databases that are not there any more; of who counts,
 * only now and then.
 */
static void
stats_clean(bool at_once)
{
	TimestampTz now = GetCurrentTimestamp();
	Oid		   *databases;
	int			n = 0;
	bool		due;

	if (!IsTransactionState())
		return;
	databases = palloc(idem_guc_stats_max * sizeof(Oid));
	LWLockAcquire(rows_lock, LW_EXCLUSIVE);
	due = at_once || now - shared->cleaned_at >= CLEAN_INTERVAL;
	if (due)
		shared->cleaned_at = now;
	for (int i = 0; due && i < idem_guc_stats_max; i++)
	{
		Oid			database = rows[i].key.database;
		bool		again = false;

		for (int j = 0; j < n && !again; j++)
			again = databases[j] == database;
		if (rows[i].used && !again)
			databases[n++] = database;
	}
	LWLockRelease(rows_lock);

	for (int i = 0; i < n; i++)
	{
		if (SearchSysCacheExists1(DATABASEOID, ObjectIdGetDatum(databases[i])))
			continue;
		LWLockAcquire(rows_lock, LW_EXCLUSIVE);
		for (int j = 0; j < idem_guc_stats_max; j++)
		{
			if (rows[j].used && rows[j].key.database == databases[i])
				stats_give_back(j);
		}
		pg_atomic_fetch_add_u64(&shared->generation, 1);
		LWLockRelease(rows_lock);
	}
	pfree(databases);
}

/*
 * The row of a name, from shared memory.
 */
static IdemStatsRow *
stats_look_up(const IdemStatsKey *key)
{
	IdemStatsKey others = {.database = key->database,.kind = IDEM_STATS_OTHERS};
	IdemStatsRow *row = NULL;
	StatsName  *name;

	LWLockAcquire(rows_lock, LW_SHARED);
	name = hash_search(names, key, HASH_FIND, NULL);
	if (name != NULL)
		row = &rows[name->place];
	LWLockRelease(rows_lock);
	if (row != NULL)
		return row;

	for (int i = 0; i < 2 && row == NULL; i++)
	{
		if (i > 0)
			stats_clean(false);
		LWLockAcquire(rows_lock, LW_EXCLUSIVE);
		/* with the first row goes one for those that will find no room */
		(void) stats_make_row(&others);
		row = stats_make_row(key);
		LWLockRelease(rows_lock);
	}
	if (row == NULL)
	{
		LWLockAcquire(rows_lock, LW_SHARED);
		name = hash_search(names, &others, HASH_FIND, NULL);
		row = &rows[name != NULL ? name->place : idem_guc_stats_max];
		LWLockRelease(rows_lock);
	}
	return row;
}

/*
 * Forgets places that may have been given back.
 */
static void
stats_follow_generation(void)
{
	uint64		current = pg_atomic_read_u64(&shared->generation);

	if (current == generation)
		return;
	generation = current;
	memset(last, 0, sizeof(last));
	if (remembered != NULL)
		hash_destroy(remembered);
	remembered = NULL;
}

/*
 * The row of a name.  Of a scope it is the name without the tenant that
 * counts.  A name that is too long is cut.
 */
IdemStatsRow *
idem_stats_row(IdemStatsKind kind, const char *name, Size len)
{
	StatsLast  *met = &last[kind];
	StatsRemembered *known;
	IdemStatsKey key;
	const char *slash;
	bool		found;

	stats_follow_generation();
	name = len > 0 ? name : "";
	len = Min(len, IDEM_STATS_NAME - 1);
	if (met->row != NULL && met->len == len &&
		memcmp(met->name, name, len) == 0)
		return met->row;

	memset(&key, 0, sizeof(key));
	key.database = MyDatabaseId;
	key.kind = kind;
	memcpy(key.name, name, len);
	slash = kind == IDEM_STATS_SCOPE ? strchr(key.name, '/') : NULL;
	if (slash != NULL)
		memset(key.name + (slash - key.name), 0,
			   IDEM_STATS_NAME - (slash - key.name));

	if (remembered != NULL &&
		hash_get_num_entries(remembered) >= MAX_REMEMBERED)
	{
		hash_destroy(remembered);
		remembered = NULL;
	}
	if (remembered == NULL)
	{
		HASHCTL		ctl = {
			.keysize = sizeof(IdemStatsKey),
			.entrysize = sizeof(StatsRemembered),
			.hcxt = TopMemoryContext
		};

		remembered = hash_create("idem statistics", 32, &ctl,
								 HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	}
	known = hash_search(remembered, &key, HASH_FIND, NULL);
	if (known == NULL)
	{
		IdemStatsRow *row = stats_look_up(&key);

		known = hash_search(remembered, &key, HASH_ENTER, &found);
		known->row = row;
	}
	memcpy(met->name, name, len);
	met->len = len;
	met->row = known->row;
	return met->row;
}

void
idem_stats_add(IdemStatsRow *row, IdemCounter counter, int64 n)
{
	IdemStripe *stripe = &row->stripes[MyProcPid % IDEM_STATS_STRIPES];

	pg_atomic_fetch_add_u64(&stripe->counters[counter], n);
}

void
idem_stats_set(IdemStatsRow *row, IdemGauge gauge, int64 value)
{
	pg_atomic_write_u64(&row->gauges[gauge], (uint64) value);
}

int64
idem_stats_get(IdemStatsRow *row, IdemGauge gauge)
{
	return (int64) pg_atomic_read_u64(&row->gauges[gauge]);
}

int64
idem_stats_sum(IdemStatsRow *row, IdemCounter counter)
{
	int64		sum = 0;

	for (int i = 0; i < IDEM_STATS_STRIPES; i++)
		sum += (int64) pg_atomic_read_u64(&row->stripes[i].counters[counter]);
	return sum;
}

/*
 * Counts the answer to a claim, and how many microseconds it slept.
 */
void
idem_stats_count_claim(text *scope, IdemOutcome outcome, int64 waited)
{
	static const IdemCounter counters[] = {
		[IDEM_OUT_CLAIMED] = IDEM_COUNT_CLAIMS,
		[IDEM_OUT_TAKEOVER] = IDEM_COUNT_TAKEOVERS,
		[IDEM_OUT_COMPLETED] = IDEM_COUNT_REPLAYS,
		[IDEM_OUT_FAILED] = IDEM_COUNT_FAILURES,
		[IDEM_OUT_IN_PROGRESS] = IDEM_COUNT_IN_PROGRESS,
		[IDEM_OUT_MISMATCH] = IDEM_COUNT_MISMATCHES
	};
	IdemStatsRow *row = idem_stats_row(IDEM_STATS_SCOPE, VARDATA_ANY(scope),
									   VARSIZE_ANY_EXHDR(scope));

	idem_stats_add(row, counters[outcome], 1);
	if (waited > 0)
	{
		idem_stats_add(row, IDEM_COUNT_WAITS, 1);
		idem_stats_add(row, IDEM_COUNT_WAIT_USECS, waited);
	}
}

/*
 * A string as far as there is room, whole characters of it.  False if there is
 * none.
 */
static bool
stats_keep_string(char *to, Size room, const char *from)
{
	int			len;

	if (from == NULL)
		return false;
	len = pg_mbcliplen(from, strlen(from), room - 1);
	memcpy(to, from, len);
	to[len] = '\0';
	return true;
}

/*
 * Counts a refusal and keeps it.  To be called before the error is raised.
 */
void
idem_stats_count_refusal(const IdemRefusal *refusal)
{
	IdemKeptRefusal kept;
	char	   *role;
	char	   *table = NULL;

	idem_stats_counted(refusal->kind, refusal->name,
					   refusal->observed ? IDEM_COUNT_OBSERVED :
					   refusal->counter);
	if (idem_guc_refusals_max == 0)
		return;

	memset(&kept, 0, sizeof(kept));
	kept.at = GetCurrentTimestamp();
	kept.database = MyDatabaseId;
	kept.kind = refusal->kind;
	kept.counter = refusal->counter;
	kept.observed = refusal->observed;
	kept.sqlerrcode = refusal->sqlerrcode;
	role = GetUserNameFromId(GetUserId(), true);
	(void) stats_keep_string(kept.role, sizeof(kept.role), role);
	if (OidIsValid(refusal->relid) && get_rel_name(refusal->relid) != NULL)
	{
		char	   *schema = get_namespace_name(get_rel_namespace(refusal->relid));

		table = quote_qualified_identifier(schema,
										   get_rel_name(refusal->relid));
	}
	(void) stats_keep_string(kept.table, sizeof(kept.table), table);
	(void) stats_keep_string(kept.name, sizeof(kept.name), refusal->name);
	kept.has_from = stats_keep_string(kept.from, sizeof(kept.from),
									  refusal->from);
	kept.has_to = stats_keep_string(kept.to, sizeof(kept.to), refusal->to);
	kept.has_event = stats_keep_string(kept.event, sizeof(kept.event),
									   refusal->event);

	LWLockAcquire(ring_lock, LW_EXCLUSIVE);
	ring[shared->nrefusals % idem_guc_refusals_max] = kept;
	shared->nrefusals++;
	LWLockRelease(ring_lock);
}

/*
 * The rows of this database and the one of all, in no order.
 */
int
idem_stats_copy_rows(IdemStatsRow ***found)
{
	IdemStatsRow **copy = palloc((idem_guc_stats_max + 1) *
								 sizeof(IdemStatsRow *));
	int			n = 0;

	stats_clean(true);
	LWLockAcquire(rows_lock, LW_SHARED);
	for (int i = 0; i <= idem_guc_stats_max; i++)
	{
		if (!rows[i].used || (i < idem_guc_stats_max &&
							  rows[i].key.database != MyDatabaseId))
			continue;
		copy[n] = palloc(sizeof(IdemStatsRow));
		memcpy(copy[n++], &rows[i], sizeof(IdemStatsRow));
	}
	LWLockRelease(rows_lock);
	*found = copy;
	return n;
}

/*
 * This database's refusals, the latest first.
 */
int
idem_stats_copy_refusals(IdemKeptRefusal **refusals)
{
	uint64		nkept;
	int			n = 0;

	*refusals = palloc_extended(Max(idem_guc_refusals_max, 1) *
								sizeof(IdemKeptRefusal), MCXT_ALLOC_HUGE);
	LWLockAcquire(ring_lock, LW_SHARED);
	nkept = Min(shared->nrefusals, idem_guc_refusals_max);
	for (uint64 i = 1; i <= nkept; i++)
	{
		IdemKeptRefusal *kept = &ring[(shared->nrefusals - i) %
									  idem_guc_refusals_max];

		if (kept->database == MyDatabaseId)
			(*refusals)[n++] = *kept;
	}
	LWLockRelease(ring_lock);
	return n;
}

/*
 * Forgets all that was counted and kept for this database.  What a sweep has
 * found out about its round stays.
 */
void
idem_stats_forget(void)
{
	LWLockAcquire(rows_lock, LW_EXCLUSIVE);
	for (int i = 0; i < idem_guc_stats_max; i++)
	{
		IdemStatsRow *row = &rows[i];

		if (!row->used || row->key.database != MyDatabaseId)
			continue;
		if (row->key.kind != IDEM_STATS_SWEEP)
		{
			stats_give_back(i);
			continue;
		}
		row->since = GetCurrentTimestamp();
		for (int j = 0; j < IDEM_STATS_STRIPES; j++)
		{
			for (int k = 0; k < IDEM_NCOUNTERS; k++)
				pg_atomic_write_u64(&row->stripes[j].counters[k], 0);
		}
	}
	pg_atomic_fetch_add_u64(&shared->generation, 1);
	LWLockRelease(rows_lock);

	LWLockAcquire(ring_lock, LW_EXCLUSIVE);
	for (int i = 0; i < idem_guc_refusals_max; i++)
	{
		if (ring[i].database == MyDatabaseId)
			ring[i].database = InvalidOid;
	}
	LWLockRelease(ring_lock);
}
