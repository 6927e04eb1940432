-- Returns recent throughput of the payment lane: attempts, their states, latencies and workers.
--
-- It reads the latest five thousand attempts of the last 15 minutes, from the end of the ledger's key, whose ids are
-- time-ordered. If all five thousand are younger, span_seconds says how long they span. parts divides the span into
-- thirty intervals, for a chart.
-- Locks: nothing. Raises: nothing. For: symphony_operator, symphony_readonly, symphony_auditor.
create or replace function symphony.payment_recent_stats(
  out attempts     bigint,
  out span_seconds float8,
  out lane         jsonb,
  out rails        jsonb,
  out workers      jsonb,
  out parts        jsonb)
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
  c_max_attempts  constant int := 5000;
  c_parts constant int := 30;
  c_span  constant float8 := 900;
  v_from  timestamptz;
begin
  select count(*), min(l.completed_at)
  into attempts, v_from
  from (
    select a.completed_at
    from payment_outbox_attempts a
    where a.attempt_id >= uuidv7_lower_bound(now() - make_interval(secs => c_span))
    order by a.attempt_id desc
    limit c_max_attempts
  ) l;
  span_seconds := case when attempts < c_max_attempts then c_span else greatest(1, extract(epoch from now() - v_from)) end;

  with latest as materialized (
    select a.rail_type, a.state, a.worker_id, a.latency_ms, a.completed_at,
           -- Not numeric, which is several times as slow to sort.
           (extract(epoch from a.completed_at - a.created_at) * 1000)::bigint as age_ms,
           least(c_parts - 1, greatest(0, c_parts - 1 - floor(extract(epoch from now() - a.completed_at)::float8 * c_parts / span_seconds)))::int as part
    from payment_outbox_attempts a
    where a.attempt_id >= uuidv7_lower_bound(now() - make_interval(secs => c_span))
    order by a.attempt_id desc
    limit c_max_attempts
  ),
  -- All percentiles of one order at once, because each of them would sort the attempts again.
  ranked as (
    select l.rail_type,
           count(*) as attempts,
           count(*) filter (where l.state = 'DISPATCHED') as dispatched,
           count(*) filter (where l.state = 'FAILED') as failed,
           count(*) filter (where l.state = 'RETRYABLE') as retryable,
           count(*) filter (where l.state = 'ZOMBIE_REQUEUE') as zombies,
           percentile_disc(array[0.5, 0.95, 0.99]) within group (order by l.latency_ms) as latencies_ms,
           percentile_disc(array[0.5, 0.95]) within group (order by l.age_ms) filter (where l.state = 'DISPATCHED') as totals_ms
    from latest l
    -- Once for each rail, and once for all.
    group by grouping sets ((l.rail_type), ())
  ),
  by_rail as (
    select r.rail_type, r.attempts, r.dispatched, r.failed, r.retryable, r.zombies,
           r.latencies_ms[1] as latency_p50_ms,
           r.latencies_ms[2] as latency_p95_ms,
           r.latencies_ms[3] as latency_p99_ms,
           r.totals_ms[1] as total_p50_ms,
           r.totals_ms[2] as total_p95_ms
    from ranked r
  ),
  by_worker as (
    select l.worker_id, count(*) as attempts, max(l.completed_at) as last_completed_at
    from latest l
    group by l.worker_id
    order by max(l.completed_at) desc
    limit 100
  ),
  by_part as (
    select l.part,
           count(*) filter (where l.state = 'DISPATCHED') as dispatched,
           count(*) filter (where l.state = 'FAILED') as failed,
           count(*) filter (where l.state in ('RETRYABLE', 'ZOMBIE_REQUEUE')) as again
    from latest l
    group by l.part
  )
  select (select coalesce(jsonb_agg(to_jsonb(r.*) order by r.rail_type), '[]') from by_rail r where r.rail_type is not null),
         (select to_jsonb(r.*) - 'rail_type' from by_rail r where r.rail_type is null),
         (select coalesce(jsonb_agg(to_jsonb(w.*) order by w.last_completed_at desc), '[]') from by_worker w),
         (select jsonb_agg(jsonb_build_object('dispatched', coalesce(p.dispatched, 0), 'failed', coalesce(p.failed, 0), 'again', coalesce(p.again, 0)) order by n.part)
          from generate_series(0, c_parts - 1) as n (part)
          left join by_part p on p.part = n.part)
  into rails, lane, workers, parts;
end
$$;

comment on function symphony.payment_recent_stats() is
  'The latest attempts: how many, over which span, in all and by rail with latencies, by worker, and in thirty intervals of that span.';
