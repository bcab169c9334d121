/*
 * fire_key.c
 *	  The idempotency keys of events.
 *
 * A key is a record of scope "idem.fire" that is completed with the row's
 * write and holds the states before and after.  Its fingerprint binds it to
 * table, machine, event and row, each by what stays the same:
 *
 * table	the name that it had when the machine was attached, which stands in
 *			the trigger: so the key goes on answering after RENAME, SET SCHEMA,
 *			and dump and restore.
 * row		the values of the primary key as the row has them, in the order of
 *			the table, without names and without columns that machines move:
 *			so it does after a column was renamed or the primary key was made
 *			again, and however the caller spells a value that is equal.
 */
#include "postgres.h"

#include "executor/spi.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/json.h"
#include "utils/lsyscache.h"
#include "utils/numeric.h"
#include "utils/rls.h"
#include "utils/timestamp.h"

#include "current_key.h"
#include "fingerprint.h"
#include "fire.h"

/*
 * The place of a column of the primary key in the table that was attached: a
 * partition may have its columns in another order.
 */
static AttrNumber
fire_place(const IdemFire *fire, int i)
{
	const IdemTarget *target = fire->target;
	AttrNumber	place = target->relid == fire->binding->root ?
	target->attnums[i] : get_attnum(fire->binding->root, target->columns[i]);

	return place != InvalidAttrNumber ? place : target->attnums[i];
}

/*
 * The columns of the primary key that stay as they are, in the order of the
 * table.  Where there is none, those that this event leaves; if there is none
 * either, all.
 */
static int
fire_lasting(const IdemFire *fire, int *which)
{
	const IdemTarget *target = fire->target;
	const IdemTable *table = fire->binding->table;
	bool		moved[IDEM_TARGET_MAXKEYS] = {false};
	int			left = target->nkeys;
	int			n = 0;

	for (int i = 0; i < target->nkeys; i++)
	{
		for (int k = 0; k < table->nbindings; k++)
			moved[i] |= table->bindings[k].column == target->attnums[i];
		left -= moved[i];
	}
	for (int i = 0; i < target->nkeys; i++)
	{
		int			k;

		if (left == 0)
			moved[i] = target->nkeys > 1 &&
				target->attnums[i] == fire->binding->column;
		if (moved[i])
			continue;
		for (k = n++; k > 0 && fire_place(fire, which[k - 1]) >
			 fire_place(fire, i); k--)
			which[k] = which[k - 1];
		which[k] = i;
	}
	return n;
}

/*
 * The row's part of what a key stands for, from the values of its key.
 */
Jsonb *
idem_fire_row_key(const IdemFire *fire, const Datum *values)
{
	int			which[IDEM_TARGET_MAXKEYS];
	int			n = fire_lasting(fire, which);

	return idem_target_print_values(fire->target, values, which, n);
}

/*
 * The same whatever scale its numbers are stored with.
 */
static Jsonb *
fire_trim(Jsonb *json)
{
	JsonbIterator *it = JsonbIteratorInit(&json->root);
	JsonbParseState *state = NULL;
	JsonbValue *made = NULL;
	JsonbValue	value;
	JsonbIteratorToken token;

	while ((token = JsonbIteratorNext(&it, &value, false)) != WJB_DONE)
	{
		if (token < WJB_BEGIN_ARRAY && value.type == jbvNumeric)
			value.val.numeric = DatumGetNumeric(DirectFunctionCall1(numeric_trim_scale,
																	NumericGetDatum(value.val.numeric)));
		made = pushJsonbValue(&state, token,
							  token < WJB_BEGIN_ARRAY ? &value : NULL);
	}
	return JsonbValueToJsonb(made);
}

static text *
fire_child(const IdemFire *fire, const char *printed)
{
	return cstring_to_text(idem_child_key(fire->scope.name, fire->key,
										  printed, strlen(printed)));
}

/*
 * A row's own part of a key that was given for many, and as 1.0.0 made it if
 * that is another one, else NULL.
 */
text *
idem_fire_child_key(const IdemFire *fire, Jsonb *row_key, text **former_key)
{
	char	   *printed = JsonbToCString(NULL, &row_key->root, VARSIZE(row_key));

	*former_key = NULL;
	/* a number with zeros at its end has a point */
	if (strchr(printed, '.') != NULL)
	{
		Jsonb	   *trimmed = fire_trim(row_key);
		char	   *former = printed;

		printed = JsonbToCString(NULL, &trimmed->root, VARSIZE(trimmed));
		if (strcmp(former, printed) != 0)
			*former_key = fire_child(fire, former);
	}
	return fire_child(fire, printed);
}

/*
 * What a key stands for.
 */
static bytea *
fire_fingerprint(const IdemFire *fire, Jsonb *row_key)
{
	char	   *identity = psprintf("%s %s %s", fire->binding->attached_as,
									quote_literal_cstr(fire->machine->name),
									quote_literal_cstr(fire->event));

	return idem_fingerprint_call(identity, row_key);
}

static char *
fire_get(Jsonb *json, const char *name)
{
	JsonbValue *value = getKeyJsonValueFromContainer(&json->root, name,
													 strlen(name), NULL);

	if (value == NULL || value->type != jbvString)
		return NULL;
	return pnstrdup(value->val.string.val, value->val.string.len);
}

/*
 * Whether a record is one of what the fingerprint stands for.
 */
static bool
fire_is_same(const IdemRow *row, const bytea *fingerprint)
{
	bytea	   *recorded = row->nulls[IDEM_COL_FINGERPRINT] ? NULL :
	DatumGetByteaPP(row->values[IDEM_COL_FINGERPRINT]);

	return recorded != NULL && !row->nulls[IDEM_COL_RESPONSE] &&
		VARSIZE_ANY_EXHDR(recorded) == VARSIZE_ANY_EXHDR(fingerprint) &&
		memcmp(VARDATA_ANY(recorded), VARDATA_ANY(fingerprint),
			   VARSIZE_ANY_EXHDR(recorded)) == 0;
}

/*
 * The verdict that a completed record gives.
 */
static void
fire_replay(const IdemRow *row, const bytea *fingerprint,
			IdemFireVerdict *verdict)
{
	Jsonb	   *response;

	if (!fire_is_same(row, fingerprint))
	{
		verdict->outcome = IDEM_FIRE_MISMATCH;
		return;
	}
	response = DatumGetJsonbP(DirectFunctionCall1(jsonb_in,
												  CStringGetDatum(TextDatumGetCString(row->values[IDEM_COL_RESPONSE]))));
	verdict->outcome = IDEM_FIRE_ALREADY;
	verdict->from = fire_get(response, "from");
	verdict->to = fire_get(response, "to");
}

/*
 * Whether the key has been used: then the verdict is already, or mismatch.
 */
bool
idem_fire_recall(IdemFire *fire, text *key, Jsonb *row_key,
				 IdemFireVerdict *verdict)
{
	IdemStore	store;
	IdemRow		row;
	bool		found;

	idem_store_open(&store, RowExclusiveLock);
	found = idem_registry_read(&store, fire->scope.name, key,
							   idem_claims_find(fire->scope.name, key), true,
							   &row) &&
		!idem_row_is_expired(&row, GetCurrentTimestamp());
	idem_store_close(&store);
	if (found)
		fire_replay(&row, fire_fingerprint(fire, row_key), verdict);
	return found;
}

/*
 * What is recorded with a key.
 */
static text *
fire_response(const IdemFireVerdict *verdict)
{
	StringInfoData response;

	initStringInfo(&response);
	appendStringInfoString(&response, "{\"from\":");
	if (verdict->from != NULL)
		escape_json(&response, verdict->from);
	else
		appendStringInfoString(&response, "null");
	appendStringInfoString(&response, ",\"to\":");
	if (verdict->to != NULL)
		escape_json(&response, verdict->to);
	else
		appendStringInfoString(&response, "null");
	appendStringInfoChar(&response, '}');
	return cstring_to_text_with_len(response.data, response.len);
}

/*
 * Records the key together with what it does.  False if somebody has used it
 * for something else meanwhile.
 */
bool
idem_fire_spend(IdemFire *fire, text *key, Jsonb *row_key,
				IdemFireVerdict *verdict)
{
	IdemRequest request = {
		.verb = fire->verb,
		.key = key,
		.scope = &fire->scope,
		.once = true,
		.fingerprint = fire_fingerprint(fire, row_key),
		.response = fire_response(verdict),
		.wait = {.forever = true}
	};
	IdemStore	store;
	IdemVerdict recorded;

	idem_store_open(&store, RowExclusiveLock);
	idem_registry_claim(&store, &request, &recorded);
	idem_store_close(&store);
	if (IDEM_OUTCOME_RUNS(recorded.outcome))
		return true;
	verdict->outcome = IDEM_FIRE_MISMATCH;
	verdict->from = NULL;
	verdict->to = NULL;
	return false;
}

/*
 * The same once more, where the write has come to another verdict.
 */
void
idem_fire_correct(IdemFire *fire, text *key, Jsonb *row_key,
				  const IdemFireVerdict *verdict)
{
	IdemClaim  *claim = idem_claims_find(fire->scope.name, key);
	IdemStore	store;
	IdemRow		old;
	IdemRow		row;

	idem_store_open(&store, RowExclusiveLock);
	/* the trigger may also have forgotten the key, and used it for another */
	if (idem_registry_read(&store, fire->scope.name, key, claim, true, &old) &&
		fire_is_same(&old, fire_fingerprint(fire, row_key)))
	{
		row = old;
		row.values[IDEM_COL_RESPONSE] =
			PointerGetDatum(fire_response(verdict));
		if (idem_store_update_own(&store, &old, &row) == IDEM_STORE_OK &&
			claim != NULL)
			idem_claims_note(fire->scope.name, key, claim->status,
							 claim->hold, &row.tid);
	}
	idem_store_close(&store);
}

/*
 * Whether the caller may learn from a key of a row that is not there: it may be one
 * that a policy hides from him.  Where a state is part of its id, it may be his own
 * and have moved on.
 */
static bool
fire_may_recall(const IdemFire *fire)
{
	int			which[IDEM_TARGET_MAXKEYS];

	return check_enable_rls(fire->target->relid, InvalidOid, true) != RLS_ENABLED ||
		fire_lasting(fire, which) < fire->target->nkeys;
}

/*
 * A row that is missing, by the id that was given.  It may have another by now, or
 * have gone after its event; the key answers all the same.
 */
void
idem_fire_missing(IdemFire *fire, text *key, const Datum *values,
				  IdemFireVerdict *verdict)
{
	memset(verdict, 0, sizeof(IdemFireVerdict));
	if (key != NULL && fire_may_recall(fire) &&
		idem_fire_recall(fire, key, idem_fire_row_key(fire, values),
						 verdict) &&
		verdict->outcome == IDEM_FIRE_ALREADY)
		return;
	memset(verdict, 0, sizeof(IdemFireVerdict));
	verdict->outcome = IDEM_FIRE_MISSING;
}
