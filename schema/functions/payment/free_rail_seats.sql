-- Says how many more leases a capped rail may have, and holds that answer until the claim commits.
--
-- The lock of the rail's row lets one claim at a time fill its seats. Null where another claim holds it: the rail is passed by at once, or, if the
-- caller wants to wait, after 400 ms. A worker that leaves the transaction of its claim open must not stop the other rails. Seats whose lease is no longer live
-- are empty and are cleared away; that is the only time they are, so completions do not pay for the cap.
-- Locks: the rail's row. For: claim_outbox_batch.
create or replace function symphony.free_rail_seats(p_rail_type text, p_wait boolean)
  returns int
  language plpgsql
  security definer
  set search_path = pg_catalog, symphony, pg_temp
  set lock_timeout = '400ms'
  set plan_cache_mode = force_generic_plan
  set jit = off
  set enable_seqscan = off
  set enable_bitmapscan = off
as $$
declare
  v_seats int;
begin
  if p_wait then
    begin
      select r.max_in_flight
      into v_seats
      from payment_rails r
      where r.rail_type = p_rail_type
      for no key update;
    exception when lock_not_available or deadlock_detected then
      return null;
    end;
  else
    select r.max_in_flight
    into v_seats
    from payment_rails r
    where r.rail_type = p_rail_type
    for no key update skip locked;
  end if;
  if v_seats is null then
    return null;
  end if;

  delete from payment_rail_seats s
  where s.rail_type = p_rail_type
    and (
      select true
      from payment_outbox_pending p
      where p.outbox_id = s.outbox_id
        and p.lease_token = s.lease_token
        and p.lease_expires_at > now()
      limit 1) is null;

  return v_seats - (select count(*) from payment_rail_seats s where s.rail_type = p_rail_type);
end
$$;

comment on function symphony.free_rail_seats(text, boolean) is 'How many more leases a capped rail may have now; null while another claim decides about it.';
