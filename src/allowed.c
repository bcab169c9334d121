/*
 * allowed.c
 *	  SQL functions idem_allowed and idem_why_not: what could be fired.
 *
 * They read the row with the caller's snapshot, as the caller, and judge it as
 * idem_fire() would, and look whether he may write the columns that it writes;
 * what policies for UPDATE say is known only when it is locked and written.  They
 * lock and write nothing, so they work on a standby; what they say may be over
 * the moment after.
 */
#include "postgres.h"

#include "access/table.h"
#include "executor/spi.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "errors.h"
#include "fire.h"

PG_FUNCTION_INFO_V1(idem_allowed);
PG_FUNCTION_INFO_V1(idem_why_not);

static void
allowed_open(IdemFire *fire, FunctionCallInfo fcinfo, Datum *id)
{
	idem_require_argument(fcinfo, 0, "table_name");
	fire->target = idem_target_open(PG_GETARG_OID(0), AccessShareLock);
	idem_target_take_id(fire->target, fcinfo, 1, id);
}

/*
 * A column that idem_fire() writes and the current role may not; NULL if there
 * is none.  The privileges are those of the table that was named, as in any
 * UPDATE.
 */
static const char *
allowed_lacks(const IdemFire *fire)
{
	Oid			relid = fire->target->relid;
	Oid			role = GetUserId();

	if (pg_class_aclcheck(relid, role, ACL_UPDATE) == ACLCHECK_OK)
		return NULL;
	if (pg_attribute_aclcheck(relid, fire->binding->column, role,
							  ACL_UPDATE) != ACLCHECK_OK)
		return NameStr(fire->binding->column_name);
	return NULL;
}

/*
 * What one machine of the table allows.  What waits for its time is nothing for
 * somebody to fire.
 */
static void
allowed_of(IdemFire *fire, const IdemFireRow *row, ReturnSetInfo *rsinfo)
{
	int			from = idem_binding_state(fire->binding, fire->machine,
										  row->state, row->state_null);
	const IdemRule *const *rules;
	int			nrules;

	if (from == IDEM_STATE_NULL)
		return;
	nrules = idem_machine_rules(fire->machine, from, &rules);
	for (int i = 0; i < nrules; i++)
	{
		bool		again = false;
		IdemFireVerdict verdict;
		Datum		values[2];
		bool		nulls[2] = {false, false};

		for (int j = 0; j < i && !again; j++)
			again = strcmp(rules[j]->event, rules[i]->event) == 0;
		if (again)
			continue;
		fire->event = rules[i]->event;
		idem_fire_judge(fire, row, GetActiveSnapshot(), &verdict);
		if (verdict.outcome != IDEM_FIRE_APPLIED || verdict.rule->timed)
			continue;
		values[0] = CStringGetTextDatum(fire->event);
		values[1] = CStringGetTextDatum(verdict.to);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values,
							 nulls);
	}
}

/*
 * idem_allowed(table_name, id) -> SETOF (event, to_state)
 */
Datum
idem_allowed(PG_FUNCTION_ARGS)
{
	IdemFire	fire = {.verb = "idem_allowed()"};
	Datum		id[IDEM_TARGET_MAXKEYS];
	Relation	rel;
	IdemTable  *table;

	allowed_open(&fire, fcinfo, id);
	InitMaterializedSRF(fcinfo, 0);
	SPI_connect();
	rel = table_open(fire.target->relid, NoLock);
	table = idem_table_require(rel, CurrentMemoryContext);
	fire.has_version = idem_rowversion_find(rel, &fire.version);
	fire.context_of = CurrentMemoryContext;
	for (int i = 0; i < table->nbindings; i++)
	{
		IdemFireRow row;

		fire.binding = &table->bindings[i];
		fire.machine = idem_machine_get(fire.binding->machine, false,
										CurrentMemoryContext);
		if (!idem_fire_read(&fire, id, "", GetActiveSnapshot(), &row))
			break;
		if (allowed_lacks(&fire) == NULL)
			allowed_of(&fire, &row, (ReturnSetInfo *) fcinfo->resultinfo);
		idem_fire_close(&fire);
	}
	table_close(rel, NoLock);
	SPI_finish();
	PG_RETURN_NULL();
}

static char *
allowed_explain(IdemFire *fire, const IdemFireVerdict *verdict)
{
	const char *from = idem_judge_quoted(verdict->from);
	const char *outcome = idem_fire_outcomes[verdict->outcome];
	int			state = verdict->from == NULL ? IDEM_STATE_NULL :
	idem_machine_state(fire->machine, verdict->from, strlen(verdict->from));

	switch (verdict->outcome)
	{
		case IDEM_FIRE_ALREADY:
			return psprintf("%s: the row is in %s", outcome, from);
		case IDEM_FIRE_FROZEN:
			return psprintf("%s: state %s lets nothing be changed", outcome,
							idem_judge_quoted(verdict->state));
		case IDEM_FIRE_FORBIDDEN:
			return psprintf("%s: role \"%s\" may not take \"%s\" from %s to \"%s\"; it takes role %s",
							outcome, GetUserNameFromId(GetUserId(), false),
							fire->event, from, verdict->to,
							idem_judge_role_text(fire->machine, state,
												 verdict->rule, fire->event));
		case IDEM_FIRE_GUARDED:
			return psprintf("%s: from %s to \"%s\" the row must satisfy: %s",
							outcome, from, verdict->to, verdict->rule->guard);
		default:
			{
				const char *allowed = allowed_lacks(fire) != NULL ? "" :
				idem_judge_allowed_text(verdict->judge, state, NULL, NULL);
				const char *why = idem_judge_is_denied(fire->machine, state,
													   fire->event, NULL,
													   verdict->rule) ?
				psprintf("state %s denies transitions to itself", from) :
				psprintf("no transition \"%s\" leaves %s%s", fire->event, from,
						 state < 0 ? ", which is no state" : "");

				return psprintf("%s: %s%s%s", outcome, why,
								allowed[0] != '\0' ? "; allowed: " : "",
								allowed);
			}
	}
}

/*
 * idem_why_not(table_name, id, event) -> text
 */
Datum
idem_why_not(PG_FUNCTION_ARGS)
{
	IdemFire	fire = {.verb = "idem_why_not()",.unnamed = true};
	Datum		id[IDEM_TARGET_MAXKEYS];
	IdemFireRow row;
	IdemFireVerdict verdict = {.outcome = IDEM_FIRE_MISSING};
	const char *lacking;
	char	   *answer = NULL;

	idem_require_argument(fcinfo, 2, "event");
	allowed_open(&fire, fcinfo, id);
	fire.event = text_to_cstring(PG_GETARG_TEXT_PP(2));
	SPI_connect();
	idem_fire_choose(&fire, NULL);
	if (!idem_fire_read(&fire, id, "", GetActiveSnapshot(), &row))
		answer = "missing: there is no such row, or it is not visible";
	else
	{
		idem_fire_judge(&fire, &row, GetActiveSnapshot(), &verdict);
		lacking = verdict.outcome == IDEM_FIRE_APPLIED ||
			verdict.outcome == IDEM_FIRE_GUARDED ? allowed_lacks(&fire) : NULL;
		if (lacking != NULL)
			answer = psprintf("%s: role \"%s\" may not update column \"%s\" of table \"%s\"",
							  idem_fire_outcomes[IDEM_FIRE_FORBIDDEN],
							  GetUserNameFromId(GetUserId(), false), lacking,
							  fire.target->table);
		else if (verdict.outcome != IDEM_FIRE_APPLIED)
			answer = allowed_explain(&fire, &verdict);
	}
	idem_fire_close(&fire);
	if (answer != NULL)
		answer = strcpy(SPI_palloc(strlen(answer) + 1), answer);
	SPI_finish();
	if (answer == NULL)
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(cstring_to_text(answer));
}
