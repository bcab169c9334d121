#
# bench/instructions.sh
#	  Not among the default families: the instructions that the server executes for
#	  one transaction of each pair of scripts, counted by valgrind's callgrind.  They
#	  come out alike on a busy machine, where rates do not, but know nothing of
#	  caches, locks, the kernel, and the disk.
#
# The families are the same; only what compare does is another.
#

if ! command -v valgrind >/dev/null
then
	say 'valgrind is not installed'
	return 1
fi

server_stop()
{
	pg_ctl -D "$work/data" -m fast -w stop >/dev/null
}

server_start_counting()
{
	server_stop
	valgrind -q --tool=callgrind --trace-children=yes \
		--callgrind-out-file="$work/count.%p" "$bindir/postgres" \
		-D "$work/data" -c autovacuum=off >"$work/valgrind.log" 2>&1 &
	until psql -Xqc 'SELECT 1' >/dev/null 2>&1
	do
		sleep 1
	done
}

server_start_again()
{
	server_stop
	wait
	pg_ctl -D "$work/data" -l "$work/server.log" -w start >/dev/null
}

# totals: instructions of the backend that did the most, once all have ended
totals()
{
	sleep 1
	while [ "$(grep -L '^totals:' "$work"/count.* 2>/dev/null)" ]
	do
		sleep 0.2
	done
	awk '/^totals:/ && $2 > n { n = $2 } END { print n }' "$work"/count.*
}

# count SCRIPT PREPARE: instructions for one transaction, the difference between
# a short run and a long one
count()
{
	local n before

	for n in $short $long
	do
		$2
		rm -f "$work"/count.*
		PGOPTIONS='-c synchronous_commit=off' pgbench -n -M prepared -c 1 -t $n \
			-D response="$RESPONSE" -f "$work/$1.sql" >/dev/null \
			2>"$work/pgbench.err" || pgbench_failed
		[ $n = $short ] && before=$(totals)
	done
	echo $((($(totals) - before) / (long - short)))
}

declare -A counted
compare()
{
	local what=$1 hand=$5 idem=$6 prepare=$7 short=100 long=500

	[ "${counted[$hand $idem]:-}" = "$prepare" ] && return 0
	counted[$hand $idem]=$prepare
	[ "${8:-}" = -t ] && short=10 long=30
	server_start_counting
	echo "$(count $hand $prepare) $(count $idem $prepare)" |
		awk '{ print 1 / $1, 1 / $2 }' >"$work/rounds"
	server_start_again
	row "$what" 1 "$(awk '{ printf "%.0f", 1 / $1 }' "$work/rounds")" \
		"$(awk '{ printf "%.0f", 1 / $2 }' "$work/rounds")" \
		"$(awk '{ printf "%.2f", $2 / $1 }' "$work/rounds")" - - -
}

# the replays' traces are counted in the family itself
for family in once lease life many replay
do
	. "$here/$family.sh"
done
