-- Saves, for this session and for a while, the next_attempt_at at which its claims start to scan a rail.
--
-- A claim calls it after it has scanned far more index entries than it found rows. If it scanned a few thousand at most,
-- they are mostly rows that other workers have leased: the next claims start at p_last_due, the latest row that this claim
-- found. If it scanned more, they are entries of ended rows that VACUUM cannot remove: the next claims start at the rail's first
-- live row.
--
-- A watermark is always more than a second old, because an enqueue whose transaction began earlier than that can still
-- commit below it. Claims find such a row, and a lease that ended below the watermark, after the watermark has expired. It
-- expires after 20 µs for each entry that was scanned, so that full scans cost a few per cent of the time, and after at
-- most 10 seconds.
-- Locks: nothing. For: claim_outbox_batch.
create or replace function symphony.save_claim_low_watermark(p_rail_type text, p_scanned bigint, p_found int, p_last_due timestamptz)
  returns void
  language plpgsql
  set search_path = pg_catalog, symphony, pg_temp
  set jit = off
  set enable_seqscan = off
  set enable_bitmapscan = off
as $$
declare
  v_from timestamptz := p_last_due;
begin
  if p_scanned > 5000 + 10 * p_found then
    select p.next_attempt_at
    into v_from
    from payment_outbox_pending p
    where p.rail_type = p_rail_type
      and not p.parked
    order by p.next_attempt_at, p.created_at
    limit 1;
  elsif p_last_due > now() - interval '1 second' or p_last_due is null then
    return;
  end if;

  perform set_config('symphony.claim_low_watermarks',
    (coalesce(nullif(current_setting('symphony.claim_low_watermarks', true), ''), '{}')::jsonb
     || jsonb_build_object(p_rail_type, jsonb_build_object(
          'from', least(v_from, now() - interval '1 second'),
          'saved_at', clock_timestamp(),
          'until', clock_timestamp() + least(interval '10 seconds', p_scanned * interval '20 microseconds'))))::text,
    false);
end
$$;

comment on function symphony.save_claim_low_watermark(text, bigint, int, timestamptz) is
  'Makes this session''s next claims start behind rows that they cannot claim.';
