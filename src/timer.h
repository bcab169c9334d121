/*
 * timer.h
 *	  When rows are due for a transition by themselves.
 */
#ifndef IDEM_TIMER_H
#define IDEM_TIMER_H

#include "history.h"

typedef struct IdemTimers IdemTimers;

extern IdemTimers *idem_timers_open(const IdemBinding *binding, Datum schema,
									Datum table);
extern void idem_timers_add(IdemTimers *timers, const IdemHistoryRow *row);
extern const IdemRule *idem_timer_rule(const IdemMachine *machine, int state,
									   const char *event);
extern TimestampTz idem_timer_due(const IdemRule *rule, TimestampTz since);
extern void idem_timers_close(IdemTimers *timers);

#endif							/* IDEM_TIMER_H */
