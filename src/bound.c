/*
 * bound.c
 *	  The tables that are bound to a machine: found, locked, counted, and their
 *	  rows moved when a definition gives up a state.
 *
 * A state may only go when no row is in it.  So that none can arrive between
 * the counting and the commit, the bound tables and all their partitions and
 * children are locked SHARE ROW EXCLUSIVE first, in the order of their OIDs:
 * writers that were judged by the old definition have finished then, and later
 * ones are judged by the new.  The machine's row is locked already (machine.c),
 * which keeps further tables from being bound; the set of children is read
 * again until nothing was added.
 *
 * Tables belong to users: they are counted for the caller (bound_count.c) and
 * written as him, who needs the privileges.  A temporary table of another session
 * cannot be read and is passed over.
 */
#include "postgres.h"

#include "access/relation.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "catalog.h"
#include "compat.h"
#include "errors.h"
#include "guc.h"
#include "machine.h"
#include "own.h"
#include "store.h"
#include "taken.h"

/* the rows that are being moved now, from[i] to to[i]; see idem_bound_move */
typedef struct Migration
{
	const char *machine;
	List	   *from;
	List	   *to;
} Migration;

static const Migration *migration = NULL;

/*
 * A table's name as the reader of a message needs it.
 */
char *
idem_bound_name(Oid relid)
{
	char	   *name = get_rel_name(relid);

	if (name == NULL)
		return psprintf("%u", relid);
	return quote_qualified_identifier(get_namespace_name_or_temp(get_rel_namespace(relid)),
									  name);
}

/*
 * The columns bound to a machine, ordered by their table's OID.
 */
List *
idem_bound_tables(const char *machine)
{
	static struct IdemOwnStatement statement = {
		"SELECT table_name::pg_catalog.oid, column_name,"
		" pg_catalog.jsonb_exists(options, 'history') FROM idem.binding"
		" WHERE machine OPERATOR(pg_catalog.=) $1 ORDER BY 1, 2",
		IDEM_OWN_READ, 1, {TEXTOID}, NULL
	};
	MemoryContext caller = CurrentMemoryContext;
	Datum		machine_name = CStringGetTextDatum(machine);
	List	   *tables = NIL;

	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	(void) idem_own_run(&statement, IDEM_REL_MACHINE, &machine_name);
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		HeapTuple	tuple = SPI_tuptable->vals[i];
		TupleDesc	desc = SPI_tuptable->tupdesc;
		MemoryContext spi = MemoryContextSwitchTo(caller);
		IdemBound  *bound = palloc(sizeof(IdemBound));

		bound->relid = DatumGetObjectId(idem_own_value(tuple, desc, 1, OIDOID, NULL));
		bound->column = *DatumGetName(idem_own_value(tuple, desc, 2, NAMEOID, NULL));
		bound->history = DatumGetBool(idem_own_value(tuple, desc, 3, BOOLOID, NULL));
		tables = lappend(tables, bound);
		MemoryContextSwitchTo(spi);
	}
	SPI_finish();
	return tables;
}

/*
 * The same, with the tables locked; the machine's row must be.
 */
List *
idem_bound_lock(const char *machine)
{
	List	   *locked = NIL;
	List	   *tables;
	bool		more;

	do
	{
		List	   *relids = NIL;
		ListCell   *cell;

		tables = idem_bound_tables(machine);
		foreach(cell, tables)
		{
			IdemBound  *bound = lfirst(cell);

			relids = list_concat_unique_oid(relids,
											find_all_inheritors(bound->relid,
																NoLock, NULL));
		}
		list_sort(relids, list_oid_cmp);

		more = false;
		foreach(cell, relids)
		{
			if (list_member_oid(locked, lfirst_oid(cell)))
				continue;
			LockRelationOid(lfirst_oid(cell), ShareRowExclusiveLock);
			locked = lappend_oid(locked, lfirst_oid(cell));
			more = true;
		}
	} while (more);
	return tables;
}

/*
 * The same where states go.  A statement of this session that is writing the
 * tables would not be kept out by the locks, and goes by the definition that it
 * began with.
 */
static List *
bound_lock_idle(const char *machine, const char *deed)
{
	List	   *tables = idem_bound_lock(machine);
	ListCell   *cell;

	foreach(cell, tables)
	{
		IdemBound  *bound = lfirst(cell);
		Relation	rel = relation_open(bound->relid, NoLock);

		idem_catalog_check_idle(rel, ShareRowExclusiveLock, deed);
		relation_close(rel, NoLock);
	}
	return tables;
}

/*
 * The expression that compares a state column by its bytes.
 */
static const char *
bound_expression(const IdemBound *bound)
{
	const char *column = quote_identifier(NameStr(bound->column));
	AttrNumber	attnum = get_attnum(bound->relid, NameStr(bound->column));

	if (!type_is_collatable(get_atttype(bound->relid, attnum)))
		return column;
	return psprintf("%s COLLATE pg_catalog.\"C\"", column);
}

/*
 * Runs an update, as the caller and by the latest snapshot.
 */
static void
bound_execute(const char *statement, int nargs, Oid *types, Datum *values)
{
	SPIPlanPtr	plan = SPI_prepare(statement, nargs, types);
	int			guc_level = NewGUCNestLevel();
	int			result;

	if (plan == NULL)
		elog(ERROR, "SPI_prepare failed: %s",
			 SPI_result_code_string(SPI_result));
	idem_guc_set("row_security", "off");
	result = SPI_execute_snapshot(plan, values, NULL, GetLatestSnapshot(),
								  InvalidSnapshot, false, true, 0);
	AtEOXact_GUC(false, guc_level);
	if (result < 0)
		elog(ERROR, "SPI_execute_snapshot failed: %s",
			 SPI_result_code_string(result));
}

/* whether and where a list of C strings holds one */
static int
name_position(List *names, const char *name)
{
	ListCell   *cell;

	foreach(cell, names)
	{
		if (strcmp(lfirst(cell), name) == 0)
			return foreach_current_index(cell);
	}
	return -1;
}

/*
 * How many rows of a bound table are in a state.
 */
int64
idem_bound_rows(List *counts, const char *state)
{
	ListCell   *cell;

	foreach(cell, counts)
	{
		IdemStateCount *count = lfirst(cell);

		if (strcmp(count->state, state) == 0)
			return count->rows;
	}
	return 0;
}

/*
 * How many rows of all tables are.
 */
int64
idem_bound_rows_of_all(List *tables, const char *state)
{
	int64		rows = 0;
	ListCell   *cell;

	foreach(cell, tables)
		rows += idem_bound_rows(lfirst(cell), state);
	return rows;
}

/*
 * How many rows are in none of the states.
 */
int64
idem_bound_rows_elsewhere(List *counts, List *states)
{
	int64		rows = 0;
	ListCell   *cell;

	foreach(cell, counts)
	{
		IdemStateCount *count = lfirst(cell);

		if (name_position(states, count->state) < 0)
			rows += count->rows;
	}
	return rows;
}

/*
 * Locks the bound tables and refuses if rows are in one of the states; those in
 * one of "moved" were to leave it just now.
 */
static void
bound_check_empty(const char *machine, List *states, List *moved,
				  const char *deed)
{
	StringInfoData report;
	IdemBound  *first = NULL;
	bool		held = true;
	ListCell   *cell;

	initStringInfo(&report);
	foreach(cell, bound_lock_idle(machine, deed))
	{
		IdemBound  *bound = lfirst(cell);
		ListCell   *inner;

		foreach(inner, idem_bound_count(bound, NULL))
		{
			IdemStateCount *count = lfirst(inner);

			if (name_position(states, count->state) < 0)
				continue;
			if (first == NULL)
				first = bound;
			held = held && name_position(moved, count->state) >= 0;
			appendStringInfo(&report, "%s%s.%s: " INT64_FORMAT " in \"%s\"",
							 report.len > 0 ? ", " : "",
							 idem_bound_name(bound->relid),
							 quote_identifier(NameStr(bound->column)),
							 count->rows, count->state);
		}
	}
	if (first != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_MISUSE),
				 errmsg("machine \"%s\" cannot lose a state that rows are in",
						machine),
				 errdetail("Rows: %s.", report.data),
				 held ?
				 errhint("They were to be moved, and a trigger or a rule of the table has left them where they are: disable it for this call.") :
				 errhint("Say where they go with idem_define(machine, definition, moved => '{\"old\": \"new\"}'), or move them first."),
				 idem_errcolumn(first->relid, NameStr(first->column)),
				 errhidestmt(true)));
}

void
idem_bound_check_empty(const char *machine, List *states, const char *deed)
{
	/* who moves rows has counted them */
	if (migration == NULL || strcmp(migration->machine, machine) != 0)
		bound_check_empty(machine, states, NIL, deed);
}

/*
 * Whether a change from one state to another is one that idem_define() makes
 * now: it passes without being judged, and history calls it "migrate".
 */
bool
idem_machine_migrates(const char *machine, const char *from, const char *to)
{
	int			position;

	if (migration == NULL || strcmp(migration->machine, machine) != 0)
		return false;
	position = name_position(migration->from, from);
	return position >= 0 && strcmp(list_nth(migration->to, position), to) == 0;
}

/*
 * All rows that the statement writes.
 */
static bool
bound_covers(const IdemIntent *intent, Oid relid, ItemPointer tid)
{
	return true;
}

static void
bound_move_context(void *arg)
{
	errcontext("moving rows of table %s", (const char *) arg);
}

/*
 * One statement moves all rows of a table, so that a -> b and b -> c do not
 * meet.
 */
static void
bound_move_table(const IdemBound *bound, List *from, List *to)
{
	List	   *counts = idem_bound_count(bound, NULL);
	const char *column = quote_identifier(NameStr(bound->column));
	const char *expression = bound_expression(bound);
	AttrNumber	attnum = get_attnum(bound->relid, NameStr(bound->column));
	Oid			type;
	int32		typmod;
	Oid			collation;
	Oid			input;
	Oid			ioparam;
	Oid		   *types;
	Datum	   *values;
	int			nargs = 0;
	StringInfoData set;
	StringInfoData where;
	IdemIntent	intent = {.covers = bound_covers};
	ErrorContextCallback context;

	context.callback = bound_move_context;
	context.arg = idem_bound_name(bound->relid);
	context.previous = error_context_stack;
	error_context_stack = &context;
	get_atttypetypmodcoll(bound->relid, attnum, &type, &typmod, &collation);
	getTypeInputInfo(type, &input, &ioparam);
	types = palloc(2 * list_length(from) * sizeof(Oid));
	values = palloc(2 * list_length(from) * sizeof(Datum));
	initStringInfo(&set);
	initStringInfo(&where);

	for (int i = 0; i < list_length(from); i++)
	{
		/* what no row is in need not even be a value of the column's type */
		if (idem_bound_rows(counts, list_nth(from, i)) == 0)
			continue;
		types[nargs] = types[nargs + 1] = type;
		values[nargs] = OidInputFunctionCall(input, list_nth(from, i), ioparam,
											 typmod);
		values[nargs + 1] = OidInputFunctionCall(input, list_nth(to, i),
												 ioparam, typmod);
		appendStringInfo(&set, " WHEN %s OPERATOR(pg_catalog.=) $%d THEN $%d",
						 expression, nargs + 1, nargs + 2);
		appendStringInfo(&where, "%s%s OPERATOR(pg_catalog.=) $%d",
						 nargs > 0 ? " OR " : "", expression, nargs + 1);
		nargs += 2;
	}
	if (nargs == 0)
	{
		error_context_stack = context.previous;
		return;
	}

	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	idem_taken_begin(&intent);
	PG_TRY();
	{
		bound_execute(psprintf("UPDATE %s SET %s = CASE%s END WHERE %s",
							   idem_bound_name(bound->relid), column, set.data,
							   where.data),
					  nargs, types, values);
	}
	PG_FINALLY();
	{
		idem_taken_end(&intent);
	}
	PG_END_TRY();
	SPI_finish();
	error_context_stack = context.previous;
}

/*
 * Takes those pairs in which a table has rows in the old value.  A table that the
 * caller may not look into is left as it is, with a warning if asked for: it may
 * be none of his, and have no such rows.
 */
void
idem_bound_choose(const char *machine, List *strange, List *targets,
				  bool warn, List **from, List **to)
{
	List	   *tables = NIL;
	ListCell   *cell;
	ListCell   *target;

	foreach(cell, idem_bound_tables(machine))
	{
		IdemBound  *bound = lfirst(cell);

		if (idem_bound_may_count(bound))
			tables = lappend(tables, idem_bound_count(bound, NULL));
		else if (warn)
			ereport(WARNING,
					(errmsg("rows of table %s are not moved",
							idem_bound_name(bound->relid)),
					 errdetail("The current role may not see all of them."),
					 errhidestmt(true)));
	}
	forboth(cell, strange, target, targets)
	{
		if (idem_bound_rows_of_all(tables, lfirst(cell)) == 0)
			continue;
		*from = lappend(*from, lfirst(cell));
		*to = lappend(*to, lfirst(target));
	}
}

/*
 * Moves rows that are in from[i] to to[i], as the caller.  If states go, calls
 * "finish", which gives them up, while what is known of the rows still holds.
 */
void
idem_bound_move(const char *machine, List *from, List *to, List *gone,
				void (*finish) (void *), void *arg)
{
	const Migration *outer = migration;
	Migration	mine = {machine, from, to};
	const char *deed = "Call idem_define()";

	PG_TRY();
	{
		List	   *tables = gone != NIL ? bound_lock_idle(machine, deed) :
		idem_bound_lock(machine);
		ListCell   *cell;

		migration = &mine;
		foreach(cell, tables)
		{
			IdemBound  *bound = lfirst(cell);

			/* where no state goes, no row need be moved */
			if (from != NIL && idem_bound_is_readable(bound->relid) &&
				(gone != NIL || idem_bound_may_count(bound)))
				bound_move_table(bound, from, to);
		}
		if (gone != NIL)
		{
			migration = outer;
			bound_check_empty(machine, gone, from, deed);
			migration = &mine;
			finish(arg);
		}
	}
	PG_FINALLY();
	{
		migration = outer;
	}
	PG_END_TRY();
}
