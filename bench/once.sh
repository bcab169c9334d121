#
# bench/once.sh
#	  idem_once() of a new key, against the INSERT that people write; and sessions
#	  that connect, do one of them, and end, where the call loads the library.
#

script once_hand <<'END'
INSERT INTO hand (scope, key, state, attempt, created_at, finished_at, expires_at) VALUES ('default', :k, 'completed', 1, now(), now(), now() + interval '24 h') ON CONFLICT DO NOTHING;
END
script once_idem <<'END'
SELECT idem_once(:k);
END

for clients in 1 4 16
do
	compare 'once, new key, sync off' $clients off '>= 1.00' \
		once_hand once_idem tables_empty
done
SESSION_OPTIONS='-c session_preload_libraries=' \
	compare 'connect, and once, library not preloaded, sync off' 1 off - \
	once_hand once_idem tables_empty -C
