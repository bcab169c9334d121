/*
 * guard.h
 *	  The guard's triggers.
 */
#ifndef IDEM_GUARD_H
#define IDEM_GUARD_H

extern void idem_guard_init(void);

#endif							/* IDEM_GUARD_H */
