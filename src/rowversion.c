/*
 * rowversion.c
 *	  The trigger that keeps a version column.
 *
 * A BEFORE UPDATE trigger is the one place that every writer passes: it sees
 * the row as it is now, also after having waited for another writer, and the
 * row as it would become.  It decides there whether the version in the SET
 * list is the current one, and puts the next one in.  Nothing is asked of an
 * INSERT; where it is the second half of a move to another partition, see
 * rowversion_move.c.
 *
 * It must decide last.  Triggers fire in the order of their names, so its name
 * sorts behind all others when it is attached, and if one comes after it
 * later, every UPDATE is refused until that is mended: what could undo the
 * check is not let through.  Other triggers of idem leave the column alone.
 *
 * A foreign key's action cannot know versions, nor can who fires an event or
 * moves rows that a definition gives up: partitions and children may have versions
 * of their own.  strict lets them pass, and the version goes on.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/sysattr.h"
#include "access/tupmacs.h"
#include "catalog/partition.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/typcache.h"

#include "errors.h"
#include "release.h"
#include "rowversion.h"
#include "stats.h"
#include "taken.h"
#include "target.h"

PG_FUNCTION_INFO_V1(idem_rowversion);

/* kept by the trigger for the length of a statement */
typedef struct VersionCheck
{
	IdemVersion version;
	int64		max;
	void	   *domain;			/* of domain_check() */
	IdemMoveFrom *leave;		/* NULL: no row moves to another partition */
} VersionCheck;

/* the caller's, on its stack; NULL: nobody asks */
IdemVersionWatch *idem_rowversion_watch = NULL;

int64
idem_rowversion_max(Oid base)
{
	return base == INT8OID ? PG_INT64_MAX :
		base == INT4OID ? PG_INT32_MAX : PG_INT16_MAX;
}

int64
idem_rowversion_from_datum(Datum value, Oid base)
{
	return base == INT8OID ? DatumGetInt64(value) :
		base == INT4OID ? DatumGetInt32(value) : DatumGetInt16(value);
}

/*
 * The value must be in range.
 */
Datum
idem_rowversion_to_datum(int64 value, Oid base)
{
	return base == INT8OID ? Int64GetDatum(value) :
		base == INT4OID ? Int32GetDatum((int32) value) :
		Int16GetDatum((int16) value);
}

/*
 * The primary key may have been made anew since the column became a version: rows
 * would be named by what it is before it counts.
 */
static void
rowversion_check_key(const VersionCheck *check, Relation rel)
{
	Bitmapset  *key = RelationGetIndexAttrBitmap(rel,
												 INDEX_ATTR_BITMAP_PRIMARY_KEY);

	if (bms_is_member(check->version.column - FirstLowInvalidHeapAttributeNumber,
					  key))
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_MISUSE),
				 errmsg("column \"%s\" of table \"%s\" cannot be a version any more",
						check->version.column_name,
						RelationGetRelationName(rel)),
				 errdetail("It belongs to the primary key, which names rows."),
				 errhint("Take it out of the primary key, or call idem_detach_version()."),
				 errhidestmt(true),
				 errtable(rel)));
	bms_free(key);
}

/*
 * Whether it was called for a row that arrives.
 */
static bool
rowversion_is_arrival(FunctionCallInfo fcinfo)
{
	TriggerData *td = (TriggerData *) fcinfo->context;

	return CALLED_AS_TRIGGER(fcinfo) &&
		TRIGGER_FIRED_BEFORE(td->tg_event) &&
		TRIGGER_FIRED_FOR_ROW(td->tg_event) &&
		TRIGGER_FIRED_BY_INSERT(td->tg_event) &&
		td->tg_trigger->tgnargs == 1 &&
		strcmp(td->tg_trigger->tgargs[0], IDEM_VERSION_ARRIVES) == 0;
}

/*
 * The ladder every trigger function starts with, and what holds for a whole
 * statement.
 */
static VersionCheck *
rowversion_begin(FunctionCallInfo fcinfo)
{
	TriggerData *td = (TriggerData *) fcinfo->context;
	MemoryContext caller;
	VersionCheck *check;

	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("idem_rowversion() was not called by the trigger manager")));
	if (!TRIGGER_FIRED_BEFORE(td->tg_event) ||
		!TRIGGER_FIRED_FOR_ROW(td->tg_event) ||
		!TRIGGER_FIRED_BY_UPDATE(td->tg_event))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("idem_rowversion() must be fired before UPDATE for each row")));

	idem_release_require();

	caller = MemoryContextSwitchTo(fcinfo->flinfo->fn_mcxt);
	check = palloc0(sizeof(VersionCheck));
	if (!idem_rowversion_find(td->tg_relation, &check->version) ||
		check->version.trigger != td->tg_trigger->tgoid)
		idem_rowversion_refuse(td->tg_relation, td->tg_trigger->tgname);
	check->max = idem_rowversion_max(check->version.base);
	check->leave = idem_rowversion_leave_begin(td, &check->version);
	MemoryContextSwitchTo(caller);

	if (check->version.later[0] != '\0')
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_MISUSE),
				 errmsg("trigger \"%s\" of table \"%s\" fires after the version was checked",
						check->version.later,
						RelationGetRelationName(td->tg_relation)),
				 errdetail("A later trigger could change the version, so trigger \"%s\" must be the last one.",
						   check->version.trigger_name),
				 errhint("Give that trigger another name, or call idem_detach_version() and idem_attach_version() in one transaction."),
				 errhidestmt(true),
				 errtable(td->tg_relation)));
	rowversion_check_key(check, td->tg_relation);
	fcinfo->flinfo->fn_extra = check;
	return check;
}

static void
rowversion_report_stale(TriggerData *td, const IdemVersion *version,
						int64 current, bool isnull, int64 given)
{
	IdemRefusal refusal = {
		.kind = IDEM_STATS_VERSION,
		.counter = IDEM_COUNT_STALE,
		.relid = RelationGetRelid(td->tg_relation),
		.sqlerrcode = version->retryable ?
		ERRCODE_T_R_SERIALIZATION_FAILURE : ERRCODE_IDEM_STALE
	};

	idem_stats_refused(&refusal);
	ereport(ERROR,
			(errcode(version->retryable ? ERRCODE_T_R_SERIALIZATION_FAILURE :
					 ERRCODE_IDEM_STALE),
			 errmsg("version of a row in table \"%s\" is not the current one",
					RelationGetRelationName(td->tg_relation)),
			 isnull ?
			 errdetail("Expected " INT64_FORMAT ", found null.",
					   version->next ? current + 1 : current) :
			 version->next ?
			 errdetail("Expected " INT64_FORMAT ", the next after the row's, found " INT64_FORMAT ".",
					   current + 1, given) :
			 errdetail("Expected " INT64_FORMAT ", found " INT64_FORMAT ".",
					   current, given),
			 errhint("Read the row again, and decide by what it holds now."),
			 errhidestmt(true),
			 errtablecol(td->tg_relation, version->column)));
}

static void
rowversion_report_missing(TriggerData *td, const IdemVersion *version)
{
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_VERSION_MISSING),
			 errmsg("an UPDATE of table \"%s\" must say which version it is based on",
					RelationGetRelationName(td->tg_relation)),
			 errdetail("Column \"%s\" is not in its SET list.",
					   version->column_name),
			 version->next ?
			 errhint("Set the column to the version that was read, plus one.") :
			 errhint("Set the column to the version that was read."),
			 errhidestmt(true),
			 errtablecol(td->tg_relation, version->column)));
}

/*
 * Whether idem itself writes the row.
 */
static bool
rowversion_is_own(TriggerData *td)
{
	return idem_taken_is_own(RelationGetRelid(td->tg_relation),
							 &td->tg_trigtuple->t_self);
}

/*
 * Whether the new row differs from the old one in nothing but ignored columns.
 * Generated columns follow the others, and are not computed yet.
 */
static bool
rowversion_only_ignored(TriggerData *td, const IdemVersion *version)
{
	TupleDesc	desc = RelationGetDescr(td->tg_relation);

	for (int i = 1; i <= desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i - 1);
		Datum		old;
		Datum		new;
		bool		oldnull;
		bool		newnull;

		if (att->attisdropped || att->attgenerated != '\0' ||
			i == version->column || bms_is_member(i, version->ignored))
			continue;
		old = heap_getattr(td->tg_trigtuple, i, desc, &oldnull);
		new = heap_getattr(td->tg_newtuple, i, desc, &newnull);
		if (oldnull != newnull ||
			(!oldnull && !datum_image_eq(old, new, att->attbyval,
										 att->attlen)))
			return false;
	}
	return true;
}

/*
 * Whether the version of a row that names none stays: an event counts, also one
 * that leads to the same state, unless its column is ignored.
 */
static bool
rowversion_stays(TriggerData *td, const IdemVersion *version)
{
	const char *column;

	if (version->ignored == NULL || !rowversion_only_ignored(td, version))
		return false;
	column = idem_taken_column(RelationGetRelid(td->tg_relation),
							   &td->tg_trigtuple->t_self);
	return column == NULL ||
		bms_is_member(get_attnum(RelationGetRelid(td->tg_relation), column),
					  version->ignored);
}

/*
 * Where the column's value is in the tuple; NULL if it is null, or comes from
 * a default that the tuple is older than.
 */
static char *
rowversion_locate(HeapTuple tuple, TupleDesc desc, AttrNumber column)
{
	HeapTupleHeader header = tuple->t_data;
	char	   *data = (char *) header + header->t_hoff;
	bool		has_nulls = HeapTupleHasNulls(tuple);
	Size		offset = 0;

	if (HeapTupleHeaderGetNatts(header) < column ||
		(has_nulls && att_isnull(column - 1, header->t_bits)))
		return NULL;
	for (int i = 0;; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		if (has_nulls && att_isnull(i, header->t_bits))
			continue;
		offset = att_align_pointer(offset, att->attalign, att->attlen,
								   data + offset);
		if (i == column - 1)
			return data + offset;
		offset = att_addlength_pointer(offset, att->attlen, data + offset);
	}
}

static int64
rowversion_fetch(HeapTuple tuple, TupleDesc desc, const IdemVersion *version,
				 bool *isnull)
{
	char	   *place = rowversion_locate(tuple, desc, version->column);
	Datum		datum;

	if (place != NULL)
	{
		*isnull = false;
		return version->base == INT8OID ? *(int64 *) place :
			version->base == INT4OID ? *(int32 *) place : *(int16 *) place;
	}
	datum = heap_getattr(tuple, version->column, desc, isnull);
	return *isnull ? 0 : idem_rowversion_from_datum(datum, version->base);
}

/*
 * The new row with the version that it gets.  Writing one number into a copy
 * takes a third of the time of forming the tuple anew.
 */
static HeapTuple
rowversion_set(TriggerData *td, VersionCheck *check, int64 value)
{
	const IdemVersion *version = &check->version;
	TupleDesc	desc = RelationGetDescr(td->tg_relation);
	int			column = version->column;
	Datum		datum = idem_rowversion_to_datum(value, version->base);
	bool		isnull = false;
	HeapTuple	tuple;
	char	   *place;

	if (version->type != version->base)
		domain_check(datum, false, version->type, &check->domain,
					 CurrentMemoryContext);
	place = rowversion_locate(td->tg_newtuple, desc, column);
	if (place == NULL)
		return heap_modify_tuple_by_cols(td->tg_newtuple, desc, 1, &column,
										 &datum, &isnull);
	tuple = heap_copytuple(td->tg_newtuple);
	place = (char *) tuple->t_data + (place - (char *) td->tg_newtuple->t_data);
	if (version->base == INT8OID)
		*(int64 *) place = value;
	else if (version->base == INT4OID)
		*(int32 *) place = (int32) value;
	else
		*(int16 *) place = (int16) value;
	return tuple;
}

/*
 * The version that the trigger will give the row, if it lets it pass.  False if
 * that is null.
 */
bool
idem_rowversion_next(TriggerData *td, const IdemVersion *version, int64 *next)
{
	TupleDesc	desc = RelationGetDescr(td->tg_relation);
	bool		oldnull;
	bool		newnull;
	int64		old = rowversion_fetch(td->tg_trigtuple, desc, version, &oldnull);
	int64		new = rowversion_fetch(td->tg_newtuple, desc, version, &newnull);

	*next = old + 1;
	if (!bms_is_member(version->column - FirstLowInvalidHeapAttributeNumber,
					   td->tg_updatedcols) &&
		oldnull == newnull && old == new && rowversion_stays(td, version))
	{
		*next = old;
		return !oldnull;
	}
	return true;
}

/*
 * Whether a row has the key that is asked about.
 */
static bool
rowversion_is_watched(const IdemVersionWatch *watch, Relation rel,
					  TupleTableSlot *row)
{
	IdemTarget *target = watch->target;
	Oid			relid = RelationGetRelid(rel);

	if (relid != target->relid &&
		!(rel->rd_rel->relispartition &&
		  list_member_oid(get_partition_ancestors(relid), target->relid)))
		return false;
	for (int i = 0; i < target->nkeys; i++)
	{
		AttrNumber	column = get_attnum(relid, target->columns[i]);
		TypeCacheEntry *type = lookup_type_cache(target->types[i],
												 TYPECACHE_EQ_OPR_FINFO);
		bool		isnull;
		Datum		value = slot_getattr(row, column, &isnull);

		if (isnull || !OidIsValid(type->eq_opr_finfo.fn_oid) ||
			!DatumGetBool(FunctionCall2Coll(&type->eq_opr_finfo,
											TupleDescAttr(RelationGetDescr(rel),
														  column - 1)->attcollation,
											value, watch->key[i])))
			return false;
	}
	return true;
}

/*
 * That a row, as it was, is counted on from that version: tells who asks about it.
 */
void
idem_rowversion_tell(Relation rel, TupleTableSlot *row, int64 version)
{
	for (IdemVersionWatch *watch = idem_rowversion_watch; watch != NULL;
		 watch = watch->outer)
	{
		if (version == watch->version && !watch->seen)
			watch->seen = rowversion_is_watched(watch, rel, row);
	}
}

/*
 * Lets a row pass with the version that it has now.
 */
static Datum
rowversion_pass(FunctionCallInfo fcinfo, const VersionCheck *check,
				HeapTuple row, int64 value)
{
	TriggerData *td = (TriggerData *) fcinfo->context;

	if (check->leave != NULL && idem_move_leaves(check->leave, td))
		idem_rowversion_leave(td, check->leave, &check->version,
							  fcinfo->flinfo->fn_mcxt, value);
	return PointerGetDatum(row);
}

/*
 * Trigger function: checks the version in the SET list and sets the next one.
 * Before an INSERT it sees to rows that come from another partition.
 */
Datum
idem_rowversion(PG_FUNCTION_ARGS)
{
	TriggerData *td = (TriggerData *) fcinfo->context;
	VersionCheck *check = (VersionCheck *) fcinfo->flinfo->fn_extra;
	const IdemVersion *version;
	TupleDesc	desc;
	Form_pg_attribute att;
	bool		oldnull;
	bool		newnull;
	bool		listed;
	int64		old;
	int64		new;

	if (rowversion_is_arrival(fcinfo))
		return PointerGetDatum(idem_rowversion_arrive(td, fcinfo->flinfo->fn_mcxt));
	if (check == NULL)
		check = rowversion_begin(fcinfo);
	version = &check->version;
	desc = RelationGetDescr(td->tg_relation);
	att = TupleDescAttr(desc, version->column - 1);
	if (att->attisdropped || att->atttypid != version->type)
		elog(ERROR, "version column changed during a statement");

	/* only rows from before NOT NULL was dropped have none */
	old = rowversion_fetch(td->tg_trigtuple, desc, version, &oldnull);
	new = rowversion_fetch(td->tg_newtuple, desc, version, &newnull);
	listed = bms_is_member(version->column - FirstLowInvalidHeapAttributeNumber,
						   td->tg_updatedcols);

	if (!listed && oldnull == newnull && old == new)
	{
		if (rowversion_stays(td, version))
			return rowversion_pass(fcinfo, check, td->tg_newtuple, old);
		/* a foreign key's action names no version; a trigger inside it may */
		if (version->strict && !rowversion_is_own(td) &&
			!(InNoForceRLSOperation() &&
			  RelationGetFKeyList(td->tg_relation) != NIL))
			rowversion_report_missing(td, version);
	}
	else if (version->strict && !listed && !rowversion_is_own(td))
		rowversion_report_missing(td, version);
	else if (newnull ||
			 ((new != old || version->next) &&
			  (old == check->max || new != old + 1)))
		rowversion_report_stale(td, version, old, newnull, new);

	if (old == check->max)
		ereport(ERROR,
				(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
				 errmsg("version of a row in table \"%s\" is out of range",
						RelationGetRelationName(td->tg_relation)),
				 errdetail("Type %s of column \"%s\" has no version after " INT64_FORMAT ".",
						   format_type_be(version->base),
						   version->column_name, old),
				 errhidestmt(true),
				 errtablecol(td->tg_relation, version->column)));
	if (idem_rowversion_watch != NULL)
		idem_rowversion_tell(td->tg_relation, td->tg_trigslot, old);
	return rowversion_pass(fcinfo, check, rowversion_set(td, check, old + 1),
						   old + 1);
}
