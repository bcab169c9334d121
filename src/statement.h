/*
 * statement.h
 *	  What a statement keeps to, in all of its triggers.
 */
#ifndef IDEM_STATEMENT_H
#define IDEM_STATEMENT_H

#include "machine_cache.h"

extern const IdemMachine *idem_statement_machine(MemoryContext memory,
												 int depth, bool adopt,
												 const char *name,
												 bool missing_ok);
extern int	idem_statement_warning(MemoryContext memory);

#endif							/* IDEM_STATEMENT_H */
