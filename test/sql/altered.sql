-- What the owner of idem's tables may do to them, without being a superuser: no
-- value is taken for what it is not, and what he puts into an index runs as he.

SET client_min_messages = warning;
SELECT idem_define('altered', E'stateDiagram-v2\n[*] --> a\na --> b : go [new.id > 0]\na --> c : late after 1h');
CREATE TABLE altered (id int PRIMARY KEY, s text);
SET client_min_messages = error;
SELECT idem_attach('altered', 'altered', 's', history => true);
INSERT INTO altered VALUES (1, 'a');

-- each statement after an alteration that is undone
CREATE FUNCTION pg_temp.after(alteration text, VARIADIC statements text[])
RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	statement text;
BEGIN
	FOREACH statement IN ARRAY statements LOOP
		BEGIN
			EXECUTE alteration;
			EXECUTE statement;
			RAISE EXCEPTION USING ERRCODE = '00001', MESSAGE = 'done';
		EXCEPTION WHEN OTHERS THEN
			RETURN NEXT SQLSTATE || ' ' || SQLERRM;
		END;
	END LOOP;
END $$;
CREATE FUNCTION pg_temp.number(tab text, col text, VARIADIC statements text[])
RETURNS SETOF text LANGUAGE sql AS $$
SELECT pg_temp.after(coalesce(string_agg(format('ALTER TABLE idem.%s DROP CONSTRAINT %s;', tab, conname), ''), '')
	|| format('ALTER TABLE idem.%1$s ALTER %2$s DROP DEFAULT; ALTER TABLE idem.%1$s ALTER %2$s TYPE int8 USING 81985529216486895', tab, col), VARIADIC statements)
FROM pg_constraint WHERE conrelid = format('idem.%s', tab)::regclass AND contype <> 'n'
$$;
CREATE FUNCTION pg_temp.none(tab text, col text, VARIADIC statements text[])
RETURNS SETOF text LANGUAGE sql AS $$
SELECT pg_temp.after(coalesce(string_agg(format('ALTER TABLE idem.%s DROP CONSTRAINT %s;', tab, conname), ''), '')
	|| format('ALTER TABLE idem.%1$s DISABLE TRIGGER USER; ALTER TABLE idem.%1$s ALTER %2$s DROP NOT NULL; UPDATE idem.%1$s SET %2$s = NULL', tab, col), VARIADIC statements)
FROM pg_constraint WHERE conrelid = format('idem.%s', tab)::regclass AND contype <> 'n'
$$;

SELECT col, pg_temp.number('machine', col, $$UPDATE altered SET s = 'b'$$, $$SELECT idem_diagram('altered')$$, $$SELECT idem_define('altered', E'stateDiagram-v2\n[*] --> a')$$)
FROM unnest('{owner}'::text[]) AS col;
SELECT col, pg_temp.none('machine', col, $$UPDATE altered SET s = 'b'$$, $$SELECT idem_diagram('altered')$$, 'SELECT * FROM idem_export()')
FROM unnest('{name,owner}'::text[]) AS col;
SELECT col, pg_temp.number('state', col, $$UPDATE altered SET s = 'b'$$, $$SELECT idem_diagram('altered')$$)
FROM unnest('{name,self}'::text[]) AS col;
SELECT col, pg_temp.none('state', col, $$UPDATE altered SET s = 'b'$$, $$SELECT idem_diagram('altered')$$)
FROM unnest('{machine,name,final,self}'::text[]) AS col;
SELECT col, pg_temp.number('transition', col, $$UPDATE altered SET s = 'b'$$, $$SELECT count(*) FROM idem_lint('altered')$$)
FROM unnest('{event,from_state,to_state,guard,roles,after}'::text[]) AS col;
SELECT col, pg_temp.none('transition', col, $$UPDATE altered SET s = 'b'$$, $$SELECT count(*) FROM idem_lint('altered')$$)
FROM unnest('{event,from_state,to_state,priority}'::text[]) AS col;
UPDATE idem.timer SET due = now() WHERE machine = 'altered';
SELECT col, pg_temp.number('timer', col, 'SELECT count(*) FROM idem_tick()')
FROM unnest('{row_key,since,tries}'::text[]) AS col;
SELECT col, pg_temp.none('timer', col, 'SELECT count(*) FROM idem_tick()')
FROM unnest('{machine,table_schema,row_key,row_hash,state,event,since,tries}'::text[]) AS col;
SELECT col, pg_temp.number('history', col, $$SELECT count(*) FROM idem_history('altered', 1)$$, $$SELECT idem_diagram('altered', counts => true)$$)
FROM unnest('{actor}'::text[]) AS col;
UPDATE altered SET s = 'b';
SELECT pg_temp.none('history', 'to_state', $$SELECT idem_diagram('altered', counts => true)$$);
DELETE FROM idem.token WHERE purpose = 'altered';
SELECT idem_token_issue('altered') AS token \gset
SELECT pg_temp.after('ALTER TABLE idem.token ALTER purpose DROP NOT NULL; UPDATE idem.token SET purpose = NULL', format('SELECT idem_token_use(%L, %L)', :'token', 'altered'));
SELECT pg_temp.after('ALTER VIEW idem.binding RENAME TO former; CREATE VIEW idem.binding AS SELECT ''altered''::text AS machine, ''altered''::regclass AS table_name, 1::int8 AS column_name, ''{}''::jsonb AS options', $$SELECT count(*) FROM idem_lint('altered')$$);
SELECT pg_temp.after('ALTER TABLE idem.sweep_state DROP CONSTRAINT sweep_state_pkey; ALTER TABLE idem.sweep_state ALTER kind DROP NOT NULL; UPDATE idem.sweep_state SET kind = NULL', 'SELECT count(*) FROM idem_sweep()');
SELECT pg_temp.after('ALTER TABLE idem.transition DROP guard; ALTER TABLE idem.transition ADD guard text; UPDATE idem.machine SET owner = owner WHERE name = ''altered''', $$INSERT INTO altered VALUES (2, 'a')$$);
SELECT pg_temp.after('ALTER TABLE idem.transition DROP guard; UPDATE idem.machine SET owner = owner WHERE name = ''altered''', $$INSERT INTO altered VALUES (2, 'a')$$);
-- another thing in its place
SELECT which, pg_temp.after(format('ALTER TABLE idem.%1$s RENAME TO former; CREATE VIEW idem.%1$s AS SELECT * FROM idem.former', which), $$INSERT INTO altered VALUES (2, 'a')$$, $$SELECT idem_once('altered')$$)
FROM unnest('{machine,state,transition,timer,history,scope,key}'::text[]) AS which;

-- what is in his indexes
SELECT idem_detach('altered', 's');
CREATE ROLE regress_idem_installer;
CREATE SCHEMA altered_by AUTHORIZATION regress_idem_installer;
CREATE SEQUENCE altered_by.as_owner;
CREATE SEQUENCE altered_by.as_another;
GRANT ALL ON ALL SEQUENCES IN SCHEMA altered_by TO PUBLIC;
GRANT USAGE ON SCHEMA idem, altered_by TO regress_idem_installer;
\set ON_ERROR_ROLLBACK on
BEGIN;
DO $$
DECLARE
	t text;
BEGIN
	FOREACH t IN ARRAY '{key,history,lease,token,window_hit,branch,timer,machine,state,transition,scope}'::text[] LOOP
		EXECUTE format('ALTER TABLE idem.%s OWNER TO regress_idem_installer', t);
	END LOOP;
END $$;
GRANT SELECT ON idem.binding TO regress_idem_installer;
GRANT USAGE ON SEQUENCE idem.fence, idem.history_seq TO regress_idem_installer;
GRANT CREATE ON SCHEMA idem TO regress_idem_installer;
SET LOCAL ROLE regress_idem_installer;
CREATE FUNCTION altered_by.told(t text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	PERFORM nextval(CASE WHEN CURRENT_USER = 'regress_idem_installer' THEN 'altered_by.as_owner' ELSE 'altered_by.as_another' END);
	RETURN t;
END $$;
CREATE FUNCTION altered_by.tell(t text) RETURNS text IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN RETURN altered_by.told(t); END $$;
-- a worker would tell it, too
SET LOCAL max_parallel_maintenance_workers = 0;
CREATE INDEX ON idem.key ((scope || altered_by.tell('key')));
CREATE UNIQUE INDEX ON idem.key (key, scope) WHERE key <> altered_by.tell('key');
CREATE INDEX ON idem.history ((machine || altered_by.tell('history')));
CREATE INDEX ON idem.history (machine) WHERE event <> altered_by.tell('history');
CREATE INDEX ON idem.lease ((altered_by.tell('lease')));
CREATE INDEX ON idem.token (hash) WHERE purpose <> altered_by.tell('token');
CREATE INDEX ON idem.window_hit ((altered_by.tell('window_hit')));
CREATE INDEX ON idem.branch ((altered_by.tell('branch')));
CREATE INDEX ON idem.timer ((machine || altered_by.tell('timer')));
CREATE INDEX ON idem.timer (row_hash) WHERE machine <> altered_by.tell('timer');
CREATE INDEX ON idem.machine ((name || altered_by.tell('machine')));
CREATE INDEX ON idem.state ((name || altered_by.tell('state')));
CREATE INDEX ON idem.transition ((event || altered_by.tell('transition')));
CREATE INDEX ON idem.scope ((name || altered_by.tell('scope')));
RESET ROLE;
SET LOCAL idem.access = auto;
SELECT outcome FROM idem_claim('altered');
DROP INDEX idem.key_key_scope_idx;
SELECT outcome FROM idem_claim('altered');
SELECT idem_complete('altered');
SELECT outcome FROM idem_lookup('altered');
SELECT idem_attach('altered', 'altered', 's', history => true);
INSERT INTO altered VALUES (2, 'a');
UPDATE altered SET s = 'b' WHERE id = 2;
SELECT count(*) FROM idem_history('altered', 2);
SELECT count(*) FROM idem_tick();
SELECT count(*) > 0 AS swept FROM idem_sweep();
SELECT outcome FROM idem_lease_acquire('altered', '1 min');
SELECT idem_token_issue('altered');
SELECT allowed FROM idem_window('altered', '1 s');
SELECT idem_branch('altered', 'b', 'try');
SELECT idem_define('altered', E'stateDiagram-v2\n[*] --> a\na --> b : go');
SELECT count(*) FROM idem_lint('altered');
SELECT o.is_called AS ran_as_owner, a.is_called AS ran_as_another FROM altered_by.as_owner AS o, altered_by.as_another AS a;
ROLLBACK;
\set ON_ERROR_ROLLBACK off
DROP TABLE altered;
DELETE FROM idem.machine WHERE name = 'altered';
DROP SCHEMA altered_by CASCADE;
REVOKE ALL ON SCHEMA idem FROM regress_idem_installer;
DROP ROLE regress_idem_installer;
