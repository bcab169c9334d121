/*
 * since.c
 *	  The names by which SQL calls this library since version 1.1.0.
 *
 * From 1.1.0 on a library refuses objects of another version (release.c).
 * That of 1.0.0 does not look: a session that has it loaded while somebody
 * updates the objects, or everybody where an old package is put back, would
 * work on what it does not know.  So the objects of 1.1.0 call all that works
 * with rows by names of which the library of 1.0.0 has none, and PostgreSQL
 * says that there is no such function in it.
 *
 * The names of 1.0.0 stay: its objects call them, and are told to update.
 * What only computes, or tells of the library, goes on in either and has kept
 * its name.  What came with 1.1.0 or later needs no second one.
 */
#include "postgres.h"

#include "fmgr.h"

#define SINCE_1_1(function) \
	extern Datum function(PG_FUNCTION_ARGS); \
	PG_FUNCTION_INFO_V1(function##_1_1); \
	Datum \
	function##_1_1(PG_FUNCTION_ARGS) \
	{ \
		return function(fcinfo); \
	} \
	extern int idem_since_no_semicolon

SINCE_1_1(idem_allowed);
SINCE_1_1(idem_attach);
SINCE_1_1(idem_attach_once);
SINCE_1_1(idem_attach_version);
SINCE_1_1(idem_branch);
SINCE_1_1(idem_call);
SINCE_1_1(idem_catalog_changed);
SINCE_1_1(idem_child);
SINCE_1_1(idem_claim);
SINCE_1_1(idem_claim_key);
SINCE_1_1(idem_complete);
SINCE_1_1(idem_complete_jsonb);
SINCE_1_1(idem_define);
SINCE_1_1(idem_delete);
SINCE_1_1(idem_detach);
SINCE_1_1(idem_detach_once);
SINCE_1_1(idem_detach_version);
SINCE_1_1(idem_diagram);
SINCE_1_1(idem_each_row);
SINCE_1_1(idem_export);
SINCE_1_1(idem_fail);
SINCE_1_1(idem_fence_advance);
SINCE_1_1(idem_fence_check);
SINCE_1_1(idem_fire);
SINCE_1_1(idem_fire_many);
SINCE_1_1(idem_forget);
SINCE_1_1(idem_guard);
SINCE_1_1(idem_history);
SINCE_1_1(idem_history_changed);
SINCE_1_1(idem_history_protect);
SINCE_1_1(idem_import);
SINCE_1_1(idem_import_many);
SINCE_1_1(idem_inserted_cmp);
SINCE_1_1(idem_inserted_in);
SINCE_1_1(idem_inserted_out);
SINCE_1_1(idem_key);
SINCE_1_1(idem_lease_acquire);
SINCE_1_1(idem_lease_break);
SINCE_1_1(idem_lease_guard);
SINCE_1_1(idem_lease_release);
SINCE_1_1(idem_lease_renew);
SINCE_1_1(idem_lint);
SINCE_1_1(idem_lookup);
SINCE_1_1(idem_machine_check);
SINCE_1_1(idem_not_initial);
SINCE_1_1(idem_once);
SINCE_1_1(idem_once_many);
SINCE_1_1(idem_once_row);
SINCE_1_1(idem_release);
SINCE_1_1(idem_renew);
SINCE_1_1(idem_reopen);
SINCE_1_1(idem_retry);
SINCE_1_1(idem_rowversion);
SINCE_1_1(idem_step);
SINCE_1_1(idem_sweep);
SINCE_1_1(idem_tick);
SINCE_1_1(idem_token_issue);
SINCE_1_1(idem_token_peek);
SINCE_1_1(idem_token_use);
SINCE_1_1(idem_try_fire);
SINCE_1_1(idem_twin);
SINCE_1_1(idem_twin_value);
SINCE_1_1(idem_unfinished);
SINCE_1_1(idem_update);
SINCE_1_1(idem_verify);
SINCE_1_1(idem_why_not);
SINCE_1_1(idem_window);
SINCE_1_1(idem_wrap);
