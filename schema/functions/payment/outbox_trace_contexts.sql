-- Returns the trace contexts of claimed outboxes, so that a worker's spans continue the producers' traces.
--
-- The columns of a claim are a contract and contain no trace; a worker that exports spans calls this once per batch.
-- Outboxes without a trace and outboxes that have ended have no row. A stored value has the form of a traceparent but
-- may be invalid: ids of zeros have that form too.
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
