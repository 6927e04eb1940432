-- Creates a time-ordered UUID (RFC 9562, version 7), for servers that have no such function.
--
-- 48 bits of milliseconds, 12 bits of their fraction, 62 random bits: the layout of PostgreSQL 18. There pg_catalog
-- has its own uuidv7, which comes first in our search_path. Ours is installed there too, so that a database that was
-- restored into or upgraded to another version equals a fresh install. The order helps the indexes; nothing is
-- dispatched by it.
-- Locks: nothing. For: the other functions.
create or replace function symphony.uuidv7()
  returns uuid
  language plpgsql
  volatile
  parallel safe
  set search_path = pg_catalog, symphony, pg_temp
as $$
begin
  -- 15 hexadecimal digits of time, in units of 1/4096 ms, with the version behind the 12th; then half of a random UUID, its variant first.
  return overlay('0' || to_hex((date_part('epoch', clock_timestamp()) * 4096000)::bigint) || substr(gen_random_uuid()::text, 20)
                 placing '7' from 13 for 0)::uuid;
end
$$;

comment on function symphony.uuidv7() is 'A time-ordered UUID, version 7. From PostgreSQL 18 on the server''s own is used.';
