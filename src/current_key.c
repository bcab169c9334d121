/*
 * current_key.c
 *	  The setting idem.key, and the child key that stands in for it while a
 *	  function is called.
 *
 * Setting a value around each call and taking it back would cost more than the
 * rest of the call's own work, and few functions ask for their key.  So the
 * setting stays as it is, and who asks is told the child key, which is made
 * then.  A value that the function sets is what it sees from then on: each
 * value carries the number of the frame (the call) in which it was set, in what
 * the machinery of settings calls its extra, so that it knows by itself when a
 * savepoint or a function's end brings an older one back.  What was set before
 * the frame is hidden by the child key; what was set in it is not.
 *
 * Parallel workers get the setting as it stands and know of no frame.  So a
 * statement that may use them finds the child key really set.
 *
 * Frames are left by PG_FINALLY, and what an error leaves behind is undone by
 * the transaction's rollback of settings.  After a call that succeeded the
 * setting is set back where the function changed it, and with it what it will
 * be when the transaction, a savepoint or a function around the call ends.
 */
#include "postgres.h"

#include "access/parallel.h"
#include "executor/executor.h"
#include "utils/memutils.h"

#include "compat.h"
#include "current_key.h"

static char *key_setting = NULL;

/* the frame in which the setting's value was set; 0: in none */
static uint64 key_set_in = 0;

static IdemKeyFrame *key_frame = NULL;
static uint64 last_number = 0;

/* what is set now was set there */
static const uint64 *key_restored_in = NULL;

static ExecutorStart_hook_type former_executor_start = NULL;

/*
 * Notes with the value where it is set.
 */
static bool
current_key_check(char **newval, void **extra, GucSource source)
{
	uint64		number = 0;
	uint64	   *set_in;

	if (key_restored_in != NULL)
		number = *key_restored_in;
	else if (key_frame != NULL)
		number = key_frame->number;
	if (number == 0)
		return true;

	set_in = IDEM_GUC_MALLOC(sizeof(uint64));
	if (set_in == NULL)
		return false;
	*set_in = number;
	*extra = set_in;
	return true;
}

/*
 * It is NULL until it is set.
 */
static const char *
current_key_text(const char *value)
{
	return value == NULL ? "" : value;
}

static uint64
current_key_set_in(const void *extra)
{
	return extra == NULL ? 0 : *(const uint64 *) extra;
}

static void
current_key_assign(const char *newval, void *extra)
{
	key_set_in = current_key_set_in(extra);
}

static bool
current_key_is_hidden(void)
{
	return key_frame != NULL && key_set_in != key_frame->number;
}

/*
 * The key of the current request; NULL or empty if there is none.
 */
const char *
idem_current_key(void)
{
	if (!current_key_is_hidden())
		return key_setting;
	if (key_frame->child == NULL)
	{
		MemoryContext caller = MemoryContextSwitchTo(key_frame->context);

		key_frame->child = idem_child_key(key_frame->scope, key_frame->key,
										  key_frame->name,
										  strlen(key_frame->name));
		MemoryContextSwitchTo(caller);
	}
	return key_frame->child;
}

static const char *
current_key_show(void)
{
	return current_key_text(idem_current_key());
}

static void
current_key_set(const char *key, GucAction action)
{
	(void) set_config_option("idem.key", key, PGC_USERSET, PGC_S_SESSION,
							 action, true, 0, false);
}

/*
 * Before a statement that may use parallel workers.
 */
static void
current_key_executor_start(QueryDesc *query, int eflags)
{
	if (query->plannedstmt->parallelModeNeeded && current_key_is_hidden() &&
		!IsInParallelMode())
		current_key_set(idem_current_key(), GUC_ACTION_LOCAL);

	if (former_executor_start != NULL)
		former_executor_start(query, eflags);
	else
		standard_ExecutorStart(query, eflags);
}

/*
 * Defines the setting; called once, when the library is loaded.
 */
void
idem_current_key_define(void)
{
	DefineCustomStringVariable("idem.key",
							   "Idempotency key of the current request.",
							   "Verbs that are called without a key use it.",
							   &key_setting, NULL,
							   PGC_USERSET, GUC_NOT_IN_SAMPLE,
							   current_key_check, current_key_assign,
							   current_key_show);
	former_executor_start = ExecutorStart_hook;
	ExecutorStart_hook = current_key_executor_start;
}

static struct config_generic *
current_key_record(void)
{
	static struct config_generic *setting = NULL;

	if (setting == NULL)
		setting = IDEM_FIND_SETTING("idem.key");
	if (setting == NULL)
		elog(ERROR, "setting \"%s\" is missing", "idem.key");
	return setting;
}

/*
 * From now on the child key of these three hides the setting.
 */
void
idem_current_key_enter(IdemKeyFrame *frame, text *scope, text *key,
					   const char *name)
{
	GucStack   *stack = current_key_record()->stack;

	frame->outer = key_frame;
	frame->number = ++last_number;
	frame->scope = scope;
	frame->key = key;
	frame->name = name;
	frame->child = NULL;
	frame->context = CurrentMemoryContext;
	frame->former = pstrdup(current_key_text(key_setting));
	frame->former_set_in = key_set_in;
	frame->stack = stack;
	if (stack != NULL)
		frame->state = stack->state;
	if (stack != NULL && stack->state == GUC_SET_LOCAL)
	{
		frame->masked = pstrdup(current_key_text(stack->masked.val.stringval));
		frame->masked_set_in = current_key_set_in(stack->masked.extra);
	}
	key_frame = frame;
}

/*
 * Ends that; no error can come of it.
 */
void
idem_current_key_leave(IdemKeyFrame *frame)
{
	key_frame = frame->outer;
}

/*
 * Whether value and stack are what they were when the frame was entered.  What
 * the function has set, but by RESET, bears the frame's number.
 */
static bool
current_key_is_as_before(const IdemKeyFrame *frame)
{
	GucStack   *stack = current_key_record()->stack;

	if (key_set_in != frame->former_set_in || stack != frame->stack ||
		strcmp(current_key_text(key_setting), frame->former) != 0)
		return false;
	if (stack == NULL)
		return true;
	return stack->state == frame->state &&
		(stack->state != GUC_SET_LOCAL ||
		 (current_key_set_in(stack->masked.extra) == frame->masked_set_in &&
		  strcmp(current_key_text(stack->masked.val.stringval),
				 frame->masked) == 0));
}

/*
 * Sets back what was set in the frame that was left.
 *
 * The stack of a setting says for each level (transaction, savepoint, function
 * with a SET of its own) what its end does to the value.  A plain SET would
 * override that, so that the level's entry is given its former state again; or,
 * where it had none, that of a SET LOCAL of the value that was there already,
 * which changes nothing when the level ends.
 */
void
idem_current_key_restore(const IdemKeyFrame *frame)
{
	struct config_generic *setting = current_key_record();

	if (current_key_is_as_before(frame))
		return;

	PG_TRY();
	{
		key_restored_in = &frame->former_set_in;
		current_key_set(frame->former, GUC_ACTION_SET);

		/*
		 * an entry of an outer level is not touched, so that a new one is on
		 * top
		 */
		if (setting->stack != frame->stack)
			setting->stack->state = GUC_LOCAL;
		else if (frame->state != GUC_SET_LOCAL)
			setting->stack->state = frame->state;
		else
		{
			key_restored_in = &frame->masked_set_in;
			current_key_set(frame->masked, GUC_ACTION_SET);
			key_restored_in = &frame->former_set_in;
			current_key_set(frame->former, GUC_ACTION_LOCAL);
		}
	}
	PG_FINALLY();
	{
		key_restored_in = NULL;
	}
	PG_END_TRY();
}
