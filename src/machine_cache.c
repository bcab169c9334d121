/*
 * machine_cache.c
 *	  State machines, compiled for one session.
 *
 * A machine is read from idem.machine, idem.state and idem.transition when it
 * is first asked for, and kept in a memory context of its own.  That is built
 * under the caller's context and moved below CacheMemoryContext when it is
 * complete, so that an error leaves nothing behind.
 *
 * Every change of the three tables is announced as a relcache invalidation of
 * idem.machine, which only moves an epoch (catalog.c).  Whoever asks next, with
 * an epoch that moved on, finds the whole cache emptied.  Definitions are read
 * with the latest snapshot, because the announcement is consumed by the reading:
 * a REPEATABLE READ transaction would otherwise keep the old definition for the
 * rest of the session.  The epoch is taken before the reading, so that what
 * changes meanwhile is read again.  A change that is rolled back is announced
 * again by PostgreSQL.
 *
 * Nothing in use is freed: who gets a machine names a memory context, and until
 * that is reset the machine stays pinned, even when it has left the cache.  A
 * statement therefore keeps to the definition that it began with.  Between
 * statements idem_machine_accept() takes in what other sessions announced; a
 * transaction that holds its locks already would not see it otherwise.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "catalog.h"
#include "errors.h"
#include "machine_cache.h"
#include "own.h"
#include "pin.h"

/* a name of a machine is not longer */
#define MAX_MACHINE_NAME	128

typedef char MachineName[MAX_MACHINE_NAME + 1];

typedef struct MachineKept
{
	IdemMachine machine;		/* first: idem_machine_hold() */
	IdemPinned	pinned;
} MachineKept;

typedef struct MachineEntry
{
	MachineName name;			/* hash key */
	MachineKept *kept;
} MachineEntry;

static HTAB *cache = NULL;
static uint64 cache_epoch;
static uint64 last_serial = 0;

/*
 * Takes in what other sessions announced.  Call it once per statement, where a
 * relation's entry may be rebuilt.
 */
void
idem_machine_accept(void)
{
	AcceptInvalidationMessages();
}

/*
 * Keeps a machine that somebody holds until "holder" is reset, too.
 */
void
idem_machine_hold(const IdemMachine *machine, MemoryContext holder)
{
	idem_pin_hold(&((MachineKept *) machine)->pinned, holder);
}

static const IdemMachine *
machine_hold(MachineKept *kept, MemoryContext holder)
{
	idem_machine_hold(&kept->machine, holder);
	return &kept->machine;
}

static void
machine_forget_all(void)
{
	HASH_SEQ_STATUS seq;
	MachineEntry *entry;

	hash_seq_init(&seq, cache);
	while ((entry = hash_seq_search(&seq)) != NULL)
	{
		idem_pin_uncache(&entry->kept->pinned);
		hash_search(cache, entry->name, HASH_REMOVE, NULL);
	}
}

/* an opened table of definitions, read row by row */
typedef struct MachineScan
{
	Relation	rel;
	TableScanDesc scan;
	TupleTableSlot *slot;
	const char *machine;		/* the column that names the machine */
	HeapTuple	tuple;			/* of the last row that was found */
} MachineScan;

static void
machine_scan_begin(MachineScan *scan, IdemRelation which, const char *machine,
				   Snapshot snapshot)
{
	scan->rel = table_open(idem_catalog_relation(which), AccessShareLock);
	idem_own_require(scan->rel, NULL, 0);
	scan->machine = machine;
	scan->slot = table_slot_create(scan->rel, NULL);
	scan->scan = table_beginscan(scan->rel, snapshot, 0, NULL);
}

static Datum
machine_value(MachineScan *scan, const char *column, Oid type, bool *isnull)
{
	TupleDesc	desc = RelationGetDescr(scan->rel);

	return idem_own_value(scan->tuple, desc, idem_own_column(desc, column),
						  type, isnull);
}

/*
 * The next row of the machine.
 */
static bool
machine_scan_next(MachineScan *scan, const char *name)
{
	while (table_scan_getnextslot(scan->scan, ForwardScanDirection, scan->slot))
	{
		text	   *machine;

		CHECK_FOR_INTERRUPTS();
		scan->tuple = ExecFetchSlotHeapTuple(scan->slot, false, NULL);
		machine = DatumGetTextPP(machine_value(scan, scan->machine, TEXTOID,
											   NULL));
		if (VARSIZE_ANY_EXHDR(machine) == strlen(name) &&
			memcmp(VARDATA_ANY(machine), name, strlen(name)) == 0)
			return true;
	}
	return false;
}

static void
machine_scan_end(MachineScan *scan)
{
	table_endscan(scan->scan);
	ExecDropSingleTupleTableSlot(scan->slot);
	table_close(scan->rel, AccessShareLock);
}

static char *
machine_text(MachineScan *scan, const char *column)
{
	return TextDatumGetCString(machine_value(scan, column, TEXTOID, NULL));
}

static bool
machine_bool(MachineScan *scan, const char *column)
{
	return DatumGetBool(machine_value(scan, column, BOOLOID, NULL));
}

/*
 * Whether the name is what an integer is printed as.
 */
static bool
machine_parse_number(const char *name, int64 *number)
{
	char	   *end;

	errno = 0;
	*number = strtoll(name, &end, 10);
	return errno == 0 && *name != '\0' && *end == '\0' &&
		strcmp(psprintf(INT64_FORMAT, *number), name) == 0;
}

static int
machine_compare_states(const void *a, const void *b)
{
	const IdemMachineState *sa = (const IdemMachineState *) a;
	const IdemMachineState *sb = (const IdemMachineState *) b;

	if (sa->length != sb->length)
		return sa->length < sb->length ? -1 : 1;
	return memcmp(sa->name, sb->name, sa->length);
}

static int
machine_compare_rules(const void *a, const void *b)
{
	const IdemRule *ra = (const IdemRule *) a;
	const IdemRule *rb = (const IdemRule *) b;
	int			result;

	if (ra->priority != rb->priority)
		return ra->priority < rb->priority ? -1 : 1;
	if ((result = strcmp(ra->event, rb->event)) != 0)
		return result;
	if ((ra->from == NULL) != (rb->from == NULL))
		return ra->from == NULL ? 1 : -1;
	if (ra->from != NULL && (result = strcmp(ra->from, rb->from)) != 0)
		return result;
	return strcmp(ra->to, rb->to);
}

static void
machine_read_states(IdemMachine *machine, Snapshot snapshot)
{
	MachineScan scan;
	int			room = 16;

	machine->states = palloc(room * sizeof(IdemMachineState));
	machine_scan_begin(&scan, IDEM_REL_STATE, "machine", snapshot);
	while (machine_scan_next(&scan, machine->name))
	{
		IdemMachineState *state;
		char	   *self = machine_text(&scan, "self");

		if (machine->nstates == room)
		{
			room *= 2;
			machine->states = repalloc(machine->states,
									   room * sizeof(IdemMachineState));
		}
		state = &machine->states[machine->nstates++];
		memset(state, 0, sizeof(IdemMachineState));
		state->name = machine_text(&scan, "name");
		state->length = strlen(state->name);
		state->initial = machine_bool(&scan, "initial");
		state->final = machine_bool(&scan, "final");
		state->frozen = machine_bool(&scan, "frozen");
		state->is_number = machine_parse_number(state->name, &state->number);
		if (strcmp(self, "deny") == 0)
			state->self = IDEM_SELF_DENY;
		else if (strcmp(self, "reenter") == 0)
			state->self = IDEM_SELF_REENTER;
	}
	machine_scan_end(&scan);
	qsort(machine->states, machine->nstates, sizeof(IdemMachineState),
		  machine_compare_states);
}

static void
machine_read_roles(IdemRule *rule, Datum roles)
{
	Datum	   *elems;
	bool	   *nulls;
	int			nelems;

	deconstruct_array(DatumGetArrayTypeP(roles), NAMEOID, NAMEDATALEN, false,
					  TYPALIGN_CHAR, &elems, &nulls, &nelems);
	rule->roles = palloc(Max(nelems, 1) * sizeof(char *));
	for (int i = 0; i < nelems; i++)
	{
		if (!nulls[i])
			rule->roles[rule->nroles++] = pstrdup(NameStr(*DatumGetName(elems[i])));
	}
}

static void
machine_read_rules(IdemMachine *machine, Snapshot snapshot)
{
	MachineScan scan;
	int			room = 16;

	machine->rules = palloc(room * sizeof(IdemRule));
	machine_scan_begin(&scan, IDEM_REL_TRANSITION, "machine", snapshot);
	while (machine_scan_next(&scan, machine->name))
	{
		IdemRule   *rule;
		char	   *from = machine_text(&scan, "from_state");
		char	   *to = machine_text(&scan, "to_state");
		int			to_state = idem_machine_state(machine, to, strlen(to));
		Datum		value;
		bool		isnull;

		/* not loaded yet, by a restore */
		if (to_state < 0)
			continue;
		if (machine->nrules == room)
		{
			room *= 2;
			machine->rules = repalloc(machine->rules, room * sizeof(IdemRule));
		}
		rule = &machine->rules[machine->nrules++];
		memset(rule, 0, sizeof(IdemRule));
		rule->event = machine_text(&scan, "event");
		rule->from = strcmp(from, "*") == 0 ? NULL : from;
		rule->to = to;
		rule->priority = DatumGetInt32(machine_value(&scan, "priority",
													 INT4OID, NULL));
		value = machine_value(&scan, "guard", TEXTOID, &isnull);
		if (!isnull)
			rule->guard = TextDatumGetCString(value);
		value = machine_value(&scan, "roles", NAMEARRAYOID, &isnull);
		if (!isnull)
			machine_read_roles(rule, value);
		value = machine_value(&scan, "after", INTERVALOID,
							  &isnull);
		if (!isnull)
		{
			rule->timed = true;
			rule->after = *DatumGetIntervalP(value);
			machine->timed = true;
		}
		rule->from_state = rule->from == NULL ? -1 :
			idem_machine_state(machine, rule->from, strlen(rule->from));
		rule->to_state = to_state;
	}
	machine_scan_end(&scan);
	qsort(machine->rules, machine->nrules, sizeof(IdemRule),
		  machine_compare_rules);
}

/*
 * Lists for each state what leaves it.  A wildcard leaves every state that is
 * not final and not its own target.
 */
static void
machine_link(IdemMachine *machine)
{
	for (int i = 0; i < machine->nrules; i++)
		machine->rules[i].index = i;

	machine->wildcards = palloc(Max(machine->nrules, 1) * sizeof(IdemRule *));
	for (int i = 0; i < machine->nrules; i++)
	{
		if (machine->rules[i].from == NULL)
			machine->wildcards[machine->nwildcards++] = &machine->rules[i];
	}

	for (int s = 0; s < machine->nstates; s++)
	{
		IdemMachineState *state = &machine->states[s];

		state->rules = palloc(Max(machine->nrules, 1) * sizeof(IdemRule *));
		for (int i = 0; i < machine->nrules; i++)
		{
			const IdemRule *rule = &machine->rules[i];

			if (rule->from != NULL ? rule->from_state == s :
				(!state->final && rule->to_state != s))
				state->rules[state->nrules++] = rule;
		}
	}
}

/*
 * Reads a machine, or returns NULL if there is none of that name.
 */
static MachineKept *
machine_compile(const char *name)
{
	MemoryContext context;
	MemoryContext former;
	MachineKept *kept;
	MachineScan scan;
	Snapshot	snapshot;
	bool		found;

	context = AllocSetContextCreate(CurrentMemoryContext, "idem machine",
									ALLOCSET_SMALL_SIZES);
	former = MemoryContextSwitchTo(context);
	kept = palloc0(sizeof(MachineKept));
	kept->pinned.context = context;
	kept->machine.name = pstrdup(name);
	kept->machine.serial = ++last_serial;

	snapshot = RegisterSnapshot(GetLatestSnapshot());
	machine_scan_begin(&scan, IDEM_REL_MACHINE, "name", snapshot);
	found = machine_scan_next(&scan, name);
	machine_scan_end(&scan);
	if (found)
	{
		machine_read_states(&kept->machine, snapshot);
		machine_read_rules(&kept->machine, snapshot);
		machine_link(&kept->machine);
	}
	UnregisterSnapshot(snapshot);
	MemoryContextSwitchTo(former);

	if (!found)
	{
		MemoryContextDelete(context);
		return NULL;
	}
	return kept;
}

/*
 * The machine of that name, as it is defined now, pinned until "holder" is
 * reset.  If there is none: NULL if missing_ok, else ID500.
 */
const IdemMachine *
idem_machine_get(const char *name, bool missing_ok, MemoryContext holder)
{
	MachineEntry *entry = NULL;
	MachineKept *kept;

	/* marks the epoch as moved if the tables were replaced */
	(void) idem_catalog_relation(IDEM_REL_MACHINE);

	if (cache == NULL)
	{
		cache = idem_pin_table("idem machines", sizeof(MachineName),
							   sizeof(MachineEntry), HASH_STRINGS);
		cache_epoch = idem_catalog_epoch(IDEM_REL_MACHINE);
	}
	if (cache_epoch != idem_catalog_epoch(IDEM_REL_MACHINE))
	{
		cache_epoch = idem_catalog_epoch(IDEM_REL_MACHINE);
		machine_forget_all();
	}

	if (strlen(name) <= MAX_MACHINE_NAME)
		entry = hash_search(cache, name, HASH_FIND, NULL);
	if (entry != NULL)
		return machine_hold(entry->kept, holder);

	kept = strlen(name) <= MAX_MACHINE_NAME ? machine_compile(name) : NULL;
	if (kept == NULL)
	{
		if (missing_ok)
			return NULL;
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_MISUSE),
				 errmsg("machine \"%s\" does not exist", name),
				 errhint("Define it with idem_define(); a dump without data, or of single tables, leaves out definitions, which idem_export() in the original database prints."),
				 errhidestmt(true)));
	}

	/* what the reading itself brought in is met by the next who asks */
	entry = hash_search(cache, name, HASH_ENTER, NULL);
	entry->kept = kept;
	idem_pin_cache(&kept->pinned);
	return machine_hold(kept, holder);
}

/*
 * The index of a state, or -1.
 */
int
idem_machine_state(const IdemMachine *machine, const char *label, int length)
{
	int			low = 0;
	int			high = machine->nstates - 1;

	while (low <= high)
	{
		int			middle = (low + high) / 2;
		const IdemMachineState *state = &machine->states[middle];
		int			order = length - state->length;

		if (order == 0)
			order = memcmp(label, state->name, length);
		if (order == 0)
			return middle;
		if (order < 0)
			high = middle - 1;
		else
			low = middle + 1;
	}
	return -1;
}

/*
 * The same for an integer.
 */
int
idem_machine_number(const IdemMachine *machine, int64 number)
{
	for (int i = 0; i < machine->nstates; i++)
	{
		if (machine->states[i].is_number && machine->states[i].number == number)
			return i;
	}
	return -1;
}

bool
idem_machine_has_event(const IdemMachine *machine, const char *event)
{
	for (int i = 0; i < machine->nrules; i++)
	{
		if (strcmp(machine->rules[i].event, event) == 0)
			return true;
	}
	return false;
}

/*
 * What leaves a state, in order; -1 is a state that the machine does not know.
 */
int
idem_machine_rules(const IdemMachine *machine, int from,
				   const IdemRule *const **rules)
{
	if (from < 0)
	{
		*rules = machine->wildcards;
		return machine->nwildcards;
	}
	*rules = machine->states[from].rules;
	return machine->states[from].nrules;
}
