-- Returns the metadata of one entry; null if there is no such entry.
--
-- Metadata may contain personal data, so only auditors may read it. Everything else about an entry is in
-- metadata_outbox_entries.
-- Locks: nothing. Raises: nothing. For: symphony_auditor.
create or replace function symphony.read_metadata(p_id uuid)
  returns jsonb
  language plpgsql
  stable
  security definer
  set search_path = pg_catalog, symphony, pg_temp
  set plan_cache_mode = force_generic_plan
  set jit = off
  set enable_seqscan = off
  set enable_bitmapscan = off
as $$
begin
  return (select o.metadata from metadata_outbox o where o.id = p_id);
end
$$;

comment on function symphony.read_metadata(uuid) is 'The metadata of one entry; null if there is no such entry.';
