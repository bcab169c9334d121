/*
 * own.h
 *	  What is read of idem's own tables, whose owner may have altered them.
 */
#ifndef IDEM_OWN_H
#define IDEM_OWN_H

#include "access/htup.h"
#include "utils/relcache.h"

extern void idem_own_require(Relation rel, const Oid *types, int ncolumns);
extern Datum idem_own_value(HeapTuple tuple, TupleDesc desc, int column,
							Oid type, bool *isnull);
extern char *idem_own_text(HeapTuple tuple, TupleDesc desc, int column);
extern bool idem_own_index_is_plain(Relation index);

#endif							/* IDEM_OWN_H */
