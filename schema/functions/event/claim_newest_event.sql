-- Claims one event for one processor: the newest that has not failed and has no earlier unprocessed event of its aggregate.
--
-- A relayer that finds its sink failing probes it with such an event. One that has failed says little about the sink,
-- and the newest is far from the events that failed, which were the oldest. It looks at the newest thousand events that have
-- not failed; if each of them waits behind another, it returns none, and the relayer claims in the usual order. Order
-- within an aggregate is kept as by claim_events_in_order. See claim_outbox_events for the processor id.
-- The first claim on another server opens a new epoch; see ensure_epoch.
-- Locks: when the server has changed, those of advance_epoch; the row it returns; it waits for no row.
-- Raises: P7005; with a new epoch 25000 outside READ COMMITTED and 55P03. For: symphony_executor.
create or replace function symphony.claim_newest_event(p_processor_id text)
  returns table (
    id             bigint,
    aggregate_type text,
    aggregate_id   text,
    event_type     text,
    payload        jsonb,
    retry_count    int)
  language plpgsql
  security definer
  set search_path = pg_catalog, symphony, pg_temp
  set lock_timeout = '5s'
  set plan_cache_mode = force_generic_plan
  set jit = off
  set enable_seqscan = off
  set enable_bitmapscan = off
  set enable_hashjoin = off
  set enable_mergejoin = off
  set enable_material = off
as $$
#variable_conflict use_column
declare
  c_window constant int := 1000;
  v_newest tid[];
begin
  perform check_argument('p_processor_id', p_processor_id, 200);
  perform ensure_epoch(p_processor_id);
  v_newest := array(
    select o.row_id
    from m10_recovery.outbox_unprocessed o
    where o.claimed_at is null
      and o.process_after is null
    order by o.id desc
    limit c_window);
  -- The first event of an aggregate is looked up as in claim_events_in_order.
  v_newest := array(
    select l.row_id
    from unnest(v_newest) as w (row_id)
    cross join lateral (
      select o.row_id
      from m10_recovery.outbox_unprocessed o
      where o.row_id = w.row_id
        and o.claimed_at is null
        and o.process_after is null
        and o.id = (
          select e.id
          from m10_recovery.outbox_unprocessed e
          where (e.aggregate_type, e.aggregate_id) >= (o.aggregate_type, o.aggregate_id)
          order by e.aggregate_type, e.aggregate_id, e.id
          limit 1)
      limit 1
      for update skip locked
    ) l
    limit 1);
  if current_setting('symphony.taken_over_claims', true) <> '' then
    perform set_config('symphony.taken_over_claims', '0', true);
  end if;

  return query
    update m10_recovery.outbox o
    set claimed_at = now(),
        claimed_by = p_processor_id
    where o.ctid = any (v_newest)
    returning o.id, o.aggregate_type, o.aggregate_id, o.event_type, o.payload, o.retry_count;
end
$$;

comment on function symphony.claim_newest_event(text) is
  'Claims the newest event that has not failed and is the first of its aggregate, to probe a failing sink.';
