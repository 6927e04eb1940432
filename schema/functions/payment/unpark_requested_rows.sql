-- Unparks the rows that unpark_successors or apply_rail_policy had to leave, because another session had them locked.
--
-- If that session has cancelled the row, nothing is left to do. If it was rolled back, the row is the head of its stream and
-- parked, and no completion will unpark it: this does. A row that is still locked waits for the next call.
-- Locks: the requests and rows it takes (SKIP LOCKED). For: repair_expired_leases.
create or replace function symphony.unpark_requested_rows()
  returns void
  language plpgsql
  security definer
  set search_path = pg_catalog, symphony, pg_temp
  set plan_cache_mode = force_generic_plan
  set jit = off
  set enable_bitmapscan = off
as $$
declare
  v_requests tid[];
  v_wanted   uuid[];
  v_locked   uuid[];
begin
  select array_agg(r.place), array_agg(r.outbox_id)
  into v_requests, v_wanted
  from (
    select u.ctid as place, u.outbox_id
    from payment_unpark_requests u
    limit 1000
    for update skip locked
  ) r;
  if v_requests is null then
    return;
  end if;

  v_locked := array(
    select p.outbox_id
    from payment_outbox_pending p
    where p.outbox_id = any (v_wanted)
    for no key update skip locked);
  update payment_outbox_pending p
  set parked = false,
      next_attempt_at = greatest(p.next_attempt_at, now())
  where p.outbox_id = any (v_locked)
    and p.parked;
  delete from payment_unpark_requests u
  where u.ctid = any (v_requests)
    and (u.outbox_id = any (v_locked)
         or not exists (select from payment_outbox_pending p where p.outbox_id = u.outbox_id));
  perform notify_idle_relayers('outbox_pending');
end
$$;

comment on function symphony.unpark_requested_rows() is 'Unparks the rows in payment_unpark_requests that no session has locked any more.';
