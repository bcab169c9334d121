/*
 * define.c
 *	  idem_define: makes the tables say what a definition says.
 *
 * A definition that the tables hold already locks, writes and announces nothing:
 * it may be part of every deployment.  Any other locks the machine's row first,
 * so that of two definitions one comes after the other and no table is bound
 * meanwhile.
 *
 * The tables are read and written as their owner, so that what he put on them
 * never runs as a caller who may do more, and by the latest snapshot: in a
 * REPEATABLE READ transaction, too, a definition replaces the one that is in
 * force.  Since their trigger (machine.c) lets the owner do anything, it is
 * asked here whether the machine is the caller's, with its row locked.
 *
 * States that go are given up last: until then rows may be in them, and are
 * moved to states that are there already (bound.c).
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/jsonb.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "catalog.h"
#include "definition.h"
#include "errors.h"
#include "machine.h"
#include "machine_cache.h"
#include "own.h"
#include "timer.h"

PG_FUNCTION_INFO_V1(idem_define);

#define MAX_PARAMS	8

/* a machine that others make and delete as often meanwhile is none */
#define MAX_ROUNDS	100

typedef enum DefineStatement
{
	DEFINE_READ_MACHINE,
	DEFINE_READ_STATES,
	DEFINE_READ_TRANSITIONS,
	DEFINE_CREATE,
	DEFINE_CLEAR,
	DEFINE_INSERT_STATE,
	DEFINE_UPDATE_STATE,
	DEFINE_DELETE_STATE,
	DEFINE_INSERT_TRANSITION
} DefineStatement;

static struct IdemOwnStatement statements[] = {

	[DEFINE_READ_MACHINE] = {
		"SELECT owner FROM idem.machine WHERE name OPERATOR(pg_catalog.=) $1",
		IDEM_OWN_READ, 1, {TEXTOID}, NULL
	},
	[DEFINE_READ_STATES] = {
		"SELECT name, initial, final, frozen, self FROM idem.state"
		" WHERE machine OPERATOR(pg_catalog.=) $1 ORDER BY name",
		IDEM_OWN_READ, 1, {TEXTOID}, NULL
	},
	[DEFINE_READ_TRANSITIONS] = {
		"SELECT event, from_state, to_state, priority, guard, roles, after"
		" FROM idem.transition"
		" WHERE machine OPERATOR(pg_catalog.=) $1"
		" ORDER BY priority, event, from_state OPERATOR(pg_catalog.=) '*', from_state",
		IDEM_OWN_READ, 1, {TEXTOID}, NULL
	},
	[DEFINE_CREATE] = {
		"INSERT INTO idem.machine (name, owner) VALUES ($1, $2)"
		" ON CONFLICT DO NOTHING",
		IDEM_OWN_WRITE, 2, {TEXTOID, NAMEOID}, NULL
	},
	[DEFINE_CLEAR] = {
		"DELETE FROM idem.transition WHERE machine OPERATOR(pg_catalog.=) $1",
		IDEM_OWN_WRITE, 1, {TEXTOID}, NULL
	},
	[DEFINE_INSERT_STATE] = {
		"INSERT INTO idem.state (machine, name, initial, final, frozen, self)"
		" VALUES ($1, $2, $3, $4, $5, $6)",
		IDEM_OWN_WRITE, 6, {TEXTOID, TEXTOID, BOOLOID, BOOLOID, BOOLOID, TEXTOID}, NULL
	},
	[DEFINE_UPDATE_STATE] = {
		"UPDATE idem.state SET initial = $3, final = $4, frozen = $5, self = $6"
		" WHERE machine OPERATOR(pg_catalog.=) $1"
		" AND name OPERATOR(pg_catalog.=) $2",
		IDEM_OWN_WRITE, 6, {TEXTOID, TEXTOID, BOOLOID, BOOLOID, BOOLOID, TEXTOID}, NULL
	},
	[DEFINE_DELETE_STATE] = {
		"DELETE FROM idem.state WHERE machine OPERATOR(pg_catalog.=) $1"
		" AND name OPERATOR(pg_catalog.=) $2",
		IDEM_OWN_WRITE, 2, {TEXTOID, TEXTOID}, NULL
	},
	[DEFINE_INSERT_TRANSITION] = {
		"INSERT INTO idem.transition (machine, event, from_state, to_state,"
		" priority, guard, roles, after)"
		" VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
		IDEM_OWN_WRITE, 8, {TEXTOID, TEXTOID, TEXTOID, TEXTOID, INT4OID, TEXTOID,
		NAMEARRAYOID, INTERVALOID}, NULL
	}
};

/*
 * Runs a statement by a snapshot; SPI must be connected.
 */
static uint64
define_run_at(DefineStatement which, Datum *values, const bool *nulls,
			  Snapshot snapshot)
{
	char		flags[MAX_PARAMS];

	for (int i = 0; i < statements[which].nparams; i++)
		flags[i] = nulls != NULL && nulls[i] ? 'n' : ' ';
	return idem_own_run_at(&statements[which], IDEM_REL_MACHINE, values, flags,
						   snapshot);
}

/* by the latest one */
static uint64
define_run(DefineStatement which, Datum *values, const bool *nulls)
{
	return define_run_at(which, values, nulls, GetLatestSnapshot());
}

static List *
roles_from_datum(Datum roles)
{
	Datum	   *elems;
	bool	   *nulls;
	int			nelems;
	List	   *names = NIL;

	deconstruct_array(DatumGetArrayTypeP(roles), NAMEOID, NAMEDATALEN, false,
					  TYPALIGN_CHAR, &elems, &nulls, &nelems);
	for (int i = 0; i < nelems; i++)
	{
		if (!nulls[i])
			names = lappend(names, pstrdup(NameStr(*DatumGetName(elems[i]))));
	}
	return names;
}

static Datum
roles_to_datum(List *names)
{
	Datum	   *elems = palloc(list_length(names) * sizeof(Datum));
	ListCell   *cell;

	foreach(cell, names)
	{
		NameData   *name = palloc0(sizeof(NameData));

		namestrcpy(name, lfirst(cell));
		elems[foreach_current_index(cell)] = NameGetDatum(name);
	}
	return PointerGetDatum(construct_array(elems, list_length(names), NAMEOID,
										   NAMEDATALEN, false,
										   TYPALIGN_CHAR));
}

static void
read_state_row(IdemDefinition *definition, HeapTuple tuple, TupleDesc desc)
{
	IdemStateDef *state = palloc0(sizeof(IdemStateDef));

	state->name = idem_own_text(tuple, desc, 1);
	state->initial = DatumGetBool(idem_own_value(tuple, desc, 2, BOOLOID, NULL));
	state->final = DatumGetBool(idem_own_value(tuple, desc, 3, BOOLOID, NULL));
	state->frozen = DatumGetBool(idem_own_value(tuple, desc, 4, BOOLOID, NULL));
	state->self = idem_own_text(tuple, desc, 5);
	definition->states = lappend(definition->states, state);
}

static void
read_transition_row(IdemDefinition *definition, HeapTuple tuple,
					TupleDesc desc)
{
	IdemTransitionDef *rule = palloc0(sizeof(IdemTransitionDef));
	Datum		value;
	bool		isnull;

	rule->event = idem_own_text(tuple, desc, 1);
	rule->from = idem_own_text(tuple, desc, 2);
	rule->to = idem_own_text(tuple, desc, 3);
	rule->priority = DatumGetInt32(idem_own_value(tuple, desc, 4, INT4OID, NULL));
	rule->guard = SPI_getvalue(tuple, desc, 5);
	value = idem_own_value(tuple, desc, 6, NAMEARRAYOID, &isnull);
	if (!isnull)
		rule->roles = roles_from_datum(value);
	value = idem_own_value(tuple, desc, 7, INTERVALOID, &isnull);
	if (!isnull)
	{
		rule->after = palloc(sizeof(Interval));
		*rule->after = *DatumGetIntervalP(value);
	}
	definition->transitions = lappend(definition->transitions, rule);
}

/*
 * The machine as the tables hold it at one moment, or NULL if there is none.
 */
IdemDefinition *
idem_definition_read(const char *machine)
{
	MemoryContext caller = CurrentMemoryContext;
	MemoryContext spi;
	IdemDefinition *definition = NULL;
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	Datum		values[1];
	uint64		rows;

	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	values[0] = CStringGetTextDatum(machine);
	if (define_run_at(DEFINE_READ_MACHINE, values, NULL, snapshot) > 0)
	{
		spi = MemoryContextSwitchTo(caller);
		definition = palloc0(sizeof(IdemDefinition));
		definition->machine = pstrdup(machine);
		definition->owner = idem_own_text(SPI_tuptable->vals[0],
										  SPI_tuptable->tupdesc, 1);
		MemoryContextSwitchTo(spi);

		rows = define_run_at(DEFINE_READ_STATES, values, NULL, snapshot);
		MemoryContextSwitchTo(caller);
		for (uint64 i = 0; i < rows; i++)
			read_state_row(definition, SPI_tuptable->vals[i],
						   SPI_tuptable->tupdesc);
		MemoryContextSwitchTo(spi);

		rows = define_run_at(DEFINE_READ_TRANSITIONS, values, NULL, snapshot);
		MemoryContextSwitchTo(caller);
		for (uint64 i = 0; i < rows; i++)
			read_transition_row(definition, SPI_tuptable->vals[i],
								SPI_tuptable->tupdesc);
		MemoryContextSwitchTo(spi);
	}
	SPI_finish();
	UnregisterSnapshot(snapshot);
	return definition;
}

static bool
states_equal(const IdemStateDef *a, const IdemStateDef *b)
{
	return a->initial == b->initial && a->final == b->final &&
		a->frozen == b->frozen && strcmp(a->self, b->self) == 0;
}

static bool
texts_equal(const char *a, const char *b)
{
	return (a == NULL) == (b == NULL) && (a == NULL || strcmp(a, b) == 0);
}

bool
idem_intervals_equal(const Interval *a, const Interval *b)
{
	return a->month == b->month && a->day == b->day && a->time == b->time;
}

static bool
transitions_equal(const IdemTransitionDef *a, const IdemTransitionDef *b)
{
	ListCell   *x;
	ListCell   *y;

	if (strcmp(a->event, b->event) != 0 || strcmp(a->from, b->from) != 0 ||
		strcmp(a->to, b->to) != 0 || a->priority != b->priority ||
		!texts_equal(a->guard, b->guard) ||
		list_length(a->roles) != list_length(b->roles) ||
		(a->after == NULL) != (b->after == NULL) ||
		(a->after != NULL && !idem_intervals_equal(a->after, b->after)))
		return false;
	forboth(x, a->roles, y, b->roles)
	{
		if (strcmp(lfirst(x), lfirst(y)) != 0)
			return false;
	}
	return true;
}

/*
 * Whether two definitions give the same rows.
 */
static bool
definition_equal(const IdemDefinition *a, const IdemDefinition *b)
{
	ListCell   *x;
	ListCell   *y;

	if (list_length(a->states) != list_length(b->states) ||
		list_length(a->transitions) != list_length(b->transitions))
		return false;
	foreach(x, a->states)
	{
		IdemStateDef *state = lfirst(x);
		IdemStateDef *other = idem_definition_state(b, state->name);

		if (other == NULL || !states_equal(state, other))
			return false;
	}
	forboth(x, a->transitions, y, b->transitions)
	{
		if (!transitions_equal(lfirst(x), lfirst(y)))
			return false;
	}
	return true;
}

static void
moved_error(const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_BAD_ARGUMENT),
			 errmsg("invalid value for argument \"moved\""),
			 errdetail_internal("%s", detail),
			 errhidestmt(true)));
}

/*
 * Takes the pairs old -> new from "moved" that may concern rows.  Those whose old
 * state the machine does not have, of another time or because a table was
 * attached with such rows, do so where rows are in it: a deployment that is
 * repeated finds none.  "warn" of tables that cannot be looked into.
 */
static void
read_moved(Jsonb *moved, const IdemDefinition *old, const IdemDefinition *new,
		   bool warn, List **from, List **to)
{
	List	   *strange = NIL;
	List	   *targets = NIL;

	JsonbIterator *it;
	JsonbIteratorToken token;
	JsonbValue	value;
	char	   *key = NULL;

	if (!JB_ROOT_IS_OBJECT(moved))
		moved_error("It must be an object of old states and the new ones that their rows move to.");
	it = JsonbIteratorInit(&moved->root);
	while ((token = JsonbIteratorNext(&it, &value, true)) != WJB_DONE)
	{
		char	   *target;

		if (token == WJB_KEY)
			key = pnstrdup(value.val.string.val, value.val.string.len);
		if (token != WJB_VALUE)
			continue;
		if (value.type != jbvString)
			moved_error("It must be an object of old states and the new ones that their rows move to.");
		target = pnstrdup(value.val.string.val, value.val.string.len);
		if (idem_definition_state(new, key) != NULL)
			moved_error(psprintf("State \"%s\" stays, and its rows with it.", key));
		if (idem_definition_state(new, target) == NULL)
			moved_error(psprintf("The definition has no state \"%s\" to move to.",
								 target));
		if (old == NULL || idem_definition_state(old, key) == NULL)
		{
			strange = lappend(strange, key);
			targets = lappend(targets, target);
			continue;
		}
		*from = lappend(*from, key);
		*to = lappend(*to, target);
	}
	if (old != NULL && strange != NIL)
		idem_bound_choose(old->machine, strange, targets, warn, from, to);
}

static void
write_state(const char *machine, const IdemStateDef *state,
			DefineStatement which)
{
	Datum		values[MAX_PARAMS] = {
		CStringGetTextDatum(machine),
		CStringGetTextDatum(state->name),
		BoolGetDatum(state->initial),
		BoolGetDatum(state->final),
		BoolGetDatum(state->frozen),
		CStringGetTextDatum(state->self)
	};

	(void) define_run(which, values, NULL);
}

static void
write_transition(const char *machine, const IdemTransitionDef *rule)
{
	Datum		values[MAX_PARAMS] = {0};
	bool		nulls[MAX_PARAMS] = {false};

	values[0] = CStringGetTextDatum(machine);
	values[1] = CStringGetTextDatum(rule->event);
	values[2] = CStringGetTextDatum(rule->from);
	values[3] = CStringGetTextDatum(rule->to);
	values[4] = Int32GetDatum(rule->priority);
	nulls[5] = rule->guard == NULL;
	if (rule->guard != NULL)
		values[5] = CStringGetTextDatum(rule->guard);
	nulls[6] = rule->roles == NIL;
	if (rule->roles != NIL)
		values[6] = roles_to_datum(rule->roles);
	nulls[7] = rule->after == NULL;
	if (rule->after != NULL)
		values[7] = IntervalPGetDatum(rule->after);
	(void) define_run(DEFINE_INSERT_TRANSITION, values, nulls);
}

/* the states that go, for idem_bound_move */
typedef struct Gone
{
	const char *machine;
	List	   *states;
} Gone;

static void
delete_states(void *arg)
{
	Gone	   *gone = arg;
	ListCell   *cell;

	foreach(cell, gone->states)
	{
		Datum		values[2] = {
			CStringGetTextDatum(gone->machine),
			CStringGetTextDatum(lfirst(cell))
		};

		(void) define_run(DEFINE_DELETE_STATE, values, NULL);
	}
}

/* for write_definition */
typedef struct Rewrite
{
	const IdemDefinition *old;
	const IdemDefinition *new;
} Rewrite;

/*
 * Writes states that stay or are new, and transitions.
 */
static void
write_definition(void *arg)
{
	const IdemDefinition *old = ((Rewrite *) arg)->old;
	const IdemDefinition *new = ((Rewrite *) arg)->new;
	Datum		values[1] = {CStringGetTextDatum(new->machine)};
	ListCell   *cell;

	(void) define_run(DEFINE_CLEAR, values, NULL);
	foreach(cell, new->states)
	{
		IdemStateDef *state = lfirst(cell);
		IdemStateDef *before = idem_definition_state(old, state->name);

		if (before == NULL)
			write_state(new->machine, state, DEFINE_INSERT_STATE);
		else if (!states_equal(before, state))
			write_state(new->machine, state, DEFINE_UPDATE_STATE);
	}
	foreach(cell, new->transitions)
		write_transition(new->machine, lfirst(cell));
}

/* for rule_context */
typedef struct RulePlace
{
	const char *machine;
	int			line;
} RulePlace;

static void
rule_context(void *arg)
{
	RulePlace  *place = arg;

	errcontext("line %d of the definition of machine \"%s\"",
			   place->line, place->machine);
}

/*
 * Whether a guard was asked for the same event before.
 */
static bool
guard_stays(const IdemDefinition *old, const IdemTransitionDef *rule)
{
	ListCell   *cell;

	foreach(cell, old->transitions)
	{
		IdemTransitionDef *other = lfirst(cell);

		if (strcmp(other->event, rule->event) == 0 &&
			texts_equal(other->guard, rule->guard))
			return true;
	}
	return false;
}

/*
 * Refuses roles that there are not, and guards that do not fit the tables which
 * are attached, before anything is written.
 */
static void
check_rules(const IdemDefinition *old, const IdemDefinition *new)
{
	RulePlace	place = {new->machine, 0};
	ErrorContextCallback context;
	ListCell   *cell;

	if (!check_function_bodies)
		return;
	context.callback = rule_context;
	context.arg = &place;
	context.previous = error_context_stack;
	error_context_stack = &context;
	foreach(cell, new->transitions)
	{
		IdemTransitionDef *rule = lfirst(cell);
		ListCell   *inner;

		place.line = rule->line;
		foreach(inner, rule->roles)
			(void) get_role_oid(lfirst(inner), false);
		if (rule->guard != NULL && !guard_stays(old, rule))
			idem_guard_check_tables(new->machine, rule);
	}
	error_context_stack = context.previous;
}

/*
 * Writes what is different; "old" is what the tables hold.
 */
static void
replace(const IdemDefinition *old, const IdemDefinition *new,
		List *from, List *to)
{
	Rewrite		rewrite = {old, new};
	Gone		gone = {new->machine, NIL};
	const IdemMachine *before;
	const IdemMachine *now;
	ListCell   *cell;

	check_rules(old, new);
	/* "old" is as new as that */
	idem_machine_accept();
	before = idem_machine_get(new->machine, true, CurrentMemoryContext);
	idem_machine_write_whole(write_definition, &rewrite);
	now = idem_machine_get(new->machine, false, CurrentMemoryContext);
	if (before == NULL || idem_timers_differ(before, now))
		idem_timers_expect(new->machine);

	foreach(cell, old->states)
	{
		IdemStateDef *state = lfirst(cell);

		if (idem_definition_state(new, state->name) == NULL)
			gone.states = lappend(gone.states, state->name);
	}
	if (gone.states != NIL || from != NIL)
		idem_bound_move(new->machine, from, to, gone.states, delete_states,
						&gone);
}

/*
 * idem_define(machine, definition, moved) -> true
 */
Datum
idem_define(PG_FUNCTION_ARGS)
{
	char	   *machine;
	IdemDefinition *old;
	IdemDefinition *new;
	NameData	owner;
	List	   *from = NIL;
	List	   *to = NIL;
	bool		stands;
	int			rounds = 0;

	idem_require_argument(fcinfo, 0, "machine");
	idem_require_argument(fcinfo, 1, "definition");
	machine = text_to_cstring(PG_GETARG_TEXT_PP(0));
	idem_machine_check_name("machine", machine);
	new = idem_definition_parse(machine,
								text_to_cstring(PG_GETARG_TEXT_PP(1)));
	idem_require_writable("idem_define()");

	/* what stands already is left alone, without a lock */
	old = idem_definition_read(machine);
	if (old != NULL && !idem_machine_may_change(old->owner))
		idem_machine_refuse(machine, old->owner);
	stands = old != NULL && definition_equal(old, new);
	if (!PG_ARGISNULL(2))
		read_moved(PG_GETARG_JSONB_P(2), old, new, stands, &from, &to);
	if (stands && from == NIL)
		PG_RETURN_BOOL(true);

	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	while (!idem_machine_lock(machine, &owner))
	{
		Datum		values[2] = {CStringGetTextDatum(machine)};

		CHECK_FOR_INTERRUPTS();
		if (rounds++ > MAX_ROUNDS)
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("machine \"%s\" cannot be made", machine),
					 errdetail("What is inserted into table \"idem.machine\" is not there afterwards."),
					 errhidestmt(true)));
		namestrcpy(&owner, GetUserNameFromId(GetUserId(), false));
		values[1] = NameGetDatum(&owner);
		(void) define_run(DEFINE_CREATE, values, NULL);
	}
	if (!idem_machine_may_change(NameStr(owner)))
		idem_machine_refuse(machine, NameStr(owner));

	old = idem_definition_read(machine);
	from = to = NIL;
	if (!PG_ARGISNULL(2))
		read_moved(PG_GETARG_JSONB_P(2), old, new, !stands, &from, &to);
	if (!definition_equal(old, new))
		replace(old, new, from, to);
	else if (from != NIL)
		idem_bound_move(machine, from, to, NIL, NULL, NULL);
	SPI_finish();
	PG_RETURN_BOOL(true);
}
