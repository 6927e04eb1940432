-- Requeues entries whose claim is too old, because their worker has died or hangs.
--
-- Each moves from PROCESSING to FAILED with LEASE_EXPIRED, counted as a failure like any other; without retries left
-- it moves on to DLQ. FAILED entries without retries left move to DLQ too, with the error they have. Returns one row
-- per entry: what it is now, and the worker that held it.
-- Locks: the rows it repairs; it skips rows that another session has locked. Raises: P7005. For: symphony_executor.
create or replace function symphony.repair_metadata_entries(
  p_older_than interval default '5 minutes',
  p_limit      int default 100)
  returns table (id uuid, status symphony.metadata_status, retry_count int, next_retry_at timestamptz, lost_worker text)
  language plpgsql
  security definer
  set search_path = pg_catalog, symphony, pg_temp
  set lock_timeout = '5s'
  set plan_cache_mode = force_generic_plan
  set jit = off
  set enable_seqscan = off
  set enable_bitmapscan = off
  set enable_sort = off
as $$
#variable_conflict use_column
declare
  v_left int := p_limit;
  v_row  record;
begin
  if p_older_than is null or not p_older_than between interval '1 second' and interval '1 day' then
    raise exception 'p_older_than must be from 1 second to 1 day, not %', coalesce(p_older_than::text, 'null') using errcode = 'P7005';
  end if;
  perform check_range('p_limit', p_limit, 1, 1000);

  for v_row in
    select o.id, o.claim_token, o.claimed_by
    from metadata_outbox o
    where o.status = 'PROCESSING'
      and o.processing_started_at < now() - p_older_than
    order by o.processing_started_at, o.id
    limit p_limit
    for no key update skip locked
  loop
    v_left := v_left - 1;
    return query
      select v_row.id, s.status, s.retry_count, s.next_retry_at, v_row.claimed_by
      from try_complete_metadata_claim(v_row.id, v_row.claim_token, 'FAILED', 'LEASE_EXPIRED', true) s;
  end loop;

  for v_row in
    select o.id, o.claimed_by, o.last_error
    from metadata_outbox o
    where o.status = 'FAILED'
      and o.retry_count >= o.max_retries
    order by o.updated_at, o.id
    limit v_left
    for no key update skip locked
  loop
    return query
      select v_row.id, s.status, s.retry_count, s.next_retry_at, v_row.claimed_by
      from try_complete_metadata_claim(v_row.id, null, 'DLQ', v_row.last_error, true) s;
  end loop;
end
$$;

comment on function symphony.repair_metadata_entries(interval, int) is
  'Requeues entries whose claim is too old: FAILED with LEASE_EXPIRED and due again, or in the DLQ.';
