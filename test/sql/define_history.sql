-- Definitions and histories: rows that a definition moves are recorded as
-- "migrate", and a diagram counts how often a transition was taken.
\pset format unaligned
\pset tuples_only on
SELECT idem_define('trace', $$stateDiagram-v2
    [*] --> a
    a --> b : go
    b --> c : on
    [any] --> x : stop
    c --> [*]
    x --> [*]
    note right of x : frozen
$$);
CREATE TABLE trace_plain (id int PRIMARY KEY, state text);
CREATE TABLE trace_parts (id int, state text, PRIMARY KEY (id, state)) PARTITION BY LIST (state);
CREATE TABLE trace_parts_1 PARTITION OF trace_parts FOR VALUES IN ('a', 'b');
CREATE TABLE trace_parts_2 PARTITION OF trace_parts DEFAULT;
SELECT idem_attach('trace', 'trace_plain', 'state', history => true, events_only => true);
SELECT idem_attach('trace', 'trace_parts', 'state', history => true);
INSERT INTO trace_plain SELECT i, 'a' FROM generate_series(1, 5) AS i;
INSERT INTO trace_parts SELECT i, 'a' FROM generate_series(1, 3) AS i;
SELECT count(*) FROM generate_series(1, 3) AS i, idem_fire('trace_plain', i, 'go');
SELECT outcome FROM idem_fire('trace_plain', 1, 'stop');
UPDATE trace_parts SET state = 'b' WHERE id < 3;
UPDATE trace_parts SET state = 'c' WHERE id = 1;
SELECT idem_diagram('trace', counts => true);

SELECT idem_define('trace', $$stateDiagram-v2
    [*] --> a
    a --> c : go
    c --> [*]
$$, moved => '{"b": "a", "x": "c"}');
SELECT table_name, row_key, event, from_state, to_state FROM idem.history
WHERE event = 'migrate' AND machine = 'trace' ORDER BY table_name, row_key;
SELECT 'plain', id, state FROM trace_plain UNION ALL SELECT 'parts', id, state FROM trace_parts ORDER BY 1, 2;
SELECT idem_diagram('trace', counts => true);

-- A transition after some time may come later: there is a history.
SELECT idem_define('trace', $$stateDiagram-v2
    [*] --> a
    a --> c : go after 1 day
    c --> [*]
$$);
DROP TABLE trace_plain, trace_parts;
DELETE FROM idem.machine WHERE name = 'trace';
ALTER TABLE idem.history DISABLE TRIGGER protected_row;
DELETE FROM idem.history WHERE machine = 'trace';
ALTER TABLE idem.history ENABLE TRIGGER protected_row;
