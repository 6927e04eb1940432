-- Returns in how many milliseconds the next scheduled instruction is due, so that an idle relayer can wait until then.
--
-- Null means that nothing is scheduled. Rows that are due already do not count: a claim finds them. But if the last claim on
-- a rail with max_per_second used up its tokens, the next token counts for its due rows, in 20 ms at the earliest, so that
-- relayers take several at once. Rows of paused or held rails, and of rails that p_limits does not name, do not count
-- either; see check_claim_limits.
-- Locks: nothing. Raises: P7005. For: symphony_executor.
create or replace function symphony.next_outbox_due(p_limits jsonb default null)
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
begin
  perform check_claim_limits(p_limits);
  return least((
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
      and r.held_since_epoch is null
      and (p_limits is null or p_limits ? r.rail_type)), (
    select min(greatest(
             20,
             ceil((1000000 - t.micro_tokens) / (r.max_per_second * 1000.0)
                  - greatest(extract(epoch from clock_timestamp() - t.refilled_at), 0) * 1000)))
    from payment_rail_tokens t
    join payment_rails r on r.rail_type = t.rail_type
    where t.micro_tokens < 1000000
      and not r.paused
      and r.held_since_epoch is null
      and (p_limits is null or p_limits ? r.rail_type)
      and (
        select true
        from payment_outbox_pending p
        where p.rail_type = r.rail_type
          and not p.parked
          and p.next_attempt_at <= now()
          and (p.lease_expires_at is null or p.lease_expires_at <= now())
        order by p.next_attempt_at, p.created_at
        limit 1)));
end
$$;

comment on function symphony.next_outbox_due(jsonb) is 'Milliseconds until the next scheduled instruction is due, or the next token of a rail with max_per_second; null where none is.';
