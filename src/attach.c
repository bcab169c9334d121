/*
 * attach.c
 *	  SQL function idem_attach.
 *
 * Attaching creates triggers and nothing else, so that PostgreSQL keeps the
 * binding as it keeps any trigger.  All of a binding have the same four
 * arguments: machine, options, a tag that keeps them together when the column
 * or a trigger is renamed, and what the table was called, by which the keys of
 * events know it when that is renamed.
 *
 * Locks, in order: the machine's row FOR SHARE, so that its definition stays
 * what it is until the triggers are committed; then the table with its
 * partitions and children, against writers, in the order of every other DDL.
 * Rows are looked at after that, with the latest snapshot.
 *
 * Everything is done as the caller, who must own the table and its children; but
 * guards are read as the owner.
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/table.h"
#include "access/tableam.h"
#include "catalog/dependency.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_trigger.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/guc.h"
#include "utils/json.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/reltrigger.h"
#include "utils/ruleutils.h"

#include "attach.h"
#include "catalog.h"
#include "compat.h"
#include "errors.h"
#include "guc.h"
#include "machine.h"
#include "own.h"
#include "scope.h"
#include "timer.h"

PG_FUNCTION_INFO_V1(idem_attach);

typedef struct Attachment
{
	char	   *machine;
	Oid			relid;
	char	   *column;
	bool		history;
	bool		events_only;
	char	   *on_delete;
	ArrayType  *exempt;
	bool		accept_existing;
	bool		validate;
	char	   *mode;
	Interval   *keep;

	bool		partitioned;
	bool		rowwise;
	List	   *relids;			/* those that get triggers, the table first */
	List	   *all;			/* these and their partitions */
	char	   *schema;			/* of the functions, quoted */
	char	   *tag;
} Attachment;

/*
 * A table's name for a statement.
 */
char *
idem_attach_table_name(Oid relid)
{
	return quote_qualified_identifier(get_namespace_name(get_rel_namespace(relid)),
									  get_rel_name(relid));
}

/*
 * An error unless the table is there and the caller's.
 */
void
idem_attach_check_owner(Oid relid)
{
	if (get_rel_name(relid) == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("relation with OID %u does not exist", relid)));
	if (!IDEM_OWNS_RELATION(relid, GetUserId()))
		aclcheck_error(ACLCHECK_NOT_OWNER,
					   get_relkind_objtype(get_rel_relkind(relid)),
					   get_rel_name(relid));
}

/*
 * Runs DDL as the caller, connected to SPI.
 */
void
idem_attach_execute(const char *statement)
{
	if (SPI_execute(statement, false, 0) < 0)
		elog(ERROR, "could not execute: %s", statement);
}

/*
 * Keeps the machine's definition as it is until the transaction ends.  Returns
 * its owner, if there is such a role.
 */
static Oid
attach_lock_machine(const char *machine)
{
	static struct IdemOwnStatement statement = {
		"SELECT owner FROM idem.machine WHERE name OPERATOR(pg_catalog.=) $1 FOR SHARE",
		IDEM_OWN_WRITE, 1, {TEXTOID}, NULL
	};
	Datum		name = CStringGetTextDatum(machine);

	return idem_own_run(&statement, IDEM_REL_MACHINE, &name) == 0 ? InvalidOid :
		get_role_oid(idem_own_text(SPI_tuptable->vals[0],
								   SPI_tuptable->tupdesc, 1), true);
}

/*
 * Guards run as whoever writes the table, as a trigger's function does.
 */
static void
attach_warn_of_owner(const Attachment *attachment, Oid owner)
{
	char	   *name;

	if (!OidIsValid(owner) ||
		pg_class_aclcheck(attachment->relid, owner, ACL_TRIGGER) == ACLCHECK_OK)
		return;
	name = GetUserNameFromId(owner, false);
	ereport(WARNING,
			(errmsg("machine \"%s\" belongs to \"%s\", who may not make triggers on table \"%s\"",
					attachment->machine, name,
					get_rel_name(attachment->relid)),
			 errdetail("Its owner can change its guards, which run as whoever writes the table."),
			 errhint("Attach only machines of roles that you would grant TRIGGER on the table.")));
}

/*
 * Locks the table, and finds those that get triggers.
 */
static void
attach_lock_tables(Attachment *attachment)
{
	Relation	rel;
	ListCell   *lc;

	idem_attach_check_owner(attachment->relid);
	rel = relation_open(attachment->relid, ShareRowExclusiveLock);
	idem_attach_check_owner(attachment->relid);
	idem_attachable_table(rel, true);
	idem_catalog_check_idle(rel, ShareRowExclusiveLock, "Call idem_attach()");
	attachment->partitioned = rel->rd_rel->relkind == RELKIND_PARTITIONED_TABLE;
	attachment->all = find_all_inheritors(attachment->relid,
										  ShareRowExclusiveLock, NULL);
	attachment->rowwise = attachment->partitioned ||
		list_length(attachment->all) > 1 ||
		has_superclass(attachment->relid) ||
		rel->rd_tableam != GetHeapamTableAmRoutine();
	attachment->relids = list_make1_oid(attachment->relid);
	if (!attachment->partitioned)
		attachment->relids = attachment->all;
	relation_close(rel, NoLock);

	foreach(lc, attachment->all)
	{
		Oid			relid = lfirst_oid(lc);

		rel = relation_open(relid, NoLock);
		idem_attachable_table(rel, false);
		if (!attachment->partitioned)
			idem_attach_check_owner(relid);
		relation_close(rel, NoLock);
	}
}

/*
 * Reads the machine's guards as the table's owner, also where a superuser attaches
 * what is not his: parsing may run what belongs to the table.
 */
static void
attach_check_guards(Relation rel, const IdemMachine *machine)
{
	Oid			owner = rel->rd_rel->relowner;
	bool		as_owner = owner != GetUserId() && !superuser_arg(owner);
	IdemIdentity saved;

	if (as_owner)
		idem_catalog_become_user(owner, RelationGetNamespace(rel), &saved);
	idem_guard_check_table(rel, machine);
	if (as_owner)
		idem_catalog_restore(&saved);
}

/*
 * Checks columns, guards and bindings of the tables that get triggers.
 */
static void
attach_check_tables(Attachment *attachment, const IdemMachine *machine)
{
	ListCell   *lc;

	foreach(lc, attachment->all)
	{
		Relation	rel = relation_open(lfirst_oid(lc), NoLock);
		AttrNumber	attnum = idem_attachable_column(rel, attachment->column);
		IdemTable  *table = idem_table_get(rel, CurrentMemoryContext);

		for (int i = 0; i < table->nbindings; i++)
		{
			if (table->bindings[i].column == attnum)
				ereport(ERROR,
						(errcode(ERRCODE_DUPLICATE_OBJECT),
						 errmsg("column \"%s\" of table \"%s\" is moved by machine \"%s\" already",
								attachment->column,
								RelationGetRelationName(rel),
								table->bindings[i].machine),
						 errhint("Detach it first with idem_detach()."),
						 errtablecol(rel, attnum)));
		}
		idem_trigger_refuse_taken(rel, attnum);
		if (list_member_oid(attachment->relids, lfirst_oid(lc)))
		{
			attach_check_guards(rel, machine);
			if (attachment->history)
				idem_attachable_history(rel);
		}
		if (RelationGetRelid(rel) == attachment->relid)
			idem_attachable_values(rel, attnum, machine);
		relation_close(rel, NoLock);
	}
}

/*
 * The options that are not default, as the text of a JSON object.
 */
static char *
attach_options(const Attachment *attachment, bool child)
{
	StringInfoData buf;
	const char *comma = "";

	initStringInfo(&buf);
	appendStringInfoChar(&buf, '{');
	if (attachment->history)
	{
		appendStringInfo(&buf, "%s\"history\": true", comma);
		comma = ", ";
	}
	if (attachment->events_only)
	{
		appendStringInfo(&buf, "%s\"events_only\": true", comma);
		comma = ", ";
	}
	if (strcmp(attachment->on_delete, "any") != 0)
	{
		appendStringInfo(&buf, "%s\"on_delete\": \"%s\"", comma,
						 attachment->on_delete);
		comma = ", ";
	}
	if (attachment->exempt != NULL)
	{
		Datum	   *elems;
		bool	   *nulls;
		int			nelems;
		int			n = 0;

		deconstruct_array(attachment->exempt, NAMEOID, NAMEDATALEN, false,
						  TYPALIGN_CHAR, &elems, &nulls, &nelems);
		appendStringInfo(&buf, "%s\"exempt\": [", comma);
		for (int i = 0; i < nelems; i++)
		{
			if (nulls[i])
				continue;
			/* an error if there is no such role */
			(void) get_role_oid(NameStr(*DatumGetName(elems[i])), false);
			if (n++ > 0)
				appendStringInfoString(&buf, ", ");
			escape_json(&buf, NameStr(*DatumGetName(elems[i])));
		}
		appendStringInfoChar(&buf, ']');
		comma = ", ";
	}
	if (strcmp(attachment->mode, "enforce") != 0)
	{
		appendStringInfo(&buf, "%s\"mode\": \"%s\"", comma, attachment->mode);
		comma = ", ";
	}
	if (attachment->keep != NULL)
	{
		int			nestlevel = NewGUCNestLevel();

		idem_guc_set("intervalstyle", "iso_8601");
		appendStringInfo(&buf, "%s\"keep\": \"%s\"", comma,
						 DatumGetCString(DirectFunctionCall1(interval_out,
															 IntervalPGetDatum(attachment->keep))));
		AtEOXact_GUC(true, nestlevel);
		comma = ", ";
	}
	if (child)
		appendStringInfo(&buf, "%s\"child\": true", comma);
	appendStringInfoChar(&buf, '}');
	return buf.data;
}

/* what follows the tag in the names of a binding's triggers */
static const char *const suffixes[] = {
	"", "_insert", "_update", "_delete", "_end", "_log_i", "_log_u"
};

/*
 * The name of a trigger.  What sees rows after their write sorts before others'
 * triggers, everything else behind them.
 */
static char *
attach_trigger_name(const char *tag, const char *suffix)
{
	char	   *name = psprintf("%s%s", tag, suffix);

	if (strcmp(suffix, "_insert") == 0 || strcmp(suffix, "_update") == 0 ||
		strcmp(suffix, "_delete") == 0)
		name[0] = '!';
	return name;
}

static bool
attach_tag_is_free(const Attachment *attachment, const char *tag)
{
	ListCell   *lc;

	foreach(lc, attachment->all)
	{
		for (int i = 0; i < lengthof(suffixes); i++)
		{
			if (OidIsValid(get_trigger_oid(lfirst_oid(lc),
										   attach_trigger_name(tag, suffixes[i]),
										   true)))
				return false;
		}
	}
	return true;
}

/*
 * The tag of a column's binding, a name that sorts behind others'.  A number is
 * added where it is taken.
 */
char *
idem_attach_first_tag(const char *column)
{
	return psprintf("~idem_%s",
					pnstrdup(column, pg_mbcliplen(column, strlen(column),
												  IDEM_MAX_TAG_COLUMN)));
}

/*
 * One that is free with every suffix.
 */
static char *
attach_choose_tag(const Attachment *attachment)
{
	char	   *first = idem_attach_first_tag(attachment->column);
	char	   *tag = first;

	for (int n = 2; !attach_tag_is_free(attachment, tag); n++)
		tag = psprintf("%s_%d", first, n);
	return tag;
}

/*
 * CREATE TRIGGER tag+suffix "when" ON table "how" EXECUTE FUNCTION function(...)
 */
static void
attach_create(const Attachment *attachment, Oid relid, const char *suffix,
			  const char *when, const char *how, const char *function)
{
	StringInfoData buf;

	initStringInfo(&buf);
	appendStringInfo(&buf, "CREATE TRIGGER %s %s ON %s %s EXECUTE FUNCTION %s.%s(%s, %s, %s, %s)",
					 quote_identifier(attach_trigger_name(attachment->tag,
														  suffix)),
					 when, idem_attach_table_name(relid), how, attachment->schema,
					 function, quote_literal_cstr(attachment->machine),
					 quote_literal_cstr(attach_options(attachment,
													   relid != attachment->relid)),
					 quote_literal_cstr(attachment->tag),
					 quote_literal_cstr(idem_attach_table_name(attachment->relid)));
	idem_attach_execute(buf.data);
}

static void
attach_create_triggers(const Attachment *attachment, Oid relid)
{
	const char *column = quote_identifier(attachment->column);
	const char *schema = attachment->schema;
	char	   *new_row = psprintf("FOR EACH ROW WHEN (NEW.%s IS NOT NULL OR true)",
								   column);
	char	   *old_row = psprintf("FOR EACH ROW WHEN (OLD.%s IS NOT NULL OR true)",
								   column);
	char	   *each_row = psprintf("%s.idem_each_row(NEW.%s, %s::pg_catalog.regclass)",
									schema, column,
									quote_literal_cstr(idem_attach_table_name(relid)));
	char	   *not_initial = psprintf("%s.idem_not_initial(NEW.%s, %s)",
									   schema, column,
									   quote_literal_cstr(attachment->machine));
	bool		dynamic = attachment->history && !attachment->partitioned;

	attach_create(attachment, relid, "", "BEFORE UPDATE", new_row,
				  "idem_guard");
	attach_create(attachment, relid, "_insert", "AFTER INSERT",
				  attachment->partitioned ? new_row :
				  psprintf(dynamic ? "FOR EACH ROW WHEN (%s OR %s)" :
						   "FOR EACH ROW WHEN (%s)", not_initial, each_row),
				  "idem_guard");
	if (attachment->partitioned || strcmp(attachment->on_delete, "any") != 0)
		attach_create(attachment, relid, "_delete", "AFTER DELETE", old_row,
					  "idem_guard");
	if (dynamic)
	{
		attach_create(attachment, relid, "_update", "AFTER UPDATE",
					  psprintf("FOR EACH ROW WHEN (%s)", each_row),
					  "idem_guard");
		attach_create(attachment, relid, "_log_u", "AFTER UPDATE",
					  "FOR EACH STATEMENT",
					  "idem_history_changed");
		attach_create(attachment, relid, "_log_i", "AFTER INSERT",
					  "REFERENCING NEW TABLE AS idem_new FOR EACH STATEMENT",
					  "idem_history_changed");
	}
	else if (attachment->rowwise)
		attach_create(attachment, relid, "_update", "AFTER UPDATE", new_row,
					  "idem_guard");
	if (dynamic || !attachment->rowwise)
		attach_create(attachment, relid, "_end", "AFTER UPDATE",
					  "FOR EACH STATEMENT", "idem_guard");
}

/*
 * One of two words.
 */
static char *
attach_take_word(FunctionCallInfo fcinfo, int n, const char *name,
				 const char *const *words)
{
	char	   *word;
	StringInfoData hint;

	if (PG_ARGISNULL(n))
		return pstrdup(words[0]);
	word = text_to_cstring(PG_GETARG_TEXT_PP(n));
	initStringInfo(&hint);
	for (int i = 0; words[i] != NULL; i++)
	{
		if (strcmp(word, words[i]) == 0)
			return word;
		appendStringInfo(&hint, "%s\"%s\"", i > 0 ? ", " : "", words[i]);
	}
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_BAD_ARGUMENT),
			 errmsg("invalid value for argument \"%s\"", name),
			 errhint("Available values are %s.", hint.data),
			 errhidestmt(true)));
}

static bool
attach_take_bool(FunctionCallInfo fcinfo, int n, bool otherwise)
{
	return PG_ARGISNULL(n) ? otherwise : PG_GETARG_BOOL(n);
}

/*
 * idem_attach(machine, table_name, column_name, history, events_only,
 *			   on_delete, exempt, accept_existing, validate, mode, keep)
 *		-> true
 */
Datum
idem_attach(PG_FUNCTION_ARGS)
{
	static const char *const delete_rules[] = {"any", "final", "never", NULL};
	static const char *const modes[] = {"enforce", "observe", NULL};
	Attachment	attachment;
	const IdemMachine *machine;
	Oid			owner;
	ListCell   *lc;

	idem_require_argument(fcinfo, 0, "machine");
	idem_require_argument(fcinfo, 1, "table_name");
	idem_require_argument(fcinfo, 2, "column_name");
	memset(&attachment, 0, sizeof(attachment));
	attachment.machine = text_to_cstring(PG_GETARG_TEXT_PP(0));
	attachment.relid = PG_GETARG_OID(1);
	attachment.column = pstrdup(NameStr(*PG_GETARG_NAME(2)));
	attachment.history = attach_take_bool(fcinfo, 3, false);
	attachment.events_only = attach_take_bool(fcinfo, 4, false);
	attachment.on_delete = attach_take_word(fcinfo, 5, "on_delete",
											delete_rules);
	attachment.exempt = PG_ARGISNULL(6) ? NULL : PG_GETARG_ARRAYTYPE_P(6);
	attachment.accept_existing = attach_take_bool(fcinfo, 7, false);
	attachment.validate = attach_take_bool(fcinfo, 8, true);
	attachment.mode = attach_take_word(fcinfo, 9, "mode", modes);
	attachment.keep = PG_ARGISNULL(10) ? NULL : PG_GETARG_INTERVAL_P(10);
	attachment.schema = pstrdup(quote_identifier(get_namespace_name(get_func_namespace(fcinfo->flinfo->fn_oid))));
	if (attachment.keep != NULL && !attachment.history)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_BAD_ARGUMENT),
				 errmsg("argument \"keep\" needs a history"),
				 errhint("Pass history => true."),
				 errhidestmt(true)));
	/* as each write asks for it, which is too late to refuse it */
	if (attachment.keep != NULL)
		(void) idem_scope_deadline(GetCurrentTimestamp(), attachment.keep,
								   "keep");
	idem_require_writable("idem_attach()");

	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	idem_attach_check_owner(attachment.relid);
	owner = attach_lock_machine(attachment.machine);
	attach_lock_tables(&attachment);
	idem_machine_accept();
	machine = idem_machine_get(attachment.machine, false,
							   CurrentMemoryContext);
	if (machine->timed && !attachment.history)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_MISUSE),
				 errmsg("machine \"%s\" has timed transitions, which need a history",
						attachment.machine),
				 errhint("Pass history => true."),
				 errhidestmt(true)));
	attach_check_tables(&attachment, machine);
	if (attachment.validate && !attachment.accept_existing)
		idem_attachable_rows(attachment.relid, attachment.column, machine);
	attachment.tag = attach_choose_tag(&attachment);
	foreach(lc, attachment.relids)
		attach_create_triggers(&attachment, lfirst_oid(lc));
	if (machine->timed)
		idem_timers_expect_of(attachment.relid, attachment.machine,
							  attachment.tag, true);
	attach_warn_of_owner(&attachment, owner);
	idem_trigger_warn_of_owners(attachment.relid);
	SPI_finish();
	PG_RETURN_BOOL(true);
}
