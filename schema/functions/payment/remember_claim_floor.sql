-- Remembers, for this session and for a while, where the living rows of a rail begin in the claim order.
--
-- Called when a claim walked over far more index entries than it found rows. What can still appear below
-- the floor is an enqueue whose transaction began more than a second before it committed; it is found
-- when the floor lapses. That is after 20 µs for each entry that was walked, so that full looks cost a
-- few per cent of the time at most, and never more than 10 seconds.
-- Locks: nothing. For: claim_outbox_batch.
create or replace function symphony.remember_claim_floor(p_rail_type text, p_walked bigint)
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

  perform set_config('symphony.claim_floors',
    (coalesce(nullif(current_setting('symphony.claim_floors', true), ''), '{}')::jsonb
     || jsonb_build_object(p_rail_type, jsonb_build_object(
          'from', least(v_first, now() - interval '1 second'),
          'until', clock_timestamp() + least(interval '10 seconds', p_walked * interval '20 microseconds'))))::text,
    false);
end
$$;

comment on function symphony.remember_claim_floor(text, bigint) is 'Lets this session''s next claims start where the living rows of a rail begin.';
