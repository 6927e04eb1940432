-- Returns what takes the place of an erased payload: when it was erased, and a salted digest of the payment.
--
-- Locks: nothing. For: erase_payment_payload and the trigger that allows an erasure.
create or replace function symphony.payload_tombstone(p_erased_at timestamptz, p_digest bytea)
  returns jsonb
  language plpgsql
  stable
  parallel safe
  set search_path = pg_catalog, symphony, pg_temp
as $$
begin
  return jsonb_build_object(
    'erased', true,
    'erased_at', to_char(p_erased_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
    'digest', encode(p_digest, 'hex'));
end
$$;

comment on function symphony.payload_tombstone(timestamptz, bytea) is 'The JSON object that takes the place of an erased payload.';
