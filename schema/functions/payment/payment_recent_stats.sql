-- Returns recent throughput of the payment lane: attempts, their states, latencies and workers.
--
-- It reads the end of the ledger: the last 400 pages of the partition of today, and the last 64 of each of the seven
-- before it and of one that starts later, in which retries of older payments are. Rows are appended, so these are the latest, except
-- that a small row may fill a gap on an earlier page. Of them it takes the attempts of the last 15 minutes, at most five thousand. If there
-- were more, span_seconds says how long the ones it took span. parts divides the span into thirty intervals, for a chart.
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
  -- What is left is the range of pages.
  set enable_seqscan = off
  set enable_bitmapscan = off
  set enable_indexscan = off
as $$
declare
  c_max_attempts constant int := 5000;
  c_parts        constant int := 30;
  c_span         constant float8 := 900;
  c_partitions   constant int := 9;
  c_pages        constant bigint := 400;
  c_other_pages  constant bigint := 64;
  v_from_ids     uuid[];
  v_to_ids       uuid[];
  v_first_rows   tid[];
  v_are_current  boolean[];
  v_cut          boolean;
begin
  -- The newest partitions that have rows, and the first row of each to read.
  select array_agg(p.from_id), array_agg(p.to_id), array_agg(format('(%s,0)', greatest(0, p.pages - p.max_pages))::tid),
         array_agg(p.is_current), bool_or(p.is_current and p.pages > p.max_pages)
  into v_from_ids, v_to_ids, v_first_rows, v_are_current, v_cut
  from (
    select coalesce(l.from_id, '00000000-0000-0000-0000-000000000000') as from_id,
           coalesce(l.to_id, 'ffffffff-ffff-ffff-ffff-ffffffffffff') as to_id,
           s.pages, c.is_current,
           case when c.is_current then c_pages else c_other_pages end as max_pages
    from payment_ledger_partitions() l
    cross join lateral (
      select pg_relation_size(format('symphony.%I', l.partition_name)::regclass) / current_setting('block_size')::int as pages
    ) s
    -- For an hour after its end a partition still gets most completions.
    cross join lateral (select coalesce(l.starts_at <= now(), true) and coalesce(l.ends_at > now() - interval '1 hour', true) as is_current) c
    where s.pages > 0
    order by l.starts_at desc nulls last
    limit c_partitions
  ) p;

  with last_rows as materialized (
    select a.*, p.is_current
    from unnest(v_from_ids, v_to_ids, v_first_rows, v_are_current) as p (from_id, to_id, first_row, is_current)
    cross join lateral (
      select a.rail_type, a.state, a.worker_id, a.latency_ms, a.completed_at, a.created_at
      from payment_outbox_attempts a
      where a.outbox_id >= p.from_id
        and a.outbox_id < p.to_id
        and a.ctid >= p.first_row
        -- A cancellation is no attempt.
        and a.error_code is distinct from 'CANCELLED'
      -- Keeps it a scan of one partition from that row on.
      offset 0
    ) a
  ),
  latest as materialized (
    select r.*,
           -- Not numeric, which is several times as slow to sort.
           (extract(epoch from r.completed_at - r.created_at) * 1000)::bigint as age_ms
    from last_rows r
    where r.completed_at > now() - make_interval(secs => c_span)
    order by r.completed_at desc
    limit c_max_attempts
  ),
  span as materialized (
    select count(*) as attempts,
           case
             when count(*) = c_max_attempts
                  -- The pages that were read do not reach back 15 minutes.
                  or v_cut and (select min(r.completed_at) from last_rows r where r.is_current) > now() - make_interval(secs => c_span)
             then greatest(1, extract(epoch from now() - min(l.completed_at)))
             else c_span
           end as seconds
    from latest l
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
    select i.part,
           count(*) filter (where l.state = 'DISPATCHED') as dispatched,
           count(*) filter (where l.state = 'FAILED') as failed,
           count(*) filter (where l.state in ('RETRYABLE', 'ZOMBIE_REQUEUE')) as again
    from latest l
    cross join span s
    cross join lateral (
      select least(c_parts - 1, greatest(0, c_parts - 1 - floor(extract(epoch from now() - l.completed_at)::float8 * c_parts / s.seconds)))::int as part
    ) i
    group by i.part
  )
  select (select coalesce(jsonb_agg(to_jsonb(r.*) order by r.rail_type), '[]') from by_rail r where r.rail_type is not null),
         (select to_jsonb(r.*) - 'rail_type' from by_rail r where r.rail_type is null),
         (select coalesce(jsonb_agg(to_jsonb(w.*) order by w.last_completed_at desc), '[]') from by_worker w),
         (select jsonb_agg(jsonb_build_object('dispatched', coalesce(p.dispatched, 0), 'failed', coalesce(p.failed, 0), 'again', coalesce(p.again, 0)) order by n.part)
          from generate_series(0, c_parts - 1) as n (part)
          left join by_part p on p.part = n.part),
         s.attempts,
         s.seconds
  into rails, lane, workers, parts, attempts, span_seconds
  from span s;
end
$$;

comment on function symphony.payment_recent_stats() is
  'The latest attempts: how many, over which span, in all and by rail with latencies, by worker, and in thirty intervals of that span.';
