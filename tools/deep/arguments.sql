-- try_arguments(function, n): calls a function n times with arguments made at
-- random, and tells by a WARNING how many it answered.  What must not be is told by a WARNING that begins with FOUND.  Whatever
-- is secret by contract has "hush" in it.
SET client_min_messages = warning;
CREATE EXTENSION idem;

CREATE FUNCTION greet(who text, n int) RETURNS text LANGUAGE sql AS $$SELECT 'hello ' || who || n$$;
CREATE FUNCTION broken(who text) RETURNS int LANGUAGE sql AS $$SELECT 1 / 0$$;
CREATE TYPE pair AS (a int, b text);
CREATE FUNCTION pairs(p pair, VARIADIC n int[]) RETURNS SETOF pair LANGUAGE sql AS $$SELECT p FROM unnest(n)$$;
SELECT idem_wrap('greet(text,int)');
CREATE TABLE page (id int PRIMARY KEY, body text, version int NOT NULL DEFAULT 1);
INSERT INTO page VALUES (1, 'a'), (2, 'b');
SELECT idem_attach_version('page', 'version');
CREATE TABLE "odd "" table" (a int, "odd "" column" text, PRIMARY KEY (a, "odd "" column"));
CREATE TABLE bare (x int, y text);
CREATE TABLE parted (id int PRIMARY KEY, state text NOT NULL DEFAULT 'draft') PARTITION BY RANGE (id);
CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (0) TO (100);
CREATE VIEW seen AS SELECT * FROM page;
CREATE TABLE orders (id int PRIMARY KEY, state text NOT NULL DEFAULT 'draft');
SELECT idem_define('order', $$
stateDiagram-v2
    [*] --> draft
    draft --> pending : submit
    pending --> draft : revise
$$);
SELECT idem_attach('order', 'orders', 'state', history => true);
INSERT INTO orders VALUES (1), (2);

CREATE FUNCTION one_of(VARIADIC choices text[]) RETURNS text LANGUAGE sql AS
	$$SELECT choices[1 + floor(random() * cardinality(choices))::int]$$;

-- An argument as an expression.
CREATE FUNCTION argument(type text, name text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	secret bool := name IN ('key', 'keys', 'request', 'response', 'responses', 'error', 'token', 'progress',
		'context', 'args', 'changes', 'saga', 'subject', 'owner') AND random() < 0.5;
BEGIN
	-- to wait for ever is what NULL asks for
	IF name = 'wait' THEN
		RETURN one_of('''0 s''', '''10 ms''', '''-1 s''', '''1 us''') || '::interval';
	ELSIF random() < 0.12 THEN
		RETURN 'NULL' || CASE WHEN type ~ '^("?any|internal)' THEN '' ELSE '::' || type END;
	ELSIF random() < 0.03 THEN
		RETURN one_of('1', '''x''::text', '''{}''::jsonb', 'ARRAY[1]', 'now()', '''\x00''::bytea', 'point(1, 1)');
	END IF;
	CASE
		WHEN type = 'text' AND secret THEN
			RETURN one_of('''hush''', '''hush ""''', 'repeat(''hush'', 300)', 'repeat(''hush'', 256)', 'E''hush\n''',
				'''{"a": "hush"''', '''s1.hush''', '''hush/a''');
		WHEN type IN ('text', 'name', 'cstring') THEN
			RETURN one_of('''''', ''' ''', '''k''', '''default''', 'repeat(''x'', 1024)', 'repeat(''x'', 1025)',
				'repeat(''ü'', 513)', 'repeat(''y'', 1000000)', '''a.b.c''', '''odd " name''', '''a''''b''', '''0''', '''-1''',
				'''1''', '''lease''', '''session''', '''transaction''', '''try''', '''confirm''', '''cancel''', '''mermaid''',
				'''dot''', '''app''', '''operator''', '''order''', '''orders''', '''submit''', '''revise''', '''state''',
				'''version''', '''id''', '''any''', '''observe''', '''enforce''', '''read''', 'E''\x01''', '''%s%n''',
				'''{"id": 1}''', '''{''', '''99999999999999999999''', '''postgres''', '''public''', '''greet(text,int)''',
				'''broken(text)''', 'idem_token_issue(''p'', ''s'')',
				E'E''stateDiagram-v2\\n[*] --> a\\na --> b : e''', E'E''stateDiagram-v2\\nstate x {\\n''',
				'E''stateDiagram-v2\n'' || repeat(''a --> b : e\n'', 3000)') ||
				CASE WHEN type <> 'text' THEN '::' || type ELSE '' END;
		WHEN type IN ('integer', 'bigint') THEN
			RETURN one_of('0', '1', '2', '-1', '5', '100', '10001', '2147483647', '(-2147483648)', '9223372036854775807',
				'(-9223372036854775808)');
		WHEN type = 'boolean' THEN
			RETURN one_of('true', 'false');
		WHEN type = 'interval' THEN
			RETURN one_of('''0''', '''1 s''', '''-1 s''', '''1 us''', '''1 month -30 days''', '''1 day''', '''100 years''',
				'''178000000 years''', '''-178000000 years''', '''2147483647 days''') || '::interval';
		WHEN type = 'timestamp with time zone' THEN
			RETURN one_of('''infinity''', '''-infinity''', '''epoch''', '''now''', '''294276-12-31''', '''4713-01-01 BC''') ||
				'::timestamptz';
		WHEN type IN ('json', 'jsonb') AND secret THEN
			RETURN one_of('''{"who": "hush", "n": "hush"}''', '''{"who": "a", "n": "hush"}''', '''"hush"''', '''["hush"]''',
				'''{"hush": 1}''', '''{"body": {"a": "hush"}}''', '''{"id": "hush"}''', '''{"version": "hush"}''',
				'''{"p": "hush", "n": ["hush"]}''', '''{"p": {"a": "hush"}}''', '''{"body": "hush", "id": 2}''') || '::' || type;
		WHEN type IN ('json', 'jsonb') THEN
			RETURN one_of('''{}''', '''[]''', '''null''', '''"x"''', '''1e400''', '''1e-400''', '''{"a": {"b": [1, 2.50, null]}}''',
				'''{"who": "a", "n": 1}''', '''{"id": 1}''', '''{"id": null}''', '''{"a": 1, "odd \" column": "x"}''', '''{"body": "x"}''',
				'''{"": ""}''', '''["\ud83d\ude00"]''', '(repeat(''['', 5000) || repeat('']'', 5000))',
				'(''"'' || repeat(''z'', 1000000) || ''"'')') || '::' || type;
		WHEN type = 'regclass' THEN
			RETURN one_of('''page''', '''page''', '''orders''', '''orders''', '''bare''', '''"odd "" table"''', '''parted''',
				'''parted_1''', '''seen''', '''page_pkey''', '''pg_class''', '''idem.key''', '''idem.history''', '0', '4294967295') ||
				'::regclass';
		WHEN type = 'regprocedure' THEN
			RETURN one_of('''greet(text,int)''', '''greet(text,int)''', '''greet_once(text,text,int)''', '''broken(text)''',
				'''pairs(pair,int[])''', '''now()''', '''sum(int)''', '''rank()''', '''int4in(cstring)''', '''format(text,"any")''',
				'''idem_once(text,text,interval)''', '0', '4294967295') || '::regprocedure';
		WHEN type IN ('text[]', 'name[]') THEN
			RETURN one_of('''{}''', '''{NULL}''', '''{id,id}''', '''{id}''', '''{body}''', '''{nothing}''', '''{{id,body},{x,y}}''',
				'''[5:6]={id,body}''', 'array_fill(''k''::text, ARRAY[5000])',
				CASE WHEN secret THEN '''{hush,hush 2}''' ELSE '''{a,b}''' END) || '::' || type;
		WHEN type = 'anyarray' THEN
			RETURN one_of('ARRAY[1, 2]', 'ARRAY[''1'', NULL]', '''{}''::int[]', 'ARRAY[NULL::int]', 'ARRAY[ARRAY[1, 2]]',
				'''{1}''::text[]', 'ARRAY[point(1, 1)]');
		WHEN type IN ('"any"', 'anyelement') THEN
			RETURN one_of('1', '2::bigint', '''1''::text', '''x''::text', 'NULL::int', 'point(1, 1)', 'ROW(1, ''x'')', 'ARRAY[1]',
				'''\x00''::bytea', '1.5', '''{"id": 1}''::jsonb', '''1''', '9223372036854775807');
		WHEN type = 'idem_inserted' THEN
			RETURN '''(0,1)''::tid::idem_inserted';
		ELSE
			RETURN 'NULL::' || type;
	END CASE;
END $$;

CREATE FUNCTION try_arguments(f oid, n int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	p pg_proc;
	call text;
	arguments text[];
	given int;
	state text;
	message text;
	detail text;
	hint text;
	answered int := 0;
	refused int := 0;
BEGIN
	SELECT * INTO p FROM pg_proc WHERE oid = f;
	FOR i IN 1 .. n LOOP
		given := p.pronargs - floor(random() * random() * (p.pronargdefaults + 1))::int;
		arguments := '{}';
		FOR a IN 0 .. given - 1 LOOP
			arguments := arguments || argument(format_type(p.proargtypes[a], NULL), p.proargnames[a + 1]);
		END LOOP;
		call := format('SELECT * FROM %I(%s)%s', p.proname, array_to_string(arguments, ', '),
			CASE WHEN p.prorettype = 'record'::regtype AND p.proallargtypes IS NULL THEN ' AS t(x text)' ELSE '' END);
		BEGIN
			EXECUTE call;
			answered := answered + 1;
			-- half of what went well stays
			IF random() < 0.5 THEN
				RAISE EXCEPTION USING ERRCODE = 'UNDO0';
			END IF;
		EXCEPTION WHEN OTHERS THEN
			GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT,
				detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
			refused := refused + (state <> 'UNDO0')::int;
			IF state ~ '^XX' THEN
				RAISE WARNING 'FOUND internal error: % %: %', state, left(message, 300), left(call, 500);
			ELSIF concat(message, detail, hint) ~ 'hush' THEN
				RAISE WARNING 'FOUND secret told: % % / % / %: %', state, left(message, 300), left(detail, 300), left(hint, 300),
					left(call, 500);
			END IF;
		END;
	END LOOP;
	RAISE WARNING 'CALLED % % % %', p.proname, n, answered, refused;
END $$;
