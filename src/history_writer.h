/*
 * history_writer.h
 *	  What the parts of a writer of idem.history share: history_write.c,
 *	  history_insert.c.
 */
#ifndef IDEM_HISTORY_WRITER_H
#define IDEM_HISTORY_WRITER_H

#include "access/htup.h"
#include "executor/tuptable.h"

#include "history.h"

/* rows that are inserted together */
#define IDEM_HISTORY_BATCH	500

/* columns of idem.history, in order */
enum
{
	IDEM_HISTORY_SEQ,
	IDEM_HISTORY_TABLE_SCHEMA,
	IDEM_HISTORY_TABLE_NAME,
	IDEM_HISTORY_COLUMN_NAME,
	IDEM_HISTORY_ROW_KEY,
	IDEM_HISTORY_MACHINE,
	IDEM_HISTORY_EVENT,
	IDEM_HISTORY_FROM_STATE,
	IDEM_HISTORY_TO_STATE,
	IDEM_HISTORY_VERSION,
	IDEM_HISTORY_ROLE_NAME,
	IDEM_HISTORY_ACTOR,
	IDEM_HISTORY_KEY,
	IDEM_HISTORY_CONTEXT,
	IDEM_HISTORY_AT,
	IDEM_HISTORY_EXPIRES_AT,
	IDEM_HISTORY_ROW_HASH,
	IDEM_HISTORY_NCOLUMNS
};

extern const Oid idem_history_types[IDEM_HISTORY_NCOLUMNS];

/* labels come again and again */
typedef struct IdemHistoryLabel
{
	const char *label;
	Datum		value;
} IdemHistoryLabel;

/* a row that is not written yet */
typedef struct IdemHistoryWaiting
{
	HeapTuple	tuple;
	int64		row_hash;
	int64		whole_hash;		/* of the primary key */
	CommandId	command;		/* that writes the row so */
	int64		seq;			/* 0: it has no number yet */
	TimestampTz since;
	bool		passed;
	TransactionId passed_by;	/* who has moved the row on since, if he
								 * commits */
	IdemHistoryRow *timed;		/* for the timers; NULL: none */
} IdemHistoryWaiting;

struct IdemHistoryWriter
{
	const IdemBinding *binding;
	MemoryContext context;		/* of what lives until it is closed */
	MemoryContext rows_context; /* of rows that are not written */
	Datum		common[IDEM_HISTORY_NCOLUMNS];
	bool		null[IDEM_HISTORY_NCOLUMNS];
	Size		common_size;
	IdemHistoryLabel labels[3]; /* of event, from, to; with the rows */
	bool		plain;			/* the last row has what all have, labels and
								 * a key */
	Size		key_offset;		/* of row_key, in a row */
	bool		timed;			/* the machine is */
	IdemHistoryWaiting *rows;
	int			n;				/* that are there */
	int			numbered;		/* of these */
	Size		bytes;
	bool		goes_on;		/* more than a batch has come */
	TupleTableSlot **slots;
	int			nslots;			/* that were made */
	struct IdemHistoryWriter *outer;	/* whose rows are being written, too */
};

/* history_insert.c */
extern void idem_history_insert(IdemHistoryWriter *writer);

#endif							/* IDEM_HISTORY_WRITER_H */
