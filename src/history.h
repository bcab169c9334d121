/*
 * history.h
 *	  What has happened to rows that move by machines.
 */
#ifndef IDEM_HISTORY_H
#define IDEM_HISTORY_H

#include "utils/jsonb.h"

#include "binding.h"
#include "target.h"

/* one row of idem.history; NULL where a column is */
typedef struct IdemHistoryRow
{
	Jsonb	   *row_key;
	int64		row_hash;		/* what the index has for it */
	Jsonb	   *whole_key;		/* with the state column, if that is in it */
	int64		whole_hash;
	CommandId	command;		/* that writes the row so */
	Jsonb	   *left_key;		/* the whole one that it had; NULL: the same,
								 * or not asked */
	int64		left_hash;		/* what the index has for that one's row */
	int64		left_whole_hash;
	CommandId	left_command;	/* that wrote it before, in this transaction;
								 * else InvalidCommandId */
	const char *event;
	const char *from;
	const char *to;
	bool		has_version;
	int64		version;
	text	   *key;
	Jsonb	   *context;		/* NULL: the setting's */
	int64		seq;			/* 0: drawn when it is written */
	TimestampTz at;				/* if seq is not 0 */
	bool		passed;			/* the row is in a later state already */
	bool		takes_key;		/* who had the key may still have timers */
} IdemHistoryRow;

typedef struct IdemHistoryWriter IdemHistoryWriter;

/* history_write.c */
extern IdemHistoryWriter *idem_history_open(const IdemBinding *binding);
extern void idem_history_add(IdemHistoryWriter *writer,
							 const IdemHistoryRow *row);
extern bool idem_history_is_full(const IdemHistoryWriter *writer);
extern void idem_history_number(IdemHistoryWriter *writer);
extern void idem_history_pass(IdemHistoryWriter *writer, CommandId command,
							  int64 hash);
extern void idem_history_pass_writing(Oid trigger, CommandId command,
									  int64 hash);
extern void idem_history_flush(IdemHistoryWriter *writer);
extern void idem_history_close(IdemHistoryWriter *writer);

/* history_pending.c */
extern void idem_history_pending_init(void);
extern void idem_history_pend(Relation rel, const IdemBinding *binding,
							  uint64 statement, const IdemHistoryRow *row);
extern void idem_history_precede(const IdemBinding *binding,
								 const IdemHistoryRow *row);
extern void idem_history_settle(Oid relid);

/* history_key.c */
extern IdemTarget *idem_history_key(IdemTarget *target,
									const IdemTable *table);
extern IdemTarget *idem_history_find_key(Relation rel,
										 const IdemBinding *binding);
extern void idem_history_name(const IdemTarget *key,
							  const IdemTarget *whole_key, Datum *values,
							  IdemHistoryRow *row);

/* history.c */
extern void idem_history_init(void);

#endif							/* IDEM_HISTORY_H */
