#
# bench/memory.sh
#	  One million claims in one session, each completed in its own transaction: the
#	  backend's private memory after 100,000 and after all of them.
#
# A session grows by some megabytes without idem, too.  So the same loop is run
# with an INSERT and an UPDATE of table "hand", and what that one grew by is taken
# off.
#

MEMORY_CLAIMS=${MEMORY_CLAIMS:-1000000}

tables_empty
sql "
	CREATE PROCEDURE memory_idem(first int, last int) LANGUAGE plpgsql AS \$\$
	DECLARE c record;
	BEGIN
		FOR i IN first .. last LOOP
			SELECT * INTO c FROM idem_claim('m' || i);
			PERFORM idem_complete('m' || i, 'done');
			COMMIT;
		END LOOP;
	END \$\$;
	CREATE PROCEDURE memory_hand(first int, last int) LANGUAGE plpgsql AS \$\$
	DECLARE c record;
	BEGIN
		FOR i IN first .. last LOOP
			INSERT INTO hand (scope, key, state, hold, attempt, created_at)
				VALUES ('default', 'm' || i, 'in_progress', 'transaction', 1, now())
				ON CONFLICT DO NOTHING RETURNING attempt INTO c;
			UPDATE hand SET state = 'completed', response = 'done', finished_at = now(), expires_at = now() + interval '24 h'
				WHERE scope = 'default' AND key = 'm' || i;
			COMMIT;
		END LOOP;
	END \$\$;"

# memory_run hand|idem: into "$work/memory.WHICH", private memory of the backend
# and its memory contexts, in kB, after each tenth
memory_run()
{
	local memory tenth=$((MEMORY_CLAIMS / 10)) i

	memory="SELECT (regexp_match(pg_read_file('/proc/self/status'),
								 'RssAnon:\s+(\d+)'))[1],
				   (SELECT sum(total_bytes) / 1024 FROM pg_backend_memory_contexts)::int;"
	{
		echo 'SET synchronous_commit = off;'
		# the reading allocates too: the first one, with a few claims, is not counted
		echo "CALL memory_$1(-1000, 0);"
		echo "$memory"
		for ((i = 0; i < 10; i++))
		do
			echo "CALL memory_$1($((i * tenth + 1)), $(((i + 1) * tenth)));"
			echo "$memory"
		done
	} >"$work/memory.sql"
	psql -XAtq -F ' ' -v ON_ERROR_STOP=1 -f "$work/memory.sql" |
		tail -n +2 >"$work/memory.$1"
	say "$1: private memory and memory contexts in kB after each $tenth: $(paste -sd, "$work/memory.$1")"
}

# memory_row WHAT COLUMN: by what the session with idem grew over the one by hand,
# as a part of what it had after the first tenth
memory_row()
{
	local hand idem ratio

	read -r hand idem ratio < <(
		awk -v c="$2" 'FNR == 1 { n++; first[n] = $c } { last[n] = $c }
			END { print last[1] - first[1], last[2] - first[2],
				1 + (last[2] - first[2] - last[1] + first[1]) / first[2] }' \
			"$work/memory.hand" "$work/memory.idem")
	row "$1" 1 "$hand" "$idem" "$(printf %.2f "$ratio")" - '<= 1.05' "$ratio"
}

memory_run hand
memory_run idem
memory_row "private memory, kB more after $MEMORY_CLAIMS claims than after a tenth" 1
memory_row "memory contexts, kB more after $MEMORY_CLAIMS claims than after a tenth" 2
sql "DROP PROCEDURE memory_hand; DROP PROCEDURE memory_idem"
tables_empty
