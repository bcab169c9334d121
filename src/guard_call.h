/*
 * guard_call.h
 *	  What the parts of the guard share: guard.c, guard_decide.c,
 *	  guard_proof.c, guard_move.c.
 */
#ifndef IDEM_GUARD_CALL_H
#define IDEM_GUARD_CALL_H

#include "commands/trigger.h"
#include "executor/tuptable.h"

#include "decision.h"
#include "judge.h"
#include "taken.h"

/* a value of the state column as it came, and the state that it is */
typedef struct IdemGuardSeen
{
	Size		length;			/* 0: none yet */
	char		image[32];
	int			state;
} IdemGuardSeen;

/* one trigger of one relation in one statement */
typedef struct IdemGuardCall
{
	IdemJudge  *judge;
	int			depth;			/* of triggers */
	bool		by_row;			/* what was decided is asked for after the row */
	bool		records;		/* else the history's trigger would not fire */
	IdemTaken	taken;
	Oid			fired_at;		/* where an event names the row */
	IdemGuardSeen seen[2];		/* the last two that were different */
	int			seen_last;		/* of these */
	Bitmapset  *leave_columns;	/* by which a row is in its partition, or is
								 * known where it moves */
	Bitmapset  *key_columns;	/* idem_guard_key_columns() */
	AttrNumber *columns;		/* guard_image.c's own */
} IdemGuardCall;

/* guard.c */
extern void idem_guard_stays(IdemGuardCall *call, TriggerData *trigdata,
							 TupleTableSlot *old_slot, TupleTableSlot *new_slot);

/* guard_decide.c */
extern int	idem_guard_state(IdemGuardCall *call, TupleTableSlot *slot,
							 Datum *value, bool *isnull);
extern const char *idem_guard_name(IdemGuardCall *call, int state,
								   TupleTableSlot *slot);
extern bool idem_guard_decide(IdemGuardCall *call, ItemPointer tid,
							  TupleTableSlot *old_slot,
							  TupleTableSlot *new_slot,
							  bool named, IdemDecision *decision,
							  const IdemIntent **intent);
extern bool idem_guard_prove(IdemGuardCall *call, ItemPointer tid,
							 const IdemDecision *kept,
							 TupleTableSlot *old_slot,
							 TupleTableSlot *new_slot, IdemDecision *decision,
							 const IdemIntent **intent);
extern void idem_guard_insert(IdemGuardCall *call, TupleTableSlot *slot);
extern void idem_guard_delete(IdemGuardCall *call, TupleTableSlot *slot);

/* guard_image.c */
extern uint64 idem_guard_hash_row(IdemGuardCall *call, TupleTableSlot *slot);
extern uint64 idem_guard_hash_columns(TupleTableSlot *slot, Oid relid,
									  Relation named,
									  const Bitmapset *columns);

/* guard_proof.c */
extern void idem_guard_proof_init(void);
extern bool idem_guard_proof_is_due(void);
extern void idem_guard_proof_of_rest(int nestlevel);
extern void idem_guard_proof_note(IdemGuardCall *call, Relation rel,
								  ItemPointer tid,
								  const IdemDecision *decision);
extern void idem_guard_proof_of_statement(IdemGuardCall *call, Relation rel);

/* guard_move.c */
extern void idem_guard_move_init(void);
extern bool idem_guard_has_moved(void);
extern Bitmapset *idem_guard_partition_columns(Relation rel);
extern Bitmapset *idem_guard_leave_columns(Relation rel,
										   const IdemBinding *binding);
extern Bitmapset *idem_guard_key_columns(Relation rel, bool *whole);
extern bool idem_guard_differs(const Bitmapset *columns, TriggerData *trigdata);
extern bool idem_guard_leave(IdemGuardCall *call, TriggerData *trigdata);
extern bool idem_guard_arrive(IdemGuardCall *call, TriggerData *trigdata);

#endif							/* IDEM_GUARD_CALL_H */
