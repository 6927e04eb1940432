-- Returns the lowest UUIDv7 of a time, so that a range of time is a range of a key. Null for null.
--
-- Locks: nothing. For: searches by time.
create or replace function symphony.uuidv7_lower_bound(p_at timestamptz)
  returns uuid
  language plpgsql
  immutable
  parallel safe
  set search_path = pg_catalog, symphony, pg_temp
as $$
begin
  if p_at is null then
    return null;
  end if;
  -- 48 bits of milliseconds, as uuidv7 has them.
  return (lpad(to_hex(greatest(0, least(281474976710655, floor(extract(epoch from p_at) * 1000)))::bigint), 12, '0') || repeat('0', 20))::uuid;
end
$$;

comment on function symphony.uuidv7_lower_bound(timestamptz) is 'The lowest UUIDv7 of a time.';
