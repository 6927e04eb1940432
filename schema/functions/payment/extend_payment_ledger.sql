-- Keeps the ledger's partitions ahead of time, and indexes closed ones. Relayers call it, and `symphony maintain` does.
--
-- created and indexed name what this call made; partitions_ahead counts the partitions that start in the future;
-- open_since is where the last, open-ended one starts; skipped says what was put off and why, and is null otherwise.
-- p_max_scan_mb limits what it reads of a partition; see extend_ledger_at. Commit at once: while partitions were added in
-- an open transaction, completions wait.
-- Locks: the ledger, if partitions are missing; it waits at most 200 ms for it. Raises: P7005, 25000 outside READ COMMITTED.
-- For: symphony_executor, symphony_operator.
create or replace function symphony.extend_payment_ledger(
  p_max_scan_mb        int default 512,
  out created          text[],
  out indexed          text[],
  out partitions_ahead int,
  out open_since       timestamptz,
  out skipped          text)
  language sql
  security definer
  set search_path = pg_catalog, symphony, pg_temp
as $$
  select e.created, e.indexed, e.partitions_ahead, e.open_since, e.skipped
  from extend_ledger_at(now(), p_max_scan_mb) e
$$;

comment on function symphony.extend_payment_ledger(int) is
  'Adds partitions to the ledger ahead of time and indexes closed ones; returns what it made, how many are ahead, and what was put off.';
