/*
 * writable.c
 *	  Refuses a verb that writes where nothing can be written, or only by a
 *	  library of another version.
 *
 * With PostgreSQL's own message and code, but without the statement in the
 * server's log: where a driver puts parameters into its text, there are keys,
 * payloads and tokens in it.
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"

#include "errors.h"
#include "release.h"

/*
 * As PreventCommandIfReadOnly() and PreventCommandIfParallelMode().
 */
void
idem_require_writable(const char *verb)
{
	idem_release_require();
	if (XactReadOnly)
		ereport(ERROR,
				(errcode(ERRCODE_READ_ONLY_SQL_TRANSACTION),
				 errmsg("cannot execute %s in a read-only transaction", verb),
				 errhidestmt(true)));
	PreventCommandIfParallelMode(verb);
}
