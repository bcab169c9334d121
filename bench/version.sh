#
# bench/version.sh
#	  What the version check costs per row of an UPDATE of 300,000 rows at
#	  fillfactor 50, over an empty trigger in C; and eight clients that change ten
#	  rows by the version that they have read, by idem_update and by hand.
#

version_rows=${VERSION_ROWS:-300000}

noop_install
for table in bare empty checked ignoring plpgsql
do
	sql "
		CREATE TABLE v_$table (id int PRIMARY KEY, customer int, status text, amount bigint,
			note text, seen int, version int NOT NULL DEFAULT 1) WITH (fillfactor = 50);
		INSERT INTO v_$table SELECT i, i, 'open', 0, 'order ' || i, 0 FROM generate_series(1, $version_rows) i;
		VACUUM ANALYZE v_$table;"
done
sql "
	CREATE TRIGGER noop BEFORE UPDATE ON v_empty FOR EACH ROW EXECUTE FUNCTION noop();
	SELECT idem_attach_version('v_checked', 'version');
	SELECT idem_attach_version('v_ignoring', 'version', ignore => '{seen}');
	CREATE FUNCTION v_plpgsql() RETURNS trigger LANGUAGE plpgsql AS '
	BEGIN
		IF NEW.version IS NULL OR NEW.version NOT IN (OLD.version, OLD.version + 1) THEN
			RAISE EXCEPTION USING MESSAGE = ''stale'', ERRCODE = ''ID412'';
		END IF;
		NEW.version := OLD.version + 1;
		RETURN NEW;
	END';
	CREATE TRIGGER version BEFORE UPDATE ON v_plpgsql FOR EACH ROW EXECUTE FUNCTION v_plpgsql();" >/dev/null

blind='amount = amount + 1'
given='amount = amount + 1, version = version'
update_compare 'version counted, over an empty trigger (µs/row)' v_empty v_checked "$blind" "$version_rows" '<= 0.30'
update_compare 'version checked, over an empty trigger (µs/row)' v_empty v_checked "$given" "$version_rows" '<= 0.30'
update_compare 'version checked, with ignored columns, over an empty trigger' v_empty v_ignoring "$given" "$version_rows" '<= 0.30'
update_compare 'only ignored columns, over an empty trigger (µs/row)' v_empty v_ignoring 'seen = seen + 1' "$version_rows" -
update_compare 'version checked, over no trigger (µs/row)' v_bare v_checked "$given" "$version_rows" -
update_compare 'the same check in plpgsql, over an empty trigger (µs/row)' v_empty v_plpgsql "$given" "$version_rows" -
sql "DROP TABLE v_bare, v_empty, v_checked, v_ignoring, v_plpgsql"

# Writers that have read the version and change the row by it.
for table in hand idem
do
	sql "
		CREATE TABLE hot_$table (id int PRIMARY KEY, amount bigint NOT NULL,
			version int NOT NULL DEFAULT 1) WITH (fillfactor = 10);
		INSERT INTO hot_$table SELECT i, 0 FROM generate_series(1, 100000) i;
		VACUUM ANALYZE hot_$table;"
done
sql "SELECT idem_attach_version('hot_idem', 'version')" >/dev/null
for rows in 10 100000
do
	script "hot_hand_$rows" <<-END
		\\set id random(1, $rows)
		SELECT version FROM hot_hand WHERE id = :id \\gset
		UPDATE hot_hand SET amount = 17, version = :version + 1 WHERE id = :id AND version = :version;
	END
	script "hot_idem_$rows" <<-END
		\\set id random(1, $rows)
		SELECT version FROM hot_idem WHERE id = :id \\gset
		SELECT outcome FROM idem_update('hot_idem', :id::int, :version, '{"amount": 17}');
	END
done
compare 'idem_update on 10 hot rows against UPDATE WHERE version, sync off' 8 off '>= 0.90' \
	hot_hand_10 hot_idem_10 :
compare 'idem_update on 10 hot rows against UPDATE WHERE version, sync on' 8 on '>= 0.90' \
	hot_hand_10 hot_idem_10 :
compare 'idem_update on 100,000 rows against UPDATE WHERE version, sync off' 1 off - \
	hot_hand_100000 hot_idem_100000 :
sql "DROP TABLE hot_hand, hot_idem"
