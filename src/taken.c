/*
 * taken.c
 *	  The hand-over between who fires an event, the guard, and the history.
 *
 * A verb that fires an event writes the row by an ordinary UPDATE.  While that
 * runs, its intent stands here, and the guard takes the row by that event, and
 * lets it pass where only events may.  Nobody else can use the intent: it holds
 * for the row versions that it names, and for triggers of the verb's own
 * statement, not of a statement that a trigger runs.  It ends with the
 * statement, also with one that fails.
 */
#include "postgres.h"

#include "fmgr.h"
#include "utils/fmgrprotos.h"

#include "taken.h"

IdemTakenStep idem_taken_step = NULL;
IdemTakenRow idem_taken_row = NULL;
IdemTakenKey idem_taken_key = NULL;
IdemTakenAgain idem_taken_again = NULL;

static IdemIntent *intents = NULL;

/*
 * How many triggers this is called from.
 */
int
idem_taken_depth(void)
{
	LOCAL_FCINFO(fcinfo, 0);

	InitFunctionCallInfoData(*fcinfo, NULL, 0, InvalidOid, NULL, NULL);
	return DatumGetInt32(pg_trigger_depth(fcinfo));
}

/*
 * From here on the intent holds, for the statement that the caller runs, who
 * ends it by PG_FINALLY: it is on the caller's stack.
 */
void
idem_taken_begin(IdemIntent *intent)
{
	intent->depth = idem_taken_depth();
	intent->outer = intents;
	intents = intent;
}

void
idem_taken_end(IdemIntent *intent)
{
	intents = intent->outer;
}

/*
 * The machine of that name as whoever fires has it, in his own statement, which
 * runs in so many triggers; else NULL.
 */
const IdemMachine *
idem_taken_machine(int depth, const char *name)
{
	return intents != NULL && intents->depth == depth &&
		intents->machine != NULL && strcmp(intents->machine->name, name) == 0 ? intents->machine : NULL;
}

/*
 * Whether idem writes this very row version, in a trigger of the statement that
 * does so.
 */
bool
idem_taken_is_own(Oid relid, ItemPointer tid)
{
	if (intents == NULL || idem_taken_depth() != intents->depth + 1)
		return false;
	if (intents->covers != NULL)
		return intents->covers(intents, relid, tid);
	return intents->relid == relid && ItemPointerEquals(&intents->tid, tid);
}

/*
 * The column that an event moves in this very row version, in a trigger of the
 * statement that does so; else NULL.
 */
const char *
idem_taken_column(Oid relid, ItemPointer tid)
{
	return idem_taken_is_own(relid, tid) ? intents->column : NULL;
}

/*
 * The intent to move this very row version, in a trigger of the statement that
 * does so; else NULL.
 */
const IdemIntent *
idem_taken_intent(Oid relid, ItemPointer tid, const char *machine,
				  const char *column)
{
	IdemIntent *intent = intents;

	if (intent == NULL || intent->machine == NULL ||
		strcmp(intent->machine->name, machine) != 0 ||
		(intent->column != NULL && strcmp(intent->column, column) != 0))
		return NULL;
	return idem_taken_is_own(relid, tid) ? intent : NULL;
}
