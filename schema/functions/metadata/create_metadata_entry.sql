-- Creates one entry in the producer's transaction: it commits with the entity's rows or not at all.
--
-- Of two writes of one entity the later must win in the second store. So the function locks the entity's row until the
-- transaction ends, and created_at, which is the version, is later than that of every earlier entry of the entity.
-- Versions rise in commit order, even if the clock steps back, and in a later epoch they are later than all before. Under
-- REPEATABLE READ and SERIALIZABLE PostgreSQL
-- raises 40001 if another transaction has written the entity since the snapshot.
--
-- Names have at most 200 characters, the metadata at most 1 MiB and 100 levels. The trigger on the table notifies an
-- idle relayer.
-- Locks: the entity's row, until the transaction ends. Raises: P7005, 40001. For: symphony_ingest.
create or replace function symphony.create_metadata_entry(
  p_entity_type text,
  p_entity_id   text,
  p_metadata    jsonb,
  p_max_retries int default 20)
  returns uuid
  language plpgsql
  security definer
  set search_path = pg_catalog, symphony, pg_temp
  set plan_cache_mode = force_generic_plan
  set jit = off
  set enable_seqscan = off
  set enable_bitmapscan = off
  set enable_sort = off
as $$
declare
  v_metadata_limit constant int := 1048576;
  v_now            timestamptz;
  v_id             uuid;
begin
  perform check_argument('p_entity_type', p_entity_type, 200);
  perform check_argument('p_entity_id', p_entity_id, 200);
  perform check_range('p_max_retries', p_max_retries, 1, 100);
  perform check_payload('p_metadata', p_metadata, v_metadata_limit);

  v_now := next_metadata_version(p_entity_type, p_entity_id);
  insert into metadata_outbox as o (id, entity_id, entity_type, metadata, max_retries, created_at, updated_at, epoch)
  values (uuidv7(), p_entity_id, p_entity_type, p_metadata, p_max_retries, v_now, v_now, number_epoch())
  returning o.id
  into v_id;
  return v_id;
end
$$;

comment on function symphony.create_metadata_entry(text, text, jsonb, int) is
  'Creates one metadata entry in the producer''s transaction and returns its id.';
