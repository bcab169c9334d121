#
# bench/token.sh
#	  idem_token_use() of a token that was issued, against the DELETE ... RETURNING by
#	  hash that people write; idem_token_issue() against the INSERT for it.
#

sql "
	CREATE TABLE hand_token (
		hash bytea PRIMARY KEY,
		created_at timestamptz NOT NULL,
		expires_at timestamptz NOT NULL,
		purpose text NOT NULL,
		subject text
	);
	CREATE INDEX ON hand_token (subject, purpose);" >/dev/null

# tokens are numbers at full length, so that a client can name its next one
each=60000
tokens=$((4 * each))
tokens_fill()
{
	sql "
		TRUNCATE hand_token, idem.token;
		INSERT INTO hand_token
		SELECT sha256(rpad(i::text, 43, 'x')::bytea), now(), now() + interval '1 h', 'bench', 'u' || i % 1000
		FROM generate_series(1, $tokens) i;
		INSERT INTO idem.token (hash, created_at, expires_at, purpose, subject)
		SELECT sha256(rpad(i::text, 43, 'x')::bytea), now(), now() + interval '1 h', 'bench', 'u' || i % 1000
		FROM generate_series(1, $tokens) i;
		VACUUM ANALYZE hand_token;
		VACUUM ANALYZE idem.token;
		CHECKPOINT" >/dev/null
}

next="\\set n :n + 1
\\set i :client_id * $each + :n
\\set u :i % 1000"
script token_hand <<END
$next
DELETE FROM hand_token WHERE hash = sha256(rpad(:i::text, 43, 'x')::bytea) AND purpose = 'bench' AND subject = 'u' || :u::text AND expires_at > clock_timestamp() RETURNING created_at;
END
script token_idem <<END
$next
SELECT idem_token_use(rpad(:i::text, 43, 'x'), 'bench', 'u' || :u::text);
END
for clients in 1 4
do
	compare 'token, use, against DELETE ... RETURNING by hash' $clients off '>= 1.00' \
		token_hand token_idem tokens_fill -D n=0
done

script token_issue_hand <<END
INSERT INTO hand_token VALUES (sha256((random() || :k::text)::bytea), now(), now() + interval '15 min', 'bench', :k::text) RETURNING hash;
END
script token_issue_idem <<END
SELECT idem_token_issue('bench', :k::text);
END
compare 'token, issue, against an INSERT' 4 off - token_issue_hand token_issue_idem tokens_fill
