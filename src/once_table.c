/*
 * once_table.c
 *	  A table that skips repeated inserts: its triggers, and what they mark.
 *
 * Four triggers, made by idem_attach_once() and cloned to every partition:
 *
 * ~idem_once		before the insert of a row, as late as names allow: marks
 *					the row's key in idem.key, or skips the row where the key
 *					is spent.
 * ~idem_once_done	after the insert of a row, for its WHEN clause only.  That
 *					is evaluated as soon as the row is in the table, and is
 *					never true: so every mark is confirmed at once, and no
 *					event is queued.  A function called there would need to be
 *					granted to whoever inserts; a type's input function does
 *					not, so the clause is a cast of (tableoid, ctid) to type
 *					idem_inserted.
 * ~idem_once_end	after the statement: takes back the marks of rows that were
 *					not inserted after all.
 * ~idem_once_move	before update and delete of a row of a partitioned table:
 *					an update that moves a row to another partition runs it for
 *					both, of the same row, and then inserts.
 *
 * The race between sessions is the registry's: a mark is a completed row of
 * idem.key that this transaction inserted, so that a twin sleeps until we
 * commit, and then skips its row, or roll back, and then has the key.  Exactly
 * one of them inserts its row.  Nobody else can change our mark before that.
 *
 * What remains is between the mark and the row's insertion, in one session.
 * The row may be dropped (ON CONFLICT DO NOTHING, a later trigger), so a mark
 * is pending until it is confirmed, and the invariant is: when the transaction
 * commits, no mark of it is pending.  Pending marks are deleted after the
 * statement if its table is the one that the statement names, else (a
 * statement that names a partition fires no trigger of the root's, and many
 * statements that drop one key would leave many dead rows of it) before commit
 * or prepare, or when there are many.  A row that meets a pending mark
 * of its own transaction, whose row is not under way, takes it over.
 *
 * Between the mark of a row and its confirmation other rows can come, from
 * statements in later triggers or in functions of constraints and indexes.
 * Rows under way are a stack by trigger depth, and a confirmation belongs to
 * the topmost row if depth and relation agree and no mark of this transaction
 * was ever left pending.  If one was ("doubt"), or if a later trigger may have
 * changed the row, the inserted row is read and its key compared.  A row that
 * turns out to have no mark is given one then; where its key is spent, that is
 * an error, because the row is already there.
 *
 * Subtransactions: a mark belongs to the one that wrote it, and is settled
 * (confirmed, taken over or deleted) by the one that did that; the rollback of
 * the first forgets the mark, that of the second makes it pending again.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "commands/trigger.h"
#include "common/hashfn.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "catalog.h"
#include "compat.h"
#include "errors.h"
#include "once.h"

PG_FUNCTION_INFO_V1(idem_once_row);
PG_FUNCTION_INFO_V1(idem_inserted_in);
PG_FUNCTION_INFO_V1(idem_inserted_out);

/* pending marks are deleted when there are more than so many */
#define MANY_MARKS		1000

/* so many statements of a transaction take their marks back at once */
#define MANY_RELEASES	100

/* after so many new keys in one transaction the next is taken to be new */
#define SURELY_NEW		8

typedef struct OnceMark
{
	const IdemOnceTable *table;
	text	   *key;
	ItemPointerData tid;
	uint64		tid_epoch;
	SubTransactionId made_in;
	SubTransactionId settled_in;	/* invalid: pending */
	struct OnceMark *former;	/* of the same key, settled before this one */
} OnceMark;

typedef struct MarkName
{
	text	   *scope;
	text	   *key;
} MarkName;

typedef struct MarkEntry
{
	MarkName	name;
	uint32		hash;
	char		status;			/* simplehash's own */
	OnceMark   *mark;
} MarkEntry;

static inline uint32
mark_hash(MarkName name)
{
	return hash_combine(hash_bytes((unsigned char *) VARDATA_ANY(name.scope),
								   VARSIZE_ANY_EXHDR(name.scope)),
						hash_bytes((unsigned char *) VARDATA_ANY(name.key),
								   VARSIZE_ANY_EXHDR(name.key)));
}

static inline bool
mark_text_equal(text *a, text *b)
{
	return VARSIZE_ANY_EXHDR(a) == VARSIZE_ANY_EXHDR(b) &&
		memcmp(VARDATA_ANY(a), VARDATA_ANY(b), VARSIZE_ANY_EXHDR(a)) == 0;
}

#define SH_PREFIX marktable
#define SH_ELEMENT_TYPE MarkEntry
#define SH_KEY_TYPE MarkName
#define SH_KEY name
#define SH_HASH_KEY(tb, k) mark_hash(k)
#define SH_EQUAL(tb, a, b) \
	(mark_text_equal((a).key, (b).key) && \
	 mark_text_equal((a).scope, (b).scope))
#define SH_STORE_HASH
#define SH_GET_HASH(tb, e) (e)->hash
#define SH_SCOPE static inline
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

typedef enum RowKind
{
	ROW_MARKED,					/* waits for its confirmation */
	ROW_EXEMPT,					/* has no key */
	ROW_MOVING,					/* left its partition, not yet in another */
	ROW_MOVED					/* has left, and comes in here */
} RowKind;

/* a row under way between its BEFORE triggers and its place in the table */
typedef struct OnceRow
{
	RowKind		kind;
	int			depth;			/* of the trigger that saw it */
	SubTransactionId subid;
	Oid			relid;
	bool		is_final;		/* no later trigger sees it */
	OnceMark   *mark;			/* of a marked one */
	uint32		hash;			/* of the key of a moved one */
} OnceRow;

/* per statement and partition: the row whose update was seen last */
typedef struct OnceUpdate
{
	ItemPointerData tid;
} OnceUpdate;

/* marks live in TopTransactionContext and are forgotten with it */
static marktable_hash *marks = NULL;
static int	nmarks = 0;
static int	npending = 0;
static int	nreleases = 0;
static int	new_keys = 0;		/* since the last that was not */
static bool doubt = false;

/* the registry, kept open from row to row */
static IdemStore kept;
static bool kept_open = false;
static SubTransactionId kept_in;

static OnceRow *rows = NULL;
static int	nrows = 0;
static int	maxrows = 0;

static int
once_depth(void)
{
	return DatumGetInt32(pg_trigger_depth(NULL));
}

static uint32
once_hash_key(text *key)
{
	return hash_bytes((unsigned char *) VARDATA_ANY(key),
					  VARSIZE_ANY_EXHDR(key));
}

/*
 * Inserts the registry's row of a key without looking first.  False if there
 * may be one already.
 */
static bool
once_mark_blindly(IdemStore *store, const IdemOnceTable *table, text *key,
				  ItemPointer tid)
{
	TimestampTz now = GetCurrentTimestamp();
	IdemRow		row;

	idem_row_start(&row, table->scope.name, key, now);
	idem_row_set_state(&row, IDEM_COMPLETED);
	if (table->has_ttl)
		idem_row_set(&row, IDEM_COL_TTL, IntervalPGetDatum(&table->ttl));
	idem_row_set(&row, IDEM_COL_FINISHED_AT, TimestampTzGetDatum(now));
	idem_row_set_expiry(&row, &table->scope, now);
	if (idem_store_insert(store, &row, &idem_wait_forever) != IDEM_STORE_OK)
		return false;
	*tid = row.tid;
	return true;
}

/*
 * Records a key as spent, unless it is; sleeps behind another's uncommitted
 * mark.  Gives the place of the row that was written.
 *
 * After some keys that were new it is taken that the next one is new as well,
 * which saves every second descent of a bulk load.  Where it is not, a dead
 * row is left.
 */
IdemOutcome
idem_once_mark(IdemStore *store, const IdemOnceTable *table, text *key,
			   ItemPointer tid)
{
	IdemRequest request = {
		.verb = "INSERT",
		.key = key,
		.scope = &table->scope,
		.once = true,
		.ttl = table->has_ttl ? &table->ttl : NULL,
		.wait = idem_wait_forever
	};
	IdemVerdict verdict;

	PreventCommandIfReadOnly("INSERT");
	if (new_keys >= SURELY_NEW &&
		idem_claims_find(table->scope.name, key) == NULL &&
		once_mark_blindly(store, table, key, tid))
		return IDEM_OUT_CLAIMED;
	idem_registry_claim(store, &request, &verdict);
	new_keys = IDEM_OUTCOME_RUNS(verdict.outcome) ? new_keys + 1 : 0;
	if (!IDEM_OUTCOME_RUNS(verdict.outcome) &&
		verdict.outcome != IDEM_OUT_COMPLETED)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_CONFLICT),
				 errmsg("idem key of a row is held or has failed"),
				 errdetail("In scope \"%s\" it was claimed by other means than an insert.",
						   text_to_cstring(table->scope.name)),
				 errhidestmt(true)));
	*tid = verdict.row.tid;
	return verdict.outcome;
}

/*
 * Closes the registry if it was kept open for the rows of a statement.
 */
static void
once_close_kept(void)
{
	ResourceOwner owner = CurrentResourceOwner;

	if (!kept_open)
		return;
	kept_open = false;
	CurrentResourceOwner = kept.owner;
	idem_store_close(&kept);
	CurrentResourceOwner = owner;
	MemoryContextDelete(kept.context);
}

/*
 * The end of the statement's memory.  After an error everything is released
 * with the (sub)transaction.
 */
static void
once_statement_ends(void *arg)
{
	if (IsTransactionState())
		once_close_kept();
}

/*
 * Marks a key for a trigger.  The registry stays open until the end of the
 * statement, in the (sub)transaction that opened it; another one uses its own.
 */
static IdemOutcome
once_mark(const IdemOnceTable *table, text *key, ItemPointer tid)
{
	ResourceOwner owner = CurrentResourceOwner;
	IdemOutcome outcome;
	IdemStore	store;

	if (!kept_open)
	{
		MemoryContext context = AllocSetContextCreate(TopTransactionContext,
													  "idem once registry",
													  ALLOCSET_DEFAULT_SIZES);
		MemoryContext caller = MemoryContextSwitchTo(context);

		CurrentResourceOwner = CurTransactionResourceOwner;
		idem_store_open(&kept, RowExclusiveLock);
		CurrentResourceOwner = owner;
		MemoryContextSwitchTo(caller);
		kept_in = GetCurrentSubTransactionId();
		kept_open = true;
	}
	if (kept_in == GetCurrentSubTransactionId())
	{
		CurrentResourceOwner = kept.owner;
		outcome = idem_once_mark(&kept, table, key, tid);
		CurrentResourceOwner = owner;
		return outcome;
	}

	idem_store_open(&store, RowExclusiveLock);
	outcome = idem_once_mark(&store, table, key, tid);
	idem_store_close(&store);
	return outcome;
}

static OnceMark *
mark_find(const IdemOnceTable *table, text *key)
{
	MarkName	name = {.scope = table->scope.name,.key = key};
	MarkEntry  *entry = marks != NULL ? marktable_lookup(marks, name) : NULL;

	return entry != NULL ? entry->mark : NULL;
}

static bool
mark_is_pending(const OnceMark *mark)
{
	return mark->settled_in == InvalidSubTransactionId;
}

static void
mark_remove(OnceMark *mark)
{
	MarkName	name = {.scope = mark->table->scope.name,.key = mark->key};
	MarkEntry  *entry = marktable_lookup(marks, name);
	OnceMark  **link = &entry->mark;

	while (*link != mark)
		link = &(*link)->former;
	*link = mark->former;
	if (entry->mark != NULL)
		entry->name.key = entry->mark->key;
	else
		marktable_delete(marks, name);
	pfree(mark->key);
	pfree(mark);
	nmarks--;
}

/*
 * A mark is no longer pending, as far as the current subtransaction goes.
 */
static void
mark_settle(OnceMark *mark)
{
	npending--;
	mark->settled_in = GetCurrentSubTransactionId();
	if (mark->settled_in == mark->made_in)
		mark_remove(mark);
}

/*
 * Enters a mark that was just written.  A former one of the same key, which
 * was deleted in the meantime, stays behind it, for it may come back.
 */
static OnceMark *
mark_enter(const IdemOnceTable *table, text *key, ItemPointer tid)
{
	Size		size = VARSIZE_ANY(key);
	MarkName	name;
	MarkEntry  *entry;
	OnceMark   *mark;
	bool		found;

	mark = mark_find(table, key);
	if (mark != NULL && mark_is_pending(mark))
		mark_settle(mark);

	if (marks == NULL)
		marks = marktable_create(TopTransactionContext, 64, NULL);
	mark = MemoryContextAllocZero(TopTransactionContext, sizeof(OnceMark));
	mark->key = memcpy(MemoryContextAlloc(TopTransactionContext, size),
					   key, size);
	mark->table = table;
	mark->tid = *tid;
	mark->tid_epoch = idem_catalog_epoch(IDEM_REL_KEY);
	mark->made_in = GetCurrentSubTransactionId();
	mark->settled_in = InvalidSubTransactionId;

	name.scope = table->scope.name;
	name.key = mark->key;
	entry = marktable_insert(marks, name, &found);
	mark->former = found ? entry->mark : NULL;
	entry->name = name;
	entry->mark = mark;
	nmarks++;
	npending++;
	return mark;
}

static bool
mark_is_under_way(const OnceMark *mark)
{
	for (int i = 0; i < nrows; i++)
	{
		if (rows[i].kind == ROW_MARKED && rows[i].mark == mark)
			return true;
	}
	return false;
}

/*
 * Deletes the registry's row of a pending mark.
 */
static void
mark_release(IdemStore *store, OnceMark *mark)
{
	text	   *scope = mark->table->scope.name;
	IdemRow		row;
	bool		there = false;

	if (mark->tid_epoch == idem_catalog_epoch(IDEM_REL_KEY))
		there = idem_store_read_at(store, &mark->tid, scope, mark->key, &row);
	if (!there)
		there = idem_store_read(store, scope, mark->key, true, &row);
	if (there)
		(void) idem_store_delete(store, &row, &idem_wait_forever);
	mark_settle(mark);
}

/*
 * Deletes every pending mark whose row is not under way.
 */
static void
marks_release(void)
{
	IdemStore	store;
	marktable_iterator iterator;
	MarkEntry  *entry;
	OnceMark  **pending;
	int			n = 0;
	bool		pushed = false;

	if (npending == 0)
		return;

	pending = palloc(npending * sizeof(OnceMark *));
	marktable_start_iterate(marks, &iterator);
	while ((entry = marktable_iterate(marks, &iterator)) != NULL)
	{
		if (mark_is_pending(entry->mark) && !mark_is_under_way(entry->mark))
			pending[n++] = entry->mark;
	}

	if (n > 0)
	{
		if (!ActiveSnapshotSet())
		{
			PushActiveSnapshot(GetTransactionSnapshot());
			pushed = true;
		}
		idem_store_open(&store, RowExclusiveLock);
		for (int i = 0; i < n; i++)
		{
			CHECK_FOR_INTERRUPTS();
			mark_release(&store, pending[i]);
		}
		idem_store_close(&store);
		if (pushed)
			PopActiveSnapshot();
	}
	pfree(pending);
}

static void
once_at_xact(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
		case XACT_EVENT_PRE_PREPARE:
			nrows = 0;
			once_close_kept();
			marks_release();
			break;
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PREPARE:
			marks = NULL;
			nmarks = 0;
			npending = 0;
			nreleases = 0;
			new_keys = 0;
			nrows = 0;
			doubt = false;
			kept_open = false;
			break;
		default:
			break;
	}
}

/*
 * The marks that the end of a subtransaction concerns.
 */
static void
marks_at_subxact(bool committed, SubTransactionId subid,
				 SubTransactionId parent)
{
	marktable_iterator iterator;
	MarkEntry  *entry;
	OnceMark  **gone;
	int			n = 0;

	gone = MemoryContextAlloc(TopTransactionContext,
							  nmarks * sizeof(OnceMark *));
	marktable_start_iterate(marks, &iterator);
	while ((entry = marktable_iterate(marks, &iterator)) != NULL)
	{
		for (OnceMark *mark = entry->mark; mark != NULL; mark = mark->former)
		{
			bool		undone = !committed && mark->made_in == subid;

			if (mark->made_in == subid)
				mark->made_in = parent;
			if (mark->settled_in == subid)
			{
				mark->settled_in = committed ? parent : InvalidSubTransactionId;
				if (!committed)
					npending++;
			}
			if (undone && mark_is_pending(mark))
				npending--;
			if (undone || mark->settled_in == mark->made_in)
				gone[n++] = mark;
		}
	}
	for (int i = 0; i < n; i++)
		mark_remove(gone[i]);
	pfree(gone);
}

static void
once_at_subxact(SubXactEvent event, SubTransactionId subid,
				SubTransactionId parent, void *arg)
{
	bool		committed = event == SUBXACT_EVENT_COMMIT_SUB;

	if (kept_open && kept_in == subid)
	{
		if (event == SUBXACT_EVENT_PRE_COMMIT_SUB)
			once_close_kept();
		else if (event == SUBXACT_EVENT_ABORT_SUB)
			kept_open = false;
	}
	if (!committed && event != SUBXACT_EVENT_ABORT_SUB)
		return;

	while (nrows > 0 && rows[nrows - 1].subid == subid)
	{
		nrows--;
		doubt = true;
	}
	if (nmarks > 0)
		marks_at_subxact(committed, subid, parent);
}

static void
once_register(void)
{
	static bool registered = false;

	if (registered)
		return;
	RegisterXactCallback(once_at_xact, NULL);
	RegisterSubXactCallback(once_at_subxact, NULL);
	registered = true;
}

static OnceRow *
rows_push(RowKind kind, int depth, Relation rel, bool is_final)
{
	OnceRow    *row;

	if (nrows == maxrows)
	{
		int			size = Max(maxrows * 2, 8);

		if (rows == NULL)
			rows = MemoryContextAlloc(TopMemoryContext, size * sizeof(OnceRow));
		else
			rows = repalloc(rows, size * sizeof(OnceRow));
		maxrows = size;
	}
	row = &rows[nrows++];
	memset(row, 0, sizeof(OnceRow));
	row->kind = kind;
	row->depth = depth;
	row->subid = GetCurrentSubTransactionId();
	row->relid = RelationGetRelid(rel);
	row->is_final = is_final;
	return row;
}

/*
 * Forgets rows at this depth and below that will not come any more.
 */
static void
rows_unwind(int depth)
{
	while (nrows > 0 && rows[nrows - 1].depth >= depth)
	{
		nrows--;
		doubt = true;
	}
}

/*
 * Before the insert: the row as it is, or NULL to skip it.
 */
static HeapTuple
once_before_insert(TriggerData *trigdata, FmgrInfo *flinfo)
{
	Relation	rel = trigdata->tg_relation;
	HeapTuple	tuple = trigdata->tg_trigtuple;
	IdemOnceTable *table = idem_once_table(rel);
	int			depth = once_depth();
	bool		moving = false;
	text	   *key;
	OnceMark   *mark;
	ItemPointerData tid;

	if (flinfo->fn_extra == NULL)
	{
		MemoryContextCallback *end;

		end = MemoryContextAllocZero(flinfo->fn_mcxt,
									 sizeof(MemoryContextCallback));
		end->func = once_statement_ends;
		MemoryContextRegisterResetCallback(flinfo->fn_mcxt, end);
		flinfo->fn_extra = end;
	}

	if (nrows > 0 && rows[nrows - 1].depth == depth &&
		rows[nrows - 1].kind == ROW_MOVING)
	{
		moving = true;
		nrows--;
	}
	rows_unwind(depth);

	key = idem_once_key(table, tuple, RelationGetDescr(rel));
	if (key == NULL)
	{
		rows_push(ROW_EXEMPT, depth, rel, table->is_last);
		return tuple;
	}
	if (moving)
	{
		rows_push(ROW_MOVED, depth, rel, true)->hash = once_hash_key(key);
		return tuple;
	}

	if (npending > MANY_MARKS)
		marks_release();
	if (IDEM_OUTCOME_RUNS(once_mark(table, key, &tid)))
		mark = mark_enter(table, key, &tid);
	else
	{
		mark = mark_find(table, key);
		if (mark == NULL || !mark_is_pending(mark) || mark_is_under_way(mark))
			return NULL;
	}
	rows_push(ROW_MARKED, depth, rel, table->is_last)->mark = mark;
	return tuple;
}

/*
 * Before an update or delete in a partitioned table: notices a row that is
 * deleted by the very update that was just seen.
 */
static HeapTuple
once_before_move(TriggerData *trigdata, FmgrInfo *flinfo)
{
	OnceUpdate *update = (OnceUpdate *) flinfo->fn_extra;
	ItemPointer tid = &trigdata->tg_trigtuple->t_self;
	int			depth = once_depth();

	if (update == NULL)
	{
		update = MemoryContextAllocZero(flinfo->fn_mcxt, sizeof(OnceUpdate));
		ItemPointerSetInvalid(&update->tid);
		flinfo->fn_extra = update;
	}
	rows_unwind(depth);
	if (TRIGGER_FIRED_BY_UPDATE(trigdata->tg_event))
	{
		update->tid = *tid;
		return trigdata->tg_newtuple;
	}
	if (ItemPointerIsValid(&update->tid) &&
		ItemPointerEquals(&update->tid, tid))
		rows_push(ROW_MOVING, depth, trigdata->tg_relation, false);
	ItemPointerSetInvalid(&update->tid);
	return trigdata->tg_trigtuple;
}

/*
 * idem_once_row() -> trigger: all four of them.
 */
Datum
idem_once_row(PG_FUNCTION_ARGS)
{
	TriggerData *trigdata = (TriggerData *) fcinfo->context;
	HeapTuple	result = NULL;

	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function must be called as a trigger"),
				 errhint("Call idem_attach_once() to create its triggers.")));
	once_register();

	if (TRIGGER_FIRED_FOR_ROW(trigdata->tg_event) &&
		TRIGGER_FIRED_BEFORE(trigdata->tg_event))
	{
		if (TRIGGER_FIRED_BY_INSERT(trigdata->tg_event))
			result = once_before_insert(trigdata, fcinfo->flinfo);
		else
			result = once_before_move(trigdata, fcinfo->flinfo);
	}
	else if (TRIGGER_FIRED_FOR_STATEMENT(trigdata->tg_event) &&
			 TRIGGER_FIRED_AFTER(trigdata->tg_event))
	{
		rows_unwind(once_depth());
		once_close_kept();
		/* else the same key dropped again and again would go quadratic */
		if (npending > 0 && nreleases < MANY_RELEASES)
		{
			nreleases++;
			marks_release();
		}
	}
	else if (!TRIGGER_FIRED_AFTER(trigdata->tg_event))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function must not be fired BEFORE FOR EACH STATEMENT or INSTEAD OF"),
				 errhint("Call idem_attach_once() to create its triggers.")));
	return PointerGetDatum(result);
}

static void
inserted_report_invalid(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("cannot accept a value of type %s", "idem_inserted"),
			 errdetail("It stands for a row that is just being inserted, in the triggers of idem_attach_once() only."),
			 errhidestmt(true)));
}

/*
 * Reads the row that was just inserted, finds out whether "row" is it, and
 * sees to it that its key is marked.
 */
static void
inserted_verify(Oid relid, ItemPointer tid, OnceRow *row)
{
	LOCKTAG		tag;
	Relation	rel;
	TupleTableSlot *slot;
	IdemOnceTable *table;
	HeapTuple	tuple;
	OnceMark   *mark;
	text	   *key;
	ItemPointerData mark_tid;

	SET_LOCKTAG_RELATION(tag, MyDatabaseId, relid);
	if (!IDEM_LOCK_HELD_BY_ME(&tag, RowExclusiveLock))
		inserted_report_invalid();
	rel = RelationIdGetRelation(relid);
	if (!RelationIsValid(rel) || !RELKIND_HAS_TABLE_AM(rel->rd_rel->relkind) ||
		!idem_once_is_attached(rel))
		inserted_report_invalid();

	slot = table_slot_create(rel, NULL);
	if (!table_tuple_fetch_row_version(rel, tid, SnapshotSelf, slot))
		inserted_report_invalid();
	tuple = ExecCopySlotHeapTuple(slot);
	ExecDropSingleTupleTableSlot(slot);
	if (!TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetXmin(tuple->t_data)))
		inserted_report_invalid();
	table = idem_once_table(rel);
	key = idem_once_key(table, tuple, RelationGetDescr(rel));

	if (row != NULL && row->kind == ROW_MOVED && key != NULL &&
		row->hash == once_hash_key(key))
		nrows--;
	else if (row != NULL && row->kind == ROW_MARKED && key != NULL &&
			 mark_find(table, key) == row->mark)
	{
		nrows--;
		mark_settle(row->mark);
	}
	else
	{
		/* a later trigger may have changed it, or it has none: it is ours */
		if (row != NULL && (!row->is_final || key == NULL))
			nrows--;
		if (key != NULL &&
			!IDEM_OUTCOME_RUNS(once_mark(table, key, &mark_tid)))
		{
			mark = mark_find(table, key);
			if (mark == NULL || !mark_is_pending(mark) ||
				mark_is_under_way(mark))
				ereport(ERROR,
						(errcode(ERRCODE_IDEM_MISUSE),
						 errmsg("a repeated row was inserted into table \"%s\"",
								RelationGetRelationName(rel)),
						 errdetail("A trigger or function changed its key, or inserted it, after trigger \"%s\" had looked at the row.",
								   IDEM_ONCE_TRIGGER),
						 errhint("Give triggers names that sort before \"%s\".",
								 IDEM_ONCE_TRIGGER),
						 errtable(rel),
						 errhidestmt(true)));
			mark_settle(mark);
		}
	}
	RelationClose(rel);
}

/*
 * The row at this place has just been inserted.
 */
static void
once_inserted(Oid relid, ItemPointer tid)
{
	int			depth = once_depth() + 1;
	OnceRow    *row;

	rows_unwind(depth + 1);
	row = nrows > 0 ? &rows[nrows - 1] : NULL;
	if (row != NULL && (row->depth != depth || row->relid != relid ||
						row->kind == ROW_MOVING))
		row = NULL;

	if (row == NULL || doubt || !row->is_final)
	{
		inserted_verify(relid, tid, row);
		return;
	}
	nrows--;
	if (row->kind == ROW_MARKED)
		mark_settle(row->mark);
}

/*
 * The number before "end", for every row and so without sscanf().
 */
static uint32
inserted_parse(const char **place, char end)
{
	const char *p = *place;
	uint64		number = 0;

	while (*p >= '0' && *p <= '9' && number <= PG_UINT32_MAX)
		number = number * 10 + (*p++ - '0');
	if (p == *place || *p != end || number > PG_UINT32_MAX)
		inserted_report_invalid();
	*place = p + 1;
	return (uint32) number;
}

/*
 * idem_inserted_in(cstring) -> idem_inserted: for the WHEN clause of trigger
 * ~idem_once_done, from the text of tableoid and ctid.
 */
Datum
idem_inserted_in(PG_FUNCTION_ARGS)
{
	const char *place = PG_GETARG_CSTRING(0);
	uint32		relid = inserted_parse(&place, '(');
	uint32		block = inserted_parse(&place, ',');
	uint32		offset = inserted_parse(&place, ')');
	ItemPointerData tid;

	if (*place != '\0' || offset > PG_UINT16_MAX)
		inserted_report_invalid();
	ItemPointerSet(&tid, block, (OffsetNumber) offset);
	once_register();
	once_inserted(relid, &tid);
	PG_RETURN_CHAR('\1');
}

Datum
idem_inserted_out(PG_FUNCTION_ARGS)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("cannot display a value of type %s", "idem_inserted")));
}
