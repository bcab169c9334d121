#
# bench/worker.sh
#	  5,000 keys a second that expire after a second, with and without the worker
#	  that sweeps them: whether it keeps up, and what the 99th percentile of the
#	  claims' latency is.  A latency counts from when the claim was due.
#
# The comparison means nothing where the machine does not do 5,000 claims a second,
# or the worker does nothing: so both are lines of their own, and a figure that is
# missing counts as missed.
#

WORKER_SECONDS=${WORKER_SECONDS:-6}
WORKER_ROUNDS=${WORKER_ROUNDS:-3}
WORKER_RATE=5000

# worker_restart: the server, as it is configured
worker_restart()
{
	pg_ctl -D "$work/data" -l "$work/server.log" -m fast -w restart >/dev/null
}

# worker_p99 WORKERS: milliseconds, and claims a second
worker_p99()
{
	sql "ALTER SYSTEM SET idem.workers = $1"
	sql "SELECT pg_reload_conf()" >/dev/null
	# who is at work still goes on to the end of a batch
	until [ "$(sql "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'idem worker'")" = 0 ]
	do
		sleep 0.1
	done
	sql "TRUNCATE idem.key"
	sql "SELECT idem_stats_reset()" >/dev/null
	sql CHECKPOINT
	rm -f "$work"/worker.log*
	pgbench -n -M prepared -c 4 -j 2 -R $WORKER_RATE -T "$WORKER_SECONDS" \
		-f "$work/worker_claim.sql" -l --log-prefix="$work/worker.log" \
		>"$work/pgbench.out" 2>"$work/pgbench.err" || pgbench_failed
	cat "$work"/worker.log* | awk '{ print $3 }' | sort -n | awk -v seconds="$WORKER_SECONDS" '
		{ v[NR] = $1 } END { printf "%.3f %.0f\n", v[int(NR * 0.99)] / 1000, NR / seconds }'
}

script worker_claim <<END
SELECT idem_once(:k, ttl => '1 s');
END

# until the library is loaded, ALTER SYSTEM does not know its settings
cp "$work/data/postgresql.conf" "$work/postgresql.conf"
cat >>"$work/data/postgresql.conf" <<-END
	shared_preload_libraries = 'idem'
	idem.databases = 'bench'
	idem.naptime = '1s'
END
worker_restart
worker_p99 0 >/dev/null
: >"$work/rounds"
: >"$work/worked"
for ((round = 0; round < WORKER_ROUNDS; round++))
do
	read -r quiet quiet_rate < <(worker_p99 0)
	read -r busy busy_rate < <(worker_p99 1)
	echo "$quiet $busy" >>"$work/rounds"
	# what is there by now: one second's keys, and what lags behind
	echo "$quiet_rate $busy_rate $(sql "
		SELECT (SELECT count(*) FROM idem.key WHERE expires_at <= clock_timestamp() - interval '2 s'),
			coalesce(round(max(lag)::numeric, 2), 'infinity'), coalesce(max(removed), 0)
		FROM idem_stats() WHERE kind = 'sweep' AND name = 'key'" | tr '|' ' ')" >>"$work/worked"
done
rounds_row 'p99 of 5,000 claims a second with the worker, ms' 4 '<= 2.00' '%.2f'

# worked N: the median of a column of what each round did
worked()
{
	awk -v n="$1" '{ print $n }' "$work/worked" | median
}
rate=$(awk '{ print $1; print $2 }' "$work/worked" | sort -n | head -n 1)
ratio=$(awk -v r="$rate" -v w=$WORKER_RATE 'BEGIN { printf "%.3f", r / w }')
row 'claims a second in the slowest of these rounds' 4 $WORKER_RATE "$rate" "$ratio" - '>= 0.95' "$ratio"
row 'keys that expired over 2 s ago and are there' 4 - "$(worked 3)" - - "<= $WORKER_RATE" "$(worked 3)"
row 'lag of sweeping at 5,000 keys a second, seconds' 4 - "$(worked 4)" - - '<= 5' "$(worked 4)"
# all but those of the last seconds
due=$(((WORKER_SECONDS - 3) * WORKER_RATE))
row "keys that the worker removed in $WORKER_SECONDS s, of those due" 4 $due "$(worked 5)" - - ">= $due" "$(worked 5)"

sql "ALTER SYSTEM RESET ALL"
cp "$work/postgresql.conf" "$work/data/postgresql.conf"
worker_restart
