/*
 * typed.h
 *	  A typed argument in the form in which it is compared.
 */
#ifndef IDEM_TYPED_H
#define IDEM_TYPED_H

#include "lib/stringinfo.h"

extern void idem_typed_append(StringInfo buf, int position, Oid type,
							  Datum value, bool isnull);

#endif							/* IDEM_TYPED_H */
