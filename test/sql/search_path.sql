-- Whatever is done as another role does not find the caller's objects: neither by his
-- search_path nor among his temporary ones.

\set SHOW_CONTEXT never
SET client_min_messages = error;
CREATE ROLE regress_idem_path_owner;
CREATE ROLE regress_idem_path_app;
SELECT idem_grant('regress_idem_path_owner', 'operator'), idem_grant('regress_idem_path_app', 'operator');
CREATE SCHEMA sp_home AUTHORIZATION regress_idem_path_owner;
CREATE SCHEMA sp_evil AUTHORIZATION regress_idem_path_app;
GRANT USAGE ON SCHEMA sp_home, sp_evil TO PUBLIC;
CREATE TABLE sp_seen (n int GENERATED ALWAYS AS IDENTITY, what text, who name DEFAULT CURRENT_USER, path text DEFAULT current_setting('search_path'));
GRANT ALL ON sp_seen TO PUBLIC;

-- the traps: what is called by its name alone
SET ROLE regress_idem_path_app;
CREATE FUNCTION sp_evil.sp_tell(what text) RETURNS bool LANGUAGE plpgsql AS
	$$ BEGIN INSERT INTO public.sp_seen (what) VALUES ('evil: ' || what); RETURN true; END $$;
RESET ROLE;
CREATE FUNCTION sp_home.sp_tell(what text) RETURNS bool LANGUAGE plpgsql AS
	$$ BEGIN INSERT INTO public.sp_seen (what) VALUES (what); RETURN true; END $$;

-- what the installing role puts on idem's tables says where its names are; one that
-- does not gets an error, and no stranger's
CREATE FUNCTION sp_note() RETURNS trigger LANGUAGE plpgsql AS
	$$ BEGIN PERFORM sp_tell(TG_TABLE_NAME); RETURN NULL; END $$;
CREATE FUNCTION sp_check(text) RETURNS bool LANGUAGE plpgsql AS
	$$ BEGIN RETURN sp_tell('check'); END $$;
SET ROLE regress_idem_path_owner;
SELECT idem_define('sp', $$stateDiagram-v2
	[*] --> a
	a --> b : go [sp_guard(new.id)]
	b --> c : late after 0 s
	c --> [*]
$$);
CREATE TABLE sp_home.t (id int PRIMARY KEY, s text NOT NULL DEFAULT 'a');
CREATE FUNCTION sp_home.sp_guard(int) RETURNS bool LANGUAGE plpgsql AS $$ BEGIN RETURN sp_tell('guard'); END $$;
SELECT idem_attach('sp', 'sp_home.t', 's', history => true);
GRANT SELECT, INSERT, UPDATE ON sp_home.t TO regress_idem_path_app;
RESET ROLE;

SET ROLE regress_idem_path_app;
SET search_path = sp_evil, public;
INSERT INTO sp_home.t SELECT generate_series(1, 3);
-- a guard is the writer's own doing
UPDATE sp_home.t SET s = 'b' WHERE id = 1;
RESET ROLE;
SELECT what, who FROM public.sp_seen ORDER BY n;
TRUNCATE public.sp_seen;

CREATE TRIGGER sp_note AFTER INSERT ON idem.history FOR EACH ROW EXECUTE FUNCTION public.sp_note();
SET ROLE regress_idem_path_app;
UPDATE sp_home.t SET s = 'b' WHERE id = 2;
RESET ROLE;
DROP TRIGGER sp_note ON idem.history;
ALTER TABLE idem.history ADD CONSTRAINT sp_check CHECK (public.sp_check(machine)) NOT VALID;
SET ROLE regress_idem_path_app;
UPDATE sp_home.t SET s = 'b' WHERE id = 2;
RESET ROLE;
ALTER TABLE idem.history DROP CONSTRAINT sp_check;
CREATE FUNCTION public.sp_index(text) RETURNS bool IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN RETURN sp_tell('index'); END $$;
SET ROLE regress_idem_path_app;
SET idem.context = '{}';
RESET ROLE;
SET search_path = sp_home, public;
CREATE INDEX sp_index ON idem.history (sp_index(machine)) WHERE machine = 'sp_none';
SET search_path = sp_evil, public;
CREATE INDEX sp_index2 ON idem.history (public.sp_index(machine)) WHERE seq < 0 OR machine = 'sp' AND row_key = '{"id": 2}' AND to_state = 'b';
SET ROLE regress_idem_path_app;
UPDATE sp_home.t SET s = 'b' WHERE id = 2;
RESET ROLE;
DROP INDEX idem.sp_index, idem.sp_index2;
CREATE TRIGGER sp_note AFTER INSERT OR DELETE ON idem.timer FOR EACH ROW EXECUTE FUNCTION public.sp_note();
SET ROLE regress_idem_path_app;
UPDATE sp_home.t SET s = 'b' WHERE id = 2;
RESET ROLE;
DROP TRIGGER sp_note ON idem.timer;
SET idem.access = 'auto';
CREATE TRIGGER sp_note AFTER INSERT OR DELETE ON idem.key FOR EACH ROW EXECUTE FUNCTION public.sp_note();
SET ROLE regress_idem_path_app;
SELECT idem_claim('sp');
RESET ROLE;
DROP TRIGGER sp_note ON idem.key;
BEGIN;
SELECT run FROM idem_claim('sp swept', ttl => '1 us');
SELECT idem_complete('sp swept');
COMMIT;
UPDATE idem.key SET expires_at = '2000-01-01' WHERE key = 'sp swept';
CREATE TRIGGER sp_note AFTER INSERT OR DELETE ON idem.key FOR EACH ROW EXECUTE FUNCTION public.sp_note();
SET ROLE regress_idem_path_app;
SELECT count(*) FROM idem_sweep();
RESET ROLE;
DROP TRIGGER sp_note ON idem.key;
RESET idem.access;
CREATE TRIGGER sp_note AFTER INSERT ON idem.state FOR EACH ROW EXECUTE FUNCTION public.sp_note();
SET ROLE regress_idem_path_app;
SELECT idem_define('sp2', E'stateDiagram-v2\n[*] --> a');
RESET ROLE;
DROP TRIGGER sp_note ON idem.state;
-- nothing was reached
SELECT what, who FROM public.sp_seen ORDER BY n;
-- with its schema it is
CREATE OR REPLACE FUNCTION public.sp_note() RETURNS trigger LANGUAGE plpgsql AS
	$$ BEGIN PERFORM sp_home.sp_tell(TG_TABLE_NAME); RETURN NULL; END $$;
CREATE TRIGGER sp_note AFTER INSERT ON idem.history FOR EACH ROW EXECUTE FUNCTION public.sp_note();
SET ROLE regress_idem_path_app;
UPDATE sp_home.t SET s = 'b' WHERE id = 2;
RESET ROLE;
DROP TRIGGER sp_note ON idem.history;
SELECT what, who = SESSION_USER AS owner, path FROM public.sp_seen WHERE what = 'history';
TRUNCATE public.sp_seen;

-- the clock writes as the table's owner, who finds what is in the table's schema
SET ROLE regress_idem_path_owner;
CREATE TABLE sp_home.audit (id int, who name DEFAULT CURRENT_USER);
CREATE FUNCTION sp_home.sp_trigger() RETURNS trigger LANGUAGE plpgsql AS
	$$ BEGIN PERFORM sp_tell('trigger'); INSERT INTO audit VALUES (new.id); RETURN new; END $$;
CREATE TRIGGER sp_trigger BEFORE UPDATE ON sp_home.t FOR EACH ROW WHEN (new.s = 'c') EXECUTE FUNCTION sp_home.sp_trigger();
SELECT idem_define('sp', $$stateDiagram-v2
	[*] --> a
	a --> b : go
	b --> c : late [sp_guard(new.id)] after 0 s
	c --> [*]
$$);
RESET ROLE;
SET ROLE regress_idem_path_app;
CREATE TEMP TABLE audit (id int);
GRANT ALL ON audit TO PUBLIC;
SET client_min_messages = warning;
SELECT row_key, outcome FROM idem_tick() WHERE table_name = 'sp_home.t' ORDER BY row_key;
SET client_min_messages = error;
-- they stay as they are: others fire them
SELECT * FROM idem_tick();
SELECT count(*) FROM audit;
DROP TABLE audit;
CREATE DOMAIN pg_temp.conf AS int;
RESET ROLE;
UPDATE idem.timer SET due = since WHERE machine = 'sp';
SELECT row_key, outcome FROM idem_tick() WHERE table_name = 'sp_home.t' ORDER BY row_key;
SET ROLE regress_idem_path_app;
DROP DOMAIN pg_temp.conf;
RESET ROLE;
UPDATE idem.timer SET due = since WHERE machine = 'sp';
SET ROLE regress_idem_path_app;
SELECT row_key, outcome FROM idem_tick(1) WHERE table_name = 'sp_home.t';
-- the owner's own are no stranger's
SET ROLE regress_idem_path_owner;
CREATE TEMP TABLE sp_own (id int);
SELECT row_key, outcome FROM idem_tick() WHERE table_name = 'sp_home.t';
DROP TABLE sp_own;
RESET ROLE;
SELECT what, who, path FROM public.sp_seen ORDER BY n;
SELECT * FROM sp_home.audit ORDER BY id;
TRUNCATE public.sp_seen;

-- what runs when a table is opened is its owner's, whoever ticks
CREATE SEQUENCE public.sp_super;
CREATE SEQUENCE public.sp_owner;
GRANT ALL ON SEQUENCE public.sp_super, public.sp_owner TO PUBLIC;
SET ROLE regress_idem_path_owner;
CREATE FUNCTION sp_home.sp_draw() RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
	RETURN CASE WHEN CURRENT_USER = 'regress_idem_path_owner' THEN nextval('public.sp_owner') ELSE nextval('public.sp_super') END;
END $$;
CREATE FUNCTION sp_home.sp_immutable(i int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS
	$$ BEGIN PERFORM sp_home.sp_draw(); RETURN i; END $$;
SELECT idem_define('sp', $$stateDiagram-v2
	[*] --> a
	a --> b : go
	b --> c : late after 0 s
	c --> [*]
$$);
CREATE TABLE sp_home.opened (id int PRIMARY KEY, s text);
SELECT idem_attach('sp', 'sp_home.opened', 's', history => true);
INSERT INTO sp_home.opened VALUES (1, 'a');
UPDATE sp_home.opened SET s = 'b';
DROP TABLE sp_home.opened;
CREATE TABLE sp_home.opened (id int, s text) PARTITION BY RANGE ((id + sp_home.sp_immutable(1)));
RESET ROLE;
SELECT setval('public.sp_owner', 1, false), setval('public.sp_super', 1, false);
\c -
SET client_min_messages = error;
SELECT row_key, outcome FROM idem_tick() WHERE table_name = 'sp_home.opened';
SELECT o.is_called AS as_owner, s.is_called AS as_another FROM public.sp_owner AS o, public.sp_super AS s;
DROP SEQUENCE public.sp_super, public.sp_owner;
SET search_path = sp_evil, public;

-- the proof at the end of a transaction is the writer's, and takes his path, not that of who commits
CREATE TABLE public.sp_conf AS SELECT true AS ok;
GRANT SELECT ON public.sp_conf TO regress_idem_path_owner;
SET ROLE regress_idem_path_owner;
SELECT idem_define('sp2', E'stateDiagram-v2\n[*] --> a\na --> b : go [sp_allows(new.id)]');
CREATE FUNCTION sp_home.sp_allows(int) RETURNS bool LANGUAGE plpgsql AS
	$$ BEGIN RETURN sp_tell('allows') AND (SELECT ok FROM sp_conf); END $$;
CREATE TABLE sp_home.parent (id int, s text, n int);
CREATE TABLE sp_home.child (id int PRIMARY KEY, s text, n int);
SELECT idem_attach('sp2', 'sp_home.child', 's');
CREATE FUNCTION sp_home.sp_later() RETURNS trigger LANGUAGE plpgsql AS
	$$ BEGIN new.n := coalesce(new.n, 0) + 1; RETURN new; END $$;
CREATE TRIGGER "~~later" BEFORE UPDATE ON sp_home.child FOR EACH ROW EXECUTE FUNCTION sp_home.sp_later();
ALTER TABLE sp_home.child INHERIT sp_home.parent;
INSERT INTO sp_home.child VALUES (1, 'a', 0);
CREATE FUNCTION sp_home.sp_write() RETURNS int LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, sp_home, public, pg_temp AS
	$$ BEGIN UPDATE sp_home.parent SET s = 'b'; RETURN 1; END $$;
SET ROLE regress_idem_path_app;
CREATE TEMP VIEW sp_conf AS SELECT sp_evil.sp_tell('conf') AS ok;
GRANT SELECT ON pg_temp.sp_conf TO PUBLIC;
BEGIN;
SELECT sp_home.sp_write();
COMMIT;
RESET ROLE;
SELECT what, who, path FROM public.sp_seen ORDER BY n;
-- ... and where he commits himself, under another one
CREATE FUNCTION sp_home.sp_write_too() RETURNS int LANGUAGE plpgsql SET search_path = pg_catalog, sp_home, public, pg_temp AS
	$$ BEGIN UPDATE sp_home.parent SET s = 'b'; RETURN 1; END $$;
GRANT EXECUTE ON FUNCTION sp_home.sp_write_too TO regress_idem_path_owner;
TRUNCATE sp_seen;
SET ROLE regress_idem_path_owner;
DELETE FROM sp_home.child;
INSERT INTO sp_home.child VALUES (2, 'a', 0);
BEGIN;
SELECT sp_home.sp_write_too();
COMMIT;
RESET ROLE;
SELECT what, who, path FROM public.sp_seen ORDER BY n;

RESET search_path;
SELECT idem_detach('sp_home.t', 's'), idem_detach('sp_home.child', 's');
DROP VIEW pg_temp.sp_conf;
DROP TABLE sp_seen, public.sp_conf;
DROP SCHEMA sp_home, sp_evil CASCADE;
DROP FUNCTION sp_note, sp_check, sp_index;
ALTER TABLE idem.history DISABLE TRIGGER protected_row;
DELETE FROM idem.history WHERE machine = 'sp';
ALTER TABLE idem.history ENABLE TRIGGER protected_row;
DELETE FROM idem.key WHERE key LIKE 'sp%';
DELETE FROM idem.state WHERE machine IN ('sp', 'sp2');
DELETE FROM idem.machine WHERE name IN ('sp', 'sp2');
SELECT idem_revoke('regress_idem_path_owner'), idem_revoke('regress_idem_path_app');
DROP OWNED BY regress_idem_path_owner, regress_idem_path_app;
DROP ROLE regress_idem_path_owner, regress_idem_path_app;
