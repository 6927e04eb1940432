-- Whether an orphaned outcome still has to be compared with the bank.
--
-- It is open until a reconciliation of its rail, made after it was recorded, covers its time: from its lease to its record. A
-- reconciliation of another time says nothing about it. An orphan without a rail is closed by that of any rail.
-- Locks: nothing. Raises: nothing. For: the view orphaned_outcomes and count_open_orphans.
create or replace function symphony.is_open_orphan(p_rail_type text, p_claimed_at timestamptz, p_created_at timestamptz)
  returns boolean
  language plpgsql
  stable
  security definer
  set search_path = pg_catalog, symphony, pg_temp
  set jit = off
as $$
begin
  return not exists (
    select
    from payment_outbox_operations o
    where o.operation = 'RECONCILE'
      and o.rail_type = coalesce(p_rail_type, o.rail_type)
      and o.created_at > p_created_at
      and (o.policy_after ->> 'from')::timestamptz <= least(p_claimed_at, p_created_at)
      and (o.policy_after ->> 'to')::timestamptz > greatest(p_claimed_at, p_created_at));
end
$$;

comment on function symphony.is_open_orphan(text, timestamptz, timestamptz) is
  'Whether no later reconciliation of the rail covers the time of an orphaned outcome.';
