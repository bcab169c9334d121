/*
 * current_key.h
 *	  The key of the current request: idem.key, or a running call's child key.
 */
#ifndef IDEM_CURRENT_KEY_H
#define IDEM_CURRENT_KEY_H

#include "utils/guc.h"
#include "utils/guc_tables.h"

/* what a call keeps of the setting while its function runs */
typedef struct IdemKeyFrame
{
	struct IdemKeyFrame *outer;
	uint64		number;			/* never used again */
	text	   *scope;
	text	   *key;
	const char *name;			/* of the function */
	char	   *child;			/* NULL: nobody has asked yet */
	MemoryContext context;
	char	   *former;			/* the setting before */
	uint64		former_set_in;
	GucStack   *stack;			/* top of its stack before, if any, */
	GucStackState state;		/* and the state of that, and what it masked */
	char	   *masked;
	uint64		masked_set_in;
} IdemKeyFrame;

/* child.c */
extern char *idem_child_key(text *scope, text *key, const char *name,
							int len);

/* current_key.c */
extern void idem_current_key_define(void);
extern const char *idem_current_key(void);
extern void idem_current_key_enter(IdemKeyFrame *frame, text *scope,
								   text *key, const char *name);
extern void idem_current_key_leave(IdemKeyFrame *frame);
extern void idem_current_key_restore(const IdemKeyFrame *frame);

#endif							/* IDEM_CURRENT_KEY_H */
