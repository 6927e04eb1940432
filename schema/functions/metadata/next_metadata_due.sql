-- Returns in how many milliseconds the next failed entry is due, so that an idle relayer can wait until then.
--
-- Null means that none is scheduled. Entries that are due already do not count: a claim finds them.
-- Locks: nothing. For: symphony_executor.
create or replace function symphony.next_metadata_due()
  returns bigint
  language plpgsql
  stable
  security definer
  set search_path = pg_catalog, symphony, pg_temp
  set plan_cache_mode = force_generic_plan
  set jit = off
  set enable_seqscan = off
  set enable_bitmapscan = off
  set enable_sort = off
as $$
begin
  return (
    select ceil(extract(epoch from o.next_retry_at - now()) * 1000)
    from metadata_outbox o
    where o.status = 'FAILED'
      and o.retry_count < o.max_retries
      and o.next_retry_at > now()
    order by o.next_retry_at, o.id
    limit 1);
end
$$;

comment on function symphony.next_metadata_due() is
  'Milliseconds until the next failed entry is due; null if none is scheduled.';
