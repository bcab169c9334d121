#
# bench/replay.sh
#	  The answer for a key that was completed before, with a response of 200 bytes,
#	  against a SELECT by primary key; and what it leaves behind, which must be
#	  nothing.
#
# By hand the SELECT fetches the ten columns that the same verdict is made of:
# whether it is finished, whether that has expired or a lease still runs, whether
# the request was the same, and what to answer.  A second pair shows what remains
# when only three columns are asked for, on both sides.
#

keys=100000

sql "
	TRUNCATE hand, idem.key;
	INSERT INTO idem.key (scope, key, state, attempt, expires_at, response, code,
						  created_at, finished_at)
	SELECT 'default', (1000000 + i)::text, 'completed', 1,
		   now() + interval '24 h', '$RESPONSE', 200, now(), now()
	FROM generate_series(1, $keys) i;
	INSERT INTO hand SELECT * FROM idem.key;
	VACUUM ANALYZE hand;
	VACUUM ANALYZE idem.key;"

columns='state, attempt, fence, lease_until, fingerprint, step, progress, response, code, expires_at'
old="\\set k 1000000 + random(1, $keys)"
script replay_hand <<END
$old
SELECT $columns FROM hand WHERE scope = 'default' AND key = :k;
END
script replay_idem <<END
$old
SELECT * FROM idem_claim(:k);
END
script replay_hand_short <<END
$old
SELECT state, response, code FROM hand WHERE scope = 'default' AND key = :k;
END
script replay_idem_short <<END
$old
SELECT outcome, response, code FROM idem_claim(:k);
END
script hot_hand <<END
SELECT $columns FROM hand WHERE scope = 'default' AND key = '1000001';
END
script hot_idem <<'END'
SELECT * FROM idem_claim('1000001');
END

for clients in 1 4 16
do
	compare 'replay of a completed key' $clients off '>= 0.95' \
		replay_hand replay_idem :
done
compare 'replay of a completed key, three columns' 4 off - \
	replay_hand_short replay_idem_short :
compare 'replay, every client the same key' 64 off '>= 0.95' hot_hand hot_idem :

# LSN, next xid, and what was ever written to the table
traces()
{
	sql "SELECT pg_stat_clear_snapshot()" >/dev/null
	sql "
		SELECT (pg_current_wal_insert_lsn() - '0/0')::text,
			   pg_snapshot_xmax(pg_current_snapshot())::text,
			   n_tup_ins + n_tup_upd + n_tup_del + n_dead_tup
		FROM pg_stat_user_tables WHERE relid = 'idem.key'::regclass" | tr '|' ' '
}

# The server's own records (running transactions, at most one after each write)
# may fall into a try; what replay itself leaves is in every one of them.
best=
for try in 1 2 3
do
	sleep 1
	before=$(traces)
	tps replay_idem 4 off -t 5000 >/dev/null
	sleep 1
	after=$(traces)
	left=$(echo "$before $after" | awk '{ print $4 - $1, $5 - $2, $6 - $3 }')
	best=$(printf '%s\n' "$best" "$left" | grep . | sort -n | head -n 1)
done
read -r wal xids tuples <<<"$best"
row 'WAL bytes of 20,000 replays' 4 - "$wal" - - '<= 0' "$wal"
row 'transaction ids of 20,000 replays' 4 - "$xids" - - '<= 0' "$xids"
row 'tuples written or dead after 20,000 replays' 4 - "$tuples" - - '<= 0' "$tuples"
