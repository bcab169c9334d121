#
# bench/memory.sh
#	  One million claims in one session, each completed in its own transaction: the
#	  backend's private memory after 100,000 and after all of them.
#

sql "TRUNCATE idem.key"
sql "
	CREATE PROCEDURE claims(first int, last int) LANGUAGE plpgsql AS \$\$
	DECLARE c record;
	BEGIN
		FOR i IN first .. last LOOP
			SELECT * INTO c FROM idem_claim('m' || i);
			PERFORM idem_complete('m' || i, 'done');
			COMMIT;
		END LOOP;
	END \$\$;"

# memory_query: private memory of this backend in kB, and its contexts in kB
memory="SELECT (regexp_match(pg_read_file('/proc/self/status'),
							 'RssAnon:\s+(\d+)'))[1],
			   (SELECT sum(total_bytes) / 1024 FROM pg_backend_memory_contexts)::int;"
{
	echo 'SET synchronous_commit = off;'
	# the reading allocates too: the first one, with a few claims, is not counted
	echo 'CALL claims(-1000, 0);'
	echo "$memory"
	for ((i = 0; i < 10; i++))
	do
		echo "CALL claims($((i * 100000 + 1)), $(((i + 1) * 100000)));"
		echo "$memory"
	done
} >"$work/memory.sql"
psql -XAtq -F ' ' -v ON_ERROR_STOP=1 -f "$work/memory.sql" |
	tail -n +2 >"$work/memory.out"
say "RssAnon and memory contexts in kB after each 100,000 claims: $(paste -sd, "$work/memory.out")"
read -r rss_first contexts_first < <(head -n 1 "$work/memory.out")
read -r rss_last contexts_last < <(tail -n 1 "$work/memory.out")
ratio=$(awk -v a="$rss_first" -v b="$rss_last" 'BEGIN { printf "%.2f", b / a }')
row 'private memory, kB, after 100,000 and 1,000,000 claims' 1 \
	"$rss_first" "$rss_last" "$ratio" - '<= 1.05' "$ratio"
ratio=$(awk -v a="$contexts_first" -v b="$contexts_last" 'BEGIN { printf "%.2f", b / a }')
row 'memory contexts, kB, after 100,000 and 1,000,000 claims' 1 \
	"$contexts_first" "$contexts_last" "$ratio" - '<= 1.05' "$ratio"
