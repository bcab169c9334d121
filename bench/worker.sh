#
# bench/worker.sh
#	  5,000 keys a second that expire after a second, with and without the worker
#	  that sweeps them: whether it keeps up, and what the 99th percentile of the
#	  claims' latency is.  The database is analyzed and vacuumed by nobody else.
#

WORKER_SECONDS=${WORKER_SECONDS:-10}

# worker_restart: the server, as it is configured
worker_restart()
{
	pg_ctl -D "$work/data" -l "$work/server.log" -m fast -w restart >/dev/null
}

# worker_p99 WORKERS: milliseconds
worker_p99()
{
	sql "ALTER SYSTEM SET idem.workers = $1"
	sql "SELECT pg_reload_conf()" >/dev/null
	sql "TRUNCATE idem.key"
	sql CHECKPOINT
	rm -f "$work"/worker.log*
	pgbench -n -M prepared -c 4 -j 2 -R 5000 -T "$WORKER_SECONDS" \
		-f "$work/worker_claim.sql" -l --log-prefix="$work/worker.log" \
		>"$work/pgbench.out" 2>"$work/pgbench.err" || pgbench_failed
	cat "$work"/worker.log* | awk '{ print $3 }' | sort -n | awk '
		{ v[NR] = $1 } END { printf "%.3f\n", v[int(NR * 0.99)] / 1000 }'
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
: >"$work/left"
for round in 1 2 3
do
	quiet=$(worker_p99 0)
	busy=$(worker_p99 1)
	echo "$quiet $busy" >>"$work/rounds"
	# what is there after ten seconds: one second's keys, and what lags behind
	sql "
		SELECT count(*) FILTER (WHERE expires_at <= clock_timestamp() - interval '2 s'),
			(SELECT round(lag::numeric, 2) FROM idem_stats()
			 WHERE kind = 'sweep' AND name = 'key')
		FROM idem.key" | tr '|' ' ' >>"$work/left"
done
rounds_row 'p99 of 5,000 claims a second with the worker, ms' 4 '<= 2.00' '%.2f'
left=$(awk '{ print $1 }' "$work/left" | median)
lag=$(awk '{ print $2 }' "$work/left" | median)
row 'keys that expired over 2 s ago and are there' 4 - "$left" - - '<= 5000' "$left"
row 'lag of sweeping at 5,000 keys a second, seconds' 4 - "$lag" - - '<= 5' "$lag"

sql "ALTER SYSTEM RESET ALL"
cp "$work/postgresql.conf" "$work/data/postgresql.conf"
worker_restart
