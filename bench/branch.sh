#
# bench/branch.sh
#	  What idem_branch() adds to a business transaction, against what a barrier
#	  written by hand adds: two INSERT ... ON CONFLICT and their row counts.
#

sql "
	CREATE TABLE barrier (
		saga text NOT NULL,
		branch text NOT NULL,
		op text NOT NULL,
		seq int NOT NULL,
		reason text NOT NULL,
		created_at timestamptz NOT NULL DEFAULT now(),
		PRIMARY KEY (saga, branch, op, seq)
	)" >/dev/null

branch_empty()
{
	sql "TRUNCATE barrier, idem.branch"
}

account='\set a random(1, 100000)'
script branch_bare <<END
$account
BEGIN;
UPDATE account SET balance = balance + 1 WHERE id = :a;
COMMIT;
END
script branch_hand <<END
$account
BEGIN;
INSERT INTO barrier (saga, branch, op, seq, reason) VALUES (:k::text, '01', 'try', 1, 'cancel') ON CONFLICT DO NOTHING;
INSERT INTO barrier (saga, branch, op, seq, reason) VALUES (:k::text, '01', 'cancel', 1, 'cancel') ON CONFLICT DO NOTHING;
UPDATE account SET balance = balance + 1 WHERE id = :a;
COMMIT;
END
script branch_idem <<END
$account
BEGIN;
SELECT idem_branch(:k::text, '01', 'try');
UPDATE account SET balance = balance + 1 WHERE id = :a;
COMMIT;
END

for clients in 1 4
do
	sql CHECKPOINT
	: >"$work/triples"
	for ((round = 0; round < ROUNDS + 1; round++))
	do
		branch_empty
		b=$(tps branch_bare $clients off)
		h=$(tps branch_hand $clients off)
		i=$(tps branch_idem $clients off)
		# the first round warms up
		[ $round = 0 ] || echo "$b $h $i" >>"$work/triples"
	done
	# microseconds that each side adds to a transaction of one client
	awk -v n=$clients '{ b = n * 1e6 / $1
		print n * 1e6 / $3 - b, n * 1e6 / $5 - b, $4 - $2, $6 - $2 }' \
		"$work/triples" >"$work/rounds"
	against=$(column 1 | median)
	ours=$(column 2 | median)
	ratios=$(awk '{ printf "%.3f\n", $2 / $1 }' "$work/rounds")
	row 'branch, added to a transaction (us), against two INSERTs' $clients \
		"$(printf %.1f "$against")" "$(printf %.1f "$ours")" \
		"$(median <<<"$ratios")" \
		"$(sort -g <<<"$ratios" | awk 'NR == 1 { a = $1 } { b = $1 } END { printf "%.2f-%.2f", a, b }')" \
		'<= 0.50' "$(median <<<"$ratios")"
done
