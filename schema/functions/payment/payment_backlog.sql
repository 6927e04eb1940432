-- Counts pending payments by rail without reading the whole queue.
--
-- Each rail is counted from the front of its claim order, where the leases are, up to rail_most; a rail at that number
-- has that many or more. Parked rows are counted up to the same number. total is exact up to twenty thousand. The ages
-- are those of the counted rows. estimate is the server's own estimate of the table (reltuples).
-- Locks: nothing. Raises: nothing. For: symphony_operator, symphony_readonly, symphony_auditor.
create or replace function symphony.payment_backlog(
  out total       bigint,
  out total_most  int,
  out estimate    bigint,
  out rail_most   int,
  out rails       jsonb)
  language plpgsql
  stable
  security definer
  set search_path = pg_catalog, symphony, pg_temp
  set plan_cache_mode = force_generic_plan
  set jit = off
  set enable_seqscan = off
  set enable_bitmapscan = off
as $$
begin
  total_most := 20000;
  rail_most := greatest(500, least(10000, 40000 / greatest(1, (select count(*) from payment_rails))));
  total := (select count(*) from (select from payment_outbox_pending p where p.outbox_id is not null limit total_most) t);
  estimate := (select greatest(c.reltuples, 0)::bigint from pg_class c where c.oid = 'symphony.payment_outbox_pending'::regclass);

  with counted as (
    select r.rail_type, r.paused, r.ordered, r.max_in_flight, r.retired_at is not null as retired, f.due, f.leased, f.expired, s.scheduled, k.parked,
           greatest(coalesce(extract(epoch from now() - least(f.oldest_at, s.oldest_at, k.oldest_at)), 0), 0)::numeric(20, 3) as oldest_pending_age_seconds,
           coalesce(extract(epoch from now() - f.oldest_due_at), 0)::numeric(20, 3) as oldest_due_age_seconds,
           f.seen = rail_most as more_due,
           s.scheduled = rail_most as more_scheduled,
           k.parked = rail_most as more_parked
    from payment_rails r
    cross join lateral (
      select count(*) as seen,
             count(*) filter (where w.lease_token is null) as due,
             count(*) filter (where w.lease_expires_at > now()) as leased,
             count(*) filter (where w.lease_expires_at <= now()) as expired,
             min(w.created_at) as oldest_at,
             min(w.next_attempt_at) filter (where w.lease_token is null) as oldest_due_at
      from (
        select p.lease_token, p.lease_expires_at, p.next_attempt_at, p.created_at
        from payment_outbox_pending p
        where p.rail_type = r.rail_type
          and not p.parked
          and p.next_attempt_at <= now()
        order by p.next_attempt_at, p.created_at
        limit rail_most
      ) w
    ) f
    cross join lateral (
      select count(*) as scheduled, min(w.created_at) as oldest_at
      from (
        select p.created_at
        from payment_outbox_pending p
        where p.rail_type = r.rail_type
          and not p.parked
          and p.next_attempt_at > now()
        order by p.next_attempt_at, p.created_at
        limit rail_most
      ) w
    ) s
    cross join lateral (
      select count(*) as parked, min(w.created_at) as oldest_at
      from (
        select p.created_at
        from payment_outbox_pending p
        where p.rail_type = r.rail_type
          and p.parked
        limit rail_most
      ) w
    ) k
  )
  select coalesce(jsonb_agg(to_jsonb(c.*) - 'retired' order by c.rail_type), '[]')
  into rails
  from counted c
  where not c.retired
     or c.due + c.leased + c.expired + c.scheduled + c.parked > 0;
end
$$;

comment on function symphony.payment_backlog() is
  'How much is pending: in all up to a maximum, by the server''s estimate, and for each rail due, leased, expired, scheduled and parked.';
