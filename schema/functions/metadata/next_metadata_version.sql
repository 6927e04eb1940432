-- Takes the next version of an entity: the time, or a microsecond after the newest version if the clock has not passed that.
--
-- The row lock lasts until the caller's transaction ends, so that versions rise in the order of commits. As in bump_participant_outbox_seq the row is
-- looked for from the newest end of the index: while an old snapshot is held, each version leaves a dead tuple behind. A new row starts
-- after the entries that the entity has, should they have come without it.
-- Locks: the entity's row, until the caller's transaction ends. For: create_metadata_entry.
create or replace function symphony.next_metadata_version(p_entity_type text, p_entity_id text)
  returns timestamptz
  language plpgsql
  set search_path = pg_catalog, symphony, pg_temp
  set plan_cache_mode = force_generic_plan
  set enable_seqscan = off
  set enable_bitmapscan = off
  set enable_sort = off
as $$
declare
  v_entity  tid;
  v_version timestamptz;
begin
  select e.ctid
  into v_entity
  from metadata_entities e
  where e.entity_type between p_entity_type and p_entity_type
    and e.entity_id between p_entity_id and p_entity_id
  order by e.entity_type desc, e.entity_id desc
  limit 1
  for no key update;
  if found then
    update metadata_entities e
    set newest_version = greatest(clock_timestamp(), e.newest_version + interval '1 microsecond')
    where e.ctid = v_entity
    returning e.newest_version into v_version;
  else
    insert into metadata_entities as e (entity_type, entity_id, newest_version)
    values (
      p_entity_type, p_entity_id,
      greatest(
        clock_timestamp(),
        (select o.created_at + interval '1 microsecond'
         from metadata_outbox o
         where o.entity_type = p_entity_type
           and o.entity_id = p_entity_id
         order by o.created_at desc
         limit 1)))
    on conflict (entity_type, entity_id) do update
      set newest_version = greatest(clock_timestamp(), e.newest_version + interval '1 microsecond')
    returning e.newest_version into v_version;
  end if;
  return v_version;
end
$$;

comment on function symphony.next_metadata_version(text, text) is 'Takes the next version of an entity and holds its row until the transaction ends.';
