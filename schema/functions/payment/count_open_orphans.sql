-- Counts the orphaned outcomes that no reconciliation of their rail has followed: 0 unless history was lost.
--
-- An orphan without a rail is closed by the reconciliation of any rail.
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
    where not exists (
      select
      from payment_outbox_operations o
      where o.operation = 'RECONCILE'
        and o.rail_type = coalesce(p.rail_type, o.rail_type)
        and o.created_at > p.created_at));
end
$$;

comment on function symphony.count_open_orphans() is 'How many orphaned outcomes no reconciliation of their rail has followed.';
