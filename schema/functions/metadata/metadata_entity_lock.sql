-- The advisory lock under which the entries of one entity get their versions.
--
-- Each part is hashed with a seed of its own, the second with the first's hash, so that neither
-- swapping the parts nor moving their boundary gives the same number. A collision costs waiting, no more.
-- Locks: nothing. For: create_metadata_entry.
create or replace function symphony.metadata_entity_lock(p_entity_type text, p_entity_id text)
  returns bigint
  language sql
  immutable
  parallel safe
  set search_path = pg_catalog, symphony, pg_temp
as $$
  select hashtextextended(p_entity_id, hashtextextended(p_entity_type, 7008));
$$;

comment on function symphony.metadata_entity_lock(text, text) is 'Number of the advisory lock that lets one transaction at a time write entries of an entity.';
