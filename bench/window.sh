#
# bench/window.sh
#	  A hit on a window: of a new key, of a key with hits, and one that is refused;
#	  against one INSERT by hand into a logged and an unlogged table with the same
#	  primary key.  Both are one prepared statement and one commit; the hit also
#	  answers a row.  First hits begin with empty tables.  Further hits begin with
#	  20,000 keys that have one, and as many rows by hand: a table that fills up
#	  while the round lasts would make most of them first hits.
#

sql "
	CREATE TABLE hand_hit (
		scope text COLLATE \"C\" NOT NULL,
		key text COLLATE \"C\" NOT NULL,
		at timestamptz NOT NULL,
		PRIMARY KEY (key, scope)
	);
	CREATE UNLOGGED TABLE hand_hit_unlogged (LIKE hand_hit INCLUDING ALL);" >/dev/null

window_empty()
{
	sql "TRUNCATE hand_hit, hand_hit_unlogged, idem.window_hit"
}

window_fill()
{
	window_empty
	sql "
		INSERT INTO hand_hit
			SELECT 'default', $KEY_MIN + (random() * ($KEY_MAX - $KEY_MIN))::bigint, now()
			FROM generate_series(1, 20000);
		INSERT INTO hand_hit_unlogged SELECT * FROM hand_hit;
		SELECT count(*) FROM generate_series(1, 20000) AS w,
			LATERAL idem_window(w::text, '1 ms', max => 5)" >/dev/null
}

script window_hand <<END
INSERT INTO hand_hit VALUES ('default', :k, clock_timestamp());
END
script window_hand_unlogged <<END
INSERT INTO hand_hit_unlogged VALUES ('default', :k, clock_timestamp());
END
script window_new <<END
SELECT (idem_window(:k, '10 s', max => 5)).allowed;
END
script window_new_from <<END
SELECT allowed, retry_after FROM idem_window(:k, '10 s', max => 5);
END
# as many hits as leave meanwhile: each row is updated and stays small
script window_again <<'END'
\set w random(1, 20000)
SELECT (idem_window(:w, '1 ms', max => 5)).allowed;
END
script window_again_from <<'END'
\set w random(1, 20000)
SELECT allowed, retry_after FROM idem_window(:w, '1 ms', max => 5);
END
script window_refused <<'END'
\set w random(1, 5)
SELECT allowed, retry_after FROM idem_window('full' || :w, '1 day');
END
script window_hand_select <<'END'
\set w random(1, 5)
SELECT at FROM hand_hit WHERE scope = 'default' AND key = 'full' || :w;
END

for clients in 1 4
do
	compare 'window: first hit of a key against an INSERT' $clients off '>= 0.90' \
		window_hand window_new window_empty
	compare 'window: further hits against an INSERT' $clients off '>= 0.90' \
		window_hand window_again window_fill
	compare 'window: first hit, FROM idem_window(), against an INSERT' $clients off - \
		window_hand window_new_from window_empty
	compare 'window: further hits, FROM idem_window(), against an INSERT' $clients off - \
		window_hand window_again_from window_fill
	compare 'window: first hit against an INSERT, unlogged' $clients off - \
		window_hand_unlogged window_new window_empty
	compare 'window: further hits against an INSERT, unlogged' $clients off - \
		window_hand_unlogged window_again window_fill
done
sql "
	INSERT INTO hand_hit SELECT 'default', 'full' || i, now() FROM generate_series(1, 5) AS i;
	SELECT count(*) FROM generate_series(1, 5) AS i, LATERAL idem_window('full' || i, '1 day');" >/dev/null
compare 'window: refused against a SELECT by primary key' 4 off - \
	window_hand_select window_refused :
