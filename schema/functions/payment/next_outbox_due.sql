-- Says in how many milliseconds the next scheduled instruction is due, so that a relayer can sleep until then.
--
-- Null: nothing is scheduled. What is due already is for a claim to find, and is not looked at. Paused rails do not
-- count, nor do rails that the caller's rooms leave out; see claim_rooms.
-- Locks: nothing. For: symphony_executor.
create or replace function symphony.next_outbox_due()
  returns bigint
  language plpgsql
  stable
  security definer
  set search_path = pg_catalog, symphony, pg_temp
  set plan_cache_mode = force_generic_plan
  set jit = off
  set enable_seqscan = off
  set enable_bitmapscan = off
  set enable_sort = off
as $$
declare
  v_rooms constant jsonb := claim_rooms();
begin
  return (
    select ceil(extract(epoch from min(d.next_attempt_at) - now()) * 1000)
    from payment_rails r
    cross join lateral (
      select p.next_attempt_at
      from payment_outbox_pending p
      where p.rail_type = r.rail_type
        and not p.parked
        and p.next_attempt_at > now()
      order by p.next_attempt_at, p.created_at
      limit 1
    ) d
    where not r.paused
      and (v_rooms is null or v_rooms ? r.rail_type));
end
$$;

comment on function symphony.next_outbox_due() is 'Milliseconds until the next scheduled instruction is due; null where none is.';
