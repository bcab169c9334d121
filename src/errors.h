/*
 * errors.h
 *	  Every SQLSTATE that idem raises on its own account.
 *
 * Class ID; the last three characters are the HTTP status that a web layer
 * would answer with.  4xx stands only where that layer's client is at fault,
 * 500 where the developer is.  PostgreSQL's own codes (42501, 40001, 25006,
 * 55P03, 57014) keep their meaning and are raised by their own names.
 *
 * No message, detail or hint may carry a key, a payload or a fence, and every
 * ereport here ends with errhidestmt(true), because the statement would carry
 * them into the server's log.
 */
#ifndef IDEM_ERRORS_H
#define IDEM_ERRORS_H

#include "fmgr.h"
#include "nodes/pg_list.h"

/* an argument is missing or out of its range */
#define ERRCODE_IDEM_BAD_ARGUMENT	MAKE_SQLSTATE('I','D','4','0','0')
/* the table's row, or the key that an operator's verb names, is not there */
#define ERRCODE_IDEM_NOT_FOUND		MAKE_SQLSTATE('I','D','4','0','4')
/* not possible from here: held by someone else, lost, or already ended */
#define ERRCODE_IDEM_CONFLICT		MAKE_SQLSTATE('I','D','4','0','9')
/* the version or fence given is not the current one */
#define ERRCODE_IDEM_STALE			MAKE_SQLSTATE('I','D','4','1','2')
/* the key was used before for a different request */
#define ERRCODE_IDEM_MISMATCH		MAKE_SQLSTATE('I','D','4','2','2')
/* a version is required and was not given */
#define ERRCODE_IDEM_VERSION_MISSING	MAKE_SQLSTATE('I','D','4','2','8')
/* the developer's mistake: unfinished claim, undeclared scope, oversize */
#define ERRCODE_IDEM_MISUSE			MAKE_SQLSTATE('I','D','5','0','0')

extern void idem_require_writable(const char *verb);

/* report.c */
extern void idem_report_missing(const char *argument);
extern void idem_require_argument(FunctionCallInfo fcinfo, int n,
								  const char *name);
extern int	idem_errcolumn(Oid relid, const char *column);
extern char *idem_names_text(List *names, int most);

#endif							/* IDEM_ERRORS_H */
