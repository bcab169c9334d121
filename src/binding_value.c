/*
 * binding_value.c
 *	  States as values of the columns that hold them.
 *
 * A machine names its states by text; a column has them as text, characters,
 * labels of an enum, or integers.  Values are compared as bytes, whatever the
 * column's collation, and an integer by its own text.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "binding.h"
#include "compat.h"
#include "wait.h"

/*
 * How states stand in a column of that type.
 */
IdemStateKind
idem_state_kind(Oid type, int32 typmod, Oid *base_type, int32 *base_typmod)
{
	*base_typmod = typmod;
	*base_type = getBaseTypeAndTypmod(type, base_typmod);
	switch (*base_type)
	{
		case TEXTOID:
		case VARCHAROID:
			return IDEM_STATE_TEXT;
		case BPCHAROID:
			return IDEM_STATE_BPCHAR;
		case INT2OID:
			return IDEM_STATE_INT2;
		case INT4OID:
			return IDEM_STATE_INT4;
		case INT8OID:
			return IDEM_STATE_INT8;
		default:
			return get_typtype(*base_type) == TYPTYPE_ENUM ?
				IDEM_STATE_ENUM : IDEM_STATE_NOT_A_KIND;
	}
}

/*
 * The state that a value of the column is: an index, unknown, or NULL.
 */
int
idem_binding_state(const IdemBinding *binding, const IdemMachine *machine,
				   Datum value, bool isnull)
{
	if (isnull)
		return IDEM_STATE_NULL;

	switch (binding->kind)
	{
		case IDEM_STATE_TEXT:
		case IDEM_STATE_BPCHAR:
			{
				struct varlena *packed = PG_DETOAST_DATUM_PACKED(value);
				int			length = VARSIZE_ANY_EXHDR(packed);
				int			state;

				if (binding->kind == IDEM_STATE_BPCHAR)
					length = bpchartruelen(VARDATA_ANY(packed), length);
				state = idem_machine_state(machine, VARDATA_ANY(packed),
										   length);
				if ((Pointer) packed != DatumGetPointer(value))
					pfree(packed);
				return state;
			}
		case IDEM_STATE_ENUM:
			{
				char	   *label = idem_binding_label(binding, value);
				int			state = idem_machine_state(machine, label,
													   strlen(label));

				pfree(label);
				return state;
			}
		case IDEM_STATE_INT2:
			return idem_machine_number(machine, DatumGetInt16(value));
		case IDEM_STATE_INT4:
			return idem_machine_number(machine, DatumGetInt32(value));
		case IDEM_STATE_INT8:
			return idem_machine_number(machine, DatumGetInt64(value));
		case IDEM_STATE_NOT_A_KIND:
			break;
	}
	return IDEM_STATE_UNKNOWN;
}

/*
 * The value as the machine names states.
 */
char *
idem_binding_label(const IdemBinding *binding, Datum value)
{
	switch (binding->kind)
	{
		case IDEM_STATE_TEXT:
			return TextDatumGetCString(value);
		case IDEM_STATE_BPCHAR:
			{
				char	   *label = TextDatumGetCString(value);

				label[bpchartruelen(label, strlen(label))] = '\0';
				return label;
			}
		case IDEM_STATE_ENUM:
			return DatumGetCString(DirectFunctionCall1(enum_out, value));
		case IDEM_STATE_INT2:
			return psprintf("%d", DatumGetInt16(value));
		case IDEM_STATE_INT4:
			return psprintf("%d", DatumGetInt32(value));
		case IDEM_STATE_INT8:
			return psprintf(INT64_FORMAT, DatumGetInt64(value));
		case IDEM_STATE_NOT_A_KIND:
			break;
	}
	return pstrdup("?");
}

/*
 * A state's name as a value of the column's base type; the type's own error
 * where it is none.
 */
Datum
idem_binding_value(const IdemBinding *binding, const char *label)
{
	Oid			input;
	Oid			param;

	getTypeInputInfo(binding->base_type, &input, &param);
	return OidInputFunctionCall(input, pstrdup(label), param, binding->typmod);
}

typedef struct HoldsWork
{
	const IdemBinding *binding;
	const char *label;
	bool		holds;
} HoldsWork;

static void
binding_try_value(void *arg)
{
	HoldsWork  *work = arg;
	Datum		value = idem_binding_value(work->binding, work->label);

	work->holds = strcmp(idem_binding_label(work->binding, value),
						 work->label) == 0;
}

/*
 * Whether the column has a value that is the state.
 */
bool
idem_binding_holds(const IdemBinding *binding, const char *label)
{
	HoldsWork	work = {binding, label, false};

	if (binding->kind == IDEM_STATE_TEXT && binding->typmod < 0)
		return true;
	/* also one that this transaction has added, and may not use yet */
	if (binding->kind == IDEM_STATE_ENUM)
		return strlen(label) < NAMEDATALEN &&
			SearchSysCacheExists2(ENUMTYPOIDNAME,
								  ObjectIdGetDatum(binding->base_type),
								  CStringGetDatum(label));
	(void) idem_try(binding_try_value, &work, idem_try_tolerates);
	return work.holds;
}
