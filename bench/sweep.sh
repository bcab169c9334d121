#
# bench/sweep.sh
#	  A sweep of a million expired keys among ten million live ones, in one session
#	  that keeps to vacuum_cost_delay = 1 ms, beside a foreground of claims at a fixed rate: the latency of
#	  the foreground against a quiet time before, and the sweeping backend's memory.
#

. "$here/big.sh"
export PGDATABASE=big

script foreground <<'END'
BEGIN;
SELECT * FROM idem_claim(:k);
SELECT idem_complete(:k, 'done', code => 200);
COMMIT;
END

sql "
	CREATE UNLOGGED TABLE swept (
		at timestamptz, removed bigint, private_kb int, contexts_kb int);
	CREATE PROCEDURE sweep_all() LANGUAGE plpgsql AS \$\$
	DECLARE
		n bigint;
		idle int := 0;
	BEGIN
		WHILE idle < 2 LOOP
			SELECT coalesce(sum(s.removed), 0) INTO n FROM idem_sweep(10000) s;
			idle := CASE WHEN n = 0 THEN idle + 1 ELSE 0 END;
			INSERT INTO swept SELECT clock_timestamp(), n,
				(regexp_match(pg_read_file('/proc/self/status'),
							  'RssAnon:\s+(\d+)'))[1]::int,
				(SELECT sum(total_bytes) / 1024 FROM pg_backend_memory_contexts);
			COMMIT;
		END LOOP;
	END \$\$;"

# p99 FILES: milliseconds
p99()
{
	cat "$@" | awk '{ print $3 }' | sort -n |
		awk '{ v[NR] = $1 } END { printf "%.2f\n", v[int(NR * 0.99)] / 1000 }'
}

# foreground LOG SECONDS: four clients, 500 transactions a second
foreground()
{
	PGOPTIONS='-c synchronous_commit=off' pgbench -n -M prepared -c 4 -j 1 \
		-R 500 -T "$2" -l --log-prefix="$work/$1" -f "$work/foreground.sql" \
		>/dev/null 2>"$work/pgbench.err" || pgbench_failed
}

sql "SELECT pg_prewarm('idem.key_pkey')" >/dev/null
foreground warm $((ROUND_SECONDS * 2))
foreground quiet $((ROUNDS * ROUND_SECONDS))

# rounds of the foreground for as long as the sweep runs
started=$(date +%s.%N)
PGOPTIONS='-c vacuum_cost_delay=1ms' sql 'CALL sweep_all()' &
sweep_pid=$!
round=0
while foreground busy$round $ROUND_SECONDS && kill -0 $sweep_pid 2>/dev/null
do
	round=$((round + 1))
done
wait $sweep_pid
# the round that saw the sweep end was partly quiet, unless it is the only one
[ $round -gt 0 ] && rm "$work/busy$round".*
took=$(sql "SELECT round(extract(epoch FROM max(at)) - $started) FROM swept")

removed=$(sql 'SELECT sum(removed) FROM swept')
left=$(sql "SELECT count(*) FROM idem.key WHERE expires_at < now() - interval '30 min'")
say "swept $removed expired keys in $took s; expired keys left: $left"
row "sweep of $removed expired keys, seconds" 1 - "$took" - - - -
quiet=$(p99 "$work"/quiet.*)
busy=$(p99 "$work"/busy*)
ratio=$(awk -v a="$quiet" -v b="$busy" 'BEGIN { printf "%.2f", b / a }')
row 'p99 of claim and complete at 500/s, ms, quiet, beside the sweep' 4 \
	"$quiet" "$busy" "$ratio" - '<= 2.00' "$ratio"
read -r first last < <(sql "
	SELECT (array_agg(private_kb ORDER BY at))[least(10, count(*))],
		   (array_agg(private_kb ORDER BY at DESC))[1] FROM swept" | tr '|' ' ')
ratio=$(awk -v a="$first" -v b="$last" 'BEGIN { printf "%.2f", b / a }')
row 'private memory of the sweep, kB, after 10 batches and at the end' 1 \
	"$first" "$last" "$ratio" - '<= 1.05' "$ratio"
