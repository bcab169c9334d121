/*
 * binding.h
 *	  Which columns of a table move by which machines.
 */
#ifndef IDEM_BINDING_H
#define IDEM_BINDING_H

#include "access/attnum.h"
#include "access/htup.h"
#include "datatype/timestamp.h"
#include "utils/relcache.h"

#include "machine_cache.h"

/* in place of a state's index */
#define IDEM_STATE_UNKNOWN	(-1)
#define IDEM_STATE_NULL		(-2)

typedef enum IdemStateKind
{
	IDEM_STATE_NOT_A_KIND,
	IDEM_STATE_TEXT,			/* and varchar */
	IDEM_STATE_BPCHAR,
	IDEM_STATE_ENUM,
	IDEM_STATE_INT2,
	IDEM_STATE_INT4,
	IDEM_STATE_INT8
} IdemStateKind;

typedef enum IdemDeleteRule
{
	IDEM_DELETE_ANY,
	IDEM_DELETE_FINAL,
	IDEM_DELETE_NEVER
} IdemDeleteRule;

/* arguments of every trigger of a binding */
#define IDEM_ARG_MACHINE	0
#define IDEM_ARG_OPTIONS	1	/* jsonb as text, only what is not default */
#define IDEM_ARG_TAG		2	/* the first trigger's name at attach */
#define IDEM_ARG_TABLE		3	/* the table's name at attach */
#define IDEM_NARGS			4

typedef struct IdemBinding
{
	Oid			trigger;		/* before update of a row */
	const char *trigger_name;
	const char *machine;
	const char *options_text;
	const char *tag;
	const char *attached_as;	/* the table that was attached, as it was
								 * called then */
	AttrNumber	column;
	NameData	column_name;
	Oid			type;			/* of the column, as it was when looked up */
	Oid			base_type;
	int32		typmod;
	IdemStateKind kind;
	Oid			root;			/* the table that was attached */
	bool		child;			/* of the table that was attached */
	bool		history;
	char		history_enabled;	/* as tgenabled of its trigger after
									 * UPDATE */
	bool		events_only;
	bool		observe;
	IdemDeleteRule on_delete;
	int			nexempt;
	const char **exempt;
	bool		has_keep;
	Interval	keep;
	bool		rowwise;		/* what was decided is asked for after the row */
	bool		overruled;		/* a trigger before the update comes later */
	struct IdemTable *table;	/* that it is one of */
	struct IdemPlans *plans;	/* judge.c's own */
} IdemBinding;

typedef struct IdemTable
{
	Oid			relid;
	bool		each_row;		/* history is not written by statement */
	bool		spares_updates; /* else nobody looks at a row after its update */
	int			nbindings;
	IdemBinding *bindings;
	MemoryContext context;
} IdemTable;

/* what is done with a row of pg_trigger */
typedef void (*IdemTriggerLook) (Relation catalog, HeapTuple tuple, void *arg);

/* binding.c */
extern void idem_binding_init(void);
extern bool idem_binding_is_child(const char *options_text);
extern Oid	idem_binding_table(const IdemBinding *binding);
extern IdemTable *idem_table_get(Relation rel, MemoryContext holder);
extern IdemTable *idem_table_require(Relation rel, MemoryContext holder);
extern IdemBinding *idem_table_binding(IdemTable *table, const char *tag);
extern IdemBinding *idem_table_statement_binding(IdemTable *table, Relation rel,
												 const char *tag);

/* each_row.c */
extern void idem_each_row_init(void);

/* trigger.c */
extern void idem_trigger_each(List *relids, IdemTriggerLook look, void *arg);
extern Oid	idem_trigger_made_for(Oid trigger);
extern bool idem_trigger_is_ours(Oid function, const char *name);
extern bool idem_trigger_fires_now(char enabled);
extern AttrNumber idem_trigger_column(const char *qual);
extern void idem_trigger_refuse_taken(Relation rel, AttrNumber column);
extern void idem_trigger_warn_of_owners(Oid relid);

/* binding_value.c */
extern IdemStateKind idem_state_kind(Oid type, int32 typmod, Oid *base_type,
									 int32 *base_typmod);
extern int	idem_binding_state(const IdemBinding *binding,
							   const IdemMachine *machine,
							   Datum value, bool isnull);
extern char *idem_binding_label(const IdemBinding *binding, Datum value);
extern Datum idem_binding_value(const IdemBinding *binding, const char *label);
extern bool idem_binding_holds(const IdemBinding *binding, const char *label);

#endif							/* IDEM_BINDING_H */
