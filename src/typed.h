/*
 * typed.h
 *	  A typed argument in the form in which it is compared.
 */
#ifndef IDEM_TYPED_H
#define IDEM_TYPED_H

#include "utils/jsonb.h"

extern JsonbValue *idem_typed_value(Oid type, Datum value, bool isnull,
									const char **form);

#endif							/* IDEM_TYPED_H */
