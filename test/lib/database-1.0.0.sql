-- A database of version 1.0.0, as pg_dump wrote it: a row of every kind, tables
-- that idem is attached to, and objects of users that depend on its own.
-- EveryKind.pm filled it, with times that do not run out; its roles must exist.


-- Dumped from database version 15.20 (Debian 15.20-0+deb12u1)
-- Dumped by pg_dump version 15.20 (Debian 15.20-0+deb12u1)

SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;

--
-- Name: idem; Type: EXTENSION; Schema: -; Owner: -
--

CREATE EXTENSION IF NOT EXISTS idem WITH SCHEMA public;


--
-- Name: EXTENSION idem; Type: COMMENT; Schema: -; Owner: 
--

COMMENT ON EXTENSION idem IS 'idempotency keys and idempotent functions: requests that run once';


--
-- Name: claim_once(text); Type: FUNCTION; Schema: public; Owner: regress_idem_owner
--

CREATE FUNCTION public.claim_once(k text) RETURNS boolean
    LANGUAGE sql
    BEGIN ATOMIC
 SELECT idem_claim.run
    FROM public.idem_claim(claim_once.k, lease => '01:00:00'::interval) idem_claim(run, outcome, attempt, fence, step, progress, response, code, retry_after, expires_at);
END;


ALTER FUNCTION public.claim_once(k text) OWNER TO regress_idem_owner;

--
-- Name: double(numeric); Type: FUNCTION; Schema: public; Owner: regress_idem_owner
--

CREATE FUNCTION public.double(n numeric) RETURNS numeric
    LANGUAGE sql
    AS $$SELECT n * 2$$;


ALTER FUNCTION public.double(n numeric) OWNER TO regress_idem_owner;

--
-- Name: double_once(text, numeric); Type: FUNCTION; Schema: public; Owner: regress_idem_owner
--

CREATE FUNCTION public.double_once(idem_key text, n numeric) RETURNS numeric
    LANGUAGE plpgsql
    AS $_$-- the twin of 'public.double(numeric)'
#variable_conflict use_column
BEGIN
	RETURN public.idem_twin_value('public.double(numeric)', $1, NULL::numeric, $2);
END$_$;


ALTER FUNCTION public.double_once(idem_key text, n numeric) OWNER TO regress_idem_owner;

--
-- Name: busy; Type: VIEW; Schema: public; Owner: regress_idem_owner
--

CREATE VIEW public.busy AS
 SELECT held.scope,
    held.key,
    held.since
   FROM idem.held;


ALTER TABLE public.busy OWNER TO regress_idem_owner;

SET default_tablespace = '';

SET default_table_access_method = heap;

--
-- Name: document; Type: TABLE; Schema: public; Owner: regress_idem_owner
--

CREATE TABLE public.document (
    id integer NOT NULL,
    body jsonb,
    told public.idem_claimed,
    CONSTRAINT document_body_check CHECK ((public.idem_canonical(body) IS NOT NULL))
);


ALTER TABLE public.document OWNER TO regress_idem_owner;

--
-- Name: event; Type: TABLE; Schema: public; Owner: regress_idem_owner
--

CREATE TABLE public.event (
    id integer,
    key text
);


ALTER TABLE public.event OWNER TO regress_idem_owner;

--
-- Name: leases; Type: VIEW; Schema: public; Owner: regress_idem_owner
--

CREATE VIEW public.leases AS
 SELECT lease_held.name,
    lease_held.owner,
    lease_held.fence,
    lease_held.since,
    lease_held.until
   FROM idem.lease_held;


ALTER TABLE public.leases OWNER TO regress_idem_owner;

--
-- Name: moved; Type: VIEW; Schema: public; Owner: regress_idem_owner
--

CREATE VIEW public.moved AS
 SELECT h.table_name,
    h.event,
    h.at
   FROM idem.history h;


ALTER TABLE public.moved OWNER TO regress_idem_owner;

--
-- Name: orders; Type: TABLE; Schema: public; Owner: regress_idem_owner
--

CREATE TABLE public.orders (
    id integer NOT NULL,
    state text,
    v integer DEFAULT 1 NOT NULL
);


ALTER TABLE public.orders OWNER TO regress_idem_owner;

--
-- Name: parts; Type: TABLE; Schema: public; Owner: regress_idem_owner
--

CREATE TABLE public.parts (
    id integer NOT NULL,
    state text NOT NULL
)
PARTITION BY LIST (state);


ALTER TABLE public.parts OWNER TO regress_idem_owner;

--
-- Name: parts_draft; Type: TABLE; Schema: public; Owner: regress_idem_owner
--

CREATE TABLE public.parts_draft (
    id integer NOT NULL,
    state text NOT NULL
);


ALTER TABLE public.parts_draft OWNER TO regress_idem_owner;

--
-- Name: parts_rest; Type: TABLE; Schema: public; Owner: regress_idem_owner
--

CREATE TABLE public.parts_rest (
    id integer NOT NULL,
    state text NOT NULL
);


ALTER TABLE public.parts_rest OWNER TO regress_idem_owner;

--
-- Name: report; Type: TABLE; Schema: public; Owner: regress_idem_owner
--

CREATE TABLE public.report (
    id integer NOT NULL,
    body text,
    fence bigint
);


ALTER TABLE public.report OWNER TO regress_idem_owner;

--
-- Name: waited; Type: VIEW; Schema: public; Owner: regress_idem_owner
--

CREATE VIEW public.waited AS
 SELECT dwell.machine,
    dwell.state,
    dwell.count,
    dwell.median,
    dwell.p95,
    dwell.oldest
   FROM idem.dwell;


ALTER TABLE public.waited OWNER TO regress_idem_owner;

--
-- Name: parts_draft; Type: TABLE ATTACH; Schema: public; Owner: regress_idem_owner
--

ALTER TABLE ONLY public.parts ATTACH PARTITION public.parts_draft FOR VALUES IN ('draft');


--
-- Name: parts_rest; Type: TABLE ATTACH; Schema: public; Owner: regress_idem_owner
--

ALTER TABLE ONLY public.parts ATTACH PARTITION public.parts_rest DEFAULT;


--
-- Data for Name: branch; Type: TABLE DATA; Schema: idem; Owner: regress_idem_owner
--

COPY idem.branch (saga, branch, seq, tried_at, confirmed_at, cancelled_at, expires_at) FROM stdin;
saga	hotel	1	2026-11-30 00:31:09.162971+00	\N	\N	\N
\.


--
-- Data for Name: history; Type: TABLE DATA; Schema: idem; Owner: regress_idem_owner
--

COPY idem.history (seq, table_schema, table_name, column_name, row_key, machine, event, from_state, to_state, version, role_name, actor, key, context, at, expires_at, row_hash) FROM stdin;
1	public	orders	state	{"id": 1}	order	\N	\N	draft	1	regress_idem_owner	\N	\N	\N	2026-11-30 00:31:09.149026+00	\N	1
2	public	orders	state	{"id": 2}	order	\N	\N	draft	1	regress_idem_owner	\N	\N	\N	2026-11-30 00:31:09.149045+00	\N	2
3	public	orders	state	{"id": 1}	order	submit	draft	pending	2	regress_idem_owner	\N	fired	\N	2026-11-30 00:31:09.149683+00	\N	1
4	public	parts	state	{"id": 1}	order	\N	\N	draft	\N	regress_idem_owner	\N	\N	\N	2026-11-30 00:31:09.156673+00	\N	1
\.


--
-- Data for Name: key; Type: TABLE DATA; Schema: idem; Owner: regress_idem_owner
--

COPY idem.key (scope, key, state, hold, attempt, fence, lease_until, expires_at, fingerprint, step, progress, response, code, created_at, finished_at, function, result, ttl, claimed_at) FROM stdin;
default	done	completed	transaction	1	\N	\N	2125-06-24 00:31:09.139297+00	\\x01015abd7f5cc57a2dd94b7590f04ad8084273905ee33ec5cebeae62276a97f862	\N	\N	byte\t"for" byte é	201	2026-11-30 00:31:09.139191+00	2026-11-30 00:31:09.139297+00	\N	\N	\N	\N
default	failed	failed	transaction	1	\N	\N	2125-06-24 00:31:09.139831+00	\N	\N	\N	no funds	402	2026-11-30 00:31:09.139815+00	2026-11-30 00:31:09.139831+00	\N	\N	\N	\N
default	later	open	transaction	1	\N	2125-06-24 00:31:09.139961+00	2224-01-17 00:31:09.139961+00	\N	\N	\N	busy	\N	2026-11-30 00:31:09.139953+00	\N	\N	\N	\N	\N
default	a	completed	\N	1	\N	\N	2125-06-24 00:31:09.140052+00	\N	\N	\N	\N	\N	2026-11-30 00:31:09.140052+00	2026-11-30 00:31:09.140052+00	\N	\N	\N	\N
default	b	completed	\N	1	\N	\N	2125-06-24 00:31:09.140058+00	\N	\N	\N	\N	\N	2026-11-30 00:31:09.140058+00	2026-11-30 00:31:09.140058+00	\N	\N	\N	\N
pay	leased	in_progress	lease	1	1	2125-06-24 00:31:09.140194+00	2125-07-24 00:31:09.140194+00	\N	half	{"n": 100}	\N	\N	2026-11-30 00:31:09.140194+00	\N	\N	\N	\N	2026-11-30 00:31:09.140194+00
default	session	in_progress	session	1	2	\N	\N	\N	\N	\N	\N	\N	2026-11-30 00:31:09.140406+00	\N	\N	\N	\N	2026-11-30 00:31:09.140406+00
default	call	completed	transaction	1	\N	\N	2125-06-24 00:31:09.140926+00	\\x015376a6f39deb5a5b48bf31dc5e3674f816f3d747f917f9a3cd92ca0cb277f59b	\N	\N	4	\N	2026-11-30 00:31:09.140873+00	2026-11-30 00:31:09.140926+00	public.double(numeric)	\N	\N	\N
default	twin	completed	transaction	1	\N	\N	2125-06-24 00:31:09.141292+00	\\x0101c5610d2ea09e29a167348a33dbffedd0bdbbc36b9de9abc91a0177b20c1228	\N	\N	42	\N	2026-11-30 00:31:09.141265+00	2026-11-30 00:31:09.141292+00	public.double(numeric)	numeric\n\n=42	\N	\N
idem.fire	fired	completed	\N	1	\N	\N	2125-06-24 00:31:09.149471+00	\\x01484acedde621f5460a52511ff3bd06e66052371c3229fb54ac4de356fdcdb22c	\N	\N	{"from":"draft","to":"pending"}	\N	2026-11-30 00:31:09.149471+00	2026-11-30 00:31:09.149471+00	\N	\N	\N	\N
once.public.event	1:x	completed	\N	1	\N	\N	\N	\N	\N	\N	\N	\N	2026-11-30 00:31:09.158894+00	2026-11-30 00:31:09.158894+00	\N	\N	\N	\N
\.


--
-- Data for Name: lease; Type: TABLE DATA; Schema: idem; Owner: regress_idem_owner
--

COPY idem.lease (name, owner, fence, since, until, released) FROM stdin;
job	me	3	2026-11-30 00:31:09.159257+00	2125-06-24 00:31:09.159257+00	f
\.


--
-- Data for Name: machine; Type: TABLE DATA; Schema: idem; Owner: regress_idem_owner
--

COPY idem.machine (name, owner) FROM stdin;
order	regress_idem_owner
\.


--
-- Data for Name: scope; Type: TABLE DATA; Schema: idem; Owner: regress_idem_owner
--

COPY idem.scope (name, hold, lease, ttl, no_expiry, max_response, max_attempts, roles, keep_failures) FROM stdin;
pay	lease	36000 days	30 days	f	\N	\N	{regress_idem_app,regress_idem_owner}	\N
default	\N	\N	36000 days	f	\N	\N	\N	\N
\.


--
-- Data for Name: state; Type: TABLE DATA; Schema: idem; Owner: regress_idem_owner
--

COPY idem.state (machine, name, initial, final, frozen, self) FROM stdin;
order	draft	t	f	f	noop
order	pending	f	f	f	noop
order	approved	f	t	f	noop
order	expired	f	f	f	noop
\.


--
-- Data for Name: timer; Type: TABLE DATA; Schema: idem; Owner: regress_idem_owner
--

COPY idem.timer (machine, table_schema, table_name, binding, row_key, row_hash, state, event, since, due, tries) FROM stdin;
order	public	orders	~idem_state	{"id": 1}	1	pending	expire	2026-11-30 00:31:09.149683+00	2026-12-30 00:31:09.149683+00	0
\.


--
-- Data for Name: token; Type: TABLE DATA; Schema: idem; Owner: regress_idem_owner
--

COPY idem.token (hash, created_at, expires_at, used_at, purpose, subject, fingerprint, ends_older) FROM stdin;
\\x03d54557fcec6db56f67985dc54c244036077715a4fcfe98d40b962b6880b505	2026-11-30 00:31:09.163484+00	2125-06-24 00:31:09.163484+00	\N	mail	ann	\N	\N
\\xb501b44c8de1a6fd2f5ebf7e76063bfcdb47676d54642438935d577d7dcd2754	2026-11-30 00:31:09.163646+00	2125-06-24 00:31:09.163646+00	2026-11-30 00:31:09.163754+00	mail	bob	\N	\N
\.


--
-- Data for Name: transition; Type: TABLE DATA; Schema: idem; Owner: regress_idem_owner
--

COPY idem.transition (machine, event, from_state, to_state, priority, guard, roles, after) FROM stdin;
order	submit	draft	pending	1	\N	\N	\N
order	approve	pending	approved	2	\N	\N	\N
order	expire	pending	expired	3	\N	\N	30 days
\.


--
-- Data for Name: window_hit; Type: TABLE DATA; Schema: idem; Owner: regress_idem_owner
--

COPY idem.window_hit (scope, key, hits, expires_at) FROM stdin;
default	login	{"2026-11-30 00:31:09.163217+00"}	2125-06-24 00:31:09.163217+00
\.


--
-- Data for Name: document; Type: TABLE DATA; Schema: public; Owner: regress_idem_owner
--

COPY public.document (id, body, told) FROM stdin;
1	{"a": 1}	\N
\.


--
-- Data for Name: event; Type: TABLE DATA; Schema: public; Owner: regress_idem_owner
--

COPY public.event (id, key) FROM stdin;
1	x
\.


--
-- Data for Name: orders; Type: TABLE DATA; Schema: public; Owner: regress_idem_owner
--

COPY public.orders (id, state, v) FROM stdin;
2	draft	1
1	pending	2
\.


--
-- Data for Name: parts_draft; Type: TABLE DATA; Schema: public; Owner: regress_idem_owner
--

COPY public.parts_draft (id, state) FROM stdin;
1	draft
\.


--
-- Data for Name: parts_rest; Type: TABLE DATA; Schema: public; Owner: regress_idem_owner
--

COPY public.parts_rest (id, state) FROM stdin;
\.


--
-- Data for Name: report; Type: TABLE DATA; Schema: public; Owner: regress_idem_owner
--

COPY public.report (id, body, fence) FROM stdin;
1	new	1000
\.


--
-- Name: fence; Type: SEQUENCE SET; Schema: idem; Owner: regress_idem_owner
--

SELECT pg_catalog.setval('idem.fence', 3, true);


--
-- Name: history_seq; Type: SEQUENCE SET; Schema: idem; Owner: regress_idem_owner
--

SELECT pg_catalog.setval('idem.history_seq', 4, true);


--
-- Name: document document_pkey; Type: CONSTRAINT; Schema: public; Owner: regress_idem_owner
--

ALTER TABLE ONLY public.document
    ADD CONSTRAINT document_pkey PRIMARY KEY (id);


--
-- Name: orders orders_pkey; Type: CONSTRAINT; Schema: public; Owner: regress_idem_owner
--

ALTER TABLE ONLY public.orders
    ADD CONSTRAINT orders_pkey PRIMARY KEY (id);


--
-- Name: parts parts_pkey; Type: CONSTRAINT; Schema: public; Owner: regress_idem_owner
--

ALTER TABLE ONLY public.parts
    ADD CONSTRAINT parts_pkey PRIMARY KEY (id, state);


--
-- Name: parts_draft parts_draft_pkey; Type: CONSTRAINT; Schema: public; Owner: regress_idem_owner
--

ALTER TABLE ONLY public.parts_draft
    ADD CONSTRAINT parts_draft_pkey PRIMARY KEY (id, state);


--
-- Name: parts_rest parts_rest_pkey; Type: CONSTRAINT; Schema: public; Owner: regress_idem_owner
--

ALTER TABLE ONLY public.parts_rest
    ADD CONSTRAINT parts_rest_pkey PRIMARY KEY (id, state);


--
-- Name: report report_pkey; Type: CONSTRAINT; Schema: public; Owner: regress_idem_owner
--

ALTER TABLE ONLY public.report
    ADD CONSTRAINT report_pkey PRIMARY KEY (id);


--
-- Name: document_fingerprint; Type: INDEX; Schema: public; Owner: regress_idem_owner
--

CREATE INDEX document_fingerprint ON public.document USING btree (public.idem_fingerprint(body));


--
-- Name: parts_draft_pkey; Type: INDEX ATTACH; Schema: public; Owner: regress_idem_owner
--

ALTER INDEX public.parts_pkey ATTACH PARTITION public.parts_draft_pkey;


--
-- Name: parts_rest_pkey; Type: INDEX ATTACH; Schema: public; Owner: regress_idem_owner
--

ALTER INDEX public.parts_pkey ATTACH PARTITION public.parts_rest_pkey;


--
-- Name: parts !idem_state_delete; Type: TRIGGER; Schema: public; Owner: regress_idem_owner
--

CREATE TRIGGER "!idem_state_delete" AFTER DELETE ON public.parts FOR EACH ROW WHEN (((old.state IS NOT NULL) OR true)) EXECUTE FUNCTION public.idem_guard('order', '{"history": true}', '~idem_state', 'public.parts');


--
-- Name: orders !idem_state_insert; Type: TRIGGER; Schema: public; Owner: regress_idem_owner
--

CREATE TRIGGER "!idem_state_insert" AFTER INSERT ON public.orders FOR EACH ROW WHEN ((public.idem_not_initial(new.state, 'order'::text) OR public.idem_each_row(new.state, 'public.orders'::regclass))) EXECUTE FUNCTION public.idem_guard('order', '{"history": true}', '~idem_state', 'public.orders');


--
-- Name: parts !idem_state_insert; Type: TRIGGER; Schema: public; Owner: regress_idem_owner
--

CREATE TRIGGER "!idem_state_insert" AFTER INSERT ON public.parts FOR EACH ROW WHEN (((new.state IS NOT NULL) OR true)) EXECUTE FUNCTION public.idem_guard('order', '{"history": true}', '~idem_state', 'public.parts');


--
-- Name: orders !idem_state_update; Type: TRIGGER; Schema: public; Owner: regress_idem_owner
--

CREATE TRIGGER "!idem_state_update" AFTER UPDATE ON public.orders FOR EACH ROW WHEN (public.idem_each_row(new.state, 'public.orders'::regclass)) EXECUTE FUNCTION public.idem_guard('order', '{"history": true}', '~idem_state', 'public.orders');


--
-- Name: parts !idem_state_update; Type: TRIGGER; Schema: public; Owner: regress_idem_owner
--

CREATE TRIGGER "!idem_state_update" AFTER UPDATE ON public.parts FOR EACH ROW WHEN (((new.state IS NOT NULL) OR true)) EXECUTE FUNCTION public.idem_guard('order', '{"history": true}', '~idem_state', 'public.parts');


--
-- Name: report ~idem_fence; Type: TRIGGER; Schema: public; Owner: regress_idem_owner
--

CREATE TRIGGER "~idem_fence" BEFORE UPDATE ON public.report FOR EACH ROW WHEN (((new.fence < old.fence) OR ((new.fence IS NULL) AND (old.fence IS NOT NULL)))) EXECUTE FUNCTION public.idem_fence_check();


--
-- Name: report ~idem_fence_final; Type: TRIGGER; Schema: public; Owner: regress_idem_owner
--

CREATE TRIGGER "~idem_fence_final" AFTER UPDATE ON public.report FOR EACH ROW WHEN (((new.fence < old.fence) OR ((new.fence IS NULL) AND (old.fence IS NOT NULL)))) EXECUTE FUNCTION public.idem_fence_check();


--
-- Name: event ~idem_once; Type: TRIGGER; Schema: public; Owner: regress_idem_owner
--

CREATE TRIGGER "~idem_once" BEFORE INSERT ON public.event FOR EACH ROW WHEN (((new.key IS NOT NULL) OR true)) EXECUTE FUNCTION public.idem_once_row('once.public.event', '');


--
-- Name: event ~idem_once_done; Type: TRIGGER; Schema: public; Owner: regress_idem_owner
--

CREATE TRIGGER "~idem_once_done" AFTER INSERT ON public.event FOR EACH ROW WHEN ((GREATEST((new.ctid)::public.idem_inserted, (new.ctid)::public.idem_inserted) IS NULL)) EXECUTE FUNCTION public.idem_once_row();


--
-- Name: event ~idem_once_end; Type: TRIGGER; Schema: public; Owner: regress_idem_owner
--

CREATE TRIGGER "~idem_once_end" AFTER INSERT ON public.event FOR EACH STATEMENT EXECUTE FUNCTION public.idem_once_row();


--
-- Name: orders ~idem_state; Type: TRIGGER; Schema: public; Owner: regress_idem_owner
--

CREATE TRIGGER "~idem_state" BEFORE UPDATE ON public.orders FOR EACH ROW WHEN (((new.state IS NOT NULL) OR true)) EXECUTE FUNCTION public.idem_guard('order', '{"history": true}', '~idem_state', 'public.orders');


--
-- Name: parts ~idem_state; Type: TRIGGER; Schema: public; Owner: regress_idem_owner
--

CREATE TRIGGER "~idem_state" BEFORE UPDATE ON public.parts FOR EACH ROW WHEN (((new.state IS NOT NULL) OR true)) EXECUTE FUNCTION public.idem_guard('order', '{"history": true}', '~idem_state', 'public.parts');


--
-- Name: orders ~idem_state_end; Type: TRIGGER; Schema: public; Owner: regress_idem_owner
--

CREATE TRIGGER "~idem_state_end" AFTER UPDATE ON public.orders FOR EACH STATEMENT EXECUTE FUNCTION public.idem_guard('order', '{"history": true}', '~idem_state', 'public.orders');


--
-- Name: orders ~idem_state_log_i; Type: TRIGGER; Schema: public; Owner: regress_idem_owner
--

CREATE TRIGGER "~idem_state_log_i" AFTER INSERT ON public.orders REFERENCING NEW TABLE AS idem_new FOR EACH STATEMENT EXECUTE FUNCTION public.idem_history_changed('order', '{"history": true}', '~idem_state', 'public.orders');


--
-- Name: orders ~idem_state_log_u; Type: TRIGGER; Schema: public; Owner: regress_idem_owner
--

CREATE TRIGGER "~idem_state_log_u" AFTER UPDATE ON public.orders REFERENCING OLD TABLE AS idem_old NEW TABLE AS idem_new FOR EACH STATEMENT EXECUTE FUNCTION public.idem_history_changed('order', '{"history": true}', '~idem_state', 'public.orders');


--
-- Name: orders ~idem_version; Type: TRIGGER; Schema: public; Owner: regress_idem_owner
--

CREATE TRIGGER "~idem_version" BEFORE UPDATE ON public.orders FOR EACH ROW WHEN (((new.v IS NOT NULL) OR true)) EXECUTE FUNCTION public.idem_rowversion('read');


--
-- Name: SCHEMA idem; Type: ACL; Schema: -; Owner: regress_idem_owner
--

GRANT USAGE ON SCHEMA idem TO regress_idem_reader;


--
-- Name: TYPE idem_claimed; Type: ACL; Schema: public; Owner: postgres
--

SET SESSION AUTHORIZATION regress_idem_owner;
GRANT ALL ON TYPE public.idem_claimed TO regress_idem_app;
RESET SESSION AUTHORIZATION;
SET SESSION AUTHORIZATION regress_idem_owner;
GRANT ALL ON TYPE public.idem_claimed TO regress_idem_reader;
RESET SESSION AUTHORIZATION;


--
-- Name: TYPE idem_fired; Type: ACL; Schema: public; Owner: postgres
--

SET SESSION AUTHORIZATION regress_idem_owner;
GRANT ALL ON TYPE public.idem_fired TO regress_idem_app;
RESET SESSION AUTHORIZATION;


--
-- Name: TYPE idem_fired_row; Type: ACL; Schema: public; Owner: postgres
--

SET SESSION AUTHORIZATION regress_idem_owner;
GRANT ALL ON TYPE public.idem_fired_row TO regress_idem_app;
RESET SESSION AUTHORIZATION;


--
-- Name: TYPE idem_inserted; Type: ACL; Schema: public; Owner: postgres
--

SET SESSION AUTHORIZATION regress_idem_owner;
GRANT ALL ON TYPE public.idem_inserted TO regress_idem_app;
RESET SESSION AUTHORIZATION;


--
-- Name: TYPE idem_lease_acquired; Type: ACL; Schema: public; Owner: postgres
--

SET SESSION AUTHORIZATION regress_idem_owner;
GRANT ALL ON TYPE public.idem_lease_acquired TO regress_idem_app;
RESET SESSION AUTHORIZATION;


--
-- Name: TYPE idem_lease_renewed; Type: ACL; Schema: public; Owner: postgres
--

SET SESSION AUTHORIZATION regress_idem_owner;
GRANT ALL ON TYPE public.idem_lease_renewed TO regress_idem_app;
RESET SESSION AUTHORIZATION;


--
-- Name: TYPE idem_versioned; Type: ACL; Schema: public; Owner: postgres
--

SET SESSION AUTHORIZATION regress_idem_owner;
GRANT ALL ON TYPE public.idem_versioned TO regress_idem_app;
RESET SESSION AUTHORIZATION;


--
-- Name: TYPE idem_windowed; Type: ACL; Schema: public; Owner: postgres
--

SET SESSION AUTHORIZATION regress_idem_owner;
GRANT ALL ON TYPE public.idem_windowed TO regress_idem_app;
RESET SESSION AUTHORIZATION;


--
-- Name: FUNCTION idem_key(); Type: ACL; Schema: public; Owner: postgres
--

SET SESSION AUTHORIZATION regress_idem_owner;
GRANT ALL ON FUNCTION public.idem_key() TO regress_idem_app;
RESET SESSION AUTHORIZATION;


--
-- Name: FUNCTION idem_claim(key text, request jsonb, scope text, hold text, lease interval, ttl interval, wait interval); Type: ACL; Schema: public; Owner: postgres
--

SET SESSION AUTHORIZATION regress_idem_owner;
GRANT ALL ON FUNCTION public.idem_claim(key text, request jsonb, scope text, hold text, lease interval, ttl interval, wait interval) TO regress_idem_app;
RESET SESSION AUTHORIZATION;


--
-- Name: FUNCTION idem_allowed(table_name regclass, id "any", OUT event text, OUT to_state text); Type: ACL; Schema: public; Owner: postgres
--

SET SESSION AUTHORIZATION regress_idem_owner;
GRANT ALL ON FUNCTION public.idem_allowed(table_name regclass, id "any", OUT event text, OUT to_state text) TO regress_idem_app;
RESET SESSION AUTHORIZATION;


--
-- Name: FUNCTION idem_allowed(table_name regclass, id text, OUT event text, OUT to_state text); Type: ACL; Schema: public; Owner: postgres
--

SET SESSION AUTHORIZATION regress_idem_owner;
GRANT ALL ON FUNCTION public.idem_allowed(table_name regclass, id text, OUT event text, OUT to_state text) TO regress_idem_app;
RESET SESSION AUTHORIZATION;


--
-- Name: FUNCTION idem_branch(saga text, branch text, op text, seq integer); Type: ACL; Schema: public; Owner: postgres
--

SET SESSION AUTHORIZATION regress_idem_owner;
GRANT ALL ON FUNCTION public.idem_branch(saga text, branch text, op text, seq integer) TO regress_idem_app;
RESET SESSION AUTHORIZATION;


--
-- Name: FUNCTION idem_call(key text, function regprocedure, args jsonb, scope text, ttl interval, wait interval); Type: ACL; Schema: public; Owner: postgres
--

SET SESSION AUTHORIZATION regress_idem_owner;
GRANT ALL ON FUNCTION public.idem_call(key text, function regprocedure, args jsonb, scope text, ttl interval, wait interval) TO regress_idem_app;
RESET SESSION AUTHORIZATION;


--
-- Name: FUNCTION idem_canonical(document jsonb); Type: ACL; Schema: public; Owner: postgres
--

SET SESSION AUTHORIZATION regress_idem_owner;
GRANT ALL ON FUNCTION public.idem_canonical(document jsonb) TO regress_idem_app;
RESET SESSION AUTHORIZATION;


--
-- Name: FUNCTION idem_child(key text, name text, scope text); Type: ACL; Schema: public; Owner: postgres
--

SET SESSION AUTHORIZATION regress_idem_owner;
GRANT ALL ON FUNCTION public.idem_child(key text, name text, scope text) TO regress_idem_app;
RESET SESSION AUTHORIZATION;


--
-- Name: FUNCTION idem_claim_key(key text); Type: ACL; Schema: public; Owner: postgres
--

SET SESSION AUTHORIZATION regress_idem_owner;
GRANT ALL ON FUNCTION public.idem_claim_key(key text) TO regress_idem_app;
RESET SESSION AUTHORIZATION;


--
-- Name: FUNCTION idem_complete(key text, response json, scope text, fence bigint, code integer); Type: ACL; Schema: public; Owner: postgres
--

SET SESSION AUTHORIZATION regress_idem_owner;
GRANT ALL ON FUNCTION public.idem_complete(key text, response json, scope text, fence bigint, code integer) TO regress_idem_app;
RESET SESSION AUTHORIZATION;


--
-- Name: FUNCTION idem_complete(key text, response jsonb, scope text, fence bigint, code integer); Type: ACL; Schema: public; Owner: postgres
--

SET SESSION AUTHORIZATION regress_idem_owner;
GRANT ALL ON FUNCTION public.idem_complete(key text, response jsonb, scope text, fence bigint, code integer) TO regress_idem_app;
RESET SESSION AUTHORIZATION;


--
-- Name: FUNCTION idem_complete(key text, response text, scope text, fence bigint, code integer); Type: ACL; Schema: public; Owner: postgres
--

SET SESSION AUTHORIZATION regress_idem_owner;
GRANT ALL ON FUNCTION public.idem_complete(key text, response text, scope text, fence bigint, code integer) TO regress_idem_app;
RESET SESSION AUTHORIZATION;


--
-- Name: FUNCTION idem_delete(table_name regclass, id "any", version bigint); Type: ACL; Schema: public; Owner: postgres
--

SET SESSION AUTHORIZATION regress_idem_owner;
GRANT ALL ON FUNCTION public.idem_delete(table_name regclass, id "any", version bigint) TO regress_idem_app;
RESET SESSION AUTHORIZATION;


--
-- Name: FUNCTION idem_delete(table_name regclass, id text, version bigint); Type: ACL; Schema: public; Owner: postgres
--

SET SESSION AUTHORIZATION regress_idem_owner;
GRANT ALL ON FUNCTION public.idem_delete(table_name regclass, id text, version bigint) TO regress_idem_app;
RESET SESSION AUTHORIZATION;


--
-- Name: FUNCTION idem_diagram(machine text, format text, counts boolean); Type: ACL; Schema: public; Owner: postgres
--

SET SESSION AUTHORIZATION regress_idem_owner;
GRANT ALL ON FUNCTION public.idem_diagram(machine text, format text, counts boolean) TO regress_idem_app;
RESET SESSION AUTHORIZATION;


--
-- Name: FUNCTION idem_fail(key text, error text, scope text, fence bigint, code integer); Type: ACL; Schema: public; Owner: postgres
--

SET SESSION AUTHORIZATION regress_idem_owner;
GRANT ALL ON FUNCTION public.idem_fail(key text, error text, scope text, fence bigint, code integer) TO regress_idem_app;
RESET SESSION AUTHORIZATION;


--
-- Name: FUNCTION idem_fingerprint(document jsonb); Type: ACL; Schema: public; Owner: postgres
--

SET SESSION AUTHORIZATION regress_idem_owner;
GRANT ALL ON FUNCTION public.idem_fingerprint(document jsonb) TO regress_idem_app;
RESET SESSION AUTHORIZATION;
SET SESSION AUTHORIZATION regress_idem_owner;
GRANT ALL ON FUNCTION public.idem_fingerprint(document jsonb) TO regress_idem_reader WITH GRANT OPTION;
RESET SESSION AUTHORIZATION;


--
-- Name: FUNCTION idem_fire(table_name regclass, id "any", event text, version bigint, key text, context jsonb, machine text); Type: ACL; Schema: public; Owner: postgres
--

SET SESSION AUTHORIZATION regress_idem_owner;
GRANT ALL ON FUNCTION public.idem_fire(table_name regclass, id "any", event text, version bigint, key text, context jsonb, machine text) TO regress_idem_app;
RESET SESSION AUTHORIZATION;


--
-- Name: FUNCTION idem_fire(table_name regclass, id text, event text, version bigint, key text, context jsonb, machine text); Type: ACL; Schema: public; Owner: postgres
--

SET SESSION AUTHORIZATION regress_idem_owner;
GRANT ALL ON FUNCTION public.idem_fire(table_name regclass, id text, event text, version bigint, key text, context jsonb, machine text) TO regress_idem_app;
RESET SESSION AUTHORIZATION;


--
-- Name: FUNCTION idem_fire_many(table_name regclass, ids anyarray, event text, version bigint, key text, context jsonb, machine text); Type: ACL; Schema: public; Owner: postgres
--

SET SESSION AUTHORIZATION regress_idem_owner;
GRANT ALL ON FUNCTION public.idem_fire_many(table_name regclass, ids anyarray, event text, version bigint, key text, context jsonb, machine text) TO regress_idem_app;
RESET SESSION AUTHORIZATION;


--
-- Name: FUNCTION idem_fire_many(table_name regclass, ids text, event text, version bigint, key text, context jsonb, machine text); Type: ACL; Schema: public; Owner: postgres
--

SET SESSION AUTHORIZATION regress_idem_owner;
GRANT ALL ON FUNCTION public.idem_fire_many(table_name regclass, ids text, event text, version bigint, key text, context jsonb, machine text) TO regress_idem_app;
RESET SESSION AUTHORIZATION;


--
-- Name: FUNCTION idem_grant(role name, level text); Type: ACL; Schema: public; Owner: regress_idem_owner
--

REVOKE ALL ON FUNCTION public.idem_grant(role name, level text) FROM postgres;
REVOKE ALL ON FUNCTION public.idem_grant(role name, level text) FROM regress_idem_owner;
GRANT ALL ON FUNCTION public.idem_grant(role name, level text) TO regress_idem_owner WITH GRANT OPTION;


--
-- Name: TABLE history; Type: ACL; Schema: idem; Owner: regress_idem_owner
--

GRANT SELECT ON TABLE idem.history TO regress_idem_reader;


--
-- Name: FUNCTION idem_history(table_name regclass, id "any"); Type: ACL; Schema: public; Owner: postgres
--

SET SESSION AUTHORIZATION regress_idem_owner;
GRANT ALL ON FUNCTION public.idem_history(table_name regclass, id "any") TO regress_idem_app;
RESET SESSION AUTHORIZATION;


--
-- Name: FUNCTION idem_history(table_name regclass, id text); Type: ACL; Schema: public; Owner: postgres
--

SET SESSION AUTHORIZATION regress_idem_owner;
GRANT ALL ON FUNCTION public.idem_history(table_name regclass, id text) TO regress_idem_app;
RESET SESSION AUTHORIZATION;


--
-- Name: FUNCTION idem_lease_acquire(name text, lease interval, wait interval, owner text); Type: ACL; Schema: public; Owner: postgres
--

SET SESSION AUTHORIZATION regress_idem_owner;
GRANT ALL ON FUNCTION public.idem_lease_acquire(name text, lease interval, wait interval, owner text) TO regress_idem_app;
RESET SESSION AUTHORIZATION;


--
-- Name: FUNCTION idem_lease_guard(name text, fence bigint); Type: ACL; Schema: public; Owner: postgres
--

SET SESSION AUTHORIZATION regress_idem_owner;
GRANT ALL ON FUNCTION public.idem_lease_guard(name text, fence bigint) TO regress_idem_app;
RESET SESSION AUTHORIZATION;


--
-- Name: FUNCTION idem_lease_release(name text, fence bigint); Type: ACL; Schema: public; Owner: postgres
--

SET SESSION AUTHORIZATION regress_idem_owner;
GRANT ALL ON FUNCTION public.idem_lease_release(name text, fence bigint) TO regress_idem_app;
RESET SESSION AUTHORIZATION;


--
-- Name: FUNCTION idem_lease_renew(name text, lease interval, fence bigint); Type: ACL; Schema: public; Owner: postgres
--

SET SESSION AUTHORIZATION regress_idem_owner;
GRANT ALL ON FUNCTION public.idem_lease_renew(name text, lease interval, fence bigint) TO regress_idem_app;
RESET SESSION AUTHORIZATION;


--
-- Name: FUNCTION idem_lint(machine text, OUT code text, OUT severity text, OUT what text, OUT rows bigint); Type: ACL; Schema: public; Owner: postgres
--

SET SESSION AUTHORIZATION regress_idem_owner;
GRANT ALL ON FUNCTION public.idem_lint(machine text, OUT code text, OUT severity text, OUT what text, OUT rows bigint) TO regress_idem_app;
RESET SESSION AUTHORIZATION;


--
-- Name: FUNCTION idem_lookup(key text, scope text, OUT outcome text, OUT attempt integer, OUT step text, OUT progress jsonb, OUT response text, OUT code integer, OUT created_at timestamp with time zone, OUT finished_at timestamp with time zone, OUT expires_at timestamp with time zone); Type: ACL; Schema: public; Owner: postgres
--

SET SESSION AUTHORIZATION regress_idem_owner;
GRANT ALL ON FUNCTION public.idem_lookup(key text, scope text, OUT outcome text, OUT attempt integer, OUT step text, OUT progress jsonb, OUT response text, OUT code integer, OUT created_at timestamp with time zone, OUT finished_at timestamp with time zone, OUT expires_at timestamp with time zone) TO regress_idem_app;
RESET SESSION AUTHORIZATION;


--
-- Name: FUNCTION idem_once(key text, scope text, ttl interval); Type: ACL; Schema: public; Owner: postgres
--

SET SESSION AUTHORIZATION regress_idem_owner;
GRANT ALL ON FUNCTION public.idem_once(key text, scope text, ttl interval) TO regress_idem_app;
RESET SESSION AUTHORIZATION;


--
-- Name: FUNCTION idem_once_many(keys text[], scope text, ttl interval); Type: ACL; Schema: public; Owner: postgres
--

SET SESSION AUTHORIZATION regress_idem_owner;
GRANT ALL ON FUNCTION public.idem_once_many(keys text[], scope text, ttl interval) TO regress_idem_app;
RESET SESSION AUTHORIZATION;


--
-- Name: FUNCTION idem_release(key text, scope text, fence bigint); Type: ACL; Schema: public; Owner: postgres
--

SET SESSION AUTHORIZATION regress_idem_owner;
GRANT ALL ON FUNCTION public.idem_release(key text, scope text, fence bigint) TO regress_idem_app;
RESET SESSION AUTHORIZATION;


--
-- Name: FUNCTION idem_renew(key text, lease interval, scope text, fence bigint); Type: ACL; Schema: public; Owner: postgres
--

SET SESSION AUTHORIZATION regress_idem_owner;
GRANT ALL ON FUNCTION public.idem_renew(key text, lease interval, scope text, fence bigint) TO regress_idem_app;
RESET SESSION AUTHORIZATION;


--
-- Name: FUNCTION idem_retry(key text, error text, scope text, fence bigint, after interval); Type: ACL; Schema: public; Owner: postgres
--

SET SESSION AUTHORIZATION regress_idem_owner;
GRANT ALL ON FUNCTION public.idem_retry(key text, error text, scope text, fence bigint, after interval) TO regress_idem_app;
RESET SESSION AUTHORIZATION;


--
-- Name: FUNCTION idem_revoke(role name); Type: ACL; Schema: public; Owner: regress_idem_owner
--

REVOKE ALL ON FUNCTION public.idem_revoke(role name) FROM postgres;
REVOKE ALL ON FUNCTION public.idem_revoke(role name) FROM regress_idem_owner;
GRANT ALL ON FUNCTION public.idem_revoke(role name) TO regress_idem_owner WITH GRANT OPTION;


--
-- Name: FUNCTION idem_step(key text, step text, progress jsonb, scope text, fence bigint); Type: ACL; Schema: public; Owner: postgres
--

SET SESSION AUTHORIZATION regress_idem_owner;
GRANT ALL ON FUNCTION public.idem_step(key text, step text, progress jsonb, scope text, fence bigint) TO regress_idem_app;
RESET SESSION AUTHORIZATION;


--
-- Name: FUNCTION idem_token_issue(purpose text, subject text, request jsonb, ttl interval, replace boolean); Type: ACL; Schema: public; Owner: postgres
--

SET SESSION AUTHORIZATION regress_idem_owner;
GRANT ALL ON FUNCTION public.idem_token_issue(purpose text, subject text, request jsonb, ttl interval, replace boolean) TO regress_idem_app;
RESET SESSION AUTHORIZATION;


--
-- Name: FUNCTION idem_token_peek(token text, purpose text, subject text, request jsonb); Type: ACL; Schema: public; Owner: postgres
--

SET SESSION AUTHORIZATION regress_idem_owner;
GRANT ALL ON FUNCTION public.idem_token_peek(token text, purpose text, subject text, request jsonb) TO regress_idem_app;
RESET SESSION AUTHORIZATION;


--
-- Name: FUNCTION idem_token_use(token text, purpose text, subject text, request jsonb); Type: ACL; Schema: public; Owner: postgres
--

SET SESSION AUTHORIZATION regress_idem_owner;
GRANT ALL ON FUNCTION public.idem_token_use(token text, purpose text, subject text, request jsonb) TO regress_idem_app;
RESET SESSION AUTHORIZATION;


--
-- Name: FUNCTION idem_try_fire(table_name regclass, id "any", event text, version bigint, key text, context jsonb, machine text); Type: ACL; Schema: public; Owner: postgres
--

SET SESSION AUTHORIZATION regress_idem_owner;
GRANT ALL ON FUNCTION public.idem_try_fire(table_name regclass, id "any", event text, version bigint, key text, context jsonb, machine text) TO regress_idem_app;
RESET SESSION AUTHORIZATION;


--
-- Name: FUNCTION idem_try_fire(table_name regclass, id text, event text, version bigint, key text, context jsonb, machine text); Type: ACL; Schema: public; Owner: postgres
--

SET SESSION AUTHORIZATION regress_idem_owner;
GRANT ALL ON FUNCTION public.idem_try_fire(table_name regclass, id text, event text, version bigint, key text, context jsonb, machine text) TO regress_idem_app;
RESET SESSION AUTHORIZATION;


--
-- Name: FUNCTION idem_twin(function text, key text); Type: ACL; Schema: public; Owner: postgres
--

SET SESSION AUTHORIZATION regress_idem_owner;
GRANT ALL ON FUNCTION public.idem_twin(function text, key text) TO regress_idem_app;
RESET SESSION AUTHORIZATION;


--
-- Name: FUNCTION idem_twin(function text, key text, VARIADIC args "any"); Type: ACL; Schema: public; Owner: postgres
--

SET SESSION AUTHORIZATION regress_idem_owner;
GRANT ALL ON FUNCTION public.idem_twin(function text, key text, VARIADIC args "any") TO regress_idem_app;
RESET SESSION AUTHORIZATION;


--
-- Name: FUNCTION idem_twin_value(function text, key text, result anyelement); Type: ACL; Schema: public; Owner: postgres
--

SET SESSION AUTHORIZATION regress_idem_owner;
GRANT ALL ON FUNCTION public.idem_twin_value(function text, key text, result anyelement) TO regress_idem_app;
RESET SESSION AUTHORIZATION;


--
-- Name: FUNCTION idem_twin_value(function text, key text, result anyelement, VARIADIC args "any"); Type: ACL; Schema: public; Owner: postgres
--

SET SESSION AUTHORIZATION regress_idem_owner;
GRANT ALL ON FUNCTION public.idem_twin_value(function text, key text, result anyelement, VARIADIC args "any") TO regress_idem_app;
RESET SESSION AUTHORIZATION;


--
-- Name: FUNCTION idem_unfinished(OUT scope text, OUT key text); Type: ACL; Schema: public; Owner: postgres
--

SET SESSION AUTHORIZATION regress_idem_owner;
GRANT ALL ON FUNCTION public.idem_unfinished(OUT scope text, OUT key text) TO regress_idem_app;
RESET SESSION AUTHORIZATION;


--
-- Name: FUNCTION idem_update(table_name regclass, id "any", version bigint, changes jsonb); Type: ACL; Schema: public; Owner: postgres
--

SET SESSION AUTHORIZATION regress_idem_owner;
GRANT ALL ON FUNCTION public.idem_update(table_name regclass, id "any", version bigint, changes jsonb) TO regress_idem_app;
RESET SESSION AUTHORIZATION;


--
-- Name: FUNCTION idem_update(table_name regclass, id text, version bigint, changes jsonb); Type: ACL; Schema: public; Owner: postgres
--

SET SESSION AUTHORIZATION regress_idem_owner;
GRANT ALL ON FUNCTION public.idem_update(table_name regclass, id text, version bigint, changes jsonb) TO regress_idem_app;
RESET SESSION AUTHORIZATION;


--
-- Name: FUNCTION idem_why_not(table_name regclass, id "any", event text); Type: ACL; Schema: public; Owner: postgres
--

SET SESSION AUTHORIZATION regress_idem_owner;
GRANT ALL ON FUNCTION public.idem_why_not(table_name regclass, id "any", event text) TO regress_idem_app;
RESET SESSION AUTHORIZATION;


--
-- Name: FUNCTION idem_why_not(table_name regclass, id text, event text); Type: ACL; Schema: public; Owner: postgres
--

SET SESSION AUTHORIZATION regress_idem_owner;
GRANT ALL ON FUNCTION public.idem_why_not(table_name regclass, id text, event text) TO regress_idem_app;
RESET SESSION AUTHORIZATION;


--
-- Name: FUNCTION idem_window(key text, span interval, scope text, max integer, wait interval); Type: ACL; Schema: public; Owner: postgres
--

SET SESSION AUTHORIZATION regress_idem_owner;
GRANT ALL ON FUNCTION public.idem_window(key text, span interval, scope text, max integer, wait interval) TO regress_idem_app;
RESET SESSION AUTHORIZATION;


--
-- Name: FUNCTION idem_wrap(function regprocedure, name text); Type: ACL; Schema: public; Owner: postgres
--

SET SESSION AUTHORIZATION regress_idem_owner;
GRANT ALL ON FUNCTION public.idem_wrap(function regprocedure, name text) TO regress_idem_app;
RESET SESSION AUTHORIZATION;


--
-- Name: TABLE key; Type: ACL; Schema: idem; Owner: regress_idem_owner
--

GRANT SELECT ON TABLE idem.key TO regress_idem_reader;


--
-- Name: COLUMN lease.name; Type: ACL; Schema: idem; Owner: regress_idem_owner
--

GRANT SELECT(name) ON TABLE idem.lease TO regress_idem_reader;


--
-- Name: COLUMN lease.owner; Type: ACL; Schema: idem; Owner: regress_idem_owner
--

GRANT SELECT(owner) ON TABLE idem.lease TO regress_idem_reader;


--
-- PostgreSQL database dump complete
--


