/*
 * writing.h
 *	  Statements that are writing rows with history.
 */
#ifndef IDEM_WRITING_H
#define IDEM_WRITING_H

#include "datatype/timestamp.h"

#include "binding.h"

extern bool idem_writing_by_row(MemoryContext statement, Oid relid, Oid root,
								int depth, bool now);
extern MemoryContext idem_writing_statement(MemoryContext statement, Oid relid,
											int depth);
extern uint64 idem_writing_serial(MemoryContext statement, Oid relid);
extern bool idem_writing_end(MemoryContext statement, Oid relid, bool now);
extern void idem_writing_reserve(MemoryContext statement, Oid relid,
								 const IdemBinding *binding, int64 row_hash);
extern bool idem_writing_reserved(MemoryContext statement,
								  const IdemBinding *binding, int64 row_hash,
								  int64 *seq, TimestampTz *at);

#endif							/* IDEM_WRITING_H */
