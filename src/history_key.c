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
 * What idem.history is indexed by.  Integers stay in order, so that a
 * statement that goes through a table goes through the index likewise.
 */
static int64
history_hash(const IdemTarget *key, const Datum *values, Jsonb *row_key)
{
	if (key->nkeys == 1)
	{
		switch (key->types[0])
		{
			case INT2OID:
				return DatumGetInt16(values[0]);
			case INT4OID:
				return DatumGetInt32(values[0]);
			case INT8OID:
				return DatumGetInt64(values[0]);
		}
	}
	return DatumGetInt64(DirectFunctionCall2(jsonb_hash_extended,
											 JsonbPGetDatum(row_key),
											 Int64GetDatum(0)));
}

/*
 * Names a row by the values of its whole key, which are left changed; "key" is
 * idem_history_key() of that.
 */
void
idem_history_name(const IdemTarget *key, const IdemTarget *whole_key,
				  Datum *values, IdemHistoryRow *row)
{
	row->whole_key = idem_target_print(whole_key, values);
	row->whole_hash = history_hash(whole_key, values, row->whole_key);
	row->row_key = row->whole_key;
	row->row_hash = row->whole_hash;
	if (key != whole_key)
	{
		for (int i = 0, n = 0; n < key->nkeys; i++)
		{
			if (key->attnums[n] == whole_key->attnums[i])
				values[n++] = values[i];
		}
		row->row_key = idem_target_print(key, values);
		row->row_hash = history_hash(key, values, row->row_key);
	}
}
