/*
 * tick.h
 *	  Firing what is due, for who is not SQL.
 */
#ifndef IDEM_TICK_H
#define IDEM_TICK_H

#include "funcapi.h"

extern int64 idem_tick_run(ReturnSetInfo *rsinfo, int64 left,
						   TimestampTz stop_at);

#endif							/* IDEM_TICK_H */
