-- Counts pending payments by rail without reading the whole queue.
--
-- Counting stops at max_rows for each rail and kind: due (with the leases, which are at the front of the claim order),
-- scheduled, parked. A count that stopped is a lower bound, and the flag more_due, more_scheduled or more_parked says
-- so. max_rows is p_max_rows, or less where many rails share the work. A null p_max_rows counts all rows, which takes
-- time in proportion to the queue.
--
-- oldest_due_age_seconds and oldest_parked_age_seconds are exact in any case. oldest_pending_age_seconds is exact for a
-- rail whose counts are; for the others it covers the counted rows and the thousand oldest rows of the table, by their
-- ids. So the oldest row of the lane is found wherever it is. A payment that its producer scheduled is as old as its not_before:
-- one for next week is not late. total is the sum of all counts. Where a count stopped,
-- estimate is PostgreSQL's number of live rows; otherwise it is total.
-- Locks: nothing. Raises: P7005. For: symphony_operator, symphony_readonly, symphony_auditor, and payment_status.
create or replace function symphony.payment_backlog(
  p_max_rows   int default 10000,
  out total    bigint,
  out more     boolean,
  out estimate bigint,
  out max_rows int,
  out rails    jsonb)
  language plpgsql
  stable
  security definer
  set search_path = pg_catalog, symphony, pg_temp
  set plan_cache_mode = force_generic_plan
  set jit = off
  set enable_seqscan = off
  set enable_bitmapscan = off
as $$
declare
  c_oldest_rows constant int := 1000;
  v_live        bigint;
begin
  max_rows := max_rows_per_rail(p_max_rows);

  with counted as materialized (
    select r.rail_type, r.paused, r.held_since_epoch, r.ordered, r.max_in_flight, r.retired_at is not null as retired,
           f.due, f.leased, f.expired, s.scheduled, k.parked,
           least(f.oldest_at, s.oldest_at, k.oldest_at) as oldest_at,
           d.next_attempt_at as oldest_due_at,
           k.oldest_due_at as oldest_parked_at,
           coalesce(f.seen = max_rows, false) as more_due,
           coalesce(s.scheduled = max_rows, false) as more_scheduled,
           coalesce(k.parked = max_rows, false) as more_parked
    from payment_rails r
    cross join lateral (
      select count(*) as seen,
             count(*) filter (where w.lease_token is null) as due,
             count(*) filter (where w.lease_expires_at > now()) as leased,
             count(*) filter (where w.lease_expires_at <= now()) as expired,
             min(w.created_at) as oldest_at
      from (
        select p.lease_token, p.lease_expires_at, greatest(p.created_at, p.not_before) as created_at
        from payment_outbox_pending p
        where p.rail_type = r.rail_type
          and not p.parked
          and p.next_attempt_at <= now()
        order by p.next_attempt_at, p.created_at
        limit max_rows
      ) w
    ) f
    left join lateral (
      select p.next_attempt_at
      from payment_outbox_pending p
      where p.rail_type = r.rail_type
        and not p.parked
        and p.next_attempt_at <= now()
        and p.lease_token is null
      order by p.next_attempt_at, p.created_at
      limit 1
    ) d on true
    cross join lateral (
      select count(*) as scheduled, min(w.created_at) as oldest_at
      from (
        select greatest(p.created_at, p.not_before) as created_at
        from payment_outbox_pending p
        where p.rail_type = r.rail_type
          and not p.parked
          and p.next_attempt_at > now()
        order by p.next_attempt_at, p.created_at
        limit max_rows
      ) w
    ) s
    cross join lateral (
      select count(*) as parked, min(w.created_at) as oldest_at, min(w.next_attempt_at) as oldest_due_at
      from (
        select greatest(p.created_at, p.not_before) as created_at, p.next_attempt_at
        from payment_outbox_pending p
        where p.rail_type = r.rail_type
          and p.parked
        order by p.next_attempt_at, p.created_at
        limit max_rows
      ) w
    ) k
  ),
  -- Ids are UUIDv7, so their order is the order of enqueues. Read only if a count stopped.
  oldest as materialized (
    select w.rail_type, min(w.created_at) as created_at
    from (
      select p.rail_type, greatest(p.created_at, p.not_before) as created_at
      from payment_outbox_pending p
      order by p.outbox_id
      limit (
        select case when bool_or(c.more_due or c.more_scheduled or c.more_parked) then c_oldest_rows else 0 end
        from counted c)
    ) w
    group by w.rail_type
  ),
  described as (
    select c.rail_type, c.paused, c.held_since_epoch, c.ordered, c.max_in_flight, c.due, c.leased, c.expired, c.scheduled, c.parked,
           greatest(coalesce(extract(epoch from now() - least(c.oldest_at, o.created_at)), 0), 0)::numeric(20, 3) as oldest_pending_age_seconds,
           coalesce(extract(epoch from now() - c.oldest_due_at), 0)::numeric(20, 3) as oldest_due_age_seconds,
           greatest(coalesce(extract(epoch from now() - c.oldest_parked_at), 0), 0)::numeric(20, 3) as oldest_parked_age_seconds,
           c.more_due, c.more_scheduled, c.more_parked
    from counted c
    left join oldest o on o.rail_type = c.rail_type
    where not c.retired
       or c.due + c.leased + c.expired + c.scheduled + c.parked > 0
  )
  select coalesce(sum(d.due + d.leased + d.expired + d.scheduled + d.parked), 0),
         coalesce(bool_or(d.more_due or d.more_scheduled or d.more_parked), false),
         coalesce(jsonb_agg(to_jsonb(d.*) order by d.rail_type), '[]')
  into total, more, rails
  from described d;

  estimate := total;
  if more then
    v_live := pg_stat_get_live_tuples('symphony.payment_outbox_pending'::regclass);
    -- A crash resets the server's statistics; the catalogue keeps the number of the last VACUUM or ANALYZE.
    estimate := case
      when v_live >= total then v_live
      else greatest(total, (select c.reltuples::bigint from pg_class c where c.oid = 'symphony.payment_outbox_pending'::regclass))
    end;
  end if;
end
$$;

comment on function symphony.payment_backlog(int) is
  'How much is pending, over all rails and for each: due, leased, expired, scheduled and parked. Counting stops at p_max_rows; null counts all.';
