-- idem_export: what it prints makes the same rows where there are none.
\pset format unaligned
\pset tuples_only on
CREATE ROLE regress_idem_clerk;
CREATE ROLE regress_idem_owner;
INSERT INTO idem.scope (name, ttl, roles, lease) VALUES ('default', '1 day', NULL, NULL),
	('it''s', '2 days 3 h', '{regress_idem_clerk,"x y"}', '90 s');
SELECT idem_define('order', $$stateDiagram-v2
    [*] --> draft
    draft --> done : finish [new.a = '$$ || '$' || $$$d0$'] by regress_idem_clerk after 2 h
    done --> [*]
    note right of done : frozen
$$);
SELECT idem_define('it''s', E'stateDiagram-v2\n[*] --> a');
UPDATE idem.machine SET owner = 'regress_idem_owner' WHERE name = 'it''s';

-- By hand: other priorities, no initial state.
INSERT INTO idem.machine (name) VALUES ('hand');
INSERT INTO idem.state (machine, name, self) VALUES ('hand', 'a', 'deny'), ('hand', 'b', 'noop');
INSERT INTO idem.transition (machine, event, from_state, to_state, priority, guard) VALUES
	('hand', 'go', 'a', 'b', 10, 'new.t = ''\'''), ('hand', 'go', 'a', 'b', 20, NULL);

SELECT * FROM idem_export();

CREATE TEMP TABLE line AS SELECT row_number() OVER () AS n, line FROM idem_export() AS line;
CREATE VIEW pg_temp.whole AS
SELECT 'm' || m::text AS r FROM idem.machine AS m
UNION ALL SELECT 's' || s::text FROM idem.state AS s
UNION ALL SELECT 't' || t::text FROM idem.transition AS t
UNION ALL SELECT 'c' || c::text FROM idem.scope AS c;
CREATE TEMP TABLE former AS TABLE pg_temp.whole;
SELECT count(*) FROM former;
DELETE FROM idem.machine;
DELETE FROM idem.scope;
DO $$
DECLARE
	statement text;
BEGIN
	-- twice: what is there already stays
	FOR i IN 1 .. 2 LOOP
		FOR statement IN SELECT line FROM line ORDER BY n LOOP
			EXECUTE statement;
		END LOOP;
	END LOOP;
END $$;
(TABLE former EXCEPT TABLE pg_temp.whole) UNION ALL (TABLE pg_temp.whole EXCEPT TABLE former);

-- Settings of the session do not matter.
SET intervalstyle = sql_standard;
SET standard_conforming_strings = on;
SELECT bool_and(e.line = l.line) FROM (SELECT row_number() OVER () AS n, line FROM idem_export() AS line) AS e JOIN line AS l USING (n);

DELETE FROM idem.machine;
DELETE FROM idem.scope;
SELECT count(*) FROM idem_export();
DROP ROLE regress_idem_clerk, regress_idem_owner;
