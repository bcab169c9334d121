/*
 * own.h
 *	  What is done with idem's own tables, whose owner may have altered them.
 */
#ifndef IDEM_OWN_H
#define IDEM_OWN_H

#include "access/htup.h"
#include "utils/relcache.h"
#include "utils/snapshot.h"

#include "catalog.h"

typedef enum IdemOwnWay
{
	IDEM_OWN_READ,
	IDEM_OWN_WRITE,				/* or lock rows */
	IDEM_OWN_BY_INDEX			/* whatever the planner would like */
} IdemOwnWay;

/* a constant statement and, once it has run, its plan */
typedef struct IdemOwnStatement
{
	const char *text;
	IdemOwnWay	way;
	int			nparams;
	Oid			types[16];
	struct _SPI_plan *plan;
} IdemOwnStatement;

extern uint64 idem_own_run_at(IdemOwnStatement *statement, IdemRelation whose,
							  const Datum *values, const char *nulls,
							  Snapshot snapshot);
extern uint64 idem_own_run(IdemOwnStatement *statement, IdemRelation whose,
						   const Datum *values);
extern void idem_own_require(Relation rel, const Oid *types, int ncolumns);
extern int	idem_own_column(TupleDesc desc, const char *name);
extern Datum idem_own_value(HeapTuple tuple, TupleDesc desc, int column,
							Oid type, bool *isnull);
extern char *idem_own_text(HeapTuple tuple, TupleDesc desc, int column);
extern bool idem_own_index_is_plain(Relation index);

#endif							/* IDEM_OWN_H */
