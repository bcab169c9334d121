-- A partitioned table that a superuser attaches for its owner: whoever makes a
-- partition needs EXECUTE on the functions of the triggers that it gets. And
-- triggers that an operator makes by hand for a scope of idem's own.

\set SHOW_CONTEXT never
CREATE ROLE regress_idem_landlord;
CREATE SCHEMA regress_owner AUTHORIZATION regress_idem_landlord;
SET search_path = regress_owner, public;
SET ROLE regress_idem_landlord;
CREATE TABLE event (id int, p int) PARTITION BY LIST (p);
CREATE TABLE event1 PARTITION OF event FOR VALUES IN (1);
CREATE TABLE "order" (id int, p int, s text, PRIMARY KEY (id, p)) PARTITION BY LIST (p);
CREATE TABLE doc (id int, p int, v int NOT NULL DEFAULT 1) PARTITION BY LIST (p);
CREATE TABLE plain (id int, s text PRIMARY KEY, v int NOT NULL DEFAULT 1);
RESET ROLE;

SELECT idem_define('regress_owned', 'stateDiagram-v2
[*] --> a
a --> b');
SELECT idem_attach_once('event', '{id}');
SELECT idem_attach('regress_owned', '"order"', 's', history => true);
SELECT idem_attach_version('doc', 'v');
-- a table that has no partitions needs nobody
SELECT idem_attach_once('plain', '{id}');
SELECT idem_attach('regress_owned', 'plain', 's');
SELECT idem_attach_version('plain', 'v');

SET ROLE regress_idem_landlord;
INSERT INTO event VALUES (1, 1), (1, 1);
\set VERBOSITY sqlstate
CREATE TABLE event2 PARTITION OF event FOR VALUES IN (2);
CREATE TABLE order2 PARTITION OF "order" FOR VALUES IN (2);
CREATE TABLE doc2 PARTITION OF doc FOR VALUES IN (2);
\set VERBOSITY default
RESET ROLE;
-- the way out
SELECT idem_grant('regress_idem_landlord', 'operator');
SET ROLE regress_idem_landlord;
CREATE TABLE event2 PARTITION OF event FOR VALUES IN (2);
CREATE TABLE order2 PARTITION OF "order" FOR VALUES IN (2);
CREATE TABLE doc2 PARTITION OF doc FOR VALUES IN (2);
INSERT INTO event VALUES (1, 2), (2, 2);
SELECT * FROM event ORDER BY id;
-- no warning now
SELECT idem_detach_once('event'), idem_detach_version('doc'), idem_detach('"order"', 's');
SELECT idem_attach_once('event', '{id}'), idem_attach_version('doc', 'v'), idem_attach('regress_owned', '"order"', 's');

-- of those below the root there may be others, and each is told once
RESET ROLE;
CREATE ROLE "regress_idem o'dd";
SELECT idem_detach_once('event');
-- a trigger that is not the extension's is nothing to be told of
CREATE FUNCTION not_idem() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
REVOKE EXECUTE ON FUNCTION not_idem() FROM PUBLIC;
CREATE TRIGGER not_idem BEFORE INSERT ON event FOR EACH ROW EXECUTE FUNCTION not_idem();
SELECT idem_attach_once('event', '{id}'), idem_detach_once('event');
DROP TRIGGER not_idem ON event;
CREATE TABLE event3 PARTITION OF event FOR VALUES IN (3) PARTITION BY LIST (id);
CREATE TABLE event4 PARTITION OF event FOR VALUES IN (4) PARTITION BY LIST (id);
CREATE TABLE event41 PARTITION OF event4 DEFAULT;
ALTER TABLE event3 OWNER TO "regress_idem o'dd";
ALTER TABLE event4 OWNER TO "regress_idem o'dd";
ALTER TABLE event41 OWNER TO "regress_idem o'dd";
SELECT idem_attach_once('event', '{id}');
ALTER TABLE event3 OWNER TO regress_idem_landlord;
ALTER TABLE event4 OWNER TO regress_idem_landlord;
ALTER TABLE event41 OWNER TO regress_idem_landlord;
DROP ROLE "regress_idem o'dd";
SET ROLE regress_idem_landlord;

-- a scope of idem's own, past idem_attach_once
CREATE TABLE forged (k int);
CREATE TRIGGER "~idem_once" BEFORE INSERT ON forged FOR EACH ROW WHEN (NEW.k IS NOT NULL) EXECUTE FUNCTION idem_once_row('idem.fire', '');
CREATE TRIGGER "~idem_once_done" AFTER INSERT ON forged FOR EACH ROW WHEN (GREATEST(NEW.ctid::idem_inserted, NEW.ctid::idem_inserted) IS NULL) EXECUTE FUNCTION idem_once_row();
INSERT INTO forged VALUES (5);
RESET ROLE;
SELECT count(*) FROM idem.key WHERE scope LIKE 'idem.%';

\set VERBOSITY terse
DROP SCHEMA regress_owner CASCADE;
DELETE FROM idem.machine WHERE name = 'regress_owned';
SELECT idem_revoke('regress_idem_landlord');
DROP OWNED BY regress_idem_landlord;
DROP ROLE regress_idem_landlord;
DELETE FROM idem.key;
