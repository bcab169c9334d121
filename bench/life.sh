#
# bench/life.sh
#	  A claim's whole life in one transaction: claim, one business UPDATE, complete
#	  with a response of 200 bytes.  By hand that is an INSERT, the same UPDATE, and
#	  an UPDATE.
#
# Three forms: a round trip for each of the five statements; the five in one
# pipeline; and, only with idem, a single statement.  By hand one statement
# cannot do it, because it may not touch one row twice; that form is held
# against the five round trips and against the pipeline.
#

hand_statements()
{
	cat <<'END'
BEGIN;
INSERT INTO hand (scope, key, state, hold, attempt, created_at) VALUES ('default', :k, 'in_progress', 'transaction', 1, now()) ON CONFLICT DO NOTHING RETURNING attempt;
UPDATE account SET balance = balance + 1 WHERE id = :a;
UPDATE hand SET state = 'completed', response = :response, code = 200, finished_at = now(), expires_at = now() + interval '24 h' WHERE scope = 'default' AND key = :k;
COMMIT;
END
}

idem_statements()
{
	cat <<'END'
BEGIN;
SELECT * FROM idem_claim(:k);
UPDATE account SET balance = balance + 1 WHERE id = :a;
SELECT idem_complete(:k, :response, code => 200);
COMMIT;
END
}

account='\set a random(1, 100000)'
script life_hand < <(echo "$account"; hand_statements)
script life_idem < <(echo "$account"; idem_statements)
script life_hand_pipe < <(echo "$account"; echo '\startpipeline'
	hand_statements; echo '\endpipeline')
script life_idem_pipe < <(echo "$account"; echo '\startpipeline'
	idem_statements; echo '\endpipeline')
script life_idem_cte <<END
$account
WITH c AS MATERIALIZED (SELECT * FROM idem_claim(:k)), w AS (UPDATE account SET balance = balance + 1 FROM c WHERE c.run AND c.attempt = 1 AND account.id = :a RETURNING account.id), n AS (SELECT count(*) AS rows FROM w) SELECT c.run, c.outcome, CASE WHEN n.rows > 0 THEN idem_complete(:k, :response, code => 200) END FROM c, n;
END

for clients in 1 4 16
do
	compare 'whole life, five statements, sync off' $clients off '>= 1.00' \
		life_hand life_idem tables_empty
done
compare 'whole life, five statements, sync on' 16 on '>= 1.00' \
	life_hand life_idem tables_empty
compare 'whole life, pipelined, sync off' 4 off '>= 1.00' \
	life_hand_pipe life_idem_pipe tables_empty
compare 'whole life, one statement against five by hand, sync off' 4 off \
	'>= 1.00' life_hand life_idem_cte tables_empty
compare 'whole life, one statement against five pipelined, sync off' 4 off \
	- life_hand_pipe life_idem_cte tables_empty
