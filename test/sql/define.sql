-- idem_define: what a diagram says becomes rows, what it says again is left
-- alone, what it says differently replaces.
CREATE ROLE regress_idem_clerk;
CREATE ROLE regress_idem_lead;

CREATE VIEW pg_temp.rules AS
SELECT machine, priority AS n, event, from_state, to_state, guard, roles, after
FROM idem.transition ORDER BY machine, priority;
CREATE VIEW pg_temp.states AS
SELECT machine, name, initial, final, frozen, self FROM idem.state ORDER BY machine, name;

SELECT idem_define('order', $$
stateDiagram-v2
    direction LR
    %% drawn by hand
    [*] --> draft
    draft --> pending : submit [new.amount > 0] by regress_idem_clerk, regress_idem_lead
    pending --> approved : approve by regress_idem_lead
    pending --> rejected : reject
    rejected --> draft : revise
    pending --> expired : expire after 30 min
    [any] --> cancelled : cancel
    approved --> [*]
    cancelled --> [*]
    expired --> [*]
    note right of approved : frozen
$$);
TABLE pg_temp.states;
TABLE pg_temp.rules;
SELECT name, owner = current_user AS mine FROM idem.machine;

-- The same again: not a row is touched.
CREATE TEMP TABLE before AS
SELECT 'm' AS t, ctid::text AS place, xmin::text AS writer FROM idem.machine
UNION ALL SELECT 's', ctid::text AS place, xmin::text AS writer FROM idem.state
UNION ALL SELECT 't', ctid::text AS place, xmin::text AS writer FROM idem.transition;
SELECT idem_define('order', idem_diagram('order'));
SELECT count(*) AS touched FROM (
	(SELECT 'm' AS t, ctid::text AS place, xmin::text AS writer FROM idem.machine
	UNION ALL SELECT 's', ctid::text AS place, xmin::text AS writer FROM idem.state
	UNION ALL SELECT 't', ctid::text AS place, xmin::text AS writer FROM idem.transition)
	EXCEPT TABLE before) AS changed;

-- Another definition takes its place.
SELECT idem_define('order', $$stateDiagram
[*]-->draft
draft-->done:finish
done --> [*]$$);
TABLE pg_temp.states;
TABLE pg_temp.rules;

-- Several rules of one event, in the order of their lines; an arrow without a
-- label; a label without an event; self-transitions; modes.
SELECT idem_define('forms', $$stateDiagram-v2
    [*] --> a
    [*] --> b
    a --> b : go [new.n > 10] by regress_idem_lead
    a --> c : go [new.n > 5]
    a --> d : go
    a --> c
    b --> c : [new.n IS NULL]
    c --> d : by regress_idem_clerk
    c --> b : after 1 day 2 h
    a --> a : touch
    * --> d : stop
    d --> [*]
    note right of a : reenter
    note left of b : frozen, deny
    note right of c
        frozen
        reenter
    end note
    note right of d : this is a remark, no more
    state e
    f
    g : a caption
$$);
SELECT * FROM pg_temp.states WHERE machine = 'forms';
SELECT * FROM pg_temp.rules WHERE machine = 'forms';

-- Names that Mermaid cannot carry, entities, quotes, lines that are for the
-- drawing, carriage returns, a byte order mark.
SELECT idem_define('odd', chr(65279) || replace($$---
title: a title
---

%%{init: {'theme': 'dark'}}%%
stateDiagram-v2
    accTitle: a title
    accDescr { more
      of it }
    classDef red fill:#f00
    state "in review" as r
    state "say #quot;x#quot;; 100#percnt;" as q
    state "*#42;" as star
    [*] --> r
    r --> q : "send ""back"
    class r red
    style q fill:#fff
    hide empty description
$$, chr(10), chr(13) || chr(10)));
SELECT idem_define('odd', chr(65279) || replace($$---
title: a title
---

%%{init: {'theme': 'dark'}}%%
stateDiagram-v2
    accTitle: a title
    accDescr { more
      of it }
    classDef red fill:#f00
    state "in review" as r
    state "say #quot;x#quot;; 100#percnt;" as q
    state "*#42;" as star
    [*] --> r:::red
    r --> q : "send #34;back#34; [now], by 5#58; after" [new.t = 'a]b' AND new.x[1] ~ ']#59;#35;'] by "regress_idem_clerk"
    q --> geprüft : prüfen [E'#92;#39;' = $q$#93;$q$]
    geprüft --> [*]
    class r red
    style q fill:#fff
    hide empty description
$$, chr(10), chr(13) || chr(10)));
SELECT * FROM pg_temp.states WHERE machine = 'odd';
SELECT * FROM pg_temp.rules WHERE machine = 'odd';
SELECT idem_define('odd', idem_diagram('odd'));
SELECT idem_diagram('odd');

-- Arguments.
SELECT idem_define(NULL, 'stateDiagram-v2');
SELECT idem_define('x', NULL);
SELECT idem_define('', 'stateDiagram-v2');
SELECT idem_define(repeat('x', 129), 'stateDiagram-v2');
SELECT idem_define('x', 'stateDiagram-v2' || chr(10) || '[*] --> a', '[]');
SELECT idem_define('x', 'stateDiagram-v2' || chr(10) || '[*] --> a', '{"b": 1}');
SELECT idem_define('x', 'stateDiagram-v2' || chr(10) || '[*] --> a', '{"a": "a"}');
SELECT idem_define('x', 'stateDiagram-v2' || chr(10) || '[*] --> a', '{"b": "c"}');
SELECT idem_define('x', 'stateDiagram-v2' || chr(10) || '[*] --> a', '{"b": "a"}');

-- A machine belongs to who made it, and to the members of its owner.
CREATE ROLE regress_idem_maker;
CREATE ROLE regress_idem_other;
SELECT idem_grant('regress_idem_maker', 'operator'), idem_grant('regress_idem_other', 'operator');
SET ROLE regress_idem_maker;
SELECT idem_define('made', 'stateDiagram-v2' || chr(10) || '[*] --> a');
SET ROLE regress_idem_other;
SELECT idem_define('made', 'stateDiagram-v2' || chr(10) || '[*] --> b');
SELECT idem_define('made', 'stateDiagram-v2' || chr(10) || '[*] --> a');
INSERT INTO idem.state (machine, name) VALUES ('made', 'b');
UPDATE idem.machine SET owner = 'regress_idem_other' WHERE name = 'made';
DELETE FROM idem.machine WHERE name = 'made';
INSERT INTO idem.machine VALUES ('theirs', 'regress_idem_maker');
RESET ROLE;
GRANT regress_idem_maker TO regress_idem_other;
SET ROLE regress_idem_other;
SELECT idem_define('made', 'stateDiagram-v2' || chr(10) || '[*] --> b');
UPDATE idem.machine SET owner = 'regress_idem_other' WHERE name = 'made';
SET ROLE regress_idem_maker;
DELETE FROM idem.machine WHERE name = 'made';
RESET ROLE;

-- What the tables' owner has put on them runs as he does, whoever defines.
BEGIN;
ALTER TABLE idem.machine OWNER TO regress_idem_maker;
ALTER TABLE idem.state OWNER TO regress_idem_maker;
ALTER TABLE idem.transition OWNER TO regress_idem_maker;
CREATE FUNCTION pg_temp.spy() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	RAISE INFO '% of % as %', tg_op, tg_table_name, current_user;
	RETURN NULL;
END $$;
CREATE TRIGGER spy AFTER INSERT OR UPDATE OR DELETE ON idem.machine EXECUTE FUNCTION pg_temp.spy();
CREATE TRIGGER spy AFTER INSERT OR UPDATE OR DELETE ON idem.state EXECUTE FUNCTION pg_temp.spy();
CREATE TRIGGER spy AFTER INSERT OR UPDATE OR DELETE ON idem.transition EXECUTE FUNCTION pg_temp.spy();
SELECT idem_define('spied', 'stateDiagram-v2' || chr(10) || '[*] --> a' || chr(10) || 'a --> b : go');
SELECT idem_define('spied', 'stateDiagram-v2' || chr(10) || '[*] --> a' || chr(10) || 'a --> [*]');
SELECT owner = current_user AS mine FROM idem.machine WHERE name = 'spied';
ROLLBACK;

-- Read-only.
BEGIN READ ONLY;
SELECT idem_define('x', 'stateDiagram-v2' || chr(10) || '[*] --> a');
ROLLBACK;

DELETE FROM idem.machine;
SELECT count(*) FROM idem.state;
SELECT idem_revoke('regress_idem_maker'), idem_revoke('regress_idem_other');
DROP ROLE regress_idem_clerk, regress_idem_lead, regress_idem_maker, regress_idem_other;
