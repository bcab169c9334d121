#
# bench/machine.sh
#	  What a guarded state column costs: per row of an UPDATE of 300,000 rows at
#	  fillfactor 50 over an empty trigger in C, of a COPY of 500,000 rows, and
#	  against the same check in plpgsql with a table of transitions; 100,000
#	  transitions of one row each in one transaction, and 10,000 of one row.
#

machine_rows=${MACHINE_ROWS:-300000}
copy_rows=${COPY_ROWS:-500000}

noop_install
orders_create m "$machine_rows" bare empty checked expression plpgsql
sql "
	CREATE TRIGGER noop BEFORE UPDATE ON m_empty FOR EACH ROW EXECUTE FUNCTION noop();
	SELECT idem_define('bench', 'stateDiagram-v2
		[*] --> draft
		draft --> pending : submit
		pending --> draft : return
		pending --> approved : approve');
	SELECT idem_define('bench_guarded', 'stateDiagram-v2
		[*] --> draft
		draft --> pending : submit [new.amount >= 0 AND new.customer = old.customer]
		pending --> draft : return [new.amount >= 0 AND new.customer = old.customer]');
	SELECT idem_attach('bench', 'm_checked', 'status');
	SELECT idem_attach('bench_guarded', 'm_expression', 'status');
	CREATE TABLE m_transition (from_state text, to_state text, PRIMARY KEY (from_state, to_state));
	INSERT INTO m_transition VALUES ('draft', 'pending'), ('pending', 'draft'), ('pending', 'approved');
	CREATE FUNCTION m_plpgsql() RETURNS trigger LANGUAGE plpgsql AS '
	BEGIN
		IF NEW.status IS DISTINCT FROM OLD.status AND NOT EXISTS (SELECT FROM m_transition
				WHERE from_state = OLD.status AND to_state = NEW.status) THEN
			RAISE EXCEPTION USING MESSAGE = ''no such transition'', ERRCODE = ''ID409'';
		END IF;
		RETURN NEW;
	END';
	CREATE TRIGGER checked BEFORE UPDATE ON m_plpgsql FOR EACH ROW EXECUTE FUNCTION m_plpgsql();" >/dev/null

update_compare 'guard, over an empty trigger (µs/row)' m_empty m_checked "$flip" "$machine_rows" '<= 0.15'
update_compare 'guard with an expression, over an empty trigger (µs/row)' m_empty m_expression "$flip" "$machine_rows" -
update_compare 'guard, over no trigger (µs/row)' m_bare m_checked "$flip" "$machine_rows" -
idem_over=$(awk '{ print $2 - $1 }' "$work/rounds" | median)
update_rounds m_bare m_plpgsql "$flip" "$machine_rows"
hand_over=$(awk '{ print $2 - $1 }' "$work/rounds" | median)
overhead_row 'plpgsql with a table of transitions, overhead against idem (µs/row)' '>= 3'

# COPY
sql "
	CREATE TABLE m_copy_bare (id int PRIMARY KEY, customer int, status text, amount bigint, note text);
	CREATE TABLE m_copy_checked (LIKE m_copy_bare INCLUDING ALL);
	SELECT idem_attach('bench', 'm_copy_checked', 'status');
	COPY (SELECT i, i, 'draft', 0, 'order ' || i FROM generate_series(1, $copy_rows) i) TO '$work/copy.txt'" >/dev/null
copy_time()
{
	psql -XAtq -v ON_ERROR_STOP=1 <<-END | awk '/^Time:/ { print $2 }'
		SET synchronous_commit = off;
		TRUNCATE m_copy_$1;
		\\timing on
		COPY m_copy_$1 FROM '$work/copy.txt';
	END
}
: >"$work/rounds"
copy_time bare >/dev/null
for ((round = 0; round < ROUNDS; round++))
do
	echo "$(copy_time bare) $(copy_time checked)" >>"$work/rounds"
done
rounds_row 'COPY into a guarded table (ms)' 1 '<= 1.10'

# One transaction of many statements, each of one row, or all of one row.  The
# guarded table and the bare one take turns, so that what disturbs one disturbs
# the other, and what grows for both (the row's older versions) cancels out.
sql "
	CREATE PROCEDURE m_turns(n int, one boolean) LANGUAGE plpgsql AS \$\$
	DECLARE
		over float8[] := array_fill(0::float8, ARRAY[n]);
		t0 timestamptz; t1 timestamptz; t2 timestamptz; row_id int := 1; shown text;
	BEGIN
		FOR i IN 1 .. n LOOP
			IF NOT one THEN row_id := i; END IF;
			t0 := clock_timestamp();
			UPDATE m_bare SET status = CASE status WHEN 'draft' THEN 'pending' ELSE 'draft' END WHERE id = row_id;
			t1 := clock_timestamp();
			UPDATE m_checked SET status = CASE status WHEN 'draft' THEN 'pending' ELSE 'draft' END WHERE id = row_id;
			t2 := clock_timestamp();
			over[i] := extract(epoch FROM (t2 - t1) - (t1 - t0)) * 1e6;
		END LOOP;
		SELECT string_agg(median::text, ' ' ORDER BY tenth) INTO shown
		FROM (SELECT tenth, (SELECT avg(o) FROM (SELECT o, ntile(4) OVER (ORDER BY o) AS quarter
				FROM unnest(over[1 + (tenth - 1) * n / 10 : tenth * n / 10]) AS o) AS quarters WHERE quarter IN (2, 3)) AS median
			FROM unnest('{1,5,10}'::int[]) AS tenth) AS tenths;
		RAISE NOTICE 'over %', shown;
	END\$\$;"
# machine_turns WHAT N ONE TARGET: what the guard adds to a statement of the
# first tenth and to one of the last, in microseconds: the mean of the middle half
machine_turns()
{
	local round

	: >"$work/rounds"
	for ((round = 0; round < ROUNDS; round++))
	do
		psql -XAtq -v ON_ERROR_STOP=1 -c 'SET synchronous_commit = off' -c 'VACUUM m_bare' -c 'VACUUM m_checked' \
			-c "CALL m_turns($2, $3)" 2>&1 | awk '/over/ { print $(NF - 2), $NF, $(NF - 1) }' >>"$work/rounds"
	done
	rounds_row "$1" 1 "$4" %.2f
	say "  overhead of the first, the fifth and the last tenth, round by round:$(awk '{ printf "  %.2f %.2f %.2f", $1, $3, $2 }' "$work/rounds")"
}
for n in 10000 50000 100000
do
	machine_turns "$n rows in one transaction, guard's overhead, last tenth to first" $n false '<= 1.30'
done
machine_turns "10000 times one row, guard's overhead, last tenth to first" 10000 true '<= 1.50'
