-- Claims one entry for one worker: the newest that is PENDING, so that it has not been attempted.
--
-- A relayer that finds its store failing probes it with such an entry. One that has failed says little about the store,
-- and the newest is far from the entries that failed, which were the oldest. Stores compare versions, so an entry may be stored before
-- an earlier one of its entity. See claim_metadata_batch.
-- The first claim on another server opens a new epoch; see ensure_epoch.
-- Locks: when the server has changed, those of advance_epoch; the row it returns; it waits for no row.
-- Raises: P7005; with a new epoch 25000 outside READ COMMITTED and 55P03. For: symphony_executor.
create or replace function symphony.claim_newest_metadata(p_worker text)
  returns table (
    id          uuid,
    entity_type text,
    entity_id   text,
    metadata    jsonb,
    version     bigint,
    retry_count int,
    max_retries int,
    claim_token uuid,
    created_at  timestamptz)
  language plpgsql
  security definer
  set search_path = pg_catalog, symphony, pg_temp
  set lock_timeout = '5s'
  set plan_cache_mode = force_generic_plan
  set jit = off
  set enable_seqscan = off
  set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
  v_newest uuid;
begin
  perform check_argument('p_worker', p_worker, 200);
  perform ensure_epoch(p_worker);
  select o.id
  into v_newest
  from metadata_outbox o
  where o.status = 'PENDING'
  order by o.created_at desc, o.id desc
  limit 1
  for no key update skip locked;

  return query
    update metadata_outbox o
    set status = 'PROCESSING',
        processing_started_at = now(),
        claim_token = gen_random_uuid(),
        claimed_by = p_worker,
        next_retry_at = null,
        updated_at = now()
    where o.id = v_newest
      and o.status = 'PENDING'
    returning o.id, o.entity_type, o.entity_id, o.metadata, metadata_version(o.created_at, o.epoch), o.retry_count, o.max_retries, o.claim_token,
              o.created_at;
end
$$;

comment on function symphony.claim_newest_metadata(text) is
  'Claims the newest entry that has not been attempted, to probe a failing store.';
