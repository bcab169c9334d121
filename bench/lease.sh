#
# bench/lease.sh
#	  A durable lease claim of a new key, against INSERT … RETURNING with a fence
#	  from a sequence.
#

script lease_hand <<'END'
INSERT INTO hand (scope, key, state, hold, attempt, fence, lease_until, expires_at, created_at, claimed_at) VALUES ('default', :k, 'in_progress', 'lease', 1, nextval('hand_fence'), clock_timestamp() + interval '60 s', clock_timestamp() + interval '24 h 60 s', now(), clock_timestamp()) ON CONFLICT DO NOTHING RETURNING attempt, fence, lease_until;
END
script lease_idem <<'END'
SELECT * FROM idem_claim(:k, lease => '60 s');
END

for clients in 1 4 16 32
do
	compare 'lease claim, new key, sync on' $clients on '>= 0.95' \
		lease_hand lease_idem tables_empty
done
