/*
 * statement.c
 *	  What a statement keeps to, in all of its triggers.
 *
 * A statement that writes a bound table is asked about in many places: in the
 * WHEN clause of a trigger, before and after each row, and behind the last one;
 * in a partitioned table in each partition.  Meanwhile another session may
 * commit a definition of the machine, which locks no table unless it gives up a
 * state.  So the first who asks takes in what other sessions announced, and the
 * definition that he gets is that of all who follow.  A verb that fires an event
 * has judged the row before: the statement by which it writes keeps to the
 * verb's.
 *
 * A statement is known by its memory, the executor's for the query, and what is
 * kept here goes with that.  Two kinds have another one for their triggers after
 * rows.  COPY, and an apply worker, prepare WHEN clauses in their executor's and
 * fire outside of it: the trigger after an insert, which finds nothing of its own,
 * takes the innermost statement that runs in as many triggers; every other INSERT
 * into a table that is no partition has asked in its WHEN clause.  Triggers after
 * a foreign key's action fire in the statement that caused it: they find that
 * one's definition, or take the present one.
 */
#include "postgres.h"

#include "nodes/pg_list.h"
#include "utils/memutils.h"

#include "statement.h"
#include "taken.h"

/* in its memory */
typedef struct Statement
{
	MemoryContext memory;
	int			depth;			/* of triggers that it runs in */
	List	   *machines;		/* held by the memory */
	int			warnings;
	struct Statement *outer;
	MemoryContextCallback callback;
} Statement;

static Statement *statements = NULL;	/* innermost first */

/*
 * The statement's memory goes.
 */
static void
statement_release(void *arg)
{
	Statement **link = &statements;

	while (*link != (Statement *) arg)
		link = &(*link)->outer;
	*link = (*link)->outer;
}

static Statement *
statement_find(MemoryContext memory)
{
	Statement  *statement = statements;

	while (statement != NULL && statement->memory != memory)
		statement = statement->outer;
	return statement;
}

static Statement *
statement_add(MemoryContext memory, int depth)
{
	Statement  *statement = MemoryContextAllocZero(memory, sizeof(Statement));

	statement->memory = memory;
	statement->depth = depth;
	statement->callback.func = statement_release;
	statement->callback.arg = statement;
	MemoryContextRegisterResetCallback(memory, &statement->callback);
	statement->outer = statements;
	statements = statement;
	return statement;
}

static const IdemMachine *
statement_kept(const Statement *statement, const char *name)
{
	ListCell   *lc;

	foreach(lc, statement->machines)
	{
		const IdemMachine *machine = (const IdemMachine *) lfirst(lc);

		if (strcmp(machine->name, name) == 0)
			return machine;
	}
	return NULL;
}

/*
 * The machine as it was defined when the statement began that has that memory,
 * and runs in so many triggers; held by the memory.  "adopt": a statement with
 * another memory may be meant.  If there is no such machine: NULL if missing_ok,
 * else ID500.
 */
const IdemMachine *
idem_statement_machine(MemoryContext memory, int depth, bool adopt,
					   const char *name, bool missing_ok)
{
	Statement  *statement = statement_find(memory);
	const IdemMachine *machine = NULL;
	MemoryContext caller;

	if (statement != NULL)
	{
		machine = statement_kept(statement, name);
		if (machine != NULL)
			return machine;
	}
	else
	{
		if (adopt)
		{
			for (statement = statements; statement != NULL; statement = statement->outer)
			{
				if (statement->depth == depth)
				{
					machine = statement_kept(statement, name);
					break;
				}
			}
		}
		statement = statement_add(memory, depth);
	}

	if (machine == NULL)
		machine = idem_taken_machine(depth, name);
	if (machine != NULL)
		idem_machine_hold(machine, memory);
	else
	{
		idem_machine_accept();
		machine = idem_machine_get(name, missing_ok, memory);
		if (machine == NULL)
			return NULL;
	}
	caller = MemoryContextSwitchTo(memory);
	statement->machines = lappend(statement->machines, unconstify(IdemMachine *, machine));
	MemoryContextSwitchTo(caller);
	return machine;
}

/*
 * Counts a warning in the statement that has that memory, and returns how many
 * there are now.
 */
int
idem_statement_warning(MemoryContext memory)
{
	Statement  *statement = statement_find(memory);

	if (statement == NULL)
		statement = statement_add(memory, 0);
	return ++statement->warnings;
}
