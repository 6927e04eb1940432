-- Returns how many more leases a claim may grant on a rail under its max_in_flight and max_per_second, and keeps that number
-- valid until the claim commits.
--
-- The lock on the rail's row lets one claim at a time use the capacity. Null means that another claim holds it: the
-- caller skips the rail at once, or after 400 ms with p_wait. So a worker that leaves the transaction of its claim
-- open does not stop the other rails.
--
-- max_in_flight: this function deletes the rows of payment_rail_in_flight whose lease is no longer live, so completions do
-- not pay for the limit. max_per_second: it adds the tokens of the time that has passed, by the clock, up to those of one second;
-- the claim takes one for each lease. So over any time T all claims together grant at most max_per_second * (T + 1 s). If
-- the clock was set back, the time counts from there. Without a whole token nothing is written, so that relayers that look in vain
-- cost no write, and the bucket says that the rate was the limit: see next_outbox_due.
-- Locks: the rail's row. For: claim_outbox_batch.
create or replace function symphony.rail_claim_capacity(p_rail_type text, p_wait boolean)
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
  c_token        constant bigint := 1000000;
  v_rail         record;
  v_capacity     int;
  v_now          timestamptz;
  v_refilled_at  timestamptz;
  v_micro_tokens bigint;
begin
  if p_wait then
    begin
      select r.max_in_flight, r.max_per_second
      into v_rail
      from payment_rails r
      where r.rail_type = p_rail_type
      for no key update;
    exception when lock_not_available or deadlock_detected then
      return null;
    end;
  else
    select r.max_in_flight, r.max_per_second
    into v_rail
    from payment_rails r
    where r.rail_type = p_rail_type
    for no key update skip locked;
  end if;
  if not found or num_nonnulls(v_rail.max_in_flight, v_rail.max_per_second) = 0 then
    return null;
  end if;

  if v_rail.max_in_flight is not null then
    delete from payment_rail_in_flight f
    where f.rail_type = p_rail_type
      and (
        select true
        from payment_outbox_pending p
        where p.outbox_id = f.outbox_id
          and p.lease_token = f.lease_token
          and p.lease_expires_at > now()
        limit 1) is null;
    v_capacity := v_rail.max_in_flight - (select count(*) from payment_rail_in_flight f where f.rail_type = p_rail_type);
  end if;

  if v_rail.max_per_second is not null then
    v_now := clock_timestamp();
    select t.refilled_at,
           least(v_rail.max_per_second * c_token,
                 t.micro_tokens + v_rail.max_per_second * least(greatest(extract(epoch from v_now - t.refilled_at) * 1000000, 0), 1000000)::bigint)
    into v_refilled_at, v_micro_tokens
    from payment_rail_tokens t
    where t.rail_type = p_rail_type;
    if not found then
      -- A lost row comes back, empty.
      insert into payment_rail_tokens (rail_type, micro_tokens) values (p_rail_type, 0);
      return 0;
    end if;
    if v_micro_tokens >= c_token or v_now < v_refilled_at then
      update payment_rail_tokens t
      set micro_tokens = v_micro_tokens,
          refilled_at = v_now
      where t.rail_type = p_rail_type;
    end if;
    v_capacity := least(v_capacity, v_micro_tokens / c_token);
  end if;
  return v_capacity;
end
$$;

comment on function symphony.rail_claim_capacity(text, boolean) is
  'How many more leases a claim may grant on a rail with max_in_flight or max_per_second; null while another claim holds the rail''s row.';
