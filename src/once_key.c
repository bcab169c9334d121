/*
 * once_key.c
 *	  The key of a row of a table that skips repeated inserts.
 *
 * The columns stand in the WHEN clause of the trigger, not in its arguments:
 * so they follow a RENAME, keep the column from being dropped or given
 * another type, survive a dump by name, and have their own numbers in each
 * partition.  What is read from there is kept per session, until the relation
 * changes; a row whose column is not of the type that was found is refused
 * all the same.
 *
 * The key is the text of each column behind its length in bytes, such as
 * "5:ab:cd" and "2:421:x", so that no two rows of different values have one
 * key; where that is longer than a key may be, "#" and its SHA-256.  Text is
 * what the type's output function gives under settings that are pinned, so
 * that a session's DateStyle or TimeZone does not make a repeated row new.  Of
 * numbers, trailing zeros and the sign of zero do not count, as they do not for
 * a unique index; everything else is compared byte by byte.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/partition.h"
#include "catalog/pg_language.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_trigger.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "common/cryptohash.h"
#include "common/sha2.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "pgtime.h"
#include "rewrite/prs2lock.h"
#include "utils/builtins.h"
#include "utils/bytea.h"
#include "utils/fmgroids.h"
#include "utils/float.h"
#include "utils/fmgrprotos.h"
#include "utils/guc.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/numeric.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "errors.h"
#include "once.h"

/* what the registry allows */
#define MAX_KEY_LENGTH	1024

/* a column's length in decimal, and a colon */
#define MAX_PREFIX		12

#define HEX_LENGTH		(PG_SHA256_DIGEST_LENGTH * 2)

typedef struct TableEntry
{
	Oid			relid;			/* hash key */
	bool		valid;
	MemoryContext context;
	IdemOnceTable *table;
} TableEntry;

static HTAB *tables = NULL;

/*
 * Relcache callback: InvalidOid stands for every relation.
 */
static void
table_changed(Datum arg, Oid relid)
{
	HASH_SEQ_STATUS status;
	TableEntry *entry;

	if (OidIsValid(relid))
	{
		entry = hash_search(tables, &relid, HASH_FIND, NULL);
		if (entry != NULL)
			entry->valid = false;
		return;
	}
	hash_seq_init(&status, tables);
	while ((entry = hash_seq_search(&status)) != NULL)
		entry->valid = false;
}

static void
table_init_cache(void)
{
	HASHCTL		ctl = {.keysize = sizeof(Oid),.entrysize = sizeof(TableEntry)};

	if (tables != NULL)
		return;
	tables = hash_create("idem once tables", 16, &ctl, HASH_ELEM | HASH_BLOBS);
	CacheRegisterRelcacheCallback(table_changed, (Datum) 0);
}

/*
 * Whether a function is idem's trigger function, in whatever schema.
 */
static bool
once_is_function(Oid function)
{
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	Form_pg_proc form;
	bool		ours = false;

	if (!HeapTupleIsValid(tuple))
		return false;
	form = (Form_pg_proc) GETSTRUCT(tuple);
	if (form->prolang == ClanguageId && form->prorettype == TRIGGEROID)
	{
		Datum		source;
		bool		isnull;

		source = SysCacheGetAttr(PROCOID, tuple, Anum_pg_proc_prosrc, &isnull);
		ours = !isnull &&
			strcmp(TextDatumGetCString(source), IDEM_ONCE_FUNCTION) == 0;
	}
	ReleaseSysCache(tuple);
	return ours;
}

bool
idem_once_is_ours(const Trigger *trigger)
{
	return once_is_function(trigger->tgfoid);
}

/*
 * Whether a relation has any of idem's triggers for this, whole or not.
 */
bool
idem_once_is_attached(Relation rel)
{
	for (int i = 0; rel->trigdesc != NULL && i < rel->trigdesc->numtriggers; i++)
	{
		if (idem_once_is_ours(&rel->trigdesc->triggers[i]))
			return true;
	}
	return false;
}

/*
 * The same by OID, without a lock on the relation: a partition must not lock
 * its root, since whoever changes the tree goes the other way.
 */
static bool
once_is_attached_oid(Oid relid)
{
	Relation	catalog = table_open(TriggerRelationId, AccessShareLock);
	ScanKeyData skey;
	SysScanDesc scan;
	HeapTuple	tuple;
	bool		found = false;

	ScanKeyInit(&skey, Anum_pg_trigger_tgrelid, BTEqualStrategyNumber,
				F_OIDEQ, ObjectIdGetDatum(relid));
	scan = systable_beginscan(catalog, TriggerRelidNameIndexId, true, NULL,
							  1, &skey);
	while (!found && HeapTupleIsValid(tuple = systable_getnext(scan)))
		found = once_is_function(((Form_pg_trigger) GETSTRUCT(tuple))->tgfoid);
	systable_endscan(scan);
	table_close(catalog, AccessShareLock);
	return found;
}

static void
table_report_broken(Relation rel, const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_MISUSE),
			 errmsg("table \"%s\" cannot tell repeated inserts",
					RelationGetRelationName(rel)),
			 errdetail("%s", detail),
			 errhint("Call idem_detach_once() and idem_attach_once() for the table, or for the root of its partitions."),
			 errtable(rel),
			 errhidestmt(true)));
}

static bool
table_collect_columns(Node *node, void *arg)
{
	List	  **attnums = (List **) arg;

	if (node == NULL)
		return false;
	if (IsA(node, Var))
	{
		*attnums = lappend_int(*attnums, ((Var *) node)->varattno);
		return false;
	}
	return expression_tree_walker(node, table_collect_columns, arg);
}

static IdemOncePin
column_pin(Oid base)
{
	switch (base)
	{
		case BOOLOID:
		case INT2OID:
		case INT4OID:
		case INT8OID:
		case NUMERICOID:
		case OIDOID:
		case TEXTOID:
		case VARCHAROID:
		case BPCHAROID:
		case CHAROID:
		case NAMEOID:
		case UUIDOID:
		case INETOID:
		case CIDROID:
		case MACADDROID:
		case MACADDR8OID:
		case BITOID:
		case VARBITOID:
		case JSONOID:
		case JSONBOID:
			return IDEM_ONCE_PIN_NONE;
		case DATEOID:
		case TIMEOID:
		case TIMETZOID:
		case TIMESTAMPOID:
		case TIMESTAMPTZOID:
		case INTERVALOID:
		case FLOAT4OID:
		case FLOAT8OID:
		case BYTEAOID:
			return IDEM_ONCE_PIN_STYLE;
		default:
			return type_is_enum(base) ? IDEM_ONCE_PIN_NONE : IDEM_ONCE_PIN_ALL;
	}
}

static void
table_add_columns(IdemOnceTable *table, Relation rel, const char *qual)
{
	List	   *attnums = NIL;
	ListCell   *lc;

	if (qual != NULL)
		(void) table_collect_columns(stringToNode(qual), &attnums);
	if (attnums == NIL)
		table_report_broken(rel, "The WHEN clause of its trigger names no column.");

	table->columns = palloc0(list_length(attnums) * sizeof(IdemOnceColumn));
	foreach(lc, attnums)
	{
		IdemOnceColumn *column = &table->columns[table->ncolumns++];
		Form_pg_attribute att;
		Oid			output;
		bool		is_varlena;

		column->attnum = lfirst_int(lc);
		if (column->attnum <= 0 ||
			column->attnum > RelationGetDescr(rel)->natts)
			table_report_broken(rel, "The WHEN clause of its trigger names another column than the table has.");
		att = TupleDescAttr(RelationGetDescr(rel), column->attnum - 1);
		if (att->attisdropped || att->attgenerated)
			table_report_broken(rel, "A column of the key was dropped, or is generated.");
		column->type = att->atttypid;
		column->base = getBaseType(att->atttypid);
		getTypeOutputInfo(column->type, &output, &is_varlena);
		fmgr_info_cxt(output, &column->output, CurrentMemoryContext);
		table->pin = Max(table->pin, column_pin(column->base));
	}
}

/*
 * Whether an enabled trigger of ours for this event stands beside the one for
 * inserts.
 */
static bool
table_has_part(Relation rel, const Trigger *insert, int16 type)
{
	for (int i = 0; i < rel->trigdesc->numtriggers; i++)
	{
		Trigger    *trigger = &rel->trigdesc->triggers[i];

		if (trigger->tgfoid == insert->tgfoid &&
			(trigger->tgtype & type) == type &&
			(trigger->tgtype & TRIGGER_TYPE_TIMING_MASK) ==
			(type & TRIGGER_TYPE_TIMING_MASK) &&
			trigger->tgenabled == insert->tgenabled)
			return true;
	}
	return false;
}

/*
 * Everything that would let a repeated row in, or lose a row that is moved
 * between partitions, is refused here rather than overlooked.
 */
static void
table_check_parts(Relation rel, const Trigger *insert)
{
	if (rel->rd_rel->relkind == RELKIND_FOREIGN_TABLE)
		table_report_broken(rel, "It is a foreign table.");
	if (!table_has_part(rel, insert, TRIGGER_TYPE_ROW | TRIGGER_TYPE_INSERT))
		table_report_broken(rel, "Its trigger that runs after the insert of a row is missing, or not enabled alike.");
	if (!rel->rd_rel->relispartition)
		return;

	if (!insert->tgisclone ||
		!once_is_attached_oid(llast_oid(get_partition_ancestors(RelationGetRelid(rel)))))
		table_report_broken(rel, "It became a partition of a table to which idem_attach_once() was not applied.");
	if (!table_has_part(rel, insert, TRIGGER_TYPE_ROW | TRIGGER_TYPE_BEFORE |
						TRIGGER_TYPE_UPDATE) ||
		!table_has_part(rel, insert, TRIGGER_TYPE_ROW | TRIGGER_TYPE_BEFORE |
						TRIGGER_TYPE_DELETE))
		table_report_broken(rel, "Its trigger that notices rows moved between partitions is missing, or not enabled alike.");
}

static IdemOnceTable *
table_build(Relation rel)
{
	IdemOnceTable *table = palloc0(sizeof(IdemOnceTable));
	TriggerDesc *triggers = rel->trigdesc;
	const Trigger *insert = NULL;

	table->relid = RelationGetRelid(rel);
	table->is_last = true;
	for (int i = 0; triggers != NULL && i < triggers->numtriggers; i++)
	{
		Trigger    *trigger = &triggers->triggers[i];

		if (!TRIGGER_FOR_ROW(trigger->tgtype) ||
			!TRIGGER_FOR_BEFORE(trigger->tgtype) ||
			!TRIGGER_FOR_INSERT(trigger->tgtype) ||
			trigger->tgenabled == TRIGGER_DISABLED)
			continue;
		if (insert == NULL && idem_once_is_ours(trigger))
			insert = trigger;
		else if (insert != NULL)
			table->is_last = false;
	}
	if (insert == NULL || insert->tgnargs != 2)
		table_report_broken(rel, "Its trigger that runs before the insert of a row is missing or disabled.");
	table_check_parts(rel, insert);

	table->scope.name = cstring_to_text(insert->tgargs[0]);
	table->scope.no_expiry = true;
	if (insert->tgargs[1][0] != '\0')
	{
		Datum		ttl = DirectFunctionCall3(interval_in,
											  CStringGetDatum(insert->tgargs[1]),
											  ObjectIdGetDatum(InvalidOid),
											  Int32GetDatum(-1));

		table->has_ttl = true;
		table->ttl = *DatumGetIntervalP(ttl);
	}
	table_add_columns(table, rel, insert->tgqual);
	return table;
}

/*
 * What is known of an opened table whose rows are checked.  An error if its
 * triggers are not whole.
 */
IdemOnceTable *
idem_once_table(Relation rel)
{
	Oid			relid = RelationGetRelid(rel);
	TableEntry *entry;
	MemoryContext context;
	MemoryContext caller;
	IdemOnceTable *table;
	bool		found;

	table_init_cache();
	entry = hash_search(tables, &relid, HASH_FIND, NULL);
	if (entry != NULL && entry->valid)
		return entry->table;

	context = AllocSetContextCreate(CurrentMemoryContext, "idem once table",
									ALLOCSET_SMALL_SIZES);
	caller = MemoryContextSwitchTo(context);
	table = table_build(rel);
	MemoryContextSwitchTo(caller);

	entry = hash_search(tables, &relid, HASH_ENTER, &found);
	/* somebody further out may still be at work with the former one */
	if (found)
		MemoryContextSetParent(entry->context, TopTransactionContext);
	MemoryContextSetParent(context, CacheMemoryContext);
	entry->context = context;
	entry->table = table;
	entry->valid = true;
	return table;
}

static void
pin_set(int *nestlevel, const char *name, const char *value)
{
	if (*nestlevel < 0)
		*nestlevel = NewGUCNestLevel();
	(void) set_config_option(name, value, PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
}

/*
 * Pins the settings that output depends on, where they differ.  Returns what
 * pin_restore() needs; an error in between needs no cleanup.
 */
static int
pin_settings(IdemOncePin pin)
{
	int			nestlevel = -1;
	const char *zone;

	if (pin == IDEM_ONCE_PIN_NONE)
		return nestlevel;

	if (DateStyle != USE_ISO_DATES)
		pin_set(&nestlevel, "datestyle", "ISO");
	if (IntervalStyle != INTSTYLE_POSTGRES)
		pin_set(&nestlevel, "intervalstyle", "postgres");
	/* one and more all print the shortest text that reads back the same */
	if (extra_float_digits < 1)
		pin_set(&nestlevel, "extra_float_digits", "3");
	if (bytea_output != BYTEA_OUTPUT_HEX)
		pin_set(&nestlevel, "bytea_output", "hex");
	zone = pg_get_timezone_name(session_timezone);
	if (strcmp(zone, "UTC") != 0 && strcmp(zone, "Etc/UTC") != 0 &&
		strcmp(zone, "GMT") != 0)
		pin_set(&nestlevel, "timezone", "UTC");

	if (pin == IDEM_ONCE_PIN_ALL)
	{
		pin_set(&nestlevel, "search_path", "pg_catalog");
		pin_set(&nestlevel, "quote_all_identifiers", "off");
		pin_set(&nestlevel, "lc_monetary", "C");
	}
	return nestlevel;
}

static void
pin_restore(int nestlevel)
{
	if (nestlevel >= 0)
		AtEOXact_GUC(true, nestlevel);
}

/*
 * The text of one value that is not NULL.
 */
static char *
column_text(IdemOnceColumn *column, Datum value)
{
	switch (column->base)
	{
		case NUMERICOID:
			return numeric_normalize(DatumGetNumeric(value));
		case FLOAT4OID:
			if (DatumGetFloat4(value) == 0)
				value = Float4GetDatum(0);
			break;
		case FLOAT8OID:
			if (DatumGetFloat8(value) == 0)
				value = Float8GetDatum(0);
			break;
	}
	return OutputFunctionCall(&column->output, value);
}

/*
 * SHA-256 in hexadecimal digits.
 */
char *
idem_once_digest(const char *data, Size len)
{
	pg_cryptohash_ctx *ctx = pg_cryptohash_create(PG_SHA256);
	uint8		digest[PG_SHA256_DIGEST_LENGTH];
	char	   *hex = palloc(HEX_LENGTH + 1);

	if (pg_cryptohash_init(ctx) < 0 ||
		pg_cryptohash_update(ctx, (const uint8 *) data, len) < 0 ||
		pg_cryptohash_final(ctx, digest, sizeof(digest)) < 0)
		elog(ERROR, "could not compute SHA-256: %s",
			 pg_cryptohash_error(ctx));
	pg_cryptohash_free(ctx);
	hex[hex_encode((const char *) digest, sizeof(digest), hex)] = '\0';
	return hex;
}

/*
 * The key of a row, or NULL where a column of it is NULL: such a row is never
 * a repeated one.
 */
text *
idem_once_key(IdemOnceTable *table, HeapTuple tuple, TupleDesc desc)
{
	StringInfoData buf;
	int			nestlevel;
	text	   *key;
	int			len;

	initStringInfo(&buf);
	appendStringInfoSpaces(&buf, VARHDRSZ);
	nestlevel = pin_settings(table->pin);
	for (int i = 0; i < table->ncolumns; i++)
	{
		IdemOnceColumn *column = &table->columns[i];
		Datum		value;
		bool		isnull;
		char	   *part;
		int			partlen;

		if (column->attnum > desc->natts ||
			TupleDescAttr(desc, column->attnum - 1)->attisdropped ||
			TupleDescAttr(desc, column->attnum - 1)->atttypid != column->type)
			elog(ERROR, "column %d of relation %u has another type",
				 column->attnum, table->relid);
		value = heap_getattr(tuple, column->attnum, desc, &isnull);
		if (isnull)
		{
			pin_restore(nestlevel);
			return NULL;
		}
		part = column_text(column, value);
		partlen = strlen(part);
		enlargeStringInfo(&buf, partlen + MAX_PREFIX);
		buf.len += pg_ltoa(partlen, buf.data + buf.len);
		buf.data[buf.len++] = ':';
		appendBinaryStringInfo(&buf, part, partlen);
	}
	pin_restore(nestlevel);

	len = buf.len - VARHDRSZ;
	if (len > MAX_KEY_LENGTH)
		return cstring_to_text(psprintf("#%s",
										idem_once_digest(buf.data + VARHDRSZ, len)));
	key = (text *) buf.data;
	SET_VARSIZE(key, buf.len);
	return key;
}
