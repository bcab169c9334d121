-- State machines: their definitions.
--
-- Three tables that say which states there are and which events lead from one
-- to another.  They may be written by idem_define() or by plain INSERT, UPDATE
-- and DELETE: what cannot be right is refused where it is written, either way.
-- A change to any of them is announced as one of idem.machine.  States and
-- transitions follow their machine by trigger, not by foreign keys, since
-- pg_restore -j loads the three in any order.

CREATE TABLE idem.machine (
	name pg_catalog.text COLLATE pg_catalog."C" PRIMARY KEY
		CHECK (pg_catalog.octet_length(name) OPERATOR(pg_catalog.>=) 1
			AND pg_catalog.octet_length(name) OPERATOR(pg_catalog.<=) 128),
	owner pg_catalog.name NOT NULL DEFAULT CURRENT_USER
);
COMMENT ON TABLE idem.machine IS 'state machines; only a machine''s owner (and who owns this table) changes it';
COMMENT ON COLUMN idem.machine.name IS 'what bindings and functions call it';
COMMENT ON COLUMN idem.machine.owner IS 'role whose members may change the machine';

CREATE TABLE idem.state (
	machine pg_catalog.text COLLATE pg_catalog."C" NOT NULL,
	name pg_catalog.text COLLATE pg_catalog."C" NOT NULL
		CHECK (pg_catalog.octet_length(name) OPERATOR(pg_catalog.>=) 1
			AND pg_catalog.octet_length(name) OPERATOR(pg_catalog.<=) 128
			AND name OPERATOR(pg_catalog.<>) '*'),
	initial pg_catalog.bool NOT NULL DEFAULT false,
	final pg_catalog.bool NOT NULL DEFAULT false,
	frozen pg_catalog.bool NOT NULL DEFAULT false,
	self pg_catalog.text COLLATE pg_catalog."C" NOT NULL DEFAULT 'noop'
		CHECK (self OPERATOR(pg_catalog.=) ANY ('{deny,noop,reenter}'::pg_catalog.text[])),
	PRIMARY KEY (machine, name)
);
COMMENT ON TABLE idem.state IS 'the states of a machine; deleting one takes its transitions along and is refused while rows are in it';
COMMENT ON COLUMN idem.state.name IS 'the value in the state column, as text';
COMMENT ON COLUMN idem.state.initial IS 'a row may be inserted in it';
COMMENT ON COLUMN idem.state.final IS 'no transition leaves it; other columns may change';
COMMENT ON COLUMN idem.state.frozen IS 'every UPDATE of a row in it is refused';
COMMENT ON COLUMN idem.state.self IS 'what a transition from the state to itself is: deny, noop (passes, leaves no trace) or reenter (a transition like any other)';

CREATE TABLE idem.transition (
	machine pg_catalog.text COLLATE pg_catalog."C" NOT NULL,
	event pg_catalog.text COLLATE pg_catalog."C" NOT NULL
		CHECK (pg_catalog.octet_length(event) OPERATOR(pg_catalog.>=) 1
			AND pg_catalog.octet_length(event) OPERATOR(pg_catalog.<=) 128),
	from_state pg_catalog.text COLLATE pg_catalog."C" NOT NULL,
	to_state pg_catalog.text COLLATE pg_catalog."C" NOT NULL,
	priority pg_catalog.int4 NOT NULL DEFAULT 0,
	guard pg_catalog.text COLLATE pg_catalog."C"
		CHECK (pg_catalog.octet_length(guard) OPERATOR(pg_catalog.<=) 8192),
	roles pg_catalog.name[],
	after pg_catalog.interval
		CHECK (after OPERATOR(pg_catalog.>=) '0 s'::pg_catalog.interval
			AND after OPERATOR(pg_catalog.<=) '1000 years'::pg_catalog.interval),
	PRIMARY KEY (machine, event, from_state, priority)
);
CREATE INDEX transition_to_state ON idem.transition (machine, to_state);
COMMENT ON TABLE idem.transition IS 'the transitions of a machine, tried in the order of priority, then event';
COMMENT ON COLUMN idem.transition.event IS 'what idem_fire() calls it';
COMMENT ON COLUMN idem.transition.from_state IS 'a state that is not final, or "*": every such state but to_state itself';
COMMENT ON COLUMN idem.transition.to_state IS 'where it leads';
COMMENT ON COLUMN idem.transition.priority IS 'lower numbers are tried first';
COMMENT ON COLUMN idem.transition.guard IS 'boolean SQL expression over old and new; NULL: always; where it gives NULL, the transition is not taken';
COMMENT ON COLUMN idem.transition.roles IS 'roles whose members may take it; NULL: everybody';
COMMENT ON COLUMN idem.transition.after IS 'taken by idem_tick() when a row has been in from_state so long; NULL: not by itself';

CREATE FUNCTION idem_machine_check() RETURNS pg_catalog.trigger
	AS 'MODULE_PATHNAME', 'idem_machine_check_1_1' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_machine_check() IS
'Trigger on idem.machine, idem.state and idem.transition: who may write there, and what may stand there.';

CREATE TRIGGER checked AFTER INSERT OR UPDATE OR DELETE ON idem.machine
	FOR EACH ROW EXECUTE FUNCTION idem_machine_check();
CREATE TRIGGER checked AFTER INSERT OR UPDATE OR DELETE ON idem.state
	FOR EACH ROW EXECUTE FUNCTION idem_machine_check();
CREATE TRIGGER checked AFTER INSERT OR UPDATE OR DELETE ON idem.transition
	FOR EACH ROW EXECUTE FUNCTION idem_machine_check();
CREATE TRIGGER changed AFTER INSERT OR UPDATE OR DELETE ON idem.machine
	FOR EACH ROW EXECUTE FUNCTION idem_catalog_changed('machine');
CREATE TRIGGER emptied AFTER TRUNCATE ON idem.machine
	FOR EACH STATEMENT EXECUTE FUNCTION idem_catalog_changed('machine');
CREATE TRIGGER changed AFTER INSERT OR UPDATE OR DELETE ON idem.state
	FOR EACH ROW EXECUTE FUNCTION idem_catalog_changed('machine');
CREATE TRIGGER emptied AFTER TRUNCATE ON idem.state
	FOR EACH STATEMENT EXECUTE FUNCTION idem_catalog_changed('machine');
CREATE TRIGGER changed AFTER INSERT OR UPDATE OR DELETE ON idem.transition
	FOR EACH ROW EXECUTE FUNCTION idem_catalog_changed('machine');
CREATE TRIGGER emptied AFTER TRUNCATE ON idem.transition
	FOR EACH STATEMENT EXECUTE FUNCTION idem_catalog_changed('machine');
ALTER TABLE idem.machine ENABLE ALWAYS TRIGGER changed;
ALTER TABLE idem.machine ENABLE ALWAYS TRIGGER emptied;
ALTER TABLE idem.state ENABLE ALWAYS TRIGGER changed;
ALTER TABLE idem.state ENABLE ALWAYS TRIGGER emptied;
ALTER TABLE idem.transition ENABLE ALWAYS TRIGGER changed;
ALTER TABLE idem.transition ENABLE ALWAYS TRIGGER emptied;

CREATE FUNCTION idem_define(
	machine pg_catalog.text,
	definition pg_catalog.text,
	moved pg_catalog.jsonb DEFAULT NULL
) RETURNS pg_catalog.bool
	AS 'MODULE_PATHNAME', 'idem_define_1_1' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_define(pg_catalog.text, pg_catalog.text, pg_catalog.jsonb) IS
'For operators: makes a machine what the text of a Mermaid state diagram says, or changes it to that; nothing is written if it is that already. moved: an object of states that go, or values that are no states, and the states that their rows move to, as the caller; history calls this event "migrate". Returns true. Errors: ID400 bad argument, ID500 malformed definition (with its line), a guard that does not fit an attached table, or rows are in a state that goes, 42501 not the machine''s owner, 42704 no such role.';

CREATE FUNCTION idem_diagram(
	machine pg_catalog.text,
	format pg_catalog.text DEFAULT 'mermaid',
	counts pg_catalog.bool DEFAULT false
) RETURNS pg_catalog.text
	AS 'MODULE_PATHNAME', 'idem_diagram_1_1' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_diagram(pg_catalog.text, pg_catalog.text, pg_catalog.bool) IS
'A machine as text: "mermaid", which idem_define() accepts, or "dot" for graphviz. counts: with the rows that are in each state, counted as the caller, and how often each transition was taken, from idem.history. Errors: ID400 bad argument, ID500 no such machine, 42501 no SELECT on a bound table.';

CREATE FUNCTION idem_lint(
	machine pg_catalog.text,
	OUT code pg_catalog.text,
	OUT severity pg_catalog.text,
	OUT what pg_catalog.text,
	OUT rows pg_catalog.int8
) RETURNS SETOF pg_catalog.record
	AS 'MODULE_PATHNAME', 'idem_lint_1_1' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_lint(pg_catalog.text) IS
'What is probably not meant in a machine: code, severity (error, warning, note), what, and how many rows are concerned, counted as the caller where he may read the bound tables (else NULL). Errors: ID400 bad argument, ID500 no such machine.';

CREATE FUNCTION idem_export() RETURNS SETOF pg_catalog.text
	AS 'MODULE_PATHNAME', 'idem_export_1_1' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION idem_export() IS
'For operators: the statements that make the machines and the rows of idem.scope of this database in another; bindings are part of its schema.';
