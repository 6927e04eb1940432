-- Creates p_count time-ordered UUIDs for the rows of one statement, in ascending order.
--
-- They share the time of the call. Their random part is one random number of 60 bits, counted up: RFC 9562 calls that a
-- monotonic random counter. A random part for each would take five times as long, and would scatter the rows of a
-- statement over the pages of an index.
-- Locks: nothing. For: the functions that write many rows.
create or replace function symphony.uuidv7s(p_count int)
  returns uuid[]
  language plpgsql
  volatile
  set search_path = pg_catalog, symphony, pg_temp
as $$
declare
  v_first constant text := replace(uuidv7()::text, '-', '');
  -- Up to the variant, with which the random half begins.
  v_head  constant text := left(v_first, 16);
  -- The digit 8, which is the variant, and 60 random bits, so that counting up never changes the variant. As a bigint it
  -- is negative: to_hex prints all 16 digits.
  v_tail  constant bigint := ('x8' || right(v_first, 15))::bit(64)::bigint;
begin
  return array(
    select (v_head || to_hex(v_tail + i))::uuid
    from generate_series(0, p_count - 1) as i);
end
$$;

comment on function symphony.uuidv7s(int) is 'An array of p_count time-ordered UUIDs of one time, ascending.';
