/*
 * fire.h
 *	  Events of rows: what they are judged by, and what all verbs share.
 */
#ifndef IDEM_FIRE_H
#define IDEM_FIRE_H

#include "fmgr.h"
#include "utils/jsonb.h"
#include "utils/snapshot.h"

#include "judge.h"
#include "registry.h"
#include "rowversion.h"
#include "target.h"

typedef enum IdemFireOutcome
{
	IDEM_FIRE_APPLIED,
	IDEM_FIRE_ALREADY,
	IDEM_FIRE_MISSING,
	IDEM_FIRE_STALE,
	IDEM_FIRE_FROZEN,
	IDEM_FIRE_ILLEGAL,
	IDEM_FIRE_FORBIDDEN,
	IDEM_FIRE_GUARDED,
	IDEM_FIRE_MISMATCH
} IdemFireOutcome;

/* one call of a verb, for one row or many */
typedef struct IdemFire
{
	const char *verb;
	bool		unnamed;		/* that takes no machine's name */
	IdemTarget *target;
	IdemBinding *binding;		/* of the table that was named */
	const IdemMachine *machine;
	const char *event;			/* NULL: whatever is possible */
	bool		has_expected;
	int64		expected;		/* version */
	text	   *key;
	Jsonb	   *context;
	bool		has_version;
	IdemVersion version;
	const TimestampTz *timed_since; /* as in judge.h: the table's owner's own
									 * doing, and no row is waited for */
	const char *only_from;		/* from this state alone; NULL: any */
	bool		(*is_over) (void *arg); /* whether the row, now locked, is to
										 * be left alone; NULL: no */
	void	   *is_over_arg;
	bool		moves;			/* the state is part of the primary key */
	IdemScope	scope;			/* if there is a key */
	struct FireLeaf *leaves;
	MemoryContext context_of;	/* what lives as long as the call */
} IdemFire;

/* a row as it was found */
typedef struct IdemFireRow
{
	Oid			relid;			/* the very relation that holds it */
	ItemPointerData tid;
	Datum		state;
	bool		state_null;
	bool		has_version;
	int64		version;
	Jsonb	   *row_key;		/* its part of what a key stands for; NULL if
								 * there is no key */
} IdemFireRow;

typedef struct IdemFireVerdict
{
	IdemFireOutcome outcome;
	char	   *from;
	char	   *to;
	bool		has_version;
	int64		version;

	/* for who reports it */
	IdemJudge  *judge;
	const char *state;			/* "from", or that of another machine, which
								 * has frozen the row */
	IdemJudgement verdict;
	const IdemRule *rule;
} IdemFireVerdict;

extern const char *const idem_fire_outcomes[];

/* how often a row that is hidden from locking may look as if it were there */
#define IDEM_FIRE_ATTEMPTS	5

/* fire.c */
extern void idem_fire_prepare(IdemFire *fire, FunctionCallInfo fcinfo,
							  LOCKMODE lockmode);
extern void idem_fire_choose(IdemFire *fire, const char *machine);
extern void idem_fire_set_list(IdemFire *fire, int param, StringInfo set,
							   StringInfo returning);
extern bool idem_fire_lock(IdemFire *fire, Datum *id, IdemFireRow *row);
extern void idem_fire_write(IdemFire *fire, Datum *id, const IdemFireRow *row,
							text *key, IdemFireVerdict *verdict);
extern void idem_fire_take_written(IdemFire *fire, struct HeapTupleData *tuple,
								   struct TupleDescData *desc, int first,
								   const IdemFireRow *row, text *key,
								   IdemFireVerdict *verdict);
extern void idem_fire_one(IdemFire *fire, Datum *id,
						  IdemFireVerdict *verdict);
extern void idem_fire_refuse_lost(IdemFire *fire);
extern void idem_fire_count(const IdemFire *fire,
							const IdemFireVerdict *verdict, bool raised);

/* fire_row.c */
extern void idem_fire_columns(IdemFire *fire, StringInfo buf);
extern bool idem_fire_read(IdemFire *fire, Datum *id, const char *lock,
						   Snapshot snapshot, IdemFireRow *row);
extern void idem_fire_take_row(IdemFire *fire, struct HeapTupleData *tuple,
							   struct TupleDescData *desc, int first,
							   IdemFireRow *row);
extern void idem_fire_judge(IdemFire *fire, const IdemFireRow *row,
							Snapshot snapshot, IdemFireVerdict *verdict);
extern void idem_fire_check_row(IdemFire *fire, const IdemFireRow *row);
extern void idem_fire_close(IdemFire *fire);

/* fire_key.c */
extern Jsonb *idem_fire_row_key(const IdemFire *fire, const Datum *values);
extern text *idem_fire_child_key(const IdemFire *fire, Jsonb *row_key,
								 text **former_key);
extern bool idem_fire_recall(IdemFire *fire, text *key, Jsonb *row_key,
							 IdemFireVerdict *verdict);
extern void idem_fire_missing(IdemFire *fire, text *key, const Datum *values,
							  IdemFireVerdict *verdict);
extern void idem_fire_correct(IdemFire *fire, text *key, Jsonb *row_key,
							  const IdemFireVerdict *verdict);
extern bool idem_fire_spend(IdemFire *fire, text *key, Jsonb *row_key,
							IdemFireVerdict *verdict);

#endif							/* IDEM_FIRE_H */
