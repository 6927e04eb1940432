-- Returns how many more leases a rail may have under its max_in_flight, and keeps that number valid until the claim
-- commits.
--
-- The lock on the rail's row lets one claim at a time use the capacity. Null means that another claim holds it: the
-- caller skips the rail at once, or after 400 ms with p_wait. So a worker that leaves the transaction of its claim
-- open does not stop the other rails. This function deletes the rows of payment_rail_in_flight whose lease is no longer
-- live, so completions do not pay for the limit.
-- Locks: the rail's row. For: claim_outbox_batch.
create or replace function symphony.rail_in_flight_capacity(p_rail_type text, p_wait boolean)
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
  v_limit int;
begin
  if p_wait then
    begin
      select r.max_in_flight
      into v_limit
      from payment_rails r
      where r.rail_type = p_rail_type
      for no key update;
    exception when lock_not_available or deadlock_detected then
      return null;
    end;
  else
    select r.max_in_flight
    into v_limit
    from payment_rails r
    where r.rail_type = p_rail_type
    for no key update skip locked;
  end if;
  if v_limit is null then
    return null;
  end if;

  delete from payment_rail_in_flight f
  where f.rail_type = p_rail_type
    and (
      select true
      from payment_outbox_pending p
      where p.outbox_id = f.outbox_id
        and p.lease_token = f.lease_token
        and p.lease_expires_at > now()
      limit 1) is null;

  return v_limit - (select count(*) from payment_rail_in_flight f where f.rail_type = p_rail_type);
end
$$;

comment on function symphony.rail_in_flight_capacity(text, boolean) is
  'How many more leases a rail with max_in_flight may have now; null while another claim holds the rail''s row.';
