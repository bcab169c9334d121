-- idem_canonical and idem_fingerprint.  Everything printed is ASCII, so that
-- it reads the same in every client encoding.

SET extra_float_digits = 1;

CREATE FUNCTION pg_temp.shown(s text) RETURNS text LANGUAGE sql AS $$
	SELECT string_agg(CASE WHEN ascii(c) < 127 THEN c ELSE format('<%s>', to_hex(ascii(c))) END, '' ORDER BY n)
	FROM regexp_split_to_table(s, '') WITH ORDINALITY AS r (c, n)
$$;

-- The double with these bits, by arithmetic that is exact.
CREATE FUNCTION pg_temp.double(bits text) RETURNS float8 LANGUAGE sql AS $$
	SELECT CASE WHEN b < 0 THEN -1 ELSE 1 END * CASE WHEN e = 0 THEN m ELSE m + 2 ^ 52 END * 2::float8 ^ (greatest(e, 1) - 1075)
	FROM (SELECT b, (b >> 52) & 2047, (b & ((1::bigint << 52) - 1))::float8
		FROM (SELECT ('x' || bits)::bit(64)::bigint) AS x (b)) AS y (b, e, m)
$$;

-- RFC 8785, 3.2.2: the example, whose first number no double holds ...
SELECT pg_temp.shown(idem_canonical('{
	"numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
	"string": "\u20ac$\u000F\u000aA''\u0042\u0022\u005c\\\"\/",
	"literals": [null, true, false]
}'));
-- ... and, 3.2.4, its bytes, with that number as the double it stands for.
SELECT encode(convert_to(idem_canonical(jsonb_build_object(
	'numbers', jsonb_build_array('333333333.33333329'::float8, '1E30'::float8, 4.50, 2e-3, 0.000000000000000000000000001),
	'string', '"\u20ac$\u000F\u000aA''\u0042\u0022\u005c\\\"\/"'::jsonb,
	'literals', '[null, true, false]'::jsonb)), 'UTF8'), 'hex');

-- 3.2.3: keys by UTF-16 code unit, emoji before U+FB33
SELECT pg_temp.shown(idem_canonical('{
	"\u20ac": "Euro Sign",
	"\r": "Carriage Return",
	"\ufb33": "Hebrew Letter Dalet With Dagesh",
	"1": "One",
	"\ud83d\ude00": "Emoji: Grinning Face",
	"\u0080": "Control",
	"\u00f6": "Latin Small Letter O With Diaeresis"
}'));

-- Appendix B: as JSON text, and as a double.  PostgreSQL writes 1e23, which
-- lies halfway between two doubles, as another decimal of the same double.
SELECT expected, idem_canonical(expected::jsonb) = expected AS as_text, idem_canonical(to_jsonb(pg_temp.double(bits))) AS as_double
FROM (VALUES
	(1, '0000000000000000', '0'),
	(2, '8000000000000000', '0'),
	(3, '0000000000000001', '5e-324'),
	(4, '8000000000000001', '-5e-324'),
	(5, '7fefffffffffffff', '1.7976931348623157e+308'),
	(6, 'ffefffffffffffff', '-1.7976931348623157e+308'),
	(7, '4340000000000000', '9007199254740992'),
	(8, 'c340000000000000', '-9007199254740992'),
	(9, '4430000000000000', '295147905179352830000'),
	(10, '44b52d02c7e14af5', '9.999999999999997e+22'),
	(11, '44b52d02c7e14af6', '1e+23'),
	(12, '44b52d02c7e14af7', '1.0000000000000001e+23'),
	(13, '444b1ae4d6e2ef4e', '999999999999999700000'),
	(14, '444b1ae4d6e2ef4f', '999999999999999900000'),
	(15, '444b1ae4d6e2ef50', '1e+21'),
	(16, '3eb0c6f7a0b5ed8c', '9.999999999999997e-7'),
	(17, '3eb0c6f7a0b5ed8d', '0.000001'),
	(18, '41b3de4355555553', '333333333.3333332'),
	(19, '41b3de4355555554', '333333333.33333325'),
	(20, '41b3de4355555555', '333333333.3333333'),
	(21, '41b3de4355555556', '333333333.3333334'),
	(22, '41b3de4355555557', '333333333.33333343'),
	(23, 'becbf647612f3696', '-0.0000033333333333333333'),
	(24, '43143ff3c1cb0959', '1424953923781206.2')
) AS appendix_b (n, bits, expected) ORDER BY n;
-- what is no number in JSON is a string in jsonb already
SELECT idem_canonical(to_jsonb('NaN'::float8)), idem_canonical(to_jsonb('-Infinity'::numeric));

-- Numbers: one value, one form ...
SELECT idem_canonical('[1, 1.0, 1.000, 10e-1, 0.1e1, 0.1E+1]'), idem_canonical('[0, -0, 0.0, -0.0, 0e5, -0e-5, 0E+10]'),
	idem_canonical('[100, 1e2, 1E+2, 1.00e2, 1000e-1]'), idem_canonical('[0.1, 1e-1, 0.10, 100e-3, -0.1]');
-- ... at the edges of each layout ...
SELECT idem_canonical('[999999999999999999999, 100000000000000000000, 1000000000000000000000, 1234567890123456789012, 120000000000000000000]'),
	idem_canonical('[0.000001, 0.0000001, 0.00000123, 0.000000123, 0.0000099, -0.000001, -0.0000001]'),
	idem_canonical('[9999, 10000, 10001, 99999999, 100000000, 10000.0001, 123456.7, 0.0001, 0.00001, 0.00012345]');
-- ... and exact where a double is not: each pair stays two values.
SELECT idem_canonical('[9007199254740992, 9007199254740993]'), idem_canonical('[0.1, 0.10000000000000001]'),
	idem_canonical('[1e400, 1.5e-400, -1e400]'), idem_canonical('[1152921504606846976, 1152921504606847000]');
SELECT idem_canonical(to_jsonb(10::numeric ^ 1000 + 1)) = '1.' || repeat('0', 999) || '1e+1000' AS long,
	idem_canonical(to_jsonb(1 / 10::numeric ^ 1000)) AS small, idem_canonical('1e131071') AS large,
	idem_canonical(to_jsonb(-repeat('1234567890', 30)::numeric)) = '-1.' || rtrim(substr(repeat('1234567890', 30), 2), '0') || 'e+299' AS digits;

-- Strings: what must be escaped, and nothing else, at every place of a word
SELECT idem_canonical(to_jsonb(string_agg(chr(n), '' ORDER BY n))) FROM generate_series(1, 126) AS n;
SELECT pg_temp.shown(idem_canonical('"\u007f\u0080\u009f\u00a0\u2028\u2029\ufeff\ufffd\uffff\ud800\udc00\udbff\udfff \/ \u002f \u0041"'));
SELECT count(*) AS wrong FROM generate_series(0, 17) AS before, generate_series(0, 17) AS after,
	(VALUES (E'\x01', '\u0001'), (E'\x1f', '\u001f'), ('"', '\"'), ('\', '\\'), (E'\n', '\n'), (' ', ' '), ('!', '!'), ('#', '#'), ('[', '['), (']', ']'),
		(E'\x7f', E'\x7f'), (U&'\00a2', U&'\00a2'), (U&'\0722', U&'\0722'), (U&'\+01f600', U&'\+01f600')) AS c (raw, escaped)
WHERE idem_canonical(to_jsonb(repeat('x', before) || raw || repeat('y', after))) IS DISTINCT FROM
	'"' || repeat('x', before) || escaped || repeat('y', after) || '"';

-- Keys: by code unit, not by length, nor by code point
SELECT pg_temp.shown(idem_canonical('{"b": 1, "aa": 2, "a": 3, "": 4, "B": 5, "\"": 6, "a\u0001": 7, "\u0001": 8, "10": 9, "9": 10}'));
SELECT pg_temp.shown(idem_canonical('{"\ud7ff": 1, "\ue000": 2, "\uffff": 3, "\ud800\udc00": 4, "\udbff\udfff": 5, "\ud83d\ude00": 6, "\ud83d\ude01": 7, "\uefff": 8}'));
SELECT pg_temp.shown(idem_canonical('{"x\ue000": 1, "x\ud800\udc00": 2, "x\ud800\udc00a": 3, "x": 4, "x\uffff": 5, "\ue000x": 6, "\ud800\udc00x": 7}'));
SELECT pg_temp.shown(idem_canonical('{"a": 1, "b": 2, "a": 3}')) AS last_wins;
SELECT count(*), bool_and(key COLLATE "C" > before COLLATE "C") AS sorted
FROM (SELECT key, lag(key, 1, '') OVER (ORDER BY n) AS before
	FROM json_object_keys(idem_canonical((SELECT jsonb_object_agg('k' || n, n) FROM generate_series(1, 20000) AS n))::json) WITH ORDINALITY AS k (key, n)) AS k;

-- Structure
SELECT idem_canonical('null'), idem_canonical('true'), idem_canonical('false'), idem_canonical('""'), idem_canonical('-12.50'), idem_canonical('[]'), idem_canonical('{}');
SELECT idem_canonical(' [ [ ] , { } , [ [ ] , [ { } ] ] , { "b" : [ 1 , { "d" : { } , "c" : [ ] } ] , "a" : { "a" : null } } , "x" ] ');
SELECT idem_canonical(d) = '[' || string_agg(format('{"id":%s,"tags":["t%s",null]}', n, n), ',' ORDER BY n) || ']' AS long_array
FROM generate_series(1, 1000) AS n, (SELECT jsonb_agg(jsonb_build_object('tags', jsonb_build_array('t' || m, NULL), 'id', m) ORDER BY m) FROM generate_series(1, 1000) AS m) AS a (d)
GROUP BY d;
SELECT idem_canonical((repeat('[', 5000) || repeat(']', 5000))::jsonb) = repeat('[', 5000) || repeat(']', 5000) AS deep_array,
	idem_canonical((repeat('{"b":[', 2500) || '1' || repeat('],"a":0}', 2500))::jsonb) = repeat('{"a":0,"b":[', 2500) || '1' || repeat(']}', 2500) AS deep_object;

-- The form of the form is itself.
SELECT bool_and(idem_canonical(idem_canonical(d)::jsonb) = idem_canonical(d)) AS stable
FROM (VALUES ('{"b": [1.50, {"\ue000": 1e-9, "\ud83d\ude00": "\u0001\"\\"}], "a": null}'::jsonb), ('[1e400, 9007199254740993, -0.0]')) AS v (d);

-- Fingerprints: SHA-256 of the form, behind the version
SELECT idem_fingerprint('{}'), idem_fingerprint('{"b": 1.0, "a": [true, null]}') = '1.' || rtrim(translate(encode(sha256('{"a":[true,null],"b":1}'), 'base64'), '+/', '-_'), '=') AS by_hand;
SELECT count(*), count(DISTINCT f) AS distinct, min(length(f)), max(length(f)), bool_and(f ~ '^1\.[A-Za-z0-9_-]{43}$') AS url_safe,
	bool_and(f = '1.' || rtrim(translate(encode(sha256(n::text::bytea), 'base64'), '+/', '-_'), '=')) AS by_hand
FROM (SELECT n, idem_fingerprint(to_jsonb(n)) FROM generate_series(1, 1000) AS n) AS s (n, f);
SELECT n, idem_fingerprint(a) = idem_fingerprint(b) AS same, expected
FROM (VALUES
	(1, '{"amount": 1.0, "to": 7}'::jsonb, '{"to": 7.00, "amount": 1}'::jsonb, true),
	(2, '{"a": {"b": [1e2, "x"], "c": -0}}', '{"a": {"c": 0, "b": [100.0, "\u0078"]}}', true),
	(3, '{"a": null}', '{}', false),
	(4, '9007199254740992', '9007199254740993', false),
	(5, '[1, 2]', '[2, 1]', false),
	(6, '"1"', '1', false),
	(7, '{"a": "b"}', '["a", "b"]', false),
	(8, '[[1], 2]', '[1, [2]]', false),
	(9, '"\u00e9"', '"e\u0301"', false),
	(10, '[]', '{}', false),
	(11, 'null', '"null"', false),
	(12, '{"a": 1, "b": {}}', '{"a": {}, "b": 1}', false)
) AS v (n, a, b, expected) ORDER BY n;

-- No argument, no answer; and a document from a table, compressed
SELECT idem_canonical(NULL), idem_fingerprint(NULL);
CREATE TEMPORARY TABLE documents (d jsonb);
INSERT INTO documents SELECT jsonb_build_object('b', repeat('long ', 20000), 'a', 1.0);
SELECT idem_canonical(d) = '{"a":1,"b":"' || repeat('long ', 20000) || '"}' AS toasted,
	idem_fingerprint(d) = '1.' || rtrim(translate(encode(sha256(idem_canonical(d)::bytea), 'base64'), '+/', '-_'), '=') AS digest
FROM documents;
CREATE INDEX ON documents (idem_fingerprint(d));

-- Digests of every length, short and long
SELECT count(*) AS lengths, count(*) FILTER (WHERE idem_fingerprint(d) = '1.' || rtrim(translate(encode(sha256(idem_canonical(d)::bytea), 'base64'), '+/', '-_'), '=')) AS right
FROM generate_series(0, 300) n, to_jsonb(repeat('x', n)) d;

SELECT proname, provolatile, proisstrict, proparallel, obj_description(oid, 'pg_proc') AS comment
FROM pg_proc WHERE proname IN ('idem_canonical', 'idem_fingerprint') ORDER BY proname;
