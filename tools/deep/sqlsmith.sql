-- Loaded after load.sql: who makes queries at random, and what he may touch.
SET client_min_messages = warning;
CREATE ROLE smith LOGIN;
SELECT idem_grant('smith', 'operator');
GRANT ALL ON ALL TABLES IN SCHEMA public TO smith;
GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO smith;
CREATE TABLE message (id text, body text);
SELECT idem_attach_once('message', '{id}');
CREATE TABLE fenced (id int PRIMARY KEY, fence bigint);
INSERT INTO fenced SELECT generate_series(1, 20), 1;
SELECT idem_attach_fence('fenced', 'fence');
CREATE TABLE parted (id int, state text NOT NULL DEFAULT 'draft', PRIMARY KEY (id)) PARTITION BY RANGE (id);
CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (0) TO (100);
CREATE TABLE parted_2 PARTITION OF parted DEFAULT;
SELECT idem_attach('order', 'parted', 'state', history => true);
INSERT INTO parted SELECT generate_series(1, 200);
GRANT ALL ON message, fenced, parted, parted_1, parted_2 TO smith;
SELECT work(n) FROM generate_series(1, 300) AS n;
