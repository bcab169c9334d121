/*
 * verbs.c: runs verbs.txt with libpq, and prints each answer.
 *
 *     verbs VERBS prepared|plain
 *
 * Every parameter is sent as text without a type, which PostgreSQL then finds.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <libpq-fe.h>

#define MAX_PARAMETERS 16
#define MAX_COLUMNS 64
#define TYPE_TIMESTAMPTZ 1184

static struct
{
	char	   *name;
	char	   *value;
}			last[MAX_COLUMNS];

static const char *
last_value(const char *name)
{
	for (int i = 0; i < MAX_COLUMNS && last[i].name; i++)
	{
		if (strcmp(last[i].name, name) == 0)
			return last[i].value;
	}
	return NULL;
}

static void
remember(const char *name, const char *value)
{
	int			i = 0;

	while (i < MAX_COLUMNS - 1 && last[i].name && strcmp(last[i].name, name) != 0)
		i++;
	free(last[i].name);
	free(last[i].value);
	last[i].name = strdup(name);
	last[i].value = strdup(value);
}

/* What stands between backquotes, as libpq sends it; the buffer is reused. */
static const char *
bind(char *parameter, char *buffer, size_t size)
{
	char	   *value = strchr(parameter, ' ');
	size_t		n = 0;

	if (!value)
		return NULL;
	*value++ = '\0';
	if (strcmp(parameter, "last") == 0)
		return last_value(value);
	if (strcmp(parameter, "texts") == 0 || strcmp(parameter, "ints") == 0)
		snprintf(buffer, size, "{%s}", value);
	else if (strcmp(parameter, "interval") == 0)
		snprintf(buffer, size, "%s s", value);
	else
	{
		for (; *value && n < size - 1; value++)
		{
			bool		newline = value[0] == '\\' && value[1] == 'n';

			buffer[n++] = newline ? '\n' : *value;
			value += newline;
		}
		buffer[n] = '\0';
	}
	return buffer;
}

static void
print_answer(PGresult *res)
{
	if (PQresultStatus(res) != PGRES_TUPLES_OK &&
		PQresultStatus(res) != PGRES_COMMAND_OK)
	{
		printf("ERROR %s\n", PQresultErrorField(res, PG_DIAG_SQLSTATE));
		fputs(PQresultErrorMessage(res), stderr);
		return;
	}
	for (int row = 0; row < PQntuples(res); row++)
	{
		for (int col = 0; col < PQnfields(res); col++)
		{
			const char *value = PQgetvalue(res, row, col);

			if (row == 0)
				remember(PQfname(res, col), value);
			if (PQftype(res, col) == TYPE_TIMESTAMPTZ && *value)
				value = "time";
			printf("%s%s", col ? "|" : row ? "/" : "", value);
		}
	}
	printf("\n");
}

static void
run(PGconn *conn, char *line, bool prepared)
{
	static char buffers[MAX_PARAMETERS][1024];
	const char *values[MAX_PARAMETERS];
	char		sql[2048] = "";
	int			n = 0;
	char	   *comment = strstr(line, "##");
	PGresult   *res;

	if (comment)
		*comment = '\0';
	for (bool inside = false; line; inside = !inside)
	{
		char	   *next = strchr(line, '`');

		if (next)
			*next++ = '\0';
		if (inside)
		{
			values[n] = bind(line, buffers[n], sizeof(buffers[n]));
			n++;
			snprintf(sql + strlen(sql), sizeof(sql) - strlen(sql), "$%d", n);
		}
		else
			strncat(sql, line, sizeof(sql) - strlen(sql) - 1);
		line = next;
	}

	if (prepared)
	{
		res = PQprepare(conn, "", sql, n, NULL);
		if (PQresultStatus(res) == PGRES_COMMAND_OK)
		{
			PQclear(res);
			res = PQexecPrepared(conn, "", n, values, NULL, NULL, 0);
		}
	}
	else
		res = PQexecParams(conn, sql, n, NULL, values, NULL, NULL, 0);
	print_answer(res);
	PQclear(res);
}

int
main(int argc, char **argv)
{
	PGconn	   *conn = PQconnectdb("");
	FILE	   *verbs = fopen(argv[1], "r");
	char		line[4096];

	if (argc != 3 || !verbs || PQstatus(conn) != CONNECTION_OK)
	{
		fprintf(stderr, "verbs: %s", PQerrorMessage(conn));
		return 1;
	}
	while (fgets(line, sizeof(line), verbs))
	{
		line[strcspn(line, "\n")] = '\0';
		if (*line && *line != '#')
			run(conn, line, strcmp(argv[2], "prepared") == 0);
	}
	fclose(verbs);
	PQfinish(conn);
	return 0;
}
