-- Returns recent throughput of the metadata lane: entries published and moved to DLQ, and how long they took.
--
-- It reads the latest five thousand of each from the last 15 minutes, by their indexes. If five thousand were
-- published in less time, span_seconds says how long. An entry keeps its last failure only, so earlier failures are
-- not counted.
-- Locks: nothing. Raises: nothing. For: symphony_operator, symphony_readonly, symphony_auditor.
create or replace function symphony.metadata_recent_stats(
  out done         bigint,
  out failed       bigint,
  out span_seconds float8,
  out took_p50_ms  bigint,
  out took_p95_ms  bigint,
  out took_p99_ms  bigint,
  out total_p50_ms bigint,
  out total_p95_ms bigint)
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
  c_max_entries constant int := 5000;
  c_span constant float8 := 900;
begin
  select count(*),
         case when count(*) < c_max_entries then c_span else greatest(1, extract(epoch from now() - min(l.processed_at))) end,
         percentile_disc(0.5) within group (order by l.took_ms),
         percentile_disc(0.95) within group (order by l.took_ms),
         percentile_disc(0.99) within group (order by l.took_ms),
         percentile_disc(0.5) within group (order by l.total_ms),
         percentile_disc(0.95) within group (order by l.total_ms)
  into done, span_seconds, took_p50_ms, took_p95_ms, took_p99_ms, total_p50_ms, total_p95_ms
  from (
    select o.processed_at,
           (extract(epoch from o.processed_at - o.processing_started_at) * 1000)::bigint as took_ms,
           (extract(epoch from o.processed_at - o.created_at) * 1000)::bigint as total_ms
    from metadata_outbox o
    where o.status = 'PUBLISHED'
      and o.processed_at > now() - make_interval(secs => c_span)
    order by o.processed_at desc, o.id desc
    limit c_max_entries
  ) l;

  failed := (
    select count(*)
    from (
      select
      from metadata_outbox o
      where o.status = 'DLQ'
        and o.updated_at > now() - make_interval(secs => span_seconds)
      order by o.updated_at desc, o.id desc
      limit c_max_entries
    ) d);
end
$$;

comment on function symphony.metadata_recent_stats() is
  'The latest entries that were published or moved to DLQ: how many, over which span, and how long they took.';
