-- Loaded after load.sql: work that may meet a full disk, and tells of nothing else.
SET client_min_messages = warning;
CREATE TABLE filling (what text);
CREATE SEQUENCE full_disks;
CREATE FUNCTION work_or_tell(n int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM work(n);
	INSERT INTO filling VALUES (repeat(n::text, 200));
EXCEPTION WHEN disk_full THEN
	PERFORM nextval('full_disks');
	IF EXISTS (SELECT FROM idem_unfinished()) THEN
		RAISE EXCEPTION 'a claim is left unfinished by a full disk';
	END IF;
END $$;

-- each verb of the load, with keys of their own
CREATE FUNCTION every_kind(n int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	k text := 200000 + n;
BEGIN
	PERFORM work_claim('t' || k), work_claim('t' || k), work_once('o' || k), work_call('c' || k), work_call('c' || k);
	PERFORM work_fire(n), work_update(n), work_token(k::int), work_token(k::int), work_branch(k::int), work_lease(n), work_window(n);
	PERFORM idem_sweep();
END $$;
