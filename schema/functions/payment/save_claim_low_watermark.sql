-- Saves, for this session and for a while, the next_attempt_at of a rail's first live row in the claim order.
--
-- A claim calls it after it has read far more index entries than it found rows. An enqueue whose transaction began
-- more than a second before its commit can still appear below the watermark; claims find it after the watermark has
-- expired. It expires after 20 µs for each entry that was read, so that full scans cost a few per cent of the time,
-- and after at most 10 seconds.
-- Locks: nothing. For: claim_outbox_batch.
create or replace function symphony.save_claim_low_watermark(p_rail_type text, p_walked bigint)
  returns void
  language plpgsql
  set search_path = pg_catalog, symphony, pg_temp
  set jit = off
  set enable_seqscan = off
  set enable_bitmapscan = off
as $$
declare
  v_first timestamptz;
begin
  select p.next_attempt_at
  into v_first
  from payment_outbox_pending p
  where p.rail_type = p_rail_type
    and not p.parked
  order by p.next_attempt_at, p.created_at
  limit 1;

  perform set_config('symphony.claim_low_watermarks',
    (coalesce(nullif(current_setting('symphony.claim_low_watermarks', true), ''), '{}')::jsonb
     || jsonb_build_object(p_rail_type, jsonb_build_object(
          'from', least(v_first, now() - interval '1 second'),
          'until', clock_timestamp() + least(interval '10 seconds', p_walked * interval '20 microseconds'))))::text,
    false);
end
$$;

comment on function symphony.save_claim_low_watermark(text, bigint) is
  'Makes this session''s next claims start at the first live row of a rail.';
