#
# bench/redis.sh
#	  redis, SET NX EX with appendfsync always, beside durable once: both answer
#	  after the disk has it.  Readers ask; nothing is aimed at.
#

if ! command -v redis-server redis-benchmark >/dev/null
then
	say 'redis-server is not installed: skipped'
	return 0
fi

mkdir "$work/redis"
redis-server --port 0 --unixsocket "$work/redis/socket" --dir "$work/redis" \
	--appendonly yes --appendfsync always --save '' --daemonize no \
	>"$work/redis/log" 2>&1 &
redis_pid=$!
trap 'kill $redis_pid 2>/dev/null || true' EXIT
until redis-cli -s "$work/redis/socket" ping >/dev/null 2>&1
do
	sleep 0.1
done

script redis_once <<'END'
SELECT idem_once(:k);
END
# a hundred new keys: one number that the client draws, and a counter
script redis_many <<'END'
SELECT n FROM idem_once_many(ARRAY(SELECT :k || '-' || i FROM generate_series(1, 100) i)) n;
END

# redis_rate REQUESTS PIPELINE: SETs a second, nearly all of new keys (the range
# that redis-benchmark draws from is an int)
redis_rate()
{
	local stored

	redis-cli -s "$work/redis/socket" flushall >/dev/null
	redis-benchmark -s "$work/redis/socket" -c 16 -n "$1" -P "$2" \
		-r 2000000000 --csv SET key:__rand_int__ done NX EX 86400 |
		awk -F '"' 'END { print $4 }'
	stored=$(redis-cli -s "$work/redis/socket" dbsize)
	if [ "$stored" -lt $(($1 * 99 / 100)) ]
	then
		say "redis stored only $stored of $1 keys"
		return 1
	fi
}

: >"$work/rounds"
for ((round = 0; round < ROUNDS; round++))
do
	tables_empty
	h=$(redis_rate $((ROUND_SECONDS * 30000)) 1)
	i=$(tps redis_once 16 on | awk '{ print $1 }')
	echo "$h $i" >>"$work/rounds"
done
rounds_row 'redis SET NX EX, fsync always, and once, sync on' 16 -

: >"$work/rounds"
for ((round = 0; round < ROUNDS; round++))
do
	tables_empty
	h=$(redis_rate $((ROUND_SECONDS * 300000)) 100)
	i=$(tps redis_many 16 on | awk '{ print $1 * 100 }')
	echo "$h $i" >>"$work/rounds"
done
rounds_row 'the same, keys: pipelined by 100, and once_many of 100' 16 -
