/*
 * example.c: idem from libpq.
 *
 *     cc example.c -I$(pg_config --includedir) -lpq && PGHOST=... ./a.out
 *
 * Parameters are sent as text without a type, and no statement is named, so
 * that a pooler in transaction mode needs nothing special.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <libpq-fe.h>

typedef struct Answer
{
	bool		run;			/* this call did the work */
	char		outcome[16];	/* "" where there was an error */
	char		sqlstate[6];
	char		fence[24];
	char		response[256];
	int			code;
	int			retry_after;
}			Answer;

/* Does the work and fills in response and code, or sqlstate. */
typedef void (*Work) (PGconn *conn, Answer *answer, void *arg);
typedef void (*Pause) (int seconds, void *arg);

/* Runs one statement; its SQLSTATE, "00000" where all is well, goes to state. */
static PGresult *
query(PGconn *conn, char *state, const char *sql, int n, const char *const *values)
{
	PGresult   *res = PQexecParams(conn, sql, n, NULL, values, NULL, NULL, 0);
	const char *code = PQresultErrorField(res, PG_DIAG_SQLSTATE);
	bool		good = PQresultStatus(res) == PGRES_TUPLES_OK ||
		PQresultStatus(res) == PGRES_COMMAND_OK;

	/* a lost connection has no SQLSTATE */
	snprintf(state, 6, "%s", good ? "00000" : code ? code : "08006");
	return res;
}

static bool
execute(PGconn *conn, char *state, const char *sql)
{
	PQclear(query(conn, state, sql, 0, NULL));
	return strcmp(state, "00000") == 0;
}

/*
 * What is worth the same transaction once more.  What is not: ID400, ID404,
 * ID409, ID412, ID422, ID428 and ID500 say the same every time.
 */
static bool
again(const char *state)
{
	return strcmp(state, "40001") == 0 || strcmp(state, "40P01") == 0;
}

/* One claim, and the work if it is ours.  True: another holder took over. */
static bool
attempt(PGconn *conn, const char *key, const char *request, const char *lease,
		const char *wait, Work work, void *arg, Answer *a)
{
	const char *claim[] = {key, request, lease, wait};
	const char *end[4];
	char		code[12];
	PGresult   *res;

	memset(a, 0, sizeof(*a));
	res = query(conn, a->sqlstate,
				"SELECT run, outcome, fence, response, code, retry_after "
				"FROM idem_claim($1, $2, lease => $3, wait => $4)", 4, claim);
	if (PQntuples(res) == 1)
	{
		a->run = *PQgetvalue(res, 0, 0) == 't';
		snprintf(a->outcome, sizeof(a->outcome), "%s", PQgetvalue(res, 0, 1));
		snprintf(a->fence, sizeof(a->fence), "%s", PQgetvalue(res, 0, 2));
		snprintf(a->response, sizeof(a->response), "%s", PQgetvalue(res, 0, 3));
		a->code = atoi(PQgetvalue(res, 0, 4));
		a->retry_after = atoi(PQgetvalue(res, 0, 5));
	}
	PQclear(res);
	if (!a->run)
		return false;

	work(conn, a, arg);
	if (strcmp(a->sqlstate, "00000") != 0)
		return false;
	snprintf(code, sizeof(code), "%d", a->code);
	end[0] = key;
	end[1] = a->response;
	end[2] = *a->fence ? a->fence : NULL;
	end[3] = code;
	PQclear(query(conn, a->sqlstate,
				  "SELECT idem_complete($1, $2::text, fence => $3, code => $4)", 4, end));
	return strcmp(a->sqlstate, "ID409") == 0;
}

/*
 * Runs work once for the key; the answer is also the repeats'.  Without a lease
 * it runs in the transaction of the claim; with one, between two transactions.
 */
static Answer
once(PGconn *conn, const char *key, const char *request, const char *lease,
	 const char *wait, Work work, void *arg, Pause pause)
{
	Answer		a;
	char		state[6];

	for (int tries = 0; tries < 10; tries++)
	{
		bool		lost;

		if (!lease)
			execute(conn, state, "BEGIN");
		lost = attempt(conn, key, request, lease, wait, work, arg, &a);
		if (!lease)
		{
			if (strcmp(a.sqlstate, "00000") == 0)
				execute(conn, a.sqlstate, "COMMIT");
			else
				execute(conn, state, "ROLLBACK");
		}
		if (lost || again(a.sqlstate))
			continue;			/* rolled back, or another holder has the answer */
		if (strcmp(a.outcome, "in_progress") != 0)
			break;
		pause(a.retry_after, arg);
	}
	return a;
}

static void
nap(long milliseconds)
{
	nanosleep(&(struct timespec) {milliseconds / 1000, milliseconds % 1000 * 1000000}, NULL);
}

static void
sleep_for(int seconds, void *arg)
{
	(void) arg;
	nap(1000L * seconds);
}

/* The scenario. */

static PGconn *other;

typedef struct Charge
{
	const char *amount;
	const char *fails;			/* the SQLSTATE of its first run */
	int			runs;
}			Charge;

static void
charge(PGconn *conn, Answer *a, void *arg)
{
	Charge	   *c = arg;
	char		sql[128];
	PGresult   *res = query(conn, a->sqlstate, "UPDATE account SET balance = balance - $1 "
							"WHERE id = 1 RETURNING balance", 1, &c->amount);

	if (PQntuples(res) == 1)
		snprintf(a->response, sizeof(a->response), "{\"balance\": %s}", PQgetvalue(res, 0, 0));
	a->code = 201;
	PQclear(res);
	if (++c->runs == 1 && c->fails)
	{
		snprintf(sql, sizeof(sql),
				 "DO $$ BEGIN RAISE EXCEPTION 'again' USING ERRCODE = '%s'; END $$", c->fails);
		execute(conn, a->sqlstate, sql);
	}
}

static void
slow(PGconn *conn, Answer *a, void *arg)
{
	PGresult   *res;
	const char *fence;

	(void) conn;
	(void) arg;
	nap(20);
	res = query(other, a->sqlstate, "SELECT fence FROM idem_claim('report', lease => '1 min')", 0, NULL);
	fence = PQgetvalue(res, 0, 0);
	PQclear(query(other, a->sqlstate, "SELECT idem_complete('report', 'the winner''s', "
				  "fence => $1, code => 201)", 1, &fence));
	PQclear(res);
	a->code = 201;
	strcpy(a->response, "too late");
}

static void
finish(int seconds, void *arg)
{
	char		state[6];

	(void) seconds;
	(void) arg;
	printf("in progress: told to wait, then ");
	execute(other, state, "SELECT idem_complete('pay-2', 'theirs', code => 201)");
	execute(other, state, "COMMIT");
}

static void
show(const char *what, Answer a)
{
	printf("%s%d %s%s\n", what, a.code, a.response, a.run ? "" : " (replayed)");
}

static void
refused(PGconn *conn, const char *what, const char *sql)
{
	char		state[6];

	execute(conn, state, sql);
	printf("%s: %s\n", what, state);
}

int
main(void)
{
	PGconn	   *db = PQconnectdb("");
	Charge		work = {"25", NULL, 0};
	PGresult   *res;
	char		state[6];

	other = PQconnectdb("");
	if (PQstatus(db) != CONNECTION_OK || PQstatus(other) != CONNECTION_OK)
	{
		fputs(PQerrorMessage(db), stderr);
		return 1;
	}

	show("first: ", once(db, "pay-1", "{\"amount\": 25}", NULL, "2 s", charge, &work, sleep_for));
	show("repeat: ", once(db, "pay-1", "{\"amount\": 25.0}", NULL, "2 s", charge, &work, sleep_for));
	printf("same key, other request: %s\n",
		   once(db, "pay-1", "{\"amount\": 26}", NULL, "2 s", charge, &work, sleep_for).outcome);

	execute(other, state, "BEGIN");
	execute(other, state, "SELECT run FROM idem_claim('pay-2')");
	show("", once(db, "pay-2", "{}", NULL, "0 s", charge, &work, finish));

	work = (Charge) {"10", "40001", 0};
	Answer		a = once(db, "pay-3", "{}", NULL, "2 s", charge, &work, sleep_for);

	printf("40001: %d runs, ", work.runs);
	show("", a);
	work = (Charge) {"10", "40P01", 0};
	a = once(db, "pay-4", "{}", NULL, "2 s", charge, &work, sleep_for);
	printf("40P01: %d runs, ", work.runs);
	show("", a);

	show("lost claim: ", once(db, "report", "{}", "1 ms", "2 s", slow, NULL, sleep_for));

	refused(db, "stale version", "UPDATE account SET balance = 0, version = 1 WHERE id = 1");
	execute(db, state, "SELECT outcome FROM idem_fire('ticket', 1, 'close')");
	refused(db, "illegal transition", "UPDATE ticket SET state = 'open' WHERE id = 1");
	refused(db, "no key", "SELECT run FROM idem_claim(NULL)");
	execute(db, state, "BEGIN");
	execute(db, state, "SELECT run FROM idem_claim('forgotten')");
	refused(db, "unfinished claim", "COMMIT");
	res = query(db, state, "SELECT balance FROM account", 0, NULL);
	printf("balance: %s\n", PQgetvalue(res, 0, 0));
	PQclear(res);
	PQfinish(db);
	PQfinish(other);
	return 0;
}
