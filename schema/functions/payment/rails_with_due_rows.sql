-- Returns the rails that a claim may lease from and that have a due row, by name: neither paused nor held, and with capacity left in
-- p_limits if that is given.
--
-- low_watermark is where the session starts to scan the rail; see claim_low_watermark. p_watermarks is false if the
-- session has saved none, so that no rail is looked up.
-- Locks: nothing. For: claim_outbox_batch.
create or replace function symphony.rails_with_due_rows(
  p_limits     jsonb,
  p_watermarks boolean)
  returns table (rail_type text, ordered boolean, holds boolean, max_in_flight int, max_per_second int, low_watermark timestamptz)
  language plpgsql
  set search_path = pg_catalog, symphony, pg_temp
  set plan_cache_mode = force_generic_plan
  set enable_seqscan = off
  set enable_bitmapscan = off
  set enable_sort = off
as $$
#variable_conflict use_column
begin
  return query
    select r.rail_type, r.ordered, r.on_failure = 'HOLD', r.max_in_flight, r.max_per_second, f.low_watermark
    from payment_rails r
    cross join lateral (
      select case when p_watermarks then claim_low_watermark(r.rail_type) else '-infinity' end
      offset 0
    ) f (low_watermark)
    where not r.paused
      and r.held_since_epoch is null
      and (p_limits is null or (p_limits ->> r.rail_type)::int > 0)
      and (
        select true
        from payment_outbox_pending p
        where p.rail_type = r.rail_type
          and not p.parked
          and p.next_attempt_at between f.low_watermark and now()
          and (p.lease_expires_at is null or p.lease_expires_at <= now())
        order by p.next_attempt_at, p.created_at
        limit 1)
    order by r.rail_type;
end
$$;

comment on function symphony.rails_with_due_rows(jsonb, boolean) is 'The rails that a claim may lease from and that have a due row.';
