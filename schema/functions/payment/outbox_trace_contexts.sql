-- Tells a worker whose traces the outboxes belong to that it has claimed.
--
-- A claim's columns are a contract and hold no trace; only a worker that draws spans asks, once for each batch. Outboxes without a trace,
-- or that have ended, have no row. What is stored has the form of a traceparent, and need not be a valid one: ids of zeros have it too.
-- Locks: nothing. Raises: P7005. For: symphony_executor.
create or replace function symphony.outbox_trace_contexts(p_outbox_ids uuid[])
  returns table (outbox_id uuid, traceparent text)
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
begin
  perform check_range('the number of outboxes', coalesce(cardinality(p_outbox_ids), 0), 1, 1000);

  return query
    select p.outbox_id, p.traceparent::text
    from unnest(p_outbox_ids) as g (outbox_id)
    cross join lateral (
      select p.outbox_id, p.traceparent::text
      from payment_outbox_pending p
      where p.outbox_id = g.outbox_id
        and p.traceparent is not null
      limit 1
    ) p;
end
$$;

comment on function symphony.outbox_trace_contexts(uuid[]) is
  'The W3C trace contexts of these outboxes, of those that are pending and have one.';
