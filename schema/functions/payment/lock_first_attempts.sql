-- Locks rows of a rail that are due and have not been attempted, the newest first.
--
-- A worker that finds a rail failing probes it with such a row: one that has failed says little about the rail, and the
-- newest is far from the rows that failed, which were the oldest. Of rows that were enqueued together the last comes first.
-- On an ordered rail only heads count. It looks at the newest thousand due rows; if they were all attempted, or wait
-- behind a head or a failure that holds the stream, it returns none, and the worker claims in the usual order. bytes is an upper bound of the payloads.
-- rail_type || '' keeps the plan from the index of the claim order.
-- Locks: the rows it returns (SKIP LOCKED). For: claim_outbox_batch.
create or replace function symphony.lock_first_attempts(
  p_rail_type text,
  p_ordered   boolean,
  p_max_rows  int,
  out row_ids tid[],
  out bytes   bigint)
  language plpgsql
  security definer
  set search_path = pg_catalog, symphony, pg_temp
  set plan_cache_mode = force_generic_plan
  set jit = off
  set enable_seqscan = off
  set enable_bitmapscan = off
  set enable_sort = off
  set enable_hashjoin = off
  set enable_mergejoin = off
  set enable_material = off
as $$
declare
  c_window constant int := 1000;
begin
  select coalesce(array_agg(d.row_id), '{}'), coalesce(sum(d.bytes), 0)
  into row_ids, bytes
  from (
    select p.ctid as row_id,
           case when pg_column_compression(p.payload) is null then pg_column_size(p.payload) else 262144 end as bytes
    from (
      select p.ctid as row_id, p.next_attempt_at, p.created_at
      from payment_outbox_pending p
      where p.rail_type = p_rail_type
        and not p.parked
        and p.next_attempt_at <= now()
        and p.lease_token is null
      order by p.next_attempt_at desc, p.created_at desc
      limit c_window
    ) f
    join payment_outbox_pending p on p.ctid = f.row_id
    where p.lease_token is null
      and p.attempt_count = 0
      -- FIFO, as in claim_outbox_batch.
      and (not p_ordered
           or (
             select true
             from payment_outbox_pending e
             where e.participant_id = p.participant_id
               and e.sequence_id >= coalesce((
                 select m.sequence_id
                 from payment_stream_low_marks m
                 where m.participant_id = p.participant_id
                   and m.rail_type = p.rail_type), 1)
               and e.sequence_id < p.sequence_id
               and e.rail_type || '' = p.rail_type
             limit 1) is null
             and (
               select true
               from payment_stream_holds h
               where h.participant_id = p.participant_id
                 and h.rail_type = p.rail_type
                 and h.sequence_id < p.sequence_id
               limit 1) is null)
    order by f.next_attempt_at desc, f.created_at desc
    limit p_max_rows
    for update of p skip locked
  ) d;
end
$$;

comment on function symphony.lock_first_attempts(text, boolean, int) is
  'Locks rows of a rail that are due and have not been attempted, the newest first.';
