/*
 * judge.h
 *	  Whether a row may move, and if not, why.
 */
#ifndef IDEM_JUDGE_H
#define IDEM_JUDGE_H

#include "access/htup.h"
#include "executor/tuptable.h"
#include "utils/relcache.h"
#include "utils/timestamp.h"

#include "binding.h"
#include "definition.h"
#include "machine_cache.h"

typedef enum IdemJudgement
{
	IDEM_JUDGE_PASS,			/* by the rule that is returned */
	IDEM_JUDGE_SAME,			/* nothing moves, and that is all right */
	IDEM_JUDGE_FROZEN,			/* no update at all */
	IDEM_JUDGE_FINAL,			/* nothing leaves this state */
	IDEM_JUDGE_ILLEGAL,			/* no such transition from here */
	IDEM_JUDGE_FORBIDDEN,		/* the role may not */
	IDEM_JUDGE_GUARDED			/* the guard is not true */
} IdemJudgement;

/* one statement's, or one verb's, judge of one binding of one relation */
typedef struct IdemJudge
{
	Oid			relid;
	IdemTable  *table;
	IdemBinding *binding;
	const IdemMachine *machine;
	const TimestampTz *timed_since; /* set by who fires in the table's own
									 * name what its time has come for: since
									 * when the row is in its state.  NULL: by
									 * a role */

	/* judge.c's own */
	MemoryContext holder;
	TupleDesc	desc;
	struct ExprContext *econtext;
	struct ExprState **guards;
	Oid			userid;			/* whom the next two are about */
	signed char *allowed;		/* per rule: 0 not known yet, 1 yes, -1 no */
	signed char exempt;			/* likewise */
	TupleTableSlot *old_slot;
	TupleTableSlot *new_slot;
} IdemJudge;

extern IdemJudge *idem_judge_begin(Relation rel, IdemTable *table,
								   IdemBinding *binding,
								   const IdemMachine *machine,
								   MemoryContext holder);
extern bool idem_judge_is_exempt(IdemJudge *judge);
extern IdemJudgement idem_judge_slots(IdemJudge *judge, TupleTableSlot *old_slot,
									  TupleTableSlot *new_slot, int from, int to,
									  const char *event, const IdemRule **rule);
extern IdemJudgement idem_judge_tuples(IdemJudge *judge, HeapTuple old_tuple,
									   HeapTuple new_tuple, int from, int to,
									   const char *event, const IdemRule **rule);
extern bool idem_judge_role(IdemJudge *judge, const IdemRule *rule);
extern void idem_judge_check_guard(Relation rel, const char *machine,
								   const IdemTransitionDef *rule);

/* judge_report.c */
extern const char *idem_judge_hint(int elevel, const char *hint);
extern char *idem_judge_initial_text(const IdemMachine *machine,
									 const char *what);
extern const char *idem_judge_quoted(const char *label);
extern char *idem_judge_role_text(const IdemMachine *machine, int from,
								  const IdemRule *rule, const char *event);
extern bool idem_judge_is_denied(const IdemMachine *machine, int from,
								 const char *event, const char *to,
								 const IdemRule *rule);
extern int	idem_judge_errcolumn(const IdemJudge *judge);
extern char *idem_judge_allowed_text(IdemJudge *judge, int from,
									 const char *event, const char *to);
extern void idem_judge_count(const IdemJudge *judge, bool observed,
							 IdemJudgement verdict, const char *from,
							 const char *to, const char *event,
							 const IdemRule *rule);
extern void idem_judge_report(IdemJudge *judge, int elevel,
							  IdemJudgement verdict, const char *from,
							  const char *to, const char *event,
							  const IdemRule *rule);

#endif							/* IDEM_JUDGE_H */
