-- Creates one entry in the caller's transaction: it is committed with the entity's rows or not at all.
--
-- Of two writes of one entity the later must win at the second store, whatever comes in between. So the entity's row is locked until
-- the caller ends, and the time of creation, which is the version, is later than that of every entry which the entity ever had:
-- versions rise in the order of commits, also when the clock steps back. Under REPEATABLE READ and SERIALIZABLE PostgreSQL refuses with 40001
-- where another transaction has written the entity since the snapshot.
-- Lengths are bounded as everywhere: 200 characters for a name, 1 MiB and 100 levels for the metadata. The trigger on the table wakes a
-- relayer that sleeps.
-- Locks: the entity's row, until the caller's transaction ends. Raises: P7005, 40001. For: symphony_ingest.
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
  insert into metadata_outbox as o (id, entity_id, entity_type, metadata, max_retries, created_at, updated_at)
  values (uuidv7(), p_entity_id, p_entity_type, p_metadata, p_max_retries, v_now, v_now)
  returning o.id
  into v_id;
  return v_id;
end
$$;

comment on function symphony.create_metadata_entry(text, text, jsonb, int) is
  'Creates one entry of the metadata lane in the caller''s transaction and returns its id.';
