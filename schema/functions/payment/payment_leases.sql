-- Lists the current leases by worker and rail.
--
-- A leased row was due, so nearly always it is at the front of its rail's claim order. The function reads as much of
-- that front as payment_backlog counts.
-- Locks: nothing. Raises: nothing. For: symphony_operator, symphony_readonly, symphony_auditor.
create or replace function symphony.payment_leases()
  returns table (worker_id text, rail_type text, leases bigint, expired bigint, oldest_claimed_at timestamptz, first_expires_at timestamptz)
  language plpgsql
  stable
  security definer
  set search_path = pg_catalog, symphony, pg_temp
  set plan_cache_mode = force_generic_plan
  set jit = off
  set enable_seqscan = off
  set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
  v_max_rows constant int := max_rows_per_rail(10000);
begin
  return query
    select w.claimed_by, r.rail_type, count(*), count(*) filter (where w.lease_expires_at <= now()),
           min(w.claimed_at), min(w.lease_expires_at)
    from payment_rails r
    cross join lateral (
      select p.claimed_by, p.claimed_at, p.lease_expires_at
      from payment_outbox_pending p
      where p.rail_type = r.rail_type
        and not p.parked
        and p.next_attempt_at <= now()
      order by p.next_attempt_at, p.created_at
      limit v_max_rows
    ) w
    where w.claimed_by is not null
    group by w.claimed_by, r.rail_type
    order by w.claimed_by, r.rail_type
    limit 1000;
end
$$;

comment on function symphony.payment_leases() is 'The current leases, by worker and rail.';
