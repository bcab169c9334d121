/*
 * timer.h
 *	  When rows are due for a transition by themselves.
 */
#ifndef IDEM_TIMER_H
#define IDEM_TIMER_H

#include "history.h"
#include "own.h"

typedef struct IdemTimers IdemTimers;
typedef struct IdemTimersFound IdemTimersFound;

/*
 * Since when a row has been in a state by its history: NULL if the last entry
 * there is about another, or if there is none.
 */
#define IDEM_TIMERS_SINCE(hash, row_key, state, schema, table, column, machine, also) \
	"(SELECT h.at FROM (SELECT l.to_state, l.at FROM idem.history AS l" \
	" WHERE l.row_hash OPERATOR(pg_catalog.=) " hash \
	" AND l.row_key OPERATOR(pg_catalog.=) " row_key \
	" AND l.table_schema OPERATOR(pg_catalog.=) " schema \
	" AND l.table_name OPERATOR(pg_catalog.=) " table \
	" AND l.column_name OPERATOR(pg_catalog.=) " column \
	" AND l.machine OPERATOR(pg_catalog.=) " machine also \
	" ORDER BY l.seq DESC LIMIT 1) AS h" \
	" WHERE h.to_state OPERATOR(pg_catalog.=) " state ")"

extern Datum idem_timers_history_column(const IdemBinding *binding);
extern IdemTimers *idem_timers_open(const IdemBinding *binding);
extern void idem_timers_rename(IdemTimers *timers, const IdemHistoryRow *row);
extern void idem_timers_add(IdemTimers *timers, const IdemHistoryRow *row);
extern List *idem_timer_rules(const IdemMachine *machine, int state);
extern bool idem_timers_differ(const IdemMachine *old, const IdemMachine *new);
extern TimestampTz idem_timer_due(const IdemRule *rule, TimestampTz since);
extern TimestampTz idem_timer_next(const IdemMachine *machine, int state,
								   const char *event, TimestampTz since,
								   TimestampTz after);
extern void idem_timers_close(IdemTimers *timers);
extern TimestampTz idem_timers_since(const IdemBinding *binding,
									 const IdemHistoryRow *left,
									 const char *label);
extern void idem_timers_carry(const IdemBinding *binding,
							  const IdemHistoryRow *row);
extern void idem_timers_name(Datum *args, const char *schema,
							 const char *table, const char *tag);
extern void idem_timers_name_table(Datum *args, Oid relid, const char *tag);
extern uint64 idem_timers_run(IdemOwnStatement *statement,
							  const Datum *values);

/* timer_find.c */
extern Relation idem_timers_open_table(void);
extern IdemTimersFound *idem_timers_find(Oid relid, const char *tag,
										 const Datum *hashes,
										 const Datum *keys, int n);
extern bool idem_timers_lock(Relation rel, ItemPointer tid,
							 TupleTableSlot *slot);
extern void idem_timers_delete(IdemTimersFound *found);
extern void idem_timers_forget_moves(void);
extern uint64 idem_timers_hash_key(Datum key);
extern void idem_timers_remember_left(Oid relid, const char *tag, uint64 key);
extern void idem_timers_remember_made(Oid relid, const char *tag,
									  uint64 key, ItemPointer tid);

/* timer_fill.c */
extern void idem_timers_expect(const char *machine);
extern void idem_timers_expect_of(Oid relid, const char *machine,
								  const char *tag, bool attached);
extern void idem_timers_expect_renamed(Oid relid, const char *machine,
									   const char *tag, Jsonb *former_key);
extern bool idem_timers_are_refused(Relation rel);
extern void idem_timers_warn(Oid relid);
extern void idem_timers_forget(Oid relid, const char *tag);
extern void idem_timers_fill(Relation rel, const IdemBinding *binding,
							 const IdemMachine *machine, const char *schema,
							 const char *table, TimestampTz since,
							 bool renamed);
extern TimestampTz idem_timer_recorded_since(const IdemBinding *binding,
											 int64 row_hash, Jsonb *history_key,
											 const char *state);
extern bool idem_timer_is_outdated(const char *schema, const char *table,
								   const char *tag, int64 row_hash,
								   Jsonb *row_key, const char *event,
								   TimestampTz since);

/* timer_key.c */
extern bool idem_timer_name(IdemTarget *target, const IdemTable *table,
							Jsonb *row_key, Datum *id, IdemHistoryRow *name);
extern void idem_timers_rekey(IdemTarget *target, const IdemTable *table,
							  Datum *args);

#endif							/* IDEM_TIMER_H */
