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
	CREATE INDEX ON hand_token (subject, purpose);
	CREATE SEQUENCE hand_next;
	CREATE SEQUENCE idem_next;" >/dev/null

# tokens are the digests of numbers, so that a script can name the next one
tokens=300000
tokens_fill()
{
	sql "
		TRUNCATE hand_token, idem.token;
		ALTER SEQUENCE hand_next RESTART;
		ALTER SEQUENCE idem_next RESTART;
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

script token_hand <<END
SELECT i, rpad(i::text, 43, 'x') AS t, 'u' || i % 1000 AS u FROM nextval('hand_next') AS i \\gset
DELETE FROM hand_token WHERE hash = sha256(:t::text::bytea) AND purpose = 'bench' AND subject = :u AND expires_at > clock_timestamp() RETURNING created_at;
END
script token_idem <<END
SELECT i, rpad(i::text, 43, 'x') AS t, 'u' || i % 1000 AS u FROM nextval('idem_next') AS i \\gset
SELECT idem_token_use(:t, 'bench', :u);
END
for clients in 1 4
do
	compare 'token, use, against DELETE ... RETURNING by hash' $clients off '>= 1.00' \
		token_hand token_idem tokens_fill
done

script token_issue_hand <<END
INSERT INTO hand_token VALUES (sha256((random() || :k::text)::bytea), now(), now() + interval '15 min', 'bench', :k::text) RETURNING hash;
END
script token_issue_idem <<END
SELECT idem_token_issue('bench', :k::text);
END
compare 'token, issue, against an INSERT' 4 off - token_issue_hand token_issue_idem tokens_fill
