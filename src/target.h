/*
 * target.h
 *	  A row of a user's table, named by its primary key.
 *
 * A verb opens the table, takes the id, makes a statement and runs it:
 *
 *		target = idem_target_open(relid, RowExclusiveLock);
 *		idem_target_take_id(target, fcinfo, 1, values);
 *		values[target->nkeys] = Int64GetDatum(version);
 *		SPI_connect();
 *		plan = idem_target_plan(target, "UPDATE", "SET state = $2",
 *								"RETURNING t.version", 1, types);
 *		idem_target_run(plan, values, nulls);
 *
 * The table is "t" in the statement.  The key is $1 to $nkeys, what the caller
 * adds comes after it.  All of it runs as the caller, with his privileges and
 * row security.
 */
#ifndef IDEM_TARGET_H
#define IDEM_TARGET_H

#include "access/attnum.h"
#include "fmgr.h"
#include "nodes/pg_list.h"
#include "storage/lockdefs.h"
#include "utils/jsonb.h"

struct _SPI_plan;

/* how change_direct.c reaches the table */
typedef enum IdemTargetWay
{
	IDEM_TARGET_UNKNOWN,
	IDEM_TARGET_DIRECT,
	IDEM_TARGET_BY_SQL
} IdemTargetWay;

/*
 * Read only.  Lives until the end of the transaction, also where the table
 * changes meanwhile.
 */
typedef struct IdemTarget
{
	Oid			relid;			/* key of the cache */
	char	   *schema;
	char	   *table;
	char	   *name;			/* both, quoted, for statements */
	bool		only;			/* names rows of this table alone */
	int			nkeys;
	AttrNumber *attnums;		/* of the key, in this very table */
	char	  **columns;
	Oid		   *types;			/* what values have: domains' base types */
	char	  **operators;		/* of equality, qualified */
	char	  **operands;		/* "t.column", left of the operator */

	/* change_direct.c's own */
	IdemTargetWay direct;
	bool		foreign_keys;	/* to or from the table */

	/* target.c's own */
	char	   *condition;
	List	   *plans;
	MemoryContext context;
} IdemTarget;

/* room for a key's values */
#define IDEM_TARGET_MAXKEYS		INDEX_MAX_KEYS

/* target.c */
extern void idem_target_init(void);
extern IdemTarget *idem_target_find(Oid relid);
extern IdemTarget *idem_target_open(Oid relid, LOCKMODE lockmode);
extern struct _SPI_plan *idem_target_plan(IdemTarget *target,
										  const char *head,
										  const char *middle,
										  const char *tail, int nextra,
										  const Oid *extra_types);
extern struct _SPI_plan *idem_target_plan_rows(IdemTarget *target,
											   const char *text, int nparams,
											   const Oid *types);
extern struct _SPI_plan *idem_target_plan_few(IdemTarget *target,
											  const char *text, int nparams,
											  const Oid *types);
extern void idem_target_run(struct _SPI_plan *plan, Datum *values,
							const char *nulls);

/* target_id.c */
extern void idem_target_take_id(const IdemTarget *target,
								FunctionCallInfo fcinfo, int argno,
								Datum *values);
extern bool idem_target_read(const IdemTarget *target, Jsonb *key,
							 Datum *values);
extern void idem_target_convert(const IdemTarget *target, Datum id, Oid type,
								Datum *values);
extern Jsonb *idem_target_print(const IdemTarget *target,
								const Datum *values);
extern Jsonb *idem_target_print_values(const IdemTarget *target,
									   const Datum *values,
									   const int *which, int n);

#endif							/* IDEM_TARGET_H */
