/*
 * diagram.h
 *	  A machine drawn as text, and what is counted of it.
 */
#ifndef IDEM_DIAGRAM_H
#define IDEM_DIAGRAM_H

#include "definition.h"

/* live rows per state, and how often each transition was taken */
typedef struct IdemDiagramCounts
{
	List	   *tables;			/* of lists of counts, see idem_bound_rows */
	bool		history;		/* there is one */
	List	   *edges;			/* of IdemEdgeCount */
} IdemDiagramCounts;

typedef struct IdemEdgeCount
{
	char	   *event;
	char	   *from;
	char	   *to;
	int64		times;
} IdemEdgeCount;

extern IdemDefinition *idem_diagram_machine(const char *machine);
extern void idem_diagram_mermaid(StringInfo out,
								 const IdemDefinition *definition,
								 const IdemDiagramCounts *counts);

#endif							/* IDEM_DIAGRAM_H */
