/*
 * machine_cache.h
 *	  State machines, compiled for one session.
 */
#ifndef IDEM_MACHINE_CACHE_H
#define IDEM_MACHINE_CACHE_H

#include "datatype/timestamp.h"
#include "utils/palloc.h"

/* what a write that names the state column and leaves its value means */
typedef enum IdemSelf
{
	IDEM_SELF_NOOP,
	IDEM_SELF_DENY,
	IDEM_SELF_REENTER
} IdemSelf;

/* a row of idem.transition */
typedef struct IdemRule
{
	const char *event;
	const char *from;			/* NULL: any state */
	const char *to;
	int			from_state;		/* index of "from", -1 if NULL */
	int			to_state;		/* index of "to" */
	int			priority;
	const char *guard;			/* NULL: none */
	int			nroles;			/* 0: any role */
	const char **roles;
	bool		timed;
	Interval	after;			/* if timed */
	int			index;			/* in IdemMachine.rules */
} IdemRule;

/* a row of idem.state */
typedef struct IdemMachineState
{
	const char *name;
	int			length;
	bool		initial;
	bool		final;
	bool		frozen;
	IdemSelf	self;
	bool		is_number;		/* the name is an integer's own text */
	int64		number;
	int			nrules;
	const IdemRule **rules;		/* that leave it, wildcards too, in order */
} IdemMachineState;

/* in IdemMachine.rules: by priority, event, explicit before wildcard */
typedef struct IdemMachine
{
	const char *name;
	uint64		serial;			/* no two compilations share one */
	int			nstates;
	IdemMachineState *states;	/* by length, then by bytes */
	int			nrules;
	IdemRule   *rules;
	int			nwildcards;
	const IdemRule **wildcards; /* what leaves a state it does not know */
	bool		timed;			/* some rule is */
} IdemMachine;

extern void idem_machine_accept(void);
extern const IdemMachine *idem_machine_get(const char *name, bool missing_ok,
										   MemoryContext holder);
extern void idem_machine_hold(const IdemMachine *machine, MemoryContext holder);
extern int	idem_machine_state(const IdemMachine *machine,
							   const char *label, int length);
extern int	idem_machine_number(const IdemMachine *machine, int64 number);
extern bool idem_machine_has_event(const IdemMachine *machine,
								   const char *event);
extern int	idem_machine_rules(const IdemMachine *machine, int from,
							   const IdemRule *const **rules);

#endif							/* IDEM_MACHINE_CACHE_H */
