#
# bench/lease_pair.sh
#	  A lease acquired and given back, against the two statements that one writes
#	  by hand: INSERT ... ON CONFLICT DO UPDATE ... WHERE it has run out, with a
#	  fence from a sequence, and DELETE.  Names are few, as they are in life.
#	  Both sides commit synchronously, since an acquired lease always does.
#
# Then renewals of 100 leases, once a second each: the latency while another
# session holds an old snapshot, against the latency before.
#

sql "
	CREATE TABLE hand_lease (
		name text COLLATE \"C\" PRIMARY KEY,
		owner text COLLATE \"C\",
		fence bigint NOT NULL,
		since timestamptz NOT NULL,
		until timestamptz NOT NULL
	) WITH (fillfactor = 30);
	CREATE SEQUENCE hand_lease_fence CACHE 1"

leases_empty()
{
	sql "TRUNCATE hand_lease, idem.lease"
}

pair_hand()
{
	cat <<'END'
INSERT INTO hand_lease AS l (name, owner, fence, since, until) VALUES ('lease ' || :n, NULL, nextval('hand_lease_fence'), clock_timestamp(), clock_timestamp() + interval '60 s') ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, fence = excluded.fence, since = excluded.since, until = excluded.until WHERE l.until <= clock_timestamp() RETURNING fence, until \gset
DELETE FROM hand_lease WHERE name = 'lease ' || :n AND fence = :fence;
END
}

pair_idem()
{
	cat <<'END'
SELECT fence, until FROM idem_lease_acquire('lease ' || :n, '60 s') \gset
SELECT idem_lease_release('lease ' || :n, :fence);
END
}

names='\set n random(1, 100) * 100 + :client_id'
script lease_pair_hand < <(echo "$names"; pair_hand)
script lease_pair_idem < <(echo "$names"; pair_idem)
script lease_pair_hand_one < <(echo "$names"; echo 'BEGIN;'; pair_hand; echo 'COMMIT;')
script lease_pair_idem_one < <(echo "$names"; echo 'BEGIN;'; pair_idem; echo 'COMMIT;')

for clients in 1 4 16
do
	compare 'lease, acquire + release, two transactions, sync on' $clients on \
		'>= 1.00' lease_pair_hand lease_pair_idem leases_empty
done
compare 'lease, acquire + release, one transaction, sync on' 4 on \
	'>= 1.00' lease_pair_hand_one lease_pair_idem_one leases_empty

# renewals, each of the 100 leases by one of 20 clients
renewals=${RENEW_SECONDS:-60}
cat >"$work/lease_renew.sql" <<'END'
\set n random(1, 100)
SELECT outcome FROM bench_lease AS b, idem_lease_renew(b.name, '1 h', b.fence) WHERE b.n = :n;
END
sql "
	TRUNCATE idem.lease;
	CREATE TABLE bench_lease AS
	SELECT n, 'lease ' || n AS name,
		(idem_lease_acquire('lease ' || n, '1 h')).fence AS fence
	FROM generate_series(1, 100) AS n;
	ALTER TABLE bench_lease ADD PRIMARY KEY (n);
	VACUUM ANALYZE bench_lease"

# renew_latency SECONDS: mean milliseconds at 100 renewals a second
renew_latency()
{
	PGOPTIONS='-c synchronous_commit=on' pgbench -n -M prepared -c 20 -j 2 \
		-R 100 -T "$1" -f "$work/lease_renew.sql" 2>"$work/pgbench.err" |
		awk '/^latency average/ { l = $4 } /^rate limit schedule lag: avg/ { g = $6 }
			END { print l - g }'
}

renew_latency 5 >/dev/null
hot_before=$(sql "SELECT n_tup_hot_upd || ' ' || n_tup_upd FROM pg_stat_user_tables WHERE relid = 'idem.lease'::regclass")
quiet=$(renew_latency "$((renewals / 2))")
sleep 1
hot_after=$(sql "SELECT n_tup_hot_upd || ' ' || n_tup_upd FROM pg_stat_user_tables WHERE relid = 'idem.lease'::regclass")
{
	echo 'BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM idem.lease;'
	sleep "$((renewals + 2))"
} | psql -XAtq >/dev/null &
holder=$!
children+=("$holder")
sleep 0.5
held=$(renew_latency "$renewals")
wait "$holder"
hot=$(awk '{ print ($3 - $1) / ($4 - $2) }' <<<"$hot_before $hot_after")
row 'lease, renewals that are HOT' 20 - "$(printf '%.3f' "$hot")" - - '>= 0.95' "$hot"
row "lease, ms a renewal: quiet, with a snapshot held for $renewals s" 20 \
	"$(printf '%.2f' "$quiet")" "$(printf '%.2f' "$held")" \
	"$(awk -v q="$quiet" -v h="$held" 'BEGIN { printf "%.2f", h / q }')" - '<= 2' \
	"$(awk -v q="$quiet" -v h="$held" 'BEGIN { print h / q }')"
sql "DROP TABLE hand_lease, bench_lease; DROP SEQUENCE hand_lease_fence; TRUNCATE idem.lease"
