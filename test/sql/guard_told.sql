-- What a refusal and idem_why_not say a role may do: what idem_allowed says,
-- guards aside.

SET client_min_messages = warning;
CREATE ROLE regress_idem_told_clerk;
CREATE ROLE regress_idem_told_lead;
SELECT count(idem_grant(name)) FROM unnest('{regress_idem_told_clerk,regress_idem_told_lead}'::name[]) AS name;
CREATE ROLE regress_idem_told_none;
SELECT idem_grant('regress_idem_told_none');

-- an event of several lines
SELECT idem_define('told', $$stateDiagram-v2
[*] --> pending
pending --> approved : approve [new.amount < 1000] by regress_idem_told_clerk
pending --> approved : approve by regress_idem_told_lead
pending --> approved : override [new.amount < 10] by regress_idem_told_lead
pending --> rejected : reject by regress_idem_told_clerk, regress_idem_told_lead
pending --> held : hold [new.amount > 1] by regress_idem_told_lead
pending --> held : hold [new.amount > 2]
approved --> shipped : ship$$);
CREATE TABLE told (id int PRIMARY KEY, state text NOT NULL DEFAULT 'pending', amount int);
SELECT idem_attach('told', 'told', 'state');
INSERT INTO told (id, amount) VALUES (1, 2000), (2, 3);
GRANT SELECT, UPDATE ON told TO regress_idem_told_clerk, regress_idem_told_lead, regress_idem_told_none;
\set ask 'SELECT (SELECT string_agg(event, \',\') FROM idem_allowed(\'told\', 1)) AS allowed, idem_why_not(\'told\', 1, :\'beyond\');'
\set beyond ship
SET ROLE regress_idem_told_lead;
UPDATE told SET state = 'shipped' WHERE id = 1;
SELECT idem_fire('told', 1, 'ship');
:ask
SET ROLE regress_idem_told_clerk;
UPDATE told SET state = 'shipped' WHERE id = 1;
:ask
-- nothing for who may not update the column
RESET ROLE;
REVOKE UPDATE ON told FROM regress_idem_told_clerk;
SET ROLE regress_idem_told_clerk;
:ask
-- and whose it is, by all of its lines, by all events for who names none
SET ROLE regress_idem_told_none;
SELECT idem_fire('told', 1, 'approve');
SELECT idem_fire('told', 1, 'override');
SELECT idem_why_not('told', 1, 'approve');
UPDATE told SET state = 'approved' WHERE id = 1;
UPDATE told SET state = 'rejected' WHERE id = 1;
RESET ROLE;
DROP TABLE told;

-- a state that begins anew by an event; not one where that leaves no trace
SELECT idem_define('told_again', $$stateDiagram-v2
[*] --> open
open --> taken : take
open --> open : poke
open --> old : expire [false]
taken --> taken : touch
taken --> fixed : fix
fixed --> fixed : again
fixed --> old : end
note right of open : reenter
note right of fixed : deny$$);
CREATE TABLE told (id int PRIMARY KEY, state text NOT NULL DEFAULT 'open', amount int);
SELECT idem_attach('told_again', 'told', 'state');
INSERT INTO told (id) VALUES (1);
SELECT idem_fire('told', 1, 'expire');
\set beyond fix
:ask
UPDATE told SET state = 'taken';
UPDATE told SET state = 'old';
\set beyond take
:ask
-- a state that denies it, by an event and by a write
UPDATE told SET state = 'fixed';
SELECT idem_fire('told', 1, 'again');
SELECT outcome, from_state, to_state FROM idem_try_fire('told', 1, 'again');
SELECT idem_why_not('told', 1, 'again'), idem_why_not('told', 1, 'take');
SELECT idem_fire('told', 1, 'take');
UPDATE told SET state = state, amount = 1;
UPDATE told SET amount = 1;
SELECT idem_detach('told', 'state'), idem_attach('told_again', 'told', 'state', mode => 'observe');
SET client_min_messages = notice;
UPDATE told SET state = state, amount = 2;
SET client_min_messages = warning;
DROP TABLE told;

-- frozen rows, and a machine without an initial state
SELECT idem_define('told', E'stateDiagram-v2\n[*] --> a\na --> b : go\nb --> a : back\nnote right of b : frozen');
CREATE TABLE told (id int PRIMARY KEY, state text DEFAULT 'a', amount int);
INSERT INTO told (id, state) VALUES (1, 'b'), (2, NULL);
SELECT idem_attach('told', 'told', 'state', accept_existing => true);
UPDATE told SET amount = 1 WHERE id = 1;
SELECT idem_fire('told', 1, 'back');
UPDATE idem.state SET initial = false WHERE machine = 'told';
INSERT INTO told (id) VALUES (3);
UPDATE told SET state = 'b' WHERE id = 2;

-- a guard that does not say which row it asks
SELECT idem_define('told', E'stateDiagram-v2\n[*] --> a\na --> b : go [amount > 1]\nnote right of b : frozen');
SELECT idem_detach('told', 'state');
SELECT idem_define('told', E'stateDiagram-v2\n[*] --> a\na --> b : go [amount > 1]\nnote right of b : frozen');
SELECT idem_attach('told', 'told', 'state', accept_existing => true);
DROP TABLE told;

DELETE FROM idem.machine WHERE name IN ('told', 'told_again');
SELECT count(idem_revoke(name))
FROM unnest('{regress_idem_told_clerk,regress_idem_told_lead,regress_idem_told_none}'::name[]) AS name;
DROP ROLE regress_idem_told_clerk, regress_idem_told_lead, regress_idem_told_none;
