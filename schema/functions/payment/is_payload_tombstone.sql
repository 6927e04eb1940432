-- Returns whether a payload is the tombstone of an erasure at that time.
--
-- A producer may have enqueued an object that looks like a tombstone, but not with the microsecond of a later erasure.
-- Locks: nothing. For: erase_payment_payload and the trigger that allows an erasure.
create or replace function symphony.is_payload_tombstone(p_payload jsonb, p_erased_at timestamptz)
  returns boolean
  language plpgsql
  stable
  parallel safe
  set search_path = pg_catalog, symphony, pg_temp
as $$
begin
  return p_payload ? 'digest' and p_payload - 'digest' = payload_tombstone(p_erased_at, '') - 'digest';
end
$$;

comment on function symphony.is_payload_tombstone(jsonb, timestamptz) is 'Whether a payload is the tombstone of an erasure at that time.';
