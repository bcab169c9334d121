/*
 * noop.c
 *	  The empty row trigger that benchmarks compare idem's triggers with.
 */
#include "postgres.h"

#include "commands/trigger.h"
#include "fmgr.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(noop);

Datum
noop(PG_FUNCTION_ARGS)
{
	TriggerData *td = (TriggerData *) fcinfo->context;

	return PointerGetDatum(TRIGGER_FIRED_BY_UPDATE(td->tg_event) ?
						   td->tg_newtuple : td->tg_trigtuple);
}
