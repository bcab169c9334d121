#
# bench/hot.sh
#	  200 sessions, each claiming with a lease, working for 20 ms, and completing
#	  with a response of 200 bytes, so that nearly 200 claims are in flight: how many
#	  of the completing updates stay on their page (HOT).  Then ten cycles of claims
#	  that expire, sweep, and vacuum: the table must not grow.
#

script flight_hand <<'END'
INSERT INTO hand (scope, key, state, hold, attempt, fence, lease_until, expires_at, created_at, claimed_at) VALUES ('default', :k, 'in_progress', 'lease', 1, nextval('hand_fence'), clock_timestamp() + interval '60 s', clock_timestamp() + interval '24 h 60 s', now(), clock_timestamp()) ON CONFLICT DO NOTHING RETURNING fence \gset
\sleep 20 ms
UPDATE hand SET state = 'completed', lease_until = NULL, response = :response, code = 200, finished_at = now(), expires_at = now() + interval '24 h' WHERE scope = 'default' AND key = :k AND fence = :fence;
END
script flight_idem <<'END'
SELECT fence FROM idem_claim(:k, lease => '60 s') \gset
\sleep 20 ms
SELECT idem_complete(:k, :response, fence => :fence, code => 200);
END
script flight_idem_short <<'END'
SELECT fence FROM idem_claim(:k, lease => '60 s', ttl => '1 s') \gset
\sleep 20 ms
SELECT idem_complete(:k, :response, fence => :fence, code => 200);
END

# hot_percent TABLE
hot_percent()
{
	sql "SELECT round(100.0 * n_tup_hot_upd / n_tup_upd, 1)
		 FROM pg_stat_user_tables WHERE relid = '$1'::regclass"
}

# sweep_all: until nothing is left to remove, twice, as a sweep walks on from
# where the last one stopped
sweep_all()
{
	local idle=0

	while [ $idle -lt 2 ]
	do
		if [ "$(sql "SELECT coalesce(sum(removed), 0)
					 FROM idem_sweep(100000)")" = 0 ]
		then
			idle=$((idle + 1))
		else
			idle=0
		fi
	done
}

for clients in 20 200
do
	tables_empty
	sql "SELECT pg_stat_reset_single_table_counters('hand'::regclass),
				pg_stat_reset_single_table_counters('idem.key'::regclass)" >/dev/null
	: >"$work/rounds"
	for ((round = 0; round < 3; round++))
	do
		h=$(tps flight_hand $clients off -t $((20000 / clients)))
		i=$(tps flight_idem $clients off -t $((20000 / clients)))
		echo "$h $i" | awk '{ print $1, $3, $2, $4 }' >>"$work/rounds"
	done
	sleep 1
	hot=$(hot_percent idem.key)
	row "HOT updates of complete, percent, $clients claims in flight" $clients \
		"$(hot_percent hand)" "$hot" - - '>= 95' "$hot"
done
rounds_row '  the rate meanwhile, claim and complete with 20 ms between' 200 -

tables_empty
sizes=()
for ((cycle = 1; cycle <= 10; cycle++))
do
	tps flight_idem_short 200 off -t 100 >/dev/null
	sleep 1
	sweep_all
	sql 'VACUUM idem.key'
	sizes+=("$(sql "SELECT pg_total_relation_size('idem.key')")")
done
say "size in kB after each cycle of 20,000 keys:$(printf ' %d' $(printf '%s\n' "${sizes[@]}" | awk '{ print $1 / 1024 }'))"
# index pages that a vacuum emptied can be used again after a later one, so the
# first cycles still grow
growth=$(echo "${sizes[4]} ${sizes[9]}" | awk '{ printf "%.2f", $2 / $1 }')
row 'table and index, MB, after sweep cycle 5 and 10 (20,000 keys each)' 200 \
	"$(awk '{ printf "%.1f", $1 / 1048576 }' <<<"${sizes[4]}")" \
	"$(awk '{ printf "%.1f", $1 / 1048576 }' <<<"${sizes[9]}")" \
	"$growth" - '<= 1.10' "$growth"
