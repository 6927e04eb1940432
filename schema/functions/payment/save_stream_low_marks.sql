-- Saves where the next look-ups begin in the streams of these heads.
--
-- A stream is the pending rows of one participant on one rail. A claim finds its head in the index by participant and
-- sequence number, and so reads the rows that the participant has on other rails. Without a low mark every claim would read all
-- of them. The mark of a stream is the sequence number of its head. It stays true: sequence order is commit order, so no
-- row with a lower number can appear. A redrive that takes the place of a failure has a number that no mark has passed: until
-- then the failure held every later row.
--
-- The caller has locked the heads, so no other claim saves the mark of the same stream.
-- Locks: the rows that it writes. For: claim_outbox_batch.
create or replace function symphony.save_stream_low_marks(p_heads tid[])
  returns void
  language plpgsql
  set search_path = pg_catalog, symphony, pg_temp
  set plan_cache_mode = force_generic_plan
  set enable_seqscan = off
  set enable_bitmapscan = off
as $$
begin
  insert into payment_stream_low_marks as m (participant_id, rail_type, sequence_id)
  select p.participant_id, p.rail_type, p.sequence_id
  from payment_outbox_pending p
  where p.ctid = any (p_heads)
  order by p.participant_id
  on conflict (participant_id, rail_type) do update
    set sequence_id = excluded.sequence_id
    where m.sequence_id < excluded.sequence_id;
end
$$;

comment on function symphony.save_stream_low_marks(tid[]) is 'Saves where the next look-ups begin in the streams of these heads.';
