#include "postgres.h"
#include "timer.h"

IdemTimers *
idem_timers_open(const IdemBinding *binding)
{
	return NULL;
}

void
idem_timers_add(IdemTimers *timers, const IdemHistoryRow *row)
{
}

void
idem_timers_close(IdemTimers *timers)
{
}
