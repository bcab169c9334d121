/*
 * worker.h
 *	  What the launcher tells a worker, and a worker the launcher.
 */
#ifndef IDEM_WORKER_H
#define IDEM_WORKER_H

#include "postgres_ext.h"

#define IDEM_MAX_WORKERS	16

/* how a visit of a database ended */
typedef enum IdemVisit
{
	IDEM_VISIT_FAILED,			/* also if the worker could not say */
	IDEM_VISIT_DONE,
	IDEM_VISIT_MORE,			/* there is much left to do */
	IDEM_VISIT_ASIDE,			/* somebody wants the database for himself */
	IDEM_VISIT_ABSENT			/* the extension is not there */
} IdemVisit;

/*
 * One for each worker that may run.  The launcher fills it in before the
 * worker starts, and reads it again after it has ended; in between it is the
 * worker's.
 */
typedef struct IdemVisitSlot
{
	Oid			database;
	bool		quiet;			/* the last visit failed, and that was logged */
	int			warnings;		/* how many more may be logged */
	IdemVisit	outcome;
} IdemVisitSlot;

/* launcher.c */
extern void idem_launcher_init(void);
extern IdemVisitSlot *idem_launcher_slot(int i);
extern bool idem_launcher_lock_database(Oid database);

#endif							/* IDEM_WORKER_H */
