-- Returns how many bytes of payload one claim may return, uncompressed: 16 MiB, in every lane. A single larger row is
-- returned alone.
--
-- Locks: nothing. For: the claim functions.
create or replace function symphony.claim_byte_limit()
  returns bigint
  language plpgsql
  immutable
  parallel safe
  set search_path = pg_catalog, symphony, pg_temp
as $$
begin
  return 16777216;
end
$$;

comment on function symphony.claim_byte_limit() is 'The maximum of payload bytes that one claim returns.';
