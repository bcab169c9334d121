/*
 * guard_image.c
 *	  How the guard knows a row again, after others' triggers and on its way to
 *	  another partition.
 *
 * What is known of a row that was decided on stays until the row is written, for
 * each row of a statement.  So it is no copy of the row, but two hashes: of all
 * columns, and of the key by which it is known among rows that move.  Columns are
 * told apart by name, since partitions have them in orders of their own, and one
 * that is null counts for nothing, so that one which is added is no other row.
 * Values are hashed as they are when they are not compressed and not elsewhere.
 * What is generated follows from the other columns, and is not known before the
 * row is written.
 */
#include "postgres.h"

#include "access/sysattr.h"
#include "common/hashfn.h"
#include "utils/lsyscache.h"

#include "guard_call.h"

static uint64
image_hash_value(Datum value, const FormData_pg_attribute * att)
{
	uint64		seed = hash_bytes_extended((const unsigned char *) NameStr(att->attname),
										   strlen(NameStr(att->attname)), 0);
	struct varlena *v;
	uint64		hash;

	if (att->attbyval)
		return hash_bytes_extended((const unsigned char *) &value,
								   sizeof(Datum), seed);
	if (att->attlen > 0)
		return hash_bytes_extended((const unsigned char *) DatumGetPointer(value),
								   att->attlen, seed);
	if (att->attlen == -2)
		return hash_bytes_extended((const unsigned char *) DatumGetCString(value),
								   strlen(DatumGetCString(value)), seed);
	v = PG_DETOAST_DATUM_PACKED(value);
	hash = hash_bytes_extended((const unsigned char *) VARDATA_ANY(v),
							   VARSIZE_ANY_EXHDR(v), seed);
	if ((Pointer) v != DatumGetPointer(value))
		pfree(v);
	return hash;
}

static uint64
image_hash_column(TupleTableSlot *slot, AttrNumber column)
{
	const		FormData_pg_attribute *att = TupleDescAttr(slot->tts_tupleDescriptor,
														   column - 1);
	bool		isnull;
	Datum		value;

	if (att->attisdropped || att->attgenerated != '\0')
		return 0;
	value = slot_getattr(slot, column, &isnull);
	return isnull ? 0 : image_hash_value(value, att);
}

/*
 * Of all columns.
 */
uint64
idem_guard_hash_row(TupleTableSlot *slot)
{
	uint64		hash = 0;

	for (int i = 1; i <= slot->tts_tupleDescriptor->natts; i++)
		hash += image_hash_column(slot, i);
	return hash;
}

/*
 * Of those columns of relation "named" which the slot's relation has under the
 * same names.
 */
uint64
idem_guard_hash_columns(TupleTableSlot *slot, Oid relid, Relation named,
						const Bitmapset *columns)
{
	uint64		hash = 0;
	int			member = -1;

	while ((member = bms_next_member(columns, member)) >= 0)
	{
		AttrNumber	column = member + FirstLowInvalidHeapAttributeNumber;

		if (relid != RelationGetRelid(named))
			column = get_attnum(relid,
								NameStr(TupleDescAttr(RelationGetDescr(named),
													  column - 1)->attname));
		hash += image_hash_column(slot, column);
	}
	return hash;
}
