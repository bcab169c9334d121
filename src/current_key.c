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
 * setting is set back where the function changed it, for the transaction and
 * for the session.
 */
#include "postgres.h"

#include "access/parallel.h"
#include "executor/executor.h"
#include "utils/guc.h"
#include "utils/guc_tables.h"
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
	const char *key = idem_current_key();

	return key == NULL ? "" : key;
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
current_key_executor_start(QueryDesc * query, int eflags)
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

/*
 * What the setting will be once all that was set for a transaction or a function
 * only is over, if the transaction commits, and where that was set.  Never
 * NULL; good until the setting changes.
 */
static const char *
current_key_of_session(uint64 *set_in)
{
	static struct config_generic *setting = NULL;
	const char *value = key_setting;

	if (setting == NULL)
		setting = IDEM_FIND_SETTING("idem.key");
	if (setting == NULL)
		elog(ERROR, "setting \"%s\" is missing", "idem.key");
	*set_in = key_set_in;
	for (GucStack *stack = setting->stack; stack != NULL; stack = stack->prev)
	{
		const		config_var_value *then = &stack->prior;

		if (stack->state == GUC_SET)
			break;
		/* otherwise it goes back to what it was before */
		if (stack->state == GUC_SET_LOCAL)
			then = &stack->masked;
		value = then->val.stringval;
		*set_in = current_key_set_in(then->extra);
		if (stack->state == GUC_SET_LOCAL)
			break;
	}
	return value != NULL ? value : "";
}

/*
 * From now on the child key of these three hides the setting.
 */
void
idem_current_key_enter(IdemKeyFrame *frame, text *scope, text *key,
					   const char *name)
{
	frame->outer = key_frame;
	frame->number = ++last_number;
	frame->scope = scope;
	frame->key = key;
	frame->name = name;
	frame->child = NULL;
	frame->context = CurrentMemoryContext;
	frame->former = pstrdup(key_setting != NULL ? key_setting : "");
	frame->former_set_in = key_set_in;
	frame->session = pstrdup(current_key_of_session(&frame->session_set_in));
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
 * Sets back what was set in the frame that was left.
 */
void
idem_current_key_restore(const IdemKeyFrame *frame)
{
	uint64		session_set_in;
	const char *session = current_key_of_session(&session_set_in);

	if (key_set_in == frame->former_set_in &&
		session_set_in == frame->session_set_in &&
		strcmp(key_setting != NULL ? key_setting : "", frame->former) == 0 &&
		strcmp(session, frame->session) == 0)
		return;

	PG_TRY();
	{
		key_restored_in = &frame->session_set_in;
		current_key_set(frame->session, GUC_ACTION_SET);
		key_restored_in = &frame->former_set_in;
		if (strcmp(frame->session, frame->former) != 0 ||
			frame->session_set_in != frame->former_set_in)
			current_key_set(frame->former, GUC_ACTION_LOCAL);
	}
	PG_FINALLY();
	{
		key_restored_in = NULL;
	}
	PG_END_TRY();
}
