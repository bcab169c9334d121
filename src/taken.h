/*
 * taken.h
 *	  The hand-over between who fires an event, the guard, and the history.
 */
#ifndef IDEM_TAKEN_H
#define IDEM_TAKEN_H

#include "access/htup.h"
#include "commands/trigger.h"
#include "storage/itemptr.h"
#include "utils/jsonb.h"
#include "utils/relcache.h"

#include "binding.h"

/*
 * An event that a verb fires, for the rows that it names and no others.  The
 * caller's; on its stack between idem_taken_begin() and idem_taken_end().
 */
typedef struct IdemIntent
{
	const IdemMachine *machine; /* NULL: rows are moved past all of them */
	const char *column;			/* NULL: every column of that machine */
	const char *event;
	const TimestampTz *timed_since; /* as in judge.h */
	text	   *key;			/* for the history; NULL: none */
	Jsonb	   *context;		/* for the history; NULL: the setting's */

	/* one row, or those for which covers() is true */
	Oid			relid;			/* the very relation that holds it */
	ItemPointerData tid;		/* of the version that is replaced */
	bool		(*covers) (const struct IdemIntent *intent, Oid relid,
						   ItemPointer tid);
	void	   *arg;

	/* taken.c's own */
	int			depth;
	struct IdemIntent *outer;
} IdemIntent;

/* who tells the history of the steps of one statement */
typedef struct IdemTaken
{
	MemoryContext holder;		/* of what the history keeps meanwhile */
	MemoryContext statement;	/* the memory of it (writing.c) */
	uint64		serial;			/* no two statements share one */
	bool		partition;		/* of the table that was attached */
	bool		by_row;			/* it tells after the write */
	CommandId	command;		/* that writes the row */
	CommandId	replaced;		/* that wrote it before, in this transaction;
								 * else InvalidCommandId */
	void	   *history;		/* the history's own */
} IdemTaken;

/*
 * What the history does with what the guard tells it, before the update of a
 * row that will be written; NULL: nothing.
 */
typedef void (*IdemTakenStep) (IdemTaken *taken, TriggerData *trigdata,
							   const IdemBinding *binding, const char *from,
							   const char *to, const char *event,
							   const IdemIntent *intent);
extern IdemTakenStep idem_taken_step;

/* the same after the write */
typedef void (*IdemTakenRow) (IdemTaken *taken, Relation rel,
							  TupleTableSlot *old_slot,
							  TupleTableSlot *new_slot,
							  const IdemBinding *binding, const char *event,
							  const IdemIntent *intent);
extern IdemTakenRow idem_taken_row;

/*
 * A row stays in its state, but may get another key.  By row, before the write and
 * after it.
 */
typedef void (*IdemTakenKey) (IdemTaken *taken, TriggerData *trigdata,
							  const IdemBinding *binding,
							  TupleTableSlot *old_slot,
							  TupleTableSlot *new_slot);
extern IdemTakenKey idem_taken_key;

/* before the update of a row that this transaction wrote */
typedef void (*IdemTakenAgain) (IdemTaken *taken, TriggerData *trigdata,
								const IdemBinding *binding);
extern IdemTakenAgain idem_taken_again;

extern int	idem_taken_depth(void);
extern const IdemMachine *idem_taken_machine(int depth, const char *name);
extern void idem_taken_begin(IdemIntent *intent);
extern void idem_taken_end(IdemIntent *intent);
extern bool idem_taken_is_own(Oid relid, ItemPointer tid);
extern const char *idem_taken_column(Oid relid, ItemPointer tid);
extern const IdemIntent *idem_taken_intent(Oid relid, ItemPointer tid,
										   const char *machine,
										   const char *column);

#endif							/* IDEM_TAKEN_H */
