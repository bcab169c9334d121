/*
 * guc.h
 *	  The settings under idem.*; guc.c defines them, anybody may read them.
 */
#ifndef IDEM_GUC_H
#define IDEM_GUC_H

typedef enum IdemAccess
{
	IDEM_ACCESS_AUTO,
	IDEM_ACCESS_DIRECT,
	IDEM_ACCESS_SQL
} IdemAccess;

extern char *idem_guc_scope;
extern int	idem_guc_access;
extern bool idem_guc_declared_scopes;
extern int	idem_guc_branch_ttl;	/* minutes */
extern int	idem_guc_tick_row_timeout;	/* milliseconds; 0: none */
extern char *idem_guc_actor;
extern char *idem_guc_context;
extern uint64 idem_guc_writer_serial;
extern int	idem_guc_stats_max;
extern char *idem_guc_databases;
extern int	idem_guc_workers;
extern int	idem_guc_naptime;	/* seconds */
extern int	idem_guc_batch_size;
extern double idem_guc_cost_delay;	/* milliseconds; -1: vacuum's */
extern int	idem_guc_refusals_max;

extern void idem_guc_define(void);
extern void idem_guc_set(const char *name, const char *value);

#endif							/* IDEM_GUC_H */
