-- Counts the orphaned outcomes that still have to be compared with the bank: 0 unless history was lost. See is_open_orphan.
--
-- Locks: nothing. Raises: nothing. For: symphony_executor, symphony_operator, symphony_readonly, symphony_auditor.
create or replace function symphony.count_open_orphans()
  returns bigint
  language plpgsql
  stable
  security definer
  set search_path = pg_catalog, symphony, pg_temp
  set jit = off
as $$
begin
  return (
    select count(*)
    from payment_orphans p
    where is_open_orphan(p.rail_type, p.claimed_at, p.created_at));
end
$$;

comment on function symphony.count_open_orphans() is 'How many orphaned outcomes no later reconciliation of their rail and time has compared.';
