-- Counts the rows that were ever quarantined: 0 unless a restore went wrong or a statement wrote past the functions.
--
-- Relayers call it after each repair and raise terminal_backstop_total to it. Rows are never removed from quarantine,
-- so the number never falls.
-- Locks: nothing. Raises: nothing. For: symphony_executor, symphony_operator, symphony_readonly, symphony_auditor.
create or replace function symphony.quarantined_outboxes_total()
  returns bigint
  language plpgsql
  stable
  security definer
  set search_path = pg_catalog, symphony, pg_temp
as $$
begin
  return (select count(*) from payment_outbox_quarantine q);
end
$$;

comment on function symphony.quarantined_outboxes_total() is
  'How many pending rows were ever quarantined because their outbox already had a terminal ledger row.';
