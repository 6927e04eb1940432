-- Removes events that were processed before the end of their retention, with their errors. By default none.
--
-- The oldest first, at most p_limit. Returns how many events. Each removal is recorded in retention_removals.
-- Locks: the rows that it removes, skipping what another session has locked. Raises: P7005, 25000 outside READ COMMITTED.
-- For: symphony_executor, symphony_operator.
create or replace function symphony.remove_processed_events(p_limit int default 1000)
  returns bigint
  language plpgsql
  security definer
  set search_path = pg_catalog, symphony, pg_temp
  set plan_cache_mode = force_generic_plan
  set jit = off
  set enable_seqscan = off
  set enable_bitmapscan = off
as $$
declare
  v_cutoff constant timestamptz := retention_cutoff('events');
  v_events bigint[];
begin
  perform check_range('p_limit', p_limit, 1, 100000);
  perform check_isolation();
  if v_cutoff is null then
    return 0;
  end if;
  v_events := array(
    select o.id
    from m10_recovery.outbox o
    where o.processed_at < v_cutoff
      -- Errors are dated by the clock, processed_at by the start of the transaction: an error may be later.
      and not exists (
        select
        from m10_recovery.outbox_errors e
        where e.event_id = o.id
          and e.created_at >= v_cutoff)
    order by o.processed_at
    limit p_limit
    for update skip locked);
  if v_events = '{}' then
    return 0;
  end if;
  -- The event first: an error is kept as long as its event is there.
  delete from m10_recovery.outbox o where o.id = any (v_events);
  delete from m10_recovery.outbox_errors e where e.event_id = any (v_events);
  insert into retention_removals (kept, removed_rows, removed_before)
  values ('events', cardinality(v_events), v_cutoff);
  return cardinality(v_events);
end
$$;

comment on function symphony.remove_processed_events(int) is 'Removes a batch of processed events past their retention, with their errors.';
