#
# bench/call.sh
#	  A function that does one UPDATE, called once per key by idem_call() and by its
#	  typed twin, against the bare call and against the five statements that do as
#	  much by hand; its replay; and the fingerprint of a request.
#

sql "
	CREATE FUNCTION deposit(id int, amount bigint) RETURNS bigint LANGUAGE plpgsql AS '
	DECLARE
		result bigint;
	BEGIN
		UPDATE account SET balance = balance + amount WHERE account.id = deposit.id
		RETURNING balance INTO result;
		RETURN result;
	END';
	SELECT idem_wrap('deposit(int,bigint)');
	SELECT idem_wrap('repeat(text,int)', 'public.repeat_once');" >/dev/null

account='\set a random(1, 100000)'
script call_bare <<END
$account
SELECT deposit(:a, 1);
END
script call_hand <<END
$account
BEGIN;
INSERT INTO hand (scope, key, state, hold, attempt, created_at) VALUES ('default', :k, 'in_progress', 'transaction', 1, now()) ON CONFLICT DO NOTHING RETURNING attempt;
SELECT deposit(:a, 1) AS balance \\gset
UPDATE hand SET state = 'completed', response = :balance, finished_at = now(), expires_at = now() + interval '24 h' WHERE scope = 'default' AND key = :k;
COMMIT;
END
script call_idem <<END
$account
SELECT idem_call(:k, 'deposit(int,bigint)', jsonb_build_array(:a::int, 1));
END
script call_twin <<END
$account
SELECT deposit_once(:k, :a::int, 1);
END

for clients in 1 4
do
	compare 'idem_call in autocommit against the bare call, sync off' $clients off \
		'>= 0.60' call_bare call_idem tables_empty
	compare 'idem_call against five statements by hand, sync off' $clients off \
		'>= 2.00' call_hand call_idem tables_empty
	compare 'typed twin against the bare call, sync off' $clients off - \
		call_bare call_twin tables_empty
	compare 'typed twin against five statements by hand, sync off' $clients off - \
		call_hand call_twin tables_empty
done
compare 'idem_call in autocommit against the bare call, sync on' 16 on - \
	call_bare call_idem tables_empty
compare 'idem_call against five statements by hand, sync on' 16 on - \
	call_hand call_idem tables_empty

# Replay, against a SELECT of the stored response by primary key, and of how long it
# is good.  That does not compare the request, as the call does.
keys=100000
sql "
	TRUNCATE hand, idem.key;
	SELECT count(idem_call((1000000 + i)::text, 'repeat(text,int)', jsonb_build_array('r', 198))::text)
	FROM generate_series(1, $keys) i;
	SELECT count(repeat_once((2000000 + i)::text, 'r', 198))
	FROM generate_series(1, $keys) i;
	INSERT INTO hand SELECT * FROM idem.key;
	VACUUM ANALYZE hand;
	VACUUM ANALYZE idem.key;
	VACUUM ANALYZE account;" >/dev/null
old="\\set k 1000000 + random(1, $keys)"
script call_select <<END
$old
SELECT response, expires_at FROM hand WHERE scope = 'default' AND key = :k;
END
script call_replay <<END
$old
SELECT idem_call(:k, 'repeat(text,int)', '["r", 198]');
END
script call_twin_replay <<END
\\set k 2000000 + random(1, $keys)
SELECT repeat_once(:k, 'r', 198);
END
for clients in 1 4
do
	compare 'replay by idem_call against a SELECT by primary key' $clients off \
		'>= 0.90' call_select call_replay :
	compare 'replay by a typed twin against a SELECT by primary key' $clients off \
		- call_select call_twin_replay :
done

# What replays leave: LSN and next transaction id.
call_traces()
{
	sql "
		SELECT (pg_current_wal_insert_lsn() - '0/0')::text,
			   pg_snapshot_xmax(pg_current_snapshot())::text" | tr '|' ' '
}

best=
for try in 1 2 3
do
	sleep 1
	before=$(call_traces)
	tps call_replay 4 off -t 5000 >/dev/null
	tps call_twin_replay 4 off -t 5000 >/dev/null
	sleep 1
	left=$(echo "$before $(call_traces)" | awk '{ print $3 - $1, $4 - $2 }')
	best=$(printf '%s\n' "$best" "$left" | grep . | sort -n | head -n 1)
done
read -r wal xids <<<"$best"
row 'WAL bytes of 40,000 replays of calls' 4 - "$wal" - - '<= 0' "$wal"
row 'transaction ids of 40,000 replays of calls' 4 - "$xids" - - '<= 0' "$xids"

# The fingerprint of a request of 1 kB, against a digest of its text: the time of
# 20,000 in one statement.
sql "
	CREATE TABLE request AS
	SELECT jsonb_build_object('customer', 'customer-' || i, 'currency', 'EUR',
		'note', repeat('x', 100), 'lines', (
			SELECT jsonb_agg(jsonb_build_object('sku', 'SKU-' || (i * 31 + n) % 9973,
				'quantity', n, 'price', (n * 1.25)::numeric(10, 2), 'gift', n % 3 = 0))
			FROM generate_series(1, 12) AS n)) AS doc
	FROM generate_series(1, 20000) AS i;
	VACUUM ANALYZE request;"
say "bench: requests of $(sql 'SELECT round(avg(length(doc::text))) FROM request') bytes"

# timed EXPRESSION: milliseconds
timed()
{
	sql "
		SET max_parallel_workers_per_gather = 0;
		EXPLAIN (ANALYZE, TIMING OFF, COSTS OFF) SELECT count($1) FROM request" |
		sed -n 's/^Execution Time: \([0-9.]*\) ms$/\1/p'
}

: >"$work/rounds"
timed 'idem_fingerprint(doc)' >/dev/null
for ((round = 0; round < ROUNDS; round++))
do
	echo "$(timed "sha256(convert_to(doc::text, 'UTF8'))")" \
		"$(timed 'idem_fingerprint(doc)')" >>"$work/rounds"
done
rounds_row 'idem_fingerprint of 1 kB against sha256 of its text (ms)' 1 '<= 2.00'
