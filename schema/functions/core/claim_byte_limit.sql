-- The most bytes of payload that one claim of any lane hands to a relayer, decompressed: 16 MiB. A single larger row is handed out alone.
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

comment on function symphony.claim_byte_limit() is 'The most bytes of payload that one claim hands out.';
