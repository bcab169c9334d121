/*
 * export.c
 *	  idem_export: the statements that make this database's machines and scope
 *	  settings in another one.
 *
 * A machine is printed as the call of idem_define() that makes it, which is
 * what one keeps with the sources of an application.  That call numbers the
 * priorities afresh and wants an initial state; a machine that would not come
 * out the same row for row is printed as INSERTs.  Both may be run again.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"

#include "catalog.h"
#include "diagram.h"
#include "guc.h"
#include "machine.h"
#include "own.h"

PG_FUNCTION_INFO_V1(idem_export);

typedef enum ExportStatement
{
	EXPORT_SCOPES,
	EXPORT_MACHINES,
	EXPORT_ROWS
} ExportStatement;

static struct IdemOwnStatement statements[] = {

	[EXPORT_SCOPES] = {
		"SELECT pg_catalog.format('INSERT INTO idem.scope (name, hold, lease, ttl,"
		" no_expiry, max_response, max_attempts, roles, keep_failures)"
		" VALUES (%L, %L, %L, %L, %L, %L, %L, %L, %L)"
		" ON CONFLICT (name) DO UPDATE SET hold = EXCLUDED.hold,"
		" lease = EXCLUDED.lease, ttl = EXCLUDED.ttl,"
		" no_expiry = EXCLUDED.no_expiry, max_response = EXCLUDED.max_response,"
		" max_attempts = EXCLUDED.max_attempts, roles = EXCLUDED.roles,"
		" keep_failures = EXCLUDED.keep_failures;',"
		" name, hold, lease, ttl, no_expiry, max_response, max_attempts, roles,"
		" keep_failures) FROM idem.scope ORDER BY name",
		IDEM_OWN_READ, 0, {InvalidOid}, NULL
	},
	[EXPORT_MACHINES] = {
		"SELECT name FROM idem.machine ORDER BY name",
		IDEM_OWN_READ, 0, {InvalidOid}, NULL
	},
	[EXPORT_ROWS] = {
		"SELECT line FROM ("
		"SELECT 1, pg_catalog.format('INSERT INTO idem.machine (name) VALUES (%L)"
		" ON CONFLICT DO NOTHING;', $1)"
		" UNION ALL "
		"SELECT 2, pg_catalog.format('DELETE FROM idem.transition WHERE machine = %L;', $1)"
		" UNION ALL "
		"SELECT 3, pg_catalog.format('INSERT INTO idem.state (machine, name,"
		" initial, final, frozen, self) VALUES (%L, %L, %L, %L, %L, %L)"
		" ON CONFLICT (machine, name) DO UPDATE SET initial = EXCLUDED.initial,"
		" final = EXCLUDED.final, frozen = EXCLUDED.frozen, self = EXCLUDED.self;',"
		" machine, name, initial, final, frozen, self)"
		" FROM idem.state WHERE machine OPERATOR(pg_catalog.=) $1"
		" UNION ALL "
		"SELECT 4, pg_catalog.format('INSERT INTO idem.transition (machine, event,"
		" from_state, to_state, priority, guard, roles, after)"
		" VALUES (%L, %L, %L, %L, %L, %L, %L, %L);',"
		" machine, event, from_state, to_state, priority, guard, roles, after)"
		" FROM idem.transition WHERE machine OPERATOR(pg_catalog.=) $1"
		") AS lines (part, line) ORDER BY part, line COLLATE pg_catalog.\"C\"",
		IDEM_OWN_READ, 1, {TEXTOID}, NULL
	}
};

/*
 * Runs a statement as the tables' owner; the rows are in SPI_tuptable.
 */
static uint64
export_run(ExportStatement which, const char *machine)
{
	Datum		value = machine != NULL ? CStringGetTextDatum(machine) : (Datum) 0;
	int			guc_level = NewGUCNestLevel();
	uint64		rows;

	idem_guc_set("intervalstyle", "postgres");
	rows = idem_own_run(&statements[which], IDEM_REL_MACHINE, &value);
	AtEOXact_GUC(true, guc_level);
	return rows;
}

static void
export_line(ReturnSetInfo *rsinfo, const char *line)
{
	Datum		values[1] = {CStringGetTextDatum(line)};
	bool		nulls[1] = {false};

	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

/* the first column of what was read, as lines */
static void
export_rows(ReturnSetInfo *rsinfo, uint64 rows)
{
	SPITupleTable *table = SPI_tuptable;

	for (uint64 i = 0; i < rows; i++)
		export_line(rsinfo, idem_own_text(table->vals[i], table->tupdesc, 1));
}

/*
 * Whether idem_define() would make the same rows of what idem_diagram()
 * prints.
 */
static bool
is_as_defined(const IdemDefinition *definition)
{
	ListCell   *cell;
	bool		initial = false;

	foreach(cell, definition->states)
		initial = initial || ((IdemStateDef *) lfirst(cell))->initial;
	foreach(cell, definition->transitions)
	{
		IdemTransitionDef *rule = lfirst(cell);

		if (rule->priority != foreach_current_index(cell) + 1)
			return false;
	}
	return initial;
}

/*
 * A text in dollar quotes, which leave a diagram readable.
 */
static char *
dollar_quote(const char *text)
{
	char	   *tag = "$$";

	for (int i = 0; strstr(text, tag) != NULL; i++)
		tag = psprintf("$d%d$", i);
	return psprintf("%s%s%s", tag, text, tag);
}

static void
export_machine(ReturnSetInfo *rsinfo, const char *machine, const char *schema)
{
	IdemDefinition *definition = idem_diagram_machine(machine);

	if (is_as_defined(definition))
	{
		StringInfoData text;

		initStringInfo(&text);
		idem_diagram_mermaid(&text, definition, NULL);
		export_line(rsinfo, psprintf("SELECT %s.idem_define(%s, %s);", schema,
									 quote_literal_cstr(machine),
									 dollar_quote(text.data)));
	}
	else
		export_rows(rsinfo, export_run(EXPORT_ROWS, machine));

	if (strcmp(definition->owner, GetUserNameFromId(GetUserId(), false)) != 0)
		export_line(rsinfo, psprintf("UPDATE idem.machine SET owner = %s WHERE name = %s;",
									 quote_literal_cstr(definition->owner),
									 quote_literal_cstr(machine)));
}

/*
 * idem_export() -> SETOF text
 */
Datum
idem_export(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo;
	SPITupleTable *machines;
	const char *schema;
	uint64		rows;

	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	schema = quote_identifier(get_namespace_name(get_func_namespace(fcinfo->flinfo->fn_oid)));

	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	export_rows(rsinfo, export_run(EXPORT_SCOPES, NULL));
	rows = export_run(EXPORT_MACHINES, NULL);
	machines = SPI_tuptable;
	for (uint64 i = 0; i < rows; i++)
		export_machine(rsinfo, idem_own_text(machines->vals[i],
											 machines->tupdesc, 1), schema);
	SPI_finish();
	return (Datum) 0;
}
