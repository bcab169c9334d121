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
	int64		row_hash;		/* idem_history_hash() of it */
	Jsonb	   *whole_key;		/* with the state column, if that is in it */
	const char *event;
	char	   *from;
	char	   *to;
	bool		has_version;
	int64		version;
	text	   *key;
	Jsonb	   *context;		/* NULL: the setting's */
	TimestampTz at;
	int64		seq;			/* 0: the next one */
	bool		passed;			/* the row is in a later state already */
} IdemHistoryRow;

typedef struct IdemHistoryWriter IdemHistoryWriter;

/* history_write.c */
extern IdemHistoryWriter *idem_history_open(const IdemBinding *binding);
extern void idem_history_add(IdemHistoryWriter *writer,
							 const IdemHistoryRow *row);
extern void idem_history_close(IdemHistoryWriter *writer);
extern Oid	idem_history_sequence(const IdemHistoryWriter *writer);

/* history.c */
extern void idem_history_init(void);
extern int64 idem_history_hash(const IdemTarget *key, const Datum *values,
							   Jsonb *row_key);
extern IdemTarget *idem_history_key(IdemTarget *target,
									const IdemTable *table);

#endif							/* IDEM_HISTORY_H */
