/*
 * writing.h
 *	  Statements that are writing rows with history.
 */
#ifndef IDEM_WRITING_H
#define IDEM_WRITING_H

#include "access/htup.h"
#include "datatype/timestamp.h"

#include "binding.h"

extern bool idem_writing_by_row(MemoryContext statement, Oid relid, int depth,
								CommandId command, bool now);
extern MemoryContext idem_writing_statement(MemoryContext statement, Oid relid,
											int depth);
extern uint64 idem_writing_serial(MemoryContext statement, Oid relid);
extern CommandId idem_writing_now(int depth);
extern CommandId idem_writing_command(HeapTuple row);
extern CommandId idem_writing_command_of(MemoryContext statement, Oid relid);
extern bool idem_writing_end(MemoryContext statement, Oid relid, bool inserted,
							 bool now);
extern void idem_writing_tells(CommandId command);
extern void idem_writing_acts(CommandId command, int depth);
extern bool idem_writing_replaces(MemoryContext statement, CommandId command,
								  HeapTuple row, bool partition);
extern bool idem_writing_replace(MemoryContext statement,
								 const IdemBinding *binding,
								 CommandId command, int64 hash, HeapTuple row,
								 bool partition);
extern void idem_writing_continue(const IdemBinding *binding,
								  CommandId command, int64 hash,
								  CommandId former, int64 former_hash);
extern bool idem_writing_pass(const IdemBinding *binding, CommandId *command,
							  int64 *hash);
extern void idem_writing_leave(const IdemBinding *binding, CommandId command,
							   int64 hash, const char *state,
							   TimestampTz since);
extern TimestampTz idem_writing_since(const IdemBinding *binding,
									  CommandId command, int64 hash,
									  const char *state);
extern bool idem_writing_take_key(const IdemBinding *binding, int64 hash,
								  CommandId command);
extern bool idem_writing_is_taken(const IdemBinding *binding, int64 hash,
								  CommandId command);
extern bool idem_writing_reserved(const IdemBinding *binding,
								  CommandId command, int64 hash, int64 *seq,
								  TimestampTz *at);

#endif							/* IDEM_WRITING_H */
