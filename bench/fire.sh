#
# bench/fire.sh
#	  Check and history together, per row of an UPDATE of 300,000 rows at
#	  fillfactor 50 over no trigger, and the same in plpgsql; idem_fire against a
#	  checked UPDATE and an INSERT into a history table by hand; idem_fire_many
#	  of few rows against as many idem_fire, and of many against one UPDATE and one
#	  INSERT; 100,000 transitions of one row each in
#	  one transaction.
#

fire_rows=${FIRE_ROWS:-300000}
many_rows=${MANY_ROWS:-100000}

orders_create f "$fire_rows" bare logged plpgsql hand fired
# a history as one writes it: one table, found by row
sql "
	CREATE TABLE f_history (seq bigserial, tab text, id int, event text, from_state text, to_state text,
		who text DEFAULT CURRENT_USER, at timestamptz DEFAULT clock_timestamp(), PRIMARY KEY (id, seq));
	CREATE TABLE f_transition (from_state text, to_state text, PRIMARY KEY (from_state, to_state));
	INSERT INTO f_transition VALUES ('draft', 'pending'), ('pending', 'draft');
	SELECT idem_define('bench_fire', 'stateDiagram-v2
		[*] --> draft
		draft --> pending : flip
		pending --> draft : flip');
	SELECT idem_attach('bench_fire', 'f_logged', 'status', history => true);
	SELECT idem_attach('bench_fire', 'f_fired', 'status', history => true);
	CREATE FUNCTION f_plpgsql() RETURNS trigger LANGUAGE plpgsql AS '
	BEGIN
		IF NEW.status IS DISTINCT FROM OLD.status THEN
			IF NOT EXISTS (SELECT FROM f_transition WHERE from_state = OLD.status AND to_state = NEW.status) THEN
				RAISE EXCEPTION USING MESSAGE = ''no such transition'', ERRCODE = ''ID409'';
			END IF;
			INSERT INTO f_history (tab, id, event, from_state, to_state)
				VALUES (TG_TABLE_NAME, NEW.id, ''flip'', OLD.status, NEW.status);
		END IF;
		RETURN NEW;
	END';
	CREATE TRIGGER logged BEFORE UPDATE ON f_plpgsql FOR EACH ROW EXECUTE FUNCTION f_plpgsql();" >/dev/null

update_compare 'check and history, over no trigger (µs/row)' f_bare f_logged "$flip" "$fire_rows" '<= 2.0'
idem_over=$(awk '{ print $2 - $1 }' "$work/rounds" | median)
update_compare 'the same in plpgsql, over no trigger (µs/row)' f_bare f_plpgsql "$flip" "$fire_rows" -
hand_over=$(awk '{ print $2 - $1 }' "$work/rounds" | median)
# machines differ: +2.0 is meant for one where plpgsql adds 7.7
overhead_row 'plpgsql with check and history, overhead against idem (µs/row)' '>= 3.85'

# one event
cat >"$work/fire_hand.sql" <<-END
	\\set id random(1, $fire_rows)
	BEGIN;
	UPDATE f_hand SET status = CASE status WHEN 'draft' THEN 'pending' ELSE 'draft' END
		WHERE id = :id AND status IN ('draft', 'pending');
	INSERT INTO f_history (tab, id, event, from_state, to_state) VALUES ('f_hand', :id, 'flip', 'draft', 'pending');
	COMMIT;
END
cat >"$work/fire_cte.sql" <<-END
	\\set id random(1, $fire_rows)
	WITH u AS (UPDATE f_hand SET status = CASE status WHEN 'draft' THEN 'pending' ELSE 'draft' END
		WHERE id = :id AND status IN ('draft', 'pending') RETURNING id, status)
	INSERT INTO f_history (tab, id, event, from_state, to_state)
		SELECT 'f_hand', id, 'flip', 'draft', status FROM u;
END
cat >"$work/fire_idem.sql" <<-END
	\\set id random(1, $fire_rows)
	SELECT outcome FROM idem_fire('f_fired', :id, 'flip');
END
compare 'idem_fire against UPDATE and INSERT' 1 off '>= 1.0' fire_hand fire_idem true
compare 'idem_fire against UPDATE and INSERT' 4 off '>= 1.0' fire_hand fire_idem true
compare 'idem_fire against both in one statement' 1 off - fire_cte fire_idem true

# few
cat >"$work/fire_five.sql" <<-END
	\\set id random(1, $fire_rows - 4)
	SELECT outcome FROM generate_series(:id, :id + 4) i, idem_fire('f_fired', i, 'flip');
END
cat >"$work/fire_few1.sql" <<-END
	\\set id random(1, $fire_rows)
	SELECT outcome FROM idem_fire_many('f_fired', ARRAY[:id], 'flip');
END
cat >"$work/fire_few5.sql" <<-END
	\\set id random(1, $fire_rows - 4)
	SELECT outcome FROM idem_fire_many('f_fired', ARRAY[:id, :id + 1, :id + 2, :id + 3, :id + 4], 'flip');
END
compare 'idem_fire_many of one row against idem_fire' 1 off - fire_idem fire_few1 true
compare 'idem_fire_many of five rows against five idem_fire' 1 off - fire_five fire_few5 true

# many
many_time()
{
	psql -XAtq -v ON_ERROR_STOP=1 <<-END | awk '/^Time:/ { print $2 }'
		SET synchronous_commit = off;
		VACUUM f_hand, f_fired;
		\\timing on
		$1;
	END
}
: >"$work/rounds"
for ((round = 0; round < ROUNDS; round++))
do
	echo "$(many_time "WITH u AS (UPDATE f_hand SET status = CASE status WHEN 'draft' THEN 'pending' ELSE 'draft' END
			WHERE id = ANY (ARRAY(SELECT generate_series(1, $many_rows))) RETURNING id, status)
			INSERT INTO f_history (tab, id, event, from_state, to_state) SELECT 'f_hand', id, 'flip', 'draft', status FROM u") \
		$(many_time "SELECT count(*) FROM idem_fire_many('f_fired', ARRAY(SELECT generate_series(1, $many_rows)), 'flip')")" \
		>>"$work/rounds"
done
rounds_row "$many_rows rows by idem_fire_many, against UPDATE and INSERT (ms)" 1 -

# one transaction of many statements
sql "
	CREATE PROCEDURE f_each(rows int) LANGUAGE plpgsql AS \$\$
	DECLARE t0 timestamptz; t1 timestamptz; t2 timestamptz; tenth int := rows / 10;
	BEGIN
		t0 := clock_timestamp();
		FOR i IN 1 .. rows LOOP
			PERFORM outcome FROM idem_fire('f_fired', i, 'flip');
			IF i = tenth THEN t1 := clock_timestamp(); END IF;
			IF i = rows - tenth THEN t2 := clock_timestamp(); END IF;
		END LOOP;
		RAISE NOTICE 'tenths % %', extract(epoch FROM t1 - t0) * 1e6 / tenth, extract(epoch FROM clock_timestamp() - t2) * 1e6 / tenth;
	END\$\$;"
tenths=$(psql -XAtq -c 'VACUUM f_fired' -c "CALL f_each($many_rows)" 2>&1 | awk '/tenths/ { print $(NF - 1), $NF }')
row "$many_rows idem_fire in one transaction, first and last tenth (µs)" 1 "$(awk '{ printf "%.1f", $1 }' <<<"$tenths")" \
	"$(awk '{ printf "%.1f", $2 }' <<<"$tenths")" "$(awk '{ printf "%.2f", $2 / $1 }' <<<"$tenths")" - '<= 1.3' \
	"$(awk '{ print $2 / $1 }' <<<"$tenths")"
