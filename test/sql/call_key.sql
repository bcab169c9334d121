-- Whatever a called function does with idem.key, the setting is afterwards what
-- it would be after a function that does nothing with it: at once, behind the
-- function and the savepoint around the call, and after the transaction.

\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE ROLE regress_idem_key;
SELECT idem_grant('regress_idem_key');
CREATE SCHEMA regress_key AUTHORIZATION regress_idem_key;
SET search_path = regress_key, public;
SET ROLE regress_idem_key;
-- loads the library, so that a function may have a SET of its setting
SELECT idem_key();

CREATE FUNCTION meddle(how text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	CASE how
		WHEN 'nothing' THEN NULL;
		WHEN 'local' THEN SET LOCAL idem.key = 'evil';
		WHEN 'session' THEN SET idem.key = 'evil';
		WHEN 'session, local' THEN SET idem.key = 'evil'; SET LOCAL idem.key = 'more';
		WHEN 'local, session' THEN SET LOCAL idem.key = 'evil'; SET idem.key = 'more';
		WHEN 'reset' THEN RESET idem.key;
		WHEN 'reset, local' THEN RESET idem.key; PERFORM set_config('idem.key', NULL, true);
		WHEN 'as it is' THEN SET idem.key = 'req';
		WHEN 'masked' THEN SET idem.key = 'evil'; SET LOCAL idem.key = 'req';
		WHEN 'in a block' THEN
			BEGIN
				SET idem.key = 'evil';
				SET LOCAL idem.key = 'more';
			EXCEPTION WHEN division_by_zero THEN NULL;
			END;
		WHEN 'undone' THEN
			BEGIN
				SET idem.key = 'evil';
				PERFORM 1 / 0;
			EXCEPTION WHEN division_by_zero THEN NULL;
			END;
		WHEN 'call' THEN
			SET idem.key = 'evil';
			PERFORM idem_call('inner ' || gen_random_uuid(), 'regress_key.meddle(text)', '["session, local"]');
	END CASE;
	RETURN NULL;
END $$;
CREATE FUNCTION seen() RETURNS text LANGUAGE sql AS $$SELECT coalesce(nullif(current_setting('idem.key'), ''), '-') || ' '$$;
CREATE FUNCTION bare(how text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	PERFORM idem_call('outer ' || gen_random_uuid(), 'regress_key.meddle(text)', jsonb_build_array(how));
	RETURN seen();
END $$;
CREATE FUNCTION with_key(how text) RETURNS text LANGUAGE plpgsql SET idem.key = 'own' AS 'BEGIN RETURN bare(how); END';
CREATE FUNCTION with_other(how text) RETURNS text LANGUAGE plpgsql SET work_mem = '1MB' AS 'BEGIN RETURN bare(how); END';
CREATE FUNCTION with_both(how text) RETURNS text LANGUAGE plpgsql SET idem.key = 'own' AS 'BEGIN RETURN with_other(how) || seen(); END';
CREATE FUNCTION changes_key(how text) RETURNS text LANGUAGE plpgsql SET idem.key = 'own' AS $$
BEGIN SET LOCAL idem.key = 'req'; RETURN bare(how) || with_other(how) || seen(); END $$;
CREATE FUNCTION sets_key(how text) RETURNS text LANGUAGE plpgsql SET idem.key = 'own' AS $$
BEGIN SET idem.key = 'req'; RETURN bare(how) || with_other(how) || seen(); END $$;
CREATE FUNCTION in_block(how text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE trail text;
BEGIN
	BEGIN trail := bare(how) || with_key(how); EXCEPTION WHEN division_by_zero THEN NULL; END;
	BEGIN SET LOCAL idem.key = 'block'; trail := trail || bare(how); EXCEPTION WHEN division_by_zero THEN NULL; END;
	RETURN trail || seen();
END $$;
CREATE FUNCTION undone_block(how text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE trail text;
BEGIN
	BEGIN SET idem.key = 'block'; trail := bare(how); PERFORM 1 / 0; EXCEPTION WHEN division_by_zero THEN NULL; END;
	RETURN trail || seen();
END $$;
CREATE TABLE trail (before text, around text, how text, trail text);
CREATE PROCEDURE follow(session text, before text, around text, how text) LANGUAGE plpgsql AS $$
DECLARE
	trail text;
	statement text;
BEGIN
	PERFORM set_config('idem.key', session, false);
	COMMIT;
	FOREACH statement IN ARRAY string_to_array(before, '; ') LOOP
		EXECUTE statement;
	END LOOP;
	EXECUTE format('SELECT %I($1)', around) INTO trail USING how;
	trail := trail || seen();
	COMMIT;
	INSERT INTO trail VALUES (session || ': ' || before, around, how, trail || seen());
	COMMIT;
END $$;
\set ECHO none
SELECT format('CALL follow(%L, %L, %L, %L)', session, before, around, how)
FROM unnest('{"",sess}'::text[]) AS session,
	unnest('{"",SET LOCAL idem.key = req,SET idem.key = req,SET idem.key = masked; SET LOCAL idem.key = req,RESET idem.key}'::text[]) AS before,
	unnest('{bare,with_key,with_other,with_both,changes_key,sets_key,in_block,undone_block}'::text[]) AS around,
	unnest('{nothing,local,session,"session, local","local, session",reset,"reset, local",as it is,masked,in a block,undone,call}'::text[]) AS how \gexec
\set ECHO all
RESET idem.key;
SELECT before, around, string_agg(DISTINCT trail, ' OR ') AS trail, count(*) FROM trail GROUP BY 1, 2 ORDER BY 1, 2;
SELECT t.* FROM trail AS t JOIN trail AS n USING (before, around) WHERE n.how = 'nothing' AND t.trail <> n.trail ORDER BY 1, 2, 3;

RESET ROLE;
DROP SCHEMA regress_key CASCADE;
SELECT idem_revoke('regress_idem_key');
DROP ROLE regress_idem_key;
DELETE FROM idem.key;
