-- Allocates the next version of an entity: the current time, or one microsecond after the newest version if the clock
-- is behind it.
--
-- The row lock lasts until the transaction ends, so versions rise in commit order. As in bump_participant_outbox_seq
-- the row is searched from the newest end of the index: under a held snapshot each version leaves a dead tuple. The
-- row of a new entity starts after the entries that the entity already has, in case they were written without this
-- function.
-- Locks: the entity's row, until the transaction ends. For: create_metadata_entry.
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

comment on function symphony.next_metadata_version(text, text) is
  'Allocates the next version of an entity and locks its row until the transaction ends.';
