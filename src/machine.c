/*
 * machine.c
 *	  What may stand in idem.machine, idem.state and idem.transition, and who
 *	  may write it there.
 *
 * The tables are open to plain INSERT, UPDATE and DELETE, so whatever cannot be
 * right is refused by their own constraints and by the row trigger below, and
 * idem_define() needs no rules of its own.  The trigger fires AFTER each row,
 * so that one statement may bring things into order in any sequence, and is
 * never deferred: the definer work here runs in a restricted context, where
 * nothing may be put off.
 *
 * Rules that concern two rows (a transition out of a state that becomes final)
 * hold between sessions because every writer first locks the machine's row FOR
 * NO KEY UPDATE and then judges by the latest snapshot.  That strength does not
 * conflict with the FOR KEY SHARE of foreign keys: two sessions that each
 * inserted a state would deadlock under a stronger one.  Lock order: the
 * machine's row, then bound tables by OID (bound.c).
 *
 * Who owns the tables passes, since he restores dumps and could switch the
 * trigger off.  A restore loads roles that are not there yet and guards of
 * another version, and pg_restore -j loads transitions before their states, in
 * any order and at once: with check_function_bodies = off, which pg_restore
 * sets for the like of it, what the owner inserts is not looked at and locks
 * nothing.  A rule that leads nowhere is passed over (machine_cache.c).
 *
 * For that order's sake the tables have no foreign keys: pg_dump knows that
 * one's data comes after the other's, and does not tell pg_restore.  What
 * belongs to a machine or a state follows it here, as the tables' owner.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/inval.h"
#include "utils/rel.h"

#include "catalog.h"
#include "definition.h"
#include "errors.h"
#include "machine.h"
#include "machine_cache.h"
#include "own.h"
#include "timer.h"

#define MAX_NAME_LENGTH		128

PG_FUNCTION_INFO_V1(idem_machine_check);

typedef enum MachineStatement
{
	MACHINE_LOCK,
	MACHINE_STATE,
	MACHINE_LEAVING,
	MACHINE_DELETE_RULES,
	MACHINE_RENAME_RULES,
	MACHINE_EMPTY,
	MACHINE_DELETE_STATES,
	MACHINE_RENAME,
	MACHINE_RENAME_STATES
} MachineStatement;

static struct IdemOwnStatement statements[] = {

	[MACHINE_LOCK] = {
		"SELECT owner FROM idem.machine"
		" WHERE name OPERATOR(pg_catalog.=) $1 FOR NO KEY UPDATE",
		IDEM_OWN_WRITE, 1, {TEXTOID}, NULL
	},
	[MACHINE_STATE] = {
		"SELECT final FROM idem.state"
		" WHERE machine OPERATOR(pg_catalog.=) $1"
		" AND name OPERATOR(pg_catalog.=) $2",
		IDEM_OWN_WRITE, 2, {TEXTOID, TEXTOID}, NULL
	},
	[MACHINE_LEAVING] = {
		"SELECT event FROM idem.transition"
		" WHERE machine OPERATOR(pg_catalog.=) $1"
		" AND from_state OPERATOR(pg_catalog.=) $2"
		" ORDER BY priority, event LIMIT 1",
		IDEM_OWN_WRITE, 2, {TEXTOID, TEXTOID}, NULL
	},
	[MACHINE_DELETE_RULES] = {
		"DELETE FROM idem.transition"
		" WHERE machine OPERATOR(pg_catalog.=) $1"
		" AND (from_state OPERATOR(pg_catalog.=) $2"
		" OR to_state OPERATOR(pg_catalog.=) $2)",
		IDEM_OWN_WRITE, 2, {TEXTOID, TEXTOID}, NULL
	},
	[MACHINE_RENAME_RULES] = {
		"UPDATE idem.transition SET"
		" from_state = CASE WHEN from_state OPERATOR(pg_catalog.=) $2"
		" THEN $3 ELSE from_state END,"
		" to_state = CASE WHEN to_state OPERATOR(pg_catalog.=) $2"
		" THEN $3 ELSE to_state END"
		" WHERE machine OPERATOR(pg_catalog.=) $1"
		" AND (from_state OPERATOR(pg_catalog.=) $2"
		" OR to_state OPERATOR(pg_catalog.=) $2)",
		IDEM_OWN_WRITE, 3, {TEXTOID, TEXTOID, TEXTOID}, NULL
	},
	[MACHINE_EMPTY] = {
		"DELETE FROM idem.transition WHERE machine OPERATOR(pg_catalog.=) $1",
		IDEM_OWN_WRITE, 1, {TEXTOID}, NULL
	},
	[MACHINE_DELETE_STATES] = {
		"DELETE FROM idem.state WHERE machine OPERATOR(pg_catalog.=) $1",
		IDEM_OWN_WRITE, 1, {TEXTOID}, NULL
	},
	[MACHINE_RENAME] = {
		"UPDATE idem.transition SET machine = $2"
		" WHERE machine OPERATOR(pg_catalog.=) $1",
		IDEM_OWN_WRITE, 2, {TEXTOID, TEXTOID}, NULL
	},
	[MACHINE_RENAME_STATES] = {
		"UPDATE idem.state SET machine = $2"
		" WHERE machine OPERATOR(pg_catalog.=) $1",
		IDEM_OWN_WRITE, 2, {TEXTOID, TEXTOID}, NULL
	}
};

/* idem_define() writes, and sees to guards and timers itself */
static bool writing_whole = false;

/*
 * Writes a definition whose guards have been checked, and leaves no notes that
 * rows may lack timers.
 */
void
idem_machine_write_whole(void (*work) (void *), void *arg)
{
	bool		outer = writing_whole;

	PG_TRY();
	{
		writing_whole = true;
		work(arg);
	}
	PG_FINALLY();
	{
		writing_whole = outer;
	}
	PG_END_TRY();
}

/*
 * Runs one of the statements as the tables' owner and by the latest snapshot;
 * SPI must be connected.  The result is in SPI_tuptable.  Returns the number
 * of rows.
 */
static uint64
machine_run(MachineStatement which, const char *machine, const char *state,
			const char *other)
{
	const char *args[] = {machine, state, other};
	Datum		values[3] = {0};

	for (int i = 0; i < statements[which].nparams; i++)
		values[i] = CStringGetTextDatum(args[i]);
	return idem_own_run(&statements[which], IDEM_REL_MACHINE, values);
}

/*
 * Names of machines, states and events; the tables' CHECKs say the same.
 */
void
idem_machine_check_name(const char *what, const char *name)
{
	Size		len = name == NULL ? 0 : strlen(name);

	if (len < 1 || len > MAX_NAME_LENGTH)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_BAD_ARGUMENT),
				 errmsg("invalid name of %s", what),
				 errdetail("The name has %zu bytes; it must have 1 to %d.",
						   len, MAX_NAME_LENGTH),
				 errhidestmt(true)));
}

/*
 * Whether the current role may change a machine that belongs to "owner".
 */
bool
idem_machine_may_change(const char *owner)
{
	Oid			role = get_role_oid(owner, true);

	return superuser() ||
		(OidIsValid(role) && has_privs_of_role(GetUserId(), role)) ||
		has_privs_of_role(GetUserId(), idem_catalog_owner(IDEM_REL_MACHINE));
}

void
idem_machine_refuse(const char *machine, const char *owner)
{
	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("must be owner of machine \"%s\"", machine),
			 errdetail("It belongs to role \"%s\"; the current role is \"%s\".",
					   owner, GetUserNameFromId(GetUserId(), false)),
			 errhint("The extension's owner can hand it over: UPDATE idem.machine SET owner = 'role' WHERE name = %s.",
					 quote_literal_cstr(machine)),
			 errhidestmt(true)));
}

/*
 * Locks the machine's row against every other change of its definition, and
 * against attaching.  False if there is no such machine.  SPI must be
 * connected.
 */
bool
idem_machine_lock(const char *machine, NameData *owner)
{
	if (machine_run(MACHINE_LOCK, machine, NULL, NULL) == 0)
		return false;
	*owner = *DatumGetName(idem_own_value(SPI_tuptable->vals[0],
										  SPI_tuptable->tupdesc, 1, NAMEOID,
										  NULL));
	return true;
}

/*
 * Refuses a list of roles that is empty, or names one that is none.
 */
static void
check_roles(Datum roles, const char *event)
{
	Datum	   *elems;
	bool	   *nulls;
	int			nelems;

	deconstruct_array(DatumGetArrayTypeP(roles), NAMEOID, NAMEDATALEN, false,
					  TYPALIGN_CHAR, &elems, &nulls, &nelems);
	if (nelems == 0)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_MISUSE),
				 errmsg("event \"%s\" is allowed to no role", event),
				 errhint("NULL in \"roles\" allows it to everybody."),
				 errhidestmt(true)));
	for (int i = 0; i < nelems; i++)
	{
		if (nulls[i])
			ereport(ERROR,
					(errcode(ERRCODE_IDEM_MISUSE),
					 errmsg("event \"%s\" is allowed to a role without a name",
							event),
					 errhidestmt(true)));
		if (check_function_bodies)
			(void) get_role_oid(NameStr(*DatumGetName(elems[i])), false);
	}
}

/* the tables' columns by name, as text */
static char *
column_text(HeapTuple tuple, TupleDesc desc, const char *column)
{
	return idem_own_text(tuple, desc, idem_own_column(desc, column));
}

/* the same for those that may be NULL */
static char *
column_text_or_null(HeapTuple tuple, TupleDesc desc, const char *column)
{
	return SPI_getvalue(tuple, desc, idem_own_column(desc, column));
}

/*
 * The machine that a row of idem.state or idem.transition belongs to, locked
 * and found to be the caller's.  False if it is gone: then this row goes with
 * it.
 */
static bool
check_machine(const char *machine)
{
	NameData	owner;

	if (!idem_machine_lock(machine, &owner))
		return false;
	if (!idem_machine_may_change(NameStr(owner)))
		idem_machine_refuse(machine, NameStr(owner));
	return true;
}

/*
 * The machine that a row comes to, likewise.
 */
static void
check_new_machine(const char *machine)
{
	if (!check_machine(machine))
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_MISUSE),
				 errmsg("machine \"%s\" does not exist", machine),
				 errhint("Insert it into table \"idem.machine\" first."),
				 errhidestmt(true)));
}

/*
 * Refuses to take a machine from under the tables that are bound to it.
 */
static void
check_unbound(const char *machine)
{
	List	   *tables = idem_bound_tables(machine);

	if (tables != NIL)
	{
		IdemBound  *bound = linitial(tables);

		ereport(ERROR,
				(errcode(ERRCODE_IDEM_MISUSE),
				 errmsg("machine \"%s\" is in use", machine),
				 errdetail("Column \"%s\" of table %s is bound to it.",
						   NameStr(bound->column),
						   idem_bound_name(bound->relid)),
				 errhint("Call idem_detach() first."),
				 errhidestmt(true)));
	}
}

static void
check_machine_row(HeapTuple old, HeapTuple new, TupleDesc desc)
{
	const char *old_name = old ? column_text(old, desc, "name") : NULL;
	const char *new_name = new ? column_text(new, desc, "name") : NULL;

	if (old && !idem_machine_may_change(column_text(old, desc, "owner")))
		idem_machine_refuse(old_name, column_text(old, desc, "owner"));
	if (new)
	{
		const char *owner = column_text(new, desc, "owner");

		if (check_function_bodies)
			(void) get_role_oid(owner, false);
		if (!idem_machine_may_change(owner))
			ereport(ERROR,
					(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
					 errmsg("must be member of role \"%s\"", owner),
					 errdetail("Machine \"%s\" would belong to it.", new_name),
					 errhidestmt(true)));
	}
	if (!old || (new && strcmp(old_name, new_name) == 0))
		return;
	check_unbound(old_name);
	if (new)
	{
		machine_run(MACHINE_RENAME_STATES, old_name, new_name, NULL);
		machine_run(MACHINE_RENAME, old_name, new_name, NULL);
	}
	else
	{
		machine_run(MACHINE_EMPTY, old_name, NULL, NULL);
		machine_run(MACHINE_DELETE_STATES, old_name, NULL, NULL);
	}
}

static bool
column_differs(HeapTuple old, HeapTuple new, TupleDesc desc, const char *name)
{
	const char *before = column_text_or_null(old, desc, name);
	const char *now = column_text_or_null(new, desc, name);

	return (before == NULL) != (now == NULL) ||
		(before != NULL && strcmp(before, now) != 0);
}

static void
check_state_row(HeapTuple old, HeapTuple new, TupleDesc desc)
{
	const char *old_machine = old ? column_text(old, desc, "machine") : NULL;
	const char *new_machine = new ? column_text(new, desc, "machine") : NULL;
	const char *old_name = old ? column_text(old, desc, "name") : NULL;
	const char *new_name = new ? column_text(new, desc, "name") : NULL;
	bool		old_there = old && check_machine(old_machine);

	if (new && (!old || strcmp(old_machine, new_machine) != 0))
		check_new_machine(new_machine);

	if (old_there && (!new || strcmp(old_name, new_name) != 0 ||
					  strcmp(old_machine, new_machine) != 0))
	{
		idem_bound_check_empty(old_machine, list_make1((char *) old_name),
							   "Change table idem.state");
		if (new && strcmp(old_machine, new_machine) == 0)
			machine_run(MACHINE_RENAME_RULES, old_machine, old_name, new_name);
		else
			machine_run(MACHINE_DELETE_RULES, old_machine, old_name, NULL);
	}

	if (new && column_text(new, desc, "final")[0] == 't' &&
		machine_run(MACHINE_LEAVING, new_machine, new_name, NULL) > 0)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_MISUSE),
				 errmsg("final state \"%s\" of machine \"%s\" has a transition out of it",
						new_name, new_machine),
				 errdetail("Event \"%s\" leads from it to another state.",
						   SPI_getvalue(SPI_tuptable->vals[0],
										SPI_tuptable->tupdesc, 1)),
				 errhidestmt(true)));

	/* what time takes out of the state may be more now */
	if (old_there && new && check_function_bodies && !writing_whole &&
		(column_differs(old, new, desc, "final") ||
		 column_differs(old, new, desc, "frozen") ||
		 column_differs(old, new, desc, "self")))
	{
		idem_machine_accept();
		if (idem_machine_get(new_machine, false, CurrentMemoryContext)->timed)
			idem_timers_expect(new_machine);
	}
}

/*
 * An error if a rule leads from or to what is no state.  The state is in
 * SPI_tuptable.
 */
static void
check_rule_state(const char *machine, const char *state, const char *event,
				 const char *direction)
{
	if (machine_run(MACHINE_STATE, machine, state, NULL) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_MISUSE),
				 errmsg("state \"%s\" of machine \"%s\" does not exist",
						state, machine),
				 errdetail("Event \"%s\" would lead %s it.",
						   event, direction),
				 errhidestmt(true)));
}

static void
check_transition_row(HeapTuple old, HeapTuple new, TupleDesc desc)
{
	const char *old_machine = old ? column_text(old, desc, "machine") : NULL;
	const char *old_from = old ? column_text(old, desc, "from_state") : NULL;
	const char *machine;
	const char *event;
	const char *from;
	const char *to;
	const char *guard;
	const char *after;
	bool		moved;
	bool		isnull;
	Datum		roles;

	if (old)
		(void) check_machine(old_machine);
	if (!new)
		return;
	machine = column_text(new, desc, "machine");
	if (!old || strcmp(old_machine, machine) != 0)
		check_new_machine(machine);
	event = column_text(new, desc, "event");
	from = column_text(new, desc, "from_state");
	to = column_text(new, desc, "to_state");

	moved = !old || strcmp(old_machine, machine) != 0;
	if (moved || strcmp(column_text(old, desc, "to_state"), to) != 0)
		check_rule_state(machine, to, event, "to");
	if (strcmp(from, "*") != 0 && (moved || strcmp(old_from, from) != 0))
	{
		check_rule_state(machine, from, event, "from");
		if (DatumGetBool(idem_own_value(SPI_tuptable->vals[0],
										SPI_tuptable->tupdesc, 1, BOOLOID,
										NULL)))
			ereport(ERROR,
					(errcode(ERRCODE_IDEM_MISUSE),
					 errmsg("state \"%s\" of machine \"%s\" is final",
							from, machine),
					 errdetail("Event \"%s\" would lead from it to another state.",
							   event),
					 errhidestmt(true)));
	}

	guard = column_text_or_null(new, desc, "guard");
	if (guard != NULL && check_function_bodies && !writing_whole)
	{
		const char *old_guard = moved ? NULL : column_text_or_null(old, desc, "guard");

		if (old_guard == NULL || strcmp(old_guard, guard) != 0)
		{
			IdemTransitionDef rule = {
				.event = (char *) event,.from = (char *) from,
				.to = (char *) to,.guard = (char *) guard
			};

			idem_guard_check(guard, event);
			idem_guard_check_tables(machine, &rule);
		}
	}
	roles = idem_own_value(new, desc, idem_own_column(desc, "roles"),
						   NAMEARRAYOID, &isnull);
	if (!isnull)
		check_roles(roles, event);

	/* a restore brings the timers along */
	after = column_text_or_null(new, desc, "after");
	if (after != NULL && check_function_bodies && !writing_whole &&
		(moved || column_differs(old, new, desc, "from_state") ||
		 column_differs(old, new, desc, "to_state") ||
		 column_differs(old, new, desc, "event") ||
		 column_differs(old, new, desc, "after")))
		idem_timers_expect(machine);
}

/*
 * Row trigger on the three tables.
 */
Datum
idem_machine_check(PG_FUNCTION_ARGS)
{
	TriggerData *trigdata = (TriggerData *) fcinfo->context;
	HeapTuple	old = NULL;
	HeapTuple	new = NULL;
	TupleDesc	desc;
	Oid			relid;

	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function must be called as a trigger")));
	if (!TRIGGER_FIRED_AFTER(trigdata->tg_event) ||
		!TRIGGER_FIRED_FOR_ROW(trigdata->tg_event))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function must be fired AFTER and FOR EACH ROW")));

	if (TRIGGER_FIRED_BY_INSERT(trigdata->tg_event))
		new = trigdata->tg_trigtuple;
	else
		old = trigdata->tg_trigtuple;
	if (TRIGGER_FIRED_BY_UPDATE(trigdata->tg_event))
		new = trigdata->tg_newtuple;
	desc = RelationGetDescr(trigdata->tg_relation);
	relid = RelationGetRelid(trigdata->tg_relation);

	if (old == NULL && idem_catalog_is_restored(trigdata->tg_relation))
		return PointerGetDatum(NULL);

	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	if (relid == idem_catalog_relation(IDEM_REL_MACHINE))
		check_machine_row(old, new, desc);
	else if (relid == idem_catalog_relation(IDEM_REL_STATE))
		check_state_row(old, new, desc);
	else if (relid == idem_catalog_relation(IDEM_REL_TRANSITION))
		check_transition_row(old, new, desc);
	else
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function must be fired on a table that defines machines")));
	SPI_finish();
	return PointerGetDatum(NULL);
}
