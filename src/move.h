/*
 * move.h
 *	  What a row is to keep where it moves to another partition.
 */
#ifndef IDEM_MOVE_H
#define IDEM_MOVE_H

#include "commands/trigger.h"
#include "nodes/bitmapset.h"
#include "utils/relcache.h"

typedef struct IdemMoveFrom IdemMoveFrom;

extern IdemMoveFrom *idem_move_from(TriggerData *td, const Bitmapset *columns,
									AttrNumber kept);
extern bool idem_move_leaves(IdemMoveFrom *from, TriggerData *td);
extern void idem_move_keep(IdemMoveFrom *from, TriggerData *td,
						   MemoryContext query, const char *tag,
						   int64 value);
extern bool idem_move_arrives(TriggerData *td, MemoryContext query,
							  const char *tag, int64 *value);

#endif							/* IDEM_MOVE_H */
