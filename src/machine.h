/*
 * machine.h
 *	  The tables that define state machines, and the tables bound to them.
 */
#ifndef IDEM_MACHINE_H
#define IDEM_MACHINE_H

#include "nodes/pg_list.h"
#include "utils/elog.h"
#include "utils/relcache.h"

#include "catalog.h"
#include "definition.h"

struct IdemMachine;

/* a table whose column "column" moves by the machine */
typedef struct IdemBound
{
	Oid			relid;
	NameData	column;
	bool		history;		/* is kept of its moves */
} IdemBound;

/* its rows in one state */
typedef struct IdemStateCount
{
	char	   *state;			/* first: the key of a hash table */
	int64		rows;
} IdemStateCount;

/* machine.c */
extern void idem_machine_check_name(const char *what, const char *name);
extern bool idem_machine_may_change(const char *owner);
extern void idem_machine_refuse(const char *machine, const char *owner);
extern bool idem_machine_lock(const char *machine, NameData *owner);
extern void idem_machine_write_whole(void (*work) (void *), void *arg);

/* guard_text.c */
extern void idem_guard_check(const char *guard, const char *event);
extern ErrorData *idem_guard_misfit(Oid relid, const char *machine,
									const IdemTransitionDef *rule,
									bool *certain);
extern Relation idem_guard_open(Oid relid, const char *machine,
								IdemIdentity *saved);
extern void idem_guard_check_table(Relation rel,
								   const struct IdemMachine *machine);
extern List *idem_guard_readers(const char *machine);
extern void idem_guard_check_tables(const char *machine,
									const IdemTransitionDef *rule);

/* bound.c */
extern List *idem_bound_tables(const char *machine);
extern char *idem_bound_name(Oid relid);
extern List *idem_bound_lock(const char *machine);
extern int64 idem_bound_rows(List *counts, const char *state);
extern int64 idem_bound_rows_of_all(List *tables, const char *state);
extern int64 idem_bound_rows_elsewhere(List *counts, List *states);
extern void idem_bound_check_empty(const char *machine, List *states,
								   const char *deed);
extern void idem_bound_choose(const char *machine, List *strange,
							  List *targets, bool warn, List **from,
							  List **to);
extern void idem_bound_move(const char *machine, List *from, List *to,
							List *gone, void (*finish) (void *), void *arg);
extern bool idem_machine_migrates(const char *machine, const char *from,
								  const char *to);

/* bound_count.c */
extern bool idem_bound_is_readable(Oid relid);
extern bool idem_bound_may_count(const IdemBound *bound);
extern List *idem_bound_count(const IdemBound *bound, int64 *without);

#endif							/* IDEM_MACHINE_H */
