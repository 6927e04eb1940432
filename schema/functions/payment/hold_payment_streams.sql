-- Holds the streams of payments that have just failed on ordered rails with on_failure HOLD.
--
-- A stream is the payments of one participant on one rail. The hold stands in the place of the failed row: claims lease no
-- later row of the stream, parked or not, however late it was enqueued. It is written in the transaction that deletes that
-- row, so every snapshot has one of the two. The rows that were parked behind it stay parked.
--
-- A payment that was cancelled holds nothing: no operator has anything to find out.
-- Locks: the holds it writes. For: record_terminal_attempts and record_attempts, which have written the ledger rows.
create or replace function symphony.hold_payment_streams(p_outbox_ids uuid[])
  returns void
  language plpgsql
  security definer
  set search_path = pg_catalog, symphony, pg_temp
  set plan_cache_mode = force_generic_plan
  set jit = off
  set enable_seqscan = off
  set enable_bitmapscan = off
as $$
begin
  insert into payment_stream_holds as h (participant_id, rail_type, sequence_id, outbox_id)
  select a.participant_id, a.rail_type, a.sequence_id, a.outbox_id
  from unnest(p_outbox_ids) as g (outbox_id)
  cross join lateral (
    select a.participant_id, a.rail_type, a.sequence_id, a.outbox_id
    from payment_outbox_attempts a
    where a.outbox_id = g.outbox_id
      and a.state = 'FAILED'
      and a.error_code is distinct from 'CANCELLED'
    limit 1
  ) a
  on conflict (participant_id, rail_type, sequence_id) do update
    set outbox_id = excluded.outbox_id,
        held_at = excluded.held_at;
end
$$;

comment on function symphony.hold_payment_streams(uuid[]) is
  'Holds the streams of payments that have just failed on ordered rails with on_failure HOLD.';
