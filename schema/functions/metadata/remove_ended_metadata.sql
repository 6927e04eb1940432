-- Removes metadata entries that were published, or moved to the DLQ, before the end of their retention. By default none.
--
-- The oldest first, at most p_limit. The newest version of an entity stays known in metadata_entities. Returns how many
-- entries. Each removal is recorded in retention_removals.
-- Locks: the rows that it removes, skipping what another session has locked. Raises: P7005, 25000 outside READ COMMITTED.
-- For: symphony_executor, symphony_operator.
create or replace function symphony.remove_ended_metadata(p_limit int default 1000)
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
  v_cutoff constant timestamptz := retention_cutoff('metadata');
  v_entries uuid[];
begin
  perform check_range('p_limit', p_limit, 1, 100000);
  perform check_isolation();
  if v_cutoff is null then
    return 0;
  end if;
  v_entries := array(
    select o.id
    from metadata_outbox o
    where o.status = 'PUBLISHED'
      and o.processed_at < v_cutoff
    order by o.processed_at, o.id
    limit p_limit
    for update skip locked);
  v_entries := v_entries || array(
    select o.id
    from metadata_outbox o
    where o.status = 'DLQ'
      and o.updated_at < v_cutoff
    order by o.updated_at, o.id
    limit p_limit - cardinality(v_entries)
    for update skip locked);
  if v_entries = '{}' then
    return 0;
  end if;
  delete from metadata_outbox o where o.id = any (v_entries);
  insert into retention_removals (kept, removed_rows, removed_before)
  values ('metadata', cardinality(v_entries), v_cutoff);
  return cardinality(v_entries);
end
$$;

comment on function symphony.remove_ended_metadata(int) is 'Removes a batch of published and dead metadata entries past their retention.';
