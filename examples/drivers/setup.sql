-- What the examples work on.  They connect as role app, which owns nothing.
CREATE EXTENSION idem;
SELECT idem_grant('app');

CREATE TABLE account (id int PRIMARY KEY, balance int NOT NULL, version int NOT NULL DEFAULT 1);
INSERT INTO account VALUES (1, 100), (2, 100);
SELECT idem_attach_version('account', 'version');

CREATE TABLE ticket (id int PRIMARY KEY, state text NOT NULL);
SELECT idem_define('ticket', $$
stateDiagram-v2
    [*] --> open
    open --> closed : close
    closed --> [*]
$$);
SELECT idem_attach('ticket', 'ticket', 'state');
INSERT INTO ticket VALUES (1, 'open'), (2, 'open');
GRANT SELECT, UPDATE ON account, ticket TO app;
