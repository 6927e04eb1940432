-- A time-ordered UUID (RFC 9562, version 7), for servers that have none of their own.
--
-- 48 bits of milliseconds, 12 bits of their fraction, 62 random bits: the layout that PostgreSQL 18 uses.
-- There it is in pg_catalog, which comes first in our search_path, so that one is called. Ours is there all the same: a
-- database that is dumped and restored into another version, or upgraded, is then what an install makes. The order serves
-- the indexes; nothing is ever dispatched by it.
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
