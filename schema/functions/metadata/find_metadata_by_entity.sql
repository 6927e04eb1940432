-- Lists the entries of an entity, the latest first, so that a service can check what it has written and what became of
-- it.
--
-- Returns neither the metadata nor the claim token.
-- Locks: nothing. Raises: P7005. For: every role except symphony_auth.
create or replace function symphony.find_metadata_by_entity(
  p_entity_id   text,
  p_entity_type text,
  p_limit       int default 100)
  returns table (
    id                    uuid,
    version               bigint,
    status                symphony.metadata_status,
    retry_count           int,
    max_retries           int,
    last_error            text,
    next_retry_at         timestamptz,
    processing_started_at timestamptz,
    claimed_by            text,
    processed_at          timestamptz,
    created_at            timestamptz,
    updated_at            timestamptz)
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
#variable_conflict use_column
begin
  perform check_argument('p_entity_type', p_entity_type, 200);
  perform check_argument('p_entity_id', p_entity_id, 200);
  perform check_range('p_limit', p_limit, 1, 1000);
  return query
    select o.id, metadata_version(o.created_at, o.epoch), o.status, o.retry_count, o.max_retries, o.last_error, o.next_retry_at,
           o.processing_started_at, o.claimed_by, o.processed_at, o.created_at, o.updated_at
    from metadata_outbox o
    where o.entity_type = p_entity_type
      and o.entity_id = p_entity_id
    order by o.created_at desc
    limit p_limit;
end
$$;

comment on function symphony.find_metadata_by_entity(text, text, int) is 'The entries of an entity, the latest first, without their metadata.';
