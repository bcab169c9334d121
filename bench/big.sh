#
# bench/big.sh
#	  Not a family: makes database "big", once, for scale and sweep.  BIG_KEYS live
#	  keys, and among them, every eleventh, keys that expired an hour ago.  Keys are
#	  spread evenly over the range that new keys are drawn from.
#

if ! psql -Xqc 'SELECT 1' big >/dev/null 2>&1
then
	say "loading $BIG_KEYS live keys and $((BIG_KEYS / 10)) expired ones"
	rows=$((BIG_KEYS + BIG_KEYS / 10))
	database_create big
	PGDATABASE=big sql "
		SET synchronous_commit = off;
		CREATE EXTENSION pg_prewarm;
		INSERT INTO idem.key (scope, key, state, attempt, expires_at, response,
							  code, created_at, finished_at)
		SELECT 'default',
			   ($KEY_MIN + i * (($KEY_MAX - $KEY_MIN) / $rows))::text,
			   'completed', 1,
			   now() + CASE WHEN i % 11 = 0 THEN interval '-1 h'
							ELSE interval '24 h' END,
			   'done', 200, now() - interval '2 h', now() - interval '2 h'
		FROM generate_series(1::bigint, $rows) i;"
	PGDATABASE=big sql 'VACUUM ANALYZE idem.key'
fi
