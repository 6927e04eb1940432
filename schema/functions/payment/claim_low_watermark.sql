-- Returns the next_attempt_at at which this session starts to scan a rail for due rows; -infinity without a saved
-- watermark.
--
-- Under a held snapshot VACUUM cannot remove the entries of ended rows from the front of the claim index, and every
-- claim would read them. A claim that has read too many saves a low watermark for a while; see
-- save_claim_low_watermark. If the clock was set back since, the watermark is void: it would be valid for too long.
-- Locks: nothing. For: claim_outbox_batch.
create or replace function symphony.claim_low_watermark(p_rail_type text)
  returns timestamptz
  language plpgsql
  stable
  set search_path = pg_catalog, symphony, pg_temp
as $$
declare
  v_floor jsonb;
begin
  v_floor := current_setting('symphony.claim_low_watermarks', true)::jsonb -> p_rail_type;
  if clock_timestamp() >= (v_floor ->> 'saved_at')::timestamptz and clock_timestamp() < (v_floor ->> 'until')::timestamptz then
    return least((v_floor ->> 'from')::timestamptz, now() - interval '1 second');
  end if;
  return '-infinity';
exception when data_exception then
  -- Any session can set the setting to an invalid value.
  return '-infinity';
end
$$;

comment on function symphony.claim_low_watermark(text) is
  'The next_attempt_at at which this session starts to scan a rail for due rows.';
