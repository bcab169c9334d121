#
# bench/lib.sh
#	  What every family of benchmarks uses: the cluster, the two tables, rounds,
#	  medians, and the lines of the table.
#

ROUNDS=${ROUNDS:-7}
ROUND_SECONDS=${ROUND_SECONDS:-2}
BIG_KEYS=${BIG_KEYS:-10000000}

# keys are random numbers of 19 digits, so that their order as text is known
KEY_MIN=1000000000000000000
KEY_MAX=8999999999999999999
RESPONSE=$(printf '%0200d' 0 | tr 0 r)

bindir=$("$PG_CONFIG" --bindir)
PATH=$bindir:$PATH
export LC_ALL=C
unset PGOPTIONS PGUSER PGPORT PGPASSWORD PGSERVICE PGDATABASE

work=$(mktemp -d "${BENCH_TMP:-${TMPDIR:-/tmp}}/idem-bench.XXXXXX")
export PGHOST=$work PGDATABASE=bench PGUSER=bench

# pids of background programs that this run started
children=()

cleanup()
{
	local pid

	for pid in "${children[@]}"
	do
		kill "$pid" 2>/dev/null || true
	done
	if [ -f "$work/data/postmaster.pid" ]
	then
		pg_ctl -D "$work/data" -m immediate -w stop >/dev/null || true
	fi
	rm -rf "$work"
}

say()
{
	echo "$*" >&2
}

# sql TEXT: runs it, prints bare values
sql()
{
	psql -XAtq -v ON_ERROR_STOP=1 <<<"$1"
}

cluster_start()
{
	trap cleanup EXIT
	trap 'exit 1' INT TERM
	initdb -D "$work/data" -U bench -A trust -E UTF8 --no-locale --no-sync \
		>"$work/initdb.log"
	cat >>"$work/data/postgresql.conf" <<-END
		listen_addresses = ''
		unix_socket_directories = '$work'
		max_connections = 250
		shared_buffers = 1GB
		max_wal_size = 48GB
		min_wal_size = 4GB
		checkpoint_timeout = 1h
		jit = off
		# rounds are short, and a session's first call would load the library;
		# family "once" has what that takes
		session_preload_libraries = 'idem'
	END
	pg_ctl -D "$work/data" -l "$work/server.log" -w start >/dev/null
	database_create bench
	# a server at work has files for its WAL to come, from before its checkpoints
	sql "SELECT count(pg_switch_wal()), count(pg_logical_emit_message(false, '', ''))
		 FROM generate_series(1, 128)" >/dev/null
	sql CHECKPOINT
}

# A database with the extension and, beside it, the table that a good engineer
# would write for the same work: same columns, same key, same fillfactor.
database_create()
{
	local PGDATABASE=$1

	createdb "$PGDATABASE"
	sql "CREATE EXTENSION idem"
	sql "
		CREATE TABLE hand (
			scope text COLLATE \"C\" NOT NULL,
			key text COLLATE \"C\" NOT NULL,
			state text COLLATE \"C\" NOT NULL,
			hold text COLLATE \"C\",
			attempt int NOT NULL,
			fence bigint,
			lease_until timestamptz,
			expires_at timestamptz,
			fingerprint bytea,
			step text,
			progress jsonb,
			response text,
			code int,
			created_at timestamptz NOT NULL,
			finished_at timestamptz,
			function text,
			result text,
			ttl interval,
			claimed_at timestamptz,
			PRIMARY KEY (scope, key)
		) WITH (fillfactor = 45);
		CREATE SEQUENCE hand_fence CACHE 1;
		CREATE TABLE account (id int PRIMARY KEY, balance bigint NOT NULL)
			WITH (fillfactor = 90);
		INSERT INTO account SELECT i, 0 FROM generate_series(1, 100000) i;
		VACUUM ANALYZE account;"
	tables_agree
}

# Refuses to compare tables that differ.
tables_agree()
{
	local shape differ

	shape="SELECT attname, format_type(atttypid, atttypmod), attcollation,
				  attstorage
		   FROM pg_attribute WHERE attnum > 0 AND NOT attisdropped
		   AND attrelid ="
	differ=$(sql "
		SELECT string_agg(attname, ', ' ORDER BY attname) FROM (
			(($shape 'hand'::regclass) EXCEPT ($shape 'idem.key'::regclass))
			UNION ALL
			(($shape 'idem.key'::regclass) EXCEPT ($shape 'hand'::regclass))
		) d")
	differ+=$(sql "
		SELECT 'options: ' || a.reloptions::text || ' ' || b.reloptions::text
		FROM pg_class a, pg_class b
		WHERE a.oid = 'hand'::regclass AND b.oid = 'idem.key'::regclass
		AND NOT a.reloptions @> b.reloptions")
	if [ -n "$differ" ]
	then
		say "bench: table hand is not shaped as idem.key is: $differ"
		exit 1
	fi
}

# noop_install: the trigger function noop(), of noop.c, in the database
noop_install()
{
	mkdir -p "$work/noop"
	cp "$here/noop.c" "$work/noop/"
	printf '%s\n' 'MODULES = noop' 'PGXS := $(shell $(PG_CONFIG) --pgxs)' 'include $(PGXS)' \
		>"$work/noop/Makefile"
	make -s -C "$work/noop" PG_CONFIG="$PG_CONFIG" with_llvm=no noop.so >"$work/noop.log" 2>&1 || {
		cat "$work/noop.log" >&2
		exit 1
	}
	sql "CREATE OR REPLACE FUNCTION noop() RETURNS trigger AS '$work/noop/noop' LANGUAGE C"
}

# orders_create PREFIX ROWS NAME ...: tables of orders with a state, all alike
orders_create()
{
	local prefix=$1 rows=$2 name

	shift 2
	for name in "$@"
	do
		sql "
			CREATE TABLE ${prefix}_$name (id int PRIMARY KEY, customer int, status text, amount bigint,
				note text) WITH (fillfactor = 50);
			INSERT INTO ${prefix}_$name SELECT i, i, 'draft', 0, 'order ' || i FROM generate_series(1, $rows) i;
			VACUUM ANALYZE ${prefix}_$name;"
	done
}

# how such an order moves to its other state
flip="status = CASE status WHEN 'draft' THEN 'pending' ELSE 'draft' END"

# script NAME: a pgbench script from standard input
script()
{
	{
		echo "\\set k random($KEY_MIN, $KEY_MAX)"
		cat
	} >"$work/$1.sql"
}

# server_ticks: processor time of all backends that have ended
server_ticks()
{
	awk '{ print $16 + $17 }' "/proc/$(head -n 1 "$work/data/postmaster.pid")/stat"
}

# tps NAME CLIENTS SYNC [pgbench options]: one round; with -t among the
# options so many transactions, else so many seconds.  Prints the rate, and the
# server's processor time for a transaction in microseconds.
tps()
{
	local name=$1 clients=$2 sync=$3 length="-T $ROUND_SECONDS" ticks

	shift 3
	[[ " $* " == *" -t "* ]] && length=
	ticks=$(server_ticks)
	PGOPTIONS="-c synchronous_commit=$sync ${SESSION_OPTIONS:-}" pgbench -n -M prepared \
		-c "$clients" -j $((clients > 1 ? 2 : 1)) $length \
		-D response="$RESPONSE" -f "$work/$name.sql" "$@" \
		>"$work/pgbench.out" 2>"$work/pgbench.err" || pgbench_failed
	if grep -q 'aborted\|ERROR' "$work/pgbench.err"
	then
		pgbench_failed
	fi
	# the postmaster learns of the backends' end a moment later
	sleep 0.1
	awk -v ticks=$(($(server_ticks) - ticks)) -v hz="$(getconf CLK_TCK)" '
		/^number of transactions actually processed/ {
			split($6, n, "/"); cpu = ticks * 1000000 / hz / n[1] }
		/^tps/ { print $3, cpu }' "$work/pgbench.out"
}

pgbench_failed()
{
	cat "$work/pgbench.err" >&2
	tail -n 20 "$work/server.log" >&2
	exit 1
}

# Empties both registries and puts the WAL where it does not disturb.
tables_empty()
{
	sql "TRUNCATE hand, idem.key"
}

# Both sides' rates stand in the columns 1 and 2 of "$work/rounds", their processor
# times, where they are known, in 3 and 4.
#
# compare WHAT CLIENTS SYNC TARGET HAND IDEM PREPARE [pgbench options]
#	  Alternating rounds of the scripts HAND and IDEM; PREPARE is a command that
#	  runs before each.  The ratio is the median of the rounds' ratios.
compare()
{
	local what=$1 clients=$2 sync=$3 target=$4 hand=$5 idem=$6 prepare=$7
	local round h i

	shift 7
	sql CHECKPOINT
	$prepare
	ROUND_SECONDS=1 tps "$hand" "$clients" "$sync" "$@" >/dev/null
	ROUND_SECONDS=1 tps "$idem" "$clients" "$sync" "$@" >/dev/null
	: >"$work/rounds"
	for ((round = 0; round < ROUNDS; round++))
	do
		$prepare
		h=$(tps "$hand" "$clients" "$sync" "$@")
		i=$(tps "$idem" "$clients" "$sync" "$@")
		echo "$h $i" | awk '{ print $1, $3, $2, $4 }' >>"$work/rounds"
	done
	rounds_row "$what" "$clients" "$target"
}

# column N: of the rounds
column()
{
	awk -v n="$1" '{ print $n }' "$work/rounds"
}

median()
{
	sort -g | awk '{ v[NR] = $1 } END {
		print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'
}

# rounds_row WHAT CLIENTS TARGET [FORMAT]: a line of the table from "$work/rounds"
rounds_row()
{
	local ratios ratio range cpu=-

	ratios=$(awk '{ printf "%.3f\n", $2 / $1 }' "$work/rounds")
	ratio=$(median <<<"$ratios")
	range=$(sort -g <<<"$ratios" |
		awk 'NR == 1 { a = $1 } { b = $1 } END { printf "%.2f-%.2f", a, b }')
	if awk '{ exit NF != 4 }' "$work/rounds"
	then
		cpu=$(awk '{ print $3 / $4 }' "$work/rounds" | median)
		cpu=$(printf '%.2f' "$cpu")
	fi
	row "$1" "$2" "$(printf "${4:-%.0f}" "$(column 1 | median)")" \
		"$(printf "${4:-%.0f}" "$(column 2 | median)")" \
		"$(printf '%.3f' "$ratio")" "$range" "$3" "$ratio" "$cpu"
}

# update_time TABLE SET ROWS: microseconds per row of one UPDATE of the whole table
update_time()
{
	psql -XAtq -v ON_ERROR_STOP=1 <<-END | awk '/^Time:/ { print $2 * 1000 / '"$3"' }'
		SET synchronous_commit = off;
		VACUUM $1;
		\\timing on
		UPDATE $1 SET $2;
	END
}

# update_rounds AGAINST TABLE SET ROWS
update_rounds()
{
	local round

	sql CHECKPOINT
	update_time "$1" "$3" "$4" >/dev/null
	update_time "$2" "$3" "$4" >/dev/null
	: >"$work/rounds"
	for ((round = 0; round < ROUNDS; round++))
	do
		echo "$(update_time "$1" "$3" "$4") $(update_time "$2" "$3" "$4")" >>"$work/rounds"
	done
}

# update_compare WHAT AGAINST TABLE SET ROWS TARGET: the difference per row
update_compare()
{
	local differences difference

	update_rounds "$2" "$3" "$4" "$5"
	differences=$(awk '{ printf "%.3f\n", $2 - $1 }' "$work/rounds")
	difference=$(median <<<"$differences")
	row "$1" 1 "$(printf '%.2f' "$(column 1 | median)")" \
		"$(printf '%.2f' "$(column 2 | median)")" "$(printf '%+.3f' "$difference")" \
		"$(sort -g <<<"$differences" | awk 'NR == 1 { a = $1 } { b = $1 } END { printf "%.2f-%.2f", a, b }')" \
		"$6" "$difference"
}

# overhead_row WHAT TARGET: of what is done by hand against idem's, each over the
# same: $hand_over and $idem_over
overhead_row()
{
	row "$1" 1 "$(printf '%.2f' "$hand_over")" "$(printf '%.2f' "$idem_over")" \
		"$(awk "BEGIN { printf \"%.2f\", $hand_over / $idem_over }")" - "$2" \
		"$(awk "BEGIN { print $hand_over / $idem_over }")"
}

print_header()
{
	line 'what (per second, unless it says otherwise)' clients against idem ratio \
		range cpu target reached
	line --- --: --: --: --: --: --: --: ---
}

line()
{
	printf '| %-66s | %7s | %9s | %9s | %5s | %9s | %5s | %7s | %-7s |\n' "$@"
}

# row WHAT CLIENTS AGAINST IDEM RATIO RANGE TARGET VALUE [CPU]
#	  TARGET is ">= n", "<= n" or "-"; VALUE is what is held against it.
row()
{
	local reached=-

	if [ "$7" != - ]
	then
		reached=$(awk -v v="$8" -v t="${7#??}" -v op="${7%% *}" 'BEGIN {
			print (op == ">=" ? v + 0 >= t + 0 : v + 0 <= t + 0) ? "yes" : "NO" }')
	fi
	line "$1" "$2" "$3" "$4" "$5" "$6" "${9:--}" "$7" "$reached"
}

print_machine()
{
	local kind

	kind=$(df --output=fstype "$work" | tail -n 1)
	cat <<-END
		$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(nproc) cores that server and clients share, $(awk '/^MemTotal/ { printf "%.0f GB", $2 / 1048576 }' /proc/meminfo) of memory, $kind
		$(postgres --version), shared_buffers $(sql 'SHOW shared_buffers'), idem $(sql "SELECT extversion FROM pg_extension WHERE extname = 'idem'")
		$ROUNDS rounds of $ROUND_SECONDS s a side, alternating; medians; load at the start $(cut -d ' ' -f 1 /proc/loadavg)

	END
}
