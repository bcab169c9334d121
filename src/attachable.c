/*
 * attachable.c
 *	  What a machine can be attached to: which tables, columns and rows.
 *
 * Each function refuses what cannot be, and says why.  Tables are locked
 * already, against writers, and rows are looked at as the caller, by the latest
 * snapshot, all of them or not at all (row security).
 */
#include "postgres.h"

#include "catalog/pg_attribute.h"
#include "catalog/pg_class.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "attach.h"
#include "catalog.h"
#include "errors.h"
#include "machine.h"

/* values are listed in a report up to so many */
#define MAX_REPORTED	20

/*
 * Refuses what cannot be guarded.
 */
void
idem_attachable_table(Relation rel, bool is_root)
{
	char	   *name = RelationGetRelationName(rel);
	char		relkind = rel->rd_rel->relkind;

	if (relkind != RELKIND_RELATION && relkind != RELKIND_PARTITIONED_TABLE)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" is not a table", name),
				 errdetail("Machines are attached to ordinary and partitioned tables, of which no partition may be foreign."),
				 errtable(rel)));
	if (idem_catalog_is_system(rel))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied: \"%s\" is a table of the system",
						name)));
	if (is_root && rel->rd_rel->relispartition)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("table \"%s\" is a partition", name),
				 errhint("Attach the machine to the partitioned table that it belongs to."),
				 errtable(rel)));
}

AttrNumber
idem_attachable_column(Relation rel, const char *name)
{
	AttrNumber	attnum = get_attnum(RelationGetRelid(rel), name);
	Form_pg_attribute column;
	Oid			base_type;
	int32		typmod;

	if (attnum == InvalidAttrNumber)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_COLUMN),
				 errmsg("column \"%s\" of relation \"%s\" does not exist",
						name, RelationGetRelationName(rel)),
				 errtable(rel)));
	if (attnum < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_COLUMN_REFERENCE),
				 errmsg("column \"%s\" is a system column", name),
				 errtable(rel)));
	column = TupleDescAttr(RelationGetDescr(rel), attnum - 1);
	if (column->attgenerated != '\0' || column->attidentity != '\0')
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_COLUMN_REFERENCE),
				 column->attgenerated != '\0' ?
				 errmsg("column \"%s\" of table \"%s\" is a generated column",
						name, RelationGetRelationName(rel)) :
				 errmsg("column \"%s\" of table \"%s\" is an identity column",
						name, RelationGetRelationName(rel)),
				 errdetail("PostgreSQL makes its values, no writer moves them."),
				 errtablecol(rel, attnum)));
	if (idem_state_kind(column->atttypid, column->atttypmod, &base_type,
						&typmod) == IDEM_STATE_NOT_A_KIND)
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("column \"%s\" of table \"%s\" has type %s, which cannot hold states",
						name, RelationGetRelationName(rel),
						format_type_be(column->atttypid)),
				 errhint("State columns are of type text, varchar, char, smallint, integer, bigint, an enum, or a domain over one of these."),
				 errtablecol(rel, attnum)));
	return attnum;
}

/*
 * Warns of states that the column has no value for: the events that lead there
 * fail, or no row begins.
 */
void
idem_attachable_values(Relation rel, AttrNumber attnum,
					   const IdemMachine *machine)
{
	Form_pg_attribute column = TupleDescAttr(RelationGetDescr(rel), attnum - 1);
	IdemBinding binding = {0};
	StringInfoData names;
	int			missing = 0;
	bool		any_initial = false;
	bool		holds_initial = false;

	binding.kind = idem_state_kind(column->atttypid, column->atttypmod,
								   &binding.base_type, &binding.typmod);
	initStringInfo(&names);
	for (int i = 0; i < machine->nstates; i++)
	{
		const IdemMachineState *state = &machine->states[i];
		bool		holds;

		CHECK_FOR_INTERRUPTS();
		holds = idem_binding_holds(&binding, state->name);
		any_initial = any_initial || state->initial;
		holds_initial = holds_initial || (state->initial && holds);
		if (!holds && ++missing <= MAX_REPORTED)
			appendStringInfo(&names, "%s\"%s\"", missing > 1 ? ", " : "",
							 state->name);
	}
	if (missing == 0)
		return;
	if (missing > MAX_REPORTED)
		appendStringInfo(&names, " and %d more", missing - MAX_REPORTED);
	ereport(WARNING,
			(errmsg("column \"%s\" of table \"%s\" cannot hold every state of machine \"%s\"",
					NameStr(column->attname), RelationGetRelationName(rel),
					machine->name),
			 any_initial && !holds_initial ?
			 errdetail("Type %s has no value for: %s. The initial states are among these: no row can be inserted.",
					   format_type_with_typemod(column->atttypid,
												column->atttypmod),
					   names.data) :
			 errdetail("Type %s has no value for: %s. Steps that lead there fail.",
					   format_type_with_typemod(column->atttypid,
												column->atttypmod),
					   names.data),
			 errhint("Name states as the column has them, or give it a type or labels for these."),
			 errtablecol(rel, attnum)));
}

void
idem_attachable_history(Relation rel)
{
	list_free(RelationGetIndexList(rel));
	if (!OidIsValid(rel->rd_pkindex))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("table \"%s\" has no primary key",
						RelationGetRelationName(rel)),
				 errdetail("A history names rows by their primary key; a deferrable one does not name them at every moment."),
				 errhint("Add one, or attach without history."),
				 errtable(rel)));
}

/*
 * Refuses rows whose state is NULL or unknown, with a report of all of them.
 */
void
idem_attachable_rows(Oid relid, const char *column,
					 const IdemMachine *machine)
{
	IdemBound	bound = {.relid = relid};
	StringInfoData report;
	uint64		bad = 0;
	int64		nulls;
	ListCell   *cell;

	namestrcpy(&bound.column, column);
	initStringInfo(&report);
	foreach(cell, idem_bound_count(&bound, &nulls))
	{
		const IdemStateCount *count = lfirst(cell);
		int			length = strlen(count->state);

		if (idem_machine_state(machine, count->state, length) >= 0)
			continue;
		if (++bad > MAX_REPORTED)
			continue;
		appendStringInfo(&report, "\"%s%s\": " INT64_FORMAT "\n",
						 pnstrdup(count->state,
								  pg_mbcliplen(count->state, length, 128)),
						 length > 128 ? "..." : "", count->rows);
	}
	if (nulls > 0 && ++bad <= MAX_REPORTED)
		appendStringInfo(&report, "NULL: " INT64_FORMAT "\n", nulls);
	if (bad == 0)
		return;
	if (bad > MAX_REPORTED)
		appendStringInfo(&report, "and " UINT64_FORMAT " more values\n",
						 bad - MAX_REPORTED);
	report.data[report.len - 1] = '\0';
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_MISUSE),
			 errmsg("rows of table \"%s\" are in no state of machine \"%s\"",
					get_rel_name(relid), machine->name),
			 errdetail("Values of column \"%s\", and rows that have them:\n%s",
					   column, report.data),
			 errhint("Mend these rows, or pass accept_existing => true to let them stay until idem_define() moves them, with moved => '{\"old\": \"new\"}', or validate => false to look at them later, with idem_verify()."),
			 idem_errcolumn(relid, column),
			 errhidestmt(true)));
}
