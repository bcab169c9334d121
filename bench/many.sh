#
# bench/many.sh
#	  idem_once_many() of 1,000 message ids in one call, against INSERT … SELECT
#	  unnest … RETURNING.  The arrays are ready in a table that both sides read.
#

batches=300

sql "
	CREATE TABLE batch (id int PRIMARY KEY, keys text[] NOT NULL);
	ALTER TABLE batch ALTER COLUMN keys SET STORAGE EXTERNAL;
	INSERT INTO batch
	SELECT b, array_agg(gen_random_uuid()::text)
	FROM generate_series(1, $batches) b, generate_series(1, 1000) k
	GROUP BY b;
	VACUUM ANALYZE batch;
	CREATE SEQUENCE batch_next;"

script many_hand <<'END'
INSERT INTO hand (scope, key, state, attempt, created_at, finished_at, expires_at) SELECT 'default', k, 'completed', 1, now(), now(), now() + interval '24 h' FROM batch, unnest(keys) k WHERE id = (SELECT nextval('batch_next')) ON CONFLICT DO NOTHING RETURNING key;
END
script many_idem <<'END'
SELECT n FROM batch, idem_once_many(keys) n WHERE id = (SELECT nextval('batch_next'));
END

# each side takes every batch once, and the sequence starts anew
sql "ALTER SEQUENCE batch_next MAXVALUE $batches CYCLE"

compare 'once_many, 1,000 keys all new, sync off' 1 off '>= 1.10' \
	many_hand many_idem tables_empty -t $batches

tables_empty
sql "
	INSERT INTO idem.key (scope, key, state, attempt, expires_at, created_at,
						  finished_at)
	SELECT 'default', k, 'completed', 1, now() + interval '24 h', now(), now()
	FROM batch, unnest(keys) k;
	INSERT INTO hand SELECT * FROM idem.key;
	VACUUM ANALYZE hand;
	VACUUM ANALYZE idem.key;"
compare 'once_many, 1,000 keys all old, sync off' 1 off '>= 1.20' \
	many_hand many_idem : -t $batches
