#
# bench/once_table.sh
#	  COPY of a million rows into a table that skips repeated inserts, against the
#	  same COPY into a table with a unique index; keys in order, and at random.
#

rows=${COPY_ROWS:-1000000}

sql "
	CREATE TABLE copy_hand (id bigint NOT NULL, at timestamptz NOT NULL, body text);
	CREATE UNIQUE INDEX ON copy_hand (id);
	CREATE TABLE copy_idem (id bigint NOT NULL, at timestamptz NOT NULL, body text);
	SELECT idem_attach_once('copy_idem', '{id}')" >/dev/null

sql "COPY (SELECT i, '2026-01-01 00:00:00+00', 'event ' || i
	FROM generate_series(1, $rows) i) TO '$work/sequential.copy'"
sql "COPY (SELECT i, '2026-01-01 00:00:00+00', 'event ' || i
	FROM generate_series(1, $rows) i ORDER BY hashint8(i)) TO '$work/random.copy'"

# copy_seconds TABLE FILE: of one COPY into the empty table
copy_seconds()
{
	sql "TRUNCATE copy_hand, copy_idem, idem.key" && sql CHECKPOINT
	psql -XAtq -v ON_ERROR_STOP=1 <<-END | sed -n 's/^Time: \([0-9.]*\) ms.*/\1/p'
		SET synchronous_commit = off;
		\\timing on
		COPY $1 FROM '$work/$2.copy';
	END
}

# copy_compare WHAT FILE TARGET: seconds, so less is better
copy_compare()
{
	local round

	copy_seconds copy_idem "$2" >/dev/null
	: >"$work/rounds"
	for ((round = 0; round < ROUNDS; round++))
	do
		echo "$(copy_seconds copy_hand "$2") $(copy_seconds copy_idem "$2")" |
			awk '{ print $1 / 1000, $2 / 1000 }' >>"$work/rounds"
	done
	rounds_row "$1" 1 "$3" '%.2f'
}

copy_compare "COPY of $rows rows with random keys, seconds" random '<= 2.30'
copy_compare "COPY of $rows rows with sequential keys, seconds" sequential '<= 3.50'
sql "DROP TABLE copy_hand, copy_idem"
sql "TRUNCATE idem.key"
