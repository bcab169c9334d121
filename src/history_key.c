/*
 * history_key.c
 *	  How the history names rows.
 *
 * By the primary key without the columns that machines move, so that a row
 * keeps its name through its life.  The index of idem.history has a number in
 * place of that: the key itself, where it is one integer.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "utils/fmgrprotos.h"
#include "utils/rel.h"

#include "digest.h"
#include "history.h"

static bool
history_is_state(const IdemTable *table, AttrNumber column)
{
	for (int i = 0; i < table->nbindings; i++)
	{
		if (table->bindings[i].column == column)
			return true;
	}
	return false;
}

/*
 * The key that names rows in the history: the primary key without the columns
 * that machines move, unless nothing would be left.  The result may be the
 * argument.
 */
IdemTarget *
idem_history_key(IdemTarget *target, const IdemTable *table)
{
	IdemTarget *key;
	int			n = 0;

	for (int i = 0; i < target->nkeys; i++)
		n += !history_is_state(table, target->attnums[i]);
	if (n == target->nkeys || n == 0)
		return target;

	key = palloc(sizeof(IdemTarget));
	*key = *target;
	key->attnums = palloc(n * sizeof(AttrNumber));
	key->columns = palloc(n * sizeof(char *));
	key->types = palloc(n * sizeof(Oid));
	key->nkeys = 0;
	for (int i = 0; i < target->nkeys; i++)
	{
		if (history_is_state(table, target->attnums[i]))
			continue;
		key->attnums[key->nkeys] = target->attnums[i];
		key->columns[key->nkeys] = target->columns[i];
		key->types[key->nkeys] = target->types[i];
		key->nkeys++;
	}
	return key;
}

/*
 * The same of a table that a trigger is at; an error if it has none.
 */
IdemTarget *
idem_history_find_key(Relation rel, const IdemBinding *binding)
{
	IdemTarget *target = idem_target_find(RelationGetRelid(rel));

	if (target == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("table \"%s\" has no primary key",
						RelationGetRelationName(rel)),
				 errdetail("Machine \"%s\" is attached with history, which names rows by it; a deferrable one does not.",
						   binding->machine),
				 errhint("Add a primary key, or detach the machine."),
				 errtable(rel)));
	return idem_history_key(target, binding->table);
}

/*
 * The key itself, if it is one integer.
 */
static bool
history_integer(const IdemTarget *key, const Datum *values, int64 *integer)
{
	switch (key->nkeys == 1 ? key->types[0] : InvalidOid)
	{
		case INT2OID:
			*integer = DatumGetInt16(values[0]);
			return true;
		case INT4OID:
			*integer = DatumGetInt32(values[0]);
			return true;
		case INT8OID:
			*integer = DatumGetInt64(values[0]);
			return true;
	}
	return false;
}

static int64
history_hash(Jsonb *row_key, uint64 seed)
{
	return DatumGetInt64(DirectFunctionCall2(jsonb_hash_extended,
											 JsonbPGetDatum(row_key),
											 UInt64GetDatum(seed)));
}

/*
 * Names a row by the values of its whole key, which are left changed; "key" is
 * idem_history_key() of that.  By row_hash, which is idem.history's index's, integers
 * stay in order, so that a statement that goes through a table goes through the
 * index likewise.  By whole_hash a row is known in this session.
 */
void
idem_history_name(const IdemTarget *key, const IdemTarget *whole_key,
				  Datum *values, IdemHistoryRow *row)
{
	row->whole_key = row->row_key = idem_target_print(whole_key, values);
	if (!history_integer(whole_key, values, &row->whole_hash))
		row->whole_hash = history_hash(row->whole_key, idem_secret_seed());
	if (key != whole_key)
	{
		for (int i = 0, n = 0; n < key->nkeys; i++)
		{
			if (key->attnums[n] == whole_key->attnums[i])
				values[n++] = values[i];
		}
		row->row_key = idem_target_print(key, values);
	}
	if (!history_integer(key, values, &row->row_hash))
		row->row_hash = history_hash(row->row_key, 0);
}
