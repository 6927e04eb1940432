-- Returns the time in a UUIDv7, to the millisecond. Null for null.
--
-- Locks: nothing. For: advise_on_unknown_outcome.
create or replace function symphony.uuidv7_time(p_id uuid)
  returns timestamptz
  language plpgsql
  immutable
  parallel safe
  set search_path = pg_catalog, symphony, pg_temp
as $$
begin
  return to_timestamp(('x' || translate(left(p_id::text, 13), '-', ''))::bit(48)::bigint / 1000.0);
end
$$;

comment on function symphony.uuidv7_time(uuid) is 'The time in a UUIDv7.';
