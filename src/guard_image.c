/*
 * guard_image.c
 *	  How the guard knows a row again, after others' triggers and on its way to
 *	  another partition.
 *
 * What is known of a row that was decided on stays until the row is written, for
 * each row of a statement.  So it is no copy of the row, but two hashes: of all
 * columns, and of the key by which it is known among rows that move.  They are
 * digests with a secret of the session's: who writes a row could find one that has
 * the hash of another, if he knew how it is made.
 *
 * Columns are told apart by name, and taken in the order of their names, since
 * partitions have them in orders of their own; one that is null counts for nothing,
 * so that one which is added is no other row.  Values are hashed as they are when
 * they are not compressed and not elsewhere.  What is generated follows from the
 * other columns, and is not known before the row is written.
 */
#include "postgres.h"

#include "access/sysattr.h"
#include "lib/stringinfo.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

#include "digest.h"
#include "guard_call.h"

/* what is longer is digested by itself */
#define SHORT_VALUE		64

static void
image_add_bytes(StringInfo image, const char *data, int len)
{
	uint8		digest[PG_SHA256_DIGEST_LENGTH];

	appendBinaryStringInfo(image, (const char *) &len, sizeof(len));
	if (len <= SHORT_VALUE)
	{
		appendBinaryStringInfo(image, data, len);
		return;
	}
	idem_digest(data, len, digest);
	appendBinaryStringInfo(image, (const char *) digest, sizeof(digest));
}

static void
image_add_column(StringInfo image, TupleTableSlot *slot, AttrNumber column)
{
	const FormData_pg_attribute *att = TupleDescAttr(slot->tts_tupleDescriptor,
													 column - 1);
	bool		isnull;
	Datum		value;
	struct varlena *v;

	if (att->attisdropped || att->attgenerated != '\0')
		return;
	value = slot_getattr(slot, column, &isnull);
	if (isnull)
		return;
	appendBinaryStringInfo(image, NameStr(att->attname),
						   strlen(NameStr(att->attname)) + 1);
	if (att->attbyval)
		image_add_bytes(image, (const char *) &value, sizeof(Datum));
	else if (att->attlen > 0)
		image_add_bytes(image, DatumGetPointer(value), att->attlen);
	else if (att->attlen == -2)
		image_add_bytes(image, DatumGetCString(value),
						strlen(DatumGetCString(value)));
	else
	{
		v = PG_DETOAST_DATUM_PACKED(value);
		image_add_bytes(image, VARDATA_ANY(v), VARSIZE_ANY_EXHDR(v));
		if ((Pointer) v != DatumGetPointer(value))
			pfree(v);
	}
}

static int
image_compare_names(const void *a, const void *b, void *arg)
{
	TupleDesc	desc = (TupleDesc) arg;

	return strcmp(NameStr(TupleDescAttr(desc, *(const AttrNumber *) a - 1)->attname),
				  NameStr(TupleDescAttr(desc, *(const AttrNumber *) b - 1)->attname));
}

static void
image_sort(TupleTableSlot *slot, AttrNumber *columns, int n)
{
	qsort_arg(columns, n, sizeof(AttrNumber), image_compare_names,
			  slot->tts_tupleDescriptor);
}

/*
 * Of some columns, in the order of their names.
 */
static uint64
image_hash(TupleTableSlot *slot, const AttrNumber *columns, int n)
{
	StringInfoData image;
	uint8		digest[PG_SHA256_DIGEST_LENGTH];
	uint64		hash;

	if (n == 0)
		return 0;
	initStringInfo(&image);
	appendBinaryStringInfo(&image, idem_secret(), IDEM_SECRET_SIZE);
	for (int i = 0; i < n; i++)
		image_add_column(&image, slot, columns[i]);
	idem_digest(image.data, image.len, digest);
	pfree(image.data);
	memcpy(&hash, digest, sizeof(hash));
	return hash;
}

/*
 * Of all columns of a row of the relation that was called for.
 */
uint64
idem_guard_hash_row(IdemGuardCall *call, TupleTableSlot *slot)
{
	int			n = slot->tts_tupleDescriptor->natts;

	if (call->columns == NULL)
	{
		AttrNumber *columns = MemoryContextAlloc(GetMemoryChunkContext(call->judge),
												 n * sizeof(AttrNumber));

		for (int i = 0; i < n; i++)
			columns[i] = i + 1;
		image_sort(slot, columns, n);
		call->columns = columns;
	}
	return image_hash(slot, call->columns, n);
}

/*
 * Of those columns of relation "named" which the slot's relation has under the
 * same names; one that it has not counts for nothing.
 */
uint64
idem_guard_hash_columns(TupleTableSlot *slot, Oid relid, Relation named,
						const Bitmapset *members)
{
	AttrNumber *columns = palloc(bms_num_members(members) * sizeof(AttrNumber));
	int			n = 0;
	int			member = -1;
	uint64		hash;

	while ((member = bms_next_member(members, member)) >= 0)
	{
		AttrNumber	column = member + FirstLowInvalidHeapAttributeNumber;

		if (relid != RelationGetRelid(named))
			column = get_attnum(relid,
								NameStr(TupleDescAttr(RelationGetDescr(named),
													  column - 1)->attname));
		if (column != InvalidAttrNumber)
			columns[n++] = column;
	}
	image_sort(slot, columns, n);
	hash = image_hash(slot, columns, n);
	pfree(columns);
	return hash;
}
