-- What idem_define refuses, and how it says where.
\set VERBOSITY terse

CREATE FUNCTION pg_temp.try(definition text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	detail text;
	hint text;
	context text;
BEGIN
	PERFORM idem_define('m', definition);
	RAISE EXCEPTION 'accepted' USING ERRCODE = '00001';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT,
		context = PG_EXCEPTION_CONTEXT;
	RETURN concat_ws(E'\n    ', SQLSTATE || ' ' || SQLERRM, nullif(detail, ''), nullif(hint, ''),
		CASE WHEN SQLERRM LIKE 'guard%' THEN split_part(context, E'\n', 1) END);
END $$;

\pset format unaligned
\pset tuples_only on

-- Lines.
SELECT line || E'\n    ' || pg_temp.try(E'stateDiagram-v2\n[*] --> a\n' || line) FROM unnest(ARRAY[
	'a -> b', 'a --> ', 'a --> b c', '--> b', 'a b', '"x" --> b', 'a --> b :: x',
	'[*] --> [*]', '[*] --> b : create', 'a --> [*] : end', 'a --> *', '* --> [*]', '[*] --> [any]',
	'state x {', 'state "x y" as x {', '}', 'state f <<fork>>', 'state f [[choice]]', '--', 'state "x', 'state "x" y', 'state [*]',
	'state "" as x', 'state "*" as x', E'state "a" as x', E'state "x" as y\nstate "z" as y',
	'a --> b : go now', 'a --> b : go [x', 'a --> b : go [x] now', 'a --> b : go by', 'a --> b : go by x,', 'a --> b : go by x y',
	'a --> b : go after', 'a --> b : go after soon', 'a --> b : go after 1 day by x', 'a --> b : go after -1 day', 'a --> b : go after 2000 years', 'a --> b : "go', 'a --> b : ""',
	'a --> b : go [1 +]', 'a --> b : go [a, b]', 'a --> b : go [a from b]', 'a --> b : go []', 'a --> b : go [$1]', 'a --> b : go by nobody_like_this',
	'a --> b : go after 1 h by x', 'a --> b : go by x [new.y]', 'a --> b : go [new.y] [old.y]', 'a --> b : after 1 h go',
	'a --> b : #nonsense;', 'a --> b : "x#0;"', 'a --> b : "x#55296;"', 'a --> b : x#y',
	'a, b --> c : x', 'a --> b, c', 'a --> b --> c', 'a --> b : [ ] by x', 'note right of aa : frozen', E'note right of aa\nas drawn\nend note', 'note right of a b : frozen',
	'note above a : frozen', 'note right of a : frozn', 'note right of a : frozen, and more', E'note right of a\nfrozen', 'note right of * : frozen',
	E'a --> [*]\na --> b', 'stateDiagram-v2',
	'a --> ' || repeat('x', 129), 'a --> b : ' || repeat('x', 129), 'a --> b : go by ' || repeat('x', 64),
	E'%%{init: {\n', E'accDescr {\n']) AS line;

-- The whole.
SELECT coalesce(nullif(text, ''), '(empty)') || E'\n    ' || pg_temp.try(text) FROM unnest(ARRAY[
	'', E'\n\n', 'flowchart LR', E'%% only\n', E'---\ntitle: x\n', 'stateDiagram-v2', E'stateDiagram-v2\na --> b', 'stateDiagram-v3',
	'stateDiagram-v2 x']) AS text;
SELECT pg_temp.try('stateDiagram-v2' || repeat(E'\n[*] --> a', 100000));
SELECT pg_temp.try(E'stateDiagram-v2\n[*] --> a\na --> b : go [' || repeat('(', 100000) || ']') LIKE 'ID500%' OR true;
SELECT pg_temp.try(E'stateDiagram-v2\n[*] --> a\na --> b : go [' || repeat('[', 100000));

-- What never stood there.
SELECT count(*) FROM idem.machine;
