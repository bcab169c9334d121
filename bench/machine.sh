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
sql "
	INSERT INTO idem.machine (name) VALUES ('bench');
	INSERT INTO idem.state (machine, name, initial) VALUES
		('bench', 'draft', true), ('bench', 'pending', false), ('bench', 'approved', false);
	INSERT INTO idem.transition (machine, event, from_state, to_state, priority) VALUES
		('bench', 'submit', 'draft', 'pending', 1), ('bench', 'return', 'pending', 'draft', 2),
		('bench', 'approve', 'pending', 'approved', 3);
	INSERT INTO idem.machine (name) VALUES ('bench_guarded');
	INSERT INTO idem.state (machine, name, initial) VALUES
		('bench_guarded', 'draft', true), ('bench_guarded', 'pending', false);
	INSERT INTO idem.transition (machine, event, from_state, to_state, priority, guard) VALUES
		('bench_guarded', 'submit', 'draft', 'pending', 1, 'new.amount >= 0 AND new.customer = old.customer'),
		('bench_guarded', 'return', 'pending', 'draft', 2, 'new.amount >= 0 AND new.customer = old.customer');"
for table in bare empty checked expression plpgsql
do
	sql "
		CREATE TABLE m_$table (id int PRIMARY KEY, customer int, status text, amount bigint,
			note text) WITH (fillfactor = 50);
		INSERT INTO m_$table SELECT i, i, 'draft', 0, 'order ' || i FROM generate_series(1, $machine_rows) i;
		VACUUM ANALYZE m_$table;"
done
sql "
	CREATE TRIGGER noop BEFORE UPDATE ON m_empty FOR EACH ROW EXECUTE FUNCTION noop();
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

# machine_time TABLE: microseconds per row of one UPDATE that moves every row
machine_time()
{
	psql -XAtq -v ON_ERROR_STOP=1 <<-END | awk '/^Time:/ { print $2 * 1000 / '"$machine_rows"' }'
		SET synchronous_commit = off;
		VACUUM m_$1;
		\\timing on
		UPDATE m_$1 SET status = CASE status WHEN 'draft' THEN 'pending' ELSE 'draft' END;
	END
}

# machine_rounds AGAINST TABLE
machine_rounds()
{
	local round

	machine_time "$1" >/dev/null
	machine_time "$2" >/dev/null
	: >"$work/rounds"
	for ((round = 0; round < ROUNDS; round++))
	do
		echo "$(machine_time "$1") $(machine_time "$2")" >>"$work/rounds"
	done
}

# machine_compare WHAT AGAINST TABLE TARGET: the difference per row
machine_compare()
{
	local differences difference

	machine_rounds "$2" "$3"
	differences=$(awk '{ printf "%.3f\n", $2 - $1 }' "$work/rounds")
	difference=$(median <<<"$differences")
	row "$1" 1 "$(printf '%.2f' "$(column 1 | median)")" \
		"$(printf '%.2f' "$(column 2 | median)")" "$(printf '%+.3f' "$difference")" \
		"$(sort -g <<<"$differences" | awk 'NR == 1 { a = $1 } { b = $1 } END { printf "%.2f-%.2f", a, b }')" \
		"$4" "$difference"
}

machine_compare 'guard, over an empty trigger (µs/row)' empty checked '<= 0.15'
machine_compare 'guard with an expression, over an empty trigger (µs/row)' empty expression -
machine_compare 'guard, over no trigger (µs/row)' bare checked -
idem_over=$(awk '{ print $2 - $1 }' "$work/rounds" | median)
machine_rounds bare plpgsql
hand_over=$(awk '{ print $2 - $1 }' "$work/rounds" | median)
row 'plpgsql with a table of transitions, overhead against idem (µs/row)' 1 \
	"$(printf '%.2f' "$hand_over")" "$(printf '%.2f' "$idem_over")" \
	"$(awk "BEGIN { printf \"%.1f\", $hand_over / $idem_over }")" - '>= 3' \
	"$(awk "BEGIN { print $hand_over / $idem_over }")"

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

# one transaction of many statements: each of one row, or all of one row
sql "
	CREATE PROCEDURE m_each(tab text, rows int) LANGUAGE plpgsql AS \$\$
	DECLARE t0 timestamptz; t1 timestamptz; t2 timestamptz; tenth int := rows / 10;
	BEGIN
		EXECUTE format('UPDATE %I SET status = ''draft'' WHERE status <> ''draft''', tab);
		COMMIT;
		t0 := clock_timestamp();
		FOR i IN 1 .. rows LOOP
			EXECUTE format('UPDATE %I SET status = ''pending'' WHERE id = \$1', tab) USING i;
			IF i = tenth THEN t1 := clock_timestamp(); END IF;
			IF i = rows - tenth THEN t2 := clock_timestamp(); END IF;
		END LOOP;
		RAISE NOTICE 'tenths % %', extract(epoch FROM t1 - t0) * 1e6 / tenth, extract(epoch FROM clock_timestamp() - t2) * 1e6 / tenth;
	END\$\$;
	CREATE PROCEDURE m_one(tab text, times int) LANGUAGE plpgsql AS \$\$
	DECLARE t0 timestamptz; t1 timestamptz; t2 timestamptz; tenth int := times / 10;
	BEGIN
		EXECUTE format('UPDATE %I SET status = ''draft'' WHERE id = 1 AND status <> ''draft''', tab);
		COMMIT;
		t0 := clock_timestamp();
		FOR i IN 1 .. times LOOP
			EXECUTE format('UPDATE %I SET status = CASE status WHEN ''draft'' THEN ''pending'' ELSE ''draft'' END WHERE id = 1', tab);
			IF i = tenth THEN t1 := clock_timestamp(); END IF;
			IF i = times - tenth THEN t2 := clock_timestamp(); END IF;
		END LOOP;
		RAISE NOTICE 'tenths % %', extract(epoch FROM t1 - t0) * 1e6 / tenth, extract(epoch FROM clock_timestamp() - t2) * 1e6 / tenth;
	END\$\$;"
# machine_tenths PROCEDURE TABLE N: microseconds per statement of the first and the last tenth
machine_tenths()
{
	psql -XAtq -v ON_ERROR_STOP=1 -c "VACUUM $2" -c "CALL $1('$2', $3)" 2>&1 |
		awk '/tenths/ { print $(NF - 1), $NF }'
}
# machine_flat WHAT PROCEDURE N TARGET: overhead of the last tenth less that of the first
machine_flat()
{
	local bare guarded

	bare=$(machine_tenths "$2" m_bare "$3")
	guarded=$(machine_tenths "$2" m_checked "$3")
	row "$1" 1 "$(awk '{ printf "%.2f", $3 - $1 }' <<<"$bare $guarded")" \
		"$(awk '{ printf "%.2f", $4 - $2 }' <<<"$bare $guarded")" \
		"$(awk '{ printf "%+.2f", $4 - $2 - $3 + $1 }' <<<"$bare $guarded")" - "$4" \
		"$(awk '{ print $4 - $2 - $3 + $1 }' <<<"$bare $guarded")"
}
machine_flat '100,000 rows in one transaction, overhead first and last tenth (µs)' m_each 100000 '<= 2'
machine_flat '10,000 times one row, overhead first and last tenth (µs)' m_one 10000 '<= 5'
