-- Returns the version of an entry: its created_at in microseconds since 1970.
--
-- Locks: nothing. For: the other functions.
create or replace function symphony.metadata_version(p_created_at timestamptz)
  returns bigint
  language sql
  immutable
  parallel safe
  set search_path = pg_catalog, symphony, pg_temp
as $$
  select (extract(epoch from p_created_at) * 1000000)::bigint;
$$;

comment on function symphony.metadata_version(timestamptz) is 'The version of an entry: microseconds from 1970 to its creation.';
