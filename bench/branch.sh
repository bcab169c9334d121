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

# turn SCRIPT: one turn of a fixed number of transactions, microseconds that one
# takes, and the server's processor time for it
turn()
{
	branch_empty
	tps "branch_$1" $clients off -t $((turn_transactions / clients)) |
		awk -v n=$clients '{ print n * 1e6 / $1, $2 }'
}

# What is added is the difference of two turns, and the ratio one of two
# differences, so that each of them counts: turns are short, and in an order that
# goes round, so that all three have their share of what disturbs.  Four rounds
# are a block: the medians of its turns' times, and the means of their processor
# times, which are counted in steps of 10 ms, are compared.
turn_transactions=${BRANCH_TRANSACTIONS:-2000}
for clients in 1 4
do
	sql CHECKPOINT
	for name in bare hand idem
	do
		turn $name >/dev/null
	done
	: >"$work/rounds"
	for ((block = 0; block < ROUNDS; block++))
	do
		rm -f "$work"/turns.*
		for order in 'bare hand idem' 'hand idem bare' 'idem bare hand' 'idem hand bare'
		do
			for name in $order
			do
				turn $name >>"$work/turns.$name"
			done
		done
		for name in bare hand idem
		do
			echo "$(awk '{ print $1 }' "$work/turns.$name" | median) $(awk '{ s += $2 } END { print s / NR }' "$work/turns.$name")"
		done | awk '
			{ time[NR] = $1; cpu[NR] = $2 }
			END { print time[2] - time[1], time[3] - time[1], cpu[3] - cpu[1], cpu[2] - cpu[1] }' \
			>>"$work/rounds"
	done
	rounds_row 'branch, added to a transaction (us), against two INSERTs' $clients \
		'<= 0.50' %.1f
done
