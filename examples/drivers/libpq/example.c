/*
 * example.c: idem from libpq.
 *
 *     cc -pthread example.c -I$(pg_config --includedir) -lpq && PGHOST=... ./a.out
 *
 * Parameters are sent as text without a type, and no statement is named, so
 * that a pooler in transaction mode needs nothing special.
 */
#include <pthread.h>
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
 * it runs in the transaction of the claim, which begin opens; with one, between
 * two transactions.
 */
static Answer
once(PGconn *conn, const char *key, const char *request, const char *lease,
	 const char *wait, const char *begin, Work work, void *arg, Pause pause)
{
	Answer		a;
	char		state[6];

	for (int tries = 0; tries < 10; tries++)
	{
		bool		lost;

		if (!lease)
			execute(conn, state, begin);
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

#define BEGIN "BEGIN"
#define SERIALIZABLE "BEGIN ISOLATION LEVEL SERIALIZABLE"

static PGconn *other;

/* Work that is counted, and what it works with. */
typedef struct Job
{
	PGconn	   *conn;
	const char *key;
	const char *sql;
	int			from;
	int			to;
	int			amount;
	int			runs;
	Answer		answer;
}			Job;

static pthread_barrier_t both;

/* The value of a query's only row; its error goes to a->sqlstate. */
static void
get(PGconn *conn, Answer *a, const char *sql, char *value, size_t size)
{
	PGresult   *res = query(conn, a->sqlstate, sql, 0, NULL);

	snprintf(value, size, "%s", PQntuples(res) == 1 ? PQgetvalue(res, 0, 0) : "");
	PQclear(res);
}

static void
add(PGconn *conn, Answer *a, int account, int amount, char *balance, size_t size)
{
	char		sql[128];

	snprintf(sql, sizeof(sql), "UPDATE account SET balance = balance + %d "
			 "WHERE id = %d RETURNING balance", amount, account);
	get(conn, a, sql, balance, size);
}

static bool
good(const Answer *a)
{
	return strcmp(a->sqlstate, "00000") == 0;
}

static void
charge(PGconn *conn, Answer *a, void *arg)
{
	char		balance[16];

	add(conn, a, 1, -((Job *) arg)->amount, balance, sizeof(balance));
	snprintf(a->response, sizeof(a->response), "{\"balance\": %s}", balance);
	a->code = 201;
}

/* Both read the sum and change a row each: one of the two has to start anew. */
static void
spend(PGconn *conn, Answer *a, void *arg)
{
	static const char sum[] = "SELECT sum(balance) FROM account";
	char		value[16];
	Answer		theirs;

	get(conn, a, sum, value, sizeof(value));
	if (atoi(value) < 10)
	{
		a->code = 402;
		strcpy(a->response, "too little");
		return;
	}
	if (++((Job *) arg)->runs == 1)
	{
		execute(other, theirs.sqlstate, SERIALIZABLE);
		get(other, &theirs, sum, value, sizeof(value));
		add(other, &theirs, 2, -10, value, sizeof(value));
		execute(other, theirs.sqlstate, "COMMIT");
	}
	charge(conn, a, arg);
}

/* Two transfers lock the same rows in opposite order: one is a deadlock's victim. */
static void
move(PGconn *conn, Answer *a, void *arg)
{
	Job		   *job = arg;
	char		balance[16];

	add(conn, a, job->from, -job->amount, balance, sizeof(balance));
	if (job->runs++ == 0)
		pthread_barrier_wait(&both);
	if (good(a))
		add(conn, a, job->to, job->amount, balance, sizeof(balance));
	a->code = 201;
	strcpy(a->response, "moved");
}

static void *
transfer(void *arg)
{
	Job		   *job = arg;

	job->answer = once(job->conn, job->key, "{}", NULL, "2 s", BEGIN, move, job, sleep_for);
	return NULL;
}

static void
slow(PGconn *conn, Answer *a, void *arg)
{
	PGresult   *res;
	const char *fence;

	(void) conn;
	((Job *) arg)->runs++;
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
statement(PGconn *conn, Answer *a, void *arg)
{
	Job		   *job = arg;

	job->runs++;
	execute(conn, a->sqlstate, job->sql);
	a->code = 200;
}

static void
finish(int seconds, void *arg)
{
	char		state[6];

	(void) seconds;
	(void) arg;
	execute(other, state, "SELECT idem_complete('pay-2', 'theirs', code => 201)");
	execute(other, state, "COMMIT");
}

static void
show(const char *what, Answer a)
{
	printf("%s%d %s%s\n", what, a.code, a.response, a.run ? "" : " (replayed)");
}

/* What says the same every time is tried once, and leaves the key free. */
static void
refused(PGconn *conn, const char *what, const char *sql)
{
	Job			job = {.sql = sql};
	Answer		a = once(conn, "once", "{}", NULL, "2 s", BEGIN, statement, &job, sleep_for);

	printf("%s: %s, %d run\n", what, a.sqlstate, job.runs);
}

int
main(void)
{
	PGconn	   *db = PQconnectdb("");
	Job			job = {.amount = 25};
	Job			there = {.conn = db, .key = "move-1", .from = 1, .to = 2, .amount = 5};
	Job			back = {.key = "move-2", .from = 2, .to = 1, .amount = 15};
	pthread_t	threads[2];
	Answer		a;
	char		state[6];
	char		balances[32];

	other = back.conn = PQconnectdb("");
	if (PQstatus(db) != CONNECTION_OK || PQstatus(other) != CONNECTION_OK)
	{
		fputs(PQerrorMessage(db), stderr);
		return 1;
	}

	show("first: ", once(db, "pay-1", "{\"amount\": 25}", NULL, "2 s", BEGIN, charge, &job, sleep_for));
	show("repeat: ", once(db, "pay-1", "{\"amount\": 25.0}", NULL, "2 s", BEGIN, charge, &job, sleep_for));
	printf("same key, other request: %s\n",
		   once(db, "pay-1", "{\"amount\": 26}", NULL, "2 s", BEGIN, charge, &job, sleep_for).outcome);

	execute(other, state, BEGIN);
	execute(other, state, "SELECT run FROM idem_claim('pay-2')");
	show("in progress: told to wait, then ",
		 once(db, "pay-2", "{}", NULL, "0 s", BEGIN, charge, &job, finish));

	job = (Job) {.amount = 10};
	a = once(db, "pay-3", "{}", NULL, "2 s", SERIALIZABLE, spend, &job, sleep_for);
	printf("40001: %d runs, ", job.runs);
	show("", a);

	pthread_barrier_init(&both, NULL, 2);
	pthread_create(&threads[0], NULL, transfer, &there);
	pthread_create(&threads[1], NULL, transfer, &back);
	pthread_join(threads[0], NULL);
	pthread_join(threads[1], NULL);
	printf("40P01: %s, %d %s, ", there.runs + back.runs > 2 ? "run again" : "2",
		   there.answer.code, there.answer.response);
	show("", back.answer);

	job.runs = 0;
	a = once(db, "report", "{}", "1 ms", "2 s", BEGIN, slow, &job, sleep_for);
	printf("lost claim: %d run, ", job.runs);
	show("", a);

	execute(db, state, "SELECT outcome FROM idem_fire('ticket', 1, 'close', key => 'close-1')");
	refused(db, "stale version", "UPDATE account SET balance = 0, version = 1 WHERE id = 1");
	refused(db, "illegal transition", "UPDATE ticket SET state = 'open' WHERE id = 1");
	refused(db, "key of another event",
			"SELECT outcome FROM idem_fire('ticket', 2, 'close', key => 'close-1')");
	refused(db, "no key", "SELECT run FROM idem_claim(NULL)");
	refused(db, "unfinished claim", "SELECT run FROM idem_claim('forgotten')");
	get(db, &a, "SELECT string_agg(balance::text, ' ' ORDER BY id) FROM account", balances, sizeof(balances));
	printf("balances: %s\n", balances);
	PQfinish(db);
	PQfinish(other);
	return 0;
}
