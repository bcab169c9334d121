#
# bench/branch.sh
#	  What idem_branch() adds to a business transaction, against what dtm's barrier
#	  adds when it is written by hand.
#
# That barrier is a table of its own with an id from a sequence and a unique
# constraint.  A cancel writes two rows into it, the try's and its own, and goes
# by their row counts: two statements, each of which the client has to hear of.
# Here the try was before, as it mostly is, so that the first row is there.  A try
# writes one row; that is measured as well, and so is the cancel against a table
# with no more than the columns that are needed and one index.
#

sql "
	CREATE SEQUENCE barrier_id;
	CREATE TABLE barrier (
		id bigint NOT NULL DEFAULT nextval('barrier_id'),
		trans_type varchar(45),
		gid varchar(128),
		branch_id varchar(128),
		op varchar(45),
		barrier_id varchar(45),
		reason varchar(45),
		create_time timestamptz(0),
		update_time timestamptz(0),
		PRIMARY KEY (id),
		CONSTRAINT barrier_once UNIQUE (gid, branch_id, op, barrier_id)
	);
	CREATE TABLE barrier_lean (
		saga text NOT NULL,
		branch text NOT NULL,
		op text NOT NULL,
		seq int NOT NULL,
		reason text NOT NULL,
		created_at timestamptz NOT NULL DEFAULT now(),
		PRIMARY KEY (saga, branch, op, seq)
	)" >/dev/null

sql "
	CREATE FUNCTION branch_bare(a int) RETURNS text LANGUAGE plpgsql AS \$\$
	BEGIN
		UPDATE account SET balance = balance + 1 WHERE id = a;
		RETURN 'run';
	END\$\$;
	CREATE FUNCTION branch_hand(k text, a int) RETURNS text LANGUAGE plpgsql AS \$\$
	DECLARE
		tries int; cancels int;
	BEGIN
		INSERT INTO barrier (trans_type, gid, branch_id, op, barrier_id, reason)
			VALUES ('tcc', k, '01', 'try', '01', 'cancel') ON CONFLICT ON CONSTRAINT barrier_once DO NOTHING;
		GET DIAGNOSTICS tries = ROW_COUNT;
		INSERT INTO barrier (trans_type, gid, branch_id, op, barrier_id, reason)
			VALUES ('tcc', k, '01', 'cancel', '01', 'cancel') ON CONFLICT ON CONSTRAINT barrier_once DO NOTHING;
		GET DIAGNOSTICS cancels = ROW_COUNT;
		IF tries > 0 OR cancels = 0 THEN
			RETURN 'not run';
		END IF;
		RETURN branch_bare(a);
	END\$\$;
	CREATE FUNCTION branch_idem(k text, a int) RETURNS text LANGUAGE plpgsql AS \$\$
	BEGIN
		IF idem_branch(k, '01', 'cancel') <> 'run' THEN
			RETURN 'not run';
		END IF;
		RETURN branch_bare(a);
	END\$\$"

turn_transactions=${BRANCH_TRANSACTIONS:-2000}
clients_most=4

# Keys are numbers without an order, each used once: the i-th of a client is made
# of i alone, so that its try can be there before.
number='(:client_id * 100000 + :i) * 48271 % 2147483647'
each_key="
	FROM generate_series(0, $((clients_most - 1))) AS client_id,
		generate_series(1, $turn_transactions) AS i,
		LATERAL (SELECT ((client_id * 100000 + i) * 48271::bigint % 2147483647)::text AS k) AS key"

# branch_script NAME: a transaction around the statements of standard input
branch_script()
{
	{
		printf '%s\n' '\set i :i + 1' "\\set k $number" '\set a random(1, 100000)' 'BEGIN;'
		cat
		printf '%s\n' 'UPDATE account SET balance = balance + 1 WHERE id = :a;' 'COMMIT;'
	} >"$work/branch_$1.sql"
}

# barrier_row OP REASON
barrier_row()
{
	echo "INSERT INTO barrier (trans_type, gid, branch_id, op, barrier_id, reason) VALUES ('tcc', :k::text, '01', '$1', '01', '$2') ON CONFLICT ON CONSTRAINT barrier_once DO NOTHING;"
}

lean_row()
{
	echo "INSERT INTO barrier_lean (saga, branch, op, seq, reason) VALUES (:k::text, '01', '$1', 1, '$2') ON CONFLICT DO NOTHING;"
}

branch_script bare </dev/null
branch_script cancel_hand <<END
$(barrier_row try cancel)
$(barrier_row cancel cancel)
END
branch_script cancel_lean <<END
$(lean_row try cancel)
$(lean_row cancel cancel)
END
branch_script cancel_idem <<END
SELECT idem_branch(:k::text, '01', 'cancel');
END
branch_script try_hand <<END
$(barrier_row try try)
END
branch_script try_idem <<END
SELECT idem_branch(:k::text, '01', 'try');
END

# function_script NAME CALL
function_script()
{
	printf '%s\n' '\set i :i + 1' "\\set k $number" '\set a random(1, 100000)' "SELECT $2;" \
		>"$work/branch_$1.sql"
}
function_script bare_function 'branch_bare(:a)'
function_script cancel_hand_function 'branch_hand(:k::text, :a)'
function_script cancel_idem_function 'branch_idem(:k::text, :a)'

# branch_prepare SCRIPT: empty tables, or the tries of what is to be cancelled
branch_prepare()
{
	sql "TRUNCATE barrier, barrier_lean, idem.branch"
	case $1 in
		cancel_hand | cancel_hand_function)
			sql "INSERT INTO barrier (trans_type, gid, branch_id, op, barrier_id, reason)
				SELECT 'tcc', k, '01', 'try', '01', 'try' $each_key" ;;
		cancel_lean)
			sql "INSERT INTO barrier_lean (saga, branch, op, seq, reason)
				SELECT k, '01', 'try', 1, 'try' $each_key" ;;
		cancel_idem | cancel_idem_function)
			sql "SELECT count(idem_branch(k, '01', 'try')) $each_key" >/dev/null ;;
	esac
}

# turn SCRIPT: one turn of a fixed number of transactions, microseconds that one
# takes, and the server's processor time for it
turn()
{
	branch_prepare "$1"
	tps "branch_$1" $clients off -t $((turn_transactions / clients)) -D i=0 |
		awk -v n=$clients '{ print n * 1e6 / $1, $2 }'
}

# branch_row WHAT TARGET HAND IDEM [BARE]: a line of the table from the rounds' medians
branch_row()
{
	paste -d ' ' "$work/rounds.${5:-bare}" "$work/rounds.$3" "$work/rounds.$4" |
		awk '{ print $3 - $1, $5 - $1, $6 - $2, $4 - $2 }' >"$work/rounds"
	rounds_row "branch, $1 (us)" $clients "$2" %.1f
}

# What is added is the difference of two turns, and the ratio one of two
# differences, so that each of them counts: turns are short, and in an order that
# changes, so that all have their share of what disturbs.  Four rounds are a
# block: the medians of its turns' times, and the means of their processor times,
# which are counted in steps of 10 ms, are compared.
names='bare cancel_hand cancel_lean cancel_idem try_hand try_idem bare_function cancel_hand_function cancel_idem_function'
for clients in 1 $clients_most
do
	sql CHECKPOINT
	rm -f "$work"/rounds.*
	for name in $names
	do
		turn $name >/dev/null
	done
	for ((block = 0; block < ROUNDS; block++))
	do
		rm -f "$work"/turns.*
		for order in "$names" \
			'cancel_idem_function cancel_hand_function bare_function try_idem try_hand cancel_idem cancel_lean cancel_hand bare' \
			'cancel_idem bare cancel_hand_function try_idem cancel_hand bare_function try_hand cancel_lean cancel_idem_function' \
			'cancel_idem_function cancel_lean try_hand bare_function cancel_hand try_idem cancel_hand_function bare cancel_idem'
		do
			for name in $order
			do
				turn $name >>"$work/turns.$name"
			done
		done
		for name in $names
		do
			echo "$(awk '{ print $1 }' "$work/turns.$name" | median) $(awk '{ s += $2 } END { print s / NR }' "$work/turns.$name")" \
				>>"$work/rounds.$name"
		done
	done
	branch_row 'cancel, added to a transaction, against two INSERTs' '<= 0.50' cancel_hand cancel_idem
	branch_row 'cancel, against two INSERTs, fewest columns' - cancel_lean cancel_idem
	branch_row 'try, added to a transaction, against one INSERT' - try_hand try_idem
	branch_row 'cancel, in one function, against two INSERTs' '<= 0.50' cancel_hand_function cancel_idem_function bare_function
done
