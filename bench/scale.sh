#
# bench/scale.sh
#	  What a claim costs in a registry of ten million keys, and of a hundred
#	  thousand: the time of the statement alone, as pgbench sees it.
#

. "$here/big.sh"

script claim <<'END'
BEGIN;
SELECT * FROM idem_claim(:k);
SELECT idem_complete(:k, 'done', code => 200);
COMMIT;
END

small_fill()
{
	sql "
		TRUNCATE idem.key;
		INSERT INTO idem.key (scope, key, state, attempt, expires_at, response,
							  code, created_at, finished_at)
		SELECT 'default',
			   ($KEY_MIN + i * (($KEY_MAX - $KEY_MIN) / 100000))::text,
			   'completed', 1, now() + interval '24 h', 'done', 200, now(), now()
		FROM generate_series(1::bigint, 100000) i;"
	sql 'VACUUM ANALYZE idem.key'
}

# claim_time CLIENTS [pgbench options]: milliseconds of the claim statement
claim_time()
{
	tps claim "$1" off -r "${@:2}" >/dev/null
	awk '/idem_claim/ && !/failures/ { t = $1 } END { print t * 1000 }' \
		"$work/pgbench.out"
}

PGDATABASE=big sql "SELECT pg_prewarm('idem.key_pkey')" >/dev/null
for clients in 1 4
do
	: >"$work/rounds"
	for ((round = 0; round < ROUNDS; round++))
	do
		small_fill
		small=$(claim_time $clients)
		big=$(PGDATABASE=big claim_time $clients)
		echo "$small $big" >>"$work/rounds"
	done
	rounds_row "claim, microseconds, at 100,000 and at $((BIG_KEYS / 1000000)) million keys" \
		$clients '<= 1.30' %.1f
done
